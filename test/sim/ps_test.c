/* Parameter servers in whole runs: their results, and the timeline of each worker. */
#include "sim_run.h"
#include "sweep_stride.h"
#include "trace_events.h"

#define SAME_MAX 1e-5 /* max |a − b| / max |b| */

static const char calm[] = "node { count: 4 } step_seconds: 0.004 link { mbit: 100 }\n";

/* ---- what they compute ---- */

static const char *const modes[] = {"bsp", "asp", "ssp", "dssp"};
static const char *const offsets[] = {"servers: 1", "colocated: true"};

static void test_alone_every_mode_is_single(void **state)
{
    struct tiny *t = *state;
    char single[128], other[128], set[96];
    SIM_RUN(t, calm, single, "stop.steps=45", "workers=1", "strategy.single={}");
    for (size_t mode = 0; mode < 4; mode++)
        for (size_t offset = 0; offset < 2; offset++) {
            snprintf(set, sizeof set, "strategy.ps={ consistency: %s %s }", modes[mode],
                     offsets[offset]);
            SIM_RUN(t, calm, other, "stop.steps=45", "workers=1", set);
            if (!run_same_bits(other, single, "final.safetensors"))
                fail_msg("%s", set);
            assert_true(run_number(other, "end", 0, "used") == 45 * 16);
            assert_true(run_number(other, "end", 0, "test_loss") ==
                        run_number(single, "end", 0, "test_loss"));
        }
}

/* So it is with every optimizer and both clocks of the schedule. */
static void test_alone_every_optimizer_is_single(void **state)
{
    static const char *const solver[] = {
        "type: 'Nesterov' momentum: 0.9 base_lr: 0.05", "type: 'AdaGrad' base_lr: 0.02",
        "type: 'RMSProp' base_lr: 0.002",
        "type: 'Adam' momentum: 0.9 momentum2: 0.999 base_lr: 0.002",
        "type: 'SGD' base_lr: 0.05 clock: epochs"};
    struct tiny *t = *state;
    char single[128], other[128], set[192];
    for (size_t i = 0; i < sizeof solver / sizeof *solver; i++) {
        snprintf(set, sizeof set, "solver={ %s weight_decay: 0.001 lr_policy: 'exp' gamma: 0.97 }",
                 solver[i]);
        SIM_RUN(t, calm, single, "stop.steps=30", "workers=1", set, "strategy.single={}");
        SIM_RUN(t, calm, other, "stop.steps=30", "workers=1", set,
                "strategy.ps={ consistency: asp }");
        if (!run_same_bits(other, single, "final.safetensors"))
            fail_msg("%s", solver[i]);
        SIM_RUN(t, calm, other, "stop.steps=30", "workers=1", set,
                "strategy.ps={ consistency: bsp colocated: true }");
        if (!run_same_bits(other, single, "final.safetensors"))
            fail_msg("%s, colocated", solver[i]);
    }
}

/* Does the worker compute at that moment? */
static bool is_computing(const struct trace_events *trace, int pid, int64_t at)
{
    for (size_t i = 0; i < trace->count; i++) {
        const struct trace_event *s = &trace->at[i];
        if (s->pid == pid && strcmp(s->name, "compute") == 0 && s->start < at && at < s->end)
            return true;
    }
    return false;
}

/* Four workers have a quarter of 513 floats each; the last layer has all but 60 of them. While
 * backward computes the first layer, the last three quarters leave: of the 12 parts that travel in
 * a round, 9. A worker sends copies to others while these wait, in bsp never during its own step.
 */
static void test_pushes_overlap_with_backward(void **state)
{
    enum { STEPS = 10 };
    struct sim_run r = {.traced = true};
    struct trace_events trace;
    int early = 0;
    SIM(*state, calm, &r, "stop.steps=10", "strategy.ps={ consistency: bsp colocated: true }",
        "evaluate.every_exchanges=10000", "validation=0");
    trace_read(r.trace, &trace);
    for (size_t i = 0; i < trace.count; i++) {
        const struct trace_event *s = &trace.at[i];
        early += strcmp(s->name, "send") == 0 && is_computing(&trace, s->pid, s->start);
    }
    print_message("    %d of %d parts\n", early, 12 * STEPS);
    assert_true(early >= 8 * STEPS && early <= 9 * STEPS);
    trace_release(&trace);
}

