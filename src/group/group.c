#include "group/group.h"

#include "base/fault.h"
#include "group/listener.h"
#include "wire/wire_send.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Its memory ends behind the address of the view's last member, because a long run has thousands of
 * views. */
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

void group_changed(struct group *group)
{
    world_raise(group->world, SIGNAL_GROUP);
}

void group_end(struct group *group)
{
    atomic_store(&group->end.over, true);
    group_changed(group);
}

void group_quit(struct group *group, int why)
{
    if (!atomic_exchange(&group->end.over, true)) {
        log_error(group->log, "this member leaves: %s", status_text(why));
        world_peer_drop(group->world, WORLD_DRIVER);
    }
    group_changed(group);
}

/* Connect to all members of the view and close connections to former members. */
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

/* A copy of `view`; NULL: no memory. */
static struct view_node *copy_view(const struct view *view)
{
    size_t bytes = offsetof(struct view, address) + view->count * sizeof view->address[0];
    struct view_node *node = malloc(offsetof(struct view_node, view) + bytes);
    if (node)
        memcpy(&node->view, view, bytes);
    return node;
}

/* Adopt a view. Views of a replaced driver are ignored, so that a late message cannot undo a newer
 * membership. */
int group_set_view(struct group *group, const struct view *view)
{
    const struct view *old = group_view(group);
    if (old && (view->number <= old->number || view->incarnation < old->incarnation))
        return OK; /* a repeated view, or one of an older driver */
    struct view_node *node = copy_view(view);
    if (!node)
        return ERR_NOMEM;
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
    /* The new view is stored before the abort: a task that the abort wakes finds the view that
     * caused it. */
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

/* The end of the group is read first, so that no change before it is missed. */
int group_wait(struct group *group, uint32_t signal, bool (*holds)(void *arg), void *arg,
               int64_t deadline)
{
    struct world *world = group->world;
    for (;;) {
        const struct wait_for set[] = {
            wait_signal(world, SIGNAL_GROUP),
            wait_signal(world, signal),
        };
        bool over = atomic_load(&group->end.over);
        if (holds(arg))
            return OK;
        if (over)
            return ERR_DRIVER;
        struct wake wake;
        int rc = world_wait(world, set, 2, deadline, &wake);
        if (rc != OK)
            return rc;
    }
}

int group_wait_view(struct group *group, uint32_t number, int64_t deadline)
{
    for (;;) {
        const struct wait_for change = wait_signal(group->world, SIGNAL_GROUP);
        const struct view *view = group_view(group);
        if (view && view->number > number)
            return OK;
        if (atomic_load(&group->end.over))
            return ERR_DRIVER;
        struct wake wake;
        int rc = world_wait(group->world, &change, 1, deadline, &wake);
        if (rc != OK)
            return rc;
    }
}

/* Older views hang on newer ones, and none changes once it is current. */
static const struct view_node *newest_node(const struct group *group)
{
    const struct view *view = group_view(group);
    return view ? (const struct view_node *)((const char *)view - offsetof(struct view_node, view))
                : NULL;
}

uint32_t group_seat(const struct group *group, uint32_t node)
{
    for (const struct view_node *at = newest_node(group); at; at = at->next)
        if (view_seat(&at->view, node) != VIEW_NO_SEAT)
            return view_seat(&at->view, node);
    return VIEW_NO_SEAT;
}

bool group_is_leaf(const struct group *group)
{
    return members_has(&group_view(group)->leaves, group->world->self);
}

bool group_was_member(const struct group *group, uint32_t node)
{
    const struct view_node *at = newest_node(group);
    while (at && view_rank(&at->view, node) < 0)
        at = at->next;
    return at != NULL;
}

bool group_was_leaf(const struct group *group, uint32_t after)
{
    for (const struct view_node *node = newest_node(group); node && node->view.number > after;
         node = node->next)
        if (members_has(&node->view.leaves, group->world->self))
            return true;
    return false;
}

void group_link_received(struct group *group, uint32_t node, size_t bytes, int64_t ns)
{
    struct group_link *link = &group->link;
    if (node == WORLD_DRIVER)
        return; /* all members share its link */
    if (atomic_exchange(&link->from, node) != node) {
        atomic_store(&link->bytes, 0);
        atomic_store(&link->ns, 0);
    }
    atomic_fetch_add(&link->bytes, bytes);
    atomic_fetch_add(&link->ns, (uint64_t)(ns > 0 ? ns : 0));
}

static int send_driver(struct group *group, enum wire_kind kind, const void *data, size_t len)
{
    int rc = wire_send(group->world, WORLD_DRIVER, wire_tag(kind, 0, 0, 0), data, len);
    return rc == ERR_PEER ? OK : rc;
}

int group_check_links(struct group *group, int64_t grace)
{
    uint8_t bytes[12];
    int64_t least = group->timing.heartbeat / 10;
    bytes_put_le32(bytes, group_view(group)->number);
    bytes_put_le64(bytes + 4, (uint64_t)(grace > least ? grace : least));
    return send_driver(group, WIRE_LINK_CHECK, bytes, sizeof bytes);
}

int group_keeps_pace(struct group *group)
{
    return send_driver(group, WIRE_LEAF_READY, NULL, 0);
}

int group_joined(struct group *group, const struct view *view)
{
    uint8_t bytes[4];
    atomic_store(&group->driver.joined_in, view->number);
    bytes_put_le32(bytes, view->number);
    return send_driver(group, WIRE_JOIN_COMPLETE, bytes, sizeof bytes);
}

/* The number of the driver's check, then the link. */
int group_report_link(struct group *group, uint32_t number)
{
    uint8_t bytes[32];
    struct group_link *link = &group->link;
    int64_t now = world_now(group->world);
    bytes_put_le32(bytes, number);
    bytes_put_le32(bytes + 4, atomic_load(&link->from));
    bytes_put_le64(bytes + 8, atomic_exchange(&link->bytes, 0));
    bytes_put_le64(bytes + 16, atomic_exchange(&link->ns, 0));
    bytes_put_le64(bytes + 24, (uint64_t)(now - link->since));
    link->since = now;
    return send_driver(group, WIRE_LINK_REPORT, bytes, sizeof bytes);
}

bool group_is_leaving(struct group *group)
{
    if ((group->leave.flag && atomic_load(group->leave.flag)) ||
        (group->leave.pause && atomic_load(group->leave.pause)))
        atomic_store(&group->leave.begun, true);
    return atomic_load(&group->leave.begun);
}

/* Publish the report word by word under a version that is odd while it is written: the listener may
 * read it at any time, without a lock. */
void group_set_recovery_report(struct group *group, const uint64_t *words, size_t n)
{
    PL_ASSERT(n <= GROUP_REPORT);
    uint64_t noted = atomic_load(&group->driver.report_version);
    atomic_store(&group->driver.report_version, noted + 1);
    for (size_t i = 0; i < n; i++)
        atomic_store(&group->driver.report[i], words[i]);
    atomic_store(&group->driver.report_version, noted + 2);
}

bool group_read_report(const struct group *group, uint64_t report[GROUP_REPORT])
{
    for (;;) {
        uint64_t noted = atomic_load(&group->driver.report_version);
        if (noted == 0)
            return false;
        for (size_t i = 0; i < GROUP_REPORT; i++)
            report[i] = atomic_load(&group->driver.report[i]);
        if (noted % 2 == 0 && atomic_load(&group->driver.report_version) == noted)
            return true;
    }
}

void group_send_leave(struct group *group, bool holds_model)
{
    uint8_t byte = holds_model;
    if (!atomic_load(&group->end.over))
        wire_send(group->world, WORLD_DRIVER, wire_tag(WIRE_LEAVE, 0, 0, 0), &byte, 1);
}

int group_send_node(struct group *group, enum wire_kind kind, uint32_t node)
{
    uint8_t bytes[4];
    bytes_put_le32(bytes, node);
    int rc = wire_send(group->world, WORLD_DRIVER, wire_tag(kind, 0, 0, 0), bytes, sizeof bytes);
    return rc == ERR_PEER ? ERR_DRIVER : rc;
}

/* The donor's state must not change until the joiner is in the view or the driver has cancelled the
 * join. */
static int await_joiner(struct group *group, uint32_t node, bool *in)
{
    for (;;) {
        const struct wait_for change = wait_signal(group->world, SIGNAL_GROUP);
        *in = view_rank(group_view(group), node) >= 0;
        if (*in || atomic_load(&group->joiner) != node)
            return OK;
        if (atomic_load(&group->end.over))
            return ERR_DRIVER;
        struct wake wake;
        int rc = world_wait(group->world, &change, 1, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
    }
}

int group_admit_joiner(struct group *group, uint32_t node, bool *in)
{
    bool busy = atomic_exchange(&group->work.busy, false);
    int rc = group_send_node(group, WIRE_DONOR_READY, node);
    *in = false;
    if (rc == OK)
        rc = await_joiner(group, node, in);
    else if (rc == ERR_DRIVER && !atomic_load(&group->end.over))
        rc = OK; /* a recovered driver will choose a donor again */
    /* The driver may have named another joiner meanwhile: that one stays. */
    atomic_compare_exchange_strong(&group->joiner, &node, ROSTER_NO_NODE);
    atomic_store(&group->work.busy, busy);
    return rc;
}

/* Sends heartbeats from a task of its own, so that they continue while a step computes. */
static int beat_task(void *arg)
{
    struct group *group = arg;
    int64_t next = world_now(group->world);
    for (;;) {
        uint8_t beat[17];
        uint64_t bits;
        double loss = atomic_load(&group->work.loss);
        (void)group_is_leaving(group);
        bytes_put_le64(beat, atomic_load(&group->work.progress));
        beat[8] = (atomic_load(&group->work.busy) ? BEAT_BUSY : 0) |
                  (atomic_load(&group->work.paused) ? BEAT_PAUSED : 0);
        memcpy(&bits, &loss, sizeof bits);
        bytes_put_le64(beat + 9, bits);
        /* A heartbeat that cannot be sent is missing, which is what the driver must notice. */
        wire_send(group->world, WORLD_DRIVER, wire_tag(WIRE_HEARTBEAT, 0, 0, 0), beat, sizeof beat);
        next += group->timing.heartbeat;
        int rc = world_sleep(group->world, next);
        if (rc != OK)
            return rc;
    }
}

void group_init(struct group *group, struct world *world, const struct logger *log,
                const struct group_timing *timing)
{
    *group =
        (struct group){.world = world, .log = log, .timing = *timing, .joiner = ROSTER_NO_NODE};
    group->link.from = ROSTER_NO_NODE;
    wire_guard_start(&group->guard, world, log);
}

int group_listen(struct group *group)
{
    int rc = world_spawn(group->world, "listener", group_listener, group, &group->listener);
    if (rc == OK)
        rc = world_spawn(group->world, "heart", beat_task, group, &group->heartbeat_task);
    return rc;
}

void group_release(struct group *group)
{
    world_end_task(group->world, &group->heartbeat_task);
    world_end_task(group->world, &group->listener);
    wire_guard_stop(&group->guard);
    while (group->views) {
        struct view_node *next = group->views->next;
        free(group->views);
        group->views = next;
    }
}
