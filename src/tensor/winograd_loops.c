/* See winograd_loops.h. Transforms are straight lines of code over vectors of channels: everything
 * is unrolled over the points, whose number is known here, and no more values live at a time than
 * there are registers. */
#include "tensor/winograd_loops.h"

#include "tensor/isa_loops.h"

#include <string.h>

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define INLINE static inline __attribute__((always_inline))

enum { TILE = WINOGRAD_TILE, BLOCK = WINOGRAD_BLOCK, ALPHA_MAX = 8 };

/* Polynomials are taken at α points: 0, P pairs ±p, and ∞. K = 2P - 1, α = 2P + 2. */
enum { P3X3 = 2, P5X5 = 3 };

/* Points near 1 whose products are exact keep errors small (Barabasz et al.): those of 3 × 3 are
 * four times as good as ±1, ±2. */
static const struct {
    float p[3];
    float all[4];     /* Π (y - p²): the factors of 1, y, y², .. */
    float but[3][3];  /* the same without one pair */
    float slope[4];   /* of x Π (x² - p²), at 0 and at the pairs */
} points[] = {
    [P3X3] = {{0.625f, 1.5f},
              {0.87890625f, -2.640625f, 1},
              {{-2.25f, 1}, {-0.390625f, 1}},
              {0.87890625f, -1.45263671875f, 8.3671875f}},
    [P5X5] = {{0.5f, 1, 2},
              {-1, 5.25f, -5.25f, 1},
              {{4, -5, 1}, {1, -4.25f, 1}, {0.25f, -1.25f, 1}},
              {-1, 1.40625f, -4.5f, 90}},
};

INLINE float square(int P, int i)
{
    return points[P].p[i] * points[P].p[i];
}

/* ---- one dimension ---- */

/* Σ factor[k] · d[2k], the last of the n factors being 1. */
INLINE floats even(int n, const float *factor, const floats *d, int step)
{
    floats sum = d[(n - 1) * step];
    UNROLL
    for (int k = n - 2; k >= 0; k--)
        sum += factor[k] * d[k * step];
    return sum;
}

/* v = B^T d: the row of a point holds the factors of Π (x - q) over all other points q. */
INLINE void input_1d(int P, const floats *d, floats *v)
{
    v[0] = even(P + 1, points[P].all, d, 2);
    UNROLL
    for (int i = 0; i < P; i++) {
        floats e = even(P, points[P].but[i], d + 2, 2), o = even(P, points[P].but[i], d + 1, 2);
        v[1 + 2 * i] = e + points[P].p[i] * o;
        v[2 + 2 * i] = e - points[P].p[i] * o;
    }
    v[2 * P + 1] = even(P + 1, points[P].all, d + 1, 2);
}

/* y = A^T m: y[k] = Σ p^k m[p], and m[∞] in the last. Of its four rows the even ones take sums of
 * the pairs, y[0] and y[2], and the odd ones differences. */
INLINE void output_even(int P, const floats *m, floats *y)
{
    y[0] = m[0];
    UNROLL
    for (int i = P - 1; i >= 0; i--) {
        floats s = m[1 + 2 * i] + m[2 + 2 * i];
        y[0] += s;
        y[1] = i == P - 1 ? square(P, i) * s : y[1] + square(P, i) * s;
    }
}

INLINE void output_odd(int P, const floats *m, floats *y)
{
    y[1] = m[2 * P + 1];
    UNROLL
    for (int i = P - 1; i >= 0; i--) {
        floats d = m[1 + 2 * i] - m[2 + 2 * i];
        float p = points[P].p[i];
        y[0] = i == P - 1 ? p * d : y[0] + p * d;
        y[1] += square(P, i) * p * d;
    }
}

/* u = G g: g as a polynomial at each point, over the slope there. */
INLINE void filter_1d(int P, const floats *g, floats *u)
{
    u[0] = g[0] * (1 / points[P].slope[0]);
    UNROLL
    for (int i = 0; i < P; i++) {
        floats e = g[2 * P - 2], o = g[2 * P - 3];
        UNROLL
        for (int k = P - 2; k >= 0; k--) {
            e = g[2 * k] + square(P, i) * e;
            if (k)
                o = g[2 * k - 1] + square(P, i) * o;
        }
        o *= points[P].p[i];
        u[1 + 2 * i] = (e + o) * (1 / points[P].slope[i + 1]);
        u[2 + 2 * i] = (e - o) * (1 / points[P].slope[i + 1]);
    }
    u[2 * P + 1] = g[2 * P - 2];
}

