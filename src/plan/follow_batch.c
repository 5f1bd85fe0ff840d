#include "plan/follow_batch.h"

#include "base/fault.h"
#include "base/minmax.h"

#include <math.h>

double follow_batch_step(const struct follow_batch *f, double B, size_t N)
{
    const struct scaling *s = &f->model;
    double computes = f->fixed_s + B / (s->gamma * (double)N);
    double exchanges = N == 1 ? 0 : s->alpha + s->beta * (double)N;
    return s->kind == SCALING_SYNC ? computes + exchanges : max_double(computes, exchanges);
}

static size_t fastest_number(const struct follow_batch *f, double B)
{
    size_t best = f->least;
    for (size_t n = f->least + 1; n <= f->most; n++)
        if (follow_batch_step(f, B, n) < follow_batch_step(f, B, best))
            best = n;
    return best;
}

/* Eq. 6.11 in whole workers; a rounding error below a whole number does not cost a worker. */
static size_t number_for_ratio(const struct follow_batch *f, double B)
{
    double N = f->printed ? scaling_workers_as_printed(&f->model, B, f->ratio)
                          : scaling_workers_for_ratio(&f->model, B, f->ratio);
    size_t most = fastest_number(f, B);
    N = floor(N * (1 + 1e-12));
    return N >= (double)most ? most : N <= (double)f->least ? f->least : (size_t)N;
}

static size_t count_between(size_t a, size_t b)
{
    return a > b ? a - b : b - a;
}

size_t follow_batch_workers(const struct follow_batch *f, double B, double left, size_t now)
{
    PL_ASSERT(f->least >= 1 && f->least <= f->most && B > 0 && f->ratio >= 0);
    size_t best = f->ratio > 0 ? number_for_ratio(f, B) : fastest_number(f, B);
    if (now < f->least || now > f->most)
        return best;
    /* Time, or worker-seconds: the weights are workers then. */
    bool releases = f->ratio > 0 && best < now;
    double weight_now = releases ? (double)now : 1, weight_best = releases ? (double)best : 1;
    double is = weight_now * follow_batch_step(f, B, now);
    double saved = is - weight_best * follow_batch_step(f, B, best);
    double cost = weight_now * f->change_s * (double)count_between(best, now);
    bool pays = left > 0 && saved > 0 && saved >= f->gain * is && saved * (left / B) >= cost;
    return pays ? best : now;
}
