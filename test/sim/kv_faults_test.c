/* The key-value store when nodes die, hang, lie and send invalid messages; when links are cut and
 * the master is slow, or a new one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "kv_trial.h"
#include "sweep_stride.h"

#define LAN "node { count: 8 } link { mbit: 1000 latency_us: 100 } "
#define MB  (1000 * 1000)

enum { STRIDE = SWEEP_STRIDE(5, 3) };

static const struct members no_members;

static int64_t time_in(struct trial_node *n, double seconds)
{
    return world_now(n->world) + (int64_t)(seconds * (double)WORLD_SECOND);
}

static int message_has(const struct trial_node *n, const char *part)
{
    if (strstr(n->err->text, part))
        return true;
    print_message("'%s' does not say '%s'\n", n->err->text, part);
    return false;
}

static void run_trial(struct trial *t, struct members dead)
{
    trial_run(t);
    trial_expect(t, dead);
}

/* ---- holders die ---- */

/* All but the last hold it, then the last reads it; `sheet[0]` is set when it has it, or an end. */
static int play_read(struct trial *t, struct trial_node *n)
{
    uint32_t last = t->workers - 1;
    if (n->self != last) {
        int rc = trial_update(n, "x", 0, (size_t)t->arg, time_in(n, 30));
        if (rc == OK)
            rc = trial_rendezvous(n);
        return rc == OK ? trial_until(n, &t->sheet[0], 1) : rc;
    }
    TRIAL_CHECK(trial_rendezvous(n) == OK);
    int64_t begun = world_now(n->world);
    int rc = trial_get(n, "x", 1, (size_t)t->arg, time_in(n, 30));
    t->time[0] = world_now(n->world) - begun;
    t->sheet[0] = 1;
    return rc == 1 ? OK : rc;
}

/* At each message that a holder hands to the world, pieces among them. */
static void test_a_holder_dies_at_each_message(void **state)
{
    (void)state;
    struct trial whole = {
        .cluster = LAN, .workers = 3, .members = 3, .arg = 5 * MB, .play = play_read};
    run_trial(&whole, no_members);
    uint32_t runs = 0, in_the_middle = 0;
    for (uint64_t k = 1; k <= whole.sent[0]; k += STRIDE, runs++) {
        struct trial t = {.cluster = LAN,
                          .workers = 3,
                          .members = 3,
                          .arg = 5 * MB,
                          .kill_send = k,
                          .play = play_read};
        run_trial(&t, trial_set(0));
        in_the_middle += strstr(t.log, "node 0 peer lost") != NULL;
    }
    print_message("%u runs, the holder is lost in the middle of %u\n", runs, in_the_middle);
    assert_true(in_the_middle * STRIDE >= 5);
}

/* And at each moment: with two others, and when all die one after another. */
static int play_left(struct trial *t, struct trial_node *n)
{
    const struct kv_want want = {"x", 1, false, time_in(n, 30)};
    struct kv_value *value;
    if (n->self < 2)
        return play_read(t, n);
    TRIAL_CHECK(trial_rendezvous(n) == OK);
    int rc = kv_get(&n->kv, &want, &value, n->err);
    t->sheet[0] = 1;
    if (rc == ERR_NOT_FOUND)
        return message_has(n, "key 'x', version 1: no member holds it") ? OK : rc;
    TRIAL_CHECK(rc == OK && trial_whole(value, "x", (size_t)t->arg));
    kv_value_unref(value);
    return OK;
}

/* A patient reader waits for the rest, and the error in the end names the missing value. */
static int play_patient(struct trial *t, struct trial_node *n)
{
    int rc = play_read(t, n);
    if (n->self < 2)
        return rc;
    TRIAL_CHECK(rc == ERR_TIMEOUT && message_has(n, "no member holds it any more;"));
    return message_has(n, "of 5000000 bytes had arrived") ? OK : rc;
}

