#include "cli/run_series.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

bool run_series_add(struct run_series *series, const struct run_point *point, bool placed)
{
    if (series->count == series->room) {
        size_t room = series->room > 0 ? 2 * series->room : 64;
        struct run_point *more = realloc(series->point, room * sizeof *more);
        if (!more)
            return false;
        series->point = more;
        series->room = room;
    }
    series->point[series->count++] = *point;
    if (placed)
        series->placed = series->count;
    return true;
}

void run_series_place(struct run_series *series, const struct run_point *from,
                      const struct run_point *to)
{
    for (; series->placed < series->count; series->placed++) {
        struct run_point *p = &series->point[series->placed];
        double share = to->t > from->t ? (p->t - from->t) / (to->t - from->t) : 1;
        share = fmin(fmax(share, 0), 1);
        p->epoch = from->epoch + share * (to->epoch - from->epoch);
        p->samples = from->samples + share * (to->samples - from->samples);
    }
}

/* The points of a column that stay, by their place. */
struct column {
    size_t first, last, least, most, gap; /* SIZE_MAX: there is none */
};

static struct column look_at_column(const struct run_point *point, size_t from, size_t to)
{
    struct column c = {from, to - 1, SIZE_MAX, SIZE_MAX, SIZE_MAX};
    for (size_t i = from; i < to; i++) {
        double value = point[i].value;
        if (!isfinite(value)) {
            c.gap = c.gap == SIZE_MAX ? i : c.gap;
            continue;
        }
        if (c.least == SIZE_MAX || value < point[c.least].value)
            c.least = i;
        if (c.most == SIZE_MAX || value > point[c.most].value)
            c.most = i;
    }
    return c;
}

static bool keeps_point(const struct column *c, size_t i)
{
    return i == c->first || i == c->last || i == c->least || i == c->most || i == c->gap;
}

void run_series_reduce(struct run_series *series, size_t columns)
{
    struct run_point *point = series->point;
    size_t kept = 0, placed = 0;
    if (series->count <= 4 * columns)
        return;
    double begin = point[0].t, length = point[series->count - 1].t - begin;
    for (size_t from = 0, to; from < series->count; from = to) {
        double column = length > 0 ? floor((point[from].t - begin) / length * (double)columns) : 0;
        double end = begin + (column + 1) * length / (double)columns;
        for (to = from + 1; to < series->count && (length <= 0 || point[to].t < end); to++)
            ;
        struct column c = look_at_column(point, from, to);
        for (size_t i = from; i < to; i++) {
            if (!keeps_point(&c, i))
                continue;
            placed += i < series->placed;
            point[kept++] = point[i];
        }
    }
    series->count = kept;
    series->placed = placed;
}

bool run_series_copy(const struct run_series *series, struct run_series *out)
{
    *out = (struct run_series){.count = series->count, .placed = series->placed};
    out->room = series->count;
    if (series->count == 0)
        return true;
    out->point = malloc(series->count * sizeof *out->point);
    if (!out->point)
        return false;
    memcpy(out->point, series->point, series->count * sizeof *out->point);
    return true;
}

void run_series_release(struct run_series *series)
{
    free(series->point);
    *series = (struct run_series){0};
}
