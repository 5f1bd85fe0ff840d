/* How `mpca` overlaps with training: each lane has a task, which does the exchanges of one shard,
 * one after another, at the lane's turns (coll/stages.h). Private to mpca*.c.
 *
 * A worker's training and its lanes share two things for each shard. The slot holds the next
 * contribution: training fills it at a step boundary, the lane takes it at its turn. `arrived` is
 * the exchange whose x̃* may be adopted, from the exchange's memory. Neither waits for the other,
 * except a lane for a contribution, for the time of two steps. */
#ifndef PL_STRATEGY_MPCA_H
#define PL_STRATEGY_MPCA_H

#include "coll/exchange.h"
#include "coll/transfer.h"
#include "strategy/mpca_rules.h"
#include "strategy/strategy.h"

enum { SIGNAL_MPCA = 4, MPCA_COSTS = 16 }; /* signals below are others' (data/loader.h) */

#define MPCA_NONE UINT64_MAX /* no exchange */

enum mpca_slot_state { SLOT_EMPTY, SLOT_REQUESTED, SLOT_READY };

struct mpca_slot {
    struct vec x; /* the copied x_s; in the last shard, followed by s */
    uint64_t tau;
    _Atomic int state;
    _Atomic uint64_t turn;     /* the tick for which it is filled next */
    _Atomic uint64_t returned; /* τ of contributions that did not count */
};

/* The state from which a node prepares its part of a shard's global model. Ranges are of the lane's
 * vector. */
struct mpca_part {
    struct mpca_joint joint;
    struct vec s, s_next; /* s̃, in the last shard */
    struct range owned;   /* where `joint.now` and `s` are those of the last exchange */
    struct range prepared;
};

struct mpca_lane {
    struct mpca_node *node;
    struct exchange exchange;
    struct range r; /* of x; in the last shard, n_s floats of s follow */
    size_t n_s;
    struct task *task;
    _Atomic int status; /* OK as long as the task runs */
    struct mpca_slot slot;
    struct mpca_part part;
    /* ṽ_s, computed from the broadcasts, followed by the γ of the last x̃*: for a
     * recovered driver, the next owner of a part, and copies of x̃. Of exchange n in
     * [n & 1], with its result; if the driver prepares, both are one. From the driver a
     * joiner receives none: its own begins at 0, and approaches that of the others. */
    struct vec heading[2];
    bool in_line;   /* the task's own: it knows the number of the last exchange */
    bool as_leaf;   /* and it does what a leaf does */
    uint64_t given; /* τ of this node's own contribution to the exchange under way */
    struct transfers transfers;
    atomic_bool prepared;     /* driver: completed, and its main task is to move the global model */
    _Atomic uint64_t arrived; /* exchange whose result may be adopted; MPCA_NONE: none may be */
    _Atomic uint64_t report_from; /* earlier exchanges were not completed here */
    _Atomic uint64_t reading;     /* that is being copied out of result[reading - 1]; 0: none is */
    struct exchange_cost cost[MPCA_COSTS]; /* of exchange n in [n % MPCA_COSTS] */
    /* Training's own: */
    uint64_t tau;
    uint64_t c;        /* the exchange that made x̃*_s; MPCA_NONE: a joiner has none yet */
    uint64_t reported; /* the last one reported */
    int64_t adopted_at;
    float gamma;             /* γ of the result that was adopted last; 0: none was */
    struct mpca_pace cycles; /* ns */
    bool stale;
};

/* Has the exchange counted a contribution? A contribution that did not count gives its τ back. If a
 * new view makes this node a leaf, others may have completed the exchange without it: then the
 * contribution is dropped, because no step counts twice. */
enum mpca_count { NOT_COUNTED, COUNTED, MAY_HAVE_COUNTED };

/* EMPTY → READY (its task has received a contribution) → TAKEN (its lane has added it to its own) →
 * DONE (that exchange is complete, and x is its result) → EMPTY (the leaf has the result). From
 * TAKEN back to READY, if the exchange did not count it, or to EMPTY, if it may have. */
enum mpca_proxy_state { PROXY_EMPTY, PROXY_READY, PROXY_TAKEN, PROXY_DONE, PROXY_STATES };

/* The header of a result, from a proxy to its leaf; all fields are eight bytes wide. */
struct mpca_leaf_result {
    uint64_t exchange;
    int64_t took, cycle; /* ns: for the contribution to arrive; a cycle of the proxy */
    struct exchange_meta meta;
};

