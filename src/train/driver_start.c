/* Begins the run: starts the model writer, and the driver part where the strategy has one. */
#include "tensor/kernels.h"
#include "train/driver.h"

/* The model writer asks this before it writes. */
static bool is_replaced(void *user)
{
    return driver_replaced(user);
}

/* ---- the model writer ---- */

/* Where the driver has a part, only its model counts. Otherwise any member may send a model for an
 * evaluation, and only the requested member a checkpoint's or the final one. */
static uint32_t allowed_uses(void *user, uint32_t node, uint32_t uses)
{
    const struct driver *d = user;
    const struct view *view = group_view(&d->group);
    if (uses == MODEL_STREAMS)
        return 0; /* they are no model */
    if (!d->traits.workers_hold_model)
        return node == WORLD_DRIVER ? uses : 0;
    if (!view || view_rank(view, node) < 0)
        return 0;
    if (node != atomic_load(&d->requests.checkpoint_of))
        uses &= ~(uint32_t)MODEL_CHECKPOINT;
    if (node != atomic_load(&d->requests.final_of))
        uses &= ~(uint32_t)MODEL_FINAL;
    bool kept = uses & (MODEL_CHECKPOINT | MODEL_FINAL);
    return kept ? uses : uses & ~(uint32_t)MODEL_STREAMS;
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
    k->group = &d->group;
    k->slices = d->job->slices;
    k->reached = on_error_reached;
    k->replaced = is_replaced;
    k->allowed = allowed_uses;
    k->may_differ = d->progress->asynchronous;
    k->where = d->traits.workers_hold_model ? d->progress->behind_model : NULL;
    k->user = d;
    k->header = (struct checkpoint_header){
        .seed = d->job->seed,
        .job_hash = d->membership.own.job_hash,
        .data_hash = d->membership.own.records.hash,
        .records = d->data.epoch_records,
        .incarnation = d->claim.term.incarnation,
    };
    driver_update_model_writer(d);
    objectives_init(&k->objectives, d->world, d->job, d->data.corpus, d->data.ws, &d->events,
                    d->host->step_seconds);
    k->objectives.epoch_records = d->data.epoch_records;
    k->objectives.stop = d->options->stop;
    k->objectives.most = d->options->evaluate_records;
    if (d->start.resumes)
        k->objectives.best_score = d->start.resumed.best_score;
    if (d->job->evaluate->at_start && !d->start.resumes && k->slices == 1)
        k->first = &d->start.initial;
    int rc = objectives_open_text(&k->objectives, d->host->log, d->err);
    if (rc == OK)
        rc = model_writer_init(k, &d->arena);
    return rc == OK ? model_writer_start(k) : rc;
}

/* ---- the strategy's part ---- */

/* The loop has ended, but members of a new view may lack the last result. So this part keeps the
 * lanes in line until `done` is set, or the task is cancelled. */
