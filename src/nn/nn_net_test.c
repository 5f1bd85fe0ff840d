#include "nn/fixture.h"

#include <malloc.h>
#include <math.h>
#include <stdlib.h>

#define DATA "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n"
#define LOSS \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n"
#define INNER(name, bottom, top, outputs)                                                 \
    "layer { name: '" name "' type: 'InnerProduct' bottom: '" bottom "' top: '" top "'\n" \
    " inner_product_param { num_output: " #outputs " weight_filler { type: 'xavier' } } }\n"
#define CONV(fields)                                                        \
    "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'\n" \
    " convolution_param { num_output: 4 weight_filler { type: 'xavier' } " fields " } }\n"
#define POOL(bottom, fields)                                                  \
    "layer { name: 'pool' type: 'Pooling' bottom: '" bottom "' top: 'pool'\n" \
    " pooling_param { " fields " } }\n"
#define RELU(bottom, top) \
    "layer { name: 'relu' type: 'ReLU' bottom: '" bottom "' top: '" top "' }\n"

#define SIGMOID(bottom, top) \
    "layer { name: 's' type: 'Sigmoid' bottom: '" bottom "' top: '" top "' }\n"
#define DROPOUT(bottom, top) \
    "layer { name: 'd' type: 'Dropout' bottom: '" bottom "' top: '" top "' }\n"

#define NORM(bottom, top, fields) \
    "layer { name: 'n' type: 'BatchNorm' bottom: '" bottom "' top: '" top "' " fields " }\n"
#define SCALE(bottom, top, fields) \
    "layer { name: 's' type: 'Scale' bottom: '" bottom "' top: '" top "' " fields " }\n"
#define FOUR(text) text text text text

static const struct shape image = {3, {3, 9, 8}};

static void expect_shape(const struct net *net, const char *blob, const char *shape)
{
    struct shape actual;
    char text[128];
    assert_true(net_blob(net, blob, NULL, 0, &actual) > 0);
    assert_string_equal(shape_text(&actual, text, sizeof text), shape);
}

/* Output sizes by hand, Caffe's rules: a convolution rounds down, pooling up, and the last pooling
 * window must begin inside the image or its near padding. */
static void test_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *conv, *pool, *conv_shape, *pool_shape;
    } cases[] = {
        {"kernel_size: 3", "kernel_size: 2 stride: 2", "5x4x7x6", "5x4x4x3"},
        {"kernel_size: 3 stride: 2 pad: 1", "kernel_size: 3 stride: 2", "5x4x5x4", "5x4x2x2"},
        {"kernel_h: 2 kernel_w: 3 stride_h: 3 stride_w: 1", "kernel_size: 2 stride: 1", "5x4x3x6",
         "5x4x2x5"},
        {"kernel_size: 2 kernel_size: 1", "pool: AVE global_pooling: true", "5x4x8x8", "5x4x1x1"},
        {"kernel_size: 1 pad_h: 1 pad_w: 0", "kernel_size: 3 stride: 3 pad: 1", "5x4x11x8",
         "5x4x4x3"},
        {"kernel_size: 2", "kernel_size: 2 stride: 2 pad: 1", "5x4x8x7", "5x4x5x4"},
        {"kernel_size: 2", "kernel_size: 3 stride: 2 round_mode: FLOOR", "5x4x8x7", "5x4x3x3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 DATA "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv' "
                      "convolution_param { num_output: 4 %s } } layer { name: 'pool' type: "
                      "'Pooling' bottom: 'conv' top: 'pool' pooling_param { %s } }",
                 cases[i].conv, cases[i].pool);
        struct net *net = NULL;
        struct err err = {0};
        int rc = fixture_try(text, PHASE_TEST, 5, image, &kernels_ref, &net, &err);
        if (rc != OK)
            fail_msg("%s", err.text);
        expect_shape(net, "conv", cases[i].conv_shape);
        expect_shape(net, "pool", cases[i].pool_shape);
        net_free(net);
    }
}

static void test_segments(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f,
                 DATA "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv' "
                      "param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 } "
                      "convolution_param { num_output: 4 kernel_size: 3 } }"
                      "layer { name: 'ip' type: 'InnerProduct' bottom: 'conv' top: 'ip' "
                      "inner_product_param { num_output: 5 bias_term: false } }" LOSS,
                 PHASE_TRAIN, 2, image, &kernels_ref);
    const struct segments *table = net_segments(f.net);
    char text[64];
    assert_int_equal(table->count, 3);
    assert_string_equal(table->at[0].name, "conv.0");
    assert_string_equal(shape_text(&table->at[0].shape, text, sizeof text), "4x3x3x3");
    assert_string_equal(table->at[1].name, "conv.1");
    assert_true(table->at[1].lr_mult == 2.0f && table->at[1].decay_mult == 0.0f);
    assert_true(table->at[0].lr_mult == 1.0f && table->at[0].decay_mult == 1.0f);
    assert_string_equal(table->at[2].name, "ip.0");
    assert_string_equal(shape_text(&table->at[2].shape, text, sizeof text), "5x168");
    assert_int_equal(net_state_segments(f.net)->count, 0);
    assert_int_equal(net_classes(f.net), 5);
    /* conv: 2·4·7·6 outputs of 27 products, twice (its data wants no gradient); ip: 2·168·5,
     * thrice. */
    assert_true(net_flops(f.net) == 2.0 * (2 * 336 * 27 + 3 * 2 * 168 * 5));
    struct net_memory memory = net_memory(f.net);
    assert_true(memory.activations >= (2 * 3 * 72 + 2 * 168 + 2 * 5) * sizeof(float));
    assert_true(memory.gradients >= (2 * 168 + 2 * 5) * sizeof(float));
    fixture_close(&f);
}

