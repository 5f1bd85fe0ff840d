#include "strategy/async_exchange.h"

#include "base/fault.h"
#include "tensor/kernels.h"
#include "world/trace.h"

#include <stdatomic.h>

/* Wait for an exchange to be submitted. When the view changes meanwhile, other members may lack the
 * lane's last result, and wait for it before they enter the next exchange of any lane. */
static int await_turn(struct async_exchange *b)
{
    const uint32_t go_signal = SIGNAL_ASYNC_EXCHANGE + b->lane->lane;
    int synced = OK;
    for (;;) {
        const struct wait_for set[] = {
            wait_signal(b->world, go_signal),
            wait_signal(b->world, SIGNAL_GROUP),
        };
        if (async_exchange_busy(b))
            return synced;
        if (synced == OK)
            synced = exchange_sync(b->lane);
        if (async_exchange_busy(b))
            continue;
        struct wake wake;
        int rc = world_wait(b->world, set, 2, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
    }
}

static int async_exchange_main(void *arg)
{
    struct async_exchange *b = arg;
    int rc = OK;
    kernels_set_threads(b->threads);
    while (rc == OK) {
        rc = await_turn(b);
        if (rc == ERR_CANCELLED)
            return rc;
        if (rc == OK)
            rc = exchange_run(b->lane, &b->mine);
        atomic_store(&b->status, rc);
        atomic_fetch_add(&b->ended, 1);
        world_raise(b->world, SIGNAL_ASYNC_EXCHANGE_DONE);
    }
    return rc;
}

int async_exchange_start(struct async_exchange *b, const struct member *m, struct exchange *lane)
{
    PL_ASSERT(SIGNAL_ASYNC_EXCHANGE + lane->lane <= STRATEGY_SIGNAL_LAST);
    *b = (struct async_exchange){.world = m->world, .lane = lane, .threads = (int)m->job->threads};
    lane->in_background = true;
    return world_spawn(m->world, "background", async_exchange_main, b, &b->task);
}

bool async_exchange_busy(const struct async_exchange *b)
{
    return atomic_load(&b->submitted) != atomic_load(&b->ended);
}

void async_exchange_submit(struct async_exchange *b, const struct exchange_meta *mine)
{
    PL_ASSERT(!async_exchange_busy(b));
    b->mine = *mine;
    atomic_fetch_add(&b->submitted, 1);
    world_raise(b->world, SIGNAL_ASYNC_EXCHANGE + b->lane->lane);
}

static int await_end(struct async_exchange *b, int64_t deadline)
{
    for (;;) {
        const struct wait_for done = wait_signal(b->world, SIGNAL_ASYNC_EXCHANGE_DONE);
        if (!async_exchange_busy(b))
            return atomic_load(&b->status);
        struct wake wake;
        int rc = world_wait(b->world, &done, 1, deadline, &wake);
        if (rc != OK)
            return rc;
    }
}

/* A worker that waits for others computes nothing, and is not expected to. */
int async_exchange_wait(struct async_exchange *b, int64_t deadline)
{
    struct group *group = b->lane->group;
    int64_t begun = trace_now(b->world);
    bool busy = atomic_exchange(&group->work.busy, false);
    int rc = await_end(b, deadline);
    atomic_store(&group->work.busy, busy);
    trace_end(b->world, begun,
              (struct trace_span){.kind = SPAN_WAIT,
                                  .row = TRACE_STEPS,
                                  .peer = WORLD_ANY,
                                  .n = async_exchange_busy(b) ? 0 : b->lane->completed});
    return rc;
}

void async_exchange_stop(struct async_exchange *b)
{
    if (!b->task)
        return;
    world_end_task(b->world, &b->task);
    b->lane->in_background = false;
}
