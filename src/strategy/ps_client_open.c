/* Setting up a worker's side of the parameter servers, and the servers on its node. */
#include "strategy/ps_client.h"

#include "base/minmax.h"
#include "tensor/kernels.h"

static int serve_shard(void *arg)
{
    struct ps_server *server = arg;
    kernels_set_threads(1); /* those of the job compute */
    return ps_server_run(server, NULL);
}

int ps_client_serve(struct ps_client *c, size_t shard, bool moved)
{
    const struct member *m = c->m;
    struct ps_link *link = &c->link[shard];
    struct ps_server_config config = c->config;
    struct err err;
    config.index = shard;
    config.origin = moved ? SHARD_MOVED : SHARD_INITIAL;
    link->server = arena_new(m->arena, struct ps_server);
    if (!link->server)
        return ERR_NOMEM;
    int rc = ps_server_init(link->server, m->world, m->group, m->group->log, &config,
                            m->learner->table, &m->learner->x, &m->learner->s, m->arena, &err);
    if (moved) /* an estimate, used if no shard knows the offset */
        link->server->sample_offset += (m->progress.sample_offset - m->start.sample_offset) *
                                       members_count(&config.placement.first);
    return rc == OK ? world_spawn(m->world, "server", serve_shard, link->server, &link->serving)
                    : rc;
}

/* The newest state, the newest copy of the model, which is a part of it where all copies are
 * states, and the part that is arriving. */
static int take_state_memory(struct ps_client *c)
{
    const struct learner *l = c->m->learner;
    struct arena *arena = c->m->arena;
    size_t n = l->x.n + l->s.n, most = n;
    c->kept = 1;
    if (!c->config.placement.on_workers) {
        size_t states = shard_states(&c->config.shard, &l->optim);
        c->layout = (struct ps_state_layout){.model = n, .optimizer = states * l->x.n};
        c->kept =
            states > 0 ? PS_PUSHES_KEPT : min_size(c->config.pushes_a_fetch + 1, PS_PUSHES_KEPT);
        most = ps_state_length(&c->layout, VIEW_MEMBERS_MAX);
        int rc = vec_init(&c->state, arena, most);
        if (rc != OK)
            return rc;
    }
    if (vec_init(&c->landing, arena, most) != OK)
        return ERR_NOMEM;
    c->global = (struct vec){c->state.at, n};
    bool all = !c->config.placement.on_workers && c->layout.optimizer == 0;
    return all ? OK : vec_init(&c->global, arena, n);
}

int ps_client_take_push_memory(struct ps_client *c, uint64_t number)
{
    const struct learner *l = c->m->learner;
    struct vec *vec = &c->push[number % c->kept].vec;
    int rc = vec->at ? OK : vec_init(vec, c->m->arena, l->x.n + l->s.n);
    c->out = *vec;
    return rc;
}

static int take_memory(struct ps_client *c)
{
    const struct learner *l = c->m->learner;
    struct arena *arena = c->m->arena;
    size_t n = l->x.n + l->s.n, shards = c->config.placement.shards;
    c->link = arena_array(arena, shards, struct ps_link);
    if (!c->link || take_state_memory(c) != OK || ps_client_take_push_memory(c, 1) != OK)
        return ERR_NOMEM;
    for (size_t i = 0; i < shards; i++) {
        c->link[i].range = range_shard(n, shards, i);
        c->link[i].host = ps_placement_host(&c->config.placement, i);
    }
    c->x = (struct vec){c->global.at, l->x.n};
    c->s = (struct vec){c->global.at + l->x.n, l->s.n};
    vec_copy(&c->x, &l->x, vec_all(&c->x));
    vec_copy(&c->s, &l->s, vec_all(&c->s));
    if (c->state.n > 0 && c->state.at != c->global.at)
        vec_export(&c->global, vec_all(&c->global), c->state.at);
    return OK;
}

static int start_push_sender(struct ps_client *c)
{
    size_t shards = c->config.placement.shards;
    struct async_part *part = arena_array(c->m->arena, shards, struct async_part);
    if (!part)
        return ERR_NOMEM;
    return async_sender_start(&c->push_sender, c->m, part, shards, PS_LANE_PUSH, SIGNAL_PUSH,
                              SIGNAL_PUSHED);
}

int ps_client_open(struct ps_client *c, struct member *m, const struct ps_server_config *config)
{
    *c = (struct ps_client){.m = m,
                            .stage = m->join_state ? CLIENT_JOINING : CLIENT_TRAINING,
                            .config = *config,
                            .view = config->placement.now->number,
                            .incarnation = config->placement.now->incarnation};
    ps_sender_init(&c->sender, m->world, m->group, PS_LANE_WORKER);
    c->sender.transfers.chunk = config->chunk;
    m->own = c;
    int rc = take_memory(c);
    if (rc == OK)
        rc = start_push_sender(c);
    if (rc != OK)
        return rc;
    m->model = (struct global_model){.x = &c->x, .s = &c->s};
    for (size_t i = 0; rc == OK && i < config->placement.shards; i++)
        if (c->link[i].host == m->world->self)
            rc = ps_client_serve(c, i, m->join_state != NULL);
    return rc;
}

void ps_client_close(struct member *m)
{
    struct ps_client *c = m->own;
    if (!c)
        return;
    world_end_task(m->world, &c->lingering);
    async_sender_stop(&c->push_sender);
    for (size_t i = 0; c->link && i < c->config.placement.shards; i++) {
        world_end_task(m->world, &c->link[i].serving);
        if (c->link[i].server)
            ps_server_release(c->link[i].server);
    }
    ps_sender_close(&c->sender);
}
