/* The command within the limits of a control group, as a container sets them: one that this test
 * makes, where it may. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { LIMIT_S = 60, TEXT_BYTES = 1 << 14 };

/* One controller's group of this test, by version 1 or 2. */
struct group {
    char path[128];
    bool made;
};

static bool write_file(const struct group *g, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", g->path, name);
    FILE *file = fopen(path, "w");
    bool written = file && fputs(text, file) >= 0;
    return file && fclose(file) == 0 && written;
}

/* The limit is a file's text, by the name it has in version 1, or else in version 2. */
static bool make_group(struct group *g, const char *controller, const char *const v1[2],
                       const char *const v2[2])
{
    const char *const *limits[] = {v1, v2};
    for (int i = 0; i < 2; i++) {
        snprintf(g->path, sizeof g->path, "/sys/fs/cgroup/%s%spaceline-test-%d",
                 i == 0 ? controller : "", i == 0 ? "/" : "", (int)getpid());
        g->made = mkdir(g->path, 0700) == 0;
        if (g->made && write_file(g, limits[i][0], limits[i][1]))
            return true;
        if (g->made)
            rmdir(g->path);
    }
    g->made = false;
    return false;
}

/* The command in the group: its exit code, and its output. */
static int run_within(const struct group *g, const char *arguments, char text[TEXT_BYTES])
{
    char line[512];
    snprintf(line, sizeof line, "echo $$ >%s/cgroup.procs && exec timeout %d '%s/paceline' %s 2>&1",
             g->path, LIMIT_S, TEST_BUILD, arguments);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    text[fread(text, 1, TEXT_BYTES - 1, pipe)] = '\0';
    int status = pclose(pipe);
    assert_int_equal(rmdir(g->path), 0);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_container_memory_refuses_a_large_net(void **state)
{
    (void)state;
    struct group g;
    char text[TEXT_BYTES];
    if (!make_group(&g, "memory", (const char *const[2]){"memory.limit_in_bytes", "536870912"},
                    (const char *const[2]){"memory.max", "536870912"})) {
        print_message("no control group for memory can be made here\n");
        skip();
    }
    int code = run_within(&g, "bench step --net vgg-16 --batch 64 --steps 1", text);
    if (code == 0 || !strstr(text, "GiB allowed by the container (memory."))
        fail_msg("code %d: %s", code, text);
}

static void test_container_quota_limits_threads(void **state)
{
    (void)state;
    struct group g;
    char text[TEXT_BYTES];
    if (!make_group(&g, "cpu", (const char *const[2]){"cpu.cfs_quota_us", "100000"},
                    (const char *const[2]){"cpu.max", "100000 100000"})) {
        print_message("no control group for processors can be made here\n");
        skip();
    }
    int code = run_within(&g, "bench step --net lenet --batch 8 --steps 1 --json", text);
    if (code != 0 || !strstr(text, "\"threads\":1,"))
        fail_msg("code %d: %s", code, text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_container_memory_refuses_a_large_net),
        cmocka_unit_test(test_container_quota_limits_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
