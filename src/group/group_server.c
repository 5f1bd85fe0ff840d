#include "group/group_server.h"

#include "group/roster_internal.h"

#include "wire/wire_send.h"

enum { TICKS_PER_SILENCE = 16 };

/* Send the view to every member. One that cannot be reached is reported by another event. */
static int send_view(struct server *s)
{
    const struct view *view = &s->roster.view;
    if (s->hooks.formed)
        s->hooks.formed(s->hooks.user, view);
    int rc = group_set_view(s->group, view);
    struct buf bytes = {0};
    view_encode(view, &bytes);
    for (size_t i = 0; rc == OK && i < view->count; i++) {
        int sent = wire_send_buf(s->group->world, view->node[i], WIRE_VIEW, 0, &bytes);
        rc = sent == ERR_NOMEM ? sent : OK;
    }
    buf_release(&bytes);
    return rc;
}

/* Send the decision on a lane to all participants. All get the same one, so all adopt the same
 * result (E1). */
static int send_lane_go(struct server *s, const struct lane_go *go)
{
    const struct view *view = &s->roster.view;
    struct buf bytes = {0};
    lane_go_encode(go, &bytes);
    int rc = OK;
    for (size_t i = 0; rc == OK && i < view->count; i++) {
        if (members_has(&view->leaves, view->node[i]))
            continue;
        int sent = wire_send_buf(s->group->world, view->node[i], WIRE_LANE_GO, go->lane, &bytes);
        rc = sent == ERR_NOMEM ? sent : OK;
    }
    if (rc == OK && s->roster.options.driver_takes_part)
        rc = wire_send_buf(s->group->world, WORLD_DRIVER, WIRE_LANE_GO, go->lane, &bytes);
    buf_release(&bytes);
    return rc;
}

static int send_admit_joiner(struct server *s, const struct roster_order *o)
{
    struct buf bytes = {0};
    buf_put_u32(&bytes, o->other);
    buf_put_u8(&bytes, o->kind == ORDER_ADMIT_JOINER);
    int rc = wire_send_buf(s->group->world, o->node, WIRE_ADMIT_JOINER, 0, &bytes);
    buf_release(&bytes);
    return rc == ERR_NOMEM ? rc : OK;
}

/* The worker cannot continue in this run's views and must join as a new one. */
static int send_rejoin(struct server *s, uint32_t node)
{
    static const struct buf nothing;
    int rc = wire_send_buf(s->group->world, node, WIRE_REJOIN, 0, &nothing);
    return rc == ERR_NOMEM ? rc : OK;
}

static int send_link_check(struct server *s, uint32_t number)
{
    const struct members participants = view_participants(&s->roster.view);
    struct buf bytes = {0};
    int rc = OK;
    buf_put_u32(&bytes, number);
    MEMBERS_EACH (node, &participants) {
        int sent = wire_send_buf(s->group->world, node, WIRE_LINK_CHECK, 0, &bytes);
        rc = sent == ERR_NOMEM ? sent : rc;
    }
    buf_release(&bytes);
    return rc;
}

/* Carry out the orders of the roster in their order: a view is sent before the decisions that
 * belong to it. */
static int carry_out(struct server *s)
{
    int rc = OK;
    for (size_t i = 0; rc == OK && i < s->orders.count; i++) {
        const struct roster_order *o = &s->orders.at[i];
        switch (o->kind) {
        case ORDER_VIEW: rc = send_view(s); break;
        case ORDER_MEMBER:
            s->hooks.member(s->hooks.user, o->node, o->what, s->roster.view.number);
            break;
        case ORDER_LANE_GO: rc = send_lane_go(s, &o->go); break;
        case ORDER_RELEASE_MEMBER:
            wire_send(s->group->world, o->node, wire_tag(WIRE_PART, 0, 0, 0), NULL, 0);
            break;
        case ORDER_DROP: world_peer_drop(s->group->world, o->node); break;
        case ORDER_ADMIT_JOINER:
        case ORDER_CANCEL_JOIN: rc = send_admit_joiner(s, o); break;
        case ORDER_REJOIN: rc = send_rejoin(s, o->node); break;
        case ORDER_LINK_CHECK: rc = send_link_check(s, o->other); break;
        case ORDER_WANT:
            if (s->hooks.want)
                s->hooks.want(s->hooks.user, o->other);
            break;
        }
    }
    return rc;
}

/* Every event passes through here, so the roster needs no lock and its orders are carried out
 * before the next event. */
