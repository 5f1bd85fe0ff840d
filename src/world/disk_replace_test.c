/* Replacing a file, on the disk itself: whatever fails, the old bytes are there or the new ones. */
#include "world/disk.h"

#include "faulty_disk.h"
#include "folder.h"

#include <unistd.h>

static int setup(void **state)
{
    static struct folder folder;
    folder_make(&folder);
    *state = &folder;
    return 0;
}

static int teardown(void **state)
{
    folder_remove(*state);
    return 0;
}

static int replace_file(struct disk *d, const struct folder *folder, const char *text,
                        struct err *err)
{
    char path[256];
    return disk_replace(d, folder_file(folder, "file", path), text, strlen(text), err);
}

static void test_a_file_is_made_and_replaced(void **state)
{
    const struct folder *folder = *state;
    struct err err = {0};
    assert_int_equal(replace_file(real_disk(), folder, "first", &err), OK);
    folder_expect(folder, "file", "first");
    assert_int_equal(replace_file(real_disk(), folder, "the second, longer", &err), OK);
    folder_expect(folder, "file", "the second, longer");
    assert_int_equal(replace_file(real_disk(), folder, "", &err), OK);
    folder_expect(folder, "file", "");
    assert_false(folder_has(folder, "file.paceline-new"));
}

/* A name that a user may have given is not ours to remove. */
static void test_disk_keeps_a_neighbouring_file(void **state)
{
    const struct folder *folder = *state;
    struct err err = {0};
    folder_put(folder, "file.new", "mine", 4);
    assert_int_equal(replace_file(real_disk(), folder, "bytes", &err), OK);
    folder_expect(folder, "file", "bytes");
    folder_expect(folder, "file.new", "mine");
}

/* The bytes are synced before the rename, and the directory before success is reported. */
static void test_the_order_is_the_point(void **state)
{
    struct faulty_disk faulty;
    struct err err = {0};
    faulty_init(&faulty);
    assert_int_equal(replace_file(&faulty.disk, *state, "bytes", &err), OK);
    assert_string_equal(faulty.reported, "remove open write sync close rename sync_dir ");
}

/* With one call failing, and with all that follow failing, too. */
static void test_each_call_fails(void **state)
{
    const struct folder *folder = *state;
    for (int for_good = 0; for_good < 2; for_good++) {
        for (int n = 1; n <= 7; n++) {
            struct faulty_disk faulty;
            struct err err = {0};
            assert_int_equal(replace_file(real_disk(), folder, "old", NULL), OK);
            faulty_init(&faulty);
            faulty.fail_at = n;
            faulty.for_good = for_good;
            int rc = replace_file(&faulty.disk, folder, "new bytes", &err);
            bool replaced = n == 1 ? !for_good : n == 7; /* 1: nothing was there to remove */
            assert_int_equal(rc, n == 1 && !for_good ? OK : ERR_IO);
            assert_true(rc == OK || strncmp(err.text, "the disk: cannot ", 17) == 0);
            folder_expect(folder, "file", replaced ? "new bytes" : "old");
            assert_true(for_good || !folder_has(folder, "file.paceline-new"));
            assert_int_equal(replace_file(real_disk(), folder, "again", &err), OK);
            folder_expect(folder, "file", "again");
        }
    }
}

static void test_a_directory_that_is_kept(void **state)
{
    const struct folder *folder = *state;
    struct faulty_disk faulty;
    struct err err = {0};
    char path[256];
    folder_file(folder, "kept/", path);
    for (int n = 2; n >= 0; n--) {
        faulty_init(&faulty);
        faulty.fail_at = n;
        assert_int_equal(disk_keep_dir(&faulty.disk, path, NULL, &err), n > 0 ? ERR_IO : OK);
        assert_string_equal(faulty.reported, n == 1 ? "make_dir " : "make_dir sync_dir ");
    }
    assert_true(folder_has(folder, "kept"));
    folder_file(folder, "missing/kept", path);
    assert_int_equal(disk_keep_dir(real_disk(), path, NULL, &err), ERR_IO);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(disk_keep_dir(real_disk(), "/", NULL, &err), OK);
    assert_int_equal(chdir(folder->path), 0);
    assert_int_equal(disk_keep_dir(real_disk(), "plainly", NULL, &err), OK);
    assert_int_equal(chdir("/"), 0);
    assert_true(folder_has(folder, "plainly"));
}

