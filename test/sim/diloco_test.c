/* DiLoCo, plain and streaming (src/strategy/diloco.c): against the equations done by hand, on a
 * timeline, and through deaths and resumptions. */
#include "real_run.h"
#include "replay.h"
#include "strategy/mpca_rules.h"
#include "strategy_scene.h"
#include "strategy_sim.h"

/* ---- what it computes ---- */

/* With an outer rate of 1 and no outer momentum x̃ is the mean of the workers, and alone it is this
 * worker's own model; so it is with an overlap of which the worker keeps its own part. */
static void test_alone_with_a_plain_outer_step_it_is_single(void **state)
{
    struct tiny *t = *state;
    static const char *const options[] = {
        "strategy.diloco={tau:1 outer_lr:1 outer_momentum:0}",
        "strategy.diloco={tau:7 outer_lr:1 outer_momentum:0}",
        "strategy.diloco={tau:7 outer_lr:1 outer_momentum:0 on_replace:average}",
        "strategy.diloco={tau:7 outer_lr:1 outer_momentum:0 fragments:3}",
        "strategy.diloco={tau:7 outer_lr:1 outer_momentum:0 fragments:3 overlap:5 mix:1}",
    };
    static const char *const solver[] = {"solver.type=SGD",
                                         "solver={type:'AdamW' base_lr:0.002 lr_policy:'fixed'}"};
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

static void test_with_a_plain_outer_step_it_is_sync(void **state)
{
    struct tiny *t = *state;
    struct sim_run diloco = {0}, sync = {0}, nesterov = {0};
    SIM(t, SIM_CALM, &diloco, "strategy.diloco={tau:4 outer_lr:1 outer_momentum:0}");
    SIM(t, SIM_CALM, &sync, "strategy.sync.tau=4");
    SIM(t, SIM_CALM, &nesterov, "strategy.diloco.tau=4");
    assert_true(run_difference(diloco.dir, sync.dir) <= SIM_SAME);
    assert_true(run_difference(nesterov.dir, sync.dir) > 100 * SIM_SAME);
}

/* x̃ ← x̃ − η·(Δ + μ·v) with v ← μ·v + Δ and Δ = x̃ − mean. */
static void outer_step(float *x, float *v, const float *mean, size_t n, float lr, float momentum)
{
    for (size_t k = 0; k < n; k++) {
        float delta = x[k] - mean[k];
        v[k] = momentum * v[k] + delta;
        x[k] -= lr * (delta + momentum * v[k]);
    }
}

/* Four means of two weights, and the x that torch.optim.SGD([x], lr=0.7, momentum=0.9,
 * nesterov=True) of PyTorch 1.13 computes with the gradients x − mean. */
static void test_the_outer_step_is_pytorchs(void **state)
{
    static const float mean[][2] = {{0.5f, -1.75f}, {0.25f, -2.5f}, {-0.125f, -1.0f}, {0.0f, 0.5f}};
    static const double want[][2] = {{0.335, -1.6675},
                                     {-0.06155, -2.632975},
                                     {-0.4492835, -0.80557075},
                                     {-0.160723095, 1.5467279225}};
    float x[2] = {1.0f, -2.0f}, v[2] = {0};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        outer_step(x, v, mean[i], 2, 0.7f, 0.9f);
        assert_true(fabs((double)x[0] - want[i][0]) < 1e-6);
        assert_true(fabs((double)x[1] - want[i][1]) < 1e-6);
    }
}

struct plan {
    const char *options;
    uint64_t H, P, overlap, steps;
    float lr, momentum, mix;
    bool average, reset;
};

enum { N = REPLAY_FLOATS, K = REPLAY_WORKERS };

/* Three workers and x̃, one after another, with whatever is on its way. */
struct play {
    struct replay r;
    float x[K][N], m[K][N];   /* workers, and their inner momentum */
    float model[N], v[N];     /* x̃, and the outer momentum */
    float mean[N], mean_m[N]; /* of each fragment, as submitted */
    uint64_t sent[8];         /* at this step */
    bool in_flight[8];
};

static void play_submit(struct play *p, const struct plan *plan, uint64_t f, uint64_t t)
{
    struct range r = range_shard(p->r.n, plan->P, f);
    float all[N] = {0}, all_m[N] = {0};
    replay_mean(&p->r, p->x[0], N, K, all);
    replay_mean(&p->r, p->m[0], N, K, all_m);
    memcpy(p->mean + r.from, all + r.from, r.len * sizeof *all);
    memcpy(p->mean_m + r.from, all_m + r.from, r.len * sizeof *all_m);
    p->sent[f] = t;
    p->in_flight[f] = true;
}

