/* Records that workers have on their own (local_data): the driver assigns their shares, and keeps
 * account of the records that no member has. */
#include "train/driver.h"

#include <inttypes.h>
#include <stdlib.h>

/* The samples of an epoch: as the job says, or returned workers or the checkpoint know them; else
 * holdings_process_view takes the records of all holdings of the first view. */
static void settle_epoch(struct driver *d, const struct view *view)
{
    struct holdings *book = &d->holdings;
    if (d->job->has_epoch_records)
        book->epoch_records = d->job->epoch_records;
    for (size_t i = 0; i < view->count; i++) {
        uint64_t known = d->membership.records[view->node[i]]->local.epoch_records;
        book->epoch_records = known > book->epoch_records ? known : book->epoch_records;
    }
}

/* Records of the first view that still arrive are no epoch. */
static int check_epoch(struct driver *d)
{
    for (size_t k = 0; d->holdings.epoch_records == 0 && k < d->holdings.count; k++)
        if (d->holdings.known[k].is.grows)
            return err_set(d->err, ERR_INPUT,
                           "epoch_records: is missing; the records of worker %u still arrive, so "
                           "the job has to set how many samples an epoch is",
                           d->holdings.known[k].owner);
    return OK;
}

/* The counts that were opened with the driver's own records. */
static void take_epoch(struct driver *d)
{
    d->data.epoch_records = d->leases.records = d->holdings.epoch_records;
    driver_open_counts(d);
    log_info(d->host->log, "workers have their own records: %" PRIu64 " in all are an epoch",
             d->holdings.epoch_records);
}

static int add_workers(struct driver *d, const struct view *view)
{
    for (size_t i = 0; i < view->count; i++) {
        uint32_t node = view->node[i];
        int rc = d->membership.records[node]
                     ? holdings_add(&d->holdings, node, d->membership.records[node],
                                    d->membership.location[node].host)
                     : ERR_NOMEM;
        if (rc != OK)
            return err_set(d->err, rc, "out of memory for the records of worker %u", node);
    }
    return OK;
}

/* Names the records that nobody has from now on, and those that somebody has again. */
static void log_changes(const struct driver *d, const bool *served)
{
    for (size_t k = 0; k < d->holdings.count; k++) {
        const struct known_holding *known = &d->holdings.known[k];
        if (known->served == served[k])
            continue;
        const char *on = known->host[0] ? " on " : "";
        if (known->served)
            log_info(d->host->log,
                     "worker %u has the %" PRIu64 " records of %s%s%s, which nobody had before",
                     known->owner, known->is.count, known->path, on, known->host);
        else
            log_warn(d->host->log,
                     "the %" PRIu64 " records of %s%s%s are missed from now on: only worker %u had "
                     "them; start a worker that has them",
                     known->is.count, known->path, on, known->host, known->owner);
    }
}

static int process_view(struct driver *d, const struct view *view)
{
    struct holdings *book = &d->holdings;
    bool first = book->view == 0;
    int rc = add_workers(d, view);
    if (rc != OK)
        return rc;
    bool *served = calloc(book->count + 1, sizeof *served);
    if (!served)
        return err_set(d->err, ERR_NOMEM, "out of memory for %zu sets of records", book->count);
    for (size_t k = 0; k < book->count; k++)
        served[k] = book->known[k].served;
    if (first) {
        settle_epoch(d, view);
        rc = check_epoch(d);
    }
    if (rc != OK) {
        free(served);
        return rc;
    }
    holdings_process_view(book, view);
    if (first)
        take_epoch(d);
    else
        log_changes(d, served);
    free(served);
    return OK;
}

static void send_shares(struct driver *d, const struct view *view)
{
    const struct members unsent = d->holdings.unsent;
    MEMBERS_EACH (node, &unsent) {
        struct share_message share = {.view = view->number,
                                      .epoch_records = d->holdings.epoch_records};
        struct buf bytes = {0};
        share.count = (uint32_t)holdings_share(&d->holdings, view, node, share.range);
        share_encode(&share, &bytes);
        int rc = driver_send(d, node, WIRE_SHARE, &bytes);
        buf_release(&bytes);
        if (rc == OK || rc == ERR_PEER)
            members_remove(&d->holdings.unsent, node);
    }
}

int driver_check_shares(struct driver *d, const struct view *view)
{
    int rc = OK;
    if (!d->job->local_data || view->count == 0)
        return OK;
    if (view->number != d->holdings.view)
        rc = process_view(d, view);
    if (rc == OK)
        send_shares(d, view);
    return rc;
}

void driver_take_holdings(struct driver *d, uint32_t node, const struct committed *report)
{
    uint32_t more = holdings_report(&d->holdings, node, report->of_holding, report->holdings);
    if (more > 0)
        log_info(d->host->log, "worker %u has %u more sets of records", node, more);
}

void driver_report_holdings(struct driver *d)
{
    for (size_t k = 0; d->job->local_data && k < d->holdings.count; k++) {
        const struct known_holding *known = &d->holdings.known[k];
        const struct holding_count count =
            holdings_count(&d->holdings, k, d->ledger.last.progress.sample_offset);
        cJSON *event = events_new(&d->events, "records");
        cJSON_AddStringToObject(event, "path", known->path);
        cJSON_AddStringToObject(event, "host", known->host);
        cJSON_AddNumberToObject(event, "owner", known->owner);
        cJSON_AddBoolToObject(event, "served", known->served);
        cJSON_AddNumberToObject(event, "records", (double)known->is.count);
        cJSON_AddNumberToObject(event, "used", (double)count.taken);
        cJSON_AddNumberToObject(event, "due", (double)count.due);
        cJSON_AddNumberToObject(event, "repeated", (double)count.repeated);
        cJSON_AddNumberToObject(event, "missed", (double)count.missed);
        events_emit(&d->events, event);
        if (!known->served)
            log_warn(d->host->log,
                     "the %" PRIu64 " records of %s: %" PRIu64 " of %" PRIu64
                     " samples were missed",
                     known->is.count, known->path, count.missed, count.due);
    }
}
