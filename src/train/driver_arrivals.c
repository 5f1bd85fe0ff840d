/* While the driver opens its own data, it shows each second in the run directory that it is alive,
 * and replies the same to workers that connect. It sends them the welcome when it is ready. */
#include "train/driver.h"

#include "wire/wire_send.h"

static void report_opening(struct driver *d)
{
    struct opening_report report = {.stage = "data"};
    struct buf bytes = {0};
    world_address(d->world, report.location.address, sizeof report.location.address);
    opening_encode(&report, &bytes);
    MEMBERS_EACH (i, &d->membership.arrived)
        driver_send(d, i, WIRE_OPENING, &bytes);
    buf_release(&bytes);
}

static void record_arrival(struct driver *d, const struct wake *wake)
{
    uint32_t node = wake->peer;
    if (node < VIEW_MEMBERS_MAX)
        members_put(&d->membership.arrived, node, wake->up);
}

static int arrivals_task(void *arg)
{
    struct driver *d = arg;
    const struct wait_for change = {.kind = WAIT_PEER};
    int64_t next = world_now(d->world);
    for (;;) {
        struct wake wake;
        int rc = world_wait(d->world, &change, 1, next, &wake);
        if (rc != OK && rc != ERR_TIMEOUT)
            return rc;
        if (rc == OK)
            record_arrival(d, &wake);
        if (world_now(d->world) >= next) {
            report_opening(d);
            if (d->claim.has_lock)
                rundir_beat(d->options->dir);
            next = world_now(d->world) + WORLD_SECOND;
        }
    }
}

int driver_await_arrivals(struct driver *d)
{
    d->claim.has_lock =
        d->options->dir && d->options->dir->lock; /* a new run takes its lock later */
    return world_spawn(d->world, "arrivals", arrivals_task, d, &d->membership.arrivals);
}

void driver_end_arrivals(struct driver *d)
{
    world_end_task(d->world, &d->membership.arrivals);
}

void driver_welcome_arrivals(struct driver *d)
{
    driver_end_arrivals(d);
    MEMBERS_EACH (i, &d->membership.arrived)
        driver_welcome(d, i);
}
