#include "optim/line_search.h"

#include "base/fault.h"

#include <math.h>

/* A step that grows is the cubic's within these multiples of the last advance (Moré and Thuente
 * 1994, §2); one in a bracket keeps this share of its length from both ends. */
#define GROWTH_MIN 1.1
#define GROWTH_MAX 4.0
#define END_SHARE  0.1

void line_search_begin(struct line_search *search, double decrease, double curvature, double value,
                       double slope, double trial)
{
    PL_ASSERT(slope < 0 && trial > 0 && 0 < decrease && decrease < curvature && curvature < 1);
    *search = (struct line_search){
        .decrease = decrease,
        .curvature = curvature,
        .trial = trial,
        .start = {0, value, slope},
        .low = {0, value, slope},
    };
}

static double noise_of(const struct line_search *search)
{
    return LINE_NOISE * fabs(search->start.value);
}

/* The first of Eq. 3.7, up to the noise. */
static bool has_decreased(const struct line_search *search, const struct line_point *p)
{
    double bound = search->start.value + search->decrease * p->step * search->start.slope;
    return p->value <= bound + noise_of(search);
}

static bool is_flat(const struct line_search *search, const struct line_point *p)
{
    return fabs(p->slope) <= -search->curvature * search->start.slope;
}

/* The minimum of the cubic through two points (Eq. 3.59); NAN where there is none. */
static double cubic_minimum(const struct line_point *a, const struct line_point *b)
{
    double d1 = a->slope + b->slope - 3 * (a->value - b->value) / (a->step - b->step);
    double square = d1 * d1 - a->slope * b->slope;
    if (!(square >= 0))
        return NAN;
    double d2 = (b->step > a->step ? 1 : -1) * sqrt(square);
    return b->step - (b->step - a->step) * ((b->slope + d2 - d1) / (b->slope - a->slope + 2 * d2));
}

/* Where the slopes alone put the minimum. */
static double secant_minimum(const struct line_point *a, const struct line_point *b)
{
    return a->step - a->slope * (b->step - a->step) / (b->slope - a->slope);
}

static double guess_minimum(const struct line_search *search, const struct line_point *a,
                            const struct line_point *b)
{
    return fabs(a->value - b->value) <= noise_of(search) ? secant_minimum(a, b)
                                                         : cubic_minimum(a, b);
}

/* `guess`, moved to between both bounds; where it is NAN, the middle. */
static double clamp_step(double guess, double least, double most)
{
    if (isnan(guess))
        return least + (most - least) / 2;
    return fmin(fmax(guess, least), most);
}

static enum line_verdict try_next(struct line_search *search, double trial)
{
    search->trial = trial;
    return search->tries < LINE_TRIES_MAX ? LINE_TRY : LINE_FAIL;
}

static enum line_verdict try_inside(struct line_search *search)
{
    const struct line_point *low = &search->low, *high = &search->high;
    double length = high->step - low->step;
    double guess =
        isfinite(high->value) && isfinite(high->slope) ? guess_minimum(search, low, high) : NAN;
    double one = low->step + END_SHARE * length, other = high->step - END_SHARE * length;
    return try_next(search, clamp_step(guess, fmin(one, other), fmax(one, other)));
}

static enum line_verdict try_beyond(struct line_search *search, const struct line_point *last,
                                    const struct line_point *p)
{
    double advance = p->step - last->step;
    double guess = guess_minimum(search, last, p);
    if (!(guess > p->step)) /* the cubic falls on and on */
        guess = INFINITY;
    return try_next(
        search, clamp_step(guess, p->step + GROWTH_MIN * advance, p->step + GROWTH_MAX * advance));
}

enum line_verdict line_search_next(struct line_search *search, double value, double slope)
{
    const struct line_point last = search->low;
    struct line_point p = {search->trial, value, slope};
    bool is_number = isfinite(value) && isfinite(slope);
    search->tries++;
    if (!is_number)
        p.value = INFINITY;
    if (!is_number || !has_decreased(search, &p) || p.value > last.value + noise_of(search)) {
        search->high = p;
        search->is_bracketed = true;
        return try_inside(search);
    }
    if (is_flat(search, &p))
        return LINE_ACCEPT;
    search->low = p;
    if (!search->is_bracketed && p.slope < 0)
        return try_beyond(search, &last, &p);
    /* The minimum lies where the slope falls: towards `high`, or back towards the last low end. */
    if (!search->is_bracketed || p.slope * (search->high.step - p.step) >= 0)
        search->high = last;
    search->is_bracketed = true;
    return try_inside(search);
}
