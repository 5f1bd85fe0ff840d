/* The part of a blob's axis 1 that a slice of a model has: outputs, feature maps, or groups of
 * them. Rows of the whole blob are its records, or where channels lie side by side its pixels; of
 * each a slice has one range of columns. The records of a batch are columns of one row. */
#ifndef PL_TENSOR_COLUMNS_H
#define PL_TENSOR_COLUMNS_H

#include "tensor/vec.h"

struct columns {
    size_t rows, units, each; /* a row of all has `each` floats of each unit */
    struct range own;         /* units of the part */
};

/* Copy the part's rows into those of the whole, or out of them. */
void columns_put(const struct columns *c, const float *part, float *whole);
void columns_get(const struct columns *c, const float *whole, float *part);

/* Floats of the part. */
static inline size_t columns_floats(const struct columns *c)
{
    return c->rows * c->own.len * c->each;
}

#endif
