/* The messages between the two ends of a transfer, all in its view and under its number:
 *
 *   TRANSFER     piece WIRE_HEADER_PIECE  sender → receiver  floats (u56), codec (u8); then the
 *                                                            caller's header. Both ALONE: no
 *                                                            transfer
 *   TRANSFER_GO  piece TRANSFER_MAY       receiver → sender  pieces granted (u32), or NEVER
 *   TRANSFER     piece 0, 1, 2 …          sender → receiver  pieces with a posted receive only
 *   TRANSFER_GO  piece TRANSFER_ENDED     sender → receiver  cancelled
 *
 * The lane is the receiver's. A number is the sender's lane, then a count. A piece that arrives as
 * a message had a posted receive once: it belongs to a transfer that was cancelled, and is
 * discarded where headers are awaited (T3). */
#include "base/fault.h"
#include "base/minmax.h"
#include "coll/transfer_internal.h"
#include "wire/catalogue.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    SEND_GRANT = TRANSFER_WINDOW, /* bits of `busy`, after those of the slots */
    RECEIVE_GRANT,
};

#define NEVER UINT32_MAX
#define ALONE UINT64_MAX

static uint64_t grant_tag(uint64_t tag, uint32_t piece)
{
    return (tag & ~WIRE_KIND_MASK) | wire_tag(WIRE_TRANSFER_GO, 0, 0, piece);
}

static size_t piece_floats(const struct transfer *p, uint32_t piece)
{
    return min_size(p->n - piece * p->chunk, p->chunk);
}

/* Those of a piece that the codec codes; exact ones follow. */
static size_t coded_floats(const struct transfer *p, uint32_t piece)
{
    size_t from = piece * p->chunk, end = p->n - p->exact;
    return end > from ? min_size(end - from, piece_floats(p, piece)) : 0;
}

static size_t piece_bytes(const struct transfer *p, uint32_t piece)
{
    size_t coded = coded_floats(p, piece);
    return codec_bytes(p->codec, coded) + (piece_floats(p, piece) - coded) * sizeof(float);
}

static void *piece_at(const struct transfer *p, uint32_t piece)
{
    return p->x ? p->x + piece * p->chunk * sizeof(float) : NULL;
}

/* ---- coded pieces ---- */

static uint8_t *stage_at(const struct transfer *p, int slot)
{
    return p->stage + (size_t)slot * p->stage_bytes;
}

static int take_stage(struct transfer *p)
{
    if (p->codec == CODEC_F32 || !p->x || p->n == 0)
        return OK;
    p->stage_bytes = codec_bytes(p->codec, p->chunk) + min_size(p->chunk, p->exact) * sizeof(float);
    p->stage = malloc(min_size(p->pieces, TRANSFER_WINDOW) * p->stage_bytes);
    return p->stage ? OK : ERR_NOMEM;
}

static void encode_piece(const struct transfer *p, uint32_t piece, int slot)
{
    size_t coded = coded_floats(p, piece), exact = piece_floats(p, piece) - coded;
    const float *x = piece_at(p, piece);
    codec_encode(p->codec, x, coded, stage_at(p, slot));
    codec_encode(CODEC_F32, x + coded, exact, stage_at(p, slot) + codec_bytes(p->codec, coded));
}

static int decode_piece(const struct transfer *p, uint32_t piece, int slot)
{
    size_t coded = coded_floats(p, piece), exact = piece_floats(p, piece) - coded;
    float *x = piece_at(p, piece);
    bool sound = codec_decode(p->codec, stage_at(p, slot), coded, x);
    codec_decode(CODEC_F32, stage_at(p, slot) + codec_bytes(p->codec, coded), exact, x + coded);
    return sound ? OK : ERR_PROTOCOL;
}

/* ---- posts ---- */

/* Send to the node itself. A world posts to other nodes only, so the transfer sends messages with
 * copies, which end at once. ERR_FULL: try again later */
static int send_here(struct transfers *ps, struct send *s)
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

static int start_send(struct transfer *p, int bit, struct send *s, struct send what)
{
    struct transfers *ps = p->all;
    what.to = p->peer;
    what.view = p->view;
    what.ended = &ps->ended;
    *s = what;
    int rc = p->peer == ps->world->self ? send_here(ps, s) : world_post_send(ps->world, s);
    ps->posts += rc == OK;
    p->busy |= (rc == OK ? 1u : 0u) << bit;
    return rc;
}

