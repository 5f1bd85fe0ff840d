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
    LINK_HELD,      /* complete, of order `version` */
    LINK_REQUESTED, /* the next one is requested, and has not begun to arrive */
    LINK_ARRIVING,  /* it arrives, or its server was lost meanwhile */
    LINK_STATES,
};

/* A worker's state towards one shard. */
struct ps_link {
    struct range range;
    uint32_t host; /* the node that serves it */
    enum ps_link_state state;
    struct transfer part, offered;
    bool repeat;                /* the push `sending` must be sent there again */
    struct ps_message arriving; /* the header of the part that is arriving */
    uint64_t version;           /* of the copy here */
    uint64_t wanted;            /* the least version that answers the request */
    /* The shard's server, if it is on this node. */
    struct ps_server *server;
    struct task *serving;
};

/* A push that this worker keeps: the servers, or a recovered driver, may need it again. */
struct ps_push {
    struct vec vec; /* as long as x, then s; memory is taken when it is first used */
    uint64_t samples;
    bool lost; /* it has no vector, since the worker's loss was not finite */
};

enum { PS_PUSHES_KEPT = 8 }; /* at most: those that a recovered driver may need, and the next one */

/* ps_client.c has the table of transitions. */
enum ps_client_stage {
    CLIENT_JOINING,  /* a joiner: it fetches the model for the first time */
    CLIENT_TRAINING, /* its loop runs */
    CLIENT_ENDED,    /* its loop has ended; it replies to servers, and gives its model */
    CLIENT_STAGES,
};

struct ps_client {
    struct member *m;
    enum ps_client_stage stage;
    struct ps_server_config config;
    struct ps_sender sender;
    struct async_sender push_sender; /* one part for each shard */
    uint8_t push_header[PS_MESSAGE_MAX];
    struct ps_link *link; /* by shard */
    struct vec out;       /* the next push, to be written: one of `push` */
    struct vec global;    /* the newest copy of x̃, then s̃ */
    struct vec x, s;      /* the two, in `global` */
    struct vec landing;   /* receives parts; separate, since `global` may be the only copy left */
    uint64_t pushed;      /* pushes begun */
    uint64_t sending;     /* the one that is sent: after a recovery, perhaps an earlier one */
    struct ps_push push[PS_PUSHES_KEPT]; /* push k is number k mod `kept` */
    size_t kept;
    struct ps_message ok; /* the newest OK */
    /* Where the driver is the server, the newest state that was fetched (shard.h), and its
     * header. Pushes after `contained` are not in it. */
    struct shard_layout layout;
    struct vec state;
    struct ps_message state_header;
    uint64_t contained;
    uint32_t view;          /* the last one seen */
    uint32_t incarnation;   /* of the driver that this worker has resumed with */
    struct task *lingering; /* when its loop has ended, the task that replies for it */
};

/* A joiner that trains at once, with its donor's model, reports to the servers which copies it has,
 * since a recovered one waits for all. */
int ps_client_offer(struct ps_client *c);

/* A joiner offers, and fetches the whole model, the clock's part first, before it begins. */
int ps_client_join(struct ps_client *c);

/* Memory from the member's arena, and the server's task, if this node serves a shard. `config` is
 * the strategy's part. Sets m->model and m->own. ERR_NOMEM */
int ps_client_open(struct ps_client *c, struct member *m, const struct ps_server_config *config);

/* ops->close, m->own being a client: end the server's task. */
void ps_client_close(struct member *m);

/* ops->export_join_state; m->own is a client. */
size_t ps_client_export_join_state(const struct member *m, uint64_t word[JOIN_STATE_WORDS]);

/* ops->collect_model; m->own is a client: fetch the whole model again. */
int ps_client_gather(struct member *m);

/* Begin to push c->out, of `samples` samples, when the previous push is decided. lost: send only
 * the message that the model is not finite. Touch c->out only after ps_client_flush. Fetches a
 * state first when it has no room for another push that no state contains. ERR_NOMEM */
int ps_client_push(struct ps_client *c, uint64_t samples, bool lost);

/* Wait until the last push is decided. If a server is lost before, it is pushed again. */
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
 * worker waits for it. From now on a task replies to servers on other workers. */
int ps_client_leave(struct ps_client *c);

/* Move transfers on. Never blocks. ERR_DRIVER, ERR_PEER, ERR_NOMEM */
int ps_client_step(struct ps_client *c);

#endif
