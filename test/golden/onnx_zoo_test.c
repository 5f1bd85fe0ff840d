/* The zoo's nets as models in ONNX: written and read again they compute the same, and onnxruntime
 * computes it, too (onnx_zoo.py; skipped where Python has none).
 *
 *   golden_onnx_zoo_test [NET…|all]   by default those that take little time */
#include "job/text.h"
#include "model/caffe_convert.h"
#include "model/load.h"
#include "model/weights.h"
#include "model/zoo.h"
#include "nn/net.h"
#include "real/disk.h"
#include "tensor/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 512, RECORDS = 2, NETS_MAX = 64 };

static const char *const small_nets[] = {
    "lenet",     "cifar10-quick", "cifar10-full", "alexnet-small",
    "resnet-20", "cnn-6-12-12",   "fc-480-160",   NULL,
};

static const char *chosen[NETS_MAX];
static struct folder folder;

/* ---- a net with numbers ---- */

struct made {
    struct net *net;
    struct vec x, s;
    struct shape record;
};

static float *make_floats(size_t n)
{
    float *at = aligned_alloc(64, (n + 16) / 16 * 64);
    assert_non_null(at);
    memset(at, 0, n * sizeof *at);
    return at;
}

/* Of the record's shape: the layer Input of the zoo states none. */
static void make_net(struct made *m, const Caffe__NetParameter *param, const struct shape *record,
                     const char *keep)
{
    struct err err = {0};
    const struct net_options options = {
        .phase = PHASE_TEST,
        .batch = RECORDS,
        .input = *record,
        .kernels = &kernels_dnnl,
        .keep = keep,
    };
    if (net_create(param, &options, &m->net, &err) != OK)
        fail_msg("%s", err.text);
    m->record = *record;
    m->x = (struct vec){.n = net_segments(m->net)->total};
    m->s = (struct vec){.n = net_state_segments(m->net)->total};
    m->x.at = make_floats(m->x.n);
    m->s.at = make_floats(m->s.n);
}

static void release_net(struct made *m)
{
    net_free(m->net);
    free(m->x.at);
    free(m->s.at);
}

/* -1 to 1 */
static float next_number(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(int32_t)*state * 0x1p-31f;
}

/* Values keep their size from layer to layer; no bias and no mean is 0. */
static void fill_numbers(struct made *m)
{
    uint32_t state = 1;
    const struct segments *x = net_segments(m->net), *s = net_state_segments(m->net);
    for (size_t i = 0; i < x->count; i++) {
        const struct segment *segment = &x->at[i];
        float fan = (float)(segment->len / segment->shape.dim[0]);
        bool scale = segment->shape.n == 1 && strstr(segment->name, ".0");
        float size = segment->shape.n > 1 ? sqrtf(4.5f / fan) : 0.2f;
        for (size_t k = 0; k < segment->len; k++)
            m->x.at[segment->offset + k] = (scale ? 0.8f : 0.0f) + size * next_number(&state);
    }
    for (size_t i = 0; i < s->count; i++) {
        const struct segment *segment = &s->at[i];
        char kind = segment->name[strlen(segment->name) - 1];
        for (size_t k = 0; k < segment->len; k++)
            m->s.at[segment->offset + k] = kind == '2'   ? 8.0f
                                           : kind == '1' ? 12.0f + 4.0f * next_number(&state)
                                                         : 2.0f * next_number(&state);
    }
}

/* The blob for the records. */
static float *compute_blob(struct made *m, const float *records, const char *blob, size_t *each)
{
    struct net_result result;
    const uint32_t labels[RECORDS] = {0};
    const struct net_batch batch = {.data = records, .labels = labels, .count = RECORDS};
    net_forward(m->net, &m->x, &m->s, &batch, &result);
    struct shape shape;
    size_t n = net_blob(m->net, blob, NULL, 0, &shape);
    assert_true(n > 0);
    float *out = make_floats(n);
    net_blob(m->net, blob, out, n, &shape);
    *each = n / RECORDS;
    return out;
}

static void take_softmax(float *at, size_t n)
{
    float most = at[0], sum = 0;
    for (size_t i = 1; i < n; i++)
        most = at[i] > most ? at[i] : most;
    for (size_t i = 0; i < n; i++)
        sum += at[i] = expf(at[i] - most);
    for (size_t i = 0; i < n; i++)
        at[i] /= sum;
}

