/* Events as lines: times count from the start of the run, keys stand as they were added. */
#include "train/events.h"

#include "listening_world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_events_line_begins_with_time_and_kind(void **state)
{
    struct listening_world l;
    struct events events;
    (void)state;
    listening_init(&l);
    l.now = 5 * WORLD_SECOND;
    events_init(&events, &l.world, 0);
    l.now += WORLD_SECOND / 4;
    assert_true(events_seconds(&events) == 0.25);
    cJSON *event = events_new(&events, "eval");
    cJSON_AddNumberToObject(event, "z", 0.1);
    cJSON_AddNumberToObject(event, "a", 3);
    cJSON_AddStringToObject(event, "text", "a \"quote\"\nand a line");
    events_emit(&events, event);
    assert_string_equal(l.log_text, "{\"t\":0.25,\"kind\":\"eval\",\"z\":0.1,\"a\":3,"
                                    "\"text\":\"a \\\"quote\\\"\\nand a line\"}\n");
}

/* An event that cannot be sent is lost, and nothing else. */
static void test_events_unsent_event_is_lost(void **state)
{
    static const int fails[] = {ERR_FULL, ERR_PEER, ERR_NOMEM};
    struct listening_world l;
    struct events events;
    (void)state;
    listening_init(&l);
    events_init(&events, &l.world, 0);
    for (size_t i = 0; i < sizeof fails / sizeof *fails; i++) {
        l.fails = fails[i];
        events_emit(&events, events_new(&events, "lost"));
    }
    events_emit(&events, NULL); /* as when memory ran out */
    events_emit(&events, events_new(&events, "told"));
    events.simulated = true;
    events_emit(&events, events_new(&events, "dreamt"));
    assert_string_equal(l.log_text, "{\"t\":0,\"kind\":\"told\"}\n"
                                    "{\"t\":0,\"kind\":\"dreamt\",\"simulated\":true}\n");
}

/* Fractions and numbers beyond 15 digits are cJSON's own. */
static void test_events_whole_number_is_as_cjson_writes_it(void **state)
{
    static const double numbers[] = {
        0,   -1,   7, 1023, 4294967295.0, 999999999999999.0, 1e15, -1e15, 18446744073709551615.0,
        0.5, 1e300};
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        cJSON *ours = cJSON_CreateObject(), *theirs = cJSON_CreateObject();
        events_add_whole(ours, "n", numbers[i]);
        cJSON_AddNumberToObject(theirs, "n", numbers[i]);
        char *line = cJSON_PrintUnformatted(ours), *want = cJSON_PrintUnformatted(theirs);
        assert_string_equal(line, want);
        cJSON_free(line);
        cJSON_free(want);
        cJSON_Delete(ours);
        cJSON_Delete(theirs);
    }
}

static void expect_fault(const char *what, uint32_t node, const char *want)
{
    char *line = events_fault(1.5, what, node, 2.5);
    assert_string_equal(line, want);
    free(line);
}

static void test_events_fault_line(void **state)
{
    (void)state;
    expect_fault("kill", 3,
                 "{\"t\":1.5,\"kind\":\"fault\",\"what\":\"kill\",\"node\":3,\"simulated\":true}");
    expect_fault("slow", WORLD_DRIVER,
                 "{\"t\":1.5,\"kind\":\"fault\",\"what\":\"slow\",\"node\":-1,\"factor\":2.5,"
                 "\"simulated\":true}");
    assert_true(events_node(WORLD_DRIVER) == -1);
    assert_true(events_node(1023) == 1023);
}

/* As its user wrote it, not as the nearest double has it. */
static void test_events_decimal_is_shortest(void **state)
{
    static const char *const texts[] = {"0.01", "0.1", "0.004", "1", "0", "123456.8", "3.0e-05"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_true(events_decimal(strtof(texts[i], NULL)) == strtod(texts[i], NULL));
    assert_true(events_decimal(1.0f / 3) == 0.33333334);
    assert_true(isnan(events_decimal(NAN)) && isinf(events_decimal(INFINITY)));
}

static void test_events_measure_has_float_digits(void **state)
{
    (void)state;
    cJSON *event = cJSON_CreateObject();
    events_add_measure(event, "error", 19.0 / 120);
    events_add_measure(event, "epoch", 4.0 / 3);
    events_add_measure(event, "all", 1);
    events_add_measure(event, "loss", NAN);
    char *line = cJSON_PrintUnformatted(event);
    assert_string_equal(line, "{\"error\":0.15833333,\"epoch\":1.3333334,\"all\":1,\"loss\":null}");
    cJSON_free(line);
    cJSON_Delete(event);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events_line_begins_with_time_and_kind),
        cmocka_unit_test(test_events_unsent_event_is_lost),
        cmocka_unit_test(test_events_whole_number_is_as_cjson_writes_it),
        cmocka_unit_test(test_events_fault_line),
        cmocka_unit_test(test_events_decimal_is_shortest),
        cmocka_unit_test(test_events_measure_has_float_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
