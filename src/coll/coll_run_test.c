/* Schedules at work in a simulated cluster: in pieces, many at once, whatever the speeds, every
 * rank ends with the bits that the same schedules give when they are carried out in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coll_call.h"
#include "sweep_stride.h"

#include <math.h>

enum { PIECE = 5, CALLS_MAX = 32, LONG = 25 * PIECE + 3 }; /* long: more than three windows */

/* Not a multiple of the cycle of four that seeds have. */
enum { STRIDE = SWEEP_STRIDE(3, 3) };

/* One call after the other, by every rank. */
struct work {
    const struct call *call;
    size_t calls;
    struct coll_config config;
    uint32_t stripes;
    float *x[RANKS_MAX][CALLS_MAX];
    uint64_t bytes[RANKS_MAX][CALLS_MAX];
};

static int play_work(struct scene *scene, struct group *group, const struct ranks *ranks)
{
    struct work *work = scene->arg;
    struct coll c = {.group = group,
                     .view = group_view(group),
                     .ranks = ranks,
                     .lane = 3,
                     .stripes = work->stripes};
    int rc = OK;
    for (size_t k = 0; rc == OK && k < work->calls; k++) {
        const struct call *call = &work->call[k];
        struct coll_waits waits = {0};
        float *x = work->x[ranks->me][k] = calloc(call->n + 1, sizeof *x);
        if (!x)
            return ERR_NOMEM;
        for (size_t i = 0; i < call->n; i++)
            x[i] = call_value(ranks->me, k, i);
        c.n = k + 1;
        c.waits = &waits;
        rc = call_run(&c, call, &work->config, x, NULL);
        work->bytes[ranks->me][k] = waits.bytes;
    }
    return rc;
}

static void drop_work(struct work *work)
{
    for (size_t r = 0; r < RANKS_MAX; r++)
        for (size_t k = 0; k < CALLS_MAX; k++)
            free(work->x[r][k]);
}

/* Each rank has the expected result, and after an all-reduce all have the same. */
static void judge_work(const struct work *work, uint32_t ranks)
{
    for (size_t k = 0; k < work->calls; k++) {
        const struct call *call = &work->call[k];
        size_t bytes = call->n * sizeof(float);
        struct cluster c;
        call_in_memory(&c, call, &work->config, ranks, NULL, k);
        for (uint32_t r = 0; r < ranks; r++) {
            if (memcmp(work->x[r][k], c.x[r], bytes) != 0)
                fail_msg("rank %u of %u: call %zu (%d %s, %zu floats) ends otherwise", r, ranks, k,
                         (int)call->kind, coll_algorithm_name(call->algorithm), call->n);
            if (call->kind == ALL_REDUCE)
                assert_memory_equal(work->x[r][k], work->x[0][k], bytes);
        }
        cluster_tear_down(&c);
    }
}

static void expect_played(const struct scene *scene)
{
    for (uint32_t r = 0; r < scene->ranks; r++)
        if (scene->rc[r] != OK)
            fail_msg("rank %u of %u ends with %d", r, scene->ranks, scene->rc[r]);
}

static void work_and_judge(struct work *work, struct scene scene)
{
    scene.play = play_work;
    scene.arg = work;
    run_scene(&scene);
    expect_played(&scene);
    judge_work(work, scene.ranks);
    drop_work(work);
}

/* Lengths around the borders of pieces, of a vector and of P parts of one; returns how many. */
static size_t all_lengths(struct call call[CALLS_MAX], const struct call *like, size_t parts)
{
    const size_t n[] = {0,           1,  2,  PIECE - 1,         PIECE,         PIECE + 1,
                        2 * PIECE,   31, 97, parts * PIECE - 1, parts * PIECE, parts * PIECE + 1,
                        parts * LONG};
    for (size_t k = 0; k < sizeof n / sizeof *n; k++) {
        call[k] = *like;
        call[k].n = n[k];
    }
    return sizeof n / sizeof *n;
}

static bool works_in_parts(enum coll_algorithm a)
{
    return a == COLL_CHUNKED_RING || a == COLL_HALVING_DOUBLING || a == COLL_SCATTER_GATHER;
}

