#define _GNU_SOURCE
#include "cli/plan_map.h"

#include "cli/job_options.h"
#include "cli/map_drawing.h"
#include "cli/map_result.h"
#include "cli/map_runs.h"
#include "cli/number.h"
#include "cli/output.h"
#include "cli/run_output.h"
#include "cli/signals.h"
#include "cli/svg_page.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS_MOST = 1024, TAU_MOST = 1000000, PASSES = 2 };

struct map_arguments {
    struct job_options job;
    struct output_arguments output;
    const char *workers, *tau, *exchange, *target, *every, *limit, *parallel, *csv, *svg;
    bool map, json;
};

#define MAP_OPTION(name, value, help, field)                                  \
    {                                                                         \
        name, OPTION_TEXT, value, help, offsetof(struct map_arguments, field) \
    }

static const struct option map_options[] = {
    {"map", OPTION_FLAG, NULL, "measure the map: steps to an error by K and tau",
     offsetof(struct map_arguments, map)},
    {"json", OPTION_FLAG, NULL, "print the map as one JSON object",
     offsetof(struct map_arguments, json)},
    MAP_OPTION("target", "ERROR",
               "the validation error (without one: test error) to reach (needed)", target),
    MAP_OPTION("workers", "LIST", "K: 1..5, or 2,3,8 (1..5)", workers),
    MAP_OPTION("tau", "LIST", "steps between averages (1,2,5,10,25,100)", tau),
    MAP_OPTION("exchange", "LIST", "S, the time of an exchange in steps of one worker (0,1,10,100)",
               exchange),
    MAP_OPTION("every", "N", "steps between evaluations, at least (10)", every),
    MAP_OPTION("limit", "N", "steps of one worker at most (20000); others have twice its steps",
               limit),
    MAP_OPTION("parallel", "N", "simulations at a time (cores of this machine)", parallel),
    MAP_OPTION("csv", "FILE", "write the cells, and continue with those that are there", csv),
    MAP_OPTION("svg", "FILE", "draw the maps", svg),
    JOB_OPTION(struct map_arguments, "solver", OPTION_TEXT, "FILE",
               "a Caffe solver, in place of a job", solver),
    JOB_OPTION(struct map_arguments, "batch", OPTION_TEXT, "N", "records of a worker's step (64)",
               batch),
    JOB_OPTION(struct map_arguments, "lr", OPTION_TEXT, "R", "the learning rate, solver.base_lr",
               lr),
    JOB_FIELD_OPTIONS(struct map_arguments),
    OUTPUT_OPTIONS(struct map_arguments),
    {0},
};

static const struct command map_command = {
    .name = "plan",
    .summary = "Measure when averaging models pays: the steps of K workers to an error, by "
               "simulated training (SparkNet, Fig. 3 and 4)",
    .arguments = "JOB|SOLVER --map --target ERROR",
    .options = map_options,
};

struct mapping {
    pl_engine *engine;
    const struct map_arguments *arguments;
    const char *path; /* of the job; NULL: a solver */
    struct map_cells map;
    struct map_runs runs;
    char *others;    /* rows of the file that are of no cell */
    uint64_t limit;  /* of one worker, steps */
    size_t parallel; /* simulations */
    bool on_tests;   /* the target is a test error */
};

/* ---- the axes ---- */

static int refuse_list(const char *option, const char *text, const char *expected)
{
    fprintf(stderr, "paceline plan: --%s: expected %s, not %s\n", option, expected, text);
    return EXIT_BAD_INPUT;
}

/* "1..5", "2,3,8", "1..3,8": numbers that rise, from 1 to `most`. */
static bool read_whole(const char *text, uint32_t most, uint32_t out[MAP_AXIS_MAX], size_t *count)
{
    uint32_t last = 0;
    *count = 0;
    while (true) {
        char *end;
        unsigned long from = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;
        unsigned long to = from;
        if (from == 0)
            return false;
        if (strncmp(end, "..", 2) == 0) {
            text = end + 2;
            to = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;
        }
        if (from <= last || to < from || to > most || *count + (to - from) >= MAP_AXIS_MAX)
            return false;
        for (unsigned long k = from; k <= to; k++)
            out[(*count)++] = (uint32_t)k;
        last = (uint32_t)to;
        if (*end != ',')
            return *end == '\0';
        text = end + 1;
    }
}

