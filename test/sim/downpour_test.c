/* Downpour in whole runs: its results, and the timeline of each worker. */
#include "sim_run.h"

#define SAME_MAX 1e-5 /* max |a − b| / max |b| */
#define PLAIN    "solver.momentum=0"

static const char calm[] = "node { count: 4 } step_seconds: 0.004 link { mbit: 100 }\n";

/* ---- what it computes ---- */

static void test_alone_step_by_step_it_is_single(void **state)
{
    static const char *const options[] = {
        "strategy.downpour={ n_push: 1 n_fetch: 1 }",
        "strategy.downpour={ n_push: 1 n_fetch: 1 colocated: true }",
        "strategy.downpour={ n_push: 1 n_fetch: 7 }"};
    struct tiny *t = *state;
    char single[128], other[128];
    SIM_RUN(t, calm, single, "stop.steps=45", "workers=1", PLAIN, "strategy.single={}");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        SIM_RUN(t, calm, other, "stop.steps=45", "workers=1", PLAIN, options[i]);
        if (!run_same_bits(other, single, "final.safetensors"))
            fail_msg("%s", options[i]);
        assert_true(run_number(other, "end", 0, "used") == 45 * 16);
    }
}

/* Sums of five steps differ by rounding from five steps; and the last, shorter sum arrives. */
static void test_alone_it_is_single_but_for_rounding(void **state)
{
    static const char *const options[] = {
        "strategy.downpour={}", "strategy.downpour={ n_push: 4 n_fetch: 100 }",
        "strategy.downpour={ n_push: 10 n_fetch: 10 colocated: true }"};
    struct tiny *t = *state;
    char single[128], other[128];
    SIM_RUN(t, calm, single, "stop.steps=43", "workers=1", PLAIN, "strategy.single={}");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        SIM_RUN(t, calm, other, "stop.steps=43", "workers=1", PLAIN, options[i]);
        double apart = run_difference(other, single);
        if (apart > SAME_MAX)
            fail_msg("%s: %g", options[i], apart);
        assert_true(run_number(other, "end", 0, "used") == 43 * 16);
    }
}

/* With a rate that stays, h = Σ(ηg)² and η·ηg / (√h + delta) = η·g / (√Σg² + delta/η): AdaGrad with
 * another delta. */
static void test_adagrad_at_the_server_is_adagrad(void **state)
{
    struct tiny *t = *state;
    char single[128], other[128], plain[128];
    SIM_RUN(t, calm, single, "stop.steps=30", "workers=1", "strategy.single={}",
            "solver={ type: 'AdaGrad' base_lr: 0.02 delta: 5e-7 lr_policy: 'fixed' }");
    SIM_RUN(t, calm, other, "stop.steps=30", "workers=1",
            "solver={ base_lr: 0.02 lr_policy: 'fixed' }",
            "strategy.downpour={ n_push: 1 n_fetch: 1 server_adagrad: true }");
    SIM_RUN(t, calm, plain, "stop.steps=30", "workers=1",
            "solver={ base_lr: 0.02 lr_policy: 'fixed' }",
            "strategy.downpour={ n_push: 1 n_fetch: 1 }");
    print_message("    %.2g from AdaGrad, %.2g without\n", run_difference(other, single),
                  run_difference(plain, single));
    assert_true(run_difference(other, single) <= 1e-4);
    assert_true(run_difference(plain, single) > 1e-2);
}

/* The place of the servers changes the time of messages and not the arithmetic: without message
 * times, nothing. No two workers take steps at the same time. */
static void test_shards_are_one_server(void **state)
{
    static const char apart[] =
        "node { speed: 3 } node { speed: 1.935483870967742 } node { speed: 1.1320754716981132 }\n"
        "step_seconds: 0.6 link { mbit: 1000000 latency_us: 0 }\n";
    static const char *const rule[] = {"", "server_adagrad: true"};
    struct tiny *t = *state;
    for (int i = 0; i < 2; i++) {
        char one[128], two[128], three[128], set[128];
        snprintf(set, sizeof set, "strategy.downpour={ n_push: 2 n_fetch: 3 %s }", rule[i]);
        SIM_RUN(t, apart, one, "workers=3", "stop.steps=4", PLAIN, set);
        snprintf(set, sizeof set, "strategy.downpour={ n_push: 2 n_fetch: 3 servers: 2 %s }",
                 rule[i]);
        SIM_RUN(t, apart, two, "workers=3", "stop.steps=4", PLAIN, set);
        snprintf(set, sizeof set, "strategy.downpour={ n_push: 2 n_fetch: 3 colocated: true %s }",
                 rule[i]);
        SIM_RUN(t, apart, three, "workers=3", "stop.steps=4", PLAIN, set);
        assert_true(run_same_bits(two, one, "final.safetensors"));
        assert_true(run_same_bits(three, one, "final.safetensors"));
    }
}

