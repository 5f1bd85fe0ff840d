/* The driver's node is set up: the job's data, net and vectors, and the books that it keeps. */
#include "tensor/kernels.h"
#include "train/describe.h"
#include "train/driver.h"
#include "train/driver_stop.h"
#include "train/memory_need.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* In a simulation: let the time pass that opening takes. */
static int pass_opening(struct driver *d)
{
    int64_t s = (int64_t)(d->host->open_seconds * WORLD_SECOND);
    return s > 0 ? world_sleep(d->world, world_now(d->world) + s) : OK;
}

static bool may_continue(const struct driver *d)
{
    return !d->options->stop || !atomic_load(d->options->stop);
}

/* Reports from time to time how far opening is, and takes interrupts. */
static bool watch_opening(void *user, const char *stage, uint64_t done, uint64_t total)
{
    struct driver *d = user;
    int64_t now = world_now(d->world);
    if (d->membership.opening_reported == 0)
        d->membership.opening_reported = now;
    if (now - d->membership.opening_reported >= 10 * WORLD_SECOND) {
        char progress_text[OPENING_TEXT_MAX];
        d->membership.opening_reported = now;
        opening_print(stage, done, total, progress_text);
        log_info(d->host->log, "the driver gets ready: %s", progress_text);
    }
    return may_continue(d);
}

static int create_workspace(struct driver *d, size_t slice, const struct open_watch *watch)
{
    workspace_free(d->data.own_ws);
    d->data.own_ws = NULL;
    int rc = workspace_create_slice(slice, 0, d->job, d->data.corpus, d->host->log, d->host->tuner,
                                    watch, &d->data.own_ws, d->err);
    d->data.ws = d->data.own_ws;
    return rc;
}

/* The driver of a model in slices has the net of one of them, unless it needs the whole. */
static int open_workspace(struct driver *d, const struct open_watch *watch)
{
    bool sliced = d->job->slices > 1, own = !d->data.ws;
    int rc = own ? create_workspace(d, sliced ? 0 : SLICE_ALL, watch) : OK;
    if (rc != OK || !sliced)
        return rc;
    driver_check_weights(d, d->data.ws->train);
    return own && d->start.merges ? create_workspace(d, SLICE_ALL, watch) : OK;
}

static int open_data(struct driver *d)
{
    const struct open_watch watch = {d, watch_opening};
    kernels_set_threads((int)d->job->threads);
    d->data.corpus = d->host->corpus;
    d->data.ws = d->host->ws;
    int rc = d->data.corpus ? pass_opening(d) : OK;
    if (!d->data.corpus) {
        rc = corpus_open_with(&(struct source_config){.watch = &watch,
                                                      .bindings = d->host->bindings,
                                                      .remote = d->host->remote},
                              d->job, &d->data.own_corpus, d->err);
        d->data.corpus = &d->data.own_corpus;
        if (rc == OK)
            corpus_log_warnings(d->data.corpus, d->host->log);
        if (rc == OK) /* workers, the run's directory and its hash have the job so */
            rc = corpus_settle(d->data.corpus, d->options->job, d->err);
    }
    if (rc == OK)
        rc = open_workspace(d, &watch);
    /* With local_data the driver's own records may be a small sample. */
    if (rc == OK)
        d->data.epoch_records = d->job->local_data && d->job->has_epoch_records
                                    ? (size_t)d->job->epoch_records
                                    : d->data.corpus->set[SET_TRAIN].count;
    if (rc == ERR_CANCELLED && !may_continue(d))
        rc = err_set(d->err, ERR_STOP, "interrupted before training began");
    if (rc == OK && d->options->dir && d->data.corpus->set[SET_VALIDATION].count == 0 &&
        d->data.corpus->set[SET_TEST].count > 0)
        log_info(d->host->log,
                 "no best.safetensors: no validation records choose it (--set validation=N)");
    if (rc == OK && !net_judges(d->data.ws->test))
        log_info(d->host->log, "the net has no error rate: there is neither an Accuracy nor a "
                               "SoftmaxWithLoss in phase TEST; its loss says which is the best");
    return rc;
}

/* Workers that this host starts have its limits. */
static int check_memory(const struct driver *d, size_t floats, bool whole)
{
    size_t states = d->optim.ops->states, slices = d->job->slices;
    int rc = d->options->lost ? memory_check_worker(d->job, "each worker",
                                                    (floats + slices - 1) / slices, states, d->err)
                              : OK;
    return rc == OK && whole ? memory_check_driver(d->job, floats, states, d->err) : rc;
}