static bool read_times(const char *text, double out[MAP_AXIS_MAX], size_t *count)
{
    *count = 0;
    while (*count < MAP_AXIS_MAX) {
        char *end;
        double value = strtod(text, &end);
        if (end == text || !(value >= 0 && value <= 1e6))
            return false;
        out[(*count)++] = value;
        if (*end != ',')
            return *end == '\0';
        text = end + 1;
    }
    return false;
}

static int read_axes(const struct map_arguments *a, struct map_cells *map)
{
    const char *workers = a->workers ? a->workers : "1..5";
    const char *tau = a->tau ? a->tau : "1,2,5,10,25,100";
    const char *exchange = a->exchange ? a->exchange : "0,1,10,100";
    if (!read_whole(workers, WORKERS_MOST, map->workers, &map->rows))
        return refuse_list("workers", workers, "up to 32 rising numbers from 1 to 1024 as 1..5,8");
    if (!read_whole(tau, TAU_MOST, map->tau, &map->columns))
        return refuse_list("tau", tau, "up to 32 rising numbers from 1 to 1000000 as 1,2,5");
    if (!read_times(exchange, map->exchange, &map->exchanges))
        return refuse_list("exchange", exchange, "up to 32 numbers from 0 to 1000000 as 0,1,10");
    map_cells_lay_out(map);
    return -1;
}

static int read_whole_option(const char *option, const char *text, double most, double *out)
{
    int end = number_option(&map_command, option, text, 1, most, out);
    if (end < 0 && *out != floor(*out))
        return refuse_list(option, text, "a whole number");
    return end;
}

static int read_numbers(const struct map_arguments *a, struct mapping *m)
{
    double every = 10, limit = 20000, parallel = pl_cores();
    if (!a->target) {
        fprintf(stderr,
                "paceline plan: --target ERROR is missing; see paceline plan --map --help\n");
        return EXIT_BAD_INPUT;
    }
    int end = number_option(&map_command, "target", a->target, 1e-6, 1, &m->map.target);
    if (end < 0)
        end = read_whole_option("every", a->every, TAU_MOST, &every);
    if (end < 0)
        end = read_whole_option("limit", a->limit, 1e9, &limit);
    if (end < 0)
        end = read_whole_option("parallel", a->parallel, MAP_RUNS_MAX, &parallel);
    m->map.every = (uint32_t)every;
    m->limit = (uint64_t)limit;
    m->parallel = (size_t)fmin(fmax(parallel, 1), MAP_RUNS_MAX);
    return end < 0 ? read_axes(a, &m->map) : end;
}

/* ---- the jobs of cells ---- */

/* The job of every cell, but for its workers, strategy and end. */
static int load_base(struct mapping *m, pl_job **out)
{
    const char *const set[] = {"threads=1", "checkpoint.every_seconds=0"};
    const char *const unset[] = {"stop", "evaluate.every_exchanges", "evaluate.at_start"};
    int rc = job_options_load(m->engine, m->path, &m->arguments->job, out);
    if (rc != PL_OK)
        return rc;
    for (size_t i = 0; rc == PL_OK && i < sizeof unset / sizeof *unset; i++)
        rc = pl_job_unset(*out, unset[i]);
    for (size_t i = 0; rc == PL_OK && i < sizeof set / sizeof *set; i++)
        rc = pl_job_set(*out, set[i]);
    if (rc == PL_OK && !m->on_tests)
        rc = pl_job_unset(*out, "test_data"); /* need not be evaluated, too */
    return rc;
}

static int set_number(pl_job *job, const char *field, double value)
{
    char text[128];
    snprintf(text, sizeof text, "%s=%.17g", field, value);
    return pl_job_override(job, text);
}

/* How many steps a cell has for the target: more than twice those of one worker would be no
 * speed-up worth a cell. At least one round. */
