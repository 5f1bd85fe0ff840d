/* Records that the caller of the library holds in memory, or makes when they are asked for. */
#ifndef PL_DATA_SOURCE_MEMORY_H
#define PL_DATA_SOURCE_MEMORY_H

#include "data/source.h"

/* Values of one record are (C, H, W). */
struct memory_records {
    const char *name; /* of the records, in messages; borrowed by memory_check and source_memory */
    size_t count;
    struct shape shape; /* of a record: (C, H, W) */
    uint32_t classes;   /* 0: there are no labels */
    enum value_type type;
    const void *values; /* of all records, one after another; borrowed; NULL: `read` makes them */
    /* (optional) Record i has the values [begin[i], begin[i + 1]) alone, and `fill` behind them:
     * count + 1 ascending numbers, borrowed. Needs `values`. */
    const uint64_t *begin;
    float fill;
    const uint32_t *labels; /* borrowed; NULL: there are none, or `label` has them */
    uint64_t hash;          /* identity of the values; 0: all of them are hashed */
    /* Writes the values of record i. Called by any thread, by several at once. OK; ERR_INPUT: this
     * record is broken; ERR_IO, ERR_NOMEM */
    int (*read)(void *user, size_t i, void *values);
    uint32_t (*label)(void *user, size_t i); /* (optional) the label of record i; any thread */
    /* (optional) Records that there are by now, of `count` at most; *more: others may follow. The
     * hash is that of the stream. Any thread */
    size_t (*arrived)(void *user, bool *more);
    /* (optional) With `arrived`: the parts that the records come in, of which `most` at most are
     * written. Any thread */
    size_t (*parts)(void *user, struct source_part *out, size_t most);
    bool unshared;  /* the hash is none of the values: no other node has these records */
    bool in_memory; /* `read` copies values that are in memory: a cache would keep them twice */
    void (*release)(void *user); /* (optional) called when the source is closed */
    void *user;
};

/* The bytes of the values of one record. */
size_t memory_record_bytes(const struct memory_records *records);

/* Are the shape and the number of classes within their limits? Nothing else is looked at.
 * ERR_INPUT */
int memory_check(const struct memory_records *records, struct err *err);

/* A source of these records. ERR_INPUT: a count, shape, class or label that is out of its limits,
 * naming it; ERR_NOMEM. `release` is then not called. */
int source_memory(const struct memory_records *records, struct source **out, struct err *err);

/* Closing a source of source_memory does not release its records any more. */
void source_memory_disown(struct source *source);

#endif
