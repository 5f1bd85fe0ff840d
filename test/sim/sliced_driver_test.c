/* The driver of a model in slices dies and returns: the slices keep their state, train on without
 * it, and whole replicas continue with the next driver. The model is that of a run without deaths,
 * and every sample counts once. */
#include "sliced_job.h"
#include "strategy_sim.h"
#include "sweep_stride.h"

enum { STRIDE = SWEEP_STRIDE(7, 5), STEPS = 60, BATCH = 16 };

struct replicas {
    int count, slices;
    const char *strategy;
    const char *net; /* NULL: the job's, with slices of all layers */
};

static const struct replicas shapes[] = {
    {1, 2, "strategy.allreduce={}", NULL}, {1, 3, "strategy.sync={tau:3}", NULL},
    {2, 2, "strategy.allreduce={}", NULL}, {2, 2, "strategy.sync={tau:3}", NULL},
    {2, 3, "strategy.allreduce={}", NULL}, {2, 2, "strategy.allreduce={}", "mixed"},
};

enum { SHAPES = sizeof shapes / sizeof *shapes, SET_MAX = 16 };

/* Evaluations and checkpoints fall on all moments, too. */
static void play_run(struct tiny *t, const struct replicas *shape, const char *faults,
                     struct sim_run *r, const char *const *more)
{
    char cluster[512], slices[32], workers[2][32], steps[32], net[192];
    const char *set[SET_MAX] = {slices,
                                "workers",
                                workers[0],
                                workers[1],
                                steps,
                                shape->strategy,
                                "stop.epochs",
                                "evaluate.every_steps=9",
                                "checkpoint.every_seconds=0.05"};
    size_t n = 9;
    snprintf(slices, sizeof slices, "slices=%d", shape->slices);
    for (int i = 0; i < 2; i++) /* lost ones are replaced */
        snprintf(workers[i], sizeof workers[i], "workers_%s=%d", i == 0 ? "min" : "max",
                 shape->count * shape->slices);
    snprintf(steps, sizeof steps, "stop.steps=%d", STEPS);
    snprintf(net, sizeof net, "net.file=%s/%s.prototxt", t->folder, shape->net ? shape->net : "");
    if (shape->net) {
        set[n++] = net;
        set[n++] = "slices_from=one";
        set[n++] = "slices_to=two";
    }
    while (*more && n + 1 < SET_MAX)
        set[n++] = *more++;
    snprintf(cluster, sizeof cluster,
             "node { count: 8 } step_seconds: 0.004 link { mbit: 100 } %s\n", faults);
    r->limit_s = 300;
    sim_try(t, cluster, r, set);
    if (r->rc != PL_OK)
        fail_msg("%d x %d, %s: %s (%s)", shape->count, shape->slices, faults, r->error, r->dir);
}

