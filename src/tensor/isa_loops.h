/* For files of loops that cmake/layers.cmake compiles once for each instruction set
 * (gradient_loops): names and vectors. Such a file keeps everything static but one table,
 *
 *     const struct foo_loops ISA_NAME(foo_loops) = { .. };
 *
 * and who calls it declares foo_loops_plain and, by ISA_DECLARE, those of the wider sets. A vector
 * `floats` is as wide as a register of the set; arithmetic on it is the language's own (a
 * vector extension of gcc and clang), so that what has no table of its own is vectorised, too. */
#ifndef PL_TENSOR_ISA_LOOPS_H
#define PL_TENSOR_ISA_LOOPS_H

#include "tensor/isa.h"

#ifndef ISA_SUFFIX /* compiled plainly */
#define ISA_SUFFIX plain
#endif
#define ISA_PASTE_(name, suffix) name##_##suffix
#define ISA_PASTE(name, suffix)  ISA_PASTE_(name, suffix)
#define ISA_NAME(name)           ISA_PASTE(name, ISA_SUFFIX)

#if defined __AVX512F__
enum { LANES = 16 };
#elif defined __AVX2__
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif

typedef float floats __attribute__((vector_size(LANES * sizeof(float))));
/* The same at any address. */
typedef float floats_anywhere __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

static inline floats floats_load(const float *p)
{
    return *(const floats_anywhere *)(const void *)p;
}

static inline void floats_store(float *p, floats v)
{
    *(floats_anywhere *)(void *)p = v;
}

/* Declarations, and the pick of the widest table that runs. */
#ifdef ISA_TABLES_X86
#define ISA_DECLARE(type, name) extern const type name##_plain, name##_avx2, name##_avx512
#define ISA_PICK(name)                         \
    (isa_best() == ISA_AVX512 ? &name##_avx512 \
     : isa_best() == ISA_AVX2 ? &name##_avx2   \
                              : &name##_plain)
#else
#define ISA_DECLARE(type, name) extern const type name##_plain
#define ISA_PICK(name)          (&name##_plain)
#endif

#endif
