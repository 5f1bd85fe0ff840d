/* Records that are made on demand, by a function of the caller's that takes a given time of a
 * processor for each: until the first batch is there, and records a second.
 *
 *     map_cost [RECORDS [MILLISECONDS [SECONDS [BATCH]]]]     (1300000, 10, 10, 8)
 *
 * Run under `taskset -c 0` it has one core; without, all of them: the second rate over the first is
 * how it scales. */
#include "paceline/bench.h"
#include "paceline/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double cost_s;

static int make_record(void *user, size_t i, void *values)
{
    float *x = values;
    (void)user;
    for (size_t k = 0; k < 16; k++)
        x[k] = (float)((i * 7 + k) % 1000);
    return PL_OK;
}

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Not much of a map, but an expensive one. */
static int compute_record(void *user, size_t i, const float *in, const pl_draw *draw, float *out)
{
    double end = processor_seconds() + cost_s;
    (void)user;
    (void)draw;
    for (size_t k = 0; k < 16; k++)
        out[k] = in[k] + (float)(i % 3);
    while (processor_seconds() < end)
        continue;
    return PL_OK;
}

static double argument_at(int argc, char **argv, int i, double otherwise)
{
    return argc > i ? strtod(argv[i], NULL) : otherwise;
}

int main(int argc, char **argv)
{
    cost_s = argument_at(argc, argv, 2, 10) / 1e3;
    const pl_records records = {.size = sizeof records,
                                .count = (size_t)argument_at(argc, argv, 1, 1300000),
                                .channels = 16,
                                .height = 1,
                                .width = 1,
                                .type = PL_F32,
                                .read = make_record,
                                .hash = 1};
    const pl_map map = {.size = sizeof map, .apply = compute_record, .hash = 2};
    const pl_bench_data_options options = {.size = sizeof options,
                                           .seconds = argument_at(argc, argv, 3, 10),
                                           .batch = (uint32_t)argument_at(argc, argv, 4, 8)};
    pl_engine *engine = NULL;
    pl_bench_data_report report;
    int rc = pl_engine_create(NULL, &engine);
    if (rc == PL_OK)
        rc = pl_data_bind(engine, "made", &records);
    if (rc == PL_OK)
        rc = pl_data_map(engine, "mapped", "memory:made", &map);
    if (rc == PL_OK)
        rc = pl_bench_data(engine, "memory:mapped", &options, &report);
    if (rc == PL_OK)
        printf("%zu records: first batch after %.3f s, %.1f records/s by %u tasks\n",
               report.records, report.first_batch_s, report.records_per_s, report.tasks);
    else
        fprintf(stderr, "map_cost: %s\n", engine ? pl_engine_error(engine) : "no memory");
    pl_engine_destroy(engine);
    return rc == PL_OK ? 0 : 1;
}
