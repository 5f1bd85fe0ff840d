#include "tensor/recurrence.h"

#include "base/fault.h"
#include "tensor/kernels_common.h"

#include <math.h>
#include <string.h>

static size_t gates_of(enum recurrence_kind kind)
{
    return kind == RECURRENCE_LSTM ? 4 : kind == RECURRENCE_GRU ? 3 : 1;
}

size_t recurrence_states(enum recurrence_kind kind)
{
    return kind == RECURRENCE_LSTM ? 2 : 1;
}

struct shape recurrence_param_shape(const struct recurrence_spec *s, enum recurrence_param k)
{
    size_t gates = gates_of(s->kind) * s->H;
    bool gru = s->kind == RECURRENCE_GRU, has_out = s->kind == RECURRENCE_TANH;
    const struct shape none = {0};
    switch (k) {
    case RECURRENCE_WX: return (struct shape){2, {gates, s->D}};
    case RECURRENCE_BX: return (struct shape){1, {gates}};
    case RECURRENCE_WS: return s->S > 0 ? (struct shape){2, {gates, s->S}} : none;
    case RECURRENCE_WH: return (struct shape){2, {gates, s->H}};
    case RECURRENCE_BH: return gru ? (struct shape){1, {gates}} : none;
    case RECURRENCE_WO: return has_out ? (struct shape){2, {s->H, s->H}} : none;
    case RECURRENCE_BO: return has_out ? (struct shape){1, {s->H}} : none;
    default: PL_ASSERT(false); return none;
    }
}

double recurrence_products(const struct recurrence_spec *s)
{
    double rows = (double)s->N * (double)s->T, gates = (double)(gates_of(s->kind) * s->H);
    double out = s->kind == RECURRENCE_TANH ? rows * (double)s->H * (double)s->H : 0.0;
    return rows * gates * (double)(s->D + s->H) + (double)s->N * gates * (double)s->S + out;
}

/* ---- forward ---- */

static size_t place_of(const struct recurrence *r, size_t n, size_t t)
{
    return n * r->spec.T + t;
}

static float cont_at(const struct recurrence *r, const struct recurrence_args *args, size_t n,
                     size_t t)
{
    return args->cont ? args->cont[place_of(r, n, t)] : 1.0f;
}

/* The outputs of the units, (N, T, H). */
static float *outputs_of(const struct recurrence *r, const struct recurrence_args *args)
{
    return r->h ? r->h : args->y;
}

/* NULL: 0. */
static const float *first_of(const struct recurrence_args *args, size_t k, size_t n)
{
    return args->first[k] && n < args->first_records ? args->first[k] + n * args->first_row : NULL;
}

/* h' of a step into r->state, (N, H), and where backward finds it. */
static void continue_state(const struct recurrence *r, const struct recurrence_args *args, size_t n,
                           size_t t)
{
    size_t H = r->spec.H, at = place_of(r, n, t);
    float cont = cont_at(r, args, n, t), *to = r->state + n * H;
    const float *from = t > 0 ? outputs_of(r, args) + (at - 1) * H : first_of(args, 0, n);
    for (size_t i = 0; i < H; i++)
        to[i] = from ? cont * from[i] : 0.0f;
    if (r->before)
        memcpy(r->before + at * H, to, H * sizeof *to);
}

/* The cells of a step: in training each step's have a place of their own. */
static float *cells_of(const struct recurrence *r, size_t n, size_t t)
{
    return r->c + (r->before ? place_of(r, n, t) : n) * r->spec.H;
}

static const float *cells_before(const struct recurrence *r, size_t n, size_t t)
{
    return t > 0 ? cells_of(r, n, t - 1) : r->c_first + n * r->spec.H;
}

static struct gate_row row_of(const struct recurrence *r, const struct recurrence_args *args,
                              size_t n, size_t t)
{
    size_t H = r->spec.H, G = r->G, at = place_of(r, n, t);
    bool lstm = r->spec.kind == RECURRENCE_LSTM, gru = r->spec.kind == RECURRENCE_GRU;
    return (struct gate_row){
        .H = H,
        .cont = cont_at(r, args, n, t),
        .gates = r->gates + at * G * H,
        .z = r->z + n * G * H,
        .extra = r->extra ? r->extra + n * G * H : NULL,
        .before = lstm  ? cells_before(r, n, t)
                  : gru ? r->state + n * H
                        : NULL,
        .inner = r->hidden ? r->hidden + at * G * H + (G - 1) * H : NULL,
        .c = lstm ? cells_of(r, n, t) : NULL,
        .h = outputs_of(r, args) + at * H,
    };
}

