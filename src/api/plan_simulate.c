#include "api/plan_simulate.h"

#include "base/memory.h"
#include "base/plural.h"
#include "real/real.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SET_MAX = 64 };

#define LIMIT_S       60.0 /* without an option */
#define LIMIT_TIMES   2    /* of the limit: the estimate was wrong, and what is under way ends */
#define FORWARD_SHARE (1.0 / 3) /* of a record's training: the part of an evaluation */

__attribute__((format(printf, 2, 3))) static void set_note(struct plan_trial *trial,
                                                           const char *format, ...)
{
    const pl_plan_row *row = trial->row;
    va_list args;
    char what[sizeof trial->note - 64];
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    snprintf(trial->note, sizeof trial->note, "%.20s with %u worker%s: %s", row->strategy,
             row->workers, plural(row->workers, "s"), what);
}

/* ---- a simulation ---- */

static const char time_over[] = "it has taken twice the limit of time";

/* An observer of the simulation under way. */
struct trial_watch {
    const struct plan_trials *trials;
    pl_plan_progress now;
    int64_t until; /* on the clock of this machine: then it ends */
    bool over;     /* and it has come to that */
    pl_flag stop;
    /* Commit points as the driver hears of them, epochs over seconds: the newest one, and sums over
     * them from the first one on, with both coordinates less its own. */
    double newest_t, newest, first_t, first;
    double points, t, e, tt, te;
};

static void check_end(struct trial_watch *w)
{
    const pl_flag *stop = w->trials->options->stop;
    int level = stop ? pl_flag_get(stop) : 0;
    w->over |= real_now() >= w->until;
    level = w->over && level == 0 ? 1 : level;
    if (level > pl_flag_get(&w->stop))
        pl_flag_set(&w->stop, level);
    if (w->trials->options->progress)
        w->trials->options->progress(w->trials->options->user, &w->now);
}

/* The first commit point is where the run has begun to move: what came before it took as long as
 * the workers needed to arrive. After the time is over some workers may have ended. */
static void add_point(struct trial_watch *w, double t, double epoch)
{
    if (w->points >= 2 && t > w->now.seconds)
        return;
    if (w->points == 0)
        w->first_t = t, w->first = epoch;
    t -= w->first_t, epoch -= w->first;
    w->points++;
    w->t += t, w->e += epoch;
    w->tt += t * t, w->te += t * epoch;
}

/* Epochs a second: the slope of the line through the points, by least squares. Asynchronous workers
 * report several steps at once, so that two points alone would be steps of a stair. 0: unknown */
static double slope_of(const struct trial_watch *w)
{
    double spread = w->points * w->tt - w->t * w->t;
    return spread > 0 ? (w->points * w->te - w->t * w->e) / spread : 0;
}

static void on_progress(void *user, const pl_progress *p)
{
    struct trial_watch *w = user;
    w->now.t = p->t < w->now.seconds ? p->t : w->now.seconds;
    if (p->epoch > w->newest) {
        w->newest = p->epoch, w->newest_t = p->commit_t;
        add_point(w, p->commit_t, p->epoch);
    }
    check_end(w);
}

static void on_tick(void *user)
{
    check_end(user);
}

/* The job as it is, up to that time, with one evaluation at its end. */
static int cut_job(struct plan_trials *t, pl_job *job)
{
    const Paceline__Job *m = job->message;
    struct err *err = &t->engine->error;
    char text[SET_MAX];
    double seconds = t->seconds;
    int rc = OK;
    if (api_job_is_open_ended(job))
        rc = job_set(job->message, "stop.epochs=1", err);
    if (m->stop && m->stop->has_seconds && m->stop->seconds < seconds)
        seconds = m->stop->seconds;
    snprintf(text, sizeof text, "stop.seconds=%.17g", seconds);
    if (rc == OK)
        rc = job_set(job->message, text, err);
    snprintf(text, sizeof text, "evaluate={every_exchanges: %u}", UINT32_MAX);
    return rc == OK ? job_set(job->message, text, err) : rc;
}

/* When the model was there that has been evaluated: the driver hears of the last commit points ten
 * times a second at most. */
static double find_time(const struct trial_watch *w, double epochs)
{
    double slope = slope_of(w), more = epochs - w->newest;
    return slope > 0 && more > 0 ? w->newest_t + more / slope : w->newest_t;
}

