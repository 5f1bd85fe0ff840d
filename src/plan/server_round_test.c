#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"
#include "plan/round.h"

#include <math.h>

/* A vector in one piece. Messages with their frames: a header or a notice, and a grant. */
#define RATE    150.0
#define LATENCY 1.0
#define HEADER  112.0
#define GRANT   44.0

enum { WORKERS = 2, N = 1000, PIECE = 40 };

static const double rate[] = {RATE, RATE, RATE}, fast[] = {2 * RATE, RATE, RATE};
static const struct round_model model = {.x = N};

static double push_seconds(void)
{
    return (N * sizeof(float) + PIECE) / RATE;
}

/* A copy is the whole state, with two floats for each worker. */
static double copy_seconds(void)
{
    return ((N + 2 * WORKERS) * sizeof(float) + PIECE) / RATE;
}

static struct round_config config_of(enum round_strategy strategy)
{
    return (struct round_config){
        .strategy = strategy, .tau = 1, .fetch = 1, .kept_pushes = 2, .chunk = 2 * N};
}

/* Two workers with steps of 10 and `second` seconds; the first one's round. */
static double round_of(const struct round_config *config, const double *link, double second,
                       struct round_node node[WORKERS + 1])
{
    const double step[] = {0, 10, second};
    const struct round_cluster cluster = {
        .workers = WORKERS, .step = step, .links = {WORKERS + 1, link, link, LATENCY, INFINITY, 0}};
    struct round_cost cost;
    assert_int_equal(round_predict(config, &cluster, &model, &cost, node), OK);
    return 1 / node[1].pace;
}

static void expect_within(double a, double b, double off)
{
    if (fabs(a - b) > off)
        fail_msg("%.6f s, by hand %.6f", a, b);
}

static void expect_near(double a, double b)
{
    expect_within(a, b, 1e-6 * b);
}

/* Of header, grant and bytes, twice, the decision and a request, which have eight ways. */
static double both_seconds(void)
{
    return (4 * HEADER + 2 * GRANT) / RATE + push_seconds() + copy_seconds();
}

/* The driver's link takes both workers' bytes at once. */
static void test_server_round_of_ps(void **state)
{
    (void)state;
    struct round_node node[WORKERS + 1];
    struct round_config config = config_of(ROUND_PS);
    double alone = 10 + 8 * LATENCY + both_seconds();
    expect_near(round_of(&config, fast, 10, node), alone);
    expect_near(node[1].utilisation, 10 / alone);
    assert_int_equal(node[1].sent, N * sizeof(float));
    assert_int_equal(node[1].received, (N + 2 * WORKERS) * sizeof(float));
    assert_int_equal(node[0].received, 2 * node[1].sent);
    /* Equal workers take turns at an equal link: one pushes while the other has its copy. A turn
     * ends a little before its transfer, by the time of headers and grants. */
    expect_within(round_of(&config, rate, 10, node), alone, 0.05 * alone);
}

static size_t pushed_by[WORKERS];

/* Both wait for each other, as under bsp. */
static void wait_for_both(void *user, uint32_t worker, int64_t now, struct members *ok)
{
    (void)user, (void)now;
    pushed_by[worker]++;
    if (pushed_by[0] != pushed_by[1])
        return;
    members_add(ok, 0);
    members_add(ok, 1);
}

/* The fast worker has the slow one's pace. */
static void test_server_round_with_a_gate(void **state)
{
    (void)state;
    struct round_node node[WORKERS + 1];
    struct round_config config = config_of(ROUND_PS);
    pushed_by[0] = pushed_by[1] = 0;
    config.gate = wait_for_both;
    double took = round_of(&config, fast, 1000, node);
    expect_near(took, 1000 + 8 * LATENCY + both_seconds());
    expect_near(node[2].pace, node[1].pace);
}

/* The push is on its way during the steps: only the copy is waited for, after a request. */
static void test_server_round_of_easgd(void **state)
{
    (void)state;
    struct round_node node[WORKERS + 1];
    struct round_config config = config_of(ROUND_EASGD_ASYNC);
    config.tau = 10;
    double copied = (2 * HEADER + GRANT) / RATE + copy_seconds();
    expect_near(round_of(&config, fast, 10, node), 100 + 4 * LATENCY + copied);
}

/* Two pushes of ten steps each to a copy: the first push is hidden behind steps that are long
 * enough, the second is not, since the copy comes after it. The request shares the link with the
 * push's header, and the decision with the copy's. */
static void test_server_round_of_downpour(void **state)
{
    (void)state;
    struct round_node node[WORKERS + 1];
    struct round_config config = config_of(ROUND_DOWNPOUR);
    config.tau = 10;
    config.fetch = 20;
    config.kept_pushes = 3;
    expect_near(round_of(&config, fast, 10, node), 200 + 6 * LATENCY + both_seconds());
    assert_int_equal(node[1].sent, 2 * N * sizeof(float));
}

