/* Statistics of a source: one pass over all records, with memory for one of them and a count a
 * class. Sums are in double, record by record (Chan, Golub and LeVeque's update for the spread, so
 * that large means do not eat it). */
#ifndef PL_DATA_STATS_H
#define PL_DATA_STATS_H

#include "data/source.h"

struct stats_channel {
    double mean, deviation; /* over all raw values; deviation of the values themselves (1/n) */
    double least, most;
};

struct stats {
    size_t records;
    uint32_t classes, channels;
    uint64_t *of_class;                      /* records of each class, owned */
    struct stats_channel *channel;           /* owned */
    size_t H_least, H_most, W_least, W_most; /* of records */
};

/* Of the first `most` records of a source, or of all: most 0. Released by stats_release. `watch`,
 * which may be NULL, is told of "records". Returns the status of source->ops->read, or ERR_NOMEM,
 * ERR_CANCELLED. */
int stats_of(const struct source *source, size_t most, const struct open_watch *watch,
             struct stats *out, struct err *err);
void stats_release(struct stats *stats);

#endif
