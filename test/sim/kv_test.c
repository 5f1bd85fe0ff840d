/* The key-value store on simulated nodes: the results of calls, their errors, and the time for a
 * value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kv/kv_message.h"
#include "kv_trial.h"

#define LAN "node { count: 8 } link { mbit: 1000 latency_us: 100 } "
#define MB  (1000 * 1000)

static const struct members no_members;

static int64_t time_in(struct trial_node *n, double seconds)
{
    return world_now(n->world) + (int64_t)(seconds * (double)WORLD_SECOND);
}

/* With both back ends: the same events at the same times. */
static void run_both(struct trial t, struct members dead)
{
    struct trial *first = malloc(sizeof *first), *second = malloc(sizeof *second);
    assert_true(first && second);
    *first = *second = t;
    second->backend = SIM_BATON;
    trial_run(first);
    trial_expect(first, dead);
    trial_run(second);
    trial_expect(second, dead);
    assert_true(first->outcome.trace == second->outcome.trace);
    free(first), free(second);
}

static int message_has(const struct trial_node *n, const char *part)
{
    if (strstr(n->err->text, part))
        return true;
    print_message("'%s' does not say '%s'\n", n->err->text, part);
    return false;
}

/* ---- update and get ---- */

static size_t count_holders(const struct trial *t, const char *key, uint64_t version)
{
    const struct kv_table *table = &t->master->table;
    for (size_t i = 0; i < table->count; i++)
        if (table->entry[i].meta.version == version && strcmp(table->entry[i].key, key) == 0)
            return members_count(&table->entry[i].holders);
    return 0;
}

static int play_share(struct trial *t, struct trial_node *n)
{
    static const size_t sizes[] = {1, 0, KV_PIECE - 1, KV_PIECE, KV_PIECE + 1, 3 * MB};
    for (uint64_t i = 0; i < 6; i++) {
        char key[] = {(char)('a' + i), '\0'};
        if (n->self == 0)
            TRIAL_CHECK(trial_update(n, key, 0, sizes[i], time_in(n, 1)) == OK);
        else
            TRIAL_CHECK(trial_get(n, key, n->self == 1 ? 1 : KV_NEWEST, sizes[i], time_in(n, 5)) ==
                        1);
        TRIAL_CHECK(trial_get(n, key, 1, sizes[i], time_in(n, 1)) == 1); /* the value here */
    }
    TRIAL_CHECK(trial_rendezvous(n) == OK);
    /* Node 1 continues; the others remain, and still reply. */
    if (n->self == 1) {
        TRIAL_CHECK(count_holders(t, "a", 1) == 3 && count_holders(t, "f", 1) == 3);
        TRIAL_CHECK(trial_update(n, "a", 1, 7, time_in(n, 1)) == OK);
        TRIAL_CHECK(count_holders(t, "a", 1) == 2 && count_holders(t, "a", 2) == 1);
        TRIAL_CHECK(trial_get(n, "a", 1, 1, time_in(n, 1)) ==
                    1); /* an old one: read, and not kept */
        TRIAL_CHECK(kv_store_find(&n->kv.store, "a")->value->meta.version == 2);
        TRIAL_CHECK(count_holders(t, "a", 1) == 2 && count_holders(t, "a", 2) == 1);
        t->sheet[0] = 1;
    }
    TRIAL_CHECK(trial_until(n, &t->sheet[0], 1) == OK);
    if (n->self == 2) {
        TRIAL_CHECK(trial_get(n, "a", 1, 1, time_in(n, 1)) == 1);
        TRIAL_CHECK(trial_get(n, "a", KV_NEWEST, 7, time_in(n, 1)) == 2);
        TRIAL_CHECK(trial_get(n, "a", KV_NEWEST, 7, time_in(n, 1)) == 2);
        TRIAL_CHECK(kv_withdraw(&n->kv, "a", n->err) == OK);
        TRIAL_CHECK(kv_withdraw(&n->kv, "a", n->err) == ERR_NOT_FOUND && message_has(n, "no copy"));
        TRIAL_CHECK(world_sleep(n->world, time_in(n, 0.01)) == OK);
        TRIAL_CHECK(count_holders(t, "a", 1) == 1 && count_holders(t, "a", 2) == 1);
        t->sheet[0] = 2;
    }
    TRIAL_CHECK(trial_until(n, &t->sheet[0], 2) == OK);
    if (n->self == 1) /* exit withdraws everything */
        return OK;
    if (n->self == 2)
        return trial_until(n, &t->sheet[0], 3);
    TRIAL_CHECK(world_sleep(n->world, time_in(n, 0.1)) == OK);
    TRIAL_CHECK(count_holders(t, "a", 2) == 0 && count_holders(t, "b", 1) == 2);
    t->sheet[0] = 3;
    return OK;
}

