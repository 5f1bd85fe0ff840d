/* The records of a job: sources opened, validation held out, test set beside. Read-only once open,
 * so all learners of a process share one. */
#ifndef PL_LEARNER_CORPUS_H
#define PL_LEARNER_CORPUS_H

#include "data/dataset.h"

enum corpus_set { SET_TRAIN, SET_VALIDATION, SET_TEST, SET_COUNT };

struct corpus {
    struct source *train_source, *test_source; /* test_source may be NULL */
    struct dataset set[SET_COUNT];             /* count 0 where the job has no such set */
    uint64_t hash;                             /* identity of all data, compared between nodes */
};

/* "train", "validation", "test". */
const char *corpus_set_name(enum corpus_set set);

/* Open what the job names. Paths are absolute or relative to the working directory.
 * ERR_INPUT  a file is bad, or train and test do not fit together
 * ERR_NOMEM */
int corpus_open(const Paceline__Job *job, struct corpus *out, struct err *err);
void corpus_close(struct corpus *corpus);

#endif
