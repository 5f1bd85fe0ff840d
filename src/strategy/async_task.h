/* A task that works while the worker's own task continues computing: it does one thing at a time,
 * each time it is told to. Both synchronise by signals: writes before a raise are visible after the
 * wait. */
#ifndef PL_STRATEGY_ASYNC_TASK_H
#define PL_STRATEGY_ASYNC_TASK_H

#include "strategy/strategy.h"

struct async_work {
    /* A turn. Behind an error there are no more turns. */
    int (*run)(void *user);
    /* (optional) Between turns, once and at each SIGNAL_GROUP. Its error is the next turn's. */
    int (*idle)(void *user);
    void *user;
    uint32_t go, done; /* signals; `done` may be that of other tasks, too */
};

struct async_task {
    struct async_work work;
    struct world *world;
    struct group *group;
    int threads;                   /* of the vectors' arithmetic in it */
    _Atomic uint64_t begun, ended; /* turns */
    _Atomic int status;            /* of the last one that has ended */
    struct task *task;
};

/* Start the task. ERR_NOMEM */
int async_task_start(struct async_task *a, const struct member *m, const struct async_work *work);

/* Begin a turn; the one before has ended. Never blocks. */
void async_task_begin(struct async_task *a);

/* Is a turn under way? */
bool async_task_busy(const struct async_task *a);

/* Wait until the turn under way, if any, has ended, and return its status. A worker that waits for
 * others computes nothing, and is not expected to. ERR_TIMEOUT, ERR_CANCELLED, or what `run`
 * returns */
int async_task_wait(struct async_task *a, int64_t deadline);

/* End the task, in any stage of a turn. Zeroed, never started, or stopped: nothing to do. */
void async_task_stop(struct async_task *a);

#endif