static void test_values_are_shared_and_go_with_their_last_holder(void **state)
{
    (void)state;
    run_both((struct trial){.cluster = LAN, .workers = 3, .members = 3, .play = play_share},
             no_members);
}

/* ---- what is refused, and how ---- */

static int play_refused(struct trial *t, struct trial_node *n)
{
    const struct kv_want none = {"none", 3, false, time_in(n, 1)},
                         any = {"none", KV_NEWEST, true, time_in(n, 0.2)},
                         zero = {"x", 0, false, time_in(n, 1)},
                         blank = {"a b", 1, false, time_in(n, 1)};
    struct kv_value *value;
    if (n->self == 0) {
        TRIAL_CHECK(kv_update(&n->kv, "x", 4, "abc", 3, time_in(n, 1), n->err) == OK);
        TRIAL_CHECK(kv_update(&n->kv, "x", 4, "abc", 3, time_in(n, 1), n->err) ==
                    OK); /* the same */
        TRIAL_CHECK(kv_update(&n->kv, "x", 3, "abc", 3, time_in(n, 1), n->err) == ERR_USAGE);
        TRIAL_CHECK(message_has(n, "this member has version 5, and 4 is older"));
        TRIAL_CHECK(kv_update(&n->kv, "", 0, "abc", 3, time_in(n, 1), n->err) == ERR_USAGE);
        TRIAL_CHECK(kv_update(&n->kv, "y", KV_VERSION_MAX, "a", 1, time_in(n, 1), n->err) ==
                    ERR_USAGE);
        TRIAL_CHECK(message_has(n, "there is no version after"));
        TRIAL_CHECK(kv_update(&n->kv, "y", 0, NULL, 1, time_in(n, 1), n->err) == ERR_USAGE);
        TRIAL_CHECK(kv_update(&n->kv, "y", 0, "a", SIZE_MAX, time_in(n, 1), n->err) == ERR_USAGE);
        t->sheet[0] = 1;
        return trial_until(n, &t->sheet[0], 2);
    }
    TRIAL_CHECK(trial_until(n, &t->sheet[0], 1) == OK);
    TRIAL_CHECK(kv_update(&n->kv, "x", 4, "abd", 3, time_in(n, 1), n->err) == ERR_REPLICAS);
    TRIAL_CHECK(message_has(n, "key 'x', version 5: node 1 has 3 bytes") &&
                message_has(n, "node 0 has 3 with"));
    TRIAL_CHECK(count_holders(t, "x", 5) == 1 && kv_store_find(&n->kv.store, "x") == NULL);
    TRIAL_CHECK(kv_update(&n->kv, "x", 4, "abc", 3, time_in(n, 1), n->err) == OK); /* a replica */
    TRIAL_CHECK(count_holders(t, "x", 5) == 2);
    TRIAL_CHECK(kv_get(&n->kv, &none, &value, n->err) == ERR_NOT_FOUND);
    TRIAL_CHECK(message_has(n, "key 'none', version 3: no member holds it"));
    TRIAL_CHECK(kv_get(&n->kv, &any, &value, n->err) == ERR_TIMEOUT);
    TRIAL_CHECK(message_has(n, "the newest version: the master named no holder"));
    TRIAL_CHECK(world_sleep(n->world, time_in(n, 0.01)) == OK && t->master->table.waits == 0);
    TRIAL_CHECK(kv_get(&n->kv, &zero, &value, n->err) == ERR_USAGE);
    TRIAL_CHECK(kv_get(&n->kv, &blank, &value, n->err) == ERR_USAGE);
    t->sheet[0] = 2;
    return OK;
}

static void test_what_cannot_be_is_refused_by_name(void **state)
{
    (void)state;
    run_both((struct trial){.cluster = LAN, .workers = 2, .members = 2, .play = play_refused},
             no_members);
}

