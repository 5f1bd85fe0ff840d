/* Driver recovery in simulation: workers keep their state, train on where their strategy allows it,
 * and the run resumes from their state. */
#include "strategy_sim.h"
#include "sweep_stride.h"

/* STRIDE: not a multiple of the cycles of two to four that the cases have. WAY_STEP: the ways at
 * its multiples have each strategy. */
enum { STRIDE = SWEEP_STRIDE(7, 7), WAY_STEP = SWEEP_STRIDE(2, 2) };

struct way {
    const char *set[4];
    bool waits; /* the driver has a part in every exchange: workers wait for it */
    bool free;
    bool exact; /* the results do not depend on time: the model is that of a run without deaths */
    bool ends_alike; /* or is, to rounding, where the driver dies after the last step */
};

static const struct way ways[] = {
    {{"strategy.sync={tau:4}"}, .waits = true, .exact = true},
    {{"strategy.sync={tau:4 on_replace:average}"}, .waits = true, .exact = true},
    {{"strategy.sync={tau:4 init_iterations:5}"}, .waits = true, .exact = true},
    {{"strategy.sync={tau_auto:true}"}, .waits = true},
    {{"strategy.sync={seconds:0.02}"}, .waits = true},
    {{"strategy.allreduce={}"}, .exact = true},
    {{"strategy.allreduce={bucket_kb:1}", "collective.algorithm=ring"}, .exact = true},
    {{"strategy.diloco={tau:4}"}, .exact = true},
    {{"strategy.diloco={tau:6 fragments:3}"}, .exact = true},
    {{"strategy.diloco={tau:12 fragments:2 overlap:2 on_replace:average}"}, .exact = true},
    {{"strategy.async_allreduce={}"}, .exact = true},
    {{"strategy.easgd={mode:sync tau:4}"}, .waits = true, .exact = true},
    {{"strategy.easgd={tau:4}"}, .free = true, .ends_alike = true},
    {{"strategy.mpca={}"}, .free = true, .ends_alike = true},
    {{"strategy.mpca={coordination:symmetric}"}, .free = true},
    {{"strategy.mpca={shards:5}"}, .free = true, .ends_alike = true},
    /* A model of `pace` is the mean of the workers of its exchange, which may be others then. */
    {{"strategy.pace={}"}, .free = true},
    {{"strategy.pace={coordination:symmetric shards:3}"}, .free = true},
    {{"strategy.gossip={p:0.3}"}, .free = true},
    {{"strategy.mpca={coordination:symmetric shards:5}"}, .free = true},
    {{"strategy.ps={colocated:true}", "solver.momentum=0"}, .free = true},
    {{"strategy.ps={servers:2 consistency:bsp}", "solver.momentum=0"}, .free = true},
    {{"strategy.ps={consistency:bsp}", "solver.momentum=0"}, .free = true, .exact = true},
    {{"strategy.ps={consistency:bsp}"}, .free = true, .exact = true},
    {{"strategy.ps={consistency:bsp}", "solver.type=Adam", "solver.momentum=0.9"},
     .free = true,
     .exact = true},
    {{"strategy.ps={consistency:asp}"}, .free = true},
    {{"strategy.ps={consistency:ssp staleness:2}", "solver.momentum=0"}, .free = true},
    {{"strategy.ps={consistency:dssp}"}, .free = true},
    {{"strategy.downpour={n_push:2 n_fetch:2}", "solver.momentum=0"},
     .free = true,
     .ends_alike = true},
    {{"strategy.downpour={n_push:2 n_fetch:6 server_adagrad:true}", "solver.momentum=0"},
     .free = true},
    {{"strategy.downpour={colocated:true}", "solver.momentum=0"}, .free = true},
    {{"strategy.allreduce={}", "batch", "batch_growth={first:21 last:90}"}, .exact = true},
    {{"strategy.sync={tau:4}", "batch", "batch_growth={first:21 last:90}"},
     .waits = true,
     .exact = true},
    {{"strategy.async_allreduce={}", "batch", "batch_growth={first:21 last:90}"}, .exact = true},
    {{"strategy.diloco={tau:6 fragments:3}", "batch", "batch_growth={first:21 last:90}"},
     .exact = true},
    {{"strategy.easgd={mode:sync tau:4}", "batch", "batch_growth={first:21 last:90}"},
     .waits = true,
     .exact = true},
};

enum { WAYS = sizeof ways / sizeof *ways };