static void play_take(struct play *p, const struct plan *plan, uint64_t f, uint64_t t)
{
    struct range r = range_shard(p->r.n, plan->P, f);
    float own = t > p->sent[f] ? plan->mix : 0;
    p->in_flight[f] = false;
    outer_step(p->model + r.from, p->v + r.from, p->mean + r.from, r.len, plan->lr, plan->momentum);
    for (size_t k = r.from; k < r.from + r.len; k++)
        for (int i = 0; i < K; i++) {
            p->x[i][k] = own * p->x[i][k] + (1 - own) * p->model[k];
            if (plan->average)
                p->m[i][k] = own * p->m[i][k] + (1 - own) * p->mean_m[k];
            if (plan->reset)
                p->m[i][k] = 0;
        }
}

static void play_begin(struct play *p)
{
    for (int i = 0; i < K; i++)
        memcpy(p->x[i], p->r.x0, sizeof p->x[i]);
    memcpy(p->model, p->r.x0, sizeof p->model);
    memset(p->m, 0, sizeof p->m);
    memset(p->v, 0, sizeof p->v);
    memset(p->sent, 0, sizeof p->sent);
    memset(p->in_flight, 0, sizeof p->in_flight);
}

static void play_plan(struct play *p, const struct plan *plan)
{
    play_begin(p);
    for (uint64_t t = 1; t <= plan->steps; t++) {
        for (uint64_t i = 0; i < K; i++)
            replay_step(&p->r, p->x[i], p->m[i], ((t - 1) * K + i) * SIM_BATCH, t - 1);
        for (uint64_t f = 0; f < plan->P; f++)
            if (t % plan->H == plan->H * (f + 1) / plan->P % plan->H)
                play_submit(p, plan, f, t);
        for (uint64_t f = 0; f < plan->P; f++)
            if (p->in_flight[f] && t == p->sent[f] + plan->overlap)
                play_take(p, plan, f, t);
    }
    for (uint64_t sent = 0; sent <= plan->steps; sent++) /* in the order in which they left */
        for (uint64_t f = 0; f < plan->P; f++)
            if (p->in_flight[f] && p->sent[f] == sent)
                play_take(p, plan, f, plan->steps);
    for (uint64_t f = 0; f < plan->P; f++)
        if (p->sent[f] != plan->steps) {
            play_submit(p, plan, f, plan->steps);
            play_take(p, plan, f, plan->steps);
        }
}

static void test_three_workers_follow_the_equations(void **state)
{
    struct tiny *t = *state;
    static const struct plan plans[] = {
        {"strategy.diloco.tau=4", 4, 1, 0, 14, 0.7f, 0.9f, 0, false, false},
        {"strategy.diloco={tau:4 on_replace:reset}", 4, 1, 0, 14, 0.7f, 0.9f, 0, false, true},
        {"strategy.diloco={tau:4 on_replace:average}", 4, 1, 0, 14, 0.7f, 0.9f, 0, true, false},
        {"strategy.diloco={tau:5 fragments:3 outer_lr:0.9 outer_momentum:0.5}", 5, 3, 0, 14, 0.9f,
         0.5f, 0, false, false},
        {"strategy.diloco={tau:4 overlap:2}", 4, 1, 2, 14, 0.7f, 0.9f, 0.5f, false, false},
        {"strategy.diloco={tau:5 fragments:3 overlap:3 mix:0.25 on_replace:average}", 5, 3, 3, 13,
         0.7f, 0.9f, 0.25f, true, false},
    };
    static struct play p;
    replay_open(&p.r, t);
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        char steps[32];
        struct sim_run run = {0};
        play_plan(&p, &plans[i]);
        snprintf(steps, sizeof steps, "stop.steps=%u", (unsigned)plans[i].steps);
        SIM(t, SIM_CALM, &run, "workers=3", steps, plans[i].options);
        double apart = replay_difference(&p.r, p.model, run.dir);
        print_message("    %s: %.2g\n", plans[i].options, apart);
        assert_true(apart <= SIM_SAME);
        sim_adds_up(&run);
    }
    replay_close(&p.r);
}

/* Eight bits of x − x̃ are nearly as good as all of x: it is small where x is not. */
static void test_a_code_that_rounds_is_given_differences(void **state)
{
    struct tiny *t = *state;
    struct sim_run f32 = {0}, int8 = {0};
    SIM(t, SIM_CALM, &f32, "strategy.diloco={tau:4 fragments:2 overlap:1}");
    SIM(t, SIM_CALM, &int8, "strategy.diloco={tau:4 fragments:2 overlap:1}",
        "collective.wire=int8");
    double apart = run_difference(int8.dir, f32.dir);
    print_message("    int8: %.2g\n", apart);
    assert_true(apart > 0 && apart < 0.02);
}

