#include "real/outbox.h"

#include "real/link.h"
#include "real/node.h"

#include <string.h>

/* ---- queues ---- */

int outbox_put(struct node *node, struct peer *peer, struct message *m, enum world_class class)
{
    struct outbox *box = &peer->out;
    struct pending_message *pending = pool_pending(&node->pending, m, class);
    if (!pending)
        return ERR_NOMEM;
    pending->turn = box->turn++;
    *(box->last[class] ? &box->last[class]->next : &box->first[class]) = pending;
    box->last[class] = pending;
    box->queued[class] += message_cost(m->len);
    return OK;
}

/* The message of the letter after `before`, or of the first one. */
static struct message *take_pending(struct node *node, struct outbox *box, int class,
                                    struct pending_message *before)
{
    struct pending_message **at = before ? &before->next : &box->first[class];
    struct pending_message *pending = *at;
    *at = pending->next;
    if (box->last[class] == pending)
        box->last[class] = before;
    box->queued[class] -= message_cost(pending->m->len);
    return pool_pending_return(&node->pending, pending);
}

static void put_send(struct peer *peer, struct send *send)
{
    struct outbox *box = &peer->out;
    uint32_t stripe = peer->stripes ? send->stripe % peer->stripes : 0;
    send->next = NULL;
    *(box->last_send[stripe] ? &box->last_send[stripe]->next : &box->first_send[stripe]) = send;
    box->last_send[stripe] = send;
}

static struct send *take_send(struct outbox *box, uint32_t stripe, struct send *before)
{
    struct send **at = before ? &before->next : &box->first_send[stripe];
    struct send *send = *at;
    *at = send->next;
    if (box->last_send[stripe] == send)
        box->last_send[stripe] = before;
    return send;
}

void outbox_spread(struct peer *peer)
{
    struct outbox *box = &peer->out;
    struct send *send = box->first_send[0];
    box->first_send[0] = box->last_send[0] = NULL;
    for (struct send *next; send; send = next) {
        next = send->next;
        put_send(peer, send);
    }
}

void send_end(struct node *node, struct send *send, int status)
{
    struct ended *ended = send->ended;
    send->status = status; /* from here on it is its owner's */
    task_wake_ended(node, ended);
}

/* ---- what goes next ---- */

bool outbox_waits(const struct peer *peer)
{
    for (int c = 0; c < CLASS_COUNT; c++)
        if (peer->out.first[c])
            return true;
    for (int i = 0; i < STRIPES_MAX; i++)
        if (peer->out.first_send[i])
            return true;
    return false;
}

static bool is_before(uintptr_t a, uintptr_t b)
{
    return (intptr_t)(a - b) < 0;
}

static bool send_is_first(const struct outbox *box)
{
    const struct pending_message *pending = box->first[CLASS_BULK];
    const struct send *send = box->first_send[0];
    return send && (!pending || is_before((uintptr_t)send->world, pending->turn));
}

/* Credit for sends of other stripes that were queued before this turn. */
static size_t owed_before(const struct outbox *box, uint32_t stripe, uintptr_t turn)
{
    size_t owed = 0;
    const struct pending_message *l = stripe > 0 ? box->first[CLASS_BULK] : NULL;
    for (; l && is_before(l->turn, turn) && owed <= WORLD_CREDIT; l = l->next)
        owed += message_cost(l->m->len);
    for (uint32_t i = 0; i < STRIPES_MAX; i++) {
        const struct send *s = i == stripe ? NULL : box->first_send[i];
        for (; s && is_before((uintptr_t)s->world, turn) && owed <= WORLD_CREDIT; s = s->next)
            owed += message_cost(s->len);
    }
    return owed;
}

static bool take_credit(struct peer *peer, enum world_class class, uint32_t stripe, uintptr_t turn,
                        size_t len)
{
    size_t owed = class == CLASS_BULK ? owed_before(&peer->out, stripe, turn) : 0;
    if (peer->sent[class] + owed + message_cost(len) > WORLD_CREDIT)
        return false;
    peer->sent[class] += message_cost(len);
    return true;
}

