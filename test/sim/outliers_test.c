/* `reject: outliers`: one of eight workers has gone bad. With the key the run ends about as well as
 * without the bad worker's fault, the bad contributions are refused, counted and in events, and the
 * worker is ended. Sound workers are never refused. */
#include "sim_cluster.h"
#include "strategy/strategy.h"

#include <math.h>

enum { WORKERS = 8, BAD = 5, SPOILED_FROM = 3 };

static const char eight[] = "node { count: 8 } step_seconds: 0.004 link { mbit: 1000 }\n";

enum fault { FAULT_NONE, FAULT_NAN, FAULT_HUGE, FAULT_FLIPPED, FAULT_STALE, FAULTS };
static const char *const fault_names[FAULTS] = {"none", "not finite", "times 1e6", "sign flipped",
                                                "stale"};

struct play {
    enum fault fault;
    int contributions; /* of the bad worker */
    float *stale;      /* its first one that it repeats */
    struct train_watch watch;
    struct sim_train train;
    int rejected, rejected_sound, ended, ended_sound;
};

/* The machine of worker BAD breaks after its first contributions. Of a push to several servers only
 * the first one's part has not left yet. */
static void spoil_contribution(void *user, uint32_t node, struct vec *v)
{
    struct play *p = user;
    if (node != BAD || p->fault == FAULT_NONE || ++p->contributions <= SPOILED_FROM)
        return;
    switch (p->fault) {
    case FAULT_NAN: v->at[0] = (float)NAN; break;
    case FAULT_HUGE: vec_scale(v, 1e6f, vec_all(v)); break;
    case FAULT_FLIPPED: vec_scale(v, -1.0f, vec_all(v)); break;
    default:
        if (!p->stale) {
            p->stale = malloc(v->n * sizeof(float));
            assert_non_null(p->stale);
            vec_export(v, vec_all(v), p->stale);
        }
        vec_import(v, vec_all(v), p->stale);
    }
}

static void on_event(void *user, const char *line)
{
    struct play *p = user;
    char bad[16];
    snprintf(bad, sizeof bad, "\"node\":%d,", BAD);
    bool is_bad = strstr(line, bad) != NULL;
    if (strstr(line, "\"kind\":\"rejected\""))
        *(is_bad ? &p->rejected : &p->rejected_sound) += 1;
    if (strstr(line, "\"what\":\"failed\""))
        *(is_bad ? &p->ended : &p->ended_sound) += 1;
}

static void change_host(void *user, uint32_t node, struct train_host *host)
{
    struct play *p = user;
    (void)node;
    host->watch = &p->watch;
}

/* Plays a run of the strategy with that fault. */
static void play_wire(struct tiny *t, struct play *p, const char *strategy, const char *wire,
                      bool rejects, enum fault fault)
{
    struct ground ground;
    const char *set[] = {strategy,
                         wire,
                         "workers=8",
                         "batch=4",
                         "stop.epochs=7",
                         strstr(strategy, "asp") || strstr(strategy, "downpour")
                             ? "solver.base_lr=0.004" /* one push at a time */
                             : "solver.base_lr=0.05",
                         rejects ? "reject=outliers" : "reject=not_finite",
                         NULL};
    *p = (struct play){.fault = fault};
    p->watch = (struct train_watch){.user = p,
                                    .exchanges = {.user = p, .contributes = spoil_contribution}};
    ground_open(&ground, t, set);
    p->train = (struct sim_train){.ground = &ground,
                                  .cluster = eight,
                                  .host = change_host,
                                  .event = on_event,
                                  .user = p,
                                  .level = LOG_WARN};
    sim_train_play(&p->train);
    ground_close(&ground);
    free(p->stale);
}

static void play_fault(struct tiny *t, struct play *p, const char *strategy, bool rejects,
                       enum fault fault)
{
    play_wire(t, p, strategy, "collective.wire=f32", rejects, fault);
}