static void play_way(struct tiny *t, const struct way *way, const char *faults, struct sim_run *r)
{
    const char *set[8] = {"stop.epochs=4", "checkpoint.every_seconds=1000",
                          "evaluate.every_exchanges=1000"};
    char cluster[512];
    snprintf(cluster, sizeof cluster, SIM_CALM "%s", faults);
    for (size_t i = 0; way->set[i]; i++)
        set[3 + i] = way->set[i];
    r->limit_s = 300;
    sim_try(t, cluster, r, set);
    if (r->rc != PL_OK)
        fail_msg("%s, %s: %s (%s)", way->set[0], faults, r->error, r->dir);
    sim_adds_up(r);
}

/* Each recovered driver continues after all exchanges that the previous one reported: none is lost.
 * Workers that need no driver have made others meanwhile, without events. */
static void expect_nothing_lost(const struct way *way, const struct sim_run *r, const char *faults)
{
    char path[256], line[4096];
    double so_far = 0;
    snprintf(path, sizeof path, "%s/events.jsonl", r->dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        so_far += strstr(line, "\"kind\":\"exchange\"") != NULL;
        const char *back = strstr(line, "\"kind\":\"back\"");
        if (!back)
            continue;
        double from = strtod(strstr(line, "\"exchanges\":") + 12, NULL);
        if (from < so_far)
            fail_msg("%s, %s: resumes after %g of %g exchanges (%s)", way->set[0], faults, from,
                     so_far, r->dir);
        so_far = from;
    }
    fclose(f);
    assert_int_equal(r->report.missed, 0);
}

/* The driver dies at many moments of a run, and returns a little later: no worker is lost, nothing
 * is missed or done twice, and the run ends as without the death. */
static void test_it_dies_at_any_moment(void **state)
{
    enum { MOMENTS = 8 };
    struct tiny *t = *state;
    for (size_t w = 0; w < WAYS; w += WAY_STEP) {
        struct sim_run whole = {0};
        play_way(t, &ways[w], "", &whole);
        for (int i = (int)sweep_first(w, STRIDE, MOMENTS); i < MOMENTS; i += STRIDE) {
            struct sim_run r = {0};
            if (!sweep_takes(STRIDE, w, (size_t)i))
                continue;
            char faults[160];
            snprintf(faults, sizeof faults, "fault { at: %.6f kill: -1 for: %g }",
                     0.003 + (whole.report.wall_s - 0.003) * i / MOMENTS, i % 2 ? 0.02 : 0.3);
            play_way(t, &ways[w], faults, &r);
            int back = run_count(r.dir, "member", "what", "back");
            if (back != 4)
                fail_msg("%s, %s: %d returned (%s)", ways[w].set[0], faults, back, r.dir);
            assert_int_equal(run_count(r.dir, "member", NULL, NULL), 8);
            expect_nothing_lost(&ways[w], &r, faults);
            if (ways[w].exact && !run_same_bits(r.dir, whole.dir, "final.safetensors"))
                fail_msg("%s, %s: another model (%s)", ways[w].set[0], faults, r.dir);
        }
    }
}

/* It dies again right after its return: while workers reconnect, with its first view on the way to
 * them, or with their lane reports on the way to it. */
static void test_it_dies_twice(void **state)
{
    enum { MOMENTS = 10 };
    struct tiny *t = *state;
    for (size_t w = 0; w < WAYS; w += WAY_STEP) {
        struct sim_run whole = {0}, once = {0};
        char faults[160];
        play_way(t, &ways[w], "", &whole);
        double at = 0.3 * whole.report.wall_s;
        snprintf(faults, sizeof faults, "fault { at: %.6f kill: -1 for: 0.05 }", at);
        play_way(t, &ways[w], faults, &once);
        double back = at + 0.05 + run_number(once.dir, "back", 0, "t");
        for (int i = (int)sweep_first(w, STRIDE, MOMENTS); i < MOMENTS; i += STRIDE) {
            struct sim_run r = {0};
            if (!sweep_takes(STRIDE, w, (size_t)i))
                continue;
            snprintf(faults, sizeof faults,
                     "fault { at: %.6f kill: -1 for: 0.05 } fault { at: %.6f kill: -1 for: 0.04 }",
                     at, back + 0.00007 * (i - 4));
            play_way(t, &ways[w], faults, &r);
            assert_int_equal(run_count(r.dir, "member", "what", "dead"), 0);
            expect_nothing_lost(&ways[w], &r, faults);
            if (ways[w].exact && !run_same_bits(r.dir, whole.dir, "final.safetensors"))
                fail_msg("%s, %s: another model (%s)", ways[w].set[0], faults, r.dir);
        }
    }
}

