/* The initial state of a run: values drawn from its seed, files of weights, a run of Caffe's, or
 * its own newest checkpoint. */
#include "base/plural.h"
#include "train/driver.h"
#include "train/initial_weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FINAL "final.safetensors"

bool driver_reads_ranges(const struct driver *d)
{
    return d->job->slices > 1 && !d->start.merges;
}

bool driver_keeps_streams(const struct driver *d)
{
    return strategy_keeps_streams(d->job, &d->traits,
                                  carried_state_floats(d->layout.streams, d->layout.row));
}

/* Layers that a file of weights lacks keep the values of the seed, and some formats are read whole:
 * then the initial state is put together in memory. */
void driver_check_weights(struct driver *d, const struct net *net)
{
    struct model_layout layout = {.x = net_whole_segments(net), .s = net_state_segments(net)};
    struct checkpoint_ranges *ranges = NULL;
    struct err none;
    bool weights = d->job->weights && *d->job->weights;
    d->start.merges =
        weights && checkpoint_open_weights(d->job->weights, &layout, &ranges, &none) != OK;
    checkpoint_close(ranges);
}

/* The vectors of a checkpoint, where they lie in `start_model`. */
static void point_at_start(struct driver *d)
{
    size_t n = d->start.x.n;
    float *at = d->start.floats;
    d->start.model = (struct global_model){.x = &d->start.x, .s = &d->start.s};
    if (at)
        vec_import(&d->start.both, vec_all(&d->start.both), at);
    at += at ? d->start.both.n : 0;
    if (d->layout.has_state) {
        d->start.model.state = d->start.state;
        d->start.model.states = d->optim.ops->states;
        d->start.model.updates = d->start.resumed.updates;
    }
    for (size_t i = 0; at && i < d->start.model.states; i++, at += n)
        d->start.state[i] = (struct vec){at, n};
    if (d->layout.has_extra)
        d->start.model.extra = d->start.extra;
    for (size_t i = 0; d->start.model.extra && i < d->layout.extras; i++, at += n)
        d->start.extra[i] = (struct vec){at, n};
}

static int make_room(struct driver *d)
{
    if (driver_reads_ranges(d))
        return OK;
    if (!d->start.floats)
        d->start.floats = arena_array(&d->arena, model_floats_most(&d->layout), float);
    return d->start.floats ? OK : err_set(d->err, ERR_NOMEM, "out of memory for a checkpoint");
}

static int open_weights(struct driver *d)
{
    int rc = checkpoint_open_weights(d->job->weights, &d->layout, &d->start.ranges, d->err);
    if (rc == OK)
        point_at_start(d);
    return rc;
}

/* Files of weights, and what a run of Caffe left: read here, given to all. */
static int load_initial_state(struct driver *d)
{
    bool weights = d->job->weights && *d->job->weights;
    const char *state = d->options->snapshot;
    d->start.resumed.best_score = INFINITY;
    if (!weights && !state) {
        d->start.floats = NULL;
        return OK;
    }
    if (weights && driver_reads_ranges(d)) {
        log_info(d->host->log, "weights from %s, to each slice its part", d->job->weights);
        return open_weights(d);
    }
    int rc = make_room(d);
    if (rc != OK)
        return rc;
    vec_export(&d->start.both, vec_all(&d->start.both), d->start.floats);
    if (weights)
        rc = initial_weights(d->job, &d->layout, d->host->log, d->start.floats, d->err);
    if (rc == OK && state)
        rc = initial_solver_state(state, d->job, &d->layout, d->host->log, d->start.floats,
                                  &d->start.resumed, d->err);
    if (rc != OK)
        return rc;
    d->start.resumes = state != NULL;
    point_at_start(d);
    return OK;
}