static void test_run_sums_follow_the_schedule(void **state)
{
    (void)state;
    for (int a = COLL_TREE; a < COLL_ALGORITHMS; a++)
        for (uint32_t ranks = 1 + (uint32_t)a % STRIDE; ranks <= RANKS_MAX; ranks += STRIDE) {
            const struct call like = {ALL_REDUCE, (enum coll_algorithm)a, 0, 0, NULL};
            struct call call[CALLS_MAX];
            struct work work = {.call = call, .config.chunk = PIECE};
            work.calls = all_lengths(call, &like, works_in_parts(like.algorithm) ? ranks : 1);
            work_and_judge(&work, (struct scene){.ranks = ranks});
        }
}

/* Halves that are long enough to travel in blocks; the order of the sums is the tree's. */
static void test_run_long_halves_travel_in_blocks(void **state)
{
    (void)state;
    for (uint32_t ranks = 2; ranks <= 16; ranks += ranks < 4 ? 1 : ranks / 2) {
        const struct call calls[] = {{ALL_REDUCE, COLL_HALVING_DOUBLING, 70001, 0, NULL},
                                     {ALL_REDUCE, COLL_HALVING_DOUBLING, 1 << 16, 0, NULL}};
        struct work work = {.call = calls, .calls = 2, .config.chunk = 1000};
        work_and_judge(&work, (struct scene){.ranks = ranks});
        struct cluster tree, halving;
        const struct call tree_call = {ALL_REDUCE, COLL_TREE, 70001, 0, NULL};
        call_in_memory(&tree, &tree_call, &work.config, ranks, NULL, 0);
        call_in_memory(&halving, &calls[0], &work.config, ranks, NULL, 0);
        if ((ranks & (ranks - 1)) == 0)
            assert_memory_equal(tree.x[0], halving.x[0], 70001 * sizeof(float));
        cluster_tear_down(&tree), cluster_tear_down(&halving);
    }
}

/* In plain numbers: rank r contributes r + i, so the sum is 0 + 1 + 2 + 3 + 4i on every rank. */
static int play_plain(struct scene *scene, struct group *group, const struct ranks *ranks)
{
    struct coll c = {.group = group, .view = group_view(group), .ranks = ranks};
    const struct coll_config config = {.chunk = PIECE};
    for (int a = COLL_TREE; a < COLL_ALGORITHMS; a++) {
        const struct call call = {ALL_REDUCE, (enum coll_algorithm)a, LONG, 0, NULL};
        float x[LONG];
        for (size_t i = 0; i < LONG; i++)
            x[i] = (float)(ranks->me + i);
        c.n++;
        int rc = call_run(&c, &call, &config, x, NULL);
        if (rc != OK)
            return rc;
        for (size_t i = 0; i < LONG; i++)
            *(bool *)scene->arg &= x[i] == (float)(6 + 4 * i);
    }
    return OK;
}

static void test_run_ranks_sum_to_six(void **state)
{
    (void)state;
    bool right = true;
    struct scene scene = {.ranks = 4, .play = play_plain, .arg = &right};
    run_scene(&scene);
    expect_played(&scene);
    assert_true(right);
}

/* One's own: parity of signs. */
static void multiply_signs(void *user, float *y, const float *x, size_t n)
{
    const float *unit = user;
    for (size_t i = 0; i < n; i++)
        y[i] = (y[i] < 0) == (x[i] < 0) ? *unit : -*unit;
}

static void test_run_other_reductions(void **state)
{
    (void)state;
    float unit = 3;
    const struct reduction reductions[] = {
        {.kind = REDUCE_MAX}, {.kind = REDUCE_MIN}, {REDUCE_USER, multiply_signs, &unit}};
    static const uint32_t ranks[] = {2, 3, 5, 8};
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 4; k++) {
            struct call call[CALLS_MAX];
            struct work work = {.call = call,
                                .config = {.chunk = PIECE, .reduction = reductions[i]}};
            for (int a = COLL_TREE; a < COLL_ALGORITHMS; a++)
                call[work.calls++] = (struct call){ALL_REDUCE, (enum coll_algorithm)a, 97, 0, NULL};
            call[work.calls++] = (struct call){REDUCE, COLL_AUTO, 97, 1, NULL};
            call[work.calls++] = (struct call){REDUCE_SCATTER, COLL_AUTO, 97, 0, NULL};
            work_and_judge(&work, (struct scene){.ranks = ranks[k]});
        }
}

