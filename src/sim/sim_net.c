/* Messages as fluid: the first message of each lane flows through its sender's up-link and its
 * receiver's down-link, and all flows that share links have max-min fair rates (Bertsekas and
 * Gallager, "Data Networks", 6.5.2). Rates change only when a flow comes or goes, and only among
 * flows that are joined to it by shared links. */
#include "base/fault.h"
#include "sim/state.h"

#include <stdlib.h>

enum { OVERHEAD_BYTES = 40, TO_ONESELF_NS = 1000 };

void message_queue_put(struct message_queue *queue, struct pending_message *pending)
{
    pending->next = NULL;
    *(queue->head ? queue->end : &queue->head) = pending;
    queue->end = &pending->next;
}

struct pending_message *message_queue_take(struct message_queue *queue)
{
    struct pending_message *pending = queue->head;
    if (pending)
        queue->head = pending->next;
    return pending;
}

struct pending_message *message_queue_unlink(struct message_queue *queue,
                                             struct pending_message **at)
{
    struct pending_message *pending = *at;
    *at = pending->next;
    if (!pending->next)
        queue->end = at;
    return pending;
}

struct pending_message *pending_message_new(struct sim *sim)
{
    struct pending_message *pending = sim->spare;
    if (!pending)
        return calloc(1, sizeof *pending);
    sim->spare = pending->next;
    *pending = (struct pending_message){0};
    return pending;
}

void pending_messages_release(struct sim *sim)
{
    while (sim->spare) {
        struct pending_message *pending = sim->spare;
        sim->spare = pending->next;
        free(pending);
    }
}

void pending_message_free(struct pending_message *pending)
{
    struct lane *lane = pending->lane;
    struct node *from = lane->route->from;
    size_t before = lane->outstanding, half = WORLD_CREDIT / 2;
    bool begun = pending->begun;
    lane->outstanding -= pending->charged ? pending->m->len : 0;
    lane->begun -= begun ? pending->m->len : 0;
    if (lane->class == CLASS_BULK && before > half && lane->outstanding <= half)
        node_wake(from, WAIT_CREDIT, &lane->route->to->world.self);
    heap_remove(&from->sim->heap, &pending->arrival);
    message_unref(pending->m);
    pending->next = from->sim->spare;
    from->sim->spare = pending;
    if (begun)
        lane_start(lane); /* the next may have waited for this room */
}

static void mark_dirty(struct sim *sim, struct link *link)
{
    if (link->dirty)
        return;
    link->dirty = true;
    link->next = NULL;
    if (sim->dirty)
        sim->dirty_last->next = link;
    else
        sim->dirty = link;
    sim->dirty_last = link;
}

void net_pace(struct node *node, double slow)
{
    for (int h = 0; h < HOPS; h++) {
        node->link[h].speed = node->link_speed / slow;
        mark_dirty(node->sim, &node->link[h]);
    }
}

static void flow_begin(struct lane *lane, size_t bytes)
{
    struct sim *sim = lane->route->from->sim;
    lane->flowing = true;
    lane->left = (double)bytes;
    lane->rate = 0;
    lane->since = sim->now;
    for (int h = 0; h < HOPS; h++) {
        struct link *link = lane->hop[h].link;
        lane->hop[h].prev = link->flows_last;
        lane->hop[h].next = NULL;
        *(link->flows_last ? &link->flows_last->hop[h].next : &link->flows) = lane;
        link->flows_last = lane;
        mark_dirty(sim, link);
    }
}

static void flow_end(struct lane *lane)
{
    struct sim *sim = lane->route->from->sim;
    lane->flowing = false;
    heap_remove(&sim->heap, &lane->sent);
    for (int h = 0; h < HOPS; h++) {
        struct link *link = lane->hop[h].link;
        struct lane *prev = lane->hop[h].prev, *next = lane->hop[h].next;
        *(prev ? &prev->hop[h].next : &link->flows) = next;
        *(next ? &next->hop[h].prev : &link->flows_last) = prev;
        mark_dirty(sim, link);
    }
}

/* The first byte of a message, and then its last, come in when they come in, but not before all of
 * the message ahead of it. */
static void send_on_wire(struct lane *lane, int64_t first_byte, int64_t arrival)
{
    struct pending_message *pending = message_queue_take(&lane->queue);
    int64_t ahead = lane->last_arrival;
    const struct route *route = lane->route;
    first_byte = hold_arrival(route->from, route->to, first_byte + pending->extra);
    arrival = hold_arrival(route->from, route->to, arrival + pending->extra);
    pending->first_byte = first_byte > ahead ? first_byte : ahead;
    lane->last_arrival = arrival > ahead ? arrival : ahead;
    message_queue_put(&lane->flight, pending);
    heap_push(&lane->route->from->sim->heap, &pending->arrival, lane->last_arrival);
}

static void flow_sent(struct event *sent)
{
    struct lane *lane = event_owner(sent, struct lane, sent);
    struct sim *sim = lane->route->from->sim;
    flow_end(lane);
    send_done(lane->queue.head);
    send_on_wire(lane, lane->queue.head->first_byte, sim->now + sim->latency);
    lane_start(lane);
}

/* May the lane's first message begin? The peer buffers no more than the credit, so messages behind
 * sends wait like these. A node that has ended does not wait. */
static bool has_room(const struct lane *lane)
{
    return lane->begun + lane->queue.head->m->len <= WORLD_CREDIT ||
           lane->route->from->state == NODE_ENDED;
}

