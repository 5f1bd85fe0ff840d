#include "paceline/sim.h"

#include "api/api.h"
#include "api/caffe_project.h"
#include "api/guard.h"
#include "api/option_size.h"
#include "base/file.h"
#include "job/cluster.h"
#include "job/text.h"
#include "sim/sim.h"
#include "tensor/kernels.h"
#include "train/events.h"
#include "train/train.h"
#include "wire/catalogue.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define RETRY (60 * WORLD_SECOND) /* how long workers wait for a lost driver */

struct pl_cluster {
    Paceline__Cluster *message;
    char *text;
};

int api_cluster_make(const char *name, const char *text, size_t len, pl_cluster **out,
                     struct err *err)
{
    pl_cluster *cluster = calloc(1, sizeof *cluster);
    char *copy = cluster ? malloc(len + 1) : NULL;
    int rc = copy ? OK : err_set(err, ERR_NOMEM, "%s: out of memory", name);
    if (rc == OK) {
        memcpy(copy, text, len);
        copy[len] = '\0';
        cluster->text = copy;
        rc = cluster_parse(name, text, len, &cluster->message, err);
    }
    if (rc == OK)
        rc = cluster_finish(cluster->message, err);
    if (rc != OK)
        pl_cluster_free(cluster);
    else
        *out = cluster;
    return rc;
}

static int load_cluster(pl_engine *engine, const char *path, pl_cluster **out)
{
    struct file_bytes text;
    int rc = file_read(path, TEXT_BYTES_MAX, &text, &engine->error);
    if (rc != OK)
        return rc;
    rc = api_cluster_make(path, (char *)text.data, text.len, out, &engine->error);
    file_release(&text);
    return rc;
}

int pl_cluster_load(pl_engine *engine, const char *path, pl_cluster **out)
{
    RETURN_GUARDED(engine, load_cluster(engine, path, out));
}

const Paceline__Cluster *api_cluster(const pl_cluster *cluster)
{
    return cluster->message;
}

const char *pl_cluster_text(const pl_cluster *cluster)
{
    return cluster->text;
}

void pl_cluster_free(pl_cluster *cluster)
{
    if (!cluster)
        return;
    cluster_free(cluster->message);
    free(cluster->text);
    free(cluster);
}

/* State that all nodes of a simulation share: they compute one at a time. */
struct simulation {
    struct train_options train;
    struct train_host host;
    struct corpus corpus;
    struct workspace *ws;
    struct vec dx;
    struct arena arena;
    struct sim *sim;
    atomic_int *leave; /* by node */
    uint32_t nodes;
    atomic_int workers; /* the requested number; 0: none requested */
    unsigned drivers;   /* that there have been */
    struct train_report report;
    struct api_sink sink;
    const pl_job *given;
    struct err *err;
};

static int node_main(void *arg, struct world *world)
{
    struct simulation *s = arg;
    struct train_host host = s->host;
    if (s->train.job->slices > 1) /* slices wait for each other within a step */
        host.ws = NULL;
    if (world->self == WORLD_DRIVER) {
        struct train_options train = s->train;
        bool again = s->drivers++ > 0;
        train.resume = train.resume || again;
        if (again) /* the run's time is the simulation's, in which a driver may be away */
            train.before += world_seconds(sim_now(s->sim));
        s->err->text[0] = '\0';
        return train_drive(world, &host, &train, &s->report, s->err);
    }
    host.leave = &s->leave[world->self];
    return train_work(world, &host);
}

static uint32_t kind_of(const char *name)
{
    return (uint32_t)wire_kind_find(name);
}

static void on_fault(void *arg, const struct sim_fault *fault)
{
    struct simulation *s = arg;
    double t = s->train.before + world_seconds(sim_now(s->sim));
    if (strcmp(fault->what, "leave") == 0 && fault->node < s->nodes)
        atomic_store(&s->leave[fault->node], 1);
    if (strcmp(fault->what, "want") == 0)
        atomic_store(&s->workers, (int)fault->factor);
    char *line = events_fault(t, fault->what, fault->node, fault->factor);
    if (line)
        s->train.line(s->train.user, line);
    free(line);
}

static int open_simulation(struct simulation *s, const Paceline__Cluster *cluster, struct err *err)
{
    const Paceline__Job *job = s->train.job;
    if (job->driver_validates)
        return err_set(err, ERR_INPUT,
                       "driver_validates: not in a simulation, whose nodes have the same records; "
                       "leave it out");
    kernels_set_threads((int)job->threads);
    const struct source_config config = {.bindings = s->host.bindings, .remote = s->host.remote};
    int rc = corpus_open_with(&config, job, &s->corpus, err);
    if (rc == OK)
        rc = corpus_settle(&s->corpus, s->train.job, err);
    if (rc == OK)
        rc = workspace_create(job, &s->corpus, s->host.log, NULL, NULL, &s->ws, err);
    if (rc == OK && vec_init(&s->dx, &s->arena, net_segments(s->ws->train)->total) != OK)
        rc = err_set(err, ERR_NOMEM, "out of memory for gradients");
    s->nodes = cluster_nodes(cluster);
    s->leave = arena_array(&s->arena, s->nodes, atomic_int);
    if (rc == OK && !s->leave)
        rc = err_set(err, ERR_NOMEM, "out of memory for %u nodes", s->nodes);
    s->host.corpus = &s->corpus;
    s->host.ws = s->ws;
    s->host.dx = &s->dx;
    return rc;
}

