/* Gradients against central differences, for losses and for what the graph adds up: weights of
 * tops, losses of losses, parameters that layers share. */
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
#define LAYER(name, type, bottom, top, fields) \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " fields " }\n"

static const struct {
    enum { SMOOTH, KINKED } kind;
    const char *what, *net;
} cases[] = {
    {SMOOTH, "softmax loss of pixels, one class ignored, by batch size",
     DATA LAYER("cut", "Slice", "data", "a", "top: 'b' slice_param { slice_point: 1 }")
         LAYER("sign", "Power", "b", "given", "power_param { scale: 1.49 shift: 1.49 }")
             CONV("conv", "a", "3", "kernel_size: 1")
                 LAYER("loss", "SoftmaxWithLoss", "conv", "loss",
                       "bottom: 'given' loss_param { ignore_label: 2 normalization: BATCH_SIZE }")},
    {SMOOTH, "softmax loss along an axis that is not the second",
     DATA LAYER("cut", "Slice", "data", "a", "top: 'b' slice_param { axis: 2 slice_point: 1 }")
         LAYER("sign", "Power", "a", "given", "power_param { scale: 3.4 shift: 3.4 }")
             CONV("conv", "data", "2", "kernel_size: 1 bias_term: false")
                 LAYER("loss", "SoftmaxWithLoss", "conv", "loss",
                       "bottom: 'given' softmax_param { axis: 2 }")},
    {SMOOTH, "euclidean loss of two branches",
     DATA INNER("a", "data", "6") CONV("conv", "data", "1", "kernel_h: 6 kernel_w: 4")
         LAYER("loss", "EuclideanLoss", "conv", "loss", "bottom: 'a'")},
    {SMOOTH, "euclidean loss of images in two layouts",
     DATA CONV("conv", "data", "2", "kernel_size: 1") INNER("a", "data", "84")
         LAYER("loss", "EuclideanLoss", "a", "loss", "bottom: 'conv' loss_weight: 0.5")},
    {SMOOTH, "sigmoid cross entropy loss",
     DATA CONV("conv", "data", "2", "kernel_size: 1")
         LAYER("loss", "SigmoidCrossEntropyLoss", "conv", "loss", "bottom: 'data'")},
    {SMOOTH, "sigmoid cross entropy loss, zeros ignored",
     DATA LAYER("twice", "Power", "data", "t", "power_param { scale: 2 }")
         CONV("conv", "data", "2", "kernel_size: 1")
             LAYER("loss", "SigmoidCrossEntropyLoss", "conv", "loss",
                   "bottom: 't' loss_param { ignore_label: 0 normalize: true }")},
    {KINKED, "hinge loss L1",
     DATA INNER("ip", "data", "5") LAYER("loss", "HingeLoss", "ip", "loss", "bottom: 'label'")},
    {SMOOTH, "hinge loss L2",
     DATA CONV("conv", "data", "2", "kernel_h: 5 kernel_w: 4") LAYER(
         "loss", "HingeLoss", "conv", "loss", "bottom: 'label' hinge_loss_param { norm: L2 }")},
    {SMOOTH, "weights on tops that are no losses, one of them read by others",
     DATA INNER("a", "data", "6") LAYER("s", "Sigmoid", "a", "s", "loss_weight: 0.25")
         INNER("ip", "s", "5") LOSS("ip") LAYER("t", "Sigmoid", "ip", "t", "loss_weight: -0.5")},
    {SMOOTH, "a loss of a loss",
     DATA INNER("ip", "data", "5") LOSS("ip")
         LAYER("p", "Power", "loss", "p", "power_param { power: 2 } loss_weight: 0.5")},
    {SMOOTH, "parameters that two layers share",
     DATA INNER("a", "data", "6")
         LAYER("b", "InnerProduct", "a", "b",
               "param { name: 'w' } param { name: 'b' } inner_product_param { num_output: 6 "
               "weight_filler { type: 'xavier' } }") LAYER("s", "Sigmoid", "b", "s", "")
             LAYER("c", "InnerProduct", "s", "c",
                   "param { name: 'w' } param { name: 'b' } inner_product_param { num_output: 6 }")
                 INNER("ip", "c", "5") LOSS("ip")},
};

static void test_gradients(void **state)
{
    const struct kernels *kernels = *state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        differences_check(cases[i].net, cases[i].what, cases[i].kind == KINKED,
                          (struct shape){3, {2, 7, 6}}, kernels);
}

int main(void)
{
    struct CMUnitTest tests[] = {
        {"gradients_ref", test_gradients, NULL, NULL, NULL},
        {"gradients_dnnl", test_gradients, NULL, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        memcpy(&tests[i].initial_state, &fixture_kernels[i], sizeof fixture_kernels[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
