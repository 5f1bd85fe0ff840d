#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"
#include "coll/cost.h"
#include "coll/exchange.h"
#include "plan/round.h"

#include <math.h>

/* Links that carry MILLION floats in a second, so that metadata and headers take next to nothing.
 */
enum { MILLION = 1000000, NODES = 5, STATE = 16 };

#define NEXT_TO_NOTHING 0.01

static const double rate[NODES] = {4e6, 4e6, 4e6, 4e6, 4e6};
static const double even[NODES] = {0, 8, 8, 8, 8};

/* An eighth of the whole net's step, the gather of a layer's outputs, a quarter, the sum of its
 * gradient, and an eighth. */
static const struct round_meeting meetings[] = {
    {ROUND_GATHER, MILLION, 0.125, 0},
    {ROUND_SUM, MILLION, 0.375, 0},
};

static const struct round_slices two = {
    .count = 2, .meeting = meetings, .meetings = 2, .share = 0.5};

static struct round_cost predict_round(enum round_strategy strategy, uint64_t tau, size_t workers,
                                       const struct round_slices *slices, const double *step,
                                       struct round_node node[NODES])
{
    const struct round_config config = {
        .strategy = strategy,
        .slices = slices,
        .tau = tau,
        .algorithm = COLL_BUTTERFLY,
        .chunk = 2 * MILLION,
    };
    const struct round_cluster cluster = {
        .workers = workers, .step = step, .links = {workers + 1, rate, rate, 0, INFINITY, 0}};
    const struct round_model model = {MILLION - STATE - 1, STATE, 1, 1000};
    struct round_cost cost;
    assert_int_equal(round_predict(&config, &cluster, &model, &cost, node), OK);
    return cost;
}

static void assert_seconds(double seconds, double expected)
{
    if (!(fabs(seconds - expected) <= NEXT_TO_NOTHING * expected))
        fail_msg("%g s are not %g", seconds, expected);
}

/* Half of a step of 8 s; each slice sends half a million floats, and then a million. */
static void test_a_step_of_two_slices_by_hand(void **state)
{
    (void)state;
    struct round_node node[NODES];
    struct round_cost cost = predict_round(ROUND_ALLREDUCE, 1, 2, &two, even, node);
    assert_seconds(cost.seconds, 4 + 0.5 + 1);
    assert_true(cost.compute == 4 && cost.step == 4 && cost.steps == 1);
    assert_seconds(node[2].utilisation, 4 / 5.5);
    assert_int_equal(cost.algorithm, COLL_BUTTERFLY);
    assert_int_equal(node[0].sent, 0);
}

/* The slower slice is waited for at each meeting, and at the end. */
static void test_slices_wait_for_the_slowest(void **state)
{
    (void)state;
    static const double uneven[NODES] = {0, 8, 16};
    struct round_node node[NODES];
    assert_seconds(predict_round(ROUND_ALLREDUCE, 1, 2, &two, uneven, node).seconds, 8 + 0.5 + 1);
    assert_seconds(node[1].utilisation, 4 / 9.5);
}

/* During the sum, of a second, a slice computes an eighth of a step: the longer one counts. */
static void test_a_sum_during_computation_by_hand(void **state)
{
    (void)state;
    static const struct round_meeting during[] = {
        {ROUND_GATHER, MILLION, 0.125, 0},
        {ROUND_SUM, MILLION, 0.25, 0.125},
    };
    static const struct round_slices slices = {
        .count = 2, .meeting = during, .meetings = 2, .share = 0.5};
    static const struct {
        double step[NODES], seconds;
    } cases[] = {
        {{0, 4, 4}, 0.5 + 0.5 + 0.5 + 1 + 0.5},
        {{0, 16, 16}, 2 + 0.5 + 2 + 2 + 2},
        {{0, 4, 16}, 2 + 0.5 + 2 + 2 + 2},
    };
    struct round_node node[NODES];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_seconds(predict_round(ROUND_ALLREDUCE, 1, 2, &slices, cases[i].step, node).seconds,
                       cases[i].seconds);
    /* As the last thing in a step. */
    static const struct round_slices last = {
        .count = 2, .meeting = during, .meetings = 2, .share = 0.375};
    assert_seconds(predict_round(ROUND_ALLREDUCE, 1, 2, &last, cases[1].step, node).seconds,
                   2 + 0.5 + 2 + 2);
}

