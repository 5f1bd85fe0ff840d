/* Sends transfers while the worker computes: a task with one transfer at a time. */
#ifndef PL_STRATEGY_ASYNC_SENDER_H
#define PL_STRATEGY_ASYNC_SENDER_H

#include "coll/transfer.h"
#include "strategy/strategy.h"

/* The two tasks synchronise by signals: writes before a raise are visible after the wait. */
struct async_sender {
    struct world *world;
    struct transfers transfers;
    struct transfer transfer;
    struct transfer_out what; /* the one posted last */
    uint32_t go, done;        /* signals */
    _Atomic uint64_t posted, ended;
    _Atomic int status; /* of the last one that has ended */
    struct task *task;
};

/* Start the task, which has this lane of transfers and these two signals to itself. ERR_NOMEM */
int async_sender_start(struct async_sender *c, const struct member *m, uint32_t lane, uint32_t go,
                       uint32_t done);

/* Is one under way? */
bool async_sender_busy(const struct async_sender *c);

/* Begin to send; the one before has ended. The vector and the header are borrowed until the
 * transfer has ended. Never blocks. */
void async_sender_send(struct async_sender *c, const struct transfer_out *what);

/* Wait until it has ended, if one is under way: its status. ERR_TIMEOUT, ERR_CANCELLED */
int async_sender_wait(struct async_sender *c, int64_t deadline);

/* End the task, and cancel the transfer under way. Zeroed: nothing to do. */
void async_sender_stop(struct async_sender *c);

#endif