static void begin_message(struct lane *lane)
{
    struct pending_message *pending = lane->queue.head;
    lane->outstanding += pending->charged ? 0 : pending->m->len;
    lane->begun += pending->m->len;
    pending->charged = pending->begun = true;
}

void lane_start(struct lane *lane)
{
    struct node *from = lane->route->from, *to = lane->route->to;
    struct sim *sim = from->sim;
    while (from == to && lane->queue.head) {
        begin_message(lane);
        send_on_wire(lane, sim->now + TO_ONESELF_NS, sim->now + TO_ONESELF_NS);
    }
    if (lane->flowing || !lane->queue.head || from->peer[to->slot] != PEER_UP || !has_room(lane))
        return;
    begin_message(lane);
    lane->queue.head->first_byte = sim->now + sim->latency;
    flow_begin(lane, lane->queue.head->m->len + OVERHEAD_BYTES);
}

/* All links and flows that a change of one of the dirty links can touch. */
static struct lane *find_joined(struct link *links, struct link **last)
{
    struct lane *flows = NULL, **flows_end = &flows;
    for (struct link *l = links; l; l = l->next) {
        l->left = l->speed;
        l->waiting = 0;
        int h = l->flows && l->flows->hop[HOP_UP].link == l ? HOP_UP : HOP_DOWN;
        for (struct lane *f = l->flows; f; f = f->hop[h].next) {
            l->waiting++;
            struct link *other = f->hop[HOPS - 1 - h].link;
            if (!other->found) {
                other->found = true;
                other->next = NULL;
                (*last)->next = other;
                *last = other;
            }
            if (f->found)
                continue;
            f->found = true;
            f->settled = false;
            f->next = NULL;
            *flows_end = f;
            flows_end = &f->next;
        }
    }
    return flows;
}

static struct link *tightest_link(struct link *links)
{
    struct link *best = NULL;
    double least = 0;
    for (struct link *l = links; l; l = l->next) {
        double share = l->waiting ? l->left / l->waiting : 0;
        if (!l->waiting || (best && !(share < least)))
            continue;
        best = l;
        least = share;
    }
    return best;
}

/* Water-filling: the flows of the tightest link get equal parts of it, and the remaining capacity
 * goes to the others. */
static void share_out(struct link *links)
{
    struct link *link;
    while ((link = tightest_link(links))) {
        double share = link->left / link->waiting;
        int h = link->flows->hop[HOP_UP].link == link ? HOP_UP : HOP_DOWN;
        for (struct lane *f = link->flows; f; f = f->hop[h].next) {
            if (f->settled)
                continue;
            f->settled = true;
            f->share = share;
            struct link *other = f->hop[HOPS - 1 - h].link;
            other->left -= share;
            other->waiting--;
        }
        link->waiting = 0;
    }
}

void net_settle(struct sim *sim)
{
    struct link *links = sim->dirty, *last = sim->dirty_last;
    sim->dirty = sim->dirty_last = NULL;
    for (struct link *l = links; l; l = l->next) {
        l->dirty = false;
        l->found = true;
    }
    struct lane *flows = find_joined(links, &last);
    share_out(links);
    for (struct link *l = links; l; l = l->next)
        l->found = false;
    for (struct lane *f = flows; f; f = f->next) {
        f->found = false;
        if (f->share == f->rate)
            continue;
        f->left -= f->rate * (double)(sim->now - f->since);
        f->left = f->left > 0 ? f->left : 0;
        f->since = sim->now;
        f->rate = f->share;
        heap_push(&sim->heap, &f->sent, sim_after(sim, f->left / f->rate));
    }
}

static void route_close(struct event *close)
{
    struct route *route = event_owner(close, struct route, close);
    if (hold_cut(route->from, route->to))
        heap_push(&route->from->sim->heap, close, hold_opens(route->from, route->to));
    else
        peer_down(route->to, route->from);
}

int route_get(struct node *from, struct node *to, struct route **out)
{
    struct route *route = from->routes[to->slot];
    if (!route) {
        route = calloc(1, sizeof *route);
        if (!route)
            return ERR_NOMEM;
        *route = (struct route){.from = from, .to = to, .close.fire = route_close};
        for (int c = 0; c < CLASS_COUNT; c++) {
            struct lane *lane = &route->lane[c];
            lane->route = route;
            lane->class = (enum world_class)c;
            lane->sent.fire = flow_sent;
            lane->hop[HOP_UP].link = &from->link[HOP_UP];
            lane->hop[HOP_DOWN].link = &to->link[HOP_DOWN];
        }
        from->routes[to->slot] = route;
    }
    *out = route;
    return OK;
}

bool route_empty(const struct route *route)
{
    for (int c = 0; c < CLASS_COUNT; c++)
        if (route->lane[c].queue.head || route->lane[c].flight.head)
            return false;
    return true;
}

void route_purge(struct route *route, int status)
{
    for (int c = 0; c < CLASS_COUNT; c++) {
        struct lane *lane = &route->lane[c];
        struct message_queue queue = lane->queue;
        struct pending_message *pending;
        lane->queue.head = NULL; /* nothing to continue with */
        if (lane->flowing)
            flow_end(lane);
        while ((pending = message_queue_take(&queue)))
            send_lost(pending, status);
        while ((pending = message_queue_take(&lane->flight)))
            pending_message_free(pending);
    }
}

void route_free(struct route *route)
{
    route_purge(route, ERR_CANCELLED);
    heap_remove(&route->from->sim->heap, &route->close);
    free(route);
}
