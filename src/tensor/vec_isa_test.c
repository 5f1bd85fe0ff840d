/* All tables of inner loops give the same bits: each update of the closed set, a hundred times over
 * on ranges that start and end anywhere, by the table of each instruction set and by the plain one.
 * And the comparison is sharp: the same loops with products and sums fused do not pass it. */
#include "base/rng.h"
#include "tensor/vec.h"
#include "tensor/vec_kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 20011, VECS = 4, STEPS = 100, SEED = 11 };

/* vec_loops.c, compiled for this test alone with leave to fuse. */
extern const struct vec_kernels vec_kernels_fused;

struct model {
    float at[VECS][N]; /* none below zero in the last two, of which roots are taken */
    double sum;
    bool finite;
};

struct bench {
    struct model start, plain, other;
    float noise[2 * N]; /* a step's gradient begins anywhere in it */
};

/* Very different sizes, so that an order of operations shows; some are subnormal. */
static float input_value(uint64_t stream, size_t i)
{
    float u = rng_normal(SEED, stream, i);
    return i % 5 == 0 ? u * 1e-4f : i % 7 == 0 ? u * 300 : i % 97 == 0 ? u * 1e-41f : u;
}

static int bench_init(void **state)
{
    struct bench *b = calloc(1, sizeof *b);
    if (!b)
        return -1;
    for (size_t k = 0; k < VECS; k++)
        for (size_t i = 0; i < N; i++)
            b->start.at[k][i] = k < 2 ? input_value(100 + k, i) : fabsf(input_value(100 + k, i));
    for (size_t i = 0; i < 2 * N; i++)
        b->noise[i] = 0.1f * input_value(99, i);
    *state = b;
    return 0;
}

static int bench_release(void **state)
{
    free(*state);
    return 0;
}

/* One step: where, and the gradient there. */
struct step {
    size_t from, n;
    const float *dx;
    float sign; /* +1 and -1 in turn: a hundred steps stay within bounds */
};

static struct step step_of(const struct bench *b, uint64_t i)
{
    size_t from = rng_below(SEED, 1, i, N);
    size_t n = i % 8 == 0 ? N - from : rng_below(SEED, 2, i, N - from + 1);
    const float *dx = b->noise + rng_below(SEED, 3, i, N);
    return (struct step){from, n, dx + from, i % 2 ? -1.0f : 1.0f};
}

typedef void trial_fn(const struct vec_kernels *k, struct model *m, const struct step *s);

#define AT(i) (m->at[i] + s->from)

static void run_fill(const struct vec_kernels *k, struct model *m, const struct step *s)
{
    k->fill(AT(0), s->dx[0], s->n);
}

static void run_scale(const struct vec_kernels *k, struct model *m, const struct step *s)
{
    k->scale(AT(0), s->sign > 0 ? 0.3f : 3.3f, s->n);
}

static void run_add(const struct vec_kernels *k, struct model *m, const struct step *s)
{
    k->add(AT(0), s->dx, s->n);
}

static void run_axpy(const struct vec_kernels *k, struct model *m, const struct step *s)
{
    k->axpy(AT(0), s->sign * 0.7f, s->dx, s->n);
}

static void run_lerp(const struct vec_kernels *k, struct model *m, const struct step *s)
{
    k->lerp(AT(0), 0.1f, s->dx, s->n);
}

static void run_penalise(const struct vec_kernels *k, struct model *m, const struct step *s)
{
    k->penalise(AT(0), 0.37f, AT(1), s->n);
    k->penalise(AT(1), 0.01f, s->dx, s->n);
}

static void run_extrapolate(const struct vec_kernels *k, struct model *m, const struct step *s)
{
    k->extrapolate(AT(0), AT(1), AT(2), AT(3), 0.9f, 0.3f, 1.7f, s->n);
    k->axpy(AT(2), s->sign, s->dx, s->n);
}

static const float weights[] = {0.5f, -1.25f, 0.1f};

/* As vec_weighted_sum. */
static void run_weighted_sum(const struct vec_kernels *k, struct model *m, const struct step *s)
{
    k->product(AT(0), weights[0], AT(1), s->n);
    k->axpy(AT(0), weights[1], AT(2), s->n);
    k->axpy(AT(0), weights[2], s->dx, s->n);
}

static void run_sgd(const struct vec_kernels *k, struct model *m, const struct step *s)
{
    const struct vec_sgd_step rule = {.rate = 0.04f, .momentum = 0.9f, .decay = 0.0005f};
    k->sgd(AT(0), s->dx, AT(1), rule, s->n);
}

static void run_nesterov(const struct vec_kernels *k, struct model *m, const struct step *s)
{
    const struct vec_sgd_step rule = {.rate = 0.04f, .momentum = 0.9f, .decay = 0.0005f};
    k->nesterov(AT(0), s->dx, AT(1), rule, s->n);
}

static void run_adagrad(const struct vec_kernels *k, struct model *m, const struct step *s)
{
    const struct vec_adagrad_step rule = {.rate = 0.04f, .delta = 1e-3f, .decay = 0.0005f};
    k->adagrad(AT(0), s->dx, AT(2), rule, s->n);
}

static void run_rmsprop(const struct vec_kernels *k, struct model *m, const struct step *s)
{
    const struct vec_rmsprop_step rule = {
        .rate = 0.04f, .rms_decay = 0.93f, .delta = 1e-6f, .decay = 0.0005f};
    k->rmsprop(AT(0), s->dx, AT(2), rule, s->n);
}

