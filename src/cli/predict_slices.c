#include "cli/predict_slices.h"

#include "cli/output.h"
#include "cli/ranks.h"

#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

struct slices {
    int (*predict)(pl_engine *engine, pl_team *team, const void *arg);
    const void *arg;
};

/* All but the first are silent; returns the stderr that there was, or -1. */
static int silence_output(void)
{
    int kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0)
        return kept;
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    close(null);
    return kept;
}

/* All processes refuse the same input alike, and the first one says why: the end of a process ends
 * the others, so they give it time. A process that has lost another gives that one time. */
static void await_others(const struct ranks_place *place, int status)
{
    struct timespec pause = {.tv_sec = status == PL_ERR_PEER ? 3
                                       : place->rank > 0     ? 1
                                                             : 0,
                             .tv_nsec = (long)(place->rank % 32) * 30000000};
    nanosleep(&pause, NULL);
}

static int end_failed(const pl_engine *engine, const struct ranks_place *place, int status,
                      int kept)
{
    await_others(place, status);
    if (place->rank > 0 && kept >= 0)
        dup2(kept, STDERR_FILENO);
    if (place->rank > 0)
        fprintf(stderr, "paceline predict: process %u of %u has failed\n", place->rank + 1,
                place->count);
    return status > 0 ? status : cli_fail(engine, status);
}

/* The end of the coordinator, which the first one is, ends the team: it waits for all. */
static void leave_together(pl_team *team)
{
    const pl_call_options call = {.size = sizeof call, .channel = 1};
    float one = 1;
    pl_team_allreduce(team, &one, 1, NULL, &call);
}

/* `meeting` is the team's: its members are no news. */
static int predict_in_team(pl_engine *engine, pl_engine *meeting, const struct ranks_place *place,
                           const struct slices *slices, int kept)
{
    pl_team *team = NULL;
    int rc = ranks_open(meeting, place, &team);
    if (rc != PL_OK)
        return end_failed(meeting, place, rc, kept);
    rc = slices->predict(engine, team, slices->arg);
    if (rc == PL_OK)
        leave_together(team);
    int code = rc == PL_OK ? EXIT_DONE : end_failed(engine, place, rc, kept);
    pl_team_close(team);
    return code;
}

static int run_process(const struct ranks_place *place, void *arg)
{
    const pl_engine_options quiet = {
        .size = sizeof quiet, .log = output_log, .log_level = PL_LOG_WARN};
    int kept = place->rank > 0 ? silence_output() : -1, code = EXIT_FAILED;
    pl_engine *engine = cli_engine(), *meeting = NULL;
    if (engine && pl_engine_create(&quiet, &meeting) == PL_OK)
        code = predict_in_team(engine, meeting, place, arg, kept);
    pl_engine_destroy(meeting);
    pl_engine_destroy(engine);
    return code;
}

int predict_slices_run(uint32_t slices,
                       int (*predict)(pl_engine *engine, pl_team *team, const void *arg),
                       const void *arg)
{
    const struct ranks_place place = {.count = slices};
    struct slices what = {predict, arg};
    return ranks_start(&place, run_process, &what);
}

size_t predict_slices_threads(uint32_t slices)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > (long)slices ? (size_t)cores / slices : 1;
}
