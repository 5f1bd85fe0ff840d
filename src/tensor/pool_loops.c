/* See pool_loops.h. Where channels do not fill the last vector, it is moved back over channels that
 * are done, and does them again; fewer channels than lanes are copied to a vector and back.
 *
 * Places of 8 bits are packed four vectors to one of words, in the order in which a row of y has
 * its vectors: vector i is bits 8 (i mod 4) and up of the words i / 4. So no vector's elements
 * change their width, which would cost more than all the rest. */
#include "tensor/pool_loops.h"

#include <stdbool.h>
#include <string.h>

enum { GROUP = 4, PACK = 4 };

typedef uint32_t words __attribute__((vector_size(LANES * sizeof(uint32_t))));
typedef uint32_t words_anywhere __attribute__((vector_size(LANES * sizeof(uint32_t)), aligned(4)));

#define INLINE static inline __attribute__((always_inline))

/* Some of a pixel's channels: V vectors from `at` on, of which the last begins at `last` and has n
 * lanes, as all others have LANES. */
struct group {
    size_t V, at, last, n;
};

INLINE size_t channel(const struct group *g, size_t v)
{
    return v + 1 < g->V ? g->at + v * LANES : g->last;
}

INLINE floats load(const struct group *g, const value *p, size_t v)
{
    if (g->n == LANES)
        return value_load(p + channel(g, v));
    return value_load_part(p, g->n);
}

INLINE void store(const struct group *g, value *p, size_t v, floats y)
{
    if (g->n == LANES)
        value_store(p + channel(g, v), y);
    else
        value_store_part(p, y, g->n);
}

/* RUN(group) for each of C channels' groups of GROUP vectors; literal numbers are constants for
 * RUN. */
#define EACH_GROUP(C, RUN)                                                       \
    do {                                                                         \
        size_t at_ = 0, last_ = (C)-LANES;                                       \
        for (; at_ + GROUP * LANES <= (C); at_ += GROUP * LANES)                 \
            RUN(((struct group){GROUP, at_, at_ + (GROUP - 1) * LANES, LANES})); \
        if ((C) < LANES)                                                         \
            RUN(((struct group){1, 0, 0, (C)}));                                 \
        else if (at_ + 3 * LANES < (C))                                          \
            RUN(((struct group){4, at_, last_, LANES}));                         \
        else if (at_ + 2 * LANES < (C))                                          \
            RUN(((struct group){3, at_, last_, LANES}));                         \
        else if (at_ + LANES < (C))                                              \
            RUN(((struct group){2, at_, last_, LANES}));                         \
        else if (at_ < (C))                                                      \
            RUN(((struct group){1, at_, last_, LANES}));                         \
    } while (0)

/* Vector v of all of a pixel's channels, which are one group; `few`: fewer than LANES. */
INLINE struct group all_channels(const struct pool_form *p, bool few)
{
    if (few)
        return (struct group){1, 0, 0, p->C};
    return (struct group){(p->C + LANES - 1) / LANES, 0, p->C - LANES, LANES};
}

static size_t count_positions(const struct pool_form *p)
{
    size_t vectors = p->w.m * ((p->C + LANES - 1) / LANES);
    return (p->bits == 8 ? (vectors + PACK - 1) / PACK : vectors) * LANES;
}

INLINE words all(uint32_t number)
{
    return (words){0} + number;
}

/* a where the lane's bits are set, b where they are not. */
INLINE words choose(words set, words a, words b)
{
    return (a & set) | (b & ~set);
}

INLINE words words_load(const uint32_t *p)
{
    return *(const words_anywhere *)(const void *)p;
}

INLINE void words_store(uint32_t *p, words v)
{
    *(words_anywhere *)(void *)p = v;
}

/* ---- forth ---- */

/* A window: its pixels in x, and the position of the first of them in the window, whose corner may
 * be in the padding. */
struct view {
    struct between h, w;
    size_t first;
};

INLINE struct view view_of(const struct pool_form *p, size_t oh, size_t ow)
{
    struct view view = {p->h.pixels[oh], p->w.pixels[ow], 0};
    size_t down = view.h.from + p->h.pad - oh * p->h.stride;
    view.first = down * p->w.kernel + view.w.from + p->w.pad - ow * p->w.stride;
    return view;
}

