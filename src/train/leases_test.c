/* Leases between a driver and its workers, message by message: the driver's side (leases.c) and a
 * worker's (lessee.c), on a world that keeps what is sent, and brings what the test puts there. */
#include "train/leases.h"

#include "train/lessee.h"
#include "wire/catalogue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

enum { GRAIN = 16, RECORDS = 400, BEGIN = 1000, POSTS = 16 };

/* ---- the world ---- */

struct office {
    struct world world; /* first */
    int64_t now;
    bool full; /* the next message finds no room */
    int sent;
    uint32_t to[POSTS];
    struct lease_grant grant[POSTS];
    struct message *box[POSTS]; /* has come in, and has not been read */
    int boxed;
};

static int64_t office_now(struct world *w)
{
    return ((struct office *)w)->now;
}

static int office_send(struct world *w, uint32_t peer, struct message *m, enum world_class class)
{
    struct office *o = (struct office *)w;
    (void)class;
    if (o->full) {
        o->full = false;
        return ERR_FULL;
    }
    struct byte_reader in = {m->data, m->len, false};
    assert_true(o->sent < POSTS && wire_kind_of(m->tag) == WIRE_LEASE);
    o->to[o->sent] = peer;
    assert_int_equal(lease_grant_decode(&in, &o->grant[o->sent++]), OK);
    message_unref(m);
    return OK;
}

static int office_wait(struct world *w, const struct wait_for *set, int n, int64_t deadline,
                       struct wake *out)
{
    struct office *o = (struct office *)w;
    assert_true(n == 1 && set->kind == WAIT_MESSAGE && set->from == WORLD_DRIVER);
    assert_int_equal(deadline, o->now); /* nothing waits for a lease */
    if (o->boxed == 0)
        return ERR_TIMEOUT;
    *out = (struct wake){.msg = o->box[0]};
    memmove(o->box, o->box + 1, (size_t)--o->boxed * sizeof *o->box);
    return OK;
}

static struct office office_new(void)
{
    static const struct world_ops ops = {
        .now = office_now, .send = office_send, .wait = office_wait};
    return (struct office){.world = {&ops, WORLD_DRIVER}};
}

/* ---- the driver's side ---- */

static struct leases leases;
static struct office office;
static const struct logger silent;

static struct view view_of(uint32_t number, size_t count, const uint32_t *node)
{
    struct view view = {.number = number, .count = count};
    memcpy(view.node, node, count * sizeof *node);
    return view;
}

#define VIEW(number, ...) \
    view_of(number, sizeof(uint32_t[]){__VA_ARGS__} / sizeof(uint32_t), (uint32_t[]){__VA_ARGS__})

/* The book of a run that has come to record BEGIN, and nobody in it. */
static void open_book(void)
{
    office = office_new();
    leases = (struct leases){.world = &office.world, .log = &silent, .records = RECORDS};
    lease_open(&leases.book, BEGIN, 0, GRAIN);
}

/* With workers 2, 5 and 7. */
static void begin(void)
{
    const struct view first = VIEW(1, 2, 5, 7);
    open_book();
    leases_begin(&leases, &first);
}

static void hear(uint32_t node, uint64_t taken, uint32_t ask, uint64_t want)
{
    const struct lease_word word = {.taken = taken, .ask = ask, .want = want};
    leases_hear(&leases, node, &word);
    assert_true(lease_adds_up(&leases.book));
}

/* The message sent as number `nth` was this one, and had one lease. */
static void expect_grant(int nth, uint32_t node, uint32_t ask, uint64_t from, uint64_t to)
{
    assert_true(office.sent > nth);
    const struct lease_grant *grant = &office.grant[nth];
    assert_int_equal(office.to[nth], node);
    assert_int_equal(grant->ask, ask);
    assert_int_equal(grant->count, 1);
    assert_int_equal(grant->lease[0].from, from);
    assert_int_equal(grant->lease[0].to, to);
}

/* 400 records are 8 steps for each of three, and 6 for each of four. */
static void first_leases_are_arithmetic(void **state)
{
    const struct view first = VIEW(1, 2, 5, 7);
    (void)state;
    begin();
    assert_int_equal(leases_first_size(3, GRAIN, RECORDS), 8 * GRAIN);
    assert_int_equal(leases_first_size(4, GRAIN, RECORDS), 6 * GRAIN);
    for (size_t i = 0; i < first.count; i++) {
        struct lease own = leases_first(BEGIN, &first, first.node[i], GRAIN, RECORDS);
        const struct lease_holder *h = &leases.book.holder[first.node[i]];
        assert_int_equal(own.from, BEGIN + i * 128);
        assert_int_equal(own.to, own.from + 128);
        assert_true(h->count == 1 && h->held[0].from == own.from && h->held[0].to == own.to);
    }
    assert_true(leases.opened && office.sent == 0 && lease_adds_up(&leases.book));
    hear(5, 16, 1, 128); /* coming was that question, and it is answered */
    assert_int_equal(office.sent, 0);
}