static uint64_t limit_of(const struct mapping *m, const struct map_cell *cell)
{
    uint64_t steps = cell->workers == 1 ? m->limit : PASSES * m->map.cell[0].steps;
    return (steps + cell->tau - 1) / cell->tau * cell->tau;
}

static int set_cell(const struct mapping *m, const struct map_cell *cell, pl_job *job)
{
    int rc = set_number(job, "workers", cell->workers);
    if (rc == PL_OK)
        rc = pl_job_set_strategy(job, cell->workers == 1 ? "single" : "sync");
    if (rc == PL_OK && cell->workers > 1)
        rc = set_number(job, "strategy.sync.tau", cell->tau);
    if (rc == PL_OK)
        rc = set_number(job, "evaluate.every_steps", m->map.every);
    if (rc == PL_OK)
        rc = set_number(job, "stop.steps", (double)limit_of(m, cell));
    if (rc == PL_OK)
        rc = set_number(job, m->on_tests ? "stop.test_error" : "stop.validation_error",
                        m->map.target);
    return rc;
}

static int text_of_cell(struct mapping *m, const struct map_cell *cell, char **out)
{
    pl_job *job = NULL;
    int rc = load_base(m, &job);
    if (rc == PL_OK && cell)
        rc = set_cell(m, cell, job);
    if (rc == PL_OK)
        rc = pl_job_text(job, out);
    pl_job_free(job);
    return rc;
}

/* FNV-1a, to know the rows of another job. */
static uint64_t hash_of(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return hash;
}

/* Steps and batches must mean the same for every K. */
static int check_base(struct mapping *m)
{
    static const char *const shared[] = {"\nglobal_batch:", "\nbatch_growth {", "\nfollow_batch {",
                                         "\nlocal_data: true"};
    char *text = NULL;
    m->on_tests = true; /* until the job is known */
    int rc = text_of_cell(m, NULL, &text);
    if (rc != PL_OK)
        return cli_fail(m->engine, rc);
    m->on_tests = strstr(text, "\nvalidation: 0\n");
    m->map.job = hash_of(text);
    const char *found = NULL;
    for (size_t i = 0; i < sizeof shared / sizeof *shared && !found; i++)
        found = strstr(text, shared[i]) ? shared[i] + 1 : NULL;
    free(text);
    if (!found)
        return -1;
    fprintf(stderr,
            "paceline plan: --map: every worker has the job's `batch`, and the job sets %.*s: "
            "--unset it, and give --batch\n",
            (int)strcspn(found, ": "), found);
    return EXIT_BAD_INPUT;
}

/* ---- measuring ---- */

static void report_cell(const struct mapping *m, const struct map_cell *cell)
{
    double speedup = map_cells_speedup(&m->map, cell, 0);
    if (!cell->is_reached)
        output_line("K %" PRIu32 ", tau %" PRIu32 ": error %.4g after %" PRIu64
                    " steps: the target is not reached",
                    cell->workers, cell->tau, cell->error, cell->steps);
    else
        output_line("K %" PRIu32 ", tau %" PRIu32 ": %" PRIu64 " steps, %.2f times one worker",
                    cell->workers, cell->tau, cell->steps, speedup);
}

static void show_progress(const struct mapping *m)
{
    struct progress_field field[2] = {{.rank = 0}, {.rank = 0}};
    size_t done = 0;
    for (size_t i = 0; i < m->map.cells; i++)
        done += m->map.cell[i].is_done;
    snprintf(field[0].text, sizeof field[0].text, "%zu of %zu cells", done, m->map.cells);
    snprintf(field[1].text, sizeof field[1].text, "%zu simulations", map_runs_count(&m->runs));
    output_progress(field, 2);
}

static int start_cell(struct mapping *m, size_t at)
{
    char *text = NULL;
    int rc = text_of_cell(m, &m->map.cell[at], &text);
    if (rc != PL_OK)
        return cli_fail(m->engine, rc);
    bool started = map_runs_start(&m->runs, at, m->map.cell[at].workers, text);
    free(text);
    return started ? -1 : EXIT_FAILED;
}

