/* Preparation of a shard, by node: whole on the driver, in parts that move among members; with the
 * state of layers behind it. Expected values are the paper's equations in double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "job/job.h"
#include "strategy/phased.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 64, STATE = 3, ALL = N + STATE };

struct scene {
    struct arena arena;
    struct world world;
    struct group group;
    Paceline__Job *job;
    struct vec x, s;
    struct phased_node node;
    struct phased_lane *lane;
};

static void scene_open(struct scene *k, const char *strategy, uint32_t self)
{
    struct err err = {0};
    char text[300];
    *k = (struct scene){.world = {.self = self}};
    k->group.world = k->node.world = &k->world;
    k->node.group = &k->group;
    snprintf(text, sizeof text,
             "net { file: 'n' } train_data { idx { images: 'i' labels: 'l' } } strategy { %s } "
             "solver { base_lr: 1 lr_policy: 'fixed' } batch: 1 workers: 3",
             strategy);
    arena_init(&k->arena);
    if (job_parse("t", text, strlen(text), &k->job, &err) != OK || job_finish(k->job, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(vec_init(&k->x, &k->arena, N), OK);
    assert_int_equal(vec_init(&k->s, &k->arena, STATE), OK);
    for (size_t i = 0; i < N; i++)
        k->x.at[i] = 1 + (float)i;
    for (size_t i = 0; i < STATE; i++)
        k->s.at[i] = 100 + (float)i;
    assert_int_equal(phased_node_init(&k->node, k->job, &k->x, &k->s, 0, &k->arena), OK);
    k->lane = &k->node.lane[0];
}

static void scene_close(struct scene *k)
{
    phased_node_close(&k->node);
    job_free(k->job);
    arena_release(&k->arena);
}

static void test_phased_node_takes_alpha_high_from_the_job(void **state)
{
    (void)state;
    struct scene k;
    scene_open(&k, "mpca { alpha_high: 0.25 alpha_hold: 1 }", 0);
    assert_true(mpca_alpha(&k.node.settings.config, 0) == 0);
    assert_true(mpca_alpha(&k.node.settings.config, 1) == 0.25f);
    scene_close(&k);
}

/* Σ τ·x with Στ = 4 and a mean of `mean` + the place. */
static void prepare_range(struct scene *k, struct range r, double mean, float *out)
{
    struct exchange_meta meta = {.weight = 4};
    for (size_t i = 0; i < r.len; i++)
        out[i] = 4 * ((float)mean + (float)(r.from + i));
    assert_int_equal(phased_lane_prepare(k->lane, r, out, &meta), OK);
}

/* The exchange is completed, and this is what all have. */
static void complete_exchange(struct scene *k, const float result[ALL])
{
    struct exchange *e = &k->lane->exchange;
    e->completed++;
    phased_part_commit(k->lane);
    memcpy(e->result[e->completed & 1].at, result, ALL * sizeof *result);
}

/* One element: x̃ and ṽ, and their values after cycle c with that mean. */
struct element {
    double x, v, star;
};

static struct element element_after(struct element e, uint64_t c, double mean)
{
    double beta = pow(0.9, (double)c / 20), gamma = 0.7 * (double)c / 20;
    double x = (1 - beta) * e.x + beta * mean;
    e.v = 0.8 * e.v + 0.2 * (x - e.x);
    e.x = x;
    e.star = x + gamma * e.v;
    return e;
}

static void expect_near(float have, double want)
{
    if (!(fabs((double)have - want) <= 1e-4))
        fail_msg("%g, expected %g", (double)have, want);
}

static void test_phased_part_driver_moves_on_commit(void **state)
{
    (void)state;
    struct scene k;
    float out[ALL];
    scene_open(&k, "mpca { phases: 1 }", WORLD_DRIVER);
    for (uint64_t c = 0; c < 3; c++) {
        float before = k.x.at[5];
        prepare_range(&k, (struct range){0, ALL}, 10.0 * (double)c, out);
        assert_true(k.x.at[5] == before); /* nothing has happened yet */
        complete_exchange(&k, out);
    }
    struct element five = {.x = 6};
    for (uint64_t c = 0; c < 3; c++)
        five = element_after(five, c, 10.0 * (double)c + 5);
    expect_near(k.x.at[5], five.x);
    expect_near(out[5], five.star);
    expect_near(k.s.at[1], 20 + N + 1); /* a mean, and nothing else */
    expect_near(out[N + 1], 20 + N + 1);
    scene_close(&k);
}

