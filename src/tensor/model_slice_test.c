#include "tensor/model_slice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { FLOATS = 48, SLICES_MOST = 3 };

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

/* Fill the slices' vectors run by run with 100 times the segment's number, and the float's. Returns
 * the number of runs. */
static size_t share_out(const struct segments *table, size_t slices, float (*part)[FLOATS])
{
    size_t begin[SLICES_MOST] = {0}, runs = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct segment *whole = &table->at[i];
        for (size_t at = 0, run; at < whole->len; at += run, runs++) {
            struct slice_place place = slice_find(slices, whole, at);
            run = place.run;
            assert_true(place.slice < slices && run > 0 && at + run <= whole->len);
            for (size_t k = 0; k < run; k++)
                part[place.slice][begin[place.slice] + place.at + k] =
                    (float)(100 * (i + 1) + at + k);
        }
        for (size_t f = 0; f < slices; f++)
            begin[f] = slice_next_segment(&(struct model_slice){f, slices}, whole, begin[f]);
    }
    for (size_t f = 0; f < slices; f++)
        assert_int_equal(begin[f], slice_total(&(struct model_slice){f, slices}, table));
    return runs;
}

static void expect_whole(const struct segments *table, size_t slices, float (*part)[FLOATS])
{
    float again[FLOATS] = {0};
    for (size_t f = slices; f-- > 0;) { /* the first one last, which has what is not cut */
        const struct model_slice slice = {f, slices};
        slice_put(&slice, table, part[f], again);
    }
    for (size_t i = 0; i < table->count; i++)
        for (size_t k = 0; k < table->at[i].len; k++)
            assert_true(again[table->at[i].offset + k] == (float)(100 * (i + 1) + k));
}

/* The whole vector, run by run, out of the slices' own vectors; and back into it. */
static void test_each_float_has_a_place(void **state)
{
    (void)state;
    struct arena arena;
    struct segments table = make_table(&arena);
    float part[SLICES_MOST][FLOATS] = {{0}};
    assert_int_equal(table.total, FLOATS);
    assert_int_equal(share_out(&table, 3, part), 3 + 3 + 1); /* what is not cut: the first one's */
    /* Of 5 outputs the second slice has the 2nd and the 3rd. */
    assert_true(part[1][0] == 103 && part[1][5] == 108);
    assert_true(part[1][16] == 201 && part[1][17] == 202);
    assert_true(part[0][32] == 300 && part[1][32] == 0);
    expect_whole(&table, 3, part);
    arena_release(&arena);
}

/* Of recurrent units a slice has all gates: of 3 gates of 5 units with 2 inputs, and a bias. */
static void test_slices_have_all_gates_of_their_units(void **state)
{
    enum { GATES = 3, UNITS = 5, INPUTS = 2 };
    (void)state;
    struct arena arena;
    struct segments table = {0};
    static const struct shape w = {2, {GATES * UNITS, INPUTS}}, b = {1, {GATES * UNITS}};
    float part[SLICES_MOST][FLOATS] = {{0}};
    arena_init(&arena);
    segments_add(&table, &arena, "gru.0", &w, 1, 1);
    segments_add(&table, &arena, "gru.1", &b, 1, 1);
    assert_int_equal(table.total, FLOATS);
    for (size_t i = 0; i < table.count; i++) {
        table.at[i].units = UNITS;
        table.at[i].blocks = GATES;
    }
    assert_int_equal(share_out(&table, 2, part), 2 * GATES * 2);
    assert_int_equal(slice_total(&(struct model_slice){0, 2}, &table), 16 + 16);
    assert_int_equal(slice_total(&(struct model_slice){1, 2}, &table), 32 + 16);
    for (size_t gate = 0; gate < GATES; gate++) /* of the second the last 3 of 5 units */
        for (size_t i = 0; i < 3 * INPUTS; i++) {
            assert_true(part[1][gate * 3 * INPUTS + i] ==
                        (float)(100 + (gate * UNITS + 2) * INPUTS + i));
            assert_true(part[1][32 + gate * 3 + i / INPUTS] ==
                        (float)(200 + gate * UNITS + 2 + i / INPUTS));
        }
    expect_whole(&table, 2, part);
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices_share_out_the_outputs),
        cmocka_unit_test(test_each_float_has_a_place),
        cmocka_unit_test(test_slices_have_all_gates_of_their_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
