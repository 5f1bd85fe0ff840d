/* Lists and ranges of files that the test makes. */
#include "data/shard_list.h"

#include "folder.h"

static const char *const names[] = {"t-008.tar", "t-009.tar", "t-010.tar", "n8", "n9", "n10",
                                    "m0",        "m1",        "m2",        "m3", "m4", "m5",
                                    "m6",        "m7",        "m8",        "m9", "m10"};

static const struct source_config anywhere = {0};

static int setup(void **state)
{
    static struct folder f;
    folder_make(&f);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        folder_put(&f, names[i], "0123456789abcdefghij", i); /* of i bytes */
    assert_int_equal(chdir(f.path), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    assert_int_equal(chdir("/"), 0);
    folder_remove(*state);
    return 0;
}

static void test_lists_and_ranges(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t first, count; /* in `names` */
    } good[] = {
        {"t-008.tar", 0, 1},
        {"t-{008..010}.tar", 0, 3},
        {"t-{8..010}.tar", 0, 3},
        {"n{8..10}", 3, 3},
        {"t-{009..010}.tar,n{8..8}, n9", 1, 4},
        {"n10,,m{0..10},", 5, 12}, /* a 0 by itself fills nothing up */
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct shard_list list;
        struct err err;
        if (shard_list_parse(good[i].text, &anywhere, &list, &err) != OK)
            fail_msg("%s", err.text);
        assert_int_equal(list.count, good[i].count);
        for (size_t k = 0; k < list.count; k++) {
            assert_string_equal(list.at[k].path, names[good[i].first + k]);
            assert_int_equal(list.at[k].len, good[i].first + k);
        }
        shard_list_release(&list);
    }
}

static void test_lists_that_are_wrong(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"t-{008..011}.tar", "t-011.tar: cannot open: No such file"},
        {"t-008.tar,none", "none: cannot open: No such file"},
        {"t-{010..008}.tar", "t-{010..008}.tar: expected one range in braces"},
        {"n{8..9}{0..1}", "expected one range in braces"},
        {"n{a..b}", "expected one range in braces"},
        {"n{8..}", "expected one range in braces"},
        {"n{..8}", "expected one range in braces"},
        {"n{8.9}", "expected one range in braces"},
        {"n{8..9", "expected one range in braces"},
        {"n{8,9}", "n{8: expected one range in braces"},
        {"n{1..9999999999}", "expected one range in braces"},
        {",", ",: names no file"},
        {"/", "/: not a regular file"},
        {"http://me@host/a?b", "http://***@host/a?***: URLs cannot be read here"},
        {"http://me@host/{a}", "http://***@host/{a}: expected one range in braces"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct shard_list list;
        struct err err = {0};
        assert_int_equal(shard_list_parse(bad[i][0], &anywhere, &list, &err), ERR_INPUT);
        if (!strstr(err.text, bad[i][1]))
            fail_msg("\"%s\" should say \"%s\"", err.text, bad[i][1]);
        shard_list_release(&list);
    }
    char path[5000];
    struct shard_list list;
    struct err err = {0};
    memset(path, 'x', sizeof path);
    strcpy(path + sizeof path - 8, "{1..2}");
    assert_int_equal(shard_list_parse(path, &anywhere, &list, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "path longer than 4096 bytes"));
    shard_list_release(&list);
}

/* A client that opens any URL. */
static int open_any(struct remote *remote, const char *url, struct remote_file **out,
                    struct err *err)
{
    static struct remote_file file;
    (void)url, (void)err;
    file = (struct remote_file){remote->ops, 77};
    *out = &file;
    return OK;
}

static void close_any(struct remote_file *file)
{
    file->len = 0;
}

static void test_urls_of_another_node_are_refused(void **state)
{
    static const struct remote_ops ops = {.open = open_any, .close = close_any};
    static const struct {
        const char *urls, *url;
        bool allowed;
    } url[] = {
        {NULL, "http://me@host/a", false},
        {"http://host/data/", "http://host/data/a-{0..1}.tar", true},
        {"http://host/data/", "http://host/date/a", false},
        {"http://host/data/", "https://host/data/a", false},
        {"http://host/data/", "http://me@host/data/a", false},
        {"http://host/data/", "http://host/data/../a", false},
        {"http://host/data/", "http://host/data/%2e%2E/a", false},
        {"http://host/data/", "http://host/data/.%2E/a", false},
        {"http://host/data/", "http://host/data/", true},
    };
    const struct folder *f = *state;
    struct remote remote = {&ops};
    for (size_t i = 0; i < sizeof url / sizeof *url; i++) {
        const struct source_config config = {
            .root = f->path, .urls = url[i].urls, .remote = &remote};
        struct shard_list list;
        struct err err = {0};
        int rc = shard_list_parse(url[i].url, &config, &list, &err);
        assert_int_equal(rc, url[i].allowed ? OK : ERR_INPUT);
        if (rc == OK)
            assert_int_equal(list.at[0].len, 77);
        else
            assert_non_null(strstr(err.text, ": a worker with a data root opens no URL"));
        assert_null(strstr(err.text, "me@"));
        shard_list_release(&list);
    }
}

/* Shards without records are never found. */
static void test_the_shard_of_a_record(void **state)
{
    (void)state;
    static const size_t first[] = {0, 0, 3, 3, 3, 7}, found[] = {1, 1, 1, 4, 4, 4, 4};
    struct shard at[6];
    const struct shard_list list = {.at = at, .count = 6};
    for (size_t s = 0; s < 6; s++)
        at[s].first = first[s];
    for (size_t i = 0; i < 7; i++)
        assert_ptr_equal(shard_list_find(&list, i), &at[found[i]]);
}

static void test_shards_that_change(void **state)
{
    const struct folder *f = *state;
    struct shard_list list;
    struct file_open file;
    struct err err = {0};
    folder_put(f, "n9", "1234", 4);
    assert_int_equal(shard_list_parse("n9", &anywhere, &list, &err), OK);
    assert_int_equal(shard_open(&list.at[0], NULL, &file, &err), OK);
    file_close(&file);
    folder_put(f, "n9", "12345", 5);
    assert_int_equal(shard_open(&list.at[0], NULL, &file, &err), ERR_IO);
    assert_string_equal(err.text, "n9: has changed since it was opened: 5 bytes, not 4");
    assert_int_equal(unlink("n9"), 0);
    assert_int_equal(shard_open(&list.at[0], NULL, &file, &err), ERR_IO);
    shard_list_release(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists_and_ranges),
        cmocka_unit_test(test_lists_that_are_wrong),
        cmocka_unit_test(test_urls_of_another_node_are_refused),
        cmocka_unit_test(test_the_shard_of_a_record),
        cmocka_unit_test(test_shards_that_change),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
