/* A parameter server: a task that keeps a shard of the global model, applies the workers' pushes
 * and sends copies. `ps`, `downpour` and `easgd` use it.
 *
 * One server is the driver; several are background tasks training on the first workers. A worker
 * sends its push to all; each reports it to the first, which has the clock (ps_clock.h). The clock
 * decides pushes that all have received, and sends its decisions to all in one order. So all apply
 * the same pushes in the same order, and a push that is incomplete when its worker dies is applied
 * by none. Gradients that have arrived while the clock was busy are decided together.
 *
 * Workers keep states of all shards. If a shard moves, or the driver has recovered, all shards
 * continue from the newest state (ps_recovery.c), and workers send again the pushes that it lacks.
 *
 * With a lossy codec a worker rounds a push before it sends it, so that a repeated one is the same,
 * and adds the loss to the next. A copy is the difference to the worker's last copy, which the
 * server has as well, and which so approaches the model. States and s travel as they are. Before a
 * checkpoint the clock has all workers push what they owe.
 *
 * A worker's requests are served in order: a fetch sees its own pushes. */
#ifndef PL_STRATEGY_PS_SERVER_H
#define PL_STRATEGY_PS_SERVER_H

#include "coll/link_turns.h"
#include "coll/outlier.h"
#include "strategy/ps_clock.h"
#include "strategy/ps_message.h"
#include "strategy/shard.h"

struct ps_server_config {
    /* The strategy's: */
    uint32_t servers;
    bool colocated; /* one on each worker that begins the run */
    struct shard_config shard;
    struct ps_clock_config clock; /* of shard 0: its job, its consistency and its end */
    uint64_t push;                /* records of one */
    uint64_t pushes_a_fetch;      /* of a worker, at most */
    bool admits_in_waits;         /* a worker that waits for a server admits joiners meanwhile */
    bool keeps_lost; /* workers keep what a lossy codec loses of a push themselves: no feedback */
    /* The run's: */
    struct progress start;
    bool moved;   /* its server, or the driver before this one, is gone: it takes a state first */
    size_t index; /* of the shard */
    enum codec codec; /* of pushes, and of copies but for states */
};

/* The vector `both` of a worker has one use at a time. ps_traffic.c has the table of
 * transitions. */
enum ps_use {
    USE_NONE,
    USE_ARRIVES, /* push `number` is coming in */
    USE_WAITS,   /* it has arrived, and is not decided */
    USE_COPY,    /* a copy is going out */
    USES,
};

/* The copy that a worker requests. */
enum ps_request { REQUEST_NONE, REQUEST_PART, REQUEST_STATE };

/* A worker as a server sees it. */
struct ps_server_client {
    struct transfer push; /* coming in */
    struct transfer part; /* going out */
    struct vec both;      /* a push or a copy; as long as a state */
    enum ps_use use;      /* of `both`; */
    double bytes;         /* those that arrive, or of the copy */
    struct link_peer in, out;
    uint64_t since;  /* its place in the order of waiting headers and requests */
    struct vec last; /* its last push, for its s; as long as the shard */
    struct message
        *next;        /* the header of its next push, until `both` is free, and its turn has come */
    uint64_t number;  /* its newest push that was accepted; 0: none */
    uint64_t samples; /* of that push */
    bool bad;         /* that one is not finite, or */
    bool outlier;     /* refused */
    bool flushes;     /* behind it its worker owes nothing */
    struct outlier_claim claim; /* of its newest push, with `reject` */
    struct outlier_history history;
    uint64_t averaged; /* samples behind `last`; 0: none yet */
    enum ps_request request;
    uint64_t after, version; /* it requests a copy after its push `after` and order `version`, */
    bool final;              /* and, for the final model, after all that are sent again; */
    uint64_t from;           /* and has one of order `from` - 1; 0: of none */
    struct vec copy;         /* lossy codec: x̃ as it was sent last, */
    uint64_t copied;         /* at order `copied` - 1; 0: not known */
    uint64_t offered;        /* the clock's: the pushes it had begun when it offered its state */
    uint32_t lost_in;        /* the view in which it was lost */
};

/* ps_order.c has the table of transitions. */
enum ps_server_stage {
    SERVER_EMPTY,  /* it has no weights that count: it waits for a state */
    SERVER_LEVELS, /* the clock's: it has weights; not all shards have taken the newest state */
    SERVER_SERVES,
    SERVER_STAGES,
};

