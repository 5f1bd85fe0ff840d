/* The time of collectives on known links, in virtual time, against arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coll_call.h"

#define RATE    125e6 /* bytes/s of a link, each way */
#define LATENCY 1e-4
#define LINKS   "node { count: 17 } link { mbit: 1000 latency_us: 100 } "
#define START   (WORLD_SECOND / 100) /* all have met by then */

enum { PIECE = 16 * 1024, MANY = 8 * 1024 * 1024, HEADER = 40, AT_ONCE_MAX = 2 };

/* Calls at the same time, each on a lane of its own. */
struct timed {
    struct call call[AT_ONCE_MAX];
    size_t calls;
    struct coll_config config;
};

struct lane_call {
    const struct timed *timed;
    struct group *group;
    const struct ranks *ranks;
    uint32_t lane;
};

static int lane_task(void *arg)
{
    const struct lane_call *l = arg;
    const struct call *call = &l->timed->call[l->lane];
    struct coll c = {.group = l->group,
                     .view = group_view(l->group),
                     .ranks = l->ranks,
                     .lane = l->lane,
                     .n = 1};
    float *x = l->timed->config.phantom ? NULL : calloc(call->n, sizeof *x);
    int rc = call_run(&c, call, &l->timed->config, x, NULL);
    free(x);
    return rc;
}

static int play_timed(struct scene *scene, struct group *group, const struct ranks *ranks)
{
    const struct timed *timed = scene->arg;
    struct lane_call lane[AT_ONCE_MAX];
    struct task *task[AT_ONCE_MAX];
    int rc = world_sleep(group->world, START);
    for (uint32_t i = 0; rc == OK && i < timed->calls; i++) {
        lane[i] = (struct lane_call){timed, group, ranks, i};
        rc = world_spawn(group->world, "lane", lane_task, &lane[i], &task[i]);
    }
    for (uint32_t i = 0; rc == OK && i < timed->calls; i++) {
        int result;
        rc = world_join(group->world, task[i], WORLD_FOREVER, &result);
        rc = rc == OK ? result : rc;
    }
    return rc;
}

static struct scene run_timed(struct timed *timed, uint32_t ranks)
{
    struct scene scene = {.ranks = ranks, .play = play_timed, .arg = timed, .cluster = LINKS};
    run_scene(&scene);
    for (uint32_t r = 0; r < ranks; r++)
        assert_int_equal(scene.rc[r], OK);
    return scene;
}

static double seconds_of(const struct scene *scene)
{
    int64_t last = 0;
    for (uint32_t r = 0; r < scene->ranks; r++)
        last = scene->ended[r] > last ? scene->ended[r] : last;
    return world_seconds(last - START);
}

/* A phantom vector of MANY floats, and the time until all have finished. */
static double time_of(struct call call, uint32_t ranks)
{
    struct timed timed = {{call}, 1, {.chunk = PIECE, .phantom = true}};
    struct scene scene = run_timed(&timed, ranks);
    return seconds_of(&scene);
}

static void assert_about(double seconds, double expected, double within)
{
    if (seconds < expected || seconds > expected * (1 + within))
        fail_msg("it takes %.6f s, not %.6f s", seconds, expected);
}

static const double vector_s = MANY * sizeof(float) / RATE;

static void test_run_time_is_the_links(void **state)
{
    (void)state;
    static const enum coll_algorithm lean[] = {COLL_CHUNKED_RING, COLL_HALVING_DOUBLING,
                                               COLL_SCATTER_GATHER};
    for (size_t i = 0; i < 3; i++)
        assert_about(time_of((struct call){ALL_REDUCE, lean[i], MANY, 0, NULL}, 4),
                     2 * 3 / 4.0 * vector_s, 0.03);
    assert_about(time_of((struct call){ALL_REDUCE, COLL_HALVING_DOUBLING, MANY, 0, NULL}, 8),
                 2 * 7 / 8.0 * vector_s, 0.03);
    assert_about(time_of((struct call){ALL_REDUCE, COLL_CHUNKED_RING, MANY, 0, NULL}, 7),
                 2 * 6 / 7.0 * vector_s, 0.03);
    assert_about(time_of((struct call){ALL_REDUCE, COLL_RING, MANY, 0, NULL}, 4), 3 * vector_s,
                 0.03);
}

static void test_run_time_of_a_chain(void **state)
{
    (void)state;
    for (uint32_t ranks = 2; ranks <= 8; ranks += 2) {
        assert_about(time_of((struct call){BROADCAST, COLL_AUTO, MANY, 1, NULL}, ranks), vector_s,
                     0.03);
        assert_about(time_of((struct call){REDUCE, COLL_AUTO, MANY, 1, NULL}, ranks), vector_s,
                     0.03);
    }
    assert_about(time_of((struct call){ALL_GATHER, COLL_AUTO, MANY, 0, NULL}, 4),
                 3 / 4.0 * vector_s, 0.03);
    assert_about(time_of((struct call){REDUCE_SCATTER, COLL_AUTO, MANY, 0, NULL}, 4),
                 3 / 4.0 * vector_s, 0.03);
}