/* The maximum is the same on every rank. */
static void test_run_maximum(void **state)
{
    (void)state;
    const struct call call = {ALL_REDUCE, COLL_CHUNKED_RING, 97, 0, NULL};
    struct work work = {.call = &call, .calls = 1, .config = {PIECE, .reduction.kind = REDUCE_MAX}};
    struct scene scene = {.ranks = 5, .play = play_work, .arg = &work};
    run_scene(&scene);
    for (size_t i = 0; i < call.n; i++) {
        float largest = call_value(0, 0, i);
        for (size_t r = 1; r < 5; r++)
            largest = fmaxf(largest, call_value(r, 0, i));
        assert_true(work.x[2][0][i] == largest);
    }
    drop_work(&work);
}

static void test_run_broadcast_and_reduce(void **state)
{
    (void)state;
    static const enum call_kind kinds[] = {BROADCAST, REDUCE, GATHER};
    for (uint32_t ranks = 1; ranks <= RANKS_MAX; ranks += STRIDE)
        for (size_t i = 0; i < 3; i++)
            for (size_t root = 0; root < ranks; root += 1 + ranks / 3) {
                const struct call like = {kinds[i], COLL_AUTO, 0, root, NULL};
                struct call call[CALLS_MAX];
                struct work work = {.call = call, .config.chunk = PIECE};
                work.calls = all_lengths(call, &like, 1); /* a chain; and a tree, if short: */
                call[work.calls] = like;
                call[work.calls++].n = 4 * ranks * PIECE;
                work_and_judge(&work, (struct scene){.ranks = ranks});
            }
}

static void test_run_gather_and_scatter(void **state)
{
    (void)state;
    static const enum call_kind kinds[] = {ALL_GATHER, REDUCE_SCATTER};
    for (uint32_t ranks = 1; ranks <= RANKS_MAX; ranks += STRIDE)
        for (size_t i = 0; i < 2; i++) {
            const struct call like = {kinds[i], COLL_AUTO, 0, 0, NULL};
            struct call call[CALLS_MAX];
            struct work work = {.call = call, .config.chunk = PIECE};
            work.calls = all_lengths(call, &like, ranks);
            work_and_judge(&work, (struct scene){.ranks = ranks});
        }
}

/* Unequal parts, empty ones among them, one that is everything. */
static void test_run_rank_without_share(void **state)
{
    (void)state;
    static const enum call_kind kinds[] = {ALL_REDUCE, GATHER, ALL_GATHER, REDUCE_SCATTER};
    for (uint64_t seed = 0; seed < 60; seed += STRIDE) {
        uint32_t ranks = 2 + (uint32_t)rng_below(seed, 0, 0, 8);
        size_t cut[RANKS_MAX + 1] = {0}, n = LONG;
        struct call call[4];
        for (size_t r = 1; r < ranks; r++)
            cut[r] = cut[r - 1] + rng_below(seed, 1, r, 2) *
                                      rng_below(seed, 2, r, (uint32_t)(n + 1 - cut[r - 1]));
        cut[ranks] = n;
        for (size_t k = 0; k < 4; k++)
            call[k] = (struct call){kinds[k], COLL_SCATTER_GATHER, n, 0, cut};
        struct work work = {.call = call, .calls = 4, .config.chunk = PIECE};
        work_and_judge(&work, (struct scene){.ranks = ranks, .seed = seed});
    }
}

/* Nodes of different speeds, with long and varying work on pieces; lost messages; several
 * connections: another order of events, the same bits. */
