/* A parameter server: a task that keeps a shard of the joint model, lets in what workers push and
 * gives out what they fetch. `ps` and `downpour` stand on it.
 *
 * One server is the driver; several are background tasks training on the first workers. A worker
 * sends its push to all, each of which tells the first, the clock (ps_clock.h); what all have, the
 * clock decides, and tells all in one order. So all apply the same pushes in the same order, and a
 * push that is only half there when its worker dies is applied by none. Gradients that have arrived
 * while the clock was busy are decided together.
 *
 * A worker's requests are served in order: a fetch sees its own pushes. */
#ifndef PL_STRATEGY_PS_SERVER_H
#define PL_STRATEGY_PS_SERVER_H

#include "strategy/ps_clock.h"
#include "strategy/ps_message.h"
#include "strategy/ps_placement.h"
#include "strategy/shard.h"

struct ps_server_config {
    struct ps_placement placement;
    size_t index;   /* of the shard */
    size_t chunk;   /* floats of a piece that a transfer sends */
    bool moved;     /* its server is gone: the range begins as the newest copy that anyone has */
    bool recovered; /* so it does: the driver that serves it has returned */
    struct shard_config shard;
    struct ps_clock_config clock; /* of shard 0 */
    uint64_t push;                /* records of one */
    struct progress start;
};

/* A worker as a server sees it. */
struct ps_server_client {
    struct transfer push; /* coming in, into `in` */
    struct transfer part; /* going out, of `copy` */
    struct vec in, copy;  /* as long as the shard */
    struct vec last;      /* its s of its last push; as long as the shard's part of it */
    struct message *next; /* the note of its next push, until the one before is decided */
    uint64_t arriving;    /* the push that is coming in */
    uint64_t here, done;  /* the newest that is here in full; that is decided */
    uint64_t samples;     /* of the one here */
    bool bad;             /* it is not finite */
    uint64_t averaged;    /* samples behind `last`; 0: nothing yet */
    bool requests;        /* for its part, after push `after` and order `version` */
    uint64_t after, version;
    struct ps_message copy_of; /* what it said of its copy, to a driver that has returned */
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
    struct arena own; /* what comes later is its own: other tasks of the node take memory, too */
    struct ps_server_config config;
    struct ps_sender sender;
    struct shard shard;
    struct ps_server_client *client[VIEW_MEMBERS_MAX];
    struct push *together;         /* room for a push of each */
    uint64_t version;              /* orders carried out */
    uint64_t history;              /* a hash over them */
    uint64_t placement;            /* in the stream of records, that they have come to */
    struct members applied_parity; /* workers of whom an odd number of pushes is decided */
    struct members known;          /* workers, as far as the views seen say */
    uint32_t view;                 /* the last one seen */
    struct ps_message *orders; /* the newest, by number; as many as may be under way to a shard */
    size_t orders_kept;
    struct ps_clock *clock;
    /* When the view has changed (ps_recovery.c): */
    bool holds;                 /* a range of weights; else it waits for copies */
    bool synced;                /* knows how far the orders are */
    uint32_t recovery_done;     /* the view in which all shards stood at one order */
    struct members offered;     /* who have offered a copy in this view */
    struct members left;        /* whose loops have ended, as far as a new clock is told */
    uint64_t best;              /* the newest copy's version, */
    uint32_t giver;             /* and whose it is */
    struct transfer given;      /* coming in */
    struct ps_stand *stand;     /* the clock's, by shard */
    struct driver_part *leader; /* whose part it is; NULL: a worker's */
};

/* The joint model begins as x and s, in memory of the arena's; those of place.now are its workers.
 * Release it in any case. ERR_NOMEM, or what the solver is refused for */
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
