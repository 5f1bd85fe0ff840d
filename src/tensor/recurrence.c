#include "tensor/recurrence_internal.h"

#include "base/fault.h"
#include "base/minmax.h"
#include "tensor/columns.h"
#include "tensor/kernels_common.h"

#include <math.h>
#include <string.h>

float recurrence_cont(const struct recurrence *r, const struct recurrence_args *args, size_t n,
                      size_t t)
{
    return args->cont ? args->cont[recurrence_place(r, n, t)] : 1.0f;
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

/* h' of a step: in r->state, or where backward finds it, if the products read it there. */
static struct product_a state_at(const struct recurrence *r, size_t t)
{
    size_t H = r->spec.H;
    bool in_place = r->before && r->products;
    return (struct product_a){
        .at = in_place ? r->before + recurrence_place(r, 0, t) * H : r->state,
        .row = in_place ? r->spec.T * H : H,
        .step = 1,
    };
}

static float *state_of(const struct recurrence *r, size_t n, size_t t)
{
    const struct product_a state = state_at(r, t);
    return (float *)state.at + n * state.row;
}

static void continue_state(const struct recurrence *r, const struct recurrence_args *args, size_t n,
                           size_t t)
{
    size_t H = r->spec.H, at = recurrence_place(r, n, t);
    float cont = recurrence_cont(r, args, n, t), *to = state_of(r, n, t);
    const float *from =
        t > 0 ? outputs_of(r, args) + recurrence_place(r, n, t - 1) * H : first_of(args, 0, n);
    for (size_t i = 0; i < H; i++)
        to[i] = from ? cont * from[i] : 0.0f;
    if (r->before && !r->products)
        memcpy(r->before + at * H, to, H * sizeof *to);
}

/* The cells of a step: in training each step's have a place of their own. */
static float *cells_of(const struct recurrence *r, size_t n, size_t t)
{
    return r->c + (r->before ? recurrence_place(r, n, t) : n) * r->spec.own.len;
}

static const float *cells_before(const struct recurrence *r, size_t n, size_t t)
{
    return t > 0 ? cells_of(r, n, t - 1) : r->c_first + n * r->spec.own.len;
}

bool recurrence_halves(const struct recurrence *r)
{
    return r->spec.kind == RECURRENCE_RESET;
}

struct gate_row recurrence_row(const struct recurrence *r, const struct recurrence_args *args,
                               size_t n, size_t t)
{
    const struct range own = r->spec.own;
    size_t H = r->spec.H, U = own.len, G = r->G, at = recurrence_place(r, n, t);
    bool lstm = r->spec.kind == RECURRENCE_LSTM, gru = r->Z > 1 && !lstm;
    return (struct gate_row){
        .H = U,
        .next = n + 1 < r->spec.N ? r->spec.T : 0,
        .cont = recurrence_cont(r, args, n, t),
        .sums = r->rows.op ? recurrence_row_sums(r, args, at) : r->gates + at * G * U,
        .gates = r->gates + at * G * U,
        .z = r->z + n * r->Z * U,
        .extra = r->extra ? r->extra + n * G * U : NULL,
        .before = lstm  ? cells_before(r, n, t)
                  : gru ? state_of(r, n, t) + own.from
                        : NULL,
        .inner = recurrence_halves(r) ? r->reset.inner + n * U
                 : r->hidden          ? r->hidden + at * G * U + (G - 1) * U
                                      : NULL,
        .reset = recurrence_halves(r) ? r->reset.reset + n * H + own.from : NULL,
        .c = lstm ? cells_of(r, n, t) : NULL,
        .h = outputs_of(r, args) + at * H + own.from,
    };
}

static gate_fn *forward_of(const struct recurrence *r)
{
    const struct gate_loops *l = r->loops;
    return r->spec.kind == RECURRENCE_LSTM  ? l->lstm_forward
           : r->spec.kind == RECURRENCE_GRU ? l->gru_forward
           : recurrence_halves(r)           ? l->reset_gates
                                            : l->tanh_forward;
}

/* Of each record the outputs of a step, between (N, T, H) and r->state. */
static void copy_step(const struct recurrence *r, const struct recurrence_args *args, size_t t,
                      bool to_state)
{
    size_t H = r->spec.H;
    for (size_t n = 0; n < r->spec.N; n++) {
        float *row = r->state + n * H, *out = outputs_of(r, args) + recurrence_place(r, n, t) * H;
        memcpy(to_state ? row : out, to_state ? out : row, H * sizeof *row);
    }
}

void recurrence_take_step(struct recurrence *r, const struct recurrence_args *args, size_t t)
{
    copy_step(r, args, t, false);
}

/* W_h, (GU, H), for products of rows of h' by its rows, and of rows of gradients by itself. */
static void pack_there(const struct recurrence *r, const float *w)
{
    size_t H = r->spec.H, width = r->G * r->spec.own.len, strip = r->products->strip;
#pragma omp parallel for schedule(static) num_threads(r->parts)
    for (size_t o = 0; o < width; o += strip)
        r->products->pack_turned(H, min_size(strip, width - o), w + o * H, H, r->there + o * H);
}

void recurrence_multiply(const struct recurrence *r, struct range rows, struct product_a from,
                         size_t K, const float *packed, size_t columns, const float *bias,
                         float *to)
{
    const struct product_a a = {from.at + rows.from * from.row, from.row, from.step};
    float *out = to + rows.from * columns;
    for (size_t o = 0; o < columns; o += r->products->strip)
        r->products->multiply(rows.len, min_size(r->products->strip, columns - o), K, &a,
                              packed + o * K, PRODUCT_SET, bias ? bias + o : NULL, out + o,
                              columns);
}

struct range recurrence_part(const struct recurrence *r, size_t part)
{
    size_t from = r->spec.N * part / r->parts;
    return (struct range){from, r->spec.N * (part + 1) / r->parts - from};
}

static void rows_forward(const struct recurrence *r, const struct recurrence_args *args,
                         struct range rows, size_t t)
{
    gate_fn *units = forward_of(r);
    for (size_t n = rows.from; n < rows.from + rows.len; n++)
        continue_state(r, args, n, t);
    recurrence_multiply(r, rows, state_at(r, t), r->spec.H, r->there, r->G * r->spec.own.len,
                        args->w[RECURRENCE_BH], r->z);
    for (size_t n = rows.from; n < rows.from + rows.len; n++) {
        const struct gate_row row = recurrence_row(r, args, n, t);
        units(&row);
    }
}

static void whole_forward(const struct recurrence *r, const struct recurrence_args *args, size_t t)
{
    size_t N = r->spec.N;
    gate_fn *units = forward_of(r);
#pragma omp parallel for schedule(static) if (N * r->spec.H >= PARALLEL_MIN)
    for (size_t n = 0; n < N; n++)
        continue_state(r, args, n, t);
    const struct op_args product = {
        .x = r->state, .w = args->w[RECURRENCE_WH], .b = args->w[RECURRENCE_BH], .y = r->z};
    r->step_op->ops->forward(r->step_op, &product);
#pragma omp parallel for schedule(static) if (N * r->G * r->spec.own.len >= PARALLEL_MIN)
    for (size_t n = 0; n < N; n++) {
        const struct gate_row row = recurrence_row(r, args, n, t);
        units(&row);
    }
}

/* Steps `from` to `end`; records are independent of one another. */
static void run_forward(const struct recurrence *r, const struct recurrence_args *args, size_t from,
                        size_t end)
{
    for (size_t t = from; !r->products && t < end; t++) {
        whole_forward(r, args, t);
        if (recurrence_halves(r))
            recurrence_reset_forward(r, args, t);
    }
    if (!r->products)
        return;
#pragma omp parallel for schedule(static, 1) num_threads(r->parts)
    for (size_t part = 0; part < r->parts; part++)
        for (size_t t = from; t < end; t++)
            rows_forward(r, args, recurrence_part(r, part), t);
}

void recurrence_half_forward(struct recurrence *r, const struct recurrence_args *args, size_t t)
{
    whole_forward(r, args, t);
}

void recurrence_step_forward(struct recurrence *r, const struct recurrence_args *args, size_t t)
{
    if (recurrence_halves(r))
        recurrence_reset_forward(r, args, t);
    else
        run_forward(r, args, t, t + 1);
    if (recurrence_is_slice(r))
        copy_step(r, args, t, true);
}

struct columns recurrence_columns(const struct recurrence *r, size_t rows)
{
    return (struct columns){rows, r->spec.H, 1, r->spec.own};
}

static void take_first_cells(const struct recurrence *r, const struct recurrence_args *args)
{
    const struct range own = r->spec.own;
    for (size_t n = 0; n < r->spec.N; n++) {
        const float *from = first_of(args, 1, n);
        for (size_t i = 0; i < own.len; i++)
            r->c_first[n * own.len + i] = from ? from[own.from + i] : 0.0f;
    }
}

static void give_last(const struct recurrence *r, const struct recurrence_args *args)
{
    const struct range own = r->spec.own;
    size_t H = r->spec.H, T = r->spec.T;
    for (size_t n = 0; n < args->last_records; n++) {
        if (args->last[0])
            memcpy(args->last[0] + n * args->last_row,
                   outputs_of(r, args) + recurrence_place(r, n, T - 1) * H, H * sizeof(float));
        if (args->last[1])
            memcpy(args->last[1] + n * args->last_row + own.from, cells_of(r, n, T - 1),
                   own.len * sizeof(float));
    }
}

/* In place. */
static void take_tangents(const struct recurrence *r, float *y)
{
    struct gate_row row = {.H = r->spec.own.len, .z = r->z};
    memset(r->z, 0, row.H * sizeof(float));
    for (size_t at = 0; at < r->spec.N * r->spec.T; at++) {
        row.sums = row.h = y + at * row.H;
        r->loops->tanh_forward(&row);
    }
}

void recurrence_begin_forward(struct recurrence *r, const struct recurrence_args *args)
{
    const float *const *w = args->w;
    const struct op_args x = {
        .x = args->x, .w = w[RECURRENCE_WX], .b = w[RECURRENCE_BX], .y = r->gates};
    if (r->rows.op)
        recurrence_rows_forward(r, args);
    else
        r->x_op->ops->forward(r->x_op, &x);
    if (r->fixed_op) {
        const struct op_args fixed = {.x = args->fixed, .w = w[RECURRENCE_WS], .y = r->extra};
        r->fixed_op->ops->forward(r->fixed_op, &fixed);
    }
    if (r->products)
        pack_there(r, w[RECURRENCE_WH]);
    if (r->c)
        take_first_cells(r, args);
}

void recurrence_end_forward(struct recurrence *r, const struct recurrence_args *args)
{
    const struct columns c = recurrence_columns(r, r->spec.N * r->spec.T);
    float *y = r->y ? r->y : args->y;
    give_last(r, args);
    if (!r->out_op)
        return;
    const struct op_args out = {
        .x = r->h, .w = args->w[RECURRENCE_WO], .b = args->w[RECURRENCE_BO], .y = y};
    r->out_op->ops->forward(r->out_op, &out);
    take_tangents(r, y);
    if (r->y)
        columns_put(&c, r->y, args->y);
}

void recurrence_forward(struct recurrence *r, const struct recurrence_args *args)
{
    PL_ASSERT(!recurrence_is_slice(r));
    recurrence_begin_forward(r, args);
    run_forward(r, args, 0, r->spec.T);
    recurrence_end_forward(r, args);
}
