/* Which of the tables compiled from vec_loops.c this processor can run. */
#include "tensor/vec_kernels.h"

#include "base/fault.h"
#include "tensor/isa.h"

#ifdef VEC_KERNELS_X86 /* the build compiled these, too */
extern const struct vec_kernels vec_kernels_avx2, vec_kernels_avx512;
#endif

/* In the order of enum isa. */
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
    return isa_runs((enum isa)i);
}

const struct vec_kernels *vec_kernels_best(void)
{
    size_t i = (size_t)isa_best();
    return tables[i < TABLES ? i : TABLES - 1];
}
