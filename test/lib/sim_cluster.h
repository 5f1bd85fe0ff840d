/* The cluster fixture: simulated nodes for the tests of everything between messages and whole runs.
 *
 *   sim_cluster_play   a cluster from text, on which every node runs a given main
 *   struct ground      state that training nodes of one process share: job, data, net
 *   struct sim_train   the driver and the workers of train on that ground, with hooks into each
 *                      node, a log, and one death at one message
 *
 * A test states the cluster with its links, delays and faults, and reads the outcome. A mistake in
 * the text of a cluster or job fails the test with the parser's message. Runs through the public
 * library are in sim_run.h, those of real processes in machines.h. */
#ifndef PL_LIB_SIM_CLUSTER_H
#define PL_LIB_SIM_CLUSTER_H

#include "base/file.h"
#include "job/cluster.h"
#include "sim/sim.h"
#include "tensor/kernels.h"
#include "tiny_job.h"
#include "train/train.h"
#include "wire/catalogue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* ---- nodes ---- */

struct sim_outcome {
    /* While it runs: */
    const Paceline__Cluster *cluster;
    struct sim *sim;
    /* How it went: */
    int rc;
    int64_t end;
    uint64_t trace;
};

static inline uint32_t sim_cluster_kind(const char *name)
{
    return (uint32_t)wire_kind_find(name);
}

/* Runs the nodes for at most `limit` ns of virtual time. `options` is without a cluster. `sent`
 * gets the number of messages of each worker. */
static inline void sim_cluster_play(const char *text, struct sim_options options, int64_t limit,
                                    uint64_t *sent, struct sim_outcome *out)
{
    struct err err = {0};
    Paceline__Cluster *cluster = NULL;
    int rc = cluster_parse("test", text, strlen(text), &cluster, &err);
    if (rc == OK)
        rc = cluster_finish(cluster, &err);
    *out = (struct sim_outcome){.cluster = cluster};
    options.cluster = cluster;
    options.kind_of = sim_cluster_kind;
    if (rc == OK)
        rc = sim_create(&options, &out->sim, &err);
    if (rc != OK)
        fail_msg("%s", err.text);
    out->rc = sim_run(out->sim, limit);
    out->end = sim_now(out->sim);
    out->trace = sim_trace(out->sim);
    for (uint32_t node = 0; node < options.workers; node++)
        sent[node] = sim_sent(out->sim, node);
    sim_free(out->sim);
    cluster_free(cluster);
    out->sim = NULL;
    out->cluster = NULL;
}

static inline struct sim_outcome sim_cluster_run(const char *text, struct sim_options options,
                                                 int64_t limit, uint64_t *sent)
{
    struct sim_outcome out;
    sim_cluster_play(text, options, limit, sent, &out);
    return out;
}

/* ---- the ground ---- */

struct ground {
    Paceline__Job *job;
    struct corpus corpus;
    struct workspace *ws;
    struct arena arena;
    struct vec dx; /* for strategies that do not send gradients */
};

/* The job of the folder with these fields set, ended by NULL. */
static inline void ground_open(struct ground *g, const struct tiny *t, const char *const *set)
{
    struct file_bytes text;
    struct err err = {0};
    *g = (struct ground){0};
    int rc = file_read(t->job, 1 << 20, &text, &err);
    if (rc == OK) {
        rc = job_parse(t->job, (char *)text.data, text.len, &g->job, &err);
        file_release(&text);
    }
    for (; rc == OK && *set; set++)
        rc = job_set(g->job, *set, &err);
    if (rc == OK)
        rc = job_resolve_paths(g->job, t->job, &err);
    if (rc == OK)
        rc = job_finish(g->job, &err);
    kernels_set_threads(1);
    arena_init(&g->arena);
    if (rc == OK)
        rc = corpus_open(g->job, NULL, &g->corpus, &err);
    if (rc == OK)
        rc = workspace_create(g->job, &g->corpus, NULL, NULL, NULL, &g->ws, &err);
    if (rc == OK)
        rc = vec_init(&g->dx, &g->arena, net_segments(g->ws->train)->total);
    if (rc != OK)
        fail_msg("%s", err.text);
}

static inline void ground_close(struct ground *g)
{
    workspace_free(g->ws);
    corpus_close(&g->corpus);
    arena_release(&g->arena);
    job_free(g->job);
}

/* ---- training nodes ---- */

enum { SIM_TRAIN_NODES = 16, SIM_TRAIN_LOG = 1 << 16 };

