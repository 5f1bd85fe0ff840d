/* Old fields into new ones, each with its expected result. */
#include "model/caffe_upgrade.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "job/text.h"

#include <stdio.h>
#include <string.h>

static Caffe__NetParameter *parse_net(const char *text)
{
    ProtobufCMessage *msg;
    struct err err = {0};
    if (text_parse(&caffe__net_parameter__descriptor, "old", text, strlen(text), &msg, &err) != OK)
        fail_msg("%s", err.text);
    return (Caffe__NetParameter *)msg;
}

static void expect_upgrade(const char *old, const char *fresh)
{
    Caffe__NetParameter *net = parse_net(old), *want = parse_net(fresh);
    struct buf a = {0}, b = {0};
    struct err err = {0};
    if (caffe_upgrade(net, &err) != OK)
        fail_msg("%s", err.text);
    text_write(&net->base, &a);
    text_write(&want->base, &b);
    buf_put_u8(&a, 0);
    buf_put_u8(&b, 0);
    assert_string_equal((char *)a.data, (char *)b.data);
    buf_release(&a);
    buf_release(&b);
    caffe__net_parameter__free_unpacked(net, NULL);
    caffe__net_parameter__free_unpacked(want, NULL);
}

static void expect_refusal(const char *old, int status, const char *words)
{
    Caffe__NetParameter *net = parse_net(old);
    struct err err = {0};
    assert_int_equal(caffe_upgrade(net, &err), status);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" says nothing of \"%s\"", err.text, words);
    caffe__net_parameter__free_unpacked(net, NULL);
}

static void test_a_convolution(void **state)
{
    (void)state;
    expect_upgrade(
        "name: 'n' layers { name: 'conv1' type: CONVOLUTION bottom: 'data' top: 'conv1' "
        "blobs_lr: 1 blobs_lr: 2 weight_decay: 250 weight_decay: 0 "
        "convolution_param { num_output: 32 pad: 2 kernel_size: 5 "
        "weight_filler { type: 'gaussian' std: 0.0001 } } }",
        "name: 'n' layer { name: 'conv1' type: 'Convolution' bottom: 'data' top: 'conv1' "
        "param { lr_mult: 1 decay_mult: 250 } param { lr_mult: 2 decay_mult: 0 } "
        "convolution_param { num_output: 32 pad: 2 kernel_size: 5 "
        "weight_filler { type: 'gaussian' std: 0.0001 } } }");
}

static void test_shared_parameters(void **state)
{
    (void)state;
    expect_upgrade(
        "layers { name: 'a' type: INNER_PRODUCT param: 'w' param: 'b' "
        "blob_share_mode: STRICT blob_share_mode: PERMISSIVE blobs_lr: 3 "
        "inner_product_param { num_output: 2 } }",
        "layer { name: 'a' type: 'InnerProduct' "
        "param { name: 'w' share_mode: STRICT lr_mult: 3 } "
        "param { name: 'b' share_mode: PERMISSIVE } inner_product_param { num_output: 2 } }");
}

static void test_phases_and_losses(void **state)
{
    (void)state;
    expect_upgrade(
        "layers { name: 'loss' type: SOFTMAX_LOSS bottom: 's' bottom: 'l' top: 'loss' "
        "loss_weight: 0.3 include { phase: TEST stage: 'x' } } "
        "layers { name: 'acc' type: ACCURACY exclude { phase: TRAIN } "
        "accuracy_param { top_k: 5 } }",
        "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 's' bottom: 'l' top: 'loss' "
        "loss_weight: 0.3 include { phase: TEST stage: 'x' } } "
        "layer { name: 'acc' type: 'Accuracy' exclude { phase: TRAIN } "
        "accuracy_param { top_k: 5 } }");
}

/* The values of data_param and image_data_param take precedence over transform_param's. */
static void test_values_of_data(void **state)
{
    (void)state;
    expect_upgrade(
        "layers { name: 'd' type: DATA data_param { source: 's' batch_size: 4 scale: 0.5 "
        "mean_file: 'm' crop_size: 27 mirror: true } transform_param { scale: 2 } }",
        "layer { name: 'd' type: 'Data' data_param { source: 's' batch_size: 4 } "
        "transform_param { scale: 0.5 mean_file: 'm' crop_size: 27 mirror: true } }");
    expect_upgrade(
        "layers { name: 'd' type: IMAGE_DATA image_data_param { source: 's' mirror: false "
        "mean_file: 'm' new_height: 8 } transform_param { mean_file: 'n' crop_size: 3 } }",
        "layer { name: 'd' type: 'ImageData' image_data_param { source: 's' new_height: 8 } "
        "transform_param { mean_file: 'm' crop_size: 3 mirror: false } }");
}

