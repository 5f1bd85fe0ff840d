/* Every type of layer and every field of it, on every kernel set, against other programs: layers.py
 * wrote layers_*.golden and documents their lines.
 *
 * A case fails for each value that is wrong and for each line that is unknown or missing. To show
 * that the comparison can fail, every expectation of every case is changed once. */
#include "golden_hash.h"
#include "nn/fixture.h"

#include "base/file.h"
#include "nn/graph.h"

#include <stdio.h>
#include <stdlib.h>

enum { DATA = 100, LABELS = 101, NET_MAX = 8192, CASE_NAME_MAX = 64, UNSPOILT = -1 };

static float hashed_value(uint32_t stream, size_t i, double scale, double offset)
{
    double unit = (double)hash_unit(stream, i);
    return (float)(unit * scale + offset);
}

/* A case being run: its batch is the whole of the net's, or has `spare` records less. */
struct trial {
    const struct kernels *kernels;
    size_t spare;
    char name[CASE_NAME_MAX], text[NET_MAX];
    enum phase phase;
    size_t N;
    struct shape input;
    double scale, offset, tolerance;
    uint32_t classes;
    size_t target; /* the last floats of a record that have a formula of their own */
    double target_scale, target_offset;
    bool target_whole;
    const char *given; /* these floats themselves; NULL: they have the formula */
    uint32_t stream;   /* of the data */
    size_t carries;    /* floats of a record that go from a pass to the next */
    struct fixture f;
    struct net_result result;
    size_t passes, carrieds; /* lines of each kind seen, */
    size_t params, states, tops, afters, losses, dxs, dws;
    int spoil; /* the expectation to falsify */
    int expectations;
    unsigned wrong;
};

static void report_mismatch(struct trial *t, const char *what, const char *name, const char *why)
{
    t->wrong++;
    if (t->spoil == UNSPOILT)
        print_error("%s on %s: %s %s: %s\n", t->name, t->kernels->name, what, name, why);
}

/* "4x3x3", or "scalar"; returns the rest of the text. */
static const char *read_shape(const char *text, struct shape *shape)
{
    *shape = (struct shape){0};
    if (strncmp(text, "scalar", 6) == 0)
        return text + 6;
    char *at = (char *)(uintptr_t)text;
    do {
        at += shape->n > 0 ? 1 : 0;
        assert_true(shape->n < SHAPE_DIMS_MAX);
        shape->dim[shape->n++] = strtoul(at, &at, 10);
    } while (*at == 'x');
    return at;
}

/* `got` against a line's shape and values. */
static void compare_values(struct trial *t, const char *what, const char *name, const char *values,
                           const struct shape *shape, const float *got)
{
    struct shape want_shape;
    char a[128], b[128], why[192];
    char *at = (char *)(uintptr_t)read_shape(values, &want_shape);
    bool spoilt = t->spoil == t->expectations++;
    bool unknown = strcmp(what, "top") == 0; /* there nan stands for any value */
    if (!shape_equal(shape, &want_shape)) {
        snprintf(why, sizeof why, "is %s, not %s", shape_text(shape, a, sizeof a),
                 shape_text(&want_shape, b, sizeof b));
        report_mismatch(t, what, name, why);
        return;
    }
    size_t n = shape_count(shape), read = 0, bad = n;
    double *want = calloc(n, sizeof *want), largest = 0.0;
    assert_non_null(want);
    for (; read < n && *at == ' '; read++) {
        want[read] = strtod(at, &at);
        largest = fmax(largest, fabs(want[read]));
    }
    double allowed = t->tolerance * largest + 1e-7;
    want[n / 2] += spoilt ? 3.0 * allowed : 0.0;
    for (size_t i = n; i-- > 0;)
        bad = (unknown && isnan(want[i])) || fabs((double)got[i] - want[i]) <= allowed ? bad : i;
    if (bad < n) {
        snprintf(why, sizeof why, "at %zu is %.9g, not %.9g (allowed: %.2g)", bad, (double)got[bad],
                 want[bad], allowed);
        report_mismatch(t, what, name, why);
    }
    free(want);
    if (*at != '\n' || read < n)
        report_mismatch(t, what, name, "the line has other than its values");
}

/* "net train 2 3x6x5 2 0 3 1e-05" */
static void read_net(struct trial *t, const char *line)
{
    char phase[8], shape[64];
    double N, classes;
    assert_int_equal(sscanf(line, "net %7s %lf %63s %lf %lf %lf %lf", phase, &N, shape, &t->scale,
                            &t->offset, &classes, &t->tolerance),
                     7);
    t->phase = strcmp(phase, "train") == 0 ? PHASE_TRAIN : PHASE_TEST;
    t->N = (size_t)N;
    t->classes = (uint32_t)classes;
    read_shape(shape, &t->input);
}

