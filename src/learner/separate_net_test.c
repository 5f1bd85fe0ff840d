/* Records that are tested may be of another size than those that are trained on, where the net's
 * parameters do not depend on it: Caffe's ResNets train on crops and are tested on whole images. */
#include "job/job.h"
#include "learner/learner.h"
#include "tensor/kernels.h"
#include "tiny_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* The convolution's output is averaged over the image, however large that is. */
static const char any_size[] =
    "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n"
    "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'\n"
    "  convolution_param { num_output: 6 kernel_size: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'pool' type: 'Pooling' bottom: 'conv' top: 'pool'\n"
    "  pooling_param { pool: AVE global_pooling: true } }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'pool' top: 'ip'\n"
    "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'accuracy'\n"
    "  include { phase: TEST } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";

/* Tested on two scores of three. */
static const char fewer_classes[] =
    "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'\n"
    "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss'\n"
    "  include { phase: TRAIN } }\n"
    "layer { name: 'cut' type: 'Slice' bottom: 'ip' top: 'a' top: 'b' include { phase: TEST }\n"
    "  slice_param { slice_point: 2 } }\n"
    "layer { name: 'test' type: 'SoftmaxWithLoss' bottom: 'a' bottom: 'label' top: 'loss'\n"
    "  include { phase: TEST } }\n";

/* As many scores as there are places for the kernel: 10x9 of the images, 2x1 of crops of 4. */
static const char scores_by_position[] =
    "layer { name: 'data' type: 'Input' top: 'data' top: 'label' }\n"
    "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv' convolution_param {\n"
    "  num_output: 1 kernel_h: 3 kernel_w: 4 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'flat' type: 'Flatten' bottom: 'conv' top: 'flat' }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'flat' bottom: 'label' top: 'loss' }\n";

struct trial {
    Paceline__Job *job;
    struct corpus corpus;
    struct workspace *ws;
    struct err err;
};

static int open_watched(struct trial *t, const struct tiny *tiny, const char *net,
                        const char *train, const char *test, const struct open_watch *watch)
{
    char text[1024];
    struct logger silent = {0};
    *t = (struct trial){0};
    snprintf(text, sizeof text,
             "net { file: '%s' } batch: 16 threads: 1 kernels: ref "
             "train_data { idx { images: 'train-images' labels: 'train-labels' } %s } "
             "test_data { idx { images: 'test-images' labels: 'test-labels' } %s } "
             "solver { base_lr: 0.1 lr_policy: 'fixed' }",
             net, train, test);
    if (job_parse("job", text, strlen(text), &t->job, &t->err) != OK ||
        job_resolve_paths(t->job, tiny->job, &t->err) != OK || job_finish(t->job, &t->err) != OK)
        fail_msg("%s", t->err.text);
    kernels_set_threads(1);
    int rc = corpus_open(t->job, NULL, &t->corpus, &t->err);
    return rc == OK ? workspace_create(t->job, &t->corpus, &silent, NULL, watch, &t->ws, &t->err)
                    : rc;
}

static int open_trial(struct trial *t, const struct tiny *tiny, const char *net, const char *train,
                      const char *test)
{
    return open_watched(t, tiny, net, train, test, NULL);
}

static void close_trial(struct trial *t)
{
    workspace_free(t->ws);
    corpus_close(&t->corpus);
    job_free(t->job);
}

/* The test set by the net as it is initialised. */
static struct evaluation judged_evaluation(struct trial *t)
{
    struct arena arena;
    struct vec x, s;
    struct net_result sum = {0};
    arena_init(&arena);
    assert_int_equal(vec_init(&x, &arena, net_segments(t->ws->train)->total), OK);
    assert_int_equal(vec_init(&s, &arena, net_state_segments(t->ws->train)->total), OK);
    net_init(t->ws->train, 1, &x, &s);
    const struct dataset *set = &t->corpus.set[SET_TEST];
    assert_int_equal(workspace_evaluate(t->ws, set, 0, set->count, &x, &s, &sum, &t->err), OK);
    arena_release(&arena);
    return evaluation_of(&sum);
}