/* Another attempt, with other sums and another range, replaces the previous one. */
static void test_phased_part_redone_exchange_counts_once(void **state)
{
    (void)state;
    struct scene k;
    float out[ALL];
    scene_open(&k, "mpca { phases: 1 }", WORLD_DRIVER);
    prepare_range(&k, (struct range){0, ALL}, 50, out);
    prepare_range(&k, (struct range){0, ALL}, 7, out);
    complete_exchange(&k, out);
    expect_near(k.x.at[5], 12);
    expect_near(k.s.at[0], 7 + N);
    scene_close(&k);
}

static void test_without_weight_nothing_changes_and_the_broadcast_repeats(void **state)
{
    (void)state;
    struct scene k;
    float first[ALL], again[ALL] = {0};
    scene_open(&k, "mpca { phases: 1 }", WORLD_DRIVER);
    for (int i = 0; i < 3; i++) {
        prepare_range(&k, (struct range){0, ALL}, 5.0 * i, first);
        complete_exchange(&k, first);
    }
    float x = k.x.at[5];
    const struct exchange_meta nothing = {.weight = 0};
    assert_int_equal(phased_lane_prepare(k.lane, (struct range){0, ALL}, again, &nothing), OK);
    complete_exchange(&k, again);
    assert_memory_equal(again, first, sizeof first);
    assert_true(k.x.at[5] == x);
    scene_close(&k);
}

/* Elements 0 to 29 stay with their owner; it receives 30 to 39, which resume from the last x̃*, as
 * nothing has moved there, so that ṽ = 0; then all of it, when it is alone; then none. */
static void test_parts_move(void **state)
{
    (void)state;
    struct scene k;
    float out[ALL], all[ALL];
    struct element kept = {.x = 6}, got = {.x = 500};
    scene_open(&k, "mpca { phases: 1 coordination: symmetric }", 0);
    for (size_t i = 0; i < ALL; i++)
        all[i] = 500; /* what others make of their parts */
    for (uint64_t c = 0; c < 3; c++) {
        prepare_range(&k, (struct range){0, 30}, 10.0 * (double)c, out);
        kept = element_after(kept, c, 10.0 * (double)c + 5);
        expect_near(out[5], kept.star);
        memcpy(all, out, 30 * sizeof *out);
        complete_exchange(&k, all);
    }
    prepare_range(&k, (struct range){0, 40}, 80, out);
    expect_near(out[5], element_after(kept, 3, 85).star);
    expect_near(out[35], element_after(got, 3, 115).star);
    prepare_range(&k, (struct range){20, 20}, 80, out); /* once more, with other parts */
    expect_near(out[15], element_after(got, 3, 115).star);
    prepare_range(&k, (struct range){0, 40}, 60, out);
    kept = element_after(kept, 3, 65), got = element_after(got, 3, 95);
    expect_near(out[5], kept.star);
    expect_near(out[35], got.star);
    memcpy(all, out, 40 * sizeof *out);
    complete_exchange(&k, all);
    prepare_range(&k, (struct range){0, ALL}, 20, out);
    expect_near(out[5], element_after(kept, 4, 25).star);
    expect_near(out[35], element_after(got, 4, 55).star);
    expect_near(out[60], element_after((struct element){.x = 500}, 4, 80).star);
    expect_near(out[N + 2], 20 + N + 2);
    memcpy(all, out, sizeof all);
    complete_exchange(&k, all);
    prepare_range(&k, (struct range){ALL, 0}, 0, out);
    complete_exchange(&k, all);
    vec_fill(phased_heading(k.lane), vec_all(phased_heading(k.lane)), 0);
    prepare_range(&k, (struct range){0, 10}, 20, out); /* its own x̃ of before is out of date */
    expect_near(out[5], element_after((struct element){.x = (double)all[5]}, 6, 25).star);
    scene_close(&k);
}

/* Parts move twice in the middle of a run. Each new owner prepares its part as the former one would
 * have, from x̃ and ṽ: no element differs from the equations in one sequence. */
static void test_phased_part_new_owner_has_model_and_direction(void **state)
{
    (void)state;
    static const struct range part[] = {{0, 30}, {20, ALL - 20}, {0, 30}};
    struct scene k;
    struct element e[N];
    float out[ALL], all[ALL] = {0};
    scene_open(&k, "mpca { phases: 1 coordination: symmetric }", 0);
    for (size_t i = 0; i < N; i++)
        e[i] = (struct element){.x = 1 + (double)i};
    for (uint64_t c = 0; c < 15; c++) {
        struct range r = part[c / 5];
        prepare_range(&k, r, 10.0 * (double)c, out);
        for (size_t i = 0; i < N; i++) {
            e[i] = element_after(e[i], c, 10.0 * (double)c + (double)i);
            all[i] = (float)e[i].star;
        }
        for (size_t i = r.from; i < r.from + r.len && i < N; i++)
            expect_near(out[i - r.from], e[i].star);
        complete_exchange(&k, all);
        k.lane->exchange.meta[k.lane->exchange.completed & 1].weight = 4;
        assert_int_equal(phased_part_follow(k.lane), OK);
    }
    assert_true(fabs(e[5].v) > 1); /* so that ṽ = 0 would show */
    scene_close(&k);
}