static gate_fn *forward_of(const struct recurrence *r)
{
    const struct gate_loops *l = r->loops;
    return r->spec.kind == RECURRENCE_LSTM  ? l->lstm_forward
           : r->spec.kind == RECURRENCE_GRU ? l->gru_forward
                                            : l->tanh_forward;
}

static void step_forward(const struct recurrence *r, const struct recurrence_args *args, size_t t)
{
    size_t N = r->spec.N;
    gate_fn *units = forward_of(r);
#pragma omp parallel for schedule(static) if (N * r->spec.H >= PARALLEL_MIN)
    for (size_t n = 0; n < N; n++)
        continue_state(r, args, n, t);
    const struct op_args product = {
        .x = r->state, .w = args->w[RECURRENCE_WH], .b = args->w[RECURRENCE_BH], .y = r->z};
    r->step_op->ops->forward(r->step_op, &product);
#pragma omp parallel for schedule(static) if (N * r->G * r->spec.H >= PARALLEL_MIN)
    for (size_t n = 0; n < N; n++) {
        const struct gate_row row = row_of(r, args, n, t);
        units(&row);
    }
}

static void take_first_cells(const struct recurrence *r, const struct recurrence_args *args)
{
    size_t H = r->spec.H;
    for (size_t n = 0; n < r->spec.N; n++) {
        const float *from = first_of(args, 1, n);
        for (size_t i = 0; i < H; i++)
            r->c_first[n * H + i] = from ? from[i] : 0.0f;
    }
}

static void give_last(const struct recurrence *r, const struct recurrence_args *args)
{
    size_t H = r->spec.H, T = r->spec.T;
    for (size_t n = 0; n < args->last_records; n++) {
        if (args->last[0])
            memcpy(args->last[0] + n * args->last_row,
                   outputs_of(r, args) + place_of(r, n, T - 1) * H, H * sizeof(float));
        if (args->last[1])
            memcpy(args->last[1] + n * args->last_row, cells_of(r, n, T - 1), H * sizeof(float));
    }
}

/* In place. */
static void take_tangents(const struct recurrence *r, float *y)
{
    struct gate_row row = {.H = r->spec.H, .z = r->z};
    memset(r->z, 0, row.H * sizeof(float));
    for (size_t at = 0; at < r->spec.N * r->spec.T; at++) {
        row.gates = row.h = y + at * row.H;
        r->loops->tanh_forward(&row);
    }
}

void recurrence_forward(struct recurrence *r, const struct recurrence_args *args)
{
    const float *const *w = args->w;
    const struct op_args x = {
        .x = args->x, .w = w[RECURRENCE_WX], .b = w[RECURRENCE_BX], .y = r->gates};
    r->x_op->ops->forward(r->x_op, &x);
    if (r->fixed_op) {
        const struct op_args fixed = {.x = args->fixed, .w = w[RECURRENCE_WS], .y = r->extra};
        r->fixed_op->ops->forward(r->fixed_op, &fixed);
    }
    if (r->c)
        take_first_cells(r, args);
    for (size_t t = 0; t < r->spec.T; t++)
        step_forward(r, args, t);
    give_last(r, args);
    if (r->out_op) {
        const struct op_args out = {
            .x = r->h, .w = w[RECURRENCE_WO], .b = w[RECURRENCE_BO], .y = args->y};
        r->out_op->ops->forward(r->out_op, &out);
        take_tangents(r, args->y);
    }
}

/* ---- backward ---- */

static gate_fn *backward_of(const struct recurrence *r)
{
    const struct gate_loops *l = r->loops;
    return r->spec.kind == RECURRENCE_LSTM  ? l->lstm_backward
           : r->spec.kind == RECURRENCE_GRU ? l->gru_backward
                                            : l->tanh_backward;
}

/* Of a record: r->dh, the gradient by the outputs, becomes that by the products of the step. */
static void row_backward(const struct recurrence *r, const struct recurrence_args *args,
                         const float *dy, size_t n, size_t t)
{
    size_t H = r->spec.H, at = place_of(r, n, t);
    struct gate_row row = row_of(r, args, n, t);
    row.dh = r->dh + n * H;
    row.dc = r->dc ? r->dc + n * H : NULL;
    if (r->hidden)
        row.before = r->before + at * H;
    for (size_t i = 0; dy && i < H; i++)
        row.dh[i] += dy[at * H + i];
    backward_of(r)(&row);
    if (r->hidden)
        memcpy(r->hidden + at * r->G * H, row.z, r->G * H * sizeof(float));
}

