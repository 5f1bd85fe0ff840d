/* Windows over images by all kernel sets: convolution, deconvolution, pooling, local response
 * normalisation. Small cases by hand, every pair of sets on the same inputs, finite differences. */
#include "tensor/kernels_test_suite.h"

/* ---- works ---- */

/* The geometry of a convolution in the tables below; 0: not given. */
struct window {
    size_t kernel_h, kernel_w, stride, pad, dilation, groups;
    bool bias;
};

static struct conv_spec spec_of(struct window win)
{
    size_t stride = win.stride ? win.stride : 1, dilation = win.dilation ? win.dilation : 1;
    return (struct conv_spec){
        .kernel_h = win.kernel_h,
        .kernel_w = win.kernel_w ? win.kernel_w : win.kernel_h,
        .stride_h = stride,
        .stride_w = stride,
        .pad_h = win.pad,
        .pad_w = win.pad,
        .dilation_h = dilation,
        .dilation_w = dilation,
        .groups = win.groups ? win.groups : 1,
        .bias = win.bias,
    };
}

static size_t convolved_size(size_t x, size_t kernel, size_t stride, size_t pad, size_t dilation)
{
    return (x + 2 * pad - (dilation * (kernel - 1) + 1)) / stride + 1;
}

static struct work conv_of(struct shape x, size_t O, struct conv_spec s)
{
    s.x = x;
    s.y = image_array(x.dim[0], O,
                      convolved_size(x.dim[2], s.kernel_h, s.stride_h, s.pad_h, s.dilation_h),
                      convolved_size(x.dim[3], s.kernel_w, s.stride_w, s.pad_w, s.dilation_w));
    size_t weights = O * x.dim[1] / s.groups * s.kernel_h * s.kernel_w;
    return (struct work){CONV, {.conv = s}, x, s.y, weights, s.bias ? O : 0};
}

static struct work conv_work(struct shape x, size_t O, struct window win)
{
    return conv_of(x, O, spec_of(win));
}

static size_t deconvolved_size(size_t x, size_t kernel, size_t stride, size_t pad, size_t dilation)
{
    return stride * (x - 1) + dilation * (kernel - 1) + 1 - 2 * pad;
}

static struct work deconv_of(struct shape x, size_t O, struct conv_spec s)
{
    s.x = x;
    s.y = image_array(x.dim[0], O,
                      deconvolved_size(x.dim[2], s.kernel_h, s.stride_h, s.pad_h, s.dilation_h),
                      deconvolved_size(x.dim[3], s.kernel_w, s.stride_w, s.pad_w, s.dilation_w));
    size_t weights = x.dim[1] * O / s.groups * s.kernel_h * s.kernel_w;
    return (struct work){DECONV, {.conv = s}, x, s.y, weights, s.bias ? O : 0};
}

static struct work deconv_work(struct shape x, size_t O, struct window win)
{
    return deconv_of(x, O, spec_of(win));
}

/* Caffe's output size: rounded up, less a window that would start in the far padding. */
static size_t pooled_size(size_t x, size_t kernel, size_t stride, size_t pad)
{
    size_t y = (x + 2 * pad - kernel + stride - 1) / stride + 1;
    return pad && (y - 1) * stride >= x + pad ? y - 1 : y;
}

static struct work pool_of(struct pool_spec spec)
{
    return (struct work){POOL, {.pool = spec}, spec.x, spec.y, 0, 0};
}

static struct work pool_work(enum pool_kind kind, struct shape x, size_t kernel, size_t stride,
                             size_t pad)
{
    struct shape y = image_array(x.dim[0], x.dim[1], pooled_size(x.dim[2], kernel, stride, pad),
                                 pooled_size(x.dim[3], kernel, stride, pad));
    return pool_of(
        (struct pool_spec){kind, x, y, kernel, kernel, stride, stride, pad, pad, DTYPE_F32});
}

static struct work lrn_work(enum lrn_region region, struct shape x, size_t size, float alpha,
                            float beta, float k)
{
    struct lrn_spec spec = {x, region, size, alpha, beta, k};
    return (struct work){LRN, {.lrn = spec}, x, x, 0, 0};
}

