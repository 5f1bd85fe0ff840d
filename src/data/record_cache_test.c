/* Records through a cache are the same records, wherever they are kept, and by many threads. */
#include "data/record_cache.h"

#include "data/reading.h"
#include "data/source_memory.h"
#include "faulty_disk.h"
#include "folder.h"

#include <pthread.h>
#include <stdatomic.h>

enum { COUNT = 500, SIDE = 7, VALUES = 3 * SIDE * SIDE, THREADS = 4 };

struct place {
    struct folder folder;
    struct faulty_disk disk;
    struct source *source;
    atomic_int reads; /* of the source */
    struct record_cache *cache;
    struct source *cached;
    char path[256];
};

/* A function of the number, as a decoder would be. */
static void make_values(size_t i, uint8_t *values)
{
    for (size_t k = 0; k < VALUES; k++)
        values[k] = (uint8_t)(i * 131 + k * 7 + (i * k) / 3);
}

static int read_values(void *user, size_t i, void *values)
{
    struct place *place = user;
    atomic_fetch_add(&place->reads, 1);
    if (i == COUNT - 1)
        return ERR_INPUT; /* broken */
    make_values(i, values);
    return OK;
}

static int setup(void **state)
{
    static uint32_t labels[COUNT];
    struct place *place = calloc(1, sizeof *place);
    struct err err;
    assert_non_null(place);
    folder_make(&place->folder);
    faulty_init(&place->disk);
    folder_file(&place->folder, "cache", place->path);
    for (uint32_t i = 0; i < COUNT; i++)
        labels[i] = i % 9;
    const struct memory_records records = {.name = "r",
                                           .count = COUNT,
                                           .shape = {3, {3, SIDE, SIDE}},
                                           .classes = 9,
                                           .type = VALUE_U8,
                                           .labels = labels,
                                           .hash = 5,
                                           .read = read_values,
                                           .user = place};
    assert_int_equal(source_memory(&records, &place->source, &err), OK);
    assert_int_equal(record_cache_create(&place->cache, &err), OK);
    assert_int_equal(source_cached(place->source, place->cache, &place->cached, &err), OK);
    *state = place;
    return 0;
}

static int teardown(void **state)
{
    struct place *place = *state;
    source_close(place->cached);
    source_close(place->source);
    record_cache_free(place->cache);
    folder_remove(&place->folder);
    free(place);
    return 0;
}

static void allow_disk(struct place *place)
{
    struct err err;
    if (record_cache_allow_disk(place->cache, &place->disk.disk, place->path, &err) != OK)
        fail_msg("%s", err.text);
    assert_false(folder_has(&place->folder, "cache")); /* it has no name */
}

static void expect_record(const struct place *place, size_t i, struct scratch *scratch)
{
    const struct source *source = place->cached;
    uint8_t values[VALUES];
    float x[VALUES];
    struct raw raw;
    struct err err = {0};
    int rc = source->ops->read(source, i, scratch, &raw, &err);
    if (i == COUNT - 1) {
        assert_int_equal(rc, ERR_INPUT);
        return;
    }
    assert_int_equal(rc, OK);
    assert_true(raw.C == 3 && raw.H == SIDE && raw.W == SIDE);
    raw_floats(&raw, x);
    make_values(i, values);
    for (size_t k = 0; k < VALUES; k++)
        assert_true(x[k] == (float)values[k]);
    assert_int_equal(source->ops->label(source, i), i % 9);
}

/* All of them, twice; how many reads of the source the second time took. */
static int read_twice(struct place *place)
{
    struct scratch scratch = {0};
    int before = 0;
    for (int turn = 0; turn < 2; turn++) {
        before = atomic_load(&place->reads);
        for (size_t i = 0; i < COUNT; i++)
            expect_record(place, (i * 37 + 11 * (size_t)turn) % COUNT, &scratch);
    }
    scratch_release(&scratch);
    return atomic_load(&place->reads) - before;
}

static void test_nothing_is_kept_unless_allowed(void **state)
{
    struct place *place = *state;
    struct record_cache_counts counts;
    assert_int_equal(read_twice(place), COUNT);
    record_cache_count(place->cache, &counts);
    assert_true(counts.in_memory == 0 && counts.on_disk == 0 && counts.memory_bytes == 0);
}

