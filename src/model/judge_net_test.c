/* Nets that only score, before and after. */
#include "model/judge_net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "job/text.h"
#include "nn/net.h"

#include <stdio.h>
#include <string.h>

#define LOSS                                                                         \
    " layer { name: 'judged_loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: '%' " \
    "top: 'judged_loss' }"
#define ACCURACY                                                                  \
    " layer { name: 'judged_accuracy' type: 'Accuracy' bottom: 'ip' bottom: '%' " \
    "top: 'judged_accuracy' include { phase: TEST } }"
#define IP   "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' } "
#define PROB "layer { name: 'prob' type: 'Softmax' bottom: 'ip' top: 'prob' }"

static Caffe__NetParameter *parse_net(const char *text)
{
    ProtobufCMessage *msg;
    struct err err = {0};
    if (text_parse(&caffe__net_parameter__descriptor, "net", text, strlen(text), &msg, &err) != OK)
        fail_msg("%s", err.text);
    return (Caffe__NetParameter *)msg;
}

/* `label` is what the expected text calls '%'. */
static void expect_judged(const char *before, const char *after, const char *label, bool lossless)
{
    struct buf wanted = {0}, a = {0}, b = {0};
    struct err err = {0};
    bool message;
    for (const char *c = after; *c; c++)
        if (*c == '%')
            buf_printf(&wanted, "%s", label);
        else
            buf_put_u8(&wanted, (uint8_t)*c);
    buf_put_u8(&wanted, 0);
    Caffe__NetParameter *net = parse_net(before), *want = parse_net((char *)wanted.data);
    if (model_judge(net, &message, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(message, lossless);
    text_write(&net->base, &a);
    text_write(&want->base, &b);
    buf_put_u8(&a, 0);
    buf_put_u8(&b, 0);
    assert_string_equal((char *)a.data, (char *)b.data);
    buf_release(&wanted);
    buf_release(&a);
    buf_release(&b);
    caffe__net_parameter__free_unpacked(net, NULL);
    caffe__net_parameter__free_unpacked(want, NULL);
}

static void test_a_deploy_net(void **state)
{
    (void)state;
    expect_judged(
        "input: 'data' input_dim: 64 input_dim: 1 input_dim: 28 input_dim: 28 " IP PROB,
        "input: 'data' input: 'label' input_dim: 64 input_dim: 1 input_dim: 28 input_dim: 28 "
        "input_dim: 1 input_dim: 1 input_dim: 1 input_dim: 1 " IP PROB LOSS ACCURACY,
        "label", false);
    expect_judged(
        "input: 'data' input_shape { dim: 1 dim: 8 } " IP PROB,
        "input: 'data' input: 'label' input_shape { dim: 1 dim: 8 } input_shape { dim: 1 } " IP PROB
            LOSS ACCURACY,
        "label", false);
}

static void test_scores_without_softmax(void **state)
{
    (void)state;
    expect_judged("layer { name: 'd' type: 'Input' top: 'data' } " IP,
                  "layer { name: 'd' type: 'Input' top: 'data' top: 'label' } " IP LOSS ACCURACY,
                  "label", true);
    expect_judged(
        "layer { name: 'd' type: 'Input' top: 'data' input_param { shape { dim: 64 dim: 8 } } "
        "} " IP,
        "layer { name: 'd' type: 'Input' top: 'data' top: 'label' input_param { shape { "
        "dim: 64 dim: 8 } shape { dim: 1 } } } " IP LOSS ACCURACY,
        "label", true);
}

/* However a net says what comes in, it is one that can be made, and knows its classes. */
static void test_judged_nets_are_nets(void **state)
{
    (void)state;
    static const char *const inputs[] = {
        "layer { name: 'd' type: 'Input' top: 'data' input_param { shape { dim: 64 dim: 1 dim: 28 "
        "dim: 28 } } } ",
        "layer { name: 'd' type: 'Input' top: 'data' } ",
        "layer { name: 'd' type: 'MemoryData' top: 'data' memory_data_param { batch_size: 64 "
        "channels: 1 height: 28 width: 28 } } ",
        "input: 'data' input_dim: 64 input_dim: 1 input_dim: 28 input_dim: 28 ",
        "input: 'data' input_shape { dim: 64 dim: 1 dim: 28 dim: 28 } ",
        "input: 'data' ",
    };
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        const struct net_options options = {
            .phase = PHASE_TEST,
            .batch = 3,
            .input = {3, {1, 28, 28}},
            .kernels = &kernels_ref,
        };
        char text[1024];
        struct net *net = NULL;
        struct err err = {0};
        bool lossless;
        snprintf(text, sizeof text,
                 "%s layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' "
                 "inner_product_param { num_output: 10 } } " PROB,
                 inputs[i]);
        Caffe__NetParameter *param = parse_net(text);
        if (model_judge(param, &lossless, &err) != OK ||
            net_create(param, &options, &net, &err) != OK)
            fail_msg("%s: %s", inputs[i], err.text);
        assert_int_equal(net_classes(net), 10);
        net_free(net);
        caffe__net_parameter__free_unpacked(param, NULL);
    }
}

/* Labels that are there are used; a name that is taken is not. */
static void test_labels(void **state)
{
    (void)state;
    expect_judged(
        "layer { name: 'd' type: 'Data' top: 'data' top: 'truth' } " IP PROB,
        "layer { name: 'd' type: 'Data' top: 'data' top: 'truth' } " IP PROB LOSS ACCURACY, "truth",
        false);
    expect_judged("input: 'data' " IP
                  "layer { name: 'label' type: 'ReLU' bottom: 'ip' top: 'label' } "
                  "layer { name: 'prob' type: 'Eltwise' bottom: 'label' bottom: 'ip' top: 'ip2' } "
                  "layer { name: 'back' type: 'ReLU' bottom: 'ip2' top: 'ip2' }",
                  "input: 'data' input: 'label_' " IP
                  "layer { name: 'label' type: 'ReLU' bottom: 'ip' top: 'label' } "
                  "layer { name: 'prob' type: 'Eltwise' bottom: 'label' bottom: 'ip' top: 'ip2' } "
                  "layer { name: 'back' type: 'ReLU' bottom: 'ip2' top: 'ip2' } "
                  "layer { name: 'judged_loss' type: 'SoftmaxWithLoss' bottom: 'ip2' bottom: '%' "
                  "top: 'judged_loss' } "
                  "layer { name: 'judged_accuracy' type: 'Accuracy' bottom: 'ip2' bottom: '%' "
                  "top: 'judged_accuracy' include { phase: TEST } }",
                  "label_", true);
}

static void test_a_loss_alone(void **state)
{
    (void)state;
    static const char net[] =
        "layer { name: 'd' type: 'Data' top: 'data' top: 'truth' } " IP
        "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'truth' top: 'l' }";
    char wanted[1024];
    strcpy(wanted, net);
    strcat(wanted, ACCURACY);
    expect_judged(net, wanted, "truth", false);
}

static void test_nets_that_stay(void **state)
{
    (void)state;
    static const char *const nets[] = {
        "layer { name: 'd' type: 'Data' top: 'data' top: 'truth' } " IP
        "layer { name: 'a' type: 'Accuracy' bottom: 'ip' bottom: 'truth' top: 'a' }",
        "layer { name: 'd' type: 'Data' top: 'data' top: 'truth' } " IP
        "layer { name: 'l' type: 'EuclideanLoss' bottom: 'ip' bottom: 'truth' top: 'l' }",
    };
    expect_judged(nets[0], nets[0], "", true);
    expect_judged(nets[1], nets[1], "", false);
}

/* Layers that only train do not count. */
static void test_phases(void **state)
{
    (void)state;
    static const char trains[] = " layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'ip' "
                                 "bottom: 'truth' top: 'l' include { phase: TRAIN } } ";
    static const char data[] = "layer { name: 'd' type: 'Data' top: 'data' top: 'truth' } ";
    char before[1024], wanted[2048];
    strcpy(before, data);
    strcat(before, IP);
    strcat(before, trains);
    strcpy(wanted, before);
    strcat(wanted, LOSS ACCURACY);
    expect_judged(before, wanted, "truth", true);
}

static void test_which_phase_has_a_loss(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool train, test;
    } cases[] = {
        {"input: 'data' " IP PROB, false, false},
        {"layer { name: 'l' type: 'EuclideanLoss' }", true, true},
        {"layer { name: 'l' type: 'HingeLoss' include { phase: TRAIN } }", true, false},
        {"layer { name: 'l' type: 'HingeLoss' exclude { phase: TRAIN } }", false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Caffe__NetParameter *net = parse_net(cases[i].text);
        assert_int_equal(model_has_loss(net, PHASE_TRAIN), cases[i].train);
        assert_int_equal(model_has_loss(net, PHASE_TEST), cases[i].test);
        caffe__net_parameter__free_unpacked(net, NULL);
    }
}

static void expect_refusal(const char *text, const char *words)
{
    Caffe__NetParameter *net = parse_net(text);
    struct err err = {0};
    bool message;
    assert_int_equal(model_judge(net, &message, &err), ERR_INPUT);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" says nothing of \"%s\"", err.text, words);
    caffe__net_parameter__free_unpacked(net, NULL);
}

static void test_what_cannot_be_judged(void **state)
{
    (void)state;
    expect_refusal("input: 'data' " IP "layer { name: 'b' type: 'ReLU' bottom: 'data' top: 'b' }",
                   "\"ip\" and \"b\"");
    expect_refusal("input: 'data'", "nor scores");
    expect_refusal("layer { name: 'ip' bottom: 'x' top: 'ip' }", "no data layer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_deploy_net),
        cmocka_unit_test(test_scores_without_softmax),
        cmocka_unit_test(test_judged_nets_are_nets),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_a_loss_alone),
        cmocka_unit_test(test_nets_that_stay),
        cmocka_unit_test(test_phases),
        cmocka_unit_test(test_which_phase_has_a_loss),
        cmocka_unit_test(test_what_cannot_be_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
