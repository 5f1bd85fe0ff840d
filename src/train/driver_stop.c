/* A request to stop the run: at the next commit point, or at once. */
#include "train/driver_stop.h"

#define MODEL_WAIT (2 * WORLD_SECOND) /* ns to wait for a worker's model at a stop at once */

static int read_stop(const struct driver *d)
{
    return d->options->stop ? atomic_load(d->options->stop) : 0;
}

/* Does the driver's part of the strategy hold the global model? */
static bool has_model(const struct driver *d)
{
    return d->part.task && !d->traits.workers_hold_model;
}

void driver_record_commit(struct driver *d, const struct progress *progress)
{
    int64_t now = world_now(d->world);
    uint64_t n = d->progress->commits(progress);
    if (n <= d->counts.commits)
        return;
    if (d->counts.commits > 0) {
        int64_t each = (now - d->counts.commit_at) / (int64_t)(n - d->counts.commits);
        d->counts.commit_every =
            d->counts.commit_every > 0 ? (3 * d->counts.commit_every + each) / 4 : each;
    }
    d->counts.commits = n;
    d->counts.commit_at = now;
}

/* How long until the next commit point, seconds; < 0: unknown. */
static double commit_seconds(const struct driver *d)
{
    int64_t at = d->counts.commit_every > 0 ? d->counts.commit_at + d->counts.commit_every
                 : d->counts.commits == 0   ? d->counts.first_exchange_at
                                            : 0;
    int64_t left = at - world_now(d->world);
    return at == 0 ? -1 : left > 0 ? world_seconds(left) : 0;
}

/* The newest state that a stop at once would keep. */
static void find_state(const struct driver *d, struct train_stopping *out)
{
    const struct model_writer *k = &d->model_writer;
    int64_t at = d->start.resumes ? d->events.start : -1;
    out->exchanges = d->start.resumed.progress.exchanges;
    if (atomic_load(&k->kept_at) > 0) {
        at = atomic_load(&k->kept_at);
        out->exchanges = atomic_load(&k->kept_exchanges);
    }
    if (has_model(d) && d->counts.commit_at > 0 && d->counts.commit_at > at) {
        at = d->counts.commit_at;
        out->exchanges = d->ledger.last.progress.exchanges;
    }
    out->state_age_s = at < 0 ? -1 : world_seconds(world_now(d->world) - at);
    out->initial = at < 0 && has_model(d);
    out->requests = d->traits.workers_hold_model;
}

static void report_stopping(struct driver *d, const struct train_stopping *news)
{
    if (d->options->stopping)
        d->options->stopping(d->options->user, news);
}

int driver_check_early_stop(struct driver *d)
{
    if (read_stop(d) == 0)
        return OK;
    if (d->start.resumes)
        return err_set(d->err, ERR_STOP,
                       "interrupted before training continued; the state of exchange %llu is kept",
                       (unsigned long long)d->start.resumed.progress.exchanges);
    return err_set(d->err, ERR_STOP, "interrupted before training began");
}

void driver_check_stop(struct driver *d, const struct view *view)
{
    const Paceline__Stop *stop = d->job->stop;
    if (read_stop(d) > 0 && !d->ending.stop_reported) {
        d->ending.stop_reported = true;
        struct train_stopping news = {.stage = STOPPING_SOON, .commit_s = commit_seconds(d)};
        find_state(d, &news);
        if (!atomic_load(&d->model_writer.here))
            report_stopping(d, &news);
        driver_request_stop(d, "interrupted");
    }
    if (stop->has_seconds && events_seconds(&d->events) >= stop->seconds)
        driver_request_stop(d, "seconds");
    if ((atomic_load(&d->ending.reason) || d->counts.complete) &&
        d->ending.stop_sent < view->number) {
        atomic_store(&d->group.stop, true);
        d->ending.stop_sent = driver_send_to_all(d, WIRE_STOP, NULL) ? view->number : 0;
    }
}

bool driver_stops_now(const struct driver *d)
{
    return read_stop(d) > 1 && !atomic_load(&d->model_writer.here);
}

int driver_fetch_model(struct driver *d)
{
    int64_t until = world_now(d->world) + MODEL_WAIT;
    uint64_t taken = atomic_load(&d->model_writer.taken);
    int rc = OK;
    driver_request_model(d, MODEL_CHECKPOINT | MODEL_URGENT);
    while (rc == OK && d->model_writer.task && atomic_load(&d->model_writer.taken) == taken &&
           world_now(d->world) < until && group_view(&d->group)->count > 0)
        rc = driver_turn(d);
    return rc;
}

/* End the other tasks, so that this one owns all state, and write the newest model unless the
 * newest checkpoint is as new. Returns its path; NULL: none was kept. */
static const char *save_state(struct driver *d)
{
    struct model_writer *k = &d->model_writer;
    struct driver_part *l = &d->part.driver;
    bool whole = !l->lanes.needs_sync || d->counts.commits > 0;
    world_end_task(d->world, &d->part.task);
    world_end_task(d->world, &k->task);
    if (l->model.x && whole && !d->traits.workers_hold_model) {
        driver_snapshot_books(d, false);
        l->progress = d->progress->of_part(d);
        model_writer_keep(k, &l->progress, &l->model, d->layout.extras);
    }
    return model_writer_save_kept(k);
}

void driver_keep_state(struct driver *d, int rc)
{
    bool sound = rc != ERR_FENCED && rc != ERR_CANCELLED && rc != ERR_DIVERGED &&
                 rc != ERR_REPLICAS && rc != ERR_BUG;
    if (rc != OK && sound && d->model_writer.landing && d->counts.commits > 0)
        save_state(d);
}

int driver_stop_now(struct driver *d)
{
    const struct model_writer *k = &d->model_writer;
    struct train_stopping news = {.stage = STOPPING_NOW};
    find_state(d, &news);
    report_stopping(d, &news);
    if (news.requests && driver_fetch_model(d) == ERR_CANCELLED)
        return ERR_CANCELLED;
    find_state(d, &news);
    const char *path = save_state(d);
    news.stage = STOPPING_DONE;
    news.path = path ? path : "";
    news.exchanges = path ? k->at.exchanges : news.exchanges;
    news.initial = path && k->at.sample_offset == 0;
    report_stopping(d, &news);
    driver_request_stop(d, "interrupted");
    return OK;
}