static void test_in_memory(void **state)
{
    struct place *place = *state;
    struct record_cache_counts counts;
    record_cache_allow_memory(place->cache, SIZE_MAX / 2);
    assert_int_equal(read_twice(place), 1); /* the broken one */
    record_cache_count(place->cache, &counts);
    assert_int_equal(counts.in_memory, COUNT - 1);
}

/* So many fit; the limit is never passed, and what is there stays when it falls. */
static void test_the_limit_of_memory(void **state)
{
    struct place *place = *state;
    struct record_cache_counts counts;
    size_t limit = 100 * (VALUES + 16) + 5;
    record_cache_allow_memory(place->cache, limit);
    assert_int_equal(read_twice(place), COUNT - 100);
    record_cache_count(place->cache, &counts);
    assert_true(counts.in_memory == 100 && counts.memory_bytes <= limit);
    record_cache_allow_memory(place->cache, 0);
    assert_int_equal(read_twice(place), COUNT - 100);
}

static void test_on_disk(void **state)
{
    struct place *place = *state;
    struct record_cache_counts counts;
    allow_disk(place);
    assert_int_equal(read_twice(place), 1);
    record_cache_count(place->cache, &counts);
    assert_true(counts.in_memory == 0 && counts.on_disk == COUNT - 1);
    assert_int_equal(counts.disk_bytes, (COUNT - 1) * VALUES);
    assert_int_equal(counts.disk_error.status, OK);
}

static void test_in_memory_and_on_disk(void **state)
{
    struct place *place = *state;
    struct record_cache_counts counts;
    allow_disk(place);
    record_cache_allow_memory(place->cache, 200 * (VALUES + 16));
    assert_int_equal(read_twice(place), 1);
    record_cache_count(place->cache, &counts);
    assert_true(counts.in_memory == 200 && counts.on_disk == COUNT - 201);
}

/* A disk that fails, or is nearly full, ends the writing, and nothing else. */
static void test_a_disk_that_takes_no_more(void **state)
{
    struct place *place = *state;
    struct record_cache_counts counts;
    allow_disk(place);
    place->disk.fail_at = place->disk.calls + 20;
    assert_true(read_twice(place) > 400);
    record_cache_count(place->cache, &counts);
    assert_in_range(counts.on_disk, 10, 20);
    assert_non_null(strstr(counts.disk_error.text, "the disk: cannot write"));
}

static void test_a_disk_that_is_nearly_full(void **state)
{
    struct place *place = *state;
    struct record_cache_counts counts;
    place->disk.space = (uint64_t)1 << 20;
    allow_disk(place);
    assert_int_equal(read_twice(place), COUNT);
    record_cache_count(place->cache, &counts);
    assert_true(counts.on_disk == 0 && counts.disk_error.status == ERR_FULL);
    assert_non_null(strstr(counts.disk_error.text, "less than 1024 MiB are free"));
}

/* ---- threads ---- */

struct reader {
    struct place *place;
    pthread_t thread;
    unsigned seed;
};

static void *read_many(void *arg)
{
    struct reader *reader = arg;
    struct scratch scratch = {0};
    for (unsigned k = 0; k < 4 * COUNT; k++) {
        reader->seed = reader->seed * 1103515245 + 12345;
        expect_record(reader->place, (reader->seed >> 8) % (COUNT - 1), &scratch);
    }
    scratch_release(&scratch);
    return NULL;
}

static void test_many_threads(void **state)
{
    struct place *place = *state;
    struct reader reader[THREADS];
    struct record_cache_counts counts;
    size_t limit = 150 * (VALUES + 16);
    allow_disk(place);
    record_cache_allow_memory(place->cache, limit);
    for (unsigned t = 0; t < THREADS; t++) {
        reader[t] = (struct reader){.place = place, .seed = t + 1};
        assert_int_equal(pthread_create(&reader[t].thread, NULL, read_many, &reader[t]), 0);
    }
    for (unsigned t = 0; t < THREADS; t++)
        assert_int_equal(pthread_join(reader[t].thread, NULL), 0);
    record_cache_count(place->cache, &counts);
    assert_true(counts.in_memory <= 150 && counts.memory_bytes <= limit);
    assert_in_range(counts.in_memory + counts.on_disk, COUNT - 50, COUNT - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing_is_kept_unless_allowed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_in_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_limit_of_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_on_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_in_memory_and_on_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_disk_that_takes_no_more, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_disk_that_is_nearly_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_threads, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