/* *count: streams that have a state; others begin with 0, as all do at the begin of an epoch. */
static int count_streams(const struct driver *d, size_t *count)
{
    const struct model_layout *l = &d->layout;
    size_t n = l->has_carried ? carried_state_floats(l->streams, l->row) : 0;
    float *read = d->start.ranges && n > 0 ? malloc(n * sizeof *read) : NULL;
    *count = 0;
    if (n == 0)
        return OK;
    if (d->start.ranges && !read)
        return err_set(d->err, ERR_NOMEM, "out of memory for the states of %zu streams",
                       l->streams);
    size_t at = model_floats(l) - n;
    int rc = read ? checkpoint_range(d->start.ranges, at, n, read, d->err) : OK;
    if (rc == OK)
        *count = carried_table_count(read ? read : d->start.floats + at, l->streams, l->row);
    free(read);
    return rc;
}

/* Lists the vectors that a checkpoint contained, and those that are reset because it had none. */
static int report_initial_state(const struct driver *d)
{
    size_t kept;
    int rc = count_streams(d, &kept);
    if (rc != OK)
        return rc;
    const struct progress *progress = &d->start.resumed.progress;
    bool state = d->layout.optim->states > 0, extra = d->layout.extras > 0;
    bool streams = d->layout.streams > 0 && d->layout.row > 0;
    struct buf text = {0};
    buf_printf(&text, "resumes after exchange %" PRIu64 " at epoch %.2f with %u worker%s: model",
               progress->exchanges, (double)progress->sample_offset / (double)d->data.epoch_records,
               d->job->workers, plural(d->job->workers, "s"));
    if (state && d->layout.has_state)
        buf_printf(&text, ", optimizer state");
    for (size_t i = 0; extra && d->layout.has_extra && i < d->layout.extras; i++)
        buf_printf(&text, ", %s", d->layout.extra_name[i]);
    if (kept > 0 && kept == d->layout.streams)
        buf_printf(&text, ", carried state");
    else if (kept > 0)
        buf_printf(&text, ", carried state of %zu of %zu streams", kept, d->layout.streams);
    if (state && !d->layout.has_state)
        buf_printf(&text, "; optimizers start over");
    for (size_t i = 0; extra && !d->layout.has_extra && i < d->layout.extras; i++)
        buf_printf(&text, "; %s starts over", d->layout.extra_name[i]);
    if (streams && kept == 0)
        buf_printf(&text, "; streams begin with a state of 0");
    buf_put_u8(&text, 0);
    log_info(d->host->log, "%s", text.failed ? "resumes" : (const char *)text.data);
    buf_release(&text);
    return OK;
}

/* How to resume from an end that was reached. */
static void report_finished_run(const struct driver *d)
{
    const char *dir = d->options->dir->path;
    const Paceline__Stop *stop = d->job->stop;
    const struct progress *progress = &d->start.resumed.progress;
    double reached = (double)progress->sample_offset / (double)d->data.epoch_records;
    char more[48];
    if (stop->has_steps && progress->steps >= stop->steps)
        snprintf(more, sizeof more, "stop.steps=%" PRIu64, 2 * progress->steps);
    else
        snprintf(more, sizeof more, "stop.epochs=%.0f",
                 fmax(round(2 * reached), floor(reached) + 1));
    log_info(d->host->log,
             "the run is complete: %s/" FINAL "; to train it further, write paceline resume "
             "%s --set %s",
             dir, dir, more);
}

/* The final model, which was put elsewhere, into the run directory. */
static int save_final_here(struct driver *d)
{
    const struct rundir *dir = d->options->dir;
    struct checkpoint_header header = d->start.resumed;
    header.incarnation = driver_term_newest(dir);
    header.records = d->data.epoch_records;
    struct model_layout layout = d->layout;
    struct model_source source = {.user = NULL};
    if (d->start.ranges) {
        source = checkpoint_ranges_source(d->start.ranges);
        layout.source = &source;
    }
    return checkpoint_save_model(dir, FINAL, &header, &layout, d->start.floats, d->err);
}

/* The run has come to its end, and has left what it was for: in the directory, or it is what was
 * loaded (`has_final`). Nobody is waited for then; but a driver that died before its workers had
 * heard of it owes them that. */
