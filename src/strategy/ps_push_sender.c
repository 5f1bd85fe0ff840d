#include "strategy/ps_push_sender.h"

#include "base/fault.h"

#include <stdatomic.h>

/* A part's index, and its lane, identify the shard. */
static size_t begin_push(struct ps_push_sender *p)
{
    size_t count = 0;
    for (size_t i = 0; i < p->parts; i++) {
        struct ps_part *part = &p->part[i];
        if (part->skip)
            continue;
        count++;
        transfer_send(&part->transfer, &p->transfers,
                      &(struct transfer_out){.to = part->to,
                                             .lane = PS_LANE_SERVER + (uint32_t)i,
                                             .x = p->bare ? NULL : part->x,
                                             .n = p->bare ? 0 : part->n,
                                             .header = p->message,
                                             .header_len = p->message_len});
    }
    return count;
}

/* The receiver refuses a header without a vector, and a push that it has already. */
static bool went_wrong(const struct transfer *ended)
{
    return ended->status != OK && ended->status != ERR_STOP && ended->status != ERR_PEER;
}

static int push_sender_main(void *arg)
{
    struct ps_push_sender *p = arg;
    size_t left = 0;
    int rc = OK;
    while (rc == OK) {
        const struct wait_for go = wait_signal(p->world, SIGNAL_PUSH);
        struct transfer_wake got;
        if (left == 0 && ps_push_sender_busy(p))
            left = begin_push(p);
        rc = transfers_next(&p->transfers, &go, 1, WORLD_FOREVER, &got);
        if (rc == OK && got.header)
            transfer_refuse(&p->transfers, got.header);
        if (rc != OK || !got.ended)
            continue;
        if (went_wrong(got.ended))
            atomic_store(&p->status, got.ended->status);
        if (--left > 0)
            continue;
        atomic_fetch_add(&p->ended, 1);
        world_raise(p->world, SIGNAL_PUSHED);
    }
    transfers_close(&p->transfers);
    return rc;
}

int ps_push_sender_start(struct ps_push_sender *p, const struct member *m, struct ps_part *part,
                         size_t parts)
{
    *p = (struct ps_push_sender){.world = m->world, .part = part, .parts = parts};
    transfers_init(&p->transfers, m->world, m->group, PS_LANE_PUSH);
    p->transfers.chunk = strategy_chunk(m->job);
    return world_spawn(m->world, "push sender", push_sender_main, p, &p->task);
}

bool ps_push_sender_busy(const struct ps_push_sender *p)
{
    return atomic_load(&p->begun) != atomic_load(&p->ended);
}

void ps_push_sender_send(struct ps_push_sender *p, const struct ps_message *message, bool bare)
{
    PL_ASSERT(!ps_push_sender_busy(p));
    p->message_len = ps_message_encode(message, p->message);
    p->bare = bare;
    atomic_fetch_add(&p->begun, 1);
    world_raise(p->world, SIGNAL_PUSH);
}

void ps_push_sender_stop(struct ps_push_sender *p)
{
    if (p->world)
        world_end_task(p->world, &p->task);
}
