/* One suite for all kernel sets: small cases worked out by hand, every pair of sets on the same
 * inputs, and the reference against finite differences of itself. */
#include "tensor/kernels.h"

#include "base/rng.h"

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

/* What is to be planned, whatever its kind. */
enum kind { CONV, POOL, INNER, RELU, SIGMOID, SCALE, SOFTMAX };

struct work {
    enum kind kind;
    union {
        struct conv_spec conv;
        struct pool_spec pool;
        struct inner_spec inner;
        struct relu_spec relu;
        struct scale_spec scale;
    } spec;
    struct shape x, y;
    size_t w, b; /* how many of each */
};

static struct shape image(size_t N, size_t C, size_t H, size_t W)
{
    return (struct shape){4, {N, C, H, W}};
}

static struct shape matrix(size_t N, size_t C)
{
    return (struct shape){2, {N, C}};
}

static struct work conv_work(struct shape x, size_t O, size_t KH, size_t KW, size_t stride,
                             size_t pad, bool bias)
{
    struct shape y = image(x.dim[0], O, (x.dim[2] + 2 * pad - KH) / stride + 1,
                           (x.dim[3] + 2 * pad - KW) / stride + 1);
    struct conv_spec spec = {x, y, KH, KW, stride, stride, pad, pad, bias};
    return (struct work){CONV, {.conv = spec}, x, y, O * x.dim[1] * KH * KW, bias ? O : 0};
}

/* Caffe's output size: rounded up, less a window that would start in the far padding. */
static size_t pooled(size_t x, size_t kernel, size_t stride, size_t pad)
{
    size_t y = (x + 2 * pad - kernel + stride - 1) / stride + 1;
    return pad && (y - 1) * stride >= x + pad ? y - 1 : y;
}

static struct work pool_work(enum pool_kind kind, struct shape x, size_t kernel, size_t stride,
                             size_t pad)
{
    struct shape y = image(x.dim[0], x.dim[1], pooled(x.dim[2], kernel, stride, pad),
                           pooled(x.dim[3], kernel, stride, pad));
    struct pool_spec spec = {kind, x, y, kernel, kernel, stride, stride, pad, pad};
    return (struct work){POOL, {.pool = spec}, x, y, 0, 0};
}

static struct work inner_work(struct shape x, size_t O, bool bias)
{
    struct shape y = matrix(x.dim[0], O);
    struct inner_spec spec = {x, y, bias};
    return (struct work){INNER, {.inner = spec}, x, y, O * shape_count_from(&x, 1), bias ? O : 0};
}

static struct work relu_work(struct shape x, float slope)
{
    return (struct work){RELU, {.relu = {x, slope}}, x, x, 0, 0};
}

static struct work sigmoid_work(struct shape x)
{
    return (struct work){SIGMOID, {.relu = {x, 0}}, x, x, 0, 0};
}

static struct work scale_work(struct shape x, bool bias)
{
    size_t C = x.dim[1];
    return (struct work){SCALE, {.scale = {x, bias}}, x, x, C, bias ? C : 0};
}

static struct work softmax_work(struct shape x)
{
    return (struct work){SOFTMAX, {.relu = {x, 0}}, x, x, 0, 0};
}

static int plan(const struct kernels *set, const struct work *work, enum layout layout,
                bool training, struct arena *arena, struct op **op, struct err *err)
{
    switch (work->kind) {
    case CONV: return set->conv(&work->spec.conv, training, arena, op, err);
    case POOL: return set->pool(&work->spec.pool, training, arena, op, err);
    case INNER: return set->inner(&work->spec.inner, layout, training, arena, op, err);
    case RELU: return set->relu(&work->spec.relu, layout, training, arena, op, err);
    case SIGMOID: return set->sigmoid(&work->x, layout, training, arena, op, err);
    case SCALE: return set->scale(&work->spec.scale, layout, training, arena, op, err);
    case SOFTMAX: return set->softmax(&work->x, arena, op, err);
    }
    return ERR_BUG;
}

/* An array between guards. Their odd number takes the array off any alignment. */
enum { GUARD = 17 };
static const float guard = 12345.0f;

struct array {
    size_t n;
    float *all, *v;
};

