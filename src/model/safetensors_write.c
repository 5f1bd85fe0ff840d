#include "base/fault.h"
#include "base/hash.h"
#include "model/safetensors.h"
#include "model/safetensors_format.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "floats are copied as they lie");

struct safetensors_part {
    const char *name;
    struct shape shape;
    size_t bytes;
    const float *data; /* NULL: its floats come later, */
    uint64_t hash;     /* with this checksum, once they are known */
    struct safetensors_part *next;
};

void safetensors_begin(struct safetensors_writer *w)
{
    *w = (struct safetensors_writer){0};
    arena_init(&w->arena);
    w->meta_end = &w->meta;
    w->parts_end = &w->parts;
}

void safetensors_end(struct safetensors_writer *w)
{
    arena_release(&w->arena);
    *w = (struct safetensors_writer){0};
}

void safetensors_meta(struct safetensors_writer *w, const char *key, const char *value)
{
    PL_ASSERT(strcmp(key, SAFETENSORS_CHECK) != 0);
    PL_ASSERT(strncmp(key, SAFETENSORS_XXH3, strlen(SAFETENSORS_XXH3)) != 0);
    struct safetensors_meta *meta = arena_new(&w->arena, struct safetensors_meta);
    const char *key_copy = arena_strdup(&w->arena, key);
    const char *value_copy = arena_strdup(&w->arena, value);
    if (w->failed || !meta || !key_copy || !value_copy) {
        w->failed = true;
        return;
    }
    *meta = (struct safetensors_meta){.key = key_copy, .value = value_copy};
    *w->meta_end = meta;
    w->meta_end = &meta->next;
    w->meta_n++;
}

void safetensors_tensor(struct safetensors_writer *w, const char *name, const struct shape *shape,
                        const float *data)
{
    PL_ASSERT(shape->n <= SHAPE_DIMS_MAX);
    struct safetensors_part *part = arena_new(&w->arena, struct safetensors_part);
    const char *copy = arena_strdup(&w->arena, name);
    if (w->failed || !part || !copy) {
        w->failed = true;
        return;
    }
    size_t bytes = shape_count(shape) * sizeof(float);
    PL_ASSERT(bytes || safetensors_shape_empty(shape));
    *part = (struct safetensors_part){copy, *shape, bytes, data, 0, NULL};
    *w->parts_end = part;
    w->parts_end = &part->next;
    w->parts_n++;
}

static int text_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sort the texts; the first that occurs twice, or NULL. */
static const char *find_twice(const char **text, size_t n)
{
    qsort(text, n, sizeof *text, text_compare);
    for (size_t i = 1; i < n; i++)
        if (strcmp(text[i - 1], text[i]) == 0)
            return text[i];
    return NULL;
}

static int check_twice(const struct safetensors_writer *w, struct err *err)
{
    const char **text = calloc(w->meta_n + w->parts_n + 1, sizeof *text);
    if (!text)
        return err_set(err, ERR_NOMEM, "safetensors: out of memory");
    size_t n = 0;
    for (const struct safetensors_meta *meta = w->meta; meta; meta = meta->next)
        text[n++] = meta->key;
    const char *key = find_twice(text, n);
    n = 0;
    for (const struct safetensors_part *part = w->parts; part; part = part->next)
        text[n++] = part->name;
    const char *name = find_twice(text, n);
    free(text);
    if (key)
        return err_set(err, ERR_INPUT, "metadata %.200s: given twice", key);
    if (name)
        return err_set(err, ERR_INPUT, "tensor %.200s: given twice", name);
    return OK;
}

static int check_part(const struct safetensors_part *part, struct err *err)
{
    if (!safetensors_utf8(part->name, strlen(part->name)))
        return err_set(err, ERR_INPUT, "tensor %.200s: its name is not UTF-8", part->name);
    if (strcmp(part->name, SAFETENSORS_METADATA) == 0)
        return err_set(err, ERR_INPUT, "tensor %s: the format keeps this name", part->name);
    for (size_t i = 0; i < part->shape.n; i++)
        if (part->shape.dim[i] > SAFETENSORS_DIM_MAX)
            return err_set(err, ERR_INPUT, "tensor %.200s: dimension %zu is %zu, above %d",
                           part->name, i, part->shape.dim[i], SAFETENSORS_DIM_MAX);
    return OK;
}

static int check_tensors(const struct safetensors_writer *w, struct err *err)
{
    if (w->failed)
        return err_set(err, ERR_NOMEM, "safetensors: out of memory");
    for (const struct safetensors_meta *meta = w->meta; meta; meta = meta->next)
        if (!safetensors_utf8(meta->key, strlen(meta->key)) ||
            !safetensors_utf8(meta->value, strlen(meta->value)))
            return err_set(err, ERR_INPUT, "metadata %.200s: not UTF-8", meta->key);
    for (const struct safetensors_part *part = w->parts; part; part = part->next) {
        int status = check_part(part, err);
        if (status)
            return status;
    }
    return check_twice(w, err);
}

/* Write the text as it is between a JSON string's quotes. */
static void put_escaped(struct buf *header, const char *text)
{
    for (; *text; text++) {
        uint8_t c = (uint8_t)*text;
        if (c < 0x20) {
            buf_printf(header, "\\u%04x", c);
        } else {
            if (c == '"' || c == '\\')
                buf_put_u8(header, '\\');
            buf_put_u8(header, c);
        }
    }
}

static void put_meta(struct buf *header, const char *prefix, const char *key, const char *value)
{
    buf_printf(header, ",\"%s", prefix);
    put_escaped(header, key);
    buf_printf(header, "\":\"");
    put_escaped(header, value);
    buf_printf(header, "\"");
}

