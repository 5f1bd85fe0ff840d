/* The element types of arrays of activations. Everything else (parameters, their gradients,
 * statistics, losses) is float. */
#ifndef PL_TENSOR_DTYPE_H
#define PL_TENSOR_DTYPE_H

#include <stddef.h>
#include <stdint.h>

/* The upper half of a float: its range, with 8 bits of precision. */
typedef uint16_t bf16;

enum dtype { DTYPE_F32, DTYPE_BF16 };

static inline size_t dtype_size(enum dtype type)
{
    return type == DTYPE_BF16 ? sizeof(bf16) : sizeof(float);
}

/* Where element i of the array is. */
static inline void *dtype_at(enum dtype type, void *array, size_t i)
{
    return (char *)array + i * dtype_size(type);
}

static inline const void *dtype_in(enum dtype type, const void *array, size_t i)
{
    return (const char *)array + i * dtype_size(type);
}

/* "f32", "bf16" */
static inline const char *dtype_name(enum dtype type)
{
    return type == DTYPE_BF16 ? "bf16" : "f32";
}

#endif
