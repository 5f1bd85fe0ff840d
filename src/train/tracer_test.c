/* Spans in messages: from untrusted bytes, and from a worker that cannot send them. */
#include "train/tracer.h"

#include "base/rng.h"
#include "wire/catalogue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct trace_span sample = {SPAN_WAIT,          TRACE_STEPS, 3,    WORLD_DRIVER,
                                         0x1122334455667788, 9,           1000, 0x0102030405060708};

/* Row, kind and sends, peer, n, amount, start, end; little-endian. */
static const uint8_t drawn[TRACER_SPAN_BYTES] = {
    32,   4,    3, 0, 0xfe, 0xff, 0xff, 0xff, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33,
    0x22, 0x11, 9, 0, 0,    0,    0,    0,    0,    0,    0xe8, 3,    0,    0,
    0,    0,    0, 0, 8,    7,    6,    5,    4,    3,    2,    1};

/* From memory of exactly that size, so that a sanitizer sees a read past it. */
static int read_span(const void *bytes, size_t n, struct trace_span *out)
{
    void *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    if (n)
        memcpy(copy, bytes, n);
    struct byte_reader in = {copy, n, false};
    int rc = tracer_decode(&in, out);
    free(copy);
    return rc;
}

static void test_span_is_decoded_whole(void **state)
{
    (void)state;
    struct buf bytes = {0};
    struct trace_span out;
    tracer_encode(&sample, 1, &bytes);
    assert_int_equal(bytes.len, TRACER_SPAN_BYTES);
    assert_memory_equal(bytes.data, drawn, sizeof drawn);
    assert_int_equal(read_span(bytes.data, bytes.len, &out), OK);
    assert_true(out.kind == sample.kind && out.row == sample.row && out.sends == sample.sends &&
                out.peer == sample.peer);
    assert_true(out.n == sample.n && out.amount == sample.amount);
    assert_true(out.start == sample.start && out.end == sample.end);
    for (size_t n = 0; n < bytes.len; n++)
        assert_int_equal(read_span(bytes.data, n, &out), ERR_PROTOCOL);
    buf_release(&bytes);
}

static int read_changed(struct trace_span span)
{
    struct buf bytes = {0};
    struct trace_span out;
    tracer_encode(&span, 1, &bytes);
    int rc = read_span(bytes.data, bytes.len, &out);
    buf_release(&bytes);
    return rc;
}

#define CHANGED(field, value)                             \
    {                                                     \
        struct trace_span s_ = sample;                    \
        s_.field = (value);                               \
        assert_int_equal(read_changed(s_), ERR_PROTOCOL); \
    }

static void test_span_decode_refuses_invalid(void **state)
{
    (void)state;
    CHANGED(kind, SPAN_KINDS);
    CHANGED(kind, 255);
    CHANGED(row, TRACE_MODEL_WRITER + 1); /* between two rows */
    CHANGED(row, TRACE_TRANSFERS - 1);
    CHANGED(start, sample.end);
    CHANGED(start, -1);
    CHANGED(end, INT64_MAX); /* nothing can be added to it */
    CHANGED(end, -1);
}

static void test_span_decode_survives_random_bytes(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        uint8_t bytes[TRACER_SPAN_BYTES];
        struct trace_span out;
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)rng_below(3, seed, i, 256);
        if (read_span(bytes, rng_below(4, seed, 0, sizeof bytes + 1), &out) != OK)
            continue;
        assert_true(out.kind < SPAN_KINDS && out.start >= 0 && out.start < out.end);
    }
}

/* ---- a worker's spans ---- */

/* A world whose driver takes so many messages more. */
struct outlet {
    struct world world; /* first */
    int64_t now;
    int room;
    size_t messages, longest;
    size_t kept;
    char lines[256]; /* its log */
};

static int64_t outlet_now(struct world *w)
{
    return ((struct outlet *)w)->now;
}

static int outlet_send(struct world *w, uint32_t peer, struct message *m, enum world_class class)
{
    struct outlet *o = (struct outlet *)w;
    assert_int_equal(peer, WORLD_DRIVER);
    assert_int_equal(class, CLASS_CONTROL);
    assert_int_equal(wire_kind_of(m->tag), WIRE_TRACE);
    if (o->room == 0)
        return ERR_FULL;
    o->room--;
    o->messages++;
    o->longest = m->len > o->longest ? m->len : o->longest;
    struct byte_reader in = {m->data, m->len, false};
    for (struct trace_span span; in.left > 0; o->kept++)
        assert_int_equal(tracer_decode(&in, &span), OK);
    message_unref(m);
    return OK;
}