/* The ranks in the middle of the chain have all of it on top of their part of the other. */
static void test_run_time_of_two_at_once(void **state)
{
    (void)state;
    struct timed timed = {
        {{ALL_REDUCE, COLL_CHUNKED_RING, MANY, 0, NULL}, {BROADCAST, COLL_AUTO, MANY / 2, 0, NULL}},
        2,
        {.chunk = PIECE, .phantom = true}};
    struct scene scene = run_timed(&timed, 4);
    assert_about(seconds_of(&scene), 2 * 3 / 4.0 * vector_s + vector_s / 2, 0.05);
}

/* Bytes and the work on them take time; their contents do not matter. */
static void test_run_time_of_phantoms(void **state)
{
    (void)state;
    static const enum call_kind kinds[] = {BROADCAST, REDUCE, GATHER, ALL_GATHER, REDUCE_SCATTER};
    for (int i = COLL_TREE; i < COLL_ALGORITHMS + 5; i++)
        for (int codec = CODEC_F32; codec <= CODEC_INT8; codec++) {
            struct call call = {ALL_REDUCE, (enum coll_algorithm)i, 20011, 0, NULL};
            if (i >= COLL_ALGORITHMS)
                call = (struct call){kinds[i - COLL_ALGORITHMS], COLL_AUTO, 20011, 2, NULL};
            if (codec != CODEC_F32 && (i == COLL_BUTTERFLY || i == COLL_RING))
                continue;
            struct timed floats = {
                {call},
                1,
                {.chunk = 256, .codec = (enum codec)codec, .serialise = 3e-9, .reduce = 1e-9}};
            struct timed phantom = floats;
            phantom.config.phantom = true;
            struct scene a = run_timed(&floats, 5), b = run_timed(&phantom, 5);
            assert_memory_equal(a.ended, b.ended, sizeof a.ended);
        }
}

static void assert_ns(int64_t ended, double seconds)
{
    double off = world_seconds(ended - START) - seconds;
    if (off < -1e-8 || off > 1e-8)
        fail_msg("it ends %.9f s from %.9f s", off, seconds);
}

/* One piece from one to the other: serialised, sent, serialised, and where that is so reduced. */
static void test_run_time_of_work(void **state)
{
    (void)state;
    const double b = 1000 * sizeof(float), z = 5e-8, g = 7e-8, wire = (b + HEADER) / RATE;
    struct timed timed = {
        {{BROADCAST, COLL_AUTO, 1000, 0, NULL}}, 1, {.chunk = 1000, .serialise = z, .reduce = g}};
    struct scene scene = run_timed(&timed, 2);
    assert_ns(scene.ended[0], z * b + wire);
    assert_ns(scene.ended[1], z * b + wire + LATENCY + z * b);
    timed.call[0].kind = REDUCE;
    scene = run_timed(&timed, 2);
    assert_ns(scene.ended[1], z * b + wire);
    assert_ns(scene.ended[0], z * b + wire + LATENCY + z * b + g * b);
}

/* A butterfly's partners each fold what the other sent. */
static void test_run_time_of_folding(void **state)
{
    (void)state;
    const double b = 1000 * sizeof(float), g = 7e-8, wire = (b + HEADER) / RATE;
    struct timed timed = {
        {{ALL_REDUCE, COLL_BUTTERFLY, 1000, 0, NULL}}, 1, {.chunk = 1000, .reduce = g}};
    struct scene scene = run_timed(&timed, 2);
    for (size_t r = 0; r < 2; r++)
        assert_ns(scene.ended[r], wire + LATENCY + g * b);
}

/* A peer gives credit for two of the largest pieces: no rank waits for ever. */
static void test_run_largest_pieces(void **state)
{
    (void)state;
    for (int a = COLL_TREE; a < COLL_ALGORITHMS; a++)
        for (uint32_t ranks = 2; ranks <= 9; ranks++) {
            struct timed timed = {
                {{ALL_REDUCE, (enum coll_algorithm)a, 30 * WORLD_MESSAGE_MAX / 4 + 5, 0, NULL},
                 {BROADCAST, COLL_AUTO, 9 * WORLD_MESSAGE_MAX / 4 + 5, 1, NULL}},
                2,
                {.chunk = WORLD_MESSAGE_MAX / sizeof(float), .phantom = true}};
            (void)run_timed(&timed, ranks);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_time_is_the_links),   cmocka_unit_test(test_run_time_of_a_chain),
        cmocka_unit_test(test_run_time_of_two_at_once), cmocka_unit_test(test_run_time_of_phantoms),
        cmocka_unit_test(test_run_time_of_work),        cmocka_unit_test(test_run_time_of_folding),
        cmocka_unit_test(test_run_largest_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
