/* Layers as nodes of ONNX: what the files of the export share. */
#ifndef PL_MODEL_ONNX_LAYERS_H
#define PL_MODEL_ONNX_LAYERS_H

#include "model/caffe_model.h"
#include "model/onnx_writer.h"

struct onnx_export {
    struct onnx_writer w;
    const char *path;
    const Caffe__NetParameter *net;
    const struct caffe_blobs *blobs;
};

/* A layer on its way. */
struct onnx_step {
    const Caffe__LayerParameter *layer;
    size_t i;                           /* its number in the net */
    const char *name;                   /* the layer's */
    const char *const *in;              /* values of its bottoms */
    const struct shape *x;              /* and their shapes */
    const char *out;                    /* the value of its first top */
    const char *const *tops;            /* of all tops: out, and those of a layer with several */
    const struct shape *y;              /* their shapes */
    const Caffe__LayerParameter *scale; /* of a BatchNorm: the Scale that follows, or NULL */
    size_t scale_i;
};

typedef int onnx_layer_writer(struct onnx_export *e, const struct onnx_step *s, struct err *err);

/* Returns the writer, or NULL: ONNX has no operator for the layer. `several`: it may have several
 * tops. */
onnx_layer_writer *onnx_writer_of(const char *type, bool *several);

onnx_layer_writer onnx_put_convolution, onnx_put_pooling, onnx_put_lrn;
onnx_layer_writer onnx_put_inner_product, onnx_put_batch_norm, onnx_put_scale, onnx_put_bias;
onnx_layer_writer onnx_put_recurrent, onnx_put_embed;

/* Blob k of the step's layer; ERR_INPUT: there is none, or another shape than `want`, unless that
 * has n = 0. */
int onnx_blob_of(struct onnx_export *e, const struct onnx_step *s, size_t k,
                 const struct shape *want, struct caffe_tensor *out, struct err *err);

/* The constant "LAYER.k" of these numbers, borrowed. */
const char *onnx_put_blob(struct onnx_export *e, const char *layer, size_t k,
                          const struct shape *shape, const float *at);

/* Returns ERR_UNSUPPORTED: "PATH: layer "NAME" (TYPE): WHAT". */
int onnx_no_operator(const struct onnx_export *e, const struct onnx_step *s, struct err *err,
                     const char *what);

/* A node of the layer's name from its first bottom to its top. */
Onnx__NodeProto *onnx_put_step(struct onnx_export *e, const struct onnx_step *s, const char *type);

/* A node "LAYER/suffix" from the values a and b (NULL: one input) to "LAYER/suffix", or with `last`
 * to the layer's top. Returns that value's name. */
const char *onnx_put_inner(struct onnx_export *e, const struct onnx_step *s, const char *type,
                           const char *suffix, const char *a, const char *b, bool last);

#endif
