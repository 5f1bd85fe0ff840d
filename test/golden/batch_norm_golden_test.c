/* BatchNorm and Scale on every kernel set against PyTorch (batch_norm.py wrote batch_norm.golden):
 * forward, backward, and the state that training writes and testing reads. */
#include "golden_hash.h"
#include "nn/fixture.h"

#include "base/file.h"
#include "nn/graph.h"

#include <stdio.h>
#include <stdlib.h>

enum { DATA = 100, LABELS = 101, CLASSES = 3, VALUES_MAX = 256 };

static const char *golden; /* the whole file */

struct example {
    const char *name;
    size_t N;
    struct shape input;
};

static const struct example examples[] = {
    {"image", 5, {3, {3, 4, 3}}},
    {"point", 6, {3, {4, 1, 1}}},
};

/* `got` against the line "EXAMPLE.STEP.WHAT n v1 .. vn". */
static void expect_line(const struct example *e, const char *step, const char *what,
                        const float *got, size_t n)
{
    char key[64];
    double want[VALUES_MAX], largest = 0;
    snprintf(key, sizeof key, "%s.%s.%s %zu ", e->name, step, what, n);
    const char *line = golden;
    while (line && strncmp(line, key, strlen(key)) != 0) {
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    if (!line)
        fail_msg("batch_norm.golden has no %s", key);
    char *at = (char *)(uintptr_t)(line + strlen(key));
    for (size_t i = 0; i < n; i++) {
        want[i] = strtod(at, &at);
        largest = fmax(largest, fabs(want[i]));
    }
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= 1e-5 * largest + 1e-6))
            fail_msg("%s[%zu] is %.9g, PyTorch says %.9g", key, i, (double)got[i], want[i]);
}

static void open_net(struct fixture *f, const struct example *e, enum phase phase,
                     const char *fields, const struct kernels *kernels)
{
    char text[2048];
    snprintf(text, sizeof text,
             "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }"
             "layer { name: 's0' type: 'Scale' bottom: 'data' top: 's0'"
             " scale_param { bias_term: true } }"
             "layer { name: 'bn' type: 'BatchNorm' bottom: 's0' top: 'bn'"
             " param { lr_mult: 0 } param { lr_mult: 0 } param { lr_mult: 0 }"
             " batch_norm_param { eps: 0.03125 moving_average_fraction: 0.875 %s } }"
             "layer { name: 's1' type: 'Scale' bottom: 'bn' top: 's1'"
             " scale_param { bias_term: true } }"
             "layer { name: 'ip' type: 'InnerProduct' bottom: 's1' top: 'ip'"
             " inner_product_param { num_output: 3 } }"
             "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label'"
             " top: 'loss' }",
             fields);
    fixture_open(f, text, phase, e->N, e->input, kernels);
    const struct segments *table = net_segments(f->net);
    for (uint32_t k = 0; k < table->count; k++)
        for (size_t i = 0; i < table->at[k].len; i++)
            f->x.at[table->at[k].offset + i] = hash_unit(k, i) + (k == 0 || k == 2 ? 1.0f : 0.0f);
    for (size_t n = 0; n < e->N; n++)
        f->labels[n] = hash_mix(LABELS, (uint32_t)n) % CLASSES;
}

/* BatchNorm's bottom has a gradient, which no layer overwrites before the next pass. */
static void expect_dx(struct fixture *f, const struct example *e, const char *step)
{
    const struct net *net = f->net;
    float dx[VALUES_MAX];
    for (size_t i = 0; i < net->n_blobs; i++) {
        const struct blob *blob = net->blob[i];
        if (strcmp(blob->name, "s0") != 0)
            continue;
        if (blob->layout == LAYOUT_PLAIN)
            memcpy(dx, blob->d, blob->count * sizeof *dx);
        else
            kernels_reorder(&blob->shape, blob->layout, blob->d, LAYOUT_PLAIN, dx);
        expect_line(e, step, "dx", dx, blob->count);
        return;
    }
    fail_msg("no blob s0");
}

static void take_step(struct fixture *f, const struct example *e, const char *step, uint32_t at,
                      bool backward)
{
    float y[VALUES_MAX];
    size_t floats = shape_count(&e->input);
    for (size_t i = 0; i < e->N * floats; i++)
        f->data[i] = 2.0f * hash_unit(DATA + 10 * at, i);
    struct net_result result = backward ? fixture_gradient(f) : fixture_forward(f);
    float loss = (float)(result.loss / (double)e->N);
    expect_line(e, step, "loss", &loss, 1);
    assert_int_equal(net_blob(f->net, "bn", y, VALUES_MAX, NULL), e->N * floats);
    expect_line(e, step, "y", y, e->N * floats);
    if (!backward)
        return;
    expect_dx(f, e, step);
    const struct segments *table = net_segments(f->net);
    assert_int_equal(table->count, 6);
    for (size_t k = 0; k < table->count; k++) {
        char what[32];
        snprintf(what, sizeof what, "dw.%zu", k);
        expect_line(e, step, what, f->dx.at + table->at[k].offset, table->at[k].len);
    }
}

static void expect_state(const struct fixture *f, const struct example *e, const char *step)
{
    static const char *const names[] = {"bn.0", "bn.1", "bn.2"};
    const struct segments *table = net_state_segments(f->net);
    assert_int_equal(table->count, 3);
    for (size_t k = 0; k < table->count; k++) {
        char what[32];
        snprintf(what, sizeof what, "s.%zu", k);
        assert_string_equal(table->at[k].name, names[k]);
        expect_line(e, step, what, f->s.at + table->at[k].offset, table->at[k].len);
    }
}

static void check_example(const struct example *e, const struct kernels *kernels)
{
    struct fixture train, test, tune;
    open_net(&train, e, PHASE_TRAIN, "", kernels);
    take_step(&train, e, "train0", 0, true);
    expect_state(&train, e, "train0");
    take_step(&train, e, "train1", 1, true);
    expect_state(&train, e, "train1");

    open_net(&test, e, PHASE_TEST, "", kernels);
    vec_copy(&test.s, &train.s, vec_all(&test.s));
    take_step(&test, e, "test", 2, false);
    expect_state(&test, e, "train1");

    open_net(&tune, e, PHASE_TRAIN, "use_global_stats: true", kernels);
    vec_copy(&tune.s, &train.s, vec_all(&tune.s));
    take_step(&tune, e, "global", 3, true);
    expect_state(&tune, e, "train1");
    fixture_close(&train);
    fixture_close(&test);
    fixture_close(&tune);
}

static void test_batch_norm(void **state)
{
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++)
        check_example(&examples[i], *state);
}

int main(void)
{
    struct file_bytes file;
    struct err err = {0};
    if (file_read(TEST_ROOT "/test/golden/batch_norm.golden", 1 << 20, &file, &err) != OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    golden = (const char *)file.data;
    struct CMUnitTest tests[] = {
        {"batch_norm_ref", test_batch_norm, NULL, NULL, NULL},
        {"batch_norm_dnnl", test_batch_norm, NULL, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        memcpy(&tests[i].initial_state, &fixture_kernels[i], sizeof fixture_kernels[i]);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    file_release(&file);
    return failed;
}
