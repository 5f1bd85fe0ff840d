#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "job/text.h"
#include "model/zoo.h"
#include "nn/net.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct parameter {
    const char *name, *shape;
    float lr_mult;
};

static Caffe__NetParameter *make_zoo_net(const char *name)
{
    Caffe__NetParameter *param = NULL;
    struct err err = {0};
    if (zoo_net(name, &param, &err) != OK)
        fail_msg("%s", err.text);
    return param;
}

static void open_both(const char *name, struct shape input, struct net *net[2])
{
    Caffe__NetParameter *param = make_zoo_net(name);
    struct err err = {0};
    for (int phase = 0; phase < 2; phase++) {
        struct net_options options = {
            .phase = phase ? PHASE_TEST : PHASE_TRAIN,
            .batch = 1,
            .input = input,
            .kernels = &kernels_ref,
        };
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

/* Parameters of each net, and of them those of auxiliary classifiers, whose layers begin with
 * `auxiliary`. For nets of Caffe's files (zoo_caffe_test reads these) and of the papers: the
 * numbers by which they are known. */
static const struct {
    const char *name;
    size_t parameters;
    const char *auxiliary;
    size_t without;
} published[] = {
    {"lenet", 431080, NULL, 0},
    {"cifar10-quick", 145578, NULL, 0},
    {"cifar10-full", 89578, NULL, 0},
    {"alexnet", 60965224, NULL, 0},
    /* 64·75+64 + 64·1600+64 + 128·576+128 + 1024·2048+1024 + 10·1024+10 */
    {"alexnet-small", 2289610, NULL, 0},
    {"googlenet", 13378280, "loss", 6998552 - 1025000}, /* "loss3/classifier" has 1000·1024+1000 */
    {"vgg-a", 132863336, NULL, 0},
    {"vgg-16", 138357544, NULL, 0},
    /* Parameters with three blocks in each stage, and for each further block in all three stages 2
     * (9·16²+3·16) + 2 (9·32²+3·32) + 2 (9·64²+3·64): He et al. give 0.27, 0.46, 0.85, 1.7 M. */
    {"resnet-20", 273258, NULL, 0},
    {"resnet-32", 273258 + 2 * 97440, NULL, 0},
    {"resnet-56", 273258 + 6 * 97440, NULL, 0},
    {"resnet-110", 273258 + 15 * 97440, NULL, 0},
    /* PyTorch's models have the same; but the biases of conv1, 64, which the authors' 50 has. */
    {"resnet-34", 21797672, NULL, 0},
    {"resnet-50", 25557032 + 64, NULL, 0},
    {"resnet-152", 60192808, NULL, 0},
    {"resnet-18-b", 11689512, NULL, 0}, /* as torchvision documents them */
    {"resnet-34-b", 21797672, NULL, 0},
    {"resnet-50-b", 25557032, NULL, 0},
    {"resnet-101-b", 44549160, NULL, 0},
    {"resnet-152-b", 60192808, NULL, 0},
    {"inception-v3", 27161264, "aux/", 23834568}, /* PyTorch's */
    /* 6·25+6 + 12·150+12 + 12·192+12 + 10·12+10 */
    {"cnn-6-12-12", 4414, NULL, 0},
    {"fc-480-160", 455370, NULL, 0},
};

enum { PUBLISHED = sizeof published / sizeof *published };

static void test_parameters_are_as_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < PUBLISHED; i++) {
        const char *prefix = published[i].auxiliary;
        struct net *net[2];
        open_both(published[i].name, zoo_record(published[i].name), net);
        const struct segments *table = net_segments(net[0]);
        size_t sum = 0, without = 0;
        for (size_t k = 0; k < table->count; k++) {
            sum += table->at[k].len;
            if (prefix && strncmp(table->at[k].name, prefix, strlen(prefix)) != 0)
                without += table->at[k].len;
        }
        if (sum != published[i].parameters || without != published[i].without)
            fail_msg("%s has %zu parameters, %zu without classifiers", published[i].name, sum,
                     without);
        assert_true(segments_match(table, net_segments(net[1])));
        close_both(net);
    }
}

static void test_all_names_are_published(void **state)
{
    (void)state;
    const char *const *name = zoo_names();
    for (size_t i = 0; i < PUBLISHED; i++, name++)
        assert_string_equal(*name, published[i].name);
    assert_null(*name);
}