static void test_separate_net_trains_on_crops(void **state)
{
    struct trial crops, whole;
    assert_int_equal(
        open_trial(&crops, *state, "any.prototxt", "scale: 0.004 crop: 8", "scale: 0.004"), OK);
    assert_int_equal(open_trial(&whole, *state, "any.prototxt", "scale: 0.004", "scale: 0.004"),
                     OK);
    assert_int_equal(crops.ws->record_floats, 64);
    assert_non_null(crops.ws->separate);
    assert_null(whole.ws->separate);
    struct evaluation a = judged_evaluation(&crops), b = judged_evaluation(&whole);
    assert_int_equal(a.count, TINY_TEST);
    assert_true(a.loss == b.loss && a.error == b.error && a.loss > 0);
    close_trial(&crops);
    close_trial(&whole);
}

static bool cancel_behind_two(void *user, const char *stage, uint64_t done, uint64_t total)
{
    (void)user;
    (void)total;
    return strcmp(stage, "nets planned") != 0 || done <= 2;
}

static void test_separate_net_may_be_cancelled(void **state)
{
    const struct open_watch watch = {NULL, cancel_behind_two};
    struct trial t;
    assert_int_equal(open_watched(&t, *state, "any.prototxt", "crop: 8", "", &watch),
                     ERR_CANCELLED);
    assert_string_equal(t.err.text, "opening was cancelled");
    close_trial(&t);
}

static void test_separate_net_of_one_size_is_refused(void **state)
{
    struct trial t;
    assert_int_equal(open_trial(&t, *state, "net.prototxt", "crop: 8", ""), ERR_INPUT);
    assert_string_equal(t.err.text,
                        "test_data: records are 1x12x12, those of train_data 1x8x8; the "
                        "net would have other parameters");
    close_trial(&t);
}

static void test_separate_net_scores_all_labels(void **state)
{
    struct trial t;
    assert_int_equal(open_trial(&t, *state, "fewer.prototxt", "", ""), ERR_INPUT);
    assert_string_equal(t.err.text,
                        "train_data: label 2 is out of range: the net in phase TEST has "
                        "2 classes; set num_output of its last layer to 3");
    close_trial(&t);
    assert_int_equal(open_trial(&t, *state, "places.prototxt", "", "crop: 4"), ERR_INPUT);
    assert_string_equal(t.err.text, "test_data: label 2 is out of range: the net for records of "
                                    "their size has 2 classes; set num_output of its last layer to "
                                    "3");
    close_trial(&t);
}

/* Label i of the file is i modulo `classes`. */
static void put_labels(const struct tiny *tiny, const char *name, uint32_t count, uint32_t classes)
{
    FILE *f = tiny_open(tiny, name);
    tiny_put_be32(f, 0x801);
    tiny_put_be32(f, count);
    for (uint32_t i = 0; i < count; i++)
        fputc((int)(i % classes), f);
    fclose(f);
}

/* Records to train on need not show every class that the net has. */
static void test_separate_net_bounds_the_labels(void **state)
{
    (void)state;
    struct tiny tiny;
    struct trial t;
    tiny_create(&tiny);
    put_labels(&tiny, "train-labels", TINY_TRAIN, TINY_CLASSES - 1);
    assert_int_equal(open_trial(&t, &tiny, "net.prototxt", "", ""), OK);
    assert_true(judged_evaluation(&t).count == TINY_TEST);
    close_trial(&t);
    put_labels(&tiny, "test-labels", TINY_TEST, TINY_CLASSES + 1);
    assert_int_equal(open_trial(&t, &tiny, "net.prototxt", "", ""), ERR_INPUT);
    assert_string_equal(t.err.text, "test_data: label 3 is out of range: the net has 3 classes; "
                                    "set num_output of its last layer to 4");
    close_trial(&t);
    tiny_remove(&tiny);
}

static int setup(void **state)
{
    static struct tiny tiny;
    tiny_create(&tiny);
    tiny_write(&tiny, "any.prototxt", any_size);
    tiny_write(&tiny, "fewer.prototxt", fewer_classes);
    tiny_write(&tiny, "places.prototxt", scores_by_position);
    *state = &tiny;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_separate_net_trains_on_crops),
        cmocka_unit_test(test_separate_net_may_be_cancelled),
        cmocka_unit_test(test_separate_net_of_one_size_is_refused),
        cmocka_unit_test(test_separate_net_scores_all_labels),
        cmocka_unit_test(test_separate_net_bounds_the_labels),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
