#include "plan/sparkdml.h"

#include "base/fault.h"

#include <math.h>

/* S(x) for a vector of that many numbers. */
static double size_of(double numbers)
{
    return numbers * sizeof(float);
}

struct sparkdml_volume sparkdml_volume(const struct sparkdml *net)
{
    const double *b = net->b, F = net->F;
    PL_ASSERT(net->n >= 2 && F >= 1);
    double others = F - 1, broadcast = F * log2(F);
    struct sparkdml_volume v = {
        .K = others,
        .N_1 = others * (size_of(b[0]) + size_of(b[net->n - 1]) / F),
    };
    for (size_t i = 1; i + 1 < net->n; i++) {
        v.K += broadcast + 2 * others;
        v.N_2 += broadcast * size_of(b[i]) / F;
        v.N_3 += others * (size_of(b[i + 1]) + size_of(b[i]) / F);
    }
    v.K *= net->M;
    return v;
}

double sparkdml_time(const struct sparkdml *net, const struct cost_line *link)
{
    struct sparkdml_volume v = sparkdml_volume(net);
    return v.K * link->u + net->M * (v.N_1 + v.N_2 + v.N_3) * link->v;
}

double sparkdml_speedup(const struct sparkdml *net, const struct cost_line *link, double seconds)
{
    double alone = net->M * seconds;
    PL_ASSERT(alone > 0);
    return alone / (alone / net->F + sparkdml_time(net, link));
}

size_t sparkdml_best(const struct sparkdml *net, const struct cost_line *link, double seconds,
                     size_t most)
{
    size_t best = 1;
    double fastest = 1;
    for (size_t F = 2; F <= most; F++) {
        struct sparkdml split = *net;
        split.F = (double)F;
        double speedup = sparkdml_speedup(&split, link, seconds);
        if (speedup > fastest) {
            fastest = speedup;
            best = F;
        }
    }
    return best;
}
