#include "tensor/bf16.h"

#include "tensor/bf16_loops.h"
#include "tensor/kernels_common.h"

#include <string.h>

int bf16_check(struct err *err)
{
#ifdef __x86_64__
    if (isa_best() < ISA_AVX512)
        return err_set(err, ERR_UNSUPPORTED,
                       "precision: bf16 needs a processor with AVX-512, and this process uses %s",
                       isa_name(isa_best()));
    if (!__builtin_cpu_supports("avx512bf16"))
        return err_set(
            err, ERR_UNSUPPORTED,
            "precision: bf16 needs a processor with products of bf16 (AVX512_BF16), which this one "
            "does not have");
    return OK;
#else
    return err_set(err, ERR_UNSUPPORTED,
                   "precision: bf16 is supported on x86-64 with AVX512_BF16 alone");
#endif
}

/* Successive runs of RUN elements. */
enum { RUN = PARALLEL_MIN };

static size_t run_at(size_t n, size_t i)
{
    return n - i < RUN ? n - i : RUN;
}

void bf16_round(size_t n, const float *x, bf16 *y)
{
    const struct bf16_loops *loops = ISA_PICK(bf16_loops);
#pragma omp parallel for schedule(static) if (n >= 2 * RUN)
    for (size_t i = 0; i < n; i += RUN)
        loops->round(run_at(n, i), x + i, y + i);
}

void bf16_widen(size_t n, const bf16 *x, float *y)
{
    const struct bf16_loops *loops = ISA_PICK(bf16_loops);
#pragma omp parallel for schedule(static) if (n >= 2 * RUN)
    for (size_t i = 0; i < n; i += RUN)
        loops->widen(run_at(n, i), x + i, y + i);
}

void bf16_add(size_t n, const bf16 *x, bf16 *y)
{
    const struct bf16_loops *loops = ISA_PICK(bf16_loops);
#pragma omp parallel for schedule(static) if (n >= 2 * RUN)
    for (size_t i = 0; i < n; i += RUN)
        loops->add(run_at(n, i), x + i, y + i);
}

bf16 bf16_nearest(float x)
{
    bf16 y;
    ISA_PICK(bf16_loops)->round(1, &x, &y);
    return y;
}

float bf16_float(bf16 x)
{
    uint32_t bits = (uint32_t)x << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}
