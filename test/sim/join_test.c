/* Workers that join a run under way, in simulation: with every strategy that admits them, at every
 * moment, and while others die. */
#include "strategy_sim.h"
#include "sweep_stride.h"

/* STRIDE: not a multiple of the cycles of two to four that the cases have. WAY_STEP: the ways at
 * its multiples have each strategy. */
enum { STRIDE = SWEEP_STRIDE(7, 7), WAY_STEP = SWEEP_STRIDE(2, 2) };

/* Every strategy that can be joined, and how far apart its exchanges are, in steps. */
struct way {
    const char *set[5];
    uint64_t steps; /* that a worker which dies takes with it, at most */
    bool free;      /* the strategy is asynchronous: nothing is ever missed */
};

static const struct way ways[] = {
    {{"strategy.sync={tau:4}"}, 4, false},
    {{"strategy.sync={tau:4 on_replace:average}"}, 4, false},
    {{"strategy.sync={tau_auto:true}"}, 10, false},
    {{"strategy.sync={seconds:0.02}"}, 0, false},
    {{"strategy.allreduce={}"}, 1, false},
    {{"strategy.allreduce={bucket_kb:1}", "collective.algorithm=ring"}, 1, false},
    {{"strategy.easgd={mode:sync tau:4}"}, 4, false},
    {{"strategy.diloco={tau:6 fragments:3}"}, 6, false},
    {{"strategy.diloco={tau:4}"}, 4, false},
    {{"strategy.diloco={tau:12 fragments:2 overlap:2 on_replace:average}"}, 24, false},
    {{"strategy.async_allreduce={}"}, 2, false},
    {{"strategy.async_allreduce={method:1 sync_every_epochs:0.3}", "solver.base_lr=0.005"},
     2,
     false},
    {{"strategy.async_allreduce={warmup_epochs:0.5 sync_every_epochs:0}"}, 2, false},
    {{"strategy.mpca={}"}, 0, true},
    {{"strategy.mpca={coordination:symmetric shards:5}"}, 0, true},
    {{"strategy.mpca={phases:1 shards:1 penalty:gradient adopt:arrival}"}, 0, true},
    {{"strategy.pace={}"}, 0, true},
    {{"strategy.pace={coordination:symmetric shards:5}"}, 0, true},
    {{"strategy.gossip={p:0.3}"}, 0, true},
    {{"strategy.easgd={tau:4}"}, 0, true},
    {{"strategy.ps={}"}, 0, true},
    {{"strategy.ps={consistency:bsp servers:2}"}, 0, true},
    {{"strategy.ps={consistency:ssp colocated:true}"}, 0, true},
    {{"strategy.downpour={}", "solver.momentum=0"}, 0, true},
    {{"strategy.downpour={servers:2 n_push:2 n_fetch:4}", "solver.momentum=0"}, 0, true},
    /* Shares of up to 45 records, which are three steps of the others. */
    {{"strategy.allreduce={bucket_kb:1}", "batch", "batch_growth={first:21 last:90}"}, 3, false},
    {{"strategy.sync={tau:4}", "batch", "batch_growth={first:21 last:90}"}, 12, false},
    {{"strategy.async_allreduce={}", "batch", "batch_growth={first:21 last:90}"}, 6, false},
    {{"strategy.diloco={tau:6 fragments:3}", "batch", "batch_growth={first:21 last:90}"},
     18,
     false},
    {{"strategy.allreduce={}", "batch", "global_batch=50"}, 2, false},
};

enum { WAYS = sizeof ways / sizeof *ways };

/* Records that a worker has in leases, at most: its share of an epoch, of which it has used half
 * when it is given as many again; two at least share one. A worker that dies leaves no more to be
 * repeated. */
#define OPEN_MAX (SIM_RECORDS / 2 * 3 / 2)

