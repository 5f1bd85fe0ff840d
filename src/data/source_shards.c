#include "data/source_shards.h"

#include "base/bytes.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/minmax.h"
#include "data/names.h"
#include "data/picture.h"
#include "data/shard_format.h"
#include "data/shard_list.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A block of pictures. */
struct block_begin {
    uint64_t at;    /* in the file */
    uint32_t first; /* the number of its first record in the shard */
};

struct shard_content {
    struct shard_footer footer;
    struct shard_index part;
    uint8_t *index;            /* owned, as in the file */
    struct block_begin *block; /* owned; of pictures alone, and one more behind the last */
};

struct source_shards {
    struct source source; /* first */
    struct shard_list shards;
    struct shard_content *content; /* of each shard */
    const char *under;             /* where all must be; NULL: anywhere */
    Paceline__Data__Color color;
};

static const struct source_shards *of_source(const struct source *source)
{
    return (const struct source_shards *)source;
}

/* ---- where a record is ---- */

/* The block that holds a record, and the record within it. */
struct place {
    uint64_t block, at; /* its number, and where it begins in the file */
    size_t len;
    size_t from, bytes; /* of the record, in the block */
};

static const uint8_t *sizes_at(const struct shard_content *content, size_t i)
{
    return content->index + content->part.sizes + i * SHARD_SIZES;
}

static size_t picture_height(const uint8_t *sizes)
{
    return bytes_le32(sizes + 4) & 0xffff;
}

static size_t picture_width(const uint8_t *sizes)
{
    return bytes_le32(sizes + 4) >> 16;
}

static struct place find_picture(const struct shard_content *content, size_t i)
{
    size_t low = 0, high = (size_t)content->footer.blocks;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        *(content->block[middle].first <= i ? &low : &high) = middle;
    }
    const struct block_begin *block = &content->block[low];
    struct place place = {.block = low,
                          .at = block[0].at,
                          .len = (size_t)(block[1].at - block[0].at),
                          .bytes = bytes_le32(sizes_at(content, i))};
    for (size_t k = block->first; k < i; k++)
        place.from += bytes_le32(sizes_at(content, k));
    return place;
}

static struct place find_place(const struct shard_content *content, size_t i)
{
    const struct shard_footer *f = &content->footer;
    if (f->form == SHARD_PICTURES)
        return find_picture(content, i);
    size_t each = shard_record_bytes(f), per = shard_per_block(f), first = i / per * per;
    return (struct place){.block = i / per,
                          .at = SHARD_HEADER + (uint64_t)first * each,
                          .len = min_size(per, (size_t)f->count - first) * each,
                          .from = (i - first) * each,
                          .bytes = each};
}

/* ---- reading ---- */

/* The shard of record i, and *i is the number in it. */
static size_t shard_of(const struct source_shards *self, size_t *i)
{
    const struct shard *shard = shard_list_find(&self->shards, *i);
    *i -= shard->first;
    return (size_t)(shard - self->shards.at);
}

/* Record i as it is stored, in `scratch`. */
static int fetch_record(const struct source_shards *self, size_t i, struct scratch *scratch,
                        const uint8_t **out, size_t *n, struct err *err)
{
    size_t s = shard_of(self, &i);
    const struct shard *shard = &self->shards.at[s];
    const struct shard_content *content = &self->content[s];
    struct place place = find_place(content, i);
    struct file_open file;
    int rc = shard_open(shard, self->under, &file, err);
    if (rc != OK)
        return rc;
    uint8_t *bytes = scratch_get(scratch, SCRATCH_FILE, place.len);
    if (!bytes)
        rc = err_set(err, ERR_NOMEM, "%s: out of memory for %zu bytes", shard->path, place.len);
    else
        rc = remote_part(&file, shard->path, place.at, bytes, place.len, ERR_IO, err);
    if (rc == OK && hash_bytes(bytes, place.len) !=
                        bytes_le64(content->index + content->part.hashes + 8 * place.block))
        rc = err_set(err, ERR_IO,
                     "%s: the %zu bytes at %" PRIu64 " are damaged: their checksum is another",
                     shard->path, place.len, place.at);
    file_close(&file);
    *out = bytes + place.from;
    *n = place.bytes;
    return rc;
}

static void prefetch_record(const struct source *source, size_t i)
{
    const struct source_shards *self = of_source(source);
    size_t s = shard_of(self, &i);
    struct place place = find_place(&self->content[s], i);
    struct file_open file;
    if (shard_open(&self->shards.at[s], self->under, &file, NULL) != OK)
        return; /* the read will say why */
    file_prefetch(&file, place.at, place.len);
    file_close(&file);
}

