/* Winograd's convolutions of NHWC images with canonical OIHW weights, in all three directions.
 * Images are floats, or bf16, widened as they are read and rounded as they are written: weights and
 * all that lies between are floats.
 *
 * 4 × 4 pixels of output cost 36 products for each pair of channels where the 144 of 3 × 3 filters
 * would do, 64 for the 400 of 5 × 5, and some sums for each channel. It pays from 16 channels on.
 *
 *     Lavin, Gray: Fast Algorithms for Convolutional Neural Networks, 2016
 *     Barabasz, Anderson, Soodhalter, Gregg: Error Analysis and Improving the Accuracy of Winograd
 *     Convolution for Deep Neural Networks, 2020
 *
 * Results lie within 1e-4 of the exact ones, in parts of the largest, and mostly within 1e-5,
 * before images of bf16 are rounded. They depend on the instruction set and, dw and db, on the
 * number of threads; never on timing. A tile that holds an infinity or a NaN becomes NaN or
 * infinite as a whole.
 *
 * Scratch (*bytes) grows with channels, to about 5 MB and 3 MB a thread at 256 to 512 of them. */
#ifndef PL_TENSOR_WINOGRAD_H
#define PL_TENSOR_WINOGRAD_H

#include "tensor/kernels.h"

struct winograd;

/* Whether winograd_plan takes it: filters 3 × 3 or 5 × 5, of step 1, padding less than they, and
 * at least 8 channels on both sides. */
bool winograd_fits(const struct conv_spec *spec);

/* Plan for batches of up to spec->x.dim[0] records, for what fits; memory is the arena's, *bytes of
 * it. For the threads of the calling thread (kernels_set_threads). Without `training`, forward
 * alone may be called. ERR_NOMEM */
int winograd_plan(const struct conv_spec *spec, bool training, struct arena *arena,
                  struct winograd **out, size_t *bytes, struct err *err);

/* N records, at most as many as were planned for; arrays may lie anywhere, and none may overlap.
 * x, y, dy and dx are of spec->dtype.
 *
 * y = x * w + b; b may be NULL. */
void winograd_forward(const struct winograd *winograd, size_t N, const void *x, const float *w,
                      const float *b, void *y);

/* dx is overwritten. */
void winograd_backward_data(const struct winograd *winograd, size_t N, const void *dy,
                            const float *w, void *dx);

/* dw and db are added to; db may be NULL. */
void winograd_backward_weights(const struct winograd *winograd, size_t N, const void *x,
                               const void *dy, float *dw, float *db);

#endif
