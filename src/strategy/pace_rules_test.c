/* The parameters that `pace` takes from what is measured: by hand, and by what they are for, in a
 * linear system that these loops compute on their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "strategy/pace_rules.h"

#include <math.h>
#include <stdbool.h>

static void expect_near(double have, double want)
{
    if (!(fabs(have - want) <= 1e-6))
        fail_msg("%.9g, expected %.9g", have, want);
}

/* Computed in Python from the formulas of pace_rules.h. */
static void test_motion_by_hand(void **state)
{
    (void)state;
    static const struct {
        double momentum, gain;
        size_t contributors;
        uint64_t tau;
        double kappa, delta, share, gamma;
    } rows[] = {
        {0, -1, 1, 1, 1, 0.66666667, 0, 0},
        {0, -1, 8, 16, 1, 0.33333333, 0.875, 0.875},
        {0, -1, 4, 40, 1, 0, 0.75, 0.75},
        {0.9, -1, 8, 40, 0.36081935, 0.83333333, 0.875, 2.4250363},
        {0.9, -1, 16, 800, 0.98477409, 0, 0.9375, 0.95199499},
        {0.95, -1, 2, 30, 0.41843216, 0.75, 0.5, 1.1949368},
        {0.9, 0, 8, 40, 0.36081935, 0.83333333, 0, 0},
        {0, 0.5, 8, 40, 1, 0, 0.5, 0.5},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct pace_settings set = {.momentum = rows[i].momentum, .gain = rows[i].gain};
        const struct pace_motion motion = pace_motion(&set, rows[i].contributors, rows[i].tau);
        const struct pace_leap none = {.trained = PACE_RAMP};
        const struct mpca_config config = pace_config(&motion, &none);
        expect_near(motion.kappa, rows[i].kappa);
        expect_near(motion.delta, rows[i].delta);
        expect_near(motion.gain, rows[i].share);
        expect_near(motion.period, (double)rows[i].tau / (double)rows[i].contributors);
        expect_near((double)config.gamma / motion.period, rows[i].gamma);
        expect_near((double)config.fresh, (1 - rows[i].delta) / motion.period);
        assert_true(mpca_beta(&config, 0) == 1);
        assert_true(mpca_gamma(&config, 0) == config.gamma);
    }
}

/* Three exchanges of eight workers, without momentum: 4, 2 and 5 steps, of which δ is 0, 1/3 and 0.
 * The leaps are 7/8 of 4, 2 and 2 steps. Computed by hand from v_n of pace_rules.h. */
static void test_leaps_by_hand(void **state)
{
    (void)state;
    static const struct {
        uint64_t tau;
        double delta, fresh, gamma;
    } rows[] = {
        {32, 0.875, 0.25, 3.5},
        {16, 1 / 3.0 + 2 / 3.0 * (0.875 - 3.5 / 2), 1 / 3.0, 1.75},
        {40, 0.875 - 1.75 / 5, 0.2, 1.75},
    };
    const struct pace_settings set = {.gain = -1};
    struct pace_leap leap = {.trained = PACE_RAMP};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct pace_motion motion = pace_motion(&set, 8, rows[i].tau);
        const struct mpca_config config = pace_config(&motion, &leap);
        expect_near((double)config.delta, rows[i].delta);
        expect_near((double)config.fresh, rows[i].fresh);
        expect_near((double)config.gamma, rows[i].gamma);
        leap = pace_leap(&motion, &leap);
    }
}

/* κγ rises for 100 steps: four workers, 40 steps an exchange, without momentum. */
static void test_the_first_leaps_are_short(void **state)
{
    (void)state;
    static const double gain[] = {0, 0.3, 0.6, 0.75, 0.75};
    const struct pace_settings set = {.gain = -1};
    struct pace_leap leap = {0};
    for (size_t i = 0; i < sizeof gain / sizeof *gain; i++) {
        const struct pace_motion motion = pace_motion(&set, 4, 160);
        const struct mpca_config config = pace_config(&motion, &leap);
        double leapt = (double)leap.steps / 40;
        expect_near((double)config.gamma, 40 * gain[i]);
        expect_near((double)config.delta, gain[i] - leapt);
        leap = pace_leap(&motion, &leap);
        expect_near((double)leap.steps, 40 * gain[i]);
        expect_near((double)leap.trained, 40.0 * (double)(i + 1));
    }
}

