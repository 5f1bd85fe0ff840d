/* Arithmetic that all kernel sets share, at sizes where threads take part: against plain loops over
 * indices, and the same bits for any number of threads. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tensor/broadcast.h"
#include "tensor/combine.h"
#include "tensor/map.h"
#include "tensor/span.h"

#include <math.h>
#include <string.h>

enum { SEED = 5 };

static float *fill_numbers(struct arena *arena, size_t n, uint32_t stream)
{
    float *x = arena_array(arena, n, float);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = 2.0f * rng_uniform(SEED, stream, i) - 1.0f;
    return x;
}

static float *zero_array(struct arena *arena, size_t n)
{
    float *x = arena_array(arena, n, float);
    assert_non_null(x);
    return x;
}

/* Where element i of the canonical order lies in memory. */
static size_t index_of(const struct shape *x, enum layout layout, size_t i)
{
    if (layout == LAYOUT_PLAIN)
        return i;
    size_t S = x->dim[2] * x->dim[3], C = x->dim[1];
    return i / (C * S) * C * S + i % S * C + i / S % C;
}

/* The entry of w, in canonical order, that element i meets. */
static size_t entry_of(const struct broadcast_spec *spec, size_t i)
{
    size_t index[SHAPE_DIMS_MAX], at = 0;
    for (size_t k = spec->x.n; k-- > 0; i /= spec->x.dim[k])
        index[k] = i % spec->x.dim[k];
    for (size_t k = 0; k < spec->w.n; k++)
        at = at * spec->w.dim[k] + index[spec->axis + k];
    return at;
}

struct outcome {
    float *y, *dx, *dw, *db;
};

static struct outcome run_example(const struct broadcast_spec *spec, struct op_args args,
                                  int threads, struct arena *arena)
{
    struct op *op;
    struct err err;
    struct outcome out = {
        zero_array(arena, shape_count(&spec->x)), zero_array(arena, shape_count(&spec->x)),
        zero_array(arena, shape_count(&spec->w)), zero_array(arena, shape_count(&spec->w))};
    kernels_set_threads(threads);
    assert_int_equal(broadcast_plan(spec, true, arena, &op, &err), OK);
    args.y = out.y;
    args.dx = out.dx;
    args.dw = out.dw;
    args.db = spec->bias ? out.db : NULL;
    op->ops->forward(op, &args);
    op->ops->backward(op, &args);
    op_release(op);
    return out;
}

static void expect_sums(double a, double b, double tolerance)
{
    if (!(fabs(a - b) <= tolerance))
        fail_msg("%.9g, not %.9g", a, b);
}

static void check_example(const struct broadcast_spec *spec)
{
    struct arena arena;
    arena_init(&arena);
    size_t n = shape_count(&spec->x), W = shape_count(&spec->w);
    struct op_args args = {fill_numbers(&arena, n, 1),
                           fill_numbers(&arena, W, 2),
                           NULL,
                           NULL,
                           fill_numbers(&arena, n, 4),
                           NULL,
                           NULL,
                           NULL};
    args.b = spec->bias ? fill_numbers(&arena, W, 3) : NULL;
    struct outcome one = run_example(spec, args, 1, &arena),
                   more = run_example(spec, args, 3, &arena);
    double *dw = arena_array(&arena, W, double), *db = arena_array(&arena, W, double);
    const struct op_floats io = op_floats(&args);
    for (size_t i = 0; i < n; i++) {
        size_t at = index_of(&spec->x, spec->layout, i);
        size_t e = entry_of(spec, i), w_at = index_of(&spec->w, spec->w_layout, e);
        double x = (double)io.x[at], dy = (double)io.dy[at], w = (double)args.w[w_at];
        double b = args.b ? (double)args.b[w_at] : 0.0;
        bool sloped = spec->kind == BROADCAST_SLOPE && x > 0;
        bool bias = spec->kind == BROADCAST_BIAS;
        expect_sums((double)one.y[at], bias ? x + w : sloped ? x : w * x + b, 1e-6);
        expect_sums((double)one.dx[at], bias || sloped ? dy : w * dy, 1e-6);
        dw[w_at] += bias ? dy : sloped ? 0.0 : x * dy;
        db[w_at] += dy;
    }
    for (size_t i = 0; i < W; i++) {
        expect_sums((double)one.dw[i], dw[i], 1e-6 * (double)n);
        expect_sums((double)one.db[i], spec->bias ? db[i] : 0.0, 1e-6 * (double)n);
    }
    assert_memory_equal(one.y, more.y, n * sizeof(float));
    assert_memory_equal(one.dx, more.dx, n * sizeof(float));
    assert_memory_equal(one.dw, more.dw, W * sizeof(float));
    assert_memory_equal(one.db, more.db, W * sizeof(float));
    arena_release(&arena);
}