/* With a vector of the optimizer a copy is a state after seven pushes, and the model alone in
 * between. The mean is that of seven rounds. */
static void test_server_round_between_states(void **state)
{
    (void)state;
    enum { PERIOD = 7 };
    struct round_node node[WORKERS + 1];
    struct round_config config = config_of(ROUND_PS);
    config.server_states = 1;
    config.kept_pushes = PERIOD + 1;
    config.chunk = 4 * N;
    const double model_bytes = N * sizeof(float),
                 state_bytes = (2 * N + 2 * WORKERS) * sizeof(float);
    double copied = ((PERIOD - 1) * model_bytes + state_bytes) / PERIOD;
    expect_near(round_of(&config, fast, 10, node), 10 + 8 * LATENCY +
                                                       (4 * HEADER + 2 * GRANT) / RATE +
                                                       push_seconds() + (copied + PIECE) / RATE);
    assert_int_equal(node[1].received, (uint64_t)copied);
}

/* ---- servers on workers ----
 *
 * Links so fast that a message takes its latency alone. */
#define SHORT 1e-3 /* what frames and messages to the node itself take, at most */

static double workers_round(const struct round_config *config, double link, double second,
                            struct round_node node[WORKERS + 1])
{
    const double step[] = {0, 10, second}, each[] = {link, link, link};
    const struct round_cluster cluster = {
        .workers = WORKERS, .step = step, .links = {WORKERS + 1, each, each, LATENCY, INFINITY, 0}};
    struct round_cost cost;
    assert_int_equal(round_predict(config, &cluster, &model, &cost, node), OK);
    return 1 / node[1].pace;
}

static struct round_config workers_config(enum round_strategy strategy)
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
    struct round_config config = workers_config(ROUND_PS);
    expect_within(workers_round(&config, 1e12, 10, node), 10 + (4 + 4) * LATENCY, SHORT);
    expect_within(1 / node[2].pace, 10 + (3 + 1 + 4) * LATENCY, SHORT);
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
    struct round_config config = workers_config(ROUND_PS);
    expect_within(workers_round(&config, 1e12, 100, node), 18, SHORT);
    expect_within(1 / node[2].pace, 108, SHORT);
}

/* Backward has finished the second shard's part at half of the step: worker 0's push to it and the
 * report of that are over before the step is, and only the copies are waited for. */
static void test_servers_take_parts_early(void **state)
{
    (void)state;
    struct round_node node[WORKERS + 1];
    struct round_config config = workers_config(ROUND_PS);
    const double leaves[] = {1, 0.5};
    expect_within(workers_round(&config, 1e12, 10, node), 10 + (4 + 4) * LATENCY, SHORT);
    config.leaves = leaves;
    expect_within(workers_round(&config, 1e12, 10, node), 10 + 4 * LATENCY, SHORT);
}

/* The push is on its way during the steps, but the copy comes after it. */
static void test_servers_of_downpour(void **state)
{
    (void)state;
    struct round_node node[WORKERS + 1];
    struct round_config config = workers_config(ROUND_DOWNPOUR);
    config.tau = 10;
    config.fetch = 20;
    config.kept_pushes = 3;
    expect_within(workers_round(&config, 1e12, 10, node), 200 + (4 + 4) * LATENCY, 1 + SHORT);
}

/* A worker that serves has a part of the model, and of a vector for each worker. */
static void test_servers_take_memory(void **state)
{
    (void)state;
    struct round_node node[WORKERS + 1], driver[WORKERS + 1];
    struct round_config config = workers_config(ROUND_PS);
    workers_round(&config, 1e12, 10, node);
    config.servers = 0;
    workers_round(&config, 1e12, 10, driver);
    uint64_t more = node[1].memory.strategy - driver[1].memory.strategy;
    assert_int_equal(2 * more, driver[0].memory.model + driver[0].memory.strategy);
    assert_int_equal(node[0].memory.model + node[0].memory.strategy, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server_round_of_ps),
        cmocka_unit_test(test_server_round_with_a_gate),
        cmocka_unit_test(test_server_round_of_easgd),
        cmocka_unit_test(test_server_round_of_downpour),
        cmocka_unit_test(test_server_round_between_states),
        cmocka_unit_test(test_servers_of_ps),
        cmocka_unit_test(test_servers_of_unequal_workers),
        cmocka_unit_test(test_servers_take_parts_early),
        cmocka_unit_test(test_servers_of_downpour),
        cmocka_unit_test(test_servers_take_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