static size_t pack_net(const Caffe__NetParameter *param, uint8_t **bytes)
{
    size_t len = caffe__net_parameter__get_packed_size(param);
    *bytes = malloc(len);
    assert_non_null(*bytes);
    assert_int_equal(caffe__net_parameter__pack(param, *bytes), len);
    return len;
}

static void test_text_reads_back_as_the_same_message(void **state)
{
    (void)state;
    for (const char *const *name = zoo_names(); *name; name++) {
        Caffe__NetParameter *param = make_zoo_net(*name);
        ProtobufCMessage *back = NULL;
        struct buf text = {0};
        struct err err = {0};
        text_write(&param->base, &text);
        assert_false(text.failed);
        if (text_parse(&caffe__net_parameter__descriptor, *name, (char *)text.data, text.len, &back,
                       &err) != OK)
            fail_msg("%s", err.text);
        uint8_t *a, *b;
        size_t n = pack_net(param, &a);
        assert_int_equal(pack_net((Caffe__NetParameter *)back, &b), n);
        assert_memory_equal(a, b, n);
        free(a);
        free(b);
        buf_release(&text);
        caffe__net_parameter__free_unpacked(param, NULL);
        protobuf_c_message_free_unpacked(back, NULL);
    }
}

/* DSSP trains ResNet-110 on CIFAR-100. All scores, auxiliary ones too, are for so many classes. */
static void test_classes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t parameters;
    } cases[] = {
        {"resnet-110?classes=100", 273258 + 15 * 97440 + 90 * 65},
        {"googlenet?classes=10", 13378280 - 3 * 990 * 1025},
        {"resnet-50?classes=7", 25557096 - 993 * 2049},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct net *net[2];
        size_t sum = 0;
        open_both(cases[i].name, zoo_record(cases[i].name), net);
        for (size_t k = 0; k < net_segments(net[0])->count; k++)
            sum += net_segments(net[0])->at[k].len;
        assert_int_equal(sum, cases[i].parameters);
        close_both(net);
    }
}

static void expect_refusal(const char *name, const char *phrase)
{
    Caffe__NetParameter *param = NULL;
    struct err err = {0};
    assert_int_equal(zoo_net(name, &param, &err), ERR_INPUT);
    assert_null(param);
    assert_string_equal(err.text, phrase);
}

static void test_unknown(void **state)
{
    (void)state;
#define IT_HAS                                                                                 \
    "; it has: lenet, cifar10-quick, cifar10-full, alexnet, alexnet-small, googlenet, vgg-a, " \
    "vgg-16, resnet-20, resnet-32, resnet-56, resnet-110, resnet-34, resnet-50, resnet-152, "  \
    "resnet-18-b, resnet-34-b, resnet-50-b, resnet-101-b, resnet-152-b, "                      \
    "inception-v3, cnn-6-12-12, fc-480-160"
    expect_refusal("lenett", "the zoo has no net \"lenett\"" IT_HAS);
    expect_refusal("lene", "the zoo has no net \"lene\"" IT_HAS);
    expect_refusal("", "the zoo has no net \"\"" IT_HAS);
#define CLASSES "only ?classes=N may follow the name, N from 2 to 1000000"
    expect_refusal("lenet?", "net \"lenet?\": " CLASSES);
    expect_refusal("lenet?class=3", "net \"lenet?class=3\": " CLASSES);
    expect_refusal("lenet?classes=", "net \"lenet?classes=\": " CLASSES);
    expect_refusal("lenet?classes=1", "net \"lenet?classes=1\": " CLASSES);
    expect_refusal("lenet?classes=-3", "net \"lenet?classes=-3\": " CLASSES);
    expect_refusal("lenet?classes=3x", "net \"lenet?classes=3x\": " CLASSES);
    expect_refusal("lenet?classes=1000001", "net \"lenet?classes=1000001\": " CLASSES);
    assert_int_equal(zoo_record("lenett").n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lenet),
        cmocka_unit_test(test_fc_480_160),
        cmocka_unit_test(test_fc_480_160_begins_with_xavier),
        cmocka_unit_test(test_parameters_are_as_published),
        cmocka_unit_test(test_all_names_are_published),
        cmocka_unit_test(test_text_reads_back_as_the_same_message),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