static int open_model(struct driver *d)
{
    const struct segments *x = net_whole_segments(d->data.ws->train);
    const struct segments *s = net_state_segments(d->data.ws->train);
    int rc = optim_init(&d->optim, d->job->solver, 0, &d->arena, d->err);
    if (rc != OK)
        return rc;
    if (d->job->slices > 1 && d->optim.ops->whole)
        return err_set(d->err, ERR_UNSUPPORTED,
                       "slices: solver.type needs the whole gradient, of which each slice has a "
                       "part");
    d->layout = (struct model_layout){
        .x = x,
        .s = s,
        .optim = d->optim.ops,
        .extra_name = d->strategy->extra_name,
        .extras = d->strategy->extras,
        .streams = d->data.corpus->set[SET_TRAIN].streams,
        .row = net_carried(d->data.ws->train),
        .drops_carried = d->options->force,
    };
    bool whole = !driver_reads_ranges(d);
    rc = check_memory(d, x->total, whole);
    if (rc != OK)
        return rc;
    if (whole && vec_init_model(&d->start.both, &d->start.x, &d->start.s, &d->arena, x->total,
                                s->total) != OK)
        return err_set(d->err, ERR_NOMEM, "out of memory for %zu parameters", x->total);
    if (whole)
        net_init(d->data.ws->train, d->job->seed, &d->start.x, &d->start.s);
    d->membership.own = (struct hello){
        .version = WIRE_VERSION,
        .segments_hash = segments_hash(x),
    };
    snprintf(d->membership.own.release, sizeof d->membership.own.release, "%s", release_text());
    hello_take_records(&d->membership.own.records, d->job, d->data.corpus);
    return job_hash(d->job, &d->membership.own.job_hash, d->err);
}

/* The driver's machine; nothing of a simulated one. */
static void describe_machine(const struct driver *d, cJSON *start)
{
    const struct train_host *host = d->host;
    if (host->name && host->name[0])
        cJSON_AddStringToObject(start, "host", host->name);
    if (host->cpu && host->cpu[0])
        cJSON_AddStringToObject(start, "cpu", host->cpu);
    if (host->memory > 0) {
        cJSON_AddNumberToObject(start, "cores", host->cores);
        cJSON_AddNumberToObject(start, "memory", (double)host->memory);
    }
}

static void emit_start(struct driver *d)
{
    char job[20], data[20];
    snprintf(job, sizeof job, "%016" PRIx64, d->membership.own.job_hash);
    snprintf(data, sizeof data, "%016" PRIx64, d->membership.own.records.hash);
    cJSON *event = events_new(&d->events, "start");
    cJSON_AddStringToObject(event, "job", d->job->name);
    cJSON_AddStringToObject(event, "job_hash", job);
    cJSON_AddStringToObject(event, "data_hash", data);
    cJSON_AddNumberToObject(event, "protocol", WIRE_VERSION);
    cJSON_AddStringToObject(event, "strategy", d->strategy->name);
    cJSON_AddStringToObject(event, "kernels", d->data.ws->kernels->name);
    cJSON_AddStringToObject(event, "isa", kernels_isa());
    describe_machine(d, event);
    cJSON_AddNumberToObject(event, "nodes", d->job->workers);
    describe_run(d, event);
    if (d->options->resume)
        cJSON_AddNumberToObject(event, "session", d->claim.term.incarnation);
    if (d->start.resumes)
        cJSON_AddNumberToObject(event, "resumed_after",
                                (double)d->start.resumed.progress.exchanges);
    events_emit(&d->events, event);
}

void driver_open_counts(struct driver *d)
{
    const struct progress *start = &d->start.resumed.progress;
    size_t records = d->data.epoch_records;
    uint32_t together = d->progress->together(d);
    d->requests.evaluate_every = objectives_every(d->job, records, d->traits.round * together);
    d->requests.before = trigger_counts_of(d->job, d->requests.evaluate_every, records, start);
    d->requests.last_commit = *start;
    d->ledger.step_samples = (uint64_t)job_step_records(d->job) * job_replicas(d->job);
    atomic_store(&d->counts.sample_offset, start->sample_offset);
    atomic_store(&d->counts.steps, start->steps);
    atomic_store(&d->counts.exchanges, start->exchanges);
}

static uint64_t repeated_before(const struct driver *d)
{
    uint64_t offset = d->start.resumed.progress.sample_offset, used = d->start.resumed.used;
    return offset > used ? offset - used : 0;
}

