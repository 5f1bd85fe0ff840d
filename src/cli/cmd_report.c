/* `paceline report`: a page, and a table, of what runs have been. */
#include "cli/report_page.h"
#include "cli/report_pictures.h"
#include "cli/report_tensorboard.h"

#include "cli/cli.h"
#include "cli/number.h"
#include "cli/output.h"
#include "cli/svg_page.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { RUNS_MAX = 16, PATH_BYTES = 4096, NAME_BYTES = 256 };

struct report_arguments {
    const char *out, *csv, *tensorboard, *png, *svg, *dpi, *axis;
    struct option_list trace;
    enum report_axis drawn_over; /* by axis, */
    double pixels;               /* and by dpi */
};

static const struct option report_options[] = {
    {"out", OPTION_TEXT, "FILE", "the page, one HTML file (report.html); also -o FILE",
     offsetof(struct report_arguments, out)},
    {"trace", OPTION_LIST, "FILE",
     "the trace of a run (RUN_DIR/trace.json, where there is one); of the second RUN the second",
     offsetof(struct report_arguments, trace)},
    {"csv", OPTION_TEXT, "FILE", "write all points of all curves",
     offsetof(struct report_arguments, csv)},
    {"tensorboard", OPTION_TEXT, "DIR", "write all curves for TensorBoard, a folder for each run",
     offsetof(struct report_arguments, tensorboard)},
    {"png", OPTION_TEXT, "DIR", "write the curves as pictures for papers: DIR/error.png and others",
     offsetof(struct report_arguments, png)},
    {"svg", OPTION_TEXT, "DIR", "write the same pictures as drawings: DIR/error.svg and others",
     offsetof(struct report_arguments, svg)},
    {"dpi", OPTION_TEXT, "N", "pixels an inch of --png, 72 to 1200 (300)",
     offsetof(struct report_arguments, dpi)},
    {"axis", OPTION_TEXT, "NAME", "draw them over time, epochs or samples (epochs)",
     offsetof(struct report_arguments, axis)},
    {0},
};

/* All that is of one run. */
struct source {
    char directory[PATH_BYTES], given[NAME_BYTES], name[NAME_BYTES];
    struct run_summary *summary;
    struct trace_summary *trace;
    struct job_fields job;
    bool has_job;
};

/* The directory without slashes at its end, and its last part. */
static bool name_source(struct source *s, const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    if (n + sizeof "/events.jsonl" > sizeof s->directory) {
        fprintf(stderr, "paceline report: the path of a run is too long\n");
        return false;
    }
    memcpy(s->directory, path, n);
    s->directory[n] = '\0';
    const char *slash = strrchr(s->directory, '/');
    snprintf(s->given, sizeof s->given, "%.255s", slash && slash[1] ? slash + 1 : s->directory);
    memcpy(s->name, s->given, sizeof s->name);
    return true;
}

/* A name that another run has, too, gets a number. */
static void distinguish_name(struct source *source, size_t at)
{
    unsigned same = 1;
    for (size_t i = 0; i < at; i++)
        same += strcmp(source[i].given, source[at].given) == 0;
    if (same > 1)
        snprintf(source[at].name, sizeof source[at].name, "%.200s (%u)", source[at].given, same);
}

/* false after a message. */
static bool check_directory(const char *path)
{
    struct stat of;
    int rc = stat(path, &of);
    if (rc == 0 && S_ISDIR(of.st_mode))
        return true;
    fprintf(stderr, "paceline report: %s: %s; give the directory of a run, as runs/NAME-001\n",
            path, rc == 0 ? "is no directory" : strerror(errno));
    return false;
}

static bool read_trace(struct source *s, const char *given)
{
    char path[PATH_BYTES + 16];
    struct stat of;
    snprintf(path, sizeof path, "%s/trace.json", s->directory);
    if (!given && stat(path, &of) != 0)
        return true;
    s->trace = trace_summary_read("report", given ? given : path);
    return s->trace != NULL;
}