static const char *scores_of(const Caffe__NetParameter *param)
{
    for (size_t i = param->n_layer; i-- > 0;)
        if (strcmp(param->layer[i]->type, "SoftmaxWithLoss") == 0)
            return param->layer[i]->bottom[0];
    fail_msg("a net without a loss");
    return NULL;
}

static void keep_floats(const char *net, const char *what, const float *at, size_t n)
{
    char path[2 * PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s.%s", folder.path, net, what);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(at, sizeof *at, n, file), n);
    fclose(file);
}

static void expect_near(const char *net, const float *a, const float *b, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(a[i] - b[i]) / (1e-4f + fabsf(b[i])));
    if (!(most < 1e-4f))
        fail_msg("%s: after it was written and read, a value differs by %g", net, (double)most);
}

/* The file's net, with the file's weights. */
static void compare_read(const char *net, const char *path, const struct shape *record,
                         const float *records, const float *want, size_t each)
{
    Caffe__NetParameter *param;
    struct err err = {0};
    struct made m;
    size_t n;
    if (model_load_file(path, &param, &err) != OK)
        fail_msg("%s", err.text);
    make_net(&m, param, record, NULL);
    const struct weights_into into = {net_segments(m.net), net_state_segments(m.net), m.x.at,
                                      m.s.at};
    if (model_weights_load(path, WEIGHTS_ALL, &into, NULL, &err) != OK)
        fail_msg("%s", err.text);
    float *got = compute_blob(&m, records, "prob", &n);
    assert_int_equal(n, each);
    expect_near(net, got, want, RECORDS * each);
    free(got);
    release_net(&m);
    caffe__net_parameter__free_unpacked(param, NULL);
}

/* Write the net, and keep its records and outputs for onnxruntime; `is_read`: read it as well.
 * `rows`: records are numbers from 0 up to it, with fractions; 0: from -1 to 1. */
static void check_param(const char *name, const Caffe__NetParameter *param,
                        const struct shape *record, float rows, bool is_read)
{
    struct err err = {0};
    struct made m;
    char path[2 * PATH_BYTES];
    uint32_t state = 3;
    size_t each, n = RECORDS * shape_count(record);
    float *records = make_floats(n);
    for (size_t i = 0; i < n; i++)
        records[i] = rows > 0 ? 0.4999f * rows * (1 + next_number(&state)) : next_number(&state);
    make_net(&m, param, record, scores_of(param));
    fill_numbers(&m);
    float *want = compute_blob(&m, records, scores_of(param), &each);
    for (size_t i = 0; i < RECORDS; i++)
        take_softmax(want + i * each, each);
    snprintf(path, sizeof path, "%s/%s.onnx", folder.path, name);
    if (caffe_convert_save(param, net_segments(m.net), m.x.at, net_state_segments(m.net), m.s.at,
                           record, real_disk(), path, &err) != OK)
        fail_msg("%s", err.text);
    release_net(&m);
    keep_floats(name, "in", records, n);
    keep_floats(name, "out", want, RECORDS * each);
    if (is_read)
        compare_read(name, path, record, records, want, each);
    free(want);
    free(records);
}

static void check_net(const char *name)
{
    Caffe__NetParameter *param;
    struct err err = {0};
    assert_int_equal(zoo_net(name, &param, &err), OK);
    const struct shape record = zoo_record(name);
    check_param(name, param, &record, 0, true);
    caffe__net_parameter__free_unpacked(param, NULL);
}

/* A layer, or several, between the records and the scores. */
struct small_case {
    const char *name, *units;
    struct shape record;
    float rows;
    bool is_read;
};

static void check_cases(const struct small_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ProtobufCMessage *net;
        struct err err = {0};
        char text[1024];
        snprintf(text, sizeof text,
                 "name: '%s' layer { name: 'data' type: 'Data' top: 'data' top: 'label' }"
                 "layer { name: 'units' %s bottom: 'data' top: 'units' }"
                 "layer { name: 'scores' type: 'InnerProduct' bottom: 'units' top: 'scores'"
                 "  inner_product_param { num_output: 3 } }"
                 "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'scores' bottom: 'label'"
                 "  top: 'loss' }",
                 cases[i].name, cases[i].units);
        if (text_parse(&caffe__net_parameter__descriptor, "net", text, strlen(text), &net, &err) !=
            OK)
            fail_msg("%s", err.text);
        check_param(cases[i].name, (Caffe__NetParameter *)net, &cases[i].record, cases[i].rows,
                    cases[i].is_read);
        protobuf_c_message_free_unpacked(net, NULL);
    }
}

