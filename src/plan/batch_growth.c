#include "plan/batch_growth.h"

#include "base/fault.h"

#include <math.h>

enum { POINTS = 1 << 14, PIECES = 128 };

static double grown_by(const struct batch_growth *g, double progress)
{
    PL_ASSERT(g->first > 0 && g->last > 0 && g->P > 0);
    PL_ASSERT(progress >= 0 && progress <= 1);
    return (g->last - g->first) * pow(progress, g->P);
}

double batch_growth_at(const struct batch_growth *g, double progress)
{
    return g->first + grown_by(g, progress);
}

double batch_growth_effective(const struct batch_growth *g, double progress)
{
    return g->first + grown_by(g, progress) / (g->P + 1);
}

struct batch_growth batch_growth_reaching(double first, double effective, double P)
{
    return (struct batch_growth){first, first + (effective - first) * (P + 1), P};
}

/* ---- means over the epochs ---- */

/* Point i of the middle-point rule over u in [0, 1], with m/M = u²: B is then smooth at 0 for P of
 * 1/2, too. The weight of the point is 2u du. */
struct point {
    double progress, weight;
};

static struct point point_at(int i)
{
    double u = (i + 0.5) / POINTS;
    return (struct point){u * u, 2 * u / POINTS};
}

double batch_growth_equal_updates(const struct batch_growth *g)
{
    double updates = 0;
    for (int i = 0; i < POINTS; i++) {
        struct point at = point_at(i);
        updates += at.weight / batch_growth_at(g, at.progress);
    }
    return 1 / updates;
}

/* Simpson's rule over u with m/M = u². */
double batch_growth_updates(const struct batch_growth *g, double progress)
{
    double root = sqrt(progress), h = root / PIECES, sum = 0;
    for (int i = 0; i <= PIECES; i++) {
        double u = fmin(i * h, root), weight = i == 0 || i == PIECES ? 1 : i % 2 ? 4 : 2;
        sum += weight * 2 * u / batch_growth_at(g, fmin(u * u, progress));
    }
    return sum * h / 3;
}

struct batch_growth_speedup batch_growth_speedup(const struct batch_growth *g,
                                                 const struct scaling *s)
{
    struct batch_growth_speedup sum = {0, 0, 0};
    double time = 0;
    for (int i = 0; i < POINTS; i++) {
        struct point at = point_at(i);
        struct scaling_best best = scaling_best(s, batch_growth_at(g, at.progress));
        sum.mean += at.weight * best.S;
        sum.ratio += at.weight * best.r;
        time += at.weight / best.S;
    }
    sum.harmonic = 1 / time;
    return sum;
}