/* The largest so far, and its position. */
struct maximum {
    floats best;
    words position;
};

/* The first of equal values wins, and of NaNs the last. */
INLINE struct maximum larger(struct maximum a, struct maximum b)
{
    words wins = (words)((b.best > a.best) | (b.best != b.best));
    return (struct maximum){(floats)choose(wins, (words)b.best, (words)a.best),
                            choose(wins, b.position, a.position)};
}

INLINE struct maximum at_position(const struct group *g, const value *x, size_t v, size_t position)
{
    return (struct maximum){load(g, x, v), all((uint32_t)position)};
}

INLINE struct maximum max_window(const struct pool_form *p, const struct group *g, const value *x,
                                 size_t v, const struct view *view)
{
    const value *first = x + (view->h.from * p->w.n + view->w.from) * p->C;
    struct maximum m = at_position(g, first, v, view->first);
    for (size_t h = view->h.from; h < view->h.end; h++) {
        size_t position = view->first + (h - view->h.from) * p->w.kernel;
        for (size_t w = view->w.from; w < view->w.end; w++, position++)
            m = larger(m, at_position(g, x + (h * p->w.n + w) * p->C, v, position));
    }
    return m;
}

/* The output of a row's positions: `count` vectors are in `word` and before it. */
struct packing {
    uint32_t *to;
    words word;
    size_t count;
};

INLINE void pack_position(struct packing *packing, words position, bool wide)
{
    packing->word = wide ? position : packing->word >> 8 | position << 24;
    if (++packing->count % PACK == 0 || wide) {
        words_store(packing->to, packing->word);
        packing->to += LANES;
    }
}

/* Windows that the image's edges cut: of a row of y, from `ow` up to but not `end`. */
INLINE void max_windows(const struct pool_form *p, size_t oh, size_t ow, size_t end, const value *x,
                        value *y, struct packing *packing, bool few, bool wide)
{
    struct group g = all_channels(p, few);
    for (; ow < end; ow++) {
        struct view view = view_of(p, oh, ow);
        for (size_t v = 0; v < g.V; v++) {
            struct maximum m = max_window(p, &g, x, v, &view);
            store(&g, y + ow * p->C, v, m.best);
            if (packing->to)
                pack_position(packing, m.position, wide);
        }
    }
}

/* The first of equal values wins; NaNs are not detected. */
INLINE struct maximum larger_number(struct maximum a, struct maximum b)
{
    words wins = (words)(b.best > a.best);
    return (struct maximum){(floats)choose(wins, (words)b.best, (words)a.best),
                            choose(wins, b.position, a.position)};
}

/* Of a row of 2 or 3 pixels; like max_square a tree, so that comparisons need not wait in line. The
 * sum is not finite where a pixel is none. */
INLINE struct maximum max_row(const struct pool_form *p, const struct group *g, const value *x,
                              size_t v, size_t side, size_t position, floats *sum)
{
    struct maximum a = at_position(g, x, v, position),
                   b = at_position(g, x + p->C, v, position + 1);
    struct maximum m = larger_number(a, b);
    *sum += a.best + b.best;
    if (side == 2)
        return m;
    b = at_position(g, x + 2 * p->C, v, position + 2);
    *sum += b.best;
    return larger_number(m, b);
}

INLINE struct maximum max_square(const struct pool_form *p, const struct group *g, const value *x,
                                 size_t v, size_t side, floats *sum)
{
    size_t row = p->w.n * p->C;
    struct maximum a = max_row(p, g, x, v, side, 0, sum);
    struct maximum m = larger_number(a, max_row(p, g, x + row, v, side, side, sum));
    return side == 2 ? m : larger_number(m, max_row(p, g, x + 2 * row, v, side, 2 * side, sum));
}

/* Prefetch the pixels that the next row's window has and this one's has not: the hardware does not
 * predict them. */
INLINE void fetch_below(const struct pool_form *p, const value *first, size_t side, size_t rows)
{
    for (size_t r = 0; r < rows; r++) {
        const value *at = first + (side + r) * p->w.n * p->C;
        for (size_t c = 0; c < p->w.stride * p->C; c += 16)
            __builtin_prefetch(at + c);
    }
}

