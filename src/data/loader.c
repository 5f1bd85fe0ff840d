#include "data/loader.h"

#include "base/fault.h"
#include "tensor/shape.h"

enum { QUEUE_BITS = 12, SLOT_PARTS = LOADER_PIECES + 1 };
_Static_assert((1 + LOADER_AHEAD_MAX) * LOADER_PIECES < 1 << QUEUE_BITS, "they can be counted");

static size_t batch_bytes(const struct batch *batch)
{
    return batch->cap * batch->record_floats * sizeof *batch->data;
}

static int init_slot(struct loader_slot *slot, struct arena *arena, size_t cap,
                     size_t record_floats)
{
    atomic_init(&slot->done, SLOT_PARTS);
    atomic_flag_clear(&slot->failing);
    return batch_init(&slot->batch, arena, cap, record_floats);
}

int loader_init(struct loader *loader, struct arena *arena, const struct dataset *set,
                uint64_t seed, size_t cap)
{
    PL_ASSERT(set->count > 0);
    struct loader made = {.set = set, .sampler = dataset_sampler(set, seed), .slots = 1};
    int rc = init_slot(&made.slot[0], arena, cap, shape_count(&set->shape));
    if (rc == OK)
        *loader = made;
    return rc;
}

size_t loader_bytes(const struct loader *l)
{
    return l->slots * batch_bytes(&l->slot[0].batch);
}

/* ---- pieces ---- */

static struct loader_slot *slot_of(struct loader *l, uint64_t batch)
{
    return &l->slot[batch % l->slots];
}

static uint64_t queue_first(uint64_t queue)
{
    return queue >> QUEUE_BITS;
}

static uint64_t queue_count(uint64_t queue)
{
    return queue & ((1u << QUEUE_BITS) - 1);
}

/* The first number that nobody has claimed, if it is below `end`. The claimant sees what the caller
 * wrote into the slot before it queued the number. */
static bool claim_number(_Atomic uint64_t *unclaimed, uint64_t end, uint64_t *number)
{
    uint64_t queue = atomic_load(unclaimed);
    do {
        if (queue_count(queue) == 0 || queue_first(queue) >= end)
            return false;
    } while (
        !atomic_compare_exchange_weak(unclaimed, &queue, queue + ((uint64_t)1 << QUEUE_BITS) - 1));
    *number = queue_first(queue);
    return true;
}

/* A batch reports the error of its first piece that has one, as if it had been filled in order. */
static void record_failure(struct loader_slot *slot, unsigned part, int rc, const struct err *why)
{
    while (atomic_flag_test_and_set(&slot->failing))
        ;
    if (slot->status == OK || part < slot->failed) {
        slot->failed = part;
        slot->status = rc;
        slot->why = *why;
    }
    atomic_flag_clear(&slot->failing);
}

/* One part of the slot's batch more has ended. Was it the last? */
static bool end_part(struct loader_slot *slot)
{
    return atomic_fetch_add(&slot->done, 1) + 1 == SLOT_PARTS;
}

/* Have the files of a claimed batch read ahead. Was that its last part to end? */
static bool prefetch_batch(struct loader *l, uint64_t batch)
{
    struct loader_slot *slot = slot_of(l, batch);
    batch_prefetch(l->set, &l->sampler, slot->stretch.start, slot->stretch.count);
    return end_part(slot);
}

/* Fill a claimed piece. Was it the last part of its batch to end? */
static bool fill_piece(struct loader *l, uint64_t piece, struct scratch *scratch)
{
    struct loader_slot *slot = slot_of(l, piece / LOADER_PIECES);
    unsigned part = (unsigned)(piece % LOADER_PIECES);
    size_t count = slot->stretch.count;
    size_t from = count * part / LOADER_PIECES, to = count * (part + 1) / LOADER_PIECES;
    struct err why;
    int rc = batch_fill_part(&slot->batch, l->set, &l->sampler, slot->stretch.start, from,
                             to - from, scratch, &why);
    if (rc != OK)
        record_failure(slot, part, rc, &why);
    return end_part(slot);
}

/* ---- the tasks ---- */

/* One claim and what it asks for, if there is any. To ask for files takes less than to fill. */
static bool work_once(struct loader *l, struct scratch *scratch)
{
    uint64_t number;
    bool last;
    if (claim_number(&l->prefetch_queue, UINT64_MAX, &number))
        last = prefetch_batch(l, number);
    else if (claim_number(&l->queue, UINT64_MAX, &number))
        last = fill_piece(l, number, scratch);
    else
        return false;
    if (last)
        world_raise(l->world, SIGNAL_LOADER_READY);
    return true;
}

