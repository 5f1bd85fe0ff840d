/* The storm: seeds draw a strategy, a cluster and faults; a simulated run of a net of a thousand
 * parameters experiences them, and the invariants are checked at every event.
 *
 *   storm_plan.c     makes a plan from a seed            moment.c   the present activity of a node
 *   cluster.c  plays a plan                 strike.c   faults at their target moments
 *   storm_disk.c     the run's disk, which fills up   watch.c    invariants at every event
 *   exchange.c invariants of exchanges      storm_table.c    counts of faults by moment
 *   storm_server.c   invariants of parameter servers
 *   imposter.c       nodes that are not what they say
 *   main.c     seeds, processes, the verdict */
#ifndef PL_STORM_STORM_H
#define PL_STORM_STORM_H

#include "base/rng.h"
#include "coll/exchange.h"
#include "sim/sim.h"
#include "train/driver.h"
#include "train/worker.h"

#include <stdarg.h>
#include <stdio.h>

enum fault_kind {
    FAULT_CRASH,
    FAULT_RESTART, /* and a new incarnation connects */
    FAULT_PAUSE,   /* it stands still, as after SIGSTOP */
    FAULT_SLOW,
    FAULT_PARTITION, /* a network partition: some nodes receive nothing from the others */
    FAULT_ONE_WAY,   /* messages from one node to another are lost */
    FAULT_CLOG,      /* its link carries little */
    FAULT_DUPLICATE, /* its connection breaks, and it sends everything again over a new one */
    FAULT_REORDER,   /* its messages overtake others' and those of another class */
    FAULT_DISK_FULL,
    FAULT_DRIVER, /* the driver crashes, and returns, or the run resumes from its checkpoint */
    FAULT_FLOOD,  /* all waiting workers join at once */
    FAULT_SYNC,   /* the disk writes, and cannot sync */
    FAULT_WRONG,  /* it sends messages that the protocol does not allow, until it is disconnected */
    FAULT_TWIN,   /* a second incarnation of it says hello under its number */
    FAULT_OTHER,  /* a worker of another run joins */
    FAULT_LEAP,   /* its clock leaps forward, by up to two minutes */
    FAULTS
};

/* The activity of a node, or, where stated, of the cluster. */
enum moment {
    MOMENT_FORMS,        /* there is no view yet */
    MOMENT_TRAINS,       /* between exchanges */
    MOMENT_GATHERS,      /* its input is given, others' are not */
    MOMENT_REDUCES,      /* the vector is on its way */
    MOMENT_REPORTS,      /* a new view: it has reported its lane */
    MOMENT_ADOPTS,       /* a result is forwarded or fetched */
    MOMENT_WAITS,        /* a joiner waits for admission */
    MOMENT_DONATES,      /* a member that is a joiner's donor */
    MOMENT_JOIN_PENDING, /* an admitted joiner that may lack its donor's state */
    MOMENT_LEAVES,       /* asked to leave, and still a member */
    MOMENT_HANDS_OVER,   /* the loop has ended, the final model is on its way */
    MOMENT_SAVES,        /* the cluster: a checkpoint is being written */
    MOMENTS
};

extern const char *const fault_names[FAULTS], *const moment_names[MOMENTS];

/* Why a pair cannot be; NULL: it can. */
const char *table_impossible(enum fault_kind fault, enum moment moment);

struct table {
    uint64_t hits[FAULTS][MOMENTS];
    uint64_t seeds, faults, exchanges, events, resumed, returned, ended_by_name, lost,
        leaves; /* views with leaves */
};

void table_add(struct table *sum, const struct table *other);
/* Prints; how many pairs that can be have fewer than `least`. */
int table_print(const struct table *table, uint64_t least);

enum {
    STRIKES_MAX = 8,
    NODES_MAX = 12,
    LANES_WATCHED = 6,
    VIEWS_MAX = 128,
    STORM_TEXT_MAX = 1024,
};

struct strike {
    enum fault_kind fault;
    enum moment aim;
    uint64_t after; /* exchanges since the strike before */
    double lasts;   /* seconds */
    double returns; /* seconds until a new incarnation connects, also of the driver */
    double factor;
    uint32_t draw; /* which node of those that fit */
};

/* Two layers; a recurrent one, whose states streams carry; and two branches. */
enum ground_nets { NET_PLAIN, NET_RECURRENT, NET_BRANCHES, GROUND_NETS };

