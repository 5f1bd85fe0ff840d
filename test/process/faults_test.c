/* Real runs of four worker processes, of which one is killed or stopped, or the driver is killed or
 * interrupted. */
#include "real_run.h"

#define DEAD_MAX_S   4.0 /* from a worker's death to the event: a socket tells, not silence */
#define CUT_MAX_S    8.0 /* of silence: 5 s where workers share cores, and until we see it */
#define ORPHAN_MAX_S 3.0 /* from the driver's death to the end of the last worker */

/* The records of all epochs are used or missed, none is forgotten; a round of the one that was lost
 * is missed, four batches of 16. */
static void expect_books(const struct real_run *r)
{
    double used = run_number(r->dir, "end", 0, "used");
    double missed = run_number(r->dir, "end", 0, "missed");
    double epochs = run_number(r->dir, "end", 0, "epochs");
    print_message("    used %g, missed %g, epochs %g\n", used, missed, epochs);
    assert_true(missed == 4 * 16);
    assert_true(epochs >= 24);
    assert_true(fabs(used + missed - epochs * (TINY_TRAIN - 60)) < 0.5);
}

static void test_a_worker_is_killed(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    pid_t worker[PROCESS_CHILDREN_MAX];
    START(t, &r, "--set", "pace=0.01", "--set", "stop.epochs=24");
    real_workers(&r, 4, worker);
    UNTIL(REAL_LIMIT_S, real_exchanges(&r) >= 5);
    double killed = process_now();
    kill(worker[1], SIGKILL);
    UNTIL(REAL_LIMIT_S, real_members(&r, "dead") == 1);
    double took = process_now() - killed;
    print_message("    said to be dead after %.3f s\n", took);
    assert_true(took < DEAD_MAX_S);
    int before = real_exchanges(&r);
    UNTIL(REAL_LIMIT_S, real_exchanges(&r) > before + 2);
    assert_int_equal(process_children(r.p.pid, worker), 3);
    real_end(&r, 0, "epochs");
    assert_int_equal(real_members(&r, "join"), 4);
    assert_int_equal(real_members(&r, "dead"), 1);
    assert_int_equal(real_members(&r, "cut"), 0);
    expect_books(&r);
    process_release(&r.p);
}

static void test_a_worker_is_stopped(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    pid_t worker[PROCESS_CHILDREN_MAX];
    START(t, &r, "--set", "pace=0.01", "--set", "stop.epochs=24");
    real_workers(&r, 4, worker);
    UNTIL(REAL_LIMIT_S, real_exchanges(&r) >= 5);
    double stopped = process_now();
    kill(worker[2], SIGSTOP);
    UNTIL(REAL_LIMIT_S, real_members(&r, "cut") == 1);
    double took = process_now() - stopped;
    print_message("    cut after %.3f s\n", took);
    assert_true(took < CUT_MAX_S);
    real_end(&r, 0, "epochs");
    assert_int_equal(real_members(&r, "dead"), 0);
    expect_books(&r);
    assert_true(real_has_ended(worker, 4)); /* the one that was stopped, too */
    process_release(&r.p);
}

/* No other worker waits for a lone one, and none can replace it. */
static void test_one_alone_is_not_given_up(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    pid_t worker[PROCESS_CHILDREN_MAX];
    START(t, &r, "--workers", "1", "--set", "pace=0.01", "--set", "stop.epochs=12");
    real_workers(&r, 1, worker);
    UNTIL(REAL_LIMIT_S, real_members(&r, "join") == 1);
    process_nap(0.5);
    kill(worker[0], SIGSTOP);
    process_nap(7); /* preset busy: 5 s */
    kill(worker[0], SIGCONT);
    real_end(&r, 0, "epochs");
    assert_int_equal(real_members(&r, "cut"), 0);
    assert_true(run_number(r.dir, "end", 0, "missed") == 0);
    process_release(&r.p);
}

