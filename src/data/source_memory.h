/* Records that the caller of the library holds in memory, or makes when they are asked for, under a
 * name: `memory:NAME` in a SPEC. */
#ifndef PL_DATA_SOURCE_MEMORY_H
#define PL_DATA_SOURCE_MEMORY_H

#include "data/source.h"

enum { MEMORY_NAME_MAX = 64 };

/* Values of one record are bytes (RAW_PLANES) or floats (RAW_FLOATS), (C, H, W). */
struct memory_records {
    size_t count;
    struct shape shape; /* of a record: (C, H, W) */
    uint32_t classes;
    enum raw_form form;
    const void *values; /* of all records, one after another; borrowed; NULL: `read` makes them */
    const uint32_t *labels; /* borrowed */
    uint64_t hash;          /* identity of the records; 0: that of values and labels */
    /* Writes the values of record i. Called by any thread, by several at once. OK; ERR_INPUT: this
     * record is broken; ERR_IO, ERR_NOMEM */
    int (*read)(void *user, size_t i, void *values);
    void (*release)(void *user); /* (optional) called when they are unbound */
    void *user;
};

/* The records that a process has bound to names. Zeroed: none. Not thread-safe, except that open
 * sources of one are read by any thread. */
struct memory_bindings {
    struct memory_binding *first;
};

/* The bytes of the values of one record. */
size_t memory_record_bytes(const struct memory_records *records);

/* May such records be bound to this name? Their count, labels and values are not looked at. As
 * memory_bind. */
int memory_check(const struct memory_bindings *bindings, const char *name,
                 const struct memory_records *records, struct err *err);

/* ERR_INPUT: a count, shape, class or label that is out of its limits, naming it; ERR_USAGE: the
 * name is taken, or is no name; ERR_NOMEM */
int memory_bind(struct memory_bindings *bindings, const char *name,
                const struct memory_records *records, struct err *err);

/* ERR_USAGE: a source of these records is open, or the name is not bound. */
int memory_unbind(struct memory_bindings *bindings, const char *name, struct err *err);
void memory_release(struct memory_bindings *bindings);

/* ERR_INPUT: nothing is bound to that name here (`bindings` may be NULL); ERR_CANCELLED,
 * ERR_NOMEM */
int source_memory_open(const struct source_config *config, const char *name, struct source **out,
                       struct err *err);

#endif
