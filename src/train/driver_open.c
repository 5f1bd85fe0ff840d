#include "base/printable.h"
#include "job/text.h"
#include "model/load.h"
#include "tensor/kernels.h"
#include "train/driver.h"
#include "train/origin.h"
#include "wire/post.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

bool train_workers_speak(const Paceline__Job *job, const struct strategy_ops *strategy)
{
    return !strategy_leads(strategy, job) ||
           (job_is_alone(job) && !strategy_runs_free(strategy, job));
}

/* ---- what the group's server asks of us, on its task ---- */

/* It waits for what it cannot be sent: it is better told so, by being let go. */
static void let_go(struct driver *d, uint32_t node, const char *what, int rc)
{
    log_warn(d->host->log, "worker %u: no %s for it: %s", node, what, status_text(rc));
    world_peer_drop(d->world, node);
}

static void on_arrived(void *user, uint32_t node)
{
    struct driver *d = user;
    atomic_store(&d->stirred, world_now(d->world));
    const struct buf *welcome = group_view(&d->group) ? &d->welcome_late : &d->welcome;
    int rc = driver_send(d, node, WIRE_WELCOME, welcome);
    if (rc != OK && rc != ERR_PEER)
        let_go(d, node, "welcome", rc);
}

static int on_hello(void *user, uint32_t node, const void *bytes, size_t len, char *address,
                    struct err *err)
{
    struct driver *d = user;
    struct cut in = {bytes, len, false};
    struct hello hello;
    if (hello_read(&in, &hello) != OK)
        return err_set(err, ERR_PROTOCOL, "its hello cannot be read");
    int rc = hello_check(&hello, &d->own, err);
    if (rc != OK) {
        char here[NODE_ADDRESS_MAX];
        world_address(d->world, here, sizeof here);
        printable(hello.address);
        err_prefix(err, "it, at %s, and the driver, at %s, do not fit together", hello.address,
                   here);
        return rc;
    }
    if (group_view(&d->group) && !strategy_joinable(d->strategy, d->job))
        return err_set(err, ERR_UNSUPPORTED,
                       "the run is under way, and with strategy %s as the job has it nobody can "
                       "join it then",
                       d->strategy->name);
    atomic_store(&d->stirred, world_now(d->world));
    memcpy(address, hello.address, sizeof hello.address);
    log_info(d->host->log, "worker %u is at %s: %s kernels, %s, %u threads", node, hello.address,
             hello.kernels, hello.isa, hello.threads);
    return OK;
}

/* It brings what it has: the server's task writes this down until the first view has formed, then
 * the main task reads it. */
static int on_returned(void *user, uint32_t node, const void *bytes, size_t len,
                       const uint64_t *note, char *address, struct err *err)
{
    struct driver *d = user;
    struct cut in = {bytes, len, false};
    struct hello hello;
    if (hello_read(&in, &hello) != OK || node >= VIEW_MEMBERS_MAX)
        return err_set(err, ERR_PROTOCOL, "its hello cannot be read");
    int rc = hello_check(&hello, &d->own, err);
    if (rc != OK)
        return rc;
    memcpy(address, hello.address, sizeof hello.address);
    atomic_store(&d->stirred, world_now(d->world));
    if (group_view(&d->group))
        return OK; /* it comes too late, and will be told */
    comeback_read(note, &d->back[node]);
    log_info(d->host->log, "worker %u is back, after exchange %" PRIu64, node,
             d->back[node].course.exchanges);
    return OK;
}

static void keep_tenure(struct driver *d)
{
    struct err err;
    if (!d->options->dir)
        return;
    int rc = tenure_write(d->options->dir, &d->tenure, &err);
    if (rc == ERR_FENCED)
        atomic_store(&d->outranked, true);
    if (rc != OK)
        log_warn(d->host->log, "%s", err.text);
}

