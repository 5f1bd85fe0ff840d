/* `mpca` and `pace` do not wait for a slow network: while the link of one worker is clogged, or one
 * worker stands still, the exchanges of the others take as long as before, from the second tick on.
 * */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "phased_trial.h"
#include "sweep_stride.h"

#include <math.h>

#define MS (WORLD_SECOND / 1000)

/* 17,763 floats: the model crosses a link of 57 Mbit/s in one step, 10 ms. */
static const char net[] =
    "name: 'wide'\n"
    "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
    "layer { name: 'a' type: 'InnerProduct' bottom: 'data' top: 'a'\n"
    "  inner_product_param { num_output: 120 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'relu' type: 'ReLU' bottom: 'a' top: 'a' }\n"
    "layer { name: 'b' type: 'InnerProduct' bottom: 'a' top: 'b'\n"
    "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'accuracy' type: 'Accuracy' bottom: 'b' bottom: 'label' top: 'accuracy'\n"
    "  include { phase: TEST } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'b' bottom: 'label' top: 'loss' }\n";

#define CLUSTER "node { count: 8 } link { mbit: 57 latency_us: 50 }\n"

enum { WORKERS = 8, WITNESS = 7, TICKS_MAX = LANES_MAX * EXCHANGES_MAX };

static const uint32_t slow_workers[] = {0, 3}; /* 0 would report for all */

/* STRIDE: not a multiple of the cycle of four that the cases have. */
enum { STRIDE = SWEEP_STRIDE(5, 5), SLOW_STRIDE = SWEEP_STRIDE(2, 2), SLOW = 2 };

/* When each worker completed an exchange of any lane, in order. */
struct pace {
    struct trial t;
    const struct exchange *e[WORKERS][LANES_MAX];
    uint64_t completed[WORKERS][LANES_MAX];
    int64_t tick[WORKERS][TICKS_MAX];
    size_t ticks[WORKERS];
    double weight[LANES_MAX]; /* of all results */
    bool spoils, spoilt;      /* once: the contribution of a leaf is not finite */
    uint32_t workers;         /* WORKERS unless set; kept */
    /* Of two workers: their results; when the second, a former leaf, was adopting one; and lanes
     * that it continues alone, and those of them whose last result is not one of these. */
    uint64_t result[2][LANES_MAX][EXCHANGES_MAX];
    int64_t adopts_from, adopts_to;
    bool alone[LANES_MAX];
    size_t lone, broken;
    double excess; /* steps that have counted twice, at any time */
};

static struct pace pace;

static void on_opened(void *user, uint32_t node, const struct exchange *e)
{
    struct pace *p = user;
    if (node < WORKERS)
        p->e[node][e->lane] = e;
}

/* The leaf is about to send its contribution. */
static bool make_infinite(const struct phased_lane *lane)
{
    const struct phased_slot *slot = &lane->slot;
    if (atomic_load(&slot->state) != SLOT_READY || lane->transfers.first)
        return false;
    slot->x.at[slot->x.n / 2] = NAN;
    return true;
}

static struct phased_lane *lane_of(const struct exchange *e)
{
    return (struct phased_lane *)(void *)((char *)(uintptr_t)e -
                                          offsetof(struct phased_lane, exchange));
}

/* Steps of a shard that have counted, and those that may still count: at most all that were taken.
 * A leaf's contribution that is under way may have counted, and is left out. */
static void check_counts(struct pace *p, uint32_t s)
{
    double steps = p->weight[s];
    for (uint32_t w = 0; w < WORKERS; w++) {
        const struct exchange *e = p->e[w][s];
        if (!e || p->t.ended[w] != INT32_MAX)
            return;
        const struct phased_lane *lane = lane_of(e);
        const struct phased_slot *slot = &lane->slot;
        bool waits = !lane->as_leaf && atomic_load(&slot->state) == SLOT_READY;
        bool counts = e->completed + 1 > p->completed[WITNESS][s];
        steps += (double)(lane->tau + atomic_load(&slot->returned) + (waits ? slot->tau : 0) +
                          (counts ? lane->given : 0));
        steps -= (double)atomic_load(&e->group->work.progress);
    }
    p->excess = fmax(p->excess, steps);
}

static void spoil_slot(struct pace *p, const struct exchange *e)
{
    struct phased_lane *lane = lane_of(e);
    if (p->spoils && !p->spoilt && lane->as_leaf)
        p->spoilt = make_infinite(lane);
}

