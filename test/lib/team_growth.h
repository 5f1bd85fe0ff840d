/* A simulated team that grows and shrinks while its members run the tasks of shared variables. A
 * member takes tasks as an engine's executor does: the next one that no member has, or whose member
 * is gone. It joins in any round and leaves in any round. The trial counts tasks that ran twice,
 * results that are wrong, and attempts at exchanges that a new view interrupted. */
#ifndef PL_LIB_TEAM_GROWTH_H
#define PL_LIB_TEAM_GROWTH_H

#include "base/rng.h"
#include "coll/team_call.h"
#include "kv/kv_server.h"
#include "sim_cluster.h"
#include "sweep_stride.h"
#include "tensor/kernels.h"

#include <stdio.h>
#include <stdlib.h>

enum { GROWTH_NODES = 6, GROWTH_ROUNDS = 24, GROWTH_TASKS = 12, GROWTH_VARS = 9 };
enum { NO_OWNER = UINT32_MAX };

enum { GROWTH_LESS = SWEEP_STRIDE(6, 4) }; /* there are fewer runs */

#define GROWTH_MS (WORLD_SECOND / 1000)

struct growth_watch {
    const struct exchange *e; /* NULL: not open, or closed */
    enum exchange_stage stage;
    uint64_t completed;
};

struct growth {
    uint32_t first, vars; /* members at the beginning; variables */
    uint64_t rounds;
    size_t floats, chunk;
    enum coll_algorithm algorithm;
    uint64_t seed;
    const char *cluster;
    int64_t grow_at;
    uint64_t leave_in[GROWTH_NODES]; /* the round in which the node leaves; ≥ rounds: it stays */
    bool keeps_tasks;                /* it leaves with tasks that it has submitted */
    uint32_t kill_node;
    uint64_t kill_send;
    enum sim_backend backend;
    int (*play)(struct growth *g, struct team *team);
    /* How it went: */
    uint32_t owner[GROWTH_VARS][GROWTH_ROUNDS][GROWTH_TASKS];
    uint32_t submitted, interrupted;
    bool joined[GROWTH_NODES], over[GROWTH_NODES];
    int ended[GROWTH_NODES];
    uint64_t from[GROWTH_NODES];  /* the first round that it had to get */
    uint64_t right[GROWTH_NODES]; /* results */
    uint32_t wrong, voids;
    size_t most, last; /* members: the most that a member saw, and at the end */
    uint64_t sent[GROWTH_NODES], trace;
    int rc;
    struct group_observer observer;
    struct growth_watch watch[GROWTH_NODES][TASKS_LANES];
};

/* ---- interrupted exchanges ---- */

static inline void growth_opened(void *user, uint32_t node, const struct exchange *e)
{
    struct growth *g = user;
    g->watch[node][e->lane] = (struct growth_watch){.e = e, .completed = e->completed};
}

/* An attempt that ends in a report instead of a result is repeated. */
static inline void growth_observe(void *arg, uint32_t node)
{
    struct growth *g = arg;
    for (size_t lane = 0; node < GROWTH_NODES && lane < TASKS_LANES; lane++) {
        struct growth_watch *w = &g->watch[node][lane];
        if (!w->e)
            continue;
        bool began = w->stage == EXCHANGE_COLLECTING || w->stage == EXCHANGE_REDUCING;
        bool reports = w->e->stage == EXCHANGE_REPORTING || w->e->stage == EXCHANGE_ADOPTING;
        g->interrupted += began && reports && w->e->completed == w->completed;
        w->stage = w->e->stage;
        w->completed = w->e->completed;
    }
}

/* ---- a member ---- */

struct executor {
    struct growth *g;
    struct team *team;
    struct shared_var *var[GROWTH_VARS];
    uint64_t from[GROWTH_VARS]; /* the first round that is not done when it joins */
    uint32_t draws;
    float *x[GROWTH_VARS][GROWTH_ROUNDS][GROWTH_TASKS];
};

