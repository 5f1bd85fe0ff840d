/* LeNet, and a small net with the layers that LeNet lacks, against PyTorch (lenet.py wrote
 * lenet.golden): scores, loss and the gradient of every segment. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/file.h"
#include "golden_hash.h"
#include "job/text.h"
#include "model/zoo.h"
#include "nn/net.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DATA = 100, LABELS = 101, PROBE = 200, SAMPLES = 24, VALUES_MAX = 64 };

static const char *golden; /* the whole file */

/* The values of the line "NET.WHAT[.K] n v1 .. vn". */
static size_t expected_values(const char *net, const char *what, int k, double *out)
{
    char key[64];
    snprintf(key, sizeof key, k < 0 ? "\n%s.%s " : "\n%s.%s.%d ", net, what, k);
    const char *line = golden;
    if (strncmp(golden, key + 1, strlen(key + 1)) != 0)
        line = strstr(golden, key);
    if (!line)
        fail_msg("lenet.golden has no%s", key);
    line = strchr(line + 1, ' ');
    char *end;
    size_t n = strtoul(line, &end, 10);
    assert_in_range(n, 1, VALUES_MAX);
    for (size_t i = 0; i < n; i++)
        out[i] = strtod(end, &end);
    return n;
}

static void expect_near(double value, double want, double tolerance, const char *net,
                        const char *what)
{
    if (!(fabs(value - want) <= tolerance))
        fail_msg("%s: %s is %.9g, PyTorch says %.9g", net, what, value, want);
}

struct example {
    const char *name;
    const Caffe__NetParameter *param;
    const char *scores; /* the blob */
    float scale[8];     /* of the parameters, by segment */
    size_t N;
    struct shape input;
};

static void check_gradient(const struct example *example, const struct segment *segment, int k,
                           const float *dx)
{
    double want[VALUES_MAX], norm = 0.0, probe = 0.0;
    char what[160];
    for (size_t i = 0; i < segment->len; i++) {
        norm += (double)dx[i] * (double)dx[i];
        probe += (double)dx[i] * (double)hash_unit(PROBE + (uint32_t)k, i);
    }
    norm = sqrt(norm);
    snprintf(what, sizeof what, "gradient of %s", segment->name);
    expected_values(example->name, "norm", k, want);
    expect_near(norm, want[0], 1e-5 * want[0], example->name, what);
    expected_values(example->name, "probe", k, want);
    expect_near(probe, want[0], 1e-5 * norm, example->name, what);
    assert_int_equal(expected_values(example->name, "sample", k, want), SAMPLES);
    for (size_t j = 0; j < SAMPLES; j++)
        expect_near((double)dx[j * segment->len / SAMPLES], want[j], 1e-5 * norm, example->name,
                    what);
}

static void fill_params(const struct example *example, const struct segments *table, struct vec *x,
                        float *data, uint32_t *labels, size_t classes)
{
    for (size_t k = 0; k < table->count; k++)
        for (size_t i = 0; i < table->at[k].len; i++)
            x->at[table->at[k].offset + i] = hash_unit((uint32_t)k, i) * example->scale[k];
    for (size_t i = 0; i < example->N * shape_count(&example->input); i++)
        data[i] = hash_unit(DATA, i) + 0.5f;
    for (size_t n = 0; n < example->N; n++)
        labels[n] = hash_mix(LABELS, (uint32_t)n) % (uint32_t)classes;
}

static void check_net(const struct example *example, enum phase phase,
                      const struct kernels *kernels)
{
    struct net_options options = {
        .phase = phase,
        .batch = example->N,
        .input = example->input,
        .kernels = kernels,
        .keep = example->scores,
    };
    struct net *net = NULL;
    struct err err = {0};
    if (net_create(example->param, &options, &net, &err) != OK)
        fail_msg("%s", err.text);
    struct arena arena;
    struct vec x, dx, s;
    const struct segments *table = net_segments(net);
    arena_init(&arena);
    assert_int_equal(vec_init(&x, &arena, table->total), OK);
    assert_int_equal(vec_init(&dx, &arena, table->total), OK);
    assert_int_equal(vec_init(&s, &arena, 0), OK);
    float *data = arena_array(&arena, example->N * shape_count(&example->input), float);
    uint32_t labels[8];
    uint64_t records[8] = {0};
    fill_params(example, table, &x, data, labels, net_classes(net));
    struct net_batch batch = {
        .data = data, .labels = labels, .records = records, .count = example->N};
    struct net_result result;
    net_forward(net, &x, &s, &batch, &result);

    double want[VALUES_MAX];
    float scores[VALUES_MAX];
    expected_values(example->name, "loss", -1, want);
    expect_near(result.loss / (double)example->N, want[0], 1e-6 * want[0], example->name, "loss");
    size_t n = net_blob(net, example->scores, scores, VALUES_MAX, NULL);
    assert_int_equal(n, expected_values(example->name, "scores", -1, want));
    for (size_t i = 0; i < n; i++)
        expect_near((double)scores[i], want[i], 1e-5, example->name, "score");
    if (phase == PHASE_TRAIN) {
        net_backward(net, &x, &dx, NULL);
        for (size_t k = 0; k < table->count; k++)
            check_gradient(example, &table->at[k], (int)k, dx.at + table->at[k].offset);
    }
    net_free(net);
    arena_release(&arena);
}

