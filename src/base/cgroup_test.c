/* Trees of control groups as machines show them: version 2, version 1, both at once, a container's
 * own view. Each is made in a folder; the numbers to expect are worked out by hand. */
#include "base/cgroup.h"
#include "folder.h"

#include <math.h>

#define MIB (1024 * 1024)

static int setup(void **state)
{
    struct folder *f = malloc(sizeof *f);
    assert_non_null(f);
    folder_make(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    folder_remove(*state);
    free(*state);
    return 0;
}

static void put_file(const struct folder *f, const char *name, const char *text)
{
    char path[256];
    folder_file(f, name, path);
    for (char *slash = strchr(path + strlen(f->path) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    folder_put(f, name, text, strlen(text));
}

static void put_self(const struct folder *f, const char *groups, const char *mounts)
{
    put_file(f, "proc/self/cgroup", groups);
    put_file(f, "proc/self/mountinfo", mounts);
}

static struct cgroup_limits limits_of(const struct folder *f)
{
    struct cgroup_limits limits;
    cgroup_read(f->path, &limits);
    return limits;
}

static void expect_limits(const struct folder *f, size_t memory, const char *by, double cpus)
{
    struct cgroup_limits limits = limits_of(f);
    assert_int_equal(limits.memory, memory);
    if (by)
        assert_string_equal(limits.memory_by, by);
    else
        assert_null(limits.memory_by);
    assert_true(cpus == limits.cpus);
}

#define V2_MOUNT                                       \
    "29 22 0:26 / /sys rw shared:7 - sysfs sysfs rw\n" \
    "35 29 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"

static void test_cgroup_none_sets_no_limit(void **state)
{
    expect_limits(*state, SIZE_MAX, NULL, (double)INFINITY);
    put_self(*state, "0::/user\n", "29 22 0:26 / /sys rw - sysfs sysfs rw\n");
    expect_limits(*state, SIZE_MAX, NULL, (double)INFINITY);
}

static void test_cgroup_v2_subtracts_what_is_held(void **state)
{
    put_self(*state, "0::/batch/job7\n", V2_MOUNT);
    put_file(*state, "sys/fs/cgroup/batch/job7/memory.max", "104857600\n");
    put_file(*state, "sys/fs/cgroup/batch/job7/memory.high", "max\n");
    put_file(*state, "sys/fs/cgroup/batch/job7/memory.current", "41943040\n");
    put_file(*state, "sys/fs/cgroup/batch/job7/memory.stat",
             "anon 20971520\nfile 20971520\nactive_inactive_file 7\ninactive_file 10485760\n");
    put_file(*state, "sys/fs/cgroup/batch/job7/cpu.max", "150000 100000\n");
    expect_limits(*state, 70 * MIB, "memory.max", 1.5); /* 100 - (40 - 10) */
    /* Files that are read all the time are no less given up; so are their names. */
    put_file(
        *state, "sys/fs/cgroup/batch/job7/memory.stat",
        "anon 8388608\ninactive_file 10485760\nactive_file 15728640\nslab_reclaimable 4194304\n"
        "slab_unreclaimable 1048576\n");
    expect_limits(*state, 89 * MIB, "memory.max", 1.5); /* 100 - (40 - 10 - 15 - 4) */
}

/* The group above allows less memory, that itself less time; `high` is a limit, too. */
static void test_cgroup_v2_obeys_every_level(void **state)
{
    put_self(*state, "0::/batch/job7\n", V2_MOUNT);
    put_file(*state, "sys/fs/cgroup/batch/job7/memory.max", "104857600\n");
    put_file(*state, "sys/fs/cgroup/batch/job7/cpu.max", "50000 100000\n");
    put_file(*state, "sys/fs/cgroup/batch/memory.max", "max\n");
    put_file(*state, "sys/fs/cgroup/batch/memory.high", "52428800\n");
    put_file(*state, "sys/fs/cgroup/batch/memory.current", "1048576\n");
    put_file(*state, "sys/fs/cgroup/batch/cpu.max", "400000 100000\n");
    put_file(*state, "sys/fs/cgroup/cpu.max", "max 100000\n");
    expect_limits(*state, 49 * MIB, "memory.high", 0.5);
}

static void test_cgroup_v2_has_nothing_left(void **state)
{
    put_self(*state, "0::/\n", V2_MOUNT);
    put_file(*state, "sys/fs/cgroup/memory.max", "1048576\n");
    put_file(*state, "sys/fs/cgroup/memory.current", "1048577\n");
    expect_limits(*state, 0, "memory.max", (double)INFINITY);
}

#define V1_MOUNTS(below)                                                                  \
    "40 35 0:31 " below " /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"           \
    "41 35 0:32 " below " /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" \
    "42 35 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"

static void put_v1_limits(const struct folder *f, const char *group)
{
    static const struct {
        const char *controller, *file, *text;
    } files[] = {
        {"memory", "memory.limit_in_bytes", "104857600\n"},
        {"memory", "memory.usage_in_bytes", "20971520\n"},
        {"memory", "memory.stat",
         "inactive_file 1\ntotal_inactive_file 4194304\ntotal_active_file 6291456\n"},
        {"cpu,cpuacct", "cpu.cfs_quota_us", "250000\n"},
        {"cpu,cpuacct", "cpu.cfs_period_us", "100000\n"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char name[128];
        snprintf(name, sizeof name, "sys/fs/cgroup/%s%s/%s", files[i].controller, group,
                 files[i].file);
        put_file(f, name, files[i].text);
    }
}

static const char v1_groups[] = "9:cpuset:/\n4:cpu,cpuacct:/docker/ab12\n3:memory:/docker/ab12\n"
                                "0::/docker/ab12\n";

static void test_cgroup_v1_reads_both_controllers(void **state)
{
    put_self(*state, v1_groups, V1_MOUNTS("/"));
    put_v1_limits(*state, "/docker/ab12");
    put_file(*state, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put_file(*state, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put_file(*state, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    expect_limits(*state, 90 * MIB, "memory.limit_in_bytes", 2.5);
}

/* A container is shown its own group as the top, under the name that it has outside. */
static void test_cgroup_v1_container_sees_its_own_top(void **state)
{
    put_self(*state, v1_groups, V1_MOUNTS("/docker/ab12"));
    put_v1_limits(*state, "");
    expect_limits(*state, 90 * MIB, "memory.limit_in_bytes", 2.5);
}

/* A group of another name space is not below the mount; only its top is there. */
static void test_cgroup_outside_mount_uses_its_root(void **state)
{
    put_self(*state, "0::/../other\n", "35 29 0:30 /mine /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put_file(*state, "sys/fs/cgroup/memory.max", "2097152\n");
    expect_limits(*state, 2 * MIB, "memory.max", (double)INFINITY);
}

static void test_cgroup_passes_over_what_it_cannot_read(void **state)
{
    static const char *const groups[] = {"", "\n", ":::\n", "nonsense", "0:", "0::", "3:memory\n"};
    static const char *const mounts[] = {"",
                                         "\n\n",
                                         "1 2 3\n",
                                         "1 2 3 / - \n",
                                         " - cgroup2\n",
                                         "35 29 0:30 / /sys/fs/cgroup rw - cgroup2"};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        for (size_t k = 0; k < sizeof mounts / sizeof *mounts; k++) {
            put_self(*state, groups[i], mounts[k]);
            expect_limits(*state, SIZE_MAX, NULL, (double)INFINITY);
        }
    static const char *const limits[] = {"", "max", "-5", "many", "99999999999999999999999"};
    put_self(*state, "0::/\n", V2_MOUNT);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        put_file(*state, "sys/fs/cgroup/memory.max", limits[i]);
        put_file(*state, "sys/fs/cgroup/cpu.max", limits[i]);
        expect_limits(*state, SIZE_MAX, NULL, (double)INFINITY);
    }
    put_file(*state, "sys/fs/cgroup/cpu.max", "100000 0\n");
    expect_limits(*state, SIZE_MAX, NULL, (double)INFINITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cgroup_none_sets_no_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cgroup_v2_subtracts_what_is_held, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cgroup_v2_obeys_every_level, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cgroup_v2_has_nothing_left, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cgroup_v1_reads_both_controllers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cgroup_v1_container_sees_its_own_top, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cgroup_outside_mount_uses_its_root, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cgroup_passes_over_what_it_cannot_read, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
