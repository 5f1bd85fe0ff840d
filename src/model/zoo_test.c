#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "model/zoo.h"
#include "nn/net.h"

#include <string.h>

/* 20·25+20 + 50·500+50 + 500·800+500 + 10·500+10 parameters; bias learns twice as fast. */
static void test_lenet(void **state)
{
    (void)state;
    static const struct {
        const char *name, *shape;
        float lr_mult;
    } expected[] = {
        {"conv1.0", "20x1x5x5", 1}, {"conv1.1", "20", 2},    {"conv2.0", "50x20x5x5", 1},
        {"conv2.1", "50", 2},       {"ip1.0", "500x800", 1}, {"ip1.1", "500", 2},
        {"ip2.0", "10x500", 1},     {"ip2.1", "10", 2},
    };
    Caffe__NetParameter *param = NULL;
    struct err err = {0};
    assert_int_equal(zoo_net("lenet", &param, &err), OK);
    struct net *net[2];
    for (int phase = 0; phase < 2; phase++) {
        struct net_options options = {
            phase ? PHASE_TEST : PHASE_TRAIN, 64, {3, {1, 28, 28}}, &kernels_ref};
        if (net_create(param, &options, &net[phase], &err) != OK)
            fail_msg("%s", err.text);
    }
    caffe__net_parameter__free_unpacked(param, NULL);
    const struct segments *table = net_segments(net[0]);
    size_t floats = 0;
    assert_int_equal(table->count, 8);
    for (size_t k = 0; k < 8; k++) {
        char text[64];
        assert_string_equal(table->at[k].name, expected[k].name);
        assert_string_equal(shape_text(&table->at[k].shape, text, sizeof text), expected[k].shape);
        assert_true(table->at[k].lr_mult == expected[k].lr_mult);
        floats += table->at[k].len;
    }
    assert_int_equal(floats, 431080);
    assert_true(segments_match(table, net_segments(net[1])));
    assert_int_equal(net_blob(net[0], "accuracy", NULL, 0, NULL), 0);
    assert_int_equal(net_blob(net[1], "accuracy", NULL, 0, NULL), 1);
    assert_int_equal(net_classes(net[0]), 10);
    net_free(net[0]);
    net_free(net[1]);
}

static void test_unknown(void **state)
{
    (void)state;
    Caffe__NetParameter *param = NULL;
    struct err err = {0};
    assert_int_equal(zoo_net("lenett", &param, &err), ERR_INPUT);
    assert_null(param);
    assert_string_equal(err.text, "the zoo has no net \"lenett\"; it has: lenet");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lenet),
        cmocka_unit_test(test_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
