/* Keys and proofs. The expected bytes are from Python's hmac, by the definitions in run_key.h. */
#include "real/run_key.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

static const char text[] = "0123456789abcdef0123456789abcdef";

static void fill_bytes(uint8_t *bytes, size_t n, unsigned step)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(i * step);
}

static void test_run_key_derives_id_and_keys(void **state)
{
    (void)state;
    static const uint8_t proof[] = {0x8f, 0x55, 0xed, 0x6d, 0xba, 0x29, 0x7c, 0x65,
                                    0x7d, 0xe4, 0x31, 0x9e, 0x44, 0x63, 0x7f, 0xdc,
                                    0x8e, 0xfe, 0x45, 0x69, 0x7d, 0x1b, 0x95, 0x94,
                                    0x37, 0x7e, 0x81, 0x2f, 0x3f, 0xb3, 0x88, 0x10};
    static const uint8_t session[] = {0x33, 0xdb, 0x9b, 0xf1, 0x9e, 0x3e, 0xc9, 0xb3,
                                      0xe9, 0xbf, 0x17, 0xfb, 0x00, 0x91, 0xd8, 0x33,
                                      0xa5, 0xe6, 0xd3, 0x28, 0xe8, 0x97, 0x20, 0x58,
                                      0x7e, 0x31, 0xad, 0x20, 0xfb, 0xa1, 0xb9, 0x19};
    struct run_key key;
    char id[KEY_ID_TEXT_MAX];
    assert_int_equal(run_key_derive(&key, text), OK);
    run_key_print(key.id, id);
    assert_string_equal(id, "4f4cedea95164a49");
    assert_memory_equal(key.proof, proof, sizeof proof);
    assert_memory_equal(key.session, session, sizeof session);
    run_key_forget(&key);
    assert_memory_not_equal(key.proof, proof, sizeof proof);
}

/* A proof is right for these bytes alone: not for another challenge (a replay), another hello, or
 * the other side (a reflection). */
static void test_run_key_proves_a_hello(void **state)
{
    (void)state;
    static const uint8_t first[] = {0x8c, 0x90, 0x66, 0xa3, 0xa3, 0x34, 0xe4, 0x6a,
                                    0x28, 0xc5, 0x55, 0xc3, 0x0a, 0x9a, 0xce, 0x9b,
                                    0xe1, 0x4b, 0xa0, 0x31, 0x80, 0x81, 0xb8, 0xac,
                                    0x36, 0x68, 0x34, 0x06, 0xd0, 0xb9, 0x31, 0xd0};
    static const uint8_t reply[] = {0xd5, 0xa3, 0x4c, 0x60, 0xf8, 0x49, 0x5d, 0xac,
                                    0xa8, 0xfa, 0x61, 0x7e, 0xa6, 0x2e, 0xa7, 0x8c,
                                    0xf7, 0x9b, 0x32, 0x74, 0xbc, 0x32, 0x5d, 0xc6,
                                    0x02, 0x19, 0x49, 0x35, 0x74, 0x30, 0xef, 0xf8};
    static const uint8_t session[] = {0xc3, 0x78, 0x0c, 0x64, 0x39, 0xdf, 0x3d, 0xf1,
                                      0x4a, 0xb7, 0xb5, 0xc1, 0x20, 0x42, 0x73, 0x06,
                                      0x47, 0x19, 0xc8, 0xdf, 0x0b, 0x07, 0xf5, 0x96,
                                      0xf2, 0xb0, 0x93, 0x30, 0x2f, 0x0c, 0x31, 0xdf};
    struct run_key key, other;
    struct hellos hellos;
    uint8_t out[RUN_KEY_SIZE];
    assert_int_equal(run_key_derive(&key, text), OK);
    assert_int_equal(run_key_derive(&other, "0123456789abcdef0123456789abcdeF"), OK);
    fill_bytes(hellos.challenge, sizeof hellos.challenge, 1);
    fill_bytes(hellos.first, FIRST_SIZE - PROOF_SIZE, 3);
    memcpy(hellos.first + FIRST_SIZE - PROOF_SIZE, first, PROOF_SIZE);
    fill_bytes(hellos.reply, HELLO_SIZE, 7);
    assert_true(run_key_accepts_first(&key, &hellos));
    assert_false(run_key_accepts_first(&other, &hellos));
    assert_int_equal(run_key_prove_reply(&key, &hellos), OK);
    assert_memory_equal(hellos.reply + HELLO_SIZE, reply, PROOF_SIZE);
    assert_true(run_key_accepts_reply(&key, &hellos));
    assert_false(run_key_accepts_reply(&other, &hellos));
    assert_int_equal(run_key_session(&key, &hellos, out), OK);
    assert_memory_equal(out, session, sizeof session);
    for (size_t i = 0; i < sizeof hellos; i++) {
        ((uint8_t *)&hellos)[i] ^= 0x10;
        bool before = i < HELLO_SIZE + FIRST_SIZE;
        assert_int_equal(run_key_accepts_first(&key, &hellos), !before);
        assert_false(run_key_accepts_reply(&key, &hellos));
        ((uint8_t *)&hellos)[i] ^= 0x10;
    }
    memcpy(hellos.reply + HELLO_SIZE, first, PROOF_SIZE);
    assert_false(run_key_accepts_reply(&key, &hellos));
}

/* Two hellos of one node differ in nonce and proof. */
static void test_run_key_proofs_are_fresh(void **state)
{
    (void)state;
    struct run_key key;
    struct hellos one = {0}, two = {0};
    assert_int_equal(run_key_derive(&key, text), OK);
    assert_int_equal(run_key_prove_first(&key, &one), OK);
    assert_int_equal(run_key_prove_first(&key, &two), OK);
    assert_true(run_key_accepts_first(&key, &one) && run_key_accepts_first(&key, &two));
    assert_memory_equal(one.first, two.first, HELLO_SIZE + KEY_ID_SIZE);
    assert_memory_not_equal(one.first + HELLO_SIZE + KEY_ID_SIZE,
                            two.first + HELLO_SIZE + KEY_ID_SIZE, KEY_NONCE_SIZE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_key_derives_id_and_keys),
        cmocka_unit_test(test_run_key_proves_a_hello),
        cmocka_unit_test(test_run_key_proofs_are_fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
