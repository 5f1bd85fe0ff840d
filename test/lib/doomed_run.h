/* Whole runs of the tiny job in a simulation that kills one worker at one of its messages, which a
 * cluster file cannot express. Nothing is written; events and log lines are counted. */
#ifndef PL_LIB_DOOMED_RUN_H
#define PL_LIB_DOOMED_RUN_H

#include "base/file.h"
#include "job/cluster.h"
#include "sim/sim.h"
#include "tensor/kernels.h"
#include "tiny_job.h"
#include "train/train.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct doomed_run {
    uint32_t kill_node;
    uint64_t kill_send;              /* 0: never */
    double open_s;                   /* that opening its data takes each node */
    struct train_options options;    /* with the job; `line` and `user` unless they are set */
    const struct train_watch *watch; /* may be NULL */
    struct sim *sim;                 /* while it plays */
    /* How it went: */
    int rc;
    struct err err;
    struct train_report report;
    uint64_t sent;    /* by kill_node, in all */
    uint64_t opening; /* by kill_node, before the group formed */
    uint32_t missing; /* workers that have not joined */
    int exchanges, deaths;
    double end_s;
    char log[8192];
};

struct doomed_stage {
    struct doomed_run *run;
    struct train_options options;
    struct train_host host;
    struct corpus corpus;
    struct vec dx;
};

static inline void doomed_line(void *user, const char *event)
{
    struct doomed_run *r = user;
    r->exchanges += strstr(event, "\"kind\":\"exchange\"") != NULL;
    r->deaths += strstr(event, "\"what\":\"dead\"") != NULL;
    if (strstr(event, "\"what\":\"join\"") && r->missing > 0 && --r->missing == 0)
        r->opening = sim_sent(r->sim, r->kill_node);
}

static inline void doomed_log(void *user, enum log_level level, const char *line)
{
    struct doomed_run *r = user;
    size_t n = strlen(r->log);
    if (level >= LOG_INFO)
        snprintf(r->log + n, sizeof r->log - n, "%s\n", line);
}

static inline int doomed_main(void *arg, struct world *world)
{
    struct doomed_stage *s = arg;
    struct doomed_run *r = s->run;
    if (world->self == WORLD_DRIVER)
        return train_drive(world, &s->host, &s->options, &r->report, &r->err);
    return train_work(world, &s->host);
}

static inline uint32_t doomed_kind(const char *name)
{
    (void)name;
    return 0;
}

static inline Paceline__Job *doomed_job(const struct tiny *t, const char *const *set)
{
    struct file_bytes text;
    struct err err = {0};
    Paceline__Job *job = NULL;
    int rc = file_read(t->job, 1 << 20, &text, &err);
    assert_int_equal(rc, OK);
    rc = job_parse(t->job, (char *)text.data, text.len, &job, &err);
    file_release(&text);
    for (; rc == OK && *set; set++)
        rc = job_set(job, *set, &err);
    if (rc != OK || job_resolve_paths(job, t->job, &err) != OK || job_finish(job, &err) != OK)
        fail_msg("%s", err.text);
    return job;
}

/* Simulate the tiny job with these fields set (ended by NULL) on this cluster, for at most
 * `limit_s` virtual seconds. */
static inline void doomed_play(const struct tiny *t, const char *text, const char *const *set,
                               double limit_s, struct doomed_run *r)
{
    Paceline__Job *job = doomed_job(t, set);
    Paceline__Cluster *cluster = NULL;
    struct sim *sim = NULL;
    struct arena arena;
    const struct logger log = {.write = doomed_log, .user = r, .level = LOG_INFO};
    struct doomed_stage s = {
        .run = r,
        .options = r->options,
        .host = {.log = &log, .timing = group_timing_lan(), .watch = r->watch},
    };
    s.options.job = job;
    s.options.line = r->options.line ? r->options.line : doomed_line;
    s.options.user = r->options.line ? r->options.user : r;
    r->missing = job->workers;
    arena_init(&arena);
    kernels_set_threads(1);
    struct err err = {0};
    if (cluster_parse("test", text, strlen(text), &cluster, &err) != OK ||
        cluster_finish(cluster, &err) != OK || corpus_open(job, NULL, &s.corpus, &err) != OK ||
        workspace_create(job, &s.corpus, &log, NULL, NULL, &s.host.ws, &err) != OK ||
        vec_init(&s.dx, &arena, net_segments(s.host.ws->train)->total) != OK)
        fail_msg("%s", err.text);
    s.host.step_seconds = cluster->step_seconds;
    s.host.open_seconds = r->open_s;
    s.host.corpus = &s.corpus;
    s.host.dx = &s.dx;
    const struct sim_options options = {
        .cluster = cluster,
        .workers = job->workers,
        .seed = job->seed,
        .log = &log,
        .node_main = doomed_main,
        .arg = &s,
        .kind_of = doomed_kind,
        .kill_node = r->kill_node,
        .kill_send = r->kill_send,
    };
    assert_int_equal(sim_create(&options, &sim, &err), OK);
    r->sim = sim;
    r->rc = sim_run(sim, (int64_t)(limit_s * 1e9));
    r->sent = sim_sent(sim, r->kill_node);
    r->end_s = (double)sim_now(sim) * 1e-9;
    sim_free(sim);
    workspace_free(s.host.ws);
    corpus_close(&s.corpus);
    arena_release(&arena);
    cluster_free(cluster);
    job_free(job);
}

/* Worker `node` is killed at every `stride`th message that it sends after the group has formed:
 * each time the others end the run well, and soon. How many runs. */
static inline int doomed_sweep(const struct tiny *t, const char *cluster, const char *const *set,
                               uint32_t node, uint64_t stride)
{
    struct doomed_run whole = {.kill_node = node};
    int runs = 0;
    doomed_play(t, cluster, set, 1000, &whole);
    if (whole.rc != OK)
        fail_msg("%s", whole.err.text);
    assert_int_equal(whole.missing, 0);
    for (uint64_t k = whole.opening + 1; k <= whole.sent; k += stride, runs++) {
        struct doomed_run r = {.kill_node = node, .kill_send = k};
        doomed_play(t, cluster, set, 1000, &r);
        if (r.rc != OK)
            fail_msg("worker %u dies at message %llu: %s\n%s", node, (unsigned long long)k,
                     r.err.text, r.log);
        if (r.end_s > 3 * whole.end_s + 3)
            fail_msg("worker %u dies at message %llu: %g s, not %g", node, (unsigned long long)k,
                     r.end_s, whole.end_s);
        assert_true(r.report.epochs >= whole.report.epochs - 1);
    }
    return runs;
}

#endif
