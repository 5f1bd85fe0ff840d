/* The records that learners train on and are judged by. Read-only while they do, so all learners of
 * a process share one. */
#ifndef PL_LEARNER_CORPUS_H
#define PL_LEARNER_CORPUS_H

#include "base/logger.h"
#include "data/dataset.h"

enum corpus_set { SET_TRAIN, SET_VALIDATION, SET_TEST, SET_COUNT };

struct corpus {
    struct dataset set[SET_COUNT];             /* count 0 where there is no such set */
    struct source *train_source, *test_source; /* opened here and closed with it; may be NULL */
    struct source *cached[2];                  /* the same through the cache, where there is one */
    struct bad_records *bad; /* of both sets; owned; NULL: on_bad_record is `stop` */
    uint64_t hash;           /* identity of a job's data, compared by nodes */
};

/* "train", "validation", "test". */
const char *corpus_set_name(enum corpus_set set);

/* Open the job's data: sources opened, validation held out, test set next to it. Paths are absolute
 * or relative to the working directory. `watch`, which may be NULL, receives the progress.
 * ERR_INPUT      a file is bad, or train and test do not fit together
 * ERR_CANCELLED the watch cancelled it
 * ERR_NOMEM */
int corpus_open(const Paceline__Job *job, const struct open_watch *watch, struct corpus *out,
                struct err *err);
/* The same, with the root, the watch and the bindings of `config`, which are borrowed as long as
 * the corpus is open. */
int corpus_open_with(const struct source_config *config, const Paceline__Job *job,
                     struct corpus *out, struct err *err);
/* Write the columns and vocabularies of the open sources into the job, where it leaves them open.
 * ERR_NOMEM */
int corpus_settle(const struct corpus *corpus, Paceline__Job *job, struct err *err);
/* Log the records that were left out when the sources were opened. */
void corpus_log_warnings(const struct corpus *corpus, const struct logger *log);
void corpus_close(struct corpus *corpus);

/* One of `of` parts of a set of n records: [index·n/of, (index+1)·n/of). */
struct part {
    uint32_t index, of;
};

/* A set of a part of a source (borrowed), seen through the maps of `spec`; released by
 * dataset_release, or put into a corpus, which then owns it in place of its former set.
 * ERR_INPUT  the maps do not fit the source, there is no such part, or it holds no record
 * ERR_NOMEM */
int corpus_make(const struct source *source, const Paceline__Data *spec, struct part part,
                struct dataset *out, struct err *err);
void corpus_put(struct corpus *corpus, enum corpus_set which, const struct dataset *set);

#endif
