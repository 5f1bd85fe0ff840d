/* Messages between all nodes of a cluster over time, as the simulator carries them (sim/sim_net.c):
 * from one node to another those of a class follow each other, those of different classes and
 * nodes share the links fairly. So a message waits behind the bytes that go the same way. Part of
 * plan/round. */
#ifndef PL_PLAN_MESH_H
#define PL_PLAN_MESH_H

#include "coll/cost.h"
#include "group/members.h"

enum mesh_class { MESH_CONTROL, MESH_BULK, MESH_CLASSES };

struct mesh_message {
    uint32_t from, to;
    enum mesh_class class;
    double bytes;
    /* The caller's: */
    uint32_t kind, worker, shard;
    uint64_t number;
    struct members members;
};

struct mesh;

/* `links` stay as they are until the end; at most FAIR_LINKS_MAX ranks. NULL: out of memory. */
struct mesh *mesh_new(const struct cost_links *links);
void mesh_free(struct mesh *mesh);

/* Send a message now. */
void mesh_send(struct mesh *mesh, const struct mesh_message *message);

/* The time at which a message leaves or arrives next; INFINITY: none is on its way. */
double mesh_next(struct mesh *mesh);

/* Let it become `now`, which is no later than that time. */
void mesh_advance(struct mesh *mesh, double now);

/* Take a message that has arrived. false: there is none */
bool mesh_take(struct mesh *mesh, struct mesh_message *out);

/* Memory was out, and messages are missing. */
bool mesh_failed(const struct mesh *mesh);

#endif
