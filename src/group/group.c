#include "group/group.h"

#include "base/fault.h"
#include "wire/post.h"

#include <stdlib.h>

struct view_node {
    struct view_node *next;
    struct view view;
};

struct group_timing group_timing_lan(void)
{
    return (struct group_timing){
        .heartbeat = WORLD_SECOND / 4,
        .silence_max = WORLD_SECOND,
        .stall_max = 30 * WORLD_SECOND,
        .piece = 600 * WORLD_SECOND,
    };
}

struct group_timing group_timing_busy(void)
{
    struct group_timing timing = group_timing_lan();
    timing.heartbeat = WORLD_SECOND;
    timing.silence_max = 5 * WORLD_SECOND;
    return timing;
}

static void group_changed(struct group *group)
{
    world_raise(group->world, SIGNAL_GROUP);
}

static void group_end(struct group *group)
{
    atomic_store(&group->over, true);
    group_changed(group);
}

void group_quit(struct group *group, int why)
{
    if (!atomic_exchange(&group->over, true)) {
        log_error(group->log, "this member leaves: %s", status_text(why));
        world_peer_drop(group->world, WORLD_DRIVER);
    }
    group_changed(group);
}

/* Connections follow the membership: all members of the view, and nobody else. */
static int follow_peers(struct group *group, const struct view *old, const struct view *now)
{
    uint32_t self = group->world->self;
    for (size_t i = 0; old && i < old->count; i++)
        if (old->node[i] != self && view_rank(now, old->node[i]) < 0)
            world_peer_drop(group->world, old->node[i]);
    for (size_t i = 0; i < now->count; i++) {
        if (now->node[i] == self || (old && view_rank(old, now->node[i]) >= 0))
            continue;
        int rc = world_peer_add(group->world, now->node[i], now->address[i]);
        if (rc != OK)
            return rc;
    }
    return OK;
}

int group_set_view(struct group *group, const struct view *view)
{
    const struct view *old = group_view(group);
    if (old && (view->number <= old->number || view->incarnation < old->incarnation))
        return OK;
    struct view_node *node = malloc(sizeof *node);
    if (!node)
        return ERR_NOMEM;
    node->view = *view;
    node->next = group->views;
    group->views = node;
    if (view_rank(view, group->world->self) < 0 && group->world->self != WORLD_DRIVER) {
        log_warn(group->log, "fenced: view %u does not hold this worker", view->number);
        group_end(group);
        return OK;
    }
    int rc = follow_peers(group, old, &node->view);
    if (!old)
        atomic_store(&group->first, &node->view);
    /* The new view first, then the abort: whoever is woken by it finds the view that did it. */
    atomic_store(&group->view, &node->view);
    world_abort(group->world, view->number);
    group_changed(group);
    return rc;
}

const struct view *group_view(const struct group *group)
{
    return atomic_load(&group->view);
}

const struct view *group_first_view(const struct group *group)
{
    return atomic_load(&group->first);
}

int group_wait_view(struct group *group, uint32_t number, int64_t deadline)
{
    for (;;) {
        uint64_t seen = world_raised(group->world, SIGNAL_GROUP);
        const struct view *view = group_view(group);
        if (view && view->number > number)
            return OK;
        if (atomic_load(&group->over))
            return ERR_DRIVER;
        struct wait_for change = {.kind = WAIT_SIGNAL, .signal = SIGNAL_GROUP, .seen = seen};
        struct wake wake;
        int rc = world_wait(group->world, &change, 1, deadline, &wake);
        if (rc != OK)
            return rc;
    }
}

bool group_is_leaving(struct group *group)
{
    if ((group->leave && atomic_load(group->leave)) || (group->pause && atomic_load(group->pause)))
        atomic_store(&group->leaving, true);
    return atomic_load(&group->leaving);
}

void group_say_leave(struct group *group)
{
    if (!atomic_load(&group->over))
        wire_post(group->world, WORLD_DRIVER, wire_tag(WIRE_LEAVE, 0, 0, 0), NULL, 0);
}

static int say_node(struct group *group, enum wire_kind kind, uint32_t node)
{
    uint8_t bytes[4];
    bytes_put_le32(bytes, node);
    int rc = wire_post(group->world, WORLD_DRIVER, wire_tag(kind, 0, 0, 0), bytes, sizeof bytes);
    return rc == ERR_PEER ? ERR_DRIVER : rc;
}

