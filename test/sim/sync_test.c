/* Synchronous model averaging (src/strategy/sync.c) in all its ways: against the equations done by
 * hand, on a timeline, and through deaths and resumptions. */
#include "real_run.h"
#include "replay.h"
#include "strategy_sim.h"

/* ---- what it computes ---- */

static void test_alone_it_is_single(void **state)
{
    struct tiny *t = *state;
    static const char *const options[] = {
        "strategy.sync={tau:7 on_replace:average}",
        "strategy.sync.seconds=0.03",
        "strategy.sync.tau_auto=true",
    };
    static const char *const solver[] = {
        "solver.type=SGD", "solver={type:'Adam' base_lr:0.002 momentum:0.9 lr_policy:'fixed'}"};
    for (size_t k = 0; k < 2; k++) {
        struct sim_run single = {0};
        SIM(t, SIM_CALM, &single, "workers=1", "stop.steps=45", solver[k], "strategy.single={}");
        for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
            struct sim_run r = {0};
            SIM(t, SIM_CALM, &r, "workers=1", "stop.steps=45", solver[k], options[i]);
            if (!run_same_bits(r.dir, single.dir, "final.safetensors"))
                fail_msg("%s, %s", options[i], solver[k]);
            sim_adds_up(&r);
        }
    }
}

/* However rounds end, the first one begins after the samples of the init_iterations. */
static void test_alone_it_begins_behind_what_came_first(void **state)
{
    struct tiny *t = *state;
    struct sim_run by_steps = {0}, by_clock = {0};
    SIM(t, SIM_CALM, &by_steps, "workers=1", "stop.steps=45",
        "strategy.sync={tau:7 init_iterations:5}");
    SIM(t, SIM_CALM, &by_clock, "workers=1", "stop.steps=45",
        "strategy.sync={seconds:0.03 init_iterations:5}");
    assert_true(run_same_bits(by_clock.dir, by_steps.dir, "final.safetensors"));
    assert_int_equal(by_clock.report.used, 50 * SIM_BATCH);
}

enum { N = REPLAY_FLOATS, K = REPLAY_WORKERS };

struct plan {
    const char *options;
    uint64_t tau, steps, init;
    bool average, reset;
};

/* x and, where it is averaged, the optimizer's m become the mean over all workers. */
static void average_models(const struct replay *r, float v[K][N])
{
    float mean[N] = {0};
    replay_mean(r, v[0], N, K, mean);
    for (int i = 0; i < K; i++)
        memcpy(v[i], mean, sizeof mean);
}

static void play_plan(struct replay *r, const struct plan *plan, float x[K][N])
{
    static float m[K][N];
    memset(m, 0, sizeof m);
    memcpy(x[0], r->x0, sizeof x[0]);
    for (uint64_t j = 0; j < plan->init; j++) /* one worker alone, whose momentum no other
                                                 continues */
        replay_step(r, x[0], m[0], j * SIM_BATCH, j);
    memset(m, 0, sizeof m);
    for (int i = 1; i < K; i++)
        memcpy(x[i], x[0], sizeof x[i]);
    for (uint64_t j = 0; j < plan->steps; j++) {
        for (uint64_t i = 0; i < K; i++)
            replay_step(r, x[i], m[i], (plan->init + j * K + i) * SIM_BATCH, j);
        if ((j + 1) % plan->tau != 0 && j + 1 < plan->steps)
            continue;
        average_models(r, x);
        if (plan->average)
            average_models(r, m);
        if (plan->reset)
            memset(m, 0, sizeof m);
    }
}

static void test_three_workers_follow_the_equations(void **state)
{
    struct tiny *t = *state;
    static const struct plan plans[] = {
        {"strategy.sync.tau=4", 4, 14, 0, false, false},
        {"strategy.sync={tau:4 on_replace:reset}", 4, 14, 0, false, true},
        {"strategy.sync={tau:4 on_replace:average}", 4, 14, 0, true, false},
        {"strategy.sync={tau:4 init_iterations:5}", 4, 14, 5, false, false},
    };
    static struct replay r;
    static float x[K][N];
    replay_open(&r, t);
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        struct sim_run run = {0};
        play_plan(&r, &plans[i], x);
        SIM(t, SIM_CALM, &run, "workers=3", "stop.steps=14", plans[i].options);
        double apart = replay_difference(&r, x[0], run.dir);
        print_message("    %s: %.2g\n", plans[i].options, apart);
        assert_true(apart <= SIM_SAME);
        assert_int_equal(run.report.used, (14 * K + plans[i].init) * SIM_BATCH);
        sim_adds_up(&run);
    }
    replay_close(&r);
}