/* One message, two nets: the tables match, the rules decide who is in. */
static void test_phases(void **state)
{
    (void)state;
    static const char text[] =
        "layer { name: 'd' type: 'Data' top: 'data' top: 'label' include { phase: TRAIN }"
        " transform_param { scale: 0.5 } data_param { source: 'x' batch_size: 99 } }"
        "layer { name: 'd' type: 'Data' top: 'data' top: 'label' include { phase: TEST } }" INNER(
            "ip", "data", "ip", 6) LOSS
        "layer { name: 'a' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'a' "
        "include { phase: TEST } }"
        "layer { name: 'p' type: 'Softmax' bottom: 'ip' top: 'p' exclude { phase: TRAIN } }"
        "layer { name: 'q' type: 'Softmax' bottom: 'ip' top: 'q' include { stage: 'deploy' } }"
        "layer { name: 'r' type: 'Softmax' bottom: 'ip' top: 'r' include { min_level: 1 } }"
        "layer { name: 't' type: 'Softmax' bottom: 'ip' top: 't' include { max_level: 0 } }";
    struct fixture train, test;
    fixture_open(&train, text, PHASE_TRAIN, 4, image, &kernels_ref);
    fixture_open(&test, text, PHASE_TEST, 4, image, &kernels_ref);
    assert_true(segments_match(net_segments(train.net), net_segments(test.net)));
    static const char *const in_test[] = {"a", "p", "t"};
    static const char *const in_train[] = {"t"};
    static const char *const in_none[] = {"q", "r"};
    for (size_t i = 0; i < 3; i++)
        assert_true(net_blob(test.net, in_test[i], NULL, 0, NULL) > 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(net_blob(train.net, in_test[i], NULL, 0, NULL), 0);
        assert_int_equal(net_blob(train.net, in_none[i], NULL, 0, NULL), 0);
        assert_int_equal(net_blob(test.net, in_none[i], NULL, 0, NULL), 0);
    }
    assert_true(net_blob(train.net, in_train[0], NULL, 0, NULL) > 0);
    assert_false(fixture_forward(&train).has_right);
    assert_true(fixture_forward(&test).has_right);
    fixture_close(&train);
    fixture_close(&test);
}

#define SHAPED(dims)                                                                          \
    "layer { name: 'data' type: 'Input' top: 'data' top: 'label' input_param { shape { " dims \
    " } } }\n"

