#include "train/progress.h"

#define PROGRESS_EVERY_S 0.1

bool progress_due(struct progress_meter *meter, const struct events *events,
                  const struct ledger *ledger, const Paceline__Job *job, size_t records,
                  struct train_progress *out)
{
    const struct committed *last = &ledger->last;
    double t = events_seconds(events);
    if (t < meter->next || last->course.place == meter->place)
        return false;
    double rate = (double)(last->course.place - meter->place) / (t - meter->t);
    meter->rate = meter->rate > 0 ? 0.8 * meter->rate + 0.2 * rate : rate;
    meter->next = t + PROGRESS_EVERY_S;
    meter->t = t;
    meter->place = last->course.place;
    double end = job->stop->has_epochs ? job->stop->epochs * (double)records : 0;
    double left = end - (double)meter->place;
    *out = (struct train_progress){
        .t = t,
        .epoch = (double)meter->place / (double)records,
        .epochs = job->stop->has_epochs ? job->stop->epochs : 0,
        .steps = last->course.steps,
        .loss = ledger->loss,
        .samples_per_s = meter->rate,
        .exchange_s = last->cost.seconds,
        .slowest = last->n > 0 ? ledger->slowest : WORLD_ANY,
        .eta_s = end > 0 ? (left > 0 ? left / meter->rate : 0) : -1,
    };
    return true;
}
