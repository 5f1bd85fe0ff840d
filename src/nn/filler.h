/* Initial values of parameters, by Caffe's fillers. Each element is a pure function of (seed,
 * parameter, element), rounded to float, so that any range can be filled anywhere; but for
 * positive_unitball, where it is one of (seed, parameter) and the elements of its row. */
#ifndef PL_NN_FILLER_H
#define PL_NN_FILLER_H

#include "base/err.h"
#include "job/caffe.pb-c.h"
#include "tensor/shape.h"

#include <stdint.h>

enum filler_kind {
    FILLER_CONSTANT,
    FILLER_UNIFORM,
    FILLER_GAUSSIAN,
    FILLER_UNITBALL,
    FILLER_BILINEAR
};

/* Constant: a. Uniform: in [a, b). Gaussian: mean a, standard deviation b, and with probability
 * `drop` 0 instead. Unitball: in (0, 1], each `row` elements divided by their sum. Bilinear:
 * (1 − |x/a − b|)(1 − |y/a − b|) at column x and line y of each square of `row` columns. */
struct filler {
    enum filler_kind kind;
    double a, b, drop;
    size_t row;
};

/* The filler of parameters of that shape; NULL is Caffe's default, zero. xavier and msra take the
 * fan from the shape (O, ..): in = count / O, out = count / dim 1 (count, when there is none).
 *
 * ERR_UNSUPPORTED  type or field; the message lists the types there are
 * ERR_INPUT        a value out of range, or a shape that the type does not fill */
int filler_read(const Caffe__FillerParameter *param, const struct shape *shape, struct filler *out,
                struct err *err);

/* Elements `first` .. first + n - 1 of a parameter; both numbers are below 2^39. */
void filler_fill(const struct filler *filler, uint64_t seed, size_t parameter, size_t first,
                 float *x, size_t n);

#endif
