/* The layers that look at images through windows: Convolution with groups and dilation,
 * Deconvolution, Pooling, LRN. Output sizes by Caffe's rules, worked out by hand; gradients against
 * differences; and every field is honoured or refused by name. */
#include "nn/differences.h"

#include <stdio.h>

#define DATA "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n"
#define LOSS(bottom)                                                \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: '" bottom \
    "' bottom: 'label' top: 'loss' }\n"
#define INNER(name, bottom, outputs)                                                   \
    "layer { name: '" name "' type: 'InnerProduct' bottom: '" bottom "' top: '" name   \
    "' inner_product_param { num_output: " outputs " weight_filler { type: 'xavier' }" \
    " bias_filler { type: 'uniform' min: -0.5 max: 0.5 } } }\n"
#define WEIGHTS                                   \
    "weight_filler { type: 'gaussian' std: 0.4 }" \
    " bias_filler { type: 'uniform' min: -0.5 max: 0.5 } "
#define CONV(name, bottom, fields)                                                  \
    "layer { name: '" name "' type: 'Convolution' bottom: '" bottom "' top: '" name \
    "' convolution_param { " WEIGHTS fields " } }\n"
#define DECONV(name, bottom, fields)                                                  \
    "layer { name: '" name "' type: 'Deconvolution' bottom: '" bottom "' top: '" name \
    "' convolution_param { " WEIGHTS fields " } }\n"
#define POOL(name, bottom, fields)                                              \
    "layer { name: '" name "' type: 'Pooling' bottom: '" bottom "' top: '" name \
    "' pooling_param { " fields " } }\n"
#define LRN(name, bottom, fields)                                           \
    "layer { name: '" name "' type: 'LRN' bottom: '" bottom "' top: '" name \
    "' lrn_param { " fields " } }\n"

/* ---- output sizes ---- */

static void expect_shape(const struct net *net, const char *what, const char *name,
                         const char *want)
{
    struct shape shape = {0};
    char text[128];
    net_blob(net, name, NULL, 0, &shape);
    shape_text(&shape, text, sizeof text);
    if (strcmp(text, want) != 0)
        fail_msg("%s: %s, not %s", what, text, want);
}

