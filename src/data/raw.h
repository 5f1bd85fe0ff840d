/* A record as its source holds it, before any map; and the memory that reading one takes. */
#ifndef PL_DATA_RAW_H
#define PL_DATA_RAW_H

#include "tensor/shape.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SIDE_MAX = 16384,     /* pixels of a picture, along each side */
    LABEL_MAX = 1u << 20, /* labels are below it: memory is taken for so many classes */
};
/* Values of one record: a bound on what a few bytes of a hostile file can make us allocate. */
static const size_t RECORD_VALUES_MAX = (size_t)1 << 28;

enum raw_form {
    RAW_PLANES,      /* bytes, (C, H, W) */
    RAW_INTERLEAVED, /* bytes, (H, W, C), as pictures are decoded */
    RAW_FLOATS,      /* floats, (C, H, W) */
};

/* How values are stored. */
enum value_type {
    VALUE_U8,
    VALUE_F32,
    VALUE_I16,
    VALUE_U16,
    VALUE_I32,
    VALUE_U32,
    VALUE_I64,
    VALUE_BF16, /* the upper half of a float */
};

/* Integers are exact in a float up to this. */
enum { INTEGER_MAX = 1 << 24 };

size_t value_bytes(enum value_type type);
bool value_is_integer(enum value_type type); /* wider than a byte */
bool value_is_plain(enum value_type type);   /* as struct raw has them: bytes or floats */

/* `n` values of the host's byte order, at any address, as floats, which are the same numbers.
 * Returns n, or the first integer that is not within ±INTEGER_MAX. */
size_t values_to_floats(enum value_type type, const void *from, size_t n, float *to);

struct raw {
    const void *at; /* valid until the scratch it was read with is used again */
    enum raw_form form;
    size_t C, H, W;
    unsigned shrink; /* the values are of the picture at 1 / 2^shrink of this height and width */
};

enum { SHRINK_MAX = 3 };

/* So many pixels along a side of n are left of it. */
static inline size_t shrunk_side(size_t n, unsigned shrink)
{
    return (n + ((size_t)1 << shrink) - 1) >> shrink;
}

/* The part of a record of H x W that its reader uses: of the picture at 1 / 2^shrink of its size,
 * the rows [top, bottom) and columns [left, right). A decoder of JPEG shrinks a picture of that
 * size, and may leave other values undefined. All other sources return the whole record. */
struct raw_want {
    size_t H, W;
    unsigned shrink;
    size_t top, bottom, left, right;
};

/* All values as floats, (C, H, W), of a record that is not shrunk. */
void raw_floats(const struct raw *raw, float *x);

/* Memory that grows to the size of the largest record and stays: each reader has one of its own,
 * zero at first. */
enum { DEPTH_MAX = 4 }; /* sets made of others, within each other */

enum scratch_use {
    SCRATCH_FILE,
    SCRATCH_PIXELS,
    SCRATCH_ROWS,
    SCRATCH_RESIZE,
    SCRATCH_MADE, /* of a record that is made of others, by its depth (struct source) */
    SCRATCH_USES = SCRATCH_MADE + DEPTH_MAX
};

/* How maps draw: in training by (seed, epoch); NULL: without random choices, for evaluation. */
struct dataset_draw {
    uint64_t seed, epoch;
};

struct scratch {
    struct {
        void *at;
        size_t bytes;
    } piece[SCRATCH_USES];
    /* Of the read under way, set by its caller: */
    const struct dataset_draw *draw;
    const struct raw_want *want; /* NULL: the whole record as it is */
};

/* At least so many bytes for that use, in place of what was given for it before. NULL: no memory.
 */
void *scratch_get(struct scratch *scratch, enum scratch_use use, size_t bytes);
void scratch_release(struct scratch *scratch);

#endif
