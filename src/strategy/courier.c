#include "strategy/courier.h"

#include "base/fault.h"

#include <stdatomic.h>

static int courier_main(void *arg)
{
    struct courier *c = arg;
    int rc = OK;
    while (rc == OK) {
        uint64_t seen = world_raised(c->world, c->go);
        const struct wait_for go = {.kind = WAIT_SIGNAL, .signal = c->go, .seen = seen};
        struct transfer_wake got;
        if (courier_busy(c) && !c->parcel.all)
            transfer_send(&c->parcel, &c->parcels, &c->what);
        rc = transfers_next(&c->parcels, &go, 1, WORLD_FOREVER, &got);
        if (rc == OK && got.header)
            transfer_refuse(&c->parcels, got.header);
        if (rc != OK || !got.ended)
            continue;
        atomic_store(&c->status, got.ended->status);
        atomic_fetch_add(&c->ended, 1);
        world_raise(c->world, c->done);
    }
    transfers_close(&c->parcels);
    return rc;
}

int courier_start(struct courier *c, struct world *world, struct group *group, uint32_t lane,
                  uint32_t go, uint32_t done)
{
    *c = (struct courier){.world = world, .go = go, .done = done};
    transfers_init(&c->parcels, world, group, lane);
    return world_spawn(world, "courier", courier_main, c, &c->task);
}

bool courier_busy(const struct courier *c)
{
    return atomic_load(&c->posted) != atomic_load(&c->ended);
}

void courier_send(struct courier *c, const struct transfer_out *what)
{
    PL_ASSERT(!courier_busy(c));
    c->what = *what;
    atomic_fetch_add(&c->posted, 1);
    world_raise(c->world, c->go);
}

int courier_wait(struct courier *c, int64_t deadline)
{
    for (;;) {
        uint64_t seen = world_raised(c->world, c->done);
        if (!courier_busy(c))
            return atomic_load(&c->status);
        const struct wait_for done[] = {
            {.kind = WAIT_SIGNAL, .signal = c->done, .seen = seen},
            {.kind = WAIT_TASK, .task = c->task}, /* it ends with its node, or for want of memory */
        };
        struct wake wake;
        int rc = world_wait(c->world, done, 2, deadline, &wake);
        if (rc == OK && wake.which == 1)
            rc = ERR_CANCELLED;
        if (rc != OK)
            return rc;
    }
}

void courier_stop(struct courier *c)
{
    if (c->world)
        world_end_task(c->world, &c->task);
}