static int take_floats(const uint8_t *bytes, enum value_type type, size_t n,
                       struct scratch *scratch, struct raw *raw, struct err *err)
{
    float *x = scratch_get(scratch, SCRATCH_PIXELS, n * sizeof *x);
    if (!x)
        return err_set(err, ERR_NOMEM, "out of memory for %zu values", n);
    values_to_floats(type, bytes, n, x);
    raw->at = x;
    raw->form = RAW_FLOATS;
    return OK;
}

static int take_picture(const struct source_shards *self, size_t i, const uint8_t *bytes, size_t n,
                        struct scratch *scratch, struct raw *raw, struct err *err)
{
    size_t within = i, s = shard_of(self, &within);
    const uint8_t *sizes = sizes_at(&self->content[s], within);
    int rc = picture_decode(bytes, n, self->color, scratch, raw, err);
    if (rc == OK && (raw->H != picture_height(sizes) || raw->W != picture_width(sizes)))
        rc = err_set(err, ERR_INPUT, "has %zu x %zu pixels, and its shard says %zu x %zu", raw->H,
                     raw->W, picture_height(sizes), picture_width(sizes));
    if (rc != OK)
        err_prefix(err, "%s: record %zu", self->shards.at[s].path, within);
    return rc;
}

static int read_record(const struct source *source, size_t i, struct scratch *scratch,
                       struct raw *raw, struct err *err)
{
    const struct source_shards *self = of_source(source);
    const size_t *dim = source->shape.dim;
    const uint8_t *bytes = NULL;
    size_t n = 0;
    int rc = fetch_record(self, i, scratch, &bytes, &n, err);
    if (rc != OK)
        return rc;
    struct raw made = {bytes, RAW_PLANES, dim[0], dim[1], dim[2], 0};
    switch ((enum shard_form)self->content->footer.form) {
    case SHARD_BYTES: break;
    case SHARD_FLOATS: rc = take_floats(bytes, VALUE_F32, n / 4, scratch, &made, err); break;
    case SHARD_BF16: rc = take_floats(bytes, VALUE_BF16, n / 2, scratch, &made, err); break;
    case SHARD_PICTURES: rc = take_picture(self, i, bytes, n, scratch, &made, err); break;
    }
    if (rc == OK)
        *raw = made;
    return rc;
}

static int read_encoded(const struct source *source, size_t i, struct scratch *scratch,
                        const uint8_t **bytes, size_t *n, struct err *err)
{
    const struct source_shards *self = of_source(source);
    *bytes = NULL;
    return self->content->footer.form == SHARD_PICTURES
               ? fetch_record(self, i, scratch, bytes, n, err)
               : OK;
}

static uint32_t label_of(const struct source *source, size_t i)
{
    const struct source_shards *self = of_source(source);
    const struct shard_content *content = &self->content[shard_of(self, &i)];
    const uint8_t *at = content->index + content->part.labels;
    switch (content->footer.label_bytes) {
    case 1: return at[i];
    case 2: return at[2 * i] | (uint32_t)at[2 * i + 1] << 8;
    case 4: return bytes_le32(at + 4 * i);
    default: return 0;
    }
}

static void size_of(const struct source *source, size_t i, size_t *H, size_t *W)
{
    const struct source_shards *self = of_source(source);
    const struct shard_content *content = &self->content[shard_of(self, &i)];
    if (content->footer.form != SHARD_PICTURES)
        return;
    *H = picture_height(sizes_at(content, i));
    *W = picture_width(sizes_at(content, i));
}

static void name_of(const struct source *source, size_t i, char *out, size_t room)
{
    const struct source_shards *self = of_source(source);
    const char *path = self->shards.at[shard_of(self, &i)].path, *slash = strrchr(path, '/');
    char text[SOURCE_NAME_MAX];
    snprintf(text, sizeof text, "%.200s, %zu", slash ? slash + 1 : path, i);
    source_quote(text, out, room);
}

static void close_source(struct source *source)
{
    struct source_shards *self = (struct source_shards *)source;
    for (size_t s = 0; self->content && s < self->shards.count; s++) {
        free(self->content[s].index);
        free(self->content[s].block);
    }
    free(self->content);
    shard_list_release(&self->shards);
    free(self);
}

/* Each file is a part. The order of colours is not among its contents. */
static size_t list_parts(const struct source *source, struct source_part *out, size_t most)
{
    const struct source_shards *self = of_source(source);
    size_t n = self->shards.count;
    for (size_t s = 0; s < n && s < most; s++) {
        const struct shard_footer *f = &self->content[s].footer;
        out[s] = (struct source_part){(size_t)f->count,
                                      hash_mix(hash_mix(self->color, f->data_hash), f->index_hash)};
    }
    return n;
}