static bool next_send(struct peer *peer, uint32_t stripe, struct frame *frame, struct send **send)
{
    struct outbox *box = &peer->out;
    const struct send *s = box->first_send[stripe];
    if (!s || peer->open < peer->stripes ||
        !take_credit(peer, CLASS_BULK, stripe, (uintptr_t)s->world, s->len))
        return false;
    *frame = (struct frame){(uint32_t)s->len, FRAME_DATA, CLASS_BULK, s->view, s->tag};
    *send = take_send(box, stripe, NULL);
    return true;
}

static bool next_pending(struct node *node, struct peer *peer, enum world_class class,
                         struct frame *frame, struct message **m)
{
    struct outbox *box = &peer->out;
    const struct pending_message *l = box->first[class];
    if (!l || !take_credit(peer, class, 0, l->turn, l->m->len))
        return false;
    *m = take_pending(node, box, class, NULL);
    *frame = (struct frame){(uint32_t)(*m)->len, FRAME_DATA, class, (*m)->view, (*m)->tag};
    return true;
}

bool outbox_next(struct node *node, struct peer *peer, uint32_t stripe, struct frame *frame,
                 struct message **m, struct send **send)
{
    const struct outbox *box = &peer->out;
    if (stripe > 0)
        return box->first_send[stripe] && peer_may_move(node, peer, &node->io.pace_out) &&
               next_send(peer, stripe, frame, send);
    if (peer_must_report_credit(node, peer, frame))
        return true;
    if (next_pending(node, peer, CLASS_CONTROL, frame, m))
        return true;
    if ((!box->first_send[0] && !box->first[CLASS_BULK]) ||
        !peer_may_move(node, peer, &node->io.pace_out))
        return false;
    return send_is_first(&peer->out) ? next_send(peer, 0, frame, send)
                                     : next_pending(node, peer, CLASS_BULK, frame, m);
}

/* ---- taking back ---- */

/* Wait until no thread reads a range. true: one did, so the state may have changed. */
static bool wait_until_idle(struct node *node, const struct link *link)
{
    if (!link->out.busy)
        return false;
    pthread_cond_wait(&node->peers.paused, &node->lock);
    return true;
}

void outbox_close(struct node *node, struct peer *peer)
{
    struct outbox *box = &peer->out;
    for (int c = 0; c < CLASS_COUNT; c++)
        while (box->first[c])
            message_unref(take_pending(node, box, c, NULL));
    for (uint32_t i = 0; i < STRIPES_MAX; i++) {
        while (box->first_send[i])
            send_end(node, take_send(box, i, NULL), ERR_PEER);
        while (peer->link[i] && peer->link[i]->out.send)
            if (!wait_until_idle(node, peer->link[i]))
                link_drop_send(node, peer->link[i], ERR_PEER);
    }
}

typedef bool (*send_test)(const struct node *node, const struct send *send);

static bool is_aborted(const struct node *node, const struct send *send)
{
    return mailbox_aborted(node, send->view);
}

static bool is_any(const struct node *node, const struct send *send)
{
    (void)node, (void)send;
    return true;
}

/* A link that is half through such a send. */
static struct link *find_sending(const struct node *node, send_test test)
{
    for (size_t i = 0; i < STRIPES_MAX * node->peers.count; i++) {
        struct link *link = node->peers.at[i / STRIPES_MAX]->link[i % STRIPES_MAX];
        if (link && link->out.send && test(node, link->out.send))
            return link;
    }
    return NULL;
}