struct ps_server {
    struct world *world;
    struct group *group;
    const struct logger *log;
    struct arena own; /* memory of later clients; its own, since other tasks of the node
                         allocate, too */
    struct ps_server_config config;
    struct ps_port port; /* `epoch`: it has no weights that count in an earlier one */
    enum ps_server_stage stage;
    struct shard shard;
    struct shard_layout layout; /* of its states, which workers keep */
    struct ps_server_client *client[VIEW_MEMBERS_MAX];
    uint64_t done[VIEW_MEMBERS_MAX];    /* by worker: its newest push that is decided */
    struct link_turns in, out;          /* pushes arrive one after another, and copies go out so */
    uint64_t requests;                  /* headers and requests so far */
    struct push *together;              /* room for a push of each */
    struct vec moved;                   /* with `reject`: a running mean of applied pushes' x */
    bool has_moved;                     /* it has one */
    struct members outliers;            /* the clock's: waiting pushes that a shard has refused; */
    uint32_t refused[VIEW_MEMBERS_MAX]; /* and pushes in a row that were dropped, by worker */
    uint64_t version;                   /* orders carried out */
    uint64_t history;                   /* a hash over those that decided pushes */
    uint64_t sample_offset;             /* after them */
    struct members known;               /* workers of the last view seen */
    uint32_t ordered_in;                /* the view of the newest order */
    struct ps_clock *clock;
    struct transfer given; /* a state that comes in, */
    struct vec state;      /* into this one */
    /* The clock's: */
    struct members offered;      /* workers that have offered a state in this view, */
    struct members givers;       /* those whose state is the newest, */
    uint64_t best;               /* of this order, */
    struct members left;         /* and those whose loops have ended; */
    struct members taken;        /* shards that have taken it */
    double clock_value;          /* of the rate, in that state, */
    uint64_t departed;           /* and how many workers with pushes in it are gone */
    struct strategy_flush flush; /* before a checkpoint, */
    uint32_t f32_pushes;         /* those that arrive for one, */
    int64_t f32_since, f32_ns;   /* since when, and how long in this flush until then; */
    uint32_t requester;          /* which this worker makes (WORLD_ANY: none); */
    struct members flushed;      /* the workers that have owed nothing since it began, */
    struct members flushed_twice;
    struct driver_part *leader; /* the driver part; NULL: on a worker */
};

/* Complete the strategy's part for a run that starts there. */
void ps_server_configure(struct ps_server_config *config, const struct ps_placement *placement,
                         const struct progress *start, size_t records);

/* The global model begins as x and s, in memory from the arena; the members of placement->now are
 * its workers. Release it also on failure. ERR_NOMEM, or an error of the solver */
int ps_server_init(struct ps_server *server, struct group *group,
                   const struct ps_server_config *config, const struct ps_placement *placement,
                   const struct segments *table, const struct vec *x, const struct vec *s,
                   struct arena *arena);

void ps_server_release(struct ps_server *server);

/* Serve until *finish is set (raised with SIGNAL_GROUP; NULL: until the task is cancelled).
 * OK, ERR_CANCELLED, ERR_NOMEM, ERR_PROTOCOL */
int ps_server_run(struct ps_server *server, const atomic_bool *finish);

/* ops->driver: the one server of the model, until the run has ended. `config` is the strategy's
 * part. */
int ps_server_lead(struct driver_part *leader, const struct ps_server_config *config);

/* Does the job refuse outliers? */
static inline bool ps_rejects(const struct ps_server *server)
{
    return server->config.clock.job->reject == PACELINE__JOB__REJECT__outliers;
}

/* ---- traffic (ps_traffic.c): pushes arrive, copies go out ---- */

/* Assert that the transition is one of the table. */
void ps_set_use(struct ps_server *server, struct ps_server_client *client, enum ps_use use);

/* The header of a push has arrived; its transfer has ended. */
int ps_on_push(struct ps_server *server, struct message *m);
int ps_on_push_ended(struct ps_server *server, struct ps_server_client *client);

/* Accept the waiting pushes of workers whose vectors are free, and send the copies that they
 * request and that can be served now, each when its turn has come, in the order in which they began
 * to wait. *deadline is reduced to the time at which the next turn comes. */
int ps_serve_workers(struct ps_server *server, int64_t *deadline);

/* Send the worker this shard's state, as of `order`. */
int ps_send_state(struct ps_server *server, uint32_t node, const struct ps_message *order);

/* ---- orders (ps_order.c): the clock decides pushes, each shard carries the decisions out ---- */

/* Assert that the transition is one of the table. */
void ps_enter(struct ps_server *server, enum ps_server_stage stage);

/* An order of the clock has arrived. ERR_PROTOCOL */
int ps_on_order(struct ps_server *server, const struct ps_message *message);

/* The clock's: decide ready pushes; send OK to the workers that may continue. */
int ps_decide(struct ps_server *server);
int ps_send_oks(struct ps_server *server, const struct ps_decision *decision, int64_t now);

/* The clock's: all shards send the worker their state, as of one order. */
int ps_show_state(struct ps_server *server, uint32_t node);

/* All that workers owed is delivered, or nobody makes the checkpoint any more. */
void ps_end_flush(struct ps_server *server);

/* Show the observer an order that was carried out, or a recovery. */
void ps_observe(const struct ps_server *server, bool recovered);

/* ---- recovery (ps_recovery.c): PROTOCOL.md has the steps, 1 to 3 ---- */

/* Step 1, by the clock: a shard has moved, or the view has changed in a recovery. */
int ps_ask_for_states(struct ps_server *server);

/* A message of this view; the header of a state, which is consumed; its transfer has ended. */
int ps_on_recovery(struct ps_server *server, uint32_t from, const struct ps_message *message);
int ps_on_given(struct ps_server *server, struct message *m, const struct ps_message *header);
int ps_on_given_ended(struct ps_server *server);

/* Does a clock that has recovered wait for pushes that its workers send again? Until they are
 * decided its model is not the final one, even if all loops have ended. */
bool ps_lacks_pushes(const struct ps_server *server);

#endif