static const struct source_ops ops = {
    .kind = "shards",
    .read = read_record,
    .encoded = read_encoded,
    .prefetch = prefetch_record,
    .label = label_of,
    .size = size_of,
    .name = name_of,
    .parts = list_parts,
    .close = close_source,
};

/* ---- opening ---- */

/* The footer, and then the index. */
static int load_content(const char *path, const struct file_open *file,
                        struct shard_content *content, struct err *err)
{
    uint8_t header[SHARD_HEADER], end[SHARD_FOOTER];
    struct shard_footer *f = &content->footer;
    if (file->len < sizeof header + sizeof end)
        return err_set(err, ERR_INPUT, "%s: %" PRIu64 " bytes: too short for a shard", path,
                       file->len);
    int rc = remote_part(file, path, 0, header, sizeof header, ERR_INPUT, err);
    if (rc == OK)
        rc = shard_header_check(path, header, err);
    if (rc == OK)
        rc = remote_part(file, path, file->len - sizeof end, end, sizeof end, ERR_INPUT, err);
    if (rc == OK)
        rc = shard_footer_read(path, end, file->len, f, err);
    if (rc != OK)
        return rc;
    content->part = shard_index_of(f);
    content->index = malloc((size_t)f->index_bytes);
    if (!content->index)
        return err_set(err, ERR_NOMEM, "%s: out of memory for %" PRIu64 " bytes", path,
                       f->index_bytes);
    rc = remote_part(file, path, SHARD_HEADER + f->data_bytes, content->index,
                     (size_t)f->index_bytes, ERR_INPUT, err);
    if (rc != OK)
        return rc;
    if (hash_bytes(content->index, (size_t)f->index_bytes) != f->index_hash)
        return err_set(err, ERR_INPUT, "%s: its index is damaged: its checksum is another", path);
    return OK;
}

/* Blocks of pictures begin where the sizes say. */
static int find_blocks(const char *path, struct shard_content *content, struct err *err)
{
    const struct shard_footer *f = &content->footer;
    struct block_begin *block = malloc(((size_t)f->blocks + 1) * sizeof *block);
    uint64_t at = SHARD_HEADER, end = SHARD_HEADER + f->data_bytes, begin = at;
    size_t n = 0;
    content->block = block;
    if (!block)
        return err_set(err, ERR_NOMEM, "%s: out of memory", path);
    block[0] = (struct block_begin){.at = at};
    for (size_t i = 0; i < f->count; i++) {
        const uint8_t *sizes = sizes_at(content, i);
        uint32_t bytes = bytes_le32(sizes);
        size_t H = picture_height(sizes), W = picture_width(sizes);
        if (bytes == 0 || bytes > PICTURE_BYTES_MAX || bytes > end - at || H == 0 || W == 0 ||
            H > SIDE_MAX || W > SIDE_MAX || H * W > PICTURE_PIXELS_MAX)
            return err_set(err, ERR_INPUT, "%s: record %zu: no picture has such a size", path, i);
        at += bytes;
        if (at - begin < f->block_bytes && i + 1 < f->count)
            continue;
        if (n == f->blocks)
            break;
        block[++n] = (struct block_begin){.at = at, .first = (uint32_t)(i + 1)};
        begin = at;
    }
    if (n != f->blocks || at != end)
        return err_set(err, ERR_INPUT, "%s: its pictures do not fill its blocks", path);
    return OK;
}

static int check_labels(const char *path, const struct shard_content *content, struct err *err)
{
    const struct shard_footer *f = &content->footer;
    const uint8_t *at = content->index + content->part.labels;
    for (size_t i = 0; f->label_bytes > 0 && i < f->count; i++) {
        uint32_t label = 0;
        for (uint32_t k = f->label_bytes; k-- > 0;)
            label = label << 8 | at[i * f->label_bytes + k];
        if (label >= f->classes)
            return err_set(err, ERR_INPUT,
                           "%s: record %zu: label %" PRIu32 " of %" PRIu32 " classes", path, i,
                           label, f->classes);
    }
    return OK;
}

static int read_fields(const char *path, const struct shard_content *content, struct fields *out,
                       struct err *err)
{
    const struct shard_footer *f = &content->footer;
    size_t values = 0;
    int rc = OK;
    for (uint32_t k = 0; rc == OK && k < f->fields; k++)
        rc = shard_field_read(path, content->index + content->part.fields + k * SHARD_FIELD, out,
                              &values, err);
    if (rc == OK && f->fields > 0 && values != f->C)
        rc = err_set(err, ERR_INPUT, "%s: its fields have %zu values, and its records %" PRIu32,
                     path, values, f->C);
    return rc;
}

