/* See product_loops.h. A tile of c is TALL rows of V vectors, and stays in registers during the
 * loop over k: each step reads V vectors of b and TALL numbers of a, and multiplies each with each.
 */
#include "tensor/product_loops.h"

#include "tensor/turn.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* As many rows as leave registers for b: 32 with AVX-512, else 16. */
#if defined __AVX512F__
enum { TALL = 12 };
#else
enum { TALL = 6 };
#endif

/* Steps of `a` that are far from one another lie in pages of their own, where no processor looks
 * ahead by itself: so many steps ahead, a tile asks for them. */
enum { AHEAD = 32 };

struct tile {
    floats at[TALL][PRODUCT_VECTORS];
};

INLINE size_t vectors_of(size_t n)
{
    return (n + LANES - 1) / LANES;
}

/* ---- tiles: T <= TALL rows, V vectors, both constants ---- */

INLINE void tile_sum(struct tile *t, size_t T, size_t V, size_t K, const struct product_a *a,
                     const float *b, bool far)
{
    const float *at = a->at;
    floats sum[TALL][PRODUCT_VECTORS];
#pragma GCC unroll 12
    for (size_t m = 0; m < T; m++)
#pragma GCC unroll 2
        for (size_t v = 0; v < V; v++)
            sum[m][v] = (floats){0};
    for (size_t k = 0; k < K; k++, at += a->step, b += V * LANES) {
        floats bv[PRODUCT_VECTORS];
        if (far) {
            __builtin_prefetch(at + AHEAD * a->step);
            __builtin_prefetch(at + AHEAD * a->step + T - 1);
        }
#pragma GCC unroll 2
        for (size_t v = 0; v < V; v++)
            bv[v] = floats_load(b + v * LANES);
#pragma GCC unroll 12
        for (size_t m = 0; m < T; m++)
#pragma GCC unroll 2
            for (size_t v = 0; v < V; v++)
                sum[m][v] += at[m * a->row] * bv[v];
    }
#pragma GCC unroll 12
    for (size_t m = 0; m < T; m++)
#pragma GCC unroll 2
        for (size_t v = 0; v < V; v++)
            t->at[m][v] = sum[m][v];
}

/* Run RUN(T, V) with T the rows from m on; it computes T of them. Two tiles of two thirds are
 * faster than a tall one and a low one, whose sums wait for one another. */
#define EACH_TILE(M, V, RUN)                                           \
    do {                                                               \
        size_t m = 0;                                                  \
        for (; m + TALL <= (M) && (M)-m != TALL + TALL / 3; m += TALL) \
            RUN(m, TALL, V);                                           \
        for (; m + TALL / 3 * 2 <= (M); m += TALL / 3 * 2)             \
            RUN(m, TALL / 3 * 2, V);                                   \
        for (; m + TALL / 3 <= (M); m += TALL / 3)                     \
            RUN(m, TALL / 3, V);                                       \
        for (; m < (M); m++)                                           \
            RUN(m, 1, V);                                              \
    } while (0)

/* V as a constant. */
#define EITHER_WIDTH(M, n, RUN)   \
    do {                          \
        if (vectors_of(n) == 1)   \
            EACH_TILE(M, 1, RUN); \
        else                      \
            EACH_TILE(M, 2, RUN); \
    } while (0)

/* Rows of c from the tile, the first n columns. */
INLINE void tile_put(const struct tile *t, size_t T, size_t V, size_t n, bool add, float *c,
                     size_t row)
{
    for (size_t m = 0; m < T; m++, c += row)
        for (size_t v = 0; v < V; v++) {
            float *to = c + v * LANES;
            floats all = t->at[m][v];
            if ((v + 1) * LANES <= n) {
                floats_store(to, add ? floats_load(to) + all : all);
                continue;
            }
            for (size_t l = 0; v * LANES + l < n; l++)
                to[l] = add ? to[l] + all[l] : all[l];
        }
}

static struct product_a rows_from(const struct product_a *a, size_t m)
{
    return (struct product_a){a->at + m * a->row, a->row, a->step};
}

static void multiply_panel(size_t M, size_t n, size_t K, const struct product_a *a, const float *b,
                           bool add, float *c, size_t row)
{
#define RUN(m, T, V)                                  \
    do {                                              \
        struct product_a part = rows_from(a, m);      \
        struct tile t;                                \
        tile_sum(&t, T, V, K, &part, b, false);       \
        tile_put(&t, T, V, n, add, c + (m)*row, row); \
    } while (0)
    EITHER_WIDTH(M, n, RUN);
#undef RUN
}

/* ---- slices ---- */

INLINE void tile_keep(struct tile *to, const struct tile *t, size_t T, size_t V)
{
#pragma GCC unroll 12
    for (size_t m = 0; m < T; m++)
#pragma GCC unroll 2
        for (size_t v = 0; v < V; v++)
            to->at[m][v] = t->at[m][v];
}

