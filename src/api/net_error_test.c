/* Every mistake in a net, its data or its weights is an error that names it; existing objects stay
 * unchanged. */
#include "paceline/net.h"
#include "paceline/sim.h"
#include "tiny_job.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct stage {
    struct tiny tiny;
    char train[512], test[512];
    pl_engine *engine;
};

static const pl_net_options quick = {
    .size = sizeof quick, .batch = 16, .threads = 1, .kernels = "ref"};

static void expect_ok(const struct stage *s, int rc)
{
    if (rc != PL_OK)
        fail_msg("%d: %s", rc, pl_engine_error(s->engine));
}

static void expect_refusal(const struct stage *s, int rc, int expected, const char *phrase)
{
    if (rc != expected || !strstr(pl_engine_error(s->engine), phrase))
        fail_msg("expected %d and \"%s\", got %d and \"%s\"", expected, phrase, rc,
                 pl_engine_error(s->engine));
}

static pl_net_spec *linear_net(const struct stage *s, uint32_t outputs)
{
    pl_net_spec *spec;
    expect_ok(s, pl_net_spec_create(s->engine, "linear", &spec));
    pl_spec_input(spec, "data", "label", 1, TINY_SIDE, TINY_SIDE);
    pl_spec_inner_product(spec, "ip", "data", outputs, NULL);
    pl_spec_softmax_loss(spec, "loss", "ip", "label");
    return spec;
}

static pl_net *make_net(const struct stage *s, pl_net_spec *spec)
{
    pl_net *net;
    expect_ok(s, pl_net_create(s->engine, spec, &quick, &net));
    pl_net_spec_free(spec);
    return net;
}

/* ---- specifications ---- */

static void no_bottom(pl_net_spec *spec)
{
    pl_spec_relu(spec, "relu", NULL);
}

static void no_name(pl_net_spec *spec)
{
    pl_spec_relu(spec, "", "data");
}

static void half_a_shape(pl_net_spec *spec)
{
    pl_spec_input(spec, "data2", "label2", 1, 0, 5);
}

static void unknown_bottom(pl_net_spec *spec)
{
    pl_spec_relu(spec, "relu", "conv9");
}

static void no_outputs(pl_net_spec *spec)
{
    pl_spec_convolution(spec, "conv", "data", 0, 3, NULL);
}

static void too_large_a_window(pl_net_spec *spec)
{
    pl_spec_convolution(spec, "conv", "data", 3, 13, NULL);
}

static void unknown_filler(pl_net_spec *spec)
{
    pl_weight_options options = PL_WEIGHT_DEFAULTS;
    options.filler = "sinc";
    pl_spec_inner_product(spec, "ip2", "data", 3, &options);
}

static void no_filler(pl_net_spec *spec)
{
    pl_weight_options options = PL_WEIGHT_DEFAULTS;
    options.filler = NULL;
    pl_spec_inner_product(spec, "ip2", "data", 3, &options);
}

static void unknown_pooling(pl_net_spec *spec)
{
    pl_spec_pooling(spec, "pool", "data", (pl_pooling)7, 2, 2);
}

static void all_dropped(pl_net_spec *spec)
{
    pl_spec_dropout(spec, "drop", "data", 1.0f);
}

static void same_name(pl_net_spec *spec)
{
    pl_spec_relu(spec, "ip", "data");
}

static void unknown_type(pl_net_spec *spec)
{
    pl_spec_layer(spec, "name: 'x' type: 'Oracle' bottom: 'data' top: 'x'");
}

static void broken_text(pl_net_spec *spec)
{
    pl_spec_layer(spec, "name: 'x' tipe: 'ReLU'");
}

static void first_of_two(pl_net_spec *spec)
{
    pl_spec_relu(spec, "first", NULL);
    pl_spec_relu(spec, "second", NULL);
    pl_spec_layer(spec, "]");
}

