#include "tensor/segment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct shape shape_of(size_t a)
{
    return (struct shape){1, {a}};
}

static void test_shapes_multiply_their_dimensions(void **state)
{
    (void)state;
    struct shape x = {4, {64, 1, 28, 28}}, none = {0}, empty = {3, {5, 0, 7}};
    assert_int_equal(shape_count(&x), 50176);
    assert_int_equal(shape_count_from(&x, 1), 784);
    assert_int_equal(shape_count_from(&x, 4), 1);
    assert_int_equal(shape_count(&none), 1);
    assert_int_equal(shape_count(&empty), 0);
}

static void test_a_shape_too_large_for_memory_counts_zero(void **state)
{
    (void)state;
    size_t half = (size_t)1 << (sizeof(size_t) * 4);
    struct shape overflows = {2, {half, half}}, bytes_overflow = {2, {half, half / 4}};
    struct shape fits = {2, {half, half / 8}}, zero_last = {3, {half, half, 0}};
    assert_int_equal(shape_count(&overflows), 0);
    assert_int_equal(shape_count(&bytes_overflow), 0);
    assert_int_equal(shape_count(&fits), half * (half / 8));
    assert_int_equal(shape_count(&zero_last), 0);
}

static void test_shapes_are_equal_by_used_dimensions_only(void **state)
{
    (void)state;
    struct shape a = {2, {3, 4, 99}}, b = {2, {3, 4}}, longer = {3, {3, 4, 1}}, other = {2, {4, 3}};
    assert_true(shape_equal(&a, &b));
    assert_false(shape_equal(&a, &longer));
    assert_false(shape_equal(&a, &other));
}

static void test_shapes_read_as_text_and_are_cut_to_fit(void **state)
{
    (void)state;
    struct shape x = {4, {64, 1, 28, 28}}, none = {0};
    char text[32], little[5];
    assert_string_equal(shape_text(&x, text, sizeof text), "64x1x28x28");
    assert_string_equal(shape_text(&none, text, sizeof text), "scalar");
    assert_string_equal(shape_text(&x, little, sizeof little), "64x1");
}

/* LeNet's first layers: 20·1·5·5 weights fill 500 floats, so the bias starts at 512. */
static void test_segments_start_on_aligned_offsets(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    struct segments table = {0};
    struct shape w = {4, {20, 1, 5, 5}}, b = shape_of(20);
    assert_non_null(segments_add(&table, &arena, "conv1.0", &w, 1, 1));
    assert_int_equal(table.total, 512);
    struct segment *bias = segments_add(&table, &arena, "conv1.1", &b, 2, 0);
    assert_non_null(bias);
    assert_int_equal(bias->offset, 512);
    assert_int_equal(bias->len, 20);
    assert_int_equal(table.total, 544);
    assert_true(bias->lr_mult == 2 && bias->decay_mult == 0 && bias->flags == 0);

    assert_ptr_equal(segments_find(&table, "conv1.1"), &table.at[1]);
    assert_true(shape_equal(&segments_find(&table, "conv1.0")->shape, &w));
    assert_null(segments_find(&table, "conv1"));
    arena_release(&arena);
}

static void test_a_table_grows_and_keeps_what_it_holds(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    struct segments table = {0};
    size_t expected = 0;
    for (size_t i = 0; i < 1000; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer%zu.0", i);
        struct shape shape = shape_of(i % 40 + 1);
        assert_non_null(segments_add(&table, &arena, name, &shape, (float)i, 0));
    }
    for (size_t i = 0; i < 1000; i++) {
        assert_int_equal(table.at[i].offset, expected);
        assert_int_equal(table.at[i].offset % SEGMENT_ALIGN, 0);
        assert_true(table.at[i].lr_mult == (float)i);
        expected += i % 40 < 16 ? 16 : i % 40 < 32 ? 32 : 48;
    }
    assert_int_equal(table.total, expected);
    assert_ptr_equal(segments_find(&table, "layer777.0"), &table.at[777]);
    arena_release(&arena);
}

static void test_what_does_not_fit_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    struct segments table = {0};
    struct shape one = shape_of(1), none = shape_of(0), huge = shape_of(SIZE_MAX / 4);
    char name[SEGMENT_NAME_MAX + 1] = {0};
    memset(name, 'n', SEGMENT_NAME_MAX);
    assert_null(segments_add(&table, &arena, name, &one, 1, 1));
    assert_null(segments_add(&table, &arena, "none", &none, 1, 1));
    assert_null(segments_add(&table, &arena, "huge", &huge, 1, 1));
    assert_int_equal(table.count, 0);
    assert_int_equal(table.total, 0);
    name[SEGMENT_NAME_MAX - 1] = 0;
    assert_non_null(segments_add(&table, &arena, name, &one, 1, 1));
    assert_non_null(segments_find(&table, name));
    arena_release(&arena);
}

static struct segments segment_pair(struct arena *arena, const char *second, size_t len,
                                    float lr_mult)
{
    struct segments table = {0};
    struct shape a = shape_of(10), b = shape_of(len);
    assert_non_null(segments_add(&table, arena, "a.0", &a, 1, 1));
    assert_non_null(segments_add(&table, arena, second, &b, lr_mult, 1));
    return table;
}

static void test_tables_match_by_names_offsets_and_lengths(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    struct segments x = segment_pair(&arena, "b.0", 17, 1),
                    same = segment_pair(&arena, "b.0", 17, 2);
    struct segments renamed = segment_pair(&arena, "c.0", 17, 1),
                    longer = segment_pair(&arena, "b.0", 18, 1);
    struct segments shorter = x;
    shorter.count--;
    assert_true(segments_match(&x, &same)); /* a rate does not stand in the way of an exchange */
    assert_int_equal(segments_hash(&x), segments_hash(&same));
    const struct segments *others[] = {&renamed, &longer, &shorter};
    for (size_t i = 0; i < 3; i++) {
        assert_false(segments_match(&x, others[i]));
        assert_true(segments_hash(&x) != segments_hash(others[i]));
    }
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes_multiply_their_dimensions),
        cmocka_unit_test(test_a_shape_too_large_for_memory_counts_zero),
        cmocka_unit_test(test_shapes_are_equal_by_used_dimensions_only),
        cmocka_unit_test(test_shapes_read_as_text_and_are_cut_to_fit),
        cmocka_unit_test(test_segments_start_on_aligned_offsets),
        cmocka_unit_test(test_a_table_grows_and_keeps_what_it_holds),
        cmocka_unit_test(test_what_does_not_fit_is_refused_and_changes_nothing),
        cmocka_unit_test(test_tables_match_by_names_offsets_and_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
