/* A job's zip: fields through maps of their own, behind a cache, from names, tables and files, and
 * what is refused by the field's name. */
#include "data/source_field.h"

#include "data/bindings.h"
#include "data/reading.h"
#include "data/record_cache.h"
#include "data/source_memory.h"
#include "data/source_zip.h"
#include "folder.h"
#include "job/job.h"
#include "npy_file.h"

enum { RECORDS = 5, SIDE = 4, PIXELS = SIDE * SIDE, PLACES = 3 };

static uint8_t image[RECORDS][PIXELS];
static float mask[RECORDS][PIXELS];
static int64_t kinds[RECORDS][PLACES];

static int setup(void **state)
{
    static struct folder f;
    folder_make(&f);
    for (int i = 0; i < RECORDS; i++) {
        for (int k = 0; k < PIXELS; k++) {
            image[i][k] = (uint8_t)(40 * i + k);
            mask[i][k] = 2 * (float)image[i][k];
        }
        for (int k = 0; k < PLACES; k++)
            kinds[i][k] = 100000 * i + k;
    }
    npy_write(f.path, "image.npy", "|u1", "(5, 1, 4, 4)", image, sizeof image);
    npy_write(f.path, "mask.npy", "<f4", "(5, 1, 4, 4)", mask, sizeof mask);
    npy_write(f.path, "kinds.npy", "<i8", "(5, 3)", kinds, sizeof kinds);
    npy_write(f.path, "fewer.npy", "<i8", "(4, 3)", kinds, sizeof kinds / RECORDS * 4);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    folder_remove(*state);
    return 0;
}

/* ---- a job's data ---- */

/* Its paths count from the folder. */
static Paceline__Job *parse_data(const struct folder *f, const char *data)
{
    char text[4096], path[256];
    struct err err = {0};
    Paceline__Job *job = NULL;
    int n = snprintf(text, sizeof text, "train_data { %s }", data);
    assert_in_range(n, 1, sizeof text - 1);
    int rc = job_parse("job", text, (size_t)n, &job, &err);
    if (rc == OK)
        rc = job_resolve_paths(job, folder_file(f, "job", path), &err);
    if (rc == OK)
        rc = job_check_data(job->train_data, "train_data", &err);
    if (rc != OK)
        fail_msg("%s", err.text);
    return job;
}

static struct source *open_data(const struct folder *f, const char *data,
                                const struct source_config *config)
{
    struct source *source;
    struct err err = {0};
    Paceline__Job *job = parse_data(f, data);
    if (source_open_with(config, job->train_data, &source, &err) != OK)
        fail_msg("%s", err.text);
    job_free(job);
    return source;
}

static void refuse_data(const struct folder *f, const char *data,
                        const struct source_config *config, const char *why)
{
    struct source *source;
    struct err err = {0};
    Paceline__Job *job = parse_data(f, data);
    assert_int_equal(source_open_with(config, job->train_data, &source, &err), ERR_INPUT);
    if (!strstr(err.text, why))
        fail_msg("\"%s\" does not say \"%s\"", err.text, why);
    job_free(job);
}

static void read_values(const struct source *source, size_t i, const struct dataset_draw *draw,
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

static const struct source_config plain = {.role = SOURCE_TRAIN};

#define IMAGE "field { name: 'image' data { npy { values: 'image.npy' } "
#define MASK  "field { name: 'mask' data { npy { values: 'mask.npy' } "
#define KINDS "field { name: 'kinds' data { npy { values: 'kinds.npy' } } } "

/* ---- maps ---- */

static void test_maps_are_those_of_one_field(void **state)
{
    float x[PIXELS + PLACES];
    struct source *source =
        open_data(*state, "zip { " IMAGE "scale: 0.5 mean: 4 } } " KINDS "}", &plain);
    assert_int_equal(source->fields.n, 2);
    assert_false(source->fields.field[0].is_integer);
    assert_true(source->fields.field[1].is_integer);
    assert_true(source->reading == SOURCE_READS);
    read_values(source, 3, NULL, x);
    for (int k = 0; k < PIXELS; k++)
        assert_true(x[k] == 0.5f * (float)(image[3][k] - 4));
    for (int k = 0; k < PLACES; k++)
        assert_true(x[PIXELS + k] == (float)kinds[3][k]);
    source_close(source);
}

/* In training the mask stays that of its image; without a draw both are cropped from the middle. */
static void test_fields_of_one_size_draw_alike(void **state)
{
    enum { CROP = 2, EACH = CROP * CROP, EPOCHS = 64 };
    float x[2 * EACH];
    bool upper = false, lower = false, mirrored = false;
    struct source *source = open_data(
        *state, "zip { " IMAGE "crop: 2 mirror: true } } " MASK "crop: 2 mirror: true } } }",
        &plain);
    assert_int_equal(source->shape.dim[0], 2 * EACH);
    assert_int_equal(source->fields.field[0].shape.dim[1], CROP);
    assert_true(source->reading == SOURCE_DRAWS);
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        const struct dataset_draw draw = {7, epoch};
        read_values(source, 1, &draw, x);
        for (int k = 0; k < EACH; k++)
            assert_true(x[EACH + k] == 2 * x[k]);
        mirrored |= x[1] < x[0];
        upper |= x[0] < (float)(image[1][SIDE]);
        lower |= x[0] >= (float)(image[1][2 * SIDE]);
    }
    assert_true(upper && lower && mirrored);
    read_values(source, 1, NULL, x);
    assert_true(x[0] == (float)image[1][SIDE + 1] && x[3] == (float)image[1][2 * SIDE + 2]);
    source_close(source);
}

