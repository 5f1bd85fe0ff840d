/* The state of a net, s: what BatchNorm keeps there, who changes it, and who only reads it. */
#include "nn/fixture.h"

#include <malloc.h>

#define DATA "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n"
#define NORM(name, bottom, top, fields)                                                \
    "layer { name: '" name "' type: 'BatchNorm' bottom: '" bottom "' top: '" top "'\n" \
    " batch_norm_param { " fields " } }\n"
#define CONV                                                                \
    "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'\n" \
    " convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: 'xavier' } } }\n"
#define SCALE(bottom, top)                                                   \
    "layer { name: 'sc' type: 'Scale' bottom: '" bottom "' top: '" top "'\n" \
    " scale_param { bias_term: true } }\n"
#define RELU(bottom, top) \
    "layer { name: 'relu' type: 'ReLU' bottom: '" bottom "' top: '" top "' }\n"
#define HEAD(bottom)                                                              \
    "layer { name: 'ip' type: 'InnerProduct' bottom: '" bottom "' top: 'ip'\n"    \
    " inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n" \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n"

static const struct shape image = {3, {3, 9, 8}};

/* Two records of one channel of two pixels: 1, 3 and 5, 7. Their mean is 4, their variance 5, and
 * 20/3 by m − 1. With f = 1/2 a second batch of the same leaves 6, 10 and 1.5; and what is tested
 * with that has the mean 4 and the variance 20/3 again, of which eps makes 9. */
static void test_running_sums_by_hand(void **state)
{
    (void)state;
    static const char net[] =
        DATA NORM("n", "data", "n", "moving_average_fraction: 0.5 eps: 2.3333333") HEAD("n");
    const float data[] = {1, 3, 5, 7};
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture train, test;
        float y[4];
        fixture_open(&train, net, PHASE_TRAIN, 2, (struct shape){3, {1, 1, 2}}, fixture_kernels[k]);
        fixture_open(&test, net, PHASE_TEST, 2, (struct shape){3, {1, 1, 2}}, fixture_kernels[k]);
        const struct segments *table = net_state_segments(train.net);
        assert_true(segments_match(table, net_state_segments(test.net)));
        const float *s[3];
        for (size_t i = 0; i < 3; i++)
            s[i] = train.s.at + table->at[i].offset;
        assert_true(*s[0] == 0 && *s[1] == 0 && *s[2] == 0);
        memcpy(train.data, data, sizeof data);
        memcpy(test.data, data, sizeof data);
        fixture_forward(&train);
        fixture_near(*s[0], 4, 1e-6);
        fixture_near(*s[1], 20.0 / 3, 1e-6);
        fixture_near(*s[2], 1, 0);
        fixture_forward(&train);
        fixture_near(*s[0], 6, 1e-6);
        fixture_near(*s[1], 10, 1e-6);
        fixture_near(*s[2], 1.5, 0);
        vec_copy(&test.s, &train.s, vec_all(&test.s));
        fixture_forward(&test);
        assert_int_equal(net_blob(test.net, "n", y, 4, NULL), 4);
        for (int i = 0; i < 4; i++)
            fixture_near(y[i], (double)(i - 1.5) * 2 / 3, 1e-6);
        fixture_close(&train);
        fixture_close(&test);
    }
}

/* Before any training the sums and their count are 0, and so is what is taken for their mean. */
static void test_sums_of_nothing(void **state)
{
    (void)state;
    struct fixture f;
    float y[2 * 216];
    fixture_open(&f, DATA NORM("n", "data", "n", "eps: 0.25") HEAD("n"), PHASE_TEST, 2, image,
                 &kernels_ref);
    fixture_forward(&f);
    assert_int_equal(net_blob(f.net, "n", y, 2 * 216, NULL), 2 * 216);
    for (size_t i = 0; i < 2 * 216; i++)
        fixture_near(y[i], 2.0 * (double)f.data[i], 1e-6);
    fixture_close(&f);
}

/* Testing changes nothing, not even by the batch's own statistics, and neither does training with
 * the running sums. */
static void test_who_leaves_state_alone(void **state)
{
    (void)state;
    static const struct {
        enum phase phase;
        const char *net;
        bool moves;
    } cases[] = {
        {PHASE_TRAIN, DATA NORM("n", "data", "n", "") HEAD("n"), true},
        {PHASE_TRAIN, DATA NORM("n", "data", "n", "use_global_stats: false") HEAD("n"), true},
        {PHASE_TRAIN, DATA NORM("n", "data", "n", "use_global_stats: true") HEAD("n"), false},
        {PHASE_TEST, DATA NORM("n", "data", "n", "") HEAD("n"), false},
        {PHASE_TEST, DATA NORM("n", "data", "n", "use_global_stats: false") HEAD("n"), false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture f;
        fixture_open(&f, cases[i].net, cases[i].phase, 4, image, &kernels_ref);
        vec_fill(&f.s, vec_all(&f.s), 1.0f);
        fixture_forward(&f);
        bool moved = false;
        for (size_t k = 0; k < f.s.n; k++)
            moved |= f.s.at[k] != 1.0f;
        if (moved != cases[i].moves)
            fail_msg("case %zu: state %s", i, moved ? "moves" : "stays");
        fixture_close(&f);
    }
}

/* A batch that is not full normalises by the records there are: loss, gradient and state are those
 * of a net that is made for so many. */
static void test_partial_batch(void **state)
{
    (void)state;
    static const char net[] = DATA CONV NORM("n", "conv", "conv", "") SCALE("conv", "conv")
        RELU("conv", "conv") HEAD("conv");
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture large, small;
        fixture_open(&large, net, PHASE_TRAIN, 7, image, fixture_kernels[k]);
        fixture_open(&small, net, PHASE_TRAIN, 3, image, fixture_kernels[k]);
        fixture_gradient(&large);
        vec_fill(&large.s, vec_all(&large.s), 0.0f);
        large.batch.count = 3;
        double a = fixture_gradient(&large).loss, b = fixture_gradient(&small).loss;
        fixture_near(a, b, 1e-5);
        for (size_t i = 0; i < large.dx.n; i++)
            fixture_near((double)large.dx.at[i], (double)small.dx.at[i], 2e-5);
        for (size_t i = 0; i < large.s.n; i++)
            fixture_near((double)large.s.at[i], (double)small.s.at[i], 1e-6);
        fixture_close(&large);
        fixture_close(&small);
    }
}