static void assert_all(const char *what, const struct work *works, size_t n)
{
    for (int threads = 1; threads <= 2; threads++) {
        kernels_set_threads(threads);
        for (size_t i = 0; i < n; i++) {
            print_message("%s %zu, %d threads\n", what, i, threads);
            assert_conforms(&works[i], LAYOUT_PLAIN);
            if (threads == 2 && runs_rounded(&works[i]))
                assert_conforms_rounded(&works[i], LAYOUT_PLAIN);
        }
    }
    for (size_t i = 0; i < n; i++)
        assert_gradients(&works[i]);
}

/* ---- the sets agree, and with finite differences ---- */

static void test_convolutions_agree(void **state)
{
    (void)state;
    const struct work works[] = {
        conv_work(image_array(2, 1, 12, 12), 20, (struct window){5, .bias = true}),
        conv_work(image_array(3, 20, 8, 8), 50, (struct window){5, .bias = true}),
        conv_work(image_array(2, 3, 9, 7), 16, (struct window){3, .pad = 1}),
        conv_work(image_array(2, 16, 8, 8), 16, (struct window){3, .pad = 1, .bias = true}),
        conv_work(image_array(2, 16, 9, 9), 32, (struct window){3, .stride = 2, .pad = 1}),
        conv_work(image_array(3, 16, 8, 8), 20, (struct window){1, .bias = true}),
        conv_work(image_array(2, 20, 7, 7), 5, (struct window){1, .stride = 2}),
        conv_work(image_array(1, 3, 16, 16), 8,
                  (struct window){5, .stride = 2, .pad = 2, .bias = true}),
        conv_work(image_array(2, 5, 6, 9), 7, (struct window){3, 2, .pad = 1, .bias = true}),
        conv_work(image_array(2, 4, 4, 4), 3, (struct window){4, .bias = true}),
        conv_work(image_array(1, 1, 1, 1), 1, (struct window){3, .pad = 1, .bias = true}),
        conv_work(image_array(33, 1, 6, 6), 20, (struct window){3, .bias = true}),
        conv_work(image_array(39, 20, 6, 5), 24, (struct window){3, .pad = 1, .bias = true}),
        conv_work(image_array(17, 16, 4, 4), 16, (struct window){.kernel_h = 1}),
    };
    assert_all("convolution", works, sizeof works / sizeof *works);
}

static void test_grouped_convolutions_agree(void **state)
{
    (void)state;
    const struct work works[] = {
        conv_work(image_array(3, 96, 7, 7), 64,
                  (struct window){5, .pad = 2, .groups = 2, .bias = true}),
        conv_work(image_array(2, 32, 6, 6), 48,
                  (struct window){3, .pad = 1, .groups = 2, .bias = true}),
        conv_work(image_array(2, 6, 5, 9), 8,
                  (struct window){3, .pad = 1, .groups = 2, .bias = true}),
        conv_work(image_array(2, 20, 9, 4), 30, (struct window){3, 2, .groups = 5}),
        conv_work(image_array(2, 4, 9, 9), 8,
                  (struct window){3, .stride = 2, .groups = 4, .bias = true}),
        conv_work(image_array(2, 8, 5, 5), 4, (struct window){1, .groups = 4, .bias = true}),
        conv_work(image_array(18, 32, 4, 4), 32, (struct window){3, .pad = 1, .groups = 8}),
        /* depthwise */
        conv_work(image_array(2, 32, 9, 9), 32,
                  (struct window){3, .pad = 1, .groups = 32, .bias = true}),
        conv_work(image_array(2, 5, 7, 6), 5,
                  (struct window){3, .stride = 2, .pad = 1, .groups = 5}),
        conv_work(image_array(17, 19, 5, 5), 19, (struct window){5, .pad = 2, .groups = 19}),
    };
    assert_all("grouped convolution", works, sizeof works / sizeof *works);
}

