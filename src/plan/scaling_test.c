#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/scaling.h"

#include <math.h>

static bool is_near(double a, double b, double relative)
{
    return fabs(a - b) <= relative * fabs(b);
}

static struct scaling make_async(struct scaling s)
{
    s.kind = SCALING_ASYNC;
    return s;
}

/* 100 samples on 4 workers of 10 samples/s take 2.5 s, and an exchange 1 + 4·0.5 = 3 s. */
static void test_scaling_of_four_workers_by_hand(void **state)
{
    (void)state;
    const struct scaling sync = {SCALING_SYNC, 10, 1, 0.5}, async = make_async(sync);
    assert_true(is_near(scaling_step(&sync, 100, 4), 5.5, 1e-12));
    assert_true(is_near(scaling_step(&async, 100, 4), 3, 1e-12));
    assert_true(is_near(scaling_throughput(&sync, 100, 4), 100 / 5.5, 1e-12));
    assert_true(is_near(scaling_speedup(&sync, 100, 4), 10 / 5.5, 1e-12));
    assert_true(is_near(scaling_speedup(&async, 100, 4), 10 / 3.0, 1e-12));
    assert_true(is_near(scaling_efficiency(&async, 100, 4), 10 / 12.0, 1e-12));
    assert_true(is_near(scaling_ratio(&sync, 100, 4), 2.5 / 3, 1e-12));
    /* 1000 samples: ten steps; 4 workers at 0.01 a second. */
    assert_true(is_near(scaling_time(&sync, 1000, 100, 4), 55, 1e-12));
    assert_true(is_near(scaling_cost(&sync, 1000, 100, 4, 0.01), 2.2, 1e-12));
    assert_true(is_near(scaling_cost(&async, 1000, 100, 4, 0.01), 1.2, 1e-12));
    /* 1000 samples are 100 worker-seconds of computing, and 10 exchanges of 4 workers for 3 s. */
    assert_true(is_near(scaling_compute_total(&sync, 1000), 100, 1e-12));
    assert_true(is_near(scaling_comm_total(&sync, 1000, 100, 4), 120, 1e-12));
}

/* ---- against the printed forms ---- */

static const struct scaling models[] = {
    {SCALING_SYNC, 10, 0.2, 0.03},   {SCALING_SYNC, 10, 0.8, 0.028}, {SCALING_SYNC, 260, 2, 0.024},
    {SCALING_SYNC, 260, 0.8, 0.028}, {SCALING_SYNC, 10, 0, 0.03},    {SCALING_SYNC, 10, 0.5, 0},
};
enum { MODELS = sizeof models / sizeof *models };

static void check_printed_forms(const struct scaling *sync, double B, double N)
{
    const struct scaling async = make_async(*sync);
    const double a = sync->alpha, b = sync->beta, g = sync->gamma, samples = 1e6, near = 1e-12;
    const double sum = B + a * g * N + b * g * N * N;
    assert_true(is_near(scaling_time(sync, samples, B, N), samples * sum / (B * g * N), near));
    assert_true(is_near(scaling_cost(sync, samples, B, N, g), samples * sum / B, near));
    assert_true(is_near(scaling_speedup(sync, B, N), B * N / sum, near));
    assert_true(is_near(scaling_efficiency(sync, B, N), B / (g * N * (a + b * N) + B), near));
    assert_true(is_near(scaling_time(&async, samples, B, N),
                        samples * fmax(1 / (g * N), (a + b * N) / B), near));
    assert_true(is_near(scaling_cost(&async, samples, B, N, g),
                        samples * fmax(1, (a * g * N + b * g * N * N) / B), near));
    assert_true(is_near(scaling_speedup(&async, B, N), fmin(N, B / (a * g + b * g * N)), near));
    assert_true(
        is_near(scaling_efficiency(&async, B, N), fmin(1, B / (g * N * (a + b * N))), near));
}

/* Eq. 3.5 to 3.8 and 3.11 to 3.14. Samples are in the place of epochs, and γ in that of a price. */
static void test_scaling_gives_the_printed_forms(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++)
        for (double B = 16; B <= 16384; B *= 2)
            for (double N = 1; N <= 256; N *= 2)
                check_printed_forms(&models[i], B, N);
}

/* No N near it, and none far away, is faster than the maximum. */
static void test_scaling_maximum_is_one(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++)
        for (int kind = SCALING_SYNC; kind <= SCALING_ASYNC; kind++)
            for (double B = 16; B <= 16384; B *= 2) {
                struct scaling s = models[i];
                s.kind = kind;
                struct scaling_best best = scaling_maximum(&s, B);
                for (double factor = 1e-3; factor < 1e3; factor *= 1.03) {
                    double N = factor * (isinf(best.N) ? 100 : best.N);
                    assert_true(scaling_speedup(&s, B, N) <= best.S * (1 + 1e-12));
                }
                double far = isinf(best.N) ? 1e12 : best.N;
                assert_true(is_near(scaling_speedup(&s, B, far), best.S, 1e-6));
                assert_true(isinf(best.N) ? best.r == 0
                                          : is_near(scaling_ratio(&s, B, far), best.r, 1e-9));
            }
}