/* The most records of a worker's first step, of which each takes 0.25 ms. */
static int records_of(const struct way *way)
{
    const char *batch = way->set[1] && strcmp(way->set[1], "batch") == 0 ? way->set[2] : "";
    return strstr(batch, "first:21") ? 11 : strstr(batch, "=50") ? 25 : SIM_BATCH;
}

/* The tiny job with two to four workers, with this strategy; nodes 2 and 3 join when `faults` start
 * them. */
static void play_way(struct tiny *t, const struct way *way, const char *faults, struct sim_run *r)
{
    const char *set[10] = {"workers_min=2", "workers_max=4", "stop.epochs=4",
                           "evaluate.every_exchanges=1000"};
    char cluster[512];
    snprintf(cluster, sizeof cluster, "node { count: 6 } step_seconds: %g link { mbit: 100 }\n%s",
             0.00025 * records_of(way), faults);
    for (size_t i = 0; way->set[i]; i++)
        set[4 + i] = way->set[i];
    r->limit_s = 60;
    sim_try(t, cluster, r, set);
    if (r->rc != PL_OK)
        fail_msg("%s, %s: %s", way->set[0], faults, r->error);
    sim_adds_up(r);
}

static int count_joins(const struct sim_run *r)
{
    return run_count(r->dir, "member", "what", "join");
}

/* The end of the last exchange; in asynchronous strategies, of the last step. */
static double trained_samples(const struct way *way, const struct sim_run *r)
{
    if (way->free)
        return r->report.wall_s;
    return run_number(r->dir, "exchange", run_count(r->dir, "exchange", NULL, NULL) - 1, "t");
}

/* Node 3 joins at `moments` moments throughout the run, and soon shares its samples: none is missed
 * or used twice, no member is suspected, and the run ends earlier than without it. */
static void test_join_at_any_moment(void **state)
{
    enum { MOMENTS = 8 };
    struct tiny *t = *state;
    for (size_t w = 0; w < WAYS; w++) {
        struct sim_run alone = {0};
        play_way(t, &ways[w], "fault { at: 1000 join: 2 } fault { at: 1000 join: 3 }", &alone);
        assert_int_equal(count_joins(&alone), 2);
        double sooner = 0, whole = trained_samples(&ways[w], &alone);
        for (int i = 0; i < MOMENTS; i += STRIDE) {
            struct sim_run r = {0};
            char faults[128];
            if (i > 0 && !sweep_takes(STRIDE, w, (size_t)i))
                continue;
            snprintf(faults, sizeof faults, "fault { at: 1000 join: 2 } fault { at: %.9f join: 3 }",
                     whole * i / MOMENTS);
            play_way(t, &ways[w], faults, &r);
            assert_int_equal(run_count(r.dir, "member", NULL, NULL), count_joins(&r));
            assert_int_equal(run_count(r.dir, "rejected", NULL, NULL), 0);
            if (i < MOMENTS / 2) {
                assert_int_equal(count_joins(&r), 3);
                assert_true(trained_samples(&ways[w], &r) < whole);
            }
            assert_int_equal(r.report.missed, 0);
            assert_int_equal(r.report.repeated, 0);
            sooner = fmax(sooner, 1 - trained_samples(&ways[w], &r) / whole);
        }
        print_message("    %s: up to %.0f %% sooner\n", ways[w].set[0], 100 * sooner);
        /* A batch of all needs no fewer exchanges for more workers. */
        assert_true(sooner > (records_of(&ways[w]) != SIM_BATCH ? 0.15 : 0.2));
    }
}

/* If the next exchange delivers the model, a joiner that arrives early in a round is admitted at
 * once, and takes part in the exchange at its end. */
