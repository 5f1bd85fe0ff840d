/* The lock of a run: its owner, its end, and its age on another machine. */
#include "folder.h"
#include "real/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

/* The result of flock here: that of network file systems that do not support it. */
long syscall(long number, ...);
static int no_locks; /* errno; 0: the kernel decides */

int flock(int fd, int claim)
{
    if (no_locks) {
        errno = no_locks;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, claim);
}

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

static int take_lock(const struct folder *folder, bool take_over, struct disk_file **lock,
                     struct disk_holder *holder)
{
    char path[256];
    struct err err = {0};
    folder_file(folder, "lock", path);
    return real_disk()->ops->lock(real_disk(), path, take_over, lock, holder, &err);
}

static void age_lock(const struct folder *folder, int age_s)
{
    struct timespec now, times[2];
    char path[256];
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec -= age_s;
    times[0] = times[1] = now;
    assert_int_equal(utimensat(AT_FDCWD, folder_file(folder, "lock", path), times, 0), 0);
}

/* As another machine has left it, whose last sign of life is so old. */
static void put_foreign(const struct folder *folder, int age_s)
{
    static const char text[] = "another-boot\nprocess 7 on host far, since 2026-11-24 12:03\n";
    folder_put(folder, "lock", text, sizeof text - 1);
    age_lock(folder, age_s);
}

static void test_lock_ends_with_its_process(void **state)
{
    struct disk_file *lock;
    struct disk_holder holder;
    char owner[64];
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        bool has = take_lock(*state, false, &lock, &holder) == OK;
        if (!has || write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], owner, 1), 1);
    assert_int_equal(take_lock(*state, false, &lock, &holder), ERR_USAGE);
    snprintf(owner, sizeof owner, "process %ld on host ", (long)child);
    assert_non_null(strstr(holder.text, owner));
    assert_true(holder.silent < 0);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(take_lock(*state, false, &lock, &holder), OK);
    real_disk()->ops->unlock(lock);
    assert_false(folder_has(*state, "lock"));
    close(ready[0]);
    close(ready[1]);
}

static void test_lock_is_taken_over(void **state)
{
    struct disk_file *old, *new;
    struct disk_holder holder;
    assert_int_equal(take_lock(*state, false, &old, &holder), OK);
    assert_int_equal(take_lock(*state, true, &new, &holder), OK);
    real_disk()->ops->unlock(old);
    assert_true(folder_has(*state, "lock"));
    assert_int_equal(take_lock(*state, false, &old, &holder), ERR_USAGE);
    real_disk()->ops->unlock(new);
}

/* Its lock is not seen from here: it lives as long as it touches the file. */
static void test_lock_of_another_machine_follows_signs_of_life(void **state)
{
    struct disk_file *lock;
    struct disk_holder holder;
    put_foreign(*state, 5);
    for (int i = 0; i < 2; i++) { /* looking at it is no sign of life */
        assert_int_equal(take_lock(*state, false, &lock, &holder), ERR_USAGE);
        assert_string_equal(holder.text, "process 7 on host far, since 2026-11-24 12:03");
        assert_true(holder.silent > 4.5 && holder.silent < 15);
    }
    put_foreign(*state, DISK_SILENCE_MAX + 5);
    assert_int_equal(take_lock(*state, false, &lock, &holder), OK);
    real_disk()->ops->touch(lock);
    real_disk()->ops->unlock(lock);
    put_foreign(*state, 5);
    assert_int_equal(take_lock(*state, true, &lock, &holder), OK);
    real_disk()->ops->unlock(lock);
}

/* Where there are no locks an owner on this machine, too, lives by what it touches. */
static void test_lock_without_flock_follows_signs_of_life(void **state)
{
    struct disk_file *lock, *second;
    struct disk_holder holder;
    char own[64];
    no_locks = ENOLCK;
    assert_int_equal(take_lock(*state, false, &lock, &holder), OK);
    snprintf(own, sizeof own, "process %ld on host ", (long)getpid());
    age_lock(*state, 5);
    assert_int_equal(take_lock(*state, false, &second, &holder), ERR_USAGE);
    assert_non_null(strstr(holder.text, own));
    assert_true(holder.silent > 4.5 && holder.silent < 15);
    age_lock(*state, DISK_SILENCE_MAX + 5);
    real_disk()->ops->touch(lock);
    assert_int_equal(take_lock(*state, false, &second, &holder), ERR_USAGE);
    age_lock(*state, DISK_SILENCE_MAX + 5);
    assert_int_equal(take_lock(*state, false, &second, &holder), OK);
    real_disk()->ops->unlock(second);
    real_disk()->ops->unlock(lock);
    no_locks = 0;
}

/* Its owner has made the file, and not written its name yet. */
static void test_lock_without_owner_is_somebodys_at_first(void **state)
{
    struct disk_file *lock;
    struct disk_holder holder;
    folder_put(*state, "lock", "", 0);
    assert_int_equal(take_lock(*state, false, &lock, &holder), ERR_USAGE);
    assert_string_equal(holder.text, "it is just beginning");
    assert_true(holder.silent >= 0 && holder.silent < 15);
    age_lock(*state, DISK_SILENCE_MAX + 5);
    assert_int_equal(take_lock(*state, false, &lock, &holder), OK);
    real_disk()->ops->unlock(lock);
}

/* The process that took it over has released it, or was killed: the first one has it again. */
static void test_lock_is_taken_again(void **state)
{
    struct disk_file *old, *new;
    struct disk_holder holder;
    char own[64];
    int status;
    snprintf(own, sizeof own, "process %ld on host ", (long)getpid());
    assert_int_equal(take_lock(*state, false, &old, &holder), OK);
    assert_int_equal(take_lock(*state, true, &new, &holder), OK);
    real_disk()->ops->touch(old); /* not while the other has it */
    real_disk()->ops->unlock(new);
    assert_false(folder_has(*state, "lock"));
    real_disk()->ops->touch(old);
    assert_int_equal(take_lock(*state, false, &new, &holder), ERR_USAGE);
    assert_true(holder.silent < 0 && strstr(holder.text, own));
    pid_t child = fork();
    if (child == 0)
        _exit(take_lock(*state, true, &new, &holder) == OK ? 0 : 1); /* silently */
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    real_disk()->ops->touch(old);
    assert_int_equal(take_lock(*state, false, &new, &holder), ERR_USAGE);
    assert_true(holder.silent < 0 && strstr(holder.text, own));
    real_disk()->ops->unlock(old);
    assert_false(folder_has(*state, "lock"));
}

static void test_lock_needs_a_directory(void **state)
{
    const struct folder *folder = *state;
    struct disk_file *lock;
    struct disk_holder holder;
    struct err err = {0};
    char path[256];
    folder_file(folder, "missing/lock", path);
    assert_int_equal(real_disk()->ops->lock(real_disk(), path, false, &lock, &holder, &err),
                     ERR_IO);
    assert_non_null(strstr(err.text, path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lock_ends_with_its_process),
        cmocka_unit_test(test_lock_is_taken_over),
        cmocka_unit_test(test_lock_of_another_machine_follows_signs_of_life),
        cmocka_unit_test(test_lock_without_flock_follows_signs_of_life),
        cmocka_unit_test(test_lock_without_owner_is_somebodys_at_first),
        cmocka_unit_test(test_lock_is_taken_again),
        cmocka_unit_test(test_lock_needs_a_directory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
