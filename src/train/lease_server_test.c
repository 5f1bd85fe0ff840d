/* Leases between a driver and its workers, message by message: the driver's side (lease_server.c)
 * and a worker's (lease client.c), on a world that keeps sent messages, and delivers those of the
 * test. */
#include "train/lease_server.h"

#include "train/lease_client.h"
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

static struct lease_server leases;
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

/* The lease table of a run at offset BEGIN, without workers. */
static void open_table(void)
{
    office = office_new();
    leases = (struct lease_server){
        .world = &office.world, .log = &silent, .records = RECORDS, .step = GRAIN};
    lease_open(&leases.table, BEGIN, 0, GRAIN);
}

/* With workers 2, 5 and 7. */
static void begin_leases(void)
{
    const struct view first = VIEW(1, 2, 5, 7);
    open_table();
    lease_server_begin(&leases, &first);
}

static void report_use(uint32_t node, uint64_t taken, uint32_t request, uint64_t want)
{
    const struct lease_report report = {.taken = taken, .request = request, .want = want};
    lease_server_on_report(&leases, node, &report);
    assert_true(lease_adds_up(&leases.table));
}

/* The message sent as number `nth` was this one, and had one lease. */
static void expect_grant(int nth, uint32_t node, uint32_t request, uint64_t from, uint64_t to)
{
    assert_true(office.sent > nth);
    const struct lease_grant *grant = &office.grant[nth];
    assert_int_equal(office.to[nth], node);
    assert_int_equal(grant->request, request);
    assert_int_equal(grant->count, 1);
    assert_int_equal(grant->lease[0].from, from);
    assert_int_equal(grant->lease[0].to, to);
}

/* 400 records are 8 steps for each of three, and 6 for each of four. */
static void test_lease_server_first_leases(void **state)
{
    const struct view first = VIEW(1, 2, 5, 7);
    (void)state;
    begin_leases();
    assert_int_equal(lease_server_first_size(3, GRAIN, RECORDS), 8 * GRAIN);
    assert_int_equal(lease_server_first_size(4, GRAIN, RECORDS), 6 * GRAIN);
    for (size_t i = 0; i < first.count; i++) {
        struct lease own = lease_server_first(BEGIN, &first, first.node[i], GRAIN, RECORDS);
        const struct lease_holder *h = &leases.table.holder[first.node[i]];
        assert_int_equal(own.from, BEGIN + i * 128);
        assert_int_equal(own.to, own.from + 128);
        assert_true(h->count == 1 && h->held[0].from == own.from && h->held[0].to == own.to);
    }
    assert_true(leases.opened && office.sent == 0 && lease_adds_up(&leases.table));
    report_use(5, 16, 1, 128); /* coming was that question, and it is answered */
    assert_int_equal(office.sent, 0);
}

static void test_lease_server_sends_joiner_one_lease(void **state)
{
    const struct view second = VIEW(2, 2, 5, 7, 9), third = VIEW(3, 2, 5, 7),
                      fourth = VIEW(4, 2, 5, 7, 9);
    (void)state;
    begin_leases();
    lease_server_welcome(&leases, &second);
    lease_server_welcome(&leases, &second);
    assert_int_equal(office.sent, 1);
    expect_grant(0, 9, 1, BEGIN + 384, BEGIN + 384 + 96);
    const struct members orphans = lease_server_orphans(&leases, &third);
    lease_server_reclaim(&leases, &orphans);
    lease_server_welcome(&leases, &fourth); /* a number is never another's */
    assert_int_equal(office.sent, 1);
    assert_false(lease_server_accepts(&leases, 9));
}

