/* ONNX's recurrent operators and embeddings.
 *
 * ONNX has the steps first, (T, N, D), and layers the records; a value knows its order, so that the
 * two Transposes around an operator vanish. Gates are in another order, and biases come twice. */
#include "model/build_message.h"
#include "model/onnx_graph.h"

#include <string.h>

enum { GATES_MAX = 4 };

/* An operator, and the layer that it becomes. */
struct unit_kind {
    const char *type;
    size_t G;
    size_t order[GATES_MAX];    /* of the layer's gate: ONNX's */
    const char *activations[4]; /* the only ones, up to NULL */
};

static const struct unit_kind lstm_kind = {
    "LSTM", 4, {0, 2, 1, 3}, {"Sigmoid", "Tanh", "Tanh"}}; /* i, f, o, g out of i, o, f, c */
static const struct unit_kind gru_kind = {
    "GRU", 3, {1, 0, 2}, {"Sigmoid", "Tanh"}}; /* r, z, n out of z, r, h */
static const struct unit_kind rnn_kind = {"RNN", 1, {0}, {"Tanh"}};

struct units {
    const struct unit_kind *kind;
    size_t G, H, D;
    size_t directions, direction;       /* how many, and that of a layer */
    const struct onnx_value *w, *r, *b; /* b may be NULL */
};

/* Rows of the layer's gates out of a matrix of ONNX's. */
static float *order_gates(struct onnx_graph *g, const struct units *u, const float *from,
                          size_t row)
{
    size_t n = u->H * row;
    float *to = arena_array(&g->arena, u->G * n, float);
    for (size_t k = 0; to && k < u->G; k++)
        memcpy(to + k * n, from + u->kind->order[k] * n, n * sizeof *to);
    return to;
}

/* One half of the biases, by gates; zeros where there are none. */
static float *order_biases(struct onnx_graph *g, const struct units *u, size_t half)
{
    return u->b ? order_gates(g, u, u->b->f + (2 * u->direction + half) * u->G * u->H, 1)
                : arena_array(&g->arena, u->G * u->H, float);
}

static int put_weights(struct onnx_graph *g, const struct units *u, struct err *err)
{
    size_t GH = u->G * u->H;
    float *wx = order_gates(g, u, u->w->f + u->direction * GH * u->D, u->D);
    float *wh = order_gates(g, u, u->r->f + u->direction * GH * u->H, u->H);
    float *bx = order_biases(g, u, 0), *bh = order_biases(g, u, 1);
    if (!wx || !wh || !bx || !bh)
        return onnx_no_memory(g, err);
    for (size_t k = 0; u->G != 3 && k < GH; k++) /* all but a GRU's are added alike */
        bx[k] += bh[k];
    onnx_weights(g, &(struct shape){2, {GH, u->D}}, wx);
    onnx_weights(g, &(struct shape){1, {GH}}, bx);
    onnx_weights(g, &(struct shape){2, {GH, u->H}}, wh);
    if (u->G == 3)
        onnx_weights(g, &(struct shape){1, {GH}}, bh);
    return OK;
}

static bool is_shape(const struct onnx_value *value, size_t a, size_t b, size_t c)
{
    const struct shape *s = &value->shape;
    return c ? s->n == 3 && s->dim[0] == a && s->dim[1] == b && s->dim[2] == c
             : s->n == 2 && s->dim[0] == a && s->dim[1] == b;
}

static int check_zero(struct onnx_graph *g, const struct onnx_node *node, size_t k,
                      const char *what, struct err *err)
{
    struct onnx_value *value;
    if (!onnx_has(node, k))
        return OK;
    int rc = onnx_floats(g, node, k, &value, err);
    for (size_t j = 0; rc == OK && j < shape_count(&value->shape); j++)
        if (value->f[j] != 0.0f)
            return onnx_refuse(g, node, err, "%s that is not 0", what);
    return rc;
}

