/* Caffe's ConvolutionParameter, which convolutions and deconvolutions read alike. */
#ifndef PL_NN_CONV_FIELDS_H
#define PL_NN_CONV_FIELDS_H

#include "nn/layer.h"

/* The extent of a kernel with the pixels between its taps: E of struct conv_spec. */
static inline size_t conv_span(size_t kernel, size_t dilation)
{
    return dilation * (kernel - 1) + 1;
}

/* Check the links and read every field: all of `spec` except y, and the number of outputs. The
 * groups must divide outputs and inputs. `what` names the reader: "a convolution". */
int conv_fields_read(const struct layer *layer, const char *what, struct conv_spec *spec,
                     size_t *outputs, struct err *err);

/* Declare weights (rows, columns/groups, KH, KW) and bias, and count the products: each pixel of
 * `image`, which has `rows` channels, meets its row of the weights; in a slice, of its own rows. */
int conv_fields_declare(struct layer *layer, const struct setup *setup,
                        const struct conv_spec *spec, const struct shape *image, size_t columns,
                        struct err *err);

#endif
