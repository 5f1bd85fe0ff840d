/* The segment table: the layout of a flat vector x (D1). One segment is one blob of learnable
 * parameters (or, in s, of state). A segment begins at a multiple of SEGMENT_ALIGN floats; the
 * padding between is zero, belongs to no segment, and is sent with the vector. */
#ifndef PL_TENSOR_SEGMENT_H
#define PL_TENSOR_SEGMENT_H

#include "base/arena.h"
#include "tensor/shape.h"

#include <stdint.h>

enum { SEGMENT_ALIGN = 16, SEGMENT_NAME_MAX = 128 };

struct segment {
    size_t offset, len; /* floats */
    float lr_mult, decay_mult;
    uint32_t flags; /* none defined yet: 0 */
    size_t units;  /* outputs that slices of the model share out, with equally many floats each, one
                       after another (model_slice.h); 0: it is not cut into slices */
    size_t blocks; /* so often they follow, once for each gate of recurrent units, or each row of a
                      matrix whose columns they are; 0 is 1 */
    struct shape shape;
    char name[SEGMENT_NAME_MAX]; /* "conv1.0": layer, index of the blob */
};

struct segments {
    struct segment *at; /* sorted by offset */
    size_t count, cap;
    size_t total; /* floats of the whole vector, final padding included */
};

/* Append a segment, returned valid until the next is added; the table's memory is the arena's. NULL
 * when memory runs out; and, as a guard against hostile nets, when the shape has no elements or
 * more than fit, or the name is not shorter than SEGMENT_NAME_MAX: a caller that must distinguish
 * these checks first. A table starts as {0}. */
struct segment *segments_add(struct segments *table, struct arena *arena, const char *name,
                             const struct shape *shape, float lr_mult, float decay_mult);

/* The segment of that name, or NULL. */
const struct segment *segments_find(const struct segments *table, const char *name);

/* Same names, offsets and lengths: two vectors of these tables can be exchanged. */
bool segments_match(const struct segments *a, const struct segments *b);

/* A hash over names, offsets and lengths; peers compare it. */
uint64_t segments_hash(const struct segments *table);

#endif