static const struct {
    const char *net;
    int status;
    const char *phrase[3];
} bad_nets[] = {
    {DATA "layer { name: 'best' type: 'ArgMax' bottom: 'data' top: 'n' }",
     ERR_UNSUPPORTED,
     {"layer \"best\": type \"ArgMax\" is not supported; supported: "}},
    {DATA "layer { name: 'x' bottom: 'data' top: 'n' }", ERR_INPUT, {"layer \"x\": type"}},
    {DATA "layer { type: 'ReLU' bottom: 'data' top: 'n' }", ERR_INPUT, {"layer 2 has no name"}},
    {DATA RELU("daat", "y"), ERR_INPUT, {"layer \"relu\"", "bottom \"daat\" is made by no layer"}},
    {DATA RELU("data", "label"), ERR_INPUT, {"top \"label\" is already made by layer \"data\""}},
    {DATA RELU("data", "y") RELU("y", "z"), ERR_INPUT, {"layer \"relu\": another layer"}},
    {DATA POOL("data", "kernel_size: 10"), ERR_INPUT, {"layer \"pool\"", "10x10", "5x3x9x8"}},
    {DATA POOL("data", ""), ERR_INPUT, {"layer \"pool\": kernel_size"}},
    {DATA POOL("data", "kernel_size: 2 pad: 2"), ERR_INPUT, {"layer \"pool\": pad"}},
    {DATA POOL("data", "kernel_size: 2 pool: STOCHASTIC"), ERR_UNSUPPORTED, {"STOCHASTIC"}},
    {DATA POOL("data", "kernel_size: 2 global_pooling: true"), ERR_INPUT, {"global_pooling"}},
    {DATA CONV("kernel_size: 9 kernel_size: 9"), ERR_INPUT, {"\"conv\"", "9x9", "5x3x9x8"}},
    {DATA CONV("kernel_size: 3 group: 3"), ERR_INPUT, {"\"conv\"", "group: 3"}},
    {DATA CONV("kernel_size: 3 stride: 0"), ERR_INPUT, {"\"conv\": stride"}},
    {DATA CONV("kernel_h: 3"), ERR_INPUT, {"kernel_size: height and width"}},
    {DATA CONV("kernel_size: 3 kernel_h: 3 kernel_w: 3"), ERR_INPUT, {"two forms"}},
    {DATA CONV("kernel_size: 3 kernel_size: 3 kernel_size: 3"), ERR_INPUT, {"3 values"}},
    {DATA CONV("kernel_size: 3 bias_filler { type: 'trilinear' }"),
     ERR_UNSUPPORTED,
     {"layer \"conv\": bias_filler: filler \"trilinear\"", "xavier"}},
    {DATA "layer { name: 'c' type: 'Convolution' bottom: 'data' top: 'c' convolution_param { "
          "kernel_size: 1 } }",
     ERR_INPUT,
     {"\"c\": convolution_param.num_output"}},
    {DATA INNER("ip", "data", "ip",
                4) "layer { name: 'c' type: 'Convolution' bottom: 'ip' top: 'c' "
                   "convolution_param { num_output: 1 kernel_size: 1 } }",
     ERR_INPUT,
     {"\"c\": bottom \"ip\" is 5x4; a convolution takes NxCxHxW"}},
    {DATA INNER("ip", "data", "data", 4), ERR_INPUT, {"\"ip\"", "cannot work in place"}},
    {DATA "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' param { lr_mult: -1 } "
          "inner_product_param { num_output: 4 } }",
     ERR_INPUT,
     {"lr_mult: -1"}},
    {DATA "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' param { } param { } "
          "inner_product_param { num_output: 4 bias_term: false } }",
     ERR_INPUT,
     {"2 param entries"}},
    {DATA "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' "
          "inner_product_param { num_output: 4 } pooling_param { kernel_size: 2 } }",
     ERR_UNSUPPORTED,
     {"\"ip\": pooling_param means nothing to type \"InnerProduct\""}},
    {DATA "layer { name: 'r' type: 'ReLU' bottom: 'data' bottom: 'label' top: 'r' }",
     ERR_INPUT,
     {"\"r\": type \"ReLU\" takes 1 bottoms, not 2"}},
    {DATA "layer { name: 's' type: 'Sigmoid' bottom: 'data' bottom: 'label' top: 's' }",
     ERR_INPUT,
     {"\"s\": type \"Sigmoid\" takes 1 bottoms, not 2"}},
    {DATA "layer { name: 's' type: 'Sigmoid' bottom: 'data' top: 's' param { } }",
     ERR_INPUT,
     {"\"s\": 1 param entries"}},
    {DATA "layer { name: 's' type: 'Sigmoid' bottom: 'data' top: 's' relu_param { } }",
     ERR_UNSUPPORTED,
     {"\"s\": relu_param means nothing to type \"Sigmoid\""}},
    {DATA NORM("data", "n", "param { lr_mult: 0 } param { }"),
     ERR_INPUT,
     {"\"n\": param.lr_mult: 1"}},
    {DATA NORM("data", "n", "param { lr_mult: 0 name: 'm' }"), ERR_UNSUPPORTED, {"name: \"m\""}},
    {DATA NORM("data", "n", FOUR("param { lr_mult: 0 } ")), ERR_INPUT, {"\"n\": 4 param entries"}},
    {DATA NORM("data", "n", "batch_norm_param { eps: 0 }"), ERR_INPUT, {"batch_norm_param.eps: 0"}},
    {DATA NORM("data", "n", "batch_norm_param { moving_average_fraction: 1.5 }"),
     ERR_INPUT,
     {"\"n\": batch_norm_param.moving_average_fraction: 1.5"}},
    {DATA NORM("data", "n", "scale_param { }"), ERR_UNSUPPORTED, {"scale_param means nothing"}},
    {DATA NORM("label", "n", ""), ERR_INPUT, {"\"n\": bottom \"label\" is 5; a normalisation"}},
    {DATA NORM("data", "n", "bottom: 'label'"), ERR_INPUT, {"takes 1 bottoms, not 2"}},
    {DATA SCALE("data", "s", "scale_param { filler { type: 'bilinear' } }"),
     ERR_INPUT,
     {"\"s\": filler: filler \"bilinear\""}},
    {DATA SCALE("data", "s", "param { } param { }"), ERR_INPUT, {"\"s\": 2 param entries"}},
    {DATA "layer { name: 'r' type: 'ReLU' bottom: 'data' top: 'r' include { phase: TRAIN } exclude "
          "{ phase: TEST } }",
     ERR_INPUT,
     {"include and exclude"}},
    {DATA "layer { name: 'r' type: 'ReLU' bottom: 'data' top: 'r' phase: TEST }",
     ERR_UNSUPPORTED,
     {"\"r\": a phase"}},
    {DATA "layer { name: 'drop' type: 'Dropout' bottom: 'data' top: 'y' dropout_param { "
          "dropout_ratio: 1 } }",
     ERR_INPUT,
     {"\"drop\": dropout_param.dropout_ratio: 1"}},
    {SHAPED("dim: 1 dim: 3 dim: 9 dim: 9"),
     ERR_INPUT,
     {"records are 3x9x9, but the data's are 3x9x8"}},
    {SHAPED("dim: 1 dim: 3 dim: 0 dim: 9"), ERR_INPUT, {"\"data\": input_param: dimension 0"}},
    {SHAPED("dim: 1 dim: -2147483648"), ERR_INPUT, {"dimension -2147483648"}},
    {DATA "layer { name: 'e' type: 'Input' top: 'e' }", ERR_UNSUPPORTED, {"\"e\": a second data"}},
    {"layer { name: 'd' type: 'Input' top: 'd' include { phase: TEST } }",
     ERR_INPUT,
     {"no data layer in phase TRAIN"}},
    {"", ERR_INPUT, {"no data layer"}},
};

