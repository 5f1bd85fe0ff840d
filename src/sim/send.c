/* Sends posted: letters whose bytes stay in the caller's range until the last of them has left. It
 * is read at that moment and no earlier, so that who touches it too soon is caught by what comes
 * out at the other end. The letter's message has its room from the beginning: once posted, a send
 * cannot fail for want of memory. */
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

static void letter_end(struct letter *letter, int status)
{
    struct send *send = letter->send;
    letter->send = NULL;
    send_end(letter->lane->route->from, send, status);
}

/* The bytes as they are now. */
static void letter_fill(struct letter *letter)
{
    struct message *m = letter->m;
    if (m->data && m->len)
        memcpy(m->data, letter->send->from, m->len);
}

void send_done(struct letter *letter)
{
    if (!letter->send)
        return;
    letter_fill(letter);
    letter_end(letter, OK);
}

void send_lost(struct letter *letter, int status)
{
    if (letter->send)
        letter_end(letter, status);
    letter_free(letter);
}

/* Take back the send of `*at`: a letter that has begun goes on, with the bytes as they are now. */
static void take_back(struct lane *lane, struct letter **at, int status)
{
    struct letter *letter = *at;
    if (letter->begun) {
        letter_fill(letter);
        letter_end(letter, status);
    } else {
        send_lost(letters_unlink(&lane->queue, at), status);
    }
}

static int queue_send(struct lane *lane, struct send *send)
{
    struct message *m = send->from ? message_new(send->tag, send->view, send->len)
                                   : message_phantom(send->tag, send->view, send->len);
    struct letter *letter;
    if (!m)
        return ERR_NOMEM;
    if (mail_queue(lane, m, &letter) != OK) {
        message_unref(m);
        return ERR_NOMEM;
    }
    letter->send = send;
    send->world = letter;
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
    struct letter *letter = send->world;
    struct lane *lane = letter->lane;
    struct letter **at = &lane->queue.head;
    while (*at != letter)
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
        for (struct letter **at = &lane->queue.head; *at;) {
            struct letter *letter = *at;
            bool ends = letter->send && (all || mail_aborted(node, letter->m->view));
            bool stays = !ends || letter->begun;
            if (ends)
                take_back(lane, at, status);
            if (stays)
                at = &letter->next;
        }
        lane_start(lane);
    }
}