static void test_fragments_do_not_forget_one_by_one(void **state)
{
    struct sim_run r = {0};
    SIM_TRY(*state, SIM_CALM, &r, "strategy.diloco={tau:4 fragments:2 on_replace:reset}");
    assert_int_equal(r.rc, PL_ERR_UNSUPPORTED);
    assert_non_null(strstr(r.error, "strategy.diloco.on_replace"));
}

static void test_a_rate_that_is_too_high_is_reported(void **state)
{
    struct sim_run r = {0};
    SIM_TRY(*state, SIM_CALM, &r, "strategy.diloco.tau=4", "solver.base_lr=1e30");
    assert_int_equal(r.rc, PL_ERR_DIVERGED);
}

/* Of three workers with s = k, 100 + k and 200 + k. It is part of the last of two fragments, which
 * is sent second: from then on the global model has the mean, and each worker keeps its own. */
static void test_state_that_is_not_learnt_is_averaged(void **state)
{
    static struct loops loops;
    loops = (struct loops){0};
    LOOPS_RUN(&loops, *state, "stop.steps=8", "strategy.diloco={tau:4 fragments:2 overlap:1}");
    for (uint32_t w = 0; w < LOOPS_WORKERS; w++) {
        assert_int_equal(loops.scene.rc[w], OK);
        assert_int_equal(loops.commits[w],
                         5); /* after steps 2, 4, 6 and 8, and fragment 0 at last */
        for (uint64_t n = 0; n < 5; n++)
            for (size_t k = 0; k < LOOPS_S; k++) {
                double own = 100.0 * w + (double)k, model = n == 0 ? own : 100.0 + (double)k;
                assert_true(fabs((double)loops.seen[w][n].model_s[k] - model) < 1e-4);
                assert_true((double)loops.seen[w][n].own_s[k] == own);
            }
    }
}

/* Worker 1's model is no longer finite after the first commit. Its next step detects it; it resumes
 * from x̃ at once, but its next contribution has weight 0. */
static void test_a_broken_model_is_left_out_and_is_reset(void **state)
{
    static const char *const options[] = {"strategy.diloco.tau=3",
                                          "strategy.diloco={tau:6 fragments:2 overlap:2}"};
    for (size_t i = 0; i < 2; i++) {
        static struct loops loops;
        loops = (struct loops){.breaks = 1, .breaks_after = 1};
        LOOPS_RUN(&loops, *state, "stop.steps=12", options[i]);
        for (uint32_t w = 0; w < LOOPS_WORKERS; w++) {
            assert_int_equal(loops.scene.rc[w], OK);
            assert_int_equal(loops.commits[w], i == 0 ? 4 : 5);
            for (uint64_t n = 0; n < loops.commits[w]; n++)
                assert_int_equal(members_count(&loops.seen[w][n].sharers), n == 1 ? 2 : 3);
            assert_false(members_has(&loops.seen[w][1].sharers, 1));
            assert_memory_equal(loops.x[w], loops.x[0], sizeof loops.x[0]);
            assert_true(isfinite(loops.x[w][0]));
        }
    }
}

/* The same with its s, which is part of the only fragment, and is finite again with x̃. */
static void test_a_broken_state_is_left_out_and_is_reset(void **state)
{
    static struct loops loops;
    loops = (struct loops){.breaks = 1, .breaks_after = 1, .breaks_s = true};
    LOOPS_RUN(&loops, *state, "stop.steps=12", "strategy.diloco.tau=3");
    for (uint32_t w = 0; w < LOOPS_WORKERS; w++) {
        assert_int_equal(loops.scene.rc[w], OK);
        assert_int_equal(loops.commits[w], 4);
        for (uint64_t n = 0; n < 4; n++)
            assert_int_equal(members_count(&loops.seen[w][n].sharers), n == 1 ? 2 : 3);
        assert_true(isfinite(loops.seen[w][2].own_s[0]));
    }
}

/* Worker 2's loop breaks at the first commit, when the other fragment has just been sent. While it
 * is in the group it does not block that exchange: the others get it two steps later, and break
 * there. */
static void test_what_is_under_way_continues_without_the_loop(void **state)
{
    static struct loops loops;
    loops = (struct loops){.fails_after = {2, 2, 1}};
    LOOPS_RUN(&loops, *state, "stop.steps=12", "strategy.diloco={tau:4 fragments:2 overlap:2}");
    for (uint32_t w = 0; w < LOOPS_WORKERS; w++) {
        assert_int_equal(loops.scene.rc[w], ERR_NOMEM);
        assert_int_equal(loops.commits[w], loops.fails_after[w]);
    }
    assert_int_equal(members_count(&loops.seen[0][1].sharers), 3);
}

