#include "model/onnx_import.h"

#include "model/build_message.h"
#include "model/onnx_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- bytes ---- */

bool onnx_is_model(const char *path, const uint8_t *bytes, size_t len)
{
    const char *dot = strrchr(path, '.');
    return (dot && strcmp(dot, ".onnx") == 0) ||
           (len > 3 && bytes[0] == 0x08 && bytes[1] < 0x80 && bytes[2] == 0x12);
}

/* The memory that a message may take, apart from the numbers that lie in it as they are. */
static const size_t DESCRIPTION_TIMES = 48, DESCRIPTION_MAX = (size_t)256 << 20, ROOM = 64 << 10;

static void *take_piece(void *user, size_t size)
{
    size_t *left = user;
    if (size > *left)
        return NULL;
    *left -= size;
    return malloc(size);
}

/* Is not counted: pieces that are given back are few. */
static void give_piece(void *user, void *at)
{
    (void)user;
    free(at);
}

int onnx_unpack(const char *path, const uint8_t *bytes, size_t len, Onnx__ModelProto **out,
                struct err *err)
{
    size_t most =
        len < DESCRIPTION_MAX / DESCRIPTION_TIMES ? DESCRIPTION_TIMES * len : DESCRIPTION_MAX;
    size_t left = len + most + ROOM;
    ProtobufCAllocator allocator = {take_piece, give_piece, &left};
    Onnx__ModelProto *model = onnx__model_proto__unpack(&allocator, len, bytes);
    if (!model)
        return err_set(err, ERR_INPUT,
                       "%.200s: this is no model in ONNX, or it is cut short or damaged", path);
    if (!model->graph) {
        onnx__model_proto__free_unpacked(model, NULL);
        return err_set(err, ERR_INPUT, "%.200s: this is no model in ONNX: it has no graph", path);
    }
    *out = model;
    return OK;
}

/* ---- the graph ---- */

static int64_t find_opset(const Onnx__ModelProto *model)
{
    int64_t version = 0;
    for (size_t i = 0; i < model->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *set = model->opset_import[i];
        const char *domain = set->domain ? set->domain : "";
        if (!domain[0] || strcmp(domain, "ai.onnx") == 0)
            version = set->version;
    }
    return version;
}

static int make_table(struct onnx_graph *g, struct err *err)
{
    const Onnx__GraphProto *graph = g->model->graph;
    size_t n = graph->n_initializer + graph->n_input, inputs = 0;
    for (size_t i = 0; i < graph->n_node; i++) {
        n += graph->node[i]->n_output;
        inputs += graph->node[i]->n_input;
    }
    if (graph->n_node > ONNX_NODES_MAX || inputs > ONNX_INPUTS_MAX || n > ONNX_VALUES_MAX ||
        graph->n_output > ONNX_OUTPUTS_MAX)
        return err_set(err, ERR_UNSUPPORTED,
                       "%.200s: more than %d nodes, %d inputs of nodes, %d values or %d outputs",
                       g->path, ONNX_NODES_MAX, ONNX_INPUTS_MAX, ONNX_VALUES_MAX, ONNX_OUTPUTS_MAX);
    for (g->slots = 16; g->slots < 2 * n; g->slots *= 2)
        continue;
    g->value = arena_array(&g->arena, n + 1, struct onnx_value);
    g->table = arena_array(&g->arena, g->slots, size_t);
    return g->value && g->table ? onnx_index_uses(g, err) : onnx_no_memory(g, err);
}

static int add_initializers(struct onnx_graph *g, struct err *err)
{
    const Onnx__GraphProto *graph = g->model->graph;
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const Onnx__TensorProto *tensor = graph->initializer[i];
        struct onnx_value *value;
        int rc = tensor->name && tensor->name[0]
                     ? onnx_add(g, tensor->name, &value, err)
                     : err_set(err, ERR_INPUT, "%.200s: an initializer without a name", g->path);
        if (rc != OK)
            return rc;
        rc = onnx_tensor_shape(g, tensor, &value->shape, err);
        if (rc != OK)
            return rc;
        value->tensor = tensor;
    }
    return OK;
}

static bool is_recurrent(const char *type)
{
    return strcmp(type, "LSTM") == 0 || strcmp(type, "GRU") == 0 || strcmp(type, "RNN") == 0;
}

/* Do only recurrent operators read it, as their sequences? */
static bool is_by_step(const struct onnx_graph *g, const char *name)
{
    size_t n;
    const struct onnx_use *use = onnx_uses(g, name, &n);
    bool is = false;
    for (size_t i = 0; i < n; i++) {
        const struct onnx_node node = {.proto = use[i].node, .name = ""};
        if (!node.proto)
            continue;
        if (use[i].k > 0 || !is_recurrent(node.proto->op_type) || onnx_int(&node, "layout", 0) != 0)
            return false;
        is = true;
    }
    return is;
}

