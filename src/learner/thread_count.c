#include "learner/thread_count.h"

#include "base/fault.h"

#include <math.h>

#define SECOND INT64_C(1000000000)

static const double delayed_enough = 0.10; /* share of the threads' time: try fewer */
static const double quiet_enough = 0.05;   /* try more */
static const double gain = 0.95;           /* of the present time a record, or less: adopt */
static const int64_t patience_min = 1 * SECOND, patience_max = 60 * SECOND;

void thread_count_init(struct thread_count *c, int most)
{
    PL_ASSERT(most > 0);
    *c = (struct thread_count){.most = most, .now = most, .patience = patience_min};
}

void thread_count_stop(struct thread_count *c)
{
    c->other = 0;
    c->is_stopped = true;
}

/* With delay of k × the time that was computed, k threads never ran. */
static int choose_fewer(const struct thread_count *c, const struct thread_window *w)
{
    int missing = (int)lround((double)w->delay / (double)w->computed);
    int left = c->now - (missing > 1 ? missing : 1);
    return left > 1 ? left : 1;
}

/* The number to try next; 0: none. */
static int pick_candidate(const struct thread_count *c, const struct thread_window *w)
{
    double delayed = (double)w->delay / ((double)w->computed * c->now);
    if (c->now > 1 && delayed > delayed_enough)
        return choose_fewer(c, w);
    return c->now < c->most && delayed < quiet_enough ? c->most : 0;
}

static void start_trial(struct thread_count *c, const struct thread_window *w)
{
    if (c->at == 0)
        c->at = w->now;
    if (w->now - c->at < c->patience)
        return;
    c->other = pick_candidate(c, w);
    c->windows = 0;
    c->delayed = (double)w->delay / ((double)w->computed * c->now);
}

static double median_of(const double *at)
{
    double low = fmin(at[0], at[1]), high = fmax(at[0], at[1]);
    PL_ASSERT(THREAD_COUNT_ROUNDS == 3);
    return fmax(low, fmin(high, at[2]));
}

/* Window 0 warms up; the odd ones are of the present number, the even ones of the other. */
static void record_window(struct thread_count *c, const struct thread_window *w)
{
    double ns = (double)w->computed / (double)w->records;
    int i = c->windows++;
    if (i > 0)
        (i % 2 == 1 ? c->present : c->tried)[(i - 1) / 2] = ns;
}

static bool end_trial(struct thread_count *c, const struct thread_window *w,
                      struct thread_change *change)
{
    double before = median_of(c->present), after = median_of(c->tried);
    bool adopted = after < gain * before;
    if (adopted)
        *change = (struct thread_change){c->now, c->other, c->delayed, before, after};
    c->now = adopted ? c->other : c->now;
    c->patience = adopted ? patience_min : c->patience * 2;
    if (c->patience > patience_max)
        c->patience = patience_max;
    c->other = 0;
    c->at = w->now;
    return adopted;
}

bool thread_count_next(struct thread_count *c, const struct thread_window *w, int *threads,
                       struct thread_change *change)
{
    bool changed = false;
    PL_ASSERT(w->computed > 0 && w->records > 0);
    if (c->is_stopped) {
        *threads = c->now;
        return false;
    }
    if (c->other == 0) {
        start_trial(c, w);
        *threads = c->other ? c->other : c->now;
        return false;
    }
    record_window(c, w);
    if (c->windows == 1 + 2 * THREAD_COUNT_ROUNDS)
        changed = end_trial(c, w, change);
    *threads = c->other && c->windows % 2 == 0 ? c->other : c->now;
    return changed;
}
