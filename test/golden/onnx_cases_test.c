/* Models in ONNX, case by case: a folder has model.onnx, input_K.pb and output_K.pb, as ONNX's own
 * cases do. Ours (test/golden/onnx, made by onnx_cases.py) have the outputs of onnxruntime. ONNX's,
 * its model mnist_8 and its light models are in the folder onnx of PACELINE_DATA; without the
 * variable these tests are skipped.
 *
 * test/golden/onnx/cases.txt says of each case of ONNX's whether it passes, or why it is refused:
 * a case that does better than its line fails the test, too. test/onnx_table.py lets the table only
 * grow. */
#include "base/file.h"
#include "model/onnx_import.h"
#include "nn/net.h"
#include "tensor/kernels.h"
#include "tensor/record_fields.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "folder.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OWN_CASES = 108, /* in test/golden/onnx */
    PATH_BYTES = 1024,
    INPUTS_MAX = 8,
    BYTES_MAX = 1 << 28
};

static const size_t NUMBERS_MAX = (size_t)1 << 31;

/* ---- files ---- */

static Onnx__TensorProto *read_tensor(const char *folder, const char *what, size_t k)
{
    char path[PATH_BYTES];
    struct file_bytes bytes;
    snprintf(path, sizeof path, "%s/%s_%zu.pb", folder, what, k);
    if (!file_is_regular(path))
        return NULL;
    struct err err = {0};
    if (file_read(path, BYTES_MAX, &bytes, &err) != OK)
        fail_msg("%s", err.text);
    Onnx__TensorProto *tensor = onnx__tensor_proto__unpack(NULL, bytes.len, bytes.data);
    file_release(&bytes);
    assert_non_null(tensor);
    return tensor;
}

static size_t count_of(const Onnx__TensorProto *tensor)
{
    size_t n = 1;
    for (size_t k = 0; k < tensor->n_dims; k++)
        n *= (size_t)tensor->dims[k];
    return n;
}

/* Floats or 64-bit integers, whichever way they lie. */
static float number_at(const Onnx__TensorProto *tensor, size_t k)
{
    float f;
    int64_t i;
    if (tensor->data_type == 7) {
        if (!tensor->has_raw_data)
            return (float)tensor->int64_data[k];
        memcpy(&i, tensor->raw_data.data + k * sizeof i, sizeof i);
        return (float)i;
    }
    assert_int_equal(tensor->data_type, 1);
    if (!tensor->has_raw_data)
        return tensor->float_data[k];
    memcpy(&f, tensor->raw_data.data + k * sizeof f, sizeof f);
    return f;
}

/* ---- a case ---- */

struct onnx_case {
    Onnx__ModelProto *model;
    const char *data[INPUTS_MAX]; /* names of inputs that are data */
    Onnx__TensorProto *input[INPUTS_MAX];
    size_t inputs;
    Caffe__NetParameter *net;
    struct err err;
};

static bool is_initializer(const Onnx__GraphProto *graph, const char *name)
{
    for (size_t i = 0; i < graph->n_initializer; i++)
        if (strcmp(graph->initializer[i]->name, name) == 0)
            return true;
    return false;
}

/* A copy of the tensor as an initializer of that name. */
static void bind_input(Onnx__GraphProto *graph, const char *name, const Onnx__TensorProto *tensor)
{
    size_t len = onnx__tensor_proto__get_packed_size(tensor), n = graph->n_initializer;
    uint8_t *bytes = malloc(len + 1);
    assert_non_null(bytes);
    onnx__tensor_proto__pack(tensor, bytes);
    graph->initializer = realloc(graph->initializer, (n + 1) * sizeof *graph->initializer);
    assert_non_null(graph->initializer);
    Onnx__TensorProto *copy = onnx__tensor_proto__unpack(NULL, len, bytes);
    free(bytes);
    assert_non_null(copy);
    free(copy->name);
    copy->name = strdup(name);
    graph->initializer[graph->n_initializer++] = copy;
}

