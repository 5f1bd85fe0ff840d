/* Runs that pause while they have fewer workers than pause_below, in simulation: with every
 * strategy that joiners can join. */
#include "strategy_sim.h"
#include "sweep_stride.h"

enum { STRIDE = SWEEP_STRIDE(7, 5) };

struct way {
    const char *set[5];
    uint64_t steps;  /* that a worker which dies takes with it, at most; asynchronous: 0 */
    uint64_t finish; /* steps of a round that is finished before the pause; 0: none */
    bool serve;      /* workers are servers of the others */
};

static const struct way ways[] = {
    {{"strategy.sync={tau:4}"}, .steps = 4},
    {{"strategy.sync={tau:12}"}, .steps = 12},
    {{"strategy.sync={tau:4 on_replace:average}", "collective.wire=int8"}, .steps = 4, .finish = 4},
    {{"strategy.sync={seconds:0.02}"}, .steps = 5},
    {{"strategy.allreduce={}"}, .steps = 1},
    {{"strategy.allreduce={bucket_kb:1}", "collective.algorithm=ring"}, .steps = 1},
    {{"strategy.easgd={mode:sync tau:4}"}, .steps = 4, .finish = 4},
    {{"strategy.diloco={tau:6 fragments:3}"}, .steps = 6, .finish = 2},
    {{"strategy.diloco={tau:12 fragments:2 overlap:2 on_replace:average}"},
     .steps = 24,
     .finish = 12},
    {{"strategy.async_allreduce={}"}, .steps = 2, .finish = 1},
    {{"strategy.async_allreduce={warmup_epochs:0.5 sync_every_epochs:0}"}, .steps = 2, .finish = 1},
    {{"strategy.mpca={}"}, .steps = 0},
    {{"strategy.mpca={coordination:symmetric shards:5}"}, .steps = 0},
    {{"strategy.pace={}"}, .steps = 0},
    {{"strategy.pace={coordination:symmetric shards:5}"}, .steps = 0},
    {{"strategy.gossip={p:0.3}"}, .steps = 0},
    {{"strategy.easgd={tau:4}"}, .steps = 0},
    {{"strategy.ps={}"}, .steps = 0},
    {{"strategy.ps={consistency:bsp servers:2}"}, .steps = 0, .serve = true},
    {{"strategy.ps={consistency:ssp colocated:true}"}, .steps = 0, .serve = true},
    {{"strategy.downpour={}", "solver.momentum=0"}, .steps = 0},
    {{"strategy.downpour={servers:2 n_push:2 n_fetch:4}", "solver.momentum=0"},
     .steps = 0,
     .serve = true},
    {{"strategy.allreduce={}", "batch", "global_batch=48"}, .steps = 2},
    {{"strategy.full_batch={}", "solver={type:'LBFGS'}", "batch", "stop.epochs=40"}, .steps = 34},
};

enum { WAYS = sizeof ways / sizeof *ways };

#define STEP_S 0.004

/* The tiny job with three workers, which pauses below `least`; nodes 3 to 5 join when `faults`
 * start them. */
static void try_way(struct tiny *t, const struct way *way, int least, const char *faults,
                    const char *more, struct sim_run *r)
{
    const char *set[14] = {"workers_min=3", "workers_max=3", "evaluate.every_exchanges=1000",
                           "checkpoint.every_seconds=1000"};
    size_t n = 4;
    char cluster[640], below[32];
    snprintf(cluster, sizeof cluster, "node { count: 6 } step_seconds: %g link { mbit: 100 }\n%s",
             STEP_S, faults);
    snprintf(below, sizeof below, "pause_below=%d", least);
    set[n++] = below;
    set[n++] = more;
    for (size_t i = 0; way->set[i]; i++)
        set[n++] = way->set[i];
    r->limit_s = 60;
    r->traced = true;
    sim_try(t, cluster, r, set);
}

static void play_way(struct tiny *t, const struct way *way, int least, const char *faults,
                     struct sim_run *r)
{
    try_way(t, way, least, faults, "stop.epochs=4", r);
    if (r->rc != PL_OK)
        fail_msg("%s, %s: %s (%s)", way->set[0], faults, r->error, r->dir);
    sim_adds_up(r);
}

/* No worker began a step in the kth pause. Members learn of it a little earlier or later than the
 * driver reports it, and finish the step, or the round, in which they were. */
static void expect_no_step(const struct way *way, const struct sim_run *r, int k)
{
    double begins = run_number(r->dir, "paused", k, "t"),
           ends = run_number(r->dir, "resumed", k, "t");
    double from = begins + 0.02 + (double)way->finish * 2 * STEP_S, to = ends - 0.02;
    char line[1024];
    int steps = 0;
    FILE *f = fopen(r->trace, "r");
    assert_non_null(f);
    assert_true(to > from + 0.2);
    while (fgets(line, sizeof line, f)) {
        const char *ts = strstr(line, "\"ts\":");
        if (!ts || !strstr(line, "\"compute\""))
            continue;
        double at = strtod(ts + 5, NULL) / 1e6;
        steps++;
        if (at > from && at < to)
            fail_msg("%s: a step begins at %.3f s, in the pause from %.3f to %.3f s (%s): %s",
                     way->set[0], at, begins, ends, r->dir, line);
    }
    fclose(f);
    assert_true(steps > 20);
}

