/* The measurements of `paceline bench`: one command each, `bench WHAT`. */
#ifndef PL_CLI_BENCH_H
#define PL_CLI_BENCH_H

#include "cli/cli.h"

#include <stdbool.h>
#include <stdint.h>

extern const struct command bench_step, bench_data, bench_allreduce, bench_wire;

/* A whole number > 0 of at most 32 bits; `fallback` for NULL; 0 for anything else. */
uint32_t bench_number(const char *text, uint32_t fallback);

/* A number from 0 to 1e9 and nothing after it. false for anything else. */
bool bench_real(const char *text, double *out);

/* Report on stderr that an option of `bench WHAT` is wrong, and its allowed values;
 * EXIT_BAD_INPUT. */
int bench_refuse(const char *what, const char *option, const char *text, const char *expected);

/* Seconds on a monotonic clock. */
double bench_now(void);

/* The value below which `part` of the sorted values lie. */
double bench_quantile(const double *sorted, size_t n, double part);
void bench_sort(double *values, size_t n);

#endif
