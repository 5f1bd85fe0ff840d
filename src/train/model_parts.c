#include "train/model_parts.h"

#include "base/fault.h"
#include "strategy/slice_group.h"

#include <string.h>

/* x, s, the optimizer's vectors, the strategy's, and then the carried states. */
enum {
    VECTOR_X,
    VECTOR_S,
    VECTOR_STATE,
    VECTORS_MAX = VECTOR_STATE + OPTIM_STATE_MAX + STRATEGY_EXTRAS_MAX + 1,
};

enum { PIECE_FLOATS = 64 * 1024 };

/* How long the view of an offer may be under way to the driver's own tasks. */
#define VIEW_WAIT (10 * WORLD_SECOND)

/* One slice's part of the vector that is taken. */
struct part_stream {
    size_t floats;   /* of the vector */
    size_t segment;  /* where the present segment begins in it */
    size_t received; /* pieces */
    size_t from, to; /* of its floats, those that `piece` has */
    float *piece;
};

/* A request has what is taken, and the number of the take. */
struct request {
    uint32_t taken;
    uint64_t take;
};

static void request_encode(const struct request *request, struct buf *out)
{
    buf_put_u32(out, request->taken);
    buf_put_u64(out, request->take);
}

static uint64_t request_tag(const struct coll *c)
{
    return wire_tag(WIRE_WANT_MODEL, c->lane, 0, WIRE_HEADER_PIECE);
}

/* The vector's messages are numbered by the take. */
static void number_vector(struct coll *c, uint64_t take, size_t vector)
{
    c->n = take * VECTORS_MAX + vector;
    c->chunk_floats = PIECE_FLOATS;
}

/* ---- the driver's side ---- */

static const struct segments *table_of(const struct model_parts *p, size_t vector)
{
    return vector == VECTOR_S ? p->s : vector == p->carried ? &p->streams : p->x;
}

/* Among how many slices is the vector shared out? Each has all of s and of the carried states, and
 * the same. */
static size_t shared_by(const struct model_parts *p)
{
    return p->vector == VECTOR_S || p->vector == p->carried ? 1 : p->slices;
}

static struct model_slice slice_of(const struct model_parts *p, size_t f)
{
    return (struct model_slice){f, shared_by(p)};
}

static void begin_vector(struct model_parts *p, size_t vector)
{
    const struct segments *table = table_of(p, vector);
    p->vector = vector;
    p->segment = p->at = 0;
    number_vector(&p->coll, p->take, vector);
    for (size_t f = 0; f < p->slices; f++) {
        const struct model_slice slice = slice_of(p, f);
        struct part_stream *s = &p->stream[f];
        size_t floats = vector == p->carried ? table->total : slice_total(&slice, table);
        *s = (struct part_stream){.floats = floats, .piece = s->piece};
    }
}

/* A slice that sends pieces of another length has another net: the driver's next view is without
 * it. */
static int let_go(struct model_parts *p, size_t f)
{
    uint32_t node = p->ranks.node[f];
    log_warn(p->group->log, "worker %u is let go: its slice of the model has another length", node);
    world_peer_drop(p->group->world, node);
    return coll_lost(&p->coll, WORLD_FOREVER);
}

static int receive_piece(struct model_parts *p, size_t f)
{
    struct part_stream *s = &p->stream[f];
    size_t piece = s->received++, len = coll_piece(&p->coll, s->floats, piece, &s->from);
    s->to = s->from + len;
    int rc = coll_recv(&p->coll, f, coll_tag(&p->coll, WIRE_MODEL, piece), s->piece,
                       len * sizeof *s->piece);
    return rc == ERR_PROTOCOL ? let_go(p, f) : rc;
}

/* The next floats of a slice's vector, which lie at `at` there. */
static int read_part(struct model_parts *p, size_t f, size_t at, size_t n, float *into)
{
    struct part_stream *s = &p->stream[f];
    while (n > 0) {
        size_t there = at < s->to ? s->to - at : 0, len = n < there ? n : there;
        if (len == 0) {
            int rc = receive_piece(p, f);
            if (rc != OK)
                return rc;
            continue;
        }
        memcpy(into, s->piece + (at - s->from), len * sizeof *into);
        into += len;
        at += len;
        n -= len;
    }
    return OK;
}