/* ---- tiles ---- */

struct place {
    size_t n, i, j;
};

INLINE struct place place_of(const struct winograd_image *image, size_t tile)
{
    size_t tiles = image->rows * image->columns, at = tile % tiles;
    return (struct place){tile / tiles, at / image->columns, at % image->columns};
}

INLINE void place_next(const struct winograd_image *image, struct place *at)
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
    float *first;
    size_t row, pixel;
    addresses table[ALPHA_MAX];
};

/* The tile of size × size at `at`. Returns whether it takes the table. */
INLINE bool tile_at(const struct winograd_image *image, const struct place *at, size_t size,
                    float *x, float *outside, bool read, struct tile *tile)
{
    size_t C = image->C, W = image->W, H = image->H;
    size_t i = at->i * TILE - image->top, j = at->j * TILE - image->left; /* wraps, outside */
    bool last = read && at->n + 1 == image->N && H - i <= size && W - j <= size;
    float *first = x + (at->n * H * W + i * W + j) * C;
    tile->first = first;
    tile->row = W * C;
    tile->pixel = C;
    if (i < H && j < W && H - i >= size && W - j >= size && !(last && C % BLOCK))
        return false;
    const addresses columns = {0, 1, 2, 3, 4, 5, 6, 7};
    addresses steps = columns * (C * sizeof *x), within = (addresses)(columns + j < W);
    UNROLL
    for (size_t u = 0; u < size; u++) {
        addresses row = (size_t)(first + u * W * C) + steps;
        addresses inside = i + u < H ? within : (addresses){0};
        tile->table[u] = (row & inside) | ((size_t)outside & ~inside);
    }
    if (last)
        tile->table[H - i - 1][W - j - 1] = (size_t)(outside + winograd_blocks(C) * BLOCK);
    return true;
}

/* Channels c to c + LANES of a pixel. */
INLINE float *pixel_at(const struct tile *tile, bool table, int i, int j, size_t c)
{
    return c + (table ? (float *)((const volatile size_t *)&tile->table[i])[j]
                      : tile->first + (size_t)i * tile->row + (size_t)j * tile->pixel);
}

/* ---- input ---- */

INLINE void input_row(int P, const floats *t, float *v, size_t point)
{
    floats r[ALPHA_MAX];
    input_1d(P, t, r);
    UNROLL
    for (int j = 0; j < 2 * P + 2; j++)
        floats_store(v + (size_t)j * point, r[j]);
}

/* The rows of B^T d, only so many at a time as there are registers for. */
INLINE void input_tile(int P, bool table, const struct tile *d, size_t c, float *v, size_t point)
{
    const int alpha = 2 * P + 2, most = P == 2 ? 2 : 1;
    floats t[2 * 2][ALPHA_MAX], column[ALPHA_MAX];
    UNROLL
    for (int edge = 0; edge < 2; edge++) {
        UNROLL
        for (int j = 0; j < alpha; j++) {
            UNROLL
            for (int k = 0; k <= P; k++)
            {
                const float *pixel = pixel_at(d, table, edge + 2 * k, j, c);
                column[k] = floats_load(pixel);
                if (j >= alpha - TILE) /* the next tile's */
                    __builtin_prefetch(pixel + TILE * d->pixel);
            }
            t[0][j] = even(P + 1, points[P].all, column, 1);
        }
        input_row(P, t[0], v + (size_t)(edge * alpha * (alpha - 1)) * point, point);
    }
    UNROLL
    for (int from = 0; from < P; from += most) {
        UNROLL
        for (int j = 0; j < alpha; j++) {
            UNROLL
            for (int k = 1; k <= 2 * P; k++)
                column[k] = floats_load(pixel_at(d, table, k, j, c));
            UNROLL
            for (int i = 0; i < most; i++) {
                floats e = even(P, points[P].but[from + i], column + 2, 2);
                floats o = even(P, points[P].but[from + i], column + 1, 2);
                t[2 * i][j] = e + points[P].p[from + i] * o;
                t[2 * i + 1][j] = e - points[P].p[from + i] * o;
            }
        }
        UNROLL
        for (int i = 0; i < 2 * most; i++)
            input_row(P, t[i], v + (size_t)((1 + 2 * from + i) * alpha) * point, point);
    }
}

