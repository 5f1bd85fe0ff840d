#include "train/model.h"

#include "base/fault.h"
#include "wire/catalogue.h"
#include "world/trace.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK_FLOATS = 64 * 1024 };

/* Models and states of streams have numbers of pieces of their own: a node may send both at one
 * commit point. */
enum { LANE_MODELS, LANE_STREAMS };

static uint64_t model_tag(const struct model_header *header, size_t piece)
{
    uint32_t lane = header->use == MODEL_STREAMS ? LANE_STREAMS : LANE_MODELS;
    return wire_tag(WIRE_MODEL, lane, header->progress.exchanges, (uint32_t)piece);
}

static void header_encode(const struct model_header *header, struct buf *out)
{
    progress_encode(&header->progress, out);
    buf_put_u32(out, header->use);
    buf_put_u8(out, header->has_state);
    buf_put_u8(out, header->has_extra);
    buf_put_u8(out, header->has_carried);
    buf_put_u64(out, header->floats);
    buf_put_u64(out, header->updates);
    buf_put_u32(out, header->admission.lanes);
    for (uint32_t i = 0; i < header->admission.lanes; i++)
        buf_put_u64(out, header->admission.completed[i]);
    buf_put_u32(out, header->admission.words);
    for (uint32_t i = 0; i < header->admission.words; i++)
        buf_put_u64(out, header->admission.word[i]);
    buf_put_u32(out, header->parts_in);
    if (header->parts_in)
        model_scores_encode(&header->scores, out);
}

static int header_decode(struct byte_reader *in, struct model_header *out)
{
    progress_decode(in, &out->progress);
    out->use = read_u32(in);
    out->has_state = read_u8(in) != 0;
    out->has_extra = read_u8(in) != 0;
    out->has_carried = read_u8(in) != 0;
    out->floats = read_u64(in);
    out->updates = read_u64(in);
    out->admission.lanes = read_u32(in);
    if (out->admission.lanes > ROSTER_LANES_MAX)
        return ERR_PROTOCOL;
    for (uint32_t i = 0; i < out->admission.lanes; i++)
        out->admission.completed[i] = read_u64(in);
    out->admission.words = read_u32(in);
    if (out->admission.words > JOIN_STATE_WORDS)
        return ERR_PROTOCOL;
    for (uint32_t i = 0; i < out->admission.words; i++)
        out->admission.word[i] = read_u64(in);
    out->parts_in = read_u32(in);
    if (out->parts_in)
        model_scores_decode(in, &out->scores);
    return byte_reader_done(in) ? OK : ERR_PROTOCOL;
}

/* Waits for credit only. */
static int send_piece(struct world *world, uint32_t to, uint64_t tag, const void *data, size_t len)
{
    struct message *m = message_new(tag, 0, len);
    if (!m)
        return ERR_NOMEM;
    memcpy(m->data, data, len);
    for (;;) {
        int rc = world_send(world, to, m, CLASS_BULK);
        if (rc != ERR_FULL)
            return rc;
        struct wait_for credit = {.kind = WAIT_CREDIT, .peer = to};
        struct wake wake;
        rc = world_wait(world, &credit, 1, WORLD_FOREVER, &wake);
        if (rc != OK) {
            message_unref(m);
            return rc;
        }
    }
}

static struct trace_span span_of(const struct model_header *header, uint32_t to,
                                 enum span_kind kind, uint8_t row)
{
    return (struct trace_span){.kind = (uint8_t)kind,
                               .row = row,
                               .peer = to,
                               .n = header->progress.exchanges,
                               .amount = header->floats * sizeof(float)};
}

int model_send_header(struct world *world, uint32_t to, const struct model_header *header)
{
    struct buf head = {0};
    header_encode(header, &head);
    int rc = head.failed
                 ? ERR_NOMEM
                 : send_piece(world, to, model_tag(header, WIRE_HEADER_PIECE), head.data, head.len);
    buf_release(&head);
    return rc;
}

/* The vectors lie in memory, or `read` puts them piece by piece into `piece`. */
struct sending {
    const float *vectors;
    int (*read)(void *user, size_t from, size_t n, float *into);
    void *user;
    float *piece;
};

static int send_vectors(struct world *world, uint32_t to, const struct model_header *header,
                        const struct sending *s)
{
    int64_t begun = trace_now(world);
    int rc = model_send_header(world, to, header);
    size_t n = header->floats;
    for (size_t i = 0, from = 0; rc == OK && from < n; i++, from += CHUNK_FLOATS) {
        size_t len = n - from < CHUNK_FLOATS ? n - from : CHUNK_FLOATS;
        const float *piece = s->vectors ? s->vectors + from : s->piece;
        if (!s->vectors)
            rc = s->read(s->user, from, len, s->piece);
        if (rc == OK)
            rc = send_piece(world, to, model_tag(header, i), piece, len * sizeof(float));
    }
    struct trace_span span = span_of(header, to, SPAN_SEND, TRACE_MODELS);
    span.sends = 1;
    if (to != world->self)
        trace_end(world, begun, span);
    return rc;
}