static void who_comes_is_sent_one_once(void **state)
{
    const struct view second = VIEW(2, 2, 5, 7, 9), third = VIEW(3, 2, 5, 7),
                      fourth = VIEW(4, 2, 5, 7, 9);
    (void)state;
    begin();
    leases_welcome(&leases, &second);
    leases_welcome(&leases, &second);
    assert_int_equal(office.sent, 1);
    expect_grant(0, 9, 1, BEGIN + 384, BEGIN + 384 + 96);
    const struct members gone = leases_orphans(&leases, &third);
    leases_take_back(&leases, &gone);
    leases_welcome(&leases, &fourth); /* a number is never another's */
    assert_int_equal(office.sent, 1);
    assert_false(leases_counts(&leases, 9));
}

static void a_question_is_answered_once(void **state)
{
    (void)state;
    begin();
    const struct lease_word over = {.taken = 64, .again = 32, .ask = 2, .want = 64};
    leases_hear(&leases, 5, &over);
    assert_int_equal(leases.book.repeated, 32);
    expect_grant(0, 5, 2, BEGIN + 384, BEGIN + 448);
    hear(5, 80, 2, 64); /* the answer is on its way */
    hear(5, 96, 1, 64);
    hear(5, 96, 3, 0); /* no question */
    assert_int_equal(office.sent, 1);
    assert_int_equal(leases.book.used, BEGIN + 96);
    hear(5, 96, 3, 32);
    assert_int_equal(office.sent, 2);
    expect_grant(1, 5, 3, BEGIN + 448, BEGIN + 480);
}

/* The book has handed it out: the same is sent when the worker asks again, and nothing more. */
static void an_answer_that_could_not_be_sent(void **state)
{
    (void)state;
    begin();
    hear(5, 64, 2, 64);
    office.full = true;
    hear(5, 80, 3, 32);
    assert_int_equal(office.sent, 1);
    uint64_t held = lease_held(&leases.book);
    office.full = true;
    hear(5, 80, 3, 32);
    hear(5, 80, 3, 0); /* it does not ask here */
    assert_int_equal(office.sent, 1);
    hear(5, 80, 3, 32);
    assert_int_equal(office.sent, 2);
    expect_grant(1, 5, 3, BEGIN + 448, BEGIN + 480);
    assert_int_equal(lease_held(&leases.book), held);
    hear(5, 80, 3, 32);
    assert_int_equal(office.sent, 2);
}

/* Worker 5 says that it has gone over leases that nobody has sent it: they count as its own, and it
 * is sent what is left of them, or others. */
static void who_says_too_much_gets_no_wrong_leases(void **state)
{
    (void)state;
    begin();
    office.full = true;
    hear(5, 64, 2, 48); /* [BEGIN + 384, BEGIN + 432) */
    hear(5, 128 + 16, 2, 48);
    expect_grant(0, 5, 2, BEGIN + 400, BEGIN + 432);
    hear(5, 176, 2, 0);
    office.full = true;
    hear(5, 176, 3, 32); /* [BEGIN + 432, BEGIN + 464) */
    assert_int_equal(lease_held(&leases.book), 2 * 128 + 32);
    hear(5, 208, 3, 32);
    assert_int_equal(office.sent, 2);
    expect_grant(1, 5, 3, BEGIN + 464, BEGIN + 496);
}

/* There is no room for a fifth: the question stays open until one is used up. */
static void who_holds_as_much_as_it_can(void **state)
{
    (void)state;
    begin();
    for (uint32_t ask = 2; ask <= 5; ask++)
        hear(5, 0, ask, GRAIN);
    assert_int_equal(office.sent, 3);
    hear(5, 128, 5, GRAIN);
    assert_int_equal(office.sent, 4);
    expect_grant(3, 5, 5, BEGIN + 432, BEGIN + 448);
}

