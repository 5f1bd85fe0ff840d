#include "plan/follow_batch.h"

#include "base/fault.h"

double follow_batch_step(const struct follow_batch *f, double B, size_t N)
{
    return N == 1 ? B / f->model.gamma : scaling_step(&f->model, B, (double)N);
}

static size_t fastest_number(const struct follow_batch *f, double B)
{
    size_t best = f->least;
    for (size_t n = f->least + 1; n <= f->most; n++)
        if (follow_batch_step(f, B, n) < follow_batch_step(f, B, best))
            best = n;
    return best;
}

static size_t count_between(size_t a, size_t b)
{
    return a > b ? a - b : b - a;
}

size_t follow_batch_workers(const struct follow_batch *f, double B, double left, size_t now)
{
    PL_ASSERT(f->least >= 1 && f->least <= f->most && B > 0);
    size_t best = fastest_number(f, B);
    if (now < f->least || now > f->most)
        return best;
    double is = follow_batch_step(f, B, now), saved = is - follow_batch_step(f, B, best);
    double cost = f->change_s * (double)count_between(best, now);
    bool pays = saved > 0 && saved >= f->gain * is && saved * (left / B) >= cost;
    return pays ? best : now;
}
