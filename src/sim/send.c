/* Posted sends. The bytes stay in the caller's range until the last of them has left, and are read
 * at that moment and no earlier: a caller that changes the range too soon is found out by the
 * receiver's data. The message is allocated when the send is posted, so a posted send cannot fail
 * for lack of memory. */
#include "base/fault.h"
#include "sim/state.h"

#include <stdatomic.h>
#include <string.h>

void ended_count(struct node *node, struct ended *ended)
{
    if (!ended)
        return;
    atomic_fetch_add(&ended->times, 1);
    node_wake(node, WAIT_ENDED, ended);
}

/* From here on the struct and the range are the caller's. */
static void send_end(struct node *node, struct send *send, int status)
{
    struct ended *ended = send->ended;
    send->world = NULL;
    send->status = status;
    ended_count(node, ended);
}

static void pending_end(struct pending_message *pending, int status)
{
    struct send *send = pending->send;
    pending->send = NULL;
    send_end(pending->lane->route->from, send, status);
}

/* The bytes as they are now. */
static void pending_fill(struct pending_message *pending)
{
    struct message *m = pending->m;
    if (m->data && m->len)
        memcpy(m->data, pending->send->from, m->len);
}

void send_done(struct pending_message *pending)
{
    if (!pending->send)
        return;
    pending_fill(pending);
    pending_end(pending, OK);
}

void send_lost(struct pending_message *pending, int status)
{
    if (pending->send)
        pending_end(pending, status);
    pending_message_free(pending);
}

/* Take back the send of `*at`: a letter that has begun continues, with the bytes as they are
 * now. */
static void take_back(struct lane *lane, struct pending_message **at, int status)
{
    struct pending_message *pending = *at;
    if (pending->begun) {
        pending_fill(pending);
        pending_end(pending, status);
    } else {
        send_lost(message_queue_unlink(&lane->queue, at), status);
    }
}

static int queue_send(struct lane *lane, struct send *send)
{
    struct message *m = send->from ? message_new(send->tag, send->view, send->len)
                                   : message_phantom(send->tag, send->view, send->len);
    struct pending_message *pending;
    if (!m)
        return ERR_NOMEM;
    if (mail_queue(lane, m, &pending) != OK) {
        message_unref(m);
        return ERR_NOMEM;
    }
    pending->send = send;
    send->world = pending;
    send->status = POST_PENDING;
    lane_start(lane);
    return OK;
}

/* OK also for a peer that is down: that is the send's status. */
static int hand_over(struct node *node, struct send *send)
{
    struct node *to = sim_node(node->sim, send->to);
    struct route *route;
    PL_ASSERT(to != node && send->len <= WORLD_MESSAGE_MAX);
    if (node->state == NODE_ENDED)
        return ERR_CANCELLED;
    if (mail_aborted(node, send->view))
        return ERR_VIEW;
    if (!to || node->peer[to->slot] == PEER_DOWN) {
        send_end(node, send, ERR_PEER);
        return OK;
    }
    if (route_get(node, to, &route) != OK)
        return ERR_NOMEM;
    if (mail_dies(node)) {
        node_end(node, true);
        return ERR_CANCELLED;
    }
    return queue_send(&route->lane[CLASS_BULK], send);
}

int send_post(struct world *w, struct send *send)
{
    send->next = NULL;
    send->world = NULL;
    int rc = hand_over((struct node *)w, send);
    if (rc != OK)
        send->status = rc;
    return rc;
}

void send_unpost(struct world *w, struct send *send)
{
    (void)w;
    if (send->status != POST_PENDING)
        return;
    struct pending_message *pending = send->world;
    struct lane *lane = pending->lane;
    struct pending_message **at = &lane->queue.head;
    while (*at != pending)
        at = &(*at)->next;
    take_back(lane, at, ERR_CANCELLED);
    lane_start(lane); /* it may have been the one that there was no room for */
}

void send_recall(struct node *node, bool all, int status)
{
    for (uint32_t i = 0; i < node->sim->slots; i++) {
        if (!node->routes[i])
            continue;
        struct lane *lane = &node->routes[i]->lane[CLASS_BULK];
        for (struct pending_message **at = &lane->queue.head; *at;) {
            struct pending_message *pending = *at;
            bool ends = pending->send && (all || mail_aborted(node, pending->m->view));
            bool stays = !ends || pending->begun;
            if (ends)
                take_back(lane, at, status);
            if (stays)
                at = &pending->next;
        }
        lane_start(lane);
    }
}
