/* Receives the driver's messages, and looks for a driver when there is none. */
#include "group/listener.h"

#include "base/fault.h"
#include "wire/wire_send.h"

#include <stdlib.h>
#include <string.h>

#define CALL_FIRST \
    (WORLD_SECOND / 50) /* ns until the first call to a lost driver; then twice as long each time */
#define CALL_MAX (WORLD_SECOND / 2)

/* How long a member that leaves for good calls a driver that is lost. */
#define LEAVE_MAX (WORLD_SECOND / 2)

/* A member takes its driver for dead after four times the silence that a member is allowed. A
 * driver that only did not run for a while drops members that reconnect elsewhere, so members wait
 * longer. */
enum { LOOKS_PER_SILENCE = 8, SILENCES = 4 };

/* State of the connection to the driver. */
enum standing {
    RECEIVED, /* connected, and the handshake is done */
    CALLED,   /* lost: the listener calls its addresses */
    REPLIED   /* connected again; its welcome has not arrived */
};

struct listener {
    struct group *group;
    struct driver_liveness liveness;
    enum standing standing;
    int64_t lost_at, call_at, pause;
    size_t calls; /* since the driver was lost */
};

bool driver_liveness_expired(struct driver_liveness *liveness, int64_t now, int64_t period,
                             int64_t silence_max)
{
    int64_t late = now - liveness->looked - period;
    liveness->looked = now;
    if (late > period)
        liveness->last_beat += late;
    return now - liveness->last_beat > silence_max;
}

int group_return_decode(const void *data, size_t len, struct group_return *out)
{
    struct byte_reader in = {data, len, false};
    out->view = read_u32(&in);
    out->incarnation = read_u32(&in);
    members_decode(&in, &out->members);
    members_decode(&in, &out->elders);
    memset(out->seated, 0, sizeof out->seated);
    MEMBERS_EACH (node, &out->members) {
        out->seated[node] = read_u32(&in);
        if (out->seated[node] > VIEW_MEMBERS_MAX)
            return ERR_PROTOCOL;
    }
    out->hello_len = read_u32(&in);
    out->hello = byte_reader_take(&in, out->hello_len);
    for (size_t i = 0; i < GROUP_REPORT; i++)
        out->report[i] = read_u64(&in);
    out->round = (int64_t)read_u32(&in) * (WORLD_SECOND / 1000);
    return byte_reader_done(&in) ? OK : ERR_PROTOCOL;
}

/* ---- a driver that is gone ---- */

/* May this member wait for another driver? Not without a view or before its first commit point, as
 * it has nothing to continue with; nor after it left, as the driver disconnects it then. */
static bool may_wait(const struct group *group)
{
    return group->driver.retry > 0 && group->driver.handshake.handshake && group_view(group) &&
           atomic_load(&group->driver.report_version) > 0 && !atomic_load(&group->leave.done) &&
           !atomic_load(&group->end.run_ended) && !atomic_load(&group->end.over);
}

/* Begin to call a lost driver. ERR_DRIVER: this member may not wait for one. */
static int lose_driver(struct listener *l, const char *outcome)
{
    struct group *group = l->group;
    int64_t now = world_now(group->world);
    if (!may_wait(group))
        return ERR_DRIVER;
    if (l->standing == RECEIVED) {
        log_warn(group->log,
                 "the driver %s: this worker resumes without it, and calls it for %.0f s", outcome,
                 world_seconds(group->driver.retry));
        l->lost_at = now;
        l->call_at = now + CALL_FIRST;
        l->pause = 2 * CALL_FIRST;
        l->calls = 0;
    } else if (l->standing == REPLIED) { /* it disconnected before its welcome: call again */
        l->call_at = now + l->pause;
    }
    l->standing = CALLED;
    atomic_store(&group->driver.missing, true);
    atomic_store(&group->joiner, ROSTER_NO_NODE);
    group_changed(group);
    return OK;
}

static size_t count_addresses(const struct group *group)
{
    size_t n = 0;
    while (group->driver.addresses && group->driver.addresses[n])
        n++;
    return n;
}

/* The next address to call, in turns; NULL: the one that the driver had. */
static const char *next_address(struct listener *l)
{
    size_t n = count_addresses(l->group);
    return n > 0 ? l->group->driver.addresses[l->calls++ % n] : NULL;
}

/* ns in which it calls all of its addresses once: a pause after each, and at one of them it may
 * wait for a welcome that does not come. */
