#include "cli/job_options.h"

#include <stdio.h>

enum { ASSIGNMENT_MAX = 4200 };

/* `--lr 0.1`: set the field, and unset those that contradict it. */
static int override_field(pl_job *job, const char *field, const char *value)
{
    char assignment[ASSIGNMENT_MAX];
    if (!value)
        return PL_OK;
    snprintf(assignment, sizeof assignment, "%s=%s", field, value);
    return pl_job_override(job, assignment);
}

static int apply_fields(pl_job *job, const struct job_options *o)
{
    const struct {
        const char *field, *value;
    } fields[] = {
        {"workers", o->workers},   {"stop.epochs", o->epochs}, {"stop.steps", o->steps},
        {"solver.base_lr", o->lr}, {"batch", o->batch},        {"seed", o->seed},
        {"threads", o->threads},   {"kernels", o->kernels},    {"precision", o->precision},
        {"weights", o->weights},
    };
    int rc = PL_OK;
    for (size_t i = 0; rc == PL_OK && i < sizeof fields / sizeof *fields; i++)
        rc = override_field(job, fields[i].field, fields[i].value);
    return rc;
}

static int apply_options(pl_job *job, const struct job_options *o)
{
    int rc = PL_OK;
    for (size_t i = 0; rc == PL_OK && i < o->unset.count; i++)
        rc = pl_job_unset(job, o->unset.at[i]);
    if (rc == PL_OK)
        rc = apply_fields(job, o);
    if (rc == PL_OK && o->strategy) /* after --workers, which replaces `single` */
        rc = pl_job_set_strategy(job, o->strategy);
    if (rc == PL_OK && o->deterministic)
        rc = pl_job_set(job, "deterministic=true");
    if (rc == PL_OK && o->data)
        rc = pl_job_set_train_data(job, o->data);
    if (rc == PL_OK && o->test_data)
        rc = pl_job_set_test_data(job, o->test_data);
    for (size_t i = 0; rc == PL_OK && i < o->set.count; i++)
        rc = pl_job_set(job, o->set.at[i]);
    return rc;
}

int job_options_load(pl_engine *engine, const char *path, const struct job_options *options,
                     pl_job **out)
{
    pl_job *job;
    int rc = options->run ? pl_job_load_directory(engine, options->run, &job)
             : path       ? pl_job_load(engine, path, &job)
                          : pl_job_load_solver(engine, options->solver, &job);
    if (rc != PL_OK)
        return rc;
    rc = apply_options(job, options);
    if (rc == PL_OK)
        *out = job;
    else
        pl_job_free(job);
    return rc;
}

int resume_options_check(const struct command *command, bool resume, bool force_change,
                         bool take_over)
{
    if (resume || (!force_change && !take_over))
        return -1;
    fprintf(
        stderr,
        "paceline %s: %s is for a run that is resumed; give --resume --out DIR, too, or leave it "
        "out\n",
        command->name, force_change ? "--force-change" : "--take-over");
    return EXIT_BAD_INPUT;
}

int job_options_check(const struct command *command, const struct job_options *options,
                      size_t files)
{
    if (options->epochs && options->steps) {
        fprintf(stderr,
                "paceline %s: --epochs and --steps both set the end of the run: give one of them; "
                "to end at the first of both, --epochs %s --set stop.steps=%s\n",
                command->name, options->epochs, options->steps);
        return EXIT_BAD_INPUT;
    }
    if (files + (options->solver != NULL) == (options->run ? 0 : 1))
        return -1;
    fprintf(stderr, "paceline %s: %s; see paceline %s --help\n", command->name,
            files ? "a job file and --solver are one too many" : "a job file is missing",
            command->name);
    return EXIT_BAD_INPUT;
}
