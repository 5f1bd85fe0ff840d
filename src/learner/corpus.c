#include "learner/corpus.h"

#include "base/hash.h"
#include "data/record_cache.h"
#include "data/source_text.h"
#include "job/job.h"
#include "job/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static int open_set(const struct source_config *config, struct corpus *corpus,
                    enum corpus_set which, const char *field, const Paceline__Data *spec,
                    struct source **source, struct err *err)
{
    struct dataset set;
    int rc = source_open_with(config, spec, source, err);
    struct source **cached = &corpus->cached[which == SET_TEST];
    if (rc == OK && config->cache && record_cache_serves(*source))
        rc = source_cached(*source, config->cache, cached, err);
    if (rc == OK)
        rc = corpus_make(*cached ? *cached : *source, spec, (struct part){0, 1}, &set, err);
    if (rc == OK) {
        set.bad = config->bad;
        set.of = config->of;
        corpus_put(corpus, which, &set);
    } else if (rc != ERR_CANCELLED) {
        err_prefix(err, "%s", field);
    }
    return rc;
}

static int check_test(const struct corpus *corpus, struct err *err)
{
    const struct dataset *train = &corpus->set[SET_TRAIN], *test = &corpus->set[SET_TEST];
    /* Whether records may be of another size, and their labels, is up to the net: workspace.h */
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

int corpus_open(const Paceline__Job *job, const struct open_watch *watch, struct corpus *out,
                struct err *err)
{
    return corpus_open_with(&(struct source_config){.watch = watch}, job, out, err);
}

/* Test data has the columns and the vocabulary of the training data. */
static int open_test(const struct source_config *config, const Paceline__Job *job,
                     struct corpus *corpus, struct err *err)
{
    Paceline__Data *spec = (Paceline__Data *)text_copy(&job->test_data->base);
    if (!spec)
        return err_set(err, ERR_NOMEM, "test_data: out of memory");
    int rc = source_settle(corpus->train_source, spec, err);
    if (rc == OK)
        rc = open_set(config, corpus, SET_TEST, "test_data", spec, &corpus->test_source, err);
    paceline__data__free_unpacked(spec, NULL);
    return rc;
}

int corpus_settle(const struct corpus *corpus, Paceline__Job *job, struct err *err)
{
    if (!corpus->train_source)
        return OK;
    int rc = source_settle(corpus->train_source, job->train_data, err);
    return rc == OK && job->test_data ? source_settle(corpus->train_source, job->test_data, err)
                                      : rc;
}

/* The records of a text are few where its window is long. */
static void explain_records(const struct source *source, struct err *err)
{
    const Paceline__Data__Text *text = source_text_settled(source);
    size_t n = strlen(err->text);
    if (text)
        snprintf(err->text + n, sizeof err->text - n,
                 ", or write a shorter text.window: each record has %" PRIu32 " of the %" PRIu64
                 " %s that %.200s has",
                 text->window, source_text_units(source),
                 text->unit == PACELINE__DATA__TEXT__UNIT__byte ? "bytes" : "characters",
                 text->path);
}

/* Take the validation set out of the training set, or, where the driver has records for it alone,
 * none out of a worker's. */
static int open_validation(const struct source_config *config, const Paceline__Job *job,
                           struct corpus *corpus, struct err *err)
{
    struct dataset *train = &corpus->set[SET_TRAIN], *validation = &corpus->set[SET_VALIDATION];
    if (!job->driver_validates) {
        int rc = dataset_split(train, job->validation, job->seed, validation, err);
        if (rc == ERR_INPUT)
            explain_records(corpus->train_source, err);
        return rc;
    }
    return config->only_training ? OK : dataset_copy(train, validation, err);
}

static int check_streams(const struct dataset *set, struct err *err)
{
    if (set->count == 0 || set->streams <= set->count)
        return OK;
    return err_set(err, ERR_INPUT, "train_data.streams: there are %zu records for %zu streams",
                   set->count, set->streams);
}

static int open_sets(struct source_config *config, const Paceline__Job *job, struct corpus *corpus,
                     struct err *err)
{
    if (job->on_bad_record == PACELINE__ON_BAD_RECORD__skip) {
        corpus->bad = config->bad = bad_records_create(job->bad_records_max);
        if (!corpus->bad)
            return err_set(err, ERR_NOMEM, "bad_records_max: out of memory for this number");
    }
    int rc = open_set(config, corpus, SET_TRAIN, "train_data", job->train_data,
                      &corpus->train_source, err);
    if (rc == OK)
        rc = open_validation(config, job, corpus, err);
    if (rc == OK)
        rc = check_streams(&corpus->set[SET_TRAIN], err);
    if (rc != OK || !job->test_data || config->only_training)
        return rc;
    config->role = SOURCE_TEST;
    config->of = BAD_OF_TEST;
    rc = open_test(config, job, corpus, err);
    return rc == OK ? check_test(corpus, err) : rc;
}

int corpus_open_with(const struct source_config *given, const Paceline__Job *job,
                     struct corpus *out, struct err *err)
{
    struct corpus corpus = {0};
    struct err unheard; /* broken records are counted by their messages */
    struct source_config config = *given;
    int rc = open_sets(&config, job, &corpus, err ? err : &unheard);
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

void corpus_log_warnings(const struct corpus *corpus, const struct logger *log)
{
    const struct source *sources[] = {corpus->train_source, corpus->test_source};
    for (size_t i = 0; i < 2; i++)
        if (sources[i] && sources[i]->warning[0])
            log_warn(log, "%s", sources[i]->warning);
}

void corpus_close(struct corpus *corpus)
{
    for (int i = 0; i < SET_COUNT; i++)
        dataset_release(&corpus->set[i]);
    source_close(corpus->cached[0]);
    source_close(corpus->cached[1]);
    if (corpus->train_source)
        source_close(corpus->train_source);
    if (corpus->test_source)
        source_close(corpus->test_source);
    bad_records_free(corpus->bad);
    *corpus = (struct corpus){0};
}
