/* See relu_loops.h. */
#include "tensor/relu_loops.h"

#include <stdint.h>

typedef int32_t ints __attribute__((vector_size(LANES * sizeof(int32_t))));

static void run(size_t n, float slope, const float *x, const float *v, float *y)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        floats at = floats_load(v + i);
        ints above = floats_load(x + i) > 0, bent = (ints)(slope * at);
        floats_store(y + i, (floats)(((ints)at & above) | (bent & ~above)));
    }
    for (; i < n; i++)
        y[i] = x[i] > 0 ? v[i] : slope * v[i];
}

const struct relu_loops ISA_NAME(relu_loops) = {.run = run};
