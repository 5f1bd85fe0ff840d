/* The net API: the same net whether built or read, weights without a copy, data in parts, and no
 * leaks. */
#include "api/net.h"
#include "data/reading.h"
#include "paceline/sim.h"
#include "tiny_job.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const pl_net_options quick = {
    .size = sizeof quick,
    .batch = 16,
    .solver = "base_lr: 0.05 momentum: 0.9 weight_decay: 0.0005 lr_policy: 'fixed'",
    .threads = 1,
    .kernels = "ref",
};

struct stage {
    struct tiny tiny;
    char train[512], test[512], prototxt[128];
    pl_engine *engine;
};

static void expect_ok(const struct stage *s, int rc)
{
    if (rc != PL_OK)
        fail_msg("%d: %s", rc, pl_engine_error(s->engine));
}

/* tiny_net, by calls. */
static pl_net_spec *built_spec(const struct stage *s)
{
    pl_net_spec *spec;
    expect_ok(s, pl_net_spec_create(s->engine, "tiny", &spec));
    pl_convolution_options conv = PL_CONVOLUTION_DEFAULTS;
    pl_weight_options inner = PL_WEIGHT_DEFAULTS;
    inner.bias_rate = 1;
    conv.weights = &inner;
    pl_spec_input(spec, "data", "label", 1, TINY_SIDE, TINY_SIDE);
    pl_spec_convolution(spec, "conv", "data", 6, 3, &conv);
    pl_spec_pooling(spec, "pool", "conv", PL_POOL_MAX, 2, 2);
    pl_spec_relu(spec, "relu", "pool");
    pl_spec_inner_product(spec, "ip", "relu", TINY_CLASSES, &inner);
    pl_spec_accuracy(spec, "accuracy", "ip", "label");
    pl_spec_softmax_loss(spec, "loss", "ip", "label");
    return spec;
}

static pl_net_spec *read_spec(const struct stage *s)
{
    pl_net_spec *spec;
    expect_ok(s, pl_net_spec_load(s->engine, s->prototxt, &spec));
    return spec;
}

/* A net of the specification, which is taken, with all data. */
static pl_net *make_with(const struct stage *s, pl_net_spec *spec, const pl_net_options *options)
{
    pl_net *net;
    expect_ok(s, pl_net_create(s->engine, spec, options, &net));
    expect_ok(s, pl_net_set_training_data(net, s->train, 0, 1));
    expect_ok(s, pl_net_set_validation_data(net, s->test, 0, 1));
    pl_net_spec_free(spec);
    return net;
}

static pl_net *make_net(const struct stage *s, pl_net_spec *spec)
{
    return make_with(s, spec, &quick);
}

static pl_weights weights_of(const struct stage *s, pl_net *net, const char *layer, uint32_t index)
{
    pl_weights w;
    expect_ok(s, pl_net_weights(net, layer, index, &w));
    return w;
}

static void assert_same_weights(const struct stage *s, pl_net *a, pl_net *b)
{
    float *x, *y;
    size_t n, m;
    expect_ok(s, pl_net_all_weights(a, &x, &n));
    expect_ok(s, pl_net_all_weights(b, &y, &m));
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n * sizeof *x);
}

static void test_built_or_read_it_is_one_net(void **state)
{
    const struct stage *s = *state;
    pl_net *built = make_net(s, built_spec(s)), *read = make_net(s, read_spec(s));
    assert_same_weights(s, built, read);
    expect_ok(s, pl_net_train(built, 10, NULL));
    expect_ok(s, pl_net_train(read, 10, NULL));
    assert_same_weights(s, built, read);
    pl_net_free(built);
    pl_net_free(read);
}

static double simulated_loss(struct stage *s, pl_job *job)
{
    char out[128];
    pl_cluster *cluster;
    pl_run_report report;
    tiny_cluster(&s->tiny, "node { count: 4 } step_seconds: 0.004 link { mbit: 100 }\n");
    expect_ok(s, pl_cluster_load(s->engine, s->tiny.cluster, &cluster));
    const pl_sim_options options = {
        .size = sizeof options,
        .run = &(pl_run_options){.size = sizeof(pl_run_options), .out = tiny_out(&s->tiny, out)}};
    expect_ok(s, pl_sim(s->engine, job, cluster, &options, &report));
    pl_cluster_free(cluster);
    return report.test_loss;
}

