/* A plan that serves many times, and many collectives at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coll_call.h"

enum { PIECE = 5, LONG = 25 * PIECE + 3 };

static void expect_played(const struct scene *scene)
{
    for (uint32_t r = 0; r < scene->ranks; r++)
        assert_int_equal(scene->rc[r], OK);
}

/* ---- a plan, again and again ---- */

enum { TIMES = 50 };

struct reuse {
    enum coll_algorithm algorithm;
    float x[RANKS_MAX][TIMES][97];
};

static int play_twice(struct scene *scene, struct group *group, const struct ranks *ranks)
{
    struct reuse *second = scene->arg;
    struct coll c = {.group = group, .view = group_view(group), .ranks = ranks};
    const struct call call = {ALL_REDUCE, second->algorithm, 97, 0, NULL};
    const struct coll_config config = {.chunk = PIECE};
    struct coll_plan plan;
    int rc = call_plan(&plan, &call, &config, ranks->count, ranks->me);
    if (rc != OK)
        return rc;
    for (size_t k = 0; rc == OK && k < TIMES; k++) {
        float *x = second->x[ranks->me][k];
        for (size_t i = 0; i < call.n; i++)
            x[i] = call_value(ranks->me, k, i);
        c.n = k + 1;
        rc = coll_run(&c, &plan, x, (struct coll_owed){0});
    }
    coll_plan_release(&plan);
    return rc;
}

static void test_run_plan_is_reused(void **state)
{
    (void)state;
    struct reuse *second = calloc(1, sizeof *second);
    assert_non_null(second);
    for (int a = COLL_TREE; a < COLL_ALGORITHMS; a++) {
        const struct coll_config config = {.chunk = PIECE};
        struct scene scene = {.ranks = 6, .play = play_twice, .arg = second};
        second->algorithm = (enum coll_algorithm)a;
        const struct call call = {ALL_REDUCE, second->algorithm, 97, 0, NULL};
        run_scene(&scene);
        expect_played(&scene);
        for (size_t k = 0; k < TIMES; k++) {
            struct cluster c;
            call_in_memory(&c, &call, &config, 6, NULL, k);
            for (size_t r = 0; r < 6; r++)
                assert_memory_equal(second->x[r][k], c.x[r], sizeof second->x[r][k]);
            cluster_tear_down(&c);
        }
    }
    free(second);
}

/* ---- several at once ---- */

enum { LANES = 4, LATE = 2 };

struct lane_call {
    struct group *group;
    const struct ranks *ranks;
    uint32_t lane;
    float x[LONG];
    int64_t ended;
};

struct lanes {
    struct lane_call by[RANKS_MAX][LANES];
};

static const struct call lane_calls[LANES] = {
    {ALL_REDUCE, COLL_CHUNKED_RING, LONG, 0, NULL},
    {ALL_REDUCE, COLL_TREE, LONG, 0, NULL},
    {BROADCAST, COLL_AUTO, LONG, 3, NULL},
    {ALL_REDUCE, COLL_HALVING_DOUBLING, LONG, 0, NULL},
};

/* Rank 2 is a second late for lane 0. */
static int lane_task(void *arg)
{
    struct lane_call *l = arg;
    struct world *w = l->group->world;
    struct coll c = {.group = l->group,
                     .view = group_view(l->group),
                     .ranks = l->ranks,
                     .lane = l->lane,
                     .n = 1};
    const struct coll_config config = {.chunk = PIECE};
    for (size_t i = 0; i < LONG; i++)
        l->x[i] = call_value(l->ranks->me, l->lane, i);
    int rc =
        l->ranks->me == LATE && l->lane == 0 ? world_sleep(w, world_now(w) + WORLD_SECOND) : OK;
    if (rc == OK)
        rc = call_run(&c, &lane_calls[l->lane], &config, l->x, NULL);
    l->ended = world_now(w);
    return rc;
}

static int play_lanes(struct scene *scene, struct group *group, const struct ranks *ranks)
{
    struct lanes *lanes = scene->arg;
    struct task *task[LANES];
    int rc = OK;
    for (uint32_t k = 0; k < LANES; k++) { /* each rank begins with another one */
        uint32_t lane = (k + (uint32_t)ranks->me) % LANES;
        struct lane_call *l = &lanes->by[ranks->me][lane];
        *l = (struct lane_call){.group = group, .ranks = ranks, .lane = lane};
        rc = rc == OK ? world_spawn(group->world, "lane", lane_task, l, &task[k]) : rc;
    }
    for (uint32_t k = 0; rc == OK && k < LANES; k++) {
        int result;
        rc = world_join(group->world, task[k], WORLD_FOREVER, &result);
        rc = rc == OK ? result : rc;
    }
    return rc;
}

static void test_run_lanes_are_independent(void **state)
{
    (void)state;
    struct lanes *lanes = calloc(1, sizeof *lanes);
    assert_non_null(lanes);
    struct scene scene = {.ranks = 6, .play = play_lanes, .arg = lanes};
    run_scene(&scene);
    expect_played(&scene);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        const struct coll_config config = {.chunk = PIECE};
        struct cluster c;
        call_in_memory(&c, &lane_calls[lane], &config, scene.ranks, NULL, lane);
        for (uint32_t r = 0; r < scene.ranks; r++) {
            const struct lane_call *l = &lanes->by[r][lane];
            assert_memory_equal(l->x, c.x[r], sizeof l->x);
            assert_int_equal(l->ended > WORLD_SECOND, lane == 0);
        }
        cluster_tear_down(&c);
    }
    free(lanes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_plan_is_reused),
        cmocka_unit_test(test_run_lanes_are_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
