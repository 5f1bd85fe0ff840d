/* A file of weights, whichever format it has. */
#ifndef PL_MODEL_WEIGHTS_FILE_H
#define PL_MODEL_WEIGHTS_FILE_H

#include "base/file.h"
#include "model/caffe_model.h"
#include "model/safetensors.h"

struct weights_file {
    bool is_onnx; /* in the file; it became a caffemodel in memory */
    bool is_caffe;
    struct caffe_model caffe; /* this, */
    struct safetensors st;    /* or that, looks into `bytes` */
    struct file_bytes bytes;
};

/* Must a safetensors file bring its checksums? */
enum weights_trust {
    WEIGHTS_CHECKED, /* yes, unless it has torchvision's names: it is to be one of ours, whole */
    WEIGHTS_FOREIGN, /* only if it is one of ours: others have none */
};

/* Read the file: its first bytes identify the format, or else its name does.
 * ERR_INPUT, ERR_UNSUPPORTED, ERR_NOMEM as caffe_model_parse and safetensors_parse */
int weights_file_open(const char *path, enum weights_trust trust, struct weights_file *out,
                      struct err *err);
/* Is it a safetensors file of ours, which can be read by range? Reads its first bytes. ERR_INPUT */
int weights_file_is_ours(const char *path, bool *ours, struct err *err);
/* Is it of Caffe: a caffemodel, or converted from one? One that is called .caffemodel or .onnx is
 * not opened; of one of ours the header is read, others are read whole. As weights_file_open */
int weights_file_of_caffe(const char *path, bool *out, struct err *err);
void weights_file_close(struct weights_file *file);

/* Does the path end in ".EXTENSION"? */
bool weights_file_called(const char *path, const char *extension);

#endif