/* Asked by the keeper, before it writes. */
static bool is_replaced(void *user)
{
    struct driver *d = user;
    struct tenure now;
    struct err err;
    if (tenure_read(d->options->dir, &now, &err) == OK && now.incarnation > d->tenure.incarnation)
        atomic_store(&d->outranked, true);
    return atomic_load(&d->outranked);
}

void driver_leave(struct driver *d)
{
    d->tenure.view = 0;
    d->tenure.who = (struct members){{0}};
    keep_tenure(d);
}

/* For a driver that comes after this one. */
static void on_formed(void *user, const struct view *view)
{
    struct driver *d = user;
    d->tenure.view = view->number;
    d->tenure.who = (struct members){{0}};
    for (size_t i = 0; i < view->count; i++) {
        members_add(&d->tenure.who, view->node[i]);
        if (view->node[i] >= d->tenure.next)
            d->tenure.next = view->node[i] + 1;
    }
    keep_tenure(d);
}

static void on_want(void *user, uint32_t workers)
{
    struct driver *d = user;
    atomic_store(&d->gone, 0); /* they are among these */
    int rc = world_want_nodes(d->world, workers);
    if (rc != OK)
        log_warn(d->host->log, "no workers for %u that have not come back: %s", workers,
                 status_text(rc));
}

static void on_member(void *user, uint32_t node, const char *what, uint32_t view)
{
    struct driver *d = user;
    bool lost =
        strcmp(what, "join") != 0 && strcmp(what, "leave") != 0 && strcmp(what, "back") != 0;
    enum log_level level = lost ? LOG_WARN : LOG_INFO;
    atomic_fetch_add(&d->gone, lost);
    bool joins = strcmp(what, "join") == 0;
    if (view > 1 || (view == 1 && !joins)) {
        log_write(d->host->log, level, "worker %u: %s (view %u)", node, what, view);
    } else {
        d->came = joins ? d->came + 1 : d->came - 1;
        log_write(d->host->log, level, "worker %u: %s (%u of %u are here)", node, what, d->came,
                  d->job->workers);
    }
    cJSON *event = events_new(&d->events, "member");
    cJSON_AddNumberToObject(event, "node", node);
    cJSON_AddStringToObject(event, "what", what);
    cJSON_AddNumberToObject(event, "view", view);
    events_emit(&d->events, event);
}

/* ---- the job's net, data and vectors ---- */

static int open_data(struct driver *d)
{
    kernels_set_threads((int)d->job->threads);
    d->corpus = d->host->corpus;
    d->ws = d->host->ws;
    int rc = OK;
    if (!d->corpus) {
        rc = corpus_open(d->job, &d->own_corpus, d->err);
        d->corpus = &d->own_corpus;
    }
    if (rc == OK && !d->ws) {
        rc = workspace_create(d->job, d->corpus, d->host->log, d->host->tuner, &d->own_ws, d->err);
        d->ws = d->own_ws;
    }
    return rc;
}

static int open_model(struct driver *d)
{
    const struct segments *x = net_segments(d->ws->train);
    const struct segments *s = net_state_segments(d->ws->train);
    int rc = optim_init(&d->optim, d->job->solver, 0, &d->arena, d->err);
    if (rc != OK)
        return rc;
    d->layout = (struct model_layout){
        .x = x,
        .s = s,
        .optim = d->optim.ops,
        .extra_name = d->strategy->extra_name,
        .extras = d->strategy->extras,
    };
    if (vec_init(&d->x, &d->arena, x->total) != OK || vec_init(&d->s, &d->arena, s->total) != OK)
        return err_set(d->err, ERR_NOMEM, "out of memory for %zu parameters", x->total);
    net_init(d->ws->train, d->job->seed, &d->x, &d->s);
    d->own = (struct hello){
        .version = WIRE_VERSION,
        .data_hash = d->corpus->hash,
        .segments_hash = segments_hash(x),
    };
    hello_take_data(&d->own, d->job, d->corpus);
    return job_hash(d->job, &d->own.job_hash, d->err);
}

