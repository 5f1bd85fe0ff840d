/* What parcel.c, which knows one parcel, and parcels.c, which knows a task's, have in common. */
#ifndef PL_COLL_PARCEL_PARTS_H
#define PL_COLL_PARCEL_PARTS_H

#include "coll/parcel.h"
#include "wire/catalogue.h"

/* A number: the sender's lane, then a count. */
enum { PARCEL_COUNT_BITS = 24 };

/* Pieces of PARCEL_GO. */
enum { PARCEL_MAY, PARCEL_GONE, PARCEL_LIFE };

/* Move one on as far as it goes now. */
void parcel_step(struct parcel *p);

/* Where a trace shows the task's waits. */
static inline uint8_t parcels_row(const struct parcels *ps)
{
    return (uint8_t)(TRACE_PARCELS + ps->lane % (UINT8_MAX + 1 - TRACE_PARCELS));
}

/* Into the task's list, and out of it. */
void parcels_put(struct parcels *ps, struct parcel *p);
void parcels_forget(struct parcel *p);

#endif
