/* The master's table against a trivially simple model: holders in arrays. Every event in every
 * reachable state, for any order of events that leads there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "kv/kv_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = 3, KEYS = 2, VERSIONS = 2, VALUES = 2, WAIT = 77, NO_REPLY = 100 };

static const char *const keys[KEYS] = {"x", "v"};

/* Two values of different length, and two of one length. */
static struct kv_meta meta_of(int key, int version, int value)
{
    return (struct kv_meta){.version = (uint64_t)version,
                            .size = key == 0 ? 100 + (uint64_t)value : 100,
                            .checksum = 0xabc0 + (uint64_t)(version * 10 + value)};
}

/* ---- the model ---- */

struct model {
    uint8_t version[NODES][KEYS], value[NODES][KEYS]; /* version 0: holds none */
    uint8_t in[NODES];
    uint8_t waits; /* node 2, for any version of key 0 */
};

struct event {
    enum kv_event_kind kind;
    int node, key, version, value; /* version 3: the newest */
    bool patient;
};

static bool has_holder(const struct model *m, int key, int version, int *value)
{
    for (int n = 0; n < NODES; n++)
        if (m->version[n][key] == version && version > 0) {
            *value = m->value[n][key];
            return true;
        }
    return false;
}

static int newest_version(const struct model *m, int key)
{
    int best = 0;
    for (int n = 0; n < NODES; n++)
        best = m->version[n][key] > best ? m->version[n][key] : best;
    return best;
}

static bool equal_meta(struct kv_meta a, struct kv_meta b)
{
    return a.version == b.version && a.size == b.size && a.checksum == b.checksum;
}

/* FOUND, and only true locations, none of them the reader's; one if there is one. */
static void expect_found(const struct model *m, const struct kv_order *o, int node, int key,
                         uint64_t request)
{
    int version = (int)o->meta.version, value = -1, others = 0;
    assert_int_equal(o->kind, KV_FOUND);
    assert_int_equal(o->node, node);
    assert_int_equal(o->request, request);
    assert_true(has_holder(m, key, version, &value));
    assert_true(equal_meta(o->meta, meta_of(key, version, value)));
    for (int n = 0; n < NODES; n++)
        others += n != node && m->version[n][key] == version;
    assert_int_equal(o->count, others);
    for (uint32_t i = 0; i < o->count; i++) {
        assert_true(o->location[i] < NODES && (int)o->location[i] != node);
        assert_int_equal(m->version[o->location[i]][key], version);
        for (uint32_t j = 0; j < i; j++)
            assert_true(o->location[i] != o->location[j]);
    }
}

static void expect_refused(const struct kv_orders *out, int status, const char *part)
{
    assert_int_equal(out->count, 1);
    assert_int_equal(out->at[0].kind, KV_REFUSED);
    assert_int_equal(out->refusal.status, status);
    if (!strstr(out->refusal.text, part))
        fail_msg("'%s' does not say '%s'", out->refusal.text, part);
}

/* The conflicting node, by name and checksum. */
static void expect_conflict(const struct model *m, const struct event *e,
                            const struct kv_orders *out)
{
    char part[96];
    int value = 0;
    has_holder(m, e->key, e->version, &value);
    snprintf(part, sizeof part, "key '%s', version %d: node %d has", keys[e->key], e->version,
             e->node);
    expect_refused(out, ERR_REPLICAS, part);
    for (int i = 0; i < VALUES; i++) {
        snprintf(part, sizeof part, "%016x", (unsigned)meta_of(e->key, e->version, i).checksum);
        assert_non_null(strstr(out->refusal.text, part));
    }
    for (int n = 0; n < NODES; n++)
        if (m->version[n][e->key] == e->version) {
            snprintf(part, sizeof part, ", node %d has", n);
            assert_non_null(strstr(out->refusal.text, part));
            return;
        }
}

