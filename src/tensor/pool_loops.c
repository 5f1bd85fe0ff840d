/* See pool_loops.h. A pixel's channels go by groups of up to GROUP vectors, which share all that is
 * not arithmetic. Where channels do not fill the last vector, it is moved back over channels that
 * are done, and does them again; fewer channels than lanes are copied to a vector and back.
 *
 * Places of 8 bits are bytes of a group's words: those of its vector v are bits 8v to 8v + 7. So no
 * vector's elements change their width, which would cost more than all the rest. */
#include "tensor/pool_loops.h"

#include <stdbool.h>
#include <string.h>

enum { GROUP = 4, GROUP_WIDE = 1 };

typedef uint32_t words __attribute__((vector_size(LANES * sizeof(uint32_t))));
typedef uint32_t words_anywhere __attribute__((vector_size(LANES * sizeof(uint32_t)), aligned(4)));

#define INLINE static inline __attribute__((always_inline))

/* Some of a pixel's channels: V vectors from `at` on, of which the last begins at `last` and has n
 * lanes, as all others have LANES. It is the pixel's kth group. */
struct group {
    size_t k, V, at, last, n;
};

INLINE size_t channel(const struct group *g, size_t v)
{
    return v + 1 < g->V ? g->at + v * LANES : g->last;
}

INLINE floats load(const struct group *g, const float *p, size_t v)
{
    if (g->n == LANES)
        return floats_load(p + channel(g, v));
    floats part = {0};
    memcpy(&part, p, g->n * sizeof *p);
    return part;
}

INLINE void store(const struct group *g, float *p, size_t v, floats value)
{
    if (g->n == LANES)
        floats_store(p + channel(g, v), value);
    else
        memcpy(p, &value, g->n * sizeof *p);
}

/* RUN(group) for each of C channels' groups of `size` vectors; what is written as a number is a
 * constant to RUN. */
#define EACH_GROUP(size, C, RUN)                                                     \
    do {                                                                             \
        size_t k_ = 0, at_ = 0, last_ = (C)-LANES;                                   \
        for (; at_ + (size)*LANES <= (C); at_ += (size)*LANES, k_++)                 \
            RUN(((struct group){k_, (size), at_, at_ + ((size)-1) * LANES, LANES})); \
        if ((C) < LANES)                                                             \
            RUN(((struct group){0, 1, 0, 0, (C)}));                                  \
        else if (at_ + 3 * LANES < (C))                                              \
            RUN(((struct group){k_, 4, at_, last_, LANES}));                         \
        else if (at_ + 2 * LANES < (C))                                              \
            RUN(((struct group){k_, 3, at_, last_, LANES}));                         \
        else if (at_ + LANES < (C))                                                  \
            RUN(((struct group){k_, 2, at_, last_, LANES}));                         \
        else if (at_ < (C))                                                          \
            RUN(((struct group){k_, 1, at_, last_, LANES}));                         \
    } while (0)

static size_t places(const struct pool_form *p)
{
    size_t lanes = (p->bits == 8 ? GROUP : GROUP_WIDE) * LANES;
    return (p->C + lanes - 1) / lanes * LANES;
}

INLINE words all(uint32_t value)
{
    return (words){0} + value;
}

/* a where the lane's bits are set, b where they are not. */
INLINE words choose(words set, words a, words b)
{
    return (a & set) | (b & ~set);
}

/* ---- forth ---- */

/* A window: its pixels in x, and the place of the first of them in the window, whose corner may lie
 * in the padding. */
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

/* The largest yet, and where it was. */
struct maximum {
    floats best;
    words place;
};

/* The first of equals wins, and what is not a number if it comes first. */
INLINE struct maximum larger(struct maximum a, struct maximum b)
{
    words wins = (words)(b.best > a.best);
    return (struct maximum){(floats)choose(wins, (words)b.best, (words)a.best),
                            choose(wins, b.place, a.place)};
}

INLINE struct maximum at_place(const struct group *g, const float *x, size_t v, size_t place)
{
    return (struct maximum){load(g, x, v), all((uint32_t)place)};
}