static void test_bad_nets(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_nets / sizeof bad_nets[0]; i++) {
        struct err err = {0};
        struct net *net = NULL;
        int rc = fixture_try(bad_nets[i].net, PHASE_TRAIN, 5, image, &kernels_ref, &net, &err);
        if (rc != bad_nets[i].status || net)
            fail_msg("case %zu: status %d (%s) for %s", i, rc, err.text, bad_nets[i].net);
        for (size_t k = 0; k < 3 && bad_nets[i].phrase[k]; k++)
            if (!strstr(err.text, bad_nets[i].phrase[k]))
                fail_msg("case %zu: \"%s\" does not say \"%s\"", i, err.text,
                         bad_nets[i].phrase[k]);
    }
}

/* Fields that say what holds anyway are no reason to refuse a file. */
static void test_defaults_may_be_written_out(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(
        &f,
        "name: 'n' input: 'data' input: 'label' input_shape { dim: 64 dim: 3 dim: 9 dim: 8 }"
        " input_shape { dim: 64 }"
        "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv' phase: TRAIN"
        " loss_weight: 0 convolution_param { num_output: 2 kernel_size: 3 group: 1 dilation: 1"
        " engine: CUDNN axis: -3 force_nd_im2col: false weight_filler { type: 'gaussian' std: 0.1"
        " sparse: -1 } } }"
        "layer { name: 'relu' type: 'ReLU' bottom: 'conv' top: 'conv' relu_param { engine: CAFFE } "
        "}"
        "layer { name: 's' type: 'Sigmoid' bottom: 'conv' top: 'conv' sigmoid_param {"
        " engine: CUDNN } }"
        "layer { name: 'bn' type: 'BatchNorm' bottom: 'conv' top: 'conv' param { lr_mult: 0 }"
        " param { lr_mult: 0 decay_mult: 0 } param { lr_mult: 0 } batch_norm_param {"
        " use_global_stats: false moving_average_fraction: 0.999 eps: 1e-5 } }"
        "layer { name: 'scale' type: 'Scale' bottom: 'conv' top: 'conv' scale_param { axis: -3"
        " num_axes: 1 bias_term: false } }"
        "layer { name: 'ip' type: 'InnerProduct' bottom: 'conv' top: 'ip' inner_product_param {"
        " num_output: 3 transpose: false axis: 1 } }"
        "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss'"
        " softmax_param { axis: 1 } loss_param { normalize: true normalization: VALID } }",
        PHASE_TRAIN, 5, image, &kernels_ref);
    expect_shape(f.net, "conv", "5x2x7x6");
    assert_true(isfinite(fixture_gradient(&f).loss));
    fixture_close(&f);
}

/* Taking over the bottom's memory is an economy and changes no number: not where it is granted, and
 * not where another layer still reads the bottom, or its maker's backward does: then both keep
 * their own. */