static void test_dilated_convolutions_agree(void **state)
{
    (void)state;
    struct conv_spec apart = spec_of((struct window){3, .pad = 2, .dilation = 2, .bias = true});
    apart.dilation_w = 3;
    apart.stride_w = 2;
    apart.pad_w = 1;
    const struct work works[] = {
        conv_work(image_array(2, 16, 9, 9), 32, (struct window){3, .pad = 2, .dilation = 2}),
        conv_work(image_array(2, 3, 11, 8), 7, (struct window){3, .dilation = 3, .bias = true}),
        conv_work(image_array(2, 5, 9, 9), 4,
                  (struct window){2, .stride = 2, .pad = 1, .dilation = 4}),
        conv_work(image_array(2, 8, 9, 9), 8,
                  (struct window){3, .pad = 2, .dilation = 2, .groups = 8}),
        conv_work(image_array(18, 12, 7, 7), 6,
                  (struct window){3, .pad = 2, .dilation = 2, .groups = 3}),
        conv_of(image_array(2, 6, 9, 11), 10, apart),
    };
    assert_all("dilated convolution", works, sizeof works / sizeof *works);
}

static void test_deconvolutions_agree(void **state)
{
    (void)state;
    struct conv_spec apart = spec_of((struct window){3, 2, .stride = 2, .pad = 1, .bias = true});
    apart.stride_w = 3;
    apart.dilation_h = 2;
    apart.pad_w = 0;
    const struct work works[] = {
        deconv_work(image_array(2, 16, 5, 5), 32, (struct window){4, .stride = 2, .pad = 1}),
        deconv_work(image_array(2, 3, 4, 6), 5, (struct window){3, .stride = 2, .bias = true}),
        deconv_work(image_array(3, 7, 6, 6), 4, (struct window){3, .pad = 1, .bias = true}),
        deconv_work(image_array(2, 1, 3, 3), 2, (struct window){2, .stride = 3, .bias = true}),
        deconv_work(image_array(2, 8, 4, 4), 12, (struct window){3, .groups = 4, .bias = true}),
        deconv_work(image_array(18, 21, 4, 4), 21,
                    (struct window){4, .stride = 2, .pad = 1, .groups = 21}),
        deconv_work(image_array(2, 6, 5, 5), 4,
                    (struct window){3, .pad = 2, .dilation = 2, .groups = 2}),
        deconv_work(image_array(37, 16, 3, 3), 16, (struct window){3, .stride = 2, .bias = true}),
        deconv_of(image_array(2, 5, 4, 3), 6, apart),
    };
    assert_all("deconvolution", works, sizeof works / sizeof *works);
}

static void test_poolings_agree(void **state)
{
    (void)state;
    const struct {
        struct shape x;
        size_t kernel, stride, pad;
    } cases[] = {
        {image_array(2, 20, 24, 24), 2, 2, 0},
        {image_array(2, 3, 8, 8), 3, 2, 0},
        {image_array(2, 3, 7, 7), 3, 2, 0},
        {image_array(1, 17, 5, 6), 3, 2, 1},
        {image_array(2, 16, 5, 8), 2, 3, 0},
        {image_array(2, 1, 9, 9), 3, 1, 1},
        {image_array(2, 10, 7, 7), 7, 1, 0},
        {image_array(1, 2, 4, 4), 4, 3, 1},
        {image_array(1, 8, 3, 3), 2, 2, 1},
        {image_array(3, 4, 5, 5), 1, 1, 0},
        {image_array(2, 5, 6, 6), 5, 4, 4},
        {image_array(2, 9, 7, 4), 3, 3, 2},
        /* channels in groups of vectors of every width, and what is left of them */
        {image_array(2, 50, 8, 8), 2, 2, 0},
        {image_array(2, 24, 7, 9), 3, 2, 0},
        {image_array(2, 112, 6, 5), 3, 1, 1},
        {image_array(1, 144, 7, 7), 2, 2, 0},
        {image_array(2, 203, 5, 6), 3, 2, 1},
        {image_array(2, 75, 4, 5), 4, 1, 2},
        /* places that a byte does not count */
        {image_array(2, 37, 19, 18), 17, 1, 0},
        {image_array(1, 5, 17, 17), 17, 1, 0},
    };
    for (enum pool_kind kind = POOL_MAX; kind <= POOL_AVERAGE; kind++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct work work =
                pool_work(kind, cases[i].x, cases[i].kernel, cases[i].stride, cases[i].pad);
            assert_all(kind == POOL_MAX ? "largest" : "average", &work, 1);
        }
}

/* Few values, so that many are equal; infinities; and of what is not a number up to `none` in all.
 */