/* The next cell that is not done, from *next on. */
static bool find_open(const struct mapping *m, size_t *next, size_t end)
{
    while (*next < end && m->map.cell[*next].is_done)
        (*next)++;
    return *next < end;
}

/* Measure the open cells of [from, end). -1 to continue, or an exit code after a message. */
static int measure_cells(struct mapping *m, size_t from, size_t end)
{
    size_t next = from;
    int code = -1;
    while (code < 0) {
        size_t ended;
        if (pl_flag_get(&signals_stop) > 0)
            return EXIT_INTERRUPTED;
        if (find_open(m, &next, end) && map_runs_has_room(&m->runs)) {
            code = start_cell(m, next++);
            continue;
        }
        if (map_runs_count(&m->runs) == 0)
            return -1;
        code = map_runs_poll(&m->runs, &m->map, &ended);
        if (code >= 0)
            return code;
        show_progress(m);
        if (ended == SIZE_MAX)
            continue;
        report_cell(m, &m->map.cell[ended]);
        if (m->arguments->csv && !map_cells_write(&m->map, m->arguments->csv, m->others))
            return EXIT_FAILED;
    }
    return code;
}

/* One worker first: its steps limit those of the others. */
static int measure_map(struct mapping *m)
{
    int code = measure_cells(m, 0, 1);
    if (code >= 0)
        return code;
    if (!m->map.cell[0].is_reached) {
        fprintf(stderr,
                "paceline plan: --target: one worker has an error of %.4g after %" PRIu64
                " steps; give a higher target or --limit\n",
                m->map.cell[0].error, m->map.cell[0].steps);
        return EXIT_FAILED;
    }
    return measure_cells(m, 1, m->map.cells);
}

/* ---- the result ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool show_map(const struct mapping *m, bool interrupted)
{
    const struct map_arguments *a = m->arguments;
    const char *set = m->on_tests ? "test" : "validation";
    if (a->json)
        map_result_json(&m->map, set, interrupted);
    else
        map_result_print(&m->map, set);
    return !a->svg ||
           map_drawing_write(a->svg, base_name(m->path ? m->path : a->job.solver), &m->map);
}

/* ---- the command ---- */

bool plan_map_is_asked(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--map") == 0)
            return true;
    return false;
}

static int run_mapping(struct mapping *m)
{
    const char *csv = m->arguments->csv;
    int code = check_base(m);
    if (code < 0 && csv && !map_cells_read(&m->map, csv, &m->others))
        code = EXIT_BAD_INPUT;
    if (code >= 0)
        return code;
    if (!map_runs_open(&m->runs, m->parallel))
        return EXIT_FAILED;
    signals_catch_run();
    pl_flag_set(&signals_heeded, true);
    code = measure_map(m);
    map_runs_close(&m->runs);
    output_finish();
    bool shown = !m->map.cell[0].is_reached || show_map(m, code == EXIT_INTERRUPTED);
    return code >= 0 ? code : shown ? EXIT_DONE : EXIT_FAILED;
}

int plan_map_run(int argc, char **argv)
{
    static struct mapping m; /* a quarter of a megabyte */
    struct map_arguments a = {0};
    size_t count;
    int end = options_parse(&map_command, argc, argv, &a, &m.path, 1, &count);
    m.arguments = &a;
    if (end < 0)
        end = job_options_check(&map_command, &a.job, count);
    if (end < 0)
        end = read_numbers(&a, &m);
    if (end < 0)
        end = run_output_configure(&map_command, &a.output, PROGRESS_EVERY_S);
    if (end >= 0)
        return end;
    if ((a.csv && !svg_may_write("plan", "csv", a.csv, map_cells_head)) ||
        (a.svg && !svg_may_write("plan", "svg", a.svg, svg_first_bytes)))
        return EXIT_BAD_INPUT;
    m.engine = cli_engine();
    if (!m.engine)
        return EXIT_FAILED;
    int code = run_mapping(&m);
    free(m.others);
    pl_engine_destroy(m.engine);
    return code;
}