/* "target 7 1 0.5 real" */
static void read_target(struct trial *t, const char *line)
{
    char whole[8];
    double n;
    assert_int_equal(
        sscanf(line, "target %lf %lf %lf %7s", &n, &t->target_scale, &t->target_offset, whole), 4);
    t->target = (size_t)n;
    t->target_whole = strcmp(whole, "whole") == 0;
}

/* "given 4x10 1 0 ..": values of the last floats of all records */
static void read_given(struct trial *t, const char *line)
{
    struct shape shape;
    t->given = read_shape(line + strlen("given "), &shape);
    assert_true(shape.n == 2 && shape.dim[0] == t->N);
    t->target = shape.dim[1];
}

static bool starts_with(const char *text, const char *word)
{
    return strncmp(text, word, strlen(word)) == 0;
}

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    assert_non_null(end);
    return end + 1;
}

static float next_datum(const struct trial *t, size_t i)
{
    size_t floats = shape_count(&t->input);
    if (i % floats < floats - t->target)
        return hashed_value(t->stream, i, t->scale, t->offset);
    float value = hashed_value(t->stream, i, t->target_scale, t->target_offset);
    return t->target_whole ? floorf(value) : value;
}

static void fill_data(struct trial *t)
{
    size_t floats = shape_count(&t->input);
    char *given = (char *)(uintptr_t)t->given;
    for (size_t i = 0; i < t->N * floats; i++)
        t->f.data[i] =
            given && i % floats >= floats - t->target ? strtof(given, &given) : next_datum(t, i);
    assert_true(!given || *given == '\n');
}

/* Opens the net with the case's data and labels; false when it is refused. */
static bool open_net(struct trial *t)
{
    struct err err = {0};
    struct net *net = NULL;
    if (fixture_try(t->text, t->phase, t->N + t->spare, t->input, t->kernels, &net, &err) != OK) {
        report_mismatch(t, "net", "", err.text);
        return false;
    }
    fixture_fill(&t->f, net, t->N + t->spare, t->input);
    t->f.batch.count = t->N;
    fill_data(t);
    for (size_t n = 0; n < t->N; n++)
        t->f.labels[n] = hash_mix(LABELS, (uint32_t)n) % t->classes;
    if (t->carries > 0) {
        assert_int_equal(net_carried(net), t->carries);
        t->f.batch.carried = arena_array(&t->f.arena, t->N * t->carries, float);
        assert_non_null(t->f.batch.carried);
        memset(t->f.batch.carried, 0, t->N * t->carries * sizeof(float));
    }
    return true;
}

/* "param NAME SHAPE STREAM SCALE OFFSET": the table's next segment is that one, and gets values. */
static void fill_param(struct trial *t, const char *line, const struct segments *table,
                       struct vec *x, size_t k)
{
    char kind[8], name[CASE_NAME_MAX], want[64], got[64];
    double stream, scale, offset;
    assert_int_equal(
        sscanf(line, "%7s %63s %63s %lf %lf %lf", kind, name, want, &stream, &scale, &offset), 6);
    if (k >= table->count) {
        report_mismatch(t, kind, name, "the net has no more");
        return;
    }
    const struct segment *segment = &table->at[k];
    if (strcmp(segment->name, name) != 0 ||
        strcmp(shape_text(&segment->shape, got, sizeof got), want) != 0) {
        report_mismatch(t, kind, name, segment->name);
        return;
    }
    for (size_t i = 0; i < segment->len; i++)
        x->at[segment->offset + i] = hashed_value((uint32_t)stream, i, scale, offset);
}

static void check_segment(struct trial *t, const char *what, const char *name, const char *values,
                          const struct segments *table, const struct vec *x)
{
    const struct segment *segment = segments_find(table, name);
    if (segment)
        compare_values(t, what, name, values, &segment->shape, x->at + segment->offset);
    else
        report_mismatch(t, what, name, "the net has none of that name");
}

static void check_top(struct trial *t, const char *name, const char *values)
{
    struct shape shape = {0};
    size_t n = net_blob(t->f.net, name, NULL, 0, &shape);
    float *got = calloc(n + 1, sizeof *got);
    assert_non_null(got);
    if (net_blob(t->f.net, name, got, n, &shape) > 0)
        compare_values(t, "top", name, values, &shape, got);
    else
        report_mismatch(t, "top", name, "the net has none of that name");
    free(got);
}

