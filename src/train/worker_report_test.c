/* Workers' reports about themselves, from bytes of another program, and how often they are sent. */
#include "train/worker_report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct departure sample = {
    .status = ERR_INPUT,
    .stage = DEPARTED_OPENING,
    .location = {"attic", "10.0.0.3:4711"},
    .text = "train_data: /data/pets: cannot open: No such file or directory",
};

static void test_departure_is_decoded_whole(void **state)
{
    struct buf bytes = {0};
    struct departure out;
    (void)state;
    departure_encode(&sample, &bytes);
    assert_int_equal(departure_decode(&(struct byte_reader){bytes.data, bytes.len, false}, &out),
                     OK);
    assert_int_equal(out.status, ERR_INPUT);
    assert_string_equal(out.location.host, "attic");
    assert_string_equal(out.text, sample.text);
    for (size_t n = 0; n < bytes.len; n++) {
        uint8_t *copy = malloc(n ? n : 1); /* of that size: a sanitizer sees a read past it */
        assert_non_null(copy);
        memcpy(copy, bytes.data, n);
        assert_int_equal(departure_decode(&(struct byte_reader){copy, n, false}, &out),
                         ERR_PROTOCOL);
        free(copy);
    }
    buf_release(&bytes);
}

static void test_opening_report_is_decoded_whole(void **state)
{
    const struct opening_report report = {{"attic", "10.0.0.3:4711"}, "train_data", 7, 1281167};
    struct buf bytes = {0};
    struct opening_report out;
    (void)state;
    opening_encode(&report, &bytes);
    assert_int_equal(opening_decode(&(struct byte_reader){bytes.data, bytes.len, false}, &out), OK);
    assert_true(out.done == 7 && out.total == 1281167);
    assert_string_equal(out.stage, "train_data");
    for (size_t n = 0; n < bytes.len; n++)
        assert_int_equal(opening_decode(&(struct byte_reader){bytes.data, n, false}, &out),
                         ERR_PROTOCOL);
    buf_release(&bytes);
}

static void test_departure_text_is_printable(void **state)
{
    struct departure bad = sample, out;
    struct buf bytes = {0};
    struct err err;
    (void)state;
    snprintf(bad.location.host, sizeof bad.location.host, "a\033[2Jb");
    snprintf(bad.text, sizeof bad.text, "x\ny");
    departure_encode(&bad, &bytes);
    assert_int_equal(departure_decode(&(struct byte_reader){bytes.data, bytes.len, false}, &out),
                     OK);
    departure_explain(&out, 3, &err);
    assert_int_equal(err.status, ERR_INPUT);
    assert_string_equal(err.text, "worker 3 (a?[2Jb, 10.0.0.3:4711) left while opening: x?y");
    buf_release(&bytes);
}

static void test_departure_repeated_is_reported_once_a_minute(void **state)
{
    struct departures departures = {0};
    struct departure other = sample;
    int64_t second = DEPARTURE_PAUSE / 60, now = 5 * second;
    uint32_t silent = 9;
    (void)state;
    assert_true(departure_is_news(&departures, &sample, now, &silent));
    assert_int_equal(silent, 0);
    for (int i = 0; i < 11; i++)
        assert_false(departure_is_news(&departures, &sample, now += 5 * second, &silent));
    snprintf(other.location.host, sizeof other.location.host, "cellar"); /* another host is news, */
    assert_true(departure_is_news(&departures, &other, now, &silent));
    snprintf(other.text, sizeof other.text, "out of memory"); /* and so is another cause */
    assert_true(departure_is_news(&departures, &other, now, &silent));
    assert_true(departure_is_news(&departures, &sample, now + 6 * second, &silent));
    assert_int_equal(silent, 11);
}

static void test_departure_cause_ignores_numbers(void **state)
{
    struct departures departures = {0};
    struct departure a = sample, b = sample;
    uint32_t silent;
    (void)state;
    snprintf(a.text, sizeof a.text, "worker 3 at 10.0.0.3:4711 cannot reach worker 0");
    snprintf(b.text, sizeof b.text, "worker 14 at 10.0.0.3:50123 cannot reach worker 0");
    assert_true(departure_is_news(&departures, &a, 1, &silent));
    assert_false(departure_is_news(&departures, &b, 2, &silent));
}

static void test_departures_are_bounded(void **state)
{
    struct departures departures = {0};
    struct departure one = sample;
    uint32_t silent;
    (void)state;
    for (int i = 0; i < 3 * DEPARTURES_MAX; i++) {
        snprintf(one.location.host, sizeof one.location.host, "host%d", i);
        assert_true(departure_is_news(&departures, &one, i + 1, &silent));
    }
    assert_false(departure_is_news(&departures, &one, 3 * DEPARTURES_MAX + 1, &silent));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_departure_is_decoded_whole),
        cmocka_unit_test(test_opening_report_is_decoded_whole),
        cmocka_unit_test(test_departure_text_is_printable),
        cmocka_unit_test(test_departure_repeated_is_reported_once_a_minute),
        cmocka_unit_test(test_departure_cause_ignores_numbers),
        cmocka_unit_test(test_departures_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
