/* Planted causes of slow exchanges in simulated runs: events blame the right worker for the right
 * cause in 95 % of the exchanges at least. */
#include "sim_run.h"

#include <cjson/cJSON.h>

/* The exchanges of a run from `from` to `to`, and those that blame `node` for `cause`. */
struct verdicts {
    double from, to;
    const char *cause;
    int node, exchanges, right, blamed;
    double least_s; /* exchanges with shorter waits are left out */
};

static double number_of(const cJSON *event, const char *key, double otherwise)
{
    const cJSON *item = cJSON_GetObjectItem(event, key);
    return cJSON_IsNumber(item) ? item->valuedouble : otherwise;
}

static void on_event(void *user, const char *line)
{
    struct verdicts *v = user;
    cJSON *event = cJSON_Parse(line);
    const char *kind = cJSON_GetStringValue(cJSON_GetObjectItem(event, "kind"));
    const char *cause = cJSON_GetStringValue(cJSON_GetObjectItem(event, "cause"));
    double t = number_of(event, "t", -1);
    if (strcmp(kind, "exchange") == 0 && t >= v->from && t < v->to &&
        number_of(event, "waited_s", 0) >= v->least_s) {
        v->exchanges++;
        v->blamed += cause != NULL;
        v->right +=
            cause && strcmp(cause, v->cause) == 0 && number_of(event, "blamed", -2) == v->node;
    }
    cJSON_Delete(event);
}

static const char *const by_allreduce[] = {"stop.epochs=16", "strategy.allreduce={}", NULL};
static const char *const by_sync[] = {"stop.epochs=64", "strategy.sync={tau:4}", NULL};

static void expect_blame_by(struct tiny *t, const char *cluster, const char *const *set,
                            struct verdicts v)
{
    struct sim_run run = {.run = {.event = on_event, .user = &v}};
    sim_do(t, cluster, &run, set);
    if (v.exchanges < 10 || v.right < 0.95 * v.exchanges)
        fail_msg("%s of worker %d: %d of %d exchanges, %d have a cause", v.cause, v.node, v.right,
                 v.exchanges, v.blamed);
}

static void expect_blame(struct tiny *t, const char *cluster, struct verdicts v)
{
    expect_blame_by(t, cluster, by_allreduce, v);
}

static void test_blame_of_a_slow_worker(void **state)
{
    expect_blame(*state,
                 "node { count: 2 } node { speed: 0.5 jitter: 0.05 } node { count: 1 } "
                 "step_seconds: 0.01 link { mbit: 1000 }\n",
                 (struct verdicts){.to = 1e9, .cause = "step", .node = 2});
}

static void test_blame_of_a_slow_link(void **state)
{
    expect_blame(*state,
                 "node { count: 2 } node { mbit: 1 } node { count: 1 } step_seconds: 0.01 "
                 "link { mbit: 1000 }\n",
                 (struct verdicts){.to = 1e9, .cause = "link", .node = 2});
}

/* Between exchanges are several steps, and the driver is in them. */
static void test_blame_in_exchanges_of_models(void **state)
{
    expect_blame_by(*state,
                    "node { count: 2 } node { speed: 0.5 jitter: 0.05 } node { count: 1 } "
                    "step_seconds: 0.01 link { mbit: 1000 }\n",
                    by_sync, (struct verdicts){.from = 0.2, .to = 1e9, .cause = "step", .node = 2});
}

/* Slow for a while: its steps are compared with its own. */
static void test_blame_of_a_worker_that_becomes_slow(void **state)
{
    expect_blame(*state,
                 "node { count: 4 jitter: 0.02 } step_seconds: 0.01 link { mbit: 1000 }\n"
                 "fault { at: 0.3 slow: 1 factor: 3 for: 1 }\n",
                 (struct verdicts){.from = 0.4, .to = 1.2, .cause = "step", .node = 1});
}

