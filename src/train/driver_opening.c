/* Workers that have connected and are no members yet, as the driver's main task knows them: how far
 * each is with opening its data. The server's task, which sees them come, join and go, tells it by
 * messages of the node to itself. */
#include "train/driver.h"

#include "wire/wire_send.h"

#include <stdio.h>
#include <string.h>

#define LOG_EVERY    (10 * WORLD_SECOND)
#define NUMBER_RESTS (4 * WORLD_SECOND) /* before another has it, at the least */

void driver_report_joiner(struct driver *d, uint32_t node, enum joiner_event news, const char *line)
{
    struct buf bytes = {0};
    buf_put_u32(&bytes, node);
    buf_put_u8(&bytes, (uint8_t)news);
    buf_put_text(&bytes, line);
    driver_send(d, WORLD_DRIVER, WIRE_OPENING, &bytes);
    buf_release(&bytes);
}

void driver_set_joiner(struct driver *d, uint32_t node, bool here)
{
    struct joiner *n = &d->membership.joiner[node];
    int64_t now = world_now(d->world);
    d->membership.joiners = d->membership.joiners + here - n->here;
    if (here)
        *n = (struct joiner){.moved = now, .reported_at = now, .left = n->left};
    n->here = here;
}

static void log_opening(struct driver *d, uint32_t node, struct joiner *n)
{
    char name[WORKER_HOST_MAX + NODE_ADDRESS_MAX + 32];
    char progress_text[OPENING_TEXT_MAX];
    const struct opening_report *report = &n->report;
    int64_t now = world_now(d->world);
    if (report->done == 0 || now - n->reported_at < LOG_EVERY)
        return;
    n->reported_at = now;
    worker_location_print(&report->location, node, name, sizeof name);
    opening_print(report->stage, report->done, report->total, progress_text);
    log_info(d->host->log, "%s gets ready: %s", name, progress_text);
}

/* Progress that moves, and a new stage, are life. */
static void take_report(struct driver *d, uint32_t node, const struct opening_report *report)
{
    struct joiner *n = &d->membership.joiner[node];
    bool moved = n->report.done != report->done || strcmp(n->report.stage, report->stage) != 0;
    if (!n->here)
        return; /* it has left already */
    n->report = *report;
    if (moved)
        n->moved = world_now(d->world);
    log_opening(d, node, n);
}

/* It has gone without a word: killed, or cut off. */
static void lose_joiner(struct driver *d, uint32_t node, const char *outcome)
{
    const struct joiner *n = &d->membership.joiner[node];
    struct departure departure = {.status = ERR_PEER, .location = n->report.location};
    char progress_text[OPENING_TEXT_MAX];
    opening_print(n->report.stage, n->report.done, n->report.total, progress_text);
    if (n->report.done > 0)
        snprintf(departure.text, sizeof departure.text, "%s, after %s", outcome, progress_text);
    else
        snprintf(departure.text, sizeof departure.text, "%s%s%s", outcome,
                 n->report.stage[0] ? ", at its " : "", n->report.stage);
    driver_take_departure(d, node, &departure);
}

static void take_news(struct driver *d, struct byte_reader *in)
{
    uint32_t node = read_u32(in);
    uint8_t news = read_u8(in);
    char line[ERR_TEXT_MAX];
    read_text(in, line, sizeof line);
    if (!byte_reader_done(in) || node >= VIEW_MEMBERS_MAX)
        return;
    const struct joiner *n = &d->membership.joiner[node];
    /* Its last word may have been read before what it had said earlier. */
    bool text = n->left > 0 && world_now(d->world) - n->left < NUMBER_RESTS;
    if (news == JOINER_LOST && !text)
        log_warn(d->host->log, "%s", line);
    if (news == JOINER_LOST)
        return;
    if (news == JOINER_LEFT && n->here && n->report.stage[0] && !text)
        lose_joiner(d, node, "its connection has ended");
    else
        driver_set_joiner(d, node, news == JOINER_CONNECTED);
}

void driver_on_opening(struct driver *d, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    struct opening_report report;
    if (m->from == WORLD_DRIVER)
        take_news(d, &in);
    else if (opening_decode(&in, &report) != OK)
        wire_guard_count(&d->group.guard, m->from, WIRE_OPENING, "it cannot be read");
    else if (m->from < VIEW_MEMBERS_MAX)
        take_report(d, m->from, &report);
}

int64_t driver_last_moved(const struct driver *d)
{
    int64_t last = 0;
    for (uint32_t i = 0; d->membership.joiners > 0 && i < VIEW_MEMBERS_MAX; i++)
        if (d->membership.joiner[i].here && d->membership.joiner[i].moved > last)
            last = d->membership.joiner[i].moved;
    return last;
}

void driver_check_joiners(struct driver *d, int64_t patience)
{
    char outcome[64];
    int64_t now = world_now(d->world);
    for (uint32_t i = 0; d->membership.joiners > 0 && i < VIEW_MEMBERS_MAX; i++) {
        if (!d->membership.joiner[i].here || now - d->membership.joiner[i].moved <= patience)
            continue;
        snprintf(outcome, sizeof outcome, "no progress for %g s", world_seconds(patience));
        world_peer_drop(d->world, i);
        lose_joiner(d, i, outcome);
        atomic_store(&d->membership.stirred,
                     now); /* its place is free for another, which may take as long */
    }
}
