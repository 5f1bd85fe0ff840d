/* Strategies that train while shards of the model are exchanged, `mpca` and `pace`: each lane has a
 * task, which does the exchanges of one shard, one after another, at the lane's turns
 * (coll/stages.h). The files phased_*.c serve both; `struct phased_rule` is what they differ in.
 * Symbols are those of mpca_rules.h.
 *
 * A worker's training and its lanes share two things for each shard. The slot holds the next
 * contribution: training fills it at a step boundary, the lane takes it at its turn. `arrived` is
 * the exchange whose x̃* may be adopted. Training adopts it where it lies: of three vectors, one is
 * the newest result, one the next, and training may hold the third. Neither waits for the other,
 * except a lane for a contribution, for the time of two steps. */
#ifndef PL_STRATEGY_PHASED_H
#define PL_STRATEGY_PHASED_H

#include "coll/exchange.h"
#include "coll/transfer.h"
#include "strategy/mpca_rules.h"
#include "strategy/pace_rules.h"
#include "strategy/strategy.h"

/* Signals below are others' (data/loader.h). That of a lane's turn is SIGNAL_PHASED_TURN + lane. */
enum { SIGNAL_PHASED = 4, SIGNAL_PHASED_TURN, PHASED_COSTS = 16 };

#define PHASED_NONE UINT64_MAX /* no exchange */

enum phased_slot_state { SLOT_EMPTY, SLOT_REQUESTED, SLOT_READY };

struct phased_slot {
    struct vec x; /* the copied x_s; in the last shard, followed by s */
    uint64_t tau;
    _Atomic int state;
    atomic_bool last;          /* the lane asks for what is left, or for the word that nothing is */
    uint64_t base;             /* the exchange whose result training had adopted before */
    bool progress;             /* x is a leaf's progress beyond its x̃*, not its model */
    _Atomic uint64_t turn;     /* the tick for which it is filled next */
    _Atomic uint64_t returned; /* τ of contributions that did not count */
    /* The exchange that counted the last contribution; 0: it was dropped; PHASED_NONE: not known
     * yet, or returned. */
    _Atomic uint64_t counted;
};

/* The state from which a node prepares its part of a shard's global model. Ranges are of the lane's
 * vector. */
struct phased_part {
    struct mpca_joint joint;
    struct vec s, s_next; /* s̃, in the last shard */
    struct range owned;   /* where `joint.now` and `s` are those of the last exchange */
    struct range prepared;
};

struct phased_lane {
    struct phased_node *node;
    struct exchange exchange;
    struct range r; /* of x; in the last shard, n_s floats of s follow */
    size_t n_s;
    struct task *task;
    _Atomic int status; /* OK as long as the task runs */
    struct phased_slot slot;
    struct phased_part part;
    /* ṽ_s, computed from the broadcasts, followed by the γ of the last x̃*, and its leap: for a
     * recovered driver, the next owner of a part, and copies of x̃. Of exchange n in
     * [n & 1], with its result; if the driver prepares, both are one. From the driver a
     * joiner receives none: its own begins at 0, and approaches that of the others. */
    struct vec heading[2];
    struct pace_leap leap; /* of the last exchange completed here */
    bool in_line;          /* the task's own: it knows the number of the last exchange */
    bool as_leaf;          /* and it does what a leaf does */
    uint64_t given;        /* τ of this node's own contribution to the exchange under way */
    struct transfers transfers;
    uint64_t flushing;        /* node->asked before this exchange began; 0: it is no flush */
    _Atomic uint64_t flushed; /* that of the last flush which copies of the model contain */
    atomic_bool prepared;     /* driver: completed, and its main task is to move the global model */
    atomic_bool closed;       /* the last exchange of all is complete here */
    _Atomic uint64_t arrived; /* exchange whose result may be adopted; PHASED_NONE: none may be */
    _Atomic uint64_t report_from; /* earlier exchanges were not completed here */
    _Atomic uint64_t reading;     /* that is being read in result[reading - 1]; 0: none is */
    _Atomic(const float *) held;  /* the memory of `star`, which nobody writes */
    struct vec spare;             /* for a result, in the place of the one that training holds */
    struct vec before;            /* the result before the newest, until the next exchange */
    struct exchange_cost cost[PHASED_COSTS]; /* of exchange n in [n % PHASED_COSTS] */
    /* Training's own: */
    uint64_t tau;
    uint64_t c;        /* the exchange that made x̃*_s; PHASED_NONE: a joiner has none yet */
    uint64_t reported; /* the last one reported */
    struct vec star;   /* x̃*_s, then s̃, as adopted: a result */
    bool pending;      /* `pace`: a contribution was made whose end training does not know yet */
    /* `mpca`: of the result that was adopted last */
    int64_t adopted_at;
    struct mpca_times cycles; /* ns */
    bool stale;
};