/* Receive what is left of the vector, which is padding, or what other slices have whole, too. */
static int skip_vector(struct model_parts *p)
{
    for (size_t f = 0; f < p->slices; f++)
        while (p->stream[f].received < coll_pieces(&p->coll, p->stream[f].floats)) {
            int rc = receive_piece(p, f);
            if (rc != OK)
                return rc;
        }
    return OK;
}

/* Behind a segment, or a vector without any. */
static int next_segment(struct model_parts *p)
{
    const struct segments *table = table_of(p, p->vector);
    if (p->segment < table->count && p->at == table->at[p->segment].len) {
        for (size_t f = 0; f < p->slices; f++) {
            const struct model_slice slice = slice_of(p, f);
            p->stream[f].segment =
                slice_next_segment(&slice, &table->at[p->segment], p->stream[f].segment);
        }
        p->segment++;
        p->at = 0;
    }
    if (p->segment < table->count)
        return OK;
    int rc = skip_vector(p);
    if (rc != OK)
        return rc;
    if (p->vector + 1 == p->vectors)
        p->vectors = 0;
    else
        begin_vector(p, p->vector + 1);
    return OK;
}

/* As far as they lie in one part of one segment. */
static int take_run(struct model_parts *p, float *into, size_t *n)
{
    const struct segment *whole = &table_of(p, p->vector)->at[p->segment];
    struct slice_place place = slice_find(shared_by(p), whole, p->at);
    *n = *n < place.run ? *n : place.run;
    int rc = read_part(p, place.slice, p->stream[place.slice].segment + place.at, *n, into);
    p->at += *n;
    return rc;
}

static int send_request(struct model_parts *p, enum parts_taken taken)
{
    struct buf bytes = {0};
    request_encode(&(struct request){taken, p->take}, &bytes);
    int rc = bytes.failed ? ERR_NOMEM : OK;
    for (size_t f = 0; rc == OK && f < p->slices; f++)
        rc = coll_send(&p->coll, f, request_tag(&p->coll), bytes.data, bytes.len);
    buf_release(&bytes);
    return rc;
}

static int explain_loss(int rc, struct err *err)
{
    return rc == OK         ? OK
           : rc == ERR_VIEW ? err_set(err, ERR_PEER, "a slice of the model is lost")
           : rc == ERR_NOMEM
               ? err_set(err, rc, "no memory to receive a model's slices")
               : err_set(err, rc, "a model's slices did not arrive: %s", status_text(rc));
}

static int begin_taking(void *user, const struct model_layout *layout, struct err *err)
{
    struct model_parts *p = user;
    size_t more =
        (layout->has_state ? layout->optim->states : 0) + (layout->has_extra ? layout->extras : 0);
    p->take++;
    p->carried = layout->has_carried ? VECTOR_STATE + more : SIZE_MAX;
    more += layout->has_carried;
    int rc = send_request(p, more > 0 ? PARTS_ALL : PARTS_MODEL);
    if (rc != OK)
        return explain_loss(rc, err);
    p->vectors = VECTOR_STATE + more;
    begin_vector(p, VECTOR_X);
    return OK;
}

static int take_floats(void *user, float *into, size_t n, struct err *err)
{
    struct model_parts *p = user;
    int rc = OK;
    while (rc == OK && n > 0) {
        const struct segments *table = table_of(p, p->vector);
        PL_ASSERT(p->vectors > 0);
        size_t run = n;
        if (p->segment == table->count || p->at == table->at[p->segment].len) {
            rc = next_segment(p);
            continue;
        }
        rc = take_run(p, into, &run);
        into += run;
        n -= run;
    }
    return explain_loss(rc, err);
}

/* The slices send all that was asked for: what was not taken is received, too. */
static void end_taking(void *user)
{
    struct model_parts *p = user;
    int rc = OK;
    while (rc == OK && p->vectors > 0) {
        p->segment = table_of(p, p->vector)->count;
        rc = next_segment(p);
    }
    p->vectors = 0;
}

