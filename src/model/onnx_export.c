#include "model/onnx_export.h"

#include "model/load.h"
#include "model/onnx_layers.h"
#include "nn/net.h"
#include "nn/rules.h"

#include <stdio.h>
#include <string.h>

enum { NODES_A_LAYER = 16, NAME_MAX_BYTES = 512 };

/* A blob of the net as it is now, on the way from layer to layer. */
struct now {
    const char *blob, *value;
    struct shape shape;
};

struct walk {
    struct onnx_export e;
    struct net *planned; /* has the shapes */
    bool *needed;        /* of each layer */
    struct now *now;     /* n blobs */
    size_t n;
    const char **output; /* outputs blobs */
    size_t outputs;
    const Caffe__LayerParameter *loss; /* whose scores are the output, or NULL */
};

/* ---- which layers ---- */

static bool is_for_testing(const Caffe__NetParameter *net, size_t i)
{
    return rules_include(net->layer[i], net->state, PHASE_TEST);
}

static bool is_type(const Caffe__LayerParameter *layer, const char *type)
{
    return layer->type && strcmp(layer->type, type) == 0;
}

static bool is_loss(const Caffe__LayerParameter *layer)
{
    size_t n = layer->type ? strlen(layer->type) : 0;
    return n >= 4 && strcmp(layer->type + n - 4, "Loss") == 0;
}

static bool is_read(const Caffe__NetParameter *net, size_t after, const char *blob)
{
    for (size_t i = after + 1; i < net->n_layer; i++)
        for (size_t k = 0; k < net->layer[i]->n_bottom && is_for_testing(net, i); k++)
            if (strcmp(net->layer[i]->bottom[k], blob) == 0)
                return true;
    return false;
}

/* The scores of the last loss, or all that no layer reads. */
static int find_outputs(struct walk *walk, struct err *err)
{
    const Caffe__NetParameter *net = walk->e.net;
    size_t most = 1;
    for (size_t i = 0; i < net->n_layer; i++)
        most += net->layer[i]->n_top;
    walk->output = arena_array(&walk->e.w.arena, most, const char *);
    if (!walk->output)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    for (size_t i = net->n_layer; i-- > 0;)
        if (is_for_testing(net, i) && is_loss(net->layer[i]) && net->layer[i]->n_bottom > 0) {
            walk->loss = net->layer[i];
            walk->output[walk->outputs++] = walk->loss->bottom[0];
            return OK;
        }
    for (size_t i = 0; i < net->n_layer; i++) {
        const Caffe__LayerParameter *layer = net->layer[i];
        bool counts = is_for_testing(net, i) && layer->n_bottom > 0 && !is_type(layer, "Accuracy");
        for (size_t k = 0; k < layer->n_top && counts; k++)
            if (!is_read(net, i, layer->top[k]))
                walk->output[walk->outputs++] = layer->top[k];
    }
    return walk->outputs > 0
               ? OK
               : err_set(err, ERR_INPUT, "%.200s: the net has no result", walk->e.path);
}