static int step_roster(struct server *s, struct roster_event *event)
{
    event->now = world_now(s->group->world);
    roster_step(&s->roster, event, &s->orders);
    uint32_t standing = 0;
    for (size_t i = 0; i < s->roster.count; i++)
        standing += s->roster.member[i].state == MEMBER_WAITS;
    atomic_store(&s->standing, standing);
    return carry_out(s);
}

static int drop_broken(struct server *s, const struct message *m)
{
    wire_guard_count(&s->group->guard, m->from, wire_kind_of(m->tag), "it cannot be read");
    return OK;
}

/* A worker asks to join: check its job, data and version before it gets into any view. A refusal is
 * sent with its reason. */
static int take_hello(struct server *s, const struct message *m)
{
    char address[NODE_ADDRESS_MAX] = "";
    struct err err = {0};
    int rc = s->hooks.admit(s->hooks.user, m->from, m->data, m->len, address, &err);
    if (rc == OK) { /* the number is fixed before a view makes it known to others */
        rc = world_peer_add(s->group->world, m->from, address);
        if (rc != OK)
            return rc;
        struct roster_event join = {.kind = ROSTER_JOIN, .node = m->from, .address = address};
        return step_roster(s, &join);
    }
    if (rc == ERR_PROTOCOL)
        drop_broken(s, m);
    if (s->hooks.refused)
        s->hooks.refused(s->hooks.user, m->from, &err);
    else
        log_warn(s->group->log, "worker %u is refused: %s", m->from, err.text);
    struct buf why = {0};
    buf_put_text(&why, err.text);
    rc = wire_send_buf(s->group->world, m->from, WIRE_REFUSED, 0, &why);
    buf_release(&why);
    return rc == ERR_PEER ? OK : rc;
}

/* A worker of the previous driver reconnects. Its report is taken before the roster counts it as
 * returned, because the driver resumes when the last report is there. */
static int take_return(struct server *s, const struct message *m)
{
    struct group_return back;
    char address[NODE_ADDRESS_MAX] = "";
    struct err err = {0};
    int rc = group_return_decode(m->data, m->len, &back);
    if (rc != OK) {
        drop_broken(s, m);
        err_set(&err, rc, "its message cannot be read");
    } else if (!s->hooks.returned)
        rc = err_set(&err, ERR_UNSUPPORTED, "this run takes no workers back");
    else
        rc = s->hooks.returned(s->hooks.user, m->from, back.hello, back.hello_len, back.report,
                               address, &err);
    if (rc == OK) {
        struct roster_event event = {
            .kind = ROSTER_RECONNECT,
            .node = m->from,
            .address = address,
            .view = back.view,
            .incarnation = back.incarnation,
            .members = &back.members,
            .elders = &back.elders,
            .seated = back.seated,
            .round = back.round,
        };
        return step_roster(s, &event);
    }
    log_warn(s->group->log, "worker %u cannot reconnect: %s", m->from, err.text);
    return send_rejoin(s, m->from);
}

static void note_beat(struct server *s, uint32_t node, int64_t now)
{
    int64_t before = atomic_exchange(&s->beat_at[node], now);
    if (before > 0 && now - before > atomic_load(&s->silent[node]))
        atomic_store(&s->silent[node], now - before);
}

double server_silence(const struct server *server, uint32_t node, int64_t now)
{
    int64_t at = node < VIEW_MEMBERS_MAX ? atomic_load(&server->beat_at[node]) : 0;
    return at > 0 && now > at ? world_seconds(now - at) : 0;
}

double server_longest_silence(struct server *server, uint32_t node, int64_t now)
{
    double lasting = server_silence(server, node, now);
    double longest =
        node < VIEW_MEMBERS_MAX ? world_seconds(atomic_exchange(&server->silent[node], 0)) : 0;
    return lasting > longest ? lasting : longest;
}

static int take_heartbeat(struct server *s, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    struct roster_event event = {.kind = ROSTER_HEARTBEAT, .node = m->from};
    event.progress = read_u64(&in);
    uint8_t flags = read_u8(&in);
    event.busy = flags & BEAT_BUSY;
    event.paused = flags & BEAT_PAUSED;
    double loss = read_f64(&in);
    if (!byte_reader_done(&in))
        return drop_broken(s, m);
    atomic_store(&s->steps[m->from % VIEW_MEMBERS_MAX], event.progress);
    atomic_store(&s->local_loss[m->from % VIEW_MEMBERS_MAX], loss);
    note_beat(s, m->from % VIEW_MEMBERS_MAX, world_now(s->group->world));
    return step_roster(s, &event);
}

