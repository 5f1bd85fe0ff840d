#include "data/source_webdataset.h"

#include "base/array.h"
#include "base/hash.h"
#include "data/picture.h"
#include "data/shard_list.h"
#include "data/webdataset_scan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    uint64_t body; /* of the picture, in its archive */
    uint32_t bytes, label;
    uint32_t check; /* of the header in front of the body */
    uint16_t H, W;
};

_Static_assert(sizeof(struct entry) == 24, "memory of a record");

struct source_webdataset {
    struct source source; /* first: the ops get a pointer to it */
    struct shard_list shards;
    struct entry *entry;
    size_t room;
    const char *under; /* where all must be; NULL: anywhere */
    Paceline__Data__Color color;
};

static const struct source_webdataset *of_source(const struct source *source)
{
    return (const struct source_webdataset *)source;
}

/* ---- records ---- */

/* The picture and, in front of it, its header. */
static int fetch_entry(const struct source_webdataset *self, size_t i, struct scratch *scratch,
                       const uint8_t **out, struct err *err)
{
    const struct shard *shard = shard_list_find(&self->shards, i);
    const struct entry *entry = &self->entry[i];
    size_t n = TAR_BLOCK + (size_t)entry->bytes;
    struct file_open file;
    int rc = shard_open(shard, self->under, &file, err);
    if (rc != OK)
        return rc;
    uint8_t *bytes = scratch_get(scratch, SCRATCH_FILE, n);
    if (!bytes)
        rc = err_set(err, ERR_NOMEM, "%s: out of memory for %zu bytes", shard->path, n);
    else
        rc = remote_part(&file, shard->path, entry->body - TAR_BLOCK, bytes, n, ERR_IO, err);
    if (rc == OK && webdataset_check(bytes) != entry->check)
        rc = err_set(err, ERR_IO, "%s: has changed since it was opened: record %zu is another",
                     shard->path, i);
    file_close(&file);
    *out = bytes;
    return rc;
}

static void prefetch_entry(const struct source *source, size_t i)
{
    const struct source_webdataset *self = of_source(source);
    const struct entry *entry = &self->entry[i];
    struct file_open file;
    if (shard_open(shard_list_find(&self->shards, i), self->under, &file, NULL) != OK)
        return; /* the read will say why */
    file_prefetch(&file, entry->body - TAR_BLOCK, TAR_BLOCK + (size_t)entry->bytes);
    file_close(&file);
}

static int read_encoded(const struct source *source, size_t i, struct scratch *scratch,
                        const uint8_t **bytes, size_t *n, struct err *err)
{
    const struct source_webdataset *self = of_source(source);
    const uint8_t *header = NULL;
    int rc = fetch_entry(self, i, scratch, &header, err);
    if (rc == OK)
        *bytes = header + TAR_BLOCK;
    *n = self->entry[i].bytes;
    return rc;
}

static int read_entry(const struct source *source, size_t i, struct scratch *scratch,
                      struct raw *raw, struct err *err)
{
    const struct source_webdataset *self = of_source(source);
    const struct entry *entry = &self->entry[i];
    const uint8_t *bytes = NULL;
    struct raw made = {0};
    int rc = fetch_entry(self, i, scratch, &bytes, err);
    if (rc != OK)
        return rc;
    rc = picture_decode(bytes + TAR_BLOCK, entry->bytes, self->color, scratch, &made, err);
    if (rc == OK && (made.H != entry->H || made.W != entry->W))
        rc = err_set(err, ERR_IO, "has changed since it was opened: %zu x %zu pixels", made.H,
                     made.W);
    if (rc == OK) {
        *raw = made;
        return OK;
    }
    char name[TAR_HEADER_NAME], quoted[SOURCE_NAME_MAX];
    tar_header_name(bytes, name);
    err_prefix(err, "%s: %s", shard_list_find(&self->shards, i)->path,
               source_quote(name, quoted, sizeof quoted));
    return rc;
}

static uint32_t label_of(const struct source *source, size_t i)
{
    return of_source(source)->entry[i].label;
}

static void size_of(const struct source *source, size_t i, size_t *H, size_t *W)
{
    *H = of_source(source)->entry[i].H;
    *W = of_source(source)->entry[i].W;
}

