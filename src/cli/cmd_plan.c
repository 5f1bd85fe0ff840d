#include "cli/job_options.h"
#include "cli/number.h"
#include "cli/plan_map.h"
#include "paceline/plan.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS_MAX = 1024 };

struct plan_arguments {
    struct job_options job;
    const char *cluster, *workers, *price;
    bool map, json;
};

static const struct option plan_options[] = {
    {"cluster", OPTION_TEXT, "FILE", "the machines, as for `sim` (needed)",
     offsetof(struct plan_arguments, cluster)},
    {"workers", OPTION_TEXT, "A..B", "numbers of workers, or one (1 to all nodes, up to 16)",
     offsetof(struct plan_arguments, workers)},
    {"price", OPTION_TEXT, "P", "of a worker's machine for an hour, for the column cost (0)",
     offsetof(struct plan_arguments, price)},
    JOB_OPTION(struct plan_arguments, "solver", OPTION_TEXT, "FILE",
               "a Caffe solver, in place of a job", solver),
    JOB_OPTION(struct plan_arguments, "batch", OPTION_TEXT, "N", "records of a worker's step (64)",
               batch),
    JOB_FIELD_OPTIONS(struct plan_arguments),
    {"map", OPTION_FLAG, NULL, "measure when averaging pays, by training: see --map --help",
     offsetof(struct plan_arguments, map)},
    {"json", OPTION_FLAG, NULL, "print the plan as one JSON object",
     offsetof(struct plan_arguments, json)},
    {0},
};

/* ---- the sources of the numbers ---- */

static const struct {
    char mark;
    const char *key, *words;
} sources[] = {
    [PL_PLAN_STATED] = {'=', "stated", "stated by the cluster file"},
    [PL_PLAN_MEASURED] = {'*', "measured", "measured on this machine"},
    [PL_PLAN_SCALED] = {'~', "scaled",
                        "stated by the cluster file, times the measured ratio of the batches"},
};

enum { SOURCES = sizeof sources / sizeof *sources };

/* ---- as JSON ---- */

static cJSON *row_json(const pl_plan_row *r)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "strategy", r->strategy);
    cJSON_AddNumberToObject(o, "workers", r->workers);
    cJSON_AddNumberToObject(o, "batch", r->batch);
    cJSON_AddNumberToObject(o, "step_s", r->step_s);
    cJSON_AddStringToObject(o, "step_from", sources[r->step_from].key);
    cJSON_AddNumberToObject(o, "round_steps", r->round_steps);
    cJSON_AddNumberToObject(o, "round_s", r->round_s);
    cJSON_AddNumberToObject(o, "exchange_s", r->exchange_s);
    cJSON_AddStringToObject(o, "algorithm", r->algorithm);
    cJSON_AddNumberToObject(o, "carried", r->carried);
    cJSON_AddNumberToObject(o, "samples_per_s", r->samples_per_s);
    cJSON_AddNumberToObject(o, "utilisation", r->utilisation);
    cJSON_AddNumberToObject(o, "worker_bytes", (double)r->worker_bytes);
    cJSON_AddNumberToObject(o, "driver_bytes", (double)r->driver_bytes);
    cJSON_AddNumberToObject(o, "worker_memory", (double)r->worker_memory);
    cJSON_AddNumberToObject(o, "epoch_s", r->epoch_s);
    cJSON_AddNumberToObject(o, "epoch_cost", r->epoch_cost);
    return o;
}

static void add_place(cJSON *plan, const char *key, size_t row)
{
    if (row == SIZE_MAX)
        cJSON_AddNullToObject(plan, key);
    else
        cJSON_AddNumberToObject(plan, key, (double)row);
}

static void print_json(const pl_plan_report *r)
{
    cJSON *plan = cJSON_CreateObject();
    cJSON_AddNumberToObject(plan, "records", (double)r->records);
    cJSON_AddStringToObject(plan, "others_from", "modelled");
    cJSON *rows = cJSON_AddArrayToObject(plan, "rows");
    for (size_t i = 0; i < r->rows; i++)
        cJSON_AddItemToArray(rows, row_json(&r->row[i]));
    add_place(plan, "best", r->best);
    add_place(plan, "single", r->single);
    add_place(plan, "several", r->several);
    cJSON *notes = cJSON_AddArrayToObject(plan, "notes");
    for (size_t i = 0; i < r->notes; i++)
        cJSON_AddItemToArray(notes, cJSON_CreateString(r->note[i].text));
    char *text = cJSON_PrintUnformatted(plan);
    printf("%s\n", text ? text : "{}");
    cJSON_free(text);
    cJSON_Delete(plan);
}

/* ---- as a table ---- */

static void print_row(const pl_plan_row *r, bool priced)
{
    printf("%-15s %7u %6u %9.3f%c %6.0f %11.3f %6.1f %10.0f %9.2f %9.2f %9.1f %9.2f", r->strategy,
           r->workers, r->batch, 1e3 * r->step_s, sources[r->step_from].mark, r->round_steps,
           1e3 * r->exchange_s, 100 * r->utilisation, r->samples_per_s,
           (double)r->worker_bytes * 1e-6, (double)r->driver_bytes * 1e-6,
           (double)r->worker_memory * 1e-6, r->epoch_s);
    if (priced)
        printf(" %9.4f", r->epoch_cost);
    printf("  %s\n", r->algorithm);
}

