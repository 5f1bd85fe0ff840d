/* The driver of a model in slices is killed and restarted between real processes: the slices keep
 * their state, and the model is that of a run whose driver lives. */
#include "machines.h"
#include "sliced_job.h"

#include <signal.h>

enum { STEPS = 150, DEATHS = 2 };

struct cast {
    struct tiny *t;
    char at[32], slices[32], workers[2][32], steps[32];
    int members;
    const char *strategy, *heartbeat;
    struct machines m;
};

static void start_driver(struct cast *c, bool resumes)
{
    const char *argv[] = {"driver",
                          c->t->job,
                          "--listen",
                          c->at,
                          "--out",
                          c->m.run.dir,
                          "--json",
                          "--unset",
                          "workers",
                          "--set",
                          c->slices,
                          "--set",
                          c->workers[0],
                          "--set",
                          c->workers[1],
                          "--unset",
                          "stop.epochs",
                          "--set",
                          c->steps,
                          "--set",
                          "pace=0.01",
                          "--set",
                          c->heartbeat,
                          "--set",
                          "checkpoint.every_seconds=0.3",
                          "--set",
                          "evaluate.every_steps=25",
                          "--set",
                          c->strategy,
                          resumes ? "--resume" : NULL,
                          NULL};
    process_start(&c->m.run.p, c->t->folder, argv);
}

static void begin_cast(struct cast *c, struct tiny *t, int replicas, int slices,
                       const char *strategy, const char *heartbeat)
{
    *c = (struct cast){.t = t,
                       .members = replicas * slices,
                       .strategy = strategy,
                       .heartbeat = heartbeat,
                       .m.run = real_new(t)};
    port_find(c->at);
    snprintf(c->m.join, sizeof c->m.join, "%s", c->at);
    snprintf(c->slices, sizeof c->slices, "slices=%d", slices);
    snprintf(c->steps, sizeof c->steps, "stop.steps=%d", STEPS);
    snprintf(c->workers[0], sizeof c->workers[0], "workers_min=%d", c->members);
    snprintf(c->workers[1], sizeof c->workers[1], "workers_max=%d", c->members);
    start_driver(c, false);
    for (int i = 0; i < c->members; i++)
        WORKER(&c->m, t->folder, "--retry", "30");
    UNTIL(REAL_LIMIT_S, process_poll(&c->m.run.p) || real_exchanges(&c->m.run) >= 5);
}

static void kill_driver(struct cast *c)
{
    kill(c->m.run.p.pid, SIGKILL);
    process_wait(&c->m.run.p, REAL_LIMIT_S);
    process_release(&c->m.run.p);
}

static void dies_and_returns(struct tiny *t, int replicas, int slices, const char *strategy)
{
    struct cast c;
    char whole[128];
    double longest = 0;
    begin_cast(&c, t, replicas, slices, strategy, "heartbeat=busy");
    for (int i = 0; i < DEATHS; i++) {
        int reported = real_exchanges(&c.m.run);
        UNTIL(REAL_LIMIT_S, real_exchanges(&c.m.run) >= reported + 3);
        kill_driver(&c);
        reported = real_exchanges(&c.m.run);
        process_nap(0.1);
        double started = process_now();
        start_driver(&c, true);
        UNTIL(REAL_LIMIT_S, process_poll(&c.m.run.p) || real_exchanges(&c.m.run) > reported);
        double took = process_now() - started;
        longest = took > longest ? took : longest;
    }
    print_message("    %d x %d, %s: trains again after %.3f s at most\n", replicas, slices,
                  strategy, longest);
    real_end(&c.m.run, 0, "steps");
    machines_end(&c.m, 0);
    machines_release(&c.m);
    assert_int_equal(real_members(&c.m.run, "join"), c.members);
    assert_int_equal(real_members(&c.m.run, "back"), c.members * DEATHS);
    assert_int_equal(real_members(&c.m.run, "unseated"), 0);
    assert_true(run_number(c.m.run.dir, "end", 0, "missed") == 0);
    assert_true(run_number(c.m.run.dir, "end", 0, "used") == (double)STEPS * 16 * replicas);
    EXECUTE(t, "train", t->job, whole, c.slices, strategy, c.steps, "stop.epochs=100000",
            c.members == 3 ? "workers=3" : "workers=4");
    assert_true(run_same_bits(c.m.run.dir, whole, "final.safetensors"));
}

static void test_slices_outlive_their_driver(void **state)
{
    dies_and_returns(*state, 1, 3, "strategy.allreduce={}");
    dies_and_returns(*state, 2, 2, "strategy.allreduce={}");
    dies_and_returns(*state, 2, 2, "strategy.sync={tau:3}");
}

/* A slice of two replicas is killed with the driver: the other replica trains on, and the seat is
 * filled by the next worker. */
static void test_a_slice_is_killed_with_the_driver(void **state)
{
    struct cast c;
    begin_cast(&c, *state, 2, 2, "strategy.allreduce={}", "heartbeat=busy");
    kill(c.m.worker[1].pid, SIGKILL);
    kill_driver(&c);
    int reported = real_exchanges(&c.m.run);
    start_driver(&c, true);
    UNTIL(REAL_LIMIT_S, process_poll(&c.m.run.p) || real_exchanges(&c.m.run) > reported + 3);
    assert_int_equal(real_members(&c.m.run, "back"), 3);
    assert_int_equal(real_members(&c.m.run, "unseated"), 1);
    WORKER(&c.m, c.t->folder, "--retry", "30");
    UNTIL(REAL_LIMIT_S, process_poll(&c.m.run.p) || real_members(&c.m.run, "seated") == 1);
    real_end(&c.m.run, 0, "steps");
    machines_wait(&c.m);
    for (size_t i = 0; i < c.m.workers; i++)
        assert_true(i == 1 || c.m.worker[i].code == 0);
    machines_release(&c.m);
    assert_int_equal(real_members(&c.m.run, "seated"), 1);
    assert_true(run_is_finite(c.m.run.dir, "final.safetensors"));
}

/* Of the only replica a slice is killed with the driver: the other one joins again, and with the
 * next worker the run continues from its checkpoint. */
static void test_the_only_replica_begins_at_the_checkpoint(void **state)
{
    struct cast c;
    char whole[128];
    begin_cast(&c, *state, 1, 2, "strategy.allreduce={}", "heartbeat=busy");
    UNTIL(REAL_LIMIT_S, run_count(c.m.run.dir, "checkpoint", NULL, NULL) >= 1);
    kill(c.m.worker[1].pid, SIGKILL);
    kill_driver(&c);
    start_driver(&c, true);
    WORKER(&c.m, c.t->folder, "--retry", "30");
    real_end(&c.m.run, 0, "steps");
    machines_wait(&c.m);
    assert_int_equal(c.m.worker[0].code, 0);
    assert_int_equal(c.m.worker[2].code, 0);
    machines_release(&c.m);
    assert_int_equal(real_members(&c.m.run, "back"), 0);
    EXECUTE(c.t, "train", c.t->job, whole, c.slices, c.strategy, c.steps, "stop.epochs=100000",
            "workers=2");
    assert_true(run_same_bits(c.m.run.dir, whole, "final.safetensors"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices_outlive_their_driver),
        cmocka_unit_test(test_a_slice_is_killed_with_the_driver),
        cmocka_unit_test(test_the_only_replica_begins_at_the_checkpoint),
    };
    return cmocka_run_group_tests(tests, sliced_setup, tiny_teardown);
}
