#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"
#include "plan/round.h"

#include <math.h>

/* Links so fast that a message takes its latency alone. */
#define LATENCY 1.0
#define SHORT   1e-3 /* what frames and messages to the node itself take, at most */

enum { WORKERS = 2, N = 1000 };

static double round_of(const struct round_config *config, double link, double second,
                       struct round_node node[WORKERS + 1])
{
    const double step[] = {0, 10, second}, rate[] = {link, link, link};
    const struct round_cluster cluster = {
        .workers = WORKERS, .step = step, .links = {WORKERS + 1, rate, rate, LATENCY, INFINITY, 0}};
    const struct round_model model = {.x = N};
    struct round_cost cost;
    assert_int_equal(round_predict(config, &cluster, &model, &cost, node), OK);
    return 1 / node[1].pace;
}

static void expect_near(double a, double b, double off)
{
    if (fabs(a - b) > off)
        fail_msg("%.6f s, by hand %.6f", a, b);
}

static struct round_config config_of(enum round_strategy strategy)
{
    return (struct round_config){.strategy = strategy,
                                 .tau = 1,
                                 .fetch = 1,
                                 .kept_pushes = 2,
                                 .chunk = 2 * N,
                                 .servers = WORKERS};
}

/* A step. Header, grant and the bytes to the other worker's shard, and its report to the clock, on
 * worker 0: four ways. Its decision is one more way to worker 1. A request to the clock, its order
 * to the other shard, and that one's header, grant and bytes: worker 0 has its order at once, and
 * waits four ways; of worker 1 the request is one more, and the order ends at its own shard, so
 * header, grant and bytes of the clock's shard are what it waits for. */
static void test_servers_of_ps(void **state)
{
    (void)state;
    struct round_node node[WORKERS + 1];
    struct round_config config = config_of(ROUND_PS);
    expect_near(round_of(&config, 1e12, 10, node), 10 + (4 + 4) * LATENCY, SHORT);
    expect_near(1 / node[2].pace, 10 + (3 + 1 + 4) * LATENCY, SHORT);
    /* Half of a push to the other, and half of a state as well, with two floats for each worker. */
    double state_bytes = (N / 2 + 2 * WORKERS) * sizeof(float), half = N / 2 * sizeof(float);
    assert_true(fabs((double)node[1].sent - half - state_bytes) <= 1);
    assert_true(fabs((double)node[1].received - half - state_bytes) <= 1);
    assert_int_equal(node[0].sent + node[0].received, 0);
}

/* Worker 1 is much slower, and neither waits for a step of the other. */
static void test_servers_of_unequal_workers(void **state)
{
    (void)state;
    struct round_node node[WORKERS + 1];
    struct round_config config = config_of(ROUND_PS);
    expect_near(round_of(&config, 1e12, 100, node), 18, SHORT);
    expect_near(1 / node[2].pace, 108, SHORT);
}

/* Backward has finished the second shard's part at half of the step: worker 0's push to it and the
 * report of that are over before the step is, and only the copies are waited for. */
static void test_servers_take_parts_early(void **state)
{
    (void)state;
    struct round_node node[WORKERS + 1];
    struct round_config config = config_of(ROUND_PS);
    const double leaves[] = {1, 0.5};
    expect_near(round_of(&config, 1e12, 10, node), 10 + (4 + 4) * LATENCY, SHORT);
    config.leaves = leaves;
    expect_near(round_of(&config, 1e12, 10, node), 10 + 4 * LATENCY, SHORT);
}

/* The push is on its way during the steps, but the copy comes after it. */
static void test_servers_of_downpour(void **state)
{
    (void)state;
    struct round_node node[WORKERS + 1];
    struct round_config config = config_of(ROUND_DOWNPOUR);
    config.tau = 10;
    config.fetch = 20;
    config.kept_pushes = 3;
    expect_near(round_of(&config, 1e12, 10, node), 200 + (4 + 4) * LATENCY, 1 + SHORT);
}

/* A worker that serves has a part of the model, and of a vector for each worker. */
static void test_servers_take_memory(void **state)
{
    (void)state;
    struct round_node node[WORKERS + 1], driver[WORKERS + 1];
    struct round_config config = config_of(ROUND_PS);
    round_of(&config, 1e12, 10, node);
    config.servers = 0;
    round_of(&config, 1e12, 10, driver);
    uint64_t more = node[1].memory.strategy - driver[1].memory.strategy;
    assert_int_equal(2 * more, driver[0].memory.model + driver[0].memory.strategy);
    assert_int_equal(node[0].memory.model + node[0].memory.strategy, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_servers_of_ps),
        cmocka_unit_test(test_servers_of_unequal_workers),
        cmocka_unit_test(test_servers_take_parts_early),
        cmocka_unit_test(test_servers_of_downpour),
        cmocka_unit_test(test_servers_take_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