/* The gradient of the oldest blob of that name, whose memory lives until backward ends. */
static void check_dx(struct trial *t, const char *name, const char *values)
{
    const struct blob *blob = NULL;
    for (size_t i = t->f.net->n_blobs; i-- > 0;)
        if (strcmp(t->f.net->blob[i]->name, name) == 0)
            blob = t->f.net->blob[i];
    assert_non_null(blob);
    struct shape shape = blob->shape;
    shape.dim[0] = t->N;
    float *got = calloc(blob->count, sizeof *got);
    assert_non_null(got);
    if (blob->d && blob->layout != LAYOUT_PLAIN)
        kernels_reorder(&blob->shape, blob->layout, blob->d, LAYOUT_PLAIN, got);
    else if (blob->d)
        memcpy(got, blob->d, blob->count * sizeof *got);
    compare_values(t, "dx", name, values, &shape, got);
    for (size_t i = shape_count(&shape); i < blob->count; i++)
        if (got[i] != 0.0f) {
            report_mismatch(t, "dx", name, "is not 0 where there is no record");
            break;
        }
    free(got);
}

static void check_line(struct trial *t, const char *line)
{
    char name[CASE_NAME_MAX];
    const struct net *net = t->f.net;
    int used = 0;
    assert_int_equal(sscanf(line, "%*s %63s %n", name, &used), 1);
    const char *values = line + used;
    if (starts_with(line, "top ")) {
        check_top(t, name, values);
        t->tops++;
    } else if (starts_with(line, "init ")) {
        check_segment(t, "init", name, values, net_segments(net), &t->f.x);
    } else if (starts_with(line, "after ")) {
        check_segment(t, "after", name, values, net_state_segments(net), &t->f.s);
        t->afters++;
    } else if (starts_with(line, "carried ") && t->carries > 0) {
        const struct shape shape = {2, {t->N, t->carries}};
        compare_values(t, "carried", "", values, &shape, t->f.batch.carried);
        t->carrieds++;
    } else if (starts_with(line, "loss ")) {
        float loss = (float)(t->result.loss / (double)t->result.count);
        compare_values(t, "loss", "", values, &(struct shape){0}, &loss);
        t->losses++;
    } else if (starts_with(line, "dx ")) {
        check_dx(t, name, values);
        t->dxs++;
    } else if (starts_with(line, "dw ")) {
        check_segment(t, "dw", name, values, net_segments(net), &t->f.dx);
        t->dws++;
    } else {
        report_mismatch(t, "line", line, "unknown");
    }
}

/* Layers, blobs and segments of this name begin are not under test. */
static bool is_scaffold(const char *name)
{
    return starts_with(name, "in.") || starts_with(name, "head.");
}

/* Tops of layers under test, each name once, and bottoms that lead in. */
static void count_blobs(const struct net *net, size_t *tops, size_t *bottoms)
{
    *tops = *bottoms = 0;
    for (size_t i = 0; i < net->n_blobs; i++) {
        const struct blob *blob = net->blob[i];
        bool newest = true, scaffold = is_scaffold(blob->maker->name);
        for (size_t j = i + 1; j < net->n_blobs; j++)
            newest = newest && strcmp(net->blob[j]->name, blob->name) != 0;
        *tops += newest && !scaffold;
        *bottoms += scaffold && blob->name[0] == 'x';
    }
}

/* Nothing that the net makes is without an expectation. */
static void check_complete(struct trial *t)
{
    const struct net *net = t->f.net;
    const struct segments *table = net_segments(net), *states = net_state_segments(net);
    size_t tops, bottoms, tested = 0, passes = t->passes;
    size_t trained = t->phase == PHASE_TRAIN ? passes : 0;
    count_blobs(net, &tops, &bottoms);
    for (size_t k = 0; k < table->count; k++)
        tested += !is_scaffold(table->at[k].name);
    if (t->tops != tops * passes || tops == 0)
        report_mismatch(t, "tops", "", "not one line each");
    if (t->afters != states->count * passes || t->states != states->count)
        report_mismatch(t, "state", "", "not one line each");
    if (t->carrieds != (t->carries > 0 ? passes : 0))
        report_mismatch(t, "carried", "", "not one line each");
    if (t->params != table->count)
        report_mismatch(t, "params", "", "not one line each");
    if (t->losses != trained || t->dxs != bottoms * trained || t->dws != tested * trained)
        report_mismatch(t, "gradients", "", "not one line each");
}

/* "window STREAM": one more pass, over other data */
static void read_window(struct trial *t, const char *line)
{
    char *end;
    t->stream = (uint32_t)strtoul(line + strlen("window "), &end, 10);
    assert_true(*end == '\n');
    fill_data(t);
}

