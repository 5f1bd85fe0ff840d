/* The driver's ledger: members' reports in, one event an exchange out, and every sample accounted
 * for. */
#include "train/ledger.h"

#include "listening_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ROUND = 4 * 16 }; /* records that four members share */

struct roster_state {
    struct listening_world listener;
    struct events events;
    struct ledger ledger;
};

static int setup(void **state)
{
    struct roster_state *b = calloc(1, sizeof *b);
    assert_non_null(b);
    listening_init(&b->listener);
    events_init(&b->events, &b->listener.world, 0);
    b->ledger = (struct ledger){.events = &b->events, .strategy = "sync"};
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

static struct members first_members(uint32_t count)
{
    struct members set = {0};
    for (uint32_t node = 0; node < count; node++)
        members_add(&set, node);
    return set;
}

/* A member's report of exchange n, with `count` of four participants. */
static struct committed report_of(uint64_t n, uint32_t count)
{
    return (struct committed){
        .n = n,
        .progress = {.sample_offset = n * ROUND,
                     .steps = n,
                     .exchanges = n,
                     .samples_used = n * ROUND},
        .cost = {.seconds = 0.5, .bytes = 100},
        .samples = count * 16,
        .loss = 2.0 * count * 16,
        .contributors = first_members(count),
        .participants = first_members(count),
    };
}

/* All who took part report; so many records have been missed up to then. */
static void report_all(struct roster_state *b, uint64_t n, uint32_t count, uint64_t missed)
{
    struct committed report = report_of(n, count);
    report.progress.samples_used -= missed;
    for (uint32_t node = 0; node < count; node++)
        ledger_report(&b->ledger, node, &report);
}

/* A number in the kth line said. */
static double logged_number(const struct roster_state *b, int k, const char *key)
{
    const char *line = b->listener.log_text;
    while (k-- > 0)
        line = strchr(line, '\n') + 1;
    cJSON *event = cJSON_Parse(line);
    const cJSON *item = cJSON_GetObjectItem(event, key);
    if (!cJSON_IsNumber(item))
        fail_msg("no %s in %s", key, line);
    double value = item->valuedouble;
    cJSON_Delete(event);
    return value;
}

static void test_ledger_reports_an_exchange_once(void **state)
{
    struct roster_state *b = *state;
    struct committed report = report_of(1, 3);
    const double seconds[] = {0.5, 0.75, 0.25}, waited[] = {0.1, 0.0, 0.2};
    for (uint32_t node = 0; node < 3; node++) {
        assert_int_equal(b->listener.lines, 0);
        report.cost = (struct exchange_cost){
            .seconds = seconds[node],
            .waited_s = waited[node],
            .waited_for = node == 2 ? WORLD_DRIVER : 1,
            .bytes = 100 + node,
        };
        ledger_report(&b->ledger, node, &report);
    }
    assert_int_equal(b->listener.lines, 1);
    assert_true(logged_number(b, 0, "n") == 1 && logged_number(b, 0, "lane") == 0);
    assert_true(logged_number(b, 0, "bytes") == 303);
    assert_true(logged_number(b, 0, "seconds") == 0.75);
    assert_true(logged_number(b, 0, "waited_s") == 0.2);
    assert_true(logged_number(b, 0, "waited_for") == -1);
    assert_int_equal(b->ledger.slowest, 2); /* for it the exchange was shortest */
    assert_true(b->ledger.loss == 2.0);
    ledger_report(&b->ledger, 0, &report); /* once more: it has been closed */
    assert_int_equal(b->listener.lines, 1);
}

static void test_ledger_every_sample_is_used_or_missed(void **state)
{
    struct roster_state *b = *state;
    report_all(b, 1, 4, 0);
    assert_true(b->ledger.used == ROUND && b->ledger.missed == 0);
    report_all(b, 2, 3, 16);
    assert_true(b->ledger.used == 2 * ROUND - 16 && b->ledger.missed == 16);
    report_all(b, 3, 4, 16);
    assert_true(b->ledger.used == 3 * ROUND - 16 && b->ledger.missed == 16);
    assert_int_equal(b->ledger.last.progress.sample_offset, 3 * ROUND);
}

/* A participant that does not report is dead, once all others have reported the next. */
static void test_ledger_closes_without_dead_worker(void **state)
{
    struct roster_state *b = *state;
    struct committed second = report_of(2, 4);
    report_all(b, 1, 4, 0);
    for (uint32_t node = 0; node < 3; node++)
        ledger_report(&b->ledger, node, &second);
    assert_int_equal(b->listener.lines, 1);
    report_all(b, 3, 3, 16);
    assert_int_equal(b->listener.lines, 3);
    assert_true(logged_number(b, 1, "n") == 2 && logged_number(b, 2, "n") == 3);
    assert_true(b->ledger.used == 3 * ROUND - 16 && b->ledger.missed == 16);
    ledger_close(&b->ledger);
    assert_int_equal(b->listener.lines, 3);
}

/* A member that died reported a result that nobody else saw; the others have repeated the exchange
 * without it. */
static void test_ledger_counts_repeated_exchange(void **state)
{
    struct roster_state *b = *state;
    struct committed unseen = report_of(2, 4), repeated = report_of(2, 3);
    repeated.progress.samples_used -= 16;
    repeated.cost.bytes = 200;
    report_all(b, 1, 4, 0);
    ledger_report(&b->ledger, 3, &unseen);
    for (uint32_t node = 0; node < 3; node++)
        ledger_report(&b->ledger, node, &repeated);
    assert_int_equal(b->listener.lines, 2);
    assert_true(logged_number(b, 1, "bytes") == 600);
    assert_true(b->ledger.used == 2 * ROUND - 16 && b->ledger.missed == 16);
    assert_int_equal(b->ledger.loss_records, 2 * ROUND - 16);
}

/* Exchanges of several lanes have numbers of their own; the progress gives their order. */
static void test_ledger_reports_lanes_in_order(void **state)
{
    struct roster_state *b = *state;
    for (uint64_t k = 1; k <= 4; k++) {
        struct committed report = report_of(k, 4);
        report.lane = (uint32_t)(k - 1) % 2;
        report.n = (k + 1) / 2;
        for (uint32_t node = 0; node < 4; node++)
            ledger_report(&b->ledger, node, &report);
    }
    assert_int_equal(b->listener.lines, 4);
    for (int k = 0; k < 4; k++)
        assert_true(logged_number(b, k, "lane") == k % 2 && logged_number(b, k, "n") == 1 + k / 2);
    assert_true(b->ledger.used == 4 * ROUND && b->ledger.missed == 0);
}

/* Or once the next but one is reported; what is still open at the end is closed in order. */
static void test_ledger_is_not_blocked_by_dead_worker(void **state)
{
    struct roster_state *b = *state;
    struct committed second = report_of(2, 4), third = report_of(3, 3);
    report_all(b, 1, 4, 0);
    for (uint32_t node = 0; node < 3; node++)
        ledger_report(&b->ledger, node, &second);
    assert_int_equal(b->listener.lines, 1);
    ledger_report(&b->ledger, 0, &third);
    assert_int_equal(b->listener.lines, 1); /* the fourth may still speak */
    struct committed fourth = report_of(4, 3);
    ledger_report(&b->ledger, 0, &fourth);
    assert_int_equal(b->listener.lines, 2);
    assert_true(logged_number(b, 1, "n") == 2);
    ledger_close(&b->ledger);
    assert_int_equal(b->listener.lines, 4);
    assert_true(logged_number(b, 2, "n") == 3 && logged_number(b, 3, "n") == 4);
    ledger_close(&b->ledger);
    assert_int_equal(b->listener.lines, 4);
}

static void test_ledger_ignores_impossible_reports(void **state)
{
    struct roster_state *b = *state;
    struct committed report = report_of(1 + LEDGER_OPEN_MAX, 1);
    ledger_report(&b->ledger, 0, &report); /* too far ahead */
    report.n = UINT64_MAX;
    ledger_report(&b->ledger, 0, &report);
    assert_int_equal(b->listener.lines, 0);
    report_all(b, 1, 2, ROUND / 2);
    report_all(b, 2, 2, ROUND);
    report_all(b, 1, 2, ROUND / 2);
    assert_int_equal(b->listener.lines, 2);
    assert_true(b->ledger.used == 2 * 32);
}

static void test_ledger_names_rejected_workers(void **state)
{
    struct roster_state *b = *state;
    struct committed report = report_of(1, 4);
    report.contributors = first_members(2);
    report.samples = 32;
    report.progress.samples_used -= 32;
    for (uint32_t node = 0; node < 4; node++)
        ledger_report(&b->ledger, node, &report);
    assert_int_equal(b->listener.lines, 3);
    assert_non_null(strstr(b->listener.log_text, "\"kind\":\"rejected\""));
    assert_true(logged_number(b, 1, "node") == 2 && logged_number(b, 2, "node") == 3);
    assert_int_equal(b->ledger.missed, 32);
}

/* Without exchanges a lone worker says how far it is, and there is nothing to tell. */
static void test_ledger_of_lone_worker(void **state)
{
    struct roster_state *b = *state;
    struct committed report = {
        .progress = {.sample_offset = 320, .steps = 20}, .samples = 1, .loss = 0.25};
    ledger_report(&b->ledger, 0, &report);
    assert_int_equal(b->listener.lines, 0);
    assert_int_equal(b->ledger.last.progress.sample_offset, 320);
    assert_true(b->ledger.loss == 0.25);
}

/* Whatever way records are reported, the training loss is their mean since the last event. */
static void test_ledger_loss_event_is_mean_since_last(void **state)
{
    struct roster_state *b = *state;
    struct committed alone = {
        .progress = {.sample_offset = 32, .steps = 2}, .samples = 32, .loss = 32 * 3.0};
    assert_false(ledger_report_loss(&b->ledger, 0.5, 0.01, 0));
    ledger_report(&b->ledger, 0, &alone);
    alone.samples = 96;
    alone.loss = 96 * 1.0;
    alone.recent = 7;
    ledger_report(&b->ledger, 0, &alone);
    assert_true(ledger_report_loss(&b->ledger, 0.5, 0.01, 0));
    assert_int_equal(b->listener.lines, 1);
    assert_non_null(strstr(b->listener.log_text, "\"kind\":\"loss\",\"epoch\":0.5,\"step\":2,"
                                                 "\"samples\":128,\"loss\":1.5,\"rate\":0.01}"));
    assert_true(b->ledger.mean_loss == 1.5 && b->ledger.recent == 7);
    assert_false(ledger_report_loss(&b->ledger, 0.5, 0.01, 0)); /* nothing since */
    report_all(b, 1, 4, 0);
    assert_true(ledger_report_loss(&b->ledger, 0.5, 0.01, 704));
    assert_non_null(strstr(b->listener.log_text, "\"rate\":0.01,\"batch\":704}"));
    assert_true(b->ledger.mean_loss == 2.0);
    struct committed async = {.asynchronous = true, .samples = 16, .loss = 16 * 5.0};
    b->ledger.step_samples = 64;
    ledger_report(&b->ledger, 0, &async);
    async.loss = 16 * 3.0;
    ledger_report(&b->ledger, 1, &async);
    assert_true(ledger_report_loss(&b->ledger, 0.5, 0.01, 0));
    assert_true(b->ledger.mean_loss == 4.0);
}

/* An exchange that was never reported, for want of a driver, is part of the next report's
 * progress. */
static void test_ledger_makes_up_for_missing_reports(void **state)
{
    struct roster_state *b = *state;
    report_all(b, 1, 4, 0);
    report_all(b, 4, 4, 16);
    assert_true(b->ledger.used == 4 * ROUND - 16 && b->ledger.missed == 16);
    const struct progress progress = {
        .sample_offset = 100 * ROUND, .exchanges = 100, .samples_used = 99 * ROUND};
    ledger_resume(&b->ledger, &progress);
    assert_true(b->ledger.used == 99 * ROUND && b->ledger.missed == ROUND);
    report_all(b, 100, 4, 0); /* of the one before */
    assert_true(b->ledger.used == 99 * ROUND);
    report_all(b, 101, 4, ROUND);
    assert_true(b->ledger.used == 100 * ROUND && b->ledger.missed == ROUND);
}

/* An asynchronous worker says what it has done in all: twice said, or not said at all, it counts
 * once. */
static void test_ledger_counts_async_samples_once(void **state)
{
    struct roster_state *b = *state;
    b->ledger.step_samples = 64;
    struct committed report = {
        .asynchronous = true, .progress = {.samples_used = 64}, .samples = 64};
    ledger_report(&b->ledger, 2, &report);
    ledger_report(&b->ledger, 2, &report);
    assert_true(b->ledger.used == 64);
    report.progress.samples_used = 192; /* and what it said at 128 was lost */
    ledger_report(&b->ledger, 2, &report);
    assert_true(b->ledger.used == 192 && b->ledger.last.progress.sample_offset == 192);
    assert_int_equal(b->ledger.last.progress.steps, 3);
}

/* Of each worker counts what it reported last. */
static void test_caches_are_added_up(void **state)
{
    struct roster_state *b = *state;
    struct committed report = {.n = 0};
    ledger_report(&b->ledger, 1, &report);
    assert_false(ledger_cached(&b->ledger).there);
    report.cache = (struct cache_report){true, 5, 500, 1, 100};
    ledger_report(&b->ledger, 1, &report);
    ledger_report(&b->ledger, 2, &report);
    report.cache = (struct cache_report){true, 7, 700, 2, 200};
    ledger_report(&b->ledger, 1, &report);
    struct cache_report sum = ledger_cached(&b->ledger);
    assert_true(sum.there && sum.records == 12 && sum.bytes == 1200);
    assert_true(sum.disk_records == 3 && sum.disk_bytes == 300);
}

static void test_committed_is_decoded_whole(void **state)
{
    struct committed report = report_of(UINT64_C(1) << 40, 4), out;
    struct buf bytes = {0};
    (void)state;
    report.lane = 3;
    report.cost.waited_for = 7;
    report.cost.waited_s = 0.125;
    report.data_s = 0.75;
    report.steps_s = 1.5;
    report.cost.arrival_mbit = 38;
    report.cost.arrival_from = 2;
    report.cache = (struct cache_report){true, 1, UINT64_C(2) << 40, 3, UINT64_C(4) << 40};
    committed_encode(&report, &bytes);
    struct byte_reader whole = {bytes.data, bytes.len, false};
    assert_int_equal(committed_decode(&whole, &out), OK);
    assert_true(out.n == report.n && out.lane == 3 && out.samples == report.samples);
    assert_true(out.progress.sample_offset == report.progress.sample_offset &&
                out.loss == report.loss);
    assert_true(out.cost.seconds == 0.5 && out.cost.waited_s == 0.125);
    assert_true(out.data_s == 0.75 && out.steps_s == 1.5);
    assert_true(out.cost.arrival_mbit == 38 && out.cost.arrival_from == 2);
    assert_true(out.cache.there && out.cache.records == 1 && out.cache.disk_records == 3);
    assert_true(out.cache.bytes == UINT64_C(2) << 40 && out.cache.disk_bytes == UINT64_C(4) << 40);
    assert_true(out.cost.waited_for == 7 && out.cost.bytes == 100);
    assert_memory_equal(&out.contributors, &report.contributors, sizeof out.contributors);
    assert_memory_equal(&out.participants, &report.participants, sizeof out.participants);
    for (size_t n = 0; n < bytes.len; n++) {
        uint8_t *copy = malloc(n ? n : 1);
        assert_non_null(copy);
        memcpy(copy, bytes.data, n);
        assert_int_equal(committed_decode(&(struct byte_reader){copy, n, false}, &out),
                         ERR_PROTOCOL);
        free(copy);
    }
    buf_put_u8(&bytes, 0);
    struct byte_reader longer = {bytes.data, bytes.len, false};
    assert_int_equal(committed_decode(&longer, &out), ERR_PROTOCOL);
    buf_release(&bytes);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_ledger_reports_an_exchange_once),
        TEST(test_ledger_every_sample_is_used_or_missed),
        TEST(test_ledger_closes_without_dead_worker),
        TEST(test_ledger_counts_repeated_exchange),
        TEST(test_ledger_reports_lanes_in_order),
        TEST(test_ledger_is_not_blocked_by_dead_worker),
        TEST(test_ledger_ignores_impossible_reports),
        TEST(test_ledger_names_rejected_workers),
        TEST(test_ledger_makes_up_for_missing_reports),
        TEST(test_ledger_counts_async_samples_once),
        TEST(test_ledger_of_lone_worker),
        TEST(test_ledger_loss_event_is_mean_since_last),
        TEST(test_caches_are_added_up),
        TEST(test_committed_is_decoded_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
