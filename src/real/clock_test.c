/* How many processors a process may use, by its affinity and by made-up control groups. */
#define _GNU_SOURCE
#include "folder.h"
#include "real/real.h"

#include <sched.h>

static const char mounts[] = "35 29 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

/* A tree whose only group has that quota. */
static int cores_with(const char *cpu_max)
{
    struct folder f;
    char command[256];
    folder_make(&f);
    snprintf(command, sizeof command, "mkdir -p '%s/proc/self' '%s/sys/fs/cgroup'", f.path, f.path);
    assert_int_equal(system(command), 0);
    folder_put(&f, "proc/self/cgroup", "0::/\n", 5);
    folder_put(&f, "proc/self/mountinfo", mounts, sizeof mounts - 1);
    folder_put(&f, "sys/fs/cgroup/cpu.max", cpu_max, strlen(cpu_max));
    int cores = real_cores_under(f.path);
    folder_remove(&f);
    return cores;
}

static void test_cores_obey_a_quota(void **state)
{
    (void)state;
    int all = cores_with("max 100000\n");
    assert_int_equal(cores_with("50000 100000\n"), 1);
    assert_int_equal(cores_with("100000 100000\n"), 1);
    assert_int_equal(cores_with("100001 100000\n"), all > 1 ? 2 : 1);
    assert_int_equal(cores_with("9999900000 100000\n"), all);
}

static void test_cores_obey_affinity(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(cores_with("max 100000\n"), CPU_COUNT(&before));
    CPU_ZERO(&one);
    for (size_t i = 0; CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(cores_with("max 100000\n"), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static void test_threads_are_a_share_of_the_cores(void **state)
{
    (void)state;
    int cores = real_cores();
    unsetenv("OMP_NUM_THREADS");
    assert_int_equal(real_threads(1), cores);
    assert_int_equal(real_threads((uint32_t)cores), 1);
    assert_int_equal(real_threads((uint32_t)cores + 1), 1);
}

static void test_threads_obey_the_environment(void **state)
{
    (void)state;
    int cores = real_cores();
    setenv("OMP_NUM_THREADS", "1", 1);
    assert_int_equal(real_threads(1), 1);
    setenv("OMP_NUM_THREADS", "1,4", 1);
    assert_int_equal(real_threads(1), 1);
    setenv("OMP_NUM_THREADS", "1000000", 1);
    assert_int_equal(real_threads(1), cores);
    setenv("OMP_NUM_THREADS", "many", 1);
    assert_int_equal(real_threads(1), cores);
    setenv("OMP_NUM_THREADS", "0", 1);
    assert_int_equal(real_threads(1), cores);
    unsetenv("OMP_NUM_THREADS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cores_obey_a_quota),
        cmocka_unit_test(test_cores_obey_affinity),
        cmocka_unit_test(test_threads_are_a_share_of_the_cores),
        cmocka_unit_test(test_threads_obey_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
