#include "api/api.h"
#include "api/caffe_project.h"
#include "api/guard.h"
#include "base/bytes.h"
#include "base/file.h"
#include "job/text.h"
#include "real/real.h"

#include <stdlib.h>
#include <string.h>

static int job_wrap(pl_engine *engine, Paceline__Job *message, pl_job **out)
{
    pl_job *job = calloc(1, sizeof *job);
    if (!job) {
        job_free(message);
        return err_set(&engine->error, ERR_NOMEM, "job: out of memory");
    }
    job->engine = engine;
    job->message = message;
    *out = job;
    return OK;
}

static int read_job(pl_engine *engine, const char *path, const struct file_bytes *text,
                    pl_job **out)
{
    Paceline__Job *message = NULL;
    int rc = job_parse(path, (char *)text->data, text->len, &message, &engine->error);
    if (rc != OK)
        return rc;
    rc = job_resolve_paths(message, path, &engine->error);
    if (rc != OK) {
        job_free(message);
        return rc;
    }
    return job_wrap(engine, message, out);
}

static int read_solver(pl_engine *engine, const char *path, const struct file_bytes *text,
                       pl_job **out)
{
    struct job_solver_wants *wants = malloc(sizeof *wants);
    Paceline__Job *message;
    if (!wants)
        return err_set(&engine->error, ERR_NOMEM, "%s: out of memory", path);
    int rc = api_load_solver(engine, path, (char *)text->data, text->len, wants, &message);
    if (rc == OK)
        rc = job_wrap(engine, message, out);
    if (rc == OK)
        (*out)->wants = wants;
    else
        free(wants);
    return rc;
}

enum file_kind { JOB_OR_SOLVER, SOLVER };

static int load_job(pl_engine *engine, const char *path, enum file_kind kind, pl_job **out)
{
    struct file_bytes text;
    int rc = file_read(path, TEXT_BYTES_MAX, &text, &engine->error);
    if (rc != OK)
        return rc;
    if (text.len == 0) {
        file_release(&text);
        return err_set(&engine->error, ERR_INPUT,
                       "%s: is empty; a job has at least net, train_data and solver", path);
    }
    bool solver = kind == SOLVER || job_is_solver((char *)text.data, text.len);
    rc = solver ? read_solver(engine, path, &text, out) : read_job(engine, path, &text, out);
    file_release(&text);
    const char *slash = strrchr(path, '/');
    if (rc != OK || !slash)
        return rc;
    (*out)->folder = strndup(path, (size_t)(slash - path) + 1);
    if ((*out)->folder)
        return OK;
    pl_job_free(*out);
    return err_set(&engine->error, ERR_NOMEM, "%s: out of memory", path);
}

int pl_job_load(pl_engine *engine, const char *path, pl_job **out)
{
    RETURN_GUARDED(engine, load_job(engine, path, JOB_OR_SOLVER, out));
}

int pl_job_load_solver(pl_engine *engine, const char *path, pl_job **out)
{
    RETURN_GUARDED(engine, load_job(engine, path, SOLVER, out));
}

static int create_job(pl_engine *engine, pl_job **out)
{
    Paceline__Job *message;
    int rc = job_parse("job", "", 0, &message, &engine->error);
    return rc == OK ? job_wrap(engine, message, out) : rc;
}

int pl_job_create(pl_engine *engine, pl_job **out)
{
    RETURN_GUARDED(engine, create_job(engine, out));
}