static void test_who_is_patient_waits_until_the_deadline(void **state)
{
    (void)state;
    struct trial t = {.cluster = "node { count: 8 } link { mbit: 100 latency_us: 100 } "
                                 "fault { at: 0.3 kill: 0 } fault { at: 0.3 kill: 1 }",
                      .workers = 3,
                      .members = 3,
                      .arg = 5 * MB,
                      .play = play_patient};
    struct members dead = trial_set(0);
    members_add(&dead, 1);
    run_trial(&t, dead);
    assert_true(t.time[0] == 30 * WORLD_SECOND);
}

static void test_all_holders_die(void **state)
{
    (void)state;
    uint32_t found = 0, lost = 0;
    for (int k = 0; k < 40; k += STRIDE) {
        char cluster[256];
        snprintf(cluster, sizeof cluster,
                 "node { count: 8 } link { mbit: 100 latency_us: 100 } fault { at: %.3f kill: 0 } "
                 "fault { at: %.3f kill: 1 }",
                 0.05 + 0.01 * k, 0.08 + 0.013 * k);
        struct trial t = {
            .cluster = cluster, .workers = 3, .members = 3, .arg = 5 * MB, .play = play_left};
        trial_run(&t);
        if (t.rc[2] != OK)
            fail_msg("%s: %d %s", cluster, t.rc[2], t.err[2].text);
        found += t.err[2].status == OK;
        lost += t.err[2].status == ERR_NOT_FOUND;
    }
    print_message("all holders die: %u gets end well, %u say that no member holds it any more\n",
                  found, lost);
    assert_true(found > 0 && lost > 0);
}

/* The last holder dies when the reader has all but its registration: the reader is the only
 * holder. */
static void test_the_value_outlives_who_made_it(void **state)
{
    (void)state;
    struct trial t = {.cluster = LAN "fault { at: 0.2 kill: 0 }",
                      .workers = 2,
                      .members = 2,
                      .arg = MB,
                      .play = play_read};
    run_trial(&t, trial_set(0));
    assert_int_equal(t.rc[1], OK);
}

/* ---- holders hang, links are cut ---- */

static void expect_within(const char *cluster, double seconds, const char *log)
{
    struct trial t = {.cluster = cluster,
                      .workers = 4,
                      .members = 3,
                      .arg = 10 * MB,
                      .options = {.slow = WORLD_SECOND},
                      .play = play_read};
    run_trial(&t, no_members);
    if (world_seconds(t.time[0]) > seconds || (log && !strstr(t.log, log)))
        fail_msg("%.3f s, not %.3f:\n%s", world_seconds(t.time[0]), seconds, t.log);
}

static void test_who_is_slow_or_cut_off_is_passed_by(void **state)
{
    (void)state;
    expect_within(LAN, 0.085, NULL);
    /* All of its pieces arrive half a minute late, when no reader waits for them. */
    expect_within(LAN "delay { from: 0 to: 3 tag: \"kv_piece\" seconds: 25 }", 0.1, NULL);
    /* It hears nothing; one other has nearly no link. */
    expect_within(LAN "delay { from: 3 to: 1 tag: \"kv_fetch\" seconds: 28 } "
                      "fault { at: 0 clog: 2 factor: 1000 }",
                  0.1, NULL);
    /* All pieces take two seconds. Holders are given up after one, then after two, and then waited
     * for: 39 pieces in two windows of 24. */
    expect_within(LAN "delay { to: 3 tag: \"kv_piece\" seconds: 2 }", 1 + 2 + 2 * 2 + 0.25,
                  "does not answer");
}

/* A clog in the middle, and its end. */
static void test_links_clog_and_clear(void **state)
{
    (void)state;
    expect_within(LAN "fault { at: 0.03 clog: 0 factor: 500 for: 5 } "
                      "fault { at: 0.05 clog: 1 factor: 500 for: 5 }",
                  0.2, NULL);
}

