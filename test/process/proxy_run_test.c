/* Real runs of three workers and a driver, of which one worker's every connection goes through the
 * fault proxy: the run bears what can be borne; what cannot puts that worker out, by name, and the
 * others end the run well. */
#include "staged.h"

#define LATE_MAX_S \
    20.0 /* from a fault until the worker is out: 5 s of silence, on a busy machine */
#define HUNG_MAX_S 90.0 /* until one counts as hung: 30 s without progress while its heart beats \
                         */

enum { EPOCHS = 16, WORKERS = 3 };

struct story {
    const char *strategy;
    const char *fault[3]; /* told to the proxy, once exchanges have begun */
    bool borne;           /* all three end the run */
    double limit_s;       /* else worker 0 is out by then */
    const char *named;    /* what somebody's log says of it */
};

static void expect_books(const struct staged *s, bool all)
{
    double used = run_number(s->run.dir, "end", 0, "used");
    double missed = run_number(s->run.dir, "end", 0, "missed");
    double epochs = run_number(s->run.dir, "end", 0, "epochs");
    print_message("    used %g, missed %g, epochs %g\n", used, missed, epochs);
    assert_true(epochs >= EPOCHS);
    assert_true(missed >= 0 && (!all || missed == 0));
    assert_true(fabs(used + missed - epochs * (TINY_TRAIN - 60)) < 0.5);
}

static bool said_by_anybody(const struct staged *s, const char *what)
{
    int n = staged_said(&s->run.p, what);
    for (size_t i = 0; i < s->workers; i++)
        n += staged_said(&s->worker[i], what);
    return n > 0;
}

/* Worker 0 has been put out, and nobody else. */
static int lost(const struct staged *s)
{
    int n = run_count(s->run.dir, "member", NULL, NULL) - real_members(&s->run, "join");
    for (int i = 0; i < n; i++)
        assert_true(run_number(s->run.dir, "member", WORKERS + i, "node") == 0);
    return n;
}

static void play(struct tiny *t, const struct story *story)
{
    char strategy[64];
    struct staged s;
    snprintf(strategy, sizeof strategy, "strategy.%s", story->strategy);
    const char *const set[] = {strategy, "pace=0.01", "stop.epochs=16", NULL};
    print_message("  %s: %s\n", story->strategy, story->fault[0]);
    staged_start(t, &s, WORKERS, set);
    UNTIL(REAL_LIMIT_S, process_poll(&s.run.p) || real_exchanges(&s.run) >= 5);
    for (int i = 0; i < 3 && story->fault[i]; i++)
        proxied_tell(&s.proxy, story->fault[i]);
    double since = process_now();
    if (!story->borne) {
        UNTIL(story->limit_s, lost(&s) == 1);
        print_message("    out after %.2f s\n", process_now() - since);
    }
    process_wait(&s.run.p, 2 * REAL_LIMIT_S);
    if (s.run.p.code != 0)
        fail_msg("code %d; it said:\n%s", s.run.p.code, s.run.p.err);
    assert_int_equal(lost(&s), story->borne ? 0 : 1);
    expect_books(&s, story->borne);
    if (story->named && !said_by_anybody(&s, story->named))
        fail_msg("nobody says '%s'; the driver says:\n%s", story->named, s.run.p.err);
    for (size_t i = story->borne ? 0 : 1; i < s.workers; i++) {
        process_wait(&s.worker[i], REAL_LIMIT_S);
        assert_int_equal(s.worker[i].code, 0);
    }
    staged_release(&s);
}

#define SYNC "sync={tau: 4}"
#define MPCA "mpca={}"

static void test_what_can_be_borne(void **state)
{
    static const struct story stories[] = {
        {SYNC, {"pass"}, true, 0, NULL},     {SYNC, {"delay 10"}, true, 0, NULL},
        {SYNC, {"mbit 10"}, true, 0, NULL},  {MPCA, {"pass"}, true, 0, NULL},
        {MPCA, {"delay 10"}, true, 0, NULL}, {MPCA, {"mbit 10"}, true, 0, NULL},
    };
    for (size_t i = 0; i < sizeof stories / sizeof *stories; i++)
        play(*state, &stories[i]);
}

static void test_what_cannot(void **state)
{
    static const struct story stories[] = {
        {SYNC, {"reset"}, false, LATE_MAX_S, "worker 0: dead"},
        {SYNC, {"blackhole"}, false, LATE_MAX_S, "worker 0: cut"},
        {MPCA, {"reset"}, false, LATE_MAX_S, "worker 0: dead"},
        {MPCA, {"blackhole"}, false, LATE_MAX_S, "worker 0: cut"},
    };
    for (size_t i = 0; i < sizeof stories / sizeof *stories; i++)
        play(*state, &stories[i]);
}

/* It hears and is not heard, or is heard and does not hear. */
static void test_one_way(void **state)
{
    static const struct story stories[] = {
        {SYNC, {"0 oneway down", "1 oneway up"}, false, LATE_MAX_S, "worker 0: cut"},
        {MPCA, {"0 oneway down", "1 oneway up"}, false, LATE_MAX_S, "worker 0: cut"},
        {SYNC, {"0 oneway up", "1 oneway down"}, false, HUNG_MAX_S, NULL},
        {MPCA, {"0 oneway up", "1 oneway down"}, false, HUNG_MAX_S, NULL},
    };
    for (size_t i = 0; i < sizeof stories / sizeof *stories; i++)
        play(*state, &stories[i]);
}

/* Changed bytes are noticed before anything is made of them, and said to be that. */
static void test_corruption(void **state)
{
    static const struct story stories[] = {
        {SYNC, {"corrupt 2000"}, false, LATE_MAX_S, "corrupted"},
        {MPCA, {"corrupt 2000"}, false, LATE_MAX_S, "corrupted"},
    };
    for (size_t i = 0; i < sizeof stories / sizeof *stories; i++)
        play(*state, &stories[i]);
}

static int setup(void **state)
{
    static struct tiny tiny;
    tiny_create(&tiny);
    *state = &tiny;
    return 0;
}

static int teardown(void **state)
{
    tiny_remove(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_can_be_borne),
        cmocka_unit_test(test_what_cannot),
        cmocka_unit_test(test_one_way),
        cmocka_unit_test(test_corruption),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
