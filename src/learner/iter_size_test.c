/* iter_size: several batches, one after another, whose gradients make one step. */
#include "base/memory.h"
#include "bf16_needed.h"
#include "job/job.h"
#include "learner/learner.h"
#include "tensor/kernels.h"
#include "tiny_job.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { STEPS = 9, MARKS_MAX = 16 }; /* within an epoch, whose number keys dropout by the batch */

/* A net whose layers see one record at a time; what is dropped is the record's own affair. */
static const char net[] =
    "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n"
    "layer { name: 'ip1' type: 'InnerProduct' bottom: 'data' top: 'ip1'\n"
    "  inner_product_param { num_output: 24 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'relu' type: 'ReLU' bottom: 'ip1' top: 'ip1' }\n"
    "layer { name: 'drop' type: 'Dropout' bottom: 'ip1' top: 'ip1' }\n"
    "layer { name: 'ip2' type: 'InnerProduct' bottom: 'ip1' top: 'ip2'\n"
    "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip2' bottom: 'label' top: 'loss' }\n";

struct trial {
    Paceline__Job *job;
    struct corpus corpus;
    struct workspace *ws;
    struct learner l;
    struct arena arena;
};

static void open_trial(struct trial *t, const struct tiny *tiny, const char *net_file,
                       const char *fields)
{
    char text[1024];
    struct err err = {0};
    struct logger silent = {0};
    *t = (struct trial){0};
    snprintf(text, sizeof text,
             "name: 'tiny' net { file: '%s' } threads: 2 %s "
             "train_data { idx { images: 'train-images' labels: 'train-labels' } "
             "scale: 0.00390625 } "
             "solver { base_lr: 0.05 momentum: 0.9 weight_decay: 0.001 lr_policy: 'fixed' }",
             net_file, fields);
    arena_init(&t->arena);
    if (job_parse("job", text, strlen(text), &t->job, &err) != OK ||
        job_resolve_paths(t->job, tiny->job, &err) != OK || job_finish(t->job, &err) != OK)
        fail_msg("%s", err.text);
    kernels_set_threads(1);
    if (corpus_open(t->job, NULL, &t->corpus, &err) != OK ||
        workspace_create(t->job, &t->corpus, &silent, NULL, NULL, &t->ws, &err) != OK ||
        learner_init(&t->l, NULL, t->job, &t->corpus, t->ws, &t->arena, NULL, &err) != OK)
        fail_msg("%s", err.text);
}

static void close_trial(struct trial *t)
{
    workspace_free(t->ws);
    corpus_close(&t->corpus);
    job_free(t->job);
    arena_release(&t->arena);
}

static void assert_near(const struct vec *a, const struct vec *b)
{
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++)
        if (!(fabs((double)a->at[i] - (double)b->at[i]) <= 1e-6))
            fail_msg("float %zu: %.9g and %.9g", i, (double)a->at[i], (double)b->at[i]);
}

/* The same stretch of the stream, whether it is one batch, four, or four that `local` learners
 * share; the last step is of fewer records than the others. */
static void test_iter_size_equals_one_batch(void **state)
{
    static const char *const ways[] = {"kernels: ref batch: 16 iter_size: 4",
                                       "kernels: ref batch: 16 iter_size: 4 local: 2",
                                       "kernels: ref batch: 21 iter_size: 4"};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct trial one, several;
        uint64_t offset = 0;
        open_trial(&one, *state, "drop.prototxt", "kernels: ref batch: 64");
        open_trial(&several, *state, "drop.prototxt", ways[w]);
        for (int i = 0; i < STEPS; i++) {
            size_t count = i + 1 < STEPS ? 64 : 41;
            assert_int_equal(learner_step(&one.l, offset, count), OK);
            assert_int_equal(learner_step(&several.l, offset, count), OK);
            assert_near(&one.l.dx, &several.l.dx);
            assert_near(&one.l.x, &several.l.x);
            assert_true(fabs(one.l.loss - several.l.loss) <= 1e-6);
            offset += count;
        }
        assert_int_equal(several.l.steps, STEPS);
        assert_int_equal(several.l.samples, offset);
        close_trial(&one);
        close_trial(&several);
    }
}

/* A share of a batch of all may be larger than the nets are planned for, because workers are lost
 * or memory has no room for more: it is computed in parts. */
static void test_a_large_share_equals_one_batch(void **state)
{
    static const char *const ways[] = {"kernels: ref workers: 4 global_batch: 64",
                                       "kernels: ref workers: 3 global_batch: 64 local: 2"};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct trial one, parts;
        uint64_t offset = 0;
        open_trial(&one, *state, "drop.prototxt", "kernels: ref batch: 64");
        open_trial(&parts, *state, "drop.prototxt", ways[w]);
        assert_true(parts.ws->batch == (w == 0 ? 16 : 22));
        for (size_t count = 1; count <= 64; count += 9) {
            assert_int_equal(learner_step(&one.l, offset, count), OK);
            assert_int_equal(learner_step(&parts.l, offset, count), OK);
            assert_int_equal(parts.l.taken, count);
            assert_near(&one.l.dx, &parts.l.dx);
            assert_near(&one.l.x, &parts.l.x);
            offset += count;
        }
        close_trial(&one);
        close_trial(&parts);
    }
}

/* A net that is too large for memory at the largest share is planned for a part of it; without a
 * batch of all it is refused. */
