/* A run resumes from its newest checkpoint with another number of workers: at its position in data
 * and schedule, with a ledger that adds up, and ends as well as uninterrupted runs. */
#include "strategy_sim.h"
#include "sweep_stride.h"

#include <inttypes.h>

enum { SEEDS = 4, GROUPS = 3, EPOCHS = 8 };

#define STEPS_CLOCK                                                                    \
    "solver={base_lr:0.05 momentum:0.9 weight_decay:0.0005 lr_policy:'inv' gamma:0.02" \
    " power:0.75}"
#define EPOCHS_CLOCK                                                                  \
    "solver={base_lr:0.05 momentum:0.9 weight_decay:0.0005 lr_policy:'exp' gamma:0.8" \
    " clock:epochs}"

struct change {
    int from, to;
};

static const struct change changes[] = {{4, 1}, {4, 7}, {1, 4}};
enum { CHANGES = sizeof changes / sizeof *changes, STRIDE = SWEEP_STRIDE(3, 3) };

static void run_on(struct tiny *t, struct sim_run *r, int workers, const char *strategy,
                   const char *solver, uint64_t seed, double every)
{
    char cluster[128], set[4][64];
    snprintf(cluster, sizeof cluster, "node { count: %d } step_seconds: 0.004 link { mbit: 100 }\n",
             workers);
    snprintf(set[0], sizeof set[0], "workers=%d", workers);
    snprintf(set[1], sizeof set[1], "seed=%d", (int)seed);
    snprintf(set[2], sizeof set[2], "checkpoint.every_seconds=%.6f", every);
    snprintf(set[3], sizeof set[3], "stop.epochs=%d", EPOCHS);
    SIM_TRY(t, cluster, r, strategy, solver, set[0], set[1], set[2], set[3]);
}

/* The run whole, never broken off. */
static struct sim_run whole_run(struct tiny *t, int workers, const char *strategy,
                                const char *solver, uint64_t seed)
{
    struct sim_run r = {0};
    run_on(t, &r, workers, strategy, solver, seed, 1000);
    if (r.rc != PL_OK)
        fail_msg("%s, %d workers: %s", strategy, workers, r.error);
    return r;
}

static uint64_t kept_number(const char *path, const char *key)
{
    struct file_bytes bytes;
    struct safetensors st;
    struct err err = {0};
    if (file_read(path, 1 << 20, &bytes, &err) != OK ||
        safetensors_parse(path, bytes.data, bytes.len, true, &st, &err) != OK)
        fail_msg("%s", err.text);
    uint64_t value = strtoull(safetensors_meta_get(&st, key), NULL, 10);
    safetensors_release(&st);
    file_release(&bytes);
    return value;
}

/* The rates of the schedules above, by hand. */
static double rate_at(const char *solver, double steps, double epoch)
{
    return strcmp(solver, STEPS_CLOCK) == 0 ? 0.05 * pow(1 + 0.02 * steps, -0.75)
                                            : 0.05 * pow(0.8, epoch);
}

/* Where the newest checkpoint stood. */
struct place {
    uint64_t n, steps, records;
};

static struct place broken_off_at(const struct sim_run *r)
{
    char path[3][512];
    int count = run_checkpoints(r->dir, path);
    assert_true(count > 0);
    const char *newest = path[count < 3 ? count - 1 : 2];
    return (struct place){kept_number(newest, "lane.0"), kept_number(newest, "steps"),
                          kept_number(newest, "place")};
}

/* All its events after resuming are after that position, in order, with the right rate. */
static void expect_it_went_on(const struct sim_run *r, const struct place *from, int rates_before,
                              const char *solver, const struct change *c)
{
    double steps = (double)from->steps, epoch = (double)from->records / SIM_RECORDS;
    int rates = run_count(r->dir, "rate", NULL, NULL);
    assert_true(run_number(r->dir, "start", 1, "resumed_after") == (double)from->n);
    assert_true(run_number(r->dir, "start", 0, "nodes") == c->from);
    assert_true(run_number(r->dir, "start", 1, "nodes") == c->to);
    assert_true(rates > rates_before);
    for (int i = rates_before; i < rates; i++) {
        double at = run_number(r->dir, "rate", i, "step"),
               in = run_number(r->dir, "rate", i, "epoch");
        double rate = run_number(r->dir, "rate", i, "rate"), want = rate_at(solver, at, in);
        if (at < steps || in < epoch || in > epoch + 2.6 || !(fabs(rate - want) < 1e-6))
            fail_msg("after step %g, epoch %g: step %g, epoch %g, rate %g, by hand %g", steps,
                     epoch, at, in, rate, want);
        steps = at;
        epoch = in;
    }
    assert_string_equal(r->report.reason, "epochs");
    assert_true(r->report.epochs >= EPOCHS && r->report.epochs < EPOCHS + 1);
}

/* Half of the run with one number of workers, the rest with another. `missed`: samples that may be
 * missed. */
