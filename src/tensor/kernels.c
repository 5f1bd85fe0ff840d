#include "tensor/kernels.h"

#include "base/fault.h"
#include "tensor/isa.h"
#include "tensor/kernels_common.h"

#include <omp.h>

void kernels_reorder(const struct shape *shape, enum layout from, const float *x, enum layout to,
                     float *y)
{
    PL_ASSERT(from != to);
    struct image s = image_of(shape);
    size_t P = s.H * s.W, size = s.C * P;
    size_t R = from == LAYOUT_PLAIN ? s.C : P;
#pragma omp parallel for schedule(static) if (s.N * size >= PARALLEL_MIN)
    for (size_t n = 0; n < s.N; n++)
        if (size)
            transpose(R, size / R, x + n * size, y + n * size);
}

void kernels_set_threads(int threads)
{
    PL_ASSERT(threads > 0);
    omp_set_num_threads(threads);
}

const char *kernels_isa(void)
{
    return isa_name(isa_best());
}
