/* The book of holdings, by hand: who has which records, their shares, and the counts of samples. */
#include "train/holdings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct view view_of(uint32_t number, const char *nodes)
{
    struct view view = {.number = number};
    for (const char *c = nodes; *c; c++)
        view.node[view.count++] = (uint32_t)(*c - '0');
    return view;
}

/* A worker with holdings of these names, a letter each; a has 100 records, b 200, and so on. */
static void add_worker(struct holdings *book, uint32_t node, const char *names)
{
    struct hello_records records = {.train = {.path = "/data/ours"}};
    for (const char *c = names; *c; c++)
        records.local.holding[records.local.holdings++] =
            (struct holding){(uint64_t)*c, 100 * (uint64_t)(*c - 'a' + 1), false};
    snprintf(records.train.path, sizeof records.train.path, "/data/%s \"x\"", names);
    assert_int_equal(holdings_add(book, node, &records, "attic"), OK);
}

static void expect_share(const struct holdings *book, const struct view *view, uint32_t node,
                         const char *expected)
{
    struct range range[HOLDINGS_MAX];
    char text[256] = "";
    size_t n = holdings_share(book, view, node, range), len = 0;
    for (size_t i = 0; i < n; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%zu+%zu", i ? " " : "",
                                range[i].from, range[i].len);
    assert_string_equal(text, expected);
}

static void test_owners_share_a_holding_equally(void **state)
{
    struct holdings book = {.known = NULL};
    const struct view all = view_of(1, "0257"), fewer = view_of(2, "07");
    (void)state;
    add_worker(&book, 0, "a");
    add_worker(&book, 2, "ab");
    add_worker(&book, 5, "ba");
    add_worker(&book, 7, "c");
    holdings_process_view(&book, &all);
    assert_int_equal(book.epoch_records, 600);
    expect_share(&book, &all, 0, "0+33");
    expect_share(&book, &all, 2, "33+33 0+100");
    expect_share(&book, &all, 5, "100+100 66+34");
    expect_share(&book, &all, 7, "0+300");
    holdings_process_view(&book, &fewer);
    assert_true(book.known[0].served && !book.known[1].served && book.known[2].served);
    assert_int_equal(book.epoch_records, 600);
    expect_share(&book, &fewer, 0, "0+100");
    add_worker(&book, 9, "b"); /* with the lost records */
    const struct view more = view_of(3, "079");
    holdings_process_view(&book, &more);
    assert_true(book.known[1].served && book.known[1].owner == 9);
    assert_int_equal(book.count, 3);
    expect_share(&book, &more, 9, "0+200");
    holdings_release(&book);
}

static void test_a_share_may_be_empty(void **state)
{
    struct holdings book = {.known = NULL};
    struct hello_records one = {.local = {.holdings = 1, .holding = {{5, 1, false}}}};
    const struct view view = view_of(1, "12");
    (void)state;
    holdings_add(&book, 1, &one, "");
    holdings_add(&book, 2, &one, "");
    holdings_process_view(&book, &view);
    expect_share(&book, &view, 1, "0+0");
    expect_share(&book, &view, 2, "0+1");
    holdings_release(&book);
}

static void expect_count(struct holding_count count, uint64_t taken, uint64_t due,
                         uint64_t repeated, uint64_t missed)
{
    assert_int_equal(count.taken, taken);
    assert_int_equal(count.due, due);
    assert_int_equal(count.repeated, repeated);
    assert_int_equal(count.missed, missed);
}