static int loader_main(void *arg)
{
    struct loader_task *me = arg;
    struct loader *l = me->loader;
    struct wake wake;
    for (;;) {
        struct wait_for want = wait_signal(l->world, SIGNAL_LOADER_WANT);
        while (work_once(l, &me->scratch))
            ;
        int rc = world_wait(l->world, &want, 1, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
    }
}

static int add_task(struct loader *l)
{
    struct loader_task *task = &l->task[l->tasks];
    task->loader = l;
    int rc = world_spawn(l->world, "loader", loader_main, task, &task->task);
    l->tasks += rc == OK;
    return rc;
}

static size_t batches_ahead(const struct loader *l)
{
    size_t most = l->ahead_bytes > 0 ? l->ahead_bytes : LOADER_AHEAD_BYTES;
    size_t fit = most / batch_bytes(&l->slot[0].batch);
    return fit < 1 ? 1 : fit > LOADER_AHEAD_MAX ? LOADER_AHEAD_MAX : fit;
}

int loader_start(struct loader *l, struct arena *arena, struct world *world, int threads)
{
    PL_ASSERT(!l->world && threads > 0);
    const struct batch *like = &l->slot[0].batch;
    int rc = OK;
    for (size_t slots = 1 + batches_ahead(l); rc == OK && l->slots < slots; l->slots += rc == OK)
        rc = init_slot(&l->slot[l->slots], arena, like->cap, like->record_floats);
    if (rc != OK)
        return rc;
    l->world = world;
    l->takes = l->hits = l->hints = l->tasks = 0;
    l->waited_s = l->window_waited_s = 0;
    l->window_begun = world_now(world);
    l->window_takes = 0;
    l->tasks_max = threads < LOADER_TASKS_MAX ? (size_t)threads : LOADER_TASKS_MAX;
    size_t tasks = (l->tasks_max + 3) / 4;
    while (rc == OK && l->tasks < tasks)
        rc = add_task(l);
    if (rc != OK)
        loader_stop(l);
    return rc;
}

/* Of the unclaimed numbers, of which each batch has so many, keep those of the batches [first,
 * last): tasks claim no others any more. */
static void keep_numbers(struct loader *l, _Atomic uint64_t *unclaimed, unsigned per_batch)
{
    uint64_t queue = atomic_load(unclaimed), begin, kept;
    uint64_t first = l->first * per_batch, end = l->last * per_batch;
    do {
        begin = queue_first(queue);
        kept = begin < first ? first : begin > end ? end : begin;
    } while (!atomic_compare_exchange_weak(unclaimed, &queue, kept << QUEUE_BITS | (end - kept)));
    for (uint64_t number = begin; number < begin + queue_count(queue); number++)
        if (number < kept || number >= end)
            end_part(slot_of(l, number / per_batch));
}

/* Keep the batches [first, last). */
static void keep_batches(struct loader *l, uint64_t first, uint64_t last)
{
    l->first = first;
    l->last = last;
    keep_numbers(l, &l->queue, LOADER_PIECES);
    keep_numbers(l, &l->prefetch_queue, 1);
}

void loader_stop(struct loader *l)
{
    if (l->world)
        keep_batches(l, l->last, l->last);
    for (size_t i = 0; i < l->tasks; i++)
        world_cancel(l->world, l->task[i].task);
    for (size_t i = 0; i < l->tasks; i++)
        world_end_task(l->world, &l->task[i].task);
    l->tasks = 0;
    l->world = NULL;
}

void loader_release(struct loader *l)
{
    PL_ASSERT(!l->world);
    for (size_t i = 0; i < l->slots; i++)
        batch_release(&l->slot[i].batch);
    for (size_t i = 0; i < LOADER_TASKS_MAX; i++)
        scratch_release(&l->task[i].scratch);
}

/* ---- the caller's side ---- */

/* Wait until all parts of the slot's batch have ended. ERR_CANCELLED */
static int await_slot(struct loader *l, struct loader_slot *slot)
{
    struct wake wake;
    for (;;) {
        struct wait_for ready = wait_signal(l->world, SIGNAL_LOADER_READY);
        if (atomic_load(&slot->done) == SLOT_PARTS)
            return OK;
        int rc = world_wait(l->world, &ready, 1, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
    }
}

/* Queue a batch behind the others. The slot's last batch is not used any more, but may have pieces
 * under way if it was dropped. ERR_CANCELLED */
static int queue_batch(struct loader *l, struct stretch stretch)
{
    struct loader_slot *slot = slot_of(l, l->last);
    int rc = await_slot(l, slot);
    if (rc != OK)
        return rc;
    slot->stretch = stretch;
    slot->status = OK;
    batch_begin(&slot->batch, l->set, &l->sampler, stretch.start, stretch.count);
    atomic_store(&slot->done, 0);
    atomic_fetch_add(&l->prefetch_queue, 1);
    atomic_fetch_add(&l->queue, LOADER_PIECES);
    l->last++;
    return OK;
}

int loader_draw(struct loader *l, const struct sampler *sampler)
{
    if (l->world) {
        keep_batches(l, l->last, l->last);
        for (size_t i = 0; i < l->slots; i++) {
            int rc = await_slot(l, &l->slot[i]);
            if (rc != OK)
                return rc;
        }
    }
    l->sampler = *sampler;
    return OK;
}

static bool is_same(struct stretch a, struct stretch b)
{
    return a.start == b.start && a.count == b.count;
}

void loader_expect(struct loader *l, uint64_t start, size_t count)
{
    if (l->hints < LOADER_AHEAD_MAX)
        l->hint[l->hints++] = (struct stretch){start, count};
}

static void learn_stride(struct loader *l, struct stretch now)
{
    uint64_t step = now.start - l->start;
    if (l->takes == 0)
        l->stride = l->stepped = now.count;
    else if (step == l->stepped)
        l->stride = step;
    else
        l->stepped = step;
    l->start = now.start;
}

/* Have the batches prepared that are expected to follow `now`, in place of others. To wake the
 * tasks takes a while: it waits until a quarter of the batches ahead is to be prepared. */
static int queue_ahead(struct loader *l, struct stretch now)
{
    struct stretch next = now;
    int rc = OK;
    learn_stride(l, now);
    for (size_t i = 0; rc == OK && i + 1 < l->slots; i++) {
        uint64_t batch = l->first + i;
        next = i < l->hints ? l->hint[i] : (struct stretch){next.start + l->stride, next.count};
        if (batch < l->last && is_same(slot_of(l, batch)->stretch, next))
            continue;
        if (batch < l->last)
            keep_batches(l, l->first, batch);
        rc = queue_batch(l, next);
    }
    if (queue_count(atomic_load(&l->queue)) >= LOADER_PIECES * ((l->slots + 2) / 4))
        world_raise(l->world, SIGNAL_LOADER_WANT);
    return rc;
}

/* Make the wanted batch the first of the queue, and the caller's. */
static int take_prepared(struct loader *l, struct stretch wanted)
{
    uint64_t batch = l->first, number;
    while (batch < l->last && !is_same(slot_of(l, batch)->stretch, wanted))
        batch++;
    bool hit = batch < l->last;
    keep_batches(l, batch, l->last);
    if (!hit) {
        int rc = queue_batch(l, wanted);
        if (rc != OK)
            return rc;
        world_raise(l->world, SIGNAL_LOADER_WANT);
    }
    struct loader_slot *slot = slot_of(l, batch);
    if (claim_number(&l->prefetch_queue, batch + 1, &number))
        end_part(slot); /* it is filled at once */
    while (claim_number(&l->queue, (batch + 1) * LOADER_PIECES, &number))
        fill_piece(l, number, &slot->batch.scratch);
    int rc = await_slot(l, slot);
    if (rc != OK)
        return rc;
    l->given = batch % l->slots;
    l->first = batch + 1;
    rc = queue_ahead(l, wanted);
    l->takes++;
    l->hits += hit;
    return rc;
}

/* Where the caller waits, tasks compete with its threads; but then these wait, too. */
static void add_tasks_if_late(struct loader *l, int64_t now)
{
    double lasted_s = world_seconds(now - l->window_begun);
    double waited_s = l->waited_s - l->window_waited_s, worked_s = lasted_s - waited_s;
    if (l->takes - l->window_takes < LOADER_WINDOW && lasted_s < LOADER_WINDOW_S)
        return;
    l->window_begun = now;
    l->window_takes = l->takes;
    l->window_waited_s = l->waited_s;
    size_t more = waited_s <= 0.1 * lasted_s ? 0
                  : waited_s >= worked_s     ? l->tasks
                                             : 1 + (size_t)((double)l->tasks * waited_s / worked_s);
    for (; more > 0 && l->tasks < l->tasks_max; more--)
        if (add_task(l) != OK)
            l->tasks_max = l->tasks;
}

static int take_timed(struct loader *l, struct stretch wanted)
{
    int64_t begun = world_now(l->world);
    int rc = take_prepared(l, wanted);
    int64_t now = world_now(l->world);
    l->waited_s += world_seconds(now - begun);
    if (rc == OK)
        add_tasks_if_late(l, now);
    return rc;
}

int loader_take(struct loader *l, uint64_t start, size_t count, const struct batch **batch,
                struct err *err)
{
    struct stretch wanted = {start, count};
    struct loader_slot *slot = &l->slot[l->given];
    if (l->world) {
        int rc = take_timed(l, wanted);
        if (rc != OK)
            return err_set(err, rc, "no batch: %s", status_text(rc));
        slot = &l->slot[l->given];
    } else {
        slot->status = batch_fill(&slot->batch, l->set, &l->sampler, start, count, &slot->why);
    }
    l->hints = 0;
    if (slot->status != OK)
        return err_set(err, slot->status, "%s", slot->why.text);
    *batch = &slot->batch;
    return OK;
}

struct batch *loader_spare(struct loader *l)
{
    return &l->slot[l->given].batch;
}