/* Has the exchange counted a contribution? One that did not count gives its τ back. If a
 * new view makes this node a leaf, others may have completed the exchange without it: then the
 * contribution is dropped, because no step counts twice. */
enum phased_count { NOT_COUNTED, COUNTED, MAY_HAVE_COUNTED };

/* EMPTY → READY (its task has received a contribution) → TAKEN (its lane has added it to its own) →
 * DONE (that exchange is complete, and x is its result) → EMPTY (the leaf has the result). From
 * TAKEN back to READY, if the exchange did not count it, or to EMPTY, if it may have. */
enum phased_proxy_state { PROXY_EMPTY, PROXY_READY, PROXY_TAKEN, PROXY_DONE, PROXY_STATES };

/* The header of a result, from a proxy to its leaf; all fields are eight bytes wide. */
struct phased_leaf_result {
    uint64_t exchange;
    int64_t took, cycle; /* ns: for the contribution to arrive; a cycle of the proxy */
    struct exchange_meta meta;
};

/* A member's part as proxy of a leaf (phased_leaf.c). */
struct phased_proxy {
    struct task *task;
    _Atomic uint32_t state; /* with the lane of the contribution (phased_leaf.c: state_of) */
    _Atomic int status;
    struct vec x; /* as long as the longest lane's */
    uint64_t tau;
    struct phased_leaf_result result;
    /* Its task's own: */
    struct transfers transfers;
    struct transfer in, out;
    int64_t begun;
    uint32_t leaf, view, lane;
};

struct phased_settings {
    struct mpca_config config; /* how the global model moves: Eq. 4, 5, 8 and 9 */
    struct pace_settings pace; /* of pace */
    uint32_t shards, phases;
    bool symmetric;     /* every worker prepares a part of each shard, not the driver all of it */
    bool on_arrival;    /* workers adopt a result as soon as it is there, not in turn */
    bool own_vector;    /* the rule needs worker->own */
    bool leaf_progress; /* a leaf sends its progress beyond x̃*, not its model, which is behind */
    bool equal;         /* contributions have the same weight, whatever the steps behind them */
    bool states;        /* workers keep what they contribute (exchange_config.states) */
    uint32_t give_passes, adopt_passes; /* of training over a shard, as a copy makes one */
};

struct phased_worker;

/* The rule of a strategy. */
struct phased_rule {
    struct phased_settings (*settings)(const Paceline__Job *job);
    /* (optional) How the global model moves in an exchange with that outcome; else as the settings'
     * config says. */
    struct mpca_config (*steer)(const struct phased_settings *set, const struct exchange_meta *meta,
                                const struct pace_leap *before);
    /* (optional) With `steer`: l and P of that exchange, for the next one. */
    struct pace_leap (*leap)(const struct phased_settings *set, const struct exchange_meta *meta,
                             const struct pace_leap *before);
    /* Training adopts `result`, of exchange n; lane->star still is that of lane->c. */
    void (*adopt)(struct phased_worker *w, struct phased_lane *lane, uint64_t n,
                  const struct vec *result);
    /* (optional) The learner's x_s has just been copied into the slot. */
    void (*give)(struct phased_worker *w, struct phased_lane *lane);
    /* (optional) A contribution has been dropped: it may have counted. */
    void (*drop)(struct phased_worker *w, struct phased_lane *lane);
    /* (optional) The lane is about to send the contribution in the slot. False: it is too old, and
     * is returned. */
    bool (*renew)(struct phased_lane *lane);
    /* Train one step at this sample offset. Errors of learner_step. */
    int (*step)(struct phased_worker *w, struct stretch share);
};

