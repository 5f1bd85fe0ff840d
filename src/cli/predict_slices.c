#include "cli/predict_slices.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct process {
    const struct predict_slices *slices;
    pl_engine *engine;
};

/* All but the first are silent; returns the stderr that there was, or -1. One that was started by
 * its user has errors to tell. */
static int silence_output(const struct ranks_place *place)
{
    int kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0)
        return kept;
    dup2(null, STDOUT_FILENO);
    if (!place->given)
        dup2(null, STDERR_FILENO);
    close(null);
    return kept;
}

/* Each process refuses a wrong input for the same reason. The parent kills all others when one
 * ends. Other processes therefore wait before they exit, so that the first can print its reason:
 * longer where many share the cores. A process that has lost another one waits longer, too. */
static void await_others(const struct ranks_place *place, int status)
{
    struct timespec pause = {.tv_sec = status == PL_ERR_PEER ? 3
                                       : place->rank > 0     ? 1 + place->count / 8
                                                             : 0,
                             .tv_nsec = (long)(place->rank % 32) * 30000000};
    nanosleep(&pause, NULL);
}

static int end_failed(const char *command, const pl_engine *engine, const struct ranks_place *place,
                      int status, int kept)
{
    if (place->given)
        return status > 0 ? status : cli_fail(engine, status);
    await_others(place, status);
    if (place->rank > 0 && kept >= 0)
        dup2(kept, STDERR_FILENO);
    if (place->rank > 0)
        fprintf(stderr, "paceline %s: process %u of %u has failed\n", command, place->rank + 1,
                place->count);
    return status > 0 ? status : cli_fail(engine, status);
}

/* The first process coordinates the team, and its end ends the team. So all processes meet here
 * before they exit. */
static void leave_together(pl_team *team)
{
    const pl_call_options call = {.size = sizeof call, .channel = 1};
    float one = 1;
    pl_team_allreduce(team, &one, 1, NULL, &call);
}

/* ---- between hosts ---- */

enum { SAMPLES = 256, SAMPLE_BYTES = 4096, NIBBLES = 16 };

/* FNV-1a. */
static uint64_t mix_bytes(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3;
    return hash;
}

/* Of the file's length and of parts all over it. */
static uint64_t mix_file(uint64_t hash, const char *path)
{
    unsigned char bytes[SAMPLE_BYTES];
    FILE *f = fopen(path, "rb");
    long length = f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : 0;
    hash = mix_bytes(hash, &length, sizeof length);
    for (long i = 0; f && i < SAMPLES; i++)
        if (fseek(f, length / SAMPLES * i, SEEK_SET) == 0)
            hash = mix_bytes(hash, bytes, fread(bytes, 1, sizeof bytes, f));
    if (f)
        fclose(f);
    return hash;
}

/* Numbers are equal if n times the sum of their squares is the square of their sum. */
static bool are_equal(const float *sums, uint32_t count)
{
    bool equal = true;
    for (int i = 0; i < NIBBLES; i++) {
        double sum = (double)sums[i], squares = (double)sums[NIBBLES + i];
        equal = equal && count * squares == sum * sum;
    }
    return equal;
}

/* Commands that differ would wait for each other, or print what no model says. */
static int compare_commands(pl_team *team, const struct predict_slices *slices)
{
    const pl_call_options call = {.size = sizeof call, .channel = 1};
    uint64_t hash = mix_file(0xcbf29ce484222325, slices->weights);
    float sums[2 * NIBBLES];
    for (size_t i = 0; i < slices->options_n; i++) {
        const char *option = slices->options[i] ? slices->options[i] : "";
        hash = mix_bytes(hash, option, strlen(option) + 1);
    }
    for (int i = 0; i < NIBBLES; i++) {
        sums[i] = (float)(hash >> 4 * i & 15);
        sums[NIBBLES + i] = sums[i] * sums[i];
    }
    int rc = pl_team_allreduce(team, sums, 2 * NIBBLES, NULL, &call);
    if (rc != PL_OK) {
        fprintf(stderr, "paceline %s: another process is lost: %s\n", slices->command,
                pl_team_error(team, call.channel));
        return EXIT_FAILED;
    }
    if (pl_team_size(team) == slices->place->count && are_equal(sums, pl_team_size(team)))
        return PL_OK;
    leave_together(team);
    fprintf(stderr,
            "paceline %s: the processes differ: start the same command on each host, with the "
            "same model and another --rank\n",
            slices->command);
    return EXIT_BAD_INPUT;
}

/* `meeting` is the team's engine. It has no log, because the user need not know of its members. */
static int predict_in_team(const struct process *p, pl_engine *meeting,
                           const struct ranks_place *place, int kept)
{
    const struct predict_slices *slices = p->slices;
    pl_team *team;
    int rc = ranks_open(meeting, place, &team);
    if (rc != PL_OK)
        return end_failed(slices->command, meeting, place, rc, kept);
    if (place->given)
        rc = compare_commands(team, slices);
    if (rc != PL_OK)
        return end_failed(slices->command, meeting, place, rc, kept);
    rc = slices->predict(p->engine, team, slices->arg);
    if (rc == PL_OK)
        leave_together(team);
    return rc == PL_OK ? EXIT_DONE : end_failed(slices->command, p->engine, place, rc, kept);
}

/* The process ends without closing the team: a coordinator that lacks memory might not answer. */
static int run_process(const struct ranks_place *place, void *arg)
{
    int kept = place->rank > 0 ? silence_output(place) : -1, code = EXIT_FAILED;
    pl_engine *meeting = NULL;
    if (pl_engine_create(NULL, &meeting) == PL_OK)
        code = predict_in_team(arg, meeting, place, kept);
    else
        fprintf(stderr, "paceline: out of memory\n");
    fflush(NULL);
    _exit(code);
}

int predict_slices_run(pl_engine *engine, uint32_t count, const struct predict_slices *slices)
{
    const struct ranks_place place = {.count = count};
    struct process process = {slices, engine};
    if (slices->place->given)
        return run_process(slices->place, &process);
    return ranks_start(&place, run_process, &process);
}

int predict_slices_find(const char *command, const struct ranks_options *options, size_t *given,
                        struct ranks_place *place)
{
    if ((options->rank || options->rendezvous || options->address) && *given < 2) {
        fprintf(stderr,
                "paceline %s: --rank and --rendezvous are of one of several processes: give "
                "--slices F, their number\n",
                command);
        return EXIT_BAD_INPUT;
    }
    *place = (struct ranks_place){.count = (uint32_t)*given};
    if (*given < 2)
        return -1;
    if (!ranks_find(command, options, (uint32_t)*given, place))
        return EXIT_BAD_INPUT;
    *given = place->given ? place->count : *given;
    return -1;
}

int predict_slices_count(const struct predict_model *model, size_t given, size_t *count)
{
    uint32_t slices = 1;
    int rc = given == 0 && model->job && model->weights[0]
                 ? pl_job_slices_for(model->job, model->weights, &slices)
                 : PL_OK;
    *count = given > 0 ? given : slices;
    return rc;
}

size_t predict_slices_threads(const struct ranks_place *place, size_t count)
{
    size_t cores = pl_cores();
    if (place->given)
        return 0;
    return cores > count ? cores / count : 1;
}
