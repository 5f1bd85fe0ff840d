#include "model/caffe_proto.h"

#include "base/fault.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "floats are copied as they lie");

enum { VARINT_BYTES_MAX = 10, KIND_BITS = 3 };

/* BlobProto's fields, by their numbers. */
enum {
    BLOB_NUM = 1,
    BLOB_WIDTH = 4,
    BLOB_DATA = 5,
    BLOB_SHAPE = 7,
    BLOB_DOUBLE_DATA = 8,
    SHAPE_DIM = 1,
};

static const uint64_t DIM_MAX = INT32_MAX;

/* ---- fields ---- */

struct proto proto_of(const char *path, const uint8_t *bytes, size_t len)
{
    return (struct proto){path, bytes, bytes, bytes + len};
}

int proto_fail(const struct proto *w, const uint8_t *at, struct err *err, const char *format, ...)
{
    char what[ERR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return err_set(err, ERR_INPUT, "%.200s: byte %td: %s", w->path, at - w->file, what);
}

static int take_varint(struct proto *w, uint64_t *out, struct err *err)
{
    const uint8_t *from = w->at;
    uint64_t value = 0;
    for (unsigned i = 0; i < VARINT_BYTES_MAX; i++) {
        if (w->at == w->end)
            return proto_fail(w, from, err, "a number is cut short");
        uint8_t byte = *w->at++;
        if (i == VARINT_BYTES_MAX - 1 && byte > 1)
            break;
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (!(byte & 0x80)) {
            *out = value;
            return OK;
        }
    }
    return proto_fail(w, from, err, "a number is longer than 64 bits");
}

int proto_next(struct proto *w, struct proto_field *field, struct err *err)
{
    const uint8_t *from = w->at;
    uint64_t tag = 0, len = 0;
    int rc = take_varint(w, &tag, err);
    if (rc != OK)
        return rc;
    if (tag >> KIND_BITS == 0 || tag > UINT32_MAX)
        return proto_fail(w, from, err, "there is no field %" PRIu64, tag >> KIND_BITS);
    *field = (struct proto_field){
        .from = from,
        .number = (uint32_t)(tag >> KIND_BITS),
        .kind = (enum proto_kind)(tag & 7),
    };
    switch (tag & 7) {
    case PROTO_VARINT: rc = take_varint(w, &field->value, err); break;
    case PROTO_EIGHT: len = 8; break;
    case PROTO_BYTES: rc = take_varint(w, &len, err); break;
    case PROTO_FOUR: len = 4; break;
    default: return proto_fail(w, from, err, "there is no kind %u of fields", (unsigned)(tag & 7));
    }
    if (rc != OK)
        return rc;
    if (len > (size_t)(w->end - w->at))
        return proto_fail(w, from, err, "field %u has %" PRIu64 " bytes, %td are left",
                          field->number, len, w->end - w->at);
    field->in = (struct proto){w->path, w->file, w->at, w->at + len};
    w->at += len;
    return OK;
}

int proto_expect(const struct proto_field *field, enum proto_kind kind, const char *name,
                 struct err *err)
{
    static const char *const text[] = {
        [PROTO_VARINT] = "a number",
        [PROTO_EIGHT] = "eight bytes",
        [PROTO_BYTES] = "a length and bytes",
        [PROTO_FOUR] = "four bytes",
    };
    if (field->kind == kind)
        return OK;
    return proto_fail(&field->in, field->from, err, "%s: expected %s, not %s", name, text[kind],
                      text[field->kind]);
}

void proto_put_varint(struct buf *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        buf_put_u8(out, (uint8_t)(value | 0x80));
    buf_put_u8(out, (uint8_t)value);
}

/* ---- shapes ---- */

static int add_dim(struct shape *shape, const struct proto_field *field, uint64_t dim,
                   struct err *err)
{
    if (shape->n == SHAPE_DIMS_MAX)
        return proto_fail(&field->in, field->from, err, "shape: more than %d dimensions",
                          SHAPE_DIMS_MAX);
    if (dim == 0 || dim > DIM_MAX)
        return proto_fail(&field->in, field->from, err, "shape: dimension %" PRId64 ", not 1 to %d",
                          (int64_t)dim, INT32_MAX);
    shape->dim[shape->n++] = (size_t)dim;
    return OK;
}

static int read_shape(struct proto in, struct shape *shape, struct err *err)
{
    while (in.at < in.end) {
        struct proto_field field;
        int rc = proto_next(&in, &field, err);
        if (rc != OK)
            return rc;
        if (field.number != SHAPE_DIM)
            continue;
        if (field.kind == PROTO_VARINT) {
            rc = add_dim(shape, &field, field.value, err);
        } else {
            rc = proto_expect(&field, PROTO_BYTES, "shape.dim", err);
            for (struct proto dims = field.in; rc == OK && dims.at < dims.end;) {
                uint64_t dim = 0;
                rc = take_varint(&dims, &dim, err);
                if (rc == OK)
                    rc = add_dim(shape, &field, dim, err);
            }
        }
        if (rc != OK)
            return rc;
    }
    return OK;
}

bool caffe_shapes_fit(const struct shape *a, const struct shape *b)
{
    const struct shape *more = a->n > b->n ? a : b, *less = more == a ? b : a;
    size_t before = more->n - less->n;
    for (size_t i = 0; i < before; i++)
        if (more->dim[i] != 1)
            return false;
    return memcmp(more->dim + before, less->dim, less->n * sizeof less->dim[0]) == 0;
}

/* ---- blobs ---- */

/* The fields of a blob that have been seen. */
struct blob_fields {
    struct shape shape, old;
    bool has_shape, has_old;
    size_t floats, doubles;
};

static int read_old(struct blob_fields *b, const struct proto_field *field, struct err *err)
{
    int rc = proto_expect(field, PROTO_VARINT, "num, channels, height or width", err);
    if (rc != OK)
        return rc;
    if (field->value == 0 || field->value > DIM_MAX)
        return proto_fail(&field->in, field->from, err, "shape: dimension %" PRId64 ", not 1 to %d",
                          (int64_t)field->value, INT32_MAX);
    b->old.dim[field->number - BLOB_NUM] = (size_t)field->value;
    b->has_old = true;
    return OK;
}

/* Numbers of `size` bytes, packed or a single one. */
static int count_numbers(const struct proto_field *field, enum proto_kind single, size_t size,
                         const char *name, size_t *count, struct err *err)
{
    size_t len = (size_t)(field->in.end - field->in.at);
    if (field->kind != single) {
        int rc = proto_expect(field, PROTO_BYTES, name, err);
        if (rc != OK)
            return rc;
    }
    if (len % size != 0)
        return proto_fail(&field->in, field->from, err,
                          "%s: %zu bytes do not divide into numbers of %zu", name, len, size);
    *count += len / size;
    return OK;
}

static int read_field(struct blob_fields *b, const struct proto_field *field, struct err *err)
{
    int rc;
    switch (field->number) {
    case BLOB_DATA: return count_numbers(field, PROTO_FOUR, sizeof(float), "data", &b->floats, err);
    case BLOB_DOUBLE_DATA:
        return count_numbers(field, PROTO_EIGHT, sizeof(double), "double_data", &b->doubles, err);
    case BLOB_SHAPE:
        b->has_shape = true;
        rc = proto_expect(field, PROTO_BYTES, "shape", err);
        return rc == OK ? read_shape(field->in, &b->shape, err) : rc;
    default:
        return field->number >= BLOB_NUM && field->number <= BLOB_WIDTH ? read_old(b, field, err)
                                                                        : OK;
    }
}

int caffe_blob_read(const struct proto *in, struct caffe_blob *out, struct err *err)
{
    struct blob_fields b = {.old = {4, {0, 0, 0, 0}}};
    for (struct proto w = *in; w.at < w.end;) {
        struct proto_field field;
        int rc = proto_next(&w, &field, err);
        if (rc == OK)
            rc = read_field(&b, &field, err);
        if (rc != OK)
            return rc;
    }
    if (!b.has_shape && !b.has_old)
        return proto_fail(in, in->at, err, "a blob without a shape");
    if (b.floats && b.doubles)
        return proto_fail(in, in->at, err, "a blob with both data and double_data");
    /* Where both forms are given, Caffe reads the old one. */
    const struct shape *shape = b.has_old ? &b.old : &b.shape;
    size_t count = b.floats + b.doubles;
    char text[128];
    if (shape_count(shape) != count || count == 0)
        return proto_fail(in, in->at, err, "a blob of %s with %zu numbers",
                          shape_text(shape, text, sizeof text), count);
    *out = (struct caffe_blob){*in, *shape, b.has_old, b.doubles > 0, count};
    return OK;
}

/* The next numbers of a blob that was read before, as they lie in the file; false when there are no
 * more. */
static bool next_numbers(struct proto *w, const struct caffe_blob *blob, const uint8_t **at,
                         size_t *bytes)
{
    while (w->at < w->end) {
        struct proto_field field;
        int rc = proto_next(w, &field, NULL);
        PL_ASSERT(rc == OK);
        if (field.number != (blob->doubles ? BLOB_DOUBLE_DATA : BLOB_DATA))
            continue;
        *at = field.in.at;
        *bytes = (size_t)(field.in.end - field.in.at);
        return true;
    }
    return false;
}

void caffe_blob_copy(const struct caffe_blob *blob, float *into)
{
    struct proto w = blob->in;
    const uint8_t *at;
    size_t bytes;
    float *to = into;
    while (next_numbers(&w, blob, &at, &bytes)) {
        if (!blob->doubles) {
            memcpy(to, at, bytes);
            to += bytes / sizeof(float);
            continue;
        }
        for (size_t i = 0; i < bytes; i += sizeof(double)) {
            double value;
            memcpy(&value, at + i, sizeof value);
            *to++ = (float)value;
        }
    }
    PL_ASSERT((size_t)(to - into) == blob->count);
}

bool caffe_blob_finite(const struct caffe_blob *blob)
{
    struct proto w = blob->in;
    const uint8_t *at;
    size_t bytes, size = blob->doubles ? sizeof(double) : sizeof(float);
    while (next_numbers(&w, blob, &at, &bytes))
        for (size_t i = 0; i < bytes; i += size) {
            double wide = 0;
            float value;
            if (blob->doubles)
                memcpy(&wide, at + i, sizeof wide);
            else
                memcpy(&value, at + i, sizeof value);
            if (!isfinite(blob->doubles ? (float)wide : value))
                return false;
        }
    return true;
}
