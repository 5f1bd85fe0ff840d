/* A net's weights and state in files: safetensors, PREFIX/SEGMENT for every segment of a vector
 * ("joint" is x, "s" is s); or a caffemodel, blob INDEX of layer LAYER for a segment LAYER.INDEX of
 * either vector. */
#ifndef PL_MODEL_WEIGHTS_H
#define PL_MODEL_WEIGHTS_H

#include "base/logger.h"
#include "model/safetensors.h"
#include "tensor/model_slice.h"
#include "tensor/segment.h"

/* ---- any file, by name of layers ---- */

/* Where the file and the net may differ. A tensor fits a segment when their shapes are equal, or
 * one is the other with 1s before it, as blobs of old caffemodels have four dimensions always. */
enum weights_fit {
    WEIGHTS_ALL,  /* every segment must have a tensor that fits; other tensors of the file are
                     ignored */
    WEIGHTS_SOME, /* segments without one keep their values */
};

/* The destination vectors: a table each, and its floats. */
struct weights_into {
    const struct segments *x, *s;
    float *x_at, *s_at;
};

/* Take weights and state from the file `path`, whose first bytes identify its format. On an error
 * nothing is written. The log names, tensor by tensor, the segments that keep their values, with
 * the reason, and the file's tensors that the net does not have; a last line gives the number
 * taken. `log` may be NULL.
 *
 * Needs as much memory as the file's size, and for safetensors twice that.
 *
 * ERR_INPUT  the file is missing or broken, with the place; a tensor to be taken has a value that
 *            is not finite; WEIGHTS_ALL: a tensor is missing or of another shape, or a layer
 *            has another number of blobs, by name; WEIGHTS_SOME: not one tensor fits
 * ERR_UNSUPPORTED, ERR_NOMEM */
int model_weights_load(const char *path, enum weights_fit fit, const struct weights_into *into,
                       const struct logger *log, struct err *err);

/* The same for a slice of a model, WEIGHTS_ALL, from a safetensors file with checksums: the table
 * `into->x` is the whole model's, and x_at has the slice's part of it. The file is read by range,
 * and needs no memory. On an error part of the vectors may be written.
 *
 * ERR_UNSUPPORTED: also another format */
int model_weights_load_slice(const char *path, const struct model_slice *slice,
                             const struct weights_into *into, const struct logger *log,
                             struct err *err);

/* ---- safetensors, which hold these tensors exactly ---- */

/* Add a vector's segments to a file; `at` is borrowed until the file's image is made. NULL: its
 * floats come later. */
void weights_put(struct safetensors_writer *w, const char *prefix, const struct segments *table,
                 const float *at);

/* Does the file called `path` hold all of a vector's segments? ERR_INPUT naming the tensor that is
 * missing or of another shape. */
int weights_check(const struct safetensors *st, const char *path, const char *prefix,
                  const struct segments *table, struct err *err);

/* Copy a vector's segments, which have been checked, into `into`; its padding is left alone. */
void weights_take(const struct safetensors *st, const char *prefix, const struct segments *table,
                  float *into);

/* The tensor of a vector's segment, or NULL. */
const struct safetensors_item *weights_item(const struct safetensors *st, const char *prefix,
                                            const struct segment *segment);

#endif
