/* Inner product by oneDNN's matrix product. It reads canonical weights where they lie, which at
 * these sizes is worth more than a form of oneDNN's own choosing: reordering the weights and their
 * gradient would move several times what x and y hold. */
#include "tensor/kernels_dnnl.h"

#include "base/fault.h"
#include "tensor/kernels_common.h"
#include "tensor/kernels_onednn.h"
#include "tensor/slices.h"

#include <omp.h>

enum { ROWS_FLOATS = 32 * 1024 };

struct inner_op {
    struct op op;
    struct inner_spec spec;
    size_t N, I, O;
    float *x, *dx; /* (N, I) in NCHW order; NULL when the caller's own are */
    size_t rows;   /* of dw, at most, that are summed at once */
    int threads;
    struct slices *sums; /* one for each thread */
};

/* c (M, N) = a · b, row-major, rows of a and b being lda and ldb apart; 'T' for a matrix that is
 * stored transposed. */
static void product(char trans_a, char trans_b, size_t M, size_t N, size_t K, const float *a,
                    size_t lda, const float *b, size_t ldb, float *c)
{
    dnnl_status_t status =
        dnnl_sgemm(trans_a, trans_b, (dnnl_dim_t)M, (dnnl_dim_t)N, (dnnl_dim_t)K, 1, a,
                   (dnnl_dim_t)lda, b, (dnnl_dim_t)ldb, 0, c, (dnnl_dim_t)N);
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
    product('N', 'T', N, O, inner->I, x, inner->I, args->w, inner->I, y);
    for (size_t n = 0; inner->spec.bias && n < N; n++)
        for (size_t o = 0; o < O; o++)
            y[n * O + o] += args->b[o];
}

/* Some outputs' rows of dw, few enough for the sums of their slices to stay in a core's cache. */
struct inner_rows {
    const struct inner_op *inner;
    const float *x, *dy;
    size_t o, n;
};

/* dw of the rows, then their db. */
static void sum_records(void *user, size_t first, size_t count, float *sum)
{
    const struct inner_rows *rows = user;
    size_t I = rows->inner->I, O = rows->inner->O;
    const float *dy = rows->dy + first * O + rows->o;
    float *db = sum + rows->n * I;
    product('T', 'N', rows->n, I, count, dy, O, rows->x + first * I, I, sum);
    for (size_t o = 0; o < rows->n; o++)
        db[o] = 0;
    for (size_t k = 0; k < count; k++)
        for (size_t o = 0; o < rows->n; o++)
            db[o] += dy[k * O + o];
}

static void add_weights(struct inner_op *inner, const struct op_args *args)
{
    size_t I = inner->I, O = inner->O, step = inner->rows;
    const float *x = inner->x ? inner->x : args->x;
#pragma omp parallel for schedule(static) num_threads(inner->threads) if (O > step)
    for (size_t o = 0; o < O; o += step) {
        struct inner_rows rows = {inner, x, args->dy, o, step < O - o ? step : O - o};
        const float *sum = slices_sum(&inner->sums[omp_get_thread_num()], sum_records, &rows);
        add_floats(rows.n * I, sum, args->dw + o * I);
        if (inner->spec.bias)
            add_floats(rows.n, sum + rows.n * I, args->db + o);
    }
}

static void inner_backward(struct op *op, const struct op_args *args)
{
    struct inner_op *inner = (struct inner_op *)op;
    size_t N = inner->N, I = inner->I, O = inner->O;
    add_weights(inner, args);
    if (!args->dx)
        return;
    float *dx = inner->dx ? inner->dx : args->dx;
    product('N', 'N', N, I, O, args->dy, O, args->w, I, dx);
    if (inner->dx)
        kernels_reorder(&inner->spec.x, LAYOUT_PLAIN, dx, LAYOUT_NHWC, args->dx);
}

static const struct op_ops inner_training = {inner_forward, inner_backward, NULL};
static const struct op_ops inner_inference = {inner_forward, NULL, NULL};

static int plan_sums(struct inner_op *inner, struct arena *arena)
{
    size_t O = inner->O, rows = ROWS_FLOATS / inner->I + 1;
    inner->rows = rows < O ? rows : O;
    inner->threads = O > rows ? omp_get_max_threads() : 1;
    inner->sums = arena_array(arena, (size_t)inner->threads, struct slices);
    if (!inner->sums)
        return ERR_NOMEM;
    for (int i = 0; i < inner->threads; i++) {
        size_t bytes;
        int result =
            slices_init(&inner->sums[i], arena, inner->N, inner->rows * (inner->I + 1), &bytes);
        if (result)
            return result;
        inner->op.scratch_bytes += bytes;
    }
    return OK;
}

int dnnl_set_inner(const struct inner_spec *spec, enum layout x_layout, bool training,
                   struct arena *arena, struct op **op, struct err *err)
{
    inner_check(spec, x_layout);
    onednn_limit_isa();
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
    if (training && plan_sums(inner, arena) != OK)
        return plan_nomem("inner product", err);
    *op = &inner->op;
    return OK;
}
