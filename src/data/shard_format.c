#include "data/shard_format.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "data/raw.h"

#include <inttypes.h>
#include <string.h>

enum { VERSION = 1, WORDS = 10, LONGS = 6 };

_Static_assert(SHARD_FOOTER == 4 * WORDS + 8 * LONGS + 8, "all numbers and the checksum");

static const char magic[8] = "PLSHARD";

/* ---- header ---- */

void shard_header_write(uint8_t out[SHARD_HEADER])
{
    memset(out, 0, SHARD_HEADER);
    memcpy(out, magic, sizeof magic);
    bytes_put_le32(out + sizeof magic, VERSION);
}

int shard_header_check(const char *path, const uint8_t in[SHARD_HEADER], struct err *err)
{
    if (memcmp(in, magic, sizeof magic) != 0)
        return err_set(err, ERR_INPUT, "%s: not a shard; paceline data pack writes them", path);
    uint32_t version = bytes_le32(in + sizeof magic);
    if (version != VERSION)
        return err_set(err, ERR_UNSUPPORTED, "%s: version %" PRIu32 " of shards; %d can be read",
                       path, version, VERSION);
    return OK;
}

/* ---- footer ---- */

void shard_footer_write(const struct shard_footer *f, uint8_t out[SHARD_FOOTER])
{
    const uint32_t word[WORDS] = {f->form,   f->is_integer, f->label_bytes, f->block_bytes,
                                  f->C,      f->H,          f->W,           f->classes,
                                  f->fields, f->names_bytes};
    const uint64_t number[LONGS] = {f->count,       f->blocks,     f->data_bytes,
                                    f->index_bytes, f->index_hash, f->data_hash};
    memset(out, 0, SHARD_FOOTER);
    for (size_t i = 0; i < WORDS; i++)
        bytes_put_le32(out + 4 * i, word[i]);
    for (size_t i = 0; i < LONGS; i++)
        bytes_put_le64(out + 4 * WORDS + 8 * i, number[i]);
    bytes_put_le64(out + SHARD_FOOTER - 8, hash_bytes(out, SHARD_FOOTER - 8));
}

size_t shard_record_bytes(const struct shard_footer *f)
{
    size_t values = (size_t)f->C * f->H * f->W;
    static const size_t each[] = {[SHARD_BYTES] = 1, [SHARD_FLOATS] = 4, [SHARD_BF16] = 2};
    return f->form == SHARD_PICTURES ? 0 : each[f->form] * values;
}

size_t shard_per_block(const struct shard_footer *f)
{
    size_t each = shard_record_bytes(f);
    return (f->block_bytes + each - 1) / each;
}

uint32_t shard_label_bytes(uint32_t classes)
{
    return classes == 0 ? 0 : classes <= 1u << 8 ? 1 : classes <= 1u << 16 ? 2 : 4;
}

struct shard_index shard_index_of(const struct shard_footer *f)
{
    struct shard_index at;
    at.fields = (f->names_bytes + (uint64_t)7) / 8 * 8;
    at.hashes = at.fields + (uint64_t)f->fields * SHARD_FIELD;
    at.sizes = at.hashes + f->blocks * 8;
    at.labels = at.sizes + (f->form == SHARD_PICTURES ? f->count * SHARD_SIZES : 0);
    at.end = at.labels + f->count * f->label_bytes;
    return at;
}

/* C·H·W within the limits, and of pictures none. */
static bool has_shape(const struct shard_footer *f)
{
    if (f->form == SHARD_PICTURES)
        return f->C == 0 && f->H == 0 && f->W == 0 && f->fields == 0;
    return f->C > 0 && f->H > 0 && f->W > 0 && f->H <= SIDE_MAX && f->W <= SIDE_MAX &&
           f->C <= RECORD_VALUES_MAX / f->H / f->W;
}

static bool is_within_bounds(const struct shard_footer *f)
{
    return f->form >= SHARD_BYTES && f->form <= SHARD_BF16 && f->is_integer <= 1 &&
           f->block_bytes > 0 && f->block_bytes <= SHARD_BLOCK_MAX && f->classes <= LABEL_MAX &&
           f->label_bytes == shard_label_bytes(f->classes) && f->fields <= FIELDS_MAX &&
           f->names_bytes <= SHARD_NAMES_MAX && f->count > 0 && f->count <= UINT32_MAX &&
           f->blocks > 0 && f->blocks <= f->count && has_shape(f) &&
           (f->fields == 0 || (f->H == 1 && f->W == 1));
}

