/* A worker's pushes on their way to the servers while training continues: a task that moves them
 * along. */
#ifndef PL_STRATEGY_PS_PUSH_SENDER_H
#define PL_STRATEGY_PS_PUSH_SENDER_H

#include "strategy/ps_message.h"
#include "strategy/strategy.h"

enum ps_signal { SIGNAL_PUSH = STRATEGY_SIGNAL_FIRST, SIGNAL_PUSHED };

/* A part of a push: to the server of one shard. */
struct ps_part {
    uint32_t to;
    const float *x; /* n floats, borrowed until the push has ended */
    size_t n;
    bool skip;                /* this time */
    struct transfer transfer; /* the task's */
};

/* The two tasks synchronise by signals: writes before a raise are visible after the wait. */
struct ps_push_sender {
    struct world *world;
    struct transfers transfers;
    struct ps_part *part;
    size_t parts;
    uint8_t message[PS_MESSAGE_MAX];
    size_t message_len;
    bool bare; /* headers without vectors */
    _Atomic uint64_t begun, ended;
    _Atomic int status; /* the first error, other than a lost server */
    struct task *task;
};

/* Start the task. ERR_NOMEM */
int ps_push_sender_start(struct ps_push_sender *p, const struct member *m, struct ps_part *part,
                         size_t parts);

bool ps_push_sender_busy(const struct ps_push_sender *p);

/* Send every part that is not skipped, with this header; `bare`: the header alone. The previous
 * push has ended. Never blocks; raises SIGNAL_PUSHED when all are sent, or their servers are lost.
 */
void ps_push_sender_send(struct ps_push_sender *p, const struct ps_message *message, bool bare);

/* End the task, and cancel its transfers. Zeroed: nothing to do. */
void ps_push_sender_stop(struct ps_push_sender *p);

#endif
