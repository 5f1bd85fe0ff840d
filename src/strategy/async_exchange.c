#include "strategy/async_exchange.h"

#include "base/fault.h"
#include "world/trace.h"

/* When the view changes between exchanges, other members may lack the lane's last result, and wait
 * for it before they enter the next exchange of any lane. */
static int settle_lane(void *user)
{
    const struct async_exchange *b = user;
    return exchange_sync(b->lane);
}

static int run_exchange(void *user)
{
    struct async_exchange *b = user;
    return exchange_run(b->lane, &b->mine);
}

int async_exchange_start(struct async_exchange *b, const struct member *m, struct exchange *lane)
{
    const struct async_work work = {
        .run = run_exchange,
        .idle = settle_lane,
        .user = b,
        .go = SIGNAL_ASYNC_EXCHANGE + lane->lane,
        .done = SIGNAL_ASYNC_EXCHANGE_DONE,
    };
    PL_ASSERT(work.go <= STRATEGY_SIGNAL_LAST);
    *b = (struct async_exchange){.lane = lane};
    lane->in_background = true;
    return async_task_start(&b->task, m, &work);
}

bool async_exchange_busy(const struct async_exchange *b)
{
    return async_task_busy(&b->task);
}

void async_exchange_submit(struct async_exchange *b, const struct exchange_meta *mine)
{
    PL_ASSERT(!async_exchange_busy(b));
    b->mine = *mine;
    async_task_begin(&b->task);
}

int async_exchange_wait(struct async_exchange *b, int64_t deadline)
{
    struct world *world = b->task.world;
    int64_t begun = trace_now(world);
    int rc = async_task_wait(&b->task, deadline);
    trace_end(world, begun,
              (struct trace_span){.kind = SPAN_WAIT,
                                  .row = TRACE_STEPS,
                                  .peer = WORLD_ANY,
                                  .n = async_exchange_busy(b) ? 0 : b->lane->completed});
    return rc;
}

void async_exchange_stop(struct async_exchange *b)
{
    if (!b->task.task)
        return;
    async_task_stop(&b->task);
    b->lane->in_background = false;
}