static struct array array_new(size_t n, float value)
{
    if (n >= (size_t)1 << 28) /* tells the compiler, too, that nothing wraps */
        abort();
    struct array a = {n, malloc((n + 2 * GUARD) * sizeof(float)), NULL};
    assert_non_null(a.all);
    a.v = a.all + GUARD;
    for (size_t i = 0; i < n + 2 * GUARD; i++)
        a.all[i] = guard;
    for (size_t i = 0; i < n; i++)
        a.v[i] = value;
    return a;
}

static void array_check(const struct array *a)
{
    for (size_t i = 0; i < GUARD; i++) {
        assert_true(a->all[i] == guard);
        assert_true(a->v[a->n + i] == guard);
    }
}

static void array_free(struct array *a)
{
    array_check(a);
    free(a->all);
}

/* The values -1 .. 1 at equal distances, none of them 0, in an order of chance: no two pixels tie
 * for a maximum, and a small step changes no decision. */
static struct array array_shuffled(size_t n, uint64_t stream)
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

static struct run run_new(const struct work *work)
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

static void run_free(struct run *run)
{
    array_free(&run->x), array_free(&run->w), array_free(&run->b), array_free(&run->dy);
    array_free(&run->y), array_free(&run->dx), array_free(&run->dw), array_free(&run->db);
}

/* A copy of `from` (plain) as an array laid out as `layout`, and back. */
static struct array array_laid_out(const struct shape *shape, enum layout layout,
                                   const struct array *from)
{
    struct array a = array_new(from->n, 0);
    if (layout == LAYOUT_PLAIN)
        memcpy(a.v, from->v, a.n * sizeof(float));
    else
        kernels_reorder(shape, LAYOUT_PLAIN, from->v, layout, a.v);
    return a;
}

static void array_return(const struct shape *shape, enum layout layout, struct array *a,
                         struct array *to)
{
    if (layout == LAYOUT_PLAIN)
        memcpy(to->v, a->v, a->n * sizeof(float));
    else
        kernels_reorder(shape, layout, a->v, LAYOUT_PLAIN, to->v);
    array_free(a);
}

/* Forward and, when there is one, backward. A pass with other weights goes before: nothing of it
 * may linger. */
static void execute(const struct work *work, struct op *op, struct run *run)
{
    struct array x = array_laid_out(&work->x, op->x_layout, &run->x);
    struct array dy = array_laid_out(&work->y, op->y_layout, &run->dy);
    struct array y = array_new(run->y.n, NAN), dx = array_new(run->x.n, NAN);
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
    array_return(&work->y, op->y_layout, &y, &run->y);
    array_return(&work->x, op->x_layout, &dx, &run->dx);
    array_free(&x), array_free(&dy);
    array_free(&zero_w), array_free(&zero_b), array_free(&lost_w), array_free(&lost_b);
}

static void plan_or_fail(const struct kernels *set, const struct work *work, enum layout layout,
                         bool training, struct arena *arena, struct op **op)
{
    struct err err = {0};
    if (plan(set, work, layout, training, arena, op, &err))
        fail_msg("%s: %s", set->name, err.text);
}

static void run_set(const struct kernels *set, const struct work *work, enum layout layout,
                    struct run *run)
{
    struct arena arena;
    struct op *op;
    arena_init(&arena);
    plan_or_fail(set, work, layout, true, &arena, &op);
    execute(work, op, run);
    op_release(op);
    arena_release(&arena);
}

static void assert_close(const char *what, const float *a, const float *b, size_t n, double part)
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

static void assert_pair(const struct run *a, const struct run *b)
{
    assert_close("y", a->y.v, b->y.v, a->y.n, 1e-4);
    assert_close("dx", a->dx.v, b->dx.v, a->dx.n, 1e-4);
    assert_close("dw", a->dw.v, b->dw.v, a->dw.n, 1e-4);
    assert_close("db", a->db.v, b->db.v, a->db.n, 1e-4);
}

/* The sum of y, weighted with dy: the loss whose gradient dx, dw and db are. */
static double loss(struct op *op, const struct run *run)
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
static float step_of_x(const struct work *work)
{
    bool decides = work->kind == RELU || (work->kind == POOL && work->spec.pool.kind == POOL_MAX);
    if (decides)
        return 0.5f / (float)shape_count(&work->x);
    return work->kind == SIGMOID ? 0x1p-5f : 0.5f;
}

