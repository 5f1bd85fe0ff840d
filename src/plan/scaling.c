#include "plan/scaling.h"

#include "base/fault.h"
#include "base/minmax.h"

#include <math.h>

static void check_model(const struct scaling *s, double B, double N)
{
    PL_ASSERT(s->gamma > 0 && s->alpha >= 0 && s->beta >= 0);
    PL_ASSERT(B > 0 && N > 0);
}

/* ---- times ---- */

/* Synchronous workers compute and then exchange; asynchronous workers do both at once. */
static double join_times(const struct scaling *s, double compute, double comm)
{
    return s->kind == SCALING_SYNC ? compute + comm : max_double(compute, comm);
}

double scaling_step(const struct scaling *s, double B, double N)
{
    return scaling_time(s, B, B, N);
}

double scaling_throughput(const struct scaling *s, double B, double N)
{
    return B / scaling_step(s, B, N);
}

double scaling_compute_total(const struct scaling *s, double samples)
{
    return samples / s->gamma;
}

double scaling_comm_total(const struct scaling *s, double samples, double B, double N)
{
    return samples / B * N * (s->alpha + s->beta * N);
}

double scaling_time(const struct scaling *s, double samples, double B, double N)
{
    check_model(s, B, N);
    double compute = scaling_compute_total(s, samples);
    double comm = scaling_comm_total(s, samples, B, N);
    return join_times(s, compute, comm) / N;
}

double scaling_cost(const struct scaling *s, double samples, double B, double N, double price)
{
    return scaling_time(s, samples, B, N) * N * price;
}

/* ---- ratios ---- */

double scaling_speedup(const struct scaling *s, double B, double N)
{
    return scaling_compute_total(s, B) / scaling_step(s, B, N);
}

double scaling_efficiency(const struct scaling *s, double B, double N)
{
    return scaling_speedup(s, B, N) / N;
}

double scaling_ratio(const struct scaling *s, double B, double N)
{
    check_model(s, B, N);
    return scaling_compute_total(s, B) / scaling_comm_total(s, B, B, N);
}

/* ---- the inverse ---- */

/* The root is written without the division by β, which may be 0. */
double scaling_workers_for_ratio(const struct scaling *s, double B, double r)
{
    check_model(s, B, r);
    double right = B / (s->gamma * r);
    return 2 * right / (s->alpha + sqrt(s->alpha * s->alpha + 4 * s->beta * right));
}

double scaling_workers_as_printed(const struct scaling *s, double B, double r)
{
    check_model(s, B, r);
    return sqrt(B / (r * s->beta * s->gamma));
}

double scaling_batch_for_efficiency(const struct scaling *s, double E, double N)
{
    PL_ASSERT(E >= 0 && (s->kind == SCALING_SYNC ? E < 1 : E <= 1));
    double odds = s->kind == SCALING_SYNC ? E / (1 - E) : E;
    return odds * s->gamma * (s->alpha + s->beta * N) * N;
}

double scaling_weak_limit(const struct scaling *s, double b)
{
    check_model(s, b, 1);
    return b / (s->beta * s->gamma);
}

/* ---- the best number of workers ---- */

struct scaling_best scaling_maximum(const struct scaling *s, double B)
{
    check_model(s, B, 1);
    if (s->alpha == 0 && s->beta == 0)
        return (struct scaling_best){INFINITY, INFINITY, INFINITY};
    if (s->kind == SCALING_ASYNC) {
        double N = scaling_workers_for_ratio(s, B, 1);
        return (struct scaling_best){.N = N, .S = N, .r = 1};
    }
    double root = sqrt(B * s->beta * s->gamma); /* βγN */
    return (struct scaling_best){
        .N = sqrt(B / (s->beta * s->gamma)),
        .S = B / (s->alpha * s->gamma + 2 * root),
        .r = root / (s->alpha * s->gamma + root),
    };
}

struct scaling_best scaling_best(const struct scaling *s, double B)
{
    struct scaling_best best = scaling_maximum(s, B);
    return best.S > 1 ? best : (struct scaling_best){.N = 1, .S = 1, .r = 1};
}

/* The speed-up rises up to the real maximum and falls beyond it, so that the best whole number is a
 * neighbour of it. */
struct scaling_best scaling_best_whole(const struct scaling *s, double B, size_t most)
{
    struct scaling_best best = {.N = 1, .S = 1, .r = INFINITY};
    double peak = min_double(scaling_maximum(s, B).N, (double)most);
    PL_ASSERT(most >= 1);
    for (double N = max_double(2, floor(peak)); N <= min_double(ceil(peak), (double)most); N++) {
        double S = scaling_speedup(s, B, N);
        if (S > best.S)
            best = (struct scaling_best){.N = N, .S = S, .r = scaling_ratio(s, B, N)};
    }
    return best;
}
