#define _GNU_SOURCE
#include "real/link.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "real/connect.h"
#include "real/handshake.h"
#include "real/node.h"

#include <inttypes.h>
#include <string.h>

/* ---- out ---- */

enum {
    WRITE_BYTES_MAX = 4 * 1024 * 1024, /* at a time, so that others have their turn */
    SUM_BYTES_MAX = 256 * 1024         /* summed and then sent, while the cache has them */
};

static size_t out_data(const struct link_out *out)
{
    return out->m ? out->m->len : out->send ? out->send->len : 0;
}

/* Does a checksum follow data of this length? */
static bool has_sum(const struct link *link, size_t len)
{
    return link->stream.ops->sums && len > 0;
}

/* Number of zeros behind a frame with data of this length. */
static size_t padding_after(const struct link *link, size_t len)
{
    return -(FRAME_SIZE + len) & (link->stream.ops->align - 1);
}

/* Choose the next frame. */
static bool out_next(struct node *node, struct link *link)
{
    struct link_out *out = &link->out;
    struct frame frame;
    if ((link->state != LINK_OPEN && link->state != LINK_DRAINING) || link->shut)
        return false;
    if (!outbox_next(node, link->peer, link->stripe, &frame, &out->m, &out->send))
        return false;
    frame_encode(&frame, out->head);
    out->going = true;
    out->sent = out->summed = 0;
    out->pad = has_sum(link, frame.length) ? FRAME_TAIL : padding_after(link, frame.length);
    memset(out->tail, 0, sizeof out->tail);
    hash_stream_begin(out->sum);
    return true;
}

/* The remainder of n bytes of which, and of `before` ahead of them, some are sent. */
static void out_part(struct iovec *part, size_t *parts, const void *bytes, size_t n, size_t before,
                     size_t sent)
{
    size_t at = sent > before ? sent - before : 0;
    if (at < n)
        part[(*parts)++] = (struct iovec){(char *)(uintptr_t)bytes + at, n - at};
}

/* The part of the data that is sent now, after it was added to the checksum. */
struct out_piece {
    struct iovec part[3];
    size_t parts;
    const uint8_t *unsummed;
    size_t n;
    bool last; /* the sum is complete */
};

/* The next bytes to send, to be read with the lock released. false: nothing */
static bool out_begin(struct node *node, struct link *link, struct out_piece *piece)
{
    struct link_out *out = &link->out;
    while (out->busy) /* a thread keeps the rest of a send */
        pthread_cond_wait(&node->peers.paused, &node->lock);
    if (out->broken || (!out->going && !out_next(node, link)))
        return false;
    size_t len = out_data(out), until = len;
    const uint8_t *data = out->m ? out->m->data : out->send ? out->send->from : NULL;
    *piece = (struct out_piece){.last = false};
    if (has_sum(link, len)) {
        size_t at = out->sent > FRAME_SIZE ? out->sent - FRAME_SIZE : 0;
        until = at + SUM_BYTES_MAX < len ? at + SUM_BYTES_MAX : len;
        until = until > out->summed ? until : out->summed;
        piece->unsummed = data + out->summed;
        piece->n = until - out->summed;
        piece->last = until == len && out->summed < len;
        out->summed = until;
    }
    out_part(piece->part, &piece->parts, out->head, FRAME_SIZE, 0, out->sent);
    if (len)
        out_part(piece->part, &piece->parts, data, until, FRAME_SIZE, out->sent);
    if (until == len)
        out_part(piece->part, &piece->parts, out->tail, out->pad, FRAME_SIZE + len, out->sent);
    out->busy = out->send != NULL;
    return true;
}

/* Only the serving thread uses the checksum state. */
static void out_sum(struct link_out *out, const struct out_piece *piece)
{
    if (piece->n)
        hash_stream_add(out->sum, piece->unsummed, piece->n);
    if (piece->last)
        bytes_put_le64(out->tail, hash_stream_take(out->sum));
}

/* Nothing is being sent any more. */
static void out_clear(struct link_out *out)
{
    *out = (struct link_out){.sum = out->sum};
}

