#include "real/mailbox.h"

#include "real/frame.h"
#include "real/node.h"

#include <string.h>

int mailbox_init(struct mailbox *box)
{
    box->end = &box->head;
    return task_init_cond(&box->landed);
}

void mailbox_release(struct node *node)
{
    struct mailbox *box = &node->mailbox;
    while (box->head) {
        struct pending_message *pending = box->head;
        box->head = pending->next;
        message_unref(pool_pending_return(&node->pending, pending));
    }
    pthread_cond_destroy(&box->landed);
}

bool mailbox_aborted(const struct node *node, uint32_t view)
{
    return view != 0 && view < node->mailbox.oldest_view;
}

bool mailbox_matches(const struct wait_for *want, const struct message *m)
{
    return want->view == m->view && (m->tag & want->mask) == want->tag &&
           (want->from == WORLD_ANY || want->from == m->from);
}

/* ---- letters ---- */

/* Take *at out of the mailbox, giving its credit back to the sender. */
static struct message *deliver_pending(struct node *node, struct pending_message **at)
{
    struct pending_message *pending = *at;
    const struct message *m = pending->m;
    *at = pending->next;
    if (!pending->next)
        node->mailbox.end = at;
    peer_find(node, m->from)->pending--;
    peer_taken(node, m->from, pending->class, message_cost(m->len));
    return pool_pending_return(&node->pending, pending);
}

struct message *mailbox_take(struct node *node, const struct wait_for *want)
{
    for (struct pending_message **at = &node->mailbox.head; *at; at = &(*at)->next)
        if (mailbox_matches(want, (*at)->m))
            return deliver_pending(node, at);
    return NULL;
}

void mailbox_forget(struct node *node, uint32_t peer)
{
    for (struct pending_message **at = &node->mailbox.head; *at;) {
        if ((*at)->m->from == peer)
            message_unref(deliver_pending(node, at));
        else
            at = &(*at)->next;
    }
}

/* ---- claims ---- */

static void recv_end(struct node *node, struct recv *recv, int status)
{
    struct ended *ended = recv->ended;
    recv->next = NULL;
    recv->status = status; /* from here on it is its owner's */
    task_wake(node, WAIT_RECV, recv);
    task_wake_ended(node, ended);
}

static void claim_put(struct node *node, struct claim *claim, struct recv *recv)
{
    *claim = (struct claim){
        .recv = recv,
        .verdict = POST_PENDING,
        .next = node->mailbox.claims,
    };
    node->mailbox.claims = claim;
}

static bool recvs_overlap(const struct recv *a, const struct recv *b)
{
    uintptr_t from_a = (uintptr_t)a->into, from_b = (uintptr_t)b->into;
    return from_a < from_b + b->len && from_b < from_a + a->len;
}

static bool range_in_use(const struct node *node, const struct claim *claim)
{
    for (const struct claim *c = node->mailbox.claims; c; c = c->next)
        if (c != claim && c->busy && c->recv && recvs_overlap(c->recv, claim->recv))
            return true;
    return false;
}

bool claim_begin(struct node *node, struct claim *claim)
{
    while (claim->recv && range_in_use(node, claim))
        pthread_cond_wait(&node->mailbox.landed, &node->lock);
    claim->busy = claim->recv != NULL;
    claim->writer = pthread_self();
    return claim->busy;
}

void claim_end(struct node *node, struct claim *claim)
{
    claim->busy = false;
    if (claim->verdict != POST_PENDING && claim->recv) {
        recv_end(node, claim->recv, claim->verdict);
        claim->recv = NULL;
    }
    pthread_cond_broadcast(&node->mailbox.landed);
}

void claim_finish(struct node *node, struct claim *claim, int status)
{
    struct claim **at = &node->mailbox.claims;
    while (*at && *at != claim)
        at = &(*at)->next;
    if (*at)
        *at = claim->next;
    if (claim->recv)
        recv_end(node, claim->recv, status);
    claim->recv = NULL;
}

