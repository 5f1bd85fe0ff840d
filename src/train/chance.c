#include "train/chance.h"

#include <math.h>

enum { STEPS_MIN = 100, STEPS_MAX = 1000, STRETCHES = 8, HIGH_STEPS = 20 };

/* Of ln C. */
static const double NEAR = 0.01, FALLS = 0.002, HIGH = 10;

void chance_init(struct chance *c, size_t classes, uint64_t set, uint64_t step)
{
    uint64_t window = set / 4;
    window = window < STEPS_MIN * step ? STEPS_MIN * step : window;
    *c = (struct chance){
        .guess = classes > 1 ? log((double)classes) : 0,
        .step = step,
        .window = window > STEPS_MAX * step ? STEPS_MAX * step : window,
    };
}

static bool is_near(const struct chance *c, double loss)
{
    return fabs(loss - c->guess) < NEAR * c->guess;
}

static bool add_high(struct chance *c, uint64_t records, double loss)
{
    if (c->high == UINT64_MAX)
        return false;
    c->high = loss > HIGH * c->guess ? c->high + records : 0;
    if (c->high < HIGH_STEPS * c->step)
        return false;
    c->high = UINT64_MAX;
    return true;
}

static bool end_stretch(struct chance *c)
{
    double mean = c->sum / (double)c->records;
    bool falls = c->before > 0 && c->before - mean > FALLS * c->guess;
    c->left = !is_near(c, mean);
    c->stuck = falls ? 0 : c->stuck + 1;
    c->before = mean;
    c->sum = 0;
    c->records = 0;
    if (c->left || c->stuck < STRETCHES)
        return false;
    c->left = true;
    return true;
}

enum chance_news chance_add(struct chance *c, uint64_t records, double loss)
{
    if (!(c->guess > 0) || records == 0)
        return CHANCE_NOTHING;
    if (add_high(c, records, loss))
        return CHANCE_HIGH;
    if (c->left)
        return CHANCE_NOTHING;
    c->sum += loss * (double)records;
    c->records += records;
    return c->records >= c->window && end_stretch(c) ? CHANCE_STUCK : CHANCE_NOTHING;
}

enum chance_news chance_end(const struct chance *c)
{
    if (!(c->guess > 0))
        return CHANCE_NOTHING;
    if (c->high > 0 && c->high < UINT64_MAX)
        return CHANCE_HIGH;
    bool enough = c->records >= c->window / 2;
    bool stuck = enough ? is_near(c, c->sum / (double)c->records) : c->stuck > 0;
    return stuck && !c->left ? CHANCE_STUCK : CHANCE_NOTHING;
}