#define NOINLINE static __attribute__((noinline)) void
NOINLINE input_inside_3x3(const struct tile *d, size_t c, float *v, size_t point)
{
    input_tile(P3X3, false, d, c, v, point);
}

NOINLINE input_table_3x3(const struct tile *d, size_t c, float *v, size_t point)
{
    input_tile(P3X3, true, d, c, v, point);
}

NOINLINE input_inside_5x5(const struct tile *d, size_t c, float *v, size_t point)
{
    input_tile(P5X5, false, d, c, v, point);
}

NOINLINE input_table_5x5(const struct tile *d, size_t c, float *v, size_t point)
{
    input_tile(P5X5, true, d, c, v, point);
}

INLINE void input(int P, const struct winograd_image *image, const float *x, const float *outside,
                  size_t first, size_t tiles, size_t blocks, struct winograd_slab slab, float *V)
{
    struct place at = place_of(image, first);
    struct tile d;
    for (size_t t = 0; t < tiles; t++, place_next(image, &at)) {
        bool table = tile_at(image, &at, (size_t)(2 * P + 2), (float *)x, (float *)outside, true, &d);
        for (size_t c = 0; c < blocks * BLOCK; c += LANES) {
            float *v = V + c / BLOCK * slab.block + t * BLOCK + c % BLOCK;
            if (P == P3X3)
                (table ? input_table_3x3 : input_inside_3x3)(&d, c, v, slab.point);
            else
                (table ? input_table_5x5 : input_inside_5x5)(&d, c, v, slab.point);
        }
    }
}

/* ---- output ---- */

/* Rows `from` and every `step`th after it. */
INLINE void output_rows(int P, bool table, int from, int step, const float *m, size_t point,
                        const float *b, const struct tile *y, size_t c)
{
    const int alpha = 2 * P + 2;
    floats t[TILE][ALPHA_MAX], column[ALPHA_MAX], pair[2];
    UNROLL
    for (int j = 0; j < alpha; j++) {
        UNROLL
        for (int i = 0; i < alpha; i++)
            column[i] = floats_load(m + (size_t)(i * alpha + j) * point);
        UNROLL
        for (int k = from; k < 2; k += step) {
            if (k)
                output_odd(P, column, pair);
            else
                output_even(P, column, pair);
            t[k][j] = pair[0];
            t[k + 2][j] = pair[1];
        }
    }
    UNROLL
    for (int k = from; k < TILE; k += step) {
        floats e[2], o[2];
        output_even(P, t[k], e);
        output_odd(P, t[k], o);
        floats row[TILE] = {e[0], o[0], e[1], o[1]};
        UNROLL
        for (int j = 0; j < TILE; j++)
            floats_store(pixel_at(y, table, k, j, c), row[j] + floats_load(b));
    }
}

INLINE void output_tile(int P, bool table, const float *m, size_t point, const float *b,
                        const struct tile *y, size_t c)
{
    if (P == P3X3) {
        output_rows(P, table, 0, 1, m, point, b, y, c);
    } else {
        output_rows(P, table, 0, 2, m, point, b, y, c);
        output_rows(P, table, 1, 2, m, point, b, y, c);
    }
}

NOINLINE output_inside_3x3(const float *m, size_t point, const float *b, const struct tile *y,
                          size_t c)
{
    output_tile(P3X3, false, m, point, b, y, c);
}

NOINLINE output_table_3x3(const float *m, size_t point, const float *b, const struct tile *y,
                          size_t c)
{
    output_tile(P3X3, true, m, point, b, y, c);
}

NOINLINE output_inside_5x5(const float *m, size_t point, const float *b, const struct tile *y,
                          size_t c)
{
    output_tile(P5X5, false, m, point, b, y, c);
}

NOINLINE output_table_5x5(const float *m, size_t point, const float *b, const struct tile *y,
                          size_t c)
{
    output_tile(P5X5, true, m, point, b, y, c);
}

