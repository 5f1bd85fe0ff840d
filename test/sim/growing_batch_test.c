/* A batch of all workers that grows (Elastic Eq. 6.7), or stays while their number changes. In any
 * strategy that exchanges in rounds the steps are those of the formula, for any number of
 * workers. */
#include "strategy_sim.h"

enum { EPOCHS = 4, FIRST = 21, LAST = 90 };

#define GROWTH "batch_growth={first:21 last:90}"

/* Eq. 6.7 with the power 2, in whole records. */
static uint64_t batch_at(uint64_t offset)
{
    uint64_t all = EPOCHS * SIM_RECORDS;
    double progress = (double)offset / (double)all;
    return offset < all ? (uint64_t)(FIRST + (LAST - FIRST) * progress * progress + 0.5) : LAST;
}

struct expected_run {
    uint64_t rounds, steps, samples;
};

/* The whole run in rounds of `tau` steps, each with the batch of its round's begin. */
static struct expected_run expect_run(uint64_t tau)
{
    struct expected_run c = {0};
    while (c.samples < EPOCHS * SIM_RECORDS) {
        uint64_t batch = batch_at(c.samples);
        for (uint64_t k = 0; k < tau && c.samples < EPOCHS * SIM_RECORDS; k++, c.steps++)
            c.samples += batch;
        c.rounds++;
    }
    return c;
}

static struct sim_run play_run(struct tiny *t, const char *cluster, const char *strategy,
                               const char *batch, const char *workers)
{
    struct sim_run r = {.limit_s = 300};
    SIM(t, cluster, &r, strategy, "batch", batch, workers, "stop.epochs=4",
        "checkpoint.every_seconds=1000");
    sim_adds_up(&r);
    assert_int_equal(r.report.missed, 0);
    assert_int_equal(r.report.repeated, 0);
    return r;
}

/* The numbers of steps and of samples do not depend on the number of workers. */
static void test_growing_batch_takes_the_steps_of_the_formula(void **state)
{
    static const struct {
        const char *strategy;
        uint64_t tau, more; /* more exchanges than rounds */
    } cases[] = {
        {"strategy.allreduce={}", 1, 0},
        {"strategy.sync={tau:4}", 4, 0},
        {"strategy.async_allreduce={sync_every_epochs:0}", 1, 1}, /* the initial model */
        {"strategy.diloco={tau:4}", 4, 0},
        {"strategy.easgd={mode:sync tau:4}", 4, 0},
    };
    static const char *const workers[] = {"workers=2", "workers=3", "workers=4"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t k = 0; k < 3; k++) {
            struct expected_run want = expect_run(cases[i].tau);
            struct sim_run r = play_run(*state, SIM_CALM, cases[i].strategy, GROWTH, workers[k]);
            if (run_count(r.dir, "exchange", NULL, NULL) != (int)(want.rounds + cases[i].more))
                fail_msg("%s, %s: %d exchanges, by hand %d", cases[i].strategy, workers[k],
                         run_count(r.dir, "exchange", NULL, NULL),
                         (int)(want.rounds + cases[i].more));
            assert_int_equal(r.report.used, want.samples);
            assert_int_equal(r.report.batch, LAST);
        }
    struct sim_run alone = play_run(*state, SIM_CALM, "strategy.single={}", GROWTH, "workers=1");
    assert_int_equal(alone.report.used, expect_run(1).samples);
}

/* Gradients are weighted by samples: three workers with unequal shares of each batch do what one
 * does with all of it, and so do two, or a constant batch that three cannot share equally. */
