/* Recurrent layers of the fast kernel set: near the reference's, and the same bits whichever thread
 * takes a record and whichever records come along. */
#include "tensor/recurrence.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/status.h"

/* No multiple of a vector, and enough work for several threads; the units are more than two strips
 * of the widest vectors. */
enum { N = 13, T = 9, D = 21, S = 3, H = 71, GATES = 4, KINDS = 11 };

static const struct {
    const char *name;
    enum recurrence_kind kind;
    bool reverse;
} kinds[] = {
    {"tanh", RECURRENCE_TANH, false},           {"state", RECURRENCE_STATE, false},
    {"lstm", RECURRENCE_LSTM, false},           {"gru", RECURRENCE_GRU, false},
    {"reset", RECURRENCE_RESET, false},         {"tanh, reverse", RECURRENCE_TANH, true},
    {"state, reverse", RECURRENCE_STATE, true}, {"lstm, reverse", RECURRENCE_LSTM, true},
    {"gru, reverse", RECURRENCE_GRU, true},     {"reset, reverse", RECURRENCE_RESET, true},
};

struct result {
    float y[N * T * H], last[RECURRENCE_STATES][N * H], dx[N * T * D], dfixed[N * S];
    float dfirst[RECURRENCE_STATES][N * H];
    float dw[RECURRENCE_PARAMS][GATES * H * H];
};

static void make_up(size_t n, uint64_t stream, float scale, float *to)
{
    for (size_t i = 0; i < n; i++)
        to[i] = scale * rng_normal(5, stream, i);
}

static const float *made_up(struct arena *arena, size_t n, uint64_t stream, float scale)
{
    float *v = arena_array(arena, n, float);
    assert_non_null(v);
    make_up(n, stream, scale, v);
    return v;
}

/* 0 where a sequence begins, else 1. */
static const float *make_marks(struct arena *arena)
{
    float *cont = arena_array(arena, N * T, float);
    assert_non_null(cont);
    for (size_t i = 0; i < N * T; i++)
        cont[i] = i % 7 == 3 ? 0.0f : 1.0f;
    return cont;
}

/* Of a kind that is there, but for kind 3. */
static float number_at(size_t i)
{
    return (float)(i * 5 % KINDS == 3 ? 4 : i * 5 % KINDS);
}

/* Rows of the same table of kinds, and their numbers. */
static void repeat_rows(struct arena *arena, const float **x, const float **numbers)
{
    const float *table = made_up(arena, KINDS * D, 1, 1);
    float *rows = arena_array(arena, N * T * D, float), *of = arena_array(arena, N * T, float);
    assert_true(rows && of);
    for (size_t i = 0; i < N * T; i++) {
        of[i] = number_at(i);
        memcpy(rows + i * D, table + (size_t)of[i] * D, D * sizeof *rows);
    }
    *x = rows;
    *numbers = of;
}

/* Records `from` to `from` + n of the same N. */
static void fill_args(const struct recurrence_spec *spec, size_t from, struct arena *arena,
                      struct result *r, struct recurrence_args *args)
{
    *args = (struct recurrence_args){
        .x = made_up(arena, N * T * D, 1, 1) + from * T * D,
        .fixed = made_up(arena, N * S, 2, 1) + from * S,
        .cont = make_marks(arena) + from * T,
        .dy = made_up(arena, N * T * H, 3, 1) + from * T * H,
        .first_row = H,
        .last_row = H,
        .first_records = spec->N,
        .last_records = spec->N,
        .y = r->y + from * T * H,
        .dx = r->dx + from * T * D,
        .dfixed = r->dfixed + from * S,
    };
    if (spec->kinds > 0) {
        repeat_rows(arena, &args->x, &args->numbers);
        args->x += from * T * D;
        args->numbers += from * T;
    }
    for (size_t k = 0; k < recurrence_states(spec->kind); k++) {
        args->first[k] = made_up(arena, N * H, 4 + k, 0.5f) + from * H;
        args->dlast[k] = made_up(arena, N * H, 6 + k, 1) + from * H;
        args->last[k] = r->last[k] + from * H;
        args->dfirst[k] = r->dfirst[k] + from * H;
    }
    for (enum recurrence_param k = 0; k < RECURRENCE_PARAMS; k++) {
        const struct shape shape = recurrence_param_shape(spec, k);
        if (shape.n == 0)
            continue;
        args->w[k] = made_up(arena, shape_count(&shape), 8 + k, 0.2f);
        args->dw[k] = r->dw[k];
    }
}

static void run_rows(const struct kernels *set, size_t kind, size_t row_kinds, size_t from,
                     size_t n, struct result *r)
{
    const struct recurrence_spec spec = {kinds[kind].kind,   n, T, D, S, H, {0, H}, row_kinds,
                                         kinds[kind].reverse};
    struct recurrence_args args;
    struct recurrence *op;
    struct arena arena;
    struct err err = {0};
    arena_init(&arena);
    if (set->recurrence(&spec, true, &arena, &op, &err) != OK)
        fail_msg("%s", err.text);
    fill_args(&spec, from, &arena, r, &args);
    recurrence_forward(op, &args);
    recurrence_backward(op, &args);
    op_release(&op->op);
    arena_release(&arena);
}

static void run_records(const struct kernels *set, size_t kind, size_t from, size_t n,
                        struct result *r)
{
    run_rows(set, kind, 0, from, n, r);
}

static void assert_near(const char *kind, const char *what, const float *a, const float *b,
                        size_t n)
{
    double most = 0, scale = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        scale = fmax(scale, fabs((double)b[i]));
    }
    if (!(most <= 1e-5 * scale))
        fail_msg("%s: %s differs by %g of %g", kind, what, most, scale);
}

