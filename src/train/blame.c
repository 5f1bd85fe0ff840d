#include "train/blame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A cause must explain so much of a wait. */
#define EXPLAINS 0.5
/* A step is long for its worker from here on. */
#define LONG_STEP 1.25
/* Waits below this part of a step are not worth a cause. */
#define WORTH 0.1
/* Rates up to this multiple of the slowest are as slow. */
#define ALIKE 2

bool blame_take(struct blame_history *history, uint32_t node, const struct blame_report *report,
                struct blame_use *use)
{
    const struct blame_report last = history->last;
    double step = report->steps_s - last.steps_s, data = report->data_s - last.data_s;
    bool follows = history->has_last && step >= 0 && data >= 0;
    history->last = *report;
    history->has_last = true;
    if (!follows)
        return false;
    *use = (struct blame_use){
        .node = node,
        .step_s = step > data ? step - data : 0,
        .data_s = data,
        .waited_s = report->waited_s,
        .arrival_mbit = report->arrival_mbit,
        .arrival_from = report->arrival_from,
    };
    history->step_s[history->count++ % BLAME_WINDOW] = (float)use->step_s;
    return true;
}

static int compare_numbers(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double find_median(double *value, size_t n)
{
    if (n == 0)
        return 0;
    qsort(value, n, sizeof *value, compare_numbers);
    return n % 2 ? value[n / 2] : (value[n / 2 - 1] + value[n / 2]) / 2;
}

static double own_median(const struct blame_history *history)
{
    double value[BLAME_WINDOW];
    size_t n = history->count < BLAME_WINDOW ? history->count : BLAME_WINDOW;
    for (size_t i = 0; i < n; i++)
        value[i] = (double)history->step_s[i];
    return find_median(value, n);
}

/* Medians of the members but `node`. */
struct others {
    double step_s, data_s, both_s;
    size_t count;
};

static double step_of(const struct blame_use *use)
{
    return use->step_s;
}

static double data_of(const struct blame_use *use)
{
    return use->data_s;
}

static double both_of(const struct blame_use *use)
{
    return use->step_s + use->data_s;
}

static double median_of(uint32_t node, const struct blame_use *use, size_t count,
                        double (*number)(const struct blame_use *use))
{
    double value[VIEW_MEMBERS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < count && n < VIEW_MEMBERS_MAX; i++)
        if (use[i].node != node)
            value[n++] = number(&use[i]);
    return find_median(value, n);
}

static struct others look_at_others(uint32_t node, const struct blame_use *use, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += use[i].node != node;
    return (struct others){
        .step_s = median_of(node, use, count, step_of),
        .data_s = median_of(node, use, count, data_of),
        .both_s = median_of(node, use, count, both_of),
        .count = n,
    };
}

static void blame_step(const struct blame_history *history, double step_s,
                       const struct others *others, struct blame_verdict *out)
{
    double own = own_median(history);
    out->cause = BLAME_STEP;
    out->factor = own > 0 ? step_s / own : 0;
    out->of_others = out->factor < LONG_STEP && others->step_s > 0;
    if (out->of_others)
        out->factor = step_s / others->step_s;
}

/* Is the member one end of an arrival that took about as long as the slowest? */
static unsigned count_slow_ends(uint32_t node, double slowest, const struct blame_use *use,
                                size_t count)
{
    unsigned ends = 0;
    for (size_t i = 0; i < count; i++)
        if (use[i].arrival_mbit > 0 && use[i].arrival_mbit <= ALIKE * slowest)
            ends += (use[i].node == node ? 1u : 0u) + (use[i].arrival_from == node ? 1u : 0u);
    return ends;
}

/* The rate at which the member sent, or else at which its link was seen. */
static double rate_of(uint32_t node, double slowest, const struct blame_use *use, size_t count)
{
    double rate = 0;
    for (size_t i = 0; i < count; i++)
        if (use[i].arrival_from == node && use[i].arrival_mbit > 0 &&
            (rate == 0 || use[i].arrival_mbit < rate))
            rate = use[i].arrival_mbit;
    return rate > 0 && rate <= ALIKE * slowest ? rate : slowest;
}

static struct blame_verdict blame_link(const struct blame_use *use, size_t count)
{
    struct blame_verdict out = {.cause = BLAME_NONE};
    double slowest = 0;
    unsigned most = 0;
    for (size_t i = 0; i < count; i++)
        if (use[i].arrival_mbit > 0 && (slowest == 0 || use[i].arrival_mbit < slowest))
            slowest = use[i].arrival_mbit;
    for (size_t i = 0; i < count; i++) {
        unsigned ends = count_slow_ends(use[i].node, slowest, use, count);
        if (ends > most)
            out = (struct blame_verdict){.cause = BLAME_LINK, .node = use[i].node, .mbit = slowest};
        else if (ends == most)
            out.cause = BLAME_NONE;
        most = ends > most ? ends : most;
    }
    out.mbit = rate_of(out.node, slowest, use, count);
    return out;
}

/* The member that came latest. */
static const struct blame_use *find_latest(const struct blame_use *use, size_t count)
{
    const struct blame_use *latest = use;
    for (size_t i = 1; i < count; i++)
        if (both_of(&use[i]) > both_of(latest))
            latest = &use[i];
    return latest;
}

static double longest_wait(const struct blame_use *use, size_t count)
{
    double longest = 0;
    for (size_t i = 0; i < count; i++)
        longest = use[i].waited_s > longest ? use[i].waited_s : longest;
    return longest;
}

struct blame_verdict blame_find(const struct blame_history *history, const struct blame_use *use,
                                size_t count)
{
    struct blame_verdict out = {.cause = BLAME_NONE};
    double waited_s = longest_wait(use, count);
    if (count < 2)
        return out;
    const struct blame_use *latest = find_latest(use, count);
    const struct others others = look_at_others(latest->node, use, count);
    if (waited_s <= WORTH * others.both_s)
        return out;
    double late_s = both_of(latest) - others.both_s;
    if (late_s < EXPLAINS * waited_s)
        return blame_link(use, count);
    out.node = latest->node;
    out.late_s = late_s;
    if (latest->data_s - others.data_s >= EXPLAINS * late_s)
        out.cause = BLAME_DATA;
    else
        blame_step(&history[latest->node], latest->step_s, &others, &out);
    return out;
}

void blame_print(const struct blame_verdict *v, char out[BLAME_TEXT_MAX])
{
    out[0] = '\0';
    switch (v->cause) {
    case BLAME_NONE: break;
    case BLAME_STEP:
        snprintf(out, BLAME_TEXT_MAX, "its step took %.1f × %s median", v->factor,
                 v->of_others ? "the others'" : "its");
        break;
    case BLAME_DATA: snprintf(out, BLAME_TEXT_MAX, "its data came %.3g s late", v->late_s); break;
    case BLAME_LINK: snprintf(out, BLAME_TEXT_MAX, "its link sent at %.3g Mbit/s", v->mbit); break;
    }
}

const char *blame_word(enum blame_cause cause)
{
    static const char *const words[] = {
        [BLAME_NONE] = NULL, [BLAME_STEP] = "step", [BLAME_DATA] = "data", [BLAME_LINK] = "link"};
    return words[cause];
}