static bool read_source(struct source *s, const char *path, const char *trace)
{
    char file[PATH_BYTES + 16];
    if (!name_source(s, path))
        return false;
    if (!check_directory(s->directory))
        return false;
    s->summary = run_summary_create(false);
    if (!s->summary) {
        fprintf(stderr, "paceline report: out of memory\n");
        return false;
    }
    snprintf(file, sizeof file, "%s/events.jsonl", s->directory);
    if (!run_summary_read(s->summary, "report", file))
        return false;
    snprintf(file, sizeof file, "%s/job.prototxt", s->directory);
    s->has_job = job_fields_read(file, &s->job);
    return read_trace(s, trace);
}

static void release_source(struct source *s)
{
    run_summary_free(s->summary);
    trace_summary_free(s->trace);
    job_fields_release(&s->job);
}

static int write_report(const struct report_arguments *a, const struct source *source, size_t count)
{
    struct report_run run[RUNS_MAX];
    for (size_t i = 0; i < count; i++)
        run[i] = (struct report_run){
            .name = source[i].name,
            .directory = source[i].directory,
            .summary = source[i].summary,
            .trace = source[i].trace,
            .job = source[i].has_job ? &source[i].job : NULL,
        };
    bool good = report_page_write(a->out, run, count);
    if (good && a->csv)
        good = report_csv_write(a->csv, run, count);
    if (good && a->tensorboard)
        good = report_tensorboard_write(a->tensorboard, run, count);
    if (good && a->png)
        good = report_pictures_write(a->png, run, count, a->drawn_over, a->pixels);
    if (good && a->svg)
        good = report_pictures_write(a->svg, run, count, a->drawn_over, 0);
    if (good)
        printf("%s\n", a->out);
    return good ? EXIT_DONE : EXIT_FAILED;
}

static int make_report(const struct report_arguments *a, const char *const *path, size_t count)
{
    struct source *source = calloc(count, sizeof *source);
    bool good = source != NULL;
    if (!good)
        fprintf(stderr, "paceline report: out of memory\n");
    for (size_t i = 0; good && i < count; i++) {
        good = read_source(&source[i], path[i], i < a->trace.count ? a->trace.at[i] : NULL);
        distinguish_name(source, i);
    }
    int code = good ? write_report(a, source, count) : EXIT_BAD_INPUT;
    for (size_t i = 0; source && i < count; i++)
        release_source(&source[i]);
    free(source);
    return code;
}

/* -1, or EXIT_BAD_INPUT after a message. */
static int read_picture_options(const struct command *command, struct report_arguments *a)
{
    static const char *const names[] = {"time", "epochs", "samples"};
    a->drawn_over = REPORT_EPOCHS;
    a->pixels = 300;
    int end = number_option(command, "dpi", a->dpi, 72, 1200, &a->pixels);
    int axis = 0;
    while (a->axis && axis < 3 && strcmp(a->axis, names[axis]) != 0)
        axis++;
    if (axis == 3) {
        fprintf(stderr, "paceline report: --axis: \"%s\": expected time, epochs or samples\n",
                a->axis);
        return EXIT_BAD_INPUT;
    }
    if (a->axis)
        a->drawn_over = (enum report_axis)axis;
    if (end < 0 && ((a->png && !report_pictures_may_write(a->png, a->pixels)) ||
                    (a->svg && !report_pictures_may_write(a->svg, 0))))
        return EXIT_BAD_INPUT;
    return end;
}

static int run_report(const struct command *command, int argc, char **argv)
{
    struct report_arguments a = {.out = "report.html"};
    const char *path[RUNS_MAX];
    size_t count;
    int end = options_parse(command, argc, argv, &a, path, RUNS_MAX, &count);
    if (end >= 0)
        return end;
    if (count == 0 || a.trace.count > count) {
        fprintf(stderr, "paceline report: %s; see paceline report --help\n",
                count == 0 ? "which run? Give its directory, as runs/NAME-001"
                           : "there are more --trace than runs");
        return EXIT_BAD_INPUT;
    }
    if (!svg_may_write("report", "out", a.out, report_first_bytes) ||
        (a.csv && !svg_may_write("report", "csv", a.csv, report_csv_head)))
        return EXIT_BAD_INPUT;
    end = read_picture_options(command, &a);
    return end >= 0 ? end : make_report(&a, path, count);
}

const struct command cmd_report = {
    .name = "report",
    .summary = "Draw runs as a page: curves, waits, faults, results, several runs together",
    .arguments = "RUN_DIR...",
    .options = report_options,
    .run = run_report,
};
