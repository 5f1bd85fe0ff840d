/* A long life, in simulation: in one run 1,000 workers die and 1,000 join, in another the driver
 * restarts 100 times, with every strategy that admits joiners; a quarter of that in ./run check,
 * all with PACELINE_SWEEP=all. At the end the ledger is even: each
 * granted sample is used, open or missed, each repetition has a cause that the test observed, the
 * run has reached its end, and its model is finite. Memory grows by little. */
#include "real/disk.h"
#include "run_files.h"
#include "sim_cluster.h"
#include "sweep_stride.h"
#include "train/driver.h"
#include "train/worker.h"

#include <malloc.h>

/* A worker's number is not used twice, so that a run admits 1,024 workers at most. */
enum {
    DEATHS = 1000 / SWEEP_STRIDE(20, 20),
    RESTARTS = 100 / SWEEP_STRIDE(10, 10),
    WORKERS = 4,
    NODES = WORKERS + DEATHS,
    BATCH = 2,
};

/* Bytes that a fault may leave until the run ends: two views on each of five nodes, and the
 * simulator's own node. */
#define GROWTH_MAX 50e3

/* `round`: steps between two exchanges; a member that dies takes the samples of so many with it, at
 * most. 0: of none, because the strategy leases its samples or repeats them. `pace`: steps that the
 * run takes between two deaths. `early`: it may end early (docs/KNOWN-ISSUES.md). */
struct way {
    const char *set[2];
    uint64_t round, pace;
    bool early;
};

static const struct way ways[] = {
    {{"strategy.sync={tau:4}"}, .round = 4, .pace = 10},
    {{"strategy.sync={tau:2 on_replace:average}"}, .round = 2, .pace = 6},
    {{"strategy.sync={tau_auto:true}"}, .round = 10, .pace = 20},
    {{"strategy.sync={seconds:0.01}"}, .pace = 8},
    {{"strategy.allreduce={}"}, .round = 1, .pace = 4},
    {{"strategy.allreduce={bucket_kb:1}", "collective.algorithm=ring"}, .round = 1, .pace = 4},
    {{"strategy.async_allreduce={}"}, .round = 2, .pace = 6},
    {{"strategy.diloco={tau:2}"}, .round = 2, .pace = 6},
    {{"strategy.diloco={tau:4 fragments:2 overlap:1 on_replace:average}"}, .round = 8, .pace = 16},
    {{"strategy.easgd={mode:sync tau:2}"}, .round = 2, .pace = 6},
    {{"strategy.easgd={tau:2}"}, .pace = 4},
    {{"strategy.mpca={}"}, .pace = 4},
    {{"strategy.mpca={coordination:symmetric shards:3}"}, .pace = 4},
    {{"strategy.pace={}"}, .pace = 4},
    {{"strategy.pace={coordination:symmetric shards:3}"}, .pace = 4},
    {{"strategy.gossip={p:0.3}"}, .pace = 4},
    {{"strategy.ps={consistency:bsp}"}, .pace = 4},
    {{"strategy.ps={consistency:ssp staleness:2}"}, .pace = 4},
    {{"strategy.ps={consistency:asp servers:2}"}, .pace = 8, .early = true},
    {{"strategy.ps={consistency:dssp colocated:true}"}, .pace = 8, .early = true},
    {{"strategy.downpour={n_push:2 n_fetch:2}", "solver.momentum=0"}, .pace = 4},
};

enum { WAYS = sizeof ways / sizeof *ways };
static struct tiny tiny;

/* A worker, as it was last observed. */
struct life_worker {
    const struct worker *state; /* NULL: it has not begun, or has ended */
    bool dead;
    uint64_t steps, repeated; /* steps taken; samples repeated because no lease had arrived */
    uint64_t held;            /* of a dead one: samples of its leases, until they are reclaimed */
};

struct ledger_end { /* of the last driver */
    bool leases, adds_up;
    uint64_t used, missed, repeated, repeated_leases, position; /* of the ledger */
    uint64_t table_used, frontier, open;                        /* of the lease table */
};