/* A node keeps no more bytes than its limit. */
static int play_room(struct trial *t, struct trial_node *n)
{
    const struct kv_want want = {"x", 1, true, time_in(n, 1)};
    struct kv_value *value;
    if (n->self == 0) {
        n->kv.options.bytes_max = UINT64_MAX;
        TRIAL_CHECK(trial_update(n, "x", 0, MB, time_in(n, 1)) == OK);
        TRIAL_CHECK(trial_update(n, "y", 0, MB / 2, time_in(n, 1)) == OK);
        return trial_until(n, &t->sheet[0], 1);
    }
    TRIAL_CHECK(kv_get(&n->kv, &want, &value, n->err) == ERR_FULL);
    TRIAL_CHECK(message_has(n, "1000000 bytes have no room here: 0 of 999999 are taken"));
    TRIAL_CHECK(trial_get(n, "y", 1, MB / 2, time_in(n, 1)) == 1);
    TRIAL_CHECK(trial_update(n, "z", 0, MB / 2, time_in(n, 1)) == ERR_FULL);
    TRIAL_CHECK(trial_update(n, "z", 0, MB / 2 - 1, time_in(n, 1)) == OK);
    /* replaces its own version */
    TRIAL_CHECK(trial_update(n, "z", 1, MB / 2 - 1, time_in(n, 1)) == OK);
    TRIAL_CHECK(n->kv.store.bytes == 999999);
    t->sheet[0] = 1;
    return OK;
}

static void test_a_node_keeps_what_it_has_room_for(void **state)
{
    (void)state;
    run_both((struct trial){.cluster = LAN,
                            .workers = 2,
                            .members = 2,
                            .options = {.bytes_max = MB - 1},
                            .play = play_room},
             no_members);
}

/* ---- time ---- */

/* All but the last hold it; the last, no member, gets it in the background. */
static int play_joiner(struct trial *t, struct trial_node *n)
{
    size_t size = (size_t)t->arg;
    uint32_t last = t->workers - 1;
    const struct kv_want want = {"x", KV_NEWEST, true, time_in(n, 100)};
    if (n->self != last)
        TRIAL_CHECK(trial_update(n, "x", 0, size, time_in(n, 1)) == OK);
    TRIAL_CHECK(trial_rendezvous(n) == OK);
    if (n->self != last)
        return trial_until(n, &t->sheet[0], 1);
    struct kv_call *call;
    struct kv_value *value;
    uint64_t have = 0, before = 0, whole, steps = 0;
    int64_t begun = world_now(n->world);
    TRIAL_CHECK(kv_begin(&n->kv, &want, &call, n->err) == OK);
    int rc;
    while ((rc = kv_finish(call, time_in(n, 0.01), &value, n->err)) == ERR_TIMEOUT) {
        kv_progress(call, &have, &whole);
        TRIAL_CHECK(have >= before && have <= whole && (whole == 0 || whole == size));
        steps += have > before;
        before = have;
    }
    TRIAL_CHECK(rc == OK && trial_whole(value, "x", size) && steps > 5);
    kv_progress(call, &have, &whole);
    TRIAL_CHECK(have == size && whole == size);
    t->time[0] = world_now(n->world) - begun;
    kv_value_unref(value);
    kv_end(call);
    t->sheet[0] = 1;
    return OK;
}

/* Within five per cent of the links' rate, after a request to the master and one to holders, and
 * the ten milliseconds of the poll above. */
static void expect_rate(const char *cluster, uint32_t nodes, double mbit, double latency_s)
{
    struct trial t = {.cluster = cluster,
                      .workers = nodes,
                      .members = nodes - 1,
                      .arg = 20 * MB,
                      .play = play_joiner};
    trial_run(&t);
    trial_expect(&t, no_members);
    double seconds = world_seconds(t.time[0]), least = 20e6 * 8 / (mbit * 1e6);
    print_message("20 MB from %u holders at %g Mbit/s: %.4f s, %.1f %%\n", nodes - 1, mbit, seconds,
                  100 * least / seconds);
    assert_true(seconds >= least && seconds < least * 1.05 + 4 * latency_s + 0.01);
}

static void test_a_joiner_reads_at_line_rate_from_all_holders(void **state)
{
    (void)state;
    expect_rate("node { count: 2 } link { mbit: 1000 latency_us: 100 }", 2, 1000, 1e-4);
    expect_rate("node { count: 4 } link { mbit: 1000 latency_us: 100 }", 4, 1000, 1e-4);
    /* Four holders with a tenth of the joiner's link each. */
    expect_rate("node { count: 4 mbit: 100 } node { count: 1 } link { mbit: 1000 latency_us: 100 }",
                5, 400, 1e-4);
    /* One of them has a hundredth of the rate: it delivers what it can, and delays no reader. */
    expect_rate("node { count: 3 mbit: 100 } node { mbit: 10 } node { count: 1 } "
                "link { mbit: 1000 latency_us: 100 }",
                5, 310, 1e-4);
    /* At a long distance: the requests to two holders fill links of 200 Mbit/s for 100 ms. */
    expect_rate(
        "node { count: 2 mbit: 200 } node { count: 1 } link { mbit: 1000 latency_us: 20000 }", 3,
        400, 0.02);
}