static Onnx__ModelProto *read_model(const char *path)
{
    struct file_bytes bytes;
    struct err err = {0};
    Onnx__ModelProto *model = NULL;
    if (file_read(path, BYTES_MAX, &bytes, &err) != OK ||
        onnx_unpack(path, bytes.data, bytes.len, &model, &err) != OK)
        fail_msg("%s", err.text);
    file_release(&bytes);
    return model;
}

/* ONNX's cases have weights as inputs: all inputs after the first are constants, or with `all` they
 * are data. */
static int import_case(struct onnx_case *c, const char *path, const char *folder, bool all)
{
    c->model = read_model(path);
    c->inputs = 0;
    Onnx__GraphProto *graph = c->model->graph;
    for (size_t i = 0, k = 0; i < graph->n_input; i++) {
        const char *name = graph->input[i]->name;
        if (is_initializer(graph, name))
            continue;
        Onnx__TensorProto *tensor = read_tensor(folder, "input", k++);
        if (!tensor)
            continue;
        if (c->inputs > 0 && !all) {
            bind_input(graph, name, tensor);
            onnx__tensor_proto__free_unpacked(tensor, NULL);
            continue;
        }
        assert_true(c->inputs < INPUTS_MAX);
        c->data[c->inputs] = name;
        c->input[c->inputs++] = tensor;
    }
    return onnx_import_model(path, c->model, NUMBERS_MAX, &c->net, &c->err);
}

static void release_case(struct onnx_case *c)
{
    for (size_t k = 0; k < c->inputs; k++)
        onnx__tensor_proto__free_unpacked(c->input[k], NULL);
    onnx__model_proto__free_unpacked(c->model, NULL);
    if (c->net)
        caffe__net_parameter__free_unpacked(c->net, NULL);
    c->net = NULL;
    c->inputs = 0;
}

/* ---- the net computes ---- */

static void take_weights(const Caffe__NetParameter *net, const struct segments *table, float *to)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct segment *segment = &table->at[i];
        const char *dot = strrchr(segment->name, '.');
        size_t k = (size_t)strtoul(dot + 1, NULL, 10);
        for (size_t l = 0; l < net->n_layer; l++) {
            const Caffe__LayerParameter *layer = net->layer[l];
            if (strlen(layer->name) != (size_t)(dot - segment->name) ||
                memcmp(layer->name, segment->name, strlen(layer->name)) != 0)
                continue;
            assert_true(k < layer->n_blobs);
            assert_int_equal(layer->blobs[k]->n_data, segment->len);
            memcpy(to + segment->offset, layer->blobs[k]->data, segment->len * sizeof *to);
        }
    }
}

/* The axis of a graph's input that counts records: the one whose size is not fixed, else the first.
 * The sequences by steps of ONNX's own cases, whose sizes are fixed, have one step. */
static size_t axis_of_records(const Onnx__GraphProto *graph, const char *name)
{
    for (size_t i = 0; i < graph->n_input; i++) {
        const Onnx__TensorShapeProto *shape = graph->input[i]->type->tensor_type->shape;
        if (strcmp(graph->input[i]->name, name) == 0)
            return shape->n_dim > 1 && !shape->dim[1]->has_dim_value ? 1 : 0;
    }
    return 0;
}

/* Record n of N of an input, where the axis `axis` counts them. */
static void take_record(const Onnx__TensorProto *input, size_t axis, size_t n, size_t N, float *to)
{
    size_t each = count_of(input) / N, parts = axis ? (size_t)input->dims[0] : 1;
    size_t len = each / parts;
    for (size_t j = 0; j < each; j++)
        to[j] = number_at(input, (j / len * N + n) * len + j % len);
}

