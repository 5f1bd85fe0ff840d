/* Nodes start, end and are killed; peers come up and go down. Others notice after a latency. */
#include "base/array.h"
#include "base/fault.h"
#include "sim/state.h"

#include <inttypes.h>
#include <stdlib.h>

static struct node *node_of(struct world *w)
{
    return (struct node *)w;
}

static void report_change(struct node *node, const struct node *peer, bool up)
{
    struct sim *sim = node->sim;
    if (node->changes_out == node->changes_in)
        node->changes_out = node->changes_in = 0;
    bool grown =
        array_grow(&node->changes, node->changes_in, &node->changes_room, sizeof *node->changes);
    PL_ASSERT(grown);
    node->changes[node->changes_in].slot = peer->slot;
    node->changes[node->changes_in++].up = up;
    sim_record(sim, TRACE_PEER, node, peer->slot, up);
    node_wake(node, WAIT_PEER, NULL);
}

static void peer_up(struct node *node, struct node *peer)
{
    node->peer[peer->slot] = PEER_UP;
    report_change(node, peer, true);
    struct route *route = node->routes[peer->slot];
    for (int c = 0; route && c < CLASS_COUNT; c++)
        lane_start(&route->lane[c]);
}

/* Close a peer: nothing is sent to it or expected from it any more. */
static void peer_close(struct node *node, struct node *peer)
{
    node->peer[peer->slot] = PEER_DOWN;
    if (node->routes[peer->slot])
        route_purge(node->routes[peer->slot], ERR_PEER);
    mail_fail(node, peer, ERR_PEER);
    node_wake(node, WAIT_CREDIT, &peer->world.self);
}

void peer_down(struct node *node, struct node *peer)
{
    bool was_up = node->peer[peer->slot] == PEER_UP;
    if (node->state != NODE_RUNNING || node->peer[peer->slot] == PEER_DOWN)
        return;
    peer_close(node, peer);
    if (was_up)
        report_change(node, peer, false);
}

/* Connect `node` and an older node, even if `node` has ended by now: its end is noticed afterwards.
 */
static void connect_to(struct node *node, struct node *older)
{
    if (older->state == NODE_ABSENT)
        return;
    if (older->state == NODE_ENDED || older->peer[node->slot] == PEER_DOWN) {
        if (node->peer[older->slot] != PEER_DOWN)
            peer_close(node, older);
        return;
    }
    if (node->peer[older->slot] == PEER_DOWN) {
        peer_close(older, node);
        return;
    }
    peer_up(older, node);
    peer_up(node, older);
}

static void node_up(struct event *up)
{
    struct node *node = event_owner(up, struct node, up);
    struct sim *sim = node->sim;
    node->connected = true;
    connect_to(node, &sim->nodes[sim->slots - 1]); /* the driver; then workers start in order */
    for (uint32_t i = 0; i < sim->slots - 1; i++)
        if (i != node->slot && (sim->nodes[i].connected || sim->nodes[i].state == NODE_ENDED))
            connect_to(node, &sim->nodes[i]);
}

static void node_gone(struct event *gone)
{
    struct node *node = event_owner(gone, struct node, gone);
    struct sim *sim = node->sim;
    for (uint32_t i = 0; i < sim->slots; i++) {
        struct route *route = node->routes[i];
        if (i == node->slot)
            continue;
        if (route && sim->nodes[i].state != NODE_RUNNING)
            route_purge(route, ERR_CANCELLED);
        else if (route && !route_empty(route))
            route->closing = true;
        else if (hold_cut(node, &sim->nodes[i]) && route_get(node, &sim->nodes[i], &route) == OK)
            heap_push(&sim->heap, &route->close, hold_opens(node, &sim->nodes[i]));
        else
            peer_down(&sim->nodes[i], node);
    }
}

static int run_main(void *arg)
{
    struct node *node = arg;
    const struct sim_options *o = &node->sim->options;
    return o->node_main(o->arg, &node->world);
}

int node_start(struct node *node)
{
    int rc = task_new(node, "main", run_main, node, &node->main);
    if (rc == OK)
        node->state = NODE_RUNNING;
    return rc;
}

static void worker_start(struct event *start)
{
    struct node *node = event_owner(start, struct node, start);
    struct sim *sim = node->sim;
    if (node->broken)
        return;
    if (node_start(node) == OK)
        heap_push(&sim->heap, &node->up, sim->now + sim->latency);
    else
        log_error(sim->options.log, "node %" PRIu32 " cannot start: out of memory", node->slot);
}

/* A worker calls its lost driver again. A driver that has not noticed the loss of the old
 * connection does not reply. */
