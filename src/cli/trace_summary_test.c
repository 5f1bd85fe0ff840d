/* Where time went, from traces that are written here, and the fields of jobs. */
#include "cli/trace_window.h"

#include "cli/job_fields.h"

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

static char path[64];

static const char *write_file(const char *text)
{
    snprintf(path, sizeof path, "/tmp/paceline-trace-XXXXXX");
    int fd = mkstemp(path);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return path;
}

static struct trace_summary *read_trace(const char *text)
{
    struct trace_summary *trace = trace_summary_read("test", write_file(text));
    unlink(path);
    return trace;
}

#define SPAN(name, ts, dur, pid, tid, rest)                                          \
    "{\"name\":\"" name "\",\"ph\":\"X\",\"ts\":" ts ",\"dur\":" dur ",\"pid\":" pid \
    ",\"tid\":" tid ",\"args\":{\"step\":1" rest "}},\n"

/* Worker 0 (process 2) computes from 1 to 4 s, of which its data comes late for 0.5 s; in lane 0 it
 * exchanges from 3 to 8 s, and waits there for worker 1 from 5 to 6 s and from 7 to 7.5 s. The
 * second below 4 s is hidden by the step. */
static const char one_worker[] =
    "[\n"
    "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":2,\"tid\":1,\"args\":{\"name\":\"steps\"}},"
    "\n" SPAN("compute", "1000000", "3000000", "2", "1", "")
        SPAN("data", "1500000", "500000", "2", "1", "")
            SPAN("exchange", "3000000", "5000000", "2", "8", "")
                SPAN("wait", "3500000", "250000", "2", "8", ",\"peer\":\"worker 1\"")
                    SPAN("wait", "5000000", "1000000", "2", "8", ",\"peer\":\"worker 1\"")
                        SPAN("wait", "7000000", "500000", "2", "8", ",\"peer\":\"worker 1\"") "]\n";

static void test_trace_divides_the_time_of_a_worker(void **state)
{
    struct trace_summary *t = read_trace(one_worker);
    (void)state;
    assert_non_null(t);
    assert_true(t->nodes == 3 && t->there[1] && !t->there[0] && !t->there[2]);
    const double *s = t->seconds[1];
    assert_true(fabs(s[PURPOSE_DATA] - 0.5) < 1e-9);
    assert_true(fabs(s[PURPOSE_COMPUTE] - 2.5) < 1e-9);
    assert_true(fabs(s[PURPOSE_WAIT] - 1.5) < 1e-9);
    assert_true(fabs(s[PURPOSE_EXCHANGE] - 2.5) < 1e-9);
    assert_true(fabs(s[PURPOSE_OTHER]) < 1e-9);
    assert_true(fabs(t->waited[1 * 3 + 2] - 1.75) < 1e-9); /* also behind the step */
    assert_true(fabs(t->stood[1 * 3 + 2] - 1.5) < 1e-9);
    assert_true(t->begin == 1 && t->end == 8 && t->names == 1);
    assert_string_equal(t->name[0].name, "steps");
    trace_summary_free(t);
}

/* Time that nothing covers is other; the time that several waits share belongs to the newest. */
static void test_trace_attributes_waits_to_the_newest(void **state)
{
    struct trace_summary *t =
        read_trace("[\n" SPAN("wait", "0", "4000000", "2", "8", ",\"peer\":\"worker 1\"")
                       SPAN("wait", "1000000", "1000000", "2", "9", ",\"peer\":\"driver\"")
                           SPAN("compute", "5000000", "1000000", "2", "1", ""));
    (void)state;
    assert_non_null(t);
    assert_true(fabs(t->stood[1 * 3 + 2] - 3) < 1e-9 && fabs(t->stood[1 * 3 + 0] - 1) < 1e-9);
    assert_true(fabs(t->seconds[1][PURPOSE_OTHER] - 1) < 1e-9);
    trace_summary_free(t);
}