static int start_recv(struct transfer *p, int bit, struct recv *r, struct recv what)
{
    struct transfers *ps = p->all;
    what.from = p->peer;
    what.view = p->view;
    what.ended = &ps->ended;
    *r = what;
    int rc = world_post_recv(ps->world, r);
    ps->posts += rc == OK;
    p->busy |= (rc == OK ? 1u : 0u) << bit;
    return rc;
}

/* Post a receive for the other side's control message: a sender's for a grant, a receiver's for the
 * sender's cancellation. */
static int listen_to(struct transfer *p)
{
    const struct recv answer = {.tag = grant_tag(p->tag, p->sends ? TRANSFER_MAY : TRANSFER_ENDED),
                                .into = p->grant_bytes,
                                .len = sizeof p->grant_bytes};
    return start_recv(p, RECEIVE_GRANT, &p->grant_recv, answer);
}

static int send_header(struct transfer *p)
{
    const struct send header = {
        .tag = p->tag | WIRE_HEADER_PIECE, .from = p->header, .len = p->header_len};
    return start_send(p, SEND_GRANT, &p->grant_send, header);
}

static int send_grant(struct transfer *p)
{
    const struct send go = {
        .tag = grant_tag(p->tag, TRANSFER_MAY), .from = p->grant_sent, .len = sizeof p->grant_sent};
    bytes_put_le32(p->grant_sent, p->begun);
    return start_send(p, SEND_GRANT, &p->grant_send, go);
}

static int begin_piece(struct transfer *p, int i)
{
    uint64_t tag = p->tag | p->begun;
    void *x = piece_at(p, p->begun);
    size_t len = piece_bytes(p, p->begun);
    uint32_t stripe = p->all->stripes > 1 ? p->begun % p->all->stripes : 0;
    if (p->stage && p->sends)
        encode_piece(p, p->begun, i);
    if (p->stage)
        x = stage_at(p, i);
    const struct send out = {.tag = tag, .from = x, .len = len, .stripe = stripe};
    const struct recv in = {.tag = tag, .into = x, .len = len, .land = p->land, .user = p->user};
    if (!p->sends)
        return start_recv(p, i, &p->slot[i].recv, in);
    int rc = start_send(p, i, &p->slot[i].send, out);
    if (rc == OK)
        trace_sending(p->all->world, &p->all->sends, p->peer, len);
    return rc;
}

static int status_of(const struct transfer *p, int i)
{
    if (i >= TRANSFER_WINDOW)
        return atomic_load(i == SEND_GRANT ? &p->grant_send.status : &p->grant_recv.status);
    return atomic_load(p->sends ? &p->slot[i].send.status : &p->slot[i].recv.status);
}

/* Was this post under way, and has it ended? *status is its result. */
static bool has_ended(struct transfer *p, int i, int *status)
{
    if (!(p->busy >> i & 1))
        return false;
    *status = status_of(p, i);
    if (*status == POST_PENDING)
        return false;
    p->busy &= ~(1u << i);
    return true;
}

static void withdraw_posts(struct transfer *p)
{
    struct world *world = p->all->world;
    for (int i = 0; i < TRANSFER_WINDOW; i++)
        if (!(p->busy >> i & 1))
            continue;
        else if (p->sends)
            world_unsend(world, &p->slot[i].send);
        else
            world_unpost(world, &p->slot[i].recv);
    if (p->busy >> SEND_GRANT & 1)
        world_unsend(world, &p->grant_send);
    if (p->busy >> RECEIVE_GRANT & 1)
        world_unpost(world, &p->grant_recv);
    p->busy = 0;
}

/* ---- moving on ---- */

/* A control message has arrived: at a sender, the number of pieces that it may send; at a receiver,
 * the sender's cancellation. A grant beyond the vector is a protocol error (T1). */
static int take_grant(struct transfer *p)
{
    uint32_t may = bytes_le32(p->grant_bytes);
    if (!p->sends || may == NEVER)
        return ERR_STOP;
    if (may < p->granted || may > p->pieces)
        return ERR_PROTOCOL;
    p->granted = may;
    p->agreed = true;
    return listen_to(p);
}