static void model_hold(struct model *m, const struct event *e, const struct kv_orders *out)
{
    int value = -1;
    if (!m->in[e->node]) {
        expect_refused(out, ERR_VIEW, "is no member");
    } else if (m->version[e->node][e->key] > e->version) {
        expect_refused(out, ERR_USAGE, "would fall back");
    } else if (has_holder(m, e->key, e->version, &value) && value != e->value) {
        expect_conflict(m, e, out);
    } else {
        m->version[e->node][e->key] = (uint8_t)e->version;
        m->value[e->node][e->key] = (uint8_t)e->value;
        bool replied = m->waits && e->key == 0;
        assert_int_equal(out->count, replied ? 2 : 1);
        assert_int_equal(out->at[0].kind, KV_HELD);
        assert_int_equal(out->at[0].node, e->node);
        if (replied)
            expect_found(m, &out->at[1], 2, 0, WAIT);
        m->waits &= (uint8_t)!replied;
    }
}

static void model_find(struct model *m, const struct event *e, const struct kv_orders *out)
{
    int value, version = e->version == 3 ? newest_version(m, e->key) : e->version;
    if (has_holder(m, e->key, version, &value)) {
        assert_int_equal(out->count, 1);
        assert_int_equal(out->at[0].meta.version, version);
        expect_found(m, &out->at[0], e->node, e->key, e->patient ? WAIT : 5);
    } else if (e->patient) {
        assert_int_equal(out->count, 0);
        m->waits = 1;
    } else {
        assert_int_equal(out->count, 1);
        assert_int_equal(out->at[0].kind, KV_NONE);
    }
}

static void model_drop(struct model *m, int node, int key)
{
    m->version[node][key] = m->value[node][key] = 0;
}

static void model_step(struct model *m, const struct event *e, const struct kv_orders *out)
{
    switch (e->kind) {
    case KV_HOLD: model_hold(m, e, out); return;
    case KV_FIND: model_find(m, e, out); return;
    case KV_DROP:
        if (m->version[e->node][e->key] == e->version)
            model_drop(m, e->node, e->key);
        break;
    case KV_FORGET: m->waits = 0; break;
    case KV_MEMBERS: /* it dies, or returns with nothing */
        m->in[e->node] = !m->in[e->node];
        if (m->in[e->node])
            break;
        /* fall through */
    case KV_LEAVE:
        for (int k = 0; k < KEYS; k++)
            model_drop(m, e->node, k);
        m->waits &= (uint8_t)(e->node != 2);
    }
    assert_int_equal(out->count, 0);
}

/* ---- the book ---- */

static void table_step(struct kv_table *table, const struct model *before, const struct event *e,
                       struct kv_orders *out)
{
    struct members in = {{0}};
    for (int n = 0; n < NODES; n++)
        if (before->in[n] != (e->kind == KV_MEMBERS && n == e->node))
            members_add(&in, (uint32_t)n);
    struct kv_event event = {.kind = e->kind,
                             .node = (uint32_t)e->node,
                             .request = e->patient || e->kind == KV_FORGET ? WAIT : 5,
                             .members = &in,
                             .key = keys[e->key],
                             .meta = meta_of(e->key, e->version, e->value),
                             .patient = e->patient};
    if (e->version == 3)
        event.meta.version = KV_NEWEST;
    assert_int_equal(kv_table_step(table, &event, out), OK);
}

/* The table equals the model: each entry once, with exactly its holders and never none. */
static void compare_tables(const struct kv_table *table, const struct model *m)
{
    size_t holders = 0, held = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct kv_entry *e = &table->entry[i];
        int key = strcmp(e->key, keys[0]) == 0 ? 0 : 1;
        assert_true(members_count(&e->holders) > 0);
        for (int n = 0; n < NODES; n++) {
            bool has = members_has(&e->holders, (uint32_t)n);
            holders += has;
            assert_true(has == (m->version[n][key] == e->meta.version));
            assert_true(!has || m->in[n]);
            assert_true(!has ||
                        equal_meta(e->meta, meta_of(key, m->version[n][key], m->value[n][key])));
        }
        for (size_t j = 0; j < i; j++)
            assert_true(strcmp(e->key, table->entry[j].key) != 0 ||
                        e->meta.version != table->entry[j].meta.version);
    }
    for (int n = 0; n < NODES; n++)
        for (int k = 0; k < KEYS; k++)
            held += m->version[n][k] > 0;
    assert_int_equal(holders, held);
    assert_int_equal(table->waits, m->waits);
}

