#include "api/data.h"
#include "api/guard.h"
#include "api/option_size.h"
#include "base/hash.h"
#include "data/source_memory.h"
#include "data/spool.h"
#include "real/disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_MAX_BYTES = 4096 };

struct pl_stream {
    pl_engine *engine; /* that binds the name */
    pl_engine *own;    /* of a stream that grows: keeps its errors; NULL: `engine` does */
    char name[BINDING_NAME_MAX];
    struct memory_records records; /* all but their count */
    struct spool *spool;           /* the binding's, where there is one */
    bool bound;
    size_t acquired;        /* records of the last pl_stream_acquire, */
    const uint32_t *labels; /* and their labels */
    struct err failed;
    bool warned;               /* that the file is not kept any more */
    char path[PATH_MAX_BYTES]; /* of the file, while it is made */
};

/* Each part, too, leaves a block of its own in memory, unless its file is kept. There the system
 * takes a third less time for one write of 256 KiB than for four of 64. */
enum { GROWING_BLOCK = 16 << 10, PARTS_BLOCK = 64 << 10, KEPT_BLOCK = 256 << 10 };

static pl_engine *errors_of(const pl_stream *stream)
{
    return stream->own ? stream->own : stream->engine;
}

static int read_spool(void *user, size_t i, void *values)
{
    return spool_read(user, i, values);
}

static uint32_t label_in_spool(void *user, size_t i)
{
    return spool_label(user, i);
}

static size_t count_readable(void *user, bool *more)
{
    return spool_readable(user, more);
}

static size_t list_parts(void *user, struct source_part *out, size_t most)
{
    struct spool_part part[SPOOL_PARTS_MAX];
    size_t n = spool_parts(user, part, SPOOL_PARTS_MAX);
    for (size_t i = 0; i < n && i < most; i++)
        out[i] = (struct source_part){part[i].end - (i > 0 ? part[i - 1].end : 0), part[i].hash};
    return n;
}

static void release_spool(void *user)
{
    spool_close(user);
    free(user);
}

/* ---- opening ---- */

/* Parts pass from stream to stream only where they belong to the same, in the same form. */
static uint64_t set_of(const pl_stream_options *options)
{
    const uint64_t form[] = {options->set,    (uint64_t)options->type, options->channels,
                             options->height, options->width,          options->classes};
    return hash_bytes(form, sizeof form);
}

/* Where the disk is: a file without a name, or one that is kept, and is opened here. */
static int choose_file(pl_stream *stream, const pl_stream_options *options,
                       struct spool_config *config, struct file_open *kept, struct err *err)
{
    config->path = stream->path;
    if (!options->keep)
        return real_disk_temporary(options->folder, stream->name, stream->path, sizeof stream->path,
                                   err);
    int n = snprintf(stream->path, sizeof stream->path, "%s", options->keep);
    if (n < 0 || (size_t)n >= sizeof stream->path)
        return err_set(err, ERR_INPUT, "stream %s: keep: the path is too long", stream->name);
    int rc = real_disk_own(stream->path, kept, err);
    config->keep = kept;
    config->keep_in_memory = rc == OK && real_disk_in_memory(stream->path);
    return rc;
}

static int make_spool(pl_stream *stream, const pl_stream_options *options, struct err *err)
{
    struct file_open kept = {.fd = -1};
    struct spool_config config = {
        .record_bytes = memory_record_bytes(&stream->records),
        .block_bytes = options->keep    ? KEPT_BLOCK
                       : options->parts ? PARTS_BLOCK
                       : options->grows ? GROWING_BLOCK
                                        : 0,
        .memory = options->memory > 0 ? options->memory : SIZE_MAX,
        .disk = options->memory > 0 || options->keep ? real_disk() : NULL,
        .in_parts = options->parts,
        .set = set_of(options),
        .classes = stream->records.classes,
    };
    stream->spool = calloc(1, sizeof *stream->spool);
    if (!stream->spool)
        return err_set(err, ERR_NOMEM, "stream %s: out of memory", stream->name);
    int rc = choose_file(stream, options, &config, &kept, err);
    return rc == OK ? spool_open(stream->spool, &config, err) : rc;
}

/* Bind the name to the spool, which the binding frees from then on. */
static int bind_spool(pl_stream *stream, const struct memory_records *with)
{
    struct memory_records records = *with;
    records.label = records.classes > 0 ? label_in_spool : NULL;
    records.in_memory = !stream->spool->sealed || !stream->spool->has_file;
    records.user = stream->spool;
    int rc = api_bind_records(stream->engine, stream->name, &records);
    stream->bound = rc == OK;
    return rc;
}