static void step_backward(const struct recurrence *r, const struct recurrence_args *args,
                          const float *dy, size_t t)
{
    size_t N = r->spec.N, H = r->spec.H;
#pragma omp parallel for schedule(static) if (N * r->G * H >= PARALLEL_MIN)
    for (size_t n = 0; n < N; n++)
        row_backward(r, args, dy, n, t);
    const struct op_args product = {
        .x = r->state, .w = args->w[RECURRENCE_WH], .dy = r->z, .dx = r->state};
    r->step_op->ops->backward(r->step_op, &product);
    for (size_t n = 0; n < N; n++) {
        float cont = cont_at(r, args, n, t);
        for (size_t i = n * H; i < (n + 1) * H; i++)
            r->dh[i] = cont * (r->dh[i] + r->state[i]);
    }
}

/* Through the output of tanh units: the gradient by y in place of y's products, then that by h,
 * which lies in the room of the gates until a step needs it. */
static const float *out_backward(const struct recurrence *r, const struct recurrence_args *args)
{
    size_t H = r->spec.H, places = r->spec.N * r->spec.T;
    float *dout = r->dout, *dh = r->gates;
    for (size_t i = 0; i < places * H; i++)
        dout[i] = args->dy ? args->dy[i] * (1.0f - args->y[i] * args->y[i]) : 0.0f;
    const struct op_args out = {
        .x = r->h,
        .w = args->w[RECURRENCE_WO],
        .dy = dout,
        .dx = dh,
        .dw = args->dw[RECURRENCE_WO],
        .db = args->dw[RECURRENCE_BO],
    };
    r->out_op->ops->backward(r->out_op, &out);
    return dh;
}

/* Σ over the steps of the gradient by their input's products. */
static void sum_steps(const struct recurrence *r)
{
    size_t T = r->spec.T, width = r->G * r->spec.H;
    for (size_t n = 0; n < r->spec.N; n++) {
        memset(r->extra + n * width, 0, width * sizeof(float));
        column_sums_add(T, width, r->gates + n * T * width, r->extra + n * width);
    }
}

static void add_weights(struct recurrence *r, const struct recurrence_args *args)
{
    float *const *dw = args->dw;
    const struct op_args state = {
        .x = r->before,
        .w = args->w[RECURRENCE_WH],
        .dy = r->hidden ? r->hidden : r->gates,
        .dw = dw[RECURRENCE_WH],
        .db = dw[RECURRENCE_BH],
    };
    r->state_op->ops->backward(r->state_op, &state);
    if (r->fixed_op) {
        sum_steps(r);
        const struct op_args fixed = {
            .x = args->fixed,
            .w = args->w[RECURRENCE_WS],
            .dy = r->extra,
            .dx = args->dfixed,
            .dw = dw[RECURRENCE_WS],
        };
        r->fixed_op->ops->backward(r->fixed_op, &fixed);
    }
    const struct op_args x = {
        .x = args->x,
        .w = args->w[RECURRENCE_WX],
        .dy = r->gates,
        .dx = args->dx,
        .dw = dw[RECURRENCE_WX],
        .db = dw[RECURRENCE_BX],
    };
    r->x_op->ops->backward(r->x_op, &x);
}

static void begin_slope(const struct recurrence *r, const float *given, float *to)
{
    size_t bytes = r->spec.N * r->spec.H * sizeof *to;
    if (given)
        memcpy(to, given, bytes);
    else
        memset(to, 0, bytes);
}

void recurrence_backward(struct recurrence *r, const struct recurrence_args *args)
{
    size_t bytes = r->spec.N * r->spec.H * sizeof(float);
    const float *dy = r->out_op ? out_backward(r, args) : args->dy;
    begin_slope(r, args->dlast[0], r->dh);
    if (r->dc)
        begin_slope(r, args->dlast[1], r->dc);
    for (size_t t = r->spec.T; t-- > 0;)
        step_backward(r, args, dy, t);
    if (args->dfirst[0])
        memcpy(args->dfirst[0], r->dh, bytes);
    if (args->dfirst[1])
        memcpy(args->dfirst[1], r->dc, bytes);
    add_weights(r, args);
}

