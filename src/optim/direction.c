#include "optim/direction.h"

#include "base/fault.h"
#include "base/status.h"

int direction_init(struct direction *direction, const struct direction_ops *ops, size_t history,
                   size_t n, struct arena *arena)
{
    PL_ASSERT(history > 0 && history <= DIRECTION_HISTORY_MAX);
    *direction = (struct direction){.ops = ops, .history = history};
    size_t vectors = ops->vectors(history);
    direction->memory = arena_array(arena, vectors, struct vec);
    int rc = vectors > 0 && !direction->memory ? ERR_NOMEM : OK;
    for (size_t i = 0; rc == OK && i < vectors; i++)
        rc = vec_init(&direction->memory[i], arena, n);
    return rc;
}

void direction_forget(struct direction *direction)
{
    direction->kept = 0;
}

static double dot_of(const struct vec *a, const struct vec *b)
{
    return vec_dot(a, b, vec_all(a));
}

/* y ← y + a·x */
static void add_scaled(struct vec *y, double a, const struct vec *x)
{
    vec_axpy(y, (float)a, x, vec_all(y));
}

/* ---- conjugate gradient ---- */

static size_t cg_vectors(size_t history)
{
    (void)history;
    return 0;
}

static void cg_next(struct direction *direction, const struct descent_step *step, struct vec *d)
{
    (void)direction;
    const struct vec *before = step->gradient_before, *after = step->gradient_after;
    double square = dot_of(before, before);
    double beta = square > 0 ? (dot_of(after, after) - dot_of(after, before)) / square : 0;
    vec_scale(d, (float)(beta > 0 ? beta : 0), vec_all(d));
    add_scaled(d, -1, after);
}

const struct direction_ops direction_cg = {
    .name = "cg",
    .curvature = 0.1, /* as Nocedal and Wright advise below Eq. 3.7 */
    .vectors = cg_vectors,
    .next = cg_next,
};

/* ---- L-BFGS ---- */

/* Of the pair at that place: s, and behind all s its y. */
static struct vec *step_of(const struct direction *direction, size_t place)
{
    return &direction->memory[place];
}

static struct vec *change_of(const struct direction *direction, size_t place)
{
    return &direction->memory[direction->history + place];
}

static size_t lbfgs_vectors(size_t history)
{
    return 2 * history;
}

/* The place of the pair before the newest by `age`. */
static size_t place_of(const struct direction *direction, size_t age)
{
    return (direction->newest + direction->history - age) % direction->history;
}

static void keep_pair(struct direction *direction, const struct descent_step *step)
{
    size_t place = (direction->newest + 1) % direction->history;
    struct vec *s = step_of(direction, place), *y = change_of(direction, place);
    vec_copy(s, step->after, vec_all(s));
    add_scaled(s, -1, step->before);
    vec_copy(y, step->gradient_after, vec_all(y));
    add_scaled(y, -1, step->gradient_before);
    double curvature = dot_of(s, y);
    if (!(curvature > 0)) {
        /* Its place held the oldest pair. */
        if (direction->kept == direction->history)
            direction->kept--;
        return;
    }
    direction->newest = place;
    direction->curvature[place] = curvature;
    if (direction->kept < direction->history)
        direction->kept++;
}

static void lbfgs_next(struct direction *direction, const struct descent_step *step, struct vec *d)
{
    double alpha[DIRECTION_HISTORY_MAX];
    keep_pair(direction, step);
    vec_copy(d, step->gradient_after, vec_all(d));
    for (size_t age = 0; age < direction->kept; age++) {
        size_t i = place_of(direction, age);
        alpha[i] = dot_of(step_of(direction, i), d) / direction->curvature[i];
        add_scaled(d, -alpha[i], change_of(direction, i));
    }
    if (direction->kept > 0) {
        const struct vec *y = change_of(direction, direction->newest);
        vec_scale(d, (float)(direction->curvature[direction->newest] / dot_of(y, y)), vec_all(d));
    }
    for (size_t age = direction->kept; age-- > 0;) {
        size_t i = place_of(direction, age);
        double beta = dot_of(change_of(direction, i), d) / direction->curvature[i];
        add_scaled(d, alpha[i] - beta, step_of(direction, i));
    }
    vec_scale(d, -1.0f, vec_all(d));
}

const struct direction_ops direction_lbfgs = {
    .name = "lbfgs",
    .curvature = 0.9,
    .is_scaled = true,
    .vectors = lbfgs_vectors,
    .next = lbfgs_next,
};
