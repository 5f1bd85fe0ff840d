/* Parameter servers for real: processes and TCP. */
#include "real_run.h"

/* At a rate that is low enough for stale gradients: with 0.03 `downpour` is thrown out of its
 * minimum now and then, and sometimes at the end. */
static void test_every_mode_trains(void **state)
{
    static const char *const options[] = {
        "strategy.ps={ consistency: asp }", "strategy.ps={ consistency: ssp servers: 2 }",
        "strategy.ps={ colocated: true }", "strategy.downpour={}",
        "strategy.downpour={ n_push: 2 n_fetch: 3 servers: 3 server_adagrad: true }"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct real_run r = real_new(*state);
        START(*state, &r, "--set", options[i], "--set", "solver.momentum=0", "--set",
              "solver.base_lr=0.01", "--set", "stop.epochs=30", "--set", "batch=8");
        real_end(&r, 0, "epochs");
        assert_true(run_number(r.dir, "end", 0, "test_error") < 0.4);
        double used = run_number(r.dir, "end", 0, "used");
        assert_true(used + run_number(r.dir, "end", 0, "repeated") >= 30 * 540);
        assert_true(used < 30.5 * 540);
        assert_true(real_exchanges(&r) > 0 && run_count(r.dir, "eval", "set", "validation") >= 1);
        process_release(&r.p);
    }
}

/* Rounds are the same arithmetic in both worlds and wherever they are served. */
static void test_rounds_are_equal(void **state)
{
    static const char *const options[] = {"strategy.ps={ consistency: bsp }",
                                          "strategy.ps={ consistency: bsp servers: 2 }",
                                          "strategy.ps={ consistency: bsp colocated: true }"};
    struct real_run r[3];
    for (size_t i = 0; i < 3; i++) {
        r[i] = real_new(*state);
        START(*state, &r[i], "--set", options[i], "--set", "stop.steps=20", "--set",
              "stop.epochs=9");
        real_end(&r[i], 0, "steps");
        assert_true(run_number(r[i].dir, "end", 0, "used") == 20 * 64);
        assert_true(run_same_bits(r[i].dir, r[0].dir, "final.safetensors"));
        process_release(&r[i].p);
    }
}

/* A single server's checkpoint includes the optimizer's state. */
static void test_a_run_resumes(void **state)
{
    struct real_run whole = real_new(*state), parts = real_new(*state);
    static const char options[] = "strategy.ps={ consistency: bsp }";
    START(*state, &whole, "--set", options, "--set", "stop={ steps: 24 }");
    real_end(&whole, 0, "steps");
    process_release(&whole.p);
    START(*state, &parts, "--set", options, "--set", "stop={ steps: 10 }");
    real_end(&parts, 0, "steps");
    process_release(&parts.p);
    START(*state, &parts, "--set", options, "--set", "stop={ steps: 24 }", "--resume");
    real_end(&parts, 0, "steps");
    assert_true(run_same_bits(parts.dir, whole.dir, "final.safetensors"));
    process_release(&parts.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_mode_trains),
        cmocka_unit_test(test_rounds_are_equal),
        cmocka_unit_test(test_a_run_resumes),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