static void outlet_log(void *user, enum log_level level, const char *line)
{
    struct outlet *o = user;
    assert_int_equal(level, LOG_WARN);
    snprintf(o->lines, sizeof o->lines, "%s", line);
}

static struct outlet outlet_with(int room)
{
    static const struct world_ops ops = {.now = outlet_now, .send = outlet_send};
    return (struct outlet){.world = {.ops = &ops, .self = 3}, .now = 77, .room = room};
}

static void add_spans(struct outlet *o, size_t n)
{
    for (size_t i = 0; i < n; i++)
        trace_between(&o->world, 100, 101, (struct trace_span){.kind = SPAN_COMPUTE});
}

static void test_tracer_sends_half_full_buffer(void **state)
{
    (void)state;
    struct outlet o = outlet_with(1000);
    const struct logger log = {outlet_log, &o, LOG_INFO};
    tracer_ship(&o.world, NULL); /* not traced */
    tracer_begin(&o.world, NULL, &log);
    add_spans(&o, TRACE_SPANS / 2 - 1);
    tracer_ship(&o.world, NULL);
    assert_int_equal(o.messages, 0);
    add_spans(&o, 1);
    tracer_ship(&o.world, NULL);
    assert_int_equal(o.kept, TRACE_SPANS / 2);
    assert_true(o.messages > 1 && o.longest <= 64 * 1024);
    add_spans(&o, 5);
    tracer_ship(&o.world, NULL);
    assert_int_equal(o.kept, TRACE_SPANS / 2);
    tracer_ship_all(&o.world, NULL);
    assert_int_equal(o.kept, TRACE_SPANS / 2 + 5);
    tracer_end(&o.world, NULL, &log);
    assert_null(o.world.trace);
    assert_string_equal(o.lines, "");
}

static void test_tracer_logs_missing_spans(void **state)
{
    (void)state;
    struct outlet o = outlet_with(1); /* and a piece is all that the driver takes */
    const struct logger log = {outlet_log, &o, LOG_INFO};
    tracer_begin(&o.world, NULL, &log);
    add_spans(&o, TRACE_SPANS + 10);
    tracer_ship_all(&o.world, NULL);
    assert_int_equal(o.kept, TRACE_PIECE);
    tracer_end(&o.world, NULL, &log);
    char expected[128];
    snprintf(expected, sizeof expected,
             "worker 3: the trace lacks %d spans, for which there was no room",
             TRACE_SPANS + 10 - TRACE_PIECE);
    assert_string_equal(o.lines, expected);
}

static void count_here(void *user, uint32_t node, const struct trace_span *span, size_t n)
{
    size_t *count = user;
    assert_int_equal(node, 3);
    for (size_t i = 0; i < n; i++)
        assert_true(span[i].start == 100 && span[i].end == 101); /* one clock: it is not moved */
    *count += n;
}

static void test_tracer_sends_nothing_in_one_process(void **state)
{
    (void)state;
    struct outlet o = outlet_with(0);
    const struct logger log = {outlet_log, &o, LOG_INFO};
    size_t count = 0;
    const struct trace_sink here = {count_here, &count};
    tracer_begin(&o.world, &here, &log);
    add_spans(&o, TRACE_SPANS / 2);
    tracer_ship(&o.world, &here);
    assert_int_equal(count, TRACE_SPANS / 2);
    add_spans(&o, 3);
    tracer_end(&o.world, &here, &log);
    assert_int_equal(count, TRACE_SPANS / 2 + 3);
    assert_string_equal(o.lines, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_span_is_decoded_whole),
        cmocka_unit_test(test_span_decode_refuses_invalid),
        cmocka_unit_test(test_span_decode_survives_random_bytes),
        cmocka_unit_test(test_tracer_sends_half_full_buffer),
        cmocka_unit_test(test_tracer_logs_missing_spans),
        cmocka_unit_test(test_tracer_sends_nothing_in_one_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
