#include "strategy/strategy.h"

#include "job/job.h"

#include <string.h>

extern const struct strategy_ops strategy_single;

static const struct strategy_ops *const strategies[] = {&strategy_single};

int strategy_find(const Paceline__Job *job, const struct strategy_ops **out, struct err *err)
{
    const char *name = job_strategy_name(job);
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        if (strcmp(strategies[i]->name, name) == 0) {
            *out = strategies[i];
            return OK;
        }
    }
    return err_set(err, ERR_UNSUPPORTED, "strategy %s is not supported", name);
}

bool strategy_done(const struct member *m)
{
    const Paceline__Stop *stop = m->job->stop;
    double epochs = (double)m->place / (double)m->learner->corpus->set[SET_TRAIN].count;
    return (stop->has_epochs && epochs >= stop->epochs) ||
           (stop->has_steps && m->learner->steps >= stop->steps);
}
