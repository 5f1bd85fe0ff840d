#include "data/pack.h"

#include "base/bytes.h"
#include "base/fault.h"
#include "base/hash.h"
#include "data/picture.h"
#include "data/shard_format.h"

#include <stdio.h>
#include <string.h>

enum { PATH_TEXT_MAX = 4096 };

struct packing {
    const struct source *source;
    const struct pack_config *config;
    struct scratch scratch;
    size_t next;      /* record */
    uint32_t started; /* shards, that are whole or were begun */
    uint64_t bytes;
    struct shard_footer all; /* what all shards have in common */
    /* Of the shard that is being written. */
    struct shard_footer footer;
    struct buf block, hashes, sizes, labels;
    struct disk_file *file;
};

/* ---- the shard under way ---- */

static int write_bytes(struct packing *p, const void *bytes, size_t n, struct err *err)
{
    p->bytes += n;
    return p->config->disk->ops->write(p->file, bytes, n, err);
}

static int refuse_memory(const struct packing *p, struct err *err)
{
    return err_set(err, ERR_NOMEM, "record %zu: out of memory", p->next);
}

static int end_block(struct packing *p, struct err *err)
{
    struct shard_footer *f = &p->footer;
    if (p->block.len == 0)
        return OK;
    uint64_t hash = hash_bytes(p->block.data, p->block.len);
    buf_put_u64(&p->hashes, hash);
    f->data_hash = hash_mix(f->data_hash, hash);
    f->data_bytes += p->block.len;
    f->blocks++;
    int rc = write_bytes(p, p->block.data, p->block.len, err);
    p->block.len = 0;
    return rc;
}

/* ---- a record ---- */

static void put_floats(struct buf *to, const float *x, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        uint32_t bits;
        memcpy(&bits, &x[k], sizeof bits);
        buf_put_u32(to, bits);
    }
}

static void put_halves(struct buf *to, const float *x, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        uint32_t bits;
        memcpy(&bits, &x[k], sizeof bits);
        PL_ASSERT((bits & 0xffff) == 0);
        buf_put_u8(to, (uint8_t)(bits >> 16));
        buf_put_u8(to, (uint8_t)(bits >> 24));
    }
}

static void put_planes(struct buf *to, const struct raw *raw)
{
    const uint8_t *bytes = raw->at;
    size_t C = raw->C, pixels = raw->H * raw->W;
    if (raw->form == RAW_PLANES) {
        buf_put(to, bytes, C * pixels);
        return;
    }
    for (size_t c = 0; c < C; c++)
        for (size_t k = 0; k < pixels; k++)
            buf_put_u8(to, bytes[k * C + c]);
}

static int put_values(struct packing *p, struct err *err)
{
    const struct source *source = p->source;
    struct raw raw;
    int rc = source->ops->read(source, p->next, &p->scratch, &raw, err);
    if (rc != OK)
        return rc;
    size_t n = raw.C * raw.H * raw.W;
    PL_ASSERT(n == shape_count(&source->shape));
    if ((p->all.form == SHARD_BYTES) == (raw.form == RAW_FLOATS))
        return err_set(err, ERR_INPUT, "record %zu: bytes and floats in one set cannot be packed",
                       p->next);
    if (p->all.form == SHARD_BF16)
        put_halves(&p->block, raw.at, n);
    else if (p->all.form == SHARD_FLOATS)
        put_floats(&p->block, raw.at, n);
    else
        put_planes(&p->block, &raw);
    return OK;
}

static int put_picture(struct packing *p, struct err *err)
{
    const struct source *source = p->source;
    const uint8_t *bytes = NULL;
    size_t n = 0, H, W;
    int rc = source->ops->encoded(source, p->next, &p->scratch, &bytes, &n, err);
    if (rc != OK)
        return rc;
    if (!bytes || n > PICTURE_BYTES_MAX)
        return err_set(err, ERR_INPUT,
                       "record %zu: pictures and values in one set cannot be packed", p->next);
    source_size(source, p->next, &H, &W);
    buf_put(&p->block, bytes, n);
    buf_put_u32(&p->sizes, (uint32_t)n);
    buf_put_u32(&p->sizes, (uint32_t)(H | W << 16));
    return OK;
}

static void put_label(struct packing *p)
{
    uint32_t label = p->source->ops->label(p->source, p->next);
    for (uint32_t k = 0; k < p->all.label_bytes; k++)
        buf_put_u8(&p->labels, (uint8_t)(label >> 8 * k));
}

static int put_record(struct packing *p, struct err *err)
{
    int rc = p->all.form == SHARD_PICTURES ? put_picture(p, err) : put_values(p, err);
    if (rc != OK)
        return rc;
    if (p->all.label_bytes > 0)
        put_label(p);
    if (p->block.failed || p->sizes.failed || p->labels.failed)
        return refuse_memory(p, err);
    p->next++;
    p->footer.count++;
    if (p->block.len >= p->all.block_bytes)
        rc = end_block(p, err);
    return rc == OK ? open_watch_report(p->config->watch, "records", p->next, p->source->count, err)
                    : rc;
}

/* ---- a shard ---- */

/* Names and fields, as they are in each index. */
static void put_schema(struct buf *to, const struct packing *p)
{
    const struct names *names = p->config->names;
    const struct fields *fields = &p->source->fields;
    for (size_t k = 0; names && p->all.names_bytes > 0 && k < names->count; k++)
        buf_put(to, names->at[k], strlen(names->at[k]) + 1);
    while (to->len % 8)
        buf_put_u8(to, 0);
    for (size_t k = 0; k < fields->n; k++) {
        uint8_t field[SHARD_FIELD];
        shard_field_write(&fields->field[k], field);
        buf_put(to, field, sizeof field);
    }
}

