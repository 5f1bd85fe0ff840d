/* See resample_loops.h. */
#include "tensor/resample_loops.h"

#include <string.h>

#if defined __AVX2__
#include <immintrin.h>
#endif

static void convert_bytes(const uint8_t *bytes, size_t n, float *line)
{
    for (size_t k = 0; k < n; k++)
        line[k] = (float)bytes[k];
}

/* ---- columns ---- */

/* The first values of four pixels, their second ones, and so on, in rows of `stride` floats. */
static inline void store_pixels(four p, four q, four r, four s, size_t C, size_t stride, float *to)
{
    four pq = __builtin_shufflevector(p, q, 0, 4, 1, 5);
    four PQ = __builtin_shufflevector(p, q, 2, 6, 3, 7);
    four rs = __builtin_shufflevector(r, s, 0, 4, 1, 5);
    four RS = __builtin_shufflevector(r, s, 2, 6, 3, 7);
    four_store(to, __builtin_shufflevector(pq, rs, 0, 1, 4, 5));
    if (C > 1)
        four_store(to + stride, __builtin_shufflevector(pq, rs, 2, 3, 6, 7));
    if (C > 2)
        four_store(to + 2 * stride, __builtin_shufflevector(PQ, RS, 0, 1, 4, 5));
    if (C > 3)
        four_store(to + 3 * stride, __builtin_shufflevector(PQ, RS, 2, 3, 6, 7));
}

#if defined __AVX2__
static inline __m256 load_two(const float *a, const float *b)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(a)), _mm_loadu_ps(b), 1);
}

/* FOUR outputs, two in a register. */
static inline void sample_four(const float *line, size_t C, const struct resample_tap *tap,
                               size_t most, size_t stride, float *to)
{
    const float *a = line + tap[0].first * C, *b = line + tap[1].first * C;
    const float *c = line + tap[2].first * C, *d = line + tap[3].first * C;
    const float *weight = (const float *)tap->weight;
    __m256 p = _mm256_setzero_ps(), q = p;
    for (size_t k = 0; k < most; k++, weight += FOUR * FOUR) {
        p += _mm256_loadu_ps(weight) * load_two(a + k * C, b + k * C);
        q += _mm256_loadu_ps(weight + 2 * FOUR) * load_two(c + k * C, d + k * C);
    }
    store_pixels(_mm256_castps256_ps128(p), _mm256_extractf128_ps(p, 1), _mm256_castps256_ps128(q),
                 _mm256_extractf128_ps(q, 1), C, stride, to);
}
#else
static inline void sample_four(const float *line, size_t C, const struct resample_tap *tap,
                               size_t most, size_t stride, float *to)
{
    const float *a = line + tap[0].first * C, *b = line + tap[1].first * C;
    const float *c = line + tap[2].first * C, *d = line + tap[3].first * C;
    const four *weight = tap->weight;
    four p = {0}, q = {0}, r = {0}, s = {0};
    for (size_t k = 0; k < most; k++, weight += FOUR) {
        p += weight[0] * four_load(a + k * C);
        q += weight[1] * four_load(b + k * C);
        r += weight[2] * four_load(c + k * C);
        s += weight[3] * four_load(d + k * C);
    }
    store_pixels(p, q, r, s, C, stride, to);
}
#endif

static inline void sample_all(const float *line, size_t C, const struct resample_tap *tap, size_t n,
                              size_t most, float *row)
{
    for (size_t j = 0; j < n; j += FOUR)
        sample_four(line, C, tap + j, most, n, row + j);
}

/* The loops over taps are unrolled where there are few, as of pictures that are not made smaller
 * than half. */
static void sample_columns(const float *line, size_t C, const struct resample_tap *tap, size_t n,
                           size_t most, float *row)
{
    if (C == 3 && most == 3)
        sample_all(line, 3, tap, n, 3, row);
    else if (C == 3 && most == 2)
        sample_all(line, 3, tap, n, 2, row);
    else
        sample_all(line, C, tap, n, most, row);
}

/* ---- rows ---- */

static void blend_rows(const float *const *rows, const struct resample_tap *tap, float mean,
                       float scale, size_t n, float *out)
{
    enum { VECTORS = RESAMPLE_WIDTH / LANES };
    float last[RESAMPLE_WIDTH];
    for (size_t j = 0; j < n; j += RESAMPLE_WIDTH) {
        float *to = n - j < RESAMPLE_WIDTH ? last : out + j;
        floats sum[VECTORS] = {{0}};
        for (size_t k = 0; k < tap->count; k++)
            for (size_t b = 0; b < VECTORS; b++)
                sum[b] += tap->weight[FOUR * k][0] * floats_load(rows[k] + j + b * LANES);
        for (size_t b = 0; b < VECTORS; b++)
            floats_store(to + b * LANES, (sum[b] - mean) * scale);
        if (to == last)
            memcpy(out + j, last, (n - j) * sizeof *out);
    }
}

const struct resample_loops ISA_NAME(resample_loops) = {
    .convert = convert_bytes,
    .sample = sample_columns,
    .blend = blend_rows,
};
