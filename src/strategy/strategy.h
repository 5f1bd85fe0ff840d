/* Strategies: one paper algorithm a file, worker and driver side together. A strategy moves flat
 * vectors between learners; it never sees a layer, and never evaluates, dumps or logs. */
#ifndef PL_STRATEGY_STRATEGY_H
#define PL_STRATEGY_STRATEGY_H

#include "learner/learner.h"

/* A worker as its strategy sees it. */
struct member {
    struct world *world;
    struct learner *learner;
    const Paceline__Job *job;
    uint64_t place;     /* in the run's endless stream of records: what is committed */
    uint64_t exchanges; /* committed */
    /* Train's hook, called by the strategy at each commit point, between two learner calls, with
     * `place` and `exchanges` already moved on. ERR_STOP: the run ends here, for every member. */
    int (*committed)(struct member *m);
    void *train; /* the hook's own */
};

struct strategy_ops {
    const char *name; /* of its field in the job's strategy */
    /* The worker's loop itself, straight-line, calling the learner; what runs beside it is a task
     * that it spawns. Returns OK when the run has ended, or what broke it. */
    int (*worker)(struct member *m);
};

/* The strategy that the finished job names. ERR_UNSUPPORTED by name. */
int strategy_find(const Paceline__Job *job, const struct strategy_ops **out, struct err *err);

/* Has a run at this place, after so many steps of each worker, reached what `stop` asks for? */
bool strategy_done(const struct member *m);

#endif