struct life {
    const struct way *way;
    bool restarts; /* the driver restarts; otherwise workers die and join */
    uint32_t faults;
    uint64_t pace; /* steps between two faults, at least */
    struct tiny runs;
    struct rundir dir;
    struct ground ground;
    struct buf cluster;
    struct sim_train trial;
    struct train_watch watch;
    const struct driver *driver;
    bool driver_dead;
    uint32_t next; /* the node that joins next */
    struct life_worker worker[NODES];
    uint32_t struck, joined, rejected;
    uint64_t draws, wait;
    double heap;       /* bytes in use after a tenth of the faults */
    uint64_t doubtful; /* samples in the leases of dead workers */
    uint64_t model;    /* hash of the first worker's model at the end */
    bool differ;       /* a later one has another model */
    struct ledger_end last;
};

static uint64_t draw_below(struct life *l, uint64_t below)
{
    return rng_below(19, l->restarts, l->draws++, below);
}

/* ---- what is observed ---- */

static uint64_t held_by(const struct life *l, uint32_t node)
{
    const struct lease_holder *h = &l->driver->leases.table.holder[node];
    uint64_t sum = 0;
    for (size_t i = 0; i < h->count; i++)
        sum += h->held[i].to - h->held[i].from;
    return sum;
}

/* The driver reclaims the leases of a dead worker in one event: the worker may have trained on all
 * samples that it held before. */
static void watch_dead(struct life *l)
{
    for (uint32_t i = 0; i < l->next; i++) {
        struct life_worker *n = &l->worker[i];
        if (!n->dead || n->held == 0)
            continue;
        if (!l->driver->leases.table.holder[i].here)
            l->doubtful += n->held;
        n->held = held_by(l, i);
    }
}

static void watch_worker(struct life_worker *n)
{
    if (!n->state || !n->state->group.world || n->dead)
        return;
    n->steps = atomic_load(&n->state->group.work.progress);
    n->repeated = n->state->member.lease_cursor.repeated;
}

/* The ledger of the last driver, before its state ends. */
static void take_ledger(struct life *l)
{
    const struct driver *d = l->driver;
    const struct lease_table *table = &d->leases.table;
    l->last = (struct ledger_end){
        .leases = d->traits.takes_leases,
        .used = d->ledger.used,
        .missed = d->ledger.missed,
        .repeated = d->ledger.repeated,
        .repeated_leases = d->ledger.repeated_leases,
        .position = d->ledger.last.progress.sample_offset,
        .table_used = table->used,
        .frontier = table->frontier,
        .open = lease_held(table) + lease_pooled(table),
        .adds_up = lease_adds_up(table),
    };
}

static void on_driver(void *user, const struct driver *d)
{
    struct life *l = user;
    if (!d && l->driver && !l->driver_dead)
        take_ledger(l);
    l->driver_dead = !d;
    l->driver = d;
}

/* Replicas end with one model. */
static void on_worker(void *user, uint32_t node, const struct worker *w)
{
    struct life *l = user;
    struct life_worker *n = &l->worker[node];
    watch_worker(n);
    if (!w && n->state && !n->dead && n->state->traits.replicas_agree) {
        const struct vec *x = n->state->member.model.x;
        uint64_t hash = vec_hash(x, vec_all(x));
        l->differ |= l->model != 0 && l->model != hash;
        l->model = hash;
    }
    n->state = w;
}

static void on_line(void *user, const char *line)
{
    struct life *l = user;
    l->joined += strstr(line, "\"what\":\"join\"") != NULL;
    l->rejected += strstr(line, "\"what\":\"fenced\"") || strstr(line, "\"what\":\"refused\"") ||
                   strstr(line, "\"what\":\"failed\"");
}

/* ---- faults ---- */

static void strike_node(struct life *l, Paceline__Fault__WhatCase what, int32_t node, double lasts)
{
    Paceline__Fault f = PACELINE__FAULT__INIT;
    f.what_case = what;
    f.kill = node; /* a union: `join`, too */
    f.for_ = lasts;
    f.has_for_ = lasts > 0;
    assert_int_equal(sim_strike(l->trial.outcome.sim, &f), OK);
}

/* Kill any member but a donor, with which its joiner would be lost. Every other death waits until
 * all members are there again; the others may interrupt a join. false: too few members. */
