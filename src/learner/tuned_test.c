/* A tuner's effect on a learner's net: on every operation where it is given, on none where a job is
 * deterministic. */
#include "job/job.h"
#include "learner/learner.h"
#include "nn/summary.h"
#include "tensor/tuner.h"
#include "tiny_job.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { STEPS = 3, BATCH = 24 };

struct trial {
    Paceline__Job *job;
    struct corpus corpus;
    struct workspace *ws;
    struct learner l;
    struct arena arena;
};

static void open_data(struct trial *t, const struct tiny *tiny, bool deterministic)
{
    char text[1024];
    struct err err = {0};
    *t = (struct trial){0};
    snprintf(text, sizeof text,
             "name: 'tiny' net { file: 'net.prototxt' } threads: 1 kernels: dnnl batch: %d "
             "deterministic: %s train_data { idx { images: 'train-images' labels: 'train-labels' } "
             "scale: 0.00390625 } "
             "solver { base_lr: 0.05 momentum: 0.9 weight_decay: 0.001 lr_policy: 'fixed' }",
             BATCH, deterministic ? "true" : "false");
    arena_init(&t->arena);
    if (job_parse("job", text, strlen(text), &t->job, &err) != OK ||
        job_resolve_paths(t->job, tiny->job, &err) != OK || job_finish(t->job, &err) != OK)
        fail_msg("%s", err.text);
    kernels_set_threads(1);
    if (corpus_open(t->job, NULL, &t->corpus, &err) != OK)
        fail_msg("%s", err.text);
}

