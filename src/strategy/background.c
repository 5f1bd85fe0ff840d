#include "strategy/background.h"

#include "base/fault.h"
#include "tensor/kernels.h"
#include "world/trace.h"

#include <stdatomic.h>

static int background_main(void *arg)
{
    struct background *b = arg;
    const uint32_t go_signal = SIGNAL_BESIDE + b->lane->lane;
    kernels_set_threads(b->threads);
    for (;;) {
        uint64_t seen = world_raised(b->world, go_signal);
        if (background_busy(b)) {
            int rc = exchange_run(b->lane, &b->mine);
            atomic_store(&b->status, rc);
            atomic_fetch_add(&b->ended, 1);
            world_raise(b->world, SIGNAL_BESIDE_DONE);
            if (rc != OK)
                return rc;
            continue;
        }
        const struct wait_for go = {.kind = WAIT_SIGNAL, .signal = go_signal, .seen = seen};
        struct wake wake;
        int rc = world_wait(b->world, &go, 1, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
    }
}

int background_start(struct background *b, const struct member *m, struct exchange *lane)
{
    PL_ASSERT(SIGNAL_BESIDE + lane->lane <= STRATEGY_SIGNAL_LAST);
    *b = (struct background){.world = m->world, .lane = lane, .threads = (int)m->job->threads};
    lane->beside = true;
    return world_spawn(m->world, "background", background_main, b, &b->task);
}

bool background_busy(const struct background *b)
{
    return atomic_load(&b->submitted) != atomic_load(&b->ended);
}

void background_submit(struct background *b, const struct tally *mine)
{
    PL_ASSERT(!background_busy(b));
    b->mine = *mine;
    atomic_fetch_add(&b->submitted, 1);
    world_raise(b->world, SIGNAL_BESIDE + b->lane->lane);
}

static int await_end(struct background *b, int64_t deadline)
{
    for (;;) {
        uint64_t seen = world_raised(b->world, SIGNAL_BESIDE_DONE);
        if (!background_busy(b))
            return atomic_load(&b->status);
        const struct wait_for done = {
            .kind = WAIT_SIGNAL, .signal = SIGNAL_BESIDE_DONE, .seen = seen};
        struct wake wake;
        int rc = world_wait(b->world, &done, 1, deadline, &wake);
        if (rc != OK)
            return rc;
    }
}

/* Who waits for others computes nothing, and is not expected to. */
int background_wait(struct background *b, int64_t deadline)
{
    struct group *group = b->lane->group;
    int64_t begun = trace_now(b->world);
    bool busy = atomic_exchange(&group->busy, false);
    int rc = await_end(b, deadline);
    atomic_store(&group->busy, busy);
    trace_end(b->world, begun,
              (struct trace_span){.kind = SPAN_WAIT,
                                  .row = TRACE_STEPS,
                                  .peer = WORLD_ANY,
                                  .n = background_busy(b) ? 0 : b->lane->completed});
    return rc;
}

void background_stop(struct background *b)
{
    if (b->world)
        world_end_task(b->world, &b->task);
}
