#include "train/worker_cache.h"

#include "base/file.h"
#include "base/memory.h"
#include "train/train.h"

#include <inttypes.h>
#include <stdio.h>

enum { WARM_STEPS = 3, NAMES = 16, PATH_TEXT_MAX = 4096 };

/* How often it looks, and the share of the budget that stays free for what comes and goes. */
#define LOOK_EVERY (WORLD_SECOND / 10)
static const double SPARE = 0.03;

static int open_file(struct record_cache *records, const struct train_host *host, struct err *err)
{
    char path[PATH_TEXT_MAX];
    int rc = ERR_IO;
    if (!host->cache_folder)
        return err_set(err, ERR_INPUT, "cache: this worker has no folder for caches");
    if (!file_is_folder(host->cache_folder))
        return err_set(
            err, ERR_INPUT,
            "cache: %.200s: there is no such folder; start the worker with another --cache",
            host->cache_folder);
    for (int k = 0; rc != OK && k < NAMES; k++) { /* the name is there for a moment */
        if (snprintf(path, sizeof path, "%s/paceline-cache-%d", host->cache_folder, k) >=
            PATH_TEXT_MAX)
            return err_set(err, ERR_INPUT, "cache: path longer than %d bytes", PATH_TEXT_MAX);
        rc = record_cache_allow_disk(records, host->cache_disk, path, err);
    }
    if (rc != OK)
        err_prefix(err, "cache");
    return rc;
}

/* A program's own memory counts, and that of its streams. */
static int check_used(uint64_t budget, struct err *err)
{
    uint64_t used = memory_used();
    if (budget == 0 || used < budget)
        return OK;
    return err_set(
        err, ERR_INPUT,
        "nothing is left of memory_budget, %.1f MiB: this process has %.1f MiB before it "
        "opens its data; the records that its streams keep in memory count "
        "(pl_stream_options.memory)",
        (double)budget / (1 << 20), (double)used / (1 << 20));
}

int worker_cache_open(struct worker_cache *cache, const Paceline__Job *job,
                      const struct train_host *host, struct err *err)
{
    uint64_t all = (uint64_t)memory_available(NULL) + memory_used();
    if (host->one_machine) /* as many as there may be: each takes the same share */
        all /= (uint64_t)job_workers_max(job) + job->standby;
    *cache = (struct worker_cache){0};
    int rc = job_memory_budget(job, all, &cache->budget, err);
    if (rc == OK)
        rc = check_used(cache->budget, err);
    bool wanted = job->cache == PACELINE__CACHE__disk ||
                  (job->cache != PACELINE__CACHE__none && cache->budget > 0);
    if (rc == OK && wanted)
        rc = record_cache_create(&cache->records, err);
    if (rc == OK && job->cache == PACELINE__CACHE__disk)
        rc = open_file(cache->records, host, err);
    return rc;
}

/* The first steps touch the memory of the net and of batches. */
void worker_cache_step(struct worker_cache *cache, int64_t now)
{
    struct record_cache_counts counts;
    if (!cache->records || cache->budget == 0 || ++cache->steps < WARM_STEPS ||
        now - cache->looked < LOOK_EVERY)
        return;
    cache->looked = now;
    record_cache_count(cache->records, &counts);
    uint64_t most = cache->budget - (uint64_t)((double)cache->budget * SPARE), used = memory_used();
    record_cache_allow_memory(cache->records,
                              (size_t)counts.memory_bytes + (most > used ? most - used : 0));
}

struct cache_report worker_cache_report(const struct worker_cache *cache)
{
    struct record_cache_counts counts;
    if (!cache->records)
        return (struct cache_report){.there = false};
    record_cache_count(cache->records, &counts);
    return (struct cache_report){true, counts.in_memory, counts.memory_bytes, counts.on_disk,
                                 counts.disk_bytes};
}

void worker_cache_close(struct worker_cache *cache, const struct logger *log)
{
    struct record_cache_counts counts;
    if (!cache->records)
        return;
    record_cache_count(cache->records, &counts);
    if (counts.disk_error.status != OK)
        log_warn(log, "cache: no more records were written: %s", counts.disk_error.text);
    log_info(log,
             "cache: kept %" PRIu64 " records in memory (%.1f MiB), %" PRIu64 " on disk (%.1f MiB)",
             counts.in_memory, (double)counts.memory_bytes / (1 << 20), counts.on_disk,
             (double)counts.disk_bytes / (1 << 20));
    record_cache_free(cache->records);
    cache->records = NULL;
}