/* An exchange with Στ = `tau` of three workers is completed. */
static void follow_exchange(struct scene *k, double tau)
{
    struct exchange *e = &k->lane->exchange;
    struct exchange_meta *meta = &e->meta[++e->completed & 1];
    *meta = (struct exchange_meta){.weight = tau};
    for (uint32_t i = 0; i < 3; i++)
        members_add(&meta->contributors, i);
    assert_int_equal(phased_part_follow(k->lane), OK);
}

/* κγ = 2/3, for periods of 4 and 2 steps: the driver knows l and P by itself, a new owner and a
 * recovered driver by the heading. An exchange without a contribution changes neither. */
static void test_the_leap_travels_with_the_heading(void **state)
{
    (void)state;
    struct scene k[3];
    scene_open(&k[0], "pace { shards: 3 }", WORLD_DRIVER);
    scene_open(&k[1], "pace { shards: 3 coordination: symmetric }", 0);
    scene_open(&k[2], "pace { shards: 3 coordination: symmetric }", 1);
    for (int i = 0; i < 2; i++) {
        k[i].lane->leap.trained = PACE_RAMP;
        follow_exchange(&k[i], 12);
        expect_near(k[i].lane->leap.steps, 8 / 3.0);
        follow_exchange(&k[i], 6);
        follow_exchange(&k[i], 0);
    }
    k[2].lane->exchange.completed = 3;
    vec_copy(phased_heading(k[2].lane), phased_heading(k[1].lane),
             vec_all(phased_heading(k[1].lane)));
    phased_part_take_leap(k[2].lane);
    for (int i = 0; i < 3; i++) {
        expect_near(k[i].lane->leap.steps, 4 / 3.0);
        expect_near(k[i].lane->leap.period, 2);
        expect_near(k[i].lane->leap.trained, PACE_RAMP + 6);
        scene_close(&k[i]);
    }
}

/* When a member's training has ended, a result is x̃ itself, also if nobody contributed. */
static void test_the_last_results_are_not_extrapolated(void **state)
{
    (void)state;
    struct scene k;
    float out[ALL];
    scene_open(&k, "mpca { phases: 1 }", WORLD_DRIVER);
    for (uint64_t c = 0; c < 3; c++) {
        prepare_range(&k, (struct range){0, ALL}, 10.0 * (double)c, out);
        complete_exchange(&k, out);
    }
    assert_true(fabs((double)(out[5] - k.x.at[5])) > 0.1);
    for (int weight = 0; weight <= 4; weight += 4) {
        struct exchange_meta meta = {.weight = weight, .stop_votes = 1};
        for (size_t i = 0; i < ALL; i++)
            out[i] = 4 * (50 + (float)i);
        assert_int_equal(phased_lane_prepare(k.lane, (struct range){0, ALL}, out, &meta), OK);
        float before = k.x.at[5];
        complete_exchange(&k, out);
        expect_near(out[5], (double)k.x.at[5]);
        assert_true((k.x.at[5] != before) == (weight > 0));
    }
    scene_close(&k);
}

/* Shards follow each other; the state of layers is in the last alone. */
static void test_state_travels_with_the_last_shard(void **state)
{
    (void)state;
    struct scene k;
    scene_open(&k, "mpca { }", WORLD_DRIVER);
    size_t next = 0;
    for (uint32_t i = 0; i < 3; i++) {
        const struct phased_lane *lane = &k.node.lane[i];
        assert_int_equal(lane->r.from, next);
        assert_int_equal(lane->n_s, i == 2 ? STATE : 0);
        assert_int_equal(lane->exchange.n_floats, lane->r.len + lane->n_s);
        next += lane->r.len;
    }
    assert_int_equal(next, N);
    scene_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_phased_node_takes_alpha_high_from_the_job),
        cmocka_unit_test(test_phased_part_driver_moves_on_commit),
        cmocka_unit_test(test_phased_part_redone_exchange_counts_once),
        cmocka_unit_test(test_without_weight_nothing_changes_and_the_broadcast_repeats),
        cmocka_unit_test(test_parts_move),
        cmocka_unit_test(test_phased_part_new_owner_has_model_and_direction),
        cmocka_unit_test(test_the_leap_travels_with_the_heading),
        cmocka_unit_test(test_the_last_results_are_not_extrapolated),
        cmocka_unit_test(test_state_travels_with_the_last_shard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
