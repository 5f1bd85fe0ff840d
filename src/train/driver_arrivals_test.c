/* A driver that opens its data for long gives signs of life for its run directory meanwhile. */
#include "doomed_run.h"
#include "folder.h"
#include "real/disk.h"
#include "train/rundir.h"

/* The real disk, which counts them. */
struct counting_disk {
    struct disk disk; /* first */
    struct disk_ops ops;
};

static int touches;

static void count_touch(struct disk_file *lock)
{
    touches++;
    real_disk()->ops->touch(lock);
}

static void test_driver_touches_lock_while_opening(void **state)
{
    struct tiny *t = *state;
    struct counting_disk disk = {.ops = *real_disk()->ops};
    struct rundir dir;
    struct err err = {0};
    char out[128];
    disk.ops.touch = count_touch;
    disk.disk.ops = &disk.ops;
    tiny_out(t, out);
    assert_int_equal(rundir_create(&dir, &disk.disk, out, "tiny", &err), OK);
    for (int has_lock = 0; has_lock < 2; has_lock++) {
        struct doomed_run run = {.options = {.dir = &dir}, .open_s = 10};
        struct disk_file *lock = dir.lock;
        touches = 0;
        dir.lock = has_lock ? lock : NULL;
        doomed_play(t, "node { count: 4 } step_seconds: 0.004 link { mbit: 1000 }",
                    (const char *const[]){"stop.epochs=0.2", NULL}, 9.5, &run);
        assert_true(run.rc != OK); /* it still opens */
        dir.lock = lock;
        if (has_lock)
            assert_in_range(touches, 8, 11);
        else
            assert_int_equal(touches, 0);
    }
    rundir_close(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_driver_touches_lock_while_opening),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