static int await_ward(struct group *group, uint32_t node, bool *in)
{
    for (;;) {
        uint64_t seen = world_raised(group->world, SIGNAL_GROUP);
        *in = view_rank(group_view(group), node) >= 0;
        if (*in || atomic_load(&group->ward) != node)
            return OK;
        if (atomic_load(&group->over))
            return ERR_DRIVER;
        const struct wait_for change = {.kind = WAIT_SIGNAL, .signal = SIGNAL_GROUP, .seen = seen};
        struct wake wake;
        int rc = world_wait(group->world, &change, 1, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
    }
}

int group_sponsor(struct group *group, uint32_t node, bool *in)
{
    bool busy = atomic_exchange(&group->busy, false);
    int rc = say_node(group, WIRE_SPONSORED, node);
    if (rc == OK)
        rc = await_ward(group, node, in);
    /* Another may have been named meanwhile. */
    atomic_compare_exchange_strong(&group->ward, &node, ROSTER_NOBODY);
    atomic_store(&group->busy, busy);
    return rc;
}

static int take_view(struct group *group, const struct message *m)
{
    struct view *view = malloc(sizeof *view);
    if (!view)
        return ERR_NOMEM;
    struct cut in = {m->data, m->len, false};
    int rc = view_decode(&in, view);
    if (rc == OK)
        rc = group_set_view(group, view);
    free(view);
    return rc;
}

static void ask_for_model(struct group *group, const struct message *m)
{
    struct cut in = {m->data, m->len, false};
    uint32_t uses = cut_u32(&in);
    if (cut_done(&in))
        atomic_fetch_or(&group->wanted, uses);
    group_changed(group);
}

static void take_ward(struct group *group, const struct message *m)
{
    struct cut in = {m->data, m->len, false};
    uint32_t node = cut_u32(&in);
    bool comes = cut_u8(&in) != 0;
    if (!cut_done(&in))
        return;
    if (comes)
        atomic_store(&group->ward, node);
    else
        atomic_compare_exchange_strong(&group->ward, &node, ROSTER_NOBODY);
    group_changed(group);
}

/* A connection broke. The driver's own: the group is lost. Another member's: the driver cannot see
 * it, and must know, or the two would wait for each other for ever. */
static int lose_peer(struct group *group, uint32_t peer)
{
    const struct view *view = group_view(group);
    if (peer == WORLD_DRIVER)
        return ERR_DRIVER;
    if (!view || view_rank(view, peer) < 0)
        return OK;
    return say_node(group, WIRE_LOST, peer);
}

static void say_refused(const struct group *group, const struct message *m)
{
    struct cut in = {m->data, m->len, false};
    char why[ERR_TEXT_MAX];
    cut_text(&in, why, sizeof why);
    log_error(group->log, "the driver refuses this worker: %s", why);
}

static int hear(struct group *group, const struct wake *wake)
{
    switch (wake->which) {
    case 0: return take_view(group, wake->msg);
    case 1: atomic_store(&group->stop, true); return OK;
    case 2: ask_for_model(group, wake->msg); return OK;
    case 3: atomic_store(&group->bye, true); return ERR_END;
    case 4:
        say_refused(group, wake->msg);
        atomic_store(&group->refused, true);
        return ERR_DRIVER;
    case 5: take_ward(group, wake->msg); return OK;
    case 6:
        atomic_store(&group->parted, true);
        atomic_store(&group->leaving, true);
        group_changed(group);
        return OK;
    default: return wake->up ? OK : lose_peer(group, wake->peer);
    }
}

/* A worker's ear: what the driver says about the group, and who is lost. */
static int listen_task(void *arg)
{
    struct group *group = arg;
    const struct wait_for set[] = {
        wire_from(WORLD_DRIVER, WIRE_VIEW),       wire_from(WORLD_DRIVER, WIRE_STOP),
        wire_from(WORLD_DRIVER, WIRE_WANT_MODEL), wire_from(WORLD_DRIVER, WIRE_BYE),
        wire_from(WORLD_DRIVER, WIRE_REFUSED),    wire_from(WORLD_DRIVER, WIRE_SPONSOR),
        wire_from(WORLD_DRIVER, WIRE_PART),       {.kind = WAIT_PEER},
    };
    for (;;) {
        struct wake wake;
        int rc = world_wait(group->world, set, 8, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
        rc = hear(group, &wake);
        if (wake.which < 7)
            message_unref(wake.msg);
        if (rc != OK) {
            group_end(group);
            return rc;
        }
    }
}

/* A worker's heart: on a task of its own, so that it beats while a step computes. */
static int heart_task(void *arg)
{
    struct group *group = arg;
    int64_t next = world_now(group->world);
    for (;;) {
        uint8_t beat[9];
        (void)group_is_leaving(group);
        bytes_put_le64(beat, atomic_load(&group->progress));
        beat[8] = atomic_load(&group->busy);
        /* One that cannot be sent is a silence, and heard as such. */
        wire_post(group->world, WORLD_DRIVER, wire_tag(WIRE_HEARTBEAT, 0, 0, 0), beat, sizeof beat);
        next += group->timing.heartbeat;
        int rc = world_sleep(group->world, next);
        if (rc != OK)
            return rc;
    }
}

void group_init(struct group *group, struct world *world, const struct logger *log,
                const struct group_timing *timing)
{
    *group = (struct group){.world = world, .log = log, .timing = *timing, .ward = ROSTER_NOBODY};
}

int group_listen(struct group *group)
{
    int rc = world_spawn(group->world, "listener", listen_task, group, &group->listener);
    if (rc == OK)
        rc = world_spawn(group->world, "heart", heart_task, group, &group->heart);
    return rc;
}

void group_release(struct group *group)
{
    world_end_task(group->world, &group->heart);
    world_end_task(group->world, &group->listener);
    while (group->views) {
        struct view_node *next = group->views->next;
        free(group->views);
        group->views = next;
    }
}
