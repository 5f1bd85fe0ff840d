/* The job of a run that is continued: the directory's own, with the permitted changes. */
#include "api/api.h"
#include "api/guard.h"
#include "job/job_diff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The list of differences, as it grows. */
struct changes {
    const struct logger *log;
    bool force;
    size_t refused;
    char first[ERR_TEXT_MAX / 2]; /* that is refused */
};

static void on_change(void *user, const struct job_change *change)
{
    struct changes *c = user;
    bool refused = change->breaks && !c->force;
    log_warn(c->log, "%s: %s \u2192 %s", change->field, change->from, change->to);
    if (refused && c->refused++ == 0)
        snprintf(c->first, sizeof c->first, "%s: %.80s \u2192 %.80s", change->field, change->from,
                 change->to);
}

static int refuse_changes(const struct rundir *dir, const struct changes *c, struct err *err)
{
    char more[48] = "";
    if (c->refused > 1)
        snprintf(more, sizeof more, " (and %zu more)", c->refused - 1);
    return err_set(err, ERR_USAGE,
                   "%s%s: this makes the run in %s another run; --force-change allows it", c->first,
                   more, dir->path);
}

int api_check_job(const struct rundir *dir, Paceline__Job *job, bool force,
                  const struct logger *log, struct err *err)
{
    struct changes changes = {.log = log, .force = force};
    Paceline__Job *before = NULL, *now = NULL;
    char folder[RUNDIR_PATH_MAX];
    int rc = rundir_read_job(dir, &before, folder, err);
    if (rc == OK && (rc = job_finish(before, err)) != OK)
        err_prefix(err, "%s/job.prototxt", dir->path);
    if (rc != OK && rc != ERR_NOMEM && force) {
        log_warn(log, "%s; it is not compared", err->text);
        job_free(before);
        return OK;
    }
    if (rc == OK)
        rc = job_settle(job, before->train_data, err);
    if (rc == OK && job_is_auto(job))
        rc = job_take_choice(job, before, err);
    if (rc == OK)
        rc = rundir_whole_job(dir, job, &now, err);
    if (rc == OK)
        rc = job_diff(before, now, on_change, &changes, err);
    if (rc == OK && changes.refused > 0)
        rc = refuse_changes(dir, &changes, err);
    job_free(before);
    job_free(now);
    return rc;
}

/* A finished job states its first number of workers, which follows from workers_min; unset it, so
 * that workers_min can be set again. */
static void reopen_workers(Paceline__Job *job)
{
    if (job->has_workers_min)
        job->has_workers = false;
}

static int load_run(pl_engine *engine, const char *path, pl_job **out)
{
    struct rundir dir = {.disk = NULL};
    Paceline__Job *message;
    char folder[RUNDIR_PATH_MAX];
    int rc = rundir_set_path(&dir, path, &engine->error);
    if (rc == OK)
        rc = rundir_read_job(&dir, &message, folder, &engine->error);
    if (rc != OK)
        return rc;
    pl_job *job = calloc(1, sizeof *job);
    char *own = folder[0] ? strdup(folder) : NULL;
    if (!job || (folder[0] && !own)) {
        job_free(message);
        free(job);
        free(own);
        return err_set(&engine->error, ERR_NOMEM, "%s: out of memory", path);
    }
    reopen_workers(message);
    *job = (pl_job){.engine = engine, .message = message, .folder = own};
    *out = job;
    return OK;
}

int pl_job_load_directory(pl_engine *engine, const char *dir, pl_job **out)
{
    RETURN_GUARDED(engine, load_run(engine, dir, out));
}

/* ---- for the library's callers ---- */

struct telling {
    void (*each)(void *user, const pl_job_change *change);
    void *user;
};

static void report_change(void *user, const struct job_change *change)
{
    const struct telling *t = user;
    t->each(t->user, &(pl_job_change){change->field, change->from, change->to, change->breaks});
}

static int diff_jobs(const pl_job *from, const pl_job *to,
                     void (*each)(void *user, const pl_job_change *change), void *user)
{
    struct telling telling = {each, user};
    Paceline__Job *a = NULL, *b = NULL;
    int rc = api_job_finish(from, 0, &a);
    if (rc == OK)
        rc = api_job_finish(to, 0, &b);
    if (rc == OK) {
        a->has_threads = from->message->has_threads;
        b->has_threads = to->message->has_threads;
        rc = job_diff(a, b, report_change, &telling, &from->engine->error);
    }
    job_free(a);
    job_free(b);
    return rc;
}

int pl_job_diff(const pl_job *from, const pl_job *to,
                void (*each)(void *user, const pl_job_change *change), void *user)
{
    RETURN_GUARDED(from->engine, diff_jobs(from, to, each, user));
}