static void test_a_rate_that_is_too_high_is_reported(void **state)
{
    static const char *const options[] = {"strategy.sync.seconds=0.02",
                                          "strategy.sync.tau_auto=true",
                                          "strategy.sync.init_iterations=5"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct sim_run r = {0};
        SIM_TRY(*state, SIM_CALM, &r, options[i], "solver.base_lr=1e30");
        assert_int_equal(r.rc, PL_ERR_DIVERGED);
    }
}

/* ---- when ---- */

/* Two workers take 1 s a step, the third 2 s; a message takes 50 ms. The driver is the root of the
 * exchange's tree, workers 0 and 1 hang on it, and worker 2 on worker 1. Worker 2 comes last, and
 * from then on notes go up (100 ms) and down (100 ms), vectors up (100 ms) and down: worker 0 and 1
 * have the mean 350 ms after it came, worker 2 after 400.
 *
 * Each trains for 2.5 s, that is as long as steps begin before 2.5 s are over:
 *
 *     s         0    1    2    3    4    5    6    7    8
 *     worker 0  [  ][  ][  ]……………|–[  ][  ][  ]……………|–
 *     worker 1  [  ][  ][  ]……………|–[  ][  ][  ]……………|–
 *     worker 2  [      ][      ]——[      ][      ]——
 *
 * With τ = 3 the others would have waited for worker 2 for 3 s a round; now it takes two steps
 * while they take three, and they wait for 1 s (…), for the end of the step that it began at 2 s.
 * Their three models count alike. The round was 8 · 16 records, and 8/3, that is 3, steps of each.
 */
static void test_the_timeline_of_rounds_by_the_clock(void **state)
{
    struct tiny *t = *state;
    struct sim_run r = {.traced = true};
    struct trace_events trace;
    SIM(t,
        "node { count: 2 } node { speed: 0.5 } step_seconds: 1\n"
        "link { mbit: 1000000 latency_us: 50000 }\n",
        &r, "workers=3", "stop.steps=6", "collective.algorithm=tree", "strategy.sync.seconds=2.5");
    trace_read(r.trace, &trace);
    trace_nests(&trace);
    double zero = sim_zero(&trace);
    SIM_SPANS(&trace, 0, "compute", zero, {0, 1}, {1, 2}, {2, 3}, {4.35, 5.35}, {5.35, 6.35},
              {6.35, 7.35});
    SIM_SPANS(&trace, 1, "compute", zero, {0, 1}, {1, 2}, {2, 3}, {4.35, 5.35}, {5.35, 6.35},
              {6.35, 7.35});
    SIM_SPANS(&trace, 2, "compute", zero, {0, 2}, {2, 4}, {4.4, 6.4}, {6.4, 8.4});
    SIM_SPANS(&trace, 0, "exchange", zero, {3, 4.35}, {7.35, 8.75});
    SIM_SPANS(&trace, 1, "exchange", zero, {3, 4.35}, {7.35, 8.75});
    SIM_SPANS(&trace, 2, "exchange", zero, {4, 4.4}, {8.4, 8.8});
    sim_exchange(&r, 0, 0, 1, zero, 4.45);
    sim_exchange(&r, 1, 0, 2, zero, 8.85);
    assert_int_equal(run_count(r.dir, "exchange", NULL, NULL), 2);
    assert_int_equal(r.report.used, 2 * 8 * SIM_BATCH);
    sim_adds_up(&r);
    trace_release(&trace);

    /* And its result: worker i's jth step takes the jth batch of its own stripe of the samples. */
    static struct replay play;
    static float x[K][N], m[K][N];
    static const uint64_t steps[K] = {3, 3, 2};
    replay_open(&play, t);
    memset(m, 0, sizeof m);
    for (int i = 0; i < K; i++)
        memcpy(x[i], play.x0, sizeof x[i]);
    for (uint64_t round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < K; i++)
            for (uint64_t j = round * steps[i]; j < (round + 1) * steps[i]; j++)
                replay_step(&play, x[i], m[i], (j * K + i) * SIM_BATCH, j);
        average_models(&play, x);
    }
    assert_true(replay_difference(&play, x[0], r.dir) <= SIM_SAME);
    replay_close(&play);
}

