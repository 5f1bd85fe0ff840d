#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "nn/filler.h"

#include <math.h>
#include <string.h>

enum { N = 20000 };

static struct filler read_filler(const char *type, Caffe__FillerParameter *param,
                                 struct shape shape)
{
    struct filler filler;
    struct err err = {0};
    char name[24];
    strcpy(name, type);
    param->type = name;
    if (filler_read(param, &shape, &filler, &err) != OK)
        fail_msg("%s", err.text);
    param->type = NULL;
    return filler;
}

struct moments {
    double mean, deviation, min, max;
};

static struct moments measure_filler(const struct filler *filler, uint64_t seed, size_t parameter)
{
    static float x[N];
    filler_fill(filler, seed, parameter, 0, x, N);
    struct moments m = {0.0, 0.0, 1e9, -1e9};
    for (int i = 0; i < N; i++) {
        double v = (double)x[i];
        m.mean += v / N;
        m.min = v < m.min ? v : m.min;
        m.max = v > m.max ? v : m.max;
    }
    for (int i = 0; i < N; i++)
        m.deviation += ((double)x[i] - m.mean) * ((double)x[i] - m.mean) / N;
    m.deviation = sqrt(m.deviation);
    return m;
}

static void expect_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%g is not near %g", value, expected);
}

static void test_constant(void **state)
{
    (void)state;
    Caffe__FillerParameter param = CAFFE__FILLER_PARAMETER__INIT;
    struct filler filler;
    struct shape shape = {1, {10}};
    float x[3] = {1, 1, 1};
    assert_int_equal(filler_read(NULL, &shape, &filler, NULL), OK);
    filler_fill(&filler, 1, 0, 0, x, 3);
    assert_true(x[0] == 0.0f && x[2] == 0.0f);
    param.has_value = true;
    param.value = 0.25f;
    filler = read_filler("constant", &param, shape);
    filler_fill(&filler, 1, 0, 0, x, 3);
    assert_true(x[0] == 0.25f && x[2] == 0.25f);
}

/* xavier: uniform in ±sqrt(3/n); a convolution of 20x10x5x5 has n = 250 in, 500 out. */
static void test_xavier(void **state)
{
    (void)state;
    static const struct {
        Caffe__FillerParameter__VarianceNorm norm;
        double n;
    } cases[] = {
        {CAFFE__FILLER_PARAMETER__VARIANCE_NORM__FAN_IN, 250},
        {CAFFE__FILLER_PARAMETER__VARIANCE_NORM__FAN_OUT, 500},
        {CAFFE__FILLER_PARAMETER__VARIANCE_NORM__AVERAGE, 375},
    };
    struct shape shape = {4, {20, 10, 5, 5}};
    for (size_t i = 0; i < 3; i++) {
        Caffe__FillerParameter param = CAFFE__FILLER_PARAMETER__INIT;
        param.has_variance_norm = i > 0; /* the first is the default */
        param.variance_norm = cases[i].norm;
        struct filler filler = read_filler("xavier", &param, shape);
        struct moments m = measure_filler(&filler, 1, 0);
        double limit = sqrt(3.0 / cases[i].n);
        expect_near(m.max, limit, 1e-3 * limit);
        expect_near(m.min, -limit, 1e-3 * limit);
        expect_near(m.mean, 0.0, 0.03 * limit);
        expect_near(m.deviation, sqrt(1.0 / cases[i].n), 0.02 * limit);
    }
}

static void test_gaussian_and_msra(void **state)
{
    (void)state;
    Caffe__FillerParameter param = CAFFE__FILLER_PARAMETER__INIT;
    struct shape shape = {2, {10, 50}};
    struct filler filler = read_filler("msra", &param, shape);
    struct moments m = measure_filler(&filler, 1, 0);
    expect_near(m.mean, 0.0, 0.01);
    expect_near(m.deviation, 0.2, 0.005); /* sqrt(2/50) */
    param.has_mean = param.has_std = true;
    param.mean = 3.0f;
    param.std = 0.5f;
    filler = read_filler("gaussian", &param, shape);
    m = measure_filler(&filler, 1, 0);
    expect_near(m.mean, 3.0, 0.02);
    expect_near(m.deviation, 0.5, 0.01);
    assert_true(m.max > 4.5); /* has tails: three deviations */
}