static int64_t longest_round(const struct group *group)
{
    size_t n = count_addresses(group);
    return n < 2 ? CALL_MAX : (int64_t)n * CALL_MAX + group->timing.silence_max;
}

/* How long this member waits for a driver. */
static int64_t find_patience(const struct group *group)
{
    const atomic_int *leave = group->leave.flag;
    bool for_good = leave && atomic_load(leave) >= LEAVE_FOR_GOOD;
    return for_good && group->driver.retry > LEAVE_MAX ? LEAVE_MAX : group->driver.retry;
}

/* Call once more, with longer and longer pauses. ERR_DRIVER: its time has passed. */
static int call_driver(struct listener *l)
{
    struct group *group = l->group;
    int64_t now = world_now(group->world);
    if (now - l->lost_at >= find_patience(group)) {
        log_error(group->log, "no driver has returned in %.1f s", world_seconds(now - l->lost_at));
        atomic_store(&group->end.given_up, true);
        return ERR_DRIVER;
    }
    const char *address = next_address(l);
    bool several = address && group->driver.addresses[1];
    /* Close a connection whose driver sent no welcome, or an attempt at one of several addresses.
     * */
    if (l->standing == REPLIED || several)
        world_peer_drop(group->world, WORLD_DRIVER);
    l->standing = CALLED;
    l->call_at = now + l->pause;
    l->pause = 2 * l->pause < CALL_MAX ? 2 * l->pause : CALL_MAX;
    int rc = world_peer_add(group->world, WORLD_DRIVER, address);
    if (rc == ERR_FULL) { /* the previous connection is still closing: the same address, soon */
        l->calls -= address != NULL;
        l->call_at = now + CALL_FIRST;
    }
    return rc == ERR_NOMEM || rc == ERR_FULL ? OK : rc; /* the next call may succeed */
}

/* Does this node know that the member has the state of its slice, where it has a seat? */
static bool has_state(const struct group *group, const struct view *view, uint32_t node)
{
    bool joined =
        node == group->world->self && atomic_load(&group->driver.joined_in) >= view->number;
    return joined || !members_has(&view->fresh, node);
}

static int send_return(struct group *group, const struct buf *hello)
{
    const struct view *view = group_view(group);
    /* A leaf is in no newest view that a recovered driver accepts: it must rejoin. */
    const struct members members = view_participants(view);
    uint64_t report[GROUP_REPORT];
    struct buf bytes = {0};
    buf_put_u32(&bytes, view->number);
    buf_put_u32(&bytes, view->incarnation);
    members_encode(&members, &bytes);
    members_encode(&view->elders, &bytes);
    MEMBERS_EACH (node, &members)
        buf_put_u32(&bytes, has_state(group, view, node) ? view_seat(view, node) + 1 : 0);
    buf_put_u32(&bytes, (uint32_t)hello->len);
    buf_put(&bytes, hello->data, hello->len);
    bool noted = group_read_report(group, report);
    PL_ASSERT(noted);
    for (size_t i = 0; i < GROUP_REPORT; i++)
        buf_put_u64(&bytes, report[i]);
    buf_put_u32(&bytes, (uint32_t)(longest_round(group) / (WORLD_SECOND / 1000)));
    int rc = wire_send_buf(group->world, WORLD_DRIVER, WIRE_RETURN, 0, &bytes);
    buf_release(&bytes);
    return rc;
}

/* The connection to another node broke. If that is a member, the driver, which cannot see that,
 * must know, or the two would wait for each other for ever. */
static int lose_peer(struct group *group, uint32_t peer)
{
    const struct view *view = group_view(group);
    if (peer < VIEW_MEMBERS_MAX)
        members_add(&group->broken, peer);
    if (!view || view_rank(view, peer) < 0)
        return OK;
    int rc = group_send_node(group, WIRE_LOST, peer);
    return rc == ERR_DRIVER ? OK : rc; /* the loss of the driver has its own event */
}

/* A welcome may be read before the connection events that led to it. Process those: the last one
 * counts. ERR_PEER: the driver that sent the welcome is gone again. */
static int drain_old_messages(struct group *group)
{
    const struct wait_for news = {.kind = WAIT_PEER};
    bool up = true;
    struct wake wake;
    int rc;
    while ((rc = world_wait(group->world, &news, 1, world_now(group->world), &wake)) == OK) {
        if (wake.peer == WORLD_DRIVER)
            up = wake.up;
        else if (!wake.up && (rc = lose_peer(group, wake.peer)) != OK)
            return rc;
    }
    return rc != ERR_TIMEOUT ? rc : up ? OK : ERR_PEER;
}

