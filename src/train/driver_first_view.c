/* Waits for the workers of the first view, and receives the reasons of workers that cannot
 * continue. A fault on one worker ends that worker alone: the log names it and its machine, and the
 * run waits for another or continues with the others. */
#include "train/driver.h"
#include "train/driver_stop.h"

#include "base/plural.h"
#include "wire/wire_send.h"

#include <math.h>
#include <stdio.h>

#define LAST_REPORTS (WORLD_SECOND / 2)

/* ---- workers that leave ---- */

static void emit_departure(struct driver *d, uint32_t node, const struct departure *departure)
{
    const struct view *view = group_view(&d->group);
    cJSON *event = events_new(&d->events, "member");
    cJSON_AddNumberToObject(event, "node", node);
    cJSON_AddStringToObject(event, "what",
                            departure->stage == DEPARTED_TRAINING ? "failed" : "refused");
    cJSON_AddNumberToObject(event, "view", view ? view->number : 0);
    cJSON_AddStringToObject(event, "host", departure->location.host);
    cJSON_AddStringToObject(event, "address", departure->location.address);
    cJSON_AddStringToObject(event, "why", departure->text);
    events_emit(&d->events, event);
}

/* Departures of members are always logged. Those of other workers, which may reconnect repeatedly,
 * are logged once a minute. */
void driver_take_departure(struct driver *d, uint32_t node, const struct departure *departure)
{
    uint32_t silent = 0;
    int64_t now = world_now(d->world);
    if (node < VIEW_MEMBERS_MAX) {
        d->membership.joiner[node].left = now;
        driver_set_joiner(d, node, false);
    }
    if (departure->status == ERR_STOP) {
        struct err left;
        departure_explain(departure, node, &left);
        log_info(d->host->log, "%s", left.text);
        return;
    }
    struct err why;
    departure_explain(departure, node, &why);
    if (departure->stage != DEPARTED_REFUSED || !group_view(&d->group)) { /* else no member of it */
        d->membership.lost_at = now;
        d->membership.lost = why;
    }
    bool news = departure_is_news(&d->membership.departures, departure, now, &silent);
    if (!news && departure->stage != DEPARTED_TRAINING)
        return;
    if (silent > 0)
        log_warn(d->host->log, "%s (%u times more in the last %.0f s)", why.text, silent,
                 world_seconds(DEPARTURE_PAUSE));
    else
        log_warn(d->host->log, "%s", why.text);
    emit_departure(d, node, departure);
}

int driver_on_done(struct driver *d, const struct message *m)
{
    const struct view *view = group_view(&d->group);
    struct byte_reader in = {m->data, m->len, false};
    struct departure departure;
    /* sent by the server's task */
    uint32_t node = m->from == WORLD_DRIVER ? read_u32(&in) : m->from;
    if (departure_decode(&in, &departure) != OK) {
        wire_guard_count(&d->group.guard, node, WIRE_DONE, "it cannot be read");
        return OK;
    }
    bool member = view && view_rank(view, node) >= 0;
    bool leaves = departure.status == ERR_STOP && departure.stage == DEPARTED_TRAINING;
    if (departure.status == OK && job_takes_all(d->job)) /* unless another reason came first */
        driver_request_stop(d, "converged");
    if (departure.status == OK || leaves) {
        if (member || !view) /* otherwise it was dropped; without a view it may reconnect */
            members_add(&d->membership.done, node);
        return OK;
    }
    /* The host's own worker uses the host's data: a second one would fail in the same way. */
    bool alone = job_is_alone(d->job) && !d->options->elsewhere;
    if (member && (alone || train_ends_the_run(departure.status)))
        return err_set(d->err, departure.status, "%s", departure.text);
    driver_take_departure(d, node, &departure);
    return OK;
}

/* The last worker's reason, unless it is old; NULL: none. */
static const struct err *last_cause(const struct driver *d)
{
    bool late = world_now(d->world) - d->membership.lost_at > DEPARTURE_PAUSE + driver_patience(d);
    return d->membership.lost.text[0] && !late ? &d->membership.lost : NULL;
}

/* End the run for lack of workers, with the last reason that a worker gave. A remote worker's
 * status does not become the run's, since that worker can be repaired and join again. */
static int lack_workers(struct driver *d, int status, const char *what)
{
    const struct err *cause = last_cause(d), *before = d->options->why_lost;
    if (!cause && before && before->text[0] && !group_view(&d->group))
        cause = before;
    return err_set(d->err, cause && !d->options->elsewhere ? cause->status : status, "%s%s%s", what,
                   cause ? ": " : "", cause ? cause->text : "");
}