/* Four workers with 16 records each, in rounds; one with all 64. */
static void test_rounds_are_one_worker_with_the_whole_batch(void **state)
{
    struct tiny *t = *state;
    char one[128], all[128], driver[128], two[128], four[128];
    SIM_RUN(t, calm, one, "stop.steps=20", "workers=1", "batch=64", "strategy.single={}");
    SIM_RUN(t, calm, all, "stop.steps=20", "strategy.allreduce={}");
    SIM_RUN(t, calm, driver, "stop.steps=20", "strategy.ps={ consistency: bsp }");
    SIM_RUN(t, calm, two, "stop.steps=20", "strategy.ps={ consistency: bsp servers: 2 }");
    SIM_RUN(t, calm, four, "stop.steps=20", "strategy.ps={ consistency: bsp colocated: true }");
    assert_true(run_number(driver, "end", 0, "used") == 20 * 64);
    assert_int_equal(run_count(driver, "exchange", NULL, NULL), 20 * 4);
    assert_true(run_number(four, "end", 0, "used") == 20 * 64);
    print_message("    %.2g from one worker, %.2g from allreduce\n", run_difference(driver, one),
                  run_difference(driver, all));
    assert_true(run_difference(driver, one) <= SAME_MAX);
    assert_true(run_difference(driver, all) <= SAME_MAX);
    assert_true(run_same_bits(two, driver, "final.safetensors"));
    assert_true(run_same_bits(four, driver, "final.safetensors"));
}

/* η/4 of the sum of four is η of their mean; decay is added once to either. */
static void test_a_sum_is_four_means(void **state)
{
    struct tiny *t = *state;
    char mean[128], sum[128];
    SIM_RUN(t, calm, mean, "stop.steps=20", "strategy.ps={ consistency: bsp }",
            "solver.base_lr=0.05", "solver.weight_decay=0.001");
    SIM_RUN(t, calm, sum, "stop.steps=20", "strategy.ps={ consistency: bsp aggregate: sum }",
            "solver.base_lr=0.0125", "solver.weight_decay=0.004");
    assert_true(run_difference(sum, mean) <= SAME_MAX);
    SIM_RUN(t, calm, sum, "stop.steps=20", "strategy.ps={ consistency: bsp aggregate: sum }",
            "solver.base_lr=0.05", "solver.weight_decay=0.001");
    assert_true(run_difference(sum, mean) > 100 * SAME_MAX);
}

