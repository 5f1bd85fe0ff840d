/* Messages between workers and parameter servers: headers of transfers (coll/transfer.h).
 *
 *   PUSH    worker → shard    my push `number`, of `samples` records; the vector is its part of it,
 *                             unless it is LOST: the worker's loss was not finite
 *   HAVE    shard → clock     push `number` of `node` is here in full; LOST: it is not finite
 *   APPLY   clock → shard     as the `number`th order: apply the pushes of `who`, at clock value t
 *   DROP    clock → shard     as the `number`th order: forget the pushes of `who`
 *   OK      clock → worker    your push `number` is decided, as of order `version`; `node` is whose
 *                             push you have waited for, so many `ns`; STOP: that was the last, the
 *                             run is over; LOST: nobody's model is a number any more
 *   FETCH   worker → shard    your part of the model, once you have carried out order `version` and
 *                             decided my push `number`
 *   PART    shard → worker    the vector is the part of `shard`, as of order `version`; `who`: of
 *                             whom an odd number of pushes is decided
 *   LEAVE   worker → clock    I have ended: let nobody wait for me
 *
 * and when a new view has moved shards (ps_recovery.c), all with its number:
 *
 *   COPY    worker → shard    of your part I have a copy, as of order `version`; my last push
 *                             was `number`, of `samples` records, all mine of `ns`; LEFT: I
 *                             have ended
 *   GIVE    shard → worker    send me that copy
 *   GIVEN   worker → shard    the vector is it; `who` as in its PART
 *   STATE   shard → clock     I have carried out orders up to `version`, whose hash is `number`,
 *                             and which came to place `samples`; NEW: I hold a copy, and know none
 *   REPLAY  clock → shard     send `shard`, on `node`, your orders from `version` on
 *   SYNC    clock → shard     all stand at order `version` (hash and place as above); NEW: I know
 *                             nothing of what you have told the clock before me; LEFT: tell all
 *                             which pushes are decided
 *   RESUME  shard → worker    your push `number` is the last that was decided, as of `version`;
 *                             NEW: by a clock that is gone; LOST: nobody knows the number
 *   KNOWN   shard → shard     the same, of `node`
 *
 * The clock is the server of shard 0. A note without a vector is refused by who takes it, which is
 * how its sender's transfer ends. */
#ifndef PL_STRATEGY_PS_MESSAGE_H
#define PL_STRATEGY_PS_MESSAGE_H

#include "base/arena.h"
#include "coll/transfer.h"

enum ps_op {
    PS_PUSH = 1,
    PS_HAVE,
    PS_APPLY,
    PS_DROP,
    PS_OK,
    PS_FETCH,
    PS_PART,
    PS_LEAVE,
    PS_COPY,
    PS_OFFERED_COPY,
    PS_GIVEN,
    PS_STATE,
    PS_REPLAY,
    PS_SYNC,
    PS_RESUME,
    PS_KNOWN,
};

enum ps_flag { PS_LOST = 1, PS_STOP = 2, PS_NEW = 4, PS_LEFT = 8 };

/* Lanes of transfers: the task that trains, the task that pushes, the tasks that serve shard 0, 1,
 * … */
enum { PS_LANE_WORKER, PS_LANE_PUSH, PS_LANE_SERVER };

struct ps_message {
    enum ps_op op;
    uint32_t flags, node, shard, view;
    uint64_t number, version, samples;
    double t;
    int64_t ns;
    struct members members; /* APPLY, DROP, PART, GIVEN */
};

enum { PS_MESSAGE_HEAD = 64, PS_MESSAGE_MAX = PS_MESSAGE_HEAD + 8 * MEMBER_WORDS };
_Static_assert((int)PS_MESSAGE_MAX <= (int)TRANSFER_HEADER, "orders fit a note");

/* `out` has room for PS_MESSAGE_MAX bytes; how many were taken. */
size_t ps_message_encode(const struct ps_message *message, uint8_t *out);

/* ERR_PROTOCOL */
int ps_message_decode(struct byte_reader in, struct ps_message *out);

/* Notes without a vector, under way: as many as that takes. */
struct ps_sender {
    struct transfers transfers;
    struct arena arena; /* its own: other tasks of the node take memory, too */
    struct ps_slot *slots;
};

void ps_sender_init(struct ps_sender *sender, struct world *world, struct group *group,
                    uint32_t lane);

/* Cancel what is under way, of vectors, too. Zeroed: nothing to do. */
void ps_sender_close(struct ps_sender *sender);

/* Send one, never blocking. That its receiver is gone is for others to notice. ERR_NOMEM */
int ps_sender_send(struct ps_sender *sender, uint32_t to, uint32_t lane,
                   const struct ps_message *message);

/* Is any of them still on its way? */
bool ps_sender_busy(const struct ps_sender *sender);

#endif