static uint64_t hash_result(const struct exchange *e)
{
    const struct vec *x = exchange_result(e);
    return hash_bytes(x->at, x->n * sizeof *x->at);
}

static void watch_results(struct pace *p, uint32_t node, const struct exchange *e)
{
    uint32_t s = e->lane;
    bool known = false;
    if (e->completed != p->completed[node][s] && e->completed < EXCHANGES_MAX)
        p->result[node][s][e->completed] = hash_result(e);
    if (node == 1 && e->stage == EXCHANGE_ADOPTING && e->standing == LANE_WAS_LEAF) {
        p->adopts_to = world_now(e->group->world);
        p->adopts_from = p->adopts_from ? p->adopts_from : p->adopts_to;
    }
    if (node != 1 || p->alone[s] || group_view(e->group)->count > 1 || !lane_of(e)->in_line)
        return;
    for (int k = 0; k < 2; k++)
        known |= p->result[k][s][e->completed] == hash_result(e);
    p->alone[s] = true;
    p->lone++;
    p->broken += !known;
}

static void on_event(void *arg, uint32_t node)
{
    struct pace *p = &pace;
    (void)arg;
    if (node >= WORKERS || p->t.ended[node] != INT32_MAX)
        return;
    for (uint32_t s = 0; s < LANES_MAX; s++) {
        const struct exchange *e = p->e[node][s];
        if (e) {
            spoil_slot(p, e);
            check_counts(p, s);
        }
        if (e && p->t.workers == 2)
            watch_results(p, node, e);
        if (!e || e->completed == p->completed[node][s])
            continue;
        p->completed[node][s] = e->completed;
        if (node == WITNESS)
            p->weight[s] += exchange_result_meta(e)->weight;
        if (p->ticks[node] < TICKS_MAX)
            p->tick[node][p->ticks[node]++] = world_now(e->group->world);
    }
}

static void run_trial(void **state, const char *strategy, const char *fault, double seconds)
{
    static const struct group_observer observer = {.opened = on_opened, .user = &pace};
    char cluster[512];
    bool spoils = pace.spoils;
    uint32_t workers = pace.workers ? pace.workers : WORKERS;
    memset(&pace, 0, sizeof pace);
    pace.spoils = spoils;
    snprintf(cluster, sizeof cluster, "%s%s", strstr(fault, "node {") ? "" : CLUSTER, fault);
    pace.t = (struct trial){.strategy = strategy,
                            .cluster = cluster,
                            .workers = workers,
                            .steps = STEPS_MAX,
                            .seconds = seconds,
                            .net = "wide.prototxt",
                            .observer = &observer,
                            .observe = on_event};
    for (uint32_t w = 0; w < WORKERS; w++)
        pace.t.ended[w] = INT32_MAX;
    trial_open(&pace.t, *state);
    trial_run(&pace.t);
    assert_int_equal(pace.t.rc, OK);
    trial_close(&pace.t);
}

/* The first tick of a worker that ended after `at`. */
static size_t first_after(uint32_t w, int64_t at)
{
    size_t i = 0;
    while (i < pace.ticks[w] && pace.tick[w][i] <= at)
        i++;
    return i;
}

/* The longest cycle, all lanes once, of the workers but `except`, between two times: from the end
 * of tick `skip` after `from`. */
static int64_t longest_cycle(uint32_t except, int64_t from, int64_t to, size_t skip, size_t *cycles)
{
    int64_t longest = 0;
    uint32_t lanes = pace.t.lanes;
    *cycles = SIZE_MAX;
    for (uint32_t w = 0; w < WORKERS; w++) {
        if (w == except)
            continue;
        size_t first = first_after(w, from) + skip, end = first_after(w, to), here = 0;
        for (size_t i = first; i + lanes < end; i++, here++) {
            int64_t took = pace.tick[w][i + lanes] - pace.tick[w][i];
            longest = took > longest ? took : longest;
        }
        *cycles = here / lanes < *cycles ? here / lanes : *cycles;
    }
    return longest;
}

/* At most so many steps of a trial do not count: contributions that are under way at the end, and
 * those of the worker that becomes a leaf in exchanges that it does not complete. */
#define LOST 65

/* All steps of all workers have counted once, those of the slow one too, but for those, and for
 * those that are left of a worker that is a leaf when its training ends. With `pace` a leaf's
 * progress weighs what its proxy's does, however many steps it took: `free`. */