/* When the last of a run's steps ended, in its seconds. */
static double last_step(const struct sim_run *r)
{
    struct trace_events trace;
    int64_t last = 0;
    trace_read(r->trace, &trace);
    for (size_t i = 0; i < trace.count; i++)
        if (strcmp(trace.at[i].name, "compute") == 0 && trace.at[i].end > last)
            last = trace.at[i].end;
    trace_release(&trace);
    return (double)last / 1e9;
}

/* Strategies that wait for the driver, each worker alone or all in rounds: the model contains every
 * update once; a lost or repeated one would change it. The driver dies at moments throughout the
 * run; with easgd also at every step of its end: before the last visit, after it and, recovered,
 * without a further visit. */
static void test_what_was_given_is_in_once(void **state)
{
    enum { MOMENTS = 16, AT_THE_END = 24 };
    static const struct way once[] = {
        {{"strategy.easgd={tau:4}", "workers=1"}, .free = true, .ends_alike = true},
        {{"strategy.ps={consistency:asp}", "solver.momentum=0", "workers=1"}, .free = true},
        {{"strategy.ps={consistency:asp}", "workers=1"}, .free = true},
        {{"strategy.ps={consistency:ssp}", "solver.type=Adam", "workers=1"}, .free = true},
        {{"strategy.downpour={n_push:2 n_fetch:2}", "solver.momentum=0", "workers=1"},
         .free = true},
        {{"strategy.downpour={n_push:1 n_fetch:20 server_adagrad:true}", "solver.momentum=0",
          "workers=1"},
         .free = true},
        {{"strategy.ps={consistency:bsp}", "solver.momentum=0"}, .free = true},
    };
    for (size_t w = 0; w < sizeof once / sizeof *once; w++) {
        struct sim_run whole = {.traced = true};
        play_way(*state, &once[w], "", &whole);
        double from = last_step(&whole) - 0.06, left = whole.report.wall_s - from;
        int moments = MOMENTS + (once[w].ends_alike ? AT_THE_END : 0);
        for (int i = (int)sweep_first(w, STRIDE, MOMENTS); i < moments; i += STRIDE) {
            struct sim_run r = {0};
            if (!sweep_takes(STRIDE, w, (size_t)i))
                continue;
            char faults[160];
            double at = i < MOMENTS ? (0.2 + 0.6 * i / MOMENTS) * whole.report.wall_s
                                    : from + left * (i - MOMENTS) / AT_THE_END;
            snprintf(faults, sizeof faults, "fault { at: %.6f kill: -1 for: 0.02 }", at);
            play_way(*state, &once[w], faults, &r);
            assert_int_equal(run_count(r.dir, "member", "what", "back"),
                             run_count(whole.dir, "member", "what", "join"));
            if (!run_same_bits(r.dir, whole.dir, "final.safetensors"))
                fail_msg("%s, %s: another model (%s)", once[w].set[0], faults, r.dir);
        }
    }
}

/* The first view of the recovered driver and its worker's messages are delayed; copying is slow,
 * too. So the worker sends an update, for the centre that it fetched from the previous driver, to
 * this one, which has no centre yet. The model contains the update once. */
static void test_it_is_taken_for_the_one_before(void **state)
{
    enum { MOMENTS = 16 };
    static const struct way alone = {{"strategy.easgd={tau:4}", "workers=1"}, .free = true};
    static const char late[] = "delay { from: -1 to: 0 tag: 'view' seconds: 0.06 }\n"
                               "costs { copy_gb_s: 0.00005 }\n"
                               "fault { at: 0 shuffle: 0 seconds: 0.02 }\n";
    struct sim_run whole = {0};
    play_way(*state, &alone, late, &whole);
    for (int i = 0; i < MOMENTS; i += STRIDE) {
        struct sim_run r = {0};
        char faults[256];
        double at = (0.2 + 0.2 * i / MOMENTS) * whole.report.wall_s;
        snprintf(faults, sizeof faults, "%sfault { at: %.6f kill: -1 for: 0.005 }", late, at);
        play_way(*state, &alone, faults, &r);
        if (!run_same_bits(r.dir, whole.dir, "final.safetensors"))
            fail_msg("%s: another model (%s)", faults, r.dir);
    }
}

/* The driver dies behind the last step, before the final model is written. No worker trains any
 * more, and the recovered driver has the model that the previous one would have written: it
 * contains every worker's updates, perhaps in another order, and nothing of the checkpoint. */