/* Of a row of 2 or 3 pixels; like max_square a tree, so that comparisons need not wait in line. */
INLINE struct maximum max_row(const struct pool_form *p, const struct group *g, const float *x,
                              size_t v, size_t side, size_t place)
{
    size_t C = p->C;
    struct maximum m = larger(at_place(g, x, v, place), at_place(g, x + C, v, place + 1));
    return side == 2 ? m : larger(m, at_place(g, x + 2 * C, v, place + 2));
}

INLINE struct maximum max_square(const struct pool_form *p, const struct group *g, const float *x,
                                 size_t v, size_t side)
{
    size_t row = p->w.n * p->C;
    struct maximum m = larger(max_row(p, g, x, v, side, 0), max_row(p, g, x + row, v, side, side));
    return side == 2 ? m : larger(m, max_row(p, g, x + 2 * row, v, side, 2 * side));
}

INLINE struct maximum max_window(const struct pool_form *p, const struct group *g, const float *x,
                                 size_t v, const struct view *view)
{
    const float *first = x + (view->h.from * p->w.n + view->w.from) * p->C;
    struct maximum m = at_place(g, first, v, view->first);
    for (size_t h = view->h.from; h < view->h.end; h++) {
        size_t place = view->first + (h - view->h.from) * p->w.kernel;
        for (size_t w = view->w.from; w < view->w.end; w++, place++)
            m = larger(m, at_place(g, x + (h * p->w.n + w) * p->C, v, place));
    }
    return m;
}

/* `side`: of a square window, where it is 2 or 3; else 0. */
INLINE void max_group(const struct pool_form *p, size_t oh, const float *x, float *y, uint32_t *won,
                      size_t side, size_t bits, struct group g)
{
    size_t C = p->C, step = places(p);
    for (size_t ow = 0; ow < p->w.m; ow++, y += C) {
        struct view view = view_of(p, oh, ow);
        const float *first = x + (view.h.from * p->w.n + view.w.from) * C;
        bool whole = side && view.h.end - view.h.from == side && view.w.end - view.w.from == side;
        words word = {0};
#pragma GCC unroll 4
        for (size_t v = 0; v < g.V; v++) {
            struct maximum m =
                whole ? max_square(p, &g, first, v, side) : max_window(p, &g, x, v, &view);
            store(&g, y, v, m.best);
            word |= m.place << (uint32_t)(v * bits);
        }
        if (won)
            *(words_anywhere *)(void *)(won + ow * step + g.k * LANES) = word;
    }
}

static void max(const struct pool_form *p, size_t oh, const float *x, float *y, uint32_t *won)
{
#define RUN2(group)     max_group(p, oh, x, y, won, 2, 8, group)
#define RUN3(group)     max_group(p, oh, x, y, won, 3, 8, group)
#define RUN(group)      max_group(p, oh, x, y, won, 0, 8, group)
#define RUN_WIDE(group) max_group(p, oh, x, y, won, 0, 0, group)
    if (p->bits > 8)
        EACH_GROUP(GROUP_WIDE, p->C, RUN_WIDE);
    else if (p->h.kernel == 2 && p->w.kernel == 2)
        EACH_GROUP(GROUP, p->C, RUN2);
    else if (p->h.kernel == 3 && p->w.kernel == 3)
        EACH_GROUP(GROUP, p->C, RUN3);
    else
        EACH_GROUP(GROUP, p->C, RUN);
#undef RUN2
#undef RUN3
#undef RUN
#undef RUN_WIDE
}