static void test_join_within_a_round(void **state)
{
    static const struct way way = {{"strategy.sync={tau:24}", "stop.epochs=12"}, 24, false};
    struct sim_run alone = {0}, r = {0};
    char faults[128];
    play_way(*state, &way, "fault { at: 1000 join: 2 } fault { at: 1000 join: 3 }", &alone);
    double begins = run_number(alone.dir, "exchange", 1, "t");
    double ends = run_number(alone.dir, "exchange", 2, "t");
    snprintf(faults, sizeof faults, "fault { at: 1000 join: 2 } fault { at: %.9f join: 3 }",
             begins + 0.1 * (ends - begins));
    play_way(*state, &way, faults, &r);
    assert_int_equal(count_joins(&r), 3);
    assert_true(run_number(r.dir, "member", 2, "t") < begins + 0.3 * (ends - begins));
    assert_true(fabs(run_number(r.dir, "exchange", 2, "t") - ends) < 0.05 * (ends - begins));
    assert_int_equal(r.report.missed, 0);
    assert_true(trained_samples(&way, &r) < trained_samples(&way, &alone));
}

/* A model that is published at each commit point delays no join. */
static void test_join_at_an_evaluation(void **state)
{
    static const struct way evaluated[] = {
        {{"strategy.allreduce={}", "evaluate.every_exchanges=1"}, 0, false},
        {{"strategy.diloco={tau:4}", "evaluate.every_exchanges=1"}, 0, false},
    };
    for (size_t w = 0; w < sizeof evaluated / sizeof *evaluated; w++) {
        struct sim_run r = {0};
        play_way(*state, &evaluated[w], "fault { at: 0.1 join: 2 } fault { at: 0.1 join: 3 }", &r);
        assert_int_equal(count_joins(&r), 4);
        assert_true(run_count(r.dir, "eval", NULL, NULL) > 4);
    }
}

/* Replicas compare their models after a hundred exchanges: a joiner's is theirs. */
static void test_a_joiner_agrees_with_all(void **state)
{
    static const char *const options[] = {"strategy.allreduce={}", "strategy.diloco={tau:1}",
                                          "strategy.async_allreduce={method:1}"};
    for (size_t i = 0; i < 3; i++) {
        const struct way way = {{options[i], "stop={steps:205}", "solver.base_lr=0.005"}, 1, false};
        struct sim_run r = {0};
        play_way(*state, &way, "fault { at: 0.09 join: 2 } fault { at: 0.31 join: 3 }", &r);
        assert_int_equal(count_joins(&r), 4);
        assert_string_equal(r.report.reason, "steps");
    }
}

/* Node 3 joins at 0.1 s, and a node dies about then: the donor, which is the oldest member, the
 * joiner itself, or the third. The remaining ones end the run well; a joiner is rejected only if
 * its donor is lost. */
static void test_a_death_during_a_join(void **state)
{
    enum { MOMENTS = 6 };
    static const int victims[] = {0, 1, 3};
    struct tiny *t = *state;
    int fenced = 0;
    for (size_t w = 0; w < WAYS; w++) {
        uint64_t most = 0, repeated = 0;
        for (int i = (int)sweep_first(w, STRIDE, 3 * MOMENTS); i < 3 * MOMENTS; i += STRIDE) {
            struct sim_run r = {0};
            if (!sweep_takes(STRIDE, w, (size_t)i))
                continue;
            char faults[160];
            snprintf(faults, sizeof faults,
                     "fault { at: 0.005 join: 2 } fault { at: 0.1 join: 3 } "
                     "fault { at: %.6f kill: %d }",
                     0.1 + 0.004 * (i / 3), victims[i % 3]);
            play_way(t, &ways[w], faults, &r);
            int out = run_count(r.dir, "member", "what", "fenced");
            int dead = run_count(r.dir, "member", "what", "dead");
            assert_true(dead == 1 || (dead == 0 && victims[i % 3] == 3));
            assert_true(out == 0 || victims[i % 3] == 0);
            assert_int_equal(run_count(r.dir, "member", NULL, NULL), count_joins(&r) + dead + out);
            fenced += out;
            most = r.report.missed > most ? r.report.missed : most;
            repeated = r.report.repeated > repeated ? r.report.repeated : repeated;
        }
        print_message("    %s: at most %u records missed, %u repeated\n", ways[w].set[0],
                      (unsigned)most, (unsigned)repeated);
        assert_true(most <= ways[w].steps * SIM_BATCH);
        assert_true(repeated <= (ways[w].free ? OPEN_MAX : 0));
    }
    print_message("    %d joiners lost their donor too early\n", fenced);
}

