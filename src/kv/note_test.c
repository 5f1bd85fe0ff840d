/* Messages of the key-value store, byte by byte, and on both sides of each bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kv/note.h"

#include <stdlib.h>
#include <string.h>

static struct cut cut_of(const struct buf *bytes)
{
    return (struct cut){bytes->data, bytes->len, false};
}

static void an_ask_is_written_as_it_is_drawn(void **state)
{
    (void)state;
    const struct kv_ask ask = {.what = KV_FIND,
                               .request = 0x0102,
                               .key = "xy",
                               .meta = {7, 0x30, 0x0405},
                               .patient = true};
    static const uint8_t drawn[] = {2, 2, 1, 0, 0,   0,   0, 0, 0, /* what, request */
                                    2, 0, 0, 0, 'x', 'y',          /* key */
                                    7, 0, 0, 0, 0,   0,   0, 0, 0x30,
                                    0, 0, 0, 0, 0,   0,   0, /* meta */
                                    5, 4, 0, 0, 0,   0,   0, 0, 1};
    struct kv_ask back;
    struct buf bytes = {0};
    kv_ask_encode(&ask, &bytes);
    assert_int_equal(bytes.len, sizeof drawn);
    assert_memory_equal(bytes.data, drawn, sizeof drawn);
    struct cut in = cut_of(&bytes);
    assert_int_equal(kv_ask_decode(&in, &back), OK);
    assert_int_equal(back.what, KV_FIND);
    assert_string_equal(back.key, "xy");
    assert_true(back.patient && back.meta.size == 0x30 && back.meta.checksum == 0x0405);
    buf_release(&bytes);
}

/* Decoded from memory that ends where the message does; all that is shorter or longer is refused.
 */
static int decode_ask(const struct buf *bytes, size_t len)
{
    uint8_t *own = calloc(1, len + 1);
    struct kv_ask ask;
    assert_non_null(own);
    memcpy(own, bytes->data, len < bytes->len ? len : bytes->len);
    struct cut in = {own, len, false};
    int rc = kv_ask_decode(&in, &ask);
    free(own);
    return rc;
}

static void an_ask_has_its_length(void **state)
{
    (void)state;
    const struct kv_ask ask = {.what = KV_HOLD, .key = "k", .meta = {.version = 1}};
    struct buf bytes = {0};
    kv_ask_encode(&ask, &bytes);
    for (size_t len = 0; len <= bytes.len + 3; len++)
        assert_int_equal(decode_ask(&bytes, len), len == bytes.len ? OK : ERR_PROTOCOL);
    buf_release(&bytes);
}

static int ask_with(struct kv_ask ask)
{
    struct buf bytes = {0};
    kv_ask_encode(&ask, &bytes);
    int rc = decode_ask(&bytes, bytes.len);
    buf_release(&bytes);
    return rc;
}

static void asks_are_bounded(void **state)
{
    (void)state;
    struct kv_ask ask = {.what = KV_HOLD, .meta = {.size = KV_VALUE_MAX}};
    assert_int_equal(ask_with(ask), ERR_PROTOCOL); /* no key */
    memset(ask.key, 'k', KV_KEY_MAX);
    assert_int_equal(ask_with(ask), OK);
    ask.meta.size++;
    assert_int_equal(ask_with(ask), ERR_PROTOCOL);
    ask.meta.size = 0;
    ask.key[4] = ' ';
    assert_int_equal(ask_with(ask), ERR_PROTOCOL);
    assert_int_equal(ask_with((struct kv_ask){.what = KV_MEMBERS}), ERR_PROTOCOL);
    assert_int_equal(ask_with((struct kv_ask){.what = KV_LEAVE}), OK);
    assert_int_equal(ask_with((struct kv_ask){.what = KV_LEAVE + 1}), ERR_PROTOCOL);
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
    assert_int_equal(decode_ask(&bytes, bytes.len), ERR_PROTOCOL);
    buf_release(&bytes);
}

static int tell_with(struct kv_tell tell, struct kv_tell *back)
{
    struct buf bytes = {0};
    kv_tell_encode(&tell, &bytes);
    struct cut in = cut_of(&bytes);
    int rc = kv_tell_decode(&in, back);
    buf_release(&bytes);
    return rc;
}

static void tells_come_back_and_are_bounded(void **state)
{
    (void)state;
    struct kv_tell tell = {.what = KV_FOUND,
                           .request = 9,
                           .meta = {7, 8, 9},
                           .count = KV_LOCATIONS},
                   back;
    for (uint32_t i = 0; i < KV_LOCATIONS; i++) {
        tell.node[i] = VIEW_MEMBERS_MAX - 1 - i;
        memset(tell.address[i], 'a', NODE_ADDRESS_MAX - 1 - i);
    }
    assert_int_equal(tell_with(tell, &back), OK);
    assert_memory_equal(back.node, tell.node, sizeof back.node);
    assert_memory_equal(back.address, tell.address, sizeof back.address);
    assert_memory_equal(&back.meta, &tell.meta, sizeof back.meta);
    tell.node[3] = VIEW_MEMBERS_MAX;
    assert_int_equal(tell_with(tell, &back), ERR_PROTOCOL);
    tell.node[3] = 0;
    tell.meta.size = KV_VALUE_MAX + 1;
    assert_int_equal(tell_with(tell, &back), ERR_PROTOCOL);
    tell = (struct kv_tell){.what = KV_REFUSED};
    assert_int_equal(tell_with(tell, &back), ERR_PROTOCOL); /* with nothing */
    err_set(&tell.refusal, ERR_REPLICAS, "key 'x'");
    assert_int_equal(tell_with(tell, &back), OK);
    assert_int_equal(back.refusal.status, ERR_REPLICAS);
    assert_string_equal(back.refusal.text, "key 'x'");
    tell.refusal.status = 5; /* no status of a master's */
    assert_int_equal(tell_with(tell, &back), ERR_PROTOCOL);
    tell = (struct kv_tell){.what = KV_HELD, .refusal.status = ERR_FULL};
    assert_int_equal(tell_with(tell, &back), ERR_PROTOCOL);
    tell = (struct kv_tell){.what = KV_REFUSED + 1};
    assert_int_equal(tell_with(tell, &back), ERR_PROTOCOL);
}

static void nine_locations_are_too_many(void **state)
{
    (void)state;
    struct buf bytes = {0};
    struct kv_tell back;
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
    struct cut in = cut_of(&bytes);
    assert_int_equal(kv_tell_decode(&in, &back), ERR_PROTOCOL);
    buf_release(&bytes);
}

static int piece_with(uint64_t at, uint32_t len)
{
    const struct kv_piece piece = {.key = "x", .version = 3, .at = at, .len = len};
    struct kv_piece back;
    struct buf bytes = {0};
    kv_piece_encode(&piece, &bytes);
    struct cut in = cut_of(&bytes);
    int rc = kv_piece_decode(&in, &back);
    assert_true(rc != OK || (back.at == at && back.len == len && back.version == 3));
    buf_release(&bytes);
    return rc;
}

static void pieces_lie_within_a_value(void **state)
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
        struct cut in = {&why, 1, false};
        bool known = why == KV_NOT_HERE || why == KV_BUSY;
        assert_int_equal(kv_gone_decode(&in, &back), known ? OK : ERR_PROTOCOL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_ask_is_written_as_it_is_drawn),
        cmocka_unit_test(an_ask_has_its_length),
        cmocka_unit_test(asks_are_bounded),
        cmocka_unit_test(tells_come_back_and_are_bounded),
        cmocka_unit_test(nine_locations_are_too_many),
        cmocka_unit_test(pieces_lie_within_a_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
