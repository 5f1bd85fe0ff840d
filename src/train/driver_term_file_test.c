/* Two drivers take a run up at the same moment, whichever that is; and one is cut off at any. */
#include "train/driver_term_file.h"

#include "folder.h"
#include "real/disk.h"

/* A disk at whose `at`-th call something happens first. */
static struct {
    int calls, at;
    void (*then)(void);
    bool dead; /* from then on nothing is done */
} hook;

static int call_claim(struct err *err)
{
    if (++hook.calls == hook.at)
        hook.then();
    return hook.dead ? err_set(err, ERR_IO, "cut off") : OK;
}

static const struct disk_ops *real_ops(void)
{
    return real_disk()->ops;
}

static int hooked_list(struct disk *d, const char *path, void (*fn)(void *user, const char *name),
                       void *user, struct err *err)
{
    int rc = call_claim(err);
    (void)d;
    return rc == OK ? real_ops()->list(real_disk(), path, fn, user, err) : rc;
}

static int hooked_remove(struct disk *d, const char *path, struct err *err)
{
    int rc = call_claim(err);
    (void)d;
    return rc == OK ? real_ops()->remove(real_disk(), path, err) : rc;
}

static int hooked_rename(struct disk *d, const char *from, const char *to, struct err *err)
{
    int rc = call_claim(err);
    (void)d;
    return rc == OK ? real_ops()->rename(real_disk(), from, to, err) : rc;
}

static int hooked_sync_dir(struct disk *d, const char *path, struct err *err)
{
    int rc = call_claim(err);
    (void)d;
    return rc == OK ? real_ops()->sync_dir(real_disk(), path, err) : rc;
}

static int hooked_open(struct disk *d, const char *path, bool append, struct disk_file **out,
                       struct err *err)
{
    int rc = call_claim(err);
    (void)d;
    return rc == OK ? real_ops()->open(real_disk(), path, append, out, err) : rc;
}

static int hooked_write(struct disk_file *f, const void *data, size_t len, struct err *err)
{
    int rc = call_claim(err);
    return rc == OK ? real_ops()->write(f, data, len, err) : rc;
}

static int hooked_sync(struct disk_file *f, struct err *err)
{
    int rc = call_claim(err);
    return rc == OK ? real_ops()->sync(f, err) : rc;
}

static int hooked_close(struct disk_file *f, struct err *err)
{
    int rc = call_claim(err), closed = real_ops()->close(f, err);
    return rc == OK ? closed : rc;
}

static struct rundir here, hooked;

static int setup(void **state)
{
    static struct folder folder;
    static struct disk_ops ops;
    static struct disk disk = {&ops};
    ops = *real_ops();
    ops.list = hooked_list;
    ops.remove = hooked_remove;
    ops.rename = hooked_rename;
    ops.sync_dir = hooked_sync_dir;
    ops.open = hooked_open;
    ops.write = hooked_write;
    ops.sync = hooked_sync;
    ops.close = hooked_close;
    folder_make(&folder);
    here = (struct rundir){.disk = real_disk()};
    hooked = (struct rundir){.disk = &disk};
    *state = &folder;
    return 0;
}

static int teardown(void **state)
{
    folder_remove(*state);
    return 0;
}

/* A run that driver 4 has left. */
static void begin_term(const struct folder *f, int at, void (*then)(void))
{
    struct err err;
    folder_remove(f);
    assert_int_equal(mkdir(f->path, 0700), 0);
    snprintf(here.path, sizeof here.path, "%s", f->path);
    snprintf(hooked.path, sizeof hooked.path, "%s", f->path);
    assert_int_equal(
        driver_term_write(&here, &(struct driver_term){.run = 9, .incarnation = 4}, &err), OK);
    hook.calls = 0;
    hook.at = at;
    hook.then = then;
    hook.dead = false;
}

/* As a driver does it. 0: it was interrupted, or has detected a later one. */
static int take_up(const struct rundir *dir, uint32_t *incarnation)
{
    struct err err;
    *incarnation = 0;
    int rc = driver_term_claim(dir, 4, incarnation, &err);
    return rc == OK
               ? driver_term_write(
                     dir, &(struct driver_term){.run = 9, .incarnation = *incarnation, .view = 3},
                     &err)
               : rc;
}

static bool is_fenced(uint32_t incarnation)
{
    struct err err = {0};
    int rc =
        driver_term_write(&here, &(struct driver_term){.run = 9, .incarnation = incarnation}, &err);
    return rc == ERR_FENCED && strstr(err.text, "a later driver has taken this run over");
}

static uint32_t other;

static void take_up_by_another(void)
{
    assert_int_equal(take_up(&here, &other), OK);
}