static void test_growing_batch_of_several_is_that_of_one(void **state)
{
    static const char *const batches[] = {GROWTH, "global_batch=50"};
    for (size_t i = 0; i < 2; i++) {
        struct sim_run one =
            play_run(*state, SIM_CALM, "strategy.single={}", batches[i], "workers=1");
        struct sim_run two =
            play_run(*state, SIM_CALM, "strategy.allreduce={}", batches[i], "workers=2");
        struct sim_run three =
            play_run(*state, SIM_CALM, "strategy.allreduce={bucket_kb:1}", batches[i], "workers=3");
        double apart = run_difference(three.dir, one.dir);
        print_message("    %s: %.1e\n", batches[i], apart);
        assert_true(apart <= SIM_SAME && run_difference(two.dir, one.dir) <= SIM_SAME);
    }
    struct sim_run grown = play_run(*state, SIM_CALM, "strategy.allreduce={}", GROWTH, "workers=3");
    struct sim_run flat =
        play_run(*state, SIM_CALM, "strategy.allreduce={}", "global_batch=50", "workers=3");
    assert_true(run_difference(grown.dir, flat.dir) > 1000 * SIM_SAME);
}

/* Workers join one after the other: the batch is that of the progress, and not of their number.
 * Rates are scaled by the batch, also those of a joiner that has no share yet. */
static void test_growing_batch_while_the_number_of_workers_changes(void **state)
{
    static const char cluster[] =
        "node { count: 4 } step_seconds: 0.01 link { mbit: 100 }\n"
        "fault { at: 0.05 join: 1 } fault { at: 0.1 join: 2 } fault { at: 0.15 join: 3 } "
        "fault { at: 0.3 leave: 1 }";
    struct sim_run r = {.limit_s = 300}, one = {0}, same = {0};
    SIM(*state, cluster, &r, "strategy.allreduce={}", "batch", GROWTH, "workers", "workers_min=1",
        "workers_max=4", "stop.epochs=4", "checkpoint.every_seconds=1000", "solver.lr_policy=fixed",
        "solver.lr_batch=40");
    sim_adds_up(&r);
    assert_int_equal(run_count(r.dir, "member", "what", "join"), 4);
    assert_int_equal(run_count(r.dir, "member", "what", "leave"), 1);
    assert_int_equal(r.report.used, expect_run(1).samples);
    assert_int_equal(r.report.missed, 0);
    int losses = run_count(r.dir, "loss", NULL, NULL);
    for (int i = 0; i < losses; i++) {
        double rate = 0.05 * run_number(r.dir, "loss", i, "batch") / 40;
        assert_true(fabs(run_number(r.dir, "loss", i, "rate") - rate) < 1e-7);
    }
    SIM(*state, SIM_CALM, &one, "strategy.single={}", "batch", GROWTH, "workers=1", "stop.epochs=4",
        "solver.lr_policy=fixed", "solver.lr_batch=40");
    SIM(*state, SIM_CALM, &same, "strategy.single={}", "batch", GROWTH, "workers=1",
        "stop.epochs=4", "solver.lr_policy=fixed");
    double apart = run_difference(r.dir, one.dir);
    print_message("    one to four workers against one: %.1e\n", apart);
    assert_true(losses > 0 && apart <= SIM_SAME);
    assert_true(run_difference(same.dir, one.dir) > 100 * SIM_SAME);
}

/* Three of four workers die. The last one has the whole batch, four times what its net is planned
 * for, and computes it in parts; a step still takes the batch of all. */
static void test_global_batch_stays_when_workers_die(void **state)
{
    static const char cluster[] =
        SIM_CALM "fault { at: 0.08 kill: 1 } fault { at: 0.1 kill: 3 } fault { at: 0.12 kill: 0 }";
    static const char *const strategies[] = {"strategy.allreduce={}", "strategy.sync={tau:4}",
                                             "strategy.diloco={tau:4}"};
    for (size_t i = 0; i < 3; i++) {
        struct sim_run r = {.limit_s = 300};
        SIM(*state, cluster, &r, strategies[i], "batch", "global_batch=50", "stop.epochs=4");
        sim_adds_up(&r);
        assert_int_equal(r.report.used + r.report.missed, (EPOCHS * SIM_RECORDS + 49) / 50 * 50);
        assert_true(r.report.missed <= 4 * 3 * 25);
        assert_int_equal(r.report.workers, 1);
    }
}

