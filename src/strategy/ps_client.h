/* A worker's side of the parameter servers (ps_server.h): it pushes vectors, learns when they are
 * decided, and fetches the global model. While a call below waits, the worker's transfers continue;
 * a lost server is detected and reported. */
#ifndef PL_STRATEGY_PS_CLIENT_H
#define PL_STRATEGY_PS_CLIENT_H

#include "strategy/async_sender.h"
#include "strategy/ps_server.h"

enum ps_signal { SIGNAL_PUSH = STRATEGY_SIGNAL_FIRST, SIGNAL_PUSHED };

/* The copy of a shard that a worker has. ps_client_turn.c has the table of transitions. */
enum ps_link_state {
    LINK_HELD,      /* complete */
    LINK_REQUESTED, /* the next one is requested, and has not begun to arrive */
    LINK_ARRIVING,  /* it arrives, or its server was lost meanwhile */
    LINK_STATES,
};

/* A worker's state towards one shard. */
struct ps_link {
    struct range range;
    struct shard_layout layout;
    uint64_t copied; /* order of the copy in `global`, + 1; 0: its server does not know which */
    enum ps_link_state state;
    struct transfer part, given;
    struct vec landing;         /* receives parts; sends a state */
    struct ps_message arriving; /* the header of the part that is arriving, or arrived last */
    /* The shard's server, if it is on this node. */
    struct ps_server *server;
    struct task *serving;
};

/* Bytes of a vector of the shard in that codec: a push, or a copy. */
static inline uint64_t ps_link_bytes(const struct ps_link *link, enum codec codec)
{
    return codec_bytes(codec, link->layout.x) + (link->range.len - link->layout.x) * sizeof(float);
}

/* The newest state of all shards, behind one order, that a worker has (shard.h). */
struct ps_state {
    bool here; /* a joiner has none at first */
    uint64_t version;
    struct ps_message header;
    struct vec both, x, s;              /* x̃, then s̃; and the two */
    struct vec vector[OPTIM_STATE_MAX]; /* the optimizer's */
    uint64_t push[VIEW_MEMBERS_MAX];    /* by worker: its newest push in it */
};

/* A push that this worker keeps: servers that have gone back to a state need it again. */
struct ps_push {
    struct vec vec; /* as long as x, then s; memory is taken when it is first used */
    uint64_t samples;
    bool lost;    /* it has no vector, since the worker's loss was not finite */
    bool flushes; /* it delivers what the worker owed, as f32 */
};

/* Of a worker whose copy of the model is to become a checkpoint. */
enum ps_delivery {
    PS_OWES,
    PS_ASKS,      /* the clock has been asked to have all workers flush */
    PS_DELIVERED, /* the state here has what they owed, or the clock flushes nothing now */
};

enum { PS_PUSHES_KEPT = 8 }; /* at most: those that no state may contain, and the next one */

struct ps_client {
    struct member *m;
    bool ended; /* its loop; it replies to servers, and gives its model */
    struct ps_server_config config;
    struct ps_port port;
    struct transfer leaving;         /* the report that its loop has ended */
    struct async_sender push_sender; /* one part for each shard */
    uint8_t push_header[PS_MESSAGE_MAX], lost_header[PS_MESSAGE_MAX];
    struct ps_link *link; /* by shard */
    struct vec out;       /* the next push, to be written: one of `push` */
    struct vec global; /* the newest copy of x̃, then s̃; the state's, if all copies are states */
    size_t vectors;    /* of the optimizer, in a state */
    bool states_apart; /* a copy is not a state: that has vectors, or is exact */
    struct vec residual; /* of pushes by a lossy codec */
    enum ps_delivery delivery;
    uint64_t asked_after; /* pushes begun when it asked: the OK of a later one replies */
    bool leaves;          /* the next push is the last */
    uint64_t copy_bytes;  /* of the copies that were fetched last */
    struct ps_state state;
    uint64_t pushed;  /* pushes begun */
    uint64_t sending; /* the one that is sent: after a recovery, perhaps an earlier one, */
    bool repeat;      /* which must be sent again */
    struct ps_push push[PS_PUSHES_KEPT]; /* push k is number k mod `kept` */
    size_t kept;
    bool early;      /* push `pushed` is open: its last parts are sent while the rest is computed */
    size_t filled;   /* of an open push: floats of `out` from here on are there */
    bool whole;      /* the copies that are requested are a state, */
    uint64_t wanted; /* or of this order at least */
    struct ps_message ok; /* the newest OK */
    /* The view in which the clock has asked for the state here. It stays until the clock says where
     * the shards continue: later than port.epoch until then. */
    uint32_t asked;
    /* Workers that leave, which need a state here, of this order and with these pushes; and the
     * worker that is to keep one for this worker, or WORLD_ANY. */
    struct members keep_for;
    uint64_t keep_version, keep_push[VIEW_MEMBERS_MAX];
    uint32_t successor;
    struct task *lingering; /* when its loop has ended, the task that replies for it */
};

