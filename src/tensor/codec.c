#include "tensor/codec.h"

#include "base/fault.h"

#include <stdint.h>
#include <string.h>

static const char *const names[CODECS] = {
    [CODEC_F32] = "f32",       [CODEC_BF16] = "bf16",     [CODEC_INT8] = "int8",
    [CODEC_TOPK16] = "topk16", [CODEC_TOPK64] = "topk64",
};

enum {
    F32_BYTES = 4,
    BF16_BYTES = 2,
    SCALE_BYTES = 4,
    BLOCK_BYTES = SCALE_BYTES + CODEC_BLOCK,
    Q_MAX = 127,
    SCALE_LOG2_MIN = -149, /* the smallest float */
    SCALE_LOG2_MAX = 121,  /* beyond it 127 scales are no float */
    TOPK_COUNT = 4,        /* bytes before the entries of a block */
    TOPK_ENTRY = 4,
    TOPK_CODE_MAX = TOPK_COUNT + CODEC_TOPK_BLOCK / 16 * TOPK_ENTRY,
};

static const uint32_t quiet_nan = 0x7fc00000u, infinity = 0x7f800000u, magnitude = 0x7fffffffu;

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Stores and loads of the wire: plain ones where memory is little-endian, for the loops' sake. */
static inline void put_le32(uint8_t *at, uint32_t v)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    memcpy(at, &v, sizeof v);
}

static inline uint32_t get_le32(const uint8_t *at)
{
    uint32_t v;
    memcpy(&v, at, sizeof v);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    return v;
}

static inline void put_le16(uint8_t *at, uint16_t v)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap16(v);
#endif
    memcpy(at, &v, sizeof v);
}

static inline uint16_t get_le16(const uint8_t *at)
{
    uint16_t v;
    memcpy(&v, at, sizeof v);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap16(v);
#endif
    return v;
}

static void f32_encode(const float *restrict x, size_t n, uint8_t *restrict out)
{
    for (size_t i = 0; i < n; i++)
        put_le32(out + F32_BYTES * i, bits_of(x[i]));
}

static void f32_decode(const uint8_t *restrict in, size_t n, float *restrict x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = of_bits(get_le32(in + F32_BYTES * i));
}

/* Adding just under half of the last kept bit carries a larger remainder, and the kept bit itself
 * decides the tie. A NaN keeps its upper bits; the quiet bit, for those whose payload was cut. */
static inline uint16_t bf16_of(float x)
{
    uint32_t bits = bits_of(x);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    uint32_t nan = bits >> 16 | 0x40u;
    return (uint16_t)((int32_t)(bits & magnitude) > (int32_t)infinity ? nan : rounded);
}

static void bf16_encode(const float *restrict x, size_t n, uint8_t *restrict out)
{
    for (size_t i = 0; i < n; i++)
        put_le16(out + BF16_BYTES * i, bf16_of(x[i]));
    if (n % 2)
        put_le16(out + BF16_BYTES * n, 0);
}

static void bf16_decode(const uint8_t *restrict in, size_t n, float *restrict x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = of_bits((uint32_t)get_le16(in + BF16_BYTES * i) << 16);
}

/* Bits of the largest magnitude; infinities and NaNs are above all numbers. */
static uint32_t largest_of(const float *x, size_t n)
{
    int32_t most = 0; /* signed, as the narrower instruction sets compare */
    for (size_t i = 0; i < n; i++) {
        int32_t bits = (int32_t)(bits_of(x[i]) & magnitude);
        most = bits > most ? bits : most;
    }
    return (uint32_t)most;
}

