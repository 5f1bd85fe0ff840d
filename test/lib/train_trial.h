/* A whole simulated run in which a node dies at one of the messages that it sends, or as the test
 * strikes, for tests of strategies: its end and its log. The nodes are those of the library's own
 * simulations; nothing is written to disk unless the test sets a run directory. */
#ifndef PL_LIB_TRAIN_TRIAL_H
#define PL_LIB_TRAIN_TRIAL_H

#include "job/cluster.h"
#include "job/job.h"
#include "run_files.h"
#include "sim/sim.h"
#include "tensor/kernels.h"
#include "tiny_job.h"
#include "train/train.h"
#include "wire/catalogue.h"

/* State that trials of one job share: the tiny job's, with some fields set. */
struct trial_ground {
    Paceline__Job *job;
    Paceline__Cluster *cluster;
    struct corpus corpus;
    struct workspace *ws;
    struct arena arena;
    struct vec dx;
};

struct train_trial {
    struct trial_ground *ground;
    uint32_t kill_node;
    uint64_t kill_send; /* 0: no node dies */
    /* Each line of the log, at debug level; may be NULL. */
    void (*line)(void *user, const char *text);
    void *user;
    /* The settings of a single node, and the callback at a fault; may be NULL. */
    void (*host)(void *user, uint32_t node, struct train_host *host);
    void (*fault)(void *user, const struct sim_fault *fault);
    /* Each event of the run; and after each step of the simulation (sim_options.observe). NULL: not
     * called. */
    void (*event)(void *user, const char *line);
    void (*observe)(void *user, uint32_t node);
    const struct rundir *dir; /* a driver that restarts resumes from it; may be NULL */
    /* A worker's node begins; true: it is no worker, and has ended. May be NULL. */
    bool (*begin)(void *user, struct world *world);
    bool elsewhere;
    double patience_s, limit_s; /* 0: the run's own; two minutes */
    /* How it went: */
    struct sim *sim;
    struct train_report report;
    struct err err;
    int rc, exchanges, deaths, drivers;
    uint64_t sent[8], trace;
    double end_s;
};

static inline void trial_ground_open(struct trial_ground *g, const struct tiny *t,
                                     const char *cluster, const char *const *set)
{
    struct err err = {0};
    struct file_bytes text;
    assert_int_equal(file_read(t->job, 1 << 20, &text, &err), OK);
    int rc = job_parse(t->job, (char *)text.data, text.len, &g->job, &err);
    file_release(&text);
    for (; rc == OK && *set; set++)
        rc = job_set(g->job, *set, &err);
    if (rc == OK)
        rc = job_resolve_paths(g->job, t->job, &err);
    if (rc == OK)
        rc = job_finish(g->job, &err);
    if (rc == OK)
        rc = cluster_parse("cluster", cluster, strlen(cluster), &g->cluster, &err);
    if (rc == OK)
        rc = cluster_finish(g->cluster, &err);
    if (rc == OK)
        rc = corpus_open(g->job, NULL, &g->corpus, &err);
    if (rc == OK)
        rc = workspace_create(g->job, &g->corpus, NULL, NULL, NULL, &g->ws, &err);
    if (rc != OK)
        fail_msg("%s", err.text);
    kernels_set_threads(1);
    arena_init(&g->arena);
    assert_int_equal(vec_init(&g->dx, &g->arena, net_segments(g->ws->train)->total), OK);
}

static inline void trial_ground_close(struct trial_ground *g)
{
    workspace_free(g->ws);
    corpus_close(&g->corpus);
    arena_release(&g->arena);
    cluster_free(g->cluster);
    job_free(g->job);
}

static inline void trial_log(void *user, enum log_level level, const char *text)
{
    struct train_trial *t = user;
    (void)level;
    if (t->line)
        t->line(t->user, text);
}

static inline void trial_event(void *user, const char *text)
{
    struct train_trial *t = user;
    t->exchanges += strstr(text, "\"kind\":\"exchange\"") != NULL;
    t->deaths += strstr(text, "\"what\":\"dead\"") != NULL;
    if (t->event)
        t->event(t->user, text);
}

static inline int trial_node(void *arg, struct world *world)
{
    struct train_trial *t = arg;
    const struct logger log = {trial_log, t, LOG_DEBUG};
    const struct train_options options = {.job = t->ground->job,
                                          .dir = t->dir,
                                          .resume = t->drivers > 0,
                                          .line = trial_event,
                                          .user = t,
                                          .elsewhere = t->elsewhere,
                                          .patience_s = t->patience_s};
    struct train_host host = {
        .log = &log,
        .timing = group_timing_lan(),
        .step_seconds = t->ground->cluster->step_seconds,
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
    t->drivers++;
    t->err = (struct err){0};
    return train_drive(world, &host, &options, &t->report, &t->err);
}

static inline void trial_fault(void *arg, const struct sim_fault *fault)
{
    struct train_trial *t = arg;
    if (t->fault)
        t->fault(t->user, fault);
}

static inline void trial_observe(void *arg, uint32_t node)
{
    struct train_trial *t = arg;
    t->observe(t->user, node);
}

static inline uint32_t trial_kind(const char *name)
{
    return (uint32_t)wire_kind_find(name);
}

/* Run it. */
static inline void trial_run(struct train_trial *t)
{
    const struct sim_options options = {
        .cluster = t->ground->cluster,
        .workers = job_workers_max(t->ground->job),
        .fault = trial_fault,
        .observe = t->observe ? trial_observe : NULL,
        .seed = t->ground->job->seed,
        .node_main = trial_node,
        .arg = t,
        .kind_of = trial_kind,
        .kill_node = t->kill_node,
        .kill_send = t->kill_send,
    };
    t->exchanges = t->deaths = t->drivers = 0;
    t->err = (struct err){0};
    assert_int_equal(sim_create(&options, &t->sim, &t->err), OK);
    t->rc = sim_run(t->sim, (int64_t)((t->limit_s > 0 ? t->limit_s : 120) * 1e9));
    for (uint32_t i = 0; i < t->ground->job->workers && i < 8; i++)
        t->sent[i] = sim_sent(t->sim, i);
    t->trace = sim_trace(t->sim);
    t->end_s = world_seconds(sim_now(t->sim));
    sim_free(t->sim);
}

#endif
