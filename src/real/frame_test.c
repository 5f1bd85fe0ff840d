/* Hellos and frames: what is written is read back, and nothing else is taken for one. */
#include "real/frame.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static const struct hello a_hello = {
    .version = PROTOCOL_VERSION,
    .run = UINT64_C(0x0123456789abcdef),
    .node = 7,
    .peer = 3,
    .port = 0xbeef,
};

static void test_hello_bytes(void **state)
{
    (void)state;
    static const uint8_t expected[HELLO_SIZE] = {
        'P',  'A',  'C',  'E',  'L',  'I',  'N', 'E',  PROTOCOL_VERSION,
        0,    0,    0,    0,    0,    0,    0,   0xef, 0xcd,
        0xab, 0x89, 0x67, 0x45, 0x23, 0x01, 7,   0,    0,
        0,    3,    0,    0,    0,    0xef, 0xbe};
    uint8_t bytes[HELLO_SIZE];
    struct hello back;
    hello_encode(&a_hello, bytes);
    assert_memory_equal(bytes, expected, sizeof expected);
    assert_int_equal(hello_decode(bytes, &back), OK);
    assert_int_equal(back.run, a_hello.run);
    assert_int_equal(back.node, 7);
    assert_int_equal(back.peer, 3);
    assert_int_equal(back.port, 0xbeef);
    assert_int_equal(back.refusal, REFUSED_NOT);
}

/* A stranger is known at the first byte that is not ours. */
static void test_hello_begins(void **state)
{
    (void)state;
    uint8_t bytes[HELLO_SIZE];
    hello_encode(&a_hello, bytes);
    for (size_t n = 0; n <= HELLO_SIZE; n++)
        assert_true(hello_begins(bytes, n));
    for (size_t at = 0; at < 8; at++) {
        hello_encode(&a_hello, bytes);
        bytes[at] ^= 0x20;
        for (size_t n = 0; n <= HELLO_SIZE; n++)
            assert_int_equal(hello_begins(bytes, n), n <= at);
        struct hello out;
        assert_int_equal(hello_decode(bytes, &out), ERR_PROTOCOL);
    }
    assert_false(hello_begins((const uint8_t *)"GET / HTTP/1.1\r\n", 1));
    assert_false(hello_begins((const uint8_t *)"\x16\x03\x01", 1)); /* TLS */
}

/* Of another version only what all versions share is believed. */
static void test_other_version(void **state)
{
    (void)state;
    struct hello hello = a_hello, out;
    uint8_t bytes[HELLO_SIZE];
    hello.version = PROTOCOL_VERSION + 8;
    hello.refusal = REFUSED_VERSION;
    hello_encode(&hello, bytes);
    bytes[HELLO_SIZE - 1] = 1;
    assert_int_equal(hello_decode(bytes, &out), ERR_UNSUPPORTED);
    assert_int_equal(out.version, PROTOCOL_VERSION + 8);
    assert_int_equal(out.refusal, REFUSED_VERSION);
    assert_int_equal(out.run, 0);
    hello_encode(&a_hello, bytes);
    bytes[HELLO_SIZE - 1] = 1; /* nobody of this version sends that */
    assert_int_equal(hello_decode(bytes, &out), ERR_PROTOCOL);
}

/* Every build knows what may be offered, also if it can take none of it. */
static void test_offers(void **state)
{
    (void)state;
    struct hello hello = a_hello, out;
    uint8_t bytes[HELLO_SIZE];
    for (int i = 0; i < 3; i++) {
        hello.shm = i == 1;
        hello.ucx = i == 2;
        hello_encode(&hello, bytes);
        assert_int_equal(hello_decode(bytes, &out), OK);
        assert_true(out.shm == hello.shm && out.ucx == hello.ucx);
    }
    bytes[36] = 3;
    assert_int_equal(hello_decode(bytes, &out), ERR_PROTOCOL);
    hello = (struct hello){.version = PROTOCOL_VERSION, .plain = true};
    hello_encode(&hello, bytes);
    assert_int_equal(hello_decode(bytes, &out), OK);
    assert_true(out.plain && !out.shm && !out.ucx);
    bytes[37] = 2;
    assert_int_equal(hello_decode(bytes, &out), ERR_PROTOCOL);
}

