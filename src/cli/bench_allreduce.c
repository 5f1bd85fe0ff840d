/* `paceline bench allreduce`: how fast the ranks reduce a vector between them. Every repetition has
 * new numbers and is checked; a repetition's time is that of its slowest rank, from a moment at
 * which all were ready. */
#define _GNU_SOURCE
#include "cli/bench.h"
#include "cli/ranks.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { RANKS_DEFAULT = 4, RANKS_MAX = 1024, REPS_MAX = 10000, SIZES_MAX = 16 };
enum { CHUNK_KB_MAX = 4096, STRIPES_MAX = 16 }; /* paceline/team.h */

#define ALGORITHMS "auto, tree, butterfly, ring, chunked_ring, halving_doubling, scatter_gather"
#define WIRES      "f32, bf16, int8"

/* Of a frame of 1,514 bytes, TCP over IPv4 with time stamps carries 1,448. */
#define TCP_PART (1448.0 / 1514.0)

struct arguments {
    const char *ranks, *floats, *algorithm, *wire, *chunk_kb, *stripes, *reps, *warmup, *spin;
    const char *link_mbit;
    bool broadcast, each, no_shm, ucx, json;
    struct ranks_options place;
};

static const struct option options[] = {
    {"ranks", OPTION_TEXT, "N", "how many (4)", offsetof(struct arguments, ranks)},
    RANKS_OPTIONS(struct arguments),
    {"floats", OPTION_TEXT, "A,B", "lengths of vectors (1e3,1e5,1e7)",
     offsetof(struct arguments, floats)},
    {"algorithm", OPTION_TEXT, "NAME", "one of " ALGORITHMS, offsetof(struct arguments, algorithm)},
    {"wire", OPTION_TEXT, "KIND", "how numbers travel: one of " WIRES,
     offsetof(struct arguments, wire)},
    {"chunk-kb", OPTION_TEXT, "KB", "pieces that vectors travel in (256)",
     offsetof(struct arguments, chunk_kb)},
    {"stripes", OPTION_TEXT, "S", "connections to each peer (auto: 1, or 4 if faster)",
     offsetof(struct arguments, stripes)},
    {"reps", OPTION_TEXT, "R", "timed repetitions (20)", offsetof(struct arguments, reps)},
    {"warmup", OPTION_TEXT, "W", "repetitions before those (3)",
     offsetof(struct arguments, warmup)},
    {"spin", OPTION_TEXT, "US",
     "microseconds that a wait looks before it sleeps (0; short vectors 30)",
     offsetof(struct arguments, spin)},
    {"link-mbit", OPTION_TEXT, "M", "the rate of each rank's link, for link_percent",
     offsetof(struct arguments, link_mbit)},
    {"broadcast", OPTION_FLAG, NULL, "with a broadcast of as many floats at the same time",
     offsetof(struct arguments, broadcast)},
    {"each", OPTION_FLAG, NULL, "print each repetition, too", offsetof(struct arguments, each)},
    {"no-shm", OPTION_FLAG, NULL, "connections also between ranks of one host",
     offsetof(struct arguments, no_shm)},
    {"ucx", OPTION_FLAG, NULL, "bytes by UCX, if built with it", offsetof(struct arguments, ucx)},
    {"json", OPTION_FLAG, NULL, "print a JSON object for each length",
     offsetof(struct arguments, json)},
    {0},
};

struct bench {
    const struct arguments *arguments;
    size_t floats[SIZES_MAX], sizes;
    uint32_t reps, warmup;
    double link_mbit; /* 0: not known */
    pl_call_options call;
    pl_team *team;
    bool prints;
    uint32_t rank, ranks;
    float *x, *y;            /* y: the vector that is broadcast meanwhile */
    double *seconds;         /* one a repetition */
    const char **algorithms; /* the algorithm of each call */
    double cpu_s;            /* of all timed ones */
};

struct result {
    double median_ms, p90_ms, bus_gbps, link_percent, cpu_percent;
};

/* ---- one rank ---- */

/* Small whole numbers, whose sum is exact in any order. */
static float input_value(uint32_t rank, uint32_t rep, size_t i)
{
    return (float)((i * 7 + rank * 13u + rep * 31u) & 255) - 127.0f;
}

static void fill_vector(const struct bench *b, uint32_t rep, size_t n)
{
    for (size_t i = 0; i < n; i++)
        b->x[i] = input_value(b->rank, rep, i);
    for (size_t i = 0; b->y && i < n; i++)
        b->y[i] = b->rank == 0 ? input_value(0, rep, i) : 0;
}

