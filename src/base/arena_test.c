#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

static void check_piece(const unsigned char *piece, size_t bytes)
{
    assert_non_null(piece);
    assert_int_equal((uintptr_t)piece % ARENA_ALIGN, 0);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(piece[i], 0);
}

/* Twice over, so that the second round gets memory that the first has dirtied. */
static void test_pieces_are_aligned_zeroed_and_apart(void **state)
{
    (void)state;
    static const size_t sizes[] = {1,     3,      63,      64, 65,    1000, 65536,
                                   65537, 200000, 5000000, 1,  40000, 40000};
    enum { PIECES = sizeof sizes / sizeof sizes[0] };
    for (int round = 0; round < 2; round++) {
        struct arena arena;
        arena_init(&arena);
        unsigned char *piece[PIECES];
        size_t asked = 0;
        for (int i = 0; i < PIECES; i++) {
            piece[i] = arena_alloc(&arena, sizes[i], 1);
            check_piece(piece[i], sizes[i]);
            memset(piece[i], i + 1, sizes[i]);
            asked += sizes[i];
        }
        for (int i = 0; i < PIECES; i++)
            for (size_t k = 0; k < sizes[i]; k++)
                assert_int_equal(piece[i][k], i + 1);
        assert_in_range(arena.bytes, asked, asked + PIECES * (ARENA_ALIGN - 1));
        arena_release(&arena);
        assert_int_equal(arena.bytes, 0);
    }
}

static void test_a_thousand_small_pieces(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    uint64_t *piece[5000];
    for (uint64_t i = 0; i < 5000; i++) {
        piece[i] = arena_new(&arena, uint64_t);
        check_piece((unsigned char *)piece[i], sizeof *piece[i]);
        *piece[i] = i;
    }
    for (uint64_t i = 0; i < 5000; i++)
        assert_int_equal(*piece[i], i);
    arena_release(&arena);
}

static void test_what_overflows_is_refused(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    assert_null(arena_alloc(&arena, SIZE_MAX, 2));
    assert_null(arena_alloc(&arena, SIZE_MAX / 2 + 1, 2));
    assert_null(arena_alloc(&arena, 1, SIZE_MAX));
    assert_null(arena_alloc(&arena, SIZE_MAX - ARENA_ALIGN, 1));
    assert_null(arena_array(&arena, SIZE_MAX / 4, double));
    assert_int_equal(arena.bytes, 0);
    check_piece(arena_alloc(&arena, 100, 1), 100); /* and the arena continues */
    arena_release(&arena);
}

static void test_what_is_over_the_limit_is_refused(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    check_piece(arena_alloc(&arena, 64, 1), 64);
    arena_limit(&arena, 256); /* allocated bytes count, with their padding */
    assert_null(arena_alloc(&arena, 193, 1));
    check_piece(arena_alloc(&arena, 65, 1), 65);
    assert_null(arena_alloc(&arena, 65, 1));
    check_piece(arena_alloc(&arena, 64, 1), 64);
    assert_null(arena_alloc(&arena, 1, 1));
    assert_int_equal(arena.bytes, 256);
    arena_limit(&arena, 128); /* more is out */
    assert_null(arena_alloc(&arena, 1, 1));
    arena_limit(&arena, 0);
    check_piece(arena_alloc(&arena, 1000, 1), 1000);
    arena_release(&arena);
}

static void test_nothing_is_a_valid_request(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    check_piece(arena_alloc(&arena, 0, 16), 0);
    check_piece(arena_alloc(&arena, 65536, 1), 65536);
    check_piece(arena_alloc(&arena, 0, 16), 0); /* with the block full */
    check_piece(arena_alloc(&arena, 16, 0), 0);
    arena_release(&arena);
    arena_release(&arena); /* an empty arena may be released, too */
}

static void test_what_came_after_a_mark_is_given_back(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    struct arena_mark empty = arena_mark(&arena);
    char *kept = arena_strdup(&arena, "kept");
    struct arena_mark mark = arena_mark(&arena);
    void *gone = arena_alloc(&arena, 100, 1);
    memset(gone, 7, 100);
    check_piece(arena_alloc(&arena, 1 << 20, 1), 1 << 20);
    arena_rewind(&arena, &mark);
    assert_int_equal(arena.bytes, 64);
    assert_string_equal(kept, "kept");
    void *again = arena_alloc(&arena, 100, 1);
    assert_ptr_equal(again, gone);
    check_piece(again, 100);
    arena_rewind(&arena, &empty);
    assert_int_equal(arena.bytes, 0);
    assert_null(arena.head);
}

/* A small piece over the beginning of the freed memory, then one over its end and fresh memory. */
static void test_what_is_handed_out_again_is_zero(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    arena_alloc(&arena, 100, 1);
    struct arena_mark mark = arena_mark(&arena);
    memset(arena_alloc(&arena, 1000, 1), 0xff, 1000);
    arena_rewind(&arena, &mark);
    check_piece(arena_alloc(&arena, 200, 1), 200);
    check_piece(arena_alloc(&arena, 5000, 1), 5000);
    arena_release(&arena);
}

static void test_strings_are_copied(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    char text[] = "worker";
    char *copy = arena_strdup(&arena, text);
    char *empty = arena_strdup(&arena, "");
    text[0] = 'W';
    assert_string_equal(copy, "worker");
    assert_string_equal(empty, "");
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_are_aligned_zeroed_and_apart),
        cmocka_unit_test(test_a_thousand_small_pieces),
        cmocka_unit_test(test_what_overflows_is_refused),
        cmocka_unit_test(test_what_is_over_the_limit_is_refused),
        cmocka_unit_test(test_nothing_is_a_valid_request),
        cmocka_unit_test(test_what_came_after_a_mark_is_given_back),
        cmocka_unit_test(test_what_is_handed_out_again_is_zero),
        cmocka_unit_test(test_strings_are_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
