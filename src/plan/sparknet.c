#include "plan/sparknet.h"

#include "base/fault.h"

static void check_model(const struct sparknet *s)
{
    PL_ASSERT(s->C > 0 && s->S >= 0);
}

double sparknet_serial_time(const struct sparknet *s, double N_a)
{
    check_model(s);
    return N_a * s->C;
}

double sparknet_time(const struct sparknet *s, const struct sparknet_run *run)
{
    check_model(s);
    PL_ASSERT(run->tau > 0 && run->M_a > 0);
    return (run->tau * s->C + s->S) * run->M_a;
}

double sparknet_speedup(const struct sparknet *s, double N_a, const struct sparknet_run *run)
{
    return sparknet_serial_time(s, N_a) / sparknet_time(s, run);
}

double sparknet_ideal_speedup(double N_a, const struct sparknet_run *run)
{
    const struct sparknet free_exchange = {.C = 1, .S = 0};
    return sparknet_speedup(&free_exchange, N_a, run);
}

double sparknet_naive_speedup(const struct sparknet *s, double part)
{
    check_model(s);
    PL_ASSERT(part > 0);
    return s->C / (part + s->S);
}

struct sparknet_verdict sparknet_compare(const struct sparknet *s, double N_a, double part,
                                         const struct sparknet_run *run, size_t n)
{
    struct sparknet_verdict best = {SPARKNET_ALONE, 1, 0};
    double naive = sparknet_naive_speedup(s, part);
    if (naive > best.speedup)
        best = (struct sparknet_verdict){SPARKNET_NAIVE, naive, 0};
    for (size_t i = 0; i < n; i++) {
        double speedup = sparknet_speedup(s, N_a, &run[i]);
        if (speedup > best.speedup)
            best = (struct sparknet_verdict){SPARKNET_AVERAGE, speedup, i};
    }
    return best;
}
