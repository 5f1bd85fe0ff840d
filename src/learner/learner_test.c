/* A learner learns: a few steps with every optimizer, on the tiny net and on LeNet, and the loss is
 * well below where it began. */
#include "job/job.h"
#include "learner/learner.h"
#include "tensor/kernels.h"
#include "tiny_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SIDE = 28, BIG_TRAIN = 96 };

static const char *const solvers[] = {
    "type: 'SGD' base_lr: 0.02 momentum: 0.9",
    "type: 'Nesterov' base_lr: 0.02 momentum: 0.9",
    "type: 'AdaGrad' base_lr: 0.01",
    "type: 'RMSProp' base_lr: 0.002 rms_decay: 0.9",
    "type: 'AdaDelta' base_lr: 0.2 momentum: 0.9 delta: 1e-4",
    "type: 'Adam' base_lr: 0.002 momentum: 0.9",
    "type: 'AdamW' base_lr: 0.002",
};

enum { SOLVERS = sizeof solvers / sizeof *solvers };

/* LeNet's size of image; class c is a bright bar in row 2c + 4, the rest is noise. */
static void write_big_set(const struct tiny *t)
{
    FILE *images = tiny_open(t, "big-images"), *labels = tiny_open(t, "big-labels");
    const uint32_t head[] = {0x803, BIG_TRAIN, SIDE, SIDE};
    for (size_t i = 0; i < 4; i++)
        tiny_put_be32(images, head[i]);
    tiny_put_be32(labels, 0x801);
    tiny_put_be32(labels, BIG_TRAIN);
    for (uint32_t i = 0; i < BIG_TRAIN; i++) {
        fputc((int)(i % 10), labels);
        for (uint32_t k = 0; k < SIDE * SIDE; k++)
            fputc((int)rng_below(3, i, k, 60) + (k / SIDE == 2 * (i % 10) + 4 ? 190 : 0), images);
    }
    fclose(images);
    fclose(labels);
}

static Paceline__Job *make_job(const struct tiny *t, const char *format, const char *set,
                               const char *solver)
{
    char text[1024];
    Paceline__Job *job = NULL;
    struct err err = {0};
    int n = snprintf(text, sizeof text, format, t->folder, set, t->folder, set, solver);
    assert_in_range(n, 1, sizeof text - 1);
    if (job_parse("job", text, (size_t)n, &job, &err) != OK ||
        job_resolve_paths(job, t->job, &err) != OK || job_finish(job, &err) != OK)
        fail_msg("%s", err.text);
    return job;
}

static double mean_loss(struct learner *l, uint64_t *offset, int steps)
{
    double sum = 0;
    for (int i = 0; i < steps; i++, *offset += l->job->batch) {
        assert_int_equal(learner_step(l, *offset, l->job->batch), OK);
        sum += l->loss;
    }
    return sum / steps;
}

static void expect_learning(const Paceline__Job *job, int steps, double share)
{
    struct corpus corpus = {0};
    struct workspace *ws = NULL;
    struct learner l;
    struct arena arena;
    struct err err = {0};
    struct logger silent = {0};
    uint64_t offset = 0;
    arena_init(&arena);
    kernels_set_threads((int)job->threads);
    if (corpus_open(job, NULL, &corpus, &err) != OK ||
        workspace_create(job, &corpus, &silent, NULL, NULL, &ws, &err) != OK ||
        learner_init(&l, NULL, job, &corpus, ws, &arena, NULL, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(l.optim.updates, 0);
    double first = mean_loss(&l, &offset, 2);
    mean_loss(&l, &offset, steps - 6);
    double last = mean_loss(&l, &offset, 4);
    print_message("    %s: %s, loss %.3f, then %.3f\n", job->name, job->solver->type, first, last);
    assert_true(last < share * first);
    assert_int_equal(l.optim.updates, steps);
    workspace_free(ws);
    corpus_close(&corpus);
    arena_release(&arena);
}

static void test_learner_tiny_net_with_every_optimizer(void **state)
{
    static const char format[] =
        "name: 'tiny' net { file: 'net.prototxt' } batch: 16 threads: 1 kernels: ref "
        "train_data { idx { images: '%s/%s-images' labels: '%s/%s-labels' } scale: 0.00390625 } "
        "solver { %s lr_policy: 'fixed' }";
    for (size_t i = 0; i < SOLVERS; i++) {
        Paceline__Job *job = make_job(*state, format, "train", solvers[i]);
        expect_learning(job, 180, 0.8);
        job_free(job);
    }
}

static void test_learner_lenet_with_every_optimizer(void **state)
{
    static const char format[] =
        "name: 'lenet' net { zoo: 'lenet' } batch: 8 threads: 1 "
        "train_data { idx { images: '%s/%s-images' labels: '%s/%s-labels' } scale: 0.00390625 } "
        "solver { %s lr_policy: 'fixed' }";
    for (size_t i = 0; i < SOLVERS; i++) {
        Paceline__Job *job = make_job(*state, format, "big", solvers[i]);
        expect_learning(job, 12, 0.8);
        job_free(job);
    }
}

static int setup(void **state)
{
    static struct tiny tiny;
    tiny_create(&tiny);
    write_big_set(&tiny);
    *state = &tiny;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learner_tiny_net_with_every_optimizer),
        cmocka_unit_test(test_learner_lenet_with_every_optimizer),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
