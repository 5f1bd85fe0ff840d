/* Which piece is requested from which source: decisions of one fetch, step by step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/rng.h"
#include "kv/fetch_plan.h"
#include "kv/kv_message.h"

#include <stdlib.h>
#include <string.h>

#define MS (WORLD_SECOND / 1000)

/* A value of so many pieces, the last of them short; `hash` of each. */
struct scene {
    struct kv_plan plan;
    uint64_t hash[64];
};

static void begin_plan(struct scene *s, uint32_t pieces, uint32_t holders)
{
    struct kv_meta meta = {.version = 1, .size = (uint64_t)pieces * KV_PIECE - 100};
    uint32_t node[KV_LOCATIONS];
    for (uint32_t i = 0; i < pieces; i++)
        s->hash[i] = rng_u64(1, 2, i);
    meta.checksum = kv_checksum_pieces(s->hash, meta.size);
    assert_int_equal(kv_plan_init(&s->plan, &meta), OK);
    for (uint32_t i = 0; i < holders; i++)
        node[i] = 10 + i;
    kv_plan_sources(&s->plan, node, holders);
}

static void land_piece(struct scene *s, uint32_t source, uint32_t piece, int64_t now)
{
    kv_plan_landed(&s->plan, source, piece, s->hash[piece], now);
}

/* As many as may be under way; how many of them from each source. */
static uint32_t want_all(struct scene *s, int64_t now, uint32_t from[KV_LOCATIONS])
{
    uint32_t source, piece, count = 0;
    memset(from, 0, KV_LOCATIONS * sizeof *from);
    for (; kv_plan_next(&s->plan, now, &source, &piece); count++)
        from[source]++;
    return count;
}

static void test_fetch_plan_spreads_pieces(void **state)
{
    (void)state;
    struct scene s;
    uint32_t from[KV_LOCATIONS], source, piece;
    begin_plan(&s, 30, 3);
    assert_int_equal(want_all(&s, 0, from), 3 * KV_WINDOW);
    for (int i = 0; i < 3; i++)
        assert_int_equal(from[i], KV_WINDOW);
    land_piece(&s, 1, 1, 5 * MS); /* pieces 0, 1, 2, 3 … went to 0, 1, 2, 0 … */
    assert_true(kv_plan_next(&s.plan, 5 * MS, &source, &piece));
    assert_int_equal(source, 1);
    assert_int_equal(piece, 24);
    assert_false(kv_plan_next(&s.plan, 5 * MS, &source, &piece));
    assert_int_equal(kv_plan_bytes(&s.plan), KV_PIECE);
    kv_plan_release(&s.plan);
}

static void test_fetch_plan_retries_elsewhere(void **state)
{
    (void)state;
    struct scene s;
    uint32_t from[KV_LOCATIONS], source, piece;
    begin_plan(&s, 4, 2);
    assert_int_equal(want_all(&s, 0, from), 4);
    assert_int_equal(from[0], 2);
    kv_plan_failed(&s.plan, 0, 2);
    kv_plan_failed(&s.plan, 0, 0);
    kv_plan_out(&s.plan, 0);
    assert_true(kv_plan_next(&s.plan, 1, &source, &piece) && source == 1 && piece == 0);
    assert_true(kv_plan_next(&s.plan, 1, &source, &piece) && source == 1 && piece == 2);
    assert_false(kv_plan_stuck(&s.plan));
    for (uint32_t i = 0; i < 4; i++)
        land_piece(&s, 1, i, 2);
    assert_int_equal(kv_plan_bytes(&s.plan), s.plan.meta.size);
    assert_int_equal(kv_plan_check(&s.plan, &piece), OK);
    kv_plan_out(&s.plan, 1);
    assert_true(kv_plan_stuck(&s.plan));
    kv_plan_release(&s.plan);
}