/* Records of all inputs. */
static float *make_records(const struct onnx_case *c, size_t N, struct fields *fields,
                           struct shape *record)
{
    size_t floats = 0;
    for (size_t k = 0; k < c->inputs; k++)
        floats += count_of(c->input[k]) / N;
    float *records = calloc(N * floats, sizeof *records);
    assert_non_null(records);
    *fields = (struct fields){.n = c->inputs > 1 ? c->inputs : 0};
    for (size_t k = 0, from = 0; k < c->inputs; k++) {
        struct field *field = &fields->field[k];
        size_t each = count_of(c->input[k]) / N;
        size_t axis = axis_of_records(c->model->graph, c->data[k]);
        snprintf(field->name, sizeof field->name, "%s", c->data[k]);
        field->from = from;
        field->shape = (struct shape){1, {each}};
        for (size_t n = 0; n < N; n++)
            take_record(c->input[k], axis, n, N, records + n * floats + from);
        from += each;
    }
    *record = (struct shape){1, {floats}};
    return records;
}

/* The records in a batch, by the net's input layer and the numbers there are. */
static size_t count_records(const struct onnx_case *c)
{
    const Caffe__BlobShape *shape = c->net->layer[0]->input_param->shape[0];
    size_t each = 1;
    for (size_t k = 1; k < shape->n_dim; k++)
        each *= (size_t)shape->dim[k];
    return count_of(c->input[0]) / each;
}

/* ONNX's own tolerance. */
static bool is_near(float a, float b)
{
    return fabsf(a - b) <= 1e-7f + 1e-3f * fabsf(b);
}

static void compare_outputs(const struct net *net, const struct onnx_case *c, const char *folder,
                            const char *path)
{
    const Onnx__GraphProto *graph = c->model->graph;
    for (size_t k = 0; k < graph->n_output; k++) {
        Onnx__TensorProto *want = read_tensor(folder, "output", k);
        assert_non_null(want);
        size_t n = count_of(want);
        struct shape shape;
        float *got = malloc(n * sizeof *got + 1);
        assert_non_null(got);
        assert_int_equal(net_blob(net, graph->output[k]->name, got, n, &shape), n);
        for (size_t j = 0; j < n; j++)
            if (!is_near(got[j], number_at(want, j)))
                fail_msg("%s: output %zu, number %zu is %g, not %g", path, k, j, (double)got[j],
                         (double)number_at(want, j));
        free(got);
        onnx__tensor_proto__free_unpacked(want, NULL);
    }
}

/* A net with its weights. */
struct ready {
    struct net *net;
    struct vec x, s;
};

static float *make_vector(size_t n)
{
    float *at = aligned_alloc(64, (n + 16) / 16 * 64);
    assert_non_null(at);
    memset(at, 0, n * sizeof *at);
    return at;
}

static void make_ready(struct ready *r, const Caffe__NetParameter *param, enum phase phase,
                       const char *path, size_t N, const struct shape *record,
                       const struct fields *fields, const struct kernels *kernels)
{
    struct err err = {0};
    const struct net_options options = {
        .phase = phase, .batch = N, .input = *record, .fields = fields, .kernels = kernels};
    if (net_create(param, &options, &r->net, &err) != OK)
        fail_msg("%s: %s", path, err.text);
    const struct segments *x = net_segments(r->net), *s = net_state_segments(r->net);
    r->x = (struct vec){.at = make_vector(x->total), .n = x->total};
    r->s = (struct vec){.at = make_vector(s->total), .n = s->total};
    take_weights(param, x, r->x.at);
    take_weights(param, s, r->s.at);
}

static void run_ready(struct ready *r, const float *records, size_t N)
{
    struct net_result result;
    const struct net_batch batch = {.data = records, .count = N};
    net_forward(r->net, &r->x, &r->s, &batch, &result);
}

static void release_ready(struct ready *r)
{
    net_free(r->net);
    free(r->x.at);
    free(r->s.at);
}

static void run_case(const struct onnx_case *c, const char *folder, const char *path,
                     const struct kernels *kernels)
{
    struct fields fields;
    struct shape record;
    struct ready ready;
    size_t N = count_records(c);
    float *records = make_records(c, N, &fields, &record);
    make_ready(&ready, c->net, PHASE_TEST, path, N, &record, &fields, kernels);
    run_ready(&ready, records, N);
    compare_outputs(ready.net, c, folder, path);
    release_ready(&ready);
    free(records);
}