static void expect_weights(uint64_t free)
{
    for (uint32_t s = 0; s < pace.t.lanes; s++) {
        double steps = 0, left = 0;
        for (uint32_t w = 0; w < WORKERS; w++) {
            steps += (double)pace.t.taken[w];
            left += (double)pace.t.step[w][pace.t.taken[w]].tau[s];
        }
        double missing = steps - pace.weight[s];
        if (!(missing >= 0 && missing - left <= (double)(LOST + free)))
            fail_msg("shard %u: %g steps, %g counted, %g left", s, steps, pace.weight[s], left);
    }
}

/* No worker goes back to an older result. */
static void expect_order(void)
{
    for (uint32_t w = 0; w < WORKERS; w++)
        for (uint64_t k = 1; k <= pace.t.taken[w]; k++)
            for (uint32_t s = 0; s < pace.t.lanes; s++)
                assert_true(pace.t.step[w][k].c[s] >= pace.t.step[w][k - 1].c[s]);
}

static void expect_one_report_each(void)
{
    for (uint32_t s = 0; s < pace.t.lanes; s++)
        for (uint64_t n = 0; n < EXCHANGES_MAX; n++)
            assert_true(pace.t.reported[s][n] <= 1);
}

/* Undisturbed from 0.3 to 0.6 s, disturbed from 0.6 s to `to`. */
static void expect_pace(void **state, const char *strategy, const char *fault, uint32_t slow,
                        int64_t to, size_t least)
{
    size_t before, after;
    char text[100];
    snprintf(text, sizeof text, fault, slow);
    run_trial(state, strategy, text, 2);
    int64_t calm = longest_cycle(WORKERS, pace.t.begun + 300 * MS, 600 * MS, 0, &before);
    int64_t late = longest_cycle(slow, 600 * MS, to, 2, &after);
    int64_t first = pace.tick[WITNESS][first_after(WITNESS, 600 * MS) + 2] - 600 * MS;
    print_message("%s %s: undisturbed %.1f ms, disturbed %.1f ms, %zu cycles; two ticks after "
                  "%.1f ms\n",
                  strategy, text, (double)calm / 1e6, (double)late / 1e6, after,
                  (double)first / 1e6);
    assert_true(before >= 5 && after >= least);
    assert_true((double)late <= 1.3 * (double)calm);
    expect_order();
    expect_one_report_each();
}

/* Exchanges of which the worker has adopted the result at its step k. */
static uint64_t adopted_by(uint32_t w, uint64_t k)
{
    uint64_t sum = 0;
    for (uint32_t s = 0; s < pace.t.lanes; s++)
        sum += pace.t.step[w][k].c[s];
    return sum;
}

/* How often the worker adopted results in the steps that ended between two times. */
static size_t count_adoptions(uint32_t w, int64_t from, int64_t to)
{
    size_t n = 0;
    for (uint64_t k = 1; k <= pace.t.taken[w]; k++)
        n += pace.t.step[w][k].t > from && pace.t.step[w][k].t <= to &&
             adopted_by(w, k) > adopted_by(w, k - 1);
    return n;
}

static const char *const strategies[] = {
    "mpca { }",           "mpca { coordination: symmetric }",
    "mpca { phases: 1 }", "mpca { phases: 2 shards: 3 }",
    "pace { shards: 3 }", "pace { shards: 3 coordination: symmetric }",
};

#define EACH_STRATEGY_AND_SLOW_WORKER(i, k)                             \
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) \
        for (size_t k = sweep_first(i, SLOW_STRIDE, SLOW); k < SLOW; k += SLOW_STRIDE)

static void test_a_clogged_link_holds_up_no_other(void **state)
{
    EACH_STRATEGY_AND_SLOW_WORKER(i, k)
    {
        uint32_t slow = slow_workers[k];
        expect_pace(state, strategies[i], "fault { at: 0.6 clog: %u factor: 10 }", slow, 1600 * MS,
                    20);
        assert_true(count_adoptions(slow, 700 * MS, 1600 * MS) >= 3); /* at the pace of its link */
        expect_weights(strncmp(strategies[i], "pace", 4) == 0 ? pace.t.taken[slow] : 0);
    }
}

