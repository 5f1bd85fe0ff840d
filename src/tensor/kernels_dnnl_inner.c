/* Inner product by oneDNN's matrix product. It reads and adds to canonical weights where they lie,
 * which at these sizes is worth more than a form of oneDNN's own choosing: reordering the weights
 * and their gradient would move several times what x and y hold. */
#include "tensor/kernels_dnnl.h"

#include "base/fault.h"
#include "tensor/kernels_common.h"

#include <oneapi/dnnl/dnnl.h>

struct inner_op {
    struct op op;
    struct inner_spec spec;
    size_t N, I, O;
    float *x, *dx; /* (N, I) in NCHW order; NULL when the caller's own are */
};

/* c (M, N) = a · b + beta · c, row-major; 'T' for a matrix that is stored transposed. */
static void product(char trans_a, char trans_b, size_t M, size_t N, size_t K, const float *a,
                    const float *b, float beta, float *c)
{
    dnnl_dim_t m = (dnnl_dim_t)M, n = (dnnl_dim_t)N, k = (dnnl_dim_t)K;
    dnnl_status_t status = dnnl_sgemm(trans_a, trans_b, m, n, k, 1, a, trans_a == 'T' ? m : k, b,
                                      trans_b == 'T' ? k : n, beta, c, n);
    PL_ASSERT(status == dnnl_success);
}

static void inner_forward(struct op *op, const struct op_args *args)
{
    const struct inner_op *inner = (const struct inner_op *)op;
    size_t N = inner->N, O = inner->O;
    const float *x = args->x;
    float *y = args->y;
    if (inner->x) {
        kernels_reorder(&inner->spec.x, LAYOUT_NHWC, x, LAYOUT_PLAIN, inner->x);
        x = inner->x;
    }
    product('N', 'T', N, O, inner->I, x, args->w, 0, y);
    for (size_t n = 0; inner->spec.bias && n < N; n++)
        for (size_t o = 0; o < O; o++)
            y[n * O + o] += args->b[o];
}

static void inner_backward(struct op *op, const struct op_args *args)
{
    const struct inner_op *inner = (const struct inner_op *)op;
    size_t N = inner->N, I = inner->I, O = inner->O;
    product('T', 'N', O, I, N, args->dy, inner->x ? inner->x : args->x, 1, args->dw);
    if (inner->spec.bias)
        column_sums_add(N, O, args->dy, args->db);
    if (!args->dx)
        return;
    float *dx = inner->dx ? inner->dx : args->dx;
    product('N', 'N', N, I, O, args->dy, args->w, 0, dx);
    if (inner->dx)
        kernels_reorder(&inner->spec.x, LAYOUT_PLAIN, dx, LAYOUT_NHWC, args->dx);
}

static const struct op_ops inner_training = {inner_forward, inner_backward, NULL};
static const struct op_ops inner_inference = {inner_forward, NULL, NULL};

int dnnl_set_inner(const struct inner_spec *spec, enum layout x_layout, bool training,
                   struct arena *arena, struct op **op, struct err *err)
{
    inner_check(spec, x_layout);
    struct inner_op *inner = arena_new(arena, struct inner_op);
    if (!inner)
        return plan_nomem("inner product", err);
    *inner = (struct inner_op){
        .op = {.ops = training ? &inner_training : &inner_inference, .x_layout = x_layout},
        .spec = *spec,
        .N = spec->x.dim[0],
        .I = shape_count_from(&spec->x, 1),
        .O = spec->y.dim[1],
    };
    size_t count = inner->N * inner->I;
    if (inner_needs_reorder(spec, x_layout)) {
        inner->x = arena_array(arena, count, float);
        inner->dx = training ? arena_array(arena, count, float) : NULL;
        if (!inner->x || (training && !inner->dx))
            return plan_nomem("inner product", err);
        inner->op.scratch_bytes = count * sizeof(float) * (training ? 2 : 1);
    }
    *op = &inner->op;
    return OK;
}
