/* Twenty whole steps (changing records, loss, weight decay, momentum, update) by the fast kernels,
 * chosen by rule and by timing, end at the weights that the reference kernels end at, to 1e-4.
 *
 * The rate is a small one. The kernels agree to some 1e-7, but two values that are that near, in a
 * window of max pooling or around a ReLU's zero, may change places, and send a gradient to another
 * weight; ten times the rate, ten times what that is worth. */
#include "bf16_needed.h"
#include "data/source_random.h"
#include "job/job.h"
#include "learner/learner.h"
#include "sweep_stride.h"
#include "tensor/tuner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { STEPS = 20 / SWEEP_STRIDE(5, 5), CLASSES = 10 };

#define TOLERANCE 1e-4

/* In bf16: of the way that the weights have gone, and of the loss. A gradient is some 3 % from that
 * of floats, for the most part by values that change sides at a ReLU's zero; they add up, and more
 * so where weights begin as narrow as cifar10-quick's. */
#define TOLERANCE_BF16 0.25
#define LOSS_BF16      0.001

struct run {
    Paceline__Job *job;
    struct corpus corpus;
    struct workspace *ws;
    struct learner l;
    struct arena arena;
    float *first; /* the weights that it begins with */
};

static void train_net(struct run *r, const char *zoo, const struct shape *record, size_t batch,
                      const char *options, struct tuner *tuner)
{
    char text[512];
    struct err err = {0};
    struct logger silent = {0};
    const Paceline__Data plain = PACELINE__DATA__INIT;
    struct dataset set;
    *r = (struct run){0};
    snprintf(text, sizeof text,
             "net { zoo: '%s' } threads: 1 %s batch: %zu strategy { single {} } "
             "train_data { cifar10 { path: 'none' } } "
             "solver { base_lr: 0.001 momentum: 0.9 weight_decay: 0.0005 lr_policy: 'fixed' }",
             zoo, options, batch);
    arena_init(&r->arena);
    kernels_set_threads(1);
    if (job_parse("job", text, strlen(text), &r->job, &err) != OK ||
        job_finish(r->job, &err) != OK ||
        workspace_plan(r->job, record, NULL, &silent, tuner, &r->ws, &err) != OK ||
        source_random_open(record, CLASSES, 7, &r->corpus.train_source, &err) != OK ||
        corpus_make(r->corpus.train_source, &plain, (struct part){0, 1}, &set, &err) != OK)
        fail_msg("%s: %s", zoo, err.text);
    corpus_put(&r->corpus, SET_TRAIN, &set);
    if (workspace_feed(r->ws, r->job, &r->corpus.set[SET_TRAIN], &err) != OK ||
        learner_init(&r->l, NULL, r->job, &r->corpus, r->ws, &r->arena, NULL, &err) != OK)
        fail_msg("%s: %s", zoo, err.text);
    r->first = arena_array(&r->arena, r->l.x.n, float);
    assert_non_null(r->first);
    vec_export(&r->l.x, vec_all(&r->l.x), r->first);
    for (size_t i = 0; i < STEPS; i++)
        assert_int_equal(learner_step(&r->l, i * batch, batch), OK);
}

static void end_run(struct run *r)
{
    workspace_free(r->ws);
    corpus_close(&r->corpus);
    job_free(r->job);
    arena_release(&r->arena);
}

static int64_t clock_now(void *user)
{
    struct timespec t;
    (void)user;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void compare_runs(const char *zoo, const char *what, const struct run *a,
                         const struct run *b)
{
    double most = 0;
    assert_int_equal(a->l.x.n, b->l.x.n);
    for (size_t i = 0; i < a->l.x.n; i++)
        most = fmax(most, fabs((double)a->l.x.at[i] - (double)b->l.x.at[i]));
    print_message("    %s, %s: largest difference %.1e\n", zoo, what, most);
    if (!(most <= TOLERANCE))
        fail_msg("%s, %s: weights differ by %g", zoo, what, most);
}

static void same_weights(const char *zoo, size_t channels, size_t side, size_t batch)
{
    const struct shape record = {3, {channels, side, side}};
    struct run ref, rule, timed;
    struct tuner *tuner = tuner_create(&(struct tuner_host){.now = clock_now});
    assert_non_null(tuner);
    train_net(&ref, zoo, &record, batch, "kernels: ref", NULL);
    train_net(&rule, zoo, &record, batch, "kernels: dnnl", NULL);
    train_net(&timed, zoo, &record, batch, "kernels: dnnl", tuner);
    assert_true(ref.l.loss > 0 && isfinite(ref.l.loss));
    compare_runs(zoo, "by rule", &ref, &rule);
    compare_runs(zoo, "timed", &ref, &timed);
    end_run(&ref), end_run(&rule), end_run(&timed);
    tuner_free(tuner);
}

static void test_twenty_steps_of_lenet(void **state)
{
    (void)state;
    same_weights("lenet", 1, 28, 32);
}

static void test_twenty_steps_of_quick(void **state)
{
    (void)state;
    same_weights("cifar10-quick", 3, 32, 16);
}

static void test_twenty_steps_of_resnet(void **state)
{
    (void)state;
    same_weights("resnet-20", 3, 32, 8);
}

/* ---- in bf16 ---- */

static double distance_of(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum);
}

/* With images rounded to 8 bits the weights go nearly the same way. */
static void same_way(const char *zoo, size_t channels, size_t side, size_t batch)
{
    const struct shape record = {3, {channels, side, side}};
    struct run wide, half;
    bf16_needed();
    train_net(&wide, zoo, &record, batch, "kernels: dnnl", NULL);
    train_net(&half, zoo, &record, batch, "kernels: dnnl precision: bf16", NULL);
    size_t n = wide.l.x.n;
    assert_int_equal(half.l.x.n, n);
    assert_memory_equal(half.first, wide.first, n * sizeof *wide.first);
    double way = distance_of(wide.l.x.at, wide.first, n);
    double distance = distance_of(wide.l.x.at, half.l.x.at, n);
    double loss = fabs(half.l.loss / wide.l.loss - 1);
    print_message("    %s: %.2g of the way apart, losses %.2g\n", zoo, distance / way, loss);
    if (!(distance > 0 && distance <= TOLERANCE_BF16 * way && loss <= LOSS_BF16))
        fail_msg("%s: weights are %g of the way apart, losses %g", zoo, distance / way, loss);
    end_run(&wide), end_run(&half);
}

static void test_twenty_steps_of_lenet_in_bf16(void **state)
{
    (void)state;
    same_way("lenet", 1, 28, 32);
}

static void test_twenty_steps_of_quick_in_bf16(void **state)
{
    (void)state;
    same_way("cifar10-quick", 3, 32, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_twenty_steps_of_lenet),
        cmocka_unit_test(test_twenty_steps_of_quick),
        cmocka_unit_test(test_twenty_steps_of_resnet),
        cmocka_unit_test(test_twenty_steps_of_lenet_in_bf16),
        cmocka_unit_test(test_twenty_steps_of_quick_in_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
