/* Predictions that can be computed by hand: a net that passes its three inputs on. */
#include "paceline/predict.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "folder.h"

static const pl_net_options quick = {
    .size = sizeof quick, .batch = 2, .threads = 1, .kernels = "ref"};

static void expect_ok(pl_engine *engine, int rc)
{
    if (rc != PL_OK)
        fail_msg("%d: %s", rc, pl_engine_error(engine));
}

/* The net of that text, completed, with the identity as layer `ip`. */
static pl_net *make_net(pl_engine *engine, const char *text)
{
    struct folder folder;
    char path[256];
    pl_net_spec *spec;
    pl_net *net;
    pl_weights weights;
    bool lossless;
    folder_make(&folder);
    folder_put(&folder, "net.prototxt", text, strlen(text));
    expect_ok(engine, pl_net_spec_load(engine, folder_file(&folder, "net.prototxt", path), &spec));
    expect_ok(engine, pl_net_spec_judge(spec, &lossless));
    expect_ok(engine, pl_net_create(engine, spec, &quick, &net));
    expect_ok(engine, pl_net_form(net, 3, 1, 1));
    expect_ok(engine, pl_net_weights(net, "ip", 0, &weights));
    assert_int_equal(weights.count, 9);
    for (size_t i = 0; i < 9; i++)
        weights.at[i] = i % 4 == 0 ? 1 : 0;
    pl_net_spec_free(spec);
    folder_remove(&folder);
    return net;
}

#define DATA "layer { name: 'data' type: 'Data' top: 'data' top: 'label' } "
#define IP                                                              \
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' " \
    "inner_product_param { num_output: 3 } } "
#define LOSS \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' } "
#define PROB "layer { name: 'prob' type: 'Softmax' bottom: 'ip' top: 'prob' } "

/* Of scores log 1, log 2, log 5 the softmax is 1/8, 2/8, 5/8; the second record's are all equal,
 * the third's so large that their exponentials overflow. */
static void test_probabilities(void **state)
{
    pl_engine *engine = *state;
    static const char *const nets[] = {DATA IP LOSS, DATA IP PROB, DATA IP PROB LOSS};
    const float records[] = {0, logf(2), logf(5), -3, -3, -3, 1000, 1000, 900};
    const float expected[] = {0.125f, 0.25f, 0.625f, 1 / 3.f, 1 / 3.f, 1 / 3.f, 0.5f, 0.5f, 0};
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        pl_net *net = make_net(engine, nets[i]);
        pl_net_classes classes;
        float out[9];
        expect_ok(engine, pl_net_classes_of(net, &classes));
        assert_int_equal(classes.count, 3);
        assert_true(classes.probabilities);
        expect_ok(engine, pl_net_predict(net, records, 3, out, 9));
        for (int k = 0; k < 9; k++)
            assert_true(fabsf(out[k] - expected[k]) < 1e-6f);
        assert_int_equal(pl_net_predict(net, records, 3, out, 8), PL_ERR_USAGE);
        pl_net_free(net);
    }
}

static void test_scores_that_are_no_probabilities(void **state)
{
    pl_engine *engine = *state;
    pl_net *net = make_net(engine, DATA IP);
    pl_net_classes classes;
    const float record[] = {4, -2, 9};
    float out[3];
    expect_ok(engine, pl_net_classes_of(net, &classes));
    assert_false(classes.probabilities);
    assert_string_equal(classes.blob, "ip");
    expect_ok(engine, pl_net_predict(net, record, 1, out, 3));
    assert_memory_equal(out, record, sizeof record);
    pl_net_free(net);
}

static void test_a_score_for_each_place_is_refused(void **state)
{
    pl_engine *engine = *state;
    pl_net_spec *spec;
    pl_net *net;
    pl_net_classes classes;
    expect_ok(engine, pl_net_spec_create(engine, "places", &spec));
    pl_spec_input(spec, "data", "label", 1, 6, 6);
    pl_spec_convolution(spec, "conv", "data", 4, 3, NULL);
    pl_spec_layer(spec, "name: 'prob' type: 'Softmax' bottom: 'conv' top: 'prob'");
    pl_spec_inner_product(spec, "ip", "conv", 2, NULL);
    pl_spec_layer(spec, "name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' "
                        "top: 'loss' include { phase: TRAIN }");
    expect_ok(engine, pl_net_create(engine, spec, &quick, &net));
    assert_int_equal(pl_net_classes_of(net, &classes), PL_ERR_UNSUPPORTED);
    assert_non_null(strstr(pl_engine_error(engine), "\"prob\""));
    pl_net_free(net);
    pl_net_spec_free(spec);
}

