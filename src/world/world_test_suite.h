/* The conformance suite: what every world must do, as stories that its nodes play. A world's test
 * fills in a fixture and runs WORLD_SUITE_TESTS; the simulator and the real world run the same.
 *
 * Nodes do not share memory and may be threads, so a story checks with CHECK, which ends the node
 * with the line it failed at; the test at the bottom of each story then asserts that all nodes
 * ended well. Messages that a node hands over before its main returns must still arrive. */
#ifndef PL_WORLD_WORLD_TEST_SUITE_H
#define PL_WORLD_WORLD_TEST_SUITE_H

#include "base/hash.h"
#include "world/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

typedef int (*suite_main)(struct world *w);

enum { SUITE_NODES_MAX = 3, SUITE_FAILED = 10000 };

struct world_fixture {
    /* Run nodes 0 … n-1 of a fresh cluster, which all know one another: node i runs main[i], and
     * result[i] is what that returned. Returns when all have ended; OK, or why that cannot be. */
    int (*run)(struct world_fixture *fixture, uint32_t n, const suite_main *main, int *result);
    void *user;
};

/* In a node: continue only if. */
#define CHECK(condition)                    \
    do {                                    \
        if (!(condition))                   \
            return SUITE_FAILED + __LINE__; \
    } while (0)

/* Long enough for a slow machine, short enough to fail within. */
#define SUITE_PATIENCE (10 * WORLD_SECOND)
#define SUITE_MOMENT   (WORLD_SECOND / 50)

static inline void suite_play(void **state, uint32_t n, const suite_main *main)
{
    struct world_fixture *fixture = *state;
    int result[SUITE_NODES_MAX] = {0};
    int rc = fixture->run(fixture, n, main, result);
    for (uint32_t i = 0; i < n; i++)
        if (result[i] >= SUITE_FAILED)
            print_error("node %u: line %d\n", i, result[i] - SUITE_FAILED);
        else if (result[i] != OK)
            print_error("node %u: %s\n", i, status_text(result[i]));
    assert_int_equal(rc, OK);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(result[i], OK);
}

static inline int64_t suite_until(struct world *w, int64_t ns)
{
    return world_now(w) + ns;
}

/* A message of one number. */
static inline int suite_send(struct world *w, uint32_t to, uint32_t view, uint64_t tag,
                             uint32_t value)
{
    struct message *m = message_new(tag, view, sizeof value);
    if (!m)
        return ERR_NOMEM;
    memcpy(m->data, &value, sizeof value);
    return world_send(w, to, m, CLASS_CONTROL);
}

static inline int suite_receive_within(struct world *w, uint32_t from, uint32_t view, uint64_t tag,
                                       int64_t ns, uint32_t *value)
{
    struct wait_for want = {
        .kind = WAIT_MESSAGE, .from = from, .view = view, .tag = tag, .mask = UINT64_MAX};
    struct wake wake;
    int rc = world_wait(w, &want, 1, suite_until(w, ns), &wake);
    if (rc != OK)
        return rc;
    if (wake.msg->len == sizeof *value)
        memcpy(value, wake.msg->data, sizeof *value);
    else
        rc = ERR_PROTOCOL;
    message_unref(wake.msg);
    return rc;
}

static inline int suite_receive(struct world *w, uint32_t from, uint32_t view, uint64_t tag,
                                uint32_t *value)
{
    return suite_receive_within(w, from, view, tag, SUITE_PATIENCE, value);
}

/* A change of peers. */
static inline int suite_peer(struct world *w, uint32_t *peer, bool *up)
{
    struct wait_for change = {.kind = WAIT_PEER};
    struct wake wake;
    int rc = world_wait(w, &change, 1, suite_until(w, SUITE_PATIENCE), &wake);
    if (rc == OK) {
        *peer = wake.peer;
        *up = wake.up;
    }
    return rc;
}

/* Wait for this change of this peer, passing over others. */
static inline int suite_peer_is(struct world *w, uint32_t peer, bool up)
{
    for (;;) {
        uint32_t which;
        bool is_up;
        int rc = suite_peer(w, &which, &is_up);
        if (rc != OK || (which == peer && is_up == up))
            return rc;
    }
}

/* Nobody goes before everybody has come here: a word to each, a word from each. */
static inline int suite_part(struct world *w, uint32_t n)
{
    const uint64_t tag = UINT64_C(0xee) << 56;
    uint32_t value;
    for (uint32_t i = 0; i < n; i++)
        if (i != w->self && suite_send(w, i, 0, tag, 0) != OK)
            return ERR_PEER;
    for (uint32_t i = 0; i < n; i++)
        if (i != w->self && suite_receive_within(w, i, 0, tag, 10 * SUITE_PATIENCE, &value) != OK)
            return ERR_TIMEOUT; /* another one may have been at work all the time */
    return OK;
}

/* Send bulk bytes, waiting for credit as often as needed. */
static inline int suite_send_bulk(struct world *w, uint32_t to, struct message *m)
{
    for (;;) {
        int rc = world_send(w, to, m, CLASS_BULK);
        if (rc != ERR_FULL)
            return rc;
        struct wait_for credit = {.kind = WAIT_CREDIT, .peer = to};
        struct wake wake;
        rc = world_wait(w, &credit, 1, suite_until(w, SUITE_PATIENCE), &wake);
        if (rc != OK) {
            message_unref(m);
            return rc;
        }
    }
}

#include "world/world_test_messages.h"
#include "world/world_test_recalls.h"
#include "world/world_test_receives.h"
#include "world/world_test_sends.h"
#include "world/world_test_tasks.h"

#define WORLD_SUITE_TESTS(fixture)                                                            \
    WORLD_SUITE_TASKS(fixture), WORLD_SUITE_MESSAGES(fixture), WORLD_SUITE_RECEIVES(fixture), \
        WORLD_SUITE_SENDS(fixture), WORLD_SUITE_RECALLS(fixture)

#endif
