/* Batches cut from an endless stream of epochs. */
#include "data/batch.h"

#include "data/source_fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

enum { N = 20, CAP = 8, CHW = 6 };

struct world {
    uint32_t labels[N];
    struct source_fake fake;
    struct dataset set;
    struct arena arena;
    struct batch batch;
};

static void world_open(struct world *w, size_t n)
{
    for (uint32_t i = 0; i < N; i++)
        w->labels[i] = (i * 3) % 10;
    w->fake = source_fake_make(w->labels, n, (struct shape){.n = 3, .dim = {1, 2, 3}});
    Paceline__Data spec = PACELINE__DATA__INIT;
    struct err err;
    assert_int_equal(dataset_init(&w->set, &w->fake.source, &spec, &err), OK);
    arena_init(&w->arena);
    assert_int_equal(batch_init(&w->batch, &w->arena, CAP, CHW), OK);
    assert_int_equal(w->batch.cap, CAP);
    assert_int_equal(w->batch.count, 0);
}

static void world_close(struct world *w)
{
    batch_release(&w->batch);
    arena_release(&w->arena);
    dataset_release(&w->set);
}

/* Slot by slot, data and label belong to the record that is named. */
static void check_slots(const struct world *w, size_t count)
{
    const struct batch *b = &w->batch;
    assert_int_equal(b->count, count);
    for (size_t slot = 0; slot < count; slot++) {
        uint64_t record = b->records[slot];
        assert_true(record < w->fake.source.count);
        assert_int_equal(b->labels[slot], w->labels[record]);
        for (size_t k = 0; k < CHW; k++)
            assert_true(b->data[slot * CHW + k] == (float)(100 * record + k));
    }
}

static void test_batches_tile_the_epochs(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, N);
    struct sampler sampler = {.seed = 4, .n = N};
    size_t times[3][N] = {{0}};
    uint64_t start = 0;
    while (start < 60) {
        size_t count = start + 7 <= 60 ? 7 : 60 - start;
        assert_int_equal(batch_fill(&w.batch, &w.set, &sampler, start, count, NULL), OK);
        check_slots(&w, count);
        assert_int_equal(w.batch.epoch, start / N);
        for (size_t slot = 0; slot < count; slot++) {
            uint64_t p = start + slot;
            assert_int_equal(w.batch.records[slot], sampler_at(&sampler, p / N, p % N));
            times[p / N][w.batch.records[slot]]++;
        }
        start += count;
    }
    for (size_t epoch = 0; epoch < 3; epoch++)
        for (size_t record = 0; record < N; record++)
            assert_int_equal(times[epoch][record], 1);
    world_close(&w);
}

/* Three records, eight places: the end of one epoch, two whole ones, the start of a fourth. */
static void test_a_batch_may_span_several_epochs(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 3);
    struct sampler sampler = {.seed = 9, .n = 3};
    assert_int_equal(batch_fill(&w.batch, &w.set, &sampler, 3 * 100 + 2, CAP, NULL), OK);
    check_slots(&w, CAP);
    assert_int_equal(w.batch.epoch, 100);
    const uint64_t *r = w.batch.records;
    assert_int_equal(1 << r[1] | 1 << r[2] | 1 << r[3], 7);
    assert_int_equal(1 << r[4] | 1 << r[5] | 1 << r[6], 7);
    world_close(&w);
}

static void test_filling_is_pure(void **state)
{
    (void)state;
    struct world w, other;
    world_open(&w, N);
    world_open(&other, N);
    struct sampler sampler = {.seed = 1, .n = N};
    assert_int_equal(batch_fill(&w.batch, &w.set, &sampler, 17, CAP, NULL), OK);
    assert_int_equal(batch_fill(&other.batch, &other.set, &sampler, 1000, 3, NULL), OK);
    assert_int_equal(batch_fill(&other.batch, &other.set, &sampler, 17, CAP, NULL), OK);
    assert_memory_equal(w.batch.data, other.batch.data, CAP * CHW * sizeof(float));
    assert_memory_equal(w.batch.labels, other.batch.labels, CAP * sizeof(uint32_t));
    assert_memory_equal(w.batch.records, other.batch.records, CAP * sizeof(uint64_t));
    assert_int_equal(w.batch.epoch, other.batch.epoch);
    world_close(&w);
    world_close(&other);
}