static int take_lane_at(struct server *s, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    struct roster_event event = {.kind = ROSTER_LANE_AT, .node = m->from};
    event.view = read_u32(&in);
    event.lane = read_u32(&in);
    event.completed = read_u64(&in);
    uint8_t report = read_u8(&in);
    event.made_in = read_u32(&in);
    event.joined = report >= LANE_JOINED;
    event.needs_sync = report >= LANE_UNKNOWN;
    event.was_leaf = report == LANE_WAS_LEAF;
    return byte_reader_done(&in) ? step_roster(s, &event) : drop_broken(s, m);
}

static int on_donor_ready(struct server *s, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    struct roster_event event = {.kind = ROSTER_DONOR_READY, .node = m->from};
    event.other = read_u32(&in);
    return byte_reader_done(&in) ? step_roster(s, &event) : drop_broken(s, m);
}

static int on_join_complete(struct server *s, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    struct roster_event event = {.kind = ROSTER_JOIN_COMPLETE, .node = m->from};
    event.view = read_u32(&in);
    return byte_reader_done(&in) ? step_roster(s, &event) : drop_broken(s, m);
}

static int take_leave(struct server *s, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    struct roster_event event = {.kind = ROSTER_LEAVE, .node = m->from};
    event.needs_sync = read_u8(&in) == 0;
    return byte_reader_done(&in) ? step_roster(s, &event) : drop_broken(s, m);
}

static int take_lost(struct server *s, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    struct roster_event event = {.kind = ROSTER_LOST, .node = m->from};
    event.other = read_u32(&in);
    return byte_reader_done(&in) ? step_roster(s, &event) : drop_broken(s, m);
}

static int take_link_check(struct server *s, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    struct roster_event event = {.kind = ROSTER_LINK_CHECK, .node = m->from};
    event.view = read_u32(&in);
    event.grace = (int64_t)read_u64(&in);
    bool sane = byte_reader_done(&in) && event.grace >= 0;
    if (event.grace > s->group->timing.silence_max)
        event.grace = s->group->timing.silence_max; /* then a silent member is dead */
    return sane ? step_roster(s, &event) : drop_broken(s, m);
}

static int take_link_report(struct server *s, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    struct roster_event event = {.kind = ROSTER_LINK_REPORT, .node = m->from};
    event.check = read_u32(&in);
    event.link.from = read_u32(&in);
    event.link.bytes = read_u64(&in);
    event.link.ns = read_u64(&in);
    event.link.span = read_u64(&in);
    return byte_reader_done(&in) ? step_roster(s, &event) : drop_broken(s, m);
}

static int on_leaf_ready(struct server *s, const struct message *m)
{
    return step_roster(s, &(struct roster_event){.kind = ROSTER_LEAF_READY, .node = m->from});
}

/* No reply is waiting to be read, so those that lack have not come in time. If this driver itself
 * did not run, it waits once more. */
static int check_replies(struct server *s)
{
    struct roster_check *check = &s->roster.check;
    int64_t now = world_now(s->group->world);
    if (!check->on || now < check->until)
        return OK;
    if (now > check->until + check->grace) {
        check->until = now + check->grace;
        return OK;
    }
    return step_roster(s, &(struct roster_event){.kind = ROSTER_CHECK_ENDS, .node = WORLD_ANY});
}

/* A connection was opened or lost. A lost connection counts as the death of its worker. */
static int take_peer(struct server *s, const struct wake *wake)
{
    if (wake->up)
        wire_guard_forget(&s->group->guard, wake->peer);
    if (!wake->up && s->hooks.on_disconnect)
        s->hooks.on_disconnect(s->hooks.user, wake->peer);
    if (!wake->up)
        return step_roster(s, &(struct roster_event){.kind = ROSTER_PEER_DOWN, .node = wake->peer});
    s->hooks.arrived(s->hooks.user, wake->peer);
    return OK;
}

static const struct {
    enum wire_kind kind;
    int (*take)(struct server *s, const struct message *m);
} messages[] = {
    {WIRE_HELLO, take_hello},           {WIRE_HEARTBEAT, take_heartbeat},
    {WIRE_LANE_AT, take_lane_at},       {WIRE_LOST, take_lost},
    {WIRE_DONOR_READY, on_donor_ready}, {WIRE_JOIN_COMPLETE, on_join_complete},
    {WIRE_LEAVE, take_leave},           {WIRE_RETURN, take_return},
    {WIRE_LINK_CHECK, take_link_check}, {WIRE_LINK_REPORT, take_link_report},
    {WIRE_LEAF_READY, on_leaf_ready},
};

enum { MESSAGES = sizeof messages / sizeof *messages };

/* A worker says hello once, and only then speaks of its work, but for its heartbeats. Messages that
 * a former member sent before it was put out are no error, nor those that members of a recovered
 * driver send before they return; the roster ignores both. NULL: it may send that kind now. */