/* Compare `gradient` less `start` with differences of the loss, at up to 40 places of `at`. */
static void assert_gradient(const char *what, struct op *op, const struct run *run, float h,
                            const struct array *at, const struct array *gradient, float start)
{
    size_t n = at->n, step = n / 40 + 1;
    double max = 0;
    for (size_t i = 0; i < n; i++)
        max = fmax(max, fabs((double)(gradient->v[i] - start)));
    for (size_t i = 0; i < n; i += step) {
        float v = at->v[i];
        at->v[i] = v + h;
        double high = loss(op, run), width = (double)at->v[i];
        at->v[i] = v - h;
        double low = loss(op, run);
        width -= (double)at->v[i];
        at->v[i] = v;
        double want = (high - low) / width, got = (double)(gradient->v[i] - start);
        if (!(fabs(want - got) <= 1e-2 * max))
            fail_msg("%s[%zu]: %g by differences, %g by the op", what, i, want, got);
    }
}

static void assert_gradients(const struct work *work)
{
    struct arena arena;
    struct op *op;
    struct run run = run_new(work);
    arena_init(&arena);
    plan_or_fail(&kernels_ref, work, LAYOUT_PLAIN, true, &arena, &op);
    execute(work, op, &run);
    assert_gradient("dx", op, &run, step_of_x(work), &run.x, &run.dx, 0);
    assert_gradient("dw", op, &run, 0.5f, &run.w, &run.dw, 0.5f);
    assert_gradient("db", op, &run, 0.5f, &run.b, &run.db, 0.5f);
    op_release(op);
    arena_release(&arena);
    run_free(&run);
}

/* dx not wanted: nothing else changes. Inference: the same y, and no way back. */
static void assert_reduced(const struct kernels *set, const struct work *work, enum layout layout,
                           const struct run *full)
{
    struct arena arena;
    struct op *op;
    struct run run = run_new(work);
    arena_init(&arena);
    plan_or_fail(set, work, layout, true, &arena, &op);
    struct array x = array_laid_out(&work->x, op->x_layout, &run.x);
    struct array dy = array_laid_out(&work->y, op->y_layout, &run.dy);
    struct op_args args = {.x = x.v, .w = run.w.v, .b = run.b.v, .y = run.y.v};
    op->ops->forward(op, &args);
    args.dy = dy.v, args.dw = run.dw.v, args.db = run.db.v;
    op->ops->backward(op, &args);
    assert_memory_equal(run.dw.v, full->dw.v, run.dw.n * sizeof(float));
    assert_memory_equal(run.db.v, full->db.v, run.db.n * sizeof(float));
    op_release(op);

    plan_or_fail(set, work, layout, false, &arena, &op);
    assert_null(op->ops->backward);
    execute(work, op, &run);
    assert_close("y", full->y.v, run.y.v, run.y.n, 1e-6);
    op_release(op);
    array_free(&x), array_free(&dy);
    arena_release(&arena);
    run_free(&run);
}

static void assert_conforms(const struct work *work, enum layout layout)
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

static void convolutions_agree(void **state)
{
    (void)state;
    const struct work works[] = {
        conv_work(image(2, 1, 12, 12), 20, 5, 5, 1, 0, true),
        conv_work(image(3, 20, 8, 8), 50, 5, 5, 1, 0, true),
        conv_work(image(2, 3, 9, 7), 16, 3, 3, 1, 1, false),
        conv_work(image(2, 16, 8, 8), 16, 3, 3, 1, 1, true),
        conv_work(image(2, 16, 9, 9), 32, 3, 3, 2, 1, false),
        conv_work(image(3, 16, 8, 8), 20, 1, 1, 1, 0, true),
        conv_work(image(2, 20, 7, 7), 5, 1, 1, 2, 0, false),
        conv_work(image(1, 3, 16, 16), 8, 5, 5, 2, 2, true),
        conv_work(image(2, 5, 6, 9), 7, 3, 2, 1, 1, true),
        conv_work(image(2, 4, 4, 4), 3, 4, 4, 1, 0, true),
        conv_work(image(1, 1, 1, 1), 1, 3, 3, 1, 1, true),
        conv_work(image(33, 1, 6, 6), 20, 3, 3, 1, 0, true),
        conv_work(image(39, 20, 6, 5), 24, 3, 3, 1, 1, true),
        conv_work(image(17, 16, 4, 4), 16, 1, 1, 1, 0, false),
    };
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        print_message("convolution %zu\n", i);
        assert_conforms(&works[i], LAYOUT_PLAIN);
        assert_gradients(&works[i]);
    }
}

