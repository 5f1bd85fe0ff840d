/* Maps by hand, and splits over class histograms like those of the papers' data, made smaller. */
#include "data/dataset.h"

#include "data/reading.h"
#include "data/source_fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

enum { CLASSES = 10, RECORDS_MAX = 700 };

static const struct shape DOT = {.n = 3, .dim = {1, 1, 1}};
static const size_t EVEN[CLASSES] = {60, 60, 60, 60, 60, 60, 60, 60, 60, 60};
/* The digits of MNIST's training set, a hundredth of them. */
static const size_t DIGITS[CLASSES] = {59, 67, 60, 61, 58, 54, 59, 63, 59, 59};

struct world {
    uint32_t labels[RECORDS_MAX];
    struct source_fake fake;
    struct dataset set, validation;
    struct err err;
};

/* A dataset with `of[c]` records of class c, mixed. */
static void world_open(struct world *w, const size_t of[CLASSES])
{
    *w = (struct world){0};
    size_t left[CLASSES], n = 0, put = 1;
    memcpy(left, of, sizeof left);
    while (put > 0) {
        put = 0;
        for (size_t k = 0; k < CLASSES; k++) {
            size_t c = (k * 7 + n) % CLASSES;
            if (left[c] > 0) {
                left[c]--;
                put++;
                w->labels[n++] = (uint32_t)c;
            }
        }
        for (size_t c = 0; put == 0 && c < CLASSES; c++)
            put += left[c];
    }
    w->fake = source_fake_make(w->labels, n, DOT);
    Paceline__Data spec = PACELINE__DATA__INIT;
    assert_int_equal(dataset_init(&w->set, &w->fake.source, &spec, &w->err), OK);
}

static void world_close(struct world *w)
{
    dataset_release(&w->set);
    dataset_release(&w->validation);
}

static void split_set(struct world *w, uint32_t held, uint64_t seed)
{
    if (dataset_split(&w->set, held, seed, &w->validation, &w->err) != OK)
        fail_msg("%s", w->err.text);
}

/* Records of each class, seen through the dataset. */
static void count_classes(const struct dataset *set, size_t of[CLASSES])
{
    memset(of, 0, CLASSES * sizeof *of);
    for (size_t i = 0; i < set->count; i++) {
        float x;
        uint32_t label;
        uint64_t record;
        read_plain(set, i, &x, &label, &record);
        of[label]++;
    }
}

/* Both sides ascend, and every record of the source is on exactly one of them. */
static void check_partition(const struct world *w)
{
    bool seen[RECORDS_MAX] = {false};
    const struct dataset *sides[] = {&w->set, &w->validation};
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < sides[side]->count; i++) {
            uint32_t record = sides[side]->choice[i];
            assert_true(record < w->fake.source.count);
            assert_true(i == 0 || record > sides[side]->choice[i - 1]);
            assert_false(seen[record]);
            seen[record] = true;
        }
    }
    assert_int_equal(w->set.count + w->validation.count, w->fake.source.count);
}

static void test_maps_by_hand(void **state)
{
    (void)state;
    const uint32_t labels[] = {5, 1};
    struct source_fake fake = source_fake_make(labels, 2, (struct shape){.n = 3, .dim = {3, 1, 2}});
    float mean[] = {1, 10, 0.5f};
    Paceline__Data spec = PACELINE__DATA__INIT;
    spec.has_scale = 1;
    spec.scale = 0.5f;
    spec.n_mean = 3;
    spec.mean = mean;
    struct dataset set;
    struct err err;
    float x[6];
    uint32_t label;
    uint64_t record;
    assert_int_equal(dataset_init(&set, &fake.source, &spec, &err), OK);
    assert_int_equal(set.count, 2);
    read_plain(&set, 1, x, &label, &record); /* raw: 100 .. 105 */
    const float by_channel[] = {49.5f, 50, 46, 46.5f, 51.75f, 52.25f};
    assert_memory_equal(x, by_channel, sizeof x);
    assert_int_equal(label, 1);
    assert_int_equal(record, 1);
    dataset_release(&set);

    spec.n_mean = 1; /* one mean serves all channels */
    assert_int_equal(dataset_init(&set, &fake.source, &spec, &err), OK);
    read_plain(&set, 0, x, &label, &record); /* raw: 0 .. 5 */
    const float by_one[] = {-0.5f, 0, 0.5f, 1, 1.5f, 2};
    assert_memory_equal(x, by_one, sizeof x);
    assert_int_equal(label, 5);
    dataset_release(&set);

    spec = (Paceline__Data)PACELINE__DATA__INIT; /* nothing set: raw values */
    assert_int_equal(dataset_init(&set, &fake.source, &spec, &err), OK);
    read_plain(&set, 1, x, &label, &record);
    assert_true(x[0] == 100.0f && x[5] == 105.0f);
    dataset_release(&set);
}

