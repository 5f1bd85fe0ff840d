/* A worker's cache of the records it has read, within the job's memory_budget. */
#ifndef PL_TRAIN_WORKER_CACHE_H
#define PL_TRAIN_WORKER_CACHE_H

#include "data/record_cache.h"
#include "job/job.h"

struct train_host;
struct logger;

struct worker_cache {
    struct record_cache *records; /* NULL: none are kept */
    uint64_t budget;              /* bytes of the process; 0: none */
    uint64_t steps;               /* until now */
    int64_t looked;               /* when it looked at the process's memory */
};

/* Settle the budget, and make the cache, if the job wants one. ERR_INPUT: no such budget, or the
 * process has as much memory already; ERR_IO: the folder for caches cannot be written; ERR_NOMEM */
int worker_cache_open(struct worker_cache *cache, const Paceline__Job *job,
                      const struct train_host *host, struct err *err);

/* A step has ended at `now`: what the process does not use of the budget may be used for
 * records. */
void worker_cache_step(struct worker_cache *cache, int64_t now);

/* The records that a cache keeps, and their bytes, in memory and in its file. */
struct cache_report {
    bool there; /* the worker has a cache */
    uint64_t records, bytes, disk_records, disk_bytes;
};

/* As of this moment. */
struct cache_report worker_cache_report(const struct worker_cache *cache);

/* Log what was kept, and free it, once the corpus is closed. */
void worker_cache_close(struct worker_cache *cache, const struct logger *log);

#endif
