/* Reductions against single elements compared in double, on ranges that start and end anywhere; and
 * where floats are odd (zeros, NaNs), against a table and in every order. */
#include "tensor/reduce.h"

#include "base/rng.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { N = 4099, ROUNDS = 60, SEED = 3 };

static const struct reduction sum = {.kind = REDUCE_SUM};
static const struct reduction max = {.kind = REDUCE_MAX};
static const struct reduction min = {.kind = REDUCE_MIN};

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Mostly of all sizes, some equal to what other streams have, no NaN. */
static float input_value(uint64_t stream, uint64_t i)
{
    uint32_t word[4];
    rng_block(SEED, stream, i, word);
    float x = of_bits(word[0]);
    return word[1] % 8 == 0 ? (float)(word[2] % 3) - 1 : isfinite(x) ? x : INFINITY;
}

static uint32_t reduced_bits(const struct reduction *r, float y, float x)
{
    reduce_range(r, &y, &x, 1);
    return bits_of(y);
}

static float expected_value(const struct reduction *r, float y, float x)
{
    double p = (double)y, q = (double)x;
    switch (r->kind) {
    case REDUCE_SUM: return (float)(p + q); /* doubles are wide enough for one rounding to do */
    case REDUCE_MAX: return p > q ? y : x;
    default: return p < q ? y : x;
    }
}

static void test_a_range_is_its_elements(void **state)
{
    (void)state;
    const struct reduction *all[] = {&sum, &max, &min};
    static float x[N], y[N], start[N];
    for (uint64_t round = 0; round < ROUNDS; round++) {
        const struct reduction *r = all[round % 3];
        size_t from = rng_below(SEED, 1, round, N);
        size_t n = round < 6 ? round / 3 : rng_below(SEED, 2, round, N - from + 1);
        for (size_t i = 0; i < N; i++) {
            x[i] = input_value(10 + round, i);
            y[i] = start[i] = input_value(100 + round, i);
            if (r->kind == REDUCE_SUM && isinf(x[i]))
                y[i] = start[i] = x[i];
        }
        n = n < N - from ? n : N - from;
        reduce_range(r, y + from, x + from, n);
        for (size_t i = 0; i < N; i++) {
            bool inside = i >= from && i < from + n;
            float want = inside ? expected_value(r, start[i], x[i]) : start[i];
            assert_true(inside ? y[i] == want : bits_of(y[i]) == bits_of(want));
        }
    }
}

static void test_zeros_have_an_order(void **state)
{
    (void)state;
    const uint32_t plus = 0, minus = 0x80000000u;
    float p = of_bits(plus), m = of_bits(minus);
    assert_int_equal(reduced_bits(&max, p, m), plus);
    assert_int_equal(reduced_bits(&max, m, p), plus);
    assert_int_equal(reduced_bits(&max, m, m), minus);
    assert_int_equal(reduced_bits(&min, p, m), minus);
    assert_int_equal(reduced_bits(&min, m, p), minus);
    assert_int_equal(reduced_bits(&min, p, p), plus);
    assert_int_equal(reduced_bits(&max, m, of_bits(minus | 1)), minus);
    assert_int_equal(reduced_bits(&min, p, of_bits(1)), plus);
}

static void test_a_nan_on_either_side_gives_nan(void **state)
{
    (void)state;
    const uint32_t nans[] = {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xff812345u, 0xffffffffu};
    const float others[] = {0, -0.0f, 1, -FLT_MAX, INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++)
        for (size_t j = 0; j < sizeof others / sizeof *others; j++) {
            float nan = of_bits(nans[i]), x = others[j];
            assert_int_equal(reduced_bits(&max, nan, x), 0x7fc00000u);
            assert_int_equal(reduced_bits(&max, x, nan), 0x7fc00000u);
            assert_int_equal(reduced_bits(&min, nan, x), 0x7fc00000u);
            assert_int_equal(reduced_bits(&min, x, nan), 0x7fc00000u);
            assert_true(isnan(of_bits(reduced_bits(&sum, nan, x))));
            assert_true(isnan(of_bits(reduced_bits(&sum, x, nan))));
        }
}

/* In a range wide enough for vector instructions as in a single element, whatever the order in
 * which three ranks' values meet. */
static void test_order_does_not_show(void **state)
{
    (void)state;
    const uint32_t odd[] = {0,           0x80000000u, 1,           0x80000001u, 0x3f800000u,
                            0xbf800000u, 0x7f800000u, 0xff800000u, 0x7f800001u, 0xffc00001u};
    enum { ODD = sizeof odd / sizeof *odd, CASES = ODD * ODD * ODD };
    static float a[CASES], b[CASES], c[CASES], one[CASES], two[CASES];
    for (size_t i = 0; i < CASES; i++) {
        a[i] = of_bits(odd[i % ODD]);
        b[i] = of_bits(odd[i / ODD % ODD]);
        c[i] = of_bits(odd[i / ODD / ODD]);
    }
    for (int k = 0; k < 2; k++) {
        const struct reduction *r = k ? &max : &min;
        memcpy(one, a, sizeof a); /* (a ∘ b) ∘ c */
        reduce_range(r, one, b, CASES);
        reduce_range(r, one, c, CASES);
        memcpy(two, c, sizeof c); /* (c ∘ b) ∘ a */
        reduce_range(r, two, b, CASES);
        reduce_range(r, two, a, CASES);
        assert_memory_equal(one, two, sizeof one);
        for (size_t i = 0; i < CASES; i++)
            assert_int_equal(bits_of(one[i]),
                             reduced_bits(r, of_bits(reduced_bits(r, a[i], b[i])), c[i]));
    }
}

struct calls {
    size_t count, floats;
};

static void reduce_product(void *user, float *y, const float *x, size_t n)
{
    struct calls *calls = user;
    calls->count++;
    calls->floats += n;
    for (size_t i = 0; i < n; i++)
        y[i] *= x[i];
}

static void test_the_user_brings_a_product(void **state)
{
    (void)state;
    struct calls calls = {0};
    struct reduction r = {REDUCE_USER, reduce_product, &calls};
    float y[5] = {1, 2, 3, 4, 5}, x[5] = {2, 2, 2, 2, 2};
    reduce_range(&r, y, x, 3);
    reduce_range(&r, y + 3, x + 3, 0);
    reduce_range(&r, y + 4, x + 4, 1);
    assert_memory_equal(y, ((float[]){2, 4, 6, 4, 10}), sizeof y);
    assert_int_equal(calls.count, 2); /* never for no floats */
    assert_int_equal(calls.floats, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_range_is_its_elements),
        cmocka_unit_test(test_zeros_have_an_order),
        cmocka_unit_test(test_a_nan_on_either_side_gives_nan),
        cmocka_unit_test(test_order_does_not_show),
        cmocka_unit_test(test_the_user_brings_a_product),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
