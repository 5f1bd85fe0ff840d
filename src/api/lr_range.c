#include "paceline/lr_range.h"

#include "api/api.h"
#include "api/caffe_project.h"
#include "api/guard.h"
#include "api/option_size.h"
#include "real/real.h"
#include "tensor/kernels.h"
#include "train/rate_trial.h"

#include <math.h>
#include <stdlib.h>

enum { STEPS_USUAL = 300, STEPS_MAX = 100000 };

#define FROM_USUAL 1e-5
#define TO_USUAL   10.0
#define RATE_MOST  1e6

struct range_call {
    pl_engine *engine;
    Paceline__Job *job;
    const pl_lr_range_options *options;
    struct rate_trial_options test;
    struct world *world;
    struct arena *arena;
    struct rate_trial result;
};

static pl_lr_step step_of(const struct rate_step *from)
{
    return (pl_lr_step){from->rate, from->loss, from->smoothed, from->accuracy};
}

static void on_step(void *user, const struct rate_step *taken, uint32_t step)
{
    struct range_call *c = user;
    const pl_lr_step out = step_of(taken);
    if (c->options->step)
        c->options->step(c->options->user, &out, step + 1, c->test.sweep.steps);
}

static int run_test(void *arg)
{
    struct range_call *c = arg;
    const struct source_config config = {.bindings = &c->engine->bindings,
                                         .remote = c->engine->remote};
    return rate_trial_run(c->world, c->job, &config, &c->engine->log, &c->test, c->arena,
                          &c->result, &c->engine->error);
}

/* In a world of its own, in which records are loaded as a worker loads them. */
static int run_in_world(struct range_call *c)
{
    struct err *err = &c->engine->error;
    int rc = real_open(&(struct real_options){.log = &c->engine->log}, &c->world, err);
    if (rc != OK)
        return rc;
    rc = real_run(c->world, run_test, c, err);
    real_close(c->world);
    return rc;
}

/* ---- what is tested ---- */

static int read_sweep(const pl_lr_range_options *o, struct rate_sweep *out, struct err *err)
{
    *out = (struct rate_sweep){
        .from = o->from != 0 ? o->from : FROM_USUAL,
        .to = o->to != 0 ? o->to : TO_USUAL,
        .steps = o->steps ? o->steps : STEPS_USUAL,
        .linear = o->linear,
    };
    if (!(out->from > 0 && out->from <= RATE_MOST))
        return err_set(err, ERR_USAGE, "from: must be above 0 and at most %g, is %g", RATE_MOST,
                       out->from);
    if (!(out->to > out->from && out->to <= RATE_MOST))
        return err_set(err, ERR_USAGE,
                       "to: must be above `from`, which is %g, and at most %g, is %g", out->from,
                       RATE_MOST, out->to);
    if (out->steps < 2 || out->steps > STEPS_MAX)
        return err_set(err, ERR_USAGE, "steps: must be 2 to %d, is %u", STEPS_MAX, out->steps);
    return OK;
}

/* The job as one worker's, with a schedule that is always 1. */
static int make_job(const pl_job *given, Paceline__Job **out)
{
    static const char *const fields[] = {"workers=1", "solver.lr_policy=fixed", "solver.base_lr=1",
                                         "solver.warmup=0", "solver.warmup_lr=0"};
    struct err *err = &given->engine->error;
    char taken[JOB_TAKEN_MAX];
    pl_job *copy;
    int rc = api_job_copy(given, &copy);
    if (rc != OK)
        return rc;
    if (copy->message->follow_batch)
        rc = job_unset(copy->message, "follow_batch", err);
    if (rc == OK)
        rc = job_set_strategy(copy->message, "single", err);
    for (size_t i = 0; rc == OK && i < sizeof fields / sizeof *fields; i++)
        rc = job_override(copy->message, fields[i], taken, err);
    if (rc == OK)
        rc = api_job_finish(copy, 1, out);
    pl_job_free(copy);
    return rc;
}

/* ---- the report ---- */

static const pl_lr_end ends[] = {
    [RATE_COMPLETE] = PL_LR_COMPLETE,
    [RATE_STOPS_AT_RISE] = PL_LR_DIVERGED,
    [RATE_NOT_FINITE] = PL_LR_NOT_FINITE,
    [RATE_STOPPED] = PL_LR_STOPPED,
};

static bool has_accuracy(const struct rate_trial *r)
{
    for (size_t i = 0; i < r->steps; i++)
        if (r->step[i].accuracy >= 0)
            return true;
    return false;
}

static int make_report(const struct range_call *c, pl_lr_range_report *report)
{
    const struct rate_trial *r = &c->result;
    struct err *err = &c->engine->error;
    double *smoothed = arena_array(c->arena, r->steps, double);
    pl_lr_step *step = malloc(r->steps * sizeof *step);
    if (!smoothed || !step) {
        free(step);
        return err_set(err, ERR_NOMEM, "out of memory for %zu steps", r->steps);
    }
    for (size_t i = 0; i < r->steps; i++) {
        step[i] = step_of(&r->step[i]);
        smoothed[i] = r->step[i].smoothed;
    }
    const struct rate_range range = rate_range_find(smoothed, r->steps);
    bool measured = has_accuracy(r);
    *report = (pl_lr_range_report){
        .step = step,
        .steps = r->steps,
        .end = ends[r->end],
        .found = range.found,
        .low = step[range.low].rate,
        .high = step[range.high].rate,
        .least = step[range.least].rate,
        .still_falls = range.still_falls,
        .batch = r->batch,
        .accuracy_set = measured ? corpus_set_name(r->set) : "",
        .accuracy_records = measured ? r->records : 0,
    };
    return OK;
}

static int test_job(pl_engine *engine, const pl_job *job, const pl_lr_range_options *given,
                    pl_lr_range_report *report)
{
    pl_lr_range_options options;
    struct arena arena;
    struct range_call c = {.engine = engine, .options = &options, .arena = &arena};
    int rc = OPTIONS_TAKE(pl_lr_range_options, &options, given, &engine->error);
    if (rc == OK)
        rc = api_check_solver_data(job);
    if (rc == OK)
        rc = read_sweep(c.options, &c.test.sweep, &engine->error);
    if (rc == OK)
        rc = make_job(job, &c.job);
    if (rc != OK)
        return rc;
    c.test.tuner = api_tuner(&engine->tuning, &engine->log);
    c.test.stop = api_flag(c.options->stop);
    c.test.step = on_step;
    c.test.user = &c;
    arena_init(&arena);
    rc = run_in_world(&c);
    if (rc == OK)
        rc = make_report(&c, report);
    arena_release(&arena);
    job_free(c.job);
    return rc;
}

int pl_lr_range(pl_engine *engine, const pl_job *job, const pl_lr_range_options *options,
                pl_lr_range_report *report)
{
    RETURN_GUARDED(engine, test_job(engine, job, options, report));
}

void pl_lr_range_release(pl_lr_range_report *report)
{
    free(report->step);
    report->step = NULL;
    report->steps = 0;
}