/* ---- K workers on λx²/2, with heavy-ball momentum; a is the rate times λ ---- */

enum { K_MAX = 16, P_MAX = 50, PERIODS = 300 };

struct system {
    double a, momentum;
    size_t workers;
    uint64_t period;      /* steps */
    uint64_t rare, every; /* one of so many periods has `rare` steps; 0: none */
    double x[K_MAX], m[K_MAX];
};

static void take_steps(struct system *s, uint64_t steps)
{
    for (size_t i = 0; i < s->workers; i++)
        for (uint64_t t = 0; t < steps; t++) {
            s->m[i] = s->momentum * s->m[i] + s->a * s->x[i];
            s->x[i] -= s->m[i];
        }
}

static double mean_of(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] / (double)n;
    return sum;
}

/* Not a number, once something is. */
static double size_of(const struct system *s)
{
    double sum = 0;
    for (size_t i = 0; i < s->workers; i++)
        sum += (fabs(s->x[i]) + fabs(s->m[i])) / (double)s->workers;
    return sum;
}

/* All begin at other places, and far from 0. */
static void scatter_workers(struct system *s)
{
    for (size_t i = 0; i < s->workers; i++) {
        s->x[i] = 1 + (i % 2 ? 0.5 : -0.5) * (double)(i + 1) / (double)s->workers;
        s->m[i] = 0;
    }
}

static void average_workers(struct system *s)
{
    double mean = mean_of(s->x, s->workers);
    for (size_t i = 0; i < s->workers; i++)
        s->x[i] = mean;
}

static uint64_t period_of(const struct system *s, int n)
{
    return s->every > 0 && (uint64_t)n % s->every == s->every - 1 ? s->rare : s->period;
}

/* The share of a period that passes from contribution to result is about 0.25 with 12 shards in
 * three phases, plus about a step. */
static uint64_t usual_delay(uint64_t period)
{
    return period < 5 ? 1 : period / 4 + 1;
}

/* Does it not grow any more? */
static bool sync_is_stable(struct system s)
{
    scatter_workers(&s);
    for (int n = 0; n < PERIODS; n++) {
        take_steps(&s, period_of(&s, n));
        average_workers(&s);
    }
    return size_of(&s) < 1;
}

/* Returns the steps. */
static uint64_t run_pace(struct system *s, int exchanges, const double *kappa)
{
    const struct pace_settings set = {.momentum = s->momentum, .gain = -1};
    double sent[K_MAX], R = 1, v = 0;
    struct pace_leap leap = {0};
    uint64_t steps = 0;
    scatter_workers(s);
    for (int n = 0; n < exchanges; n++) {
        uint64_t period = period_of(s, n), delay = usual_delay(period);
        const struct pace_motion motion = pace_motion(&set, s->workers, s->workers * period);
        const struct mpca_config config = pace_config(&motion, &leap);
        leap = pace_leap(&motion, &leap);
        steps += period;
        take_steps(s, period - delay);
        for (size_t i = 0; i < s->workers; i++)
            sent[i] = s->x[i];
        take_steps(s, delay);
        double next = mean_of(sent, s->workers);
        v = (double)config.delta * v + (double)config.fresh * (next - R);
        R = next;
        for (size_t i = 0; i < s->workers; i++)
            s->x[i] += (kappa ? *kappa : motion.kappa) * (R + (double)config.gamma * v - sent[i]);
    }
    return steps;
}

static bool pace_is_stable(struct system s, const double *kappa)
{
    run_pace(&s, PERIODS, kappa);
    return size_of(&s) < 1;
}

static const uint64_t periods[] = {2, 3, 5, 7, 10, 14, 20, 30, P_MAX};

/* At rates at which `sync` trains, `pace` trains: up to a third of the least rate at which `sync`
 * is unstable. Above, there are narrow bands in which the distance grows by 2 to 14 % a period. */