/* Whole windows of a row of y; false if a sum shows that they may contain a NaN. */
INLINE bool max_squares(const struct pool_form *p, size_t oh, struct between of, const value *x,
                        value *y, struct packing *packing, size_t side)
{
    struct group g = all_channels(p, false);
    size_t C = p->C, lines = p->h.n - p->h.pixels[oh].end, step = p->w.stride * C;
    const value *first = x + (p->h.pixels[oh].from * p->w.n + p->w.pixels[of.from].from) * C;
    size_t below = lines < p->h.stride ? lines : p->h.stride;
    floats sum = {0};
    y += of.from * C;
    for (size_t ow = of.from; ow < of.end; ow++, y += C, first += step) {
        fetch_below(p, first, side, below);
        for (size_t v = 0; v < g.V; v++) {
            struct maximum m = max_square(p, &g, first, v, side, &sum);
            store(&g, y, v, m.best);
            if (packing->to)
                pack_position(packing, m.position, false);
        }
    }
    float none = 0;
    for (size_t l = 0; l < LANES; l++)
        none += sum[l] - sum[l];
    return none == 0;
}

/* Those of a row of y. */
static struct between whole_windows(const struct pool_form *p, size_t oh, size_t side)
{
    struct between whole = {0, p->w.m};
    const struct between *rows = &p->h.pixels[oh], *columns = p->w.pixels;
    if (rows->end - rows->from < side)
        return (struct between){0, 0};
    while (whole.from < whole.end && columns[whole.from].end - columns[whole.from].from < side)
        whole.from++;
    while (whole.end > whole.from &&
           columns[whole.end - 1].end - columns[whole.end - 1].from < side)
        whole.end--;
    return whole;
}

/* The last word of a row may be incomplete. */
static void packing_end(struct packing *packing)
{
    size_t rest = packing->count % PACK;
    if (packing->to && rest)
        words_store(packing->to, packing->word >> (uint32_t)(8 * (PACK - rest)));
}

INLINE void max_row_of_windows(const struct pool_form *p, size_t oh, const value *x, value *y,
                               uint32_t *won, bool few, bool wide)
{
    struct packing packing = {.to = won};
    max_windows(p, oh, 0, p->w.m, x, y, &packing, few, wide);
    if (!wide)
        packing_end(&packing);
}

INLINE void max_row_of_squares(const struct pool_form *p, size_t oh, const value *x, value *y,
                               uint32_t *won, size_t side)
{
    struct packing packing = {.to = won};
    struct between whole = whole_windows(p, oh, side);
    max_windows(p, oh, 0, whole.from, x, y, &packing, false, false);
    if (whole.from < whole.end && !max_squares(p, oh, whole, x, y, &packing, side)) {
        max_row_of_windows(p, oh, x, y, won, false, false);
        return;
    }
    max_windows(p, oh, whole.end, p->w.m, x, y, &packing, false, false);
    packing_end(&packing);
}

static void pool_max(const struct pool_form *p, size_t oh, const void *x, void *y, uint32_t *won)
{
    if (p->bits > 8)
        max_row_of_windows(p, oh, x, y, won, p->C < LANES, true);
    else if (p->C < LANES)
        max_row_of_windows(p, oh, x, y, won, true, false);
    else if (p->h.kernel == 2 && p->w.kernel == 2)
        max_row_of_squares(p, oh, x, y, won, 2);
    else if (p->h.kernel == 3 && p->w.kernel == 3)
        max_row_of_squares(p, oh, x, y, won, 3);
    else
        max_row_of_windows(p, oh, x, y, won, false, false);
}

INLINE void average_group(const struct pool_form *p, size_t oh, const value *x, value *y,
                          struct group g)
{
    size_t C = p->C;
    struct between rows = p->h.pixels[oh];
    for (size_t ow = 0; ow < p->w.m; ow++, y += C) {
        struct between columns = p->w.pixels[ow];
        floats sum[GROUP] = {0};
        for (size_t h = rows.from; h < rows.end; h++)
            for (size_t w = columns.from; w < columns.end; w++)
                for (size_t v = 0; v < g.V; v++)
                    sum[v] += load(&g, x + (h * p->w.n + w) * C, v);
        float share = p->h.share[oh] * p->w.share[ow];
        for (size_t v = 0; v < g.V; v++)
            store(&g, y, v, sum[v] * share);
    }
}