/* OK: it passes; else why it is refused. */
static int try_case(const char *path, const char *folder, struct err *err)
{
    struct onnx_case c = {0};
    int rc = import_case(&c, path, folder, false);
    if (rc != OK) {
        release_case(&c);
        struct onnx_case all = {0};
        rc = import_case(&all, path, folder, true);
        c.err = rc == OK ? c.err : all.inputs > 1 ? c.err : all.err;
        struct err kept = c.err;
        c = all;
        c.err = kept;
    }
    if (rc == OK) {
        run_case(&c, folder, path, &kernels_ref);
        run_case(&c, folder, path, &kernels_dnnl);
    }
    *err = c.err;
    release_case(&c);
    return rc;
}

/* ---- the tests ---- */

static const char *data_folder(void)
{
    const char *data = getenv("PACELINE_DATA");
    if (!data || !data[0]) {
        print_message("    PACELINE_DATA is not set\n");
        skip();
    }
    return data;
}

static void expect_case(const char *path, const char *folder)
{
    struct err err = {0};
    if (try_case(path, folder, &err) != OK)
        fail_msg("%s", err.text);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names in a folder that begin so, sorted; the last is NULL. */
static char **list_folder(const char *folder, const char *begin)
{
    DIR *dir = opendir(folder);
    char **list = calloc(512, sizeof *list);
    size_t n = 0;
    assert_true(dir && list);
    for (struct dirent *entry; (entry = readdir(dir)) && n < 511;)
        if (strncmp(entry->d_name, begin, strlen(begin)) == 0)
            list[n++] = strdup(entry->d_name);
    closedir(dir);
    qsort(list, n, sizeof *list, by_name);
    return list;
}

static void free_list(char **list)
{
    for (size_t i = 0; list[i]; i++)
        free(list[i]);
    free(list);
}

static void test_cases_of_onnxruntime(void **state)
{
    (void)state;
    char **list = list_folder(TEST_ROOT "/test/golden/onnx", "case_");
    size_t n = 0;
    for (; list[n]; n++) {
        char folder[PATH_BYTES], path[PATH_BYTES + 16];
        snprintf(folder, sizeof folder, TEST_ROOT "/test/golden/onnx/%s", list[n]);
        snprintf(path, sizeof path, "%s/model.onnx", folder);
        expect_case(path, folder);
    }
    assert_int_equal(n, OWN_CASES);
    free_list(list);
}

/* The model of a case, taken from a folder of its own, in which `from` became `to`, as long a text;
 * what the import says of it. */
static int import_changed(const struct folder *f, const char *name, const char *from,
                          const char *to, struct err *err)
{
    struct file_bytes bytes;
    Caffe__NetParameter *net = NULL;
    char path[256];
    size_t n = strlen(from), changed = 0;
    assert_int_equal(strlen(to), n);
    snprintf(path, sizeof path, TEST_ROOT "/test/golden/onnx/%s/model.onnx", name);
    assert_int_equal(file_read(path, BYTES_MAX, &bytes, err), OK);
    for (size_t i = 0; i + n <= bytes.len; i++)
        if (memcmp(bytes.data + i, from, n) == 0) {
            memcpy(bytes.data + i, to, n);
            changed++;
        }
    assert_true(changed > 0);
    int rc = onnx_import(folder_file(f, "model.onnx", path), bytes.data, bytes.len, BYTES_MAX, &net,
                         err);
    file_release(&bytes);
    if (net)
        caffe__net_parameter__free_unpacked(net, NULL);
    return rc;
}

/* The model names the file, and may come from anybody. */
static void test_weights_of_another_file_are_in_the_folder(void **state)
{
    static const struct {
        const char *from, *to, *error;
    } cases[] = {
        {"weights.bin", "weights.bin", NULL},
        {"weights.bin", "/etc/passwd", "a path within the model's folder"},
        {"weights.bin", "../etc/pass", "a path within the model's folder"},
        {"weights.bin", "a/../../abc", "a path within the model's folder"},
        {"weights.bin", "outside.lnk", "outside"},
        {"weights.bin", "missing.bin", "missing.bin"},
        {"weights.bin", "shorter.bin", "the file is shorter than that"},
        {"location", "l0cation", "a path within the model's folder"},
        {"800", "799", "not that of its shape"},
        {"800", "8x0", "is not a number"},
    };
    struct folder f;
    char command[512], path[256];
    (void)state;
    folder_make(&f);
    snprintf(command, sizeof command,
             "cp " TEST_ROOT "/test/golden/onnx/case_external/weights.bin '%s' && "
             "head -c 100 '%s/weights.bin' >'%s/shorter.bin'",
             f.path, f.path, f.path);
    assert_int_equal(system(command), 0);
    assert_int_equal(symlink("/etc/hostname", folder_file(&f, "outside.lnk", path)), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        int rc = import_changed(&f, "case_external", cases[i].from, cases[i].to, &err);
        if (!cases[i].error && rc != OK)
            fail_msg("%s", err.text);
        if (cases[i].error && (rc != ERR_INPUT || !strstr(err.text, cases[i].error)))
            fail_msg("%s: %d, %s", cases[i].to, rc, err.text);
    }
    folder_remove(&f);
}

static void test_pads_that_are_no_zeros_are_refused(void **state)
{
    const struct folder nowhere = {"/nowhere"};
    struct err err = {0};
    (void)state;
    assert_int_equal(import_changed(&nowhere, "case_pad_uneven", "constant", "reflect_", &err),
                     ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "(Pad, opset 18): mode: only constant"));
}

