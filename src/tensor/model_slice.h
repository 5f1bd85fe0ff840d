/* Slices of a model (SparkDML §2.2: a weight matrix is split by columns, the output neurons): each
 * segment of weights is cut by its outputs, and slice f of F has part f of each segment, in a
 * vector of its own with the same segments in the same order. Weights are (outputs, ..), so that a
 * part is one range of the segment; or of recurrent units, (gates, units, ..), one of each gate's
 * block; or of an Embed, (numbers, outputs), one of each row. */
#ifndef PL_TENSOR_MODEL_SLICE_H
#define PL_TENSOR_MODEL_SLICE_H

#include "tensor/vec.h"

/* No slice, but all of the model that others have slices of. */
#define SLICE_ALL SIZE_MAX

struct model_slice {
    size_t index; /* SLICE_ALL, or below the count */
    size_t count; /* 0 or 1: the model is not cut */
};

static inline bool slice_is_part(const struct model_slice *slice)
{
    return slice->count > 1 && slice->index != SLICE_ALL;
}

/* The slice's outputs of a layer that has so many; at least one where there are as many as slices.
 */
struct range slice_units(const struct model_slice *slice, size_t units);

/* The number of a segment's blocks. */
static inline size_t slice_blocks(const struct segment *whole)
{
    return whole->blocks > 1 ? whole->blocks : 1;
}

/* The slice's floats of a block of a segment of the whole model, counted from the segment's
 * beginning. Of all blocks there are equally many, one after another in the slice's segment. */
struct range slice_of_block(const struct model_slice *slice, const struct segment *whole,
                            size_t block);

/* Where float `at` of a segment of the whole model is among `count` slices; of a segment that is
 * not cut, on the first. */
struct slice_place {
    size_t slice;
    size_t at;  /* in the slice's segment; */
    size_t run; /* so many floats from there on follow one another in both */
};
struct slice_place slice_find(size_t count, const struct segment *whole, size_t at);

/* Where the slice's next segment begins in its vector, behind this one at `at`. */
size_t slice_next_segment(const struct model_slice *slice, const struct segment *whole, size_t at);

/* Floats of the slice's vector. `whole` is the table of the whole model, here and below. */
size_t slice_total(const struct model_slice *slice, const struct segments *whole);

/* Copy the slice's floats into a vector of the whole model. */
void slice_put(const struct model_slice *slice, const struct segments *whole, const float *part,
               float *all);

#endif
