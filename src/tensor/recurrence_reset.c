/* GRUs whose reset gate multiplies the state before the product with the weights of gate n: a step
 * has two products, of h' and of r h'. */
#include "tensor/recurrence_internal.h"

#include "tensor/kernels_common.h"

#include <string.h>

/* Before gate n's rows, and its biases, in the parameters of all gates. */
static size_t rows_before(const struct recurrence *r)
{
    return r->Z * r->spec.own.len;
}

static struct op_args product_of(const struct recurrence *r, const struct recurrence_args *args)
{
    size_t from = rows_before(r);
    return (struct op_args){
        .w = args->w[RECURRENCE_WH] + from * r->spec.H,
        .b = args->w[RECURRENCE_BH] + from,
    };
}

void recurrence_reset_forward(const struct recurrence *r, const struct recurrence_args *args,
                              size_t t)
{
    const struct recurrence_reset *reset = &r->reset;
    size_t N = r->spec.N, H = r->spec.H;
    struct op_args product = product_of(r, args);
    product.x = reset->reset;
    product.y = reset->inner;
    reset->step_op->ops->forward(reset->step_op, &product);
#pragma omp parallel for schedule(static) if (N * r->G * r->spec.own.len >= PARALLEL_MIN)
    for (size_t n = 0; n < N; n++) {
        const struct gate_row row = recurrence_row(r, args, n, t);
        r->loops->reset_forward(&row);
        if (reset->resets)
            memcpy(reset->resets + recurrence_place(r, n, t) * H, reset->reset + n * H,
                   H * sizeof(float));
    }
}

void recurrence_reset_backward(const struct recurrence *r, const struct recurrence_args *args)
{
    const struct recurrence_reset *reset = &r->reset;
    struct op_args product = product_of(r, args);
    product.x = product.dx = reset->reset;
    product.dy = reset->inner;
    reset->step_op->ops->backward(reset->step_op, &product);
}

void recurrence_reset_finish(const struct recurrence *r, const struct recurrence_args *args,
                             size_t t)
{
    const struct recurrence_reset *reset = &r->reset;
    size_t N = r->spec.N, H = r->spec.H, U = r->spec.own.len;
#pragma omp parallel for schedule(static) if (N * r->G * U >= PARALLEL_MIN)
    for (size_t n = 0; n < N; n++) {
        size_t at = recurrence_place(r, n, t);
        struct gate_row row = recurrence_row(r, args, n, t);
        row.before = r->before + at * H + r->spec.own.from;
        row.dh = r->dh + n * U;
        r->loops->reset_finish(&row);
        memcpy(r->hidden + at * r->Z * U, row.z, r->Z * U * sizeof(float));
        memcpy(reset->inners + at * U, row.inner, U * sizeof(float));
    }
}

void recurrence_reset_weights(const struct recurrence *r, const struct recurrence_args *args)
{
    const struct recurrence_reset *reset = &r->reset;
    size_t from = rows_before(r);
    struct op_args state = product_of(r, args);
    state.x = reset->resets;
    state.dy = reset->inners;
    state.dw = args->dw[RECURRENCE_WH] + from * r->spec.H;
    state.db = args->dw[RECURRENCE_BH] + from;
    reset->state_op->ops->backward(reset->state_op, &state);
}