int model_send(struct world *world, uint32_t to, const struct model_header *header,
               const float *vectors)
{
    return send_vectors(world, to, header, &(struct sending){.vectors = vectors});
}

int model_send_from(struct world *world, uint32_t to, const struct model_header *header,
                    int (*read)(void *user, size_t from, size_t n, float *into), void *user)
{
    struct sending s = {.read = read, .user = user};
    s.piece = malloc(CHUNK_FLOATS * sizeof *s.piece);
    int rc = s.piece ? send_vectors(world, to, header, &s) : ERR_NOMEM;
    free(s.piece);
    return rc;
}

static int publish_task(void *arg)
{
    struct publisher *p = arg;
    int rc = model_send(p->world, p->to, &p->header, p->copy);
    atomic_store(&p->busy, false);
    return rc;
}

int publisher_init(struct publisher *p, struct world *world, uint32_t to, size_t floats,
                   size_t extras, struct arena *arena)
{
    *p = (struct publisher){.world = world, .reader = to, .extras = extras, .room = floats};
    p->copy = arena_array(arena, floats, float);
    return p->copy ? OK : ERR_NOMEM;
}

void model_copy(float *copy, const struct global_model *model, size_t extras)
{
    size_t at = 0;
    vec_export(model->x, vec_all(model->x), copy);
    at += model->x->n;
    vec_export(model->s, vec_all(model->s), copy + at);
    at += model->s->n;
    for (size_t i = 0; i < model->states; i++) {
        vec_export(&model->state[i], vec_all(&model->state[i]), copy + at);
        at += model->state[i].n;
    }
    for (size_t i = 0; model->extra && i < extras; i++) {
        vec_export(&model->extra[i], vec_all(&model->extra[i]), copy + at);
        at += model->extra[i].n;
    }
    if (model->carried)
        carried_state_export(model->carried, model->carried_only, copy + at);
}

static size_t carried_floats(const struct carried_state *carried)
{
    return carried ? carried_state_floats(carried->streams, carried->row) : 0;
}

struct model_header model_header_of(const struct global_model *model, size_t extras)
{
    struct model_header header = {.has_state = model->states > 0,
                                  .has_extra = model->extra && extras > 0,
                                  .has_carried = carried_floats(model->carried) > 0,
                                  .updates = model->updates};
    header.floats = model->x->n * (1 + model->states + (header.has_extra ? extras : 0)) +
                    model->s->n + carried_floats(model->carried);
    return header;
}

/* Describes the vectors in a header, and copies them. */
static void take_copy(struct publisher *p, const struct global_model *model)
{
    const struct model_header of = model_header_of(model, p->extras);
    struct model_header *header = &p->header;
    header->has_state = of.has_state;
    header->has_extra = of.has_extra;
    header->has_carried = of.has_carried;
    header->updates = of.updates;
    header->floats = of.floats;
    PL_ASSERT(header->floats <= p->room);
    model_copy(p->copy, model, p->extras);
}

/* The copy may be overwritten. */
static bool is_free(struct publisher *p)
{
    return !atomic_load(&p->busy) && publisher_finish(p, WORLD_FOREVER) != ERR_CANCELLED;
}

/* The copy has been taken since `begun`. */
static bool send_copy(struct publisher *p, int64_t begun)
{
    trace_end(p->world, begun, span_of(&p->header, p->to, SPAN_COPY, TRACE_STEPS));
    atomic_store(&p->busy, true);
    if (world_spawn(p->world, "publisher", publish_task, p, &p->task) != OK)
        atomic_store(&p->busy, false);
    return p->task != NULL;
}

static bool start_send(struct publisher *p, uint32_t to, const struct model_header *header,
                       const struct global_model *model)
{
    if (!is_free(p))
        return false;
    p->to = to;
    p->header = *header;
    int64_t begun = trace_now(p->world);
    if (model)
        take_copy(p, model);
    return send_copy(p, begun);
}

bool publisher_start_streams(struct publisher *p, const struct progress *progress,
                             const struct carried_state *carried,
                             const struct carried_selection *only)
{
    if (!is_free(p))
        return false;
    p->to = p->reader;
    p->header = (struct model_header){.progress = *progress,
                                      .use = MODEL_STREAMS,
                                      .has_carried = true,
                                      .floats = carried_floats(carried)};
    PL_ASSERT(p->header.floats <= p->room);
    int64_t begun = trace_now(p->world);
    carried_state_export(carried, only, p->copy);
    return send_copy(p, begun);
}

bool publisher_start(struct publisher *p, const struct progress *progress, uint32_t use,
                     const struct global_model *model)
{
    return start_send(p, p->reader, &(struct model_header){.progress = *progress, .use = use},
                      model);
}

bool publisher_admit(struct publisher *p, uint32_t to, const struct progress *progress,
                     const struct join_state *admission, const struct global_model *model)
{
    return start_send(p, to, &(struct model_header){.progress = *progress, .admission = *admission},
                      model);
}