INLINE void average_group(const struct pool_form *p, size_t oh, const float *x, float *y,
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

static void average(const struct pool_form *p, size_t oh, const float *x, float *y)
{
#define RUN(group) average_group(p, oh, x, y, group)
    EACH_GROUP(GROUP, p->C, RUN);
#undef RUN
}

/* ---- back ---- */

/* The place of the pixel in a window is as many times `each` as there are vectors in a word. */
INLINE void max_back_group(const struct pool_form *p, size_t h, const float *dy,
                           const uint32_t *won, float *dx, size_t bits, struct group g)
{
    size_t C = p->C, OW = p->w.m, step = places(p), at_h = h + p->h.pad;
    uint32_t each = bits == 8 ? 0x01010101u : 1, mask = bits == 8 ? 0xffu : 0xffffffffu;
    struct between rows = p->h.windows[h];
    for (size_t w = 0; w < p->w.n; w++, dx += C) {
        struct between columns = p->w.windows[w];
        floats sum[GROUP] = {0};
        for (size_t oh = rows.from; oh < rows.end; oh++)
            for (size_t ow = columns.from; ow < columns.end; ow++) {
                size_t place =
                    (at_h - oh * p->h.stride) * p->w.kernel + w + p->w.pad - ow * p->w.stride;
                const uint32_t *at = won + (oh * OW + ow) * step + g.k * LANES;
                words off = *(const words_anywhere *)(const void *)at ^ all((uint32_t)place * each);
                for (size_t v = 0; v < g.V; v++) {
                    words mine = (words)((off & all(mask << (v * bits))) == all(0));
                    sum[v] += (floats)(mine & (words)load(&g, dy + (oh * OW + ow) * C, v));
                }
            }
        for (size_t v = 0; v < g.V; v++)
            store(&g, dx, v, sum[v]);
    }
}

/* A row of one vector of channels, of windows `side` wide and `stride` apart, of which it lies in R
 * rows. Windows are met from left to right: what one gives to pixels that the next has, too, goes
 * along in `next`. */
INLINE void max_back_sweep(const struct pool_form *p, size_t h, const float *dy,
                           const uint32_t *won, float *dx, size_t side, size_t stride, size_t R,
                           const struct group *g, size_t v)
{
    size_t C = p->C, step = places(p), W = p->w.n, first = p->h.windows[h].from;
    size_t w = 0 - p->w.pad; /* of the pixel whose turn it is; those before 0 count as past W */
    words mask = all(0xffu << (8 * v)), place[3];
    floats next[2] = {{0}, {0}};
    for (size_t r = 0; r < R; r++)
        place[r] = all((uint32_t)((h + p->h.pad - (first + r) * stride) * side) << (8 * v));
    for (size_t ow = 0; ow < p->w.m; ow++) {
        floats given[3] = {{0}, {0}, {0}};
#pragma GCC unroll 3
        for (size_t r = 0; r < R; r++) {
            size_t at = (first + r) * p->w.m + ow;
            words mine = *(const words_anywhere *)(const void *)(won + at * step + g->k * LANES);
            words of = (words)load(g, dy + at * C, v);
            mine &= mask;
#pragma GCC unroll 3
            for (size_t k = 0; k < side; k++)
                given[k] += (floats)((words)(mine == place[r] + all((uint32_t)k << (8 * v))) & of);
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

INLINE void max_back_sweeps(const struct pool_form *p, size_t h, const float *dy,
                            const uint32_t *won, float *dx, size_t side, size_t stride,
                            struct group g)
{
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

static void max_back(const struct pool_form *p, size_t h, const float *dy, const uint32_t *won,
                     float *dx)
{
#define RUN22(group)    max_back_sweeps(p, h, dy, won, dx, 2, 2, group)
#define RUN32(group)    max_back_sweeps(p, h, dy, won, dx, 3, 2, group)
#define RUN31(group)    max_back_sweeps(p, h, dy, won, dx, 3, 1, group)
#define RUN(group)      max_back_group(p, h, dy, won, dx, 8, group)
#define RUN_WIDE(group) max_back_group(p, h, dy, won, dx, 0, group)
    if (p->bits > 8)
        EACH_GROUP(GROUP_WIDE, p->C, RUN_WIDE);
    else if (is_square(p, 2, 2))
        EACH_GROUP(GROUP, p->C, RUN22);
    else if (is_square(p, 3, 2))
        EACH_GROUP(GROUP, p->C, RUN32);
    else if (is_square(p, 3, 1))
        EACH_GROUP(GROUP, p->C, RUN31);
    else
        EACH_GROUP(GROUP, p->C, RUN);
#undef RUN22
#undef RUN32
#undef RUN31
#undef RUN
#undef RUN_WIDE
}

INLINE void average_back_group(const struct pool_form *p, size_t h, const float *dy, float *dx,
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

static void average_back(const struct pool_form *p, size_t h, const float *dy, float *dx)
{
#define RUN(group) average_back_group(p, h, dy, dx, group)
    EACH_GROUP(GROUP, p->C, RUN);
#undef RUN
}

const struct pool_loops ISA_NAME(pool_loops) = {
    .places = places,
    .max = max,
    .average = average,
    .max_back = max_back,
    .average_back = average_back,
};