/* A worker is asked to leave at any moment: it does, within two exchanges, nothing is missed, and
 * no member is suspected. The same with two at once; the last two of four end the run. */
static void test_who_leaves_at_any_moment_takes_nothing_along(void **state)
{
    enum { MOMENTS = 4 };
    struct tiny *t = *state;
    for (size_t w = 0; w < WAYS; w += WAY_STEP) {
        struct sim_run whole = {0};
        play_way(t, &ways[w], "", &whole);
        for (int i = (int)sweep_first(w, STRIDE, 2 * MOMENTS); i < 2 * MOMENTS; i += STRIDE) {
            struct sim_run r = {0};
            char faults[160];
            double at = 0.8 * trained_samples(&ways[w], &whole) * (i + 1) / (2 * MOMENTS + 1);
            int n = snprintf(faults, sizeof faults, "fault { at: %.6f leave: %d } ", at, i % 4);
            if (i % 2)
                snprintf(faults + n, sizeof faults - (size_t)n, "fault { at: %.6f leave: %d }", at,
                         (i + 1) % 4);
            play_way(t, &ways[w], faults, &r);
            int left = run_count(r.dir, "member", "what", "leave");
            if (left != 1 + i % 2 && i < MOMENTS)
                fail_msg("%s, %s: %d left", ways[w].set[0], faults, left);
            if (run_count(r.dir, "member", NULL, NULL) != count_joins(&r) + left)
                fail_msg("%s, %s: somebody is lost", ways[w].set[0], faults);
            assert_int_equal(run_count(r.dir, "rejected", NULL, NULL), 0);
            if (r.report.missed > 0 || r.report.repeated > 0)
                fail_msg("%s, %s: %u missed, %u repeated", ways[w].set[0], faults,
                         (unsigned)r.report.missed, (unsigned)r.report.repeated);
        }
    }
}

/* All are asked to leave at about the same moment, as when SIGTERM goes to a whole group: the last
 * of them stays until it has sent the model, no worker is lost, and the run ends as interrupted. */
static void test_all_leave_at_once(void **state)
{
    enum { MOMENTS = 4 };
    struct tiny *t = *state;
    for (size_t w = 0; w < WAYS; w += WAY_STEP) {
        struct sim_run whole = {0};
        play_way(t, &ways[w], "", &whole);
        for (int i = (int)sweep_first(w, STRIDE, MOMENTS); i < MOMENTS; i += STRIDE) {
            struct sim_run r = {0};
            char faults[4 * 64] = "";
            double at = 0.8 * trained_samples(&ways[w], &whole) * (i + 1) / (MOMENTS + 1);
            for (int node = 0; node < 4; node++)
                snprintf(faults + strlen(faults), sizeof faults - strlen(faults),
                         "fault { at: %.6f leave: %d } ", at + i * node * 0.003, node);
            play_way(t, &ways[w], faults, &r);
            if (strcmp(r.report.reason, "interrupted") != 0 || !r.report.model[0])
                fail_msg("%s, %s: %s, model \"%s\"", ways[w].set[0], faults, r.report.reason,
                         r.report.model);
            int left = run_count(r.dir, "member", "what", "leave");
            if (run_count(r.dir, "member", NULL, NULL) != count_joins(&r) + left || left > 3)
                fail_msg("%s, %s: somebody is lost", ways[w].set[0], faults);
            assert_true(r.report.epochs < whole.report.epochs);
            if (r.report.missed > 0 || r.report.repeated > 0)
                fail_msg("%s, %s: %u missed, %u repeated", ways[w].set[0], faults,
                         (unsigned)r.report.missed, (unsigned)r.report.repeated);
        }
    }
}

