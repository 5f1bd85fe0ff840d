/* A worker's memory budget: of its own, and with the other workers of its machine. */
#include "train/worker_cache.h"

#include "base/memory.h"
#include "data/source_fake.h"
#include "data/spool.h"
#include "train/train.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

/* Bytes of the budget of one of the job's workers. */
static double budget_of(const char *budget, uint32_t workers_max, uint32_t standby,
                        bool one_machine)
{
    Paceline__Job job = PACELINE__JOB__INIT;
    struct worker_cache cache;
    struct err err = {0};
    char text[16];
    const struct train_host host = {.one_machine = one_machine};
    strncpy(text, budget, sizeof text - 1);
    text[sizeof text - 1] = '\0';
    job.memory_budget = text;
    job.cache = PACELINE__CACHE__none;
    job.has_workers_max = true;
    job.workers_max = workers_max;
    job.standby = standby;
    if (worker_cache_open(&cache, &job, &host, &err) != OK)
        fail_msg("%s", err.text);
    return (double)cache.budget;
}

/* The free memory changes while the test runs, by far less than half. */
static void test_a_share_is_for_all_workers_of_the_machine(void **state)
{
    (void)state;
    double alone = budget_of("50%", 4, 1, false), together = budget_of("50%", 4, 1, true);
    print_message("    %.0f MiB, and %.0f for each of five\n", alone / (1 << 20),
                  together / (1 << 20));
    assert_true(together < alone / 5 * 1.5 && together > alone / 5 / 1.5);
}

static void test_bytes_are_for_each_worker(void **state)
{
    (void)state;
    assert_true(budget_of("4GiB", 4, 1, false) == 4294967296.0);
    assert_true(budget_of("4GiB", 4, 1, true) == 4294967296.0);
}

/* ---- what a stream keeps ---- */

enum { RECORD_FLOATS = 1 << 16, RECORDS = 512, SPOOL_RECORD = 1 << 20 };

static void fill_spool(struct spool *spool, size_t records)
{
    struct err err = {0};
    void *values;
    uint32_t *labels;
    size_t room;
    assert_int_equal(spool_open(spool, &(struct spool_config){.record_bytes = SPOOL_RECORD}, &err),
                     OK);
    for (size_t i = 0; i < records; i++) {
        assert_int_equal(spool_acquire(spool, &values, &labels, &room, &err), OK);
        memset(values, 1, SPOOL_RECORD);
        assert_int_equal(spool_commit(spool, 1, &err), OK);
    }
    assert_int_equal(spool_seal(spool, &err), OK);
}

/* Sanitizers take memory of their own. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* MiB that the cache keeps of records of 128 MiB, where the budget leaves 96 for it and a spool. */
static double kept_next_to(size_t spool_mib)
{
    static const uint32_t labels[RECORDS];
    const struct source_fake fake =
        source_fake_make(labels, RECORDS, (struct shape){3, {RECORD_FLOATS, 1, 1}});
    const struct train_host host = {.log = NULL};
    Paceline__Job job = PACELINE__JOB__INIT;
    struct worker_cache cache;
    struct record_cache_counts counts;
    struct spool spool = {0};
    struct source *cached;
    struct scratch scratch = {0};
    struct raw raw;
    struct err err = {0};
    char budget[32];
    snprintf(budget, sizeof budget, "%zu", memory_used() + ((size_t)96 << 20));
    job.memory_budget = budget;
    if (worker_cache_open(&cache, &job, &host, &err) != OK)
        fail_msg("%s", err.text);
    if (spool_mib > 0)
        fill_spool(&spool, spool_mib);
    assert_int_equal(source_cached(&fake.source, cache.records, &cached, &err), OK);
    for (size_t i = 0; i < RECORDS; i++) {
        for (size_t step = 0; step < 4; step++)
            worker_cache_step(&cache, (int64_t)(4 * i + step + 1) * WORLD_SECOND);
        assert_int_equal(cached->ops->read(cached, i, &scratch, &raw, &err), OK);
    }
    record_cache_count(cache.records, &counts);
    source_close(cached);
    record_cache_free(cache.records);
    spool_close(&spool);
    scratch_release(&scratch);
    return (double)counts.memory_bytes / (1 << 20);
}

static void test_what_a_stream_keeps_is_missing_from_the_cache(void **state)
{
    (void)state;
    double alone = kept_next_to(0), less = kept_next_to(48);
    print_message("    %.0f MiB, and %.0f next to a stream\n", alone, less);
    assert_true(alone > 64 && alone < 96);
    assert_true(less > alone - 64 && less < alone - 32);
}

#endif

/* The process has more than it may, before it has opened anything. */
static void test_a_budget_that_is_used_up_is_refused(void **state)
{
    (void)state;
    const struct train_host host = {.log = NULL};
    Paceline__Job job = PACELINE__JOB__INIT;
    struct worker_cache cache;
    struct spool spool;
    struct err err = {0};
    char budget[32];
    snprintf(budget, sizeof budget, "%zu", memory_used() + ((size_t)16 << 20));
    job.memory_budget = budget;
    fill_spool(&spool, 64);
    assert_int_equal(worker_cache_open(&cache, &job, &host, &err), ERR_INPUT);
    if (!strstr(err.text, "nothing is left of memory_budget, ") ||
        !strstr(err.text, "pl_stream_options.memory"))
        fail_msg("%s", err.text);
    spool_close(&spool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_share_is_for_all_workers_of_the_machine),
        cmocka_unit_test(test_bytes_are_for_each_worker),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(test_what_a_stream_keeps_is_missing_from_the_cache),
#endif
        cmocka_unit_test(test_a_budget_that_is_used_up_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
