/* Asynchronous all-reduce (src/strategy/async_allreduce.c): against the equations done by hand, on
 * a timeline, and through deaths and resumptions. */
#include "real_run.h"
#include "replay.h"
#include "strategy_scene.h"
#include "strategy_sim.h"

#define METHOD(n) "strategy.async_allreduce.method=" #n

/* ---- what it computes ---- */

/* With one worker, w(j) is w_i(j): each step is the optimizer's own. Also with synchronisation, and
 * with a warm-up of plain all-reduce. */
static void test_alone_method_2_is_single(void **state)
{
    struct tiny *t = *state;
    static const char *const options[] = {
        "strategy.async_allreduce={}",
        "strategy.async_allreduce={sync_every_epochs:0}",
        "strategy.async_allreduce={sync_every_epochs:0.1}",
        "strategy.async_allreduce={warmup_epochs:0.5}",
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

struct plan {
    const char *options;
    int method;
    uint64_t steps, warm, sync; /* steps: in all, of plain all-reduce first, between re-syncs */
};

enum { N = REPLAY_FLOATS, K = REPLAY_WORKERS };

/* Gradients of all three at their w, then one optimizer's step of each on the mean of them. */
static void plain_step(struct replay *r, float w[K][N], float m[K][N], uint64_t j)
{
    float g[K][N], mean[N] = {0};
    for (uint64_t i = 0; i < K; i++)
        replay_gradient(r, w[i], (j * K + i) * SIM_BATCH, g[i]);
    replay_mean(r, g[0], N, K, mean);
    for (int i = 0; i < K; i++)
        replay_sgd(r, w[i], m[i], mean, j);
}

/* Eq. 6.2: w is the same for all; `late` is the mean of the Δw that are on their way. */
static void replay_method_1(struct replay *r, const struct plan *plan, float w[K][N], float m[K][N])
{
    float late[N] = {0};
    for (uint64_t j = plan->warm; j < plan->steps; j++) {
        float moved[K][N], mean[N] = {0};
        for (uint64_t i = 0; i < K; i++) {
            memcpy(moved[i], w[i], sizeof moved[i]);
            replay_step(r, moved[i], m[i], (j * K + i) * SIM_BATCH, j);
            for (size_t k = 0; k < r->n; k++)
                moved[i][k] -= w[i][k];
        }
        replay_mean(r, moved[0], N, K, mean);
        bool sync = (j + 1) % plan->sync == 0 || j + 1 == plan->steps;
        for (size_t k = 0; k < r->n; k++) {
            for (int i = 0; i < K; i++)
                w[i][k] += late[k] + (sync ? mean[k] : 0);
            late[k] = sync ? 0 : mean[k];
        }
    }
}

/* Eq. 6.3: each has its own w_i; what all submitted one step before has the mean w. */
static void replay_method_2(struct replay *r, const struct plan *plan, float w[K][N], float m[K][N])
{
    for (uint64_t j = plan->warm; j < plan->steps; j++) {
        float mean[N] = {0};
        replay_mean(r, w[0], N, K, mean);
        for (uint64_t i = 0; i < K; i++) {
            float local[N];
            memcpy(local, w[i], sizeof local);
            replay_step(r, w[i], m[i], (j * K + i) * SIM_BATCH, j);
            for (size_t k = 0; k < r->n; k++)
                w[i][k] = mean[k] + (w[i][k] - local[k]);
        }
        if ((j + 1) % plan->sync != 0 && j + 1 != plan->steps)
            continue;
        replay_mean(r, w[0], N, K, mean);
        for (int i = 0; i < K; i++)
            memcpy(w[i], mean, sizeof mean);
    }
}

/* 48 records a step: 0.266667 epochs of 540 are three steps, 0.177778 two. */
static void test_three_workers_follow_the_equations(void **state)
{
    struct tiny *t = *state;
    static const struct plan plans[] = {
        {"strategy.async_allreduce={sync_every_epochs:0}", 2, 12, 0, 1000},
        {"strategy.async_allreduce={sync_every_epochs:0.266667}", 2, 12, 0, 3},
        {"strategy.async_allreduce={sync_every_epochs:0.266667 warmup_epochs:0.177778}", 2, 12, 2,
         3},
        {"strategy.async_allreduce={method:1 sync_every_epochs:0}", 1, 12, 0, 1000},
        {"strategy.async_allreduce={method:1 sync_every_epochs:0.266667 warmup_epochs:0.177778}", 1,
         12, 2, 3},
    };
    static struct replay r;
    replay_open(&r, t);
    for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
        const struct plan *plan = &plans[p];
        static float w[K][N], m[K][N];
        struct sim_run run = {0};
        memset(m, 0, sizeof m);
        for (int i = 0; i < K; i++)
            memcpy(w[i], r.x0, sizeof w[i]);
        for (uint64_t j = 0; j < plan->warm; j++)
            plain_step(&r, w, m, j);
        if (plan->method == 1)
            replay_method_1(&r, plan, w, m);
        else
            replay_method_2(&r, plan, w, m);
        SIM(t, SIM_CALM, &run, "workers=3", "stop.steps=12", plan->options);
        double apart = replay_difference(&r, w[0], run.dir);
        print_message("    %s: %.2g\n", plan->options, apart);
        assert_true(apart <= SIM_SAME);
        sim_adds_up(&run);
    }
    replay_close(&r);
}

/* A warm-up that lasts as long as the run is `allreduce`, and another run than without it. */
static void test_a_warm_up_is_plain_all_reduce(void **state)
{
    struct tiny *t = *state;
    struct sim_run warm = {0}, plain = {0}, cold = {0};
    SIM(t, SIM_CALM, &warm, "stop.steps=12", "strategy.async_allreduce.warmup_epochs=10");
    SIM(t, SIM_CALM, &plain, "stop.steps=12", "strategy.allreduce={}");
    SIM(t, SIM_CALM, &cold, "stop.steps=12", METHOD(2));
    assert_true(run_difference(warm.dir, plain.dir) <= SIM_SAME);
    assert_true(run_difference(cold.dir, plain.dir) > 10 * SIM_SAME);
    assert_int_equal(run_count(warm.dir, "exchange", NULL, NULL), 12);
    /* w(0) first, and the synchronised weights after an epoch. */
    assert_int_equal(run_count(cold.dir, "exchange", NULL, NULL), 14);
}

static void test_a_rate_that_is_too_high_is_reported(void **state)
{
    for (int method = 1; method <= 2; method++) {
        struct sim_run r = {0};
        SIM_TRY(*state, SIM_CALM, &r, method == 1 ? METHOD(1) : METHOD(2), "solver.base_lr=1e30");
        assert_int_equal(r.rc, PL_ERR_DIVERGED);
    }
}

/* Of three workers with s = k, 100 + k and 200 + k the mean is 100 + k. The global model has it at
 * every commit; a worker's own s moves to it with every second exchange. */
static void test_state_that_is_not_learnt_is_averaged(void **state)
{
    static const char *const options[] = {
        "strategy.async_allreduce={sync_every_epochs:0 s_every:2}",
        "strategy.async_allreduce={sync_every_epochs:0 s_every:2 method:1}",
        "strategy.async_allreduce={sync_every_epochs:0 s_every:2 warmup_epochs:10}",
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        static struct loops loops;
        loops = (struct loops){0};
        LOOPS_RUN(&loops, *state, "stop.steps=4", options[i]);
        for (uint32_t w = 0; w < LOOPS_WORKERS; w++) {
            assert_int_equal(loops.scene.rc[w], OK);
            assert_int_equal(loops.commits[w], i == 0 ? 5 : 4);
            for (uint64_t n = 0; n < loops.commits[w]; n++)
                for (size_t k = 0; k < LOOPS_S; k++) {
                    double own = n == 0 ? 100.0 * w + (double)k : 100.0 + (double)k;
                    assert_true(fabs((double)loops.seen[w][n].model_s[k] - 100 - (double)k) < 1e-4);
                    assert_true(fabs((double)loops.seen[w][n].own_s[k] - own) < 1e-4);
                }
        }
    }
}

/* Worker 1's model is not finite any more after the second commit. Its next submission then has
 * weight 0, and so has the one after: under method 2 its gradient was taken there, under method 1
 * its optimizer remembers it. Then it is back. */
static void test_a_broken_model_is_left_out_and_is_reset(void **state)
{
    for (int method = 1; method <= 2; method++) {
        static struct loops loops;
        loops = (struct loops){.breaks = 1, .breaks_after = 2};
        LOOPS_RUN(&loops, *state, "stop.steps=6", method == 1 ? METHOD(1) : METHOD(2));
        for (uint32_t w = 0; w < LOOPS_WORKERS; w++) {
            assert_int_equal(loops.scene.rc[w], OK);
            assert_int_equal(loops.commits[w], method == 1 ? 6 : 7);
            for (uint64_t n = 0; n < loops.commits[w]; n++) {
                bool left_out = n == 2 || n == 3;
                assert_int_equal(members_count(&loops.seen[w][n].sharers), left_out ? 2 : 3);
                assert_int_equal(members_has(&loops.seen[w][n].sharers, 1), !left_out);
            }
            assert_memory_equal(loops.x[w], loops.x[0], sizeof loops.x[0]);
            assert_true(isfinite(loops.x[w][0]));
        }
    }
}

/* So it is with its s: worker 1's is not finite any more after the first commit. It is put into
 * exchange 2 or, under method 2, 3, and the one after that is lost too. Then it is all others'. */
static void test_a_broken_state_is_left_out_and_is_reset(void **state)
{
    for (int method = 1; method <= 2; method++) {
        static struct loops loops;
        loops = (struct loops){.breaks = 1, .breaks_after = 1, .breaks_s = true};
        LOOPS_RUN(&loops, *state, "stop.steps=6", method == 1 ? METHOD(1) : METHOD(2));
        for (uint32_t w = 0; w < LOOPS_WORKERS; w++) {
            assert_int_equal(loops.scene.rc[w], OK);
            uint64_t last = loops.commits[w] - 1;
            assert_int_equal(members_count(&loops.seen[w][0].sharers), 3);
            assert_int_equal(members_count(&loops.seen[w][1].sharers), 2);
            for (uint64_t n = 3; n <= last; n++)
                assert_int_equal(members_count(&loops.seen[w][n].sharers), 3);
            assert_true(isfinite(loops.seen[w][last].own_s[0]));
        }
    }
}

/* ---- when ---- */

/* Two workers take 1 s a step, the third 2 s; a message takes 50 ms. An exchange is a tree whose
 * root is worker 0: notes up, note down, vectors up, mean down. It ends 150 ms after the last
 * arrival for the root, and 200 ms for the others. Re-sync after three steps of five.
 *
 *     s        0         1         2         3         4         5         6
 *     worker 0 [step 1   ][step 2  ]–[step 3   ]……………………–……………………………………–[step 4 …
 *     worker 1 [step 1   ][step 2  ]——[step 3   ]……………………——……………………………………——[step 4 …
 *     worker 2 [step 1             ][step 2            ][step 3            ]——[step 4 …
 *     exchange  1         2         2         3         3         4         4 5
 *
 * Exchange 1 carries w(0) and has long been there when the first step ends. w_0(1) and w_1(1) are
 * submitted at 1 s, but exchange 2 needs worker 2's, too: it ends at 2.15 and 2.2 s, and until then
 * workers 0 and 1 wait (–) after step 2 for w(1). From then on worker 2 never waits, each exchange
 * overlaps with a step of its, and the other two wait (…) for it: a step takes 2 s, not 2.2. After
 * step 3 all wait for exchange 4, whose mean is everybody's w(3) exactly; then w(3) is submitted,
 * to start over. The driver hears of a commit 50 ms later. */
static void test_the_timeline_of_method_2(void **state)
{
    struct tiny *t = *state;
    struct sim_run r = {.traced = true};
    struct trace_events trace;
    SIM(t,
        "node { count: 2 } node { speed: 0.5 } step_seconds: 1\n"
        "link { mbit: 1000000 latency_us: 50000 }\n",
        &r, "workers=3", "stop.steps=5", "collective.algorithm=tree",
        "strategy.async_allreduce.sync_every_epochs=0.266667");
    trace_read(r.trace, &trace);
    trace_nests(&trace);
    double zero = sim_zero(&trace);
    SIM_SPANS(&trace, 0, "compute", zero, {0, 1}, {1, 2}, {2.15, 3.15}, {6.15, 7.15}, {7.15, 8.15});
    SIM_SPANS(&trace, 1, "compute", zero, {0, 1}, {1, 2}, {2.2, 3.2}, {6.2, 7.2}, {7.2, 8.2});
    SIM_SPANS(&trace, 2, "compute", zero, {0, 2}, {2, 4}, {4, 6}, {6.2, 8.2}, {8.2, 10.2});
    SIM_SPANS(&trace, 0, "wait", zero, {2, 2.15}, {3.15, 4.15}, {4.15, 6.15}, {8.15, 8.35},
              {8.35, 10.35});
    SIM_SPANS(&trace, 1, "wait", zero, {2, 2.2}, {3.2, 4.2}, {4.2, 6.2}, {8.2, 8.4}, {8.4, 10.4});
    SIM_SPANS(&trace, 2, "wait", zero, {6, 6.2}, {10.2, 10.4});
    /* From its submission to its mean: during the next step, or waited for. */
    SIM_SPANS(&trace, 0, "exchange", zero, {0, 0.15}, {1, 2.15}, {2.15, 4.15}, {4.15, 6.15},
              {6.15, 6.35}, {7.15, 8.35}, {8.35, 10.35});
    SIM_SPANS(&trace, 1, "exchange", zero, {0, 0.2}, {1, 2.2}, {2.2, 4.2}, {4.2, 6.2}, {6.2, 6.4},
              {7.2, 8.4}, {8.4, 10.4});
    SIM_SPANS(&trace, 2, "exchange", zero, {0, 0.2}, {2, 2.2}, {4, 4.2}, {6, 6.2}, {6.2, 6.4},
              {8.2, 8.4}, {10.2, 10.4});
    /* Committed when the last has taken it. */
    static const double at[] = {2.05, 4.05, 6.05, 6.25, 8.25, 10.25, 10.45};
    for (int n = 1; n <= 7; n++)
        sim_exchange(&r, n - 1, 0, n, zero, at[n - 1]);
    assert_int_equal(run_count(r.dir, "exchange", NULL, NULL), 7);
    assert_int_equal(r.report.used, 5 * 48);
    trace_release(&trace);
}

/* The same cluster and steps under method 1, where nothing is submitted before there is a Δw: step
 * 2 begins with w(1) = w(0), step 3 with w(2) = w(1) + mean Δw(0), for which all have waited. */
static void test_the_timeline_of_method_1(void **state)
{
    struct tiny *t = *state;
    struct sim_run r = {.traced = true};
    struct trace_events trace;
    SIM(t,
        "node { count: 2 } node { speed: 0.5 } step_seconds: 1\n"
        "link { mbit: 1000000 latency_us: 50000 }\n",
        &r, "workers=3", "stop.steps=3", "collective.algorithm=tree", METHOD(1));
    trace_read(r.trace, &trace);
    trace_nests(&trace);
    double zero = sim_zero(&trace);
    SIM_SPANS(&trace, 0, "compute", zero, {0, 1}, {1, 2}, {2.15, 3.15});
    SIM_SPANS(&trace, 2, "compute", zero, {0, 2}, {2, 4}, {4, 6});
    SIM_SPANS(&trace, 0, "exchange", zero, {1, 2.15}, {2.15, 4.15}, {4.15, 6.15});
    SIM_SPANS(&trace, 2, "exchange", zero, {2, 2.2}, {4, 4.2}, {6, 6.2});
    static const double at[] = {4.05, 6.05, 6.25};
    for (int n = 1; n <= 3; n++)
        sim_exchange(&r, n - 1, 0, n, zero, at[n - 1]);
    trace_release(&trace);
}

/* Eq. 6.4: where an exchange takes as long as a step, twice as fast as one after the other. */
static void test_exchanges_overlap_with_steps(void **state)
{
    struct tiny *t = *state;
    struct sim_run background = {0}, after = {0};
    static const char cluster[] = "node { count: 3 } step_seconds: 0.2\n"
                                  "link { mbit: 1000000 latency_us: 50000 }\n";
    SIM(t, cluster, &background, "workers=3", "stop.steps=30", "collective.algorithm=tree",
        METHOD(2));
    SIM(t, cluster, &after, "workers=3", "stop.steps=30", "collective.algorithm=tree",
        "strategy.allreduce.bucket_kb=0");
    double last_background = run_number(background.dir, "exchange", 30, "t");
    double last_after = run_number(after.dir, "exchange", 29, "t");
    print_message("    30 steps: %.2f s, %.2f s\n", last_background, last_after);
    assert_true(last_after / last_background > 1.8);
}

/* ---- faults ---- */

/* A worker that dies has a step on its way, and its part of the next has been shared out. */
static void test_a_death_at_any_moment_is_survived(void **state)
{
    static const char *const options[][3] = {
        {METHOD(2), "evaluate.every_exchanges=3", NULL},
        {METHOD(1), "evaluate.every_exchanges=3", NULL},
        {"strategy.async_allreduce={sync_every_epochs:0.2 warmup_epochs:0.3}", NULL},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        sim_survives(*state, options[i], 24, 2);
}

/* With one worker, a checkpoint at a commit is w(j) with the optimizer's state that led to it: the
 * run continues to the bit, whatever was under way. */
static void test_a_resumed_run_continues(void **state)
{
    struct tiny *t = *state;
    struct sim_run whole = {0}, cut = {.limit_s = 0.3};
    static const char *const set[] = {"workers=1", "stop.steps=90", "checkpoint.every_seconds=0.05",
                                      METHOD(2), NULL};
    sim_do(t, SIM_CALM, &whole, set);
    sim_try(t, SIM_CALM, &cut, set);
    assert_int_equal(cut.rc, PL_ERR_TIMEOUT);
    cut.limit_s = 0;
    sim_do(t, SIM_CALM, &cut, set);
    double from = run_number(cut.dir, "start", 1, "resumed_after");
    print_message("    resumed after exchange %g\n", from);
    assert_true(from > 10 && from < 80);
    assert_true(run_same_bits(cut.dir, whole.dir, "final.safetensors"));
    assert_int_equal(cut.report.used, whole.report.used);
}

/* Of four workers none knows the others' optimizers: it continues with the global model. */
static void test_a_resumed_run_of_four_adds_up(void **state)
{
    for (int method = 1; method <= 2; method++) {
        struct sim_run r = {.limit_s = 0.3};
        const char *const set[] = {"stop.epochs=10", "checkpoint.every_seconds=0.05",
                                   method == 1 ? METHOD(1) : METHOD(2), NULL};
        sim_try(*state, SIM_CALM, &r, set);
        assert_int_equal(r.rc, PL_ERR_TIMEOUT);
        r.limit_s = 0;
        sim_do(*state, SIM_CALM, &r, set);
        sim_adds_up(&r);
        assert_int_equal(r.report.used, 85 * 64); /* 5,400 records are 84.4 steps of all */
        assert_true(r.report.test_error < 0.3);
    }
}

/* ---- for real ---- */

static void test_two_real_workers(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    START(t, &r, "--workers", "2", "--set", "stop.steps=30", "--strategy", "async_allreduce");
    real_end(&r, 0, "steps");
    process_release(&r.p);
    struct sim_run sim = {0};
    SIM(t, SIM_CALM, &sim, "workers=2", "stop.steps=30", METHOD(2));
    assert_true(run_number(r.dir, "end", 0, "used") == 30 * 32);
    assert_true(run_difference(r.dir, sim.dir) <= SIM_SAME); /* nothing of it depends on time */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone_method_2_is_single),
        cmocka_unit_test(test_three_workers_follow_the_equations),
        cmocka_unit_test(test_a_warm_up_is_plain_all_reduce),
        cmocka_unit_test(test_a_rate_that_is_too_high_is_reported),
        cmocka_unit_test(test_state_that_is_not_learnt_is_averaged),
        cmocka_unit_test(test_a_broken_model_is_left_out_and_is_reset),
        cmocka_unit_test(test_a_broken_state_is_left_out_and_is_reset),
        cmocka_unit_test(test_the_timeline_of_method_2),
        cmocka_unit_test(test_the_timeline_of_method_1),
        cmocka_unit_test(test_exchanges_overlap_with_steps),
        cmocka_unit_test(test_a_death_at_any_moment_is_survived),
        cmocka_unit_test(test_a_resumed_run_continues),
        cmocka_unit_test(test_a_resumed_run_of_four_adds_up),
        cmocka_unit_test(test_two_real_workers),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