/* Account for `n` more sent bytes. */
static void out_end(struct node *node, struct link *link, size_t n)
{
    struct link_out *out = &link->out;
    out->sent += n;
    if (out->busy)
        pthread_cond_broadcast(&node->peers.paused);
    out->busy = false;
    if (out->sent < FRAME_SIZE + out_data(out) + out->pad)
        return;
    if (out->send)
        send_end(node, out->send, OK);
    message_unref(out->m);
    out_clear(out);
}

static int failure_of(ssize_t n)
{
    return n == STREAM_UNSOUND ? ERR_PROTOCOL : n == STREAM_CORRUPT ? ERR_CORRUPT : ERR_PEER;
}

int link_write(struct node *node, struct link *link)
{
    int rc = OK;
    node_lock(node);
    for (size_t total = 0; rc == OK;) {
        struct out_piece piece;
        if (!out_begin(node, link, &piece)) {
            rc = link->out.broken ? ERR_PEER : OK;
            break;
        }
        node_unlock(node);
        out_sum(&link->out, &piece);
        ssize_t n = link->stream.ops->send(&link->stream, piece.part, piece.parts);
        node_lock(node);
        out_end(node, link, n > 0 ? (size_t)n : 0);
        total += n > 0 ? (size_t)n : 0;
        if (n > 0 && node->io.pace_out.rate > 0)
            pacer_take(&node->io.pace_out, (size_t)n, real_now());
        if (n < 0)
            rc = failure_of(n);
        else if (n == 0 || total >= WRITE_BYTES_MAX)
            rc = ERR_FULL;
    }
    node_unlock(node);
    return rc == OK && link->stream.ops->flush ? link->stream.ops->flush(&link->stream) : rc;
}

/* ---- sends that are taken back ---- */

void link_drop_send(struct node *node, struct link *link, int status)
{
    struct send *send = link->out.send;
    link->out.send = NULL;
    link->out.broken = true;
    send_end(node, send, status);
}

static struct message *copy_rest(struct node *node, struct link_out *out)
{
    const struct send *send = out->send;
    size_t at = out->sent > FRAME_SIZE ? out->sent - FRAME_SIZE : 0;
    at = at < send->len ? at : send->len;
    out->busy = true;
    node_unlock(node);
    struct message *m = pool_message(node->pool, send->tag, send->view, send->len);
    if (m && at < send->len)
        memcpy((char *)m->data + at, (const char *)send->from + at, send->len - at);
    node_lock(node);
    out->busy = false;
    pthread_cond_broadcast(&node->peers.paused);
    return m;
}

void link_keep_rest(struct node *node, struct link *link, int status)
{
    struct link_out *out = &link->out;
    struct send *send = out->send;
    if (out->sent == 0) { /* no byte of it was sent */
        out_clear(out);
        link->peer->sent[CLASS_BULK] -= message_cost(send->len);
        send_end(node, send, status);
        task_wake(node, WAIT_CREDIT, link->peer);
        io_tend(node, link->peer);
        return;
    }
    out->m = copy_rest(node, out);
    if (out->m) {
        out->send = NULL;
        send_end(node, send, status);
    } else {
        link->peer->cut = true;
        link_drop_send(node, link, status);
        io_tend(node, link->peer);
    }
}

/* ---- in ---- */

/* The frame is complete and undamaged. */
static int in_complete(struct node *node, struct link *link)
{
    struct link_in *in = &link->in;
    const struct frame *frame = &in->frame;
    struct dropped dropped = {.count = 0};
    int rc = OK;
    node_lock(node);
    if (in->m) {
        struct message *m = in->m;
        in->m = NULL;
        rc = mailbox_deliver(node, m, frame->class);
        dropped = mailbox_news(node);
    } else {
        claim_finish(node, &in->claim, OK);
        peer_taken(node, link->peer->number, frame->class, message_cost(frame->length));
    }
    node_unlock(node);
    if (dropped.count > 0)
        log_warn(&node->log,
                 "%" PRIu64 " messages that nobody waits for are dropped; the last, of tag %" PRIx64
                 ", came from worker %u",
                 dropped.count, dropped.tag, dropped.from);
    in->have = 0;
    in->pad = has_sum(link, frame->length) ? 0 : padding_after(link, frame->length);
    in->data = in->tail = false;
    return rc;
}

