/* Checks of simulated runs of the tiny job for the tests of strategies: the times of each worker's
 * steps and exchanges, and that the ledger accounts for every sample. */
#ifndef PL_LIB_STRATEGY_SIM_H
#define PL_LIB_STRATEGY_SIM_H

#include "sim_run.h"
#include "trace_events.h"

/* Of the tiny job: 600 records, 60 of them for validation. */
enum { SIM_RECORDS = TINY_TRAIN - 60, SIM_BATCH = 16 };

#define SIM_CALM "node { count: 4 } step_seconds: 0.004 link { mbit: 100 }\n"
#define SIM_SAME 1e-5 /* max |a − b| / max |b|, where only sums are cut otherwise */

/* ---- the book ---- */

/* Every sample up to the run's offset has been used or missed; with leases, used or repeated. */
static inline void sim_adds_up(const struct sim_run *r)
{
    const pl_run_report *end = &r->report;
    double place = end->epochs * SIM_RECORDS, used = (double)end->used, odd = 1e-6 * place;
    bool in_step = fabs(used + (double)end->missed - place) < odd;
    assert_true(in_step || (used < place + odd && place < used + (double)end->repeated + odd));
}

/* A worker dies at `deaths` moments all over a run of three epochs, each worker in turn: each time
 * the others end it well, and soon share its records among them; at most its part of `steps` steps
 * is missed, and with 0 nothing ever is. The run is never twice as long for it. */
static inline void sim_survives(struct tiny *t, const char *const *set, int deaths, uint64_t steps)
{
    struct sim_run whole = {0};
    uint64_t most = 0;
    sim_do(t, SIM_CALM, &whole, set);
    sim_adds_up(&whole);
    assert_int_equal(whole.report.missed, 0);
    for (int i = 0; i < deaths; i++) {
        char cluster[256];
        struct sim_run r = {0};
        snprintf(cluster, sizeof cluster, SIM_CALM "fault { at: %.9f kill: %d }",
                 whole.report.wall_s * (2 + i) / (deaths + 2), i % 4);
        sim_do(t, cluster, &r, set);
        sim_adds_up(&r);
        assert_string_equal(r.report.reason, "epochs");
        assert_true(r.report.epochs >= 3);
        assert_true(r.report.wall_s < 2 * whole.report.wall_s + 2);
        most = r.report.missed > most ? r.report.missed : most;
    }
    print_message("    %s: at most %u of %u records missed\n", set[0], (unsigned)most,
                  (unsigned)steps * SIM_BATCH);
    assert_true(most <= steps * SIM_BATCH && (most > 0 || steps == 0));
}

/* ---- timelines ---- */

struct sim_span {
    double start, end;
};

/* The spans of that name in a worker's trace are these, in seconds from `zero`. Of the waits, those
 * of the task that trains. */
static inline void sim_spans(const struct trace_events *trace, int worker, const char *name,
                             double zero, const struct sim_span *want, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < trace->count; i++) {
        const struct trace_event *s = &trace->at[i];
        if (s->pid != TRACE_WORKER + worker || strcmp(s->name, name) != 0 ||
            (strcmp(name, "wait") == 0 && strcmp(s->row, "steps") != 0))
            continue;
        double start = (double)s->start / 1e9 - zero, end = (double)s->end / 1e9 - zero;
        if (k < n && (fabs(start - want[k].start) > 1e-5 || fabs(end - want[k].end) > 1e-5))
            fail_msg("worker %d, %s %zu: %.6f to %.6f s, drawn from %.6f to %.6f", worker, name, k,
                     start, end, want[k].start, want[k].end);
        k++;
    }
    assert_int_equal(k, n);
}

#define SIM_SPANS(trace, worker, name, zero, ...)                                \
    sim_spans(trace, worker, name, zero, (const struct sim_span[]){__VA_ARGS__}, \
              sizeof((struct sim_span[]){__VA_ARGS__}) / sizeof(struct sim_span))

/* When the first step of all began. */
static inline double sim_zero(const struct trace_events *trace)
{
    int64_t first = INT64_MAX;
    for (size_t i = 0; i < trace->count; i++)
        if (strcmp(trace->at[i].name, "compute") == 0 && trace->at[i].start < first)
            first = trace->at[i].start;
    assert_true(first < INT64_MAX);
    return (double)first / 1e9;
}

/* Of the `exchange` events: the lane and number of the kth, and when the driver closed it. */
static inline void sim_exchange(const struct sim_run *r, int k, int lane, int n, double zero,
                                double at)
{
    double t = run_number(r->dir, "exchange", k, "t") - zero;
    if (run_number(r->dir, "exchange", k, "lane") != lane ||
        run_number(r->dir, "exchange", k, "n") != n || !(fabs(t - at) < 1e-5))
        fail_msg("exchange %d: lane %g, n %g, at %.6f s; drawn: %d, %d, %.6f", k,
                 run_number(r->dir, "exchange", k, "lane"), run_number(r->dir, "exchange", k, "n"),
                 t, lane, n, at);
}

#endif