static void test_pace_is_stable_where_sync_is(void **state)
{
    (void)state;
    static const double momenta[] = {0, 0.9, 0.95};
    static const size_t workers[] = {2, K_MAX};
    size_t checked = 0;
    for (size_t m = 0; m < 3; m++)
        for (size_t k = 0; k < 2; k++)
            for (size_t p = 0; p < sizeof periods / sizeof *periods; p++)
                for (double a = 0.002; a < 2; a *= 1.07) {
                    struct system s = {.a = 3 * a,
                                       .momentum = momenta[m],
                                       .workers = workers[k],
                                       .period = periods[p]};
                    if (!sync_is_stable(s))
                        break;
                    s.a = a;
                    if (!pace_is_stable(s, NULL))
                        fail_msg("momentum %g, K %zu, P %u, a %g", momenta[m], workers[k],
                                 (unsigned)periods[p], a);
                    checked++;
                }
    assert_true(checked > 3000);
}

static const uint64_t mixes[][3] = {{2, 20, 10}, {3, 30, 10}, {1, 10, 4}, {5, 50, 10}, {2, 20, 2}};

/* A member that stands still for a while makes a period long, once in a while. Did v leap the whole
 * of a long period, sixteen workers without momentum would be unstable in some places from a
 * hundredth of sync's rate on. */
static void test_pace_is_stable_with_long_periods(void **state)
{
    (void)state;
    static const double momenta[] = {0, 0.5, 0.9, 0.95};
    size_t checked = 0;
    for (size_t m = 0; m < 4; m++)
        for (size_t k = 2; k <= K_MAX; k *= 2)
            for (size_t p = 0; p < sizeof mixes / sizeof *mixes; p++)
                for (double a = 0.0005; a < 2; a *= 1.07) {
                    struct system s = {.a = 3 * a,
                                       .momentum = momenta[m],
                                       .workers = k,
                                       .period = mixes[p][0],
                                       .rare = mixes[p][1],
                                       .every = mixes[p][2]};
                    if (!sync_is_stable(s))
                        break;
                    s.a = a;
                    if (!pace_is_stable(s, NULL))
                        fail_msg("momentum %g, K %zu, P %u and %u, a %g", s.momentum, k,
                                 (unsigned)s.period, (unsigned)s.rare, a);
                    checked++;
                }
    assert_true(checked > 5000);
}

/* How many times as fast as one worker, once v has found its length. */
static double progress_of(struct system s)
{
    struct system half = s;
    uint64_t steps = run_pace(&half, 5 * PERIODS, NULL);
    double alone = s.a / (1 - s.momentum) * (double)(run_pace(&s, 10 * PERIODS, NULL) - steps);
    return log(fabs(mean_of(half.x, s.workers) / mean_of(s.x, s.workers))) / alone;
}

/* At a low rate K workers are K times as fast as one if periods are equal, and a fifth of that at
 * least if one in two or one in ten is as long as ten others. Were v the change of R in a step,
 * they would be twice as fast at times, however many they are. */
static void test_pace_is_fast_with_long_periods(void **state)
{
    (void)state;
    static const double momenta[] = {0, 0.5, 0.9, 0.95};
    for (size_t m = 0; m < 4; m++)
        for (size_t k = 4; k <= K_MAX; k *= 2)
            for (size_t p = 0; p < sizeof mixes / sizeof *mixes; p++) {
                struct system s = {.a = 2e-5 * (1 - momenta[m]),
                                   .momentum = momenta[m],
                                   .workers = k,
                                   .period = mixes[p][0],
                                   .rare = mixes[p][1],
                                   .every = mixes[p][2]};
                double faster = progress_of(s);
                if (faster < 0.2 * (double)k)
                    fail_msg("momentum %g, K %zu, P %u and %u: %.1f times as fast", s.momentum, k,
                             (unsigned)s.period, (unsigned)s.rare, faster);
            }
}

/* κ has a purpose: with all of the distance given up, workers part where `sync` is stable. */
static void test_without_kappa_the_distance_grows(void **state)
{
    (void)state;
    double kappa = 1;
    struct system s = {.a = 0.3, .momentum = 0.9, .workers = 2, .period = 10};
    s.a *= 3;
    assert_true(sync_is_stable(s));
    s.a /= 3;
    assert_false(pace_is_stable(s, &kappa));
    assert_true(pace_is_stable(s, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_motion_by_hand),
        cmocka_unit_test(test_leaps_by_hand),
        cmocka_unit_test(test_the_first_leaps_are_short),
        cmocka_unit_test(test_pace_is_stable_where_sync_is),
        cmocka_unit_test(test_pace_is_stable_with_long_periods),
        cmocka_unit_test(test_pace_is_fast_with_long_periods),
        cmocka_unit_test(test_without_kappa_the_distance_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
