/* Nets of the zoo learn: what a short run alone on Fashion-MNIST, by the command, ends with. */
#include "fashion.h"
#include "real_run.h"

#define CHANCE 0.9 /* the error of a guess among ten classes */

static void learns(struct tiny *t, const char *zoo, const char *steps, const char *rate,
                   double bound)
{
    char dir[128];
    struct process p;
    const char *const argv[] = {"train", FASHION_JOB, "--out",     tiny_out(t, dir),
                                "--set", zoo,         "--set",     steps,
                                "--set", rate,        "--set",     "strategy.single={}",
                                "--set", "workers=1", "--threads", "1",
                                NULL};
    process_start(&p, t->folder, argv);
    process_wait(&p, REAL_LIMIT_S);
    if (p.code != 0)
        fail_msg("%s: code %d; it said:\n%s", zoo, p.code, p.err);
    process_release(&p);
    double error = run_number(dir, "end", 0, "test_error");
    print_message("    %s, %s: error %.3f, by chance %.1f\n", zoo, steps, error, CHANCE);
    assert_true(error <= bound);
}

static void test_fc_480_160(void **state)
{
    if (!fashion_installed()) {
        print_message("    Fashion-MNIST is not installed\n");
        skip();
    }
    learns(*state, "net.zoo=fc-480-160", "stop.steps=800", "solver.base_lr=0.1", CHANCE / 3);
}

static int setup(void **state)
{
    static struct tiny tiny;
    tiny_create(&tiny);
    *state = &tiny;
    return 0;
}

static int teardown(void **state)
{
    tiny_remove(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fc_480_160),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