static void test_counts(void **state)
{
    struct holdings book = {.known = NULL};
    const struct view view = view_of(1, "12");
    (void)state;
    add_worker(&book, 1, "ac");
    add_worker(&book, 2, "c");
    holdings_process_view(&book, &view);
    holdings_report(&book, 1, (const struct holding_use[]){{0, 0, 300}, {0, 0, 100}}, 2);
    holdings_report(&book, 1, (const struct holding_use[]){{0, 0, 200}, {0, 0, 120}},
                    2); /* overtaken on its way */
    holdings_report(&book, 2, (const struct holding_use[]){{0, 0, 180}}, 1);
    holdings_report(&book, 2, (const struct holding_use[]){{0, 0, 900}, {0, 0, 900}},
                    2);                                                      /* not its holdings */
    holdings_report(&book, 3, (const struct holding_use[]){{0, 0, 900}}, 1); /* a stranger */
    holdings_report(&book, UINT32_MAX, (const struct holding_use[]){{0, 0, 900}}, 1);
    expect_count(holdings_count(&book, 0, 600), 300, 150, 150, 0);
    expect_count(holdings_count(&book, 1, 600), 300, 450, 0, 150);
    expect_count(holdings_sum(&book, 600), 600, 600, 150, 150);
    holdings_release(&book);
}

/* A lost worker had the holdings b and c; another one, which had a, reports that it has them. */
static void test_holdings_that_come_later(void **state)
{
    struct holdings book = {.known = NULL};
    const struct view both = view_of(1, "123"), left = view_of(2, "13");
    const struct holding_use two[] = {{'a', 100, 300}, {'c', 300, 0}},
                             three[] = {{'a', 100, 400}, {'c', 300, 150}, {'b', 200, 50}};
    (void)state;
    add_worker(&book, 1, "a");
    add_worker(&book, 2, "bc");
    add_worker(&book, 3, "d");
    holdings_process_view(&book, &both);
    assert_int_equal(holdings_report(&book, 1, (const struct holding_use[]){{'a', 100, 100}}, 1),
                     0);
    assert_int_equal(holdings_report(&book, 2,
                                     (const struct holding_use[]){{'b', 200, 200}, {'c', 300, 300}},
                                     2),
                     0);
    holdings_process_view(&book, &left);
    assert_true(!book.known[1].served && !book.known[2].served);
    book.unsent = (struct members){0};
    assert_int_equal(holdings_report(&book, 1, two, 2), 1);
    assert_true(book.known[2].served && !book.known[1].served && book.known[2].owner == 1);
    assert_true(members_count(&book.unsent) == 1 && members_has(&book.unsent, 1));
    expect_share(&book, &left, 1, "0+100 0+300");
    assert_int_equal(holdings_report(&book, 1, three, 3), 1);
    assert_int_equal(holdings_report(&book, 1, three, 3), 0);
    assert_int_equal(holdings_report(&book, 1, two, 2), 0); /* overtaken on its way */
    expect_share(&book, &left, 1, "0+100 0+300 0+200");
    assert_int_equal(book.count, 4);
    assert_int_equal(book.epoch_records, 1000);
    expect_count(holdings_count(&book, 1, 1000), 250, 200, 50, 0);
    expect_count(holdings_count(&book, 2, 1000), 450, 300, 150, 0);
    assert_int_equal(holdings_report(&book, 3, three, 3), 2); /* 'd' came first in its hello */
    expect_share(&book, &left, 3, "0+400 150+150 100+100");
    expect_share(&book, &left, 1, "0+100 0+150 0+100");
    holdings_release(&book);
}

/* Read the text into a new book, and let a driver begin with that view and worker 2. */
static void begin_later(struct holdings *later, const char *text, uint32_t number)
{
    const struct view view = view_of(number, "2");
    *later = (struct holdings){.known = NULL};
    assert_int_equal(holdings_read(later, text), OK);
    add_worker(later, 2, "c");
    holdings_process_view(later, &view);
    assert_true(!later->known[0].served && later->known[1].served);
    assert_int_equal(later->epoch_records, 400);
}

static void test_the_same_records_twice(void **state)
{
    struct holdings book = {.known = NULL};
    const struct view view = view_of(1, "12");
    (void)state;
    add_worker(&book, 1, "aa");
    add_worker(&book, 2, "b");
    holdings_process_view(&book, &view);
    expect_share(&book, &view, 1, "0+100 0+100");
    holdings_report(&book, 1, (const struct holding_use[]){{0, 0, 30}, {0, 0, 40}}, 2);
    expect_count(holdings_count(&book, 0, 300), 70, 100, 0, 30);
    holdings_release(&book);
}

