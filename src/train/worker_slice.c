#include "train/worker_slice.h"

#include "base/fault.h"
#include "strategy/slice_group.h"
#include "tensor/columns.h"
#include "train/model_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- evaluation ---- */

static int meet_others(void *user, const struct net_point *point)
{
    const struct learner *l = user;
    return l->meet(l->meet_user, point);
}

static int draw_text(struct objectives *o, const struct vec *x, struct vec *s,
                     struct drawn_text *text)
{
    struct buf drawn = {0};
    int rc = objectives_draw(o, x, s, &drawn);
    if (rc == OK) {
        PL_ASSERT(drawn.len <= text->room);
        text->len = drawn.len;
        if (drawn.len > 0)
            memcpy(text->at, drawn.data, drawn.len);
    }
    buf_release(&drawn);
    return rc;
}

/* At the end of the run the final model is evaluated, and again where another view interrupts that,
 * which may have ended for some mates. */
static int evaluate_slice(struct member *m, uint32_t uses, bool ended)
{
    struct worker *w = m->train;
    struct objectives *o = &w->objectives;
    struct model_scores scores = {
        .here = true, .exchanges = m->progress.exchanges, .text = m->scores.text};
    if (!(uses & MODEL_EVALUATE) && !ended)
        return OK;
    struct vec x = *m->model.x, state = *m->model.s;
    int rc = objectives_measure(o, &x, &state, m->progress.steps, scores.sum);
    if (rc == OK)
        rc = draw_text(o, &x, &state, &scores.text);
    if (rc == OK)
        m->scores = scores;
    else if (rc == o->err.status)
        w->learner.err = o->err;
    return rc;
}

/* ---- offers ---- */

static int send_offer(struct worker *w, uint32_t uses, uint32_t view)
{
    const struct member *m = &w->member;
    const struct model_header header = {
        .progress = m->progress,
        .use = uses,
        .has_state = m->model.states > 0,
        .has_extra = m->model.extra && w->strategy->extras > 0,
        .has_carried = m->model.carried_table != NULL,
        .updates = w->learner.optim.updates,
        .parts_in = view,
        .scores = m->scores,
    };
    return model_send_header(w->world, WORLD_DRIVER, &header);
}

static int offer_slice(struct member *m, struct coll *c, uint32_t uses, bool speaks)
{
    struct worker *w = m->train;
    int rc = speaks ? send_offer(w, uses, c->view->number) : OK;
    if (rc == OK)
        rc = model_parts_serve(c, &m->model, w->strategy->extras);
    if (rc == ERR_PEER) /* the driver is lost, and the next one asks for what it needs */
        rc = OK;
    if (rc == OK)
        atomic_fetch_and(&m->group->model_requests, ~uses);
    return rc;
}

int worker_slice_offer(struct worker *w, uint32_t uses)
{
    int rc = send_offer(w, uses, group_view(&w->group)->number);
    return rc == ERR_PEER ? OK : rc;
}

/* ---- behind the loop ---- */

/* The slices of this worker's replica in a view, and the driver. false: they are not all there. */
static bool rank_slices(const struct worker *w, const struct view *view, struct ranks *ranks)
{
    size_t slices = w->job->slices;
    uint32_t seat = view_seat(view, w->world->self);
    if (seat == VIEW_NO_SEAT || seat % slices != w->data.ws->slice.index)
        return false;
    *ranks = (struct ranks){.count = slices + 1, .me = seat % slices};
    ranks->node[slices] = WORLD_DRIVER;
    for (size_t f = 0; f < slices; f++) {
        ranks->node[f] = view_seated(view, (uint32_t)(seat / slices * slices + f));
        if (ranks->node[f] == VIEW_MEMBERS_MAX)
            return false;
    }
    return true;
}

static int serve_in(struct worker *w, const struct view *view)
{
    struct ranks ranks;
    struct coll c = {
        .group = &w->group, .view = view, .ranks = &ranks, .lane = PARTS_LANE, .patient = true};
    if (!rank_slices(w, view, &ranks))
        return ERR_VIEW;
    int rc = OK;
    while (rc == OK)
        rc = model_parts_serve(&c, &w->member.model, w->strategy->extras);
    return rc;
}

static int serve_main(void *arg)
{
    struct worker *w = arg;
    int rc = OK;
    while (rc == OK) {
        const struct view *view = group_view(&w->group);
        rc = serve_in(w, view);
        if (rc == ERR_VIEW)
            rc = group_wait_view(&w->group, view->number, WORLD_FOREVER);
    }
    return rc;
}

int worker_slice_serve(struct worker *w)
{
    return world_spawn(w->world, "slice", serve_main, w, &w->serving);
}

void worker_slice_end(struct worker *w)
{
    world_end_task(w->world, &w->serving);
}

/* ---- a state to begin with ---- */

enum {
    SHORT_FLOATS = 4 * 1024, /* a request takes as long as so many more floats of an answer */
    ROOM_FLOATS = 64 * 1024,
};

/* Blocks of which this slice has little, as rows of an Embed: many at once, with the floats of
 * other slices between. */