static void put_part(struct buf *header, const struct safetensors_part *part, size_t begin)
{
    buf_printf(header, ",\"");
    put_escaped(header, part->name);
    buf_printf(header, "\":{\"dtype\":\"F32\",\"shape\":[");
    for (size_t i = 0; i < part->shape.n; i++)
        buf_printf(header, "%s%zu", i ? "," : "", part->shape.dim[i]);
    buf_printf(header, "],\"data_offsets\":[%zu,%zu]}", begin, begin + part->bytes);
}

static void put_header(struct buf *header, const struct safetensors_writer *w)
{
    static const char zeros[] = "0000000000000000";
    char digits[SAFETENSORS_DIGITS + 1];
    buf_printf(header, "%s%s\"", SAFETENSORS_LEAD, zeros);
    for (const struct safetensors_meta *meta = w->meta; meta; meta = meta->next)
        put_meta(header, "", meta->key, meta->value);
    for (const struct safetensors_part *part = w->parts; part; part = part->next) {
        if (part->bytes && !part->data)
            safetensors_hash_digits(part->hash, digits);
        else
            safetensors_digits(part->bytes ? (const void *)part->data : "", part->bytes, digits);
        put_meta(header, SAFETENSORS_XXH3, part->name, digits);
    }
    buf_printf(header, "}");
    size_t begin = 0;
    for (const struct safetensors_part *part = w->parts; part; part = part->next) {
        put_part(header, part, begin);
        begin += part->bytes;
    }
    buf_printf(header, "}");
    while (!header->failed && (SAFETENSORS_LENGTH_BYTES + header->len) % SAFETENSORS_ALIGN != 0)
        buf_put_u8(header, ' ');
    if (header->failed)
        return;
    safetensors_digits(header->data, header->len, digits);
    memcpy(header->data + strlen(SAFETENSORS_LEAD), digits, SAFETENSORS_DIGITS);
}

int safetensors_head(const struct safetensors_writer *w, struct buf *out, size_t *bytes,
                     struct err *err)
{
    int status = check_tensors(w, err);
    struct buf header = {0}, head = {0};
    if (status)
        return status;
    put_header(&header, w);
    if (!header.failed && header.len > SAFETENSORS_HEADER_MAX) {
        status = err_set(err, ERR_INPUT, "safetensors: a header of %zu bytes, above %d", header.len,
                         SAFETENSORS_HEADER_MAX);
        buf_release(&header);
        return status;
    }
    buf_put_u64(&head, header.len);
    buf_put(&head, header.data, header.len);
    /* The parts lie in memory, so that the sum of their bytes cannot overflow; one that is given
     * many times over may. */
    size_t len = head.len;
    bool overflow = false;
    for (const struct safetensors_part *part = w->parts; part; part = part->next)
        overflow |= __builtin_add_overflow(len, part->bytes, &len);
    bool failed = header.failed || head.failed || overflow;
    buf_release(&header);
    if (failed) {
        buf_release(&head);
        return err_set(err, ERR_NOMEM, "safetensors: out of memory");
    }
    *out = head;
    *bytes = len;
    return OK;
}

int safetensors_data(const struct safetensors_writer *w,
                     int (*put)(void *user, const void *data, size_t len), void *user)
{
    int rc = OK;
    for (const struct safetensors_part *part = w->parts; rc == OK && part; part = part->next)
        if (part->bytes) {
            PL_ASSERT(part->data);
            rc = put(user, part->data, part->bytes);
        }
    return rc;
}

/* A file on its way, piece by piece. */
struct streaming {
    struct hash_stream *hash;
    float *piece; /* SAFETENSORS_PIECE floats */
    int (*next)(void *user, float *into, size_t n);
    int (*put)(void *user, const void *data, size_t len);
    void *user;
};

static int stream_part(const struct streaming *s, struct safetensors_part *part)
{
    int rc = OK;
    hash_stream_begin(s->hash);
    for (size_t left = part->bytes / sizeof(float), n; rc == OK && left > 0; left -= n) {
        n = left < SAFETENSORS_PIECE ? left : SAFETENSORS_PIECE;
        rc = s->next(s->user, s->piece, n);
        if (rc != OK)
            return rc;
        hash_stream_add(s->hash, s->piece, n * sizeof(float));
        rc = s->put(s->user, s->piece, n * sizeof(float));
    }
    part->hash = hash_stream_take(s->hash);
    return rc;
}

int safetensors_stream(struct safetensors_writer *w, int (*next)(void *user, float *into, size_t n),
                       int (*put)(void *user, const void *data, size_t len), void *user)
{
    struct streaming s = {.hash = hash_stream_create(),
                          .piece = malloc(SAFETENSORS_PIECE * sizeof(float)),
                          .next = next,
                          .put = put,
                          .user = user};
    int rc = s.hash && s.piece ? OK : ERR_NOMEM;
    for (struct safetensors_part *part = w->parts; rc == OK && part; part = part->next)
        rc = stream_part(&s, part);
    hash_stream_free(s.hash);
    free(s.piece);
    return rc;
}

static int add_to_image(void *user, const void *data, size_t len)
{
    struct buf *image = user;
    memcpy(image->data + image->len, data, len);
    image->len += len;
    return OK;
}

int safetensors_image(const struct safetensors_writer *w, struct buf *out, struct err *err)
{
    struct buf head = {0};
    size_t len;
    int status = safetensors_head(w, &head, &len, err);
    if (status)
        return status;
    struct buf image = {.data = malloc(len), .cap = len};
    if (!image.data) {
        buf_release(&head);
        return err_set(err, ERR_NOMEM, "safetensors: no memory for the file's image");
    }
    add_to_image(&image, head.data, head.len);
    safetensors_data(w, add_to_image, &image);
    buf_release(&head);
    *out = image;
    return OK;
}
