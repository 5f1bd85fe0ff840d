#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"
#include "plan/round.h"

#include <math.h>

/* A vector in one piece. A message to or from the driver takes M seconds, half of them on the link.
 */
#define RATE    150.0
#define LATENCY 1.0
#define M       2.0

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

static void expect_near(double a, double b)
{
    if (fabs(a / b - 1) > 1e-6)
        fail_msg("%.6f s, by hand %.6f", a, b);
}

/* A step; header, grant, bytes and their way; the decision; a request, and the same again. The
 * driver's link takes both workers' bytes at once. */
static void test_server_round_of_ps(void **state)
{
    (void)state;
    struct round_node node[WORKERS + 1];
    struct round_config config = config_of(ROUND_PS);
    double alone = 10 + 6 * M + 2 * LATENCY + push_seconds() + copy_seconds();
    expect_near(round_of(&config, fast, 10, node), alone);
    expect_near(node[1].utilisation, 10 / alone);
    assert_int_equal(node[1].sent, N * sizeof(float));
    assert_int_equal(node[1].received, (N + 2 * WORKERS) * sizeof(float));
    assert_int_equal(node[0].received, 2 * node[1].sent);
    /* Equal workers share an equal link. */
    expect_near(round_of(&config, rate, 10, node), alone + push_seconds() + copy_seconds());
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
    expect_near(took, 1000 + 6 * M + 2 * LATENCY + push_seconds() + copy_seconds());
    expect_near(node[2].pace, node[1].pace);
}

/* The push is on its way during the steps: only the copy is waited for. */
static void test_server_round_of_easgd(void **state)
{
    (void)state;
    struct round_node node[WORKERS + 1];
    struct round_config config = config_of(ROUND_EASGD_ASYNC);
    config.tau = 10;
    expect_near(round_of(&config, fast, 10, node), 100 + 3 * M + LATENCY + copy_seconds());
}

/* Two pushes of ten steps each to a copy: the first push is hidden behind steps that are long
 * enough, the second is not, since the copy comes after it. */
static void test_server_round_of_downpour(void **state)
{
    (void)state;
    struct round_node node[WORKERS + 1];
    struct round_config config = config_of(ROUND_DOWNPOUR);
    config.tau = 10;
    config.fetch = 20;
    config.kept_pushes = 3;
    expect_near(round_of(&config, fast, 10, node),
                200 + 2 * M + LATENCY + push_seconds() + 2 * M + LATENCY + copy_seconds());
    assert_int_equal(node[1].sent, 2 * N * sizeof(float));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server_round_of_ps),
        cmocka_unit_test(test_server_round_with_a_gate),
        cmocka_unit_test(test_server_round_of_easgd),
        cmocka_unit_test(test_server_round_of_downpour),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
