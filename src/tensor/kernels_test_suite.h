/* The conformance suite's tools: works of every kind, inputs for them, and what is demanded of all
 * kernel sets: that they agree with one another, leave guards alone, and follow the differences of
 * their own results. kernels_test.c and kernels_window_test.c bring the works. */
#ifndef PL_TENSOR_KERNELS_TEST_SUITE_H
#define PL_TENSOR_KERNELS_TEST_SUITE_H

#include "tensor/kernels.h"

#include "base/fault.h"
#include "base/rng.h"
#include "tensor/bf16.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct kernels *const sets[] = {&kernels_ref, &kernels_dnnl};
enum { SETS = sizeof sets / sizeof *sets };

/* The operation to plan, of any kind. */
enum kind { CONV, DECONV, POOL, LRN, INNER, RELU, SIGMOID, SCALE, SOFTMAX };

struct work {
    enum kind kind;
    union {
        struct conv_spec conv;
        struct pool_spec pool;
        struct lrn_spec lrn;
        struct inner_spec inner;
        struct relu_spec relu;
        struct scale_spec scale;
    } spec;
    struct shape x, y;
    size_t w, b; /* how many of each */
};

static inline struct shape image_array(size_t N, size_t C, size_t H, size_t W)
{
    return (struct shape){4, {N, C, H, W}};
}

static inline struct shape matrix_array(size_t N, size_t C)
{
    return (struct shape){2, {N, C}};
}

static inline struct work inner_work(struct shape x, size_t O, bool bias)
{
    struct shape y = matrix_array(x.dim[0], O);
    struct inner_spec spec = {x, y, bias, 1};
    return (struct work){INNER, {.inner = spec}, x, y, O * shape_count_from(&x, 1), bias ? O : 0};
}

static inline struct work relu_work(struct shape x, float slope)
{
    return (struct work){RELU, {.relu = {x, slope}}, x, x, 0, 0};
}

static inline struct work sigmoid_work(struct shape x)
{
    return (struct work){SIGMOID, {.relu = {x, 0}}, x, x, 0, 0};
}

static inline struct work scale_work(struct shape x, bool bias)
{
    size_t C = x.dim[1];
    return (struct work){SCALE, {.scale = {x, bias}}, x, x, C, bias ? C : 0};
}

static inline struct work softmax_work(struct shape x)
{
    return (struct work){SOFTMAX, {.relu = {x, 0}}, x, x, 0, 0};
}

static inline int plan_op(const struct kernels *set, const struct work *work, enum layout layout,
                          bool training, struct arena *arena, struct op **op, struct err *err)
{
    const struct plan_options options = {.training = training, .arena = arena};
    switch (work->kind) {
    case CONV: return set->conv(&work->spec.conv, &options, op, err);
    case DECONV: return set->deconv(&work->spec.conv, &options, op, err);
    case LRN: return set->lrn(&work->spec.lrn, training, arena, op, err);
    case POOL: return set->pool(&work->spec.pool, training, arena, op, err);
    case INNER: return set->inner(&work->spec.inner, layout, training, arena, op, err);
    case RELU: return set->relu(&work->spec.relu, layout, training, arena, op, err);
    case SIGMOID: return set->sigmoid(&work->x, layout, training, arena, op, err);
    case SCALE: return set->scale(&work->spec.scale, layout, training, arena, op, err);
    case SOFTMAX: return set->softmax(&work->x, arena, op, err);
    }
    return ERR_BUG;
}

/* Where the spec says what images are; NULL: floats alone. */
static inline enum dtype *dtype_in_spec(struct work *work)
{
    switch (work->kind) {
    case CONV: return &work->spec.conv.dtype;
    case POOL: return &work->spec.pool.dtype;
    case RELU: return &work->spec.relu.dtype;
    default: return NULL;
    }
}

static inline enum dtype dtype_of(const struct work *work)
{
    struct work copy = *work;
    const enum dtype *dtype = dtype_in_spec(&copy);
    return dtype ? *dtype : DTYPE_F32;
}

/* An array between guards. Their odd number takes the array off any alignment. */
enum { GUARD = 17 };
static const float guard = 12345.0f;

struct array {
    size_t n;
    float *all, *v;
};