static void test_maps_that_do_not_fit(void **state)
{
    (void)state;
    const uint32_t labels[] = {0};
    struct source_fake fake = source_fake_make(labels, 1, (struct shape){.n = 3, .dim = {3, 1, 2}});
    float mean[] = {1, 2};
    Paceline__Data spec = PACELINE__DATA__INIT;
    spec.n_mean = 2;
    spec.mean = mean;
    struct dataset set = {.count = 77};
    struct err err;
    assert_int_equal(dataset_init(&set, &fake.source, &spec, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "2 values of mean for records of 3 channels"));
    assert_int_equal(set.count, 77);
}

static void test_split_takes_equally_of_each_class(void **state)
{
    (void)state;
    const size_t *histograms[] = {EVEN, DIGITS};
    for (int h = 0; h < 2; h++) {
        struct world w;
        world_open(&w, histograms[h]);
        split_set(&w, 50, 1);
        assert_int_equal(w.validation.count, 50);
        check_partition(&w);
        size_t held[CLASSES], kept[CLASSES];
        count_classes(&w.validation, held);
        count_classes(&w.set, kept);
        for (size_t c = 0; c < CLASSES; c++) {
            assert_int_equal(held[c], 5);
            assert_int_equal(kept[c], histograms[h][c] - 5);
        }
        world_close(&w);
    }
}

static void test_split_keeps_maps_and_record_numbers(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, DIGITS);
    w.set.maps.scale = 2;
    w.set.maps.mean[0] = 50;
    split_set(&w, 30, 9);
    for (size_t i = 0; i < w.validation.count; i++) {
        float x;
        uint32_t label;
        uint64_t record;
        read_plain(&w.validation, i, &x, &label, &record);
        assert_int_equal(record, w.validation.choice[i]);
        assert_int_equal(label, w.labels[record]);
        assert_true(x == (100 * (float)record - 50) * 2);
    }
    world_close(&w);
}

/* 53 of ten classes: five of each, and a sixth of three; which three hangs on the seed. */
static void test_split_spreads_the_remainder(void **state)
{
    (void)state;
    size_t sixth[CLASSES] = {0};
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct world w;
        world_open(&w, DIGITS);
        split_set(&w, 53, seed);
        check_partition(&w);
        size_t held[CLASSES], with_six = 0;
        count_classes(&w.validation, held);
        for (size_t c = 0; c < CLASSES; c++) {
            assert_in_range(held[c], 5, 6);
            with_six += held[c] == 6;
            sixth[c] += held[c] == 6;
        }
        assert_int_equal(with_six, 3);
        world_close(&w);
    }
    /* 300 sixths over ten classes: binomial(100, 0.3), five standard deviations either way. */
    for (size_t c = 0; c < CLASSES; c++)
        assert_in_range(sixth[c], 7, 53);
}

static void test_split_is_a_function_of_the_seed(void **state)
{
    (void)state;
    struct world a, b, c;
    world_open(&a, DIGITS);
    world_open(&b, DIGITS);
    world_open(&c, DIGITS);
    split_set(&a, 53, 42);
    split_set(&b, 53, 42);
    split_set(&c, 53, 43);
    assert_memory_equal(a.validation.choice, b.validation.choice, 53 * sizeof(uint32_t));
    assert_memory_equal(a.set.choice, b.set.choice, a.set.count * sizeof(uint32_t));
    assert_memory_not_equal(a.validation.choice, c.validation.choice, 53 * sizeof(uint32_t));
    world_close(&a);
    world_close(&b);
    world_close(&c);
}