static struct sim_run changed_run(struct tiny *t, const struct change *c, const char *strategy,
                                  const char *solver, uint64_t seed, double wall_s)
{
    struct sim_run r = {.limit_s = wall_s / 2};
    run_on(t, &r, c->from, strategy, solver, seed, wall_s / 12);
    if (r.rc != PL_ERR_TIMEOUT)
        fail_msg("%s, %d workers: %s", strategy, c->from, r.error);
    struct place from = broken_off_at(&r);
    int rates = run_count(r.dir, "rate", NULL, NULL);
    assert_true(from.records > SIM_RECORDS && from.records < (EPOCHS - 2) * SIM_RECORDS);
    r.limit_s = 0;
    run_on(t, &r, c->to, strategy, solver, seed, 1000);
    if (r.rc != PL_OK)
        fail_msg("%s, %d to %d workers: %s", strategy, c->from, c->to, r.error);
    expect_it_went_on(&r, &from, rates, solver, c);
    sim_adds_up(&r);
    assert_int_equal(r.report.missed, 0);
    return r;
}

struct many {
    double sum, squares;
    int n;
};

static void count_in(struct many *m, double x)
{
    m->sum += x;
    m->squares += x * x;
    m->n++;
}

static double mean_of(const struct many *m)
{
    return m->sum / m->n;
}

static double variance_of(const struct many *m)
{
    return fmax(m->squares / m->n - mean_of(m) * mean_of(m), 0) * m->n / (m->n - 1);
}

/* Over some seeds: the loss on the test set after a change of workers is no worse than the worse of
 * the two runs that never changed, by three standard errors. */
static void expect_within_noise(struct tiny *t, const char *strategy, const char *solver,
                                const struct change *c)
{
    struct many loss[GROUPS] = {{0}}, error = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct sim_run before = whole_run(t, c->from, strategy, solver, seed);
        struct sim_run after = whole_run(t, c->to, strategy, solver, seed);
        struct sim_run r = changed_run(t, c, strategy, solver, seed, before.report.wall_s);
        count_in(&loss[0], before.report.test_loss);
        count_in(&loss[1], after.report.test_loss);
        count_in(&loss[2], r.report.test_loss);
        count_in(&error, r.report.test_error);
    }
    double worst = fmax(mean_of(&loss[0]), mean_of(&loss[1]));
    double se =
        sqrt((variance_of(&loss[0]) + variance_of(&loss[1]) + variance_of(&loss[2])) / SEEDS);
    print_message("    %s, %d to %d: loss %.4f, of whole runs %.4f and %.4f (± %.4f); error "
                  "%.2f %%\n",
                  strategy, c->from, c->to, mean_of(&loss[2]), mean_of(&loss[0]), mean_of(&loss[1]),
                  se, 100 * mean_of(&error));
    assert_true(mean_of(&loss[2]) <= worst + 3 * se);
    assert_true(mean_of(&error) < 0.2);
}

static void each_change(void **state, const char *strategy, const char *solver)
{
    static size_t call;
    for (size_t i = sweep_first(call++, STRIDE, CHANGES); i < CHANGES; i += STRIDE)
        expect_within_noise(*state, strategy, solver, &changes[i]);
}

static void test_sync(void **state)
{
    each_change(state, "strategy.sync.tau=4", STEPS_CLOCK);
    each_change(state, "strategy.sync.tau=4", EPOCHS_CLOCK);
}

static void test_mpca(void **state)
{
    each_change(state, "strategy.mpca={}", STEPS_CLOCK);
    each_change(state, "strategy.mpca={ coordination: symmetric }", EPOCHS_CLOCK);
}

static void test_pace(void **state)
{
    each_change(state, "strategy.pace={}", STEPS_CLOCK);
    each_change(state, "strategy.pace={ coordination: symmetric }", EPOCHS_CLOCK);
}

static void test_a_parameter_server(void **state)
{
    each_change(state, "strategy.ps={ consistency: bsp }", STEPS_CLOCK);
}

static void test_others(void **state)
{
    each_change(state, "strategy.diloco.tau=4", EPOCHS_CLOCK);
    each_change(state, "strategy.easgd={}", EPOCHS_CLOCK);
}

/* How far two runs' ṽ point the same way: the cosine between them. */
static double same_direction(const struct safetensors *a, const struct safetensors *b)
{
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < a->n; i++) {
        const struct safetensors_item *v = &a->item[i];
        const float *w = safetensors_find(b, v->name, NULL);
        if (strncmp(v->name, "joint_direction/", 16) != 0)
            continue;
        assert_non_null(w);
        for (size_t k = 0; k < v->count; k++) {
            ab += (double)v->data[k] * (double)w[k];
            aa += (double)v->data[k] * (double)v->data[k];
            bb += (double)w[k] * (double)w[k];
        }
    }
    assert_true(aa > 0 && bb > 0);
    return ab / sqrt(aa * bb);
}

