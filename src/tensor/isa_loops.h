/* For files of loops that cmake/layers.cmake compiles once for each instruction set
 * (gradient_loops): names and vectors. Such a file keeps everything static but one table,
 *
 *     const struct foo_loops ISA_NAME(foo_loops) = { .. };
 *
 * and its caller declares foo_loops_plain and, by ISA_DECLARE, those of the wider sets. A vector
 * `floats` is as wide as a register of the set; arithmetic on it is the language's own (a
 * vector extension of gcc and clang), so that what has no table of its own is vectorised, too. */
#ifndef PL_TENSOR_ISA_LOOPS_H
#define PL_TENSOR_ISA_LOOPS_H

#include "tensor/dtype.h"
#include "tensor/isa.h"

#if defined __AVX512F__
#include <immintrin.h>
#endif

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

/* ---- bf16 (bf16.h) ---- */

/* For AVX-512 by intrinsics, in the same steps: gcc 12 widens in two halves, and narrows through a
 * table. AVX512_BF16 rounds in one instruction, but not every AVX-512 processor has it, and it
 * makes zeros of denormals: bits would depend on the processor, to save 0 to 4 % of a Winograd
 * convolution. */
#if defined __AVX512F__
static inline floats bf16_load(const bf16 *p)
{
    return (floats)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)),
                                     16);
}

static inline void bf16_store(bf16 *p, floats v)
{
    const __m512i most = _mm512_set1_epi32(0x7fff), quiet = _mm512_set1_epi32(0x400000);
    __m512i bits = (__m512i)v, half = _mm512_srli_epi32(bits, 16);
    __m512i odd = _mm512_and_si512(half, _mm512_set1_epi32(1));
    __m512i nearest = _mm512_add_epi32(_mm512_add_epi32(bits, most), odd);
    __mmask16 none = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    nearest = _mm512_mask_or_epi32(nearest, none, bits, quiet);
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(nearest, 16)));
}
#else
typedef uint32_t isa_bits __attribute__((vector_size(LANES * sizeof(uint32_t))));
typedef bf16 isa_halves __attribute__((vector_size(LANES * sizeof(bf16))));
typedef bf16 isa_halves_anywhere __attribute__((vector_size(LANES * sizeof(bf16)), aligned(2)));

static inline floats bf16_load(const bf16 *p)
{
    isa_halves v = *(const isa_halves_anywhere *)(const void *)p;
    return (floats)(__builtin_convertvector(v, isa_bits) << 16);
}

static inline void bf16_store(bf16 *p, floats v)
{
    isa_bits bits = (isa_bits)v, none = (isa_bits)(v != v);
    isa_bits nearest = bits + 0x7fff + ((bits >> 16) & 1), quiet = bits | 0x400000;
    bits = ((quiet & none) | (nearest & ~none)) >> 16;
    *(isa_halves_anywhere *)(void *)p = __builtin_convertvector(bits, isa_halves);
}
#endif

/* ---- values of either type ---- */

/* A file of loops that is compiled once more with ISA_VALUES_BF16 (values_loops) reads and writes
 * `value`s, its tables by VALUES_NAME: foo_loops and foo_loops_bf16. */
#ifdef ISA_VALUES_BF16
typedef bf16 value;
#define VALUES_NAME(name) ISA_NAME(name##_bf16)
#else
typedef float value;
#define VALUES_NAME(name) ISA_NAME(name)
#endif

static inline floats value_load(const value *p)
{
#ifdef ISA_VALUES_BF16
    return bf16_load(p);
#else
    return floats_load(p);
#endif
}

static inline void value_store(value *p, floats v)
{
#ifdef ISA_VALUES_BF16
    bf16_store(p, v);
#else
    floats_store(p, v);
#endif
}

/* The first `len` lanes: others read as 0, and stay as they are. */
static inline floats value_load_part(const value *p, size_t len)
{
    value part[LANES] = {0};
    __builtin_memcpy(part, p, len * sizeof *p);
    return value_load(part);
}

static inline void value_store_part(value *p, floats v, size_t len)
{
    value part[LANES];
    value_store(part, v);
    __builtin_memcpy(p, part, len * sizeof *p);
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
