/* A learner fed with pictures of many sizes: it learns, evaluating draws nothing, and a picture
 * that turns out broken while training is an error that names it. */
#include "job/job.h"
#include "learner/learner.h"
#include "pictures.h"
#include "tensor/kernels.h"

enum { PICTURES = 48, BATCH = 16 };

struct stage {
    struct folder folder;
    Paceline__Job *job;
    struct corpus corpus;
    struct workspace *ws;
    struct arena arena;
    struct learner learner;
};

/* Class 0 is dark above, class 1 below; pictures differ in size and kind. */
static void put_picture(const struct folder *f, unsigned i)
{
    static uint8_t pixels[3 * 64 * 64];
    char name[32];
    unsigned H = 20 + i % 7, W = 20 + i % 5;
    for (unsigned y = 0; y < H; y++)
        for (unsigned x = 0; x < 3 * W; x++)
            pixels[y * 3 * W + x] = (uint8_t)(((y < H / 2) == (i % 2 == 0) ? 40 : 180) + x % 20);
    snprintf(name, sizeof name, "%u/%02u", i % 2, i);
    if (i % 3 == 0)
        picture_put_png(f, name, pixels, H, W, PNG_COLOR_TYPE_RGB, 8, 3 * W, false);
    else
        picture_put_jpeg(f, name, pixels, H, W, 3, 90);
}

static const char text[] =
    "name: 'pictures' batch: 16 threads: 1 kernels: ref validation: 8 "
    "net { define { "
    "  layer { name: 'data' type: 'Data' top: 'data' top: 'label' } "
    "  layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' "
    "    inner_product_param { num_output: 2 weight_filler { type: 'xavier' } } } "
    "  layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'accuracy' "
    "    include { phase: TEST } } "
    "  layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' } "
    "} } "
    "train_data { images { list: 'p' } resize: 14 crop: 10 pad: 1 mirror: true "
    "  mean: 110 scale: 0.01 } "
    "solver { base_lr: 0.05 lr_policy: 'fixed' }";

static int setup(void **state)
{
    struct stage *s = calloc(1, sizeof *s);
    assert_non_null(s);
    char path[256];
    struct err err = {0};
    folder_make(&s->folder);
    struct folder pictures;
    snprintf(pictures.path, sizeof pictures.path, "%.50s/p", s->folder.path);
    mkdir(pictures.path, 0700);
    mkdir(folder_file(&pictures, "0", path), 0700);
    mkdir(folder_file(&pictures, "1", path), 0700);
    for (unsigned i = 0; i < PICTURES; i++)
        put_picture(&pictures, i);
    arena_init(&s->arena);
    kernels_set_threads(1);
    if (job_parse("job", text, strlen(text), &s->job, &err) != OK ||
        job_resolve_paths(s->job, folder_file(&s->folder, "a.job", path), &err) != OK ||
        job_finish(s->job, &err) != OK || corpus_open(s->job, NULL, &s->corpus, &err) != OK ||
        workspace_create(s->job, &s->corpus, NULL, NULL, NULL, &s->ws, &err) != OK ||
        learner_init(&s->learner, NULL, s->job, &s->corpus, s->ws, &s->arena, NULL, &err) != OK)
        fail_msg("%s", err.text);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct stage *s = *state;
    workspace_free(s->ws);
    corpus_close(&s->corpus);
    arena_release(&s->arena);
    job_free(s->job);
    folder_remove(&s->folder);
    free(s);
    return 0;
}

static struct evaluation evaluate_set(struct stage *s, enum corpus_set which)
{
    struct net_result sum = {0};
    struct err err;
    const struct dataset *set = &s->corpus.set[which];
    if (workspace_evaluate(s->ws, set, 0, set->count, &s->learner.x, &s->learner.s, &sum, &err) !=
        OK)
        fail_msg("%s", err.text);
    return evaluation_of(&sum);
}

static void test_it_learns(void **state)
{
    struct stage *s = *state;
    assert_int_equal(s->corpus.set[SET_VALIDATION].count, 8);
    assert_int_equal(shape_count(&s->corpus.set[SET_TRAIN].shape), 300);
    double before = evaluate_set(s, SET_TRAIN).loss;
    assert_true(before == evaluate_set(s, SET_TRAIN).loss); /* nothing is drawn */
    for (uint64_t i = 0; i < 60; i++)
        assert_int_equal(learner_step(&s->learner, i * BATCH, BATCH), OK);
    assert_true(evaluate_set(s, SET_TRAIN).loss < 0.5 * before);
    assert_true(evaluate_set(s, SET_VALIDATION).error == 0);
}

/* The header was well when the folder was opened. */
static void test_a_picture_that_breaks(void **state)
{
    struct stage *s = *state;
    char path[256];
    int failed = 0, fine = 0;
    FILE *file = fopen(folder_file(&s->folder, "p/1/07", path), "r+b");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    long n = ftell(file);
    fseek(file, n - 60, SEEK_SET);
    for (int k = 0; k < 60; k++)
        fputc(0xff, file);
    fclose(file);
    size_t all = s->corpus.set[SET_TRAIN].count;
    for (uint64_t offset = 0; offset < all; offset += 4) {
        int rc = learner_gradient(&s->learner, offset, 4);
        failed += rc == ERR_INPUT;
        fine += rc == OK;
        if (rc == ERR_INPUT) {
            assert_int_equal(s->learner.err.status, ERR_INPUT);
            assert_non_null(strstr(s->learner.err.text, "p/1/07: JPEG: "));
        }
    }
    struct net_result sum = {0};
    struct err err = {0};
    for (enum corpus_set which = SET_TRAIN; which <= SET_VALIDATION; which++) {
        const struct dataset *set = &s->corpus.set[which];
        failed += workspace_evaluate(s->ws, set, 0, set->count, &s->learner.x, &s->learner.s, &sum,
                                     &err) == ERR_INPUT;
    }
    assert_non_null(strstr(err.text, "p/1/07: JPEG: "));
    assert_true(fine >= (int)all / 4 - 1);
    assert_true(failed == 1 || failed == 2); /* held out; or trained on and evaluated */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_it_learns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_picture_that_breaks, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
