/* Real workers that join a run under way: in place of a killed one, by hand, and again after they
 * were considered dead; and workers that leave it. */
#include "free_port.h"
#include "real_run.h"

#define JOIN_MAX_S 6.0 /* from a worker's start to its first view */

static const char *const ways[] = {
    "strategy.sync={tau:4}",
    "strategy.allreduce={bucket_kb:1}",
    "strategy.easgd={mode:sync tau:4}",
    "strategy.diloco={tau:6 fragments:3}",
    "strategy.async_allreduce={}",
    "strategy.mpca={}",
    "strategy.pace={}",
    "strategy.easgd={tau:4}",
    "strategy.gossip={p:0.3}",
    "strategy.ps={consistency:bsp servers:2}",
};

enum { WAYS = sizeof ways / sizeof *ways };

/* The samples of all epochs are used, missed, or repeated while no lease arrived; at most `missed`
 * are missed, and no contribution was rejected. */
static void expect_books(const struct real_run *r, double missed_most)
{
    double used = run_number(r->dir, "end", 0, "used");
    double missed = run_number(r->dir, "end", 0, "missed");
    double epochs = run_number(r->dir, "end", 0, "epochs");
    print_message("    used %g, missed %g, epochs %g\n", used, missed, epochs);
    assert_true(missed <= missed_most);
    double again = epochs * (TINY_TRAIN - 60) - used - missed;
    assert_true(again > -0.5 && again < run_number(r->dir, "end", 0, "repeated") + 0.5);
    assert_int_equal(run_count(r->dir, "rejected", NULL, NULL), 0);
    if (run_count(r->dir, "end", "reason", "interrupted") == 0) /* that one is not evaluated */
        assert_true(run_number(r->dir, "end", 0, "test_error") < 0.3);
}

static void test_a_killed_worker_is_replaced(void **state)
{
    struct tiny *t = *state;
    for (int i = 0; i < WAYS; i++) {
        struct real_run r = real_new(t);
        pid_t worker[PROCESS_CHILDREN_MAX];
        START(t, &r, "--set", "workers_min=2", "--set", "workers_max=4", "--set", "pace=0.01",
              "--set", "stop.epochs=40", "--set", ways[i]);
        real_workers(&r, 4, worker);
        UNTIL(REAL_LIMIT_S, real_members(&r, "join") == 4);
        double killed = process_now();
        kill(worker[i % 4], SIGKILL);
        UNTIL(REAL_LIMIT_S, real_members(&r, "join") == 5);
        double took = process_now() - killed;
        print_message("    %s: replaced after %.3f s\n", ways[i], took);
        assert_true(took < JOIN_MAX_S);
        real_end(&r, 0, "epochs");
        assert_int_equal(real_members(&r, "dead"), 1);
        assert_int_equal(real_members(&r, "cut"), 0);
        expect_books(&r, 12 * 16);
        process_release(&r.p);
    }
}

static void test_worker_started_by_hand_joins(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    struct process by_hand;
    pid_t worker[PROCESS_CHILDREN_MAX];
    char address[32];
    port_find(address);
    START(t, &r, "--listen", address, "--set", "workers=3", "--set", "pace=0.01", "--set",
          "stop.epochs=30", "--set", "strategy.sync.tau=4");
    real_workers(&r, 3, worker);
    UNTIL(REAL_LIMIT_S, real_exchanges(&r) >= 3);
    process_start(&by_hand, t->folder, (const char *const[]){"worker", "--join", address, NULL});
    process_nap(1); /* three are all: it waits */
    assert_int_equal(real_members(&r, "join"), 3);
    kill(worker[1], SIGKILL);
    UNTIL(REAL_LIMIT_S, real_members(&r, "join") == 4);
    real_end(&r, 0, "epochs");
    process_wait(&by_hand, REAL_LIMIT_S);
    if (by_hand.code != 0)
        fail_msg("it said:\n%s", by_hand.err);
    expect_books(&r, 4 * 16);
    process_release(&by_hand);
    process_release(&r.p);
}

