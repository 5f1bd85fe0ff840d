/* The event queue against a plain array that is searched. */
#include "sim/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"

enum { EVENTS = 300, STEPS = 20000 };

static struct event *first_of(struct event *events)
{
    struct event *first = NULL;
    for (size_t i = 0; i < EVENTS; i++) {
        struct event *e = &events[i];
        if (e->queued &&
            (!first || e->at < first->at || (e->at == first->at && e->seq < first->seq)))
            first = e;
    }
    return first;
}

static void test_storm_of_pushes_and_removals(void **state)
{
    (void)state;
    static struct event events[EVENTS];
    struct heap heap = {0};
    for (uint64_t i = 0; i < STEPS; i++) {
        struct event *e = &events[rng_below(1, 1, i, EVENTS)];
        switch (rng_below(1, 2, i, 5)) {
        case 0: heap_remove(&heap, e); break;
        case 1:
            if (heap_top(&heap))
                heap_take(&heap, heap_top(&heap));
            break;
        case 2: heap_push(&heap, e, heap.now); break;
        default: heap_push(&heap, e, (int64_t)rng_below(1, 3, i, 50)); break; /* many ties */
        }
        assert_ptr_equal(heap_top(&heap), first_of(events));
    }
    int64_t at = 0;
    uint64_t seq = 0;
    for (struct event *e; (e = heap_top(&heap)); heap_remove(&heap, e)) {
        assert_true(e->at > at || (e->at == at && e->seq > seq));
        at = e->at;
        seq = e->seq;
    }
    assert_null(first_of(events));
}

static void test_never_is_not_queued(void **state)
{
    (void)state;
    struct heap heap = {0};
    struct event e = {0};
    heap_push(&heap, &e, 5);
    heap_push(&heap, &e, INT64_MAX);
    assert_null(heap_top(&heap));
    heap_remove(&heap, &e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_storm_of_pushes_and_removals),
        cmocka_unit_test(test_never_is_not_queued),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