static bool kill_member(struct life *l)
{
    const struct roster *roster = &l->driver->server.roster;
    uint32_t in[WORKERS], n = 0, donor = ROSTER_NO_NODE;
    for (size_t i = 0; i < roster->count; i++) {
        const struct roster_member *m = &roster->member[i];
        if (m->state == MEMBER_IN && !l->worker[m->node].dead)
            in[n++] = m->node;
        else if (m->state == MEMBER_WAITS || m->state == MEMBER_JOINING)
            donor = m->donor != ROSTER_NO_NODE ? m->donor : donor;
    }
    uint32_t victim = n > 0 ? in[draw_below(l, n)] : donor;
    if (n <= 2 || (l->struck % 2 && n < WORKERS) || victim == donor)
        return false;
    l->worker[victim].dead = true;
    l->worker[victim].held = held_by(l, victim);
    strike_node(l, PACELINE__FAULT__WHAT_KILL, (int32_t)victim, 0);
    return true;
}

/* Kill the driver, which restarts soon. false: not all workers have returned to it. */
static bool kill_driver(struct life *l)
{
    const struct view *view = group_view(&l->driver->group);
    if (!view || view->count < WORKERS)
        return false;
    l->driver_dead = true;
    strike_node(l, PACELINE__FAULT__WHAT_KILL, -1, 0.002 + 0.001 * (double)draw_below(l, 60));
    return true;
}

/* The next fault strikes a number of events after its step. */
static void strike_if_due(struct life *l)
{
    if (!l->restarts && l->next < WORKERS + l->struck && draw_below(l, 40) == 0)
        strike_node(l, PACELINE__FAULT__WHAT_JOIN, (int32_t)l->next++, 0);
    if (l->struck == l->faults ||
        l->driver->ledger.last.progress.steps < l->pace * (l->struck + 1) || l->wait-- > 0)
        return;
    l->wait = draw_below(l, 80);
    if (!(l->restarts ? kill_driver(l) : kill_member(l)))
        return;
    double heap = (double)mallinfo2().uordblks;
    l->heap = ++l->struck == l->faults / 10 ? heap : l->heap;
    if (l->struck == l->faults && heap > l->heap + GROWTH_MAX * l->faults)
        fail_msg("%s: memory grew by %.1f MB", l->way->set[0], (heap - l->heap) / 1e6);
}

static void on_event(void *arg, uint32_t node)
{
    struct life *l = arg;
    if (node < NODES)
        watch_worker(&l->worker[node]);
    if (!l->driver || l->driver_dead || !l->driver->group.world)
        return;
    if (node == WORLD_DRIVER)
        watch_dead(l);
    strike_if_due(l);
}

/* ---- a run ---- */

static void watch_node(void *user, uint32_t node, struct train_host *host)
{
    struct life *l = user;
    (void)node;
    host->watch = &l->watch;
    host->retry = 60 * WORLD_SECOND;
}

static struct life *begin_life(const struct way *way, bool restarts)
{
    struct life *l = calloc(1, sizeof *l);
    assert_non_null(l);
    *l = (struct life){.way = way, .restarts = restarts, .next = WORKERS};
    l->watch = (struct train_watch){on_driver, on_worker, l, {0}};
    l->faults = restarts ? RESTARTS : DEATHS;
    if (DEATHS == 1000) /* without a sanitizer */
        l->faults /= (uint32_t)sweep_share(1, 4);
    l->pace = way->pace + (restarts ? 20 : 0);
    char stop[64], dir[128];
    struct err err;
    snprintf(stop, sizeof stop, "stop={steps:%u}",
             (unsigned)(l->pace * (l->faults + 10) * (way->early ? 2 : 1)));
    const char *set[10] = {way->set[0],
                           "workers_min=4",
                           "workers_max=4",
                           "batch=2",
                           stop,
                           "evaluate.every_exchanges=10000000",
                           "checkpoint.every_seconds=1",
                           way->set[1]};
    buf_printf(&l->cluster, "node { count: %d } step_seconds: 0.004 link { mbit: 100 }\n", NODES);
    for (int i = WORKERS; i < NODES; i++)
        buf_printf(&l->cluster, "fault { at: 1e8 join: %d }\n",
                   i); /* sooner, when the test strikes */
    buf_put_u8(&l->cluster, 0);
    ground_open(&l->ground, &tiny, set);
    assert_true(folder_create("paceline-life", l->runs.folder));
    assert_int_equal(rundir_create(&l->dir, real_disk(), tiny_out(&l->runs, dir), "life", &err),
                     OK);
    l->trial = (struct sim_train){
        .ground = &l->ground,
        .user = l,
        .host = watch_node,
        .event = on_line,
        .observe = on_event,
        .cluster = (const char *)l->cluster.data,
        .options = {.dir = &l->dir},
        .limit_s = 3600,
    };
    return l;
}