/* The job's text, defaults and all, carries the net: workers read it from there. */
static void test_a_built_net_is_a_jobs_net(void **state)
{
    struct stage *s = *state;
    pl_job *job;
    expect_ok(s, pl_job_load(s->engine, s->tiny.job, &job));
    double from_file = simulated_loss(s, job);
    pl_net_spec *spec = built_spec(s);
    expect_ok(s, pl_job_set_net(job, spec));
    pl_net_spec_free(spec);
    assert_true(simulated_loss(s, job) == from_file);
    expect_ok(s, pl_net_spec_job(job, &spec));
    pl_net *net = make_net(s, spec), *same = make_net(s, built_spec(s));
    assert_same_weights(s, net, same);
    pl_net_free(same);
    pl_net_free(net);
    pl_job_free(job);
}

/* The caller's OpenMP regions have as many threads after a call as before it, however many the net
 * was given, and also where the call fails. */
static void test_net_calls_leave_the_callers_threads(void **state)
{
    const struct stage *s = *state;
    float records[16 * TINY_SIDE * TINY_SIDE] = {0}, out[16 * TINY_CLASSES];
    size_t each;
    pl_test_result result;
    kernels_set_threads(3);
    pl_net *net = make_net(s, built_spec(s));
    assert_int_equal(kernels_threads(), 3);
    expect_ok(s, pl_net_train(net, 1, NULL));
    assert_int_equal(kernels_threads(), 3);
    expect_ok(s, pl_net_test(net, 1, &result));
    assert_int_equal(kernels_threads(), 3);
    expect_ok(s, pl_net_forward(net, records, 16, "ip", out, 16 * TINY_CLASSES, &each));
    assert_int_equal(kernels_threads(), 3);
    assert_int_equal(pl_net_forward(net, records, 16, "none", out, 1, &each), PL_ERR_USAGE);
    assert_int_equal(kernels_threads(), 3);
    pl_net_free(net);
    kernels_set_threads(1);
}

static void test_training_lowers_the_loss(void **state)
{
    const struct stage *s = *state;
    pl_net *net = make_net(s, built_spec(s));
    double first, last;
    pl_test_result before, after, some;
    expect_ok(s, pl_net_test(net, 0, &before));
    expect_ok(s, pl_net_train(net, 10, &first));
    expect_ok(s, pl_net_train(net, 90, NULL));
    expect_ok(s, pl_net_train(net, 10, &last));
    expect_ok(s, pl_net_test(net, 0, &after));
    assert_true(last < first / 2);
    assert_true(after.loss < before.loss / 2 && after.error < 0.1);
    assert_int_equal(after.count, TINY_TEST);
    expect_ok(s, pl_net_test(net, 2, &some));
    assert_int_equal(some.count, 2 * quick.batch);
    expect_ok(s, pl_net_test(net, UINT64_MAX, &some));
    assert_int_equal(some.count, TINY_TEST);
    pl_net_free(net);
}

/* Without weights in its last layer a net finds all classes equally likely: a loss of ln 3. */
static void check_writing(const struct stage *s, const char *kernels)
{
    pl_net_options options = quick;
    options.kernels = kernels;
    pl_net *net = make_with(s, built_spec(s), &options);
    expect_ok(s, pl_net_train(net, 50, NULL));
    pl_test_result trained, blank, again;
    expect_ok(s, pl_net_test(net, 0, &trained));
    pl_weights w = weights_of(s, net, "ip", 0), b = weights_of(s, net, "ip", 1);
    assert_int_equal(w.dims, 2);
    assert_int_equal(w.shape[0], TINY_CLASSES);
    assert_int_equal(w.shape[1], 6 * 5 * 5);
    assert_int_equal(w.count, TINY_CLASSES * 6 * 5 * 5);
    assert_int_equal(b.count, TINY_CLASSES);
    float *kept = malloc((w.count + b.count) * sizeof *kept);
    memcpy(kept, w.at, w.count * sizeof *kept);
    memcpy(kept + w.count, b.at, b.count * sizeof *kept);
    memset(w.at, 0, w.count * sizeof *w.at);
    memset(b.at, 0, b.count * sizeof *b.at);
    expect_ok(s, pl_net_test(net, 0, &blank));
    assert_true(fabs(blank.loss - log(3)) < 1e-6);
    assert_true(blank.loss > 2 * trained.loss);
    memcpy(w.at, kept, w.count * sizeof *kept);
    memcpy(b.at, kept + w.count, b.count * sizeof *kept);
    expect_ok(s, pl_net_test(net, 0, &again));
    assert_true(again.loss == trained.loss && again.error == trained.error);
    free(kept);
    pl_net_free(net);
}

static void test_what_is_written_to_a_view_is_computed_with(void **state)
{
    check_writing(*state, "ref");
    check_writing(*state, "dnnl");
}