/* Whatever the workers are at: starting, joining, training, in a round that lasts minutes. */
static void test_the_driver_is_killed(void **state)
{
    struct tiny *t = *state;
    static const double after[] = {0, 0.01, 0.03, 0.1, 0.5};
    double longest = 0;
    for (size_t i = 0; i < sizeof after / sizeof *after; i++) {
        struct real_run r = real_new(t);
        pid_t worker[PROCESS_CHILDREN_MAX];
        START(t, &r, "--set", "pace=0.01", "--set", "stop.epochs=1000", "--set",
              i % 2 ? "strategy.sync.tau=4" : "strategy.sync.tau=100000");
        UNTIL(REAL_LIMIT_S, process_children(r.p.pid, worker) == 4);
        process_nap(after[i]);
        double killed = process_now();
        kill(r.p.pid, SIGKILL);
        UNTIL(REAL_LIMIT_S, real_has_ended(worker, 4));
        longest = fmax(longest, process_now() - killed);
        process_wait(&r.p, REAL_LIMIT_S);
        assert_int_equal(r.p.code, 128 + SIGKILL);
        process_release(&r.p);
    }
    print_message("    no worker left after %.3f s\n", longest);
    assert_true(longest < ORPHAN_MAX_S);
}

/* As with Ctrl-C, the whole process group gets the signal, and only the driver acts on it. */
static void test_an_interrupted_run_resumes(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    pid_t worker[PROCESS_CHILDREN_MAX];
    char path[3][512];
    START(t, &r, "--set", "pace=0.01", "--set", "stop.epochs=24");
    real_workers(&r, 4, worker);
    UNTIL(REAL_LIMIT_S, real_exchanges(&r) >= 3);
    process_signal_all(&r.p, SIGINT);
    real_end(&r, 130, "interrupted");
    assert_int_equal(real_members(&r, "dead"), 0);
    assert_true(real_has_ended(worker, 4));
    assert_int_equal(run_checkpoints(r.dir, path), 1);
    assert_true(run_number(r.dir, "end", 0, "epochs") < 24);
    process_release(&r.p);
    START(t, &r, "--set", "pace=0", "--set", "stop.epochs=24", "--resume");
    real_end(&r, 0, "epochs");
    assert_true(run_number(r.dir, "start", 1, "resumed_after") ==
                (double)strtoul(strrchr(path[0], '/') + 1, NULL, 10));
    assert_true(run_number(r.dir, "end", 1, "epochs") >= 24);
    process_release(&r.p);
}

/* The first waits for a commit point, which here is far away; the second does not. */
static void test_a_second_interrupt_ends_at_once(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    pid_t worker[PROCESS_CHILDREN_MAX];
    START(t, &r, "--set", "pace=0.01", "--set", "stop.epochs=1000", "--set",
          "strategy.sync.tau=100000");
    real_workers(&r, 4, worker);
    UNTIL(REAL_LIMIT_S, real_members(&r, "join") == 4);
    process_nap(0.2);
    process_signal_all(&r.p, SIGINT);
    process_nap(0.5);
    assert_false(process_poll(&r.p));
    double second = process_now();
    process_signal_all(&r.p, SIGINT);
    process_wait(&r.p, REAL_LIMIT_S);
    double took = process_now() - second;
    print_message("    ended after %.3f s\n", took);
    assert_true(took < 5);
    assert_int_equal(r.p.code, 128 + SIGINT);
    UNTIL(ORPHAN_MAX_S, real_has_ended(worker, 4));
    process_release(&r.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_worker_is_killed),
        cmocka_unit_test(test_a_worker_is_stopped),
        cmocka_unit_test(test_one_alone_is_not_given_up),
        cmocka_unit_test(test_the_driver_is_killed),
        cmocka_unit_test(test_an_interrupted_run_resumes),
        cmocka_unit_test(test_a_second_interrupt_ends_at_once),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