static void print_sources(const pl_plan_report *r)
{
    bool used[SOURCES] = {false};
    for (size_t i = 0; i < r->rows; i++)
        used[r->row[i].step_from] = true;
    printf("\n");
    for (size_t i = 0; i < SOURCES; i++)
        if (used[i])
            printf("step %c: %s\n", sources[i].mark, sources[i].words);
    printf("all other numbers: modelled; MB are those of a round, of the worker with most, and of "
           "the driver\n");
}

/* The best row, and whether several machines are worth it. */
static void print_verdict(const pl_plan_report *r)
{
    if (r->best == SIZE_MAX)
        return;
    const pl_plan_row *best = &r->row[r->best];
    printf("best: %s with %u worker%s, %.0f samples/s, %.2f s an epoch\n", best->strategy,
           best->workers, number_plural(best->workers, "s"), best->samples_per_s, best->epoch_s);
    if (r->single == SIZE_MAX || r->several == SIZE_MAX)
        return;
    const pl_plan_row *one = &r->row[r->single], *several = &r->row[r->several];
    double gain = several->samples_per_s / one->samples_per_s;
    if (r->best == r->single && gain < 1)
        printf("one machine is faster: with %s, the best of several, %u workers take %.2f times as "
               "long for an epoch\n",
               several->strategy, several->workers, 1 / gain);
    else if (r->best == r->single)
        printf("one machine is as fast: with %s, the best of several, %u workers are %.2f times as "
               "fast\n",
               several->strategy, several->workers, gain);
    else
        printf("several machines are worth it: %.2f times the samples/s of one, an efficiency of "
               "%.0f %%\n",
               gain, 100 * gain / several->workers);
}

static void print_table(const pl_plan_report *r, bool priced)
{
    printf("%-15s %7s %6s %10s %6s %11s %6s %10s %9s %9s %9s %9s", "strategy", "workers", "batch",
           "step ms", "steps", "exchange ms", "use %", "samples/s", "worker MB", "driver MB",
           "memory MB", "epoch s");
    printf("%s  %s\n", priced ? "      cost" : "", "all-reduce");
    for (size_t i = 0; i < r->rows; i++)
        print_row(&r->row[i], priced);
    print_sources(r);
    for (size_t i = 0; i < r->notes; i++)
        printf("%s\n", r->note[i].text);
    print_verdict(r);
}

/* ---- the command ---- */

static bool read_count(const char **text, uint32_t *out)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(*text, &end, 10);
    bool begins = **text >= '0' && **text <= '9';
    *text = end;
    *out = (uint32_t)value;
    return begins && errno == 0 && value >= 1 && value <= WORKERS_MAX;
}

/* "8" or "1..8". -1 to continue, EXIT_BAD_INPUT after a message. */
static int read_workers(const char *text, pl_plan_options *options)
{
    const char *at = text;
    if (!text)
        return -1;
    bool good = read_count(&at, &options->workers_min);
    options->workers_max = options->workers_min;
    if (good && strncmp(at, "..", 2) == 0) {
        at += 2;
        good = read_count(&at, &options->workers_max);
    }
    if (good && *at == '\0' && options->workers_min <= options->workers_max)
        return -1;
    fprintf(stderr,
            "paceline plan: --workers: expected numbers from 1 to %d as 8 or 1..8, not %s\n",
            WORKERS_MAX, text);
    return EXIT_BAD_INPUT;
}

static int load_and_plan(pl_engine *engine, const struct plan_arguments *a, const char *path,
                         const pl_plan_options *options, pl_plan_report *report)
{
    pl_job *job = NULL;
    pl_cluster *cluster = NULL;
    int rc = job_options_load(engine, path, &a->job, &job);
    if (rc == PL_OK)
        rc = pl_cluster_load(engine, a->cluster, &cluster);
    if (rc == PL_OK)
        rc = pl_plan(engine, job, cluster, options, report);
    pl_cluster_free(cluster);
    pl_job_free(job);
    return rc;
}

static int run_plan(const struct command *command, int argc, char **argv)
{
    struct plan_arguments a = {0};
    pl_plan_options options = {0};
    const char *path = NULL;
    size_t count;
    if (plan_map_is_asked(argc, argv))
        return plan_map_run(argc, argv);
    int end = options_parse(command, argc, argv, &a, &path, 1, &count);
    if (end >= 0)
        return end;
    end = job_options_check(command, &a.job, count);
    if (end < 0)
        end = read_workers(a.workers, &options);
    if (end < 0)
        end = number_option(command, "price", a.price, 0, 1e9, &options.price);
    if (end >= 0)
        return end;
    if (!a.cluster) {
        fprintf(stderr, "paceline plan: --cluster FILE is missing; see paceline plan --help\n");
        return EXIT_BAD_INPUT;
    }
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    pl_plan_report report;
    int rc = load_and_plan(engine, &a, path, &options, &report);
    int code = rc == PL_OK ? EXIT_DONE : cli_fail(engine, rc);
    if (rc == PL_OK) {
        if (a.json)
            print_json(&report);
        else
            print_table(&report, a.price);
        pl_plan_release(&report);
    }
    pl_engine_destroy(engine);
    return code;
}

const struct command cmd_plan = {
    .name = "plan",
    .summary = "Predict a job's speed for each strategy and number of workers of a cluster",
    .arguments = "JOB|SOLVER --cluster FILE",
    .options = plan_options,
    .run = run_plan,
};
