/* Writes the last files of a run: its final model, or its kept model after a stop at once. If the
 * disk has no room for the final model, the writer waits, with a copy in a fallback location that
 * has room; at the end of the wait that copy is the model. */
#include "train/checkpoint_ranges.h"
#include "train/last_report.h"
#include "train/model_writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FINAL        "final.safetensors"
#define LOOK         (5 * WORLD_SECOND)  /* between two attempts */
#define REPORT_EVERY (30 * WORLD_SECOND) /* between two messages */
#define POLL         (WORLD_SECOND / 5)  /* for a request to stop */

/* The state of a wait until the model is written, here or in a fallback location. */
struct patience {
    int64_t until, next_report;
    int level;     /* of the request to stop when it began */
    bool complete; /* the run needs no checkpoint any more to resume from */
};

static int read_stop(const struct model_writer *k)
{
    return k->stop ? atomic_load(k->stop) : 0;
}

/* "net-final", from the run directory's name. */
static void name_copy(const struct model_writer *k, char *out, size_t size)
{
    const char *slash = strrchr(k->dir->path, '/');
    snprintf(out, size, "%.200s-final", slash ? slash + 1 : k->dir->path);
}

/* Write it to the first fallback location that has room. */
static bool put_elsewhere(struct model_writer *k, const struct checkpoint_header *header)
{
    char name[256];
    name_copy(k, name, sizeof name);
    for (const struct rundir_fallback *at = k->fallbacks; at && at->folder && !k->copy[0]; at++) {
        struct err why;
        if (checkpoint_save_copy(k->dir->disk, at->folder, name, header, &k->layout, k->landing,
                                 k->copy, sizeof k->copy, &why) != OK)
            k->copy[0] = '\0';
        k->copy_in_memory = at->in_memory;
    }
    return k->copy[0] != '\0';
}

static const char *name_risk(const struct model_writer *k)
{
    return k->copy_in_memory ? " (in memory: it is lost when this machine is switched off)" : "";
}

/* Reports the failure, and the remedy. */
static void report_wait(struct model_writer *k, struct patience *p)
{
    double left = world_seconds(p->until - world_now(k->world));
    uint64_t bytes = checkpoint_bytes(&k->layout, true);
    p->next_report = world_now(k->world) + REPORT_EVERY;
    if (k->copy[0])
        log_error(k->log,
                  "the final model is not in the run directory yet: %s. It needs %" PRIu64
                  " bytes under %s, and is tried again for %.0f s. A copy is in %s%s; Ctrl-C: "
                  "end with that one",
                  k->err.text, bytes, k->dir->path, left, k->copy, name_risk(k));
    else
        log_error(k->log,
                  "the final model is not on disk yet: %s. It needs %" PRIu64
                  " bytes under %s, and is tried again for %.0f s. No other place has room for it, "
                  "either; Ctrl-C: end WITHOUT the model",
                  k->err.text, bytes, k->dir->path, left);
}

/* Write it into the run directory. To make room, old checkpoints are removed, the oldest first, but
 * never the newest: another process may take the room as soon as it is free. If the newest is of
 * this commit point, it becomes the model once it is not needed to resume from. */
static int write_here(struct model_writer *k, const struct checkpoint_header *header, bool complete)
{
    int rc = checkpoint_save_model(k->dir, FINAL, header, &k->layout, k->landing, &k->err);
    while (rc == ERR_FULL && checkpoint_remove_oldest(k->dir, header->incarnation)) {
        log_warn(k->log, "a checkpoint was removed to make room for the final model");
        rc = checkpoint_save_model(k->dir, FINAL, header, &k->layout, k->landing, &k->err);
    }
    bool kept = k->written && k->written_at.exchanges == header->progress.exchanges &&
                k->written_at.sample_offset == header->progress.sample_offset;
    struct err why;
    if (rc != ERR_FULL || !complete || !kept ||
        checkpoint_turn_into_model(k->dir, header, FINAL, &why) != OK)
        return rc;
    k->written = false;
    log_warn(k->log,
             "there is no room for two files: the newest checkpoint is the final model now");
    return OK;
}

/* The slices of the model are released as soon as a copy is safe, which it comes from then on. */
static int write_from_copy(struct model_writer *k, const struct checkpoint_header *header,
                           bool complete)
{
    const struct model_source *slices = k->layout.source;
    struct checkpoint_ranges *ranges;
    struct checkpoint_header of_copy;
    struct model_layout layout = k->layout;
    int rc = checkpoint_open_model(k->copy, &layout, &ranges, &of_copy, &k->err);
    if (rc != OK)
        return rc;
    const struct model_source copy = checkpoint_ranges_source(ranges);
    book_texts_release(&of_copy.books);
    k->layout.source = &copy;
    rc = write_here(k, header, complete);
    k->layout.source = slices;
    checkpoint_close(ranges);
    return rc;
}

