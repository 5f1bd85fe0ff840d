/* See product_loops.h. A tile of c is TALL rows of V vectors, and stays in registers during the
 * loop over k: each step reads V vectors of b and TALL numbers of a, and multiplies each with each.
 */
#include "tensor/product_loops.h"

#include "base/fault.h"
#include "tensor/turn.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* As many rows as leave registers for b: 32 with AVX-512, else 16. */
#if defined __AVX512F__
enum { TALL = 12 };
#else
enum { TALL = 6 };
#endif

/* Steps that are far from one another lie in pages of their own, where no processor looks ahead by
 * itself: so many steps ahead, a tile asks for them. With more, steps whose distance is a power of
 * two drive one another out of the first cache. */
enum { AHEAD = 8 };

enum { STRIP = PRODUCT_VECTORS * LANES };

struct tile {
    floats at[TALL][PRODUCT_VECTORS];
};

/* The columns of a tile: where its first and last vectors begin, of which there is but one if
 * V = 1. Of the last one, the lanes `from` to `end` are the tile's own. */
struct tile_columns {
    size_t first, last;
    size_t from, end;
};

/* How a tile reads b; of which only the first columns of all, in place, ask for the rows of a that
 * the next call has, `next` behind its own. */
enum reads {
    READS_PACKED,
    READS_FIRST,
    READS_IN_PLACE,
    READS_FEW, /* in place, rows that are shorter than a vector */
};

struct reading {
    enum reads from;
    size_t next;
};

INLINE size_t vectors_of(size_t n)
{
    return (n + LANES - 1) / LANES;
}

/* n columns of a strip that is padded. */
INLINE struct tile_columns padded_columns(size_t V, size_t n)
{
    size_t last = (V - 1) * LANES;
    return (struct tile_columns){.last = last, .end = n - last};
}

/* Some columns of n. The last vector ends where they do, and has those before it once more, for
 * nothing can be read behind the last row; unless all are fewer than a vector has. */
INLINE struct tile_columns columns_in_place(size_t at, size_t n)
{
    size_t end = n - at < STRIP ? n : at + STRIP, rest = (end - at) % LANES;
    if (n < LANES)
        return (struct tile_columns){.end = n};
    return (struct tile_columns){at, end - LANES, rest ? LANES - rest : 0, LANES};
}

/* ---- tiles: T <= TALL rows, V vectors, both constants ---- */

INLINE void tile_ask_for_next(size_t T, size_t V, const struct product_a *a, const float *at,
                              const float *b, const struct tile_columns *columns)
{
    __builtin_prefetch(at + AHEAD * a->step);
    __builtin_prefetch(at + AHEAD * a->step + T - 1);
    if (V > 1)
        __builtin_prefetch(b + columns->first);
    __builtin_prefetch(b + columns->last);
    __builtin_prefetch(b + columns->last + LANES - 1);
}

/* A vector of a row of c; lanes behind the tile's own are 0. */
INLINE floats tile_load(const float *c, size_t v, size_t V, const struct tile_columns *columns)
{
    if (v + 1 < V)
        return floats_load(c + columns->first);
    return columns->end == LANES ? floats_load(c + columns->last)
                                 : value_load_part(c + columns->last, columns->end);
}