static void test_run_is_deterministic(void **state)
{
    (void)state;
    static const char cluster[] =
        "node { count: 3 jitter: 0.5 } node { speed: 0.1 jitter: 0.3 } node { count: 3 speed: 3 }"
        "link { mbit: 10 latency_us: 300 loss: 0.02 } "
        "delay { from: 2 to: 1 seconds: 0.004 nth: 7 }";
    for (uint64_t seed = 0; seed < 20; seed += STRIDE) {
        struct call call[CALLS_MAX];
        struct work work = {.call = call,
                            .config = {.chunk = PIECE, .serialise = 1e-6, .reduce = 2e-6},
                            .stripes = 1 + (uint32_t)seed % 4};
        for (int a = COLL_TREE; a < COLL_ALGORITHMS; a++)
            call[work.calls++] =
                (struct call){ALL_REDUCE, (enum coll_algorithm)a, 2 * LONG, 0, NULL};
        call[work.calls++] = (struct call){BROADCAST, COLL_AUTO, 2 * LONG, 2, NULL};
        call[work.calls++] = (struct call){REDUCE, COLL_AUTO, 2 * LONG, 6, NULL};
        work_and_judge(&work, (struct scene){.ranks = 7, .seed = seed, .cluster = cluster});
    }
}

/* A tree's bytes go once up and once down every edge. */
static void test_run_counts_bytes(void **state)
{
    (void)state;
    static const size_t edges[] = {4, 1, 2, 1, 3, 1, 2, 1, 1};
    const struct call like = {ALL_REDUCE, COLL_TREE, 0, 0, NULL};
    struct call call[CALLS_MAX];
    struct work work = {.call = call, .config.chunk = PIECE};
    struct scene scene = {.ranks = 9, .play = play_work, .arg = &work};
    work.calls = all_lengths(call, &like, 1);
    run_scene(&scene);
    for (size_t k = 0; k < work.calls; k++)
        for (size_t r = 0; r < 9; r++)
            assert_int_equal(work.bytes[r][k], 2 * edges[r] * call[k].n * sizeof(float));
    drop_work(&work);
}

static int raise_twice(void *arg)
{
    struct group *group = arg;
    for (int i = 0; i < 2; i++) {
        world_sleep(group->world, world_now(group->world) + WORLD_SECOND / 1000);
        world_raise(group->world, SIGNAL_GROUP);
    }
    return OK;
}

/* One is late; meanwhile others are signalled, as they are a moment after a view has begun. */
static int play_with_late_signals(struct scene *scene, struct group *group,
                                  const struct ranks *ranks)
{
    struct task *raiser;
    if (ranks->me == 2)
        world_sleep(group->world, world_now(group->world) + WORLD_SECOND / 100);
    int rc = world_spawn(group->world, "raiser", raise_twice, group, &raiser);
    if (rc != OK)
        return rc;
    rc = play_work(scene, group, ranks);
    world_end_task(group->world, &raiser);
    return rc;
}

/* Rank 3 sends nothing; at one second all members change to view 2, and the waiting ranks
 * return. */
static int change_view(void *arg)
{
    struct group *group = arg;
    static const struct scene six = {.ranks = 6};
    world_sleep(group->world, WORLD_SECOND);
    return scene_view(&six, group, 2, WORLD_ANY);
}

static int play_without_rank_3(struct scene *scene, struct group *group, const struct ranks *ranks)
{
    struct task *task;
    if (ranks->me == 3)
        return OK;
    int rc = world_spawn(group->world, "change", change_view, group, &task);
    if (rc == OK)
        rc = play_work(scene, group, ranks);
    world_end_task(group->world, &task);
    return rc;
}

static void test_run_survives_spurious_signals(void **state)
{
    (void)state;
    for (int a = COLL_TREE; a < COLL_ALGORITHMS; a++) {
        const struct call call = {ALL_REDUCE, (enum coll_algorithm)a, LONG, 0, NULL};
        struct work work = {.call = &call, .calls = 1, .config.chunk = PIECE};
        struct scene scene = {.ranks = 5, .play = play_with_late_signals, .arg = &work};
        run_scene(&scene);
        expect_played(&scene);
        judge_work(&work, 5);
        drop_work(&work);
    }
}

static void test_run_ends_with_a_new_view(void **state)
{
    (void)state;
    for (int a = COLL_TREE; a < COLL_ALGORITHMS; a++) {
        const struct call call = {ALL_REDUCE, (enum coll_algorithm)a, LONG, 0, NULL};
        struct work work = {.call = &call, .calls = 1, .config.chunk = PIECE};
        struct scene scene = {.ranks = 6, .play = play_without_rank_3, .arg = &work};
        run_scene(&scene);
        for (size_t r = 0; r < 6; r++) {
            assert_int_equal(scene.rc[r], r == 3 ? OK : ERR_VIEW);
            if (r != 3)
                assert_true(scene.ended[r] < WORLD_SECOND + WORLD_SECOND / 1000);
        }
        drop_work(&work);
    }
}