/* ---- what a field can be ---- */

static void test_fields_of_several_lengths_with_a_label_for_each_position(void **state)
{
    static const int32_t values[] = {3, 1, 4, 1, 5, 9, 2};
    static const uint64_t begin[RECORDS + 1] = {0, 2, 2, 5, 6, 7};
    static const uint32_t labels[RECORDS] = {1, 0, 3, 2, 1};
    const struct memory_records records = {.name = "tokens",
                                           .count = RECORDS,
                                           .shape = {3, {PLACES, 1, 1}},
                                           .classes = 4,
                                           .type = VALUE_I32,
                                           .values = values,
                                           .begin = begin,
                                           .fill = -1,
                                           .labels = labels};
    struct bindings bindings = {0};
    struct source *bound;
    struct err err = {0};
    float x[2 * PLACES];
    assert_int_equal(source_memory(&records, &bound, &err), OK);
    assert_int_equal(bindings_add(&bindings, "tokens", bound, &err), OK);
    struct source *source =
        open_data(*state,
                  "zip { " KINDS "field { name: 'tokens' data { memory { name: 'tokens' } } "
                  "dim: 1 dim: 3 } }",
                  &(struct source_config){.bindings = &bindings});
    read_values(source, 0, NULL, x);
    const float first[] = {0, 1, 2, 3, 1, -1}, third[] = {200000, 200001, 200002, 4, 1, 5};
    assert_memory_equal(x, first, sizeof first);
    read_values(source, 2, NULL, x);
    assert_memory_equal(x, third, sizeof third);
    assert_int_equal(source->classes, 4);
    assert_int_equal(source->ops->label(source, 2), 3);
    assert_int_equal(source->fields.field[1].shape.n, 2);
    source_close(source);
    bindings_release(&bindings);
}

/* A table's columns are found where they are open, and the test data has those of its place. */
static void test_a_table_within_a_zip_has_the_columns_of_the_training_data(void **state)
{
    const struct folder *f = *state;
    static const char rows[] = "color,v\nred,1\nblue,2\nred,3\nred,4\nred,5\n";
    static const char others[] = "color,v\nred,6\nred,7\nred,8\nred,9\nblue,1\n";
    float x[8];
    struct err err = {0};
    folder_put(f, "t.csv", rows, strlen(rows));
    folder_put(f, "o.csv", others, strlen(others));
    struct source *train =
        open_data(f, "zip { " KINDS "field { name: 't' data { csv { path: 't.csv' } } } }", &plain);
    Paceline__Job *job = parse_data(
        f, "zip { " KINDS "field { name: 't' data { csv { path: 'o.csv' } scale: 2 } } }");
    assert_int_equal(source_settle(train, job->train_data, &err), OK);
    assert_int_equal(job->train_data->zip->field[1]->data->csv->n_column, 2);
    struct source *test;
    if (source_open_with(&plain, job->train_data, &test, &err) != OK)
        fail_msg("%s", err.text);
    read_values(train, 0, NULL, x);
    assert_true(x[PLACES] == 0 && x[PLACES + 1] == 1 && x[PLACES + 2] == 1); /* blue, red, v */
    read_values(test, 0, NULL, x);
    assert_true(x[PLACES] == 0 && x[PLACES + 1] == 2 && x[PLACES + 2] == 12);
    /* ... and from one job to another, and from behind the maps */
    Paceline__Job *next =
        parse_data(f, "zip { " KINDS "field { name: 't' data { csv { path: 't.csv' } } } }");
    assert_int_equal(job_settle(next, job->train_data, &err), OK);
    assert_int_equal(next->train_data->zip->field[1]->data->csv->n_column, 2);
    job_free(next);
    next = parse_data(f, "zip { " KINDS "field { name: 't' data { csv { path: 't.csv' } } } }");
    assert_int_equal(source_settle(test, next->train_data, &err), OK);
    assert_true(next->train_data->zip->field[1]->data->csv->all_listed);
    job_free(next);
    job_free(job);
    source_close(test);
    source_close(train);
}

