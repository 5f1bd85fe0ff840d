/* Recurrent layers and embeddings as operators of ONNX.
 *
 * Its recurrent operators have the steps first: a Transpose before, and one behind. Gates are in
 * another order there, and biases come twice. The state before the first step is 0, as it is for
 * the first window of a sequence. */
#include "model/onnx_layers.h"

#include <string.h>

enum { GATES_MAX = 4, TYPE_INT64 = 7 };

/* An operator, and which of the layer's gates each of its gates is. */
static const struct unit_kind {
    const char *type;
    size_t G;
    size_t gate[GATES_MAX];
} kinds[] = {
    {"LSTM", 4, {0, 2, 1, 3}}, /* i, o, f, c out of i, f, o, g */
    {"GRU", 3, {1, 0, 2}},     /* z, r, h out of r, z, n */
    {"RNN", 1, {0}},
};

struct unit_export {
    struct onnx_export *e;
    const struct onnx_step *s;
    const struct unit_kind *kind;
    size_t T, H, D;
};

static const struct unit_kind *find_kind(const char *type)
{
    const struct unit_kind *kind = kinds;
    while (strcmp(kind->type, type) != 0)
        kind++;
    return kind;
}

/* Rows of `row` numbers for each unit, gate by gate, to the place in `to`; blob k of the layer. */
static int copy_gates(const struct unit_export *u, size_t k, size_t row, float *to, struct err *err)
{
    size_t GH = u->kind->G * u->H, n = u->H * row;
    const struct shape matrix = {2, {GH, row}}, vector = {1, {GH}};
    struct caffe_tensor from;
    int rc = onnx_blob_of(u->e, u->s, k, k == 0 || k == 2 ? &matrix : &vector, &from, err);
    for (size_t gate = 0; rc == OK && gate < u->kind->G; gate++)
        memcpy(to + gate * n, from.data + u->kind->gate[gate] * n, n * sizeof *to);
    return rc;
}

/* The constants W, R and B. */
static int put_weights(const struct unit_export *u, const char *in[4], struct err *err)
{
    struct onnx_writer *w = &u->e->w;
    size_t GH = u->kind->G * u->H;
    const struct shape x_shape = {3, {1, GH, u->D}}, h_shape = {3, {1, GH, u->H}};
    const struct shape b_shape = {2, {1, 2 * GH}};
    float *x = arena_array(&w->arena, GH * u->D, float),
          *h = arena_array(&w->arena, GH * u->H, float);
    float *b = arena_array(&w->arena, 2 * GH, float);
    if (!x || !h || !b)
        return err_set(err, ERR_NOMEM, "net: out of memory");
    int rc = copy_gates(u, 0, u->D, x, err);
    if (rc == OK)
        rc = copy_gates(u, 1, 1, b, err);
    if (rc == OK)
        rc = copy_gates(u, 2, u->H, h, err);
    if (rc == OK && strcmp(u->kind->type, "GRU") == 0)
        rc = copy_gates(u, 3, 1, b + GH, err);
    in[1] = onnx_put_blob(u->e, u->s->name, 0, &x_shape, x);
    in[2] = onnx_put_blob(u->e, u->s->name, 2, &h_shape, h);
    in[3] = onnx_put_blob(u->e, u->s->name, 1, &b_shape, b);
    return rc;
}

/* Records and steps change places. */
static const char *put_transpose(const struct unit_export *u, const char *suffix, const char *from,
                                 bool last)
{
    static const int64_t order[] = {1, 0, 2};
    struct onnx_writer *w = &u->e->w;
    const char *inner = onnx_join(w, u->s->name, suffix), *out = last ? u->s->out : inner;
    const char *name = last ? u->s->name : inner;
    onnx_put_ints(w, onnx_put_node(w, "Transpose", name, &from, 1, out), "perm", order, 3);
    return out;
}

/* The layer reads all values of a step as one vector. */
static const char *put_vectors(const struct unit_export *u)
{
    struct onnx_writer *w = &u->e->w;
    const int64_t dims[] = {0, (int64_t)u->T, (int64_t)u->D};
    if (u->s->x[0].n == 3)
        return u->s->in[0];
    const char *name = onnx_join(w, u->s->name, "vectors");
    const char *in[] = {u->s->in[0], onnx_put_list(w, onnx_join(w, u->s->name, "shape"), dims, 3)};
    onnx_put_node(w, "Reshape", name, in, 2, name);
    return name;
}