static void poolings_agree(void **state)
{
    (void)state;
    const struct {
        struct shape x;
        size_t kernel, stride, pad;
    } cases[] = {
        {image(2, 20, 24, 24), 2, 2, 0}, {image(2, 3, 8, 8), 3, 2, 0},
        {image(2, 3, 7, 7), 3, 2, 0},    {image(1, 17, 5, 6), 3, 2, 1},
        {image(2, 16, 5, 8), 2, 3, 0},   {image(2, 1, 9, 9), 3, 1, 1},
        {image(2, 10, 7, 7), 7, 1, 0},   {image(1, 2, 4, 4), 4, 3, 1},
        {image(1, 8, 3, 3), 2, 2, 1},    {image(3, 4, 5, 5), 1, 1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (enum pool_kind kind = POOL_MAX; kind <= POOL_AVERAGE; kind++) {
            struct work work =
                pool_work(kind, cases[i].x, cases[i].kernel, cases[i].stride, cases[i].pad);
            print_message("pooling %zu, kind %d\n", i, (int)kind);
            assert_conforms(&work, LAYOUT_PLAIN);
            assert_gradients(&work);
        }
}

static void inner_products_agree(void **state)
{
    (void)state;
    const struct work works[] = {
        inner_work(image(4, 50, 4, 4), 30, true), inner_work(image(3, 3, 5, 2), 7, false),
        inner_work(image(2, 1, 6, 6), 10, true),  inner_work(image(5, 9, 1, 1), 1, true),
        inner_work(matrix(64, 37), 10, true),     inner_work(matrix(1, 1), 3, false),
        inner_work(matrix(39, 400), 90, true),
    };
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        print_message("inner product %zu\n", i);
        assert_conforms(&works[i], LAYOUT_PLAIN);
        if (works[i].x.n == 4)
            assert_conforms(&works[i], LAYOUT_NHWC);
        assert_gradients(&works[i]);
    }
}

static void relus_agree(void **state)
{
    (void)state;
    const struct work works[] = {relu_work(matrix(3, 11), 0), relu_work(image(2, 3, 4, 5), 0.1f),
                                 relu_work(image(8, 16, 16, 16), 0.01f)};
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        assert_conforms(&works[i], LAYOUT_PLAIN);
        if (works[i].x.n == 4)
            assert_conforms(&works[i], LAYOUT_NHWC);
        assert_gradients(&works[i]);
    }
}

static void sigmoids_agree(void **state)
{
    (void)state;
    const struct work works[] = {sigmoid_work(matrix(1, 1)), sigmoid_work(matrix(3, 11)),
                                 sigmoid_work(image(2, 3, 4, 5)),
                                 sigmoid_work(image(8, 16, 17, 16))};
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        assert_conforms(&works[i], LAYOUT_PLAIN);
        if (works[i].x.n == 4)
            assert_conforms(&works[i], LAYOUT_NHWC);
        assert_gradients(&works[i]);
    }
}

static void scales_agree(void **state)
{
    (void)state;
    const struct work works[] = {scale_work(matrix(1, 1), true), scale_work(matrix(3, 11), false),
                                 scale_work(image(2, 3, 4, 5), true),
                                 scale_work(image(18, 16, 17, 16), true)};
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        assert_conforms(&works[i], LAYOUT_PLAIN);
        if (works[i].x.n == 4)
            assert_conforms(&works[i], LAYOUT_NHWC);
        assert_gradients(&works[i]);
    }
}

