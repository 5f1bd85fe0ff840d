#include "train/model.h"

#include "base/fault.h"
#include "wire/catalogue.h"
#include "world/trace.h"

#include <string.h>

enum { CHUNK_FLOATS = 64 * 1024 };

static uint64_t model_tag(const struct model_note *note, size_t piece)
{
    return wire_tag(WIRE_MODEL, 0, note->course.exchanges, (uint32_t)piece);
}

static void note_encode(const struct model_note *note, struct buf *out)
{
    course_encode(&note->course, out);
    buf_put_u32(out, note->use);
    buf_put_u8(out, note->has_state);
    buf_put_u8(out, note->has_extra);
    buf_put_u64(out, note->floats);
    buf_put_u64(out, note->updates);
    buf_put_u32(out, note->admission.lanes);
    for (uint32_t i = 0; i < note->admission.lanes; i++)
        buf_put_u64(out, note->admission.completed[i]);
    buf_put_u32(out, note->admission.words);
    for (uint32_t i = 0; i < note->admission.words; i++)
        buf_put_u64(out, note->admission.word[i]);
}

static int note_decode(struct byte_reader *in, struct model_note *out)
{
    course_decode(in, &out->course);
    out->use = read_u32(in);
    out->has_state = read_u8(in) != 0;
    out->has_extra = read_u8(in) != 0;
    out->floats = read_u64(in);
    out->updates = read_u64(in);
    out->admission.lanes = read_u32(in);
    if (out->admission.lanes > ROSTER_LANES_MAX)
        return ERR_PROTOCOL;
    for (uint32_t i = 0; i < out->admission.lanes; i++)
        out->admission.completed[i] = read_u64(in);
    out->admission.words = read_u32(in);
    if (out->admission.words > ADMISSION_WORDS)
        return ERR_PROTOCOL;
    for (uint32_t i = 0; i < out->admission.words; i++)
        out->admission.word[i] = read_u64(in);
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

static struct trace_span span_of(const struct model_note *note, uint32_t to, enum span_kind kind,
                                 uint8_t row)
{
    return (struct trace_span){.kind = (uint8_t)kind,
                               .row = row,
                               .peer = to,
                               .n = note->course.exchanges,
                               .amount = note->floats * sizeof(float)};
}

int model_send(struct world *world, uint32_t to, const struct model_note *note,
               const float *vectors)
{
    int64_t begun = trace_now(world);
    struct buf head = {0};
    note_encode(note, &head);
    int rc = head.failed
                 ? ERR_NOMEM
                 : send_piece(world, to, model_tag(note, WIRE_HEADER_PIECE), head.data, head.len);
    buf_release(&head);
    size_t n = note->floats;
    for (size_t i = 0, from = 0; rc == OK && from < n; i++, from += CHUNK_FLOATS) {
        size_t len = n - from < CHUNK_FLOATS ? n - from : CHUNK_FLOATS;
        rc = send_piece(world, to, model_tag(note, i), vectors + from, len * sizeof(float));
    }
    if (to != world->self)
        trace_end(world, begun, span_of(note, to, SPAN_SEND, TRACE_MODELS));
    return rc;
}

static int publish_task(void *arg)
{
    struct publisher *p = arg;
    int rc = model_send(p->world, p->to, &p->note, p->copy);
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

void model_copy(float *copy, const struct joint *joint, size_t extras)
{
    size_t at = 0;
    vec_export(joint->x, vec_all(joint->x), copy);
    at += joint->x->n;
    vec_export(joint->s, vec_all(joint->s), copy + at);
    at += joint->s->n;
    for (size_t i = 0; i < joint->states; i++) {
        vec_export(&joint->state[i], vec_all(&joint->state[i]), copy + at);
        at += joint->state[i].n;
    }
    for (size_t i = 0; joint->extra && i < extras; i++) {
        vec_export(&joint->extra[i], vec_all(&joint->extra[i]), copy + at);
        at += joint->extra[i].n;
    }
}

struct model_note model_note_of(const struct joint *joint, size_t extras)
{
    struct model_note note = {.has_state = joint->states > 0,
                              .has_extra = joint->extra && extras > 0,
                              .updates = joint->updates};
    note.floats = joint->x->n * (1 + joint->states + (note.has_extra ? extras : 0)) + joint->s->n;
    return note;
}

/* What the note says of the vectors, and a copy of them. */
static void take_copy(struct publisher *p, const struct joint *joint)
{
    const struct model_note of = model_note_of(joint, p->extras);
    struct model_note *note = &p->note;
    note->has_state = of.has_state;
    note->has_extra = of.has_extra;
    note->updates = of.updates;
    note->floats = of.floats;
    PL_ASSERT(note->floats <= p->room);
    model_copy(p->copy, joint, p->extras);
}

static bool start(struct publisher *p, uint32_t to, const struct model_note *note,
                  const struct joint *joint)
{
    if (atomic_load(&p->busy) || publisher_finish(p, WORLD_FOREVER) == ERR_CANCELLED)
        return false;
    p->to = to;
    p->note = *note;
    int64_t begun = trace_now(p->world);
    if (joint)
        take_copy(p, joint);
    trace_end(p->world, begun, span_of(&p->note, to, SPAN_COPY, TRACE_STEPS));
    atomic_store(&p->busy, true);
    if (world_spawn(p->world, "publisher", publish_task, p, &p->task) != OK)
        atomic_store(&p->busy, false);
    return p->task != NULL;
}

bool publisher_start(struct publisher *p, const struct course *course, uint32_t use,
                     const struct joint *joint)
{
    return start(p, p->reader, &(struct model_note){.course = *course, .use = use}, joint);
}

bool publisher_admit(struct publisher *p, uint32_t to, const struct course *course,
                     const struct admission *admission, const struct joint *joint)
{
    return start(p, to, &(struct model_note){.course = *course, .admission = *admission}, joint);
}

bool publisher_admits(const struct publisher *p)
{
    return atomic_load(&p->busy) && p->to != p->reader;
}

int publisher_finish(struct publisher *p, int64_t deadline)
{
    if (!p->task)
        return OK;
    /* A wait, not a join, so that a cancelled caller is not held up by a reader that is gone. */
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
static int await(struct world *world, const struct group *group, const struct wait_for *what,
                 int64_t deadline, struct wake *wake)
{
    for (;;) {
        const struct wait_for set[] = {*what,
                                       {.kind = WAIT_SIGNAL,
                                        .signal = SIGNAL_GROUP,
                                        .seen = world_raised(world, SIGNAL_GROUP)}};
        if (group && atomic_load(&group->over))
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
    rc = await(world, group, &done, deadline, &wake);
    world_unpost(world, &recv);
    return rc == OK ? recv.status : rc;
}

int model_receive_note(struct world *world, const struct group *group, struct model_note *note,
                       uint32_t *from, int64_t deadline)
{
    const struct wait_for head = {.kind = WAIT_MESSAGE,
                                  .from = *from,
                                  .tag = wire_tag(WIRE_MODEL, 0, 0, WIRE_HEADER_PIECE),
                                  .mask = WIRE_KIND_MASK | 0xffff};
    struct wake wake;
    int rc = await(world, group, &head, deadline, &wake);
    if (rc != OK)
        return rc;
    struct byte_reader in = {wake.msg->data, wake.msg->len, false};
    rc = note_decode(&in, note);
    *from = wake.msg->from;
    message_unref(wake.msg);
    return rc;
}

int model_receive(struct world *world, const struct group *group, uint32_t from, float *into,
                  size_t room, struct model_note *note, int64_t deadline)
{
    int rc = model_receive_note(world, group, note, &from, deadline);
    return rc == OK ? model_receive_vectors(world, group, from, into, room, note, 0) : rc;
}

int model_receive_vectors(struct world *world, const struct group *group, uint32_t from,
                          float *into, size_t room, const struct model_note *note, int64_t pause)
{
    int rc = note->floats > room ? ERR_PROTOCOL : OK;
    for (size_t i = 0, at = 0; rc == OK && at < note->floats; i++, at += CHUNK_FLOATS) {
        size_t left = note->floats - at;
        size_t len = left < CHUNK_FLOATS ? left : CHUNK_FLOATS;
        int64_t until = pause > 0 ? world_now(world) + pause : WORLD_FOREVER;
        rc = receive_piece(world, group, from, model_tag(note, i), into + at, len, until);
    }
    return rc;
}

void model_drop_pieces(struct world *world, uint32_t from, size_t room,
                       const struct model_note *note)
{
    size_t floats = note->floats < room ? note->floats : room;
    for (size_t i = 0; i * CHUNK_FLOATS < floats; i++) {
        const struct wait_for piece = {
            .kind = WAIT_MESSAGE, .from = from, .tag = model_tag(note, i), .mask = UINT64_MAX};
        struct wake wake;
        while (world_wait(world, &piece, 1, world_now(world), &wake) == OK)
            message_unref(wake.msg);
    }
}
