#include "plan/rate_range.h"

#include "base/fault.h"

#include <math.h>

#define WINDOW    (1.0 / 50) /* of the steps: the mean's time constant */
#define LOW_PART  0.1        /* of the fall */
#define HIGH_PART 0.95
#define LEAST     0.05 /* of the first loss: a smaller fall may be noise */

double rate_sweep_at(const struct rate_sweep *sweep, uint32_t step)
{
    PL_ASSERT(sweep->from > 0 && sweep->from < sweep->to && sweep->steps > 1);
    PL_ASSERT(step < sweep->steps);
    double part = step / (sweep->steps - 1.0);
    if (sweep->linear)
        return sweep->from + (sweep->to - sweep->from) * part;
    return sweep->from * pow(sweep->to / sweep->from, part);
}

void rate_smoothing_begin(struct rate_smoothing *s, uint32_t steps)
{
    double window = steps * WINDOW;
    *s = (struct rate_smoothing){
        .keep = window > 1 ? 1 - 1 / window : 0,
        .corrector = 1,
        .least = INFINITY,
    };
}

double rate_smoothing_add(struct rate_smoothing *s, double loss)
{
    s->mean = s->keep * s->mean + (1 - s->keep) * loss;
    s->corrector *= s->keep;
    double smoothed = s->mean / (1 - s->corrector);
    s->least = smoothed < s->least ? smoothed : s->least;
    return smoothed;
}

bool rate_smoothing_diverged(const struct rate_smoothing *s, double smoothed)
{
    return !isfinite(smoothed) || smoothed > RATE_DIVERGED * s->least;
}

/* The first step whose smoothed loss has made that part of the fall. */
static size_t find_fallen(const double *smoothed, double fall, double part)
{
    size_t i = 0;
    while (smoothed[0] - smoothed[i] < part * fall)
        i++; /* ends at the least one, where all of the fall is made */
    return i;
}

struct rate_range rate_range_find(const double *smoothed, size_t n)
{
    PL_ASSERT(n > 0);
    struct rate_range range = {0};
    for (size_t i = 1; i < n; i++)
        if (smoothed[i] < smoothed[range.least])
            range.least = i;
    double fall = smoothed[0] - smoothed[range.least];
    if (!(fall > LEAST * fabs(smoothed[0])))
        return range;
    range.found = true;
    range.still_falls = range.least == n - 1;
    range.low = find_fallen(smoothed, fall, LOW_PART);
    range.high = find_fallen(smoothed, fall, HIGH_PART);
    return range;
}
