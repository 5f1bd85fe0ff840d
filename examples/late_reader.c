/* State that outlives its maker: some members make versions of a model, others get the newest one
 * in the background and watch its progress.
 *
 *     late_reader 127.0.0.1:7000 3 make     in one terminal: coordinates a team of three
 *     late_reader 127.0.0.1:7000 0 make     in another: makes the same versions, as replicas do
 *     late_reader 127.0.0.1:7000 0 read     in a third
 *
 * Kill the second with Ctrl-C while the third reads: the third continues from the first. */
#include "paceline/kv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 25 * 1000 * 1000, VERSIONS = 5 };

/* Replicas agree on every bit of a version; a member with other bytes gets PL_ERR_REPLICAS. */
static int make_value(pl_kv *kv)
{
    float *x = malloc(N * sizeof *x);
    int rc = x ? PL_OK : PL_ERR_NOMEM;
    for (uint64_t state = 0; rc == PL_OK && state < VERSIONS; state++) {
        for (size_t i = 0; i < N; i++)
            x[i] = (float)(state + 1) + (float)(i % 1000);
        rc = pl_kv_update(kv, "model", state, x, N * sizeof *x, 60);
        if (rc == PL_OK)
            printf("made version %u\n", (unsigned)state + 1);
    }
    free(x);
    return rc;
}

static int get_value(pl_kv *kv)
{
    const pl_kv_want want = {.size = sizeof want, "model", PL_KV_NEWEST, 1, 60};
    pl_kv_fetch *fetch;
    pl_kv_value *value = NULL;
    uint64_t have, size;
    int rc = pl_kv_begin(kv, &want, &fetch);
    if (rc != PL_OK)
        return rc;
    while ((rc = pl_kv_finish(fetch, 0.05, &value)) == PL_ERR_TIMEOUT) {
        pl_kv_progress(fetch, &have, &size);
        printf("%3u of %3u MB\n", (unsigned)(have / 1000000), (unsigned)(size / 1000000));
    }
    pl_kv_end(fetch);
    if (rc == PL_OK) {
        const float *x = pl_kv_data(value);
        printf("version %u: %zu floats, %g ... %g\n", (unsigned)pl_kv_version(value),
               pl_kv_size(value) / sizeof *x, (double)x[0], (double)x[N - 1]);
    }
    pl_kv_free(value);
    return rc;
}

int main(int argc, char **argv)
{
    pl_engine *engine = NULL;
    pl_team *team = NULL;
    pl_kv *kv = NULL;
    int makes = argc == 4 && strcmp(argv[3], "make") == 0;
    if (argc != 4 || (!makes && strcmp(argv[3], "read") != 0)) {
        fprintf(stderr, "usage: late_reader HOST:PORT MEMBERS|0 make|read\n");
        return 2;
    }
    const pl_team_options options = {.size = sizeof options,
                                     .rendezvous = argv[1],
                                     .members = (uint32_t)strtoul(argv[2], NULL, 10)};
    float nothing = 0;
    char why[256] = "";
    int rc = pl_engine_create(NULL, &engine);
    if (rc == PL_OK)
        rc = pl_team_open(engine, &options, &team);
    if (rc == PL_OK)
        rc = pl_kv_open(team, &kv);
    if (rc == PL_OK) {
        rc = makes ? make_value(kv) : get_value(kv);
        pl_kv_error(kv, why, sizeof why);
        /* No member leaves before all are done; a member that is lost meanwhile is reported
         * once. */
        while (pl_team_allreduce(team, &nothing, 1, NULL, NULL) == PL_ERR_PEER &&
               pl_team_size(team) > 1)
            ;
    }
    if (rc != PL_OK)
        fprintf(stderr, "late_reader: %s\n", kv || !engine ? why : pl_engine_error(engine));
    pl_team_close(team);
    pl_engine_destroy(engine);
    return rc == PL_OK ? 0 : 1;
}
