/* Where nets say which class it is: by hand, from their text. */
#include "model/scores.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "job/text.h"
#include "model/judge_net.h"

#include <stdio.h>
#include <string.h>

#define DATA "layer { name: 'd' type: 'Input' top: 'data' top: 'label' } "
#define IP   "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' } "
#define LOSS "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'l' "

static Caffe__NetParameter *parse_net(const char *text)
{
    ProtobufCMessage *msg;
    struct err err = {0};
    if (text_parse(&caffe__net_parameter__descriptor, "net", text, strlen(text), &msg, &err) != OK)
        fail_msg("%s", err.text);
    return (Caffe__NetParameter *)msg;
}

static void expect_scores(const char *text, const char *blob, enum scores_form form, int axis)
{
    Caffe__NetParameter *net = parse_net(text);
    struct scores scores;
    struct err err = {0};
    if (model_scores(net, &scores, &err) != OK)
        fail_msg("%s", err.text);
    assert_string_equal(scores.blob, blob);
    assert_int_equal(scores.form, form);
    assert_int_equal(scores.axis, axis);
    caffe__net_parameter__free_unpacked(net, NULL);
}

static void expect_refusal(const char *text, const char *why)
{
    Caffe__NetParameter *net = parse_net(text);
    struct scores scores;
    struct err err = {0};
    assert_int_equal(model_scores(net, &scores, &err), ERR_INPUT);
    if (!strstr(err.text, why))
        fail_msg("%s", err.text);
    caffe__net_parameter__free_unpacked(net, NULL);
}

static void test_a_loss_reads_them(void **state)
{
    (void)state;
    expect_scores(DATA IP LOSS "}", "ip", SCORES_SOFTMAX, 1);
    expect_scores(DATA IP LOSS "softmax_param { axis: -1 } }", "ip", SCORES_SOFTMAX, -1);
    expect_scores(DATA IP
                  "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' }",
                  "ip", SCORES_SOFTMAX, 1);
    expect_scores(DATA IP "layer { name: 'p' type: 'Softmax' bottom: 'ip' top: 'p' } " LOSS "}",
                  "ip", SCORES_SOFTMAX, 1);
    expect_scores(DATA IP
                  "layer { name: 'h' type: 'HingeLoss' bottom: 'ip' bottom: 'label' top: 'h' }",
                  "ip", SCORES_PLAIN, 1);
}

/* GoogLeNet: two losses on the way count 0.3 each. */
static void test_the_heaviest_loss_counts(void **state)
{
    (void)state;
    const char *one =
        "layer { name: 'one' type: 'SoftmaxWithLoss' bottom: 'a' bottom: 'label' "
        "top: 'one' loss_weight: %s } "
        "layer { name: 'two' type: 'SoftmaxWithLoss' bottom: 'b' bottom: 'label' "
        "top: 'two' %s } "
        "layer { name: 'acc' type: 'Accuracy' bottom: 'a' bottom: 'label' top: 'acc' }";
    const struct {
        const char *first, *second, *blob;
    } with[] = {
        {"0.3", "", "b"},
        {"0.3", "loss_weight: 0.2", "a"},
        {"1", "", "b"},
        {"2", "", "a"},
    };
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        char text[1024];
        snprintf(text, sizeof text, one, with[i].first, with[i].second);
        expect_scores(text, with[i].blob, SCORES_SOFTMAX, 1);
    }
}

static void test_nets_that_only_score(void **state)
{
    (void)state;
    expect_scores(DATA IP "layer { name: 'p' type: 'Softmax' bottom: 'ip' top: 'prob' }", "prob",
                  SCORES_PROBABILITIES, 1);
    expect_scores(DATA IP "layer { name: 'p' type: 'Softmax' bottom: 'ip' top: 'ip' }", "ip",
                  SCORES_PROBABILITIES, 1);
    expect_scores(DATA IP, "ip", SCORES_PLAIN, 1);
    expect_scores(DATA IP "layer { name: 'r' type: 'ReLU' bottom: 'ip' top: 'ip' }", "ip",
                  SCORES_PLAIN, 1);
    expect_scores("input: 'x' input: 'y' " DATA IP
                  "layer { name: 'a' type: 'Accuracy' bottom: 'ip' "
                  "bottom: 'label' top: 'acc' }",
                  "ip", SCORES_PLAIN, 1);
}

static void test_a_loss_of_values(void **state)
{
    (void)state;
    static const char *const bottoms[] = {"bottom: 'ip' bottom: 'y'", "bottom: 'y' bottom: 'ip'"};
    for (int i = 0; i < 2; i++) {
        char text[1024];
        struct scores scores;
        struct err err = {0};
        snprintf(text, sizeof text,
                 "layer { name: 'd' type: 'Data' top: 'data' top: 'y' } " IP
                 "layer { name: 'e' type: 'EuclideanLoss' %s top: 'e' }",
                 bottoms[i]);
        expect_scores(text, "ip", SCORES_VALUES, 1);
        Caffe__NetParameter *net = parse_net(text);
        assert_int_equal(model_scores(net, &scores, &err), OK);
        assert_string_equal(scores.target, "y");
        caffe__net_parameter__free_unpacked(net, NULL);
    }
}

static void test_only_the_test_phase_counts(void **state)
{
    (void)state;
    expect_scores(DATA IP LOSS "include { phase: TRAIN } } "
                               "layer { name: 'p' type: 'Softmax' bottom: 'ip' top: 'prob' }",
                  "prob", SCORES_PROBABILITIES, 1);
}

/* The layers that were added for testing do not change the net's scores. */
static void test_a_judged_net_keeps_its_scores(void **state)
{
    (void)state;
    static const struct {
        const char *text, *blob;
        enum scores_form form;
    } nets[] = {
        {DATA IP, "ip", SCORES_PLAIN},
        {DATA IP "layer { name: 'p' type: 'Softmax' bottom: 'ip' top: 'prob' }", "prob",
         SCORES_PROBABILITIES},
        {DATA IP LOSS "}", "ip", SCORES_SOFTMAX},
    };
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        Caffe__NetParameter *net = parse_net(nets[i].text);
        struct scores scores;
        struct err err = {0};
        bool lossless;
        assert_int_equal(model_judge(net, &lossless, &err), OK);
        assert_int_equal(model_scores(net, &scores, &err), OK);
        assert_string_equal(scores.blob, nets[i].blob);
        assert_int_equal(scores.form, nets[i].form);
        caffe__net_parameter__free_unpacked(net, NULL);
    }
}

static void test_what_cannot_be_known(void **state)
{
    (void)state;
    expect_refusal(DATA IP "layer { name: 'ip2' type: 'InnerProduct' bottom: 'data' top: 'other' }",
                   "\"ip\" and \"other\"");
    expect_refusal(DATA IP "layer { name: 'e' type: 'EuclideanLoss' bottom: 'ip' bottom: 'label' "
                           "top: 'e' }",
                   "layer \"e\"");
    expect_refusal(DATA, "no scores");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_loss_reads_them),
        cmocka_unit_test(test_the_heaviest_loss_counts),
        cmocka_unit_test(test_nets_that_only_score),
        cmocka_unit_test(test_a_loss_of_values),
        cmocka_unit_test(test_only_the_test_phase_counts),
        cmocka_unit_test(test_a_judged_net_keeps_its_scores),
        cmocka_unit_test(test_what_cannot_be_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
