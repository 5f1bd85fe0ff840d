#include "train/worker_checkpoint.h"

#include "base/fault.h"
#include "base/file.h"
#include "group/listener.h"
#include "train/checkpoint.h"
#include "train/driver_term_file.h"
#include "train/last_report.h"
#include "train/worker_share.h"

#include <inttypes.h>
#include <math.h>

/* ns for which a worker waits for the model of another one. */
#define OTHER_MODEL_WAIT (3 * WORLD_SECOND)

/* Has this worker the global model of the newest commit point? Where it is the learner's own, a
 * step may have changed it since; where the driver holds it, the learner's is another. */
static bool has_model(const struct worker *w)
{
    bool own = w->member.model.x == &w->learner.x;
    return !own || (w->traits.workers_hold_model && !job_takes_all(w->job) &&
                    w->learner.steps == w->counts.committed_steps);
}

static bool may_save(const struct worker *w)
{
    return w->host->run_folder && atomic_load(&w->group.driver.missing) &&
           !atomic_load(&w->group.end.run_ended) && w->job->slices == 1;
}

static bool may_save_checkpoint(const struct worker *w)
{
    bool is_first = group_view(&w->group)->node[0] == w->world->self;
    return is_first && w->member.progress.steps > w->start.steps && has_model(w);
}

/* The directory could be another one of that name on this machine, also of another run. */
static int check_directory(const struct worker *w, const struct rundir *dir, struct err *err)
{
    struct driver_term term;
    uint32_t own = group_view(&w->group)->incarnation;
    int rc = driver_term_read(dir, &term, err);
    if (rc == OK && w->host->run != 0 && term.run != w->host->run)
        rc = err_set(err, ERR_FENCED,
                     "%s: it is the directory of another run; give the worker that of its driver",
                     dir->path);
    if (rc == OK && term.incarnation != own)
        rc = err_set(err, ERR_FENCED,
                     "%s: its newest driver is number %" PRIu32 ", this worker's was %" PRIu32,
                     dir->path, term.incarnation, own);
    return rc;
}

/* The newest checkpoint has the values that only the driver knew. *further: it is not as far. */
static int complete_header(const struct worker *w, const struct rundir *dir,
                           struct checkpoint_header *header, bool *further, struct err *err)
{
    struct checkpoint_header newest;
    char path[RUNDIR_PATH_MAX + 64];
    bool found = checkpoint_find_newest(dir, &newest);
    *further = !found || progress_is_further(&w->member.progress, &newest.progress);
    if (!found || !*further)
        return OK;
    header->best_score = newest.best_score;
    header->repeated = newest.repeated;
    checkpoint_path_of(dir, newest.progress.exchanges, path, sizeof path);
    return w->job->local_data ? checkpoint_read_books(path, &header->books, err) : OK;
}

static int make_header(const struct worker *w, struct checkpoint_header *header, struct err *err)
{
    const struct progress *progress = &w->member.progress;
    struct hello_records records = {.hash = 0};
    worker_copy_records(w, &records);
    *header = (struct checkpoint_header){
        .progress = *progress,
        .used = progress->samples_used,
        .missed = progress->sample_offset > progress->samples_used
                      ? progress->sample_offset - progress->samples_used
                      : 0,
        .seed = w->job->seed,
        .data_hash = records.hash,
        .records = w->learner.epoch_records,
        .best_score = INFINITY,
        .incarnation = group_view(&w->group)->incarnation,
    };
    return job_hash(w->job, &header->job_hash, err);
}

/* Wait until the publisher's copy is no longer being read. Sending it to the driver has failed. */
static int await_copy(struct worker *w, struct err *err)
{
    int rc = publisher_finish(&w->publisher, world_now(w->world) + WORLD_SECOND);
    if (rc == ERR_TIMEOUT)
        return err_set(err, rc, "its model is still being sent");
    return rc == ERR_CANCELLED ? rc : OK;
}

struct model_layout worker_layout(const struct worker *w, const struct model_header *vectors)
{
    return (struct model_layout){
        .x = net_whole_segments(w->data.ws->train),
        .s = net_state_segments(w->data.ws->train),
        .optim = w->learner.optim.ops,
        .extra_name = w->strategy->extra_name,
        .extras = w->strategy->extras,
        .streams = w->learner.carried.streams,
        .row = w->learner.carried.row,
        .has_state = vectors->has_state,
        .has_extra = vectors->has_extra,
        .has_carried = vectors->has_carried,
    };
}

/* The model into the publisher's copy. */
static struct model_layout copy_model(struct worker *w, uint64_t *updates)
{
    struct global_model model = worker_model(w);
    struct model_header vectors = model_header_of(&model, w->strategy->extras);
    PL_ASSERT(vectors.floats <= w->publisher.room);
    model_copy(w->publisher.copy, &model, w->strategy->extras);
    *updates = model.updates;
    return worker_layout(w, &vectors);
}

