/* The buffer is a ring of cells, each with a turn, after D. Vyukov's bounded queue: cell i is free
 * for the span numbered s = i, i + size, ... while its turn is s, and holds it when its turn is s +
 * 1. A writer takes a number, fills the cell, and then moves its turn on, so that a reader never
 * sees half a span. */
#include "world/trace.h"

#include "base/fault.h"

#include <stdatomic.h>
#include <stdlib.h>

struct cell {
    _Atomic uint64_t turn;
    struct trace_span span;
};

struct trace {
    int64_t zero;
    size_t size; /* a power of two */
    _Atomic uint64_t in;
    _Atomic uint64_t dropped;
    uint64_t out; /* from here on it is the taker's */
    struct trace_span piece[TRACE_PIECE];
    struct cell cell[];
};

struct trace *trace_create(size_t spans, int64_t zero)
{
    PL_ASSERT(spans >= 2 && (spans & (spans - 1)) == 0);
    struct trace *trace = calloc(1, sizeof *trace + spans * sizeof trace->cell[0]);
    if (!trace)
        return NULL;
    trace->zero = zero;
    trace->size = spans;
    for (size_t i = 0; i < spans; i++)
        atomic_init(&trace->cell[i].turn, i);
    return trace;
}

void trace_free(struct trace *trace)
{
    free(trace);
}

/* A cell of one's own and its number, or NULL: all are full. */
static struct cell *take_number(struct trace *trace, uint64_t *number)
{
    uint64_t at = atomic_load(&trace->in);
    for (;;) {
        struct cell *cell = &trace->cell[at & (trace->size - 1)];
        uint64_t turn = atomic_load(&cell->turn);
        if (turn < at)
            return NULL;
        if (turn > at) {
            at = atomic_load(&trace->in); /* somebody else had it */
        } else if (atomic_compare_exchange_weak(&trace->in, &at, at + 1)) {
            *number = at;
            return cell;
        }
    }
}

void trace_add(struct trace *trace, const struct trace_span *span)
{
    PL_ASSERT(span->kind < SPAN_KINDS);
    if (span->end <= span->start)
        return;
    uint64_t number;
    struct cell *cell = take_number(trace, &number);
    if (!cell) {
        trace_drop(trace, 1);
        return;
    }
    cell->span = *span;
    atomic_store(&cell->turn, number + 1);
}

size_t trace_take(struct trace *trace, const struct trace_span **out)
{
    size_t n = 0;
    for (; n < TRACE_PIECE; n++, trace->out++) {
        struct cell *cell = &trace->cell[trace->out & (trace->size - 1)];
        if (atomic_load(&cell->turn) != trace->out + 1)
            break;
        trace->piece[n] = cell->span;
        trace->piece[n].start -= trace->zero;
        trace->piece[n].end -= trace->zero;
        atomic_store(&cell->turn, trace->out + trace->size);
    }
    *out = trace->piece;
    return n;
}

bool trace_half_full(const struct trace *trace)
{
    return atomic_load(&trace->in) - trace->out >= trace->size / 2;
}

uint64_t trace_dropped(const struct trace *trace)
{
    return atomic_load(&trace->dropped);
}

void trace_drop(struct trace *trace, uint64_t n)
{
    atomic_fetch_add(&trace->dropped, n);
}

const char *trace_kind_name(unsigned kind)
{
    static const char *const names[SPAN_KINDS] = {
#define TRACE_NAME(name, text) [SPAN_##name] = text,
        TRACE_KINDS(TRACE_NAME)
#undef TRACE_NAME
    };
    return kind < SPAN_KINDS ? names[kind] : "?";
}

/* The burst under way to the peer, or one that is not in use; NULL: all are. */
static struct trace_burst *find_burst(struct trace_sends *sends, uint32_t peer)
{
    struct trace_burst *unused = NULL;
    for (size_t i = 0; i < sizeof sends->to / sizeof sends->to[0]; i++) {
        struct trace_burst *b = &sends->to[i];
        if (b->posts > 0 && b->peer == peer)
            return b;
        if (b->posts == 0 && !unused)
            unused = b;
    }
    return unused;
}

void trace_open_send(struct world *w, struct trace_sends *sends, uint32_t peer, uint64_t bytes)
{
    struct trace_burst *b = find_burst(sends, peer);
    if (!b) {
        trace_drop(w->trace, 1);
        return;
    }
    if (b->posts == 0)
        *b = (struct trace_burst){.peer = peer, .since = world_now(w)};
    b->posts++;
    b->sends++;
    b->bytes += bytes;
}

void trace_close_send(struct world *w, struct trace_sends *sends, uint32_t peer,
                      struct trace_span span)
{
    struct trace_burst *b = find_burst(sends, peer);
    if (!b || b->posts == 0 || --b->posts > 0)
        return;
    span.kind = SPAN_SEND;
    span.peer = peer;
    span.sends = b->sends < UINT16_MAX ? (uint16_t)b->sends : UINT16_MAX;
    span.amount = b->bytes;
    trace_end(w, b->since, span);
}
