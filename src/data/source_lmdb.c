#include "data/source_lmdb.h"

#include "base/array.h"
#include "base/hash.h"
#include "data/datum.h"
#include "data/lmdb_file.h"
#include "data/picture.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { PATH_TEXT_MAX = 4096, KEY_SHOWN = 64 };

static const uint64_t RECORD_BYTES_MAX = (uint64_t)5 << 28; /* floats with a tag each */

struct lmdb_record {
    uint64_t offset, len; /* of its Datum in the file */
    uint32_t label;
    uint16_t H, W;
};

struct source_lmdb {
    struct source source; /* first: the ops get a pointer to it */
    struct file_open file;
    char path[PATH_TEXT_MAX];
    Paceline__Data__Color color;
    struct lmdb_record *record;
    size_t cap;
    struct err *err; /* while it is opened */
    struct pb pb;    /* likewise, */
    const struct source_config *config;
    uint64_t entries; /* visited so far */
};

static const struct lmdb_record *record_of(const struct source *source, size_t i)
{
    return &((const struct source_lmdb *)source)->record[i];
}

static uint32_t lmdb_label(const struct source *source, size_t i)
{
    return record_of(source, i)->label;
}

static void lmdb_size(const struct source *source, size_t i, size_t *H, size_t *W)
{
    *H = record_of(source, i)->H;
    *W = record_of(source, i)->W;
}

static void lmdb_close(struct source *source)
{
    struct source_lmdb *lmdb = (struct source_lmdb *)source;
    file_close(&lmdb->file);
    free(lmdb->record);
    free(lmdb);
}

/* ---- reading ---- */

static int check_values(const float *x, size_t n, struct err *err)
{
    for (size_t k = 0; k < n; k++)
        if (!isfinite(x[k]))
            return err_set(err, ERR_INPUT, "value %zu is not a finite number", k);
    return OK;
}

static int decode_datum(const struct source_lmdb *lmdb, const uint8_t *bytes, size_t len,
                        struct scratch *scratch, struct raw *raw, struct err *err)
{
    struct pb pb;
    struct datum d;
    pb_memory(&pb, bytes, len);
    int rc = datum_read(&pb, &d, err);
    if (rc != OK)
        return rc;
    if (d.form == DATUM_PICTURE)
        return picture_decode(bytes + d.at, (size_t)d.len, lmdb->color, scratch, raw, err);
    *raw = (struct raw){bytes + d.at, RAW_PLANES, d.C, d.H, d.W, 0};
    if (d.form == DATUM_BYTES)
        return OK;
    size_t n = d.C * d.H * d.W;
    float *x = scratch_get(scratch, SCRATCH_PIXELS, n * sizeof *x);
    if (!x)
        return err_set(err, ERR_NOMEM, "out of memory for %zu values", n);
    datum_floats(bytes, len, x);
    raw->at = x;
    raw->form = RAW_FLOATS;
    return check_values(x, n, err);
}

static int fetch_datum(const struct source_lmdb *lmdb, const struct lmdb_record *record,
                       struct scratch *scratch, const uint8_t **out, struct err *err)
{
    uint8_t *bytes = scratch_get(scratch, SCRATCH_FILE, (size_t)record->len);
    *out = bytes;
    if (!bytes)
        return err_set(err, ERR_NOMEM, "out of memory for its %" PRIu64 " bytes", record->len);
    return file_part(&lmdb->file, record->offset, bytes, (size_t)record->len) == OK
               ? OK
               : err_set(err, ERR_IO, "cannot be read any more");
}

static int lmdb_encoded(const struct source *source, size_t i, struct scratch *scratch,
                        const uint8_t **bytes, size_t *n, struct err *err)
{
    const struct source_lmdb *lmdb = (const struct source_lmdb *)source;
    const struct lmdb_record *record = &lmdb->record[i];
    const uint8_t *all;
    struct pb pb;
    struct datum d;
    *bytes = NULL;
    int rc = fetch_datum(lmdb, record, scratch, &all, err);
    if (rc == OK) {
        pb_memory(&pb, all, (size_t)record->len);
        rc = datum_read(&pb, &d, err);
    }
    if (rc == OK && d.form == DATUM_PICTURE) {
        *bytes = all + d.at;
        *n = (size_t)d.len;
    }
    if (rc != OK)
        err_prefix(err, "%s: record %zu", lmdb->path, i);
    return rc;
}