static void test_lease_server_replies_once(void **state)
{
    (void)state;
    begin_leases();
    const struct lease_report over = {.taken = 64, .repeated = 32, .request = 2, .want = 64};
    lease_server_on_report(&leases, 5, &over);
    assert_int_equal(leases.table.repeated, 32);
    expect_grant(0, 5, 2, BEGIN + 384, BEGIN + 448);
    report_use(5, 80, 2, 64); /* the answer is on its way */
    report_use(5, 96, 1, 64);
    report_use(5, 96, 3, 0); /* no question */
    assert_int_equal(office.sent, 1);
    assert_int_equal(leases.table.used, BEGIN + 96);
    report_use(5, 96, 3, 32);
    assert_int_equal(office.sent, 2);
    expect_grant(1, 5, 3, BEGIN + 448, BEGIN + 480);
}

/* The table has granted it: the same lease is sent when the worker requests again, and nothing
 * more. */
static void test_lease_server_resends_unsent_grant(void **state)
{
    (void)state;
    begin_leases();
    report_use(5, 64, 2, 64);
    office.full = true;
    report_use(5, 80, 3, 32);
    assert_int_equal(office.sent, 1);
    uint64_t held_before = lease_held(&leases.table);
    office.full = true;
    report_use(5, 80, 3, 32);
    report_use(5, 80, 3, 0); /* it does not ask here */
    assert_int_equal(office.sent, 1);
    report_use(5, 80, 3, 32);
    assert_int_equal(office.sent, 2);
    expect_grant(1, 5, 3, BEGIN + 448, BEGIN + 480);
    assert_int_equal(lease_held(&leases.table), held_before);
    report_use(5, 80, 3, 32);
    assert_int_equal(office.sent, 2);
}

/* Worker 5 says that it has gone over leases that nobody has sent it: they count as its own, and it
 * is sent what is left of them, or others. */
static void test_lease_server_excess_report_is_bounded(void **state)
{
    (void)state;
    begin_leases();
    office.full = true;
    report_use(5, 64, 2, 48); /* [BEGIN + 384, BEGIN + 432) */
    report_use(5, 128 + 16, 2, 48);
    expect_grant(0, 5, 2, BEGIN + 400, BEGIN + 432);
    report_use(5, 176, 2, 0);
    office.full = true;
    report_use(5, 176, 3, 32); /* [BEGIN + 432, BEGIN + 464) */
    assert_int_equal(lease_held(&leases.table), 2 * 128 + 32);
    report_use(5, 208, 3, 32);
    assert_int_equal(office.sent, 2);
    expect_grant(1, 5, 3, BEGIN + 464, BEGIN + 496);
}

/* There is no room for a fifth: the question stays open until one is used up. */
static void test_lease_server_full_holder_gets_no_more(void **state)
{
    (void)state;
    begin_leases();
    for (uint32_t request = 2; request <= 5; request++)
        report_use(5, 0, request, GRAIN);
    assert_int_equal(office.sent, 3);
    report_use(5, 128, 5, GRAIN);
    assert_int_equal(office.sent, 4);
    expect_grant(3, 5, 5, BEGIN + 432, BEGIN + 448);
}

static void test_lease_server_regrants_leases_of_the_dead(void **state)
{
    const struct view second = VIEW(2, 2, 7);
    (void)state;
    begin_leases();
    const struct members orphans = lease_server_orphans(&leases, &second);
    assert_true(members_count(&orphans) == 1 && members_has(&orphans, 5));
    assert_true(lease_server_accepts(&leases, 5));
    report_use(5, 48, 1, 0); /* its last message, which arrived before */
    lease_server_reclaim(&leases, &orphans);
    assert_false(lease_server_accepts(&leases, 5));
    report_use(5, 128, 2, 64); /* one that is late */
    assert_true(office.sent == 0 && leases.table.used == BEGIN + 48);
    report_use(2, 128, 2, 128);
    assert_int_equal(office.grant[0].count, 2); /* and 48 new ones */
    assert_int_equal(office.grant[0].lease[0].from, BEGIN + 128 + 48);
    assert_int_equal(office.grant[0].lease[0].to, BEGIN + 256);
    report_use(2, 128 + 80, 2, 0);
    assert_int_equal(leases.table.repeated, 80);
}

