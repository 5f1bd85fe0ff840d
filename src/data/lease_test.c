/* The lease table against a naive one, which has an entry for every position, and by hand. */
#include "data/lease.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

enum { GRAIN = 4, OFFSETS = 20000, NODES = 6, FREE = -1, DONE = -2, LOST = -3 };

/* For each position: its holder, and whether a worker may have used it. */
struct naive {
    int owner[OFFSETS];
    bool doubtful[OFFSETS];
    uint64_t frontier, used, repeated;
    uint64_t order[NODES][OFFSETS]; /* the positions of a node, in its order */
    uint64_t given[NODES], taken[NODES], repeated_by[NODES];
    bool here[NODES];
};

static struct lease_table table;
static struct naive naive;

static void hand_out(int node, const struct lease *lease)
{
    bool is_new = lease->from >= naive.frontier;
    assert_true(lease->from < lease->to && (lease->to - lease->from) % GRAIN == 0);
    for (uint64_t p = lease->from; p < lease->to; p++) {
        assert_true(p < OFFSETS);
        assert_true(is_new ? p == naive.frontier : naive.owner[p] == FREE);
        assert_true(lease->doubtful == naive.doubtful[p]);
        naive.owner[p] = node;
        naive.frontier += is_new;
        naive.order[node][naive.given[node]++] = p;
    }
}

/* The pool is used first: no new ranges while it has some. */
static void grant_to(int node, uint64_t want)
{
    struct lease given[LEASE_HELD_MAX];
    uint64_t pooled = lease_pooled(&table), sum = 0;
    size_t held = table.holder[node].count, n = lease_grant(&table, (uint32_t)node, want, given);
    assert_true(n > 0 || held == LEASE_HELD_MAX);
    for (size_t i = 0; i < n; i++) {
        if (given[i].from >= naive.frontier)
            assert_true(sum >= pooled);
        hand_out(node, &given[i]);
        sum += given[i].to - given[i].from;
    }
    assert_true(sum <= (want < GRAIN ? GRAIN : want));
}

static void report_use(int node, uint64_t n, uint64_t repeated)
{
    uint64_t left = naive.given[node] - naive.taken[node];
    n = n < left ? n : left;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t p = naive.order[node][naive.taken[node]++];
        naive.owner[p] = DONE;
        naive.repeated += naive.doubtful[p];
        naive.used++;
    }
    naive.repeated_by[node] += repeated;
    naive.repeated += repeated;
    lease_report_use(&table, (uint32_t)node, naive.taken[node], naive.repeated_by[node]);
}

static void forget_node(int node)
{
    naive.here[node] = false;
    naive.given[node] = naive.taken[node] = naive.repeated_by[node] = 0;
}

static void remove_node(int node, bool dies)
{
    for (uint64_t i = naive.taken[node]; i < naive.given[node]; i++) {
        naive.owner[naive.order[node][i]] = FREE;
        naive.doubtful[naive.order[node][i]] |= dies;
    }
    if (dies)
        lease_node_dies(&table, (uint32_t)node);
    else
        lease_node_leaves(&table, (uint32_t)node);
    forget_node(node);
}

static uint64_t count_owned(int owner_below, int owner)
{
    uint64_t n = 0;
    for (uint64_t p = 0; p < naive.frontier; p++)
        n += owner_below ? naive.owner[p] >= 0 : naive.owner[p] == owner;
    return n;
}

static void compare_with_naive(void)
{
    assert_true(lease_adds_up(&table));
    assert_int_equal(table.frontier, naive.frontier);
    assert_int_equal(table.used, naive.used);
    assert_int_equal(table.repeated, naive.repeated);
    assert_int_equal(lease_held(&table), count_owned(1, 0));
    assert_int_equal(lease_pooled(&table), count_owned(0, FREE));
}

/* Down and up: a checkpoint is written and resumed from. */
static void resume_table(void)
{
    struct buf text = {0};
    lease_write(&table, &text);
    assert_false(text.failed);
    assert_true(lease_read(&table, (char *)text.data, GRAIN));
    buf_release(&text);
    for (uint64_t p = 0; p < naive.frontier; p++)
        if (naive.owner[p] >= 0) {
            naive.owner[p] = FREE;
            naive.doubtful[p] = true;
        }
    for (int node = 0; node < NODES; node++)
        forget_node(node);
}

