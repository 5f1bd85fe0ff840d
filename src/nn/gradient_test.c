/* Gradients against central differences of the loss, for layers on every kernel set. */
#include "nn/differences.h"

#define DATA "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n"
#define LOSS(bottom)                                                \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: '" bottom \
    "' bottom: 'label' top: 'loss' }\n"
#define INNER(name, bottom, outputs)                                                   \
    "layer { name: '" name "' type: 'InnerProduct' bottom: '" bottom "' top: '" name   \
    "' inner_product_param { num_output: " outputs " weight_filler { type: 'xavier' }" \
    " bias_filler { type: 'uniform' min: -0.5 max: 0.5 } } }\n"
#define CONV(name, bottom, outputs, fields)                                                     \
    "layer { name: '" name "' type: 'Convolution' bottom: '" bottom "' top: '" name             \
    "' convolution_param { num_output: " outputs " weight_filler { type: 'gaussian' std: 0.4 }" \
    " bias_filler { type: 'uniform' min: -0.5 max: 0.5 } " fields " } }\n"
#define POOL(name, bottom, fields)                                              \
    "layer { name: '" name "' type: 'Pooling' bottom: '" bottom "' top: '" name \
    "' pooling_param { " fields " } }\n"
#define LAYER(name, type, bottom, top, fields) \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " fields " }\n"

static const struct {
    enum { SMOOTH, KINKED } kind;
    const char *what, *net;
} cases[] = {
    {SMOOTH, "inner", DATA INNER("ip", "data", "5") LOSS("ip")},
    {SMOOTH, "inner on inner", DATA INNER("a", "data", "6") INNER("ip", "a", "5") LOSS("ip")},
    {SMOOTH, "inner without bias",
     DATA "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' inner_product_param { "
          "num_output: 5 bias_term: false weight_filler { type: 'xavier' } } }" LOSS("ip")},
    {SMOOTH, "conv",
     DATA CONV("conv", "data", "3", "kernel_size: 3") INNER("ip", "conv", "5") LOSS("ip")},
    {SMOOTH, "conv with stride and padding",
     DATA CONV("conv", "data", "3", "kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 pad: 1")
         INNER("ip", "conv", "5") LOSS("ip")},
    {SMOOTH, "conv on conv",
     DATA CONV("c1", "data", "4", "kernel_size: 3")
         CONV("c2", "c1", "3", "kernel_size: 2 stride: 2 bias_term: false") INNER("ip", "c2", "5")
             LOSS("ip")},
    {KINKED, "max pooling",
     DATA CONV("conv", "data", "3", "kernel_size: 2")
         POOL("pool", "conv", "kernel_size: 2 stride: 2") INNER("ip", "pool", "5") LOSS("ip")},
    {KINKED, "max pooling, windows that overlap",
     DATA CONV("conv", "data", "3", "kernel_size: 2") POOL(
         "pool", "conv", "kernel_size: 3 stride: 2 pad: 1") INNER("ip", "pool", "5") LOSS("ip")},
    {SMOOTH, "average pooling",
     DATA CONV("conv", "data", "3", "kernel_size: 2")
         POOL("pool", "conv", "pool: AVE kernel_size: 3 stride: 2 pad: 1") INNER("ip", "pool", "5")
             LOSS("ip")},
    {SMOOTH, "global pooling",
     DATA CONV("conv", "data", "5", "kernel_size: 2")
         POOL("pool", "conv", "pool: AVE global_pooling: true") LOSS("pool")},
    {KINKED, "relu",
     DATA INNER("a", "data", "8") LAYER("r", "ReLU", "a", "r", "") INNER("ip", "r", "5")
         LOSS("ip")},
    {KINKED, "relu in place on an image",
     DATA CONV("conv", "data", "3", "kernel_size: 3") LAYER("r", "ReLU", "conv", "conv", "")
         INNER("ip", "conv", "5") LOSS("ip")},
    {KINKED, "leaky relu",
     DATA INNER("a", "data", "8") LAYER("r", "ReLU", "a", "a", "relu_param { negative_slope: 0.3 }")
         INNER("ip", "a", "5") LOSS("ip")},
    {SMOOTH, "sigmoid",
     DATA INNER("a", "data", "8") LAYER("s", "Sigmoid", "a", "s", "") INNER("ip", "s", "5")
         LOSS("ip")},
    {SMOOTH, "sigmoid in place on an image",
     DATA CONV("conv", "data", "3", "kernel_size: 3") LAYER("s", "Sigmoid", "conv", "conv", "")
         INNER("ip", "conv", "5") LOSS("ip")},
    {SMOOTH, "sigmoid and dropout in place",
     DATA INNER("a", "data", "9") LAYER("s", "Sigmoid", "a", "a", "")
         LAYER("d", "Dropout", "a", "a", "dropout_param { dropout_ratio: 0.3 }")
             INNER("ip", "a", "5") LOSS("ip")},
    {SMOOTH, "dropout",
     DATA CONV("conv", "data", "4", "kernel_size: 3") LAYER("d", "Dropout", "conv", "d", "")
         INNER("ip", "d", "5") LOSS("ip")},
    {KINKED, "relu and dropout in place",
     DATA INNER("a", "data", "9") LAYER("r", "ReLU", "a", "a", "")
         LAYER("d", "Dropout", "a", "a", "dropout_param { dropout_ratio: 0.3 }")
             INNER("ip", "a", "5") LOSS("ip")},
    {SMOOTH, "scale",
     DATA INNER("a", "data", "6") LAYER("s", "Scale", "a", "s", "scale_param { bias_term: true }")
         INNER("ip", "s", "5") LOSS("ip")},
    {SMOOTH, "scale in place on an image",
     DATA CONV("conv", "data", "3", "kernel_size: 3")
         LAYER("s", "Scale", "conv", "conv", "scale_param { filler { type: 'uniform' min: 0.5 } }")
             INNER("ip", "conv", "5") LOSS("ip")},
    {SMOOTH, "batch normalisation",
     DATA LAYER("a", "InnerProduct", "data", "a",
                "inner_product_param { num_output: 6 bias_term: false"
                " weight_filler { type: 'gaussian' std: 2 } }") /* a bias has no gradient here */
     LAYER("n", "BatchNorm", "a", "n", "") INNER("ip", "n", "5") LOSS("ip")},
    {SMOOTH, "batch normalisation and scale in place on an image",
     DATA CONV("conv", "data", "3", "kernel_size: 3 bias_term: false")
         LAYER("n", "BatchNorm", "conv", "conv", "")
             LAYER("s", "Scale", "conv", "conv", "scale_param { bias_term: true }")
                 INNER("ip", "conv", "5") LOSS("ip")},
    {SMOOTH, "batch normalisation by running sums",
     DATA CONV("conv", "data", "3", "kernel_size: 3") LAYER(
         "n", "BatchNorm", "conv", "n", "batch_norm_param { use_global_stats: true eps: 0.25 }")
         INNER("ip", "n", "5") LOSS("ip")},
    {SMOOTH, "softmax",
     DATA INNER("a", "data", "6") LAYER("p", "Softmax", "a", "p", "") INNER("ip", "p", "5")
         LOSS("ip")},
    {SMOOTH, "weighted loss",
     DATA INNER("ip", "data", "5") "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' "
                                   "bottom: 'label' top: 'loss' loss_weight: 2.5 }"},
    {KINKED, "three users of one blob",
     DATA CONV("conv", "data", "3", "kernel_size: 3") INNER("ip", "conv", "5") LOSS("ip")
         POOL("p", "conv", "pool: AVE kernel_size: 2") INNER("iq", "p", "5")
             LAYER("m", "SoftmaxWithLoss", "iq", "m", "bottom: 'label'")
                 LAYER("r", "ReLU", "conv", "conv", "") INNER("ir", "conv", "5")
                     LAYER("n", "SoftmaxWithLoss", "ir", "n", "bottom: 'label'")},
    {SMOOTH, "another blob's bias", /* whose gradient may not lie where dy does */
     DATA CONV("conv", "data", "2", "kernel_size: 1")
         LAYER("s", "Bias", "data", "s", "bottom: 'conv' bias_param { axis: 0 }")
             LAYER("t", "TanH", "s", "t", "") INNER("ip", "t", "5") LOSS("ip")},
    {SMOOTH, "another blob's scale",
     DATA CONV("conv", "data", "2", "kernel_size: 1")
         LAYER("s", "Scale", "data", "s", "bottom: 'conv' scale_param { axis: 0 }")
             INNER("ip", "s", "5") LOSS("ip")},
    {KINKED, "a chain on a chain",
     DATA CONV("conv", "data", "3", "kernel_size: 3")
         LAYER("s", "Scale", "conv", "s", "scale_param { bias_term: true }")
             LAYER("r", "ReLU", "s", "r", "")
                 LAYER("t", "Scale", "r", "t",
                       "scale_param { filler { value: -1 } bias_term: true"
                       " bias_filler { value: 0.5 } }") LAYER("u", "ReLU", "t", "u", "")
                     CONV("w", "u", "3", "kernel_size: 3") INNER("ip", "w", "5") LOSS("ip")},
    {SMOOTH, "a branch without a loss",
     DATA INNER("a", "data", "6") INNER("ip", "a", "5") LOSS("ip")
         LAYER("p", "Softmax", "a", "p", "")},
};

