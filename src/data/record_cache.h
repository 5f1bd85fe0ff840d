/* Keeps records as they were read: in memory up to a limit, then in a file. An epoch reads each
 * record once, in an order of its own, so that none is needed sooner than another: a record that
 * is kept stays, and of those that do not fit none is kept. All readers of a process share a
 * cache.
 *
 * The file has no name any more once it is open: when the process ends, in whatever way, nothing
 * is left of it. If it cannot be written, or too little of the disk is free, no more is written. */
#ifndef PL_DATA_RECORD_CACHE_H
#define PL_DATA_RECORD_CACHE_H

#include "data/source.h"
#include "world/disk.h"

struct record_cache;

/* Keeps nothing until it is allowed to. ERR_NOMEM */
int record_cache_create(struct record_cache **out, struct err *err);
void record_cache_free(struct record_cache *cache); /* once its sources are closed; or NULL */

/* How many bytes it may take; what it has it keeps. Any thread */
void record_cache_allow_memory(struct record_cache *cache, size_t bytes);

/* Further records go into a new file, whose folder exists. `disk` is borrowed, the path copied.
 * Before the first read. ERR_IO, ERR_NOMEM */
int record_cache_allow_disk(struct record_cache *cache, struct disk *disk, const char *path,
                            struct err *err);

struct record_cache_counts {
    uint64_t in_memory, on_disk; /* records */
    uint64_t memory_bytes, disk_bytes;
    struct err disk_error; /* why the file takes no more; status OK: it does */
};

/* As of this moment; any thread */
void record_cache_count(struct record_cache *cache, struct record_cache_counts *out);

/* Is it worth to keep records of this source? Not if they are in memory or drawn anyway, and not if
 * there are more than CACHED_RECORDS_MAX. */
enum { CACHED_RECORDS_MAX = 1 << 27 };
bool record_cache_serves(const struct source *of);

/* The records of `of` (borrowed, record_cache_serves), which are the same whenever they are read;
 * all readers shrink a picture alike. ERR_NOMEM: 8 bytes a record */
int source_cached(const struct source *of, struct record_cache *cache, struct source **out,
                  struct err *err);

#endif
