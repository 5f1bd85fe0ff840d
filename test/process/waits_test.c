/* The command on a machine whose processors are all taken: threads that wait do not spin, unless
 * the user wants them to. OpenMP itself says by what it goes. */
#include "crowd.h"
#include "process.h"

enum { LIMIT_S = 60 };

/* OpenMP displays its settings when a command begins: how often did this one? */
static int count_beginnings(bool *sleeps)
{
    struct process p;
    process_start(&p, "/tmp",
                  (const char *const[]){"bench", "step", "--net", "lenet", "--batch", "1",
                                        "--steps", "1", "--threads", "1", NULL});
    process_wait(&p, LIMIT_S);
    if (p.code != 0)
        fail_msg("code %d: %s", p.code, p.err);
    static const char beginning[] = "OPENMP DISPLAY ENVIRONMENT BEGIN";
    const char *spin = "GOMP_SPINCOUNT = '"; /* of GCC's OpenMP alone */
    int count = 0;
    *sleeps = true;
    for (const char *at = p.err; (at = strstr(at, beginning)); count++) {
        at += strlen(beginning);
        const char *value = strstr(at, spin);
        *sleeps = !value || value[strlen(spin)] == '0';
    }
    process_release(&p);
    return count;
}

static void test_waits_are_passive_on_a_busy_machine(void **state)
{
    (void)state;
    bool sleeps;
    unsetenv("OMP_WAIT_POLICY");
    assert_int_equal(count_beginnings(&sleeps), 2);
    assert_true(sleeps);
}

static void test_waits_are_the_users_to_choose(void **state)
{
    (void)state;
    bool sleeps;
    setenv("OMP_WAIT_POLICY", "active", 1);
    assert_int_equal(count_beginnings(&sleeps), 1);
    unsetenv("OMP_WAIT_POLICY");
    setenv("GOMP_SPINCOUNT", "1000", 1);
    assert_int_equal(count_beginnings(&sleeps), 1);
    unsetenv("GOMP_SPINCOUNT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waits_are_passive_on_a_busy_machine),
        cmocka_unit_test(test_waits_are_the_users_to_choose),
    };
    setenv("OMP_DISPLAY_ENV", "verbose", 1);
    setenv("PACELINE_TUNER", "off", 1);
    return cmocka_run_group_tests(tests, crowd_start, crowd_end);
}
