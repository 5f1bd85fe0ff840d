/* A worker's pushes on their way to the servers, beside training: a task that moves them along. */
#ifndef PL_STRATEGY_PS_PUSH_H
#define PL_STRATEGY_PS_PUSH_H

#include "strategy/ps_note.h"
#include "strategy/strategy.h"

enum ps_signal { SIGNAL_PUSH = STRATEGY_SIGNAL_FIRST, SIGNAL_PUSHED };

/* A part of a push: to the server of one shard. */
struct ps_part {
    uint32_t to;
    const float *x; /* n floats, borrowed until the push has ended */
    size_t n;
    bool skip;              /* this time */
    struct transfer parcel; /* the task's */
};

/* The two sides hand over by signals: what one wrote before, the other sees after. */
struct ps_pusher {
    struct world *world;
    struct transfers parcels;
    struct ps_part *part;
    size_t parts;
    uint8_t note[PS_NOTE_MAX];
    size_t note_len;
    bool bare; /* notes alone */
    _Atomic uint64_t begun, ended;
    _Atomic int status; /* the first thing that went wrong, other than that a server is gone */
    struct task *task;
};

/* Start the task. ERR_NOMEM */
int ps_pusher_start(struct ps_pusher *p, struct world *world, struct group *group,
                    struct ps_part *part, size_t parts);

bool ps_pusher_busy(const struct ps_pusher *p);

/* Send every part that is not to be skipped with this note; `bare`: the note alone. The push before
 * has ended. Never blocks; raises SIGNAL_PUSHED when all have left, or their servers are gone. */
void ps_pusher_send(struct ps_pusher *p, const struct ps_note *note, bool bare);

/* End the task, and what is under way. Zeroed: nothing to do. */
void ps_pusher_stop(struct ps_pusher *p);

#endif