/* A challenge has magic, version and refusal where a hello has them. */
static void test_challenge_bytes(void **state)
{
    (void)state;
    struct challenge challenge = {.version = PROTOCOL_VERSION, .key_id = "12345678"}, out;
    uint8_t bytes[HELLO_SIZE];
    memset(challenge.nonce, 0x5a, sizeof challenge.nonce);
    challenge_encode(&challenge, bytes);
    assert_memory_equal(bytes, "PACELINE\5\0\0\0\0\0\0\0\0\0\0\0\0\0\0\00012345678", 32);
    assert_int_equal(challenge_decode(bytes, &out), OK);
    assert_memory_equal(&out, &challenge, sizeof out);
    bytes[12] = REFUSED_FULL;
    assert_int_equal(challenge_decode(bytes, &out), ERR_PROTOCOL);
    bytes[8]++;
    assert_int_equal(challenge_decode(bytes, &out), ERR_UNSUPPORTED);
    assert_int_equal(out.version, PROTOCOL_VERSION + 1);
    bytes[0] = 'p';
    assert_int_equal(challenge_decode(bytes, &out), ERR_PROTOCOL);
}

static bool frame_passes(const struct frame *frame)
{
    uint8_t bytes[FRAME_SIZE];
    struct frame back;
    memset(&back, 0x55, sizeof back);
    frame_encode(frame, bytes);
    if (frame_decode(bytes, &back) != OK)
        return false;
    assert_int_equal(back.length, frame->length);
    assert_int_equal(back.type, frame->type);
    assert_int_equal(back.class, frame->class);
    assert_int_equal(back.view, frame->view);
    assert_int_equal(back.tag, frame->tag);
    return true;
}

static void test_frame_bytes(void **state)
{
    (void)state;
    /* The last four from the reference implementation of XXH3. */
    static const uint8_t expected[FRAME_SIZE] = {0x78, 0x56, 0x34, 0, 1,    1,    0,    0,
                                                 5,    0,    0,    0, 8,    7,    0x66, 0x55,
                                                 0x44, 0x33, 2,    1, 0x79, 0x85, 0x1f, 0x91};
    struct frame frame = {0x345678, FRAME_DATA, CLASS_BULK, 5, UINT64_C(0x0102334455660708)};
    uint8_t bytes[FRAME_SIZE];
    frame_encode(&frame, bytes);
    assert_memory_equal(bytes, expected, sizeof expected);
}

static void test_frame_bounds(void **state)
{
    (void)state;
    const struct frame data = {0, FRAME_DATA, CLASS_CONTROL, 0, 0};
    const struct frame credit = {0, FRAME_CREDIT, CLASS_BULK, 0, 1};
    struct frame f = data;
    assert_true(frame_passes(&f));
    f.length = WORLD_MESSAGE_MAX;
    f.view = UINT32_MAX;
    f.tag = UINT64_MAX;
    assert_true(frame_passes(&f));
    f.length = WORLD_MESSAGE_MAX + 1;
    assert_false(frame_passes(&f));
    f.length = UINT32_MAX;
    assert_false(frame_passes(&f));
    f = data;
    f.class = CLASS_COUNT;
    assert_false(frame_passes(&f));
    f = data;
    f.type = 0;
    assert_false(frame_passes(&f));
    f.type = FRAME_CREDIT + 1;
    assert_false(frame_passes(&f));

    f = credit;
    assert_true(frame_passes(&f));
    f.tag = WORLD_CREDIT;
    assert_true(frame_passes(&f));
    f.tag = WORLD_CREDIT + 1;
    assert_false(frame_passes(&f));
    f.tag = 0;
    assert_false(frame_passes(&f));
    f = credit;
    f.length = 1;
    assert_false(frame_passes(&f));
    f = credit;
    f.view = 1;
    assert_false(frame_passes(&f));
}

/* Make the check of changed bytes right again. */
static void seal_frame(uint8_t bytes[FRAME_SIZE])
{
    bytes_put_le32(bytes + 20, (uint32_t)hash_bytes(bytes, 20));
}

