/* Inner product in plain C, and the reference set as a whole.
 *
 * The other sets are compared with this one, and simulations compute with it. Threads divide the
 * rows of a result and never one sum, and vector lanes are part of the order in which a sum is
 * taken: the bits are the same for any thread count and on any machine. */
#include "tensor/kernels_ref.h"

#include "tensor/kernels_common.h"
#include "tensor/parallel.h"
#include "tensor/slices.h"

#include <string.h>

/* Products below this many multiplications stay on one thread. */
enum { PARALLEL_WORK_MIN = 64 * 1024, LANES = 4 };

/* Written out, so that a sanitizer checks one access where it would check four. */
typedef float lanes
    __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

static const lanes *lanes_at(const float *x)
{
    return (const lanes *)x;
}

static lanes lanes_product(const float *a, const float *b)
{
    return *lanes_at(a) * *lanes_at(b);
}

static float dot_product(size_t n, const float *restrict a, const float *restrict b)
{
    lanes s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    float sum = 0;
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        s0 += lanes_product(a + i, b + i);
        s1 += lanes_product(a + i + LANES, b + i + LANES);
        s2 += lanes_product(a + i + 2 * LANES, b + i + 2 * LANES);
        s3 += lanes_product(a + i + 3 * LANES, b + i + 3 * LANES);
    }
    for (; i < n; i++)
        sum += a[i] * b[i];
    s0 = (s0 + s2) + (s1 + s3);
    return sum + ((s0[0] + s0[2]) + (s0[1] + s0[3]));
}

void ref_add_product_of_rows(size_t M, size_t K, size_t P, const float *a, const float *b, float *y)
{
    PARALLEL_EACH(m, 0, M, 1, M * K * P >= PARALLEL_WORK_MIN, {
        for (size_t p = 0; p < P; p++)
            y[m * P + p] += dot_product(K, a + m * K, b + p * K);
    });
}

/* y (P) += a[0], a[step], ... (K of them) · b (K, P), four rows of b at a time. */
static void add_weighted_rows(size_t K, size_t P, const float *restrict a, size_t step,
                              const float *restrict b, float *restrict y)
{
    size_t k = 0;
    for (; k + 4 <= K; k += 4, b += 4 * P) {
        float a0 = a[k * step], a1 = a[(k + 1) * step];
        float a2 = a[(k + 2) * step], a3 = a[(k + 3) * step];
        size_t p = 0;
        for (; p + LANES <= P; p += LANES)
            *(lanes *)(y + p) += (a0 * *lanes_at(b + p) + a1 * *lanes_at(b + P + p)) +
                                 (a2 * *lanes_at(b + 2 * P + p) + a3 * *lanes_at(b + 3 * P + p));
        for (; p < P; p++)
            y[p] += (a0 * b[p] + a1 * b[P + p]) + (a2 * b[2 * P + p] + a3 * b[3 * P + p]);
    }
    for (; k < K; k++, b += P)
        for (size_t p = 0; p < P; p++)
            y[p] += a[k * step] * b[p];
}

void ref_add_product(size_t M, size_t K, size_t P, const float *a, size_t row, size_t step,
                     const float *b, float *y)
{
    PARALLEL_EACH(m, 0, M, 1, M * K * P >= PARALLEL_WORK_MIN,
                  add_weighted_rows(K, P, a + m * row, step, b, y + m * P));
}

/* y (N, O) = b in every row; zeros without b. */
static void fill_rows(size_t N, size_t O, const float *b, float *y)
{
    for (size_t n = 0; n < N; n++)
        for (size_t o = 0; o < O; o++)
            y[n * O + o] = b ? b[o] : 0;
}

/* Inner product. Channels-last images are put in NCHW order first and dx back at the end. */
struct inner_op {
    struct op op;
    struct inner_spec spec;
    size_t N, I, O;
    float *x, *dx;      /* (N, I) in NCHW order; NULL when the caller's own are */
    struct slices sums; /* of dw, then db, over the records */
};

static void inner_forward(struct op *op, const struct op_args *args)
{
    const struct inner_op *inner = (const struct inner_op *)op;
    const float *x = args->x;
    if (inner->x) {
        kernels_reorder(&inner->spec.x, inner->op.x_layout, x, LAYOUT_PLAIN, inner->x);
        x = inner->x;
    }
    fill_rows(inner->N, inner->O, inner->spec.bias ? args->b : NULL, args->y);
    ref_add_product_of_rows(inner->N, inner->I, inner->O, x, args->w, args->y);
}

struct inner_pass {
    const struct inner_op *inner;
    const float *x, *dy;
};

static void sum_records(void *user, size_t first, size_t count, float *sum)
{
    const struct inner_pass *pass = user;
    size_t I = pass->inner->I, O = pass->inner->O;
    const float *dy = pass->dy + first * O;
    memset(sum, 0, O * (I + 1) * sizeof *sum);
    ref_add_product(O, count, I, dy, 1, O, pass->x + first * I, sum);
    column_sums_add(count, O, dy, sum + O * I);
}

static void add_weights(struct inner_op *inner, const struct op_args *args)
{
    size_t I = inner->I, O = inner->O;
    struct inner_pass pass = {inner, inner->x ? inner->x : args->x, args->dy};
    const float *sum = slices_sum(&inner->sums, sum_records, &pass);
    add_floats(O * I, sum, args->dw);
    if (inner->spec.bias)
        add_floats(O, sum + O * I, args->db);
}

static void inner_backward(struct op *op, const struct op_args *args)
{
    struct inner_op *inner = (struct inner_op *)op;
    size_t N = inner->N, I = inner->I, O = inner->O;
    if (args->dw)
        add_weights(inner, args);
    if (!args->dx)
        return;
    float *dx = inner->dx ? inner->dx : args->dx;
    memset(dx, 0, N * I * sizeof *dx);
    ref_add_product(N, O, I, args->dy, O, 1, args->w, dx);
    if (inner->dx)
        kernels_reorder(&inner->spec.x, LAYOUT_PLAIN, dx, inner->op.x_layout, args->dx);
}

static const struct op_ops inner_training = {inner_forward, inner_backward, NULL};
static const struct op_ops inner_inference = {inner_forward, NULL, NULL};

static int plan_inner(const struct inner_spec *spec, enum layout x_layout, bool training,
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
        inner->op.forward.images = inner->op.backward.images = 1;
        inner->x = arena_array(arena, count, float);
        inner->dx = training ? arena_array(arena, count, float) : NULL;
        if (!inner->x || (training && !inner->dx))
            return plan_nomem("inner product", err);
        inner->op.scratch_bytes = count * sizeof(float) * (training ? 2 : 1);
    }
    size_t sums = 0;
    if (training &&
        slices_init(&inner->sums, arena, inner->N, inner->O * (inner->I + 1), &sums) != OK)
        return plan_nomem("inner product", err);
    inner->op.scratch_bytes += sums;
    *op = &inner->op;
    return OK;
}

const struct kernels kernels_ref = {
    .name = "ref",
    .image_layout = LAYOUT_PLAIN,
    .conv = ref_plan_conv,
    .deconv = ref_plan_deconv,
    .pool = ref_plan_pool,
    .lrn = ref_plan_lrn,
    .inner = plan_inner,
    .relu = plan_relu,
    .sigmoid = ref_plan_sigmoid,
    .scale = plan_scale,
    .softmax = ref_plan_softmax,
    .recurrence = ref_plan_recurrence,
};
