#include "cli/auto_strategy.h"
#include "cli/job_options.h"
#include "cli/run_output.h"
#include "cli/signals.h"
#include "paceline/sim.h"

#include <stdio.h>

struct sim_arguments {
    struct job_options job;
    struct output_arguments output;
    const char *cluster, *out, *trace, *snapshot;
    bool resume, force_change, take_over, json, threads;
};

static const struct option sim_options[] = {
    {"cluster", OPTION_TEXT, "FILE", "the machines and their faults (needed)",
     offsetof(struct sim_arguments, cluster)},
    JOB_OPTIONS(struct sim_arguments),
    OUTPUT_OPTIONS(struct sim_arguments),
    JOB_RUN_OPTIONS(struct sim_arguments),
    {"out", OPTION_TEXT, "DIR", "run directory (runs/NAME-NNN)",
     offsetof(struct sim_arguments, out)},
    {"trace", OPTION_TEXT, "FILE", "write where each node's time went, for ui.perfetto.dev",
     offsetof(struct sim_arguments, trace)},
    {"resume", OPTION_FLAG, NULL,
     "resume from the newest checkpoint of --out, or of the newest run",
     offsetof(struct sim_arguments, resume)},
    {"force-change", OPTION_FLAG, NULL,
     "resume although the job makes it another run: net, data, seed, ...",
     offsetof(struct sim_arguments, force_change)},
    {"take-over", OPTION_FLAG, NULL,
     "resume although the run is being simulated by another, which ends",
     offsetof(struct sim_arguments, take_over)},
    {"snapshot", OPTION_TEXT, "FILE", "resume from a .solverstate of Caffe's",
     offsetof(struct sim_arguments, snapshot)},
    {"sim-threads", OPTION_FLAG, NULL, "carry tasks by threads, one at a time, for debuggers",
     offsetof(struct sim_arguments, threads)},
    {"json", OPTION_FLAG, NULL, "print the last event alone on stdout",
     offsetof(struct sim_arguments, json)},
    {0},
};

static int load_and_simulate(pl_engine *engine, const struct sim_arguments *a, const char *path,
                             struct run_output *output, pl_run_report *report)
{
    pl_job *job = NULL;
    pl_cluster *cluster = NULL;
    char reason[CHOICE_TEXT_MAX] = "";
    int rc = job_options_load(engine, path, &a->job, &job);
    if (rc == PL_OK)
        rc = pl_cluster_load(engine, a->cluster, &cluster);
    if (rc == PL_OK && !a->resume)
        rc = auto_strategy_choose(engine, &job, cluster, NULL, reason);
    if (rc == PL_OK) {
        output->virtual_time = true;
        signals_catch_run();
        const pl_run_options run = {
            .size = sizeof run,
            .out = a->out,
            .resume = a->resume,
            .force_change = a->force_change,
            .take_over = a->take_over,
            .snapshot = a->snapshot,
            .begins = run_output_begins,
            .event = run_output_event,
            .progress = run_output_progress,
            .stopping = run_output_stopping,
            .tick = run_output_tick,
            .user = output,
            .trace = a->trace,
            .stop = &signals_stop,
            .chosen = reason[0] ? reason : NULL,
        };
        const pl_sim_options options = {.size = sizeof options, .run = &run, .threads = a->threads};
        rc = pl_sim(engine, job, cluster, &options, report);
    }
    pl_cluster_free(cluster);
    pl_job_free(job);
    return rc;
}

static int run_sim(const struct command *command, int argc, char **argv)
{
    struct sim_arguments arguments = {0};
    const char *path = NULL;
    size_t count;
    int end = options_parse(command, argc, argv, &arguments, &path, 1, &count);
    if (end >= 0)
        return end;
    end = resume_options_check(command, arguments.resume, arguments.force_change,
                               arguments.take_over);
    if (end < 0)
        end = job_options_check(command, &arguments.job, count);
    if (end < 0)
        end = run_output_configure(command, &arguments.output, PROGRESS_EVERY_S);
    if (end >= 0)
        return end;
    if (!arguments.cluster) {
        fprintf(stderr, "paceline sim: --cluster FILE is missing; see paceline sim --help\n");
        return EXIT_BAD_INPUT;
    }
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    struct run_output output;
    pl_run_report report;
    run_output_init(&output, arguments.json);
    int rc = load_and_simulate(engine, &arguments, path, &output, &report);
    int code = cli_run_ended(engine, rc, &output, &report);
    pl_engine_destroy(engine);
    return code;
}

const struct command cmd_sim = {
    .name = "sim",
    .summary = "Simulate a job on a virtual cluster",
    .arguments = "JOB|SOLVER --cluster FILE",
    .options = sim_options,
    .run = run_sim,
};
