#include "strategy/ps_push.h"

#include "base/fault.h"

#include <stdatomic.h>

/* Of which shard a part is its index says, and so does the lane. */
static size_t begin(struct ps_pusher *p)
{
    size_t count = 0;
    for (size_t i = 0; i < p->parts; i++) {
        struct ps_part *part = &p->part[i];
        if (part->skip)
            continue;
        count++;
        transfer_send(&part->parcel, &p->parcels,
                      &(struct transfer_out){.to = part->to,
                                             .lane = PS_LANE_SERVER + (uint32_t)i,
                                             .x = p->bare ? NULL : part->x,
                                             .n = p->bare ? 0 : part->n,
                                             .header = p->note,
                                             .header_len = p->note_len});
    }
    return count;
}

/* A note alone is refused by who takes it; so is a push that is there already. */
static bool went_wrong(const struct transfer *ended)
{
    return ended->status != OK && ended->status != ERR_STOP && ended->status != ERR_PEER;
}

static int pusher_main(void *arg)
{
    struct ps_pusher *p = arg;
    size_t left = 0;
    int rc = OK;
    while (rc == OK) {
        uint64_t seen = world_raised(p->world, SIGNAL_PUSH);
        const struct wait_for go = {.kind = WAIT_SIGNAL, .signal = SIGNAL_PUSH, .seen = seen};
        struct transfer_wake got;
        if (left == 0 && ps_pusher_busy(p))
            left = begin(p);
        rc = transfers_next(&p->parcels, &go, 1, WORLD_FOREVER, &got);
        if (rc == OK && got.header)
            transfer_refuse(&p->parcels, got.header);
        if (rc != OK || !got.ended)
            continue;
        if (went_wrong(got.ended))
            atomic_store(&p->status, got.ended->status);
        if (--left > 0)
            continue;
        atomic_fetch_add(&p->ended, 1);
        world_raise(p->world, SIGNAL_PUSHED);
    }
    transfers_close(&p->parcels);
    return rc;
}

int ps_pusher_start(struct ps_pusher *p, struct world *world, struct group *group,
                    struct ps_part *part, size_t parts)
{
    *p = (struct ps_pusher){.world = world, .part = part, .parts = parts};
    transfers_init(&p->parcels, world, group, PS_LANE_PUSH);
    return world_spawn(world, "pusher", pusher_main, p, &p->task);
}

bool ps_pusher_busy(const struct ps_pusher *p)
{
    return atomic_load(&p->begun) != atomic_load(&p->ended);
}

void ps_pusher_send(struct ps_pusher *p, const struct ps_note *note, bool bare)
{
    PL_ASSERT(!ps_pusher_busy(p));
    p->note_len = ps_note_encode(note, p->note);
    p->bare = bare;
    atomic_fetch_add(&p->begun, 1);
    world_raise(p->world, SIGNAL_PUSH);
}

void ps_pusher_stop(struct ps_pusher *p)
{
    if (p->world)
        world_end_task(p->world, &p->task);
}