static void test_fetch_plan_busy_source_is_retried_later(void **state)
{
    (void)state;
    struct scene s;
    uint32_t source, piece;
    begin_plan(&s, 4, 1);
    assert_true(kv_plan_next(&s.plan, 0, &source, &piece));
    kv_plan_failed(&s.plan, 0, 0);
    kv_plan_rest(&s.plan, 0, 50 * MS);
    assert_false(kv_plan_next(&s.plan, 49 * MS, &source, &piece));
    assert_false(kv_plan_stuck(&s.plan));
    assert_true(kv_plan_wakes(&s.plan, 10 * MS) == 50 * MS);
    assert_true(kv_plan_next(&s.plan, 50 * MS, &source, &piece) && piece == 0);
    assert_true(kv_plan_wakes(&s.plan, 50 * MS) == WORLD_FOREVER);
    kv_plan_release(&s.plan);
}

/* Source 0 takes 2 ms a piece and source 1 takes 40: its last pieces go to 0, but for one that is
 * there sooner than it would be again. */
static void test_fetch_plan_fast_source_takes_over(void **state)
{
    (void)state;
    struct scene s;
    uint32_t from[KV_LOCATIONS], source, to, piece;
    begin_plan(&s, 10, 2);
    assert_int_equal(want_all(&s, 0, from), 10);
    for (uint32_t i = 0; i < 10; i += 2)
        land_piece(&s, 0, i, (int64_t)(i + 2) * MS);
    land_piece(&s, 1, 1, 10 * MS);
    /* Source 1's pace is 10 ms, four are under way: 40 ms. */
    assert_true(kv_plan_move(&s.plan, 10 * MS, &source, &to, &piece));
    assert_true(source == 1 && to == 0 && piece == 9);
    assert_false(kv_plan_move(&s.plan, 10 * MS, &source, &to, &piece)); /* 0 is at work */
    land_piece(&s, 0, 9, 12 * MS);
    assert_true(kv_plan_move(&s.plan, 12 * MS, &source, &to, &piece) && piece == 7);
    land_piece(&s, 0, 7, 14 * MS);
    land_piece(&s, 1, 3, 15 * MS); /* it has become faster: 8.75 ms a piece */
    assert_true(kv_plan_move(&s.plan, 15 * MS, &source, &to, &piece) && piece == 5);
    land_piece(&s, 0, 5, 16 * MS);
    uint32_t liar;
    assert_int_equal(kv_plan_check(&s.plan, &liar), OK);
    kv_plan_release(&s.plan);
}

static void test_equals_leave_each_other_alone(void **state)
{
    (void)state;
    struct scene s;
    uint32_t from[KV_LOCATIONS], source, to, piece;
    begin_plan(&s, 3, 2);
    assert_int_equal(want_all(&s, 0, from), 3); /* two from source 0 */
    land_piece(&s, 0, 0, 2 * MS);
    land_piece(&s, 1, 1, 2 * MS);
    assert_false(kv_plan_move(&s.plan, 2 * MS, &source, &to, &piece));
    assert_true(kv_plan_wakes(&s.plan, 2 * MS) == 4 * MS); /* to look again */
    assert_false(kv_plan_move(&s.plan, 6 * MS, &source, &to, &piece));
    assert_true(kv_plan_move(&s.plan, 7 * MS, &source, &to, &piece)); /* silent for 5 ms */
    assert_true(source == 0 && to == 1 && piece == 2);
    kv_plan_release(&s.plan);
}

/* ---- who sends what is wrong ---- */

/* All that is wanted comes; `who`: bits of the nodes that it came from. */
static void all_from(struct scene *s, uint32_t lies, uint32_t *provider)
{
    uint32_t source[64], piece[64], n;
    *provider = 0;
    while (s->plan.have < s->plan.pieces) {
        for (n = 0; kv_plan_next(&s->plan, 0, &source[n], &piece[n]);)
            n++;
        assert_true(n > 0);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t bit = s->plan.source[source[i]].node - 10;
            *provider |= 1u << bit;
            kv_plan_landed(&s->plan, source[i], piece[i], s->hash[piece[i]] + (lies >> bit & 1), 1);
        }
    }
}

