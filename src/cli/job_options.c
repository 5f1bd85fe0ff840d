#include "cli/job_options.h"

#include <stdio.h>

static int set_field(pl_job *job, const char *field, const char *value)
{
    char assignment[4200];
    if (!value)
        return PL_OK;
    snprintf(assignment, sizeof assignment, "%s=%s", field, value);
    return pl_job_set(job, assignment);
}

static int apply(pl_job *job, const struct job_options *o)
{
    int rc = o->strategy ? pl_job_set_strategy(job, o->strategy) : PL_OK;
    if (rc == PL_OK)
        rc = set_field(job, "workers", o->workers);
    if (rc == PL_OK)
        rc = set_field(job, "seed", o->seed);
    if (rc == PL_OK)
        rc = set_field(job, "threads", o->threads);
    if (rc == PL_OK)
        rc = set_field(job, "kernels", o->kernels);
    if (rc == PL_OK)
        rc = set_field(job, "precision", o->precision);
    if (rc == PL_OK && o->deterministic)
        rc = pl_job_set(job, "deterministic=true");
    if (rc == PL_OK)
        rc = set_field(job, "weights", o->weights);
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
    int rc =
        path ? pl_job_load(engine, path, &job) : pl_job_load_solver(engine, options->solver, &job);
    if (rc != PL_OK)
        return rc;
    rc = apply(job, options);
    if (rc == PL_OK)
        *out = job;
    else
        pl_job_free(job);
    return rc;
}

int job_options_check(const struct command *command, const struct job_options *options,
                      size_t files)
{
    if (files + (options->solver != NULL) == 1)
        return -1;
    fprintf(stderr, "paceline %s: %s; see paceline %s --help\n", command->name,
            files ? "a job file and --solver are one too many" : "a job file is missing",
            command->name);
    return EXIT_BAD_INPUT;
}