static void count_bytes(struct transfer *p, size_t bytes)
{
    struct transfers *ps = p->all;
    if (p->sends)
        trace_sent(
            ps->world, &ps->sends, p->peer,
            (struct trace_span){.kind = SPAN_SEND, .row = transfers_row(ps), .n = ps->count});
    if (p->peer == ps->world->self)
        return;
    ps->bytes += bytes;
    if (ps->group)
        atomic_fetch_add(&ps->group->moved, bytes);
}

static int take_ended(struct transfer *p)
{
    int rc;
    for (int i = 0; i < TRANSFER_WINDOW; i++)
        if (has_ended(p, i, &rc)) {
            if (rc == OK && p->stage && !p->sends)
                rc = decode_piece(p, (uint32_t)p->slot[i].recv.tag & WIRE_HEADER_PIECE, i);
            if (rc != OK)
                return rc;
            p->done++;
            count_bytes(p, p->sends ? p->slot[i].send.len : p->slot[i].recv.len);
        }
    /* The pieces decide first: all of them may have arrived although the other node is gone by now.
     */
    bool waits = p->sends && !(p->agreed && p->granted == p->pieces);
    (void)has_ended(p, SEND_GRANT, &rc);
    if (!has_ended(p, RECEIVE_GRANT, &rc))
        return OK;
    return rc == OK ? take_grant(p) : waits ? rc : OK;
}

static int begin_chunks(struct transfer *p)
{
    uint32_t may = p->sends ? p->granted : p->pieces;
    for (int i = 0; i < TRANSFER_WINDOW && p->begun < may; i++) {
        if (p->busy >> i & 1)
            continue;
        int rc = begin_piece(p, i);
        if (rc != OK)
            return rc;
        p->begun++;
    }
    return OK;
}

static int send_control(struct transfer *p)
{
    uint32_t more = p->begun - p->granted;
    bool last = more > 0 && p->begun == p->pieces;
    bool due = p->sends ? !p->noted : !p->agreed || more >= TRANSFER_WINDOW / 2 || last;
    if (!due || p->busy >> SEND_GRANT & 1)
        return OK;
    int rc = p->sends ? send_header(p) : send_grant(p);
    if (rc != OK)
        return rc;
    p->noted = true;
    if (!p->sends) {
        p->agreed = true;
        p->granted = p->begun;
    }
    return OK;
}

/* Refuse a sender's transfer, or cancel one towards a receiver. A node without credit does not
 * read, and loses its connection anyway. */
static void send_refusal(struct world *world, uint32_t to, uint32_t view, uint64_t tag)
{
    struct message *m = message_new(tag, view, sizeof(uint32_t));
    if (!m)
        return;
    bytes_put_le32(m->data, NEVER);
    if (world_send(world, to, m, CLASS_CONTROL) == ERR_FULL)
        message_unref(m);
}

/* Pieces may still be in transit, but no post touches the range any more (T2). */
static void end_transfer(struct transfer *p, int status)
{
    bool knows = status == OK || status == ERR_STOP || status == ERR_PEER || status == ERR_VIEW;
    withdraw_posts(p);
    free(p->stage);
    p->stage = NULL;
    p->status = status;
    if (!knows)
        send_refusal(p->all->world, p->peer, p->view,
                     grant_tag(p->tag, p->sends ? TRANSFER_ENDED : TRANSFER_MAY));
}

void transfer_step(struct transfer *p)
{
    if (p->status != POST_PENDING)
        return;
    int rc = take_ended(p);
    if (rc == OK)
        rc = begin_chunks(p);
    if (rc == OK)
        rc = send_control(p);
    if (rc != OK && rc != ERR_FULL)
        end_transfer(p, rc);
    else if (p->agreed && p->done == p->pieces && !(p->busy >> SEND_GRANT & 1))
        end_transfer(p, OK);
}

/* ---- beginning and ending ---- */