/* The driver dies while a joiner waits, receives its donor's state, or has just begun, in
 * asynchronous strategies: at most the joiner is lost, and the run ends well. */
static void test_joiner_meets_a_driver_that_returns(void **state)
{
    enum { MOMENTS = 12 };
    struct tiny *t = *state;
    for (size_t w = 0; w < WAYS; w += WAY_STEP)
        for (int i = (int)sweep_first(w, STRIDE, MOMENTS); ways[w].free && i < MOMENTS;
             i += STRIDE) {
            struct sim_run r = {0};
            char faults[160];
            snprintf(faults, sizeof faults,
                     "fault { at: 0.1 join: 2 } fault { at: %.4f kill: -1 for: 0.02 } "
                     "fault { at: 1000 join: 3 }",
                     0.075 + 0.004 * i);
            play_way(t, &ways[w], faults, &r);
            if (run_count(r.dir, "member", "what", "dead") > 1 || r.report.wall_s > 5)
                fail_msg("%s, %s: ends after %g s", ways[w].set[0], faults, r.report.wall_s);
        }
}

/* Servers continue when the first members have been lost one after another. */
static void test_who_came_late_serves_alone(void **state)
{
    static const char *const options[] = {
        "strategy.ps={servers:2}", "strategy.ps={consistency:bsp servers:2}",
        "strategy.ps={consistency:ssp colocated:true}", "strategy.downpour={servers:2}"};
    static const char faults[] =
        "fault { at: 0.01 join: 2 } fault { at: 0.02 join: 3 } fault { at: 0.1 kill: 0 } "
        "fault { at: 0.15 join: 4 } fault { at: 0.2 kill: 2 } fault { at: 0.25 join: 5 } "
        "fault { at: 0.3 kill: 1 }";
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const struct way way = {{options[i], "solver.momentum=0", "stop.epochs=9"}, 0, true};
        struct sim_run r = {0};
        play_way(*state, &way, faults, &r);
        assert_int_equal(count_joins(&r), 6);
        assert_int_equal(run_count(r.dir, "member", "what", "dead"), 3);
        assert_int_equal(run_count(r.dir, "member", NULL, NULL), 9);
        assert_true(r.report.wall_s > 0.35);
        print_message("    %s: error %.3f\n", options[i], r.report.test_error);
        assert_true(r.report.test_error < 0.4); /* a third is right by chance */
    }
}

/* Every few seconds the oldest of three workers dies and another replaces it, for many generations:
 * the state passed from member to member does not degrade, the run ends well, and has learnt. */
static void test_generations_come_and_go(void **state)
{
    enum { DEATHS = 100 / STRIDE };
    struct tiny *t = *state;
    struct buf cluster = {0};
    char stop[32];
    snprintf(stop, sizeof stop, "stop={seconds: %g}", 4.5 * DEATHS + 10);
    buf_printf(&cluster, "node { count: %d } step_seconds: 0.3 link { mbit: 100 }\n", DEATHS + 3);
    for (int i = 0; i < DEATHS; i++)
        buf_printf(&cluster, "fault { at: %g kill: %d }\n", 4.5 * (i + 1), i);
    buf_put_u8(&cluster, 0);
    for (size_t w = 0; w < WAYS; w += WAY_STEP) {
        struct sim_run r = {.limit_s = 600};
        if (!ways[w].free && ways[w].steps != 4)
            continue;
        const char *set[9] = {"workers_min=3", "workers_max=3", stop,
                              "evaluate.every_exchanges=100000", "solver.base_lr=0.01"};
        for (size_t i = 0; ways[w].set[i]; i++)
            set[5 + i] = ways[w].set[i];
        sim_try(t, (const char *)cluster.data, &r, set);
        if (r.rc != PL_OK)
            fail_msg("%s: %s", ways[w].set[0], r.error);
        assert_int_equal(run_count(r.dir, "member", "what", "dead"), DEATHS);
        print_message("    %s: error %.3f\n", ways[w].set[0], r.report.test_error);
        assert_true(r.report.test_error < 0.1);
    }
    buf_release(&cluster);
}