/* 2^e as a double, in which the exponents of all floats are normal ones. */
static double power_of_two(int e)
{
    uint64_t bits = (uint64_t)(e + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* log2 of the smallest scale with most ≤ 127·scale. 127 is 2^6 times the largest fraction of seven
 * bits: a larger fraction carries into the exponent. */
static int scale_log2(float most)
{
    double m = (double)most;
    uint64_t bits;
    memcpy(&bits, &m, sizeof bits);
    int e = (int)((bits + ((uint64_t)1 << 46) - 1) >> 52) - 1023 - 6;
    e = e < SCALE_LOG2_MIN ? SCALE_LOG2_MIN : e;
    return e > SCALE_LOG2_MAX ? SCALE_LOG2_MAX : e;
}

/* Where floats are 1 apart, adding rounds to nearest even and leaves q in the lowest bits. The
 * factor 2^-e may be no float: it comes in two, of which each product is exact wherever it can
 * matter to q. */
static void quantise_block(const float *restrict x, size_t n, int e, uint8_t *restrict q)
{
    const float whole = 0x1.8p23f;
    const int32_t zero = (int32_t)bits_of(whole);
    const float a = (float)power_of_two(-e / 2), b = (float)power_of_two(-e - -e / 2);
    for (size_t i = 0; i < n; i++) {
        int32_t v = (int32_t)bits_of(x[i] * a * b + whole) - zero;
        v = v > Q_MAX ? Q_MAX : v;
        v = v < -Q_MAX ? -Q_MAX : v;
        q[i] = (uint8_t)v;
    }
}

static size_t block_padding(size_t bytes)
{
    return -bytes % 4;
}

static size_t block_len(size_t left)
{
    return left < CODEC_BLOCK ? left : CODEC_BLOCK;
}

static void int8_encode(const float *x, size_t n, uint8_t *out)
{
    for (size_t i = 0, len; i < n; i += len, out += BLOCK_BYTES) {
        len = block_len(n - i);
        uint32_t most = largest_of(x + i, len);
        if (most >= infinity) {
            put_le32(out, quiet_nan);
            memset(out + SCALE_BYTES, 0, len);
        } else {
            int e = scale_log2(of_bits(most));
            put_le32(out, bits_of((float)power_of_two(e)));
            quantise_block(x + i, len, e, out + SCALE_BYTES);
        }
        memset(out + SCALE_BYTES + len, 0, block_padding(len));
    }
}

/* A scale that is NaN makes all values NaN. */
static void scale_block(const int8_t *restrict q, float scale, size_t n, float *restrict x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)q[i] * scale;
}

static void int8_decode(const uint8_t *in, size_t n, float *x)
{
    for (size_t i = 0, len; i < n; i += len, in += BLOCK_BYTES) {
        len = block_len(n - i);
        scale_block((const int8_t *)in + SCALE_BYTES, of_bits(get_le32(in)), len, x + i);
    }
}

/* ---- top-k ---- */

/* One value of so many is sent; 0: all are. */
static size_t topk_one_of(enum codec codec)
{
    return codec == CODEC_TOPK16 ? 16 : codec == CODEC_TOPK64 ? 64 : 0;
}

static size_t topk_entries(enum codec codec, size_t n)
{
    size_t of = topk_one_of(codec);
    return (n + of - 1) / of;
}

/* The smallest float that bfloat16 does not round to 0. */
static const uint32_t topk_least = 0x00008001u;

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS, DIGIT_STEPS = 3 };

/* The k-th largest magnitude of at least k, by its bits: digit after digit, of those values that
 * agree with it so far. *ties: how many of that magnitude are among the k. */
static uint32_t topk_threshold(const float *x, size_t n, size_t k, size_t *ties)
{
    uint32_t known = 0, mask = 0;
    for (int step = DIGIT_STEPS - 1; step >= 0; step--) {
        uint16_t count[DIGITS] = {0};
        int shift = step * DIGIT_BITS;
        for (size_t i = 0; i < n; i++) {
            uint32_t m = bits_of(x[i]) & magnitude;
            if ((m & mask) == known)
                count[m >> shift & (DIGITS - 1)]++;
        }
        uint32_t digit = DIGITS - 1;
        while (count[digit] < k) {
            k -= count[digit];
            digit--;
        }
        known |= digit << shift;
        mask |= (uint32_t)(DIGITS - 1) << shift;
    }
    *ties = k;
    return known;
}

static void topk_encode_block(const float *x, size_t n, size_t k, uint8_t *out)
{
    uint8_t *index = out + TOPK_COUNT, *value = index + 2 * k;
    size_t ties, count = 0;
    uint32_t least = topk_threshold(x, n, k, &ties);
    memset(out, 0, TOPK_COUNT + TOPK_ENTRY * k);
    for (size_t i = 0; i < n && count < k; i++) {
        uint32_t m = bits_of(x[i]) & magnitude;
        if (m < least || m < topk_least || (m == least && ties == 0))
            continue;
        ties -= m == least;
        put_le16(index + 2 * count, (uint16_t)i);
        put_le16(value + 2 * count, bf16_of(x[i]));
        count++;
    }
    put_le32(out, (uint32_t)count);
}

static bool topk_decode_block(const uint8_t *in, size_t n, size_t k, float *x)
{
    const uint8_t *index = in + TOPK_COUNT, *value = index + 2 * k;
    size_t count = get_le32(in), next = 0;
    memset(x, 0, n * sizeof *x);
    if (count > k)
        return false;
    for (size_t i = 0; i < count; i++) {
        size_t at = get_le16(index + 2 * i);
        if (at < next || at >= n)
            return false;
        x[at] = of_bits((uint32_t)get_le16(value + 2 * i) << 16);
        next = at + 1;
    }
    return true;
}

static size_t topk_block_len(size_t left)
{
    return left < CODEC_TOPK_BLOCK ? left : CODEC_TOPK_BLOCK;
}

static void topk_encode(enum codec codec, const float *x, size_t n, uint8_t *out)
{
    for (size_t i = 0, len; i < n; i += len) {
        len = topk_block_len(n - i);
        topk_encode_block(x + i, len, topk_entries(codec, len), out);
        out += codec_bytes(codec, len);
    }
}

static bool topk_decode(enum codec codec, const uint8_t *in, size_t n, float *x)
{
    bool sound = true;
    for (size_t i = 0, len; sound && i < n; i += len) {
        len = topk_block_len(n - i);
        sound = topk_decode_block(in, len, topk_entries(codec, len), x + i);
        in += codec_bytes(codec, len);
    }
    return sound;
}

