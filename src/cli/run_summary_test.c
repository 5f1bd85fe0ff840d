/* Summaries of runs, from lines of events that are written here. */
#include "cli/run_summary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int setup(void **state)
{
    *state = run_summary_create(false);
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    run_summary_free(*state);
    return 0;
}

static void take_line(struct run_summary *s, const char *line)
{
    run_summary_line(s, line, strlen(line));
}

static const struct run_point *point_of(const struct run_summary *s, enum run_curve curve, size_t i)
{
    assert_true(i < s->curve[curve].count);
    return &s->curve[curve].point[i];
}

/* An exchange has no epoch in its event: it gets it by its time between two losses. 600 records:
 * epoch 0.5 is 300 samples. */
static void test_summary_places_exchanges_by_their_time(void **state)
{
    struct run_summary *s = *state;
    take_line(s, "{\"t\":0,\"kind\":\"start\",\"records\":{\"train\":600}}");
    take_line(s, "{\"t\":1,\"kind\":\"loss\",\"epoch\":0.5,\"step\":3,\"samples\":300,\"loss\":2}");
    take_line(s, "{\"t\":1.25,\"kind\":\"exchange\",\"seconds\":0.1,\"waited_s\":0}");
    assert_int_equal(s->curve[CURVE_EXCHANGE].placed, 0);
    take_line(s, "{\"t\":3,\"kind\":\"loss\",\"epoch\":1.5,\"step\":9,\"samples\":600,\"loss\":1}");
    const struct run_point *p = point_of(s, CURVE_EXCHANGE, 0);
    assert_int_equal(s->curve[CURVE_EXCHANGE].placed, 1);
    assert_true(p->epoch == 0.625 && p->samples == 375 && p->value == 0.1);
    p = point_of(s, CURVE_TRAIN_LOSS, 1);
    assert_true(p->t == 3 && p->epoch == 1.5 && p->samples == 900 && p->value == 1);
    assert_true(point_of(s, CURVE_SPEED, 0)->value == 300);
    assert_true(point_of(s, CURVE_SPEED, 1)->value == 300);
}

/* One evaluation of both sets is an event with the second one's values under other keys. */
static void test_summary_separates_the_sets(void **state)
{
    struct run_summary *s = *state;
    take_line(
        s, "{\"t\":2,\"kind\":\"eval\",\"epoch\":1,\"set\":\"validation\",\"error\":0.25,\"loss\":"
           "0.5,\"test_error\":0.375,\"test_loss\":0.75}");
    take_line(
        s,
        "{\"t\":3,\"kind\":\"eval\",\"epoch\":2,\"set\":\"test\",\"error\":0.125,\"loss\":null}");
    assert_true(point_of(s, CURVE_VALIDATION_ERROR, 0)->value == 0.25);
    assert_true(point_of(s, CURVE_VALIDATION_LOSS, 0)->value == 0.5);
    assert_true(point_of(s, CURVE_TEST_ERROR, 0)->value == 0.375);
    assert_true(point_of(s, CURVE_TEST_ERROR, 1)->value == 0.125);
    assert_true(point_of(s, CURVE_TEST_LOSS, 0)->value == 0.75);
    assert_true(isnan(point_of(s, CURVE_TEST_LOSS, 1)->value)); /* it has diverged */
}

static void test_summary_counts_workers_and_names_recoveries(void **state)
{
    struct run_summary *s = *state;
    static const struct {
        const char *line;
        uint32_t workers;
        enum mark_kind kind;
    } steps[] = {
        {"{\"t\":0,\"kind\":\"member\",\"node\":0,\"what\":\"join\"}", 1, MARK_MEMBER},
        {"{\"t\":0,\"kind\":\"member\",\"node\":1,\"what\":\"join\"}", 2, MARK_MEMBER},
        {"{\"t\":1,\"kind\":\"loss\",\"epoch\":1,\"samples\":1,\"loss\":1}", 2, MARK_MEMBER},
        {"{\"t\":2,\"kind\":\"member\",\"node\":1,\"what\":\"dead\"}", 1, MARK_FAULT},
        {"{\"t\":2,\"kind\":\"member\",\"node\":1,\"what\":\"dead\"}", 1, MARK_FAULT},
        {"{\"t\":3,\"kind\":\"member\",\"node\":2,\"what\":\"join\"}", 2, MARK_RECOVERY},
        {"{\"t\":4,\"kind\":\"member\",\"node\":0,\"what\":\"leave\"}", 1, MARK_MEMBER},
        {"{\"t\":5,\"kind\":\"back\",\"workers\":1}", 1, MARK_RECOVERY},
        {"{\"t\":5,\"kind\":\"member\",\"node\":4000000000,\"what\":\"join\"}", 1, MARK_MEMBER},
        {"{\"t\":5,\"kind\":\"member\",\"node\":-7,\"what\":\"join\"}", 1, MARK_MEMBER},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        take_line(s, steps[i].line);
        assert_int_equal(s->workers, steps[i].workers);
        assert_int_equal(s->mark[s->marks - 1].kind, steps[i].kind);
    }
    assert_int_equal(s->faults, 2);
    assert_int_equal(s->recoveries, 2);
    assert_string_equal(s->mark[2].text, "worker 1 lost: its connection ended");
}

