/* One run for the tests of exchanges: a driver and a few workers in a simulated cluster exchange
 * known vectors, while the cluster's faults happen; the trial records the results of each member
 * after each exchange. Group, server and lane are connected as in train, without a learner. */
#ifndef PL_LIB_EXCHANGE_TRIAL_H
#define PL_LIB_EXCHANGE_TRIAL_H

#include "base/fault.h"
#include "base/hash.h"
#include "coll/exchange.h"
#include "group/group_server.h"
#include "sim_cluster.h"
#include "wire/wire_send.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tested functions. */
struct subject {
    int (*run)(struct exchange *e, const struct exchange_meta *mine);
    int (*sync)(struct exchange *e);
};

static const struct subject sound = {exchange_run, exchange_sync};

enum { WORKERS_MAX = 8, DRIVER = WORKERS_MAX, NODES = WORKERS_MAX + 1, EXCHANGES_MAX = 6 };
enum { SIGNAL_LEADER = 2, LANE = 1, FLOATS_KEPT = 24 };

#define LIMIT (30 * WORLD_SECOND) /* of virtual time, for a run of 100 ms to a few seconds */
#define GRACE WORLD_SECOND

/* A node's result when exchange n had ended for it. */
struct record {
    bool there;
    uint32_t view;
    struct members members; /* of that view */
    uint64_t hash;          /* of the result */
    float x[FLOATS_KEPT];   /* its beginning */
    struct exchange_meta meta;
};

struct trial {
    const struct subject *subject;
    bool driver_takes_part;
    uint32_t workers;
    uint64_t exchanges;
    size_t floats, chunk;
    enum coll_algorithm algorithm;
    enum exchange_split split; /* the prepared values: prepared_value */
    enum codec codec;
    const char *cluster; /* links, delays and faults */
    uint32_t kill_node;
    uint64_t kill_send, seed;
    enum sim_backend backend;
    struct members victims; /* the only members that may be lost */
    bool stale;             /* a decision of the previous view is still queued when a new one
                               arrives */
    double pace;            /* seconds that the shortest work before an exchange takes */
    float (*value)(uint32_t node, uint64_t n, size_t i);
    double (*weight)(uint32_t node, uint64_t n);
    /* How it went: */
    struct record record[NODES][EXCHANGES_MAX + 1];
    bool formed, touched;
    int ended[NODES]; /* the status of a worker's main */
    int rc;
    uint64_t sent[NODES], trace;
    int64_t end;
};

static uint32_t place_of(uint32_t node)
{
    return node == WORLD_DRIVER ? DRIVER : node;
}

static float plain_value(uint32_t node, uint64_t n, size_t i)
{
    return (float)((node * 331 + n * 177 + i * 71) % 1009) * 0.37f - 100.0f;
}

static double plain_weight(uint32_t node, uint64_t n)
{
    return node + 1 + (n % 2 ? 0.5 : 0);
}

/* Of a sum, and the weights in it. */
static float prepared_value(float sum, double weight)
{
    return weight > 0 ? 3 * (sum * (float)(1 / weight)) - 1 : 0;
}

/* ---- a member's part ---- */

static int prepare(void *user, struct range range, float *x, const struct exchange_meta *meta)
{
    (void)user;
    for (size_t i = 0; i < range.len; i++)
        x[i] = prepared_value(x[i], meta->weight);
    return OK;
}

static void fill_input(const struct trial *t, struct exchange *e, uint32_t node, uint64_t n)
{
    for (size_t i = 0; i < t->floats; i++)
        e->input.at[i] = node == WORLD_DRIVER ? 0.0f : t->value(node, n, i);
}

static bool input_is_whole(const struct trial *t, const struct exchange *e, uint32_t node,
                           uint64_t n)
{
    for (size_t i = 0; i < t->floats; i++) {
        float is = e->input.at[i], was = node == WORLD_DRIVER ? 0.0f : t->value(node, n, i);
        if (memcmp(&is, &was, sizeof is) != 0)
            return false;
    }
    return true;
}

static struct exchange_meta contribution(const struct trial *t, uint32_t node, uint64_t n)
{
    if (node == WORLD_DRIVER)
        return (struct exchange_meta){.hash_min = UINT64_MAX};
    return (struct exchange_meta){
        .weight = t->weight(node, n),
        .samples = 100 + node,
        .loss = 10.0 * node,
        .stop_votes = node == 1,
        .hash_min = 50 + node,
        .hash_max = 50 + node,
    };
}

