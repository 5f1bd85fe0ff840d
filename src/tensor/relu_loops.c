/* See relu_loops.h. */
#include "tensor/relu_loops.h"

#include <stdint.h>

typedef int32_t ints __attribute__((vector_size(LANES * sizeof(int32_t))));

static inline floats bend_vector(float slope, floats x, floats v)
{
    ints above = x > 0, bent = (ints)(slope * v);
    return (floats)(((ints)v & above) | (bent & ~above));
}

static void run_relu(size_t n, float slope, const void *of, const void *from, void *to)
{
    const value *x = of, *v = from;
    value *y = to;
    size_t i = 0, rest = n % LANES;
    for (; i + LANES <= n; i += LANES)
        value_store(y + i, bend_vector(slope, value_load(x + i), value_load(v + i)));
    if (rest > 0)
        value_store_part(
            y + i, bend_vector(slope, value_load_part(x + i, rest), value_load_part(v + i, rest)),
            rest);
}

const struct relu_loops VALUES_NAME(relu_loops) = {.run = run_relu};
