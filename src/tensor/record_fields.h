/* The fields of a record: named tensors, whose values lie one after another in the record's floats.
 * Integers are floats, too: they are exact up to 2^24. */
#ifndef PL_TENSOR_RECORD_FIELDS_H
#define PL_TENSOR_RECORD_FIELDS_H

#include "tensor/shape.h"

enum { FIELDS_MAX = 16, FIELD_NAME_MAX = 64 };

struct field {
    char name[FIELD_NAME_MAX];
    struct shape shape; /* of a record: without the batch */
    size_t from;        /* in the record's floats */
    bool is_integer;    /* never rounded to bf16 */
};

/* n 0: a record is one tensor without a name. */
struct fields {
    size_t n;
    struct field field[FIELDS_MAX];
};

/* The same names and shapes, in the same order. */
bool fields_equal(const struct fields *a, const struct fields *b);

#endif
