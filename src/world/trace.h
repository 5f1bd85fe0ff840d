/* A node's trace: where its time went, as spans of a few kinds, for a picture of the run.
 *
 * Any task of the node adds spans, at any moment, without waiting and without allocating: the
 * buffer has its size from the start, and what finds it full is dropped and counted. One task at a
 * time takes them out. A span costs about what two looks at the clock do; in a node that is not
 * traced (world->trace is NULL, as it is at first) a call costs one branch.
 *
 * Rows. A span stands in a row, and the spans of a row lie inside one another or apart: a row is
 * what one task does. Outgoing bytes have a row for each peer next to it. */
#ifndef PL_WORLD_TRACE_H
#define PL_WORLD_TRACE_H

#include "world/world.h"

/*        name              n is a    amount is   what */
#define TRACE_KINDS(X)                                                                            \
    X(COMPUTE, "compute")     /* step      records     a step, or its gradient */                 \
    X(UPDATE, "update")       /* step      -           a step's update, where it is apart */      \
    X(COPY, "copy")           /* exchange  bytes       of a vector, out of a model or into one */ \
    X(SEND, "send")           /* exchange  bytes       bytes on their way out to a peer */        \
    X(WAIT, "wait")           /* exchange  -           a task stands still for others */          \
    X(EXCHANGE, "exchange")   /* exchange  bytes       from entry to exit */                      \
    X(EVALUATE, "evaluate")   /* step      records     a set */                                   \
    X(DATA, "data")           /* step      records     a batch came late */                       \
    X(REDUCE, "reduce")       /* exchange  -           sums move to their owners */               \
    X(PREPARE, "prepare")     /* exchange  -           an owner makes the result of its sums */   \
    X(BROADCAST, "broadcast") /* exchange  -         results move to all */

enum span_kind {
#define TRACE_ENUM(name, text) SPAN_##name,
    TRACE_KINDS(TRACE_ENUM)
#undef TRACE_ENUM
        SPAN_KINDS
};

/* Rows: lanes have their numbers, and the others follow. */
enum {
    TRACE_LANES = 32,
    TRACE_STEPS = TRACE_LANES, /* the learner's */
    TRACE_MODELS,              /* models being sent for an evaluation */
    TRACE_MODEL_WRITER,        /* the model writer */
    TRACE_TRANSFERS = 64,      /* and the lane of a task that has transfers */
};

struct trace_span {
    uint8_t kind, row;
    uint16_t sends;     /* SEND: those that the span has */
    uint32_t peer;      /* SEND, WAIT: the other node; WORLD_ANY: unknown */
    uint64_t n, amount; /* see the table above */
    int64_t start, end; /* ns */
};

enum { TRACE_SPANS = 16 * 1024, TRACE_PIECE = 1024 };

struct trace;

/* Room for `spans` (a power of two, at least 2), 48 bytes each; times will count from `zero` of the
 * world's clock. NULL when memory runs out. */
struct trace *trace_create(size_t spans, int64_t zero);
void trace_free(struct trace *trace); /* no task adds any more; NULL allowed */

/* Add a span with times of the world's clock. One that took no time is passed over. */
void trace_add(struct trace *trace, const struct trace_span *span);

/* Take up to TRACE_PIECE of the oldest, in the order in which they were added, with times from
 * `zero`. Returns how many; *out is valid until the next call. */
size_t trace_take(struct trace *trace, const struct trace_span **out);

/* Is it time to take some? For the task that takes. */
bool trace_half_full(const struct trace *trace);

/* The number of dropped spans; trace_drop adds spans that were dropped elsewhere. */
uint64_t trace_dropped(const struct trace *trace);
void trace_drop(struct trace *trace, uint64_t n);

/* A number that is no kind: "?". */
const char *trace_kind_name(unsigned kind);

/* Sends to one peer overlap: from the first under way to the last they are one span. A task's; it
 * begins as zeros. */
struct trace_sends {
    struct trace_burst {
        uint32_t peer, posts; /* posts: under way; 0: not in use */
        uint32_t sends;
        uint64_t bytes;
        int64_t since;
    } to[32]; /* peers at once; a further one is not seen, and counted */
};

/* Called by trace_sending and trace_sent. */
void trace_open_send(struct world *w, struct trace_sends *sends, uint32_t peer, uint64_t bytes);
void trace_close_send(struct world *w, struct trace_sends *sends, uint32_t peer,
                      struct trace_span span);

/* ---- what the traced call; w may be NULL ---- */

/* When a span begins: for trace_end. */
static inline int64_t trace_now(struct world *w)
{
    return w && w->trace ? world_now(w) : 0;
}

/* Add `span` with the times `start` and `end` instead of its own. */
static inline void trace_between(struct world *w, int64_t start, int64_t end,
                                 struct trace_span span)
{
    if (!w || !w->trace)
        return;
    span.start = start;
    span.end = end;
    trace_add(w->trace, &span);
}

/* A span from `start` until now. */
static inline void trace_end(struct world *w, int64_t start, struct trace_span span)
{
    if (w && w->trace)
        trace_between(w, start, world_now(w), span);
}

/* Since `start` a task has copied or combined so many bytes of a strategy's vectors, for exchange
 * n. */
static inline void trace_copied(struct world *w, int64_t start, uint8_t row, uint64_t n,
                                uint64_t bytes)
{
    trace_end(w, start,
              (struct trace_span){.kind = SPAN_COPY, .row = row, .n = n, .amount = bytes});
}

/* A send of `bytes` to the peer begins; one of the sends to the peer has ended. `span` describes
 * them. */
static inline void trace_sending(struct world *w, struct trace_sends *sends, uint32_t peer,
                                 uint64_t bytes)
{
    if (w->trace)
        trace_open_send(w, sends, peer, bytes);
}

static inline void trace_sent(struct world *w, struct trace_sends *sends, uint32_t peer,
                              struct trace_span span)
{
    if (w->trace)
        trace_close_send(w, sends, peer, span);
}

#endif
