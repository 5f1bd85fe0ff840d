#include "kv/fetch_plan.h"

#include "base/fault.h"
#include "kv/kv_message.h"

#include <stdlib.h>
#include <string.h>

enum { NEEDED, UNDER_WAY, HERE };

int kv_plan_init(struct kv_plan *plan, const struct kv_meta *meta)
{
    memset(plan, 0, sizeof *plan);
    plan->meta = *meta;
    plan->pieces = kv_pieces(meta->size);
    plan->state = calloc(plan->pieces + 1, sizeof *plan->state);
    plan->providers = calloc(plan->pieces + 1, sizeof *plan->providers);
    plan->hash = calloc(plan->pieces + 1, sizeof *plan->hash);
    if (plan->state && plan->providers && plan->hash)
        return OK;
    kv_plan_release(plan);
    return ERR_NOMEM;
}

void kv_plan_release(struct kv_plan *plan)
{
    free(plan->state);
    free(plan->providers);
    free(plan->hash);
    memset(plan, 0, sizeof *plan);
}

void kv_plan_sources(struct kv_plan *plan, const uint32_t *node, uint32_t count)
{
    plan->sources = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!members_has(&plan->liars, node[i]))
            plan->source[plan->sources++] = (struct kv_source){.node = node[i]};
}

/* With `alone`, the first that is not out. */
static bool may_request(struct kv_plan *plan, uint32_t s, int64_t now)
{
    struct kv_source *source = &plan->source[s];
    if (source->state == KV_RESTS && source->until <= now)
        source->state = KV_LIVE;
    for (uint32_t before = 0; plan->alone && before < s; before++)
        if (plan->source[before].state != KV_OUT)
            return false;
    return source->state == KV_LIVE && source->under_way < KV_WINDOW;
}

static void send_off(struct kv_plan *plan, uint32_t s, uint32_t piece, int64_t now)
{
    struct kv_source *source = &plan->source[s];
    plan->state[piece] = UNDER_WAY;
    plan->providers[piece] = (uint8_t)s;
    if (source->under_way++ == 0)
        source->last_piece = now;
}

static bool all_under_way(struct kv_plan *plan)
{
    while (plan->next < plan->pieces && plan->state[plan->next] != NEEDED)
        plan->next++;
    return plan->next == plan->pieces;
}

bool kv_plan_next(struct kv_plan *plan, int64_t now, uint32_t *s, uint32_t *piece)
{
    uint32_t best = plan->sources;
    for (uint32_t i = 0; i < plan->sources; i++)
        if (may_request(plan, i, now) &&
            (best == plan->sources || plan->source[i].under_way < plan->source[best].under_way))
            best = i;
    if (best == plan->sources || all_under_way(plan))
        return false;
    send_off(plan, best, plan->next, now);
    *s = best;
    *piece = plan->next;
    return true;
}

/* Predicted time until the last piece under way from a source arrives: by its pace, or by the
 * length of its silence if that is longer. */
static int64_t left_at(const struct kv_source *source, int64_t now)
{
    int64_t silent = now - source->last_piece;
    return (silent > source->pace ? silent : source->pace) * (int64_t)source->under_way;
}

/* The idle source that is the fastest; `sources`: none. */
static uint32_t idle_source(struct kv_plan *plan, int64_t now)
{
    uint32_t best = plan->sources;
    for (uint32_t s = 0; s < plan->sources; s++) {
        const struct kv_source *source = &plan->source[s];
        if (may_request(plan, s, now) && source->under_way == 0 && source->pace > 0 &&
            (best == plan->sources || source->pace < plan->source[best].pace))
            best = s;
    }
    return best;
}

bool kv_plan_move(struct kv_plan *plan, int64_t now, uint32_t *from, uint32_t *to, uint32_t *piece)
{
    uint32_t idle = idle_source(plan, now), slowest = 0, last = plan->pieces;
    if (plan->alone || idle == plan->sources || !all_under_way(plan))
        return false;
    for (uint32_t s = 1; s < plan->sources; s++)
        if (left_at(&plan->source[s], now) > left_at(&plan->source[slowest], now))
            slowest = s;
    if (left_at(&plan->source[slowest], now) <= 2 * plan->source[idle].pace)
        return false;
    while (plan->state[last - 1] != UNDER_WAY || plan->providers[last - 1] != slowest)
        last--;
    plan->source[slowest].under_way--;
    send_off(plan, idle, last - 1, now);
    *from = slowest;
    *to = idle;
    *piece = last - 1;
    return true;
}