static struct kv_table table_copy(const struct kv_table *table)
{
    struct kv_table copy = *table;
    copy.room = table->count;
    copy.waits_room = table->waits;
    copy.entry = malloc(copy.room * sizeof *copy.entry + 1);
    copy.wait = malloc(copy.waits_room * sizeof *copy.wait + 1);
    assert_true(copy.entry && copy.wait);
    if (copy.room)
        memcpy(copy.entry, table->entry, copy.room * sizeof *copy.entry);
    if (copy.waits_room)
        memcpy(copy.wait, table->wait, copy.waits_room * sizeof *copy.wait);
    return copy;
}

/* ---- all events ---- */

enum { EVENTS_MAX = 80 };

static int all_events(struct event *out)
{
    int n = 0;
    for (int node = 0; node < NODES; node++) {
        for (int key = 0; key < KEYS; key++)
            for (int version = 1; version <= VERSIONS + 1; version++) {
                out[n++] = (struct event){KV_FIND, node, key, version, 0, false};
                for (int value = 0; value < VALUES && version <= VERSIONS; value++)
                    out[n++] = (struct event){KV_HOLD, node, key, version, value, false};
                if (version <= VERSIONS)
                    out[n++] = (struct event){KV_DROP, node, key, version, 0, false};
            }
        out[n++] = (struct event){KV_LEAVE, node, 0, 0, 0, false};
        out[n++] = (struct event){KV_MEMBERS, node, 0, 0, 0, false};
    }
    out[n++] = (struct event){KV_FORGET, 2, 0, 0, 0, false};
    assert_true(n < EVENTS_MAX);
    return n;
}

static const struct event patient = {KV_FIND, 2, 0, 3, 0, true};

static int events_in(const struct model *m, struct event *out)
{
    int n = all_events(out);
    if (!m->waits) /* one at a time */
        out[n++] = patient;
    return n;
}

/* A number for each state: five for what a node has of a key. */
static uint32_t number_of(const struct model *m)
{
    uint32_t number = m->waits;
    for (int n = 0; n < NODES; n++) {
        number = number * 2 + m->in[n];
        for (int k = 0; k < KEYS; k++)
            number = number * 5 +
                     (m->version[n][k] ? (uint32_t)(m->version[n][k] * 2 - 1 + m->value[n][k]) : 0);
    }
    return number;
}

enum { STATES = 2 * 50 * 50 * 50 };

struct state {
    struct model model;
    struct kv_table table;
};

static struct kv_orders out;

static void test_kv_table_every_event_in_every_state(void **unused)
{
    (void)unused;
    struct state *queue = calloc(STATES, sizeof *queue);
    uint8_t *seen = calloc(STATES, 1);
    size_t count = 1, steps = 0, conflicts = 0;
    assert_true(queue && seen);
    seen[number_of(&queue[0].model)] = 1;
    for (size_t i = 0; i < count; i++) {
        struct event event[EVENTS_MAX];
        int events = events_in(&queue[i].model, event);
        for (int e = 0; e < events; e++, steps++) {
            struct state next = {queue[i].model, table_copy(&queue[i].table)};
            table_step(&next.table, &next.model, &event[e], &out);
            conflicts += out.refusal.status == ERR_REPLICAS;
            model_step(&next.model, &event[e], &out);
            compare_tables(&next.table, &next.model);
            uint32_t number = number_of(&next.model);
            if (seen[number]) {
                kv_table_release(&next.table);
                continue;
            }
            seen[number] = 1;
            queue[count++] = next;
        }
        kv_table_release(&queue[i].table);
    }
    print_message("%zu states, %zu steps, %zu conflicts named\n", count, steps, conflicts);
    /* By hand. With i members a key has f(i) = 1, 5, 21, 77 states: each holds nothing, version 1
     * or version 2, of two values each, once there is a holder. Σ C(3, i) f(i)² = 7328; and node 2
     * waits where nobody has key 0, whatever key 1 is: Σ C(3, i) f(i) = 156. */
    assert_int_equal(count, 7328 + 156);
    assert_true(conflicts > 0);
    free(queue);
    free(seen);
}