/* All events at random; in the end all granted positions are used. */
static void play_randomly(uint64_t seed)
{
    lease_open(&table, 0, 0, GRAIN);
    memset(&naive, 0, sizeof naive);
    for (uint64_t k = 0; k < 300; k++) {
        int node = (int)rng_below(seed, 1, k, NODES);
        uint64_t what = rng_below(seed, 2, k, 20), n = rng_below(seed, 3, k, 12 * GRAIN);
        if (!naive.here[node]) {
            lease_add_node(&table, (uint32_t)node);
            naive.here[node] = true;
            if (naive.frontier == 0 && what < 10) {
                lease_grant_first(&table, (uint32_t)node, 2 * GRAIN);
                hand_out(node, &(struct lease){.from = 0, .to = 2 * GRAIN});
            }
        } else if (what < 9) {
            report_use(node, n / GRAIN * GRAIN, what == 0 ? GRAIN : 0);
        } else if (what < 17) {
            grant_to(node, n);
        } else if (what < 19) {
            remove_node(node, what == 17);
        } else if (n < GRAIN) {
            resume_table();
        }
        compare_with_naive();
    }
    for (int node = 0; node < NODES; node++)
        if (naive.here[node])
            remove_node(node, true);
    lease_add_node(&table, 0);
    for (naive.here[0] = true; lease_pooled(&table) > 0; report_use(0, OFFSETS, 0))
        grant_to(0, lease_pooled(&table));
    compare_with_naive();
    assert_int_equal(table.used, table.frontier);
}

static void test_lease_table_agrees_with_naive_one(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++)
        play_randomly(seed);
}

static void test_lease_pool_merges_adjacent_ranges(void **state)
{
    struct lease given[LEASE_HELD_MAX];
    (void)state;
    lease_open(&table, 1000, 0, GRAIN);
    for (uint32_t node = 0; node < 3; node++) {
        lease_add_node(&table, node);
        lease_grant_first(&table, node, 40);
    }
    lease_node_dies(&table, 0);
    lease_node_dies(&table, 2);
    assert_int_equal(table.pooled, 2);
    lease_node_dies(&table, 1);
    assert_int_equal(table.pooled, 1);
    lease_add_node(&table, 3);
    assert_int_equal(lease_grant(&table, 3, 130, given), 2); /* whole steps: 128 */
    assert_true(given[0].from == 1000 && given[0].to == 1120 && given[0].doubtful);
    assert_true(given[1].from == 1120 && given[1].to == 1128 && !given[1].doubtful);
}

/* Messages that are old, late or too large. */
static void test_lease_table_ignores_absent_nodes(void **state)
{
    (void)state;
    lease_open(&table, 0, 0, GRAIN);
    lease_add_node(&table, 7);
    lease_grant_first(&table, 7, 40);
    lease_report_use(&table, 7, 12, 4);
    lease_report_use(&table, 7, 8, 0);
    assert_true(table.used == 12 && table.repeated == 4);
    lease_report_use(&table, 8, 40, 40);
    lease_report_use(&table, LEASE_NODES_MAX, 40, 40);
    lease_report_use(&table, UINT32_MAX, 40, 40);
    assert_true(table.used == 12 && table.repeated == 4);
    lease_report_use(&table, 7, UINT64_MAX, 4);
    assert_int_equal(table.used, 40);
    lease_node_leaves(&table, 7);
    lease_report_use(&table, 7, 80, 8);
    assert_true(table.used == 40 && table.repeated == 4 && table.pooled == 0);
    assert_true(lease_adds_up(&table));
}

