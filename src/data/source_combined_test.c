/* Sources made of others: which record of which part stands where, and how often. */
#include "data/source_combined.h"
#include "data/source_memory.h"
#include "data/stats.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 1000 };

static uint8_t values[MANY];
static uint32_t labels[MANY];

/* Record i has the values base + i, and label (base + i) mod classes. */
static struct source *make_part(size_t base, size_t count, struct shape shape, uint32_t classes)
{
    struct source *source;
    struct err err = {0};
    const struct memory_records records = {.name = "part",
                                           .count = count,
                                           .shape = shape,
                                           .classes = classes,
                                           .type = VALUE_U8,
                                           .values = values + base,
                                           .labels = labels + base};
    for (size_t i = 0; i < MANY; i++) {
        values[i] = (uint8_t)i;
        labels[i] = (uint32_t)i % classes;
    }
    if (source_memory(&records, &source, &err) != OK)
        fail_msg("%s", err.text);
    return source;
}

static const struct shape one = {3, {1, 1, 1}};

static uint8_t first_of(const struct source *source, size_t i)
{
    struct raw raw;
    struct err err = {0};
    assert_int_equal(source->ops->read(source, i, NULL, &raw, &err), OK);
    return *(const uint8_t *)raw.at;
}

static void expect_records(const struct source *source, const size_t *expected, size_t count)
{
    assert_int_equal(source->count, count);
    for (size_t i = count; i-- > 0;) {
        assert_int_equal(first_of(source, i), (uint8_t)expected[i]);
        assert_int_equal(source->ops->label(source, i), labels[expected[i]]);
    }
}

#define EXPECT(source, ...)                               \
    expect_records(source, (const size_t[]){__VA_ARGS__}, \
                   sizeof((const size_t[]){__VA_ARGS__}) / sizeof(size_t))

static struct source *join_parts(struct source *a, struct source *b, struct source *c)
{
    struct source *source;
    struct err err = {0};
    if (source_concat((struct source *[]){a, b, c}, 3, &source, &err) != OK)
        fail_msg("%s", err.text);
    return source;
}

static void test_one_part_after_another(void **state)
{
    (void)state;
    struct source *source =
        join_parts(make_part(10, 3, one, 5), make_part(0, 1, one, 5), make_part(20, 2, one, 5));
    EXPECT(source, 10, 11, 12, 0, 20, 21);
    assert_int_equal(source->classes, 5);
    assert_true(shape_equal(&source->shape, &one));
    source_close(source);
}

static void test_parts_of_different_sizes(void **state)
{
    (void)state;
    struct err err = {0};
    struct source *made = NULL;
    struct source *source =
        join_parts(make_part(0, 2, one, 2), make_part(2, 1, (struct shape){3, {1, 3, 2}}, 2),
                   make_part(9, 1, one, 2));
    size_t H, W;
    assert_int_equal(source->shape.dim[0], 1);
    assert_int_equal(source->shape.dim[1] + source->shape.dim[2], 0);
    source_size(source, 2, &H, &W);
    assert_int_equal(H * 10 + W, 32);
    source_size(source, 3, &H, &W);
    assert_int_equal(H * 10 + W, 11);
    struct source *parts[] = {source, make_part(0, 1, (struct shape){3, {3, 1, 1}}, 2)};
    assert_int_equal(source_concat(parts, 2, &made, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "part 1 have 3 channels, those of part 0 have 1"));
    assert_null(made);
    source_close(parts[0]);
    source_close(parts[1]);
}

static void test_subsets(void **state)
{
    (void)state;
    static const uint32_t records[] = {4, 0, 4, 9}, outside[] = {1, 10};
    struct source *part = make_part(0, 10, one, 3), *source = NULL;
    struct err err = {0};
    assert_int_equal(source_subset(part, outside, 2, &source, &err), ERR_INPUT);
    assert_string_equal(err.text, "data: record 10 is chosen, of 10 records");
    assert_int_equal(source_subset(part, records, 0, &source, &err), ERR_INPUT);
    assert_null(source);
    assert_int_equal(source_subset(part, records, 4, &source, &err), OK);
    EXPECT(source, 4, 0, 4, 9);
    source_close(source);
}

static void test_repetitions(void **state)
{
    (void)state;
    struct source *part = make_part(3, 3, one, 3), *source = NULL;
    struct err err = {0};
    assert_int_equal(source_repeat(part, 0, &source, &err), ERR_INPUT);
    assert_int_equal(source_repeat(part, UINT32_MAX, &source, &err), ERR_INPUT);
    assert_null(source);
    assert_int_equal(source_repeat(part, UINT32_MAX / 3, &source, &err), OK);
    assert_int_equal(source->count, UINT32_MAX / 3 * (size_t)3);
    assert_int_equal(first_of(source, 0), 3);
    assert_int_equal(first_of(source, source->count - 2), 4);
    source_close(source);
}