static const char *check_sender(struct server *s, enum wire_kind kind, uint32_t from)
{
    const struct roster_member *m = roster_find(&s->roster, from);
    if (kind == WIRE_HELLO)
        return m && m->state != MEMBER_OUT ? "it has said hello before" : NULL;
    if (m || from == WORLD_DRIVER || kind == WIRE_HEARTBEAT || kind == WIRE_RETURN ||
        s->roster.options.recovers)
        return NULL;
    return "it has not said hello";
}

static int serve_event(struct server *s, const struct wake *wake)
{
    int rc = OK;
    if (wake->which == MESSAGES)
        return take_peer(s, wake);
    enum wire_kind kind = messages[wake->which].kind;
    const char *fault = check_sender(s, kind, wake->msg->from);
    if (fault)
        wire_guard_count(&s->group->guard, wake->msg->from, kind, fault);
    else
        rc = messages[wake->which].take(s, wake->msg);
    message_unref(wake->msg);
    return rc;
}

void server_want(struct server *server, uint32_t members)
{
    atomic_store(&server->want, members);
}

/* A change of the requested number of workers, from another task. It has no effect before the first
 * view. */
static int on_want(struct server *s)
{
    uint32_t want = atomic_load(&s->want);
    if (want == s->reported || s->roster.view.number == 0)
        return OK;
    s->reported = want;
    return step_roster(
        s, &(struct roster_event){.kind = ROSTER_WANT, .node = WORLD_ANY, .other = want});
}

/* Send a beat to members and to waiting workers, so that all notice when the driver is gone. */
static void send_beats(struct server *s)
{
    uint8_t bytes[8 * GROUP_TOTALS];
    for (int i = 0; i < GROUP_TOTALS; i++)
        bytes_put_le64(bytes + 8 * i, atomic_load(&s->departed_totals[i]));
    for (size_t i = 0; i < s->roster.count; i++) {
        const struct roster_member *m = &s->roster.member[i];
        if (m->state != MEMBER_OUT)
            wire_send(s->group->world, m->node, wire_tag(WIRE_BEAT, 0, 0, 0), bytes, sizeof bytes);
    }
}

/* A tick that comes more than a period late means that the driver did not run: roster_step
 * subtracts that time from the members' silence. */
static int serve_tick(struct server *s, int64_t *tick, int64_t period)
{
    int64_t now = world_now(s->group->world), late = now - *tick;
    if (late < 0)
        return OK;
    *tick = now + period;
    int rc = on_want(s);
    if (rc != OK)
        return rc;
    if (s->hooks.tick)
        s->hooks.tick(s->hooks.user);
    if (now >= s->next_beat) {
        send_beats(s);
        s->next_beat = now + s->group->timing.heartbeat;
    }
    return step_roster(s, &(struct roster_event){.kind = ROSTER_TICK,
                                                 .node = WORLD_ANY,
                                                 .pause = late > period ? late : 0});
}

static int serve_task(void *arg)
{
    struct server *s = arg;
    struct world *world = s->group->world;
    struct wait_for set[MESSAGES + 1];
    for (size_t i = 0; i < MESSAGES; i++)
        set[i] = wire_from(WORLD_ANY, messages[i].kind);
    set[MESSAGES] = (struct wait_for){.kind = WAIT_PEER};
    int64_t period = s->group->timing.silence_max / TICKS_PER_SILENCE;
    int64_t tick = world_now(world) + period;
    for (;;) {
        struct wake wake;
        const struct roster_check *check = &s->roster.check;
        int64_t until = check->on && check->until < tick ? check->until : tick;
        int rc = world_wait(world, set, MESSAGES + 1, until, &wake);
        if (rc != OK && rc != ERR_TIMEOUT)
            return rc;
        int done = rc == OK ? serve_event(s, &wake) : check_replies(s);
        if (done == OK)
            done = serve_tick(s, &tick, period);
        if (done != OK) {
            log_error(s->group->log, "the group cannot continue: %s", status_text(done));
            return done;
        }
    }
}

int server_start(struct server *server, struct group *group, const struct roster_options *options,
                 const struct server_hooks *hooks)
{
    server->group = group;
    server->hooks = *hooks;
    roster_init(&server->roster, options);
    /* One tick less, so that the tick that notices a silence comes before the limit, not after. */
    server->roster.options.silence_max -= group->timing.silence_max / TICKS_PER_SILENCE;
    return world_spawn(group->world, "server", serve_task, server, &server->task);
}

void server_stop(struct server *server)
{
    if (server->group)
        world_end_task(server->group->world, &server->task);
}
