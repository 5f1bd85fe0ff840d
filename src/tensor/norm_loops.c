/* The passes over memory that normalising is made of. Four vectors of the period at a time, a
 * column, are taken down through the rows, so that terms and sums stay in registers. Sums are in
 * floats over ROWS of a column, and in double over these. */
#include "tensor/norm_loops.h"

#define INLINE static inline __attribute__((always_inline))

enum { COLUMN = 4, ROWS = 64 };

typedef int ints __attribute__((vector_size(LANES * sizeof(int))));

/* Rows of a column: the first element is x[first + at], `at` floats into the period. The column has
 * V vectors of `len` elements. */
struct column {
    size_t first, rows, at;
};

typedef void column_fn(const struct norm_run *r, struct column col, size_t V, size_t len);

INLINE floats load(const value *p, size_t len)
{
    return len == LANES ? value_load(p) : value_load_part(p, len);
}

INLINE void store(value *p, floats v, size_t len)
{
    if (len == LANES)
        value_store(p, v);
    else
        value_store_part(p, v, len);
}

/* v where `keep` is set, else 0. */
INLINE floats only(floats v, ints keep)
{
    return (floats)((ints)v & keep);
}

/* 0 for negative values; keeps NaN and infinity. */
INLINE floats rectify(floats v)
{
    return only(v, ~(ints)(v < 0.0f));
}

INLINE void fold(const floats *v, size_t V, size_t len, double *sum)
{
    for (size_t i = 0; i < V; i++)
        for (size_t l = 0; l < len; l++)
            sum[i * LANES + l] += (double)v[i][l];
}

INLINE void read_terms(const float *term, size_t at, size_t V, floats *out)
{
    for (size_t v = 0; v < V; v++)
        out[v] = term ? floats_load(term + at + v * LANES) : (floats){0};
}

/* Columns are whole in whole rows; the last row may end anywhere. */
INLINE void walk(const struct norm_run *r, column_fn *visit)
{
    size_t P = r->period, whole = r->n / P, rest = r->n % P;
    for (size_t row = 0; row < whole; row += ROWS) {
        size_t rows = whole - row < ROWS ? whole - row : ROWS;
        for (size_t at = 0; at < P; at += (size_t)COLUMN * LANES)
            visit(r, (struct column){row * P + at, rows, at}, COLUMN, LANES);
    }
    for (size_t at = 0; at < rest; at += LANES) {
        const struct column col = {whole * P + at, 1, at};
        if (rest - at >= LANES)
            visit(r, col, 1, LANES);
        else
            visit(r, col, 1, rest - at);
    }
}

/* ---- forward ---- */

INLINE void moments_column(const struct norm_run *r, struct column col, size_t V, size_t len)
{
    floats k[COLUMN], s[COLUMN] = {0}, q[COLUMN] = {0};
    read_terms(r->k, col.at, V, k);
    const value *x = (const value *)r->x + col.first;
    for (size_t row = 0; row < col.rows; row++, x += r->period)
        for (size_t v = 0; v < V; v++) {
            floats d = load(x + v * LANES, len) - k[v];
            s[v] += d;
            q[v] += d * d;
        }
    fold(s, V, len, r->sum + col.at);
    fold(q, V, len, r->sum + r->period + col.at);
}

static void run_moments(const struct norm_run *run)
{
    walk(run, moments_column);
}

INLINE void apply_column(const struct norm_run *r, struct column col, size_t V, size_t len,
                         bool adds, bool relu)
{
    floats k[COLUMN], a[COLUMN], b[COLUMN];
    read_terms(r->k, col.at, V, k);
    read_terms(r->a, col.at, V, a);
    read_terms(r->b, col.at, V, b);
    const value *x = r->x, *z = r->z;
    value *out = r->out;
    for (size_t row = 0, i = col.first; row < col.rows; row++, i += r->period)
        for (size_t v = 0; v < V; v++) {
            size_t at = i + v * LANES;
            floats y = a[v] * (load(x + at, len) - k[v]) + b[v];
            if (adds)
                y += load(z + at, len);
            store(out + at, relu ? rectify(y) : y, len);
        }
}

/* A column of one kind, for walk. */
#define KIND(name, visit, ...)                                                          \
    INLINE void name(const struct norm_run *r, struct column col, size_t V, size_t len) \
    {                                                                                   \
        visit(r, col, V, len, __VA_ARGS__);                                             \
    }

KIND(apply_only, apply_column, false, false)
KIND(apply_relu, apply_column, false, true)
KIND(apply_add, apply_column, true, false)
KIND(apply_add_relu, apply_column, true, true)

static void run_apply(const struct norm_run *run)
{
    if (run->z && run->relu)
        walk(run, apply_add_relu);
    else if (run->z)
        walk(run, apply_add);
    else if (run->relu)
        walk(run, apply_relu);
    else
        walk(run, apply_only);
}

/* ---- backward ---- */