static void test_broadcast_entries(void **state)
{
    (void)state;
    const struct shape x = {4, {19, 5, 12, 16}};
    for (int kind = BROADCAST_SCALE; kind <= BROADCAST_SLOPE; kind++)
        for (int layout = LAYOUT_PLAIN; layout <= LAYOUT_NHWC; layout++)
            for (size_t axis = 0; axis < x.n; axis++)
                for (size_t n = 0; axis + n <= x.n; n++) {
                    struct broadcast_spec spec = {.kind = (enum broadcast_kind)kind,
                                                  .x = x,
                                                  .w = {.n = n},
                                                  .axis = axis,
                                                  .layout = (enum layout)layout};
                    memcpy(spec.w.dim, x.dim + axis, n * sizeof x.dim[0]);
                    spec.w_layout = n == 4 ? spec.layout : LAYOUT_PLAIN;
                    spec.bias = kind == BROADCAST_SCALE && (axis > 0 || n == 0);
                    check_example(&spec);
                }
}

/* One worker with 64 records, and four with 16 each whose sums a tree adds up: the same bits. */
static void test_broadcast_sums_ignore_batch_splits(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    struct broadcast_spec spec = {
        .kind = BROADCAST_SLOPE, .x = {4, {64, 6, 5, 7}}, .w = {1, {6}}, .axis = 1};
    size_t n = shape_count(&spec.x);
    struct op_args args = {.x = fill_numbers(&arena, n, 1),
                           .w = fill_numbers(&arena, 6, 2),
                           .dy = fill_numbers(&arena, n, 4)};
    struct outcome whole = run_example(&spec, args, 2, &arena), part[4];
    spec.x.dim[0] = 16;
    for (size_t k = 0; k < 4; k++) {
        struct op_args cut = args;
        cut.x = (const float *)args.x + k * n / 4;
        cut.dy = (const float *)args.dy + k * n / 4;
        part[k] = run_example(&spec, cut, 2, &arena);
    }
    for (size_t i = 0; i < 6; i++) {
        float sum = (part[0].dw[i] + part[1].dw[i]) + (part[2].dw[i] + part[3].dw[i]);
        assert_true(sum == whole.dw[i]);
    }
    arena_release(&arena);
}

static void test_threads_change_no_function(void **state)
{
    (void)state;
    enum { N = 70001 };
    struct arena arena;
    arena_init(&arena);
    const float *x[] = {fill_numbers(&arena, N, 1), fill_numbers(&arena, N, 2),
                        fill_numbers(&arena, N, 3)};
    const float *dy = fill_numbers(&arena, N, 4), coeff[] = {1.0f, -2.0f, 0.5f};
    float *y[2] = {zero_array(&arena, N), zero_array(&arena, N)},
          *dx[2] = {zero_array(&arena, N), zero_array(&arena, N)};
    for (int kind = MAP_POWER; kind <= MAP_ELU; kind++) {
        const struct map_spec spec = {(enum map_kind)kind, N, 0.5, 2.0, 3.0};
        struct err err;
        for (int k = 0; k < 2; k++) {
            struct op *op;
            struct op_args args = {.x = x[0], .y = y[k], .dy = dy, .dx = dx[k]};
            kernels_set_threads(1 + 2 * k);
            assert_int_equal(map_plan(&spec, true, &arena, &op, &err), OK);
            op->ops->forward(op, &args);
            op->ops->backward(op, &args);
        }
        assert_memory_equal(y[0], y[1], N * sizeof(float));
        assert_memory_equal(dx[0], dx[1], N * sizeof(float));
    }
    for (int kind = COMBINE_SUM; kind <= COMBINE_MAX; kind++) {
        const struct combine c = {(enum combine_kind)kind, 3, N, coeff, false};
        for (int k = 0; k < 2; k++) {
            kernels_set_threads(1 + 2 * k);
            combine_forward(&c, x, y[k]);
            combine_backward(&c, 2, x, dy, dx[k]);
        }
        assert_memory_equal(y[0], y[1], N * sizeof(float));
        assert_memory_equal(dx[0], dx[1], N * sizeof(float));
    }
    for (size_t i = 0; i < N; i++) { /* of the last: the maximum */
        float most = x[0][i] > x[1][i] ? x[0][i] : x[1][i];
        assert_true(y[0][i] == (x[2][i] > most ? x[2][i] : most));
        assert_true(dx[0][i] == (x[2][i] > most ? dy[i] : 0.0f));
    }
    arena_release(&arena);
}

