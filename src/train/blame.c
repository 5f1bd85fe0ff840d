#include "train/blame.h"

#include "world/world.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* A cause must explain so much of a wait. */
#define EXPLAINS 0.5
/* A step is long for its worker from here on. */
#define LONG_STEP 1.25
/* Waits below this part of a step are not worth a cause. */
#define WORTH 0.1
/* So many times more must one member's messages have taken than another's. */
#define CLEARLY 1.1
/* A task that shares its core with an evaluation takes twice as long, so that a little less than
 * half of the wait is more than usual. */
#define MORE 0.4
/* A part that is all but for what else takes its time. */
#define ALL 0.8
/* Heartbeats come at least so often, in multiples of their time: those of a live member may be
 * late. */
#define SILENT 1.9

void blame_put(struct blame_window *window, double value)
{
    window->value[window->count++ % BLAME_WINDOW] = (float)value;
}

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
    blame_put(&history->step_s, use->step_s);
    blame_put(&history->data_s, use->data_s);
    return true;
}

/* Bring the nth smallest to its place, and smaller ones before it (Hoare's selection). Medians are
 * taken for every exchange, of too few numbers for a sort to be worth its calls. */
static void select_nth(double *value, size_t count, size_t nth)
{
    ptrdiff_t n = (ptrdiff_t)nth, low = 0, high = (ptrdiff_t)count - 1;
    while (low < high) {
        double pivot = value[low + (high - low) / 2];
        ptrdiff_t i = low, j = high;
        while (i <= j) {
            while (value[i] < pivot)
                i++;
            while (value[j] > pivot)
                j--;
            if (i > j)
                break;
            double larger = value[i];
            value[i++] = value[j];
            value[j--] = larger;
        }
        if (n <= j)
            high = j;
        else if (n >= i)
            low = i;
        else
            return;
    }
}

static double find_median(double *value, size_t n)
{
    if (n == 0)
        return 0;
    select_nth(value, n, n / 2);
    if (n % 2)
        return value[n / 2];
    double below = value[0];
    for (size_t i = 1; i < n / 2; i++)
        below = value[i] > below ? value[i] : below;
    return (below + value[n / 2]) / 2;
}

double blame_median(const struct blame_window *window)
{
    double value[BLAME_WINDOW];
    size_t n = window->count < BLAME_WINDOW ? window->count : BLAME_WINDOW;
    for (size_t i = 0; i < n; i++)
        value[i] = (double)window->value[i];
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
    double own = blame_median(&history->step_s);
    out->cause = BLAME_STEP;
    out->factor = own > 0 ? step_s / own : 0;
    out->of_others = out->factor < LONG_STEP && others->step_s > 0;
    if (out->of_others)
        out->factor = step_s / others->step_s;
}

/* The time for a megabit, added up over the arrivals of which the member is one end. */
static double slowness_of(uint32_t node, const struct blame_use *use, size_t count)
{
    double slowness = 0;
    for (size_t i = 0; i < count; i++)
        if (use[i].arrival_mbit > 0 && (use[i].node == node || use[i].arrival_from == node))
            slowness += 1 / use[i].arrival_mbit;
    return slowness;
}

/* The rate at which the member sent, or else received. */
static double rate_of(uint32_t node, const struct blame_use *use, size_t count)
{
    double sent = 0, received = 0;
    for (size_t i = 0; i < count; i++) {
        double rate = use[i].arrival_mbit;
        if (use[i].node == node)
            received = rate;
        if (use[i].arrival_from == node && rate > 0 && (sent == 0 || rate < sent))
            sent = rate;
    }
    return sent > 0 ? sent : received;
}

