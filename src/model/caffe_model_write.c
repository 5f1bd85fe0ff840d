#include "base/bytes.h"
#include "base/fault.h"
#include "model/caffe_model.h"

#include <stdlib.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "floats are written as they lie");

/* Fields by their numbers. */
enum {
    NET_LAYER = 100,
    LAYER_BLOBS = 7,
    BLOB_NUM = 1,
    BLOB_DATA = 5,
    BLOB_SHAPE = 7,
    SHAPE_DIM = 1,
};

enum { OLD_DIMS = 4 };

struct writer {
    const Caffe__NetParameter *net;
    const struct caffe_blobs *blobs;
    struct disk *disk;
    struct disk_file *file;
    struct buf piece; /* the bytes between two blobs' values */
};

/* ---- pieces ---- */

static void put_length(struct buf *out, uint32_t number, uint64_t len)
{
    proto_put_varint(out, (uint64_t)number << 3 | PROTO_BYTES);
    proto_put_varint(out, len);
}

static size_t varint_bytes(uint64_t value)
{
    size_t n = 1;
    while (value >>= 7)
        n++;
    return n;
}

/* Bytes of a field with its tag and its length. */
static size_t field_bytes(uint32_t number, size_t len)
{
    return varint_bytes((uint64_t)number << 3) + varint_bytes(len) + len;
}

static size_t data_bytes(const struct caffe_tensor *tensor)
{
    return shape_count(&tensor->shape) * sizeof(float);
}

/* A blob up to its numbers, which end it. */
static void put_blob_head(struct buf *out, const struct caffe_tensor *tensor)
{
    const struct shape *shape = &tensor->shape;
    if (tensor->old) {
        PL_ASSERT(shape->n == OLD_DIMS);
        for (uint32_t i = 0; i < OLD_DIMS; i++) {
            proto_put_varint(out, (uint64_t)(BLOB_NUM + i) << 3);
            proto_put_varint(out, shape->dim[i]);
        }
    } else {
        size_t dims = 0;
        for (size_t i = 0; i < shape->n; i++)
            dims += varint_bytes(shape->dim[i]);
        put_length(out, BLOB_SHAPE, shape->n ? field_bytes(SHAPE_DIM, dims) : 0);
        if (shape->n)
            put_length(out, SHAPE_DIM, dims);
        for (size_t i = 0; i < shape->n; i++)
            proto_put_varint(out, shape->dim[i]);
    }
    put_length(out, BLOB_DATA, data_bytes(tensor));
}

/* Bytes of a blob's message. */
static size_t blob_bytes(const struct caffe_tensor *tensor)
{
    const struct shape *shape = &tensor->shape;
    size_t n = tensor->old ? OLD_DIMS : 0;
    for (size_t i = 0; i < shape->n; i++)
        n += varint_bytes(shape->dim[i]);
    if (!tensor->old)
        n = field_bytes(BLOB_SHAPE, shape->n ? field_bytes(SHAPE_DIM, n) : 0);
    return n + field_bytes(BLOB_DATA, data_bytes(tensor));
}

/* ---- layers ---- */

static int flush_bytes(struct writer *w, struct err *err)
{
    if (w->piece.failed)
        return err_set(err, ERR_NOMEM, "caffemodel: out of memory");
    int rc = w->disk->ops->write(w->file, w->piece.data, w->piece.len, err);
    w->piece.len = 0;
    return rc;
}

/* The layer without its blobs, packed at the end of the piece; its bytes. */
static size_t put_packed(struct buf *out, const ProtobufCMessage *msg)
{
    size_t n = protobuf_c_message_get_packed_size(msg);
    uint8_t *bytes = malloc(n + 1);
    if (!bytes) {
        out->failed = true;
        return 0;
    }
    protobuf_c_message_pack(msg, bytes);
    buf_put(out, bytes, n);
    free(bytes);
    return n;
}

static Caffe__LayerParameter without_blobs(const Caffe__LayerParameter *layer)
{
    Caffe__LayerParameter own = *layer;
    own.n_blobs = 0;
    own.blobs = NULL;
    return own;
}

/* Bytes of layer i's message. */
static size_t layer_bytes(const struct writer *w, size_t i)
{
    const Caffe__LayerParameter own = without_blobs(w->net->layer[i]);
    size_t n = caffe__layer_parameter__get_packed_size(&own);
    struct caffe_tensor tensor;
    for (size_t k = 0; w->blobs->get(w->blobs->user, i, k, &tensor); k++)
        n += field_bytes(LAYER_BLOBS, blob_bytes(&tensor));
    return n;
}

static int write_layer(struct writer *w, size_t i, struct err *err)
{
    const Caffe__LayerParameter own = without_blobs(w->net->layer[i]);
    struct caffe_tensor tensor;
    put_length(&w->piece, NET_LAYER, layer_bytes(w, i));
    put_packed(&w->piece, &own.base);
    for (size_t k = 0; w->blobs->get(w->blobs->user, i, k, &tensor); k++) {
        put_length(&w->piece, LAYER_BLOBS, blob_bytes(&tensor));
        put_blob_head(&w->piece, &tensor);
        int rc = flush_bytes(w, err);
        if (rc == OK)
            rc = w->disk->ops->write(w->file, tensor.data, data_bytes(&tensor), err);
        if (rc != OK)
            return rc;
    }
    return OK;
}

/* ---- the file ---- */

static Caffe__NetParameter without_layers(const Caffe__NetParameter *net)
{
    Caffe__NetParameter own = *net;
    own.n_layer = 0;
    own.layer = NULL;
    return own;
}

static int check_size(const struct writer *w, const char *path, struct err *err)
{
    const Caffe__NetParameter own = without_layers(w->net);
    size_t n = caffe__net_parameter__get_packed_size(&own);
    for (size_t i = 0; i < w->net->n_layer; i++)
        n += field_bytes(NET_LAYER, layer_bytes(w, i));
    if (n > CAFFE_MODEL_BYTES_MAX)
        return err_set(err, ERR_INPUT, "%.200s: %zu bytes, more than a caffemodel's limit of %zu",
                       path, n, CAFFE_MODEL_BYTES_MAX);
    return OK;
}

static int fill_file(void *user, struct disk_file *file, struct err *err)
{
    struct writer *w = user;
    const Caffe__NetParameter own = without_layers(w->net);
    int rc = OK;
    w->file = file;
    put_packed(&w->piece, &own.base);
    for (size_t i = 0; i < w->net->n_layer && rc == OK; i++)
        rc = write_layer(w, i, err);
    return rc == OK ? flush_bytes(w, err) : rc;
}

int caffe_model_write(const Caffe__NetParameter *net, const struct caffe_blobs *blobs,
                      struct disk *disk, const char *path, struct err *err)
{
    struct writer w = {.net = net, .blobs = blobs, .disk = disk};
    PL_ASSERT(net->n_layers == 0);
    int rc = check_size(&w, path, err);
    if (rc == OK)
        rc = disk_replace_by(disk, path, fill_file, &w, err);
    buf_release(&w.piece);
    return rc;
}
