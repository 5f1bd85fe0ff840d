/* Codes against bytes worked out by hand and against the definition in codec.h, computed slowly in
 * double with libm; then what collectives lean on: codes of decoded values are the same codes, on
 * millions of values of every kind, and feedback loses nothing in the long run. */
#include "tensor/codec.h"

#include "base/bytes.h"
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

enum { SEED = 5, N_MAX = 1100, BYTES_MAX = 4 * N_MAX + 16, NAN_BITS = 0x7fc00000 };

static const enum codec codecs[] = {CODEC_F32, CODEC_BF16, CODEC_INT8};

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

enum kind {
    NORMAL,
    ANY_SIZE,
    SUBNORMAL,
    ZEROS,
    ONE_HUGE,
    NEAR_MAX,
    TIES,
    ANY_BITS, /* infinities and NaNs, too */
    KINDS,
};

static float input_value(enum kind kind, uint64_t stream, uint64_t i)
{
    uint32_t w[4];
    rng_block(SEED, stream, i, w);
    uint32_t sign = w[1] & 0x80000000u;
    float any = of_bits(w[0]);
    switch (kind) {
    case NORMAL: return rng_normal(SEED, stream, i);
    case ANY_SIZE: return isfinite(any) ? any : 1;
    case SUBNORMAL: return of_bits(w[0] % 0x800000u >> w[2] % 23 | sign);
    case ZEROS: return of_bits(sign);
    case ONE_HUGE: return i % CODEC_BLOCK == w[3] % 3 ? 3e38f : 1e-38f * rng_normal(SEED, 1, i);
    case NEAR_MAX: return of_bits((0x7f7fffffu - w[0] % (1u << w[2] % 25)) | sign);
    case TIES: return ldexpf((float)(w[0] % 255) - 127 + 0.5f, (int)(stream % 200) - 140);
    default: return any;
    }
}

static void fill_values(float *x, size_t n, enum kind kind, uint64_t stream)
{
    for (size_t i = 0; i < n; i++)
        x[i] = input_value(kind, stream, i);
}

static void test_sizes_are_multiples_of_four(void **state)
{
    (void)state;
    const size_t want[][4] = {
        {0, 0, 0, 0},    {1, 4, 4, 8},          {3, 12, 8, 8},         {4, 16, 8, 8},
        {5, 20, 12, 12}, {256, 1024, 512, 260}, {257, 1028, 516, 268}, {512, 2048, 1024, 520},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        for (size_t k = 0; k < 3; k++)
            assert_int_equal(codec_bytes(codecs[k], want[i][0]), want[i][1 + k]);
}

static void test_the_bytes_are_these(void **state)
{
    (void)state;
    /* Largest 127·2: the scale is 2, and 3, 5, -1 fall midway between multiples of it. */
    const float x[5] = {254, 3, 5, -1, -253};
    const uint8_t f32[] = {0,    0,    0x7e, 0x43, 0,    0,    0x40, 0x40, 0,    0,
                           0xa0, 0x40, 0,    0,    0x80, 0xbf, 0,    0,    0x7d, 0xc3};
    const uint8_t bf16[] = {0x7e, 0x43, 0x40, 0x40, 0xa0, 0x40, 0x80, 0xbf, 0x7d, 0xc3, 0, 0};
    const uint8_t int8[] = {0, 0, 0, 0x40, 127, 2, 2, 0, 0x82, 0, 0, 0};
    const struct {
        const uint8_t *bytes;
        size_t len;
    } want[] = {{f32, sizeof f32}, {bf16, sizeof bf16}, {int8, sizeof int8}};
    for (size_t k = 0; k < 3; k++) {
        uint8_t out[20];
        assert_int_equal(codec_bytes(codecs[k], 5), want[k].len);
        memset(out, 0xee, sizeof out);
        codec_encode(codecs[k], x, 5, out);
        assert_memory_equal(out, want[k].bytes, want[k].len);
    }
    float y[5];
    codec_decode(CODEC_INT8, int8, 5, y);
    assert_memory_equal(y, ((float[]){254, 4, 4, 0, -252}), sizeof y);
}

static uint16_t bf16_of(float x)
{
    uint8_t out[4];
    codec_encode(CODEC_BF16, &x, 1, out);
    assert_int_equal(out[2] | out[3], 0);
    return (uint16_t)(out[0] | out[1] << 8);
}

static void test_bf16_of_single_values(void **state)
{
    (void)state;
    const uint32_t want[][2] = {
        {0x00000000, 0x0000}, {0x80000000, 0x8000}, {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80},
        {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82}, /* ties, and past one */
        {0x3fffffff, 0x4000}, {0x00008000, 0x0000}, {0x00018000, 0x0002}, {0x807fffff, 0x8080},
        {0x7f7f7fff, 0x7f7f}, {0x7f7f8000, 0x7f80}, {0xff7fffff, 0xff80}, /* the largest, beyond */
        {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x7f800001, 0x7fc0}, {0xff812345, 0xffc1},
        {0x7fffffff, 0x7fff}, {0xffffffff, 0xffff},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_int_equal(bf16_of(of_bits(want[i][0])), want[i][1]);
}

/* A bfloat16 in double; the code after the largest number stands for the next power of two. */
static double bf16_value(uint32_t code)
{
    return code == 0x7f80 ? ldexp(1, 128) : (double)of_bits(code << 16);
}

static void test_bf16_is_the_nearest(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 400000; i++) {
        float x = input_value(i % 3 ? ANY_SIZE : SUBNORMAL, 7, i);
        uint32_t below = (bits_of(x) & 0x7fffffffu) >> 16, code = bf16_of(x);
        double m = fabs((double)x), down = m - bf16_value(below), up = bf16_value(below + 1) - m;
        uint32_t want = down < up || (down == up && below % 2 == 0) ? below : below + 1;
        assert_int_equal(code & 0x7fffu, want);
        assert_int_equal(code >> 15, bits_of(x) >> 31);
    }
}

static void test_codec_bf16_round_trips(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= 0xffff; code++) {
        uint8_t in[4] = {(uint8_t)code, (uint8_t)(code >> 8), 0, 0};
        float x;
        codec_decode(CODEC_BF16, in, 1, &x);
        assert_int_equal(bits_of(x), code << 16);
        assert_int_equal(bf16_of(x), isnan(x) ? code | 0x40 : code);
    }
}

