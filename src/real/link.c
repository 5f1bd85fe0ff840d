#define _GNU_SOURCE
#include "real/link.h"

#include "real/greet.h"
#include "real/node.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* ---- out ---- */

enum { WRITE_BYTES_MAX = 4 * 1024 * 1024 }; /* at a time, so that others have their turn */

/* Choose the next frame: control before bulk. */
static bool out_next(struct node *node, struct link *link)
{
    struct link_out *out = &link->out;
    struct frame frame;
    if (link->state != LINK_OPEN && link->state != LINK_DRAINING)
        return false;
    node_lock(node);
    bool more = peer_next_frame(link->peer, &frame, &out->m);
    node_unlock(node);
    if (!more)
        return false;
    frame_encode(&frame, out->head);
    out->head_len = FRAME_SIZE;
    out->sent = 0;
    return true;
}

static ssize_t out_send(struct link *link)
{
    struct link_out *out = &link->out;
    struct iovec part[2];
    size_t parts = 0, len = out->m ? out->m->len : 0;
    size_t at = out->sent > out->head_len ? out->sent - out->head_len : 0;
    if (out->sent < out->head_len)
        part[parts++] = (struct iovec){out->head + out->sent, out->head_len - out->sent};
    if (at < len)
        part[parts++] = (struct iovec){(char *)out->m->data + at, len - at};
    struct msghdr message = {.msg_iov = part, .msg_iovlen = parts};
    return sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int link_write(struct node *node, struct link *link)
{
    struct link_out *out = &link->out;
    for (size_t total = 0; total < WRITE_BYTES_MAX;) {
        if (!out->head_len && !out_next(node, link))
            return OK;
        ssize_t n = out_send(link);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? ERR_FULL : ERR_PEER;
        out->sent += (size_t)n;
        total += (size_t)n;
        if (out->sent == out->head_len + (out->m ? out->m->len : 0)) {
            message_unref(out->m);
            *out = (struct link_out){.head_len = 0};
        }
    }
    return ERR_FULL;
}

/* ---- in ---- */

/* All of the frame is here. */
static int in_complete(struct node *node, struct link *link)
{
    struct link_in *in = &link->in;
    const struct frame *frame = &in->frame;
    int rc = OK;
    node_lock(node);
    if (in->m) {
        struct message *m = in->m;
        in->m = NULL;
        rc = mailbox_deliver(node, m, frame->class);
    } else {
        claim_finish(node, &in->claim, OK);
        peer_taken(node, link->peer->number, frame->class, message_cost(frame->length));
    }
    node_unlock(node);
    in->have = 0;
    in->data = false;
    return rc;
}

/* A data frame's header is here: decide where its bytes go. */
static int in_begin(struct node *node, struct link *link)
{
    struct link_in *in = &link->in;
    const struct frame *frame = &in->frame;
    in->data = true;
    in->got = 0;
    in->first_byte = real_now();
    node_lock(node);
    int rc = peer_hold(link->peer, frame);
    bool nowhere = link->peer->state != PEER_UP || mailbox_aborted(node, frame->view);
    if (rc == OK && !nowhere)
        nowhere = mailbox_claim(node, &in->claim, link->peer->number, frame, in->first_byte);
    node_unlock(node);
    if (rc == OK && !nowhere) {
        in->m = message_new(frame->tag, frame->view, frame->length);
        if (!in->m)
            return ERR_NOMEM;
        in->m->from = link->peer->number;
        in->m->first_byte = in->first_byte;
    }
    if (rc == OK && frame->length == 0)
        rc = in_complete(node, link);
    return rc;
}

/* Hand whole words to the receive's function, at addresses that are multiples of four. */
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
                recv->land((char *)recv->into + recv->landed, in->odd, 4);
                recv->landed += 4;
            }
        } else {
            const uint8_t *from = bytes;
            k = n & ~(size_t)3;
            if ((uintptr_t)bytes % 4) {
                k = k < sizeof aligned ? k : sizeof aligned;
                from = memcpy(aligned, bytes, k);
            }
            recv->land((char *)recv->into + recv->landed, from, k);
            recv->landed += k;
        }
        in->got += k;
        bytes += k;
        n -= k;
    }
}

static void land(struct node *node, struct link_in *in, const uint8_t *bytes, size_t n)
{
    node_lock(node);
    bool go_on = claim_begin(node, &in->claim);
    node_unlock(node);
    if (!go_on) {
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
    node_lock(node);
    claim_end(node, &in->claim);
    node_unlock(node);
}

static int in_data(struct node *node, struct link *link, const uint8_t *bytes, size_t n)
{
    struct link_in *in = &link->in;
    if (in->m) {
        memcpy((char *)in->m->data + in->got, bytes, n);
        in->got += n;
    } else {
        land(node, in, bytes, n);
    }
    return in->got == in->frame.length ? in_complete(node, link) : OK;
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
    node_lock(node);
    rc = peer_credit(node, link->peer, in->frame.class, in->frame.tag);
    node_unlock(node);
    return rc;
}

static int in_hello(struct node *node, struct link *link)
{
    if (!link->dialled && !hello_begins(link->in.head, link->in.have))
        return ERR_PROTOCOL; /* at its first byte, if need be */
    if (link->in.have < HELLO_SIZE)
        return OK;
    link->in.have = 0;
    return greet_take(node, link);
}

/* Any number of bytes, cut anywhere. */
static int feed(struct node *node, struct link *link, const uint8_t *bytes, size_t n)
{
    struct link_in *in = &link->in;
    int rc = OK;
    while (rc == OK && n > 0) {
        bool hello = link->state == LINK_GREETING;
        size_t want = in->data ? in->frame.length - in->got
                               : (hello ? (size_t)HELLO_SIZE : FRAME_SIZE) - in->have;
        size_t k = n < want ? n : want;
        if (in->data) {
            rc = in_data(node, link, bytes, k);
        } else {
            memcpy(in->head + in->have, bytes, k);
            in->have += k;
            if (hello)
                rc = in_hello(node, link);
            else if (in->have == FRAME_SIZE)
                rc = in_header(node, link);
        }
        bytes += k;
        n -= k;
    }
    return rc;
}

int link_read(struct node *node, struct link *link, uint8_t *scratch, size_t size)
{
    ssize_t n = recv(link->fd, scratch, size, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? OK : ERR_PEER;
    if (n == 0)
        return ERR_PEER;
    return link->state == LINK_DRAINING ? OK : feed(node, link, scratch, (size_t)n);
}

void link_release(struct node *node, struct link *link)
{
    message_unref(link->out.m);
    message_unref(link->in.m);
    node_lock(node);
    claim_finish(node, &link->in.claim, ERR_PEER);
    node_unlock(node);
}
