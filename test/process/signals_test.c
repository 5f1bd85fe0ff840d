/* Signals that end a run, or one worker's part in it, as a terminal, a service manager or another
 * program sends them: no model is lost, and what is said is true. */
#include "machines.h"

static bool has_file(const struct real_run *r, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    return access(path, F_OK) == 0;
}

/* systemd and Slurm send SIGTERM to the driver and all of its workers. */
static void test_sigterm_to_all_keeps_the_model(void **state)
{
    struct tiny *t = *state;
    static const char *const strategies[] = {
        "strategy.ps={consistency:asp}", "strategy.gossip={p:0.3}", "strategy.mpca={}",
        "strategy.easgd={tau:4}",        "strategy.sync={tau:4}",   "strategy.allreduce={}",
    };
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        struct real_run r = real_new(t);
        START(t, &r, "--set", strategies[i], "--set", "solver.momentum=0", "--set",
              "stop.epochs=1000000", "--set", "heartbeat=lan");
        UNTIL(REAL_LIMIT_S, process_poll(&r.p) || run_count(r.dir, "loss", NULL, NULL) >= 1);
        process_signal_all(&r.p, SIGTERM);
        process_wait(&r.p, REAL_LIMIT_S);
        if (r.p.code != 130)
            fail_msg("%s: code %d; it said:\n%s", strategies[i], r.p.code, r.p.err);
        if (!has_file(&r, "final.safetensors"))
            fail_msg("%s: no model is kept; it said:\n%s", strategies[i], r.p.err);
        assert_int_equal(run_count(r.dir, "end", "reason", "interrupted"), 1);
        assert_int_equal(real_members(&r, "dead") + real_members(&r, "cut"), 0);
        process_release(&r.p);
    }
}

/* The only worker of a driver hands over its model and goes; the driver waits for another, which
 * goes on from there. */
static void test_the_only_worker_leaves(void **state)
{
    struct tiny *t = *state;
    static const char *const strategies[] = {"strategy.sync={tau:4}", "strategy.gossip={p:0.3}",
                                             "strategy.single={}"};
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        struct machines m;
        DRIVE(t, &m, "--set", strategies[i], "--set", "workers=1", "--set", "pace=0.002", "--set",
              "stop.epochs=1000000");
        struct process *p = WORKER(&m, t->folder, NULL);
        UNTIL(REAL_LIMIT_S, run_count(m.run.dir, "loss", NULL, NULL) >= 1);
        kill(p->pid, SIGINT);
        process_wait(p, REAL_LIMIT_S);
        if (p->code != 0)
            fail_msg("%s: %s", strategies[i], p->err);
        assert_true(machines_said(p, "joined the run "));
        assert_true(machines_said(p, "leaving at the next commit point; again: at once"));
        assert_true(machines_said(p, "left the run "));
        UNTIL(REAL_LIMIT_S, machines_said(&m.run.p, "all workers have left: the run waits for"));
        UNTIL(REAL_LIMIT_S, run_count(m.run.dir, "checkpoint", NULL, NULL) == 1);
        int before = run_count(m.run.dir, "loss", NULL, NULL);
        p = WORKER(&m, t->folder, NULL);
        UNTIL(REAL_LIMIT_S, run_count(m.run.dir, "loss", NULL, NULL) > before);
        kill(m.run.p.pid, SIGINT);
        real_end(&m.run, 130, "interrupted");
        assert_int_equal(run_count(m.run.dir, "end", NULL, NULL), 1);
        assert_true(run_number(m.run.dir, "end", 0, "missed") == 0);
        process_wait(p, REAL_LIMIT_S);
        assert_true(machines_said(p, "is over after "));
        assert_true(machines_said(p, ": it was interrupted"));
        machines_release(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sigterm_to_all_keeps_the_model),
        cmocka_unit_test(test_the_only_worker_leaves),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
