#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "model/zoo.h"
#include "nn/net.h"

#include <math.h>
#include <string.h>

struct parameter {
    const char *name, *shape;
    float lr_mult;
};

static void open_both(const char *name, struct shape input, struct net *net[2])
{
    Caffe__NetParameter *param = NULL;
    struct err err = {0};
    if (zoo_net(name, &param, &err) != OK)
        fail_msg("%s", err.text);
    for (int phase = 0; phase < 2; phase++) {
        struct net_options options = {phase ? PHASE_TEST : PHASE_TRAIN, 64, input, &kernels_ref};
        if (net_create(param, &options, &net[phase], &err) != OK)
            fail_msg("%s", err.text);
    }
    caffe__net_parameter__free_unpacked(param, NULL);
}

/* The parameters by name, and how many floats in all; ten classes; accuracy when testing. */
static void check_net(struct net *net[2], const struct parameter *expected, size_t n, size_t floats)
{
    const struct segments *table = net_segments(net[0]);
    size_t sum = 0;
    assert_int_equal(table->count, n);
    for (size_t k = 0; k < n; k++) {
        char text[64];
        assert_string_equal(table->at[k].name, expected[k].name);
        assert_string_equal(shape_text(&table->at[k].shape, text, sizeof text), expected[k].shape);
        assert_true(table->at[k].lr_mult == expected[k].lr_mult);
        sum += table->at[k].len;
    }
    assert_int_equal(sum, floats);
    assert_true(segments_match(table, net_segments(net[1])));
    assert_int_equal(net_blob(net[0], "accuracy", NULL, 0, NULL), 0);
    assert_int_equal(net_blob(net[1], "accuracy", NULL, 0, NULL), 1);
    assert_int_equal(net_classes(net[0]), 10);
}

static void close_both(struct net *net[2])
{
    net_free(net[0]);
    net_free(net[1]);
}

/* 20·25+20 + 50·500+50 + 500·800+500 + 10·500+10 parameters; bias learns twice as fast. */
static void test_lenet(void **state)
{
    (void)state;
    static const struct parameter expected[] = {
        {"conv1.0", "20x1x5x5", 1}, {"conv1.1", "20", 2},    {"conv2.0", "50x20x5x5", 1},
        {"conv2.1", "50", 2},       {"ip1.0", "500x800", 1}, {"ip1.1", "500", 2},
        {"ip2.0", "10x500", 1},     {"ip2.1", "10", 2},
    };
    struct net *net[2];
    open_both("lenet", (struct shape){3, {1, 28, 28}}, net);
    check_net(net, expected, 8, 431080);
    close_both(net);
}

/* 784·480+480 + 480·160+160 + 160·10+10 parameters on MNIST, whether its records are images or
 * rows; others give the net other first weights. */
static void test_fc_480_160(void **state)
{
    (void)state;
    static const struct {
        struct shape input;
        const char *ip1;
        size_t inputs, floats;
    } cases[] = {
        {{3, {1, 28, 28}}, "480x784", 784, 455370},
        {{1, {784}}, "480x784", 784, 455370},
        {{3, {3, 5, 4}}, "480x60", 60, 107850},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct parameter expected[] = {
            {"ip1.0", cases[i].ip1, 1}, {"ip1.1", "480", 1},    {"ip2.0", "160x480", 1},
            {"ip2.1", "160", 1},        {"ip3.0", "10x160", 1}, {"ip3.1", "10", 1},
        };
        size_t width[] = {cases[i].inputs, 480, 160, 10}, floats = 0;
        for (int k = 0; k < 3; k++)
            floats += width[k] * width[k + 1] + width[k + 1];
        assert_int_equal(floats, cases[i].floats);
        struct net *net[2];
        open_both("fc-480-160", cases[i].input, net);
        check_net(net, expected, 6, floats);
        close_both(net);
    }
}

/* Xavier's range is √(3/I): the weights fill it, the biases begin at zero. */
static void test_fc_480_160_begins_with_xavier(void **state)
{
    (void)state;
    static const double inputs[] = {784, 480, 160};
    struct net *net[2];
    struct arena arena;
    struct vec x, s;
    open_both("fc-480-160", (struct shape){3, {1, 28, 28}}, net);
    const struct segments *table = net_segments(net[0]);
    arena_init(&arena);
    assert_int_equal(vec_init(&x, &arena, table->total), OK);
    assert_int_equal(vec_init(&s, &arena, net_state_segments(net[0])->total), OK);
    net_init(net[0], 1, &x, &s);
    for (size_t k = 0; k < 6; k++) {
        double largest = 0, range = k % 2 ? 0 : sqrt(3 / inputs[k / 2]);
        for (size_t i = 0; i < table->at[k].len; i++)
            largest = fmax(largest, fabs((double)x.at[table->at[k].offset + i]));
        assert_true(largest <= range * (1 + 1e-6) && largest >= range * 0.99);
    }
    arena_release(&arena);
    close_both(net);
}

static void test_unknown(void **state)
{
    (void)state;
    Caffe__NetParameter *param = NULL;
    struct err err = {0};
    assert_int_equal(zoo_net("lenett", &param, &err), ERR_INPUT);
    assert_null(param);
    assert_string_equal(err.text, "the zoo has no net \"lenett\"; it has: lenet, fc-480-160");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lenet),
        cmocka_unit_test(test_fc_480_160),
        cmocka_unit_test(test_fc_480_160_begins_with_xavier),
        cmocka_unit_test(test_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
