/* `mpca` between real processes, where lanes are threads: a worker is killed, one stands still, and
 * a run resumes from its checkpoint. */
#include "real_run.h"

static const char *const options[] = {
    "strategy.mpca={}",
    "strategy.mpca.coordination=symmetric",
    "strategy.mpca.phases=1",
};

enum { OPTIONS = sizeof options / sizeof *options };

static double number_of(const struct real_run *r, const char *key)
{
    return run_number(r->dir, "end", 0, key);
}

/* Exchanges of a lane are numbered, and each is reported once. When the first participant becomes
 * a leaf or ceases to be one, another reports: then an exchange may be reported twice, or not. */
static void expect_numbered(const struct real_run *r, double lanes)
{
    double last[4] = {0};
    int leaves = real_members(r, "leaf") + real_members(r, "participates");
    for (int i = 0; i < real_exchanges(r); i++) {
        double lane = run_number(r->dir, "exchange", i, "lane");
        assert_true(lane < lanes);
        double n = run_number(r->dir, "exchange", i, "n");
        assert_true(n >= last[(int)lane] + (leaves == 0) && n <= last[(int)lane] + 1 + leaves);
        last[(int)lane] = n;
    }
    for (int lane = 0; lane < (int)lanes; lane++)
        assert_true(last[lane] > 5);
}

static void test_it_trains(void **state)
{
    struct tiny *t = *state;
    for (size_t i = 0; i < OPTIONS; i++) {
        struct real_run r = real_new(t);
        START(t, &r, "--set", options[i], "--set", "stop.epochs=8", "--set", "workers=3", "--set",
              "pace=0.003");
        real_end(&r, 0, "epochs");
        assert_true(number_of(&r, "missed") == 0 &&
                    number_of(&r, "used") + number_of(&r, "repeated") >= 8 * 540);
        assert_true(number_of(&r, "test_error") < 0.3);
        expect_numbered(&r, i == 2 ? 1 : 3);
        process_release(&r.p);
    }
}

static void test_a_worker_is_killed(void **state)
{
    struct tiny *t = *state;
    for (size_t i = 0; i < 2; i++)
        for (int victim = 0; victim < 3; victim += 2) {
            struct real_run r = real_new(t);
            pid_t child[PROCESS_CHILDREN_MAX];
            START(t, &r, "--set", options[i], "--set", "stop.epochs=20", "--set", "workers=3",
                  "--set", "pace=0.005");
            real_workers(&r, 3, child);
            UNTIL(REAL_LIMIT_S, process_poll(&r.p) || real_exchanges(&r) > 12);
            kill(child[victim], SIGKILL);
            real_end(&r, 0, "epochs");
            assert_int_equal(real_members(&r, "dead") + real_members(&r, "cut"), 1);
            assert_true(real_exchanges(&r) > 40);
            assert_true(number_of(&r, "test_error") < 0.3);
            process_release(&r.p);
        }
}

/* The others continue, and it is lost when it may not be alive any more. */
static void test_a_worker_stands_still(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    pid_t child[PROCESS_CHILDREN_MAX];
    START(t, &r, "--set", options[0], "--set", "stop.epochs=30", "--set", "workers=3", "--set",
          "pace=0.01");
    real_workers(&r, 3, child);
    UNTIL(REAL_LIMIT_S, process_poll(&r.p) || real_exchanges(&r) > 12);
    kill(child[1], SIGSTOP);
    UNTIL(REAL_LIMIT_S, process_poll(&r.p) || real_members(&r, "dead") == 1);
    int then = real_exchanges(&r);
    UNTIL(REAL_LIMIT_S, process_poll(&r.p) || real_exchanges(&r) > then + 12);
    kill(child[1], SIGKILL);
    real_end(&r, 0, "epochs");
    process_release(&r.p);
}

/* Lanes continue with their numbers, and so with their schedules. */
static void test_a_run_resumes_from_its_checkpoint(void **state)
{
    struct tiny *t = *state;
    for (size_t i = 0; i < 2; i++) {
        struct real_run r = real_new(t);
        START(t, &r, "--set", options[i], "--set", "stop.epochs=4", "--set", "pace=0.003");
        real_end(&r, 0, "epochs");
        double first = run_number(r.dir, "exchange", 0, "n");
        int before = real_exchanges(&r);
        assert_true(first == 1);
        process_release(&r.p);
        START(t, &r, "--set", options[i], "--set", "stop.epochs=8", "--set", "pace=0.003",
              "--resume");
        real_end(&r, 0, "epochs");
        assert_true(run_number(r.dir, "exchange", before, "n") >= before / 3);
        assert_true(run_number(r.dir, "end", 1, "epochs") >= 8);
        assert_true(run_number(r.dir, "end", 1, "test_error") < 0.3);
        process_release(&r.p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_trains),
        cmocka_unit_test(test_a_worker_is_killed),
        cmocka_unit_test(test_a_worker_stands_still),
        cmocka_unit_test(test_a_run_resumes_from_its_checkpoint),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