bool publisher_admits(const struct publisher *p)
{
    return atomic_load(&p->busy) && p->to != p->reader;
}

int publisher_finish(struct publisher *p, int64_t deadline)
{
    if (!p->task)
        return OK;
    /* A wait instead of a join, so that a reader that is gone does not delay a cancelled caller. */
    struct wait_for end = {.kind = WAIT_TASK, .task = p->task};
    struct wake wake;
    int rc = world_wait(p->world, &end, 1, deadline, &wake);
    if (rc != OK)
        return rc;
    int result = OK;
    world_join(p->world, p->task, WORLD_FOREVER, &result);
    p->task = NULL;
    return result;
}

void publisher_release(struct publisher *p)
{
    if (p->world)
        world_end_task(p->world, &p->task);
}

/* Wait for that, or for the end of the group. */
static int await_event(struct world *world, const struct group *group, const struct wait_for *what,
                       int64_t deadline, struct wake *wake)
{
    for (;;) {
        const struct wait_for set[] = {*what, wait_signal(world, SIGNAL_GROUP)};
        if (group && atomic_load(&group->end.over))
            return ERR_DRIVER;
        int rc = world_wait(world, set, group ? 2 : 1, deadline, wake);
        if (rc != OK || wake->which == 0)
            return rc;
    }
}

static int receive_piece(struct world *world, const struct group *group, uint32_t from,
                         uint64_t tag, float *into, size_t len, int64_t deadline)
{
    struct recv recv = {.from = from, .tag = tag, .into = into, .len = len * sizeof(float)};
    int rc = world_post_recv(world, &recv);
    if (rc != OK)
        return rc;
    const struct wait_for done = {.kind = WAIT_RECV, .recv = &recv};
    struct wake wake;
    rc = await_event(world, group, &done, deadline, &wake);
    world_unpost(world, &recv);
    return rc == OK ? recv.status : rc;
}

static int receive_header(struct world *world, const struct group *group,
                          const struct wait_for *head, struct model_header *header, uint32_t *from,
                          int64_t deadline)
{
    struct wake wake;
    int rc = await_event(world, group, head, deadline, &wake);
    if (rc != OK)
        return rc;
    struct byte_reader in = {wake.msg->data, wake.msg->len, false};
    rc = header_decode(&in, header);
    if (rc == OK && wake.msg->tag != model_tag(header, WIRE_HEADER_PIECE))
        rc = ERR_PROTOCOL; /* it would be taken for one of another commit point */
    *from = wake.msg->from;
    message_unref(wake.msg);
    return rc;
}

int model_receive_header(struct world *world, const struct group *group,
                         struct model_header *header, uint32_t *from, int64_t deadline)
{
    const struct wait_for head = {.kind = WAIT_MESSAGE,
                                  .from = *from,
                                  .tag = wire_tag(WIRE_MODEL, 0, 0, WIRE_HEADER_PIECE),
                                  .mask = WIRE_KIND_MASK | 0xffff};
    return receive_header(world, group, &head, header, from, deadline);
}

int model_receive_streams_header(struct world *world, uint64_t exchanges,
                                 struct model_header *header, uint32_t *from, int64_t deadline)
{
    const struct wait_for head = {
        .kind = WAIT_MESSAGE,
        .from = WORLD_ANY,
        .tag = wire_tag(WIRE_MODEL, LANE_STREAMS, exchanges, WIRE_HEADER_PIECE),
        .mask = UINT64_MAX};
    return receive_header(world, NULL, &head, header, from, deadline);
}

int model_receive(struct world *world, const struct group *group, uint32_t from, float *into,
                  size_t room, struct model_header *header, int64_t deadline)
{
    int rc = model_receive_header(world, group, header, &from, deadline);
    return rc == OK ? model_receive_vectors(world, group, from, into, room, header, 0) : rc;
}

int model_receive_vectors(struct world *world, const struct group *group, uint32_t from,
                          float *into, size_t room, const struct model_header *header,
                          int64_t pause)
{
    int rc = header->floats > room ? ERR_PROTOCOL : OK;
    for (size_t i = 0, at = 0; rc == OK && at < header->floats; i++, at += CHUNK_FLOATS) {
        size_t left = header->floats - at;
        size_t len = left < CHUNK_FLOATS ? left : CHUNK_FLOATS;
        int64_t until = pause > 0 ? world_now(world) + pause : WORLD_FOREVER;
        rc = receive_piece(world, group, from, model_tag(header, i), into + at, len, until);
    }
    return rc;
}

void model_drop_chunks(struct world *world, uint32_t from, size_t room,
                       const struct model_header *header)
{
    size_t floats = header->floats < room ? header->floats : room;
    for (size_t i = 0; i * CHUNK_FLOATS < floats; i++) {
        const struct wait_for piece = {
            .kind = WAIT_MESSAGE, .from = from, .tag = model_tag(header, i), .mask = UINT64_MAX};
        struct wake wake;
        while (world_wait(world, &piece, 1, world_now(world), &wake) == OK)
            message_unref(wake.msg);
    }
}
