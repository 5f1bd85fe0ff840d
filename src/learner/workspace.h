/* A workspace: the planned nets of a job with their activations, and a buffer for batches. Learners
 * that never compute at the same moment (those of one simulation) share one. */
#ifndef PL_LEARNER_WORKSPACE_H
#define PL_LEARNER_WORKSPACE_H

#include "base/logger.h"
#include "data/batch.h"
#include "learner/corpus.h"
#include "nn/net.h"

struct workspace {
    struct arena arena;
    const struct kernels *kernels;
    struct net *train, *test;
    struct batch batch; /* job->batch records, for both nets */
};

/* Load the job's net and plan it for the corpus's records. `kernels: auto` takes oneDNN, and plain
 * C where oneDNN has no path for some layer, with a line in the log. ERR_INPUT, ERR_UNSUPPORTED,
 * ERR_NOMEM */
int workspace_create(const Paceline__Job *job, const struct corpus *corpus,
                     const struct logger *log, struct workspace **out, struct err *err);
void workspace_free(struct workspace *ws);

struct evaluation {
    double error; /* share of records that were wrong */
    double loss;  /* mean */
    size_t count;
};

/* Add records [first, first + count) of a set to `sum`: how evaluations are cut into pieces. */
void workspace_evaluate(struct workspace *ws, const struct dataset *set, size_t first, size_t count,
                        const struct vec *x, struct vec *s, struct net_result *sum);

struct evaluation evaluation_of(const struct net_result *sum);

#endif
