/* Records that are made up, to measure with: nothing can be learnt from them. */
#ifndef PL_DATA_SOURCE_RANDOM_H
#define PL_DATA_SOURCE_RANDOM_H

#include "data/source.h"

enum { SOURCE_RANDOM_RECORDS = 4096 };

/* SOURCE_RANDOM_RECORDS records of that shape, of any number of dimensions, their values uniform in
 * [0, 1) and their labels among `classes` (> 0), drawn by seed. Reading costs nothing: record i is
 * all values from the ith of one row of them, so records differ, but overlap.
 * ERR_NOMEM */
int source_random_open(const struct shape *record, uint32_t classes, uint64_t seed,
                       struct source **out, struct err *err);

#endif
