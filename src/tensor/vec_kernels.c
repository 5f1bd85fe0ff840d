/* Which of the tables compiled from vec_loops.c this processor can run. */
#include "tensor/vec_kernels.h"

#include "base/fault.h"

#ifdef VEC_KERNELS_X86 /* the build compiled these, too */
extern const struct vec_kernels vec_kernels_avx2, vec_kernels_avx512;
#endif

static const struct vec_kernels *const tables[] = {
    &vec_kernels_base,
#ifdef VEC_KERNELS_X86
    &vec_kernels_avx2,
    &vec_kernels_avx512,
#endif
};

enum { TABLES = sizeof tables / sizeof *tables };

const struct vec_kernels *vec_kernels_at(size_t i)
{
    return i < TABLES ? tables[i] : NULL;
}

bool vec_kernels_runs(size_t i)
{
    PL_ASSERT(i < TABLES);
    switch (i) {
#ifdef VEC_KERNELS_X86
    case 1: return __builtin_cpu_supports("avx2");
    case 2: return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
#endif
    default: return true;
    }
}

const struct vec_kernels *vec_kernels_best(void)
{
    size_t i = TABLES - 1;
    while (!vec_kernels_runs(i))
        i--;
    return tables[i];
}