/* The data is complete. */
static int in_landed(struct node *node, struct link *link)
{
    struct link_in *in = &link->in;
    if (!has_sum(link, in->frame.length))
        return in_complete(node, link);
    in->data = false;
    in->tail = true;
    in->have = 0;
    return OK;
}

/* And its sum. */
static int in_tail(struct node *node, struct link *link)
{
    struct link_in *in = &link->in;
    bool same = bytes_le64(in->head) == hash_stream_take(in->sum);
    return same ? in_complete(node, link) : ERR_CORRUPT;
}

/* The header of a data frame has arrived: decide where its bytes go. */
static int in_begin(struct node *node, struct link *link)
{
    struct link_in *in = &link->in;
    const struct frame *frame = &in->frame;
    in->data = true;
    in->got = 0;
    hash_stream_begin(in->sum);
    in->first_byte = real_now();
    node_lock(node);
    int rc = peer_hold(node, link->peer, frame);
    bool nowhere = link->state != LINK_OPEN || link->peer->state != PEER_UP ||
                   mailbox_aborted(node, frame->view);
    if (rc == OK && !nowhere)
        nowhere = mailbox_claim(node, &in->claim, link->peer->number, frame, in->first_byte);
    node_unlock(node);
    if (rc == OK && !nowhere) {
        in->m = pool_message(node->pool, frame->tag, frame->view, frame->length);
        if (!in->m)
            return ERR_NOMEM;
        in->m->from = link->peer->number;
        in->m->first_byte = in->first_byte;
    }
    if (rc == OK && frame->length == 0)
        rc = in_complete(node, link);
    return rc;
}

/* Pass whole words to the receive's function, at addresses that are multiples of four. */
static void land_words(struct link_in *in, const uint8_t *bytes, size_t n)
{
    struct recv *recv = in->claim.recv;
    _Alignas(8) uint8_t aligned[8192];
    while (n > 0) {
        size_t odd = in->got % 4, k;
        if (odd || n < 4) {
            k = n < 4 - odd ? n : 4 - odd;
            memcpy(in->odd + odd, bytes, k);
            if (odd + k == 4) {
                recv->land(recv->user, (char *)recv->into + recv->landed, in->odd, 4);
                recv->landed += 4;
            }
        } else {
            const uint8_t *from = bytes;
            k = n & ~(size_t)3;
            if ((uintptr_t)bytes % 4) {
                k = k < sizeof aligned ? k : sizeof aligned;
                from = memcpy(aligned, bytes, k);
            }
            recv->land(recv->user, (char *)recv->into + recv->landed, from, k);
            recv->landed += k;
        }
        in->got += k;
        bytes += k;
        n -= k;
    }
}

/* Continue with the receive that has been claimed, unless it was taken back. */
static bool in_claimed(struct node *node, struct link_in *in)
{
    node_lock(node);
    bool go_on = claim_begin(node, &in->claim);
    node_unlock(node);
    return go_on;
}

static void in_paused(struct node *node, struct link_in *in)
{
    node_lock(node);
    claim_end(node, &in->claim);
    node_unlock(node);
}

static void land_bytes(struct node *node, struct link_in *in, const uint8_t *bytes, size_t n)
{
    if (!in_claimed(node, in)) {
        in->got += n;
        return;
    }
    struct recv *recv = in->claim.recv;
    if (recv->land) {
        land_words(in, bytes, n);
    } else {
        memcpy((char *)recv->into + in->got, bytes, n);
        in->got += n;
        recv->landed = in->got;
    }
    in_paused(node, in);
}

static int in_data(struct node *node, struct link *link, const uint8_t *bytes, size_t n)
{
    struct link_in *in = &link->in;
    if (has_sum(link, in->frame.length))
        hash_stream_add(in->sum, bytes, n);
    if (in->m) {
        memcpy((char *)in->m->data + in->got, bytes, n);
        in->got += n;
    } else {
        land_bytes(node, in, bytes, n);
    }
    return in->got == in->frame.length ? in_landed(node, link) : OK;
}