/* One of three workers dies at moments throughout the run, and is replaced a second later: nobody
 * trains meanwhile, and the run ends as with any other death. */
static void test_no_step_without_workers_enough(void **state)
{
    enum { MOMENTS = 3 };
    for (size_t w = 0; w < WAYS; w++) {
        struct sim_run whole = {0};
        uint64_t most = 0;
        play_way(*state, &ways[w], 3, "", &whole);
        assert_int_equal(run_count(whole.dir, "paused", NULL, NULL), 0);
        for (int i = (int)sweep_first(w, STRIDE, MOMENTS); i < MOMENTS; i += STRIDE) {
            struct sim_run r = {0};
            char faults[128];
            /* The first round has no commit point before it, and is finished. */
            double first = 0.03 + (double)ways[w].steps * STEP_S;
            double at = first + (0.8 * whole.report.wall_s - first) * i / MOMENTS;
            snprintf(faults, sizeof faults,
                     "fault { at: %.9f kill: %d } fault { at: %.9f join: 3 }", at, i % 3, at + 1);
            play_way(*state, &ways[w], 3, faults, &r);
            if (run_count(r.dir, "paused", NULL, NULL) != 1 ||
                run_count(r.dir, "resumed", NULL, NULL) != 1)
                fail_msg("%s, %s: %d pauses, %d ended (%s)", ways[w].set[0], faults,
                         run_count(r.dir, "paused", NULL, NULL),
                         run_count(r.dir, "resumed", NULL, NULL), r.dir);
            expect_no_step(&ways[w], &r, 0);
            if (run_number(r.dir, "resumed", 0, "paused_s") > 1.6)
                fail_msg("%s, %s: pauses %g s (%s)", ways[w].set[0], faults,
                         run_number(r.dir, "resumed", 0, "paused_s"), r.dir);
            assert_true(run_number(r.dir, "paused", 0, "workers") == 2);
            assert_true(run_number(r.dir, "paused", 0, "needed") == 3);
            assert_int_equal(run_count(r.dir, "member", NULL, NULL), 5);
            most = r.report.missed > most ? r.report.missed : most;
        }
        print_message("    %s: at most %u records missed\n", ways[w].set[0], (unsigned)most);
        assert_true(most <= ways[w].steps * SIM_BATCH);
    }
}

static int count_members(const struct sim_run *r, const char *what)
{
    return run_count(r->dir, "member", "what", what);
}

/* Two of three workers die, and are replaced half a second apart: the first joiner is admitted in
 * the pause, and pauses, too. */
static void test_the_first_of_two_joiners_waits(void **state)
{
    for (size_t w = 0; w < WAYS; w += 2) {
        struct sim_run r = {0};
        char faults[224];
        int left = (int)(w % 3); /* the number of the one that lives */
        snprintf(faults, sizeof faults,
                 "fault { at: 0.12 kill: %d } fault { at: %g kill: %d } "
                 "fault { at: 0.6 join: 3 } fault { at: 1.1 join: 4 }",
                 (left + 1) % 3, w % 4 == 1 ? 0.12 : 0.15, (left + 2) % 3);
        play_way(*state, &ways[w], 3, faults, &r);
        if (run_count(r.dir, "paused", NULL, NULL) != 1 || count_members(&r, "join") != 5 ||
            run_number(r.dir, "member", 5, "t") > 0.9)
            fail_msg("%s, %s: the first joiner is not admitted (%s)", ways[w].set[0], faults,
                     r.dir);
        expect_no_step(&ways[w], &r, 0);
    }
}

/* With fewer workers than at the start, but not below the limit, the run trains on. */
static void test_workers_enough_train_on(void **state)
{
    for (size_t w = 0; w < WAYS; w += STRIDE) {
        struct sim_run r = {0};
        play_way(*state, &ways[w], 2, "fault { at: 0.1 kill: 1 } fault { at: 1000 join: 3 }", &r);
        assert_int_equal(run_count(r.dir, "paused", NULL, NULL), 0);
        assert_true(r.report.wall_s < 1);
    }
}

