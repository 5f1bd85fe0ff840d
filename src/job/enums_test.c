/* Numbers that are not enum values, in messages that were made from bytes. */
#include "job/enums.h"

#include "caffe_bytes.h"
#include "job/caffe.pb-c.h"

#include <stdlib.h>

static int check_net(const struct piece *net, struct err *err)
{
    Caffe__NetParameter *msg = caffe__net_parameter__unpack(NULL, net->n, net->at);
    assert_non_null(msg);
    int rc = enums_check(&msg->base, err);
    caffe__net_parameter__free_unpacked(msg, NULL);
    return rc;
}

static void expect_refusal(const struct piece *net, const char *message)
{
    struct err err = {0};
    assert_int_equal(check_net(net, &err), ERR_INPUT);
    assert_string_equal(err.text, message);
}

/* A layer with two rules (include = 8) of these phases. */
static struct piece with_rules(uint64_t first, uint64_t second)
{
    struct piece net = {.n = 0}, layer = layer_new("relu1", "ReLU"), rule = {.n = 0};
    piece_number(&rule, 1, first);
    piece_in(&layer, 8, &rule);
    rule = (struct piece){.n = 0};
    piece_number(&rule, 1, second);
    piece_in(&layer, 8, &rule);
    piece_in(&net, 100, &layer);
    return net;
}

static void test_words_that_there_are(void **state)
{
    (void)state;
    const struct piece net = with_rules(0, 1), empty = {.n = 0};
    struct err err = {0};
    assert_int_equal(check_net(&empty, &err), OK);
    assert_int_equal(check_net(&net, &err), OK);
}

static void test_each_of_several_is_looked_at(void **state)
{
    (void)state;
    struct piece net = with_rules(0, 2), layer = layer_new("sum", "Eltwise");
    expect_refusal(&net, "layer \"relu1\": include[1].phase: 2 is none of TRAIN, TEST");
    net = with_rules(3, 0);
    expect_refusal(&net, "layer \"relu1\": include[0].phase: 3 is none of TRAIN, TEST");
    net = with_rules(0, 1);
    piece_number(&layer, 10, 4);
    piece_in(&net, 100, &layer);
    expect_refusal(&net, "layer \"sum\": phase: 4 is none of TRAIN, TEST");
    /* V1's blob_share_mode (1002) is a list of words: STRICT, PERMISSIVE, and none. */
    net = (struct piece){.n = 0};
    layer = layer_v1("ip1", 14);
    for (uint64_t mode = 0; mode < 3; mode++)
        piece_number(&layer, 1002, mode);
    piece_in(&net, 2, &layer);
    expect_refusal(&net, "layers \"ip1\": blob_share_mode: 2 is none of STRICT, PERMISSIVE");
}

static void test_places_without_a_name(void **state)
{
    (void)state;
    struct piece net = {.n = 0}, inner = {.n = 0};
    piece_number(&inner, 1, 9);
    piece_in(&net, 6, &inner);
    expect_refusal(&net, "state.phase: 9 is none of TRAIN, TEST");
    net = inner = (struct piece){.n = 0};
    piece_number(&inner, 10, 9);
    piece_in(&net, 100, &inner);
    expect_refusal(&net, "layer[0].phase: 9 is none of TRAIN, TEST");
}

/* The place is cut, the message whole. */
static void test_long_names(void **state)
{
    (void)state;
    char name[301];
    memset(name, 'n', 300);
    name[300] = '\0';
    struct piece net = {.n = 0}, layer = layer_new(name, "ReLU"), param = {.n = 0};
    struct err err = {0};
    piece_text(&param, 1, name);
    piece_number(&param, 2, 9);
    piece_in(&layer, 6, &param);
    piece_in(&net, 100, &layer);
    assert_int_equal(check_net(&net, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "share_mode: 9 is none of STRICT, PERMISSIVE"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_that_there_are),
        cmocka_unit_test(test_each_of_several_is_looked_at),
        cmocka_unit_test(test_places_without_a_name),
        cmocka_unit_test(test_long_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
