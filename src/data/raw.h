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

/* How values are stored, where they are no bytes or floats already. */
enum value_type { VALUE_U8, VALUE_F32, VALUE_I16, VALUE_U16, VALUE_I32, VALUE_U32, VALUE_I64 };

/* Integers are exact in a float up to this. */
enum { INTEGER_MAX = 1 << 24 };

size_t value_bytes(enum value_type type);
bool value_is_integer(enum value_type type); /* wider than a byte */

/* `n` integers of the host's byte order, at any address, as floats. Returns n, or the first that is
 * not within ±INTEGER_MAX. */
size_t values_from_integers(enum value_type type, const void *from, size_t n, float *to);

struct raw {
    const void *at; /* valid until the scratch it was read with is used again */
    enum raw_form form;
    size_t C, H, W;
};

/* All values as floats, (C, H, W). */
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
    const struct dataset_draw *draw; /* of the read under way, set by its caller */
};

/* At least so many bytes for that use, in place of what was given for it before. NULL: no memory.
 */
void *scratch_get(struct scratch *scratch, enum scratch_use use, size_t bytes);
void scratch_release(struct scratch *scratch);

#endif