/* The activations that the layer has; exporters name them, too. */
static bool are_activations(const struct onnx_node *node, const struct units *u)
{
    const struct unit_kind *kind = u->kind;
    const Onnx__AttributeProto *a = onnx_attribute(node, "activations");
    size_t n = 0;
    while (kind->activations[n])
        n++;
    for (size_t k = 0; a && k < a->n_strings; k++) {
        const char *want = kind->activations[k % n];
        if (a->strings[k].len != strlen(want) ||
            memcmp(a->strings[k].data, want, strlen(want)) != 0)
            return false;
    }
    return !a || a->n_strings == n * u->directions;
}

/* Refuse the options that no layer has. */
static int check_rest(struct onnx_graph *g, const struct onnx_node *node, const struct units *u,
                      struct err *err)
{
    int64_t layout = onnx_int(node, "layout", 0);
    if (u->directions == 1 && !onnx_text_is(node, "direction", "forward", "forward") &&
        !onnx_text_is(node, "direction", "reverse", ""))
        return onnx_refuse(g, node, err, "direction: forward, reverse or bidirectional");
    if (!are_activations(node, u))
        return onnx_refuse(g, node, err, "activations: only the default ones");
    if (onnx_attribute(node, "clip") || onnx_int(node, "input_forget", 0) != 0 ||
        (layout != 0 && layout != 1))
        return onnx_refuse(g, node, err, "clip, input_forget, or a layout besides 0 and 1");
    if (onnx_has(node, 4))
        return onnx_refuse(g, node, err, "lengths of sequences (input 4)");
    int rc = check_zero(g, node, 5, "an initial state", err);
    if (rc == OK)
        rc = check_zero(g, node, 6, "an initial state", err);
    return rc == OK ? check_zero(g, node, 7, "weights of peepholes", err) : rc;
}

/* The sequences as a blob, (N, T, D). */
static int read_sequences(struct onnx_graph *g, const struct onnx_node *node, struct onnx_value **x,
                          struct err *err)
{
    bool records_first = onnx_int(node, "layout", 0) == 1;
    int rc = onnx_input(g, node, 0, x, err);
    if (rc != OK)
        return rc;
    if (!(*x)->is_blob || (*x)->by_step == records_first || (*x)->shape.n != 3)
        return onnx_refuse(g, node, err, "input 0 is no sequence of vectors with the %s first, %s",
                           records_first ? "records" : "steps",
                           records_first ? "(N, T, D)" : "(T, N, D)");
    return records_first ? onnx_settle(g, *x, err) : OK;
}

static int read_units(struct onnx_graph *g, const struct onnx_node *node, struct onnx_value **x,
                      struct units *u, struct err *err)
{
    struct onnx_value *w, *r, *b = NULL;
    size_t G = u->kind->G, n = u->directions;
    int rc = read_sequences(g, node, x, err);
    if (rc == OK)
        rc = onnx_floats(g, node, 1, &w, err);
    if (rc == OK)
        rc = onnx_floats(g, node, 2, &r, err);
    if (rc == OK && onnx_has(node, 3))
        rc = onnx_floats(g, node, 3, &b, err);
    if (rc == OK)
        rc = check_rest(g, node, u, err);
    if (rc != OK)
        return rc;
    int64_t H =
        onnx_int(node, "hidden_size", w->shape.n == 3 ? (int64_t)w->shape.dim[1] / (int64_t)G : 0);
    u->G = G;
    u->H = (size_t)H;
    u->D = (*x)->shape.dim[2];
    u->w = w;
    u->r = r;
    u->b = b;
    if (H < 1 || H > 1 << 20 || !is_shape(w, n, G * u->H, u->D) ||
        !is_shape(r, n, G * u->H, u->H) || (b && !is_shape(b, n, 2 * G * u->H, 0)))
        return onnx_broken(g, node, err, "weights that do not fit %zu values and %lld units", u->D,
                           (long long)H);
    return OK;
}

