#include "strategy/async_sender.h"

#include "base/fault.h"

#include <stdatomic.h>

/* Begin the parts that may be sent, of which those from `begun` on have been; returns the first. */
static size_t begin_parts(struct async_sender *c, size_t begun)
{
    size_t from = atomic_load(&c->from);
    for (size_t i = from; i < begun; i++)
        transfer_send(&c->part[i].transfer, &c->transfers, &c->part[i].what);
    return from < begun ? from : begun;
}

/* The receiver refuses a header without a vector, and a vector that it has already. */
static bool has_failed(const struct transfer *ended)
{
    return ended->status != OK && ended->status != ERR_STOP && ended->status != ERR_PEER;
}

static int async_sender_main(void *arg)
{
    struct async_sender *c = arg;
    size_t left = 0, begun = 0;
    int rc = OK;
    while (rc == OK) {
        const struct wait_for go = wait_signal(c->world, c->go);
        struct transfer_wake got;
        if (left == 0 && async_sender_busy(c))
            left = begun = c->parts;
        begun = begin_parts(c, begun);
        rc = transfers_next(&c->transfers, &go, 1, WORLD_FOREVER, &got);
        if (rc == OK && got.header)
            transfer_refuse(&c->transfers, got.header);
        if (rc != OK || !got.ended)
            continue;
        if (has_failed(got.ended))
            atomic_store(&c->status, got.ended->status);
        if (--left > 0)
            continue;
        atomic_fetch_add(&c->ended, 1);
        world_raise(c->world, c->done);
    }
    transfers_close(&c->transfers);
    return rc;
}

int async_sender_start(struct async_sender *c, const struct member *m, struct async_part *part,
                       size_t parts, uint32_t lane, uint32_t go, uint32_t done)
{
    *c = (struct async_sender){
        .world = m->world, .part = part, .parts = parts, .go = go, .done = done};
    transfers_init(&c->transfers, m->world, m->group, lane);
    c->transfers.chunk = strategy_chunk(m->job);
    return world_spawn(m->world, "async sender", async_sender_main, c, &c->task);
}

bool async_sender_busy(const struct async_sender *c)
{
    return atomic_load(&c->posted) != atomic_load(&c->ended);
}

void async_sender_send(struct async_sender *c)
{
    async_sender_open(c);
    async_sender_send_from(c, 0);
}

void async_sender_open(struct async_sender *c)
{
    PL_ASSERT(!async_sender_busy(c));
    atomic_store(&c->from, c->parts);
    atomic_fetch_add(&c->posted, 1);
}

void async_sender_send_from(struct async_sender *c, size_t from)
{
    PL_ASSERT(async_sender_busy(c) && from <= atomic_load(&c->from));
    atomic_store(&c->from, from);
    world_raise(c->world, c->go);
}

int async_sender_wait(struct async_sender *c, int64_t deadline)
{
    for (;;) {
        const struct wait_for ended = wait_signal(c->world, c->done);
        if (!async_sender_busy(c))
            return atomic_load(&c->status);
        const struct wait_for set[] = {
            ended,
            {.kind = WAIT_TASK, .task = c->task}, /* it ends with its node, or for want of memory */
        };
        struct wake wake;
        int rc = world_wait(c->world, set, 2, deadline, &wake);
        if (rc == OK && wake.which == 1)
            rc = ERR_CANCELLED;
        if (rc != OK)
            return rc;
    }
}

void async_sender_stop(struct async_sender *c)
{
    if (c->world)
        world_end_task(c->world, &c->task);
}