/* Whole numbers small enough that every order of adding them gives the same float. */
static inline float growth_value(uint32_t v, uint64_t round, uint32_t task, size_t i)
{
    return (float)((task + 1) * 1000 + round * 77 + v * 13 + i % 101);
}

static inline uint32_t growth_draw(const struct growth *g, uint64_t what, uint64_t i, uint64_t n)
{
    return (uint32_t)rng_below(g->seed, what, i, n);
}

/* The others join within `ms_max` after the first 5 ms; all but two, drawn from the six, leave in
 * the second half of `rounds`. */
static inline void growth_draw_change(struct growth *g, uint64_t ms_max, uint64_t rounds)
{
    uint32_t one = growth_draw(g, 3, 0, GROWTH_NODES);
    uint32_t other = (one + 1 + growth_draw(g, 3, 1, GROWTH_NODES - 1)) % GROWTH_NODES;
    g->grow_at = (5 + growth_draw(g, 4, 0, ms_max)) * GROWTH_MS;
    for (uint32_t node = 0; node < GROWTH_NODES; node++)
        g->leave_in[node] = node == one || node == other
                                ? rounds
                                : rounds / 2 + growth_draw(g, 5, node, rounds / 3);
}

static inline int executor_init(struct executor *x, struct growth *g, struct team *team)
{
    static const struct reduction none;
    *x = (struct executor){.g = g, .team = team};
    for (uint32_t v = 0; v < g->vars; v++) {
        struct tasks_spec spec = {.n = g->floats, .tasks = GROWTH_TASKS, .op = TASKS_SUM};
        snprintf(spec.key, sizeof spec.key, "v%u", v);
        int rc = shared_init(&team->shared, &spec, &none, &x->var[v], NULL);
        if (rc != OK)
            return rc;
        x->from[v] = shared_round(x->var[v]);
    }
    return OK;
}

/* The next task of the round that no living member has; GROWTH_TASKS: none. */
static inline uint32_t executor_pick(struct executor *x, uint32_t v, uint64_t round)
{
    struct growth *g = x->g;
    uint32_t *owner = g->owner[v][round], task = 0;
    while (task < GROWTH_TASKS && owner[task] != NO_OWNER && !g->over[owner[task]])
        task++;
    if (task < GROWTH_TASKS)
        owner[task] = x->team->world->self;
    return task;
}

/* Run up to `most` tasks of the round: each takes a while. */
static inline int executor_run(struct executor *x, uint64_t round, uint32_t most)
{
    struct growth *g = x->g;
    struct world *w = x->team->world;
    int rc = OK;
    for (uint32_t v = 0; rc == OK && v < g->vars; v++)
        for (uint32_t task; rc == OK && most > 0 && round >= x->from[v] &&
                            (task = executor_pick(x, v, round)) < GROWTH_TASKS;
             most--) {
            float *vector = malloc(g->floats * sizeof *vector);
            if (!vector)
                return ERR_NOMEM;
            for (size_t i = 0; i < g->floats; i++)
                vector[i] = growth_value(v, round, task, i);
            x->x[v][round][task] = vector;
            uint32_t takes = 1 + growth_draw(g, 10 + w->self, x->draws++, 8);
            rc = world_sleep(w, world_now(w) + takes * GROWTH_MS / (4 * g->vars));
            if (rc == OK)
                rc = shared_submit(x->var[v], round, task, vector, NULL);
            g->submitted += rc == OK;
        }
    return rc;
}

static inline bool growth_is_right(const struct growth *g, uint32_t v, uint64_t round,
                                   const float *out)
{
    for (size_t i = 0; i < g->floats; i++) {
        double sum = 0;
        for (uint32_t task = 0; task < GROWTH_TASKS; task++)
            sum += (double)growth_value(v, round, task, i);
        if ((double)out[i] != sum)
            return false;
    }
    return true;
}

