/* The buffer of spans: spans come out once, in order and whole, with concurrent writers; spans that
 * do not fit are counted. */
#include "world/trace.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

enum { SIZE = 64, ADDERS = 4, EACH = 20000 };

/* A world that knows nothing but the time. */
struct clock {
    struct world world; /* first */
    int64_t now;
};

static int64_t clock_now(struct world *w)
{
    return ((struct clock *)w)->now;
}

static struct clock clock_with(size_t spans, int64_t zero)
{
    static const struct world_ops ops = {.now = clock_now};
    struct clock c = {.world.ops = &ops, .world.trace = trace_create(spans, zero)};
    assert_non_null(c.world.trace);
    return c;
}

static void add_span(struct trace *trace, uint64_t n, int64_t start, int64_t end)
{
    trace_add(trace, &(struct trace_span){.kind = SPAN_COPY, .n = n, .start = start, .end = end});
}

static void test_spans_come_out_as_they_went_in(void **state)
{
    (void)state;
    struct trace *trace = trace_create(SIZE, 100);
    const struct trace_span *out;
    assert_int_equal(trace_take(trace, &out), 0);
    const struct trace_span span = {SPAN_SEND, 7, 1, 3, 42, 1 << 20, 150, 175};
    trace_add(trace, &span);
    assert_int_equal(trace_take(trace, &out), 1);
    assert_int_equal(out->kind, SPAN_SEND);
    assert_int_equal(out->row, 7);
    assert_int_equal(out->sends, 1);
    assert_int_equal(out->peer, 3);
    assert_int_equal(out->n, 42);
    assert_int_equal(out->amount, 1 << 20);
    assert_int_equal(out->start, 50); /* from zero */
    assert_int_equal(out->end, 75);
    assert_int_equal(trace_take(trace, &out), 0);
    trace_free(trace);
}

/* Round and round, with every filling there is. */
static void test_it_is_a_ring(void **state)
{
    (void)state;
    struct trace *trace = trace_create(SIZE, 0);
    uint64_t in = 0, out = 0;
    for (size_t filling = 0; filling <= SIZE; filling++) {
        const struct trace_span *span;
        for (size_t i = 0; i < filling; i++)
            add_span(trace, in++, 1, 2);
        assert_true(trace_half_full(trace) == (filling >= SIZE / 2));
        assert_int_equal(trace_take(trace, &span), filling);
        for (size_t i = 0; i < filling; i++)
            assert_int_equal(span[i].n, out++);
    }
    assert_int_equal(trace_dropped(trace), 0);
    trace_free(trace);
}

static void test_what_does_not_fit_is_dropped_and_counted(void **state)
{
    (void)state;
    struct trace *trace = trace_create(SIZE, 0);
    const struct trace_span *out;
    for (uint64_t i = 0; i < SIZE + 5; i++)
        add_span(trace, i, 1, 2);
    assert_int_equal(trace_dropped(trace), 5);
    assert_int_equal(trace_take(trace, &out), SIZE);
    assert_int_equal(out[SIZE - 1].n, SIZE - 1); /* the first that came were kept */
    add_span(trace, 99, 1, 2);
    assert_int_equal(trace_take(trace, &out), 1);
    assert_int_equal(out->n, 99);
    assert_int_equal(trace_dropped(trace), 5);
    trace_drop(trace, 7);
    assert_int_equal(trace_dropped(trace), 12);
    trace_free(trace);
}

static void test_no_time_is_no_span(void **state)
{
    (void)state;
    struct trace *trace = trace_create(2, 0);
    const struct trace_span *out;
    add_span(trace, 1, 5, 5);
    add_span(trace, 2, 6, 5);
    add_span(trace, 3, 5, 6);
    assert_int_equal(trace_take(trace, &out), 1);
    assert_int_equal(out->n, 3);
    assert_int_equal(trace_dropped(trace), 0);
    trace_free(trace);
}