/* The definition of int8 for one block. */
static void int8_as_defined(const float *x, size_t n, uint8_t *out)
{
    double most = 0;
    bool finite = true;
    int e = -149;
    for (size_t i = 0; i < n; i++) {
        finite = finite && isfinite(x[i]);
        most = fmax(most, fabs((double)x[i]));
    }
    while (finite && e < 121 && most > ldexp(127, e))
        e++;
    bytes_put_le32(out, finite ? bits_of((float)ldexp(1, e)) : NAN_BITS);
    memset(out + 4, 0, (n + 3) / 4 * 4);
    for (size_t i = 0; finite && i < n; i++) {
        double q = nearbyint((double)x[i] / ldexp(1, e));
        out[4 + i] = (uint8_t)(int)fmax(-127, fmin(127, q));
    }
}

static void test_int8_is_as_defined(void **state)
{
    (void)state;
    static float x[CODEC_BLOCK];
    for (uint64_t round = 0; round < 160 * KINDS; round++) {
        uint8_t want[260], got[260];
        size_t n = round % 3 ? CODEC_BLOCK : 1 + rng_below(SEED, 2, round, CODEC_BLOCK);
        fill_values(x, n, (enum kind)(round % KINDS), 1000 + round);
        int8_as_defined(x, n, want);
        codec_encode(CODEC_INT8, x, n, got);
        assert_memory_equal(got, want, codec_bytes(CODEC_INT8, n));
    }
}

/* Half a step, or a whole one of the largest scale where q stops. */
static void test_int8_errs_by_half_a_step(void **state)
{
    (void)state;
    static float x[CODEC_BLOCK], y[CODEC_BLOCK];
    for (uint64_t round = 0; round < 100 * (KINDS - 1); round++) {
        uint8_t code[260];
        fill_values(x, CODEC_BLOCK, (enum kind)(round % (KINDS - 1)), 5000 + round);
        codec_encode(CODEC_INT8, x, CODEC_BLOCK, code);
        codec_decode(CODEC_INT8, code, CODEC_BLOCK, y);
        double scale = (double)of_bits(bytes_le32(code));
        for (size_t i = 0; i < CODEC_BLOCK; i++) {
            bool stops = fabs((double)x[i]) > 127 * scale;
            double off = fabs((double)x[i] - (double)y[i]);
            assert_true(isfinite(y[i]) && (stops ? off < scale : off <= scale / 2));
            assert_true(!stops || scale == ldexp(1, 121));
        }
    }
}

static void test_a_block_that_is_not_finite_decodes_to_nans(void **state)
{
    (void)state;
    enum { N = 2 * CODEC_BLOCK + 7 };
    const float bad[] = {INFINITY, -INFINITY, NAN, of_bits(0xff800001u)};
    static float x[N], y[N];
    for (size_t k = 0; k < 12; k++) {
        size_t block = k % 3, at = block * CODEC_BLOCK + k / 3 + 3;
        uint8_t code[260 + 260 + 12], again[sizeof code];
        assert_int_equal(codec_bytes(CODEC_INT8, N), sizeof code);
        fill_values(x, N, NORMAL, 40 + k);
        x[at] = bad[k / 3];
        codec_encode(CODEC_INT8, x, N, code);
        codec_decode(CODEC_INT8, code, N, y);
        for (size_t i = 0; i < N; i++)
            assert_int_equal(isnan(y[i]), i / CODEC_BLOCK == block);
        assert_int_equal(bits_of(y[at]), NAN_BITS);
        codec_encode(CODEC_INT8, y, N, again);
        assert_memory_equal(again, code, sizeof code);
    }
}

