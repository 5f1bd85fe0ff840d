/* Worker processes as `paceline train` starts them. This program is its own worker: it records its
 * arguments, and ends. */
#define _GNU_SOURCE
#include "cli/workers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINES "PACELINE_WORKERS_TEST"

static const char key[] = "0123456789abcdef0123456789abcdef";

static const char *word_after(char **argv, const char *name)
{
    for (; *argv; argv++)
        if (strcmp(*argv, name) == 0)
            return argv[1] ? argv[1] : "";
    return "";
}

static int work_main(char **argv)
{
    char given[sizeof key + 1] = "";
    const char *policy = getenv("OMP_WAIT_POLICY"), *lines = getenv(LINES);
    sigset_t mask;
    int from = open(word_after(argv, "--key"), O_RDONLY);
    ssize_t n = read(from, given, sizeof given - 1);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    int out = open(lines ? lines : "/dev/null", O_WRONLY | O_APPEND);
    dprintf(out, "%s %s %zd %s %d%d%d %s %s\n", word_after(argv, "--join"), given, n,
            policy ? policy : "none", sigismember(&mask, SIGINT), sigismember(&mask, SIGHUP),
            sigismember(&mask, SIGTERM), word_after(argv, "worker"), word_after(argv, "--cache"));
    return 0;
}

static void await_all(struct workers *workers)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 60000 && workers->count > 0; i++) {
        workers_lost(workers);
        nanosleep(&pause, NULL);
    }
    assert_int_equal(workers->count, 0);
}

/* The slots of ended workers are used again, for any number of workers. */
static void test_workers_are_started_beyond_the_thousandth(void **state)
{
    (void)state;
    enum { TIMES = 11, EACH = 100 };
    static struct workers workers;
    for (uint32_t i = 1; i <= TIMES; i++) {
        assert_int_equal(workers_start(&workers, EACH, "127.0.0.1:1"), 0);
        assert_in_range(workers.count, 1, EACH);
        await_all(&workers);
        assert_int_equal(workers_lost(&workers), i * EACH);
    }
}

static void test_workers_that_have_no_place_are_an_error(void **state)
{
    (void)state;
    static struct workers workers;
    pid_t sleeps = fork();
    assert_true(sleeps >= 0);
    if (sleeps == 0) {
        pause();
        _exit(0);
    }
    for (uint32_t i = 0; i < WORKERS_MAX; i++)
        workers.pid[i] = sleeps;
    workers.count = WORKERS_MAX;
    assert_int_equal(workers_start(&workers, 1, "127.0.0.1:1"), -1);
    assert_int_equal(workers_lost(&workers), 0);
    workers.count = 1;
    kill(sleeps, SIGKILL);
    workers_end(&workers);
}

/* The key through a pipe that no other process has; Ctrl-C for the driver alone; the folder of
 * its cache; and that it shares the machine's memory with the others. */
static void test_worker_is_given_key_policy_and_cache(void **state)
{
    (void)state;
    static struct workers workers = {.key = key};
    char lines[] = "/tmp/paceline-workers-XXXXXX", text[256] = "";
    int fd = mkstemp(lines);
    assert_true(fd >= 0);
    setenv(LINES, lines, 1);
    unsetenv("OMP_WAIT_POLICY");
    assert_int_equal(workers_start(&workers, 1, "127.0.0.1:1"), 0);
    await_all(&workers);
    setenv("OMP_WAIT_POLICY", "active", 1);
    workers.cache = "/a/folder";
    assert_int_equal(workers_start(&workers, 1, "127.0.0.1:2"), 0);
    await_all(&workers);
    assert_null(strstr(getenv("OMP_WAIT_POLICY"), "passive")); /* ours is as it was */
    assert_true(pread(fd, text, sizeof text - 1, 0) > 0);
    assert_string_equal(
        text,
        "127.0.0.1:1 0123456789abcdef0123456789abcdef 32 passive 110 --one-machine \n"
        "127.0.0.1:2 0123456789abcdef0123456789abcdef 32 active 110 --one-machine /a/folder\n");
    close(fd);
    unlink(lines);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_workers_are_started_beyond_the_thousandth),
        cmocka_unit_test(test_workers_that_have_no_place_are_an_error),
        cmocka_unit_test(test_worker_is_given_key_policy_and_cache),
    };
    if (argc > 1 && strcmp(argv[1], "worker") == 0)
        return work_main(argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
