/* See winograd_loops.h. Transforms are straight-line code over vectors of channels: everything is
 * unrolled over the points, whose number is a constant here, and no more values are live at a time
 * than AVX-512 has registers. */
#include "tensor/winograd_points.h"

#include <string.h>

/* ---- one dimension ---- */

/* Σ factor[k] · d[k · step], the last of the n factors being 1. */
INLINE floats polynomial(int n, const float *factor, const floats *d, int step)
{
    floats sum = d[(n - 1) * step];
#pragma GCC unroll 16
    for (int k = n - 2; k >= 0; k--)
        sum += factor[k] * d[k * step];
    return sum;
}

/* v = B^T d: at a point, the factors of d are the coefficients of Π (x - q) over all other points
 * q. */
INLINE void input_1d(int P, const floats *d, floats *v)
{
    v[0] = polynomial(P + 1, points[P].all, d, 2);
#pragma GCC unroll 16
    for (int i = 0; i < P; i++) {
        floats e = polynomial(P, points[P].but[i], d + 2, 2);
        floats o = polynomial(P, points[P].but[i], d + 1, 2);
        v[1 + 2 * i] = e + point(P, i) * o;
        v[2 + 2 * i] = e - point(P, i) * o;
    }
    v[2 * P + 1] = polynomial(P + 1, points[P].all, d + 1, 2);
}

/* y = A^T m: y[k] = Σ p^k m[p], and m[∞] in the last. y[0] and y[2] take sums of the pairs. */
INLINE void output_even(int P, const floats *m, floats *y)
{
    y[0] = m[0];
#pragma GCC unroll 16
    for (int i = P - 1; i >= 0; i--) {
        floats sum = m[1 + 2 * i] + m[2 + 2 * i];
        y[0] += sum;
        y[1] = i == P - 1 ? square(P, i) * sum : y[1] + square(P, i) * sum;
    }
}

/* y[1] and y[3] take differences. */
INLINE void output_edge(int P, const floats *m, floats *y)
{
    y[1] = m[2 * P + 1];
#pragma GCC unroll 16
    for (int i = P - 1; i >= 0; i--) {
        floats gap = m[1 + 2 * i] - m[2 + 2 * i];
        y[0] = i == P - 1 ? point(P, i) * gap : y[0] + point(P, i) * gap;
        y[1] += square(P, i) * point(P, i) * gap;
    }
}

/* m = A y: the polynomial with the factors y at each point. */
INLINE void output_back_1d(int P, const floats *y, floats *m)
{
    m[0] = y[0];
#pragma GCC unroll 16
    for (int i = 0; i < P; i++) {
        floats e = y[0] + square(P, i) * y[2], o = y[1] + square(P, i) * y[3];
        m[1 + 2 * i] = e + point(P, i) * o;
        m[2 + 2 * i] = e - point(P, i) * o;
    }
    m[2 * P + 1] = y[3];
}

/* ---- tiles ---- */

struct slot {
    size_t n, i, j;
};

INLINE struct slot slot_of(const struct winograd_image *image, size_t tile)
{
    size_t tiles = image->rows * image->columns, at = tile % tiles;
    return (struct slot){tile / tiles, at / image->columns, at % image->columns};
}

INLINE void slot_next(const struct winograd_image *image, struct slot *at)
{
    if (++at->j < image->columns)
        return;
    at->j = 0;
    if (++at->i < image->rows)
        return;
    at->i = 0;
    at->n++;
}

/* The pixels of a tile: steps apart, or, where some lie outside, at the addresses of a table. */
typedef size_t addresses __attribute__((vector_size(ALPHA_MAX * sizeof(size_t))));

struct tile {
    value *first;
    size_t row, pixel;
    addresses table[ALPHA_MAX];
};

/* The tile of size × size pixels at `at`. Returns whether it takes the table. */
INLINE bool tile_at(const struct winograd_image *image, const struct slot *at, size_t size,
                    const value *x, const value *outside, bool read, struct tile *tile)
{
    size_t C = image->C, W = image->W, H = image->H;
    size_t i = at->i * TILE - image->top, j = at->j * TILE - image->left; /* wraps, outside */
    bool last = read && at->n + 1 == image->N && H - i <= size && W - j <= size;
    size_t first = (size_t)x + (at->n * H * W + i * W + j) * C * sizeof *x;
    tile->first = (value *)first;
    tile->row = W * C;
    tile->pixel = C;
    if (i < H && j < W && H - i >= size && W - j >= size && !(last && C % BLOCK))
        return false;
    const addresses columns = {0, 1, 2, 3, 4, 5, 6, 7};
    addresses steps = columns * (C * sizeof *x), within = (addresses)(columns + j < W);
#pragma GCC unroll 16
    for (size_t u = 0; u < size; u++) {
        addresses row = first + u * W * C * sizeof *x + steps;
        addresses inside = i + u < H ? within : (addresses){0};
        tile->table[u] = (row & inside) | ((size_t)outside & ~inside);
    }
    if (last)
        tile->table[H - i - 1][W - j - 1] = (size_t)(outside + winograd_blocks(C) * BLOCK);
    return true;
}

