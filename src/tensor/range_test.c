/* Cuts of vectors into ranges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tensor/vec.h"

#include <math.h>

static void test_shards_by_hand(void **state)
{
    (void)state;
    static const struct {
        size_t n, shards, from[4];
    } by_hand[] = {
        {3 * 4096, 3, {0, 4096, 8192, 12288}},      /* a block each */
        {3 * 4096 - 16, 3, {0, 4080, 8176, 12272}}, /* not quite: 4090⅔, 8181⅓ */
        {10 * 4096, 3, {0, 12288, 24576, 40960}},   /* 3⅓ and 6⅔ blocks */
        {48, 3, {0, 16, 32, 48}},
        {32, 3, {0, 0, 16, 32}}, /* one has nothing */
        {0, 1, {0, 0}},
    };
    for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++)
        for (size_t s = 0; s < by_hand[i].shards; s++) {
            struct range r = range_shard(by_hand[i].n, by_hand[i].shards, s);
            assert_int_equal(r.from, by_hand[i].from[s]);
            assert_int_equal(r.from + r.len, by_hand[i].from[s + 1]);
        }
}

static void test_shards_are_equal_and_cover_the_vector(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < 2000; trial++) {
        size_t shards = 1 + rng_below(3, 1, trial, 9);
        size_t n = rng_below(3, 2, trial, trial % 2 ? 300000 : 5000);
        size_t unit = n / shards >= VEC_BLOCK ? VEC_BLOCK : SEGMENT_ALIGN, at = 0;
        for (size_t s = 0; s < shards; s++) {
            struct range r = range_shard(n, shards, s);
            assert_int_equal(r.from, at);
            assert_int_equal(r.from % unit, 0);
            assert_true(fabs((double)r.len - (double)n / (double)shards) < (double)unit);
            assert_true(unit < VEC_BLOCK || r.len >= VEC_BLOCK);
            at += r.len;
        }
        assert_int_equal(at, n);
    }
    struct range last = range_shard(SIZE_MAX, 7, 6); /* no product overflows */
    assert_true(last.from > SIZE_MAX / 7 * 6 - VEC_BLOCK && last.from + last.len == SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shards_by_hand),
        cmocka_unit_test(test_shards_are_equal_and_cover_the_vector),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
