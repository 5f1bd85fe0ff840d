/* Conjugate gradient and L-BFGS by several workers: a softmax regression ends at the minimum that
 * Newton's method finds, also when workers die, join and leave. */
#include "softmax_regression.h"
#include "strategy_sim.h"

enum { RECORDS = 601, FEATURES = TINY_SIDE * TINY_SIDE, WEIGHTS = TINY_CLASSES * (FEATURES + 1) };

#define DECAY 0.01

/* |∇f| at the end, over that of the initial weights. */
#define CONVERGED 1e-6

/* Between two models at the minimum: |∇f| over the least curvature, which is the decay. */
#define NEAR 1e-4

static const char net[] =
    "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'\n"
    "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";

struct stage {
    struct tiny *tiny;
    struct regression r;
    double golden[WEIGHTS]; /* the minimum */
    double first;           /* |∇f| at the initial weights */
    char net[160], images[160], labels[160];
};

static struct stage stage;
static float pixels[RECORDS * FEATURES];
static uint32_t label[RECORDS];

/* Three and four workers cannot share 601 records equally. */
static void write_records(struct tiny *t)
{
    tiny_write_set(t, "odd", 0, RECORDS);
    tiny_write(t, "regression.prototxt", net);
    snprintf(stage.net, sizeof stage.net, "net.file=%s/regression.prototxt", t->folder);
    snprintf(stage.images, sizeof stage.images, "train_data.idx.images=%s/odd-images", t->folder);
    snprintf(stage.labels, sizeof stage.labels, "train_data.idx.labels=%s/odd-labels", t->folder);
    for (uint32_t i = 0; i < RECORDS; i++) {
        label[i] = i % TINY_CLASSES;
        for (int k = 0; k < FEATURES; k++)
            pixels[i * FEATURES + (uint32_t)k] =
                (float)tiny_pixel(0, i, label[i], k / TINY_SIDE, k % TINY_SIDE) * 0.00390625f;
    }
    stage.r = (struct regression){RECORDS, FEATURES, TINY_CLASSES, pixels, label, DECAY, DECAY};
}

static void play_run(struct sim_run *r, const char *cluster, const char *solver,
                     const char *workers, const char *more, const char *last)
{
    char text[96];
    snprintf(text, sizeof text, "solver={ type: '%s' weight_decay: %g }", solver, DECAY);
    r->limit_s = 3000;
    SIM_TRY(stage.tiny, cluster, r, stage.net, stage.images, stage.labels, "validation=0",
            "strategy.full_batch={ tolerance: 2.5e-8 }", text, "stop.epochs=400", "batch=40",
            "checkpoint.every_seconds=0.1", workers, more, last);
}

static void read_weights(const char *dir, const char *file, double *w)
{
    struct safetensors model;
    struct shape shape;
    run_model(dir, file, &model);
    const float *x = safetensors_find(&model, "joint/ip.0", &shape);
    const float *bias = safetensors_find(&model, "joint/ip.1", &shape);
    assert_non_null(x);
    assert_non_null(bias);
    for (size_t k = 0; k < WEIGHTS; k++)
        w[k] =
            k < TINY_CLASSES * FEATURES ? (double)x[k] : (double)bias[k - TINY_CLASSES * FEATURES];
    safetensors_release(&model);
}

/* |∇f| at the run's final model in double, over that of the start, and how far the model is from
 * Newton's. */
static double find_distance(const struct sim_run *r, double *gradient)
{
    double w[WEIGHTS], g[WEIGHTS];
    read_weights(r->dir, "final.safetensors", w);
    regression_evaluate(&stage.r, w, g, NULL);
    *gradient = regression_norm(g, WEIGHTS) / stage.first;
    for (size_t k = 0; k < WEIGHTS; k++)
        w[k] -= stage.golden[k];
    return regression_norm(w, WEIGHTS) / regression_norm(stage.golden, WEIGHTS);
}

static void expect_minimum(const struct sim_run *r, const char *what)
{
    double gradient, off = 0;
    if (r->rc != PL_OK)
        fail_msg("%s: %s", what, r->error);
    off = find_distance(r, &gradient);
    print_message("    %s: %s after %g epochs, gradient %.1e, model %.1e from Newton's\n", what,
                  r->report.reason, r->report.epochs, gradient, off);
    assert_string_equal(r->report.reason, "converged");
    assert_true(gradient <= CONVERGED);
    assert_true(off <= NEAR);
}

static const char *const solvers[] = {"CG", "LBFGS"};

