/* `survey`: it measures the cluster file; its samples are counted; deaths, and
 * losses that are not finite. */
#include "strategy_sim.h"

#include <math.h>

#define UNEVEN                                                                       \
    "node { speed: 0.5 } node { mbit: 20 } node { jitter: 0.2 } node { speed: 2 }\n" \
    "step_seconds: 0.004 link { mbit: 100 latency_us: 150 }\n"

struct expected {
    int node;
    double step_s, step_off, mbit; /* step_off: the share by which it may differ */
};

static void expect_machine(const struct sim_run *r, int nth, const struct expected *e)
{
    double step_s = run_number(r->dir, "machine", nth, "step_s");
    double mbit = run_number(r->dir, "machine", nth, "mbit");
    double latency = run_number(r->dir, "machine", nth, "latency_us");
    assert_true(run_number(r->dir, "machine", nth, "node") == e->node);
    if (e->node < 0)
        assert_true(isnan(step_s));
    else if (!(fabs(step_s / e->step_s - 1) <= e->step_off))
        fail_msg("worker %d: %g s a step, expected %g", e->node, step_s, e->step_s);
    if (!(fabs(mbit / e->mbit - 1) < 0.01))
        fail_msg("node %d: %g Mbit/s, expected %g", e->node, mbit, e->mbit);
    if (!(fabs(latency / 150 - 1) < 0.1))
        fail_msg("node %d: %g us, expected 150", e->node, latency);
}

/* Steps of 8, 4, 4 and 2 ms: the slowest worker takes three steps, then 125 in a second. */
static void test_measures_the_cluster_as_it_is(void **state)
{
    static const struct expected expected[] = {
        {-1, 0, 0, 100},
        {0, 0.008, 1e-6, 100},
        {1, 0.004, 1e-6, 20},
        {2, 0.004, 0.1, 100},
        /* the median of 1 ± 0.2 */ {3, 0.002, 1e-6, 100},
    };
    struct sim_run r = {0};
    SIM(*state, UNEVEN, &r, "strategy.survey={}", "stop.epochs=100");
    assert_int_equal(run_count(r.dir, "machine", NULL, NULL), 5);
    for (int i = 0; i < 5; i++)
        expect_machine(&r, i, &expected[i]);
    assert_int_equal(run_count(r.dir, "exchange", NULL, NULL), 2);
    assert_int_equal(r.report.used, 4 * (3 + 125) * SIM_BATCH);
    assert_true(r.report.wall_s < 10);
    sim_adds_up(&r);
}

static void test_takes_the_number_of_steps_that_is_set(void **state)
{
    struct sim_run r = {0};
    SIM(*state, UNEVEN, &r, "strategy.survey={steps:7 seconds:3}", "stop.epochs=100");
    assert_int_equal(r.report.used, 4 * (3 + 7) * SIM_BATCH);
    struct sim_run ends = {0};
    SIM(*state, UNEVEN, &ends, "strategy.survey={}", "stop.steps=5");
    assert_int_equal(ends.report.used, 4 * 5 * SIM_BATCH);
    assert_int_equal(run_count(ends.dir, "machine", NULL, NULL), 5);
}

/* Where workers share a batch out, a step is that of a worker's part. */
static void test_measures_parts_of_a_batch(void **state)
{
    struct sim_run r = {0};
    SIM(*state, UNEVEN, &r, "strategy.survey={}", "stop.epochs=100", "batch", "global_batch=64");
    assert_true(fabs(run_number(r.dir, "machine", 1, "step_s") / 0.008 - 1) < 1e-6);
}

/* The others are measured, however far it was. */
static void test_a_worker_dies(void **state)
{
    struct sim_run whole = {0};
    SIM(*state, UNEVEN, &whole, "strategy.survey={}", "stop.epochs=100");
    for (int i = 1; i <= 6; i++) {
        char cluster[512];
        struct sim_run r = {0};
        snprintf(cluster, sizeof cluster, UNEVEN "fault { at: %.6f kill: %d }",
                 whole.report.wall_s * i / 7, i % 4);
        SIM(*state, cluster, &r, "strategy.survey={}", "stop.epochs=100");
        int machines = run_count(r.dir, "machine", NULL, NULL);
        assert_true(machines == 4 || machines == 5); /* it may have died behind the exchange */
        for (int nth = 0; nth < machines; nth++)
            assert_true(machines == 5 ||
                        run_number(r.dir, "machine", nth, "node") != (double)(i % 4));
        sim_adds_up(&r);
    }
}

/* Whenever a worker leaves, the others are measured, and no sample is missed. */
static void test_a_worker_leaves(void **state)
{
    for (int i = 0; i < 4; i++) {
        char cluster[512];
        struct sim_run r = {0};
        snprintf(cluster, sizeof cluster, UNEVEN "fault { at: %g leave: 1 }", 0.002 + 0.012 * i);
        SIM(*state, cluster, &r, "strategy.survey={}", "stop.epochs=100");
        assert_true(run_count(r.dir, "machine", NULL, NULL) >= 4);
        assert_int_equal(r.report.missed, 0);
        sim_adds_up(&r);
    }
}

static void test_loss_is_not_finite(void **state)
{
    struct sim_run r = {0};
    SIM_TRY(*state, UNEVEN, &r, "strategy.survey={}", "stop.epochs=100", "solver.base_lr=1e30");
    assert_int_equal(r.rc, PL_ERR_DIVERGED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measures_the_cluster_as_it_is),
        cmocka_unit_test(test_takes_the_number_of_steps_that_is_set),
        cmocka_unit_test(test_measures_parts_of_a_batch),
        cmocka_unit_test(test_a_worker_dies),
        cmocka_unit_test(test_a_worker_leaves),
        cmocka_unit_test(test_loss_is_not_finite),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
