/* A run that pauses while it has fewer workers than the job's pause_below. Its members stop and
 * continue by themselves (worker_pause.h); the driver reports it, has the model written, and ends a
 * pause that lasts too long. */
#include "base/plural.h"
#include "train/driver.h"
#include "train/driver_stop.h"

#define ASK_AGAIN_S 2 /* until another member is asked for the checkpoint */

static void report_pause(struct driver *d, const struct view *view)
{
    uint32_t needed = d->job->pause_below;
    cJSON *event = events_new(&d->events, "paused");
    cJSON_AddNumberToObject(event, "workers", (double)view->count);
    cJSON_AddNumberToObject(event, "needed", needed);
    events_add_measure(event, "patience_s", d->job->pause_patience_seconds);
    events_emit(&d->events, event);
    log_warn(d->host->log,
             "the run pauses: it has %zu worker%s, and pause_below is %u"
             "; it waits %.0f s for more",
             view->count, plural(view->count, "s"), needed, d->job->pause_patience_seconds);
}

static void report_end(struct driver *d, const struct view *view, double paused_s)
{
    cJSON *event = events_new(&d->events, "resumed");
    cJSON_AddNumberToObject(event, "workers", (double)view->count);
    events_add_measure(event, "paused_s", paused_s);
    events_emit(&d->events, event);
    log_info(d->host->log, "the run continues with %zu worker%s after a pause of %.1f s",
             view->count, plural(view->count, "s"), paused_s);
}

/* The driver part waits in an exchange, and its model stays. */
void driver_on_part_view(void *driver)
{
    struct driver *d = driver;
    struct driver_part *l = &d->part.driver;
    size_t count = group_view(&d->group)->count;
    if (!d->options->dir || !d->job->has_pause_below || count == 0 || count >= d->job->pause_below)
        return;
    if (!publisher_start(&d->part.publisher, &l->progress, MODEL_CHECKPOINT, &l->model))
        atomic_fetch_or(&d->requests.uses, MODEL_CHECKPOINT);
}

/* The model is written at once. A member that was asked for it may wait in an exchange, so another
 * one is asked when it does not reply. */
static void request_checkpoint(struct driver *d, const struct view *view, double t)
{
    const struct model_requests *requests = &d->requests;
    bool first = d->pause.asked < d->pause.since;
    bool written = atomic_load(&d->model_writer.taken) != requests->taken_before;
    bool part = !d->traits.workers_hold_model;
    if (!d->options->dir || (!first && (part || written || t < d->pause.asked + ASK_AGAIN_S)))
        return;
    uint32_t last = atomic_load(&requests->checkpoint_of);
    if (part)
        driver_request_model(d, MODEL_CHECKPOINT);
    else
        driver_request_model_of(d, first ? view->node[0] : view_after(view, last),
                                MODEL_CHECKPOINT);
    world_raise(d->world, SIGNAL_GROUP); /* the part may wait for nothing else */
    d->pause.asked = d->requests.checkpoint_at = t;
}

static int give_up(struct driver *d, const struct view *view)
{
    uint32_t needed = d->job->pause_below;
    if (d->traits.workers_hold_model && driver_fetch_model(d) == ERR_CANCELLED)
        return err_set(d->err, ERR_CANCELLED, "the driver was cancelled");
    return err_set(d->err, ERR_PEER,
                   "the run has paused for %.0f s (pause_patience_seconds): it has %zu worker%s, "
                   "and pause_below is %u; %s",
                   d->job->pause_patience_seconds, view->count, plural(view->count, "s"), needed,
                   d->options->dir ? "its state is kept, and paceline resume continues from it "
                                     "when there are workers enough"
                                   : "without a run directory its state is lost");
}

int driver_check_pause(struct driver *d, const struct view *view)
{
    struct run_pause *pause = &d->pause;
    double t = events_seconds(&d->events);
    bool below = d->job->has_pause_below && view->count < d->job->pause_below;
    if (d->ending.stop_sent > 0 || view->count == 0 || driver_all_done(d, view))
        return OK;
    if (below && !pause->on) {
        *pause = (struct run_pause){.on = true, .since = t, .asked = -1};
        report_pause(d, view);
    } else if (!below && pause->on) {
        pause->on = false;
        report_end(d, view, t - pause->since);
    }
    if (!pause->on)
        return OK;
    request_checkpoint(d, view, t);
    return t - pause->since < d->job->pause_patience_seconds ? OK : give_up(d, view);
}
