/* Messages of the key-value store, byte by byte, and on both sides of each bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kv/kv_message.h"

#include <stdlib.h>
#include <string.h>

static struct byte_reader reader_of(const struct buf *bytes)
{
    return (struct byte_reader){bytes->data, bytes->len, false};
}

static void test_kv_request_layout(void **state)
{
    (void)state;
    const struct kv_request request = {.what = KV_FIND,
                                       .request = 0x0102,
                                       .key = "xy",
                                       .meta = {7, 0x30, 0x0405},
                                       .patient = true};
    static const uint8_t drawn[] = {2, 2, 1, 0, 0,   0,   0, 0, 0, /* what, request */
                                    2, 0, 0, 0, 'x', 'y',          /* key */
                                    7, 0, 0, 0, 0,   0,   0, 0, 0x30,
                                    0, 0, 0, 0, 0,   0,   0, /* meta */
                                    5, 4, 0, 0, 0,   0,   0, 0, 1};
    struct kv_request back;
    struct buf bytes = {0};
    kv_request_encode(&request, &bytes);
    assert_int_equal(bytes.len, sizeof drawn);
    assert_memory_equal(bytes.data, drawn, sizeof drawn);
    struct byte_reader in = reader_of(&bytes);
    assert_int_equal(kv_request_decode(&in, &back), OK);
    assert_int_equal(back.what, KV_FIND);
    assert_string_equal(back.key, "xy");
    assert_true(back.patient && back.meta.size == 0x30 && back.meta.checksum == 0x0405);
    buf_release(&bytes);
}

/* Decoded from memory that ends where the message does; all that is shorter or longer is refused.
 */
static int decode_request(const struct buf *bytes, size_t len)
{
    uint8_t *own = calloc(1, len + 1);
    struct kv_request request;
    assert_non_null(own);
    memcpy(own, bytes->data, len < bytes->len ? len : bytes->len);
    struct byte_reader in = {own, len, false};
    int rc = kv_request_decode(&in, &request);
    free(own);
    return rc;
}

static void test_kv_request_length(void **state)
{
    (void)state;
    const struct kv_request request = {.what = KV_HOLD, .key = "k", .meta = {.version = 1}};
    struct buf bytes = {0};
    kv_request_encode(&request, &bytes);
    for (size_t len = 0; len <= bytes.len + 3; len++)
        assert_int_equal(decode_request(&bytes, len), len == bytes.len ? OK : ERR_PROTOCOL);
    buf_release(&bytes);
}

static int request_with(struct kv_request request)
{
    struct buf bytes = {0};
    kv_request_encode(&request, &bytes);
    int rc = decode_request(&bytes, bytes.len);
    buf_release(&bytes);
    return rc;
}

static void test_kv_request_bounds(void **state)
{
    (void)state;
    struct kv_request request = {.what = KV_HOLD, .meta = {.size = KV_VALUE_MAX}};
    assert_int_equal(request_with(request), ERR_PROTOCOL); /* no key */
    memset(request.key, 'k', KV_KEY_MAX);
    assert_int_equal(request_with(request), OK);
    request.meta.size++;
    assert_int_equal(request_with(request), ERR_PROTOCOL);
    request.meta.size = 0;
    request.key[4] = ' ';
    assert_int_equal(request_with(request), ERR_PROTOCOL);
    assert_int_equal(request_with((struct kv_request){.what = KV_MEMBERS}), ERR_PROTOCOL);
    assert_int_equal(request_with((struct kv_request){.what = KV_LEAVE}), OK);
    assert_int_equal(request_with((struct kv_request){.what = KV_LEAVE + 1}), ERR_PROTOCOL);
    /* A key of 64 characters does not fit into what is encoded from. */
    struct buf bytes = {0};
    char key[KV_KEY_MAX + 2];
    memset(key, 'k', sizeof key);
    key[KV_KEY_MAX + 1] = '\0';
    buf_put_u8(&bytes, KV_DROP);
    buf_put_u64(&bytes, 1);
    buf_put_text(&bytes, key);
    for (int i = 0; i < 3; i++)
        buf_put_u64(&bytes, 1);
    buf_put_u8(&bytes, 0);
    assert_int_equal(decode_request(&bytes, bytes.len), ERR_PROTOCOL);
    buf_release(&bytes);
}

static int reply_with(struct kv_reply reply, struct kv_reply *back)
{
    struct buf bytes = {0};
    kv_reply_encode(&reply, &bytes);
    struct byte_reader in = reader_of(&bytes);
    int rc = kv_reply_decode(&in, back);
    buf_release(&bytes);
    return rc;
}

