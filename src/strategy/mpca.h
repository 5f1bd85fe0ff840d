/* How `mpca` overlaps with training: a task a lane, which carries out the exchanges of one shard,
 * one after another, as the lane's turns come (coll/stages.h). Private to mpca*.c.
 *
 * Between a worker's training and its lanes there are two things for each shard. The slot holds the
 * next contribution: training fills it at a step boundary, the lane takes it when its turn comes.
 * `arrived` says which x̃* is there to be adopted; it stays where the exchange left it. Neither
 * side ever waits for the other, but a lane for a contribution, for the time of two steps. */
#ifndef PL_STRATEGY_MPCA_H
#define PL_STRATEGY_MPCA_H

#include "coll/exchange.h"
#include "strategy/mpca_rules.h"
#include "strategy/strategy.h"

enum { SIGNAL_MPCA = 4, MPCA_COSTS = 16 }; /* signals below are others' (data/loader.h) */

enum mpca_slot_state { SLOT_EMPTY, SLOT_REQUESTED, SLOT_READY };

struct mpca_slot {
    struct vec x; /* x_s as it was; behind the last shard, s */
    uint64_t tau;
    _Atomic int state;
    _Atomic uint64_t turn;     /* the tick for which it is filled next */
    _Atomic uint64_t returned; /* τ of contributions that did not count */
};

/* The state from which a node prepares its part of a shard's joint model. Ranges are of the lane's
 * vector. */
struct mpca_part {
    struct mpca_joint joint;
    struct vec s, s_next; /* s̃, behind the last shard */
    struct range owned;   /* where `joint.now` and `s` are those of the last cycle */
    struct range prepared;
};

struct mpca_lane {
    struct mpca_node *node;
    struct exchange exchange;
    struct range r; /* of x; behind the last shard's come n_s floats of s */
    size_t n_s;
    struct task *task;
    _Atomic int status; /* OK as long as the task runs */
    struct mpca_slot slot;
    struct mpca_part part;
    /* Where the driver prepares: ṽ_s as worked out from what it broadcasts, and behind it the γ
     * that made the last x̃*; for a driver that returns. A joiner's begins at 0, and nears the
     * others' from exchange to exchange. */
    struct vec heading;
    atomic_bool joined;       /* how far it is is known, and its x̃* is there */
    atomic_bool prepared;     /* driver: completed, and its main task is to move the joint model */
    _Atomic uint64_t arrived; /* exchange whose result may be adopted */
    _Atomic uint64_t reading; /* that is being copied out of result[reading - 1]; 0: none is */
    struct exchange_cost cost[MPCA_COSTS]; /* of exchange n in [n % MPCA_COSTS] */
    /* Training's own: */
    uint64_t tau;
    uint64_t c;        /* the exchange that made x̃*_s */
    uint64_t reported; /* the last one told of */
    int64_t adopted_at;
    struct mpca_pace cycles; /* ns */
    bool stale;
};

/* A worker, or the driver. */
struct mpca_node {
    struct world *world;
    struct group *group;
    struct mpca_config config;
    int threads; /* that a lane computes with; 0: the job's */
    bool worker, prepares;
    const struct vec *v; /* ṽ to begin with; on the driver it moves, too. NULL: 0, and each lane's
                            own */
    bool joins;          /* a worker that has come to a run under way, or a driver that is back */
    struct stages stages;
    struct mpca_lane *lane;
    uint32_t lanes;
    atomic_bool stopped;        /* training has ended: nothing is contributed any more */
    _Atomic int64_t step_ns;    /* median of this worker's */
    _Atomic int64_t typical_ns; /* of all who take part: their number over the sum of their rates */
    struct mpca_pace ticks;     /* ns; of the lane whose turn it is */
    _Atomic uint64_t tick;      /* the last that began here, */
    _Atomic int64_t tick_at, tick_ns; /* when, and how long one takes: 0 before the second */
};

/* Lanes for all shards, from the settings; x and s are the joint model to begin with, and move with
 * it where `node->prepares` as the driver. `completed`: exchanges of each lane. ERR_NOMEM */
int mpca_node_init(struct mpca_node *node, const Paceline__Job *job, struct vec *x, struct vec *s,
                   uint64_t completed, struct arena *arena);

/* Start the lanes' tasks; end them, and give back what they hold (zeroed: nothing to do). */
int mpca_node_start(struct mpca_node *node);
void mpca_node_close(struct mpca_node *node);

/* OK, or what ended a lane. */
int mpca_node_status(const struct mpca_node *node);

/* Driver's main task: the joint model moves to what the lane's last exchange broadcast. */
void mpca_lane_commit(struct mpca_lane *lane);

/* exchange_config.prepare; `user` is the lane. */
int mpca_lane_prepare(void *user, struct range range, float *x, const struct exchange_meta *meta);

/* The part of a joint model that lies in a lane: x_s and s behind it; `own`: with memory of its own
 * instead of theirs. */
int mpca_part_init(struct mpca_lane *lane, struct vec *x, struct vec *s, bool own,
                   struct arena *arena);
void mpca_part_commit(struct mpca_lane *lane);

/* Of a driver that has returned, its lane being known: the joint model is what x̃* and
 * lane->heading, which a worker handed it, say. */
void mpca_part_take_up(struct mpca_lane *lane);

/* Of a worker: an exchange has been completed; lane->heading moves with it. Returns the status of
 * world_copied */
int mpca_part_follow(struct mpca_lane *lane);

#endif
