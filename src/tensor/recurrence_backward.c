/* The backward pass of recurrent layers. */
#include "tensor/recurrence_internal.h"

#include "base/fault.h"
#include "base/minmax.h"
#include "tensor/columns.h"
#include "tensor/kernels_common.h"

#include <string.h>

static void pack_back(const struct recurrence *r, const float *w)
{
    size_t H = r->spec.H, width = r->G * r->spec.own.len, strip = r->products->strip;
#pragma omp parallel for schedule(static) num_threads(r->parts)
    for (size_t i = 0; i < H; i += strip)
        r->products->pack(width, min_size(strip, H - i), w + i, H, r->back + i * width);
}

static gate_fn *backward_of(const struct recurrence *r)
{
    const struct gate_loops *l = r->loops;
    return r->spec.kind == RECURRENCE_LSTM  ? l->lstm_backward
           : r->spec.kind == RECURRENCE_GRU ? l->gru_backward
           : recurrence_halves(r)           ? l->reset_backward
                                            : l->tanh_backward;
}

/* The gradient by the state's products is that by the input's, and is read where this lies. */
static bool by_gates(const struct recurrence *r)
{
    return r->products && r->spec.kind == RECURRENCE_LSTM;
}

/* Of a record: r->dh, the gradient by the outputs, becomes that by the products of the step. */
static void row_backward(const struct recurrence *r, const struct recurrence_args *args,
                         const float *dy, size_t n, size_t t)
{
    const struct range own = r->spec.own;
    size_t H = r->spec.H, U = own.len, at = recurrence_place(r, n, t);
    struct gate_row row = recurrence_row(r, args, n, t);
    row.dh = r->dh + n * U;
    row.dc = r->dc ? r->dc + n * U : NULL;
    if (r->hidden)
        row.before = r->before + at * H + own.from;
    row.dy = dy ? dy + at * H + own.from : NULL;
    if (by_gates(r))
        row.z = NULL;
    backward_of(r)(&row);
    if (r->hidden && !recurrence_halves(r))
        memcpy(r->hidden + at * r->G * U, row.z, r->G * U * sizeof(float));
}

static void units_backward(const struct recurrence *r, const struct recurrence_args *args, size_t t)
{
    const float *dy = r->out_op ? r->dh_all : args->dy;
    size_t N = r->spec.N;
#pragma omp parallel for schedule(static) if (N * r->G * r->spec.own.len >= PARALLEL_MIN)
    for (size_t n = 0; n < N; n++)
        row_backward(r, args, dy, n, t);
}

void recurrence_half_backward(struct recurrence *r, const struct recurrence_args *args, size_t t)
{
    units_backward(r, args, t);
    recurrence_reset_backward(r, args);
}

/* r->state becomes the gradient by h' of a step's products. */
static void state_backward(const struct recurrence *r, const struct recurrence_args *args)
{
    const struct op_args product = {
        .x = r->state, .w = args->w[RECURRENCE_WH], .dy = r->z, .dx = r->state};
    r->step_op->ops->backward(r->step_op, &product);
}

/* Behind the half of units that have one. */
static void whole_backward(const struct recurrence *r, const struct recurrence_args *args, size_t t)
{
    if (recurrence_halves(r))
        recurrence_reset_finish(r, args, t);
    else
        units_backward(r, args, t);
    state_backward(r, args);
}

static void rows_backward(const struct recurrence *r, const struct recurrence_args *args,
                          struct range rows, size_t t)
{
    const float *dy = r->out_op ? r->dh_all : args->dy;
    size_t width = r->G * r->spec.own.len, at = recurrence_place(r, 0, t) * width;
    for (size_t n = rows.from; n < rows.from + rows.len; n++)
        row_backward(r, args, dy, n, t);
    const struct product_a d = by_gates(r) ? (struct product_a){r->gates + at, r->spec.T * width, 1}
                                           : (struct product_a){r->z, width, 1};
    recurrence_multiply(r, rows, d, width, r->back, r->spec.H, NULL, r->state);
}

static void finish_rows(const struct recurrence *r, const struct recurrence_args *args,
                        struct range rows, size_t t)
{
    const struct range own = r->spec.own;
    for (size_t n = rows.from; n < rows.from + rows.len; n++) {
        const float *state = r->state + n * r->spec.H + own.from;
        float cont = recurrence_cont(r, args, n, t), *dh = r->dh + n * own.len;
        for (size_t i = 0; i < own.len; i++)
            dh[i] = cont * (dh[i] + state[i]);
    }
}