struct sim_train {
    struct ground *ground;
    const char *cluster;
    struct train_options options; /* `job` is the ground's */
    uint32_t kill_node;
    uint64_t kill_send;   /* 0: no node dies */
    double limit_s;       /* of virtual time; 0: two minutes */
    enum log_level level; /* of the lines in the log */
    /* Hooks; each may be NULL. `host` changes the settings of a node at its start. `begin` is
     * called when a worker starts; it returns true if it has played the whole node itself. `line`
     * receives each line of the log, `event` each event of the run. `observe` is called after each
     * step of the simulation (sim_options.observe), and may strike through outcome.sim. */
    void (*host)(void *user, uint32_t node, struct train_host *host);
    bool (*begin)(void *user, struct world *world);
    void (*fault)(void *user, const struct sim_fault *fault);
    void (*line)(void *user, const char *text);
    void (*event)(void *user, const char *event);
    void (*observe)(void *user, uint32_t node);
    void *user;
    /* How it went: */
    struct sim_outcome outcome;
    int rc;
    struct err err;
    struct train_report report;
    uint64_t sent[SIM_TRAIN_NODES];
    double end_s;
    char log[SIM_TRAIN_LOG];
    size_t log_len;
    int drivers; /* that have started: the first, and those that resume after a driver's death */
    /* From the events, unless options.line receives them: */
    int exchanges, deaths;
    uint32_t missing; /* workers that have not joined */
    uint64_t opening; /* messages of kill_node before the group formed */
};

static inline void sim_train_log(void *user, enum log_level level, const char *text)
{
    struct sim_train *t = user;
    size_t n = strlen(text);
    if (level >= t->level && t->log_len + n + 2 <= sizeof t->log) {
        memcpy(t->log + t->log_len, text, n);
        memcpy(t->log + t->log_len + n, "\n", 2);
        t->log_len += n + 1;
    }
    if (t->line)
        t->line(t->user, text);
}

static inline void sim_train_event(void *user, const char *event)
{
    struct sim_train *t = user;
    t->exchanges += strstr(event, "\"kind\":\"exchange\"") != NULL;
    t->deaths += strstr(event, "\"what\":\"dead\"") != NULL;
    if (strstr(event, "\"what\":\"join\"") && t->missing > 0 && --t->missing == 0)
        t->opening = sim_sent(t->outcome.sim, t->kill_node);
    if (t->event)
        t->event(t->user, event);
}

static inline void sim_train_fault(void *arg, const struct sim_fault *fault)
{
    struct sim_train *t = arg;
    if (t->fault)
        t->fault(t->user, fault);
}

static inline void sim_train_observe(void *arg, uint32_t node)
{
    struct sim_train *t = arg;
    t->observe(t->user, node);
}

static inline int sim_train_node(void *arg, struct world *world)
{
    struct sim_train *t = arg;
    const struct logger log = {sim_train_log, t, t->level};
    struct train_host host = {
        .log = &log,
        .timing = group_timing_lan(),
        .step_seconds = t->outcome.cluster->step_seconds,
        .corpus = &t->ground->corpus,
        .ws = t->ground->ws,
        .dx = &t->ground->dx,
    };
    if (t->host)
        t->host(t->user, world->self, &host);
    if (t->begin && world->self != WORLD_DRIVER && t->begin(t->user, world))
        return OK;
    if (world->self != WORLD_DRIVER)
        return train_work(world, &host);
    struct train_options options = t->options;
    options.resume |= t->drivers++ > 0;
    t->err = (struct err){0};
    return train_drive(world, &host, &options, &t->report, &t->err);
}

/* Runs it once. */
static inline void sim_train_play(struct sim_train *t)
{
    Paceline__Job *job = t->ground->job;
    const struct logger log = {sim_train_log, t, t->level};
    const struct sim_options options = {
        .workers = job_workers_max(job),
        .seed = job->seed,
        .log = &log,
        .node_main = sim_train_node,
        .arg = t,
        .fault = sim_train_fault,
        .observe = t->observe ? sim_train_observe : NULL,
        .kill_node = t->kill_node,
        .kill_send = t->kill_send,
    };
    assert_in_range(options.workers, 1, SIM_TRAIN_NODES);
    t->options.job = job;
    if (!t->options.line) {
        t->options.line = sim_train_event;
        t->options.user = t;
    }
    t->missing = job->workers;
    sim_cluster_play(t->cluster, options, (int64_t)((t->limit_s > 0 ? t->limit_s : 120) * 1e9),
                     t->sent, &t->outcome);
    t->rc = t->outcome.rc;
    t->end_s = world_seconds(t->outcome.end);
}

#endif
