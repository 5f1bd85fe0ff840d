/* A parameter server: a task that keeps a shard of the global model, applies the workers' pushes
 * and sends copies. `ps`, `downpour` and `easgd` use it.
 *
 * One server is the driver; several are background tasks training on the first workers. A worker
 * sends its push to all; each reports it to the first, which has the clock (ps_clock.h). The clock
 * decides pushes that all have received, and sends its decisions to all in one order. So all apply
 * the same pushes in the same order, and a push that is incomplete when its worker dies is applied
 * by none. Gradients that have arrived while the clock was busy are decided together.
 *
 * A worker's requests are served in order: a fetch sees its own pushes. */
#ifndef PL_STRATEGY_PS_SERVER_H
#define PL_STRATEGY_PS_SERVER_H

#include "strategy/ps_clock.h"
#include "strategy/ps_message.h"
#include "strategy/ps_placement.h"
#include "strategy/ps_state.h"

struct ps_server_config {
    struct ps_placement placement;
    size_t index;   /* of the shard */
    size_t chunk;   /* floats of a piece that a transfer sends */
    bool moved;     /* its server is lost: the range begins as the newest copy of any worker */
    bool recovered; /* the same, on a recovered driver */
    struct shard_config shard;
    struct ps_clock_config clock; /* of shard 0 */
    uint64_t push;                /* records of one */
    uint64_t pushes_a_fetch;      /* of a worker, at most */
    bool admits_in_waits;         /* a worker that waits for a server admits joiners meanwhile */
    struct progress start;
};

/* A worker as a server sees it. */
struct ps_server_client {
    struct transfer push; /* coming in */
    struct transfer part; /* going out */
    /* Its push, until it is decided, or the copy that it fetches: a worker does one at a time. As
     * long as the shard, or a state. */
    struct vec both;
    struct vec last;      /* its last push, for its s; as long as the shard */
    struct message *next; /* the header of its next push, until `both` is free */
    uint64_t arriving;    /* the push that is coming in */
    uint64_t here, done;  /* the newest push that has arrived; that is decided */
    uint64_t samples;     /* of the one here */
    bool bad;             /* it is not finite */
    uint64_t averaged;    /* samples behind `last`; 0: none yet */
    bool requests, whole; /* its part, after push `after` and order `version`; the whole state */
    uint64_t after, version;
    struct ps_message copy_of; /* its offer to a recovered driver */
};

/* A shard's report to the clock since the view of that number. */
struct ps_stand {
    uint32_t view;
    bool unset, replays;
    uint64_t version, history, sample_offset;
};

struct ps_server {
    struct world *world;
    struct group *group;
    const struct logger *log;
    struct arena own; /* memory of later clients; its own, since other tasks of the node
                         allocate, too */
    struct ps_server_config config;
    struct ps_sender sender;
    struct shard shard;
    struct ps_state_layout layout; /* of the state that workers keep for a driver */
    struct ps_server_client *client[VIEW_MEMBERS_MAX];
    struct push *together;     /* room for a push of each */
    uint64_t version;          /* orders carried out */
    uint64_t history;          /* a hash over them */
    uint64_t sample_offset;    /* after them */
    struct members known;      /* workers of the last view seen */
    uint32_t view;             /* the last one seen */
    struct ps_message *orders; /* the newest, by number; as many as may be under way to a shard */
    size_t orders_kept;
    struct ps_clock *clock;
    /* When the view has changed (ps_recovery.c): */
    bool holds;                 /* a range of weights; else it waits for copies */
    bool synced;                /* knows how far the orders are */
    uint32_t recovery_done;     /* the view in which all shards stood at one order */
    struct members offered;     /* workers that have offered a copy in this view */
    struct members left;        /* workers whose loops have ended, as reported to a new clock */
    double clock_value;         /* of the rate, in the state that a recovered driver has taken */
    uint64_t best;              /* the newest copy's version, */
    uint32_t giver;             /* and the worker that has it */
    struct transfer given;      /* coming in, */
    struct vec state;           /* on a recovered driver: into this one */
    struct ps_stand *stand;     /* the clock's, by shard */
    struct driver_part *leader; /* the driver part; NULL: on a worker */
};

/* The global model begins as x and s, in memory from the arena; the members of placement.now are
 * its workers. Release it also on failure. ERR_NOMEM, or an error of the solver */
int ps_server_init(struct ps_server *server, struct world *world, struct group *group,
                   const struct logger *log, const struct ps_server_config *config,
                   const struct segments *table, const struct vec *x, const struct vec *s,
                   struct arena *arena, struct err *err);

void ps_server_release(struct ps_server *server);

/* Serve until *finish is set (raised with SIGNAL_GROUP; NULL: until the task is cancelled).
 * OK, ERR_CANCELLED, ERR_NOMEM, ERR_PROTOCOL */
int ps_server_run(struct ps_server *server, const atomic_bool *finish);

/* ops->driver: the one server of the model, until the run has ended. */
int ps_server_lead(struct driver_part *leader, const struct ps_server_config *config);

#endif
