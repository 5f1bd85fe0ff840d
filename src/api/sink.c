#include "api/api.h"
#include "base/file.h"
#include "base/plural.h"
#include "real/disk.h"
#include "train/progress_meter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A run continues without its log, and makes up for it later. */
static void write_line(struct api_sink *sink, const char *line)
{
    struct event_log *events = &sink->dir.events;
    bool well = event_log_line(events, line) == OK;
    if (!well && !sink->behind)
        log_warn(sink->log, "%s; events are kept and written later", events->error.text);
    if (well && sink->behind)
        log_info(sink->log, "%s/events.jsonl is written again", sink->dir.path);
    sink->behind = !well;
}

static void on_line(void *user, const char *line)
{
    struct api_sink *sink = user;
    if (sink->dir.events.file)
        write_line(sink, line);
    else if (!sink->no_files)
        buf_printf(&sink->early, "%s%s", sink->early.len ? "\n" : "", line);
    if (sink->observer)
        sink->observer->event(sink->observer->user, line);
    if (sink->options->event)
        sink->options->event(sink->options->user, line);
}

static uint32_t on_lost(void *user)
{
    const struct api_sink *sink = user;
    return sink->options->workers_lost ? sink->options->workers_lost(sink->options->user) : 0;
}

static void on_progress(void *user, const struct train_progress *p)
{
    const struct api_sink *sink = user;
    if (!sink->options->progress)
        return;
    const pl_progress progress = {
        .t = p->t,
        .commit_t = p->commit_t,
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
        .local_steps = p->local_steps,
        .first_exchange_s = p->first_exchange_s,
        .simulated = sink->simulated,
    };
    sink->options->progress(sink->options->user, &progress);
}

_Static_assert((int)PL_STOPPING_DONE == (int)STOPPING_DONE,
               "stages of a stop in the public header and in train differ");

static void on_stopping(void *user, const struct train_stopping *s)
{
    const struct api_sink *sink = user;
    const pl_stopping stopping = {.stage = (pl_stopping_stage)s->stage,
                                  .commit_s = s->commit_s,
                                  .state_age_s = s->state_age_s,
                                  .asks = s->requests,
                                  .initial = s->initial,
                                  .exchanges = s->exchanges,
                                  .path = s->path};
    if (sink->options->stopping)
        sink->options->stopping(sink->options->user, &stopping);
}

static void on_tick(void *user)
{
    const struct api_sink *sink = user;
    if (sink->options->tick)
        sink->options->tick(sink->options->user);
}

/* Folders for the final model if the run directory is full, as whole paths: on disks first, then in
 * memory. */
static void find_places(struct api_sink *sink)
{
    char here[RUNDIR_PATH_MAX];
    const char *const named[API_PLACES] = {getenv("TMPDIR"), "/tmp", here};
    size_t n = 0;
    if (file_here(here, sizeof here, NULL) != OK)
        here[0] = '\0';
    for (int in_memory = 0; in_memory < 2; in_memory++)
        for (size_t i = 0; i < API_PLACES; i++) {
            char *path = sink->place_path[i];
            if (named[i] && named[i][0] &&
                file_resolve(here, named[i], path, sizeof sink->place_path[i], NULL) == OK &&
                real_disk_in_memory(path) == in_memory)
                sink->places[n++] = (struct rundir_fallback){path, in_memory};
        }
    sink->places[n] = (struct rundir_fallback){.folder = NULL};
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

/* Completes job.prototxt with the given job's paths. */
static void describe_job(struct api_sink *sink)
{
    sink->dir.folder = sink->given->folder;
    sink->dir.open_threads = !sink->given->message->has_threads;
}

static int take_over(struct api_sink *sink, struct err *err)
{
    char from[256];
    int rc = rundir_lock(&sink->dir, true, from, err);
    if (rc == OK && from[0])
        log_warn(sink->log, "%s: taken over; its driver (%s) ends", sink->dir.path, from);
    return rc;
}

static int on_begin(void *user, struct err *err)
{
    struct api_sink *sink = user;
    const pl_run_options *o = sink->options;
    bool inside = trace_is_inside(o);
    if (sink->no_files)
        return OK;
    if (sink->dir.events.file)
        return OK; /* a simulated driver that returns */
    int rc = inside ? OK : open_trace(sink, err);
    if (rc == OK && sink->takes_over)
        rc = take_over(sink, err);
    if (rc == OK && !o->resume)
        rc = rundir_create(&sink->dir, real_disk(), o->out, sink->name, err);
    if (rc == OK && inside)
        rc = open_trace(sink, err);
    describe_job(sink);
    if (rc == OK)
        rc = rundir_open(&sink->dir, sink->job, err);
    if (rc == OK && o->begins)
        o->begins(o->user, sink->dir.path);
    if (rc == OK && sink->early.len > 0 && !sink->early.failed) {
        buf_put_u8(&sink->early, 0);
        write_line(sink, (const char *)sink->early.data);
    }
    if (rc != OK)
        trace_file_discard(&sink->trace);
    return rc;
}

/* A simulated run is continued as a real one only if forced, and vice versa. */
static int check_world(const struct api_sink *sink, const struct logger *log, struct err *err)
{
    const char *dir = sink->dir.path;
    char path[RUNDIR_PATH_MAX + 64];
    rundir_file(&sink->dir, "events.jsonl", path, sizeof path);
    cJSON *start = event_log_newest(path, "start");
    bool was = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(start, "simulated"));
    bool same = !start || was == sink->simulated;
    cJSON_Delete(start);
    if (same)
        return OK;
    if (sink->options->force_change) {
        log_warn(log,
                 "%s: the run was %s until now, and is %s from here on: times and speeds of "
                 "the two are not to be compared",
                 dir, was ? "simulated" : "real", was ? "real" : "simulated");
        return OK;
    }
    if (was)
        return err_set(err, ERR_USAGE,
                       "%s: the run in it is simulated, and this would train it for real; resume "
                       "with paceline sim --resume --out DIR, or train in another directory; "
                       "--force-change trains on for real from its newest checkpoint",
                       dir);
    return err_set(err, ERR_USAGE,
                   "%s: the run in it is real, and this would simulate it; resume with paceline "
                   "resume DIR, or simulate into another directory; --force-change simulates from "
                   "its newest checkpoint on, in that run's own files",
                   dir);
}