static int refuse_dimension(const struct onnx_graph *g, const char *name, size_t k, bool by_step,
                            struct err *err)
{
    return err_set(err, ERR_UNSUPPORTED,
                   "%.200s: input \"%.100s\": dimension %zu%s is not fixed; export the model with "
                   "fixed sizes of its records%s",
                   g->path, name, k, by_step && k == 0 ? ", the number of steps," : "",
                   by_step ? ", (T, N, D): the number of records alone may be any" : "");
}

/* Where the number of records is not fixed, it is 1. */
static int read_input_shape(const struct onnx_graph *g, const Onnx__ValueInfoProto *input,
                            bool *by_step, struct shape *out, struct err *err)
{
    const Onnx__TypeProto__Tensor *type = input->type ? input->type->tensor_type : NULL;
    const Onnx__TensorShapeProto *shape = type ? type->shape : NULL;
    if (!shape || shape->n_dim < 1 || shape->n_dim > SHAPE_DIMS_MAX)
        return err_set(err, ERR_UNSUPPORTED,
                       "%.200s: input \"%.100s\" has no shape of 1 to %d dimensions", g->path,
                       input->name, SHAPE_DIMS_MAX);
    *by_step = shape->n_dim == 3 && is_by_step(g, input->name);
    *out = (struct shape){.n = shape->n_dim};
    for (size_t k = 0; k < shape->n_dim; k++) {
        const Onnx__TensorShapeProto__Dimension *dim = shape->dim[k];
        bool known = dim->has_dim_value && dim->dim_value > 0 && dim->dim_value <= INT32_MAX;
        if (!known && k != (*by_step ? 1 : 0))
            return refuse_dimension(g, input->name, k, *by_step, err);
        out->dim[k] = known ? (size_t)dim->dim_value : 1;
    }
    return shape_count(out) > 0 ? OK
                                : err_set(err, ERR_INPUT, "%.200s: input \"%.100s\": too large",
                                          g->path, input->name);
}

/* A top of the layer Input: one record of it. */
static int add_input_top(struct onnx_graph *g, Caffe__LayerParameter *layer,
                         const struct onnx_value *value)
{
    struct build *b = &g->build;
    build_add_string(b, &layer->top, &layer->n_top, value->name);
    Caffe__BlobShape *shape = build_message(b, &caffe__blob_shape__descriptor);
    Caffe__BlobShape **more =
        shape ? build_grown(b, layer->input_param->shape, layer->input_param->n_shape) : NULL;
    int64_t *dim = more ? calloc(SHAPE_DIMS_MAX, sizeof *dim) : NULL;
    if (more)
        layer->input_param->shape = more;
    if (!dim) {
        b->failed = true;
        free(shape);
        return ERR_NOMEM;
    }
    shape->dim = dim;
    shape->n_dim = value->blob_shape.n;
    dim[0] = 1;
    for (size_t k = 1; k < value->blob_shape.n; k++)
        dim[k] = (int64_t)value->blob_shape.dim[k];
    more[layer->input_param->n_shape++] = shape;
    return OK;
}

/* Inputs that are initializers too are constants with a default. */
static int add_input(struct onnx_graph *g, const Onnx__ValueInfoProto *input,
                     Caffe__LayerParameter *layer, struct err *err)
{
    struct onnx_value *value;
    struct shape shape;
    bool by_step = false;
    if (!input->name || !input->name[0])
        return err_set(err, ERR_INPUT, "%.200s: an input without a name", g->path);
    if (onnx_find(g, input->name))
        return OK;
    int rc = read_input_shape(g, input, &by_step, &shape, err);
    if (rc == OK)
        rc = onnx_add(g, input->name, &value, err);
    if (rc != OK)
        return rc;
    value->is_blob = true;
    value->blob = value->name;
    value->shape = value->blob_shape = shape;
    if (shape.n == 1) /* one number a record */
        value->blob_shape = (struct shape){2, {shape.dim[0], 1}};
    if (by_step) {
        value->by_step = true;
        value->blob_shape = (struct shape){3, {shape.dim[1], shape.dim[0], shape.dim[2]}};
    }
    return add_input_top(g, layer, value) == OK ? OK : onnx_no_memory(g, err);
}