struct plan {
    uint64_t seed;
    const char *set[4]; /* the strategy and its settings; without a value: unset */
    bool joinable, frees, local_data;
    enum ground_nets net;
    bool pauses;   /* with fewer workers than at the start */
    bool stops;    /* the user stops it once these faults are over; else it ends by its steps */
    uint32_t last; /* the first strike that comes after the last step; `strikes`: none does */
    uint32_t workers, workers_max, standby, nodes;
    uint32_t slices; /* of the model; 0: it is whole on each worker */
    uint64_t steps;
    uint32_t strikes;
    struct strike strike[STRIKES_MAX];
    char cluster[STORM_TEXT_MAX];
};

/* `timing` > 0 draws links and jitter again: the same plan with other orders of messages. */
void plan_draw(struct plan *plan, uint64_t seed, uint64_t timing);
bool plan_has(const struct plan *plan, const char *text);
void plan_print(const struct plan *plan, FILE *out);
uint32_t plan_ways(void);

/* A node's entry into an exchange of a lane. */
struct entry {
    uint64_t n;
    uint32_t view; /* with which the lane was in line */
    double weight;
    uint64_t samples;
    size_t floats;
    float *input;
};

struct lane_watch {
    const struct exchange *e; /* NULL: not opened */
    const struct exchange *seen;
    uint64_t completed;
    struct entry entry[2]; /* by n & 1 */
};

/* The results of an exchange, by node. */
struct result {
    uint32_t lane;
    uint64_t n, hash, samples;
    uint32_t view;  /* the newest view in which a node committed it */
    uint64_t nodes; /* nodes that have it; bit NODES_MAX: the driver */
    uint32_t view_of[NODES_MAX + 1];
    struct result *next;
};

/* A shard of a parameter server, after an order. */
struct order_seen {
    uint64_t sample_offset, model; /* a hash of the model and the optimizer, */
    uint64_t history;              /* and of the pushes that were decided so far */
    uint64_t applied[NODES_MAX];   /* the newest decided push of each worker; 0: not a member */
};

struct shard_watch {
    struct order_seen *order; /* by version, from 1 on */
    uint64_t version, room;
    struct order_seen *undone; /* those from which it has gone back to a state */
    uint64_t undone_count;
    uint64_t decided[NODES_MAX]; /* of each worker, when it was last a member */
    bool continued;              /* from a state, */
    uint32_t view;               /* last in this view */
    uint32_t node;               /* that serves it */
};

enum { SHARDS_WATCHED = NODES_MAX };

struct server_watch {
    struct shard_watch shard[SHARDS_WATCHED];
    uint64_t pushed[NODES_MAX]; /* of each worker: its newest push, */
    uint64_t state[NODES_MAX];  /* and the version of the state that it keeps */
    /* The pushes in the newest state that was fetched for the final model, if one was. */
    uint64_t final[NODES_MAX];
    bool has_final;
};

struct view_seen {
    uint32_t number;
    uint64_t participants;
    uint64_t fresh; /* those that lack the state of their slice */
};

struct storm_node {
    const struct worker *worker;
    bool ran, dead, ended;
    int rc;
    const struct view *view;
    uint32_t view_number;
    uint64_t progress;
    struct lane_watch lane[LANES_WATCHED];
};

struct storm_disk {
    struct disk disk; /* first */
    struct world *world;
    struct sim *sim;
    double write_s; /* of virtual time a write takes */
    bool full, unsynced, writing;
    bool failed;       /* there was a fault, */
    int64_t failed_at; /* the last one: a write for want of space, or a sync */
};

struct ground;

struct storm {
    const struct plan *plan;
    struct ground *ground;
    struct sim *sim;
    struct table *table;
    FILE *trace; /* NULL: silent */
    bool resumes;
    const struct driver *driver;
    bool driver_dead, over;
    bool absent; /* it is dead, and to return */
    bool formed; /* the present driver has a view */
    int64_t died_at;
    uint32_t drivers;          /* that there have been */
    uint64_t exchanges_before; /* of those before this one */
    bool used_known;           /* a driver that had a view has died: when the run began */
    uint64_t used_before;      /* samples used at that time */
    bool went_backwards;       /* a run resumed from its checkpoint: later exchanges are void */
    struct members former;     /* nodes of the run before that */
    uint64_t strangers;        /* nodes that are workers of another run */
    struct storm_node node[NODES_MAX + 1]; /* the last is the driver's own lanes */
    struct view_seen view[VIEWS_MAX];
    uint32_t views;
    uint64_t lease_sum;     /* of the lease table at the last check */
    struct result *results; /* newest first */
    struct server_watch server;
    struct storm_disk disk;
    struct train_report report;
    struct err err;
    atomic_int leave[NODES_MAX], stop;
    /* strikes */
    uint32_t struck;
    bool staged;
    uint64_t exchanges, struck_at; /* committed; when the last fault struck */
    int64_t advanced;              /* when the newest of them was committed */
    int64_t calm;                  /* when the last fault ends */
    int64_t joining[NODES_MAX];    /* when a new incarnation connects; 0: never */
    uint64_t records;              /* of a step, */
    uint64_t taken;                /* and by all steps */
    bool lost_all;                 /* there was an empty view */
    bool incomplete;               /* the newest view has no whole replica of slices */
    bool forms_again; /* a driver that has returned has no view: a whole replica may have not */
    uint64_t events;
    struct train_options train;
    char broken[STORM_TEXT_MAX]; /* the first that does not hold; "": all does */
};

