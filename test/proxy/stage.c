/* A driver that starts no workers, for tests and measurements that start theirs one by one, some
 * behind a proxy or in a network of their own.
 *
 *   paceline_stage [--key FILE] JOB OUT LISTEN [ASSIGNMENT…]    assignments as of `train --set`
 *
 * Prints the address that workers are to join; ends with 0 when the run has ended well. SIGINT ends
 * it at its next commit point. Beyond loopback it needs a key, and workers there receive files that
 * they cannot read. */
#include "paceline/key.h"
#include "paceline/run.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static pl_flag stop;

static void on_signal(int number)
{
    (void)number;
    pl_flag_set(&stop, 1);
}

static void log_line(void *user, pl_log_level level, const char *line)
{
    (void)user;
    (void)level;
    fprintf(stderr, "%s\n", line);
}

static int print_address(void *user, uint32_t count, const char *address)
{
    (void)user;
    (void)count;
    puts(address);
    return 0;
}

static void print_where(void *user, const char *address)
{
    print_address(user, 0, address);
}

static int drive_stage(pl_engine *engine, const char *key_file, int argc, char **argv)
{
    char key[PL_KEY_TEXT_SIZE];
    pl_job *job = NULL;
    pl_run_report report;
    bool near = strncmp(argv[3], "127.", 4) == 0;
    const pl_run_options options = {
        .size = sizeof options,
        .out = argv[2],
        .stop = &stop,
        .start_workers = near ? print_address : NULL,
        .listens = near ? NULL : print_where,
        .listen = argv[3],
        .key = key_file ? key : NULL,
    };
    int rc = key_file ? pl_key_read(engine, key_file, key) : PL_OK;
    if (rc == PL_OK)
        rc = pl_job_load(engine, argv[1], &job);
    for (int i = 4; rc == PL_OK && i < argc; i++)
        rc = pl_job_set(job, argv[i]);
    if (rc == PL_OK)
        rc = pl_run(engine, job, &options, &report);
    if (rc != PL_OK)
        fprintf(stderr, "paceline_stage: %s\n", pl_engine_error(engine));
    pl_job_free(job);
    return rc;
}

int main(int argc, char **argv)
{
    const pl_engine_options options = {
        .size = sizeof options, .log = log_line, .log_level = PL_LOG_INFO};
    pl_engine *engine;
    const char *key_file = NULL;
    if (argc > 2 && strcmp(argv[1], "--key") == 0) {
        key_file = argv[2];
        argc -= 2;
        argv += 2;
    }
    if (argc < 4) {
        fprintf(stderr, "usage: paceline_stage [--key FILE] JOB OUT LISTEN [ASSIGNMENT...]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGINT, on_signal);
    if (pl_engine_create(&options, &engine) != PL_OK)
        return 1;
    int rc = drive_stage(engine, key_file, argc, argv);
    pl_engine_destroy(engine);
    return rc == PL_OK ? 0 : 1;
}