static int in_header(struct node *node, struct link *link)
{
    struct link_in *in = &link->in;
    int rc = frame_decode(in->head, &in->frame);
    if (rc != OK)
        return rc;
    if (in->frame.type == FRAME_DATA)
        return in_begin(node, link);
    in->have = 0;
    in->pad = padding_after(link, 0);
    node_lock(node);
    rc = peer_credit(node, link->peer, in->frame.class, in->frame.tag);
    node_unlock(node);
    return rc;
}

/* The bytes of the message that is expected during the handshake. */
static size_t hello_size(const struct link *link)
{
    return link->state == LINK_CHALLENGE ? HELLO_SIZE : link->dialled ? REPLY_SIZE : FIRST_SIZE;
}

static bool is_in_hellos(const struct link *link)
{
    return link->state == LINK_CHALLENGE || link->state == LINK_HANDSHAKE;
}

static int in_hello(struct node *node, struct link *link)
{
    struct link_in *in = &link->in;
    struct hello hello;
    if (!link->dialled && !hello_begins(in->head, in->have))
        return ERR_PROTOCOL; /* at its first byte, if need be */
    if (in->have < HELLO_SIZE)
        return OK;
    bool other_version = hello_decode(in->head, &hello) == ERR_UNSUPPORTED;
    if (in->have < hello_size(link) && !other_version) /* of which nothing more is known */
        return OK;
    in->have = 0;
    return handshake_take(node, link);
}

/* Take bytes of a header or hello, and of zeros before it. Returns the number of bytes taken. */
static size_t feed_head(struct node *node, struct link *link, const uint8_t *bytes, size_t n,
                        int *rc)
{
    struct link_in *in = &link->in;
    bool hello = is_in_hellos(link);
    size_t whole = hello ? hello_size(link) : in->tail ? (size_t)FRAME_TAIL : FRAME_SIZE;
    size_t want = whole - in->have;
    if (in->pad) {
        size_t k = n < in->pad ? n : in->pad;
        in->pad -= k;
        return k;
    }
    size_t k = n < want ? n : want;
    memcpy(in->head + in->have, bytes, k);
    in->have += k;
    if (hello)
        *rc = in_hello(node, link);
    else if (in->have == whole)
        *rc = in->tail ? in_tail(node, link) : in_header(node, link);
    return k;
}

/* Any number of bytes, cut anywhere. */
static int feed_bytes(struct node *node, struct link *link, const uint8_t *bytes, size_t n)
{
    struct link_in *in = &link->in;
    const struct transport_ops *ops = link->stream.ops;
    int rc = OK;
    while (rc == OK && n > 0 && link->stream.ops == ops) { /* doorbells may follow a hello */
        size_t k;
        if (in->data) {
            size_t want = in->frame.length - in->got;
            k = n < want ? n : want;
            rc = in_data(node, link, bytes, k);
        } else {
            k = feed_head(node, link, bytes, n, &rc);
        }
        bytes += k;
        n -= k;
    }
    return rc;
}

/* The destination of data that does not pass through scratch; NULL: none. */
static char *in_direct(struct node *node, struct link_in *in)
{
    if (!in->data)
        return NULL;
    if (in->m)
        return (char *)in->m->data + in->got;
    if (!in_claimed(node, in))
        return NULL;
    if (!in->claim.recv->land)
        return (char *)in->claim.recv->into + in->got;
    in_paused(node, in);
    return NULL;
}

static int in_arrived(struct node *node, struct link *link, const char *bytes, size_t n)
{
    struct link_in *in = &link->in;
    if (has_sum(link, in->frame.length))
        hash_stream_add(in->sum, bytes, n);
    in->got += n;
    if (!in->m) {
        in->claim.recv->landed = in->got;
        in_paused(node, in);
    }
    return in->got == in->frame.length ? in_landed(node, link) : OK;
}

/* The stream has ended. While other stripes are open, that is in order: their frames were sent
 * before. They have some time to end, too. */
static int in_ended(struct node *node, struct link *link)
{
    const struct peer *peer = link->peer;
    bool others = false;
    if (link_is_in_handshake(link) || link->in.have || link->in.data || link->in.tail)
        return ERR_PEER;
    for (int i = 0; i < STRIPES_MAX; i++)
        others = others || (peer->link[i] && peer->link[i] != link && !peer->link[i]->ended);
    if (!others)
        return ERR_PEER;
    connect_ended(node, link);
    return OK;
}

