#include "data/source.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "data/bindings.h"
#include "data/source_cifar.h"
#include "data/source_csv.h"
#include "data/source_field.h"
#include "data/source_idx.h"
#include "data/source_images.h"
#include "data/source_lmdb.h"
#include "data/source_npy.h"
#include "data/source_shards.h"
#include "data/source_text.h"
#include "data/source_webdataset.h"
#include "data/source_zip.h"
#include "job/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int open_idx(const struct source_config *config, const Paceline__Data__Idx *spec,
                    struct source **out, struct err *err)
{
    int rc = file_check_under(config->root, spec->images, err);
    if (rc == OK)
        rc = file_check_under(config->root, spec->labels, err);
    return rc == OK ? source_idx_open(spec, config->watch, out, err) : rc;
}

int source_open(const Paceline__Data *spec, enum source_role role, struct source **out,
                struct err *err)
{
    const struct source_config config = {.role = role};
    return source_open_with(&config, spec, out, err);
}

int source_open_with(const struct source_config *config, const Paceline__Data *spec,
                     struct source **out, struct err *err)
{
    int rc = spec->mean_file && *spec->mean_file
                 ? file_check_under(config->root, spec->mean_file, err)
                 : OK;
    if (rc != OK)
        return rc;
    switch (spec->source_case) {
    case PACELINE__DATA__SOURCE_IDX: return open_idx(config, spec->idx, out, err);
    case PACELINE__DATA__SOURCE_CIFAR10:
        return source_cifar_open(config, spec->cifar10, CIFAR_10, out, err);
    case PACELINE__DATA__SOURCE_CIFAR100:
        return source_cifar_open(config, spec->cifar100, CIFAR_100, out, err);
    case PACELINE__DATA__SOURCE_IMAGES: return source_images_open(config, spec->images, out, err);
    case PACELINE__DATA__SOURCE_LMDB: return source_lmdb_open(config, spec->lmdb, out, err);
    case PACELINE__DATA__SOURCE_NPY: return source_npy_open(config, spec->npy, out, err);
    case PACELINE__DATA__SOURCE_CSV: return source_csv_open(config, spec->csv, out, err);
    case PACELINE__DATA__SOURCE_TEXT: return source_text_open(config, spec->text, out, err);
    case PACELINE__DATA__SOURCE_WEBDATASET:
        return source_webdataset_open(config, spec->webdataset, out, err);
    case PACELINE__DATA__SOURCE_SHARDS: return source_shards_open(config, spec->shards, out, err);
    case PACELINE__DATA__SOURCE_MEMORY: return bindings_open(config, spec->memory->name, out, err);
    case PACELINE__DATA__SOURCE_ZIP: return source_zip_open(config, spec->zip, out, err);
    default:
        return err_set(err, ERR_INPUT,
                       "data: no source is set; there are idx, cifar10, cifar100, images, "
                       "webdataset, lmdb, npy, csv, text, shards, zip, memory");
    }
}

int source_settle(const struct source *source, Paceline__Data *data, struct err *err)
{
    source = source_field_base(source);
    size_t n = data->source_case == PACELINE__DATA__SOURCE_ZIP ? data->zip->n_field : 0;
    int rc = job_table_settle(data, source_csv_columns(source), err);
    if (rc == OK)
        rc = job_text_settle(data, source_text_settled(source), err);
    for (size_t k = 0; rc == OK && k < n; k++) {
        const struct source *part = source_zip_part(source, k);
        rc = part ? source_settle(part, data->zip->field[k]->data, err) : OK;
    }
    return rc;
}

void source_close(struct source *source)
{
    if (source)
        source->ops->close(source);
}

int source_leave_out(const struct source_config *config, uint64_t number, struct err *err)
{
    char cause[BAD_CAUSE_MAX];
    snprintf(cause, sizeof cause, "%.*s", (int)sizeof cause - 1, err->text);
    return bad_records_add(config->bad, config->of, BAD_AT_OPENING | number, cause, err);
}

int source_refuse_empty(const char *path, uint64_t count, struct err *err)
{
    char cause[BAD_CAUSE_MAX];
    snprintf(cause, sizeof cause, "%.*s", (int)sizeof cause - 1, count > 0 ? err->text : "");
    return err_set(err, ERR_INPUT,
                   "%.150s: none of its %" PRIu64 " records can be read%s%s; repair them (paceline "
                   "data verify SPEC lists them)",
                   path, count, count > 0 ? "; the last: " : "", cause);
}

int source_refuse_depth(struct err *err)
{
    return err_set(err, ERR_INPUT, "data: more than %d zips and maps within each other", DEPTH_MAX);
}

int source_hash_bytes(const void *data, size_t len, const struct open_watch *watch, uint64_t *out,
                      struct err *err)
{
    static const size_t block = (size_t)1 << 24;
    struct hash_stream *stream = hash_stream_create();
    if (!stream)
        return err_set(err, ERR_NOMEM, "data: out of memory");
    hash_stream_begin(stream);
    int rc = OK;
    for (size_t at = 0, n; rc == OK && at < len; at += n) {
        n = len - at < block ? len - at : block;
        hash_stream_add(stream, (const uint8_t *)data + at, n);
        rc = open_watch_report(watch, "bytes hashed", at + n, len, err);
    }
    if (rc == OK)
        *out = hash_stream_take(stream);
    hash_stream_free(stream);
    return rc;
}

void source_prefetch(const struct source *source, size_t i)
{
    if (source->ops->prefetch)
        source->ops->prefetch(source, i);
}

void source_size(const struct source *source, size_t i, size_t *H, size_t *W)
{
    *H = source->shape.dim[1];
    *W = source->shape.dim[2];
    if (source->ops->size)
        source->ops->size(source, i, H, W);
}

size_t source_parts(const struct source *source, struct source_part *out, size_t most)
{
    size_t n = source->ops->parts ? source->ops->parts(source, out, most) : 0;
    if (n > 0 && n <= most)
        return n;
    out[0] = (struct source_part){source->count, source->hash};
    return 1;
}

const char *source_name(const struct source *source, size_t i, char out[SOURCE_NAME_MAX])
{
    char name[SOURCE_NAME_MAX - 32];
    if (source->ops->name) {
        source->ops->name(source, i, name, sizeof name);
        snprintf(out, SOURCE_NAME_MAX, "record %zu (%s)", i, name);
    } else {
        snprintf(out, SOURCE_NAME_MAX, "record %zu", i);
    }
    return out;
}

/* Bytes of the printable character of UTF-8 at the begin of a text that is not empty; 0: none is
 * there. */
static size_t printable_length(const char *text)
{
    uint32_t code;
    size_t n = utf8_take(text, strnlen(text, UTF8_BYTES_MAX), &code);
    bool control = n > 0 && (code < 0x20 || (code >= 0x7f && code < 0xa0));
    return control ? 0 : n;
}

const char *source_quote(const char *text, char *out, size_t room)
{
    const char *at = text;
    size_t used = 0;
    while (*at) {
        size_t n = printable_length(at), need = n ? n : 4;
        if (used + need + 4 > room) { /* room for dots and the end */
            memcpy(out + used, "...", 3);
            used += 3;
            break;
        }
        if (n)
            memcpy(out + used, at, n);
        else
            snprintf(out + used, room - used, "\\x%02x", (unsigned char)*at);
        used += need;
        at += n ? n : 1;
    }
    out[used] = '\0';
    return out;
}
