/* Training in one process: a worker whose commit hook evaluates. */
#include "strategy/strategy.h"
#include "train/train.h"

struct solo {
    struct corpus corpus;
    struct workspace *ws;
    struct arena arena;
    struct learner learner;
    struct events events;
    struct objectives objectives;
    const struct train_options *options;
    uint64_t every;
    const char *reason;
};

static int solo_committed(struct member *m)
{
    struct solo *solo = m->train;
    const Paceline__Stop *stop = m->job->stop;
    if (solo->options->stop && atomic_load(solo->options->stop)) {
        solo->reason = "interrupted";
        return ERR_STOP;
    }
    if (stop->has_seconds && events_seconds(&solo->events) >= stop->seconds) {
        solo->reason = "seconds";
        return ERR_STOP;
    }
    if (m->exchanges % solo->every != 0 || strategy_done(m))
        return OK;
    int rc = objectives_evaluate(&solo->objectives, &m->learner->x, &m->learner->s, m->place,
                                 m->learner->steps);
    if (rc == ERR_STOP)
        solo->reason = "error";
    return rc;
}

static int solo_open(struct solo *solo, struct world *world, struct err *err)
{
    const Paceline__Job *job = solo->options->job;
    int rc = corpus_open(job, &solo->corpus, err);
    if (rc != OK)
        return rc;
    rc = workspace_create(job, &solo->corpus, solo->options->log, &solo->ws, err);
    if (rc != OK)
        return rc;
    rc = learner_init(&solo->learner, world, job, &solo->corpus, solo->ws, &solo->arena, NULL, err);
    if (rc != OK)
        return rc;
    kernels_set_threads((int)job->threads);
    events_init(&solo->events, world, solo->options->line, solo->options->user);
    objectives_init(&solo->objectives, world, job, &solo->corpus, solo->ws, &solo->events, 0);
    solo->every = objectives_every(&solo->objectives, job->batch);
    return OK;
}

static void solo_report(const struct solo *solo, const struct member *m,
                        struct train_report *report)
{
    const struct objectives *o = &solo->objectives;
    *report = (struct train_report){
        .reason = solo->reason,
        .has_validation = solo->corpus.set[SET_VALIDATION].count > 0,
        .has_test = solo->corpus.set[SET_TEST].count > 0,
        .validation_error = o->last[SET_VALIDATION].error,
        .test_error = o->last[SET_TEST].error,
        .test_loss = o->last[SET_TEST].loss,
        .epochs = (double)m->place / (double)solo->corpus.set[SET_TRAIN].count,
        .samples = m->place,
        .used = m->place,
        .wall_s = events_seconds(&solo->events),
        .seed = m->job->seed,
    };
}

static int solo_run(struct solo *solo, struct world *world, struct train_report *report,
                    struct err *err)
{
    const struct strategy_ops *strategy;
    int rc = strategy_find(solo->options->job, &strategy, err);
    if (rc == OK)
        rc = solo_open(solo, world, err);
    if (rc != OK)
        return rc;
    struct member member = {
        .world = world,
        .learner = &solo->learner,
        .job = solo->options->job,
        .committed = solo_committed,
        .train = solo,
    };
    solo->reason = solo->options->job->stop->has_epochs ? "epochs" : "steps";
    rc = strategy->worker(&member);
    if (rc == ERR_DIVERGED)
        return err_set(err, rc, "the loss became %g at step %llu: lower solver.base_lr",
                       solo->learner.loss, (unsigned long long)solo->learner.steps);
    if (rc != OK)
        return err_set(err, rc, "training ended: %s", status_text(rc));
    if (solo->reason[0] != 'e' || solo->reason[1] != 'r') /* not just evaluated */
        rc = objectives_evaluate(&solo->objectives, &solo->learner.x, &solo->learner.s,
                                 member.place, solo->learner.steps);
    if (rc != OK && rc != ERR_STOP)
        return err_set(err, rc, "the last evaluation failed: %s", status_text(rc));
    solo_report(solo, &member, report);
    train_report_event(&solo->events, report);
    return OK;
}

int train_solo(struct world *world, const struct train_options *options,
               struct train_report *report, struct err *err)
{
    struct solo solo = {.options = options};
    arena_init(&solo.arena);
    int rc = solo_run(&solo, world, report, err);
    arena_release(&solo.arena);
    workspace_free(solo.ws);
    corpus_close(&solo.corpus);
    return rc;
}
