/* What a driver leaves in the run directory for the one that comes after it: which run it is, the
 * driver's incarnation, and whom the newest view held, so that these are waited for. One line each:
 *
 *   run 5f1c2a…        (hex)
 *   incarnation 3
 *   view 17
 *   members 0 1 2 5
 *   next 6             the first number that no worker has had
 *
 * A driver that finds a higher incarnation than its own there has been replaced, and ends. */
#ifndef PL_TRAIN_TENURE_H
#define PL_TRAIN_TENURE_H

#include "group/view.h"
#include "train/rundir.h"

struct tenure {
    uint64_t run;
    uint32_t incarnation;
    uint32_t view; /* 0: none, or the run has ended in good order */
    struct members who;
    uint32_t next;
};

/* ERR_NOT_FOUND: nobody has left any; ERR_INPUT: it is damaged */
int tenure_read(const struct rundir *dir, struct tenure *out, struct err *err);

/* Replaces the one before, durably. ERR_IO, ERR_NOMEM; ERR_EXISTS: a later driver has been there */
int tenure_write(const struct rundir *dir, const struct tenure *tenure, struct err *err);

#endif