void recurrence_step_backward(struct recurrence *r, const struct recurrence_args *args, size_t t)
{
    if (!r->products) {
        whole_backward(r, args, t);
        return;
    }
#pragma omp parallel for schedule(static, 1) num_threads(r->parts)
    for (size_t part = 0; part < r->parts; part++)
        rows_backward(r, args, recurrence_part(r, part), t);
}

void recurrence_finish_step(struct recurrence *r, const struct recurrence_args *args, size_t t)
{
    finish_rows(r, args, (struct range){0, r->spec.N}, t);
}

static void run_backward(struct recurrence *r, const struct recurrence_args *args)
{
    for (size_t t = r->spec.T; !r->products && t-- > 0;) {
        if (recurrence_halves(r))
            recurrence_half_backward(r, args, t);
        whole_backward(r, args, t);
        recurrence_finish_step(r, args, t);
    }
    if (!r->products)
        return;
#pragma omp parallel for schedule(static, 1) num_threads(r->parts)
    for (size_t part = 0; part < r->parts; part++)
        for (size_t t = r->spec.T; t-- > 0;) {
            rows_backward(r, args, recurrence_part(r, part), t);
            finish_rows(r, args, recurrence_part(r, part), t);
        }
}

/* Through the output of tanh units: the gradient by y's products, then that by h, which may lie in
 * the room of the gates until a step needs it. */
static void out_backward(struct recurrence *r, const struct recurrence_args *args)
{
    const struct range own = r->spec.own;
    size_t H = r->spec.H, U = own.len;
    for (size_t at = 0; at < r->spec.N * r->spec.T; at++)
        for (size_t i = 0; i < U; i++) {
            size_t from = at * H + own.from + i;
            float y = args->y[from];
            r->dout[at * U + i] = args->dy ? args->dy[from] * (1.0f - y * y) : 0.0f;
        }
    const struct op_args out = {
        .x = r->h,
        .w = args->w[RECURRENCE_WO],
        .dy = r->dout,
        .dx = r->dh_all,
        .dw = args->dw[RECURRENCE_WO],
        .db = args->dw[RECURRENCE_BO],
    };
    r->out_op->ops->backward(r->out_op, &out);
}

/* Σ over the steps of the gradient by their input's products. */
static void sum_steps(const struct recurrence *r)
{
    size_t T = r->spec.T, width = r->G * r->spec.own.len;
    for (size_t n = 0; n < r->spec.N; n++) {
        memset(r->extra + n * width, 0, width * sizeof(float));
        column_sums_add(T, width, r->gates + n * T * width, r->extra + n * width);
    }
}

/* Of the state, and of the static input, whose own gradient comes along. */
static void add_state_weights(struct recurrence *r, const struct recurrence_args *args)
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
    if (recurrence_halves(r))
        recurrence_reset_weights(r, args);
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
}

/* The gradients of the inputs, of their weights, or of both. */
static void end_inputs(struct recurrence *r, const struct recurrence_args *args)
{
    const struct op_args x = {
        .x = args->x,
        .w = args->w[RECURRENCE_WX],
        .dy = r->gates,
        .dx = args->dx,
        .dw = args->dw[RECURRENCE_WX],
        .db = args->dw[RECURRENCE_BX],
    };
    if (r->rows.op)
        recurrence_rows_backward(r, args);
    else
        r->x_op->ops->backward(r->x_op, &x);
}

static void begin_slope(const struct recurrence *r, const float *given, float *to)
{
    const struct columns own = recurrence_columns(r, r->spec.N);
    if (given)
        columns_get(&own, given, to);
    else
        memset(to, 0, columns_floats(&own) * sizeof *to);
}

void recurrence_begin_backward(struct recurrence *r, const struct recurrence_args *args)
{
    if (r->products)
        pack_back(r, args->w[RECURRENCE_WH]);
    if (r->out_op)
        out_backward(r, args);
    begin_slope(r, args->dlast[0], r->dh);
    if (r->dc)
        begin_slope(r, args->dlast[1], r->dc);
}

void recurrence_end_backward(struct recurrence *r, const struct recurrence_args *args)
{
    const struct columns own = recurrence_columns(r, r->spec.N);
    if (args->dfirst[0])
        columns_put(&own, r->dh, args->dfirst[0]);
    if (args->dfirst[1])
        columns_put(&own, r->dc, args->dfirst[1]);
    if (args->dw[RECURRENCE_WX])
        add_state_weights(r, args);
    end_inputs(r, args);
}

void recurrence_backward(struct recurrence *r, const struct recurrence_args *args)
{
    PL_ASSERT(!recurrence_is_slice(r));
    recurrence_begin_backward(r, args);
    run_backward(r, args);
    recurrence_end_backward(r, args);
}