/* Node 3 joins asynchronous workers while the run ends: it is informed of the end like the other
 * workers. */
static void test_a_joiner_at_the_end_is_reported(void **state)
{
    enum { MOMENTS = 16 };
    struct tiny *t = *state;
    for (size_t w = 0; w < WAYS; w += WAY_STEP) {
        struct sim_run alone = {0};
        if (!ways[w].free)
            continue;
        play_way(t, &ways[w], "fault { at: 1000 join: 2 } fault { at: 1000 join: 3 }", &alone);
        for (int i = (int)sweep_first(w, STRIDE, MOMENTS); i < MOMENTS; i += STRIDE) {
            struct sim_run r = {0};
            char faults[128];
            snprintf(faults, sizeof faults, "fault { at: 1000 join: 2 } fault { at: %.9f join: 3 }",
                     alone.report.wall_s - 0.002 * (MOMENTS - i));
            play_way(t, &ways[w], faults, &r);
            assert_true(r.report.wall_s < alone.report.wall_s + 1);
        }
    }
}

/* A round in which an exchange is always under way has no point for a join: the joiner is refused
 * by name, and the run continues. The driver logs this once a minute, not for each joiner. */
static void test_some_admit_no_joiner(void **state)
{
    const struct way way = {{"strategy.diloco={tau:4 fragments:2 overlap:2}"}, 8, false};
    struct sim_run r = {0};
    play_way(*state, &way, "fault { at: 0.01 join: 2 } fault { at: 0.1 join: 3 }", &r);
    assert_int_equal(count_joins(&r), 2);
    assert_int_equal(run_count(r.dir, "member", "what", "refused"), 1);
    assert_int_equal(run_count(r.dir, "member", NULL, NULL), 3);
}

/* Four workers, then two, then four again, on request of the run: in good order, with nothing lost
 * and no member suspected, in every strategy. Nodes 4 and 5 wait. */
static void test_as_many_as_are_wanted(void **state)
{
    struct tiny *t = *state;
    for (size_t w = 0; w < WAYS; w += WAY_STEP) {
        struct sim_run r = {0}, four = {0};
        struct way long_way = ways[w];
        size_t n = 0;
        while (long_way.set[n])
            n++;
        assert_true(n < 4);
        long_way.set[n] = "stop.epochs=20";
        play_way(t, &long_way, "fault { at: 1000 want: 1 }", &four);
        assert_int_equal(run_count(four.dir, "member", "what", "leave"), 0);
        assert_int_equal(count_joins(&four), 4);
        char faults[160];
        snprintf(faults, sizeof faults, "fault { at: %.6f want: 2 } fault { at: %.6f want: 9 }",
                 four.report.wall_s * 0.3, four.report.wall_s * 0.6);
        play_way(t, &long_way, faults, &r);
        print_message("    %s: %.3f s with four, %.3f s with two for a while\n", ways[w].set[0],
                      four.report.wall_s, r.report.wall_s);
        assert_int_equal(run_count(r.dir, "member", "what", "leave"), 2);
        assert_int_equal(count_joins(&r), 6);
        assert_int_equal(run_count(r.dir, "member", NULL, NULL), 8);
        assert_int_equal(r.report.missed, 0);
        if (!ways[w].free)
            assert_true(r.report.wall_s >
                        (records_of(&ways[w]) != SIM_BATCH ? 1.05 : 1.1) * four.report.wall_s);
    }
}