/* The run breaks off, and continues from its checkpoint with another number of workers, at the
 * batch of its progress. Its model is that of the run without the break. */
static void test_growing_batch_continues_from_a_checkpoint(void **state)
{
    static const char *const set[] = {
        "strategy.allreduce={}",         "batch", GROWTH, "workers=3", "stop.epochs=4",
        "checkpoint.every_seconds=0.02", NULL};
    const char *fewer[sizeof set / sizeof *set];
    struct sim_run whole = play_run(*state, SIM_CALM, "strategy.allreduce={}", GROWTH, "workers=3");
    memcpy(fewer, set, sizeof set);
    fewer[3] = "workers=2";
    struct sim_run r = {.limit_s = whole.report.wall_s / 2};
    sim_try(*state, SIM_CALM, &r, set);
    assert_int_equal(r.rc, PL_ERR_TIMEOUT);
    r.limit_s = 300;
    sim_do(*state, SIM_CALM, &r, fewer);
    double first = run_number(r.dir, "start", 0, "global_batch"),
           then = run_number(r.dir, "start", 1, "global_batch");
    print_message("    begun with a batch of %.0f, continued with %.0f\n", first, then);
    assert_true(first == FIRST && then > FIRST + 4 && then < LAST);
    assert_int_equal(r.report.used, expect_run(1).samples);
    assert_true(run_difference(r.dir, whole.dir) <= SIM_SAME);
}

/* The events have the batch: `start` and `loss` that of the step which follows, `end` the last. */
static void test_growing_batch_is_in_the_events(void **state)
{
    struct sim_run r = play_run(*state, "node { count: 4 } step_seconds: 0.1 link { mbit: 100 }\n",
                                "strategy.allreduce={}", GROWTH, "workers=3");
    cJSON *start = run_event(r.dir, "start", NULL, NULL, 0);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(start, "batch_growth")),
                        "21 to 90 over 4 epochs, power 2");
    cJSON_Delete(start);
    assert_true(run_number(r.dir, "start", 0, "global_batch") == FIRST);
    assert_true(run_number(r.dir, "start", 0, "batch") == FIRST / 3);
    int losses = run_count(r.dir, "loss", NULL, NULL);
    assert_true(losses > 5);
    for (int i = 0; i < losses; i++) {
        double offset = run_number(r.dir, "loss", i, "epoch") * SIM_RECORDS;
        assert_true(run_number(r.dir, "loss", i, "batch") ==
                    (double)batch_at((uint64_t)(offset + 0.5)));
    }
    assert_true(run_number(r.dir, "end", 0, "batch") == LAST);
    /* An evaluation an epoch, however many exchanges that are. */
    assert_int_equal(run_count(r.dir, "eval", "set", "validation"), EPOCHS);
}

/* ---- workers at their own pace ---- */

struct own_step {
    int64_t end;
    double count;
};

static int compare_steps(const void *left, const void *right)
{
    const struct own_step *a = left, *b = right;
    return (a->end > b->end) - (a->end < b->end);
}

/* All workers' steps, in the order of time; how many. */
static size_t read_steps(const struct trace_events *trace, struct own_step *out, size_t most)
{
    size_t n = 0;
    for (size_t i = 0; i < trace->count; i++) {
        const struct trace_event *s = &trace->at[i];
        if (s->pid < TRACE_WORKER || strcmp(s->name, "compute") != 0)
            continue;
        assert_true(n < most);
        out[n++] = (struct own_step){s->end, (double)trace_int(s->args, "records")};
    }
    qsort(out, n, sizeof *out, compare_steps);
    return n;
}

