/* Texts that a model in slices draws at its evaluations: those that the whole model draws, also
 * where a slice or the driver dies meanwhile. */
#include "paceline/sample.h"
#include "strategy_sim.h"
#include "tensor/kernels.h"

#define NET(units)                                                                                 \
    "layer { name: 'text' type: 'Data' top: 'data' top: 'target' }\n"                              \
    "layer { name: 'embed' type: 'Embed' bottom: 'data' top: 'embed' embed_param {\n"              \
    "  input_dim: " units                                                                          \
    " num_output: 4 weight_filler { type: 'uniform' min: -0.5 max: 0.5 } } }\n"                    \
    "layer { name: 'a' type: 'LSTM' bottom: 'embed' top: 'a' recurrent_param {\n"                  \
    "  num_output: 6 weight_filler { type: 'uniform' min: -0.5 max: 0.5 } } }\n"                   \
    "layer { name: 'b' type: 'GRU' bottom: 'a' top: 'b' gru_param {\n"                             \
    "  num_output: 7 weight_filler { type: 'uniform' min: -0.5 max: 0.5 } } }\n"                   \
    "layer { name: 'c' type: 'RNN' bottom: 'b' top: 'c' recurrent_param {\n"                       \
    "  num_output: 5 weight_filler { type: 'uniform' min: -0.5 max: 0.5 } } }\n"                   \
    "layer { name: 'scores' type: 'InnerProduct' bottom: 'c' top: 'scores'\n"                      \
    "  inner_product_param { num_output: " units " axis: 2 weight_filler { type: 'xavier' } } }\n" \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'scores' bottom: 'target'\n"             \
    "  softmax_param { axis: 2 } }\n"

/* One of the eight characters has two bytes. */
enum { LENGTH = 40, SEED = 11, EVALUATIONS = 4, STEPS = 24, THREADS = 2 };

#define JOB(net, unit)                                                                \
    "name: 'texts' net { file: '" net "' } seed: 11\n"                                \
    "train_data { text { path: 'text.txt' unit: " unit " window: 4 } }\n"             \
    "test_data { text { path: 'text.txt' } }\n"                                       \
    "validation: 20 batch: 12 threads: 2 kernels: ref workers: 1\n"                   \
    "solver { type: 'SGD' base_lr: 0.5 lr_policy: 'fixed' }\n"                        \
    "evaluate { at_start: true every_steps: 8 sample_length: 40 test_records: 20 }\n" \
    "strategy { allreduce {} } stop { steps: 24 }\n"

struct shape_of_run {
    int replicas, slices;
    bool mixed; /* slices share the middle layers out */
    bool bytes; /* are the units */
};

static const struct shape_of_run alone = {1, 1, false, false};

enum { DEATHS = 6 };

#define DRAWING 0.25 /* seconds of a text, at least: a unit is six meetings of 1 ms */

static const char machines[] = "node { count: 6 } step_seconds: 0.004 link { mbit: 100\n"
                               "  latency_us: 500 }\n";

static int odd_threads; /* lines that a node has logged with others than its threads */

static void note_threads(void *user, pl_log_level level, const char *line)
{
    (void)level;
    (void)line;
    *(int *)user += kernels_threads() != THREADS;
}

static void run_with(struct tiny *t, struct sim_run *r, const struct shape_of_run *shape,
                     const char *more, const char *faults)
{
    char path[128], cluster[256], set[2][64];
    bool mixed = shape->slices > 1 && shape->mixed;
    snprintf(path, sizeof path, "%s/%s.job", t->folder, shape->bytes ? "bytes" : "texts");
    snprintf(cluster, sizeof cluster, "%s%s", machines, faults);
    snprintf(set[0], sizeof set[0], "workers=%d", shape->replicas * shape->slices);
    snprintf(set[1], sizeof set[1], "slices=%d", shape->slices);
    r->job = path;
    r->limit_s = 100;
    r->engine.log = note_threads;
    r->engine.user = &odd_threads;
    SIM_TRY(t, cluster, r, set[0], set[1], mixed ? "slices_from=b" : "seed=11",
            mixed ? "slices_to=c" : "seed=11", more);
    r->job = NULL;
}

static void expect_done(const struct sim_run *r, const char *what)
{
    if (r->rc != PL_OK)
        fail_msg("%s: %s (%s)", what, r->error, r->dir);
}

