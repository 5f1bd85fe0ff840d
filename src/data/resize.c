#include "data/resize.h"

#include "base/fault.h"
#include "base/minmax.h"
#include "tensor/resample_loops.h"

#include <math.h>
#include <string.h>

/* The taps of a side. */
struct axis {
    size_t n;    /* outputs, and outside ones up to a multiple of FOUR */
    size_t most; /* inputs of one output; behind its last weight there are zeros */
    struct resample_tap *tap;
};

static size_t round_up(size_t n)
{
    return (n + FOUR - 1) / FOUR * FOUR;
}

/* Inputs that one output can touch: those less than w on both sides of it. */
static size_t taps_most(size_t n, size_t m)
{
    return 2 * (n > m ? n / m + 1 : 1) + 1;
}

/* One side of a picture: n pixels, where the record has `extent` times their width, become m. */
struct side {
    size_t n, m;
    double extent;
};

static struct side side_of(size_t n, unsigned shrink, size_t m)
{
    return (struct side){shrunk_side(n, shrink), m, (double)n / (1u << shrink)};
}

/* The inputs of output i, which lies at c and reaches less than w to both sides; see the header. */
static struct span find_inputs(const struct side *side, size_t i, double *c, double *w)
{
    double r = side->extent / (double)side->m;
    *c = r * ((double)i + 0.5);
    *w = r > 1 ? r : 1;
    double low = floor(*c - *w - 0.5) + 1, high = ceil(*c + *w - 0.5);
    return (struct span){low > 0 ? (size_t)low : 0,
                         high < (double)side->n ? (size_t)high : side->n};
}

static double weight_at(size_t k, double c, double w)
{
    double weight = 1 - fabs((double)k + 0.5 - c) / w;
    return weight > 0 ? weight : 0;
}

static void take_weights(const struct side *side, size_t i, four *weight, struct resample_tap *tap)
{
    double c, w, sum = 0;
    struct span span = find_inputs(side, i, &c, &w);
    for (size_t k = span.first; k < span.end; k++)
        sum += weight_at(k, c, w);
    for (size_t k = span.first; k < span.end; k++)
        weight[FOUR * (k - span.first)] = (float)(weight_at(k, c, w) / sum) - (four){0};
    *tap = (struct resample_tap){span.first, span.end - span.first, weight};
}

/* The taps of `count` outputs of a side, from `from` on; those outside are means of nothing. */
static void lay_taps(struct axis *axis, const struct side *side, ptrdiff_t from, size_t count,
                     bool mirror, four *weight)
{
    size_t most = taps_most(side->n, side->m);
    memset(weight, 0, axis->n * most * sizeof *weight);
    for (size_t j = 0; j < axis->n; j++) {
        struct resample_tap *tap = &axis->tap[j];
        ptrdiff_t i = from + (ptrdiff_t)(mirror ? count - 1 - j : j);
        four *to = weight + j / FOUR * FOUR * most + j % FOUR;
        *tap = (struct resample_tap){.weight = to};
        if (j < count && i >= 0 && (size_t)i < side->m)
            take_weights(side, (size_t)i, to, tap);
        axis->most = tap->count > axis->most ? tap->count : axis->most;
    }
}

struct span resize_reach(size_t n, unsigned shrink, size_t m, ptrdiff_t from, size_t count)
{
    struct side side = side_of(n, shrink, m);
    ptrdiff_t end = from + (ptrdiff_t)count;
    size_t first = from > 0 ? (size_t)from : 0, behind = end > 0 ? min_size((size_t)end, m) : 0;
    double c, w;
    if (first >= behind)
        return (struct span){0, 0};
    return (struct span){find_inputs(&side, first, &c, &w).first,
                         find_inputs(&side, behind - 1, &c, &w).end};
}

/* ---- columns ---- */

/* The inputs `used` of a row of a plane become the values of pixels that have `step` of them. */
static void spread_line(const struct raw *raw, size_t plane, struct span used, size_t step,
                        float *line)
{
    const uint8_t *bytes = (const uint8_t *)raw->at + plane;
    const float *values = (const float *)raw->at + plane;
    for (size_t k = used.first; k < used.end; k++)
        line[k * step] = raw->form == RAW_FLOATS ? values[k] : (float)bytes[k];
}