/* A lossy wire may be off by its step, once a rank. */
static bool check_result(const struct bench *b, uint32_t rep, size_t n)
{
    bool lossy = b->call.wire && strcmp(b->call.wire, "f32") != 0;
    float most = lossy ? 2.0f * (float)(b->ranks * b->ranks) : 0.0f;
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        for (uint32_t r = 0; r < b->ranks; r++)
            sum += input_value(r, rep, i);
        if (!(fabsf(b->x[i] - sum) <= most)) {
            fprintf(stderr, "rank %u: float %zu of %zu is %g and should be %g\n", b->rank, i, n,
                    (double)b->x[i], (double)sum);
            return false;
        }
    }
    return true;
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static int wait_for_all(struct bench *b)
{
    float one = 1;
    pl_call_options quick = {.size = sizeof quick, .channel = 1, .spin_us = b->call.spin_us};
    return pl_team_allreduce(b->team, &one, 1, NULL, &quick);
}

/* ---- a broadcast at the same time ---- */

struct load {
    struct bench *b;
    size_t n;
    int rc;
};

static void *broadcast_task(void *arg)
{
    struct load *extra = arg;
    struct bench *b = extra->b;
    const pl_call_options call = {.size = sizeof call, .channel = 2, .stripes = b->call.stripes};
    extra->rc = pl_team_broadcast(b->team, 0, b->y, extra->n, &call);
    return NULL;
}

static bool check_broadcast(const struct bench *b, uint32_t rep, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (b->y[i] != input_value(0, rep, i)) {
            fprintf(stderr, "rank %u: float %zu of %zu was broadcast as %g\n", b->rank, i, n,
                    (double)b->y[i]);
            return false;
        }
    return true;
}

/* The all-reduce and, if asked for, a broadcast on another channel, until both are over. */
static int run_once(struct bench *b, size_t n)
{
    struct load extra = {b, n, PL_OK};
    pthread_t thread;
    bool both = b->arguments->broadcast;
    if (both && pthread_create(&thread, NULL, broadcast_task, &extra) != 0)
        return PL_ERR_NOMEM;
    int rc = pl_team_allreduce(b->team, b->x, n, NULL, &b->call);
    if (both)
        pthread_join(thread, NULL);
    return rc == PL_OK ? extra.rc : rc;
}

static int repeat_size(struct bench *b, size_t n)
{
    for (uint32_t rep = 0; rep < b->warmup + b->reps; rep++) {
        fill_vector(b, rep, n);
        int rc = wait_for_all(b);
        double cpu = cpu_seconds(), start = bench_now();
        if (rc == PL_OK)
            rc = run_once(b, n);
        double seconds = bench_now() - start;
        cpu = cpu_seconds() - cpu;
        if (rc != PL_OK)
            return rc;
        if (!check_result(b, rep, n) || (b->y && !check_broadcast(b, rep, n)))
            return PL_ERR_BUG;
        if (rep >= b->warmup) {
            b->seconds[rep - b->warmup] = seconds;
            b->algorithms[rep - b->warmup] = pl_team_algorithm(b->team, 0);
            b->cpu_s += cpu;
        }
    }
    return PL_OK;
}

/* The slowest rank's figures, on all. */
static int take_slowest(struct bench *b, double *values, size_t n)
{
    const pl_reduction max = {.size = sizeof max, .op = PL_MAX};
    const pl_call_options extra = {.size = sizeof extra, .channel = 1};
    for (size_t i = 0; i < n; i++)
        b->x[i] = (float)values[i];
    int rc = pl_team_allreduce(b->team, b->x, n, &max, &extra);
    for (size_t i = 0; rc == PL_OK && i < n; i++)
        values[i] = (double)b->x[i];
    return rc;
}

static int measure_size(struct bench *b, size_t n, struct result *r)
{
    b->cpu_s = 0;
    int rc = repeat_size(b, n);
    double sum = 0;
    for (uint32_t i = 0; i < b->reps; i++)
        sum += b->seconds[i];
    double cpu_percent = 100 * b->cpu_s / sum;
    if (rc == PL_OK)
        rc = take_slowest(b, b->seconds, b->reps);
    if (rc == PL_OK)
        rc = take_slowest(b, &cpu_percent, 1);
    if (rc != PL_OK)
        return rc;
    for (uint32_t i = 0; b->prints && b->arguments->each && i < b->reps; i++)
        printf("%u %.3f ms %s\n", i, b->seconds[i] * 1e3, b->algorithms[i]);
    bench_sort(b->seconds, b->reps);
    double median = bench_quantile(b->seconds, b->reps, 0.5);
    double carried = 2.0 * (b->ranks - 1) / b->ranks * (double)n * sizeof(float) * 8;
    *r = (struct result){
        .median_ms = median * 1e3,
        .p90_ms = bench_quantile(b->seconds, b->reps, 0.9) * 1e3,
        .bus_gbps = carried / median * 1e-9,
        .cpu_percent = cpu_percent,
    };
    if (b->link_mbit > 0)
        r->link_percent = 100 * r->bus_gbps * 1e3 / (b->link_mbit * TCP_PART);
    return PL_OK;
}

