/* Graphs that the import of ONNX models refuses as a whole: by their inputs, or by their size. */
#include "model/onnx_import.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Imports a graph of opset 14. */
static int import_graph(Onnx__GraphProto *graph, struct err *err)
{
    Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
    Onnx__OperatorSetIdProto set = ONNX__OPERATOR_SET_ID_PROTO__INIT, *sets[] = {&set};
    Caffe__NetParameter *net = NULL;
    set.version = 14;
    model.opset_import = sets;
    model.n_opset_import = 1;
    model.graph = graph;
    int rc = onnx_import_model("m", &model, (size_t)1 << 28, &net, err);
    if (net)
        caffe__net_parameter__free_unpacked(net, NULL);
    return rc;
}

/* ---- inputs ---- */

struct input {
    Onnx__ValueInfoProto proto;
    Onnx__TypeProto type;
    Onnx__TypeProto__Tensor tensor;
    Onnx__TensorShapeProto shape;
    Onnx__TensorShapeProto__Dimension dim[3], *dims[3];
};

/* Three dimensions; 0: not fixed. */
static void set_input(struct input *in, char *name, int64_t a, int64_t b, int64_t c)
{
    const int64_t size[3] = {a, b, c};
    onnx__value_info_proto__init(&in->proto);
    onnx__type_proto__init(&in->type);
    onnx__type_proto__tensor__init(&in->tensor);
    onnx__tensor_shape_proto__init(&in->shape);
    for (size_t k = 0; k < 3; k++) {
        in->dims[k] = &in->dim[k];
        onnx__tensor_shape_proto__dimension__init(&in->dim[k]);
        in->dim[k].has_dim_value = size[k] > 0;
        in->dim[k].dim_value = size[k];
    }
    in->proto.name = name;
    in->proto.type = &in->type;
    in->type.tensor_type = &in->tensor;
    in->tensor.shape = &in->shape;
    in->shape.dim = in->dims;
    in->shape.n_dim = 3;
}

/* x is read by a node of that type alone. */
static int import_input(char *type, int64_t a, int64_t b, int64_t c, struct err *err)
{
    Onnx__GraphProto graph = ONNX__GRAPH_PROTO__INIT;
    Onnx__NodeProto node = ONNX__NODE_PROTO__INIT, *nodes[] = {&node};
    Onnx__ValueInfoProto output = ONNX__VALUE_INFO_PROTO__INIT, *outputs[] = {&output};
    struct input in;
    char x[] = "x", y[] = "y", *read[] = {x}, *made[] = {y};
    set_input(&in, x, a, b, c);
    Onnx__ValueInfoProto *inputs[] = {&in.proto};
    output.name = y;
    node.op_type = type;
    node.input = read;
    node.output = made;
    node.n_input = node.n_output = graph.n_node = graph.n_input = graph.n_output = 1;
    graph.node = nodes;
    graph.input = inputs;
    graph.output = outputs;
    return import_graph(&graph, err);
}

static void test_only_the_number_of_records_may_be_unknown(void **state)
{
    static const struct {
        const char *type;
        int64_t dim[3];
        const char *error;
    } cases[] = {
        {"Relu", {0, 3, 2}, NULL},
        {"Relu", {4, 0, 2}, "input \"x\": dimension 1 is not fixed; export the model with fixed"},
        {"LSTM", {0, 1, 2}, "input \"x\": dimension 0, the number of steps, is not fixed; export"},
        {"GRU", {0, 0, 2}, "input \"x\": dimension 0, the number of steps, is not fixed; export"},
        {"RNN",
         {4, 0, 0},
         "dimension 2 is not fixed; export the model with fixed sizes of its "
         "records, (T, N, D): the number of records alone may be any"},
        {"RNN", {4, 0, 2}, "input 1 is missing"}, /* the input is read; the weights are not there */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        char type[8];
        snprintf(type, sizeof type, "%s", cases[i].type);
        int rc = import_input(type, cases[i].dim[0], cases[i].dim[1], cases[i].dim[2], &err);
        if (cases[i].error ? rc == OK || !strstr(err.text, cases[i].error) : rc != OK)
            fail_msg("case %zu: %d, %s", i, rc, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_the_number_of_records_may_be_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