static void test_in_place(void **state)
{
    (void)state;
    static const char *const nets[3][2] = {
        {DATA INNER("a", "data", "a", 7) RELU("a", "a") INNER("ip", "a", "ip", 4) LOSS,
         DATA INNER("a", "data", "a", 7) RELU("a", "b") INNER("ip", "b", "ip", 4) LOSS},
        {DATA INNER("a", "data", "a", 4) "layer { name: 'p' type: 'SoftmaxWithLoss' bottom: 'a' "
                                         "bottom: 'label' top: 'p' }" RELU("a", "a")
                                             INNER("ip", "a", "ip", 4) LOSS,
         DATA INNER("a", "data", "a", 4) "layer { name: 'p' type: 'SoftmaxWithLoss' bottom: 'a' "
                                         "bottom: 'label' top: 'p' }" RELU("a", "b")
                                             INNER("ip", "b", "ip", 4) LOSS},
        {DATA INNER("a", "data", "a", 7) SIGMOID("a", "a") DROPOUT("a", "a")
             INNER("ip", "a", "ip", 4) LOSS,
         DATA INNER("a", "data", "a", 7) SIGMOID("a", "b") DROPOUT("b", "c")
             INNER("ip", "c", "ip", 4) LOSS},
    };
    for (int k = 0; k < FIXTURE_KERNELS; k++)
        for (int i = 0; i < 3; i++) {
            struct fixture in, out;
            fixture_open(&in, nets[i][0], PHASE_TRAIN, 6, image, fixture_kernels[k]);
            fixture_open(&out, nets[i][1], PHASE_TRAIN, 6, image, fixture_kernels[k]);
            assert_true(fixture_gradient(&in).loss == fixture_gradient(&out).loss);
            assert_memory_equal(in.dx.at, out.dx.at, in.dx.n * sizeof(float));
            size_t saved = net_memory(out.net).activations - net_memory(in.net).activations;
            size_t values = 48 * sizeof(float); /* 6·7 in whole lines */
            assert_true(i == 1 ? saved < values : saved == values);
            fixture_close(&in);
            fixture_close(&out);
        }
}

/* The caller's records are read, not written, even by a layer that works in place on them. */
static void test_data_is_left_alone(void **state)
{
    (void)state;
    static const char net[] = DATA RELU("data", "data") INNER("ip", "data", "ip", 4) LOSS;
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture f;
        fixture_open(&f, net, PHASE_TRAIN, 3, image, fixture_kernels[k]);
        float before[3 * 216], after[3 * 216];
        memcpy(before, f.data, sizeof before);
        fixture_gradient(&f);
        assert_memory_equal(before, f.data, sizeof before);
        assert_int_equal(net_blob(f.net, "data", after, 3 * 216, NULL), 3 * 216);
        for (int i = 0; i < 3 * 216; i++)
            assert_true(after[i] == (before[i] > 0.0f ? before[i] : 0.0f));
        fixture_close(&f);
    }
}

/* Two losses read one blob: its gradient is the sum of what each alone would give. */
static void test_shared_bottom(void **state)
{
    (void)state;
#define HEADS DATA INNER("a", "data", "a", 7) INNER("b", "a", "b", 4) INNER("c", "a", "c", 4)
#define ON_B  "layer { name: 'p' type: 'SoftmaxWithLoss' bottom: 'b' bottom: 'label' top: 'p' }"
#define ON_C                                                                          \
    "layer { name: 'q' type: 'SoftmaxWithLoss' bottom: 'c' bottom: 'label' top: 'q' " \
    "loss_weight: 0.5 }"
    static const char *const nets[] = {HEADS ON_B ON_C, HEADS ON_B, HEADS ON_C};
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture f[3];
        double loss[3];
        for (int i = 0; i < 3; i++) {
            fixture_open(&f[i], nets[i], PHASE_TRAIN, 6, image, fixture_kernels[k]);
            loss[i] = fixture_gradient(&f[i]).loss;
        }
        fixture_near(loss[0], loss[1] + loss[2], 1e-6);
        for (size_t i = 0; i < f[0].dx.n; i++)
            fixture_near((double)f[0].dx.at[i], (double)f[1].dx.at[i] + (double)f[2].dx.at[i],
                         1e-6);
        for (int i = 1; i < 3; i++) /* both had something to add to a.0 */
            assert_true(vec_dot(&f[i].dx, &f[i].dx, (struct range){0, 7 * 216}) > 1e-4);
        for (int i = 0; i < 3; i++)
            fixture_close(&f[i]);
    }
}

/* A batch that is not full gives what its records give in any other batch. */
static void test_partial_batch(void **state)
{
    (void)state;
    static const char net[] =
        DATA CONV("kernel_size: 3") RELU("conv", "conv") INNER("ip", "conv", "ip", 4) LOSS
        "layer { name: 'a' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'a' }";
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture f;
        fixture_open(&f, net, PHASE_TEST, 6, image, fixture_kernels[k]);
        struct net_result all = fixture_forward(&f), part, rest;
        float whole[24], conv[2 * 4 * 7 * 6], again[2 * 4 * 7 * 6];
        assert_int_equal(net_blob(f.net, "ip", whole, 24, NULL), 24);
        float *all_conv = arena_array(&f.arena, 6 * 4 * 7 * 6, float);
        assert_int_equal(net_blob(f.net, "conv", all_conv, 6 * 4 * 7 * 6, NULL), 6 * 4 * 7 * 6);
        memcpy(conv, all_conv + 4 * 4 * 7 * 6, sizeof conv);
        f.batch.count = 4;
        part = fixture_forward(&f);
        f.batch.data += 4 * 216;
        f.batch.labels += 4;
        f.batch.records += 4;
        f.batch.count = 2;
        rest = fixture_forward(&f);
        fixture_near(all.loss, part.loss + rest.loss, 1e-5);
        assert_int_equal(all.right, part.right + rest.right);
        assert_int_equal(rest.count, 2);
        float scores[8];
        struct shape shape;
        assert_int_equal(net_blob(f.net, "ip", scores, 8, &shape), 8);
        assert_int_equal(shape.dim[0], 2);
        for (int i = 0; i < 8; i++)
            fixture_near(scores[i], whole[16 + i], 1e-5);
        assert_int_equal(net_blob(f.net, "conv", again, 336, NULL), 336);
        for (int i = 0; i < 336; i++)
            fixture_near(again[i], conv[i], 1e-5);
        fixture_close(&f);
    }
}