static void test_a_wrong_layer_is_named(void **state)
{
    const struct stage *s = *state;
    static const struct {
        void (*spoil)(pl_net_spec *spec);
        int status;
        const char *phrase;
    } cases[] = {
        {no_bottom, PL_ERR_INPUT, "layer \"relu\": its bottom is missing"},
        {no_name, PL_ERR_INPUT, "layer 4 has no name"},
        {half_a_shape, PL_ERR_INPUT, "layer \"data2\": records of 1 channels, 0 rows"},
        {unknown_bottom, PL_ERR_INPUT, "layer \"relu\": bottom \"conv9\""},
        {no_outputs, PL_ERR_INPUT, "layer \"conv\""},
        {too_large_a_window, PL_ERR_INPUT, "layer \"conv\""},
        {unknown_filler, PL_ERR_UNSUPPORTED, "layer \"ip2\": "},
        {no_filler, PL_ERR_INPUT, "layer \"ip2\": the weights have no filler"},
        {unknown_pooling, PL_ERR_INPUT, "layer \"pool\": there is no pooling 7"},
        {all_dropped, PL_ERR_INPUT, "layer \"drop\""},
        {same_name, PL_ERR_INPUT, "layer \"ip\": another layer has the same name"},
        {unknown_type, PL_ERR_UNSUPPORTED, "layer \"x\": type \"Oracle\""},
        {broken_text, PL_ERR_INPUT, "layer 4:1:11: "},
        {first_of_two, PL_ERR_INPUT, "layer \"first\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_net *net = NULL;
        pl_net_spec *spec = linear_net(s, 3);
        cases[i].spoil(spec);
        expect_refusal(s, pl_net_create(s->engine, spec, &quick, &net), cases[i].status,
                       cases[i].phrase);
        assert_null(net);
        pl_net_spec_free(spec);
    }
}

static void test_a_spoiled_specification_is_no_jobs_net(void **state)
{
    const struct stage *s = *state;
    pl_job *job;
    expect_ok(s, pl_job_create(s->engine, &job));
    pl_net_spec *spec = linear_net(s, 3);
    no_bottom(spec);
    expect_refusal(s, pl_job_set_net(job, spec), PL_ERR_INPUT, "layer \"relu\"");
    pl_net_spec_free(spec);
    expect_refusal(s, pl_net_spec_job(job, &spec), PL_ERR_INPUT, "net: is missing");
    expect_refusal(s, pl_net_spec_zoo(s->engine, "lenot", &spec), PL_ERR_INPUT, "lenet");
    expect_refusal(s, pl_net_spec_load(s->engine, "/nowhere.prototxt", &spec), PL_ERR_INPUT,
                   "/nowhere");
    pl_job_free(job);
}

static void test_wrong_options_are_named(void **state)
{
    const struct stage *s = *state;
    static const struct {
        pl_net_options options;
        int status;
        const char *phrase;
    } cases[] = {
        {{.batch = 65537}, PL_ERR_INPUT, "batch"},
        {{.threads = 1025}, PL_ERR_INPUT, "threads"},
        {{.kernels = "abacus"}, PL_ERR_USAGE, "kernels"},
        {{.precision = "f16"}, PL_ERR_USAGE, "precision"},
        {{.precision = "bf16", .kernels = "ref"}, PL_ERR_UNSUPPORTED, "precision"},
        {{.solver = "base_lr: 0.1"}, PL_ERR_INPUT, "lr_policy"},
        {{.solver = "base_lr: 0.1 lr_policy: 'fixed' momentum: 2"}, PL_ERR_INPUT, "momentum"},
        {{.solver = "base_lr: x"}, PL_ERR_INPUT, "solver:1:10"},
        {{.solver = "net: 'a' base_lr: 0.1 lr_policy: 'fixed'"}, PL_ERR_INPUT, "solver.net"},
        {{.solver = "type: 'Wish' base_lr: 1 lr_policy: 'fixed'"}, PL_ERR_UNSUPPORTED, "Wish"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_net *net = NULL;
        pl_net_spec *spec = linear_net(s, 3);
        pl_net_options options = cases[i].options;
        options.size = sizeof options;
        expect_refusal(s, pl_net_create(s->engine, spec, &options, &net), cases[i].status,
                       cases[i].phrase);
        pl_net_spec_free(spec);
    }
}

/* ---- data ---- */

static void test_without_data_is_an_error(void **state)
{
    const struct stage *s = *state;
    pl_test_result result;
    double loss;
    pl_net *net = make_net(s, linear_net(s, 3));
    expect_refusal(s, pl_net_train(net, 1, &loss), PL_ERR_USAGE, "no training data");
    expect_refusal(s, pl_net_test(net, 1, &result), PL_ERR_USAGE, "no validation data");
    expect_ok(s, pl_net_set_validation_data(net, s->test, 0, 1));
    expect_ok(s, pl_net_test(net, 0, &result));
    assert_true(result.error >= 0 && result.error <= 1); /* by the scores of its loss */
    assert_true(isfinite(result.loss));
    expect_refusal(s, pl_net_train(net, 1, &loss), PL_ERR_USAGE, "no training data");
    pl_net_free(net);
}

/* LeNet leaves the shape of its records to them. */
static void test_a_net_takes_form_with_its_data(void **state)
{
    const struct stage *s = *state;
    static const char net_text[] =
        "layer { name: 'in' type: 'Input' top: 'data' top: 'label' }\n"
        "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'\n"
        "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
        "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'l' }\n";
    char path[128];
    struct tiny tiny = s->tiny;
    pl_net_spec *spec;
    pl_weights w;
    tiny_write(&tiny, "shapeless.prototxt", net_text);
    snprintf(path, sizeof path, "%s/shapeless.prototxt", tiny.folder);
    expect_ok(s, pl_net_spec_load(s->engine, path, &spec));
    pl_net *net = make_net(s, spec);
    assert_int_equal(pl_net_weights_count(net), 0);
    expect_refusal(s, pl_net_weights(net, "ip", 0, &w), PL_ERR_USAGE, "shape of its records");
    expect_refusal(s, pl_net_load_weights(net, path), PL_ERR_USAGE, "shape of its records");
    expect_ok(s, pl_net_set_validation_data(net, s->test, 0, 1));
    expect_ok(s, pl_net_weights(net, "ip", 0, &w));
    assert_int_equal(w.shape[1], TINY_SIDE * TINY_SIDE);
    pl_net_free(net);
    expect_ok(s, pl_net_spec_zoo(s->engine, "lenet", &spec));
    net = make_net(s, spec);
    expect_refusal(s, pl_net_set_training_data(net, s->train, 0, 1), PL_ERR_INPUT,
                   "layer \"conv2\"");
    expect_refusal(s, pl_net_weights(net, "ip1", 0, &w), PL_ERR_USAGE, "shape of its records");
    pl_net_free(net);
}

static void test_data_that_does_not_fit_is_refused(void **state)
{
    const struct stage *s = *state;
    pl_net *net = make_net(s, linear_net(s, 2)), *other;
    pl_net_spec *spec;
    expect_refusal(s, pl_net_set_training_data(net, s->train, 0, 1), PL_ERR_INPUT,
                   "train: label 2 is out of range: the net has 2 classes");
    expect_refusal(s, pl_net_set_training_data(net, "idx:/nowhere,/nothing", 0, 1), PL_ERR_INPUT,
                   "/nowhere");
    expect_refusal(s, pl_net_set_training_data(net, "tapes:/nowhere", 0, 1), PL_ERR_USAGE, "tapes");
    assert_int_equal(pl_net_training_records(net), 0);
    pl_net_free(net);
    expect_ok(s, pl_net_spec_create(s->engine, "wide", &spec));
    pl_spec_input(spec, "data", "label", 1, 28, 28);
    pl_spec_inner_product(spec, "ip", "data", 3, NULL);
    pl_spec_softmax_loss(spec, "loss", "ip", "label");
    other = make_net(s, spec);
    expect_refusal(s, pl_net_set_validation_data(other, s->test, 0, 1), PL_ERR_INPUT,
                   "records are 1x12x12, the net is made for 784 numbers each");
    pl_net_free(other);
}

static void test_a_loss_that_is_no_number_ends_training(void **state)
{
    const struct stage *s = *state;
    pl_net *net = make_net(s, linear_net(s, 3));
    pl_weights w;
    expect_ok(s, pl_net_set_training_data(net, s->train, 0, 1));
    expect_ok(s, pl_net_weights(net, "ip", 1, &w));
    w.at[1] = NAN;
    expect_refusal(s, pl_net_train(net, 5, NULL), PL_ERR_DIVERGED, "step 1 of 5");
    w.at[1] = 0;
    expect_ok(s, pl_net_train(net, 5, NULL));
    pl_net_free(net);
}

/* ---- weights ---- */

static void test_weights_that_are_not_there(void **state)
{
    const struct stage *s = *state;
    pl_net *net = make_net(s, linear_net(s, 3));
    pl_weights w;
    expect_refusal(s, pl_net_weights(net, "ip", 2, &w), PL_ERR_NOT_FOUND, "layer \"ip\"");
    expect_refusal(s, pl_net_weights(net, "ip3", 0, &w), PL_ERR_NOT_FOUND, "layer \"ip3\"");
    expect_refusal(s, pl_net_weights_at(net, 2, &w), PL_ERR_NOT_FOUND, "the net has 2");
    pl_net_free(net);
}

static void test_weights_go_through_a_file(void **state)
{
    const struct stage *s = *state;
    char path[128];
    pl_test_result before, after;
    pl_net *a = make_net(s, linear_net(s, 3)), *b = make_net(s, linear_net(s, 3));
    expect_ok(s, pl_net_set_training_data(a, s->train, 0, 1));
    expect_ok(s, pl_net_set_validation_data(a, s->test, 0, 1));
    expect_ok(s, pl_net_set_validation_data(b, s->test, 0, 1));
    expect_ok(s, pl_net_train(a, 30, NULL));
    snprintf(path, sizeof path, "%s/a.safetensors", s->tiny.folder);
    expect_ok(s, pl_net_save_weights(a, path));
    expect_ok(s, pl_net_load_weights(b, path));
    expect_ok(s, pl_net_test(a, 0, &before));
    expect_ok(s, pl_net_test(b, 0, &after));
    assert_true(before.loss == after.loss);
    pl_net *four = make_net(s, linear_net(s, 4));
    expect_refusal(s, pl_net_load_weights(four, path), PL_ERR_INPUT,
                   "tensor joint/ip.0 is 3x144, the net has 4x144");
    pl_net_spec *spec = linear_net(s, 3);
    pl_spec_inner_product(spec, "more", "data", 3, NULL);
    pl_net *more = make_net(s, spec);
    pl_weights w;
    expect_ok(s, pl_net_weights(more, "ip", 0, &w));
    float first = w.at[0];
    expect_refusal(s, pl_net_load_weights(more, path), PL_ERR_INPUT, "has no tensor joint/more.0");
    assert_true(w.at[0] == first);
    expect_refusal(s, pl_net_load_weights(a, s->tiny.job), PL_ERR_INPUT, "tiny.job");
    expect_refusal(s, pl_net_load_weights(a, "/nowhere"), PL_ERR_INPUT, "/nowhere");
    expect_refusal(s, pl_net_save_weights(a, "/nowhere/at/all"), PL_ERR_IO, "/nowhere");
    pl_net_free(a);
    pl_net_free(b);
    pl_net_free(four);
    pl_net_free(more);
}

/* The final model of a run, tested, has the errors that the run reported. */
static void test_a_runs_final_model_can_be_tested(void **state)
{
    struct stage *s = *state;
    char out[128], path[256];
    pl_job *job;
    pl_cluster *cluster;
    pl_run_report report;
    pl_net_spec *spec;
    pl_test_result result;
    tiny_cluster(&s->tiny, "node { count: 4 } step_seconds: 0.004\n");
    expect_ok(s, pl_job_load(s->engine, s->tiny.job, &job));
    expect_ok(s, pl_cluster_load(s->engine, s->tiny.cluster, &cluster));
    const pl_sim_options options = {
        .size = sizeof options,
        .run = &(pl_run_options){.size = sizeof(pl_run_options), .out = tiny_out(&s->tiny, out)}};
    expect_ok(s, pl_sim(s->engine, job, cluster, &options, &report));
    expect_ok(s, pl_net_spec_job(job, &spec));
    pl_net *net = make_net(s, spec);
    expect_ok(s, pl_net_set_validation_data_of(net, job));
    snprintf(path, sizeof path, "%s/final.safetensors", out);
    expect_ok(s, pl_net_load_weights(net, path));
    expect_ok(s, pl_net_test(net, 0, &result));
    assert_true(result.error == report.test_error && result.loss == report.test_loss);
    assert_int_equal(result.count, TINY_TEST);
    pl_net_free(net);
    pl_cluster_free(cluster);
    pl_job_free(job);
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
        cmocka_unit_test(test_a_wrong_layer_is_named),
        cmocka_unit_test(test_a_spoiled_specification_is_no_jobs_net),
        cmocka_unit_test(test_wrong_options_are_named),
        cmocka_unit_test(test_without_data_is_an_error),
        cmocka_unit_test(test_a_net_takes_form_with_its_data),
        cmocka_unit_test(test_data_that_does_not_fit_is_refused),
        cmocka_unit_test(test_a_loss_that_is_no_number_ends_training),
        cmocka_unit_test(test_weights_that_are_not_there),
        cmocka_unit_test(test_weights_go_through_a_file),
        cmocka_unit_test(test_a_runs_final_model_can_be_tested),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