/* Two workers that read side by side read the samples of one: [0,4) and [4,8) are [0,8). */
static void test_parts_make_the_whole(void **state)
{
    (void)state;
    struct world w, left, right;
    world_open(&w, N);
    world_open(&left, N);
    world_open(&right, N);
    struct sampler sampler = {.seed = 1, .n = N};
    assert_int_equal(batch_fill(&w.batch, &w.set, &sampler, 16, 8, NULL), OK);
    assert_int_equal(batch_fill(&left.batch, &left.set, &sampler, 16, 4, NULL), OK);
    assert_int_equal(batch_fill(&right.batch, &right.set, &sampler, 20, 4, NULL), OK);
    assert_memory_equal(w.batch.records, left.batch.records, 4 * sizeof(uint64_t));
    assert_memory_equal(w.batch.records + 4, right.batch.records, 4 * sizeof(uint64_t));
    assert_int_equal(left.batch.epoch, 0);
    assert_int_equal(right.batch.epoch, 1);
    world_close(&w);
    world_close(&left);
    world_close(&right);
}

static void test_plain_order_for_evaluation(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, N);
    assert_int_equal(batch_fill_plain(&w.batch, &w.set, 12, CAP, NULL), OK);
    check_slots(&w, CAP);
    for (size_t slot = 0; slot < CAP; slot++)
        assert_int_equal(w.batch.records[slot], 12 + slot);
    assert_int_equal(batch_fill_plain(&w.batch, &w.set, 19, 1, NULL), OK); /* a short last batch */
    check_slots(&w, 1);
    assert_int_equal(w.batch.records[0], 19);
    assert_int_equal(batch_fill_plain(&w.batch, &w.set, N, 0, NULL), OK);
    assert_int_equal(w.batch.count, 0);
    world_close(&w);
}

/* Of a split, batches name the records of the source. */
static void test_batches_of_a_split(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, N);
    struct dataset validation;
    struct err err;
    assert_int_equal(dataset_split(&w.set, 10, 3, &validation, &err), OK);
    struct sampler sampler = {.seed = 1, .n = w.set.count};
    size_t times[N] = {0};
    for (uint64_t start = 0; start < 10; start += 5) {
        assert_int_equal(batch_fill(&w.batch, &w.set, &sampler, start, 5, NULL), OK);
        check_slots(&w, 5);
        for (size_t slot = 0; slot < 5; slot++)
            times[w.batch.records[slot]]++;
        assert_int_equal(batch_fill_plain(&w.batch, &validation, start, 5, NULL), OK);
        check_slots(&w, 5);
        for (size_t slot = 0; slot < 5; slot++)
            times[w.batch.records[slot]]++;
    }
    for (size_t record = 0; record < N; record++)
        assert_int_equal(times[record], 1);
    dataset_release(&validation);
    world_close(&w);
}

static void test_room_that_cannot_be_had(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    struct batch batch = {.cap = 77};
    assert_int_equal(batch_init(&batch, &arena, SIZE_MAX, 2), ERR_NOMEM);
    assert_int_equal(batch_init(&batch, &arena, 2, SIZE_MAX / 2), ERR_NOMEM);
    assert_int_equal(batch.cap, 77);
    assert_null(batch.data);
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches_tile_the_epochs),
        cmocka_unit_test(test_a_batch_may_span_several_epochs),
        cmocka_unit_test(test_filling_is_pure),
        cmocka_unit_test(test_parts_make_the_whole),
        cmocka_unit_test(test_plain_order_for_evaluation),
        cmocka_unit_test(test_batches_of_a_split),
        cmocka_unit_test(test_room_that_cannot_be_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
