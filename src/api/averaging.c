#include "paceline/averaging.h"

#include "plan/sparknet.h"

#include <math.h>
#include <stdbool.h>

static bool is_positive(double value)
{
    return isfinite(value) && value > 0;
}

static bool is_time(double value)
{
    return isfinite(value) && value >= 0;
}

double pl_averaging_speedup(double alone, double tau, double rounds, double exchange)
{
    if (!is_positive(alone) || !is_positive(tau) || !is_positive(rounds) || !is_time(exchange))
        return NAN;
    const struct sparknet model = {.C = 1, .S = exchange};
    const struct sparknet_run run = {.tau = tau, .M_a = rounds};
    return sparknet_speedup(&model, alone, &run);
}

double pl_dividing_speedup(double workers, double exchange)
{
    if (!isfinite(workers) || workers < 1 || !is_time(exchange))
        return NAN;
    const struct sparknet model = {.C = 1, .S = exchange};
    return sparknet_naive_speedup(&model, 1 / workers);
}