static int check_whether_over(struct driver *d, bool has_final)
{
    const struct rundir *dir = d->options->dir;
    const struct progress *progress = &d->start.resumed.progress;
    struct driver_term before = {.view = 0};
    struct err none;
    if (driver_term_read(dir, &before, &none) == OK && before.view > 0)
        return OK;
    if (!strategy_done(d->job, progress, d->data.epoch_records))
        return OK;
    /* One of an earlier, shorter run of this directory is of another commit point. */
    bool here = checkpoint_model_is_of(dir, FINAL, progress);
    if (!here && !has_final)
        return OK;
    int rc = here ? OK : save_final_here(d);
    if (rc != OK)
        return rc;
    d->ending.over = true;
    d->model_writer.at = *progress;
    rundir_file(dir, FINAL, d->model_writer.final_path, sizeof d->model_writer.final_path);
    report_finished_run(d);
    return OK;
}

/* Wherever it lies now. */
static int check_data(const struct driver *d)
{
    uint64_t before = d->start.resumed.data_hash;
    uint64_t now = d->membership.own.records.hash;
    if (before == now)
        return OK;
    int rc = err_set(d->err, ERR_INPUT,
                     "%s: the checkpoint is of other data (%016" PRIx64 ", the job's is %016" PRIx64
                     "); give it the same records, or allow others by --force-change",
                     d->options->dir->path, before, now);
    if (!d->options->force)
        return rc;
    log_warn(d->host->log, "%s: resumes with other data than the checkpoint's",
             d->options->dir->path);
    return OK;
}

/* The whole path of a model that the run's last end has put elsewhere; false: none. */
static bool find_elsewhere(const struct rundir *dir, char *path, size_t size)
{
    char events[RUNDIR_PATH_MAX + 64];
    rundir_file(dir, "events.jsonl", events, sizeof events);
    cJSON *end = event_log_newest(events, "end");
    const char *model = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(end, "model"));
    bool elsewhere = model && model[0] == '/';
    if (elsewhere)
        snprintf(path, size, "%s", model);
    cJSON_Delete(end);
    return elsewhere;
}

/* A model that is all there is to resume from, or is further than the newest checkpoint: where the
 * run directory could not take it, it is elsewhere, or the newest checkpoint has become it. Its
 * path, of RUNDIR_PATH_MAX + 64, and its header.
 * ERR_NOT_FOUND: there is none; ERR_INPUT: it cannot be taken up */
static int find_final(struct driver *d, const struct progress *newest, char *path,
                      struct checkpoint_header *header)
{
    const struct rundir *dir = d->options->dir;
    enum { SIZE = RUNDIR_PATH_MAX + 64 };
    char here[SIZE];
    struct err why, none;
    bool elsewhere = find_elsewhere(dir, path, SIZE);
    rundir_file(dir, FINAL, here, sizeof here);
    bool is_there = elsewhere && checkpoint_read_header(path, header, &why) == OK;
    if (is_there && newest && !progress_is_further(&header->progress, newest))
        return ERR_NOT_FOUND;
    if (!is_there && !newest && checkpoint_read_header(here, header, &none) == OK)
        snprintf(path, SIZE, "%s", here);
    else if (!elsewhere)
        return ERR_NOT_FOUND;
    else if (!is_there)
        return err_set(d->err, ERR_INPUT,
                       "the run's final model was put elsewhere and cannot be read (%.300s); copy "
                       "it to %s",
                       why.text, here);
    return OK;
}

static int load_final(struct driver *d, const char *path)
{
    int rc =
        driver_reads_ranges(d)
            ? checkpoint_open_model(path, &d->layout, &d->start.ranges, &d->start.resumed, d->err)
            : checkpoint_load_model(path, &d->layout, d->start.floats, &d->start.resumed, d->err);
    if (rc == OK)
        log_info(d->host->log, "the run's newest model is %s", path);
    return rc;
}

