/* `mpca` and `pace`: the driver, which prepares the shards with `coordination: driver`. */
#include "strategy/phased.h"

static bool all_joined(const struct phased_node *node)
{
    bool all = true;
    for (uint32_t i = 0; i < node->lanes; i++)
        all &= atomic_load(&node->lane[i].arrived) != PHASED_NONE;
    return all;
}

/* Lanes reduce, prepare and broadcast; this function updates the global model. On a recovered
 * driver each lane's task writes its shard of it when it enters; until all have, the model is
 * neither copied nor final. ERR_PEER: no worker is left that has it */
static int follow_model(struct phased_node *node, struct driver_part *l)
{
    for (;;) {
        const struct wait_for set[] = {
            wait_signal(l->world, SIGNAL_PHASED),
            wait_signal(l->world, SIGNAL_GROUP),
        };
        struct wake wake;
        int rc = phased_node_status(node);
        bool joined = all_joined(node);
        if (rc == OK && !joined && group_view(l->group)->count == 0)
            rc = ERR_PEER;
        for (uint32_t i = 0; rc == OK && joined && i < node->lanes; i++) {
            if (!atomic_load(&node->lane[i].prepared))
                continue;
            phased_lane_commit(&node->lane[i]);
            rc = l->on_commit(l, NULL);
        }
        if (rc != OK || (joined && atomic_load(&l->finish)))
            return rc;
        rc = world_wait(l->world, set, 2, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
    }
}

int phased_driver(struct driver_part *l)
{
    struct phased_node *node = arena_new(l->arena, struct phased_node);
    if (!node)
        return ERR_NOMEM;
    struct vec *v = arena_new(l->arena, struct vec);
    if (!v || vec_init(v, l->arena, l->x.n) != OK)
        return ERR_NOMEM;
    if (l->resumed.extra)
        vec_copy(v, l->resumed.extra, vec_all(v));
    l->model.extra = node->v = v;
    node->world = l->world;
    node->group = l->group;
    node->joins = l->lanes.needs_sync;
    int rc = phased_node_init(node, l->job, &l->x, &l->s, l->progress.exchanges, l->arena);
    if (rc == OK)
        rc = phased_node_start(node);
    if (rc == OK)
        rc = follow_model(node, l);
    phased_node_close(node);
    return rc;
}

int phased_configure(const Paceline__Job *job, struct strategy_traits *traits, struct err *err)
{
    if (job->collective && job->collective->algorithm != PACELINE__COLLECTIVE__ALGORITHM__auto)
        return err_set(err, ERR_UNSUPPORTED,
                       "collective.algorithm: %s has its own reduce and broadcast",
                       job_strategy_name(job));
    traits->is_async = true;
    traits->takes_leases = true;
    traits->driver_part = !phased_rule(job)->settings(job).symmetric;
    traits->joinable = true;
    traits->join_needs_no_model = true;
    traits->round = 1;
    return OK;
}
