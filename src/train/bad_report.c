#include "train/bad_report.h"

#include "base/hash.h"
#include "base/printable.h"
#include "wire/wire_send.h"

#include <stdio.h>
#include <string.h>

/* ---- a worker's side ---- */

int worker_report_bad_records(struct worker *w)
{
    const struct bad_records *bad = w->data.corpus->bad;
    int rc = OK;
    while (rc == OK && bad && w->counts.bad_reported < bad_records_count(bad)) {
        const struct bad_record *record = bad_records_at(bad, w->counts.bad_reported++);
        struct buf bytes = {0};
        buf_put_u8(&bytes, (uint8_t)record->of);
        buf_put_u64(&bytes, record->record);
        buf_put_text(&bytes, record->cause);
        rc = worker_report_if_connected(w, WIRE_BAD_RECORD, &bytes);
        buf_release(&bytes);
    }
    return rc;
}

/* ---- the driver's ---- */

enum { OWN_MACHINE = 0 }; /* the driver's, and that of workers which it has started */

static uint64_t machine_of(const struct driver *d, uint32_t node)
{
    const char *host =
        node < VIEW_MEMBERS_MAX ? d->membership.joiner[node].report.location.host : "";
    if (!d->options->elsewhere)
        return OWN_MACHINE;
    return (*host ? hash_bytes(host, strlen(host)) : node) | 1;
}

int driver_on_bad_record(struct driver *d, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    struct bad_record bad = {.of = (enum bad_source)read_u8(&in)};
    bool confirmed;
    bad.record = read_u64(&in);
    read_text(&in, bad.cause, sizeof bad.cause);
    printable(bad.cause);
    if (!byte_reader_done(&in) || bad.of > BAD_OF_TEST || !d->data.corpus->bad) {
        wire_guard_count(&d->group.guard, m->from, WIRE_BAD_RECORD, "it cannot be read");
        return OK;
    }
    uint64_t machine = machine_of(d, m->from);
    int rc = bad_record_log_add(&d->reports.bad, machine, &bad, &confirmed);
    if (rc != OK)
        return err_set(d->err, rc, "out of memory for broken records");
    return confirmed || machine == OWN_MACHINE
               ? bad_records_add(d->data.corpus->bad, bad.of, bad.record, bad.cause, d->err)
               : OK;
}

static void emit_bad_record(struct driver *d, const struct bad_record *bad)
{
    cJSON *event = events_new(&d->events, "bad_record");
    cJSON_AddStringToObject(event, "of", bad->of == BAD_OF_TRAIN ? "train_data" : "test_data");
    cJSON_AddNumberToObject(event, "record", (double)(bad->record & ~BAD_AT_OPENING));
    cJSON_AddStringToObject(event, "cause", bad->cause);
    events_emit(&d->events, event);
}

/* Adds the driver's own reports. */
static void gather_own(struct driver *d)
{
    const struct bad_records *own = d->data.corpus->bad;
    bool confirmed;
    for (; own && d->reports.bad_own < bad_records_count(own); d->reports.bad_own++)
        (void)bad_record_log_add(&d->reports.bad, OWN_MACHINE,
                                 bad_records_at(own, d->reports.bad_own), &confirmed);
}

void driver_report_bad_records(struct driver *d)
{
    gather_own(d);
    const struct bad_records *bad = d->reports.bad.seen;
    size_t count = bad ? bad_records_count(bad) : 0;
    for (; d->reports.bad_emitted < count; d->reports.bad_emitted++)
        emit_bad_record(d, bad_records_at(bad, d->reports.bad_emitted));
    if (d->reports.bad_logged == count || world_now(d->world) < d->reports.next_bad_log)
        return;
    size_t more = count - d->reports.bad_logged - 1,
           counted = bad_records_count(d->data.corpus->bad);
    char alone[64] = "";
    if (count > counted)
        snprintf(alone, sizeof alone, "; %zu more on one worker's machine alone", count - counted);
    log_warn(d->host->log,
             "broken record left out: %s; another one replaces it%s (%zu of at most %u%s)",
             bad_records_at(bad, d->reports.bad_logged)->cause,
             more > 0 ? ", and for those after it" : "", counted, d->job->bad_records_max, alone);
    d->reports.bad_logged = count;
    d->reports.next_bad_log = world_now(d->world) + WORLD_SECOND;
}

void driver_sum_bad_records(struct driver *d, struct train_report *report)
{
    const struct wait_for more = wire_from(WORLD_ANY, WIRE_BAD_RECORD);
    struct wake wake;
    if (!d->data.corpus->bad)
        return;
    while (world_wait(d->world, &more, 1, world_now(d->world), &wake) == OK) {
        driver_on_bad_record(d, wake.msg); /* the run is over: too many end nothing any more */
        message_unref(wake.msg);
    }
    d->reports.next_bad_log = 0;
    driver_report_bad_records(d);
    report->bad_records = d->reports.bad.seen ? bad_records_count(d->reports.bad.seen) : 0;
    for (size_t i = 0; i < report->bad_records && i < TRAIN_BAD_NAMED; i++)
        snprintf(report->bad_record[i], sizeof report->bad_record[i], "%s",
                 bad_records_at(d->reports.bad.seen, i)->cause);
}
