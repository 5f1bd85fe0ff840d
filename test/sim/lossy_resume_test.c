/* A lossy wire delivers what it owes before a checkpoint, so that resuming loses nothing: the
 * resumed run continues to the last bit as the one that was not interrupted. */
#include "strategy_sim.h"

#include <math.h>

#define SGD   "solver={base_lr:0.05 lr_policy:'fixed'}"
#define HEAVY "solver={base_lr:0.02 momentum:0.9 lr_policy:'fixed'}"

/* A run with one checkpoint, after `every` seconds. */
static void run_with(struct tiny *t, struct sim_run *r, const char *strategy, const char *wire,
                     const char *solver, int workers, double every)
{
    char cluster[128], set[3][64];
    snprintf(cluster, sizeof cluster, "node { count: %d } step_seconds: 0.004 link { mbit: 100 }\n",
             workers);
    snprintf(set[0], sizeof set[0], "collective.wire=%s", wire);
    snprintf(set[1], sizeof set[1], "checkpoint.every_seconds=%.6f", every);
    snprintf(set[2], sizeof set[2], "workers=%d", workers);
    SIM_TRY(t, cluster, r, strategy, solver, set[0], set[1], set[2], "stop.epochs=6");
}

static double seconds_of(struct tiny *t, const char *strategy, const char *wire, const char *solver)
{
    struct sim_run r = {0};
    run_with(t, &r, strategy, wire, solver, 4, 1000);
    assert_int_equal(r.rc, PL_OK);
    return r.report.wall_s;
}

/* Broken off behind its checkpoint, and resumed. */
static struct sim_run resumed_run(struct tiny *t, const char *strategy, const char *wire,
                                  const char *solver, int workers, double wall_s)
{
    struct sim_run r = {.limit_s = 0.8 * wall_s};
    run_with(t, &r, strategy, wire, solver, 4, 0.55 * wall_s);
    assert_int_equal(r.rc, PL_ERR_TIMEOUT);
    r.limit_s = 0;
    run_with(t, &r, strategy, wire, solver, workers, 1000);
    assert_int_equal(r.rc, PL_OK);
    assert_true(run_number(r.dir, "start", 1, "resumed_after") > 0);
    sim_adds_up(&r);
    return r;
}

static void resumes_alike(struct tiny *t, const char *strategy, const char *wire,
                          const char *solver)
{
    double wall_s = seconds_of(t, strategy, wire, solver);
    struct sim_run whole = {0};
    run_with(t, &whole, strategy, wire, solver, 4, 0.55 * wall_s);
    assert_int_equal(whole.rc, PL_OK);
    struct sim_run r = resumed_run(t, strategy, wire, solver, 4, wall_s);
    print_message("    %s, %s: apart by %g\n", strategy, wire, run_difference(whole.dir, r.dir));
    assert_true(run_difference(whole.dir, r.dir) == 0);
}

static void test_a_resumed_run_equals_the_uninterrupted_one(void **state)
{
    resumes_alike(*state, "strategy.sync.tau=2", "topk64", SGD);
    resumes_alike(*state, "strategy.sync.tau=2", "int8", SGD);
    resumes_alike(*state, "strategy.allreduce={}", "topk64", HEAVY);
    resumes_alike(*state, "strategy.allreduce={bucket_kb:4}", "topk16", HEAVY);
    resumes_alike(*state, "strategy.diloco={tau:2 outer_momentum:0.5}", "topk64", SGD);
}

/* Nothing is owed to workers of before, so that others can continue. */
static void test_other_workers_resume(void **state)
{
    const char *strategy = "strategy.sync.tau=2", *wire = "topk16";
    double wall_s = seconds_of(*state, strategy, wire, HEAVY);
    struct sim_run whole = {0}, r = resumed_run(*state, strategy, wire, HEAVY, 3, wall_s);
    run_with(*state, &whole, strategy, wire, HEAVY, 4, 1000);
    print_message("    loss %.4f, uninterrupted %.4f\n", r.report.test_loss,
                  whole.report.test_loss);
    assert_true(r.report.test_error < 0.1 && r.report.test_loss < 2 * whole.report.test_loss);
}

/* The only exchange of a run is its last, and delivers all. */
static void test_the_final_model_lacks_nothing(void **state)
{
    static const char *const strategies[] = {"strategy.sync.tau=2", "strategy.diloco.tau=2"};
    for (size_t i = 0; i < 2; i++) {
        struct sim_run f32 = {0}, topk = {0};
        SIM(*state, SIM_CALM, &f32, strategies[i], SGD, "stop={steps:2}", "workers=4");
        SIM(*state, SIM_CALM, &topk, strategies[i], SGD, "stop={steps:2}", "workers=4",
            "collective.wire=topk64");
        assert_true(run_difference(topk.dir, f32.dir) < 1e-6);
    }
}

/* So does the exchange in which members vote to stop. */
static void test_a_stop_delivers(void **state)
{
    struct sim_run f32 = {0}, topk = {0};
    SIM(*state, SIM_CALM, &f32, "strategy.sync.tau=50", SGD, "stop={seconds:0.1}", "workers=4");
    SIM(*state, SIM_CALM, &topk, "strategy.sync.tau=50", SGD, "stop={seconds:0.1}", "workers=4",
        "collective.wire=topk64");
    assert_true(run_count(f32.dir, "exchange", NULL, NULL) == 1);
    assert_true(run_difference(topk.dir, f32.dir) < 1e-6);
}

/* Exchanges of whole vectors: those of topk64 take a small part of their bytes. */
static int count_flushes(const struct sim_run *r)
{
    int all = run_count(r->dir, "exchange", NULL, NULL), flushes = 0;
    double most = 0;
    for (int i = 0; i < all; i++)
        most = fmax(most, run_number(r->dir, "exchange", i, "bytes"));
    for (int i = 0; i < all; i++)
        flushes += run_number(r->dir, "exchange", i, "bytes") > most / 2;
    return flushes;
}

/* One when the worker leaves, in whose two exchanges it announces that and has no part any more,
 * and the last of the run. */
static void test_a_leaving_worker_delivers(void **state)
{
    struct sim_run r = {0};
    SIM(*state, SIM_CALM "fault { at: 0.1 leave: 1 }", &r, "strategy.allreduce={}", SGD,
        "stop={steps:150}", "workers=4", "collective.wire=topk64");
    int flushes = count_flushes(&r);
    print_message("    %d flushes\n", flushes);
    assert_true(flushes >= 2 && flushes <= 3);
}

/* On a slow link a flush takes as long as many exchanges: most checkpoints do without. */
static void test_flushes_are_rare_on_a_slow_link(void **state)
{
    struct sim_run r = {0};
    SIM(*state, "node { count: 4 } step_seconds: 0.0001 link { mbit: 10 }\n", &r,
        "strategy.allreduce={}", SGD, "stop={steps:200}", "workers=4", "collective.wire=topk64",
        "checkpoint.every_seconds=0.01");
    int flushes = count_flushes(&r), checkpoints = run_count(r.dir, "checkpoint", NULL, NULL);
    print_message("    %d of 200 exchanges are flushes, %d checkpoints\n", flushes, checkpoints);
    assert_true(flushes >= 1 && flushes < 20 && checkpoints > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_resumed_run_equals_the_uninterrupted_one),
        cmocka_unit_test(test_other_workers_resume),
        cmocka_unit_test(test_the_final_model_lacks_nothing),
        cmocka_unit_test(test_a_stop_delivers),
        cmocka_unit_test(test_a_leaving_worker_delivers),
        cmocka_unit_test(test_flushes_are_rare_on_a_slow_link),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
