/* Beside each evaluation of a simulated run's joint model: the same test set by the model that each
 * worker has to itself, as its last step left it, which is before an exchange mixes or replaces it;
 * x, and its own s. (A worker of `ps` has no step of its own: there it is the model that it took its
 * last gradient of.)
 *
 * A run keeps none of these. So who includes this is linked with OWN_WRAPS of cmake/layers.cmake:
 * strategies and keeper call what follows in place of the library's functions, which it calls.
 * Workers of a simulation share this process and its one thread. */
#ifndef PL_LIB_OWN_MODELS_H
#define PL_LIB_OWN_MODELS_H

#include "base/fault.h"
#include "learner/learner.h"
#include "train/objectives.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OWN_WORKERS_MAX = 8 };

struct own_judged {
    uint64_t step;                /* where the joint model stood */
    double joint;                 /* its error, */
    double own[OWN_WORKERS_MAX];  /* and the workers'; NAN: has not stepped yet */
    double loss;                  /* and the same of mean losses */
    double own_loss[OWN_WORKERS_MAX];
};

/* Told of each evaluation; whoever includes this says what becomes of it. */
static void own_judged(const struct own_judged *judged);

/* By node: as the last step left it. */
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

static void own_copy(struct vec *to, const struct vec *from)
{
    if (!to->at)
        *to = (struct vec){calloc(from->n + 1, sizeof *to->at), from->n};
    PL_ASSERT(to->at && to->n == from->n);
    memcpy(to->at, from->at, from->n * sizeof *to->at);
}

static void own_keep(const struct learner *l)
{
    uint32_t node = l->world->self;
    PL_ASSERT(node < OWN_WORKERS_MAX);
    own_copy(&own_models[node].x, &l->x);
    own_copy(&own_models[node].s, &l->s);
}

int __real_learner_gradient(struct learner *l, uint64_t start, size_t count);
int __wrap_learner_gradient(struct learner *l, uint64_t start, size_t count);
void __real_learner_update(struct learner *l, uint64_t start);
void __wrap_learner_update(struct learner *l, uint64_t start);
int __real_learner_step(struct learner *l, uint64_t start, size_t count);
int __wrap_learner_step(struct learner *l, uint64_t start, size_t count);
int __real_objectives_evaluate(struct objectives *o, const struct vec *x, struct vec *s,
                               uint64_t place, uint64_t step);
int __wrap_objectives_evaluate(struct objectives *o, const struct vec *x, struct vec *s,
                               uint64_t place, uint64_t step);

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

static struct evaluation own_evaluate(const struct objectives *o, struct own_model *model)
{
    const struct dataset *set = &o->corpus->set[SET_TEST];
    struct net_result sum = {0};
    struct err err;
    if (!model->x.at)
        return (struct evaluation){.error = (double)NAN, .loss = (double)NAN};
    int rc = workspace_evaluate(o->ws, set, 0, set->count, &model->x, &model->s, &sum, &err);
    PL_ASSERT(rc == OK);
    return evaluation_of(&sum);
}

int __wrap_objectives_evaluate(struct objectives *o, const struct vec *x, struct vec *s,
                               uint64_t place, uint64_t step)
{
    struct own_judged judged = {.step = step};
    for (size_t i = 0; i < OWN_WORKERS_MAX; i++) { /* first: workers go on meanwhile */
        struct evaluation own = own_evaluate(o, &own_models[i]);
        judged.own[i] = own.error;
        judged.own_loss[i] = own.loss;
    }
    int rc = __real_objectives_evaluate(o, x, s, place, step);
    judged.joint = o->last[SET_TEST].error;
    judged.loss = o->last[SET_TEST].loss;
    own_judged(&judged);
    return rc;
}

#endif
