/* The rules of messages on both sides: a sender that breaks one is caught; a receiver drops such a
 * message, and disconnects a peer at its third error. */
#include "wire/wire_rules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "wire/wire_send.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRIVER, WORKER, OTHER, PLACES };
static const uint32_t place[PLACES] = {WORLD_DRIVER, 3, 7};

/* A node whose world delivers what the test puts in, and counts what is sent and dropped. */
struct node {
    struct world world;
    struct wire_guard guard;
    struct message *next;
    uint32_t dropped_peer;
    int sent, drops;
};

static struct node *node_of(struct world *w)
{
    return (struct node *)((char *)w - offsetof(struct node, world));
}

static int wait_next(struct world *w, const struct wait_for *set, int n, int64_t deadline,
                     struct wake *out)
{
    struct node *node = node_of(w);
    (void)set, (void)n, (void)deadline;
    if (!node->next)
        return ERR_TIMEOUT;
    *out = (struct wake){.msg = node->next};
    node->next = NULL;
    return OK;
}

static int send_nowhere(struct world *w, uint32_t peer, struct message *m, enum world_class class)
{
    (void)peer, (void)class;
    node_of(w)->sent++;
    message_unref(m);
    return OK;
}

static void drop_peer(struct world *w, uint32_t peer)
{
    node_of(w)->dropped_peer = peer;
    node_of(w)->drops++;
}

static const struct world_ops ops = {
    .wait = wait_next, .send = send_nowhere, .peer_drop = drop_peer};

static void node_init(struct node *node, uint32_t self)
{
    memset(node, 0, sizeof *node);
    node->world.ops = &ops;
    node->world.self = self;
    wire_guard_start(&node->guard, &node->world, NULL);
}

/* Is a message of that kind and length received? */
static bool is_received(struct node *node, uint32_t from, uint64_t tag, size_t len)
{
    struct wake wake;
    const struct wait_for any = {.kind = WAIT_MESSAGE};
    node->next = message_phantom(tag, 0, len);
    assert_non_null(node->next);
    node->next->from = from;
    int rc = world_wait(&node->world, &any, 1, 0, &wake);
    if (rc == OK)
        message_unref(wake.msg);
    return rc == OK;
}

static jmp_buf fault_return;

static void fault_caught(struct fault_sink *sink, const char *file, int line, const char *what)
{
    (void)sink, (void)file, (void)line, (void)what;
    longjmp(fault_return, 1);
}

/* Does the sender's assertion let it pass? */
static bool is_sent(struct node *node, uint32_t to, uint64_t tag, size_t len)
{
    static uint8_t data[WORLD_MESSAGE_MAX + 1];
    struct fault_sink sink = {fault_caught};
    struct fault_sink *volatile before = fault_bind(&sink);
    volatile bool passes = false;
    if (setjmp(fault_return) == 0)
        passes = wire_send(&node->world, to, tag, data, len) == OK;
    fault_bind(before);
    return passes;
}

/* ---- every kind, from everybody to everybody, at its limits and past them ---- */

static void try_kind(enum wire_kind kind, uint32_t from, uint32_t to)
{
    static struct node sender, receiver;
    const struct wire_rule *rule = wire_rule_of(kind);
    const size_t lengths[] = {rule->least, rule->most, rule->most + 1, rule->least - 1};
    uint64_t tag = wire_tag(kind, 0, 0, 0);
    bool may = rule->ways & wire_way(from, to);
    for (size_t i = 0; i < 4; i++) {
        size_t len = lengths[i];
        bool fits = i < 2;
        if (len > WORLD_MESSAGE_MAX) /* the message itself is refused: world.c and frame.c */
            continue;
        node_init(&sender, from);
        node_init(&receiver, to);
        if (is_sent(&sender, to, tag, len) != (may && fits))
            fail_msg("%s of %zu bytes from %x to %x: sending is %s", wire_kind_name(kind), len,
                     from, to, may && fits ? "refused" : "allowed");
        if (from == to)
            continue; /* what a node sends itself has passed the assertion */
        if (is_received(&receiver, from, tag, len) != (may && fits))
            fail_msg("%s of %zu bytes from %x to %x: receiving is %s", wire_kind_name(kind), len,
                     from, to, may && fits ? "refused" : "allowed");
        assert_int_equal(atomic_load(&receiver.guard.dropped), !(may && fits));
        assert_int_equal(receiver.drops, 0);
    }
}

static void test_rules_hold_on_both_sides(void **state)
{
    (void)state;
    for (int kind = 1; kind < WIRE_KIND_COUNT; kind++) {
        const struct wire_rule *rule = wire_rule_of((enum wire_kind)kind);
        if (rule->ways == 0 || rule->least > rule->most || rule->most > WORLD_MESSAGE_MAX)
            fail_msg("%s has no rule", wire_kind_name((enum wire_kind)kind));
        for (int from = 0; from < PLACES; from++)
            for (int to = 0; to < PLACES; to++)
                try_kind((enum wire_kind)kind, place[from], place[to]);
    }
}