/* Of a batch of 5 images, 4x9x8. Weights are told, too, where there are any. */
static void test_shapes(void **state)
{
    const struct kernels *kernels = *state;
    static const struct {
        const char *layer, *top, *weights;
    } cases[] = {
        {CONV("y", "data", "num_output: 6 kernel_size: 3 group: 2"), "5x6x7x6", "6x2x3x3"},
        {CONV("y", "data", "num_output: 8 kernel_size: 3 group: 4"), "5x8x7x6", "8x1x3x3"},
        /* spans 2·2 + 1 = 5 */
        {CONV("y", "data", "num_output: 2 kernel_size: 3 dilation: 2"), "5x2x5x4", "2x4x3x3"},
        /* rows span 3·1 + 1 = 4: (9 + 2 - 4) / 2 + 1; columns 1: 8 + 2 */
        {CONV("y", "data",
              "num_output: 2 kernel_h: 2 kernel_w: 1 dilation: 3 dilation: 1 stride_h: 2"
              " stride_w: 1 pad: 1"),
         "5x2x4x10", "2x4x2x1"},
        {CONV("y", "data", "num_output: 2 kernel_size: 3 pad_h: 1"), "5x2x9x6", "2x4x3x3"},
        {CONV("y", "data", "num_output: 2 kernel_size: 1 axis: -3 engine: CAFFE"), "5x2x9x8",
         "2x4x1x1"},
        {CONV("y", "data", "num_output: 2 kernel_size: 3 force_nd_im2col: true engine: CUDNN"),
         "5x2x7x6", "2x4x3x3"},
        /* 2·(9 - 1) + 4 - 2 and 2·(8 - 1) + 4 - 2 */
        {DECONV("y", "data", "num_output: 6 kernel_size: 4 stride: 2 pad: 1"), "5x6x18x16",
         "4x6x4x4"},
        {DECONV("y", "data", "num_output: 4 kernel_size: 4 stride: 2 pad: 1 group: 4"), "5x4x18x16",
         "4x1x4x4"},
        {DECONV("y", "data", "num_output: 2 kernel_size: 3 dilation: 2 group: 2"), "5x2x13x12",
         "4x1x3x3"},
        {DECONV("y", "data", "num_output: 3 kernel_size: 1"), "5x3x9x8", "4x3x1x1"},
        /* up: (9 - 3)/2 + 1 = 4, ⌈(8 - 3)/2⌉ + 1 = 4; down: 4 and 3 */
        {POOL("y", "data", "kernel_size: 3 stride: 2"), "5x4x4x4", NULL},
        {POOL("y", "data", "kernel_size: 3 stride: 2 round_mode: FLOOR"), "5x4x4x3", NULL},
        {POOL("y", "data", "kernel_h: 3 kernel_w: 2 stride_h: 3 stride_w: 1 pool: AVE"), "5x4x3x7",
         NULL},
        /* ⌈(9 + 2 - 2)/2⌉ + 1 = 6, but the sixth begins at 10, in the padding: 5; ⌈8/2⌉ + 1 = 5 */
        {POOL("y", "data", "kernel_size: 2 stride: 2 pad: 1"), "5x4x5x5", NULL},
        {POOL("y", "data", "kernel_size: 3 pad_h: 2 pad_w: 0 engine: CUDNN"), "5x4x11x6", NULL},
        {POOL("y", "data", "global_pooling: true"), "5x4x1x1", NULL},
        {POOL("y", "data", "global_pooling: true stride: 1 pad_h: 0 pad_w: 0 pool: AVE"), "5x4x1x1",
         NULL},
        {LRN("y", "data", ""), "5x4x9x8", NULL},
        {LRN("y", "data", "local_size: 3 norm_region: WITHIN_CHANNEL engine: CAFFE k: 1"),
         "5x4x9x8", NULL},
    };
    struct shape image = {3, {4, 9, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct net *net = NULL;
        struct err err = {0};
        char text[1024], shape[128];
        snprintf(text, sizeof text, "%s%s", DATA, cases[i].layer);
        if (fixture_try(text, PHASE_TEST, 5, image, kernels, &net, &err) != OK)
            fail_msg("%s: %s", cases[i].layer, err.text);
        expect_shape(net, cases[i].layer, "y", cases[i].top);
        const struct segments *table = net_segments(net);
        assert_int_equal(table->count > 0, cases[i].weights != NULL);
        if (cases[i].weights)
            assert_string_equal(shape_text(&table->at[0].shape, shape, sizeof shape),
                                cases[i].weights);
        net_free(net);
    }
}

/* ---- refusals ---- */

static void test_refusals(void **state)
{
    const struct kernels *kernels = *state;
    static const struct {
        const char *layer;
        int status;
        const char *phrase[2];
    } cases[] = {
        {CONV("y", "data", "num_output: 6 kernel_size: 3 group: 3"),
         ERR_INPUT,
         {"convolution_param.group: 3", "4 inputs"}},
        {CONV("y", "data", "num_output: 3 kernel_size: 3 group: 2"),
         ERR_INPUT,
         {"convolution_param.group: 2", "3 outputs"}},
        {CONV("y", "data", "num_output: 4 kernel_size: 3 group: 0"), ERR_INPUT, {"group: 0"}},
        {CONV("y", "data", "num_output: 4 kernel_size: 3 dilation: 0"),
         ERR_INPUT,
         {"dilation: 0x0"}},
        {CONV("y", "data", "num_output: 4 kernel_size: 3 dilation: 5"),
         ERR_INPUT,
         {"the kernel, 11x11", "9x8"}},
        {CONV("y", "data", "num_output: 4 kernel_size: 3 axis: 2"),
         ERR_UNSUPPORTED,
         {"convolution_param.axis: 2"}},
        {CONV("y", "data", "num_output: 4 kernel_size: 3 kernel_size: 3 kernel_size: 3"),
         ERR_INPUT,
         {"kernel_size has 3 values"}},
        {CONV("y", "data", "num_output: 4 kernel_h: 3"), ERR_INPUT, {"kernel_size: height"}},
        {CONV("y", "data", "num_output: 4 kernel_size: 3 stride_w: 2"),
         ERR_INPUT,
         {"stride: height"}},
        {CONV("y", "data", "num_output: 4 kernel_size: 3 stride: 2000000"),
         ERR_INPUT,
         {"stride: 2000000x2000000 is out of range"}},
        {CONV("y", "data", "kernel_size: 3"), ERR_INPUT, {"num_output"}},
        {DECONV("y", "data", "num_output: 4 kernel_size: 3 pad: 6"),
         ERR_INPUT,
         {"pad, 6x6, leaves nothing of 11x10"}},
        {DECONV("y", "data", "num_output: 4 kernel_size: 3 group: 3"),
         ERR_INPUT,
         {"convolution_param.group: 3"}},
        {DECONV("y", "data", "num_output: 4 kernel_size: 3 axis: 0"),
         ERR_UNSUPPORTED,
         {"convolution_param.axis: 0"}},
        {INNER("ip", "data", "4") CONV("y", "ip", "num_output: 4 kernel_size: 1"),
         ERR_INPUT,
         {"5x4", "a convolution takes NxCxHxW"}},
        {INNER("ip", "data", "4") DECONV("y", "ip", "num_output: 4 kernel_size: 1"),
         ERR_INPUT,
         {"5x4", "a deconvolution takes NxCxHxW"}},
        {POOL("y", "data", "pool: STOCHASTIC kernel_size: 2"), ERR_UNSUPPORTED, {"STOCHASTIC"}},
        {POOL("y", "data", "global_pooling: true kernel_size: 2"),
         ERR_INPUT,
         {"global_pooling takes no kernel"}},
        {POOL("y", "data", "global_pooling: true stride: 2"),
         ERR_INPUT,
         {"global_pooling takes no stride"}},
        {POOL("y", "data", "global_pooling: true pad_h: 1 pad_w: 0"),
         ERR_INPUT,
         {"global_pooling takes no stride and no pad"}},
        {POOL("y", "data", "kernel_size: 2 pad: 2"), ERR_INPUT, {"pad, 2x2"}},
        {POOL("y", "data", "kernel_size: 2 pad_h: 1"), ERR_INPUT, {"pad: height and width"}},
        {POOL("y", "data", "kernel_size: 2 stride: 2 stride_h: 2 stride_w: 2"),
         ERR_INPUT,
         {"stride is given in two forms"}},
        /* a third column of windows, which begin at 8, past the image */
        {POOL("y", "data", "kernel_size: 1 stride: 4"),
         ERR_UNSUPPORTED,
         {"a window holds no pixel"}},
        {"layer { name: 'y' type: 'Pooling' bottom: 'data' top: 'y' top: 'mask' pooling_param {"
         " kernel_size: 2 } }",
         ERR_UNSUPPORTED,
         {"top \"mask\"", "second top"}},
        {LRN("y", "data", "local_size: 4"), ERR_INPUT, {"lrn_param.local_size: 4"}},
        {LRN("y", "data", "local_size: 0"), ERR_INPUT, {"lrn_param.local_size: 0"}},
        {LRN("y", "data", "local_size: 4294967295"), ERR_INPUT, {"at most"}},
        {LRN("y", "data", "alpha: inf"), ERR_INPUT, {"lrn_param: alpha"}},
        {LRN("y", "data", "norm_region: WITHIN_CHANNEL k: 2"), ERR_UNSUPPORTED, {"lrn_param.k: 2"}},
        {INNER("ip", "data", "4") LRN("y", "ip", ""), ERR_INPUT, {"5x4", "LRN takes NxCxHxW"}},
    };
    struct shape image = {3, {4, 9, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct net *net = NULL;
        struct err err = {0};
        char text[2048];
        snprintf(text, sizeof text, "%s%s", DATA, cases[i].layer);
        int rc = fixture_try(text, PHASE_TRAIN, 5, image, kernels, &net, &err);
        if (rc != cases[i].status || !strstr(err.text, "layer \"y\": "))
            fail_msg("%s: status %d: %s", cases[i].layer, rc, err.text);
        for (size_t k = 0; k < 2 && cases[i].phrase[k]; k++)
            if (!strstr(err.text, cases[i].phrase[k]))
                fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].layer, err.text,
                         cases[i].phrase[k]);
    }
}

