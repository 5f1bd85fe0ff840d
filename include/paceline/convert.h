/* Models from one format into another. */
#ifndef PACELINE_CONVERT_H
#define PACELINE_CONVERT_H

#include "paceline/net.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero or NULL stands for the default. */
typedef struct pl_convert_options {
    size_t size; /* sizeof this struct */
    /* Whose layers the tensors of a .safetensors file are. Files that came out of a conversion
     * bring it along. */
    const pl_net_spec *net;
    bool replace; /* `out` may be there already, and may be `in`; of a link what it leads to is
                     replaced */
    /* A .safetensors gets the names of PyTorch's torchvision, conv1.weight and so on: of the zoo's
     * ResNets and VGGs. Files with such names are known by them. */
    bool torchvision;
    uint32_t channels, height, width; /* of a record, for .onnx, if the net does not state it */
} pl_convert_options;

/* Convert the file `in` to the file `out`; the ending of its name selects the format. A .caffemodel
 * becomes .safetensors, with tensors as a run leaves them, joint/LAYER.INDEX and s/LAYER.INDEX, and
 * back; every number keeps its bits. A model in ONNX (.onnx, opset 8 to 21) becomes either of them,
 * and either becomes one of opset 17, which computes what the net does in the test phase
 * (docs/ONNX.md). A .prototxt of any of Caffe's syntaxes becomes one of the newest, and so does the
 * net of a model. `out` is written whole or not at all. `options` may be NULL.
 *
 * PL_ERR_INPUT        the file is missing or broken, with the place; there is no such conversion;
 *                     no net is known, or a tensor is of none of its layers; `out` is there
 * PL_ERR_UNSUPPORTED  a format within the format that is not read, an operator of ONNX, by node and
 *                     opset, or a layer that ONNX does not have, by name
 * PL_ERR_USAGE        the shape of records is unknown; torchvision's names for another format
 * PL_ERR_IO, PL_ERR_NOMEM */
int pl_convert_as(pl_engine *engine, const char *in, const char *out,
                  const pl_convert_options *options);

/* The same with two of the options. */
int pl_convert(pl_engine *engine, const char *in, const char *out, const pl_net_spec *net,
               bool replace);

/* Is a file of weights from Caffe: a .caffemodel, or a .safetensors that was converted from one?
 * Then its net was trained on pictures in the order blue, green, red. Reads a .safetensors whole.
 * PL_ERR_INPUT, PL_ERR_UNSUPPORTED: it cannot be read; PL_ERR_NOMEM */
int pl_weights_of_caffe(pl_engine *engine, const char *path, bool *of_caffe);

#ifdef __cplusplus
}
#endif
#endif