static void test_trace_refuses_other_files(void **state)
{
    static const char *const texts[] = {
        "",
        "[\n]\n",
        "not JSON\n",
        "[\n" SPAN("compute", "1", "0", "2", "1", ""),
        "[\n" SPAN("compute", "1", "1", "9999", "1", ""),
        "[\n" SPAN("of the future", "1", "1", "2", "1", ""),
        "{\"name\":\"compute\",\"ph\":\"X\",\"ts\":1,\"du",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_null(read_trace(texts[i]));
    assert_null(trace_summary_read("test", "/nonexistent/trace.json"));
}

static void test_window_of_a_long_trace_is_bounded(void **state)
{
    enum { SPANS = 20000 };
    char *text = malloc((size_t)SPANS * 120);
    size_t at = 0;
    (void)state;
    assert_non_null(text);
    for (int i = 0; i < SPANS; i++)
        at += (size_t)sprintf(text + at,
                              "{\"name\":\"compute\",\"ph\":\"X\",\"ts\":%d,\"dur\":1,\"pid\":2,"
                              "\"tid\":1}\n",
                              2 * i);
    struct trace_summary *t = read_trace(text);
    free(text);
    assert_non_null(t);
    struct trace_window w;
    assert_true(trace_window_choose(t, &w));
    assert_true(t->pieces == SPANS && w.bars > TRACE_WINDOW_BARS / 4);
    assert_true(w.bars <= TRACE_WINDOW_BARS && w.begin < w.end);
    trace_window_release(&w);
    trace_summary_free(t);
}

/* Bytes for two peers, 0.1 ms apart in 8 s, are one bar in the lane's row; phases are over the
 * exchange, strips over both; the wait that begins a second later is a bar of its own. */
static void test_window_folds_and_merges(void **state)
{
    static const uint8_t purposes[] = {PURPOSE_EXCHANGE, PURPOSE_REDUCE, PURPOSE_BROADCAST,
                                       PURPOSE_WAIT,     PURPOSE_WAIT,   PURPOSE_SEND};
    struct trace_summary *t =
        read_trace("[\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":2,\"tid\":520,\"args\":{"
                   "\"name\":\"lane 0 to "
                   "driver\"}},\n" SPAN("send", "1000000", "1000000", "2", "520", "")
                       SPAN("send", "2000100", "1000000", "2", "1032", "")
                           SPAN("wait", "1000000", "1000000", "2", "8", "")
                               SPAN("wait", "3000000", "1000000", "2", "8", "")
                                   SPAN("reduce", "0", "4000000", "2", "8", "")
                                       SPAN("broadcast", "4000000", "1000000", "2", "8", "")
                                           SPAN("exchange", "0", "8000000", "2", "8", "") "]\n");
    struct trace_window w;
    char name[TRACE_ROW_BYTES];
    (void)state;
    assert_non_null(t);
    assert_true(trace_window_choose(t, &w));
    assert_int_equal(w.bars, sizeof purposes);
    for (size_t i = 0; i < w.bars; i++) {
        assert_int_equal(w.bar[i].purpose, purposes[i]);
        assert_true(w.bar[i].row == 8 && trace_window_begins_row(&w, i) == (i == 0));
    }
    assert_true(w.bar[5].start == 1 && fabs(w.bar[5].end - 3.0001) < 1e-9);
    trace_window_row(t, &w.bar[0], name);
    assert_string_equal(name, "lane 0");
    trace_window_release(&w);
    trace_summary_free(t);
}

/* ---- jobs ---- */

static bool read_job(const char *text, struct job_fields *fields)
{
    bool good = job_fields_read(write_file(text), fields);
    unlink(path);
    return good;
}

static void test_job_fields_have_paths(void **state)
{
    struct job_fields job;
    (void)state;
    assert_true(read_job("# from /home\nname: \"a { b\"\nsolver {\n  base_lr: 0.05\n  step: 1\n"
                         "  step: 2\n}\nmap {\n  k: 1\n}\nmap {\n  k: 2\n}\nworkers: 4\n}\n}\n"
                         "evil\n: 3\nx {\n",
                         &job));
    assert_string_equal(job_fields_find(&job, "name"), "\"a { b\"");
    assert_string_equal(job_fields_find(&job, "solver.base_lr"), "0.05");
    assert_string_equal(job_fields_find(&job, "solver.step"), "1");
    assert_string_equal(job_fields_find(&job, "solver.step[1]"), "2");
    assert_string_equal(job_fields_find(&job, "map.k"), "1");
    assert_string_equal(job_fields_find(&job, "map[1].k"), "2");
    assert_string_equal(job_fields_find(&job, "workers"), "4");
    assert_null(job_fields_find(&job, "base_lr"));
    assert_int_equal(job.count, 7);
    job_fields_release(&job);
    assert_false(job_fields_read("/nonexistent/job.prototxt", &job));
}

static void test_job_fields_of_a_hostile_file_are_bounded(void **state)
{
    enum { LINES = 60000 };
    struct job_fields job;
    char *text = malloc((size_t)LINES * 16 + 1);
    size_t at = 0;
    (void)state;
    assert_non_null(text);
    for (int i = 0; i < LINES; i++)
        at += (size_t)sprintf(text + at, i % 3 == 0 ? "a {\n" : "b: 1\n");
    assert_true(read_job(text, &job));
    free(text);
    assert_true(job.count <= JOB_FIELDS_MAX);
    job_fields_release(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trace_divides_the_time_of_a_worker),
        cmocka_unit_test(test_trace_attributes_waits_to_the_newest),
        cmocka_unit_test(test_trace_refuses_other_files),
        cmocka_unit_test(test_window_of_a_long_trace_is_bounded),
        cmocka_unit_test(test_window_folds_and_merges),
        cmocka_unit_test(test_job_fields_have_paths),
        cmocka_unit_test(test_job_fields_of_a_hostile_file_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
