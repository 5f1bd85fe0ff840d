/* Nodes that are not what they say: a second incarnation of a worker, which says hello again under
 * its number, and a worker of another run. Both know the protocol. In real runs, connections refuse
 * them before (real/handshake.h), unless they have the run's key. */
#include "storm.h"
#include "wire/wire_rules.h"
#include "wire/wire_send.h"

#include <stdlib.h>

#define PATIENCE (2 * WORLD_SECOND)

/* A hello like those of the run's workers. `differs`: in its job, its model or neither */
static void send_hello(const struct storm *s, struct world *world, uint32_t differs)
{
    struct hello hello = s->driver->membership.own;
    struct buf bytes = {0};
    hello.job_hash ^= differs & 1;
    hello.segments_hash ^= differs >> 1 & 1;
    world_address(world, hello.address, sizeof hello.address);
    hello_write(&hello, &bytes);
    if (bytes.failed)
        abort();
    (void)wire_send_buf(world, WORLD_DRIVER, WIRE_HELLO, 0, &bytes);
    buf_release(&bytes);
}

bool imposter_has_original(const struct storm *s, uint32_t node)
{
    const struct roster_member *m = moment_member(s, node);
    return m && m->state != MEMBER_OUT && s->node[node].worker->world;
}

/* Half of them try it until they are disconnected, and the worker with them. */
bool imposter_doubles(const struct storm *s, const struct strike *k, uint32_t node)
{
    uint32_t times = k->draw & 1 ? WIRE_ERRORS_MAX : 1;
    for (uint32_t i = 0; i < times; i++)
        send_hello(s, s->node[node].worker->world, 0);
    return times == WIRE_ERRORS_MAX;
}

/* As members do, which it is not. */
static void send_as_member(struct world *world)
{
    static const struct {
        enum wire_kind kind;
        size_t len;
    } sent[] = {{WIRE_JOIN_COMPLETE, 4}, {WIRE_LANE_AT, 21}, {WIRE_LEAVE, 1}};
    uint8_t bytes[21] = {0};
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++)
        (void)wire_send(world, WORLD_DRIVER, wire_tag(sent[i].kind, 0, 0, 0), bytes, sent[i].len);
}

/* Ends when it is refused, or its driver is gone. */
int imposter_main(struct storm *s, struct world *world)
{
    enum { WELCOME, REFUSED, TAKEN, PEER, EVENTS };
    const struct wait_for set[EVENTS] = {
        [WELCOME] = wire_from(WORLD_DRIVER, WIRE_WELCOME),
        [REFUSED] = wire_from(WORLD_DRIVER, WIRE_REFUSED),
        [TAKEN] = wire_from(WORLD_DRIVER, WIRE_VIEW),
        [PEER] = {.kind = WAIT_PEER},
    };
    int64_t until = world_now(world) + PATIENCE;
    struct wake wake;
    while (world_wait(world, set, EVENTS, until, &wake) == OK) {
        if (wake.which == PEER && !wake.up)
            break;
        if (wake.which == PEER)
            continue;
        message_unref(wake.msg);
        if (wake.which == TAKEN)
            storm_break(s, "worker %u, of another run, is sent a view", world->self);
        if (wake.which == WELCOME && s->driver)
            send_hello(s, world, 1 + world->self % 3);
        if (wake.which == REFUSED && world->self % 2 == 0)
            return OK;
        if (wake.which == REFUSED)
            send_as_member(world);
    }
    return OK;
}