static void record(struct trial *t, const struct exchange *e, uint64_t n)
{
    const struct view *view = group_view(e->group);
    const struct vec *result = exchange_result(e);
    struct record *r = &t->record[place_of(e->group->world->self)][n];
    PL_ASSERT(e->completed == n && !r->there);
    *r = (struct record){
        .there = true,
        .view = view->number,
        .hash = hash_bytes(result->at, result->n * sizeof(float)),
        .meta = *exchange_result_meta(e),
    };
    for (size_t i = 0; i < FLOATS_KEPT && i < result->n; i++)
        r->x[i] = result->at[i];
    for (size_t i = 0; i < view->count; i++)
        members_add(&r->members, view->node[i]);
}

/* All exchanges of a run, with some work before each, of another length for everyone. */
static int exchange_all(struct trial *t, struct exchange *e)
{
    struct world *w = e->group->world;
    for (uint64_t n = 1; n <= t->exchanges; n++) {
        struct cost cost = {t->pace * (double)(1 + (w->self % 7 * 3 + n) % 5)};
        int rc = world_work(w, &cost);
        fill_input(t, e, w->self, n);
        struct exchange_meta mine = contribution(t, w->self, n);
        if (rc == OK)
            rc = t->subject->run(e, &mine);
        t->touched |= !input_is_whole(t, e, w->self, n);
        if (rc != OK)
            return rc;
        record(t, e, n);
    }
    return OK;
}