static void spoil_array(struct array *x, size_t none)
{
    for (size_t i = 0; i < x->n; i++)
        x->v[i] = (float)(i * 7 % 5) - 2;
    x->v[x->n / 3] = INFINITY;
    x->v[x->n / 3 + 1] = -INFINITY;
    for (size_t i = 0; i < none; i++)
        x->v[(i * 31 + 5) % x->n] = NAN;
}

static void assert_same(const char *what, const struct array *a, const struct array *b)
{
    for (size_t i = 0; i < a->n; i++)
        if (isnan(a->v[i]) ? !isnan(b->v[i]) : a->v[i] != b->v[i])
            fail_msg("%s[%zu]: %g and %g", what, i, (double)a->v[i], (double)b->v[i]);
}

/* The first of equals wins, and over all else the last of what is not a number: in every set. */
static void test_maxima_of_equals_and_of_no_numbers(void **state)
{
    (void)state;
    const struct work works[] = {
        pool_work(POOL_MAX, image_array(2, 20, 9, 8), 2, 2, 0),
        pool_work(POOL_MAX, image_array(2, 33, 9, 8), 3, 2, 0),
        pool_work(POOL_MAX, image_array(1, 64, 7, 7), 3, 1, 1),
        pool_work(POOL_MAX, image_array(1, 18, 7, 7), 4, 2, 1),
        pool_work(POOL_MAX, image_array(2, 3, 8, 8), 3, 2, 0),
        pool_work(POOL_MAX, image_array(1, 17, 18, 18), 17, 1, 0),
    };
    for (size_t i = 0; i < sizeof works / sizeof *works; i++)
        for (size_t none = 0; none <= 64; none += 32) {
            struct run run[SETS];
            for (size_t s = 0; s < SETS; s++) {
                run[s] = run_counted(&works[i]);
                spoil_array(&run[s].x, none);
                run_set(sets[s], &works[i], LAYOUT_PLAIN, &run[s]);
                assert_same("y", &run[0].y, &run[s].y);
                assert_same("dx", &run[0].dx, &run[s].dx);
            }
            struct work half = works[i];
            struct run rounded = run_counted(&half);
            half.spec.pool.dtype = DTYPE_BF16;
            spoil_array(&rounded.x, none);
            run_set(&kernels_dnnl, &half, LAYOUT_PLAIN, &rounded);
            assert_same("y of bf16", &run[0].y, &rounded.y);
            assert_same("dx of bf16", &run[0].dx, &rounded.dx);
            run_free(&rounded);
            for (size_t s = 0; s < SETS; s++)
                run_free(&run[s]);
        }
}

/* 2 channels, which see the same: a row of two windows, 1 2 NaN 3 over 2 2 1 NaN. In the first the
 * first of three 2s wins, in the second the later NaN. */
static void test_maxima_by_hand(void **state)
{
    (void)state;
    struct work work = pool_work(POOL_MAX, image_array(1, 2, 2, 4), 2, 2, 0);
    const float x[] = {1, 2, NAN, 3, 2, 2, 1, NAN};
    const float dx[] = {0, 1, 0, 0, 0, 0, 0, 1};
    for (size_t s = 0; s < SETS; s++) {
        struct run run = run_counted(&work);
        for (size_t c = 0; c < 2; c++)
            memcpy(run.x.v + 8 * c, x, sizeof x);
        for (size_t i = 0; i < run.dy.n; i++)
            run.dy.v[i] = 1;
        run_set(sets[s], &work, LAYOUT_PLAIN, &run);
        for (size_t c = 0; c < 2; c++) {
            assert_true(run.y.v[2 * c] == 2 && isnan(run.y.v[2 * c + 1]));
            assert_memory_equal(run.dx.v + 8 * c, dx, sizeof dx);
        }
        run_free(&run);
    }
}

/* Sizes rounded down: pixels at the far edge are in no window. */
static void test_poolings_rounded_down_agree(void **state)
{
    (void)state;
    for (enum pool_kind kind = POOL_MAX; kind <= POOL_AVERAGE; kind++) {
        const struct work works[] = {
            pool_of((struct pool_spec){kind, image_array(2, 5, 8, 8), image_array(2, 5, 3, 3), 3, 3,
                                       2, 2, 0, 0, DTYPE_F32}),
            pool_of((struct pool_spec){kind, image_array(2, 17, 9, 6), image_array(2, 17, 2, 3), 3,
                                       2, 4, 2, 0, 0, DTYPE_F32}),
            pool_of((struct pool_spec){kind, image_array(2, 4, 6, 6), image_array(2, 4, 3, 3), 3, 3,
                                       2, 2, 1, 1, DTYPE_F32}),
        };
        assert_all("rounded down", works, sizeof works / sizeof *works);
    }
}

