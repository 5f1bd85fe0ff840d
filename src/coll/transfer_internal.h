/* Declarations that transfer.c (one transfer) and transfer_table.c (all transfers of a task) have
 * in common. */
#ifndef PL_COLL_TRANSFER_INTERNAL_H
#define PL_COLL_TRANSFER_INTERNAL_H

#include "coll/transfer.h"
#include "wire/catalogue.h"

/* A number: the sender's lane, then a count. */
enum { TRANSFER_COUNT_BITS = 24 };

/* A header begins with the number of floats, and above it the codec. */
enum { CODEC_SHIFT = 56 };
#define FLOATS_MAX ((UINT64_C(1) << CODEC_SHIFT) - 1)

/* Piece numbers of WIRE_TRANSFER_GO. */
enum { TRANSFER_MAY, TRANSFER_ENDED, TRANSFER_LIFE };

/* Advance one transfer as far as possible. */
void transfer_step(struct transfer *p);

/* The row in which a trace shows the task's waits. */
static inline uint8_t transfers_row(const struct transfers *ps)
{
    return (uint8_t)(TRACE_TRANSFERS + ps->lane % (UINT8_MAX + 1 - TRACE_TRANSFERS));
}

/* Add a transfer to the task's list; remove it. */
void transfers_put(struct transfers *ps, struct transfer *p);
void transfers_forget(struct transfer *p);

#endif
