#include "train/tracer.h"

#include "group/view.h"
#include "wire/wire_send.h"

#include <stdatomic.h>
#include <stdio.h>

/* ---- bytes ---- */

void tracer_encode(const struct trace_span *span, size_t n, struct buf *out)
{
    for (const struct trace_span *s = span; s < span + n; s++) {
        buf_put_u32(out, (uint32_t)s->sends << 16 | (uint32_t)s->kind << 8 | s->row);
        buf_put_u32(out, s->peer);
        buf_put_u64(out, s->n);
        buf_put_u64(out, s->amount);
        buf_put_u64(out, (uint64_t)s->start);
        buf_put_u64(out, (uint64_t)s->end);
    }
}

int tracer_decode(struct byte_reader *in, struct trace_span *out)
{
    uint32_t what = read_u32(in);
    uint32_t peer = read_u32(in);
    uint64_t n = read_u64(in), amount = read_u64(in), start = read_u64(in), end = read_u64(in);
    uint32_t row = what & 0xff, kind = what >> 8 & 0xff;
    bool known = kind < SPAN_KINDS && (row <= TRACE_MODEL_WRITER || row >= TRACE_TRANSFERS);
    if (in->failed || !known || start >= end || end > INT64_MAX / 2)
        return ERR_PROTOCOL;
    *out = (struct trace_span){
        .kind = (uint8_t)kind,
        .row = (uint8_t)row,
        .sends = (uint16_t)(what >> 16),
        .peer = peer,
        .n = n,
        .amount = amount,
        .start = (int64_t)start,
        .end = (int64_t)end,
    };
    return OK;
}

/* ---- a worker ---- */

static void send_to_driver(struct world *world, const struct trace_span *span, size_t n)
{
    struct buf bytes = {0};
    tracer_encode(span, n, &bytes);
    if (wire_send_buf(world, WORLD_DRIVER, WIRE_TRACE, 0, &bytes) != OK)
        trace_drop(world->trace, n);
    buf_release(&bytes);
}

void tracer_ship_all(struct world *world, const struct trace_sink *here)
{
    const struct trace_span *span;
    for (size_t n; world->trace && (n = trace_take(world->trace, &span)) > 0;) {
        if (here)
            here->spans(here->user, world->self, span, n);
        else
            send_to_driver(world, span, n);
    }
}

void tracer_ship(struct world *world, const struct trace_sink *here)
{
    if (world->trace && trace_half_full(world->trace))
        tracer_ship_all(world, here);
}

static const char *node_name(uint32_t node, char text[24])
{
    if (node == WORLD_DRIVER)
        return "the driver";
    snprintf(text, 24, "worker %u", node);
    return text;
}

void tracer_begin(struct world *world, const struct trace_sink *here, const struct logger *log)
{
    char name[24];
    world->trace = trace_create(TRACE_SPANS, here ? 0 : world_now(world));
    if (!world->trace)
        log_warn(log, "%s: not traced: out of memory", node_name(world->self, name));
}

void tracer_end(struct world *world, const struct trace_sink *here, const struct logger *log)
{
    struct trace *trace = world->trace;
    char name[24];
    if (!trace)
        return;
    if (here)
        tracer_ship_all(world, here);
    if (trace_dropped(trace) > 0)
        log_warn(log, "%s: the trace lacks %llu spans, for which there was no room",
                 node_name(world->self, name), (unsigned long long)trace_dropped(trace));
    world->trace = NULL;
    trace_free(trace);
}

/* ---- the driver ---- */

/* Where this node's times begin. */
static int64_t zero_of(const struct tracer *t, uint32_t node)
{
    int64_t joined_at = node < VIEW_MEMBERS_MAX ? atomic_load(&t->joined_at[node]) : 0;
    return joined_at > 0 ? joined_at : t->first_view;
}

static void take_in(const struct tracer *t, const struct message *m)
{
    struct trace_span span[64];
    int64_t zero = zero_of(t, m->from);
    struct byte_reader in = {m->data, m->len, false};
    while (in.left > 0) {
        size_t n = 0;
        while (n < sizeof span / sizeof *span && in.left > 0) {
            if (tracer_decode(&in, &span[n]) != OK)
                return; /* an unreadable message is ignored */
            span[n].start += zero;
            span[n++].end += zero;
        }
        t->sink->spans(t->sink->user, m->from, span, n);
    }
}

static int tracer_main(void *arg)
{
    struct tracer *t = arg;
    for (;;) {
        const struct wait_for spans = wire_from(WORLD_ANY, WIRE_TRACE);
        struct wake wake;
        int rc = world_wait(t->world, &spans, 1, world_now(t->world) + WORLD_SECOND, &wake);
        if (rc != OK && rc != ERR_TIMEOUT)
            return rc;
        if (rc == OK) {
            take_in(t, wake.msg);
            message_unref(wake.msg);
        }
        tracer_ship(t->world, t->sink);
    }
}

int tracer_start(struct tracer *tracer, struct world *world, const struct trace_sink *sink,
                 int64_t began, const _Atomic int64_t *joined_at)
{
    *tracer = (struct tracer){world, sink, world_now(world) - began, joined_at, NULL};
    world->trace = trace_create(TRACE_SPANS, began);
    return world->trace ? world_spawn(world, "tracer", tracer_main, tracer, &tracer->task)
                        : ERR_NOMEM;
}

void tracer_stop(struct tracer *tracer, const struct logger *log)
{
    struct world *world = tracer->world;
    if (!world)
        return;
    world_end_task(world, &tracer->task);
    const struct wait_for spans = wire_from(WORLD_ANY, WIRE_TRACE);
    struct wake wake;
    while (world_wait(world, &spans, 1, world_now(world), &wake) == OK) {
        take_in(tracer, wake.msg);
        message_unref(wake.msg);
    }
    tracer_end(world, tracer->sink, log);
}