/* The receive ends so: at once, or when its writer pauses. */
static void claim_judge(struct node *node, struct claim *claim, int status)
{
    if (!claim->recv || claim->verdict != POST_PENDING)
        return;
    claim->verdict = status;
    if (!claim->busy)
        claim_end(node, claim);
}

/* Wait until no thread writes into a range whose receive was taken back. */
static void await_writers(struct node *node)
{
    for (struct claim *c = node->mailbox.claims; c;) {
        bool writes = c->busy && c->verdict != POST_PENDING;
        if (writes)
            pthread_cond_wait(&node->mailbox.landed, &node->lock);
        c = writes ? node->mailbox.claims : c->next;
    }
}

static struct recv *take_posted(struct node *node, uint32_t from, uint32_t view, uint64_t tag)
{
    for (struct recv **at = &node->mailbox.posted; *at; at = &(*at)->next) {
        struct recv *recv = *at;
        if (recv->from == from && recv->view == view && recv->tag == tag) {
            *at = recv->next;
            return recv;
        }
    }
    return NULL;
}

bool mailbox_claim(struct node *node, struct claim *claim, uint32_t from, const struct frame *frame,
                   int64_t first_byte)
{
    claim->recv = NULL;
    struct recv *recv = take_posted(node, from, frame->view, frame->tag);
    if (!recv)
        return false;
    recv->first_byte = first_byte;
    claim_put(node, claim, recv);
    if (recv->len != frame->length)
        claim_finish(node, claim, ERR_PROTOCOL);
    return true;
}

/* ---- whole messages ---- */

/* The message's bytes into the range of a receive that has been taken out of the list. */
static void land_message(struct node *node, struct recv *recv, const struct message *m)
{
    struct claim claim;
    recv->first_byte = m->first_byte;
    claim_put(node, &claim, recv);
    claim.whole = true;
    int status = recv->len == m->len ? OK : ERR_PROTOCOL;
    if (status == OK && claim_begin(node, &claim)) {
        node_unlock(node);
        if (recv->land)
            recv->land(recv->user, recv->into, m->data, m->len);
        else if (m->len)
            memcpy(recv->into, m->data, m->len);
        recv->landed = m->len;
        node_lock(node);
        claim_end(node, &claim);
    }
    claim_finish(node, &claim, status);
}

/* A message to the node itself is never too much. */
static bool is_too_much(struct node *node, const struct peer *peer, const struct message *m)
{
    struct dropped *dropped = &node->mailbox.dropped;
    if (peer->pending < MAILBOX_PENDING_MAX || m->from == node->world.self)
        return false;
    *dropped = (struct dropped){.count = dropped->count + 1, .tag = m->tag, .from = m->from};
    return true;
}

struct dropped mailbox_news(struct node *node)
{
    struct mailbox *box = &node->mailbox;
    struct dropped news = box->dropped;
    if (news.count == 0 || real_now() < box->report_dropped)
        return (struct dropped){.count = 0};
    box->dropped.count = 0;
    box->report_dropped = real_now() + 60 * WORLD_SECOND;
    return news;
}

int mailbox_deliver(struct node *node, struct message *m, enum world_class class)
{
    struct mailbox *box = &node->mailbox;
    struct peer *peer = peer_find(node, m->from);
    bool wanted = !mailbox_aborted(node, m->view);
    struct recv *recv = wanted ? take_posted(node, m->from, m->view, m->tag) : NULL;
    if (wanted && !recv && !is_too_much(node, peer, m)) {
        struct pending_message *pending = pool_pending(&node->pending, m, class);
        if (!pending) {
            message_unref(m);
            return ERR_NOMEM;
        }
        *box->end = pending;
        box->end = &pending->next;
        peer->pending++;
        task_wake(node, WAIT_MESSAGE, m);
        return OK;
    }
    if (recv)
        land_message(node, recv, m);
    peer_taken(node, m->from, class, message_cost(m->len));
    message_unref(m);
    return OK;
}

/* ---- receives that end otherwise ---- */

