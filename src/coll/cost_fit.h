/* Measurements → prices: the line u + b·v through the probes of a link, and the paper's prices
 * through its own tables (Elastic, Tables 4.3 and 4.4). Both fits are relative: a sum of squares of
 * log(predicted / measured), or of its first-order twin, so that a microsecond's probe counts as
 * much as a second's. */
#ifndef PL_COLL_COST_FIT_H
#define PL_COLL_COST_FIT_H

#include "coll/cost.h"

#include "base/err.h"

/* One message that was timed, one way. */
struct cost_probe {
    double bytes, seconds;
};

/* Sort the probes by size and keep one a size, the median of its repeats, at the front of `probe`.
 * Returns their number. */
size_t cost_fit_medians(struct cost_probe *probe, size_t n);

/* The line of a link. `residual` is the root mean square of (line / median - 1) over the sizes. */
struct cost_line {
    double u, v; /* s, s/byte; neither below 0 */
    double residual;
};

/* Least squares through the median of each size, weighted by 1/median². Leaves the medians in
 * `probe`.
 * ERR_INPUT: fewer than two sizes, or a number that is not finite, a size below 0 or a time not
 * above 0; `line` untouched. */
int cost_fit_line(struct cost_probe *probe, size_t n, struct cost_line *line, struct err *err);

enum { COST_PAPER_FIGURES = 9 };

/* A figure of the paper and the fitted model's value of it. */
struct cost_figure {
    enum coll_algorithm algorithm; /* COLL_TREE: "original"; COLL_BUTTERFLY: "new" */
    double ranks, floats;
    double published, fitted; /* s; a stage of Table 4.3 stands here times log2 p */
};

struct cost_paper {
    struct cost_model model;
    double residual; /* root mean square of log(fitted / published) */
    struct cost_figure figure[COST_PAPER_FIGURES];
};

/* Eq. 4.1 + 4.2 and 4.7 through the published times, with 20 cores and blocks of 4 MiB.
 *
 * The tables determine v, z and g only through two slopes, 6v + 12z + 5g (tree, 32 nodes) and v +
 * (2z + g)/c (butterfly). Of the equally good triples this is the one with the smallest z² + g². */
struct cost_paper cost_fit_paper(void);

#endif
