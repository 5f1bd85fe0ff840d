/* A workspace: the planned nets of a job with their activations, and a loader of batches. Learners
 * that never compute at the same moment (those of one simulation) share one. */
#ifndef PL_LEARNER_WORKSPACE_H
#define PL_LEARNER_WORKSPACE_H

#include "base/logger.h"
#include "data/loader.h"
#include "learner/corpus.h"
#include "nn/net.h"

struct workspace {
    struct arena arena;
    const struct kernels *kernels;
    struct net *train, *test;
    size_t record_floats; /* of one record */
    struct loader loader; /* of training batches; its spare one serves evaluation */
};

/* Load the job's net and plan it for the corpus's records. `kernels: auto` takes oneDNN, and plain
 * C where oneDNN has no path for some layer, with a line in the log. ERR_INPUT, ERR_UNSUPPORTED,
 * ERR_NOMEM */
int workspace_create(const Paceline__Job *job, const struct corpus *corpus,
                     const struct logger *log, struct workspace **out, struct err *err);

/* The same in three steps, for who has no records yet: plan the nets for records of that shape; ask
 * whether they can be given a source's (ERR_INPUT, with the name of the field that brought them);
 * and take training batches from `set` (borrowed, not empty) from now on, in place of the one
 * before, which needs a loader that is not started (ERR_NOMEM). Evaluating needs some set, too: its
 * batches lie in the loader. */
int workspace_plan(const Paceline__Job *job, const struct shape *record, const struct logger *log,
                   struct workspace **out, struct err *err);
int workspace_accepts(const struct workspace *ws, const struct source *source, const char *field,
                      struct err *err);
int workspace_feed(struct workspace *ws, const Paceline__Job *job, const struct dataset *set,
                   struct err *err);

/* Prepare batches ahead, on a task of `world`. ERR_NOMEM */
int workspace_load_ahead(struct workspace *ws, struct world *world, struct err *err);

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
