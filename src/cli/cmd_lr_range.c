#include "cli/job_options.h"
#include "cli/number.h"
#include "cli/output.h"
#include "cli/rate_chart.h"
#include "cli/run_output.h"
#include "cli/signals.h"
#include "cli/svg_page.h"
#include "paceline/lr_range.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_SHOWN = 20 };

static const char csv_head[] = "step,rate,loss,smoothed,accuracy\n";

struct range_arguments {
    struct job_options job;
    const char *from, *to, *count, *svg, *csv;
    struct output_arguments output;
    bool linear, json;
};

#define RANGE_OPTION(name, kind, value, help, field)                     \
    {                                                                    \
        name, kind, value, help, offsetof(struct range_arguments, field) \
    }

static const struct option range_options[] = {
    RANGE_OPTION("from", OPTION_TEXT, "R", "the rate of the first step (1e-5)", from),
    RANGE_OPTION("to", OPTION_TEXT, "R", "the rate of the last step (10)", to),
    RANGE_OPTION("steps", OPTION_TEXT, "N", "steps, if the loss does not diverge (300)", count),
    RANGE_OPTION("linear", OPTION_FLAG, NULL, "rates grow by equal differences (by equal ratios)",
                 linear),
    RANGE_OPTION("svg", OPTION_TEXT, "FILE", "draw loss and accuracy over the rate", svg),
    RANGE_OPTION("csv", OPTION_TEXT, "FILE", "write all steps", csv),
    JOB_OPTION(struct range_arguments, "solver", OPTION_TEXT, "FILE",
               "a Caffe solver, in place of a job", solver),
    JOB_OPTION(struct range_arguments, "batch", OPTION_TEXT, "N", "records of a step (64)", batch),
    JOB_FIELD_OPTIONS(struct range_arguments),
    OUTPUT_OPTIONS(struct range_arguments),
    RANGE_OPTION("json", OPTION_FLAG, NULL, "print the result as one JSON object", json),
    {0},
};

/* ---- while it runs ---- */

static void on_step(void *user, const pl_lr_step *step, uint32_t number, uint32_t of)
{
    struct progress_field field[4] = {{.rank = 0}, {.rank = 0}, {.rank = 0}, {.rank = 1}};
    double *accuracy = user;
    if (step->accuracy >= 0)
        *accuracy = step->accuracy;
    pl_flag_set(&signals_heeded, true);
    snprintf(field[0].text, sizeof field[0].text, "step %u of %u", number, of);
    snprintf(field[1].text, sizeof field[1].text, "rate %.3g", step->rate);
    snprintf(field[2].text, sizeof field[2].text, "loss %.4g", step->smoothed);
    snprintf(field[3].text, sizeof field[3].text, "accuracy %.1f %%", 100 * *accuracy);
    output_progress(field, *accuracy >= 0 ? 4 : 3);
}

/* ---- what came out ---- */

static const char *const end_keys[] = {
    [PL_LR_COMPLETE] = "complete",
    [PL_LR_DIVERGED] = "diverged",
    [PL_LR_NOT_FINITE] = "not_finite",
    [PL_LR_STOPPED] = "stopped",
};

static bool write_csv(const char *path, const pl_lr_range_report *r)
{
    FILE *f = fopen(path, "w");
    bool failed = !f;
    if (f) {
        fputs(csv_head, f);
        for (size_t i = 0; i < r->steps; i++) {
            const pl_lr_step *s = &r->step[i];
            fprintf(f, "%zu,%.9g,%.9g,%.9g,", i + 1, s->rate, s->loss, s->smoothed);
            if (s->accuracy >= 0)
                fprintf(f, "%.6g", s->accuracy);
            fputc('\n', f);
        }
        failed = ferror(f);
        failed |= fclose(f) != 0;
    }
    if (failed)
        fprintf(stderr, "paceline lr-range: --csv: %s: cannot be written: %s\n", path,
                strerror(errno));
    return !failed;
}

