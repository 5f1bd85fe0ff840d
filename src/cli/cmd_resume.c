/* `paceline resume`: continues with a run, by the job that is in its directory. */
#include "cli/key_option.h"
#include "cli/number.h"
#include "cli/page_view.h"

#include <stdio.h>

static const struct option resume_options[] = {
    JOB_CHANGE_OPTIONS(struct run_arguments),
    JOB_RUN_OPTIONS(struct run_arguments),
    OUTPUT_OPTIONS(struct run_arguments),
    RESUME_OPTIONS,
    RUN_OPTION("listen", OPTION_TEXT, "ADDR",
               "for workers started by hand, as with paceline driver: HOST[:PORT]", listen),
    RUN_OPTION("insecure", OPTION_FLAG, NULL, INSECURE_HELP, insecure),
    RUN_OPTION("key", OPTION_TEXT, "FILE", KEY_OPTION_HELP, key_file),
    RUN_OPTION("wait", OPTION_TEXT, "SECONDS",
               "how long to wait for workers while none arrives (patience_seconds)", wait),
    RUN_OPTION("max-mbit", OPTION_TEXT, "N",
               "with --listen: send no more than N Mbit/s, and be sent no more", max_mbit),
    RUN_OPTION("workers-file", OPTION_TEXT, "FILE",
               "its number is how many workers there are to be: may change", workers_file),
    CACHE_OPTION,
    PAGE_OPTIONS,
    RUN_OPTION("trace", OPTION_TEXT, "FILE",
               "write where each node's time went, for ui.perfetto.dev", trace),
    RUN_OPTION("json", OPTION_FLAG, NULL, "print the result as one JSON object on stdout", json),
    {0},
};

int run_arguments_check(const struct command *command, struct run_arguments *arguments,
                        size_t files)
{
    int end = resume_options_check(command, arguments->resume, arguments->force_change,
                                   arguments->take_over);
    if (end >= 0)
        return end;
    if (arguments->resume && files == 0 && !arguments->job.solver) {
        if (!arguments->out) {
            fprintf(stderr,
                    "paceline %s: --resume: which run? Give its directory by --out DIR, or write "
                    "paceline resume DIR\n",
                    command->name);
            return EXIT_BAD_INPUT;
        }
        arguments->job.run = arguments->out;
    }
    end = job_options_check(command, &arguments->job, files);
    return end >= 0 ? end : run_output_configure(command, &arguments->output, PROGRESS_EVERY_S);
}

static int run_resume(const struct command *command, int argc, char **argv)
{
    struct run_arguments arguments = {.resume = true};
    size_t count;
    int end = options_parse(command, argc, argv, &arguments, &arguments.out, 1, &count);
    if (end >= 0)
        return end;
    if (count == 0) {
        fprintf(stderr, "paceline resume: which run? Give its directory, as runs/NAME-001; see "
                        "paceline resume --help\n");
        return EXIT_BAD_INPUT;
    }
    arguments.job.run = arguments.out;
    end = run_arguments_check(command, &arguments, 0);
    if (end < 0 && arguments.listen && arguments.cache) {
        fprintf(stderr, "paceline resume: --cache is for workers that this command starts; give it "
                        "to each paceline worker, or omit --listen\n");
        return EXIT_BAD_INPUT;
    }
    if (end < 0 && arguments.listen)
        return page_view_run(command, &arguments, NULL, true);
    if (end < 0)
        end = number_option(command, "wait", arguments.wait, 0.001, 1e9, &arguments.wait_s);
    if (end < 0 && arguments.max_mbit) {
        fprintf(stderr, "paceline resume: --max-mbit limits traffic to workers elsewhere; give "
                        "--listen ADDR, too, or omit it\n");
        return EXIT_BAD_INPUT;
    }
    return end >= 0 ? end : page_view_run(command, &arguments, NULL, false);
}

const struct command cmd_resume = {
    .name = "resume",
    .summary = "Resume a run that was stopped, or was killed",
    .arguments = "RUN_DIR",
    .options = resume_options,
    .run = run_resume,
};