/* Sequences of vectors, and of numbers, through units. */
static void test_recurrent_nets_come_back(void **state)
{
    static const struct small_case cases[] = {
        {"lstm", "type: 'LSTM' recurrent_param { num_output: 6 }", {2, {4, 5}}, 0, true},
        {"gru", "type: 'GRU' gru_param { num_output: 6 }", {2, {4, 5}}, 0, true},
        {"gru-reset",
         "type: 'GRU' gru_param { num_output: 6 reset_first: true }",
         {2, {4, 5}},
         0,
         true},
        {"gru-reverse",
         "type: 'GRU' gru_param { num_output: 6 reverse: true }",
         {2, {4, 5}},
         0,
         true},
        {"lstm-reverse",
         "type: 'LSTM' recurrent_param { num_output: 6 reverse: true }",
         {2, {4, 5}},
         0,
         true},
        {"lstm-of-numbers", "type: 'LSTM' recurrent_param { num_output: 6 }", {1, {4}}, 0, true},
        {"rnn", "type: 'RNN' recurrent_param { num_output: 6 }", {2, {4, 5}}, 0, true},
        {"rnn-state",
         "type: 'RNN' recurrent_param { num_output: 6 output_product: false }",
         {2, {4, 5}},
         0,
         true},
    };
    (void)state;
    check_cases(cases, sizeof cases / sizeof *cases);
}

static void test_embeddings_come_back(void **state)
{
    static const struct small_case cases[] = {
        {"embed", "type: 'Embed' embed_param { input_dim: 7 num_output: 5 }", {1, {4}}, 7, true},
        {"embed-no-bias",
         "type: 'Embed' embed_param { input_dim: 9 num_output: 3 bias_term: false }",
         {1, {4}},
         9,
         true},
    };
    (void)state;
    check_cases(cases, sizeof cases / sizeof *cases);
}

/* The parts are joined in another order. */
static void test_parts_come_back(void **state)
{
    static const struct small_case cases[] = {
        {"slice",
         "type: 'Slice' bottom: 'data' top: 'a' top: 'b' top: 'c'"
         "  slice_param { slice_point: 1 slice_point: 3 } }"
         "layer { name: 'join' type: 'Concat' bottom: 'c' bottom: 'a' bottom: 'b'",
         {1, {7}},
         0,
         true},
        {"slice-columns",
         "type: 'Slice' bottom: 'data' top: 'a' top: 'b' slice_param { axis: -1 } }"
         "layer { name: 'join' type: 'Concat' concat_param { axis: -1 } bottom: 'b' bottom: 'a'",
         {3, {2, 3, 4}},
         0,
         true},
        {"slice-whole",
         "type: 'Slice' bottom: 'data' top: 'a' }"
         "layer { name: 'join' type: 'Concat' bottom: 'a'",
         {1, {7}},
         0,
         true},
        {"split",
         "type: 'Split' bottom: 'data' top: 'a' top: 'b' }"
         "layer { name: 'join' type: 'Concat' bottom: 'b' bottom: 'a'",
         {1, {7}},
         0,
         true},
    };
    (void)state;
    check_cases(cases, sizeof cases / sizeof *cases);
}

static void test_zoo_nets_come_back(void **state)
{
    (void)state;
    for (size_t i = 0; chosen[i]; i++)
        check_net(chosen[i]);
}

static void test_zoo_nets_in_onnxruntime(void **state)
{
    (void)state;
    char command[3 * PATH_BYTES];
    if (system("python3 -c 'import numpy, onnxruntime' >/dev/null 2>&1") != 0) {
        print_message("    Python has no onnxruntime\n");
        skip();
    }
    snprintf(command, sizeof command, "python3 " TEST_ROOT "/test/golden/onnx_zoo.py '%s'",
             folder.path);
    assert_int_equal(system(command), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zoo_nets_come_back),
        cmocka_unit_test(test_recurrent_nets_come_back),
        cmocka_unit_test(test_embeddings_come_back),
        cmocka_unit_test(test_parts_come_back),
        cmocka_unit_test(test_zoo_nets_in_onnxruntime),
    };
    const char *const *from = (const char *const *)small_nets;
    bool all = argc == 2 && strcmp(argv[1], "all") == 0;
    if (argc > 1)
        from = all ? zoo_names() : (const char *const *)argv + 1;
    for (size_t i = 0; from[i] && i + 1 < NETS_MAX; i++)
        chosen[i] = from[i];
    folder_make(&folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    folder_remove(&folder);
    return failed;
}