/* ---- the master is slow ---- */

static int play_slow_master(struct trial *t, struct trial_node *n)
{
    (void)t;
    if (n->self == 0) {
        TRIAL_CHECK(trial_update(n, "x", 0, 100, time_in(n, 1)) == ERR_TIMEOUT);
        TRIAL_CHECK(message_has(n, "key 'x', version 1: the master has not answered in time"));
        TRIAL_CHECK(trial_update(n, "y", 0, 151, time_in(n, 5)) == ERR_FULL); /* with x */
        TRIAL_CHECK(message_has(n, "151 bytes have no room here: 100 of 250 are taken"));
        TRIAL_CHECK(trial_update(n, "y", 0, 100, time_in(n, 5)) == OK);
        TRIAL_CHECK(trial_get(n, "x", 1, 100, time_in(n, 1)) == 1); /* it has succeeded */
        TRIAL_CHECK(n->kv.store.bytes == 200 && n->kv.coming == 0);
    } else {
        TRIAL_CHECK(trial_get(n, "x", 1, 100, time_in(n, 1)) == ERR_TIMEOUT);
        TRIAL_CHECK(message_has(n, "version 1: the master named no holder in time"));
        TRIAL_CHECK(trial_get(n, "x", 1, 100, time_in(n, 5)) == 1);
    }
    return trial_rendezvous(n);
}

static void test_a_slow_master_is_waited_for_until_the_deadline(void **state)
{
    (void)state;
    struct trial t = {.cluster = LAN "delay { from: -1 tag: \"kv_reply\" seconds: 2 }",
                      .workers = 2,
                      .members = 2,
                      .options = {.bytes_max = 250},
                      .play = play_slow_master};
    run_trial(&t, no_members);
}

/* ---- joining, and a new master ---- */

/* Node 2 reads as a joiner; as a member it is a holder, from which node 3 reads after all others
 * are lost. */
static int play_join(struct trial *t, struct trial_node *n)
{
    if (n->self < 2) {
        TRIAL_CHECK(trial_update(n, "x", 6, 3 * MB, time_in(n, 1)) == OK);
        return trial_until(n, &t->sheet[0], 1);
    }
    if (n->self == 2) {
        TRIAL_CHECK(trial_get(n, "x", KV_NEWEST, 3 * MB, time_in(n, 1)) == 7);
        TRIAL_CHECK(members_count(&t->master->table.entry[0].holders) == 2);
        TRIAL_CHECK(trial_update(n, "x", 7, 10, time_in(n, 1)) == ERR_VIEW &&
                    message_has(n, "no member"));
        TRIAL_CHECK(group_wait_view(&n->group, 0, time_in(n, 5)) == OK);
        TRIAL_CHECK(world_sleep(n->world, time_in(n, 0.01)) == OK);
        TRIAL_CHECK(members_count(&t->master->table.entry[0].holders) == 3);
        t->sheet[0] = 1;
        return trial_until(n, &t->sheet[1], 1);
    }
    TRIAL_CHECK(trial_until(n, &t->sheet[0], 1) == OK);
    TRIAL_CHECK(world_sleep(n->world, time_in(n, 0.5)) == OK);
    TRIAL_CHECK(members_count(&t->master->table.entry[0].holders) == 1);
    TRIAL_CHECK(trial_get(n, "x", 7, 3 * MB, time_in(n, 5)) == 7);
    t->sheet[1] = 1;
    return OK;
}

static void test_a_joiner_holds_what_it_read_when_it_is_a_member(void **state)
{
    (void)state;
    struct trial t = {
        .cluster = LAN, .workers = 4, .members = 2, .join_at = WORLD_SECOND, .play = play_join};
    run_trial(&t, no_members);
}

/* A master without state takes over: nodes report their values to it, and waiting reads
 * continue. */
