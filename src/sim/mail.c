/* Messages between nodes: handed over, delivered, taken. A sender and a receiver never share a
 * header: what the world fills in for one must not show to the other. */
#include "base/fault.h"
#include "base/rng.h"
#include "sim/state.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define RETRANSMISSION_NS (WORLD_SECOND / 5)

static struct node *node_of(struct world *w)
{
    return (struct node *)w;
}

/* How much later than the links allow this message comes in. */
static int64_t lateness(struct node *from, const struct node *to, uint64_t tag)
{
    struct sim *sim = from->sim;
    if (from == to)
        return 0;
    int64_t late = script_delay(sim, from, to, tag);
    uint64_t draw = UINT64_C(1) << 63 | (uint64_t)from->slot << 40 | from->sent;
    if (sim->loss > 0 && rng_uniform(sim->options.seed, RNG_SIM, draw) < (float)sim->loss)
        late += RETRANSMISSION_NS;
    return late + hold_shuffle(from);
}

bool mail_dies(const struct node *node)
{
    const struct sim_options *o = &node->sim->options;
    return o->kill_send && o->kill_node == node->world.self && o->kill_send == node->sent + 1;
}

int mail_queue(struct lane *lane, struct message *m, struct letter **out)
{
    struct node *from = lane->route->from;
    struct letter *letter = calloc(1, sizeof *letter);
    if (!letter)
        return ERR_NOMEM;
    letter->arrival.fire = mail_arrive;
    letter->m = m;
    letter->lane = lane;
    letter->extra = lateness(from, lane->route->to, m->tag);
    from->sent++;
    letters_put(&lane->queue, letter);
    *out = letter;
    return OK;
}

/* Everything but ERR_FULL consumes the reference. */
static int hand_over(struct node *node, uint32_t peer, struct message *m, enum world_class class)
{
    struct node *to = sim_node(node->sim, peer);
    if (node->state == NODE_ENDED)
        return ERR_CANCELLED;
    if (!to || node->peer[to->slot] == PEER_DOWN)
        return ERR_PEER;
    struct route *route;
    if (route_get(node, to, &route) != OK)
        return ERR_NOMEM;
    struct lane *lane = &route->lane[class];
    if (lane->outstanding + m->len > WORLD_CREDIT)
        return ERR_FULL;
    if (mail_dies(node)) {
        node_end(node, true);
        return ERR_CANCELLED;
    }
    struct letter *letter;
    if (mail_queue(lane, m, &letter) != OK)
        return ERR_NOMEM;
    letter->charged = true;
    lane->outstanding += m->len;
    lane_start(lane);
    return OK;
}

int mail_send(struct world *w, uint32_t peer, struct message *m, enum world_class class)
{
    int rc = hand_over(node_of(w), peer, m, class);
    if (rc != OK && rc != ERR_FULL)
        message_unref(m);
    return rc;
}

bool mail_credit(struct node *node, uint32_t peer)
{
    struct node *to = sim_node(node->sim, peer);
    if (!to || node->peer[to->slot] == PEER_DOWN || !node->routes[to->slot])
        return true;
    return node->routes[to->slot]->lane[CLASS_BULK].outstanding <= WORLD_CREDIT / 2;
}

bool mail_aborted(const struct node *node, uint32_t view)
{
    return view != 0 && view < node->oldest_view;
}

static void recv_end(struct node *node, struct recv *recv, int status)
{
    recv->status = status;
    recv->next = NULL;
    node_wake(node, WAIT_RECV, recv);
    ended_count(node, recv->ended);
}

/* All of the message has come in for a receive that is not, or no longer, in the list. */
static void land(struct node *node, struct recv *recv, struct letter *letter)
{
    const struct message *m = letter->m;
    int status = m->len == recv->len ? OK : ERR_PROTOCOL;
    recv->first_byte = letter->first_byte;
    if (status == OK) {
        PL_ASSERT(recv->into || !m->data || !m->len);
        if (m->data && recv->land)
            recv->land(recv->user, recv->into, m->data, m->len);
        else if (m->data && m->len)
            memcpy(recv->into, m->data, m->len);
        recv->landed = m->len;
    }
    letter_free(letter);
    recv_end(node, recv, status);
}

static bool recv_matches(const struct recv *recv, const struct letter *letter)
{
    return recv->from == letter->lane->route->from->world.self && recv->view == letter->m->view &&
           recv->tag == letter->m->tag;
}

static void deliver(struct node *node, struct letter *letter)
{
    if (mail_aborted(node, letter->m->view)) {
        letter_free(letter);
        return;
    }
    sim_note(node->sim, TRACE_DELIVER, node, letter->m->tag, letter->m->len);
    for (struct recv **at = &node->posted; *at; at = &(*at)->next) {
        struct recv *recv = *at;
        if (recv_matches(recv, letter)) {
            *at = recv->next;
            land(node, recv, letter);
            return;
        }
    }
    letters_put(&node->mailbox, letter);
    node_wake(node, WAIT_MESSAGE, letter);
}

