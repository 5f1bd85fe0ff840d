#include "tensor/kernels.h"

#include "base/fault.h"
#include "tensor/isa.h"
#include "tensor/kernels_common.h"

#include <omp.h>

enum layout layout_in_blocks(const struct shape *shape)
{
    size_t C = shape->dim[1];
    PL_ASSERT(shape->n == 4);
    return C > BLOCK_CHANNELS && C % BLOCK_CHANNELS == 0 && shape_count_from(shape, 2) > 1
               ? LAYOUT_BLOCKS
               : LAYOUT_NHWC;
}

struct shape shape_of_blocks(const struct shape *shape)
{
    struct shape s = *shape;
    PL_ASSERT(s.n == 4 && s.dim[1] % BLOCK_CHANNELS == 0);
    s.dim[0] *= s.dim[1] / BLOCK_CHANNELS;
    s.dim[1] = BLOCK_CHANNELS;
    return s;
}

void kernels_reorder(const struct shape *shape, enum layout from, const float *x, enum layout to,
                     float *y)
{
    PL_ASSERT((from == LAYOUT_PLAIN) != (to == LAYOUT_PLAIN));
    bool blocks = from == LAYOUT_BLOCKS || to == LAYOUT_BLOCKS;
    const struct shape turned = blocks ? shape_of_blocks(shape) : *shape;
    struct image s = image_of(&turned);
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

int kernels_threads(void)
{
    return omp_get_max_threads();
}

const char *kernels_isa(void)
{
    return isa_name(isa_best());
}