/* Over many seeds every record is held out equally often: 4 of 40, so a tenth of the time. */
static void test_split_favours_no_record(void **state)
{
    (void)state;
    enum { SEEDS = 2000 };
    const size_t of[CLASSES] = {10, 10, 10, 10};
    size_t times[40] = {0};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct world w;
        world_open(&w, of);
        split_set(&w, 4, seed);
        for (size_t i = 0; i < 4; i++)
            times[w.validation.choice[i]]++;
        world_close(&w);
    }
    double expected = SEEDS / 10.0, chi2 = 0;
    for (size_t i = 0; i < 40; i++)
        chi2 += ((double)times[i] - expected) * ((double)times[i] - expected) / expected;
    assert_true(chi2 < 76.6); /* 4 x 9 degrees of freedom, one in ten thousand */
}

static void test_classes_that_do_not_occur_are_passed_over(void **state)
{
    (void)state;
    const size_t of[CLASSES] = {20, 0, 20, 0, 0, 0, 0, 0, 0, 20};
    struct world w;
    world_open(&w, of);
    split_set(&w, 31, 5);
    check_partition(&w);
    size_t held[CLASSES];
    count_classes(&w.validation, held);
    assert_int_equal(held[0] + held[2] + held[9], 31);
    assert_in_range(held[0], 10, 11);
    assert_in_range(held[2], 10, 11);
    assert_in_range(held[9], 10, 11);
    world_close(&w);
}

/* The remainder goes where there is room. */
static void test_a_short_class_gives_its_share_only(void **state)
{
    (void)state;
    const size_t of[CLASSES] = {6, 20, 20};
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct world w;
        world_open(&w, of);
        split_set(&w, 17, seed);
        size_t held[CLASSES];
        count_classes(&w.validation, held);
        assert_int_equal(held[0], 5);
        assert_int_equal(held[1], 6);
        assert_int_equal(held[2], 6);
        world_close(&w);
    }
}

static void test_too_many_held_out(void **state)
{
    (void)state;
    static const struct {
        size_t of[CLASSES];
        uint32_t held;
        const char *why;
    } bad[] = {
        {{20, 6, 20}, 18, "class 1 has 6 records"},
        {{20, 20}, 40, "40 held out of 40 records"},
        {{20, 20}, UINT32_MAX, "4294967295 held out of 40 records"},
        {{20, 20}, 39, "1 more than 19 a class"},
        {{1, 1, 1}, 2, "2 more than 0 a class"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct world w;
        world_open(&w, bad[i].of);
        size_t before = w.set.count;
        assert_int_equal(dataset_split(&w.set, bad[i].held, 1, &w.validation, &w.err), ERR_INPUT);
        if (!strstr(w.err.text, bad[i].why))
            fail_msg("\"%s\" should say \"%s\"", w.err.text, bad[i].why);
        assert_null(w.set.choice); /* as it was */
        assert_int_equal(w.set.count, before);
        assert_int_equal(w.validation.count, 0);
        world_close(&w);
    }
}

static void test_nothing_held_out(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, EVEN);
    split_set(&w, 0, 1);
    assert_int_equal(w.validation.count, 0);
    assert_int_equal(w.set.count, 600);
    assert_null(w.set.choice);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maps_by_hand),
        cmocka_unit_test(test_maps_that_do_not_fit),
        cmocka_unit_test(test_split_takes_equally_of_each_class),
        cmocka_unit_test(test_split_keeps_maps_and_record_numbers),
        cmocka_unit_test(test_split_spreads_the_remainder),
        cmocka_unit_test(test_split_is_a_function_of_the_seed),
        cmocka_unit_test(test_split_favours_no_record),
        cmocka_unit_test(test_classes_that_do_not_occur_are_passed_over),
        cmocka_unit_test(test_a_short_class_gives_its_share_only),
        cmocka_unit_test(test_too_many_held_out),
        cmocka_unit_test(test_nothing_held_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
