/* Invariants of a parameter server, each of its shards alone: the pushes of a worker are applied in
 * order, each once, also across servers; a shard that goes back to a state, since it or another has
 * moved or the driver has recovered, continues with the model, the optimizer, the sample offset and
 * the pushes of an order that was carried out before, and no living worker keeps a newer state; the
 * same pushes in the same order give the same bits again; no shard moves while its server lives;
 * when the run has ended, every push of the members is applied, and the final model has them. */
#include "storm.h"
#include "strategy/ps_client.h"
#include "tensor/vec.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint64_t model_hash(const struct ps_server *server)
{
    const struct shard *shard = &server->shard;
    size_t vectors = shard->x.n > 0 ? server->layout.vectors : 0;
    uint64_t hash = vec_hash(&shard->both, vec_all(&shard->both));
    for (size_t i = 0; i < vectors; i++)
        hash = hash * 31 + vec_hash(&shard->optim.state[i], vec_all(&shard->x));
    return hash;
}

static struct order_seen order_of(const struct ps_server *server)
{
    struct order_seen seen = {.sample_offset = server->sample_offset,
                              .model = model_hash(server),
                              .history = server->history};
    for (uint32_t p = 0; p < NODES_MAX; p++)
        if (server->client[p] && members_has(&server->known, p))
            seen.applied[p] = server->done[p];
    return seen;
}

/* Make room in a list of orders. */
static bool make_room(struct storm *s, struct order_seen **list, uint64_t count)
{
    struct order_seen *larger = realloc(*list, count * sizeof *larger);
    if (!larger) {
        storm_break(s, "the storm itself: out of memory");
        return false;
    }
    *list = larger;
    return true;
}

/* The order of that version; NULL: order 0, or the storm has no memory. */
static struct order_seen *order_at(struct storm *s, struct shard_watch *w, uint64_t version)
{
    if (version > w->room) {
        if (!make_room(s, &w->order, 2 * version))
            return NULL;
        w->room = 2 * version;
    }
    return version > 0 ? &w->order[version - 1] : NULL;
}

static void check_recovery(struct storm *s, struct shard_watch *w, const struct ps_server *server,
                           const struct order_seen *now)
{
    uint64_t version = server->version;
    size_t shard = server->config.index;
    const struct order_seen *then = order_at(s, w, version);
    for (uint32_t p = 0; p < NODES_MAX; p++) {
        if (!members_has(&server->known, p))
            continue;
        if (s->server.state[p] > version)
            storm_break(s,
                        "shard %zu continues behind order %" PRIu64
                        ", and worker %u has a state of %" PRIu64,
                        shard, version, p, s->server.state[p]);
        if (now->applied[p] != (then ? then->applied[p] : 0))
            storm_break(s,
                        "shard %zu continues behind order %" PRIu64 " with %" PRIu64
                        " pushes of worker %u: it contains another number",
                        shard, version, now->applied[p], p);
    }
    if (!then)
        return;
    if (version > w->version)
        storm_break(s, "shard %zu continues behind order %" PRIu64 ", which never was", shard,
                    version);
    else if (then->model != now->model || then->sample_offset != now->sample_offset ||
             then->history != now->history)
        storm_break(s,
                    "shard %zu continues behind order %" PRIu64
                    " with another model, or at offset %" PRIu64 ", not %" PRIu64,
                    shard, version, now->sample_offset, then->sample_offset);
}

/* The orders that are void now: they may come again. */
static void undo_orders(struct storm *s, struct shard_watch *w, uint64_t version)
{
    if (w->version <= version || !make_room(s, &w->undone, w->undone_count + w->version - version))
        return;
    for (uint64_t n = version; n < w->version; n++)
        w->undone[w->undone_count++] = w->order[n];
}

