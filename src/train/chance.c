#include "train/chance.h"

#include <math.h>

enum { STEPS_MIN = 100, STRETCHES = 2 };

static const double NEAR = 0.01; /* of ln C */

void chance_init(struct chance *c, size_t classes, uint64_t set, uint64_t step)
{
    uint64_t least = STEPS_MIN * step;
    *c = (struct chance){
        .guess = classes > 1 ? log((double)classes) : 0,
        .window = set / 4 > least ? set / 4 : least,
    };
}

static bool is_near(const struct chance *c)
{
    return fabs(c->sum / (double)c->records - c->guess) < NEAR * c->guess;
}

bool chance_add(struct chance *c, uint64_t records, double loss)
{
    if (!(c->guess > 0) || records == 0)
        return false;
    c->sum += loss * (double)records;
    c->records += records;
    if (c->records < c->window)
        return false;
    c->stuck += is_near(c);
    bool warns = is_near(c) && c->stuck == STRETCHES;
    if (!is_near(c) || warns)
        c->guess = 0;
    c->sum = 0;
    c->records = 0;
    return warns;
}

bool chance_end(const struct chance *c)
{
    if (!(c->guess > 0))
        return false;
    return c->records >= c->window / 2 ? is_near(c) : c->stuck > 0;
}