/* The records of one size, and their blocks, are as many as they should be. */
static bool is_filled(const struct shard_footer *f)
{
    size_t each = shard_record_bytes(f), per = each > 0 ? shard_per_block(f) : 0;
    return each == 0 ||
           (f->data_bytes == f->count * each && f->blocks == (f->count + per - 1) / per);
}

int shard_footer_read(const char *path, const uint8_t in[SHARD_FOOTER], uint64_t len,
                      struct shard_footer *out, struct err *err)
{
    if (bytes_le64(in + SHARD_FOOTER - 8) != hash_bytes(in, SHARD_FOOTER - 8))
        return err_set(err, ERR_INPUT, "%s: truncated, or its end is damaged", path);
    const uint8_t *at = in + 4 * WORDS;
    struct shard_footer f = {
        .form = bytes_le32(in),
        .is_integer = bytes_le32(in + 4),
        .label_bytes = bytes_le32(in + 8),
        .block_bytes = bytes_le32(in + 12),
        .C = bytes_le32(in + 16),
        .H = bytes_le32(in + 20),
        .W = bytes_le32(in + 24),
        .classes = bytes_le32(in + 28),
        .fields = bytes_le32(in + 32),
        .names_bytes = bytes_le32(in + 36),
        .count = bytes_le64(at),
        .blocks = bytes_le64(at + 8),
        .data_bytes = bytes_le64(at + 16),
        .index_bytes = bytes_le64(at + 24),
        .index_hash = bytes_le64(at + 32),
        .data_hash = bytes_le64(at + 40),
    };
    if (!is_within_bounds(&f) || !is_filled(&f) || shard_index_of(&f).end != f.index_bytes)
        return err_set(err, ERR_INPUT, "%s: the numbers at its end do not fit together", path);
    uint64_t left = len - SHARD_HEADER - SHARD_FOOTER;
    if (f.index_bytes > left || f.data_bytes != left - f.index_bytes)
        return err_set(err, ERR_INPUT,
                       "%s: %" PRIu64 " bytes, and its records and index have %" PRIu64
                       " and %" PRIu64,
                       path, len, f.data_bytes, f.index_bytes);
    *out = f;
    return OK;
}

/* ---- fields ---- */

void shard_field_write(const struct field *field, uint8_t out[SHARD_FIELD])
{
    uint8_t *at = out + FIELD_NAME_MAX;
    memset(out, 0, SHARD_FIELD);
    memcpy(out, field->name, strlen(field->name));
    bytes_put_le32(at, field->is_integer);
    bytes_put_le32(at + 4, (uint32_t)field->shape.n);
    for (size_t k = 0; k < field->shape.n; k++)
        bytes_put_le32(at + 8 + 4 * k, (uint32_t)field->shape.dim[k]);
}

int shard_field_read(const char *path, const uint8_t in[SHARD_FIELD], struct fields *fields,
                     size_t *values, struct err *err)
{
    const uint8_t *at = in + FIELD_NAME_MAX;
    struct field field = {.from = *values, .is_integer = bytes_le32(at) == 1};
    uint32_t dims = bytes_le32(at + 4);
    size_t n = 1;
    memcpy(field.name, in, FIELD_NAME_MAX);
    bool sound = memchr(field.name, 0, FIELD_NAME_MAX) && field.name[0] &&
                 strcmp(field.name, "label") != 0 && bytes_le32(at) <= 1 && dims <= SHAPE_DIMS_MAX;
    field.shape.n = sound ? dims : 0;
    for (size_t k = 0; k < field.shape.n; k++) {
        size_t dim = bytes_le32(at + 8 + 4 * k);
        sound = sound && dim > 0 && dim <= RECORD_VALUES_MAX / n;
        field.shape.dim[k] = dim;
        n *= sound ? dim : 1;
    }
    for (size_t k = 0; sound && k < fields->n; k++)
        sound = strcmp(fields->field[k].name, field.name) != 0;
    if (!sound)
        return err_set(err, ERR_INPUT, "%s: field %zu has no name of its own, or no shape", path,
                       fields->n);
    fields->field[fields->n++] = field;
    *values += n;
    return OK;
}
