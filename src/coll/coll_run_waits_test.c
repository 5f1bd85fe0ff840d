/* A rank's own account of its waiting: never longer than the collective took, and with the right
 * peer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coll/coll_run.h"
#include "rank_scene.h"

enum { FLOATS = 200000, PIECE = 4096, LATE_RANK = 2 };

#define LATE (WORLD_SECOND / 2)

struct waited {
    enum coll_algorithm algorithm;
    enum codec codec;
    struct coll_waits by[RANKS_MAX];
    int64_t took[RANKS_MAX];
};

static int play_waits(struct scene *scene, struct group *group, const struct ranks *ranks)
{
    struct waited *w = scene->arg;
    const struct coll_config config = {.chunk = PIECE, .codec = w->codec};
    struct schedule schedule;
    struct coll_plan plan = {0};
    float *x = calloc(FLOATS, sizeof *x);
    int rc = x ? schedule_allreduce(&schedule, w->algorithm, ranks->count, ranks->me, FLOATS, NULL)
               : ERR_NOMEM;
    if (rc == OK)
        rc = coll_plan_make(&plan, &schedule, &config);
    if (rc == OK && ranks->me == LATE_RANK)
        rc = world_sleep(group->world, world_now(group->world) + LATE);
    struct coll c = {.group = group,
                     .view = group_view(group),
                     .ranks = ranks,
                     .lane = 1,
                     .n = 1,
                     .waits = &w->by[ranks->me],
                     .patient = true};
    int64_t start = world_now(group->world);
    if (rc == OK)
        rc = coll_run(&c, &plan, x, (struct coll_owed){0});
    w->took[ranks->me] = world_now(group->world) - start;
    coll_plan_release(&plan);
    free(x);
    return rc;
}

static void test_run_waits_are_bounded(void **state)
{
    (void)state;
    for (int a = COLL_TREE; a < COLL_ALGORITHMS; a++)
        for (enum codec codec = CODEC_F32; codec <= CODEC_INT8; codec++) {
            if (codec != CODEC_F32 && (a == COLL_BUTTERFLY || a == COLL_RING))
                continue;
            static struct waited w;
            w = (struct waited){.algorithm = (enum coll_algorithm)a, .codec = codec};
            struct scene scene = {.ranks = 5, .play = play_waits, .arg = &w};
            run_scene(&scene);
            for (size_t r = 0; r < 5; r++) {
                assert_int_equal(scene.rc[r], OK);
                assert_true(w.by[r].total <= w.took[r]);
                assert_true(w.by[r].longest <= w.by[r].total);
            }
            /* A rank waited for the late one for nearly all of its delay. */
            bool found = false;
            for (size_t r = 0; r < 5; r++)
                found =
                    found || (w.by[r].longest_for == LATE_RANK && w.by[r].total > LATE * 9 / 10);
            assert_true(found);
        }
}

/* Whole vectors round a large ring: more pieces than a tag can number, which is an error. */
static void test_run_refuses_too_long_for_a_ring(void **state)
{
    (void)state;
    struct schedule schedule;
    struct coll_plan plan;
    const struct coll_config config = {.chunk = PIECE, .phantom = true};
    assert_int_equal(schedule_allreduce(&schedule, COLL_RING, 70, 3, 1000000000, NULL), OK);
    assert_int_equal(coll_plan_make(&plan, &schedule, &config), ERR_UNSUPPORTED);
    assert_int_equal(schedule_allreduce(&schedule, COLL_CHUNKED_RING, 70, 3, 1000000000, NULL), OK);
    assert_int_equal(coll_plan_make(&plan, &schedule, &config), OK);
    coll_plan_release(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_waits_are_bounded),
        cmocka_unit_test(test_run_refuses_too_long_for_a_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