static int try_once(struct model_writer *k, const struct checkpoint_header *header,
                    const struct patience *p)
{
    if (k->slices > 1 && k->copy[0])
        return write_from_copy(k, header, p->complete);
    int rc = write_here(k, header, p->complete);
    if (rc != OK && rc != ERR_PEER && !k->copy[0])
        put_elsewhere(k, header);
    return rc;
}

/* Wait until the next attempt. ERR_STOP: the user has ended the wait; ERR_TIMEOUT */
static int pause_wait(struct model_writer *k, const struct patience *p)
{
    int64_t retry_at = world_now(k->world) + LOOK;
    int rc = OK;
    while (rc == OK && world_now(k->world) < retry_at) {
        if (read_stop(k) > p->level)
            return ERR_STOP;
        if (world_now(k->world) >= p->until)
            return ERR_TIMEOUT;
        rc = world_sleep(k->world, world_now(k->world) + POLL);
    }
    return rc;
}

/* Where the model is now, for the run's report. */
static int end_wait(struct model_writer *k, int rc)
{
    if (rc == OK && k->copy[0]) {
        k->dir->disk->ops->remove(k->dir->disk, k->copy, NULL);
        k->copy[0] = '\0';
        log_info(k->log, "the final model is in the run directory now");
    }
    if (rc == OK) {
        rundir_file(k->dir, FINAL, k->final_path, sizeof k->final_path);
        return OK;
    }
    snprintf(k->final_path, sizeof k->final_path, "%s", k->copy);
    if (!k->copy[0])
        return err_set(&k->err, rc, "the final model is lost: no disk had room for it");
    k->elsewhere = true;
    log_error(k->log,
              "the final model is %s%s, and not in the run directory: %s. Once that can take it, "
              "paceline resume %s takes it up",
              k->copy, name_risk(k), k->err.text, k->dir->path);
    return OK;
}

int model_writer_write_final(struct model_writer *k, const struct checkpoint_header *header,
                             bool complete)
{
    struct patience p = {
        .until = world_now(k->world) + (int64_t)(k->wait_s * (double)WORLD_SECOND),
        .level = read_stop(k),
        .complete = complete,
    };
    for (;;) {
        int rc = try_once(k, header, &p);
        if (rc == OK && complete) /* nothing is left to resume from reports */
            last_reports_remove(k->dir, header->incarnation + 1);
        if (rc == OK)
            return end_wait(k, OK);
        if (rc == ERR_PEER) /* the slices of the model are gone */
            return rc;
        if (world_now(k->world) >= p.next_report)
            report_wait(k, &p);
        if (k->copy[0]) {
            atomic_store(&k->waits, true);
            world_raise(k->world, SIGNAL_GROUP);
        }
        int paused = pause_wait(k, &p);
        if (paused == ERR_CANCELLED)
            return paused;
        if (paused != OK)
            return end_wait(k, rc);
    }
}

void model_writer_keep(struct model_writer *k, const struct progress *progress,
                       const struct global_model *model, size_t extras)
{
    if (k->kept_model.floats > 0 && !progress_is_further(progress, &k->kept_model.progress))
        return;
    if (k->written && !progress_is_further(progress, &k->written_at))
        return;
    k->kept_model = model_header_of(model, extras);
    k->kept_model.progress = k->at = *progress;
    model_copy(k->landing, model, k->kept_model.has_extra ? extras : 0);
    model_writer_set_books(k, MODEL_CHECKPOINT);
}

const char *model_writer_save_kept(struct model_writer *k)
{
    bool newer = k->kept_model.floats > 0 &&
                 (!k->written || progress_is_further(&k->kept_model.progress, &k->written_at));
    if (!k->dir)
        return NULL;
    if (newer)
        model_writer_checkpoint(k, &k->kept_model);
    if (newer && !(k->written && !progress_is_further(&k->kept_model.progress, &k->written_at))) {
        const struct checkpoint_header header = model_writer_header_at(k, &k->kept_model.progress);
        k->elsewhere = put_elsewhere(k, &header);
        snprintf(k->final_path, sizeof k->final_path, "%s", k->copy);
    }
    if (!k->copy[0] && k->written) {
        k->at = k->written_at;
        checkpoint_path_of(k->dir, k->written_at.exchanges, k->final_path, sizeof k->final_path);
    }
    return k->final_path[0] ? k->final_path : NULL;
}