/* The model of a case as one of another opset; the message of its import. */
static int import_as(const char *name, int64_t opset, struct err *err)
{
    char path[PATH_BYTES];
    Caffe__NetParameter *net = NULL;
    snprintf(path, sizeof path, TEST_ROOT "/test/golden/onnx/case_%s/model.onnx", name);
    Onnx__ModelProto *model = read_model(path);
    model->opset_import[0]->version = opset;
    int rc = onnx_import_model(path, model, NUMBERS_MAX, &net, err);
    if (net)
        caffe__net_parameter__free_unpacked(net, NULL);
    onnx__model_proto__free_unpacked(model, NULL);
    return rc;
}

static void test_other_opsets_are_refused_with_the_range(void **state)
{
    static const struct {
        const char *name;
        int64_t opset;
        const char *error;
    } cases[] = {
        {"linear", 22, "opset 22 is not read: opsets 8 to 21 are"},
        {"two_blobs", 7, "(Max, opset 7): the operator is read from opset 8 to 21"},
        {"gemm_scaled", 6, "(Gemm, opset 6): the operator is read from opset 7 to 21"},
        {"loss_mean", 11,
         "(SoftmaxCrossEntropyLoss, opset 11): the operator is read from opset 12"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        if (import_as(cases[i].name, cases[i].opset, &err) != ERR_UNSUPPORTED ||
            !strstr(err.text, cases[i].error))
            fail_msg("%s: not \"%s\", but \"%s\"", cases[i].name, cases[i].error, err.text);
    }
}

/* A small step against the gradient makes the loss smaller by the step times the gradient's square.
 */
static void check_gradient(const char *name, const struct kernels *kernels)
{
    char folder[PATH_BYTES], path[PATH_BYTES + 16];
    struct onnx_case c = {0};
    struct fields fields;
    struct shape record;
    struct ready ready;
    struct net_result result;
    double loss[2], square = 0, step = 1e-2;
    snprintf(folder, sizeof folder, TEST_ROOT "/test/golden/onnx/case_%s", name);
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    if (import_case(&c, path, folder, true) != OK)
        fail_msg("%s", c.err.text);
    size_t N = count_records(&c);
    float *records = make_records(&c, N, &fields, &record);
    make_ready(&ready, c.net, PHASE_TRAIN, path, N, &record, &fields, kernels);
    const struct net_batch batch = {.data = records, .count = N};
    struct vec dx = {.at = make_vector(ready.x.n), .n = ready.x.n};
    net_forward(ready.net, &ready.x, &ready.s, &batch, &result);
    assert_int_equal(net_backward(ready.net, &ready.x, &dx, NULL), OK);
    const struct segments *table = net_segments(ready.net);
    for (size_t i = 0; i < table->count; i++) {
        double part = 0;
        for (size_t k = table->at[i].offset; k < table->at[i].offset + table->at[i].len; k++)
            part += (double)dx.at[k] * (double)dx.at[k];
        if (!(part > 0))
            fail_msg("%s: %s has no gradient", name, table->at[i].name);
        square += part;
    }
    for (int side = 0; side < 2; side++) { /* a step back, and two ahead */
        for (size_t k = 0; k < dx.n; k++)
            ready.x.at[k] += (float)((side ? -2 : 1) * step / sqrt(square)) * dx.at[k];
        net_forward(ready.net, &ready.x, &ready.s, &batch, &result);
        loss[side] = result.loss / (double)N;
    }
    double slope = (loss[0] - loss[1]) / (2 * step);
    if (!(fabs(slope - sqrt(square)) <= 2e-3 * sqrt(square)))
        fail_msg("%s: slope %g, not %g", name, slope, sqrt(square));
    release_ready(&ready);
    release_case(&c);
    free(dx.at);
    free(records);
}

static void test_imported_nets_train(void **state)
{
    static const char *const names[] = {"loss_recurrent", "loss_ignored", "loss_likelihood",
                                        "loss_pixels"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        check_gradient(names[i], &kernels_ref);
        check_gradient(names[i], &kernels_dnnl);
    }
}

/* The line "NAME pass" or "NAME unsupported: a text of the message". */
static bool expected_result(const char *table, const char *name, char text[256])
{
    char key[256];
    snprintf(key, sizeof key, "\n%s ", name);
    const char *line = strstr(table, key);
    if (!line)
        return false;
    line += strlen(key);
    snprintf(text, 256, "%.*s", (int)strcspn(line, "\n"), line);
    return true;
}

static void judge_case(const char *table, const char *group, const char *name)
{
    char folder[PATH_BYTES], path[PATH_BYTES + 16], want[256], full[256];
    static const char unsupported[] = "unsupported: ";
    struct err err = {0};
    snprintf(folder, sizeof folder, "%s/onnx/%s/%s/test_data_set_0", data_folder(), group, name);
    snprintf(path, sizeof path, "%s/onnx/%s/%s/model.onnx", data_folder(), group, name);
    snprintf(full, sizeof full, "%s/%s", group, name);
    if (!expected_result(table, full, want))
        fail_msg("%s has no line in test/golden/onnx/cases.txt", full);
    int rc = try_case(path, folder, &err);
    if (rc == OK && strcmp(want, "pass") != 0)
        fail_msg("%s passes: write so in test/golden/onnx/cases.txt", full);
    if (rc != OK && (strncmp(want, unsupported, strlen(unsupported)) != 0 ||
                     !strstr(err.text, want + strlen(unsupported))))
        fail_msg("%s should be \"%s\": %s", full, want, err.text);
}

static void test_cases_of_onnx(void **state)
{
    (void)state;
    static const char *const groups[] = {"node", "pytorch-converted"};
    struct file_bytes table;
    struct err err = {0};
    const char *data = data_folder();
    if (file_read(TEST_ROOT "/test/golden/onnx/cases.txt", 1 << 20, &table, &err) != OK)
        fail_msg("%s", err.text);
    for (size_t g = 0; g < 2; g++) {
        char folder[PATH_BYTES];
        snprintf(folder, sizeof folder, "%s/onnx/%s", data, groups[g]);
        char **list = list_folder(folder, "test_");
        for (size_t i = 0; list[i]; i++)
            judge_case((char *)table.data, groups[g], list[i]);
        free_list(list);
    }
    file_release(&table);
}

static void test_mnist_of_onnx(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) {
        char folder[PATH_BYTES], path[PATH_BYTES];
        snprintf(path, sizeof path, "%s/onnx/mnist_8/model.onnx", data_folder());
        snprintf(folder, sizeof folder, "%s/onnx/mnist_8/test_data_set_%d", data_folder(), k);
        expect_case(path, folder);
    }
}