/* Channels c to c + LANES of a pixel. Tables are read again each time: a compiler that keeps more
 * addresses than there are registers loses more than it wins. */
INLINE value *pixel_at(const struct tile *tile, bool table, int i, int j, size_t c)
{
    return c + (table ? (value *)((const volatile size_t *)&tile->table[i])[j]
                      : tile->first + (size_t)i * tile->row + (size_t)j * tile->pixel);
}

/* ---- input ---- */

/* The rows of B^T d that take every second row of d: of 0 and of ∞. Each pixel is read, and the one
 * for the tile below is prefetched. */
INLINE void input_edges(int P, bool table, const struct tile *d, size_t c, float *v, size_t apart)
{
    const int alpha = 2 * P + 2;
    floats t[ALPHA_MAX], column[ALPHA_MAX], row[ALPHA_MAX];
#pragma GCC unroll 2
    for (int edge = 0; edge < 2; edge++) {
#pragma GCC unroll 16
        for (int j = 0; j < alpha; j++) {
#pragma GCC unroll 16
            for (int k = 0; k <= P; k++) {
                const value *pixel = pixel_at(d, table, edge + 2 * k, j, c);
                column[k] = value_load(pixel);
                if (j < TILE && edge + 2 * k >= alpha - TILE)
                    __builtin_prefetch(pixel + TILE * d->row);
            }
            t[j] = polynomial(P + 1, points[P].all, column, 1);
        }
        input_1d(P, t, row);
        store_points(alpha, row, v + (size_t)(edge * alpha * (alpha - 1)) * apart, apart);
    }
}

