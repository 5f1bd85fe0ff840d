/* Declarations that transfer.c (one transfer) and transfer_table.c (all transfers of a task) have
 * in common. */
#ifndef PL_COLL_TRANSFER_INTERNAL_H
#define PL_COLL_TRANSFER_INTERNAL_H

#include "coll/transfer.h"
#include "wire/catalogue.h"

/* A number: the sender's lane, then a count. */
enum { TRANSFER_COUNT_BITS = 24 };

/* Pieces of PARCEL_GO. */
enum { TRANSFER_MAY, TRANSFER_ENDED, TRANSFER_LIFE };

/* Move one on as far as it goes now. */
void transfer_step(struct transfer *p);

/* Where a trace shows the task's waits. */
static inline uint8_t transfers_row(const struct transfers *ps)
{
    return (uint8_t)(TRACE_TRANSFERS + ps->lane % (UINT8_MAX + 1 - TRACE_TRANSFERS));
}

/* Into the task's list, and out of it. */
void transfers_put(struct transfers *ps, struct transfer *p);
void transfers_forget(struct transfer *p);

#endif