static void test_normalisations_agree(void **state)
{
    (void)state;
    const struct work works[] = {
        lrn_work(LRN_ACROSS, image_array(2, 96, 5, 5), 5, 0.5f, 0.75f, 1),
        lrn_work(LRN_ACROSS, image_array(3, 7, 4, 3), 3, 2, 0.75f, 2),
        lrn_work(LRN_ACROSS, image_array(2, 3, 4, 4), 9, 1, 0.5f,
                 1), /* more than there are channels */
        lrn_work(LRN_ACROSS, image_array(2, 4, 3, 3), 9999, 5000, 0.75f, 1),
        lrn_work(LRN_ACROSS, image_array(2, 6, 3, 3), 1, 1, 1, 1),
        lrn_work(LRN_ACROSS, image_array(2, 10, 3, 5), 5, 1, 0.6f, 0.5f),
        lrn_work(LRN_ACROSS, image_array(4, 64, 12, 12), 5, 1e-4f, 0.75f, 1),
        lrn_work(LRN_ACROSS, image_array(1, 50, 3, 7), 5, 3, 0.75f, 2),
        lrn_work(LRN_ACROSS, image_array(1, 24, 5, 3), 7, 1, 0.75f,
                 0), /* no roots of what may be 0 */
        lrn_work(LRN_ACROSS, image_array(2, 20, 3, 3), 5, 400, 0.75f, 1e-3f),
        lrn_work(LRN_WITHIN, image_array(2, 5, 6, 7), 3, 2, 0.75f, 1),
        lrn_work(LRN_WITHIN, image_array(3, 16, 4, 4), 5, 1, 1, 1),
        lrn_work(LRN_WITHIN, image_array(2, 3, 2, 3), 7, 9, 0.5f, 1), /* larger than the image */
        lrn_work(LRN_WITHIN, image_array(5, 32, 11, 10), 3, 5e-5f, 0.3f, 1),
    };
    assert_all("normalisation", works, sizeof works / sizeof *works);
}

/* A window wider than all channels costs no more than one that holds them all. */
static void test_normalisation_looks_at_no_more_than_there_is(void **state)
{
    (void)state;
    const size_t sizes[] = {7, 9, 9999};
    size_t bytes[3];
    for (size_t i = 0; i < 3; i++) {
        const struct lrn_spec spec = {image_array(2, 4, 3, 3), LRN_ACROSS, sizes[i], 1, 0.75f, 1};
        struct arena arena;
        struct err err = {0};
        struct op *op;
        arena_init(&arena);
        assert_int_equal(kernels_dnnl.lrn(&spec, true, &arena, &op, &err), OK);
        bytes[i] = op->scratch_bytes;
        op_release(op);
        arena_release(&arena);
    }
    assert_int_equal(bytes[1], bytes[0]);
    assert_int_equal(bytes[2], bytes[0]);
}

static void test_reference_has_the_same_bits_for_any_thread_count(void **state)
{
    (void)state;
    const struct work works[] = {
        conv_work(image_array(4, 20, 12, 12), 50, (struct window){5, .bias = true}),
        conv_work(image_array(4, 20, 12, 12), 50, (struct window){5, .groups = 5, .bias = true}),
        deconv_work(image_array(4, 20, 12, 12), 30, (struct window){4, .stride = 2, .bias = true}),
        pool_work(POOL_AVERAGE, image_array(8, 20, 24, 24), 3, 2, 0),
        lrn_work(LRN_ACROSS, image_array(2, 64, 20, 20), 5, 1, 0.75f, 1),
        lrn_work(LRN_WITHIN, image_array(2, 64, 20, 20), 3, 1, 0.75f, 1),
    };
    for (size_t i = 0; i < sizeof works / sizeof *works; i++)
        assert_same_for_any_thread_count(&works[i]);
}

/* ---- by hand ---- */