/* A block of which the image has only so many channels. */
INLINE void output_rest(int P, const float *m, size_t point, const float *b, size_t channels,
                        const struct tile *y, bool table, size_t c)
{
    float copy[TILE * TILE * BLOCK];
    struct tile whole = {.first = copy, .row = TILE * BLOCK, .pixel = BLOCK};
    for (size_t l = 0; l < BLOCK; l += LANES)
        output_tile(P, false, m + l, point, b + l, &whole, l);
    for (int i = 0; i < TILE; i++)
        for (int j = 0; j < TILE; j++)
            memcpy(pixel_at(y, table, i, j, c), copy + (i * TILE + j) * BLOCK, channels * sizeof *copy);
}

INLINE void output(int P, const struct winograd_image *image, float *y, float *outside,
                   size_t first, size_t tiles, size_t channels, struct winograd_slab slab,
                   const float *M, const float *b)
{
    struct place at = place_of(image, first);
    struct tile to;
    size_t rest = channels % BLOCK;
    for (size_t t = 0; t < tiles; t++, place_next(image, &at)) {
        bool table = tile_at(image, &at, TILE, y, outside, false, &to);
        for (size_t c = 0; c < channels - rest; c += LANES) {
            const float *m = M + c / BLOCK * slab.block + t * BLOCK + c % BLOCK;
            if (P == P3X3)
                (table ? output_table_3x3 : output_inside_3x3)(m, slab.point, b + c, &to, c);
            else
                (table ? output_table_5x5 : output_inside_5x5)(m, slab.point, b + c, &to, c);
        }
        if (rest)
            output_rest(P, M + channels / BLOCK * slab.block + t * BLOCK, slab.point,
                        b + channels - rest, rest, &to, table, channels - rest);
    }
}

/* v = A y: the polynomial of y at each point. */
INLINE void back_1d(int P, const floats *y, floats *v)
{
    v[0] = y[0];
    UNROLL
    for (int i = 0; i < P; i++) {
        floats e = y[0] + square(P, i) * y[2], o = y[1] + square(P, i) * y[3];
        v[1 + 2 * i] = e + points[P].p[i] * o;
        v[2 + 2 * i] = e - points[P].p[i] * o;
    }
    v[2 * P + 1] = y[3];
}

INLINE void back_row(int P, const floats *t, float *v, size_t point)
{
    floats r[ALPHA_MAX];
    back_1d(P, t, r);
    UNROLL
    for (int j = 0; j < 2 * P + 2; j++)
        floats_store(v + (size_t)j * point, r[j]);
}

INLINE void back_tile(int P, bool table, const struct tile *d, size_t c, float *v, size_t point)
{
    const int alpha = 2 * P + 2;
    floats s[TILE], t[TILE], y[TILE];
    UNROLL
    for (int edge = 0; edge < 2; edge++) {
        UNROLL
        for (int j = 0; j < TILE; j++)
            t[j] = floats_load(pixel_at(d, table, 3 * edge, j, c));
        back_row(P, t, v + (size_t)(edge * alpha * (alpha - 1)) * point, point);
    }
    UNROLL
    for (int i = 0; i < P; i++) {
        UNROLL
        for (int j = 0; j < TILE; j++) {
            UNROLL
            for (int k = 0; k < TILE; k++)
                y[k] = floats_load(pixel_at(d, table, k, j, c));
            floats e = y[0] + square(P, i) * y[2], o = y[1] + square(P, i) * y[3];
            s[j] = e + points[P].p[i] * o;
            t[j] = e - points[P].p[i] * o;
        }
        back_row(P, s, v + (size_t)((1 + 2 * i) * alpha) * point, point);
        back_row(P, t, v + (size_t)((2 + 2 * i) * alpha) * point, point);
    }
}

NOINLINE back_inside_3x3(const struct tile *d, size_t c, float *v, size_t point)
{
    back_tile(P3X3, false, d, c, v, point);
}

NOINLINE back_table_3x3(const struct tile *d, size_t c, float *v, size_t point)
{
    back_tile(P3X3, true, d, c, v, point);
}

NOINLINE back_inside_5x5(const struct tile *d, size_t c, float *v, size_t point)
{
    back_tile(P5X5, false, d, c, v, point);
}

NOINLINE back_table_5x5(const struct tile *d, size_t c, float *v, size_t point)
{
    back_tile(P5X5, true, d, c, v, point);
}

