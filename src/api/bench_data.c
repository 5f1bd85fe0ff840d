/* How fast records are made ready, in a world of its own. */
#include "api/data.h"
#include "api/guard.h"
#include "api/option_size.h"
#include "learner/loader_bench.h"
#include "paceline/bench.h"
#include "real/real.h"

struct timing {
    const Paceline__Data *spec;
    struct world *world;
    struct loader_bench_options options;
    struct loader_bench result;
    struct err *err;
};

static int time_loader(void *arg)
{
    struct timing *t = arg;
    return loader_bench_run(t->world, t->spec, &t->options, &t->result, t->err);
}

static int time_in_world(pl_engine *engine, struct timing *t)
{
    int rc = real_open(&(struct real_options){.log = &engine->log}, &t->world, t->err);
    if (rc != OK)
        return rc;
    rc = real_run(t->world, time_loader, t, t->err);
    real_close(t->world);
    return rc;
}

static int check_options(const pl_bench_data_options *o, struct err *err)
{
    if (o->batch > 65536)
        return err_set(err, ERR_USAGE, "batch: must be 1 to 65536, is %u", o->batch);
    if (!(o->seconds >= 0 && o->seconds <= 86400))
        return err_set(err, ERR_USAGE, "seconds: must be up to 86400, is %g", o->seconds);
    if (!(o->share >= 0 && o->share <= 1))
        return err_set(err, ERR_USAGE, "share: must be from 0 to 1, is %g", o->share);
    return OK;
}

static int bench_data(pl_engine *engine, const char *spec, const pl_bench_data_options *options,
                      pl_bench_data_report *report)
{
    struct err *err = &engine->error;
    pl_bench_data_options given;
    const struct source_config config = {
        .role = SOURCE_TRAIN, .bindings = &engine->bindings, .remote = engine->remote};
    Paceline__Data *data = NULL;
    int64_t begun = real_now();
    int rc = OPTIONS_TAKE(pl_bench_data_options, &given, options, err);
    if (rc != OK)
        return rc;
    rc = check_options(&given, err);
    if (rc == OK)
        rc = job_set_data(&data, spec, err);
    if (rc == OK)
        rc = job_check_data(data, "data", err);
    struct timing t = {
        .spec = data,
        .options = {.batch = given.batch ? given.batch : 64,
                    .threads = given.threads ? (int)given.threads : real_cores(),
                    .seconds = given.seconds > 0 ? given.seconds : 3,
                    .share = given.share,
                    .cache = (size_t)given.cache_bytes,
                    .seed = 1,
                    .begun = begun,
                    .config = &config},
        .err = err,
    };
    if (rc == OK)
        rc = time_in_world(engine, &t);
    if (data)
        paceline__data__free_unpacked(data, NULL);
    if (rc != OK)
        return rc;
    const struct loader_bench *r = &t.result;
    *report = (pl_bench_data_report){
        .records = r->records,
        .open_s = r->open_s,
        .first_batch_s = r->first_batch_s,
        .records_per_s = r->records_per_s,
        .median_ms = r->median_ms,
        .p99_ms = r->p99_ms,
        .waited_share = r->waited_share,
        .kept_records = r->kept.in_memory,
        .kept_bytes = r->kept.memory_bytes,
        .taken = r->taken,
        .batch = (uint32_t)t.options.batch,
        .tasks = (uint32_t)r->tasks,
    };
    return OK;
}

int pl_bench_data(pl_engine *engine, const char *spec, const pl_bench_data_options *options,
                  pl_bench_data_report *report)
{
    RETURN_GUARDED(engine, bench_data(engine, spec, options, report));
}
