#include "train/worker_report.h"

#include "base/hash.h"
#include "base/printable.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void put_location(const struct worker_location *location, struct buf *out)
{
    buf_put_text(out, location->host);
    buf_put_text(out, location->address);
}

static void read_location(struct byte_reader *in, struct worker_location *out)
{
    read_text(in, out->host, sizeof out->host);
    read_text(in, out->address, sizeof out->address);
    printable(out->host);
    printable(out->address);
}

void opening_encode(const struct opening_report *report, struct buf *out)
{
    put_location(&report->location, out);
    buf_put_text(out, report->stage);
    buf_put_u64(out, report->done);
    buf_put_u64(out, report->total);
}

int opening_decode(struct byte_reader *in, struct opening_report *out)
{
    read_location(in, &out->location);
    read_text(in, out->stage, sizeof out->stage);
    out->done = read_u64(in);
    out->total = read_u64(in);
    if (!byte_reader_done(in))
        return ERR_PROTOCOL;
    printable(out->stage);
    return OK;
}

void opening_print(const char *stage, uint64_t done, uint64_t total, char out[OPENING_TEXT_MAX])
{
    if (total > 0)
        snprintf(out, OPENING_TEXT_MAX, "%" PRIu64 " of %" PRIu64 " %s", done, total, stage);
    else
        snprintf(out, OPENING_TEXT_MAX, "%" PRIu64 " %s", done, stage);
}

void departure_encode(const struct departure *departure, struct buf *out)
{
    buf_put_u32(out, (uint32_t)departure->status);
    buf_put_u8(out, (uint8_t)departure->stage);
    put_location(&departure->location, out);
    buf_put_text(out, departure->text);
}

int departure_decode(struct byte_reader *in, struct departure *out)
{
    out->status = (int)read_u32(in);
    uint8_t stage = read_u8(in);
    read_location(in, &out->location);
    read_text(in, out->text, sizeof out->text);
    if (!byte_reader_done(in) || stage > DEPARTED_TRAINING)
        return ERR_PROTOCOL;
    out->stage = (enum departure_stage)stage;
    printable(out->text);
    return OK;
}

void worker_location_print(const struct worker_location *location, uint32_t node, char *out,
                           size_t size)
{
    const char *host = location->host, *address = location->address;
    if (*host || *address)
        snprintf(out, size, "worker %u (%s%s%s)", node, host, *host && *address ? ", " : "",
                 address);
    else
        snprintf(out, size, "worker %u", node);
}

void departure_explain(const struct departure *departure, uint32_t node, struct err *out)
{
    static const char *const outcome[] = {
        [DEPARTED_OPENING] = "left while opening",
        [DEPARTED_JOINING] = "left while joining",
        [DEPARTED_REFUSED] = "is refused",
        [DEPARTED_TRAINING] = "left while training",
    };
    char name[WORKER_HOST_MAX + NODE_ADDRESS_MAX + 32];
    worker_location_print(&departure->location, node, name, sizeof name);
    err_set(out, departure->status, "%s %s: %s", name, outcome[departure->stage], departure->text);
}

/* ---- what was reported lately ---- */

/* Numbers of workers, ports and steps differ between two departures of one cause. */
static uint64_t find_cause(const struct departure *departure)
{
    char letters[ERR_TEXT_MAX];
    size_t n = 0;
    for (const char *at = departure->text; *at; at++)
        if (*at < '0' || *at > '9')
            letters[n++] = *at;
    uint64_t host = hash_bytes(departure->location.host, strlen(departure->location.host));
    uint64_t cause = hash_mix(host, hash_bytes(letters, n));
    return cause ? cause : 1;
}

bool departure_is_news(struct departures *departures, const struct departure *departure,
                       int64_t now, uint32_t *silent)
{
    uint64_t cause = find_cause(departure);
    size_t at = 0;
    for (size_t i = 0; i < DEPARTURES_MAX; i++) {
        if (departures->at[i].cause == cause) {
            at = i;
            break;
        }
        if (departures->at[i].reported < departures->at[at].reported)
            at = i;
    }
    bool known = departures->at[at].cause == cause;
    if (known && now - departures->at[at].reported < DEPARTURE_PAUSE) {
        departures->at[at].silent++;
        return false;
    }
    *silent = known ? departures->at[at].silent : 0;
    departures->at[at].cause = cause;
    departures->at[at].reported = now;
    departures->at[at].silent = 0;
    return true;
}
