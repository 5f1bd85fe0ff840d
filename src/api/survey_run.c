/* pl_survey: a run of the strategy `survey`, whose `machine` events become a cluster. */
#include "api/api.h"
#include "api/caffe_project.h"
#include "api/guard.h"
#include "api/option_size.h"
#include "base/bytes.h"
#include "base/fault.h"
#include "base/plural.h"
#include "group/view.h"
#include "job/job.h"
#include "paceline/plan.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_SHOWN = 64 };

/* A worker as its event has it. */
struct measured {
    uint32_t node;
    double step_s, mbit; /* step_s 0: its loss was not finite */
    char host[NAME_MAX_SHOWN];
};

struct surveying {
    pl_engine *engine;
    struct measured at[VIEW_MEMBERS_MAX];
    size_t count;
    double driver_mbit, latency_us;
};

static double number_of(const cJSON *event, const char *key)
{
    const cJSON *value = cJSON_GetObjectItem(event, key);
    return cJSON_IsNumber(value) ? value->valuedouble : 0;
}

/* The name becomes part of a comment, and comes from another machine. */
static void copy_name(const cJSON *event, char out[NAME_MAX_SHOWN])
{
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(event, "host"));
    size_t len = 0;
    for (; name && name[len] && len + 1 < NAME_MAX_SHOWN; len++)
        out[len] = name[len] > ' ' && name[len] <= '~' ? name[len] : '?';
    out[len] = '\0';
}

static void take_machine(struct surveying *s, const cJSON *event)
{
    double node = number_of(event, "node"), mbit = number_of(event, "mbit");
    s->latency_us = number_of(event, "latency_us");
    if (node < 0) {
        s->driver_mbit = mbit;
        return;
    }
    PL_ASSERT(s->count < VIEW_MEMBERS_MAX);
    struct measured *m = &s->at[s->count++];
    m->node = (uint32_t)node;
    m->step_s = number_of(event, "step_s");
    m->mbit = mbit;
    copy_name(event, m->host);
}

static void on_event(void *user, const char *line)
{
    struct surveying *s = user;
    cJSON *event = cJSON_Parse(line);
    const char *kind = cJSON_GetStringValue(cJSON_GetObjectItem(event, "kind"));
    if (kind && strcmp(kind, "machine") == 0)
        take_machine(s, event);
    cJSON_Delete(event);
}

/* The job with the strategy `survey`, which ends it however few records there are, and a fixed
 * number of workers. Each takes steps of as many records as a step of a cluster file has. Sets
 * *workers where it is 0. */
static int copy_job(pl_engine *engine, const pl_job *given, uint32_t *workers, pl_job **out)
{
    static const char *const left_out[] = {"follow_batch", "workers_min", "workers_max", "stop"};
    struct err *err = &engine->error;
    char taken[JOB_TAKEN_MAX], text[3][48];
    Paceline__Job *finished;
    int rc = api_job_finish(given, 1, &finished);
    if (rc != OK)
        return rc;
    *workers = *workers ? *workers : finished->workers;
    snprintf(text[0], sizeof text[0], "workers=%" PRIu32, *workers);
    snprintf(text[1], sizeof text[1], "batch=%" PRIu32, finished->batch);
    snprintf(text[2], sizeof text[2], "stop.steps=%" PRIu64, UINT64_MAX);
    job_free(finished);
    rc = api_job_copy(given, out);
    if (rc != OK)
        return rc;
    for (size_t i = 0; rc == OK && i < sizeof left_out / sizeof *left_out; i++)
        rc = job_unset((*out)->message, left_out[i], err);
    if (rc == OK)
        rc = job_set_strategy((*out)->message, "survey", err);
    for (size_t i = 0; rc == OK && i < sizeof text / sizeof *text; i++)
        rc = job_override((*out)->message, text[i], taken, err);
    if (rc != OK)
        pl_job_free(*out);
    return rc;
}

static void name_worker(const struct measured *m, char out[NAME_MAX_SHOWN + 32])
{
    snprintf(out, NAME_MAX_SHOWN + 32, "worker %" PRIu32 "%s%s", m->node, m->host[0] ? ", " : "",
             m->host);
}

/* Speeds are those of the fastest worker, whose step is the cluster's. */
static int make_cluster(struct surveying *s, pl_cluster **out)
{
    struct err *err = &s->engine->error;
    double least = INFINITY;
    char name[NAME_MAX_SHOWN + 32];
    struct buf text = {0};
    for (size_t i = 0; i < s->count; i++) {
        name_worker(&s->at[i], name);
        if (s->at[i].step_s <= 0)
            return err_set(err, ERR_DIVERGED,
                           "%s: its loss is not finite within a second, so its step is not "
                           "known: lower solver.base_lr",
                           name);
        least = fmin(least, s->at[i].step_s);
    }
    for (size_t i = 0; i < s->count; i++) {
        const struct measured *m = &s->at[i];
        name_worker(m, name);
        buf_printf(&text, "node { speed: %.4g mbit: %.4g } # %s: %.4g ms a step\n",
                   least / m->step_s, m->mbit, name, 1e3 * m->step_s);
    }
    buf_printf(&text, "step_seconds: %.6g\nlink { mbit: %.4g latency_us: %.4g } # of the driver\n",
               least, s->driver_mbit, fmax(s->latency_us, 0));
    int rc = text.failed ? err_set(err, ERR_NOMEM, "out of memory for a cluster")
                         : api_cluster_make("survey", (char *)text.data, text.len, out, err);
    buf_release(&text);
    return rc;
}

static const char *find_contradiction(const pl_run_options *o)
{
    return o->out        ? "out"
           : o->resume   ? "resume"
           : o->snapshot ? "snapshot"
           : o->trace    ? "trace"
           : o->dry_run  ? "dry_run"
                         : NULL;
}

static int survey_machines(pl_engine *engine, const pl_job *job, uint32_t workers,
                           const pl_run_options *given, pl_cluster **out)
{
    struct err *err = &engine->error;
    pl_run_options options;
    pl_run_report report;
    pl_job *copy;
    int rc = OPTIONS_TAKE(pl_run_options, &options, given, err);
    if (rc != OK)
        return rc;
    const char *option = find_contradiction(&options);
    if (option)
        return err_set(err, ERR_USAGE, "a survey keeps no files, and has no option %s", option);
    struct surveying *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, ERR_NOMEM, "out of memory for a survey");
    s->engine = engine;
    const struct api_observer observer = {on_event, s};
    rc = copy_job(engine, job, &workers, &copy);
    if (rc == OK) {
        rc = api_run(engine, copy, &options, &observer, &report);
        pl_job_free(copy);
    }
    if (rc == OK && s->count == 0)
        rc = err_set(err, ERR_STOP, "the survey was interrupted");
    if (rc == OK && s->count < workers)
        rc = err_set(err, ERR_PEER, "%zu of %" PRIu32 " worker%s could be measured", s->count,
                     workers, plural(workers, "s"));
    if (rc == OK)
        rc = make_cluster(s, out);
    free(s);
    return rc;
}

int pl_survey(pl_engine *engine, const pl_job *job, uint32_t workers, const pl_run_options *options,
              pl_cluster **out)
{
    RETURN_GUARDED(engine, survey_machines(engine, job, workers, options, out));
}