static void begin_transfer(struct transfer *p, struct transfers *ps, struct transfer what)
{
    PL_ASSERT(p->status != POST_PENDING);
    if (p->all)
        transfers_forget(p);
    *p = what;
    p->status = POST_PENDING;
    p->chunk = ps->chunk ? ps->chunk : TRANSFER_CHUNK;
    if (p->codec != CODEC_F32)
        p->chunk += -p->chunk % CODEC_TOPK_BLOCK;
    while (p->n / p->chunk + 1 >= WIRE_HEADER_PIECE) /* piece numbers have sixteen bits */
        p->chunk *= 2;
    p->pieces = (uint32_t)((p->n + p->chunk - 1) / p->chunk);
    transfers_put(ps, p);
}

/* Of piece 0 of the next transfer to a lane. */
static uint64_t next_tag(struct transfers *ps, uint32_t lane)
{
    uint32_t count = ps->count++ & ((1u << TRANSFER_COUNT_BITS) - 1);
    PL_ASSERT(lane <= UINT8_MAX);
    return wire_tag(WIRE_TRANSFER, lane, ps->lane << TRANSFER_COUNT_BITS | count, 0);
}

int transfer_notify(struct transfers *ps, uint32_t to, uint32_t lane, const void *header,
                    size_t header_len)
{
    uint64_t tag = next_tag(ps, lane) | WIRE_HEADER_PIECE;
    struct message *m = message_new(tag, ps->view, TRANSFER_HEAD + header_len);
    PL_ASSERT(header_len <= TRANSFER_HEADER);
    if (!m)
        return ERR_NOMEM;
    bytes_put_le64(m->data, ALONE);
    memcpy((uint8_t *)m->data + TRANSFER_HEAD, header, header_len);
    if (world_send(ps->world, to, m, CLASS_CONTROL) == ERR_FULL)
        message_unref(m); /* it does not read, and loses its connection anyway */
    return OK;
}

void transfer_send(struct transfer *p, struct transfers *ps, const struct transfer_out *out)
{
    PL_ASSERT(out->header_len <= TRANSFER_HEADER);
    begin_transfer(p, ps,
                   (struct transfer){.peer = out->to,
                                     .lane = out->lane,
                                     .n = out->n,
                                     .sends = true,
                                     .view = ps->view,
                                     .tag = next_tag(ps, out->lane),
                                     .x = (char *)(uintptr_t)out->x,
                                     .codec = out->codec,
                                     .exact = out->exact,
                                     .header_len = TRANSFER_HEAD + out->header_len});
    PL_ASSERT(out->n <= FLOATS_MAX && out->exact <= out->n);
    bytes_put_le64(p->header, out->n | (uint64_t)out->codec << CODEC_SHIFT);
    if (out->header_len)
        memcpy(p->header + TRANSFER_HEAD, out->header, out->header_len);
    int rc = take_stage(p);
    if (rc == OK)
        rc = listen_to(p);
    if (rc != OK)
        end_transfer(p, rc);
    transfer_step(p);
}

void transfer_accept(struct transfer *p, struct transfers *ps, struct message *header,
                     const struct transfer_in *in)
{
    begin_transfer(p, ps,
                   (struct transfer){.peer = header->from,
                                     .lane = transfer_header_lane(header),
                                     .n = in->n,
                                     .view = header->view,
                                     .tag = header->tag & ~(uint64_t)WIRE_HEADER_PIECE,
                                     .x = (char *)in->x,
                                     .codec = in->codec,
                                     .exact = in->exact,
                                     .land = in->land,
                                     .user = in->user,
                                     .header_len = header->len});
    memcpy(p->header, header->data, header->len);
    PL_ASSERT(in->codec == CODEC_F32 || !in->land);
    bool fits =
        in->n == transfer_header_floats(header) && in->codec == transfer_header_codec(header);
    int rc = fits ? take_stage(p) : ERR_PROTOCOL;
    if (rc == OK)
        rc = listen_to(p);
    message_unref(header);
    if (rc != OK)
        end_transfer(p, rc);
    transfer_step(p);
}

void transfer_refuse(struct transfers *ps, struct message *header)
{
    if (bytes_le64(header->data) != ALONE)
        send_refusal(ps->world, header->from, header->view,
                     grant_tag(header->tag & ~(uint64_t)WIRE_HEADER_PIECE, TRANSFER_MAY));
    message_unref(header);
}

void transfer_cancel(struct transfer *p)
{
    if (!p->all)
        return;
    if (p->status == POST_PENDING)
        end_transfer(p, ERR_CANCELLED);
    transfers_forget(p);
}