static void test_more_than_a_piece_is_taken_in_pieces(void **state)
{
    (void)state;
    struct trace *trace = trace_create(TRACE_PIECE * 2, 0);
    const struct trace_span *out;
    for (uint64_t i = 0; i < TRACE_PIECE + 3; i++)
        add_span(trace, i, 1, 2);
    assert_int_equal(trace_take(trace, &out), TRACE_PIECE);
    assert_int_equal(trace_take(trace, &out), 3);
    assert_int_equal(out->n, TRACE_PIECE);
    trace_free(trace);
}

/* ---- several tasks ---- */

struct adder {
    struct trace *trace;
    uint32_t number;
    pthread_t thread;
};

static void *add_many(void *arg)
{
    const struct adder *a = arg;
    for (uint64_t i = 0; i < EACH; i++) {
        const struct trace_span span = {
            .peer = a->number, .n = i, .amount = ~i, .start = (int64_t)i, .end = (int64_t)i + 1};
        trace_add(a->trace, &span);
    }
    return NULL;
}

/* Of each adder's the ones that were kept, in its order, and none twice or in halves. */
static uint64_t take_many(struct trace *trace, uint64_t next[ADDERS])
{
    const struct trace_span *out;
    size_t n = trace_take(trace, &out);
    for (size_t i = 0; i < n; i++) {
        assert_true(out[i].peer < ADDERS && out[i].amount == ~out[i].n);
        assert_true(out[i].start == (int64_t)out[i].n && out[i].end == out[i].start + 1);
        assert_true(out[i].n >= next[out[i].peer]);
        next[out[i].peer] = out[i].n + 1;
    }
    return n;
}

static void test_tasks_add_at_the_same_time(void **state)
{
    (void)state;
    struct trace *trace = trace_create(SIZE, 0);
    struct adder adder[ADDERS];
    uint64_t next[ADDERS] = {0}, taken = 0;
    for (uint32_t i = 0; i < ADDERS; i++) {
        adder[i] = (struct adder){.trace = trace, .number = i};
        assert_int_equal(pthread_create(&adder[i].thread, NULL, add_many, &adder[i]), 0);
    }
    while (taken + trace_dropped(trace) < ADDERS * EACH)
        taken += take_many(trace, next);
    for (uint32_t i = 0; i < ADDERS; i++)
        pthread_join(adder[i].thread, NULL);
    taken += take_many(trace, next);
    assert_true(taken > 0);
    assert_int_equal(taken + trace_dropped(trace), ADDERS * EACH);
    trace_free(trace);
}

/* ---- what the traced call ---- */

static void test_who_is_not_traced_does_nothing(void **state)
{
    (void)state;
    struct world world = {.self = 1}; /* without a clock: a call of it would crash */
    struct trace_sends sends = {0};
    assert_int_equal(trace_now(&world), 0);
    assert_int_equal(trace_now(NULL), 0);
    trace_end(&world, 0, (struct trace_span){.kind = SPAN_WAIT});
    trace_end(NULL, 0, (struct trace_span){.kind = SPAN_WAIT});
    trace_between(&world, 0, 1, (struct trace_span){.kind = SPAN_WAIT});
    trace_sending(&world, &sends, 2, 100);
    trace_sent(&world, &sends, 2, (struct trace_span){0});
    assert_int_equal(sends.to[0].posts, 0);
}

static void test_spans_of_a_world(void **state)
{
    (void)state;
    struct clock c = clock_with(SIZE, 0);
    const struct trace_span *out;
    c.now = 40;
    int64_t begun = trace_now(&c.world);
    c.now = 55;
    trace_end(&c.world, begun, (struct trace_span){.kind = SPAN_EXCHANGE, .row = 2, .n = 9});
    trace_between(&c.world, 10, 20, (struct trace_span){.kind = SPAN_WAIT, .peer = WORLD_DRIVER});
    assert_int_equal(trace_take(c.world.trace, &out), 2);
    assert_true(out[0].kind == SPAN_EXCHANGE && out[0].row == 2 && out[0].n == 9);
    assert_true(out[0].start == 40 && out[0].end == 55);
    assert_true(out[1].kind == SPAN_WAIT && out[1].peer == WORLD_DRIVER);
    assert_true(out[1].start == 10 && out[1].end == 20);
    trace_free(c.world.trace);
}