static int add_inputs(struct onnx_graph *g, struct err *err)
{
    const Onnx__GraphProto *graph = g->model->graph;
    struct build *b = &g->build;
    build_begin(b, graph->name && graph->name[0] ? graph->name : "onnx");
    Caffe__LayerParameter *layer = build_message(b, &caffe__layer_parameter__descriptor);
    if (!layer)
        return onnx_no_memory(g, err);
    build_set_string(b, &layer->type, "Input");
    build_set_string(b, &layer->name, "data");
    layer->input_param = build_message(b, &caffe__input_parameter__descriptor);
    build_layer(b, layer);
    if (b->failed)
        return onnx_no_memory(g, err);
    for (size_t i = 0; i < graph->n_input; i++) {
        int rc = add_input(g, graph->input[i], layer, err);
        if (rc != OK)
            return rc;
    }
    return layer->n_top > 0
               ? OK
               : err_set(err, ERR_UNSUPPORTED, "%.200s: the graph has no input", g->path);
}

/* `number` gets a name for a node that has none. */
static struct onnx_node node_at(const struct onnx_graph *g, size_t i, char number[32])
{
    const Onnx__NodeProto *proto = g->model->graph->node[i];
    struct onnx_node node = {.proto = proto, .name = proto->name};
    snprintf(number, 32, "number %zu", i);
    if (!node.name || !node.name[0])
        node.name = onnx_has_output(&node, 0) ? proto->output[0] : number;
    return node;
}

/* Ahead of all else, so that what a model needs and there is not is the first to be said. */
static int check_operators(struct onnx_graph *g, struct err *err)
{
    char number[32];
    for (size_t i = 0; i < g->model->graph->n_node; i++) {
        const struct onnx_node node = node_at(g, i, number);
        if (!onnx_operator_of(g, &node, err))
            return ERR_UNSUPPORTED;
    }
    return OK;
}