static void claim_and_release(void)
{
    struct err err;
    take_up_by_another();
    assert_int_equal(
        driver_term_write(&here, &(struct driver_term){.run = 9, .incarnation = other}, &err), OK);
    driver_term_unclaim(&here, other);
}

static void test_driver_term_one_of_two_wins(void **state)
{
    int points = 0;
    void (*const ways[])(void) = {take_up_by_another, claim_and_release};
    for (int way = 0; way < 2; way++)
        for (int at = 1; begin_term(*state, at, ways[way]), true; at++) {
            uint32_t mine;
            int rc = take_up(&hooked, &mine);
            if (hook.calls < at)
                break; /* it had ended */
            struct driver_term now;
            struct err err;
            points++;
            if (mine == other || mine <= 4 || other <= 4)
                fail_msg("way %d, call %d: %u and %u", way, at, mine, other);
            uint32_t high = mine > other ? mine : other;
            assert_true(rc == OK || (rc == ERR_FENCED && mine < other));
            if (way == 0 || mine > other)
                assert_int_equal(driver_term_newest(&here), high);
            if (way == 0)
                assert_true(is_fenced(mine + other - high));
            if (way == 0)
                assert_false(is_fenced(high));
            assert_int_equal(driver_term_read(&here, &now, &err), OK);
        }
    print_message("    %d moments\n", points);
    assert_true(points >= 20);
}

static void claim_by_another(void)
{
    struct err err;
    assert_int_equal(driver_term_claim(&here, 4, &other, &err), OK);
}

static void test_driver_term_claims_differ(void **state)
{
    int points = 0;
    for (int at = 1; begin_term(*state, at, claim_by_another), true; at++, points++) {
        uint32_t mine;
        int rc = take_up(&hooked, &mine);
        if (hook.calls < at)
            break;
        assert_true(mine != other && mine > 4 && other > 4);
        assert_int_equal(rc, mine > other ? OK : ERR_FENCED);
    }
    assert_true(points >= 10);
}

/* A driver that has checked, and found no later one yet, replaces the file while the later one
 * does. */
static void write_by_another(void)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct err err;
    rundir_file(&here, "driver", path, sizeof path);
    assert_int_equal(disk_replace(real_disk(), path, "run 9\n", 6, &err), OK);
}

static void test_driver_term_later_driver_is_undisturbed(void **state)
{
    for (int at = 1; begin_term(*state, at, write_by_another), true; at++) {
        uint32_t mine;
        int rc = take_up(&hooked, &mine);
        if (hook.calls < at)
            break;
        assert_int_equal(rc, OK);
    }
}

static void crash_here(void)
{
    hook.dead = true;
}

static void count_claims(void *user, const char *name)
{
    *(int *)user += strncmp(name, "driver.", 7) == 0 && strcmp(name, "driver.paceline-new") != 0;
}

/* Whatever it had done, the next one has a higher number, is not held up, and leaves one claim. */
static void test_driver_term_survives_crash_at_any_call(void **state)
{
    int points = 0;
    for (int at = 1; begin_term(*state, at, crash_here), true; at++, points++) {
        uint32_t crashed, next;
        struct err err;
        struct driver_term now;
        int rc = take_up(&hooked, &crashed), claims = 0;
        if (hook.calls < at)
            break;
        (void)rc;
        assert_int_equal(take_up(&here, &next), OK);
        assert_true(next > crashed && next > 4 && next <= 6);
        assert_int_equal(driver_term_read(&here, &now, &err), OK);
        assert_int_equal(now.incarnation, next);
        assert_int_equal(real_ops()->list(real_disk(), here.path, count_claims, &claims, &err), OK);
        assert_int_equal(claims, 1);
    }
    print_message("    %d moments\n", points);
    assert_true(points >= 10);
}

/* A file that only looks like one has no owner. */
static void test_driver_term_ignores_other_files(void **state)
{
    static const char *const names[] = {"driver.",
                                        "driver.x",
                                        "driver.7x",
                                        "driver.-7",
                                        "driver.07",
                                        "driver.paceline-new",
                                        "driver.99999999999",
                                        "drive.9"};
    uint32_t mine;
    begin_term(*state, 0, NULL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        folder_put(*state, names[i], "", 0);
    assert_int_equal(driver_term_newest(&here), 4);
    assert_int_equal(take_up(&here, &mine), OK);
    assert_int_equal(mine, 5);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_driver_term_one_of_two_wins),
        TEST(test_driver_term_claims_differ),
        TEST(test_driver_term_later_driver_is_undisturbed),
        TEST(test_driver_term_survives_crash_at_any_call),
        TEST(test_driver_term_ignores_other_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
