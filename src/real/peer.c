#include "real/peer.h"

#include "base/array.h"
#include "real/node.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    CREDIT_HALF = WORLD_CREDIT / 2,
    CREDIT_STEP = WORLD_CREDIT / 4,
    CREDIT_PACED = WORLD_CREDIT / 32, /* where a rate is kept to */
};

int peers_init(struct peers *peers)
{
    peers->changes_end = &peers->changes;
    return task_init_cond(&peers->paused);
}

void peers_release(struct node *node)
{
    struct peers *peers = &node->peers;
    for (size_t i = 0; i < peers->count; i++) {
        outbox_close(node, peers->at[i]);
        free(peers->at[i]);
    }
    free(peers->at);
    pthread_cond_destroy(&peers->paused);
}

/* ---- the book ---- */

/* Where `number` is, or belongs. */
static size_t place_of(const struct peers *peers, uint32_t number)
{
    size_t low = 0, high = peers->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (peers->at[middle]->number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct peer *peer_find(const struct node *node, uint32_t number)
{
    const struct peers *peers = &node->peers;
    size_t i = place_of(peers, number);
    return i < peers->count && peers->at[i]->number == number ? peers->at[i] : NULL;
}

struct peer *peer_make(struct node *node, uint32_t number)
{
    struct peers *peers = &node->peers;
    struct peer *peer = peer_find(node, number);
    if (peer || peers->count >= PEERS_MAX ||
        !array_grow(&peers->at, peers->count, &peers->room, sizeof *peers->at))
        return peer;
    peer = calloc(1, sizeof *peer);
    if (!peer)
        return NULL;
    peer->number = number;
    peer->went[0].peer = peer->went[1].peer = peer;
    peer->went[1].up = true;
    size_t i = place_of(peers, number);
    memmove(peers->at + i + 1, peers->at + i, (peers->count - i) * sizeof(struct peer *));
    peers->at[i] = peer;
    peers->count++;
    return peer;
}

bool peer_is_expected(const struct node *node, uint32_t number)
{
    const struct peer *peer = peer_find(node, number);
    return peer && peer->state != PEER_DOWN;
}

/* Credit in use at the peer: sent, or reserved for queued messages. */
static size_t in_use(const struct peer *peer, enum world_class class)
{
    return peer->sent[class] + peer->out.queued[class];
}

bool peer_has_credit(const struct node *node, uint32_t number)
{
    const struct peer *peer = peer_find(node, number);
    return !peer || peer->state == PEER_DOWN || in_use(peer, CLASS_BULK) <= CREDIT_HALF;
}

/* ---- coming and going ---- */

bool peer_change(struct node *node, uint32_t *number, bool *up)
{
    struct peers *peers = &node->peers;
    struct change *change = peers->changes;
    if (!change)
        return false;
    peers->changes = change->next;
    if (!change->next)
        peers->changes_end = &peers->changes;
    *number = change->peer->number;
    *up = change->up;
    change->queued = false;
    return true;
}

/* Report a change. Up and down are reported once in a peer's life, and again for a revived peer
 * after both were reported. */
static void report_change(struct node *node, struct change *change)
{
    change->queued = true;
    change->next = NULL;
    *node->peers.changes_end = change;
    node->peers.changes_end = &change->next;
    task_wake(node, WAIT_PEER, NULL);
}

void peer_up(struct node *node, struct peer *peer, struct link *link, uint32_t stripes)
{
    peer->state = PEER_UP;
    peer->link[0] = link;
    peer->stripes = stripes;
    peer->open = 1;
    outbox_spread(peer);
    node->peers.up++;
    report_change(node, &peer->went[1]);
    io_tend(node, peer);
}

void peer_wider(struct node *node, struct peer *peer, struct link *link)
{
    peer->link[link->stripe] = link;
    peer->open++;
    io_tend(node, peer);
}

void peer_close(struct node *node, struct peer *peer)
{
    if (peer->state == PEER_UP)
        node->peers.up--;
    peer->state = PEER_DOWN;
    peer->down_at = real_now();
    peer->dial = false;
    outbox_close(node, peer);
    mailbox_fail_peer(node, peer->number);
    task_wake(node, WAIT_CREDIT, peer);
}

void peer_lost(struct node *node, struct peer *peer)
{
    bool was_up = peer->state == PEER_UP;
    bool sought = peer->state == PEER_AWAITED && peer->address.len > 0; /* it cannot be reached */
    if (peer->state != PEER_DOWN)
        peer_close(node, peer);
    if (was_up || sought)
        report_change(node, &peer->went[0]);
}

bool peer_revive(struct node *node, struct peer *peer)
{
    bool ended = peer->state == PEER_DOWN && !peer->went[0].queued && !peer->went[1].queued;
    for (int i = 0; i < STRIPES_MAX; i++)
        ended = ended && !peer->link[i];
    if (!ended)
        return false;
    mailbox_forget(node, peer->number);
    for (int c = 0; c < CLASS_COUNT; c++)
        peer->sent[c] = peer->held[c] = peer->taken[c] = 0;
    peer->given = 0;
    peer->cut = false;
    peer->stripes = peer->open = 0;
    peer->state = PEER_AWAITED;
    return true;
}

/* ---- numbers ---- */

/* Give the next higher number: the lowest numbers hold state longest, and donors are chosen among
 * them. */
uint32_t peer_give_number(struct node *node)
{
    const struct peers *peers = &node->peers;
    for (uint32_t number = peers->kept; number < peers->next_number; number++) {
        struct peer *peer = peer_find(node, number);
        if (peer && peer->state == PEER_DOWN && real_now() - peer->down_at >= node->limits.rest &&
            peer_revive(node, peer))
            return number;
    }
    return peers->next_number;
}

void peer_keep_number(struct node *node, uint32_t number)
{
    struct peers *peers = &node->peers;
    if (number >= peers->kept)
        peers->kept = number + 1;
}

/* ---- credit ---- */

static void give_back(struct node *node, struct peer *peer, enum world_class class, size_t bytes)
{
    size_t before = in_use(peer, class);
    peer->sent[class] -= bytes;
    if (class == CLASS_BULK && before > CREDIT_HALF && in_use(peer, class) <= CREDIT_HALF)
        task_wake(node, WAIT_CREDIT, peer);
}

/* Against our rate a bulk byte counts when the credit for it is given, and that which every peer
 * has from the start when it is used. */
static void count_in(struct node *node, struct peer *peer, enum world_class class, size_t cost)
{
    size_t left = WORLD_CREDIT - peer->given;
    if (node->io.pace_in.rate <= 0)
        return;
    if (class == CLASS_BULK) {
        cost = cost < left ? cost : left;
        peer->given += cost;
    }
    if (cost > 0)
        pacer_take(&node->io.pace_in, cost, real_now());
}

int peer_hold(struct node *node, struct peer *peer, const struct frame *frame)
{
    size_t cost = message_cost(frame->length);
    if (peer->held[frame->class] + cost > WORLD_CREDIT)
        return ERR_PROTOCOL;
    peer->held[frame->class] += cost;
    count_in(node, peer, frame->class, cost);
    return OK;
}

void peer_taken(struct node *node, uint32_t number, enum world_class class, size_t bytes)
{
    struct peer *peer = peer_find(node, number);
    if (number == node->world.self) {
        give_back(node, peer, class, bytes);
        return;
    }
    peer->taken[class] += bytes;
    size_t step = node->io.pace_in.rate > 0 ? CREDIT_PACED : CREDIT_STEP;
    if (peer->taken[class] >= step && peer->state == PEER_UP)
        io_tend(node, peer);
}

int peer_credit(struct node *node, struct peer *peer, enum world_class class, uint64_t bytes)
{
    if (bytes > peer->sent[class])
        return ERR_PROTOCOL;
    give_back(node, peer, class, (size_t)bytes);
    if (peer->state == PEER_UP && outbox_waits(peer))
        io_tend(node, peer); /* something may have waited for it */
    return OK;
}

/* ---- messages ---- */

bool peer_may_move(struct node *node, struct peer *peer, struct pacer *pacer)
{
    if (pacer->rate <= 0 || pacer_is_open(pacer, real_now()))
        return true;
    peer->paced = pacer->awaited = node->io.paced = true;
    return false;
}

void peers_resume(struct node *node)
{
    struct io *io = &node->io;
    size_t count = node->peers.count, first = io->paced_turn++; /* rotate, so that the last peer
                                                                   comes first next time */
    io->paced = io->pace_out.awaited = io->pace_in.awaited = false;
    for (size_t i = 0; i < count; i++) {
        struct peer *peer = node->peers.at[(first + i) % count];
        if (peer->paced && peer->state == PEER_UP)
            io_tend(node, peer);
        peer->paced = false;
    }
}

/* Credit to report to the peer now. */
static size_t credit_to_report(struct node *node, struct peer *peer, enum world_class class)
{
    struct pacer *pacer = &node->io.pace_in;
    bool paced = class == CLASS_BULK && pacer->rate > 0;
    size_t step = paced ? CREDIT_PACED : CREDIT_STEP, n = peer->taken[class];
    if (n < step || (paced && !peer_may_move(node, peer, pacer)))
        return 0;
    if (!paced)
        return n;
    pacer_take(pacer, step, real_now());
    return step;
}

bool peer_must_report_credit(struct node *node, struct peer *peer, struct frame *frame)
{
    for (int c = 0; c < CLASS_COUNT; c++) {
        size_t n = credit_to_report(node, peer, (enum world_class)c);
        if (n == 0)
            continue;
        *frame = (struct frame){.type = FRAME_CREDIT, .class = (enum world_class)c, .tag = n};
        peer->held[c] -= n;
        peer->taken[c] -= n;
        return true;
    }
    return false;
}

/* A message with a header of its own, since the sender may keep a reference: a new reference to the
 * same message, or to a copy. */
static struct message *as_received(const struct node *node, struct message *m)
{
    struct message *own = NULL;
    if (atomic_load(&m->references) == 1) {
        own = message_ref(m);
    } else {
        own = pool_message(node->pool, m->tag, m->view, m->len);
        if (!own)
            return NULL;
        memcpy(own->data, m->data, m->len);
    }
    own->from = node->world.self;
    own->first_byte = real_now();
    return own;
}

/* Takes `own` when it is delivered; m is still the caller's. */
static int hand_over(struct node *node, uint32_t number, struct message *m, struct message **own,
                     enum world_class class)
{
    struct peer *peer = peer_find(node, number);
    size_t cost = message_cost(m->len);
    if (!peer || peer->state == PEER_DOWN)
        return ERR_PEER;
    if (in_use(peer, class) + cost > WORLD_CREDIT)
        return ERR_FULL;
    if (mailbox_aborted(node, m->view))
        return OK; /* as if it had been queued before the abort */
    if (*own) {
        struct message *delivered = *own;
        *own = NULL;
        peer->sent[class] += cost;
        return mailbox_deliver(node, delivered, class);
    }
    if (outbox_put(node, peer, message_ref(m), class) != OK) {
        message_unref(m);
        return ERR_NOMEM;
    }
    if (peer->state == PEER_UP)
        io_tend(node, peer);
    return OK;
}

/* Everything but ERR_FULL consumes the reference. */
int peer_send(struct world *w, uint32_t number, struct message *m, enum world_class class)
{
    PL_ASSERT(m->data || m->len == 0); /* phantoms are the simulator's */
    struct node *node = node_of(w);
    struct message *own = NULL;
    int rc = OK;
    if (number == node->world.self) {
        own = as_received(node, m);
        rc = own ? OK : ERR_NOMEM;
    }
    if (rc == OK) {
        node_lock(node);
        struct task *hurried = role_help_begin(node);
        rc = hand_over(node, number, m, &own, class);
        role_help_end(node, hurried);
        node_unlock(node);
    }
    message_unref(own);
    if (rc != ERR_FULL)
        message_unref(m);
    return rc;
}

/* ---- the seam's ---- */

/* Of two workers the later one connects to the earlier; a worker has its driver from the start. */
static bool connects_to(const struct node *node, uint32_t number)
{
    return !node_is_driver(node) && number < node->world.self;
}

/* A worker calls its driver again. No effect while a call is under way. ERR_FULL: the previous
 * connection is still closing. */
static int call_driver(struct node *node, const char *text)
{
    struct address a = {0};
    if (text && (address_parse(text, &a, NULL) != OK || address_port(&a) == 0))
        return ERR_INPUT;
    if (text && !node->keyed && !address_is_loopback(&a))
        return ERR_INPUT;
    node_lock(node);
    struct peer *peer = peer_find(node, WORLD_DRIVER);
    bool down = peer && peer->state == PEER_DOWN, revived = down && peer_revive(node, peer);
    if (revived) {
        if (text)
            peer->address = a;
        peer->dial = true;
        io_tend(node, peer);
    }
    node_unlock(node);
    return down && !revived ? ERR_FULL : OK;
}

int peer_add(struct world *w, uint32_t number, const char *address)
{
    struct node *node = node_of(w);
    struct address a = {0};
    if (number == WORLD_DRIVER && !node_is_driver(node))
        return call_driver(node, address);
    if (number == WORLD_ANY)
        return ERR_INPUT;
    if (connects_to(node, number)) {
        if (address_parse(address, &a, NULL) != OK || address_port(&a) == 0)
            return ERR_INPUT;
        if (!node->keyed && !address_is_loopback(&a))
            return ERR_INPUT;
    }
    node_lock(node);
    bool known = peer_find(node, number) != NULL;
    struct peer *peer = peer_make(node, number);
    if (peer && node_is_driver(node) && number < WORLD_DRIVER)
        peer_keep_number(node, number);
    if (peer && !known && connects_to(node, number)) {
        peer->address = a;
        peer->dial = true;
        io_tend(node, peer);
    }
    node_unlock(node);
    return peer ? OK : ERR_NOMEM;
}

void peer_drop(struct world *w, uint32_t number)
{
    struct node *node = node_of(w);
    node_lock(node);
    struct peer *peer = number == node->world.self ? NULL : peer_find(node, number);
    if (peer && peer->state != PEER_DOWN) {
        peer->cut = true;
        peer_close(node, peer);
        io_tend(node, peer);
    }
    node_unlock(node);
}
