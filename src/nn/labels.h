/* The second bottom of losses and accuracies: class numbers as the data layer wrote them. */
#ifndef PL_NN_LABELS_H
#define PL_NN_LABELS_H

#include "nn/layer.h"

/* ERR_UNSUPPORTED unless bottom 1 comes straight from the data layer; ERR_INPUT when bottom 0 has
 * more classes than a label can count (2^24, exact in a float). */
int labels_check(const struct layer *layer, struct err *err);

static inline size_t labels_at(const struct layer *layer, size_t n)
{
    return (size_t)layer->bottom[1].blob->at[n];
}

#endif
