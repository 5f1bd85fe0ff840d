#include "cli/trace_window.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Threads of a trace that are of sent bytes: so many for each peer (api/trace_file.c). */
enum { PEER_ROWS = 512 };

/* Spans of a stretch, of which many are merged. */
enum { SPANS_MAX = 4 * TRACE_WINDOW_BARS };

/* Shorter gaps, in parts of the stretch, are not seen. */
#define GAP 2e-3

/* An exchange is behind its phases, and strips are in front of all. */
static int layer_of(uint8_t purpose)
{
    switch (purpose) {
    case PURPOSE_EXCHANGE: return 0;
    case PURPOSE_REDUCE:
    case PURPOSE_PREPARE:
    case PURPOSE_BROADCAST: return 2;
    case PURPOSE_WAIT:
    case PURPOSE_SEND: return 3;
    default: return 1;
    }
}

static int compare_bars(const void *left, const void *right)
{
    const struct trace_bar *a = left, *b = right;
    int layers = layer_of(a->purpose) - layer_of(b->purpose);
    if (a->node != b->node)
        return a->node < b->node ? -1 : 1;
    if (a->row != b->row)
        return a->row < b->row ? -1 : 1;
    if (layers != 0)
        return layers;
    if (trace_bar_is_strip(a) && a->purpose != b->purpose)
        return a->purpose < b->purpose ? -1 : 1;
    return a->start < b->start ? -1 : a->start > b->start;
}

static bool lies_in(const struct trace_piece *p, double begin, double end)
{
    return p->start < end && p->end > begin;
}

static size_t count_spans(const struct trace_summary *trace, double begin, double end)
{
    size_t n = 0;
    for (const struct trace_piece *p = trace->piece; p < trace->piece + trace->pieces; p++)
        n += lies_in(p, begin, end);
    return n;
}

static bool continues_bar(const struct trace_bar *last, const struct trace_bar *bar, double gap)
{
    return trace_bar_is_strip(bar) && last->purpose == bar->purpose && last->node == bar->node &&
           last->row == bar->row && bar->start - last->end < gap;
}

/* Fill `bar`, which has room for all spans of the window. */
static void take_bars(const struct trace_summary *trace, struct trace_window *w)
{
    size_t n = 0, kept = 0;
    for (const struct trace_piece *p = trace->piece; p < trace->piece + trace->pieces; p++)
        if (lies_in(p, w->begin, w->end) && n < SPANS_MAX)
            w->bar[n++] = (struct trace_bar){
                .start = p->start,
                .end = p->end,
                .node = p->node,
                .row = p->purpose == PURPOSE_SEND ? p->row % PEER_ROWS : p->row,
                .purpose = p->purpose,
            };
    qsort(w->bar, n, sizeof *w->bar, compare_bars);
    for (size_t i = 0; i < n; i++)
        if (kept > 0 && continues_bar(&w->bar[kept - 1], &w->bar[i], GAP * (w->end - w->begin)))
            w->bar[kept - 1].end = fmax(w->bar[kept - 1].end, w->bar[i].end);
        else
            w->bar[kept++] = w->bar[i];
    w->bars = kept;
}

bool trace_window_choose(const struct trace_summary *trace, struct trace_window *w)
{
    double middle = (trace->begin + trace->end) / 2, length = trace->end - trace->begin;
    *w = (struct trace_window){.bar = malloc(SPANS_MAX * sizeof *w->bar)};
    if (!w->bar)
        return false;
    for (bool fits = false; !fits; length /= 2) {
        bool least = length < 1e-6;
        w->begin = middle - length / 2;
        w->end = middle + length / 2;
        if (!least && count_spans(trace, w->begin, w->end) > SPANS_MAX)
            continue;
        take_bars(trace, w);
        fits = least || w->bars <= TRACE_WINDOW_BARS;
    }
    if (w->bars > TRACE_WINDOW_BARS)
        w->bars = TRACE_WINDOW_BARS;
    return true;
}

void trace_window_release(struct trace_window *w)
{
    free(w->bar);
    *w = (struct trace_window){0};
}

/* The name of a row of sent bytes ends with " to driver". */
void trace_window_row(const struct trace_summary *trace, const struct trace_bar *bar,
                      char out[TRACE_ROW_BYTES])
{
    snprintf(out, TRACE_ROW_BYTES, "row %u", bar->row);
    for (size_t i = 0; i < trace->names; i++) {
        const struct trace_row *row = &trace->name[i];
        if (row->node != bar->node || row->row % PEER_ROWS != bar->row)
            continue;
        const char *to = strstr(row->name, " to ");
        int length = to ? (int)(to - row->name) : (int)strlen(row->name);
        snprintf(out, TRACE_ROW_BYTES, "%.*s", length, row->name);
        return;
    }
}
