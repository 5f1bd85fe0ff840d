/* Protobuf's wire format. It is read in place: untrusted bytes, no allocation.
 *
 *   message   field*
 *   field     varint(number << 3 | kind), then the value: kind 0 a varint, 1 eight bytes,
 *             2 a varint n and n bytes, 5 four bytes
 *   varint    seven bits a byte, lowest first; the top bit is set in all but the last; ten bytes at
 *             most
 *
 * Also BlobProto, the one message whose values are too large to be unpacked twice. */
#ifndef PL_MODEL_CAFFE_PROTO_H
#define PL_MODEL_CAFFE_PROTO_H

#include "base/bytes.h"
#include "base/err.h"
#include "tensor/shape.h"

#include <stdint.h>

enum proto_kind { PROTO_VARINT = 0, PROTO_EIGHT = 1, PROTO_BYTES = 2, PROTO_FOUR = 5 };

/* The rest of a message. */
struct proto {
    const char *path;    /* of the file, for messages alone; borrowed */
    const uint8_t *file; /* the beginning of its bytes, from which offsets are counted */
    const uint8_t *at, *end;
};

struct proto_field {
    const uint8_t *from; /* its first byte */
    uint32_t number;
    enum proto_kind kind;
    uint64_t value;  /* of a varint; for other kinds 0 */
    struct proto in; /* the bytes of the others */
};

/* A whole file as a message. */
struct proto proto_of(const char *path, const uint8_t *bytes, size_t len);

/* Take the next field; there is one while at < end. ERR_INPUT with path and byte: a number that
 * does not end, a kind that there is not, a length beyond the message. */
int proto_next(struct proto *w, struct proto_field *field, struct err *err);

/* ERR_INPUT unless the field is of that kind; `name` is its name in the schema. */
int proto_expect(const struct proto_field *field, enum proto_kind kind, const char *name,
                 struct err *err);

/* "PATH: byte N: ...", for the byte at `at`. Returns ERR_INPUT. */
int proto_fail(const struct proto *w, const uint8_t *at, struct err *err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

void proto_put_varint(struct buf *out, uint64_t value);

/* ---- BlobProto ---- */

struct caffe_blob {
    struct proto in; /* the message, still in the file's bytes */
    struct shape shape;
    bool old;     /* the shape stood as num, channels, height, width: always four dimensions */
    bool doubles; /* its numbers are doubles in the file, and rounded when copied */
    size_t count; /* of numbers, by the shape */
};

/* Describes a blob, without copying its numbers. They may be packed, in one piece or more, or each
 * a field of its own. `diff`, which snapshots may contain, too, is passed over.
 *
 * ERR_INPUT with path and byte: no shape, or one that makes no sense or does not fit the
 * numbers. */
int caffe_blob_read(const struct proto *in, struct caffe_blob *out, struct err *err);

/* Copy its numbers: `into` has room for blob->count. The file's bytes must still be there. */
void caffe_blob_copy(const struct caffe_blob *blob, float *into);

/* Each of its numbers is finite, as a float. */
bool caffe_blob_finite(const struct caffe_blob *blob);

/* The shapes are equal, or one is the other with 1s before it: then the same numbers in the same
 * order mean the same, as the four dimensions of old blobs show. */
bool caffe_shapes_fit(const struct shape *a, const struct shape *b);

#endif