static void print_result(const struct bench *b, size_t n, const struct result *r)
{
    const char *algorithm = pl_team_algorithm(b->team, 0);
    char percent[32] = "null";
    if (b->link_mbit > 0)
        snprintf(percent, sizeof percent, "%.1f", r->link_percent);
    if (b->arguments->json)
        printf("{\"floats\":%zu,\"median_ms\":%.4f,\"p90_ms\":%.4f,\"bus_gbps\":%.4g,"
               "\"link_percent\":%s,\"cpu_percent\":%.2f,\"algorithm\":\"%s\"}\n",
               n, r->median_ms, r->p90_ms, r->bus_gbps, percent, r->cpu_percent, algorithm);
    else
        printf(
            "%10zu floats  %9.3f ms median (%.3f p90), %.3f Gbit/s on the bus, %s %% of the link, "
            "%.1f %% of a core, %s\n",
            n, r->median_ms, r->p90_ms, r->bus_gbps, b->link_mbit > 0 ? percent : "?",
            r->cpu_percent, algorithm);
    fflush(stdout);
}

static int measure_all(struct bench *b)
{
    for (size_t i = 0; i < b->sizes; i++) {
        struct result result;
        int rc = measure_size(b, b->floats[i], &result);
        if (rc != PL_OK) {
            fprintf(stderr, "paceline bench allreduce: rank %u: %s\n", b->rank,
                    pl_team_error(b->team, 0));
            return EXIT_FAILED;
        }
        if (b->prints)
            print_result(b, b->floats[i], &result);
    }
    return EXIT_DONE;
}

static size_t longest_size(const struct bench *b)
{
    size_t n = b->reps;
    for (size_t i = 0; i < b->sizes; i++)
        n = b->floats[i] > n ? b->floats[i] : n;
    return n;
}