static void test_a_view_sees_training(void **state)
{
    const struct stage *s = *state;
    pl_net *net = make_net(s, built_spec(s));
    pl_weights w = weights_of(s, net, "conv", 0);
    float before = w.at[0];
    expect_ok(s, pl_net_train(net, 1, NULL));
    assert_true(w.at[0] != before);
    assert_ptr_equal(weights_of(s, net, "conv", 0).at, w.at);
    pl_net_free(net);
}

/* Every view is in the vector, without overlap, and the padding between them is zero. */
static void test_views_are_pieces_of_the_vector(void **state)
{
    const struct stage *s = *state;
    static const struct {
        const char *layer;
        uint32_t index;
        size_t count;
    } expected[] = {{"conv", 0, 54}, {"conv", 1, 6}, {"ip", 0, 450}, {"ip", 1, 3}};
    pl_net *net = make_net(s, built_spec(s));
    float *x;
    size_t n, covered = 0;
    expect_ok(s, pl_net_train(net, 5, NULL));
    expect_ok(s, pl_net_all_weights(net, &x, &n));
    assert_int_equal(pl_net_weights_count(net), 4);
    bool *seen = calloc(n, sizeof *seen);
    for (size_t i = 0; i < 4; i++) {
        pl_weights w;
        expect_ok(s, pl_net_weights_at(net, i, &w));
        assert_string_equal(w.layer, expected[i].layer);
        assert_int_equal(w.index, expected[i].index);
        assert_int_equal(w.count, expected[i].count);
        assert_true(w.at >= x && w.at + w.count <= x + n);
        for (size_t k = 0; k < w.count; k++) {
            assert_false(seen[(size_t)(w.at - x) + k]);
            seen[(size_t)(w.at - x) + k] = true;
        }
        covered += w.count;
    }
    for (size_t i = 0; i < n; i++)
        assert_true(seen[i] || x[i] == 0.0f);
    assert_int_equal(covered, 513);
    free(seen);
    pl_net_free(net);
}

static void test_parts_are_apart_and_cover_everything(void **state)
{
    const struct stage *s = *state;
    enum { PARTS = 7 };
    int seen[TINY_TRAIN] = {0};
    pl_net *net = make_net(s, built_spec(s));
    for (uint32_t part = 0; part < PARTS; part++) {
        expect_ok(s, pl_net_set_training_data(net, s->train, part, PARTS));
        const struct dataset *set = &net->corpus.set[SET_TRAIN];
        assert_int_equal(pl_net_training_records(net), set->count);
        assert_in_range(set->count, TINY_TRAIN / PARTS, TINY_TRAIN / PARTS + 1);
        float pixels[TINY_SIDE * TINY_SIDE];
        for (size_t i = 0; i < set->count; i++) {
            uint32_t label;
            uint64_t record;
            read_plain(set, i, pixels, &label, &record);
            assert_in_range(record, part * TINY_TRAIN / PARTS, (part + 1) * TINY_TRAIN / PARTS);
            seen[record]++;
        }
        expect_ok(s, pl_net_train(net, 1, NULL));
    }
    for (size_t i = 0; i < TINY_TRAIN; i++)
        assert_int_equal(seen[i], 1);
    assert_int_equal(pl_net_set_training_data(net, s->train, 7, 7), PL_ERR_USAGE);
    assert_int_equal(pl_net_set_training_data(net, s->train, 0, 0), PL_ERR_USAGE);
    assert_int_equal(pl_net_set_training_data(net, s->train, 0, TINY_TRAIN + 1), PL_ERR_INPUT);
    assert_non_null(strstr(pl_engine_error(s->engine), "none of 600 records"));
    assert_int_equal(pl_net_training_records(net), 86); /* of the last part */
    expect_ok(s, pl_net_train(net, 20, NULL));
    pl_net_free(net);
}

/* Nets take turns without noticing each other, and share the bytes of their data. */
static void test_two_nets_live_in_one_engine(void **state)
{
    const struct stage *s = *state;
    pl_net *alone = make_net(s, built_spec(s));
    expect_ok(s, pl_net_train(alone, 10, NULL));
    pl_net *a = make_net(s, built_spec(s)), *b = make_net(s, read_spec(s));
    assert_ptr_equal(a->source[SET_TRAIN]->source, b->source[SET_TRAIN]->source);
    for (int i = 0; i < 10; i++) {
        expect_ok(s, pl_net_train(a, 1, NULL));
        expect_ok(s, pl_net_train(b, 1, NULL));
    }
    assert_same_weights(s, a, alone);
    assert_same_weights(s, b, alone);
    pl_net_free(alone);
    pl_net_free(a);
    expect_ok(s, pl_net_train(b, 1, NULL));
    pl_net_free(b);
    assert_null(s->engine->sources);
}

