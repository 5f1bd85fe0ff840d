#include "tensor/isa.h"

#include "base/fault.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#ifdef __x86_64__
static const char *const names[ISAS] = {"sse2", "avx2", "avx512"};

static enum isa processor_isa(void)
{
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return ISA_PLAIN;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")
               ? ISA_AVX512
               : ISA_AVX2;
}
#else
static const char *const names[ISAS] = {"plain", "avx2", "avx512"};

static enum isa processor_isa(void)
{
    return ISA_PLAIN;
}
#endif

/* ISAS where the environment names none. */
static enum isa limit_of(const char *text)
{
    enum isa isa = ISA_PLAIN;
    while (isa < ISAS && strcmp(text, names[isa]) != 0)
        isa++;
    return isa;
}

enum isa isa_best(void)
{
    /* 1 + the detected set; a process's processor and first environment do not change. */
    static _Atomic int known;
    int isa = atomic_load_explicit(&known, memory_order_relaxed) - 1;
    if (isa >= 0)
        return (enum isa)isa;
    const char *text = getenv("PACELINE_ISA");
    enum isa most = text ? limit_of(text) : ISAS, best = processor_isa();
    best = most < best ? most : best;
    atomic_store_explicit(&known, 1 + (int)best, memory_order_relaxed);
    return best;
}

bool isa_is_limited(void)
{
    return isa_best() < processor_isa();
}

const char *isa_name(enum isa isa)
{
    PL_ASSERT(isa < ISAS);
    return names[isa];
}

int isa_check(struct err *err)
{
    const char *text = getenv("PACELINE_ISA");
    if (!text || limit_of(text) < ISAS)
        return OK;
    return err_set(err, ERR_USAGE, "PACELINE_ISA: expected %s, avx2 or avx512, not %.32s",
                   names[ISA_PLAIN], text);
}
