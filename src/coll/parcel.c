/* What two ends of a parcel say to each other, all in its view and under its number:
 *
 *   PARCEL     piece WIRE_NOTE   sender → receiver   floats (u64), then the caller's note
 *   PARCEL_GO  PARCEL_MAY        receiver → sender   pieces that may come by now (u32), or NEVER
 *   PARCEL     0, 1, 2 …         sender → receiver   only pieces that a receive is posted for
 *   PARCEL_GO  PARCEL_GONE       sender → receiver   cancelled
 *
 * The lane is the receiver's; a number is the sender's lane, then a count. Pieces that come in as
 * messages were posted for once: they are what is left of a parcel that has been cancelled, and are
 * thrown away where notes are waited for. */
#include "base/fault.h"
#include "coll/parcel_parts.h"
#include "wire/catalogue.h"

#include <stdatomic.h>
#include <string.h>

enum {
    TELL = PARCEL_WINDOW, /* bits of `busy` after those of the slots */
    HEAR,
};

#define NEVER UINT32_MAX

static uint64_t answer_tag(uint64_t tag, uint32_t piece)
{
    return (tag & ~WIRE_KIND_MASK) | wire_tag(WIRE_PARCEL_GO, 0, 0, piece);
}

static size_t piece_bytes(const struct parcel *p, uint32_t piece)
{
    size_t left = p->n - (size_t)piece * PARCEL_PIECE;
    return (left < PARCEL_PIECE ? left : PARCEL_PIECE) * sizeof(float);
}

static void *piece_at(const struct parcel *p, uint32_t piece)
{
    return p->x ? p->x + (size_t)piece * PARCEL_PIECE * sizeof(float) : NULL;
}

/* ---- posts ---- */

/* Worlds take posts to other nodes only: to its own a parcel goes as messages that hold copies, and
 * is done with them at once. ERR_FULL: not now */
static int send_here(struct parcels *ps, struct send *s)
{
    struct message *m =
        s->from ? message_new(s->tag, s->view, s->len) : message_phantom(s->tag, s->view, s->len);
    if (!m)
        return ERR_NOMEM;
    if (s->from)
        memcpy(m->data, s->from, s->len);
    int rc = world_send(ps->world, s->to, m, CLASS_BULK);
    if (rc == ERR_FULL)
        message_unref(m);
    atomic_store(&s->status, rc);
    if (rc == OK)
        atomic_fetch_add(&ps->ended.times, 1);
    ps->full |= rc == ERR_FULL;
    return rc;
}

static int post_send(struct parcel *p, int bit, struct send *s, struct send what)
{
    struct parcels *ps = p->all;
    what.to = p->peer;
    what.view = p->view;
    what.ended = &ps->ended;
    *s = what;
    int rc = p->peer == ps->world->self ? send_here(ps, s) : world_post_send(ps->world, s);
    ps->posts += rc == OK;
    p->busy |= (rc == OK ? 1u : 0u) << bit;
    return rc;
}

static int post_recv(struct parcel *p, int bit, struct recv *r, struct recv what)
{
    struct parcels *ps = p->all;
    what.from = p->peer;
    what.view = p->view;
    what.ended = &ps->ended;
    *r = what;
    int rc = world_post_recv(ps->world, r);
    ps->posts += rc == OK;
    p->busy |= (rc == OK ? 1u : 0u) << bit;
    return rc;
}

/* Listen to the other side: a sender for a go, a receiver for the end. */
static int listen_to(struct parcel *p)
{
    const struct recv answer = {.tag = answer_tag(p->tag, p->sends ? PARCEL_MAY : PARCEL_GONE),
                                .into = p->heard,
                                .len = sizeof p->heard};
    return post_recv(p, HEAR, &p->hear, answer);
}

static int tell_note(struct parcel *p)
{
    const struct send note = {.tag = p->tag | WIRE_NOTE, .from = p->note, .len = p->note_len};
    return post_send(p, TELL, &p->tell, note);
}

static int tell_go(struct parcel *p)
{
    const struct send go = {
        .tag = answer_tag(p->tag, PARCEL_MAY), .from = p->said, .len = sizeof p->said};
    bytes_put_le32(p->said, p->begun);
    return post_send(p, TELL, &p->tell, go);
}

