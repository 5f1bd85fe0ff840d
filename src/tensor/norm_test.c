/* Normalising against plain sums in double, in all layouts and both dtypes, and the same bits on
 * any number of threads. Instruction sets: PACELINE_ISA. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/rng.h"
#include "sweep_stride.h"
#include "tensor/bf16.h"
#include "tensor/norm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct example {
    struct arena arena;
    struct norm norm;
    size_t N, C, S, n; /* n records of N */
    bool relu, adds, centred, copies, two;
    enum layout layout;
    enum dtype dtype;
    float *x, *z, *y, *dy, *dy2, *dz, *dx; /* as floats, whatever the images are */
};

enum { IMAGES = 7 };

/* Where channel c of a pixel of a record lies. */
static size_t index_of(const struct example *e, size_t r, size_t s, size_t c)
{
    size_t W = BLOCK_CHANNELS, first = r * e->C * e->S;
    switch (e->layout) {
    case LAYOUT_PLAIN: return first + c * e->S + s;
    case LAYOUT_NHWC: return first + s * e->C + c;
    case LAYOUT_BLOCKS: return first + (c / W * e->S + s) * W + c % W;
    }
    return SIZE_MAX;
}

/* Normal numbers, made once: they are most of the work of making examples. */
static float normal_number(size_t image, size_t i)
{
    enum { COUNT = 1 << 17 };
    static float number[COUNT];
    static bool made;
    for (size_t k = 0; k < COUNT && !made; k++)
        number[k] = rng_normal(7, 0, k);
    made = true;
    return number[(i + image * 10007) % COUNT];
}

static void open_example(struct example *e)
{
    const struct shape shape = {4, {e->N, e->C, e->S, 1}};
    size_t floats = e->N * e->C * e->S;
    float **const all[IMAGES] = {&e->x, &e->z, &e->y, &e->dy, &e->dy2, &e->dz, &e->dx};
    arena_init(&e->arena);
    assert_int_equal(norm_init(&e->norm, &shape, e->layout, e->dtype, true, &e->arena), OK);
    for (size_t k = 0; k < IMAGES; k++) {
        *all[k] = arena_array(&e->arena, floats, float);
        assert_non_null(*all[k]);
        for (size_t i = 0; i < floats; i++) {
            float v = normal_number(k, i) + (k == 0 ? 3.0f : 0.0f);
            (*all[k])[i] = e->dtype == DTYPE_BF16 ? bf16_float(bf16_nearest(v)) : v;
        }
    }
}

/* Images as norm takes them: the example's own, or copies. */
struct images {
    void *x, *z, *y, *dy, *dy2, *dz, *dx;
};

static struct images images_of(struct example *e)
{
    struct images to = {e->x, e->z, e->y, e->dy, e->dy2, e->dz, e->dx};
    void **const all[IMAGES] = {&to.x, &to.z, &to.y, &to.dy, &to.dy2, &to.dz, &to.dx};
    size_t n = e->N * e->C * e->S;
    for (size_t k = 0; k < IMAGES && e->dtype == DTYPE_BF16; k++) {
        bf16 *half = arena_array(&e->arena, n, bf16);
        assert_non_null(half);
        bf16_round(n, *all[k], half);
        *all[k] = half;
    }
    return to;
}

static void take_back(struct example *e, const struct images *from)
{
    size_t n = e->N * e->C * e->S;
    if (e->dtype == DTYPE_F32)
        return;
    bf16_widen(n, from->y, e->y);
    bf16_widen(n, from->dz, e->dz);
    bf16_widen(n, from->dx, e->dx);
}

static struct norm_flow flow_of(const struct example *e, const struct images *images)
{
    return (struct norm_flow){
        .mask = !e->relu  ? NORM_MASK_NONE
                : e->adds ? NORM_MASK_TOP
                          : NORM_MASK_SELF,
        .x = images->x,
        .y = images->y,
        .dy = images->dy,
        .dy2 = e->two ? images->dy2 : NULL,
    };
}

/* All operations, with terms that are made up. */
static void run_example(struct example *e, double *moments, double *sums)
{
    struct norm *norm = &e->norm;
    struct images images = images_of(e);
    struct norm_flow flow = flow_of(e, &images);
    size_t C = e->C;
    norm_moments(norm, e->n, images.x);
    memcpy(moments, norm->sum, 2 * C * sizeof *moments);
    for (size_t c = 0; c < C; c++) {
        norm->a[c] = rng_normal(8, 1, c);
        norm->b[c] = rng_normal(8, 2, c);
        norm->p[c] = rng_normal(8, 3, c);
        norm->q[c] = rng_normal(8, 4, c);
        norm->c[c] = rng_normal(8, 5, c);
    }
    norm_apply(norm, images.x, e->adds ? images.z : NULL, e->relu, images.y);
    norm_sums(norm, e->n, &flow, e->copies ? images.dz : NULL);
    memcpy(sums, norm->sum, 2 * C * sizeof *sums);
    norm_slopes(norm, e->n, &flow, e->centred, images.dx);
    take_back(e, &images);
}

