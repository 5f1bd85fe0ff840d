/* A stretch from the middle of a trace, for a timeline: as long as it can be drawn. */
#ifndef PL_CLI_TRACE_WINDOW_H
#define PL_CLI_TRACE_WINDOW_H

#include "cli/trace_summary.h"

enum { TRACE_WINDOW_BARS = 2400 };

/* Waits of a row, and bytes on their way to any peer, that follow each other at distances which
 * nobody would see are one bar. A row's sent bytes are in the row of the lane that sends them. */
struct trace_bar {
    double start, end;
    uint16_t node, row;
    uint8_t purpose;
};

struct trace_window {
    double begin, end;
    struct trace_bar *bar; /* by node, row and layer: later ones are drawn over earlier ones */
    size_t bars;           /* at most TRACE_WINDOW_BARS */
};

/* false: out of memory. */
bool trace_window_choose(const struct trace_summary *trace, struct trace_window *window);
void trace_window_release(struct trace_window *window);

enum { TRACE_ROW_BYTES = 48 };

/* The name of a bar's row: "lane 0". */
void trace_window_row(const struct trace_summary *trace, const struct trace_bar *bar,
                      char out[TRACE_ROW_BYTES]);

/* Is it the first bar of its row? */
static inline bool trace_window_begins_row(const struct trace_window *w, size_t bar)
{
    const struct trace_bar *b = &w->bar[bar];
    return bar == 0 || b->node != b[-1].node || b->row != b[-1].row;
}

/* A bar that is drawn as a strip at the top or at the bottom of its row, so that both it and what
 * the node did meanwhile are seen. */
static inline bool trace_bar_is_strip(const struct trace_bar *bar)
{
    return bar->purpose == PURPOSE_WAIT || bar->purpose == PURPOSE_SEND;
}

#endif