static inline struct array array_new(size_t n, float value)
{
    PL_ASSERT(n < (size_t)1 << 28); /* tells the compiler, too, that nothing wraps */
    struct array a = {n, malloc((n + 2 * GUARD) * sizeof(float)), NULL};
    assert_non_null(a.all);
    a.v = a.all + GUARD;
    for (size_t i = 0; i < n + 2 * GUARD; i++)
        a.all[i] = guard;
    for (size_t i = 0; i < n; i++)
        a.v[i] = value;
    return a;
}

static inline void array_check(const struct array *a)
{
    for (size_t i = 0; i < GUARD; i++) {
        assert_true(a->all[i] == guard);
        assert_true(a->v[a->n + i] == guard);
    }
}

static inline void array_free(struct array *a)
{
    array_check(a);
    free(a->all);
}

/* The values -1 .. 1 at equal distances, none of them 0, in an order of chance: no two pixels tie
 * for a maximum, and a small step changes no decision. */
static inline struct array array_shuffled(size_t n, uint64_t stream)
{
    struct array a = array_new(n, 0);
    for (size_t i = 0; i < n; i++)
        a.v[i] = (float)(2 * i + 1 + (n & 1)) / (float)n - 1;
    for (size_t i = n; i > 1; i--) {
        size_t j = rng_below(1, stream, i, i);
        float t = a.v[i - 1];
        a.v[i - 1] = a.v[j];
        a.v[j] = t;
    }
    return a;
}

/* Everything that goes in and comes out, in plain layout. */
struct run {
    struct array x, w, b, dy;   /* in */
    struct array y, dx, dw, db; /* out; dw and db start from a half */
};

static inline struct run run_new(const struct work *work)
{
    size_t x = shape_count(&work->x), y = shape_count(&work->y);
    return (struct run){
        .x = array_shuffled(x, 1),
        .w = array_shuffled(work->w, 2),
        .b = array_shuffled(work->b, 3),
        .dy = array_shuffled(y, 4),
        .y = array_new(y, NAN),
        .dx = array_new(x, NAN),
        .dw = array_new(work->w, 0.5f),
        .db = array_new(work->b, 0.5f),
    };
}

static inline void run_free(struct run *run)
{
    array_free(&run->x), array_free(&run->w), array_free(&run->b), array_free(&run->dy);
    array_free(&run->y), array_free(&run->dx), array_free(&run->dw), array_free(&run->db);
}

/* An image of n elements, none of them a number, in as many floats as hold them. */
static inline struct array array_of(enum dtype dtype, size_t n)
{
    const uint32_t none = 0x7fc07fc0; /* neither as a float nor as two of bf16 */
    struct array a = array_new((n * dtype_size(dtype) + sizeof(float) - 1) / sizeof(float), 0);
    for (size_t i = 0; i < a.n; i++)
        memcpy(&a.v[i], &none, sizeof none);
    return a;
}

/* A copy of `from` (plain) as an array laid out as `layout`, rounded to the dtype, and back. */
static inline struct array array_laid_out(const struct shape *shape, enum layout layout,
                                          enum dtype dtype, const struct array *from)
{
    struct array a = array_new(from->n, 0);
    if (layout == LAYOUT_PLAIN)
        memcpy(a.v, from->v, a.n * sizeof(float));
    else
        kernels_reorder(shape, LAYOUT_PLAIN, from->v, layout, a.v);
    if (dtype == DTYPE_F32)
        return a;
    struct array rounded = array_of(dtype, from->n);
    bf16_round(from->n, a.v, (void *)rounded.v);
    array_free(&a);
    return rounded;
}

static inline void array_return(const struct shape *shape, enum layout layout, enum dtype dtype,
                                struct array *a, struct array *to)
{
    struct array wide = dtype == DTYPE_BF16 ? array_new(to->n, 0) : *a;
    if (dtype == DTYPE_BF16)
        bf16_widen(to->n, (const void *)a->v, wide.v);
    if (layout == LAYOUT_PLAIN)
        memcpy(to->v, wide.v, to->n * sizeof(float));
    else
        kernels_reorder(shape, layout, wide.v, LAYOUT_PLAIN, to->v);
    array_free(&wide);
    if (dtype == DTYPE_BF16)
        array_free(a);
}

/* Forward and, when there is one, backward. A pass with other weights goes before: nothing of it
 * may drain. */