static void end_sends(struct node *node, send_test test, int status)
{
    for (size_t i = 0; i < STRIPES_MAX * node->peers.count; i++) {
        struct outbox *box = &node->peers.at[i / STRIPES_MAX]->out;
        uint32_t stripe = i % STRIPES_MAX;
        for (struct send *before = NULL, *s = box->first_send[stripe], *next; s; s = next) {
            next = s->next;
            if (test(node, s))
                send_end(node, take_send(box, stripe, before), status);
            else
                before = s;
        }
    }
    for (struct link *link; (link = find_sending(node, test)) != NULL;)
        if (!wait_until_idle(node, link))
            link_keep_rest(node, link, status);
}

void outbox_poison(struct node *node)
{
    end_sends(node, is_any, ERR_CANCELLED);
}

static void abort_pending(struct node *node, struct peer *peer, int class)
{
    struct pending_message *before = NULL;
    for (struct pending_message *l = peer->out.first[class], *next; l; l = next) {
        next = l->next;
        if (mailbox_aborted(node, l->m->view))
            message_unref(take_pending(node, &peer->out, class, before));
        else
            before = l;
    }
}

void outbox_abort(struct node *node)
{
    for (size_t i = 0; i < node->peers.count; i++) {
        struct peer *peer = node->peers.at[i];
        for (int c = 0; c < CLASS_COUNT; c++)
            abort_pending(node, peer, c);
        task_wake(node, WAIT_CREDIT, peer);
    }
    end_sends(node, is_aborted, ERR_VIEW);
    for (size_t i = 0; i < node->peers.count; i++) /* traffic behind them may be sent */
        if (node->peers.at[i]->state == PEER_UP && outbox_waits(node->peers.at[i]))
            io_tend(node, node->peers.at[i]);
}

/* ---- the seam's ---- */

int outbox_post(struct world *w, struct send *send)
{
    struct node *node = node_of(w);
    PL_ASSERT(send->to != w->self && send->len <= WORLD_MESSAGE_MAX);
    PL_ASSERT(send->from || send->len == 0); /* phantoms are the simulator's */
    int rc = OK;
    node_lock(node);
    struct task *hurried = role_help_begin(node);
    struct peer *peer = peer_find(node, send->to);
    send->status = POST_PENDING;
    if (node->tasks.poisoned)
        rc = ERR_CANCELLED;
    else if (mailbox_aborted(node, send->view))
        rc = ERR_VIEW;
    if (rc != OK) {
        send->status = rc;
    } else if (!peer || peer->state == PEER_DOWN) {
        send_end(node, send, ERR_PEER);
    } else {
        send->world = (void *)peer->out.turn++;
        put_send(peer, send);
        if (peer->state == PEER_UP)
            io_tend(node, peer);
    }
    role_help_end(node, hurried);
    node_unlock(node);
    return rc;
}

static bool take_from_queue(struct outbox *box, struct send *send)
{
    for (uint32_t i = 0; i < STRIPES_MAX; i++) {
        struct send *before = NULL;
        for (struct send *s = box->first_send[i]; s; before = s, s = s->next)
            if (s == send) {
                take_send(box, i, before);
                return true;
            }
    }
    return false;
}

static struct link *link_with(const struct peer *peer, const struct send *send)
{
    for (int i = 0; i < STRIPES_MAX; i++)
        if (peer->link[i] && peer->link[i]->out.send == send)
            return peer->link[i];
    PL_ASSERT(!"it is somewhere while it is pending");
    return NULL;
}

void outbox_unsend(struct world *w, struct send *send)
{
    struct node *node = node_of(w);
    node_lock(node);
    while (send->status == POST_PENDING) {
        struct peer *peer = peer_find(node, send->to);
        if (take_from_queue(&peer->out, send)) {
            send_end(node, send, ERR_CANCELLED);
            if (peer->state == PEER_UP && outbox_waits(peer))
                io_tend(node, peer); /* traffic behind it may be sent */
            continue;
        }
        struct link *link = link_with(peer, send);
        if (!wait_until_idle(node, link))
            link_keep_rest(node, link, ERR_CANCELLED);
    }
    node_unlock(node);
}
