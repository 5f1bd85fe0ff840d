/* Code that the kernel sets share: the geometry of images and pooling windows, and the ops that no
 * library does better than a plain loop. Private to the sets. */
#ifndef PL_TENSOR_KERNELS_COMMON_H
#define PL_TENSOR_KERNELS_COMMON_H

#include "base/minmax.h"
#include "tensor/kernels.h"

/* Fewer elements than this are not worth waking a second thread. */
enum { PARALLEL_MIN = 16 * 1024 };

struct image {
    size_t N, C, H, W;
};

/* The dimensions of a 4-D shape; anything else is the caller's mistake. */
struct image image_of(const struct shape *shape);

/* One output pixel's view of the image: rows h0..h1 and columns w0..w1, the ends excluded, padding
 * left out. `area` counts the padding within the padded image: Caffe's divisor of an average. */
struct window {
    size_t h0, h1, w0, w1, area;
};

static inline struct window window_at(const struct pool_spec *spec, size_t oh, size_t ow)
{
    size_t H = spec->x.dim[2], W = spec->x.dim[3];
    size_t pad_h = spec->pad_h, pad_w = spec->pad_w;
    /* Counted from the padded image's corner, so that nothing is negative. */
    size_t h0 = oh * spec->stride_h, h1 = min_size(h0 + spec->kernel_h, H + 2 * pad_h);
    size_t w0 = ow * spec->stride_w, w1 = min_size(w0 + spec->kernel_w, W + 2 * pad_w);
    return (struct window){
        .h0 = h0 > pad_h ? h0 - pad_h : 0,
        .h1 = min_size(h1 - pad_h, H),
        .w0 = w0 > pad_w ? w0 - pad_w : 0,
        .w1 = min_size(w1 - pad_w, W),
        .area = (h1 - h0) * (w1 - w0),
    };
}

/* ERR_UNSUPPORTED when some window would hold no pixel at all. */
int pool_check(const struct pool_spec *spec, struct err *err);

/* Assert that the shapes of a spec fit one another. */
void conv_check(const struct conv_spec *spec);
void lrn_check(const struct lrn_spec *spec);
void inner_check(const struct inner_spec *spec, enum layout x_layout);

/* Whether x has its I values in another order than NCHW. */
bool inner_needs_reorder(const struct inner_spec *spec, enum layout x_layout);

/* The convolution whose backward pass a deconvolution is: from y to x, without the bias. */
struct conv_spec conv_turned(const struct conv_spec *spec);

/* y (C, R) = transpose of x (R, C). */
void transpose(size_t R, size_t C, const float *x, float *y);

/* y[i] += x[i]. */
void add_floats(size_t n, const float *x, float *y);

/* db[o] += sum over n of dy[n][o], in the order of n. */
void column_sums_add(size_t N, size_t O, const float *dy, float *db);

int plan_nomem(const char *what, struct err *err);

int plan_relu(const struct relu_spec *spec, enum layout layout, bool training, struct arena *arena,
              struct op **op, struct err *err);
int plan_scale(const struct scale_spec *spec, enum layout layout, bool training,
               struct arena *arena, struct op **op, struct err *err);
struct softmax_loops;
int plan_softmax(const struct shape *x, const struct softmax_loops *loops, struct arena *arena,
                 struct op **op, struct err *err);

#endif