/* Cancelled in the middle: pieces under way are dropped, and nothing is delayed. */
static int play_cancel(struct trial *t, struct trial_node *n)
{
    const struct kv_want want = {"x", 1, true, time_in(n, 100)};
    if (n->self == 0) {
        TRIAL_CHECK(trial_update(n, "x", 0, 20 * MB, time_in(n, 1)) == OK);
        return trial_until(n, &t->sheet[0], 1);
    }
    struct kv_value *value;
    for (int i = 0; i < 20; i++) {
        struct kv_call *call;
        TRIAL_CHECK(kv_begin(&n->kv, &want, &call, n->err) == OK);
        TRIAL_CHECK(kv_finish(call, time_in(n, 0.003 * i), &value, n->err) == ERR_TIMEOUT);
        kv_end(call);
        TRIAL_CHECK(i > 15 || n->kv.coming <= 20 * MB);
    }
    TRIAL_CHECK(world_sleep(n->world, time_in(n, 0.1)) == OK);
    TRIAL_CHECK(n->kv.coming == 0 && n->kv.calls == NULL);
    int64_t begun = world_now(n->world);
    TRIAL_CHECK(trial_get(n, "x", 1, 20 * MB, time_in(n, 5)) == 1);
    TRIAL_CHECK(world_now(n->world) - begun < 170 * TRIAL_MS);
    t->sheet[0] = 1;
    return OK;
}

static void test_a_get_can_be_taken_back(void **state)
{
    (void)state;
    run_both((struct trial){.cluster = LAN, .workers = 2, .members = 2, .play = play_cancel},
             no_members);
}

/* ---- what others say, by hand ---- */

/* A joiner gets the addresses of holders; members know them from the view. */
static int request_holders(struct trial_node *n, struct kv_reply *reply_message)
{
    const struct kv_request request = {
        .what = KV_FIND, .request = 5, .key = "x", .meta = {.version = 1}};
    const struct wait_for reply = wire_from(WORLD_DRIVER, WIRE_KV_REPLY);
    struct buf bytes = {0};
    struct wake wake;
    kv_request_encode(&request, &bytes);
    int rc = wire_send_buf(n->world, WORLD_DRIVER, WIRE_KV_REQUEST, 0, &bytes);
    buf_release(&bytes);
    if (rc == OK)
        rc = world_wait(n->world, &reply, 1, time_in(n, 1), &wake);
    if (rc != OK)
        return rc;
    struct byte_reader cut = {wake.msg->data, wake.msg->len, false};
    rc = kv_reply_decode(&cut, reply_message);
    message_unref(wake.msg);
    return rc;
}

static int play_where(struct trial *t, struct trial_node *n)
{
    struct kv_reply reply_message;
    if (n->self == 0)
        TRIAL_CHECK(trial_update(n, "x", 0, 10, time_in(n, 1)) == OK);
    if (n->self == 1)
        TRIAL_CHECK(trial_update(n, "y", 0, 10, time_in(n, 1)) == OK &&
                    count_holders(t, "y", 1) == 1);
    TRIAL_CHECK(trial_rendezvous(n) == OK);
    if (n->self > 0) {
        kv_stop(&n->kv); /* which would receive the reply, and withdraws all */
        TRIAL_CHECK(request_holders(n, &reply_message) == OK && reply_message.what == KV_FOUND &&
                    reply_message.request == 5);
        TRIAL_CHECK(reply_message.count == 1 && reply_message.node[0] == 0 &&
                    reply_message.meta.size == 10);
        TRIAL_CHECK(n->self == 2 || count_holders(t, "y", 1) == 0);
        TRIAL_CHECK(strcmp(reply_message.address[0], n->self == 1 ? "" : "node-0:7") == 0);
    }
    t->sheet[n->self] = 1;
    for (int i = 0; i < 3; i++)
        TRIAL_CHECK(trial_until(n, &t->sheet[i], 1) == OK);
    return OK;
}

static void test_a_joiner_gets_the_holders(void **state)
{
    (void)state;
    run_both((struct trial){.cluster = LAN, .workers = 3, .members = 2, .play = play_where},
             no_members);
}