static void test_convolution_by_hand(void **state)
{
    (void)state;
    struct work work = conv_work(image_array(1, 1, 3, 3), 1, (struct window){2, .bias = true});
    /* 1·1 + 2·2 + 4·3 + 5·4 = 37, and a half; the kernel is not turned over. */
    assert_worked(&work, LAYOUT_PLAIN, (float[]){37.5f, 47.5f, 67.5f, 77.5f},
                  (float[]){1, 3, 2, 4, 10, 6, 3, 7, 4}, (float[]){12.5f, 16.5f, 24.5f, 28.5f},
                  (float[]){4.5f});
    /* Two channels, padding 1, stride 2: each tap meets one pixel of a 2×2 image. */
    struct work padded =
        conv_work(image_array(1, 2, 2, 2), 1, (struct window){2, .stride = 2, .pad = 1});
    assert_worked(&padded, LAYOUT_PLAIN,
                  (float[]){4 * 1 + 8 * 5, 3 * 2 + 7 * 6, 2 * 3 + 6 * 7, 1 * 4 + 5 * 8},
                  (float[]){4, 3, 2, 1, 8, 7, 6, 5},
                  (float[]){4.5f, 3.5f, 2.5f, 1.5f, 8.5f, 7.5f, 6.5f, 5.5f}, NULL);
}

/* Each output channel sees its own input channel: 1·1 + 2·2 and 3·3 + 4·4. */
static void test_groups_by_hand(void **state)
{
    (void)state;
    struct work work =
        conv_work(image_array(1, 2, 1, 2), 2, (struct window){1, 2, .groups = 2, .bias = true});
    assert_int_equal(work.w, 4);
    assert_worked(&work, LAYOUT_PLAIN, (float[]){5.5f, 25.5f}, (float[]){1, 2, 3, 4},
                  (float[]){1.5f, 2.5f, 3.5f, 4.5f}, (float[]){1.5f, 1.5f});
}

/* The taps of a 2×2 kernel, two pixels apart, are the corners of a 3×3 image. */
static void test_dilation_by_hand(void **state)
{
    (void)state;
    struct work work = conv_work(image_array(1, 1, 3, 3), 1, (struct window){2, .dilation = 2});
    assert_worked(&work, LAYOUT_PLAIN, (float[]){1 * 1 + 3 * 2 + 7 * 3 + 9 * 4},
                  (float[]){1, 0, 2, 0, 0, 0, 3, 0, 4}, (float[]){1.5f, 3.5f, 7.5f, 9.5f}, NULL);
}

/* Each pixel of x lays down the kernel, times itself; what overlaps is added. */
static void test_deconvolution_by_hand(void **state)
{
    (void)state;
    struct work work = deconv_work(image_array(1, 1, 2, 2), 1, (struct window){2, .bias = true});
    assert_worked(
        &work, LAYOUT_PLAIN, (float[]){1.5f, 4.5f, 4.5f, 6.5f, 20.5f, 16.5f, 9.5f, 24.5f, 16.5f},
        (float[]){10, 10, 10, 10}, (float[]){10.5f, 10.5f, 10.5f, 10.5f}, (float[]){9.5f});
    struct work apart = deconv_work(image_array(1, 1, 2, 2), 1, (struct window){2, .stride = 2});
    assert_worked(&apart, LAYOUT_PLAIN,
                  (float[]){1, 2, 2, 4, 3, 4, 6, 8, 3, 6, 4, 8, 9, 12, 12, 16},
                  (float[]){10, 10, 10, 10}, (float[]){10.5f, 10.5f, 10.5f, 10.5f}, NULL);
    /* Padding cuts the rim off: only one tap of each pixel is left. */
    struct work padded =
        deconv_work(image_array(1, 1, 2, 2), 1, (struct window){2, .stride = 2, .pad = 1});
    assert_worked(&padded, LAYOUT_PLAIN, (float[]){4, 6, 6, 4}, (float[]){4, 3, 2, 1},
                  (float[]){4.5f, 3.5f, 2.5f, 1.5f}, NULL);
    /* Weights are (C, O/groups, ..): x's first channel makes the first two of y's. */
    struct work groups = deconv_work(image_array(1, 2, 1, 1), 4, (struct window){1, .groups = 2});
    assert_worked(&groups, LAYOUT_PLAIN, (float[]){1, 2, 6, 8}, (float[]){3, 7},
                  (float[]){1.5f, 1.5f, 2.5f, 2.5f}, NULL);
    /* Taps three pixels apart. */
    struct work taps = deconv_work(image_array(1, 1, 1, 1), 1, (struct window){2, .dilation = 3});
    assert_worked(&taps, LAYOUT_PLAIN, (float[]){1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 4},
                  (float[]){10}, (float[]){1.5f, 1.5f, 1.5f, 1.5f}, NULL);
}