static int play_new_master(struct trial *t, struct trial_node *n)
{
    if (n->self == 0) {
        TRIAL_CHECK(trial_update(n, "x", 0, MB, time_in(n, 1)) == OK);
        TRIAL_CHECK(trial_update(n, "y", 3, 5, time_in(n, 1)) == OK);
    }
    if (n->self == 1) /* requested from the old one, answered by the new one */
        TRIAL_CHECK(trial_get(n, "late", 1, 9, time_in(n, 9)) == 1);
    TRIAL_CHECK(world_sleep(n->world, 2 * WORLD_SECOND) == OK);
    if (n->self == 2) {
        TRIAL_CHECK(t->master->table.count == 2 && t->master->table.waits == 1);
        TRIAL_CHECK(trial_get(n, "x", 1, MB, time_in(n, 1)) == 1);
        TRIAL_CHECK(trial_get(n, "y", KV_NEWEST, 5, time_in(n, 1)) == 4);
        TRIAL_CHECK(trial_update(n, "late", 0, 9, time_in(n, 1)) == OK);
    }
    t->sheet[n->self] = 1;
    for (int i = 0; i < 3; i++)
        TRIAL_CHECK(trial_until(n, &t->sheet[i], 1) == OK);
    return OK;
}

static void test_a_new_master_gets_all_reports(void **state)
{
    (void)state;
    struct trial t = {.cluster = LAN,
                      .workers = 3,
                      .members = 3,
                      .master_at = WORLD_SECOND,
                      .play = play_new_master};
    run_trial(&t, no_members);
}

/* ---- values that change while they are read ---- */

/* Two holders make a new version each 50 ms; a read takes 800. */
static int play_moving(struct trial *t, struct trial_node *n)
{
    for (uint64_t v = 0; n->self < 2 && v < 60; v++) {
        TRIAL_CHECK(trial_update(n, "x", v, 10 * MB, time_in(n, 1)) == OK);
        TRIAL_CHECK(world_sleep(n->world, (int64_t)(v + 1) * 50 * TRIAL_MS) == OK);
    }
    if (n->self == 2) {
        TRIAL_CHECK(world_sleep(n->world, WORLD_SECOND) == OK);
        int version = trial_get(n, "x", KV_NEWEST, 10 * MB, time_in(n, 10));
        TRIAL_CHECK(version >= 18 && version <= 25);
        TRIAL_CHECK(world_now(n->world) < 19 * WORLD_SECOND / 10);
    }
    t->sheet[n->self] = 1;
    for (int i = 0; i < 3; i++)
        TRIAL_CHECK(trial_until(n, &t->sheet[i], 1) == OK);
    TRIAL_CHECK(n->self == 2 || world_sleep(n->world, time_in(n, 6)) == OK);
    TRIAL_CHECK(n->kv.store.retirees == 0 || n->self == 2); /* no node reads it any more */
    return OK;
}

static void test_a_version_stays_for_who_is_reading_it(void **state)
{
    (void)state;
    struct trial t = {.cluster = "node { count: 3 } link { mbit: 100 latency_us: 100 }",
                      .workers = 3,
                      .members = 3,
                      .play = play_moving};
    run_trial(&t, no_members);
}

/* Node 1 makes version 5 while it reads version 6, and gets the confirmation of 5 after it has 6:
 * its versions do not decrease. */