INLINE void add_sum(bool table, const struct tile *d, size_t c, float *db)
{
    floats row[TILE];
    UNROLL
    for (int i = 0; i < TILE; i++) {
        row[i] = floats_load(pixel_at(d, table, i, 0, c));
        UNROLL
        for (int j = 1; j < TILE; j++)
            row[i] += floats_load(pixel_at(d, table, i, j, c));
    }
    floats_store(db, floats_load(db) + ((row[0] + row[1]) + (row[2] + row[3])));
}

INLINE void output_back(int P, const struct winograd_image *image, const float *dy,
                        const float *outside, size_t first, size_t tiles, size_t blocks,
                        struct winograd_slab slab, float *dM, float *db)
{
    struct place at = place_of(image, first);
    struct tile d;
    for (size_t t = 0; t < tiles; t++, place_next(image, &at)) {
        bool table = tile_at(image, &at, TILE, (float *)dy, (float *)outside, true, &d);
        for (size_t c = 0; c < blocks * BLOCK; c += LANES) {
            float *v = dM + c / BLOCK * slab.block + t * BLOCK + c % BLOCK;
            if (P == P3X3)
                (table ? back_table_3x3 : back_inside_3x3)(&d, c, v, slab.point);
            else
                (table ? back_table_5x5 : back_inside_5x5)(&d, c, v, slab.point);
            if (db)
                add_sum(table, &d, c, db + c);
        }
    }
}

/* ---- filters ---- */

enum { FILTERS = 4 }; /* read at a time: what was just written by halves is slow to read whole */

INLINE void filter_tile(int P, const float *g, float *u, size_t point)
{
    const int alpha = 2 * P + 2, K = 2 * P - 1;
    floats t[5][ALPHA_MAX], line[5], row[ALPHA_MAX];
    UNROLL
    for (int j = 0; j < K; j++) {
        UNROLL
        for (int i = 0; i < K; i++)
            line[i] = floats_load(g + (i * K + j) * BLOCK);
        filter_1d(P, line, t[j]);
    }
    UNROLL
    for (int i = 0; i < alpha; i++) {
        UNROLL
        for (int j = 0; j < K; j++)
            line[j] = t[j][i];
        filter_1d(P, line, row);
        UNROLL
        for (int j = 0; j < alpha; j++)
            floats_store(u + (size_t)(i * alpha + j) * point, row[j]);
    }
}

INLINE void filters(int P, const struct winograd_filters *f, const float *w, size_t k, size_t count,
                    size_t c, size_t point, float *U)
{
    const size_t K = (size_t)(2 * P - 1), taps = K * K;
    float g[FILTERS * 25 * BLOCK] = {0};
    size_t width = f->out - c < BLOCK ? f->out - c : BLOCK;
    for (size_t from = 0; from < count; from += FILTERS) {
        size_t some = count - from < FILTERS ? count - from : FILTERS;
        for (size_t n = 0; n < some; n++)
            for (size_t o = 0; o < width; o++) {
                const float *at = w + (c + o) * f->out_step + (k + from + n) * f->in_step;
                float *to = g + n * taps * BLOCK + o;
                UNROLL
                for (size_t i = 0; i < taps; i++)
                    to[(f->turned ? taps - 1 - i : i) * BLOCK] = at[i];
            }
        for (size_t n = 0; n < some; n++)
            for (size_t l = 0; l < BLOCK; l += LANES)
                filter_tile(P, g + n * taps * BLOCK + l, U + (from + n) * BLOCK + l, point);
    }
}

/* g = G^T u. */
INLINE void filter_back_1d(int P, const floats *u, floats *g)
{
    const int K = 2 * P - 1;
    UNROLL
    for (int k = 0; k < K; k++)
        g[k] = (floats){0};
    UNROLL
    for (int i = P - 1; i >= 0; i--) {
        floats e = (u[1 + 2 * i] + u[2 + 2 * i]) * (1 / points[P].slope[i + 1]);
        floats o = (u[1 + 2 * i] - u[2 + 2 * i]) * (points[P].p[i] / points[P].slope[i + 1]);
        UNROLL
        for (int k = 0; k < K; k += 2) {
            g[k] += e;
            e *= square(P, i);
            if (k + 1 < K) {
                g[k + 1] += o;
                o *= square(P, i);
            }
        }
    }
    g[0] += u[0] * (1 / points[P].slope[0]);
    g[K - 1] += u[2 * P + 1];
}