static int add_nodes(struct onnx_graph *g, struct err *err)
{
    char number[32];
    for (size_t i = 0; i < g->model->graph->n_node; i++) {
        const struct onnx_node node = node_at(g, i, number);
        onnx_operator *make = onnx_operator_of(g, &node, err);
        bool sequences = is_recurrent(node.proto->op_type); /* may have the second alone */
        int rc = sequences || onnx_has_output(&node, 0)
                     ? make(g, &node, err)
                     : onnx_broken(g, &node, err, "output 0 is missing");
        if (rc == OK && g->build.failed)
            rc = onnx_no_memory(g, err);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static bool replace_name(struct onnx_graph *g, char **name, const char *from, const char *to)
{
    if (strcmp(*name, from) != 0)
        return false;
    free(*name);
    *name = NULL;
    build_set_string(&g->build, name, to);
    return true;
}

/* A blob of the layers gets another name. False: there is none */
static bool replace_blob(struct onnx_graph *g, const char *from, const char *to)
{
    Caffe__NetParameter *net = g->build.net;
    bool renamed = false;
    for (size_t i = 1; i < net->n_layer; i++) {
        for (size_t k = 0; k < net->layer[i]->n_bottom && !g->build.failed; k++)
            replace_name(g, &net->layer[i]->bottom[k], from, to);
        for (size_t k = 0; k < net->layer[i]->n_top && !g->build.failed; k++)
            renamed |= replace_name(g, &net->layer[i]->top[k], from, to);
    }
    for (size_t i = 0; i < g->n && renamed; i++)
        if (g->value[i].is_blob && strcmp(g->value[i].blob, from) == 0)
            g->value[i].blob = to;
    return renamed;
}

/* The blob gets the output's name. False: it is the graph's input, or another output. */
static bool rename_blob(struct onnx_graph *g, const char *from, const char *to)
{
    Caffe__NetParameter *net = g->build.net;
    const Onnx__GraphProto *graph = g->model->graph;
    for (size_t i = 0; i < graph->n_output; i++)
        if (graph->output[i]->name && strcmp(graph->output[i]->name, from) == 0)
            return false;
    for (size_t k = 0; k < net->layer[0]->n_top; k++)
        if (strcmp(net->layer[0]->top[k], from) == 0)
            return false;
    return replace_blob(g, from, to);
}

/* The blob that the value's last Reshape reads may have the value's name. */
static void free_name(struct onnx_graph *g, const struct onnx_value *value)
{
    size_t size = strlen(value->name) + sizeof "/blob";
    char *other = arena_array(&g->arena, size, char);
    if (!other) {
        g->build.failed = true;
        return;
    }
    snprintf(other, size, "%s/blob", value->name);
    replace_blob(g, value->name, other);
}

/* A blob of the output's own name. */
static int name_output(struct onnx_graph *g, struct onnx_value *value, struct err *err)
{
    const char *from = value->blob;
    if (strcmp(from, value->name) != 0)
        free_name(g, value);
    if (strcmp(from, value->name) == 0 || rename_blob(g, from, value->name))
        return g->build.failed ? onnx_no_memory(g, err) : OK;
    value->blob = value->name;
    return onnx_inner_layer(g, "Split", value->name, from, value->name) ? OK
                                                                        : onnx_no_memory(g, err);
}

static int settle_outputs(struct onnx_graph *g, struct err *err)
{
    const Onnx__GraphProto *graph = g->model->graph;
    for (size_t i = 0; i < graph->n_output; i++) {
        const char *name = graph->output[i]->name ? graph->output[i]->name : "";
        struct onnx_value *value = onnx_find(g, name);
        if (!value || !value->is_blob)
            return err_set(err, value ? ERR_UNSUPPORTED : ERR_INPUT,
                           "%.200s: output \"%.100s\" is %s", g->path, name,
                           value ? "a constant" : "no value of the graph");
        int rc = value->by_step ? OK : onnx_settle(g, value, err);
        if (rc == OK)
            rc = name_output(g, value, err);
        if (rc != OK)
            return rc;
    }
    return graph->n_output > 0 && g->build.net->n_layer > 1
               ? OK
               : err_set(err, ERR_UNSUPPORTED, "%.200s: the graph computes nothing", g->path);
}

/* ---- names ---- */

static int compare_layers(const void *a, const void *b)
{
    const Caffe__LayerParameter *x = *(Caffe__LayerParameter *const *)a;
    const Caffe__LayerParameter *y = *(Caffe__LayerParameter *const *)b;
    return strcmp(x->name, y->name);
}

/* Nodes need no names, nor different ones; layers do. */
static int part_names(struct onnx_graph *g, struct err *err)
{
    Caffe__NetParameter *net = g->build.net;
    Caffe__LayerParameter **by_name = arena_array(&g->arena, net->n_layer, Caffe__LayerParameter *);
    if (!by_name)
        return onnx_no_memory(g, err);
    memcpy(by_name, net->layer, net->n_layer * sizeof *by_name);
    qsort(by_name, net->n_layer, sizeof *by_name, compare_layers);
    for (size_t i = 1, first = 0; i < net->n_layer; i++) {
        if (strcmp(by_name[first]->name, by_name[i]->name) != 0) {
            first = i;
            continue;
        }
        size_t size = strlen(by_name[i]->name) + 24;
        char *name = malloc(size);
        if (!name)
            return onnx_no_memory(g, err);
        snprintf(name, size, "%s#%zu", by_name[first]->name, i - first + 1);
        free(by_name[i]->name);
        by_name[i]->name = name;
    }
    return OK;
}

static int read_graph(struct onnx_graph *g, struct err *err)
{
    if (g->opset > ONNX_OPSET_MAX)
        return err_set(err, ERR_UNSUPPORTED, "%.200s: opset %lld is not read: opsets %d to %d are",
                       g->path, (long long)g->opset, ONNX_OPSET_MIN, ONNX_OPSET_MAX);
    int rc = make_table(g, err);
    if (rc == OK)
        rc = check_operators(g, err);
    if (rc == OK)
        rc = add_initializers(g, err);
    if (rc == OK)
        rc = add_inputs(g, err);
    if (rc == OK)
        rc = add_nodes(g, err);
    if (rc == OK)
        rc = settle_outputs(g, err);
    return rc == OK ? part_names(g, err) : rc;
}

int onnx_import_model(const char *path, const Onnx__ModelProto *model, size_t numbers_max,
                      Caffe__NetParameter **out, struct err *err)
{
    struct onnx_graph g = {.path = path, .model = model, .opset = find_opset(model)};
    arena_init(&g.arena);
    arena_limit(&g.arena, numbers_max);
    int rc = read_graph(&g, err);
    if (rc == OK) {
        rc = build_end(&g.build, out, err);
        g.build.net = NULL;
    }
    if (g.build.net)
        caffe__net_parameter__free_unpacked(g.build.net, NULL);
    arena_release(&g.arena);
    return rc;
}

int onnx_import(const char *path, const uint8_t *bytes, size_t len, size_t numbers_max,
                Caffe__NetParameter **out, struct err *err)
{
    Onnx__ModelProto *model;
    int rc = onnx_unpack(path, bytes, len, &model, err);
    if (rc != OK)
        return rc;
    rc = onnx_import_model(path, model, numbers_max, out, err);
    onnx__model_proto__free_unpacked(model, NULL);
    return rc;
}