/* The vectors of a checkpoint, where they lie in `start_model`. */
static void point_at_start(struct driver *d)
{
    size_t n = d->x.n;
    float *at = d->start_model;
    d->start = (struct joint){.x = &d->x, .s = &d->s};
    vec_import(&d->x, vec_all(&d->x), at);
    vec_import(&d->s, vec_all(&d->s), at + n);
    at += n + d->s.n;
    if (d->layout.has_state) {
        d->start.state = d->start_state;
        d->start.states = d->optim.ops->states;
        d->start.updates = d->resumed.updates;
    }
    for (size_t i = 0; i < d->start.states; i++, at += n)
        d->start_state[i] = (struct vec){at, n};
    if (d->layout.has_extra)
        d->start.extra = d->start_extra;
    for (size_t i = 0; d->start.extra && i < d->layout.extras; i++, at += n)
        d->start_extra[i] = (struct vec){at, n};
}

static int make_room(struct driver *d)
{
    if (!d->start_model)
        d->start_model = arena_array(&d->arena, model_floats_most(&d->layout), float);
    return d->start_model ? OK : err_set(d->err, ERR_NOMEM, "out of memory for a checkpoint");
}

/* Files of weights, and what a run of Caffe left: read here, given to all. */
static int begin_with(struct driver *d)
{
    bool weights = d->job->weights && *d->job->weights;
    const char *state = d->options->snapshot;
    d->resumed.best_error = INFINITY;
    if (!weights && !state) {
        d->start_model = NULL;
        return OK;
    }
    int rc = make_room(d);
    if (rc != OK)
        return rc;
    vec_export(&d->x, vec_all(&d->x), d->start_model);
    vec_export(&d->s, vec_all(&d->s), d->start_model + d->x.n);
    if (weights)
        rc = origin_weights(d->job, &d->layout, d->host->log, d->start_model, d->err);
    if (rc == OK && state)
        rc = origin_state(state, d->job, &d->layout, d->host->log, d->start_model, &d->resumed,
                          d->err);
    if (rc != OK)
        return rc;
    d->goes_on = state != NULL;
    point_at_start(d);
    return OK;
}

/* What a checkpoint brought, and what begins afresh since it had none. */
static void tell_what_was_taken(const struct driver *d)
{
    const struct course *course = &d->resumed.course;
    bool state = d->layout.optim->states > 0, extra = d->layout.extras > 0;
    struct buf text = {0};
    buf_printf(&text, "goes on after exchange %" PRIu64 " at epoch %.2f with %u workers: model",
               course->exchanges, (double)course->place / (double)d->corpus->set[SET_TRAIN].count,
               d->job->workers);
    if (state && d->layout.has_state)
        buf_printf(&text, ", optimizer state");
    for (size_t i = 0; extra && d->layout.has_extra && i < d->layout.extras; i++)
        buf_printf(&text, ", %s", d->layout.extra_name[i]);
    if (state && !d->layout.has_state)
        buf_printf(&text, "; optimizers start afresh");
    for (size_t i = 0; extra && !d->layout.has_extra && i < d->layout.extras; i++)
        buf_printf(&text, "; %s starts afresh", d->layout.extra_name[i]);
    buf_put_u8(&text, 0);
    log_info(d->host->log, "%s", text.failed ? "goes on" : (const char *)text.data);
    buf_release(&text);
}

/* Take the newest checkpoint of the run directory as the start. */
static int resume(struct driver *d)
{
    struct checkpoint_note *note = &d->resumed;
    int made = make_room(d);
    if (made != OK)
        return made;
    int rc =
        checkpoint_load(d->options->dir, d->host->log, &d->layout, d->start_model, note, d->err);
    if (rc == ERR_NOT_FOUND) { /* it ended before the first one */
        log_warn(d->host->log, "%s; the run begins afresh", d->err->text);
        return begin_with(d);
    }
    if (rc != OK)
        return rc;
    if (note->data_hash != d->corpus->hash)
        return err_set(d->err, ERR_INPUT,
                       "%s: the checkpoint is of other data (%016" PRIx64 ", the job's is "
                       "%016" PRIx64 ")",
                       d->options->dir->path, note->data_hash, d->corpus->hash);
    if (!d->layout.has_state)
        note->updates = 0;
    note->course.used = note->used;
    point_at_start(d);
    d->goes_on = true;
    tell_what_was_taken(d);
    return OK;
}