static int play_overtaken(struct trial *t, struct trial_node *n)
{
    if (n->self == 0) {
        TRIAL_CHECK(trial_update(n, "x", 5, MB, time_in(n, 1)) == OK);
        return trial_until(n, &t->sheet[0], 1);
    }
    const struct kv_want want = {"x", 6, true, time_in(n, 9)};
    struct kv_call *call;
    struct kv_value *value;
    uint64_t have = 0, size = 0;
    TRIAL_CHECK(kv_begin(&n->kv, &want, &call, n->err) == OK);
    for (; size == 0; kv_progress(call, &have, &size))
        TRIAL_CHECK(world_sleep(n->world, time_in(n, 0.001)) == OK);
    TRIAL_CHECK(have < size && trial_update(n, "x", 4, 10, time_in(n, 9)) == OK);
    TRIAL_CHECK(kv_finish(call, time_in(n, 0), &value, n->err) ==
                OK); /* it has been here for long */
    TRIAL_CHECK(kv_store_find(&n->kv.store, "x")->value == value);
    TRIAL_CHECK(t->master->table.count == 1 && n->kv.calls == NULL);
    kv_value_unref(value);
    kv_end(call);
    t->sheet[0] = 1;
    return OK;
}

static void test_an_update_is_overtaken_by_a_newer_version(void **state)
{
    (void)state;
    struct trial t = {.cluster = "node { count: 2 } link { mbit: 100 latency_us: 100 } "
                                 "delay { from: -1 to: 1 tag: \"kv_reply\" seconds: 2 nth: 2 }",
                      .workers = 2,
                      .members = 2,
                      .play = play_overtaken};
    run_trial(&t, no_members);
}

/* ---- what is wrong ---- */

/* Each piece of node 0's copy is damaged, after the master has received its checksum. */
static int play_liar(struct trial *t, struct trial_node *n)
{
    if (n->self < t->workers - 1)
        TRIAL_CHECK(trial_update(n, "x", 0, 2 * MB, time_in(n, 1)) == OK);
    for (size_t i = 0; n->self == 0 && i < 2 * MB; i += KV_PIECE)
        kv_store_find(&n->kv.store, "x")->value->data[i + 7] ^= 1;
    TRIAL_CHECK(trial_rendezvous(n) == OK);
    if (n->self < t->workers - 1)
        return trial_until(n, &t->sheet[0], 1);
    int rc = trial_get(n, "x", 1, 2 * MB, time_in(n, 5));
    t->sheet[0] = 1;
    if (t->workers > 2)
        return rc == 1 ? OK : rc;
    TRIAL_CHECK(rc == ERR_PROTOCOL);
    TRIAL_CHECK(
        message_has(n, "key 'x', version 1: the value of node 0 does not have the checksum"));
    TRIAL_CHECK(kv_store_find(&n->kv.store, "x") == NULL);
    return OK;
}

static void test_what_has_not_the_checksum_is_not_taken(void **state)
{
    (void)state;
    for (uint32_t workers = 2; workers <= 5; workers++) {
        struct trial t = {
            .cluster = LAN, .workers = workers, .members = workers, .play = play_liar};
        run_trial(&t, no_members);
        assert_non_null(
            strstr(t.log, workers > 2 ? "pieces of several holders" : "the value of node 0"));
    }
}

/* Node 1 sends every kind of message with invalid contents to all, while others work. Kinds that it
 * may not send, and lengths that a kind has not, reach no code of the store (wire_rules.h). */
static int post_noise(struct trial_node *n, uint64_t i)
{
    static const enum wire_kind kinds[] = {WIRE_KV_REQUEST, WIRE_KV_FETCH, WIRE_KV_PIECE,
                                           WIRE_KV_GONE};
    uint64_t r = rng_u64(n->trial->seed, 3, i);
    enum wire_kind kind = kinds[(r >> 16) % 4];
    uint8_t bytes[200];
    size_t len = kind == WIRE_KV_GONE ? 1 : r % sizeof bytes;
    for (size_t k = 0; k < len; k++)
        bytes[k] = (uint8_t)rng_below(n->trial->seed, 4 + k, i, k < 10 || r % 2 ? 8 : 256);
    bool driver = kind == WIRE_KV_REQUEST || (r >> 8 & 1) != 0;
    uint32_t to = driver ? WORLD_DRIVER : 2 * (uint32_t)(r >> 9 & 1);
    return wire_send(n->world, to, wire_tag(kind, 0, r >> 20 & 63, 0), bytes, len);
}

