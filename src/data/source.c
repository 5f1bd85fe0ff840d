#include "data/source.h"

#include "base/file.h"
#include "base/hash.h"
#include "data/bindings.h"
#include "data/source_cifar.h"
#include "data/source_csv.h"
#include "data/source_idx.h"
#include "data/source_images.h"
#include "data/source_lmdb.h"
#include "data/source_npy.h"
#include "data/source_shards.h"
#include "data/source_webdataset.h"

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
    case PACELINE__DATA__SOURCE_WEBDATASET:
        return source_webdataset_open(config, spec->webdataset, out, err);
    case PACELINE__DATA__SOURCE_SHARDS: return source_shards_open(config, spec->shards, out, err);
    case PACELINE__DATA__SOURCE_MEMORY: return bindings_open(config, spec->memory->name, out, err);
    default:
        return err_set(err, ERR_INPUT,
                       "data: no source is set; there are idx, cifar10, cifar100, images, "
                       "webdataset, lmdb, npy, csv, shards, memory");
    }
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

void source_size(const struct source *source, size_t i, size_t *H, size_t *W)
{
    *H = source->shape.dim[1];
    *W = source->shape.dim[2];
    if (source->ops->size)
        source->ops->size(source, i, H, W);
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

/* Bytes of the printable character of UTF-8 that stands at `at`; 0: none does. */
static size_t utf8_length(const unsigned char *at)
{
    if (at[0] < 0x80)
        return at[0] >= 0x20 && at[0] != 0x7f;
    size_t n = at[0] >= 0xc2 && at[0] < 0xe0   ? 2
               : at[0] >= 0xe0 && at[0] < 0xf0 ? 3
               : at[0] >= 0xf0 && at[0] < 0xf5 ? 4
                                               : 0;
    for (size_t i = 1; i < n; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    bool control = n == 2 && at[0] == 0xc2 && at[1] < 0xa0;
    bool overlong = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xf0 && at[1] < 0x90);
    bool no_character = (at[0] == 0xed && at[1] >= 0xa0) || (at[0] == 0xf4 && at[1] >= 0x90);
    return control || overlong || no_character ? 0 : n;
}

const char *source_quote(const char *text, char *out, size_t room)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t used = 0;
    while (*at) {
        size_t n = utf8_length(at), need = n ? n : 4;
        if (used + need + 4 > room) { /* room for dots and the end */
            memcpy(out + used, "...", 3);
            used += 3;
            break;
        }
        if (n)
            memcpy(out + used, at, n);
        else
            snprintf(out + used, room - used, "\\x%02x", *at);
        used += need;
        at += n ? n : 1;
    }
    out[used] = '\0';
    return out;
}
