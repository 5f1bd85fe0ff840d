/* Convolution and deconvolution in plain C. Each image is expanded into a matrix whose row (c, kh,
 * kw) holds that kernel tap's input at every output pixel; matrix products do the rest. A
 * deconvolution does the steps of its convolution in reverse. */
#include "tensor/kernels_ref.h"

#include "tensor/kernels_common.h"
#include "tensor/slices.h"

#include <string.h>

struct conv_op {
    struct op op;
    struct conv_spec spec; /* the convolution's, with the op's own bias */
    struct image x, y;     /* of the convolution */
    size_t K, P;           /* taps of a group, C/groups·KH·KW; output pixels OH·OW */
    float *taps;           /* (groups · K, P) of one image */
    struct slices sums;    /* of dw, then db, over the images */
};

static size_t image_size(struct image s)
{
    return s.C * s.H * s.W;
}

/* ---- images and taps ---- */

/* The output columns whose tap, k pixels from the window's start, falls inside the image:
 * *first..*end. */
static void tap_range(size_t k, size_t stride, size_t pad, size_t x, size_t y, size_t *first,
                      size_t *end)
{
    *first = pad > k ? (pad - k + stride - 1) / stride : 0;
    *end = x + pad > k ? (x + pad - k + stride - 1) / stride : 0;
    *end = *end < y ? *end : y;
    *first = *first < *end ? *first : *end;
}

/* The output pixels at which a tap is inside the image: rows h0..h1 and columns w0..w1, the tap's
 * position in the window, its channel. */
struct tap {
    size_t h0, h1, w0, w1, kh, kw, c;
};

static struct tap tap_at(const struct conv_op *conv, size_t k)
{
    const struct conv_spec *s = &conv->spec;
    struct tap tap = {
        .kh = k / s->kernel_w % s->kernel_h * s->dilation_h,
        .kw = k % s->kernel_w * s->dilation_w,
        .c = k / s->kernel_w / s->kernel_h,
    };
    tap_range(tap.kh, s->stride_h, s->pad_h, conv->x.H, conv->y.H, &tap.h0, &tap.h1);
    tap_range(tap.kw, s->stride_w, s->pad_w, conv->x.W, conv->y.W, &tap.w0, &tap.w1);
    return tap;
}

static void spread_tap(const struct conv_op *conv, size_t k, const float *x, float *row)
{
    const struct conv_spec *s = &conv->spec;
    struct tap tap = tap_at(conv, k);
    memset(row, 0, conv->P * sizeof *row);
    for (size_t oh = tap.h0; oh < tap.h1; oh++) {
        size_t h = oh * s->stride_h + tap.kh - s->pad_h;
        const float *from = x + (tap.c * conv->x.H + h) * conv->x.W;
        for (size_t ow = tap.w0; ow < tap.w1; ow++)
            row[oh * conv->y.W + ow] = from[ow * s->stride_w + tap.kw - s->pad_w];
    }
}

/* Backward: every output pixel's share is added to its input pixel. */
static void gather_tap(const struct conv_op *conv, size_t k, const float *row, float *x)
{
    const struct conv_spec *s = &conv->spec;
    struct tap tap = tap_at(conv, k);
    for (size_t oh = tap.h0; oh < tap.h1; oh++) {
        size_t h = oh * s->stride_h + tap.kh - s->pad_h;
        float *to = x + (tap.c * conv->x.H + h) * conv->x.W;
        for (size_t ow = tap.w0; ow < tap.w1; ow++)
            to[ow * s->stride_w + tap.kw - s->pad_w] += row[oh * conv->y.W + ow];
    }
}

static void spread_window(const struct conv_op *conv, const float *x)
{
    size_t rows = conv->spec.groups * conv->K, P = conv->P;
#pragma omp parallel for schedule(static) if (rows * P >= PARALLEL_MIN)
    for (size_t k = 0; k < rows; k++)
        spread_tap(conv, k, x, conv->taps + k * P);
}

static void gather_window(const struct conv_op *conv, float *x)
{
    size_t C = conv->x.C, P = conv->P, taps = conv->spec.kernel_h * conv->spec.kernel_w;
    memset(x, 0, image_size(conv->x) * sizeof *x);
#pragma omp parallel for schedule(static) if (C * taps * P >= PARALLEL_MIN)
    for (size_t c = 0; c < C; c++)
        for (size_t k = c * taps; k < (c + 1) * taps; k++)
            gather_tap(conv, k, conv->taps + k * P, x);
}