static int play_noise(struct trial *t, struct trial_node *n)
{
    if (n->self == 1) {
        for (uint64_t i = 0; i < 3000 && !t->sheet[0]; i++) {
            TRIAL_CHECK(post_noise(n, i) == OK);
            TRIAL_CHECK(world_sleep(n->world, time_in(n, 0.0001)) == OK);
        }
        return trial_until(n, &t->sheet[0], 1);
    }
    for (uint64_t v = 0; v < 20; v++) {
        if (n->self == 0)
            TRIAL_CHECK(trial_update(n, "x", v, 700 * 1000, time_in(n, 1)) == OK);
        else
            TRIAL_CHECK(trial_get(n, "x", v + 1, 700 * 1000, time_in(n, 5)) == (int)v + 1);
        t->sheet[10 + n->self] = v + 1;
        TRIAL_CHECK(trial_until(n, &t->sheet[12], v + 1) == OK);
    }
    t->sheet[0] = 1;
    return OK;
}

static void test_nonsense_stops_no_node(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct trial t = {
            .cluster = LAN, .workers = 3, .members = 3, .seed = seed, .play = play_noise};
        run_trial(&t, no_members);
    }
}

/* ---- storms ---- */

enum { STORM_STEPS = 60, STORM_KEYS = 3 };

static const char *const storm_keys[STORM_KEYS] = {"x", "v", "s"};

static size_t storm_size(int key, uint64_t version)
{
    return (size_t)(key * 400 * 1000 + (int)(version % 5) * 1000 + 1);
}

/* The errors that may occur, and no others. */
static int storm_step(struct trial_node *n, uint64_t i)
{
    struct trial *t = n->trial;
    uint64_t r = rng_u64(t->seed, 100 + n->self, i);
    int key = (int)(r % STORM_KEYS), rc = OK;
    struct kv_copy *copy = kv_store_find(&n->kv.store, storm_keys[key]);
    uint64_t state = copy ? copy->value->meta.version : t->sheet[key];
    const struct kv_want want = {storm_keys[key], KV_NEWEST, false, time_in(n, 3)};
    struct kv_value *value;
    struct kv_call *call;
    switch (r >> 8 & 7) {
    case 0:
    case 1:
    case 2:
        rc = trial_update(n, storm_keys[key], state, storm_size(key, state + 1), time_in(n, 3));
        t->sheet[key] = state + 1 > t->sheet[key] ? state + 1 : t->sheet[key];
        return rc == OK || rc == ERR_USAGE ? OK : rc;
    case 3:
        rc = kv_withdraw(&n->kv, storm_keys[key], n->err);
        return rc == OK || rc == ERR_NOT_FOUND ? OK : rc;
    case 4:
        TRIAL_CHECK(kv_begin(&n->kv, &want, &call, n->err) == OK);
        rc = kv_finish(call, time_in(n, 0.001 * (double)(r >> 16 & 7)), &value, n->err);
        kv_end(call);
        break;
    default: rc = kv_get(&n->kv, &want, &value, n->err);
    }
    if (rc != OK)
        return rc == ERR_NOT_FOUND || rc == ERR_TIMEOUT ? OK : rc;
    uint64_t version = value->meta.version;
    bool whole = trial_whole(value, storm_keys[key], storm_size(key, version));
    kv_value_unref(value);
    TRIAL_CHECK(whole && version <= t->sheet[key] + 1);
    return OK;
}

