/* In plain C: the sigmoid, y = 1 / (1 + e^-x), dx = dy · y · (1 - y); and the softmax of rows. */
#include "tensor/kernels_ref.h"

#include "tensor/kernels_common.h"
#include "tensor/softmax_loops.h"

#include <math.h>

struct sigmoid_op {
    struct op op;
    size_t n;
};

/* libm's exp differs between CPUs in its last bit; rounded to float it is the same. Where it
 * overflows, y is correctly 0. */
static void sigmoid_forward(struct op *op, const struct op_args *args)
{
    size_t n = ((const struct sigmoid_op *)op)->n;
    const float *x = args->x;
    float *y = args->y;
#pragma omp parallel for schedule(static) if (n >= PARALLEL_MIN)
    for (size_t i = 0; i < n; i++)
        y[i] = (float)(1.0 / (1.0 + exp(-(double)x[i])));
}

static void sigmoid_backward(struct op *op, const struct op_args *args)
{
    size_t n = ((const struct sigmoid_op *)op)->n;
    const float *y = args->y, *dy = args->dy;
    float *dx = args->dx;
    if (!dx)
        return;
#pragma omp parallel for simd schedule(static) if (n >= PARALLEL_MIN)
    for (size_t i = 0; i < n; i++)
        dx[i] = dy[i] * (y[i] * (1 - y[i]));
}

static const struct op_ops sigmoid_training = {sigmoid_forward, sigmoid_backward, NULL};
static const struct op_ops sigmoid_inference = {sigmoid_forward, NULL, NULL};

int ref_plan_sigmoid(const struct shape *x, enum layout layout, bool training, struct arena *arena,
                     struct op **op, struct err *err)
{
    struct sigmoid_op *sigmoid = arena_new(arena, struct sigmoid_op);
    if (!sigmoid)
        return plan_nomem("sigmoid", err);
    *sigmoid = (struct sigmoid_op){
        .op = {.ops = training ? &sigmoid_training : &sigmoid_inference,
               .x_layout = layout,
               .y_layout = layout,
               .in_place = true},
        .n = shape_count(x),
    };
    *op = &sigmoid->op;
    return OK;
}

static void softmax_row(size_t C, const float *x, float *y)
{
    /* The largest becomes e^0: nothing overflows, and the sum is at least 1. libm's exp differs
     * between CPUs in its last bit; rounded to float it is the same. */
    float max = x[0], sum = 0;
    for (size_t c = 1; c < C; c++)
        max = x[c] > max ? x[c] : max;
    for (size_t c = 0; c < C; c++) {
        y[c] = (float)exp((double)(x[c] - max));
        sum += y[c];
    }
    for (size_t c = 0; c < C; c++)
        y[c] /= sum;
}

int ref_plan_softmax(const struct shape *x, struct arena *arena, struct op **op, struct err *err)
{
    static const struct softmax_loops loops = {softmax_row};
    return plan_softmax(x, &loops, arena, op, err);
}
