/* Exchanges that overlap with training: a task that carries out the exchanges of one lane, one at a
 * time, while the worker's own task continues computing. */
#ifndef PL_STRATEGY_ASYNC_EXCHANGE_H
#define PL_STRATEGY_ASYNC_EXCHANGE_H

#include "strategy/async_task.h"

/* Of the world's signals: one a lane to begin, one for all that an exchange has ended. */
enum async_exchange_signal {
    SIGNAL_ASYNC_EXCHANGE_DONE = STRATEGY_SIGNAL_FIRST,
    SIGNAL_ASYNC_EXCHANGE, /* … + lane */
};

struct async_exchange {
    struct async_task task; /* a turn is an exchange */
    struct exchange *lane;
    struct exchange_meta mine; /* of the exchange submitted last */
};

/* Start the task; `lane` is open, and the task's alone while an exchange is under way. In between
 * the task settles it when the view changes, which alters no result. ERR_NOMEM */
int async_exchange_start(struct async_exchange *b, const struct member *m, struct exchange *lane);

/* Begin the next exchange: lane->input is filled in, and the one before has ended. Never blocks. */
void async_exchange_submit(struct async_exchange *b, const struct exchange_meta *mine);

/* Is one under way? */
bool async_exchange_busy(const struct async_exchange *b);

/* Wait until the exchange under way, if any, has ended, and return its status. OK, ERR_TIMEOUT,
 * ERR_CANCELLED, or what exchange_run returns; from then on the lane is the caller's until the next
 * is submitted. */
int async_exchange_wait(struct async_exchange *b, int64_t deadline);

/* End the task, and abandon an exchange under way in any stage: for a worker that leaves the group,
 * or when the run is over. Between the end of the worker's loop and this call, only the task may
 * finish the exchange under way and settle the lane, since the driver's decision about a lane in a
 * view is delivered once. The lane is the caller's. Zeroed, never started, or stopped: nothing to
 * do. */
void async_exchange_stop(struct async_exchange *b);

#endif
