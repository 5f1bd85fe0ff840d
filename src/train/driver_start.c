/* Begins the run: starts the model writer, and the driver part where the strategy has one. */
#include "tensor/kernels.h"
#include "train/driver.h"

/* The model writer asks this before it writes. */
static bool is_replaced(void *user)
{
    return driver_replaced(user);
}

/* ---- the model writer ---- */

/* Of asynchronous strategies: the summed progress. */
static void where_all_are(void *user, struct progress *progress)
{
    const struct driver *d = user;
    progress->sample_offset = atomic_load(&d->sample_offset);
    progress->steps = atomic_load(&d->steps);
    progress->exchanges = atomic_load(&d->exchanges);
}

/* The summed progress at the last model request. */
static void where_all_were(void *user, struct progress *progress)
{
    const struct driver *d = user;
    progress->sample_offset = atomic_load(&d->requested_offset);
    progress->steps = atomic_load(&d->requested_steps);
    progress->exchanges = atomic_load(&d->requested_exchanges);
}

/* Where the driver has a part, only its model counts. Otherwise any member may send a model for an
 * evaluation, and only the requested member a checkpoint's or the final one. */
static uint32_t allowed_uses(void *user, uint32_t node, uint32_t uses)
{
    const struct driver *d = user;
    const struct view *view = group_view(&d->group);
    if (!d->traits.workers_hold_model)
        return node == WORLD_DRIVER ? uses : 0;
    if (!view || view_rank(view, node) < 0)
        return 0;
    if (node != atomic_load(&d->checkpoint_of))
        uses &= ~(uint32_t)MODEL_CHECKPOINT;
    if (node != atomic_load(&d->model_of))
        uses &= ~(uint32_t)MODEL_FINAL;
    return uses;
}

static void on_error_reached(void *user)
{
    driver_request_stop(user, "error");
}

static int start_model_writer(struct driver *d)
{
    struct model_writer *k = &d->model_writer;
    k->world = d->world;
    k->log = d->host->log;
    k->events = &d->events;
    k->dir = d->options->dir;
    k->keep = d->job->checkpoint->keep;
    k->fallbacks = d->options->fallbacks;
    k->stop = d->options->stop;
    k->wait_s = d->job->checkpoint->wait_seconds;
    k->layout = d->layout;
    k->reached = on_error_reached;
    k->replaced = is_replaced;
    k->allowed = allowed_uses;
    k->free = d->traits.is_async;
    k->where = k->free && d->traits.workers_hold_model ? where_all_were : NULL;
    k->user = d;
    k->header = (struct checkpoint_header){
        .seed = d->job->seed,
        .job_hash = d->own.job_hash,
        .data_hash = d->own.records.hash,
        .records = d->corpus->set[SET_TRAIN].count,
        .incarnation = d->term.incarnation,
    };
    driver_update_model_writer(d);
    objectives_init(&k->objectives, d->world, d->job, d->corpus, d->ws, &d->events,
                    d->host->step_seconds);
    k->objectives.stop = d->options->stop;
    if (d->resumed_run)
        k->objectives.best_score = d->resumed.best_score;
    if (d->job->evaluate->at_start && !d->resumed_run)
        k->first = &d->initial;
    int rc = model_writer_init(k, &d->arena);
    return rc == OK ? model_writer_start(k) : rc;
}

/* ---- the strategy's part ---- */

/* The driver's model has changed in an asynchronous strategy: the main task has the progress and
 * the uses that are due. */
static int on_async_change(struct driver *d, struct driver_part *l)
{
    uint32_t uses = atomic_load(&d->model_uses);
    where_all_are(d, &l->progress);
    if (uses && publisher_start(&d->to_model_writer, &l->progress, uses, &l->model))
        atomic_fetch_and(&d->model_uses, ~uses);
    return OK;
}

static int on_driver_part_commit(struct driver_part *l, const struct exchange *e)
{
    struct driver *d = l->train;
    if (!e)
        return on_async_change(d, l);
    l->progress.samples_used += exchange_result_meta(e)->samples;
    bool last = strategy_done(l->job, &l->progress, l->records);
    uint32_t use = trigger_uses(d->job, d->evaluate_every, &d->last_commit, &l->progress);
    uint32_t uses = atomic_load(&d->model_uses);
    atomic_fetch_or(&d->model_uses, use & MODEL_SNAPSHOT); /* a snapshot waits for the next copy */
    d->last_commit = l->progress;
    use |= uses;
    if (use && !last && !d->traits.workers_hold_model &&
        publisher_start(&d->to_model_writer, &l->progress, use, &l->model))
        atomic_fetch_and(&d->model_uses, ~use);
    return exchange_meta_ends_run(exchange_result_meta(e)) ? ERR_STOP : OK;
}