INLINE void filter_back_tile(int P, const float *dU, size_t point, size_t parts, size_t part,
                             float *g)
{
    const int alpha = 2 * P + 2, K = 2 * P - 1;
    floats t[ALPHA_MAX][5], line[ALPHA_MAX], back[5];
    UNROLL
    for (int i = 0; i < alpha; i++) {
        UNROLL
        for (int j = 0; j < alpha; j++) {
            const float *u = dU + (size_t)(i * alpha + j) * point;
            line[j] = floats_load(u);
            for (size_t n = 1; n < parts; n++)
                line[j] += floats_load(u + n * part);
        }
        filter_back_1d(P, line, t[i]);
    }
    UNROLL
    for (int j = 0; j < K; j++) {
        UNROLL
        for (int i = 0; i < alpha; i++)
            line[i] = t[i][j];
        filter_back_1d(P, line, back);
        UNROLL
        for (int i = 0; i < K; i++)
            floats_store(g + (i * K + j) * BLOCK, back[i]);
    }
}

INLINE void filters_back(int P, const struct winograd_filters *f, const float *dU, size_t point,
                         size_t parts, size_t part, size_t k, size_t c, float *dw)
{
    const size_t K = (size_t)(2 * P - 1), taps = K * K;
    float g[FILTERS * 25 * BLOCK];
    size_t width = f->out - c < BLOCK ? f->out - c : BLOCK;
    size_t count = f->in - k < BLOCK ? f->in - k : BLOCK;
    for (size_t from = 0; from < count; from += FILTERS) {
        size_t some = count - from < FILTERS ? count - from : FILTERS;
        for (size_t n = 0; n < some; n++)
            for (size_t l = 0; l < BLOCK; l += LANES)
                filter_back_tile(P, dU + (from + n) * BLOCK + l, point, parts, part,
                                 g + n * taps * BLOCK + l);
        for (size_t n = 0; n < some; n++)
            for (size_t o = 0; o < width; o++) {
                float *to = dw + (c + o) * f->out_step + (k + from + n) * f->in_step;
                UNROLL
                for (size_t i = 0; i < taps; i++)
                    to[i] += g[(n * taps + i) * BLOCK + o];
            }
    }
}

/* ---- products ---- */

enum { IN_STEP = 128 }; /* of a sum, so that what is read again stays in the nearest cache */

/* R rows × N vectors of m = v u or m += v u, of which `depth` products each are summed; rows of m
 * are a block apart, and so are the vectors of u. Rows of v are a block apart, too, and v goes on
 * by v_block after each block of the sum; turned, it is its columns that are. */
INLINE void multiply_some(int R, int N, bool turned, size_t depth, const float *v, size_t v_block,
                          const float *u, size_t u_block, float *m, size_t m_block, bool add)
{
    floats sum[16][2];
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
        for (int n = 0; n < N; n++)
            sum[r][n] = add ? floats_load(m + r * BLOCK + (size_t)(n * LANES / BLOCK) * m_block +
                                          n * LANES % BLOCK)
                            : (floats){0};
    while (depth) {
        size_t some = depth < BLOCK || turned ? depth : BLOCK;
        depth -= some;
        for (size_t k = 0; k < some; k++, u += BLOCK) {
            const float *row = turned ? v + k * BLOCK : v + k;
            UNROLL
            for (int n = 0; n < N; n++) {
                floats w =
                    floats_load(u + (size_t)(n * LANES / BLOCK) * u_block + n * LANES % BLOCK);
                UNROLL
                for (int r = 0; r < R; r++)
                    sum[r][n] += row[turned ? r : r * BLOCK] * w;
            }
        }
        v += v_block;
    }
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
        for (int n = 0; n < N; n++)
            floats_store(m + r * BLOCK + (size_t)(n * LANES / BLOCK) * m_block + n * LANES % BLOCK,
                         sum[r][n]);
}

/* As many accumulators as registers are for, and of u two vectors where there are two. */
#if defined __AVX512F__
enum { ROWS = 8 };
#else
enum { ROWS = 4 };
#endif
enum { PAIR = 2 * LANES > BLOCK ? 2 : 1 };

