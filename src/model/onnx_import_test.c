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
#include <time.h>

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

/* ---- sizes ---- */

/* Inputs i0, i1, .. of the graph, each with its text. */
struct many {
    struct input *in;
    Onnx__ValueInfoProto **list;
    char (*name)[8];
};

static void make_many(struct many *m, size_t n)
{
    m->in = calloc(n, sizeof *m->in);
    m->list = calloc(n, sizeof(void *));
    m->name = calloc(n, sizeof *m->name);
    assert_true(m->in && m->list && m->name);
    for (size_t i = 0; i < n; i++) {
        snprintf(m->name[i], sizeof *m->name, "i%zu", i);
        set_input(&m->in[i], m->name[i], 1, 1, 1);
        m->list[i] = &m->in[i].proto;
    }
}

/* So many nodes Sum, each of the same first values of the graph; the last is the output. */
struct sums {
    Onnx__NodeProto *node, **list;
    char (*name)[8], **made, **read;
};

static void make_sums(struct sums *s, size_t n, size_t inputs, const struct many *values)
{
    static char type[] = "Sum";
    s->node = calloc(n, sizeof *s->node);
    s->list = calloc(n, sizeof(void *));
    s->name = calloc(n, sizeof *s->name);
    s->made = calloc(n, sizeof(void *));
    s->read = calloc(inputs, sizeof(void *));
    assert_true(s->node && s->list && s->name && s->made && s->read);
    for (size_t k = 0; k < inputs; k++)
        s->read[k] = values->name[k];
    for (size_t i = 0; i < n; i++) {
        snprintf(s->name[i], sizeof *s->name, "y%zu", i);
        onnx__node_proto__init(&s->node[i]);
        s->made[i] = s->name[i];
        s->list[i] = &s->node[i];
        s->node[i].op_type = type;
        s->node[i].input = s->read;
        s->node[i].n_input = inputs;
        s->node[i].output = &s->made[i];
        s->node[i].n_output = 1;
    }
}

/* A graph of sums; the outputs are one value. The seconds of processor time that it took. */
static double import_sums(size_t values, size_t nodes, size_t inputs, size_t outputs, int *rc,
                          struct err *err)
{
    Onnx__GraphProto graph = ONNX__GRAPH_PROTO__INIT;
    Onnx__ValueInfoProto output = ONNX__VALUE_INFO_PROTO__INIT;
    Onnx__ValueInfoProto **repeated = calloc(outputs, sizeof(void *));
    struct many many;
    struct sums sums;
    assert_non_null(repeated);
    make_many(&many, values);
    make_sums(&sums, nodes, inputs, &many);
    output.name = sums.name[nodes - 1];
    for (size_t i = 0; i < outputs; i++)
        repeated[i] = &output;
    graph.input = many.list;
    graph.n_input = values;
    graph.node = sums.list;
    graph.n_node = nodes;
    graph.output = repeated;
    graph.n_output = outputs;
    clock_t begin = clock();
    *rc = import_graph(&graph, err);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    void *all[] = {repeated,  many.in,   many.list, many.name, sums.node,
                   sums.list, sums.name, sums.made, sums.read};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    return seconds;
}

/* Sanitizers get an eighth of the graph, and eight times as long. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { PART = 8 };
#else
enum { PART = 1 };
#endif

/* The time of an import is about linear in the size of a graph, whatever is in it: one as large as
 * may be is read in a second. */
static void test_a_large_graph_takes_no_long_time(void **state)
{
    struct err err = {0};
    int rc;
    (void)state;
    double seconds = import_sums((ONNX_VALUES_MAX - ONNX_NODES_MAX) / PART, ONNX_NODES_MAX / PART,
                                 ONNX_INPUTS_MAX / ONNX_NODES_MAX, 1, &rc, &err);
    if (rc != OK)
        fail_msg("%s", err.text);
    if (seconds > PART)
        fail_msg("%g s", seconds);
}

static void test_too_large_graphs_are_refused(void **state)
{
    static const struct {
        size_t values, nodes, inputs, outputs;
    } cases[] = {
        {ONNX_VALUES_MAX, 1, 2, 1},
        {2, ONNX_NODES_MAX + 1, 2, 1},
        {17, ONNX_INPUTS_MAX / 17 + 1, 17, 1},
        {2, 1, 2, ONNX_OUTPUTS_MAX + 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        int rc;
        import_sums(cases[i].values, cases[i].nodes, cases[i].inputs, cases[i].outputs, &rc, &err);
        if (rc != ERR_UNSUPPORTED ||
            !strstr(err.text, "more than 16384 nodes, 131072 inputs of nodes, 65536 values or 256"))
            fail_msg("case %zu: %d, %s", i, rc, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_the_number_of_records_may_be_unknown),
        cmocka_unit_test(test_a_large_graph_takes_no_long_time),
        cmocka_unit_test(test_too_large_graphs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
