#include "tensor/slices.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/status.h"

/* Record n is worth these three numbers; sums of them round. */
static void set_sum(void *user, size_t first, size_t count, float *sum)
{
    size_t offset = *(const size_t *)user;
    assert_in_range(count, 1, SLICE_RECORDS);
    for (size_t i = 0; i < 3; i++)
        sum[i] = 0;
    for (size_t n = first; n < first + count; n++)
        for (size_t i = 0; i < 3; i++)
            sum[i] += rng_normal(5, i, offset + n);
}

static void sum_of(size_t offset, size_t records, float out[3])
{
    struct arena arena;
    struct slices slices;
    size_t bytes;
    arena_init(&arena);
    assert_int_equal(slices_init(&slices, &arena, records, 3, &bytes), OK);
    const float *sum = slices_sum(&slices, set_sum, &offset);
    for (size_t i = 0; i < 3; i++)
        out[i] = sum[i];
    arena_release(&arena);
}

static void test_every_record_counts_once(void **state)
{
    (void)state;
    for (size_t records = 1; records < 200; records++) {
        double exact = 0;
        float sum[3];
        for (size_t n = 0; n < records; n++)
            exact += (double)rng_normal(5, 1, 7 + n);
        sum_of(7, records, sum);
        assert_float_equal(sum[1], exact, 1e-4);
    }
}

/* Ranks of a binomial tree: 0 adds 1, then what 2 has of 2 and 3, and so on. */
static void test_a_cut_batch_has_the_bits_of_the_whole(void **state)
{
    (void)state;
    for (size_t ranks = 1; ranks <= 16; ranks++) {
        float part[16][3], whole[3];
        for (size_t r = 0; r < ranks; r++)
            sum_of(r * SLICE_RECORDS, SLICE_RECORDS, part[r]);
        for (size_t bit = 1; bit < ranks; bit *= 2)
            for (size_t r = 0; r + bit < ranks; r += 2 * bit)
                for (size_t i = 0; i < 3; i++)
                    part[r][i] += part[r + bit][i];
        sum_of(0, ranks * SLICE_RECORDS, whole);
        assert_memory_equal(part[0], whole, sizeof whole);
    }
}

/* The test of the test: one after another gives other bits. */
static void test_another_order_rounds_otherwise(void **state)
{
    (void)state;
    size_t differ = 0;
    for (size_t records = 32; records < 400; records++) {
        float sum[3], plain = 0;
        sum_of(0, records, sum);
        for (size_t n = 0; n < records; n++)
            plain += rng_normal(5, 0, n);
        differ += plain != sum[0];
    }
    assert_true(differ > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_record_counts_once),
        cmocka_unit_test(test_a_cut_batch_has_the_bits_of_the_whole),
        cmocka_unit_test(test_another_order_rounds_otherwise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
