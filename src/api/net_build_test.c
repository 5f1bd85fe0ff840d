/* The building calls give the same net as a prototxt: the text of a net that uses them all, and its
 * layers' shapes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "paceline/net.h"

#include <math.h>
#include <string.h>

static void expect_ok(pl_engine *engine, int rc)
{
    if (rc != PL_OK)
        fail_msg("%d: %s", rc, pl_engine_error(engine));
}

static pl_net_spec *empty_spec(pl_engine *engine)
{
    pl_net_spec *spec;
    expect_ok(engine, pl_net_spec_create(engine, "all", &spec));
    return spec;
}

/* Two branches of 8 channels on 7×7 pixels, joined, normalised, doubled, classified twice. */
static pl_net_spec *build_spec(pl_engine *engine)
{
    static const char *const both[] = {"wide", "norm"}, *const sums[] = {"scale", "relu"};
    static const float factors[] = {1, -0.5f};
    pl_net_spec *spec = empty_spec(engine);
    pl_convolution_options grouped = PL_CONVOLUTION_DEFAULTS, wide = PL_CONVOLUTION_DEFAULTS;
    pl_weight_options without_bias = PL_WEIGHT_DEFAULTS;
    grouped.group = 2;
    grouped.dilation = 2;
    grouped.pad = 2;
    without_bias.bias = false;
    grouped.weights = &without_bias;
    wide.kernel_w = 5;
    wide.pad_w = 2;
    pl_lrn_options lrn = PL_LRN_DEFAULTS;
    lrn.local_size = 3;
    lrn.within_channel = true;
    pl_batch_norm_options batch = {.size = sizeof batch, .eps = 0.001f, .fraction = 0.9f};
    pl_spec_input(spec, "data", "label", 2, 14, 14);
    pl_spec_pooling_padded(spec, "pool", "data", PL_POOL_MAX, 3, 2, 1);
    pl_spec_convolution(spec, "conv", "pool", 8, 3, &grouped);
    pl_spec_convolution(spec, "wide", "pool", 8, 1, &wide);
    pl_spec_lrn(spec, "norm", "conv", &lrn);
    pl_spec_concat(spec, "both", both, 2);
    pl_spec_batch_norm(spec, "batch", "both", &batch);
    pl_spec_scale(spec, "scale", "batch", true);
    pl_spec_relu(spec, "relu", "scale");
    pl_spec_eltwise(spec, "sum", PL_ELTWISE_SUM, sums, 2, factors);
    pl_spec_deconvolution(spec, "up", "sum", 4, 2, NULL);
    pl_spec_sigmoid(spec, "sigmoid", "up");
    pl_spec_pooling_global(spec, "mean", "sigmoid", PL_POOL_AVERAGE);
    pl_spec_inner_product(spec, "first", "mean", 3, NULL);
    pl_spec_softmax_loss(spec, "loss1", "first", "label");
    pl_spec_loss_weight(spec, 0.3f);
    pl_spec_inner_product(spec, "second", "mean", 3, NULL);
    pl_spec_softmax_loss(spec, "loss", "second", "label");
    return spec;
}