/* The first that is broken stands. */
__attribute__((format(printf, 2, 3))) void storm_break(struct storm *s, const char *format, ...);
__attribute__((format(printf, 2, 3))) void storm_report(struct storm *s, const char *format, ...);

/* State that all runs of a process share: the data and the net. */
struct ground {
    char folder[64];
    struct ground_net {
        Paceline__Job *job; /* without a strategy */
        struct corpus corpus;
        struct workspace *ws;
        struct vec dx;
    } net[GROUND_NETS];
    struct arena arena;
    struct logger log;
    bool loud;
};

void ground_open(struct ground *ground, bool loud);
void ground_close(struct ground *ground);

/* Play a plan to its end, and again from its checkpoint where the driver has died. true: all
 * invariants held; else `why` names the violated one. */
struct outcome {
    bool passed;
    char why[STORM_TEXT_MAX];
    uint64_t trace; /* hash */
};

void storm_play(struct ground *ground, const struct plan *plan, enum sim_backend backend,
                struct table *table, FILE *trace, struct outcome *out);

/* The activity of a worker, or of the driver (NODES_MAX). */
enum moment moment_of(const struct storm *s, uint32_t node);
/* The moment that all living nodes are in; MOMENTS: each is in its own, neither of these two. The
 * driver is alive. */
enum moment moment_of_all(const struct storm *s);
bool moment_alive(const struct storm *s, uint32_t node);
/* In the driver's roster; NULL: it has never said hello. The driver is alive. */
const struct roster_member *moment_member(const struct storm *s, uint32_t node);
/* Have loops ended, or is the final model on its way? The driver is alive. */
bool moment_run_ends(const struct storm *s);

/* After each event: something may be due to strike. */
void strike_if_scheduled(struct storm *s);
/* Has this worker said hello, so that there is somebody to double? */
bool imposter_has_original(const struct storm *s, uint32_t node);
/* A second incarnation of it speaks. true: the worker is disconnected for it. */
bool imposter_doubles(const struct storm *s, const struct strike *k, uint32_t node);
/* The main task of a worker of another run. */
int imposter_main(struct storm *s, struct world *world);

/* It is known how it ends. */
void strike_all_down(struct storm *s);

/* After each event. */
void watch_event(struct storm *s, uint32_t node);
void watch_exchanges(struct storm *s, uint32_t slot);
void watch_worker_end(struct storm *s, uint32_t node, int rc);
/* Each line of the run's events. */
void watch_line(struct storm *s, const char *line);
/* When the driver is about to go. */
void watch_ledger(struct storm *s);
/* The driver is killed; another one starts. */
void watch_driver_dies(struct storm *s);
void watch_driver_starts(struct storm *s);
void watch_end(struct storm *s, int rc);
void watch_release(struct storm *s);
void watch_server(struct storm *s, const struct ps_server *server, bool recovered);
void watch_client(struct storm *s, uint32_t node, const struct ps_client *client);
/* The run has ended well: its model is kept. */
void watch_servers_end(struct storm *s);

/* Another run begins; or all is over. */
void watch_servers_release(struct storm *s);
/* The participants of a view. */
uint64_t watch_view(const struct storm *s, uint32_t number, bool *known);

void storm_disk_init(struct storm_disk *disk);

/* A number below `below` from the seed; each draw is the next. */
struct dice {
    uint64_t seed, n;
};

static inline uint32_t dice_roll(struct dice *d, uint32_t below)
{
    return (uint32_t)(rng_u64(d->seed, 0x5707, d->n++) % below);
}

static inline double dice_real(struct dice *d, double from, double to)
{
    return from + (to - from) * (double)dice_roll(d, 1 << 20) / (1 << 20);
}

#endif