static int drain_lanes(struct driver_part *l, const atomic_bool *done)
{
    for (;;) {
        const struct wait_for change = wait_signal(l->world, SIGNAL_GROUP);
        int rc = OK;
        if (done && atomic_load(done))
            return OK;
        for (size_t i = 0; rc == OK && i < l->lanes.count; i++)
            rc = exchange_sync(l->lanes.at[i]);
        struct wake wake;
        if (rc == OK)
            rc = world_wait(l->world, &change, 1, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
    }
}

/* Wait until the books of the final model are complete; those of asynchronous strategies are, since
 * their part ends after all workers. */
static int await_counts(struct driver *d)
{
    return d->job->local_data && !d->progress->asynchronous
               ? drain_lanes(&d->part.driver, &d->ending.counted)
               : OK;
}

static int hand_over_final(struct driver *d)
{
    struct driver_part *l = &d->part.driver;
    if (d->traits.workers_hold_model)
        return OK;
    l->progress = d->progress->of_part(d);
    atomic_store(&d->ending.handing_over, true);
    int rc = await_counts(d);
    if (rc == OK)
        rc = publisher_finish(&d->part.publisher, WORLD_FOREVER);
    uint32_t use = MODEL_FINAL | (l->keeps_streams ? MODEL_STREAMS : 0u);
    if (rc == OK && !publisher_start(&d->part.publisher, &l->progress, use, &l->model))
        rc = ERR_NOMEM;
    return rc == OK ? publisher_finish(&d->part.publisher, WORLD_FOREVER) : rc;
}

static int driver_part_main(void *arg)
{
    struct driver *d = arg;
    kernels_set_threads((int)d->job->threads);
    int rc = d->strategy->driver(&d->part.driver);
    if (rc == OK)
        rc = hand_over_final(d);
    if (rc != OK)
        return rc; /* the main task (driver.c) sees the error and ends the run */
    rc = drain_lanes(&d->part.driver, NULL);
    return rc == ERR_CANCELLED ? OK : rc;
}

static void report_machine(struct driver_part *l, const struct machine *machine)
{
    const struct driver *d = l->train;
    cJSON *event = events_new(&d->events, "machine");
    cJSON_AddNumberToObject(event, "node", events_node(machine->node));
    if (machine->node != WORLD_DRIVER && d->membership.location[machine->node].host[0])
        cJSON_AddStringToObject(event, "host", d->membership.location[machine->node].host);
    if (machine->step_s > 0)
        cJSON_AddNumberToObject(event, "step_s", machine->step_s);
    cJSON_AddNumberToObject(event, "mbit", machine->link_rate * 8e-6);
    cJSON_AddNumberToObject(event, "latency_us", machine->latency_s * 1e6);
    events_emit(&d->events, event);
}

static bool checkpoint_due(const struct driver_part *l)
{
    const struct driver *d = l->train;
    return atomic_load(&d->requests.uses) & MODEL_CHECKPOINT;
}

static int start_driver_part(struct driver *d, const struct view *view)
{
    d->part.driver = (struct driver_part){
        .world = d->world,
        .group = &d->group,
        .log = d->host->log,
        .job = d->job,
        .table = d->layout.x,
        .arena = &d->arena,
        .records = d->data.epoch_records,
        .progress = d->start.resumed.progress,
        .untaken = d->recovery.untaken,
        .resumed = d->start.model,
        .lanes = {.on_view = driver_on_part_view, .user = d},
        .on_commit = d->progress->on_part_commit,
        .checkpoint_due = checkpoint_due,
        .keeps_streams = driver_keeps_streams(d),
        .on_machine = report_machine,
        .train = d,
    };
    bool back = view->number > 1;
    d->part.driver.lanes.needs_sync = back;
    d->part.driver.recovered = back && d->recovery.has_join_state ? d->recovery.join_state : NULL;
    if (!back)
        d->part.driver.progress.sharers = view_members(view);
    struct driver_part *part = &d->part.driver;
    if (vec_init_model(&part->both, &part->x, &part->s, &d->arena, d->start.x.n, d->start.s.n) !=
            OK ||
        publisher_init(&d->part.publisher, d->world, WORLD_DRIVER, model_floats_most(&d->layout),
                       d->layout.extras, &d->arena) != OK)
        return ERR_NOMEM;
    vec_copy(&part->both, &d->start.both, vec_all(&part->both));
    part->model = (struct global_model){.x = &part->x, .s = &part->s};
    return world_spawn(d->world, "leader", driver_part_main, d, &d->part.task);
}

/* Serve the initial state to workers, where they do not draw it from the seed. */
static int start_bootstrap_server(struct driver *d)
{
    const struct global_model *start = &d->start.model;
    size_t extras = start->extra ? d->layout.extras : 0;
    d->start.server = (struct bootstrap_server){
        .group = &d->group,
        .message = {.progress = d->start.resumed.progress,
                    .has_state = start->states > 0,
                    .has_extra = extras > 0,
                    .has_carried = d->layout.has_carried,
                    .floats = model_floats(&d->layout),
                    .updates = start->updates},
        .vectors = d->start.floats,
        .ranges = d->start.ranges,
    };
    return bootstrap_serve(&d->start.server);
}

int driver_start(struct driver *d, const struct view *view)
{
    int shared = driver_check_shares(d, view);
    if (shared != OK)
        return shared;
    if (view->number > 1)
        driver_resume_with(d, view);
    else if (!d->leases.opened && d->traits.takes_leases)
        lease_server_begin(&d->leases, view);
    driver_report_departed(d);
    d->counts.begun = true;
    int rc = OK;
    if (d->options->trace)
        rc = tracer_start(&d->reports.tracer, d->world, d->options->trace, d->events.start,
                          d->reports.joined_at);
    if (rc == OK &&
        (d->start.floats || d->start.ranges)) /* members may have sent their requests already */
        rc = start_bootstrap_server(d);
    if (rc == OK)
        rc = start_model_writer(d);
    if (rc == OK && d->traits.driver_part)
        rc = start_driver_part(d, view);
    return rc == OK ? OK : err_set(d->err, rc, "the run cannot start: %s", status_text(rc));
}
