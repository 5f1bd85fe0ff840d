#include "api/data.h"
#include "api/guard.h"
#include "data/source_memory.h"
#include "data/spool.h"
#include "real/disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_MAX_BYTES = 4096 };

struct pl_stream {
    pl_engine *engine;
    char name[BINDING_NAME_MAX];
    struct memory_records records; /* all but their count */
    struct spool spool;
    size_t acquired; /* records of the last pl_stream_acquire */
    struct err failed;
    char path[PATH_MAX_BYTES]; /* of the file, while it is made */
};

static int read_spool(void *user, size_t i, void *values)
{
    return spool_read(user, i, values);
}

static void release_spool(void *user)
{
    spool_close(user);
    free(user);
}

/* ---- opening ---- */

static int open_stream(pl_engine *engine, const char *name, const pl_stream_options *options,
                       pl_stream **out)
{
    struct err *err = &engine->error;
    struct memory_records records = {
        .name = name,
        .shape = {3, {options->channels, options->height, options->width}},
        .classes = options->classes,
        .read = read_spool,
        .release = release_spool,
    };
    int rc = api_value_type(options->type, &records.type, err);
    if (rc == OK)
        rc = bindings_check(&engine->bindings, name, err);
    if (rc == OK)
        rc = memory_check(&records, err);
    if (rc != OK)
        return rc;
    pl_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return err_set(err, ERR_NOMEM, "stream %s: out of memory", name);
    stream->engine = engine;
    stream->records = records;
    snprintf(stream->name, sizeof stream->name, "%s", name);
    rc = real_disk_temporary(options->folder, name, stream->path, sizeof stream->path, err);
    if (rc == OK)
        rc = spool_open(&stream->spool,
                        &(struct spool_config){
                            .record_bytes = memory_record_bytes(&records),
                            .memory = options->memory,
                            .disk = options->memory > 0 ? real_disk() : NULL,
                            .path = stream->path,
                        },
                        err);
    if (rc == OK)
        *out = stream;
    else
        pl_stream_free(stream);
    return rc;
}

int pl_stream_open(pl_engine *engine, const char *name, const pl_stream_options *options,
                   pl_stream **out)
{
    RETURN_GUARDED(engine, open_stream(engine, name, options, out));
}

void pl_stream_free(pl_stream *stream)
{
    if (!stream)
        return;
    spool_close(&stream->spool);
    free(stream);
}

/* ---- filling ---- */

/* A stream that has failed once fails for ever: its file may end within a record. */
static int keep_failure(pl_stream *stream, int rc)
{
    struct err *err = &stream->engine->error;
    if (rc == OK)
        return OK;
    err_prefix(err, "stream %s", stream->name);
    stream->failed = *err;
    return rc;
}

static int check_alive(pl_stream *stream)
{
    if (stream->failed.status != OK)
        stream->engine->error = stream->failed;
    return stream->failed.status;
}

static int acquire_records(pl_stream *stream, void **values, uint32_t **labels, size_t *room)
{
    int rc = check_alive(stream);
    if (rc != OK)
        return rc;
    stream->acquired = 0;
    rc = spool_acquire(&stream->spool, values, labels, room, &stream->engine->error);
    if (rc == OK)
        stream->acquired = *room;
    return rc;
}

int pl_stream_acquire(pl_stream *stream, void **values, uint32_t **labels, size_t *room)
{
    RETURN_GUARDED(stream->engine, acquire_records(stream, values, labels, room));
}

static int commit_records(pl_stream *stream, size_t count)
{
    struct err *err = &stream->engine->error;
    const struct spool *spool = &stream->spool;
    int rc = check_alive(stream);
    if (rc != OK)
        return rc;
    if (count > UINT32_MAX - spool->count)
        return err_set(err, ERR_INPUT, "stream %s: more than %u records", stream->name, UINT32_MAX);
    if (count > stream->acquired)
        return err_set(err, ERR_USAGE, "stream %s: %zu records, of which %zu were acquired",
                       stream->name, count, stream->acquired);
    for (size_t i = spool->count; i < spool->count + count; i++)
        if (stream->records.classes > 0 && spool->labels[i] >= stream->records.classes)
            return err_set(err, ERR_INPUT, "stream %s: record %zu has label %u of %u classes",
                           stream->name, i, spool->labels[i], stream->records.classes);
    stream->acquired = 0;
    return count == 0 ? OK : keep_failure(stream, spool_commit(&stream->spool, count, err));
}

int pl_stream_commit(pl_stream *stream, size_t count)
{
    RETURN_GUARDED(stream->engine, commit_records(stream, count));
}

/* The spool moves to memory of its own, which the binding frees. */
static int bind_spool(pl_stream *stream)
{
    struct err *err = &stream->engine->error;
    struct memory_records records = stream->records;
    struct spool *spool = malloc(sizeof *spool);
    if (!spool)
        return err_set(err, ERR_NOMEM, "stream %s: out of memory", stream->name);
    int rc = stream->spool.sealed ? OK : keep_failure(stream, spool_seal(&stream->spool, err));
    *spool = stream->spool;
    records.count = spool->count;
    records.labels = records.classes > 0 ? spool->labels : NULL;
    records.hash = spool->hash_value;
    records.user = spool;
    if (rc == OK)
        rc = api_bind_records(stream->engine, stream->name, &records);
    if (rc != OK) {
        free(spool);
        return rc;
    }
    stream->spool = (struct spool){0};
    pl_stream_free(stream);
    return OK;
}

static int seal_stream(pl_stream *stream)
{
    int rc = check_alive(stream);
    if (rc == OK && stream->spool.count == 0)
        rc =
            err_set(&stream->engine->error, ERR_INPUT, "stream %s: it has no record", stream->name);
    return rc == OK ? bind_spool(stream) : rc;
}

int pl_stream_seal(pl_stream *stream)
{
    pl_engine *engine = stream->engine;
    RETURN_GUARDED(engine, seal_stream(stream));
}
