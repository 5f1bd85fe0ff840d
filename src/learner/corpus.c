#include "learner/corpus.h"

#include "base/file.h"
#include "base/hash.h"

#include <stdlib.h>

const char *corpus_set_name(enum corpus_set set)
{
    static const char *const names[SET_COUNT] = {"train", "validation", "test"};
    return names[set];
}

/* Keep one part of a set that holds all records of its source. */
static int keep_part(struct dataset *set, struct part part, struct err *err)
{
    uint64_t n = set->count;
    if (part.index >= part.of)
        return err_set(err, ERR_INPUT, "part %u of %u: they are counted from 0", part.index,
                       part.of);
    size_t from = (size_t)(n * part.index / part.of);
    size_t to = (size_t)(n * ((uint64_t)part.index + 1) / part.of);
    if (from == to)
        return err_set(err, ERR_INPUT, "part %u of %u: holds none of %zu records", part.index,
                       part.of, set->count);
    if (to - from == set->count)
        return OK;
    set->choice = malloc((to - from) * sizeof *set->choice);
    if (!set->choice)
        return err_set(err, ERR_NOMEM, "part %u of %u: out of memory", part.index, part.of);
    for (size_t i = from; i < to; i++)
        set->choice[i - from] = (uint32_t)i;
    set->count = to - from;
    return OK;
}

int corpus_make(const struct source *source, const Paceline__Data *spec, struct part part,
                struct dataset *out, struct err *err)
{
    struct dataset set;
    int rc = dataset_init(&set, source, spec, err);
    if (rc != OK)
        return rc;
    rc = keep_part(&set, part, err);
    if (rc != OK) {
        dataset_release(&set);
        return rc;
    }
    *out = set;
    return OK;
}

void corpus_put(struct corpus *corpus, enum corpus_set which, const struct dataset *set)
{
    dataset_release(&corpus->set[which]);
    corpus->set[which] = *set;
}

static int open_set(const char *root, struct corpus *corpus, enum corpus_set which,
                    const char *field, const Paceline__Data *spec, struct source **source,
                    struct err *err)
{
    struct dataset set;
    int rc =
        spec->mean_file && spec->mean_file[0] ? file_check_under(root, spec->mean_file, err) : OK;
    if (rc == OK)
        rc = source_open_under(root, spec, which == SET_TRAIN ? SOURCE_TRAIN : SOURCE_TEST, source,
                               err);
    if (rc == OK)
        rc = corpus_make(*source, spec, (struct part){0, 1}, &set, err);
    if (rc == OK)
        corpus_put(corpus, which, &set);
    else
        err_prefix(err, "%s", field);
    return rc;
}

static int check_test(const struct corpus *corpus, struct err *err)
{
    const struct dataset *train = &corpus->set[SET_TRAIN], *test = &corpus->set[SET_TEST];
    /* Whether records may be of another size, and their labels, is up to the net: workspace.c */
    bool images = train->shape.n == 3 && test->shape.n == 3;
    if (images ? train->shape.dim[0] != test->shape.dim[0]
               : !shape_equal(&train->shape, &test->shape)) {
        char a[64], b[64];
        return err_set(err, ERR_INPUT, "test_data: records are %s, those of train_data %s",
                       shape_text(&test->shape, a, sizeof a),
                       shape_text(&train->shape, b, sizeof b));
    }
    return OK;
}

int corpus_open(const Paceline__Job *job, struct corpus *out, struct err *err)
{
    return corpus_open_under(NULL, job, out, err);
}

int corpus_open_under(const char *root, const Paceline__Job *job, struct corpus *out,
                      struct err *err)
{
    struct corpus corpus = {0};
    int rc = open_set(root, &corpus, SET_TRAIN, "train_data", job->train_data, &corpus.train_source,
                      err);
    if (rc == OK)
        rc = dataset_split(&corpus.set[SET_TRAIN], job->validation, job->seed,
                           &corpus.set[SET_VALIDATION], err);
    if (rc == OK && job->test_data)
        rc = open_set(root, &corpus, SET_TEST, "test_data", job->test_data, &corpus.test_source,
                      err);
    if (rc == OK && job->test_data)
        rc = check_test(&corpus, err);
    if (rc != OK) {
        corpus_close(&corpus);
        return rc;
    }
    corpus.hash = hash_mix(0, dataset_hash(&corpus.set[SET_TRAIN]));
    if (corpus.test_source)
        corpus.hash = hash_mix(corpus.hash, dataset_hash(&corpus.set[SET_TEST]));
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
