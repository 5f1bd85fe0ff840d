/* Where the tuner's choices are kept: a file that several processes read and write, that may be
 * damaged, and that may be missing. */
#include "api/tuning.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/status.h"
#include "folder.h"
#include "paceline/bench.h"

struct place {
    struct folder folder;
    char path[256];
    char text[1024]; /* the log's last line about tuning */
    int warnings, runs;
};

static struct place place;

static void keep_log(void *user, enum log_level level, const char *line)
{
    (void)user;
    place.warnings += level == LOG_WARN;
    if (strstr(line, "tuned "))
        snprintf(place.text, sizeof place.text, "%s", line);
}

static const struct logger logger = {keep_log, NULL, LOG_INFO};

static int setup(void **state)
{
    (void)state;
    place = (struct place){0};
    folder_make(&place.folder);
    folder_file(&place.folder, "kernels.txt", place.path);
    setenv("PACELINE_TUNER", place.path, 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    folder_remove(&place.folder);
    return 0;
}

static int run_candidate(void *user, size_t i)
{
    (void)user, (void)i;
    place.runs++;
    return OK;
}

/* Choose for one key in a tuner of its own, as a process would. */
static void choose_alone(const char *key, const char *name)
{
    struct api_tuning *tuning = NULL;
    struct tuner *tuner = api_tuner(&tuning, &logger);
    assert_non_null(tuner);
    assert_ptr_equal(api_tuner(&tuning, &logger), tuner);
    assert_int_equal(tuner_choose(tuner, key, &name, 1, run_candidate, NULL), 0);
    tuner_finish(tuner);
    api_tuning_free(tuning);
}

static void put_file(const char *text)
{
    FILE *file = fopen(place.path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void assert_file_has(const char *a, const char *b)
{
    struct file_bytes bytes;
    struct err err;
    assert_int_equal(file_read(place.path, 1 << 20, &bytes, &err), OK);
    assert_non_null(strstr((char *)bytes.data, a));
    assert_non_null(strstr((char *)bytes.data, b));
    file_release(&bytes);
}

static void test_tuning_choices_are_kept(void **state)
{
    (void)state;
    choose_alone("a", "direct");
    assert_true(place.runs > 0);
    assert_non_null(strstr(place.text, "tuned 1 shape in "));
    assert_non_null(strstr(place.text, place.path));
    place.runs = 0;
    place.text[0] = '\0';
    choose_alone("a", "direct");
    assert_int_equal(place.runs, 0);
    assert_string_equal(place.text, "");
    choose_alone("b", "own");
    assert_file_has("paceline kernels 1\na | direct | ", "\nb | own | ");
}

/* Both had read the file before either wrote it. */
static void test_tuning_two_processes_keep_both(void **state)
{
    (void)state;
    const char *name = "direct";
    struct api_tuning *one = NULL, *two = NULL;
    struct tuner *first = api_tuner(&one, &logger), *second = api_tuner(&two, &logger);
    tuner_choose(first, "a", &name, 1, run_candidate, NULL);
    tuner_choose(second, "b", &name, 1, run_candidate, NULL);
    tuner_finish(first);
    tuner_finish(second);
    assert_file_has("\na | direct", "\nb | direct");
    api_tuning_free(one), api_tuning_free(two);
}

static void test_a_damaged_file_is_made_good(void **state)
{
    (void)state;
    put_file("paceline kernels 1\na | own | 5 ns\nb | \x01\x02 | 7 ns\nc | d");
    choose_alone("a", "direct"); /* `own` is no candidate */
    assert_true(place.runs > 0);
    put_file("");
    choose_alone("b", "direct");
    assert_file_has("paceline kernels 1\n", "b | direct | ");
    put_file("paceline kernels 0\nb | own\n");
    choose_alone("b", "direct");
    assert_file_has("paceline kernels 1\n", "b | direct | ");
}

/* The one entry of its folder, whatever that is. */
static void assert_alone(void)
{
    struct file_names names;
    assert_int_equal(file_list(place.folder.path, 9, &names, NULL), OK);
    assert_int_equal(names.count, 1);
    file_names_release(&names);
}

/* Another program's file of that name is not lost. */
static void test_what_is_not_ours_is_left_alone(void **state)
{
    (void)state;
    char other[300];
    static const char *const texts[] = {"paceline", "\n", "my notes\npaceline kernels 1\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        put_file(texts[i]);
        choose_alone("a", "direct");
        assert_file_has(texts[i], texts[i]);
        assert_int_equal(place.warnings, i + 1);
        assert_non_null(strstr(place.text, "is no file of choices; name another file with "));
        assert_alone();
    }
    assert_int_equal(remove(place.path), 0);
    assert_int_equal(mkfifo(place.path, 0600), 0);
    choose_alone("a", "direct");
    assert_int_equal(file_type(place.path), FILE_IS_OTHER);
    assert_int_equal(remove(place.path), 0);
    snprintf(other, sizeof other, "%s.own", place.path);
    assert_int_equal(symlink(other, place.path), 0);
    choose_alone("a", "direct");
    assert_int_equal(file_type(place.path), FILE_IS_OTHER);
    assert_int_equal(file_type(other), FILE_IS_NONE);
    assert_alone();
    assert_int_equal(place.warnings, 5);
}

/* A folder's name, which no file can be renamed to. */
static void test_tuning_leaves_no_temporary_file(void **state)
{
    (void)state;
    snprintf(place.path, sizeof place.path, "%.200s/sub/", place.folder.path);
    setenv("PACELINE_TUNER", place.path, 1);
    choose_alone("a", "direct");
    assert_int_equal(place.warnings, 1);
    assert_non_null(strstr(place.text, "cannot save the result"));
    assert_int_equal(rmdir(place.path), 0); /* it is empty */
}

/* A file of another user, for example. Root may read all files, so the test uses another user. */
static void test_a_file_that_may_not_be_read_is_reported_by_name(void **state)
{
    (void)state;
    put_file("paceline kernels 1\n");
    assert_int_equal(chmod(place.folder.path, 0755), 0);
    assert_int_equal(chmod(place.path, 0), 0);
    bool root = geteuid() == 0;
    assert_true(!root || seteuid(65534) == 0);
    choose_alone("a", "direct");
    assert_true(!root || seteuid(0) == 0);
    assert_int_equal(place.warnings, 1);
    assert_non_null(strstr(
        place.text,
        "kernels.txt: cannot open: Permission denied; name another file with PACELINE_TUNER=PATH"));
    assert_alone();
}

static void test_tuning_unwritable_path_is_logged(void **state)
{
    (void)state;
    setenv("PACELINE_TUNER", "/proc/none/kernels.txt", 1);
    choose_alone("a", "direct");
    assert_int_equal(place.warnings, 1);
    assert_non_null(strstr(place.text, "cannot save the result: /proc/none"));
}

static void test_tuning_makes_cache_folders(void **state)
{
    (void)state;
    unsetenv("PACELINE_TUNER");
    setenv("XDG_CACHE_HOME", place.folder.path, 1);
    choose_alone("a", "direct");
    snprintf(place.path, sizeof place.path, "%.200s/paceline/kernels.txt", place.folder.path);
    assert_file_has("a | direct", "ns\n");
    unsetenv("XDG_CACHE_HOME");
}

static void test_off_is_off(void **state)
{
    (void)state;
    struct api_tuning *tuning = NULL;
    setenv("PACELINE_TUNER", "off", 1);
    assert_null(api_tuner(&tuning, &logger));
    assert_null(api_tuner(&tuning, &logger));
    api_tuning_free(tuning);
    assert_int_equal(place.warnings, 0);
}

static void test_tuning_value_that_is_no_path_is_off(void **state)
{
    (void)state;
    struct api_tuning *tuning = NULL;
    setenv("PACELINE_TUNER", "none", 1);
    assert_null(api_tuner(&tuning, &logger));
    assert_null(api_tuner(&tuning, &logger));
    api_tuning_free(tuning);
    assert_int_equal(place.warnings, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_tuning_choices_are_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tuning_two_processes_keep_both, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_damaged_file_is_made_good, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_file_that_may_not_be_read_is_reported_by_name, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_tuning_unwritable_path_is_logged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tuning_makes_cache_folders, setup, teardown),
        cmocka_unit_test_setup_teardown(test_off_is_off, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tuning_value_that_is_no_path_is_off, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_not_ours_is_left_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tuning_leaves_no_temporary_file, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
