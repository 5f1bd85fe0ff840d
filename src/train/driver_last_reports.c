/* A driver resumes from the files that the workers of the one before left when no driver returned
 * (last_report.h): the counts and the leases of their recovery reports, as a driver that returns in
 * time takes them, and the newest of their models. */
#include "base/file.h"
#include "base/plural.h"
#include "train/driver.h"
#include "train/last_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Into d->recovery.report, by node. */
static void unpack_reports(struct driver *d, const struct last_reports *reports)
{
    for (size_t i = 0; i < reports->count; i++)
        recovery_report_read(reports->at[i].report, &d->recovery.report[reports->at[i].node]);
}

static struct progress progress_of_reports(const struct driver *d,
                                           const struct last_reports *reports,
                                           const struct recovery_sum *sum,
                                           const struct progress *newest)
{
    bool grows = d->job->batch_growth && d->traits.takes_leases;
    uint64_t steps = (sum->samples - newest->sample_offset) / reports->at[0].step_samples;
    return (struct progress){
        .sample_offset = sum->samples,
        .exchanges = sum->exchanges,
        .steps = grows ? (uint64_t)strategy_grown_steps(d->job, sum->samples, d->data.epoch_records)
                       : newest->steps + steps,
    };
}

/* The lease table of the newest checkpoint; of none: an empty one. */
static int open_table(struct driver *d, const struct checkpoint_header *newest,
                      const struct book_texts *books)
{
    struct lease_table *table = &d->leases.table;
    bool opened = books->leases
                      ? lease_read(table, books->leases, 1)
                      : lease_open(table, newest->progress.sample_offset, newest->missed, 1);
    return opened ? OK
                  : err_set(d->err, ERR_INPUT,
                            "%s: the newest checkpoint's lease table cannot be read",
                            d->options->dir->path);
}

/* The rest of the leases is unused for certain, since a report is a worker's last word. */
static int rebuild_leases(struct driver *d, const struct last_reports *reports,
                          const struct recovery_sum *sum, const struct checkpoint_header *newest,
                          struct checkpoint_header *header)
{
    struct lease_table *table = &d->leases.table;
    struct buf text = {0};
    int rc = open_table(d, newest, &header->books);
    if (rc != OK)
        return rc;
    MEMBERS_EACH (node, &reports->here) {
        const struct recovery_report *report = &d->recovery.report[node];
        if (!lease_node_reconnects(table, node, &report->lease, report->lease_high))
            log_warn(d->host->log, "worker %u: the leases that it reports cannot be its own", node);
    }
    lease_finish_recovery(table, sum->samples - sum->repeated_leases, sum->repeated);
    MEMBERS_EACH (node, &reports->here)
        lease_node_leaves(table, node);
    lease_write(table, &text);
    if (text.failed) {
        buf_release(&text);
        return err_set(d->err, ERR_NOMEM, "out of memory for a lease table");
    }
    free(header->books.leases);
    header->books.leases = (char *)text.data;
    header->used = table->used;
    header->missed = table->lost;
    header->repeated = table->repeated;
    return OK;
}

/* The newest model that can be read; a line in the log names each other. ERR_NOT_FOUND: none */
static int load_model(struct driver *d, const struct last_reports *reports,
                      struct checkpoint_header *header)
{
    struct members left = reports->here;
    char path[RUNDIR_PATH_MAX + 64];
    for (;;) {
        const struct last_report *best = NULL;
        for (size_t i = 0; i < reports->count; i++) {
            const struct last_report *report = &reports->at[i];
            if (report->has_model && members_has(&left, report->node) &&
                (!best || report->version > best->version))
                best = report;
        }
        if (!best)
            return ERR_NOT_FOUND;
        members_remove(&left, best->node);
        last_report_model_path(d->options->dir, best, path, sizeof path);
        if (!file_is_regular(path)) /* another one's was as new */
            continue;
        int rc = checkpoint_load_model(path, &d->layout, d->start.floats, header, d->err);
        if (rc == OK)
            log_info(d->host->log, "the run's newest model is %s", path);
        if (rc == OK || rc == ERR_NOMEM)
            return rc;
        log_warn(d->host->log, "passed over: %s", d->err->text);
    }
}