/* The last worker's messages may still be unread: process them first. */
int driver_lose_all(struct driver *d)
{
    const struct wait_for reports[] = {wire_from(WORLD_ANY, WIRE_DONE),
                                       wire_from(WORLD_ANY, WIRE_OPENING)};
    struct wake wake;
    while (world_wait(d->world, reports, 2, world_now(d->world) + WORLD_SECOND / 1000, &wake) ==
           OK) {
        int rc = OK;
        if (wake.which == 0)
            rc = driver_on_done(d, wake.msg);
        else
            driver_on_opening(d, wake.msg);
        message_unref(wake.msg);
        if (rc != OK)
            return rc;
    }
    d->ending.unseen = !last_cause(d);
    d->ending.resumable = d->options->lost_all && d->options->dir && !d->ending.stop_sent;
    if (d->options->why_lost)
        *d->options->why_lost = d->ending.unseen ? (struct err){0} : d->membership.lost;
    return lack_workers(d, ERR_PEER, "all workers are lost");
}

int driver_check_slices(struct driver *d, const struct view *view)
{
    uint32_t count = d->job->slices, lacking = 0;
    struct members here = {0};
    char what[192];
    if (count == 1 || d->ending.kept || atomic_load(&d->model_writer.here))
        return OK;
    for (size_t i = 0; i < view->count; i++)
        if (view->seated[i] > 0 && !members_has(&view->fresh, view->node[i]))
            members_add(&here, view_seat(view, view->node[i]) % count);
    while (lacking < count && members_has(&here, lacking))
        lacking++;
    if (lacking == count)
        return OK;
    bool kept = d->options->dir && (d->start.resumes || atomic_load(&d->model_writer.taken) > 0);
    snprintf(what, sizeof what,
             "slice %u of %u of the model is lost with its worker, and the others cannot continue "
             "without it%s",
             lacking, count, kept ? "; paceline resume continues from the newest checkpoint" : "");
    return lack_workers(d, ERR_PEER, what);
}

/* ---- workers that are to come ---- */

int driver_request_workers(struct driver *d, uint32_t n)
{
    atomic_fetch_add(&d->membership.started, n);
    return world_want_nodes(d->world, n);
}

/* So many of the host's own workers have ended that the rest are too few for the first view. Their
 * messages are read first, as they may give a reason. */
static int check_lost(struct driver *d, int64_t *since)
{
    uint32_t ended = d->options->lost ? d->options->lost(d->options->user) : 0;
    uint32_t started = atomic_load(&d->membership.started);
    if (ended == 0 || ended + d->job->workers <= started)
        return OK;
    if (*since == WORLD_FOREVER)
        *since = world_now(d->world);
    if (world_now(d->world) - *since < LAST_REPORTS)
        return OK;
    char what[96];
    snprintf(what, sizeof what, "%u of %u worker%s ended before training began", ended, started,
             plural(started, "s"));
    return lack_workers(d, ERR_PEER, what);
}

static int check_patience(struct driver *d, int64_t patience)
{
    char what[128];
    int64_t moved = driver_last_moved(d), stirred = atomic_load(&d->membership.stirred);
    if (world_now(d->world) - (moved > stirred ? moved : stirred) <= patience)
        return OK;
    snprintf(what, sizeof what, "not all of %u worker%s arrived: no progress for %g s",
             d->job->workers, plural(d->job->workers, "s"), world_seconds(patience));
    return lack_workers(d, ERR_TIMEOUT, what);
}

int64_t driver_patience(const struct driver *d)
{
    const double most = 1e9; /* s; a longer wait would overflow */
    double s = d->options->patience_s;
    return (int64_t)(fmin(s > 0 ? s : d->job->patience_seconds, most) * (double)WORLD_SECOND);
}

int driver_form(struct driver *d)
{
    int64_t lost_since = WORLD_FOREVER;
    int64_t patience = driver_patience(d);
    atomic_store(&d->membership.stirred, world_now(d->world));
    while (!group_view(&d->group)) {
        int rc = driver_check_replaced(d);
        if (rc == OK)
            rc = driver_turn(d);
        if (rc == OK)
            rc = check_lost(d, &lost_since);
        if (rc != OK)
            return rc;
        rc = driver_check_early_stop(d);
        if (rc != OK)
            return rc;
        driver_check_joiners(d, patience);
        rc = check_patience(d, patience);
        if (rc != OK)
            return rc;
    }
    return OK;
}