static void add_rate(cJSON *o, const char *key, bool found, double rate)
{
    if (found)
        cJSON_AddNumberToObject(o, key, rate);
    else
        cJSON_AddNullToObject(o, key);
}

static void print_json(const pl_lr_range_report *r, bool linear)
{
    cJSON *o = cJSON_CreateObject(), *steps;
    cJSON_AddStringToObject(o, "growth", linear ? "linear" : "exponential");
    cJSON_AddStringToObject(o, "end", end_keys[r->end]);
    add_rate(o, "low", r->found, r->low);
    add_rate(o, "high", r->found, r->high);
    add_rate(o, "least", r->found, r->least);
    cJSON_AddBoolToObject(o, "still_falls", r->still_falls);
    cJSON_AddNumberToObject(o, "batch", r->batch);
    cJSON_AddStringToObject(o, "accuracy_set", r->accuracy_set);
    cJSON_AddNumberToObject(o, "accuracy_records", (double)r->accuracy_records);
    steps = cJSON_AddArrayToObject(o, "steps");
    for (size_t i = 0; i < r->steps; i++) {
        cJSON *s = cJSON_CreateObject();
        cJSON_AddNumberToObject(s, "rate", r->step[i].rate);
        cJSON_AddNumberToObject(s, "loss", r->step[i].loss);
        cJSON_AddNumberToObject(s, "smoothed", r->step[i].smoothed);
        add_rate(s, "accuracy", r->step[i].accuracy >= 0, r->step[i].accuracy);
        cJSON_AddItemToArray(steps, s);
    }
    char *text = cJSON_PrintUnformatted(o);
    printf("%s\n", text ? text : "{}");
    cJSON_free(text);
    cJSON_Delete(o);
}

/* About twenty rows, each with the newest accuracy since the row before, and the last step's. */
static void print_steps(const pl_lr_range_report *r)
{
    size_t every = r->steps > ROWS_SHOWN ? r->steps / ROWS_SHOWN : 1;
    double accuracy = -1;
    printf("%7s %11s %11s %11s %9s\n", "step", "rate", "loss", "smoothed", "right %");
    for (size_t i = 0; i < r->steps; i++) {
        const pl_lr_step *s = &r->step[i];
        accuracy = s->accuracy >= 0 ? s->accuracy : accuracy;
        if ((i + 1) % every && i + 1 < r->steps)
            continue;
        printf("%7zu %11.4g %11.4g %11.4g", i + 1, s->rate, s->loss, s->smoothed);
        if (accuracy >= 0)
            printf(" %9.1f", 100 * accuracy);
        printf("\n");
        accuracy = -1;
    }
}

static void print_end(const pl_lr_range_report *r, uint32_t steps)
{
    double last = r->step[r->steps - 1].rate;
    switch (r->end) {
    case PL_LR_COMPLETE: printf("all %u steps were taken", steps); break;
    case PL_LR_DIVERGED:
        printf("ended at a rate of %.3g: the smoothed loss was above 4 times its least", last);
        break;
    case PL_LR_NOT_FINITE:
        printf("ended after a rate of %.3g: the loss was not finite", last);
        break;
    case PL_LR_STOPPED: printf("interrupted after %zu of %u steps", r->steps, steps); break;
    }
    printf("; a step has %u record%s\n", r->batch, number_plural(r->batch, "s"));
}

static void print_range(const pl_lr_range_report *r)
{
    if (*r->accuracy_set)
        printf("right: of the first %zu %s records%s\n", r->accuracy_records, r->accuracy_set,
               strcmp(r->accuracy_set, "test") == 0
                   ? "; hold records out with --set validation=N, since test data is not to choose"
                   : "");
    if (!r->found) {
        printf("no range: the smoothed loss fell by less than 5 %%; %s\n",
               r->end == PL_LR_COMPLETE ? "give a higher --to"
                                        : "give a lower --from or more --steps");
        return;
    }
    printf("suggested range: %.2g to %.2g\n", r->low, r->high);
    printf(
        "  rule: the smoothed loss has made 10 %% of its fall at the first rate, and 95 %% at the "
        "second\n");
    printf("  its least is at %.2g%s\n", r->least,
           r->still_falls && r->end != PL_LR_STOPPED
               ? ", the last rate: a higher --to may show more"
               : "");
}

