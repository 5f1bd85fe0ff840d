/* Invariants of a parameter server on the driver: the pushes of a worker are applied in order, each
 * once, also across drivers; a driver that recovers continues with the model, the optimizer, the
 * sample offset and the pushes of an order that was carried out before, and no living worker keeps
 * a newer state; when the run has ended, every push of the members is applied. */
#include "storm.h"
#include "strategy/ps_client.h"
#include "tensor/vec.h"

#include <inttypes.h>
#include <stdlib.h>

static uint64_t model_hash(const struct ps_server *server)
{
    const struct shard *shard = &server->shard;
    size_t vectors = shard->x.n > 0 ? server->layout.optimizer / shard->x.n : 0;
    uint64_t hash = vec_hash(&shard->both, vec_all(&shard->both));
    for (size_t i = 0; i < vectors; i++)
        hash = hash * 31 + vec_hash(&shard->optim.state[i], vec_all(&shard->x));
    return hash;
}

static struct order_seen order_of(const struct ps_server *server)
{
    struct order_seen seen = {.sample_offset = server->sample_offset, .model = model_hash(server)};
    for (uint32_t p = 0; p < NODES_MAX; p++)
        if (server->client[p] && members_has(&server->known, p))
            seen.applied[p] = server->client[p]->done;
    return seen;
}

/* The order of that version; NULL: order 0, or the storm has no memory. */
static struct order_seen *order_at(struct storm *s, uint64_t version)
{
    struct server_watch *w = &s->server;
    if (version > w->room) {
        uint64_t room = 2 * version;
        struct order_seen *larger = realloc(w->order, room * sizeof *larger);
        if (!larger) {
            storm_break(s, "the storm itself: out of memory");
            return NULL;
        }
        w->order = larger;
        w->room = room;
    }
    return version > 0 ? &w->order[version - 1] : NULL;
}

static void check_recovery(struct storm *s, const struct ps_server *server,
                           const struct order_seen *now)
{
    struct server_watch *w = &s->server;
    uint64_t version = server->version;
    const struct order_seen *then = order_at(s, version);
    for (uint32_t p = 0; p < NODES_MAX; p++) {
        if (!members_has(&server->known, p))
            continue;
        if (w->state[p] > version)
            storm_break(s,
                        "the driver continues behind order %" PRIu64 ", and worker %u has %" PRIu64,
                        version, p, w->state[p]);
        if (now->applied[p] != (then ? then->applied[p] : 0))
            storm_break(s,
                        "the driver continues behind order %" PRIu64 " with %" PRIu64
                        " pushes of worker %u: it contains another number",
                        version, now->applied[p], p);
    }
    if (!then)
        return;
    if (version > w->version)
        storm_break(s, "the driver continues behind order %" PRIu64 ", which never was", version);
    else if (then->model != now->model || then->sample_offset != now->sample_offset)
        storm_break(s,
                    "the driver continues behind order %" PRIu64
                    " with another model, or at offset "
                    "%" PRIu64 ", not %" PRIu64,
                    version, now->sample_offset, then->sample_offset);
}

static void check_order(struct storm *s, const struct ps_server *server,
                        const struct order_seen *now)
{
    const struct order_seen *before = order_at(s, server->version - 1);
    for (uint32_t p = 0; p < NODES_MAX; p++) {
        uint64_t had = before ? before->applied[p] : 0;
        if (now->applied[p] != had && now->applied[p] != had + 1 && now->applied[p] != 0)
            storm_break(s, "order %" PRIu64 ": push %" PRIu64 " of worker %u follows %" PRIu64,
                        server->version, now->applied[p], p, had);
    }
}

void watch_server(struct storm *s, const struct ps_server *server, bool recovered)
{
    struct server_watch *w = &s->server;
    if (server->config.placement.on_workers)
        return;
    const struct order_seen now = order_of(server);
    if (recovered)
        check_recovery(s, server, &now);
    else
        check_order(s, server, &now);
    struct order_seen *at = order_at(s, server->version);
    if (at)
        *at = now;
    w->version = server->version;
    for (uint32_t p = 0; p < NODES_MAX; p++)
        if (members_has(&server->known, p))
            w->decided[p] = now.applied[p];
}

void watch_client(struct storm *s, uint32_t node, const struct ps_client *client)
{
    if (node >= NODES_MAX || client->config.placement.on_workers)
        return;
    s->server.pushed[node] = client->pushed;
    s->server.state[node] = client->state_header.version;
}

void watch_servers_end(struct storm *s)
{
    const struct view *view = s->driver ? group_view(&s->driver->group) : NULL;
    for (size_t i = 0; view && i < view->count; i++) {
        uint32_t p = view->node[i];
        const struct server_watch *w = &s->server;
        if (p < NODES_MAX && w->decided[p] != w->pushed[p])
            storm_break(s,
                        "worker %u has pushed %" PRIu64 " times, and the model contains %" PRIu64,
                        p, w->pushed[p], w->decided[p]);
    }
}