static struct blame_verdict blame_link(const struct blame_use *use, size_t count)
{
    struct blame_verdict out = {.cause = BLAME_NONE};
    double most = 0, next = 0;
    for (size_t i = 0; i < count; i++) {
        double slowness = slowness_of(use[i].node, use, count);
        if (slowness > most) {
            next = most;
            most = slowness;
            out.node = use[i].node;
        } else if (slowness > next) {
            next = slowness;
        }
    }
    if (most > CLEARLY * next)
        out.cause = BLAME_LINK;
    out.mbit = rate_of(out.node, use, count);
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

static double silent_of(const struct blame_use *use)
{
    return use->silent_s;
}

/* The member that alone was silent, for about as much longer than usual as the others waited; NULL:
 * none. A stop began up to one heartbeat's time after the last heartbeat. Heartbeats that are late
 * behind other messages on a slow link come with waits that are as usual there. */
static const struct blame_use *find_stopped(const struct blame_use *use, size_t count,
                                            double waited_s, const struct blame_driver *driver)
{
    const struct blame_use *stopped = use;
    for (size_t i = 1; i < count; i++)
        if (use[i].silent_s > stopped->silent_s)
            stopped = &use[i];
    double others_s = median_of(stopped->node, use, count, silent_of), s = stopped->silent_s;
    double more_s = waited_s - (driver->usual_s > 0 ? driver->usual_s : 0), beat_s = driver->beat_s;
    bool alone = s >= SILENT * beat_s && s >= 1.5 * others_s;
    return beat_s > 0 && alone && s >= ALL * more_s && more_s >= ALL * (s - beat_s) ? stopped
                                                                                    : NULL;
}

/* Was the worker slower than it usually is, while the driver evaluated on its machine? */
static bool is_disturbed(const struct blame_use *use, const struct blame_verdict *long_step,
                         const struct blame_driver *driver)
{
    return use->on_driver_host && driver->evaluated_s > 0 && !long_step->of_others &&
           driver->evaluated_s >= EXPLAINS * long_step->late_s;
}

static struct blame_verdict blame_evaluation(const struct blame_driver *driver)
{
    return (struct blame_verdict){
        .cause = BLAME_EVALUATION, .node = WORLD_DRIVER, .evaluated_s = driver->evaluated_s};
}

/* All members came in time. Where every exchange has had an evaluation, a slow link is looked for
 * first. */
static struct blame_verdict blame_messages(const struct blame_use *use, size_t count,
                                           const struct blame_driver *driver)
{
    double more_s = driver->waited_s - (driver->usual_s > 0 ? driver->usual_s : 0);
    bool evaluated =
        driver->takes_part && driver->evaluated_s > 0 && driver->evaluated_s >= EXPLAINS * more_s;
    if (evaluated && driver->usual_s >= 0 && more_s >= MORE * driver->waited_s)
        return blame_evaluation(driver);
    struct blame_verdict link = blame_link(use, count);
    return link.cause == BLAME_NONE && evaluated && driver->usual_s < 0 ? blame_evaluation(driver)
                                                                        : link;
}

struct blame_verdict blame_find(const struct blame_history *history, const struct blame_use *use,
                                size_t count, const struct blame_driver *driver)
{
    struct blame_verdict out = {.cause = BLAME_NONE};
    double waited_s = longest_wait(use, count);
    if (count < 2)
        return out;
    const struct blame_use *stopped = find_stopped(use, count, waited_s, driver);
    if (stopped)
        return (struct blame_verdict){
            .cause = BLAME_STOP, .node = stopped->node, .silent_s = stopped->silent_s};
    const struct blame_use *latest = find_latest(use, count);
    const struct others others = look_at_others(latest->node, use, count);
    if (waited_s <= WORTH * others.both_s)
        return out;
    double late_s = both_of(latest) - others.both_s;
    if (late_s < EXPLAINS * waited_s)
        return blame_messages(use, count, driver);
    out.node = latest->node;
    out.late_s = late_s;
    if (latest->data_s - others.data_s >= EXPLAINS * late_s)
        out.cause = BLAME_DATA;
    else
        blame_step(&history[latest->node], latest->step_s, &others, &out);
    return out.cause == BLAME_STEP && is_disturbed(latest, &out, driver) ? blame_evaluation(driver)
                                                                         : out;
}

/* ---- asynchronous strategies ---- */

/* The median over all workers but `node` of their medians. */
static struct others look_at_medians(const struct blame_history *history, uint32_t node)
{
    double step_s[VIEW_MEMBERS_MAX], data_s[VIEW_MEMBERS_MAX];
    size_t n = 0;
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        if (i == node || history[i].step_s.count == 0)
            continue;
        step_s[n] = blame_median(&history[i].step_s);
        data_s[n++] = blame_median(&history[i].data_s);
    }
    return (struct others){
        .step_s = find_median(step_s, n), .data_s = find_median(data_s, n), .count = n};
}

static struct blame_verdict blame_slow_worker(const struct blame_history *history,
                                              const struct blame_wait *wait,
                                              const struct blame_driver *driver)
{
    struct blame_verdict out = {.cause = BLAME_NONE, .node = wait->on};
    const struct blame_history *of = &history[wait->on];
    const struct others others = look_at_medians(history, wait->on);
    double step_s = blame_median(&of->step_s), data_s = blame_median(&of->data_s);
    double late_s = step_s + data_s - others.step_s - others.data_s;
    if (driver->beat_s > 0 && wait->silent_s >= SILENT * driver->beat_s &&
        wait->silent_s >= EXPLAINS * wait->seconds) {
        out.cause = BLAME_STOP;
        out.silent_s = wait->silent_s;
    } else if (others.count == 0 || late_s < (LONG_STEP - 1) * (others.step_s + others.data_s)) {
        return out;
    } else if (data_s - others.data_s >= EXPLAINS * late_s) {
        out.cause = BLAME_DATA;
    } else {
        blame_step(of, step_s, &others, &out);
    }
    out.late_s = late_s;
    return out;
}

struct blame_verdict blame_find_async(const struct blame_history history[VIEW_MEMBERS_MAX],
                                      const struct blame_wait *wait,
                                      const struct blame_driver *driver)
{
    const struct blame_history *by = &history[wait->by];
    double own_s = blame_median(&by->step_s) + blame_median(&by->data_s);
    if (by->step_s.count == 0 || wait->seconds <= WORTH * own_s)
        return (struct blame_verdict){.cause = BLAME_NONE};
    if (wait->at_bound)
        return wait->on < VIEW_MEMBERS_MAX ? blame_slow_worker(history, wait, driver)
                                           : (struct blame_verdict){.cause = BLAME_NONE};
    if (wait->on == WORLD_DRIVER && driver->evaluated_s > 0 &&
        driver->evaluated_s >= EXPLAINS * wait->seconds)
        return blame_evaluation(driver);
    return (struct blame_verdict){
        .cause = BLAME_LINK, .node = wait->on, .mbit = wait->bytes * 8e-6 / wait->seconds};
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
    case BLAME_STOP: snprintf(out, BLAME_TEXT_MAX, "it was silent for %.3g s", v->silent_s); break;
    case BLAME_EVALUATION:
        snprintf(out, BLAME_TEXT_MAX, "it evaluated a model for %.3g s", v->evaluated_s);
        break;
    case BLAME_CAUSES: break;
    }
}

const char *blame_word(enum blame_cause cause)
{
    static const char *const words[BLAME_CAUSES] = {
        [BLAME_STEP] = "step",
        [BLAME_DATA] = "data",
        [BLAME_LINK] = "link",
        [BLAME_STOP] = "stop",
        [BLAME_EVALUATION] = "evaluation",
    };
    return words[cause];
}
