/* Top-k codes against bytes worked out by hand and against the definition in codec.h, computed
 * slowly by sorting; what error feedback keeps; and codes of strangers, which are refused. */
#include "base/bytes.h"
#include "base/rng.h"
#include "tensor/codec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEED = 11, N_MAX = 2 * CODEC_TOPK_BLOCK + 500, BYTES_MAX = N_MAX / 4 + 64 };

static const enum codec codecs[] = {CODEC_TOPK16, CODEC_TOPK64};
static const size_t one_of[] = {16, 64};

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint32_t magnitude_of(float x)
{
    return bits_of(x) & 0x7fffffffu;
}

static float any_float(uint64_t stream, uint64_t i)
{
    uint32_t bits = (uint32_t)rng_u64(SEED, stream, i);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Of all sizes, many of them equal, mostly zeros, around the smallest bfloat16, any bits. */
static void fill_values(float *x, size_t n, uint64_t round)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t r = rng_u64(SEED, 1000 + round, i);
        switch (round % 5) {
        case 0: x[i] = rng_normal(SEED, round, i); break;
        case 1: x[i] = (float)(r % 5) - 2; break;
        case 2: x[i] = r % 40 ? 0 : rng_normal(SEED, round, i); break;
        case 3: x[i] = ldexpf((float)(r % 9) - 4, -135); break;
        default: x[i] = any_float(round, i);
        }
    }
}

static void test_topk_sizes(void **state)
{
    (void)state;
    assert_int_equal(codec_bytes(CODEC_TOPK16, 0), 0);
    assert_int_equal(codec_bytes(CODEC_TOPK16, 1), 4 + 4);
    assert_int_equal(codec_bytes(CODEC_TOPK16, 17), 4 + 2 * 4);
    assert_int_equal(codec_bytes(CODEC_TOPK16, 4096), 4 + 256 * 4);
    assert_int_equal(codec_bytes(CODEC_TOPK16, 4097), 4 + 256 * 4 + 4 + 4);
    assert_int_equal(codec_bytes(CODEC_TOPK64, 3 * 4096 + 65), 3 * (4 + 64 * 4) + 4 + 2 * 4);
}

static void test_topk_bytes_are_these(void **state)
{
    (void)state;
    /* k = 2: -4, and the first of the two 3s. As bfloat16, 3 is 0x4040, and -4 is 0xc080. */
    float x[17] = {0, 1.5f, 0, 3, 0, -4, 0, 3};
    const uint8_t want[] = {2, 0, 0, 0, 3, 0, 5, 0, 0x40, 0x40, 0x80, 0xc0};
    uint8_t code[sizeof want];
    float y[17];
    codec_encode(CODEC_TOPK16, x, 17, code);
    assert_memory_equal(code, want, sizeof want);
    assert_true(codec_decode(CODEC_TOPK16, code, 17, y));
    for (size_t i = 0; i < 17; i++)
        assert_true(y[i] == (i == 3 ? 3.0f : i == 5 ? -4.0f : 0.0f));
    const uint8_t none[12] = {0};
    memset(x, 0, sizeof x);
    codec_encode(CODEC_TOPK16, x, 17, code);
    assert_memory_equal(code, none, sizeof none);
}

static const float *sorted; /* by qsort */

static int compare_entries(const void *a, const void *b)
{
    size_t i = *(const size_t *)a, j = *(const size_t *)b;
    uint32_t x = magnitude_of(sorted[i]), y = magnitude_of(sorted[j]);
    return x != y ? (x > y ? -1 : 1) : (i > j) - (i < j);
}

static void test_topk_is_as_defined(void **state)
{
    (void)state;
    static float x[N_MAX], y[N_MAX], one[1];
    static size_t order[CODEC_TOPK_BLOCK];
    static bool kept[N_MAX];
    static uint8_t code[BYTES_MAX];
    for (uint64_t round = 0; round < 60; round++) {
        size_t codec = round % 2, n = 1 + rng_below(SEED, 3, round, N_MAX);
        fill_values(x, n, round);
        memset(kept, 0, sizeof kept);
        for (size_t at = 0; at < n; at += CODEC_TOPK_BLOCK) {
            size_t len = n - at < CODEC_TOPK_BLOCK ? n - at : CODEC_TOPK_BLOCK;
            for (size_t i = 0; i < len; i++)
                order[i] = i;
            sorted = x + at;
            qsort(order, len, sizeof *order, compare_entries);
            for (size_t i = 0; i < (len + one_of[codec] - 1) / one_of[codec]; i++)
                kept[at + order[i]] = true;
        }
        codec_encode(codecs[codec], x, n, code);
        assert_true(codec_decode(codecs[codec], code, n, y));
        for (size_t i = 0; i < n; i++) {
            uint8_t bf16[4];
            codec_encode(CODEC_BF16, &x[i], 1, bf16);
            codec_decode(CODEC_BF16, bf16, 1, one);
            bool zero = !kept[i] || magnitude_of(one[0]) == 0;
            assert_int_equal(bits_of(y[i]), zero ? 0 : bits_of(one[0]));
        }
    }
}

