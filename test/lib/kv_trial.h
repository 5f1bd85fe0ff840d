/* Simulated nodes with a key-value store, and a driver with scripted views: the first members,
 * later joiners, and the time at which a new master takes over. A node that dies is removed from
 * the view at that moment. Each node plays a part; all may write to one record, since only one task
 * runs at any moment. */
#ifndef PL_LIB_KV_TRIAL_H
#define PL_LIB_KV_TRIAL_H

#include "kv/client.h"
#include "kv/kv_server.h"
#include "sim_cluster.h"
#include "wire/wire_send.h"

#include <stdio.h>
#include <stdlib.h>

enum { KV_TRIAL_NODES = 8 };

#define TRIAL_MS    (WORLD_SECOND / 1000)
#define TRIAL_LIMIT (600 * WORLD_SECOND)

struct trial_node;

struct trial {
    const char *cluster;
    uint32_t workers, members; /* nodes; the number of members in the first view */
    uint32_t kill_node;
    uint64_t kill_send, seed;
    int64_t join_at;   /* when all nodes are taken in; 0: never */
    int64_t master_at; /* when a new master takes over; 0: never */
    enum sim_backend backend;
    struct kv_options options;
    int (*play)(struct trial *t, struct trial_node *n);
    uint64_t arg;
    /* How it went: */
    struct kv *kv[KV_TRIAL_NODES]; /* of the playing nodes */
    const struct kv_server *master;
    bool ready[KV_TRIAL_NODES], over[KV_TRIAL_NODES];
    int rc[KV_TRIAL_NODES]; /* the status of its part */
    struct err err[KV_TRIAL_NODES];
    int64_t time[KV_TRIAL_NODES];
    uint64_t sheet[64], sent[KV_TRIAL_NODES];
    char log[8192];
    struct sim_outcome outcome;
};

struct trial_node {
    struct trial *trial;
    struct world *world;
    struct group group;
    struct kv kv;
    uint32_t self;
    struct err *err; /* where its part leaves messages */
};

/* ---- values: known by key and version alone ---- */

static inline unsigned char trial_byte(const char *key, uint64_t version, size_t i)
{
    return (unsigned char)((i * 2654435761u + (i >> 8) + version * 97 + (unsigned char)key[0]) >>
                           3);
}

static inline int trial_update(struct trial_node *n, const char *key, uint64_t state, size_t size,
                               int64_t deadline)
{
    unsigned char *data = malloc(size + 1);
    if (!data)
        return ERR_NOMEM;
    for (size_t i = 0; i < size; i++)
        data[i] = trial_byte(key, state + 1, i);
    int rc = kv_update(&n->kv, key, state, data, size, deadline, n->err);
    free(data);
    return rc;
}

static inline bool trial_whole(const struct kv_value *value, const char *key, size_t size)
{
    if (value->meta.size != size || strcmp(value->key, key) != 0)
        return false;
    for (size_t i = 0; i < size; i++)
        if (value->data[i] != trial_byte(key, value->meta.version, i))
            return false;
    return true;
}

/* The received version; or its error. ERR_BUG: other bytes. */
static inline int trial_get(struct trial_node *n, const char *key, uint64_t version, size_t size,
                            int64_t deadline)
{
    const struct kv_want want = {key, version, true, deadline};
    struct kv_value *value;
    int rc = kv_get(&n->kv, &want, &value, n->err);
    if (rc != OK)
        return rc;
    rc = trial_whole(value, key, size) ? (int)value->meta.version : ERR_BUG;
    kv_value_unref(value);
    return rc;
}

/* ---- the driver ---- */

static inline void trial_log(void *user, enum log_level level, const char *line)
{
    struct trial *t = user;
    size_t used = strlen(t->log);
    (void)level;
    if (used + strlen(line) + 2 < sizeof t->log)
        snprintf(t->log + used, sizeof t->log - used, "%s\n", line);
}

static inline int trial_publish(struct world *w, struct group *group, struct view *view)
{
    struct buf bytes = {0};
    view->number++;
    view->elders = view_members(view);
    int rc = group_set_view(group, view);
    view_encode(view, &bytes);
    for (size_t i = 0; rc == OK && i < view->count; i++) {
        rc = wire_send_buf(w, view->node[i], WIRE_VIEW, 0, &bytes);
        rc = rc == ERR_PEER ? OK : rc;
    }
    buf_release(&bytes);
    return rc;
}

static inline bool trial_remove(struct view *view, uint32_t node)
{
    int rank = view_rank(view, node);
    if (rank < 0)
        return false;
    view->count--;
    for (size_t i = (size_t)rank; i < view->count; i++)
        view->node[i] = view->node[i + 1];
    return true;
}

static inline void trial_join(struct trial *t, struct view *view)
{
    t->join_at = 0;
    view->count = 0;
    for (uint32_t node = 0; node < t->workers; node++)
        if (!t->over[node])
            view->node[view->count++] = node;
}

/* The lines of the script that are due. ERR_END: all parts are over */
static inline int trial_deadline(struct trial *t, struct world *w, struct group *group,
                                 struct kv_server *server, struct view *view)
{
    int64_t now = world_now(w);
    bool over = true, changed = false;
    int rc = OK;
    if (t->join_at && now >= t->join_at) {
        trial_join(t, view);
        changed = true;
    }
    if (t->master_at && now >= t->master_at) {
        t->master_at = 0;
        view->incarnation++;
        changed = true;
        kv_server_stop(server); /* and all that it knew */
        rc = kv_server_start(server, group);
    }
    if (rc == OK && changed)
        rc = trial_publish(w, group, view);
    for (uint32_t node = 0; node < t->workers; node++)
        over &= t->over[node];
    return rc == OK && over ? ERR_END : rc;
}