static void test_kv_reply_round_trip_and_bounds(void **state)
{
    (void)state;
    struct kv_reply reply = {.what = KV_FOUND,
                             .request = 9,
                             .meta = {7, 8, 9},
                             .count = KV_LOCATIONS},
                    back;
    for (uint32_t i = 0; i < KV_LOCATIONS; i++) {
        reply.node[i] = VIEW_MEMBERS_MAX - 1 - i;
        memset(reply.address[i], 'a', NODE_ADDRESS_MAX - 1 - i);
    }
    assert_int_equal(reply_with(reply, &back), OK);
    assert_memory_equal(back.node, reply.node, sizeof back.node);
    assert_memory_equal(back.address, reply.address, sizeof back.address);
    assert_memory_equal(&back.meta, &reply.meta, sizeof back.meta);
    reply.node[3] = VIEW_MEMBERS_MAX;
    assert_int_equal(reply_with(reply, &back), ERR_PROTOCOL);
    reply.node[3] = 0;
    reply.meta.size = KV_VALUE_MAX + 1;
    assert_int_equal(reply_with(reply, &back), ERR_PROTOCOL);
    reply = (struct kv_reply){.what = KV_REFUSED};
    assert_int_equal(reply_with(reply, &back), ERR_PROTOCOL); /* with nothing */
    err_set(&reply.refusal, ERR_REPLICAS, "key 'x'");
    assert_int_equal(reply_with(reply, &back), OK);
    assert_int_equal(back.refusal.status, ERR_REPLICAS);
    assert_string_equal(back.refusal.text, "key 'x'");
    reply.refusal.status = 5; /* no status of a master's */
    assert_int_equal(reply_with(reply, &back), ERR_PROTOCOL);
    reply = (struct kv_reply){.what = KV_HELD, .refusal.status = ERR_FULL};
    assert_int_equal(reply_with(reply, &back), ERR_PROTOCOL);
    reply = (struct kv_reply){.what = KV_REFUSED + 1};
    assert_int_equal(reply_with(reply, &back), ERR_PROTOCOL);
}

static void test_nine_locations_are_too_many(void **state)
{
    (void)state;
    struct buf bytes = {0};
    struct kv_reply back;
    buf_put_u8(&bytes, KV_FOUND);
    for (int i = 0; i < 4; i++)
        buf_put_u64(&bytes, 1);
    buf_put_u8(&bytes, KV_LOCATIONS + 1);
    for (uint32_t i = 0; i <= KV_LOCATIONS; i++) {
        buf_put_u32(&bytes, i);
        buf_put_text(&bytes, "");
    }
    buf_put_u32(&bytes, OK);
    buf_put_text(&bytes, "");
    struct byte_reader in = reader_of(&bytes);
    assert_int_equal(kv_reply_decode(&in, &back), ERR_PROTOCOL);
    buf_release(&bytes);
}

static int piece_with(uint64_t at, uint32_t len)
{
    const struct kv_piece piece = {.key = "x", .version = 3, .at = at, .len = len};
    struct kv_piece back;
    struct buf bytes = {0};
    kv_piece_encode(&piece, &bytes);
    struct byte_reader in = reader_of(&bytes);
    int rc = kv_piece_decode(&in, &back);
    assert_true(rc != OK || (back.at == at && back.len == len && back.version == 3));
    buf_release(&bytes);
    return rc;
}

static void test_kv_pieces_lie_within_a_value(void **state)
{
    (void)state;
    assert_int_equal(piece_with(0, 1), OK);
    assert_int_equal(piece_with(0, 0), ERR_PROTOCOL);
    assert_int_equal(piece_with(0, KV_PIECE), OK);
    assert_int_equal(piece_with(0, KV_PIECE + 1), ERR_PROTOCOL);
    assert_int_equal(piece_with(KV_VALUE_MAX - KV_PIECE, KV_PIECE), OK);
    assert_int_equal(piece_with(KV_VALUE_MAX - KV_PIECE + 1, KV_PIECE), ERR_PROTOCOL);
    assert_int_equal(piece_with(UINT64_MAX, 1), ERR_PROTOCOL);
    for (uint8_t why = 0; why < 5; why++) {
        enum kv_gone back;
        struct byte_reader in = {&why, 1, false};
        bool known = why == KV_NOT_HERE || why == KV_BUSY;
        assert_int_equal(kv_gone_decode(&in, &back), known ? OK : ERR_PROTOCOL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kv_request_layout),
        cmocka_unit_test(test_kv_request_length),
        cmocka_unit_test(test_kv_request_bounds),
        cmocka_unit_test(test_kv_reply_round_trip_and_bounds),
        cmocka_unit_test(test_nine_locations_are_too_many),
        cmocka_unit_test(test_kv_pieces_lie_within_a_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
