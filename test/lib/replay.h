/* A strategy's arithmetic, repeated by the test: gradients come from the tiny job's learner,
 * outside of any world; everything else is plain loops. */
#ifndef PL_LIB_REPLAY_H
#define PL_LIB_REPLAY_H

#include "learner/learner.h"
#include "model/weights.h"
#include "run_files.h"
#include "sim_cluster.h"

enum { REPLAY_FLOATS = 1024, REPLAY_WORKERS = 3 };

/* The tiny job's solver. */
#define REPLAY_MOMENTUM 0.9f
#define REPLAY_DECAY    0.0005f

struct replay {
    struct ground ground;
    struct learner l;
    size_t n;                /* of x */
    float x0[REPLAY_FLOATS]; /* initial values */
};

static inline void replay_open(struct replay *r, const struct tiny *t)
{
    struct err err = {0};
    struct ground *g = &r->ground;
    *r = (struct replay){0};
    ground_open(g, t, (const char *const[]){NULL});
    if (learner_init(&r->l, NULL, g->job, &g->corpus, g->ws, &g->arena, NULL, &err) != OK)
        fail_msg("%s", err.text);
    r->n = r->l.x.n;
    assert_true(r->n <= REPLAY_FLOATS);
    memcpy(r->x0, r->l.x.at, r->n * sizeof *r->x0);
}

static inline void replay_close(struct replay *r)
{
    ground_close(&r->ground);
}

/* g ← the gradient at x of the batch that begins at `place`, without weight decay. */
static inline void replay_gradient(struct replay *r, const float *x, uint64_t offset, float *g)
{
    memcpy(r->l.x.at, x, r->n * sizeof *x);
    assert_int_equal(learner_gradient(&r->l, offset, r->ground.job->batch), OK);
    memcpy(g, r->l.dx.at, r->n * sizeof *g);
}

/* Caffe's SGD with momentum and its `inv` policy at step t: m ← μm + η(g + λx); x ← x − m. */
static inline void replay_sgd(const struct replay *r, float *x, float *m, const float *g,
                              uint64_t t)
{
    float rate = (float)(0.05 * pow(1 + 0.001 * (double)t, -0.75));
    for (size_t i = 0; i < r->n; i++) {
        m[i] = REPLAY_MOMENTUM * m[i] + rate * (g[i] + REPLAY_DECAY * x[i]);
        x[i] -= m[i];
    }
}

/* One step of a worker with x and m of its own. */
static inline void replay_step(struct replay *r, float *x, float *m, uint64_t offset, uint64_t t)
{
    float g[REPLAY_FLOATS];
    replay_gradient(r, x, offset, g);
    replay_sgd(r, x, m, g, t);
}

/* out ← the mean of `workers` vectors, `stride` floats apart. */
static inline void replay_mean(const struct replay *r, const float *x, size_t stride,
                               size_t workers, float *out)
{
    for (size_t i = 0; i < r->n; i++) {
        double sum = 0;
        for (size_t w = 0; w < workers; w++)
            sum += (double)x[w * stride + i];
        out[i] = (float)(sum / (double)workers);
    }
}

/* max |x − final| / max |final|, with the final model of the run in `dir`. */
static inline double replay_difference(const struct replay *r, const float *x, const char *dir)
{
    struct safetensors st;
    struct err err = {0};
    float final[REPLAY_FLOATS] = {0};
    double apart = 0, largest = 0;
    run_model(dir, "final.safetensors", &st);
    if (weights_check(&st, dir, "joint", r->l.table, &err) != OK)
        fail_msg("%s", err.text);
    weights_take(&st, "joint", r->l.table, final);
    safetensors_release(&st);
    for (size_t i = 0; i < r->n; i++) {
        apart = fmax(apart, fabs((double)x[i] - (double) final[i]));
        largest = fmax(largest, fabs((double) final[i]));
    }
    assert_true(largest > 0);
    return apart / largest;
}

#endif
