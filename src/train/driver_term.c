/* The driver's term: claims the run for this driver, and keeps the term file. */
#include "train/driver.h"

void driver_write_term(struct driver *d)
{
    struct err err;
    if (!d->options->dir)
        return;
    int rc = driver_term_write(d->options->dir, &d->claim.term, &err);
    bool unwritten = rc != OK && rc != ERR_FENCED;
    if (rc == ERR_FENCED)
        atomic_store(&d->claim.outranked, true);
    if (rc != OK && !d->claim.unwritten)
        log_warn(d->host->log, "%s%s", err.text,
                 unwritten ? ": until that is written, a driver that returns knows of no workers"
                           : "");
    d->claim.unwritten = unwritten;
    d->claim.retry_at = world_now(d->world) + WORLD_SECOND;
}

void driver_retry_term(struct driver *d)
{
    if (d->claim.unwritten && world_now(d->world) >= d->claim.retry_at)
        driver_write_term(d);
}

bool driver_replaced(struct driver *d)
{
    if (d->options->dir && driver_term_newest(d->options->dir) > d->claim.term.incarnation)
        atomic_store(&d->claim.outranked, true);
    return atomic_load(&d->claim.outranked);
}

void driver_leave(struct driver *d)
{
    d->claim.term.view = 0;
    d->claim.term.members = (struct members){{0}};
    driver_write_term(d);
    struct driver_term left;
    struct err none;
    bool reported = d->claim.claimed && driver_term_read(d->options->dir, &left, &none) == OK &&
                    left.incarnation == d->claim.term.incarnation;
    if (reported) /* otherwise the claim file alone records that the number was used */
        driver_term_unclaim(d->options->dir, d->claim.term.incarnation);
}

/* Reads the previous driver's term; ERR_NOT_FOUND: there is none. */
static int read_before(struct driver *d, struct err *err)
{
    int rc = driver_term_read(d->options->dir, &d->claim.last_term, err);
    if (rc != OK)
        d->claim.last_term = (struct driver_term){.view = 0};
    return rc;
}

/* Claim an incarnation above all earlier ones. If the term file is damaged, take one far above any
 * possible earlier number. */
void driver_take_over(struct driver *d)
{
    enum { FAR = 1000 };
    struct err err;
    uint32_t before = d->start.resumed.incarnation, mine = before + 1;
    if (d->options->resume && d->options->dir) {
        int rc = read_before(d, &err);
        if (rc != OK && rc != ERR_NOT_FOUND) {
            log_warn(d->host->log, "%s", err.text);
            before += FAR;
        }
        mine =
            (before > d->claim.last_term.incarnation ? before : d->claim.last_term.incarnation) + 1;
        d->claim.claimed = driver_term_claim(d->options->dir, before, &mine, &err) == OK;
        if (!d->claim.claimed) {
            uint32_t newest = driver_term_newest(d->options->dir);
            log_warn(d->host->log, "%s", err.text);
            mine = newest >= mine ? newest + 1 : mine;
        }
        read_before(d, &err); /* another driver may have claimed it first, and is outranked now */
    }
    d->claim.term = (struct driver_term){
        .run = d->options->run,
        .incarnation = mine,
        .next = d->claim.last_term.next,
    };
}