static int bind_growing(pl_stream *stream, const pl_stream_options *options)
{
    struct memory_records records = stream->records;
    records.count = UINT32_MAX;
    records.arrived = count_readable;
    records.parts = options->parts ? list_parts : NULL;
    records.unshared = options->hash == 0 && !options->parts;
    records.hash = options->hash ? options->hash : hash_bytes(stream->name, strlen(stream->name));
    records.hash += records.hash == 0;
    int rc = pl_engine_create(NULL, &stream->own);
    if (rc != OK)
        return err_set(&stream->engine->error, rc, "stream %s: out of memory", stream->name);
    return bind_spool(stream, &records);
}

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
    stream->records.name = stream->name;
    rc = options->parts && !options->grows
             ? err_set(err, ERR_USAGE, "stream %s: one in parts grows", name)
         : options->keep && !options->parts
             ? err_set(err, ERR_USAGE, "stream %s: one that is kept is in parts", name)
             : make_spool(stream, options, err);
    if (rc == OK && options->grows)
        rc = bind_growing(stream, options);
    if (rc == OK)
        *out = stream;
    else
        pl_stream_free(stream);
    return rc;
}

static int open_own_stream(pl_engine *engine, const char *name, const pl_stream_options *given,
                           pl_stream **out)
{
    pl_stream_options options;
    int rc = OPTIONS_TAKE(pl_stream_options, &options, given, &engine->error);
    return rc == OK ? open_stream(engine, name, &options, out) : rc;
}

int pl_stream_open(pl_engine *engine, const char *name, const pl_stream_options *options,
                   pl_stream **out)
{
    RETURN_GUARDED(engine, open_own_stream(engine, name, options, out));
}

const char *pl_stream_error(const pl_stream *stream)
{
    return pl_engine_error(errors_of(stream));
}

static void free_stream(pl_stream *stream)
{
    if (!stream->bound && stream->spool) {
        spool_close(stream->spool);
        free(stream->spool);
    }
    pl_engine_destroy(stream->own);
    free(stream);
}

void pl_stream_free(pl_stream *stream)
{
    if (!stream)
        return;
    if (stream->bound)
        spool_end(stream->spool);
    free_stream(stream);
}

/* ---- filling ---- */

/* A stream that has failed once fails for ever: its file may end within a record. */
static int keep_failure(pl_stream *stream, int rc)
{
    struct err *err = &errors_of(stream)->error;
    if (rc == OK)
        return OK;
    err_prefix(err, "stream %s", stream->name);
    stream->failed = *err;
    return rc;
}

static int check_alive(pl_stream *stream)
{
    if (stream->failed.status != OK)
        errors_of(stream)->error = stream->failed;
    return stream->failed.status;
}

static int acquire_records(pl_stream *stream, void **values, uint32_t **labels, size_t *room)
{
    int rc = check_alive(stream);
    if (rc != OK)
        return rc;
    stream->acquired = 0;
    rc = spool_acquire(stream->spool, values, labels, room, &errors_of(stream)->error);
    if (rc == OK) {
        stream->acquired = *room;
        stream->labels = *labels;
    }
    return rc;
}

int pl_stream_acquire(pl_stream *stream, void **values, uint32_t **labels, size_t *room)
{
    RETURN_GUARDED(errors_of(stream), acquire_records(stream, values, labels, room));
}

static int commit_records(pl_stream *stream, size_t count)
{
    struct err *err = &errors_of(stream)->error;
    struct spool *spool = stream->spool;
    int rc = check_alive(stream);
    if (rc != OK)
        return rc;
    if (count > UINT32_MAX - spool->count)
        return err_set(err, ERR_INPUT, "stream %s: more than %u records", stream->name, UINT32_MAX);
    if (count > stream->acquired)
        return err_set(err, ERR_USAGE, "stream %s: %zu records, of which %zu were acquired",
                       stream->name, count, stream->acquired);
    for (size_t i = 0; i < count; i++)
        if (stream->records.classes > 0 && stream->labels[i] >= stream->records.classes)
            return err_set(err, ERR_INPUT, "stream %s: record %zu has label %u of %u classes",
                           stream->name, spool->count + i, stream->labels[i],
                           stream->records.classes);
    stream->acquired = 0;
    return count == 0 ? OK : keep_failure(stream, spool_commit(spool, count, err));
}