static void test_later_drivers_continue_the_counts(void **state)
{
    struct holdings book = {.known = NULL}, later;
    const struct view view = view_of(1, "12");
    struct buf text = {0}, again = {0};
    (void)state;
    add_worker(&book, 1, "a");
    add_worker(&book, 2, "c");
    holdings_process_view(&book, &view);
    holdings_report(&book, 1, (const struct holding_use[]){{0, 0, 70}}, 1);
    holdings_report(&book, 2, (const struct holding_use[]){{0, 0, 80}}, 1);
    holdings_write(&book, &text);
    assert_string_equal((char *)text.data, "400 0000000000000061:100:0:1=70,:/data/a__x_ "
                                           "0000000000000063:300:0:2=80,:/data/c__x_");
    begin_later(&later, (char *)text.data, 1); /* worker 2 is a new one */
    holdings_report(&later, 2, (const struct holding_use[]){{0, 0, 5}}, 1);
    expect_count(holdings_sum(&later, 400), 155, 400, 0, 245);
    holdings_write(&later, &again);
    assert_string_equal((char *)again.data, "400 0000000000000061:100:70::/data/a__x_ "
                                            "0000000000000063:300:80:2=5,:/data/c__x_");
    holdings_release(&later);
    begin_later(&later, (char *)text.data, 7); /* the same one, which has continued */
    expect_count(holdings_sum(&later, 400), 150, 400, 0, 250);
    holdings_report(&later, 2, (const struct holding_use[]){{0, 0, 85}}, 1);
    expect_count(holdings_sum(&later, 400), 155, 400, 0, 245);
    holdings_release(&later);
    buf_release(&text);
    buf_release(&again);
    holdings_release(&book);
}

static void test_wrong_texts_are_refused(void **state)
{
    static const char *const wrong[] = {"",
                                        "x",
                                        "400 1:2",
                                        "400 1:0:3::p",
                                        "400 1:2:3",
                                        "400,1:2",
                                        "400 1:2:3:x",
                                        "400 1:2:3:1=2",
                                        "400 1:2:3:1=2:p",
                                        "400 1:2:3:9999=2,:p",
                                        "400 1:2:3",
                                        "400 1:2:3:p",
                                        "400 1:99999999999:3::p"};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct holdings book = {.known = NULL};
        if (holdings_read(&book, wrong[i]) != ERR_INPUT)
            fail_msg("%s is read", wrong[i]);
        holdings_release(&book);
    }
}

static int decode_share(const uint8_t *bytes, size_t n, struct share_message *out)
{
    return share_decode(&(struct byte_reader){bytes, n, false}, out);
}

static void test_the_message(void **state)
{
    const struct share_message in = {
        .view = 3, .epoch_records = 60000, .count = 2, .range = {{0, 5}, {7, 9}}};
    struct share_message out;
    struct buf bytes = {0};
    (void)state;
    share_encode(&in, &bytes);
    assert_int_equal(decode_share(bytes.data, bytes.len, &out), OK);
    assert_true(out.view == 3 && out.epoch_records == 60000 && out.count == 2 &&
                out.range[1].from == 7 && out.range[1].len == 9);
    for (size_t n = 0; n < bytes.len; n++)
        assert_int_equal(decode_share(bytes.data, n, &out), ERR_PROTOCOL);
    bytes_put_le32(bytes.data + 12, HOLDINGS_MAX + 1);
    assert_int_equal(decode_share(bytes.data, bytes.len, &out), ERR_PROTOCOL);
    buf_release(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_owners_share_a_holding_equally),
        cmocka_unit_test(test_a_share_may_be_empty),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_holdings_that_come_later),
        cmocka_unit_test(test_the_same_records_twice),
        cmocka_unit_test(test_later_drivers_continue_the_counts),
        cmocka_unit_test(test_wrong_texts_are_refused),
        cmocka_unit_test(test_the_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
