/* Labels in JSON: those that are there, and texts that have none or are none. */
#include "data/label_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Read from memory that ends where the text does. */
static int read_text(const char *text, size_t n, const char *key, uint32_t *out, struct err *err)
{
    char *copy = malloc(n > 0 ? n : 1);
    assert_non_null(copy);
    memcpy(copy, text, n);
    int rc = label_json_read(copy, n, key, out, err);
    free(copy);
    return rc;
}

static void test_labels_that_are_there(void **state)
{
    (void)state;
    static const struct {
        const char *text, *key;
        uint32_t label;
    } good[] = {
        {"{\"label\": 7}", "label", 7},
        {" { \"Label\": 1, \"label\" : 0 } \r\n\t", "label", 0},
        {"{\"a\": [1, {}], \"b\": {\"c\": {\"d\": 1048575}}}", "b.c.d", 1048575},
        {"{\"n\": 3.0}", "n", 3},
        {"{\"n\": 3, \"n\": 4}", "n", 3},
        {"{\"\": 5}", "", 5},
        {"{\"\\u00e4\": 6}", "\xc3\xa4", 6},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        uint32_t label = 99;
        struct err err = {0};
        if (read_text(good[i].text, strlen(good[i].text), good[i].key, &label, &err) != OK)
            fail_msg("%s: %s", good[i].text, err.text);
        assert_int_equal(label, good[i].label);
    }
}

static void test_texts_without_a_label(void **state)
{
    (void)state;
    static const struct {
        const char *text, *key, *why;
    } bad[] = {
        {"", "n", "is not JSON near byte 0"},
        {"{\"n\": 1", "n", "is not JSON near byte"},
        {"{\"n\": 1} x", "n", "is not JSON near byte 8"},
        {"{\"n\": 1}\xff", "n", "is not JSON near byte 8"},
        {"[1]", "n", "has no \"n\""},
        {"1", "n", "has no \"n\""},
        {"{\"m\": 1}", "n", "has no \"n\""},
        {"{\"N\": 1}", "n", "has no \"n\""},
        {"{\"n\": 1}", "n.m", "has no \"n.m\""},
        {"{\"nm\": 1}", "n", "has no \"n\""},
        {"{\"n\": \"1\"}", "n", "expected \"n\" to be a label, a number from 0 to 1048575"},
        {"{\"n\": null}", "n", "expected \"n\" to be"},
        {"{\"n\": true}", "n", "expected \"n\" to be"},
        {"{\"n\": 1.5}", "n", "expected \"n\" to be"},
        {"{\"n\": -1}", "n", "expected \"n\" to be"},
        {"{\"n\": 1048576}", "n", "expected \"n\" to be"},
        {"{\"n\": 1e99}", "n", "expected \"n\" to be"},
        {"{\"n\": {\"m\": 1}}", "n", "expected \"n\" to be"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint32_t label;
        struct err err = {0};
        assert_int_equal(read_text(bad[i].text, strlen(bad[i].text), bad[i].key, &label, &err),
                         ERR_INPUT);
        if (!strstr(err.text, bad[i].why))
            fail_msg("%s: \"%s\" should say \"%s\"", bad[i].text, err.text, bad[i].why);
    }
}

/* As deep as the limit of bytes allows: an error, and no stack that ends. */
static void test_a_text_that_is_deep(void **state)
{
    (void)state;
    char *text = malloc(LABEL_JSON_BYTES_MAX);
    uint32_t label;
    struct err err = {0};
    assert_non_null(text);
    memset(text, '[', LABEL_JSON_BYTES_MAX);
    assert_int_equal(label_json_read(text, LABEL_JSON_BYTES_MAX, "n", &label, &err), ERR_INPUT);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_labels_that_are_there),
        cmocka_unit_test(test_texts_without_a_label),
        cmocka_unit_test(test_a_text_that_is_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
