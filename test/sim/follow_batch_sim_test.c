/* Workers that follow a batch that grows, in simulation (Elastic, Algorithm 8). Their number is
 * that of the formulas for each batch, no sample is lost by a change, and the weights at the end
 * are those of a fixed number of workers. */
#include "plan/batch_growth.h"
#include "plan/follow_batch.h"
#include "strategy_sim.h"

enum { EPOCHS = 6, FIRST = 32, LAST = 704, MOST = 8 };

/* LeNet's batches in the thesis: 32 to 704 with the power 2. A record takes 1 ms, an exchange 8 ms
 * and 2 ms for each worker. */
#define GROWTH  "batch_growth={first:32 last:704}"
#define FOLLOW  "follow_batch={samples_per_s:1000 exchange_s:0.008 exchange_s_per_worker:0.002 "
#define CLUSTER "node { count: 8 } step_seconds: 0.032 link { mbit: 1000 latency_us: 1000 }\n"

static const struct follow_batch model = {
    .model = {SCALING_SYNC, 1000, 0.008, 0.002}, .least = 1, .most = MOST};

static struct sim_run follow_run(struct tiny *t, const char *strategy, const char *follow)
{
    struct sim_run r = {.limit_s = 600};
    SIM(t, CLUSTER, &r, strategy, "batch", "workers", "workers_min=1", "workers_max=8", GROWTH,
        follow, "stop.epochs=6", "checkpoint.every_seconds=1000");
    sim_adds_up(&r);
    assert_int_equal(r.report.missed, 0);
    assert_int_equal(r.report.repeated, 0);
    assert_int_equal(run_count(r.dir, "member", "what", "dead"), 0);
    return r;
}

/* Each event is the decision of the formulas for its batch, and its batch that of its epoch. */
static int expect_decisions(const struct sim_run *r, const struct follow_batch *rule)
{
    const struct batch_growth growth = {FIRST, LAST, 2};
    int count = run_count(r->dir, "want_workers", NULL, NULL);
    for (int i = 0; i < count; i++) {
        double epoch = run_number(r->dir, "want_workers", i, "epoch"),
               batch = run_number(r->dir, "want_workers", i, "batch");
        double of = run_number(r->dir, "want_workers", i, "of"),
               n = run_number(r->dir, "want_workers", i, "workers");
        assert_true(batch == floor(batch_growth_at(&growth, epoch / EPOCHS) + 0.5));
        assert_true(n == (double)follow_batch_workers(rule, batch, (EPOCHS - epoch) * SIM_RECORDS,
                                                      (size_t)of));
        print_message("    epoch %.2f: batch %.0f, %.0f workers\n", epoch, batch, n);
    }
    return count;
}

static void test_follow_batch_has_the_workers_of_the_model(void **state)
{
    struct sim_run r = follow_run(*state, "strategy.allreduce={}", FOLLOW "change_s:0 gain:0}");
    int changes = expect_decisions(&r, &model);
    assert_true(changes >= 2);
    assert_true(run_number(r.dir, "want_workers", changes - 1, "workers") == MOST);
    assert_int_equal(r.report.workers, MOST);
    assert_int_equal(run_count(r.dir, "member", "what", "join"), MOST);
    assert_int_equal(run_count(r.dir, "member", "what", "leave"), 0);
    /* The batches are those of one worker, so the model is, too. */
    struct sim_run one = {.limit_s = 600};
    SIM(*state, CLUSTER, &one, "strategy.single={}", "batch", "workers=1", GROWTH, "stop.epochs=6",
        "checkpoint.every_seconds=1000");
    double apart = run_difference(r.dir, one.dir);
    print_message("    %.2f s, one worker %.2f s; models apart by %.1e\n", r.report.wall_s,
                  one.report.wall_s, apart);
    assert_true(r.report.wall_s < 0.9 * one.report.wall_s);
    assert_int_equal(r.report.used, one.report.used);
    assert_true(apart <= SIM_SAME);
}

/* A change that costs more than it saves in the rest of the run does not happen, and neither does
 * one that saves little of a step. */
