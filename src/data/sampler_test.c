/* An order of records must be a permutation, the same for everyone, and look like chance. The
 * chi-square bounds are at one in ten thousand; draws are fixed by their seeds. */
#include "data/sampler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double chi_square(const size_t *seen, size_t cells, double expected)
{
    double sum = 0;
    for (size_t i = 0; i < cells; i++)
        sum += ((double)seen[i] - expected) * ((double)seen[i] - expected) / expected;
    return sum;
}

static void check_below(const char *what, double chi2, double bound)
{
    if (!(chi2 < bound))
        fail_msg("%s: chi-square %.1f, bound %.1f", what, chi2, bound);
}

static void check_permutation(struct sampler sampler, uint64_t epoch)
{
    bool *seen = calloc(sampler.n, sizeof *seen);
    assert_non_null(seen);
    for (size_t offset = 0; offset < sampler.n; offset++) {
        size_t record = sampler_at(&sampler, epoch, offset);
        if (record >= sampler.n || seen[record])
            fail_msg("n %zu, epoch %llu: %zu twice or beyond", sampler.n, (unsigned long long)epoch,
                     record);
        seen[record] = true;
    }
    free(seen);
}

static void test_a_permutation_for_every_n(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 300; n++)
        for (uint64_t epoch = 0; epoch < 3; epoch++)
            check_permutation((struct sampler){.seed = n, .n = n}, epoch);
    const size_t large[] = {1023, 1024, 1025, 4096, 4097, 55000, 60000, 65536, 65537};
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
        check_permutation((struct sampler){.seed = 7, .n = large[i]}, UINT64_MAX - i);
}

static void test_the_widest_sets(void **state)
{
    (void)state;
    const size_t huge[] = {(size_t)1 << 32, ((size_t)1 << 62) + 1, SIZE_MAX};
    for (size_t i = 0; i < sizeof huge / sizeof huge[0]; i++) {
        struct sampler sampler = {.seed = 1, .n = huge[i]};
        size_t first = sampler_at(&sampler, 0, 0), last = sampler_at(&sampler, 0, huge[i] - 1);
        assert_true(first < huge[i] && last < huge[i] && first != last);
    }
}

static void test_any_place_in_any_order(void **state)
{
    (void)state;
    struct sampler a = {.seed = 3, .n = 1000}, b = a;
    size_t forward[1000];
    for (size_t offset = 0; offset < 1000; offset++)
        forward[offset] = sampler_at(&a, 5, offset);
    for (size_t offset = 1000; offset-- > 0;) {
        (void)sampler_at(&b, 6, offset);
        assert_int_equal(sampler_at(&b, 5, offset), forward[offset]);
    }
}

/* Two random orders of 60000 agree at one place on average (Poisson): at 12 hardly ever. */
static void test_epochs_and_seeds_differ(void **state)
{
    (void)state;
    struct sampler a = {.seed = 1, .n = 60000}, b = {.seed = 2, .n = 60000};
    size_t fixed = 0, epochs = 0, seeds = 0;
    for (size_t offset = 0; offset < a.n; offset++) {
        size_t record = sampler_at(&a, 0, offset);
        fixed += record == offset;
        epochs += record == sampler_at(&a, 1, offset);
        seeds += record == sampler_at(&b, 0, offset);
    }
    assert_in_range(fixed, 0, 12);
    assert_in_range(epochs, 0, 12);
    assert_in_range(seeds, 0, 12);
}

/* Small sets, where a Feistel network is at its weakest: every order equally often over epochs. */
static void test_all_orders_of_small_sets(void **state)
{
    (void)state;
    enum { EPOCHS = 24000 };
    static const struct {
        size_t n, orders;
        double bound; /* orders - 1 degrees of freedom */
    } set[] = {{2, 2, 16.2}, {3, 6, 26.3}, {4, 24, 57.3}};
    for (size_t s = 0; s < sizeof set / sizeof set[0]; s++) {
        struct sampler sampler = {.seed = 11, .n = set[s].n};
        size_t seen[256] = {0}, cells[24], found = 0;
        for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
            size_t code = 0;
            for (size_t offset = 0; offset < set[s].n; offset++)
                code = code * 4 + sampler_at(&sampler, epoch, offset);
            seen[code]++;
        }
        for (size_t code = 0; code < 256; code++)
            if (seen[code] > 0 && found < 24)
                cells[found++] = seen[code];
        assert_int_equal(found, set[s].orders);
        char what[32];
        snprintf(what, sizeof what, "orders of %zu", set[s].n);
        check_below(what, chi_square(cells, found, EPOCHS / (double)found), set[s].bound);
    }
}