INLINE void tile_add(struct tile *to, const struct tile *t, size_t T, size_t V)
{
#pragma GCC unroll 12
    for (size_t m = 0; m < T; m++)
#pragma GCC unroll 2
        for (size_t v = 0; v < V; v++)
            to->at[m][v] += t->at[m][v];
}

/* Like a binary counter: after slice i, sums of as many slices each as i + 1 has bits set wait on
 * the stack; at the end they are added from the last, which is the shortest. A slice's own sum
 * meets those that it completes in registers. */
INLINE void tile_slices(struct tile *stack, size_t T, size_t V, size_t K, size_t slice,
                        const struct product_a *a, const float *b)
{
    size_t depth = 0;
    struct product_a part = {a->at, 1, a->step};
    for (size_t k = 0, i = 1; k < K; k += slice, i++) {
        size_t len = K - k < slice ? K - k : slice;
        struct tile sum;
        tile_sum(&sum, T, V, len, &part, b + k * V * LANES, true);
        part.at += len * a->step;
        for (size_t bits = i; bits % 2 == 0; bits /= 2)
            tile_add(&sum, &stack[--depth], T, V);
        tile_keep(&stack[depth++], &sum, T, V);
    }
    for (; depth > 1; depth--)
        tile_add(&stack[depth - 2], &stack[depth - 1], T, V);
}

static void add_slices(size_t M, size_t n, size_t K, size_t slice, const struct product_a *a,
                       const float *b, float *c, size_t row)
{
    struct tile stack[PRODUCT_LEVELS];
#define RUN(m, T, V)                                      \
    do {                                                  \
        struct product_a part = rows_from(a, m);          \
        tile_slices(stack, T, V, K, slice, &part, b);     \
        tile_put(stack, T, V, n, true, c + (m)*row, row); \
    } while (0)
    EITHER_WIDTH(M, n, RUN);
#undef RUN
}

/* ---- turned ---- */

INLINE void tile_put_turned(const struct tile *t, size_t T, size_t V, size_t n, bool add,
                            const float *bias, float *c, size_t row)
{
    float turned[PRODUCT_VECTORS * LANES][TALL];
    for (size_t m = 0; m < T; m++)
        for (size_t v = 0; v < V; v++)
            for (size_t l = 0; l < LANES; l++)
                turned[v * LANES + l][m] = t->at[m][v][l];
    for (size_t i = 0; i < n; i++, c += row)
        for (size_t m = 0; m < T; m++)
            c[m] = (add ? c[m] : bias ? bias[m] : 0) + turned[i][m];
}

static void multiply_turned(size_t M, size_t n, size_t K, const struct product_a *a, const float *b,
                            bool add, const float *bias, float *c, size_t row)
{
#define RUN(m, T, V)                                                               \
    do {                                                                           \
        struct product_a part = rows_from(a, m);                                   \
        struct tile t = {0};                                                       \
        tile_sum(&t, T, V, K, &part, b, false);                                    \
        tile_put_turned(&t, T, V, n, add, bias ? bias + (m) : NULL, c + (m), row); \
    } while (0)
    EITHER_WIDTH(M, n, RUN);
#undef RUN
}

/* ---- packing ---- */

static size_t padded_width(size_t n)
{
    return vectors_of(n) * LANES;
}

enum { STRIP = PRODUCT_VECTORS * LANES };

/* Row by row, for rows are neighbours' neighbours in memory, and columns far from one another. */
static void pack_panel(size_t K, size_t n, const float *b, size_t step, float *to)
{
    size_t strips = n / STRIP, rest = n % STRIP, row = padded_width(rest);
    for (size_t k = 0; k < K; k++, b += step) {
        for (size_t s = 0; s < strips; s++)
            for (size_t v = 0; v < PRODUCT_VECTORS; v++)
                floats_store(to + (s * K + k) * STRIP + v * LANES,
                             floats_load(b + s * STRIP + v * LANES));
        float *last = to + strips * K * STRIP + k * row;
        for (size_t i = 0; i < row; i++)
            last[i] = i < rest ? b[strips * STRIP + i] : 0;
    }
}

static void pack_turned(size_t K, size_t n, const float *b, size_t step, float *to)
{
    size_t row = padded_width(n), fours = n / 4 * 4, k = 0;
    for (; k + 4 <= K; k += 4)
        for (size_t i = 0; i < fours; i += 4)
            turn_four(b + i * step + k, step, to + k * row + i, row);
    for (; k < K; k++)
        for (size_t i = 0; i < fours; i++)
            to[k * row + i] = b[i * step + k];
    for (k = 0; k < K; k++) {
        for (size_t i = fours; i < n; i++)
            to[k * row + i] = b[i * step + k];
        for (size_t i = n; i < row; i++)
            to[k * row + i] = 0;
    }
}

const struct product_loops ISA_NAME(product_loops) = {
    .strip = STRIP,
    .wide = padded_width,
    .pack = pack_panel,
    .pack_turned = pack_turned,
    .multiply = multiply_panel,
    .add_slices = add_slices,
    .multiply_turned = multiply_turned,
};
