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
    return u->b ? order_gates(g, u, u->b->f + half * u->G * u->H, 1)
                : arena_array(&g->arena, u->G * u->H, float);
}

static int put_weights(struct onnx_graph *g, const struct units *u, struct err *err)
{
    size_t GH = u->G * u->H;
    float *wx = order_gates(g, u, u->w->f, u->D), *wh = order_gates(g, u, u->r->f, u->H);
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
static bool are_activations(const struct onnx_node *node, const struct unit_kind *kind)
{
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
    return !a || a->n_strings == n;
}

/* Refuse the options that no layer has. */
static int check_rest(struct onnx_graph *g, const struct onnx_node *node,
                      const struct unit_kind *kind, struct err *err)
{
    if (!onnx_text_is(node, "direction", "forward", "forward"))
        return onnx_refuse(g, node, err, "direction: only forward");
    if (!are_activations(node, kind))
        return onnx_refuse(g, node, err, "activations: only the default ones");
    if (onnx_attribute(node, "clip") || onnx_int(node, "input_forget", 0) != 0 ||
        onnx_int(node, "layout", 0) != 0)
        return onnx_refuse(g, node, err, "clip, input_forget or layout");
    if (onnx_has(node, 4))
        return onnx_refuse(g, node, err, "lengths of sequences (input 4)");
    int rc = check_zero(g, node, 5, "an initial state", err);
    if (rc == OK)
        rc = check_zero(g, node, 6, "an initial state", err);
    return rc == OK ? check_zero(g, node, 7, "weights of peepholes", err) : rc;
}

static int read_units(struct onnx_graph *g, const struct onnx_node *node,
                      const struct unit_kind *kind, struct onnx_value **x, struct units *u,
                      struct err *err)
{
    struct onnx_value *w, *r, *b = NULL;
    size_t G = kind->G;
    int rc = onnx_input(g, node, 0, x, err);
    if (rc == OK)
        rc = onnx_floats(g, node, 1, &w, err);
    if (rc == OK)
        rc = onnx_floats(g, node, 2, &r, err);
    if (rc == OK && onnx_has(node, 3))
        rc = onnx_floats(g, node, 3, &b, err);
    if (rc == OK)
        rc = check_rest(g, node, kind, err);
    if (rc != OK)
        return rc;
    if (!(*x)->is_blob || !(*x)->by_step || (*x)->shape.n != 3)
        return onnx_refuse(g, node, err,
                           "input 0 is no sequence of vectors with the steps first, (T, N, D)");
    int64_t H =
        onnx_int(node, "hidden_size", w->shape.n == 3 ? (int64_t)w->shape.dim[1] / (int64_t)G : 0);
    u->G = G;
    u->H = (size_t)H;
    u->D = (*x)->shape.dim[2];
    u->w = w;
    u->r = r;
    u->b = b;
    if (H < 1 || H > 1 << 20 || !is_shape(w, 1, G * u->H, u->D) ||
        !is_shape(r, 1, G * u->H, u->H) || (b && !is_shape(b, 1, 2 * G * u->H, 0)))
        return onnx_broken(g, node, err, "weights that do not fit %zu values and %lld units", u->D,
                           (long long)H);
    return OK;
}

static int set_outputs(struct onnx_graph *g, const struct onnx_node *node,
                       Caffe__LayerParameter *layer, uint32_t outputs, struct err *err)
{
    struct build *b = &g->build;
    if (strcmp(layer->type, "GRU") == 0) {
        layer->gru_param = build_message(b, &caffe__gruparameter__descriptor);
        if (layer->gru_param)
            BUILD_SET(layer->gru_param, num_output, outputs);
        if (layer->gru_param && onnx_int(node, "linear_before_reset", 0) == 0)
            BUILD_SET(layer->gru_param, reset_first, true);
    } else {
        layer->recurrent_param = build_message(b, &caffe__recurrent_parameter__descriptor);
        if (layer->recurrent_param)
            BUILD_SET(layer->recurrent_param, num_output, outputs);
        if (layer->recurrent_param && strcmp(layer->type, "RNN") == 0)
            BUILD_SET(layer->recurrent_param, output_product, false);
    }
    return b->failed ? onnx_no_memory(g, err) : OK;
}

/* Y, (T, 1, N, H), and Y_h, the last of its steps, (1, N, H). */
static int name_results(struct onnx_graph *g, const struct onnx_node *node,
                        const struct onnx_value *x, size_t H, const char *top, struct err *err)
{
    size_t T = x->shape.dim[0], N = x->shape.dim[1];
    struct onnx_value y = {
        .is_blob = true,
        .by_step = true,
        .blob = top,
        .shape = {4, {T, 1, N, H}},
        .blob_shape = {3, {N, T, H}},
    };
    struct onnx_value *out;
    int rc = OK;
    if (onnx_has_output(node, 0)) {
        rc = onnx_add(g, node->proto->output[0], &out, err);
        if (rc != OK)
            return rc;
        y.name = out->name;
        *out = y;
    }
    if (!onnx_has_output(node, 1) || onnx_readers(g, node->proto->output[1]) == 0)
        return OK;
    const char *last = node->proto->output[1];
    if (T > 1)
        rc = onnx_take_step(g, onnx_name(g, node, "last"), last, &y, T - 1, err);
    if (rc == OK)
        rc = onnx_add(g, last, &out, err);
    if (rc != OK)
        return rc;
    y.name = out->name;
    y.blob = T > 1 ? last : top;
    y.shape = (struct shape){3, {1, N, H}};
    y.blob_shape = (struct shape){3, {N, 1, H}};
    *out = y;
    return OK;
}

static int add_units(struct onnx_graph *g, const struct onnx_node *node,
                     const struct unit_kind *kind, struct err *err)
{
    struct onnx_value *x;
    struct units u = {.kind = kind};
    int rc = read_units(g, node, kind, &x, &u, err);
    if (rc != OK)
        return rc;
    if (onnx_has_output(node, 2) && onnx_readers(g, node->proto->output[2]) > 0)
        return onnx_refuse(g, node, err, "output 2, the last state of the cells");
    const char *top =
        onnx_has_output(node, 0) ? node->proto->output[0] : onnx_name(g, node, "steps");
    Caffe__LayerParameter *layer = onnx_inner_layer(g, kind->type, node->name, x->blob, top);
    if (!layer)
        return onnx_no_memory(g, err);
    rc = set_outputs(g, node, layer, (uint32_t)u.H, err);
    if (rc == OK)
        rc = put_weights(g, &u, err);
    return rc == OK ? name_results(g, node, x, u.H, top, err) : rc;
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
