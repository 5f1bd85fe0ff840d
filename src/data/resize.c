#include "data/resize.h"

#include "base/fault.h"

#include <math.h>
#include <string.h>

/* Which inputs an output is the mean of: `count` of them from `first` on; 0: it lies outside. */
struct tap {
    size_t first, count;
    const float *weight;
};

struct axis {
    size_t n; /* outputs */
    struct tap *tap;
};

/* Inputs that one output can touch: those less than w on both sides of it. */
static size_t taps_most(size_t n, size_t m)
{
    return 2 * (n > m ? n / m + 1 : 1) + 1;
}

/* The weights of output i of m, of n inputs; see the header. */
static size_t take_weights(size_t n, size_t m, size_t i, float *weight, size_t *count)
{
    double r = (double)n / (double)m, c = r * ((double)i + 0.5), w = r > 1 ? r : 1;
    double low = ceil(c - w - 0.5), high = floor(c + w - 0.5);
    size_t first = low > 0 ? (size_t)low : 0;
    size_t last = high < (double)(n - 1) ? (size_t)high : n - 1;
    double sum = 0;
    for (size_t k = first; k <= last; k++)
        sum += fmax(1 - fabs((double)k + 0.5 - c) / w, 0);
    for (size_t k = first; k <= last; k++)
        weight[k - first] = (float)(fmax(1 - fabs((double)k + 0.5 - c) / w, 0) / sum);
    *count = last - first + 1;
    return first;
}

/* The taps of outputs `from` .. `from` + axis->n - 1 of m, from n inputs. */
static void lay_taps(struct axis *axis, size_t n, size_t m, ptrdiff_t from, bool mirror,
                     float *weight)
{
    size_t most = taps_most(n, m);
    for (size_t j = 0; j < axis->n; j++, weight += most) {
        struct tap *tap = &axis->tap[mirror ? axis->n - 1 - j : j];
        ptrdiff_t i = from + (ptrdiff_t)j;
        *tap = (struct tap){.weight = weight};
        if (i >= 0 && (size_t)i < m)
            tap->first = take_weights(n, m, (size_t)i, weight, &tap->count);
    }
}

/* Four neighbouring floats, of which a pixel has one to four. */
typedef float four __attribute__((vector_size(16)));
enum { FOUR = 4 };

/* Where the columns of `axis` begin and end among the inputs. */
static void find_span(const struct axis *axis, size_t n, size_t *first, size_t *end)
{
    *first = n;
    *end = 0;
    for (size_t j = 0; j < axis->n; j++) {
        const struct tap *tap = &axis->tap[j];
        if (tap->count > 0 && tap->first < *first)
            *first = tap->first;
        if (tap->count > 0 && tap->first + tap->count > *end)
            *end = tap->first + tap->count;
    }
}

/* All channels of a row of pixels, as floats: a pixel's channels are multiplied and added together.
 */
static void sample_pixels(const float *line, size_t C, const struct axis *axis, float *row)
{
    for (size_t j = 0; j < axis->n; j++) {
        const struct tap *tap = &axis->tap[j];
        const float *from = line + tap->first * C;
        four sum = {0}, pixel;
        for (size_t k = 0; k < tap->count; k++, from += C) {
            memcpy(&pixel, from, sizeof pixel);
            sum += tap->weight[k] * pixel;
        }
        for (size_t c = 0; c < C; c++)
            row[c * axis->n + j] = sum[c];
    }
}

static void sample_line(const float *line, const struct axis *axis, float *row)
{
    for (size_t j = 0; j < axis->n; j++) {
        const struct tap *tap = &axis->tap[j];
        const float *from = line + tap->first;
        float sum = 0;
        for (size_t k = 0; k < tap->count; k++)
            sum += tap->weight[k] * from[k];
        row[j] = sum;
    }
}

static void line_of_bytes(const uint8_t *bytes, size_t from, size_t to, float *line)
{
    for (size_t k = from; k < to; k++)
        line[k] = (float)bytes[k];
}

/* Row y of all channels, at the columns of `axis`: row (C, axis->n). Those are means of the inputs
 * [first, end); `line` has room for a row of pixels, and FOUR floats more. */
static void sample_row(const struct raw *raw, size_t y, const struct axis *axis, size_t first,
                       size_t end, float *line, float *row)
{
    size_t C = raw->C, W = raw->W;
    if (raw->form == RAW_INTERLEAVED && C <= FOUR) {
        line_of_bytes((const uint8_t *)raw->at + y * W * C, first * C, end * C, line);
        sample_pixels(line, C, axis, row);
        return;
    }
    PL_ASSERT(raw->form != RAW_INTERLEAVED);
    for (size_t c = 0; c < C; c++) {
        size_t plane = (c * raw->H + y) * W;
        if (raw->form == RAW_PLANES)
            line_of_bytes((const uint8_t *)raw->at + plane, first, end, line);
        sample_line(raw->form == RAW_PLANES ? line : (const float *)raw->at + plane, axis,
                    row + c * axis->n);
    }
}

/* A row of inputs is added, with its weights, to the rows of outputs [live, ...) that it is part
 * of. */
static void add_row(const struct axis *rows, size_t live, size_t y, size_t C, size_t W,
                    const float *row, float *x)
{
    for (size_t i = live; i < rows->n; i++) {
        const struct tap *tap = &rows->tap[i];
        if (tap->count > 0 && tap->first > y)
            break;
        if (tap->count == 0)
            continue;
        float weight = tap->weight[y - tap->first];
        for (size_t c = 0; c < C; c++) {
            float *out = x + (c * rows->n + i) * W;
            for (size_t j = 0; j < W; j++)
                out[j] += weight * row[c * W + j];
        }
    }
}

static void resample_axes(const struct raw *raw, const struct axis *rows,
                          const struct axis *columns, float *line, float *row, float *x)
{
    size_t H = rows->n, W = columns->n, first, end, left, right;
    find_span(rows, raw->H, &first, &end);
    find_span(columns, raw->W, &left, &right);
    memset(x, 0, raw->C * H * W * sizeof *x);
    size_t live = 0; /* outputs before it have had all their rows */
    for (size_t y = first; y < end && left < right; y++) {
        sample_row(raw, y, columns, left, right, line, row);
        while (live < H && rows->tap[live].first + rows->tap[live].count <= y)
            live++;
        add_row(rows, live, y, raw->C, W, row, x);
    }
}

int resize_window(const struct raw *raw, const struct window *window, struct scratch *scratch,
                  float *x)
{
    size_t H = window->H, W = window->W;
    size_t row_weights = H * taps_most(raw->H, window->h);
    size_t column_weights = W * taps_most(raw->W, window->w);
    size_t line = raw->W * raw->C + FOUR;
    size_t floats = row_weights + column_weights + raw->C * W + line;
    struct tap *taps =
        scratch_get(scratch, SCRATCH_RESIZE, (H + W) * sizeof *taps + floats * sizeof(float));
    if (!taps)
        return ERR_NOMEM;
    float *weights = (float *)(taps + H + W);
    struct axis rows = {H, taps}, columns = {W, taps + H};
    lay_taps(&rows, raw->H, window->h, window->top, false, weights);
    lay_taps(&columns, raw->W, window->w, window->left, window->mirror, weights + row_weights);
    float *lines = weights + row_weights + column_weights;
    memset(lines, 0, line * sizeof *lines); /* a pixel is read with its neighbour's values */
    resample_axes(raw, &rows, &columns, lines, lines + line, x);
    return OK;
}
