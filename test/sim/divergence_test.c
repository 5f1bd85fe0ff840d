/* A run whose model diverges ends by name: at once, if the rate is far too high; in `easgd` when
 * all workers have started over twice in a row; in `pace` also when workers lose their models after
 * some steps. */
#include "strategy_sim.h"

static void expect_divergence(struct tiny *t, const char *strategy, const char *rate)
{
    struct sim_run r = {0};
    SIM_TRY(t, SIM_CALM, &r, strategy, rate, "stop.epochs=20", "solver.momentum=0");
    if (r.rc != PL_ERR_DIVERGED || !strstr(r.error, "the model diverged"))
        fail_msg("%s, %s: %d, %s", strategy, rate, r.rc, r.error);
}

static void test_strategies_name_a_divergence(void **state)
{
    static const char *const strategies[] = {
        "strategy.sync={tau:4}",
        "strategy.allreduce={}",
        "strategy.async_allreduce={}",
        "strategy.diloco={}",
        "strategy.mpca={}",
        "strategy.gossip={}",
        "strategy.ps={}",
        "strategy.downpour={}",
        "strategy.easgd={tau:4}",
        "strategy.easgd={tau:4 mode:sync}",
    };
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
        expect_divergence(*state, strategies[i], "solver.base_lr=1e30");
}

static void test_pace_names_a_slow_divergence(void **state)
{
    static const char *const rates[] = {"solver.base_lr=1e30", "solver.base_lr=1000"};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        expect_divergence(*state, "strategy.pace={}", rates[i]);
        expect_divergence(*state, "strategy.pace={coordination:symmetric}", rates[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strategies_name_a_divergence),
        cmocka_unit_test(test_pace_names_a_slow_divergence),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