static bool is_listed(const char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

/* Backward from the outputs. */
static int mark_needed(struct walk *walk, struct err *err)
{
    const Caffe__NetParameter *net = walk->e.net;
    size_t most = walk->outputs, n = walk->outputs;
    for (size_t i = 0; i < net->n_layer; i++)
        most += net->layer[i]->n_bottom;
    const char **wanted = arena_array(&walk->e.w.arena, most + 1, const char *);
    walk->needed = arena_array(&walk->e.w.arena, net->n_layer + 1, bool);
    if (!wanted || !walk->needed)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    memcpy(wanted, walk->output, n * sizeof *wanted);
    for (size_t i = net->n_layer; i-- > 0;) {
        const Caffe__LayerParameter *layer = net->layer[i];
        for (size_t k = 0; k < layer->n_top && is_for_testing(net, i); k++)
            walk->needed[i] = walk->needed[i] || is_listed(wanted, n, layer->top[k]);
        for (size_t k = 0; k < layer->n_bottom && walk->needed[i]; k++)
            if (!is_listed(wanted, n, layer->bottom[k]))
                wanted[n++] = layer->bottom[k];
    }
    return OK;
}

/* ---- values ---- */

static struct now *find_blob(const struct walk *walk, const char *blob)
{
    for (size_t i = 0; i < walk->n; i++)
        if (strcmp(walk->now[i].blob, blob) == 0)
            return &walk->now[i];
    return NULL;
}

static bool is_taken(const struct walk *walk, const char *value)
{
    for (size_t i = 0; i < walk->n; i++)
        if (strcmp(walk->now[i].value, value) == 0)
            return true;
    return false;
}

/* The blob gets a value of its own name; in place, one of the layer's name, too. */
static const char *name_value(struct walk *walk, const char *blob, const char *layer)
{
    return is_taken(walk, blob) || find_blob(walk, blob) ? onnx_join(&walk->e.w, blob, layer)
                                                         : blob;
}

static void set_blob(struct walk *walk, const char *blob, const char *value,
                     const struct shape *shape)
{
    struct now *now = find_blob(walk, blob);
    if (!now)
        now = &walk->now[walk->n++];
    *now = (struct now){blob, value, *shape};
}

/* The shape of the blob; of those that layers overwrite in place, too, since they keep it. */
static struct shape shape_of(const struct walk *walk, const char *blob)
{
    struct shape shape = {0};
    net_blob(walk->planned, blob, NULL, 0, &shape);
    return shape;
}

static void put_inputs(struct walk *walk, size_t i)
{
    const Caffe__LayerParameter *layer = walk->e.net->layer[i];
    if (layer->n_top == 0 || !is_read(walk->e.net, i, layer->top[0]))
        return;
    const struct shape shape = shape_of(walk, layer->top[0]);
    set_blob(walk, layer->top[0], layer->top[0], &shape);
    onnx_put_input(&walk->e.w, layer->top[0], &shape);
}

/* ---- layers ---- */

int onnx_no_operator(const struct onnx_export *e, const struct onnx_step *s, struct err *err,
                     const char *what)
{
    return err_set(err, ERR_UNSUPPORTED, "%.200s: layer \"%.100s\" (%.40s): %s", e->path, s->name,
                   s->layer->type, what);
}

/* The Scale behind a BatchNorm, which become one node. */
static void find_scale(const struct walk *walk, struct onnx_step *s)
{
    const Caffe__NetParameter *net = walk->e.net;
    size_t i = s->i + 1;
    while (i < net->n_layer && !walk->needed[i])
        i++;
    const Caffe__LayerParameter *scale = i < net->n_layer ? net->layer[i] : NULL;
    if (!is_type(s->layer, "BatchNorm") || !scale || !is_type(scale, "Scale") ||
        scale->n_bottom != 1 || strcmp(scale->bottom[0], s->layer->top[0]) != 0)
        return;
    const Caffe__ScaleParameter *p = scale->scale_param;
    bool in_place = strcmp(scale->top[0], scale->bottom[0]) == 0;
    if ((p && (p->axis != 1 || p->num_axes != 1)) ||
        (!in_place && is_read(net, i, scale->bottom[0])))
        return;
    s->scale = scale;
    s->scale_i = i;
}

static int read_bottoms(struct walk *walk, struct onnx_step *s, struct err *err)
{
    size_t n = s->layer->n_bottom;
    struct shape *x = arena_array(&walk->e.w.arena, n, struct shape);
    const char **in = arena_array(&walk->e.w.arena, n, const char *);
    if (!x || !in)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    for (size_t k = 0; k < n; k++) {
        const struct now *now = find_blob(walk, s->layer->bottom[k]);
        if (!now)
            return onnx_no_operator(&walk->e, s, err, "reads more than a record's values");
        in[k] = now->value;
        x[k] = now->shape;
    }
    s->in = in;
    s->x = x;
    return OK;
}

/* The blob of top k; of a BatchNorm with a Scale, that of the Scale. */
static const char *top_of(const struct onnx_step *s, size_t k)
{
    return s->scale ? s->scale->top[0] : s->layer->top[k];
}

static int name_tops(struct walk *walk, struct onnx_step *s, struct err *err)
{
    size_t n = s->layer->n_top;
    struct shape *y = arena_array(&walk->e.w.arena, n, struct shape);
    const char **tops = arena_array(&walk->e.w.arena, n, const char *);
    if (!y || !tops)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    for (size_t k = 0; k < n; k++) {
        y[k] = shape_of(walk, s->layer->top[k]);
        tops[k] =
            name_value(walk, top_of(s, k), s->scale && s->scale->name ? s->scale->name : s->name);
    }
    s->y = y;
    s->tops = tops;
    s->out = tops[0];
    return OK;
}

static int put_layer(struct walk *walk, size_t i, bool *merged, struct err *err)
{
    const Caffe__LayerParameter *layer = walk->e.net->layer[i];
    struct onnx_step s = {.layer = layer, .i = i, .name = layer->name ? layer->name : ""};
    bool several = false;
    int rc = read_bottoms(walk, &s, err);
    if (rc != OK)
        return rc;
    onnx_layer_writer *put = onnx_writer_of(layer->type ? layer->type : "", &several);
    if (!put)
        return onnx_no_operator(&walk->e, &s, err, "ONNX has no operator for this layer");
    if (layer->n_top != 1 && !several)
        return onnx_no_operator(&walk->e, &s, err, "several tops are not supported");
    find_scale(walk, &s);
    rc = name_tops(walk, &s, err);
    if (rc == OK)
        rc = put(&walk->e, &s, err);
    if (rc != OK)
        return rc;
    for (size_t k = 0; k < layer->n_top; k++)
        set_blob(walk, top_of(&s, k), s.tops[k], &s.y[k]);
    if (s.scale)
        merged[s.scale_i] = true;
    return OK;
}

static const char *final_type(const struct walk *walk)
{
    if (!walk->loss)
        return NULL;
    if (is_type(walk->loss, "SoftmaxWithLoss"))
        return "Softmax";
    return is_type(walk->loss, "SigmoidCrossEntropyLoss") ? "Sigmoid" : NULL;
}

static void put_outputs(struct walk *walk)
{
    struct onnx_writer *w = &walk->e.w;
    const char *type = final_type(walk);
    for (size_t i = 0; i < walk->outputs; i++) {
        const struct now *now = find_blob(walk, walk->output[i]);
        const char *value = now->value;
        if (type) {
            const Caffe__SoftmaxParameter *p = walk->loss->softmax_param;
            value = is_taken(walk, "prob") ? onnx_join(w, now->value, "prob") : "prob";
            Onnx__NodeProto *node = onnx_put_node(w, type, value, &now->value, 1, value);
            if (strcmp(type, "Softmax") == 0)
                onnx_put_int(w, node, "axis", p ? p->axis : 1);
        }
        onnx_put_output(w, value, &now->shape);
    }
}

static int walk_layers(struct walk *walk, struct err *err)
{
    const Caffe__NetParameter *net = walk->e.net;
    bool *merged = arena_array(&walk->e.w.arena, net->n_layer + 1, bool);
    size_t most = net->n_input + 1;
    for (size_t i = 0; i < net->n_layer; i++)
        most += net->layer[i]->n_top;
    walk->now = arena_array(&walk->e.w.arena, most, struct now);
    if (!merged || !walk->now)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    if (net->n_input > 0) {
        struct shape record = model_record_shape(net), shape = {.n = record.n + 1, .dim = {1}};
        memcpy(shape.dim + 1, record.dim, record.n * sizeof record.dim[0]);
        set_blob(walk, net->input[0], net->input[0], &shape);
        onnx_put_input(&walk->e.w, net->input[0], &shape);
    }
    for (size_t i = 0; i < net->n_layer; i++) {
        int rc = OK;
        if (!walk->needed[i] || merged[i])
            continue;
        if (net->layer[i]->n_bottom == 0)
            put_inputs(walk, i);
        else
            rc = put_layer(walk, i, merged, err);
        if (rc != OK)
            return rc;
    }
    put_outputs(walk);
    return OK;
}

/* ---- all of it ---- */

static int plan_shapes(struct walk *walk, const struct shape *record, struct err *err)
{
    /* Each blob is kept: a pooling that is moved ahead of a ReLU would change shapes. */
    struct net_options options = {
        .phase = PHASE_TEST,
        .batch = 1,
        .kernels = &kernels_ref,
        .keep_all = true,
        .brings_room = true,
    };
    options.input = model_record_shape(walk->e.net);
    if (options.input.n == 0)
        options.input = *record;
    if (options.input.n == 0)
        return err_set(err, ERR_USAGE,
                       "%.200s: the shape of the net's records is unknown; give it (--input)",
                       walk->e.path);
    return net_create(walk->e.net, &options, &walk->planned, err);
}

int onnx_export(const Caffe__NetParameter *net, const struct caffe_blobs *blobs,
                const struct shape *record, struct disk *disk, const char *path, struct err *err)
{
    struct walk walk = {.e = {.path = path, .net = net, .blobs = blobs}};
    size_t room = NODES_A_LAYER * (net->n_layer + 1);
    for (size_t i = 0; i < net->n_layer; i++)
        room += net->layer[i]->n_bottom + net->layer[i]->n_top;
    onnx_begin(&walk.e.w, net->name && net->name[0] ? net->name : "net", room, room);
    int rc = plan_shapes(&walk, record, err);
    if (rc == OK)
        rc = find_outputs(&walk, err);
    if (rc == OK)
        rc = mark_needed(&walk, err);
    if (rc == OK)
        rc = walk_layers(&walk, err);
    if (rc == OK)
        rc = onnx_write(&walk.e.w, disk, path, err);
    net_free(walk.planned);
    onnx_end(&walk.e.w);
    return rc;
}
