#include "model/onnx_graph.h"

#include "base/hash.h"
#include "model/build_message.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

static int fail_node(const struct onnx_graph *g, const struct onnx_node *node, int status,
                     struct err *err, const char *format, va_list args)
{
    char what[ERR_TEXT_MAX];
    const char *type = node->proto->op_type;
    vsnprintf(what, sizeof what, format, args);
    return err_set(err, status, "%.200s: node \"%.100s\" (%.40s, opset %lld): %s", g->path,
                   node->name, type ? type : "", (long long)g->opset, what);
}

int onnx_refuse(const struct onnx_graph *g, const struct onnx_node *node, struct err *err,
                const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int rc = fail_node(g, node, ERR_UNSUPPORTED, err, format, args);
    va_end(args);
    return rc;
}

int onnx_broken(const struct onnx_graph *g, const struct onnx_node *node, struct err *err,
                const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int rc = fail_node(g, node, ERR_INPUT, err, format, args);
    va_end(args);
    return rc;
}

int onnx_no_memory(const struct onnx_graph *g, struct err *err)
{
    return err_set(err, ERR_NOMEM, "%.200s: out of memory, or more constants than may be", g->path);
}

/* ---- attributes ---- */

const Onnx__AttributeProto *onnx_attribute(const struct onnx_node *node, const char *name)
{
    const Onnx__NodeProto *proto = node->proto;
    for (size_t i = 0; i < proto->n_attribute; i++)
        if (proto->attribute[i]->name && strcmp(proto->attribute[i]->name, name) == 0)
            return proto->attribute[i];
    return NULL;
}

int64_t onnx_int(const struct onnx_node *node, const char *name, int64_t fallback)
{
    const Onnx__AttributeProto *a = onnx_attribute(node, name);
    return a ? a->i : fallback;
}

float onnx_float(const struct onnx_node *node, const char *name, float fallback)
{
    const Onnx__AttributeProto *a = onnx_attribute(node, name);
    return a ? a->f : fallback;
}

bool onnx_text_is(const struct onnx_node *node, const char *name, const char *text,
                  const char *fallback)
{
    const Onnx__AttributeProto *a = onnx_attribute(node, name);
    if (!a)
        return strcmp(fallback, text) == 0;
    return a->s.len == strlen(text) && memcmp(a->s.data, text, a->s.len) == 0;
}

bool onnx_ints(const struct onnx_node *node, const char *name, size_t n, int64_t *out)
{
    const Onnx__AttributeProto *a = onnx_attribute(node, name);
    if (!a)
        return true;
    if (a->n_ints != n)
        return false;
    memcpy(out, a->ints, n * sizeof *out);
    return true;
}

/* ---- values ---- */

static size_t slot_of(const struct onnx_graph *g, const char *name)
{
    size_t at = (size_t)hash_bytes(name, strlen(name)) & (g->slots - 1);
    while (g->table[at] && strcmp(g->value[g->table[at] - 1].name, name) != 0)
        at = (at + 1) & (g->slots - 1);
    return at;
}

struct onnx_value *onnx_find(const struct onnx_graph *g, const char *name)
{
    size_t at = g->table[slot_of(g, name)];
    return at ? &g->value[at - 1] : NULL;
}

int onnx_add(struct onnx_graph *g, const char *name, struct onnx_value **out, struct err *err)
{
    size_t slot = slot_of(g, name);
    if (g->table[slot])
        return err_set(err, ERR_INPUT, "%.200s: value \"%.100s\": given twice", g->path, name);
    *out = &g->value[g->n++];
    **out = (struct onnx_value){.name = name};
    g->table[slot] = g->n;
    return OK;
}

bool onnx_has(const struct onnx_node *node, size_t k)
{
    return k < node->proto->n_input && node->proto->input[k][0];
}

bool onnx_has_output(const struct onnx_node *node, size_t k)
{
    return k < node->proto->n_output && node->proto->output[k][0];
}