/* The job as workers elsewhere are given it: with what they cannot read, and without what is theirs
 * to say. */
static int write_elsewhere(struct driver *d, struct buf *text)
{
    Caffe__NetParameter *net = NULL;
    Paceline__Job *copy = NULL;
    int rc = job_parse("job", (char *)text->data, strlen((char *)text->data), &copy, d->err);
    if (rc == OK && copy->net->source_case == PACELINE__NET__SOURCE_FILE) {
        rc = model_load_net(copy->net, &net, d->err);
        if (rc == OK)
            rc = model_define_net(&copy->net, net, d->err);
        if (net)
            caffe__net_parameter__free_unpacked(net, NULL);
    }
    if (rc == OK) {
        copy->has_threads = copy->has_threads && !d->options->open_threads;
        buf_release(text);
        text_write(&copy->base, text);
        buf_put_u8(text, 0);
        rc = job_hash(copy, &d->own.job_hash, d->err);
    }
    job_free(copy);
    return rc;
}

/* This driver outranks all that have been here before. Where what they left is damaged it goes far
 * beyond what they can have come to. */
static void take_over(struct driver *d)
{
    enum { FAR = 1000 };
    struct err err;
    uint32_t before = d->resumed.incarnation;
    int rc = d->options->resume && d->options->dir ? tenure_read(d->options->dir, &d->before, &err)
                                                   : ERR_NOT_FOUND;
    if (rc != OK)
        d->before = (struct tenure){.view = 0};
    if (rc != OK && rc != ERR_NOT_FOUND) {
        log_warn(d->host->log, "%s", err.text);
        before += FAR;
    }
    if (d->before.incarnation > before)
        before = d->before.incarnation;
    d->tenure = (struct tenure){
        .run = d->options->run,
        .incarnation = before + 1,
        .next = d->before.next,
    };
    if (!strategy_outlives_driver(d->strategy, d->job))
        d->before.view = 0;
}

static int write_welcome(struct driver *d)
{
    struct buf text = {0};
    text_write(&d->job->base, &text);
    buf_put_u8(&text, 0);
    int rc = d->options->elsewhere && !text.failed ? write_elsewhere(d, &text) : OK;
    if (rc != OK) {
        buf_release(&text);
        return rc;
    }
    if (!text.failed) {
        struct welcome welcome = {
            .job = (char *)text.data,
            .folder = (char *)(uintptr_t)d->options->folder,
            .busy_hosts = d->host->timing.silence_max > WORLD_SECOND,
            .resumes = d->start_model != NULL,
            .traces = d->options->trace != NULL,
            .checks = d->options->elsewhere && d->host->reach,
            .incarnation = d->tenure.incarnation,
        };
        welcome_encode(&welcome, &d->welcome);
        welcome.resumes = false; /* a sponsor has what it goes on from */
        welcome_encode(&welcome, &d->welcome_late);
    }
    bool failed = text.failed || d->welcome.failed || d->welcome_late.failed;
    buf_release(&text);
    return failed ? err_set(d->err, ERR_NOMEM, "job: out of memory") : OK;
}

/* ---- the start of the run ---- */

