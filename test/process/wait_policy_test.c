/* The command on a machine whose processors are all taken: waiting threads do not spin, unless the
 * user sets it. OpenMP itself prints its setting. */
#include "crowd.h"
#include "process.h"

enum { LIMIT_S = 60 };

/* OpenMP displays its settings when a command begins: how often did this one? */
static int count_beginnings(const char *const *argv, bool *sleeps)
{
    struct process p;
    process_start(&p, "/tmp", argv);
    process_wait(&p, LIMIT_S);
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

static const char *const bench[] = {"bench",   "step", "--net",     "lenet", "--batch", "1",
                                    "--steps", "1",    "--threads", "1",     NULL};

/* Of commands that compute; the help is enough to see how each begins. */
static void test_waits_are_passive_on_a_busy_machine(void **state)
{
    (void)state;
    static const char *const commands[] = {"train",   "resume", "driver", "sim",
                                           "predict", "worker", "test"};
    bool sleeps;
    unsetenv("OMP_WAIT_POLICY");
    assert_int_equal(count_beginnings(bench, &sleeps), 2);
    assert_true(sleeps);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (count_beginnings((const char *const[]){commands[i], "--help", NULL}, &sleeps) != 2)
            fail_msg("%s does not choose how its threads wait", commands[i]);
    assert_int_equal(count_beginnings((const char *const[]){"data", "--help", NULL}, &sleeps), 1);
}

static void test_waits_are_the_users_to_choose(void **state)
{
    (void)state;
    bool sleeps;
    setenv("OMP_WAIT_POLICY", "active", 1);
    assert_int_equal(count_beginnings(bench, &sleeps), 1);
    unsetenv("OMP_WAIT_POLICY");
    setenv("GOMP_SPINCOUNT", "1000", 1);
    assert_int_equal(count_beginnings(bench, &sleeps), 1);
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
