/* Lossy wires under the strategies with parameter servers: pushes and copies are coded, the states
 * by which the servers recover are not. */
#include "lossy_run.h"

static const struct {
    const char *name, *lossy;
    bool sparse;
} strategies[] = {
    {"strategy.ps.consistency=bsp", "int8", true},
    {"strategy.ps={consistency:asp colocated:true}", "bf16", true},
    {"strategy.ps={consistency:asp servers:2}", "int8", false},
    {"strategy.downpour={n_push:1 n_fetch:1}", "int8", true},
    {"strategy.downpour={server_adagrad:true n_push:1 n_fetch:2}", "bf16", false},
    {"strategy.easgd.tau=2", "bf16", true},
};
enum { STRATEGIES = sizeof strategies / sizeof *strategies };

static void test_lossy_models_are_as_good(void **state)
{
    for (size_t i = 0; i < STRATEGIES; i++) {
        lossy_agrees(*state, strategies[i].name, strategies[i].lossy);
        if (strategies[i].sparse)
            lossy_trains(*state, strategies[i].name);
    }
}

static void test_lossy_runs_survive(void **state)
{
    static const char *const wires[] = {"topk16", "int8"};
    for (size_t i = 0; i < STRATEGIES; i++)
        for (size_t k = 0; k < 2; k++)
            lossy_survives(*state, strategies[i].name, wires[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lossy_models_are_as_good),
        cmocka_unit_test(test_lossy_runs_survive),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
