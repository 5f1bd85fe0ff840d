#include "learner/loader_bench.h"

#include "data/loader.h"

#include <stdlib.h>

enum { TIMES_MAX = 1 << 20 };

struct bench {
    struct world *world;
    const struct loader_bench_options *options;
    struct source *source, *cached;
    struct record_cache *cache;
    struct dataset set;
    struct arena arena;
    struct loader loader;
    uint64_t offset; /* of the next batch */
    double *ms;      /* of each taken batch, TIMES_MAX at most */
    size_t times;
};

static double seconds_since(const struct bench *b, int64_t begin)
{
    return world_seconds(world_now(b->world) - begin);
}

static int take_batch(struct bench *b, struct err *err)
{
    const struct batch *batch;
    int rc = loader_take(&b->loader, b->offset, b->options->batch, &batch, err);
    b->offset += b->options->batch;
    return rc;
}

static int open_all(struct bench *b, const Paceline__Data *spec, struct err *err)
{
    const struct loader_bench_options *o = b->options;
    int rc = source_open_with(o->config, spec, &b->source, err);
    if (rc == OK && o->cache > 0 && record_cache_serves(b->source)) {
        rc = record_cache_create(&b->cache, err);
        if (rc == OK)
            rc = source_cached(b->source, b->cache, &b->cached, err);
        if (rc == OK)
            record_cache_allow_memory(b->cache, o->cache);
    }
    if (rc == OK)
        rc = dataset_init(&b->set, b->cached ? b->cached : b->source, spec, err);
    if (rc != OK)
        return rc;
    b->ms = arena_array(&b->arena, TIMES_MAX, double);
    rc = b->ms ? loader_init(&b->loader, &b->arena, &b->set, o->seed, o->batch) : ERR_NOMEM;
    if (rc == OK)
        rc = loader_start(&b->loader, &b->arena, b->world, o->threads);
    return rc == OK ? OK : err_set(err, rc, "data: out of memory for %zu records", o->batch);
}

/* As fast as they come. */
static int take_many(struct bench *b, struct loader_bench *out, struct err *err)
{
    int64_t begin = world_now(b->world);
    uint64_t first = b->offset;
    int rc = OK;
    while (rc == OK && (seconds_since(b, begin) < b->options->seconds || b->offset == first)) {
        int64_t before = world_now(b->world);
        rc = take_batch(b, err);
        if (b->times < TIMES_MAX)
            b->ms[b->times++] = 1e3 * seconds_since(b, before);
    }
    out->taken = b->offset - first;
    out->records_per_s = (double)out->taken / seconds_since(b, begin);
    return rc;
}

/* As a trainer takes them that needs a little longer for a batch than the loader. */
static int take_slowly(struct bench *b, struct loader_bench *out, struct err *err)
{
    double step = (double)b->options->batch / (out->records_per_s * b->options->share);
    double waited = b->loader.waited_s;
    int64_t begin = world_now(b->world);
    int rc = OK;
    while (rc == OK && seconds_since(b, begin) < b->options->seconds) {
        rc = take_batch(b, err);
        if (rc == OK)
            rc = world_sleep(b->world, world_now(b->world) + (int64_t)(step * WORLD_SECOND));
    }
    out->waited_share = (b->loader.waited_s - waited) / seconds_since(b, begin);
    return rc;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int measure_all(struct bench *b, struct loader_bench *out, struct err *err)
{
    out->records = b->set.count;
    out->open_s = seconds_since(b, b->options->begun);
    int rc = take_batch(b, err);
    out->first_batch_s = seconds_since(b, b->options->begun);
    if (rc == OK)
        rc = take_many(b, out, err);
    if (rc == OK && b->options->share > 0)
        rc = take_slowly(b, out, err);
    if (rc != OK)
        return rc;
    qsort(b->ms, b->times, sizeof *b->ms, compare_doubles);
    out->median_ms = b->ms[b->times / 2];
    out->p99_ms = b->ms[(b->times - 1) * 99 / 100];
    out->tasks = b->loader.tasks;
    if (b->cache)
        record_cache_count(b->cache, &out->kept);
    return OK;
}

int loader_bench_run(struct world *world, const Paceline__Data *spec,
                     const struct loader_bench_options *options, struct loader_bench *out,
                     struct err *err)
{
    struct bench b = {.world = world, .options = options};
    *out = (struct loader_bench){.waited_share = -1};
    arena_init(&b.arena);
    int rc = open_all(&b, spec, err);
    if (rc == OK)
        rc = measure_all(&b, out, err);
    loader_stop(&b.loader);
    loader_release(&b.loader);
    dataset_release(&b.set);
    source_close(b.cached);
    source_close(b.source);
    record_cache_free(b.cache);
    arena_release(&b.arena);
    return rc;
}