INLINE floats gradient(const struct norm_run *r, size_t at, size_t len, enum norm_mask mask,
                       floats self, bool two)
{
    const value *all = r->dy, *more = r->dy2, *top = r->y;
    floats dy = load(all + at, len);
    if (two)
        dy += load(more + at, len);
    if (mask == NORM_MASK_NONE)
        return dy;
    floats y = mask == NORM_MASK_TOP ? load(top + at, len) : self;
    return only(dy, (ints)(y > 0.0f));
}

INLINE void sums_column(const struct norm_run *r, struct column col, size_t V, size_t len,
                        enum norm_mask mask, bool writes, bool two)
{
    floats k[COLUMN], a[COLUMN], b[COLUMN], s[COLUMN] = {0}, q[COLUMN] = {0};
    read_terms(r->k, col.at, V, k);
    read_terms(r->a, col.at, V, a);
    read_terms(r->b, col.at, V, b);
    const value *x = r->x;
    value *out = r->out;
    for (size_t row = 0, i = col.first; row < col.rows; row++, i += r->period)
        for (size_t v = 0; v < V; v++) {
            size_t at = i + v * LANES;
            floats d = load(x + at, len) - k[v];
            floats g = gradient(r, at, len, mask, a[v] * d + b[v], two);
            s[v] += g;
            q[v] += g * d;
            if (writes)
                store(out + at, g, len);
        }
    fold(s, V, len, r->sum + col.at);
    fold(q, V, len, r->sum + r->period + col.at);
}

/* And one of two gradients. */
#define KINDS(name, visit, ...)           \
    KIND(name, visit, __VA_ARGS__, false) \
    KIND(name##_two, visit, __VA_ARGS__, true)
#define WALK(run, name) ((run)->dy2 ? walk(run, name##_two) : walk(run, name))

KINDS(sums_only, sums_column, NORM_MASK_NONE, false)
KINDS(sums_copy, sums_column, NORM_MASK_NONE, true)
KINDS(sums_top, sums_column, NORM_MASK_TOP, false)
KINDS(sums_top_copy, sums_column, NORM_MASK_TOP, true)
KINDS(sums_self, sums_column, NORM_MASK_SELF, false)

static void run_sums(const struct norm_run *run)
{
    if (run->mask == NORM_MASK_SELF)
        WALK(run, sums_self);
    else if (run->mask == NORM_MASK_TOP && run->out)
        WALK(run, sums_top_copy);
    else if (run->mask == NORM_MASK_TOP)
        WALK(run, sums_top);
    else if (run->out)
        WALK(run, sums_copy);
    else
        WALK(run, sums_only);
}

INLINE void slopes_column(const struct norm_run *r, struct column col, size_t V, size_t len,
                          enum norm_mask mask, bool centres, bool two)
{
    floats k[COLUMN], a[COLUMN], b[COLUMN], p[COLUMN], q[COLUMN], c[COLUMN];
    bool reads_x = centres || mask == NORM_MASK_SELF;
    read_terms(r->k, col.at, V, k);
    read_terms(r->a, col.at, V, a);
    read_terms(r->b, col.at, V, b);
    read_terms(r->p, col.at, V, p);
    read_terms(r->q, col.at, V, q);
    read_terms(r->c, col.at, V, c);
    const value *x = r->x;
    value *out = r->out;
    for (size_t row = 0, i = col.first; row < col.rows; row++, i += r->period)
        for (size_t v = 0; v < V; v++) {
            size_t at = i + v * LANES;
            floats d = reads_x ? load(x + at, len) - k[v] : k[v];
            floats dx = p[v] * gradient(r, at, len, mask, a[v] * d + b[v], two);
            if (centres)
                dx += q[v] * d + c[v];
            store(out + at, dx, len);
        }
}

KINDS(slopes_only, slopes_column, NORM_MASK_NONE, false)
KINDS(slopes_top, slopes_column, NORM_MASK_TOP, false)
KINDS(slopes_self, slopes_column, NORM_MASK_SELF, false)
KINDS(slopes_centred, slopes_column, NORM_MASK_NONE, true)
KINDS(slopes_centred_top, slopes_column, NORM_MASK_TOP, true)
KINDS(slopes_centred_self, slopes_column, NORM_MASK_SELF, true)

static void run_slopes(const struct norm_run *run)
{
    switch (run->mask) {
    case NORM_MASK_NONE: run->q ? WALK(run, slopes_centred) : WALK(run, slopes_only); break;
    case NORM_MASK_TOP: run->q ? WALK(run, slopes_centred_top) : WALK(run, slopes_top); break;
    case NORM_MASK_SELF: run->q ? WALK(run, slopes_centred_self) : WALK(run, slopes_self); break;
    }
}

const struct norm_loops VALUES_NAME(norm_loops) = {
    .group = COLUMN * LANES,
    .moments = run_moments,
    .apply = run_apply,
    .sums = run_sums,
    .slopes = run_slopes,
};