/* The same without taking states together: all sequences of three events, from all members in. */
static void walk_sequences(const struct kv_table *table, const struct model *m, int depth,
                           size_t *leaves)
{
    struct event event[EVENTS_MAX];
    int events = events_in(m, event);
    if (depth == 0 && ++*leaves)
        return;
    for (int e = 0; e < events; e++) {
        struct kv_table next = table_copy(table);
        struct model model = *m;
        table_step(&next, &model, &event[e], &out);
        model_step(&model, &event[e], &out);
        compare_tables(&next, &model);
        walk_sequences(&next, &model, depth - 1, leaves);
        kv_table_release(&next);
    }
}

static void begin_walk(struct kv_table *table, struct model *m)
{
    *m = (struct model){0};
    kv_table_init(table);
    for (int n = 0; n < NODES; n++) {
        const struct event in = {KV_MEMBERS, n, 0, 0, 0, false};
        table_step(table, m, &in, &out);
        model_step(m, &in, &out);
    }
}

static void test_kv_table_all_orders_of_three_events(void **unused)
{
    (void)unused;
    struct kv_table table;
    struct model m;
    size_t leaves = 0;
    begin_walk(&table, &m);
    walk_sequences(&table, &m, 3, &leaves);
    assert_true(leaves > 50 * 50 * 50);
    kv_table_release(&table);
}

static void test_kv_table_random_walks(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct kv_table table;
        struct model m;
        begin_walk(&table, &m);
        for (uint64_t i = 0; i < 5000; i++) {
            struct event event[EVENTS_MAX];
            uint64_t n = (uint64_t)events_in(&m, event);
            const struct event *e = &event[rng_below(seed, 1, i, n)];
            table_step(&table, &m, e, &out);
            model_step(&m, e, &out);
            compare_tables(&table, &m);
        }
        kv_table_release(&table);
    }
}

/* ---- bounds ---- */

static void members_all(struct kv_table *table, uint32_t n)
{
    struct members in = {{0}};
    for (uint32_t i = 0; i < n; i++)
        members_add(&in, i);
    const struct kv_event event = {.kind = KV_MEMBERS, .members = &in};
    assert_int_equal(kv_table_step(table, &event, &out), OK);
}

static int hold_value(struct kv_table *table, uint32_t node, const char *key, uint64_t version,
                      uint64_t size)
{
    const struct kv_event event = {
        .kind = KV_HOLD, .node = node, .key = key, .meta = {version, size, 1}};
    assert_int_equal(kv_table_step(table, &event, &out), OK);
    assert_true(out.count >= 1);
    return out.at[0].kind == KV_HELD ? OK : out.refusal.status;
}

static int find_value(struct kv_table *table, uint32_t node, const char *key, uint64_t version,
                      uint64_t request)
{
    const struct kv_event event = {.kind = KV_FIND,
                                   .node = node,
                                   .key = key,
                                   .request = request,
                                   .meta = {.version = version},
                                   .patient = request > 0};
    assert_int_equal(kv_table_step(table, &event, &out), OK);
    return out.count == 0 ? NO_REPLY : (int)out.at[0].kind;
}

