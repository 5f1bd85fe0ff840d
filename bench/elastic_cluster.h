/* One all-reduce on a simulated cluster with the paper's costs: every link has a
 * latency of u and sends a byte in v, and each byte of a piece costs a core z at either end and g
 * where it is reduced. */
#ifndef BENCH_ELASTIC_CLUSTER_H
#define BENCH_ELASTIC_CLUSTER_H

#include "coll/coll_run.h"
#include "coll/cost.h"
#include "job/cluster.h"
#include "sim/sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 32 };

#define START (WORLD_SECOND) /* all nodes are connected by then */
#define LIMIT (100000 * WORLD_SECOND)

struct trial {
    enum coll_algorithm algorithm;
    size_t ranks;
    double floats;
    struct cost_model price; /* cores: those that share z and g */
    bool whole;              /* a step's vector in one piece: nothing overlaps */
    bool own_credit;         /* floats stand for themselves, see below */
    /* Derived: */
    double stands_for; /* floats of the vector, for each that is simulated */
    size_t n, chunk;   /* simulated floats */
    /* How it went: */
    int rc[RANKS_MAX];
    int64_t ended[RANKS_MAX];
};

/* The world lets 8 MiB wait at a peer, which fill links of microseconds' latency; u here is Spark's
 * start-up time, and fills 40 MB. So one float represents as many as are needed for the vector to
 * fit in a single message: the cost of a byte rises, times and pieces do not change, and credit is
 * for two vectors. Headers grow as well, to 0.2 % of a piece. Pieces represent at most 4 MiB, the
 * world's largest message, or a 64th of the vector if that is less. */
static void trial_scale(struct trial *t)
{
    const double largest = WORLD_MESSAGE_MAX / sizeof(float), least = 1024;
    double piece = fmin(fmax(t->floats / 64, least), largest);
    t->stands_for = t->own_credit ? 1 : fmax(1, t->floats / largest);
    t->n = (size_t)ceil(t->floats / t->stands_for);
    t->chunk = t->whole ? t->n : (size_t)ceil(piece / t->stands_for);
}

/* ---- a rank ---- */

static int trial_reduce(struct trial *t, struct group *group, const struct ranks *ranks)
{
    struct coll c = {.group = group, .view = group_view(group), .ranks = ranks, .n = 1};
    const double share = t->stands_for / t->price.cores;
    const struct coll_config config = {
        .chunk = t->chunk,
        .phantom = true,
        .serialise = t->price.z * share,
        .reduce = t->price.g * share,
    };
    struct schedule s;
    struct coll_plan plan = {0};
    int rc = schedule_allreduce(&s, t->algorithm, ranks->count, ranks->me, t->n, NULL);
    if (rc == OK)
        rc = coll_plan_make(&plan, &s, &config);
    schedule_release(&s);
    if (rc == OK)
        rc = world_sleep(group->world, START);
    if (rc == OK)
        rc = coll_run(&c, &plan, NULL, (struct coll_owed){0});
    coll_plan_release(&plan);
    return rc;
}

static int trial_send(struct world *w, uint32_t node, enum wire_kind kind)
{
    struct message *m = message_new(wire_tag(kind, 0, 0, 0), 0, 0);
    return m ? world_send(w, node, m, CLASS_CONTROL) : ERR_NOMEM;
}

static int trial_receive(struct world *w, uint32_t from, enum wire_kind kind)
{
    const struct wait_for set = {
        .kind = WAIT_MESSAGE, .from = from, .tag = wire_tag(kind, 0, 0, 0), .mask = WIRE_KIND_MASK};
    struct wake wake;
    int rc = world_wait(w, &set, 1, WORLD_FOREVER, &wake);
    if (rc == OK)
        message_unref(wake.msg);
    return rc;
}

static int trial_play(struct trial *t, struct group *group)
{
    struct ranks ranks = {.count = t->ranks, .me = group->world->self};
    struct view *view = calloc(1, sizeof *view);
    if (!view)
        return ERR_NOMEM;
    view->number = 1;
    view->count = (uint32_t)t->ranks;
    for (uint32_t i = 0; i < t->ranks; i++)
        view->node[i] = ranks.node[i] = i;
    int rc = group_set_view(group, view);
    free(view);
    return rc == OK ? trial_reduce(t, group, &ranks) : rc;
}

/* No rank leaves before all have finished. */
static int trial_rank(struct trial *t, struct world *w)
{
    struct group_timing timing = group_timing_lan();
    struct group group;
    timing.piece = LIMIT;
    group_init(&group, w, NULL, &timing);
    int rc = t->rc[w->self] = trial_play(t, &group);
    t->ended[w->self] = world_now(w);
    if (rc == OK)
        rc = trial_send(w, WORLD_DRIVER, WIRE_DONE);
    if (rc == OK)
        rc = trial_receive(w, WORLD_DRIVER, WIRE_BYE);
    group_release(&group);
    return rc;
}

static int trial_driver(const struct trial *t, struct world *w)
{
    int rc = world_want_nodes(w, (uint32_t)t->ranks);
    for (size_t i = 0; rc == OK && i < t->ranks; i++)
        rc = trial_receive(w, WORLD_ANY, WIRE_DONE);
    for (uint32_t i = 0; rc == OK && i < t->ranks; i++)
        rc = trial_send(w, i, WIRE_BYE);
    return rc == OK ? world_sleep(w, world_now(w) + WORLD_SECOND) : rc;
}

static int trial_main(void *arg, struct world *w)
{
    struct trial *t = arg;
    return w->self == WORLD_DRIVER ? trial_driver(t, w) : trial_rank(t, w);
}

/* ---- all of them ---- */

static uint32_t trial_kind(const char *name)
{
    return (uint32_t)wire_kind_find(name);
}

/* Parsed, because a Paceline__Cluster is made from text everywhere. */
static int trial_cluster(const struct trial *t, Paceline__Cluster **cluster, struct err *err)
{
    char text[256];
    int len =
        snprintf(text, sizeof text, "node { count: %zu } link { mbit: %.17g latency_us: %.17g }",
                 t->ranks, 8e-6 / (t->price.v * t->stands_for), t->price.u * 1e6);
    int rc = cluster_parse("elastic", text, (size_t)len, cluster, err);
    return rc == OK ? cluster_finish(*cluster, err) : rc;
}

/* Until the last rank has its sums. */
static double trial_seconds(const struct trial *t)
{
    int64_t last = 0;
    for (size_t i = 0; i < t->ranks; i++)
        last = t->ended[i] > last ? t->ended[i] : last;
    return world_seconds(last - START);
}

/* Seconds of virtual time. NAN, with a message on stderr: the run did not finish. */
static double trial_run(struct trial *t)
{
    struct err err = {0};
    Paceline__Cluster *cluster = NULL;
    struct sim *sim = NULL;
    trial_scale(t);
    int rc = trial_cluster(t, &cluster, &err);
    const struct sim_options options = {
        .cluster = cluster,
        .workers = (uint32_t)t->ranks,
        .seed = 1,
        .node_main = trial_main,
        .arg = t,
        .kind_of = trial_kind,
    };
    if (rc == OK)
        rc = sim_create(&options, &sim, &err);
    if (rc == OK && (rc = sim_run(sim, LIMIT)) != OK)
        err_set(&err, rc, "the simulation of %s on %zu nodes ends with %s",
                coll_algorithm_name(t->algorithm), t->ranks, status_text(rc));
    sim_free(sim);
    cluster_free(cluster);
    if (rc == OK)
        return trial_seconds(t);
    fprintf(stderr, "elastic_ch4: %s\n", err.text);
    return NAN;
}

#endif
