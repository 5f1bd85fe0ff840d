/* Opening reports of a worker that is no member yet. They show the driver that it is alive, and
 * each one checks whether opening is still wanted. */
#include "train/worker.h"

#include <stdio.h>

#define REPORT_EVERY (WORLD_SECOND / 4)

bool worker_is_to_leave(const struct worker *w)
{
    const struct train_host *host = w->host;
    return (host->leave && atomic_load(host->leave)) || (host->pause && atomic_load(host->pause));
}

static int send_opening(struct worker *w, const char *stage, uint64_t done, uint64_t total)
{
    struct opening_report report = {.done = done, .total = total};
    struct buf bytes = {0};
    worker_find_location(w, &report.location);
    snprintf(report.stage, sizeof report.stage, "%s", stage);
    opening_encode(&report, &bytes);
    int rc = worker_report(w, WIRE_OPENING, &bytes);
    buf_release(&bytes);
    return rc;
}

bool worker_report_opening(void *user, const char *stage, uint64_t done, uint64_t total)
{
    struct worker *w = user;
    int64_t now = world_now(w->world);
    if (w->opening.ended == OK && worker_is_to_leave(w))
        w->opening.ended = ERR_STOP;
    if (w->opening.ended == OK && now >= w->opening.reported + REPORT_EVERY) {
        w->opening.reported = now;
        if (send_opening(w, stage, done, total) == ERR_DRIVER)
            w->opening.ended = ERR_DRIVER;
    }
    return w->opening.ended == OK;
}

int worker_report_ended(struct worker *w)
{
    return err_set(&w->err, w->opening.ended, "%s",
                   w->opening.ended == ERR_STOP ? "it was asked to leave" : "the driver is lost");
}

int worker_begin_stage(struct worker *w, const char *stage)
{
    w->opening.reported = world_now(w->world) - REPORT_EVERY; /* at once */
    return worker_report_opening(w, stage, 0, 0) ? OK : worker_report_ended(w);
}

int worker_pass_opening(struct worker *w)
{
    enum { STEPS = 1000 };
    int64_t begun = world_now(w->world);
    for (uint64_t i = 1; i <= STEPS && w->host->open_seconds > 0; i++) {
        double s = w->host->open_seconds * (double)i / STEPS;
        int rc = world_sleep(w->world, begun + (int64_t)(s * WORLD_SECOND));
        if (rc != OK)
            return rc;
        if (!worker_report_opening(w, "records", i, STEPS))
            return worker_report_ended(w);
    }
    return OK;
}