/* The lines before the net's: returns the first of these. */
static const char *read_head(struct trial *t, const char *line)
{
    assert_int_equal(sscanf(line, "case %63s", t->name), 1);
    read_net(t, line = next_line(line));
    for (line = next_line(line); !starts_with(line, "layer "); line = next_line(line)) {
        if (starts_with(line, "target "))
            read_target(t, line);
        else if (starts_with(line, "given "))
            read_given(t, line);
        else if (starts_with(line, "carries "))
            t->carries = strtoul(line + strlen("carries "), NULL, 10);
        else
            fail_msg("%s: a line of the head that is unknown", t->name);
    }
    return line;
}

/* Runs the case at `line`, which begins "case NAME"; returns where the next begins. */
static const char *run_case(struct trial *t, const char *line)
{
    size_t used = 0;
    line = read_head(t, line);
    for (; starts_with(line, "layer "); line = next_line(line)) {
        size_t n = (size_t)(next_line(line) - line);
        assert_true(used + n < NET_MAX);
        memcpy(t->text + used, line, n);
        t->text[used += n] = '\0';
    }
    bool is_open = open_net(t), ran = false;
    for (; *line && !starts_with(line, "case "); line = next_line(line)) {
        if (!is_open)
            continue;
        if (starts_with(line, "init ")) {
            check_line(t, line);
        } else if (starts_with(line, "param ")) {
            fill_param(t, line, net_segments(t->f.net), &t->f.x, t->params++);
        } else if (starts_with(line, "state ")) {
            fill_param(t, line, net_state_segments(t->f.net), &t->f.s, t->states++);
        } else if (starts_with(line, "window ")) {
            read_window(t, line);
            ran = false;
        } else {
            if (!ran) {
                t->result =
                    t->phase == PHASE_TRAIN ? fixture_gradient(&t->f) : fixture_forward(&t->f);
                t->passes++;
            }
            ran = true;
            check_line(t, line);
        }
    }
    if (is_open) {
        check_complete(t);
        fixture_close(&t->f);
    }
    return line;
}

static struct trial *begin_trial(const struct kernels *kernels, size_t spare, int spoilt)
{
    struct trial *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->kernels = kernels;
    t->spare = spare;
    t->spoil = spoilt;
    t->stream = DATA;
    return t;
}

/* Each of the case's expectations, falsified, is found out. */
static void check_spoilt(const char *line, const struct trial *healthy)
{
    for (int i = 0; i < healthy->expectations; i++) {
        struct trial *t = begin_trial(healthy->kernels, healthy->spare, i);
        run_case(t, line);
        if (t->wrong != 1)
            fail_msg("%s: expectation %d falsified: %u complaints", healthy->name, i, t->wrong);
        free(t);
    }
}

struct family {
    const char *file;
    unsigned cases;
};

static const struct family families[] = {
    {"layers_window.golden", 86}, {"layers_unit.golden", 169},    {"layers_shape.golden", 96},
    {"layers_loss.golden", 98},   {"layers_sequence.golden", 62},
};

enum { FAMILIES = sizeof families / sizeof families[0] };

struct play {
    const struct family *family;
    const struct kernels *kernels;
    size_t spare;
};

static void test_family(void **state)
{
    const struct play *play = *state;
    struct file_bytes file;
    struct err err = {0};
    char path[512];
    unsigned cases = 0, wrong = 0;
    snprintf(path, sizeof path, "%s/test/golden/%s", TEST_ROOT, play->family->file);
    if (file_read(path, 4 << 20, &file, &err) != OK)
        fail_msg("%s", err.text);
    for (const char *line = (const char *)file.data; *line; cases++) {
        struct trial *t = begin_trial(play->kernels, play->spare, UNSPOILT);
        const char *next = run_case(t, line);
        wrong += t->wrong;
        if (t->wrong == 0 && play->kernels == &kernels_ref && play->spare == 0)
            check_spoilt(line, t);
        free(t);
        line = next;
    }
    file_release(&file);
    assert_int_equal(cases, play->family->cases);
    if (wrong > 0)
        fail_msg("%s on %s: %u wrong", play->family->file, play->kernels->name, wrong);
}

int main(void)
{
    enum { SPARE = 2, PLAYS = FAMILIES * FIXTURE_KERNELS * 2 };
    struct play plays[PLAYS];
    struct CMUnitTest tests[PLAYS];
    char names[PLAYS][80];
    for (size_t i = 0; i < PLAYS; i++) {
        struct play *play = &plays[i];
        *play = (struct play){&families[i / FIXTURE_KERNELS % FAMILIES],
                              fixture_kernels[i % FIXTURE_KERNELS], i < PLAYS / 2 ? 0 : SPARE};
        snprintf(names[i], sizeof names[i], "%s on %s%s", play->family->file, play->kernels->name,
                 play->spare > 0 ? ", part of a batch" : "");
        tests[i] = (struct CMUnitTest){names[i], test_family, NULL, NULL, play};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