static const char *const judged[] = {
    "strategy.allreduce={}",
    "strategy.sync={ tau: 4 }",
    "strategy.diloco={ tau: 4 outer_momentum: 0.5 }",
    "strategy.easgd={ mode: sync tau: 4 }",
    "strategy.easgd={ mode: async tau: 4 }",
    "strategy.ps={ consistency: bsp }",
    "strategy.ps={ consistency: asp servers: 2 }",
    "strategy.downpour={ n_push: 4 n_fetch: 4 }",
};

enum { STRATEGIES = sizeof judged / sizeof *judged };

static void expect_near(const char *strategy, enum fault fault, const struct play *p, double sound)
{
    print_message("    %s, %s: error %.2f%% (sound %.2f%%), %d refused, %s\n", strategy,
                  fault_names[fault], 100 * p->train.report.test_error, 100 * sound, p->rejected,
                  p->ended ? "ended" : "not ended");
    if (p->train.rc != OK || p->rejected_sound > 0 || p->ended_sound > 0 ||
        !(p->train.report.test_error <= sound + 0.005))
        fail_msg("%s, %s: status %d (%s), error %g, %g without the fault; %d sound contributions "
                 "refused\n%s",
                 strategy, fault_names[fault], p->train.rc, p->train.err.text,
                 p->train.report.test_error, sound, p->rejected_sound, p->train.log);
}

static void test_outliers_do_not_spoil_the_run(void **state)
{
    static struct play p;
    for (size_t i = 0; i < STRATEGIES; i++) {
        play_fault(*state, &p, judged[i], true, FAULT_NONE);
        if (p.train.rc != OK || p.rejected + p.rejected_sound > 0)
            fail_msg("%s: status %d (%s), %d refused\n%s", judged[i], p.train.rc, p.train.err.text,
                     p.rejected + p.rejected_sound, p.train.log);
        double sound = p.train.report.test_error;
        for (enum fault fault = FAULT_NAN; fault < FAULTS; fault++) {
            play_fault(*state, &p, judged[i], true, fault);
            expect_near(judged[i], fault, &p, sound);
            if (fault == FAULT_FLIPPED)
                continue; /* whether it is noticed depends on how much the workers agree */
            assert_true(p.rejected >= 5);
            assert_int_equal(p.ended, 1);
            assert_int_equal(p.train.report.rejected, p.rejected);
        }
    }
}

/* The key is what protects the run. */
static void test_outliers_spoil_the_run_without_the_key(void **state)
{
    static struct play p;
    play_fault(*state, &p, "strategy.allreduce={}", false, FAULT_HUGE);
    assert_true(p.train.rc != OK || p.train.report.test_error > 0.2);
    play_fault(*state, &p, "strategy.ps={ consistency: bsp }", false, FAULT_HUGE);
    assert_true(p.train.rc != OK || p.train.report.test_error > 0.2);
}

/* Where nothing is refused, synchronous strategies compute the same. */
static void test_outliers_change_no_sound_run(void **state)
{
    static struct play with, without;
    for (size_t i = 0; i < 4; i++) {
        play_fault(*state, &with, judged[i], true, FAULT_NONE);
        play_fault(*state, &without, judged[i], false, FAULT_NONE);
        assert_true(with.train.report.test_loss == without.train.report.test_loss);
    }
}

/* A lossy wire keeps what a refused worker owes. */
static void test_outliers_on_a_lossy_wire(void **state)
{
    static struct play p;
    for (size_t i = 0; i < STRATEGIES; i += 5) { /* allreduce, ps */
        play_wire(*state, &p, judged[i], "collective.wire=int8", true, FAULT_NONE);
        assert_int_equal(p.rejected + p.rejected_sound, 0);
        double sound = p.train.report.test_error;
        play_wire(*state, &p, judged[i], "collective.wire=int8", true, FAULT_HUGE);
        expect_near(judged[i], FAULT_HUGE, &p, sound);
        assert_int_equal(p.ended, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outliers_do_not_spoil_the_run),
        cmocka_unit_test(test_outliers_spoil_the_run_without_the_key),
        cmocka_unit_test(test_outliers_change_no_sound_run),
        cmocka_unit_test(test_outliers_on_a_lossy_wire),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