/* The sum over blocks: all whole ones have as many entries. */
static size_t topk_bytes(enum codec codec, size_t n)
{
    size_t whole = n / CODEC_TOPK_BLOCK, rest = n % CODEC_TOPK_BLOCK;
    size_t entries = whole * topk_entries(codec, CODEC_TOPK_BLOCK) + topk_entries(codec, rest);
    return TOPK_COUNT * (whole + (rest > 0)) + TOPK_ENTRY * entries;
}

/* ---- all ---- */

bool codec_drops(enum codec codec)
{
    return topk_one_of(codec) > 0;
}

size_t codec_bytes(enum codec codec, size_t n)
{
    size_t rest = n % CODEC_BLOCK;
    switch (codec) {
    case CODEC_F32: return F32_BYTES * n;
    case CODEC_BF16: return BF16_BYTES * (n + n % 2);
    case CODEC_INT8:
        return n / CODEC_BLOCK * BLOCK_BYTES +
               (rest ? SCALE_BYTES + rest + block_padding(rest) : 0);
    case CODEC_TOPK16:
    case CODEC_TOPK64: return topk_bytes(codec, n);
    default: break;
    }
    PL_ASSERT(!"a codec");
    return 0;
}

void codec_encode(enum codec codec, const float *x, size_t n, void *out)
{
    switch (codec) {
    case CODEC_F32: f32_encode(x, n, out); return;
    case CODEC_BF16: bf16_encode(x, n, out); return;
    case CODEC_INT8: int8_encode(x, n, out); return;
    case CODEC_TOPK16:
    case CODEC_TOPK64: topk_encode(codec, x, n, out); return;
    default: break;
    }
    PL_ASSERT(!"a codec");
}

bool codec_decode(enum codec codec, const void *in, size_t n, float *x)
{
    switch (codec) {
    case CODEC_F32: f32_decode(in, n, x); return true;
    case CODEC_BF16: bf16_decode(in, n, x); return true;
    case CODEC_INT8: int8_decode(in, n, x); return true;
    case CODEC_TOPK16:
    case CODEC_TOPK64: return topk_decode(codec, in, n, x);
    default: break;
    }
    PL_ASSERT(!"a codec");
    return false;
}

static void add_block(float *restrict sum, const float *restrict x, const float *restrict y,
                      size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] = x[i] + y[i];
}

/* The difference is exact: sum and got are multiples of the finer one's last place, and less than
 * 2^24 of them apart. */
static void keep_lost(float *restrict residual, const float *restrict sum,
                      const float *restrict got, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t sent = (int32_t)(bits_of(got[i]) & magnitude) < (int32_t)infinity ? ~0u : 0;
        uint32_t lost = bits_of(sum[i] - got[i]), kept = bits_of(residual[i]);
        residual[i] = of_bits((lost & sent) | (kept & ~sent));
    }
}

/* Of all formats but topk: blocks of these are parts of the code, whatever their size. */
static size_t feedback_len(enum codec codec, size_t left)
{
    return codec_drops(codec) ? topk_block_len(left) : block_len(left);
}

void codec_encode_feedback(enum codec codec, const float *x, float *residual, size_t n, void *out)
{
    float sum[CODEC_TOPK_BLOCK], got[CODEC_TOPK_BLOCK];
    uint8_t *at = out;
    for (size_t i = 0, len; i < n; i += len) {
        len = feedback_len(codec, n - i);
        add_block(sum, x + i, residual + i, len);
        codec_encode(codec, sum, len, at);
        codec_decode(codec, at, len, got);
        keep_lost(residual + i, sum, got, len);
        at += codec_bytes(codec, len);
    }
}

/* The code of a block: the largest is that of floats. */
enum { CODE_MAX = 4 * CODEC_BLOCK > TOPK_CODE_MAX ? 4 * CODEC_BLOCK : TOPK_CODE_MAX };

void codec_round_feedback(enum codec codec, float *x, float *residual, size_t n)
{
    float sum[CODEC_TOPK_BLOCK];
    uint8_t code[CODE_MAX];
    for (size_t i = 0, len; i < n; i += len) {
        len = feedback_len(codec, n - i);
        add_block(sum, x + i, residual + i, len);
        codec_encode(codec, sum, len, code);
        codec_decode(codec, code, len, x + i);
        keep_lost(residual + i, sum, x + i, len);
    }
}

void codec_round(enum codec codec, float *x, size_t n)
{
    uint8_t code[CODE_MAX];
    for (size_t i = 0, len; i < n; i += len) {
        len = feedback_len(codec, n - i);
        codec_encode(codec, x + i, len, code);
        codec_decode(codec, code, len, x + i);
    }
}

const char *codec_name(enum codec codec)
{
    PL_ASSERT((unsigned)codec < CODECS);
    return names[codec];
}

bool codec_find(const char *name, enum codec *codec)
{
    for (unsigned i = 0; i < CODECS; i++)
        if (strcmp(name, names[i]) == 0) {
            *codec = (enum codec)i;
            return true;
        }
    return false;
}