/* A gradient over part of a batch is the mean over the records there are. */
static void test_partial_gradient(void **state)
{
    (void)state;
    static const char net[] = DATA CONV("kernel_size: 3") POOL("conv", "kernel_size: 2 stride: 2")
        INNER("ip", "pool", "ip", 4) LOSS;
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture large, small;
        fixture_open(&large, net, PHASE_TRAIN, 6, image, fixture_kernels[k]);
        fixture_open(&small, net, PHASE_TRAIN, 2, image, fixture_kernels[k]);
        fixture_gradient(&large);
        large.batch.count = 2;
        small.batch.labels = large.labels;
        double a = fixture_gradient(&large).loss, b = fixture_gradient(&small).loss;
        fixture_near(a, b, 1e-6);
        for (size_t i = 0; i < large.dx.n; i++)
            fixture_near(large.dx.at[i], small.dx.at[i], 1e-6);
        fixture_close(&large);
        fixture_close(&small);
    }
}

/* Backward adds: twice the same gradient is twice as large. */
static void test_backward_adds(void **state)
{
    (void)state;
    static const char net[] = DATA CONV("kernel_size: 3") INNER("ip", "conv", "ip", 4) LOSS;
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture f;
        fixture_open(&f, net, PHASE_TRAIN, 3, image, fixture_kernels[k]);
        fixture_gradient(&f);
        float *once = arena_array(&f.arena, f.dx.n, float);
        memcpy(once, f.dx.at, f.dx.n * sizeof(float));
        net_backward(f.net, &f.x, &f.dx, NULL);
        for (size_t i = 0; i < f.dx.n; i++)
            fixture_near((double)f.dx.at[i], 2.0 * (double)once[i], 1e-6);
        fixture_close(&f);
    }
}

/* Two learners take turns on one net: each gets what it would have got alone. */
static void test_learners_share(void **state)
{
    (void)state;
    static const char net[] = DATA CONV("kernel_size: 3") INNER("ip", "conv", "ip", 4) LOSS;
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture f;
        fixture_open(&f, net, PHASE_TRAIN, 3, image, fixture_kernels[k]);
        double first = fixture_gradient(&f).loss;
        struct vec other;
        assert_int_equal(vec_init(&other, &f.arena, f.x.n), OK);
        uint64_t hash = vec_hash(&f.dx, vec_all(&f.dx));
        struct vec mine = f.x;
        net_init(f.net, 2, &other, &f.s);
        f.x = other;
        assert_true(fixture_gradient(&f).loss != first);
        assert_true(vec_hash(&f.dx, vec_all(&f.dx)) != hash);
        f.x = mine;
        assert_true(fixture_gradient(&f).loss == first);
        assert_true(vec_hash(&f.dx, vec_all(&f.dx)) == hash);
        fixture_close(&f);
    }
}

/* Which of a record's elements a dropout keeps, as canonical blob values. */
static void drop_net(struct fixture *f, const uint64_t *records, size_t count, uint64_t seed,
                     uint64_t epoch, float *out)
{
    f->batch.records = records;
    f->batch.count = count;
    f->batch.seed = seed;
    f->batch.epoch = epoch;
    fixture_forward(f);
    assert_int_equal(net_blob(f->net, "y", out, count * 216, NULL), count * 216);
}

