/* Decides, for a lane in a new view, which result the members adopt or which exchange they redo. */
#include "base/fault.h"
#include "group/roster_internal.h"

void lane_go_encode(const struct lane_go *go, struct buf *out)
{
    buf_put_u32(out, go->view);
    buf_put_u32(out, go->lane);
    buf_put_u64(out, go->completed);
    buf_put_u32(out, go->holder);
    members_encode(&go->lacking, out);
    members_encode(&go->synced, out);
    buf_put_u8(out, go->driver_lacks);
    buf_put_u8(out, go->driver_needs_sync);
}

int lane_go_decode(struct byte_reader *in, struct lane_go *out)
{
    out->view = read_u32(in);
    out->lane = read_u32(in);
    out->completed = read_u64(in);
    out->holder = read_u32(in);
    members_decode(in, &out->lacking);
    members_decode(in, &out->synced);
    out->driver_lacks = read_u8(in) != 0;
    out->driver_needs_sync = read_u8(in) != 0;
    return byte_reader_done(in) ? OK : ERR_PROTOCOL;
}

/* A joiner that begins behind an exchange whose result no member holds any more: the holders died.
 * Its state and the others' cannot be brought together, so it is fenced, which makes the next view.
 * false: there is no such joiner. */
static bool fence_unknown_joiners(struct roster *roster, const struct roster_lane *lane,
                                  uint64_t completed, struct roster_orders *out)
{
    const struct view *view = &roster->view;
    for (size_t i = 0; i < view->count; i++) {
        if (!members_has(&lane->joined, view->node[i]) ||
            members_has(&lane->needs_sync, view->node[i]) || lane->at[i] <= completed)
            continue;
        roster_lose(roster, roster_find(roster, view->node[i]), "fenced", out);
        return true;
    }
    return false;
}

/* A former leaf holds a result that counts only if it is ahead of all others: then none of them has
 * repeated that exchange. Or if no other has any. Of two results of the last exchange the later
 * view's counts: its participants have repeated the exchange without the other (F6). */
static void seek_former_leaf(const struct roster_lane *lane, const struct view *view,
                             struct lane_go *go)
{
    uint32_t made_in = UINT32_MAX; /* of go->holder, if that is a former leaf */
    for (size_t i = 0; i < view->count; i++) {
        bool ahead = lane->at[i] > go->completed || go->holder == ROSTER_NO_NODE;
        bool later = lane->at[i] == go->completed && lane->made_in[i] > made_in;
        if (!members_has(&lane->were_leaves, view->node[i]) || !(ahead || later))
            continue;
        go->completed = lane->at[i];
        go->holder = view->node[i];
        made_in = lane->made_in[i];
    }
}

/* All participants have reported. The highest completed exchange counts, because its result may
 * have been applied by the members that completed it; the others are at most one behind (E2). */
static void decide_lane(struct roster *roster, uint32_t number, int64_t now,
                        struct roster_orders *out)
{
    const struct roster_lane *lane = &roster->lane[number];
    const struct view *view = &roster->view;
    const struct members participants = view_participants(view);
    struct lane_go go = {.view = view->number, .lane = number, .holder = ROSTER_NO_NODE};
    if (roster->options.driver_takes_part && !lane->driver_needs_sync) {
        go.completed = lane->driver_at;
        go.holder = ROSTER_DRIVER; /* unless a worker is ahead of it */
    }
    for (size_t i = 0; i < view->count; i++) {
        if (members_has(&lane->joined, view->node[i]) || !members_has(&participants, view->node[i]))
            continue;
        if (lane->at[i] > go.completed || go.holder == ROSTER_NO_NODE) {
            go.completed = lane->at[i];
            go.holder = view->node[i];
        }
    }
    if (go.holder == ROSTER_NO_NODE && !members_empty(&view->leaves)) {
        /* Participants are joiners and former leaves; a leaf has the newest result. */
        const struct members have = members_intersection(&participants, &lane->were_leaves);
        roster_ask_leaves(roster, number, !members_empty(&have), now, out);
        return;
    }
    if (go.holder != ROSTER_NO_NODE)
        roster->asked_until[number] = 0;
    seek_former_leaf(lane, view, &go);
    PL_ASSERT(members_within(&participants, &lane->in)); /* E4: all have reported in this view */
    PL_ASSERT(
        go.holder == ROSTER_NO_NODE || go.holder == ROSTER_DRIVER ||
        (members_has(&participants, go.holder) && !members_has(&lane->needs_sync, go.holder)) ||
        members_has(&lane->were_leaves, go.holder)); /* E1 */
    if (fence_unknown_joiners(roster, lane, go.completed, out))
        return;
    for (size_t i = 0; i < view->count; i++)
        if (members_has(&participants, view->node[i]) && view->node[i] != go.holder &&
            (lane->at[i] < go.completed || members_has(&lane->needs_sync, view->node[i])))
            members_add(&go.lacking, view->node[i]);
    go.synced = members_intersection(&go.lacking, &lane->needs_sync);
    go.driver_needs_sync = roster->options.driver_takes_part && lane->driver_needs_sync;
    go.driver_lacks = go.driver_needs_sync ||
                      (roster->options.driver_takes_part && lane->driver_at < go.completed);
    roster_order(out, ORDER_LANE_GO)->go = go;
}

/* A participant has reported its lane. Reports of older views are ignored; when all of this view
 * have arrived, the lane is decided, once. */
void roster_lane_at(struct roster *roster, const struct roster_event *event,
                    struct roster_orders *out)
{
    if (roster->view.number == 0 || event->view != roster->view.number ||
        event->lane >= ROSTER_LANES_MAX)
        return;
    struct roster_lane *lane = &roster->lane[event->lane];
    int rank = view_rank(&roster->view, event->node);
    const struct members participants = view_participants(&roster->view);
    if (members_has(&participants, event->node)) {
        members_add(&lane->in, event->node);
        if (event->joined)
            members_add(&lane->joined, event->node);
        if (event->needs_sync)
            members_add(&lane->needs_sync, event->node);
        if (event->was_leaf)
            members_add(&lane->were_leaves, event->node);
        lane->at[rank] = event->completed;
        lane->made_in[rank] = event->made_in;
    } else if (event->node == ROSTER_DRIVER && roster->options.driver_takes_part) {
        lane->driver_in = true;
        lane->driver_at = event->completed;
        lane->driver_needs_sync = event->needs_sync;
    } else {
        return;
    }
    bool driver_ready = lane->driver_in || !roster->options.driver_takes_part;
    if (!lane->decided && driver_ready && members_within(&participants, &lane->in)) {
        lane->decided = true;
        decide_lane(roster, event->lane, event->now, out);
    }
}