/* Every rank of an all-gather relies on this when it forwards decoded values. */
static void test_codes_of_decoded_values_are_the_same(void **state)
{
    (void)state;
    static float x[N_MAX], y[N_MAX], z[N_MAX];
    static uint8_t code[BYTES_MAX], again[BYTES_MAX];
    size_t total = 0;
    for (uint64_t round = 0; total < 2500000; round++) {
        size_t n = 1 + rng_below(SEED, 3, round, N_MAX);
        total += n;
        fill_values(x, n, (enum kind)(round % KINDS), 10000 + round);
        for (size_t k = 0; k < 3; k++) {
            codec_encode(codecs[k], x, n, code);
            codec_decode(codecs[k], code, n, y);
            codec_encode(codecs[k], y, n, again);
            codec_decode(codecs[k], again, n, z);
            assert_memory_equal(again, code, codec_bytes(codecs[k], n));
            assert_memory_equal(z, y, n * sizeof *y);
            assert_true(k > 0 || memcmp(x, y, n * sizeof *x) == 0);
        }
    }
}

/* Floats begin anywhere in an array and bytes at any address; their neighbours are not touched. */
static void test_codec_any_offset_and_length(void **state)
{
    (void)state;
    static float x[N_MAX], y[N_MAX + 8];
    static uint8_t here[BYTES_MAX], there[BYTES_MAX + 16];
    fill_values(x, N_MAX, NORMAL, 60);
    for (uint64_t round = 0; round < 600; round++) {
        enum codec codec = codecs[round % 3];
        size_t shift = round % 8, n = rng_below(SEED, 4, round, round < 300 ? 20 : 1024);
        size_t len = codec_bytes(codec, n), from = rng_below(SEED, 6, round, 64);
        codec_encode(codec, x + from, n, here);
        memset(there, 0xa5, sizeof there);
        codec_encode(codec, x + from, n, there + 1 + shift);
        assert_memory_equal(there + 1 + shift, here, len);
        assert_int_equal(there[shift], 0xa5);
        assert_int_equal(there[1 + shift + len], 0xa5);
        for (size_t i = 0; i < N_MAX + 8; i++)
            y[i] = 77;
        codec_decode(codec, there + 1 + shift, n, y + 1 + shift);
        assert_true(y[shift] == 77 && y[1 + shift + n] == 77);
        codec_encode(codec, y + 1 + shift, n, there);
        assert_memory_equal(there, here, len);
    }
}

static void test_codec_parts_at_blocks(void **state)
{
    (void)state;
    enum { N = 4 * CODEC_BLOCK + 33 };
    static float x[N];
    static uint8_t whole[BYTES_MAX], parts[BYTES_MAX];
    fill_values(x, N, NORMAL, 61);
    for (size_t k = 0; k < 3; k++) {
        size_t cut = (k + 1) * CODEC_BLOCK, at = codec_bytes(codecs[k], cut);
        codec_encode(codecs[k], x, N, whole);
        codec_encode(codecs[k], x, cut, parts);
        codec_encode(codecs[k], x + cut, N - cut, parts + at);
        assert_int_equal(at + codec_bytes(codecs[k], N - cut), codec_bytes(codecs[k], N));
        assert_memory_equal(parts, whole, codec_bytes(codecs[k], N));
    }
}

/* Bytes of a stranger need not be a code: they decode to some values, within bounds. */
static void test_any_bytes_decode(void **state)
{
    (void)state;
    static uint8_t in[BYTES_MAX];
    static float y[N_MAX];
    for (uint64_t round = 0; round < 30; round++) {
        for (size_t i = 0; i < BYTES_MAX; i++)
            in[i] = (uint8_t)rng_u64(SEED, 70 + round, i);
        codec_decode(codecs[round % 3], in, N_MAX - 9, y);
        assert_true(y[N_MAX - 9] == 0);
    }
}

/* Half the distance between what can be sent around this value. */
static double half_step(enum codec codec, const uint8_t *code, size_t i, float sum)
{
    if (codec == CODEC_F32)
        return 0;
    if (codec == CODEC_BF16)
        return ldexp(1, ilogb((double)sum) - 8);
    return (double)of_bits(bytes_le32(code + i / CODEC_BLOCK * 260)) / 2;
}

