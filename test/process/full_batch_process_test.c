/* L-BFGS in real runs of worker processes: the model of a simulation, also when a worker is killed,
 * and after an interruption. */
#include "real_run.h"

#include <math.h>

/* The decay makes the regression's minimum unique. The search ends within the tolerance of it, so
 * two ends differ by twice that over the decay at most, and by rounding. */
#define NEAR 1e-3

static const char net[] =
    "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'\n"
    "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'accuracy'\n"
    "  include { phase: TEST } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";

#define JOB                                                                                 \
    "--set", "net.file=regression.prototxt", "--set",                                       \
        "solver={ type: 'LBFGS' weight_decay: 0.01 }", "--strategy", "full_batch", "--set", \
        "strategy.full_batch.tolerance=2e-6", "--set", "stop.epochs=400", "--set",          \
        "checkpoint.every_seconds=0.2"

static void simulate_run(struct tiny *t, char dir[128])
{
    struct process p;
    tiny_cluster(t, "node { count: 3 } step_seconds: 0.004 link { mbit: 1000 }\n");
    const char *const argv[] = {
        "sim",       t->job, "--cluster", t->cluster, "--out", tiny_out(t, dir),
        "--workers", "3",    JOB,         NULL};
    process_start(&p, t->folder, argv);
    process_wait(&p, REAL_LIMIT_S);
    if (p.code != 0)
        fail_msg("code %d: %s", p.code, p.err);
    process_release(&p);
}

static void expect_same_end(struct tiny *t, const struct real_run *r)
{
    char sim[128];
    simulate_run(t, sim);
    double apart = run_difference(r->dir, sim);
    print_message("    %d steps; from the simulation: %.1e\n", real_exchanges(r), apart);
    assert_true(apart <= NEAR);
}

static void test_full_batch_of_processes_is_that_of_a_simulation(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    START(t, &r, "--workers", "3", JOB, "--set", "evaluate.every_steps=5");
    real_end(&r, 0, "converged");
    assert_true(run_number(r.dir, "end", 0, "missed") == 0);
    assert_true(run_count(r.dir, "eval", NULL, NULL) >= 4);
    assert_non_null(strstr(r.p.err, "optimizer   LBFGS\n"));
    expect_same_end(t, &r);
    process_release(&r.p);
}

/* A worker is killed, and replaced: both changes restart the direction. */
static void test_full_batch_when_a_worker_is_killed(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    pid_t worker[PROCESS_CHILDREN_MAX];
    START(t, &r, "--workers", "3", JOB, "--set", "pace=0.02");
    UNTIL(REAL_LIMIT_S, process_poll(&r.p) || real_exchanges(&r) >= 8);
    real_workers(&r, 3, worker);
    kill(worker[1], SIGKILL);
    real_end(&r, 0, "converged");
    assert_int_equal(real_members(&r, "dead"), 1);
    expect_same_end(t, &r);
    process_release(&r.p);
}

static void test_full_batch_continues_after_an_interruption(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    START(t, &r, "--workers", "3", JOB, "--set", "pace=0.02");
    UNTIL(REAL_LIMIT_S, process_poll(&r.p) || real_exchanges(&r) >= 8);
    process_signal_all(&r.p, SIGINT);
    real_end(&r, 130, "interrupted");
    process_release(&r.p);
    process_start(&r.p, t->folder,
                  (const char *const[]){"resume", r.dir, "--json", "--workers", "2", NULL});
    real_end(&r, 0, "converged");
    expect_same_end(t, &r);
    process_release(&r.p);
}

static int setup(void **state)
{
    int rc = tiny_setup(state);
    if (rc == 0)
        tiny_write(*state, "regression.prototxt", net);
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_batch_of_processes_is_that_of_a_simulation),
        cmocka_unit_test(test_full_batch_when_a_worker_is_killed),
        cmocka_unit_test(test_full_batch_continues_after_an_interruption),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