static void take_result(const struct trial_watch *w, size_t records, const pl_run_report *from,
                        struct plan_trial *trial)
{
    pl_plan_trial *to = &trial->row->trial;
    bool test = from->has_test;
    *to = (pl_plan_trial){
        .done = true,
        .at_s = find_time(w, from->epochs),
        .set = test                   ? "test"
               : from->has_validation ? "validation"
                                      : "",
        .error = test                   ? from->test_error
                 : from->has_validation ? from->validation_error
                                        : -1,
        .loss = test ? from->test_loss : from->validation_loss,
    };
    to->samples_per_s = slope_of(w) * (double)records;
    if (to->samples_per_s == 0)
        set_note(trial, "its simulation has fewer than two commit points, which tell no speed");
    else if (w->over && !from->has_test && !from->has_validation)
        set_note(trial, "its simulation ended before the evaluation: %s", time_over);
}

/* An error of the simulation is one of this row. */
static int simulate_trial(struct plan_trials *t, size_t i, int64_t until)
{
    struct plan_trial *trial = &t->trial[i];
    const pl_plan_row *row = trial->row;
    Paceline__Cluster cluster = *t->cluster;
    struct trial_watch w = {
        .trials = t,
        .now = {row->strategy, row->workers, i + 1, t->count, 0, t->seconds},
        .until = until,
    };
    const pl_run_options run = {
        .size = sizeof run,
        .progress = on_progress,
        .tick = on_tick,
        .user = &w,
        .stop = &w.stop,
    };
    const pl_sim_options options = {
        .size = sizeof options,
        .run = &run,
        .no_files = true,
        .evaluate_records = PLAN_EVALUATED,
    };
    pl_run_report report;
    cluster.has_step_seconds = true;
    cluster.step_seconds = trial->step_s;
    check_end(&w);
    int rc = cut_job(t, trial->job);
    if (rc == OK)
        rc = api_simulate(t->engine, trial->job, &cluster, &options, &report);
    if (rc == ERR_BUG)
        return rc;
    bool stopped = rc == ERR_STOP || (rc == OK && strcmp(report.reason, "interrupted") == 0);
    if (stopped)
        set_note(trial, "not simulated: %s", w.over ? time_over : "interrupted");
    else if (rc != OK)
        set_note(trial, "not simulated: %s", t->engine->error.text);
    else
        take_result(&w, t->records, &report, trial);
    return OK;
}

/* ---- all of them ---- */

/* Virtual seconds for which all of them together keep the limit. */
static void choose_seconds(struct plan_trials *t, double limit_s)
{
    double cost = 0;
    for (size_t i = 0; i < t->count; i++)
        cost += t->trial[i].record_s * (t->trial[i].row->samples_per_s * t->options->simulate_s +
                                        2 * PLAN_EVALUATED * FORWARD_SHARE);
    t->whole_s = cost;
    t->shortened = cost > limit_s;
    t->seconds = t->options->simulate_s * (t->shortened ? limit_s / cost : 1);
}

static bool is_interrupted(const struct plan_trials *t)
{
    return t->options->stop && pl_flag_get(t->options->stop) > 0;
}

/* Lines of the simulated nodes are not those of a run: only what is wrong. */
int plan_simulate(struct plan_trials *t)
{
    double limit_s = t->options->simulate_limit_s > 0 ? t->options->simulate_limit_s : LIMIT_S;
    int64_t until = real_now() + (int64_t)(LIMIT_TIMES * limit_s * 1e9);
    enum log_level level = t->engine->log.level;
    size_t room = memory_available(NULL);
    int rc = OK;
    choose_seconds(t, limit_s);
    if (level < LOG_WARN)
        t->engine->log.level = LOG_WARN;
    for (size_t i = 0; rc == OK && i < t->count; i++) {
        struct plan_trial *trial = &t->trial[i];
        if (is_interrupted(t))
            break;
        if (room > 0 && trial->bytes > room)
            set_note(
                trial,
                "not simulated: its vectors need about %.1f GB, and %.1f GB of memory are free",
                (double)trial->bytes * 1e-9, (double)room * 1e-9);
        else
            rc = simulate_trial(t, i, until);
    }
    t->engine->log.level = level;
    t->interrupted = is_interrupted(t);
    return rc;
}