static void test_follow_batch_changes_that_pay(void **state)
{
    struct follow_batch rule = model;
    rule.gain = 0.2;
    rule.change_s = 0.05;
    struct sim_run r =
        follow_run(*state, "strategy.allreduce={}", FOLLOW "change_s:0.05 gain:0.2}");
    int changes = expect_decisions(&r, &rule);
    assert_true(changes >= 1);
    struct sim_run dear = follow_run(*state, "strategy.allreduce={}", FOLLOW "change_s:1000}");
    assert_int_equal(run_count(dear.dir, "want_workers", NULL, NULL), 0);
    assert_int_equal(dear.report.workers, 1);
}

/* ---- a model that the run measures ---- */

enum { LONG_EPOCHS = 60 };

static double seconds_of_exchange(const struct sim_run *r, double t)
{
    double seconds = 0;
    int count = run_count(r->dir, "exchange", NULL, NULL);
    for (int k = 0; k < count && run_number(r->dir, "exchange", k, "t") <= t; k++)
        seconds = run_number(r->dir, "exchange", k, "seconds");
    return seconds;
}

/* Each decision is that of the formulas for the measured times, and these are the cluster's: 1 ms a
 * record, and exchanges as long as their events say. No number is tried that is more than twice as
 * large as the largest before. */
static void expect_measured_decisions(const struct sim_run *r, struct follow_batch rule)
{
    int count = run_count(r->dir, "want_workers", NULL, NULL);
    double reach = 1, most = (double)rule.most;
    assert_true(count >= 2);
    for (int i = 0; i < count; i++) {
        double epoch = run_number(r->dir, "want_workers", i, "epoch"),
               batch = run_number(r->dir, "want_workers", i, "batch"),
               of = run_number(r->dir, "want_workers", i, "of"),
               n = run_number(r->dir, "want_workers", i, "workers");
        rule.model.gamma = run_number(r->dir, "want_workers", i, "samples_per_s");
        rule.model.alpha = run_number(r->dir, "want_workers", i, "exchange_s");
        rule.model.beta = run_number(r->dir, "want_workers", i, "exchange_s_per_worker");
        rule.fixed_s = run_number(r->dir, "want_workers", i, "step_s");
        reach = fmax(reach, of);
        rule.most = (size_t)fmin(2 * reach, most);
        print_message("    epoch %.1f: batch %.0f, %.0f to %.0f workers; %.1f samples/s, %.5f s, "
                      "%.5f + %.5f N s\n",
                      epoch, batch, of, n, rule.model.gamma, rule.fixed_s, rule.model.alpha,
                      rule.model.beta);
        assert_true(n == (double)follow_batch_workers(
                             &rule, batch, (LONG_EPOCHS - epoch) * SIM_RECORDS, (size_t)of));
        assert_true(fabs(rule.model.gamma - 1000) < 10 && rule.fixed_s < 0.0005);
        double exchange = seconds_of_exchange(r, run_number(r->dir, "want_workers", i, "t"));
        double model_s = rule.model.alpha + rule.model.beta * of;
        /* Up to 1 ms a member waits for one whose share has a record more. Exchanges of powers of
         * two workers are on the line, others above it. */
        bool power = of == 2 || of == 4 || of == 8;
        if (power && fabs(model_s - exchange) > 0.001 + 0.1 * exchange)
            fail_msg("an exchange of %.0f workers takes %.5f s by the model, took %.5f", of,
                     model_s, exchange);
    }
}

#define LONG_RUN(t, r, strategy, ...)                                              \
    SIM(t, SLOW_CLUSTER, r, strategy, "batch", "workers", "workers_min=1", GROWTH, \
        "stop.epochs=60", "checkpoint.every_seconds=1000", __VA_ARGS__)
#define SLOW_NODES   "node { count: 8 } link { mbit: 1000 latency_us: 2000 }\n"
#define SLOW_CLUSTER SLOW_NODES "step_seconds: 0.032\n" /* of 32 records, one worker's share */

