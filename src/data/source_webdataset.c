#include "data/source_webdataset.h"

#include "base/array.h"
#include "base/hash.h"
#include "data/picture.h"
#include "data/shard_list.h"
#include "data/tar_file.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LABEL_TEXT_MAX = 32, DIGITS_MAX = 9 };

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

static uint32_t check_of(const uint8_t header[TAR_BLOCK])
{
    return (uint32_t)hash_bytes(header, TAR_BLOCK);
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
    if (rc == OK && check_of(bytes) != entry->check)
        rc = err_set(err, ERR_IO, "%s: has changed since it was opened: record %zu is another",
                     shard->path, i);
    file_close(&file);
    *out = bytes;
    return rc;
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
    .label = label_of,
    .size = size_of,
    .name = name_of,
    .close = close_source,
};

/* ---- opening ---- */

/* The record whose members are being read. */
struct draft {
    char key[TAR_NAME_MAX]; /* "": none */
    bool pictured, labelled;
    struct entry entry;
    uint64_t hash;    /* of the picture's name and first bytes */
    struct err fault; /* the first thing that is wrong with it; its status is OK: nothing */
};

struct scan {
    struct source_webdataset *self;
    const struct source_config *config;
    struct err *err;
    uint64_t done, total; /* bytes of archives: those before this one, and all */
    uint64_t records;     /* bad ones too */
    struct tar tar;
    struct draft draft;
};

static int leave_out(struct scan *scan)
{
    uint64_t number = scan->records++;
    if (scan->config->bad)
        return source_leave_out(scan->config, number, scan->err);
    err_remedy(scan->err, BAD_RECORD_REMEDY);
    return ERR_INPUT;
}

static int add_entry(struct scan *scan)
{
    struct source_webdataset *self = scan->self;
    struct source *source = &self->source;
    const struct entry *entry = &scan->draft.entry;
    if (source->count == UINT32_MAX)
        return err_set(scan->err, ERR_INPUT, "%s: more than %u records", scan->tar.path,
                       UINT32_MAX);
    if (!array_grow(&self->entry, source->count, &self->room, sizeof *self->entry))
        return err_set(scan->err, ERR_NOMEM, "%s: out of memory", scan->tar.path);
    if (source->count == 0)
        source->shape = (struct shape){3, {picture_channels(self->color), entry->H, entry->W}};
    else if (self->entry[0].H != entry->H || self->entry[0].W != entry->W)
        source->shape.dim[1] = source->shape.dim[2] = 0;
    self->entry[source->count++] = *entry;
    source->classes = entry->label >= source->classes ? entry->label + 1 : source->classes;
    source->hash = hash_mix(source->hash, scan->draft.hash);
    source->hash = hash_mix(hash_mix(source->hash, entry->label), entry->bytes);
    scan->records++;
    return OK;
}

/* Note what is wrong with the draft, if it is the first thing; `name` is a member's, or the key. */
static void blame_draft(struct scan *scan, const char *name, const char *why)
{
    char quoted[SOURCE_NAME_MAX];
    if (scan->draft.fault.status == OK)
        err_set(&scan->draft.fault, ERR_INPUT, "%s: %s: %s", scan->tar.path,
                source_quote(name, quoted, sizeof quoted), why);
}

static int close_draft(struct scan *scan)
{
    struct draft *draft = &scan->draft;
    int rc = OK;
    if (draft->pictured != draft->labelled)
        blame_draft(scan, draft->key,
                    draft->pictured ? "has no label; a file .cls with a number is expected"
                                    : "has no picture; a file .jpg, .jpeg or .png is expected");
    if (draft->fault.status != OK) {
        *scan->err = draft->fault;
        rc = leave_out(scan);
    } else if (draft->pictured) {
        rc = add_entry(scan);
    }
    draft->key[0] = '\0';
    draft->pictured = draft->labelled = false;
    draft->fault.status = OK;
    if (rc != OK)
        return rc;
    uint64_t at = scan->tar.at, len = scan->tar.file->len;
    return open_watch_report(scan->config->watch, "bytes", scan->done + (at < len ? at : len),
                             scan->total, scan->err);
}

static int take_picture(struct scan *scan, const struct tar_member *member)
{
    struct draft *draft = &scan->draft;
    struct picture picture = {0};
    struct err why = {0}, unread = {0};
    const struct part_of part = {scan->tar.file, member->body, member->size, &unread};
    if (draft->pictured)
        blame_draft(scan, member->name, "a second picture of this record");
    draft->pictured = true;
    if (member->size > PICTURE_BYTES_MAX) {
        blame_draft(scan, member->name, "longer than the limit of 268435456 bytes");
        return OK;
    }
    const uint8_t *header = tar_bytes(&scan->tar, member->body - TAR_BLOCK, TAR_BLOCK, scan->err);
    if (!header)
        return ERR_INPUT;
    draft->entry.check = check_of(header);
    size_t n = part_left(&part, 0, PICTURE_HEAD);
    const uint8_t *head = tar_bytes(&scan->tar, member->body, n, scan->err);
    if (!head)
        return ERR_INPUT;
    int rc = picture_probe(&part, head, n, &picture, &why);
    if (rc == ERR_IO && scan->tar.file->remote) /* the record may be a good one */
        return err_set(scan->err, ERR_INPUT, "%s", unread.text);
    if (rc != OK)
        blame_draft(scan, member->name, why.text);
    draft->entry.body = member->body;
    draft->entry.bytes = (uint32_t)member->size;
    draft->entry.H = (uint16_t)picture.H;
    draft->entry.W = (uint16_t)picture.W;
    draft->hash = hash_mix(hash_bytes(member->name, strlen(member->name)), hash_bytes(head, n));
    return OK;
}