static int set_fields(struct onnx_graph *g, const struct onnx_node *node,
                      Caffe__LayerParameter *layer, uint32_t outputs, bool reverse, struct err *err)
{
    struct build *b = &g->build;
    if (strcmp(layer->type, "GRU") == 0) {
        layer->gru_param = build_message(b, &caffe__gruparameter__descriptor);
        if (layer->gru_param)
            BUILD_SET(layer->gru_param, num_output, outputs);
        if (layer->gru_param && onnx_int(node, "linear_before_reset", 0) == 0)
            BUILD_SET(layer->gru_param, reset_first, true);
        if (layer->gru_param && reverse)
            BUILD_SET(layer->gru_param, reverse, true);
    } else {
        layer->recurrent_param = build_message(b, &caffe__recurrent_parameter__descriptor);
        if (layer->recurrent_param)
            BUILD_SET(layer->recurrent_param, num_output, outputs);
        if (layer->recurrent_param && strcmp(layer->type, "RNN") == 0)
            BUILD_SET(layer->recurrent_param, output_product, false);
        if (layer->recurrent_param && reverse)
            BUILD_SET(layer->recurrent_param, reverse, true);
    }
    return b->failed ? onnx_no_memory(g, err) : OK;
}

/* ---- results ---- */

/* The outputs of the layers of one direction, or of two, each (N, T, H). */
struct directions {
    size_t n, N, T, H;
    bool reverse[2], records_first;
    const char *top[2];
};

static int join_directions(struct onnx_graph *g, const char *name, const char *const from[2],
                           int32_t axis, const char *top, struct err *err)
{
    struct build *b = &g->build;
    Caffe__LayerParameter *layer = onnx_inner_layer(g, "Concat", name, from[0], top);
    if (layer)
        build_add_string(b, &layer->bottom, &layer->n_bottom, from[1]);
    if (layer && (layer->concat_param = build_message(b, &caffe__concat_parameter__descriptor)))
        BUILD_SET(layer->concat_param, axis, axis);
    return b->failed ? onnx_no_memory(g, err) : OK;
}

static int add_result(struct onnx_graph *g, const char *name, const struct onnx_value *like,
                      struct err *err)
{
    struct onnx_value *out;
    int rc = onnx_add(g, name, &out, err);
    if (rc != OK)
        return rc;
    name = out->name;
    *out = *like;
    out->name = name;
    return OK;
}

/* Y, (T, directions, N, H), or (N, T, directions, H) where the records are first. */
static int name_steps(struct onnx_graph *g, const struct onnx_node *node,
                      const struct directions *d, struct err *err)
{
    int rc = OK;
    if (!onnx_has_output(node, 0))
        return OK;
    const char *y = node->proto->output[0];
    if (d->n == 2)
        rc = join_directions(g, node->name, d->top, 2, y, err);
    const struct onnx_value value = {
        .is_blob = true,
        .by_step = !d->records_first,
        .directed = !d->records_first,
        .blob = d->n == 2 ? y : d->top[0],
        .shape = d->records_first ? (struct shape){4, {d->N, d->T, d->n, d->H}}
                                  : (struct shape){4, {d->T, d->n, d->N, d->H}},
        .blob_shape = {3, {d->N, d->T, d->n * d->H}},
    };
    return rc == OK ? add_result(g, y, &value, err) : rc;
}

/* Y_h, the last of a direction's steps, (directions, N, H), or (N, directions, H). */
static int name_states(struct onnx_graph *g, const struct onnx_node *node,
                       const struct directions *d, struct err *err)
{
    static const char *const names[2] = {"last/forward", "last/reverse"};
    const char *from[2] = {NULL, NULL};
    int rc = OK;
    if (!onnx_has_output(node, 1) || onnx_readers(g, node->proto->output[1]) == 0)
        return OK;
    const char *last = node->proto->output[1];
    for (size_t k = 0; k < d->n && rc == OK; k++) {
        const struct onnx_value steps = {.blob = d->top[k], .blob_shape = {3, {d->N, d->T, d->H}}};
        const char *name = onnx_name(g, node, d->n == 2 ? names[k] : "last");
        from[k] = d->T == 1 ? d->top[k] : d->n == 2 ? name : last;
        if (d->T > 1)
            rc = onnx_take_part(g, name, from[k], &steps, 1,
                                (struct range){d->reverse[k] ? 0 : d->T - 1, 1}, err);
    }
    if (rc == OK && d->n == 2)
        rc = join_directions(g, onnx_name(g, node, "last"), from, 1, last, err);
    const struct onnx_value value = {
        .is_blob = true,
        .by_step = !d->records_first,
        .blob = d->n == 2 ? last : from[0],
        .shape = d->records_first ? (struct shape){3, {d->N, d->n, d->H}}
                                  : (struct shape){3, {d->n, d->N, d->H}},
        .blob_shape = {3, {d->N, d->n, d->H}},
    };
    return rc == OK ? add_result(g, last, &value, err) : rc;
}

