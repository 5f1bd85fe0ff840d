#include "cli/job_options.h"
#include "cli/number.h"
#include "cli/output.h"
#include "cli/plan_map.h"
#include "cli/plan_survey.h"
#include "cli/plan_svg.h"
#include "cli/run_output.h"
#include "cli/signals.h"
#include "cli/svg_page.h"
#include "paceline/plan.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS_MAX = 1024 };

struct plan_arguments {
    struct job_options job;
    struct output_arguments output;
    struct survey_arguments survey;
    const char *cluster, *workers, *price, *simulate, *limit, *svg;
    bool map, json;
};

static const struct option plan_options[] = {
    {"cluster", OPTION_TEXT, "FILE", "the machines, as for `sim`; or --listen measures them",
     offsetof(struct plan_arguments, cluster)},
    SURVEY_OPTIONS(struct plan_arguments),
    {"workers", OPTION_TEXT, "A..B",
     "numbers of workers, or one (1 to all nodes, up to 16; with --listen: to the job's)",
     offsetof(struct plan_arguments, workers)},
    {"price", OPTION_TEXT, "P", "of a worker's machine for an hour, for the column cost (0)",
     offsetof(struct plan_arguments, price)},
    {"simulate", OPTION_TEXT, "SECONDS",
     "simulate the best rows for so long in virtual time: their speed and test error",
     offsetof(struct plan_arguments, simulate)},
    {"simulate-limit", OPTION_TEXT, "SECONDS",
     "on this machine for all simulations together; else they are shortened (60)",
     offsetof(struct plan_arguments, limit)},
    JOB_OPTION(struct plan_arguments, "solver", OPTION_TEXT, "FILE",
               "a Caffe solver, in place of a job", solver),
    JOB_OPTION(struct plan_arguments, "batch", OPTION_TEXT, "N", "records of a worker's step (64)",
               batch),
    JOB_FIELD_OPTIONS(struct plan_arguments),
    {"map", OPTION_FLAG, NULL, "measure when averaging pays, by training: see --map --help",
     offsetof(struct plan_arguments, map)},
    OUTPUT_OPTIONS(struct plan_arguments),
    {"svg", OPTION_TEXT, "FILE", "draw samples/s over the number of workers, by strategy",
     offsetof(struct plan_arguments, svg)},
    {"json", OPTION_FLAG, NULL, "print the plan as one JSON object",
     offsetof(struct plan_arguments, json)},
    {0},
};

/* ---- the sources of the numbers ---- */

static const struct {
    char mark;
    const char *key, *words;
} sources[2][3] = {
    {
        [PL_PLAN_STATED] = {'=', "stated", "stated by the cluster file"},
        [PL_PLAN_MEASURED] = {'*', "measured", "measured on this machine"},
        [PL_PLAN_SCALED] = {'~', "scaled",
                            "stated by the cluster file, times the measured ratio of the batches"},
    },
    {
        [PL_PLAN_STATED] = {'=', "surveyed", "measured on the workers"},
        [PL_PLAN_SCALED] = {'~', "scaled",
                            "measured on the workers, times the ratio of the batches here"},
    },
};

enum { SOURCES = sizeof sources[0] / sizeof sources[0][0] };

static bool surveyed; /* the cluster was measured */

/* By how much the prediction is above the simulation, as a share; of a row with a simulated
 * speed. */
static double prediction_off(const pl_plan_row *r)
{
    return r->samples_per_s / r->trial.samples_per_s - 1;
}

/* ---- as JSON ---- */

static cJSON *trial_json(const pl_plan_row *r)
{
    const pl_plan_trial *trial = &r->trial;
    cJSON *o = cJSON_CreateObject();
    if (trial->samples_per_s > 0) {
        cJSON_AddNumberToObject(o, "samples_per_s", trial->samples_per_s);
        cJSON_AddNumberToObject(o, "prediction_off", prediction_off(r));
    }
    if (trial->set[0]) {
        cJSON_AddStringToObject(o, "set", trial->set);
        if (trial->error >= 0)
            cJSON_AddNumberToObject(o, "error", trial->error);
        cJSON_AddNumberToObject(o, "loss", trial->loss);
    }
    cJSON_AddNumberToObject(o, "at_s", trial->at_s);
    return o;
}

