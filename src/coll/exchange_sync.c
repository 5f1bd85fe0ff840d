#include "coll/exchange_internal.h"

#include "base/fault.h"
#include "wire/wire_send.h"

/* Test builds plant the bug that the commit rule prevents, to prove that the tests would see it. */
#ifdef PLANT_SKIP_COMMIT_RULE
#define COMMIT_RULE 0
#else
#define COMMIT_RULE 1
#endif

static size_t rank_of(const struct ranks *ranks, uint32_t node)
{
    size_t rank = 0;
    while (rank < ranks->count && ranks->node[rank] != node)
        rank++;
    return rank;
}

/* Report how far this lane is. The driver decides when all participants have reported (E4). */
static int report_lane(const struct exchange *e, const struct view *view)
{
    struct buf bytes = {0};
    buf_put_u32(&bytes, view->number);
    buf_put_u32(&bytes, e->lane);
    buf_put_u64(&bytes, e->completed);
    buf_put_u8(&bytes, (uint8_t)e->standing);
    buf_put_u32(&bytes, e->made_in);
    /* The report goes out from the task that runs the lane, so it is never older than the state. */
    int rc = wire_send_buf(e->group->world, WORLD_DRIVER, WIRE_LANE_AT, e->lane, &bytes);
    buf_release(&bytes);
    if (rc != ERR_PEER)
        return rc;
    /* Without a driver nothing decides this view: wait for the view of the next driver. */
    rc = group_wait_view(e->group, view->number, WORLD_FOREVER);
    return rc == OK ? ERR_VIEW : rc;
}

/* Waits for the driver's decision on the lane in this view, made when all participants have
 * reported; workers that compute report at their next exchange. ERR_VIEW when the view ends
 * first. */