/* The same cluster with steps of 0.3 and 0.6 s. An exchange takes 0.4 s of worker 2, which does not
 * wait; five times that is 3.33 of its steps, so τ is 3. Three rounds of ten steps measure this;
 * after them 15 steps are five rounds, and 16 six. A round of the first kind takes 10·0.6 + 0.4 s,
 * one of the second 3·0.6 + 0.4. */
static void test_tau_is_five_exchanges(void **state)
{
    struct tiny *t = *state;
    static const char cluster[] = "node { count: 2 } node { speed: 0.5 } step_seconds: 0.3\n"
                                  "link { mbit: 1000000 latency_us: 50000 }\n";
    static const char *const stop[] = {"stop={steps:45}", "stop={steps:46}"};
    for (int i = 0; i < 2; i++) {
        struct sim_run r = {0};
        SIM(t, cluster, &r, "workers=3", stop[i], "collective.algorithm=tree",
            "strategy.sync.tau_auto=true");
        assert_int_equal(run_count(r.dir, "exchange", NULL, NULL), 8 + i);
        double zero = run_number(r.dir, "exchange", 0, "t") - 6.4;
        for (int n = 1; n <= 3; n++)
            sim_exchange(&r, n - 1, 0, n, zero, n * 6.4);
        for (int n = 4; n <= 8; n++)
            sim_exchange(&r, n - 1, 0, n, zero, 19.2 + (n - 3) * 2.2);
        assert_int_equal(r.report.used, (45 + i) * 48);
        sim_adds_up(&r);
    }
}

/* SGD on one node first: worker 0 takes five steps while the others wait for it, and all begin
 * their first round when they have its model. */
static void test_the_timeline_of_init_iterations(void **state)
{
    struct tiny *t = *state;
    struct sim_run r = {.traced = true};
    struct trace_events trace;
    SIM(t,
        "node { count: 2 } node { speed: 0.5 } step_seconds: 1\n"
        "link { mbit: 1000000 latency_us: 50000 }\n",
        &r, "workers=3", "stop.steps=1", "collective.algorithm=tree",
        "strategy.sync.init_iterations=2");
    trace_read(r.trace, &trace);
    trace_nests(&trace);
    double zero = sim_zero(&trace);
    /* From worker 0 it is one message to the root, and from there two to worker 2 and back. */
    SIM_SPANS(&trace, 0, "compute", zero, {0, 1}, {1, 2}, {2.3, 3.3});
    SIM_SPANS(&trace, 1, "compute", zero, {2.3, 3.3});
    SIM_SPANS(&trace, 2, "compute", zero, {2.35, 4.35});
    assert_int_equal(r.report.used, (2 + 3) * SIM_BATCH);
    trace_release(&trace);
}

/* ---- faults ---- */

static void test_a_death_at_any_moment_is_survived(void **state)
{
    static const char *const options[][3] = {
        {"strategy.sync={tau:4 on_replace:average}", "evaluate.every_exchanges=2", NULL},
        {"strategy.sync={tau:4 init_iterations:10}", "evaluate.every_exchanges=2", NULL},
        {"strategy.sync.tau_auto=true", NULL},
    };
    static const uint64_t steps[] = {4, 4, 10};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        sim_survives(*state, options[i], 24, steps[i]);
}

/* With rounds by the clock, a round has the samples that were contributed. */
static void test_by_the_clock_nothing_is_missed(void **state)
{
    static const char *const options[] = {"strategy.sync.seconds=0.02",
                                          "evaluate.every_exchanges=2", NULL};
    sim_survives(*state, options, 24, 0);
}

