#include "data/resize.h"

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

/* Row y of channel c, at the columns of `axis`. */
static void sample_row(const struct raw *raw, size_t c, size_t y, const struct axis *axis,
                       float *row)
{
    const uint8_t *bytes = raw->at;
    const float *floats = raw->at;
    size_t C = raw->C, W = raw->W;
    for (size_t j = 0; j < axis->n; j++) {
        const struct tap *tap = &axis->tap[j];
        size_t plane = (c * raw->H + y) * W + tap->first;
        float sum = 0;
        if (raw->form == RAW_INTERLEAVED) {
            const uint8_t *from = bytes + (y * W + tap->first) * C + c;
            for (size_t k = 0; k < tap->count; k++)
                sum += tap->weight[k] * (float)from[k * C];
        } else if (raw->form == RAW_PLANES) {
            for (size_t k = 0; k < tap->count; k++)
                sum += tap->weight[k] * (float)bytes[plane + k];
        } else {
            for (size_t k = 0; k < tap->count; k++)
                sum += tap->weight[k] * floats[plane + k];
        }
        row[j] = sum;
    }
}

static void resample_axes(const struct raw *raw, const struct axis *rows,
                          const struct axis *columns, float *row, float *x)
{
    size_t H = rows->n, W = columns->n, first = raw->H, end = 0;
    memset(x, 0, raw->C * H * W * sizeof *x);
    for (size_t i = 0; i < H; i++) {
        const struct tap *tap = &rows->tap[i];
        if (tap->count > 0 && tap->first < first)
            first = tap->first;
        if (tap->first + tap->count > end)
            end = tap->first + tap->count;
    }
    for (size_t c = 0; c < raw->C; c++) {
        size_t live = 0; /* outputs before it have had all their rows */
        for (size_t y = first; y < end; y++) {
            sample_row(raw, c, y, columns, row);
            while (live < H && rows->tap[live].first + rows->tap[live].count <= y)
                live++;
            for (size_t i = live; i < H; i++) {
                const struct tap *tap = &rows->tap[i];
                if (tap->count > 0 && tap->first > y)
                    break;
                if (tap->count == 0)
                    continue;
                float weight = tap->weight[y - tap->first];
                float *out = x + (c * H + i) * W;
                for (size_t j = 0; j < W; j++)
                    out[j] += weight * row[j];
            }
        }
    }
}

int resize_window(const struct raw *raw, const struct window *window, struct scratch *scratch,
                  float *x)
{
    size_t H = window->H, W = window->W;
    size_t row_weights = H * taps_most(raw->H, window->h);
    size_t column_weights = W * taps_most(raw->W, window->w);
    size_t floats = row_weights + column_weights + W;
    struct tap *taps =
        scratch_get(scratch, SCRATCH_RESIZE, (H + W) * sizeof *taps + floats * sizeof(float));
    if (!taps)
        return ERR_NOMEM;
    float *weights = (float *)(taps + H + W);
    struct axis rows = {H, taps}, columns = {W, taps + H};
    lay_taps(&rows, raw->H, window->h, window->top, false, weights);
    lay_taps(&columns, raw->W, window->w, window->left, window->mirror, weights + row_weights);
    resample_axes(raw, &rows, &columns, weights + row_weights + column_weights, x);
    return OK;
}
