/* Flat vectors and the closed set of updates on them (D1, D8).
 *
 * A vec is in a device's memory; today that is the host's. A strategy that moves vectors never
 * dereferences one: it exports and imports ranges and calls the updates below. Each update is
 * element-wise IEEE arithmetic in float (add, mul, div, sqrt; no contraction), so every
 * instruction-set variant gives the same bits; sums run in double over fixed blocks of VEC_BLOCK
 * elements counted from the start of the vector, so they do not depend on the number of threads.
 *
 * Ranges are [from, from + len) in floats. Updates that know a rate take the segment table and
 * multiply rate and decay by each segment's lr_mult and decay_mult; padding is never touched by
 * them. All vectors of one call must be at least from + len long, and outputs must not overlap
 * other arguments of the call; both are asserted. Nothing here allocates, blocks or fails.
 *
 * Long ranges run on the caller's OpenMP threads, except in vec_export, vec_import, vec_hash and
 * the host forms, which do not create a pool of threads for their caller. */
#ifndef PL_TENSOR_VEC_H
#define PL_TENSOR_VEC_H

#include "tensor/segment.h"

#include <stdbool.h>

enum { VEC_BLOCK = 4096 };

struct vec {
    float *at; /* host memory, 64-byte aligned; only tensor, nn and learner look inside */
    size_t n;
};

struct range {
    size_t from, len;
};

static inline struct range vec_all(const struct vec *v)
{
    return (struct range){0, v->n};
}

/* The n floats from `from` on: a view of them, not a copy. */
static inline struct vec vec_part(const struct vec *v, size_t from, size_t n)
{
    return (struct vec){v->at + from, n};
}

/* Part i (< parts) of n floats that are cut into equal parts. Parts follow one another without gaps
 * and cover all n. Part i begins at the last multiple of `unit` that is not past i·n/parts, so each
 * differs from n/parts by less than a unit; with fewer units than parts, some are empty. */
struct range range_cut(size_t n, size_t parts, size_t i, size_t unit);

/* Shard i of a vector of n floats, wherever layers end: a range_cut at multiples of VEC_BLOCK when
 * every shard gets a whole block so, else of SEGMENT_ALIGN. */
struct range range_shard(size_t n, size_t shards, size_t i);

/* n zeroed floats from the arena. ERR_NOMEM. */
int vec_init(struct vec *v, struct arena *arena, size_t n);

/* One zeroed vector for a model, the n_x parameters x and then the n_s floats of the state s, and
 * the two parts of it. ERR_NOMEM. */
int vec_init_model(struct vec *both, struct vec *x, struct vec *s, struct arena *arena, size_t n_x,
                   size_t n_s);

/* Write a 0 to each page of a vector that is still 0, so that the system allocates it: on a virtual
 * machine that takes a quarter of a second per 100 MB. Any thread may call it while no other uses
 * the vector. */
void vec_touch(struct vec *v);

/* Copy a range out to, or in from, host memory (len floats, borrowed). */
void vec_export(const struct vec *v, struct range r, float *out);
void vec_import(struct vec *v, struct range r, const float *in);

/* Call fn for blocks of VEC_BLOCK floats at most, which together are the range, by all threads
 * where it is long: for equations of several passes, so that a block stays in the cache. */
void vec_each_block(struct range r, void (*fn)(void *user, struct range block), void *user);

void vec_fill(struct vec *y, struct range r, float value);
void vec_copy(struct vec *y, const struct vec *x, struct range r);
void vec_scale(struct vec *y, float a, struct range r);                     /* y ← a·y */
void vec_axpy(struct vec *y, float a, const struct vec *x, struct range r); /* y ← y + a·x */
void vec_lerp(struct vec *y, float t, const struct vec *x, struct range r); /* y ← (1−t)·y + t·x */
/* MPCA Eq. 7: x ← x − α·(x − x̃). */
void vec_penalise(struct vec *x, float alpha, const struct vec *joint, struct range r);
/* MPCA Eq. 4, 5: v ← δ·v + fresh·(x − x_prev); out ← x + γ·v. The paper has fresh = 1−δ. */
void vec_extrapolate(struct vec *out, struct vec *v, const struct vec *x, const struct vec *x_prev,
                     float delta, float fresh, float gamma, struct range r);