static void test_lease_server_leaver_returns_the_rest(void **state)
{
    const struct lease_report last = {.taken = 48, .request = 2, .want = 64, .ends = true};
    (void)state;
    begin_leases();
    lease_server_on_report(&leases, 5, &last);
    assert_true(office.sent == 0 && !lease_server_accepts(&leases, 5));
    report_use(2, 128, 2, 80);
    expect_grant(0, 2, 2, BEGIN + 128 + 48, BEGIN + 256);
    report_use(2, 128 + 80, 2, 0);
    assert_int_equal(leases.table.repeated, 0);
}

/* Worker 7 reports that it holds worker 2's lease. */
static void test_lease_server_recovers(void **state)
{
    static struct recovery_report reports[8];
    const struct view first = VIEW(5, 2, 7);
    (void)state;
    open_table();
    reports[2] = (struct recovery_report){
        .lease = {.taken = 320, .count = 1, .held = {{.from = 1200, .to = 1232}}},
        .lease_high = 1232,
        .lease_request = 4,
    };
    reports[7] = reports[2];
    reports[7].lease_request = 9;
    lease_server_recover(&leases, &first, reports, 1150, 20);
    assert_true(leases.opened && lease_adds_up(&leases.table));
    assert_true(leases.table.used == 1150 && leases.table.repeated == 20);
    assert_true(leases.table.holder[2].count == 1 && leases.table.holder[7].count == 0);
    report_use(2, 320, 4, 16); /* put to the driver before */
    assert_int_equal(office.sent, 0);
    report_use(2, 336, 5, 16);
    assert_int_equal(leases.table.used, 1166);
    expect_grant(0, 2, 5, 1232, 1248);
    report_use(7, 320, 10, 16);
    expect_grant(1, 7, 10, 1248, 1264);
    lease_server_welcome(&leases, &first); /* they are known */
    assert_int_equal(office.sent, 2);
}