static void test_a_share_without_room_is_computed_in_parts(void **state)
{
    enum { BATCH = 32768, ROOM = 32 << 20 };
    struct trial one, t;
    struct workspace *ws = NULL;
    struct logger silent = {0};
    struct err err = {0};
    open_trial(&one, *state, "net.prototxt", "kernels: ref batch: 512");
    open_trial(&t, *state, "net.prototxt", "kernels: ref global_batch: 32768");
    size_t whole = workspace_memory(t.ws).activations, budget = memory_used() + ROOM;
    assert_true(t.ws->batch == BATCH && whole > 2 * ROOM);
    assert_int_equal(
        workspace_create_within(budget, t.job, &t.corpus, &silent, NULL, NULL, &ws, &err), OK);
    print_message("    %zu records at a time in %.1f MB, %d in %.1f MB\n", ws->batch,
                  (double)workspace_memory(ws).activations / 1e6, BATCH, (double)whole / 1e6);
    assert_true(ws->batch < BATCH && ws->batch >= 16 && BATCH % ws->batch == 0);
    assert_true(workspace_memory(ws).activations <= ROOM);
    struct learner l;
    assert_int_equal(learner_init(&l, NULL, t.job, &t.corpus, ws, &t.arena, NULL, &err), OK);
    assert_int_equal(learner_gradient(&one.l, 3, 512), OK);
    assert_int_equal(learner_gradient(&l, 3, 512), OK);
    assert_near(&one.l.dx, &l.dx);
    workspace_free(ws);
    t.job->has_global_batch = false;
    assert_int_equal(workspace_create_within(memory_used() + ROOM, t.job, &t.corpus, &silent, NULL,
                                             NULL, &ws, &err),
                     ERR_NOMEM);
    close_trial(&one);
    close_trial(&t);
}

static double distance_of(const struct vec *a, const struct vec *b)
{
    double most = 0, largest = 0;
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < b->n; i++) {
        most = fmax(most, fabs((double)a->at[i] - (double)b->at[i]));
        largest = fmax(largest, fabs((double)b->at[i]));
    }
    return most / largest;
}

/* In bf16 each batch rounds what it alone knows: gradients are those of one batch, but for sums
 * that come out on the other side of where rounding parts. To round at all moves them further. */
static void test_iter_size_equals_one_batch_in_bf16(void **state)
{
    bf16_needed();
    static const char *const ways[] = {"batch: 16 iter_size: 4", "batch: 16 iter_size: 4 local: 2"};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct trial wide, one, several;
        char fields[128];
        snprintf(fields, sizeof fields, "kernels: dnnl precision: bf16 %s", ways[w]);
        open_trial(&wide, *state, "net.prototxt", "kernels: dnnl batch: 64");
        open_trial(&one, *state, "net.prototxt", "kernels: dnnl precision: bf16 batch: 64");
        open_trial(&several, *state, "net.prototxt", fields);
        assert_int_equal(learner_gradient(&wide.l, 3, 64), OK);
        assert_int_equal(learner_gradient(&one.l, 3, 64), OK);
        assert_int_equal(learner_gradient(&several.l, 3, 64), OK);
        double near = distance_of(&several.l.dx, &one.l.dx),
               far = distance_of(&wide.l.dx, &one.l.dx);
        print_message("    %s: %.1e; of floats: %.1e\n", ways[w], near, far);
        assert_true(near <= 1e-4 && far > 1e-3);
        close_trial(&wide), close_trial(&one), close_trial(&several);
    }
}

/* Reports during a step. */
struct watched {
    const struct learner *l;
    size_t from[MARKS_MAX], count;
    float *seen; /* dx as it was when it was said to be finished */
};

static int on_finished(void *user, size_t from)
{
    struct watched *w = user;
    size_t end = w->count > 0 ? w->from[w->count - 1] : w->l->dx.n;
    assert_true(w->count < MARKS_MAX && from <= end);
    vec_export(&w->l->dx, (struct range){from, end - from}, w->seen + from);
    w->from[w->count++] = from;
    return OK;
}

/* Nobody hears of dx before the last batch, and what is told then is of the whole step. */
static void test_iter_size_reports_gradient_parts_once(void **state)
{
    struct trial plain, several;
    open_trial(&plain, *state, "drop.prototxt", "kernels: ref batch: 64");
    open_trial(&several, *state, "drop.prototxt", "kernels: ref batch: 16 iter_size: 4");
    struct watched once = {.l = &plain.l}, w = {.l = &several.l};
    once.seen = arena_array(&plain.arena, plain.l.dx.n, float);
    w.seen = arena_array(&several.arena, several.l.dx.n, float);
    plain.l.finished = several.l.finished = on_finished;
    plain.l.user = &once;
    several.l.user = &w;
    assert_int_equal(learner_gradient(&plain.l, 0, 64), OK);
    assert_int_equal(learner_gradient(&several.l, 0, 64), OK);
    assert_true(w.count >= 2);
    assert_int_equal(w.count, once.count);
    assert_memory_equal(w.from, once.from, w.count * sizeof *w.from);
    assert_int_equal(w.from[w.count - 1], 0);
    assert_memory_equal(w.seen, several.l.dx.at, several.l.dx.n * sizeof(float));
    close_trial(&plain);
    close_trial(&several);
}

static int setup(void **state)
{
    static struct tiny tiny;
    tiny_create(&tiny);
    tiny_write(&tiny, "drop.prototxt", net);
    *state = &tiny;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_iter_size_equals_one_batch),
        cmocka_unit_test(test_a_large_share_equals_one_batch),
        cmocka_unit_test(test_a_share_without_room_is_computed_in_parts),
        cmocka_unit_test(test_iter_size_equals_one_batch_in_bf16),
        cmocka_unit_test(test_iter_size_reports_gradient_parts_once),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
