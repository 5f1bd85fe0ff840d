/* The generator against its published answers; the distributions against their moments. Draws
 * are fixed, so a bound of five standard deviations is passed or failed for ever. */
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

enum { DRAWS = 200000 };

/* Known answers of Philox4x32-10 (Random123, kat_vectors). Counter words 0 and 1 are our counter,
 * 2 and 3 the stream; the key is the seed; low word first. */
static void test_published_vectors(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed, stream, counter;
        uint32_t out[4];
    } known[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822,
         0x0370734413198a2e,
         0x85a308d3243f6a88,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint32_t out[4];
        rng_block(known[i].seed, known[i].stream, known[i].counter, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
    assert_true(rng_u64(0, 0, 0) == 0xe169c58d6627e8d5);
}

/* By hand from the first two words of the vectors. */
static void test_what_is_made_of_a_block(void **state)
{
    (void)state;
    assert_true(rng_uniform(0, 0, 0) == (float)0xe169c5 / 16777216.0f);
    /* sqrt(-2 log 0.39904647) cos(2 pi 0.88052016); sqrt(-2 log 0.25218434) cos(2 pi 0.25695866) */
    assert_true(fabs((double)rng_normal(0, 0, 0) - 0.9911376790966604) < 1e-7);
    assert_true(fabs((double)rng_normal(UINT64_MAX, UINT64_MAX, UINT64_MAX) + 0.0725807901083401) <
                1e-7);
    /* floor(0.88052016... * 1000) */
    assert_int_equal(rng_below(0, 0, 0, 1000), 880);
}

static void test_uniform_moments(void **state)
{
    (void)state;
    double sum = 0, squares = 0, lag = 0, before = 0.5;
    for (uint64_t i = 0; i < DRAWS; i++) {
        double u = (double)rng_uniform(1, RNG_MAP, i);
        assert_true(u >= 0 && u < 1);
        assert_true(floor(u * 0x1p24) == u * 0x1p24);
        sum += u;
        squares += (u - 0.5) * (u - 0.5);
        lag += (u - 0.5) * (before - 0.5);
        before = u;
    }
    assert_true(fabs(sum / DRAWS - 0.5) < 5 * sqrt(1.0 / 12 / DRAWS));
    assert_true(fabs(squares / DRAWS - 1.0 / 12) < 5 * sqrt(1.0 / 180 / DRAWS));
    assert_true(fabs(lag / DRAWS) < 5 * sqrt(1.0 / 144 / DRAWS));
}

static void test_normal_moments(void **state)
{
    (void)state;
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
    size_t beyond = 0, far = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        double z = (double)rng_normal(1, RNG_INIT, i);
        assert_true(fabs(z) < 6.7); /* sqrt(-2 log 2^-32) is 6.66 */
        m1 += z;
        m2 += z * z;
        m3 += z * z * z;
        m4 += z * z * z * z;
        beyond += fabs(z) > 1.959963984540054;
        far += z > 2.3263478740408408;
    }
    /* Variances of z, z^2, z^3, z^4 are 1, 2, 15, 96. */
    assert_true(fabs(m1 / DRAWS) < 5 * sqrt(1.0 / DRAWS));
    assert_true(fabs(m2 / DRAWS - 1) < 5 * sqrt(2.0 / DRAWS));
    assert_true(fabs(m3 / DRAWS) < 5 * sqrt(15.0 / DRAWS));
    assert_true(fabs(m4 / DRAWS - 3) < 5 * sqrt(96.0 / DRAWS));
    assert_true(fabs((double)beyond / DRAWS - 0.05) < 5 * sqrt(0.05 * 0.95 / DRAWS));
    assert_true(fabs((double)far / DRAWS - 0.01) < 5 * sqrt(0.01 * 0.99 / DRAWS));
}

/* Neighbouring seeds, streams and counters have nothing to do with one another. */
static void test_neighbours_are_strangers(void **state)
{
    (void)state;
    double seeds = 0, streams = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        double z = (double)rng_normal(1, 1, i);
        seeds += z * (double)rng_normal(2, 1, i);
        streams += z * (double)rng_normal(1, 2, i);
    }
    assert_true(fabs(seeds / DRAWS) < 5 * sqrt(1.0 / DRAWS));
    assert_true(fabs(streams / DRAWS) < 5 * sqrt(1.0 / DRAWS));
    assert_true(rng_u64(0, 0, (uint64_t)1 << 32) != rng_u64(0, 0, 1));
    assert_true(rng_u64(0, (uint64_t)1 << 32, 0) != rng_u64(0, 1, 0));
    assert_true(rng_u64((uint64_t)1 << 32, 0, 0) != rng_u64(1, 0, 0));
}

static void test_below_is_even(void **state)
{
    (void)state;
    size_t seen[10] = {0};
    for (uint64_t i = 0; i < DRAWS; i++) {
        uint64_t v = rng_below(3, RNG_SIM, i, 10);
        assert_true(v < 10);
        seen[v]++;
        assert_int_equal(rng_below(3, RNG_SIM, i, 1), 0);
        assert_true(rng_below(3, RNG_SIM, i, UINT64_MAX) < UINT64_MAX);
    }
    double chi2 = 0, expected = DRAWS / 10.0;
    for (int v = 0; v < 10; v++)
        chi2 += ((double)seen[v] - expected) * ((double)seen[v] - expected) / expected;
    assert_true(chi2 < 33.7); /* nine degrees of freedom, one in ten thousand */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_vectors),
        cmocka_unit_test(test_what_is_made_of_a_block),
        cmocka_unit_test(test_uniform_moments),
        cmocka_unit_test(test_normal_moments),
        cmocka_unit_test(test_neighbours_are_strangers),
        cmocka_unit_test(test_below_is_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
