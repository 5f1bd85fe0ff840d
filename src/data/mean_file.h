/* A mean image as Caffe's compute_image_mean leaves it: a BlobProto in protobuf's wire form
 * (`mean.binaryproto`), of shape (C, H, W) or (1, C, H, W). */
#ifndef PL_DATA_MEAN_FILE_H
#define PL_DATA_MEAN_FILE_H

#include "base/err.h"
#include "tensor/shape.h"

#include <stdint.h>

struct mean_file {
    float *mean; /* (C, H, W), owned: free */
    struct shape shape;
    uint64_t hash; /* of the file's bytes */
};

/* ERR_INPUT  missing, no BlobProto, shape and values do not fit together, a value that is not
 *            finite, more than 2^26 bytes
 * ERR_NOMEM */
int mean_file_read(const char *path, struct mean_file *out, struct err *err);

#endif
