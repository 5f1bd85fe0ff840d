/* A small stage for tests of the simulator: a cluster from text, a main for every worker, and a
 * record of times and numbers that all may write to, since only one task runs at any moment. The
 * driver starts the workers and stays until all have left; workers wait for BEGIN, when all are
 * connected. Every scene is played once with each back end, and must be the same. */
#ifndef PL_SIM_SCENE_H
#define PL_SIM_SCENE_H

#include "job/cluster.h"
#include "sim/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEGIN (10 * WORLD_SECOND)
#define MS    (WORLD_SECOND / 1000)
#define US    (WORLD_SECOND / 1000000)

enum { SHEET = 64, SCENE_LOG_MAX = 8192, OVERHEAD = 40 }; /* bytes a message */

struct scene {
    const char *cluster;
    uint32_t workers;
    int (*worker)(struct scene *s, struct world *w);
    int (*driver)(struct scene *s, struct world *w); /* NULL: starts the workers and stays */
    uint64_t seed, kill_send;
    uint32_t kill_node;
    int64_t limit;
    /* Filled in: */
    int64_t time[SHEET];
    int rc[SHEET];
    int64_t end;
    uint64_t trace, sent;
    char log[SCENE_LOG_MAX];
};

static inline void scene_log(void *user, enum log_level level, const char *line)
{
    (void)level;
    struct scene *s = user;
    size_t used = strlen(s->log), len = strlen(line);
    if (used + len + 2 <= sizeof s->log) {
        memcpy(s->log + used, line, len);
        memcpy(s->log + used + len, "\n", 2);
    }
}

static inline int scene_stay(struct scene *s, struct world *w)
{
    int rc = world_want_nodes(w, s->workers);
    for (uint32_t gone = 0; rc == OK && gone < s->workers;) {
        struct wait_for change = {.kind = WAIT_PEER};
        struct wake wake;
        rc = world_wait(w, &change, 1, WORLD_FOREVER, &wake);
        gone += rc == OK && !wake.up;
    }
    return rc;
}

static inline int scene_main(void *arg, struct world *w)
{
    struct scene *s = arg;
    if (w->self == WORLD_DRIVER)
        return s->driver ? s->driver(s, w) : scene_stay(s, w);
    int rc = world_sleep(w, BEGIN);
    return rc == OK ? s->worker(s, w) : rc;
}

static inline uint32_t scene_kind(const char *name)
{
    return strcmp(name, "seven") == 0 ? 7 : 0;
}

static inline void scene_fault(void *arg, const struct sim_fault *fault)
{
    struct scene *s = arg;
    char line[64];
    snprintf(line, sizeof line, "%s %u", fault->what, fault->node);
    scene_log(s, LOG_INFO, line);
}

/* Returns the status of sim_run. */
static inline int scene_play_on(struct scene *s, enum sim_backend backend)
{
    Paceline__Cluster *cluster = NULL;
    struct err err = {0};
    struct sim *sim = NULL;
    struct logger log = {.write = scene_log, .user = s, .level = LOG_INFO};
    s->log[0] = '\0';
    int rc = cluster_parse("test", s->cluster, strlen(s->cluster), &cluster, &err);
    if (rc == OK)
        rc = cluster_finish(cluster, &err);
    if (rc == OK)
        rc = sim_create(&(struct sim_options){.cluster = cluster,
                                              .workers = s->workers,
                                              .seed = s->seed,
                                              .backend = backend,
                                              .log = &log,
                                              .node_main = scene_main,
                                              .arg = s,
                                              .kind_of = scene_kind,
                                              .fault = scene_fault,
                                              .kill_node = s->kill_node,
                                              .kill_send = s->kill_send},
                        &sim, &err);
    if (rc == OK) {
        rc = sim_run(sim, s->limit ? s->limit : 100000 * WORLD_SECOND);
        s->end = sim_now(sim);
        s->trace = sim_trace(sim);
        s->sent = sim_sent(sim, s->kill_node);
    } else {
        scene_log(s, LOG_ERROR, err.text);
    }
    sim_free(sim);
    cluster_free(cluster);
    return rc;
}

/* Plays it with each back end, the second time from the beginning and in place: a scene may be part
 * of something larger. */
static inline int scene_play(struct scene *s)
{
    struct scene *before = malloc(2 * sizeof *s), *first = before + 1;
    assert_non_null(before);
    *before = *s;
    int first_rc = scene_play_on(s, SIM_FIBRES);
    *first = *s;
    *s = *before;
    int rc = scene_play_on(s, SIM_BATON);
    assert_int_equal(rc, first_rc);
    assert_true(s->trace == first->trace);
    assert_int_equal(s->end, first->end);
    assert_int_equal(s->sent, first->sent);
    assert_memory_equal(s->time, first->time, sizeof s->time);
    assert_memory_equal(s->rc, first->rc, sizeof s->rc);
    assert_string_equal(s->log, first->log);
    free(before);
    return rc;
}

/* A phantom that takes `bytes` on the wire. */
static inline int scene_send(struct world *w, uint32_t to, uint64_t tag, size_t bytes,
                             enum world_class class)
{
    struct message *m = message_phantom(tag, 0, bytes - OVERHEAD);
    return m ? world_send(w, to, m, class) : ERR_NOMEM;
}

/* Wait for a message; when it was there, and when its first byte was. */
static inline int scene_receive(struct world *w, uint32_t from, uint64_t tag, int64_t deadline,
                                int64_t *last_byte, int64_t *first_byte)
{
    struct wait_for want = {.kind = WAIT_MESSAGE, .from = from, .tag = tag, .mask = UINT64_MAX};
    struct wake wake;
    int rc = world_wait(w, &want, 1, deadline, &wake);
    if (rc != OK)
        return rc;
    *last_byte = world_now(w);
    if (first_byte)
        *first_byte = wake.msg->first_byte;
    message_unref(wake.msg);
    return OK;
}

#endif
