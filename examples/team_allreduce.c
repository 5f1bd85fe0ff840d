/* The sum of a vector over processes: each has its own, all end with the sum.
 *
 *     team_allreduce 127.0.0.1:7000 3      in one terminal: coordinates a team of three
 *     team_allreduce 127.0.0.1:7000 0      in two others
 *
 * It does not matter who is first. Beyond one host, give the coordinator's address, and see
 * `listen` and `key` of pl_team_options. */
#include "paceline/team.h"

#include <stdio.h>
#include <stdlib.h>

enum { N = 1000000 };

/* This member's vector. Ranks are 0, 1, ... in no order that can be relied on. */
static void fill_vector(const pl_team *team, float *x)
{
    for (size_t i = 0; i < N; i++)
        x[i] = (float)(pl_team_rank(team) + 1 + i % 1000);
}

static int sum_vectors(pl_team *team)
{
    float *x = malloc(N * sizeof *x);
    if (!x)
        return PL_ERR_NOMEM;
    fill_vector(team, x);
    /* The sum, since no other reduction is given; without options the library chooses the
     * algorithm. All members make the same call. PL_ERR_PEER would mean that one was lost, and x is
     * undefined; the next call would run on the remaining members. */
    int rc = pl_team_allreduce(team, x, N, NULL, NULL);
    if (rc == PL_OK)
        printf("rank %u of %u: %g ... %g, by %s\n", pl_team_rank(team), pl_team_size(team),
               (double)x[0], (double)x[N - 1], pl_team_algorithm(team, 0));
    else
        fprintf(stderr, "team_allreduce: %s\n", pl_team_error(team, 0));
    free(x);
    return rc;
}

/* A member that closes a team may interrupt a call of the others. So the last call is one whose
 * result no member needs: when it returns, the earlier calls are over everywhere. */
static void finish_team(pl_team *team)
{
    float nothing = 0;
    pl_team_allreduce(team, &nothing, 1, NULL, NULL);
    pl_team_close(team);
}

int main(int argc, char **argv)
{
    pl_engine *engine;
    pl_team *team;
    if (argc != 3) {
        fprintf(stderr, "usage: team_allreduce HOST:PORT MEMBERS|0\n");
        return 2;
    }
    const pl_team_options options = {
        .size = sizeof options,
        .rendezvous = argv[1],
        .members = (uint32_t)strtoul(argv[2], NULL, 10), /* 0: another process coordinates */
    };
    if (pl_engine_create(NULL, &engine) != PL_OK)
        return 1;
    int rc = pl_team_open(engine, &options, &team); /* waits until all are connected */
    if (rc == PL_OK) {
        rc = sum_vectors(team);
        finish_team(team);
    } else {
        fprintf(stderr, "team_allreduce: %s\n", pl_engine_error(engine));
    }
    pl_engine_destroy(engine);
    return rc == PL_OK ? 0 : rc == PL_ERR_INPUT ? 2 : 1;
}