static void test_kv_table_bounds(void **unused)
{
    (void)unused;
    struct kv_table table;
    char key[32];
    kv_table_init(&table);
    members_all(&table, 2);
    assert_int_equal(hold_value(&table, 0, "a", 0, 1), ERR_USAGE);
    assert_int_equal(hold_value(&table, 0, "a", KV_NEWEST, 1), ERR_USAGE);
    assert_int_equal(hold_value(&table, 0, "a", 1, KV_VALUE_MAX + 1), ERR_USAGE);
    assert_int_equal(hold_value(&table, 0, "k0", 1, KV_VALUE_MAX), OK);
    for (int i = 1; i < KV_ENTRIES_MAX; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(hold_value(&table, 0, key, KV_VERSION_MAX - 1, 1), OK);
    }
    assert_int_equal(hold_value(&table, 0, "more", 1, 1), ERR_FULL);
    assert_int_equal(hold_value(&table, 1, "k7", KV_VERSION_MAX - 1, 1), OK); /* another holder */
    assert_int_equal(hold_value(&table, 0, "k7", KV_VERSION_MAX, 1),
                     ERR_FULL); /* both would be there */
    /* replaces its own version */
    assert_int_equal(hold_value(&table, 0, "k8", KV_VERSION_MAX, 1), OK);
    assert_int_equal(table.count, KV_ENTRIES_MAX);
    members_all(&table, 1);
    assert_int_equal(table.count, KV_ENTRIES_MAX);
    members_all(&table, 0);
    assert_int_equal(table.count, 0);
    kv_table_release(&table);
}

static void test_kv_table_waiting_requests_are_bounded(void **unused)
{
    (void)unused;
    struct kv_table table;
    kv_table_init(&table);
    members_all(&table, 2);
    assert_int_equal(find_value(&table, 9, "w", 1, 1), NO_REPLY); /* no member: a joiner */
    for (uint64_t i = 1; i < KV_WAITS_MAX; i++)
        assert_int_equal(find_value(&table, 0, "w", KV_NEWEST, i), NO_REPLY);
    assert_int_equal(find_value(&table, 1, "w", 1, 1), NO_REPLY); /* in place of node 9's */
    assert_int_equal(find_value(&table, 1, "w", 1, 2), (int)KV_REFUSED);
    assert_int_equal(out.refusal.status, ERR_FULL);
    assert_int_equal(hold_value(&table, 0, "w", 1, 1), OK);
    assert_int_equal(out.count, KV_WAITS_MAX + 1); /* all are informed */
    assert_int_equal(table.waits, 0);
    kv_table_release(&table);
}

/* Eight at a time of twenty, until all have had their turn. */
static void test_readers_are_spread_over_holders(void **unused)
{
    (void)unused;
    struct kv_table table;
    int named[20] = {0};
    kv_table_init(&table);
    members_all(&table, 20);
    for (uint32_t n = 0; n < 20; n++)
        assert_int_equal(hold_value(&table, n, "x", 7, 4), OK);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(find_value(&table, 500, "x", KV_NEWEST, 0), (int)KV_FOUND);
        assert_int_equal(out.at[0].count, KV_LOCATIONS);
        for (int k = 0; k < KV_LOCATIONS; k++)
            named[out.at[0].location[k]]++;
    }
    for (int n = 0; n < 20; n++)
        assert_int_equal(named[n], 2); /* 5 · 8 / 20 */
    kv_table_release(&table);
}

static void test_keys_are_words(void **unused)
{
    (void)unused;
    char longest[KV_KEY_MAX + 2];
    struct err err;
    memset(longest, 'k', sizeof longest);
    longest[KV_KEY_MAX + 1] = '\0';
    assert_int_equal(kv_key_check(longest, ERR_USAGE, &err), ERR_USAGE);
    longest[KV_KEY_MAX] = '\0';
    assert_int_equal(kv_key_check(longest, ERR_USAGE, &err), OK);
    assert_int_equal(kv_key_check("joint/conv1.weight", ERR_USAGE, &err), OK);
    static const char *const bad[] = {"", "a b", "a\n", "\x7f", "caf\xc3\xa9"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(kv_key_check(bad[i], ERR_PROTOCOL, &err), ERR_PROTOCOL);
    assert_int_equal(kv_key_check(NULL, ERR_USAGE, NULL), ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kv_table_every_event_in_every_state),
        cmocka_unit_test(test_kv_table_all_orders_of_three_events),
        cmocka_unit_test(test_kv_table_random_walks),
        cmocka_unit_test(test_kv_table_bounds),
        cmocka_unit_test(test_kv_table_waiting_requests_are_bounded),
        cmocka_unit_test(test_readers_are_spread_over_holders),
        cmocka_unit_test(test_keys_are_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