/* Wait for the results of the round; meanwhile run what members that are gone have left. */
static inline int executor_get(struct executor *x, uint64_t round, float *out)
{
    struct growth *g = x->g;
    struct world *w = x->team->world;
    int rc = OK;
    for (uint32_t v = 0; rc == OK && v < g->vars; v++) {
        if (round < x->from[v])
            continue;
        for (rc = ERR_TIMEOUT; rc == ERR_TIMEOUT;) {
            rc = shared_get(x->var[v], round, out, world_now(w) + 5 * GROWTH_MS, NULL);
            if (rc == ERR_TIMEOUT && executor_run(x, round, GROWTH_TASKS) != OK)
                rc = ERR_DRIVER;
        }
        if (rc == OK && growth_is_right(g, v, round, out))
            g->right[w->self]++;
        else if (rc == OK)
            g->wrong++;
    }
    return rc;
}

static inline void executor_release(struct executor *x)
{
    team_leave(x->team); /* the vectors are the caller's again */
    for (size_t v = 0; v < GROWTH_VARS; v++)
        for (size_t r = 0; r < GROWTH_ROUNDS; r++)
            for (size_t task = 0; task < GROWTH_TASKS; task++)
                free(x->x[v][r][task]);
}

static inline int executor_rounds(struct executor *x, float *out)
{
    struct growth *g = x->g;
    struct world *w = x->team->world;
    uint64_t round = x->from[0], all = 0;
    for (uint32_t v = 0; v < g->vars; v++)
        round = x->from[v] < round ? x->from[v] : round;
    for (uint32_t v = 0; v < g->vars; v++)
        all += x->from[v] - round;
    g->from[w->self] = round * g->vars + all;
    int rc = OK;
    for (; rc == OK && round < g->rounds && round < g->leave_in[w->self]; round++) {
        size_t rank, size = team_size(x->team, &rank);
        g->most = size > g->most ? size : g->most;
        rc = executor_run(x, round, GROWTH_TASKS * GROWTH_VARS);
        if (rc == OK)
            rc = executor_get(x, round, out);
    }
    if (rc == OK && round == g->rounds) {
        size_t rank;
        g->last = team_size(x->team, &rank);
    } else if (rc == OK) { /* in mid-round */
        rc = world_sleep(w, world_now(w) + growth_draw(g, 2, w->self, 4000) * GROWTH_MS / 1000);
        if (rc == OK && g->keeps_tasks)
            rc = executor_run(x, round, 2);
    }
    return rc;
}

static inline int growth_play_rounds(struct growth *g, struct team *team)
{
    struct executor *x = calloc(1, sizeof *x);
    float *out = malloc(g->floats * sizeof *out);
    int rc = x && out ? executor_init(x, g, team) : ERR_NOMEM;
    if (rc == OK)
        rc = executor_rounds(x, out);
    uint32_t voids = atomic_load(&team->shared.voids);
    g->voids = voids > g->voids ? voids : g->voids;
    for (size_t lane = 0; lane < TASKS_LANES; lane++)
        g->watch[team->world->self][lane].e = NULL;
    if (x && x->team)
        executor_release(x);
    free(x);
    free(out);
    return rc;
}

static inline int growth_member(struct growth *g, struct world *w)
{
    const struct group_timing timing = group_timing_lan();
    struct team *team = calloc(1, sizeof *team);
    int rc = OK;
    if (w->self >= g->first)
        rc = world_sleep(w, world_now(w) + growth_draw(g, 1, w->self, 10) * GROWTH_MS);
    if (rc == OK)
        rc = team ? team_join(team, w, NULL, &timing, world_now(w) + 5 * WORLD_SECOND) : ERR_NOMEM;
    if (rc == OK) {
        g->joined[w->self] = true;
        team->group.observer = &g->observer;
        team->shared.chunk = g->chunk;
        team->shared.algorithm = g->algorithm;
        rc = g->play(g, team);
        team_leave(team);
    }
    free(team);
    g->ended[w->self] = rc;
    g->over[w->self] = true;
    return rc;
}