/* A worker, or the driver. */
struct phased_node {
    struct world *world;
    struct group *group;
    const struct phased_rule *rule;
    struct phased_settings settings;
    int threads; /* that a lane computes with; 0: the job's */
    bool worker, prepares;
    const struct vec *v; /* ṽ to begin with; on the driver it moves, too. NULL: 0, and each lane's
                            own */
    bool joins;          /* a joiner of a run under way, or a recovered driver */
    struct stages stages;
    struct phased_lane *lane;
    uint32_t lanes;
    struct phased_proxy proxy;
    /* On a leaf: the lane that exchanges with the proxy, and what the others of this round took. */
    _Atomic uint32_t leaf_lane;
    int64_t leaf_sent, leaf_received; /* ns; -1: one has failed */
    /* Flushes that have been asked for, and those that are over: till then every exchange is one.
     * `flush`: training's, or the driver's main task's. */
    _Atomic uint64_t asked, answered;
    struct strategy_flush flush;
    _Atomic int64_t flush_ns;   /* that exchanges took in the one asked for here, without waits */
    atomic_bool ended;          /* training takes no step any more: lanes wait for no contribution
                                   but that to their last exchange */
    atomic_bool stopped;        /* training makes no contribution any more */
    _Atomic int64_t step_ns;    /* median of this worker's */
    _Atomic int64_t typical_ns; /* of all participants: their number over the sum of their rates */
    struct mpca_times ticks;    /* ns; of the current lane */
    _Atomic uint64_t tick;      /* the last that began here, */
    _Atomic int64_t tick_at, tick_ns; /* when, and how long one takes: 0 before the second */
};

/* Training and what it shares with its lanes. */
struct phased_worker {
    struct phased_node node;
    struct member *m;
    struct vec joint, s, v; /* symmetric: x̃, s̃ and ṽ, computed when a copy is wanted */
    /* As long as x, of the rule. mpca: scratch memory for Eq. 6. pace: of pending contributions,
     * x_s as it was sent. */
    struct vec own;
    struct mpca_times steps;
    bool restarted; /* no step has ended well since this worker started over */
    /* When training has ended: the sum of the lanes' exchanges, and when it changed last. */
    int64_t arrived_at;
    uint64_t arrived;
    /* Of checks of the links: when one was requested, in which view, and the cycle before it. */
    int64_t checked_at;
    uint32_t checked_in;
    uint64_t checked_cycle;
};

extern const struct phased_rule mpca_rule, pace_rule;
const struct phased_rule *phased_rule(const Paceline__Job *job);

/* The functions of strategy_ops. */
int phased_configure(const Paceline__Job *job, struct strategy_traits *traits, struct err *err);
int phased_worker(struct member *m);
void phased_close(struct member *m);
int phased_collect(struct member *m);
bool phased_last_model(struct member *m, uint64_t *version);
int phased_driver(struct driver_part *l);

/* ---- lanes (phased_lane.c) ---- */

/* Lanes for all shards, from the settings; x and s are the global model to begin with, and move
 * with it where `node->prepares` as the driver. `exchanges`: of all lanes, completed before the run
 * resumed: each continues with its number, and so with its schedules. ERR_NOMEM */
int phased_node_init(struct phased_node *node, const Paceline__Job *job, struct vec *x,
                     struct vec *s, uint64_t exchanges, struct arena *arena);

/* Start the lanes' tasks; end them; the same, and release their memory (zeroed: nothing to do). */
int phased_node_start(struct phased_node *node);
void phased_node_stop(struct phased_node *node);
void phased_node_close(struct phased_node *node);

