/* A simulated team whose members play a part with shared variables while the cluster's faults
 * happen; the trial records each member's result of each round and compares it with sums computed
 * here. */
#ifndef PL_LIB_SHARED_TRIAL_H
#define PL_LIB_SHARED_TRIAL_H

#include "coll/team_call.h"
#include "job/cluster.h"
#include "sim/sim.h"
#include "sim_cluster.h"
#include "tensor/kernels.h"
#include "wire/wire_send.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIAL_NODES = 5, TRIAL_ROUNDS = 6, TRIAL_TASKS = 12, TRIAL_FLOATS = 40000 };

#define TRIAL_MS    (WORLD_SECOND / 1000)
#define TRIAL_LIMIT (60 * WORLD_SECOND)
#define TRIAL_SLOW  "node { count: 5 } link { mbit: 20 latency_us: 100 } "

struct trial {
    uint32_t workers, tasks;
    uint64_t rounds;
    size_t floats, chunk;
    enum coll_algorithm algorithm;
    const char *cluster;
    uint32_t kill_node;
    uint64_t kill_send, seed;
    bool garbage; /* the coordinator sends an invalid message to node 2 */
    enum sim_backend backend;
    int (*play)(struct trial *t, struct team *team);
    void *arg;
    /* How it went: */
    bool joined[TRIAL_NODES], over[TRIAL_NODES];
    int ended[TRIAL_NODES]; /* the status of its part */
    bool got[TRIAL_NODES][TRIAL_ROUNDS];
    float *result[TRIAL_NODES][TRIAL_ROUNDS];
    uint32_t voids[TRIAL_NODES];
    uint64_t sent[TRIAL_NODES], trace;
    int rc;
};

/* Whole numbers small enough that every order of adding them gives the same float. */
static inline float trial_value(uint64_t round, uint32_t task, size_t i)
{
    return (float)((task + 1) * 1000 + round * 77 + i % 101);
}

static inline float *trial_vector(const struct trial *t, uint64_t round, uint32_t task)
{
    float *x = malloc(t->floats * sizeof *x);
    for (size_t i = 0; x && i < t->floats; i++)
        x[i] = trial_value(round, task, i);
    return x;
}

/* Task after task, in double. */
static inline float trial_sum(const struct trial *t, uint64_t round, size_t i)
{
    double sum = 0;
    for (uint32_t task = 0; task < t->tasks; task++)
        sum += (double)trial_value(round, task, i);
    return (float)sum;
}

static inline uint32_t trial_owner(const struct trial *t, uint32_t task)
{
    return task * t->workers / t->tasks;
}

/* ---- a member that does what an engine would ---- */

struct engine {
    struct trial *trial;
    struct team *team;
    struct shared_var *var;
    float *x[TRIAL_ROUNDS][TRIAL_TASKS]; /* borrowed by the service until it has stopped */
};

static inline int engine_init(struct engine *e, struct trial *t, struct team *team, const char *key)
{
    struct tasks_spec spec = {.n = t->floats, .tasks = t->tasks, .op = TASKS_SUM};
    static const struct reduction none;
    snprintf(spec.key, sizeof spec.key, "%s", key);
    *e = (struct engine){.trial = t, .team = team};
    return shared_init(&team->shared, &spec, &none, &e->var, NULL);
}

static inline int engine_submit(struct engine *e, uint64_t round, uint32_t task)
{
    float **x = &e->x[round][task];
    if (!*x)
        *x = trial_vector(e->trial, round, task);
    return *x ? shared_submit(e->var, round, task, *x, NULL) : ERR_NOMEM;
}

/* The first remaining member runs the tasks of the lost one again. */
static inline int engine_rerun(struct engine *e, uint64_t round)
{
    const struct view *view = group_view(&e->team->group);
    int rc = OK;
    if (view->node[0] != e->team->world->self)
        return OK;
    for (uint32_t task = 0; rc == OK && task < e->trial->tasks; task++)
        if (view_rank(view, trial_owner(e->trial, task)) < 0)
            rc = engine_submit(e, round, task);
    return rc;
}

static inline int engine_get(struct engine *e, uint64_t round)
{
    struct trial *t = e->trial;
    struct world *w = e->team->world;
    float *out = malloc(t->floats * sizeof *out);
    int rc = out ? ERR_TIMEOUT : ERR_NOMEM;
    while (rc == ERR_TIMEOUT) {
        rc = shared_get(e->var, round, out, world_now(w) + 20 * TRIAL_MS, NULL);
        if (rc == ERR_TIMEOUT && engine_rerun(e, round) != OK)
            rc = ERR_DRIVER;
    }
    if (rc == OK) {
        t->got[w->self][round] = true;
        t->result[w->self][round] = out;
    } else {
        free(out);
    }
    return rc;
}

