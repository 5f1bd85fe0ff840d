#include "train/work_progress.h"

#include "train/worker.h"

#include <math.h>

#define REPORT_EVERY (WORLD_SECOND / 4)

void worker_show(struct worker *w, enum work_stage stage)
{
    const struct work_watch *watch = w->host->work;
    struct work_meter *meter = &w->meter;
    const struct view *view = w->group.world ? group_view(&w->group) : NULL;
    int64_t now = world_now(w->world);
    if (!watch)
        return;
    meter->steps = atomic_load(&w->group.work.progress);
    double seconds = world_seconds(now - meter->reported);
    double samples = (double)(w->learner.samples - meter->reported_samples);
    const struct work_progress progress = {
        .stage = stage,
        .run = w->job->name,
        .self = w->world->self,
        .workers = view ? (uint32_t)view->count : 0,
        .steps = meter->steps,
        .loss = meter->loss_steps > 0 ? meter->loss / (double)meter->loss_steps : (double)NAN,
        .samples_per_s = meter->reported > 0 && seconds > 0 ? samples / seconds : 0,
        .reason = w->group.end.reason,
    };
    meter->reported = now;
    meter->reported_samples = w->learner.samples;
    meter->loss_steps = 0;
    meter->loss = 0;
    watch->progress(watch->user, &progress);
}

void worker_show_step(struct worker *w)
{
    struct work_meter *meter = &w->meter;
    uint64_t steps = atomic_load(&w->group.work.progress);
    if (!w->host->work || steps == meter->steps)
        return;
    meter->steps = steps;
    meter->loss_steps++;
    meter->loss += w->learner.loss;
    if (world_now(w->world) >= meter->reported + REPORT_EVERY)
        worker_show(w, WORK_TRAINING);
}
