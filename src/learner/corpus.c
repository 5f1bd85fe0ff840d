#include "learner/corpus.h"

#include "base/hash.h"

const char *corpus_set_name(enum corpus_set set)
{
    static const char *const names[SET_COUNT] = {"train", "validation", "test"};
    return names[set];
}

static int open_test(const Paceline__Job *job, struct corpus *corpus, struct err *err)
{
    int rc = source_open(job->test_data, &corpus->test_source, err);
    if (rc != OK) {
        err_prefix(err, "test_data");
        return rc;
    }
    const struct source *train = corpus->train_source, *test = corpus->test_source;
    if (!shape_equal(&train->shape, &test->shape)) {
        char a[64], b[64];
        return err_set(err, ERR_INPUT, "test_data: records are %s, those of train_data %s",
                       shape_text(&test->shape, a, sizeof a),
                       shape_text(&train->shape, b, sizeof b));
    }
    if (test->classes > train->classes)
        return err_set(err, ERR_INPUT,
                       "test_data: label %u is out of range: train_data has %u classes",
                       test->classes - 1, train->classes);
    return dataset_init(&corpus->set[SET_TEST], test, job->test_data, err);
}

int corpus_open(const Paceline__Job *job, struct corpus *out, struct err *err)
{
    struct corpus corpus = {0};
    int rc = source_open(job->train_data, &corpus.train_source, err);
    if (rc != OK) {
        err_prefix(err, "train_data");
        return rc;
    }
    rc = dataset_init(&corpus.set[SET_TRAIN], corpus.train_source, job->train_data, err);
    if (rc == OK)
        rc = dataset_split(&corpus.set[SET_TRAIN], job->validation, job->seed,
                           &corpus.set[SET_VALIDATION], err);
    if (rc == OK && job->test_data)
        rc = open_test(job, &corpus, err);
    if (rc != OK) {
        corpus_close(&corpus);
        return rc;
    }
    corpus.hash = hash_mix(0, corpus.train_source->hash);
    if (corpus.test_source)
        corpus.hash = hash_mix(corpus.hash, corpus.test_source->hash);
    *out = corpus;
    return OK;
}

void corpus_close(struct corpus *corpus)
{
    for (int i = 0; i < SET_COUNT; i++)
        dataset_release(&corpus->set[i]);
    if (corpus->train_source)
        source_close(corpus->train_source);
    if (corpus->test_source)
        source_close(corpus->test_source);
    *corpus = (struct corpus){0};
}