static cJSON *row_json(const pl_plan_row *r)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "strategy", r->strategy);
    cJSON_AddNumberToObject(o, "workers", r->workers);
    cJSON_AddNumberToObject(o, "batch", r->batch);
    cJSON_AddNumberToObject(o, "step_s", r->step_s);
    cJSON_AddStringToObject(o, "step_from", sources[surveyed][r->step_from].key);
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
    if (r->trial.done)
        cJSON_AddItemToObject(o, "simulated", trial_json(r));
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
    if (r->simulated_s > 0) {
        cJSON_AddNumberToObject(plan, "simulated_s", r->simulated_s);
        cJSON_AddNumberToObject(plan, "evaluated", r->evaluated);
        cJSON_AddBoolToObject(plan, "interrupted", r->interrupted);
    }
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
           r->workers, r->batch, 1e3 * r->step_s, sources[surveyed][r->step_from].mark,
           r->round_steps, 1e3 * r->exchange_s, 100 * r->utilisation, r->samples_per_s,
           (double)r->worker_bytes * 1e-6, (double)r->driver_bytes * 1e-6,
           (double)r->worker_memory * 1e-6, r->epoch_s);
    if (priced)
        printf(" %9.4f", r->epoch_cost);
    printf("  %s\n", r->algorithm);
}

/* A number in its column, or a dash. */
static void print_cell(int width, int digits, bool known, double value)
{
    if (known)
        printf(" %*.*f", width, digits, value);
    else
        printf(" %*s", width, "-");
}

static void print_trial(const pl_plan_row *r)
{
    const pl_plan_trial *trial = &r->trial;
    bool speed = trial->samples_per_s > 0, judged = trial->set[0];
    printf("%-15s %7u %12.0f", r->strategy, r->workers, r->samples_per_s);
    print_cell(12, 0, speed, trial->samples_per_s);
    print_cell(8, 1, speed, speed ? 100 * prediction_off(r) : 0);
    print_cell(8, 2, judged && trial->error >= 0, 100 * trial->error);
    print_cell(8, 4, judged, trial->loss);
    printf(" %9.3f\n", trial->at_s);
}

/* The rows that were simulated, against what was predicted of them. */
static void print_trials(const pl_plan_report *r)
{
    const char *set = NULL;
    for (size_t i = 0; i < r->rows; i++)
        if (r->row[i].trial.done && !set) {
            set = r->row[i].trial.set;
            printf("\n%-15s %7s %12s %12s %8s %8s %8s %9s\n", "simulated", "workers",
                   "predicted /s", "simulated /s", "off %", "error %", "loss", "at s");
        }
    for (size_t i = 0; set && i < r->rows; i++)
        if (r->row[i].trial.done)
            print_trial(&r->row[i]);
    if (!set)
        return;
    printf(
        "\npredicted /s: samples/s of the table above; simulated /s: of the job's own run on the "
        "cluster file, for %.3g virtual seconds; off: the first against the second\n",
        r->simulated_s);
    if (set[0])
        printf("error and loss: of the simulated model at the virtual time `at`, on the first %u "
               "%s records at most\n",
               r->evaluated, set);
}