static void test_feedback_loses_nothing_in_the_long_run(void **state)
{
    (void)state;
    enum { N = 300, ROUNDS = 1000 };
    static float x[N], residual[N], before[N], y[N];
    static double total[N], step[N];
    static uint8_t code[BYTES_MAX];
    for (size_t k = 0; k < 3; k++) {
        fill_values(x, N, NORMAL, 80 + k);
        memset(residual, 0, sizeof residual);
        memset(total, 0, sizeof total);
        memset(step, 0, sizeof step);
        for (int round = 0; round < ROUNDS; round++) {
            memcpy(before, residual, sizeof before);
            codec_encode_feedback(codecs[k], x, residual, N, code);
            codec_decode(codecs[k], code, N, y);
            for (size_t i = 0; i < N; i++) {
                float sum = x[i] + before[i];
                double half = half_step(codecs[k], code, i, sum);
                assert_true(fabs((double)residual[i]) <= half);
                assert_true((double)y[i] + (double)residual[i] == (double)sum);
                step[i] = fmax(step[i], half);
                total[i] += (double)y[i];
            }
        }
        /* The mean's error is the last residual; and each sum x + residual was rounded. */
        for (size_t i = 0; i < N; i++) {
            double rounding = fabs((double)x[i]) * (double)FLT_EPSILON + step[i] * 0x1p-24;
            double off = fabs(total[i] / ROUNDS - (double)x[i]);
            assert_true(off <= step[i] / ROUNDS + rounding);
        }
    }
}

/* Without feedback a value far below half a step would never arrive at all. */
static void test_feedback_carries_small_values_across(void **state)
{
    (void)state;
    float x[2] = {100, 0.01f}, residual[2] = {0}, y[2];
    uint8_t code[8];
    int arrived = 0;
    codec_encode(CODEC_INT8, x, 2, code);
    codec_decode(CODEC_INT8, code, 2, y);
    assert_true(y[1] == 0);
    for (int round = 0; round < 1000; round++) {
        codec_encode_feedback(CODEC_INT8, x, residual, 2, code);
        codec_decode(CODEC_INT8, code, 2, y);
        arrived += (int)y[1];
    }
    assert_int_equal(arrived, 10); /* of the scale, 1, each hundredth time */
}

static void test_residuals_stay_where_nothing_was_sent(void **state)
{
    (void)state;
    enum { N = CODEC_BLOCK + 2, BAD = 9 };
    static float x[N], residual[N];
    static uint8_t code[BYTES_MAX];
    for (size_t k = 0; k < 3; k++)
        for (size_t bad = 0; bad < 3; bad++) {
            for (size_t i = 0; i < N; i++) {
                x[i] = 1;
                residual[i] = 0.25f;
            }
            x[BAD] = bad == 0 ? NAN : bad == 1 ? -INFINITY : FLT_MAX;
            residual[BAD] = bad == 2 ? FLT_MAX : 0.25f; /* together beyond all floats */
            float kept = residual[BAD];
            codec_encode_feedback(codecs[k], x, residual, N, code);
            assert_true(residual[BAD] == kept);
            /* The whole block goes with it as int8; 1.25 is exact in the others. */
            assert_true(residual[BAD + 1] == (codecs[k] == CODEC_INT8 ? 0.25f : 0));
            assert_true(residual[N - 1] == 0);
        }
}

static void test_names_lead_to_codecs(void **state)
{
    (void)state;
    enum codec codec = CODEC_BF16;
    assert_string_equal(codec_name(CODEC_F32), "f32");
    assert_string_equal(codec_name(CODEC_BF16), "bf16");
    assert_string_equal(codec_name(CODEC_INT8), "int8");
    assert_true(codec_find("int8", &codec) && codec == CODEC_INT8);
    assert_true(codec_find("f32", &codec) && codec == CODEC_F32);
    assert_false(codec_find("int", &codec));
    assert_false(codec_find("", &codec));
    assert_int_equal(codec, CODEC_F32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_are_multiples_of_four),
        cmocka_unit_test(test_the_bytes_are_these),
        cmocka_unit_test(test_bf16_of_single_values),
        cmocka_unit_test(test_bf16_is_the_nearest),
        cmocka_unit_test(test_codec_bf16_round_trips),
        cmocka_unit_test(test_int8_is_as_defined),
        cmocka_unit_test(test_int8_errs_by_half_a_step),
        cmocka_unit_test(test_a_block_that_is_not_finite_decodes_to_nans),
        cmocka_unit_test(test_codes_of_decoded_values_are_the_same),
        cmocka_unit_test(test_codec_any_offset_and_length),
        cmocka_unit_test(test_codec_parts_at_blocks),
        cmocka_unit_test(test_any_bytes_decode),
        cmocka_unit_test(test_feedback_loses_nothing_in_the_long_run),
        cmocka_unit_test(test_feedback_carries_small_values_across),
        cmocka_unit_test(test_residuals_stay_where_nothing_was_sent),
        cmocka_unit_test(test_names_lead_to_codecs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