static void test_lease_table_after_driver_recovery(void **state)
{
    struct lease_holder a = {.taken = 60, .repeated = 4, .count = 2}, b = {.taken = 20, .count = 1};
    a.held[0] = (struct lease){.from = 108, .to = 120};
    a.held[1] = (struct lease){.from = 160, .to = 200};
    b.held[0] = (struct lease){.from = 120, .to = 160};
    (void)state;
    assert_true(lease_read(&table, "100 0 3 40-60 80-100?", GRAIN)); /* of a checkpoint */
    assert_true(table.used == 60 && table.repeated == 3);
    assert_true(lease_node_reconnects(&table, 1, &a, 200));
    assert_true(lease_node_reconnects(&table, 2, &b, 240)); /* it has had [200, 240) and used it */
    lease_finish_recovery(&table, 130, 9);
    assert_true(lease_adds_up(&table));
    assert_true(table.frontier == 240 && table.lost == 240 - 130 - 92 && table.repeated == 9);
    lease_report_use(&table, 1, 72, 8);
    assert_true(table.used == 142 && table.repeated == 13);
    struct lease_holder liar = {.count = 1, .held = {{.from = 156, .to = 164}}};
    assert_false(lease_node_reconnects(&table, 3, &liar, 200)); /* 2's */
    liar.held[0] = (struct lease){.from = 300, .to = 306};
    assert_false(lease_node_reconnects(&table, 4, &liar, 306)); /* no whole step */
    liar.held[0] = (struct lease){.from = 300, .to = 308};
    assert_false(lease_node_reconnects(&table, 5, &liar, 304)); /* beyond its reported total */
    liar.count = LEASE_HELD_MAX + 1;
    assert_false(lease_node_reconnects(&table, 6, &liar, 308));
    liar.count = 0;
    assert_false(
        lease_node_reconnects(&table, 7, &liar, UINT64_MAX - 8)); /* no worker has used it */
    assert_true(table.frontier == 240 && lease_adds_up(&table));
    lease_finish_recovery(&table, UINT64_MAX - 1000, 0);
    assert_true(table.frontier <= LEASE_OFFSET_MAX && lease_adds_up(&table));
}

static void test_a_line_of_a_checkpoint(void **state)
{
    static const char *const bad[] = {"",
                                      "12",
                                      "12 0",
                                      "12 0 0 ",
                                      "12 0 0 4",
                                      "12 0 0 4-4",
                                      "12 0 0 8-4",
                                      "12 0 0 8-16",
                                      "12 0 0 0-8 4-12",
                                      "12 13 0",
                                      "a 0 0",
                                      "12 0 0 4-8x",
                                      "12 8 0 0-8",
                                      "12 0 0  4-8",
                                      "12 0 0 4--8",
                                      "12 -1 0",
                                      "12 0 0 -4-8",
                                      "18446744073709551600 0 0",
                                      "99999999999999999999 0 0"};
    (void)state;
    assert_true(lease_read(&table, "48 2 7 8-12 12-20? 40-48", GRAIN));
    assert_true(table.frontier == 48 && table.lost == 2 && table.repeated == 7);
    assert_true(table.used == 48 - 2 - 20 && table.pooled == 3 && lease_adds_up(&table));
    assert_true(lease_read(&table, "48 2 7 8-12 12-20? 40-48", 6)); /* other steps */
    assert_true(table.lost == 2 + 4 + 2 + 2 && lease_pooled(&table) == 12 && lease_adds_up(&table));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (lease_read(&table, bad[i], GRAIN))
            fail_msg("\"%s\" is a book", bad[i]);
    assert_false(lease_open(&table, 12, 13, GRAIN));
    assert_false(lease_open(&table, UINT64_MAX, 0, GRAIN));
    assert_true(lease_open(&table, LEASE_OFFSET_MAX, 0, GRAIN));
}

static void test_faster_ones_get_more(void **state)
{
    (void)state;
    assert_int_equal(lease_size(0.1, 32, 50000, 4), 20 * 32); /* two seconds */
    assert_int_equal(lease_size(0.02, 32, 50000, 4), 100 * 32);
    assert_int_equal(lease_size(0.0001, 32, 500000, 4), 256 * 32);
    assert_int_equal(lease_size(10, 32, 50000, 4), 8 * 32);
    assert_int_equal(lease_size(0, 32, 50000, 4), 8 * 32);
    assert_int_equal(lease_size(0.02, 32, 1000, 4), 7 * 32); /* 250 records */
    assert_int_equal(lease_size(0.02, 32, 10, 4), 2 * 32);   /* one request */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lease_table_agrees_with_naive_one),
        cmocka_unit_test(test_lease_pool_merges_adjacent_ranges),
        cmocka_unit_test(test_lease_table_ignores_absent_nodes),
        cmocka_unit_test(test_lease_table_after_driver_recovery),
        cmocka_unit_test(test_a_line_of_a_checkpoint),
        cmocka_unit_test(test_faster_ones_get_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
