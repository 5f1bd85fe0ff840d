/* Real workers in a run that pauses while there are too few of them: until another one comes, until
 * a stop, and until its patience ends. */
#include "machines.h"

static const char *const ways[] = {"strategy.sync={tau:4}", "strategy.allreduce={}",
                                   "strategy.mpca={}", "strategy.ps={consistency:bsp servers:2}"};

enum { WAYS = sizeof ways / sizeof *ways };

#define PAUSE_S 1.0

/* Exchanges between the first pause and its end, or now. */
static int exchanges_since_pause(const struct real_run *r)
{
    double from = run_number(r->dir, "paused", 0, "t") + 0.3 * PAUSE_S;
    int n = 0;
    for (int i = real_exchanges(r) - 1; i >= 0; i--)
        n += run_number(r->dir, "exchange", i, "t") > from;
    return n;
}

static void begin_pause(struct tiny *t, struct machines *m, const char *strategy,
                        const char *patience)
{
    DRIVE(t, m, "--set", "workers_min=2", "--set", "workers_max=2", "--set", "pause_below=2",
          "--set", patience, "--set", "pace=0.01", "--set", "stop.epochs=100000", "--set",
          strategy);
    for (int i = 0; i < 2; i++)
        WORKER(m, t->folder, "--threads", "1");
    UNTIL(REAL_LIMIT_S, real_members(&m->run, "join") == 2 && real_exchanges(&m->run) >= 3);
    kill(m->worker[1].pid, SIGKILL);
    UNTIL(REAL_LIMIT_S, run_count(m->run.dir, "paused", NULL, NULL) == 1);
}

static void test_a_pause_ends_with_another_worker(void **state)
{
    struct tiny *t = *state;
    for (int i = 0; i < WAYS; i++) {
        struct machines m;
        begin_pause(t, &m, ways[i], "pause_patience_seconds=100");
        process_nap(PAUSE_S);
        assert_int_equal(exchanges_since_pause(&m.run), 0);
        WORKER(&m, t->folder, "--threads", "1");
        UNTIL(REAL_LIMIT_S, run_count(m.run.dir, "resumed", NULL, NULL) == 1);
        int then = real_exchanges(&m.run);
        UNTIL(REAL_LIMIT_S, real_exchanges(&m.run) > then + 3);
        assert_int_equal(real_members(&m.run, "cut") + real_members(&m.run, "hung"), 0);
        kill(m.run.p.pid, SIGINT);
        real_end(&m.run, 130, "interrupted");
        machines_release(&m);
    }
}

/* SIGINT ends the pause, and the run with it. */
static void test_a_stop_in_a_pause(void **state)
{
    struct tiny *t = *state;
    for (int i = 0; i < WAYS; i += 2) {
        struct machines m;
        begin_pause(t, &m, ways[i], "pause_patience_seconds=100");
        process_nap(PAUSE_S / 2);
        double from = process_now();
        kill(m.run.p.pid, SIGINT);
        real_end(&m.run, 130, "interrupted");
        assert_true(process_now() - from < 20);
        assert_int_equal(run_count(m.run.dir, "resumed", NULL, NULL), 0);
        machines_release(&m);
    }
}

static void test_patience_ends_a_pause(void **state)
{
    struct tiny *t = *state;
    for (int i = 0; i < WAYS; i += 3) {
        struct machines m;
        begin_pause(t, &m, ways[i], "pause_patience_seconds=1");
        process_wait(&m.run.p, REAL_LIMIT_S);
        assert_int_not_equal(m.run.p.code, 0);
        if (!strstr(m.run.p.err, "it has 1 worker, and pause_below is 2"))
            fail_msg("it said:\n%s", m.run.p.err);
        char path[3][512];
        assert_true(run_checkpoints(m.run.dir, path) > 0);
        machines_release(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pause_ends_with_another_worker),
        cmocka_unit_test(test_a_stop_in_a_pause),
        cmocka_unit_test(test_patience_ends_a_pause),
    };
    return cmocka_run_group_tests(tests, tiny_setup_elastic, tiny_teardown);
}