/* Worker 0 dies in the middle of its init_iterations, and worker 1 does them instead. */
static void test_who_begins_may_die(void **state)
{
    struct sim_run r = {0};
    SIM(*state, SIM_CALM "fault { at: 0.1 kill: 0 }", &r,
        "strategy.sync={tau:4 init_iterations:50}");
    assert_int_equal(run_count(r.dir, "member", "what", "dead"), 1);
    assert_true(r.report.wall_s > 0.1 + 50 * 0.004);
    assert_int_equal(r.report.missed, 0);
    assert_int_equal(r.report.used % SIM_BATCH, 0);
    sim_adds_up(&r);
}

/* No worker reaches the driver any more, from one of many moments around the last exchange on. If
 * the driver has the final model, it counts all the samples of that, also without reports. */
static void test_the_last_exchange_counts_without_reports(void **state)
{
    static const char *const set[] = {"strategy.sync.tau=4", "stop.steps=20", NULL};
    struct sim_run whole = {0};
    sim_do(*state, SIM_CALM, &whole, set);
    double last = run_number(whole.dir, "exchange", 4, "t");
    int unreported = 0;
    for (int i = 0; i < 40; i++) {
        char cluster[512], *end = cluster + sprintf(cluster, SIM_CALM);
        struct sim_run r = {0};
        for (int node = 0; node < 4; node++)
            end += sprintf(end, "fault { at: %.9f part: %d }\n", last - 50e-6 * i, node);
        sim_try(*state, cluster, &r, set);
        if (r.rc != PL_OK)
            continue;
        unreported += run_count(r.dir, "exchange", NULL, NULL) < 5;
        assert_int_equal(r.report.used, whole.report.used);
        sim_adds_up(&r);
    }
    assert_true(unreported > 0);
}

/* A resumed run skips init_iterations, and measures τ again. */
static void test_a_resumed_run_continues(void **state)
{
    static const char *const options[] = {"strategy.sync={tau:4 init_iterations:10}",
                                          "strategy.sync.tau_auto=true",
                                          "strategy.sync.seconds=0.02"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct sim_run r = {.limit_s = 0.3};
        const char *const set[] = {"stop.epochs=10", "checkpoint.every_seconds=0.05", options[i],
                                   NULL};
        sim_try(*state, SIM_CALM, &r, set);
        assert_int_equal(r.rc, PL_ERR_TIMEOUT);
        r.limit_s = 0;
        sim_do(*state, SIM_CALM, &r, set);
        assert_true(run_number(r.dir, "start", 1, "resumed_after") > 0);
        sim_adds_up(&r);
        assert_true(r.report.epochs >= 10 && r.report.epochs < 10.25);
        assert_true(r.report.test_error < 0.3);
    }
}

/* ---- for real ---- */

/* Steps of 10 ms at least and rounds of 100 ms: a round is at most ten steps of each and a step
 * that was under way. On a busy machine one of the two may take only one step a round. */
static void test_two_real_workers_by_the_clock(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    START(t, &r, "--workers", "2", "--set", "stop.steps=40", "--set", "pace=0.01", "--set",
          "strategy.sync={seconds:0.1 init_iterations:3}");
    real_end(&r, 0, "steps");
    process_release(&r.p);
    int exchanges = real_exchanges(&r);
    assert_true(exchanges >= 1 + 4 && exchanges <= 1 + 40);
    double used = run_number(r.dir, "end", 0, "used");
    assert_true(used >= (3 + 39.0 + (exchanges - 1)) * SIM_BATCH);
    assert_true(used <= (3 + 2 * 41.0) * SIM_BATCH);
    assert_true(run_number(r.dir, "end", 0, "missed") == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone_it_is_single),
        cmocka_unit_test(test_alone_it_begins_behind_what_came_first),
        cmocka_unit_test(test_three_workers_follow_the_equations),
        cmocka_unit_test(test_a_rate_that_is_too_high_is_reported),
        cmocka_unit_test(test_the_timeline_of_rounds_by_the_clock),
        cmocka_unit_test(test_tau_is_five_exchanges),
        cmocka_unit_test(test_the_timeline_of_init_iterations),
        cmocka_unit_test(test_a_death_at_any_moment_is_survived),
        cmocka_unit_test(test_by_the_clock_nothing_is_missed),
        cmocka_unit_test(test_who_begins_may_die),
        cmocka_unit_test(test_the_last_exchange_counts_without_reports),
        cmocka_unit_test(test_a_resumed_run_continues),
        cmocka_unit_test(test_two_real_workers_by_the_clock),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
