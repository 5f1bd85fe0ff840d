#include "tensor/bf16_loops.h"

#include <string.h>

/* The remainder after whole vectors is computed with one that is filled up with zeros. */
static void round_run(size_t n, const float *x, bf16 *y)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        bf16_store(y + i, floats_load(x + i));
    if (i == n)
        return;
    float in[LANES] = {0};
    bf16 out[LANES];
    memcpy(in, x + i, (n - i) * sizeof *x);
    bf16_store(out, floats_load(in));
    memcpy(y + i, out, (n - i) * sizeof *y);
}

static void widen_run(size_t n, const bf16 *x, float *y)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        floats_store(y + i, bf16_load(x + i));
    if (i == n)
        return;
    bf16 in[LANES] = {0};
    float out[LANES];
    memcpy(in, x + i, (n - i) * sizeof *x);
    floats_store(out, bf16_load(in));
    memcpy(y + i, out, (n - i) * sizeof *y);
}

static void add_run(size_t n, const bf16 *x, bf16 *y)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        bf16_store(y + i, bf16_load(y + i) + bf16_load(x + i));
    if (i == n)
        return;
    bf16 a[LANES] = {0}, b[LANES] = {0};
    memcpy(a, x + i, (n - i) * sizeof *x);
    memcpy(b, y + i, (n - i) * sizeof *y);
    bf16_store(b, bf16_load(b) + bf16_load(a));
    memcpy(y + i, b, (n - i) * sizeof *y);
}

const struct bf16_loops ISA_NAME(bf16_loops) = {round_run, widen_run, add_run};
