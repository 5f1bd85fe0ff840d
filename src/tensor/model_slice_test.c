#include "tensor/model_slice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Weights of 5 outputs with 3 inputs, their biases, and a vector that is not cut. */
static struct segments make_table(struct arena *arena)
{
    static const struct shape w = {2, {5, 3}}, b = {1, {5}}, other = {1, {4}};
    struct segments table = {0};
    arena_init(arena);
    segments_add(&table, arena, "ip.0", &w, 1, 1)->units = 5;
    segments_add(&table, arena, "ip.1", &b, 1, 1)->units = 5;
    assert_non_null(segments_add(&table, arena, "other.0", &other, 1, 1));
    return table;
}

/* Two slices of 5 outputs have 2 and 3 of them: 6 and 9 weights, each segment at a multiple of 16.
 */
static void test_slices_share_out_the_outputs(void **state)
{
    (void)state;
    struct arena arena;
    struct segments table = make_table(&arena);
    const struct model_slice first = {0, 2}, second = {1, 2}, all = {SLICE_ALL, 2}, none = {0, 1};
    assert_int_equal(slice_units(&first, 5).from, 0);
    assert_int_equal(slice_units(&first, 5).len, 2);
    assert_int_equal(slice_units(&second, 5).from, 2);
    assert_int_equal(slice_units(&second, 5).len, 3);
    assert_int_equal(slice_units(&all, 5).len, 5);
    assert_int_equal(slice_units(&none, 5).len, 5);
    assert_int_equal(slice_of_block(&second, &table.at[0], 0).from, 6);
    assert_int_equal(slice_of_block(&second, &table.at[0], 0).len, 9);
    assert_int_equal(slice_of_block(&second, &table.at[1], 0).from, 2);
    assert_int_equal(slice_of_block(&second, &table.at[2], 0).from, 0);
    assert_int_equal(slice_of_block(&second, &table.at[2], 0).len, 4);
    assert_int_equal(slice_total(&first, &table), 48);
    assert_int_equal(slice_total(&all, &table), table.total);
    assert_false(slice_is_part(&all) || slice_is_part(&none));
    arena_release(&arena);
}

static void test_slices_are_taken_and_put_back(void **state)
{
    enum { SLICES = 3, FLOATS = 48 };
    (void)state;
    struct arena arena;
    struct segments table = make_table(&arena);
    float all[FLOATS] = {0}, again[FLOATS] = {0}, part[FLOATS];
    assert_int_equal(table.total, FLOATS);
    for (size_t i = 0; i < table.count; i++)
        for (size_t k = 0; k < table.at[i].len; k++)
            all[table.at[i].offset + k] = (float)(100 * (i + 1) + k);
    for (size_t f = 0; f < SLICES; f++) {
        const struct model_slice slice = {f, SLICES};
        slice_take(&slice, &table, all, part);
        if (f == 1) { /* of 5 outputs the 2nd and the 3rd */
            assert_true(part[0] == 103 && part[5] == 108);
            assert_true(part[16] == 201 && part[17] == 202);
            assert_true(part[32] == 300 && part[35] == 303);
        }
        slice_put(&slice, &table, part, again);
    }
    assert_memory_equal(all, again, sizeof all);
    arena_release(&arena);
}

/* Of recurrent units a slice has all gates: of 3 gates of 5 units with 2 inputs, and a bias. */
static void test_slices_have_all_gates_of_their_units(void **state)
{
    enum { GATES = 3, UNITS = 5, INPUTS = 2, FLOATS = 32 + 16 };
    (void)state;
    struct arena arena;
    struct segments table = {0};
    static const struct shape w = {2, {GATES * UNITS, INPUTS}}, b = {1, {GATES * UNITS}};
    float all[FLOATS] = {0}, again[FLOATS] = {0}, part[FLOATS];
    arena_init(&arena);
    segments_add(&table, &arena, "gru.0", &w, 1, 1);
    segments_add(&table, &arena, "gru.1", &b, 1, 1);
    assert_int_equal(table.total, FLOATS);
    for (size_t i = 0; i < table.count; i++) {
        table.at[i].units = UNITS;
        table.at[i].blocks = GATES;
        for (size_t k = 0; k < table.at[i].len; k++)
            all[table.at[i].offset + k] = (float)(100 * (i + 1) + k);
    }
    for (size_t f = 0; f < 2; f++) {
        const struct model_slice slice = {f, 2};
        assert_int_equal(slice_total(&slice, &table), f == 0 ? 16 + 16 : 32 + 16);
        slice_take(&slice, &table, all, part);
        for (size_t gate = 0; f == 1 && gate < GATES; gate++) /* the last 3 of 5 units */
            for (size_t i = 0; i < 3 * INPUTS; i++) {
                assert_true(part[gate * 3 * INPUTS + i] ==
                            (float)(100 + (gate * UNITS + 2) * INPUTS + i));
                assert_true(part[32 + gate * 3 + i / INPUTS] ==
                            (float)(200 + gate * UNITS + 2 + i / INPUTS));
            }
        slice_put(&slice, &table, part, again);
    }
    assert_memory_equal(all, again, sizeof all);
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices_share_out_the_outputs),
        cmocka_unit_test(test_slices_are_taken_and_put_back),
        cmocka_unit_test(test_slices_have_all_gates_of_their_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
