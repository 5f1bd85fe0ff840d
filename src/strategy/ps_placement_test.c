/* Which node serves a shard, over random histories of views: a shard moves when its server has
 * gone, and then only. So the server of a view that a node has not seen still serves, or is gone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "strategy/ps_message.h"

#include <stdlib.h>
#include <string.h>

enum { STORIES = 300, VIEWS = 40, NODES = 200, SHARDS = 4 };

/* Numbers that were never a member's join, in any order, or up to three members go. */
static void change_members(uint64_t story, uint32_t v, struct members *all, struct members *former)
{
    uint32_t gone = (uint32_t)rng_below(story, v, 0, 5);
    for (uint32_t k = 1; k <= (v == 0 ? 4 : 3); k++) {
        uint32_t node = (uint32_t)rng_below(story, v, k, NODES);
        if (gone < 2 && !members_has(former, node)) {
            members_add(former, node);
            members_add(all, node);
        } else if (gone >= k + 1 && v > 0 && members_count(all) > 1) {
            node = members_next(all, node);
            members_remove(all, node < NODES ? node : members_next(all, 0));
        }
    }
}

/* Views with their members and elders. */
static struct view *make_history(uint64_t story)
{
    struct view *view = calloc(VIEWS, sizeof *view);
    struct members all = members_only((uint32_t)story % NODES), former = all;
    assert_non_null(view);
    for (uint32_t v = 0; v < VIEWS; v++) {
        change_members(story, v, &all, &former);
        view[v].number = v + 1;
        MEMBERS_EACH (p, &all)
            view[v].node[view[v].count++] = p;
        if (v > 0)
            view[v].elders = view[v - 1].elders;
        view_settle_elders(&view[v]);
    }
    return view;
}

static uint32_t host_in(const struct view *first, const struct view *now, size_t shard)
{
    const struct ps_placement placement = {
        .shards = SHARDS, .on_workers = true, .first = view_members(first), .now = now};
    return ps_placement_host(&placement, shard);
}

static void test_a_shard_stays_while_its_server_is_there(void **state)
{
    size_t moves = 0, eras = 0;
    (void)state;
    for (uint64_t story = 0; story < STORIES; story++) {
        struct view *view = make_history(story);
        for (size_t shard = 0; shard < SHARDS; shard++)
            for (uint32_t v = 0; v < VIEWS; v++) {
                uint32_t host = host_in(view, &view[v], shard);
                assert_true(view_rank(&view[v], host) >= 0);
                assert_true(members_has(&view[v].elders, host));
                for (uint32_t u = 0; u < v; u++) { /* any views between the two may be skipped */
                    uint32_t before = host_in(view, &view[u], shard);
                    if (view_rank(&view[v], before) >= 0)
                        assert_int_equal(host, before);
                }
                moves += v > 0 && host != host_in(view, &view[v - 1], shard);
                eras += v > 0 && !members_within(&view[v].elders, &view[v - 1].elders);
            }
        free(view);
    }
    print_message("    shards moved %zu times, and elders were all others %zu times\n", moves,
                  eras / SHARDS);
    assert_true(moves > 1000 && eras > 1000);
}

/* The first view has shard i on its i-th member; others are on the next elder. */
static void test_shards_are_on_the_next_elders(void **state)
{
    struct view *view = calloc(2, sizeof *view);
    (void)state;
    assert_non_null(view);
    view[0].count = 3;
    memcpy(view[0].node, (uint32_t[]){2, 5, 9}, 3 * sizeof view->node[0]);
    view_settle_elders(&view[0]);
    assert_int_equal(host_in(view, view, 0), 2);
    assert_int_equal(host_in(view, view, 1), 5);
    assert_int_equal(host_in(view, view, 2), 9);
    assert_int_equal(host_in(view, view, 3), 2);
    view[1].count = 3;
    memcpy(view[1].node, (uint32_t[]){3, 5, 7}, 3 * sizeof view->node[0]);
    view[1].elders = view[0].elders;
    view_settle_elders(&view[1]);
    for (size_t shard = 0; shard < SHARDS; shard++)
        assert_int_equal(host_in(view, &view[1], shard), 5); /* 3 and 7 came later */
    view[1].elders = view_members(&view[1]);
    assert_int_equal(host_in(view, &view[1], 0), 3);
    assert_int_equal(host_in(view, &view[1], 1), 5);
    assert_int_equal(host_in(view, &view[1], 2), 3);
    view[1].count = 0;
    view_settle_elders(&view[1]);
    assert_int_equal(host_in(view, &view[1], 0), WORLD_ANY);
    free(view);
}

/* A donor's words name the members that began the run: at least one, and no more than there may be
 * shards. */
static void test_a_joiner_refuses_words_that_name_no_server(void **state)
{
    static struct group group;
    static struct view view = {.number = 3, .count = 2, .node = {4, 6}};
    struct join_state join = {.words = MEMBER_WORDS, .word = {1 << 2}};
    struct ps_placement placement = {.shards = 7};
    (void)state;
    view_settle_elders(&view);
    atomic_store(&group.first, &view);
    atomic_store(&group.view, &view);
    assert_int_equal(ps_placement_init(&placement, &group, 3, false, &join), OK);
    assert_int_equal(placement.shards, 3);
    assert_int_equal(ps_placement_host(&placement, 1), 4); /* node 2 has gone */
    assert_int_equal(ps_placement_init(&placement, &group, 1, true, &join), OK);
    assert_int_equal(placement.shards, 1);
    for (int colocated = 0; colocated < 2; colocated++) {
        join.word[0] = 0;
        assert_int_equal(ps_placement_init(&placement, &group, 2, colocated, &join), ERR_PROTOCOL);
        join.word[0] = 1 << 2;
        for (join.words = 0; join.words <= MEMBER_WORDS + 1; join.words += MEMBER_WORDS + 1)
            assert_int_equal(ps_placement_init(&placement, &group, 2, colocated, &join),
                             ERR_PROTOCOL);
        join.words = MEMBER_WORDS;
    }
    memset(join.word, 0xff, MEMBER_WORDS * sizeof join.word[0]);
    assert_int_equal(ps_placement_init(&placement, &group, 1, true, &join), ERR_PROTOCOL);
    assert_int_equal(placement.shards, 1); /* written on success only */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_shard_stays_while_its_server_is_there),
        cmocka_unit_test(test_shards_are_on_the_next_elders),
        cmocka_unit_test(test_a_joiner_refuses_words_that_name_no_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
