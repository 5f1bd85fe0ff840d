#include "coll/split.h"

#include "base/fault.h"
#include "coll/note.h"

enum {
    LINK_PIECES = 16, /* of a part: links of a chain are all busy but for the first few */
    PIECE_MIN = 2048, /* floats; unless the job asks for smaller ones */
};

static bool at_root(const struct exchange *e)
{
    return e->how.split == EXCHANGE_AT_ROOT;
}

/* Floats of a piece: a part must be many, or its chain stands still while it fills. */
static size_t piece_of(const struct exchange *e, size_t ranks)
{
    size_t piece = e->n_floats / ranks / LINK_PIECES;
    piece = piece > PIECE_MIN ? piece : PIECE_MIN;
    return piece < e->how.chunk ? piece : e->how.chunk;
}

static int plan_half(const struct exchange *e, struct coll_plan *plan, int rc,
                     struct schedule *schedule)
{
    const struct coll_how how = {
        .chunk = piece_of(e, schedule->ranks),
        .codec = e->how.codec,
        .serialise = e->group->world->costs.crypto,
        .reduce = e->group->world->costs.reduce,
    };
    coll_plan_release(plan);
    if (rc == OK)
        rc = coll_plan_make(plan, schedule, &how);
    schedule_release(schedule);
    return rc;
}

static int plan_for(struct exchange *e, const struct coll *c)
{
    size_t ranks = c->ranks->count, me = c->ranks->me, n = e->n_floats;
    struct schedule there, back;
    if (e->planned_in == c->view->number)
        return OK;
    e->planned_in = 0;
    int rc = at_root(e) ? schedule_relay_reduce(&there, ranks, me, n)
                        : schedule_reduce_scatter(&there, ranks, me, n, NULL);
    rc = plan_half(e, &e->plan, rc, &there);
    if (rc != OK)
        return rc;
    rc = at_root(e) ? schedule_relay_broadcast(&back, ranks, me, n)
                    : schedule_all_gather(&back, ranks, me, n, NULL);
    rc = plan_half(e, &e->back, rc, &back);
    if (rc == OK)
        e->planned_in = c->view->number;
    return rc;
}

/* ---- turns ---- */

static int enter(const struct exchange *e, struct coll *c, enum stage stage)
{
    struct stages *stages = e->how.stages;
    while (stages) {
        uint64_t seen = world_raised(stages->world, stages->signal);
        if (stages_clear(stages, e->lane, stage))
            break;
        const struct wait_for turn = {.kind = WAIT_SIGNAL, .signal = stages->signal, .seen = seen};
        struct wake wake;
        int rc = coll_wait(c, &turn, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static void pass(const struct exchange *e, enum stage stage)
{
    if (e->how.stages)
        stages_set(e->how.stages, e->lane, e->completed, stage + 1);
}

/* ---- the stages ---- */

/* Owners need the sum of the weights; the root sends it along with what it prepared. */
static int reduce(struct exchange *e, struct coll *c, struct vec *x, float *owed,
                  struct tally *tally, void (*merge_tally)(void *note, const void *other))
{
    struct tally other;
    int rc = enter(e, c, STAGE_REDUCE);
    *tally = e->mine;
    e->stage = EXCHANGE_GATHERS;
    if (rc == OK)
        rc = note_reduce(c, tally, sizeof *tally, &other, merge_tally);
    if (rc == OK && !at_root(e))
        rc = note_broadcast(c, tally, sizeof *tally);
    e->stage = EXCHANGE_REDUCES;
    if (rc == OK)
        rc = coll_run(c, &e->plan, x->at, e->mine.weight > 0 ? owed : NULL);
    if (rc == OK)
        pass(e, STAGE_REDUCE);
    return rc;
}

static int prepare(struct exchange *e, struct coll *c, struct vec *x, struct tally *tally)
{
    size_t parts = at_root(e) ? 1 : c->ranks->count, me = c->ranks->me;
    int rc = enter(e, c, STAGE_PREPARE);
    if (rc == OK && me < parts) {
        size_t from = schedule_cut(x->n, parts, me), end = schedule_cut(x->n, parts, me + 1);
        rc = e->how.prepare(e->how.user, (struct range){from, end - from}, x->at + from, tally);
    }
    if (rc == OK && at_root(e))
        rc = note_broadcast(c, tally, sizeof *tally);
    if (rc == OK)
        pass(e, STAGE_PREPARE);
    return rc;
}

static int broadcast(struct exchange *e, struct coll *c, struct vec *x, float *owed)
{
    int rc = enter(e, c, STAGE_BROADCAST);
    return rc == OK ? coll_run(c, &e->back, x->at, owed) : rc;
}

/* Members come when they can, and who is waited for is alive: only the end of the view ends it. */
int split_run(struct exchange *e, struct coll *c,
              void (*merge_tally)(void *note, const void *other))
{
    struct vec *x = &e->result[c->n & 1], *debt = &e->residual[c->n & 1];
    struct tally *tally = &e->tally[c->n & 1];
    float *owed = debt->n > 0 ? debt->at : NULL;
    PL_ASSERT(!at_root(e) || e->driver_takes_part);
    c->patient = true;
    c->stripes = e->how.stripes;
    int rc = plan_for(e, c);
    if (rc == OK)
        rc = reduce(e, c, x, owed, tally, merge_tally);
    if (rc == OK)
        rc = prepare(e, c, x, tally);
    if (rc == OK)
        rc = broadcast(e, c, x, owed);
    c->patient = false;
    return rc;
}
