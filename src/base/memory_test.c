#include "base/memory.h"

#include "folder.h"

#include <stdint.h>
#include <sys/resource.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* their runtimes need addresses at any time */
#else
#define SANITIZED 0
#endif

/* Some of the machine's memory, of which this process must have found a little. */
static void test_some_of_it_is_there(void **state)
{
    (void)state;
    size_t all = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    assert_in_range(memory_available(NULL), 1024 * 1024, all);
    size_t before = memory_used(), more = (size_t)64 << 20;
    uint8_t *touched = malloc(more);
    assert_non_null(touched);
    memset(touched, 1, more);
    assert_in_range(before, 100 * 1024, all);
    assert_in_range(memory_used(), before + more - (more >> 4), before + more + (more >> 4));
    free(touched);
}

/* The process's own limit, where it is the tightest. */
static void test_addresses_may_be_limited(void **state)
{
    const size_t most = (size_t)64 << 20;
    const char *by = NULL;
    struct rlimit before, limit;
    (void)state;
    if (SANITIZED)
        skip();
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    limit = before;
    limit.rlim_cur = 1; /* what the process has already stays */
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    size_t none = memory_available(&by);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(none, MEMORY_LEAST);
    assert_string_equal(by, MEMORY_ADDRESSES);
    if (before.rlim_cur != RLIM_INFINITY || memory_available(&by) < 2 * most)
        skip();
    assert_true(!by || strcmp(by, MEMORY_ADDRESSES) != 0);
}

static void put_text(const struct folder *f, const char *name, const char *text)
{
    folder_put(f, name, text, strlen(text));
}

/* A machine whose files these are; NULL: it has no such file. */
static size_t read_machine(const char *meminfo, const char *max, const char *current,
                           const char **limit)
{
    struct folder f;
    char path[256];
    folder_make(&f);
    static const char *const folders[] = {"proc", "proc/self", "group"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        assert_int_equal(mkdir(folder_file(&f, folders[i], path), 0700), 0);
    put_text(&f, "proc/self/cgroup", "0::/\n");
    put_text(&f, "proc/self/mountinfo", "35 29 0:30 / /group rw - cgroup2 cgroup2 rw\n");
    if (meminfo)
        put_text(&f, "proc/meminfo", meminfo);
    if (max)
        put_text(&f, "group/memory.max", max);
    put_text(&f, "group/memory.current", current);
    size_t left = memory_available_under(f.path, limit);
    folder_remove(&f);
    return left;
}

static void test_the_tighter_of_the_two_counts(void **state)
{
    const char *limit;
    (void)state;
    assert_int_equal(read_machine("MemAvailable: 2048 kB\n", "9000000\n", "1000000\n", &limit),
                     2048 * 1024);
    assert_null(limit);
    assert_int_equal(read_machine("MemAvailable: 9999 kB\n", "9000000\n", "1000000\n", &limit),
                     8000000);
    assert_string_equal(limit, "memory.max");
    assert_int_equal(read_machine(NULL, "9000000\n", "1000000\n", &limit), 8000000);
    assert_int_equal(read_machine("MemTotal: 9 kB\n", "9000000\n", "1000000\n", &limit), 8000000);
    assert_int_equal(read_machine(NULL, NULL, "1000000\n", &limit), 0);
    assert_int_equal(read_machine("MemTotal: 9 kB\n", "max\n", "1000000\n", &limit), 0);
}

/* Nothing left is not the same as no limit. */
static void test_nothing_left_is_a_limit(void **state)
{
    const char *limit;
    (void)state;
    assert_int_equal(read_machine("MemAvailable: 2048 kB\n", "1000000\n", "1000001\n", &limit),
                     MEMORY_LEAST);
    assert_string_equal(limit, "memory.max");
    assert_int_equal(read_machine("MemAvailable: 0 kB\n", "max\n", "1000001\n", &limit),
                     MEMORY_LEAST);
    assert_null(limit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_some_of_it_is_there),
        cmocka_unit_test(test_addresses_may_be_limited),
        cmocka_unit_test(test_the_tighter_of_the_two_counts),
        cmocka_unit_test(test_nothing_left_is_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