/* Behind a, b and c the scores are log 1, log 2, log 5; three times 0; and very large ones. */
static void test_each_step_of_a_sequence(void **state)
{
    pl_engine *engine = *state;
    struct folder folder;
    char path[256], spec[512];
    pl_net_spec *net_spec;
    pl_net *net;
    pl_data *data;
    pl_net_classes classes;
    pl_weights weights;
    const float scores[] = {0, logf(2), logf(5), 0, 0, 0, 1000, 1000, 900};
    const float expected[] = {0.125f, 0.25f, 0.625f, 0.5f,    0.5f,    0,
                              0.125f, 0.25f, 0.625f, 1 / 3.f, 1 / 3.f, 1 / 3.f};
    float record[8], out[12];
    folder_make(&folder);
    folder_put(&folder, "text", "acabc", 5);
    snprintf(spec, sizeof spec, "text:%s?unit=character&window=4",
             folder_file(&folder, "text", path));
    expect_ok(engine, pl_net_spec_create(engine, "steps", &net_spec));
    pl_spec_layer(net_spec, "name: 'text' type: 'Data' top: 'data' top: 'target'");
    pl_spec_layer(net_spec, "name: 'e' type: 'Embed' bottom: 'data' top: 'e' embed_param { "
                            "input_dim: 3 num_output: 3 bias_term: false }");
    pl_spec_layer(net_spec, "name: 'loss' type: 'SoftmaxWithLoss' bottom: 'e' bottom: 'target' "
                            "top: 'loss' softmax_param { axis: -1 }");
    expect_ok(engine, pl_net_create(engine, net_spec, &quick, &net));
    expect_ok(engine, pl_data_open(engine, spec, false, &data));
    expect_ok(engine, pl_net_form_data(net, NULL, data));
    expect_ok(engine, pl_net_weights(net, "e", 0, &weights));
    assert_int_equal(weights.count, 9);
    memcpy(weights.at, scores, sizeof scores);
    expect_ok(engine, pl_net_classes_of(net, &classes));
    assert_true(classes.steps == 4 && classes.count == 3 && classes.probabilities);
    expect_ok(engine, pl_data_read(data, 0, 1, record, 8));
    expect_ok(engine, pl_net_predict(net, record, 1, out, 12));
    for (int k = 0; k < 12; k++)
        assert_true(fabsf(out[k] - expected[k]) < 1e-6f);
    assert_int_equal(pl_net_predict(net, record, 1, out, 11), PL_ERR_USAGE);
    assert_string_equal(pl_data_class_name(data, 2), "c");
    assert_null(pl_data_class_name(data, 3));
    pl_data_close(data);
    pl_net_free(net);
    pl_net_spec_free(net_spec);
    folder_remove(&folder);
}

static void test_the_shape_of_records(void **state)
{
    pl_engine *engine = *state;
    pl_net_spec *spec;
    pl_job *job;
    uint32_t shape[3];
    expect_ok(engine, pl_net_spec_zoo(engine, "cifar10-quick", &spec));
    expect_ok(engine, pl_net_spec_record(spec, NULL, shape));
    assert_true(shape[0] == 3 && shape[1] == 32 && shape[2] == 32);
    expect_ok(engine, pl_job_create(engine, &job)); /* by its maps, its data is not opened */
    expect_ok(engine, pl_job_set_test_data(job, "images:nowhere?color=gray&crop=24"));
    expect_ok(engine, pl_net_spec_record(spec, job, shape));
    assert_true(shape[0] == 1 && shape[1] == 24 && shape[2] == 24);
    expect_ok(engine, pl_job_set_test_data(job, "cifar10:nowhere?scale=2"));
    expect_ok(engine, pl_net_spec_record(spec, job, shape));
    assert_true(shape[0] == 3 && shape[1] == 32 && shape[2] == 32);
    expect_ok(engine, pl_job_set_test_data(job, "idx:nowhere,nowhere"));
    assert_int_equal(pl_net_spec_record(spec, job, shape), PL_ERR_INPUT);
    pl_net_spec_free(spec);
    expect_ok(engine, pl_net_spec_create(engine, "open", &spec));
    pl_spec_input(spec, "data", "label", 0, 0, 0);
    assert_int_equal(pl_net_spec_record(spec, NULL, shape), PL_ERR_NOT_FOUND);
    pl_net_spec_free(spec);
    pl_job_free(job);
}

static void test_a_form_is_for_good(void **state)
{
    pl_engine *engine = *state;
    pl_net *net = make_net(engine, DATA IP LOSS);
    expect_ok(engine, pl_net_form(net, 3, 1, 1));
    assert_int_equal(pl_net_form(net, 4, 1, 1), PL_ERR_USAGE);
    pl_net_free(net);
}

static int setup(void **state)
{
    return pl_engine_create(NULL, (pl_engine **)state);
}

static int teardown(void **state)
{
    pl_engine_destroy(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probabilities),
        cmocka_unit_test(test_scores_that_are_no_probabilities),
        cmocka_unit_test(test_a_score_for_each_place_is_refused),
        cmocka_unit_test(test_each_step_of_a_sequence),
        cmocka_unit_test(test_the_shape_of_records),
        cmocka_unit_test(test_a_form_is_for_good),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