static void test_what_cannot_be_is_refused(void **state)
{
    static const struct {
        const char *set, *error;
    } cases[] = {
        {"strategy.ps={ r_max: 256 }", "strategy.ps.r_max: must be from 0 to 255, is 256"},
        {"strategy.ps={ servers: 5 }", "strategy.ps.servers: must be from 1 to 4, is 5"},
        {"strategy.ps={ servers: 2 colocated: true }",
         "strategy.ps.servers: colocated is set, and one of the two may be"},
        {"strategy.downpour={ n_push: 0 }",
         "strategy.downpour.n_push: must be from 1 to 4294967295, is 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sim_run r = {0};
        SIM_TRY(*state, calm, &r, cases[i].set);
        assert_int_equal(r.rc, PL_ERR_INPUT);
        assert_string_equal(r.error, cases[i].error);
    }
}

/* ---- when who does what ---- */

/* Three workers whose steps take 200, 310 and 530 ms, on links without delay. */
static const char three[] =
    "node { speed: 3 } node { speed: 1.935483870967742 } node { speed: 1.1320754716981132 }\n"
    "step_seconds: 0.6 link { mbit: 1000000 latency_us: 0 }\n";

/* asp: each push is applied when it arrives, and its worker continues at once.
 *
 *   ms        0    200   400   600   800  1000  1200  1400
 *   worker 0  |--1--|--2--|--3--|--4--|--5--|--6--|--7--|
 *   worker 1  |----1----|----2----|----3----|----4----|
 *   worker 2  |-------1--------|--------2-------|--------3-------|
 *
 * The run has 4 steps of each, 12 in all. The 12th is worker 1's at 1240, which ends with it; the
 * others end with their current step. */
static void test_timeline_of_asp(void **state)
{
    static const struct sim_exchange want[] = {
        {200, 0, 1, 0, SIM_NO_NODE, 0},  {310, 1, 1, 0, SIM_NO_NODE, 0},
        {400, 0, 2, 0, SIM_NO_NODE, 0},  {530, 2, 1, 0, SIM_NO_NODE, 0},
        {600, 0, 3, 0, SIM_NO_NODE, 0},  {620, 1, 2, 0, SIM_NO_NODE, 0},
        {800, 0, 4, 0, SIM_NO_NODE, 0},  {930, 1, 3, 0, SIM_NO_NODE, 0},
        {1000, 0, 5, 0, SIM_NO_NODE, 0}, {1060, 2, 2, 0, SIM_NO_NODE, 0},
        {1200, 0, 6, 0, SIM_NO_NODE, 0}, {1240, 1, 4, 0, SIM_NO_NODE, 0},
        {1400, 0, 7, 0, SIM_NO_NODE, 0}, {1590, 2, 3, 0, SIM_NO_NODE, 0},
    };
    char dir[128];
    SIM_RUN(*state, three, dir, "workers=3", "stop.steps=4", "strategy.ps={ consistency: asp }");
    SIM_EXPECT_TIMELINE(dir, want);
    assert_true(run_number(dir, "end", 0, "used") == 14 * 16);
}

/* bsp: a round ends with its slowest worker; the others wait.
 *
 *   ms        0           530          1060
 *   worker 0  |--1--.......|--2--.......|      330 of waiting
 *   worker 1  |----1----...|----2----...|      220
 *   worker 2  |-----1------|-----2------|      */
static void test_timeline_of_bsp(void **state)
{
    static const struct sim_exchange want[] = {
        {530, 0, 1, 330, 2, 0},  {530, 1, 1, 220, 2, 0},  {530, 2, 1, 0, SIM_NO_NODE, 0},
        {1060, 0, 2, 330, 2, 0}, {1060, 1, 2, 220, 2, 0}, {1060, 2, 2, 0, SIM_NO_NODE, 0},
    };
    char dir[128];
    SIM_RUN(*state, three, dir, "workers=3", "stop.steps=2", "strategy.ps={ consistency: bsp }");
    SIM_EXPECT_TIMELINE(dir, want);
    assert_true(run_number(dir, "end", 0, "used") == 6 * 16);
}

/* ssp, s = 1: a worker that leads the slowest by two pushes waits until it leads by one.
 *
 *   ms        0   200  400   530   730       1060  1260     1590  1790     2120
 *   worker 0  |-1-|-2-|.......|--3--|..........|--4--|........|--5--|........|
 *   worker 1  |---1--|---2---|----3-----|......|----4---|.....|----5---|.....|
 *   worker 2  |------1--------|-------2--------|------3-------|------4-------|
 *
 * At 400 worker 0 has pushed twice and worker 2 not at all: a lead of 2. Worker 2's push at 530
 * releases it. From 1060 on both wait in every round of worker 2, which never waits. */
static void test_timeline_of_ssp(void **state)
{
    static const struct sim_exchange want[] = {
        {200, 0, 1, 0, SIM_NO_NODE, 0}, {310, 1, 1, 0, SIM_NO_NODE, 0},  {530, 0, 2, 130, 2, 0},
        {530, 2, 1, 0, SIM_NO_NODE, 0}, {620, 1, 2, 0, SIM_NO_NODE, 0},  {1060, 0, 3, 330, 2, 0},
        {1060, 1, 3, 130, 2, 0},        {1060, 2, 2, 0, SIM_NO_NODE, 0}, {1590, 0, 4, 330, 2, 0},
        {1590, 1, 4, 220, 2, 0},        {1590, 2, 3, 0, SIM_NO_NODE, 0}, {2120, 0, 5, 330, 2, 0},
        {2120, 1, 5, 220, 2, 0},        {2120, 2, 4, 0, SIM_NO_NODE, 0},
    };
    char dir[128];
    SIM_RUN(*state, three, dir, "workers=3", "stop.steps=4",
            "strategy.ps={ consistency: ssp staleness: 1 }");
    SIM_EXPECT_TIMELINE(dir, want);
}

/* dssp, s_L = 1, r_max = 3, credit by the letter. As ssp until worker 2, the slowest, has pushed
 * twice and so has an interval, of 530 ms: its next pushes are foreseen at 1590, 2120, 2650 …
 *
 *   ms        1060  1260 1460 1660 1860
 *   worker 0   |--4--|--5-|--6-|--7-|
 *   worker 1   |----4----|----5----|----6----|         its pushes 1370, 1680, 1990
 *   worker 2   |-------3-------|-------4-------|       1590, 2120
 *
 * 1260  worker 0's 4th: it leads 2 by two, and its interval was 530 (it waited). Its pushes would
 *       come at 1260, 1790, 2320 …: at best 200 from one of worker 2's, first so with r = 1. OK.
 * 1370  worker 1's 4th, a lead of 2; nobody has more. Interval 440: 1370, 1810, 2250, 2690, the
 *       last 40 from 2650: r = 3. OK.
 * 1460  worker 0's 5th uses up its credit.
 * 1660  its 6th, a lead of 3 over worker 2, which pushed at 1590. Interval 200: 1660, 1860, 2060,
 *       2260, the third 60 from 2120: r = 2. OK.
 * 1680  worker 1's 5th, from credit.
 * 1860  worker 0's 7th, from credit: the 15th push of 15 that the run asks for. */
static void test_timeline_of_dssp(void **state)
{
    static const struct sim_exchange want[] = {
        {200, 0, 1, 0, SIM_NO_NODE, 0},  {310, 1, 1, 0, SIM_NO_NODE, 0},
        {530, 0, 2, 130, 2, 0},          {530, 2, 1, 0, SIM_NO_NODE, 0},
        {620, 1, 2, 0, SIM_NO_NODE, 0},  {1060, 0, 3, 330, 2, 0},
        {1060, 1, 3, 130, 2, 0},         {1060, 2, 2, 0, SIM_NO_NODE, 0},
        {1260, 0, 4, 0, SIM_NO_NODE, 0}, {1370, 1, 4, 0, SIM_NO_NODE, 0},
        {1460, 0, 5, 0, SIM_NO_NODE, 0}, {1590, 2, 3, 0, SIM_NO_NODE, 0},
        {1660, 0, 6, 0, SIM_NO_NODE, 0}, {1680, 1, 5, 0, SIM_NO_NODE, 0},
        {1860, 0, 7, 0, SIM_NO_NODE, 0}, {1990, 1, 6, 0, SIM_NO_NODE, 0},
        {2120, 2, 4, 0, SIM_NO_NODE, 0},
    };
    char dir[128];
    SIM_RUN(*state, three, dir, "workers=3", "stop.steps=5", "strategy.ps={ s_lower: 1 r_max: 3 }");
    SIM_EXPECT_TIMELINE(dir, want);
}

/* The cluster adds costs of the serving node and of copies: 2240 bytes (560
 * floats) are copied out at 1 GB/s of a core of speed 3, applied at the driver at 0.5 GB/s, copied
 * there, and copied in again. */
static void test_copying_and_applying_take_time(void **state)
{
    char dir[128], cluster[512];
    static struct sim_exchange is[SIM_EXCHANGES_MAX];
    snprintf(cluster, sizeof cluster, "%s costs { copy_gb_s: 0.00001 reduce_gb_s: 0.000005 }",
             three);
    SIM_RUN(*state, cluster, dir, "workers=1", "stop.steps=2", "solver.momentum=0",
            "strategy.ps={ consistency: asp }");
    assert_int_equal(sim_exchanges(dir, is), 2);
    double bytes = 560 * 4, copy = bytes / 1e4 * 1e3, reduce = bytes / 5e3 * 1e3; /* ms */
    double state_copy = copy + 2 * 4 / 1e4 * 1e3; /* and the number of the worker's push */
    double each = copy / 3 + reduce + state_copy + copy / 3;
    assert_true(sim_close(is[0].at, 200 + each));
    assert_true(sim_close(is[1].at, 2 * (200 + each)));
}

/* ---- how far apart ---- */

/* The largest lead at which a worker was let continue. Grants that arrive within a moment were
 * decided together. */
static int largest_lead(const char *dir, int workers)
{
    static struct sim_exchange is[SIM_EXCHANGES_MAX];
    int n = sim_exchanges(dir, is), pushes[8] = {0}, most = 0;
    for (int i = 0; i < n;) {
        int j = i;
        for (; j < n && is[j].at - is[i].at < 0.02; j++)
            pushes[is[j].node] = is[j].n;
        int least = pushes[0];
        for (int p = 1; p < workers; p++)
            least = pushes[p] < least ? pushes[p] : least;
        for (; i < j; i++)
            most = is[i].n - least > most ? is[i].n - least : most;
    }
    return most;
}

/* Seeds have cycles of four, seven and forty. */
enum { STRIDE = SWEEP_STRIDE(9, 9), SEEDS = 150 };

static void measure_leads(struct tiny *t, const char *options, int seeds, int *most, int *reached,
                          int bound)
{
    *most = *reached = 0;
    for (int seed = 1; seed <= seeds; seed += STRIDE) {
        char dir[128], cluster[256], set_seed[32], command[160];
        double jitter = 0.01 * (seed % 40);
        snprintf(cluster, sizeof cluster,
                 "node { speed: %d.%d jitter: %g } node { jitter: %g } node { speed: 2 jitter: %g }"
                 " step_seconds: 0.05 link { mbit: 1000000 latency_us: 0 }",
                 1 + seed % 4, seed % 7, jitter, jitter, jitter);
        snprintf(set_seed, sizeof set_seed, "seed=%d", seed);
        SIM_RUN(t, cluster, dir, "workers=3", "stop.steps=30", "validation=0", set_seed, options);
        int lead = largest_lead(dir, 3);
        *most = lead > *most ? lead : *most;
        *reached += lead == bound;
        snprintf(command, sizeof command, "rm -rf '%s'", dir);
        assert_int_equal(system(command), 0);
    }
}

static void test_ssp_keeps_its_bound(void **state)
{
    int most, reached;
    measure_leads(*state, "strategy.ps={ consistency: ssp staleness: 3 }", SEEDS, &most, &reached,
                  3);
    print_message("    ssp 3: largest lead %d, in %d of %d runs\n", most, reached, SEEDS / STRIDE);
    assert_int_equal(most, 3);
    assert_true(reached > 100 / STRIDE);
}

static void test_dssp_keeps_a_hard_bound(void **state)
{
    int most, reached;
    measure_leads(*state, "strategy.ps={ s_lower: 1 r_max: 4 hard_bound: true }", SEEDS, &most,
                  &reached, 5);
    print_message("    dssp 1 to 5, hard: largest lead %d, in %d of %d runs\n", most, reached,
                  SEEDS / STRIDE);
    assert_int_equal(most, 5);
    assert_true(reached > 10 / STRIDE);
}

/* The test of the test, and the paper's Theorem 2: by the letter there is no such bound. */
static void test_dssp_without_bound_exceeds_it(void **state)
{
    int most, reached;
    measure_leads(*state, "strategy.ps={ s_lower: 1 r_max: 4 }", 40, &most, &reached, 5);
    print_message("    dssp 1 to 5, by the letter: largest lead %d\n", most);
    assert_true(most > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone_every_mode_is_single),
        cmocka_unit_test(test_alone_every_optimizer_is_single),
        cmocka_unit_test(test_pushes_overlap_with_backward),
        cmocka_unit_test(test_rounds_are_one_worker_with_the_whole_batch),
        cmocka_unit_test(test_a_sum_is_four_means),
        cmocka_unit_test(test_what_cannot_be_is_refused),
        cmocka_unit_test(test_timeline_of_asp),
        cmocka_unit_test(test_timeline_of_bsp),
        cmocka_unit_test(test_timeline_of_ssp),
        cmocka_unit_test(test_timeline_of_dssp),
        cmocka_unit_test(test_copying_and_applying_take_time),
        cmocka_unit_test(test_ssp_keeps_its_bound),
        cmocka_unit_test(test_dssp_keeps_a_hard_bound),
        cmocka_unit_test(test_dssp_without_bound_exceeds_it),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
