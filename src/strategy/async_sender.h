/* Sends transfers while the worker computes: a task that sends one batch of parts at a time, each
 * part to a node of its own. `easgd` sends its updates by it (one part), and `ps` and `downpour`
 * their pushes (one part for each shard). */
#ifndef PL_STRATEGY_ASYNC_SENDER_H
#define PL_STRATEGY_ASYNC_SENDER_H

#include "coll/transfer.h"
#include "strategy/strategy.h"

struct async_part {
    struct transfer_out what; /* its vector and header are borrowed until the batch has ended */
    struct transfer transfer; /* the task's */
};

/* The two tasks synchronise by signals: writes before a raise are visible after the wait. */
struct async_sender {
    struct world *world;
    struct transfers transfers;
    struct async_part *part;
    size_t parts;
    uint32_t go, done; /* signals */
    _Atomic uint64_t posted, ended;
    _Atomic size_t from; /* parts of the batch from this one on may be sent */
    _Atomic int status;  /* the first error of any batch, other than a lost or refusing receiver */
    struct task *task;
};

/* Start the task, which alone uses this lane of transfers and these two signals. `part` is borrowed
 * until async_sender_stop. ERR_NOMEM */
int async_sender_start(struct async_sender *c, const struct member *m, struct async_part *part,
                       size_t parts, uint32_t lane, uint32_t go, uint32_t done);

/* Is a batch under way? */
bool async_sender_busy(const struct async_sender *c);

/* Begin to send the parts; the previous batch has ended. Change no part until this one has ended.
 * Never blocks; raises `done` when all parts have ended: they are sent, refused, or their receivers
 * are lost. */
void async_sender_send(struct async_sender *c);

/* The same for a batch of which no part may be sent yet. It ends after async_sender_send_from(c,
 * 0). */
void async_sender_open(struct async_sender *c);

/* The parts of the batch under way from `from` on are filled in, and may be sent. Never blocks. */
void async_sender_send_from(struct async_sender *c, size_t from);

/* Wait until the batch under way, if any, has ended. Returns c->status, ERR_TIMEOUT or
 * ERR_CANCELLED. */
int async_sender_wait(struct async_sender *c, int64_t deadline);

/* End the task, and cancel its transfers. Zeroed: nothing to do. */
void async_sender_stop(struct async_sender *c);

#endif