static void assert_all_near(size_t i, const struct result *fast, const struct result *ref)
{
    const char *name = kinds[i].name;
    assert_near(name, "y", fast->y, ref->y, N * T * H);
    assert_near(name, "dx", fast->dx, ref->dx, N * T * D);
    assert_near(name, "dfixed", fast->dfixed, ref->dfixed, N * S);
    for (size_t k = 0; k < recurrence_states(kinds[i].kind); k++) {
        assert_near(name, "last", fast->last[k], ref->last[k], N * H);
        assert_near(name, "dfirst", fast->dfirst[k], ref->dfirst[k], N * H);
    }
    for (size_t k = 0; k < RECURRENCE_PARAMS; k++)
        assert_near(name, "dw", fast->dw[k], ref->dw[k], GATES * H * H);
}

static void test_near_the_reference(void **state)
{
    static struct result fast, ref;
    (void)state;
    kernels_set_threads(2);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        fast = ref = (struct result){0};
        run_records(&kernels_dnnl, i, 0, N, &fast);
        run_records(&kernels_ref, i, 0, N, &ref);
        assert_all_near(i, &fast, &ref);
    }
}

/* Of a dx of rows: the sum by number, in the rows at the beginning. */
static void add_up(float *dx)
{
    static float sums[N * T * D];
    memset(sums, 0, sizeof sums);
    for (size_t i = 0; i < N * T; i++)
        for (size_t j = 0; j < D; j++)
            sums[(size_t)number_at(i) * D + j] += dx[i * D + j];
    memcpy(dx, sums, sizeof sums);
}

static void test_rows_that_repeat(void **state)
{
    static struct result fast, ref;
    (void)state;
    for (int threads = 1; threads <= 2; threads++)
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            kernels_set_threads(threads);
            fast = ref = (struct result){0};
            run_rows(&kernels_dnnl, i, KINDS, 0, N, &fast);
            run_rows(&kernels_ref, i, KINDS, 0, N, &ref);
            add_up(fast.dx);
            add_up(ref.dx);
            assert_all_near(i, &fast, &ref);
        }
}

/* A number that has no row makes the rest of its record NaN, and no other. */
static void test_a_number_without_a_row(void **state)
{
    enum { RECORD = 4, STEP = 3 };
    static struct result r;
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct recurrence_spec spec = {kinds[i].kind,   N, T, D, S, H, {0, H}, KINDS,
                                             kinds[i].reverse};
        struct recurrence_args args;
        struct recurrence *op;
        struct arena arena;
        struct err err = {0};
        arena_init(&arena);
        assert_int_equal(kernels_dnnl.recurrence(&spec, true, &arena, &op, &err), OK);
        fill_args(&spec, 0, &arena, &r, &args);
        args.cont = NULL;
        float *x = arena_array(&arena, N * T * D, float), *of = arena_array(&arena, N * T, float);
        assert_true(x && of);
        memcpy(x, args.x, N * T * D * sizeof *x);
        memcpy(of, args.numbers, N * T * sizeof *of);
        of[RECORD * T + STEP] = KINDS;
        for (size_t j = 0; j < D; j++)
            x[(RECORD * T + STEP) * D + j] = NAN;
        args.x = x;
        args.numbers = of;
        recurrence_forward(op, &args);
        for (size_t at = 0; at < N * T; at++)
            for (size_t h = 0; h < H; h++)
                assert_int_equal(isnan(r.y[at * H + h]) != 0,
                                 at / T == RECORD &&
                                     (kinds[i].reverse ? at % T <= STEP : at % T >= STEP));
        op_release(&op->op);
        arena_release(&arena);
    }
}

static void test_threads_leave_the_bits(void **state)
{
    static struct result one, several;
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int threads = 2; threads <= 4; threads++) {
            one = several = (struct result){0};
            kernels_set_threads(1);
            run_records(&kernels_dnnl, i, 0, N, &one);
            kernels_set_threads(threads);
            run_records(&kernels_dnnl, i, 0, N, &several);
            if (memcmp(&one, &several, sizeof one) != 0)
                fail_msg("%s: %d threads have other bits", kinds[i].name, threads);
        }
}

/* Of a batch of 13 records, and of parts of 1, 3 and 9. */
static void test_records_leave_the_bits(void **state)
{
    static struct result whole, cut;
    (void)state;
    kernels_set_threads(2);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        whole = cut = (struct result){0};
        run_records(&kernels_dnnl, i, 0, N, &whole);
        run_records(&kernels_dnnl, i, 0, 1, &cut);
        run_records(&kernels_dnnl, i, 1, 3, &cut);
        run_records(&kernels_dnnl, i, 4, 9, &cut);
        if (memcmp(&whole, &cut, offsetof(struct result, dw)) != 0)
            fail_msg("%s: records have other bits in another batch", kinds[i].name);
        whole = cut = (struct result){0};
        run_rows(&kernels_dnnl, i, KINDS, 0, N, &whole);
        run_rows(&kernels_dnnl, i, KINDS, 0, 2, &cut);
        run_rows(&kernels_dnnl, i, KINDS, 2, N - 2, &cut);
        if (memcmp(&whole, &cut, offsetof(struct result, dx)) != 0)
            fail_msg("%s: rows that repeat have other bits in another batch", kinds[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_near_the_reference),
        cmocka_unit_test(test_rows_that_repeat),
        cmocka_unit_test(test_a_number_without_a_row),
        cmocka_unit_test(test_threads_leave_the_bits),
        cmocka_unit_test(test_records_leave_the_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