/* Row y of all channels, at the columns of `axis`: row (C, axis->n). Those are means of the inputs
 * `used`; `line` has room for FOUR channels, and zeros wherever no inputs are written. */
static void sample_row(const struct raw *raw, size_t y, const struct axis *axis, struct span used,
                       float *line, float *row)
{
    const struct resample_loops *loops = ISA_PICK(resample_loops);
    size_t C = raw->C, W = shrunk_side(raw->W, raw->shrink);
    PL_ASSERT(raw->form == RAW_INTERLEAVED ? C <= FOUR : raw->shrink == 0);
    for (size_t c = 0; c < C; c += FOUR) {
        size_t n = min_size(C - c, FOUR);
        if (raw->form == RAW_INTERLEAVED)
            loops->convert((const uint8_t *)raw->at + (y * W + used.first) * C,
                           (used.end - used.first) * C, line + used.first * C);
        for (size_t i = 0; i < n && raw->form != RAW_INTERLEAVED; i++)
            spread_line(raw, ((c + i) * raw->H + y) * W, used, n, line + i);
        loops->sample(line, n, axis->tap, axis->n, axis->most, row + c * axis->n);
    }
}

/* Sampled rows that outputs still need: row y is at `at` + y % count * each. Behind the last one
 * there is room for what a blend reads. */
struct ring {
    float *at;
    const float **row; /* of an output, `count` at most */
    size_t count, each;
};

static void resample_axes(const struct raw *raw, const struct window *window,
                          const struct axis *rows, const struct axis *columns, float *line,
                          const struct ring *ring, const struct levels *levels, float *x)
{
    const struct resample_loops *loops = ISA_PICK(resample_loops);
    size_t H = window->H, W = window->W, sampled = 0;
    struct span used = resize_reach(raw->W, raw->shrink, window->w, window->left, W);
    for (size_t i = 0; i < H; i++) {
        const struct resample_tap *tap = &rows->tap[i];
        for (sampled = sampled > tap->first ? sampled : tap->first;
             sampled < tap->first + tap->count; sampled++)
            sample_row(raw, sampled, columns, used, line,
                       ring->at + sampled % ring->count * ring->each);
        for (size_t c = 0; c < raw->C; c++) {
            for (size_t k = 0; k < tap->count; k++)
                ring->row[k] =
                    ring->at + (tap->first + k) % ring->count * ring->each + c * columns->n;
            loops->blend(ring->row, tap, levels ? levels->mean[c] : 0, levels ? levels->scale : 1,
                         W, x + (c * H + i) * W);
        }
    }
}

int resize_window(const struct raw *raw, const struct window *window, const struct levels *levels,
                  struct scratch *scratch, float *x)
{
    struct axis rows = {.n = round_up(window->H)}, columns = {.n = round_up(window->W)};
    const struct side down = side_of(raw->H, raw->shrink, window->h);
    const struct side right = side_of(raw->W, raw->shrink, window->w);
    size_t row_most = taps_most(down.n, down.m), column_most = taps_most(right.n, right.m);
    size_t row_weights = rows.n * row_most, column_weights = columns.n * column_most;
    size_t line = round_up((right.n + column_most) * min_size(raw->C, FOUR) + FOUR);
    struct ring ring = {.count = row_most, .each = raw->C * columns.n};
    size_t values = line + ring.count * ring.each + RESAMPLE_WIDTH;
    four *weights =
        scratch_get(scratch, SCRATCH_RESIZE,
                    (row_weights + column_weights) * sizeof *weights + values * sizeof(float) +
                        (rows.n + columns.n) * sizeof *rows.tap + row_most * sizeof *ring.row);
    if (!weights)
        return ERR_NOMEM;
    float *lines = (float *)(weights + row_weights + column_weights);
    ring.at = lines + line;
    rows.tap = (struct resample_tap *)(lines + values);
    columns.tap = rows.tap + rows.n;
    ring.row = (const float **)(columns.tap + columns.n);
    memset(lines, 0, values * sizeof *lines); /* a pixel is read with its neighbours' values */
    lay_taps(&rows, &down, window->top, window->H, false, weights);
    lay_taps(&columns, &right, window->left, window->W, window->mirror, weights + row_weights);
    resample_axes(raw, window, &rows, &columns, lines, &ring, levels, x);
    return OK;
}