static void test_summary_adds_up_waits_by_node(void **state)
{
    struct run_summary *s = *state;
    take_line(s, "{\"t\":1,\"kind\":\"exchange\",\"bytes\":10,\"seconds\":2,\"waited_s\":0.5,"
                 "\"waited_for\":3,\"cause\":\"link\"}");
    take_line(s, "{\"t\":2,\"kind\":\"exchange\",\"bytes\":30,\"seconds\":1,\"waited_s\":0.25,"
                 "\"waited_for\":3}");
    take_line(s, "{\"t\":3,\"kind\":\"exchange\",\"seconds\":1,\"waited_s\":1,\"waited_for\":2,"
                 "\"blamed\":-1,\"cause\":\"evaluation\"}");
    take_line(s, "{\"t\":4,\"kind\":\"exchange\",\"seconds\":1,\"waited_s\":0}");
    assert_true(s->exchanges == 4 && s->exchange_s == 5 && s->exchange_bytes == 40);
    assert_true(s->waited[4].count == 2 && s->waited[4].seconds == 0.75);
    assert_true(s->waited[4].by[CAUSE_LINK] == 1 && s->waited[4].by[CAUSE_STEP] == 0);
    assert_true(s->waited[0].count == 1 && s->waited[0].seconds == 1); /* the driver */
    assert_int_equal(s->waited[0].by[CAUSE_EVALUATION], 1);
    assert_int_equal(s->waits, 0); /* none of them has a sentence */
    assert_int_equal(s->nodes, 4);
}

/* The longest of those that have a cause, the longest first. */
static void test_summary_explains_the_longest_waits(void **state)
{
    struct run_summary *s = *state;
    char line[256];
    for (int n = 1; n <= RUN_WAITS_MAX + 4; n++) {
        snprintf(line, sizeof line,
                 "{\"t\":%d,\"kind\":\"exchange\",\"n\":%d,\"seconds\":9,\"waited_s\":%g,"
                 "\"waited_for\":2,\"blamed\":%d,\"cause\":\"link\",\"why\":\"its link sent at %d "
                 "Mbit/s\"}",
                 n, n, 0.1 * (n * 5 % 13), n % 2 ? 3 : -1, n);
        take_line(s, line);
    }
    assert_int_equal(s->waits, RUN_WAITS_MAX);
    for (size_t i = 1; i < s->waits; i++)
        assert_true(s->wait[i].seconds <= s->wait[i - 1].seconds);
    assert_true(s->wait[0].exchange == 5 && s->wait[0].t == 5);
    assert_string_equal(s->wait[0].text, "waited 1.2 s for worker 3: its link sent at 5 Mbit/s");
    assert_string_equal(s->wait[1].text, "waited 1.1 s for the driver: its link sent at 10 Mbit/s");
}

/* Anybody may have written the file. */
static void test_summary_survives_wrong_lines(void **state)
{
    static const char *const lines[] = {
        "",
        "{",
        "[1,2]",
        "null",
        "{\"t\":1}",
        "{\"kind\":\"loss\"}",
        "{\"t\":\"1\",\"kind\":\"loss\"}",
        "{\"t\":1,\"kind\":7}",
        "{\"t\":1e999,\"kind\":\"loss\"}",
        "{\"t\":1,\"kind\":\"loss\"",
    };
    static const char *const odd[] = {
        "{\"t\":1,\"kind\":\"loss\",\"epoch\":\"x\",\"samples\":-5,\"loss\":[1]}",
        "{\"t\":-9,\"kind\":\"exchange\",\"waited_for\":1.5,\"waited_s\":{}}",
        "{\"t\":1,\"kind\":\"start\",\"records\":3}",
        "{\"t\":1,\"kind\":\"end\",\"reason\":{}}",
        "{\"t\":1,\"kind\":\"eval\",\"error\":\"\"}",
        "{\"t\":1,\"kind\":\"of the future\",\"node\":2}",
    };
    struct run_summary *s = *state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        take_line(s, lines[i]);
        assert_int_equal(s->unreadable, i + 1);
    }
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        take_line(s, odd[i]);
    assert_int_equal(s->unreadable, sizeof lines / sizeof *lines);
    for (int i = 0; i < RUN_MARKS_MAX + 10; i++)
        take_line(s, "{\"t\":1,\"kind\":\"checkpoint\"}");
    assert_int_equal(s->marks, RUN_MARKS_MAX);
    assert_true(s->marks_left_out >= 10);
}