static void test_shards_cover_everything_once(void **state)
{
    (void)state;
    int seen[10] = {0};
    struct source *source = NULL;
    struct err err = {0};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(source_shard(make_part(0, 10, one, 10), i, 4, &source, &err), OK);
        assert_in_range(source->count, 2, 3);
        for (size_t k = 0; k < source->count; k++)
            seen[first_of(source, k)]++;
        source_close(source);
    }
    for (int i = 0; i < 10; i++)
        assert_int_equal(seen[i], 1);
    struct source *part = make_part(0, 2, one, 2);
    source = NULL;
    assert_int_equal(source_shard(part, 0, 3, &source, &err), ERR_INPUT); /* an empty one */
    assert_int_equal(source_shard(part, 3, 3, &source, &err), ERR_INPUT);
    assert_null(source);
    source_close(part);
}

/* ---- samples ---- */

static struct source *draw_sample(size_t n, const struct sample_config *config)
{
    struct source *source;
    struct err err = {0};
    if (source_sample(make_part(0, n, one, 4), config, &source, &err) != OK)
        fail_msg("%s", err.text);
    return source;
}

/* How often each record is drawn in `count` draws; the expected number within 5 deviations. */
static void expect_shares(const struct source *source, size_t n, const double *share)
{
    double count = (double)source->count;
    size_t *drawn = calloc(n, sizeof *drawn);
    assert_non_null(drawn);
    for (size_t i = 0; i < source->count; i++)
        drawn[first_of(source, i)]++;
    for (size_t i = 0; i < n; i++) {
        double apart = fabs((double)drawn[i] - count * share[i]);
        assert_true(apart <= 5 * sqrt(count * share[i] * (1 - share[i])) + 1e-9);
    }
    free(drawn);
}

static void test_equal_chances(void **state)
{
    (void)state;
    double share[100];
    struct source *source =
        draw_sample(100, &(struct sample_config){.count = 100000, .seed = 3, .replacement = true});
    for (size_t i = 0; i < 100; i++)
        share[i] = 0.01;
    expect_shares(source, 100, share);
    source_close(source);
    int seen[100] = {0};
    source = draw_sample(100, &(struct sample_config){.count = 60, .seed = 3});
    for (size_t i = 0; i < 60; i++)
        seen[first_of(source, i)]++;
    for (int i = 0; i < 100; i++)
        assert_in_range(seen[i], 0, 1);
    source_close(source);
}

/* Chances in proportion to weights, among them 0 and one above all others. */
static void test_weights_with_replacement(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 5; seed++) {
        double weights[50], share[50], sum = 0;
        for (size_t i = 0; i < 50; i++) {
            weights[i] = i % 7 == 0 ? 0 : i == 33 ? 40 : (double)rng_uniform(seed, 1, i);
            sum += weights[i];
        }
        for (size_t i = 0; i < 50; i++)
            share[i] = weights[i] / sum;
        struct source *source = draw_sample(
            50, &(struct sample_config){
                    .count = 200000, .seed = seed, .replacement = true, .weights = weights});
        expect_shares(source, 50, share);
        source_close(source);
    }
}

/* Of four records with weights 1, 2, 3, 4 and one with 0: the first draw has these chances, the
 * second those of the ones that are left; and no record is drawn twice. */
static void test_weights_without_replacement(void **state)
{
    (void)state;
    static const double weights[] = {1, 2, 3, 4, 0};
    enum { SEEDS = 20000 };
    double first[4] = {0}, three_after_two = 0, two_first = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        int seen = 0;
        struct source *source =
            draw_sample(5, &(struct sample_config){.count = 4, .seed = seed, .weights = weights});
        for (size_t i = 0; i < 4; i++)
            seen |= 1 << first_of(source, i);
        assert_int_equal(seen, 15);
        first[first_of(source, 0)]++;
        two_first += first_of(source, 0) == 2;
        three_after_two += first_of(source, 0) == 2 && first_of(source, 1) == 3;
        source_close(source);
    }
    for (int i = 0; i < 4; i++) {
        double p = weights[i] / 10;
        assert_true(fabs(first[i] - SEEDS * p) < 5 * sqrt(SEEDS * p * (1 - p)));
    }
    double p = 4.0 / 7;
    assert_true(fabs(three_after_two - two_first * p) < 5 * sqrt(two_first * p * (1 - p)));
}

static void test_classes_in_proportion(void **state)
{
    (void)state;
    for (size_t count = 1; count <= 50; count += 7) {
        size_t of_class[4] = {0};
        int seen[50] = {0};
        struct source *source =
            draw_sample(50, &(struct sample_config){.count = count, .seed = 1, .stratified = true});
        for (size_t i = 0; i < count; i++) {
            of_class[source->ops->label(source, i)]++;
            assert_int_equal(seen[first_of(source, i)]++, 0);
        }
        for (size_t c = 0; c < 4; c++) { /* 13, 13, 12 and 12 of 50 */
            double share = (double)count * (c < 2 ? 13 : 12) / 50;
            assert_true(fabs((double)of_class[c] - share) <= 1);
        }
        source_close(source);
    }
}