/* More records than a batch, fewer than two. Without weights the scores are the biases. */
static void test_scores_of_given_records(void **state)
{
    const struct stage *s = *state;
    enum { RECORDS = 21, FLOATS = TINY_SIDE * TINY_SIDE };
    pl_net *net;
    pl_net_spec *spec = built_spec(s);
    expect_ok(s, pl_net_create(s->engine, spec, &quick, &net));
    pl_net_spec_free(spec);
    pl_weights w = weights_of(s, net, "ip", 0), b = weights_of(s, net, "ip", 1);
    memset(w.at, 0, w.count * sizeof *w.at);
    for (int c = 0; c < TINY_CLASSES; c++)
        b.at[c] = (float)(c + 1);
    float *records = calloc(RECORDS * FLOATS, sizeof *records);
    float scores[RECORDS * TINY_CLASSES];
    size_t each = 0, room = RECORDS * TINY_CLASSES;
    expect_ok(s, pl_net_forward(net, records, RECORDS, "ip", scores, room, &each));
    assert_int_equal(each, TINY_CLASSES);
    for (int i = 0; i < RECORDS * TINY_CLASSES; i++)
        assert_true(scores[i] == (float)(i % TINY_CLASSES + 1));
    assert_int_equal(pl_net_forward(net, records, RECORDS, "ip", scores, room - 1, &each),
                     PL_ERR_USAGE);
    assert_int_equal(pl_net_forward(net, records, RECORDS, "no", scores, room, &each),
                     PL_ERR_USAGE);
    assert_int_equal(pl_net_forward(net, records, RECORDS, "loss", scores, room, &each),
                     PL_ERR_USAGE);
    records[FLOATS + 5] = NAN;
    assert_int_equal(pl_net_forward(net, records, RECORDS, "ip", scores, room, &each),
                     PL_ERR_INPUT);
    assert_string_equal(pl_engine_error(s->engine), "record 1: value 5 is not a finite number");
    free(records);
    pl_net_free(net);
}

/* An Accuracy's second top has a number for each class, and none for a record. */
static void test_values_without_records(void **state)
{
    const struct stage *s = *state;
    enum { FLOATS = TINY_SIDE * TINY_SIDE };
    static const char text[] =
        "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
        "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'\n"
        "  inner_product_param { num_output: 3 } }\n"
        "layer { name: 'a' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'a' top: 'each' }\n"
        "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";
    char path[160];
    snprintf(path, sizeof path, "%s.each", s->prototxt);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fwrite(text, 1, strlen(text), f);
    assert_int_equal(fclose(f), 0);
    pl_net_spec *spec;
    pl_net *net;
    expect_ok(s, pl_net_spec_load(s->engine, path, &spec));
    expect_ok(s, pl_net_create(s->engine, spec, &quick, &net));
    expect_ok(s, pl_net_set_training_data(net, s->train, 0, 1));
    float *records = calloc(2 * FLOATS, sizeof *records);
    float out[2 * TINY_CLASSES];
    size_t each;
    expect_ok(s, pl_net_forward(net, records, 2, "ip", out, 2 * TINY_CLASSES, &each));
    assert_int_equal(pl_net_forward(net, records, 2, "each", out, 2 * TINY_CLASSES, &each),
                     PL_ERR_USAGE);
    assert_non_null(strstr(pl_engine_error(s->engine), "of the whole batch"));
    free(records);
    pl_net_spec_free(spec);
    pl_net_free(net);
    assert_int_equal(remove(path), 0);
}

/* It gives the same blobs as a net for training, in any order of requests.
 */
