/* Shared variables: all-reduces of which tasks, not members, are the parts (Elastic §4.2, Alg. 2).
 *
 * A member's side is a service task, which keeps what this node's tasks have submitted and speaks
 * with the coordinator's book (tasks.h), and a task for each lane, which reduces what the book has
 * given to this node and does the lane's exchanges (exchange.h) one after another. Calls hand over
 * to the service by an atomic list and never wait for it, but to make a variable. Results are kept
 * for some rounds, where any number of callers may read them.
 *
 * The exchange's commit rule makes a result all members' or nobody's. Its exchange metadata says
 * how many tasks are in it: fewer than there should be, and it is void for all alike, and the round
 * is collected again by the book. */
#ifndef PL_COLL_SHARED_VARS_H
#define PL_COLL_SHARED_VARS_H

#include "coll/exchange.h"
#include "coll/tasks.h"
#include "group/master_service.h"

enum {
    SHARED_KEPT = 3,  /* rounds: the one under way, and two results */
    SHARED_AHEAD = 8, /* rounds that may be submitted to, from the first that is not done here */
};

enum shared_signal { SIGNAL_SHARED = 2, SIGNAL_RESULT = 3, SIGNAL_LANE = 4 /* … + lane */ };

/* ---- a member ---- */

/* The slot for the result of every SHARED_KEPT-th round. A reader increments the count of readers
 * before it looks. A writer first marks the slot as empty, then waits until there are no readers.
 */
struct shared_slot {
    _Atomic uint64_t holds; /* round + 1; 0: nothing */
    _Atomic uint32_t readers;
    float *x;
};

struct shared_var {
    struct shared *shared;
    uint32_t id;
    struct tasks_spec spec;
    struct reduction reduction;
    _Atomic uint64_t done; /* rounds below have ended here */
    struct shared_slot slot[SHARED_KEPT];
    /* The service's: rounds below `closed` are over. Submissions to later rounds, by round %
     * SHARED_AHEAD and task; NULL: this node has no tasks. */
    uint64_t closed;
    const float **vector;
    float *local; /* the lane's: this node's tasks together */
};

struct shared_lane {
    struct shared *shared;
    struct task *task; /* NULL: not used yet */
    struct inbox jobs;
    struct exchange exchange;
};

struct shared {
    struct group *group;
    enum coll_algorithm algorithm; /* COLL_AUTO, unless changed before the first round, on all */
    size_t chunk;                  /* floats of a piece; likewise */
    struct task *service;
    struct inbox inbox;
    void *open_requests; /* the service's: open requests for variables */
    _Atomic uint64_t requests;
    _Atomic uint32_t voids; /* void exchanges, which were repeated */
    atomic_bool may_leave;
    struct arena arena; /* nothing but the lanes' empty vectors */
    struct shared_lane lane[TASKS_LANES];
    struct shared_var *var[TASKS_VARS_MAX]; /* the service's, by number */
};

/* Begin to serve, in a group that has its first view. ERR_NOMEM */
int shared_start(struct shared *shared, struct group *group);

/* End the service, after all rounds that contain this node's tasks have ended on all members. No
 * call may be under way. Frees all variables. */
void shared_stop(struct shared *shared);

/* Make the variable, or find it made: spec and reduction must be what they were. Asks the
 * coordinator and waits for its answer. `reduction` of TASKS_USER: called from lanes and I/O
 * threads until shared_stop. Valid until shared_stop.
 * ERR_USAGE (it is another elsewhere, there are too many), ERR_DRIVER, ERR_NOMEM, ERR_CANCELLED */
int shared_init(struct shared *shared, const struct tasks_spec *spec,
                const struct reduction *reduction, struct shared_var **out, struct err *err);

/* Hand in x (spec.n floats, borrowed until the round has ended here) as this round's part of a
 * task. Never blocks. A task that this node has handed in already is passed over, as are rounds
 * that are done. ERR_USAGE (no such task, a round too far ahead, no vector), ERR_DRIVER, ERR_NOMEM
 */
int shared_submit(struct shared_var *var, uint64_t round, uint32_t task, const float *x,
                  struct err *err);

/* The first round that has not ended here. */
uint64_t shared_round(const struct shared_var *var);

/* 1: the result is there; 0: not yet; ERR_NOT_FOUND: no longer; ERR_DRIVER: it will never be */
int shared_poll(struct shared_var *var, uint64_t round, struct err *err);

/* Wait for the result and copy it out (NULL: only wait).
 * ERR_TIMEOUT, ERR_NOT_FOUND (no longer kept), ERR_DRIVER, ERR_CANCELLED */
int shared_get(struct shared_var *var, uint64_t round, float *out, int64_t deadline,
               struct err *err);

/* ---- the coordinator ---- */

struct shared_host {
    struct master master;
    struct task_table table;
    struct tasks_orders orders;
};

/* Start the coordinator's task. `host` is large. ERR_NOMEM */
int shared_host_start(struct shared_host *host, struct group *group);
void shared_host_stop(struct shared_host *host);

#endif