int pl_stream_commit(pl_stream *stream, size_t count)
{
    RETURN_GUARDED(errors_of(stream), commit_records(stream, count));
}

static int flush_stream(pl_stream *stream)
{
    struct err *err = &errors_of(stream)->error;
    int rc = check_alive(stream);
    if (rc == OK && (!stream->bound || stream->spool->part))
        rc = err_set(err, ERR_USAGE, "stream %s: it does not grow, or does so in parts",
                     stream->name);
    return rc == OK ? keep_failure(stream, spool_flush(stream->spool, err)) : rc;
}

int pl_stream_flush(pl_stream *stream)
{
    RETURN_GUARDED(errors_of(stream), flush_stream(stream));
}

static int cut_stream(pl_stream *stream, uint64_t hash)
{
    struct err *err = &errors_of(stream)->error;
    int rc = check_alive(stream);
    if (rc == OK && !stream->spool->part)
        rc = err_set(err, ERR_USAGE, "stream %s: it is not in parts", stream->name);
    if (rc != OK)
        return rc;
    rc = spool_cut(stream->spool, hash, err);
    if (rc == ERR_USAGE || rc == ERR_FULL)
        err_prefix(err, "stream %s", stream->name);
    else
        keep_failure(stream, rc);
    if (stream->spool->log_failed.status != OK && !stream->warned) {
        stream->warned = true;
        log_warn(&stream->engine->log,
                 "stream %s: no part is kept from here on for a process that follows: %s",
                 stream->name, stream->spool->log_failed.text);
    }
    return rc;
}

int pl_stream_cut(pl_stream *stream, uint64_t hash)
{
    RETURN_GUARDED(errors_of(stream), cut_stream(stream, hash));
}

static int adopt_parts(pl_stream *stream, const char *path, const pl_stream_part *parts,
                       size_t count, bool *adopted)
{
    struct err *err = &errors_of(stream)->error;
    struct file_open file;
    struct spool_wanted *wanted = NULL;
    memset(adopted, 0, count * sizeof *adopted);
    int rc = check_alive(stream);
    if (rc == OK && (!stream->spool->part || !stream->spool->has_file))
        rc = err_set(err, ERR_USAGE, "it is not in parts that are kept");
    if (rc == OK)
        wanted = calloc(count + 1, sizeof *wanted);
    if (rc == OK && !wanted)
        rc = err_set(err, ERR_NOMEM, "out of memory for %zu parts", count);
    for (size_t i = 0; rc == OK && i < count; i++)
        wanted[i] = (struct spool_wanted){parts[i].hash, parts[i].records};
    if (rc == OK)
        rc = real_disk_inherit(path, &file, err);
    if (rc == OK) {
        rc = spool_adopt(stream->spool, &file, wanted, count, adopted, err);
        if (rc != OK)
            err_prefix(err, "%s", path);
    }
    free(wanted);
    if (rc != OK)
        err_prefix(err, "stream %s", stream->name);
    return rc;
}

int pl_stream_adopt(pl_stream *stream, const char *path, const pl_stream_part *wanted, size_t count,
                    bool *adopted)
{
    RETURN_GUARDED(errors_of(stream), adopt_parts(stream, path, wanted, count, adopted));
}

static int seal_stream(pl_stream *stream)
{
    struct err *err = &errors_of(stream)->error;
    struct memory_records records = stream->records;
    struct spool *spool = stream->spool;
    int rc = check_alive(stream);
    if (rc == OK && spool->count == 0)
        rc = err_set(err, ERR_INPUT, "stream %s: it has no record", stream->name);
    if (rc == OK && spool->part && !spool->sealed && spool->count != atomic_load(&spool->readable))
        rc = err_set(err, ERR_USAGE, "stream %s: its last records are in no part", stream->name);
    if (rc == OK && !spool->sealed)
        rc = keep_failure(stream, spool_seal(spool, err));
    records.count = spool->count;
    records.hash = spool->hash_value;
    return rc == OK && !stream->bound ? bind_spool(stream, &records) : rc;
}

static int seal_guarded(pl_stream *stream)
{
    RETURN_GUARDED(errors_of(stream), seal_stream(stream));
}

int pl_stream_seal(pl_stream *stream)
{
    int rc = seal_guarded(stream);
    if (rc == OK)
        free_stream(stream);
    return rc;
}