static void test_blame_of_late_data(void **state)
{
    expect_blame(*state,
                 "node { count: 4 jitter: 0.02 } step_seconds: 0.01 link { mbit: 1000 }\n"
                 "fault { at: 0.3 starve: 1 seconds: 0.02 for: 1 }\n",
                 (struct verdicts){.from = 0.4, .to = 1.2, .cause = "data", .node = 1});
}

/* Worker 2 stands still twenty times, in steps and in exchanges. */
static void test_blame_of_a_stopped_node(void **state)
{
    static const char *const set[] = {"stop.epochs=64", "strategy.allreduce={}", NULL};
    enum { STOPS = 20 };
    char cluster[STOPS * 64 + 128];
    int n = snprintf(cluster, sizeof cluster,
                     "node { count: 4 jitter: 0.02 } step_seconds: 0.01 link { mbit: 10 }\n");
    for (int i = 0; i < STOPS; i++)
        n += snprintf(cluster + n, sizeof cluster - (size_t)n,
                      "fault { at: %.4f pause: 2 for: %.2f }\n", 0.5 + 1.2007 * i, 0.6 + 0.02 * i);
    expect_blame_by(
        *state, cluster, set,
        (struct verdicts){.from = 0.4, .to = 1e9, .cause = "stop", .node = 2, .least_s = 0.3});
}

/* The driver has one slow core, of which an evaluation takes half from the exchange. */
static void test_blame_of_an_evaluation(void **state)
{
    static const char *const set[] = {"stop.epochs=64", "strategy.sync={tau:4}",
                                      "evaluate.every_exchanges=20", NULL};
    expect_blame_by(
        *state,
        "node { count: 4 } driver { speed: 0.25 } step_seconds: 0.02 "
        "link { mbit: 1000 } costs { copy_gb_s: 2e-3 reduce_gb_s: 2e-3 }\n",
        set,
        (struct verdicts){
            .from = 0.2, .to = 1e9, .cause = "evaluation", .node = -1, .least_s = 0.015});
}

/* Stale synchronous steps: others wait at the bound for the slow worker. */
static void test_blame_at_a_bound(void **state)
{
    static const char *const set[] = {"stop.epochs=16",
                                      "strategy.ps={consistency: ssp staleness: 2}", NULL};
    expect_blame_by(
        *state,
        "node { count: 2 } node { speed: 0.4 jitter: 0.05 } node { count: 1 } "
        "step_seconds: 0.01 link { mbit: 1000 }\n",
        set,
        (struct verdicts){.from = 0.3, .to = 1e9, .cause = "step", .node = 2, .least_s = 0.002});
}

/* Workers fetch the centre from the driver, whose link is slow. */
static void test_blame_at_a_server(void **state)
{
    static const char *const set[] = {"stop.epochs=16", "strategy.easgd={tau: 2}", NULL};
    expect_blame_by(
        *state, "node { count: 4 } step_seconds: 0.01 link { mbit: 1 }\n", set,
        (struct verdicts){.from = 0.3, .to = 1e9, .cause = "link", .node = -1, .least_s = 0.005});
}

/* Workers that are equal wait little for each other. */
static void test_equal_workers_are_not_blamed(void **state)
{
    struct verdicts v = {.to = 1e9, .cause = "", .node = -2};
    struct sim_run run = {.run = {.event = on_event, .user = &v}};
    sim_do(*state, "node { count: 4 jitter: 0.01 } step_seconds: 0.01 link { mbit: 1000 }\n", &run,
           by_allreduce);
    assert_true(v.exchanges > 50 && v.blamed <= v.exchanges / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blame_of_a_slow_worker),
        cmocka_unit_test(test_blame_of_a_slow_link),
        cmocka_unit_test(test_blame_in_exchanges_of_models),
        cmocka_unit_test(test_blame_of_a_worker_that_becomes_slow),
        cmocka_unit_test(test_blame_of_late_data),
        cmocka_unit_test(test_blame_of_a_stopped_node),
        cmocka_unit_test(test_blame_of_an_evaluation),
        cmocka_unit_test(test_blame_at_a_bound),
        cmocka_unit_test(test_blame_at_a_server),
        cmocka_unit_test(test_equal_workers_are_not_blamed),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