/* Until the group is over: others may lack the last result. */
static int sync_lane(const struct trial *t, struct exchange *e)
{
    struct world *w = e->group->world;
    while (!atomic_load(&e->group->end.over)) {
        const struct wait_for change = wait_signal(w, SIGNAL_GROUP);
        int rc = t->subject->sync(e);
        struct wake wake;
        if (rc == OK && !atomic_load(&e->group->end.over))
            rc = world_wait(w, &change, 1, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static int open_lane(const struct trial *t, struct exchange *e, struct group *group,
                     struct arena *arena)
{
    const struct exchange_config config = {.algorithm = t->algorithm,
                                           .chunk = t->chunk,
                                           .codec = t->codec,
                                           .split = t->split,
                                           .prepare = prepare};
    return exchange_init(e, group, LANE, t->driver_takes_part, t->floats, &config, 0, arena);
}

static int send_empty(struct world *w, uint32_t node, enum wire_kind kind)
{
    return wire_send(w, node, wire_tag(kind, 0, 0, 0), NULL, 0);
}

static int take_part(struct trial *t, struct group *group, struct arena *arena)
{
    struct exchange *e = arena_new(arena, struct exchange);
    int rc = e ? group_listen(group) : ERR_NOMEM;
    if (rc == OK)
        rc = send_empty(group->world, WORLD_DRIVER, WIRE_HELLO);
    if (rc == OK)
        rc = group_wait_view(group, 0, WORLD_FOREVER);
    if (rc == OK)
        rc = open_lane(t, e, group, arena);
    if (rc == OK)
        rc = exchange_all(t, e);
    if (rc == OK)
        rc = send_empty(group->world, WORLD_DRIVER, WIRE_DONE);
    if (rc == OK)
        rc = sync_lane(t, e);
    if (e)
        exchange_release(e);
    return rc;
}

static int worker_main(struct trial *t, struct world *w)
{
    struct group_timing timing = group_timing_lan();
    struct arena arena;
    struct group group;
    arena_init(&arena);
    group_init(&group, w, NULL, &timing);
    int rc = take_part(t, &group, &arena);
    group_release(&group);
    arena_release(&arena);
    return t->ended[w->self] = rc;
}

/* ---- the driver's part ---- */

struct driver {
    struct trial *trial;
    struct group group;
    struct server server;
    struct arena arena;
    struct exchange lane;
    struct task *driver_part;
    struct members done;
    bool lost; /* a member */
};

static void on_arrived(void *user, uint32_t node)
{
    (void)user;
    (void)node;
}

static int on_hello(void *user, uint32_t node, const void *hello, size_t len, char *address,
                    struct err *err)
{
    (void)user;
    (void)node;
    (void)hello;
    (void)len;
    (void)err;
    address[0] = '\0';
    return OK;
}

static void send_stale_decisions(struct driver *d, uint32_t view)
{
    struct lane_go go = {.view = view, .lane = LANE, .completed = 1, .holder = 0};
    struct buf bytes = {0};
    members_add(&go.lacking, 1);
    lane_go_encode(&go, &bytes);
    for (uint32_t node = 0; !bytes.failed && node <= d->trial->workers; node++) {
        wire_send_buf(d->group.world, node < d->trial->workers ? node : WORLD_DRIVER, WIRE_LANE_GO,
                      LANE, &bytes);
    }
    buf_release(&bytes);
}

static void on_member(void *user, uint32_t node, const char *what, uint32_t view)
{
    struct driver *d = user;
    (void)node;
    if (strcmp(what, "join") == 0)
        return;
    d->lost = true;
    world_raise(d->group.world, SIGNAL_LEADER);
    if (d->trial->stale && view > 1)
        send_stale_decisions(d, view - 1);
}

static int leader_main(void *arg)
{
    struct driver *d = arg;
    kernels_set_threads(1);
    int rc = open_lane(d->trial, &d->lane, &d->group, &d->arena);
    if (rc == OK)
        rc = exchange_all(d->trial, &d->lane);
    world_raise(d->group.world, SIGNAL_LEADER);
    return rc == OK ? sync_lane(d->trial, &d->lane) : rc;
}

/* All remaining members have all results. */
static bool all_done(const struct driver *d)
{
    const struct view *view = group_view(&d->group);
    for (size_t i = 0; i < view->count; i++)
        if (!members_has(&d->done, view->node[i]))
            return false;
    return view->count > 0 &&
           (!d->driver_part || d->trial->record[DRIVER][d->trial->exchanges].there);
}

static int turn(struct driver *d, int64_t deadline)
{
    struct world *w = d->group.world;
    const struct wait_for set[] = {
        wire_from(WORLD_ANY, WIRE_DONE),
        wait_signal(w, SIGNAL_GROUP),
        wait_signal(w, SIGNAL_LEADER),
    };
    struct wake wake;
    int rc = world_wait(w, set, 3, deadline, &wake);
    if (rc == OK && wake.which == 0) {
        members_add(&d->done, wake.msg->from);
        message_unref(wake.msg);
    }
    return rc;
}

static int drive(struct driver *d)
{
    struct trial *t = d->trial;
    int rc = world_want_nodes(d->group.world, t->workers);
    while (rc == OK && !group_view(&d->group)) {
        rc = turn(d, GRACE);
        if (d->lost || rc == ERR_TIMEOUT)
            return OK; /* it never forms */
    }
    t->formed = rc == OK;
    if (rc == OK && t->driver_takes_part)
        rc = world_spawn(d->group.world, "leader", leader_main, d, &d->driver_part);
    while (rc == OK && !all_done(d))
        rc = turn(d, WORLD_FOREVER);
    const struct view *view = group_view(&d->group);
    for (size_t i = 0; view && i < view->count; i++)
        send_empty(d->group.world, view->node[i], WIRE_BYE);
    return rc == OK ? world_sleep(d->group.world, world_now(d->group.world) + GRACE) : rc;
}

static int driver_main(struct trial *t, struct world *w)
{
    struct group_timing timing = group_timing_lan();
    const struct roster_options options = {
        .workers = t->workers,
        .driver_takes_part = t->driver_takes_part,
        .silence_max = timing.silence_max,
        .stall_max = timing.stall_max,
    };
    struct driver *d = calloc(1, sizeof *d);
    if (!d)
        return ERR_NOMEM;
    const struct server_hooks hooks = {
        .arrived = on_arrived, .admit = on_hello, .member = on_member, .user = d};
    d->trial = t;
    arena_init(&d->arena);
    group_init(&d->group, w, NULL, &timing);
    int rc = server_start(&d->server, &d->group, &options, &hooks);
    if (rc == OK)
        rc = drive(d);
    world_end_task(w, &d->driver_part);
    server_stop(&d->server);
    exchange_release(&d->lane);
    group_release(&d->group);
    arena_release(&d->arena);
    free(d);
    return rc;
}

/* ---- one run ---- */

static int node_main(void *arg, struct world *w)
{
    kernels_set_threads(1); /* of the thread that carries the task */
    return w->self == WORLD_DRIVER ? driver_main(arg, w) : worker_main(arg, w);
}

/* Pieces of 16 bytes on slow links, so that deaths fall between them. */
#define SLOW_LINKS "node { count: 8 } link { mbit: 2 latency_us: 100 } "

static struct trial trial_of(bool driver_takes_part)
{
    return (struct trial){
        .subject = &sound,
        .driver_takes_part = driver_takes_part,
        .workers = 4,
        .exchanges = EXCHANGES_MAX,
        .floats = 10,
        .chunk = 4,
        .algorithm = COLL_TREE,
        .cluster = SLOW_LINKS,
        .seed = 1,
        .pace = 1e-3,
        .value = plain_value,
        .weight = plain_weight,
    };
}

static void run_trial(struct trial *t)
{
    const struct sim_options options = {
        .workers = t->workers,
        .seed = t->seed,
        .backend = t->backend,
        .node_main = node_main,
        .arg = t,
        .kill_node = t->kill_node,
        .kill_send = t->kill_send,
    };
    struct sim_outcome outcome = sim_cluster_run(t->cluster, options, LIMIT, t->sent);
    t->rc = outcome.rc;
    t->end = outcome.end;
    t->trace = outcome.trace;
}

#endif
