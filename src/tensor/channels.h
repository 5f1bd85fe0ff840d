/* Sums and products by channel, over records of C channels of S pixels, for normalising and
 * scaling. All kernel sets share this implementation, since memory bounds its speed. The bits are
 * the same for any number of threads. */
#ifndef PL_TENSOR_CHANNELS_H
#define PL_TENSOR_CHANNELS_H

#include "tensor/kernels.h"

struct channels {
    size_t C, S;
    bool inner;   /* channels lie next to one another, not pixels */
    size_t width; /* channels of a pixel that are stored together */
};

/* Of x, (N, C, ..), as it lies in memory. */
struct channels channels_of(const struct shape *x, enum layout layout);

/* Over n records, for each channel: sum[c] = Σ a, and sum[C + c] = Σ a·b. `part`: room for n times
 * as many. */
void channels_sum(const struct channels *ch, size_t n, const float *a, const float *b, double *part,
                  double *sum);

/* One y an element of n records: y = p·x + q·z + b, where p, q, b are its channel's. z and q may be
 * NULL together, and b. y may be x, or z. */
struct channels_terms {
    const float *p, *x, *q, *z, *b;
};
void channels_combine(const struct channels *ch, size_t n, const struct channels_terms *terms,
                      float *y);

#endif
