/* The way of spans (world/trace.h) from where they are made to the host: a worker sends them to the
 * driver, where a task takes them in. In a simulation all nodes live in one process and on one
 * clock: there they are handed to the host at once, so that a trace changes nothing of what it
 * shows.
 *
 * Clocks of hosts are never compared. A worker's spans count from the moment at which it had its
 * first view, and the driver puts that moment where it had that view itself: rows of different
 * hosts are apart by as much as the view's message took, and drift as their clocks do. */
#ifndef PL_TRAIN_TRACER_H
#define PL_TRAIN_TRACER_H

#include "base/bytes.h"
#include "base/logger.h"
#include "world/trace.h"

/* The receiver of spans: times count from the beginning of the run. From one task at a time. */
struct trace_sink {
    void (*spans)(void *user, uint32_t node, const struct trace_span *span, size_t n);
    void *user;
};

/* ---- a worker ---- */

/* Trace this node from now on; without memory it is not traced, and the log says so. `here`: the
 * sink of its spans; NULL: the driver. */
void tracer_begin(struct world *world, const struct trace_sink *here, const struct logger *log);

/* Between two steps: ship the spans, if the buffer is half full. */
void tracer_ship(struct world *world, const struct trace_sink *here);

/* Ship all spans. Spans for which the driver has no room are dropped. */
void tracer_ship_all(struct world *world, const struct trace_sink *here);

/* After all other tasks of the node have ended: end its trace, and log the number of dropped spans.
 * No effect if it was not traced. */
void tracer_end(struct world *world, const struct trace_sink *here, const struct logger *log);

/* ---- the driver ---- */

struct tracer {
    struct world *world;
    const struct trace_sink *sink;
    int64_t first_view;               /* ns since the run began */
    const _Atomic int64_t *joined_at; /* by node: the same for joiners; else 0 */
    struct task *task;
};

/* Called at the driver's first view; `began` is the start of the run. Trace the driver, and receive
 * the workers' spans. `joined_at` has VIEW_MEMBERS_MAX entries. ERR_NOMEM */
int tracer_start(struct tracer *tracer, struct world *world, const struct trace_sink *sink,
                 int64_t began, const _Atomic int64_t *joined_at);

/* After all other traced tasks have ended: take the spans that have arrived. Zeroed: nothing to do.
 */
void tracer_stop(struct tracer *tracer, const struct logger *log);

/* ---- on the wire: whole spans of 40 bytes, one after another ---- */

enum { TRACER_SPAN_BYTES = 40 };

void tracer_encode(const struct trace_span *span, size_t n, struct buf *out);

/* One span. ERR_PROTOCOL: the bytes are none. */
int tracer_decode(struct byte_reader *in, struct trace_span *out);

#endif