static void test_inference(void **state)
{
    const struct stage *s = *state;
    enum { RECORDS = 3, FLOATS = TINY_SIDE * TINY_SIDE, MAX = RECORDS * 6 * FLOATS };
    static const char *const asked[] = {"ip", "conv", "relu", "ip", "data", "conv"};
    static float out[2][MAX];
    pl_net_options options = quick;
    pl_test_result result[2];
    options.inference = true;
    pl_net *both[] = {make_net(s, built_spec(s)), NULL};
    pl_net_spec *spec = built_spec(s);
    expect_ok(s, pl_net_create(s->engine, spec, &options, &both[1]));
    pl_net_spec_free(spec);
    float *x[2], *records = calloc(RECORDS * FLOATS, sizeof *records);
    size_t n[2];
    for (int i = 0; i < 2; i++)
        expect_ok(s, pl_net_all_weights(both[i], &x[i], &n[i]));
    assert_int_equal(n[0], n[1]);
    for (size_t i = 0; i < n[0]; i++) {
        assert_true(x[1][i] == 0);
        x[1][i] = x[0][i];
    }
    for (int i = 0; i < RECORDS * FLOATS; i++)
        records[i] = (float)(i * 37 % 101) / 101;
    for (size_t k = 0; k < sizeof asked / sizeof *asked; k++) {
        size_t each[2] = {0};
        for (int i = 0; i < 2; i++)
            expect_ok(s,
                      pl_net_forward(both[i], records, RECORDS, asked[k], out[i], MAX, &each[i]));
        assert_int_equal(each[0], each[1]);
        assert_memory_equal(out[0], out[1], RECORDS * each[0] * sizeof(float));
    }
    expect_ok(s, pl_net_set_validation_data(both[1], s->test, 0, 1));
    for (int i = 0; i < 2; i++)
        expect_ok(s, pl_net_test(both[i], 0, &result[i]));
    assert_true(result[0].error == result[1].error && result[0].loss == result[1].loss);
    expect_ok(s, pl_net_set_training_data(both[1], s->train, 0, 1));
    assert_int_equal(pl_net_train(both[1], 1, NULL), PL_ERR_USAGE);
    expect_ok(s, pl_net_train(both[0], 1, NULL));
    free(records);
    pl_net_free(both[0]);
    pl_net_free(both[1]);
}

static int count_entries(const char *path)
{
    int n = 0;
    DIR *dir = opendir(path);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static long resident_kb(void)
{
    char line[256];
    long kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, f))
        sscanf(line, "VmRSS: %ld", &kb);
    fclose(f);
    return kb;
}

static void live_and_die(const struct stage *s)
{
    struct stage mine = *s;
    pl_job *job;
    assert_int_equal(pl_engine_create(NULL, &mine.engine), PL_OK);
    pl_net *net = make_net(&mine, built_spec(&mine));
    expect_ok(&mine, pl_job_load(mine.engine, mine.tiny.job, &job));
    expect_ok(&mine, pl_net_train(net, 2, NULL));
    pl_net_free(net);
    pl_job_free(job);
    pl_engine_destroy(mine.engine);
}

static void test_a_hundred_nets_leak_nothing(void **state)
{
    const struct stage *s = *state;
    for (int i = 0; i < 5; i++)
        live_and_die(s);
    int fds = count_entries("/proc/self/fd"), tasks = count_entries("/proc/self/task");
    long kb = resident_kb();
    for (int i = 0; i < 100; i++)
        live_and_die(s);
    assert_int_equal(count_entries("/proc/self/fd"), fds);
    assert_int_equal(count_entries("/proc/self/task"), tasks);
#if !defined(__SANITIZE_ADDRESS__) /* keeps freed memory to watch it */
    assert_in_range(resident_kb(), 0, kb + 512);
#else
    (void)kb;
#endif
}

static int setup(void **state)
{
    static struct stage s;
    tiny_create(&s.tiny);
    const char *folder = s.tiny.folder;
    snprintf(s.train, sizeof s.train, "idx:%s/train-images,%s/train-labels?scale=0.00390625",
             folder, folder);
    snprintf(s.test, sizeof s.test, "idx:%s/test-images,%s/test-labels?scale=0.00390625", folder,
             folder);
    snprintf(s.prototxt, sizeof s.prototxt, "%s/net.prototxt", folder);
    *state = &s;
    return pl_engine_create(NULL, &s.engine);
}

static int teardown(void **state)
{
    struct stage *s = *state;
    pl_engine_destroy(s->engine);
    tiny_remove(&s->tiny);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_built_or_read_it_is_one_net),
        cmocka_unit_test(test_a_built_net_is_a_jobs_net),
        cmocka_unit_test(test_net_calls_leave_the_callers_threads),
        cmocka_unit_test(test_training_lowers_the_loss),
        cmocka_unit_test(test_what_is_written_to_a_view_is_computed_with),
        cmocka_unit_test(test_a_view_sees_training),
        cmocka_unit_test(test_views_are_pieces_of_the_vector),
        cmocka_unit_test(test_parts_are_apart_and_cover_everything),
        cmocka_unit_test(test_two_nets_live_in_one_engine),
        cmocka_unit_test(test_scores_of_given_records),
        cmocka_unit_test(test_values_without_records),
        cmocka_unit_test(test_inference),
        cmocka_unit_test(test_a_hundred_nets_leak_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