static void multiply(size_t tiles, size_t in, size_t out_blocks, const float *V, size_t v_block,
                     const float *U, size_t u_block, bool add, float *M, size_t m_block)
{
    for (size_t k = 0; k < in; k += IN_STEP) {
        size_t some = in - k < IN_STEP ? in - k : IN_STEP, o = 0;
        const float *v = V + k / BLOCK * v_block, *u = U + k * BLOCK;
        for (; o + PAIR <= out_blocks; o += PAIR)
            for (size_t l = 0; l < PAIR * BLOCK; l += 2 * LANES)
                for (size_t t = 0; t < tiles; t += ROWS)
                    multiply_some(ROWS, 2, false, some, v + t * BLOCK, v_block,
                                  u + o * u_block + l, u_block, M + o * m_block + t * BLOCK + l,
                                  m_block, add || k > 0);
        for (; o < out_blocks; o++) {
            size_t t = 0;
            for (; t + 2 * ROWS <= tiles; t += 2 * ROWS)
                multiply_some(2 * ROWS, 1, false, some, v + t * BLOCK, v_block, u + o * u_block,
                              u_block, M + o * m_block + t * BLOCK, m_block, add || k > 0);
            for (; t < tiles; t += ROWS)
                multiply_some(ROWS, 1, false, some, v + t * BLOCK, v_block, u + o * u_block,
                              u_block, M + o * m_block + t * BLOCK, m_block, add || k > 0);
        }
    }
}

static void multiply_back(size_t tiles, size_t in_blocks, size_t out_blocks, const float *V,
                          size_t v_block, const float *dM, size_t m_block, bool add, float *dU)
{
    for (size_t k = 0; k < in_blocks; k++, dU += out_blocks * BLOCK * BLOCK) {
        size_t o = 0;
        for (; o + PAIR <= out_blocks; o += PAIR)
            for (size_t l = 0; l < PAIR * BLOCK; l += 2 * LANES)
                for (size_t r = 0; r < BLOCK; r += ROWS)
                    multiply_some(ROWS, 2, true, tiles, V + k * v_block + r, 0,
                                  dM + o * m_block + l, m_block,
                                  dU + (o * BLOCK + r) * BLOCK + l, BLOCK * BLOCK, add);
        for (; o < out_blocks; o++)
            multiply_some(16, 1, true, tiles, V + k * v_block, 0, dM + o * m_block, m_block,
                          dU + o * BLOCK * BLOCK, BLOCK * BLOCK, add);
    }
}

/* ---- the table ---- */

#define LOOPS_OF(P)                                                                                \
    static void input_##P(const struct winograd_image *image, const float *x,                      \
                          const float *outside, size_t first, size_t tiles, size_t blocks,         \
                          struct winograd_slab slab, float *V)                                     \
    {                                                                                              \
        input(P, image, x, outside, first, tiles, blocks, slab, V);                                \
    }                                                                                              \
    static void output_##P(const struct winograd_image *image, float *y, float *outside,           \
                           size_t first, size_t tiles, size_t channels, struct winograd_slab slab, \
                           const float *M, const float *b)                                         \
    {                                                                                              \
        output(P, image, y, outside, first, tiles, channels, slab, M, b);                          \
    }                                                                                              \
    static void output_back_##P(const struct winograd_image *image, const float *dy,               \
                                const float *outside, size_t first, size_t tiles, size_t blocks,   \
                                struct winograd_slab slab, float *dM, float *db)                   \
    {                                                                                              \
        output_back(P, image, dy, outside, first, tiles, blocks, slab, dM, db);                    \
    }                                                                                              \
    static void filters_##P(const struct winograd_filters *f, const float *w, size_t k,            \
                            size_t count, size_t c, size_t point, float *U)                        \
    {                                                                                              \
        filters(P, f, w, k, count, c, point, U);                                                   \
    }                                                                                              \
    static void filters_back_##P(const struct winograd_filters *f, const float *dU, size_t point,  \
                                 size_t parts, size_t part, size_t k, size_t c, float *dw)         \
    {                                                                                              \
        filters_back(P, f, dU, point, parts, part, k, c, dw);                                      \
    }
LOOPS_OF(2)
LOOPS_OF(3)

const struct winograd_loops ISA_NAME(winograd_loops)[2] = {
    {input_2, output_2, output_back_2, filters_2, filters_back_2, multiply, multiply_back},
    {input_3, output_3, output_back_3, filters_3, filters_back_3, multiply, multiply_back},
};