/* ---- planning ---- */

static void release_ops(struct op *op)
{
    struct recurrence *r = (struct recurrence *)op;
    struct op *const ops[] = {r->x_op, r->fixed_op, r->step_op, r->state_op, r->out_op};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        op_release(ops[i]);
}

static const struct op_ops recurrence_ops = {.release = release_ops};

struct planning {
    struct recurrence *r;
    const struct kernels *kernels;
    bool training;
    struct arena *arena;
    struct err *err;
};

/* Rows of `from` values by `to` units. */
static int plan_product(const struct planning *p, size_t rows, size_t from, size_t to, bool bias,
                        struct op **op)
{
    const struct inner_spec spec = {{2, {rows, from}}, {2, {rows, to}}, bias};
    int rc = p->kernels->inner(&spec, LAYOUT_PLAIN, p->training, p->arena, op, p->err);
    if (rc == OK)
        p->r->op.scratch_bytes += (*op)->scratch_bytes;
    return rc;
}

static int plan_products(const struct planning *p)
{
    struct recurrence *r = p->r;
    const struct recurrence_spec *s = &r->spec;
    size_t places = s->N * s->T, width = r->G * s->H;
    bool gru = s->kind == RECURRENCE_GRU;
    int rc = plan_product(p, places, s->D, width, true, &r->x_op);
    if (rc == OK && s->S > 0)
        rc = plan_product(p, s->N, s->S, width, false, &r->fixed_op);
    if (rc == OK)
        rc = plan_product(p, s->N, s->H, width, gru, &r->step_op);
    if (rc == OK && p->training)
        rc = plan_product(p, places, s->H, width, gru, &r->state_op);
    if (rc == OK && s->kind == RECURRENCE_TANH)
        rc = plan_product(p, places, s->H, s->H, true, &r->out_op);
    return rc;
}

static float *take_room(struct recurrence *r, struct arena *arena, size_t count, bool *full)
{
    float *at = arena_array(arena, count, float);
    r->op.scratch_bytes += count * sizeof *at;
    *full = *full || !at;
    return at;
}

static int reserve_room(const struct planning *p)
{
    struct recurrence *r = p->r;
    const struct recurrence_spec *s = &r->spec;
    size_t rows = s->N * s->H, places = rows * s->T;
    bool full = false, lstm = s->kind == RECURRENCE_LSTM, training = p->training;
    r->gates = take_room(r, p->arena, r->G * places, &full);
    r->z = take_room(r, p->arena, r->G * rows, &full);
    r->state = take_room(r, p->arena, rows, &full);
    if (s->S > 0)
        r->extra = take_room(r, p->arena, r->G * rows, &full);
    if (s->kind == RECURRENCE_TANH)
        r->h = take_room(r, p->arena, places, &full);
    if (lstm) {
        r->c = take_room(r, p->arena, training ? places : rows, &full);
        r->c_first = take_room(r, p->arena, rows, &full);
    }
    if (training) {
        r->before = take_room(r, p->arena, places, &full);
        r->dh = take_room(r, p->arena, rows, &full);
        if (lstm)
            r->dc = take_room(r, p->arena, rows, &full);
        if (s->kind == RECURRENCE_GRU)
            r->hidden = take_room(r, p->arena, r->G * places, &full);
        if (s->kind == RECURRENCE_TANH)
            r->dout = take_room(r, p->arena, places, &full);
    }
    return full ? plan_nomem("recurrent layer", p->err) : OK;
}

int recurrence_plan(const struct recurrence_spec *spec, const struct kernels *kernels,
                    const struct gate_loops *loops, bool training, struct arena *arena,
                    struct recurrence **out, struct err *err)
{
    struct recurrence *r = arena_new(arena, struct recurrence);
    if (!r)
        return plan_nomem("recurrent layer", err);
    *r = (struct recurrence){
        .op = {.ops = &recurrence_ops},
        .spec = *spec,
        .loops = loops,
        .G = gates_of(spec->kind),
    };
    const struct planning p = {r, kernels, training, arena, err};
    const struct shape gates = {3, {spec->N, spec->T, r->G * spec->H}};
    int rc = shape_count(&gates) > 0 ? plan_products(&p) : plan_nomem("recurrent layer", err);
    if (rc == OK)
        rc = reserve_room(&p);
    if (rc != OK) {
        release_ops(&r->op);
        return rc;
    }
    *out = r;
    return OK;
}
