#include "coll/coll_plan.h"

#include "base/array.h"
#include "base/fault.h"

#include <stdlib.h>
#include <string.h>

/* The spans that a step reads and writes; a reduction's own range counts as written, and so does a
 * range of results that the sender rounds. */
static struct span read_span(const struct step *s)
{
    switch (s->kind) {
    case STEP_SEND: return (struct span){s->at, s->len};
    case STEP_FOLD:
    case STEP_COPY: return (struct span){s->source, s->len};
    default: return (struct span){0, 0};
    }
}

static struct span written_span(const struct coll_plan *plan, size_t number)
{
    const struct step *s = &plan->schedule.step[number];
    bool rounds = s->final && plan_codec(plan, number) != CODEC_F32;
    return s->kind == STEP_SEND && !rounds ? (struct span){0, 0} : (struct span){s->at, s->len};
}

static bool spans_overlap(struct span a, struct span b)
{
    return a.len > 0 && b.len > 0 && a.at < b.at + b.len && b.at < a.at + a.len;
}

static bool span_covers(struct span a, struct span b)
{
    return b.len == 0 || (a.at <= b.at && b.at + b.len <= a.at + a.len);
}

static bool step_depends(const struct coll_plan *plan, size_t later, size_t earlier)
{
    struct span read = read_span(&plan->schedule.step[later]), written = written_span(plan, later);
    struct span before = written_span(plan, earlier);
    return spans_overlap(before, read) || spans_overlap(before, written) ||
           spans_overlap(read_span(&plan->schedule.step[earlier]), written);
}

/* ---- may it begin? ---- */

/* Has every piece of `range` that touches `span` ended? The first `done` floats of `range` have. */
static bool span_passed(struct span range, size_t done, struct span span)
{
    size_t end =
        range.at + range.len < span.at + span.len ? range.at + range.len : span.at + span.len;
    return !spans_overlap(range, span) || end <= range.at + done;
}

/* Floats at the beginning of a step's range that it needs no longer. */
static size_t done_with(const struct coll_plan *plan, size_t number)
{
    const struct flow *f = &plan->flow[number];
    size_t pieces = plan_passed(f);
    return pieces < f->pieces ? pieces * plan->config.chunk : plan->schedule.step[number].len;
}

bool plan_examine(struct coll_plan *plan, size_t number)
{
    const struct step *step = &plan->schedule.step[number];
    struct flow *flow = &plan->flow[number];
    struct span in = read_span(step), out = written_span(plan, number);
    in = in.len ? plan_piece(plan, in.at, in.len, flow->begun) : in;
    out = out.len ? plan_piece(plan, out.at, out.len, flow->begun) : out;
    flow->held = false;
    for (size_t i = 0; i < flow->needs; i++) {
        size_t before = plan->needs[flow->first_need + i], done = done_with(plan, before);
        struct span read = read_span(&plan->schedule.step[before]),
                    written = written_span(plan, before);
        if (span_passed(written, done, in) && span_passed(written, done, out) &&
            span_passed(read, done, out))
            continue;
        flow->held = true;
        flow->held_by = before;
        flow->held_at = plan_passed(&plan->flow[before]);
        return false;
    }
    return true;
}

/* ---- making one ---- */

struct need_list {
    size_t *at;
    size_t count, room;
};

static int need_put(struct need_list *list, size_t number)
{
    if (!array_grow(&list->at, list->count, &list->room, sizeof *list->at))
        return ERR_NOMEM;
    list->at[list->count++] = number;
    return OK;
}

/* Earlier steps that this one waits for. Once steps have been met that wrote all it touches, those
 * before them need no naming: they were waited for there. */
static int find_needs(struct coll_plan *plan, size_t number, struct need_list *list)
{
    struct span in = read_span(&plan->schedule.step[number]), out = written_span(plan, number);
    struct flow *flow = &plan->flow[number];
    bool read = in.len == 0, written = out.len == 0;
    flow->first_need = list->count;
    for (size_t i = number; i-- > 0 && !(read && written);) {
        if (!step_depends(plan, number, i))
            continue;
        if (need_put(list, i) != OK)
            return ERR_NOMEM;
        read = read || span_covers(written_span(plan, i), in);
        written = written || span_covers(written_span(plan, i), out);
    }
    flow->needs = list->count - flow->first_need;
    return OK;
}

/* A lossy codec encodes a piece into scratch memory when its sending begins. */
static void find_passing(struct coll_plan *plan)
{
    for (size_t i = 0; i < plan->schedule.count; i++)
        plan->flow[i].until_begun =
            plan->schedule.step[i].kind == STEP_SEND && plan_codec(plan, i) != CODEC_F32;
}

