/* Runs of the tiny job with a lossy wire, with and without deaths and a join. */
#ifndef PL_LIB_LOSSY_RUN_H
#define PL_LIB_LOSSY_RUN_H

#include "strategy_sim.h"

#include <math.h>

#define SHORT  "stop={epochs:8}"
#define MEDIUM "stop={epochs:10}"
#define LONG   "stop={epochs:16}"

#define FAULTS \
    SIM_CALM "fault { at: 0.1 join: 3 } fault { at: 0.2 kill: 1 } fault { at: 0.3 kill: 0 }"

struct lossy_outcome {
    double error, loss, bytes;
};

static inline struct lossy_outcome lossy_run(struct tiny *t, const char *cluster,
                                             const char *strategy, const char *wire,
                                             const char *stop)
{
    struct sim_run r = {0};
    char set[40];
    snprintf(set, sizeof set, "collective.wire=%s", wire);
    SIM(t, cluster, &r, strategy, set, stop, "evaluate.every_steps=1000",
        strstr(cluster, "join") ? "workers=3" : "workers=4",
        strstr(strategy, "asp") || strstr(strategy, "downpour")
            ? "solver={base_lr:0.1 lr_policy:'fixed'}"
            : "batch=16");
    sim_adds_up(&r);
    assert_string_equal(r.report.reason, "epochs");
    struct lossy_outcome out = {run_number(r.dir, "end", 0, "test_error"),
                                run_number(r.dir, "end", 0, "test_loss"), 0};
    for (int k = 0; k < 12; k++)
        out.bytes += run_number(r.dir, "exchange", k, "bytes");
    print_message("    %s, %s: error %.4f, loss %.4f, %.0f bytes\n", strategy, wire, out.error,
                  out.loss, out.bytes);
    return out;
}

/* As good as f32 with fewer bytes. A third of a point is less than one of the 120 records. */
static inline void lossy_agrees(struct tiny *t, const char *strategy, const char *wire)
{
    struct lossy_outcome f32 = lossy_run(t, SIM_CALM, strategy, "f32", SHORT);
    struct lossy_outcome got = lossy_run(t, SIM_CALM, strategy, wire, SHORT);
    assert_true(got.error <= f32.error + 0.003 && got.bytes < f32.bytes);
    /* Where workers do not wait, pushes come in another order, which alone moves the loss. */
    assert_true(got.loss < 2 * f32.loss + 0.003);
}

/* Of 16 numbers one is sent: a longer run comes to the same error. */
static inline void lossy_trains(struct tiny *t, const char *strategy)
{
    struct lossy_outcome got = lossy_run(t, SIM_CALM, strategy, "topk16", LONG);
    assert_true(got.error <= 0.003);
}

/* Residuals of the dead are lost; a joiner has none. */
static inline void lossy_survives(struct tiny *t, const char *strategy, const char *wire)
{
    struct lossy_outcome got = lossy_run(t, FAULTS, strategy, wire, MEDIUM);
    assert_true(got.error < 0.1);
}

static inline void lossy_refused(struct tiny *t, const char *strategy, const char *wire,
                                 const char *other, const char *why)
{
    struct sim_run r = {0};
    SIM_TRY(t, SIM_CALM, &r, strategy, wire, other);
    assert_int_not_equal(r.rc, PL_OK);
    assert_non_null(strstr(r.error, why));
}

#endif
