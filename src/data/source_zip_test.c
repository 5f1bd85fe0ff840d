/* Records with fields: the place of each part's values, integers, records of several lengths, and
 * what does not go together. */
#include "data/source_memory.h"
#include "data/source_zip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

enum { COUNT = 3 };

static struct source *open_memory(struct memory_records records)
{
    struct source *source;
    struct err err = {0};
    records.name = "part";
    if (source_memory(&records, &source, &err) != OK)
        fail_msg("%s", err.text);
    return source;
}

static struct source *bytes_part(void)
{
    static const uint8_t values[COUNT][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 255}};
    return open_memory((struct memory_records){
        .count = COUNT, .shape = {3, {1, 2, 2}}, .type = VALUE_U8, .values = values});
}

static const uint32_t labels[COUNT] = {4, 0, 2};

static struct source *integers_part(const int64_t *values)
{
    return open_memory((struct memory_records){.count = COUNT,
                                               .shape = {3, {2, 1, 1}},
                                               .type = VALUE_I64,
                                               .values = values,
                                               .classes = 5,
                                               .labels = labels});
}

static const int64_t integers[COUNT * 2] = {-1, 16777216, 0, 7, -16777216, 3};

static void expect_values(const struct source *source, size_t i, const float *expected)
{
    struct scratch scratch = {0};
    struct raw raw;
    struct err err = {0};
    float x[64];
    if (source->ops->read(source, i, &scratch, &raw, &err) != OK)
        fail_msg("%s", err.text);
    raw_floats(&raw, x);
    assert_memory_equal(x, expected, shape_count(&source->shape) * sizeof *x);
    scratch_release(&scratch);
}

static struct source *make_zip(const struct zip_field *field, size_t n)
{
    struct source *source;
    struct err err = {0};
    if (source_zip(field, n, &source, &err) != OK)
        fail_msg("%s", err.text);
    return source;
}

static void test_fields_lie_side_by_side(void **state)
{
    (void)state;
    const struct zip_field field[] = {{bytes_part(), "image", {0}},
                                      {integers_part(integers), "numbers", {0}}};
    struct source *source = make_zip(field, 2);
    assert_int_equal(source->count, COUNT);
    assert_int_equal(source->shape.dim[0], 6);
    assert_int_equal(source->fields.n, 2);
    assert_string_equal(source->fields.field[1].name, "numbers");
    assert_int_equal(source->fields.field[1].from, 4);
    assert_int_equal(source->fields.field[0].shape.n, 3);
    assert_int_equal(source->fields.field[1].shape.n, 1);
    assert_false(source->fields.field[0].is_integer);
    assert_true(source->fields.field[1].is_integer);
    expect_values(source, 0, (const float[]){1, 2, 3, 4, -1, 16777216});
    expect_values(source, 2, (const float[]){9, 10, 11, 255, -16777216, 3});
    assert_int_equal(source->classes, 5);
    assert_int_equal(source->ops->label(source, 2), 2);
    source_close(source);
}

static void test_a_zip_of_a_zip_keeps_its_names(void **state)
{
    (void)state;
    const struct zip_field inner[] = {{bytes_part(), "a", {2, {2, 2}}},
                                      {integers_part(integers), "b", {0}}};
    const struct zip_field outer[] = {{integers_part(integers), "c", {1, {2}}},
                                      {make_zip(inner, 2), NULL, {0}},
                                      {bytes_part(), "d", {0}}};
    struct source *source = make_zip(outer, 3);
    assert_int_equal(source->fields.n, 4);
    assert_string_equal(source->fields.field[2].name, "b");
    assert_int_equal(source->fields.field[2].from, 6);
    assert_true(source->fields.field[2].is_integer);
    expect_values(source, 1, (const float[]){0, 7, 5, 6, 7, 8, 0, 7, 5, 6, 7, 8});
    source_close(source);
}

static void test_records_of_several_lengths_are_filled(void **state)
{
    (void)state;
    static const int32_t values[] = {3, 1, 4, 1, 5};
    static const uint64_t begin[COUNT + 1] = {0, 2, 2, 5};
    const struct memory_records records = {.count = COUNT,
                                           .shape = {3, {4, 1, 1}},
                                           .type = VALUE_I32,
                                           .values = values,
                                           .begin = begin,
                                           .fill = -1};
    struct source *source = open_memory(records);
    expect_values(source, 0, (const float[]){3, 1, -1, -1});
    expect_values(source, 1, (const float[]){-1, -1, -1, -1});
    expect_values(source, 2, (const float[]){4, 1, 5, -1});
    static const uint64_t other[COUNT + 1] = {0, 1, 2, 5};
    struct memory_records differs = records;
    differs.begin = other;
    struct source *second = open_memory(differs);
    assert_true(source->hash != second->hash);
    source_close(second);
    source_close(source);
}