/* Bytes read beyond those with a direct destination: these are copied, so they are few. */
enum { AHEAD_BYTES = 16 * 1024, READ_BYTES_MAX = 2 * 1024 * 1024 };

/* Bytes that the transport has read ahead: the socket will not announce them. */
static bool holds_more(const struct link *link)
{
    const struct transport_ops *ops = link->stream.ops;
    return ops->holds && ops->holds(&link->stream);
}

/* Read the stream once. *more: there may be more. */
static int receive_bytes(struct node *node, struct link *link, uint8_t *scratch, size_t size,
                         bool *more, size_t *total)
{
    struct link_in *in = &link->in;
    char *direct = in_direct(node, in);
    size_t rest = in->data ? in->frame.length - in->got : 0;
    size_t behind = (direct ? 0 : rest) + AHEAD_BYTES;
    if (is_in_hellos(link)) /* not one byte more before the other side is known */
        behind = hello_size(link) - in->have;
    struct iovec part[2] = {{direct, rest}, {scratch, behind < size ? behind : size}};
    ssize_t n = link->stream.ops->receive(&link->stream, direct ? part : part + 1, direct ? 2 : 1);
    size_t got = n > 0 ? (size_t)n : 0, placed = !direct ? 0 : got < rest ? got : rest;
    int rc = direct ? in_arrived(node, link, direct, placed) : OK;
    *more = n >= 0 && (got == part[1].iov_len + (direct ? rest : 0) || holds_more(link));
    *total += got;
    if (n < 0)
        return n == STREAM_END ? in_ended(node, link) : failure_of(n);
    return rc == OK ? feed_bytes(node, link, scratch, got - placed) : rc;
}

/* The same where bytes are used where they lie; not too many at once, for until then the other side
 * has not their room. */
enum { LOOK_BYTES_MAX = 64 * 1024 };

static int read_link(struct node *node, struct link *link, bool *more, size_t *total)
{
    const uint8_t *bytes;
    ssize_t n = link->stream.ops->peek(&link->stream, &bytes);
    *more = n > 0;
    if (n == STREAM_NONE)
        return OK;
    if (n < 0)
        return n == STREAM_END ? in_ended(node, link) : failure_of(n);
    n = n < LOOK_BYTES_MAX ? n : LOOK_BYTES_MAX;
    int rc = link->shut ? OK : feed_bytes(node, link, bytes, (size_t)n);
    link->stream.ops->consume(&link->stream, (size_t)n);
    *total += (size_t)n;
    return rc;
}

int link_read(struct node *node, struct link *link, uint8_t *scratch, size_t size)
{
    bool more = !link->ended;
    int rc = OK;
    for (size_t total = 0; rc == OK && more && (total < READ_BYTES_MAX || holds_more(link));)
        if (link->state == LINK_SEALING) {
            rc = handshake_seal(node, link);
            more = link->state != LINK_SEALING;
        } else if (!link->stream.ops->receive) {
            rc = read_link(node, link, &more, &total);
        } else if (link->shut) { /* we wait for its end alone */
            struct iovec all = {scratch, size};
            ssize_t n = link->stream.ops->receive(&link->stream, &all, 1);
            return n < 0 ? ERR_PEER : OK;
        } else {
            rc = receive_bytes(node, link, scratch, size, &more, &total);
        }
    const struct link_in *in = &link->in;
    if (rc == OK && link->stream.ops->expect)
        link->stream.ops->expect(
            &link->stream,
            in->data ? in->frame.length - in->got + (link->stream.ops->sums ? FRAME_TAIL : 0) : 0);
    return rc;
}

int link_init(struct link *link)
{
    link->out.sum = hash_stream_create();
    link->in.sum = hash_stream_create();
    return link->out.sum && link->in.sum ? OK : ERR_NOMEM;
}

void link_discard(struct link *link)
{
    hash_stream_free(link->out.sum);
    hash_stream_free(link->in.sum);
}

void link_release(struct node *node, struct link *link)
{
    message_unref(link->out.m);
    message_unref(link->in.m);
    node_lock(node);
    claim_finish(node, &link->in.claim, ERR_PEER);
    node_unlock(node);
    link_discard(link);
}