static void test_rules_refuse_unknown_kinds(void **state)
{
    static struct node node;
    (void)state;
    node_init(&node, WORLD_DRIVER);
    for (uint64_t kind = 0; kind < 256; kind++) {
        bool known = kind > WIRE_NONE && kind < WIRE_KIND_COUNT;
        assert_int_equal(wire_fault(3, WORLD_DRIVER, kind << 56, 0) != NULL &&
                             strstr(wire_fault(3, WORLD_DRIVER, kind << 56, 0), "no such kind"),
                         !known);
    }
    assert_false(is_received(&node, 3, UINT64_C(0xff) << 56, 4));
}

/* ---- three errors ---- */

static void test_guard_disconnects_at_the_third_error(void **state)
{
    static struct node node;
    uint64_t beat = wire_tag(WIRE_HEARTBEAT, 0, 0, 0), view = wire_tag(WIRE_VIEW, 0, 0, 0);
    (void)state;
    node_init(&node, WORLD_DRIVER);
    for (uint32_t peer = 3; peer < 5; peer++) { /* each has a count of its own */
        assert_false(is_received(&node, peer, beat, 16));
        assert_true(is_received(&node, peer, beat, 17));
        assert_false(is_received(&node, peer, view, 100));
        assert_int_equal(node.drops, peer - 3);
        wire_guard_count(&node.guard, peer, WIRE_DONE, "it cannot be read");
        assert_int_equal(node.drops, peer - 2);
        assert_int_equal(node.dropped_peer, peer);
    }
    assert_int_equal(atomic_load(&node.guard.dropped), 6);
    for (int i = 0; i < 1000; i++) { /* what it still has on its way counts, however often */
        wire_guard_count(&node.guard, 4, WIRE_DONE, "it cannot be read");
        assert_int_equal(node.drops, 3 + i);
    }
}

static void test_guard_begins_again_with_a_connection(void **state)
{
    static struct node node;
    (void)state;
    node_init(&node, 3);
    for (int i = 0; i < 10; i++) {
        wire_guard_count(&node.guard, WORLD_DRIVER, WIRE_VIEW, "it cannot be read");
        wire_guard_count(&node.guard, WORLD_DRIVER, WIRE_VIEW, "it cannot be read");
        wire_guard_forget(&node.guard, WORLD_DRIVER);
    }
    assert_int_equal(node.drops, 0);
}

static void test_guard_ends(void **state)
{
    static struct node node;
    (void)state;
    node_init(&node, 3);
    assert_false(is_received(&node, 7, wire_tag(WIRE_VIEW, 0, 0, 0), 100));
    wire_guard_stop(&node.guard);
    assert_true(is_received(&node, 7, wire_tag(WIRE_VIEW, 0, 0, 0), 100));
}

/* ---- the table of docs/PROTOCOL.md ---- */

static void print_ways(uint32_t ways, char *out, size_t size)
{
    static const char *const text[] = {"worker → driver", "driver → worker", "worker → worker",
                                       "to itself"};
    size_t n = (size_t)snprintf(out, size, "%s", ways == WAY_ANY ? "any" : "");
    for (int i = 0; i < 4 && ways != WAY_ANY; i++)
        if (ways >> i & 1)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? ", " : "", text[i]);
}

static void print_length(const struct wire_rule *rule, char *out, size_t size)
{
    if (rule->most == 0)
        snprintf(out, size, "none");
    else if (rule->least == rule->most)
        snprintf(out, size, "%zu", rule->most);
    else if (rule->least == 0)
        snprintf(out, size, "at most %zu", rule->most);
    else
        snprintf(out, size, "%zu to %zu", rule->least, rule->most);
}

static char *read_protocol(void)
{
    enum { MOST = 1 << 20 };
    char *text = calloc(1, MOST);
    FILE *f = fopen(TEST_ROOT "/docs/PROTOCOL.md", "r");
    assert_true(text && f && fread(text, 1, MOST - 1, f) > 0);
    fclose(f);
    return text;
}

/* Each kind is in one row, with its ends and its length. */
static void test_rules_are_documented(void **state)
{
    (void)state;
    char *text = read_protocol(), *table = strstr(text, "\n## The guard\n");
    assert_non_null(table);
    *strstr(table + 1, "\n## ") = '\0';
    for (int kind = 1; kind < WIRE_KIND_COUNT; kind++) {
        char name[64], ways[96], length[64], row[256];
        const struct wire_rule *rule = wire_rule_of((enum wire_kind)kind);
        snprintf(name, sizeof name, "`%s`", wire_kind_name((enum wire_kind)kind));
        print_ways(rule->ways, ways, sizeof ways);
        print_length(rule, length, sizeof length);
        snprintf(row, sizeof row, " | %s | %s |\n", ways, length);
        const char *at = strstr(table, name), *end = at ? strstr(at, " | ") : NULL;
        if (!at || strncmp(end, row, strlen(row)) != 0)
            fail_msg("docs/PROTOCOL.md: %s has no row that ends with%s", name, row);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_hold_on_both_sides),
        cmocka_unit_test(test_rules_refuse_unknown_kinds),
        cmocka_unit_test(test_guard_disconnects_at_the_third_error),
        cmocka_unit_test(test_guard_begins_again_with_a_connection),
        cmocka_unit_test(test_guard_ends),
        cmocka_unit_test(test_rules_are_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
