#include "data/loader.h"

#include "base/fault.h"
#include "tensor/shape.h"

int loader_init(struct loader *loader, struct arena *arena, const struct dataset *set,
                uint64_t seed, size_t cap)
{
    PL_ASSERT(set->count > 0);
    struct loader made = {.set = set, .sampler = {seed, set->count}};
    int rc = batch_init(&made.batch[0], arena, cap, shape_count(&set->shape));
    if (rc == OK)
        *loader = made;
    return rc;
}

static void fill_batch(struct loader *l, size_t which, struct stretch stretch)
{
    l->status[which] = batch_fill(&l->batch[which], l->set, &l->sampler, stretch.start,
                                  stretch.count, &l->why[which]);
}

/* ---- the task ---- */

/* Everything it reads was written before the want, everything it writes is read after the ready. */
static int loader_main(void *arg)
{
    struct loader *l = arg;
    struct wait_for want = {.kind = WAIT_SIGNAL, .signal = SIGNAL_LOADER_WANT, .seen = l->wanted};
    struct wake wake;
    for (;; want.seen++) {
        int rc = world_wait(l->world, &want, 1, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
        fill_batch(l, 1 - l->given, l->ahead);
        world_raise(l->world, SIGNAL_LOADER_READY);
    }
}

int loader_start(struct loader *l, struct arena *arena, struct world *world)
{
    PL_ASSERT(!l->task);
    if (!l->batch[1].data) {
        int rc = batch_init(&l->batch[1], arena, l->batch[0].cap, l->batch[0].record_floats);
        if (rc != OK)
            return rc;
    }
    l->world = world;
    l->asked = l->takes = l->hits = 0;
    l->expected.count = 0;
    l->wanted = world_raised(world, SIGNAL_LOADER_WANT);
    l->readied = world_raised(world, SIGNAL_LOADER_READY);
    return world_spawn(world, "loader", loader_main, l, &l->task);
}

void loader_stop(struct loader *l)
{
    if (l->task)
        world_end_task(l->world, &l->task);
    l->world = NULL;
}

void loader_release(struct loader *l)
{
    PL_ASSERT(!l->task);
    batch_release(&l->batch[0]);
    batch_release(&l->batch[1]);
}

/* ---- the caller's side ---- */

/* Wait until the task has nothing to do. */
static int drain_task(struct loader *l)
{
    if (l->asked == 0)
        return OK;
    struct wait_for ready = {
        .kind = WAIT_SIGNAL,
        .signal = SIGNAL_LOADER_READY,
        .seen = l->readied + l->asked - 1,
    };
    struct wake wake;
    return world_wait(l->world, &ready, 1, WORLD_FOREVER, &wake);
}

void loader_expect(struct loader *l, uint64_t start, size_t count)
{
    l->expected = (struct stretch){start, count};
}

/* The stretch that is expected to follow `now`. */
static struct stretch next_stretch(struct loader *l, struct stretch now)
{
    uint64_t step = now.start - l->start;
    if (l->takes == 0)
        l->stride = l->stepped = now.count;
    else if (step == l->stepped)
        l->stride = step;
    else
        l->stepped = step;
    l->start = now.start;
    struct stretch expected = l->expected;
    l->expected.count = 0;
    return expected.count > 0 ? expected : (struct stretch){now.start + l->stride, now.count};
}

static void prepare_batch(struct loader *l, struct stretch next)
{
    l->ahead = next;
    l->asked++;
    world_raise(l->world, SIGNAL_LOADER_WANT);
}

int loader_take(struct loader *l, uint64_t start, size_t count, const struct batch **batch,
                struct err *err)
{
    struct stretch stretch = {start, count};
    if (l->task) {
        int rc = drain_task(l);
        if (rc != OK)
            return err_set(err, rc, "no batch: %s", status_text(rc));
        l->given = 1 - l->given;
        bool hit = l->asked > 0 && l->ahead.start == start && l->ahead.count == count;
        if (!hit)
            fill_batch(l, l->given, stretch);
        struct stretch next = next_stretch(l, stretch);
        l->takes++;
        l->hits += hit;
        prepare_batch(l, next);
    } else {
        fill_batch(l, l->given, stretch);
    }
    if (l->status[l->given] != OK)
        return err_set(err, l->status[l->given], "%s", l->why[l->given].text);
    *batch = &l->batch[l->given];
    return OK;
}

struct batch *loader_spare(struct loader *l)
{
    return &l->batch[l->given];
}
