/* Which of those that drive this run, or have driven it, this driver is. */
#include "train/driver.h"

void driver_keep_tenure(struct driver *d)
{
    struct err err;
    if (!d->options->dir)
        return;
    int rc = tenure_write(d->options->dir, &d->tenure, &err);
    bool owed = rc != OK && rc != ERR_FENCED;
    if (rc == ERR_FENCED)
        atomic_store(&d->outranked, true);
    if (rc != OK && !d->tenure_owed)
        log_warn(d->host->log, "%s%s", err.text,
                 owed ? ": until that is written, a driver that comes back knows of no workers"
                      : "");
    d->tenure_owed = owed;
    d->tenure_again = world_now(d->world) + WORLD_SECOND;
}

void driver_keep_tenure_owed(struct driver *d)
{
    if (d->tenure_owed && world_now(d->world) >= d->tenure_again)
        driver_keep_tenure(d);
}

bool driver_replaced(struct driver *d)
{
    if (d->options->dir && tenure_newest(d->options->dir) > d->tenure.incarnation)
        atomic_store(&d->outranked, true);
    return atomic_load(&d->outranked);
}

void driver_leave(struct driver *d)
{
    d->tenure.view = 0;
    d->tenure.who = (struct members){{0}};
    driver_keep_tenure(d);
    struct tenure left;
    struct err none;
    bool told = d->claimed && tenure_read(d->options->dir, &left, &none) == OK &&
                left.incarnation == d->tenure.incarnation;
    if (told) /* else the claim alone says that this number has been somebody's */
        tenure_unclaim(d->options->dir, d->tenure.incarnation);
}

/* What the driver before has left; ERR_NOT_FOUND: nothing. */
static int read_before(struct driver *d, struct err *err)
{
    int rc = tenure_read(d->options->dir, &d->before, err);
    if (rc != OK)
        d->before = (struct tenure){.view = 0};
    return rc;
}

/* This driver outranks all that have been here before. Where what they left is damaged it goes far
 * beyond what they can have come to. */
void driver_take_over(struct driver *d)
{
    enum { FAR = 1000 };
    struct err err;
    uint32_t before = d->resumed.incarnation, mine = before + 1;
    if (d->options->resume && d->options->dir) {
        int rc = read_before(d, &err);
        if (rc != OK && rc != ERR_NOT_FOUND) {
            log_warn(d->host->log, "%s", err.text);
            before += FAR;
        }
        mine = (before > d->before.incarnation ? before : d->before.incarnation) + 1;
        d->claimed = tenure_claim(d->options->dir, before, &mine, &err) == OK;
        if (!d->claimed) {
            uint32_t newest = tenure_newest(d->options->dir);
            log_warn(d->host->log, "%s", err.text);
            mine = newest >= mine ? newest + 1 : mine;
        }
        read_before(d, &err); /* another may have been quicker, and be older now */
    }
    d->tenure = (struct tenure){
        .run = d->options->run,
        .incarnation = mine,
        .next = d->before.next,
    };
}
