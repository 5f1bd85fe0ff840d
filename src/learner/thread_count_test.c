/* How many threads compute while other processes come and go: a machine is modelled by what a
 * window takes with so many threads, and how long they wait for a processor. */
#include "learner/thread_count.h"

#include "base/fault.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { THREADS_MAX = 16, RECORDS = 64 };

/* The time of RECORDS records, and the delay meanwhile, in ms, by threads. */
struct machine {
    double ms[THREADS_MAX + 1], delay[THREADS_MAX + 1];
};

struct story {
    struct thread_count count;
    const struct machine *machine;
    int64_t now;
    int threads, trials, changes;
    struct thread_change last;
};

static void begin_story(struct story *s, int most, const struct machine *machine)
{
    *s = (struct story){.machine = machine, .threads = most, .now = 1};
    thread_count_init(&s->count, most);
}

/* Let windows of 100 batches pass, for so many seconds. */
static void pass_time(struct story *s, double seconds)
{
    int64_t end = s->now + (int64_t)(seconds * 1e9);
    while (s->now < end) {
        bool was_trial = s->count.other != 0;
        struct thread_window w = {
            .computed = (int64_t)(s->machine->ms[s->threads] * 100e6),
            .delay = (int64_t)(s->machine->delay[s->threads] * 100e6),
            .records = 100 * RECORDS,
        };
        s->now += w.computed;
        w.now = s->now;
        s->changes += thread_count_next(&s->count, &w, &s->threads, &s->last);
        s->trials += !was_trial && s->count.other != 0;
        assert_in_range(s->threads, 1, s->count.most);
    }
}

static const struct machine quiet = {.ms = {0, 4.0, 2.2}, .delay = {0, 0.0, 0.1}};
/* Measured with two busy processes on two processors. */
static const struct machine busy = {.ms = {0, 8.1, 24.0}, .delay = {0, 4.0, 20.0}};

static void test_a_quiet_machine_is_left_alone(void **state)
{
    (void)state;
    struct story s;
    begin_story(&s, 2, &quiet);
    pass_time(&s, 300);
    assert_int_equal(s.trials, 0);
    assert_int_equal(s.count.now, 2);
}

static void test_delayed_threads_become_fewer_and_return(void **state)
{
    (void)state;
    struct story s;
    begin_story(&s, 2, &quiet);
    pass_time(&s, 20);
    s.machine = &busy;
    pass_time(&s, 20);
    assert_int_equal(s.changes, 1);
    assert_int_equal(s.count.now, 1);
    assert_int_equal(s.last.from, 2);
    assert_int_equal(s.last.to, 1);
    assert_true(fabs(s.last.delayed - 20.0 / 48.0) < 1e-3);
    assert_true(fabs(s.last.ns_before * RECORDS - 24.0e6) < 1);
    assert_true(fabs(s.last.ns_after * RECORDS - 8.1e6) < 1);
    pass_time(&s, 100);
    assert_int_equal(s.changes, 1);
    s.machine = &quiet;
    pass_time(&s, 20);
    assert_int_equal(s.changes, 2);
    assert_int_equal(s.count.now, 2);
}

/* Threads that sleep while they wait are faster than one, delayed or not: trials become rare. */
static void test_delay_alone_changes_nothing(void **state)
{
    (void)state;
    static const struct machine sleeping = {.ms = {0, 8.1, 6.0}, .delay = {0, 4.0, 5.0}};
    struct story s;
    begin_story(&s, 2, &sleeping);
    pass_time(&s, 60);
    assert_int_equal(s.changes, 0);
    assert_in_range(s.trials, 4, 6);
    int trials = s.trials;
    pass_time(&s, 600);
    assert_in_range(s.trials - trials, 8, 11);
}

/* Sixteen threads, three processors of which are somebody else's. */
static void test_as_many_fewer_as_processors_are_taken(void **state)
{
    (void)state;
    struct machine m = {.ms = {0}};
    for (int t = 1; t <= THREADS_MAX; t++) {
        m.ms[t] = t <= 13 ? 40.0 / t : 6.0;
        m.delay[t] = t <= 13 ? 0 : m.ms[t] * (t - 13);
    }
    struct story s;
    begin_story(&s, 16, &m);
    pass_time(&s, 15);
    assert_int_equal(s.count.now, 13);
    assert_int_equal(s.changes, 1);
}

static void test_a_number_that_cannot_be_had_ends_trials(void **state)
{
    (void)state;
    struct story s;
    begin_story(&s, 2, &busy);
    while (s.count.other == 0)
        pass_time(&s, 1);
    thread_count_stop(&s.count);
    pass_time(&s, 3);
    s.trials = 0;
    pass_time(&s, 200);
    assert_int_equal(s.trials, 0);
    assert_int_equal(s.count.now, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_quiet_machine_is_left_alone),
        cmocka_unit_test(test_delayed_threads_become_fewer_and_return),
        cmocka_unit_test(test_delay_alone_changes_nothing),
        cmocka_unit_test(test_as_many_fewer_as_processors_are_taken),
        cmocka_unit_test(test_a_number_that_cannot_be_had_ends_trials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
