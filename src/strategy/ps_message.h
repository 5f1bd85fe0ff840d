/* Messages between workers and parameter servers, headers of transfers (coll/transfer.h); and the
 * node that serves a shard. The receiver refuses a header without a vector, which ends the sender's
 * transfer. The clock is the server of shard 0. */
#ifndef PL_STRATEGY_PS_MESSAGE_H
#define PL_STRATEGY_PS_MESSAGE_H

#include "base/arena.h"
#include "coll/transfer.h"
#include "strategy/strategy.h"
#include "tensor/vec.h"

/* The sender, the receiver, and the meaning of the fields. */
enum ps_op {
    /* worker → shard: the sender's push `number`, of `samples` records; the vector is the shard's
     * part of it. LOST: there is none, the worker's loss was not finite */
    PS_PUSH = 1,
    /* shard → clock: push `number` of `node` has arrived. LOST: it is not finite */
    PS_HAVE,
    /* clock → shard: order `number`: apply the pushes of `members`, at clock value t; drop them;
     * send each of them the shard's state as of this order */
    PS_APPLY,
    PS_DROP,
    PS_SHOW,
    /* clock → worker: push `number` is decided, as of order `version`; it waited `ns` for the push
     * of `node`. STOP: that was the last, the run is over. LOST: no worker's model is finite */
    PS_OK,
    /* worker → shard: send the shard's part of the model, after order `version` and the sender's
     * push `number`. WHOLE, to the clock: all shards are to send their states of one order */
    PS_FETCH,
    /* shard → worker: the vector is the part of `shard`, as of order `version`. WHOLE: it is the
     * shard's state (shard.h), with that header. `view`: of the order */
    PS_PART,
    /* worker → clock: the sender's loop has ended, and no worker waits for it */
    PS_LEAVE,
    /* worker → worker: the sender serves a shard and leaves: fetch a state with its push `number`,
     * not older than order `version`. The reply: it is here. LEFT: this worker leaves, too */
    PS_KEEP,
    PS_KEPT,

    /* The others are of a new view (ps_recovery.h), with its number.
     *
     * clock → worker: offer your state */
    PS_ASK,
    /* worker → clock: the sender's state is of order `version`; its last push was `number`. LEFT:
     * its loop has ended. NEW: it has none yet */
    PS_COPY,
    /* clock → shard: continue from the state of order `version`, which `members` have; none: with
     * what is here */
    PS_TAKE,
    /* shard → worker: send the shard's state */
    PS_GIVE,
    /* worker → shard: the vector is the state, as in PART */
    PS_GIVEN,
    /* shard → clock: the shard is at order `version`. NEW: it has taken a state in this view */
    PS_STATE,
    /* clock → shard: all shards have reported. NEW: report pushes again */
    PS_SYNC,
    /* clock → worker: the shards have taken a state, of order `version`, with the receiver's pushes
     * up to `number` */
    PS_RESUME,
};

enum ps_flag { PS_LOST = 1, PS_STOP = 2, PS_NEW = 4, PS_LEFT = 8, PS_WHOLE = 16 };

/* Lanes of transfers: the task that trains, the task that pushes, the tasks that serve shard 0, 1,
 * … */
enum { PS_LANE_WORKER, PS_LANE_PUSH, PS_LANE_SERVER };

struct ps_message {
    enum ps_op op;
    uint32_t flags, node, shard, view;
    uint64_t number, version, samples;
    double t;
    int64_t ns;
    struct members members; /* APPLY, DROP, SHOW, TAKE */
};

enum { PS_MESSAGE_HEAD = 64, PS_MESSAGE_MAX = PS_MESSAGE_HEAD + 8 * MEMBER_WORDS };
_Static_assert((int)PS_MESSAGE_MAX <= (int)TRANSFER_HEADER, "orders fit a header");

/* `out` has room for PS_MESSAGE_MAX bytes; how many were taken. */
size_t ps_message_encode(const struct ps_message *message, uint8_t *out);

/* ERR_PROTOCOL */
int ps_message_decode(struct byte_reader in, struct ps_message *out);

/* Sends messages, any number of them at once. */
struct ps_sender {
    struct transfers transfers;
    struct arena arena; /* its own: other tasks of the node take memory, too */
    struct ps_slot *slots;
};

void ps_sender_init(struct ps_sender *sender, struct world *world, struct group *group,
                    uint32_t lane);

/* Cancel all transfers under way, also those of vectors. Zeroed: nothing to do. */
void ps_sender_close(struct ps_sender *sender);

/* Send one without a vector; never blocks. A lost receiver is not an error here. ERR_NOMEM */
int ps_sender_send(struct ps_sender *sender, uint32_t to, uint32_t lane,
                   const struct ps_message *message);

/* Send one with a vector, borrowed until `transfer` has ended. */
void ps_sender_send_vec(struct ps_sender *sender, struct transfer *transfer, uint32_t to,
                        uint32_t lane, const struct ps_message *message, const struct vec *vec);

/* Is any message without a vector still on its way? */
bool ps_sender_busy(const struct ps_sender *sender);

/* ---- which node serves a shard ---- */

/* Shard i is on the i-th of the workers that began the run; if that one is lost, on the next
 * remaining one; if all of these are lost, on the first joiner. Or one shard is on the driver. */
struct ps_placement {
    size_t shards;
    bool on_workers;
    struct members first;   /* the workers that began the run */
    const struct view *now; /* valid until the group's end */
};

enum { PS_SHARDS_MAX = 250 }; /* each has a lane of transfers; jobs with more are refused */

/* The node that serves a shard; WORLD_ANY: no worker is left. */
uint32_t ps_placement_host(const struct ps_placement *placement, size_t shard);

/* The job's placement: on the driver, on `servers` workers, or on all that begin the run. `join`: a
 * joiner's join state, the words of `first`; NULL: this node began the run itself. */
struct ps_placement ps_placement_of(const struct group *group, uint32_t servers, bool colocated,
                                    const struct join_state *join);

#endif