/* Nothing of the lane arrives before then, and all in its order. */
static void put_off(struct lane *lane, int64_t until)
{
    for (struct letter *letter = lane->flight.head; letter; letter = letter->next) {
        int64_t at = letter->arrival.at > until ? letter->arrival.at : until;
        heap_push(&lane->route->from->sim->heap, &letter->arrival, at);
    }
    lane->last_arrival = lane->last_arrival > until ? lane->last_arrival : until;
}

void mail_arrive(struct event *arrival)
{
    struct letter *letter = event_owner(arrival, struct letter, arrival);
    struct route *route = letter->lane->route;
    struct node *from = route->from, *to = route->to;
    if (hold_cut(from, to)) {
        put_off(letter->lane, hold_opens(from, to));
        return;
    }
    PL_ASSERT(letters_take(&letter->lane->flight) == letter);
    if (to->state == NODE_ENDED || to->peer[from->slot] == PEER_DOWN)
        letter_free(letter);
    else
        deliver(to, letter);
    if (route->closing && route_empty(route))
        peer_down(to, from);
}

bool mail_matches(const struct wait_for *want, const struct letter *letter)
{
    const struct message *m = letter->m;
    return want->view == m->view && (m->tag & want->mask) == want->tag &&
           (want->from == WORLD_ANY || want->from == letter->lane->route->from->world.self);
}

/* The message of a letter, as the receiver's own. */
static struct message *open_letter(struct letter *letter)
{
    struct message *m = letter->m;
    if (atomic_load(&m->references) > 1) {
        struct message *copy = m->data ? message_new(m->tag, m->view, m->len)
                                       : message_phantom(m->tag, m->view, m->len);
        if (!copy)
            return NULL;
        if (m->data && m->len)
            memcpy(copy->data, m->data, m->len);
        m = copy;
    } else {
        message_ref(m); /* the letter's goes with the letter */
    }
    m->from = letter->lane->route->from->world.self;
    m->first_byte = letter->first_byte;
    return m;
}

int mail_take(struct node *node, const struct wait_for *want, struct message **out)
{
    for (struct letter **at = &node->mailbox.head; *at; at = &(*at)->next) {
        if (!mail_matches(want, *at))
            continue;
        struct message *m = open_letter(*at);
        if (!m)
            return ERR_NOMEM;
        letter_free(letters_unlink(&node->mailbox, at));
        *out = m;
        return OK;
    }
    *out = NULL;
    return OK;
}

int mail_post(struct world *w, struct recv *recv)
{
    struct node *node = node_of(w);
    recv->next = NULL;
    recv->landed = 0;
    recv->first_byte = 0;
    recv->status = node->state == NODE_ENDED        ? ERR_CANCELLED
                   : mail_aborted(node, recv->view) ? ERR_VIEW
                                                    : POST_PENDING;
    if (recv->status != POST_PENDING)
        return recv->status;
    for (struct letter **at = &node->mailbox.head; *at; at = &(*at)->next)
        if (recv_matches(recv, *at)) {
            land(node, recv, letters_unlink(&node->mailbox, at));
            return OK;
        }
    struct node *from = sim_node(node->sim, recv->from);
    if (!from || node->peer[from->slot] == PEER_DOWN) {
        recv_end(node, recv, ERR_PEER); /* told by the wait, as if it were lost a moment later */
        return OK;
    }
    struct recv **end = &node->posted;
    while (*end)
        end = &(*end)->next;
    *end = recv;
    return OK;
}

void mail_unpost(struct world *w, struct recv *recv)
{
    struct node *node = node_of(w);
    for (struct recv **at = &node->posted; *at; at = &(*at)->next)
        if (*at == recv) {
            *at = recv->next;
            recv_end(node, recv, ERR_CANCELLED);
            return;
        }
}

void mail_fail(struct node *node, const struct node *from, int status)
{
    for (struct recv **at = &node->posted; *at;) {
        struct recv *recv = *at;
        if (from && recv->from != from->world.self) {
            at = &recv->next;
            continue;
        }
        *at = recv->next;
        recv_end(node, recv, status);
    }
}

void mail_discard(struct node *node, const struct node *from)
{
    for (struct letter **at = &node->mailbox.head; *at;) {
        if (from && (*at)->lane->route->from != from)
            at = &(*at)->next;
        else
            letter_free(letters_unlink(&node->mailbox, at));
    }
}

void mail_abort(struct world *w, uint32_t view)
{
    struct node *node = node_of(w);
    if (view <= node->oldest_view)
        return;
    node->oldest_view = view;
    for (struct recv **at = &node->posted; *at;) {
        struct recv *recv = *at;
        if (!mail_aborted(node, recv->view)) {
            at = &recv->next;
            continue;
        }
        *at = recv->next;
        recv_end(node, recv, ERR_VIEW);
    }
    send_recall(node, false, ERR_VIEW);
    for (struct letter **at = &node->mailbox.head; *at;) {
        if (mail_aborted(node, (*at)->m->view))
            letter_free(letters_unlink(&node->mailbox, at));
        else
            at = &(*at)->next;
    }
}
