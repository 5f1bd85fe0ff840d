#include "plan/mesh.h"

#include "base/array.h"
#include "base/fault.h"
#include "base/minmax.h"
#include "coll/fair_links.h"

#include <math.h>
#include <stdlib.h>

enum { OVERHEAD_BYTES = 40 }; /* of a message's frame */

#define TO_ONESELF_S 1e-6

/* A message in a queue; `next` is the place of the one behind it, plus 1. */
struct moving_message {
    struct mesh_message m;
    double until; /* its arrival, once it has left */
    size_t next;
};

struct message_queue {
    size_t head, tail; /* places, plus 1; 0: it is empty */
};

/* From one node to another, in a class. */
struct mesh_lane {
    struct fair_flow flow;
    struct message_queue queue; /* the first one flows */
    double left;                /* bytes of it */
};

struct mesh {
    const struct cost_links *links;
    struct moving_message *message;
    size_t messages, room, unused; /* unused: a list of places */
    struct mesh_lane *lane;        /* of each sender, receiver, class */
    struct mesh_lane **flowing;
    struct fair_flow **open; /* room for the rates */
    size_t flows;
    /* Latency is the same for all, so each queue is in the order of arrival. */
    struct message_queue flying, here, arrived;
    double now;
    bool settled; /* the flows have their rates */
    bool failed;
};

struct mesh *mesh_new(const struct cost_links *links)
{
    size_t lanes = links->ranks * links->ranks * MESH_CLASSES;
    struct mesh *mesh = calloc(1, sizeof *mesh);
    PL_ASSERT(links->ranks <= FAIR_LINKS_MAX);
    if (!mesh)
        return NULL;
    mesh->links = links;
    mesh->lane = calloc(lanes, sizeof *mesh->lane);
    mesh->flowing = calloc(lanes, sizeof *mesh->flowing);
    mesh->open = calloc(lanes, sizeof *mesh->open);
    if (mesh->lane && mesh->flowing && mesh->open)
        return mesh;
    mesh_free(mesh);
    return NULL;
}

void mesh_free(struct mesh *mesh)
{
    if (!mesh)
        return;
    free(mesh->message), free(mesh->lane), free(mesh->flowing), free(mesh->open);
    free(mesh);
}

bool mesh_failed(const struct mesh *mesh)
{
    return mesh->failed;
}

/* ---- queues ---- */

static void queue_put(struct mesh *mesh, struct message_queue *queue, size_t place)
{
    mesh->message[place - 1].next = 0;
    if (queue->head)
        mesh->message[queue->tail - 1].next = place;
    else
        queue->head = place;
    queue->tail = place;
}

static size_t queue_take(const struct mesh *mesh, struct message_queue *queue)
{
    size_t place = queue->head;
    queue->head = mesh->message[place - 1].next;
    return place;
}

/* 0: out of memory */
static size_t take_place(struct mesh *mesh)
{
    size_t place = mesh->unused;
    if (place) {
        mesh->unused = mesh->message[place - 1].next;
        return place;
    }
    if (!array_grow(&mesh->message, mesh->messages, &mesh->room, sizeof *mesh->message))
        return 0;
    return ++mesh->messages;
}

/* ---- lanes ---- */

static struct mesh_lane *lane_of(const struct mesh *mesh, const struct mesh_message *m)
{
    size_t pair = m->from * mesh->links->ranks + m->to;
    return &mesh->lane[pair * MESH_CLASSES + m->class];
}

static void begin_flow(const struct mesh *mesh, struct mesh_lane *lane)
{
    const struct mesh_message *m = &mesh->message[lane->queue.head - 1].m;
    lane->flow.from = m->from;
    lane->flow.to = m->to;
    lane->left = m->bytes + OVERHEAD_BYTES;
}

void mesh_send(struct mesh *mesh, const struct mesh_message *message)
{
    size_t place = take_place(mesh);
    mesh->failed |= place == 0;
    if (mesh->failed)
        return;
    mesh->message[place - 1] = (struct moving_message){.m = *message};
    if (message->from == message->to) {
        mesh->message[place - 1].until = mesh->now + TO_ONESELF_S;
        queue_put(mesh, &mesh->here, place);
        return;
    }
    struct mesh_lane *lane = lane_of(mesh, message);
    bool waits = lane->queue.head != 0;
    queue_put(mesh, &lane->queue, place);
    if (waits)
        return;
    begin_flow(mesh, lane);
    mesh->flowing[mesh->flows++] = lane;
    mesh->settled = false;
}

/* ---- time ---- */

static void settle_rates(struct mesh *mesh)
{
    if (mesh->settled)
        return;
    for (size_t i = 0; i < mesh->flows; i++)
        mesh->open[i] = &mesh->flowing[i]->flow;
    fair_links_share(mesh->links, mesh->open, mesh->flows);
    mesh->settled = true;
}

static double first_arrival(const struct mesh *mesh, const struct message_queue *queue)
{
    return queue->head ? mesh->message[queue->head - 1].until : INFINITY;
}

double mesh_next(struct mesh *mesh)
{
    double next = min_double(first_arrival(mesh, &mesh->flying), first_arrival(mesh, &mesh->here));
    settle_rates(mesh);
    for (size_t i = 0; i < mesh->flows; i++) {
        const struct mesh_lane *lane = mesh->flowing[i];
        next = min_double(next, mesh->now + lane->left / lane->flow.rate);
    }
    return next;
}

/* The first message of the lane has left, and the next one begins. false: there is none */
static bool send_next(struct mesh *mesh, struct mesh_lane *lane)
{
    size_t place = queue_take(mesh, &lane->queue);
    mesh->message[place - 1].until = mesh->now + mesh->links->latency;
    queue_put(mesh, &mesh->flying, place);
    if (lane->queue.head)
        begin_flow(mesh, lane);
    return lane->queue.head != 0;
}

static void land_messages(struct mesh *mesh, struct message_queue *queue)
{
    while (first_arrival(mesh, queue) <= mesh->now)
        queue_put(mesh, &mesh->arrived, queue_take(mesh, queue));
}

/* Bytes that take less than a nanosecond are none. */
void mesh_advance(struct mesh *mesh, double now)
{
    double passed = now - mesh->now;
    size_t kept = 0;
    settle_rates(mesh);
    mesh->now = now;
    for (size_t i = 0; i < mesh->flows; i++) {
        struct mesh_lane *lane = mesh->flowing[i];
        lane->left -= lane->flow.rate * passed;
        if (lane->left > lane->flow.rate * 1e-9 || send_next(mesh, lane))
            mesh->flowing[kept++] = lane;
    }
    /* A lane that begins its next message keeps its rate. */
    mesh->settled = kept == mesh->flows;
    mesh->flows = kept;
    land_messages(mesh, &mesh->flying);
    land_messages(mesh, &mesh->here);
}

bool mesh_take(struct mesh *mesh, struct mesh_message *out)
{
    if (!mesh->arrived.head)
        return false;
    size_t place = queue_take(mesh, &mesh->arrived);
    *out = mesh->message[place - 1].m;
    mesh->message[place - 1].next = mesh->unused;
    mesh->unused = place;
    return true;
}