static void the_rest_of_the_dead_is_handed_out(void **state)
{
    const struct view second = VIEW(2, 2, 7);
    (void)state;
    begin();
    const struct members gone = leases_orphans(&leases, &second);
    assert_true(members_count(&gone) == 1 && members_has(&gone, 5));
    assert_true(leases_counts(&leases, 5));
    hear(5, 48, 1, 0); /* its last word, which came before the news */
    leases_take_back(&leases, &gone);
    assert_false(leases_counts(&leases, 5));
    hear(5, 128, 2, 64); /* one that is late */
    assert_true(office.sent == 0 && leases.book.used == BEGIN + 48);
    hear(2, 128, 2, 128);
    assert_int_equal(office.grant[0].count, 2); /* and 48 new ones */
    assert_int_equal(office.grant[0].lease[0].from, BEGIN + 128 + 48);
    assert_int_equal(office.grant[0].lease[0].to, BEGIN + 256);
    hear(2, 128 + 80, 2, 0);
    assert_int_equal(leases.book.repeated, 80);
}

static void who_ends_leaves_the_rest_as_it_got_it(void **state)
{
    const struct lease_word last = {.taken = 48, .ask = 2, .want = 64, .ends = true};
    (void)state;
    begin();
    leases_hear(&leases, 5, &last);
    assert_true(office.sent == 0 && !leases_counts(&leases, 5));
    hear(2, 128, 2, 80);
    expect_grant(0, 2, 2, BEGIN + 128 + 48, BEGIN + 256);
    hear(2, 128 + 80, 2, 0);
    assert_int_equal(leases.book.repeated, 0);
}

/* Worker 7 says that it holds what worker 2 has. */
static void a_driver_that_comes_back(void **state)
{
    static struct comeback back[8];
    const struct view first = VIEW(5, 2, 7);
    (void)state;
    open_book();
    back[2] = (struct comeback){
        .lease = {.taken = 320, .count = 1, .held = {{.from = 1200, .to = 1232}}},
        .lease_high = 1232,
        .lease_ask = 4,
    };
    back[7] = back[2];
    back[7].lease_ask = 9;
    leases_return(&leases, &first, back, 1150, 20);
    assert_true(leases.opened && lease_adds_up(&leases.book));
    assert_true(leases.book.used == 1150 && leases.book.repeated == 20);
    assert_true(leases.book.holder[2].count == 1 && leases.book.holder[7].count == 0);
    hear(2, 320, 4, 16); /* put to the driver before */
    assert_int_equal(office.sent, 0);
    hear(2, 336, 5, 16);
    assert_int_equal(leases.book.used, 1166);
    expect_grant(0, 2, 5, 1232, 1248);
    hear(7, 320, 10, 16);
    expect_grant(1, 7, 10, 1248, 1264);
    leases_welcome(&leases, &first); /* they are known */
    assert_int_equal(office.sent, 2);
}

static void a_grant_comes_whole_or_not_at_all(void **state)
{
    struct lease_grant grant = {.ask = 3, .count = LEASE_HELD_MAX}, out;
    struct buf bytes = {0};
    (void)state;
    for (size_t i = 0; i < LEASE_HELD_MAX; i++)
        grant.lease[i] = (struct lease){.from = 10 * i, .to = 10 * i + 7};
    lease_grant_encode(&grant, &bytes);
    struct byte_reader whole = {bytes.data, bytes.len, false};
    assert_int_equal(lease_grant_decode(&whole, &out), OK);
    assert_memory_equal(&out, &grant, sizeof out);
    for (size_t len = 0; len < bytes.len; len++) {
        struct byte_reader part = {bytes.data, len, false};
        assert_int_equal(lease_grant_decode(&part, &out), ERR_PROTOCOL);
    }
    buf_put_u8(&bytes, 0);
    struct byte_reader more = {bytes.data, bytes.len, false};
    assert_int_equal(lease_grant_decode(&more, &out), ERR_PROTOCOL);
    bytes.data[4]++; /* one more than there can be */
    buf_put_u64(&bytes, 0);
    buf_put_u64(&bytes, 0);
    struct byte_reader many = {bytes.data, bytes.len - 1, false};
    assert_int_equal(lease_grant_decode(&many, &out), ERR_PROTOCOL);
    buf_release(&bytes);
}

static void test_grant_is_read_in_the_order_of_its_bytes(void **state)
{
    (void)state;
    const uint8_t bytes[24] = {7, 0, 0, 0, 1, 0, 0, 0, 0x10, 2, 0, 0, 0, 0, 0, 0, 0x30, 2};
    struct byte_reader in = {bytes, sizeof bytes, false};
    struct lease_grant grant;
    assert_int_equal(lease_grant_decode(&in, &grant), OK);
    assert_int_equal(grant.ask, 7);
    assert_int_equal(grant.count, 1);
    assert_int_equal(grant.lease[0].from, 0x210);
    assert_int_equal(grant.lease[0].to, 0x230);
}