static void test_gradients(void **state)
{
    const struct kernels *kernels = *state;
    struct shape input = {3, {2, 7, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        differences_check(cases[i].net, cases[i].what, cases[i].kind == KINKED, input, kernels);
}

/* A parameter that no loss depends on has no gradient, and padding between segments stays zero. */
static void test_no_gradient_elsewhere(void **state)
{
    const struct kernels *kernels = *state;
    struct shape input = {3, {2, 7, 6}};
    struct fixture f;
    fixture_open(
        &f, DATA INNER("a", "data", "6") INNER("ip", "a", "5") LOSS("ip") INNER("idle", "a", "3"),
        PHASE_TRAIN, 3, input, kernels);
    fixture_gradient(&f);
    const struct segments *table = net_segments(f.net);
    size_t end = 0;
    for (size_t k = 0; k < table->count; k++) {
        const struct segment *segment = &table->at[k];
        for (size_t i = end; i < segment->offset; i++)
            assert_true(f.dx.at[i] == 0.0f);
        for (size_t i = segment->offset; i < segment->offset + segment->len && k >= 4; i++)
            assert_true(f.dx.at[i] == 0.0f);
        end = segment->offset + segment->len;
    }
    assert_string_equal(table->at[4].name, "idle.0");
    fixture_close(&f);
}

int main(void)
{
    struct CMUnitTest tests[] = {
        {"gradients_ref", test_gradients, NULL, NULL, NULL},
        {"gradients_dnnl", test_gradients, NULL, NULL, NULL},
        {"no_gradient_elsewhere_ref", test_no_gradient_elsewhere, NULL, NULL, NULL},
        {"no_gradient_elsewhere_dnnl", test_no_gradient_elsewhere, NULL, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        const struct kernels *kernels = fixture_kernels[i % FIXTURE_KERNELS];
        memcpy(&tests[i].initial_state, &kernels, sizeof kernels); /* drops a const */
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
