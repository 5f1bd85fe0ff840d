/* See winograd_loops.h: at each point, a product of matrices. A few rows by two vectors of it are
 * summed in registers; each number of V that is read is multiplied by two vectors of U. */
#include "tensor/winograd_loops.h"

#define INLINE static inline __attribute__((always_inline))

enum { BLOCK = WINOGRAD_BLOCK };

/* As many rows as registers are for (32, or 16), and two vectors, of two blocks if need be. */
#if defined __AVX512F__
enum { ROWS = 8 };
#else
enum { ROWS = 4 };
#endif
enum { PAIR = 2 * LANES > BLOCK ? 2 : 1, PAIR_LANES = 2 * LANES };

/* Inputs that are summed at a time, so that values that are read again stay in the nearest
 * cache. */
enum { IN_STEP = 128 };

/* Where vector n of a row of blocks begins. */
INLINE size_t vector_at(int n, size_t block)
{
    return (size_t)(n * LANES / BLOCK) * block + (size_t)(n * LANES % BLOCK);
}

/* R rows × N vectors of m = v u, or m += v u, sums of `depth` products. Rows of m, and of u, are a
 * block long. Rows of v, too, and v continues by v_block after each block of the sum; turned, its
 * columns are R long of a block. */
INLINE void multiply_some(int R, int N, bool turned, size_t depth, const float *v, size_t v_block,
                          const float *u, size_t u_block, bool add, float *m, size_t m_block)
{
    floats sum[16][2];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int n = 0; n < N; n++)
            sum[r][n] = add ? floats_load(m + r * BLOCK + vector_at(n, m_block)) : (floats){0};
    while (depth) {
        size_t some = depth < BLOCK || turned ? depth : BLOCK;
        depth -= some;
        for (size_t k = 0; k < some; k++, u += BLOCK) {
            const float *row = turned ? v + k * BLOCK : v + k;
#pragma GCC unroll 2
            for (int n = 0; n < N; n++) {
                floats w = floats_load(u + vector_at(n, u_block));
#pragma GCC unroll 16
                for (int r = 0; r < R; r++)
                    sum[r][n] += row[turned ? r : r * BLOCK] * w;
            }
        }
        v += v_block;
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int n = 0; n < N; n++)
            floats_store(m + r * BLOCK + vector_at(n, m_block), sum[r][n]);
}

/* The rows of one vector of M. */
INLINE void multiply_rows(int R, int N, size_t tiles, size_t depth, const float *v, size_t v_block,
                          const float *u, size_t u_block, bool add, float *m, size_t m_block)
{
    for (size_t t = 0; t < tiles; t += (size_t)R)
        multiply_some(R, N, false, depth, v + t * BLOCK, v_block, u, u_block, add, m + t * BLOCK,
                      m_block);
}

#if defined __AVX512F__
/* 16 inputs by one vector, the least product. With all of u in registers, each product of the sums
 * reads only a number of v. */
INLINE void multiply_least(size_t tiles, const float *v, const float *u, float *m)
{
    floats all[BLOCK];
#pragma GCC unroll 16
    for (int k = 0; k < BLOCK; k++)
        all[k] = floats_load(u + k * BLOCK);
    for (; tiles; tiles -= ROWS, v += ROWS * BLOCK, m += ROWS * BLOCK) {
        floats sum[ROWS] = {{0}};
#pragma GCC unroll 16
        for (int k = 0; k < BLOCK; k++)
#pragma GCC unroll 16
            for (int r = 0; r < ROWS; r++)
                sum[r] += v[r * BLOCK + k] * all[k];
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++)
            floats_store(m + r * BLOCK, sum[r]);
    }
}
#endif

static void multiply_tiles(size_t tiles, size_t in, size_t out_blocks, const float *V,
                           size_t v_block, const float *U, size_t u_block, bool add, float *M,
                           size_t m_block)
{
#if defined __AVX512F__
    if (in == BLOCK && out_blocks == 1 && !add) {
        multiply_least(tiles, V, U, M);
        return;
    }
#endif
    for (size_t k = 0; k < in; k += IN_STEP, add = true) {
        size_t some = in - k < IN_STEP ? in - k : IN_STEP, o = 0;
        const float *v = V + k / BLOCK * v_block, *u = U + k * BLOCK;
        for (; o + PAIR <= out_blocks; o += PAIR)
            for (size_t l = 0; l < PAIR * BLOCK; l += PAIR_LANES)
                multiply_rows(ROWS, 2, tiles, some, v, v_block, u + o * u_block + l, u_block, add,
                              M + o * m_block + l, m_block);
        for (; o < out_blocks; o++) { /* a last one without its pair: twice the rows */
            size_t most = tiles / (2 * ROWS) * (2 * ROWS);
            multiply_rows(2 * ROWS, 1, most, some, v, v_block, u + o * u_block, u_block, add,
                          M + o * m_block, m_block);
            multiply_rows(ROWS, 1, tiles - most, some, v + most * BLOCK, v_block, u + o * u_block,
                          u_block, add, M + o * m_block + most * BLOCK, m_block);
        }
    }
}

static void multiply_back(size_t tiles, size_t in_blocks, size_t out_blocks, const float *V,
                          size_t v_block, const float *dM, size_t m_block, bool add, float *dU)
{
    const size_t square = BLOCK * BLOCK;
    for (size_t k = 0; k < in_blocks; k++, V += v_block) {
        size_t o = 0;
        for (; o + PAIR <= out_blocks; o += PAIR, dU += PAIR * square)
            for (size_t l = 0; l < PAIR * BLOCK; l += PAIR_LANES)
                for (size_t r = 0; r < BLOCK; r += ROWS)
                    multiply_some(ROWS, 2, true, tiles, V + r, 0, dM + o * m_block + l, m_block,
                                  add, dU + r * BLOCK + l, square);
        for (; o < out_blocks; o++, dU += square)
            multiply_some(BLOCK, 1, true, tiles, V, 0, dM + o * m_block, m_block, add, dU, square);
    }
}

const struct winograd_products ISA_NAME(winograd_products) = {multiply_tiles, multiply_back};
