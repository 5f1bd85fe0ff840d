/* SparkDML's figures again, from the performance models: 11 × with its CNN on 88 cores, 7.2 × with
 * its fully connected net on 48, 5.6 × with 4·10^9 parameters in slices on 88, and small nets that
 * saturate early. The latency of a message and the time of a byte are fitted to the three ratios.
 *
 *   sparkdml_figures [FC CNN SLICES]     GFLOP/s of a core in each of them; 10 1 3
 *
 * The paper does not say how fast a core was. The three rates are assumed, for JBlas on a core of
 * its Xeon E5-2600: products of matrices; small convolutions in loops; and products of a matrix
 * with a vector, which memory limits to some 12 GB/s of doubles. Only rates times prices count. So
 * the fit is repeated with one rate for all three, which shows how much depends on them.
 *
 * Data-parallel (plan/scaling.h): a master takes a gradient from each worker and sends it the
 * model, one message after another, as the paper counts (Eq. 4): β = 2(T_lat + S(model)·T_data).
 * Conjugate gradient shares out all samples; the CNN has 16 of them on each worker.
 * Slices (plan/sparkdml.h): examples one by one, a layer's messages after each other. */
#include "plan/scaling.h"
#include "plan/sparkdml.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { FC, CNN, SLICES, FIGURES };

enum { CORES = 88, FC_CORES = 48, CNN_BATCH = 16 };

static const struct {
    const char *name;
    double published;
} figure[FIGURES] = {
    {"FC 784-480-160-10, 0.1 M samples, 48 cores", 7.2},
    {"CNN 6-12-12, 16 samples a worker, 88 cores", 11},
    {"FC of 4e9 parameters in slices, 88 cores", 5.6},
};

/* Parameters, and multiply-adds × 2 of an example: forward, weights, and inputs but the first
 * layer's. */
#define FC_WEIGHTS  (784.0 * 480 + 480.0 * 160 + 160.0 * 10)
#define FC_FLOP     (2 * (3 * FC_WEIGHTS - 784.0 * 480))
#define FC_FLOATS   (FC_WEIGHTS + 650)
#define CNN_FIRST   (24.0 * 24 * 25 * 6)
#define CNN_WEIGHTS (CNN_FIRST + 8.0 * 8 * 25 * 6 * 12 + 16.0 * 12 * 12 + 120)
#define CNN_FLOP    (2 * (3 * CNN_WEIGHTS - CNN_FIRST))
#define CNN_FLOATS  (156.0 + 1812 + 2316 + 130)

struct study {
    double rate[FIGURES]; /* FLOP/s of a core */
    struct cost_line link;
};

/* ---- the models ---- */

static double data_parallel(const struct study *s, int kind, double B, double N)
{
    double flop = kind == FC ? FC_FLOP : CNN_FLOP, floats = kind == FC ? FC_FLOATS : CNN_FLOATS;
    const struct scaling model = {
        .kind = SCALING_SYNC,
        .gamma = s->rate[kind] / flop,
        .beta = 2 * (s->link.u + 4 * floats * s->link.v),
    };
    return scaling_speedup(&model, B, N);
}

/* Two hidden layers of equal width: w² + 794w parameters. */
static double width_of(double parameters)
{
    return sqrt(397.0 * 397.0 + parameters) - 397.0;
}

struct split_net {
    double b[4];
    struct sparkdml net;
    double seconds; /* of an example on a core */
};

static void split_net(const struct study *s, double parameters, double F, struct split_net *out)
{
    double w = width_of(parameters);
    *out = (struct split_net){.b = {784, w, w, 10}};
    out->net = (struct sparkdml){out->b, 4, F, 1};
    out->seconds = 2 * (3 * parameters - 784 * w) / s->rate[SLICES];
}

static double in_slices(const struct study *s, double parameters, double F)
{
    struct split_net split;
    split_net(s, parameters, F, &split);
    return sparkdml_speedup(&split.net, &s->link, split.seconds);
}

static double model_of(const struct study *s, int kind)
{
    switch (kind) {
    case FC: return data_parallel(s, FC, 1e5, FC_CORES);
    case CNN: return data_parallel(s, CNN, (double)CNN_BATCH * CORES, CORES);
    default: return in_slices(s, 4e9, CORES);
    }
}

/* ---- the fit ---- */

static double error_of(const struct study *s)
{
    double sum = 0;
    for (int i = 0; i < FIGURES; i++) {
        double off = log(model_of(s, i) / figure[i].published);
        sum += off * off;
    }
    return sum;
}