/* The first sender of a result rounds it to the codec and keeps the rounding error; ranks that
 * forward the result, or send it to others, send the rounded value. */
static void find_first_codes(struct coll_plan *plan)
{
    const struct step *step = plan->schedule.step;
    for (size_t i = 0; plan->config.codec != CODEC_F32 && i < plan->schedule.count; i++) {
        bool first = step[i].kind == STEP_SEND && step[i].final;
        const struct span range = {step[i].at, step[i].len};
        for (size_t k = 0; first && k < i; k++)
            first = !step[k].final || !spans_overlap((struct span){step[k].at, step[k].len}, range);
        plan->flow[i].codes_first = first;
    }
}

/* A step touches ranges that no step before has touched, or some before have touched all of it. */
static void find_first(struct coll_plan *plan)
{
    const struct step *step = plan->schedule.step;
    for (size_t i = 0; i < plan->schedule.count; i++) {
        const struct span range = {step[i].at, step[i].len};
        bool first = true;
        for (size_t k = 0; first && k < i; k++)
            first = !spans_overlap((struct span){step[k].at, step[k].len}, range);
        plan->flow[i].first = first;
    }
}

/* Number the pieces between two ranks in the order of the schedules, each direction on its own,
 * partial sums apart from results. Both sides compute the same numbers. */
static int number_pieces(struct coll_plan *plan)
{
    const struct schedule *s = &plan->schedule;
    uint32_t(*next)[4] = calloc(s->ranks, sizeof *next);
    if (!next)
        return ERR_NOMEM;
    bool fits = true;
    for (size_t i = 0; i < s->count; i++) {
        const struct step *step = &s->step[i];
        struct flow *flow = &plan->flow[i];
        flow->pieces = (step->len + plan->config.chunk - 1) / plan->config.chunk;
        if (step->kind == STEP_FOLD || step->kind == STEP_COPY)
            continue;
        uint32_t *count = &next[step->peer][2 * (step->kind == STEP_SEND) + step->final];
        flow->first_piece = *count;
        fits =
            fits && flow->pieces < WIRE_HEADER_PIECE && *count + flow->pieces < WIRE_HEADER_PIECE;
        *count += (uint32_t)flow->pieces;
    }
    free(next);
    return fits ? OK : ERR_FULL;
}

static int make_room(struct coll_plan *plan)
{
    const struct coll_config *config = &plan->config;
    size_t ports = PLAN_SENDS + PLAN_RECVS, piece = codec_bytes(config->codec, config->chunk);
    bool coded = config->codec != CODEC_F32 && !config->phantom;
    plan->ports = calloc(ports, sizeof *plan->ports);
    if (!plan->ports)
        return ERR_NOMEM;
    if (plan->schedule.scratch && !config->phantom) {
        plan->scratch = calloc(plan->schedule.scratch, sizeof *plan->scratch);
        if (!plan->scratch)
            return ERR_NOMEM;
    }
    if (!coded)
        return OK;
    plan->stage = calloc(ports, piece);
    plan->decoded = calloc(config->chunk, sizeof *plan->decoded);
    if (!plan->stage || !plan->decoded)
        return ERR_NOMEM;
    for (size_t i = 0; i < ports; i++)
        plan->ports[i].stage = plan->stage + i * piece;
    return OK;
}

int coll_plan_make(struct coll_plan *plan, struct schedule *schedule,
                   const struct coll_config *config)
{
    PL_ASSERT(config->chunk > 0);
    *plan = (struct coll_plan){.schedule = *schedule, .config = *config};
    *schedule = (struct schedule){0};
    plan->flow = calloc(plan->schedule.count + 1, sizeof *plan->flow);
    int rc = plan->flow ? OK : ERR_NOMEM;
    while (rc == OK && (rc = number_pieces(plan)) == ERR_FULL) {
        plan->config.chunk *= 2;
        bool fits = plan->config.chunk * sizeof(float) <= WORLD_MESSAGE_MAX;
        rc = fits ? OK : ERR_UNSUPPORTED;
    }
    if (rc == OK) {
        find_passing(plan);
        find_first_codes(plan);
        find_first(plan);
    }
    struct need_list needs = {0};
    for (size_t i = 0; rc == OK && i < plan->schedule.count; i++)
        rc = find_needs(plan, i, &needs);
    plan->needs = needs.at;
    if (rc == OK)
        rc = make_room(plan);
    if (rc != OK)
        coll_plan_release(plan);
    return rc;
}

void coll_plan_release(struct coll_plan *plan)
{
    schedule_release(&plan->schedule);
    free(plan->flow);
    free(plan->needs);
    free(plan->ports);
    free(plan->scratch);
    free(plan->stage);
    free(plan->decoded);
    *plan = (struct coll_plan){0};
}