/* A vector in huge pages, where the host has them: long vectors move faster. */
static float *new_vector(size_t n)
{
    enum { LARGE_PAGE = 2 * 1024 * 1024 };
    size_t bytes = (n * sizeof(float) + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    float *x = aligned_alloc(LARGE_PAGE, bytes);
    if (x)
        madvise(x, bytes, MADV_HUGEPAGE);
    return x;
}

static int run_rank(const struct ranks_place *place, void *arg)
{
    struct bench *b = arg;
    pl_engine *engine = cli_engine();
    if (!engine)
        return EXIT_FAILED;
    b->x = new_vector(longest_size(b));
    b->y = b->arguments->broadcast ? new_vector(longest_size(b)) : NULL;
    b->seconds = calloc(b->reps, sizeof *b->seconds);
    b->algorithms = calloc(b->reps, sizeof *b->algorithms);
    int code = EXIT_FAILED;
    if (!b->x || !b->seconds || !b->algorithms || (b->arguments->broadcast && !b->y)) {
        fprintf(stderr, "paceline bench allreduce: no memory for %zu floats\n", longest_size(b));
    } else {
        int rc = ranks_open(engine, place, &b->team);
        if (rc != PL_OK)
            code = cli_fail(engine, rc);
    }
    if (b->team) {
        b->ranks = pl_team_size(b->team);
        b->rank = pl_team_rank(b->team);
        b->prints = place->rank == 0; /* ranks of the team are dealt in order of arrival */
        code = measure_all(b);
        if (code == EXIT_DONE)
            wait_for_all(b); /* the end of the coordinator ends the team */
    }
    pl_team_close(b->team);
    pl_engine_destroy(engine);
    free(b->x);
    free(b->y);
    free(b->seconds);
    free(b->algorithms);
    return code;
}

/* ---- the command ---- */

/* "1e3,100000": whole numbers, also as powers of ten. */
static bool parse_floats(const char *text, struct bench *b)
{
    while (b->sizes < SIZES_MAX) {
        char *end;
        double n = strtod(text, &end);
        if (end == text || !(n >= 1 && n <= 1e9) || n != floor(n))
            return false;
        b->floats[b->sizes++] = (size_t)n;
        if (*end == '\0')
            return true;
        if (*end != ',')
            return false;
        text = end + 1;
    }
    return false;
}

static int refuse_option(const char *option, const char *text, const char *expected)
{
    return bench_refuse("allreduce", option, text, expected);
}

/* Is it one of the words of a text that ", " separates? */
static bool one_of(const char *word, const char *words)
{
    size_t length = strlen(word);
    for (const char *at = words; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
        if (length > 0 && strcspn(at, ",") == length && strncmp(at, word, length) == 0)
            return true;
    return false;
}

/* Read the options of a call, and refuse once, before ranks start, what the library would refuse in
 * each. -1: all are valid. */
static int read_call(const struct arguments *a, pl_call_options *call)
{
    *call = (pl_call_options){
        .size = sizeof(pl_call_options),
        .algorithm = a->algorithm,
        .wire = a->wire,
        .chunk_kb = bench_number(a->chunk_kb, 0),
        .stripes = bench_number(a->stripes, 0),
    };
    bool exact = a->algorithm && one_of(a->algorithm, "butterfly, ring");
    if (a->algorithm && !one_of(a->algorithm, ALGORITHMS))
        return refuse_option("algorithm", a->algorithm, ALGORITHMS);
    if (a->wire && !one_of(a->wire, WIRES))
        return refuse_option("wire", a->wire, WIRES);
    if (a->wire && exact && strcmp(a->wire, "f32") != 0)
        return refuse_option("wire", a->wire, "f32 for butterfly and ring");
    if (a->chunk_kb && (call->chunk_kb == 0 || call->chunk_kb > CHUNK_KB_MAX))
        return refuse_option("chunk-kb", a->chunk_kb, "a number from 1 to 4096");
    if (a->stripes && (call->stripes == 0 || call->stripes > STRIPES_MAX))
        return refuse_option("stripes", a->stripes, "a number from 1 to 16");
    if (a->spin && !bench_real(a->spin, &call->spin_us))
        return refuse_option("spin", a->spin, "a number of microseconds");
    return -1;
}

/* -1: all well. */
static int read_arguments(const struct arguments *a, struct bench *b, uint32_t *ranks)
{
    *ranks = bench_number(a->ranks, 0);
    b->arguments = a;
    b->reps = bench_number(a->reps, 20);
    b->warmup = bench_number(a->warmup, 3);
    const char *mbit = a->link_mbit ? a->link_mbit : getenv("PACELINE_LINK_MBIT");
    if (a->ranks && (*ranks == 0 || *ranks > RANKS_MAX))
        return refuse_option("ranks", a->ranks, "a number from 1 to 1024");
    if (b->reps == 0 || b->reps > REPS_MAX)
        return refuse_option("reps", a->reps, "a number from 1 to 10000");
    if ((b->warmup == 0 && a->warmup && strcmp(a->warmup, "0") != 0) || b->warmup > REPS_MAX)
        return refuse_option("warmup", a->warmup, "a number from 0 to 10000");
    if (!parse_floats(a->floats ? a->floats : "1e3,1e5,1e7", b))
        return refuse_option("floats", a->floats,
                             "whole numbers from 1 to 1e9, with commas between");
    if (mbit && !(bench_real(mbit, &b->link_mbit) && b->link_mbit > 0))
        return refuse_option("link-mbit", mbit, "a number > 0");
    return read_call(a, &b->call);
}

static int run_bench(const struct command *command, int argc, char **argv)
{
    struct arguments arguments = {0};
    struct bench bench = {0};
    struct ranks_place place;
    uint32_t ranks;
    size_t count;
    int end = options_parse(command, argc, argv, &arguments, NULL, 0, &count);
    if (end < 0)
        end = read_arguments(&arguments, &bench, &ranks);
    if (end >= 0)
        return end;
    if (!ranks_find("bench allreduce", &arguments.place, ranks, &place))
        return EXIT_BAD_INPUT;
    place.no_shm = arguments.no_shm;
    place.ucx = arguments.ucx;
    place.stripes = bench.call.stripes;
    if (place.given)
        return run_rank(&place, &bench);
    place.count = ranks ? ranks : RANKS_DEFAULT;
    return ranks_start(&place, run_rank, &bench);
}

const struct command bench_allreduce = {
    .name = "bench allreduce",
    .summary = "Time all-reduces between ranks",
    .arguments = "[--ranks N [--rank R --rendezvous HOST]]",
    .options = options,
    .run = run_bench,
};
