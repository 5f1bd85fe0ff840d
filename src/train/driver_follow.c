/* The number of workers follows the batch (Elastic, Algorithm 8): the driver's side of the models
 * in plan/follow_batch.h and plan/run_model.h. */
#include "plan/follow_batch.h"
#include "train/driver.h"

#include <math.h>

/* A change that is not complete after this time, because workers cannot be had or do not leave, is
 * given up, and the next one begins from the number that there is. */
#define CHANGE_LIMIT_S 60

bool driver_overlaps(const struct driver *d)
{
    return d->job->strategy->algorithm_case == PACELINE__STRATEGY__ALGORITHM_ASYNC_ALLREDUCE;
}

/* The job's model of a step, or the measured one, which may be tried with twice as many workers as
 * it has seen. Where a strategy exchanges once in several steps, each step has its part of the
 * exchange. */
static struct follow_batch follow_rule(const struct driver *d)
{
    const Paceline__FollowBatch *f = d->job->follow_batch;
    double steps = (double)d->traits.round;
    struct follow_batch rule = {
        .model = {driver_overlaps(d) ? SCALING_ASYNC : SCALING_SYNC, f->samples_per_s,
                  f->exchange_s / steps, f->exchange_s_per_worker / steps},
        .ratio = f->has_ratio ? f->ratio : 0,
        .printed = f->ratio_form == PACELINE__FOLLOW_BATCH__RATIO_FORM__printed,
        .change_s = f->change_s,
        .gain = f->gain,
        .least = d->job->workers_min,
        .most = job_workers_max(d->job),
    };
    if (f->has_samples_per_s)
        return rule;
    size_t tried = 2 * run_model_reach(&d->membership.measured);
    run_model_fit(&d->membership.measured, &rule);
    rule.most = tried < rule.least ? rule.least : tried < rule.most ? tried : rule.most;
    return rule;
}

/* Samples until the run's end, by its epochs or steps. */
static double samples_left(const struct driver *d, uint64_t batch)
{
    const struct progress *progress = &d->ledger.last.progress;
    const Paceline__Stop *stop = d->job->stop;
    double left = 1e18;
    if (stop->has_epochs)
        left = stop->epochs * (double)d->data.epoch_records - (double)progress->sample_offset;
    if (stop->has_steps)
        left = fmin(left, ((double)stop->steps - (double)progress->steps) * (double)batch);
    return left > 0 ? left : 0;
}

static void report_change(struct driver *d, const struct view *view, uint64_t batch,
                          const struct follow_batch *rule)
{
    const struct progress *progress = &d->ledger.last.progress;
    cJSON *event = events_new(&d->events, "want_workers");
    events_add_measure(event, "epoch",
                       (double)progress->sample_offset / (double)d->data.epoch_records);
    cJSON_AddNumberToObject(event, "step", (double)progress->steps);
    cJSON_AddNumberToObject(event, "batch", (double)batch);
    cJSON_AddNumberToObject(event, "workers", d->membership.followed);
    cJSON_AddNumberToObject(event, "of", (double)view->count);
    events_add_measure(event, "samples_per_s", rule->model.gamma);
    events_add_measure(event, "step_s", rule->fixed_s);
    events_add_measure(event, "exchange_s", rule->model.alpha);
    events_add_measure(event, "exchange_s_per_worker", rule->model.beta);
    events_emit(&d->events, event);
}

uint32_t driver_follow_batch(struct driver *d, const struct view *view)
{
    struct membership *m = &d->membership;
    double t = events_seconds(&d->events);
    bool settled = view->count == m->followed || t > m->followed_at + CHANGE_LIMIT_S;
    if (!d->job->follow_batch || view->count == 0 || d->ending.stop_sent ||
        (m->followed > 0 && !settled) ||
        (d->ledger.measured && !run_model_is_settled(&m->measured, view->count)))
        return m->followed;
    const struct follow_batch rule = follow_rule(d);
    uint64_t batch = driver_batch(d);
    uint32_t before = m->followed > 0 ? m->followed : (uint32_t)view->count;
    uint32_t n =
        (uint32_t)follow_batch_workers(&rule, (double)batch, samples_left(d, batch), view->count);
    bool changes = n != before;
    m->followed = n;
    if (changes) {
        m->followed_at = t;
        report_change(d, view, batch, &rule);
    }
    return n;
}
