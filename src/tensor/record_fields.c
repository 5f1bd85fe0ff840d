#include "tensor/record_fields.h"

#include <string.h>

bool fields_equal(const struct fields *a, const struct fields *b)
{
    bool equal = a->n == b->n;
    for (size_t i = 0; equal && i < a->n; i++)
        equal = strcmp(a->field[i].name, b->field[i].name) == 0 &&
                shape_equal(&a->field[i].shape, &b->field[i].shape);
    return equal;
}