/* ---- products, group by group: w is (O, K), y (O, P), the taps (groups · K, P) ---- */

/* y += w · taps */
static void add_outputs(const struct conv_op *conv, const float *w, float *y)
{
    size_t K = conv->K, P = conv->P, O = conv->y.C / conv->spec.groups;
    for (size_t g = 0; g < conv->spec.groups; g++)
        ref_add_product(O, K, P, w + g * O * K, K, 1, conv->taps + g * K * P, y + g * O * P);
}

/* taps = wᵀ · y */
static void set_taps(const struct conv_op *conv, const float *w, const float *y)
{
    size_t K = conv->K, P = conv->P, O = conv->y.C / conv->spec.groups;
    memset(conv->taps, 0, conv->spec.groups * K * P * sizeof(float));
    for (size_t g = 0; g < conv->spec.groups; g++)
        ref_add_product(K, O, P, w + g * O * K, 1, K, y + g * O * P, conv->taps + g * K * P);
}

/* dw += y · tapsᵀ */
static void add_weights(const struct conv_op *conv, const float *y, float *dw)
{
    size_t K = conv->K, P = conv->P, O = conv->y.C / conv->spec.groups;
    for (size_t g = 0; g < conv->spec.groups; g++)
        ref_add_product_of_rows(O, P, K, y + g * O * P, conv->taps + g * K * P, dw + g * O * K);
}

static void set_channels(size_t C, size_t P, const float *b, float *y)
{
    for (size_t c = 0; c < C; c++)
        for (size_t p = 0; p < P; p++)
            y[c * P + p] = b ? b[c] : 0;
}

static void add_channels(size_t C, size_t P, const float *b, float *y)
{
    for (size_t c = 0; c < C; c++)
        for (size_t p = 0; p < P; p++)
            y[c * P + p] += b[c];
}

static void sum_channels(size_t C, size_t P, const float *dy, float *db)
{
    for (size_t c = 0; c < C; c++) {
        float sum = db[c];
        for (size_t p = 0; p < P; p++)
            sum += dy[c * P + p];
        db[c] = sum;
    }
}

/* ---- the two ops ---- */

static void conv_forward(struct op *op, const struct op_args *args)
{
    const struct op_floats io = op_floats(args);
    const struct conv_op *conv = (const struct conv_op *)op;
    for (size_t n = 0; n < conv->x.N; n++) {
        float *y = io.y + n * image_size(conv->y);
        spread_window(conv, io.x + n * image_size(conv->x));
        set_channels(conv->y.C, conv->P, conv->spec.bias ? args->b : NULL, y);
        add_outputs(conv, args->w, y);
    }
}

static void deconv_forward(struct op *op, const struct op_args *args)
{
    const struct op_floats io = op_floats(args);
    const struct conv_op *conv = (const struct conv_op *)op;
    for (size_t n = 0; n < conv->x.N; n++) {
        float *y = io.y + n * image_size(conv->x);
        set_taps(conv, args->w, io.x + n * image_size(conv->y));
        gather_window(conv, y);
        if (conv->spec.bias)
            add_channels(conv->x.C, conv->x.H * conv->x.W, args->b, y);
    }
}

struct pass {
    const struct conv_op *conv;
    const struct op_args *args;
};

/* dw and db of some images. */
static void conv_sum(void *user, size_t first, size_t count, float *sum)
{
    const struct pass *pass = user;
    const struct conv_op *conv = pass->conv;
    const struct op_args *args = pass->args;
    const struct op_floats io = op_floats(args);
    size_t weights = conv->y.C * conv->K;
    memset(sum, 0, (weights + conv->y.C) * sizeof *sum);
    for (size_t n = first; n < first + count; n++) {
        const float *dy = io.dy + n * image_size(conv->y);
        spread_window(conv, io.x + n * image_size(conv->x));
        add_weights(conv, dy, sum);
        sum_channels(conv->y.C, conv->P, dy, sum + weights);
    }
}