/* Wait until `holds` (NULL: for ever); meanwhile send this lane's last result to members that lack
 * it. ERR_VIEW: this node has become a leaf, or is none any more */
int phased_await(struct phased_lane *lane, bool (*holds)(const struct phased_lane *lane),
                 int64_t deadline);

/* Training adopts no result of this lane until `arrived` is set again: results are overwritten. */
int phased_withhold(struct phased_lane *lane);

/* Training reads no result but the newest any more: what is written next is not what it holds. */
void phased_spare_held(struct phased_lane *lane);

/* OK, or the error that ended a lane. */
int phased_node_status(const struct phased_node *node);

/* The last exchanges of all lanes are complete here. */
bool phased_closed(const struct phased_node *node);

/* With a wire that owes: the lanes flush before a checkpoint, which is `due`. Returns whether it
 * must wait for them. */
bool phased_owes(struct phased_node *node, bool due);

/* Driver's main task: the global model moves to what the lane's last exchange broadcast. */
void phased_lane_commit(struct phased_lane *lane);

/* exchange_config.prepare; `user` is the lane. */
int phased_lane_prepare(void *user, struct range range, float *x, const struct exchange_meta *meta);

/* A lane's part of a global model: on the driver, x_s and s themselves. ERR_NOMEM */
int phased_part_init(struct phased_lane *lane, struct vec *x, struct vec *s, struct arena *arena);
void phased_part_commit(struct phased_lane *lane);

/* On a recovered driver whose lane is known: compute the global model from x̃* and lane->heading,
 * which a worker has sent. */
void phased_part_take_up(struct phased_lane *lane);

/* A contribution of this node is over. */
void phased_settle(struct phased_lane *lane, uint64_t tau, enum phased_count count);

/* Before the contribution in the slot is sent: false if it was too old, and has been returned. */
bool phased_renew(struct phased_lane *lane);

/* Its part of x or of a vector as long, and of a result. */
static inline struct vec phased_shard(const struct phased_lane *lane, const struct vec *x)
{
    return vec_part(x, lane->r.from, lane->r.len);
}

/* Its part of a model, x and then s. */
static inline struct range phased_range(const struct phased_lane *lane)
{
    return (struct range){lane->r.from, lane->r.len + lane->n_s};
}

/* The floats behind ṽ_s in a heading. */
enum {
    HEADING_GAMMA,
    HEADING_LEAP_STEPS,
    HEADING_LEAP_PERIOD,
    HEADING_LEAP_TRAINED,
    HEADING_EXTRAS
};

/* ṽ_s and what follows, of the last exchange completed here; n 0: not computed on this node. */
static inline struct vec *phased_heading(struct phased_lane *lane)
{
    return &lane->heading[lane->exchange.completed & 1];
}

/* An exchange has been completed: lane->leap moves with it, and a worker's lane->heading. Returns
 * the status of world_copied */
int phased_part_follow(struct phased_lane *lane);

/* This lane has received its heading from another. */
void phased_part_take_leap(struct phased_lane *lane);

/* How the global model moves in an exchange with that outcome. */
struct mpca_config phased_steer(const struct phased_lane *lane, const struct exchange_meta *meta);

/* ---- leaves (phased_leaf.c) ---- */

/* One exchange of a leaf's lane with its proxy. ERR_VIEW: this node is no leaf any more */
int phased_leaf_turn(struct phased_lane *lane);

/* The proxy's task; its memory was reserved by phased_node_init. */
int phased_proxy_start(struct phased_node *node);

/* The proxy adds the contribution of its leaf, if there is one for this lane, to the input of the
 * lane, of which `own` is the weight so far; returns the weight of both. */
uint64_t phased_proxy_add(struct phased_lane *lane, uint64_t own);

/* The exchange with that contribution is over. */
void phased_proxy_close(struct phased_lane *lane, enum phased_count count);

#endif