/* y ← Σ_i w[i]·x[i], summed in order of i; zeros for no x. x[0] may be y. */
void vec_weighted_sum(struct vec *y, const float *w, const struct vec *const *x, size_t count,
                      struct range r);

struct vec_sgd {
    float rate, momentum, decay; /* decay adds decay·x to the gradient, as Caffe's weight_decay */
};

/* The optimizers, Caffe's rules, each one pass over x, dx and its state. Below, η is
 * rate·lr_mult, and g the gradient with decay, dx + decay·decay_mult·x. The range must lie within
 * the table's total. A segment with an lr_mult of 0 is frozen: neither it nor its state is touched.
 *
 * SGD: m ← momentum·m + η·g; x ← x − m. */
void vec_sgd(struct vec *x, const struct vec *dx, struct vec *m, const struct vec_sgd *rule,
             const struct segments *table, struct range r);

/* Nesterov: m' ← momentum·m + η·g; x ← x − ((1+momentum)·m' − momentum·m); m ← m'. */
void vec_nesterov(struct vec *x, const struct vec *dx, struct vec *m, const struct vec_sgd *rule,
                  const struct segments *table, struct range r);

struct vec_adagrad {
    float rate, delta, decay;
};

/* h ← h + g²; x ← x − η·(g / (√h + delta)). */
void vec_adagrad(struct vec *x, const struct vec *dx, struct vec *h, const struct vec_adagrad *rule,
                 const struct segments *table, struct range r);

struct vec_rmsprop {
    float rate, rms_decay, delta, decay;
};

/* h ← rms_decay·h + (1−rms_decay)·g²; x ← x − η·(g / (√h + delta)). */
void vec_rmsprop(struct vec *x, const struct vec *dx, struct vec *h, const struct vec_rmsprop *rule,
                 const struct segments *table, struct range r);

struct vec_adadelta {
    float rate, momentum, delta, decay;
};

/* h ← momentum·h + (1−momentum)·g²; d = √((u + delta) / (h + delta))·g;
 * u ← momentum·u + (1−momentum)·d²; x ← x − η·d. */
void vec_adadelta(struct vec *x, const struct vec *dx, struct vec *h, struct vec *u,
                  const struct vec_adadelta *rule, const struct segments *table, struct range r);

struct vec_adam {
    float rate, correction, beta1, beta2, delta, decay;
    bool decoupled; /* AdamW: decay shrinks x itself and stays out of the gradient */
};

/* m ← beta1·m + (1−beta1)·g; v ← beta2·v + (1−beta2)·g²;
 * x ← keep·x − correction·η·(m / (√v + delta)), where keep is 1. Decoupled: keep is
 * 1 − η·decay·decay_mult, rounded once, and g is dx. */
void vec_adam(struct vec *x, const struct vec *dx, struct vec *m, struct vec *v,
              const struct vec_adam *rule, const struct segments *table, struct range r);

/* The gradient of decay·decay_mult·Σ|x|, added: dx ← dx + decay·decay_mult·sign(x), sign(0) = 0. */
void vec_decay_l1(struct vec *dx, const struct vec *x, float decay, const struct segments *table,
                  struct range r);

/* All elements finite? */
bool vec_finite(const struct vec *v, struct range r);

/* Dot product in double: a sum for each block that the range touches, added in order. */
double vec_dot(const struct vec *a, const struct vec *b, struct range r);

/* Of u = a − p and v = b − q, rounded to float: |u|², |v|² and u·v, in double, as vec_dot adds.
 * p or q NULL: 0. b NULL: v is 0. */
struct vec_angle {
    double uu, vv, uv;
};
struct vec_angle vec_angle(const struct vec *a, const struct vec *p, const struct vec *b,
                           const struct vec *q, struct range r);

/* 64-bit hash of the bits of a range, for comparing replicas. */
uint64_t vec_hash(const struct vec *v, struct range r);

/* Host-memory forms, which collectives apply to bytes as they arrive. */
void vec_host_add(float *y, const float *x, size_t n);              /* y ← y + x */
void vec_host_product(float *y, float a, const float *x, size_t n); /* y ← a·x */
void vec_host_add_all(float *y, const float *x, size_t n);          /* by all compute threads */

#endif