/* In place changes no number. Values that backward reads are kept all the same: BatchNorm's top,
 * which Scale may not write over, and Scale's bottom. Only BatchNorm saves memory, over conv, and
 * ReLU over Scale's top. */
static void test_in_place(void **state)
{
    (void)state;
    static const char in_place[] = DATA CONV NORM("n", "conv", "conv", "") SCALE("conv", "conv")
        RELU("conv", "conv") HEAD("conv");
    static const char apart[] =
        DATA CONV NORM("n", "conv", "n", "") SCALE("n", "sc") RELU("sc", "r") HEAD("r");
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture in, out;
        fixture_open(&in, in_place, PHASE_TRAIN, 5, image, fixture_kernels[k]);
        fixture_open(&out, apart, PHASE_TRAIN, 5, image, fixture_kernels[k]);
        assert_true(fixture_gradient(&in).loss == fixture_gradient(&out).loss);
        assert_memory_equal(in.dx.at, out.dx.at, in.dx.n * sizeof(float));
        assert_memory_equal(in.s.at, out.s.at, in.s.n * sizeof(float));
        size_t saved = net_memory(out.net).activations - net_memory(in.net).activations;
        assert_int_equal(saved, 2 * 848 * sizeof(float)); /* 5·4·7·6 in whole lines */
        fixture_close(&in);
        fixture_close(&out);
    }
}

/* Two learners take turns on one net, each with a state of its own. */
static void test_learners_share(void **state)
{
    (void)state;
    static const char net[] =
        DATA CONV NORM("n", "conv", "n", "") SCALE("n", "sc") RELU("sc", "sc") HEAD("sc");
    struct fixture f, alone;
    fixture_open(&f, net, PHASE_TRAIN, 4, image, &kernels_ref);
    fixture_open(&alone, net, PHASE_TRAIN, 4, image, &kernels_ref);
    struct vec x, s;
    assert_int_equal(vec_init(&x, &f.arena, f.x.n), OK);
    assert_int_equal(vec_init(&s, &f.arena, f.s.n), OK);
    net_init(f.net, 2, &x, &s);
    for (int step = 0; step < 3; step++) {
        struct net_result other;
        net_forward(f.net, &x, &s, &f.batch, &other);
        assert_true(fixture_gradient(&f).loss == fixture_gradient(&alone).loss);
    }
    assert_memory_equal(f.s.at, alone.s.at, f.s.n * sizeof(float));
    assert_memory_equal(f.dx.at, alone.dx.at, f.dx.n * sizeof(float));
    assert_memory_not_equal(f.s.at, s.at, f.s.n * sizeof(float));
    fixture_close(&f);
    fixture_close(&alone);
}

/* The normalised values have mean 0 and variance 1, at any scale and with any number of threads. */
static void test_any_number_of_threads(void **state)
{
    (void)state;
    static const char net[] =
        DATA CONV NORM("n", "conv", "n", "") SCALE("n", "sc") RELU("sc", "sc") HEAD("sc");
    enum { N = 32, FLOATS = N * 4 * 30 * 30 };
    const struct shape large = {3, {3, 32, 32}};
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture f;
        fixture_open(&f, net, PHASE_TRAIN, N, large, fixture_kernels[k]);
        float *y[2];
        for (int i = 0; i < 2; i++) {
            y[i] = arena_array(&f.arena, FLOATS, float);
            kernels_set_threads(i == 0 ? 1 : 3);
            vec_fill(&f.s, vec_all(&f.s), 0.0f);
            fixture_forward(&f);
            assert_int_equal(net_blob(f.net, "n", y[i], FLOATS, NULL), FLOATS);
        }
        kernels_set_threads(1);
        if (fixture_kernels[k] == &kernels_ref)
            assert_memory_equal(y[0], y[1], FLOATS * sizeof(float));
        for (size_t c = 0; c < 4; c++) {
            double sum = 0, squares = 0;
            for (size_t i = 0; i < N * 900; i++) {
                double v = (double)y[1][(i / 900 * 4 + c) * 900 + i % 900];
                sum += v;
                squares += v * v;
            }
            fixture_near(sum / (N * 900), 0, 1e-5);
            fixture_near(squares / (N * 900), 1, 1e-3); /* eps takes a little */
        }
        fixture_close(&f);
    }
}

static void test_steps_do_not_allocate(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, DATA CONV NORM("n", "conv", "conv", "") SCALE("conv", "conv") HEAD("conv"),
                 PHASE_TRAIN, 6, image, &kernels_ref);
    fixture_gradient(&f); /* OpenMP starts its threads on first use */
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < 10; i++)
        fixture_gradient(&f);
    assert_int_equal(mallinfo2().uordblks, before);
    fixture_close(&f);
}

int main(void)
{
    kernels_set_threads(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_running_sums_by_hand),
        cmocka_unit_test(test_sums_of_nothing),
        cmocka_unit_test(test_who_leaves_state_alone),
        cmocka_unit_test(test_partial_batch),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_learners_share),
        cmocka_unit_test(test_any_number_of_threads),
        cmocka_unit_test(test_steps_do_not_allocate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