/* Two replicas: at the end of a round the peers add up a million floats each. */
static void test_rounds_of_replicas_by_hand(void **state)
{
    (void)state;
    struct round_node node[NODES];
    assert_seconds(predict_round(ROUND_ALLREDUCE, 1, 4, &two, even, node).seconds, 5.5 + 1);
    assert_seconds(predict_round(ROUND_SYNC, 3, 4, &two, even, node).seconds, 3 * 5.5 + 1);
    assert_seconds(node[4].utilisation, 12 / 17.5);
}

/* Half of the gradient is finished behind the sum, which ends at 4.5 s, and takes half a second of
 * the second that is left; the other half leaves at the end. Where that is of data-parallel
 * layers, the mates have added it up before. */
static void test_buckets_of_peers_by_hand(void **state)
{
    (void)state;
    enum { HALF = MILLION / 2 };
    static const struct round_bucket buckets[] = {{MILLION - STATE - 1 - HALF, 0.375}, {HALF, 0.5}};
    static const struct round_meeting with_sum[] = {
        {ROUND_GATHER, MILLION, 0.125, 0},
        {ROUND_SUM, MILLION, 0.375, 0},
        {ROUND_SUM, HALF, 0.5, 0},
    };
    struct round_slices slices = two;
    struct round_node node[NODES];
    slices.bucket = buckets;
    slices.buckets = 2;
    assert_seconds(predict_round(ROUND_ALLREDUCE, 1, 4, &slices, even, node).seconds, 5.5 + 0.5);
    slices.meeting = with_sum;
    slices.meetings = 3;
    slices.parallel = HALF;
    slices.parallel_buckets = 1;
    assert_seconds(predict_round(ROUND_ALLREDUCE, 1, 4, &slices, even, node).seconds,
                   5.5 + 0.5 + 0.5);
    slices.bucket = &buckets[1]; /* of one replica */
    slices.buckets = 1;
    assert_seconds(predict_round(ROUND_ALLREDUCE, 1, 2, &slices, even, node).seconds, 5.5 + 0.5);
}

/* As many bytes as coll/cost.h says of a step of slices, and those of the exchange that ends it:
 * metadata to the first member and back, and a number. */
static void test_bytes_are_those_of_the_cost_model(void **state)
{
    (void)state;
    enum { VOTES = 6 };
    static const struct cost_meeting same[] = {{false, MILLION}, {true, MILLION}};
    for (size_t replicas = 1; replicas <= 2; replicas++) {
        const size_t peers[] = {MILLION, MILLION};
        const struct cost_sliced step = {2, replicas, COLL_BUTTERFLY, same, 2, peers};
        struct round_node node[NODES];
        double sent = 0, received = 0;
        predict_round(ROUND_ALLREDUCE, 1, 2 * replicas, &two, even, node);
        for (size_t i = 1; i <= 2 * replicas; i++) {
            sent += (double)node[i].sent;
            received += (double)node[i].received;
        }
        double besides = 2.0 * (double)(2 * replicas - 1) * sizeof(struct exchange_meta) +
                         cost_sum_volume(COLL_BUTTERFLY, 2 * replicas, 1).bytes +
                         (double)replicas * cost_sum_volume(COLL_BUTTERFLY, 2, STATE).bytes;
        if (replicas > 1)
            besides += (double)replicas * cost_sum_volume(COLL_BUTTERFLY, 2, VOTES).bytes;
        assert_true(sent == received && sent == cost_sliced_step(&step).bytes + besides);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_of_two_slices_by_hand),
        cmocka_unit_test(test_slices_wait_for_the_slowest),
        cmocka_unit_test(test_a_sum_during_computation_by_hand),
        cmocka_unit_test(test_rounds_of_replicas_by_hand),
        cmocka_unit_test(test_buckets_of_peers_by_hand),
        cmocka_unit_test(test_bytes_are_those_of_the_cost_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