static void expect_near(const char *what, double got, double want, double scale)
{
    if (!(fabs(got - want) <= 1e-6 * scale))
        fail_msg("%s is %.9g, not %.9g", what, got, want);
}

/* An element of an image: rounded, where that is of bf16, by half of the last of 8 bits. */
static void near_in_image(const struct example *e, const char *what, double got, double want,
                          double scale)
{
    double rounding = e->dtype == DTYPE_BF16 && want != 0 ? ldexp(1, ilogb(want) - 8) : 0;
    expect_near(what, got, want, scale + 1e6 * rounding);
}

/* The sums of one channel, over pixels in plain order. */
static void check_channel(const struct example *e, size_t c, const double *moments,
                          const double *sums)
{
    const struct norm *norm = &e->norm;
    double m = (double)(e->n * e->S), mean = 0, squares = 0, sum = 0, dot = 0, size = 0;
    for (size_t i = 0; i < e->n * e->S; i++)
        mean += (double)e->x[index_of(e, i / e->S, i % e->S, c)] / m;
    for (size_t i = 0; i < e->n * e->S; i++) {
        size_t k = index_of(e, i / e->S, i % e->S, c);
        double d = (double)e->x[k] - (double)norm->k[c];
        double y = (double)norm->a[c] * d + (double)norm->b[c] + (e->adds ? (double)e->z[k] : 0);
        float dy = e->two ? e->dy[k] + e->dy2[k] : e->dy[k];
        double want = e->relu && y < 0 ? 0 : y, g = e->relu && y <= 0 ? 0 : (double)dy;
        bool edge = fabs(y) < 1e-5;
        near_in_image(e, "y", (double)e->y[k], want, 5);
        if (e->copies && !edge)
            near_in_image(e, "g", (double)e->dz[k], g, 0);
        double dx = (double)norm->p[c] * g;
        if (e->centred)
            dx += (double)norm->q[c] * d + (double)norm->c[c];
        if (!edge)
            near_in_image(e, "dx", (double)e->dx[k], dx, 20);
        squares += ((double)e->x[k] - mean) * ((double)e->x[k] - mean);
        sum += g;
        dot += g * d;
        size += fabs(g) * (1 + fabs(d)) + (edge ? 1e6 : 0);
    }
    expect_near("mean", moments[c], mean, 3);
    expect_near("variance", moments[e->C + c], squares / m, squares / m);
    expect_near("sum", sums[c], sum, size);
    expect_near("product", sums[e->C + c], dot, size);
}

static void check_example(unsigned code, size_t C, size_t S, enum layout layout)
{
    enum { C_MAX = 100 };
    double moments[2 * C_MAX], sums[2 * C_MAX];
    struct example e = {.N = 11, .C = C, .S = S, .layout = layout};
    assert_true(C <= C_MAX);
    e.n = code & 1 ? 11 : 6;
    e.relu = code & 2;
    e.adds = code & 4;
    e.centred = code & 8;
    e.copies = code & 16 && (e.adds || !e.relu);
    e.dtype = code & 32 ? DTYPE_BF16 : DTYPE_F32;
    e.two = __builtin_parity(code); /* with either of all the others */
    open_example(&e);
    run_example(&e, moments, sums);
    for (size_t c = 0; c < e.C; c++)
        check_channel(&e, c, moments, sums);
    arena_release(&e.arena);
}

static void test_against_plain_sums(void **state)
{
    (void)state;
    enum { STRIDE = SWEEP_STRIDE(3, 3) };
    static const size_t channels[] = {1, 2, 3, 5, 16, 20, 48, 64, 100}, pixels[] = {1, 7, 64, 300};
    for (unsigned code = 0; code < 64; code++)
        for (size_t i = code & 32 ? 2 : 0; i < 9; i += code & 32 ? 2 : 1)
            for (size_t j = sweep_first(code + i, STRIDE, 4); j < (code & 32 ? 3 : 4);
                 j += STRIDE) {
                size_t C = channels[i], S = pixels[j];
                check_example(code, C, S, LAYOUT_PLAIN);
                check_example(code, C, S, LAYOUT_NHWC);
                if (C % BLOCK_CHANNELS == 0)
                    check_example(code, C, S, LAYOUT_BLOCKS);
            }
}

