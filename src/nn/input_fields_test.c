/* Tops of a data layer that are fields of records: values, layouts, labels for each position. */
#include "fixture.h"
#include "tensor/record_fields.h"

enum { IMAGE = 2 * 3 * 3, NUMBERS = 5, PLACES = 4, RECORD = IMAGE + NUMBERS + PLACES, N = 3 };

static const struct fields fields = {
    3,
    {{"image", {3, {2, 3, 3}}, 0, false},
     {"numbers", {1, {NUMBERS}}, IMAGE, false},
     {"kinds", {1, {PLACES}}, IMAGE + NUMBERS, true}},
};

static int try_net(const char *text, const struct kernels *kernels, const struct fields *with,
                   struct net **net, struct err *err)
{
    const struct net_options options = {
        .phase = PHASE_TRAIN,
        .batch = N,
        .input = {3, {RECORD, 1, 1}},
        .fields = with,
        .kernels = kernels,
        .keep_all = true,
    };
    return fixture_make(text, &options, net, err);
}

static float value_at(size_t i)
{
    return i % RECORD < IMAGE + NUMBERS ? 0.25f * (float)i - 3.0f : (float)(i % 3);
}

/* The blob is that range of each record, in the order of the field. */
static void check_blob(struct net *net, const char *name, size_t from, size_t floats, size_t count)
{
    float got[N * RECORD];
    assert_int_equal(net_blob(net, name, got, N * floats, NULL), count * floats);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < floats; k++)
            fixture_near((double)got[i * floats + k], (double)value_at(i * RECORD + from + k), 0);
}

static void run_net(const struct kernels *kernels, size_t count)
{
    struct err err = {0};
    struct net *net;
    struct arena arena;
    float data[N * RECORD];
    const uint32_t labels[N] = {1, 0, 1};
    int rc =
        try_net("layer { name: 'd' type: 'Data' top: 'kinds' top: 'label' top: 'image'\n"
                "  top: 'numbers' }\n"
                "layer { name: 'c' type: 'Convolution' bottom: 'image' top: 'c'\n"
                "  convolution_param { num_output: 3 kernel_size: 3 } }\n"
                "layer { name: 'p' type: 'InnerProduct' bottom: 'numbers' top: 'p'\n"
                "  inner_product_param { num_output: 12 } }\n"
                "layer { name: 'r' type: 'Reshape' bottom: 'p' top: 'scores'\n"
                "  reshape_param { shape { dim: 0 dim: 3 dim: 4 } } }\n"
                "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'scores' bottom: 'kinds' }\n"
                "layer { name: 'q' type: 'InnerProduct' bottom: 'c' top: 'q'\n"
                "  inner_product_param { num_output: 2 } }\n"
                "layer { name: 'm' type: 'SoftmaxWithLoss' bottom: 'q' bottom: 'label' }\n",
                kernels, &fields, &net, &err);
    if (rc != OK)
        fail_msg("%s", err.text);
    struct vec x, s, dx;
    struct net_result result;
    arena_init(&arena);
    assert_int_equal(vec_init(&x, &arena, net_segments(net)->total), OK);
    assert_int_equal(vec_init(&dx, &arena, net_segments(net)->total), OK);
    assert_int_equal(vec_init(&s, &arena, net_state_segments(net)->total), OK);
    net_init(net, 1, &x, &s);
    for (size_t i = 0; i < N * RECORD; i++)
        data[i] = value_at(i);
    const struct net_batch batch = {.data = data, .labels = labels, .count = count};
    net_forward(net, &x, &s, &batch, &result);
    assert_true(isfinite(result.loss));
    assert_int_equal(net_backward(net, &x, &dx, NULL), OK);
    check_blob(net, "image", 0, IMAGE, count);
    check_blob(net, "numbers", IMAGE, NUMBERS, count);
    check_blob(net, "kinds", IMAGE + NUMBERS, PLACES, count);
    net_free(net);
    arena_release(&arena);
}

static void test_tops_have_the_values_of_their_fields(void **state)
{
    (void)state;
    for (int k = 0; k < FIXTURE_KERNELS; k++) {
        run_net(fixture_kernels[k], N);
        run_net(fixture_kernels[k], N - 1);
    }
}

static void expect_refusal(const char *text, const char *why)
{
    struct err err = {0};
    struct net *net;
    assert_int_not_equal(try_net(text, &kernels_ref, &fields, &net, &err), OK);
    if (!strstr(err.text, why))
        fail_msg("\"%s\" does not say \"%s\"", err.text, why);
}

static void test_other_tops_are_refused_by_name(void **state)
{
    (void)state;
    expect_refusal("layer { name: 'd' type: 'Data' top: 'picture' }",
                   "top \"picture\" is no field of the records; they have: image, numbers, kinds");
    expect_refusal("layer { name: 'd' type: 'Input' top: 'image'\n"
                   "  input_param { shape { dim: 1 dim: 2 dim: 3 dim: 4 } } }",
                   "records are 2x3x4, but the data's are 2x3x3");
}

/* Integers that are looked up or predicted, also behind a Split; an Accuracy takes any, and what
 * other layers make of them is not known. */
static void test_numbers_need_rows_and_scores(void **state)
{
    (void)state;
    static const char text[] =
        "layer { name: 'd' type: 'Data' top: 'kinds' }\n"
        "layer { name: 's' type: 'Split' bottom: 'kinds' top: 'known' top: 'next' }\n"
        "layer { name: 'half' type: 'Power' bottom: 'known' top: 'half'\n"
        "  power_param { scale: 0.5 } }\n"
        "layer { name: 'few' type: 'Embed' bottom: 'half' top: 'few'\n"
        "  embed_param { input_dim: 2 num_output: 6 } }\n"
        "layer { name: 'rows' type: 'Embed' bottom: 'known' top: 'rows'\n"
        "  embed_param { input_dim: 8 num_output: 6 } }\n"
        "layer { name: 'three' type: 'Embed' bottom: 'known' top: 'three'\n"
        "  embed_param { input_dim: 8 num_output: 3 } }\n"
        "layer { name: 'scores' type: 'Eltwise' bottom: 'few' bottom: 'rows' top: 'scores' }\n"
        "layer { name: 'a' type: 'Accuracy' bottom: 'three' bottom: 'next' top: 'a'\n"
        "  accuracy_param { axis: 2 } }\n"
        "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'scores' bottom: 'next'\n"
        "  softmax_param { axis: 2 } }\n";
    struct err err = {0};
    struct net *net;
    struct net_shortage s;
    if (try_net(text, &kernels_ref, &fields, &net, &err) != OK)
        fail_msg("%s", err.text);
    assert_false(net_lacks(net, 6, &s));
    assert_true(net_lacks(net, 7, &s) && strcmp(s.layer, "l") == 0);
    assert_true(s.has == 6 && s.is_loss);
    assert_true(net_lacks(net, 9, &s) && strcmp(s.layer, "rows") == 0);
    assert_true(s.has == 8 && !s.is_loss);
    net_free(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tops_have_the_values_of_their_fields),
        cmocka_unit_test(test_other_tops_are_refused_by_name),
        cmocka_unit_test(test_numbers_need_rows_and_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
