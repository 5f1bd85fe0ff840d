#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

static const int all[] = {
#define STATUS_VALUE(name, value, text) name,
    STATUS_LIST(STATUS_VALUE)
#undef STATUS_VALUE
};
enum { STATUSES = sizeof all / sizeof all[0] };

static void test_every_status_has_its_own_text(void **state)
{
    (void)state;
    for (int i = 0; i < STATUSES; i++) {
        assert_true(all[i] == OK || all[i] < 0);
        assert_string_not_equal(status_text(all[i]), "unknown status");
        for (int k = 0; k < i; k++) {
            assert_int_not_equal(all[i], all[k]);
            assert_string_not_equal(status_text(all[i]), status_text(all[k]));
        }
    }
    assert_string_equal(status_text(1), "unknown status");
    assert_string_equal(status_text(-12345), "unknown status");
}

static void test_a_message_names_the_thing(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(err_set(&err, ERR_INPUT, "%s:%d: no such field", "a.prototxt", 12), ERR_INPUT);
    assert_int_equal(err.status, ERR_INPUT);
    assert_string_equal(err.text, "a.prototxt:12: no such field");
    err_prefix(&err, "worker %d", 3);
    assert_int_equal(err.status, ERR_INPUT);
    assert_string_equal(err.text, "worker 3: a.prototxt:12: no such field");
}

static void test_err_may_be_null(void **state)
{
    (void)state;
    assert_int_equal(err_set(NULL, ERR_NOMEM, "%d", 1), ERR_NOMEM);
    err_prefix(NULL, "job");
    err_remedy(NULL, "wait");
}

static void test_long_messages_are_cut(void **state)
{
    (void)state;
    char longer[2 * ERR_TEXT_MAX];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    struct err err = {0};
    assert_int_equal(err_set(&err, ERR_IO, "%s", longer), ERR_IO);
    assert_int_equal(strlen(err.text), ERR_TEXT_MAX - 1);
    err_prefix(&err, "disk");
    assert_int_equal(err.status, ERR_IO);
    assert_int_equal(strlen(err.text), ERR_TEXT_MAX - 1);
    assert_memory_equal(err.text, "disk: xxxx", 10);
    err_prefix(&err, "%s", longer);
    assert_int_equal(err.status, ERR_IO);
    assert_int_equal(strlen(err.text), ERR_TEXT_MAX - 1);
    assert_memory_equal(err.text, "xxxx", 4);
    err_remedy(&err, "free some room");
    assert_int_equal(strlen(err.text), ERR_TEXT_MAX - 1);
    assert_string_equal(err.text + ERR_TEXT_MAX - 1 - 17, "x; free some room");
}

static void test_err_remedy_is_last(void **state)
{
    (void)state;
    struct err err = {0};
    err_set(&err, ERR_IO, "disk: full");
    err_remedy(&err, "free some room");
    assert_string_equal(err.text, "disk: full; free some room");
    assert_int_equal(err.status, ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_status_has_its_own_text),
        cmocka_unit_test(test_a_message_names_the_thing),
        cmocka_unit_test(test_err_may_be_null),
        cmocka_unit_test(test_long_messages_are_cut),
        cmocka_unit_test(test_err_remedy_is_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