static inline int engine_own(struct engine *e, uint64_t round)
{
    int rc = OK;
    for (uint32_t task = 0; rc == OK && task < e->trial->tasks; task++)
        if (trial_owner(e->trial, task) == e->team->world->self)
            rc = engine_submit(e, round, task);
    return rc;
}

/* The vectors are the caller's again when the service has stopped. */
static inline void engine_release(struct engine *e)
{
    if (e->team)
        team_leave(e->team);
    for (size_t r = 0; r < TRIAL_ROUNDS; r++)
        for (size_t task = 0; task < TRIAL_TASKS; task++)
            free(e->x[r][task]);
}

/* ---- one run ---- */

static inline int trial_member(struct trial *t, struct world *w)
{
    const struct group_timing timing = group_timing_lan();
    struct team *team = calloc(1, sizeof *team);
    int rc = team ? team_join(team, w, NULL, &timing, WORLD_SECOND) : ERR_NOMEM;
    if (rc == OK) {
        t->joined[w->self] = true;
        team->shared.chunk = t->chunk;
        team->shared.algorithm = t->algorithm;
        rc = t->play(t, team);
        t->voids[w->self] = atomic_load(&team->shared.voids);
        team_leave(team);
    }
    free(team);
    t->ended[w->self] = rc;
    t->over[w->self] = true;
    return rc;
}

static inline int trial_driver(struct trial *t, struct world *w)
{
    const struct group_timing timing = group_timing_lan();
    struct team_host *host = calloc(1, sizeof *host);
    int rc = host ? team_host_start(host, w, NULL, &timing, t->workers, t->workers) : ERR_NOMEM;
    if (rc == OK)
        rc = world_want_nodes(w, t->workers);
    bool over = false;
    if (rc == OK && t->garbage)
        rc = world_sleep(w, world_now(w) + 50 * TRIAL_MS);
    if (rc == OK && t->garbage)
        rc = wire_send(w, 2, wire_tag(WIRE_SHARED_REPORT, 0, 0, 0), "\x03nonsense", 9);
    while (rc == OK && !over) {
        rc = world_sleep(w, world_now(w) + 10 * TRIAL_MS);
        over = true;
        for (uint32_t node = 0; node < t->workers; node++)
            over &= t->over[node];
    }
    if (host)
        team_host_stop(host);
    free(host);
    return rc;
}

static inline int trial_node(void *arg, struct world *w)
{
    kernels_set_threads(1); /* of the thread that carries the task */
    return w->self == WORLD_DRIVER ? trial_driver(arg, w) : trial_member(arg, w);
}

static inline void run_trial(struct trial *t)
{
    const struct sim_options options = {
        .workers = t->workers,
        .seed = t->seed,
        .backend = t->backend,
        .node_main = trial_node,
        .arg = t,
        .kill_node = t->kill_node,
        .kill_send = t->kill_send,
    };
    struct sim_outcome outcome = sim_cluster_run(t->cluster, options, TRIAL_LIMIT, t->sent);
    t->rc = outcome.rc;
    t->trace = outcome.trace;
}

static inline void trial_release(struct trial *t)
{
    for (size_t node = 0; node < TRIAL_NODES; node++)
        for (size_t r = 0; r < TRIAL_ROUNDS; r++) {
            free(t->result[node][r]);
            t->result[node][r] = NULL;
        }
}

/* ---- judging it ---- */

/* Every member that joined and did not die has every round, equal to the bit to the sum computed
 * here. */
static inline void expect_sums(const struct trial *t, struct members dead)
{
    bool formed = false;
    if (t->rc != OK)
        fail_msg("%u dies at %u: the run ends with %s", t->kill_node, (unsigned)t->kill_send,
                 status_text(t->rc));
    for (uint32_t node = 0; node < t->workers; node++)
        formed |= t->joined[node];
    for (uint32_t node = 0; formed && node < t->workers; node++) {
        if (members_has(&dead, node))
            continue;
        if (!t->joined[node] || t->ended[node] != OK)
            fail_msg("%u dies at %u: %u ends with %s", t->kill_node, (unsigned)t->kill_send, node,
                     status_text(t->ended[node]));
        for (uint64_t r = 0; r < t->rounds; r++)
            for (size_t i = 0; i < t->floats; i++)
                if (!t->got[node][r] || t->result[node][r][i] != trial_sum(t, r, i))
                    fail_msg("%u dies at %u: %u, round %u, float %u: %g, not %g", t->kill_node,
                             (unsigned)t->kill_send, node, (unsigned)r, (unsigned)i,
                             t->got[node][r] ? (double)t->result[node][r][i] : -1.0,
                             (double)trial_sum(t, r, i));
    }
}

#endif
