/* Normalising by channel, over records of C channels of S pixels, with scaling, adding another
 * image and rectifying in one pass over memory.
 *
 *     y = max(0, a·x' + b + z)    with x' = x − k, and a, b, k one a channel
 *
 * k is a value near the channel's mean, so that x' loses few digits. One implementation for all
 * kernel sets, since memory bounds its speed. Sums are taken over blocks of records, which the
 * shape alone decides, and then block by block, so that the bits are the same for any number of
 * threads. */
#ifndef PL_TENSOR_NORM_H
#define PL_TENSOR_NORM_H

#include "tensor/kernels.h"

struct norm {
    size_t N, C, S;
    enum dtype dtype; /* of images; terms are floats, sums double */
    bool inner;       /* channels lie next to one another, not pixels: */
    size_t width;     /* this many, before the next pixel's */
    size_t period;    /* elements after which terms repeat in a run */
    size_t block;     /* records summed together; divides SLICE_RECORDS */
    double *part;     /* of each block and each `width` of channels: two sums for each element of
                       * the period */
    double *sum;      /* of the last operation, one a channel: sum[c], sum[C + c] */
    float *k, *a, *b; /* set by the caller (k: or by norm_moments), one a channel */
    float *p, *q, *c; /* as are these, for norm_slopes */
    float *wide;      /* terms as a run needs them */
    size_t bytes;     /* of all this */
};

/* For x, (N, C, ..), as it lies in memory, and images like it; `sums`: there will be moments or
 * sums. Memory is the arena's; terms are 0. ERR_NOMEM */
int norm_init(struct norm *norm, const struct shape *x, enum layout layout, enum dtype dtype,
              bool sums, struct arena *arena);

/* Over n records: μ to sum[c], σ² to sum[C + c], and a k. One pass; the relative error of σ² is
 * about 1e-7 however large |μ|/σ is. */
void norm_moments(struct norm *norm, size_t n, const void *x);

/* y over all N records; z may be NULL. y may be x, or z. */
void norm_apply(struct norm *norm, const void *x, const void *z, bool relu, void *y);

/* Where a gradient passes: everywhere, where the top is above 0, or where a·x' + b is, which is the
 * same where nothing was added and spares the reading of y. */
enum norm_mask { NORM_MASK_NONE, NORM_MASK_TOP, NORM_MASK_SELF };

/* g = dy, or dy + dy2, or 0 where the mask is 0. An unused field may be NULL. */
struct norm_flow {
    enum norm_mask mask;
    const void *x, *y, *dy, *dy2;
};

/* Over n records: Σ g to sum[c], Σ g·x' to sum[C + c]; and g itself to `copy`, unless that is NULL,
 * which masks NONE and TOP allow. It may be dy. */
void norm_sums(struct norm *norm, size_t n, const struct norm_flow *flow, void *copy);

/* The share of records [first, first + count) in the norm_sums before, which was over n; both
 * bounds are multiples of SLICE_RECORDS, or the end. */
void norm_sums_of(const struct norm *norm, size_t n, size_t first, size_t count, double *sum);

/* Over n records: dx = p·g + q·x' + c, or just p·g. It may be dy. */
void norm_slopes(struct norm *norm, size_t n, const struct norm_flow *flow, bool centred, void *dx);

#endif
