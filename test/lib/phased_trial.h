/* A run of `mpca` or `pace` for their tests: a driver and a few workers in a simulated cluster,
 * with real learners on the tiny job, and without train: the trial records the state of each worker
 * at each of its steps. */
#ifndef PL_LIB_PHASED_TRIAL_H
#define PL_LIB_PHASED_TRIAL_H

#include "base/fault.h"
#include "base/hash.h"
#include "group/group_server.h"
#include "job/cluster.h"
#include "job/job.h"
#include "sim/sim.h"
#include "sim_cluster.h"
#include "strategy/phased.h"
#include "tensor/kernels.h"
#include "tiny_job.h"

#include <math.h>

enum { WORKERS_MAX = 8, LANES_MAX = 3, STEPS_MAX = 250, EXCHANGES_MAX = 250, STATE = 5 };
enum { FLOATS_MAX = 560 }; /* of the tiny net */

#define LIMIT (100 * WORLD_SECOND)

/* A worker when a step has ended. */
struct stepped {
    int64_t t;
    uint64_t tau[LANES_MAX], c[LANES_MAX];
    float x[FLOATS_MAX];
};

/* x̃*_s, and s̃ in the last shard, as first adopted by any worker. */
struct adopted {
    bool there;
    float x[FLOATS_MAX + STATE];
    float joint[FLOATS_MAX]; /* x̃_s, of symmetric coordination */
};

struct trial {
    const char *strategy; /* "mpca { phases: 1 }" */
    const char *solver;   /* NULL: plain SGD */
    const char *cluster;
    uint32_t workers;
    uint64_t steps; /* that each worker takes, */
    double seconds; /* or until then; 0: no matter how long */
    uint32_t kill_node;
    uint64_t kill_send, seed;
    bool with_state;   /* synthetic s of STATE floats */
    bool same_records; /* all workers take those of worker 0 */
    bool ends_broken;  /* the model of worker 0 is not finite behind its last step */
    const char
        *net; /* file of its net; NULL: net.prototxt. A larger one's models are not recorded */
    const struct group_observer *observer;     /* of workers; NULL: none */
    void (*observe)(void *arg, uint32_t node); /* after each event; gets the trial */
    /* How it went: */
    uint32_t lanes;
    struct stepped step[WORKERS_MAX][STEPS_MAX + 1];
    uint64_t taken[WORKERS_MAX];
    int64_t move[LANES_MAX * EXCHANGES_MAX]; /* when the driver's joint model moved */
    size_t moves;
    uint64_t star[WORKERS_MAX][LANES_MAX][EXCHANGES_MAX]; /* hash of x̃*_s as adopted; 0: was not */
    struct adopted adopted[LANES_MAX][EXCHANGES_MAX];
    size_t reported[LANES_MAX][EXCHANGES_MAX]; /* how often of exchange n */
    struct vec joint;                          /* at the end */
    char logged[200];                          /* the last warning of a worker */
    int64_t begun;
    int ended[WORKERS_MAX];
    bool formed;
    int rc;
    uint64_t sent[WORKERS_MAX], trace;
    /* State that its nodes share: */
    Paceline__Job *job;
    struct corpus corpus;
    struct workspace *ws;
    struct vec dx;
    struct arena arena;
};

static float state_value(uint32_t node, uint64_t step, size_t i)
{
    return (float)(node + 1) * 0.25f + (float)step * 0.125f + (float)i;
}

/* ---- a worker ---- */

#define STEP_SECONDS 0.01 /* of a node with speed 1 */

static void set_state(struct learner *l, uint32_t node)
{
    for (size_t i = 0; i < l->s.n; i++)
        l->s.at[i] = state_value(node, l->steps, i);
}

static void record_adopted(struct trial *t, struct member *m, uint32_t number)
{
    const struct phased_node *node = m->own;
    const struct phased_lane *lane = &node->lane[number];
    PL_ASSERT(lane->c < EXCHANGES_MAX);
    if (t->net)
        return;
    const float *star = lane->star.at;
    struct adopted *a = &t->adopted[number][lane->c];
    t->star[m->world->self][number][lane->c] = hash_bytes(star, lane->r.len * sizeof *star);
    if (a->there)
        return;
    a->there = true;
    memcpy(a->x, star, lane->star.n * sizeof *star);
}