/* The gradient at the initial weights, and the minimum. */
static int open_stage(void **state)
{
    struct sim_run r = {0};
    double w[WEIGHTS], g[WEIGHTS];
    if (tiny_setup(state) != 0)
        return -1;
    stage.tiny = *state;
    write_records(*state);
    /* The first step of a search is at most 1 long; before it the model is the initial one. */
    play_run(&r, SIM_CALM, "CG", "workers=1", "stop={ steps: 1 }", NULL);
    if (r.rc != PL_OK)
        fail_msg("%s", r.error);
    read_weights(r.dir, "final.safetensors", w);
    regression_evaluate(&stage.r, w, g, NULL);
    stage.first = regression_norm(g, WEIGHTS);
    return regression_newton(&stage.r, stage.golden, 8) < 1e-12 ? 0 : -1;
}

/* ---- any number of workers ---- */

static void test_any_number_of_workers_finds_the_minimum(void **state)
{
    (void)state;
    static const char *const workers[] = {"workers=1", "workers=3", "workers=4"};
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < 3; k++) {
            struct sim_run r = {0};
            char what[32];
            snprintf(what, sizeof what, "%s, %s", solvers[i], workers[k]);
            play_run(&r, SIM_CALM, solvers[i], workers[k], "threads=1", NULL);
            expect_minimum(&r, what);
            /* A step is an epoch, and all of its records count. */
            assert_int_equal(r.report.missed, 0);
            assert_true((double)r.report.used == r.report.epochs * RECORDS);
        }
}

/* Each worker has records of its own, and no other reads them: the sums are the same. */
static void test_workers_with_records_of_their_own(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct sim_run r = {0};
        play_run(&r, SIM_CALM, solvers[i], "workers=4", "local_data=true", NULL);
        expect_minimum(&r, "local_data");
        assert_true((double)r.report.used == r.report.epochs * RECORDS);
    }
}

/* ---- members change ---- */

static void test_deaths_change_the_way_and_not_the_end(void **state)
{
    (void)state;
    enum { DEATHS = 8 };
    struct sim_run calm = {0};
    play_run(&calm, SIM_CALM, "LBFGS", "workers=4", "threads=1", NULL);
    for (int i = 0; i < DEATHS; i++) {
        struct sim_run r = {0};
        char cluster[256], what[64];
        double at = calm.report.wall_s * (1 + i) / (DEATHS + 1);
        snprintf(cluster, sizeof cluster,
                 SIM_CALM "fault { at: %.6f kill: %d } fault { at: %.6f kill: %d }", at, i % 4,
                 at + 0.07 * (i % 3), (i + 1 + i / 4) % 4);
        snprintf(what, sizeof what, "deaths at %.3f s", at);
        play_run(&r, cluster, solvers[i % 2], "workers=4", "threads=1", NULL);
        expect_minimum(&r, what);
    }
}

/* A worker joins at any moment, and is one of those that end at the minimum: replicas compare their
 * hashes at each step. Then the oldest, its donor, leaves. */
static void test_joiners_and_leavers(void **state)
{
    (void)state;
    enum { MOMENTS = 6 };
    for (int i = 0; i < MOMENTS; i++) {
        struct sim_run r = {0};
        char cluster[256], what[64];
        double at = 0.05 + 0.13 * i;
        snprintf(cluster, sizeof cluster,
                 "node { count: 4 } step_seconds: 0.004 link { mbit: 100 }\n"
                 "fault { at: 0.2 join: 2 } fault { at: %.6f join: 3 } "
                 "fault { at: %.6f leave: 0 }",
                 at, at + 0.11);
        snprintf(what, sizeof what, "a joiner at %.3f s", at);
        play_run(&r, cluster, solvers[i % 2], "workers", "workers_min=2", "workers_max=4");
        expect_minimum(&r, what);
        assert_int_equal(run_count(r.dir, "member", "what", "join"), 4);
        assert_int_equal(run_count(r.dir, "member", "what", "leave"), 1);
        assert_int_equal(r.report.missed, 0);
    }
}

/* ---- resume ---- */

/* Interrupted runs continue from the iterate, with other workers; a run that has converged ends at
 * once, with the model that it has. */
static void test_resumed_runs_find_the_minimum(void **state)
{
    (void)state;
    struct sim_run r = {0};
    play_run(&r, SIM_CALM, "LBFGS", "workers=3", "stop={ steps: 9 }", NULL);
    assert_int_equal(r.rc, PL_OK);
    assert_string_equal(r.report.reason, "steps");
    play_run(&r, SIM_CALM, "LBFGS", "workers=4", "threads=1", NULL);
    expect_minimum(&r, "resumed");
    double epochs = r.report.epochs;
    play_run(&r, SIM_CALM, "LBFGS", "workers=2", "threads=1", NULL);
    expect_minimum(&r, "resumed at the minimum");
    assert_true(r.report.epochs == epochs + 1);
}

