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
#include "strategy/shard.h"

/* How a server begins. */
enum ps_origin {
    SHARD_INITIAL,   /* with the initial model */
    SHARD_MOVED,     /* its server is lost: with the newest copy of any worker */
    SHARD_RECOVERED, /* the same, on a recovered driver: with a whole state */
};

struct ps_server_config {
    /* The strategy's: */
    uint32_t servers;
    bool colocated; /* one on each worker that begins the run */
    struct shard_config shard;
    struct ps_clock_config clock; /* of shard 0: its consistency and its end */
    uint64_t push;                /* records of one */
    uint64_t pushes_a_fetch;      /* of a worker, at most */
    bool admits_in_waits;         /* a worker that waits for a server admits joiners meanwhile */
    /* The run's: */
    struct ps_placement placement;
    enum ps_origin origin;
    size_t index; /* of the shard */
    size_t chunk; /* floats of a piece that a transfer sends */
    struct progress start;
};

/* Complete the strategy's part for a run that starts there; join: as for ps_placement_of. */
void ps_server_configure(struct ps_server_config *config, const Paceline__Job *job,
                         const struct group *group, const struct progress *start, size_t records,
                         const struct join_state *join);

/* The vector `both` of a worker has one use at a time. ps_order.c has the table
 * of transitions. */
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
    struct vec both;      /* a push or a copy: as long as the shard, or a state */
    enum ps_use use;      /* of `both` */
    struct vec last;      /* its last push, for its s; as long as the shard */
    struct message *next; /* the header of its next push, until `both` is free */
    uint64_t number;      /* its newest push that was accepted; 0: none */
    uint64_t done;        /* its newest push that is decided */
    uint64_t samples;     /* of push `number` */
    bool bad;             /* that one is not finite */
    uint64_t averaged;    /* samples behind `last`; 0: none yet */
    enum ps_request request;
    uint64_t after, version;   /* it requests a copy after its push `after` and order `version` */
    struct ps_message copy_of; /* its offer to a recovered driver */
};

/* A shard's report to the clock in the present view. ps_recovery.c has the table of transitions. */
enum ps_stand_state {
    STAND_NONE,
    STAND_NEW,     /* it has a copy, and knows no orders */
    STAND_KNOWN,   /* it has carried out orders up to `version` */
    STAND_REPLAYS, /* likewise, and orders that it lacks are on their way */
    STAND_STATES,
};

struct ps_stand {
    enum ps_stand_state state;
    uint64_t version, history, sample_offset;
};

/* From UNSYNCED on a server has weights; from LEVELS on it knows which orders they contain.
 * ps_order.c has the table of transitions. */
enum ps_server_stage {
    SERVER_EMPTY,    /* it waits for a copy */
    SERVER_UNSYNCED, /* it has a copy, and does not know how far the orders are */
    SERVER_LEVELS,   /* the view has changed: other shards may be at other orders */
    SERVER_SERVES,   /* all shards are at one order, or follow the clock */
    SERVER_STAGES,
};

struct ps_server {
    struct world *world;
    struct group *group;
    const struct logger *log;
    struct arena own; /* memory of later clients; its own, since other tasks of the node
                         allocate, too */
    struct ps_server_config config;
    enum ps_server_stage stage;
    struct ps_sender sender;
    struct shard shard;
    struct shard_layout layout; /* of the state that workers keep for a driver */
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
    /* Of ps_recovery.c, when the view has changed: */
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

/* ops->driver: the one server of the model, until the run has ended. `config` is the strategy's
 * part. */
int ps_server_lead(struct driver_part *leader, const struct ps_server_config *config);

#endif
