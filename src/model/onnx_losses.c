/* ONNX's losses: SoftmaxWithLoss at the end of a graph, whose labels are data. */
#include "model/build_message.h"
#include "model/onnx_graph.h"

#include <string.h>

static bool is_read_by_nodes(const struct onnx_graph *g, const char *name)
{
    size_t n;
    const struct onnx_use *use = onnx_uses(g, name, &n);
    for (size_t i = 0; i < n; i++)
        if (use[i].node)
            return true;
    return false;
}

static int check_options(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    if (onnx_has(node, 2))
        return onnx_refuse(g, node, err, "weights of classes (input 2)");
    if (!onnx_text_is(node, "reduction", "mean", "mean") &&
        !onnx_text_is(node, "reduction", "sum", "mean"))
        return onnx_refuse(g, node, err, "reduction: mean or sum");
    if (is_read_by_nodes(g, node->proto->output[0]))
        return onnx_refuse(g, node, err, "a loss that other nodes read");
    return OK;
}

/* One label for each place of the scores, (N, C, ..). */
static int read_labels(struct onnx_graph *g, const struct onnx_node *node,
                       const struct onnx_value *x, struct onnx_value **labels, struct err *err)
{
    char a[128], b[128];
    int rc = onnx_raw_blob(g, node, 1, labels, err);
    if (rc != OK)
        return rc;
    const struct shape *of = &(*labels)->shape;
    bool fit = x->shape.n >= 2 && of->n == x->shape.n - 1 && of->dim[0] == x->shape.dim[0];
    for (size_t k = 1; k < of->n && fit; k++)
        fit = of->dim[k] == x->shape.dim[k + 1];
    return fit ? OK
               : onnx_broken(g, node, err, "labels of %s for scores of %s",
                             shape_text(of, a, sizeof a), shape_text(&x->shape, b, sizeof b));
}

static int fill_loss(struct onnx_graph *g, const struct onnx_node *node,
                     Caffe__LayerParameter *layer, struct err *err)
{
    const Onnx__AttributeProto *ignored = onnx_attribute(node, "ignore_index");
    bool sum = onnx_text_is(node, "reduction", "sum", "mean");
    if (ignored && (ignored->i < INT32_MIN || ignored->i > INT32_MAX))
        return onnx_refuse(g, node, err, "ignore_index %lld", (long long)ignored->i);
    if (!layer || (!ignored && !sum))
        return OK;
    Caffe__LossParameter *loss = build_message(&g->build, &caffe__loss_parameter__descriptor);
    layer->loss_param = loss;
    if (loss && ignored)
        BUILD_SET(loss, ignore_label, (int32_t)ignored->i);
    if (loss && sum)
        BUILD_SET(loss, normalization, CAFFE__LOSS_PARAMETER__NORMALIZATION_MODE__NONE);
    return OK;
}

static int add_loss(struct onnx_graph *g, const struct onnx_node *node, struct onnx_value *x,
                    struct err *err)
{
    const struct shape scalar = {0};
    struct onnx_value *labels;
    int rc = check_options(g, node, err);
    if (rc == OK)
        rc = onnx_settle(g, x, err);
    if (rc == OK)
        rc = read_labels(g, node, x, &labels, err);
    if (rc != OK)
        return rc;
    Caffe__LayerParameter *layer = onnx_layer(g, node, "SoftmaxWithLoss", x);
    if (layer)
        build_add_string(&g->build, &layer->bottom, &layer->n_bottom, labels->blob);
    rc = fill_loss(g, node, layer, err);
    return rc == OK ? onnx_result(g, node, 0, &scalar, err) : rc;
}

/* Output 1, the logarithms of probabilities: for reading, the loss has its own. */
static int add_probabilities(struct onnx_graph *g, const struct onnx_node *node,
                             const struct onnx_value *x, struct err *err)
{
    if (!onnx_has_output(node, 1) || onnx_readers(g, node->proto->output[1]) == 0)
        return OK;
    const char *inner = onnx_name(g, node, "softmax");
    onnx_inner_layer(g, "Softmax", inner, x->blob, inner);
    onnx_inner_layer(g, "Log", onnx_name(g, node, "log"), inner, node->proto->output[1]);
    return onnx_result(g, node, 1, &x->shape, err);
}

int onnx_softmax_loss(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x;
    int rc = onnx_raw_blob(g, node, 0, &x, err);
    if (rc == OK)
        rc = add_loss(g, node, x, err);
    return rc == OK ? add_probabilities(g, node, x, err) : rc;
}

/* The input of the LogSoftmax over axis 1 that makes the value; NULL: another node makes it. */
static struct onnx_value *find_scores(const struct onnx_graph *g, const struct onnx_value *x)
{
    const struct onnx_node node = {.proto = x->made_by, .name = ""};
    int64_t n = (int64_t)x->shape.n;
    if (!node.proto || strcmp(node.proto->op_type, "LogSoftmax") != 0 ||
        strcmp(node.proto->output[0], x->name) != 0)
        return NULL;
    int64_t axis = onnx_int(&node, "axis", g->opset < 13 ? 1 : -1);
    bool over = axis == 1 || axis == 1 - n;
    bool alone = g->opset >= 13 || shape_count_from(&x->shape, 2) == 1;
    return n >= 2 && over && alone ? onnx_find(g, node.proto->input[0]) : NULL;
}

int onnx_likelihood_loss(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *x;
    int rc = onnx_raw_blob(g, node, 0, &x, err);
    if (rc != OK)
        return rc;
    struct onnx_value *scores = find_scores(g, x);
    if (!scores || !scores->is_blob || scores->by_step)
        return onnx_refuse(g, node, err, "input 0 is not the output of a LogSoftmax over axis 1");
    return add_loss(g, node, scores, err);
}
