/* A node's copies: one version of a key, and for a while those that were replaced under a reader.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kv/store.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static int put_sum(struct kv_store *store, const char *key, const struct kv_meta *meta,
                   int64_t since)
{
    struct kv_value *value = kv_value_new(key, meta);
    assert_non_null(value);
    int rc = kv_store_put(store, value, since);
    kv_value_unref(value);
    return rc;
}

static int put_value(struct kv_store *store, const char *key, uint64_t version, uint64_t size,
                     int64_t since)
{
    return put_sum(store, key, &(struct kv_meta){.version = version, .size = size}, since);
}

static void test_store_newer_version_replaces_older(void **state)
{
    (void)state;
    struct kv_store store = {0};
    assert_int_equal(put_value(&store, "x", 1, 100, 1), OK);
    assert_int_equal(put_value(&store, "v", 5, 10, 1), OK);
    assert_int_equal(put_value(&store, "x", 2, 200, 1), OK);
    assert_int_equal(put_value(&store, "x", 2, 200, 1), OK); /* the same again */
    assert_int_equal(store.count, 2);
    assert_int_equal(store.bytes, 210);
    assert_int_equal(kv_store_find(&store, "x")->value->meta.version, 2);
    assert_null(kv_store_read(&store, "x", 1, 9)); /* it had no reader */
    kv_store_drop(&store, "x", 1);
    assert_null(kv_store_find(&store, "x"));
    kv_store_drop(&store, "x", 1);
    assert_int_equal(store.bytes, 10);
    kv_store_release(&store);
}

static void test_store_keeps_value_while_read(void **state)
{
    (void)state;
    struct kv_store store = {0};
    put_value(&store, "x", 1, 100, 1);
    assert_non_null(kv_store_read(&store, "x", 1, 50));
    assert_null(kv_store_read(&store, "x", 2, 50));
    put_value(&store, "x", 2, 100, 40); /* read since 40 */
    put_value(&store, "x", 3, 100, 40);
    assert_int_equal(store.retirees, 1);
    assert_int_equal(store.bytes, 200);
    assert_true(kv_store_sweep(&store, 45) == 50);
    assert_non_null(kv_store_read(&store, "x", 1, 60));
    assert_null(kv_store_read(&store, "x", 2, 60));
    assert_true(kv_store_sweep(&store, 55) == 60);
    assert_true(kv_store_sweep(&store, 61) == INT64_MAX);
    assert_null(kv_store_read(&store, "x", 1, 62));
    assert_int_equal(store.bytes, 100);
    kv_store_release(&store);
}

/* The master knows which of two values of one version is right: the other is read no more. */
static void test_store_conflicting_value_is_dropped(void **state)
{
    (void)state;
    struct kv_store store = {0};
    const struct kv_meta wrong = {.version = 1, .size = 100, .checksum = 5},
                         right = {.version = 1, .size = 70, .checksum = 6};
    assert_int_equal(put_sum(&store, "x", &wrong, 1), OK);
    assert_non_null(kv_store_read(&store, "x", 1, 50));
    assert_int_equal(put_sum(&store, "x", &right, 40), OK);
    assert_int_equal(kv_store_read(&store, "x", 1, 60)->meta.checksum, 6);
    assert_int_equal(store.retirees, 0);
    assert_int_equal(store.bytes, 70);
    kv_store_release(&store);
}

/* As many retire as may; then the one read the longest time ago goes. */
static void test_the_retired_are_few(void **state)
{
    (void)state;
    struct kv_store store = {0};
    for (uint64_t v = 1; v <= KV_RETIRED_MAX + 2; v++) {
        put_value(&store, "x", v, 1, 1);
        kv_store_read(&store, "x", v, (int64_t)(100 + v));
    }
    assert_int_equal(store.retirees, KV_RETIRED_MAX);
    assert_int_equal(store.bytes, KV_RETIRED_MAX + 1);
    assert_null(kv_store_read(&store, "x", 1, 200));
    for (uint64_t v = 2; v <= KV_RETIRED_MAX + 2; v++)
        assert_non_null(kv_store_read(&store, "x", v, 200));
    kv_store_release(&store);
}

static void test_keys_are_as_many_as_may_be(void **state)
{
    (void)state;
    struct kv_store store = {0};
    char key[16];
    for (int i = 0; i < KV_ENTRIES_MAX; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(put_value(&store, key, 1, 0, 1), OK);
    }
    assert_int_equal(put_value(&store, "more", 1, 0, 1), ERR_FULL);
    assert_int_equal(put_value(&store, "k7", 2, 0, 1), OK);
    assert_int_equal(store.count, KV_ENTRIES_MAX);
    kv_store_release(&store);
}

static void test_a_value_outlives_the_store(void **state)
{
    (void)state;
    struct kv_store store = {0};
    put_value(&store, "x", 3, 4, 1);
    struct kv_value *value = kv_value_ref(kv_store_find(&store, "x")->value);
    kv_store_release(&store);
    assert_int_equal(atomic_load(&value->references), 1);
    assert_int_equal((uintptr_t)value->data % _Alignof(max_align_t), 0);
    memcpy(value->data, "abc", 4);
    kv_value_unref(value);
    kv_value_unref(NULL);
    const struct kv_meta too_large = {.version = 1, .size = KV_VALUE_MAX + 1};
    assert_null(kv_value_new("x", &too_large));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_newer_version_replaces_older),
        cmocka_unit_test(test_store_keeps_value_while_read),
        cmocka_unit_test(test_store_conflicting_value_is_dropped),
        cmocka_unit_test(test_the_retired_are_few),
        cmocka_unit_test(test_keys_are_as_many_as_may_be),
        cmocka_unit_test(test_a_value_outlives_the_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
