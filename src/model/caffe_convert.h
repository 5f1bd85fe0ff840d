/* Models from one of Caffe's formats into ours, and back. Numbers keep their bits.
 *
 * A safetensors file has the tensors of a run's: joint/LAYER.INDEX, and s/LAYER.INDEX for the
 * statistics of a BatchNorm; its metadata hold the net as the caffemodel described it, so that the
 * way back needs nothing else. */
#ifndef PL_MODEL_CAFFE_CONVERT_H
#define PL_MODEL_CAFFE_CONVERT_H

#include "base/logger.h"
#include "job/caffe.pb-c.h"
#include "model/safetensors.h"
#include "tensor/segment.h"
#include "world/disk.h"

/* The key of the metadata under which a net stands, as protobuf text; its blobs have shapes and no
 * numbers. A file that has it is of Caffe, unless it names another source. */
#define CAFFE_CONVERT_NET    "caffe.net"
#define CAFFE_CONVERT_SOURCE "source"

struct convert_options {
    const Caffe__NetParameter *net; /* describes the layers of a safetensors file without a net, or
                                       replaces its net; may be NULL */
    struct shape record;            /* of a record, for ONNX; n = 0: the net states it */
    bool torch;                     /* a safetensors file gets torchvision's names */
};

/* Convert the file `in` to the file `out`, which is replaced whole or not at all, and has a
 * directory part. The names select the conversion: .caffemodel, .safetensors and .onnx into each
 * other; any of them, or a .prototxt, to .prototxt, where older syntax becomes new; and safetensors
 * with torchvision's names, which are known by them, to our own and back.
 *
 * ERR_INPUT        the file is missing or broken; there is no such conversion; no net is known, or
 *                  a tensor is of none of its layers
 * ERR_UNSUPPORTED  also what the other format does not have, by layer or node
 * ERR_USAGE        the shape of records is unknown
 * ERR_IO, ERR_NOMEM */
int caffe_convert(const char *in, const char *out, const struct convert_options *options,
                  struct disk *disk, const struct logger *log, struct err *err);

/* The net that a safetensors file brings along, upgraded; `path` is its name. ERR_INPUT, also when
 * it brings none; ERR_UNSUPPORTED, ERR_NOMEM */
int caffe_convert_net(const char *path, const struct safetensors *st, Caffe__NetParameter **out,
                      struct err *err);

/* The vectors of a net as a caffemodel, or as a model in ONNX where `path` ends in .onnx: a shared
 * parameter is written with each layer that has it. As caffe_model_write, onnx_export. */
int caffe_convert_save(const Caffe__NetParameter *net, const struct segments *x, const float *x_at,
                       const struct segments *s, const float *s_at, const struct shape *record,
                       struct disk *disk, const char *path, struct err *err);

#endif