static void test_uniform(void **state)
{
    (void)state;
    Caffe__FillerParameter param = CAFFE__FILLER_PARAMETER__INIT;
    struct filler filler = read_filler("uniform", &param, (struct shape){1, {4}});
    struct moments m = measure_filler(&filler, 1, 0);
    expect_near(m.min, 0.0, 1e-3);
    expect_near(m.max, 1.0, 1e-3);
    param.has_min = param.has_max = true;
    param.min = -2.0f;
    param.max = -1.0f;
    filler = read_filler("uniform", &param, (struct shape){1, {4}});
    m = measure_filler(&filler, 1, 0);
    expect_near(m.mean, -1.5, 0.02);
    expect_near(m.max, -1.0, 1e-3);
}

/* An element depends on seed, parameter and its own number: on nothing else. */
static void test_elements_are_pure(void **state)
{
    (void)state;
    struct filler filler = {.kind = FILLER_GAUSSIAN, .b = 1.0};
    float a[64], b[64];
    filler_fill(&filler, 1, 2, 0, a, 64);
    filler_fill(&filler, 1, 2, 0, b, 32);
    assert_memory_equal(a, b, 32 * sizeof(float));
    filler_fill(&filler, 1, 3, 0, b, 64);
    assert_memory_not_equal(a, b, sizeof a);
    for (int i = 0; i < 64; i++)
        assert_true(a[i] != b[i]);
    filler_fill(&filler, 2, 2, 0, b, 64);
    for (int i = 0; i < 64; i++)
        assert_true(a[i] != b[i]);
}

/* Of 40 outputs, 6 weights an output are to differ from 0: whatever there is besides, the mask
 * keeps 6/40 of all, and what stays is what it would be without. */
static void test_sparse(void **state)
{
    (void)state;
    static float x[N], all[N];
    Caffe__FillerParameter param = CAFFE__FILLER_PARAMETER__INIT;
    struct shape shape = {2, {40, N / 40}};
    struct filler dense = read_filler("gaussian", &param, shape);
    param.has_sparse = true;
    param.sparse = 6;
    struct filler filler = read_filler("gaussian", &param, shape);
    filler_fill(&filler, 1, 3, 0, x, N);
    filler_fill(&dense, 1, 3, 0, all, N);
    int kept = 0;
    for (int i = 0; i < N; i++) {
        assert_true(x[i] == 0.0f || x[i] == all[i]);
        kept += x[i] != 0.0f;
    }
    expect_near(kept, 0.15 * N, 4 * sqrt(0.15 * 0.85 * N));
    param.sparse = 0;
    filler = read_filler("gaussian", &param, shape);
    filler_fill(&filler, 1, 3, 0, x, N);
    for (int i = 0; i < N; i++)
        assert_true(x[i] == 0.0f);
    param.sparse = 40;
    filler = read_filler("gaussian", &param, shape);
    filler_fill(&filler, 1, 3, 0, x, N);
    assert_memory_equal(x, all, sizeof x);
}

/* Rows of one output each: positive, of sum 1, and before that uniform: an element's mean is 1/I
 * and its deviation about 1/(I sqrt(3)) where I is large. */
static void test_positive_unitball(void **state)
{
    (void)state;
    enum { I = 200 };
    static float x[N], again[N];
    Caffe__FillerParameter param = CAFFE__FILLER_PARAMETER__INIT;
    struct filler filler =
        read_filler("positive_unitball", &param, (struct shape){3, {N / I, 20, I / 20}});
    filler_fill(&filler, 1, 2, 0, x, N);
    double square = 0;
    for (int row = 0; row < N / I; row++) {
        double sum = 0;
        for (int i = row * I; i < (row + 1) * I; i++) {
            assert_true(x[i] > 0.0f);
            sum += (double)x[i];
            square += ((double)x[i] - 1.0 / I) * ((double)x[i] - 1.0 / I);
        }
        expect_near(sum, 1.0, 1e-6);
    }
    expect_near(sqrt(square / N), 1.0 / (I * sqrt(3.0)), 0.03 / I);
    filler_fill(&filler, 1, 2, 0, again, 3 * I);
    assert_memory_equal(x, again, 3 * I * sizeof(float));
    filler = read_filler("positive_unitball", &param, (struct shape){1, {5}});
    filler_fill(&filler, 1, 2, 0, x, 5);
    for (int i = 0; i < 5; i++)
        assert_true(x[i] == 1.0f);
}

/* Enlarging by two takes 4 taps, 1/4 3/4 3/4 1/4 along each side; by three 5 taps, 1/3 2/3 1 2/3
 * 1/3: a pixel's share falls off in a straight line. */