/* Memory from the member's arena, and the server's task, if this node serves a shard. `config` is
 * the strategy's part. Sets m->model and m->own. ERR_NOMEM */
int ps_client_open(struct ps_client *c, struct member *m, const struct ps_server_config *config);

/* A joiner fetches a state before it begins. */
int ps_client_join(struct ps_client *c);

/* ops->close, m->own being a client: end the server's task. */
void ps_client_close(struct member *m);

/* ops->export_join_state; m->own is a client. */
size_t ps_client_export_join_state(const struct member *m, uint64_t word[JOIN_STATE_WORDS]);

/* ops->collect_model; m->own is a client: fetch the model and the optimizer's vectors again. */
int ps_client_gather(struct member *m);

/* ops->last_model; m->own is a client: the newest state that it has fetched. */
bool ps_client_last_model(struct member *m, uint64_t *version);

/* c->out becomes what the codec makes of it, which the worker takes into account itself
 * (config.keeps_lost). Does nothing with f32. */
void ps_client_round(struct ps_client *c);

/* Bytes of a push. */
uint64_t ps_client_push_bytes(const struct ps_client *c);

/* Begin to push c->out, of `samples` samples, when the previous push is decided, or send the rest
 * of the one that is open. lost: send only the message that the model is not finite. Touch c->out
 * only after ps_client_flush. Fetches a state first when it has no room for another push that no
 * state contains. ERR_NOMEM */
int ps_client_push(struct ps_client *c, uint64_t samples, bool lost);

/* The learner's dx is finished from `from` on: begin to push it, and s, shard by shard, if the
 * previous push is decided and kept. Shard 0's part waits for ps_client_push. Never blocks. */
void ps_client_push_from(struct ps_client *c, uint64_t samples, size_t from);

/* How a push travels. */
static inline enum codec ps_push_codec(const struct ps_client *c, const struct ps_push *push)
{
    return push->lost || push->flushes ? CODEC_F32 : c->config.codec;
}

/* Is a push open that ps_client_push_from has begun? */
static inline bool ps_client_is_early(const struct ps_client *c)
{
    return c->early;
}

/* Wait until the last push is decided, and no copy is on its way here. If a server is lost before,
 * it is pushed again. */
int ps_client_flush(struct ps_client *c);

/* Wait until the last push is decided: c->ok. ERR_DIVERGED: no worker has a finite model. */
int ps_client_await_ok(struct ps_client *c);

/* Fetch the model, with all that this worker has pushed and the orders up to the newest OK, into
 * c->global. */
int ps_client_fetch(struct ps_client *c);

/* The learner's x is replaced by what was fetched; its s stays, unless it is not finite any
 * more. */
int ps_client_take(struct ps_client *c);

/* This worker's loop has ended: wait until its pushes are decided, and tell the clock that no
 * worker waits for it. If it leaves a run with servers on workers, wait until another worker has
 * a state with its pushes. From now on a task replies to other nodes. */
int ps_client_leave(struct ps_client *c);

/* Move transfers on. Never blocks. ERR_DRIVER, ERR_PEER, ERR_NOMEM */
int ps_client_step(struct ps_client *c);

/* ---- one turn (ps_client_turn.c) ---- */

/* Wait once and handle one event, if `holds` is still true (NULL: always). While data moves,
 * `patience` is the time for the next piece. */
int ps_take_turn(struct ps_client *c, bool (*holds)(const struct ps_client *), int64_t patience);

/* Begin to fetch the model, after all pushes of this worker and the newest OK. */
int ps_request_copies(struct ps_client *c);

/* Is the whole model here, and none of it on its way? */
bool ps_holds_all(const struct ps_client *c);

/* Is there no room for another push that no state contains? */
bool ps_is_full(const struct ps_client *c);

/* Ask the next worker, after `successor`, to fetch a state with this worker's pushes; without
 * another one `successor` becomes WORLD_ANY. */
int ps_ask_successor(struct ps_client *c);

/* Send the push `sending`; or open it, so that its parts may be sent one after another. */
void ps_send_push(struct ps_client *c);
void ps_open_push(struct ps_client *c);

/* The open push is lost: its parts that were not sent yet report that, so that no shard applies it.
 */
void ps_lose_push(struct ps_client *c);

/* May a push be opened now? */
bool ps_may_open(const struct ps_client *c);

/* Tell the clock that this worker's loop has ended: c->leaving ends when the clock knows. */
void ps_report_leave(struct ps_client *c);

/* Show the observer this client. */
void ps_observe_client(const struct ps_client *c);

/* Start a shard's server on this node, at the beginning or because it has moved here. ERR_NOMEM */
int ps_client_serve(struct ps_client *c, size_t shard, bool moved);

#endif