static void run_axpy_sign(const struct vec_kernels *k, struct model *m, const struct step *s)
{
    k->axpy_sign(AT(0), s->sign * 0.7f, s->dx, s->n);
}

static void run_adadelta(const struct vec_kernels *k, struct model *m, const struct step *s)
{
    const struct vec_adadelta_step rule = {
        .rate = 0.8f, .momentum = 0.93f, .delta = 1e-6f, .decay = 0.0005f};
    k->adadelta(AT(0), s->dx, AT(2), AT(3), rule, s->n);
}

/* Adam and AdamW in turn. */
static void run_adam(const struct vec_kernels *k, struct model *m, const struct step *s)
{
    const struct vec_adam_step rule = {
        .rate = 0.04f,
        .beta1 = 0.9f,
        .beta2 = 0.99f,
        .delta = 1e-6f,
        .decay = s->sign > 0 ? 0.0005f : 0,
        .keep = s->sign > 0 ? 1 : 0.997f,
    };
    k->adam(AT(0), s->dx, AT(1), AT(2), rule, s->n);
}

static void run_dot(const struct vec_kernels *k, struct model *m, const struct step *s)
{
    m->sum += k->dot_block(AT(0), s->dx, s->n < VEC_BLOCK ? s->n : VEC_BLOCK);
}

static void run_finite(const struct vec_kernels *k, struct model *m, const struct step *s)
{
    float *last = &m->at[0][N - 1];
    m->finite = k->finite(AT(0), s->n);
    assert_true(m->finite);
    memcpy(last, &(uint32_t){s->sign > 0 ? 0x7f800000u : 0xffc00001u}, sizeof *last);
    assert_int_equal(k->finite(AT(0), N - s->from), false);
    *last = 1;
}

static const struct trial {
    const char *name;
    trial_fn *run;
    bool multiplies_and_adds; /* then fusing must show */
} trials[] = {
    {"fill", run_fill, false},
    {"scale", run_scale, false},
    {"add", run_add, false},
    {"axpy", run_axpy, true},
    {"axpy sign", run_axpy_sign, false},
    {"lerp", run_lerp, true},
    {"penalise", run_penalise, true},
    {"extrapolate", run_extrapolate, true},
    {"weighted sum", run_weighted_sum, true},
    {"sgd", run_sgd, true},
    {"nesterov", run_nesterov, true},
    {"adagrad", run_adagrad, true},
    {"rmsprop", run_rmsprop, true},
    {"adadelta", run_adadelta, true},
    {"adam", run_adam, true},
    {"dot product", run_dot, false}, /* a product of floats is exact in double */
    {"finite", run_finite, false},
};

enum { TRIALS = sizeof trials / sizeof *trials };

/* Floats of the first vector that differ after all steps; -1: none of anything at any step. */
static int count_differing(struct bench *b, const struct trial *t, const struct vec_kernels *k)
{
    bool same = true;
    int count = 0;
    b->plain = b->other = b->start;
    for (uint64_t i = 0; i < STEPS; i++) {
        struct step s = step_of(b, i);
        t->run(&vec_kernels_base, &b->plain, &s);
        t->run(k, &b->other, &s);
        same = same && memcmp(&b->plain, &b->other, sizeof b->plain) == 0;
    }
    for (size_t i = 0; i < N; i++)
        count += memcmp(&b->plain.at[0][i], &b->other.at[0][i], sizeof(float)) != 0;
    return same ? -1 : count;
}

static void equals_the_plain_one(struct bench *b, size_t table)
{
    const struct vec_kernels *k = vec_kernels_at(table);
    if (!k || !vec_kernels_runs(table)) {
        print_message("skipped: %s\n", k ? "this processor has no such instructions"
                                         : "this build has no such table");
        skip();
        return;
    }
    for (size_t i = 0; i < TRIALS; i++)
        if (count_differing(b, &trials[i], k) >= 0)
            fail_msg("%s by %s differs from %s", trials[i].name, k->isa, vec_kernels_base.isa);
}

static void test_avx2_equals_the_plain_one(void **state)
{
    equals_the_plain_one(*state, 1);
}

static void test_avx512_equals_the_plain_one(void **state)
{
    equals_the_plain_one(*state, 2);
}

static bool can_fuse(void)
{
#ifdef __x86_64__
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return true;
#endif
}

static void test_fused_loops_do_not(void **state)
{
    if (!can_fuse()) {
        print_message("skipped: this processor does not fuse\n");
        skip();
        return;
    }
    for (size_t i = 0; i < TRIALS; i++) {
        int count = count_differing(*state, &trials[i], &vec_kernels_fused);
        if (!trials[i].multiplies_and_adds)
            continue;
        print_message("fused %s: %d of %d floats differ\n", trials[i].name, count, N);
        assert_true(count > N / 20);
    }
}

static void test_the_best_table_runs_here(void **state)
{
    (void)state;
    size_t count = 0, best = 0;
    for (; vec_kernels_at(count); count++)
        if (vec_kernels_runs(count))
            best = count;
    assert_true(vec_kernels_runs(0));
    assert_ptr_equal(vec_kernels_at(0), &vec_kernels_base);
    assert_ptr_equal(vec_kernels_best(), vec_kernels_at(best));
    print_message("of %zu tables this processor is given %s\n", count, vec_kernels_best()->isa);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_avx2_equals_the_plain_one),
        cmocka_unit_test(test_avx512_equals_the_plain_one),
        cmocka_unit_test(test_fused_loops_do_not),
        cmocka_unit_test(test_the_best_table_runs_here),
    };
    return cmocka_run_group_tests(tests, bench_init, bench_release);
}
