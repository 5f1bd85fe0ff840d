/* A function of the caller's between a source and its reader: what it is given, how it draws, and
 * maps within each other. */
#include "base/rng.h"
#include "data/dataset.h"
#include "data/source_combined.h"
#include "data/source_mapped.h"
#include "data/source_memory.h"
#include "data/source_zip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

enum { COUNT = 4 };

static const uint8_t values[COUNT][2] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
static const uint32_t labels[COUNT] = {1, 0, 1, 0};

static struct source *open_bytes(void)
{
    const struct memory_records records = {.name = "bytes",
                                           .count = COUNT,
                                           .shape = {3, {2, 1, 1}},
                                           .classes = 2,
                                           .type = VALUE_U8,
                                           .values = values,
                                           .labels = labels};
    struct source *source;
    struct err err = {0};
    if (source_memory(&records, &source, &err) != OK)
        fail_msg("%s", err.text);
    return source;
}

/* The sum of the values, their number as user has it, the record, and a draw. */
static int sum_values(void *user, size_t i, const float *in, const struct dataset_draw *draw,
                      float *out)
{
    size_t n = *(const size_t *)user;
    out[0] = 0;
    for (size_t k = 0; k < n; k++)
        out[0] += in[k];
    out[1] = (float)i;
    out[2] = draw ? rng_uniform(draw->seed, draw->epoch, i) : -1;
    return i == 3 && n == 2 ? ERR_INPUT : OK;
}

static int released;

static void count_release(void *user)
{
    (void)user;
    released++;
}

static struct source *map_source(struct source *of, const size_t *n)
{
    const struct record_map map = {.name = "sums",
                                   .shape = {3, {3, 1, 1}},
                                   .apply = sum_values,
                                   .hash = 7,
                                   .release = count_release,
                                   .user = (void *)(uintptr_t)n};
    struct source *source;
    struct err err = {0};
    if (source_mapped(of, &map, &source, &err) != OK)
        fail_msg("%s", err.text);
    return source;
}

static const size_t two = 2, three = 3;

static void read_floats(const struct source *source, size_t i, const struct dataset_draw *draw,
                        float *x)
{
    struct scratch scratch = {.draw = draw};
    struct raw raw;
    struct err err = {0};
    if (source->ops->read(source, i, &scratch, &raw, &err) != OK)
        fail_msg("%s", err.text);
    raw_floats(&raw, x);
    scratch_release(&scratch);
}

static void test_a_map_sees_values_record_and_draw(void **state)
{
    (void)state;
    struct source *source = map_source(open_bytes(), &two);
    float x[3], again[3], other[3];
    const struct dataset_draw first = {5, 0}, second = {5, 1};
    read_floats(source, 2, NULL, x);
    assert_true(x[0] == 11 && x[1] == 2 && x[2] == -1);
    read_floats(source, 2, &first, x);
    read_floats(source, 2, &first, again);
    read_floats(source, 2, &second, other);
    assert_memory_equal(x, again, sizeof x);
    assert_true(x[2] != other[2]);
    assert_int_equal(source->ops->label(source, 2), 1);
    assert_int_equal(source->classes, 2);
    source_close(source);
    assert_int_equal(released, 1);
}

/* A cache may keep what a constant map makes, and nothing that is drawn below it. */
static void test_what_may_be_kept(void **state)
{
    (void)state;
    struct record_map map = {.name = "sums",
                             .shape = {3, {3, 1, 1}},
                             .apply = sum_values,
                             .hash = 7,
                             .user = (void *)(uintptr_t)&two};
    struct source *source[3] = {open_bytes()}, *both, *drawn[2];
    struct err err = {0};
    assert_int_equal(source[0]->reading, SOURCE_IN_MEMORY);
    map.constant = true;
    assert_int_equal(source_mapped(source[0], &map, &source[1], &err), OK);
    assert_int_equal(source[1]->reading, SOURCE_READS);
    map.constant = false;
    assert_int_equal(source_mapped(source[1], &map, &source[2], &err), OK);
    assert_int_equal(source[2]->reading, SOURCE_DRAWS);
    map.constant = true;
    assert_int_equal(source_mapped(source[2], &map, &drawn[0], &err), OK);
    assert_int_equal(drawn[0]->reading, SOURCE_DRAWS);
    drawn[1] = map_source(open_bytes(), &two);
    assert_int_equal(source_concat(drawn, 2, &both, &err), OK);
    assert_int_equal(both->reading, SOURCE_DRAWS);
    source_close(both);
}

/* As a dataset reads it, in training and for evaluation. */
static void test_a_dataset_hands_the_draw_down(void **state)
{
    (void)state;
    struct source *source = map_source(open_bytes(), &two);
    const Paceline__Data plain = PACELINE__DATA__INIT;
    const struct dataset_draw draw = {5, 3};
    struct dataset set;
    struct scratch scratch = {0};
    struct err err = {0};
    float x[3];
    uint32_t label;
    uint64_t record;
    assert_int_equal(dataset_init(&set, source, &plain, &err), OK);
    assert_int_equal(dataset_read(&set, 1, &draw, &scratch, x, &label, &record, &err), OK);
    assert_true(x[2] == rng_uniform(5, 3, 1));
    assert_int_equal(dataset_read(&set, 1, NULL, &scratch, x, &label, &record, &err), OK);
    assert_true(x[2] == -1);
    assert_int_equal(dataset_read(&set, 3, NULL, &scratch, x, &label, &record, &err), ERR_INPUT);
    assert_string_equal(err.text, "map sums: record 3: bad input");
    scratch_release(&scratch);
    dataset_release(&set);
    source_close(source);
}

/* Each has memory of its own, whatever is between them. */
static void test_maps_within_each_other(void **state)
{
    (void)state;
    struct source *inner = map_source(open_bytes(), &two), *zip;
    const struct zip_field field[] = {{open_bytes(), "bytes", {0}}, {inner, "sums", {0}}};
    struct err err = {0};
    float x[3];
    assert_int_equal(source_zip(field, 2, &zip, &err), OK);
    struct source *outer = map_source(zip, &three); /* 1 + 2 + (1 + 2) */
    read_floats(outer, 0, NULL, x);
    assert_true(x[0] == 6 && x[1] == 0);
    assert_int_equal(outer->fields.n, 0);
    assert_int_equal(outer->depth, 3);
    source_close(outer);
}

static void refuse_map(struct source *of, struct record_map map, const char *why)
{
    struct source *source;
    struct err err = {0};
    map.name = "wrong";
    assert_int_equal(source_mapped(of, &map, &source, &err), ERR_INPUT);
    if (!strstr(err.text, why))
        fail_msg("\"%s\" does not say \"%s\"", err.text, why);
    source_close(of);
}

static void test_wrong_maps_are_refused(void **state)
{
    (void)state;
    refuse_map(open_bytes(), (struct record_map){.apply = sum_values}, "a hash that names it");
    refuse_map(open_bytes(),
               (struct record_map){.apply = sum_values, .hash = 1, .shape = {3, {1, 0, 1}}},
               "records of 1 x 0 x 1");
    struct source *deep = open_bytes();
    for (int depth = 0; depth < DEPTH_MAX; depth++)
        deep = map_source(deep, &two);
    refuse_map(deep, (struct record_map){.apply = sum_values, .hash = 1}, "more than 4 zips");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_map_sees_values_record_and_draw),
        cmocka_unit_test(test_what_may_be_kept),
        cmocka_unit_test(test_a_dataset_hands_the_draw_down),
        cmocka_unit_test(test_maps_within_each_other),
        cmocka_unit_test(test_wrong_maps_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