static void test_topk_codes_of_decoded_values_are_the_same(void **state)
{
    (void)state;
    static float x[N_MAX], y[N_MAX];
    static uint8_t code[BYTES_MAX], again[BYTES_MAX];
    for (uint64_t round = 0; round < 60; round++) {
        size_t n = 1 + rng_below(SEED, 4, round, N_MAX), codec = round % 2;
        fill_values(x, n, round);
        codec_encode(codecs[codec], x, n, code);
        assert_true(codec_decode(codecs[codec], code, n, y));
        codec_encode(codecs[codec], y, n, again);
        assert_memory_equal(again, code, codec_bytes(codecs[codec], n));
        codec_round(codecs[codec], x, n);
        assert_memory_equal(x, y, n * sizeof *x);
    }
}

/* All that was sent and the residual add up to all inputs: exactly, as these are small integers. */
static void test_topk_feedback_keeps_all(void **state)
{
    (void)state;
    enum { N = CODEC_TOPK_BLOCK + 300, ROUNDS = 200 };
    static float x[N], residual[N], again[N], y[N];
    static double given[N], sent[N];
    static uint8_t code[BYTES_MAX];
    for (size_t k = 0; k < 2; k++) {
        memset(residual, 0, sizeof residual);
        memset(given, 0, sizeof given);
        memset(sent, 0, sizeof sent);
        size_t arrived = 0;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            for (size_t i = 0; i < N; i++) {
                x[i] = (float)rng_below(SEED, round, i, 41) - 10;
                given[i] += (double)x[i];
            }
            memcpy(again, residual, sizeof again);
            codec_encode_feedback(codecs[k], x, residual, N, code);
            codec_round_feedback(codecs[k], x, again, N);
            assert_true(codec_decode(codecs[k], code, N, y));
            assert_memory_equal(x, y, sizeof x);
            assert_memory_equal(again, residual, sizeof again);
            for (size_t i = 0; i < N; i++) {
                sent[i] += (double)y[i];
                assert_true(sent[i] + (double)residual[i] == given[i]);
            }
        }
        for (size_t i = 0; i < N; i++)
            arrived += sent[i] != 0;
        assert_int_equal(arrived, N); /* each value's turn has come */
    }
}

static void test_topk_nan_is_sent(void **state)
{
    (void)state;
    static float x[CODEC_TOPK_BLOCK], residual[CODEC_TOPK_BLOCK], y[CODEC_TOPK_BLOCK];
    static uint8_t code[BYTES_MAX];
    for (size_t i = 0; i < CODEC_TOPK_BLOCK; i++)
        x[i] = 1e30f;
    x[4000] = NAN;
    codec_encode_feedback(CODEC_TOPK64, x, residual, CODEC_TOPK_BLOCK, code);
    assert_true(codec_decode(CODEC_TOPK64, code, CODEC_TOPK_BLOCK, y));
    assert_true(isnan(y[4000]) && residual[4000] == 0 && residual[3999] == 1e30f);
}

static void test_topk_damaged_codes_are_refused(void **state)
{
    (void)state;
    enum { N = 64, K = 4, BYTES = 4 + 4 * K };
    static const struct {
        uint8_t count, index[K];
        bool sound;
    } cases[] = {
        {4, {0, 1, 2, 63}, true},  {0, {0, 0, 0, 0}, true},    {2, {5, 63, 9, 9}, true},
        {5, {0, 1, 2, 3}, false},  {255, {0, 1, 2, 3}, false}, {1, {64, 0, 0, 0}, false},
        {4, {0, 1, 2, 64}, false}, {3, {2, 2, 3, 0}, false},   {3, {3, 2, 1, 0}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t code[BYTES] = {cases[i].count};
        float y[N + 1];
        for (size_t k = 0; k < K; k++)
            code[4 + 2 * k] = cases[i].index[k];
        y[N] = 77;
        assert_int_equal(codec_decode(CODEC_TOPK16, code, N, y), cases[i].sound);
        assert_true(y[N] == 77);
        code[4 + 2 * K - 1] = 0xff; /* the last index; a stranger's high byte */
        assert_int_equal(codec_decode(CODEC_TOPK16, code, N, y),
                         cases[i].sound && cases[i].count < K);
    }
    static uint8_t any[BYTES_MAX];
    static float y[N_MAX + 1];
    for (uint64_t round = 0; round < 2000; round++) {
        size_t n = 1 + rng_below(SEED, 5, round, 400);
        for (size_t i = 0; i < codec_bytes(CODEC_TOPK16, n); i++)
            any[i] = (uint8_t)(rng_u64(SEED, 70 + round, i) & (round % 2 ? 0x0f : 0xff));
        memset(any + 1, 0, round % 3 ? 3 : 0);
        y[n] = 77;
        (void)codec_decode(CODEC_TOPK16, any, n, y);
        assert_true(y[n] == 77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topk_sizes),
        cmocka_unit_test(test_topk_bytes_are_these),
        cmocka_unit_test(test_topk_is_as_defined),
        cmocka_unit_test(test_topk_codes_of_decoded_values_are_the_same),
        cmocka_unit_test(test_topk_feedback_keeps_all),
        cmocka_unit_test(test_topk_nan_is_sent),
        cmocka_unit_test(test_topk_damaged_codes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