/* ---- gradients ---- */

static const struct {
    const char *what, *net;
    bool kinked;
} cases[] = {
    {"groups",
     DATA CONV("a", "data", "num_output: 6 kernel_size: 3 pad: 1 group: 2") INNER("ip", "a", "5")
         LOSS("ip"),
     false},
    {"depthwise on depthwise",
     DATA CONV("a", "data", "num_output: 4 kernel_size: 3 group: 4")
         CONV("b", "a", "num_output: 8 kernel_size: 2 group: 4 bias_term: false")
             INNER("ip", "b", "5") LOSS("ip"),
     false},
    {"dilation",
     DATA CONV("a", "data", "num_output: 3 kernel_size: 1")
         CONV("b", "a", "num_output: 3 kernel_size: 2 dilation: 2 pad: 1 stride: 2")
             INNER("ip", "b", "5") LOSS("ip"),
     false},
    {"deconvolution",
     DATA CONV("a", "data", "num_output: 3 kernel_size: 3 stride: 2")
         DECONV("b", "a", "num_output: 2 kernel_size: 4 stride: 2 pad: 1") INNER("ip", "b", "5")
             LOSS("ip"),
     false},
    {"deconvolution with groups and dilation",
     DATA CONV("a", "data", "num_output: 4 kernel_size: 3 stride: 2")
         DECONV("b", "a", "num_output: 6 kernel_size: 2 dilation: 2 group: 2") INNER("ip", "b", "5")
             LOSS("ip"),
     false},
    {"deconvolution without bias",
     DATA DECONV("a", "data", "num_output: 2 kernel_h: 3 kernel_w: 2 bias_term: false")
         INNER("ip", "a", "5") LOSS("ip"),
     false},
    {"pooling, rounded down",
     DATA CONV("a", "data", "num_output: 3 kernel_size: 1")
         POOL("b", "a", "pool: AVE kernel_size: 2 stride: 2 round_mode: FLOOR")
             INNER("ip", "b", "5") LOSS("ip"),
     false},
    {"global maximum",
     DATA CONV("a", "data", "num_output: 6 kernel_size: 2") POOL("b", "a", "global_pooling: true")
         INNER("ip", "b", "5") LOSS("ip"),
     true},
    {"padded averages",
     DATA CONV("a", "data", "num_output: 3 kernel_size: 2")
         POOL("b", "a", "pool: AVE kernel_size: 4 stride: 3 pad_h: 3 pad_w: 1")
             INNER("ip", "b", "5") LOSS("ip"),
     false},
    {"maximum, then rectified in place",
     DATA CONV("a", "data", "num_output: 3 kernel_size: 2")
         POOL("b", "a", "kernel_size: 2 stride: 2") "layer { name: 'r' type: 'ReLU' bottom: 'b' "
                                                    "top: 'b' }" INNER("ip", "b", "5") LOSS("ip"),
     true},
    {"normalisation across",
     DATA CONV("a", "data", "num_output: 6 kernel_size: 3")
         LRN("n", "a", "local_size: 3 alpha: 2 beta: 0.75 k: 2") INNER("ip", "n", "5") LOSS("ip"),
     false},
    {"normalisation within",
     DATA CONV("a", "data", "num_output: 4 kernel_size: 3")
         LRN("n", "a", "local_size: 3 alpha: 3 beta: 0.6 norm_region: WITHIN_CHANNEL")
             INNER("ip", "n", "5") LOSS("ip"),
     false},
};