static void emit_start(struct driver *d)
{
    char job[20], data[20];
    snprintf(job, sizeof job, "%016" PRIx64, d->own.job_hash);
    snprintf(data, sizeof data, "%016" PRIx64, d->own.data_hash);
    cJSON *event = events_new(&d->events, "start");
    cJSON_AddStringToObject(event, "job", d->job->name);
    cJSON_AddStringToObject(event, "job_hash", job);
    cJSON_AddStringToObject(event, "data_hash", data);
    cJSON_AddNumberToObject(event, "protocol", WIRE_VERSION);
    cJSON_AddStringToObject(event, "strategy", d->strategy->name);
    cJSON_AddStringToObject(event, "kernels", d->ws->kernels->name);
    cJSON_AddStringToObject(event, "isa", kernels_isa());
    cJSON_AddNumberToObject(event, "nodes", d->job->workers);
    cJSON_AddNumberToObject(event, "parameters", (double)d->x.n);
    if (d->goes_on)
        cJSON_AddNumberToObject(event, "resumed_after", (double)d->resumed.course.exchanges);
    events_emit(&d->events, event);
}

/* In a resumed run: the model to start from, for whoever asks. */
static int giver_main(void *arg)
{
    struct driver *d = arg;
    for (;;) {
        const struct wait_for asked = wire_from(WORLD_ANY, WIRE_WANT_MODEL);
        struct wake wake;
        int rc = world_wait(d->world, &asked, 1, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc;
        d->to_worker.to = wake.msg->from;
        message_unref(wake.msg);
        bool started = publisher_start(&d->to_worker, &d->resumed.course, 0, &d->start);
        rc = publisher_finish(&d->to_worker, WORLD_FOREVER);
        if (rc == ERR_CANCELLED)
            return rc;
        if (!started || (rc != OK && rc != ERR_PEER))
            let_go(d, d->to_worker.to, "model to go on from", started ? rc : ERR_NOMEM);
        atomic_store(&d->stirred, world_now(d->world));
    }
}

static int start_giver(struct driver *d)
{
    int rc = publisher_init(&d->to_worker, d->world, WORLD_ANY, model_floats_most(&d->layout),
                            d->layout.extras, &d->arena);
    return rc == OK ? world_spawn(d->world, "giver", giver_main, d, &d->giver_task) : rc;
}

static int start_group(struct driver *d)
{
    const struct roster_options roster = {
        .workers = d->job->workers,
        .workers_max = strategy_joinable(d->strategy, d->job) ? job_workers_max(d->job) : 0,
        .incarnation = d->tenure.incarnation,
        .driver_takes_part = strategy_leads(d->strategy, d->job),
        .silence_max = d->host->timing.silence_max,
        .stall_max = d->host->timing.stall_max,
        .reforms = d->options->resume && !d->options->fresh &&
                   strategy_outlives_driver(d->strategy, d->job),
        .last_view = d->before.view,
        .last_incarnation = d->before.view ? d->before.incarnation : 0,
        .last = d->before.who,
    };
    const struct server_hooks hooks = {
        .arrived = on_arrived,
        .admit = on_hello,
        .member = on_member,
        .returned = on_returned,
        .formed = on_formed,
        .want = on_want,
        .user = d,
    };
    group_init(&d->group, d->world, d->host->log, &d->host->timing);
    int rc = d->start_model ? start_giver(d) : OK;
    if (rc == OK && d->options->elsewhere && d->host->reach)
        rc = reach_start(d->world, d->host, &d->reach);
    if (rc == OK)
        rc = server_start(&d->server, &d->group, &roster, &hooks);
    uint32_t workers = job_workers_max(d->job) + d->job->standby;
    if (roster.reforms && roster.last_view > 0)
        workers = 0; /* those of before may still be there */
    if (rc == OK)
        rc = world_want_nodes(d->world, workers);
    return rc == OK ? OK
                    : err_set(d->err, rc, "%u workers cannot be had: %s", workers, status_text(rc));
}

/* What is counted from where the run begins, or goes on. */
static void open_counts(struct driver *d)
{
    const struct course *start = &d->resumed.course;
    size_t records = d->corpus->set[SET_TRAIN].count;
    uint32_t together = strategy_runs_free(d->strategy, d->job) ? 1 : d->job->workers;
    d->evaluate_every = objectives_every(d->job, records, d->strategy->round(d->job) * together);
    d->due_before = due_counts(d->job, d->evaluate_every, records, start);
    d->led = *start;
    d->ledger.step_samples = (uint64_t)job_step_records(d->job) * d->job->workers;
    atomic_store(&d->place, start->place);
    atomic_store(&d->steps, start->steps);
    atomic_store(&d->exchanges, start->exchanges);
}

static void open_book(struct driver *d)
{
    events_init(&d->events, d->world);
    d->ledger = (struct ledger){
        .events = &d->events,
        .log = d->host->log,
        .strategy = d->strategy->name,
        .used = d->resumed.used,
        .missed = d->resumed.missed,
    };
    d->ledger.last.n = d->resumed.course.exchanges;
    d->ledger.last.course = d->resumed.course;
    d->meter.place = d->resumed.course.place;
    open_counts(d);
}

int driver_open(struct driver *d)
{
    int rc = strategy_find(d->job, &d->strategy, d->err);
    if (rc == OK)
        rc = open_data(d);
    if (rc == OK)
        rc = open_model(d);
    if (rc == OK)
        rc = d->options->resume ? resume(d) : begin_with(d);
    if (rc == OK)
        take_over(d);
    if (rc == OK)
        rc = write_welcome(d);
    if (rc == OK && d->options->begin)
        rc = d->options->begin(d->options->user, d->err);
    if (rc != OK)
        return rc;
    d->tenure.view = d->before.view; /* until there is one of this driver's */
    d->tenure.who = d->before.who;
    keep_tenure(d);
    open_book(d);
    d->begins = (struct joint){.x = &d->x, .s = &d->s};
    rc = display_init(&d->display, d->job, d->resumed.course.steps, &d->arena);
    if (rc != OK)
        return err_set(d->err, rc, "out of memory");
    emit_start(d);
    return start_group(d);
}

/* ---- the keeper, and the strategy's part ---- */

/* Where workers run free. */
static void where_all_are(void *user, struct course *course)
{
    const struct driver *d = user;
    course->place = atomic_load(&d->place);
    course->steps = atomic_load(&d->steps);
    course->exchanges = atomic_load(&d->exchanges);
}

/* And where they were when a worker was asked for its model. */
static void where_all_were(void *user, struct course *course)
{
    const struct driver *d = user;
    course->place = atomic_load(&d->asked_place);
    course->steps = atomic_load(&d->asked_steps);
    course->exchanges = atomic_load(&d->asked_exchanges);
}

static void on_error_reached(void *user)
{
    driver_want_stop(user, "error");
}

static int start_keeper(struct driver *d)
{
    struct keeper *k = &d->keeper;
    k->world = d->world;
    k->log = d->host->log;
    k->events = &d->events;
    k->dir = d->options->dir;
    k->keep = d->job->checkpoint->keep;
    k->layout = d->layout;
    k->reached = on_error_reached;
    k->replaced = is_replaced;
    k->free = strategy_runs_free(d->strategy, d->job);
    k->where = k->free && train_workers_speak(d->job, d->strategy) ? where_all_were : NULL;
    k->user = d;
    k->note = (struct checkpoint_note){
        .seed = d->job->seed,
        .job_hash = d->own.job_hash,
        .data_hash = d->own.data_hash,
        .records = d->corpus->set[SET_TRAIN].count,
        .incarnation = d->tenure.incarnation,
    };
    atomic_store(&k->missed, d->resumed.missed);
    objectives_init(&k->objectives, d->world, d->job, d->corpus, d->ws, &d->events,
                    d->host->step_seconds);
    if (d->goes_on)
        k->objectives.best_error = d->resumed.best_error;
    if (d->job->evaluate->at_start && !d->goes_on)
        k->first = &d->begins;
    int rc = keeper_init(k, &d->arena);
    if (rc == OK)
        rc = snapshot_open(&k->snapshot, d->job, d->options->dir, d->err);
    return rc == OK ? keeper_start(k) : rc;
}

/* Workers run free, and the driver's model has changed: the main task knows how far they are and
 * what is due. */
static int on_free_change(struct driver *d, struct leader *l)
{
    uint32_t due = atomic_load(&d->due);
    where_all_are(d, &l->course);
    if (due && publisher_start(&d->to_keeper, &l->course, due, &l->joint))
        atomic_fetch_and(&d->due, ~due);
    return OK;
}

static int on_leader_committed(struct leader *l, const struct exchange *e)
{
    struct driver *d = l->train;
    if (!e)
        return on_free_change(d, l);
    l->course.used += exchange_tally(e)->samples;
    bool last = strategy_done(l->job, &l->course, l->records);
    uint32_t use = due_uses(d->job, d->evaluate_every, &d->led, &l->course);
    uint32_t due = atomic_load(&d->due);
    atomic_fetch_or(&d->due, use & MODEL_SNAPSHOT); /* that one waits for its turn */
    d->led = l->course;
    use |= due;
    if (use && !last && !train_workers_speak(d->job, d->strategy) &&
        publisher_start(&d->to_keeper, &l->course, use, &l->joint))
        atomic_fetch_and(&d->due, ~use);
    return exchange_tally(e)->stop_votes > 0 ? ERR_STOP : OK;
}

static int hand_over_final(struct driver *d)
{
    struct leader *l = &d->leader;
    if (train_workers_speak(d->job, d->strategy))
        return OK;
    if (strategy_runs_free(d->strategy, d->job))
        where_all_are(d, &l->course);
    atomic_store(&d->handing_over, true);
    int rc = publisher_finish(&d->to_keeper, WORLD_FOREVER);
    if (rc == OK && !publisher_start(&d->to_keeper, &l->course, MODEL_FINAL, &l->joint))
        rc = ERR_NOMEM;
    return rc == OK ? publisher_finish(&d->to_keeper, WORLD_FOREVER) : rc;
}

/* The loop has ended; members of a new view may still lack the last result, until the run is over
 * and this task is cancelled. */
static int settle(struct leader *l)
{
    for (;;) {
        uint64_t seen = world_raised(l->world, SIGNAL_GROUP);
        int rc = OK;
        for (size_t i = 0; rc == OK && i < l->lanes.count; i++)
            rc = exchange_settle(l->lanes.at[i]);
        struct wait_for change = {.kind = WAIT_SIGNAL, .signal = SIGNAL_GROUP, .seen = seen};
        struct wake wake;
        if (rc == OK)
            rc = world_wait(l->world, &change, 1, WORLD_FOREVER, &wake);
        if (rc != OK)
            return rc == ERR_CANCELLED ? OK : rc;
    }
}

static int leader_main(void *arg)
{
    struct driver *d = arg;
    kernels_set_threads((int)d->job->threads);
    int rc = d->strategy->driver(&d->leader);
    if (rc == OK)
        rc = hand_over_final(d);
    return rc == OK ? settle(&d->leader) : rc; /* an error ends the run: driver.c watches */
}

static int start_leader(struct driver *d, const struct view *view)
{
    d->leader = (struct leader){
        .world = d->world,
        .group = &d->group,
        .log = d->host->log,
        .job = d->job,
        .table = d->layout.x,
        .arena = &d->arena,
        .records = d->corpus->set[SET_TRAIN].count,
        .course = d->resumed.course,
        .resumed = d->start,
        .committed = on_leader_committed,
        .train = d,
    };
    bool back = view->number > 1;
    d->leader.lanes.blank = back;
    d->leader.back = back && d->back_told ? d->back_word : NULL;
    for (size_t i = 0; !back && i < view->count; i++)
        members_add(&d->leader.course.who, view->node[i]);
    if (vec_init(&d->leader.x, &d->arena, d->x.n) != OK ||
        vec_init(&d->leader.s, &d->arena, d->s.n) != OK ||
        publisher_init(&d->to_keeper, d->world, WORLD_DRIVER, model_floats_most(&d->layout),
                       d->layout.extras, &d->arena) != OK)
        return ERR_NOMEM;
    vec_copy(&d->leader.x, &d->x, vec_all(&d->x));
    vec_copy(&d->leader.s, &d->s, vec_all(&d->s));
    d->leader.joint = (struct joint){.x = &d->leader.x, .s = &d->leader.s};
    return world_spawn(d->world, "leader", leader_main, d, &d->leader_task);
}

/* What all together have done that run free: each itself, and those that are there no more. */
static struct course sum_of_free(struct driver *d, const struct view *view)
{
    struct course all = {.place = 0};
    uint64_t aside[GROUP_ASIDE] = {0};
    for (size_t i = 0; i < view->count; i++) {
        const struct comeback *back = &d->back[view->node[i]];
        d->ledger.own[view->node[i]] = (struct ledger_own){back->samples, back->exchanges};
        all.place += back->samples;
        all.exchanges += back->exchanges;
        for (int k = 0; k < GROUP_ASIDE; k++)
            aside[k] = back->aside[k] > aside[k] ? back->aside[k] : aside[k];
    }
    all.place += aside[0];
    all.exchanges += aside[1];
    /* Who died with the driver is in neither sum, but what it had reported is in the checkpoint. */
    if (all.place < d->resumed.course.place)
        all.place = d->resumed.course.place;
    if (all.exchanges < d->resumed.course.exchanges)
        all.exchanges = d->resumed.course.exchanges;
    all.used = all.place;
    all.steps = all.place / d->ledger.step_samples;
    return all;
}

/* Of workers in step: who is furthest knows best. */
static struct course furthest(struct driver *d, const struct view *view)
{
    const struct comeback *best = &d->back[view->node[0]];
    for (size_t i = 1; i < view->count; i++)
        if (d->back[view->node[i]].course.exchanges > best->course.exchanges)
            best = &d->back[view->node[i]];
    d->back_told = best->words > 0;
    memcpy(d->back_word, best->word, sizeof d->back_word);
    bool further = !strategy_leads(d->strategy, d->job) && /* these complete none without us */
                   d->early.exchanges > best->course.exchanges;
    return further ? d->early : best->course;
}

/* Workers have gone on without a driver: it is where they are that the run goes on from. */
static void go_on_with(struct driver *d, const struct view *view)
{
    struct ledger *ledger = &d->ledger;
    bool free = strategy_runs_free(d->strategy, d->job);
    struct course course = free ? sum_of_free(d, view) : furthest(d, view);
    ledger_go_on(ledger, &course);
    d->resumed.course = course;
    d->resumed.used = course.used;
    d->resumed.missed = ledger->missed;
    d->meter.place = course.place;
    d->goes_on = true;
    open_counts(d);
    log_info(d->host->log,
             "goes on with %zu workers that are back, after exchange %" PRIu64 " at epoch %.2f",
             view->count, course.exchanges,
             (double)course.place / (double)d->corpus->set[SET_TRAIN].count);
    cJSON *event = events_new(&d->events, "back");
    cJSON_AddNumberToObject(event, "incarnation", d->tenure.incarnation);
    cJSON_AddNumberToObject(event, "workers", (double)view->count);
    cJSON_AddNumberToObject(event, "exchanges", (double)course.exchanges);
    cJSON_AddNumberToObject(event, "place", (double)course.place);
    cJSON_AddNumberToObject(event, "used", (double)ledger->used);
    cJSON_AddNumberToObject(event, "missed", (double)ledger->missed);
    events_emit(&d->events, event);
}

int driver_start(struct driver *d, const struct view *view)
{
    if (view->number > 1)
        go_on_with(d, view);
    driver_tell_aside(d);
    d->begun = true;
    int rc = OK; /* the giver stays: who came too late for the first view may be asking */
    if (d->options->trace)
        rc = tracer_start(&d->tracer, d->world, d->options->trace, d->events.start);
    if (rc == OK)
        rc = start_keeper(d);
    if (rc == OK && strategy_leads(d->strategy, d->job))
        rc = start_leader(d, view);
    return rc == OK ? OK : err_set(d->err, rc, "the run cannot start: %s", status_text(rc));
}