/* ---- a worker's side ---- */

struct worker_side {
    struct view first, view; /* somebody has come since */
    struct group group;
    struct corpus corpus;
    struct learner learner;
    Paceline__Job job;
    struct member m;
    struct lessee lessee;
};

static struct worker_side side;

/* Worker 5 of the view; the book ended at BEGIN. */
static void be_worker(bool entered)
{
    office = office_new();
    office.world.self = 5;
    office.now = 100 * WORLD_SECOND;
    side = (struct worker_side){
        .first = VIEW(1, 2, 5, 7), .view = VIEW(2, 0, 2, 5, 7), .lessee = {.from = BEGIN}};
    paceline__job__init(&side.job);
    side.job.batch = GRAIN;
    side.job.iter_size = 1;
    side.group.log = &silent;
    atomic_store(&side.group.view, &side.view);
    atomic_store(&side.group.first, entered ? NULL : &side.first);
    side.corpus.set[SET_TRAIN].count = RECORDS;
    side.learner.corpus = &side.corpus;
    side.m = (struct member){
        .world = &office.world,
        .group = &side.group,
        .learner = &side.learner,
        .job = &side.job,
        .start = {.place = 2000},
    };
    lessee_begin(&side.lessee, &side.m, entered);
}

static void put(const void *data, size_t len)
{
    struct message *m = message_new(wire_tag(WIRE_LEASE, 0, 0, 0), 0, len);
    assert_true(m && office.boxed < POSTS);
    memcpy(m->data, data, len);
    office.box[office.boxed++] = m;
}

static void answer(uint32_t ask, uint64_t from, uint64_t to)
{
    const struct lease_grant grant = {.ask = ask, .count = 1, .lease = {{.from = from, .to = to}}};
    struct buf bytes = {0};
    lease_grant_encode(&grant, &bytes);
    put(bytes.data, bytes.len);
    buf_release(&bytes);
}

/* So many steps of so many seconds; how many of them it is time to ask behind. */
static int steps(int n, double seconds)
{
    int asks = 0;
    for (int i = 0; i < n; i++) {
        office.now += (int64_t)(seconds * WORLD_SECOND);
        lease_cursor_step(&side.m.hold);
        asks += lessee_stepped(&side.lessee, &side.m);
    }
    return asks;
}

static void a_member_knows_its_first_lease(void **state)
{
    (void)state;
    be_worker(false);
    assert_true(side.m.leased && !side.m.hold.pending);
    assert_int_equal(lease_cursor_offset(&side.m.hold), BEGIN + 128);
    assert_int_equal(lease_cursor_left(&side.m.hold), 128);
    struct lease_word word = lessee_word(&side.lessee, &side.m);
    assert_true(word.want == 0 && word.ask == 1 && !word.ends);
}

/* Until its lease comes it goes over what the others are at, and counts that as done again. */
static void a_newcomer_waits_for_none(void **state)
{
    (void)state;
    be_worker(true);
    struct lease_word word = lessee_word(&side.lessee, &side.m);
    assert_true(side.m.leased && word.ask == 1 && word.want == 96);
    assert_int_equal(lease_cursor_offset(&side.m.hold), 2000);
    assert_int_equal(steps(7, 0.1), 0);
    assert_int_equal(lease_cursor_offset(&side.m.hold), 2000 + GRAIN); /* of six */
    word = lessee_word(&side.lessee, &side.m);
    assert_true(word.taken == 0 && word.again == 7 * GRAIN);
    answer(1, 5000, 5096);
    lessee_look(&side.lessee, &side.m);
    assert_int_equal(lease_cursor_offset(&side.m.hold), 5000);
    assert_int_equal(office.boxed, 0);
}

