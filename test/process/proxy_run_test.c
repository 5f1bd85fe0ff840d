/* Real runs of three workers and a driver, in which all connections of one worker go through the
 * fault proxy: the run tolerates faults that it can; others remove that worker, by name, and the
 * rest ends the run well. */
#include "machines.h"

/* From a fault until the worker is out: 5 s of silence where workers share cores, and until it is
 * seen on a busy machine. */
#define LATE_MAX_S 20.0

enum { EPOCHS = 16, WORKERS = 3 };

struct story {
    const char *strategy;
    const char *fault[2]; /* command to the proxy, after the first exchange */
    double heal_s;        /* seconds until the fault ends; 0: never */
    bool borne;           /* all three end the run */
    const char *named;    /* a text that a log must contain */
};

static void expect_books(const struct machines *s, bool all)
{
    double used = run_number(s->run.dir, "end", 0, "used");
    double missed = run_number(s->run.dir, "end", 0, "missed");
    double repeated = run_number(s->run.dir, "end", 0, "repeated");
    double epochs = run_number(s->run.dir, "end", 0, "epochs");
    print_message("    used %g, repeated %g, missed %g, epochs %g\n", used, repeated, missed,
                  epochs);
    assert_true(epochs >= EPOCHS);
    assert_true(missed >= 0 && (!all || missed == 0));
    /* Epochs count all samples trained, also those repeated while no lease arrived. */
    double again = epochs * (TINY_TRAIN - 60) - used - missed;
    assert_true(again > -0.5 && again < repeated + 0.5);
}

static bool reported_by_any(const struct machines *s, const char *what)
{
    bool found = machines_log(&s->run.p, what);
    for (size_t i = 0; i < s->workers; i++)
        found |= machines_log(&s->worker[i], what);
    return found;
}

/* Worker 0 has been removed, and no other. */
static int count_lost(const struct machines *s)
{
    static const char *const lost[] = {"dead", "cut", "hung", "fenced", "failed", "leave"};
    int n = 0;
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        cJSON *event;
        for (int k = 0; (event = run_event(s->run.dir, "member", "what", lost[i], k)); k++) {
            assert_true(cJSON_GetObjectItem(event, "node")->valueint == 0);
            cJSON_Delete(event);
            n++;
        }
    }
    return n;
}

/* The fault has happened, and worker 0 has the expected fate. */
static void see_it_through(struct machines *s, const struct story *story)
{
    double since = process_now();
    if (story->heal_s > 0) {
        process_nap(story->heal_s);
        assert_int_equal(count_lost(s), 0);
        proxied_command(&s->proxy, "pass");
    }
    if (!story->borne) {
        UNTIL(LATE_MAX_S, count_lost(s) == 1);
        print_message("    out after %.2f s\n", process_now() - since);
    }
    process_wait(&s->run.p, 2 * REAL_LIMIT_S);
    if (s->run.p.code != 0)
        fail_msg("code %d; it said:\n%s", s->run.p.code, s->run.p.err);
    assert_int_equal(count_lost(s), story->borne ? 0 : 1);
    expect_books(s, story->borne);
    if (story->named && !reported_by_any(s, story->named))
        fail_msg("nobody says '%s'; the driver says:\n%s", story->named, s->run.p.err);
    for (size_t i = story->borne ? 0 : 1; i < s->workers; i++) {
        process_wait(&s->worker[i], REAL_LIMIT_S);
        assert_int_equal(s->worker[i].code, 0);
    }
}

static void play_story(struct tiny *t, const struct story *story)
{
    char strategy[64];
    struct machines s;
    snprintf(strategy, sizeof strategy, "strategy.%s", story->strategy);
    const char *const set[] = {"workers=3", strategy, "pace=0.01", "stop.epochs=16", NULL};
    print_message("  %s: %s\n", story->strategy, story->fault[0]);
    machines_stage(t, &s, set);
    machines_worker_behind(&s, t->folder);
    UNTIL(REAL_LIMIT_S, process_poll(&s.worker[0]) || real_members(&s.run, "join") == 1);
    if (s.worker[0].ended)
        fail_msg("worker 0 has not joined; it said:\n%s", s.worker[0].err);
    for (int i = 1; i < WORKERS; i++)
        WORKER(&s, t->folder, "--retry", "0"); /* a lost worker stays lost */
    UNTIL(REAL_LIMIT_S, process_poll(&s.run.p) || real_exchanges(&s.run) >= 5);
    for (int i = 0; i < 2 && story->fault[i]; i++)
        proxied_command(&s.proxy, story->fault[i]);
    see_it_through(&s, story);
    machines_release(&s);
}

static void play_all(struct tiny *t, const struct story *stories, size_t n)
{
    static const char *const strategies[] = {"sync={tau: 4}", "mpca={}", "pace={}"};
    for (size_t k = 0; k < sizeof strategies / sizeof *strategies; k++) {
        for (size_t i = 0; i < n; i++) {
            struct story story = stories[i];
            story.strategy = strategies[k];
            play_story(t, &story);
        }
    }
}

#define PLAY(t, stories) play_all(t, stories, sizeof(stories) / sizeof *(stories))

static void test_what_can_be_borne(void **state)
{
    static const struct story stories[] = {
        {.fault = {"pass"}, .borne = true},
        {.fault = {"delay 10"}, .borne = true},
        {.fault = {"mbit 10"}, .borne = true},
        {.fault = {"blackhole"}, .heal_s = 1, .borne = true},
        /* it can send, and does not receive */
        {.fault = {"0 oneway up", "1 oneway down"}, .heal_s = 1, .borne = true},
    };
    PLAY(*state, stories);
}

static void test_what_cannot(void **state)
{
    static const struct story stories[] = {
        {.fault = {"reset"}, .named = "is lost: its connection has ended"},
        {.fault = {"blackhole"}, .named = "is lost: no heartbeat, or no link, for "},
        /* it receives, and cannot send */
        {.fault = {"0 oneway down", "1 oneway up"},
         .named = "is lost: no heartbeat, or no link, for "},
        /* changed bytes are noticed before anything is made of them */
        {.fault = {"corrupt 2000"}, .named = "bytes were corrupted on the way"},
    };
    PLAY(*state, stories);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_can_be_borne),
        cmocka_unit_test(test_what_cannot),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