static int begin_piece(struct parcel *p, int i)
{
    uint64_t tag = p->tag | p->begun;
    void *x = piece_at(p, p->begun);
    size_t len = piece_bytes(p, p->begun);
    uint32_t stripe = p->all->stripes > 1 ? p->begun % p->all->stripes : 0;
    const struct send out = {.tag = tag, .from = x, .len = len, .stripe = stripe};
    const struct recv in = {.tag = tag, .into = x, .len = len, .land = p->land, .user = p->user};
    if (!p->sends)
        return post_recv(p, i, &p->slot[i].recv, in);
    int rc = post_send(p, i, &p->slot[i].send, out);
    if (rc == OK)
        trace_sending(p->all->world, &p->all->sends, p->peer, len);
    return rc;
}

static int status_of(const struct parcel *p, int i)
{
    if (i >= PARCEL_WINDOW)
        return atomic_load(i == TELL ? &p->tell.status : &p->hear.status);
    return atomic_load(p->sends ? &p->slot[i].send.status : &p->slot[i].recv.status);
}

/* Whether this post was under way and has ended; how, in *status. */
static bool has_ended(struct parcel *p, int i, int *status)
{
    if (!(p->busy >> i & 1))
        return false;
    *status = status_of(p, i);
    if (*status == POST_PENDING)
        return false;
    p->busy &= ~(1u << i);
    return true;
}

static void withdraw(struct parcel *p)
{
    struct world *world = p->all->world;
    for (int i = 0; i < PARCEL_WINDOW; i++)
        if (!(p->busy >> i & 1))
            continue;
        else if (p->sends)
            world_unsend(world, &p->slot[i].send);
        else
            world_unpost(world, &p->slot[i].recv);
    if (p->busy >> TELL & 1)
        world_unsend(world, &p->tell);
    if (p->busy >> HEAR & 1)
        world_unpost(world, &p->hear);
    p->busy = 0;
}

/* ---- moving on ---- */

/* What a sender hears: how many pieces may come. And a receiver: that no more will. */
static int hear(struct parcel *p)
{
    uint32_t may = bytes_le32(p->heard);
    if (!p->sends || may == NEVER)
        return ERR_STOP;
    if (may < p->granted || may > p->pieces)
        return ERR_PROTOCOL;
    p->granted = may;
    p->agreed = true;
    return listen_to(p);
}

static void count(struct parcel *p, size_t bytes)
{
    struct parcels *ps = p->all;
    if (p->sends)
        trace_sent(ps->world, &ps->sends, p->peer,
                   (struct trace_span){.kind = SPAN_SEND, .row = parcels_row(ps), .n = ps->count});
    if (p->peer == ps->world->self)
        return;
    ps->bytes += bytes;
    if (ps->group)
        atomic_fetch_add(&ps->group->moved, bytes);
}

static int take_ended(struct parcel *p)
{
    int rc;
    for (int i = 0; i < PARCEL_WINDOW; i++)
        if (has_ended(p, i, &rc)) {
            if (rc != OK)
                return rc;
            p->done++;
            count(p, p->sends ? p->slot[i].send.len : p->slot[i].recv.len);
        }
    /* How pieces end says more: all may be there, and who sent them, or has them, be gone. */
    bool waits = p->sends && !(p->agreed && p->granted == p->pieces);
    (void)has_ended(p, TELL, &rc);
    if (!has_ended(p, HEAR, &rc))
        return OK;
    return rc == OK ? hear(p) : waits ? rc : OK;
}

static int begin_pieces(struct parcel *p)
{
    uint32_t may = p->sends ? p->granted : p->pieces;
    for (int i = 0; i < PARCEL_WINDOW && p->begun < may; i++) {
        if (p->busy >> i & 1)
            continue;
        int rc = begin_piece(p, i);
        if (rc != OK)
            return rc;
        p->begun++;
    }
    return OK;
}

static int tell(struct parcel *p)
{
    uint32_t more = p->begun - p->granted;
    bool last = more > 0 && p->begun == p->pieces;
    bool due = p->sends ? !p->noted : !p->agreed || more >= PARCEL_WINDOW / 2 || last;
    if (!due || p->busy >> TELL & 1)
        return OK;
    int rc = p->sends ? tell_note(p) : tell_go(p);
    if (rc != OK)
        return rc;
    p->noted = true;
    if (!p->sends) {
        p->agreed = true;
        p->granted = p->begun;
    }
    return OK;
}