static void test_lease_grant_is_decoded_whole(void **state)
{
    struct lease_grant grant = {.request = 3, .count = LEASE_HELD_MAX}, out;
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

static void test_lease_grant_is_little_endian(void **state)
{
    (void)state;
    const uint8_t bytes[24] = {7, 0, 0, 0, 1, 0, 0, 0, 0x10, 2, 0, 0, 0, 0, 0, 0, 0x30, 2};
    struct byte_reader in = {bytes, sizeof bytes, false};
    struct lease_grant grant;
    assert_int_equal(lease_grant_decode(&in, &grant), OK);
    assert_int_equal(grant.request, 7);
    assert_int_equal(grant.count, 1);
    assert_int_equal(grant.lease[0].from, 0x210);
    assert_int_equal(grant.lease[0].to, 0x230);
}

/* ---- a worker's side ---- */

struct worker_side {
    struct view first, view; /* a worker has joined since */
    struct group group;
    struct learner learner;
    Paceline__Job job;
    struct member m;
    struct lease_client lease_client;
};

static struct worker_side side;

/* Worker 5 of the view; the book ended at BEGIN. */
static void be_worker(bool joined)
{
    office = office_new();
    office.world.self = 5;
    office.now = 100 * WORLD_SECOND;
    side = (struct worker_side){
        .first = VIEW(1, 2, 5, 7), .view = VIEW(2, 0, 2, 5, 7), .lease_client = {.from = BEGIN}};
    paceline__job__init(&side.job);
    side.job.batch = GRAIN;
    side.job.iter_size = 1;
    side.group.log = &silent;
    atomic_store(&side.group.view, &side.view);
    atomic_store(&side.group.first, joined ? NULL : &side.first);
    side.learner.epoch_records = RECORDS;
    side.m = (struct member){
        .world = &office.world,
        .group = &side.group,
        .learner = &side.learner,
        .job = &side.job,
        .start = {.sample_offset = 2000},
    };
    lease_client_begin(&side.lease_client, &side.m, joined);
}

static void put_bytes(const void *data, size_t len)
{
    struct message *m = message_new(wire_tag(WIRE_LEASE, 0, 0, 0), 0, len);
    assert_true(m && office.boxed < POSTS);
    memcpy(m->data, data, len);
    office.box[office.boxed++] = m;
}

static void grant_range(uint32_t request, uint64_t from, uint64_t to)
{
    const struct lease_grant grant = {
        .request = request, .count = 1, .lease = {{.from = from, .to = to}}};
    struct buf bytes = {0};
    lease_grant_encode(&grant, &bytes);
    put_bytes(bytes.data, bytes.len);
    buf_release(&bytes);
}

/* So many steps of so many seconds; how many of them it is time to ask behind. */
static int take_steps(int n, double seconds)
{
    int requests = 0;
    for (int i = 0; i < n; i++) {
        office.now += (int64_t)(seconds * WORLD_SECOND);
        lease_cursor_step(&side.m.lease_cursor);
        requests += lease_client_on_step(&side.lease_client, &side.m);
    }
    return requests;
}

static void test_lease_client_knows_its_first_lease(void **state)
{
    (void)state;
    be_worker(false);
    assert_true(side.m.leased && !side.m.lease_cursor.pending);
    assert_int_equal(lease_cursor_share(&side.m.lease_cursor).start, BEGIN + 128);
    assert_int_equal(lease_cursor_left(&side.m.lease_cursor), 128);
    struct lease_report report = lease_client_report(&side.lease_client, &side.m);
    assert_true(report.want == 0 && report.request == 1 && !report.ends);
}

/* Until its lease comes it goes over what the others are at, and counts that as done again. */
static void test_lease_server_joiner_waits_for_no_lease(void **state)
{
    (void)state;
    be_worker(true);
    struct lease_report report = lease_client_report(&side.lease_client, &side.m);
    assert_true(side.m.leased && report.request == 1 && report.want == 96);
    assert_int_equal(lease_cursor_share(&side.m.lease_cursor).start, 2000);
    assert_int_equal(take_steps(7, 0.1), 0);
    assert_int_equal(lease_cursor_share(&side.m.lease_cursor).start, 2000 + GRAIN); /* of six */
    report = lease_client_report(&side.lease_client, &side.m);
    assert_true(report.taken == 0 && report.repeated == 7 * GRAIN);
    grant_range(1, 5000, 5096);
    lease_client_poll(&side.lease_client, &side.m);
    assert_int_equal(lease_cursor_share(&side.m.lease_cursor).start, 5000);
    assert_int_equal(office.boxed, 0);
}

/* Two seconds' steps, by the time that those since the last question took. */
static void test_lease_client_requests_two_seconds(void **state)
{
    (void)state;
    be_worker(false);
    side.learner.epoch_records = 1000 * GRAIN;
    assert_int_equal(take_steps(3, 0.1), 0);
    assert_int_equal(take_steps(1, 0.1), 1);
    struct lease_report report = lease_client_report(&side.lease_client, &side.m);
    assert_true(report.request == 2 && report.taken == 4 * GRAIN && report.want == 20 * GRAIN);
    assert_int_equal(take_steps(2, 0.05), 0); /* it has asked */
    grant_range(2, 5000, 5000 + 4 * GRAIN);
    assert_int_equal(take_steps(2, 0.05), 0); /* four are left */
    assert_int_equal(take_steps(2, 0.05), 1);
    report = lease_client_report(&side.lease_client, &side.m);
    assert_true(report.request == 3 && report.want == 40 * GRAIN);
    grant_range(3, 6000, 6016);
    side.learner.epoch_records = RECORDS;
    assert_int_equal(take_steps(4, 0.1), 1);
    report = lease_client_report(&side.lease_client, &side.m);
    assert_true(report.request == 4 && report.want == 6 * GRAIN); /* an epoch's share among four */
    side.lease_client.ends = true;
    report = lease_client_report(&side.lease_client, &side.m);
    assert_true(report.ends && report.want == 0);
    side.m.leased = false;
    lease_cursor_forget_request(&side.m.lease_cursor);
    assert_int_equal(take_steps(4, 0.1), 0);
}

static void test_lease_client_ignores_invalid_grants(void **state)
{
    (void)state;
    be_worker(false);
    assert_int_equal(take_steps(4, 0.5), 1);
    put_bytes("no lease", 8);
    grant_range(1, 3000, 3016);
    grant_range(3, 4000, 4016);
    lease_client_poll(&side.lease_client, &side.m);
    assert_true(side.m.lease_cursor.pending && side.m.lease_cursor.count == 1 && office.boxed == 0);
    grant_range(2, 5000, 5016);
    grant_range(2, 6000, 6016);
    lease_client_poll(&side.lease_client, &side.m);
    assert_true(!side.m.lease_cursor.pending && side.m.lease_cursor.count == 2);
    assert_int_equal(side.m.lease_cursor.lease[1].from, 5000);
    assert_int_equal(office.boxed, 1); /* it has not been requested or checked yet */
    message_unref(office.box[--office.boxed]);
}

/* The question is put again, under another number; what the driver before has answered is void. */
static void test_lease_client_requests_from_new_driver(void **state)
{
    (void)state;
    be_worker(false);
    assert_int_equal(take_steps(4, 0.5), 1);
    atomic_store(&side.group.driver.reconnects, 1);
    grant_range(2, 5000, 5016);
    assert_int_equal(take_steps(1, 0.5), 1);
    struct lease_report report = lease_client_report(&side.lease_client, &side.m);
    assert_true(report.request == 3 && report.want > 0 && side.m.lease_cursor.count == 1);
    assert_int_equal(take_steps(1, 0.5), 0); /* once */
    grant_range(3, 6000, 6016);
    assert_int_equal(take_steps(1, 0.5), 0);
    assert_int_equal(side.m.lease_cursor.lease[1].from, 6000);
}

static void test_lease_client_recovery_report(void **state)
{
    struct recovery_report reports = {0};
    (void)state;
    be_worker(false);
    assert_int_equal(take_steps(4, 0.5), 1);
    grant_range(2, 5000, 5016);
    assert_int_equal(take_steps(1, 0.5), 0);
    lease_client_recovery_report(&side.m, &reports);
    assert_true(reports.lease.taken == 5 * GRAIN && reports.lease.repeated == 0 &&
                reports.lease.count == 2);
    assert_int_equal(reports.lease.held[0].from, BEGIN + 128 + 5 * GRAIN);
    assert_int_equal(reports.lease.held[1].to, 5016);
    assert_true(reports.lease_high == 5016 && reports.lease_request == 2);
    assert_int_equal(take_steps(6, 0.5), 1); /* used up, and two more */
    lease_client_recovery_report(&side.m, &reports);
    assert_true(reports.lease.repeated == 2 * GRAIN && reports.lease.count == 0 &&
                reports.lease_request == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lease_server_first_leases),
        cmocka_unit_test(test_lease_server_sends_joiner_one_lease),
        cmocka_unit_test(test_lease_server_replies_once),
        cmocka_unit_test(test_lease_server_resends_unsent_grant),
        cmocka_unit_test(test_lease_server_excess_report_is_bounded),
        cmocka_unit_test(test_lease_server_full_holder_gets_no_more),
        cmocka_unit_test(test_lease_server_regrants_leases_of_the_dead),
        cmocka_unit_test(test_lease_server_leaver_returns_the_rest),
        cmocka_unit_test(test_lease_server_recovers),
        cmocka_unit_test(test_lease_grant_is_decoded_whole),
        cmocka_unit_test(test_lease_grant_is_little_endian),
        cmocka_unit_test(test_lease_client_knows_its_first_lease),
        cmocka_unit_test(test_lease_server_joiner_waits_for_no_lease),
        cmocka_unit_test(test_lease_client_requests_two_seconds),
        cmocka_unit_test(test_lease_client_ignores_invalid_grants),
        cmocka_unit_test(test_lease_client_requests_from_new_driver),
        cmocka_unit_test(test_lease_client_recovery_report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