static int fetch_blocks(struct worker *w, const struct segment *segment, size_t from,
                        const struct model_slice *slice, float *into)
{
    size_t blocks = slice_blocks(segment), len = segment->len / blocks, n = ROOM_FLOATS / len;
    struct columns own = {n, segment->units, len / segment->units,
                          slice_units(slice, segment->units)};
    float *room = malloc(ROOM_FLOATS * sizeof *room);
    if (!room)
        return err_set(&w->err, ERR_NOMEM, "out of memory for a slice of \"%s\"", segment->name);
    int rc = OK;
    for (size_t block = 0; rc == OK && block < blocks; block += n) {
        own.rows = n < blocks - block ? n : blocks - block;
        rc = bootstrap_take_range(&w->group, from + block * len, own.rows * len, room);
        if (rc == OK)
            columns_get(&own, room, into);
        into += columns_floats(&own);
    }
    free(room);
    return rc;
}

static int fetch_segment(struct worker *w, const struct segment *segment, size_t from,
                         const struct model_slice *slice, float *into)
{
    size_t blocks = slice_blocks(segment), own = slice_of_block(slice, segment, 0).len;
    size_t len = segment->len / blocks, n = ROOM_FLOATS / len;
    if (blocks > 1 && n > 1 && len + SHORT_FLOATS / n < own + SHORT_FLOATS)
        return fetch_blocks(w, segment, from, slice, into);
    int rc = OK;
    for (size_t block = 0; rc == OK && block < blocks; block++, into += own)
        rc = bootstrap_take_range(&w->group, from + slice_of_block(slice, segment, block).from, own,
                                  into);
    return rc;
}

static int fetch_vector(struct worker *w, const struct segments *whole, size_t from,
                        const struct model_slice *slice, float *into)
{
    int rc = OK;
    for (size_t i = 0, at = 0; rc == OK && i < whole->count; i++) {
        const struct segment *segment = &whole->at[i];
        rc = fetch_segment(w, segment, from + segment->offset, slice, into + at);
        at = slice_next_segment(slice, segment, at);
    }
    return rc;
}

/* The states of all streams: those that this slice does not compute it needs, too. */
static int fetch_streams(struct worker *w, size_t from)
{
    struct carried_state *c = &w->learner.carried;
    size_t n = carried_state_floats(c->streams, c->row);
    float *table = n > 0 ? malloc(n * sizeof *table) : NULL;
    if (n > 0 && !table)
        return err_set(&w->err, ERR_NOMEM, "out of memory for the states of %zu streams",
                       c->streams);
    int rc = n > 0 ? bootstrap_take_range(&w->group, from, n, table) : OK;
    if (n > 0 && rc == OK)
        carried_state_import(c, table, w->data.ws->slice.index == 0);
    free(table);
    return rc;
}

int worker_slice_fetch(struct worker *w, const struct model_header *header)
{
    struct learner *l = &w->learner;
    const struct segments *whole = net_whole_segments(w->data.ws->train);
    const struct segments *s = net_state_segments(w->data.ws->train);
    const struct model_slice all = {SLICE_ALL, w->job->slices}; /* each has all of s */
    size_t at = 0;
    int rc = fetch_vector(w, whole, at, &w->data.ws->slice, l->x.at);
    at += whole->total;
    if (rc == OK)
        rc = fetch_vector(w, s, at, &all, l->s.at);
    at += s->total;
    for (size_t i = 0; rc == OK && header->has_state && i < l->optim.ops->states; i++) {
        rc = fetch_vector(w, whole, at, &w->data.ws->slice, l->optim.state[i].at);
        at += whole->total;
    }
    if (rc == OK && header->has_extra)
        rc = worker_open_extras(w);
    for (size_t i = 0; rc == OK && header->has_extra && i < w->strategy->extras; i++) {
        rc = fetch_vector(w, whole, at, &w->data.ws->slice, w->extras.at[i].at);
        at += whole->total;
    }
    if (rc == OK && header->has_carried)
        rc = fetch_streams(w, at);
    l->optim.updates = header->has_state ? header->updates : 0;
    l->steps = header->progress.steps;
    w->start = header->progress;
    return rc;
}

int worker_slice_begin(struct worker *w)
{
    const struct workspace *ws = w->data.ws;
    struct objectives *o = &w->objectives;
    w->member.evaluate = evaluate_slice;
    w->member.offer = offer_slice;
    w->meeting = (struct slice_meeting){.meet = meet_others, .user = &w->learner};
    objectives_init(o, w->world, w->job, w->data.corpus, w->data.ws, NULL, w->host->step_seconds);
    o->meeting = &w->meeting;
    o->most = w->host->evaluate_records;
    int rc = objectives_open_drawn(w->job, &w->arena, &w->member.scores.text);
    if (rc == OK && w->member.scores.text.room > 0)
        rc = objectives_open_text(o, ws->slice.index == 0 ? w->host->log : NULL, &w->learner.err);
    w->member.points = o->sampler ? text_sampler_points(o->sampler) : workspace_points(ws);
    return rc;
}
