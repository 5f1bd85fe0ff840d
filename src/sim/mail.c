/* Messages between nodes: sent, delivered, taken. Sender and receiver never share a header, since
 * the world fills in fields for each. */
#include "base/fault.h"
#include "base/rng.h"
#include "sim/state.h"

#include <stdatomic.h>
#include <string.h>

#define RETRANSMISSION_NS (WORLD_SECOND / 5)

static struct node *node_of(struct world *w)
{
    return (struct node *)w;
}

/* The extra delay of this message, by the script. */
static int64_t delay_of(struct node *from, const struct node *to, uint64_t tag)
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

int mail_queue(struct lane *lane, struct message *m, struct pending_message **out)
{
    struct node *from = lane->route->from;
    struct pending_message *pending = pending_message_new(from->sim);
    if (!pending)
        return ERR_NOMEM;
    pending->arrival.fire = mail_arrive;
    pending->m = m;
    pending->lane = lane;
    pending->extra = delay_of(from, lane->route->to, m->tag);
    from->sent++;
    message_queue_put(&lane->queue, pending);
    *out = pending;
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
    struct pending_message *pending;
    if (mail_queue(lane, m, &pending) != OK)
        return ERR_NOMEM;
    pending->charged = true;
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

/* The message is complete for a receive that is not in the list (any more). */
static void finish_receive(struct node *node, struct recv *recv, struct pending_message *pending)
{
    const struct message *m = pending->m;
    int status = m->len == recv->len ? OK : ERR_PROTOCOL;
    recv->first_byte = pending->first_byte;
    if (status == OK) {
        PL_ASSERT(recv->into || !m->data || !m->len);
        if (m->data && recv->land)
            recv->land(recv->user, recv->into, m->data, m->len);
        else if (m->data && m->len)
            memcpy(recv->into, m->data, m->len);
        recv->landed = m->len;
    }
    pending_message_free(pending);
    recv_end(node, recv, status);
}

static bool recv_matches(const struct recv *recv, const struct pending_message *pending)
{
    return recv->from == pending->lane->route->from->world.self && recv->view == pending->m->view &&
           recv->tag == pending->m->tag;
}

static void deliver_message(struct node *node, struct pending_message *pending)
{
    if (mail_aborted(node, pending->m->view)) {
        pending_message_free(pending);
        return;
    }
    sim_record(node->sim, TRACE_DELIVER, node, pending->m->tag, pending->m->len);
    for (struct recv **at = &node->posted; *at; at = &(*at)->next) {
        struct recv *recv = *at;
        if (recv_matches(recv, pending)) {
            *at = recv->next;
            finish_receive(node, recv, pending);
            return;
        }
    }
    message_queue_put(&node->mailbox, pending);
    node_wake(node, WAIT_MESSAGE, pending);
}

/* Nothing of the lane arrives before then, and all in its order. */
static void put_off(struct lane *lane, int64_t until)
{
    for (struct pending_message *pending = lane->flight.head; pending; pending = pending->next) {
        int64_t at = pending->arrival.at > until ? pending->arrival.at : until;
        heap_push(&lane->route->from->sim->heap, &pending->arrival, at);
    }
    lane->last_arrival = lane->last_arrival > until ? lane->last_arrival : until;
}

void mail_arrive(struct event *arrival)
{
    struct pending_message *pending = event_owner(arrival, struct pending_message, arrival);
    struct route *route = pending->lane->route;
    struct node *from = route->from, *to = route->to;
    if (hold_cut(from, to)) {
        put_off(pending->lane, hold_opens(from, to));
        return;
    }
    PL_ASSERT(message_queue_take(&pending->lane->flight) == pending);
    if (to->state == NODE_ENDED || to->peer[from->slot] == PEER_DOWN)
        pending_message_free(pending);
    else
        deliver_message(to, pending);
    if (route->closing && route_empty(route))
        peer_down(to, from);
}

bool mail_matches(const struct wait_for *want, const struct pending_message *pending)
{
    const struct message *m = pending->m;
    return want->view == m->view && (m->tag & want->mask) == want->tag &&
           (want->from == WORLD_ANY || want->from == pending->lane->route->from->world.self);
}

/* The message of a letter, as the receiver's own. */
static struct message *deliver_pending(struct pending_message *pending)
{
    struct message *m = pending->m;
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
    m->from = pending->lane->route->from->world.self;
    m->first_byte = pending->first_byte;
    return m;
}

int mail_take(struct node *node, const struct wait_for *want, struct message **out)
{
    for (struct pending_message **at = &node->mailbox.head; *at; at = &(*at)->next) {
        if (!mail_matches(want, *at))
            continue;
        struct message *m = deliver_pending(*at);
        if (!m)
            return ERR_NOMEM;
        pending_message_free(message_queue_unlink(&node->mailbox, at));
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
    for (struct pending_message **at = &node->mailbox.head; *at; at = &(*at)->next)
        if (recv_matches(recv, *at)) {
            finish_receive(node, recv, message_queue_unlink(&node->mailbox, at));
            return OK;
        }
    struct node *from = sim_node(node->sim, recv->from);
    if (!from || node->peer[from->slot] == PEER_DOWN) {
        recv_end(node, recv, ERR_PEER); /* the wait reports it, as if the peer were lost a moment
                                           later */
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
    for (struct pending_message **at = &node->mailbox.head; *at;) {
        if (from && (*at)->lane->route->from != from)
            at = &(*at)->next;
        else
            pending_message_free(message_queue_unlink(&node->mailbox, at));
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
    for (struct pending_message **at = &node->mailbox.head; *at;) {
        if (mail_aborted(node, (*at)->m->view))
            pending_message_free(message_queue_unlink(&node->mailbox, at));
        else
            at = &(*at)->next;
    }
}
