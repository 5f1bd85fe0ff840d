/* The table of ONNX's operators: which opset each is known from, and its attributes. */
#include "model/onnx_graph.h"
#include "model/onnx_import.h"

#include <string.h>

static const struct known_operator {
    const char *type;
    int64_t least; /* opset */
    onnx_operator *make;
    const char *attributes; /* each with a space behind it */
} operators[] = {
    {"Abs", 6, onnx_abs, ""},
    {"Add", 7, onnx_plus, ""},
    {"AveragePool", 1, onnx_average_pool,
     "auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides "},
    {"BatchNormalization", 7, onnx_batch_norm, "epsilon momentum training_mode spatial "},
    {"Cast", 6, onnx_cast, "to saturate "},
    {"Clip", 6, onnx_clip, "min max "},
    {"Concat", 4, onnx_concat, "axis "},
    {"Constant", 1, onnx_constant, "value value_float value_floats value_int value_ints "},
    {"ConstantOfShape", 9, onnx_constant_of_shape, "value "},
    {"Conv", 1, onnx_conv, "auto_pad dilations group kernel_shape pads strides "},
    {"ConvTranspose", 1, onnx_conv_transpose,
     "auto_pad dilations group kernel_shape output_padding output_shape pads strides "},
    {"Div", 7, onnx_divide, ""},
    {"Dropout", 7, onnx_dropout, "ratio seed "},
    {"Elu", 6, onnx_elu, "alpha "},
    {"Exp", 6, onnx_exp, ""},
    {"Expand", 8, onnx_expand, ""},
    {"Flatten", 1, onnx_flatten, "axis "},
    {"GRU", 7, onnx_gru, "activations clip direction hidden_size layout linear_before_reset "},
    {"Gather", 1, onnx_gather, "axis "},
    {"Gemm", 7, onnx_gemm, "alpha beta transA transB "},
    {"GlobalAveragePool", 1, onnx_global_average, ""},
    {"GlobalMaxPool", 1, onnx_global_max, ""},
    {"Identity", 1, onnx_identity, ""},
    {"LRN", 1, onnx_lrn, "alpha beta bias size "},
    {"LSTM", 7, onnx_lstm, "activations clip direction hidden_size input_forget layout "},
    {"LeakyRelu", 6, onnx_leaky_relu, "alpha "},
    {"Log", 6, onnx_log, ""},
    {"LogSoftmax", 1, onnx_log_softmax, "axis "},
    {"MatMul", 1, onnx_matmul, ""},
    {"Max", 8, onnx_max, ""},
    {"MaxPool", 1, onnx_max_pool,
     "auto_pad ceil_mode dilations kernel_shape pads storage_order strides "},
    {"Mean", 8, onnx_mean, ""},
    {"Mul", 7, onnx_times, ""},
    {"NegativeLogLikelihoodLoss", 12, onnx_likelihood_loss, "ignore_index reduction "},
    {"Neg", 6, onnx_neg, ""},
    {"PRelu", 7, onnx_prelu, ""},
    {"Pad", 2, onnx_pad, "mode pads value "},
    {"Pow", 7, onnx_pow, ""},
    {"Reciprocal", 6, onnx_reciprocal, ""},
    {"RNN", 7, onnx_rnn, "activations clip direction hidden_size layout "},
    {"ReduceMax", 1, onnx_reduce_max, "axes keepdims noop_with_empty_axes "},
    {"ReduceMean", 1, onnx_reduce_mean, "axes keepdims noop_with_empty_axes "},
    {"Relu", 6, onnx_relu, ""},
    {"Reshape", 5, onnx_reshape, "allowzero "},
    {"Shape", 1, onnx_shape, "start end "},
    {"Sigmoid", 6, onnx_sigmoid, ""},
    {"Slice", 1, onnx_slice, "axes ends starts "},
    {"Softmax", 1, onnx_softmax, "axis "},
    {"SoftmaxCrossEntropyLoss", 12, onnx_softmax_loss, "ignore_index reduction "},
    {"Split", 2, onnx_split, "axis split num_outputs "},
    {"Sqrt", 6, onnx_sqrt, ""},
    {"Squeeze", 1, onnx_squeeze, "axes "},
    {"Sub", 7, onnx_minus, ""},
    {"Sum", 8, onnx_sum, ""},
    {"Tanh", 6, onnx_tanh, ""},
    {"Transpose", 1, onnx_transpose, "perm "},
    {"Unsqueeze", 1, onnx_unsqueeze, "axes "},
};

enum { OPERATORS = sizeof operators / sizeof *operators };

static const struct known_operator *find_operator(const char *type)
{
    for (size_t i = 0; i < OPERATORS; i++)
        if (strcmp(operators[i].type, type) == 0)
            return &operators[i];
    return NULL;
}

static bool is_listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; n > 0 && (at = strstr(at, name)); at += n)
        if (at[n] == ' ' && (at == list || at[-1] == ' '))
            return true;
    return false;
}

onnx_operator *onnx_operator_of(const struct onnx_graph *g, const struct onnx_node *node,
                                struct err *err)
{
    const Onnx__NodeProto *proto = node->proto;
    const char *domain = proto->domain ? proto->domain : "";
    const struct known_operator *op = proto->op_type ? find_operator(proto->op_type) : NULL;
    if (domain[0] && strcmp(domain, "ai.onnx") != 0) {
        onnx_refuse(g, node, err, "operators of the domain %.60s are not supported", domain);
        return NULL;
    }
    if (!op) {
        onnx_refuse(g, node, err, "the operator is not supported");
        return NULL;
    }
    if (g->opset < op->least) {
        onnx_refuse(g, node, err, "the operator is read from opset %lld to %d",
                    (long long)op->least, ONNX_OPSET_MAX);
        return NULL;
    }
    for (size_t i = 0; i < proto->n_attribute; i++) {
        const char *name = proto->attribute[i]->name ? proto->attribute[i]->name : "";
        if (!is_listed(op->attributes, name)) {
            onnx_refuse(g, node, err, "attribute %.60s is not supported", name);
            return NULL;
        }
    }
    return op->make;
}