/* ---- when who does what ---- */

enum { PUSH, FETCH };

/* n_push = 2, n_fetch = 3. P: a push, which takes no time; F: a fetch.
 *
 *   ms        0   200  400  600  800 1000 1200 1400
 *   worker 0  |----|----P----F----P----|---PF----P
 *   worker 1  |------|------P------F------P------P        its steps end at 310, 620, 930, 1240 …
 *   worker 2  |-----------|-----------P-----------P       and 530, 1060, 1590
 *
 * The run has 4 steps of each, 12 in all. With worker 1's push at 1240 twelve have been pushed (6
 * by worker 0, 4, and 2): the run is over, and each worker learns it during its current step, which
 * it pushes at the end. */
static void test_timeline(void **state)
{
    static const struct sim_exchange want[] = {
        {400, 0, 1, 0, SIM_NO_NODE, PUSH},  {600, 0, 2, 0, SIM_NO_NODE, FETCH},
        {620, 1, 1, 0, SIM_NO_NODE, PUSH},  {800, 0, 3, 0, SIM_NO_NODE, PUSH},
        {930, 1, 2, 0, SIM_NO_NODE, FETCH}, {1060, 2, 1, 0, SIM_NO_NODE, PUSH},
        {1200, 0, 4, 0, SIM_NO_NODE, PUSH}, {1200, 0, 5, 0, SIM_NO_NODE, FETCH},
        {1240, 1, 3, 0, SIM_NO_NODE, PUSH}, {1400, 0, 6, 0, SIM_NO_NODE, PUSH},
        {1550, 1, 4, 0, SIM_NO_NODE, PUSH}, {1590, 2, 2, 0, SIM_NO_NODE, PUSH},
    };
    char dir[128];
    SIM_RUN(*state,
            "node { speed: 3 } node { speed: 1.935483870967742 } node { speed: 1.1320754716981132 "
            "}\n step_seconds: 0.6 link { mbit: 1000000 latency_us: 0 }\n",
            dir, "workers=3", "stop.steps=4", PLAIN, "strategy.downpour={ n_push: 2 n_fetch: 3 }");
    SIM_EXPECT_TIMELINE(dir, want);
    assert_true(run_number(dir, "end", 0, "used") == 15 * 16);
}

/* A link over which the vector of 2240 bytes takes 100 ms, and steps of 200 ms: pushes overlap with
 * the next step, and workers wait only for fetches. A fetch is behind the push of the same step in
 * the worker's queue, so the first to need both takes 200 ms. */
static void test_only_fetching_takes_time(void **state)
{
    static struct sim_exchange is[SIM_EXCHANGES_MAX];
    char dir[128];
    static const char slow[] =
        "node { speed: 1 } step_seconds: 0.2 link { mbit: 0.1792 latency_us: 0 }\n";
    SIM_RUN(*state, slow, dir, "workers=1", "stop.steps=6", PLAIN, "validation=0",
            "strategy.downpour={ n_push: 1 n_fetch: 100 }");
    assert_int_equal(sim_exchanges(dir, is), 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(is[i].lane, PUSH);
        assert_true(is[i].waited_for == SIM_NO_NODE);
    }
    assert_true(is[5].at - is[0].at < 5 * 200 + 5); /* sent over the same link */
    SIM_RUN(*state, slow, dir, "workers=1", "stop.steps=4", PLAIN, "validation=0",
            "collective.chunk_kb=4", "strategy.downpour={ n_push: 100 n_fetch: 3 }");
    assert_int_equal(sim_exchanges(dir, is), 2);
    assert_int_equal(is[0].lane, FETCH);
    /* Before it headers, the job's text and a report go by that link. */
    assert_true(is[0].waited > 100 && is[0].waited < 150);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone_step_by_step_it_is_single),
        cmocka_unit_test(test_alone_it_is_single_but_for_rounding),
        cmocka_unit_test(test_adagrad_at_the_server_is_adagrad),
        cmocka_unit_test(test_shards_are_one_server),
        cmocka_unit_test(test_timeline),
        cmocka_unit_test(test_only_fetching_takes_time),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