/* The nth text of a run, "" if there are fewer, and the step that it is of. */
static double find_text(const struct sim_run *r, int n, char out[4 * LENGTH + 1])
{
    cJSON *event = run_event(r->dir, "sample", NULL, NULL, n);
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(event, "text"));
    snprintf(out, 4 * LENGTH + 1, "%s", text ? text : "");
    cJSON_Delete(event);
    return run_number(r->dir, "sample", n, "step");
}

/* The text that the whole net draws with the weights that the run has left. */
static void draw_from(const struct tiny *t, const struct sim_run *r, char out[4 * LENGTH + 1])
{
    pl_engine *engine;
    pl_job *run;
    pl_net_spec *spec;
    pl_net *whole;
    const pl_net_options options = {
        .size = sizeof options, .batch = 1, .threads = 1, .kernels = "ref", .inference = true};
    const pl_net_sample_options request = {
        .size = sizeof request, .length = LENGTH, .temperature = 1, .seed = SEED};
    const char *text;
    size_t bytes;
    char path[256];
    snprintf(path, sizeof path, "%s/texts.job", t->folder);
    assert_int_equal(pl_engine_create(NULL, &engine), PL_OK);
    assert_int_equal(pl_job_load(engine, path, &run), PL_OK);
    assert_int_equal(pl_net_spec_job(run, &spec), PL_OK);
    assert_int_equal(pl_net_create(engine, spec, &options, &whole), PL_OK);
    assert_int_equal(pl_net_form_text(whole, run, NULL), PL_OK);
    snprintf(path, sizeof path, "%s/final.safetensors", r->dir);
    assert_int_equal(pl_net_load_weights(whole, path), PL_OK);
    if (pl_net_sample(whole, &request, &text, &bytes) != PL_OK)
        fail_msg("%s", pl_engine_error(engine));
    snprintf(out, 4 * LENGTH + 1, "%s", text);
    pl_net_free(whole);
    pl_net_spec_free(spec);
    pl_job_free(run);
    pl_engine_destroy(engine);
}

/* A text for each evaluation of both sets, at least so many, and the last is of the final model. */
static void expect_texts(const struct tiny *t, const struct sim_run *r, int least, const char *what)
{
    char drawn[4 * LENGTH + 1], text[4 * LENGTH + 1];
    int n = run_count(r->dir, "sample", NULL, NULL);
    if (n < least || n > EVALUATIONS || run_count(r->dir, "eval", NULL, NULL) != 2 * n)
        fail_msg("%s: %d texts (%s)", what, n, r->dir);
    double step = find_text(r, n - 1, text);
    draw_from(t, r, drawn);
    if (step != STEPS || strcmp(text, drawn) != 0)
        fail_msg("%s: behind step %g \"%s\", and of the final model \"%s\" (%s)", what, step, text,
                 drawn, r->dir);
}

static void test_slices_draw_what_the_whole_model_draws(void **state)
{
    static const struct shape_of_run shapes[] = {{1, 2, false, false},
                                                 {1, 3, false, false},
                                                 {1, 2, true, false},
                                                 {2, 2, false, false},
                                                 {2, 3, true, false}};
    struct tiny *t = *state;
    struct sim_run whole = {0};
    run_with(t, &whole, &alone, "seed=11", "");
    expect_done(&whole, "whole");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct sim_run r = {0};
        char what[64], text[2][4 * LENGTH + 1];
        snprintf(what, sizeof what, "%d x %d", shapes[i].replicas, shapes[i].slices);
        run_with(t, &r, &shapes[i], "seed=11", "");
        expect_done(&r, what);
        expect_texts(t, &r, EVALUATIONS, what);
        assert_true(find_text(&whole, 0, text[0]) == 0 && find_text(&r, 0, text[1]) == 0);
        assert_string_equal(text[0], text[1]); /* of the first weights */
    }
}

/* Most bytes are no UTF-8, and some are 0. */
static void test_slices_draw_bytes(void **state)
{
    static const struct shape_of_run shapes[] = {{1, 1, false, true}, {1, 2, false, true}};
    struct sim_run r[2] = {{0}, {0}};
    char text[2][4 * LENGTH + 1];
    for (int i = 0; i < 2; i++) {
        run_with(*state, &r[i], &shapes[i], "seed=12", "");
        expect_done(&r[i], "bytes");
        assert_true(find_text(&r[i], 0, text[i]) == 0);
    }
    assert_non_null(strstr(text[0], "\\x00"));
    assert_string_equal(text[0], text[1]);
}

/* A slice dies while a text is drawn. The evaluation is repeated, if it is the last or the replica
 * that makes it is left, alone or with a worker that stands by in the seat; else there is none. */
