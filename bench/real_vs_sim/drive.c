/* The driver of a run whose workers are on other hosts: real_vs_sim.py starts it on one of its own.
 *
 *     drive JOB DIRECTORY TRACE ADDRESS READY [FIELD=VALUE | STRATEGY]...
 *
 * It listens at ADDRESS (host:port), then makes the file READY, and waits for the job's workers. */
#include "paceline/key.h"
#include "paceline/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_log(void *user, pl_log_level level, const char *line)
{
    (void)user;
    if (level >= PL_LOG_WARN)
        fprintf(stderr, "driver: %s\n", line);
}

/* The driver listens by now. */
static int workers_may_come(void *user, uint32_t count, const char *address)
{
    (void)count;
    (void)address;
    FILE *ready = fopen(user, "w");
    return ready && fclose(ready) == 0 ? 0 : -1;
}

static int load_job(pl_engine *engine, const char *path, char **set, pl_job **job)
{
    int rc = pl_job_load(engine, path, job);
    for (; rc == PL_OK && *set; set++)
        rc = strchr(*set, '=') ? pl_job_set(*job, *set) : pl_job_set_strategy(*job, *set);
    return rc;
}

int main(int argc, char **argv)
{
    pl_engine *engine = NULL;
    pl_job *job = NULL;
    pl_run_report report;
    if (argc < 6) {
        fprintf(stderr, "usage: drive JOB DIRECTORY TRACE ADDRESS READY "
                        "[FIELD=VALUE | STRATEGY]...\n");
        return 2;
    }
    char key[PL_KEY_TEXT_SIZE];
    const pl_run_options options = {
        .size = sizeof options,
        .out = argv[2],
        .trace = argv[3],
        .listen = argv[4],
        .key = key,
        .start_workers = workers_may_come,
        .user = argv[5],
    };
    if (pl_engine_create(&(pl_engine_options){.size = sizeof(pl_engine_options),
                                              .log = print_log,
                                              .log_level = PL_LOG_WARN},
                         &engine) != PL_OK)
        return 1;
    int rc = pl_key_read(engine, getenv("PACELINE_KEY_FILE"), key);
    if (rc == PL_OK)
        rc = load_job(engine, argv[1], argv + 6, &job);
    if (rc == PL_OK)
        rc = pl_run(engine, job, &options, &report);
    if (rc != PL_OK)
        fprintf(stderr, "driver: %s\n", pl_engine_error(engine));
    pl_job_free(job);
    pl_engine_destroy(engine);
    return rc == PL_OK ? 0 : 1;
}