static int write_index(struct packing *p, struct err *err)
{
    struct buf index = {0};
    uint8_t end[SHARD_FOOTER];
    put_schema(&index, p);
    buf_put(&index, p->hashes.data, p->hashes.len);
    buf_put(&index, p->sizes.data, p->sizes.len);
    buf_put(&index, p->labels.data, p->labels.len);
    p->footer.index_bytes = index.len;
    int rc = index.failed || p->hashes.failed ? refuse_memory(p, err) : OK;
    if (rc == OK) {
        PL_ASSERT(shard_index_of(&p->footer).end == index.len);
        p->footer.index_hash = hash_bytes(index.data, index.len);
        rc = write_bytes(p, index.data, index.len, err);
    }
    buf_release(&index);
    shard_footer_write(&p->footer, end);
    return rc == OK ? write_bytes(p, end, sizeof end, err) : rc;
}

static int write_shard(void *user, struct disk_file *file, struct err *err)
{
    struct packing *p = user;
    uint8_t header[SHARD_HEADER];
    p->file = file;
    p->footer = p->all;
    p->block.len = p->hashes.len = p->sizes.len = p->labels.len = 0;
    shard_header_write(header);
    int rc = write_bytes(p, header, sizeof header, err);
    while (rc == OK && p->next < p->source->count &&
           p->footer.data_bytes + p->block.len < p->config->shard_bytes)
        rc = put_record(p, err);
    if (rc == OK)
        rc = end_block(p, err);
    return rc == OK ? write_index(p, err) : rc;
}

/* ---- all shards ---- */

static int name_shard(const struct pack_config *config, uint32_t number, char out[PATH_TEXT_MAX],
                      struct err *err)
{
    int n = snprintf(out, PATH_TEXT_MAX, "%s-%05u.shard", config->prefix, number);
    return n < PATH_TEXT_MAX
               ? OK
               : err_set(err, ERR_INPUT, "%.80s...: path longer than %d bytes", out, PATH_TEXT_MAX);
}

/* From the number `from` on to the first that is not there, or to `to`. */
static void remove_shards(const struct pack_config *config, uint32_t from, uint32_t to)
{
    char path[PATH_TEXT_MAX];
    for (uint32_t number = from; number < to; number++) {
        if (name_shard(config, number, path, NULL) != OK || file_type(path) != FILE_IS_REGULAR ||
            config->disk->ops->remove(config->disk, path, NULL) != OK)
            return;
    }
}

static int pack_shard(struct packing *p, uint32_t number, struct err *err)
{
    const struct pack_config *config = p->config;
    char path[PATH_TEXT_MAX];
    if (number == PACK_SHARDS_MAX)
        return err_set(err, ERR_INPUT, "%s: more than %d shards; make them larger", config->prefix,
                       PACK_SHARDS_MAX);
    int rc = name_shard(config, number, path, err);
    if (rc == OK && !config->replace && file_type(path) != FILE_IS_NONE)
        return err_set(err, ERR_INPUT, "%s: exists", path);
    p->started = number + 1;
    return rc == OK ? disk_replace_by(config->disk, path, write_shard, p, err) : rc;
}

/* All records are of the kind of record 0. */
static int choose_form(struct packing *p, struct err *err)
{
    const struct source *source = p->source;
    const uint8_t *bytes = NULL;
    struct raw raw;
    size_t n;
    int rc =
        source->ops->encoded ? source->ops->encoded(source, 0, &p->scratch, &bytes, &n, err) : OK;
    if (rc == OK && bytes) {
        p->all.form = SHARD_PICTURES;
        return OK;
    }
    if (rc == OK && source->shape.dim[1] == 0)
        rc = err_set(err, ERR_INPUT,
                     "records of several sizes that are no pictures cannot be packed");
    if (rc == OK)
        rc = source->ops->read(source, 0, &p->scratch, &raw, err);
    if (rc != OK)
        return rc;
    p->all.form = raw.form != RAW_FLOATS ? SHARD_BYTES
                  : source->is_bf16      ? SHARD_BF16
                                         : SHARD_FLOATS;
    p->all.C = (uint32_t)source->shape.dim[0];
    p->all.H = (uint32_t)source->shape.dim[1];
    p->all.W = (uint32_t)source->shape.dim[2];
    return OK;
}

static int begin_packing(struct packing *p, struct err *err)
{
    const struct source *source = p->source;
    const struct names *names = p->config->names;
    size_t bytes = 0;
    for (size_t k = 0; names && k < names->count; k++)
        bytes += strlen(names->at[k]) + 1;
    p->all = (struct shard_footer){
        .is_integer = source->is_integer,
        .block_bytes = SHARD_BLOCK_BYTES,
        .classes = source->classes,
        .label_bytes = shard_label_bytes(source->classes),
        .fields = (uint32_t)source->fields.n,
        .names_bytes = bytes <= SHARD_NAMES_MAX ? (uint32_t)bytes : 0,
    };
    return choose_form(p, err);
}

int pack_records(const struct source *source, const struct pack_config *config,
                 struct pack_result *out, struct err *err)
{
    struct packing p = {.source = source, .config = config};
    uint32_t shards = 0;
    PL_ASSERT(config->shard_bytes > 0);
    int rc = begin_packing(&p, err);
    while (rc == OK && p.next < source->count) {
        rc = pack_shard(&p, shards, err);
        shards += rc == OK;
    }
    if (rc != OK)
        remove_shards(config, 0, p.started);
    else if (config->replace)
        remove_shards(config, shards, PACK_SHARDS_MAX);
    *out = (struct pack_result){p.next, shards, p.bytes};
    buf_release(&p.block);
    buf_release(&p.hashes);
    buf_release(&p.sizes);
    buf_release(&p.labels);
    scratch_release(&p.scratch);
    return rc;
}
