#include "base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

/* Values of XXH3 (64 bits, seed 0) that other implementations give. */
static void test_is_xxh3(void **state)
{
    (void)state;
    assert_true(hash_bytes("", 0) == 0x2d06800538d394c2);
    assert_true(hash_bytes("a", 1) == 0xe6c632b61e964e1f);
    assert_true(hash_bytes("abc", 3) == 0x78af5f94892f3950);
}

/* However it is cut, and again after a beginning. */
static void test_pieces(void **state)
{
    (void)state;
    static uint8_t data[5000];
    struct hash_stream *stream = hash_stream_create();
    assert_non_null(stream);
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * i >> 3);
    for (size_t piece = 1; piece < sizeof data; piece = piece * 3 + 1) {
        hash_stream_begin(stream);
        for (size_t at = 0; at < sizeof data; at += piece) {
            size_t rest = sizeof data - at;
            hash_stream_add(stream, data + at, rest < piece ? rest : piece);
        }
        assert_true(hash_stream_take(stream) == hash_bytes(data, sizeof data));
    }
    hash_stream_begin(stream);
    assert_true(hash_stream_take(stream) == 0x2d06800538d394c2);
    hash_stream_free(stream);
}

static void test_one_bit_changes_about_half(void **state)
{
    (void)state;
    uint8_t data[1000] = {0};
    uint64_t before = hash_bytes(data, sizeof data);
    for (size_t bit = 0; bit < 8 * sizeof data; bit++) {
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        uint64_t differ = before ^ hash_bytes(data, sizeof data);
        int n = 0;
        for (; differ; differ &= differ - 1)
            n++;
        assert_in_range(n, 10, 54);
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_true(hash_bytes(data, sizeof data - 1) != before);
}

static void test_order_matters(void **state)
{
    (void)state;
    uint64_t ab = hash_mix(hash_mix(0, 1), 2), ba = hash_mix(hash_mix(0, 2), 1);
    assert_true(ab != ba);
    assert_true(ab == hash_mix(hash_mix(0, 1), 2));
    assert_true(hash_mix(0, 0) != 0);
    assert_true(hash_mix(hash_mix(0, 0), 0) != hash_mix(0, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_xxh3),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_one_bit_changes_about_half),
        cmocka_unit_test(test_order_matters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