static void assert_in_place_is_the_same(const struct kernels *set, const struct work *work)
{
    struct arena arena;
    struct op *op;
    struct run run = run_new(work);
    run_set(set, work, LAYOUT_PLAIN, &run);
    arena_init(&arena);
    plan_or_fail(set, work, LAYOUT_PLAIN, true, &arena, &op);
    assert_true(op->in_place);
    struct op_args args = {.x = run.x.v, .y = run.x.v, .dy = run.dy.v, .dx = run.dy.v};
    op->ops->forward(op, &args);
    op->ops->backward(op, &args);
    assert_memory_equal(run.x.v, run.y.v, run.y.n * sizeof(float));
    assert_memory_equal(run.dy.v, run.dx.v, run.dx.n * sizeof(float));
    op_release(op);
    arena_release(&arena);
    run_free(&run);
}

static void in_place_gives_the_same(void **state)
{
    (void)state;
    const struct work works[] = {relu_work(matrix(5, 13), 0.25f), sigmoid_work(matrix(5, 13))};
    for (size_t i = 0; i < sizeof works / sizeof *works; i++)
        for (size_t s = 0; s < SETS; s++)
            assert_in_place_is_the_same(sets[s], &works[i]);
}

static void reference_has_the_same_bits_for_any_thread_count(void **state)
{
    (void)state;
    const struct work works[] = {conv_work(image(4, 20, 12, 12), 50, 5, 5, 1, 0, true),
                                 inner_work(image(8, 50, 4, 4), 500, true),
                                 pool_work(POOL_AVERAGE, image(8, 20, 24, 24), 3, 2, 0),
                                 sigmoid_work(matrix(64, 480)),
                                 scale_work(image(24, 8, 10, 12), true)};
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        struct run one = run_new(&works[i]), three = run_new(&works[i]);
        kernels_set_threads(1);
        run_set(&kernels_ref, &works[i], LAYOUT_PLAIN, &one);
        kernels_set_threads(3);
        run_set(&kernels_ref, &works[i], LAYOUT_PLAIN, &three);
        kernels_set_threads(2);
        assert_memory_equal(one.y.v, three.y.v, one.y.n * sizeof(float));
        assert_memory_equal(one.dx.v, three.dx.v, one.dx.n * sizeof(float));
        assert_memory_equal(one.dw.v, three.dw.v, one.dw.n * sizeof(float));
        assert_memory_equal(one.db.v, three.db.v, one.db.n * sizeof(float));
        run_free(&one), run_free(&three);
    }
}

/* Inputs counted 1, 2, 3 ... and dy all ones: numbers that pencil and paper check. */
static struct run run_counted(const struct work *work)
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