/* No replacement comes: the run ends by name, and is resumed from where it paused. */
static void test_a_pause_has_an_end(void **state)
{
    for (size_t w = 0; w < WAYS; w += STRIDE) {
        struct sim_run r = {0};
        try_way(*state, &ways[w], 3, "fault { at: 0.12 kill: 1 } fault { at: 1000 join: 3 }",
                "pause_patience_seconds=2.5", &r);
        if (r.rc != PL_ERR_PEER || !strstr(r.error, "it has 2 workers, and pause_below is 3") ||
            !strstr(r.error, "paceline resume"))
            fail_msg("%s: %d, %s", ways[w].set[0], r.rc, r.error);
        double ended = run_number(r.dir, "end", 0, "t");
        if (ended < 2.6 || ended > 5.2)
            fail_msg("%s: ends after %g s", ways[w].set[0], ended);
        assert_true(run_count(r.dir, "checkpoint", NULL, NULL) > 0);
        double done =
            run_number(r.dir, "checkpoint", run_count(r.dir, "checkpoint", NULL, NULL) - 1, "n");
        assert_true(done > 0);
        play_way(*state, &ways[w], 3, "", &r);
        assert_true(strcmp(r.report.reason, "epochs") == 0 ||
                    strcmp(r.report.reason, "converged") == 0);
    }
}

/* The model is written when the pause begins, whichever node holds it. */
static void test_the_model_is_written_at_once(void **state)
{
    for (size_t w = 0; w < WAYS; w += STRIDE) {
        struct sim_run r = {0};
        try_way(*state, &ways[w], 3, "fault { at: 0.12 kill: 1 } fault { at: 1000 join: 3 }",
                "pause_patience_seconds=20", &r);
        assert_int_equal(r.rc, PL_ERR_PEER);
        if (run_number(r.dir, "checkpoint", 0, "t") > 5)
            fail_msg("%s: %g s (%s)", ways[w].set[0], run_number(r.dir, "checkpoint", 0, "t"),
                     r.dir);
    }
}

/* The run is to stop while it pauses: it does so without more workers. */
static void test_a_stop_ends_the_pause(void **state)
{
    for (size_t w = 1; w < WAYS; w += 2) {
        struct sim_run r = {0};
        try_way(*state, &ways[w], 3, "fault { at: 0.12 kill: 1 } fault { at: 1000 join: 3 }",
                "stop={epochs:4 seconds:0.8}", &r);
        if (r.rc != PL_OK || strcmp(r.report.reason, "seconds") != 0 || r.report.wall_s > 1.2 ||
            !r.report.model[0])
            fail_msg("%s: %d, %s, %s, %g s", ways[w].set[0], r.rc, r.error, r.report.reason,
                     r.report.wall_s);
        sim_adds_up(&r);
    }
}

/* A member leaves, so that the run pauses; another one is asked to leave in the pause, and goes at
 * once. */
static void test_members_leave_before_and_in_a_pause(void **state)
{
    for (size_t w = 0; w < WAYS; w += 2) {
        struct sim_run r = {0};
        play_way(*state, &ways[w], 3,
                 "fault { at: 0.12 leave: 1 } fault { at: 0.5 leave: 0 } fault { at: 0.9 join: 3 } "
                 "fault { at: 1.2 join: 4 }",
                 &r);
        if (count_members(&r, "leave") != 2 || count_members(&r, "join") != 5 ||
            count_members(&r, "dead") != 0)
            fail_msg("%s: members (%s)", ways[w].set[0], r.dir);
        if (!ways[w].serve) /* else it first hands over what it serves */
            assert_true(run_number(r.dir, "member", 4, "t") < 0.8);
        expect_no_step(&ways[w], &r, 0);
    }
}

/* The driver dies in the pause, or soon after the view in which the run pauses, and
 * returns before a joiner comes: the pause continues. */
static void test_a_driver_returns_in_a_pause(void **state)
{
    for (size_t w = 1; w < WAYS; w += 2) {
        struct sim_run r = {0};
        char faults[224];
        snprintf(faults, sizeof faults,
                 "fault { at: 0.12 kill: 1 } fault { at: %g kill: -1 for: 0.2 } "
                 "fault { at: 9 join: 3 } fault { at: 1000 join: 4 } fault { at: 1000 join: 5 }",
                 w % 4 == 1 ? 0.5 : 0.14);
        play_way(*state, &ways[w], 3, faults, &r);
        int pauses = run_count(r.dir, "paused", NULL, NULL);
        if (pauses < 1 || run_count(r.dir, "resumed", NULL, NULL) != 1 ||
            count_members(&r, "join") != 4)
            fail_msg("%s, %s: %d pauses (%s)", ways[w].set[0], faults, pauses, r.dir);
        assert_true(run_number(r.dir, "resumed", 0, "t") > 9);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_step_without_workers_enough),
        cmocka_unit_test(test_the_first_of_two_joiners_waits),
        cmocka_unit_test(test_workers_enough_train_on),
        cmocka_unit_test(test_a_pause_has_an_end),
        cmocka_unit_test(test_the_model_is_written_at_once),
        cmocka_unit_test(test_a_stop_ends_the_pause),
        cmocka_unit_test(test_members_leave_before_and_in_a_pause),
        cmocka_unit_test(test_a_driver_returns_in_a_pause),
    };
    return cmocka_run_group_tests(tests, tiny_setup_elastic, tiny_teardown);
}