static inline int trial_drive(struct trial *t, struct world *w, struct group *group,
                              struct kv_server *server, struct view *view)
{
    const struct wait_for change = {.kind = WAIT_PEER};
    int rc = kv_server_start(server, group);
    t->master = server;
    if (rc == OK)
        rc = world_want_nodes(w, t->workers);
    if (rc == OK)
        rc = trial_publish(w, group, view);
    while (rc == OK) {
        struct wake wake;
        rc = world_wait(w, &change, 1, world_now(w) + 10 * TRIAL_MS, &wake);
        if (rc == OK && !wake.up && trial_remove(view, wake.peer))
            rc = trial_publish(w, group, view);
        rc = rc == ERR_TIMEOUT ? OK : rc;
        if (rc == OK)
            rc = trial_deadline(t, w, group, server, view);
    }
    kv_server_stop(server);
    return rc == ERR_END ? OK : rc;
}

static inline int trial_driver(struct trial *t, struct world *w)
{
    const struct group_timing timing = group_timing_lan();
    const struct logger log = {.write = trial_log, .user = t, .level = LOG_INFO};
    struct group *group = calloc(1, sizeof *group);
    struct kv_server *server = calloc(1, sizeof *server);
    struct view *view = calloc(1, sizeof *view);
    int rc = group && server && view ? OK : ERR_NOMEM;
    if (rc == OK) {
        view->incarnation = 1;
        for (uint32_t node = 0; node < t->members; node++) {
            view->node[view->count++] = node;
            snprintf(view->address[node], NODE_ADDRESS_MAX, "node-%u:7", node);
        }
        group_init(group, w, &log, &timing);
        rc = trial_drive(t, w, group, server, view);
        group_release(group);
    }
    free(group), free(server), free(view);
    return rc;
}

/* ---- a node ---- */

/* Wait until all playing nodes have arrived here. */
static inline int trial_rendezvous(struct trial_node *n)
{
    struct trial *t = n->trial;
    t->ready[n->self] = true;
    for (bool all = false; !all;) {
        int rc = world_sleep(n->world, world_now(n->world) + TRIAL_MS);
        if (rc != OK)
            return rc;
        all = true;
        for (uint32_t i = 0; i < t->workers; i++)
            all &= t->ready[i] || t->over[i];
    }
    return OK;
}

static inline int trial_until(struct trial_node *n, const uint64_t *what, uint64_t is)
{
    int rc = OK;
    while (rc == OK && *what != is)
        rc = world_sleep(n->world, world_now(n->world) + TRIAL_MS);
    return rc;
}

static inline int trial_worker(struct trial *t, struct world *w)
{
    struct group_timing timing = group_timing_lan();
    timing.silence_max = TRIAL_LIMIT; /* the driver of a trial sends no beats */
    const struct logger log = {.write = trial_log, .user = t, .level = LOG_INFO};
    struct trial_node *n = calloc(1, sizeof *n);
    if (!n)
        return ERR_NOMEM;
    *n = (struct trial_node){.trial = t, .world = w, .self = w->self, .err = &t->err[w->self]};
    group_init(&n->group, w, &log, &timing);
    int rc = group_listen(&n->group);
    if (rc == OK && w->self < t->members)
        rc = group_wait_view(&n->group, 0, WORLD_FOREVER);
    if (rc == OK)
        rc = kv_start(&n->kv, &n->group, &t->options);
    if (rc == OK) {
        t->kv[w->self] = &n->kv;
        rc = t->play(t, n);
        t->kv[w->self] = NULL;
    }
    kv_stop(&n->kv);
    group_release(&n->group);
    free(n);
    t->rc[w->self] = rc;
    t->over[w->self] = true;
    return rc;
}

static inline int trial_main(void *arg, struct world *w)
{
    return w->self == WORLD_DRIVER ? trial_driver(arg, w) : trial_worker(arg, w);
}

static inline void trial_run(struct trial *t)
{
    const struct sim_options options = {
        .workers = t->workers,
        .seed = t->seed,
        .backend = t->backend,
        .node_main = trial_main,
        .arg = t,
        .kill_node = t->kill_node,
        .kill_send = t->kill_send,
    };
    t->outcome = sim_cluster_run(t->cluster, options, TRIAL_LIMIT, t->sent);
    if (t->outcome.rc != OK)
        fail_msg("seed %u, node %u killed at %u: the run ends with %s\n%s", (unsigned)t->seed,
                 t->kill_node, (unsigned)t->kill_send, status_text(t->outcome.rc), t->log);
}

/* A part's failed check ends it with the line where it stands. */
enum { TRIAL_FAILED = -100000 };
#define TRIAL_CHECK(what)                   \
    do {                                    \
        if (!(what))                        \
            return TRIAL_FAILED - __LINE__; \
    } while (0)

/* All have played their parts to the end, but for `dead`. */
static inline void trial_expect(const struct trial *t, struct members dead)
{
    for (uint32_t node = 0; node < t->workers; node++)
        if (!members_has(&dead, node) && t->rc[node] != OK)
            fail_msg("seed %u, node %u killed at %u: node %u ends with %d%s%d: '%s'\n%s",
                     (unsigned)t->seed, t->kill_node, (unsigned)t->kill_send, node, t->rc[node],
                     t->rc[node] < TRIAL_FAILED / 2 ? " line " : " ",
                     t->rc[node] < TRIAL_FAILED / 2 ? TRIAL_FAILED - t->rc[node] : 0,
                     t->err[node].text, t->log);
}

static inline struct members trial_set(uint32_t node)
{
    struct members set = {{0}};
    members_add(&set, node);
    return set;
}

#endif
