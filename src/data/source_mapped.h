/* Records through a function of the caller's. */
#ifndef PL_DATA_SOURCE_MAPPED_H
#define PL_DATA_SOURCE_MAPPED_H

#include "data/source.h"

struct record_map {
    const char *name;   /* in messages; copied */
    struct shape shape; /* of what it makes: (C, H, W); n 0: as the record is, with its fields */
    /* `out` from the floats of record i. A pure function of these, of i and, in training, of *draw;
     * NULL: nothing is drawn. Called by any thread, by several at once. OK; ERR_INPUT: this record
     * is broken; ERR_IO, ERR_NOMEM */
    int (*apply)(void *user, size_t i, const float *in, const struct dataset_draw *draw,
                 float *out);
    bool constant;               /* it does not look at `draw` */
    uint64_t hash;               /* identity of the function; not 0 */
    void (*release)(void *user); /* (optional) called when the source is closed */
    void *user;
};

/* A source that owns `of` and closes it; on an error it is the caller's, and `release` is not
 * called. ERR_INPUT: records of several sizes, a shape out of its limits, no hash; ERR_NOMEM */
int source_mapped(struct source *of, const struct record_map *map, struct source **out,
                  struct err *err);

/* Closing the source does not release the map any more. */
void source_mapped_disown(struct source *source);

#endif