void pl_job_free(pl_job *job)
{
    if (!job)
        return;
    job_free(job->message);
    free(job->wants);
    free(job->folder);
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

int pl_job_unset(pl_job *job, const char *field)
{
    RETURN_GUARDED(job->engine, job_unset(job->message, field, &job->engine->error));
}

static int override_field(pl_job *job, const char *assignment)
{
    char taken[JOB_TAKEN_MAX];
    int rc = job_override(job->message, assignment, taken, &job->engine->error);
    if (rc == OK && taken[0])
        log_info(&job->engine->log, "%s: replaces %s%s", assignment, taken,
                 strstr(taken, "single") ? "; several workers begin with strategy sync" : "");
    return rc;
}

int pl_job_override(pl_job *job, const char *assignment)
{
    RETURN_GUARDED(job->engine, override_field(job, assignment));
}

/* Replace a data layer's records by others, which get those of its maps that they do not have
 * themselves. */
static int replace_layer(Paceline__Data **data, char *wants, const char *spec, struct err *err)
{
    Paceline__Data *records = NULL;
    int rc = job_set_data(&records, spec, err);
    if (rc == OK)
        rc = job_solver_keep_maps(records, *data, err);
    if (rc != OK) {
        if (records)
            paceline__data__free_unpacked(records, NULL);
        return rc;
    }
    if (*data)
        paceline__data__free_unpacked(*data, NULL);
    *data = records;
    wants[0] = '\0';
    return OK;
}

static int set_train_data(pl_job *job, const char *spec)
{
    Paceline__Data **data = &job->message->train_data;
    return job->wants ? replace_layer(data, job->wants->train, spec, &job->engine->error)
                      : job_set_data(data, spec, &job->engine->error);
}

static int set_test_data(pl_job *job, const char *spec)
{
    Paceline__Data **data = &job->message->test_data;
    return job->wants ? replace_layer(data, job->wants->test, spec, &job->engine->error)
                      : job_set_data(data, spec, &job->engine->error);
}

int pl_job_set_train_data(pl_job *job, const char *spec)
{
    RETURN_GUARDED(job->engine, set_train_data(job, spec));
}

int pl_job_set_test_data(pl_job *job, const char *spec)
{
    RETURN_GUARDED(job->engine, set_test_data(job, spec));
}

/* Copy a message by way of its text, so that the run uses exactly the text in its directory. */
static int copy_job(const Paceline__Job *job, Paceline__Job **out, struct err *err)
{
    struct buf text = {0};
    text_write(&job->base, &text);
    int rc = text.failed ? err_set(err, ERR_NOMEM, "job: out of memory")
                         : job_parse("job", (char *)text.data, text.len, out, err);
    buf_release(&text);
    return rc;
}

int api_job_copy(const pl_job *job, pl_job **out)
{
    Paceline__Job *message;
    int rc = copy_job(job->message, &message, &job->engine->error);
    if (rc == OK)
        rc = job_wrap(job->engine, message, out);
    if (rc != OK)
        return rc;
    (*out)->folder = job->folder ? strdup(job->folder) : NULL;
    (*out)->wants = job->wants ? malloc(sizeof *job->wants) : NULL;
    if (job->wants && (*out)->wants)
        *(*out)->wants = *job->wants;
    if (!job->folder == !(*out)->folder && !job->wants == !(*out)->wants)
        return OK;
    pl_job_free(*out);
    return err_set(&job->engine->error, ERR_NOMEM, "job: out of memory");
}

static int job_text(const pl_job *job, char **out)
{
    Paceline__Job *finished;
    struct buf text = {0};
    char here[RUNDIR_PATH_MAX];
    int rc = api_job_finish(job, 0, &finished);
    if (rc != OK)
        return rc;
    rc = file_here(here, sizeof here, &job->engine->error);
    if (rc == OK)
        rc = job_resolve_paths(finished, here, &job->engine->error);
    if (rc != OK) {
        job_free(finished);
        return rc;
    }
    text_write(&finished->base, &text);
    buf_put_u8(&text, 0);
    job_free(finished);
    if (text.failed) {
        buf_release(&text);
        return err_set(&job->engine->error, ERR_NOMEM, "job: out of memory");
    }
    *out = (char *)text.data; /* the caller frees it */
    return OK;
}

int pl_job_text(const pl_job *job, char **out)
{
    RETURN_GUARDED(job->engine, job_text(job, out));
}

bool api_job_is_open_ended(const pl_job *job)
{
    const Paceline__Stop *stop = job->message->stop;
    return !stop || !(stop->has_epochs || stop->has_steps || stop->has_seconds ||
                      stop->has_validation_error || stop->has_test_error);
}

int api_job_finish(const pl_job *job, uint32_t workers_here, Paceline__Job **out)
{
    struct err *err = &job->engine->error;
    Paceline__Job *copy;
    if (job->wants && (job->wants->train[0] || job->wants->test[0]))
        return err_set(err, ERR_UNSUPPORTED, "%s",
                       job->wants->train[0] ? job->wants->train : job->wants->test);
    int rc = copy_job(job->message, &copy, err);
    if (rc != OK)
        return rc;
    rc = job_finish(copy, err);
    if (rc != OK) {
        job_free(copy);
        return rc;
    }
    if (!copy->has_threads) {
        uint32_t processes = workers_here ? workers_here : job_workers_max(copy);
        uint32_t share = (uint32_t)real_threads(processes);
        copy->has_threads = true;
        copy->threads = share > copy->local ? share : copy->local;
    }
    *out = copy;
    return OK;
}
