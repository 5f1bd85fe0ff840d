/* Where the time of each node went, out of a trace (`--trace FILE`, docs/COMMANDS.md). The file may
 * be anybody's: nothing of it is trusted, and memory is bounded. */
#ifndef PL_CLI_TRACE_SUMMARY_H
#define PL_CLI_TRACE_SUMMARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In each moment a node does one of these: the first that a span covers. So an exchange in the
 * background of a step counts as computing, and `wait` is the time in which nothing else was
 * done. Each has its name in the file, its label in sums, and the one in timelines. */
#define TRACE_PURPOSES(X)                              \
    X(DATA, "data", "data", "data")                    \
    X(COPY, "copy", "copy", "copy")                    \
    X(UPDATE, "update", "compute", "compute")          \
    X(EVALUATE, "evaluate", "evaluate", "evaluate")    \
    X(COMPUTE, "compute", "compute", "compute")        \
    X(WAIT, "wait", "wait", "wait")                    \
    X(EXCHANGE, "exchange", "exchange", "exchange")    \
    X(SEND, "send", "exchange", "send")                \
    X(REDUCE, "reduce", "exchange", "reduce")          \
    X(PREPARE, "prepare", "exchange", "prepare")       \
    X(BROADCAST, "broadcast", "exchange", "broadcast") \
    X(OTHER, "", "other", "other")

enum trace_purpose {
#define TRACE_PURPOSE(name, span, label, drawn) PURPOSE_##name,
    TRACE_PURPOSES(TRACE_PURPOSE)
#undef TRACE_PURPOSE
        PURPOSES
};

/* Labels of several purposes may be equal: they are then shown as one. */
extern const char *const trace_purpose_labels[PURPOSES], *const trace_purpose_drawn[PURPOSES];

enum { TRACE_NODES_MAX = 512, TRACE_SPANS_MAX = 8 << 20 };

/* A span: process and thread of the file; the peer that a wait is for. Nodes are the driver, 0, and
 * worker n, n + 1. */
struct trace_piece {
    double start, end; /* seconds since the run began */
    uint16_t node, row;
    int16_t peer; /* a node; -1: none, or not known */
    uint8_t purpose;
};

struct trace_row {
    uint16_t node, row;
    char name[48];
};

struct trace_summary {
    struct trace_piece *piece; /* by node, in the order of their starts */
    size_t pieces, room;
    bool too_long; /* later spans are left out */
    struct trace_row *name;
    size_t names, names_room;
    uint16_t nodes;
    bool there[TRACE_NODES_MAX];
    double begin, end;
    double seconds[TRACE_NODES_MAX][PURPOSES];
    /* [waits][for], nodes * nodes: of all waits; of the time in which nothing else was done. */
    double *waited, *stood;
};

/* NULL after a message on stderr that names the file: it cannot be read, or is no trace. */
struct trace_summary *trace_summary_read(const char *command, const char *path);
void trace_summary_free(struct trace_summary *trace); /* NULL allowed */

#endif