/* Records of the same kind as those of the first shard? */
static int compare_first(const struct source_shards *self, size_t s, const struct fields *fields,
                         struct err *err)
{
    const struct shard_footer *a = &self->content[0].footer, *b = &self->content[s].footer;
    bool same = a->form == b->form && a->is_integer == b->is_integer && a->C == b->C &&
                a->H == b->H && a->W == b->W && (a->classes == 0) == (b->classes == 0) &&
                fields_equal(fields, &self->source.fields);
    return same ? OK
                : err_set(err, ERR_INPUT, "%s: has records of another kind than %s",
                          self->shards.at[s].path, self->shards.at[0].path);
}

/* The size of the first picture, or 0 where they differ. */
static void find_size(struct source *source)
{
    struct shape *shape = &source->shape;
    for (size_t i = 0; i < source->count; i++) {
        size_t H, W;
        size_of(source, i, &H, &W);
        if (i > 0 && (H != shape->dim[1] || W != shape->dim[2]))
            H = W = 0;
        shape->dim[1] = H;
        shape->dim[2] = W;
        if (H == 0)
            return;
    }
}

static int load_shard(struct source_shards *self, size_t s, struct err *err)
{
    struct shard *shard = &self->shards.at[s];
    struct shard_content *content = &self->content[s];
    struct source *source = &self->source;
    const struct shard_footer *f = &content->footer;
    struct fields fields = {0};
    struct file_open file;
    int rc = shard_open(shard, self->under, &file, err);
    if (rc != OK)
        return ERR_INPUT;
    rc = load_content(shard->path, &file, content, err);
    file_close(&file);
    if (rc == OK && f->form == SHARD_PICTURES)
        rc = find_blocks(shard->path, content, err);
    if (rc == OK)
        rc = check_labels(shard->path, content, err);
    if (rc == OK)
        rc = read_fields(shard->path, content, &fields, err);
    if (rc == OK && s == 0) {
        source->shape = (struct shape){3, {f->C, f->H, f->W}};
        source->is_integer = f->is_integer;
        source->is_bf16 = f->form == SHARD_BF16;
        source->fields = fields;
    } else if (rc == OK) {
        rc = compare_first(self, s, &fields, err);
    }
    if (rc == OK && f->count > UINT32_MAX - source->count)
        rc = err_set(err, ERR_INPUT, "%s: more than %u records", shard->path, UINT32_MAX);
    if (rc != OK)
        return rc;
    shard->first = source->count;
    source->count += (size_t)f->count;
    source->classes = f->classes > source->classes ? f->classes : source->classes;
    source->hash = hash_mix(hash_mix(source->hash, f->data_hash), f->index_hash);
    return OK;
}

static int load_all(struct source_shards *self, const struct source_config *config,
                    const Paceline__Data__Shards *spec, struct err *err)
{
    int rc = shard_list_parse(spec->shards, config, &self->shards, err);
    size_t count = self->shards.count;
    if (rc == OK && !(self->content = calloc(count, sizeof *self->content)))
        rc = err_set(err, ERR_NOMEM, "shards: out of memory");
    for (size_t s = 0; rc == OK && s < count; s++) {
        rc = load_shard(self, s, err);
        if (rc == OK)
            rc = open_watch_report(config->watch, "shards", s + 1, count, err);
    }
    if (rc == OK && self->content[0].footer.form == SHARD_PICTURES) {
        self->source.shape.dim[0] = picture_channels(self->color);
        self->source.hash = hash_mix(self->source.hash, self->color);
        find_size(&self->source);
    }
    return rc;
}

int source_shards_open(const struct source_config *config, const Paceline__Data__Shards *spec,
                       struct source **out, struct err *err)
{
    struct source_shards *self = calloc(1, sizeof *self);
    if (!self)
        return err_set(err, ERR_NOMEM, "shards: out of memory");
    self->source.ops = &ops;
    self->under = config->root;
    self->color = spec->color;
    int rc = load_all(self, config, spec, err);
    if (rc == OK)
        *out = &self->source;
    else
        close_source(&self->source);
    return rc;
}

int shards_names(const char *shards, struct remote *remote, struct names *out, struct err *err)
{
    const struct source_config config = {.remote = remote};
    struct shard_list list;
    struct shard_content content = {0};
    struct file_open file;
    int rc = shard_list_parse(shards, &config, &list, err);
    if (rc == OK)
        rc = shard_open(&list.at[0], NULL, &file, err) == OK ? OK : ERR_INPUT;
    if (rc == OK) {
        rc = load_content(list.at[0].path, &file, &content, err);
        file_close(&file);
    }
    if (rc == OK)
        rc = names_parse(list.at[0].path, (const char *)content.index, content.footer.names_bytes,
                         out, err);
    free(content.index);
    shard_list_release(&list);
    return rc;
}