static int lmdb_read(const struct source *source, size_t i, struct scratch *scratch,
                     struct raw *raw, struct err *err)
{
    const struct source_lmdb *lmdb = (const struct source_lmdb *)source;
    const struct lmdb_record *record = &lmdb->record[i];
    struct raw made = {0};
    const uint8_t *bytes;
    int rc = fetch_datum(lmdb, record, scratch, &bytes, err);
    if (rc == OK)
        rc = decode_datum(lmdb, bytes, (size_t)record->len, scratch, &made, err);
    if (rc == OK && (made.C != source->shape.dim[0] || made.H != record->H || made.W != record->W))
        rc = err_set(err, ERR_IO, "has changed since it was opened");
    if (rc != OK) {
        err_prefix(err, "%s: record %zu", lmdb->path, i);
        return rc;
    }
    *raw = made;
    return OK;
}

static const struct source_ops lmdb_ops = {
    .kind = "lmdb",
    .read = lmdb_read,
    .encoded = lmdb_encoded,
    .label = lmdb_label,
    .size = lmdb_size,
    .close = lmdb_close,
};

/* ---- opening ---- */

/* The record's head: its shape and label. */
static int look_at(struct source_lmdb *lmdb, const struct part_of *value, const uint8_t *head,
                   size_t head_len, struct datum *d)
{
    pb_part(&lmdb->pb, value);
    int rc = datum_read(&lmdb->pb, d, lmdb->err);
    if (rc != OK || d->form != DATUM_PICTURE)
        return rc;
    struct part_of file = {value->file, value->offset + d->at, d->len, NULL};
    uint8_t begin[PICTURE_HEAD];
    struct picture picture = {0};
    size_t n = part_left(&file, 0, sizeof begin);
    bool at_hand = d->at + n <= head_len;
    if (!at_hand && part_read(&file, 0, begin, n) != OK)
        return err_set(lmdb->err, ERR_IO, "cannot be read");
    rc = picture_probe(&file, at_hand ? head + d->at : begin, n, &picture, lmdb->err);
    d->C = picture_channels(lmdb->color);
    d->H = picture.H;
    d->W = picture.W;
    return rc;
}

static int add_record(struct source_lmdb *lmdb, const struct part_of *value, const struct datum *d)
{
    struct source *source = &lmdb->source;
    size_t n = source->count;
    if (n == 0)
        source->shape = (struct shape){.n = 3, .dim = {d->C, d->H, d->W}};
    if (source->shape.dim[0] != d->C)
        return err_set(lmdb->err, ERR_INPUT, "%zu channels, those before it have %zu", d->C,
                       source->shape.dim[0]);
    if (n == UINT32_MAX)
        return err_set(lmdb->err, ERR_INPUT, "more than %u records", UINT32_MAX);
    if (!array_grow(&lmdb->record, n, &lmdb->cap, sizeof *lmdb->record))
        return err_set(lmdb->err, ERR_NOMEM, "out of memory");
    lmdb->record[n] =
        (struct lmdb_record){value->offset, value->len, d->label, (uint16_t)d->H, (uint16_t)d->W};
    source->count++;
    if (d->label >= source->classes)
        source->classes = d->label + 1;
    if (lmdb->record[0].H != d->H || lmdb->record[0].W != d->W)
        source->shape.dim[1] = source->shape.dim[2] = 0;
    return OK;
}