/* A real graph whose weights are all the same, so that its output, which the folder has, is that of
 * any record. A record's ith number of n is i/n. */
static void check_light_model(const char *path, const char *folder, const char *name)
{
    char what[PATH_BYTES];
    snprintf(what, sizeof what, "%s_output", name);
    Onnx__TensorProto *want = read_tensor(folder, what, 0);
    assert_non_null(want);
    assert_int_equal(count_of(want), 1000);
    struct onnx_case c = {.model = read_model(path)};
    if (onnx_import_model(path, c.model, NUMBERS_MAX, &c.net, &c.err) != OK)
        fail_msg("%s", c.err.text);
    const Caffe__BlobShape *shape = c.net->layer[0]->input_param->shape[0];
    size_t n = (size_t)(shape->dim[1] * shape->dim[2] * shape->dim[3]);
    float *record = calloc(n, sizeof *record);
    assert_non_null(record);
    for (size_t i = 0; i < n; i++)
        record[i] = (float)i / (float)n;
    struct ready ready;
    make_ready(&ready, c.net, PHASE_TEST, path, 1, &(struct shape){1, {n}}, NULL, &kernels_dnnl);
    float got[1000];
    struct shape of_blob;
    run_ready(&ready, record, 1);
    assert_int_equal(net_blob(ready.net, c.model->graph->output[0]->name, got, 1000, &of_blob),
                     1000);
    for (size_t i = 0; i < 1000; i++)
        if (!is_near(got[i], number_at(want, i)))
            fail_msg("%s: class %zu has %g, not %g", path, i, (double)got[i],
                     (double)number_at(want, i));
    onnx__tensor_proto__free_unpacked(want, NULL);
    release_ready(&ready);
    free(record);
    release_case(&c);
}