/* A nanosecond stands for none. */
#define LEAST_LATENCY 1e-9

/* Least squares of log(model / published), by ever smaller factors up and down. */
static void fit_link(struct study *s)
{
    s->link = (struct cost_line){.u = 1e-3, .v = 1e-8};
    double best = error_of(s);
    for (double factor = 2; factor > 1.000001;) {
        const struct cost_line from = s->link;
        for (int u = -1; u <= 1; u++)
            for (int v = -1; v <= 1; v++) {
                struct study try = *s;
                try.link.u = from.u * pow(factor, u);
                try.link.v = from.v * pow(factor, v);
                double error = error_of(&try);
                if (error < best && try.link.u >= LEAST_LATENCY) {
                    best = error;
                    s->link = try.link;
                }
            }
        if (s->link.u == from.u && s->link.v == from.v)
            factor = sqrt(factor);
    }
    s->link.residual = sqrt(best / FIGURES);
}

/* ---- tables ---- */

static void print_ratios(const struct study *s)
{
    printf("a core: %.3g, %.3g and %.3g GFLOP/s; fitted: latency %.3g ms, %.3g ns a byte (%.3g "
           "Mbit/s), residual %.0f %%\n",
           s->rate[FC] * 1e-9, s->rate[CNN] * 1e-9, s->rate[SLICES] * 1e-9, s->link.u * 1e3,
           s->link.v * 1e9, 8e-6 / s->link.v, 100 * s->link.residual);
    printf("| figure | paper | model | off %% |\n|---|---|---|---|\n");
    for (int i = 0; i < FIGURES; i++) {
        double model = model_of(s, i);
        printf("| %s | %.1f | %.1f | %+.0f |\n", figure[i].name, figure[i].published, model,
               100 * (model / figure[i].published - 1));
    }
    printf("\n");
}

static void print_samples(const struct study *s)
{
    static const double cores[] = {8, 20, 40, 48, 88};
    printf("| cores | FC, 10 k samples | FC, 0.1 M | FC, 1 M | CNN |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof cores / sizeof *cores; i++) {
        double N = cores[i];
        printf("| %.0f | %.1f | %.1f | %.1f | %.1f |\n", N, data_parallel(s, FC, 1e4, N),
               data_parallel(s, FC, 1e5, N), data_parallel(s, FC, 1e6, N),
               data_parallel(s, CNN, CNN_BATCH * N, N));
    }
    printf("\n");
}

static void print_slices(const struct study *s)
{
    static const double processes[] = {2, 4, 8, 16, 32, 64, CORES};
    enum { COLUMNS = sizeof processes / sizeof *processes };
    printf("| parameters |");
    for (size_t i = 0; i < COLUMNS; i++)
        printf(" %.0f |", processes[i]);
    printf(" best of %d | at it |\n|---|", CORES);
    for (size_t i = 0; i < COLUMNS + 2; i++)
        printf("---|");
    printf("\n");
    static const double parameters[] = {1e6, 1e7, 1e8, 5e8, 1e9, 2e9, 4e9};
    for (size_t k = 0; k < sizeof parameters / sizeof *parameters; k++) {
        struct split_net split;
        split_net(s, parameters[k], 1, &split);
        size_t best = sparkdml_best(&split.net, &s->link, split.seconds, CORES);
        printf("| %.0e |", parameters[k]);
        for (size_t i = 0; i < COLUMNS; i++)
            printf(" %.2f |", in_slices(s, parameters[k], processes[i]));
        printf(" %zu | %.2f |\n", best, in_slices(s, parameters[k], (double)best));
    }
}

int main(int argc, char **argv)
{
    double rate[FIGURES] = {10, 1, 3};
    if (argc != 1 && argc != 1 + FIGURES) {
        fprintf(stderr, "usage: sparkdml_figures [FC CNN SLICES]     GFLOP/s of a core\n");
        return 2;
    }
    struct study s = {0}, same = {0};
    for (int i = 0; i < FIGURES; i++) {
        rate[i] = argc > 1 ? atof(argv[1 + i]) : rate[i];
        if (!(rate[i] > 0)) {
            fprintf(stderr, "sparkdml_figures: a rate must be above 0\n");
            return 2;
        }
    }
    for (int i = 0; i < FIGURES; i++) {
        s.rate[i] = rate[i] * 1e9;
        same.rate[i] = rate[SLICES] * 1e9;
    }
    fit_link(&s);
    fit_link(&same);
    print_ratios(&s);
    printf("With one rate for all:\n");
    print_ratios(&same);
    print_samples(&s);
    print_slices(&s);
    return 0;
}