/* Find the run to continue, which no other process may drive. If this driver takes a run over, the
 * run belongs to its former driver until everything is known to fit. */
static int find_run(struct api_sink *sink, const struct logger *log, struct err *err)
{
    const pl_run_options *o = sink->options;
    char from[256];
    int rc = rundir_find(&sink->dir, real_disk(), o->out, sink->name, err);
    if (rc == OK && !o->out)
        log_info(log, "resumes with %s, the newest run of that name", sink->dir.path);
    if (rc == OK)
        rc = rundir_lock(&sink->dir, false, from, err);
    sink->takes_over = rc == ERR_USAGE && o->take_over;
    if (sink->takes_over)
        rc = OK;
    describe_job(sink);
    if (rc == OK)
        rc = check_world(sink, log, err);
    return rc == OK ? api_check_job(&sink->dir, sink->job, o->force_change, log, err) : rc;
}

/* How long the run has taken until now: `t` resumes from its newest event. */
static double read_time(const struct rundir *dir)
{
    char path[RUNDIR_PATH_MAX + 64];
    rundir_file(dir, "events.jsonl", path, sizeof path);
    return event_log_last(path);
}

int api_sink_open(struct api_sink *sink, const pl_job *given, const pl_run_options *options,
                  struct train_options *train, const struct logger *log, struct err *err)
{
    sink->options = options;
    sink->given = given;
    sink->job = train->job;
    sink->log = log;
    sink->spans = (struct trace_sink){trace_file_spans, &sink->trace};
    sink->simulated = train->simulated;
    snprintf(sink->name, sizeof sink->name, "%.200s%s", sink->job->name,
             train->simulated ? "-sim" : "");
    train->begin = on_begin;
    train->line = on_line;
    train->lost = on_lost;
    train->progress = on_progress;
    train->stopping = on_stopping;
    train->tick = on_tick;
    find_places(sink);
    train->fallbacks = sink->places;
    train->user = sink;
    train->trace = options->trace ? &sink->spans : NULL;
    train->dir = sink->no_files ? NULL : &sink->dir;
    train->resume = options->resume;
    train->force = options->force_change;
    train->snapshot = options->snapshot;
    if (options->resume && options->snapshot)
        return err_set(err, ERR_USAGE,
                       "a run resumes from its own checkpoint or from a snapshot of "
                       "Caffe's: one of --resume and --snapshot");
    int rc = options->resume ? find_run(sink, log, err) : OK;
    if (rc == OK && options->resume)
        train->before = read_time(&sink->dir);
    return rc;
}

void api_sink_close(struct api_sink *sink)
{
    uint64_t missing = event_log_flush(&sink->dir.events);
    if (missing > 0)
        log_error(sink->log, "%s/events.jsonl lacks its last %llu line%s: %s", sink->dir.path,
                  (unsigned long long)missing, plural(missing, "s"), sink->dir.events.error.text);
    rundir_close(&sink->dir);
    trace_file_close(&sink->trace, sink->log);
    buf_release(&sink->early);
}

/* The net's name for users: its own, or that of its file. */
static const char *name_net(const Paceline__Net *net)
{
    if (net->source_case == PACELINE__NET__SOURCE_ZOO)
        return net->zoo;
    if (net->source_case == PACELINE__NET__SOURCE_DEFINE)
        return net->define->name && net->define->name[0] ? net->define->name : "net.define";
    const char *slash = strrchr(net->file, '/');
    return slash ? slash + 1 : net->file;
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
        .batch = from->batch,
        .wall_s = from->wall_s,
        .session_s = from->session_s,
        .seed = from->seed,
        .has_train = from->has_train,
        .train_loss = from->train_loss,
        .workers = from->workers,
        .parameters = from->parameters,
        .simulated = from->simulated,
        .has_cache = from->cache.there,
        .cached = from->cache.records,
        .cached_bytes = from->cache.bytes,
        .cached_disk = from->cache.disk_records,
        .cached_disk_bytes = from->cache.disk_bytes,
        .bad_records = from->bad_records,
    };
    memcpy(to->bad_record, from->bad_record, sizeof to->bad_record);
    snprintf(to->strategy, sizeof to->strategy, "%s", from->strategy);
    snprintf(to->net, sizeof to->net, "%s", name_net(sink->job->net));
    snprintf(to->reason, sizeof to->reason, "%s", from->reason);
    to->model_elsewhere = from->elsewhere;
    snprintf(to->model, sizeof to->model, "%s", from->model);
    snprintf(to->directory, sizeof to->directory, "%s", sink->dir.path);
}
