#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"
#include "coll/auto.h"
#include "coll/exchange.h"
#include "plan/round.h"

#include <math.h>

/* Links that carry the metadata of an exchange in a second, or N floats. */
#define META_BYTES (sizeof(struct exchange_meta) + 40)

enum { NODES = 3, N = META_BYTES / sizeof(float), STATES = 2, STATE = 14, LEARNT = N - STATE };

_Static_assert(META_BYTES % sizeof(float) == 0, "a second is a whole number of floats");

static const double rate[NODES] = {META_BYTES, META_BYTES, META_BYTES};
static const struct round_model model = {LEARNT, STATE, STATES, 1000};
static const struct round_bucket whole = {LEARNT, 1};

static struct round_config config_of(enum round_strategy strategy)
{
    bool buckets = strategy == ROUND_ALLREDUCE;
    return (struct round_config){
        .strategy = strategy,
        .tau = 10,
        .buckets = buckets,
        .bucket = buckets ? &whole : NULL,
        .algorithm = COLL_BUTTERFLY,
        .chunk = N,
    };
}

static struct round_cost predict_on(const struct round_config *config, const double *step,
                                    struct round_node node[NODES])
{
    const struct round_cluster cluster = {
        .workers = NODES - 1, .step = step, .links = {NODES, rate, rate, 0, INFINITY, 0}};
    struct round_cost cost;
    assert_int_equal(round_predict(config, &cluster, &model, &cost, node), OK);
    return cost;
}

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* Steps of 1 and 2 s; metadata up and down and the vector each take a second. */
static void test_round_of_two_workers_by_hand(void **state)
{
    (void)state;
    static const double step[NODES] = {0, 1, 2};
    const struct round_config config = config_of(ROUND_ALLREDUCE);
    struct round_node node[NODES];
    struct round_cost cost = predict_on(&config, step, node);
    assert_true(is_near(cost.seconds, 2 + 3) && cost.compute == 2);
    assert_int_equal(cost.algorithm, COLL_BUTTERFLY);
    assert_true(is_near(node[1].utilisation, 0.2) && is_near(node[2].utilisation, 0.4));
    assert_true(node[0].utilisation == 0 && node[0].sent == 0 && node[0].received == 0);
    for (size_t i = 1; i < NODES; i++) {
        assert_int_equal(node[i].sent, N * sizeof(float) + sizeof(struct exchange_meta));
        assert_int_equal(node[i].received, node[i].sent);
    }
}

/* A bucket with half of the floats that leaves in the middle of a step of 10 s arrives long before
 * its end. The other half and its metadata take 2.5 s after it. */
static void test_round_with_an_early_bucket(void **state)
{
    (void)state;
    static const double step[NODES] = {0, 10, 10};
    static const struct round_bucket bucket[] = {{N / 2, 0.5}, {LEARNT - N / 2, 1}};
    struct round_config config = config_of(ROUND_ALLREDUCE);
    struct round_node node[NODES];
    config.buckets = 2;
    config.bucket = bucket;
    assert_true(is_near(predict_on(&config, step, node).seconds, 12.5));
    assert_int_equal(node[1].sent, N * sizeof(float) + 2 * sizeof(struct exchange_meta));
}

/* Ten steps, and then the driver and both workers exchange x, its two optimizer vectors, and s. */
static void test_round_of_sync_by_hand(void **state)
{
    (void)state;
    static const double step[NODES] = {0, 1, 1};
    struct round_config config = config_of(ROUND_SYNC);
    struct round_node node[NODES];
    config.algorithm = COLL_TREE;
    assert_true(predict_on(&config, step, node).compute == 10);
    /* In the tree both workers are the driver's children: each sends a vector and receives one. */
    assert_int_equal(node[1].sent, N * sizeof(float) + sizeof(struct exchange_meta));
    assert_int_equal(node[0].received, 2 * node[1].sent);
    config.averages_state = true;
    predict_on(&config, step, node);
    size_t floats = LEARNT * (1 + STATES) + STATE;
    assert_int_equal(node[2].sent, floats * sizeof(float) + sizeof(struct exchange_meta));
    assert_int_equal(node[2].memory.exchange, 3 * floats * sizeof(float));
}

