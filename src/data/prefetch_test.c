/* A hint that records will be read soon reaches the source that reads them, by its own numbers,
 * through all sources that stand on others. */
#include "data/dataset.h"
#include "data/record_cache.h"
#include "data/source_combined.h"
#include "data/source_fake.h"
#include "data/source_mapped.h"
#include "data/source_zip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { COUNT = 6 };

static const uint32_t labels[COUNT] = {0, 1, 2, 0, 1, 2};

static unsigned asked; /* by bit, the records that were asked for */

static void note_record(const struct source *source, size_t i)
{
    (void)source;
    asked |= 1u << i;
}

static void close_nothing(struct source *source)
{
    (void)source;
}

static struct source_fake make_source(void)
{
    static struct source_ops ops;
    struct source_fake fake =
        source_fake_make(labels, COUNT, (struct shape){.n = 3, .dim = {1, 1, 2}});
    ops = *fake.source.ops;
    ops.prefetch = note_record;
    ops.close = close_nothing;
    fake.source.ops = &ops;
    return fake;
}

/* Does a hint for record i of `source`, which is closed then, ask for these? */
static void check_asks(struct source *source, size_t i, unsigned records)
{
    asked = 0;
    source_prefetch(source, i);
    assert_int_equal(asked, records);
    source_close(source);
}

static void test_choices_pass_it_on(void **state)
{
    (void)state;
    struct source_fake fake = make_source();
    struct source *part[2] = {&fake.source, &fake.source}, *out;
    const uint32_t chosen[] = {4, 2};
    assert_int_equal(source_concat(part, 2, &out, NULL), OK);
    check_asks(out, COUNT + 1, 1u << 1);
    assert_int_equal(source_subset(&fake.source, chosen, 2, &out, NULL), OK);
    check_asks(out, 1, 1u << 2);
    assert_int_equal(source_shard(&fake.source, 1, 2, &out, NULL), OK);
    check_asks(out, 0, 1u << COUNT / 2);
}

static int copy_values(void *user, size_t i, const float *in, const struct dataset_draw *draw,
                       float *out)
{
    (void)user;
    (void)i;
    (void)draw;
    out[0] = in[0];
    out[1] = in[1];
    return OK;
}

static void test_maps_and_zips_pass_it_on(void **state)
{
    (void)state;
    struct source_fake fake = make_source(), other = make_source();
    const struct record_map map = {.name = "copy", .hash = 1, .apply = copy_values};
    const struct zip_field field[] = {{.part = &fake.source, .name = "a"},
                                      {.part = &other.source, .name = "b"}};
    struct source *out;
    assert_int_equal(source_mapped(&fake.source, &map, &out, NULL), OK);
    check_asks(out, 3, 1u << 3);
    assert_int_equal(source_zip(field, 2, &out, NULL), OK);
    check_asks(out, 5, 1u << 5);
}

/* A record that is kept is not read again. */
static void test_a_cache_asks_for_what_it_has_not(void **state)
{
    (void)state;
    struct source_fake fake = make_source();
    struct record_cache *cache;
    struct source *out;
    struct scratch scratch = {0};
    struct raw raw;
    assert_int_equal(record_cache_create(&cache, NULL), OK);
    record_cache_allow_memory(cache, 1 << 10);
    assert_int_equal(source_cached(&fake.source, cache, &out, NULL), OK);
    assert_int_equal(out->ops->read(out, 2, &scratch, &raw, NULL), OK);
    asked = 0;
    source_prefetch(out, 2);
    assert_int_equal(asked, 0);
    check_asks(out, 3, 1u << 3);
    scratch_release(&scratch);
    record_cache_free(cache);
}

/* By the numbers of the source, whatever the choice of records. */
static void test_a_dataset_asks_by_its_choice(void **state)
{
    (void)state;
    struct source_fake fake = make_source();
    struct dataset set, held;
    Paceline__Data spec = PACELINE__DATA__INIT;
    assert_int_equal(dataset_init(&set, &fake.source, &spec, NULL), OK);
    assert_int_equal(dataset_split(&set, 3, 1, &held, NULL), OK);
    asked = 0;
    for (size_t i = 0; i < held.count; i++)
        dataset_prefetch(&held, i);
    unsigned of_held = asked;
    for (size_t i = 0; i < set.count; i++)
        dataset_prefetch(&set, i);
    assert_int_equal(__builtin_popcount(of_held), 3);
    assert_int_equal(asked, (1u << COUNT) - 1);
    dataset_release(&held);
    dataset_release(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choices_pass_it_on),
        cmocka_unit_test(test_maps_and_zips_pass_it_on),
        cmocka_unit_test(test_a_cache_asks_for_what_it_has_not),
        cmocka_unit_test(test_a_dataset_asks_by_its_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