static void newest_checkpoint(const struct sim_run *r, struct safetensors *out)
{
    char path[3][512];
    int count = run_checkpoints(r->dir, path);
    assert_true(count > 0);
    run_model(r->dir, strstr(path[count < 3 ? count - 1 : 2], "checkpoint/"), out);
}

/* Where mpca or pace is heading, ṽ, outlives its driver: after the few exchanges of a run that has
 * nothing left to do it points where it did. Begun again it would point where those do. */
static void expect_direction(struct tiny *t, const char *strategy)
{
    struct sim_run whole = whole_run(t, 4, strategy, STEPS_CLOCK, 1), r = {0};
    struct safetensors before, after;
    r.limit_s = whole.report.wall_s / 2;
    run_on(t, &r, 4, strategy, STEPS_CLOCK, 1, whole.report.wall_s / 12);
    assert_int_equal(r.rc, PL_ERR_TIMEOUT);
    newest_checkpoint(&r, &before);
    r.limit_s = 0;
    SIM(t, SIM_CALM, &r, strategy, STEPS_CLOCK, "seed=1", "stop.epochs=1");
    newest_checkpoint(&r, &after);
    print_message("    cosine %.3f\n", same_direction(&before, &after));
    assert_true(same_direction(&before, &after) > 0.8);
    safetensors_release(&before);
    safetensors_release(&after);
}

static void test_where_mpca_is_heading(void **state)
{
    expect_direction(*state, "strategy.mpca={}");
    expect_direction(*state, "strategy.mpca={ coordination: symmetric }");
    expect_direction(*state, "strategy.pace={}");
}

/* Whenever the driver dies, one exchange is lost, and the one under way. Of easgd each visit of a
 * worker is an exchange, and those of four workers follow one after another: one each. */
static void test_a_checkpoint_at_each_exchange(void **state)
{
    static const char *const strategy[] = {"strategy.sync.tau=5", "strategy.diloco={tau:5}",
                                           "strategy.easgd.tau=10"};
    for (size_t s = 0; s < sizeof strategy / sizeof *strategy; s++)
        for (int i = 0; i < 5; i++) {
            struct sim_run r = {.limit_s = 0.3 + 0.0071 * i};
            SIM_TRY(*state, "node { count: 4 } step_seconds: 0.004 link { mbit: 100 }", &r,
                    strategy[s], "workers=4", "stop.epochs=60",
                    "checkpoint={every_seconds:0 every_exchanges:1}");
            assert_int_equal(r.rc, PL_ERR_TIMEOUT);
            int exchanges = run_count(r.dir, "exchange", NULL, NULL);
            uint64_t kept = broken_off_at(&r).n;
            uint64_t lost = strstr(strategy[s], "easgd") ? 4 : 1;
            if (exchanges < 10 || kept + lost < (uint64_t)exchanges)
                fail_msg("%s: exchange %" PRIu64 " of %d is kept", strategy[s], kept, exchanges);
        }
}

static void test_checkpoints_are_that_many_exchanges_apart(void **state)
{
    struct sim_run r = {0};
    SIM_TRY(*state, "node { count: 4 } step_seconds: 0.004 link { mbit: 100 }", &r,
            "strategy.sync.tau=2", "workers=4", "stop.epochs=30",
            "checkpoint={every_seconds:1000 every_exchanges:20 keep:100}");
    assert_int_equal(r.rc, PL_OK);
    int exchanges = run_count(r.dir, "exchange", NULL, NULL);
    int checkpoints = run_count(r.dir, "checkpoint", NULL, NULL);
    print_message("    %d checkpoints of %d exchanges\n", checkpoints, exchanges);
    for (int i = 1; i + 1 < checkpoints; i++) {
        double apart =
            run_number(r.dir, "checkpoint", i, "n") - run_number(r.dir, "checkpoint", i - 1, "n");
        assert_true(apart >= 20 && apart <= 22);
    }
    assert_true(checkpoints >= exchanges / 22);
    struct sim_run never = {0};
    SIM_TRY(*state, "node { count: 4 } step_seconds: 0.004 link { mbit: 100 }", &never,
            "strategy.sync.tau=2", "workers=4", "stop.epochs=6",
            "checkpoint={every_seconds:0 every_exchanges:18446744073709551615}");
    assert_int_equal(never.rc, PL_OK);
    assert_true(run_count(never.dir, "checkpoint", NULL, NULL) <= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sync),
        cmocka_unit_test(test_mpca),
        cmocka_unit_test(test_pace),
        cmocka_unit_test(test_a_parameter_server),
        cmocka_unit_test(test_others),
        cmocka_unit_test(test_where_mpca_is_heading),
        cmocka_unit_test(test_a_checkpoint_at_each_exchange),
        cmocka_unit_test(test_checkpoints_are_that_many_exchanges_apart),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