/* ---- one run ---- */

static inline int growth_driver(struct growth *g, struct world *w)
{
    const struct group_timing timing = group_timing_lan();
    struct team_host *host = calloc(1, sizeof *host);
    struct kv_server *store = calloc(1, sizeof *store);
    int rc = host && store ? OK : ERR_NOMEM;
    if (rc == OK)
        rc = team_host_start(host, w, NULL, &timing, g->first, GROWTH_NODES);
    if (rc == OK)
        rc = kv_server_start(store, &host->group);
    if (rc == OK)
        rc = world_want_nodes(w, g->first);
    if (rc == OK)
        rc = world_sleep(w, g->grow_at);
    if (rc == OK)
        rc = world_want_nodes(w, GROWTH_NODES - g->first);
    bool over = false;
    while (rc == OK && !over) {
        rc = world_sleep(w, world_now(w) + 10 * GROWTH_MS);
        over = true;
        for (uint32_t node = 0; node < GROWTH_NODES; node++)
            over &= g->over[node];
    }
    if (store)
        kv_server_stop(store);
    if (host)
        team_host_stop(host);
    free(store);
    free(host);
    return rc;
}

static inline int growth_node(void *arg, struct world *w)
{
    kernels_set_threads(1);
    return w->self == WORLD_DRIVER ? growth_driver(arg, w) : growth_member(arg, w);
}

static inline void growth_run(struct growth *g)
{
    const struct sim_options options = {
        .workers = GROWTH_NODES,
        .seed = g->seed,
        .backend = g->backend,
        .node_main = growth_node,
        .arg = g,
        .observe = growth_observe,
        .kill_node = g->kill_node,
        .kill_send = g->kill_send,
    };
    memset(g->owner, 0xff, sizeof g->owner);
    g->observer = (struct group_observer){.opened = growth_opened, .user = g};
    struct sim_outcome outcome = sim_cluster_run(g->cluster, options, 120 * WORLD_SECOND, g->sent);
    g->rc = outcome.rc;
    g->trace = outcome.trace;
}

/* Every member that did not die has joined and ends well, and no result is wrong. */
static inline void growth_expect_end(const struct growth *g, struct members dead)
{
    if (g->rc != OK || g->wrong > 0)
        fail_msg("seed %u, %u dies at %u: the run ends with %s; %u results are wrong",
                 (unsigned)g->seed, g->kill_node, (unsigned)g->kill_send, status_text(g->rc),
                 g->wrong);
    for (uint32_t node = 0; node < GROWTH_NODES; node++)
        if (!members_has(&dead, node) && (!g->joined[node] || g->ended[node] != OK))
            fail_msg("seed %u, %u dies at %u: %u %s, ends with %s", (unsigned)g->seed, g->kill_node,
                     (unsigned)g->kill_send, node, g->joined[node] ? "joined" : "never joined",
                     status_text(g->ended[node]));
}

/* It also has all results from its first round to its last. */
static inline void growth_expect(const struct growth *g, struct members dead)
{
    growth_expect_end(g, dead);
    for (uint32_t node = 0; node < GROWTH_NODES; node++) {
        uint64_t rounds = g->leave_in[node] < g->rounds ? g->leave_in[node] : g->rounds;
        uint64_t all = rounds * g->vars, due = all > g->from[node] ? all - g->from[node] : 0;
        if (!members_has(&dead, node) && g->right[node] != due)
            fail_msg("seed %u, %u dies at %u: %u has %u of %u results", (unsigned)g->seed,
                     g->kill_node, (unsigned)g->kill_send, node, (unsigned)g->right[node],
                     (unsigned)due);
    }
}

/* All six were there, and two stayed to the end. */
static inline void growth_expect_size(const struct growth *g)
{
    if (g->most != GROWTH_NODES || g->last != 2)
        fail_msg("seed %u: %zu members at the most, %zu at the end", (unsigned)g->seed, g->most,
                 g->last);
}

#endif