/* Two seconds' steps, by the time that those since the last question took. */
static void it_asks_for_two_seconds_when_half_is_used(void **state)
{
    (void)state;
    be_worker(false);
    side.corpus.set[SET_TRAIN].count = 1000 * GRAIN;
    assert_int_equal(steps(3, 0.1), 0);
    assert_int_equal(steps(1, 0.1), 1);
    struct lease_word word = lessee_word(&side.lessee, &side.m);
    assert_true(word.ask == 2 && word.taken == 4 * GRAIN && word.want == 20 * GRAIN);
    assert_int_equal(steps(2, 0.05), 0); /* it has asked */
    answer(2, 5000, 5000 + 4 * GRAIN);
    assert_int_equal(steps(2, 0.05), 0); /* four are left */
    assert_int_equal(steps(2, 0.05), 1);
    word = lessee_word(&side.lessee, &side.m);
    assert_true(word.ask == 3 && word.want == 40 * GRAIN);
    answer(3, 6000, 6016);
    side.corpus.set[SET_TRAIN].count = RECORDS;
    assert_int_equal(steps(4, 0.1), 1);
    word = lessee_word(&side.lessee, &side.m);
    assert_true(word.ask == 4 && word.want == 6 * GRAIN); /* an epoch's share among four */
    side.lessee.ends = true;
    word = lessee_word(&side.lessee, &side.m);
    assert_true(word.ends && word.want == 0);
    side.m.leased = false;
    lease_cursor_forget_request(&side.m.hold);
    assert_int_equal(steps(4, 0.1), 0);
}

static void what_is_no_answer_is_left_aside(void **state)
{
    (void)state;
    be_worker(false);
    assert_int_equal(steps(4, 0.5), 1);
    put("no lease", 8);
    answer(1, 3000, 3016);
    answer(3, 4000, 4016);
    lessee_look(&side.lessee, &side.m);
    assert_true(side.m.hold.pending && side.m.hold.count == 1 && office.boxed == 0);
    answer(2, 5000, 5016);
    answer(2, 6000, 6016);
    lessee_look(&side.lessee, &side.m);
    assert_true(!side.m.hold.pending && side.m.hold.count == 2);
    assert_int_equal(side.m.hold.lease[1].from, 5000);
    assert_int_equal(office.boxed, 1); /* nobody has asked for it yet, nor looked */
    message_unref(office.box[--office.boxed]);
}

/* The question is put anew, under another number; what the driver before has answered is void. */
static void another_driver_is_asked_anew(void **state)
{
    (void)state;
    be_worker(false);
    assert_int_equal(steps(4, 0.5), 1);
    atomic_store(&side.group.reconnects, 1);
    answer(2, 5000, 5016);
    assert_int_equal(steps(1, 0.5), 1);
    struct lease_word word = lessee_word(&side.lessee, &side.m);
    assert_true(word.ask == 3 && word.want > 0 && side.m.hold.count == 1);
    assert_int_equal(steps(1, 0.5), 0); /* once */
    answer(3, 6000, 6016);
    assert_int_equal(steps(1, 0.5), 0);
    assert_int_equal(side.m.hold.lease[1].from, 6000);
}

static void what_a_driver_that_comes_back_is_told(void **state)
{
    struct comeback back = {0};
    (void)state;
    be_worker(false);
    assert_int_equal(steps(4, 0.5), 1);
    answer(2, 5000, 5016);
    assert_int_equal(steps(1, 0.5), 0);
    lessee_note(&side.m, &back);
    assert_true(back.lease.taken == 5 * GRAIN && back.lease.repeated == 0 && back.lease.count == 2);
    assert_int_equal(back.lease.held[0].from, BEGIN + 128 + 5 * GRAIN);
    assert_int_equal(back.lease.held[1].to, 5016);
    assert_true(back.lease_high == 5016 && back.lease_ask == 2);
    assert_int_equal(steps(6, 0.5), 1); /* used up, and two more */
    lessee_note(&side.m, &back);
    assert_true(back.lease.repeated == 2 * GRAIN && back.lease.count == 0 && back.lease_ask == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_leases_are_arithmetic),
        cmocka_unit_test(who_comes_is_sent_one_once),
        cmocka_unit_test(a_question_is_answered_once),
        cmocka_unit_test(an_answer_that_could_not_be_sent),
        cmocka_unit_test(who_says_too_much_gets_no_wrong_leases),
        cmocka_unit_test(who_holds_as_much_as_it_can),
        cmocka_unit_test(the_rest_of_the_dead_is_handed_out),
        cmocka_unit_test(who_ends_leaves_the_rest_as_it_got_it),
        cmocka_unit_test(a_driver_that_comes_back),
        cmocka_unit_test(a_grant_comes_whole_or_not_at_all),
        cmocka_unit_test(test_grant_is_read_in_the_order_of_its_bytes),
        cmocka_unit_test(a_member_knows_its_first_lease),
        cmocka_unit_test(a_newcomer_waits_for_none),
        cmocka_unit_test(it_asks_for_two_seconds_when_half_is_used),
        cmocka_unit_test(what_is_no_answer_is_left_aside),
        cmocka_unit_test(another_driver_is_asked_anew),
        cmocka_unit_test(what_a_driver_that_comes_back_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