/* Begins with rows of c (NULL: 0), `row` apart. Steps of b are `step` apart. */
INLINE void tile_sum(struct tile *t, size_t T, size_t V, size_t K, const struct product_a *a,
                     const float *b, size_t step, const struct tile_columns *columns,
                     struct reading reads, const float *c, size_t row)
{
    const float *at = a->at;
    floats sum[TALL][PRODUCT_VECTORS];
#pragma GCC unroll 12
    for (size_t m = 0; m < T; m++)
#pragma GCC unroll 2
        for (size_t v = 0; v < V; v++)
            sum[m][v] = c ? tile_load(c + m * row, v, V, columns) : (floats){0};
    for (size_t k = 0; k < K; k++, at += a->step, b += step) {
        floats bv[PRODUCT_VECTORS];
        if (reads.from != READS_PACKED)
            tile_ask_for_next(T, V, a, at, b + AHEAD * step, columns);
        if (reads.from == READS_FIRST)
            __builtin_prefetch(at + reads.next, 0, 2);
        if (V > 1)
            bv[0] = floats_load(b + columns->first);
        bv[V - 1] = reads.from == READS_FEW ? value_load_part(b, columns->end)
                                            : floats_load(b + columns->last);
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

/* Run RUN(m, T, V) with T of the rows from m on. Two tiles of two thirds are
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

/* c[0], the tile's row m, = base + the row. */
INLINE void tile_put_row(const struct tile *t, size_t m, size_t V,
                         const struct tile_columns *columns, const float *base, float *c)
{
#pragma GCC unroll 2
    for (size_t v = 0; v < V; v++) {
        size_t at = v + 1 < V ? columns->first : columns->last;
        floats all = t->at[m][v];
        if (v + 1 < V || (columns->from == 0 && columns->end == LANES))
            floats_store(c + at, base ? floats_load(base + at) + all : all);
        else
            for (size_t l = columns->from; l < columns->end; l++)
                c[at + l] = base ? base[at + l] + all[l] : all[l];
    }
}

/* Rows of c from the tile, with `add` added to them, else to a bias or nothing. */
INLINE void tile_put(const struct tile *t, size_t T, size_t V, const struct tile_columns *columns,
                     bool add, const float *bias, float *c, size_t row)
{
    if (add)
#pragma GCC unroll 12
        for (size_t m = 0; m < T; m++, c += row)
            tile_put_row(t, m, V, columns, c, c);
    else if (bias)
#pragma GCC unroll 12
        for (size_t m = 0; m < T; m++, c += row)
            tile_put_row(t, m, V, columns, bias, c);
    else
#pragma GCC unroll 12
        for (size_t m = 0; m < T; m++, c += row)
            tile_put_row(t, m, V, columns, NULL, c);
}

static const struct reading packed = {READS_PACKED, 0};

static struct product_a rows_from(const struct product_a *a, size_t m)
{
    return (struct product_a){a->at + m * a->row, a->row, a->step};
}

static void multiply_panel(size_t M, size_t n, size_t K, const struct product_a *a, const float *b,
                           enum product_result result, const float *bias, float *c, size_t row)
{
    PL_ASSERT(!bias || result == PRODUCT_SET);
#define RUN(m, T, V)                                                                 \
    do {                                                                             \
        const struct product_a part = rows_from(a, m);                               \
        const struct tile_columns columns = padded_columns(V, n);                    \
        struct tile t;                                                               \
        tile_sum(&t, T, V, K, &part, b, (V)*LANES, &columns, packed,                 \
                 result == PRODUCT_CONTINUE ? c + (m)*row : NULL, row);              \
        tile_put(&t, T, V, &columns, result == PRODUCT_ADD, bias, c + (m)*row, row); \
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
    for (size_t i = 0; i < n; i++, c += row) {
        const float *base = add ? c : bias;
        for (size_t m = 0; m < T; m++)
            c[m] = base ? base[m] + turned[i][m] : turned[i][m];
    }
}

static void multiply_turned(size_t M, size_t n, size_t K, const struct product_a *a, const float *b,
                            bool add, const float *bias, float *c, size_t row)
{
#define RUN(m, T, V)                                                               \
    do {                                                                           \
        struct product_a part = rows_from(a, m);                                   \
        const struct tile_columns columns = padded_columns(V, n);                  \
        struct tile t = {0};                                                       \
        tile_sum(&t, T, V, K, &part, b, (V)*LANES, &columns, packed, NULL, 0);     \
        tile_put_turned(&t, T, V, n, add, bias ? bias + (m) : NULL, c + (m), row); \
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
                        const struct product_a *a, const float *b, size_t step,
                        const struct tile_columns *columns, struct reading reads)
{
    size_t depth = 0;
    struct product_a part = {a->at, 1, a->step};
    for (size_t k = 0, i = 1; k < K; k += slice, i++) {
        size_t len = K - k < slice ? K - k : slice;
        struct tile sum;
        tile_sum(&sum, T, V, len, &part, b + k * step, step, columns, reads, NULL, 0);
        part.at += len * a->step;
        for (size_t bits = i; bits % 2 == 0; bits /= 2)
            tile_add(&sum, &stack[--depth], T, V);
        tile_keep(&stack[depth++], &sum, T, V);
    }
    for (; depth > 1; depth--)
        tile_add(&stack[depth - 2], &stack[depth - 1], T, V);
}

/* The arguments of add_slices. */
struct factors {
    size_t K, slice;
    struct product_a a;
    const float *b;
    size_t step; /* of b */
    float *c;
    size_t row; /* of c */
};

/* Columns `from` to n of M rows. */
static void add_columns(const struct factors *f, size_t M, size_t from, size_t n)
{
    struct tile stack[PRODUCT_LEVELS];
#define ADD(m, T, V, reads)                                                             \
    do {                                                                                \
        const struct product_a part = rows_from(&f->a, m);                              \
        const struct reading each = {reads, M};                                         \
        tile_slices(stack, T, V, f->K, f->slice, &part, f->b, f->step, &columns, each); \
        tile_put(stack, T, V, &columns, true, NULL, f->c + (m)*f->row, f->row);         \
    } while (0)
#define RUN(m, T, V)       ADD(m, T, V, READS_IN_PLACE)
#define RUN_FIRST(m, T, V) ADD(m, T, V, READS_FIRST)
#define RUN_FEW(m, T, V)   ADD(m, T, V, READS_FEW)
    for (size_t at = from; at < n; at += STRIP) {
        const struct tile_columns columns = columns_in_place(at, n);
        if (n < LANES)
            EACH_TILE(M, 1, RUN_FEW);
        else if (at == 0)
            EITHER_WIDTH(M, n, RUN_FIRST);
        else
            EITHER_WIDTH(M, n - at, RUN);
    }
#undef RUN_FEW
#undef RUN_FIRST
#undef RUN
#undef ADD
}

/* The same of M rows, whole vectors of which make a tile with some columns as its rows. */
static void add_columns_turned(const struct factors *f, size_t M, size_t from, size_t n)
{
    struct tile stack[PRODUCT_LEVELS];
    const struct reading in_place = {READS_IN_PLACE, 0};
#define RUN(i, T, V)                                                                           \
    do {                                                                                       \
        const struct product_a part = {f->b + from + (i), 1, f->step};                         \
        const struct tile_columns columns = padded_columns(V, (V)*LANES);                      \
        tile_slices(stack, T, V, f->K, f->slice, &part, f->a.at + rows, f->a.step, &columns,   \
                    in_place);                                                                 \
        tile_put_turned(stack, T, V, (V)*LANES, true, NULL, f->c + rows * f->row + from + (i), \
                        f->row);                                                               \
    } while (0)
    for (size_t rows = 0; rows < M; rows += STRIP)
        EITHER_WIDTH(n - from, M - rows, RUN);
#undef RUN
}

/* The last columns are computed turned if they are at most half a vector: a vector of them would
 * take as long as a whole one. Rows that are fewer than a vector has are not turned. */
static void add_slices(size_t M, size_t n, size_t K, size_t slice, const struct product_a *a,
                       const float *b, size_t step, float *c, size_t row)
{
    size_t last = n % LANES <= LANES / 2 ? n % LANES : 0, whole = M / LANES * LANES;
    struct factors f = {K, slice, *a, b, step, c, row};
    add_columns(&f, M, 0, n - last);
    add_columns_turned(&f, whole, n - last, n);
    f.a = rows_from(a, whole);
    f.c += whole * row;
    add_columns(&f, M - whole, n - last, n);
}

/* ---- packing ---- */

static size_t padded_width(size_t n)
{
    return vectors_of(n) * LANES;
}

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