static void refuse_sample(const struct sample_config *config, const char *text)
{
    struct source *part = make_part(0, 5, one, 4), *source = NULL;
    struct err err = {0};
    assert_int_equal(source_sample(part, config, &source, &err), ERR_INPUT);
    assert_null(source);
    if (!strstr(err.text, text))
        fail_msg("'%s' does not say '%s'", err.text, text);
    source_close(part);
}

static void test_samples_that_are_refused(void **state)
{
    (void)state;
    static const double negative[] = {1, 2, -1, 1, 1}, none[5], nan[] = {1, 2, NAN, 1, 1},
                        two[] = {0, 1, 0, 0, 2};
    refuse_sample(&(struct sample_config){.count = 0}, "0 records");
    refuse_sample(&(struct sample_config){.count = 6}, "6 records are to be drawn");
    refuse_sample(&(struct sample_config){.count = 3, .weights = two}, "replacement, of 2");
    refuse_sample(&(struct sample_config){.count = 1, .weights = negative}, "record 2 is -1");
    refuse_sample(&(struct sample_config){.count = 1, .weights = nan}, "record 2 is nan");
    refuse_sample(&(struct sample_config){.count = 1, .weights = none}, "add up to 0");
    refuse_sample(&(struct sample_config){.count = 1, .stratified = true, .replacement = true},
                  "stratified");
}

/* Choices of choices; the hash tells them apart. */
static void test_nested_choices(void **state)
{
    (void)state;
    static const uint32_t records[] = {5, 1};
    struct source *shard, *twice, *few;
    struct err err = {0};
    assert_int_equal(source_shard(make_part(0, 9, one, 3), 1, 3, &shard, &err), OK);
    uint64_t hash = shard->hash;
    assert_int_equal(source_repeat(shard, 2, &twice, &err), OK);
    EXPECT(twice, 3, 4, 5, 3, 4, 5);
    assert_int_not_equal(twice->hash, hash);
    hash = twice->hash;
    assert_int_equal(source_subset(twice, records, 2, &few, &err), OK);
    EXPECT(few, 5, 4);
    assert_int_not_equal(few->hash, hash);
    char name[SOURCE_NAME_MAX];
    assert_string_equal(source_name(few, 0, name), "record 0 (record 5 (record 2 (record 5)))");
    source_close(few);
}

/* Records without labels are not counted by class, nor mixed with others. */
static void test_records_without_labels(void **state)
{
    (void)state;
    struct source *plain, *source;
    struct stats stats;
    struct err err = {0};
    const struct memory_records records = {
        .name = "plain", .count = 5, .shape = one, .type = VALUE_U8, .values = values};
    const struct sample_config stratified = {.count = 2, .stratified = true};
    assert_int_equal(source_memory(&records, &plain, &err), OK);
    assert_int_equal(stats_of(plain, 0, NULL, &stats, &err), OK);
    assert_int_equal(stats.classes, 0);
    stats_release(&stats);
    assert_int_equal(source_sample(plain, &stratified, &source, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "needs labels"));
    struct source *labelled = make_part(0, 5, one, 3);
    assert_int_equal(source_concat((struct source *[]){labelled, plain}, 2, &source, &err),
                     ERR_INPUT);
    assert_non_null(strstr(err.text, "one has labels"));
    source_close(labelled);
    source_close(plain);
}

/* A set of sets is made of its innermost ones, unless there are too many. */
static void test_parts(void **state)
{
    struct source_part part[4];
    struct err err;
    struct source *a = make_part(0, 5, one, 3), *b = make_part(5, 2, one, 3), *outer = NULL;
    struct source *c = make_part(7, 4, one, 3), *d = make_part(11, 1, one, 3);
    const uint64_t hash[] = {a->hash, b->hash, c->hash, d->hash};
    const size_t count[] = {5, 2, 4, 1};
    (void)state;
    struct source *inner = join_parts(a, b, c);
    assert_int_equal(source_concat((struct source *[]){inner, d}, 2, &outer, &err), OK);
    assert_int_equal(source_parts(outer, part, 4), 4);
    for (size_t i = 0; i < 4; i++)
        assert_true(part[i].hash == hash[i] && part[i].count == count[i]);
    assert_int_equal(source_parts(outer, part, 3), 1);
    assert_true(part[0].count == 12 && part[0].hash == outer->hash);
    source_close(outer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_without_labels),
        cmocka_unit_test(test_one_part_after_another),
        cmocka_unit_test(test_parts_of_different_sizes),
        cmocka_unit_test(test_subsets),
        cmocka_unit_test(test_repetitions),
        cmocka_unit_test(test_shards_cover_everything_once),
        cmocka_unit_test(test_equal_chances),
        cmocka_unit_test(test_weights_with_replacement),
        cmocka_unit_test(test_weights_without_replacement),
        cmocka_unit_test(test_classes_in_proportion),
        cmocka_unit_test(test_samples_that_are_refused),
        cmocka_unit_test(test_nested_choices),
        cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