/* A header of which one bit was changed on the way is no header. */
static void test_frame_check(void **state)
{
    (void)state;
    uint8_t bytes[FRAME_SIZE];
    struct frame out;
    for (size_t bit = 0; bit < 8 * FRAME_SIZE; bit++) {
        frame_encode(&(struct frame){1000, FRAME_DATA, CLASS_BULK, 9, 77}, bytes);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(frame_decode(bytes, &out), ERR_CORRUPT);
    }
}

/* The two bytes that are always zero are checked, so that they can mean something some day. */
static void test_frame_zero(void **state)
{
    (void)state;
    uint8_t bytes[FRAME_SIZE];
    struct frame out;
    for (int at = 6; at < 8; at++) {
        frame_encode(&(struct frame){4, FRAME_DATA, CLASS_BULK, 1, 2}, bytes);
        bytes[at] = 1;
        seal_frame(bytes);
        assert_int_equal(frame_decode(bytes, &out), ERR_PROTOCOL);
    }
}

/* Whatever comes: what is taken for a frame is within all bounds and reads the same when written
 * again. Buffers of exactly the right size let the sanitizer see every read past the end. */
static void test_mutations(void **state)
{
    (void)state;
    uint8_t *bytes = malloc(FRAME_SIZE), *hello_text = malloc(HELLO_SIZE);
    assert_non_null(bytes);
    assert_non_null(hello_text);
    int taken = 0, greeted = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t r = rng_u64(1, 1, i);
        frame_encode(&(struct frame){(uint32_t)(r % 5000000), r & 1 ? FRAME_DATA : FRAME_CREDIT,
                                     r >> 1 & 1, 0, r >> 20},
                     bytes);
        hello_encode(&a_hello, hello_text);
        for (unsigned k = 0; k < (r >> 8) % 4; k++) {
            uint64_t change = rng_u64(1, 2, 4 * i + k);
            bytes[change % FRAME_SIZE] = (uint8_t)(change >> 32);
            hello_text[(change >> 8) % HELLO_SIZE] = (uint8_t)(change >> 40);
        }
        struct frame f;
        uint8_t again[FRAME_SIZE];
        seal_frame(bytes);
        if (frame_decode(bytes, &f) == OK) {
            taken++;
            assert_true(f.length <= WORLD_MESSAGE_MAX && f.class < CLASS_COUNT);
            frame_encode(&f, again);
            assert_memory_equal(again, bytes, FRAME_SIZE);
        }
        struct hello h;
        uint8_t decoded[HELLO_SIZE];
        if (hello_decode(hello_text, &h) == OK) {
            greeted++;
            hello_encode(&h, decoded);
            assert_memory_equal(decoded, hello_text, HELLO_SIZE);
        }
    }
    assert_in_range(taken, 100, 19900);
    assert_in_range(greeted, 100, 19900);
    free(bytes);
    free(hello_text);
}

/* A header that is cut short is never decoded: the reader must have all of it first. A truncation
 * padded with what lay there before does not fit its check. */
static void test_truncations(void **state)
{
    (void)state;
    uint8_t whole[FRAME_SIZE], cut[FRAME_SIZE];
    struct frame out;
    frame_encode(&(struct frame){1000, FRAME_DATA, CLASS_BULK, 9, 77}, whole);
    for (size_t n = 0; n < FRAME_SIZE; n++) {
        memset(cut, 0xff, sizeof cut);
        memcpy(cut, whole, n);
        assert_int_equal(frame_decode(cut, &out), ERR_CORRUPT);
    }
    uint8_t hello[HELLO_SIZE], shorter[HELLO_SIZE];
    struct hello h;
    hello_encode(&a_hello, hello);
    for (size_t n = 0; n < HELLO_SIZE; n++) {
        memset(shorter, 0xff, sizeof shorter);
        memcpy(shorter, hello, n);
        assert_int_not_equal(hello_decode(shorter, &h), OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hello_bytes),     cmocka_unit_test(test_hello_begins),
        cmocka_unit_test(test_offers),          cmocka_unit_test(test_other_version),
        cmocka_unit_test(test_frame_bytes),     cmocka_unit_test(test_frame_bounds),
        cmocka_unit_test(test_frame_check),     cmocka_unit_test(test_frame_zero),
        cmocka_unit_test(test_truncations),     cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_challenge_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