static void dies_at_the_end(struct tiny *t, size_t w, const struct way *way, const char *reason)
{
    enum { MOMENTS = 10 };
    struct sim_run whole = {.traced = true};
    play_way(t, way, "", &whole);
    double from = last_step(&whole), left = whole.report.wall_s - from;
    for (int i = (int)sweep_first(w, STRIDE, MOMENTS); i < MOMENTS; i += STRIDE) {
        struct sim_run r = {0};
        if (!sweep_takes(STRIDE, w, (size_t)i))
            continue;
        char faults[160];
        double at = from + left * i * i / (MOMENTS * MOMENTS); /* most soon */
        snprintf(faults, sizeof faults, "fault { at: %.6f kill: -1 for: 0.02 }", at);
        play_way(t, way, faults, &r);
        assert_string_equal(r.report.reason, reason);
        if (run_difference(r.dir, whole.dir) > SIM_SAME)
            fail_msg("%s, %s: another model (%s)", way->set[0], faults, r.dir);
    }
}

static void test_it_dies_when_all_have_ended(void **state)
{
    for (size_t w = 0; w < WAYS; w += WAY_STEP)
        if (ways[w].waits || ways[w].ends_alike)
            dies_at_the_end(*state, w, &ways[w], "epochs");
}

/* The time of the run ends it: the recovered driver learns from the last exchange that nobody
 * trains any more. */
static void test_it_dies_after_a_stop(void **state)
{
    for (size_t w = 0; w < WAYS; w += WAY_STEP) {
        struct sim_run whole = {0};
        struct way way = ways[w];
        char seconds[64];
        if (!way.waits || way.set[2])
            continue;
        play_way(*state, &way, "", &whole);
        snprintf(seconds, sizeof seconds, "stop.seconds=%.6f", 0.4 * whole.report.wall_s);
        way.set[way.set[1] ? 2 : 1] = seconds;
        dies_at_the_end(*state, w, &way, "seconds");
    }
}

/* A worker dies while there is no driver, or at about the moment when it returns: the others are
 * waited for, it is not, and they continue without it. */
static void test_a_worker_dies_meanwhile(void **state)
{
    enum { MOMENTS = 8 };
    struct tiny *t = *state;
    for (size_t w = 0; w < WAYS; w += WAY_STEP) {
        struct sim_run whole = {0};
        uint64_t most = 0;
        play_way(t, &ways[w], "", &whole);
        for (int i = (int)sweep_first(w, STRIDE, MOMENTS); i < MOMENTS; i += STRIDE) {
            struct sim_run r = {0};
            if (!sweep_takes(STRIDE, w, (size_t)i))
                continue;
            char faults[160];
            double at = 0.4 * whole.report.wall_s;
            snprintf(faults, sizeof faults,
                     "fault { at: %.6f kill: -1 for: 0.02 } fault { at: %.6f kill: %d }", at,
                     at + 0.004 * i, i % 4);
            play_way(t, &ways[w], faults, &r);
            if (run_count(r.dir, "member", "what", "dead") != 1)
                fail_msg("%s, %s: not one is dead (%s)", ways[w].set[0], faults, r.dir);
            most = r.report.missed > most ? r.report.missed : most;
        }
        print_message("    %s: at most %u records missed\n", ways[w].set[0], (unsigned)most);
    }
}

/* A worker leaves at about the moment when the driver returns, which learns of the leave before it
 * knows the worker. */
static void test_a_worker_leaves_meanwhile(void **state)
{
    enum { MOMENTS = 24 };
    for (int i = 0; i < MOMENTS; i++) {
        struct sim_run r = {.limit_s = 1000};
        char cluster[320];
        snprintf(cluster, sizeof cluster,
                 "%sdelay { from: 1 to: -1 tag: 'return' seconds: 0.05 }\n"
                 "fault { at: 0.2 kill: -1 for: 0.02 } fault { at: %.4f leave: 1 }",
                 SIM_CALM, 0.17 + 0.004 * i);
        SIM(*state, cluster, &r, i % 2 ? "strategy.async_allreduce={}" : "strategy.sync.tau=1",
            "stop.epochs", "stop.steps=100");
        assert_string_equal(r.report.reason, "steps");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_dies_at_any_moment),
        cmocka_unit_test(test_it_dies_twice),
        cmocka_unit_test(test_what_was_given_is_in_once),
        cmocka_unit_test(test_it_is_taken_for_the_one_before),
        cmocka_unit_test(test_it_dies_when_all_have_ended),
        cmocka_unit_test(test_it_dies_after_a_stop),
        cmocka_unit_test(test_a_worker_dies_meanwhile),
        cmocka_unit_test(test_a_worker_leaves_meanwhile),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
