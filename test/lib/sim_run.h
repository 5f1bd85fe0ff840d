/* Simulated runs through the public library, for tests of whole runs: fields of a job and the text
 * of a cluster in, a run directory, trace and report out; and timelines of exchanges to compare
 * with one drawn by hand. */
#ifndef PL_LIB_SIM_RUN_H
#define PL_LIB_SIM_RUN_H

#include "paceline/sim.h"
#include "run_files.h"
#include "tiny_job.h"

struct sim_run {
    const char *job; /* its file; NULL: the tiny job */
    double limit_s;  /* ends the run after so many virtual seconds; 0: no limit */
    bool threads;    /* carry the tasks */
    bool traced;
    pl_run_options run; /* its callbacks, and another path for the trace */
    pl_engine_options engine;
    /* How it went: */
    char dir[128], trace[160];
    pl_run_report report;
    int rc;
    char error[512];
};

/* Simulate the job with these fields set, ended by NULL, or unset where there is no value; into
 * r->dir, and if that is a run already, continue with it. */
static inline void sim_try(struct tiny *t, const char *cluster, struct sim_run *r,
                           const char *const *set)
{
    pl_engine *engine = NULL;
    pl_job *job = NULL;
    pl_cluster *machines = NULL;
    pl_run_options run = r->run;
    const pl_sim_options options = {
        .size = sizeof options, .run = &run, .limit_s = r->limit_s, .threads = r->threads};
    run.size = sizeof run;
    r->engine.size = sizeof r->engine;
    tiny_cluster(t, cluster);
    assert_int_equal(pl_engine_create(&r->engine, &engine), PL_OK);
    assert_int_equal(pl_job_load(engine, r->job ? r->job : t->job, &job), PL_OK);
    for (; *set; set++)
        if ((strchr(*set, '=') ? pl_job_set : pl_job_unset)(job, *set) != PL_OK)
            fail_msg("%s", pl_engine_error(engine));
    if (pl_cluster_load(engine, t->cluster, &machines) != PL_OK)
        fail_msg("%s", pl_engine_error(engine));
    run.resume = r->dir[0] != '\0';
    run.out = run.resume ? r->dir : tiny_out(t, r->dir);
    snprintf(r->trace, sizeof r->trace, "%s.%d.json", r->dir, ++t->runs);
    if (!run.trace && r->traced)
        run.trace = r->trace;
    r->rc = pl_sim(engine, job, machines, &options, &r->report);
    snprintf(r->error, sizeof r->error, "%s", r->rc == PL_OK ? "" : pl_engine_error(engine));
    pl_cluster_free(machines);
    pl_job_free(job);
    pl_engine_destroy(engine);
}

static inline void sim_do(struct tiny *t, const char *cluster, struct sim_run *r,
                          const char *const *set)
{
    sim_try(t, cluster, r, set);
    if (r->rc != PL_OK)
        fail_msg("%s", r->error);
}

#define SIM_TRY(t, cluster, r, ...) sim_try(t, cluster, r, (const char *const[]){__VA_ARGS__, NULL})
#define SIM(t, cluster, r, ...)     sim_do(t, cluster, r, (const char *const[]){__VA_ARGS__, NULL})

/* Only the run's directory, into `out`. */
static inline void sim_dir(struct tiny *t, const char *job, const char *cluster,
                           const char *const *set, char out[128])
{
    struct sim_run r = {.job = job, .limit_s = 1000};
    sim_do(t, cluster, &r, set);
    memcpy(out, r.dir, sizeof r.dir);
}

#define SIM_RUN(t, cluster, out, ...) \
    sim_dir(t, NULL, cluster, (const char *const[]){__VA_ARGS__, NULL}, out)

/* One exchange of an asynchronous worker: its nth, ended at `at`, in ms of virtual time. */
struct sim_exchange {
    double at;
    int node, n;
    double waited; /* ms, */
    int waited_for;
    int lane;
};

enum { SIM_EXCHANGES_MAX = 16384, SIM_NO_NODE = -2 };

/* All `exchange` events of a run, in their order; how many. A wait below a microsecond is none. */
static inline int sim_exchanges(const char *dir, struct sim_exchange *out)
{
    char path[512], line[4096];
    int n = 0;
    snprintf(path, sizeof path, "%s/events.jsonl", dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        cJSON *e = cJSON_Parse(line);
        if (strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(e, "kind")), "exchange") == 0) {
            const cJSON *by = cJSON_GetObjectItem(e, "waited_for");
            assert_true(n < SIM_EXCHANGES_MAX);
            out[n] = (struct sim_exchange){
                .at = 1e3 * cJSON_GetObjectItem(e, "t")->valuedouble,
                .node = (int)cJSON_GetObjectItem(e, "node")->valuedouble,
                .n = (int)cJSON_GetObjectItem(e, "n")->valuedouble,
                .waited = 1e3 * cJSON_GetObjectItem(e, "waited_s")->valuedouble,
                .waited_for = by ? (int)by->valuedouble : SIM_NO_NODE,
                .lane = (int)cJSON_GetObjectItem(e, "lane")->valuedouble,
            };
            if (out[n].waited < 1e-2)
                out[n].waited_for = SIM_NO_NODE;
            n++;
        }
        cJSON_Delete(e);
    }
    fclose(f);
    return n;
}

#define SIM_CLOSE 0.05 /* ms: messages on the fast links of a timeline take less */

static inline bool sim_close(double a, double b)
{
    return a - b < SIM_CLOSE && b - a < SIM_CLOSE;
}

/* The run's exchanges are those, in that order. */
static inline void sim_expect_timeline(const char *dir, const struct sim_exchange *want, int count)
{
    static struct sim_exchange is[SIM_EXCHANGES_MAX];
    int n = sim_exchanges(dir, is);
    for (int i = 0; i < n && i < count; i++) {
        const struct sim_exchange *a = &is[i], *b = &want[i];
        if (!sim_close(a->at, b->at) || a->node != b->node || a->n != b->n ||
            !sim_close(a->waited, b->waited) || a->waited_for != b->waited_for ||
            a->lane != b->lane)
            fail_msg("line %d: at %.1f worker %d's %d, waited %.1f for %d (lane %d); expected at "
                     "%.1f worker %d's %d, waited %.1f for %d (lane %d)",
                     i, a->at, a->node, a->n, a->waited, a->waited_for, a->lane, b->at, b->node,
                     b->n, b->waited, b->waited_for, b->lane);
    }
    assert_int_equal(n, count);
}

#define SIM_EXPECT_TIMELINE(dir, want) \
    sim_expect_timeline(dir, want, (int)(sizeof(want) / sizeof *(want)))

#endif
