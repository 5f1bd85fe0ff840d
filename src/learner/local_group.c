#include "learner/local_group.h"

#include "base/fault.h"

/* Vectors that accompany a gradient, and are averaged alike. */
enum { DX, S, VECS };

struct inner {
    struct local_group *group;
    size_t index;
    struct net *net;
    struct vec v[VECS]; /* the first works on the caller's */
    struct net_batch part;
    struct net_result result;
    int rc;            /* of the last turn */
    struct task *task; /* NULL: the first; and all, until started */
};

/* The arguments of a turn are written before the turn begins, and by no task until all have ended
 * it. */
struct local_group {
    struct inner *inner;
    size_t n, most; /* learners, and records that each has room for */
    size_t record_floats;
    struct world *world;
    bool started;                 /* the others have tasks, which may read the fields above */
    int threads;                  /* of each; 0: arithmetic is the caller's */
    uint64_t turns, wanted, done; /* turns begun; and the counts of the signals before the first */
    int (*turn)(struct inner *me);
    size_t count, each; /* records in all, and of each learner but the last ones */
    double seconds;
    const struct vec *x;
    const struct net_watch *watch; /* of the step under way; NULL: no observer */
    int (*meet)(void *user, const struct net_point *point); /* NULL: the nets are whole */
    void *user;
};

/* ---- its life ---- */

int local_create(struct workspace *ws, struct arena *arena, struct local_group **out)
{
    struct local_group *g = arena_new(arena, struct local_group);
    if (!g)
        return ERR_NOMEM;
    g->n = ws->others + 1;
    g->most = ws->batch / g->n;
    g->record_floats = ws->record_floats;
    g->inner = arena_array(arena, g->n, struct inner);
    if (!g->inner)
        return ERR_NOMEM;
    g->inner[0] = (struct inner){.group = g, .net = ws->train};
    for (size_t i = 1; i < g->n; i++) {
        struct inner_space *space = &ws->other[i - 1];
        g->inner[i] = (struct inner){
            .group = g, .index = i, .net = space->train, .v = {[DX] = space->dx, [S] = space->s}};
    }
    *out = g;
    return OK;
}

