/* BatchNorm nets under each strategy: the joint model, with the joint s that comes of the workers',
 * judges records it has never seen as well as the workers' own models do, each with its own s. */
#include "own_models.h"
#include "strategy_sim.h"

static void own_judged(const struct own_judged *judged)
{
    print_message("  %llu: %.4f |", (unsigned long long)judged->step, judged->joint);
    for (int i = 0; i < 4; i++)
        print_message(" %.4f", judged->own[i]);
    print_message("  loss %.4f |", judged->loss);
    for (int i = 0; i < 4; i++)
        print_message(" %.4f", judged->own_loss[i]);
    print_message("\n");
}

static void test_x(void **state)
{
    (void)state;
    own_forget();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_x),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
