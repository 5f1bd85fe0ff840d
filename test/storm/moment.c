/* The activity of a node at this moment, from its state. */
#include "storm.h"

const struct roster_member *moment_member(const struct storm *s, uint32_t node)
{
    const struct roster *roster = &s->driver->server.roster;
    for (size_t i = 0; i < roster->count; i++)
        if (roster->member[i].node == node)
            return &roster->member[i];
    return NULL;
}

bool moment_run_ends(const struct storm *s)
{
    const struct driver *d = s->driver;
    return d->requests.final_of != WORLD_ANY || atomic_load(&d->ending.handing_over) ||
           !members_empty(&d->membership.done);
}

bool moment_alive(const struct storm *s, uint32_t node)
{
    if (node == NODES_MAX)
        return s->driver && !s->driver_dead;
    const struct storm_node *n = &s->node[node];
    return n->ran && !n->dead && !n->ended && n->worker;
}

static enum moment lanes_moment(const struct storm_node *node)
{
    static const enum moment of[] = {
        [EXCHANGE_IDLE] = MOMENT_TRAINS,      [EXCHANGE_COLLECTING] = MOMENT_GATHERS,
        [EXCHANGE_REDUCING] = MOMENT_REDUCES, [EXCHANGE_REPORTING] = MOMENT_REPORTS,
        [EXCHANGE_ADOPTING] = MOMENT_ADOPTS,
    };
    enum exchange_stage furthest = EXCHANGE_IDLE;
    for (int i = 0; i < LANES_WATCHED; i++)
        if (node->lane[i].e && node->lane[i].e->stage > furthest)
            furthest = node->lane[i].e->stage;
    return of[furthest];
}

static enum moment worker_moment(const struct storm *s, uint32_t node)
{
    const struct worker *w = s->node[node].worker;
    const struct group *group = &w->group;
    const struct roster_member *m = moment_member(s, node);
    if (!group->world || !group_view(group) || !m || m->state == MEMBER_WAITS)
        return MOMENT_WAITS;
    if (atomic_load(&group->end.over) || !roster_is_in(m))
        return MOMENTS;
    if (m->state == MEMBER_JOINING)
        return MOMENT_JOIN_PENDING;
    if (w->leave.left || atomic_load(&group->leave.begun))
        return MOMENT_LEAVES;
    if (moment_run_ends(s))
        return MOMENT_HANDS_OVER;
    if (atomic_load(&group->joiner) != ROSTER_NO_NODE)
        return MOMENT_DONATES;
    enum moment lanes = lanes_moment(&s->node[node]);
    /* Servers are waited for without a lane. */
    return lanes == MOMENT_TRAINS && !atomic_load(&group->work.busy) ? MOMENT_GATHERS : lanes;
}

enum moment moment_of_all(const struct storm *s)
{
    const struct driver *d = s->driver;
    if (s->disk.writing)
        return MOMENT_SAVES;
    if (!d->group.world || !group_view(&d->group))
        return MOMENT_FORMS;
    return MOMENTS;
}

enum moment moment_of(const struct storm *s, uint32_t node)
{
    if (!s->driver || s->driver_dead || !moment_alive(s, node))
        return MOMENTS;
    enum moment all = moment_of_all(s);
    if (all != MOMENTS)
        return all;
    if (node < NODES_MAX)
        return worker_moment(s, node);
    return moment_run_ends(s) ? MOMENT_HANDS_OVER : lanes_moment(&s->node[NODES_MAX]);
}
