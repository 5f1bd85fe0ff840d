#include "cli/bench.h"
#include "paceline/bench.h"

#include <inttypes.h>
#include <stdio.h>

struct loader_arguments {
    const char *batch, *threads, *seconds, *share, *cache;
    bool json;
};

static const struct option loader_options[] = {
    {"batch", OPTION_TEXT, "B", "records a batch (64)", offsetof(struct loader_arguments, batch)},
    {"threads", OPTION_TEXT, "T", "tasks at most (one a core)",
     offsetof(struct loader_arguments, threads)},
    {"seconds", OPTION_TEXT, "S", "of each phase (3)", offsetof(struct loader_arguments, seconds)},
    {"share", OPTION_TEXT, "F",
     "then take batches at that share of the rate, as 0.9, and print the share of time waited",
     offsetof(struct loader_arguments, share)},
    {"cache", OPTION_TEXT, "BYTES", "keep records in so much memory (none)",
     offsetof(struct loader_arguments, cache)},
    {"json", OPTION_FLAG, NULL, "print the result as one JSON object",
     offsetof(struct loader_arguments, json)},
    {0},
};

static void print_json(const pl_bench_data_report *r)
{
    printf("{\"records\":%zu,\"open_s\":%.4f,\"first_batch_s\":%.4f,\"records_per_s\":%.1f,"
           "\"taken\":%" PRIu64 ",\"batch\":%" PRIu32 ",\"median_ms\":%.4f,\"p99_ms\":%.4f,"
           "\"tasks\":%" PRIu32 ",",
           r->records, r->open_s, r->first_batch_s, r->records_per_s, r->taken, r->batch,
           r->median_ms, r->p99_ms, r->tasks);
    if (r->waited_share >= 0)
        printf("\"waited_share\":%.6f,", r->waited_share);
    printf("\"kept_records\":%" PRIu64 ",\"kept_bytes\":%" PRIu64 "}\n", r->kept_records,
           r->kept_bytes);
}

static void print_text(const pl_bench_data_report *r)
{
    printf("records    %zu, opened in %.3f s; the first batch of %" PRIu32 " after %.3f s\n",
           r->records, r->open_s, r->batch, r->first_batch_s);
    printf("rate       %.0f records/s by %" PRIu32 " tasks; a batch takes %.3f ms, p99 %.3f ms\n",
           r->records_per_s, r->tasks, r->median_ms, r->p99_ms);
    if (r->waited_share >= 0)
        printf("waited     %.2f %% of the time, at the lower rate\n", 100 * r->waited_share);
    if (r->kept_records > 0)
        printf("kept       %" PRIu64 " records in %.1f MiB\n", r->kept_records,
               (double)r->kept_bytes / (1 << 20));
}

/* -1, or the exit code of an option that is wrong. */
static int read_options(const struct loader_arguments *a, pl_bench_data_options *out)
{
    double cache = 0;
    out->batch = bench_number(a->batch, 64);
    out->threads = a->threads ? bench_number(a->threads, 0) : 0;
    if (out->batch == 0 || out->batch > 65536)
        return bench_refuse("data", "batch", a->batch, "a number from 1 to 65536");
    if (a->threads && (out->threads == 0 || out->threads > 1024))
        return bench_refuse("data", "threads", a->threads, "a number from 1 to 1024");
    if (a->seconds &&
        (!bench_real(a->seconds, &out->seconds) || out->seconds <= 0 || out->seconds > 86400))
        return bench_refuse("data", "seconds", a->seconds, "seconds, up to 86400");
    if (a->share && (!bench_real(a->share, &out->share) || out->share <= 0 || out->share > 1))
        return bench_refuse("data", "share", a->share, "a number above 0, up to 1");
    if (a->cache && (!bench_real(a->cache, &cache) || cache < 1))
        return bench_refuse("data", "cache", a->cache, "bytes, up to 1e9");
    out->cache_bytes = (uint64_t)cache;
    return -1;
}

static int run_loader(const struct command *command, int argc, char **argv)
{
    struct loader_arguments a = {0};
    pl_bench_data_options options = {.size = sizeof options};
    pl_bench_data_report report;
    const char *spec = NULL;
    size_t count;
    int end = options_parse(command, argc, argv, &a, &spec, 1, &count);
    if (end < 0)
        end = read_options(&a, &options);
    if (end >= 0)
        return end;
    if (!spec) {
        fprintf(stderr, "paceline bench data: which records? give a SPEC, KIND:PATH\n");
        return EXIT_BAD_INPUT;
    }
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    int rc = pl_bench_data(engine, spec, &options, &report);
    int code = rc == PL_OK ? EXIT_DONE : cli_fail(engine, rc);
    if (rc == PL_OK && a.json)
        print_json(&report);
    else if (rc == PL_OK)
        print_text(&report);
    pl_engine_destroy(engine);
    return code;
}

const struct command bench_data = {
    .name = "bench data",
    .summary = "Measure how fast records are read, decoded and mapped into batches",
    .arguments = "SPEC",
    .options = loader_options,
    .run = run_loader,
};