/* To peer 5 from 10 to 40, with a gap that peer 6 fills; then once more. */
static void test_sends_that_overlap_are_one(void **state)
{
    (void)state;
    struct clock c = clock_with(SIZE, 0);
    struct trace_sends sends = {0};
    const struct trace_span what = {.row = 3, .n = 8};
    static const struct {
        int64_t at;
        uint32_t peer;
        uint64_t bytes; /* 0: one has ended */
    } story[] = {{10, 5, 100}, {15, 5, 200}, {20, 6, 1000}, {25, 5, 0}, {30, 5, 300},
                 {35, 5, 0},   {40, 5, 0},   {45, 6, 0},    {50, 5, 7}, {60, 5, 0}};
    static const struct trace_span expected[] = {{SPAN_SEND, 3, 3, 5, 8, 600, 10, 40},
                                                 {SPAN_SEND, 3, 1, 6, 8, 1000, 20, 45},
                                                 {SPAN_SEND, 3, 1, 5, 8, 7, 50, 60}};
    for (size_t i = 0; i < sizeof story / sizeof *story; i++) {
        c.now = story[i].at;
        if (story[i].bytes > 0)
            trace_sending(&c.world, &sends, story[i].peer, story[i].bytes);
        else
            trace_sent(&c.world, &sends, story[i].peer, what);
    }
    const struct trace_span *out;
    assert_int_equal(trace_take(c.world.trace, &out), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(out[i].kind, SPAN_SEND);
        assert_int_equal(out[i].row, expected[i].row);
        assert_int_equal(out[i].sends, expected[i].sends);
        assert_int_equal(out[i].n, expected[i].n);
        assert_int_equal(out[i].peer, expected[i].peer);
        assert_int_equal(out[i].amount, expected[i].amount);
        assert_int_equal(out[i].start, expected[i].start);
        assert_int_equal(out[i].end, expected[i].end);
    }
    trace_free(c.world.trace);
}

static void test_more_peers_than_there_are_places_for(void **state)
{
    (void)state;
    struct clock c = clock_with(SIZE, 0);
    struct trace_sends sends = {0};
    const struct trace_span *out;
    for (uint32_t peer = 0; peer < 33; peer++)
        trace_sending(&c.world, &sends, peer, 1);
    c.now = 1;
    for (uint32_t peer = 0; peer < 33; peer++)
        trace_sent(&c.world, &sends, peer, (struct trace_span){0});
    assert_int_equal(trace_take(c.world.trace, &out), 32);
    assert_int_equal(trace_dropped(c.world.trace), 1);
    trace_free(c.world.trace);
}

static void test_kinds_have_names(void **state)
{
    (void)state;
    assert_string_equal(trace_kind_name(SPAN_COMPUTE), "compute");
    assert_string_equal(trace_kind_name(SPAN_EVALUATE), "evaluate");
    for (unsigned kind = 0; kind < SPAN_KINDS; kind++)
        for (unsigned other = 0; other < kind; other++)
            assert_string_not_equal(trace_kind_name(kind), trace_kind_name(other));
    assert_string_equal(trace_kind_name(SPAN_KINDS), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spans_come_out_as_they_went_in),
        cmocka_unit_test(test_it_is_a_ring),
        cmocka_unit_test(test_what_does_not_fit_is_dropped_and_counted),
        cmocka_unit_test(test_no_time_is_no_span),
        cmocka_unit_test(test_more_than_a_piece_is_taken_in_pieces),
        cmocka_unit_test(test_tasks_add_at_the_same_time),
        cmocka_unit_test(test_who_is_not_traced_does_nothing),
        cmocka_unit_test(test_spans_of_a_world),
        cmocka_unit_test(test_sends_that_overlap_are_one),
        cmocka_unit_test(test_more_peers_than_there_are_places_for),
        cmocka_unit_test(test_kinds_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