static void open_trial(struct trial *t, const struct tiny *tiny, bool deterministic,
                       struct tuner *tuner)
{
    struct err err = {0};
    struct logger silent = {0};
    open_data(t, tiny, deterministic);
    if (workspace_create(t->job, &t->corpus, &silent, tuner, NULL, &t->ws, &err) != OK ||
        learner_init(&t->l, NULL, t->job, &t->corpus, t->ws, &t->arena, NULL, &err) != OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(learner_step(&t->l, (uint64_t)i * BATCH, BATCH), OK);
}

static void close_trial(struct trial *t)
{
    workspace_free(t->ws);
    corpus_close(&t->corpus);
    job_free(t->job);
    arena_release(&t->arena);
}

static const char *choice_of(const struct trial *t)
{
    for (size_t i = 0; i < net_layer_count(t->ws->train); i++) {
        struct layer_summary layer = net_layer_at(t->ws->train, i);
        if (strcmp(layer.type, "Convolution") == 0)
            return layer.chosen;
    }
    fail_msg("there is no convolution");
    return NULL;
}

static int64_t no_clock(void *user)
{
    (void)user;
    fail_msg("something was timed");
    return 0;
}

static int64_t counting_clock(void *user)
{
    int64_t *looks = user;
    return 1000 * ++*looks;
}

/* Neither timed nor changed by what a file says. */
static void test_tuned_deterministic_job_keeps_its_bits(void **state)
{
    struct trial plain, given;
    int64_t looks = 0;
    struct trial any;
    struct buf text = {0};
    struct tuner *source =
        tuner_create(&(struct tuner_host){.now = counting_clock, .keep = NULL, .user = &looks});
    struct tuner *tuner = tuner_create(&(struct tuner_host){.now = no_clock});
    open_trial(&any, *state, false, source); /* fills the table with keys of this net */
    assert_int_equal(tuner_text(source, &text), OK);
    assert_true(tuner_load(tuner, (char *)text.data, text.len) > 0);
    open_trial(&plain, *state, true, NULL);
    open_trial(&given, *state, true, tuner);
    assert_non_null(strstr(choice_of(&given), "in slices"));
    assert_string_equal(choice_of(&plain), choice_of(&given));
    assert_int_equal(plain.l.x.n, given.l.x.n);
    assert_memory_equal(plain.l.x.at, given.l.x.at, plain.l.x.n * sizeof(float));
    buf_release(&text);
    tuner_free(source), tuner_free(tuner);
    close_trial(&any), close_trial(&plain), close_trial(&given);
}

static void test_tuned_job_is_timed_once(void **state)
{
    struct trial first, second, rule;
    int64_t looks = 0;
    struct tuner *tuner =
        tuner_create(&(struct tuner_host){.now = counting_clock, .keep = NULL, .user = &looks});
    open_trial(&first, *state, false, tuner);
    assert_true(looks > 0);
    assert_null(strstr(choice_of(&first), "in slices"));
    int64_t after = looks;
    open_trial(&second, *state, false, tuner);
    assert_int_equal(looks, after);
    assert_string_equal(choice_of(&first), choice_of(&second));
    assert_memory_equal(first.l.x.at, second.l.x.at, first.l.x.n * sizeof(float));
    open_trial(&rule, *state, true, NULL);
    for (size_t i = 0; i < rule.l.x.n; i++)
        assert_true(fabs((double)rule.l.x.at[i] - (double)first.l.x.at[i]) <= 1e-5);
    tuner_free(tuner);
    close_trial(&first), close_trial(&second), close_trial(&rule);
}

static void count_news(void *user, struct tuner *tuner, const struct tuner_news *news)
{
    (void)tuner;
    *(int64_t *)user += 1000000 * (int64_t)news->timed;
}

/* Also what a net is planned for that keeps another blob is stored. */
static void test_tuned_replanned_net_keeps_choices(void **state)
{
    struct trial t;
    struct err err = {0};
    int64_t looks = 0;
    struct tuner *tuner = tuner_create(
        &(struct tuner_host){.now = counting_clock, .keep = count_news, .user = &looks});
    open_trial(&t, *state, false, NULL);
    t.ws->tuner = tuner;
    if (workspace_keep(t.ws, t.job, "conv", &err) != OK)
        fail_msg("%s", err.text);
    assert_true(looks >= 1000000);
    close_trial(&t);
    tuner_free(tuner);
}

/* The events of a planning, and the number of timings after which it is cancelled. */
struct onlooker {
    uint64_t nets, timings, most;
};

static bool look_on(void *user, const char *stage, uint64_t done, uint64_t total)
{
    struct onlooker *o = user;
    assert_int_equal(total, 0);
    if (strcmp(stage, "nets planned") == 0) {
        assert_true(done > o->nets);
        o->nets = done;
        return o->timings < o->most;
    }
    assert_string_equal(stage, "kernel timings");
    assert_true(done > o->timings);
    o->timings = done;
    return done < o->most;
}

static void test_planning_is_watched_and_can_be_ended(void **state)
{
    struct trial t;
    struct err err = {0};
    struct logger silent = {0};
    int64_t looks = 0;
    struct tuner *tuner = tuner_create(
        &(struct tuner_host){.now = counting_clock, .keep = count_news, .user = &looks});
    struct onlooker o = {.most = 2};
    const struct open_watch watch = {&o, look_on};
    open_data(&t, *state, false);
    assert_int_equal(workspace_create(t.job, &t.corpus, &silent, tuner, &watch, &t.ws, &err),
                     ERR_CANCELLED);
    assert_int_equal(o.timings, 2);
    assert_true(looks < 1000000); /* nothing is kept of what was not finished */
    o = (struct onlooker){.most = UINT64_MAX, .timings = o.timings};
    assert_int_equal(workspace_create(t.job, &t.corpus, &silent, tuner, &watch, &t.ws, &err), OK);
    assert_true(o.timings > 2 && o.nets >= 2 && looks >= 1000000);
    close_trial(&t);
    tuner_free(tuner);
}

/* As a batch that memory has no room for, or records of another size. */
static void test_what_does_not_fit_is_refused_before_timing(void **state)
{
    struct trial t;
    struct err err = {0};
    struct logger silent = {0};
    struct tuner *tuner = tuner_create(&(struct tuner_host){.now = no_clock});
    open_data(&t, *state, false);
    uint32_t classes = t.corpus.set[SET_TRAIN].source->classes;
    struct source *source = (struct source *)(uintptr_t)t.corpus.set[SET_TRAIN].source;
    source->classes = 1000;
    assert_int_equal(workspace_create(t.job, &t.corpus, &silent, tuner, NULL, &t.ws, &err),
                     ERR_INPUT);
    assert_non_null(strstr(err.text, "label 999 is out of range"));
    source->classes = classes;
    t.job->batch = UINT32_MAX / 2;
    assert_int_equal(workspace_create(t.job, &t.corpus, &silent, tuner, NULL, &t.ws, &err),
                     ERR_NOMEM);
    close_trial(&t);
    tuner_free(tuner);
}

static int make_tiny(void **state)
{
    static struct tiny tiny;
    *state = &tiny;
    tiny_create(&tiny);
    return 0;
}

static int remove_tiny(void **state)
{
    tiny_remove(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tuned_replanned_net_keeps_choices),
        cmocka_unit_test(test_tuned_deterministic_job_keeps_its_bits),
        cmocka_unit_test(test_tuned_job_is_timed_once),
        cmocka_unit_test(test_planning_is_watched_and_can_be_ended),
        cmocka_unit_test(test_what_does_not_fit_is_refused_before_timing),
    };
    return cmocka_run_group_tests(tests, make_tiny, remove_tiny);
}
