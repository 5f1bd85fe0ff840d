/* Setting up a worker's side of the parameter servers, and the servers on its node. */
#include "strategy/ps_client.h"

#include "tensor/kernels.h"

static int serve(void *arg)
{
    struct ps_server *server = arg;
    kernels_set_threads(1); /* those of the job compute */
    return ps_server_run(server, NULL);
}

int ps_client_serve(struct ps_client *c, size_t shard, bool moved)
{
    const struct member *m = c->m;
    struct ps_link *link = &c->link[shard];
    struct ps_server_how how = c->how;
    struct err err;
    how.index = shard;
    how.moved = moved;
    link->server = arena_new(m->arena, struct ps_server);
    if (!link->server)
        return ERR_NOMEM;
    int rc = ps_server_init(link->server, m->world, m->group, m->group->log, &how,
                            m->learner->table, &m->learner->x, &m->learner->s, m->arena, &err);
    if (moved) /* about, should nobody know */
        link->server->place += (m->course.place - m->start.place) * members_count(&how.place.first);
    return rc == OK ? world_spawn(m->world, "server", serve, link->server, &link->serving) : rc;
}

static int take_memory(struct ps_client *c)
{
    const struct learner *l = c->m->learner;
    struct arena *arena = c->m->arena;
    size_t n = l->x.n + l->s.n, shards = c->how.place.shards;
    c->link = arena_array(arena, shards, struct ps_link);
    if (!c->link || vec_init(&c->out, arena, n) != OK || vec_init(&c->joint, arena, n) != OK ||
        vec_init(&c->landing, arena, n) != OK)
        return ERR_NOMEM;
    for (size_t i = 0; i < shards; i++) {
        c->link[i].range = shard_range(n, i, shards);
        c->link[i].host = ps_place_host(&c->how.place, i);
    }
    c->x = (struct vec){c->joint.at, l->x.n};
    c->s = (struct vec){c->joint.at + l->x.n, l->s.n};
    vec_copy(&c->x, &l->x, vec_all(&c->x));
    vec_copy(&c->s, &l->s, vec_all(&c->s));
    return OK;
}

static int start_pusher(struct ps_client *c)
{
    struct ps_part *part = arena_array(c->m->arena, c->how.place.shards, struct ps_part);
    if (!part)
        return ERR_NOMEM;
    for (size_t i = 0; i < c->how.place.shards; i++) {
        const struct range range = c->link[i].range;
        part[i] = (struct ps_part){.x = c->out.at + range.from, .n = range.len};
    }
    return ps_pusher_start(&c->pusher, c->m->world, c->m->group, part, c->how.place.shards);
}

int ps_client_open(struct ps_client *c, struct member *m, const struct ps_server_how *how)
{
    *c = (struct ps_client){.m = m,
                            .how = *how,
                            .view = how->place.now->number,
                            .incarnation = how->place.now->incarnation};
    ps_post_init(&c->post, m->world, m->group, PS_LANE_WORKER);
    m->own = c;
    int rc = take_memory(c);
    if (rc == OK)
        rc = start_pusher(c);
    if (rc != OK)
        return rc;
    m->joint = (struct joint){.x = &c->x, .s = &c->s};
    for (size_t i = 0; rc == OK && i < how->place.shards; i++)
        if (c->link[i].host == m->world->self)
            rc = ps_client_serve(c, i, m->admission != NULL);
    return rc;
}

void ps_client_close(struct member *m)
{
    struct ps_client *c = m->own;
    if (!c)
        return;
    world_end_task(m->world, &c->lingering);
    ps_pusher_stop(&c->pusher);
    for (size_t i = 0; c->link && i < c->how.place.shards; i++) {
        world_end_task(m->world, &c->link[i].serving);
        if (c->link[i].server)
            ps_server_release(c->link[i].server);
    }
    ps_post_close(&c->post);
}