static void test_a_liar_is_found_by_asking_one_by_one(void **state)
{
    (void)state;
    struct scene s;
    uint32_t provider, liar;
    const uint32_t requested[] = {10, 11, 12};
    begin_plan(&s, 9, 3);
    all_from(&s, 3, &provider); /* nodes 10 and 11 */
    assert_int_equal(provider, 7);
    assert_int_equal(kv_plan_check(&s.plan, &liar), ERR_PROTOCOL);
    assert_int_equal(liar, WORLD_ANY);
    assert_int_equal(kv_plan_bytes(&s.plan), 0);
    for (uint32_t i = 0; i < 2; i++) {
        all_from(&s, 3, &provider);
        assert_int_equal(provider, 1u << i);
        assert_int_equal(kv_plan_check(&s.plan, &liar), ERR_PROTOCOL);
        assert_int_equal(liar, 10 + i);
    }
    kv_plan_sources(&s.plan, requested, 3); /* the master does not know it */
    assert_int_equal(s.plan.sources, 1);
    all_from(&s, 3, &provider);
    assert_int_equal(provider, 4);
    assert_int_equal(kv_plan_check(&s.plan, &liar), OK);
    kv_plan_release(&s.plan);
}

/* A single source that dies leaves nothing: all pieces must come from one source. */
static void test_alone_means_all_of_it(void **state)
{
    (void)state;
    struct scene s;
    uint32_t provider, liar, source, piece;
    begin_plan(&s, 9, 3);
    all_from(&s, 2, &provider);
    assert_int_equal(kv_plan_check(&s.plan, &liar), ERR_PROTOCOL);
    assert_int_equal(liar, WORLD_ANY);
    assert_true(kv_plan_next(&s.plan, 0, &source, &piece) && source == 0 && piece == 0);
    land_piece(&s, 0, 0, 1);
    kv_plan_out(&s.plan, 0);
    assert_int_equal(s.plan.have, 0);
    all_from(&s, 2, &provider);
    assert_int_equal(provider, 2);
    assert_int_equal(kv_plan_check(&s.plan, &liar), ERR_PROTOCOL);
    assert_int_equal(liar, 11);
    all_from(&s, 2, &provider);
    assert_int_equal(kv_plan_check(&s.plan, &liar), OK);
    kv_plan_release(&s.plan);
}

/* ---- checksums ---- */

static void test_a_checksum_is_of_every_byte_and_of_the_length(void **state)
{
    (void)state;
    size_t n = 2 * KV_PIECE + 10;
    unsigned char *x = calloc(n, 1);
    assert_non_null(x);
    uint64_t whole = kv_checksum(x, n);
    uint64_t piece[3] = {hash_bytes(x, KV_PIECE), hash_bytes(x, KV_PIECE), hash_bytes(x, 10)};
    assert_true(kv_checksum_pieces(piece, n) == whole);
    assert_true(kv_checksum(x, n - 1) != whole);
    assert_true(kv_checksum(x, 2 * KV_PIECE) != kv_checksum(x, KV_PIECE));
    assert_true(kv_checksum(x, 0) != kv_checksum(x, 1));
    static const size_t at[] = {0, KV_PIECE - 1, KV_PIECE, 2 * KV_PIECE, 2 * KV_PIECE + 9};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        x[at[i]] ^= 1;
        assert_true(kv_checksum(x, n) != whole);
        x[at[i]] ^= 1;
    }
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fetch_plan_spreads_pieces),
        cmocka_unit_test(test_fetch_plan_retries_elsewhere),
        cmocka_unit_test(test_fetch_plan_busy_source_is_retried_later),
        cmocka_unit_test(test_fetch_plan_fast_source_takes_over),
        cmocka_unit_test(test_equals_leave_each_other_alone),
        cmocka_unit_test(test_a_liar_is_found_by_asking_one_by_one),
        cmocka_unit_test(test_alone_means_all_of_it),
        cmocka_unit_test(test_a_checksum_is_of_every_byte_and_of_the_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