static void test_dropout(void **state)
{
    (void)state;
    static const char net[] = DATA "layer { name: 'drop' type: 'Dropout' bottom: 'data' top: 'y' "
                                   "dropout_param { dropout_ratio: 0.25 } }";
    static const uint64_t here[] = {5, 9, 7}, there[] = {9, 1, 5};
    float a[648], b[648], first[648];
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture f;
        fixture_open(&f, net, PHASE_TRAIN, 3, image, fixture_kernels[k]);
        for (int i = 0; i < 648; i++)
            f.data[i] = 3.0f;
        drop_net(&f, here, 3, 1, 0, a);
        drop_net(&f, there, 3, 1, 0, b);
        assert_memory_equal(a, b + 432, 216 * sizeof(float));
        assert_memory_equal(a + 216, b, 216 * sizeof(float));
        assert_memory_not_equal(a, a + 216, 216 * sizeof(float));
        int kept = 0;
        for (int i = 0; i < 648; i++) {
            assert_true(a[i] == 0.0f || a[i] == 4.0f);
            kept += a[i] != 0.0f;
        }
        assert_in_range(kept, 486 - 44, 486 + 44); /* 0.75 · 648, four standard deviations */
        drop_net(&f, here, 3, 2, 0, b);
        assert_memory_not_equal(a, b, sizeof a);
        drop_net(&f, here, 3, 1, 1, b);
        assert_memory_not_equal(a, b, sizeof a);
        if (k == 0)
            memcpy(first, a, sizeof a);
        assert_memory_equal(a, first, sizeof a); /* whatever the layout */
        fixture_close(&f);
        fixture_open(&f, net, PHASE_TEST, 3, image, fixture_kernels[k]);
        fixture_forward(&f);
        assert_int_equal(net_blob(f.net, "y", a, 648, NULL), 648);
        assert_memory_equal(a, f.data, sizeof a);
        fixture_close(&f);
    }
}

/* Scores by hand: a tie with the label is no hit, nor is a score that is not a number. */
static void test_accuracy(void **state)
{
    (void)state;
    static const char net[] =
        DATA "layer { name: 'one' type: 'Accuracy' bottom: 'data' bottom: 'label' top: 'one' }"
             "layer { name: 'two' type: 'Accuracy' bottom: 'data' bottom: 'label' top: 'two' "
             "accuracy_param { top_k: 2 } }";
    static const float scores[] = {
        1, 2, 3, /* label 2: first */
        1, 2, 3, /* label 1: second */
        1, 2, 3, /* label 0: third */
        2, 2, 1, /* label 0: ties for first */
        5, 5, 5, /* label 1: ties with all */
    };
    static const uint32_t labels[] = {2, 1, 0, 0, 1};
    static const uint64_t records[5] = {0};
    struct fixture f;
    struct shape input = {1, {3}};
    fixture_open(&f, net, PHASE_TEST, 5, input, &kernels_ref);
    f.batch = (struct net_batch){.data = scores, .labels = labels, .records = records, .count = 5};
    struct net_result result = fixture_forward(&f);
    float one, two;
    assert_true(result.has_right);
    assert_int_equal(result.right, 1);
    assert_int_equal(net_blob(f.net, "one", &one, 1, NULL), 1);
    assert_int_equal(net_blob(f.net, "two", &two, 1, NULL), 1);
    assert_true(one == 1.0f / 5.0f && two == 3.0f / 5.0f);
    assert_int_equal(net_classes(f.net), 0);
    fixture_close(&f);
}

/* The loss by hand, and where a softmax in float would have run out of numbers. */
static void test_loss(void **state)
{
    (void)state;
    static const char net[] =
        DATA "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'data' bottom: 'label' top: 'l' "
             "loss_weight: 2 }";
    static const float scores[] = {0, 0, 0, 0, 1000, -1000};
    static const uint32_t labels[] = {2, 2};
    static const uint64_t records[2] = {0};
    struct shape input = {1, {3}};
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        struct fixture f;
        fixture_open(&f, net, PHASE_TRAIN, 2, input, fixture_kernels[k]);
        f.batch =
            (struct net_batch){.data = scores, .labels = labels, .records = records, .count = 2};
        struct net_result result = fixture_forward(&f);
        float mean;
        fixture_near(result.loss, 2.0 * (log(3.0) + 2000.0), 1e-3);
        assert_int_equal(net_blob(f.net, "l", &mean, 1, NULL), 1);
        fixture_near(mean, (log(3.0) + 2000.0) / 2.0, 1e-3);
        fixture_close(&f);
    }
}

static int try_within(const char *text, enum phase phase, size_t limit, struct err *err)
{
    Caffe__NetParameter *param = fixture_parse(text);
    struct net_options options = {
        .phase = phase, .batch = 8, .input = image, .kernels = &kernels_ref, .memory_limit = limit};
    struct net *net = NULL;
    int rc = net_create(param, &options, &net, err);
    caffe__net_parameter__free_unpacked(param, NULL);
    if (rc == OK)
        net_free(net);
    return rc;
}

/* A net that would not fit is refused before memory is taken: none of these nets could be made
 * here. */