static void test_any_number_of_threads(void **state)
{
    (void)state;
    enum { C = 48, N = 21, S = 170, FLOATS = N * C * S };
    static const enum layout layouts[] = {LAYOUT_PLAIN, LAYOUT_NHWC, LAYOUT_BLOCKS};
    for (int kind = 0; kind < 6; kind++) {
        struct example e[3];
        double moments[3][2 * C], sums[3][2 * C];
        for (int i = 0; i < 3; i++) {
            e[i] = (struct example){.N = N,
                                    .C = C,
                                    .S = S,
                                    .n = N,
                                    .layout = layouts[kind % 3],
                                    .dtype = kind < 3 ? DTYPE_F32 : DTYPE_BF16,
                                    .relu = true,
                                    .adds = true,
                                    .centred = true,
                                    .copies = true};
            open_example(&e[i]);
            kernels_set_threads(i + 1);
            run_example(&e[i], moments[i], sums[i]);
            kernels_set_threads(1);
            assert_memory_equal(moments[i], moments[0], sizeof moments[0]);
            assert_memory_equal(sums[i], sums[0], sizeof sums[0]);
            assert_memory_equal(e[i].y, e[0].y, FLOATS * sizeof(float));
            assert_memory_equal(e[i].dx, e[0].dx, FLOATS * sizeof(float));
        }
        for (int i = 0; i < 3; i++)
            arena_release(&e[i].arena);
    }
}

/* Slices add up to the whole, and are what a batch of their own records gives, bit by bit. */
static void test_sums_of_slices(void **state)
{
    enum { C = 32, S = 30 };
    enum layout layout = *(const enum layout *)*state;
    struct example all = {.N = 40, .C = C, .S = S, .n = 40, .layout = layout};
    struct example part = {.N = 16, .C = C, .S = S, .n = 16, .layout = layout};
    double moments[2 * C], sums[2 * C], slice[2 * C], own[2 * C];
    open_example(&all);
    open_example(&part);
    run_example(&all, moments, sums);
    memset(part.norm.k, 0, C * sizeof(float));
    memset(all.norm.k, 0, C * sizeof(float));
    struct images images = images_of(&all), own_images = images_of(&part);
    struct norm_flow flow = flow_of(&all, &images);
    norm_sums(&all.norm, all.n, &flow, NULL);
    for (size_t first = 0; first < 40; first += 16) {
        size_t count = 40 - first < 16 ? 40 - first : 16;
        norm_sums_of(&all.norm, all.n, first, count, slice);
        memcpy(part.x, all.x + first * C * S, count * C * S * sizeof(float));
        memcpy(part.dy, all.dy + first * C * S, count * C * S * sizeof(float));
        flow = flow_of(&part, &own_images);
        norm_sums(&part.norm, count, &flow, NULL);
        memcpy(own, part.norm.sum, sizeof own);
        assert_memory_equal(slice, own, sizeof own);
    }
    arena_release(&all.arena);
    arena_release(&part.arena);
}

/* A NaN is not cut off as if it were below 0; and a constant has no variance. */
static void test_no_numbers_and_constants(void **state)
{
    (void)state;
    struct example e = {.N = 4, .C = 3, .S = 50, .n = 4, .layout = LAYOUT_NHWC, .relu = true};
    double moments[6], sums[6];
    open_example(&e);
    for (size_t i = 0; i < 4 * 50; i++)
        e.x[i * 3 + 1] = 12345.678f;
    e.x[3 * 77] = NAN;
    run_example(&e, moments, sums);
    assert_true(isnan(moments[0]) && isnan(moments[3]) && isnan(e.y[3 * 77]));
    assert_true(moments[1] == (double)12345.678f && moments[4] == 0);
    assert_false(isnan(moments[2]) || isnan(moments[5]));
    arena_release(&e.arena);
}

int main(void)
{
    static enum layout nhwc = LAYOUT_NHWC, blocks = LAYOUT_BLOCKS;
    kernels_set_threads(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_plain_sums),
        cmocka_unit_test(test_any_number_of_threads),
        cmocka_unit_test_prestate(test_sums_of_slices, &nhwc),
        cmocka_unit_test_prestate(test_sums_of_slices, &blocks),
        cmocka_unit_test(test_no_numbers_and_constants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