/* Steps behind the last contribution of training are contributed when it has ended. */
static void test_the_rest_of_training_counts(void **state)
{
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        run_trial(state, strategies[i], "", 0.8);
        for (uint32_t s = 0; s < pace.t.lanes; s++) {
            double steps = 0, left = 0;
            for (uint32_t w = 0; w < WORKERS; w++) {
                steps += (double)pace.t.taken[w];
                left += (double)pace.t.step[w][pace.t.taken[w]].tau[s];
            }
            assert_true(left > 0);
            assert_true(pace.weight[s] == steps);
        }
    }
}

static void test_a_leaf_drops_a_contribution_that_is_not_finite(void **state)
{
    pace.spoils = true;
    run_trial(state, "mpca { }", CLUSTER "fault { at: 0.6 clog: 3 factor: 10 }", 2);
    pace.spoils = false;
    assert_true(pace.spoilt);
    assert_true(count_adoptions(3, 1200 * MS, 2000 * MS) >= 3);
    expect_order();
}

/* Steps of 0.6 s: two of them are longer than the time after which a silent member is dead. */
static void test_a_clogged_link_holds_up_no_other_with_long_steps(void **state)
{
    static const char slow[] = "node { count: 8 speed: 0.0166667 }\n"
                               "link { mbit: 0.95 latency_us: 50 }\n"
                               "fault { at: 30 clog: 3 factor: 10 }";
    size_t before, after;
    run_trial(state, "mpca { }", slow, 80);
    int64_t calm = longest_cycle(WORKERS, 15000 * MS, 30000 * MS, 0, &before);
    int64_t late = longest_cycle(3, 30000 * MS, 75000 * MS, 4, &after);
    print_message("undisturbed %.1f s, disturbed %.1f s, %zu cycles\n", (double)calm / 1e9,
                  (double)late / 1e9, after);
    assert_true(before >= 3 && after >= 10);
    assert_true((double)late <= 1.3 * (double)calm);
}

/* It stands still for some twenty cycles. */
static void test_a_stopped_worker_holds_up_no_other(void **state)
{
    EACH_STRATEGY_AND_SLOW_WORKER(i, k)
    {
        uint32_t slow = slow_workers[k];
        expect_pace(state, strategies[i], "fault { at: 0.6 pause: %u for: 0.7 }", slow, 1300 * MS,
                    15);
        /* It takes part again soon, and adopts results as often as before. */
        assert_true(pace.tick[slow][first_after(slow, 1300 * MS)] <= 1550 * MS);
        assert_true(count_adoptions(slow, 1600 * MS, 2000 * MS) >= 10);
        expect_weights(0);
    }
}

/* Six leaves share two proxies, which refuse those that come while another's contribution is there.
 * This is not the fault of their links, so all take part again soon. */
static void test_leaves_that_share_a_proxy_take_part_again(void **state)
{
    run_trial(state, "mpca { }",
              CLUSTER "fault { at: 0.6 pause: 1 for: 0.7 } fault { at: 0.6 pause: 2 for: 0.7 } "
                      "fault { at: 0.6 pause: 3 for: 0.7 } fault { at: 0.75 pause: 4 for: 0.55 } "
                      "fault { at: 0.75 pause: 5 for: 0.55 } fault { at: 0.9 pause: 6 for: 0.4 }",
              2.4);
    for (uint32_t w = 1; w <= 6; w++) {
        size_t first = first_after(w, 1310 * MS); /* a tick may be over as the pause ends */
        assert_true(first < pace.ticks[w] && pace.tick[w][first] <= 2300 * MS);
    }
    expect_order();
}

/* The link clogs, or the worker stops, at any moment of a cycle. Others may have completed an
 * exchange that it contributed to and did not complete itself. */
static void test_a_step_counts_at_most_once(void **state)
{
    static const char *const faults[] = {"clog: 3 factor: 30", "pause: 3 for: 0.2"};
    for (int k = 0; k < 20; k += STRIDE) {
        char text[100];
        const char *strategy = strategies[k / 2 % 2];
        snprintf(text, sizeof text, "fault { at: %.3f %s }", 0.3 + 0.003 * (k / 2), faults[k % 2]);
        run_trial(state, strategy, text, 0.9);
        if (pace.excess > 0)
            fail_msg("%s %s: %g steps have counted twice", strategy, text, pace.excess);
        expect_weights(0);
    }
}

/* The other one's cycles need no network while it is alone, and are much shorter than the leaf's
 * round. */
