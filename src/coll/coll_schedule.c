#include "coll/coll_schedule.h"

#include "base/array.h"
#include "base/fault.h"
#include "base/minmax.h"
#include "base/status.h"
#include "tensor/codec.h"
#include "tensor/vec.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[COLL_ALGORITHMS] = {
    [COLL_AUTO] = "auto",
    [COLL_TREE] = "tree",
    [COLL_BUTTERFLY] = "butterfly",
    [COLL_RING] = "ring",
    [COLL_CHUNKED_RING] = "chunked_ring",
    [COLL_HALVING_DOUBLING] = "halving_doubling",
    [COLL_SCATTER_GATHER] = "scatter_gather",
};

const char *coll_algorithm_name(enum coll_algorithm algorithm)
{
    return algorithm < COLL_ALGORITHMS ? names[algorithm] : NULL;
}

enum coll_algorithm coll_algorithm_find(const char *name)
{
    int i = 0;
    while (i < COLL_ALGORITHMS && strcmp(names[i], name) != 0)
        i++;
    return (enum coll_algorithm)i;
}

void schedule_begin(struct schedule *s, size_t ranks, size_t me, size_t n)
{
    PL_ASSERT(me < ranks);
    *s = (struct schedule){.ranks = ranks, .me = me, .n = n};
}

int schedule_end(const struct schedule *s)
{
    return s->failed ? ERR_NOMEM : OK;
}

void schedule_release(struct schedule *s)
{
    free(s->step);
    *s = (struct schedule){0};
}

/* Nothing is moved by empty steps, so there are none. */
static void put_step(struct schedule *s, const struct step *step)
{
    if (s->failed || step->len == 0)
        return;
    s->failed = !array_grow(&s->step, s->count, &s->room, sizeof *s->step);
    if (!s->failed)
        s->step[s->count++] = *step;
    size_t end = step->at + step->len;
    if (end > s->n + s->scratch)
        s->scratch = end - s->n;
}

void schedule_send(struct schedule *s, size_t to, size_t at, size_t len, bool final)
{
    PL_ASSERT(to < s->ranks && to != s->me);
    put_step(s, &(struct step){STEP_SEND, final, (uint32_t)to, at, len, 0, false});
}

void schedule_recv(struct schedule *s, size_t from, size_t at, size_t len, bool final)
{
    PL_ASSERT(from < s->ranks && from != s->me);
    put_step(s, &(struct step){STEP_RECV, final, (uint32_t)from, at, len, 0, false});
}

void schedule_add(struct schedule *s, size_t from, size_t at, size_t len)
{
    PL_ASSERT(from < s->ranks && from != s->me);
    put_step(s, &(struct step){STEP_REDUCE, false, (uint32_t)from, at, len, 0, false});
}

void schedule_fold(struct schedule *s, size_t source, size_t at, size_t len)
{
    put_step(s, &(struct step){STEP_FOLD, false, 0, at, len, source, false});
}

void schedule_copy(struct schedule *s, size_t source, size_t at, size_t len)
{
    put_step(s, &(struct step){STEP_COPY, false, 0, at, len, source, false});
}

size_t schedule_cut(size_t n, size_t parts, size_t i)
{
    /* Codes of parts are parts of the code of the whole. */
    size_t unit = n / CODEC_BLOCK >= parts ? CODEC_BLOCK : 1;
    return i == parts ? n : range_cut(n, parts, i, unit).from;
}

/* The part of a step in [from, end). */
static void put_part(struct schedule *s, struct step part, size_t from, size_t end, bool exact)
{
    size_t at = max_size(part.at, from), stop = min_size(part.at + part.len, end);
    part.at = at;
    part.len = stop > at ? stop - at : 0;
    part.exact = exact;
    put_step(s, &part);
}

int schedule_set_exact(struct schedule *s, size_t from, size_t len)
{
    struct schedule whole = *s;
    if (len == 0 || s->failed)
        return schedule_end(s);
    PL_ASSERT(s->scratch == 0 && from + len <= s->n);
    schedule_begin(s, whole.ranks, whole.me, whole.n);
    for (size_t i = 0; i < whole.count; i++) {
        put_part(s, whole.step[i], 0, from, false);
        put_part(s, whole.step[i], from, from + len, true);
        put_part(s, whole.step[i], from + len, s->n, false);
    }
    schedule_release(&whole);
    return schedule_end(s);
}

/* ---- ranks beyond a power of two ---- */

struct folded schedule_folded(size_t ranks, size_t me)
{
    struct folded f = {.power = 1};
    while (2 * f.power <= ranks)
        f.power *= 2;
    f.extra = ranks - f.power;
    f.out = me < 2 * f.extra && me % 2 == 0;
    f.rank = me < 2 * f.extra ? me / 2 : me - f.extra;
    return f;
}

size_t schedule_unfolded(size_t ranks, size_t rank)
{
    struct folded f = schedule_folded(ranks, 0);
    return rank < f.extra ? 2 * rank + 1 : rank + f.extra;
}

void schedule_fold_in(struct schedule *s, const struct folded *f)
{
    if (s->me >= 2 * f->extra)
        return;
    if (f->out)
        schedule_send(s, s->me + 1, 0, s->n, false);
    else
        schedule_add(s, s->me - 1, 0, s->n);
}

void schedule_fold_out(struct schedule *s, const struct folded *f)
{
    if (s->me >= 2 * f->extra)
        return;
    if (f->out)
        schedule_recv(s, s->me + 1, 0, s->n, true);
    else
        schedule_send(s, s->me - 1, 0, s->n, true);
}

int schedule_allreduce(struct schedule *s, enum coll_algorithm algorithm, size_t ranks, size_t me,
                       size_t n, const size_t *cut)
{
    schedule_begin(s, ranks, me, n);
    switch (algorithm) {
    case COLL_TREE: schedule_tree(s); break;
    case COLL_BUTTERFLY: schedule_butterfly(s); break;
    case COLL_RING: schedule_ring(s); break;
    case COLL_CHUNKED_RING: schedule_chunked_ring(s); break;
    case COLL_HALVING_DOUBLING: schedule_halving_doubling(s); break;
    case COLL_SCATTER_GATHER: schedule_scatter_gather(s, cut); break;
    default: PL_ASSERT(!"an algorithm has been chosen");
    }
    return schedule_end(s);
}
