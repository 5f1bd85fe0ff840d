/* `pace`: two workers, one number, three exchanges. Expected values are computed in Python, from
 * the rules as pace.c and pace_rules.h state them, without momentum, so that κ = 1 and
 * δ = max(0, 1 − P/3):
 *
 *     n  contributions (τ·p)   K  P  δ    γ    S  l  R         v         b
 *     1  3·2.6, 1·1.8          2  2  1/3  1/2  2  0  2.4       0.133333  2.533333
 *     2  4·3                   1  4  0    0    2  1  3         0.116667  3
 *     3  2·3.5, 2·2.716667     2  2  1/3  1/2  2  0  3.108333  0.113889  3.222222
 *
 * Worker 1 contributes 2.25 after exchange 1, too late for exchange 2; so its contribution to
 * exchange 3 is 2.25 + (3 − 2.533333). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "job/job.h"
#include "mpca_joint.h"
#include "strategy/pace_rules.h"
#include "strategy/phased.h"

#include <math.h>
#include <string.h>

enum { N = 64 };

static const double b[] = {2, 2.533333, 3, 3.222222};

static void expect_all(const struct vec *x, struct range r, double want)
{
    for (size_t i = r.from; i < r.from + r.len; i++)
        if (!(fabs((double)x->at[i] - want) <= 1e-6))
            fail_msg("%.9g, expected %.9g", (double)x->at[i], want);
}

static void test_the_average_and_its_direction(void **state)
{
    (void)state;
    static const struct {
        double sum, r, v;
        uint64_t tau;
        size_t contributors;
    } exchange[] = {{3 * 2.6 + 1.8, 2.4, 0.133333, 4, 2},
                    {12, 3, 0.116667, 4, 1},
                    {2 * 3.5 + 2 * 2.716667, 3.108333, 0.113889, 4, 2},
                    {0, 3.108333, 0.113889, 0, 0}};
    static const struct pace_settings set = {.momentum = 0, .gain = -1};
    struct arena arena;
    struct mpca_joint joint;
    struct pace_leap leap = {.trained = PACE_RAMP};
    struct vec x;
    float sum[N];
    arena_init(&arena);
    assert_int_equal(vec_init(&x, &arena, N), OK);
    vec_fill(&x, vec_all(&x), 2);
    assert_int_equal(joint_init(&joint, &x, &arena), OK);
    for (size_t n = 0; n < sizeof exchange / sizeof *exchange; n++) {
        for (size_t i = 0; i < N; i++)
            sum[i] = (float)exchange[n].sum;
        const struct pace_motion motion =
            pace_motion(&set, exchange[n].contributors, exchange[n].tau);
        const struct mpca_config config = pace_config(&motion, &leap);
        leap = pace_leap(&motion, &leap);
        mpca_prepare(&joint, &config, n, vec_all(&x), &(struct mpca_sum){sum, exchange[n].tau});
        joint_commit(&joint, vec_all(&x));
        expect_all(&joint.now.x, vec_all(&x), exchange[n].r);
        expect_all(&joint.now.v, vec_all(&x), exchange[n].v);
        expect_all(&joint.now.star, vec_all(&x), b[n < 3 ? n + 1 : 3]);
    }
    arena_release(&arena);
}

/* ---- worker 1: training and one of its lanes ---- */

struct scene {
    struct arena arena;
    struct world world;
    struct group group;
    Paceline__Job *job;
    struct vec s;
    struct learner learner;
    struct member m;
    struct phased_worker w;
    struct phased_lane *lane;
};