/* *is_final: it is a model, not a checkpoint. */
static int load_newest(struct driver *d, bool *is_final)
{
    const struct rundir *dir = d->options->dir;
    char path[RUNDIR_PATH_MAX + 64];
    struct checkpoint_header newest, final;
    bool kept = checkpoint_find_newest(dir, &newest);
    int rc = find_final(d, kept ? &newest.progress : NULL, path, &final);
    int reported = rc == ERR_INPUT
                       ? ERR_NOT_FOUND
                       : driver_resume_from_reports(d, rc == OK ? &final : &newest, kept);
    *is_final = rc == OK && reported == ERR_NOT_FOUND;
    if (reported != ERR_NOT_FOUND)
        return reported;
    if (rc == OK)
        rc = load_final(d, path);
    if (rc == OK || rc == ERR_NOMEM)
        return rc;
    *is_final = false;
    if (rc == ERR_INPUT && !kept && !d->options->force) {
        struct err why = *d->err;
        return err_set(d->err, ERR_INPUT,
                       "%s: there is no checkpoint, and %.380s; or start over with --force-change",
                       dir->path, why.text);
    }
    if (rc == ERR_INPUT)
        log_warn(d->host->log, "%s: %s", dir->path, d->err->text);
    return driver_reads_ranges(d) ? checkpoint_open(dir, d->host->log, &d->layout, &d->start.ranges,
                                                    &d->start.resumed, d->err)
                                  : checkpoint_load(dir, d->host->log, &d->layout, d->start.floats,
                                                    &d->start.resumed, d->err);
}

/* Take the newest checkpoint of the run directory, or its final model, as the start. */
static int resume_run(struct driver *d)
{
    struct checkpoint_header *header = &d->start.resumed;
    int made = make_room(d);
    if (made != OK)
        return made;
    bool is_final;
    int rc = load_newest(d, &is_final);
    if (rc == ERR_NOT_FOUND) { /* it ended before the first one */
        log_warn(d->host->log, "%s; the run starts over", d->err->text);
        return load_initial_state(d);
    }
    if (rc != OK)
        return rc;
    rc = check_data(d);
    if (rc != OK)
        return rc;
    if (!d->layout.has_state)
        header->updates = 0;
    if (!job_is_alone(d->job) && !driver_keeps_streams(d)) /* any worker may take any record */
        d->layout.has_carried = false;
    header->progress.samples_used = header->used;
    point_at_start(d);
    d->start.resumes = true;
    rc = check_whether_over(d, is_final);
    return rc == OK && !d->ending.over ? report_initial_state(d) : rc;
}

/* The book of leases continues where a checkpoint's ended. One of a run that had none has handed
 * out whatever was before its place. */
static int open_leases(struct driver *d)
{
    struct checkpoint_header *header = &d->start.resumed;
    struct lease_table *leases = &d->leases.table;
    uint64_t grain = strategy_lease_grain(d->job);
    bool opened = header->books.leases
                      ? lease_read(leases, header->books.leases, grain)
                      : lease_open(leases, header->progress.sample_offset, header->missed, grain);
    if (!opened)
        return err_set(d->err, ERR_INPUT, "%s: the checkpoint's lease table %s cannot be read",
                       d->options->dir ? d->options->dir->path : "the run",
                       header->books.leases ? "leases" : "records");
    d->leases.world = d->world;
    d->leases.log = d->host->log;
    d->leases.records = d->data.epoch_records;
    d->leases.step = job_step_records(d->job);
    if (d->job->batch_growth)
        leases->most = (uint64_t)LEASE_STEPS_MAX * d->job->batch_growth->last;
    if (header->books.leases)
        header->used = leases->used;
    return OK;
}

/* The counts of holdings continue likewise. */
static int open_holdings(struct driver *d)
{
    const char *text = d->start.resumed.books.holdings;
    if (!d->job->local_data || !text)
        return OK;
    int rc = holdings_read(&d->holdings, text);
    return rc == OK ? OK
                    : err_set(d->err, rc, "%s: the checkpoint's list holdings cannot be read: %s",
                              d->options->dir ? d->options->dir->path : "the run", status_text(rc));
}

int driver_find_start(struct driver *d)
{
    int rc = d->options->resume ? resume_run(d) : load_initial_state(d);
    if (rc == OK)
        rc = open_leases(d);
    return rc == OK ? open_holdings(d) : rc;
}