static void assert_worked(const struct work *work, enum layout layout, const float *y,
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

static void convolution_by_hand(void **state)
{
    (void)state;
    struct work work = conv_work(image(1, 1, 3, 3), 1, 2, 2, 1, 0, true);
    /* 1·1 + 2·2 + 4·3 + 5·4 = 37, and a half; the kernel is not turned over. */
    assert_worked(&work, LAYOUT_PLAIN, (float[]){37.5f, 47.5f, 67.5f, 77.5f},
                  (float[]){1, 3, 2, 4, 10, 6, 3, 7, 4}, (float[]){12.5f, 16.5f, 24.5f, 28.5f},
                  (float[]){4.5f});
    /* Two channels, padding 1, stride 2: each tap meets one pixel of a 2×2 image. */
    struct work padded = conv_work(image(1, 2, 2, 2), 1, 2, 2, 2, 1, false);
    assert_worked(&padded, LAYOUT_PLAIN,
                  (float[]){4 * 1 + 8 * 5, 3 * 2 + 7 * 6, 2 * 3 + 6 * 7, 1 * 4 + 5 * 8},
                  (float[]){4, 3, 2, 1, 8, 7, 6, 5},
                  (float[]){4.5f, 3.5f, 2.5f, 1.5f, 8.5f, 7.5f, 6.5f, 5.5f}, NULL);
}

static void inner_product_counts_in_nchw_order(void **state)
{
    (void)state;
    struct work work = inner_work(image(1, 2, 1, 2), 2, true);
    for (enum layout layout = LAYOUT_PLAIN; layout <= LAYOUT_NHWC; layout++)
        assert_worked(&work, layout, (float[]){30.5f, 70.5f}, (float[]){6, 8, 10, 12},
                      (float[]){1.5f, 2.5f, 3.5f, 4.5f, 1.5f, 2.5f, 3.5f, 4.5f},
                      (float[]){1.5f, 1.5f});
}

static void pooling_by_caffes_rules(void **state)
{
    (void)state;
    /* 3×3 windows, stride 2, on 4×4: the second column and row run past the edge. */
    struct work past = pool_work(POOL_MAX, image(1, 1, 4, 4), 3, 2, 0);
    assert_int_equal(past.y.dim[2], 2);
    assert_worked(&past, LAYOUT_PLAIN, (float[]){11, 12, 15, 16},
                  (float[]){0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1}, NULL, NULL);
    past = pool_work(POOL_AVERAGE, image(1, 1, 4, 4), 3, 2, 0);
    assert_worked(&past, LAYOUT_PLAIN, (float[]){6, 7.5f, 12, 13.5f}, NULL, NULL, NULL);

    /* 2×2, stride 2, padding 1 on 3×3: a third window would start in the far padding. */
    struct work padded = pool_work(POOL_MAX, image(1, 1, 3, 3), 2, 2, 1);
    assert_int_equal(padded.y.dim[2], 2);
    assert_worked(&padded, LAYOUT_PLAIN, (float[]){1, 3, 7, 9}, NULL, NULL, NULL);
    padded = pool_work(POOL_AVERAGE, image(1, 1, 3, 3), 2, 2, 1);
    assert_worked(&padded, LAYOUT_PLAIN, (float[]){0.25f, 1.25f, 2.75f, 7},
                  (float[]){.25f, .25f, .25f, .25f, .25f, .25f, .25f, .25f, .25f}, NULL, NULL);

    /* 4×4, stride 3, padding 1 on 4×4: near padding counts in the divisor, and far padding too,
     * but not what lies beyond it. */
    struct work both = pool_work(POOL_AVERAGE, image(1, 1, 4, 4), 4, 3, 1);
    assert_worked(&both, LAYOUT_PLAIN, (float[]){54.0f / 16, 45.0f / 12, 72.0f / 12, 54.0f / 9},
                  NULL, NULL, NULL);
}

static void first_of_equals_is_the_maximum(void **state)
{
    (void)state;
    struct work work = pool_work(POOL_MAX, image(1, 20, 2, 2), 2, 2, 0);
    for (size_t s = 0; s < SETS; s++) {
        struct run run = run_counted(&work);
        for (size_t i = 0; i < run.x.n; i++)
            run.x.v[i] = -7;
        run_set(sets[s], &work, LAYOUT_PLAIN, &run);
        for (size_t i = 0; i < run.x.n; i++)
            assert_true(run.dx.v[i] == (i % 4 == 0 ? 1.0f : 0.0f));
        run_free(&run);
    }
}

/* 1 / (1 + 1/3) = 3/4, and on from there; far out it is flat, and what is no number stays none. */
static void sigmoid_by_hand(void **state)
{
    (void)state;
    struct work work = sigmoid_work(matrix(1, 8));
    const float x[] = {0, logf(3), -logf(3), logf(4), 1000, -1000, INFINITY, -INFINITY};
    const float y[] = {0.5f, 0.75f, 0.25f, 0.8f, 1, 0, 1, 0};
    const float dx[] = {0.25f, 0.1875f, 0.1875f, 0.16f, 0, 0, 0, 0};
    for (size_t s = 0; s < SETS; s++) {
        struct run run = run_counted(&work);
        memcpy(run.x.v, x, sizeof x);
        run_set(sets[s], &work, LAYOUT_PLAIN, &run);
        assert_close("y", y, run.y.v, run.y.n, 1e-6);
        assert_close("dx", dx, run.dx.v, run.dx.n, 1e-6);
        run.x.v[3] = NAN;
        run_set(sets[s], &work, LAYOUT_PLAIN, &run);
        assert_true(isnan(run.y.v[3]) && isnan(run.dx.v[3]) && run.y.v[4] == 1.0f);
        run_free(&run);
    }
}

/* Two records of two channels of two pixels, x = 1 .. 8, w = (1, 2), b = ½, and dy = 1: so dw is
 * the sum of a channel's pixels, 1 + 2 + 5 + 6 and 3 + 4 + 7 + 8. */
static void scale_by_hand(void **state)
{
    (void)state;
    struct work work = scale_work(image(2, 2, 1, 2), true);
    const float y[] = {1.5f, 2.5f, 6.5f, 8.5f, 5.5f, 6.5f, 14.5f, 16.5f};
    const float dx[] = {1, 1, 2, 2, 1, 1, 2, 2}, dw[] = {14.5f, 22.5f}, db[] = {4.5f, 4.5f};
    for (size_t s = 0; s < SETS; s++)
        for (int layout = LAYOUT_PLAIN; layout <= LAYOUT_NHWC; layout++) {
            struct run run = run_counted(&work);
            run_set(sets[s], &work, (enum layout)layout, &run);
            assert_memory_equal(run.y.v, y, sizeof y);
            assert_memory_equal(run.dx.v, dx, sizeof dx);
            assert_memory_equal(run.dw.v, dw, sizeof dw);
            assert_memory_equal(run.db.v, db, sizeof db);
            run_free(&run);
        }
}

static void softmax_is_right_and_does_not_overflow(void **state)
{
    (void)state;
    struct work work = softmax_work(matrix(3, 3));
    const float x[] = {1, 2, 3, 1000, 1000, -1000, -1e9f, -1e9f, -1e9f};
    const float y[] = {.09003057f, .24472847f, .66524096f, .5f,     .5f,
                       0,          1 / 3.0f,   1 / 3.0f,   1 / 3.0f};
    for (size_t s = 0; s < SETS; s++) {
        struct run run = run_new(&work);
        memcpy(run.x.v, x, sizeof x);
        run_set(sets[s], &work, LAYOUT_PLAIN, &run);
        assert_close("y", y, run.y.v, run.y.n, 1e-6);
        run_free(&run);
    }
}

static void window_without_a_pixel_is_refused(void **state)
{
    (void)state;
    struct shape x = image(1, 1, 4, 4), y = image(1, 1, 2, 2);
    struct pool_spec spec = {POOL_MAX, x, y, 1, 1, 4, 4, 0, 0};
    struct arena arena;
    arena_init(&arena);
    for (size_t s = 0; s < SETS; s++) {
        struct op *op = NULL;
        struct err err = {0};
        assert_int_equal(sets[s]->pool(&spec, true, &arena, &op, &err), ERR_UNSUPPORTED);
        assert_null(op);
        assert_non_null(strstr(err.text, "no pixel"));
    }
    arena_release(&arena);
}

static void layouts_convert_both_ways(void **state)
{
    (void)state;
    struct shape shape = image(2, 2, 1, 3);
    const float nchw[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const float nhwc[] = {1, 4, 2, 5, 3, 6, 7, 10, 8, 11, 9, 12};
    float out[12];
    kernels_reorder(&shape, LAYOUT_PLAIN, nchw, LAYOUT_NHWC, out);
    assert_memory_equal(out, nhwc, sizeof out);
    kernels_reorder(&shape, LAYOUT_NHWC, nhwc, LAYOUT_PLAIN, out);
    assert_memory_equal(out, nchw, sizeof out);
    assert_true(strlen(kernels_isa()) > 0);
}

int main(void)
{
    kernels_set_threads(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_convert_both_ways),
        cmocka_unit_test(convolution_by_hand),
        cmocka_unit_test(inner_product_counts_in_nchw_order),
        cmocka_unit_test(pooling_by_caffes_rules),
        cmocka_unit_test(first_of_equals_is_the_maximum),
        cmocka_unit_test(sigmoid_by_hand),
        cmocka_unit_test(scale_by_hand),
        cmocka_unit_test(softmax_is_right_and_does_not_overflow),
        cmocka_unit_test(window_without_a_pixel_is_refused),
        cmocka_unit_test(convolutions_agree),
        cmocka_unit_test(poolings_agree),
        cmocka_unit_test(inner_products_agree),
        cmocka_unit_test(relus_agree),
        cmocka_unit_test(sigmoids_agree),
        cmocka_unit_test(scales_agree),
        cmocka_unit_test(in_place_gives_the_same),
        cmocka_unit_test(reference_has_the_same_bits_for_any_thread_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