static inline void execute_op(const struct work *work, struct op *op, struct run *run)
{
    enum dtype dtype = dtype_of(work);
    struct array x = array_laid_out(&work->x, op->x_layout, dtype, &run->x);
    struct array dy = array_laid_out(&work->y, op->y_layout, dtype, &run->dy);
    struct array y = array_of(dtype, run->y.n), dx = array_of(dtype, run->x.n);
    struct array zero_w = array_new(run->w.n, 0), zero_b = array_new(run->b.n, 0);
    struct array lost_w = array_new(run->w.n, 0), lost_b = array_new(run->b.n, 0);
    struct op_args before = {x.v, zero_w.v, zero_b.v, y.v, dy.v, dx.v, lost_w.v, lost_b.v};
    struct op_args args = {x.v, run->w.v, run->b.v, y.v, dy.v, dx.v, run->dw.v, run->db.v};
    op->ops->forward(op, &before);
    if (op->ops->backward)
        op->ops->backward(op, &before);
    op->ops->forward(op, &args);
    if (op->ops->backward)
        op->ops->backward(op, &args);
    array_return(&work->y, op->y_layout, dtype, &y, &run->y);
    array_return(&work->x, op->x_layout, dtype, &dx, &run->dx);
    array_free(&x), array_free(&dy);
    array_free(&zero_w), array_free(&zero_b), array_free(&lost_w), array_free(&lost_b);
}

static inline void plan_or_fail(const struct kernels *set, const struct work *work,
                                enum layout layout, bool training, struct arena *arena,
                                struct op **op)
{
    struct err err = {0};
    if (plan_op(set, work, layout, training, arena, op, &err))
        fail_msg("%s: %s", set->name, err.text);
}

static inline void run_set(const struct kernels *set, const struct work *work, enum layout layout,
                           struct run *run)
{
    struct arena arena;
    struct op *op;
    arena_init(&arena);
    plan_or_fail(set, work, layout, true, &arena, &op);
    execute_op(work, op, run);
    op_release(op);
    arena_release(&arena);
}

static inline void assert_close(const char *what, const float *a, const float *b, size_t n,
                                double part)
{
    double max = 0;
    for (size_t i = 0; i < n; i++)
        max = fmax(max, fabs((double)a[i]));
    for (size_t i = 0; i < n; i++) {
        double gap = fabs((double)a[i] - (double)b[i]);
        if (!(gap <= part * max))
            fail_msg("%s[%zu] of %zu: %.9g and %.9g", what, i, n, (double)a[i], (double)b[i]);
    }
}

static inline void assert_pair(const struct run *a, const struct run *b)
{
    assert_close("y", a->y.v, b->y.v, a->y.n, 1e-4);
    assert_close("dx", a->dx.v, b->dx.v, a->dx.n, 1e-4);
    assert_close("dw", a->dw.v, b->dw.v, a->dw.n, 1e-4);
    assert_close("db", a->db.v, b->db.v, a->db.n, 1e-4);
}

/* The sum of y, weighted with dy: the loss whose gradient dx, dw and db are. */
static inline double loss_op(struct op *op, const struct run *run)
{
    struct op_args args = {.x = run->x.v, .w = run->w.v, .b = run->b.v, .y = run->y.v};
    double sum = 0;
    op->ops->forward(op, &args);
    for (size_t i = 0; i < run->y.n; i++)
        sum += (double)run->y.v[i] * (double)run->dy.v[i];
    return sum;
}

/* How far x may move without a change of decision: a quarter of the distance between values; along
 * a curve, a little. Elsewhere the loss is linear and a long step the more exact. */
static inline float step_of_x(const struct work *work)
{
    bool decides = work->kind == RELU || (work->kind == POOL && work->spec.pool.kind == POOL_MAX);
    if (decides)
        return 0.5f / (float)shape_count(&work->x);
    if (work->kind == LRN)
        return 0x1p-6f;
    return work->kind == SIGMOID ? 0x1p-5f : 0.5f;
}

