#include "tensor/peak.h"

#include <omp.h>

/* Independent chains hide the latency of a multiply-add. This file alone is built with contraction,
 * so that a product and a sum become one instruction; nothing here touches a weight. */
enum { CHAINS = 16, LANES = 16 };

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

__attribute__((target_clones("avx512f", "avx2,fma", "default"), noinline)) static float peak_loop(
    uint64_t rounds, float seed)
{
    lanes chain[CHAINS];
    lanes zero = {0};
    for (int c = 0; c < CHAINS; c++)
        chain[c] = zero + (seed + (float)c);
    const lanes a = zero + 0.999f, b = zero + 0.001f;
    for (uint64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++)
            chain[c] = chain[c] * a + b;
    }
    float sum = 0;
    for (int c = 0; c < CHAINS; c++)
        sum += chain[c][0];
    return sum;
}

double peak_run(uint64_t rounds)
{
    volatile float sink = 0;
    int threads = 1;
#pragma omp parallel
    {
        float sum = peak_loop(rounds, (float)omp_get_thread_num());
#pragma omp critical
        sink += sum;
#pragma omp single
        threads = omp_get_num_threads();
    }
    return 2.0 * CHAINS * LANES * (double)rounds * threads;
}