/* ---- when ---- */

/* Two workers take 1 s a step, the third 2 s; a message takes 50 ms, and so an exchange of all
 * three ends 150 ms after the last has come for worker 0, the tree's root, and 200 ms for the
 * others. H is 4, P is 2: fragment 0 leaves after steps 2, 6, …, fragment 1 after 4, 8, …; one step
 * of overlap.
 *
 *     worker 0  [1][2]a[3]………[4]b[5]………[6]a…………b—    a, b: fragment 0, 1 is submitted
 *     worker 1  [1][2]a[3]………[4]b[5]………[6]a…………b—    …: waits for it
 *     worker 2  [ 1  ][ 2  ]a[ 3  ][ 4  ]b[ 5  ][ 6  ]a—b—
 *
 * Workers 0 and 1 submit fragment 0 at 2 s and continue, but after step 3 they need its mean, and
 * worker 2 submits it at 4 s only; it never waits itself, since the exchange is over long before
 * its own step 3 is. So the slow worker sets the pace, and pays for no exchange. The run ends after
 * step 6: fragment 0 leaves as ever and is waited for; then fragment 1, which has moved since step
 * 4. */
static void test_the_timeline(void **state)
{
    struct tiny *t = *state;
    struct sim_run r = {.traced = true};
    struct trace_events trace;
    SIM(t,
        "node { count: 2 } node { speed: 0.5 } step_seconds: 1\n"
        "link { mbit: 1000000 latency_us: 50000 }\n",
        &r, "workers=3", "stop.steps=6", "collective.algorithm=tree",
        "strategy.diloco={tau:4 fragments:2 overlap:1}");
    trace_read(r.trace, &trace);
    trace_nests(&trace);
    double zero = sim_zero(&trace);
    SIM_SPANS(&trace, 0, "compute", zero, {0, 1}, {1, 2}, {2, 3}, {4.15, 5.15}, {5.15, 6.15},
              {8.15, 9.15});
    SIM_SPANS(&trace, 1, "compute", zero, {0, 1}, {1, 2}, {2, 3}, {4.2, 5.2}, {5.2, 6.2},
              {8.2, 9.2});
    SIM_SPANS(&trace, 2, "compute", zero, {0, 2}, {2, 4}, {4, 6}, {6, 8}, {8, 10}, {10, 12});
    SIM_SPANS(&trace, 0, "wait", zero, {3, 4.15}, {6.15, 8.15}, {9.15, 12.15}, {12.15, 12.35});
    SIM_SPANS(&trace, 1, "wait", zero, {3, 4.2}, {6.2, 8.2}, {9.2, 12.2}, {12.2, 12.4});
    SIM_SPANS(&trace, 2, "wait", zero, {12, 12.2}, {12.2, 12.4});
    /* By lane: fragment 0's two exchanges, then fragment 1's. */
    SIM_SPANS(&trace, 0, "exchange", zero, {2, 4.15}, {9.15, 12.15}, {5.15, 8.15}, {12.15, 12.35});
    SIM_SPANS(&trace, 1, "exchange", zero, {2, 4.2}, {9.2, 12.2}, {5.2, 8.2}, {12.2, 12.4});
    SIM_SPANS(&trace, 2, "exchange", zero, {4, 4.2}, {12, 12.2}, {8, 8.2}, {12.2, 12.4});
    /* Committed when the last has taken it, which the driver hears 50 ms later. */
    sim_exchange(&r, 0, 0, 1, zero, 6.05);
    sim_exchange(&r, 1, 1, 1, zero, 10.05);
    sim_exchange(&r, 2, 0, 2, zero, 12.25);
    sim_exchange(&r, 3, 1, 2, zero, 12.45);
    assert_int_equal(run_count(r.dir, "exchange", NULL, NULL), 4);
    assert_int_equal(r.report.used, 6 * 48);
    trace_release(&trace);
}

/* ---- faults ---- */

/* Records are shared out until an exchange without the dead is taken: H/P + overlap steps of its.
 */
static void test_a_death_at_any_moment_is_survived(void **state)
{
    static const char *const options[][3] = {
        {"strategy.diloco.tau=4", "evaluate.every_exchanges=2", NULL},
        {"strategy.diloco={tau:6 fragments:3 overlap:2}", "evaluate.every_exchanges=2", NULL},
        {"strategy.diloco={tau:4 overlap:3 on_replace:average}", NULL},
    };
    static const uint64_t steps[] = {4, 2 + 2, 4 + 3};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        sim_survives(*state, options[i], 40, steps[i]);
}