static int show_report(const struct range_arguments *a, const char *name,
                       const pl_lr_range_report *report, uint32_t steps)
{
    bool good = true;
    if (a->json) {
        print_json(report, a->linear);
    } else {
        print_steps(report);
        printf("rates grow %s; the loss is smoothed by an exponential mean over a fiftieth of the "
               "steps\n",
               a->linear ? "linearly" : "exponentially");
        print_end(report, steps);
        print_range(report);
    }
    if (a->csv)
        good = write_csv(a->csv, report);
    if (a->svg)
        good = rate_chart_write(a->svg, name, report, a->linear) && good;
    if (!good)
        return EXIT_FAILED;
    return report->end == PL_LR_STOPPED ? EXIT_INTERRUPTED : EXIT_DONE;
}

/* ---- the command ---- */

/* The name of the file without its folder. */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int test_range(pl_engine *engine, const struct range_arguments *a, const char *path,
                      pl_lr_range_options *options)
{
    pl_job *job = NULL;
    double accuracy = -1;
    pl_lr_range_report report;
    int rc = job_options_load(engine, path, &a->job, &job);
    if (rc == PL_OK) {
        signals_catch_run();
        options->stop = &signals_stop;
        options->step = on_step;
        options->user = &accuracy;
        rc = pl_lr_range(engine, job, options, &report);
        output_finish();
    }
    pl_job_free(job);
    if (rc != PL_OK)
        return cli_fail(engine, rc);
    int code = show_report(a, base_name(path ? path : a->job.solver), &report, options->steps);
    pl_lr_range_release(&report);
    return code;
}

static int read_numbers(const struct command *command, const struct range_arguments *a,
                        pl_lr_range_options *options)
{
    double steps = 300;
    *options = (pl_lr_range_options){
        .size = sizeof(pl_lr_range_options), .from = 1e-5, .to = 10, .linear = a->linear};
    int end = number_option(command, "from", a->from, 1e-30, 1e6, &options->from);
    if (end < 0)
        end = number_option(command, "to", a->to, 1e-30, 1e6, &options->to);
    if (end < 0)
        end = number_option(command, "steps", a->count, 2, 100000, &steps);
    options->steps = (uint32_t)steps;
    if (end < 0 && options->steps != steps) {
        fprintf(stderr, "paceline lr-range: --steps: expected a whole number, not %s\n", a->count);
        end = EXIT_BAD_INPUT;
    }
    return end;
}

static int run_lr_range(const struct command *command, int argc, char **argv)
{
    struct range_arguments a = {0};
    pl_lr_range_options options;
    const char *path = NULL;
    size_t count;
    int end = options_parse(command, argc, argv, &a, &path, 1, &count);
    if (end < 0)
        end = job_options_check(command, &a.job, count);
    if (end < 0)
        end = read_numbers(command, &a, &options);
    if (end < 0)
        end = run_output_configure(command, &a.output, PROGRESS_EVERY_S);
    if (end >= 0)
        return end;
    if ((a.csv && !svg_may_write("lr-range", "csv", a.csv, csv_head)) ||
        (a.svg && !svg_may_write("lr-range", "svg", a.svg, svg_first_bytes)))
        return EXIT_BAD_INPUT;
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    int code = test_range(engine, &a, path, &options);
    pl_engine_destroy(engine);
    return code;
}

const struct command cmd_lr_range = {
    .name = "lr-range",
    .summary = "Find the range of learning rates for a job: train a little while the rate grows",
    .arguments = "JOB|SOLVER",
    .options = range_options,
    .run = run_lr_range,
};
