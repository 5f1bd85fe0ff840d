#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "group/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct view *view_of(uint32_t number, size_t count, const uint32_t *node)
{
    struct view *view = calloc(1, sizeof *view);
    assert_non_null(view);
    view->number = number;
    view->incarnation = 3;
    view->count = count;
    for (size_t i = 0; i < count; i++) {
        view->node[i] = node[i];
        snprintf(view->address[i], NODE_ADDRESS_MAX, "10.0.0.%u:7000", node[i]);
    }
    if (count > 0)
        members_add(&view->elders, node[count / 2]);
    return view;
}

static void check_equal(const struct view *a, const struct view *b)
{
    assert_int_equal(a->number, b->number);
    assert_int_equal(a->incarnation, b->incarnation);
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        assert_int_equal(a->node[i], b->node[i]);
        assert_string_equal(a->address[i], b->address[i]);
    }
    assert_memory_equal(&a->leaves, &b->leaves, sizeof a->leaves);
    assert_memory_equal(&a->fresh, &b->fresh, sizeof a->fresh);
    assert_memory_equal(&a->elders, &b->elders, sizeof a->elders);
    for (size_t i = 0; i < a->count; i++)
        assert_int_equal(a->seated[i], b->seated[i]);
}

static int decode_view(const struct buf *bytes, size_t len, struct view *out)
{
    struct byte_reader in = {bytes->data, len, false};
    return view_decode(&in, out);
}

static void test_view_ranks_are_indices(void **state)
{
    (void)state;
    struct view *view = view_of(1, 3, (uint32_t[]){2, 5, 9});
    assert_int_equal(view_rank(view, 2), 0);
    assert_int_equal(view_rank(view, 5), 1);
    assert_int_equal(view_rank(view, 9), 2);
    assert_int_equal(view_rank(view, 3), -1);
    assert_int_equal(view_rank(view, UINT32_MAX - 1), -1);
    free(view);
}

static void test_view_round_trips(void **state)
{
    (void)state;
    static const uint32_t nodes[] = {0, 1, 7, 63, 64, 1023};
    for (size_t count = 0; count <= 6; count++) {
        struct view *view = view_of(7, count, nodes), *out = calloc(1, sizeof *out);
        assert_non_null(out);
        for (size_t i = 1; i < count; i += 2)
            members_add(&view->leaves, nodes[i]);
        for (size_t i = 0; i < count; i += 2) {
            view->seated[i] = (uint32_t)(VIEW_MEMBERS_MAX - i);
            members_put(&view->fresh, nodes[i], i == 2);
        }
        struct buf bytes = {0};
        view_encode(view, &bytes);
        assert_int_equal(decode_view(&bytes, bytes.len, out), OK);
        check_equal(view, out);
        buf_release(&bytes);
        free(view);
        free(out);
    }
}

static void test_view_largest_round_trips(void **state)
{
    (void)state;
    struct view *view = calloc(1, sizeof *view), *out = calloc(1, sizeof *out);
    assert_true(view && out);
    view->number = 1;
    view->count = VIEW_MEMBERS_MAX;
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        view->node[i] = i;
        memset(view->address[i], 'x', NODE_ADDRESS_MAX - 1);
        members_add(&view->elders, i);
    }
    struct buf bytes = {0};
    view_encode(view, &bytes);
    assert_int_equal(decode_view(&bytes, bytes.len, out), OK);
    check_equal(view, out);
    buf_release(&bytes);
    free(view);
    free(out);
}

static void test_view_of_wrong_length_is_refused(void **state)
{
    (void)state;
    struct view *view = view_of(7, 3, (uint32_t[]){0, 1, 2}), *out = calloc(1, sizeof *out);
    assert_non_null(out);
    struct buf bytes = {0};
    view_encode(view, &bytes);
    for (size_t len = 0; len < bytes.len; len++) {
        void *exact = malloc(len ? len : 1); /* so that a read past the end shows */
        assert_non_null(exact);
        memcpy(exact, bytes.data, len);
        struct byte_reader in = {exact, len, false};
        assert_int_equal(view_decode(&in, out), ERR_PROTOCOL);
        free(exact);
    }
    buf_put_u8(&bytes, 0);
    assert_int_equal(decode_view(&bytes, bytes.len, out), ERR_PROTOCOL);
    buf_release(&bytes);
    free(view);
    free(out);
}

enum { LEAF = 1, ELDER = 4 };

static void expect_refusal_of(uint32_t number, uint32_t count, size_t listed, const uint32_t *node,
                              const char *address, uint32_t seated, uint8_t flags)
{
    struct view *out = calloc(1, sizeof *out);
    assert_non_null(out);
    struct buf bytes = {0};
    buf_put_u32(&bytes, number);
    buf_put_u32(&bytes, 0);
    buf_put_u32(&bytes, count);
    for (size_t i = 0; i < listed; i++) {
        buf_put_u32(&bytes, node[i]);
        buf_put_text(&bytes, address);
        buf_put_u32(&bytes, seated);
        buf_put_u8(&bytes, flags);
    }
    assert_int_equal(decode_view(&bytes, bytes.len, out), ERR_PROTOCOL);
    buf_release(&bytes);
    free(out);
}

static void expect_refusal(uint32_t number, uint32_t count, size_t listed, const uint32_t *node,
                           const char *address)
{
    expect_refusal_of(number, count, listed, node, address, 0, ELDER);
}

