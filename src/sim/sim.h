/* The simulated world (D3): a cluster of nodes in one process, in virtual time.
 *
 * Each node runs the same code as in the real world. Tasks are coroutines; exactly one runs at any
 * moment, and the next is the one whose wake-up has the smallest (virtual time, sequence number).
 * Arithmetic is real, only time is modelled: work takes its cost divided by the node's speed, and
 * messages flow through full-duplex links that flows share fairly. The same seed gives the same
 * run, event by event, whichever back end carries the tasks. */
#ifndef PL_SIM_SIM_H
#define PL_SIM_SIM_H

#include "base/logger.h"
#include "job/cluster.pb-c.h"
#include "world/world.h"

enum sim_backend {
    SIM_FIBRES, /* one OS thread, a guarded stack a task; under the thread sanitizer as SIM_BATON */
    SIM_BATON,  /* a thread a task, of which the one that holds the baton runs */
};

/* A fault of the cluster's file: reported when it happens. */
struct sim_fault {
    /* "join", "leave", "want", "kill", "back", "reset", "leap"; "slow", "clog", "pause", "part",
     * "mute", "shuffle", "starve", and the same with " ends" */
    const char *what;
    uint32_t node;
    double factor;
};

struct sim_options {
    const Paceline__Cluster *cluster; /* finished; borrowed until sim_free */
    uint32_t workers;                 /* nodes 0 … workers-1 exist, and the driver; others of the
                                         cluster are those that its script lets join */
    uint64_t seed;
    enum sim_backend backend;
    const struct logger *log;
    /* The main task of a node, which runs when the node starts: the driver at once, and again after
     * a kill if the script restarts it; a worker when want_nodes requests it. Its return ends the
     * node, and cancels the node's other tasks. */
    int (*node_main)(void *arg, struct world *w);
    void *arg;
    /* Number of the message kind that a delay's tag names; 0 for none. The top eight bits of a
     * message's tag are its kind. */
    uint32_t (*kind_of)(const char *name);
    void (*fault)(void *arg, const struct sim_fault *fault);
    /* Called after each event, for tests that check the state of all nodes. `node` is the node
     * whose task ran; WORLD_ANY: none. It may call sim_strike. NULL: no observer. */
    void (*observe)(void *arg, uint32_t node);
    /* sim_run returns when every node's main task has ended by itself, not only the driver's. */
    bool to_the_last;
    /* For tests: kill `kill_node` at the moment it hands its kill_send-th message, or send that it
     * posts (from 1; 0: never), to the world; that one is not sent. */
    uint32_t kill_node;
    uint64_t kill_send;
};

struct sim;

/* ERR_INPUT   the cluster has too few nodes, a delay names no kind
 * ERR_NOMEM */
int sim_create(const struct sim_options *options, struct sim **out, struct err *err);
void sim_free(struct sim *sim);

/* Run until the driver's main task has returned, and return its result. ERR_TIMEOUT: all tasks wait
 * and no event is left, or virtual time has passed `limit_ns`. */
int sim_run(struct sim *sim, int64_t limit_ns);

int64_t sim_now(const struct sim *sim);

/* A fault that is in no file happens now, whatever its `at`, and ends after its `for`. `kill` takes
 * the driver, too. `fault` is not kept. Between two events. ERR_INPUT: no such node; ERR_NOMEM */
int sim_strike(struct sim *sim, const Paceline__Fault *fault);

/* A hash over every resumption, delivery and fault with its virtual time: two runs that have the
 * same one took the same path. */
uint64_t sim_trace(const struct sim *sim);

/* Number of messages and posted sends of `node` so far, for tests that kill it at each. */
uint64_t sim_sent(const struct sim *sim, uint32_t node);

#endif