/* With metadata an exchange takes 3 s, during which the next step of 1 or 2 s is taken; with
 * steps of 1 and 10 s it is not waited for. */
static void test_round_of_async_allreduce_by_hand(void **state)
{
    (void)state;
    static const double fast[NODES] = {0, 1, 2}, slow[NODES] = {0, 1, 10};
    const struct round_config config = config_of(ROUND_ASYNC_ALLREDUCE);
    struct round_node node[NODES];
    assert_true(is_near(predict_on(&config, fast, node).seconds, 3));
    assert_true(is_near(node[2].utilisation, 2 / 3.0));
    assert_true(is_near(predict_on(&config, slow, node).seconds, 10));
    assert_int_equal(node[1].sent, N * sizeof(float) + sizeof(struct exchange_meta));
}

/* Two halves of the vector, each with metadata of its own: 2.5 s for an exchange. Without
 * overlap they are waited for after 2 and after 4 of the 4 steps of a second; with an overlap of
 * a step each takes 1 s of computing less. */
static void test_round_of_diloco_by_hand(void **state)
{
    (void)state;
    static const double step[NODES] = {0, 1, 1};
    static const struct round_model even = {.x = N};
    const struct round_cluster cluster = {
        .workers = NODES - 1, .step = step, .links = {NODES, rate, rate, 0, INFINITY, 0}};
    const double seconds[] = {4 + 5, 4 + 5 - 2};
    for (uint64_t overlap = 0; overlap <= 1; overlap++) {
        struct round_config config = config_of(ROUND_DILOCO);
        struct round_node node[NODES];
        struct round_cost cost;
        config.tau = 4;
        config.fragments = 2;
        config.overlap = overlap;
        config.kept = 2;
        assert_int_equal(round_predict(&config, &cluster, &even, &cost, node), OK);
        assert_true(is_near(cost.seconds, seconds[overlap]) && cost.compute == 4);
        assert_int_equal(node[1].sent, N * sizeof(float) + 2 * sizeof(struct exchange_meta));
        assert_int_equal(node[1].memory.strategy, 2 * N * sizeof(float));
        assert_int_equal(node[0].memory.model + node[0].sent, 0);
    }
}

/* For a vector that is long enough to measure links for, `auto` chooses by the links. */
static void test_round_of_a_long_vector(void **state)
{
    (void)state;
    static const double step[NODES + 1] = {0, 1, 1, 1};
    static const double fast[NODES + 1] = {1e8, 1e8, 5e7, 1e8};
    const struct round_cluster cluster = {
        .workers = NODES, .step = step, .links = {NODES + 1, fast, fast, 0, INFINITY, 0}};
    const struct cost_links workers = {NODES, fast + 1, fast + 1, 0, INFINITY, 0};
    const struct round_model large = {.x = 4000000};
    const struct round_bucket all = {4000000, 1};
    struct round_config config = config_of(ROUND_ALLREDUCE);
    struct round_node node[NODES + 1];
    struct round_cost cost;
    size_t cut[NODES + 1];
    config.algorithm = COLL_AUTO;
    config.bucket = &all;
    assert_true(auto_measures(large.x));
    assert_int_equal(round_predict(&config, &cluster, &large, &cost, node), OK);
    struct cost_choice choice = auto_choose_on(&workers, large.x, CODEC_F32, cut);
    assert_int_equal(cost.algorithm, choice.algorithm);
    assert_true(fabs(cost.seconds - 1 - choice.seconds) < 1e-3 && choice.seconds > 0.3);
    /* The slow worker owns nothing of the sum: it sends its vector, and receives the result. */
    assert_int_equal(choice.algorithm, COLL_SCATTER_GATHER);
    assert_true(fabs((double)node[2].sent / (double)(large.x * sizeof(float)) - 1) < 1e-3);
}