/* Where does each record stand? Anywhere, equally often. Of n^2 cells (n-1)^2 are free, so the sum
 * is n/(n-1) times a chi-square of that many degrees. */
static void test_every_record_stands_everywhere(void **state)
{
    (void)state;
    enum { EPOCHS = 10000 };
    static const struct {
        size_t n;
        double bound;
    } set[] = {{5, 57.8}, {7, 89.3}, {16, 333.5}, {17, 370.7}};
    for (size_t s = 0; s < sizeof set / sizeof set[0]; s++) {
        size_t n = set[s].n, seen[17 * 17] = {0};
        struct sampler sampler = {.seed = 5, .n = n};
        for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
            for (size_t offset = 0; offset < n; offset++)
                seen[offset * n + sampler_at(&sampler, epoch, offset)]++;
        char what[32];
        snprintf(what, sizeof what, "places of %zu", n);
        check_below(what, chi_square(seen, n * n, EPOCHS / (double)n), set[s].bound);
    }
}

/* One epoch of 60000 in tenths: neither the place nor the record before tells the record. */
static void test_a_large_epoch_is_well_mixed(void **state)
{
    (void)state;
    struct sampler sampler = {.seed = 1, .n = 60000};
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        size_t by_offset[100] = {0}, by_neighbour[100] = {0}, before = 0;
        for (size_t offset = 0; offset < sampler.n; offset++) {
            size_t tenth = sampler_at(&sampler, epoch, offset) / 6000;
            by_offset[offset / 6000 * 10 + tenth]++;
            by_neighbour[before * 10 + tenth]++;
            before = tenth;
        }
        check_below("place and record", chi_square(by_offset, 100, 600), 137);
        check_below("neighbours", chi_square(by_neighbour, 100, 600), 137);
    }
}

/* Of ranges: each of their records once in an epoch, no other, and counted by range. */
static void test_ranges(void **state)
{
    (void)state;
    const struct range range[] = {{40, 5}, {0, 1}, {60, 14}};
    const struct sampler sampler = {.seed = 3, .n = 20, .range = range, .ranges = 3};
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        size_t seen[80] = {0};
        for (size_t place = 0; place < 20; place++)
            seen[sampler_at(&sampler, epoch, place)]++;
        for (size_t i = 0; i < 80; i++)
            assert_int_equal(seen[i], i == 0 || (i >= 40 && i < 45) || (i >= 60 && i < 74));
    }
    uint64_t all[3] = {0}, parts[3] = {0}, by_hand[3] = {0}, one = 7;
    sampler_count(&sampler, 20, 60, all);
    for (uint64_t start = 20; start < 80; start += 4)
        sampler_count(&sampler, start, 4, parts);
    for (uint64_t at = 20; at < 80; at++) {
        size_t record = sampler_at(&sampler, at / 20, at % 20);
        by_hand[record == 0 ? 1 : record < 60 ? 0 : 2]++;
    }
    assert_memory_equal(all, by_hand, sizeof all);
    assert_memory_equal(parts, by_hand, sizeof all);
    assert_true(all[0] == 15 && all[1] == 3 && all[2] == 42);
    sampler_count(&(struct sampler){.seed = 1, .n = 9}, 4, 30, &one);
    assert_int_equal(one, 37);
}

/* Streams side by side, the same in each epoch; what is left comes last. */
static void test_streams(void **state)
{
    (void)state;
    static const size_t expected[] = {0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11, 12, 13};
    const struct sampler sampler = {.seed = 3, .n = 14, .streams = 3};
    for (uint64_t epoch = 0; epoch < 3; epoch++)
        for (size_t place = 0; place < 14; place++)
            assert_int_equal(sampler_at(&sampler, epoch, place), expected[place]);
    const struct range range[] = {{40, 5}, {0, 2}};
    const struct sampler own = {.n = 7, .range = range, .ranges = 2, .streams = 2};
    static const size_t of_ranges[] = {40, 43, 41, 44, 42, 0, 1};
    for (size_t place = 0; place < 7; place++)
        assert_int_equal(sampler_at(&own, 1, place), of_ranges[place]);
    for (size_t n = 1; n < 40; n++)
        check_permutation((struct sampler){.n = n, .streams = 5}, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_permutation_for_every_n),
        cmocka_unit_test(test_the_widest_sets),
        cmocka_unit_test(test_any_place_in_any_order),
        cmocka_unit_test(test_epochs_and_seeds_differ),
        cmocka_unit_test(test_all_orders_of_small_sets),
        cmocka_unit_test(test_every_record_stands_everywhere),
        cmocka_unit_test(test_a_large_epoch_is_well_mixed),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