static void pool_average(const struct pool_form *p, size_t oh, const void *x, void *y)
{
#define RUN(group) average_group(p, oh, x, y, group)
    EACH_GROUP(p->C, RUN);
#undef RUN
}

/* ---- back ---- */

/* The pixels in both: R rows by K columns of windows, from (oh, ow) on, of the first of which the
 * pixel is `position`. */
struct around {
    size_t oh, ow, position;
};

/* A pixel's vector is that of dy of all windows that it won. */
INLINE void max_back_pixel(const struct pool_form *p, const struct around *at, const value *dy,
                           const uint32_t *won, size_t row, value *dx, size_t R, size_t K, bool few,
                           bool wide)
{
    size_t C = p->C, OW = p->w.m;
    struct group g = all_channels(p, few);
    const value *of = dy + (at->oh * OW + at->ow) * C;
    const uint32_t *line = won + at->oh * row;
    for (size_t v = 0; v < g.V; v++) {
        floats sum = {0};
        for (size_t k = 0; k < K; k++) {
            size_t i = (at->ow + k) * g.V + v;
            const uint32_t *word = line + (wide ? i : i / PACK) * LANES;
            words mask = all(wide ? 0xffffffffu : 0xffu << (i % PACK * 8));
            for (size_t r = 0; r < R; r++) {
                size_t position = at->position - r * p->h.stride * p->w.kernel - k * p->w.stride;
                words off = words_load(word + r * row);
                off = (off ^ all((uint32_t)position * (wide ? 1u : 0x01010101u))) & mask;
                words mine = (words)load(&g, of + (r * OW + k) * C, v);
                sum += (floats)((words)(off == all(0)) & mine);
            }
        }
        store(&g, dx, v, sum);
    }
}

/* A row of pixels in R rows of windows. */
INLINE void max_back_row(const struct pool_form *p, size_t h, const value *dy, const uint32_t *won,
                         value *dx, size_t R)
{
    size_t C = p->C, oh = p->h.windows[h].from, row = count_positions(p);
    size_t down = (h + p->h.pad - oh * p->h.stride) * p->w.kernel;
    for (size_t w = 0; w < p->w.n; w++, dx += C) {
        struct between columns = p->w.windows[w];
        size_t K = columns.end - columns.from, position = w + p->w.pad - columns.from * p->w.stride;
        struct around at = {oh, columns.from, down + position};
        if (p->bits > 8)
            max_back_pixel(p, &at, dy, won, row, dx, R, K, C < LANES, true);
        else if (C < LANES)
            max_back_pixel(p, &at, dy, won, row, dx, R, K, true, false);
        else if (K == 1)
            max_back_pixel(p, &at, dy, won, row, dx, R, 1, false, false);
        else if (K == 2)
            max_back_pixel(p, &at, dy, won, row, dx, R, 2, false, false);
        else if (K == 3)
            max_back_pixel(p, &at, dy, won, row, dx, R, 3, false, false);
        else
            max_back_pixel(p, &at, dy, won, row, dx, R, K, false, false);
    }
}

/* A row of one vector of channels, of windows `side` wide and `stride` apart; the row is in R rows
 * of windows. Windows are processed from left to right: `next` holds one's contributions to pixels
 * that it shares with the next. */