int onnx_input(struct onnx_graph *g, const struct onnx_node *node, size_t k,
               struct onnx_value **out, struct err *err)
{
    if (!onnx_has(node, k))
        return onnx_broken(g, node, err, "input %zu is missing", k);
    *out = onnx_find(g, node->proto->input[k]);
    if (!*out)
        return onnx_broken(g, node, err, "input %zu, \"%.100s\", is no value before this node", k,
                           node->proto->input[k]);
    return OK;
}

int onnx_raw_blob(struct onnx_graph *g, const struct onnx_node *node, size_t k,
                  struct onnx_value **out, struct err *err)
{
    int rc = onnx_input(g, node, k, out, err);
    if (rc != OK)
        return rc;
    if (!(*out)->is_blob)
        return onnx_refuse(g, node, err, "input %zu, \"%.100s\", is a constant", k, (*out)->name);
    if ((*out)->by_step)
        return onnx_refuse(g, node, err,
                           "input %zu, \"%.100s\", is a sequence with the steps first; transpose "
                           "it (perm 1, 0, 2)",
                           k, (*out)->name);
    return OK;
}

int onnx_blob(struct onnx_graph *g, const struct onnx_node *node, size_t k, struct onnx_value **out,
              struct err *err)
{
    int rc = onnx_raw_blob(g, node, k, out, err);
    return rc == OK ? onnx_settle(g, *out, err) : rc;
}

static bool is_due(const struct onnx_value *value)
{
    return value->shape.n != value->blob_shape.n ||
           memcmp(value->shape.dim, value->blob_shape.dim,
                  value->shape.n * sizeof value->shape.dim[0]) != 0;
}

int onnx_settle(struct onnx_graph *g, struct onnx_value *value, struct err *err)
{
    if (!is_due(value))
        return OK;
    const char *top = value->name;
    if (strcmp(top, value->blob) == 0) { /* an input of the graph, whose blob has the name */
        char *name = arena_array(&g->arena, strlen(top) + sizeof "/rows", char);
        if (!name)
            return onnx_no_memory(g, err);
        strcat(strcpy(name, top), "/rows");
        top = name;
    }
    Caffe__LayerParameter *layer = onnx_inner_layer(g, "Reshape", top, value->blob, top);
    Caffe__ReshapeParameter *reshape =
        layer ? build_message(&g->build, &caffe__reshape_parameter__descriptor) : NULL;
    if (!reshape)
        return onnx_no_memory(g, err);
    layer->reshape_param = reshape;
    reshape->shape = build_message(&g->build, &caffe__blob_shape__descriptor);
    int64_t *dim = calloc(SHAPE_DIMS_MAX, sizeof *dim);
    if (!reshape->shape || !dim) {
        free(dim);
        return onnx_no_memory(g, err);
    }
    reshape->shape->dim = dim; /* 0, the first: the records */
    reshape->shape->n_dim = value->shape.n;
    for (size_t k = 1; k < value->shape.n; k++)
        dim[k] = (int64_t)value->shape.dim[k];
    value->blob = top;
    value->blob_shape = value->shape;
    value->layer = g->build.net->n_layer;
    return OK;
}

/* ---- who reads a value ---- */

static int compare_uses(const void *a, const void *b)
{
    return strcmp(((const struct onnx_use *)a)->name, ((const struct onnx_use *)b)->name);
}

/* Looks are many, and the graph may be built so that a pass over its nodes for each takes minutes.
 */
int onnx_index_uses(struct onnx_graph *g, struct err *err)
{
    const Onnx__GraphProto *graph = g->model->graph;
    size_t n = graph->n_output;
    for (size_t i = 0; i < graph->n_node; i++)
        n += graph->node[i]->n_input;
    g->use = arena_array(&g->arena, n + 1, struct onnx_use);
    if (!g->use)
        return onnx_no_memory(g, err);
    for (size_t i = 0; i < graph->n_output; i++)
        if (graph->output[i]->name)
            g->use[g->uses++] = (struct onnx_use){graph->output[i]->name, NULL, 0};
    for (size_t i = 0; i < graph->n_node; i++)
        for (size_t k = 0; k < graph->node[i]->n_input; k++)
            g->use[g->uses++] = (struct onnx_use){graph->node[i]->input[k], graph->node[i], k};
    qsort(g->use, g->uses, sizeof *g->use, compare_uses);
    return OK;
}