/* Node 1 requests more pieces than a holder sends at once, and receives none: node 2 reads on. */
static int request_pieces(struct trial_node *n)
{
    const struct kv_piece piece = {.key = "x", .version = 1, .len = KV_PIECE};
    struct buf bytes = {0};
    int rc = OK;
    kv_piece_encode(&piece, &bytes);
    for (uint32_t i = 0; rc == OK && i < KV_SERVINGS_MAX + 100; i++)
        rc = wire_send(n->world, 0, wire_tag(WIRE_KV_FETCH, 0, i, 0), bytes.data, bytes.len);
    buf_release(&bytes);
    return rc;
}

static int play_greedy(struct trial *t, struct trial_node *n)
{
    if (n->self == 0)
        TRIAL_CHECK(trial_update(n, "x", 0, 3 * MB, time_in(n, 1)) == OK);
    TRIAL_CHECK(trial_rendezvous(n) == OK);
    if (n->self == 1) {
        kv_stop(&n->kv);
        TRIAL_CHECK(request_pieces(n) == OK);
        TRIAL_CHECK(world_sleep(n->world, time_in(n, 0.5)) == OK);
        uint32_t servings = t->kv[0]->servings;
        TRIAL_CHECK(servings > 0 && servings <= KV_SERVINGS_EACH);
        t->sheet[0] = 1;
    }
    if (n->self == 2) {
        TRIAL_CHECK(trial_until(n, &t->sheet[0], 1) == OK);
        TRIAL_CHECK(trial_get(n, "x", 1, 3 * MB, time_in(n, 1)) == 1);
        t->sheet[0] = 2;
    }
    return trial_until(n, &t->sheet[0], 2);
}

static void test_who_takes_no_pieces_holds_up_no_other(void **state)
{
    (void)state;
    run_both((struct trial){.cluster = LAN, .workers = 3, .members = 3, .play = play_greedy},
             no_members);
}

/* The value that a joiner read was replaced, with other bytes, before it was a member: its copy is
 * dropped. */
static int play_contradict(struct trial *t, struct trial_node *n)
{
    const struct kv_want want = {"x", 1, true, time_in(n, 1)};
    struct kv_value *value;
    if (n->self == 0) {
        TRIAL_CHECK(kv_update(&n->kv, "x", 0, "abc", 3, time_in(n, 1), n->err) == OK);
        TRIAL_CHECK(trial_until(n, &t->sheet[0], 1) == OK);
        TRIAL_CHECK(kv_withdraw(&n->kv, "x", n->err) == OK);
        TRIAL_CHECK(kv_update(&n->kv, "x", 0, "xyz", 3, time_in(n, 1), n->err) == OK);
        t->sheet[0] = 2;
        return trial_until(n, &t->sheet[0], 3);
    }
    TRIAL_CHECK(kv_get(&n->kv, &want, &value, n->err) == OK && memcmp(value->data, "abc", 3) == 0);
    kv_value_unref(value);
    t->sheet[0] = 1;
    TRIAL_CHECK(trial_until(n, &t->sheet[0], 2) == OK);
    TRIAL_CHECK(group_wait_view(&n->group, 0, time_in(n, 5)) == OK);
    TRIAL_CHECK(world_sleep(n->world, time_in(n, 0.01)) == OK);
    TRIAL_CHECK(kv_store_find(&n->kv.store, "x") == NULL);
    const struct kv_want again = {"x", 1, true, time_in(n, 1)};
    TRIAL_CHECK(kv_get(&n->kv, &again, &value, n->err) == OK && memcmp(value->data, "xyz", 3) == 0);
    kv_value_unref(value);
    t->sheet[0] = 3;
    return OK;
}

static void test_contradicted_copy_is_dropped(void **state)
{
    (void)state;
    run_both((struct trial){.cluster = LAN,
                            .workers = 2,
                            .members = 1,
                            .join_at = WORLD_SECOND,
                            .play = play_contradict},
             no_members);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_shared_and_go_with_their_last_holder),
        cmocka_unit_test(test_what_cannot_be_is_refused_by_name),
        cmocka_unit_test(test_a_node_keeps_what_it_has_room_for),
        cmocka_unit_test(test_a_joiner_reads_at_line_rate_from_all_holders),
        cmocka_unit_test(test_a_get_can_be_taken_back),
        cmocka_unit_test(test_a_joiner_gets_the_holders),
        cmocka_unit_test(test_who_takes_no_pieces_holds_up_no_other),
        cmocka_unit_test(test_contradicted_copy_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
