/* `paceline bench wire`: the rate and latency of the network between two ranks, and a core's time
 * for a byte. */
#include "cli/bench.h"
#include "cli/ranks.h"
#include "paceline/bench.h"

#include <stdio.h>
#include <stdlib.h>

enum { PINGS = 1000, PINGS_FIRST = 100, STREAM_FLOATS = 8 * 1024 * 1024, STREAMS = 8, PAIR = 2 };
enum { STRIPES_MAX = 16 }; /* paceline/team.h */

struct arguments {
    const char *spin, *stripes;
    bool no_shm, ucx, json;
    struct ranks_options place;
};

static const struct option options[] = {
    RANKS_OPTIONS(struct arguments),
    {"spin", OPTION_TEXT, "US",
     "microseconds that a wait looks before it sleeps (0; short vectors 30)",
     offsetof(struct arguments, spin)},
    {"stripes", OPTION_TEXT, "S", "connections to the peer (1)",
     offsetof(struct arguments, stripes)},
    {"no-shm", OPTION_FLAG, NULL, "a connection also to a rank of this host",
     offsetof(struct arguments, no_shm)},
    {"ucx", OPTION_FLAG, NULL, "bytes by UCX, if built with it", offsetof(struct arguments, ucx)},
    {"json", OPTION_FLAG, NULL, "print one JSON object", offsetof(struct arguments, json)},
    {0},
};

struct bench {
    bool json;
    pl_call_options call;
    double latency_us, mbytes_per_s;
};

/* Send a float and receive one: the latency is half of the time. */
static int measure_latency(pl_team *team, struct bench *b)
{
    static double seconds[PINGS];
    float x = 1;
    for (int i = -PINGS_FIRST; i < PINGS; i++) {
        double start = bench_now();
        int rc = pl_team_broadcast(team, 0, &x, 1, &b->call);
        if (rc == PL_OK)
            rc = pl_team_broadcast(team, 1, &x, 1, &b->call);
        if (rc != PL_OK)
            return rc;
        if (i >= 0)
            seconds[i] = bench_now() - start;
    }
    bench_sort(seconds, PINGS);
    b->latency_us = bench_quantile(seconds, PINGS, 0.5) * 1e6 / 2;
    return PL_OK;
}

/* From rank 0 to rank 1, until rank 1 has confirmed the last byte. */
static int measure_stream(pl_team *team, struct bench *b)
{
    double seconds[STREAMS];
    float *x = calloc(STREAM_FLOATS, sizeof *x);
    int rc = x ? PL_OK : PL_ERR_NOMEM;
    for (int i = -1; rc == PL_OK && i < STREAMS; i++) {
        float there = 1;
        double start = bench_now();
        rc = pl_team_broadcast(team, 0, x, STREAM_FLOATS, &b->call);
        if (rc == PL_OK)
            rc = pl_team_broadcast(team, 1, &there, 1, &b->call);
        if (i >= 0)
            seconds[i] = bench_now() - start;
    }
    free(x);
    if (rc != PL_OK)
        return rc;
    bench_sort(seconds, STREAMS);
    b->mbytes_per_s = STREAM_FLOATS * sizeof(float) * 1e-6 / bench_quantile(seconds, STREAMS, 0.5);
    return PL_OK;
}

static void print_report(const struct bench *b, const pl_bench_bytes_report *r)
{
    if (b->json) {
        printf("{\"latency_us\":%.2f,\"stream_mbytes_per_s\":%.1f,\"copy_ns_per_byte\":%.4f,"
               "\"reduce_ns_per_byte\":%.4f,\"bf16_encode_ns_per_byte\":%.4f,"
               "\"bf16_decode_ns_per_byte\":%.4f,\"int8_encode_ns_per_byte\":%.4f,"
               "\"int8_decode_ns_per_byte\":%.4f}\n",
               b->latency_us, b->mbytes_per_s, r->copy, r->sum, r->bf16_encode, r->bf16_decode,
               r->int8_encode, r->int8_decode);
        return;
    }
    printf("latency   %.2f us one way, a float in a collective of its own\n", b->latency_us);
    printf("stream    %.1f MB/s, one way\n", b->mbytes_per_s);
    printf("a byte    costs a core %.3f ns to copy, %.3f to add to a sum,\n", r->copy, r->sum);
    printf("          %.3f / %.3f as bf16 and %.3f / %.3f as int8 (to encode / decode)\n",
           r->bf16_encode, r->bf16_decode, r->int8_encode, r->int8_decode);
}

static int run_rank(const struct ranks_place *place, void *arg)
{
    struct bench *b = arg;
    pl_team *team = NULL;
    pl_bench_bytes_report bytes;
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    int rc = place->rank == 0 ? pl_bench_bytes(engine, &bytes) : PL_OK;
    if (rc == PL_OK)
        rc = ranks_open(engine, place, &team);
    int code = rc == PL_OK ? EXIT_DONE : cli_fail(engine, rc);
    if (rc == PL_OK) {
        rc = measure_latency(team, b);
        if (rc == PL_OK)
            rc = measure_stream(team, b);
        if (rc != PL_OK) {
            fprintf(stderr, "paceline bench wire: %s\n", pl_team_error(team, 0));
            code = EXIT_FAILED;
        }
    }
    if (code == EXIT_DONE) { /* a rank that leaves would interrupt the other's call */
        float nothing = 0;
        pl_team_allreduce(team, &nothing, 1, NULL, NULL);
    }
    if (code == EXIT_DONE && place->rank == 0)
        print_report(b, &bytes);
    pl_team_close(team);
    pl_engine_destroy(engine);
    return code;
}

static int run_bench(const struct command *command, int argc, char **argv)
{
    struct arguments arguments = {0};
    struct ranks_place place;
    size_t count;
    int end = options_parse(command, argc, argv, &arguments, NULL, 0, &count);
    if (end >= 0)
        return end;
    struct bench bench = {
        .json = arguments.json,
        .call = {.size = sizeof(pl_call_options), .stripes = bench_number(arguments.stripes, 0)},
    };
    if (arguments.stripes && (bench.call.stripes == 0 || bench.call.stripes > STRIPES_MAX))
        return bench_refuse("wire", "stripes", arguments.stripes, "a number from 1 to 16");
    if (arguments.spin && !bench_real(arguments.spin, &bench.call.spin_us))
        return bench_refuse("wire", "spin", arguments.spin, "a number of microseconds");
    const struct ranks_options *at = &arguments.place;
    bool between_hosts = at->rank || at->rendezvous || at->address;
    if (!ranks_find("bench wire", at, between_hosts ? PAIR : 0, &place))
        return EXIT_BAD_INPUT;
    if (place.given && place.count != PAIR) {
        fprintf(stderr, "paceline bench wire: measures between 2 ranks, not %u\n", place.count);
        return EXIT_BAD_INPUT;
    }
    place.count = PAIR;
    place.no_shm = arguments.no_shm;
    place.ucx = arguments.ucx;
    place.stripes = bench.call.stripes;
    return place.given ? run_rank(&place, &bench) : ranks_start(&place, run_rank, &bench);
}

const struct command bench_wire = {
    .name = "bench wire",
    .summary = "Measure the link between two ranks, and a core's time for a byte",
    .arguments = "[--rank 0|1 --rendezvous HOST]",
    .options = options,
    .run = run_bench,
};