static int hand_over_final(struct driver *d)
{
    struct driver_part *l = &d->driver_part;
    if (d->traits.workers_hold_model)
        return OK;
    if (d->traits.is_async)
        where_all_are(d, &l->progress);
    atomic_store(&d->handing_over, true);
    int rc = publisher_finish(&d->to_model_writer, WORLD_FOREVER);
    if (rc == OK && !publisher_start(&d->to_model_writer, &l->progress, MODEL_FINAL, &l->model))
        rc = ERR_NOMEM;
    return rc == OK ? publisher_finish(&d->to_model_writer, WORLD_FOREVER) : rc;
}

/* The loop has ended, but members of a new view may lack the last result. So this part keeps the
 * lanes in line until the run is over and the task is cancelled. */
static int drain_lanes(struct driver_part *l)
{
    for (;;) {
        uint64_t seen = world_raised(l->world, SIGNAL_GROUP);
        int rc = OK;
        for (size_t i = 0; rc == OK && i < l->lanes.count; i++)
            rc = exchange_sync(l->lanes.at[i]);
        struct wait_for change = {.kind = WAIT_SIGNAL, .signal = SIGNAL_GROUP, .seen = seen};
        struct wake wake;
        if (rc == OK)
            rc = world_wait(l->world, &change, 1, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc == ERR_CANCELLED ? OK : rc;
    }
}

static int driver_part_main(void *arg)
{
    struct driver *d = arg;
    kernels_set_threads((int)d->job->threads);
    int rc = d->strategy->driver(&d->driver_part);
    if (rc == OK)
        rc = hand_over_final(d);
    return rc == OK ? drain_lanes(&d->driver_part)
                    : rc; /* the main task (driver.c) sees the error and ends the run */
}

static int start_driver_part(struct driver *d, const struct view *view)
{
    d->driver_part = (struct driver_part){
        .world = d->world,
        .group = &d->group,
        .log = d->host->log,
        .job = d->job,
        .table = d->layout.x,
        .arena = &d->arena,
        .records = d->corpus->set[SET_TRAIN].count,
        .progress = d->resumed.progress,
        .untaken = d->untaken,
        .resumed = d->start,
        .on_commit = on_driver_part_commit,
        .train = d,
    };
    bool back = view->number > 1;
    d->driver_part.lanes.needs_sync = back;
    d->driver_part.recovered = back && d->recovery_reported ? d->recovery_join_state : NULL;
    if (!back)
        d->driver_part.progress.sharers = view_members(view);
    if (vec_init(&d->driver_part.x, &d->arena, d->x.n) != OK ||
        vec_init(&d->driver_part.s, &d->arena, d->s.n) != OK ||
        publisher_init(&d->to_model_writer, d->world, WORLD_DRIVER, model_floats_most(&d->layout),
                       d->layout.extras, &d->arena) != OK)
        return ERR_NOMEM;
    vec_copy(&d->driver_part.x, &d->x, vec_all(&d->x));
    vec_copy(&d->driver_part.s, &d->s, vec_all(&d->s));
    d->driver_part.model = (struct global_model){.x = &d->driver_part.x, .s = &d->driver_part.s};
    return world_spawn(d->world, "leader", driver_part_main, d, &d->driver_part_task);
}

/* Serve the initial state to workers, where they do not draw it from the seed. */
static int start_bootstrap_server(struct driver *d)
{
    const struct global_model *start = &d->start;
    size_t extras = start->extra ? d->layout.extras : 0;
    d->bootstrap_server = (struct bootstrap_server){
        .group = &d->group,
        .message = {.progress = d->resumed.progress,
                    .has_state = start->states > 0,
                    .has_extra = extras > 0,
                    .floats = d->s.n + d->x.n * (1 + start->states + extras),
                    .updates = start->updates},
        .vectors = d->start_model,
    };
    return bootstrap_serve(&d->bootstrap_server);
}

int driver_start(struct driver *d, const struct view *view)
{
    if (view->number > 1)
        driver_resume_with(d, view);
    else if (!d->leases.opened && d->traits.takes_leases)
        lease_server_begin(&d->leases, view);
    driver_report_departed(d);
    d->begun = true;
    int rc = OK;
    if (d->options->trace)
        rc = tracer_start(&d->tracer, d->world, d->options->trace, d->events.start, d->joined_at);
    if (rc == OK && d->start_model) /* members may have sent their requests already */
        rc = start_bootstrap_server(d);
    if (rc == OK)
        rc = start_model_writer(d);
    if (rc == OK && d->traits.driver_part)
        rc = start_driver_part(d, view);
    return rc == OK ? OK : err_set(d->err, rc, "the run cannot start: %s", status_text(rc));
}
