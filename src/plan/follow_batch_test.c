#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/batch_growth.h"
#include "plan/follow_batch.h"

#include <math.h>

/* 1,000 samples/s a worker; an exchange takes 8 ms and 2 ms a worker. With B samples and N > 1
 * workers a step takes B/N + 8 + 2N ms; one alone takes B ms. */
static const struct follow_batch rule = {
    .model = {SCALING_SYNC, 1000, 0.008, 0.002}, .least = 1, .most = 8};

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-12;
}

static void test_follow_batch_step_by_hand(void **state)
{
    (void)state;
    assert_true(is_near(follow_batch_step(&rule, 32, 1), 0.032));
    assert_true(is_near(follow_batch_step(&rule, 32, 2), 0.028));
    assert_true(is_near(follow_batch_step(&rule, 32, 4), 0.024));
    assert_true(is_near(follow_batch_step(&rule, 704, 8), 0.112));
    struct follow_batch f = rule;
    f.fixed_s = 0.01;
    assert_true(is_near(follow_batch_step(&f, 32, 1), 0.042));
    assert_true(is_near(follow_batch_step(&f, 32, 2), 0.038));
    f.model.kind = SCALING_ASYNC;
    assert_true(is_near(follow_batch_step(&f, 32, 2), 0.026)); /* the exchange takes 12 ms */
    assert_true(is_near(follow_batch_step(&f, 32, 8), 0.024)); /* the step takes 14 ms */
}

/* √(B/2) is the best of several (Eq. 3.15). At 16 samples two take 20 ms and one takes 16; 4 are
 * best at 32; 8, the most, from 128 on. */
static void test_follow_batch_takes_the_fastest_number(void **state)
{
    (void)state;
    static const struct {
        double B;
        size_t N;
    } want[] = {{10, 1}, {16, 1}, {32, 4}, {50, 5}, {72, 6}, {98, 7}, {128, 8}, {704, 8}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        for (size_t now = 0; now <= 9; now++)
            assert_int_equal(follow_batch_workers(&rule, want[i].B, 1e9, now), want[i].N);
    struct follow_batch three = rule;
    three.least = three.most = 3;
    assert_int_equal(follow_batch_workers(&three, 704, 1e9, 3), 3);
}

/* For 72 samples 4 workers take 34 ms, and 6 take 32: a saving of 5.9 %. */
static void test_follow_batch_keeps_its_number_for_little(void **state)
{
    (void)state;
    struct follow_batch f = rule;
    f.gain = 0.05;
    assert_int_equal(follow_batch_workers(&f, 72, 1e9, 4), 6);
    f.gain = 0.06;
    assert_int_equal(follow_batch_workers(&f, 72, 1e9, 4), 4);
    assert_int_equal(follow_batch_workers(&f, 72, 1e9, 9), 6); /* not one of the numbers */
}

/* Two workers at half a second each cost as much as 500 steps of 72 samples save, which are 36,000
 * samples. */
static void test_follow_batch_change_pays_for_itself(void **state)
{
    (void)state;
    struct follow_batch f = rule;
    f.change_s = 0.5;
    assert_int_equal(follow_batch_workers(&f, 72, 36001, 4), 6);
    assert_int_equal(follow_batch_workers(&f, 72, 35999, 4), 4);
    assert_int_equal(follow_batch_workers(&f, 72, 0, 4), 4);
    f.change_s = 0; /* nor does one that costs nothing, where nothing is left */
    assert_int_equal(follow_batch_workers(&f, 72, 1, 4), 6);
    assert_int_equal(follow_batch_workers(&f, 72, 0, 4), 4);
}

/* Eq. 6.11: 2N² + 8N = B/r. For 100 samples and r = 1 its root is 5.3 and its last form 7.07; 7 are
 * the fastest. A root of 4 is 4 workers, and none is below the least or above the fastest. */
static void test_follow_batch_takes_the_number_for_a_ratio(void **state)
{
    (void)state;
    static const struct {
        double B, r;
        size_t root, printed;
    } want[] = {{100, 1, 5, 7}, {100, 5, 1, 3}, {64, 1, 4, 5}, {100, 0.1, 7, 7}, {100, 1e6, 1, 1}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct follow_batch f = rule;
        f.ratio = want[i].r;
        assert_int_equal(follow_batch_workers(&f, want[i].B, 1e9, 0), want[i].root);
        f.printed = true;
        assert_int_equal(follow_batch_workers(&f, want[i].B, 1e9, 0), want[i].printed);
    }
}

/* 7 workers take 218 worker-ms for 64 samples, and 4 take 128, a saving of 41 %. Three that go cost
 * 7 · 3 · 0.5 worker-seconds, the saving of 117 steps, which are 7,467 samples. */
static void test_follow_batch_releases_workers_for_a_ratio(void **state)
{
    (void)state;
    struct follow_batch f = rule;
    f.ratio = 1;
    f.gain = 0.4;
    f.change_s = 0.5;
    assert_int_equal(follow_batch_workers(&f, 64, 7468, 7), 4);
    assert_int_equal(follow_batch_workers(&f, 64, 7466, 7), 7);
    f.gain = 0.42;
    assert_int_equal(follow_batch_workers(&f, 64, 1e9, 7), 7);
    f.ratio = 0;
    assert_int_equal(follow_batch_workers(&f, 64, 1e9, 7), 7); /* time alone counts */
}

/* Over a run from 32 to 704 with the power 2 the number rises and never falls. Hysteresis leaves
 * fewer changes; no step then takes more than 1 / (1 - gain) of the fastest. */
static void test_follow_batch_over_a_run(void **state)
{
    (void)state;
    const struct batch_growth g = {32, 704, 2};
    for (int k = 0; k < 2; k++) {
        struct follow_batch f = rule;
        f.most = 32;
        struct follow_batch fastest = f;
        f.gain = k * 0.1;
        size_t now = 1, changes = 0;
        double time = 0, best = 0, all = 4 * 60000;
        for (double seen = 0; seen < all;) {
            double B = batch_growth_at(&g, seen / all);
            size_t n = follow_batch_workers(&f, B, all - seen, now);
            assert_true(n >= now);
            changes += n != now;
            now = n;
            time += follow_batch_step(&f, B, now);
            best += follow_batch_step(&f, B, follow_batch_workers(&fastest, B, 1e18, 0));
            seen += B;
        }
        assert_true(now > (k == 0 ? 17 : 9)); /* √(704/2) is 18.8 */
        print_message("    gain %.2f: %zu changes to %zu workers, %.4f of the best time\n", f.gain,
                      changes, now, time / best);
        assert_true(k == 0 ? changes > 10 : changes < 5);
        assert_true(time <= best / (1 - f.gain));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follow_batch_step_by_hand),
        cmocka_unit_test(test_follow_batch_takes_the_fastest_number),
        cmocka_unit_test(test_follow_batch_keeps_its_number_for_little),
        cmocka_unit_test(test_follow_batch_change_pays_for_itself),
        cmocka_unit_test(test_follow_batch_takes_the_number_for_a_ratio),
        cmocka_unit_test(test_follow_batch_releases_workers_for_a_ratio),
        cmocka_unit_test(test_follow_batch_over_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