static int save_checkpoint(struct worker *w, const struct rundir *dir, struct err *err)
{
    struct checkpoint_header header;
    uint64_t bytes;
    bool further;
    int rc = make_header(w, &header, err);
    if (rc == OK)
        rc = complete_header(w, dir, &header, &further, err);
    if (rc != OK || !further)
        return rc;
    rc = await_copy(w, err);
    if (rc != OK) {
        book_texts_release(&header.books);
        return rc;
    }
    struct model_layout layout = copy_model(w, &header.updates);
    rc = checkpoint_save(dir, &header, &layout, w->publisher.copy, w->job->checkpoint->keep, &bytes,
                         err);
    book_texts_release(&header.books);
    if (rc == OK)
        log_info(w->host->log,
                 "the driver is lost: checkpoint of exchange %" PRIu64 " (epoch %.2f) written to "
                 "%s, %" PRIu64 " bytes",
                 header.progress.exchanges,
                 (double)header.progress.sample_offset / (double)header.records, dir->path, bytes);
    return rc;
}

/* ---- asynchronous: reports of all, and the newest model ---- */

static bool make_report(struct worker *w, struct last_report *report)
{
    const struct view *view = group_view(&w->group);
    *report = (struct last_report){
        .incarnation = view->incarnation,
        .node = w->world->self,
        .view = view->number,
        .members = view_members(view),
        .step_samples = (uint64_t)job_step_records(w->job) * job_replicas(w->job),
    };
    bool trained = group_read_report(&w->group, report->report);
    report->has_model = trained && w->strategy->last_model(&w->member, &report->version);
    return trained;
}

static int save_last_model(struct worker *w, const struct rundir *dir,
                           const struct last_report *report, struct err *err)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct checkpoint_header header;
    uint64_t bytes;
    int rc = make_header(w, &header, err);
    if (rc == OK)
        rc = await_copy(w, err);
    if (rc != OK)
        return rc;
    struct model_layout layout = copy_model(w, &header.updates);
    last_report_model_path(dir, report, path, sizeof path);
    rc = checkpoint_save_at(dir, path, &header, &layout, w->publisher.copy, &bytes, err);
    if (rc == OK)
        log_info(w->host->log,
                 "the driver is lost: global model of version %" PRIu64 " written to %s, %" PRIu64
                 " bytes",
                 report->version, path, bytes);
    return rc;
}

/* Is there a model that is as new as this worker's? One that another worker promises may not come:
 * that one may end first, or have no room. */
static int await_other_model(struct worker *w, const struct rundir *dir,
                             const struct last_report *own, bool *found, struct err *err)
{
    int64_t until = world_now(w->world) + OTHER_MODEL_WAIT;
    char path[RUNDIR_PATH_MAX + 64];
    struct last_reports all;
    int rc = last_reports_read(dir, w->host->log, &all, err);
    if (rc != OK)
        return rc;
    const struct last_report *other = last_reports_later(&all, own);
    bool promised = other;
    if (promised)
        last_report_model_path(dir, other, path, sizeof path);
    last_reports_release(&all);
    *found = promised && file_is_regular(path);
    while (rc == OK && promised && !*found && world_now(w->world) < until) {
        rc = world_sleep(w->world, world_now(w->world) + WORLD_SECOND / 10);
        *found = file_is_regular(path);
    }
    return rc;
}

/* Workers end at about the same time, and each writes its report first: so mostly one of them
 * writes its model. */
static int save_last_report(struct worker *w, const struct rundir *dir, struct err *err)
{
    struct last_report report;
    bool found = false;
    if (!make_report(w, &report))
        return OK;
    int rc = last_report_write(dir, &report, err);
    if (rc != OK)
        return rc;
    log_info(w->host->log, "the driver is lost: recovery report written to %s", dir->path);
    if (!report.has_model)
        return OK;
    rc = await_other_model(w, dir, &report, &found, err);
    return rc == OK && !found ? save_last_model(w, dir, &report, err) : rc;
}

void worker_save_checkpoint(struct worker *w)
{
    struct rundir dir = {.disk = w->host->run_disk};
    struct err err;
    bool reports = w->traits.is_async;
    if (!may_save(w) || !(reports || may_save_checkpoint(w)))
        return;
    int rc = rundir_set_path(&dir, w->host->run_folder, &err);
    if (rc == OK)
        rc = check_directory(w, &dir, &err);
    if (rc == OK)
        rc = reports ? save_last_report(w, &dir, &err) : save_checkpoint(w, &dir, &err);
    if (rc != OK && rc != ERR_CANCELLED)
        log_warn(w->host->log, "the driver is lost, and this worker writes no %s: %s",
                 reports ? "report or model" : "checkpoint", err.text);
}
