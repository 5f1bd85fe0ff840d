/* A run so far, out of its events (docs/EVENTS.md): curves, totals, who was waited
 * for, and moments such as the loss of a worker. The report, the live page and the metrics show the
 * same summary. Events may come from a file that anybody has written: nothing of them is trusted,
 * and the memory is bounded by the number of events, or with `bounded` by a constant. */
#ifndef PL_CLI_RUN_SUMMARY_H
#define PL_CLI_RUN_SUMMARY_H

#include "cli/run_hosts.h"
#include "cli/run_series.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

/*        name              key                 label                       unit  */
#define RUN_CURVES(X)                                                    \
    X(VALIDATION_ERROR, "validation_error", "validation error", "share") \
    X(TEST_ERROR, "test_error", "test error", "share")                   \
    X(TRAIN_LOSS, "train_loss", "training loss", "")                     \
    X(VALIDATION_LOSS, "validation_loss", "validation loss", "")         \
    X(TEST_LOSS, "test_loss", "test loss", "")                           \
    X(RATE, "rate", "learning rate", "")                                 \
    X(BATCH, "batch", "batch of all workers", "samples")                 \
    X(WORKERS, "workers", "workers", "")                                 \
    X(SPEED, "samples_per_s", "throughput", "samples/s")                 \
    X(EXCHANGE, "exchange_s", "exchange", "s")                           \
    X(WAITED, "waited_s", "longest wait in an exchange", "s")

enum run_curve {
#define RUN_CURVE(name, key, label, unit) CURVE_##name,
    RUN_CURVES(RUN_CURVE)
#undef RUN_CURVE
        CURVES
};

extern const char *const run_curve_keys[CURVES], *const run_curve_labels[CURVES],
                                                     *const run_curve_units[CURVES];

enum mark_kind { MARK_FAULT, MARK_RECOVERY, MARK_MEMBER, MARK_CHECKPOINT, MARK_NOTE, MARK_KINDS };

extern const char *const run_mark_names[MARK_KINDS];

/* A moment of the run: a fault, a recovery, a change. */
struct run_mark {
    struct run_point at; /* value: the worker; NAN: none */
    enum mark_kind kind;
    char text[160];
};

enum { RUN_MARKS_MAX = 2000, RUN_SAMPLES_MAX = 3 };

/* Of an exchange's wait, by its event: the node's step took long, its data came late, its link was
 * slow, it stood still, it evaluated a model. */
enum wait_cause { CAUSE_STEP, CAUSE_DATA, CAUSE_LINK, CAUSE_STOP, CAUSE_EVALUATION, CAUSES };

/* Node n is at n + 1, and the driver at 0. */
struct run_waited {
    uint64_t count;      /* exchanges in which it was waited for longest */
    double seconds;      /* the sum of these waits */
    uint64_t by[CAUSES]; /* exchanges in which it was waited for by this cause */
};

/* One exchange's longest wait, of those whose cause is known. */
struct run_wait {
    double t, seconds;
    uint64_t exchange;
    char text[160]; /* a sentence */
};

enum { RUN_WAITS_MAX = 8 };

struct run_summary {
    bool bounded;           /* curves are reduced where they become long */
    cJSON *start, *end;     /* the newest; NULL: none yet */
    cJSON *machines, *sets; /* arrays of the events `machine` and `records` */
    struct run_hosts hosts;
    char *sample[RUN_SAMPLES_MAX]; /* the newest texts that the model has drawn, newest first */
    struct run_series curve[CURVES];
    uint64_t reductions;  /* how often curves were */
    struct run_point now; /* where the run is; value: the training loss */
    double step, records; /* of each worker; training records, 0: unknown */
    struct run_mark mark[RUN_MARKS_MAX];
    size_t marks, marks_left_out;
    bool in_view[RUN_NODES_MAX];
    uint32_t workers, nodes; /* in the view; one more than the highest number that was seen */
    struct run_waited waited[RUN_NODES_MAX + 1];
    struct run_wait wait[RUN_WAITS_MAX]; /* the longest ones, the longest first */
    size_t waits;
    uint64_t exchanges, rejected, bad_records, faults, recoveries, checkpoints, sessions;
    double exchange_s, exchange_bytes, waited_s;
    uint64_t lines, unreadable; /* lines that were no event */
    bool trained; /* there has been a loss in this session: a join is one into a running run */
    bool failed;  /* memory ran out: the summary is not whole */
};

/* A summary without events. It is large: allocate it. */
struct run_summary *run_summary_create(bool bounded);
void run_summary_free(struct run_summary *summary); /* NULL allowed */

/* Take in an event; `line` has no line end. A line that is no event is counted. */
void run_summary_line(struct run_summary *summary, const char *line, size_t length);

/* Take in a file of events. A line above 1 MiB, and a last line that a crash has cut, are counted
 * as unreadable. false after a message on stderr: it cannot be read, has no event, or memory ran
 * out. */
bool run_summary_read(struct run_summary *summary, const char *command, const char *path);

#endif
