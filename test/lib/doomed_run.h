/* Whole runs of the tiny job in a simulation that kills one worker at one of its messages, which a
 * cluster file cannot express. Nothing is written; events and log lines are counted. */
#ifndef PL_LIB_DOOMED_RUN_H
#define PL_LIB_DOOMED_RUN_H

#include "sim_cluster.h"

struct doomed_run {
    uint32_t kill_node;
    uint64_t kill_send;              /* 0: never */
    double open_s;                   /* that opening its data takes each node */
    struct train_options options;    /* with the job; `line` and `user` unless they are set */
    const struct train_watch *watch; /* may be NULL */
    struct sim_train *train;         /* while it plays, */
    struct sim *sim;                 /* once a node has begun */
    /* How it went: */
    int rc;
    struct err err;
    struct train_report report;
    uint64_t sent;    /* by kill_node, in all */
    uint64_t opening; /* by kill_node, before the group formed */
    uint32_t missing; /* workers that have not joined */
    int exchanges, deaths;
    double end_s;
    char log[8192]; /* also while it plays */
};

static inline void doomed_host(void *user, uint32_t node, struct train_host *host)
{
    struct doomed_run *r = user;
    (void)node;
    r->sim = r->train->outcome.sim;
    host->open_seconds = r->open_s;
    host->watch = r->watch;
}

static inline void doomed_line(void *user, const char *text)
{
    struct doomed_run *r = user;
    size_t n = strlen(r->log);
    snprintf(r->log + n, sizeof r->log - n, "%s\n", text);
}

/* Simulate the tiny job with these fields set (ended by NULL) on this cluster, for at most
 * `limit_s` virtual seconds. */
static inline void doomed_play(const struct tiny *t, const char *text, const char *const *set,
                               double limit_s, struct doomed_run *r)
{
    struct ground ground;
    ground_open(&ground, t, set);
    struct sim_train train = {
        .ground = &ground,
        .cluster = text,
        .options = r->options,
        .kill_node = r->kill_node,
        .kill_send = r->kill_send,
        .limit_s = limit_s,
        .level = LOG_INFO,
        .host = doomed_host,
        .line = doomed_line,
        .user = r,
    };
    r->train = &train;
    sim_train_play(&train);
    r->rc = train.rc;
    r->err = train.err;
    r->report = train.report;
    r->sent = train.sent[r->kill_node];
    r->opening = train.opening;
    r->missing = train.missing;
    r->exchanges = train.exchanges;
    r->deaths = train.deaths;
    r->end_s = train.end_s;
    ground_close(&ground);
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
