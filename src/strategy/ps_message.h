/* Messages between workers and parameter servers, headers of transfers (coll/transfer.h), most of
 * them without a vector; the node that serves a shard; and either end of the messages. The clock is
 * the server of shard 0. */
#ifndef PL_STRATEGY_PS_MESSAGE_H
#define PL_STRATEGY_PS_MESSAGE_H

#include "coll/transfer.h"
#include "strategy/strategy.h"
#include "tensor/vec.h"

/* The sender, the receiver, and the meaning of the fields. */
enum ps_op {
    /* worker → shard: the sender's push `number`, of `samples` records; the vector is the shard's
     * part of it. LOST: there is none, the worker's loss was not finite. FLUSH: it travels as f32,
     * with all that the sender owed */
    PS_PUSH = 1,
    /* shard → clock: push `number` of `node` has arrived. LOST: it is not finite */
    PS_HAVE,
    /* clock → shard: order `number`: apply the pushes of `members`, at clock value t; drop them;
     * send each of them the shard's state as of this order, with the numbers of `node` workers */
    PS_APPLY,
    PS_DROP,
    PS_SHOW,
    /* clock → worker: push `number` is decided, as of order `version`; it waited `ns` for the push
     * of `node`. STOP: that was the last, the run is over. LOST: no worker's model is finite.
     * FLUSH: the next one delivers what a lossy codec owes. WHOLE: all have delivered that */
    PS_OK,
    /* worker → shard: send the shard's part of the model, after order `version` and the sender's
     * push `number`. `samples`: 1 + the order of the sender's copy of it, 0: it has none. WHOLE, to
     * the clock: all shards are to send their states of one order. LEFT: its loop has ended, and it
     * may give the final model: not before all pushes that are sent again are decided. FLUSH, to
     * the clock: the sender's state becomes a checkpoint */
    PS_FETCH,
    /* shard → worker: the vector is the part of `shard`, as of order `version`. DELTA: the
     * difference of its x̃ to the receiver's copy, in the run's lossy codec. WHOLE: it is the
     * shard's state (shard.h), with that header */
    PS_PART,
    /* worker → clock: the sender's loop has ended, and no worker waits for it */
    PS_LEAVE,
    /* worker → worker: the sender leaves: fetch a state with its push `number`, not older than
     * order `version`. The reply: it is here. LEFT: this worker leaves, too */
    PS_KEEP,
    PS_KEPT,

    /* The others are of a recovery (ps_recovery.c), in the view of the message.
     *
     * clock → worker: offer your state */
    PS_ASK,
    /* worker → clock: the sender's state is of order `version`; its last push was `number`. LEFT:
     * its loop has ended. NEW: it has none yet */
    PS_COPY,
    /* clock → worker: send your state to the server of `shard` */
    PS_GIVE,
    /* worker → shard: continue from this state; the vector and the header are as in PART. Without
     * WHOLE, from the clock: no worker has one, continue with what is here */
    PS_GIVEN,
    /* shard → clock: the shard has taken the state of order `version` */
    PS_STATE,
    /* clock → worker: all shards have taken that state, which has the receiver's pushes up to
     * `number` */
    PS_RESUME,
};

enum ps_flag {
    PS_LOST = 1,
    PS_STOP = 2,
    PS_NEW = 4,
    PS_LEFT = 8,
    PS_WHOLE = 16,
    PS_DELTA = 32,
    PS_OUTLIER = 64, /* with LOST: it is finite, and refused (coll/outlier.h) */
    PS_FLUSH = 128,
};

/* Lanes of transfers: the task that trains, the task that pushes, the tasks that serve shard 0, 1,
 * … */
enum { PS_LANE_WORKER, PS_LANE_PUSH, PS_LANE_SERVER };

struct ps_message {
    enum ps_op op;
    uint32_t flags, node, shard;
    uint32_t view, epoch; /* the sender's (struct ps_port) */
    uint64_t number, version, samples;
    double t;
    int64_t ns;
    struct members members; /* APPLY, DROP, SHOW */
};

enum { PS_MESSAGE_HEAD = 64, PS_MESSAGE_MAX = PS_MESSAGE_HEAD + 8 * MEMBER_WORDS };
_Static_assert((int)PS_MESSAGE_MAX <= (int)TRANSFER_HEADER, "orders fit a header");

/* ERR_PROTOCOL */
int ps_message_decode(struct byte_reader in, struct ps_message *out);

/* ---- which node serves a shard ---- */

/* Shard i is on the i-th of the workers that began the run; if that one is gone, on the next elder
 * of the view. Or one shard is on the driver. */
struct ps_placement {
    size_t shards;
    bool on_workers;
    struct members first;   /* the workers that began the run */
    const struct view *now; /* valid until the group's end */
};

/* The node that serves a shard; WORLD_ANY: no worker is left. */
uint32_t ps_placement_host(const struct ps_placement *placement, size_t shard);

/* The job's placement: on the driver, on `servers` workers, or on all that begin the run. `join`: a
 * joiner's join state, the words of `first`; NULL: this node began the run itself.
 * ERR_PROTOCOL: its donor has sent no such words */
int ps_placement_init(struct ps_placement *placement, const struct group *group, uint32_t servers,
                      bool colocated, const struct join_state *join);

/* ---- one end ---- */

/* A worker or a server as an end of messages. */
struct ps_port {
    struct transfers transfers;
    struct ps_placement placement; /* `now` is the view that it follows */
    /* The view of the last recovery in which it has taken a state, or from which it has resumed:
     * it ignores what others sent in an earlier one. */
    uint32_t epoch;
};

void ps_port_init(struct ps_port *port, struct group *group, uint32_t lane,
                  const struct ps_placement *placement, size_t chunk);

static inline uint32_t ps_port_view(const struct ps_port *port)
{
    return port->placement.now->number;
}

/* The sender of a message may have seen a later view than the group here: wait for it. */
int ps_port_await_view(const struct ps_port *port, const struct ps_message *message);

/* Send one without a vector, with this end's view and epoch, to a worker, or to a shard's server;
 * never blocks. A lost receiver is not an error here. ERR_NOMEM */
int ps_send_worker(struct ps_port *port, uint32_t node, const struct ps_message *message);
int ps_send_shard(struct ps_port *port, size_t shard, const struct ps_message *message);

/* Send the floats of `what`, borrowed until `transfer` has ended; their header is the message. */
void ps_send_floats(struct ps_port *port, struct transfer *transfer,
                    const struct ps_message *message, struct transfer_out what);

/* The message as bytes, with this end's view and epoch: how many. `out` has room for
 * PS_MESSAGE_MAX. */
size_t ps_port_encode(const struct ps_port *port, const struct ps_message *message, uint8_t *out);

#endif