/* y as given, and all of dx 0: a difference of two terms that are at most 1. */
static void assert_flat(const struct work *work, const float *y)
{
    for (size_t s = 0; s < SETS; s++) {
        struct run run = run_counted(work);
        run_set(sets[s], work, LAYOUT_PLAIN, &run);
        assert_close("y", y, run.y.v, run.y.n, 1e-6);
        for (size_t i = 0; i < run.dx.n; i++)
            if (!(fabsf(run.dx.v[i]) <= 1e-7f))
                fail_msg("dx[%zu]: %g", i, (double)run.dx.v[i]);
        run_free(&run);
    }
}

/* alpha/size = 1 and k = 1: s = 1 + (1 + 4), 1 + (1 + 4 + 9), 1 + (4 + 9). With beta = 1, y = x/s
 * and dx = 1/s - 2·x·Σ y/s. */
static void test_normalisation_across_by_hand(void **state)
{
    (void)state;
    struct work work = lrn_work(LRN_ACROSS, image_array(1, 3, 1, 1), 3, 3, 1, 1);
    const float first = 1 / 36.0f, second = 2 / 225.0f, third = 3 / 196.0f;
    assert_worked(&work, LAYOUT_PLAIN, (float[]){1 / 6.0f, 2 / 15.0f, 3 / 14.0f},
                  (float[]){1 / 6.0f - 2 * (first + second),
                            1 / 15.0f - 4 * (first + second + third),
                            1 / 14.0f - 6 * (second + third)},
                  NULL, NULL);
    /* One channel, k = 0: y = x · (x²)^-beta = x^(1 - 2 beta). At x = 1, dx = 1 - 2 beta. */
    for (float beta = 0.25f; beta <= 1; beta += 0.25f) {
        struct work alone = lrn_work(LRN_ACROSS, image_array(1, 1, 1, 4), 1, 1, beta, 0);
        float y[4], dx[4];
        for (int i = 0; i < 4; i++) {
            y[i] = powf((float)(i + 1), 1 - 2 * beta);
            dx[i] = (1 - 2 * beta) * powf((float)(i + 1), -2 * beta);
        }
        if (beta != 0.5f)
            assert_worked(&alone, LAYOUT_PLAIN, y, dx, NULL, NULL);
        else
            assert_flat(&alone, y);
    }
}

/* Every window holds the whole image: s = 1 + 9/9 · (1 + 4 + 9 + 16), and k does not count. */
static void test_normalisation_within_by_hand(void **state)
{
    (void)state;
    struct work work = lrn_work(LRN_WITHIN, image_array(1, 1, 2, 2), 3, 9, 1, 5);
    float y[4], dx[4];
    for (int i = 0; i < 4; i++) {
        y[i] = (float)(i + 1) / 31;
        dx[i] = 1 / 31.0f - 2 * (float)(i + 1) * 10 / 961.0f;
    }
    assert_worked(&work, LAYOUT_PLAIN, y, dx, NULL, NULL);
    /* A row of five: the middle sees its neighbours, 1 + (4 + 9 + 16), the ends one each. */
    struct work row = lrn_work(LRN_WITHIN, image_array(1, 1, 1, 5), 3, 9, 1, 1);
    assert_worked(&row, LAYOUT_PLAIN,
                  (float[]){1 / 6.0f, 2 / 15.0f, 3 / 30.0f, 4 / 51.0f, 5 / 42.0f}, NULL, NULL,
                  NULL);
}