static void on_dial(struct event *dial)
{
    struct node *node = event_owner(dial, struct node, dial);
    struct node *driver = &node->sim->nodes[node->sim->slots - 1];
    if (node->state != NODE_RUNNING || node->peer[driver->slot] != PEER_KNOWN)
        return;
    if (driver->state != NODE_RUNNING || driver->peer[node->slot] == PEER_UP) {
        node->peer[driver->slot] = PEER_DOWN;
        mail_fail(node, driver, ERR_PEER);
        if (node->routes[driver->slot])
            route_purge(node->routes[driver->slot], ERR_PEER);
        report_change(node, driver, false);
        return;
    }
    driver->peer[node->slot] = PEER_KNOWN;
    peer_up(driver, node);
    peer_up(node, driver);
}

void node_init(struct sim *sim, uint32_t slot)
{
    struct node *node = &sim->nodes[slot];
    node->world.ops = &sim_world_ops;
    node->world.self = slot == sim->slots - 1 ? WORLD_DRIVER : slot;
    node->sim = sim;
    node->slot = slot;
    node->start.fire = worker_start;
    node->up.fire = node_up;
    node->gone.fire = node_gone;
    node->dial.fire = on_dial;
    node->work_done.fire = work_finish;
    node->slow = 1;
    node->peer[slot] = PEER_UP;
}

void node_end(struct node *node, bool killed)
{
    struct sim *sim = node->sim;
    node->broken = true;
    if (node->state != NODE_RUNNING)
        return;
    node->killed = killed;
    node->state = NODE_ENDED;
    mail_fail(node, NULL, ERR_CANCELLED);
    mail_discard(node, NULL);
    for (struct task *task = node->tasks; task; task = task->next)
        work_drop(task);
    while (node->waits)
        task_ready(node->waits);
    hold_release(node);
    for (uint32_t i = 0; killed && i < sim->slots; i++)
        if (node->routes[i])
            route_purge(node->routes[i], ERR_CANCELLED);
    send_recall(node, true, ERR_CANCELLED);
    heap_push(&sim->heap, &node->gone, sim->now + sim->latency);
}

int node_restart(struct node *node)
{
    struct sim *sim = node->sim;
    for (const struct task *task = node->tasks; task; task = task->next)
        PL_ASSERT(task->ended); /* all its waits have been cancelled */
    for (uint32_t i = 0; i < sim->slots; i++) {
        node->peer[i] = i == node->slot ? PEER_UP : PEER_KNOWN;
        if (node->routes[i])
            node->routes[i]->closing = false;
    }
    node->changes_in = node->changes_out = 0;
    node->oldest_view = 0;
    node->broken = node->killed = false;
    return node_start(node);
}

void node_release(struct node *node)
{
    free(node->changes);
    node->changes = NULL;
    mail_discard(node, NULL);
    for (uint32_t i = 0; node->routes && i < node->sim->slots; i++)
        if (node->routes[i])
            route_free(node->routes[i]);
    while (node->tasks) /* last, since posts are on their stacks */
        task_free(node->tasks);
}

int node_peer_add(struct world *w, uint32_t peer, const char *address)
{
    (void)address;
    struct node *node = node_of(w);
    struct sim *sim = node->sim;
    if (node->state == NODE_ENDED)
        return ERR_CANCELLED;
    if (peer == WORLD_DRIVER && node->peer[sim->slots - 1] == PEER_DOWN) {
        node->peer[sim->slots - 1] = PEER_KNOWN;
        mail_discard(node, &sim->nodes[sim->slots - 1]);
        heap_push(&sim->heap, &node->dial, sim->now + sim->latency);
    }
    return sim_node(sim, peer) ? OK : ERR_INPUT;
}

void node_peer_drop(struct world *w, uint32_t number)
{
    struct node *node = node_of(w), *peer = sim_node(node->sim, number);
    struct sim *sim = node->sim;
    if (!peer || peer == node || node->state == NODE_ENDED || node->peer[peer->slot] == PEER_DOWN)
        return;
    bool was_up = node->peer[peer->slot] == PEER_UP;
    peer_close(node, peer);
    mail_discard(node, peer);
    struct route *route;
    if (!was_up)
        return; /* they will not meet */
    if (route_get(node, peer, &route) == OK)
        heap_push(&sim->heap, &route->close, sim->now + sim->latency);
    else
        peer_down(peer, node);
}

void node_address(struct world *w, char *out, size_t size)
{
    (void)w;
    if (size > 0)
        out[0] = '\0';
}

int node_want(struct world *w, uint32_t n)
{
    struct node *node = node_of(w);
    struct sim *sim = node->sim;
    if (node->state == NODE_ENDED)
        return ERR_CANCELLED;
    if (n > sim->slots - 1 - sim->wanted)
        return ERR_NOT_FOUND;
    for (uint32_t end = sim->wanted + n; sim->wanted < end; sim->wanted++) {
        struct node *next = &sim->nodes[sim->wanted];
        if (!next->joins_later) /* else it does so in its own time */
            heap_push(&sim->heap, &next->start, sim->now + sim->latency);
    }
    return OK;
}