static void fail_posted(struct node *node,
                        bool (*fails)(const struct node *, const struct recv *, uint32_t which),
                        uint32_t which, int status)
{
    for (struct recv **at = &node->mailbox.posted; *at;) {
        struct recv *recv = *at;
        if (fails(node, recv, which)) {
            *at = recv->next;
            recv_end(node, recv, status);
        } else {
            at = &recv->next;
        }
    }
    for (struct claim *c = node->mailbox.claims; c; c = c->next)
        if (c->recv && !(c->whole && status == ERR_PEER) && fails(node, c->recv, which))
            claim_judge(node, c, status);
    await_writers(node);
}

static bool is_from(const struct node *node, const struct recv *recv, uint32_t peer)
{
    (void)node;
    return recv->from == peer;
}

static bool is_aborted(const struct node *node, const struct recv *recv, uint32_t unused)
{
    (void)unused;
    return mailbox_aborted(node, recv->view);
}

static bool is_any(const struct node *node, const struct recv *recv, uint32_t unused)
{
    (void)node, (void)recv, (void)unused;
    return true;
}

void mailbox_fail_peer(struct node *node, uint32_t peer)
{
    fail_posted(node, is_from, peer, ERR_PEER);
}

void mailbox_poison(struct node *node)
{
    for (struct claim *c = node->mailbox.claims, *next; c; c = next) {
        next = c->next;
        if (c->busy && pthread_equal(c->writer, pthread_self())) {
            claim_end(node, c);
            claim_finish(node, c, ERR_CANCELLED);
        }
    }
    fail_posted(node, is_any, 0, ERR_CANCELLED);
}

void mailbox_abort(struct world *w, uint32_t view)
{
    struct node *node = node_of(w);
    struct mailbox *box = &node->mailbox;
    node_lock(node);
    if (view > box->oldest_view) {
        box->oldest_view = view;
        for (struct pending_message **at = &box->head; *at;) {
            if (mailbox_aborted(node, (*at)->m->view))
                message_unref(deliver_pending(node, at));
            else
                at = &(*at)->next;
        }
    }
    outbox_abort(node); /* also if another task has drawn the line, and still waits for these */
    fail_posted(node, is_aborted, 0, ERR_VIEW);
    node_unlock(node);
}

void mailbox_unpost(struct world *w, struct recv *recv)
{
    struct node *node = node_of(w);
    node_lock(node);
    for (struct recv **at = &node->mailbox.posted; *at; at = &(*at)->next)
        if (*at == recv) {
            *at = recv->next;
            recv_end(node, recv, ERR_CANCELLED);
            break;
        }
    for (struct claim *c = node->mailbox.claims; c; c = c->next)
        if (c->recv == recv)
            claim_judge(node, c, ERR_CANCELLED);
    await_writers(node);
    node_unlock(node);
}

/* ---- posting ---- */

static int post_recv(struct node *node, struct recv *recv)
{
    struct mailbox *box = &node->mailbox;
    int rc = node->tasks.poisoned                ? ERR_CANCELLED
             : mailbox_aborted(node, recv->view) ? ERR_VIEW
                                                 : OK;
    if (rc != OK) {
        recv->status = rc;
        return rc;
    }
    struct wait_for want = {
        .from = recv->from, .view = recv->view, .tag = recv->tag, .mask = UINT64_MAX};
    struct message *m = mailbox_take(node, &want);
    if (m) {
        land_message(node, recv, m);
        message_unref(m);
        return OK;
    }
    if (!peer_is_expected(node, recv->from)) {
        recv_end(node, recv, ERR_PEER); /* as if it were lost a moment later */
        return OK;
    }
    struct recv **end = &box->posted;
    while (*end)
        end = &(*end)->next;
    *end = recv;
    return OK;
}

int mailbox_post(struct world *w, struct recv *recv)
{
    PL_ASSERT(recv->from != WORLD_ANY);
    PL_ASSERT(!recv->land || recv->len % 4 == 0);
    struct node *node = node_of(w);
    node_lock(node);
    recv->status = POST_PENDING;
    recv->first_byte = 0;
    recv->next = NULL;
    recv->landed = 0;
    int rc = post_recv(node, recv);
    node_unlock(node);
    return rc;
}
