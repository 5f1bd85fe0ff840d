/* A strategy's loop by itself: simulated workers with the tiny job's learners and a group, without
 * a driver, whose commit points a test sees from inside. There it may also give a learner state
 * that is not learnt (s), or break it, as no real net and data do. */
#ifndef PL_LIB_STRATEGY_SCENE_H
#define PL_LIB_STRATEGY_SCENE_H

#include "base/fault.h"
#include "rank_scene.h"
#include "strategy/strategy.h"

#include <math.h>

enum { LOOPS_S = 5, LOOPS_FLOATS = 1024, LOOPS_COMMITS = 16, LOOPS_WORKERS = 3 };

/* A worker's state at a commit point. */
struct loops_commit {
    float own_s[LOOPS_S], model_s[LOOPS_S]; /* its learner's, and the global model's */
    struct members sharers;                 /* the contributors */
};

struct loops {
    struct scene scene; /* first */
    struct ground ground;
    uint32_t breaks; /* break this worker's model, or its s, after so many commits; 0: none */
    uint64_t breaks_after;
    bool breaks_s;
    uint64_t fails_after[LOOPS_WORKERS]; /* its loop, at this commit, with ERR_NOMEM; 0: never */
    /* How it went, by worker, and each one's global model at the end: */
    struct loops_commit seen[LOOPS_WORKERS][LOOPS_COMMITS];
    uint64_t commits[LOOPS_WORKERS];
    float x[LOOPS_WORKERS][LOOPS_FLOATS];
    struct progress progress[LOOPS_WORKERS];
};

static int loops_go_on(struct member *m)
{
    (void)m;
    return OK;
}

static int loops_committed(struct member *m, const struct exchange *e)
{
    struct loops *loops = m->train;
    uint32_t self = m->world->self;
    PL_ASSERT(loops->commits[self] < LOOPS_COMMITS);
    struct loops_commit *seen = &loops->seen[self][loops->commits[self]++];
    memcpy(seen->own_s, m->learner->s.at, sizeof seen->own_s);
    memcpy(seen->model_s, m->model.s->at, sizeof seen->model_s);
    seen->sharers = exchange_result_meta(e)->contributors;
    if (loops->breaks == self && loops->commits[self] == loops->breaks_after)
        (loops->breaks_s ? &m->learner->s : &m->learner->x)->at[0] = NAN;
    return loops->commits[self] == loops->fails_after[self] ? ERR_NOMEM : OK;
}

/* s_k = 100·worker + k at first. */
static int loops_learner(struct loops *loops, struct learner *l, struct world *w,
                         struct arena *arena)
{
    struct err err = {0};
    const struct ground *g = &loops->ground;
    int rc = learner_init(l, w, g->job, &g->corpus, g->ws, arena, NULL, &err);
    const struct vec x = l->x;
    if (rc == OK) /* as if the net had a state */
        rc = vec_init_model(&l->both, &l->x, &l->s, arena, x.n, LOOPS_S);
    if (rc == OK)
        vec_copy(&l->x, &x, vec_all(&x));
    for (size_t k = 0; rc == OK && k < LOOPS_S; k++)
        l->s.at[k] = (float)(100 * w->self + k);
    l->step_seconds = 1;
    return rc;
}

static int loops_play(struct scene *scene, struct group *group, const struct ranks *ranks)
{
    struct loops *loops = (struct loops *)scene;
    const struct strategy_ops *ops = NULL;
    struct strategy_traits traits;
    struct world *w = group->world;
    struct learner *l = calloc(1, sizeof *l);
    struct arena arena;
    struct err err = {0};
    arena_init(&arena);
    int rc = l ? strategy_find(loops->ground.job, &ops, &traits, &err) : ERR_NOMEM;
    if (rc == OK)
        rc = loops_learner(loops, l, w, &arena);
    struct member m = {
        .world = w,
        .group = group,
        .learner = l,
        .job = loops->ground.job,
        .arena = &arena,
        .on_commit = loops_committed,
        .on_step_boundary = loops_go_on,
        .train = loops,
    };
    if (rc == OK) {
        m.model = (struct global_model){.x = &l->x, .s = &l->s};
        for (size_t i = 0; i < ranks->count; i++)
            members_add(&m.progress.sharers, ranks->node[i]);
        m.start = m.progress;
        rc = ops->worker(&m);
        loops->progress[w->self] = m.progress;
        memcpy(loops->x[w->self], m.model.x->at, m.model.x->n * sizeof(float));
    }
    if (rc != OK)
        world_sleep(w, world_now(w) + 10 * WORLD_SECOND); /* it stays until the run is over */
    if (ops && ops->close)
        ops->close(&m);
    lanes_release(&m.lanes);
    arena_release(&arena);
    free(l);
    return rc;
}

/* Play the job with these fields set, ended by NULL, with three workers whose steps take a second.
 */
static inline void loops_run(struct loops *loops, const struct tiny *t, const char *const *set)
{
    ground_open(&loops->ground, t, set);
    loops->scene.ranks = LOOPS_WORKERS;
    loops->scene.play = loops_play;
    loops->scene.cluster = "node { count: 3 } link { mbit: 1000000 latency_us: 50000 }";
    run_scene(&loops->scene);
    ground_close(&loops->ground);
}

#define LOOPS_RUN(loops, t, ...) \
    loops_run(loops, t, (const char *const[]){__VA_ARGS__, "workers=3", NULL})

#endif