/* ---- sums whose own summands are not in the vector ---- */

struct summed {
    bool at_root;
    size_t n;
    float *x[RANKS_MAX];
};

/* Rank 2 has nothing to contribute, and the root never does. */
static struct coll_input own_input(const struct summed *t, size_t rank, const float *at)
{
    bool none = rank == 2 || (t->at_root && rank == 0);
    return (struct coll_input){none ? NULL : at, (float)rank + 0.3f};
}

static int play_summed(struct scene *scene, struct group *group, const struct ranks *ranks)
{
    struct summed *t = scene->arg;
    struct coll c = {.group = group, .view = group_view(group), .ranks = ranks, .lane = 3};
    struct schedule s;
    struct coll_plan plan = {0};
    float *input = calloc(t->n + 1, sizeof *input), *x = calloc(t->n + 1, sizeof *x);
    t->x[ranks->me] = x;
    for (size_t i = 0; input && x && i < t->n; i++) {
        input[i] = call_value(ranks->me, 0, i);
        x[i] = NAN; /* whatever was there before is written over */
    }
    int rc = schedule_split_reduce(&s, CODEC_F32, t->at_root, ranks->count, ranks->me, t->n);
    if (rc == OK)
        rc = coll_plan_make(&plan, &s, &(struct coll_config){.chunk = PIECE});
    if (rc == OK)
        rc = coll_reduce(&c, &plan, x, own_input(t, ranks->me, input));
    schedule_release(&s);
    coll_plan_release(&plan);
    free(input);
    return rc;
}

/* The same sums with the summands in the vectors to begin with. */
static void judge_summed(const struct summed *t, uint32_t ranks)
{
    struct cluster c = {.ranks = ranks, .n = t->n};
    for (size_t r = 0; r < ranks; r++)
        assert_int_equal(schedule_split_reduce(&c.by[r], CODEC_F32, t->at_root, ranks, r, t->n),
                         OK);
    cluster_make_room(&c);
    for (size_t r = 0; r < ranks; r++)
        for (size_t i = 0; i < t->n; i++) {
            float at = call_value(r, 0, i);
            const struct coll_input input = own_input(t, r, &at);
            c.x[r][i] = input.at ? input.weight * at : 0;
        }
    cluster_carry_out(&c);
    size_t parts = t->at_root ? 1 : ranks;
    for (size_t r = 0; r < parts; r++) {
        size_t from = schedule_cut(t->n, parts, r), end = schedule_cut(t->n, parts, r + 1);
        assert_memory_equal(t->x[r] + from, c.x[r] + from, (end - from) * sizeof(float));
    }
    cluster_tear_down(&c);
}

static void test_run_summands_that_are_not_in_the_vector(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, PIECE + 1, 97, 2 * LONG, 20000};
    for (uint32_t at_root = 0; at_root < 2; at_root++)
        for (uint32_t ranks = 1 + at_root; ranks <= RANKS_MAX; ranks += STRIDE)
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
                struct summed t = {.at_root = at_root, .n = sizes[k]};
                struct scene scene = {.ranks = ranks, .play = play_summed, .arg = &t};
                run_scene(&scene);
                expect_played(&scene);
                judge_summed(&t, ranks);
                for (size_t r = 0; r < ranks; r++)
                    free(t.x[r]);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_sums_follow_the_schedule),
        cmocka_unit_test(test_run_long_halves_travel_in_blocks),
        cmocka_unit_test(test_run_ranks_sum_to_six),
        cmocka_unit_test(test_run_other_reductions),
        cmocka_unit_test(test_run_maximum),
        cmocka_unit_test(test_run_broadcast_and_reduce),
        cmocka_unit_test(test_run_gather_and_scatter),
        cmocka_unit_test(test_run_rank_without_share),
        cmocka_unit_test(test_run_summands_that_are_not_in_the_vector),
        cmocka_unit_test(test_run_is_deterministic),
        cmocka_unit_test(test_run_counts_bytes),
        cmocka_unit_test(test_run_survives_spurious_signals),
        cmocka_unit_test(test_run_ends_with_a_new_view),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