static void test_blobs_and_inputs_stay(void **state)
{
    (void)state;
    expect_upgrade(
        "input: 'data' input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8 "
        "layers { name: 'ip' type: INNER_PRODUCT blobs { num: 1 channels: 1 height: 1 width: 2 "
        "data: 1 data: -2 } }",
        "input: 'data' input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8 "
        "layer { name: 'ip' type: 'InnerProduct' blobs { num: 1 channels: 1 height: 1 width: 2 "
        "data: 1 data: -2 } }");
    expect_upgrade("layer { name: 'bn' type: 'BatchNorm' param { lr_mult: 0 } param { lr_mult: 0 } "
                   "param { lr_mult: 0 } }",
                   "layer { name: 'bn' type: 'BatchNorm' param { lr_mult: 0 } param { lr_mult: 0 } "
                   "param { lr_mult: 0 } }");
}

/* All that V1 has, by Caffe's names. */
static void test_every_type(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"ABSVAL", "AbsVal"},
        {"ACCURACY", "Accuracy"},
        {"ARGMAX", "ArgMax"},
        {"BNLL", "BNLL"},
        {"CONCAT", "Concat"},
        {"CONTRASTIVE_LOSS", "ContrastiveLoss"},
        {"CONVOLUTION", "Convolution"},
        {"DATA", "Data"},
        {"DECONVOLUTION", "Deconvolution"},
        {"DROPOUT", "Dropout"},
        {"DUMMY_DATA", "DummyData"},
        {"EUCLIDEAN_LOSS", "EuclideanLoss"},
        {"ELTWISE", "Eltwise"},
        {"EXP", "Exp"},
        {"FLATTEN", "Flatten"},
        {"HDF5_DATA", "HDF5Data"},
        {"HDF5_OUTPUT", "HDF5Output"},
        {"HINGE_LOSS", "HingeLoss"},
        {"IM2COL", "Im2col"},
        {"IMAGE_DATA", "ImageData"},
        {"INFOGAIN_LOSS", "InfogainLoss"},
        {"INNER_PRODUCT", "InnerProduct"},
        {"LRN", "LRN"},
        {"MEMORY_DATA", "MemoryData"},
        {"MULTINOMIAL_LOGISTIC_LOSS", "MultinomialLogisticLoss"},
        {"MVN", "MVN"},
        {"NONE", ""},
        {"POOLING", "Pooling"},
        {"POWER", "Power"},
        {"RELU", "ReLU"},
        {"SIGMOID", "Sigmoid"},
        {"SIGMOID_CROSS_ENTROPY_LOSS", "SigmoidCrossEntropyLoss"},
        {"SILENCE", "Silence"},
        {"SOFTMAX", "Softmax"},
        {"SOFTMAX_LOSS", "SoftmaxWithLoss"},
        {"SPLIT", "Split"},
        {"SLICE", "Slice"},
        {"TANH", "TanH"},
        {"THRESHOLD", "Threshold"},
        {"WINDOW_DATA", "WindowData"},
    };
    assert_int_equal(sizeof pairs / sizeof *pairs, 40);
    for (size_t i = 0; i < 40; i++) {
        char old[128], fresh[128];
        snprintf(old, sizeof old, "layers { name: 'x' type: %s }", pairs[i][0]);
        snprintf(fresh, sizeof fresh, "layer { name: 'x' type: '%s' }", pairs[i][1]);
        expect_upgrade(old, fresh);
    }
    assert_null(caffe_upgrade_type(40));
    assert_null(caffe_upgrade_type(UINT64_MAX));
}

static void test_what_is_refused(void **state)
{
    (void)state;
    expect_refusal("layer { name: 'a' } layers { name: 'b' }", ERR_INPUT,
                   "both `layer` and `layers`");
    expect_refusal("layers { layer { } }", ERR_UNSUPPORTED, "V0LayerParameter");
    expect_refusal("layer { name: 'd' type: 'Data' data_param { scale: 2 } }", ERR_INPUT,
                   "layer \"d\": scale, mean_file, crop_size and mirror belong in transform_param");
    /* The place comes from the reader of text. */
    const char *old = "layers {\n  layer { name: 'conv1' }\n}";
    ProtobufCMessage *msg;
    struct err err = {0};
    assert_int_equal(
        text_parse(&caffe__net_parameter__descriptor, "old", old, strlen(old), &msg, &err),
        ERR_INPUT);
    assert_string_equal(err.text, "old:2:11: V0LayerParameter has no field `name`, but "
                                  "V1LayerParameter has: is the `}` of `layer`, which begins in "
                                  "line 2, missing?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_convolution),         cmocka_unit_test(test_shared_parameters),
        cmocka_unit_test(test_phases_and_losses),     cmocka_unit_test(test_values_of_data),
        cmocka_unit_test(test_blobs_and_inputs_stay), cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
