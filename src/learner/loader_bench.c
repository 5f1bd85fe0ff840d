#include "learner/loader_bench.h"

#include "data/loader.h"

#include <stdlib.h>

/* The two phases take turns, so that a machine that becomes slower does so in both. */
enum { TIMES_MAX = 1 << 20, TURNS = 4 };

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

struct phase {
    double lasted_s, waited_s;
    uint64_t taken;
};

/* As fast as they come. */
static int take_many(struct bench *b, double seconds, struct phase *phase, struct err *err)
{
    int64_t begin = world_now(b->world);
    uint64_t first = b->offset;
    int rc = OK;
    while (rc == OK && (seconds_since(b, begin) < seconds || b->offset == first)) {
        int64_t before = world_now(b->world);
        rc = take_batch(b, err);
        if (b->times < TIMES_MAX)
            b->ms[b->times++] = 1e3 * seconds_since(b, before);
    }
    phase->taken += b->offset - first;
    phase->lasted_s += seconds_since(b, begin);
    return rc;
}

static int sleep_s(struct bench *b, double seconds)
{
    return world_sleep(b->world, world_now(b->world) + (int64_t)(seconds * WORLD_SECOND));
}

/* As a trainer takes them that computes for `step` seconds with each batch. The phase before has
 * left no batch ahead; those of a trainer were prepared while it took its first steps. */
static int take_slowly(struct bench *b, double seconds, double step, struct phase *phase,
                       struct err *err)
{
    int rc = take_batch(b, err);
    if (rc == OK)
        rc = sleep_s(b, step * (double)b->loader.slots);
    double waited_s = b->loader.waited_s;
    int64_t begin = world_now(b->world);
    while (rc == OK && seconds_since(b, begin) < seconds) {
        rc = take_batch(b, err);
        if (rc == OK)
            rc = sleep_s(b, step);
    }
    phase->waited_s += b->loader.waited_s - waited_s;
    phase->lasted_s += seconds_since(b, begin);
    return rc;
}

static int take_in_turns(struct bench *b, struct loader_bench *out, struct err *err)
{
    const struct loader_bench_options *o = b->options;
    int turns = o->share > 0 ? TURNS : 1, rc = OK;
    struct phase fast = {.taken = 0}, slow = {.taken = 0};
    for (int i = 0; rc == OK && i < turns; i++) {
        struct phase turn = {.taken = 0};
        rc = take_many(b, o->seconds / turns, &turn, err);
        fast.taken += turn.taken;
        fast.lasted_s += turn.lasted_s;
        double step = (double)o->batch * turn.lasted_s / (double)turn.taken;
        if (rc == OK && o->share > 0)
            rc = take_slowly(b, o->seconds / turns, step / o->share, &slow, err);
    }
    out->taken = fast.taken;
    out->records_per_s = (double)fast.taken / fast.lasted_s;
    if (o->share > 0)
        out->waited_share = slow.waited_s / slow.lasted_s;
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
        rc = take_in_turns(b, out, err);
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