INLINE void max_back_sweep(const struct pool_form *p, size_t h, const value *dy,
                           const uint32_t *won, value *dx, size_t side, size_t stride, size_t R,
                           const struct group *g, size_t v)
{
    size_t C = p->C, row = count_positions(p), W = p->w.n, first = p->h.windows[h].from;
    size_t w = 0 - p->w.pad; /* of the current pixel; negative ones count as past W */
    words position[3];
    floats next[2] = {{0}, {0}};
    for (size_t r = 0; r < R; r++)
        position[r] = all((uint32_t)((h + p->h.pad - (first + r) * stride) * side));
    for (size_t ow = 0; ow < p->w.m; ow++) {
        floats given[3] = {{0}, {0}, {0}};
        size_t i = ow * g->V + v;
#pragma GCC unroll 3
        for (size_t r = 0; r < R; r++) {
            words mine = words_load(won + (first + r) * row + i / PACK * LANES);
            words of = (words)load(g, dy + ((first + r) * p->w.m + ow) * C, v);
            mine = mine >> (uint32_t)(i % PACK * 8) & all(0xff);
#pragma GCC unroll 3
            for (size_t k = 0; k < side; k++)
                given[k] += (floats)((words)(mine == position[r] + all((uint32_t)k)) & of);
        }
#pragma GCC unroll 3
        for (size_t k = 0; k < stride; k++, w++)
            if (w < W)
                store(g, dx + w * C, v, k + stride < side ? next[k] + given[k] : given[k]);
        next[0] = stride == 1 ? next[1] + given[1] : given[2];
        next[1] = given[2];
    }
    for (size_t k = 0; w < W; w++, k++)
        store(g, dx + w * C, v, k + stride < side ? next[k < 2 ? k : 1] : (floats){0});
}

INLINE void max_back_sweeps(const struct pool_form *p, size_t h, const value *dy,
                            const uint32_t *won, value *dx, size_t side, size_t stride)
{
    struct group g = all_channels(p, false);
    struct between rows = p->h.windows[h];
    size_t R = rows.end - rows.from;
    for (size_t v = 0; v < g.V; v++) {
        if (R == 1)
            max_back_sweep(p, h, dy, won, dx, side, stride, 1, &g, v);
        else if (R == 2 && side > stride)
            max_back_sweep(p, h, dy, won, dx, side, stride, 2, &g, v);
        else if (R == 3 && stride == 1)
            max_back_sweep(p, h, dy, won, dx, side, stride, 3, &g, v);
        else
            max_back_sweep(p, h, dy, won, dx, side, stride, 0, &g, v);
    }
}

static bool is_square(const struct pool_form *p, size_t side, size_t stride)
{
    return p->h.kernel == side && p->w.kernel == side && p->h.stride == stride &&
           p->w.stride == stride;
}

/* Where pixels have few vectors, a row for each of them costs less than to look around at each. */
static void max_back(const struct pool_form *p, size_t h, const void *dy, const uint32_t *won,
                     void *dx)
{
    bool narrow = p->C >= LANES && p->C <= 2 * LANES;
    size_t R = p->h.windows[h].end - p->h.windows[h].from;
    if (narrow && is_square(p, 2, 2))
        max_back_sweeps(p, h, dy, won, dx, 2, 2);
    else if (narrow && is_square(p, 3, 2))
        max_back_sweeps(p, h, dy, won, dx, 3, 2);
    else if (R == 1)
        max_back_row(p, h, dy, won, dx, 1);
    else if (R == 2)
        max_back_row(p, h, dy, won, dx, 2);
    else if (R == 3)
        max_back_row(p, h, dy, won, dx, 3);
    else
        max_back_row(p, h, dy, won, dx, R);
}

INLINE void average_back_group(const struct pool_form *p, size_t h, const value *dy, value *dx,
                               struct group g)
{
    struct between rows = p->h.windows[h];
    for (size_t w = 0; w < p->w.n; w++, dx += p->C) {
        struct between columns = p->w.windows[w];
        floats sum[GROUP] = {0};
        for (size_t oh = rows.from; oh < rows.end; oh++)
            for (size_t ow = columns.from; ow < columns.end; ow++) {
                float share = p->h.share[oh] * p->w.share[ow];
                for (size_t v = 0; v < g.V; v++)
                    sum[v] += share * load(&g, dy + (oh * p->w.m + ow) * p->C, v);
            }
        for (size_t v = 0; v < g.V; v++)
            store(&g, dx, v, sum[v]);
    }
}

static void average_back(const struct pool_form *p, size_t h, const void *dy, void *dx)
{
#define RUN(group) average_back_group(p, h, dy, dx, group)
    EACH_GROUP(p->C, RUN);
#undef RUN
}

const struct pool_loops VALUES_NAME(pool_loops) = {
    .positions = count_positions,
    .max = pool_max,
    .average = pool_average,
    .max_back = max_back,
    .average_back = average_back,
};
