/* Metadata is reduced up the tree and broadcast down again, with a vector or alone. */
#include "coll/coll_meta.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/rng.h"
#include "rank_scene.h"

enum { ROUNDS = 5 };

struct number_meta {
    uint64_t sum, order; /* order: a hash of the order of merging */
};

struct outcome {
    int rc[ROUNDS];
    struct number_meta meta[ROUNDS];
    uint64_t bytes[ROUNDS];
};

static struct number_meta meta_of(size_t rank, size_t round)
{
    return (struct number_meta){rank + 1, rng_u64(8, rank, round)};
}

static void merge_numbers(void *meta, const void *other)
{
    struct number_meta *n = meta;
    const struct number_meta *o = other;
    n->sum += o->sum;
    n->order = hash_mix(n->order, o->order);
}

static int play_meta(struct scene *scene, struct group *group, const struct ranks *ranks)
{
    struct outcome *o = (struct outcome *)scene->arg + ranks->me;
    struct coll c = {.group = group, .view = group_view(group), .ranks = ranks, .lane = 3};
    int rc = OK;
    for (size_t k = 0; rc == OK && k < ROUNDS; k++) {
        struct coll_waits waits = {0};
        struct number_meta other;
        o->meta[k] = meta_of(ranks->me, k);
        c.n = k + 1;
        c.waits = &waits;
        rc = coll_meta_reduce(&c, &o->meta[k], sizeof other, &other, merge_numbers);
        if (rc == OK)
            rc = coll_meta_broadcast(&c, &o->meta[k], sizeof other);
        o->bytes[k] = waits.bytes;
        o->rc[k] = rc;
    }
    return rc;
}

/* Without a network: partners a step apart, the step doubling. */
static struct number_meta merge_by_doubling(size_t ranks, size_t round)
{
    struct number_meta meta[RANKS_MAX];
    for (size_t r = 0; r < ranks; r++)
        meta[r] = meta_of(r, round);
    for (size_t gap = 1; gap < ranks; gap *= 2)
        for (size_t r = 0; r + gap < ranks; r += 2 * gap)
            merge_numbers(&meta[r], &meta[r + gap]);
    return meta[0];
}

static void test_coll_meta_is_equal_on_all_ranks(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
        struct outcome by[RANKS_MAX] = {0};
        struct scene scene = {.ranks = ranks, .play = play_meta, .arg = by};
        run_scene(&scene);
        for (size_t k = 0; k < ROUNDS; k++) {
            struct number_meta meta = merge_by_doubling(ranks, k);
            assert_int_equal(meta.sum, ranks * (ranks + 1) / 2);
            for (uint32_t r = 0; r < ranks; r++) {
                assert_int_equal(by[r].rc[k], OK);
                assert_memory_equal(&by[r].meta[k], &meta, sizeof meta);
            }
        }
    }
}

/* Once up and once down every edge. */
static void test_coll_meta_counts_bytes(void **state)
{
    (void)state;
    static const size_t edges[] = {4, 1, 2, 1, 3, 1, 2, 1, 1};
    struct outcome by[RANKS_MAX] = {0};
    struct scene scene = {.ranks = 9, .play = play_meta, .arg = by};
    run_scene(&scene);
    for (size_t r = 0; r < 9; r++)
        assert_int_equal(by[r].bytes[0], 2 * edges[r] * sizeof(struct number_meta));
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
        rc = play_meta(scene, group, ranks);
    world_end_task(group->world, &task);
    return rc;
}

static void test_coll_meta_ends_with_a_new_view(void **state)
{
    (void)state;
    struct outcome by[RANKS_MAX] = {0};
    struct scene scene = {.ranks = 6, .play = play_without_rank_3, .arg = by};
    run_scene(&scene);
    for (size_t r = 0; r < 6; r++)
        assert_int_equal(by[r].rc[0], r == 3 ? OK : ERR_VIEW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_coll_meta_is_equal_on_all_ranks),
        cmocka_unit_test(test_coll_meta_counts_bytes),
        cmocka_unit_test(test_coll_meta_ends_with_a_new_view),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