/* A member's part as proxy of a leaf (mpca_leaf.c). */
struct mpca_proxy {
    struct task *task;
    _Atomic uint32_t state; /* with the lane of the contribution (mpca_leaf.c: state_of) */
    _Atomic int status;
    struct vec x; /* as long as the longest lane's */
    uint64_t tau;
    struct mpca_leaf_result result;
    /* Its task's own: */
    struct transfers transfers;
    struct transfer in, out;
    int64_t begun;
    uint32_t leaf, view, lane;
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
    bool joins;          /* a joiner of a run under way, or a recovered driver */
    struct stages stages;
    struct mpca_lane *lane;
    uint32_t lanes;
    struct mpca_proxy proxy;
    /* On a leaf: the lane that exchanges with the proxy, and what the others of this round took. */
    _Atomic uint32_t leaf_lane;
    int64_t leaf_sent, leaf_received; /* ns; -1: one has failed */
    atomic_bool stopped;              /* training has ended: nothing is contributed any more */
    _Atomic int64_t step_ns;          /* median of this worker's */
    _Atomic int64_t typical_ns; /* of all participants: their number over the sum of their rates */
    struct mpca_pace ticks;     /* ns; of the current lane */
    _Atomic uint64_t tick;      /* the last that began here, */
    _Atomic int64_t tick_at, tick_ns; /* when, and how long one takes: 0 before the second */
};

/* Lanes for all shards, from the settings; x and s are the global model to begin with, and move
 * with it where `node->prepares` as the driver. `completed`: exchanges of each lane. ERR_NOMEM */
int mpca_node_init(struct mpca_node *node, const Paceline__Job *job, struct vec *x, struct vec *s,
                   uint64_t completed, struct arena *arena);

/* Start the lanes' tasks; end them, and release their memory (zeroed: nothing to do). */
int mpca_node_start(struct mpca_node *node);
void mpca_node_close(struct mpca_node *node);

/* Wait until `holds` (NULL: for ever); meanwhile send this lane's last result to members that lack
 * it. ERR_VIEW: this node has become a leaf, or is none any more */
int mpca_await(struct mpca_lane *lane, bool (*holds)(const struct mpca_lane *lane),
               int64_t deadline);

/* Training adopts no result of this lane until `arrived` is set again: results are overwritten. */
int mpca_withhold(struct mpca_lane *lane);

/* OK, or the error that ended a lane. */
int mpca_node_status(const struct mpca_node *node);

/* Driver's main task: the global model moves to what the lane's last exchange broadcast. */
void mpca_lane_commit(struct mpca_lane *lane);

/* exchange_config.prepare; `user` is the lane. */
int mpca_lane_prepare(void *user, struct range range, float *x, const struct exchange_meta *meta);

/* A lane's part of a global model: x_s, then s; `own`: with memory of its own instead of theirs. */
int mpca_part_init(struct mpca_lane *lane, struct vec *x, struct vec *s, bool own,
                   struct arena *arena);
void mpca_part_commit(struct mpca_lane *lane);

/* On a recovered driver whose lane is known: compute the global model from x̃* and lane->heading,
 * which a worker has sent. */
void mpca_part_take_up(struct mpca_lane *lane);

/* Its part of a model, x and then s. */
static inline struct range mpca_range(const struct mpca_lane *lane)
{
    return (struct range){lane->r.from, lane->r.len + lane->n_s};
}

/* ṽ_s and γ as of the last exchange completed here; n 0: not computed on this node. */
static inline struct vec *mpca_heading(struct mpca_lane *lane)
{
    return &lane->heading[lane->exchange.completed & 1];
}

/* Of a worker: an exchange has been completed; lane->heading moves with it. Returns the status of
 * world_copied */
int mpca_part_follow(struct mpca_lane *lane);

/* ---- leaves (mpca_leaf.c) ---- */

/* One exchange of a leaf's lane with its proxy. ERR_VIEW: this node is no leaf any more */
int mpca_leaf_turn(struct mpca_lane *lane);

/* The proxy's task; its memory was reserved by mpca_node_init. */
int mpca_proxy_start(struct mpca_node *node);

/* The proxy adds the contribution of its leaf, if there is one for this lane, to the input of the
 * lane, of which `own` is the weight so far; returns the weight of both. */
uint64_t mpca_proxy_add(struct mpca_lane *lane, uint64_t own);

/* The exchange with that contribution is over. */
void mpca_proxy_close(struct mpca_lane *lane, enum mpca_count count);

#endif