/* The number of uses of smaller names, or also of this one. */
static size_t uses_below(const struct onnx_graph *g, const char *name, bool with)
{
    size_t from = 0, to = g->uses;
    while (from < to) {
        size_t at = from + (to - from) / 2;
        int order = strcmp(g->use[at].name, name);
        if (order < 0 || (with && order == 0))
            from = at + 1;
        else
            to = at;
    }
    return from;
}

const struct onnx_use *onnx_uses(const struct onnx_graph *g, const char *name, size_t *n)
{
    size_t from = uses_below(g, name, false);
    *n = uses_below(g, name, true) - from;
    return g->use + from;
}

unsigned onnx_readers(const struct onnx_graph *g, const char *name)
{
    size_t n;
    onnx_uses(g, name, &n);
    return n < 2 ? (unsigned)n : 2;
}

static bool reads_integers(const struct onnx_use *use)
{
    static const char *const types[] = {"Gather", "SoftmaxCrossEntropyLoss",
                                        "NegativeLogLikelihoodLoss"};
    const char *type = use->node ? use->node->op_type : NULL;
    for (size_t i = 0; type && use->k == 1 && i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return false;
}

bool onnx_are_integers(const struct onnx_graph *g, const char *name)
{
    size_t n;
    const struct onnx_use *use = onnx_uses(g, name, &n);
    for (size_t i = 0; i < n; i++)
        if (!reads_integers(&use[i]))
            return false;
    return true;
}

/* ---- results ---- */

int onnx_result(struct onnx_graph *g, const struct onnx_node *node, size_t k,
                const struct shape *shape, struct err *err)
{
    struct onnx_value *value;
    if (g->build.failed)
        return onnx_no_memory(g, err);
    if (!onnx_has_output(node, k))
        return onnx_broken(g, node, err, "output %zu is missing", k);
    int rc = onnx_add(g, node->proto->output[k], &value, err);
    if (rc != OK)
        return rc;
    value->is_blob = true;
    value->shape = value->blob_shape = *shape;
    value->blob = value->name;
    value->layer = g->build.net->n_layer;
    value->made_by = node->proto;
    return OK;
}

static int add_constant(struct onnx_graph *g, const struct onnx_node *node,
                        const struct shape *shape, struct onnx_value **out, struct err *err)
{
    if (!onnx_has_output(node, 0))
        return onnx_broken(g, node, err, "output 0 is missing");
    int rc = onnx_add(g, node->proto->output[0], out, err);
    if (rc == OK)
        (*out)->shape = *shape;
    return rc;
}

int onnx_result_floats(struct onnx_graph *g, const struct onnx_node *node,
                       const struct shape *shape, float **at, struct err *err)
{
    struct onnx_value *value;
    int rc = add_constant(g, node, shape, &value, err);
    if (rc != OK)
        return rc;
    value->f = *at = arena_array(&g->arena, shape_count(shape), float);
    return *at ? OK : onnx_no_memory(g, err);
}

int onnx_result_integers(struct onnx_graph *g, const struct onnx_node *node,
                         const struct shape *shape, int64_t **at, struct err *err)
{
    struct onnx_value *value;
    int rc = add_constant(g, node, shape, &value, err);
    if (rc != OK)
        return rc;
    value->i = *at = arena_array(&g->arena, shape_count(shape), int64_t);
    return *at ? OK : onnx_no_memory(g, err);
}

int onnx_result_like(struct onnx_graph *g, const struct onnx_node *node,
                     const struct onnx_value *value, const struct shape *shape, struct err *err)
{
    struct onnx_value *out, copy = *value; /* adding may not move it, but says nothing of it */
    if (!onnx_has_output(node, 0))
        return onnx_broken(g, node, err, "output 0 is missing");
    int rc = onnx_add(g, node->proto->output[0], &out, err);
    if (rc != OK)
        return rc;
    const char *name = out->name;
    *out = copy;
    out->name = name;
    out->shape = *shape;
    return OK;
}

/* ---- layers ---- */

Caffe__LayerParameter *onnx_inner_layer(struct onnx_graph *g, const char *type, const char *name,
                                        const char *bottom, const char *top)
{
    return build_add_layer(&g->build, type, name, bottom, top);
}

Caffe__LayerParameter *onnx_layer(struct onnx_graph *g, const struct onnx_node *node,
                                  const char *type, const struct onnx_value *bottom)
{
    const char *top = onnx_has_output(node, 0) ? node->proto->output[0] : node->name;
    return build_add_layer(&g->build, type, node->name, bottom->blob, top);
}

const char *onnx_name(struct onnx_graph *g, const struct onnx_node *node, const char *suffix)
{
    size_t size = strlen(node->name) + strlen(suffix) + 2;
    char *name = arena_array(&g->arena, size, char);
    if (!name) {
        g->build.failed = true;
        return "";
    }
    snprintf(name, size, "%s/%s", node->name, suffix);
    return name;
}

/* Its dimensions, and a copy of its numbers. */
static Caffe__BlobProto *make_blob(struct onnx_graph *g, const struct shape *shape, const float *at)
{
    struct build *b = &g->build;
    Caffe__BlobProto *blob = build_message(b, &caffe__blob_proto__descriptor);
    if (!blob)
        return NULL;
    size_t n = shape_count(shape);
    blob->shape = build_message(b, &caffe__blob_shape__descriptor);
    blob->data = malloc(n * sizeof *at + 1);
    int64_t *dim = blob->shape ? calloc(shape->n + 1, sizeof *dim) : NULL;
    if (!blob->shape || !blob->data || !dim) {
        free(dim);
        caffe__blob_proto__free_unpacked(blob, NULL);
        b->failed = true;
        return NULL;
    }
    blob->n_data = n;
    memcpy(blob->data, at, n * sizeof *at);
    blob->shape->dim = dim;
    blob->shape->n_dim = shape->n;
    for (size_t k = 0; k < shape->n; k++)
        dim[k] = (int64_t)shape->dim[k];
    return blob;
}

static void add_blob(struct onnx_graph *g, Caffe__LayerParameter *layer, const struct shape *shape,
                     const float *at, bool learnt)
{
    struct build *b = &g->build;
    Caffe__BlobProto *blob = make_blob(g, shape, at);
    Caffe__ParamSpec *spec = blob ? build_message(b, &caffe__param_spec__descriptor) : NULL;
    Caffe__BlobProto **blobs = spec ? build_grown(b, layer->blobs, layer->n_blobs) : NULL;
    if (blobs)
        layer->blobs = blobs;
    Caffe__ParamSpec **params = blobs ? build_grown(b, layer->param, layer->n_param) : NULL;
    if (!params) {
        if (blob)
            caffe__blob_proto__free_unpacked(blob, NULL);
        free(spec);
        return;
    }
    BUILD_SET(spec, lr_mult, learnt ? 1.0f : 0.0f);
    if (!learnt)
        BUILD_SET(spec, decay_mult, 0.0f);
    layer->blobs[layer->n_blobs++] = blob;
    layer->param = params;
    params[layer->n_param++] = spec;
}

static Caffe__LayerParameter *last_layer(const struct onnx_graph *g)
{
    const Caffe__NetParameter *net = g->build.net;
    return g->build.failed ? NULL : net->layer[net->n_layer - 1];
}

void onnx_weights(struct onnx_graph *g, const struct shape *shape, const float *at)
{
    add_blob(g, last_layer(g), shape, at, true);
}

void onnx_weights_of(struct onnx_graph *g, Caffe__LayerParameter *layer, const struct shape *shape,
                     const float *at)
{
    add_blob(g, layer, shape, at, true);
}

void onnx_state(struct onnx_graph *g, const struct shape *shape, const float *at)
{
    add_blob(g, last_layer(g), shape, at, false);
}