static void test_lenet(void **state)
{
    struct err err = {0};
    Caffe__NetParameter *param = NULL;
    assert_int_equal(zoo_net("lenet", &param, &err), OK);
    struct example lenet = {
        .name = "lenet",
        .param = param,
        .scores = "ip2",
        .scale = {0.5f, 0.25f, 0.25f, 0.25f, 0.125f, 0.25f, 0.25f, 0.25f},
        .N = 3,
        .input = {3, {1, 28, 28}},
    };
    check_net(&lenet, PHASE_TRAIN, *state);
    check_net(&lenet, PHASE_TEST, *state);
    caffe__net_parameter__free_unpacked(param, NULL);
}

static void test_fc(void **state)
{
    struct err err = {0};
    Caffe__NetParameter *param = NULL;
    assert_int_equal(zoo_net("fc-480-160", &param, &err), OK);
    struct example fc = {
        .name = "fc",
        .param = param,
        .scores = "ip3",
        .scale = {0.125f, 0.25f, 0.25f, 0.25f, 0.5f, 0.25f},
        .N = 3,
        .input = {3, {1, 28, 28}},
    };
    check_net(&fc, PHASE_TRAIN, *state);
    check_net(&fc, PHASE_TEST, *state);
    caffe__net_parameter__free_unpacked(param, NULL);
}

static Caffe__NetParameter *parse_small(const char *dropout)
{
    static const char format[] =
        "layer { name: 'data' type: 'MemoryData' top: 'data' top: 'label' }"
        "layer { name: 'conv1' type: 'Convolution' bottom: 'data' top: 'conv1'"
        " convolution_param { num_output: 6 kernel_size: 3 pad: 1 } }"
        "layer { name: 'relu1' type: 'ReLU' bottom: 'conv1' top: 'conv1'"
        " relu_param { negative_slope: 0.125 } }"
        "layer { name: 'pool1' type: 'Pooling' bottom: 'conv1' top: 'pool1'"
        " pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 } }"
        "layer { name: 'drop1' type: 'Dropout' bottom: 'pool1' top: 'pool1'"
        " dropout_param { dropout_ratio: %s } }"
        "layer { name: 'conv2' type: 'Convolution' bottom: 'pool1' top: 'conv2'"
        " convolution_param { num_output: 4 kernel_size: 3 stride: 2 bias_term: false } }"
        "layer { name: 'pool2' type: 'Pooling' bottom: 'conv2' top: 'pool2'"
        " pooling_param { kernel_size: 2 stride: 2 } }"
        "layer { name: 'ip' type: 'InnerProduct' bottom: 'pool2' top: 'ip'"
        " inner_product_param { num_output: 7 } }"
        "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }";
    char text[2048];
    struct err err = {0};
    ProtobufCMessage *msg = NULL;
    int n = snprintf(text, sizeof text, format, dropout);
    assert_in_range(n, 1, sizeof text - 1);
    if (text_parse(&caffe__net_parameter__descriptor, "small", text, (size_t)n, &msg, &err) != OK)
        fail_msg("%s", err.text);
    return (Caffe__NetParameter *)msg;
}

/* Dropout is off in the test phase whatever its ratio, and in training when that is zero. */
static void test_small(void **state)
{
    struct example small = {
        .name = "small",
        .scores = "ip",
        .scale = {1.0f, 0.5f, 1.0f, 1.0f, 0.5f},
        .N = 5,
        .input = {3, {3, 16, 14}},
    };
    for (int training = 0; training < 2; training++) {
        Caffe__NetParameter *param = parse_small(training ? "0" : "0.5");
        small.param = param;
        check_net(&small, training ? PHASE_TRAIN : PHASE_TEST, *state);
        caffe__net_parameter__free_unpacked(param, NULL);
    }
}

int main(void)
{
    struct file_bytes file;
    struct err err = {0};
    if (file_read(TEST_ROOT "/test/golden/lenet.golden", 1 << 20, &file, &err) != OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    golden = (const char *)file.data;
    static const struct kernels *const sets[] = {&kernels_ref, &kernels_dnnl};
    struct CMUnitTest tests[] = {
        {"lenet_ref", test_lenet, NULL, NULL, NULL}, {"lenet_dnnl", test_lenet, NULL, NULL, NULL},
        {"small_ref", test_small, NULL, NULL, NULL}, {"small_dnnl", test_small, NULL, NULL, NULL},
        {"fc_ref", test_fc, NULL, NULL, NULL},       {"fc_dnnl", test_fc, NULL, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        memcpy(&tests[i].initial_state, &sets[i % 2], sizeof sets[0]); /* drops a const */
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    file_release(&file);
    return failed;
}
