/* The driver's list of the broken records that machines report. A record that one machine alone
 * reports may be a damaged copy of that machine's; one that a second machine reports as well is
 * broken in the data itself. */
#ifndef PL_TRAIN_BAD_RECORD_LOG_H
#define PL_TRAIN_BAD_RECORD_LOG_H

#include "data/bad_records.h"

struct bad_record_log {
    struct bad_records *seen; /* each record once; NULL: none yet */
    uint64_t *machine;        /* that reported it first */
};

/* A machine reports a record. *confirmed: another machine has reported the same one. Beyond
 * BAD_RECORDS_MOST records no new one is kept. ERR_NOMEM */
int bad_record_log_add(struct bad_record_log *log, uint64_t machine, const struct bad_record *bad,
                       bool *confirmed);

void bad_record_log_release(struct bad_record_log *log);

#endif