/* Digits, with white space around. */
static bool parse_label(const uint8_t *text, size_t n, uint32_t *out)
{
    size_t digits = 0;
    uint32_t label = 0;
    while (n > 0 && isspace(text[n - 1]))
        n--;
    for (; n > 0 && isspace(*text); n--)
        text++;
    for (; digits < n && digits < DIGITS_MAX && isdigit(text[digits]); digits++)
        label = label * 10 + (text[digits] - '0');
    *out = label;
    return digits > 0 && digits == n && label < LABEL_MAX;
}

static int take_label(struct scan *scan, const struct tar_member *member)
{
    struct draft *draft = &scan->draft;
    if (draft->labelled)
        blame_draft(scan, member->name, "a second label of this record");
    draft->labelled = true;
    size_t n = member->size < LABEL_TEXT_MAX ? (size_t)member->size : LABEL_TEXT_MAX;
    const uint8_t *text = tar_bytes(&scan->tar, member->body, n, scan->err);
    if (!text)
        return ERR_INPUT;
    if (n < member->size || !parse_label(text, n, &draft->entry.label))
        blame_draft(scan, member->name, "expected a label, a number from 0 to 1048575");
    return OK;
}

static bool is_picture(const char *extension)
{
    return strcasecmp(extension, "jpg") == 0 || strcasecmp(extension, "jpeg") == 0 ||
           strcasecmp(extension, "png") == 0;
}

static int take_member(struct scan *scan, const struct tar_member *member)
{
    struct draft *draft = &scan->draft;
    const char *slash = strrchr(member->name, '/'), *base = slash ? slash + 1 : member->name;
    const char *dot = strchr(base, '.');
    if (!dot || dot == base)
        return OK;
    size_t n = (size_t)(dot - member->name);
    if (strncmp(draft->key, member->name, n) != 0 || draft->key[n]) {
        int rc = close_draft(scan);
        if (rc != OK)
            return rc;
        memcpy(draft->key, member->name, n);
        draft->key[n] = '\0';
    }
    if (is_picture(dot + 1))
        return take_picture(scan, member);
    return strcasecmp(dot + 1, "cls") == 0 ? take_label(scan, member) : OK;
}

/* The records of an open archive. */
static int scan_members(struct scan *scan)
{
    for (;;) {
        struct tar_member member;
        int rc = tar_next(&scan->tar, &member, scan->err);
        if (rc == OK && !member.name)
            return close_draft(scan);
        if (rc == OK)
            rc = take_member(scan, &member);
        else if (scan->config->bad && tar_resume(&scan->tar))
            rc = leave_out(scan);
        if (rc != OK)
            return rc;
    }
}

static int scan_shard(struct scan *scan, struct shard *shard)
{
    struct file_open file;
    int rc = shard_open(shard, scan->self->under, &file, scan->err);
    if (rc != OK)
        return ERR_INPUT;
    shard->first = scan->self->source.count;
    scan->tar.file = &file;
    scan->tar.path = shard->path;
    scan->tar.at = scan->tar.begin = scan->tar.filled = 0;
    rc = scan_members(scan);
    file_close(&file);
    scan->done += shard->len;
    return rc == OK
               ? open_watch_report(scan->config->watch, "bytes", scan->done, scan->total, scan->err)
               : rc;
}

static int scan_all(struct scan *scan, const char *list)
{
    struct source_webdataset *self = scan->self;
    int rc = OK;
    for (size_t s = 0; s < self->shards.count; s++)
        scan->total += self->shards.at[s].len;
    for (size_t s = 0; rc == OK && s < self->shards.count; s++)
        rc = scan_shard(scan, &self->shards.at[s]);
    if (rc != OK || self->source.count > 0)
        return rc;
    if (scan->records > 0)
        return source_refuse_empty(list, scan->records, scan->err);
    return err_set(scan->err, ERR_INPUT,
                   "%s: has no records; a record is NAME.jpg, .jpeg or .png and NAME.cls with its "
                   "label",
                   list);
}

int source_webdataset_open(const struct source_config *config,
                           const Paceline__Data__WebDataset *spec, struct source **out,
                           struct err *err)
{
    struct err unheard; /* messages are built up in it */
    char shown[ERR_TEXT_MAX];
    struct source_webdataset *self = calloc(1, sizeof *self);
    struct scan *scan = calloc(1, sizeof *scan);
    int rc = self && scan ? OK : err_set(err, ERR_NOMEM, "webdataset: out of memory");
    if (rc == OK) {
        scan->self = self;
        scan->config = config;
        scan->err = err ? err : &unheard;
        self->source.ops = &ops;
        self->source.hash = hash_mix(0, spec->color);
        self->under = config->root;
        self->color = spec->color;
        rc = shard_list_parse(spec->shards, config, &self->shards, scan->err);
    }
    if (rc == OK)
        rc = scan_all(scan, remote_shown(spec->shards, shown, sizeof shown));
    free(scan);
    if (rc == OK)
        *out = &self->source;
    else if (self)
        close_source(&self->source);
    return rc;
}