/* "train-000001.tar, dogs/rex.jpg": names are in the archive alone. */
static void name_of(const struct source *source, size_t i, char *out, size_t room)
{
    const struct source_webdataset *self = of_source(source);
    const struct shard *shard = shard_list_find(&self->shards, i);
    const char *slash = strrchr(shard->path, '/'), *base = slash ? slash + 1 : shard->path;
    uint8_t header[TAR_BLOCK];
    struct file_open file;
    char name[TAR_HEADER_NAME] = "?", text[2 * TAR_HEADER_NAME];
    if (shard_open(shard, self->under, &file, NULL) == OK) {
        if (file_part(&file, self->entry[i].body - TAR_BLOCK, header, sizeof header) == OK)
            tar_header_name(header, name);
        file_close(&file);
    }
    snprintf(text, sizeof text, "%.250s, %s", base, name);
    source_quote(text, out, room);
}

static void close_source(struct source *source)
{
    struct source_webdataset *self = (struct source_webdataset *)source;
    shard_list_release(&self->shards);
    free(self->entry);
    free(self);
}

static const struct source_ops ops = {
    .kind = "webdataset",
    .read = read_entry,
    .encoded = read_encoded,
    .prefetch = prefetch_entry,
    .label = label_of,
    .size = size_of,
    .name = name_of,
    .close = close_source,
};

/* ---- opening ---- */

struct opening {
    struct source_webdataset *self;
    struct webdataset_scan scan;
    const struct tar_indexer *indexer; /* writes indexes, and none is read; NULL: a plain opening */
    struct buf index;                  /* tar_records of this archive, for it */
};

static int add_record(void *user, const struct tar_record *record, struct err *err)
{
    struct opening *opening = user;
    struct source_webdataset *self = opening->self;
    struct source *source = &self->source;
    if (source->count == UINT32_MAX)
        return err_set(err, ERR_INPUT, "%s: more than %u records", opening->scan.tar.path,
                       UINT32_MAX);
    if (!array_grow(&self->entry, source->count, &self->room, sizeof *self->entry))
        return err_set(err, ERR_NOMEM, "%s: out of memory", opening->scan.tar.path);
    if (source->count == 0)
        source->shape = (struct shape){3, {picture_channels(self->color), record->H, record->W}};
    else if (self->entry[0].H != record->H || self->entry[0].W != record->W)
        source->shape.dim[1] = source->shape.dim[2] = 0;
    self->entry[source->count++] = (struct entry){record->body,  record->bytes, record->label,
                                                  record->check, record->H,     record->W};
    if (opening->indexer)
        buf_put(&opening->index, record, sizeof *record);
    source->classes = record->label >= source->classes ? record->label + 1 : source->classes;
    source->hash = hash_mix(source->hash, record->hash);
    source->hash = hash_mix(hash_mix(source->hash, record->label), record->bytes);
    return OK;
}

/* An index is of labels of one kind. */
static uint64_t hash_labels(const struct opening *opening)
{
    const char *key = opening->scan.label_key ? opening->scan.label_key : "";
    return hash_bytes(key, strlen(key));
}

/* The records that the archive's index has; *used false: there is none that fits it. */
static int take_index(struct opening *opening, bool *used)
{
    struct source_webdataset *self = opening->self;
    struct webdataset_scan *scan = &opening->scan;
    struct tar_record *record = NULL;
    struct err why = {0};
    size_t count = 0;
    int rc = tar_index_read(self->under, scan->tar.path, scan->tar.file, hash_labels(opening),
                            &record, &count, &why);
    *used = rc == OK && record;
    if (rc == ERR_INPUT)
        snprintf(self->source.warning, sizeof self->source.warning,
                 "%.240s; it was not used; paceline data index makes it", why.text);
    else if (rc != OK)
        return err_set(scan->err, rc, "%s", why.text);
    for (size_t i = 0; *used && rc == OK && i < count; i++, scan->records++)
        rc = add_record(opening, &record[i], scan->err);
    free(record);
    return *used ? rc : OK;
}

