/* Private files: who gets one, and when. */
#include "real/disk.h"

#include "folder.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[512];

static int setup(void **state)
{
    static struct folder folder;
    folder_make(&folder);
    snprintf(path, sizeof path, "%s/rows", folder.path);
    *state = &folder;
    return 0;
}

static int teardown(void **state)
{
    folder_remove(*state);
    return 0;
}

static int try_to_inherit(const char *from, struct err *err)
{
    struct file_open file;
    *err = (struct err){0};
    int rc = real_disk_inherit(from, &file, err);
    if (rc == OK)
        file_close(&file);
    return rc;
}

/* A process has the file until it ends, also by a signal. */
static void test_file_passes_when_its_process_has_ended(void **state)
{
    (void)state;
    struct err err;
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct file_open file;
        byte = real_disk_own(path, &file, &err) == OK ? 'y' : 'n';
        if (write(ready[1], &byte, 1) == 1)
            pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(try_to_inherit(path, &err), ERR_USAGE);
    assert_non_null(strstr(err.text, "the process that has it lives"));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(try_to_inherit(path, &err), OK);
    assert_int_equal(try_to_inherit(path, &err), OK); /* it was closed again */
    close(ready[0]);
    close(ready[1]);
}

static void test_other_files_are_refused(void **state)
{
    const struct folder *folder = *state;
    struct err err;
    struct file_open file;
    char other[600];
    assert_int_equal(real_disk_own(path, &file, &err), OK);
    file_close(&file);
    snprintf(other, sizeof other, "%s/other", folder->path);
    assert_int_equal(try_to_inherit(other, &err), ERR_IO); /* there is none */
    assert_int_equal(symlink(path, other), 0);
    assert_int_equal(try_to_inherit(other, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "a link"));
    assert_int_equal(unlink(other), 0);
    assert_int_equal(link(path, other), 0);
    assert_int_equal(try_to_inherit(other, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "further names"));
    assert_int_equal(unlink(other), 0);
    assert_int_equal(mkfifo(other, 0600), 0);
    assert_int_equal(try_to_inherit(other, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "not a regular file"));
    assert_int_equal(unlink(other), 0);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(try_to_inherit(path, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "open to other users"));
    assert_int_equal(chmod(path, 0600), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 65534, 65534), 0);
        assert_int_equal(try_to_inherit(path, &err), ERR_INPUT);
        assert_non_null(strstr(err.text, "another user's"));
        assert_int_equal(chown(path, 0, 0), 0);
    }
    assert_int_equal(try_to_inherit(path, &err), OK);
    snprintf(other, sizeof other, "%s/none/rows", folder->path);
    assert_int_equal(real_disk_own(other, &file, &err), ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file_passes_when_its_process_has_ended),
        cmocka_unit_test(test_other_files_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