/* The rows of `count` pairs. */
INLINE void input_pairs(int P, int first, int count, bool table, const struct tile *d, size_t c,
                        float *v, size_t apart)
{
    const int alpha = 2 * P + 2;
    floats t[2 * 2][ALPHA_MAX], column[ALPHA_MAX], row[ALPHA_MAX];
#pragma GCC unroll 16
    for (int j = 0; j < alpha; j++) {
#pragma GCC unroll 16
        for (int k = 1; k <= 2 * P; k++)
            column[k] = value_load(pixel_at(d, table, k, j, c));
#pragma GCC unroll 2
        for (int i = 0; i < count; i++) {
            floats e = polynomial(P, points[P].but[first + i], column + 2, 2);
            floats o = polynomial(P, points[P].but[first + i], column + 1, 2);
            t[2 * i][j] = e + point(P, first + i) * o;
            t[2 * i + 1][j] = e - point(P, first + i) * o;
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < 2 * count; i++) {
        input_1d(P, t[i], row);
        store_points(alpha, row, v + (size_t)((1 + 2 * first + i) * alpha) * apart, apart);
    }
}

INLINE void input_tile(int P, bool table, const struct tile *d, size_t c, float *v, size_t apart)
{
    const int count = P == P_3X3 ? 2 : 1;
    input_edges(P, table, d, c, v, apart);
#pragma GCC unroll 16
    for (int first = 0; first < P; first += count)
        input_pairs(P, first, count, table, d, c, v, apart);
}

/* ---- output, backwards ---- */

INLINE void back_tile(int P, bool table, const struct tile *d, size_t c, float *v, size_t apart)
{
    const int alpha = 2 * P + 2;
    floats s[TILE], t[TILE], y[TILE], row[ALPHA_MAX];
#pragma GCC unroll 2
    for (int edge = 0; edge < 2; edge++) {
#pragma GCC unroll 16
        for (int j = 0; j < TILE; j++)
            t[j] = value_load(pixel_at(d, table, 3 * edge, j, c));
        output_back_1d(P, t, row);
        store_points(alpha, row, v + (size_t)(edge * alpha * (alpha - 1)) * apart, apart);
    }
#pragma GCC unroll 16
    for (int i = 0; i < P; i++) {
#pragma GCC unroll 16
        for (int j = 0; j < TILE; j++) {
#pragma GCC unroll 16
            for (int k = 0; k < TILE; k++)
                y[k] = value_load(pixel_at(d, table, k, j, c));
            floats e = y[0] + square(P, i) * y[2], o = y[1] + square(P, i) * y[3];
            s[j] = e + point(P, i) * o;
            t[j] = e - point(P, i) * o;
        }
        output_back_1d(P, s, row);
        store_points(alpha, row, v + (size_t)((1 + 2 * i) * alpha) * apart, apart);
        output_back_1d(P, t, row);
        store_points(alpha, row, v + (size_t)((2 + 2 * i) * alpha) * apart, apart);
    }
}

INLINE void add_sum(bool table, const struct tile *d, size_t c, float *db)
{
    floats row[TILE];
#pragma GCC unroll 16
    for (int i = 0; i < TILE; i++) {
        row[i] = value_load(pixel_at(d, table, i, 0, c));
#pragma GCC unroll 16
        for (int j = 1; j < TILE; j++)
            row[i] += value_load(pixel_at(d, table, i, j, c));
    }
    floats_store(db, floats_load(db) + ((row[0] + row[1]) + (row[2] + row[3])));
}

typedef void read_tile(const struct tile *d, size_t c, float *v, size_t apart);

/* The transforms of input and output_back, by one of two loops for each tile. */
INLINE void read_tiles(size_t size, read_tile *steps, read_tile *table,
                       const struct winograd_image *image, const value *x, const value *outside,
                       size_t first, size_t tiles, size_t blocks, struct winograd_slab slab,
                       float *V, float *db)
{
    struct slot at = slot_of(image, first);
    struct tile d;
    for (size_t t = 0; t < tiles; t++, slot_next(image, &at)) {
        bool by_table = tile_at(image, &at, size, x, outside, true, &d);
        for (size_t c = 0; c < blocks * BLOCK; c += LANES) {
            float *v = V + c / BLOCK * slab.block + t * BLOCK + c % BLOCK;
            if (by_table)
                table(&d, c, v, slab.point);
            else
                steps(&d, c, v, slab.point);
            if (db)
                add_sum(by_table, &d, c, db + c);
        }
    }
}

/* ---- output ---- */

/* Rows `from` and every `step`th after it. */
INLINE void output_rows(int P, bool table, int from, int step, const float *m, size_t apart,
                        const float *b, const struct tile *y, size_t c)
{
    const int alpha = 2 * P + 2;
    floats t[TILE][ALPHA_MAX], column[ALPHA_MAX], pair[2];
#pragma GCC unroll 16
    for (int j = 0; j < alpha; j++) {
#pragma GCC unroll 16
        for (int i = 0; i < alpha; i++)
            column[i] = floats_load(m + (size_t)(i * alpha + j) * apart);
#pragma GCC unroll 2
        for (int k = from; k < 2; k += step) {
            if (k)
                output_edge(P, column, pair);
            else
                output_even(P, column, pair);
            t[k][j] = pair[0];
            t[k + 2][j] = pair[1];
        }
    }
#pragma GCC unroll 16
    for (int k = from; k < TILE; k += step) {
        floats even[2], odd[2];
        output_even(P, t[k], even);
        output_edge(P, t[k], odd);
        floats row[TILE] = {even[0], odd[0], even[1], odd[1]};
#pragma GCC unroll 16
        for (int j = 0; j < TILE; j++)
            value_store(pixel_at(y, table, k, j, c), row[j] + floats_load(b));
    }
}

INLINE void output_tile(int P, bool table, const float *m, size_t apart, const float *b,
                        const struct tile *y, size_t c)
{
    const int step = P == P_3X3 ? 1 : 2;
    output_rows(P, table, 0, step, m, apart, b, y, c);
    if (step == 2)
        output_rows(P, table, 1, step, m, apart, b, y, c);
}

typedef void write_tile(const float *m, size_t apart, const float *b, const struct tile *y,
                        size_t c);

/* A block of which the image has only some channels. */
INLINE void output_rest(write_tile *steps, const float *m, size_t apart, const float *b,
                        size_t channels, const struct tile *y, bool table, size_t c)
{
    value copy[TILE * TILE * BLOCK];
    const struct tile whole = {.first = copy, .row = TILE * BLOCK, .pixel = BLOCK};
    for (size_t l = 0; l < BLOCK; l += LANES)
        steps(m + l, apart, b + l, &whole, l);
    for (int i = 0; i < TILE; i++)
        for (int j = 0; j < TILE; j++)
            memcpy(pixel_at(y, table, i, j, c), copy + (i * TILE + j) * BLOCK,
                   channels * sizeof *copy);
}

INLINE void write_tiles(write_tile *steps, write_tile *table, const struct winograd_image *image,
                        value *y, value *outside, size_t first, size_t tiles, size_t channels,
                        struct winograd_slab slab, const float *M, const float *b)
{
    struct slot at = slot_of(image, first);
    struct tile to;
    size_t rest = channels % BLOCK, whole = channels - rest;
    for (size_t t = 0; t < tiles; t++, slot_next(image, &at)) {
        bool by_table = tile_at(image, &at, TILE, y, outside, false, &to);
        for (size_t c = 0; c < whole; c += LANES) {
            const float *m = M + c / BLOCK * slab.block + t * BLOCK + c % BLOCK;
            if (by_table)
                table(m, slab.point, b + c, &to, c);
            else
                steps(m, slab.point, b + c, &to, c);
        }
        if (rest)
            output_rest(steps, M + whole / BLOCK * slab.block + t * BLOCK, slab.point, b + whole,
                        rest, &to, by_table, whole);
    }
}

/* ---- the table ---- */

/* A tile has its function: inlined, the addresses of its pixels for all blocks of channels would be
 * worked out ahead, which are more than there are registers. */
#define LOOPS_OF(P)                                                                                \
    __attribute__((noinline)) static void input_steps_##P(const struct tile *d, size_t c,          \
                                                          float *v, size_t apart)                  \
    {                                                                                              \
        input_tile(P, false, d, c, v, apart);                                                      \
    }                                                                                              \
    __attribute__((noinline)) static void input_table_##P(const struct tile *d, size_t c,          \
                                                          float *v, size_t apart)                  \
    {                                                                                              \
        input_tile(P, true, d, c, v, apart);                                                       \
    }                                                                                              \
    __attribute__((noinline)) static void back_steps_##P(const struct tile *d, size_t c, float *v, \
                                                         size_t apart)                             \
    {                                                                                              \
        back_tile(P, false, d, c, v, apart);                                                       \
    }                                                                                              \
    __attribute__((noinline)) static void back_table_##P(const struct tile *d, size_t c, float *v, \
                                                         size_t apart)                             \
    {                                                                                              \
        back_tile(P, true, d, c, v, apart);                                                        \
    }                                                                                              \
    __attribute__((noinline)) static void output_steps_##P(                                        \
        const float *m, size_t apart, const float *b, const struct tile *y, size_t c)              \
    {                                                                                              \
        output_tile(P, false, m, apart, b, y, c);                                                  \
    }                                                                                              \
    __attribute__((noinline)) static void output_table_##P(                                        \
        const float *m, size_t apart, const float *b, const struct tile *y, size_t c)              \
    {                                                                                              \
        output_tile(P, true, m, apart, b, y, c);                                                   \
    }                                                                                              \
    static void input_##P(const struct winograd_image *image, const void *x, const void *outside,  \
                          size_t first, size_t tiles, size_t blocks, struct winograd_slab slab,    \
                          float *V)                                                                \
    {                                                                                              \
        read_tiles(2 * P + 2, input_steps_##P, input_table_##P, image, x, outside, first, tiles,   \
                   blocks, slab, V, NULL);                                                         \
    }                                                                                              \
    static void output_back_##P(const struct winograd_image *image, const void *dy,                \
                                const void *outside, size_t first, size_t tiles, size_t blocks,    \
                                struct winograd_slab slab, float *dM, float *db)                   \
    {                                                                                              \
        read_tiles(TILE, back_steps_##P, back_table_##P, image, dy, outside, first, tiles, blocks, \
                   slab, dM, db);                                                                  \
    }                                                                                              \
    static void output_##P(const struct winograd_image *image, void *y, void *outside,             \
                           size_t first, size_t tiles, size_t channels, struct winograd_slab slab, \
                           const float *M, const float *b)                                         \
    {                                                                                              \
        write_tiles(output_steps_##P, output_table_##P, image, y, outside, first, tiles, channels, \
                    slab, M, b);                                                                   \
    }

LOOPS_OF(2)
LOOPS_OF(3)

const struct winograd_loops VALUES_NAME(winograd_loops)[WINOGRAD_KERNELS] = {
    [WINOGRAD_3X3] = {input_2, output_2, output_back_2},
    [WINOGRAD_5X5] = {input_3, output_3, output_back_3},
};
