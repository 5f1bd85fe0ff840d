/* A line search for the strong Wolfe conditions, as a state machine over numbers: it says where to
 * evaluate φ(a) = f(x + a·d) next, and its caller does. With slopes φ'(a) = d·∇f(x + a·d),
 *
 *     φ(a) ≤ φ(0) + c1·a·φ'(0)    and    |φ'(a)| ≤ c2·|φ'(0)|
 *
 * (Nocedal and Wright, Numerical Optimization, 2nd ed., Eq. 3.7; Algorithm 3.5 brackets such a step
 * and Algorithm 3.6, "zoom", narrows the bracket). The next step is the minimum of the cubic
 * through both ends (Eq. 3.59), kept away from them.
 *
 * Near the minimum φ changes by less than the rounding of its values. So values that differ by
 * LINE_NOISE·|φ(0)| at most count as equal, and the slopes decide (Hager and Zhang 2005, "A new
 * conjugate gradient method with guaranteed descent and an efficient line search", §4, the
 * approximate Wolfe conditions, with their ε). */
#ifndef PL_OPTIM_LINE_SEARCH_H
#define PL_OPTIM_LINE_SEARCH_H

#include <stdbool.h>

#define LINE_NOISE 1e-6

enum { LINE_TRIES_MAX = 25 };

struct line_point {
    double step, value, slope;
};

struct line_search {
    double decrease, curvature; /* c1 and c2, 0 < c1 < c2 < 1 */
    double trial;               /* the step to evaluate */
    struct line_point start;    /* at step 0 */
    /* The end with the smaller value, which has decreased enough; and the other end, or while the
     * bracket still grows nothing. */
    struct line_point low, high;
    bool is_bracketed;
    unsigned tries; /* evaluations so far */
};

enum line_verdict {
    LINE_TRY,    /* evaluate at `trial`, and call line_search_next with the result */
    LINE_ACCEPT, /* the step `trial`, which has just been evaluated, meets both conditions */
    LINE_FAIL,   /* LINE_TRIES_MAX evaluations were not enough; `low` is the best step, perhaps 0 */
};

/* Begin at a point of that value and slope, which is below 0, with the step `trial` above 0. */
void line_search_begin(struct line_search *search, double decrease, double curvature, double value,
                       double slope, double trial);

/* φ and φ' at `trial`. A value that is not finite counts as too large. */
enum line_verdict line_search_next(struct line_search *search, double value, double slope);

#endif
