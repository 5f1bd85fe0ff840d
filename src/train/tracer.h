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

/* From here on this node is traced; without memory for it the log says so, and it is not. `here`:
 * where its spans go, or NULL: to the driver. */
void tracer_begin(struct world *world, const struct trace_sink *here, const struct logger *log);

/* Hand on what there is, if the buffer is half full: for moments between two steps. */
void tracer_ship(struct world *world, const struct trace_sink *here);

/* Hand on all there is. Spans that the driver has no room for are dropped. */
void tracer_ship_all(struct world *world, const struct trace_sink *here);

/* All other tasks of the node have ended: it is traced no longer, and the log says what is missing.
 * Nothing to do where it was not. */
void tracer_end(struct world *world, const struct trace_sink *here, const struct logger *log);

/* ---- the driver ---- */

struct tracer {
    struct world *world;
    const struct trace_sink *sink;
    int64_t first_view;               /* ns since the run began */
    const _Atomic int64_t *joined_at; /* by node: the same of those that came later; else 0 */
    struct task *task;
};

/* At the driver's first view; `began` is when the run did. The driver is traced, and workers' spans
 * are taken in; `came` has room for VIEW_MEMBERS_MAX. ERR_NOMEM */
int tracer_start(struct tracer *tracer, struct world *world, const struct trace_sink *sink,
                 int64_t began, const _Atomic int64_t *joined_at);

/* All other tasks that are traced have ended: take in what has come. Zeroed: nothing to do. */
void tracer_stop(struct tracer *tracer, const struct logger *log);

/* ---- on the wire: whole spans of 40 bytes, one after another ---- */

enum { TRACER_SPAN_BYTES = 40 };

void tracer_encode(const struct trace_span *span, size_t n, struct buf *out);

/* One span. ERR_PROTOCOL: the bytes are none. */
int tracer_decode(struct byte_reader *in, struct trace_span *out);

#endif