static void open_lease_table(struct driver *d)
{
    events_init(&d->events, d->world, d->options->before);
    d->events.simulated = d->options->simulated;
    d->reports.meter.t = d->options->before;
    d->ledger = (struct ledger){
        .events = &d->events,
        .log = d->host->log,
        .strategy = d->strategy->name,
        .rejects = d->job->reject == PACELINE__JOB__REJECT__outliers,
        .mean_loss = (double)NAN,
        .driver = {.takes_part = d->traits.driver_part,
                   .beat_s = world_seconds(d->host->timing.heartbeat)},
        .at_bound = d->job->strategy->algorithm_case == PACELINE__STRATEGY__ALGORITHM_PS,
        .used = d->start.resumed.used,
        .repeated = d->start.resumed.repeated,
        .missed = d->start.resumed.missed,
    };
    if (d->job->follow_batch && !d->job->follow_batch->has_samples_per_s)
        d->ledger.measured = &d->membership.measured;
    d->ledger.overlaps = driver_overlaps(d);
    d->ledger.grows = d->job->batch_growth && d->traits.takes_leases ? d->job : NULL;
    d->ledger.records = d->data.epoch_records;
    if (d->traits.takes_leases)
        d->ledger.repeated_leases = repeated_before(d);
    d->ledger.last.n = d->start.resumed.progress.exchanges;
    d->ledger.last.progress = d->start.resumed.progress;
    d->reports.meter.offset = d->start.resumed.progress.sample_offset;
    driver_open_counts(d);
}

/* All fits, as far as that shows without a step. */
static int end_dry(struct driver *d)
{
    open_lease_table(d);
    emit_start(d);
    describe_suspicions(d);
    driver_request_stop(d, "checked");
    d->ending.over = true;
    return OK;
}

/* Before the first step: what the disk has room for. A run whose final model would not fit does not
 * begin. */
static int check_room(struct driver *d)
{
    const struct rundir *dir = d->options->dir;
    uint64_t left, final = checkpoint_bytes(&d->layout, true);
    uint64_t needed = final + 2 * checkpoint_bytes(&d->layout, false);
    struct err none;
    if (!dir || dir->disk->ops->free_space(dir->disk, dir->path, &left, &none) != OK ||
        left >= needed)
        return OK;
    if (left < final && !d->options->resume)
        return err_set(d->err, ERR_FULL,
                       "%s: %" PRIu64 " bytes are left, and the final model alone needs %" PRIu64
                       "; free %" PRIu64
                       " bytes there, or give a directory on another disk (--out)",
                       dir->path, left, final, final - left);
    log_warn(d->host->log,
             "%s: %" PRIu64 " bytes are left, and two checkpoints and the final model need %" PRIu64
             ": checkpoints may be missing; free %" PRIu64 " bytes there",
             dir->path, left, needed, needed - left);
    return OK;
}

/* A resumed run may write its own again. */
static int open_snapshots(struct driver *d)
{
    struct snapshot *s = &d->model_writer.snapshot;
    int rc = snapshot_open(s, d->job, d->options->dir, d->err);
    return rc == OK && !d->options->resume
               ? snapshot_check_free(s, d->start.resumed.progress.steps, d->err)
               : rc;
}

int driver_open(struct driver *d)
{
    int rc = strategy_find(d->job, &d->strategy, &d->traits, d->err);
    d->progress = progress_of(&d->traits);
    if (rc == OK && !d->options->dry && (!d->host->corpus || d->host->open_seconds > 0))
        rc = driver_await_arrivals(d);
    if (rc == OK)
        rc = open_data(d);
    if (rc == OK)
        rc = open_model(d);
    if (rc == OK)
        rc = driver_find_start(d);
    if (rc == OK && d->options->dry)
        return end_dry(d);
    if (rc == OK && d->ending.over) {
        open_lease_table(d);
        return rc;
    }
    if (rc == OK)
        driver_take_over(d);
    if (rc == OK)
        rc = driver_write_welcome(d);
    if (rc == OK && d->options->begin)
        rc = d->options->begin(d->options->user, d->err);
    if (rc == OK)
        rc = open_snapshots(d);
    if (rc == OK)
        rc = check_room(d);
    if (rc != OK)
        return rc;
    d->claim.term.view = d->claim.last_term.view; /* until there is one of this driver's */
    d->claim.term.members = d->claim.last_term.members;
    driver_write_term(d);
    open_lease_table(d);
    d->start.initial = (struct global_model){.x = &d->start.x, .s = &d->start.s};
    rc = display_init(&d->reports.display, d->job, d->start.resumed.progress.steps, &d->arena);
    if (rc != OK)
        return err_set(d->err, rc, "out of memory");
    emit_start(d);
    describe_suspicions(d);
    driver_drain_events(d, 0); /* before the log speaks of workers */
    describe_chance_begin(d);
    rc = driver_check_early_stop(d);
    return rc == OK ? driver_start_group(d) : rc;
}
