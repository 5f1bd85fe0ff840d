/* Convolution and inner product in plain C, and the reference set as a whole.
 *
 * This set is what the others are held against, and what simulations compute with. Threads share
 * out rows of a result and never one sum, and vector lanes are part of the order in which a sum is
 * taken: the bits are the same for any thread count and on any machine. */
#include "tensor/kernels_ref.h"

#include "base/fault.h"
#include "tensor/kernels_common.h"
#include "tensor/slices.h"

#include <string.h>

/* Products below this many multiplications stay on one thread. */
enum { PARALLEL_WORK_MIN = 64 * 1024, LANES = 16 };

static float dot(size_t n, const float *restrict a, const float *restrict b)
{
    float lane[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lane[l] += a[i + l] * b[i + l];
    for (; i < n; i++)
        sum += a[i] * b[i];
    for (size_t width = LANES / 2; width; width /= 2)
        for (size_t l = 0; l < width; l++)
            lane[l] += lane[l + width];
    return sum + lane[0];
}

/* y (M, P) += a (M, K) · bᵀ, b being (P, K). */
static void add_product_of_rows(size_t M, size_t K, size_t P, const float *a, const float *b,
                                float *y)
{
#pragma omp parallel for schedule(static) if (M * K * P >= PARALLEL_WORK_MIN)
    for (size_t m = 0; m < M; m++)
        for (size_t p = 0; p < P; p++)
            y[m * P + p] += dot(K, a + m * K, b + p * K);
}

/* y (P) += a[0], a[step], ... (K of them) · b (K, P), four rows of b at a time. */
static void add_weighted_rows(size_t K, size_t P, const float *restrict a, size_t step,
                              const float *restrict b, float *restrict y)
{
    size_t k = 0;
    for (; k + 4 <= K; k += 4, b += 4 * P) {
        float a0 = a[k * step], a1 = a[(k + 1) * step];
        float a2 = a[(k + 2) * step], a3 = a[(k + 3) * step];
        for (size_t p = 0; p < P; p++)
            y[p] += (a0 * b[p] + a1 * b[P + p]) + (a2 * b[2 * P + p] + a3 * b[3 * P + p]);
    }
    for (; k < K; k++, b += P)
        for (size_t p = 0; p < P; p++)
            y[p] += a[k * step] * b[p];
}

/* y (M, P) += a (M, K) · b (K, P); a[m][k] stands at a + m * row + k * step. */
static void add_product(size_t M, size_t K, size_t P, const float *a, size_t row, size_t step,
                        const float *b, float *y)
{
#pragma omp parallel for schedule(static) if (M * K * P >= PARALLEL_WORK_MIN)
    for (size_t m = 0; m < M; m++)
        add_weighted_rows(K, P, a + m * row, step, b, y + m * P);
}

/* y (N, O) = b in every row; zeros without b. */
static void fill_rows(size_t N, size_t O, const float *b, float *y)
{
    for (size_t n = 0; n < N; n++)
        for (size_t o = 0; o < O; o++)
            y[n * O + o] = b ? b[o] : 0;
}

/* Convolution: each image is spread into a matrix whose row (c, kh, kw) holds what that tap of the
 * kernel meets at every output pixel; three products of matrices do the rest. */
struct conv_op {
    struct op op;
    struct conv_spec spec;
    struct image x, y;
    size_t K, P;        /* taps C·KH·KW; output pixels OH·OW */
    float *taps;        /* (K, P) of one image */
    struct slices sums; /* of dw, then db, over the images */
};

/* The output columns whose tap kw falls inside the image: *first..*end. */
static void tap_range(size_t k, size_t stride, size_t pad, size_t x, size_t y, size_t *first,
                      size_t *end)
{
    *first = pad > k ? (pad - k + stride - 1) / stride : 0;
    *end = x + pad > k ? (x + pad - k + stride - 1) / stride : 0;
    *end = *end < y ? *end : y;
    *first = *first < *end ? *first : *end;
}

static void spread_tap(const struct conv_op *conv, size_t k, const float *x, float *tap)
{
    const struct conv_spec *s = &conv->spec;
    size_t kw = k % s->kernel_w, kh = k / s->kernel_w % s->kernel_h;
    size_t c = k / s->kernel_w / s->kernel_h, OW = conv->y.W;
    size_t h0, h1, w0, w1;
    tap_range(kh, s->stride_h, s->pad_h, conv->x.H, conv->y.H, &h0, &h1);
    tap_range(kw, s->stride_w, s->pad_w, conv->x.W, conv->y.W, &w0, &w1);
    memset(tap, 0, conv->P * sizeof *tap);
    for (size_t oh = h0; oh < h1; oh++) {
        size_t h = oh * s->stride_h + kh - s->pad_h;
        const float *row = x + (c * conv->x.H + h) * conv->x.W;
        for (size_t ow = w0; ow < w1; ow++)
            tap[oh * OW + ow] = row[ow * s->stride_w + kw - s->pad_w];
    }
}

/* The way back: every output pixel's share is added to the pixel it came from. */
static void gather_tap(const struct conv_op *conv, size_t k, const float *tap, float *dx)
{
    const struct conv_spec *s = &conv->spec;
    size_t kw = k % s->kernel_w, kh = k / s->kernel_w % s->kernel_h;
    size_t c = k / s->kernel_w / s->kernel_h, OW = conv->y.W;
    size_t h0, h1, w0, w1;
    tap_range(kh, s->stride_h, s->pad_h, conv->x.H, conv->y.H, &h0, &h1);
    tap_range(kw, s->stride_w, s->pad_w, conv->x.W, conv->y.W, &w0, &w1);
    for (size_t oh = h0; oh < h1; oh++) {
        size_t h = oh * s->stride_h + kh - s->pad_h;
        float *row = dx + (c * conv->x.H + h) * conv->x.W;
        for (size_t ow = w0; ow < w1; ow++)
            row[ow * s->stride_w + kw - s->pad_w] += tap[oh * OW + ow];
    }
}

static void spread(const struct conv_op *conv, const float *x)
{
    size_t K = conv->K, P = conv->P;
#pragma omp parallel for schedule(static) if (K * P >= PARALLEL_MIN)
    for (size_t k = 0; k < K; k++)
        spread_tap(conv, k, x, conv->taps + k * P);
}

static void gather(const struct conv_op *conv, float *dx)
{
    size_t K = conv->K, P = conv->P, C = conv->x.C, taps = K / C;
    memset(dx, 0, C * conv->x.H * conv->x.W * sizeof *dx);
#pragma omp parallel for schedule(static) if (K * P >= PARALLEL_MIN)
    for (size_t c = 0; c < C; c++)
        for (size_t k = c * taps; k < (c + 1) * taps; k++)
            gather_tap(conv, k, conv->taps + k * P, dx);
}

static void conv_forward(struct op *op, const struct op_args *args)
{
    const struct conv_op *conv = (const struct conv_op *)op;
    size_t K = conv->K, P = conv->P, O = conv->y.C;
    size_t x_size = conv->x.C * conv->x.H * conv->x.W;
    for (size_t n = 0; n < conv->x.N; n++) {
        float *y = args->y + n * O * P;
        spread(conv, args->x + n * x_size);
        for (size_t i = 0; i < O * P; i++)
            y[i] = conv->spec.bias ? args->b[i / P] : 0;
        add_product(O, K, P, args->w, K, 1, conv->taps, y);
    }
}

struct conv_pass {
    const struct conv_op *conv;
    const struct op_args *args;
};

/* dw and db of some images, and on the way their dx, from which nothing is summed. */
static void sum_images(void *user, size_t first, size_t count, float *sum)
{
    const struct conv_pass *pass = user;
    const struct conv_op *conv = pass->conv;
    const struct op_args *args = pass->args;
    size_t K = conv->K, P = conv->P, O = conv->y.C;
    size_t x_size = conv->x.C * conv->x.H * conv->x.W;
    float *db = sum + O * K;
    memset(sum, 0, O * (K + 1) * sizeof *sum);
    for (size_t n = first; n < first + count; n++) {
        const float *dy = args->dy + n * O * P;
        spread(conv, args->x + n * x_size);
        add_product_of_rows(O, P, K, dy, conv->taps, sum);
        for (size_t i = 0; i < O * P; i++)
            db[i / P] += dy[i];
        if (args->dx) {
            memset(conv->taps, 0, K * P * sizeof(float));
            add_product(K, O, P, args->w, 1, K, dy, conv->taps);
            gather(conv, args->dx + n * x_size);
        }
    }
}

static void conv_backward(struct op *op, const struct op_args *args)
{
    struct conv_op *conv = (struct conv_op *)op;
    struct conv_pass pass = {conv, args};
    const float *sum = slices_sum(&conv->sums, sum_images, &pass);
    add_floats(conv->y.C * conv->K, sum, args->dw);
    if (conv->spec.bias)
        add_floats(conv->y.C, sum + conv->y.C * conv->K, args->db);
}

static const struct op_ops conv_training = {conv_forward, conv_backward, NULL};
static const struct op_ops conv_inference = {conv_forward, NULL, NULL};

static int plan_conv(const struct conv_spec *spec, bool training, struct arena *arena,
                     struct op **op, struct err *err)
{
    struct image x = image_of(&spec->x), y = image_of(&spec->y);
    conv_check(spec);
    struct conv_op *conv = arena_new(arena, struct conv_op);
    if (!conv)
        return plan_nomem("convolution", err);
    size_t K = x.C * spec->kernel_h * spec->kernel_w, P = y.H * y.W, bytes;
    float *taps = NULL;
    if (!__builtin_mul_overflow(K, P * sizeof(float), &bytes))
        taps = arena_alloc(arena, 1, bytes);
    if (!taps)
        return plan_nomem("convolution", err);
    *conv = (struct conv_op){
        .op = {.ops = training ? &conv_training : &conv_inference, .scratch_bytes = bytes},
        .spec = *spec,
        .x = x,
        .y = y,
        .K = K,
        .P = P,
        .taps = taps,
    };
    size_t sums = 0;
    if (training && slices_init(&conv->sums, arena, x.N, y.C * (K + 1), &sums) != OK)
        return plan_nomem("convolution", err);
    conv->op.scratch_bytes += sums;
    *op = &conv->op;
    return OK;
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
        kernels_reorder(&inner->spec.x, LAYOUT_NHWC, x, LAYOUT_PLAIN, inner->x);
        x = inner->x;
    }
    fill_rows(inner->N, inner->O, inner->spec.bias ? args->b : NULL, args->y);
    add_product_of_rows(inner->N, inner->I, inner->O, x, args->w, args->y);
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
    add_product(O, count, I, dy, 1, O, pass->x + first * I, sum);
    column_sums_add(count, O, dy, sum + O * I);
}

static void inner_backward(struct op *op, const struct op_args *args)
{
    struct inner_op *inner = (struct inner_op *)op;
    size_t N = inner->N, I = inner->I, O = inner->O;
    struct inner_pass pass = {inner, inner->x ? inner->x : args->x, args->dy};
    const float *sum = slices_sum(&inner->sums, sum_records, &pass);
    add_floats(O * I, sum, args->dw);
    if (inner->spec.bias)
        add_floats(O, sum + O * I, args->db);
    if (!args->dx)
        return;
    float *dx = inner->dx ? inner->dx : args->dx;
    memset(dx, 0, N * I * sizeof *dx);
    add_product(N, O, I, args->dy, O, 1, args->w, dx);
    if (inner->dx)
        kernels_reorder(&inner->spec.x, LAYOUT_PLAIN, dx, LAYOUT_NHWC, args->dx);
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
    .conv = plan_conv,
    .pool = ref_plan_pool,
    .inner = plan_inner,
    .relu = plan_relu,
    .sigmoid = ref_plan_sigmoid,
    .scale = plan_scale,
    .softmax = plan_softmax,
};
