#include "train/bad_report.h"

#include "base/printable.h"
#include "wire/post.h"

#include <stdio.h>

/* ---- a worker's side ---- */

int worker_report_bad_records(struct worker *w)
{
    const struct bad_records *bad = w->corpus->bad;
    int rc = OK;
    while (rc == OK && bad && w->bad_reported < bad_records_count(bad)) {
        const struct bad_record *record = bad_records_at(bad, w->bad_reported++);
        struct buf bytes = {0};
        buf_put_u8(&bytes, (uint8_t)record->of);
        buf_put_u64(&bytes, record->record);
        buf_put_text(&bytes, record->cause);
        rc = worker_mention(w, WIRE_BAD_RECORD, &bytes);
        buf_release(&bytes);
    }
    return rc;
}

/* ---- the driver's ---- */

int driver_on_bad_record(struct driver *d, const struct message *m)
{
    struct cut in = {m->data, m->len, false};
    char cause[BAD_CAUSE_MAX];
    uint8_t of = cut_u8(&in);
    uint64_t record = cut_u64(&in);
    cut_text(&in, cause, sizeof cause);
    printable(cause);
    if (!cut_done(&in) || of > BAD_OF_TEST || !d->corpus->bad) {
        log_warn(d->host->log, "worker %u: its broken record cannot be understood", m->from);
        return OK;
    }
    return bad_records_add(d->corpus->bad, (enum bad_source)of, record, cause, d->err);
}

static void emit_bad_record(struct driver *d, const struct bad_record *bad)
{
    cJSON *event = events_new(&d->events, "bad_record");
    cJSON_AddStringToObject(event, "of", bad->of == BAD_OF_TRAIN ? "train_data" : "test_data");
    cJSON_AddNumberToObject(event, "record", (double)(bad->record & ~BAD_AT_OPENING));
    cJSON_AddStringToObject(event, "cause", bad->cause);
    events_emit(&d->events, event);
}

void driver_tell_bad_records(struct driver *d)
{
    const struct bad_records *bad = d->corpus->bad;
    size_t count = bad ? bad_records_count(bad) : 0;
    for (; d->bad_emitted < count; d->bad_emitted++)
        emit_bad_record(d, bad_records_at(bad, d->bad_emitted));
    if (d->bad_logged == count || world_now(d->world) < d->next_bad_log)
        return;
    size_t more = count - d->bad_logged - 1;
    log_warn(d->host->log, "broken record left out: %s; another stands in%s (%zu of at most %u)",
             bad_records_at(bad, d->bad_logged)->cause, more > 0 ? ", and for those after it" : "",
             count, d->job->bad_records_max);
    d->bad_logged = count;
    d->next_bad_log = world_now(d->world) + WORLD_SECOND;
}

void driver_sum_bad_records(struct driver *d, struct train_report *report)
{
    const struct wait_for more = wire_from(WORLD_ANY, WIRE_BAD_RECORD);
    struct wake wake;
    const struct bad_records *bad = d->corpus->bad;
    if (!bad)
        return;
    while (world_wait(d->world, &more, 1, world_now(d->world), &wake) == OK) {
        driver_on_bad_record(d, wake.msg); /* the run is over: too many end nothing any more */
        message_unref(wake.msg);
    }
    d->next_bad_log = 0;
    driver_tell_bad_records(d);
    report->bad_records = bad_records_count(bad);
    for (size_t i = 0; i < report->bad_records && i < TRAIN_BAD_NAMED; i++)
        snprintf(report->bad_record[i], sizeof report->bad_record[i], "%s",
                 bad_records_at(bad, i)->cause);
}
