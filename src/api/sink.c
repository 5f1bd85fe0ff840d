#include "api/api.h"
#include "real/disk.h"
#include "train/progress.h"

#include <stdio.h>
#include <string.h>

static void on_line(void *user, const char *line)
{
    struct api_sink *sink = user;
    if (sink->dir.events)
        rundir_line(&sink->dir, line);
    else
        buf_printf(&sink->early, "%s%s", sink->early.len ? "\n" : "", line);
    if (sink->options->event)
        sink->options->event(sink->options->user, line);
}

static bool on_lost(void *user)
{
    const struct api_sink *sink = user;
    return sink->options->workers_lost && sink->options->workers_lost(sink->options->user);
}

static void on_progress(void *user, const struct train_progress *p)
{
    const struct api_sink *sink = user;
    if (!sink->options->progress)
        return;
    const pl_progress progress = {
        .t = p->t,
        .epoch = p->epoch,
        .epochs = p->epochs,
        .steps = p->steps,
        .workers = p->workers,
        .loss = p->loss,
        .error = p->error,
        .samples_per_s = p->samples_per_s,
        .exchange_s = p->exchange_s,
        .slowest = p->slowest == WORLD_ANY ? -1 : (int)p->slowest,
        .eta_s = p->eta_s,
    };
    sink->options->progress(sink->options->user, &progress);
}

static int open_trace(struct api_sink *sink, struct err *err)
{
    const char *path = sink->options->trace;
    return path ? trace_file_open(&sink->trace, real_disk(), path, err) : OK;
}

/* Is the trace to be in the run directory itself, which has to be there first? */
static bool trace_is_inside(const pl_run_options *o)
{
    size_t n = o->out ? strlen(o->out) : 0;
    while (n > 1 && o->out[n - 1] == '/')
        n--;
    return o->trace && n > 0 && strncmp(o->trace, o->out, n) == 0 && o->trace[n] == '/';
}

static int on_begin(void *user, struct err *err)
{
    struct api_sink *sink = user;
    const pl_run_options *o = sink->options;
    bool inside = trace_is_inside(o);
    if (sink->dir.events)
        return OK; /* a simulated driver that comes back */
    int rc = inside ? OK : open_trace(sink, err);
    if (rc == OK && !o->resume)
        rc = rundir_create(&sink->dir, real_disk(), o->out, sink->job->name, err);
    if (rc == OK && inside)
        rc = open_trace(sink, err);
    if (rc == OK)
        rc = rundir_open(&sink->dir, sink->job, err);
    if (rc == OK && sink->early.len > 0 && !sink->early.failed) {
        buf_put_u8(&sink->early, 0);
        rundir_line(&sink->dir, (const char *)sink->early.data);
    }
    if (rc != OK)
        trace_file_discard(&sink->trace);
    return rc;
}

int api_sink_open(struct api_sink *sink, const Paceline__Job *job, const pl_run_options *options,
                  struct train_options *train, const struct logger *log, struct err *err)
{
    sink->options = options;
    sink->job = job;
    sink->log = log;
    sink->spans = (struct trace_sink){trace_file_spans, &sink->trace};
    train->begin = on_begin;
    train->line = on_line;
    train->lost = on_lost;
    train->progress = on_progress;
    train->user = sink;
    train->trace = options->trace ? &sink->spans : NULL;
    train->dir = &sink->dir;
    train->resume = options->resume;
    train->snapshot = options->snapshot;
    if (options->resume && options->snapshot)
        return err_set(err, ERR_USAGE,
                       "a run goes on from its own checkpoint or from a snapshot of "
                       "Caffe's: one of --resume and --snapshot");
    return options->resume ? rundir_find(&sink->dir, real_disk(), options->out, job->name, err)
                           : OK;
}

void api_sink_close(struct api_sink *sink)
{
    rundir_close(&sink->dir);
    trace_file_close(&sink->trace, sink->log);
    buf_release(&sink->early);
}

void api_report(const struct api_sink *sink, const struct train_report *from, pl_run_report *to)
{
    *to = (pl_run_report){
        .has_validation = from->has_validation,
        .has_test = from->has_test,
        .validation_error = from->validation_error,
        .test_error = from->test_error,
        .validation_loss = from->validation_loss,
        .test_loss = from->test_loss,
        .epochs = from->epochs,
        .samples = from->samples,
        .used = from->used,
        .repeated = from->repeated,
        .missed = from->missed,
        .wall_s = from->wall_s,
        .seed = from->seed,
    };
    snprintf(to->reason, sizeof to->reason, "%s", from->reason);
    snprintf(to->directory, sizeof to->directory, "%s", sink->dir.path);
}
