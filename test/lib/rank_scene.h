/* Ranks in a simulated cluster that play one scene together, for tests of collectives: only a group
 * with a view. No rank leaves before all have finished. */
#ifndef PL_LIB_RANK_SCENE_H
#define PL_LIB_RANK_SCENE_H

#include "coll/coll.h"
#include "group/group.h"
#include "schedule_cluster.h"
#include "sim_cluster.h"
#include "wire/wire_send.h"

struct scene {
    uint32_t ranks;
    int (*play)(struct scene *scene, struct group *group, const struct ranks *ranks);
    void *arg;
    const char *cluster; /* NULL: equal nodes of a LAN */
    uint64_t seed;
    uint32_t kill_node; /* at its kill_send-th message; 0: never */
    uint64_t kill_send;
    /* How it went: */
    int rc[RANKS_MAX];        /* of play */
    int64_t ended[RANKS_MAX]; /* when it returned */
    uint64_t sent[RANKS_MAX];
};

/* View `number`: all ranks of the scene except one; WORLD_ANY: all. */
static inline int scene_view(const struct scene *scene, struct group *group, uint32_t number,
                             uint32_t without)
{
    struct view *view = calloc(1, sizeof *view);
    if (!view)
        return ERR_NOMEM;
    view->number = number;
    for (uint32_t i = 0; i < scene->ranks; i++)
        if (i != without)
            view->node[view->count++] = i;
    int rc = group_set_view(group, view);
    free(view);
    return rc;
}

/* The ranks of a view: in the order of nodes. */
static inline void scene_rank(const struct view *view, uint32_t self, struct ranks *ranks)
{
    ranks->count = view->count;
    ranks->me = (size_t)view_rank(view, self);
    memcpy(ranks->node, view->node, view->count * sizeof *view->node);
}

static int scene_rank_main(struct scene *scene, struct world *w)
{
    static const struct logger silent;
    const struct wait_for bye = wire_from(WORLD_DRIVER, WIRE_BYE);
    struct group_timing timing = group_timing_lan();
    struct group group;
    struct ranks ranks;
    struct wake wake;
    group_init(&group, w, &silent, &timing);
    int rc = scene_view(scene, &group, 1, WORLD_ANY);
    if (rc == OK) {
        scene_rank(group_view(&group), w->self, &ranks);
        rc = scene->play(scene, &group, &ranks);
        scene->ended[w->self] = world_now(w);
    }
    scene->rc[w->self] = rc;
    wire_send(w, WORLD_DRIVER, wire_tag(WIRE_DONE, 0, 0, 0), NULL, 0);
    if (world_wait(w, &bye, 1, WORLD_FOREVER, &wake) == OK)
        message_unref(wake.msg);
    group_release(&group);
    return rc;
}

/* Until each rank has played or died. */
static int scene_driver_main(const struct scene *scene, struct world *w)
{
    const struct wait_for set[] = {wire_from(WORLD_ANY, WIRE_DONE), {.kind = WAIT_PEER}};
    int rc = world_want_nodes(w, scene->ranks);
    for (uint32_t over = 0; rc == OK && over < scene->ranks;) {
        struct wake wake;
        rc = world_wait(w, set, 2, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
        if (wake.which == 0)
            message_unref(wake.msg);
        over += wake.which == 0 || !wake.up;
    }
    for (uint32_t i = 0; i < scene->ranks; i++)
        wire_send(w, i, wire_tag(WIRE_BYE, 0, 0, 0), NULL, 0);
    return rc == OK ? world_sleep(w, world_now(w) + WORLD_SECOND) : rc;
}

static int scene_node_main(void *arg, struct world *w)
{
    struct scene *scene = arg;
    return w->self == WORLD_DRIVER ? scene_driver_main(scene, w) : scene_rank_main(scene, w);
}

static void run_scene(struct scene *scene)
{
    const char *text = scene->cluster ? scene->cluster : "node { count: 17 }";
    const struct sim_options options = {
        .workers = scene->ranks,
        .seed = scene->seed + 1,
        .node_main = scene_node_main,
        .arg = scene,
        .kill_node = scene->kill_node,
        .kill_send = scene->kill_send,
    };
    struct sim_outcome end = sim_cluster_run(text, options, 1000 * WORLD_SECOND, scene->sent);
    if (end.rc != OK)
        fail_msg("the scene ends with %d at %.3f s: %u ranks, %u killed at message %u", end.rc,
                 world_seconds(end.end), scene->ranks, scene->kill_node,
                 (unsigned)scene->kill_send);
}

#endif