static int write_index(struct opening *opening)
{
    struct webdataset_scan *scan = &opening->scan;
    struct buf bytes = {0};
    int rc = OK;
    tar_index_write(scan->tar.file, hash_labels(opening), (const void *)opening->index.data,
                    opening->index.len / sizeof(struct tar_record), &bytes);
    if (opening->index.failed || bytes.failed)
        rc = err_set(scan->err, ERR_NOMEM, "%s: out of memory", scan->tar.path);
    else
        rc = opening->indexer->write(opening->indexer->user, scan->tar.path, &bytes, scan->err);
    buf_release(&bytes);
    buf_release(&opening->index);
    opening->index = (struct buf){0};
    return rc;
}

static int open_shard(struct opening *opening, struct shard *shard)
{
    struct webdataset_scan *scan = &opening->scan;
    struct file_open file;
    bool used = false;
    int rc = shard_open(shard, opening->self->under, &file, scan->err);
    if (rc != OK)
        return ERR_INPUT;
    if (opening->indexer && shard->remote) {
        file_close(&file);
        return err_set(scan->err, ERR_INPUT,
                       "%s: is a URL; an index is written next to a local archive", shard->path);
    }
    shard->first = opening->self->source.count;
    scan->tar.file = &file;
    scan->tar.path = shard->path;
    if (!opening->indexer && !shard->remote)
        rc = take_index(opening, &used);
    if (rc == OK && !used)
        rc = webdataset_scan_archive(scan);
    if (rc == OK && opening->indexer)
        rc = write_index(opening);
    file_close(&file);
    scan->done += shard->len;
    return rc == OK
               ? open_watch_report(scan->config->watch, "bytes", scan->done, scan->total, scan->err)
               : rc;
}

static int open_all(struct opening *opening, const Paceline__Data__WebDataset *spec)
{
    struct source_webdataset *self = opening->self;
    struct webdataset_scan *scan = &opening->scan;
    char list[ERR_TEXT_MAX];
    int rc = shard_list_parse(spec->shards, scan->config, &self->shards, scan->err);
    for (size_t s = 0; rc == OK && s < self->shards.count; s++)
        scan->total += self->shards.at[s].len;
    for (size_t s = 0; rc == OK && s < self->shards.count; s++)
        rc = open_shard(opening, &self->shards.at[s]);
    if (rc != OK || self->source.count > 0)
        return rc;
    remote_shown(spec->shards, list, sizeof list);
    if (scan->records > 0)
        return source_refuse_empty(list, scan->records, scan->err);
    return err_set(scan->err, ERR_INPUT,
                   "%s: has no records; a record is NAME.jpg, .jpeg or .png and NAME.%s with its "
                   "label",
                   list, scan->label_key ? "json" : "cls");
}

static int open_archives(const struct source_config *config, const Paceline__Data__WebDataset *spec,
                         const struct tar_indexer *indexer, struct source **out, struct err *err)
{
    struct err unheard; /* messages are built up in it */
    struct source_webdataset *self = calloc(1, sizeof *self);
    struct opening *opening = calloc(1, sizeof *opening);
    int rc = self && opening ? OK : err_set(err, ERR_NOMEM, "webdataset: out of memory");
    if (rc == OK) {
        self->source.ops = &ops;
        self->source.hash = hash_mix(0, spec->color);
        self->under = config->root;
        self->color = spec->color;
        opening->self = self;
        opening->indexer = indexer;
        opening->scan.config = config;
        opening->scan.label_key = spec->label_key && spec->label_key[0] ? spec->label_key : NULL;
        opening->scan.err = err ? err : &unheard;
        opening->scan.add = add_record;
        opening->scan.user = opening;
        rc = open_all(opening, spec);
        buf_release(&opening->index);
    }
    free(opening);
    if (rc == OK)
        *out = &self->source;
    else if (self)
        close_source(&self->source);
    return rc;
}

int source_webdataset_open(const struct source_config *config,
                           const Paceline__Data__WebDataset *spec, struct source **out,
                           struct err *err)
{
    return open_archives(config, spec, NULL, out, err);
}

int source_webdataset_index(const struct source_config *config,
                            const Paceline__Data__WebDataset *spec,
                            const struct tar_indexer *indexer, struct err *err)
{
    struct source *source = NULL;
    int rc = open_archives(config, spec, indexer, &source, err);
    if (rc == OK)
        source_close(source);
    return rc;
}