/* The newest checkpoint has the values that only the driver knew. */
static void read_books(struct driver *d, const struct checkpoint_header *newest, bool kept,
                       struct checkpoint_header *header)
{
    char path[RUNDIR_PATH_MAX + 64];
    struct err why;
    book_texts_release(&header->books);
    header->best_score = newest->best_score;
    checkpoint_path_of(d->options->dir, newest->progress.exchanges, path, sizeof path);
    if (kept && checkpoint_read_books(path, &header->books, &why) != OK)
        log_warn(d->host->log, "its books of samples are passed over: %s", why.text);
}

static void name_missing(const struct driver *d, const struct last_reports *reports)
{
    const struct members missing = members_without(&reports->members, &reports->here);
    MEMBERS_EACH (node, &missing)
        log_warn(
            d->host->log,
            "worker %u has left no report: unless it returns, its samples since the checkpoint "
            "count as missed",
            node);
}

static int take_up(struct driver *d, const struct last_reports *reports,
                   const struct checkpoint_header *newest, bool kept, const struct progress *all,
                   const struct recovery_sum *sum)
{
    struct checkpoint_header *header = &d->start.resumed, before = *header;
    int rc = load_model(d, reports, header);
    if (rc != OK) {
        *header = before;
        if (rc == ERR_NOT_FOUND)
            log_warn(d->host->log, "%s: %zu worker%s left reports, but no model to resume from",
                     d->options->dir->path, reports->count, plural(reports->count, "s"));
        return rc;
    }
    header->progress = *all;
    read_books(d, newest, kept, header);
    rc = rebuild_leases(d, reports, sum, newest, header);
    if (rc != OK)
        return rc;
    name_missing(d, reports);
    log_info(d->host->log,
             "%zu of the last driver's %zu workers left their reports when it did not return: "
             "%" PRIu64 " samples used, %" PRIu64 " repeated, %" PRIu64 " missed",
             reports->count, members_count(&reports->members), header->used, header->repeated,
             header->missed);
    return OK;
}

/* Did no driver make a view without these workers? Then all that it wrote is older than what they
 * have, even if a report is missing in the sum. The term of a driver that made no view has the last
 * one of the driver before. */
static bool is_from_last_view(const struct driver *d, const struct last_reports *reports)
{
    struct driver_term term;
    struct err none;
    if (driver_term_read(d->options->dir, &term, &none) != OK || term.view == 0)
        return false;
    return term.incarnation == reports->incarnation
               ? term.view <= reports->view
               : term.view == reports->view && members_within(&term.members, &reports->members);
}

static bool is_further(const struct driver *d, const struct last_reports *reports,
                       const struct checkpoint_header *newest, const struct progress *all)
{
    bool further = newest->incarnation <= reports->incarnation &&
                   (is_from_last_view(d, reports) || progress_is_further(all, &newest->progress));
    if (!further)
        log_warn(d->host->log,
                 "%s: the reports of %zu worker%s are passed over: there is a newer checkpoint or "
                 "model",
                 d->options->dir->path, reports->count, plural(reports->count, "s"));
    return further;
}

int driver_resume_from_reports(struct driver *d, const struct checkpoint_header *newest, bool kept)
{
    struct last_reports reports;
    if (driver_reads_ranges(d))
        return ERR_NOT_FOUND;
    int rc = last_reports_read(d->options->dir, d->host->log, &reports, d->err);
    if (rc != OK || reports.count == 0) {
        last_reports_release(&reports);
        return rc == OK ? ERR_NOT_FOUND : rc;
    }
    unpack_reports(d, &reports);
    struct progress least = newest->progress;
    least.samples_used = newest->used;
    const struct recovery_sum sum = recovery_sum(d->recovery.report, &reports.here, &least);
    const struct progress all = progress_of_reports(d, &reports, &sum, &newest->progress);
    rc = is_further(d, &reports, newest, &all) ? take_up(d, &reports, newest, kept, &all, &sum)
                                               : ERR_NOT_FOUND;
    last_reports_release(&reports);
    return rc;
}