/* The master's table equals the nodes' values. */
static int storm_compare(struct trial *t)
{
    const struct kv_table *table = &t->master->table;
    size_t copies = 0, holders = 0;
    for (uint32_t node = 0; node < t->workers; node++)
        copies += t->kv[node] ? t->kv[node]->store.count : 0;
    for (size_t i = 0; i < table->count; i++)
        for (uint32_t node = 0; node < t->workers; node++) {
            if (!members_has(&table->entry[i].holders, node))
                continue;
            TRIAL_CHECK(t->kv[node]);
            struct kv_copy *copy = kv_store_find(&t->kv[node]->store, table->entry[i].key);
            TRIAL_CHECK(copy && copy->value->meta.version == table->entry[i].meta.version);
            TRIAL_CHECK(copy->value->meta.checksum == table->entry[i].meta.checksum);
            holders++;
        }
    TRIAL_CHECK(copies == holders && table->waits == 0);
    return OK;
}

static int play_storm(struct trial *t, struct trial_node *n)
{
    for (uint64_t i = 0; i < STORM_STEPS; i++) {
        int rc = storm_step(n, i);
        if (rc != OK)
            return rc;
        rc = world_sleep(n->world, time_in(n, 1e-5 * (double)rng_below(t->seed, n->self, i, 2000)));
        if (rc != OK)
            return rc;
    }
    TRIAL_CHECK(trial_rendezvous(n) == OK);
    TRIAL_CHECK(world_sleep(n->world, time_in(n, 5)) == OK);
    int rc = storm_compare(t);
    TRIAL_CHECK(world_sleep(n->world, time_in(n, 1)) == OK);
    return rc;
}

static void run_storm(uint64_t seed, const char *cluster, struct members dead,
                      enum sim_backend backend, struct trial *t)
{
    *t = (struct trial){.cluster = cluster,
                        .workers = 5,
                        .members = 5,
                        .seed = seed,
                        .backend = backend,
                        .options = {.drain = WORLD_SECOND, .slow = WORLD_SECOND / 2},
                        .play = play_storm};
    run_trial(t, dead);
}

static void test_kv_storms(void **state)
{
    (void)state;
    static const char lossy[] =
        "node { count: 5 } link { mbit: 200 latency_us: 500 loss: 0.01 } "
        "delay { from: 1 to: 0 seconds: 0.3 nth: 15 } fault { at: 0.1 clog: 1 factor: 20 for: 1 }";
    static const char deadly[] = "node { count: 5 } link { mbit: 500 latency_us: 200 } "
                                 "fault { at: 0.3 kill: 4 } fault { at: 0.5 kill: 3 }";
    struct trial *t = malloc(sizeof *t);
    struct members dead = trial_set(3);
    members_add(&dead, 4);
    assert_non_null(t);
    for (uint64_t seed = 1; seed <= 60; seed += STRIDE) {
        bool deaths = seed % 2 == 0;
        run_storm(seed, deaths ? deadly : lossy, deaths ? dead : no_members, SIM_FIBRES, t);
        uint64_t trace = t->outcome.trace;
        if (seed % 10 < 2) {
            run_storm(seed, deaths ? deadly : lossy, deaths ? dead : no_members, SIM_BATON, t);
            assert_true(t->outcome.trace == trace);
        }
    }
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_holder_dies_at_each_message),
        cmocka_unit_test(test_all_holders_die),
        cmocka_unit_test(test_who_is_patient_waits_until_the_deadline),
        cmocka_unit_test(test_the_value_outlives_who_made_it),
        cmocka_unit_test(test_who_is_slow_or_cut_off_is_passed_by),
        cmocka_unit_test(test_links_clog_and_clear),
        cmocka_unit_test(test_a_slow_master_is_waited_for_until_the_deadline),
        cmocka_unit_test(test_a_joiner_holds_what_it_read_when_it_is_a_member),
        cmocka_unit_test(test_a_new_master_gets_all_reports),
        cmocka_unit_test(test_a_version_stays_for_who_is_reading_it),
        cmocka_unit_test(test_an_update_is_overtaken_by_a_newer_version),
        cmocka_unit_test(test_what_has_not_the_checksum_is_not_taken),
        cmocka_unit_test(test_nonsense_stops_no_node),
        cmocka_unit_test(test_kv_storms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