static void scene_open(struct scene *k)
{
    static const char text[] = "net { file: 'n' } train_data { idx { images: 'i' labels: 'l' } } "
                               "strategy { pace { shards: "
                               "3 } } solver { base_lr: 1 lr_policy: 'fixed' } batch: 1 workers: 2";
    struct err err = {0};
    *k = (struct scene){.world = {.self = 1}};
    struct phased_node *node = &k->w.node;
    k->group.world = node->world = &k->world;
    node->group = &k->group;
    k->w.m = &k->m;
    k->m.learner = &k->learner;
    arena_init(&k->arena);
    if (job_parse("t", text, strlen(text), &k->job, &err) != OK || job_finish(k->job, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(vec_init(&k->learner.x, &k->arena, N), OK);
    assert_int_equal(vec_init(&k->w.own, &k->arena, N), OK);
    vec_fill(&k->learner.x, vec_all(&k->learner.x), 2);
    assert_int_equal(phased_node_init(node, k->job, &k->learner.x, &k->s, 0, &k->arena), OK);
    k->lane = &node->lane[1];
}

static void scene_close(struct scene *k)
{
    phased_node_close(&k->w.node);
    job_free(k->job);
    arena_release(&k->arena);
}

static void set_model(struct scene *k, double x)
{
    vec_fill(&k->learner.x, k->lane->r, (float)x);
}

/* As phased_worker.c: add_contribution. */
static void add_contribution(struct scene *k)
{
    struct phased_lane *lane = k->lane;
    vec_export(&k->learner.x, lane->r, lane->slot.x.at);
    lane->slot.base = lane->c;
    lane->slot.counted = PHASED_NONE;
    pace_rule.give(&k->w, lane);
}

/* The lane has completed exchange n, with ten steps of two workers. */
static void complete_exchange(struct scene *k, uint64_t n, bool counted)
{
    struct vec *result = &k->lane->exchange.result[n & 1];
    struct exchange_meta *meta = &k->lane->exchange.meta[n & 1];
    vec_fill(result, vec_all(result), (float)b[n]);
    meta->weight = 10;
    members_add(&meta->contributors, 0);
    members_add(&meta->contributors, 1);
    k->lane->exchange.completed = n;
    if (counted)
        k->lane->slot.counted = n;
    phased_spare_held(k->lane);
}

/* As phased_worker.c: adopt_result. */
static void adopt_result(struct scene *k, uint64_t n)
{
    const struct vec *result = &k->lane->exchange.result[n & 1];
    pace_rule.adopt(&k->w, k->lane, n, result);
    k->lane->star = *result;
    k->lane->held = result->at;
    k->lane->c = n;
}

static void complete_and_adopt(struct scene *k, uint64_t n, bool counted)
{
    complete_exchange(k, n, counted);
    adopt_result(k, n);
}

/* Of the contribution as the lane sends it. */
static void expect_sent(struct scene *k, double want)
{
    assert_true(pace_rule.renew(k->lane));
    expect_all(&k->lane->slot.x, (struct range){0, k->lane->r.len}, want);
}

/* Until exchange 1 has been adopted: 1.8 is contributed, then come steps of 0.1. */
static void first_exchange(struct scene *k)
{
    set_model(k, 1.8);
    add_contribution(k);
    expect_sent(k, 1.8);
    set_model(k, 1.9);
    complete_and_adopt(k, 1, true);
    expect_all(&k->learner.x, k->lane->r, 2.633333);
    assert_false(k->lane->pending);
}

static void test_a_contribution_that_counts_is_replaced(void **state)
{
    (void)state;
    struct scene k;
    scene_open(&k);
    first_exchange(&k);
    expect_all(&k.learner.x, k.w.node.lane[0].r, 2); /* other shards stay */
    scene_close(&k);
}

/* With momentum 0.9 and P = 5, κ = 1/(1 + 3·0.59049) = 0.360819 for a contribution that counted;
 * a result that did not count one moves the model by all of b_2 − b_1. */
static void test_momentum_keeps_some_of_the_distance(void **state)
{
    (void)state;
    struct scene k;
    scene_open(&k);
    k.w.node.settings.pace.momentum = 0.9;
    set_model(&k, 1.8);
    add_contribution(&k);
    set_model(&k, 1.9);
    complete_and_adopt(&k, 1, true);
    expect_all(&k.learner.x, k.lane->r, 1.9 + 0.360819 * (2.533333 - 1.8));
    set_model(&k, 2.25);
    complete_and_adopt(&k, 2, false);
    expect_all(&k.learner.x, k.lane->r, 2.25 + (3 - 2.533333));
    scene_close(&k);
}

/* Both what is sent and what the worker remembers of it move. If only one did, or none, exchange 3
 * would move x by b_3 − 2.25. */
static void test_a_contribution_that_waits_moves_with_the_model(void **state)
{
    (void)state;
    struct scene k;
    scene_open(&k);
    first_exchange(&k);
    set_model(&k, 2.25);
    add_contribution(&k);
    set_model(&k, 2.5);
    complete_and_adopt(&k, 2, false);
    expect_all(&k.learner.x, k.lane->r, 2.966667);
    assert_true(k.lane->pending);
    expect_sent(&k, 2.716667);
    set_model(&k, 3.466667);
    complete_and_adopt(&k, 3, true);
    expect_all(&k.learner.x, k.lane->r, 3.972222);
    scene_close(&k);
}

/* Training was in a step while exchanges 2 and 3 were completed. */
static void test_a_result_may_be_passed_over(void **state)
{
    (void)state;
    struct scene k;
    scene_open(&k);
    first_exchange(&k);
    set_model(&k, 2.25);
    add_contribution(&k);
    complete_exchange(&k, 2, false);
    expect_sent(&k, 2.716667);
    set_model(&k, 3);
    complete_exchange(&k, 3, false);
    adopt_result(&k, 3);
    expect_all(&k.learner.x, k.lane->r, 3 + b[3] - b[1]);
    assert_true(k.lane->pending);
    scene_close(&k);

    scene_open(&k);
    first_exchange(&k);
    set_model(&k, 2.25);
    add_contribution(&k);
    set_model(&k, 3);
    complete_exchange(&k, 2, true);
    complete_and_adopt(&k, 3, false);
    expect_all(&k.learner.x, k.lane->r, 0.75 + b[3]);
    assert_false(k.lane->pending);
    scene_close(&k);
}

/* A dropped one may have counted, so its steps do not count again; one that is too old to be moved
 * is not sent. */
static void test_a_contribution_that_is_lost(void **state)
{
    (void)state;
    struct scene k;
    scene_open(&k);
    first_exchange(&k);
    set_model(&k, 2.25);
    add_contribution(&k);
    phased_settle(k.lane, 1, MAY_HAVE_COUNTED);
    set_model(&k, 3);
    pace_rule.drop(&k.w, k.lane);
    expect_all(&k.learner.x, k.lane->r, 0.75 + b[1]);
    assert_false(k.lane->pending);
    complete_and_adopt(&k, 2, false);
    expect_all(&k.learner.x, k.lane->r, 0.75 + b[2]);
    add_contribution(&k);
    k.lane->exchange.completed = 4;
    assert_false(pace_rule.renew(k.lane));
    scene_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_average_and_its_direction),
        cmocka_unit_test(test_a_contribution_that_counts_is_replaced),
        cmocka_unit_test(test_momentum_keeps_some_of_the_distance),
        cmocka_unit_test(test_a_contribution_that_waits_moves_with_the_model),
        cmocka_unit_test(test_a_result_may_be_passed_over),
        cmocka_unit_test(test_a_contribution_that_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