static void test_a_slice_dies_meanwhile(void **state)
{
    static const struct shape_of_run shape = {2, 2, false, false};
    struct tiny *t = *state;
    struct sim_run whole = {0};
    run_with(t, &whole, &shape, "seed=11", "");
    expect_done(&whole, "whole");
    int complete = 0;
    for (int i = 0; i < 2 * DEATHS; i++) {
        struct sim_run r = {0};
        char fault[64];
        double drawn = run_number(whole.dir, "sample", 1 + i % (EVALUATIONS - 1), "t");
        snprintf(fault, sizeof fault, "fault { at: %.6f kill: %d }",
                 drawn - DRAWING * (i + 0.5) / (2 * DEATHS), i % 4);
        run_with(t, &r, &shape, i < DEATHS ? "seed=11" : "standby=1", fault);
        expect_done(&r, fault);
        expect_texts(t, &r, EVALUATIONS - 1, fault);
        complete += run_count(r.dir, "sample", NULL, NULL) == EVALUATIONS;
        assert_int_equal(run_count(r.dir, "member", "what", "dead"), 1);
    }
    print_message("    %d of %d runs have all texts\n", complete, 2 * DEATHS);
    assert_true(complete >= DEATHS);
    assert_int_equal(odd_threads, 0);
}

/* Without another replica the run ends. */
static void test_the_last_replica_ends_with_its_slice(void **state)
{
    static const struct shape_of_run shape = {1, 2, false, false};
    struct tiny *t = *state;
    struct sim_run whole = {0};
    run_with(t, &whole, &shape, "seed=11", "");
    for (int i = 0; i < DEATHS; i++) {
        struct sim_run r = {0};
        char fault[64];
        double drawn = run_number(whole.dir, "sample", 1 + i % (EVALUATIONS - 1), "t");
        snprintf(fault, sizeof fault, "fault { at: %.6f kill: %d }",
                 drawn - DRAWING * (i + 0.5) / DEATHS, i % 2);
        run_with(t, &r, &shape, "seed=11", fault);
        if (r.rc != PL_ERR_PEER || !strstr(r.error, "of the model is lost"))
            fail_msg("%s: %d, \"%s\" (%s)", fault, r.rc, r.error, r.dir);
        assert_true(run_number(r.dir, "end", 0, "t") < drawn + 2);
    }
}

/* A text that is drawn without a driver is lost, as its evaluation, unless it is the last. */
static void test_the_driver_dies_meanwhile(void **state)
{
    static const struct shape_of_run shapes[] = {{1, 2, false, false}, {2, 2, false, false}};
    struct tiny *t = *state;
    int complete = 0;
    for (int i = 0; i < 2 * DEATHS; i++) {
        const struct shape_of_run *shape = &shapes[i / DEATHS];
        struct sim_run whole = {0}, r = {0};
        char fault[64];
        run_with(t, &whole, shape, "seed=11", "");
        double drawn = run_number(whole.dir, "sample", 1 + i % (EVALUATIONS - 1), "t");
        snprintf(fault, sizeof fault, "fault { at: %.6f kill: -1 for: %g }",
                 drawn - DRAWING * (i % DEATHS + 0.5) / DEATHS, i % 2 ? 0.02 : 0.15);
        run_with(t, &r, shape, "seed=11", fault);
        expect_done(&r, fault);
        expect_texts(t, &r, 2, fault);
        complete += run_count(r.dir, "sample", NULL, NULL) == EVALUATIONS;
    }
    print_message("    %d of %d runs have all texts\n", complete, 2 * DEATHS);
}

static int setup(void **state)
{
    tiny_setup(state);
    struct tiny *t = *state;
    FILE *f = tiny_open(t, "text.txt");
    for (int i = 0; i < 100; i++)
        fputs("h\u00e9llo world ", f);
    fputs("h\u00e9llo", f);
    fclose(f);
    tiny_write(t, "texts.prototxt", NET("8"));
    tiny_write(t, "texts.job", JOB("texts.prototxt", "character"));
    tiny_write(t, "bytes.prototxt", NET("256"));
    tiny_write(t, "bytes.job", JOB("bytes.prototxt", "byte"));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices_draw_what_the_whole_model_draws),
        cmocka_unit_test(test_slices_draw_bytes),
        cmocka_unit_test(test_a_slice_dies_meanwhile),
        cmocka_unit_test(test_the_last_replica_ends_with_its_slice),
        cmocka_unit_test(test_the_driver_dies_meanwhile),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