int model_parts_init(struct model_parts *p, struct group *group, size_t slices,
                     const struct model_layout *layout, struct arena *arena)
{
    size_t carried = carried_state_floats(layout->streams, layout->row);
    *p = (struct model_parts){.group = group,
                              .x = layout->x,
                              .s = layout->s,
                              .streams_only = {.len = carried},
                              .streams = {.count = carried > 0, .total = carried},
                              .slices = slices,
                              .carried = SIZE_MAX};
    p->streams.at = &p->streams_only;
    p->source = (struct model_source){
        .begin = begin_taking, .next = take_floats, .end = end_taking, .user = p};
    p->stream = arena_array(arena, slices, struct part_stream);
    for (size_t f = 0; p->stream && f < slices; f++) {
        p->stream[f].piece = arena_array(arena, PIECE_FLOATS, float);
        if (!p->stream[f].piece)
            return ERR_NOMEM;
    }
    return p->stream ? OK : ERR_NOMEM;
}

int model_parts_begin(struct model_parts *p, uint32_t node, uint32_t number)
{
    int64_t until = world_now(p->group->world) + VIEW_WAIT;
    int rc = group_wait_view(p->group, number - 1, until);
    const struct view *view = group_view(p->group);
    if (rc != OK)
        return rc;
    uint32_t seat = view && view->number == number ? view_seat(view, node) : VIEW_NO_SEAT;
    if (seat == VIEW_NO_SEAT)
        return ERR_VIEW;
    p->ranks = (struct ranks){.count = p->slices + 1, .me = p->slices};
    p->ranks.node[p->slices] = WORLD_DRIVER;
    for (size_t f = 0; f < p->slices; f++) {
        p->ranks.node[f] = view_seated(view, (uint32_t)(seat / p->slices * p->slices + f));
        if (p->ranks.node[f] == VIEW_MEMBERS_MAX)
            return ERR_VIEW;
    }
    p->coll = (struct coll){.group = p->group,
                            .view = view,
                            .ranks = &p->ranks,
                            .lane = PARTS_LANE,
                            .chunk_floats = PIECE_FLOATS,
                            .patient = true};
    p->vectors = 0;
    return OK;
}

void model_parts_end(struct model_parts *p)
{
    p->take++;
    (void)send_request(p, PARTS_NONE); /* in another view nobody waits for it */
}

/* ---- a slice's side ---- */

static int receive_request(struct coll *c, struct request *out)
{
    struct buf bytes = {0};
    request_encode(&(struct request){0}, &bytes);
    int rc = bytes.failed
                 ? ERR_NOMEM
                 : coll_recv(c, c->ranks->count - 1, request_tag(c), bytes.data, bytes.len);
    struct byte_reader in = {bytes.data, bytes.len, false};
    *out = (struct request){.taken = read_u32(&in)};
    out->take = read_u64(&in);
    buf_release(&bytes);
    return rc == OK && out->taken > PARTS_ALL ? ERR_PROTOCOL : rc;
}

static int send_vector(struct coll *c, const struct request *request, size_t vector,
                       const struct vec *v)
{
    number_vector(c, request->take, vector);
    return coll_send_vector(c, c->ranks->count - 1, WIRE_MODEL, v->at, v->n);
}

static int send_parts(struct coll *c, const struct global_model *model, size_t extras,
                      const struct request *request)
{
    size_t states = request->taken == PARTS_ALL ? model->states : 0;
    size_t more = request->taken == PARTS_ALL && model->extra ? extras : 0;
    int rc = send_vector(c, request, VECTOR_X, model->x);
    if (rc == OK)
        rc = send_vector(c, request, VECTOR_S, model->s);
    for (size_t i = 0; rc == OK && i < states; i++)
        rc = send_vector(c, request, VECTOR_STATE + i, &model->state[i]);
    for (size_t i = 0; rc == OK && i < more; i++)
        rc = send_vector(c, request, VECTOR_STATE + states + i, &model->extra[i]);
    if (rc == OK && request->taken == PARTS_ALL && model->carried_table)
        rc = send_vector(c, request, VECTOR_STATE + states + more, model->carried_table);
    return rc;
}

int model_parts_serve(struct coll *c, const struct global_model *model, size_t extras)
{
    for (;;) {
        struct request request;
        int rc = receive_request(c, &request);
        if (rc != OK || request.taken == PARTS_NONE)
            return rc;
        rc = send_parts(c, model, extras, &request);
        if (rc != OK)
            return rc;
    }
}