/* ---- the cache ---- */

/* It keeps what the files have, once, and not what maps draw from it. */
static void test_the_cache_is_in_front_of_each_field(void **state)
{
    struct record_cache *cache;
    struct record_cache_counts counts;
    struct err err = {0};
    float x[PIXELS + PLACES], again[PIXELS + PLACES];
    assert_int_equal(record_cache_create(&cache, &err), OK);
    record_cache_allow_memory(cache, 1 << 20);
    struct source *source = open_data(*state, "zip { " IMAGE "mirror: true } } " KINDS "}",
                                      &(struct source_config){.cache = cache});
    struct source *nested =
        open_data(*state, "zip { " KINDS "}", &(struct source_config){.cache = cache});
    assert_false(record_cache_serves(source));
    assert_false(record_cache_serves(nested));
    for (size_t i = 0; i < RECORDS; i++)
        read_values(source, i, NULL, x);
    record_cache_count(cache, &counts);
    assert_int_equal(counts.in_memory, 2 * RECORDS);
    for (uint64_t epoch = 0; epoch < 8; epoch++) {
        read_values(source, 2, &(struct dataset_draw){1, epoch}, x);
        read_values(source, 2, &(struct dataset_draw){1, epoch}, again);
        assert_memory_equal(x, again, sizeof x);
        assert_true(x[PIXELS] == (float)kinds[2][0]);
    }
    record_cache_count(cache, &counts);
    assert_int_equal(counts.in_memory, 2 * RECORDS);
    source_close(nested);
    source_close(source);
    record_cache_free(cache);
}

/* ---- what is refused ---- */

static void test_what_does_not_fit_is_refused_by_the_fields_name(void **state)
{
    const struct folder *f = *state;
    refuse_data(f, "zip { " IMAGE "} } field { name: 'y' data { npy { values: 'fewer.npy' } } } }",
                &plain, "4 records of \"y\", and 5 of the first field");
    refuse_data(f, "zip { " IMAGE "} } " IMAGE "} } }", &plain, "field \"image\" is there twice");
    refuse_data(f, "zip { " KINDS IMAGE "crop: 9 } } }", &plain, "zip.field[1]: data: record 0");
    refuse_data(f, "zip { " KINDS "field { name: 'y' data { npy { values: 'none.npy' } } } }",
                &plain, "zip.field[1]: ");
    refuse_data(f, "zip { field { data { npy { values: 'kinds.npy' } } } }", &plain,
                "a field has a name");
    refuse_data(f, "zip { field { name: 'x' dim: 2 data { npy { values: 'kinds.npy' } } } }",
                &plain, "\"x\" is 2, and its records are 3x1x1");
    refuse_data(f, "zip { field { data { zip { " KINDS "} scale: 2 } } }", &plain,
                "zip.field[0]: data: records have fields");
    refuse_data(f, "zip { " KINDS IMAGE "mean_file: '/etc/hostname' } } }",
                &(struct source_config){.root = f->path}, "zip.field[1]: ");
}

static void test_a_zip_is_not_too_deep(void **state)
{
    char data[1024] = KINDS;
    for (int depth = 0; depth < DEPTH_MAX + 1; depth++) {
        char inner[sizeof data];
        memcpy(inner, data, sizeof inner);
        int n = depth == 0
                    ? snprintf(data, sizeof data, "zip { %.900s }", inner)
                    : snprintf(data, sizeof data, "zip { field { data { %.900s } } }", inner);
        assert_in_range(n, 1, sizeof data - 1);
        if (depth < DEPTH_MAX)
            source_close(open_data(*state, data, &plain));
    }
    refuse_data(*state, data, &plain, "more than 4 zips and maps within each other");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maps_are_those_of_one_field),
        cmocka_unit_test(test_fields_of_one_size_draw_alike),
        cmocka_unit_test(test_fields_of_several_lengths_with_a_label_for_each_position),
        cmocka_unit_test(test_a_table_within_a_zip_has_the_columns_of_the_training_data),
        cmocka_unit_test(test_the_cache_is_in_front_of_each_field),
        cmocka_unit_test(test_what_does_not_fit_is_refused_by_the_fields_name),
        cmocka_unit_test(test_a_zip_is_not_too_deep),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