/* ---- operators ---- */

/* A layer for each direction; the name of the last layer is the node's. */
static int add_layers(struct onnx_graph *g, const struct onnx_node *node, const char *x,
                      struct units *u, struct directions *d, struct err *err)
{
    static const char *const names[2] = {"forward", "reverse"};
    int rc = OK;
    for (size_t k = 0; k < d->n && rc == OK; k++) {
        const char *name = d->n == 2 ? onnx_name(g, node, names[k]) : node->name;
        d->top[k] = d->n == 2                  ? name
                    : onnx_has_output(node, 0) ? node->proto->output[0]
                                               : onnx_name(g, node, "steps");
        u->direction = k;
        Caffe__LayerParameter *layer = onnx_inner_layer(g, u->kind->type, name, x, d->top[k]);
        if (!layer)
            return onnx_no_memory(g, err);
        rc = set_fields(g, node, layer, (uint32_t)u->H, d->reverse[k], err);
        if (rc == OK)
            rc = put_weights(g, u, err);
    }
    return rc;
}

static int add_units(struct onnx_graph *g, const struct onnx_node *node,
                     const struct unit_kind *kind, struct err *err)
{
    struct onnx_value *x;
    bool both = onnx_text_is(node, "direction", "bidirectional", "forward");
    bool reverse = onnx_text_is(node, "direction", "reverse", "forward");
    struct units u = {.kind = kind, .directions = both ? 2 : 1};
    struct directions d = {
        .n = u.directions,
        .reverse = {reverse, true},
        .records_first = onnx_int(node, "layout", 0) == 1,
    };
    int rc = read_units(g, node, &x, &u, err);
    if (rc != OK)
        return rc;
    if (onnx_has_output(node, 2) && onnx_readers(g, node->proto->output[2]) > 0)
        return onnx_refuse(g, node, err, "output 2, the last state of the cells");
    d.N = x->blob_shape.dim[0];
    d.T = x->blob_shape.dim[1];
    d.H = u.H;
    rc = add_layers(g, node, x->blob, &u, &d, err);
    if (rc == OK)
        rc = name_steps(g, node, &d, err);
    return rc == OK ? name_states(g, node, &d, err) : rc;
}

int onnx_lstm(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return add_units(g, node, &lstm_kind, err);
}

int onnx_gru(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return add_units(g, node, &gru_kind, err);
}

int onnx_rnn(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    return add_units(g, node, &rnn_kind, err);
}

/* Rows of a constant matrix, by numbers that are data. */
int onnx_embed(struct onnx_graph *g, const struct onnx_node *node, struct err *err)
{
    struct onnx_value *w, *x;
    int rc = onnx_floats(g, node, 0, &w, err);
    if (rc == OK)
        rc = onnx_blob(g, node, 1, &x, err);
    if (rc != OK)
        return rc;
    if (w->shape.n != 2 || shape_count(&w->shape) == 0 || onnx_int(node, "axis", 0) != 0 ||
        x->shape.n >= SHAPE_DIMS_MAX)
        return onnx_refuse(g, node, err, "only rows of a matrix");
    struct build *b = &g->build;
    Caffe__LayerParameter *layer = onnx_layer(g, node, "Embed", x);
    Caffe__EmbedParameter *embed =
        layer ? build_message(b, &caffe__embed_parameter__descriptor) : NULL;
    if (!embed)
        return onnx_no_memory(g, err);
    layer->embed_param = embed;
    BUILD_SET(embed, input_dim, (uint32_t)w->shape.dim[0]);
    BUILD_SET(embed, num_output, (uint32_t)w->shape.dim[1]);
    BUILD_SET(embed, bias_term, false);
    onnx_weights(g, &w->shape, w->f);
    struct shape y = x->shape;
    y.dim[y.n++] = w->shape.dim[1];
    return onnx_result(g, node, 0, &y, err);
}
