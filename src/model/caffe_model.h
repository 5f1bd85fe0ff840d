/* A .caffemodel: a binary NetParameter whose layers contain their trained blobs. It is read in
 * place, so reading costs the memory of the file alone, and written layer by layer from the
 * caller's vectors. Layers of the old syntax (V1, `layers`) are read, too; the new syntax is
 * written. */
#ifndef PL_MODEL_CAFFE_MODEL_H
#define PL_MODEL_CAFFE_MODEL_H

#include "base/arena.h"
#include "job/caffe.pb-c.h"
#include "model/caffe_proto.h"
#include "world/disk.h"

/* ---- reading ---- */

/* Protobuf's own limit, and so Caffe's. */
static const size_t CAFFE_MODEL_BYTES_MAX = ((size_t)1 << 31) - 1;

enum { CAFFE_LAYERS_MAX = 1 << 14, CAFFE_BLOBS_MAX = 1 << 16 };

struct caffe_layer {
    const char *name, *type;       /* "" where the file has none */
    const struct caffe_blob *blob; /* n of them */
    size_t n;
};

struct caffe_model {
    struct arena arena;
    const char *path;
    const uint8_t *bytes;
    size_t len;
    bool v1;
    struct caffe_layer *layer; /* in the file's order */
    size_t n;
    const struct caffe_layer **by_name; /* those that have blobs */
    size_t named;
};

/* Read a file of untrusted bytes; they are borrowed until caffe_model_release. `path` is copied,
 * for messages. Memory taken is bounded by the numbers above. `out` is written only on success.
 *
 * ERR_INPUT        the bytes are no NetParameter, with path, byte and layer; a blob's shape does
 * not fit its numbers; two layers of one name have blobs, or a layer with blobs no name; layers of
 * both syntaxes ERR_UNSUPPORTED  layers of the oldest syntax, V0 ERR_NOMEM */
int caffe_model_parse(const char *path, const uint8_t *bytes, size_t len, struct caffe_model *out,
                      struct err *err);
void caffe_model_release(struct caffe_model *model);

/* The layer of that name that has blobs, or NULL. */
const struct caffe_layer *caffe_model_find(const struct caffe_model *model, const char *name);

/* The net that the file describes, upgraded and settled (caffe_upgrade.h, caffe_snapshot.h), with
 * all its fields but the values of its blobs: freed with caffe__net_parameter__free_unpacked.
 * ERR_INPUT: broken, or a field, by its layer, has a number that is none of its enum's values;
 * ERR_UNSUPPORTED: a description of more than 1 MiB; ERR_NOMEM */
int caffe_model_net(const struct caffe_model *model, Caffe__NetParameter **out, struct err *err);

/* ---- writing ---- */

struct caffe_tensor {
    struct shape shape;
    bool old; /* four dimensions, to be written as num, channels, height, width */
    const float *data;
};

/* Blob k of layer number i of the net; false: there are no more. Called more than once. */
struct caffe_blobs {
    bool (*get)(void *user, size_t i, size_t k, struct caffe_tensor *out);
    void *user;
};

/* Write `net` with these blobs (its own are ignored) as the file `path`, whole or not at all;
 * `path` has a directory part. The values are written without a copy. ERR_INPUT: more than the
 * format's 2 GiB; ERR_IO, ERR_NOMEM */
int caffe_model_write(const Caffe__NetParameter *net, const struct caffe_blobs *blobs,
                      struct disk *disk, const char *path, struct err *err);

#endif