/* A driver has sent its welcome. A newer driver gets the recovery report. The view's own driver has
 * dropped this worker, so there is no way back; an older driver was replaced, so the worker leaves
 * it and calls on (R3). */
static int shake_hands(struct listener *l, const struct message *welcome)
{
    struct group *group = l->group;
    uint32_t incarnation = 0, own = group_view(group)->incarnation;
    struct buf hello = {0};
    int rc = drain_old_messages(group);
    if (rc == OK)
        rc = group->driver.handshake.handshake(group->driver.handshake.user, welcome, &incarnation,
                                               &hello);
    if (rc == OK && incarnation > own)
        rc = send_return(group, &hello);
    else if (rc == OK && incarnation == own)
        rc = ERR_DRIVER;
    buf_release(&hello);
    if (rc == ERR_PEER || (rc == OK && incarnation < own)) {
        world_peer_drop(group->world, WORLD_DRIVER);
        l->standing = CALLED;
        return OK;
    }
    if (rc != OK)
        return rc == ERR_CANCELLED ? rc : ERR_DRIVER;
    log_info(group->log, "the driver is back after %.2f s, as number %u",
             world_seconds(world_now(group->world) - l->lost_at), incarnation);
    l->standing = RECEIVED;
    l->liveness = (struct driver_liveness){world_now(group->world), world_now(group->world)};
    atomic_store(&group->driver.missing, false);
    atomic_fetch_add(&group->driver.reconnects, 1);
    group_changed(group);
    return OK;
}

/* ---- messages ---- */

/* Report links that broke before the other node was a member, while there was no driver, or that
 * only an earlier driver knows of: two members of the new view that cannot reach each other would
 * wait for ever. */
static int report_broken_links(struct group *group, const struct view *old)
{
    const struct view *view = group_view(group);
    bool all = !old || view->incarnation > old->incarnation;
    int rc = OK;
    for (size_t i = 0; rc == OK && i < view->count; i++)
        if (members_has(&group->broken, view->node[i]) &&
            (all || view_rank(old, view->node[i]) < 0))
            rc = group_send_node(group, WIRE_LOST, view->node[i]);
    return rc == ERR_DRIVER ? OK : rc;
}

static int take_view(struct group *group, const struct message *m)
{
    struct view *view = malloc(sizeof *view);
    if (!view)
        return ERR_NOMEM;
    const struct view *old = group_view(group);
    struct byte_reader in = {m->data, m->len, false};
    int rc = view_decode(&in, view);
    if (rc == OK)
        rc = group_set_view(group, view);
    free(view);
    return rc == OK && group_view(group) != old ? report_broken_links(group, old) : rc;
}

static void drop_broken(struct group *group, const struct message *m)
{
    wire_guard_count(&group->guard, m->from, wire_kind_of(m->tag), "it cannot be read");
}

static void on_model_request(struct group *group, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    uint32_t uses = read_u32(&in);
    if (!byte_reader_done(&in)) {
        drop_broken(group, m);
        return;
    }
    atomic_fetch_or(&group->model_requests, uses);
    group_changed(group);
}

static void take_joiner(struct group *group, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    uint32_t node = read_u32(&in);
    bool accepts = read_u8(&in) != 0;
    if (!byte_reader_done(&in)) {
        drop_broken(group, m);
        return;
    }
    if (accepts)
        atomic_store(&group->joiner, node);
    else
        atomic_compare_exchange_strong(&group->joiner, &node, ROSTER_NO_NODE);
    group_changed(group);
}

static void take_refusal(struct group *group, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    read_text(&in, group->end.refusal, sizeof group->end.refusal);
    atomic_store(&group->end.refused, true);
}

/* The run is over. The message may carry the reason, such as "epochs". */
static void take_bye(struct group *group, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    char reason[sizeof group->end.reason] = "";
    if (m->len > 0)
        read_text(&in, reason, sizeof reason);
    for (char *at = reason; *at; at++)
        *at = (char)(*at >= 'a' && *at <= 'z' ? *at : '?');
    if (!in.failed)
        memcpy(group->end.reason, reason, sizeof reason);
    atomic_store(&group->end.run_ended, true);
}

static void take_beat(struct listener *l, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    uint64_t words[GROUP_TOTALS];
    for (int i = 0; i < GROUP_TOTALS; i++)
        words[i] = read_u64(&in);
    for (int i = 0; byte_reader_done(&in) && i < GROUP_TOTALS; i++)
        atomic_store(&l->group->driver.departed_totals[i], words[i]);
    l->liveness.last_beat = world_now(l->group->world);
}

