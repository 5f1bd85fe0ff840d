#include "train/progress_meter.h"

#define PROGRESS_EVERY_S 0.1
#define PROGRESS_LEAST_S 1.0

bool progress_meter_poll(struct progress_meter *meter, const struct events *events,
                         const struct ledger *ledger, const Paceline__Job *job, size_t records,
                         struct train_progress *out)
{
    const struct committed *last = &ledger->last;
    double t = events_seconds(events);
    bool moved = last->progress.sample_offset != meter->offset;
    if (t < meter->next || (!moved && t < meter->reported + PROGRESS_LEAST_S))
        return false;
    meter->next = t + PROGRESS_EVERY_S;
    meter->reported = t;
    if (moved) {
        double rate = (double)(last->progress.sample_offset - meter->offset) / (t - meter->t);
        meter->rate = meter->rate > 0 ? 0.8 * meter->rate + 0.2 * rate : rate;
        meter->t = t;
        meter->offset = last->progress.sample_offset;
    }
    double end = job->stop->has_epochs ? job->stop->epochs * (double)records : 0;
    double left = end - (double)meter->offset;
    *out = (struct train_progress){
        .t = t,
        .epoch = (double)meter->offset / (double)records,
        .epochs = job->stop->has_epochs ? job->stop->epochs : 0,
        .steps = last->progress.steps,
        .loss = ledger->loss,
        .samples_per_s = meter->rate,
        .exchange_s = last->cost.seconds,
        .slowest = last->n > 0 ? ledger->slowest : WORLD_ANY,
        .eta_s = end > 0 && meter->rate > 0 ? (left > 0 ? left / meter->rate : 0) : -1,
        .first_exchange_s = -1,
    };
    return true;
}

void progress_meter_add_local(struct progress_meter *meter, uint64_t steps, uint64_t round,
                              double loss, struct train_progress *p)
{
    if (steps == 0)
        return;
    p->local_steps = steps;
    p->loss = loss;
    if (meter->local_steps == 0) {
        meter->local_t = p->t;
        meter->local_steps = steps;
    } else if (steps > meter->local_steps && steps <= round) {
        double step_s = (p->t - meter->local_t) / (double)(steps - meter->local_steps);
        p->first_exchange_s = (double)(round - steps) * step_s;
    }
}