static int inner_main(void *arg)
{
    struct inner *me = arg;
    struct local_group *g = me->group;
    struct wait_for turn = {.kind = WAIT_SIGNAL, .signal = SIGNAL_LOCAL_TURN, .seen = g->wanted};
    struct wake wake;
    if (g->threads > 0)
        kernels_set_threads(g->threads);
    for (;; turn.seen++) {
        int rc = world_wait(g->world, &turn, 1, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
        me->rc = g->turn(me);
        world_raise(g->world, SIGNAL_LOCAL_DONE);
    }
}

int local_start(struct local_group *g, struct world *world, int threads)
{
    PL_ASSERT(!g->started);
    g->world = world;
    g->threads = threads;
    g->turns = 0;
    g->wanted = world_raised(world, SIGNAL_LOCAL_TURN);
    g->done = world_raised(world, SIGNAL_LOCAL_DONE);
    g->started = true;
    for (size_t i = 1; i < g->n; i++) {
        int rc = world_spawn(world, "learner", inner_main, &g->inner[i], &g->inner[i].task);
        if (rc != OK)
            return rc;
    }
    return OK;
}

void local_stop(struct local_group *g)
{
    for (size_t i = 1; i < g->n; i++)
        world_end_task(g->world, &g->inner[i].task);
    g->started = false;
}

void local_set_net(struct local_group *g, struct net *net)
{
    PL_ASSERT(g->n == 1);
    g->inner[0].net = net;
}

void local_set_meeting(struct local_group *g,
                       int (*meet)(void *user, const struct net_point *point), void *user)
{
    PL_ASSERT(g->n == 1);
    g->meet = meet;
    g->user = user;
}

/* ---- a turn ---- */

/* A learner's records are [first, first + count) of the batch; the last may have fewer than the
 * others, and those after it none. */
static size_t part_first(const struct local_group *g, size_t index)
{
    size_t first = index * g->each;
    return first < g->count ? first : g->count;
}

static size_t part_count(const struct local_group *g, size_t index)
{
    return part_first(g, index + 1) - part_first(g, index);
}

static void share_out(struct local_group *g, size_t count)
{
    g->count = count;
    g->each = (count + g->n - 1) / g->n;
}

/* Until all have ended the turns they were given; they compute, and have no deadline. */
static int combine_status(const struct local_group *g)
{
    const struct wait_for all = {
        .kind = WAIT_SIGNAL,
        .signal = SIGNAL_LOCAL_DONE,
        .seen = g->done + g->turns * (g->n - 1) - 1,
    };
    struct wake wake;
    return world_wait(g->world, &all, 1, WORLD_FOREVER, &wake);
}

/* Let each take its turn. The first error, in their order. */
static int run_together(struct local_group *g, int (*turn)(struct inner *me), bool at_once)
{
    size_t handed = at_once && g->started ? g->n - 1 : 0;
    int rc = OK;
    g->turn = turn;
    if (handed > 0) {
        g->turns++;
        world_raise(g->world, SIGNAL_LOCAL_TURN);
    }
    for (size_t i = 0; i < g->n - handed; i++)
        g->inner[i].rc = turn(&g->inner[i]);
    if (handed > 0)
        rc = combine_status(g);
    for (size_t i = 0; rc == OK && i < g->n; i++)
        rc = g->inner[i].rc;
    return rc;
}

static int spend_records(struct inner *me)
{
    const struct local_group *g = me->group;
    size_t count = part_count(g, me->index);
    struct cost cost = {g->seconds * ((double)count / (double)g->count)};
    return count > 0 ? world_work(g->world, &cost) : OK;
}

int local_work(struct local_group *g, struct world *world, size_t count, double seconds)
{
    if (!g->started)
        g->world = world;
    share_out(g, count);
    g->seconds = seconds;
    return run_together(g, spend_records, seconds > 0);
}

/* The pass that has begun, to its end. */
static int run_pass(const struct inner *me)
{
    const struct local_group *g = me->group;
    const struct net_point *point = NULL;
    int rc = net_continue(me->net, &point);
    while (rc == OK && point) {
        PL_ASSERT(g->meet);
        rc = g->meet(g->user, point);
        if (rc == OK)
            rc = net_continue(me->net, &point);
    }
    return rc;
}

/* dx_i · b_i / Σ b_i, and the state likewise. */
static int compute_inner(struct inner *me)
{
    const struct local_group *g = me->group;
    size_t count = me->part.count;
    if (count == 0)
        return OK;
    struct vec *dx = &me->v[DX];
    net_begin_forward(me->net, g->x, &me->v[S], &me->part);
    int rc = run_pass(me);
    if (rc != OK)
        return rc;
    me->result = *net_last_result(me->net);
    vec_fill(dx, vec_all(dx), 0.0f);
    net_begin_backward(me->net, g->x, dx, g->n == 1 ? g->watch : NULL);
    rc = run_pass(me);
    if (rc != OK)
        return rc;
    for (int k = 0; k < VECS && count < g->count; k++)
        vec_scale(&me->v[k], (float)count / (float)g->count, vec_all(&me->v[k]));
    return OK;
}

/* This learner's share of a vector, in whole blocks, so that no two write to one line of memory. */
static struct range share_of(const struct inner *me, size_t len)
{
    size_t blocks = (len + VEC_BLOCK - 1) / VEC_BLOCK, n = me->group->n;
    size_t from = blocks * me->index / n * VEC_BLOCK;
    size_t end = blocks * (me->index + 1) / n * VEC_BLOCK;
    return (struct range){from, (end < len ? end : len) - from};
}

/* Add the gradients of all learners with records into the first one's: each learner adds its range
 * of the vectors. */
static int add_up(struct inner *me)
{
    const struct local_group *g = me->group;
    struct inner *inner = g->inner;
    for (int k = 0; k < VECS; k++) {
        struct range r = share_of(me, me->v[k].n);
        for (size_t bit = 1; r.len > 0 && bit * g->each < g->count; bit *= 2)
            for (size_t i = 0; (i + bit) * g->each < g->count; i += 2 * bit)
                vec_axpy(&inner[i].v[k], 1.0f, &inner[i + bit].v[k], r);
    }
    return OK;
}

static void hand_parts(struct local_group *g, struct vec *s, const struct net_batch *batch)
{
    for (size_t i = 0; i < g->n; i++) {
        struct net_batch *part = &g->inner[i].part;
        size_t first = part_first(g, i);
        *part = *batch;
        part->data += first * g->record_floats;
        part->labels += first;
        part->records += first;
        part->count = part_count(g, i);
        if (part->carried)
            part->carried += first * net_carried(g->inner[i].net);
        if (i > 0)
            vec_copy(&g->inner[i].v[S], s, vec_all(s));
    }
}

static void add_results(const struct local_group *g, struct net_result *sum)
{
    *sum = (struct net_result){0};
    for (size_t i = 0; i < g->n; i++) {
        const struct inner *inner = &g->inner[i];
        if (inner->part.count == 0)
            continue;
        sum->loss += inner->result.loss;
        sum->right += inner->result.right;
        sum->has_right = inner->result.has_right;
        sum->count += inner->result.count;
    }
}

int local_gradient(struct local_group *g, const struct vec *x, struct vec *s, struct vec *dx,
                   const struct net_batch *batch, const struct net_watch *watch,
                   struct net_result *result)
{
    bool at_once = g->threads > 0;
    PL_ASSERT(batch->count > 0 && batch->count <= g->n * g->most);
    g->x = x;
    g->watch = watch;
    share_out(g, batch->count);
    g->inner[0].v[DX] = *dx;
    g->inner[0].v[S] = *s;
    hand_parts(g, s, batch);
    int rc = run_together(g, compute_inner, at_once);
    if (rc == OK && g->count > g->each)
        rc = run_together(g, add_up, at_once);
    if (rc == OK && watch && g->n > 1)
        rc = watch->finished(watch->user, 0, 1.0);
    if (rc == OK)
        add_results(g, result);
    return rc;
}