/* Less than two steps for each in an epoch: on a fast network no worker repeats a lease, so that
 * epochs are exact. */
static void test_little_data_is_gone_over_once(void **state)
{
    struct tiny *t = *state;
    for (size_t w = 0; w < WAYS; w += WAY_STEP) {
        struct sim_run r = {0};
        struct way little = ways[w];
        size_t n = 0;
        if (!little.free || strstr(little.set[0], "bsp"))
            continue; /* these take no leases */
        while (little.set[n])
            n++;
        assert_true(n < 3);
        little.set[n] = "batch=128";
        play_way(t, &little, "", &r);
        assert_int_equal(r.report.repeated, 0);
        assert_int_equal(r.report.missed, 0);
        assert_true(r.report.used >= 4 * SIM_RECORDS);
    }
}

/* A joiner of `mpca` that lacks a part of x̃* when the driver dies does not return as a member. It
 * could be made a donor or a leaf. */
static void test_driver_dies_before_a_joiner_has_its_model(void **state)
{
    static const struct way way = {{"strategy.mpca={}"}, .free = true};
    struct sim_run r = {0};
    play_way(*state, &way,
             "fault { at: 1000 join: 2 } fault { at: 0.1 join: 3 } "
             "fault { at: 0.3 kill: -1 for: 0.02 } "
             "delay { to: 3 tag: 'lane_go' nth: 2 seconds: 0.5 }",
             &r);
    assert_int_equal(run_count(r.dir, "member", "what", "join"), 3);
    assert_int_equal(run_count(r.dir, "member", "what", "back"), 2);
}

/* A step that takes for ever is none: its worker sends heartbeats, and counts as hung after the
 * job's time. */
static void test_who_hangs_is_replaced_after_the_jobs_time(void **state)
{
    static const double limits[] = {2, 5};
    for (int i = 0; i < 2; i++) {
        char stall[32];
        struct sim_run r = {.limit_s = 30};
        snprintf(stall, sizeof stall, "stall_seconds=%g", limits[i]);
        SIM(*state,
            "node { count: 3 } step_seconds: 0.004 link { mbit: 100 }\n"
            "fault { at: 0.1 slow: 1 factor: 1e6 }\n",
            &r, "workers_min=2", "workers_max=2", "strategy.sync={tau:4}", "stop.epochs=4", stall);
        cJSON *event = run_event(r.dir, "member", "what", "hung", 0);
        assert_non_null(event);
        double after = cJSON_GetObjectItem(event, "t")->valuedouble - 0.1;
        cJSON_Delete(event);
        assert_true(after > limits[i] - 0.1 && after < limits[i] + 1.5);
        sim_adds_up(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join_at_any_moment),
        cmocka_unit_test(test_join_within_a_round),
        cmocka_unit_test(test_join_at_an_evaluation),
        cmocka_unit_test(test_a_joiner_agrees_with_all),
        cmocka_unit_test(test_a_death_during_a_join),
        cmocka_unit_test(test_who_leaves_at_any_moment_takes_nothing_along),
        cmocka_unit_test(test_all_leave_at_once),
        cmocka_unit_test(test_joiner_meets_a_driver_that_returns),
        cmocka_unit_test(test_who_came_late_serves_alone),
        cmocka_unit_test(test_generations_come_and_go),
        cmocka_unit_test(test_a_joiner_at_the_end_is_reported),
        cmocka_unit_test(test_some_admit_no_joiner),
        cmocka_unit_test(test_as_many_as_are_wanted),
        cmocka_unit_test(test_little_data_is_gone_over_once),
        cmocka_unit_test(test_driver_dies_before_a_joiner_has_its_model),
        cmocka_unit_test(test_who_hangs_is_replaced_after_the_jobs_time),
    };
    return cmocka_run_group_tests(tests, tiny_setup_elastic, tiny_teardown);
}