static void test_paths_that_cannot_be(void **state)
{
    const struct folder *folder = *state;
    struct err err = {0};
    char path[256], long_path[5000];
    memset(long_path, 'x', sizeof long_path);
    long_path[0] = '/';
    long_path[sizeof long_path - 1] = '\0';
    assert_int_equal(disk_replace(real_disk(), "plain", "x", 1, &err), ERR_IO);
    assert_int_equal(disk_replace(real_disk(), long_path, "x", 1, &err), ERR_IO);
    folder_file(folder, "missing/file", path);
    assert_int_equal(disk_replace(real_disk(), path, "x", 1, &err), ERR_IO);
    assert_non_null(strstr(err.text, path));
    folder_put(folder, "plain", "x", 1);
    folder_file(folder, "plain/file", path);
    assert_int_equal(disk_replace(real_disk(), path, "x", 1, &err), ERR_IO);
    folder_expect(folder, "plain", "x");
}

/* A link in the place of the new file is not followed. */
static void test_a_link_is_not_followed(void **state)
{
    const struct folder *folder = *state;
    struct err err = {0};
    char link[256], victim[256];
    folder_put(folder, "victim", "precious", 8);
    assert_int_equal(symlink(folder_file(folder, "victim", victim),
                             folder_file(folder, "file.paceline-new", link)),
                     0);
    assert_int_equal(replace_file(real_disk(), folder, "bytes", &err), OK);
    folder_expect(folder, "victim", "precious");
    folder_expect(folder, "file", "bytes");
}

static void join_names(void *user, const char *name)
{
    strcat(strcat(user, name), " ");
}

static void test_listing(void **state)
{
    const struct folder *folder = *state;
    const struct disk_ops *ops = real_disk()->ops;
    struct err err = {0};
    char path[256], names[512] = "";
    folder_file(folder, "listed", path);
    assert_int_equal(ops->list(real_disk(), path, join_names, names, &err), ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(ops->make_dir(real_disk(), path, NULL, &err), OK);
    assert_int_equal(ops->make_dir(real_disk(), path, NULL, &err), OK); /* it is there: fine */
    assert_int_equal(ops->list(real_disk(), path, join_names, names, &err), OK);
    assert_string_equal(names, "");
    folder_put(folder, "listed/b", "", 0);
    folder_put(folder, "listed/a10", "", 0);
    folder_put(folder, "listed/a9", "", 0);
    folder_put(folder, "listed/.c", "", 0);
    assert_int_equal(ops->list(real_disk(), path, join_names, names, &err), OK);
    assert_string_equal(names, ".c a10 a9 b ");
    folder_file(folder, "listed/b", path);
    assert_int_equal(ops->list(real_disk(), path, join_names, names, &err), ERR_NOT_FOUND);
    assert_int_equal(ops->make_dir(real_disk(), path, NULL, &err),
                     ERR_IO); /* a file has its name */
}

static void test_files_that_grow(void **state)
{
    const struct folder *folder = *state;
    const struct disk_ops *ops = real_disk()->ops;
    struct err err = {0};
    struct disk_file *file;
    char path[256];
    folder_file(folder, "log", path);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ops->open(real_disk(), path, true, &file, &err), OK);
        assert_int_equal(ops->write(file, i ? "two" : "one,", i ? 3 : 4, &err), OK);
        assert_int_equal(ops->close(file, &err), OK);
    }
    folder_expect(folder, "log", "one,two");
    folder_file(folder, "head", path);
    assert_int_equal(ops->open(real_disk(), path, false, &file, &err), OK);
    assert_int_equal(ops->write(file, "....data", 8, &err), OK);
    assert_int_equal(ops->rewrite(file, "head", 4, &err), OK);
    assert_int_equal(ops->write(file, ",end", 4, &err), OK);
    assert_int_equal(ops->close(file, &err), OK);
    folder_expect(folder, "head", "headdata,end");
    folder_file(folder, "log", path);
    assert_int_equal(ops->open(real_disk(), path, false, &file, &err), ERR_IO); /* not new */
    assert_non_null(strstr(err.text, path));
}

static void test_disk_in_memory_is_recognised(void **state)
{
    (void)state;
    assert_false(real_disk_in_memory("/proc"));
    assert_false(real_disk_in_memory("/no/such/folder"));
    if (access("/dev/shm", W_OK) != 0)
        skip();
    assert_true(real_disk_in_memory("/dev/shm"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_is_made_and_replaced),
        cmocka_unit_test(test_disk_keeps_a_neighbouring_file),
        cmocka_unit_test(test_the_order_is_the_point),
        cmocka_unit_test(test_each_call_fails),
        cmocka_unit_test(test_a_directory_that_is_kept),
        cmocka_unit_test(test_paths_that_cannot_be),
        cmocka_unit_test(test_a_link_is_not_followed),
        cmocka_unit_test(test_listing),
        cmocka_unit_test(test_files_that_grow),
        cmocka_unit_test(test_disk_in_memory_is_recognised),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