/* Play the run. *taken, *repeated: samples that the workers' steps took, and repeated for want of a
 * lease. */
static void play_life(struct life *l, uint64_t *taken, uint64_t *repeated)
{
    sim_train_play(&l->trial);
    if (l->trial.rc != OK || l->struck != l->faults || l->rejected > 0)
        fail_msg("%s: %u faults, %u joiners rejected; %s", l->way->set[0], l->struck, l->rejected,
                 l->trial.err.text);
    if (!l->way->early)
        assert_string_equal(l->trial.report.reason, "steps");
    assert_true(run_is_finite(l->dir.path, "final.safetensors"));
    assert_false(l->differ);
    *taken = *repeated = 0;
    for (uint32_t i = 0; i < NODES; i++) {
        *taken += l->worker[i].steps * BATCH;
        *repeated += l->worker[i].repeated;
    }
    const struct ledger_end *e = &l->last;
    print_message("    %u used, %u missed, %u repeated; steps took %u\n", (unsigned)e->used,
                  (unsigned)e->missed, (unsigned)e->repeated, (unsigned)*taken);
    assert_int_equal(e->used + (e->leases ? e->repeated_leases : e->missed), e->position);
    if (!e->leases)
        return;
    assert_true(e->adds_up);
    assert_int_equal(e->used, e->table_used);
    assert_int_equal(e->frontier, e->used + e->open + e->missed);
}

static void end_life(struct life *l)
{
    rundir_close(&l->dir);
    ground_close(&l->ground);
    buf_release(&l->cluster);
    tiny_remove(&l->runs);
    free(l);
}

/* A worker's last samples are trained again under the leases that it leaves, or missed. */
static void test_a_thousand_workers_die_and_join(void **state)
{
    uint64_t taken, repeated;
    struct life *l = begin_life(*state, false);
    const struct ledger_end *e = &l->last;
    play_life(l, &taken, &repeated);
    assert_int_equal(l->trial.deaths, l->faults);
    assert_int_equal(l->joined, WORKERS + l->faults);
    assert_true(e->missed <= l->faults * l->way->round * BATCH);
    assert_true(e->used + repeated <= taken);
    assert_true(!e->leases || taken <= e->used + e->repeated + e->open);
    assert_true(e->repeated <= repeated + l->doubtful);
    end_life(l);
}

/* Workers keep their state: each sample that a step took is used, once. */
static void test_the_driver_restarts_a_hundred_times(void **state)
{
    uint64_t taken, repeated;
    struct life *l = begin_life(*state, true);
    const struct ledger_end *e = &l->last;
    play_life(l, &taken, &repeated);
    assert_int_equal(l->trial.drivers, 1 + l->faults);
    assert_int_equal(l->joined, WORKERS);
    assert_int_equal(l->trial.deaths, 0);
    assert_int_equal(e->missed, 0);
    assert_int_equal(e->repeated, repeated);
    assert_int_equal(taken, e->used + repeated);
    end_life(l);
}

int main(void)
{
    struct CMUnitTest tests[2 * WAYS];
    for (size_t w = 0; w < WAYS; w++) {
        tests[2 * w] = (struct CMUnitTest)cmocka_unit_test_prestate(
            test_a_thousand_workers_die_and_join, (void *)&ways[w]);
        tests[2 * w + 1] = (struct CMUnitTest)cmocka_unit_test_prestate(
            test_the_driver_restarts_a_hundred_times, (void *)&ways[w]);
    }
    tiny_create(&tiny);
    tiny_elastic(&tiny);
    tiny_write(&tiny, "net.prototxt",
               "layer { name: 'data' type: 'Data' top: 'data' top: 'label' }\n"
               "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'\n"
               "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
               "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' }\n");
    int failed = cmocka_run_group_tests(tests, NULL, NULL); /* the state of each is its way */
    tiny_remove(&tiny);
    return failed;
}
