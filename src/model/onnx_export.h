/* Nets as models in ONNX, for inference and for further training elsewhere. */
#ifndef PL_MODEL_ONNX_EXPORT_H
#define PL_MODEL_ONNX_EXPORT_H

#include "model/caffe_model.h"
#include "tensor/shape.h"

/* Write what the net computes in the test phase as the file `path`, whole or not at all; `path` has
 * a directory part. Its output is the last loss's scores, after the softmax or the sigmoid in that
 * loss, or, of a net without a loss, each result that no layer reads. Layers that do not lead
 * there, such as a loss in the middle, are left out.
 *
 * blobs   the layers' numbers, by their place in `net`; borrowed
 * record  the shape of a record; n = 0: the net states it
 *
 * ERR_INPUT        the net is wrong, by layer; numbers are missing, or do not fit
 * ERR_UNSUPPORTED  a layer that ONNX has no operator for
 * ERR_USAGE        the shape of records is unknown
 * ERR_NOMEM, ERR_IO */
int onnx_export(const Caffe__NetParameter *net, const struct caffe_blobs *blobs,
                const struct shape *record, struct disk *disk, const char *path, struct err *err);

#endif