static void refuse_memory(struct memory_records records, const char *why)
{
    struct source *source;
    struct err err = {0};
    records.name = "part";
    assert_int_equal(source_memory(&records, &source, &err), ERR_INPUT);
    if (!strstr(err.text, why))
        fail_msg("\"%s\" does not say \"%s\"", err.text, why);
}

static void test_lengths_and_labels_out_of_their_limits_are_refused(void **state)
{
    (void)state;
    static const uint8_t values[8];
    static const uint64_t falls[] = {0, 3, 2}, exceeds[] = {0, 5, 6};
    struct memory_records records = {
        .count = 2, .shape = {3, {4, 1, 1}}, .type = VALUE_U8, .values = values, .begin = falls};
    refuse_memory(records, "record 1 has the values 3 to 2, and at most 4");
    records.begin = exceeds;
    refuse_memory(records, "record 0 has the values 0 to 5, and at most 4");
    records.begin = NULL;
    records.classes = 2;
    refuse_memory(records, "2 classes, and there are no labels");
    records.classes = 0;
    records.labels = labels;
    refuse_memory(records, "0 classes, and there are labels");
}

static void test_an_integer_that_no_float_holds_is_a_broken_record(void **state)
{
    (void)state;
    static const int64_t large[COUNT * 2] = {0, 1, 2, 16777217, 3, INT64_MIN};
    struct source *source = integers_part(large);
    struct scratch scratch = {0};
    struct raw raw;
    struct err err = {0};
    assert_int_equal(source->ops->read(source, 0, &scratch, &raw, &err), OK);
    assert_int_equal(source->ops->read(source, 1, &scratch, &raw, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "record 1: value 1 is beyond"));
    assert_int_equal(source->ops->read(source, 2, &scratch, &raw, &err), ERR_INPUT);
    scratch_release(&scratch);
    source_close(source);
}

static void refuse_zip(const struct zip_field *field, size_t n, const char *why)
{
    struct source *source;
    struct err err = {0};
    assert_int_equal(source_zip(field, n, &source, &err), ERR_INPUT);
    if (!strstr(err.text, why))
        fail_msg("\"%s\" does not say \"%s\"", err.text, why);
    for (size_t i = 0; i < n; i++)
        source_close(field[i].part);
}

static void test_what_does_not_go_together_is_refused(void **state)
{
    (void)state;
    static const uint8_t two[2];
    struct source *fewer = open_memory((struct memory_records){
        .count = 2, .shape = {3, {1, 1, 1}}, .type = VALUE_U8, .values = two});
    refuse_zip((const struct zip_field[]){{bytes_part(), "a", {0}}, {fewer, "b", {0}}}, 2,
               "2 records of \"b\", and 3 of the first field");
    refuse_zip((const struct zip_field[]){{bytes_part(), "a", {0}}, {bytes_part(), "a", {0}}}, 2,
               "\"a\" is there twice");
    refuse_zip((const struct zip_field[]){{bytes_part(), "a", {1, {3}}}}, 1,
               "\"a\" is 3, and its records are 1x2x2");
    refuse_zip((const struct zip_field[]){{bytes_part(), "label", {0}}}, 1,
               "\"label\" is no name of a field");
    refuse_zip((const struct zip_field[]){{bytes_part(), NULL, {0}}}, 1, "a field has a name");
    struct source *deep = bytes_part();
    for (int depth = 0; depth < DEPTH_MAX; depth++)
        deep = make_zip(&(struct zip_field){deep, depth == 0 ? "a" : NULL, {0}}, 1);
    refuse_zip((const struct zip_field[]){{deep, NULL, {0}}}, 1, "more than 4 zips");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields_lie_side_by_side),
        cmocka_unit_test(test_a_zip_of_a_zip_keeps_its_names),
        cmocka_unit_test(test_records_of_several_lengths_are_filled),
        cmocka_unit_test(test_lengths_and_labels_out_of_their_limits_are_refused),
        cmocka_unit_test(test_an_integer_that_no_float_holds_is_a_broken_record),
        cmocka_unit_test(test_what_does_not_go_together_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