/* The model that a worker copies is of the newest results. */
static void record_joint(struct trial *t, struct member *m)
{
    const struct phased_node *node = m->own;
    if (!m->compute_model || t->net)
        return;
    const struct global_model *model = member_model(m);
    for (uint32_t i = 0; i < node->lanes; i++) {
        const struct phased_lane *lane = &node->lane[i];
        uint64_t n = atomic_load(&lane->arrived);
        PL_ASSERT(n < EXCHANGES_MAX);
        memcpy(t->adopted[i][n].joint, model->x->at + lane->r.from, lane->r.len * sizeof(float));
    }
}

static bool trial_driver_hosts(const struct trial *t)
{
    return !phased_rule(t->job)->settings(t->job).symmetric;
}

/* Where the records of a worker's step are, counted from 0: each has one lease, long enough. */
static uint64_t phased_trial_offset(const struct trial *t, uint32_t worker, uint64_t step)
{
    uint32_t stripe = t->same_records ? 0 : worker;
    return (stripe * (uint64_t)(STEPS_MAX + 1) + step) * t->job->batch;
}

static bool ends(const struct trial *t, const struct member *m)
{
    int64_t ran = world_now(m->world) - t->begun;
    return m->progress.steps >= t->steps || (t->seconds > 0 && world_seconds(ran) >= t->seconds);
}

static int on_begun(struct member *m)
{
    (void)m;
    return OK;
}

static int on_stepped(struct member *m)
{
    struct trial *t = m->train;
    const struct phased_node *node = m->own;
    uint32_t self = m->world->self;
    struct stepped *at = &t->step[self][m->progress.steps];
    PL_ASSERT(m->progress.steps <= STEPS_MAX);
    at->t = world_now(m->world);
    for (uint32_t i = 0; i < node->lanes; i++) {
        at->tau[i] = node->lane[i].tau;
        at->c[i] = node->lane[i].c;
        record_adopted(t, m, i);
    }
    record_joint(t, m);
    if (!t->net)
        vec_export(&m->learner->x, vec_all(&m->learner->x), at->x);
    t->taken[self] = m->progress.steps;
    set_state(m->learner, self);
    if (ends(t, m)) {
        if (t->ends_broken && self == 0)
            m->learner->x.at[0] = NAN;
        return ERR_STOP;
    }
    return atomic_load(&m->group->end.over) ? ERR_DRIVER : OK;
}

static int on_exchanged(struct member *m, uint32_t lane, const struct exchange_cost *cost)
{
    struct trial *t = m->train;
    PL_ASSERT(cost->seconds >= 0); /* a participant that is alone takes no time */
    m->progress.exchanges++;
    t->reported[lane][m->progress.exchanges]++;
    return OK;
}

static int log_line(struct world *w, uint32_t node, enum wire_kind kind)
{
    struct message *m = message_new(wire_tag(kind, 0, 0, 0), 0, 0);
    int rc = m ? world_send(w, node, m, CLASS_CONTROL) : ERR_NOMEM;
    if (rc == ERR_FULL)
        message_unref(m);
    return rc;
}

