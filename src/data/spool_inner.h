/* The inside of a spool, which spool.c and spool_adopt.c share. */
#ifndef PL_DATA_SPOOL_INNER_H
#define PL_DATA_SPOOL_INNER_H

#include "data/spool.h"

size_t spool_block_bytes(const struct spool *spool); /* of values */

/* Block `number`; NULL: there is no place for it yet. *segment (may be NULL): where that is. */
struct spool_block *spool_block_at(const struct spool *spool, size_t number, unsigned *segment);

/* The place of block `number`, where readers find it; NULL: out of memory. */
struct spool_block *spool_block_place(struct spool *spool, size_t number);

/* Records up to `end` that are in no part are one, from block `block` on, and readable. */
void spool_add_part(struct spool *spool, size_t end, uint64_t hash, size_t block);

int spool_fail_full(struct err *err); /* ERR_FULL: there are SPOOL_PARTS_MAX parts */

#endif