static int on_entry(void *user, const uint8_t *key, size_t key_len, const struct part_of *value)
{
    struct source_lmdb *lmdb = user;
    struct datum d = {0};
    uint8_t head[PICTURE_HEAD];
    size_t n = part_left(value, 0, sizeof head);
    uint64_t number = lmdb->entries++;
    int rc = OK;
    if (value->len > RECORD_BYTES_MAX)
        rc = err_set(lmdb->err, ERR_INPUT, "%" PRIu64 " bytes, more than the limit of %" PRIu64,
                     value->len, RECORD_BYTES_MAX);
    else if (part_read(value, 0, head, n) != OK)
        rc = err_set(lmdb->err, ERR_IO, "cannot be read");
    if (rc == OK)
        rc = look_at(lmdb, value, head, n, &d);
    if (rc == OK)
        rc = add_record(lmdb, value, &d);
    if (rc == OK) {
        uint64_t *hash = &lmdb->source.hash;
        *hash = hash_mix(*hash, hash_bytes(key, key_len));
        *hash = hash_mix(hash_mix(*hash, value->len), d.label);
        *hash = hash_mix(*hash, hash_bytes(head, n));
        return OK;
    }
    char shown[KEY_SHOWN + 1], quoted[2 * KEY_SHOWN];
    snprintf(shown, sizeof shown, "%.*s", key_len < KEY_SHOWN ? (int)key_len : KEY_SHOWN, key);
    err_prefix(lmdb->err, "%s: record %" PRIu64 " (key %s)", lmdb->path, number,
               source_quote(shown, quoted, sizeof quoted));
    if (rc == ERR_INPUT && lmdb->config->bad)
        return source_leave_out(lmdb->config, number, lmdb->err);
    if (rc == ERR_INPUT)
        err_remedy(lmdb->err, BAD_RECORD_REMEDY);
    return rc == ERR_IO ? ERR_INPUT : rc;
}

/* data.mdb of a folder. */
static int find_file(const char *path, char out[PATH_TEXT_MAX], struct err *err)
{
    bool folder = file_is_folder(path);
    if (snprintf(out, PATH_TEXT_MAX, "%s%s", path, folder ? "/data.mdb" : "") >= PATH_TEXT_MAX)
        return err_set(err, ERR_INPUT, "%.80s...: path longer than %d bytes", path, PATH_TEXT_MAX);
    if (!folder || file_is_regular(out))
        return OK;
    char current[PATH_TEXT_MAX];
    snprintf(current, sizeof current, "%.*s/CURRENT", PATH_TEXT_MAX - 16, path);
    if (file_is_regular(current))
        return err_set(err, ERR_INPUT,
                       "%s: a LevelDB, which is not read; make an LMDB of it, or use the files it "
                       "was made of",
                       path);
    return err_set(err, ERR_INPUT, "%s: no LMDB: there is no data.mdb in it", path);
}

int source_lmdb_open(const struct source_config *config, const Paceline__Data__Lmdb *spec,
                     struct source **out, struct err *err)
{
    struct source_lmdb *lmdb = calloc(1, sizeof *lmdb);
    if (!lmdb)
        return err_set(err, ERR_NOMEM, "%s: out of memory", spec->path);
    struct err unheard; /* messages are built up in it */
    lmdb->source.ops = &lmdb_ops;
    lmdb->source.hash = hash_mix(0, spec->color);
    lmdb->file.fd = -1;
    lmdb->color = spec->color;
    lmdb->config = config;
    lmdb->err = err ? err : &unheard;
    int rc = file_check_under(config->root, spec->path, lmdb->err);
    if (rc == OK)
        rc = find_file(spec->path, lmdb->path, lmdb->err);
    if (rc == OK)
        rc = file_check_under(config->root, lmdb->path, lmdb->err);
    if (rc == OK)
        rc = file_open(lmdb->path, &lmdb->file, lmdb->err);
    if (rc == OK) {
        const struct lmdb_callback callback = {on_entry, lmdb, config->watch};
        rc = lmdb_walk(&lmdb->file, lmdb->path, &callback, lmdb->err);
    }
    if (rc == OK && lmdb->source.count == 0)
        rc = source_refuse_empty(lmdb->path, lmdb->entries, lmdb->err);
    lmdb->err = NULL;
    lmdb->config = NULL;
    if (rc != OK) {
        lmdb_close(&lmdb->source);
        return rc;
    }
    *out = &lmdb->source;
    return OK;
}