static void test_bilinear(void **state)
{
    (void)state;
    static const double four[] = {0.25, 0.75, 0.75, 0.25};
    static const double five[] = {1.0 / 3, 2.0 / 3, 1, 2.0 / 3, 1.0 / 3};
    Caffe__FillerParameter param = CAFFE__FILLER_PARAMETER__INIT;
    float x[2 * 3 * 25];
    struct filler filler = read_filler("bilinear", &param, (struct shape){4, {2, 3, 4, 4}});
    filler_fill(&filler, 1, 0, 0, x, 2 * 3 * 16);
    for (int i = 0; i < 2 * 3 * 16; i++)
        expect_near((double)x[i], four[i / 4 % 4] * four[i % 4], 1e-7);
    filler = read_filler("bilinear", &param, (struct shape){4, {2, 3, 5, 5}});
    filler_fill(&filler, 1, 0, 0, x, 2 * 3 * 25);
    for (int i = 0; i < 2 * 3 * 25; i++)
        expect_near((double)x[i], five[i / 5 % 5] * five[i % 5], 1e-7);
    filler = read_filler("bilinear", &param, (struct shape){4, {1, 1, 1, 1}});
    filler_fill(&filler, 1, 0, 0, x, 1);
    assert_true(x[0] == 1.0f);
}

/* Caffe's GoogLeNet says `type: "xavier" std: 0.1`, and means nothing by it. */
static void test_std_with_xavier(void **state)
{
    (void)state;
    Caffe__FillerParameter param = CAFFE__FILLER_PARAMETER__INIT;
    struct shape shape = {2, {10, 50}};
    struct filler plain = read_filler("xavier", &param, shape);
    param.has_std = true;
    param.std = 0.1f;
    struct filler filler = read_filler("xavier", &param, shape);
    assert_true(plain.a == filler.a && plain.b == filler.b);
}

static void expect_bad(Caffe__FillerParameter *param, const char *type, int status,
                       const char *phrase)
{
    struct err err = {0};
    struct filler filler;
    struct shape shape = {1, {4}};
    char name[24];
    strcpy(name, type);
    param->type = name;
    assert_int_equal(filler_read(param, &shape, &filler, &err), status);
    if (!strstr(err.text, phrase))
        fail_msg("\"%s\" does not say \"%s\"", err.text, phrase);
}

static void test_bad_fillers(void **state)
{
    (void)state;
    Caffe__FillerParameter unknown = CAFFE__FILLER_PARAMETER__INIT;
    expect_bad(&unknown, "trilinear", ERR_UNSUPPORTED,
               "\"trilinear\" is not supported; supported: ");
    Caffe__FillerParameter flat = CAFFE__FILLER_PARAMETER__INIT;
    expect_bad(&flat, "bilinear", ERR_INPUT, "fills square kernels, not 4");
    Caffe__FillerParameter sparse = CAFFE__FILLER_PARAMETER__INIT;
    sparse.has_sparse = true;
    sparse.sparse = 5; /* of four outputs */
    expect_bad(&sparse, "gaussian", ERR_INPUT, "sparse: 5");
    sparse.sparse = -2;
    expect_bad(&sparse, "gaussian", ERR_INPUT, "sparse: -2");
    sparse.sparse = 2;
    expect_bad(&sparse, "uniform", ERR_UNSUPPORTED, "sparse");
    expect_bad(&sparse, "positive_unitball", ERR_UNSUPPORTED, "sparse");
    Caffe__FillerParameter stray = CAFFE__FILLER_PARAMETER__INIT;
    stray.has_min = true;
    expect_bad(&stray, "xavier", ERR_UNSUPPORTED, "min");
    Caffe__FillerParameter norm = CAFFE__FILLER_PARAMETER__INIT;
    norm.has_variance_norm = true;
    expect_bad(&norm, "gaussian", ERR_UNSUPPORTED, "variance_norm");
    Caffe__FillerParameter negative = CAFFE__FILLER_PARAMETER__INIT;
    negative.has_std = true;
    negative.std = -1.0f;
    expect_bad(&negative, "gaussian", ERR_INPUT, "no distribution");
    Caffe__FillerParameter infinite = CAFFE__FILLER_PARAMETER__INIT;
    infinite.has_value = true;
    infinite.value = INFINITY;
    expect_bad(&infinite, "constant", ERR_INPUT, "constant");
    Caffe__FillerParameter empty = CAFFE__FILLER_PARAMETER__INIT;
    empty.has_min = true;
    empty.min = 2.0f;
    expect_bad(&empty, "uniform", ERR_INPUT, "2 and 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constant),
        cmocka_unit_test(test_xavier),
        cmocka_unit_test(test_gaussian_and_msra),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_elements_are_pure),
        cmocka_unit_test(test_bad_fillers),
        cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_positive_unitball),
        cmocka_unit_test(test_bilinear),
        cmocka_unit_test(test_std_with_xavier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
