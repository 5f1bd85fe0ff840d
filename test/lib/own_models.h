/* An evaluation of each worker's own model with every evaluation of a simulated run's global model:
 * on the same records, as the worker's last step left it, before an exchange mixed or replaced it;
 * x, with the worker's own s. (A worker of `ps` has no step of its own: there it is the model that
 * it took its last gradient of.)
 *
 * A run keeps none of these. So a program that includes this is linked with own_wraps of
 * cmake/layers.cmake: strategies and the model writer call these wrappers, which call the library's
 * functions. The workers of a simulation share this process, and work one at a time. */
#ifndef PL_LIB_OWN_MODELS_H
#define PL_LIB_OWN_MODELS_H

#include "base/fault.h"
#include "learner/learner.h"
#include "train/objectives.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OWN_WORKERS_MAX = 8 };

/* On the test set. By node; NAN: has taken no step, or does not exist. */
struct own_judged {
    uint64_t step; /* where the global model stands */
    double error, loss;
    double own_error[OWN_WORKERS_MAX], own_loss[OWN_WORKERS_MAX];
};

/* Called with each evaluation; the including program defines it. */
static void own_judged(const struct own_judged *judged);

static struct own_model {
    struct vec x, s;
} own_models[OWN_WORKERS_MAX];

/* Between two runs. */
static inline void own_forget(void)
{
    for (size_t i = 0; i < OWN_WORKERS_MAX; i++) {
        free(own_models[i].x.at);
        free(own_models[i].s.at);
        own_models[i] = (struct own_model){0};
    }
}

static inline void own_copy(struct vec *to, const struct vec *from)
{
    if (!to->at)
        *to = (struct vec){calloc(from->n + 1, sizeof *to->at), from->n};
    PL_ASSERT(to->at && to->n == from->n);
    memcpy(to->at, from->at, from->n * sizeof *to->at);
}

static inline void own_keep(const struct learner *l)
{
    PL_ASSERT(l->world->self < OWN_WORKERS_MAX);
    struct own_model *own = &own_models[l->world->self];
    own_copy(&own->x, &l->x);
    own_copy(&own->s, &l->s);
}

static inline struct evaluation own_evaluate(const struct objectives *o, struct own_model *own)
{
    const struct dataset *set = &o->corpus->set[SET_TEST];
    const Paceline__Evaluate *options = o->job->evaluate;
    bool fewer = options->has_test_records && options->test_records < set->count;
    struct net_result sum = {0};
    struct err err;
    if (!own->x.at)
        return (struct evaluation){.error = (double)NAN, .loss = (double)NAN};
    int rc = workspace_evaluate(o->ws, set, 0, fewer ? options->test_records : set->count, &own->x,
                                &own->s, &sum, &err);
    PL_ASSERT(rc == OK);
    return evaluation_of(&sum);
}

/* ---- in the library's place ---- */

int __real_learner_gradient(struct learner *l, uint64_t start, size_t count);
int __wrap_learner_gradient(struct learner *l, uint64_t start, size_t count);
void __real_learner_update(struct learner *l, uint64_t start);
void __wrap_learner_update(struct learner *l, uint64_t start);
int __real_learner_step(struct learner *l, uint64_t start, size_t count);
int __wrap_learner_step(struct learner *l, uint64_t start, size_t count);
int __real_objectives_evaluate(struct objectives *o, const struct vec *x, struct vec *s,
                               uint64_t offset, uint64_t step);
int __wrap_objectives_evaluate(struct objectives *o, const struct vec *x, struct vec *s,
                               uint64_t offset, uint64_t step);

int __wrap_learner_gradient(struct learner *l, uint64_t start, size_t count)
{
    int rc = __real_learner_gradient(l, start, count);
    own_keep(l);
    return rc;
}

void __wrap_learner_update(struct learner *l, uint64_t start)
{
    __real_learner_update(l, start);
    own_keep(l);
}

int __wrap_learner_step(struct learner *l, uint64_t start, size_t count)
{
    int rc = __real_learner_step(l, start, count);
    own_keep(l);
    return rc;
}

/* The workers first: evaluating takes time, in which they continue. */
int __wrap_objectives_evaluate(struct objectives *o, const struct vec *x, struct vec *s,
                               uint64_t offset, uint64_t step)
{
    struct own_judged judged = {.step = step};
    for (size_t i = 0; i < OWN_WORKERS_MAX; i++) {
        struct evaluation own = own_evaluate(o, &own_models[i]);
        judged.own_error[i] = own.error;
        judged.own_loss[i] = own.loss;
    }
    int rc = __real_objectives_evaluate(o, x, s, offset, step);
    judged.error = o->last[SET_TEST].error;
    judged.loss = o->last[SET_TEST].loss;
    own_judged(&judged);
    return rc;
}

#endif
