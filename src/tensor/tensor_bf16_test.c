/* Rounding to bf16, widening and adding, by the loops of each instruction set, against the
 * definition: of the two values around a number the nearer one, of two equally near the even. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tensor/bf16.h"
#include "tensor/bf16_loops.h"
#include "tensor/kernels.h"

#include <math.h>
#include <string.h>

enum { HALVES = 1 << 16, FLOATS = 1 << 18 };

#ifdef __x86_64__
extern const struct bf16_loops bf16_loops_avx2, bf16_loops_avx512;
static const struct bf16_loops *const tables[ISAS] = {&bf16_loops_plain, &bf16_loops_avx2,
                                                      &bf16_loops_avx512};
#else
static const struct bf16_loops *const tables[ISAS] = {&bf16_loops_plain};
#endif

static struct {
    float wide[FLOATS], sum[FLOATS];
    bf16 half[FLOATS], other[FLOATS];
} b;

/* ---- the definition ---- */

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* From its fields: a sign, 8 bits of exponent, 7 of fraction. An infinite value counts as the power
 * of two after the largest number, as IEEE 754 rounds. */
static double value_of(unsigned half)
{
    int exponent = (int)(half >> 7 & 0xff), fraction = (int)(half & 0x7f);
    double size = exponent == 0 ? ldexp(fraction, -126 - 7) : ldexp(128 + fraction, exponent - 134);
    return half & 0x8000 ? -size : size;
}

static bool is_none(unsigned half)
{
    return (half & 0x7fff) > 0x7f80;
}

/* Toward zero, then a step away from it if that is nearer, or as near and even. */
static unsigned nearest_bf16(float x)
{
    unsigned sign = signbit(x) ? 0x8000 : 0, low = 0, high = 0x7f80;
    double size = fabs((double)x);
    if (isinf(x))
        return sign | high;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (value_of(middle) <= size)
            low = middle;
        else
            high = middle;
    }
    double below = size - value_of(low), above = value_of(high) - size;
    bool up = above < below || (above == below && high % 2 == 0);
    return sign | (up ? high : low);
}

static void check_rounded(float x, bf16 got, const char *isa)
{
    if (isnan(x) ? is_none(got) && got >> 15 == bits_of(x) >> 31 : got == nearest_bf16(x))
        return;
    fail_msg("%s: %a (%08x) is rounded to %04x", isa, (double)x, bits_of(x), got);
}

/* ---- numbers ---- */