static void test_a_leaf_that_is_alone_with_one_participant_takes_part_again(void **state)
{
    pace.workers = 2;
    run_trial(
        state, "mpca { coordination: symmetric }",
        "node { count: 2 } link { mbit: 5 latency_us: 50 } fault { at: 0.8 pause: 1 for: 0.3 }", 2);
    size_t first = first_after(1, 1150 * MS); /* a tick may be over as the pause ends */
    assert_true(first < pace.ticks[1] && pace.tick[1][first] <= 1900 * MS);
}

/* A leaf participates again, and before its lanes are in line the messages of the only other
 * participant, which has their results, begin to be late: that one becomes a leaf in each view.
 * After the time in which it may report, exchanges continue without it. */
static void test_a_late_member_with_the_newest_results_is_not_waited_for(void **state)
{
    for (int k = 0; k < 4; k++) {
        char text[256];
        pace.workers = 2;
        snprintf(text, sizeof text,
                 "node { count: 2 } link { mbit: 5 latency_us: 50 }"
                 "fault { at: 0.3 pause: 1 for: 0.3 }"
                 "fault { at: %.2f shuffle: 0 seconds: 0.3 for: 9 }",
                 0.66 + 0.06 * k);
        run_trial(state, "mpca { coordination: symmetric }", text, 2.4);
        if (pace.ticks[1] - first_after(1, 2050 * MS) < 2)
            fail_msg("%s: no exchange any more", text);
    }
}

/* The last participants die, and their leaf continues from the newest x̃* that it has received,
 * with its number. */
static void test_a_leaf_that_is_left_alone_continues_from_the_newest_model(void **state)
{
    pace.workers = 3;
    run_trial(
        state, "mpca { coordination: symmetric }",
        "node { count: 3 } link { mbit: 57 latency_us: 50 } fault { at: 0.4 clog: 1 factor: 10 }"
        "fault { at: 1.2 kill: 0 } fault { at: 1.2 kill: 2 }",
        1.7);
    assert_true(count_adoptions(1, 600 * MS, 1200 * MS) >= 3);
    for (uint32_t s = 0; s < pace.t.lanes; s++) {
        uint64_t before = 0, last = pace.t.step[1][pace.t.taken[1]].c[s];
        for (uint64_t k = 1; k <= pace.t.taken[1] && pace.t.step[1][k].t <= 1200 * MS; k++)
            before = pace.t.step[1][k].c[s];
        assert_true(last >= before + 10);
    }
    expect_order();
}

/* A leaf takes part again, and the only other participant dies while the leaf adopts its result.
 * The leaf continues with a whole result. */
static void test_a_former_leaf_continues_with_a_whole_result(void **state)
{
    enum { MOMENTS = 8 };
    static const char stops[] = "node { count: 2 } link { mbit: 5 latency_us: 50 } "
                                "fault { at: 0.8 pause: 1 for: 0.3 }";
    pace.workers = 2;
    run_trial(state, "mpca { coordination: symmetric }", stops, 2);
    int64_t from = pace.adopts_from, span = pace.adopts_to - from;
    assert_true(from > 0 && span > 10 * MS);
    for (int i = 1; i < MOMENTS; i += STRIDE) {
        char text[200];
        snprintf(text, sizeof text, "%s fault { at: %.6f kill: 0 }", stops,
                 (double)(from + i * span / MOMENTS) / 1e9);
        pace.workers = 2;
        run_trial(state, "mpca { coordination: symmetric }", text, 2);
        assert_int_equal(pace.lone, pace.t.lanes);
        assert_int_equal(pace.broken, 0);
    }
}

static int wide_setup(void **state)
{
    int rc = tiny_setup(state);
    tiny_write(*state, "wide.prototxt", net);
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_counts_at_most_once),
        cmocka_unit_test(test_a_leaf_that_is_alone_with_one_participant_takes_part_again),
        cmocka_unit_test(test_a_leaf_that_is_left_alone_continues_from_the_newest_model),
        cmocka_unit_test(test_a_former_leaf_continues_with_a_whole_result),
        cmocka_unit_test(test_a_clogged_link_holds_up_no_other),
        cmocka_unit_test(test_the_rest_of_training_counts),
        cmocka_unit_test(test_a_leaf_drops_a_contribution_that_is_not_finite),
        cmocka_unit_test(test_a_clogged_link_holds_up_no_other_with_long_steps),
        cmocka_unit_test(test_a_stopped_worker_holds_up_no_other),
        cmocka_unit_test(test_leaves_that_share_a_proxy_take_part_again),
        cmocka_unit_test(test_a_late_member_with_the_newest_results_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, wide_setup, tiny_teardown);
}
