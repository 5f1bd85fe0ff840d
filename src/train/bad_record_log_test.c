/* Which broken records count for the whole run. */
#include "train/bad_record_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static bool add_report(struct bad_record_log *log, uint64_t machine, enum bad_source of,
                       uint64_t record)
{
    const struct bad_record bad = {.record = record, .of = of, .cause = "torn"};
    bool confirmed = false;
    assert_int_equal(bad_record_log_add(log, machine, &bad, &confirmed), OK);
    return confirmed;
}

static void test_bad_record_log_confirms_two_machines(void **state)
{
    struct bad_record_log log = {0};
    (void)state;
    assert_false(add_report(&log, 7, BAD_OF_TRAIN, 3));
    assert_false(add_report(&log, 7, BAD_OF_TRAIN, 3)); /* the same machine again */
    assert_false(add_report(&log, 8, BAD_OF_TEST, 3));  /* another record of that number */
    assert_true(add_report(&log, 8, BAD_OF_TRAIN, 3));
    assert_int_equal(bad_records_count(log.seen), 2);
    bad_record_log_release(&log);
}

static void test_bad_record_log_is_bounded(void **state)
{
    struct bad_record_log log = {0};
    (void)state;
    for (uint64_t i = 0; i < BAD_RECORDS_MOST + 2; i++)
        assert_false(add_report(&log, 7, BAD_OF_TRAIN, i));
    assert_true(add_report(&log, 8, BAD_OF_TRAIN, 5));
    assert_int_equal(bad_records_count(log.seen), BAD_RECORDS_MOST + 1);
    bad_record_log_release(&log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_record_log_confirms_two_machines),
        cmocka_unit_test(test_bad_record_log_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