static void print_sources(const pl_plan_report *r)
{
    bool used[SOURCES] = {false};
    for (size_t i = 0; i < r->rows; i++)
        used[r->row[i].step_from] = true;
    printf("\n");
    for (size_t i = 0; i < SOURCES; i++)
        if (used[i])
            printf("step %c: %s\n", sources[surveyed][i].mark, sources[surveyed][i].words);
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
    print_trials(r);
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

struct signal_state {
    bool caught, reported;
};

/* The first call comes from the first simulation: until then a signal ends the command, which has
 * nothing to keep. */
static void on_progress(void *user, const pl_plan_progress *p)
{
    struct progress_field field[4] = {{.rank = 0}, {.rank = 2}, {.rank = 0}, {.rank = 1}};
    struct signal_state *state = user;
    if (!state->caught) {
        signals_catch_run();
        pl_flag_set(&signals_heeded, 1);
        state->caught = true;
    }
    if (pl_flag_get(&signals_stop) > 0 && !state->reported) {
        output_warning("interrupted: ends at the next exchange of the simulated run; again: at "
                       "once");
        state->reported = true;
    }
    snprintf(field[0].text, sizeof field[0].text, "simulating %s", p->strategy);
    snprintf(field[1].text, sizeof field[1].text, "%u worker%s", p->workers,
             number_plural(p->workers, "s"));
    snprintf(field[2].text, sizeof field[2].text, "%.3g of %.3g s", p->t, p->seconds);
    snprintf(field[3].text, sizeof field[3].text, "row %zu of %zu", p->row, p->rows);
    output_progress(field, sizeof field / sizeof *field);
}

static int load_and_plan(pl_engine *engine, const struct plan_arguments *a, const char *path,
                         const pl_plan_options *options, pl_plan_report *report)
{
    pl_job *job = NULL;
    pl_cluster *cluster = NULL;
    int rc = job_options_load(engine, path, &a->job, &job);
    if (rc == PL_OK && surveyed)
        rc = survey_run(engine, job, options->workers_max, &cluster);
    else if (rc == PL_OK)
        rc = pl_cluster_load(engine, a->cluster, &cluster);
    if (rc == PL_OK)
        rc = pl_plan(engine, job, cluster, options, report);
    pl_cluster_free(cluster);
    pl_job_free(job);
    return rc;
}

static int read_numbers(const struct command *command, const struct plan_arguments *a,
                        pl_plan_options *options)
{
    int end = number_option(command, "price", a->price, 0, 1e9, &options->price);
    if (end < 0)
        end = number_option(command, "simulate", a->simulate, 1e-6, 1e9, &options->simulate_s);
    if (end < 0)
        end = number_option(command, "simulate-limit", a->limit, 1e-3, 1e9,
                            &options->simulate_limit_s);
    if (end < 0 && a->limit && !a->simulate) {
        fprintf(stderr, "paceline plan: --simulate-limit is of a simulation: give --simulate "
                        "SECONDS, too, or leave it out\n");
        return EXIT_BAD_INPUT;
    }
    return end < 0 ? run_output_configure(command, &a->output, PROGRESS_EVERY_S) : end;
}

static int print_plan(const struct plan_arguments *a, const pl_plan_report *report)
{
    if (a->json)
        print_json(report);
    else
        print_table(report, a->price);
    if (a->svg && !plan_svg_write(a->svg, report))
        return EXIT_FAILED;
    return report->interrupted ? EXIT_INTERRUPTED : EXIT_DONE;
}

static int run_plan(const struct command *command, int argc, char **argv)
{
    struct plan_arguments a = {0};
    struct signal_state state = {0};
    pl_plan_options options = {
        .size = sizeof options, .progress = on_progress, .user = &state, .stop = &signals_stop};
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
        end = read_numbers(command, &a, &options);
    if (end >= 0)
        return end;
    surveyed = a.survey.listen;
    if (!a.cluster == !surveyed) {
        fprintf(stderr, "paceline plan: give one of --cluster FILE and --listen ADDR; see paceline "
                        "plan --help\n");
        return EXIT_BAD_INPUT;
    }
    end = survey_read(command, &a.survey);
    if (end >= 0)
        return end;
    if (a.svg && !svg_may_write("plan", "svg", a.svg, svg_first_bytes))
        return EXIT_BAD_INPUT;
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    pl_plan_report report;
    int rc = load_and_plan(engine, &a, path, &options, &report);
    output_finish();
    int code = rc == PL_OK ? print_plan(&a, &report) : cli_fail(engine, rc);
    if (rc == PL_OK)
        pl_plan_release(&report);
    pl_engine_destroy(engine);
    return code;
}

const struct command cmd_plan = {
    .name = "plan",
    .summary = "Predict a job's speed for each strategy and number of workers of a cluster",
    .arguments = "JOB|SOLVER --cluster FILE|--listen ADDR",
    .options = plan_options,
    .run = run_plan,
};