static int on_link_check(struct group *group, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    uint32_t number = read_u32(&in);
    if (byte_reader_done(&in))
        return group_report_link(group, number);
    drop_broken(group, m);
    return OK;
}

static int take_change(struct listener *l, const struct wake *wake)
{
    if (wake->up)
        wire_guard_forget(&l->group->guard, wake->peer);
    if (wake->peer != WORLD_DRIVER)
        return wake->up ? OK : lose_peer(l->group, wake->peer);
    if (!wake->up)
        return lose_driver(l, "is gone");
    if (l->standing == CALLED) {
        l->standing = REPLIED;
        l->call_at = world_now(l->group->world) + l->group->timing.silence_max;
    }
    return OK;
}

static int on_message(struct listener *l, const struct wake *wake)
{
    struct group *group = l->group;
    switch (wake->which) {
    case 0: return take_view(group, wake->msg);
    case 1: atomic_store(&group->stop, true); return OK;
    case 2: on_model_request(group, wake->msg); return OK;
    case 3: take_bye(group, wake->msg); return ERR_END;
    case 4: take_refusal(group, wake->msg); return ERR_DRIVER;
    case 5: take_joiner(group, wake->msg); return OK;
    case 6: take_beat(l, wake->msg); return OK;
    case 7: return l->standing == RECEIVED ? OK : shake_hands(l, wake->msg);
    case 8:
        log_warn(group->log, "the driver no longer accepts this worker's state");
        return ERR_DRIVER;
    case 9:
        atomic_store(&group->leave.by_driver, true);
        atomic_store(&group->leave.begun, true);
        group_changed(group);
        return OK;
    case 10: return on_link_check(group, wake->msg);
    default: return take_change(l, wake);
    }
}

/* When the listener must act without a message: the next call, or the next check of liveness. The
 * check begins with the listener: a driver may hang before its first beat. */
static int64_t look_at(const struct listener *l)
{
    if (l->standing != RECEIVED)
        return l->call_at;
    return l->liveness.looked + l->group->timing.silence_max / LOOKS_PER_SILENCE;
}

static int look_up(struct listener *l)
{
    struct group *group = l->group;
    int64_t now = world_now(group->world);
    if (now < look_at(l))
        return OK;
    if (l->standing != RECEIVED)
        return call_driver(l);
    int64_t silence_max = group->timing.silence_max;
    if (!driver_liveness_expired(&l->liveness, now, silence_max / LOOKS_PER_SILENCE,
                                 SILENCES * silence_max))
        return OK;
    world_peer_drop(group->world, WORLD_DRIVER);
    return lose_driver(l, "is silent");
}

static int listen_once(struct listener *l)
{
    enum { MESSAGES = 11 };
    const struct wait_for set[] = {
        wire_from(WORLD_DRIVER, WIRE_VIEW),       wire_from(WORLD_DRIVER, WIRE_STOP),
        wire_from(WORLD_DRIVER, WIRE_WANT_MODEL), wire_from(WORLD_DRIVER, WIRE_BYE),
        wire_from(WORLD_DRIVER, WIRE_REFUSED),    wire_from(WORLD_DRIVER, WIRE_ADMIT_JOINER),
        wire_from(WORLD_DRIVER, WIRE_BEAT),       wire_from(WORLD_DRIVER, WIRE_WELCOME),
        wire_from(WORLD_DRIVER, WIRE_REJOIN),     wire_from(WORLD_DRIVER, WIRE_PART),
        wire_from(WORLD_DRIVER, WIRE_LINK_CHECK), {.kind = WAIT_PEER},
    };
    struct wake wake;
    int rc = world_wait(l->group->world, set, MESSAGES + 1, look_at(l), &wake);
    if (rc == ERR_TIMEOUT)
        return look_up(l);
    if (rc != OK)
        return rc;
    rc = on_message(l, &wake);
    if (wake.which < MESSAGES)
        message_unref(wake.msg);
    return rc == OK ? look_up(l) : rc;
}

int group_listener(void *arg)
{
    struct group *group = arg;
    int64_t now = world_now(group->world);
    struct listener l = {.group = group, .liveness = {now, now}};
    for (;;) {
        int rc = listen_once(&l);
        if (rc == OK)
            continue;
        if (rc != ERR_CANCELLED)
            group_end(group);
        return rc;
    }
}