/* Around every value of bf16: itself, halfway to the next, and a bit to either side. */
static size_t fill_edges(float *x, unsigned first, unsigned end)
{
    static const uint32_t neighbour[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    size_t n = 0;
    for (unsigned half = first; half < end; half++)
        for (size_t i = 0; i < sizeof neighbour / sizeof *neighbour; i++)
            x[n++] = float_of(half << 16 | neighbour[i]);
    return n;
}

static size_t fill_any(float *x, uint64_t stream)
{
    for (size_t i = 0; i < FLOATS; i++)
        x[i] = float_of((uint32_t)rng_below(5, stream, i, (uint64_t)1 << 32));
    return FLOATS;
}

/* ---- tests ---- */

static void test_the_definition_by_hand(void **state)
{
    (void)state;
    assert_int_equal(nearest_bf16(1.0f), 0x3f80);
    assert_int_equal(nearest_bf16(-2.0f), 0xc000);
    assert_int_equal(nearest_bf16(1.00390625f), 0x3f80); /* 1 + 2^-8: halfway, down to even */
    assert_int_equal(nearest_bf16(1.01171875f), 0x3f82); /* 1 + 3·2^-8: halfway, up to even */
    assert_int_equal(nearest_bf16(1.00390637f), 0x3f81);
    assert_int_equal(nearest_bf16(0.0f), 0);
    assert_int_equal(nearest_bf16(-0.0f), 0x8000);
    assert_int_equal(nearest_bf16(3.4028235e38f),
                     0x7f80); /* the largest float is nearest to infinity */
    assert_int_equal(nearest_bf16(3.3895314e38f), 0x7f7f);
    assert_int_equal(nearest_bf16(float_of(0x8000)), 0); /* half of the least */
    assert_int_equal(nearest_bf16(float_of(0x8001)), 1);
    assert_true(value_of(0x4049) == 3.140625 && value_of(1) == 0x1p-133);
}

static void test_every_half_round_trips(void **state)
{
    (void)state;
    for (unsigned i = 0; i < HALVES; i++)
        b.half[i] = (bf16)i;
    for (enum isa isa = ISA_PLAIN; isa < ISAS && isa_runs(isa); isa++) {
        tables[isa]->widen(HALVES, b.half, b.wide);
        tables[isa]->round(HALVES, b.wide, b.other);
        for (unsigned i = 0; i < HALVES; i++) {
            assert_int_equal(bits_of(b.wide[i]), i << 16);
            assert_int_equal(bits_of(bf16_float((bf16)i)), i << 16);
            if (!is_none(i)) {
                assert_true(isinf(b.wide[i]) || (double)b.wide[i] == value_of(i));
                assert_int_equal(b.other[i], i);
            } else {
                assert_true(is_none(b.other[i]) && b.other[i] >> 15 == i >> 15);
            }
        }
    }
}

static void test_rounding(void **state)
{
    (void)state;
    enum { PART = FLOATS / 8 };
    for (enum isa isa = ISA_PLAIN; isa < ISAS && isa_runs(isa); isa++) {
        for (unsigned first = 0; first < HALVES; first += PART) {
            size_t n = fill_edges(b.wide, first, first + PART);
            tables[isa]->round(n, b.wide, b.half);
            for (size_t i = 0; i < n; i++)
                check_rounded(b.wide[i], b.half[i], isa_name(isa));
        }
        size_t n = fill_any(b.wide, isa);
        tables[isa]->round(n, b.wide, b.half);
        for (size_t i = 0; i < n; i++)
            check_rounded(b.wide[i], b.half[i], isa_name(isa));
    }
    for (size_t i = 0; i < 1000; i++)
        check_rounded(b.wide[i], bf16_nearest(b.wide[i]), "one");
}

/* The sum is the float's, rounded once: of any two of them, the same number for each bit pattern.
 */
static void test_adding(void **state)
{
    (void)state;
    for (enum isa isa = ISA_PLAIN; isa < ISAS && isa_runs(isa); isa++) {
        for (size_t i = 0; i < FLOATS; i++) {
            b.half[i] = (bf16)i;
            b.other[i] = (bf16)rng_below(5, 20, i, HALVES);
            b.wide[i] = bf16_float(b.half[i]);
            b.sum[i] = b.wide[i] + bf16_float(b.other[i]);
        }
        tables[isa]->add(FLOATS, b.half, b.other);
        for (size_t i = 0; i < FLOATS; i++)
            if (isnan(b.sum[i]) ? !is_none(b.other[i]) : b.other[i] != nearest_bf16(b.sum[i]))
                fail_msg("%s: with %a the sum is %a, rounded to %04x", isa_name(isa),
                         (double)b.wide[i], (double)b.sum[i], b.other[i]);
    }
}

/* Any length from anywhere: what lies around stays. */
static void test_any_length(void **state)
{
    (void)state;
    enum { MOST = 70, ROOM = MOST + 40, GUARD = 0xabcd };
    float x[ROOM], back[ROOM];
    bf16 y[ROOM], sum[ROOM];
    for (size_t i = 0; i < ROOM; i++)
        x[i] = rng_normal(5, 30, i);
    for (enum isa isa = ISA_PLAIN; isa < ISAS && isa_runs(isa); isa++)
        for (size_t n = 0; n < MOST; n++)
            for (size_t at = 3; at < 6; at++) {
                for (size_t i = 0; i < ROOM; i++) {
                    y[i] = sum[i] = GUARD;
                    back[i] = 7;
                }
                tables[isa]->round(n, x + at, y + at);
                tables[isa]->widen(n, y + at, back + at);
                memcpy(sum + at, y + at, n * sizeof *y);
                tables[isa]->add(n, y + at, sum + at);
                for (size_t i = 0; i < ROOM; i++) {
                    bool inside = i >= at && i < at + n;
                    float once = inside ? bf16_float((bf16)nearest_bf16(x[i])) : 7;
                    assert_int_equal(y[i], inside ? nearest_bf16(x[i]) : GUARD);
                    assert_true(back[i] == once);
                    assert_int_equal(sum[i], inside ? nearest_bf16(2 * once) : GUARD);
                }
            }
}

/* Long arrays, which threads share, and short ones. */
static void test_any_number_of_threads(void **state)
{
    (void)state;
    static const size_t lengths[] = {1, 1000, 50000, 65536, 131071, FLOATS};
    for (int threads = 1; threads <= 3; threads++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            size_t n = lengths[k];
            for (size_t i = 0; i < n; i++)
                b.wide[i] = rng_normal(5, 40 + k, i);
            kernels_set_threads(threads);
            bf16_round(n, b.wide, b.half);
            bf16_widen(n, b.half, b.sum);
            memcpy(b.other, b.half, n * sizeof *b.half);
            bf16_add(n, b.half, b.other);
            kernels_set_threads(1);
            for (size_t i = 0; i < n; i++) {
                assert_int_equal(b.half[i], nearest_bf16(b.wide[i]));
                assert_true((double)b.sum[i] == value_of(b.half[i]));
                assert_int_equal(b.other[i], nearest_bf16(2 * b.sum[i]));
            }
        }
}

/* It is refused where the loops are narrower than the products need, with the reason. */
static void test_what_is_needed(void **state)
{
    (void)state;
    struct err err = {0};
    int rc = bf16_check(&err);
    if (rc == OK) {
        assert_true(isa_best() == ISA_AVX512);
        return;
    }
    assert_int_equal(rc, ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "precision: bf16"));
    if (isa_best() < ISA_AVX512)
        assert_non_null(strstr(err.text, "AVX"));
}

int main(void)
{
    kernels_set_threads(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_definition_by_hand),
        cmocka_unit_test(test_every_half_round_trips),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_adding),
        cmocka_unit_test(test_any_length),
        cmocka_unit_test(test_any_number_of_threads),
        cmocka_unit_test(test_what_is_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