/* Compare `gradient` less `start` with differences of the loss, at up to 40 places of `at`. */
static inline void assert_gradient(const char *what, struct op *op, const struct run *run, float h,
                                   const struct array *at, const struct array *gradient,
                                   float start)
{
    size_t n = at->n, step = n / 40 + 1;
    double max = 0;
    for (size_t i = 0; i < n; i++)
        max = fmax(max, fabs((double)(gradient->v[i] - start)));
    for (size_t i = 0; i < n; i += step) {
        float v = at->v[i];
        at->v[i] = v + h;
        double high = loss_op(op, run), width = (double)at->v[i];
        at->v[i] = v - h;
        double low = loss_op(op, run);
        width -= (double)at->v[i];
        at->v[i] = v;
        double want = (high - low) / width, got = (double)(gradient->v[i] - start);
        if (!(fabs(want - got) <= 1e-2 * max))
            fail_msg("%s[%zu]: %g by differences, %g by the op", what, i, want, got);
    }
}

static inline void assert_gradients(const struct work *work)
{
    struct arena arena;
    struct op *op;
    struct run run = run_new(work);
    arena_init(&arena);
    plan_or_fail(&kernels_ref, work, LAYOUT_PLAIN, true, &arena, &op);
    execute_op(work, op, &run);
    assert_gradient("dx", op, &run, step_of_x(work), &run.x, &run.dx, 0);
    assert_gradient("dw", op, &run, 0.5f, &run.w, &run.dw, 0.5f);
    assert_gradient("db", op, &run, 0.5f, &run.b, &run.db, 0.5f);
    op_release(op);
    arena_release(&arena);
    run_free(&run);
}

/* dx not wanted, or dx alone: nothing else changes. Inference: the same y, and no way back. */
static inline void assert_reduced(const struct kernels *set, const struct work *work,
                                  enum layout layout, const struct run *full)
{
    struct arena arena;
    struct op *op;
    struct run run = run_new(work);
    arena_init(&arena);
    plan_or_fail(set, work, layout, true, &arena, &op);
    struct array x = array_laid_out(&work->x, op->x_layout, dtype_of(work), &run.x);
    struct array dy = array_laid_out(&work->y, op->y_layout, dtype_of(work), &run.dy);
    struct op_args args = {.x = x.v, .w = run.w.v, .b = run.b.v, .y = run.y.v};
    op->ops->forward(op, &args);
    args.dy = dy.v, args.dw = run.dw.v, args.db = run.db.v;
    op->ops->backward(op, &args);
    assert_memory_equal(run.dw.v, full->dw.v, run.dw.n * sizeof(float));
    assert_memory_equal(run.db.v, full->db.v, run.db.n * sizeof(float));
    if (work->kind == CONV || work->kind == INNER) {
        struct array dx = array_of(dtype_of(work), run.x.n);
        args.dx = dx.v, args.dw = args.db = NULL;
        op->ops->backward(op, &args);
        array_return(&work->x, op->x_layout, dtype_of(work), &dx, &run.dx);
        assert_memory_equal(run.dx.v, full->dx.v, run.dx.n * sizeof(float));
    }
    op_release(op);

    plan_or_fail(set, work, layout, false, &arena, &op);
    assert_null(op->ops->backward);
    execute_op(work, op, &run);
    assert_close("y", full->y.v, run.y.v, run.y.n, 1e-6);
    op_release(op);
    array_free(&x), array_free(&dy);
    arena_release(&arena);
    run_free(&run);
}

static inline void assert_conforms(const struct work *work, enum layout layout)
{
    struct run run[SETS];
    for (size_t i = 0; i < SETS; i++) {
        run[i] = run_new(work);
        run_set(sets[i], work, layout, &run[i]);
        for (size_t j = 0; j < i; j++)
            assert_pair(&run[j], &run[i]);
        assert_reduced(sets[i], work, layout, &run[i]);
    }
    for (size_t i = 0; i < SETS; i++)
        run_free(&run[i]);
}

static inline void round_array(struct array *a)
{
    for (size_t i = 0; i < a->n; i++)
        a->v[i] = bf16_float(bf16_nearest(a->v[i]));
}

/* Half of the last of the 8 bits that a value is rounded to. */
static inline double half_of_last(double x)
{
    return x == 0 ? 0 : ldexp(1, ilogb(x) - 8);
}

