/* Death in the middle of a collective, for every algorithm: survivors get an error, their memory is
 * not touched afterwards, and the next view completes the collective; with exchanges the commit
 * rule holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coll_call.h"
#include "exchange_sweep.h"
#include "sweep_stride.h"

enum { STRIDE = SWEEP_STRIDE(31, 31), FEWEST = STRIDE > 1 ? 7 : 2 };

enum { MOST = 8, PIECE = 4, FLOATS = 21 };

/* Odd, so that ranks and workers take turns. */
static size_t choose_stride(void)
{
    return sweep_share(STRIDE, 3);
}

/* ---- collectives by themselves ---- */

/* A collective in which one rank dies, and the same again among the remaining ones. */
struct fall {
    struct call call;
    struct coll_config config;
    uint32_t dies;    /* WORLD_ANY: none */
    int first[MOST];  /* the status of coll_run in view 1 */
    int second[MOST]; /* in view 2 */
    float x[MOST][FLOATS];
};

struct watch {
    struct scene *scene;
    struct group *group;
    uint32_t dies;
};

/* All see the death and move on to view 2, one after another. */
static int watch_peers(void *arg)
{
    const struct watch *watch = arg;
    struct world *w = watch->group->world;
    const struct wait_for change = {.kind = WAIT_PEER};
    struct wake wake = {.up = true};
    while (wake.up || wake.peer != watch->dies) {
        int rc = world_wait(w, &change, 1, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
    }
    int rc = world_sleep(w, world_now(w) + (w->self * 5 % 7) * (WORLD_SECOND / 2000));
    return rc == OK ? scene_view(watch->scene, watch->group, 2, watch->dies) : rc;
}

static int fall_once(struct fall *fall, struct group *group, size_t round)
{
    struct ranks ranks;
    const struct view *view = group_view(group);
    uint32_t self = group->world->self;
    struct coll c = {.group = group, .view = view, .ranks = &ranks, .lane = 5, .n = 1};
    float residual[FLOATS] = {0};
    scene_rank(view, self, &ranks);
    for (size_t i = 0; i < FLOATS; i++)
        fall->x[self][i] = call_value(self, round, i);
    return call_run(&c, &fall->call, &fall->config, fall->x[self], residual);
}

static int fall_and_rise(struct fall *fall, struct group *group)
{
    struct world *w = group->world;
    int rc = fall->first[w->self] = fall_once(fall, group, 0);
    if (rc == ERR_CANCELLED || fall->dies == WORLD_ANY)
        return rc;
    rc = group_wait_view(group, 1, WORLD_FOREVER); /* a rank with the result waits here */
    if (rc == OK)
        rc = fall->second[w->self] = fall_once(fall, group, 1);
    /* A message that is still under way now would arrive too late to be ours. */
    return rc == OK ? world_sleep(w, world_now(w) + WORLD_SECOND / 10) : rc;
}

static int play_fall(struct scene *scene, struct group *group, const struct ranks *ranks)
{
    struct fall *fall = scene->arg;
    struct watch watch = {scene, group, fall->dies};
    struct task *task;
    (void)ranks;
    int rc = world_spawn(group->world, "watch", watch_peers, &watch, &task);
    if (rc != OK)
        return rc;
    rc = world_sleep(group->world, WORLD_SECOND / 100); /* until all have met */
    if (rc == OK)
        rc = fall_and_rise(fall, group);
    world_end_task(group->world, &task);
    return rc;
}

struct fallen {
    size_t runs, ended, complete; /* survivors' first calls that ended with ERR_VIEW, with OK */
};

static void judge_fall(const struct fall *fall, const struct scene *scene, struct fallen *sum)
{
    struct cluster c;
    uint32_t node[MOST];
    size_t left = 0;
    for (uint32_t i = 0; i < scene->ranks; i++) {
        if (i == fall->dies)
            continue;
        node[left++] = i;
        bool ended = fall->first[i] == ERR_VIEW, complete = fall->first[i] == OK;
        if (!(ended || complete) || fall->second[i] != OK || scene->ended[i] > WORLD_SECOND)
            fail_msg("%d %s: %u of %u dies at message %u: rank %u ends with %d, then %d, at %.3f s",
                     (int)fall->call.kind, coll_algorithm_name(fall->call.algorithm), fall->dies,
                     scene->ranks, (unsigned)scene->kill_send, i, fall->first[i], fall->second[i],
                     world_seconds(scene->ended[i]));
        sum->ended += ended;
        sum->complete += complete;
    }
    sum->runs++;
    call_in_memory(&c, &fall->call, &fall->config, left, node, 1);
    for (size_t r = 0; r < left; r++) { /* lossy formats: equal to another rank's */
        const float *want = fall->config.codec == CODEC_F32 ? c.x[r] : fall->x[node[0]];
        if (memcmp(fall->x[node[r]], want, sizeof fall->x[0]) != 0)
            fail_msg("%d %s: %u of %u died at message %u: rank %u has other bits",
                     (int)fall->call.kind, coll_algorithm_name(fall->call.algorithm), fall->dies,
                     scene->ranks, (unsigned)scene->kill_send, node[r]);
    }
    cluster_tear_down(&c);
}

static struct scene scene_of(struct fall *fall, uint32_t ranks)
{
    return (struct scene){.ranks = ranks, .play = play_fall, .arg = fall, .cluster = SLOW_LINKS};
}

/* Each rank dies at each message that it sends. */
static void sweep_falls(const struct call *call, enum codec codec, uint32_t ranks, uint64_t stride,
                        struct fallen *sum)
{
    const struct fall fresh = {
        .call = *call, .config = {.chunk = PIECE, .codec = codec}, .dies = WORLD_ANY};
    struct fall fall = fresh;
    struct scene whole = scene_of(&fall, ranks);
    run_scene(&whole);
    for (uint32_t dies = 0; dies < ranks; dies++)
        for (uint64_t k = 1 + dies % stride; k < whole.sent[dies]; k += stride) {
            fall = fresh;
            fall.dies = dies;
            struct scene scene = scene_of(&fall, ranks);
            scene.kill_node = dies;
            scene.kill_send = k;
            run_scene(&scene);
            assert_int_equal(scene.rc[dies], ERR_CANCELLED);
            judge_fall(&fall, &scene, sum);
        }
}

static void print_fallen(const char *what, const struct fallen *sum)
{
    print_message("%s: %zu runs; the view ended %zu calls, %zu had ended well\n", what, sum->runs,
                  sum->ended, sum->complete);
}

static void test_one_dies_at_each_send_of_each_algorithm(void **state)
{
    (void)state;
    for (int a = COLL_TREE; a < COLL_ALGORITHMS; a++) {
        const struct call call = {ALL_REDUCE, (enum coll_algorithm)a, FLOATS, 0, NULL};
        struct fallen sum = {0};
        for (uint32_t ranks = FEWEST; ranks <= MOST; ranks++)
            sweep_falls(&call, CODEC_F32, ranks, choose_stride(), &sum);
        print_fallen(coll_algorithm_name(call.algorithm), &sum);
        assert_true(sum.ended > 0);
    }
}

static void test_one_dies_at_each_send_of_the_others(void **state)
{
    (void)state;
    static const struct call calls[] = {
        {BROADCAST, COLL_AUTO, FLOATS, 0, NULL},      {REDUCE, COLL_AUTO, FLOATS, 0, NULL},
        {GATHER, COLL_AUTO, FLOATS, 0, NULL},         {ALL_GATHER, COLL_AUTO, FLOATS, 0, NULL},
        {REDUCE_SCATTER, COLL_AUTO, FLOATS, 0, NULL},
    };
    struct fallen sum = {0};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (uint32_t ranks = FEWEST; ranks <= MOST; ranks++)
            sweep_falls(&calls[i], CODEC_F32, ranks, choose_stride(), &sum);
    print_fallen("broadcast, reduce, gather, all-gather, reduce-scatter", &sum);
}

static const enum coll_algorithm able[] = {COLL_TREE, COLL_CHUNKED_RING, COLL_HALVING_DOUBLING,
                                           COLL_SCATTER_GATHER};

static void test_one_dies_when_codes_are_lossy(void **state)
{
    (void)state;
    struct fallen sum = {0};
    for (size_t i = 0; i < sizeof able / sizeof *able; i++)
        for (uint32_t ranks = FEWEST; ranks <= MOST; ranks++) {
            const struct call call = {ALL_REDUCE, able[i], FLOATS, 0, NULL};
            sweep_falls(&call, ranks % 2 ? CODEC_BF16 : CODEC_INT8, ranks, 3 * choose_stride(),
                        &sum);
        }
    print_fallen("bf16 and int8", &sum);
}

/* Not at a message: at each moment of a grid. */
static void test_one_dies_at_each_moment(void **state)
{
    (void)state;
    enum { MOMENTS = 60 };
    struct fallen sum = {0};
    for (int a = COLL_TREE; a < COLL_ALGORITHMS; a++)
        for (uint32_t ranks = 5; ranks <= MOST; ranks += 3) {
            struct fall fresh = {.call = {ALL_REDUCE, (enum coll_algorithm)a, FLOATS, 0, NULL},
                                 .config.chunk = PIECE,
                                 .dies = WORLD_ANY};
            struct fall fall = fresh;
            struct scene whole = scene_of(&fall, ranks);
            run_scene(&whole);
            for (size_t i = 0; i < MOMENTS; i += choose_stride()) {
                char cluster[200];
                uint32_t dies = (uint32_t)(i % ranks);
                double span = world_seconds(whole.ended[dies]) - 0.01;
                snprintf(cluster, sizeof cluster, SLOW_LINKS "fault { at: %.9f kill: %u }",
                         0.01 + span * ((double)i + 0.5) / MOMENTS, dies);
                fall = fresh;
                fall.dies = dies;
                struct scene scene = scene_of(&fall, ranks);
                scene.cluster = cluster;
                run_scene(&scene);
                judge_fall(&fall, &scene, &sum);
            }
        }
    print_fallen("at each moment", &sum);
}

/* ---- exchanges: the commit rule ---- */

static struct trial trial_with(enum coll_algorithm algorithm, enum codec codec, uint32_t workers,
                               bool driver_takes_part)
{
    struct trial t = trial_of(driver_takes_part);
    t.algorithm = algorithm;
    t.codec = codec;
    t.workers = workers;
    t.exchanges = 3;
    t.floats = FLOATS;
    t.chunk = PIECE;
    return t;
}

static void the_commit_rule_holds_with(enum coll_algorithm algorithm)
{
    struct tallied sum = {0};
    for (int shape = 0; shape < 2; shape++)
        for (uint32_t workers = FEWEST; workers <= MOST; workers++)
            sweep_messages(trial_with(algorithm, CODEC_F32, workers, shape), choose_stride(), &sum);
    print_tallied(coll_algorithm_name(algorithm), &sum);
    assert_int_equal(sum.complaints, 0);
    assert_true(sum.went_on > sum.runs / 2);
}

static void test_a_worker_dies_in_a_tree(void **state)
{
    (void)state;
    the_commit_rule_holds_with(COLL_TREE);
}

static void test_a_worker_dies_in_a_butterfly(void **state)
{
    (void)state;
    the_commit_rule_holds_with(COLL_BUTTERFLY);
}

static void test_a_worker_dies_in_a_ring(void **state)
{
    (void)state;
    the_commit_rule_holds_with(COLL_RING);
}

static void test_a_worker_dies_in_a_chunked_ring(void **state)
{
    (void)state;
    the_commit_rule_holds_with(COLL_CHUNKED_RING);
}

static void test_a_worker_dies_in_halving_and_doubling(void **state)
{
    (void)state;
    the_commit_rule_holds_with(COLL_HALVING_DOUBLING);
}

static void test_a_worker_dies_in_scatter_and_gather(void **state)
{
    (void)state;
    the_commit_rule_holds_with(COLL_SCATTER_GATHER);
}

/* In the middle of a message as well as between two. */
static void test_a_worker_dies_at_each_moment(void **state)
{
    (void)state;
    enum { MOMENTS = 100, WORKERS = 4 };
    for (int a = COLL_TREE; a < COLL_ALGORITHMS; a++) {
        struct tallied sum = {0};
        for (int shape = 0; shape < 2; shape++) {
            struct trial whole = trial_with((enum coll_algorithm)a, CODEC_F32, WORKERS, shape);
            struct trial t = whole;
            run_trial(&whole);
            double span = world_seconds(whole.end - GRACE);
            for (uint32_t i = 0; i < MOMENTS * WORKERS; i += (uint32_t)choose_stride()) {
                char cluster[200];
                struct trial dies = t;
                snprintf(cluster, sizeof cluster, SLOW_LINKS "fault { at: %.9f kill: %u }",
                         span * (i + 0.5) / (MOMENTS * WORKERS), i % WORKERS);
                dies.cluster = cluster;
                members_add(&dies.victims, i % WORKERS);
                run_trial(&dies);
                expect_well(&dies);
                count_up(&sum, &dies);
            }
        }
        print_tallied(coll_algorithm_name((enum coll_algorithm)a), &sum);
        assert_true(STRIDE > 1 || sum.adopted > 0);
    }
}

static void test_a_worker_dies_with_lossy_codes(void **state)
{
    (void)state;
    for (int codec = CODEC_BF16; codec <= CODEC_INT8; codec++) {
        struct tallied sum = {0};
        for (size_t i = 0; i < sizeof able / sizeof *able; i++)
            for (uint32_t workers = FEWEST; workers <= MOST; workers++) {
                struct trial t = trial_with(able[i], (enum codec)codec, workers, workers % 2);
                t.exchanges = 4;
                sweep_messages(t, 5 * choose_stride(), &sum);
            }
        print_tallied(codec_name((enum codec)codec), &sum);
        assert_int_equal(sum.complaints, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_dies_at_each_send_of_each_algorithm),
        cmocka_unit_test(test_one_dies_at_each_send_of_the_others),
        cmocka_unit_test(test_one_dies_when_codes_are_lossy),
        cmocka_unit_test(test_one_dies_at_each_moment),
        cmocka_unit_test(test_a_worker_dies_in_a_tree),
        cmocka_unit_test(test_a_worker_dies_in_a_butterfly),
        cmocka_unit_test(test_a_worker_dies_in_a_ring),
        cmocka_unit_test(test_a_worker_dies_in_a_chunked_ring),
        cmocka_unit_test(test_a_worker_dies_in_halving_and_doubling),
        cmocka_unit_test(test_a_worker_dies_in_scatter_and_gather),
        cmocka_unit_test(test_a_worker_dies_at_each_moment),
        cmocka_unit_test(test_a_worker_dies_with_lossy_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