static void test_memory_limit(void **state)
{
    (void)state;
    static const struct {
        const char *net, *phrase;
    } cases[] = {
        {DATA INNER("ip", "data", "ip", 2000000000), "layer \"ip\": out of memory for parameters"},
        {DATA "layer { name: 'ip' type: 'Convolution' bottom: 'data' top: 'ip' convolution_param {"
              " num_output: 1 kernel_size: 1 pad: 1000000 } }",
         "\"ip\""},
        {DATA "layer { name: 'ip' type: 'Deconvolution' bottom: 'data' top: 'ip' convolution_param "
              "{ num_output: 1 kernel_size: 1 stride: 400000 } }"
              "layer { name: 'd' type: 'Dropout' bottom: 'ip' top: 'd' }",
         "\"ip\""},
    };
    const size_t gib = (size_t)1 << 30;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int phase = 0; phase < 2; phase++) {
            struct err err = {0};
            int rc = try_within(cases[i].net, phase ? PHASE_TEST : PHASE_TRAIN, gib, &err);
            if (rc != ERR_NOMEM || !strstr(err.text, cases[i].phrase) ||
                !strstr(err.text, "there are 1.00 GiB; the largest layer is \"ip\"") ||
                !strstr(err.text, "; no smaller batch fits: take a smaller net"))
                fail_msg("case %zu, phase %d: %d: %s", i, phase, rc, err.text);
        }
}

/* Two layers of a million floats a record, and 64 MiB. */
static void test_memory_limit_names_a_batch_that_fits(void **state)
{
    (void)state;
    static const char wide[] =
        DATA "layer { name: 'a' type: 'Convolution' bottom: 'data' top: 'a' convolution_param { "
             "num_output: 1 kernel_size: 1 pad: 500 } }"
             "layer { name: 'b' type: 'Convolution' bottom: 'a' top: 'b' convolution_param { "
             "num_output: 1 kernel_size: 1 } }";
    struct err err = {0};
    assert_int_equal(try_within(wide, PHASE_TRAIN, (size_t)64 << 20, &err), ERR_NOMEM);
    const char *names = strstr(err.text, "; lower batch from 8: ");
    size_t fits = names ? strtoul(names + strlen("; lower batch from 8: "), NULL, 10) : 0;
    if (fits != 4 && fits != 2)
        fail_msg("%s", err.text);
}

/* A limit of the container's is called that, by the file that an administrator would look for. */
static void test_memory_limit_names_the_container(void **state)
{
    (void)state;
    Caffe__NetParameter *param = fixture_parse(DATA INNER("ip", "data", "ip", 2000000000));
    const struct net_options options = {.phase = PHASE_TEST,
                                        .batch = 8,
                                        .input = image,
                                        .kernels = &kernels_ref,
                                        .memory_limit = (size_t)1 << 30,
                                        .memory_by = "memory.max"};
    struct net *net = NULL;
    struct err err = {0};
    assert_int_equal(net_create(param, &options, &net, &err), ERR_NOMEM);
    caffe__net_parameter__free_unpacked(param, NULL);
    assert_non_null(strstr(err.text, "there are 1.00 GiB allowed by the container (memory.max); "));
}

/* Parameters count in training twice, with their gradient; a net that just fits is made. */
static void test_memory_limit_is_what_it_takes(void **state)
{
    (void)state;
    static const char net[] = DATA INNER("ip", "data", "ip", 1000) LOSS;
    const size_t values = 216 * 1000 * sizeof(float);
    struct err err = {0};
    assert_int_equal(try_within(net, PHASE_TRAIN, 2 * values, &err), ERR_NOMEM);
    assert_int_equal(try_within(net, PHASE_TEST, 2 * values, &err), OK);
    assert_int_equal(try_within(net, PHASE_TRAIN, 5 * values, &err), OK);
    assert_int_equal(try_within(net, PHASE_TEST, values, &err), ERR_NOMEM);
}

static void test_steps_do_not_allocate(void **state)
{
    (void)state;
    static const char net[] =
        DATA CONV("kernel_size: 3") POOL("conv", "kernel_size: 2 stride: 2") RELU("pool", "pool")
            INNER("a", "pool", "a",
                  6) "layer { name: 'd' type: 'Dropout' bottom: 'a' top: 'a' }" INNER("ip", "a",
                                                                                      "ip", 4) LOSS;
    struct fixture f;
    fixture_open(&f, net, PHASE_TRAIN, 6, image, &kernels_ref);
    fixture_gradient(&f); /* OpenMP starts its threads on first use */
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < 10; i++)
        fixture_gradient(&f);
    assert_int_equal(mallinfo2().uordblks, before);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_segments),
        cmocka_unit_test(test_phases),
        cmocka_unit_test(test_bad_nets),
        cmocka_unit_test(test_defaults_may_be_written_out),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_data_is_left_alone),
        cmocka_unit_test(test_shared_bottom),
        cmocka_unit_test(test_partial_batch),
        cmocka_unit_test(test_partial_gradient),
        cmocka_unit_test(test_backward_adds),
        cmocka_unit_test(test_learners_share),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_memory_limit_names_a_batch_that_fits),
        cmocka_unit_test(test_memory_limit_names_the_container),
        cmocka_unit_test(test_memory_limit_is_what_it_takes),
        cmocka_unit_test(test_steps_do_not_allocate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