static void test_follow_batch_measures_its_model(void **state)
{
    struct sim_run r = {.limit_s = 600}, best = {.limit_s = 600};
    LONG_RUN(*state, &r, "strategy.allreduce={}", "workers_max=8", "follow_batch={change_s:0.01}");
    sim_adds_up(&r);
    assert_int_equal(r.report.missed + r.report.repeated, 0);
    expect_measured_decisions(
        &r, (struct follow_batch){
                .model.kind = SCALING_SYNC, .change_s = 0.01, .gain = 0.05, .least = 1, .most = 8});
    assert_true(r.report.workers >= 4);
    for (int n = 1; n <= 8; n *= 2) {
        struct sim_run fixed = {.limit_s = 600};
        char workers[32], cluster[128];
        snprintf(workers, sizeof workers, "workers=%d", n);
        snprintf(cluster, sizeof cluster, SLOW_NODES "step_seconds: %g", 0.032 / n);
        SIM(*state, cluster, &fixed, "strategy.allreduce={}", "batch", GROWTH, "stop.epochs=60",
            "checkpoint.every_seconds=1000", workers);
        print_message("    %d workers: %.2f s; as measured: %.2f s\n", n, fixed.report.wall_s,
                      r.report.wall_s);
        if (n == 1 || fixed.report.wall_s < best.report.wall_s)
            best = fixed;
    }
    /* It begins with one worker, and its line in N is above the exchange of eight. */
    assert_true(r.report.wall_s < 1.2 * best.report.wall_s);
}

/* With r = 1 computing takes as long as an exchange, so fewer workers are taken. */
static void test_follow_batch_saves_workers_by_a_ratio(void **state)
{
    struct sim_run r = {.limit_s = 600};
    LONG_RUN(*state, &r, "strategy.allreduce={}", "workers_max=8",
             "follow_batch={change_s:0.01 ratio:4}");
    sim_adds_up(&r);
    expect_measured_decisions(&r, (struct follow_batch){.model.kind = SCALING_SYNC,
                                                        .change_s = 0.01,
                                                        .gain = 0.05,
                                                        .ratio = 4,
                                                        .least = 1,
                                                        .most = 8});
}

/* Eight workers come of themselves, before the driver has decided for three: surplus ones leave in
 * good order, the others stand by, and are admitted as the batch grows. */
static void test_follow_batch_releases_workers(void **state)
{
    static const char cluster[] =
        "node { count: 8 } step_seconds: 0.016 link { mbit: 1000 latency_us: 1000 }\n"
        "fault { at: 0.001 join: 2 } fault { at: 0.001 join: 3 } fault { at: 0.001 join: 4 } "
        "fault { at: 0.001 join: 5 } fault { at: 0.001 join: 6 } fault { at: 0.001 join: 7 }";
    static const char follow[] = "follow_batch={samples_per_s:1000 exchange_s:0.02 "
                                 "exchange_s_per_worker:0.005 change_s:0 gain:0}";
    static const char *const strategies[] = {"strategy.allreduce={bucket_kb:1}",
                                             "strategy.sync={tau:1}", "strategy.diloco={tau:1}"};
    const struct follow_batch rule = {
        .model = {SCALING_SYNC, 1000, 0.02, 0.005}, .least = 2, .most = 6};
    for (size_t i = 0; i < 3; i++) {
        struct sim_run r = {.limit_s = 600};
        SIM(*state, cluster, &r, strategies[i], "batch", "workers", "workers_min=2",
            "workers_max=6", GROWTH, follow, "stop.epochs=6", "checkpoint.every_seconds=1000");
        sim_adds_up(&r);
        assert_int_equal(r.report.missed, 0);
        assert_int_equal(r.report.repeated, 0);
        int joins = run_count(r.dir, "member", "what", "join"),
            leaves = run_count(r.dir, "member", "what", "leave");
        print_message("    %s: %d joined, %d left\n", strategies[i], joins, leaves);
        assert_true(expect_decisions(&r, &rule) >= 2);
        assert_int_equal(run_count(r.dir, "member", NULL, NULL), joins + leaves);
        assert_int_equal(joins - leaves, r.report.workers);
        assert_true(leaves >= 2 && r.report.workers >= 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follow_batch_has_the_workers_of_the_model),
        cmocka_unit_test(test_follow_batch_changes_that_pay),
        cmocka_unit_test(test_follow_batch_measures_its_model),
        cmocka_unit_test(test_follow_batch_saves_workers_by_a_ratio),
        cmocka_unit_test(test_follow_batch_releases_workers),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