static int simulate_run(struct simulation *s, const Paceline__Cluster *cluster,
                        const pl_sim_options *options, const pl_run_options *run, struct err *err)
{
    int rc = open_simulation(s, cluster, err);
    if (rc != OK)
        return rc;
    const struct sim_options settings = {
        .cluster = cluster,
        .workers = s->train.job->has_workers_max ? cluster_nodes(cluster)
                                                 : s->train.job->workers + s->train.job->standby,
        .seed = s->train.job->seed,
        .backend = options->threads ? SIM_BATON : SIM_FIBRES,
        .log = s->host.log,
        .node_main = node_main,
        .arg = s,
        .kind_of = kind_of,
        .fault = on_fault,
    };
    rc = sim_create(&settings, &s->sim, err);
    if (rc == OK)
        rc = api_sink_open(&s->sink, s->given, run, &s->train, s->host.log, err);
    if (rc != OK)
        return rc;
    s->host.trace = s->train.trace;
    double limit = options->limit_s > 0 ? options->limit_s : 365.0 * 86400;
    err->text[0] = '\0';
    rc = sim_run(s->sim, (int64_t)(limit * 1e9));
    if (rc != OK && err->text[0] == '\0')
        err_set(err, rc, "the simulation ended at %.3f s: %s", world_seconds(sim_now(s->sim)),
                status_text(rc));
    return rc;
}

/* A run without files keeps nothing, and cannot continue. */
static int check_no_files(const Paceline__Cluster *cluster, const pl_run_options *run,
                          struct err *err)
{
    const char *option = run->out        ? "out"
                         : run->resume   ? "resume"
                         : run->snapshot ? "snapshot"
                         : run->trace    ? "trace"
                                         : NULL;
    if (option)
        return err_set(err, ERR_USAGE, "no_files: a run without files has no option %s", option);
    for (size_t i = 0; i < cluster->n_fault; i++) {
        const Paceline__Fault *fault = cluster->fault[i];
        if (fault->what_case == PACELINE__FAULT__WHAT_KILL && fault->kill == CLUSTER_DRIVER)
            return err_set(err, ERR_UNSUPPORTED,
                           "fault[%zu].kill: a driver returns from the files of its run, and this "
                           "run keeps none",
                           i);
    }
    return OK;
}

int api_simulate(pl_engine *engine, const pl_job *job, const Paceline__Cluster *cluster,
                 const pl_sim_options *options, pl_run_report *report)
{
    pl_run_options run;
    int rc = OPTIONS_TAKE(pl_run_options, &run, options->run, &engine->error);
    if (rc != OK)
        return rc;
    if (!cluster->has_step_seconds)
        return err_set(&engine->error, ERR_INPUT,
                       "cluster: step_seconds: is needed to simulate; `paceline bench step --emit` "
                       "measures it");
    Paceline__Job *finished;
    rc = options->no_files ? check_no_files(cluster, &run, &engine->error) : OK;
    if (rc == OK)
        rc = api_check_solver_data(job);
    if (rc == OK)
        rc = api_job_finish(job, 1, &finished);
    if (rc != OK)
        return rc;
    struct simulation s = {
        .train =
            {
                .job = finished,
                .stop = api_flag(run.stop),
                .simulated = true,
                .evaluate_records = options->evaluate_records,
            },
        .host =
            {
                .log = &engine->log,
                .timing = finished->heartbeat == PACELINE__JOB__HEARTBEAT__busy
                              ? group_timing_busy()
                              : group_timing_lan(),
                .step_seconds = cluster->step_seconds,
                .evaluate_records = options->evaluate_records,
                .retry = RETRY,
                .bindings = &engine->bindings,
                .remote = engine->remote,
            },
        .err = &engine->error,
    };
    s.given = job;
    s.sink.no_files = options->no_files;
    s.train.workers = &s.workers;
    s.train.open_end = api_job_is_open_ended(job);
    s.train.chosen = run.chosen;
    arena_init(&s.arena);
    rc = simulate_run(&s, cluster, options, &run, &engine->error);
    if (rc == OK)
        api_report(&s.sink, &s.report, report);
    api_sink_close(&s.sink);
    sim_free(s.sim);
    workspace_free(s.ws);
    corpus_close(&s.corpus);
    arena_release(&s.arena);
    job_free(finished);
    return rc;
}

static int simulate_job(pl_engine *engine, const pl_job *job, const pl_cluster *cluster,
                        const pl_sim_options *given, pl_run_report *report)
{
    pl_sim_options options;
    int rc = OPTIONS_TAKE(pl_sim_options, &options, given, &engine->error);
    return rc == OK ? api_simulate(engine, job, cluster->message, &options, report) : rc;
}

int pl_sim(pl_engine *engine, const pl_job *job, const pl_cluster *cluster,
           const pl_sim_options *options, pl_run_report *report)
{
    RETURN_GUARDED(engine, simulate_job(engine, job, cluster, options, report));
}