static int await_bye(struct group *group)
{
    while (!atomic_load(&group->end.over)) {
        const struct wait_for change = wait_signal(group->world, SIGNAL_GROUP);
        struct wake wake;
        if (atomic_load(&group->end.over))
            break;
        int rc = world_wait(group->world, &change, 1, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static struct progress progress_of(const struct view *view)
{
    struct progress progress = {0};
    for (size_t i = 0; i < view->count; i++)
        members_add(&progress.sharers, view->node[i]);
    return progress;
}

static bool never_from_member(const struct member *m)
{
    (void)m;
    return false;
}

static int train_on(struct trial *t, struct group *group, struct arena *arena)
{
    struct err err;
    struct learner l;
    int rc = learner_init(&l, group->world, t->job, &t->corpus, t->ws, arena, &t->dx, &err);
    if (rc != OK)
        return rc;
    l.step_seconds = STEP_SECONDS;
    l.progress = &group->work.progress;
    const struct vec x = l.x;
    if (t->with_state && vec_init_model(&l.both, &l.x, &l.s, arena, x.n, STATE) != OK)
        return ERR_NOMEM;
    if (t->with_state)
        vec_copy(&l.x, &x, vec_all(&x));
    struct member m = {
        .world = group->world,
        .group = group,
        .learner = &l,
        .job = t->job,
        .arena = arena,
        .model = {.x = &l.x, .s = &l.s},
        .checkpoint_due = never_from_member,
        .on_begin = on_begun,
        .on_step = on_stepped,
        .on_exchange = on_exchanged,
        .train = t,
    };
    m.start = m.progress = progress_of(group_first_view(group));
    const uint64_t first = phased_trial_offset(t, group->world->self, 0);
    const struct lease own = {.from = first, .to = first + (STEPS_MAX + 1) * t->job->batch};
    m.leased = true;
    lease_cursor_begin(&m.lease_cursor, t->job->batch, own, own.to - own.from);
    t->begun = world_now(group->world);
    t->step[group->world->self][0].t = t->begun;
    rc = phased_worker(&m);
    if (rc == OK)
        rc = log_line(group->world, WORLD_DRIVER, WIRE_DONE);
    if (rc == OK)
        rc = await_bye(group);
    if (rc == OK && !trial_driver_hosts(t)) {
        phased_collect(&m);
        vec_copy(&t->joint, member_model(&m)->x, vec_all(&t->joint));
    }
    phased_close(&m);
    return rc;
}

static void on_line(void *user, enum log_level level, const char *line)
{
    struct trial *t = user;
    if (level == LOG_WARN)
        snprintf(t->logged, sizeof t->logged, "%s", line);
}

static int worker_main(struct trial *t, struct world *w)
{
    const struct logger log = {.write = on_line, .user = t, .level = LOG_WARN};
    struct group_timing timing = group_timing_lan();
    struct arena arena;
    struct group group;
    arena_init(&arena);
    group_init(&group, w, &log, &timing);
    group.observer = t->observer;
    int rc = group_listen(&group);
    if (rc == OK)
        rc = log_line(w, WORLD_DRIVER, WIRE_HELLO);
    if (rc == OK)
        rc = group_wait_view(&group, 0, WORLD_FOREVER);
    if (rc == OK)
        rc = train_on(t, &group, &arena);
    group_release(&group);
    arena_release(&arena);
    return t->ended[w->self] = rc;
}

/* ---- the driver ---- */

struct driver {
    struct trial *trial;
    struct group group;
    struct server server;
    struct arena arena;
    struct driver_part driver_part;
    struct task *task;
    struct members done;
    bool lost;
};

static void on_arrived(void *user, uint32_t node)
{
    (void)user, (void)node;
}

static int on_hello(void *user, uint32_t node, const void *hello, size_t len, char *address,
                    struct err *err)
{
    (void)user, (void)node, (void)hello, (void)len, (void)err;
    address[0] = '\0';
    return OK;
}

static void on_member(void *user, uint32_t node, const char *what, uint32_t view)
{
    struct driver *d = user;
    (void)node, (void)view;
    d->lost |= strcmp(what, "join") != 0;
}

static int on_moved(struct driver_part *l, const struct exchange *e)
{
    struct trial *t = l->train;
    PL_ASSERT(!e && t->moves < LANES_MAX * EXCHANGES_MAX);
    t->move[t->moves++] = world_now(l->world);
    return OK;
}

static bool never_from_driver(const struct driver_part *l)
{
    (void)l;
    return false;
}

static int leader_main(void *arg)
{
    struct driver *d = arg;
    kernels_set_threads(1);
    return phased_driver(&d->driver_part);
}

static int start_leader(struct driver *d)
{
    struct trial *t = d->trial;
    struct driver_part *l = &d->driver_part;
    const struct segments *table = net_segments(t->ws->train);
    struct vec s;
    *l = (struct driver_part){
        .world = d->group.world,
        .group = &d->group,
        .job = t->job,
        .table = table,
        .arena = &d->arena,
        .records = t->corpus.set[SET_TRAIN].count,
        .on_commit = on_moved,
        .checkpoint_due = never_from_driver,
        .train = t,
    };
    l->progress = progress_of(group_first_view(&d->group));
    if (vec_init_model(&l->both, &l->x, &l->s, &d->arena, table->total,
                       t->with_state ? STATE : 0) != OK ||
        vec_init(&s, &d->arena, net_state_segments(t->ws->train)->total) != OK)
        return ERR_NOMEM;
    net_init(t->ws->train, t->job->seed, &l->x, &s);
    l->model = (struct global_model){.x = &l->x, .s = &l->s};
    return world_spawn(d->group.world, "leader", leader_main, d, &d->task);
}

static bool all_done(const struct driver *d)
{
    const struct view *view = group_view(&d->group);
    for (size_t i = 0; i < view->count; i++)
        if (!members_has(&d->done, view->node[i]))
            return false;
    return view->count > 0;
}

static int turn(struct driver *d, int64_t deadline)
{
    struct world *w = d->group.world;
    const struct wait_for set[] = {
        {.kind = WAIT_MESSAGE,
         .from = WORLD_ANY,
         .tag = wire_tag(WIRE_DONE, 0, 0, 0),
         .mask = WIRE_KIND_MASK},
        wait_signal(w, SIGNAL_GROUP),
    };
    struct wake wake;
    int rc = world_wait(w, set, 2, deadline, &wake);
    if (rc == OK && wake.which == 0) {
        members_add(&d->done, wake.msg->from);
        message_unref(wake.msg);
    }
    return rc;
}

static int drive(struct driver *d)
{
    struct trial *t = d->trial;
    struct world *w = d->group.world;
    int rc = world_want_nodes(w, t->workers);
    while (rc == OK && !group_view(&d->group)) {
        rc = turn(d, WORLD_SECOND / 2);
        if (d->lost || rc == ERR_TIMEOUT)
            return OK; /* it never forms */
    }
    t->formed = rc == OK;
    if (rc == OK && trial_driver_hosts(t))
        rc = start_leader(d);
    while (rc == OK && !all_done(d))
        rc = turn(d, WORLD_FOREVER);
    if (d->task) {
        int result = OK;
        atomic_store(&d->driver_part.finish, true);
        world_raise(w, SIGNAL_GROUP);
        world_join(w, d->task, WORLD_FOREVER, &result);
        d->task = NULL;
        rc = rc == OK ? result : rc;
        vec_copy(&t->joint, &d->driver_part.x, vec_all(&t->joint));
    }
    const struct view *view = group_view(&d->group);
    server_stop(&d->server);
    for (size_t i = 0; view && i < view->count; i++)
        log_line(w, view->node[i], WIRE_BYE);
    return rc == OK ? world_sleep(w, world_now(w) + WORLD_SECOND) : rc;
}

static int driver_main(struct trial *t, struct world *w)
{
    struct group_timing timing = group_timing_lan();
    const struct roster_options options = {
        .workers = t->workers,
        .driver_takes_part = trial_driver_hosts(t),
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
    world_end_task(w, &d->task);
    server_stop(&d->server);
    group_release(&d->group);
    arena_release(&d->arena);
    free(d);
    return rc;
}

/* ---- one run ---- */

static int node_main(void *arg, struct world *w)
{
    kernels_set_threads(1);
    return w->self == WORLD_DRIVER ? driver_main(arg, w) : worker_main(arg, w);
}

static void trial_open(struct trial *t, const struct tiny *tiny)
{
    char text[2048];
    struct err err = {0};
    snprintf(
        text, sizeof text,
        "net { file: '%s' } train_data { idx { images: 'train-images' labels: "
        "'train-labels' } scale: 0.00390625 } batch: 4 solver { %s } strategy { %s } "
        "workers: %u threads: 1 kernels: ref collective { chunk_kb: 1 } stop { steps: 100000 }",
        t->net ? t->net : "net.prototxt",
        t->solver ? t->solver : "base_lr: 0.05 lr_policy: 'fixed'", t->strategy, t->workers);
    arena_init(&t->arena);
    int rc = job_parse("job", text, strlen(text), &t->job, &err);
    if (rc == OK)
        rc = job_resolve_paths(t->job, tiny->job, &err);
    if (rc == OK)
        rc = job_finish(t->job, &err);
    if (rc == OK)
        rc = corpus_open(t->job, NULL, &t->corpus, &err);
    if (rc == OK)
        rc = workspace_create(t->job, &t->corpus, NULL, NULL, NULL, &t->ws, &err);
    if (rc != OK)
        fail_msg("%s", err.text);
    size_t n = net_segments(t->ws->train)->total;
    assert_int_equal(vec_init(&t->dx, &t->arena, n), OK);
    assert_true(t->net || n <= FLOATS_MAX);
    t->lanes = phased_rule(t->job)->settings(t->job).shards;
    assert_int_equal(vec_init(&t->joint, &t->arena, n), OK);
}

static void trial_close(struct trial *t)
{
    workspace_free(t->ws);
    corpus_close(&t->corpus);
    job_free(t->job);
    arena_release(&t->arena);
}

static void trial_run(struct trial *t)
{
    const struct sim_options options = {
        .workers = t->workers,
        .seed = t->seed,
        .node_main = node_main,
        .arg = t,
        .observe = t->observe,
        .kill_node = t->kill_node,
        .kill_send = t->kill_send,
    };
    struct sim_outcome outcome = sim_cluster_run(t->cluster, options, LIMIT, t->sent);
    t->rc = outcome.rc;
    t->trace = outcome.trace;
}

#endif