static void test_round_memory_by_purpose(void **state)
{
    (void)state;
    static const double step[NODES] = {0, 1, 1};
    struct round_config config = config_of(ROUND_SYNC);
    struct round_node node[NODES];
    config.algorithm = COLL_CHUNKED_RING;
    predict_on(&config, step, node);
    const struct round_memory *worker = &node[1].memory, *driver = &node[0].memory;
    assert_int_equal(worker->model, N * sizeof(float));
    assert_int_equal(worker->gradient, LEARNT * sizeof(float));
    assert_int_equal(worker->optimizer, STATES * LEARNT * sizeof(float));
    assert_int_equal(worker->exchange, 3 * N * sizeof(float));
    assert_int_equal(worker->workspace, 1000);
    assert_int_equal(driver->model, worker->model);
    assert_int_equal(driver->exchange, worker->exchange);
    assert_int_equal(driver->gradient + driver->optimizer + driver->workspace, 0);
    /* Lossy codes keep two rounding errors. */
    double floats = (double)(node[1].sent - sizeof(struct exchange_meta));
    config.codec = CODEC_BF16;
    predict_on(&config, step, node);
    assert_int_equal(worker->exchange, 5 * N * sizeof(float));
    double coded = (double)(node[1].sent - sizeof(struct exchange_meta));
    double part = (2.0 * LEARNT + 4.0 * (N - LEARNT)) / (4.0 * N); /* s travels as it is */
    assert_true(fabs(coded / floats - part) < 0.03); /* a code is a multiple of four bytes */
    /* A driver that takes no part has no model. */
    const struct round_config all = config_of(ROUND_ALLREDUCE);
    predict_on(&all, step, node);
    assert_int_equal(driver->model + driver->exchange, 0);
}

/* Of what a node receives in a round it keeps the memory for the next messages, up to 8 MiB; and
 * before an algorithm is chosen by the links these are measured, with a buffer and three messages
 * of 1 MiB. */
static void test_round_memory_of_messages(void **state)
{
    (void)state;
    static const double step[NODES] = {0, 1, 1};
    const struct round_model wide = {.x = 3 << 20};
    const struct round_bucket all = {wide.x, 1};
    const struct round_cluster cluster = {
        .workers = NODES - 1, .step = step, .links = {NODES, rate, rate, 0, INFINITY, 0}};
    struct round_config config = config_of(ROUND_ALLREDUCE);
    struct round_node node[NODES];
    struct round_cost cost;
    predict_on(&config, step, node);
    assert_int_equal(node[1].memory.messages, node[1].received);
    assert_int_equal(node[0].memory.messages, 0);
    config.bucket = &all;
    assert_int_equal(round_predict(&config, &cluster, &wide, &cost, node), OK);
    assert_int_equal(node[1].memory.messages, 8 << 20);
    config.algorithm = COLL_AUTO;
    assert_int_equal(round_predict(&config, &cluster, &wide, &cost, node), OK);
    assert_int_equal(node[1].memory.messages, 12 << 20);
}

/* One worker exchanges nothing, unless a driver takes part. */
static void test_round_of_one_worker(void **state)
{
    (void)state;
    static const double step[] = {0, 3};
    const struct round_cluster cluster = {
        .workers = 1, .step = step, .links = {2, rate, rate, 0, INFINITY, 0}};
    for (int strategy = ROUND_SINGLE; strategy <= ROUND_ASYNC_ALLREDUCE; strategy++) {
        const struct round_config config = config_of((enum round_strategy)strategy);
        struct round_cost cost;
        struct round_node node[2];
        assert_int_equal(round_predict(&config, &cluster, &model, &cost, node), OK);
        assert_true(cost.seconds == 3 && node[1].utilisation == 1 && node[1].sent == 0);
        assert_int_equal(cost.algorithm, COLL_AUTO);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_of_two_workers_by_hand),
        cmocka_unit_test(test_round_with_an_early_bucket),
        cmocka_unit_test(test_round_of_sync_by_hand),
        cmocka_unit_test(test_round_of_async_allreduce_by_hand),
        cmocka_unit_test(test_round_of_diloco_by_hand),
        cmocka_unit_test(test_round_of_a_long_vector),
        cmocka_unit_test(test_round_memory_by_purpose),
        cmocka_unit_test(test_round_memory_of_messages),
        cmocka_unit_test(test_round_of_one_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