static void test_pooling_by_caffes_rules(void **state)
{
    (void)state;
    /* 3×3 windows, stride 2, on 4×4: the second column and row run past the edge. */
    struct work past = pool_work(POOL_MAX, image_array(1, 1, 4, 4), 3, 2, 0);
    assert_int_equal(past.y.dim[2], 2);
    assert_worked(&past, LAYOUT_PLAIN, (float[]){11, 12, 15, 16},
                  (float[]){0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1}, NULL, NULL);
    past = pool_work(POOL_AVERAGE, image_array(1, 1, 4, 4), 3, 2, 0);
    assert_worked(&past, LAYOUT_PLAIN, (float[]){6, 7.5f, 12, 13.5f}, NULL, NULL, NULL);

    /* 2×2, stride 2, padding 1 on 3×3: a third window would start in the far padding. */
    struct work padded = pool_work(POOL_MAX, image_array(1, 1, 3, 3), 2, 2, 1);
    assert_int_equal(padded.y.dim[2], 2);
    assert_worked(&padded, LAYOUT_PLAIN, (float[]){1, 3, 7, 9}, NULL, NULL, NULL);
    padded = pool_work(POOL_AVERAGE, image_array(1, 1, 3, 3), 2, 2, 1);
    assert_worked(&padded, LAYOUT_PLAIN, (float[]){0.25f, 1.25f, 2.75f, 7},
                  (float[]){.25f, .25f, .25f, .25f, .25f, .25f, .25f, .25f, .25f}, NULL, NULL);

    /* 4×4, stride 3, padding 1 on 4×4: near padding counts in the divisor, and far padding too,
     * but not what lies beyond it. */
    struct work both = pool_work(POOL_AVERAGE, image_array(1, 1, 4, 4), 4, 3, 1);
    assert_worked(&both, LAYOUT_PLAIN, (float[]){54.0f / 16, 45.0f / 12, 72.0f / 12, 54.0f / 9},
                  NULL, NULL, NULL);
}

static void test_first_of_equals_is_the_maximum(void **state)
{
    (void)state;
    struct work work = pool_work(POOL_MAX, image_array(1, 20, 2, 2), 2, 2, 0);
    for (size_t s = 0; s < SETS; s++) {
        struct run run = run_counted(&work);
        for (size_t i = 0; i < run.x.n; i++)
            run.x.v[i] = -7;
        run_set(sets[s], &work, LAYOUT_PLAIN, &run);
        for (size_t i = 0; i < run.x.n; i++)
            assert_true(run.dx.v[i] == (i % 4 == 0 ? 1.0f : 0.0f));
        run_free(&run);
    }
}

static void test_window_without_a_pixel_is_refused(void **state)
{
    (void)state;
    struct shape x = image_array(1, 1, 4, 4), y = image_array(1, 1, 2, 2);
    struct pool_spec spec = {POOL_MAX, x, y, 1, 1, 4, 4, 0, 0, DTYPE_F32};
    struct arena arena;
    arena_init(&arena);
    for (size_t s = 0; s < SETS; s++) {
        struct op *op = NULL;
        struct err err = {0};
        assert_int_equal(sets[s]->pool(&spec, true, &arena, &op, &err), ERR_UNSUPPORTED);
        assert_null(op);
        assert_non_null(strstr(err.text, "no pixel"));
    }
    arena_release(&arena);
}

int main(void)
{
    kernels_set_threads(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolution_by_hand),
        cmocka_unit_test(test_groups_by_hand),
        cmocka_unit_test(test_dilation_by_hand),
        cmocka_unit_test(test_deconvolution_by_hand),
        cmocka_unit_test(test_normalisation_across_by_hand),
        cmocka_unit_test(test_normalisation_within_by_hand),
        cmocka_unit_test(test_pooling_by_caffes_rules),
        cmocka_unit_test(test_first_of_equals_is_the_maximum),
        cmocka_unit_test(test_window_without_a_pixel_is_refused),
        cmocka_unit_test(test_convolutions_agree),
        cmocka_unit_test(test_grouped_convolutions_agree),
        cmocka_unit_test(test_dilated_convolutions_agree),
        cmocka_unit_test(test_deconvolutions_agree),
        cmocka_unit_test(test_poolings_agree),
        cmocka_unit_test(test_maxima_of_equals_and_of_no_numbers),
        cmocka_unit_test(test_maxima_by_hand),
        cmocka_unit_test(test_poolings_rounded_down_agree),
        cmocka_unit_test(test_normalisations_agree),
        cmocka_unit_test(test_normalisation_looks_at_no_more_than_there_is),
        cmocka_unit_test(test_reference_has_the_same_bits_for_any_thread_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
