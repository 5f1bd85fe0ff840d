#include "api/api.h"
#include "api/guard.h"
#include "base/bytes.h"
#include "base/file.h"
#include "job/text.h"
#include "real/real.h"

#include <stdlib.h>

static int job_wrap(pl_engine *engine, Paceline__Job *message, pl_job **out)
{
    pl_job *job = malloc(sizeof *job);
    if (!job) {
        job_free(message);
        return err_set(&engine->error, ERR_NOMEM, "job: out of memory");
    }
    *job = (pl_job){engine, message};
    *out = job;
    return OK;
}

static int load(pl_engine *engine, const char *path, pl_job **out)
{
    struct file_bytes text;
    Paceline__Job *message = NULL;
    int rc = file_read(path, TEXT_BYTES_MAX, &text, &engine->error);
    if (rc != OK)
        return rc;
    rc = job_parse(path, (char *)text.data, text.len, &message, &engine->error);
    file_release(&text);
    if (rc != OK)
        return rc;
    rc = job_resolve_paths(message, path, &engine->error);
    if (rc != OK) {
        job_free(message);
        return rc;
    }
    return job_wrap(engine, message, out);
}

int pl_job_load(pl_engine *engine, const char *path, pl_job **out)
{
    RETURN_GUARDED(engine, load(engine, path, out));
}

static int create(pl_engine *engine, pl_job **out)
{
    Paceline__Job *message;
    int rc = job_parse("job", "", 0, &message, &engine->error);
    return rc == OK ? job_wrap(engine, message, out) : rc;
}

int pl_job_create(pl_engine *engine, pl_job **out)
{
    RETURN_GUARDED(engine, create(engine, out));
}

void pl_job_free(pl_job *job)
{
    if (!job)
        return;
    job_free(job->message);
    free(job);
}

int pl_job_set_strategy(pl_job *job, const char *name)
{
    RETURN_GUARDED(job->engine, job_set_strategy(job->message, name, &job->engine->error));
}

int pl_job_set(pl_job *job, const char *assignment)
{
    RETURN_GUARDED(job->engine, job_set(job->message, assignment, &job->engine->error));
}

int pl_job_set_train_data(pl_job *job, const char *spec)
{
    RETURN_GUARDED(job->engine, job_set_data(&job->message->train_data, spec, &job->engine->error));
}

int pl_job_set_test_data(pl_job *job, const char *spec)
{
    RETURN_GUARDED(job->engine, job_set_data(&job->message->test_data, spec, &job->engine->error));
}

/* A message's copy, by way of its text: what is written to a run directory is what is run. */
static int copy_job(const Paceline__Job *job, Paceline__Job **out, struct err *err)
{
    struct buf text = {0};
    text_write(&job->base, &text);
    int rc = text.failed ? err_set(err, ERR_NOMEM, "job: out of memory")
                         : job_parse("job", (char *)text.data, text.len, out, err);
    buf_release(&text);
    return rc;
}

int api_job_finish(const pl_job *job, uint32_t workers_here, Paceline__Job **out)
{
    struct err *err = &job->engine->error;
    Paceline__Job *copy;
    int rc = copy_job(job->message, &copy, err);
    if (rc != OK)
        return rc;
    rc = job_finish(copy, err);
    if (rc != OK) {
        job_free(copy);
        return rc;
    }
    if (!copy->has_threads) {
        uint32_t share = (uint32_t)real_cores() / (workers_here ? workers_here : copy->workers);
        copy->has_threads = true;
        copy->threads = share > copy->local ? share : copy->local;
    }
    *out = copy;
    return OK;
}