/* One worker more than workers_max waits and replaces the first lost one; the next waiting one is
 * informed when the run is over. */
static void test_one_stands_by(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    pid_t worker[PROCESS_CHILDREN_MAX];
    START(t, &r, "--set", "workers_min=2", "--set", "workers_max=2", "--set", "standby=2", "--set",
          "pace=0.01", "--set", "stop.epochs=12");
    real_workers(&r, 4, worker);
    UNTIL(REAL_LIMIT_S, real_exchanges(&r) >= 3);
    assert_int_equal(real_members(&r, "join"), 2);
    for (int i = 0; i < 4 && real_members(&r, "dead") == 0; i++) {
        kill(worker[i], SIGKILL); /* until it was one that had joined */
        process_nap(0.5);
    }
    UNTIL(REAL_LIMIT_S, real_members(&r, "join") == 3);
    real_end(&r, 0, "epochs");
    expect_books(&r, 4 * 16);
    process_release(&r.p);
}

/* A worker that sleeps for too long is disconnected; when it wakes up it discards its state and
 * rejoins. */
static void test_worker_that_slept_rejoins(void **state)
{
    struct tiny *t = *state;
    for (int i = 0; i < 2; i++) {
        struct real_run r = real_new(t);
        pid_t worker[PROCESS_CHILDREN_MAX];
        START(t, &r, "--workers", "4", "--set", "pace=0.01", "--set", "stop.epochs=100", "--set",
              "heartbeat=lan", "--set", ways[i]);
        real_workers(&r, 4, worker);
        UNTIL(REAL_LIMIT_S, real_exchanges(&r) >= 5);
        kill(worker[2], SIGSTOP);
        UNTIL(REAL_LIMIT_S, real_members(&r, "cut") == 1);
        int before = real_exchanges(&r);
        UNTIL(REAL_LIMIT_S, real_exchanges(&r) > before + 3); /* the others have continued */
        kill(worker[2], SIGCONT);
        UNTIL(REAL_LIMIT_S, real_members(&r, "join") == 5);
        process_nap(0.3);
        process_signal_all(&r.p, SIGINT);
        real_end(&r, 130, "interrupted");
        assert_int_equal(real_members(&r, "dead"), 0);
        expect_books(&r, 4 * 16);
        process_release(&r.p);
    }
}

static void test_a_worker_leaves_in_good_order(void **state)
{
    struct tiny *t = *state;
    for (int i = 0; i < WAYS; i++) {
        struct real_run r = real_new(t);
        pid_t worker[PROCESS_CHILDREN_MAX];
        START(t, &r, "--workers", "4", "--set", "pace=0.01", "--set", "stop.epochs=30", "--set",
              ways[i]);
        real_workers(&r, 4, worker);
        UNTIL(REAL_LIMIT_S, real_exchanges(&r) >= 5);
        double asked = process_now();
        kill(worker[i % 4], SIGTERM);
        UNTIL(REAL_LIMIT_S, real_members(&r, "leave") == 1);
        print_message("    %s: gone after %.3f s\n", ways[i], process_now() - asked);
        UNTIL(3, real_has_ended(worker + i % 4, 1));
        real_end(&r, 0, "epochs");
        assert_null(strstr(r.p.err, "the driver is gone")); /* it disconnects, as requested */
        assert_int_equal(run_changes(r.dir), 5);
        expect_books(&r, 0);
        process_release(&r.p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_killed_worker_is_replaced),
        cmocka_unit_test(test_worker_started_by_hand_joins),
        cmocka_unit_test(test_one_stands_by),
        cmocka_unit_test(test_worker_that_slept_rejoins),
        cmocka_unit_test(test_a_worker_leaves_in_good_order),
    };
    return cmocka_run_group_tests(tests, tiny_setup_elastic, tiny_teardown);
}
