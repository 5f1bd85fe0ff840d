/* A driver whose disk has no room for the file continues trying. */
#include "train/driver.h"

#include "faulty_disk.h"
#include "folder.h"
#include "listening_world.h"

static int warnings;

static void on_log(void *user, enum log_level level, const char *line)
{
    (void)user, (void)line;
    warnings += level == LOG_WARN;
}

static void test_driver_term_write_is_retried(void **state)
{
    (void)state;
    struct listening_world here;
    struct faulty_disk disk;
    struct folder folder;
    struct rundir dir = {.disk = &disk.disk};
    const struct logger log = {.write = on_log, .level = LOG_DEBUG};
    const struct train_host host = {.log = &log};
    const struct train_options options = {.dir = &dir};
    struct driver *d = calloc(1, sizeof *d);
    struct driver_term read;
    struct err err;
    assert_non_null(d);
    listening_init(&here);
    faulty_init(&disk);
    folder_make(&folder);
    snprintf(dir.path, sizeof dir.path, "%s", folder.path);
    d->world = &here.world;
    d->host = &host;
    d->options = &options;
    d->claim.term = (struct driver_term){.run = 7, .incarnation = 1, .view = 3, .next = 2};
    members_add(&d->claim.term.members, 0);
    members_add(&d->claim.term.members, 1);

    disk.fail_at = 1;
    disk.for_good = true;
    driver_write_term(d);
    assert_int_equal(driver_term_read(&dir, &read, &err), ERR_NOT_FOUND);
    for (int i = 0; i < 5; i++) {
        here.now += WORLD_SECOND;
        driver_retry_term(d);
    }
    assert_int_equal(warnings, 1);
    disk.for_good = false;
    here.now += WORLD_SECOND / 2;
    driver_retry_term(d); /* not so soon */
    assert_int_equal(driver_term_read(&dir, &read, &err), ERR_NOT_FOUND);
    here.now += WORLD_SECOND / 2;
    driver_retry_term(d);
    assert_int_equal(driver_term_read(&dir, &read, &err), OK);
    assert_int_equal(read.view, 3);
    assert_int_equal(members_count(&read.members), 2);
    int calls = disk.calls;
    here.now += 10 * WORLD_SECOND;
    driver_retry_term(d); /* it is there */
    assert_int_equal(disk.calls, calls);
    folder_remove(&folder);
    free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_driver_term_write_is_retried),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