static void test_view_of_leaves_alone_is_refused(void **state)
{
    (void)state;
    expect_refusal_of(1, 2, 2, (uint32_t[]){1, 2}, "a", 0, ELDER | LEAF);
    expect_refusal_of(1, 2, 2, (uint32_t[]){1, 2}, "a", 0, ELDER | 8); /* no such flag */
}

static void test_view_without_an_elder_is_refused(void **state)
{
    (void)state;
    expect_refusal_of(1, 2, 2, (uint32_t[]){1, 2}, "a", 0, 0);
}

static void test_view_of_wrong_seats_is_refused(void **state)
{
    (void)state;
    expect_refusal_of(1, 2, 2, (uint32_t[]){1, 2}, "a", 3, ELDER); /* two on one */
    expect_refusal_of(1, 1, 1, (uint32_t[]){1}, "a", VIEW_MEMBERS_MAX + 1, ELDER);
}

static void test_view_seats_are_found(void **state)
{
    (void)state;
    struct view *view = view_of(1, 3, (const uint32_t[]){1, 3, 4});
    view->seated[0] = 2;
    view->seated[2] = 1;
    assert_int_equal(view_seat(view, 1), 1);
    assert_int_equal(view_seat(view, 3), VIEW_NO_SEAT);
    assert_int_equal(view_seat(view, 4), 0);
    assert_int_equal(view_seat(view, 5), VIEW_NO_SEAT);
    assert_int_equal(view_seated(view, 0), 4);
    assert_int_equal(view_seated(view, 1), 1);
    assert_int_equal(view_seated(view, 2), VIEW_MEMBERS_MAX);
    free(view);
}

/* Each leaf has a participant as its proxy, and as few leaves as possible share one. */
static void test_view_leaves_have_proxies(void **state)
{
    (void)state;
    struct view *view = view_of(1, 5, (const uint32_t[]){1, 3, 4, 6, 9});
    members_add(&view->leaves, 1);
    members_add(&view->leaves, 4);
    members_add(&view->leaves, 9);
    const struct members participants = view_participants(view);
    assert_int_equal(members_count(&participants), 2);
    assert_true(members_has(&participants, 3) && members_has(&participants, 6));
    assert_int_equal(view_proxy(view, 1), 3);
    assert_int_equal(view_proxy(view, 4), 6);
    assert_int_equal(view_proxy(view, 9), 3);
    /* A model is requested of the leaves last. */
    static const uint32_t turns[] = {3, 6, 1, 4, 9, 3};
    uint32_t node = UINT32_MAX;
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++)
        assert_int_equal(node = view_after(view, node), turns[i]);
    assert_int_equal(view_after(view, 5), 3); /* no member */
    view->leaves = (struct members){{0}};
    assert_int_equal(view_after(view, 9), 1);
    free(view);
}

static void test_view_invalid_is_refused(void **state)
{
    (void)state;
    char long_address[NODE_ADDRESS_MAX + 1];
    memset(long_address, 'x', NODE_ADDRESS_MAX);
    long_address[NODE_ADDRESS_MAX] = '\0';
    expect_refusal(0, 1, 1, (uint32_t[]){0}, "a");
    expect_refusal(1, 2, 2, (uint32_t[]){1, 0}, "a");
    expect_refusal(1, 2, 2, (uint32_t[]){1, 1}, "a");
    expect_refusal(1, 1, 1, (uint32_t[]){VIEW_MEMBERS_MAX}, "a");
    expect_refusal(1, 1, 1, (uint32_t[]){UINT32_MAX - 1}, "a");
    expect_refusal(1, 1, 1, (uint32_t[]){0}, long_address);
    expect_refusal(1, VIEW_MEMBERS_MAX + 1, 0, NULL, "");
    expect_refusal(1, UINT32_MAX, 0, NULL, "");
}

static void test_view_noise_is_not_overread(void **state)
{
    (void)state;
    struct view *out = calloc(1, sizeof *out);
    assert_non_null(out);
    for (uint64_t i = 0; i < 2000; i++) {
        size_t len = rng_below(5, 1, i, 64);
        uint8_t *noise = malloc(len ? len : 1);
        assert_non_null(noise);
        for (size_t j = 0; j < len; j++)
            noise[j] = (uint8_t)rng_below(5, 2 + j, i, j % 4 ? 2 : 40);
        struct byte_reader in = {noise, len, false};
        int rc = view_decode(&in, out);
        assert_true(rc == OK || rc == ERR_PROTOCOL);
        free(noise);
    }
    free(out);
}

static void test_view_members(void **state)
{
    (void)state;
    struct view *view = view_of(1, 3, (const uint32_t[]){2, 64, 1023});
    const struct members set = view_members(view);
    assert_int_equal(members_count(&set), 3);
    assert_true(members_has(&set, 2) && members_has(&set, 64) && members_has(&set, 1023));
    free(view);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_view_ranks_are_indices),
        cmocka_unit_test(test_view_round_trips),
        cmocka_unit_test(test_view_largest_round_trips),
        cmocka_unit_test(test_view_of_wrong_length_is_refused),
        cmocka_unit_test(test_view_invalid_is_refused),
        cmocka_unit_test(test_view_of_leaves_alone_is_refused),
        cmocka_unit_test(test_view_without_an_elder_is_refused),
        cmocka_unit_test(test_view_of_wrong_seats_is_refused),
        cmocka_unit_test(test_view_seats_are_found),
        cmocka_unit_test(test_view_leaves_have_proxies),
        cmocka_unit_test(test_view_noise_is_not_overread),
        cmocka_unit_test(test_view_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
