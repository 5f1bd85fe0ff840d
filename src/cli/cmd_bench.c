#include "cli/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct command *const benches[] = {&bench_step, &bench_data, &bench_allreduce,
                                                &bench_wire};

enum { BENCHES = sizeof benches / sizeof *benches };

uint32_t bench_number(const char *text, uint32_t fallback)
{
    char *end;
    if (!text)
        return fallback;
    errno = 0;
    unsigned long number = strtoul(text, &end, 10);
    bool whole = text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
    return whole && number <= UINT32_MAX ? (uint32_t)number : 0;
}

bool bench_real(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    bool begins = (text[0] >= '0' && text[0] <= '9') || text[0] == '.';
    return begins && *end == '\0' && *out >= 0 && *out <= 1e9;
}

int bench_refuse(const char *what, const char *option, const char *text, const char *expected)
{
    fprintf(stderr, "paceline bench %s: --%s: expected %s, not %s\n", what, option, expected, text);
    return EXIT_BAD_INPUT;
}

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void bench_sort(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare_doubles);
}

double bench_quantile(const double *sorted, size_t n, double part)
{
    size_t i = (size_t)((double)(n - 1) * part + 0.5);
    return sorted[i];
}

static void print_help(void)
{
    printf("usage: paceline bench WHAT ...\nMeasure this machine, and the network between several."
           "\n\n");
    for (size_t i = 0; i < BENCHES; i++)
        printf("  %-24s %s\n", benches[i]->name, benches[i]->summary);
    printf("  %-24s %s\n", "--help", "this text; `paceline bench WHAT --help` for each");
}

static int run_bench(const struct command *command, int argc, char **argv)
{
    (void)command;
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "--help") == 0 || strcmp(what, "-h") == 0) {
        print_help();
        return EXIT_DONE;
    }
    for (size_t i = 0; i < BENCHES; i++)
        if (strcmp(benches[i]->name + strlen("bench "), what) == 0)
            return benches[i]->run(benches[i], argc - 1, argv + 1);
    fprintf(
        stderr,
        "paceline bench: expected what to measure: step, data, allreduce or wire%s%s; see paceline "
        "bench --help\n",
        what[0] ? ", not " : "", what);
    return EXIT_BAD_INPUT;
}

const struct command cmd_bench = {
    .name = "bench",
    .summary = "Measure: training steps, the loading of records, all-reduces, the wire",
    .arguments = "WHAT",
    .options = NULL,
    .run = run_bench,
};