/* Sums of what bf16 holds exactly, in float, of which each is rounded once. */
static inline void assert_rounded(const char *what, const struct array *want,
                                  const struct array *got)
{
    double max = 0;
    for (size_t i = 0; i < want->n; i++)
        max = fmax(max, fabs((double)want->v[i]));
    for (size_t i = 0; i < want->n; i++) {
        double a = (double)want->v[i], b = (double)got->v[i];
        if (!(fabs(a - b) <= half_of_last(a) + 1e-4 * max))
            fail_msg("%s[%zu] of %zu: %.9g, and rounded %.9g", what, i, want->n, a, b);
    }
}

static inline void assert_pair_rounded(const struct run *want, const struct run *got)
{
    assert_rounded("y", &want->y, &got->y);
    assert_rounded("dx", &want->dx, &got->dx);
    assert_close("dw", want->dw.v, got->dw.v, want->dw.n, 1e-4);
    assert_close("db", want->db.v, got->db.v, want->db.n, 1e-4);
}

/* The results of plain C with the same numbers: by floats, but from rounded images and weights
 * where the work's are bf16. The op rounds weights itself. */
static inline void run_plainly(const struct work *work, enum layout layout, struct run *run)
{
    struct work wide = *work;
    if (dtype_of(work) == DTYPE_BF16) {
        *dtype_in_spec(&wide) = DTYPE_F32;
        round_array(&run->x), round_array(&run->w), round_array(&run->dy);
    }
    run_set(&kernels_ref, &wide, layout, run);
}

static inline void assert_conforms_rounded(const struct work *work, enum layout layout)
{
    struct run want = run_new(work), run = run_new(work);
    struct work half = *work;
    *dtype_in_spec(&half) = DTYPE_BF16;
    run_plainly(&half, layout, &want);
    run_set(&kernels_dnnl, &half, layout, &run);
    assert_pair_rounded(&want, &run);
    assert_reduced(&kernels_dnnl, &half, layout, &run);
    run_free(&want), run_free(&run);
}

/* Loops of ours run everywhere, oneDNN's products of bf16 where the processor has them. */
static inline bool runs_rounded(const struct work *work)
{
    struct work copy = *work;
    struct err err;
    return dtype_in_spec(&copy) && (work->kind != CONV || bf16_check(&err) == OK);
}

/* Inputs counted 1, 2, 3 ... and dy all ones: numbers that pencil and paper check. */
static inline struct run run_counted(const struct work *work)
{
    struct run run = run_new(work);
    for (size_t i = 0; i < run.x.n; i++)
        run.x.v[i] = (float)(i + 1);
    for (size_t i = 0; i < run.w.n; i++)
        run.w.v[i] = (float)(i + 1);
    for (size_t i = 0; i < run.b.n; i++)
        run.b.v[i] = 0.5f;
    for (size_t i = 0; i < run.dy.n; i++)
        run.dy.v[i] = 1;
    return run;
}

static inline void assert_worked(const struct work *work, enum layout layout, const float *y,
                                 const float *dx, const float *dw, const float *db)
{
    for (size_t s = 0; s < SETS; s++) {
        struct run run = run_counted(work);
        run_set(sets[s], work, layout, &run);
        assert_close("y", y, run.y.v, run.y.n, 1e-6);
        if (dx)
            assert_close("dx", dx, run.dx.v, run.dx.n, 1e-6);
        if (dw)
            assert_close("dw", dw, run.dw.v, run.dw.n, 1e-6);
        if (db)
            assert_close("db", db, run.db.v, run.db.n, 1e-6);
        run_free(&run);
    }
}

/* The reference's bits are the same for any number of threads. */
static inline void assert_same_for_any_thread_count(const struct work *work)
{
    struct run one = run_new(work), three = run_new(work);
    kernels_set_threads(1);
    run_set(&kernels_ref, work, LAYOUT_PLAIN, &one);
    kernels_set_threads(3);
    run_set(&kernels_ref, work, LAYOUT_PLAIN, &three);
    kernels_set_threads(2);
    assert_memory_equal(one.y.v, three.y.v, one.y.n * sizeof(float));
    assert_memory_equal(one.dx.v, three.dx.v, one.dx.n * sizeof(float));
    assert_memory_equal(one.dw.v, three.dw.v, one.dw.n * sizeof(float));
    assert_memory_equal(one.db.v, three.db.v, one.db.n * sizeof(float));
    run_free(&one), run_free(&three);
}

#endif
