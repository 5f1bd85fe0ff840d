/* Models in ONNX: a graph becomes the net and the weights that a caffemodel has. */
#ifndef PL_MODEL_ONNX_IMPORT_H
#define PL_MODEL_ONNX_IMPORT_H

#include "base/err.h"
#include "job/caffe.pb-c.h"
#include "job/onnx.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of older opsets than the least, operators that have not changed since are read. */
enum {
    ONNX_NODES_MAX = 1 << 14,
    ONNX_INPUTS_MAX = 1 << 17, /* of all nodes together */
    ONNX_VALUES_MAX = 1 << 16,
    ONNX_OUTPUTS_MAX = 1 << 8, /* of the graph */
    ONNX_OPSET_MIN = 8,
    ONNX_OPSET_MAX = 21
};

/* Is the file `path`, which begins with these bytes, a model in ONNX? */
bool onnx_is_model(const char *path, const uint8_t *bytes, size_t len);

/* Read a file of untrusted bytes. `numbers_max` bounds the bytes of constants, those of the file
 * and those that its nodes compute. The net has its weights as blobs of its layers, and is freed
 * with caffe__net_parameter__free_unpacked; `path` is for messages.
 *
 * ERR_INPUT        the bytes are no model, or it makes no sense, by node
 * ERR_UNSUPPORTED  an operator, an attribute or a shape, by node, operator and opset
 * ERR_NOMEM */
int onnx_import(const char *path, const uint8_t *bytes, size_t len, size_t numbers_max,
                Caffe__NetParameter **out, struct err *err);

/* The message itself: freed with onnx__model_proto__free_unpacked(model, NULL). Its memory is
 * bounded by the length. As above */
int onnx_unpack(const char *path, const uint8_t *bytes, size_t len, Onnx__ModelProto **out,
                struct err *err);

/* The net of an unpacked model, as onnx_import. */
int onnx_import_model(const char *path, const Onnx__ModelProto *model, size_t numbers_max,
                      Caffe__NetParameter **out, struct err *err);

#endif
