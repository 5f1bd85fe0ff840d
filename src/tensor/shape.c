#include "tensor/shape.h"

#include "base/fault.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

size_t shape_count(const struct shape *shape)
{
    return shape_count_from(shape, 0);
}

size_t shape_count_from(const struct shape *shape, size_t axis)
{
    PL_ASSERT(shape->n <= SHAPE_DIMS_MAX && axis <= shape->n);
    size_t count = 1;
    /* Overflow and a zero dimension give the same result, so their order does not matter.
     */
    for (size_t i = axis; i < shape->n; i++)
        if (__builtin_mul_overflow(count, shape->dim[i], &count))
            return 0;
    return count <= SIZE_MAX / sizeof(float) ? count : 0;
}

bool shape_equal(const struct shape *a, const struct shape *b)
{
    PL_ASSERT(a->n <= SHAPE_DIMS_MAX);
    return a->n == b->n && memcmp(a->dim, b->dim, a->n * sizeof a->dim[0]) == 0;
}

char *shape_text(const struct shape *shape, char *out, size_t size)
{
    PL_ASSERT(size > 0 && shape->n <= SHAPE_DIMS_MAX);
    snprintf(out, size, "%s", shape->n ? "" : "scalar");
    size_t used = 0;
    for (size_t i = 0; i < shape->n && used < size; i++) {
        int n = snprintf(out + used, size - used, "%s%zu", i ? "x" : "", shape->dim[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    return out;
}
