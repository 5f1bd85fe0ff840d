/* The roster as stories: events go in, and the orders that come out are compared as text:
 *
 *   join 2         the run is told that worker 2 has joined (leave, dead, cut, hung likewise)
 *   drop 2         its connection is cut
 *   view 3: 0 (1)  a new view and its members; 1 is a leaf
 *   check 2        participants are asked for their links
 *   go 0.3: 7 from 1 to 0 driver    in lane 0 of view 3 exchange 7 counts; 1 has it, they lack it
 *   ask 0 for 3    worker 0 is to admit 3, which waits to come in
 *   release 0 of 3 worker 0 is not to wait for 3 any more
 *   again 2       worker 2 is to forget what it has
 *   want 1         one more worker is asked for */
#ifndef PL_GROUP_ROSTER_STORY_H
#define PL_GROUP_ROSTER_STORY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "group/roster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS      INT64_C(1000000)
#define SILENCE (1000 * MS)
#define STALL   (30000 * MS)

enum { TEXT_MAX = 4096 };

struct story {
    struct roster roster;
    struct roster_orders orders;
    int64_t now;
    char text[TEXT_MAX];
};

static inline void story_init(struct story *s, uint32_t workers, bool driver_takes_part)
{
    const struct roster_options options = {
        .workers = workers,
        .incarnation = 4,
        .driver_takes_part = driver_takes_part,
        .silence_max = SILENCE,
        .stall_max = STALL,
    };
    memset(s, 0, sizeof *s);
    roster_init(&s->roster, &options);
}

static inline int setup(void **state)
{
    *state = malloc(sizeof(struct story));
    return *state ? 0 : -1;
}

static inline int teardown(void **state)
{
    free(*state);
    return 0;
}

__attribute__((format(printf, 2, 3))) static inline void add_text(struct story *s,
                                                                  const char *format, ...)
{
    size_t used = strlen(s->text);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(s->text + used, TEXT_MAX - used, format, args);
    va_end(args);
    assert_true(n >= 0 && (size_t)n < TEXT_MAX - used);
}

static inline void add_go(struct story *s, const struct lane_go *go)
{
    add_text(s, "go %u.%u: %u from ", go->lane, go->view, (unsigned)go->completed);
    add_text(s, go->holder == ROSTER_DRIVER ? "driver" : "%u", go->holder);
    if (go->driver_lacks || members_count(&go->lacking) > 0)
        add_text(s, " to");
    for (uint32_t node = 0; node < VIEW_MEMBERS_MAX; node++)
        if (members_has(&go->lacking, node))
            add_text(s, " %u", node);
    if (go->driver_lacks)
        add_text(s, " driver");
}

static inline void add_order(struct story *s, const struct roster_order *o)
{
    if (s->text[0])
        add_text(s, "; ");
    switch (o->kind) {
    case ORDER_VIEW:
        add_text(s, "view %u:", s->roster.view.number);
        for (size_t i = 0; i < s->roster.view.count; i++)
            add_text(s,
                     members_has(&s->roster.view.leaves, s->roster.view.node[i]) ? " (%u)" : " %u",
                     s->roster.view.node[i]);
        break;
    case ORDER_MEMBER: add_text(s, "%s %u", o->what, o->node); break;
    case ORDER_LANE_GO: add_go(s, &o->go); break;
    case ORDER_DROP: add_text(s, "drop %u", o->node); break;
    case ORDER_ADMIT_JOINER: add_text(s, "ask %u for %u", o->node, o->other); break;
    case ORDER_RELEASE_MEMBER: add_text(s, "part %u", o->node); break;
    case ORDER_CANCEL_JOIN: add_text(s, "release %u of %u", o->node, o->other); break;
    case ORDER_REJOIN: add_text(s, "rejoin %u", o->node); break;
    case ORDER_LINK_CHECK: add_text(s, "check %u", o->other); break;
    case ORDER_WANT: add_text(s, "want %u", o->other); break;
    }
}

static inline const char *step(struct story *s, struct roster_event event)
{
    event.now = s->now;
    roster_step(&s->roster, &event, &s->orders);
    s->text[0] = '\0';
    for (size_t i = 0; i < s->orders.count; i++)
        add_order(s, &s->orders.at[i]);
    return s->text;
}

static inline const char *joins(struct story *s, uint32_t node)
{
    char address[NODE_ADDRESS_MAX];
    snprintf(address, sizeof address, "host%u:7000", node);
    return step(s, (struct roster_event){.kind = ROSTER_JOIN, .node = node, .address = address});
}

static inline const char *leaves(struct story *s, uint32_t node)
{
    return step(s, (struct roster_event){.kind = ROSTER_LEAVE, .node = node});
}

static inline const char *on_peer_down(struct story *s, uint32_t node)
{
    return step(s, (struct roster_event){.kind = ROSTER_PEER_DOWN, .node = node});
}

static inline const char *beats(struct story *s, uint32_t node, uint64_t progress, bool busy)
{
    return step(s, (struct roster_event){
                       .kind = ROSTER_HEARTBEAT, .node = node, .progress = progress, .busy = busy});
}

static inline const char *reports(struct story *s, uint32_t node, uint32_t view, uint32_t lane,
                                  uint64_t completed)
{
    return step(s, (struct roster_event){.kind = ROSTER_LANE_AT,
                                         .node = node,
                                         .view = view,
                                         .lane = lane,
                                         .completed = completed});
}

static inline const char *ticks(struct story *s, int64_t now)
{
    s->now = now;
    return step(s, (struct roster_event){.kind = ROSTER_TICK, .node = UINT32_MAX});
}

/* A group of n workers, 0 … n-1, in view 1. */
static inline void form(struct story *s, uint32_t n, bool driver_takes_part)
{
    story_init(s, n, driver_takes_part);
    for (uint32_t node = 0; node < n; node++)
        joins(s, node);
    assert_int_equal(s->roster.view.number, 1);
}

#endif