/* When a stop is requested with fragments under way, all end at the same exchange. */
static void test_it_ends_when_asked_to(void **state)
{
    struct sim_run r = {0};
    SIM(*state, SIM_CALM, &r, "stop={seconds:0.15}",
        "strategy.diloco={tau:6 fragments:3 overlap:5}");
    assert_string_equal(r.report.reason, "seconds");
    assert_true(r.report.used > 0);
    sim_adds_up(&r);
}

/* x̃ and its momentum are in the checkpoint. Where the inner optimizer remembers nothing, the run
 * continues as if nothing had happened. */
static void test_a_resumed_run_continues(void **state)
{
    struct tiny *t = *state;
    struct sim_run whole = {0}, cut = {.limit_s = 0.3}, forgot = {0};
    static const char *const set[] = {"stop.epochs=10", "checkpoint.every_seconds=0.05",
                                      "solver={base_lr:0.05 lr_policy:'fixed'}",
                                      "strategy.diloco.tau=4", NULL};
    sim_do(t, SIM_CALM, &whole, set);
    sim_try(t, SIM_CALM, &cut, set);
    assert_int_equal(cut.rc, PL_ERR_TIMEOUT);
    cut.limit_s = 0;
    sim_do(t, SIM_CALM, &cut, set);
    double from = run_number(cut.dir, "start", 1, "resumed_after");
    print_message("    resumed after exchange %g\n", from);
    assert_true(from > 2 && from < 20);
    assert_true(run_same_bits(cut.dir, whole.dir, "final.safetensors"));
    assert_int_equal(cut.report.used, whole.report.used);
    SIM(t, SIM_CALM, &forgot, "stop.epochs=10", "solver={base_lr:0.05 lr_policy:'fixed'}",
        "strategy.diloco={tau:4 outer_momentum:0}");
    assert_false(run_same_bits(forgot.dir, whole.dir, "final.safetensors"));
}

static void test_a_resumed_stream_adds_up(void **state)
{
    struct sim_run r = {.limit_s = 0.3};
    static const char *const set[] = {"stop.epochs=10", "checkpoint.every_seconds=0.05",
                                      "strategy.diloco={tau:6 fragments:3 overlap:2}", NULL};
    sim_try(*state, SIM_CALM, &r, set);
    assert_int_equal(r.rc, PL_ERR_TIMEOUT);
    r.limit_s = 0;
    sim_do(*state, SIM_CALM, &r, set);
    sim_adds_up(&r);
    assert_int_equal(r.report.used, 85 * 64); /* 5,400 records are 84.4 steps of all */
    assert_true(r.report.test_error < 0.3);
}

/* ---- for real ---- */

static void test_two_real_workers(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    static const char options[] = "strategy.diloco={tau:6 fragments:3 overlap:2}";
    START(t, &r, "--workers", "2", "--set", "stop.steps=30", "--set", options);
    real_end(&r, 0, "steps");
    process_release(&r.p);
    struct sim_run sim = {0};
    SIM(t, SIM_CALM, &sim, "workers=2", "stop.steps=30", options);
    assert_true(run_number(r.dir, "end", 0, "used") == 30 * 32);
    assert_true(run_difference(r.dir, sim.dir) <= SIM_SAME); /* nothing of it depends on time */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone_with_a_plain_outer_step_it_is_single),
        cmocka_unit_test(test_with_a_plain_outer_step_it_is_sync),
        cmocka_unit_test(test_the_outer_step_is_pytorchs),
        cmocka_unit_test(test_three_workers_follow_the_equations),
        cmocka_unit_test(test_a_code_that_rounds_is_given_differences),
        cmocka_unit_test(test_fragments_do_not_forget_one_by_one),
        cmocka_unit_test(test_a_rate_that_is_too_high_is_reported),
        cmocka_unit_test(test_state_that_is_not_learnt_is_averaged),
        cmocka_unit_test(test_a_broken_model_is_left_out_and_is_reset),
        cmocka_unit_test(test_a_broken_state_is_left_out_and_is_reset),
        cmocka_unit_test(test_what_is_under_way_continues_without_the_loop),
        cmocka_unit_test(test_the_timeline),
        cmocka_unit_test(test_a_death_at_any_moment_is_survived),
        cmocka_unit_test(test_it_ends_when_asked_to),
        cmocka_unit_test(test_a_resumed_run_continues),
        cmocka_unit_test(test_a_resumed_stream_adds_up),
        cmocka_unit_test(test_two_real_workers),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