/* dw and db of some images, and on the way their dx, from which nothing is summed. */
static void deconv_sum(void *user, size_t first, size_t count, float *sum)
{
    const struct pass *pass = user;
    const struct conv_op *conv = pass->conv;
    const struct op_args *args = pass->args;
    const struct op_floats io = op_floats(args);
    size_t weights = conv->y.C * conv->K;
    memset(sum, 0, (weights + conv->x.C) * sizeof *sum);
    for (size_t n = first; n < first + count; n++) {
        const float *dy = io.dy + n * image_size(conv->x);
        spread_window(conv, dy);
        add_weights(conv, io.x + n * image_size(conv->y), sum);
        sum_channels(conv->x.C, conv->x.H * conv->x.W, dy, sum + weights);
        if (io.dx) {
            float *dx = io.dx + n * image_size(conv->y);
            set_channels(conv->y.C, conv->P, NULL, dx);
            add_outputs(conv, args->w, dx);
        }
    }
}

static void ref_conv_backward(struct conv_op *conv, const struct op_args *args, size_t biases,
                              void (*set)(void *user, size_t first, size_t count, float *sum))
{
    struct pass pass = {conv, args};
    size_t weights = conv->y.C * conv->K;
    const float *sum = slices_sum(&conv->sums, set, &pass);
    add_floats(weights, sum, args->dw);
    if (conv->spec.bias)
        add_floats(biases, sum + weights, args->db);
}

static void conv_backward(struct op *op, const struct op_args *args)
{
    struct conv_op *conv = (struct conv_op *)op;
    const struct op_floats io = op_floats(args);
    if (args->dw)
        ref_conv_backward(conv, args, conv->y.C, conv_sum);
    for (size_t n = 0; io.dx && n < conv->x.N; n++) {
        set_taps(conv, args->w, io.dy + n * image_size(conv->y));
        gather_window(conv, io.dx + n * image_size(conv->x));
    }
}

static void deconv_backward(struct op *op, const struct op_args *args)
{
    struct conv_op *conv = (struct conv_op *)op;
    ref_conv_backward(conv, args, conv->x.C, deconv_sum);
}

static const struct op_ops conv_training = {conv_forward, conv_backward, NULL};
static const struct op_ops conv_inference = {conv_forward, NULL, NULL};
static const struct op_ops deconv_training = {deconv_forward, deconv_backward, NULL};
static const struct op_ops deconv_inference = {deconv_forward, NULL, NULL};

/* ---- planning ---- */

/* `biases`: how many there would be. */
static int plan_conv(const struct conv_spec *spec, size_t biases, bool training,
                     struct arena *arena, struct conv_op **out, struct err *err)
{
    conv_check(spec);
    struct image x = image_of(&spec->x), y = image_of(&spec->y);
    struct conv_op *conv = arena_new(arena, struct conv_op);
    if (!conv)
        return plan_nomem("convolution", err);
    size_t K = x.C / spec->groups * spec->kernel_h * spec->kernel_w, P = y.H * y.W, bytes;
    float *taps = NULL;
    if (!__builtin_mul_overflow(spec->groups * K, P * sizeof(float), &bytes))
        taps = arena_alloc(arena, 1, bytes);
    if (!taps)
        return plan_nomem("convolution", err);
    *conv = (struct conv_op){
        .op = {.scratch_bytes = bytes},
        .spec = *spec,
        .x = x,
        .y = y,
        .K = K,
        .P = P,
        .taps = taps,
    };
    size_t sums = 0;
    if (training && slices_init(&conv->sums, arena, x.N, y.C * K + biases, &sums) != OK)
        return plan_nomem("convolution", err);
    conv->op.scratch_bytes += sums;
    *out = conv;
    return OK;
}

int ref_plan_conv(const struct conv_spec *spec, const struct plan_options *options, struct op **op,
                  struct err *err)
{
    struct conv_op *conv;
    int status = plan_conv(spec, spec->y.dim[1], options->training, options->arena, &conv, err);
    if (status)
        return status;
    conv->op.ops = options->training ? &conv_training : &conv_inference;
    *op = &conv->op;
    return OK;
}

int ref_plan_deconv(const struct conv_spec *spec, const struct plan_options *options,
                    struct op **op, struct err *err)
{
    struct conv_op *conv;
    struct conv_spec turned = conv_turned(spec);
    int status = plan_conv(&turned, spec->y.dim[1], options->training, options->arena, &conv, err);
    if (status)
        return status;
    conv->op.ops = options->training ? &deconv_training : &deconv_inference;
    conv->spec.bias = spec->bias;
    *op = &conv->op;
    return OK;
}
