/* Sources that are made of others: they choose records by their numbers, and read none before it is
 * asked for. A combined source owns its parts, and closes them.
 *
 * Functions below take the parts only if they succeed. ERR_INPUT: numbers out of their limits, more
 * than 2^32 - 1 records; ERR_NOMEM. */
#ifndef PL_DATA_SOURCE_COMBINED_H
#define PL_DATA_SOURCE_COMBINED_H

#include "data/source.h"

/* The records of all parts (n > 0), one part after another. Channels are equal; classes are
 * those of the part that has most. */
int source_concat(struct source *const *part, size_t n, struct source **out, struct err *err);

/* The records with these numbers, in this order; copied. */
int source_subset(struct source *of, const uint32_t *records, size_t count, struct source **out,
                  struct err *err);

/* All records, `times` times. */
int source_repeat(struct source *of, uint32_t times, struct source **out, struct err *err);

/* Part `index` of `of` equal parts: [index·n/of, (index+1)·n/of). */
int source_shard(struct source *whole, uint32_t index, uint32_t of, struct source **out,
                 struct err *err);

/* `count` records drawn by the seed. */
struct sample_config {
    size_t count;
    uint64_t seed;
    bool replacement;      /* a record may be drawn more than once */
    bool stratified;       /* as many of each class, in proportion, as there are; no replacement */
    const double *weights; /* of each record, ≥ 0, one of them > 0; NULL: all are equal */
};

/* With replacement, record i is drawn with a chance in proportion to its weight, independently
 * of all others. Without, the first record so, the second among those that are left, and so on
 * (Efraimidis and Spirakis, 2006). Equal weights take no memory, others 4 to 12 bytes a record. */
int source_sample(struct source *of, const struct sample_config *config, struct source **out,
                  struct err *err);

#endif