static int await_go(const struct exchange *e, const struct view *view, struct lane_go *go)
{
    struct world *world = e->group->world;
    for (;;) {
        const struct wait_for changed = wait_signal(world, SIGNAL_GROUP);
        if (group_view(e->group) != view || atomic_load(&e->group->end.over))
            return ERR_VIEW;
        const struct wait_for set[] = {
            changed,
            {.kind = WAIT_MESSAGE,
             .from = WORLD_DRIVER,
             .tag = wire_tag(WIRE_LANE_GO, e->lane, 0, 0),
             .mask = UINT64_MAX},
        };
        struct wake wake;
        int rc = world_wait(world, set, 2, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
        if (wake.which == 0)
            continue;
        struct byte_reader in = {wake.msg->data, wake.msg->len, false};
        rc = lane_go_decode(&in, go);
        message_unref(wake.msg);
        if (rc != OK || go->view == view->number) /* decisions of older views are skipped */
            return rc;
    }
}

/* Does the holder send this node the state kept with the result? A driver that holds the result may
 * keep that state in another form. */
static bool gets_kept(uint32_t node, const struct lane_go *go)
{
    bool needs = node == WORLD_DRIVER ? go->driver_needs_sync : members_has(&go->synced, node);
    return needs && go->holder != WORLD_DRIVER;
}

/* Send the result of the exchange that counts, and the state kept with it. */
static int send_result(struct exchange *e, struct coll *c, size_t to, const struct lane_go *go)
{
    const struct vec *result = &e->result[go->completed & 1], *kept = &e->config.kept;
    int rc = coll_send(c, to, coll_tag(c, WIRE_RESULT, WIRE_HEADER_PIECE),
                       &e->meta[go->completed & 1], sizeof *e->meta);
    if (rc == OK)
        rc = coll_send_vector(c, to, WIRE_RESULT, result->at, result->n);
    if (rc == OK && gets_kept(c->ranks->node[to], go))
        rc = coll_send_vector(c, to, WIRE_RESULT, kept->at, kept->n);
    return rc;
}

void exchange_take_result(struct exchange *e, uint64_t n, struct vec *x,
                          const struct exchange_meta *meta, uint32_t view)
{
    PL_ASSERT(view >= e->made_in); /* F6: an earlier result of n does not replace a later one */
    /* One begun and not completed here may have counted: what it sent is not sent again. */
    uint64_t last = e->attempted > e->completed ? e->attempted : e->completed;
    struct vec *owed = &e->residual[n & 1], result = *x;
    if ((last ^ n) & 1)
        vec_copy(owed, &e->residual[last & 1], vec_all(owed));
    *x = e->result[n & 1];
    e->result[n & 1] = result;
    e->meta[n & 1] = *meta;
    e->completed = n;
    e->standing = LANE_HELD;
    e->averaged = 0;
    e->made_in = view;
}

/* The holder sends its result of exchange go->completed to all nodes that lack it; those store it.
 * All others have it already. */
static int adopt_result(struct exchange *e, struct coll *c, const struct lane_go *go)
{
    uint32_t self = e->group->world->self;
    if (self == go->holder) {
        int rc = OK;
        e->standing = LANE_HELD; /* a former leaf that is ahead of all others */
        for (size_t to = 0; rc == OK && to < c->ranks->count; to++) {
            uint32_t node = c->ranks->node[to];
            if (node == WORLD_DRIVER ? !go->driver_lacks : !members_has(&go->lacking, node))
                continue;
            rc = send_result(e, c, to, go);
        }
        return rc;
    }
    if (e->completed >= go->completed && e->standing < LANE_UNKNOWN)
        return OK;
    size_t from = rank_of(c->ranks, go->holder);
    if (from == c->ranks->count)
        return ERR_PROTOCOL;
    /* Until it has all of the result, a former leaf keeps its own, which may be in its place. It
     * has no input, as it abandoned its exchange. */
    bool keeps = e->standing == LANE_WAS_LEAF;
    struct vec *result = keeps ? &e->input : &e->result[go->completed & 1];
    struct exchange_meta meta;
    int rc = coll_recv(c, from, coll_tag(c, WIRE_RESULT, WIRE_HEADER_PIECE), &meta, sizeof meta);
    if (rc == OK)
        rc = coll_recv_vector(c, from, WIRE_RESULT, result->at, result->n);
    if (rc == OK && gets_kept(self, go))
        rc = coll_recv_vector(c, from, WIRE_RESULT, e->config.kept.at, e->config.kept.n);
    if (rc == OK)
        exchange_take_result(e, go->completed, result, &meta, c->view->number);
    return rc;
}

int exchange_bring_into_line(struct exchange *e, struct coll *c)
{
    struct lane_go go;
    exchange_enter(e, EXCHANGE_REPORTING);
    if (e->standing == LANE_HELD && group_was_leaf(e->group, e->synced))
        e->standing = LANE_WAS_LEAF;
    int rc = report_lane(e, c->view);
    int64_t begun = trace_now(e->group->world);
    if (rc == OK)
        rc = await_go(e, c->view, &go);
    trace_end(e->group->world, begun, exchange_span(e, SPAN_WAIT, 0));
    exchange_enter(e, EXCHANGE_ADOPTING);
    if (rc == OK && COMMIT_RULE) {
        c->patient = true; /* the holder serves one after another */
        /* An exchange completes only when all have contributed: no member is two behind (E2). */
        bool near = e->standing >= LANE_UNKNOWN || go.completed == e->completed ||
                    go.completed == e->completed + 1;
        c->n = go.completed;
        rc = near ? adopt_result(e, c, &go) : ERR_PROTOCOL;
        c->patient = false;
    }
    if (rc == OK)
        e->synced = e->made_in = c->view->number;
    return rc;
}

int exchange_sync(struct exchange *e)
{
    while (!atomic_load(&e->group->end.over)) {
        int rc = exchange_sync_in(e, group_view(e->group));
        if (rc != ERR_VIEW)
            return rc;
    }
    return OK;
}

int exchange_sync_in(struct exchange *e, const struct view *view)
{
    if (view->number == e->synced || view->count == 0 ||
        members_has(&view->leaves, e->group->world->self))
        return OK;
    struct ranks ranks;
    struct coll c = exchange_coll(e, view, &ranks, NULL);
    int rc = exchange_bring_into_line(e, &c);
    exchange_enter(e, EXCHANGE_IDLE);
    exchange_pass(e, 0);
    return rc;
}
