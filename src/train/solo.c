/* Training in one process: a worker whose commit hook evaluates. */
#include "strategy/strategy.h"
#include "train/events.h"
#include "train/objectives.h"
#include "train/train.h"

struct solo {
    struct world world; /* only a clock, and a send that hands each event on at once */
    int64_t (*now)(void);
    struct corpus corpus;
    struct workspace *ws;
    struct arena arena;
    struct learner learner;
    struct events events;
    struct objectives objectives;
    const struct logger *log;
    const struct train_options *options;
    uint64_t every;
    const char *reason;
};

static int solo_committed(struct member *m, const struct exchange *e)
{
    (void)e;
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
    if (m->course.exchanges % solo->every != 0 ||
        strategy_done(m->job, &m->course, solo->corpus.set[SET_TRAIN].count))
        return OK;
    int rc = objectives_evaluate(&solo->objectives, &m->learner->x, &m->learner->s, m->course.place,
                                 m->learner->steps);
    if (rc == ERR_STOP)
        solo->reason = "error";
    return rc;
}

static int solo_open(struct solo *solo, struct err *err)
{
    const Paceline__Job *job = solo->options->job;
    int rc = corpus_open(job, &solo->corpus, err);
    if (rc != OK)
        return rc;
    rc = workspace_create(job, &solo->corpus, solo->log, &solo->ws, err);
    if (rc != OK)
        return rc;
    rc = learner_init(&solo->learner, NULL, job, &solo->corpus, solo->ws, &solo->arena, NULL, err);
    if (rc != OK)
        return rc;
    kernels_set_threads((int)job->threads);
    events_init(&solo->events, &solo->world);
    objectives_init(&solo->objectives, NULL, job, &solo->corpus, solo->ws, &solo->events, 0);
    solo->every = objectives_every(job, solo->corpus.set[SET_TRAIN].count, 1);
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
        .epochs = (double)m->course.place / (double)solo->corpus.set[SET_TRAIN].count,
        .samples = m->course.place,
        .used = m->course.place,
        .wall_s = events_seconds(&solo->events),
        .seed = m->job->seed,
    };
}

static int solo_run(struct solo *solo, struct train_report *report, struct err *err)
{
    const struct strategy_ops *strategy;
    int rc = strategy_find(solo->options->job, &strategy, err);
    if (rc == OK)
        rc = solo_open(solo, err);
    if (rc != OK)
        return rc;
    struct member member = {
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
                                 member.course.place, solo->learner.steps);
    if (rc != OK && rc != ERR_STOP)
        return err_set(err, rc, "the last evaluation failed: %s", status_text(rc));
    solo_report(solo, &member, report);
    train_report_event(&solo->events, report);
    return OK;
}

static int64_t solo_now(struct world *w)
{
    return ((struct solo *)w)->now();
}

static int solo_send(struct world *w, uint32_t peer, struct message *m, enum world_class class)
{
    const struct train_options *options = ((struct solo *)w)->options;
    (void)peer;
    (void)class;
    options->line(options->user, events_line(m));
    message_unref(m);
    return OK;
}

int train_solo(int64_t (*now)(void), const struct logger *log, const struct train_options *options,
               struct train_report *report, struct err *err)
{
    static const struct world_ops ops = {.now = solo_now, .send = solo_send};
    struct solo solo = {.world = {.ops = &ops}, .now = now, .log = log, .options = options};
    arena_init(&solo.arena);
    int rc = solo_run(&solo, report, err);
    arena_release(&solo.arena);
    workspace_free(solo.ws);
    corpus_close(&solo.corpus);
    return rc;
}