/* Parts that are taken out and put back along each axis are the whole again. */
static void test_broadcast_spans_split_and_merge(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    const struct shape shape = {4, {6, 8, 24, 32}};
    size_t n = shape_count(&shape);
    const float *x = fill_numbers(&arena, n, 1);
    float *part = zero_array(&arena, n), *y = zero_array(&arena, n);
    kernels_set_threads(3);
    for (int layout = LAYOUT_PLAIN; layout <= LAYOUT_NHWC; layout++)
        for (size_t axis = 0; axis < shape.n; axis++) {
            struct span whole = span_of(&shape, (enum layout)layout, axis);
            assert_true(whole.outer * whole.n * whole.inner == n && whole.n == shape.dim[axis]);
            memset(y, 0, n * sizeof *y);
            for (size_t at = 0, len = 1; at < whole.n; at += len, len = len % 3 + 1) {
                struct span some = whole;
                some.n = len = whole.n - at < len ? whole.n - at : len;
                span_get(&whole, x, &some, at, part);
                span_put(&some, part, &whole, at, y);
            }
            assert_memory_equal(x, y, n * sizeof *y);
            struct span first = whole;
            first.n = 1;
            span_put(&first, NULL, &whole, 0, y);
            span_get(&whole, y, &first, 0, part);
            for (size_t i = 0; i < n / whole.n; i++)
                assert_true(part[i] == 0.0f);
        }
    arena_release(&arena);
}

/* Along any axis: positive, of sum 1, and the largest first; large numbers do not overflow. */
static void test_softmax_sums_to_one(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    const struct span spans[] = {{40, 25, 33, DTYPE_F32},
                                 {1000, 30, 1, DTYPE_F32},
                                 {1, 2, 20000, DTYPE_F32},
                                 {3, 1, 5, DTYPE_F32}};
    for (size_t k = 0; k < sizeof spans / sizeof spans[0]; k++) {
        struct span s = spans[k];
        size_t n = s.outer * s.n * s.inner;
        float *x = fill_numbers(&arena, n, 1), *y = zero_array(&arena, n),
              *in_place = zero_array(&arena, n);
        for (size_t i = 0; i < n; i++)
            in_place[i] = x[i] *= 200.0f;
        kernels_set_threads(3);
        span_softmax(&s, x, y);
        kernels_set_threads(1);
        span_softmax(&s, in_place, in_place);
        assert_memory_equal(y, in_place, n * sizeof *y);
        for (size_t o = 0; o < s.outer; o++)
            for (size_t i = 0; i < s.inner; i++) {
                double sum = 0.0;
                for (size_t c = 0; c < s.n; c++)
                    sum += (double)y[(o * s.n + c) * s.inner + i];
                expect_sums(sum, 1.0, 1e-5);
            }
    }
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broadcast_entries),
        cmocka_unit_test(test_broadcast_sums_ignore_batch_splits),
        cmocka_unit_test(test_threads_change_no_function),
        cmocka_unit_test(test_broadcast_spans_split_and_merge),
        cmocka_unit_test(test_softmax_sums_to_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