static void test_gradients(void **state)
{
    const struct kernels *kernels = *state;
    struct shape input = {3, {4, 7, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        differences_check(cases[i].net, cases[i].what, cases[i].kinked, input, kernels);
}

/* A batch of 2 where 5 are planned has the loss and the gradient that a net of 2 has. */
static void test_batch_that_is_not_full(void **state)
{
    const struct kernels *kernels = *state;
    struct shape input = {3, {4, 7, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture whole, exact;
        fixture_open(&whole, cases[i].net, PHASE_TRAIN, 5, input, kernels);
        fixture_open(&exact, cases[i].net, PHASE_TRAIN, 2, input, kernels);
        fixture_gradient(&whole); /* leaves its values behind */
        whole.batch.count = 2;
        double loss = fixture_gradient(&whole).loss;
        fixture_near(loss, fixture_gradient(&exact).loss, 1e-5);
        for (size_t k = 0; k < exact.dx.n; k++)
            if (!(fabsf(whole.dx.at[k] - exact.dx.at[k]) <= 1e-5f))
                fail_msg("%s, %s: dx[%zu] is %g, not %g", kernels->name, cases[i].what, k,
                         (double)whole.dx.at[k], (double)exact.dx.at[k]);
        fixture_close(&whole);
        fixture_close(&exact);
    }
}

int main(void)
{
    struct CMUnitTest tests[] = {
        {"shapes_ref", test_shapes, NULL, NULL, NULL},
        {"shapes_dnnl", test_shapes, NULL, NULL, NULL},
        {"refusals_ref", test_refusals, NULL, NULL, NULL},
        {"refusals_dnnl", test_refusals, NULL, NULL, NULL},
        {"gradients_ref", test_gradients, NULL, NULL, NULL},
        {"gradients_dnnl", test_gradients, NULL, NULL, NULL},
        {"batch_that_is_not_full_ref", test_batch_that_is_not_full, NULL, NULL, NULL},
        {"batch_that_is_not_full_dnnl", test_batch_that_is_not_full, NULL, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        const struct kernels *kernels = fixture_kernels[i % FIXTURE_KERNELS];
        memcpy(&tests[i].initial_state, &kernels, sizeof kernels); /* drops a const */
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