static void check_order(struct storm *s, struct shard_watch *w, const struct ps_server *server,
                        const struct order_seen *now)
{
    const struct order_seen *before = order_at(s, w, server->version - 1);
    for (uint32_t p = 0; p < NODES_MAX; p++) {
        uint64_t had = before ? before->applied[p] : 0;
        if (now->applied[p] != had && now->applied[p] != had + 1 && now->applied[p] != 0)
            storm_break(s,
                        "shard %zu, order %" PRIu64 ": push %" PRIu64 " of worker %u follows "
                        "%" PRIu64,
                        server->config.index, server->version, now->applied[p], p, had);
    }
    /* The layers' own state is a mean over workers, some of whose are lost. */
    for (uint64_t i = 0; server->shard.s.n == 0 && i < w->undone_count; i++)
        if (w->undone[i].history == now->history && w->undone[i].model != now->model)
            storm_break(s, "shard %zu, order %" PRIu64 ": the same pushes give another model",
                        server->config.index, server->version);
}

/* A shard moves when its server is gone, and then only (P8). */
static void check_move(struct storm *s, const struct shard_watch *w, const struct ps_server *server)
{
    uint32_t self = server->world->self;
    bool served = w->order || w->continued;
    if (served && w->node != self && w->node < NODES_MAX && members_has(&server->known, w->node))
        storm_break(s, "shard %zu moves from worker %u, which is there, to %u",
                    server->config.index, w->node, self);
}

void watch_server(struct storm *s, const struct ps_server *server, bool recovered)
{
    if (server->config.index >= SHARDS_WATCHED || members_has(&s->former, server->world->self))
        return;
    struct shard_watch *w = &s->server.shard[server->config.index];
    const struct order_seen now = order_of(server);
    if (!recovered && w->continued && w->node != server->world->self)
        return; /* it has moved, and this server, which stood still, does not know that */
    if (recovered && ps_port_view(&server->port) < w->view)
        return; /* likewise: it continues in a view that the others have left */
    if (recovered) {
        check_move(s, w, server);
        w->continued = true;
        w->view = ps_port_view(&server->port);
        check_recovery(s, w, server, &now);
        undo_orders(s, w, server->version);
    } else {
        check_order(s, w, server, &now);
    }
    struct order_seen *at = order_at(s, w, server->version);
    if (at)
        *at = now;
    w->node = server->world->self;
    w->version = server->version;
    for (uint32_t p = 0; p < NODES_MAX; p++)
        if (members_has(&server->known, p))
            w->decided[p] = now.applied[p];
}

void watch_client(struct storm *s, uint32_t node, const struct ps_client *client)
{
    if (node >= NODES_MAX)
        return;
    s->server.pushed[node] = client->pushed;
    s->server.state[node] = client->state.version;
    if (!client->ended)
        return;
    memcpy(s->server.final, client->state.push, sizeof s->server.final);
    s->server.has_final = true;
}

void watch_servers_end(struct storm *s)
{
    const struct view *view = s->driver ? group_view(&s->driver->group) : NULL;
    for (size_t k = 0; k < SHARDS_WATCHED; k++)
        for (size_t i = 0; view && i < view->count; i++) {
            const struct shard_watch *w = &s->server.shard[k];
            uint32_t p = view->node[i];
            if (p < NODES_MAX && w->order && w->decided[p] != s->server.pushed[p])
                storm_break(s,
                            "worker %u has pushed %" PRIu64 " times, and shard %zu contains "
                            "%" PRIu64,
                            p, s->server.pushed[p], k, w->decided[p]);
        }
    for (size_t i = 0; view && s->server.has_final && i < view->count; i++) {
        uint32_t p = view->node[i];
        if (p < NODES_MAX && s->server.final[p] != s->server.pushed[p])
            storm_break(s,
                        "worker %u has pushed %" PRIu64 " times, and the final model contains "
                        "%" PRIu64,
                        p, s->server.pushed[p], s->server.final[p]);
    }
}

void watch_servers_release(struct storm *s)
{
    for (size_t k = 0; k < SHARDS_WATCHED; k++) {
        free(s->server.shard[k].order);
        free(s->server.shard[k].undone);
    }
    s->server = (struct server_watch){0};
}