/* "No", to a sender; or, from one, that there is no more. If it has no credit it does not read, and
 * will be cut. */
static void say_no(struct world *world, uint32_t to, uint32_t view, uint64_t tag)
{
    struct message *m = message_new(tag, view, sizeof(uint32_t));
    if (!m)
        return;
    bytes_put_le32(m->data, NEVER);
    if (world_send(world, to, m, CLASS_CONTROL) == ERR_FULL)
        message_unref(m);
}

/* Pieces under way may go on, but nobody's range is touched. */
static void end(struct parcel *p, int status)
{
    bool knows = status == OK || status == ERR_STOP || status == ERR_PEER || status == ERR_VIEW;
    withdraw(p);
    p->status = status;
    if (!knows)
        say_no(p->all->world, p->peer, p->view,
               answer_tag(p->tag, p->sends ? PARCEL_GONE : PARCEL_MAY));
}

void parcel_step(struct parcel *p)
{
    if (p->status != POST_PENDING)
        return;
    int rc = take_ended(p);
    if (rc == OK)
        rc = begin_pieces(p);
    if (rc == OK)
        rc = tell(p);
    if (rc != OK && rc != ERR_FULL)
        end(p, rc);
    else if (p->agreed && p->done == p->pieces && !(p->busy >> TELL & 1))
        end(p, OK);
}

/* ---- beginning and ending ---- */

static void begin(struct parcel *p, struct parcels *ps, struct parcel what)
{
    PL_ASSERT(p->status != POST_PENDING);
    PL_ASSERT(what.n <= (size_t)(WIRE_NOTE - 1) * PARCEL_PIECE);
    if (p->all)
        parcels_forget(p);
    *p = what;
    p->status = POST_PENDING;
    p->pieces = (uint32_t)((p->n + PARCEL_PIECE - 1) / PARCEL_PIECE);
    parcels_put(ps, p);
}

void parcel_send(struct parcel *p, struct parcels *ps, const struct parcel_out *out)
{
    PL_ASSERT(out->note_len <= PARCEL_NOTE && out->lane <= UINT8_MAX);
    uint32_t count = ps->count++ & ((1u << PARCEL_COUNT_BITS) - 1);
    uint32_t number = ps->lane << PARCEL_COUNT_BITS | count;
    begin(p, ps,
          (struct parcel){.peer = out->to,
                          .lane = out->lane,
                          .n = out->n,
                          .sends = true,
                          .view = ps->view,
                          .tag = wire_tag(WIRE_PARCEL, out->lane, number, 0),
                          .x = (char *)(uintptr_t)out->x,
                          .note_len = PARCEL_HEAD + out->note_len});
    bytes_put_le64(p->note, out->n);
    if (out->note_len)
        memcpy(p->note + PARCEL_HEAD, out->note, out->note_len);
    int rc = listen_to(p);
    if (rc != OK)
        end(p, rc);
    parcel_step(p);
}

void parcel_accept(struct parcel *p, struct parcels *ps, struct message *note,
                   const struct parcel_in *in)
{
    begin(p, ps,
          (struct parcel){.peer = note->from,
                          .lane = parcel_note_lane(note),
                          .n = in->n,
                          .view = note->view,
                          .tag = note->tag & ~(uint64_t)WIRE_NOTE,
                          .x = (char *)in->x,
                          .land = in->land,
                          .user = in->user,
                          .note_len = note->len});
    memcpy(p->note, note->data, note->len);
    int rc = in->n == parcel_note_floats(note) ? listen_to(p) : ERR_PROTOCOL;
    message_unref(note);
    if (rc != OK)
        end(p, rc);
    parcel_step(p);
}

void parcel_refuse(struct parcels *ps, struct message *note)
{
    say_no(ps->world, note->from, note->view,
           answer_tag(note->tag & ~(uint64_t)WIRE_NOTE, PARCEL_MAY));
    message_unref(note);
}

void parcel_cancel(struct parcel *p)
{
    if (!p->all)
        return;
    if (p->status == POST_PENDING)
        end(p, ERR_CANCELLED);
    parcels_forget(p);
}