static const char expected[] =
    "name: \"all\"\n"
    "layer { name: \"data\" type: \"Input\" top: \"data\" top: \"label\" "
    "input_param { shape { dim: 1 dim: 2 dim: 14 dim: 14 } shape { dim: 1 } } } "
    "layer { name: \"pool\" type: \"Pooling\" bottom: \"data\" top: \"pool\" "
    "pooling_param { pool: MAX kernel_size: 3 stride: 2 pad: 1 } } "
    "layer { name: \"conv\" type: \"Convolution\" bottom: \"pool\" top: \"conv\" "
    "param { lr_mult: 1 } "
    "convolution_param { num_output: 8 bias_term: false pad: 2 kernel_size: 3 group: 2 "
    "weight_filler { type: \"xavier\" } dilation: 2 } } "
    "layer { name: \"wide\" type: \"Convolution\" bottom: \"pool\" top: \"wide\" "
    "param { lr_mult: 1 } param { lr_mult: 2 } "
    "convolution_param { num_output: 8 weight_filler { type: \"xavier\" } "
    "pad_h: 0 pad_w: 2 kernel_h: 1 kernel_w: 5 } } "
    "layer { name: \"norm\" type: \"LRN\" bottom: \"conv\" top: \"norm\" "
    "lrn_param { local_size: 3 alpha: 1 beta: 0.75 norm_region: WITHIN_CHANNEL } } "
    "layer { name: \"both\" type: \"Concat\" bottom: \"wide\" bottom: \"norm\" top: \"both\" } "
    "layer { name: \"batch\" type: \"BatchNorm\" bottom: \"both\" top: \"batch\" "
    "batch_norm_param { moving_average_fraction: 0.9 eps: 0.001 } } "
    "layer { name: \"scale\" type: \"Scale\" bottom: \"batch\" top: \"scale\" "
    "scale_param { bias_term: true } } "
    "layer { name: \"relu\" type: \"ReLU\" bottom: \"scale\" top: \"relu\" } "
    "layer { name: \"sum\" type: \"Eltwise\" bottom: \"scale\" bottom: \"relu\" top: \"sum\" "
    "eltwise_param { operation: SUM coeff: 1 coeff: -0.5 } } "
    "layer { name: \"up\" type: \"Deconvolution\" bottom: \"sum\" top: \"up\" "
    "param { lr_mult: 1 } param { lr_mult: 2 } "
    "convolution_param { num_output: 4 kernel_size: 2 weight_filler { type: \"xavier\" } } } "
    "layer { name: \"sigmoid\" type: \"Sigmoid\" bottom: \"up\" top: \"sigmoid\" } "
    "layer { name: \"mean\" type: \"Pooling\" bottom: \"sigmoid\" top: \"mean\" "
    "pooling_param { pool: AVE global_pooling: true } } "
    "layer { name: \"first\" type: \"InnerProduct\" bottom: \"mean\" top: \"first\" "
    "param { lr_mult: 1 } param { lr_mult: 2 } "
    "inner_product_param { num_output: 3 weight_filler { type: \"xavier\" } } } "
    "layer { name: \"loss1\" type: \"SoftmaxWithLoss\" bottom: \"first\" bottom: \"label\" "
    "top: \"loss1\" loss_weight: 0.3 } "
    "layer { name: \"second\" type: \"InnerProduct\" bottom: \"mean\" top: \"second\" "
    "param { lr_mult: 1 } param { lr_mult: 2 } "
    "inner_product_param { num_output: 3 weight_filler { type: \"xavier\" } } } "
    "layer { name: \"loss\" type: \"SoftmaxWithLoss\" bottom: \"second\" bottom: \"label\" "
    "top: \"loss\" }";

/* The next word of a text; lines and indentation do not matter. */
static size_t next_word(const char **text)
{
    *text += strspn(*text, " \n");
    return strcspn(*text, " \n");
}

static void test_the_text(void **state)
{
    pl_engine *engine = *state;
    pl_net_spec *spec = build_spec(engine);
    const char *text, *right = expected;
    expect_ok(engine, pl_net_spec_text(spec, &text));
    for (;;) {
        size_t n = next_word(&text), m = next_word(&right);
        if (n != m || memcmp(text, right, n) != 0)
            fail_msg("expected: %.60s\nsaid: %.60s", right, text);
        if (n == 0)
            break;
        text += n;
        right += m;
    }
    pl_net_spec_free(spec);
}

/* Shapes by hand: pooling (14 + 2 - 3) / 2 up + 1 = 8, then Caffe drops no window that begins
 * inside; dilated 3×3 with 2 around keeps 8×8, and so does 1×5; 2×2 backwards makes 9×9. */
static void test_the_layers(void **state)
{
    static const struct {
        const char *name;
        size_t shape[4], parameters, state;
        double multiply_adds;
    } right[] = {
        {"data", {1, 2, 14, 14}, 0, 0, 0},
        {"pool", {1, 2, 8, 8}, 0, 0, 0},
        {"conv", {1, 8, 8, 8}, 8 * 1 * 9, 0, 8 * 64 * 9},
        {"wide", {1, 8, 8, 8}, 8 * 2 * 5 + 8, 0, 8 * 64 * 10},
        {"norm", {1, 8, 8, 8}, 0, 0, 0},
        {"both", {1, 16, 8, 8}, 0, 0, 0},
        {"batch", {1, 16, 8, 8}, 0, 16 + 16 + 1, 0},
        {"scale", {1, 16, 8, 8}, 32, 0, 0},
        {"relu", {1, 16, 8, 8}, 0, 0, 0},
        {"sum", {1, 16, 8, 8}, 0, 0, 0},
        {"up", {1, 4, 9, 9}, 16 * 4 * 4 + 4, 0, 16 * 64 * 4 * 4},
        {"sigmoid", {1, 4, 9, 9}, 0, 0, 0},
        {"mean", {1, 4, 1, 1}, 0, 0, 0},
        {"first", {1, 3}, 15, 0, 12},
        {"loss1", {0}, 0, 0, 0},
        {"second", {1, 3}, 15, 0, 12},
        {"loss", {0}, 0, 0, 0},
    };
    pl_engine *engine = *state;
    pl_net_spec *spec = build_spec(engine);
    const pl_layer *layer;
    size_t n;
    expect_ok(engine, pl_net_spec_layers(spec, 0, 0, 0, &layer, &n));
    assert_int_equal(n, sizeof right / sizeof *right);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(layer[i].name, right[i].name);
        assert_int_equal(layer[i].parameters, right[i].parameters);
        assert_int_equal(layer[i].state, right[i].state);
        if (fabs(layer[i].multiply_adds - right[i].multiply_adds) > 0.5)
            fail_msg("%s: %g multiply-adds", layer[i].name, layer[i].multiply_adds);
        for (size_t k = 0; k < layer[i].dims; k++)
            assert_int_equal(layer[i].shape[k], right[i].shape[k]);
    }
    assert_string_equal(layer[3].type, "Convolution");
    pl_net_spec_free(spec);
}

