/* URLs as they are shown, and reads that fail. */
#include "base/remote.h"

#include "base/file.h"
#include "folder.h"

static void test_urls_are_recognised(void **state)
{
    (void)state;
    assert_true(remote_is_url("http://a/b") && remote_is_url("HTTPS://a/b"));
    assert_false(remote_is_url("/http://a") || remote_is_url("http:/a") ||
                 remote_is_url("ftp://a"));
}

static void test_secrets_of_urls_are_not_shown(void **state)
{
    (void)state;
    static const char *const shown[][2] = {
        {"a,b?c,d@e", "a,b?c,d@e"},
        {"http://host/a@b", "http://host/a@b"},
        {"https://me:secret@host:80/a", "https://***@host:80/a"},
        {"https://me:p@ss@host", "https://***@host"},
        {"http://host/a?key=1,http://me@h/b?key=2,c?d", "http://host/a?***,http://***@h/b?***,c?d"},
        {"http://host?u@v", "http://host?***"},
        {"http://", "http://"},
        {"", ""},
    };
    char out[256], brief[12];
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        assert_string_equal(remote_shown(shown[i][0], out, sizeof out), shown[i][1]);
    assert_string_equal(remote_shown("http://me:secret@host", brief, sizeof brief), "http://***@");
}

static int fail_read(struct remote_file *file, uint64_t offset, void *out, size_t n,
                     struct err *err)
{
    (void)file, (void)out, (void)n;
    return err_set(err, ERR_IO, "byte %d", (int)offset);
}

static void test_reads_that_fail_have_a_message(void **state)
{
    (void)state;
    static const struct remote_ops ops = {.read = fail_read};
    struct remote_file remote = {&ops, 100};
    const struct file_open far = {.fd = -1, .len = 100, .remote = &remote},
                           near = {.fd = -1, .len = 100};
    struct err err = {0};
    uint8_t byte;
    assert_int_equal(remote_part(&far, "path", 7, &byte, 1, ERR_INPUT, &err), ERR_INPUT);
    assert_string_equal(err.text, "byte 7");
    assert_int_equal(err.status, ERR_INPUT);
    assert_int_equal(file_part(&far, 7, &byte, 1), ERR_IO);
    assert_int_equal(remote_part(&near, "path", 7, &byte, 1, ERR_IO, &err), ERR_IO);
    assert_string_equal(err.text, "path: cannot be read any more");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_urls_are_recognised),
        cmocka_unit_test(test_secrets_of_urls_are_not_shown),
        cmocka_unit_test(test_reads_that_fail_have_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