void kv_plan_landed(struct kv_plan *plan, uint32_t s, uint32_t piece, uint64_t hash, int64_t now)
{
    PL_ASSERT(plan->state[piece] == UNDER_WAY && plan->source[s].under_way > 0);
    plan->state[piece] = HERE;
    plan->hash[piece] = hash;
    struct kv_source *source = &plan->source[s];
    int64_t took = now > source->last_piece ? now - source->last_piece : 1;
    source->pace = source->pace ? (3 * source->pace + took) / 4 : took;
    source->last_piece = now;
    source->under_way--;
    plan->have++;
    members_add(&plan->givers, source->node);
}

void kv_plan_failed(struct kv_plan *plan, uint32_t s, uint32_t piece)
{
    PL_ASSERT(plan->state[piece] == UNDER_WAY && plan->source[s].under_way > 0);
    plan->state[piece] = NEEDED;
    plan->source[s].under_way--;
    if (piece < plan->next)
        plan->next = piece;
}

static void restart_plan(struct kv_plan *plan)
{
    for (uint32_t i = 0; i < plan->pieces; i++)
        if (plan->state[i] == HERE)
            plan->state[i] = NEEDED;
    plan->have = 0;
    plan->next = 0;
    plan->givers = (struct members){{0}};
}

void kv_plan_out(struct kv_plan *plan, uint32_t s)
{
    PL_ASSERT(plan->source[s].under_way == 0);
    plan->source[s].state = KV_OUT;
    if (plan->alone)
        restart_plan(plan); /* all pieces must come from one holder */
}

void kv_plan_rest(struct kv_plan *plan, uint32_t s, int64_t until)
{
    plan->source[s].state = KV_RESTS;
    plan->source[s].until = until;
}

int kv_plan_check(struct kv_plan *plan, uint32_t *liar)
{
    PL_ASSERT(plan->have == plan->pieces);
    if (kv_checksum_pieces(plan->hash, plan->meta.size) == plan->meta.checksum)
        return OK;
    *liar = WORLD_ANY;
    if (members_count(&plan->givers) == 1) {
        *liar = members_next(&plan->givers, 0);
        members_add(&plan->liars, *liar);
        for (uint32_t s = 0; s < plan->sources; s++)
            if (plan->source[s].node == *liar)
                plan->source[s].state = KV_OUT;
    }
    plan->alone = true;
    restart_plan(plan);
    return ERR_PROTOCOL;
}

bool kv_plan_stuck(const struct kv_plan *plan)
{
    for (uint32_t s = 0; s < plan->sources; s++)
        if (plan->source[s].state != KV_OUT)
            return false;
    return true;
}

int64_t kv_plan_wakes(const struct kv_plan *plan, int64_t now)
{
    int64_t first = WORLD_FOREVER;
    uint32_t busy = 0;
    for (uint32_t s = 0; s < plan->sources; s++) {
        const struct kv_source *source = &plan->source[s];
        busy += source->under_way > 0;
        if (source->state == KV_RESTS && source->until < first)
            first = source->until;
    }
    for (uint32_t s = 0; busy && !plan->alone && s < plan->sources; s++) {
        const struct kv_source *source = &plan->source[s];
        if (source->state == KV_LIVE && source->under_way == 0 && source->pace > 0 &&
            now + source->pace < first)
            first = now + source->pace;
    }
    return first;
}

uint64_t kv_plan_bytes(const struct kv_plan *plan)
{
    bool last = plan->pieces > 0 && plan->state[plan->pieces - 1] == HERE;
    uint64_t bytes = (uint64_t)plan->have * KV_PIECE;
    return last ? bytes - KV_PIECE + kv_piece_len(plan, plan->pieces - 1) : bytes;
}