/* A net of the zoo is listed for the records it was published for, or for others. */
static void test_layers_of_the_zoo(void **state)
{
    pl_engine *engine = *state;
    pl_net_spec *spec;
    const pl_layer *layer;
    size_t n, sum = 0;
    expect_ok(engine, pl_net_spec_zoo(engine, "fc-480-160", &spec));
    expect_ok(engine, pl_net_spec_layers(spec, 0, 0, 0, &layer, &n));
    for (size_t i = 0; i < n; i++)
        sum += layer[i].parameters;
    assert_int_equal(sum, 455370);
    expect_ok(engine, pl_net_spec_layers(spec, 3, 5, 4, &layer, &n));
    assert_int_equal(layer[1].parameters, 480 * 60 + 480);
    pl_net_spec_free(spec);
    assert_string_equal(pl_zoo_names()[0], "lenet");
}

/* ---- what goes wrong is kept ---- */

static void expect_refusal(pl_engine *engine, pl_net_spec *spec, int status, const char *phrase)
{
    const pl_layer *layer;
    size_t n;
    int rc = pl_net_spec_layers(spec, 1, 4, 4, &layer, &n);
    if (rc != status || !strstr(pl_engine_error(engine), phrase))
        fail_msg("expected %d and \"%s\", got %d and \"%s\"", status, phrase, rc,
                 pl_engine_error(engine));
    const char *text;
    if (strstr(phrase, "layer \"bad\"") == phrase)
        assert_int_equal(pl_net_spec_text(spec, &text), status);
    pl_net_spec_free(spec);
}

static void test_mistakes(void **state)
{
    pl_engine *engine = *state;
    static const char *const one[] = {"data", NULL};
    pl_convolution_options options = PL_CONVOLUTION_DEFAULTS;
    options.pad_w = 1;
    pl_net_spec *spec = empty_spec(engine);
    pl_spec_convolution(spec, "bad", "data", 3, 3, &options);
    expect_refusal(engine, spec, PL_ERR_INPUT, "layer \"bad\": pad_w without kernel_w");
    spec = empty_spec(engine);
    pl_spec_concat(spec, "bad", one, 2);
    expect_refusal(engine, spec, PL_ERR_INPUT, "layer \"bad\": its bottom is missing");
    spec = empty_spec(engine);
    pl_spec_concat(spec, "bad", NULL, 0);
    expect_refusal(engine, spec, PL_ERR_INPUT, "layer \"bad\": its bottom is missing");
    spec = empty_spec(engine);
    pl_spec_eltwise(spec, "bad", (pl_eltwise)9, one, 1, NULL);
    expect_refusal(engine, spec, PL_ERR_INPUT,
                   "layer \"bad\": there is no element-wise operation 9");
    spec = empty_spec(engine);
    pl_spec_pooling_global(spec, "bad", "data", (pl_pooling)9);
    expect_refusal(engine, spec, PL_ERR_INPUT, "layer \"bad\": there is no pooling 9");
    spec = empty_spec(engine);
    pl_spec_loss_weight(spec, 1);
    expect_refusal(engine, spec, PL_ERR_INPUT, "a loss's weight, but there is no layer");
}

static void test_an_unknown_shape(void **state)
{
    pl_engine *engine = *state;
    const pl_layer *layer;
    size_t n;
    pl_net_spec *spec = empty_spec(engine);
    pl_spec_input(spec, "data", "label", 0, 0, 0);
    pl_spec_inner_product(spec, "ip", "data", 2, NULL);
    pl_spec_softmax_loss(spec, "loss", "ip", "label");
    assert_int_equal(pl_net_spec_layers(spec, 0, 0, 0, &layer, &n), PL_ERR_USAGE);
    assert_non_null(strstr(pl_engine_error(engine), "shape of its records is unknown"));
    assert_int_equal(pl_net_spec_layers(spec, 1, 0, 2, &layer, &n), PL_ERR_USAGE);
    assert_non_null(strstr(pl_engine_error(engine), "all of these or none may be 0"));
    expect_ok(engine, pl_net_spec_layers(spec, 1, 5, 1, &layer, &n));
    assert_int_equal(layer[1].parameters, 12);
    pl_net_spec_free(spec);
}

static int setup(void **state)
{
    pl_engine *engine;
    int rc = pl_engine_create(NULL, &engine);
    *state = engine;
    return rc;
}

static int teardown(void **state)
{
    pl_engine_destroy(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_text),          cmocka_unit_test(test_the_layers),
        cmocka_unit_test(test_layers_of_the_zoo), cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_an_unknown_shape),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
