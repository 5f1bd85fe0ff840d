/* The record that a driver leaves in the run directory for a later driver: the run's number, the
 * driver's incarnation, and the members of the newest view, so that the later driver waits for
 * them. One line each:
 *
 *   run 5f1c2a…        (hex)
 *   incarnation 3
 *   view 17
 *   members 0 1 2 5
 *   next 6             the first number that no worker has had
 *
 * An incarnation is taken by making a file `driver.N` that there must not be yet, and before
 * anything else is done: of two drivers that take a run up at the same moment one gets a higher
 * number. A driver that crashes after that wastes a number and blocks no other driver; the next one
 * removes its file.
 *
 * A driver that finds a higher incarnation than its own in either place has been replaced, and
 * ends. */
#ifndef PL_TRAIN_DRIVER_TERM_FILE_H
#define PL_TRAIN_DRIVER_TERM_FILE_H

#include "group/view.h"
#include "train/rundir.h"

struct driver_term {
    uint64_t run;
    uint32_t incarnation;
    uint32_t view; /* 0: none, or the run has ended in good order */
    struct members members;
    uint32_t next;
};

/* Read the term file. ERR_NOT_FOUND: there is none; ERR_INPUT: it is damaged */
int driver_term_read(const struct rundir *dir, struct driver_term *out, struct err *err);

/* The highest incarnation in the term file and in claims; 0: none. */
uint32_t driver_term_newest(const struct rundir *dir);

/* OK: no driver has outranked incarnation `own`. ERR_FENCED, with a message: one has. */
int driver_term_check(const struct rundir *dir, uint32_t own, struct err *err);

/* Claim an incarnation above `above` and above all earlier ones; no other driver gets it (R1).
 * ERR_IO */
int driver_term_claim(const struct rundir *dir, uint32_t above, uint32_t *incarnation,
                      struct err *err);

/* Remove the claim file: the term file has the number, and the run has ended in good order. */
void driver_term_unclaim(const struct rundir *dir, uint32_t incarnation);

/* Replace the term file durably. ERR_IO, ERR_NOMEM; ERR_FENCED: a later driver has claimed the run
 */
int driver_term_write(const struct rundir *dir, const struct driver_term *term, struct err *err);

#endif
