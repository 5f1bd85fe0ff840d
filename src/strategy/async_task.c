#include "strategy/async_task.h"

#include "base/fault.h"
#include "tensor/kernels.h"

#include <stdatomic.h>

static int await_turn(struct async_task *a)
{
    int rc = OK;
    for (;;) {
        const struct wait_for set[] = {
            wait_signal(a->world, a->work.go),
            wait_signal(a->world, SIGNAL_GROUP),
        };
        if (async_task_busy(a))
            return rc;
        if (rc == OK && a->work.idle)
            rc = a->work.idle(a->work.user);
        if (async_task_busy(a))
            continue;
        struct wake wake;
        int waited = world_wait(a->world, set, a->work.idle ? 2 : 1, WORLD_FOREVER, &wake);
        if (waited != OK)
            return waited;
    }
}

static int async_task_main(void *arg)
{
    struct async_task *a = arg;
    int rc = OK;
    kernels_set_threads(a->threads);
    while (rc == OK) {
        rc = await_turn(a);
        if (rc == ERR_CANCELLED)
            return rc;
        if (rc == OK)
            rc = a->work.run(a->work.user);
        atomic_store(&a->status, rc);
        atomic_fetch_add(&a->ended, 1);
        world_raise(a->world, a->work.done);
    }
    return rc;
}

int async_task_start(struct async_task *a, const struct member *m, const struct async_work *work)
{
    *a = (struct async_task){
        .work = *work, .world = m->world, .group = m->group, .threads = (int)m->job->threads};
    return world_spawn(m->world, "background", async_task_main, a, &a->task);
}

void async_task_begin(struct async_task *a)
{
    PL_ASSERT(!async_task_busy(a));
    atomic_fetch_add(&a->begun, 1);
    world_raise(a->world, a->work.go);
}

bool async_task_busy(const struct async_task *a)
{
    return atomic_load(&a->begun) != atomic_load(&a->ended);
}

static int await_end(struct async_task *a, int64_t deadline)
{
    for (;;) {
        const struct wait_for done = wait_signal(a->world, a->work.done);
        if (!async_task_busy(a))
            return atomic_load(&a->status);
        struct wake wake;
        int rc = world_wait(a->world, &done, 1, deadline, &wake);
        if (rc != OK)
            return rc;
    }
}

int async_task_wait(struct async_task *a, int64_t deadline)
{
    bool busy = atomic_exchange(&a->group->work.busy, false);
    int rc = await_end(a, deadline);
    atomic_store(&a->group->work.busy, busy);
    return rc;
}

void async_task_stop(struct async_task *a)
{
    if (a->task)
        world_end_task(a->world, &a->task);
}