/* ---- a net with a state, and one that is not convex ---- */

static const char normed[] =
    "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
    "layer { name: 'ip1' type: 'InnerProduct' bottom: 'data' top: 'ip1'\n"
    "  inner_product_param { num_output: 8 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'bn' type: 'BatchNorm' bottom: 'ip1' top: 'bn' }\n"
    "layer { name: 'relu' type: 'ReLU' bottom: 'bn' top: 'bn' }\n"
    "layer { name: 'drop' type: 'Dropout' bottom: 'bn' top: 'bn' }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'bn' top: 'ip'\n"
    "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'accuracy'\n"
    "  include { phase: TEST } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";

/* Each evaluation has the masks and batches of the first: f is a function of x, and falls. */
static void test_nets_with_masks_and_means(void **state)
{
    char file[160];
    tiny_write(*state, "normed.prototxt", normed);
    snprintf(file, sizeof file, "net.file=%s/normed.prototxt", stage.tiny->folder);
    for (size_t i = 0; i < 2; i++) {
        struct sim_run r = {0};
        char solver[64];
        snprintf(solver, sizeof solver, "solver={ type: '%s' }", solvers[i]);
        SIM(stage.tiny, SIM_CALM, &r, file, "strategy.full_batch={ tolerance: 0 }", solver,
            "workers=3", "stop.epochs=60", "evaluate.every_steps=20");
        print_message("    %s: training loss %.4f, test error %.3f\n", solvers[i],
                      r.report.train_loss, r.report.test_error);
        assert_true(run_is_finite(r.dir, "final.safetensors"));
        assert_true(r.report.train_loss < 0.5 && r.report.test_error < 0.1); /* at first log 3 */
    }
}

/* ---- what is refused ---- */

static void expect_refusal(const char *const *set, const char *text)
{
    struct sim_run r = {0};
    sim_try(stage.tiny, SIM_CALM, &r, set);
    if (r.rc == PL_OK || !strstr(r.error, text))
        fail_msg("%s: %s, expected: %s", set[0], r.rc == PL_OK ? "it runs" : r.error, text);
}

#define REFUSED(text, ...) expect_refusal((const char *const[]){__VA_ARGS__, NULL}, text)

static void test_fields_without_effect_are_refused_by_name(void **state)
{
    (void)state;
#define FULL "strategy.full_batch={}", "solver={ type: 'LBFGS' }"
    REFUSED("solver.type: strategy full_batch needs \"CG\" or \"LBFGS\", is \"SGD\"",
            "strategy.full_batch={}");
    REFUSED("solver.base_lr: has no effect with strategy full_batch", FULL, "solver.base_lr=0.1");
    REFUSED("solver.momentum: has no effect with strategy full_batch", FULL, "solver.momentum=0.9");
    REFUSED("solver.lr_policy: has no effect", FULL, "solver.lr_policy='fixed'");
    REFUSED("solver.clip_gradients: has no effect", FULL, "solver.clip_gradients=5");
    REFUSED("solver.regularization_type: the decay of optimizer \"LBFGS\" is L2", FULL,
            "solver.regularization_type='L1'");
    REFUSED(
        "solver.type: \"CG\" takes a step from all records at once; write --strategy full_batch",
        "strategy.allreduce={}", "solver={ type: 'CG' }");
    REFUSED("global_batch: strategy full_batch takes all records", FULL, "batch",
            "global_batch=64");
    REFUSED("iter_size: strategy full_batch takes all records", FULL, "iter_size=2");
    REFUSED("collective.wire: strategy full_batch needs f32", FULL, "collective.wire=bf16");
    REFUSED("strategy.full_batch.history", "strategy.full_batch={ history: 101 }",
            "solver={ type: 'LBFGS' }");
    REFUSED("strategy.full_batch.tolerance", "strategy.full_batch={ tolerance: -1 }",
            "solver={ type: 'LBFGS' }");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_number_of_workers_finds_the_minimum),
        cmocka_unit_test(test_workers_with_records_of_their_own),
        cmocka_unit_test(test_deaths_change_the_way_and_not_the_end),
        cmocka_unit_test(test_joiners_and_leavers),
        cmocka_unit_test(test_resumed_runs_find_the_minimum),
        cmocka_unit_test(test_nets_with_masks_and_means),
        cmocka_unit_test(test_fields_without_effect_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, open_stage, tiny_teardown);
}