/* Eq. 3.16 and Eq. 3.18 as printed; α = 0 and β > 0 are among the models. */
static void test_scaling_asynchronous_maximum_as_printed(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++)
        for (double B = 16; B <= 16384 && models[i].beta > 0; B *= 2) {
            const struct scaling s = make_async(models[i]);
            double half = s.alpha / (2 * s.beta);
            double N = -half + sqrt(half * half + B / (s.beta * s.gamma));
            struct scaling_best best = scaling_maximum(&s, B);
            assert_true(is_near(best.N, N, 1e-9) && best.S == best.N && best.r == 1);
            assert_true(is_near(B / (s.alpha * s.gamma + s.beta * s.gamma * N), N, 1e-9));
        }
}

static void test_scaling_without_exchanges_has_no_maximum(void **state)
{
    (void)state;
    for (int kind = SCALING_SYNC; kind <= SCALING_ASYNC; kind++) {
        struct scaling s = {.gamma = 10};
        s.kind = kind;
        struct scaling_best best = scaling_maximum(&s, 64), whole = scaling_best_whole(&s, 64, 7);
        assert_true(isinf(best.N) && isinf(best.S) && isinf(best.r));
        assert_true(whole.N == 7 && is_near(whole.S, 7, 1e-12));
        assert_true(isinf(scaling_workers_for_ratio(&s, 64, 1)));
    }
}

/* ---- inverses ---- */

/* The root of Eq. 6.11 has the ratio; its last form has it only where α is 0. */
static void test_scaling_workers_for_ratio(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++)
        for (double r = 0.1; r < 10; r *= 2) {
            const struct scaling *s = &models[i];
            double N = scaling_workers_for_ratio(s, 512, r);
            assert_true(is_near(scaling_ratio(s, 512, N), r, 1e-9));
            if (s->beta == 0)
                continue;
            double printed = scaling_workers_as_printed(s, 512, r);
            assert_true(is_near(printed * printed * r * s->beta * s->gamma, 512, 1e-9));
            assert_int_equal(is_near(scaling_ratio(s, 512, printed), r, 1e-9), s->alpha == 0);
        }
}

static void test_scaling_batch_for_efficiency(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++)
        for (double N = 2; N <= 64; N *= 2)
            for (double E = 0.1; E < 1; E += 0.1) {
                const struct scaling *sync = &models[i], async = make_async(*sync);
                double B = scaling_batch_for_efficiency(sync, E, N);
                double overlapped = scaling_batch_for_efficiency(&async, E, N);
                assert_true(is_near(scaling_efficiency(sync, B, N), E, 1e-9));
                assert_true(is_near(scaling_efficiency(&async, overlapped, N), E, 1e-9));
                assert_true(is_near(B, overlapped / (1 - E), 1e-9)); /* §3.6 */
            }
}

/* With a fixed b = B/N both speed-ups rise towards b/(βγ). The paper's decline does not occur. */
static void test_scaling_weak(void **state)
{
    (void)state;
    for (int kind = SCALING_SYNC; kind <= SCALING_ASYNC; kind++) {
        const double b = 64;
        struct scaling s = models[1];
        s.kind = kind;
        double last = 0, limit = scaling_weak_limit(&s, b);
        for (double N = 1; N < 1e9; N *= 1.5) {
            double S = scaling_speedup(&s, b * N, N);
            assert_true(S > last && S <= limit);
            last = S;
        }
        assert_true(is_near(limit, 64 / 0.28, 1e-12) && is_near(last, limit, 1e-6));
    }
    assert_true(isinf(scaling_weak_limit(&models[5], 64)));
}

/* ---- whole numbers ---- */

static void test_scaling_best_whole_number(void **state)
{
    (void)state;
    int alone = 0, limited = 0;
    for (int i = 0; i < MODELS; i++)
        for (int kind = SCALING_SYNC; kind <= SCALING_ASYNC; kind++)
            for (double B = 16; B <= 16384; B *= 2)
                for (size_t most = 1; most <= 40; most++) {
                    struct scaling s = models[i];
                    s.kind = kind;
                    size_t best = 1;
                    double S = 1;
                    for (size_t N = 2; N <= most; N++)
                        if (scaling_speedup(&s, B, (double)N) > S)
                            best = N, S = scaling_speedup(&s, B, (double)N);
                    struct scaling_best is = scaling_best_whole(&s, B, most);
                    assert_true(is.N == (double)best && is.S == S);
                    alone += best == 1;
                    limited += best == most;
                }
    assert_true(alone > 100 && limited > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scaling_of_four_workers_by_hand),
        cmocka_unit_test(test_scaling_gives_the_printed_forms),
        cmocka_unit_test(test_scaling_maximum_is_one),
        cmocka_unit_test(test_scaling_asynchronous_maximum_as_printed),
        cmocka_unit_test(test_scaling_without_exchanges_has_no_maximum),
        cmocka_unit_test(test_scaling_workers_for_ratio),
        cmocka_unit_test(test_scaling_batch_for_efficiency),
        cmocka_unit_test(test_scaling_weak),
        cmocka_unit_test(test_scaling_best_whole_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