/* The product and the tanh that Caffe's RNN has behind its state. */
static int put_outer(const struct unit_export *u, const char *from, struct err *err)
{
    const struct shape square = {2, {u->H, u->H}}, vector = {1, {u->H}};
    struct onnx_export *e = u->e;
    struct caffe_tensor weights, bias;
    int rc = onnx_blob_of(e, u->s, 3, &square, &weights, err);
    if (rc == OK)
        rc = onnx_blob_of(e, u->s, 4, &vector, &bias, err);
    float *turned = arena_array(&e->w.arena, u->H * u->H, float);
    if (rc != OK || !turned)
        return rc != OK ? rc : err_set(err, ERR_NOMEM, "net: out of memory");
    for (size_t i = 0; i < u->H * u->H; i++)
        turned[i % u->H * u->H + i / u->H] = weights.data[i];
    const char *at = onnx_put_inner(e, u->s, "MatMul", "product", from,
                                    onnx_put_blob(e, u->s->name, 3, &square, turned), false);
    at = onnx_put_inner(e, u->s, "Add", "shifted", at,
                        onnx_put_blob(e, u->s->name, 4, &vector, bias.data), false);
    onnx_put_inner(e, u->s, "Tanh", "", at, NULL, true);
    return OK;
}

int onnx_put_recurrent(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    struct unit_export u = {.e = e, .s = s, .kind = find_kind(s->layer->type)};
    static const int64_t direction = 1; /* the axis of ONNX's directions */
    const Caffe__RecurrentParameter *p = s->layer->recurrent_param;
    bool gru = u.kind->G == 3, outer = u.kind->G == 1 && (!p || p->output_product);
    const char *in[4];
    if (s->layer->n_bottom != 1)
        return onnx_no_operator(e, s, err,
                                "marks of continuation, a static input or a state from outside");
    u.T = s->x[0].dim[1];
    u.D = shape_count_from(&s->x[0], 2);
    u.H = s->y->dim[2];
    int rc = put_weights(&u, in, err);
    if (rc != OK)
        return rc;
    in[0] = put_transpose(&u, "steps", put_vectors(&u), false);
    const char *units =
        onnx_join(&e->w, s->name, "units"); /* the name of the last node is its own */
    Onnx__NodeProto *node = onnx_put_node(&e->w, u.kind->type, units, in, 4, units);
    onnx_put_int(&e->w, node, "hidden_size", (int64_t)u.H);
    if (gru ? s->layer->gru_param->reverse : p && p->reverse)
        onnx_put_text(&e->w, node, "direction", "reverse");
    if (gru)
        onnx_put_int(&e->w, node, "linear_before_reset", !s->layer->gru_param->reset_first);
    const char *axes = onnx_put_list(&e->w, onnx_join(&e->w, s->name, "axes"), &direction, 1);
    const char *states = onnx_put_inner(e, s, "Squeeze", "states", units, axes, false);
    const char *records = put_transpose(&u, "records", states, !outer);
    return outer ? put_outer(&u, records, err) : OK;
}

/* The numbers are floats in a record. Cast truncates them to integers, as the layer does; Gather
 * takes their rows. */
int onnx_put_embed(struct onnx_export *e, const struct onnx_step *s, struct err *err)
{
    const Caffe__EmbedParameter *p = s->layer->embed_param;
    const struct shape matrix = {2, {p->input_dim, p->num_output}}, vector = {1, {p->num_output}};
    struct caffe_tensor weights, bias = {.data = NULL};
    int rc = onnx_blob_of(e, s, 0, &matrix, &weights, err);
    if (rc == OK && p->bias_term)
        rc = onnx_blob_of(e, s, 1, &vector, &bias, err);
    if (rc != OK)
        return rc;
    const char *numbers = onnx_join(&e->w, s->name, "numbers");
    onnx_put_int(&e->w, onnx_put_node(&e->w, "Cast", numbers, s->in, 1, numbers), "to", TYPE_INT64);
    const char *rows =
        onnx_put_inner(e, s, "Gather", "rows", onnx_put_blob(e, s->name, 0, &matrix, weights.data),
                       numbers, !bias.data);
    if (bias.data)
        onnx_put_inner(e, s, "Add", "", rows, onnx_put_blob(e, s->name, 1, &vector, bias.data),
                       true);
    return OK;
}