#define PLAY(t, shape, faults, r, ...) \
    play_run(t, shape, faults, r, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

/* All are back with their seats, and nothing is lost or done twice. */
static void expect_unharmed(const struct replicas *shape, const char *faults,
                            const struct sim_run *r, const struct sim_run *whole)
{
    int deaths = run_count(r->dir, "back", NULL, NULL);
    int back = run_count(r->dir, "member", "what", "back");
    int unseated = run_count(r->dir, "member", "what", "unseated");
    sim_adds_up(r);
    if (deaths == 0 || back != deaths * shape->count * shape->slices || unseated > 0)
        fail_msg("%d x %d, %s: %d returned to %d drivers, %d unseated (%s)", shape->count,
                 shape->slices, faults, back, deaths, unseated, r->dir);
    if (!run_same_bits(r->dir, whole->dir, "final.safetensors"))
        fail_msg("%d x %d, %s: another model (%s)", shape->count, shape->slices, faults, r->dir);
    assert_int_equal(r->report.missed, 0);
    assert_int_equal(r->report.used, whole->report.used);
}

static void test_it_dies_at_any_moment(void **state)
{
    enum { MOMENTS = 14 };
    struct tiny *t = *state;
    for (size_t w = 0; w < SHAPES; w++) {
        struct sim_run whole = {0};
        PLAY(t, &shapes[w], "", &whole);
        double from = 0.02, to = whole.report.wall_s;
        for (int i = (int)sweep_first(w, STRIDE, MOMENTS); i < MOMENTS; i += STRIDE) {
            struct sim_run r = {0};
            char faults[160];
            snprintf(faults, sizeof faults, "fault { at: %.6f kill: -1 for: %g }",
                     from + (to - from) * i / MOMENTS, i % 2 ? 0.02 : 0.3);
            PLAY(t, &shapes[w], faults, &r);
            expect_unharmed(&shapes[w], faults, &r, &whole);
        }
    }
}

/* While slices return, with the first view on its way to them, or with their reports on the way to
 * the driver. */
static void test_it_dies_again_at_once(void **state)
{
    enum { MOMENTS = 10 };
    struct tiny *t = *state;
    for (size_t w = 0; w < SHAPES; w++) {
        struct sim_run whole = {0}, once = {0};
        char faults[160];
        PLAY(t, &shapes[w], "", &whole);
        double at = 0.4 * whole.report.wall_s;
        snprintf(faults, sizeof faults, "fault { at: %.6f kill: -1 for: 0.05 }", at);
        PLAY(t, &shapes[w], faults, &once);
        double back = at + 0.05 + run_number(once.dir, "back", 0, "t");
        for (int i = (int)sweep_first(w, STRIDE, MOMENTS); i < MOMENTS; i += STRIDE) {
            struct sim_run r = {0};
            snprintf(faults, sizeof faults,
                     "fault { at: %.6f kill: -1 for: 0.05 } fault { at: %.6f kill: -1 for: 0.04 }",
                     at, back + 0.00009 * (i - 4));
            PLAY(t, &shapes[w], faults, &r);
            assert_int_equal(run_count(r.dir, "member", "what", "dead"), 0);
            if (!run_same_bits(r.dir, whole.dir, "final.safetensors"))
                fail_msg("%d x %d, %s: another model (%s)", shapes[w].count, shapes[w].slices,
                         faults, r.dir);
        }
    }
}

/* The loops have ended: the slices evaluate the model, and the driver takes it. */
static void test_it_dies_at_the_end(void **state)
{
    enum { MOMENTS = 16 };
    struct tiny *t = *state;
    for (size_t w = 0; w < SHAPES; w++) {
        struct sim_run whole = {0};
        PLAY(t, &shapes[w], "", &whole);
        for (int i = (int)sweep_first(w, STRIDE, MOMENTS); i < MOMENTS; i += STRIDE) {
            struct sim_run r = {0};
            char faults[160];
            snprintf(faults, sizeof faults, "fault { at: %.6f kill: -1 for: 0.02 }",
                     whole.report.wall_s - 0.0006 * (i + 1));
            PLAY(t, &shapes[w], faults, &r);
            expect_unharmed(&shapes[w], faults, &r, &whole);
        }
    }
}

/* A slice dies while there is no driver: the other replica continues with the next one, and the
 * members that are left of the first become a replica again with a new worker. */
static void test_a_slice_dies_meanwhile(void **state)
{
    enum { MOMENTS = 12 };
    struct tiny *t = *state;
    for (int i = 0; i < MOMENTS; i += STRIDE) {
        struct sim_run r = {0};
        const struct replicas *shape = &shapes[2 + i % 3];
        char faults[160];
        double at = 0.15 + 0.0017 * i;
        snprintf(faults, sizeof faults,
                 "fault { at: %.6f kill: -1 for: 0.1 } fault { at: %.6f kill: %d }", at,
                 at + 0.01 * i, i % (2 * shape->slices));
        PLAY(t, shape, faults, &r, "pace=0.02");
        sim_adds_up(&r);
        if (run_count(r.dir, "member", "what", "dead") != 1 ||
            run_count(r.dir, "member", "what", "unseated") != shape->slices - 1)
            fail_msg("%s (%s)", faults, r.dir);
        assert_int_equal(run_count(r.dir, "member", "what", "seated"), shape->slices - 1);
        assert_int_equal(r.report.workers, 2 * shape->slices);
        assert_string_equal(r.report.reason, "steps");
        assert_true(run_is_finite(r.dir, "final.safetensors"));
    }
}

/* All have trained, and the driver that returns asks the first for the model. Its replica loses a
 * slice then, and no worker comes instead: the other replica shows the model. */
static void test_a_slice_dies_at_the_end(void **state)
{
    enum { MOMENTS = 6 };
    struct tiny *t = *state;
    const struct replicas *shape = &shapes[2];
    struct sim_run whole = {0}, once = {0};
    char faults[320];
    PLAY(t, shape, "", &whole);
    double at = whole.report.wall_s - 0.02;
    snprintf(faults, sizeof faults, "fault { at: %.6f kill: -1 for: 0.3 }", at);
    PLAY(t, shape, faults, &once);
    double back = run_number(once.dir, "back", 0, "t");
    for (int i = 0; i < MOMENTS; i++) {
        struct sim_run r = {0};
        snprintf(faults, sizeof faults,
                 "fault { at: %.6f kill: -1 for: 0.3 } fault { at: %.6f kill: 1 } "
                 "fault { at: 0.01 kill: 4 } fault { at: 0.01 kill: 5 } "
                 "fault { at: 0.01 kill: 6 } fault { at: 0.01 kill: 7 }",
                 at, back + 0.0003 * i);
        PLAY(t, shape, faults, &r);
        assert_int_equal(run_count(r.dir, "member", "what", "unseated"), 1);
        assert_int_equal(r.report.workers, 3);
        if (!run_same_bits(r.dir, whole.dir, "final.safetensors"))
            fail_msg("%s: another model (%s)", faults, r.dir);
    }
}

/* A view ends the evaluation of the final model for some slices of a replica, and comes behind it
 * for others: all evaluate it again. */
static void test_a_view_ends_the_last_evaluation(void **state)
{
    enum { MOMENTS = 100 };
    struct tiny *t = *state;
    const struct replicas *shape = &shapes[4];
    struct sim_run whole = {0};
    char faults[160];
    PLAY(t, shape, "", &whole);
    for (int i = 0; i < MOMENTS; i++) {
        struct sim_run r = {0};
        snprintf(faults, sizeof faults, "fault { at: %.6f kill: 4 }",
                 whole.report.wall_s - 0.005 - 0.00005 * i);
        PLAY(t, shape, faults, &r);
    }
}

/* The only replica loses a slice together with the driver: nobody has that slice, so the run
 * resumes from its checkpoint, with the worker that comes instead. */
static void test_without_a_whole_replica_the_checkpoint_counts(void **state)
{
    struct tiny *t = *state;
    struct sim_run whole = {0}, r = {0};
    PLAY(t, &shapes[0], "", &whole);
    PLAY(t, &shapes[0], "fault { at: 0.3 kill: -1 for: 0.1 } fault { at: 0.32 kill: 1 } ", &r);
    assert_int_equal(run_count(r.dir, "member", "what", "back"), 0);
    assert_string_equal(r.report.reason, "steps");
    assert_true(run_same_bits(r.dir, whole.dir, "final.safetensors"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_dies_at_any_moment),
        cmocka_unit_test(test_it_dies_again_at_once),
        cmocka_unit_test(test_it_dies_at_the_end),
        cmocka_unit_test(test_a_view_ends_the_last_evaluation),
        cmocka_unit_test(test_a_slice_dies_meanwhile),
        cmocka_unit_test(test_a_slice_dies_at_the_end),
        cmocka_unit_test(test_without_a_whole_replica_the_checkpoint_counts),
    };
    return cmocka_run_group_tests(tests, sliced_setup, tiny_teardown);
}