/* Each model of the folder, all of which pass. */
static void test_light_models_of_onnx(void **state)
{
    (void)state;
    struct file_bytes table;
    struct err err = {0};
    char folder[PATH_BYTES], want[256];
    size_t models = 0;
    snprintf(folder, sizeof folder, "%s/onnx/light", data_folder());
    if (file_read(TEST_ROOT "/test/golden/onnx/cases.txt", 1 << 20, &table, &err) != OK)
        fail_msg("%s", err.text);
    char **list = list_folder(folder, "light_");
    for (size_t i = 0; list[i]; i++) {
        char path[2 * PATH_BYTES], name[PATH_BYTES];
        const char *end = strstr(list[i], ".onnx");
        if (!end)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, list[i]);
        snprintf(name, sizeof name, "light/%.*s", (int)(end - list[i]), list[i]);
        if (!expected_result((char *)table.data, name, want) || strcmp(want, "pass") != 0)
            fail_msg("%s has no line \"pass\" in test/golden/onnx/cases.txt", name);
        check_light_model(path, folder, name + strlen("light/"));
        models++;
    }
    assert_true(models >= 6);
    free_list(list);
    file_release(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases_of_onnxruntime),
        cmocka_unit_test(test_weights_of_another_file_are_in_the_folder),
        cmocka_unit_test(test_pads_that_are_no_zeros_are_refused),
        cmocka_unit_test(test_other_opsets_are_refused_with_the_range),
        cmocka_unit_test(test_imported_nets_train),
        cmocka_unit_test(test_cases_of_onnx),
        cmocka_unit_test(test_mnist_of_onnx),
        cmocka_unit_test(test_light_models_of_onnx),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
