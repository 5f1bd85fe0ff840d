/* An all-reduce whose parts are tasks: Elastic's interface (Init, Submit, Get), as an engine that
 * schedules tasks would use it.
 *
 *     shared_tasks 127.0.0.1:7000 2 0-7      in one terminal: coordinates a team of two
 *     shared_tasks 127.0.0.1:7000 0 6-11     in another
 *
 * Twelve tasks give a vector each to three rounds. Each process runs the tasks of its range; 6 and
 * 7 run twice, as when an engine considers a task slow, and count once. */
#include "paceline/shared.h"

#include <stdio.h>
#include <stdlib.h>

enum { TASKS = 12, ROUNDS = 3, N = 1000 };

/* The result of a task: the same on any node, and on every repetition. */
static void run_task(uint32_t task, uint64_t round, float *x)
{
    for (size_t i = 0; i < N; i++)
        x[i] = (float)(task * 10 + round + i);
}

static int run_rounds(pl_shared *v, unsigned first, unsigned last)
{
    static float x[ROUNDS][TASKS][N], sum[N]; /* handed in: the library reads them later */
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (unsigned task = first; task <= last; task++) {
            run_task(task, round, x[round][task]);
            int rc = pl_shared_submit(v, round, task, x[round][task]);
            if (rc != PL_OK)
                return rc;
        }
        int rc = pl_shared_get(v, round, sum, -1);
        if (rc != PL_OK)
            return rc;
        printf("round %u: %g ... %g\n", (unsigned)round, (double)sum[0], (double)sum[N - 1]);
    }
    return PL_OK;
}

int main(int argc, char **argv)
{
    pl_engine *engine = NULL;
    pl_team *team = NULL;
    pl_shared *v = NULL;
    unsigned first, last;
    if (argc != 4 || sscanf(argv[3], "%u-%u", &first, &last) != 2 || first > last ||
        last >= TASKS) {
        fprintf(stderr, "usage: shared_tasks HOST:PORT MEMBERS|0 FIRST-LAST (tasks, below %d)\n",
                TASKS);
        return 2;
    }
    const pl_team_options options = {.size = sizeof options,
                                     .rendezvous = argv[1],
                                     .members = (uint32_t)strtoul(argv[2], NULL, 10)};
    char why[256] = "";
    int rc = pl_engine_create(NULL, &engine);
    if (rc == PL_OK)
        rc = pl_team_open(engine, &options, &team);
    if (rc == PL_OK)
        rc = pl_shared_init(team, "sum", N, TASKS, NULL, &v);
    if (rc == PL_OK) {
        rc = run_rounds(v, first, last);
        pl_shared_error(v, why, sizeof why);
    }
    if (rc != PL_OK)
        fprintf(stderr, "shared_tasks: %s\n", v || !engine ? why : pl_engine_error(engine));
    pl_team_close(team);
    pl_engine_destroy(engine);
    return rc == PL_OK ? 0 : 1;
}