static void test_summary_of_a_resumed_run_counts_sessions(void **state)
{
    struct run_summary *s = *state;
    take_line(s, "{\"t\":0,\"kind\":\"start\",\"job\":\"a\"}");
    take_line(s, "{\"t\":1,\"kind\":\"member\",\"node\":0,\"what\":\"join\"}");
    take_line(s, "{\"t\":5,\"kind\":\"end\",\"reason\":\"interrupted\"}");
    assert_non_null(s->end);
    take_line(s, "{\"t\":5,\"kind\":\"start\",\"job\":\"a\",\"resumed_after\":9}");
    assert_null(s->end);
    assert_true(s->sessions == 2 && s->workers == 0 && s->recoveries == 1);
}

/* A file with a line above the limit, and a last line that a crash has cut. */
static void test_summary_reads_a_cut_file(void **state)
{
    struct run_summary *s = *state;
    char path[] = "/tmp/paceline-events-XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    assert_non_null(f);
    fputs("{\"t\":1,\"kind\":\"rate\",\"rate\":0.5}\n{\"t\":2,\"kind\":\"warning\",\"text\":\"", f);
    for (int i = 0; i < (1 << 20) + 100; i++)
        fputc('x', f);
    fputs("\"}\n{\"t\":3,\"kind\":\"rate\",\"rate\":0.25}\n{\"t\":4,\"kind\":\"ra", f);
    fclose(f);
    assert_true(run_summary_read(s, "test", path));
    unlink(path);
    assert_true(s->lines == 4 && s->unreadable == 2);
    assert_true(s->curve[CURVE_RATE].count == 2 && s->marks == 0);
    assert_true(point_of(s, CURVE_RATE, 1)->value == 0.25);
    assert_false(run_summary_read(s, "test", "/nonexistent/events.jsonl"));
}

/* ---- curves ---- */

/* Of each column the least and the greatest stay, so a spike of one point is not lost. */
static void test_reduced_curve_keeps_extremes(void **state)
{
    enum { POINTS = 100000, COLUMNS = 100 };
    struct run_series series = {0};
    (void)state;
    for (int i = 0; i < POINTS; i++) {
        double value = i == 54321 ? -7 : i == 12345 ? 9 : i == 777 ? NAN : sin(i / 3000.0);
        struct run_point p = {.t = i, .value = value};
        assert_true(run_series_add(&series, &p, i < POINTS / 2));
    }
    double first = series.point[0].t, last = series.point[POINTS - 1].t;
    run_series_reduce(&series, COLUMNS);
    assert_true(series.count <= 5 * (COLUMNS + 1) && series.count > 2 * COLUMNS);
    assert_true(series.point[0].t == first && series.point[series.count - 1].t == last);
    bool low = false, high = false, gap = false;
    for (size_t i = 0; i < series.count; i++) {
        low = low || series.point[i].value == -7;
        high = high || series.point[i].value == 9;
        gap = gap || isnan(series.point[i].value);
        assert_true(i == 0 || series.point[i].t > series.point[i - 1].t);
        assert_int_equal(series.point[i].t < POINTS / 2, i < series.placed);
    }
    assert_true(low && high && gap);
    size_t count = series.count;
    run_series_reduce(&series, count); /* few enough */
    assert_int_equal(series.count, count);
    run_series_release(&series);
}

static void test_reduced_curve_of_one_moment_stays_small(void **state)
{
    struct run_series series = {0};
    (void)state;
    for (int i = 0; i < 1000; i++) {
        struct run_point p = {.t = 1, .value = i % 10};
        assert_true(run_series_add(&series, &p, true));
    }
    run_series_reduce(&series, 10);
    assert_true(series.count <= 4);
    run_series_release(&series);
}

/* A live page is fed for days. */
static void test_bounded_summary_stays_bounded(void **state)
{
    struct run_summary *s = run_summary_create(true);
    char line[128];
    (void)state;
    assert_non_null(s);
    for (int i = 0; i < 100000; i++) {
        snprintf(line, sizeof line,
                 "{\"t\":%d,\"kind\":\"exchange\",\"seconds\":%d,\"waited_s\":0}", i, i % 1000);
        take_line(s, line);
    }
    assert_true(s->curve[CURVE_EXCHANGE].count <= 1 << 14 && s->reductions > 0);
    assert_true(s->exchanges == 100000);
    run_summary_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_summary_places_exchanges_by_their_time, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_summary_separates_the_sets, setup, teardown),
        cmocka_unit_test_setup_teardown(test_summary_counts_workers_and_names_recoveries, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_summary_adds_up_waits_by_node, setup, teardown),
        cmocka_unit_test_setup_teardown(test_summary_explains_the_longest_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_summary_survives_wrong_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(test_summary_of_a_resumed_run_counts_sessions, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_summary_reads_a_cut_file, setup, teardown),
        cmocka_unit_test(test_reduced_curve_keeps_extremes),
        cmocka_unit_test(test_reduced_curve_of_one_moment_stays_small),
        cmocka_unit_test(test_bounded_summary_stays_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