static const char *const own_pace[] = {
    "strategy.mpca={}",
    "strategy.pace={}",
    "strategy.easgd={tau:2}",
    "strategy.gossip={}",
    "strategy.downpour={n_push:2 n_fetch:2}",
    "strategy.ps={consistency:asp}",
    "strategy.ps={consistency:ssp staleness:2}",
    "strategy.ps={consistency:dssp}",
    "strategy.ps={consistency:asp servers:2}",
};

/* Under leases a step of each of three workers is a third of the batch at its place in the stream,
 * although one is slower; and the book of samples is even. */
static void test_growing_batch_under_leases(void **state)
{
    static const char cluster[] = "node { count: 2 } node { speed: 0.5 } step_seconds: 0.004 "
                                  "link { mbit: 1000 }\n";
    enum { STEPS = 4096 };
    struct own_step *step = calloc(STEPS, sizeof *step);
    for (size_t i = 0; i < sizeof own_pace / sizeof *own_pace; i++) {
        struct sim_run r = {.limit_s = 300, .traced = true};
        struct trace_events trace;
        SIM(*state, cluster, &r, own_pace[i], "batch", GROWTH, "workers=3", "stop.epochs=4",
            "checkpoint.every_seconds=1000");
        sim_adds_up(&r);
        assert_int_equal(r.report.missed, 0);
        trace_read(r.trace, &trace);
        size_t n = read_steps(&trace, step, STEPS);
        double before = 0, ratio = 0, far = 0;
        for (size_t k = 0; k < n; k++) {
            double want = (double)batch_at((uint64_t)before) / 3;
            ratio += step[k].count / want / (double)n;
            far = fmax(far, fabs(step[k].count / want - 1));
            before += step[k].count;
        }
        print_message(
            "    %s: %zu steps, %.0f to %.0f records, %.3f of the formula's, at most %.2f "
            "off; %.0f samples, %.0f used and %.0f repeated\n",
            own_pace[i], n, step[0].count, step[n - 1].count, ratio, far, before,
            (double)r.report.used, (double)r.report.repeated);
        assert_true(step[0].count == FIRST / 3);
        assert_true(fabs(ratio - 1) < 0.1 && far < 0.75);
        assert_true(before >= (double)(r.report.used + r.report.repeated));
        trace_release(&trace);
    }
    free(step);
}

/* A worker dies and another joins: offsets are used, repeated or missed, whatever the batch. */
static void test_growing_batch_under_leases_with_faults(void **state)
{
    static const char cluster[] =
        "node { count: 4 } step_seconds: 0.01 link { mbit: 1000 }\n"
        "fault { at: 0.05 join: 2 } fault { at: 0.1 join: 3 } fault { at: 0.25 kill: 1 }\n"
        "fault { at: 0.4 leave: 2 }\n";
    for (size_t i = 0; i < sizeof own_pace / sizeof *own_pace; i++) {
        struct sim_run r = {.limit_s = 300};
        SIM(*state, cluster, &r, own_pace[i], "batch", GROWTH, "workers", "workers_min=2",
            "workers_max=4", "stop.epochs=4", "checkpoint.every_seconds=1000");
        sim_adds_up(&r);
        assert_string_equal(r.report.reason, "epochs");
        assert_int_equal(run_count(r.dir, "member", "what", "dead"), 1);
        assert_true(r.report.epochs >= 4 && r.report.batch == LAST);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growing_batch_takes_the_steps_of_the_formula),
        cmocka_unit_test(test_growing_batch_of_several_is_that_of_one),
        cmocka_unit_test(test_growing_batch_while_the_number_of_workers_changes),
        cmocka_unit_test(test_global_batch_stays_when_workers_die),
        cmocka_unit_test(test_growing_batch_continues_from_a_checkpoint),
        cmocka_unit_test(test_growing_batch_is_in_the_events),
        cmocka_unit_test(test_growing_batch_under_leases),
        cmocka_unit_test(test_growing_batch_under_leases_with_faults),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
