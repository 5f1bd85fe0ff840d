#include "train/rate_trial.h"

#include "learner/learner.h"
#include "train/checkpoint.h"
#include "train/initial_weights.h"

#include <math.h>

enum { ACCURACIES = 30, ACCURACY_RECORDS = 1000 };

struct testing {
    struct world *world;
    const struct rate_trial_options *options;
    struct corpus corpus;
    struct workspace *ws;
    struct arena arena;
    struct learner learner;
    struct rate_smoothing smoothing;
    struct rate_trial result;
    struct err *err;
};

/* ---- the learner ---- */

static int load_weights(struct testing *t, const Paceline__Job *job, const struct logger *log)
{
    struct learner *l = &t->learner;
    if (!job->weights)
        return OK;
    struct model_layout layout = {.x = l->table, .s = net_state_segments(t->ws->train)};
    float *model = arena_array(&t->arena, l->both.n, float);
    if (!model)
        return err_set(t->err, ERR_NOMEM, "weights: out of memory");
    vec_export(&l->both, vec_all(&l->both), model);
    int rc = initial_weights(job, &layout, log, model, t->err);
    if (rc == OK)
        vec_import(&l->both, vec_all(&l->both), model);
    return rc;
}

static int open_learner(struct testing *t, Paceline__Job *job, const struct source_config *config,
                        const struct logger *log)
{
    int rc = corpus_open_with(config, job, &t->corpus, t->err);
    if (rc == OK)
        rc = corpus_settle(&t->corpus, job, t->err);
    if (rc == OK)
        rc = workspace_create(job, &t->corpus, log, t->options->tuner, NULL, &t->ws, t->err);
    if (rc == OK)
        rc = workspace_load_ahead(t->ws, t->world, (int)job->threads, t->err);
    if (rc == OK)
        rc = learner_init(&t->learner, NULL, job, &t->corpus, t->ws, &t->arena, NULL, t->err);
    if (rc == OK)
        rc = load_weights(t, job, log);
    return rc == OK ? learner_start(&t->learner, t->world, t->err) : rc;
}

/* Accuracies are of validation records, which no step trains on. */
static void choose_records(struct testing *t)
{
    struct rate_trial *r = &t->result;
    r->set = t->corpus.set[SET_VALIDATION].count > 0 ? SET_VALIDATION : SET_TEST;
    size_t count = t->corpus.set[r->set].count;
    r->records = count < ACCURACY_RECORDS ? count : ACCURACY_RECORDS;
}

/* ---- steps ---- */

/* -1: the net has no accuracy. */
static int measure_accuracy(struct testing *t, double *out)
{
    const struct learner *l = &t->learner;
    struct net_result sum = {0};
    struct vec s = l->s;
    int rc = workspace_evaluate(t->ws, &t->corpus.set[t->result.set], 0, t->result.records, &l->x,
                                &s, &sum, t->err);
    struct evaluation e = evaluation_of(&sum);
    *out = e.error >= 0 ? 1 - e.error : -1;
    return rc;
}

static bool is_measured(const struct testing *t, uint32_t step)
{
    uint32_t steps = t->options->sweep.steps, every = steps > ACCURACIES ? steps / ACCURACIES : 1;
    return t->result.records > 0 && ((step + 1) % every == 0 || step + 1 == steps);
}

/* ERR_DIVERGED after an infinite loss, which is the end and no step. */
static int take_step(struct testing *t, uint32_t i, struct rate_step *taken)
{
    struct learner *l = &t->learner;
    size_t batch = job_step_records(l->job);
    *taken = (struct rate_step){.rate = rate_sweep_at(&t->options->sweep, i), .accuracy = -1};
    l->optim.scale = taken->rate; /* times the schedule's 1 */
    int rc = learner_step(l, i * batch, batch);
    if (rc == ERR_DIVERGED)
        return rc;
    if (rc != OK)
        return err_set(t->err, rc, "step %u: %s", i,
                       rc == l->err.status ? l->err.text : status_text(rc));
    taken->loss = l->loss;
    taken->smoothed = rate_smoothing_add(&t->smoothing, l->loss);
    return is_measured(t, i) ? measure_accuracy(t, &taken->accuracy) : OK;
}

static bool is_stopped(const struct testing *t)
{
    return t->options->stop && atomic_load(t->options->stop) > 0;
}

static int take_steps(struct testing *t)
{
    struct rate_trial *r = &t->result;
    uint32_t steps = t->options->sweep.steps;
    rate_smoothing_begin(&t->smoothing, steps);
    r->end = RATE_COMPLETE;
    for (uint32_t i = 0; i < steps && r->end == RATE_COMPLETE; i++) {
        if (is_stopped(t)) {
            r->end = RATE_STOPPED;
            break;
        }
        int rc = take_step(t, i, &r->step[i]);
        if (rc != OK && rc != ERR_DIVERGED)
            return rc;
        if (rc == ERR_DIVERGED) {
            r->end = RATE_NOT_FINITE;
            break;
        }
        r->steps++;
        if (rate_smoothing_diverged(&t->smoothing, r->step[i].smoothed))
            r->end = RATE_STOPS_AT_RISE;
        if (t->options->step)
            t->options->step(t->options->user, &r->step[i], i);
    }
    if (r->steps > 0)
        return OK;
    return r->end == RATE_STOPPED
               ? err_set(t->err, ERR_STOP, "stopped before the first step")
               : err_set(t->err, ERR_DIVERGED,
                         "the loss of the first step is not finite, at a rate of %g: the initial "
                         "weights or the records are at fault, or --from is too high",
                         t->options->sweep.from);
}

int rate_trial_run(struct world *world, Paceline__Job *job, const struct source_config *config,
                   const struct logger *log, const struct rate_trial_options *options,
                   struct arena *arena, struct rate_trial *out, struct err *err)
{
    struct testing t = {.world = world, .options = options, .err = err};
    arena_init(&t.arena);
    t.result.step = arena_array(arena, options->sweep.steps, struct rate_step);
    t.result.batch = job_step_records(job);
    kernels_set_threads(learner_threads(job)); /* before planning, as workspace.h says */
    int rc = t.result.step
                 ? open_learner(&t, job, config, log)
                 : err_set(err, ERR_NOMEM, "out of memory for %u steps", options->sweep.steps);
    if (rc == OK) {
        choose_records(&t);
        rc = take_steps(&t);
    }
    if (rc == OK)
        *out = t.result;
    learner_stop(&t.learner);
    arena_release(&t.arena);
    workspace_free(t.ws);
    corpus_close(&t.corpus);
    return rc;
}
