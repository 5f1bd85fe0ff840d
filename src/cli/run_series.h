/* A curve of a run: points in the order of time. */
#ifndef PL_CLI_RUN_SERIES_H
#define PL_CLI_RUN_SERIES_H

#include <stdbool.h>
#include <stddef.h>

struct run_point {
    double t;              /* seconds since the run began */
    double epoch, samples; /* where the run was */
    double value;          /* NAN: the event had none that is finite */
};

struct run_series {
    struct run_point *point; /* owned */
    size_t count, room;
    size_t placed; /* of the first so many epoch and samples are final */
};

/* Append a point. `placed`: its epoch and samples are known, as are those of all before it. false:
 * out of memory. */
bool run_series_add(struct run_series *series, const struct run_point *point, bool placed);

/* The run was at `from`, and is at `to`: points that are not placed get their epoch and samples by
 * their time between the two. */
void run_series_place(struct run_series *series, const struct run_point *from,
                      const struct run_point *to);

/* Keep of each of `columns` equal stretches of time the first, the least, the greatest and the last
 * point, and the first that is not finite: a line through them has in each column the pixels of a
 * line through all points. No effect on up to 4 * columns points. */
void run_series_reduce(struct run_series *series, size_t columns);

/* A copy whose points the caller owns. false: out of memory. */
bool run_series_copy(const struct run_series *series, struct run_series *out);

void run_series_release(struct run_series *series);

#endif
