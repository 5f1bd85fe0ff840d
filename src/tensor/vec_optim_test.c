/* The optimizers' updates, as vec_test.c does it for the others: each is held, bit for bit, against
 * a loop over single elements that follows the formula in vec.h one operation at a time, on ranges
 * that start and end anywhere, with one thread and with two. */
#include "base/fault.h"
#include "base/rng.h"
#include "base/status.h"
#include "tensor/vec.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum {
    N = 150000, /* long enough for ranges on both sides of where threads begin */
    VECS = 5,   /* x, dx, and three of state, the last two without a value below zero */
    ROUNDS = 16,
};

struct bench {
    struct arena arena;
    struct segments table;
    struct vec at[VECS], start[VECS], want[VECS];
};

/* Values of very different sizes, so that a wrong order of operations shows in the bits. */
static float input_value(uint64_t vec, size_t i)
{
    float u = rng_normal(8, 100 + vec, i);
    return i % 5 == 0 ? u * 1e-4f : i % 7 == 0 ? u * 300 : u;
}

/* Segments of 1 to about 3000 floats, some beginning and ending within one block. */
static void make_table(struct bench *b)
{
    for (size_t i = 0;; i++) {
        struct shape shape = {1, {1 + rng_below(8, 99, i, i % 3 ? 40 : 3000)}};
        char name[32];
        snprintf(name, sizeof name, "p%zu", i);
        if (b->table.total + shape.dim[0] + SEGMENT_ALIGN > N)
            return;
        assert_non_null(segments_add(&b->table, &b->arena, name, &shape, 0.5f + (float)(i % 3),
                                     i % 2 ? 1.0f : 0.3f));
    }
}

static int bench_init(void **state)
{
    static struct bench bench;
    struct bench *b = &bench;
    arena_init(&b->arena);
    make_table(b);
    for (size_t k = 0; k < VECS; k++) {
        if (vec_init(&b->at[k], &b->arena, b->table.total) != OK ||
            vec_init(&b->start[k], &b->arena, b->table.total) != OK ||
            vec_init(&b->want[k], &b->arena, b->table.total) != OK)
            return -1;
        for (size_t i = 0; i < b->table.total; i++)
            b->start[k].at[i] = k >= 3 ? fabsf(input_value(k, i)) : input_value(k, i);
    }
    *state = b;
    return 0;
}

static int bench_release(void **state)
{
    struct bench *b = *state;
    arena_release(&b->arena);
    return 0;
}

/* An update on b->at, and the same for an element alone, of a segment with these multipliers. */
struct trial {
    const char *name;
    void (*run)(struct bench *b, struct range r);
    void (*element)(struct bench *b, size_t i, float lr_mult, float decay_mult);
};

#define EL(k) b->want[k].at[i]

static float gradient_of(struct bench *b, size_t i, float decay)
{
    float pull = decay * EL(0);
    return EL(1) + pull;
}

static const struct vec_sgd nesterov = {.rate = 0.01f, .momentum = 0.9f, .decay = 0.0005f};

static void run_nesterov(struct bench *b, struct range r)
{
    vec_nesterov(&b->at[0], &b->at[1], &b->at[2], &nesterov, &b->table, r);
}
static void one_nesterov(struct bench *b, size_t i, float lr_mult, float decay_mult)
{
    float rate = 0.01f * lr_mult, g = gradient_of(b, i, 0.0005f * decay_mult);
    float before = 0.9f * EL(2), fresh = rate * g;
    EL(2) = before + fresh;
    float more = 1.0f + 0.9f, ahead = more * EL(2), step = ahead - before;
    EL(0) = EL(0) - step;
}

static const struct vec_adagrad adagrad = {.rate = 0.01f, .delta = 1e-3f, .decay = 0.0005f};

static void run_adagrad(struct bench *b, struct range r)
{
    vec_adagrad(&b->at[0], &b->at[1], &b->at[3], &adagrad, &b->table, r);
}
static void one_adagrad(struct bench *b, size_t i, float lr_mult, float decay_mult)
{
    float rate = 0.01f * lr_mult, g = gradient_of(b, i, 0.0005f * decay_mult);
    float square = g * g;
    EL(3) = EL(3) + square;
    float under = sqrtf(EL(3)) + 1e-3f, share = g / under, step = rate * share;
    EL(0) = EL(0) - step;
}

static const struct vec_rmsprop rmsprop = {
    .rate = 0.01f, .rms_decay = 0.93f, .delta = 1e-6f, .decay = 0.0005f};

static void run_rmsprop(struct bench *b, struct range r)
{
    vec_rmsprop(&b->at[0], &b->at[1], &b->at[3], &rmsprop, &b->table, r);
}
static void one_rmsprop(struct bench *b, size_t i, float lr_mult, float decay_mult)
{
    float rate = 0.01f * lr_mult, g = gradient_of(b, i, 0.0005f * decay_mult);
    float square = g * g, rest = 1.0f - 0.93f, kept = 0.93f * EL(3), fresh = rest * square;
    EL(3) = kept + fresh;
    float under = sqrtf(EL(3)) + 1e-6f, share = g / under, step = rate * share;
    EL(0) = EL(0) - step;
}

static const struct vec_adadelta adadelta = {
    .rate = 0.8f, .momentum = 0.93f, .delta = 1e-6f, .decay = 0.0005f};

static void run_adadelta(struct bench *b, struct range r)
{
    vec_adadelta(&b->at[0], &b->at[1], &b->at[3], &b->at[4], &adadelta, &b->table, r);
}
static void one_adadelta(struct bench *b, size_t i, float lr_mult, float decay_mult)
{
    float rate = 0.8f * lr_mult, g = gradient_of(b, i, 0.0005f * decay_mult), rest = 1.0f - 0.93f;
    float square = g * g, kept = 0.93f * EL(3), fresh = rest * square;
    EL(3) = kept + fresh;
    float above = EL(4) + 1e-6f, below = EL(3) + 1e-6f, ratio = above / below;
    float step = sqrtf(ratio) * g, stepped = step * step;
    float kept_step = 0.93f * EL(4), fresh_step = rest * stepped;
    EL(4) = kept_step + fresh_step;
    float moved = rate * step;
    EL(0) = EL(0) - moved;
}

static void run_decay_l1(struct bench *b, struct range r)
{
    vec_decay_l1(&b->at[1], &b->at[0], 0.01f, &b->table, r);
}
static void one_decay_l1(struct bench *b, size_t i, float lr_mult, float decay_mult)
{
    (void)lr_mult;
    float decay = 0.01f * decay_mult;
    float sign = EL(0) > 0 ? 1.0f : EL(0) < 0 ? -1.0f : 0.0f, pull = decay * sign;
    EL(1) = EL(1) + pull;
}

static const struct vec_adam adam = {.rate = 0.01f,
                                     .correction = 0.7f,
                                     .beta1 = 0.9f,
                                     .beta2 = 0.99f,
                                     .delta = 1e-6f,
                                     .decay = 0.0005f};

static void run_adam(struct bench *b, struct range r)
{
    vec_adam(&b->at[0], &b->at[1], &b->at[2], &b->at[3], &adam, &b->table, r);
}

static void move_value(struct bench *b, size_t i, float g, float eta, float keep)
{
    float rate = 0.7f * eta, rest1 = 1.0f - 0.9f, rest2 = 1.0f - 0.99f, square = g * g;
    float kept1 = 0.9f * EL(2), fresh1 = rest1 * g, kept2 = 0.99f * EL(3), fresh2 = rest2 * square;
    EL(2) = kept1 + fresh1;
    EL(3) = kept2 + fresh2;
    float under = sqrtf(EL(3)) + 1e-6f, share = EL(2) / under, step = rate * share;
    float stays = keep * EL(0);
    EL(0) = stays - step;
}
static void one_adam(struct bench *b, size_t i, float lr_mult, float decay_mult)
{
    move_value(b, i, gradient_of(b, i, 0.0005f * decay_mult), 0.01f * lr_mult, 1);
}

static void run_adamw(struct bench *b, struct range r)
{
    struct vec_adam rule = adam;
    rule.decoupled = true;
    vec_adam(&b->at[0], &b->at[1], &b->at[2], &b->at[3], &rule, &b->table, r);
}
static void one_adamw(struct bench *b, size_t i, float lr_mult, float decay_mult)
{
    float eta = 0.01f * lr_mult, decay = 0.0005f * decay_mult;
    move_value(b, i, EL(1), eta, (float)(1.0 - (double)eta * (double)decay));
}

static const struct trial trials[] = {
    {"nesterov", run_nesterov, one_nesterov},
    {"adagrad", run_adagrad, one_adagrad},
    {"rmsprop", run_rmsprop, one_rmsprop},
    {"adadelta", run_adadelta, one_adadelta},
    {"adam", run_adam, one_adam},
    {"adamw", run_adamw, one_adamw},
    {"decay_l1", run_decay_l1, one_decay_l1},
};

enum { TRIALS = sizeof trials / sizeof *trials };

static void rewind_to_start(struct bench *b, struct vec *v)
{
    for (size_t k = 0; k < VECS; k++)
        memcpy(v[k].at, b->start[k].at, b->table.total * sizeof(float));
}

static struct range random_range(uint64_t round, size_t n)
{
    if (round == 0)
        return (struct range){0, n};
    if (round == 1)
        return (struct range){n / 2, 0};
    size_t from = rng_below(8, 50, round, n);
    size_t most = round % 3 == 0 ? n - from : (n - from < 9000 ? n - from : 9000);
    return (struct range){from, rng_below(8, 51, round, most + 1)};
}

/* An element that belongs to no segment is padding, and stays. */
static void each_element(struct bench *b, const struct trial *trial, struct range r)
{
    for (size_t j = 0; j < b->table.count; j++) {
        const struct segment *segment = &b->table.at[j];
        for (size_t i = segment->offset; i < segment->offset + segment->len; i++)
            if (i >= r.from && i < r.from + r.len)
                trial->element(b, i, segment->lr_mult, segment->decay_mult);
    }
}

static void check_trial(struct bench *b, const struct trial *trial, uint64_t round)
{
    struct range r = random_range(round, b->table.total);
    rewind_to_start(b, b->want);
    each_element(b, trial, r);
    for (int threads = 1; threads <= 2; threads++) {
        omp_set_num_threads(threads);
        rewind_to_start(b, b->at);
        trial->run(b, r);
        for (size_t k = 0; k < VECS; k++)
            if (memcmp(b->at[k].at, b->want[k].at, b->table.total * sizeof(float)) != 0)
                fail_msg("%s: vector %zu, range %zu+%zu, %d threads", trial->name, k, r.from, r.len,
                         threads);
    }
}

static void test_updates_equal_their_formula_bit_for_bit(void **state)
{
    for (size_t t = 0; t < TRIALS; t++)
        for (uint64_t round = 0; round < ROUNDS; round++)
            check_trial(*state, &trials[t], round);
}

static void test_an_update_in_shards_is_the_update_of_the_whole(void **state)
{
    struct bench *b = *state;
    size_t n = b->table.total, cuts[] = {0, 1, 4097, 8192, 50001, n};
    for (size_t t = 0; t < TRIALS; t++) {
        rewind_to_start(b, b->want);
        each_element(b, &trials[t], (struct range){0, n});
        rewind_to_start(b, b->at);
        for (size_t c = 0; c + 1 < sizeof cuts / sizeof *cuts; c++)
            trials[t].run(b, (struct range){cuts[c], cuts[c + 1] - cuts[c]});
        for (size_t k = 0; k < VECS; k++)
            assert_memory_equal(b->at[k].at, b->want[k].at, n * sizeof(float));
    }
}

/* Decay, momentum, existing state, NaN gradients: no bit changes of a parameter with lr_mult 0, and
 * its neighbours change. */
static void test_what_is_frozen_stays(void **state)
{
    struct bench *b = *state;
    size_t n = b->table.total, frozen = b->table.count / 2;
    struct segment *segment = &b->table.at[frozen];
    float before = segment->lr_mult;
    segment->lr_mult = 0;
    for (size_t t = 0; t < TRIALS; t++) {
        rewind_to_start(b, b->at);
        for (size_t i = 0; i < segment->len; i++)
            b->at[1].at[segment->offset + i] = i % 2 ? INFINITY : NAN;
        rewind_to_start(b, b->want);
        memcpy(&b->want[1].at[segment->offset], &b->at[1].at[segment->offset],
               segment->len * sizeof(float));
        each_element(b, &trials[t], (struct range){0, segment->offset});
        each_element(
            b, &trials[t],
            (struct range){segment->offset + segment->len, n - segment->offset - segment->len});
        trials[t].run(b, (struct range){0, n});
        for (size_t k = 0; k < VECS; k++)
            assert_memory_equal(b->at[k].at, b->want[k].at, n * sizeof(float));
    }
    segment->lr_mult = before;
}

static jmp_buf fault_return;

static void fault_caught(struct fault_sink *sink, const char *file, int line, const char *what)
{
    (void)sink, (void)file, (void)line, (void)what;
    longjmp(fault_return, 1);
}

static void one_vector_for_both_means(struct bench *b)
{
    vec_adam(&b->at[0], &b->at[1], &b->at[2], &b->at[2], &adam, &b->table, (struct range){0, 9});
}

static void state_that_is_the_gradient(struct bench *b)
{
    vec_adagrad(&b->at[0], &b->at[1], &b->at[1], &adagrad, &b->table, (struct range){0, 9});
}

static void past_the_table(struct bench *b)
{
    struct segments none = {0};
    vec_adam(&b->at[0], &b->at[1], &b->at[2], &b->at[3], &adam, &none, (struct range){0, 1});
}

static void test_vec_misuse_is_caught(void **state)
{
    struct bench *b = *state;
    void (*const wrong[])(struct bench *) = {one_vector_for_both_means, state_that_is_the_gradient,
                                             past_the_table};
    struct fault_sink sink = {fault_caught};
    struct fault_sink *before = fault_bind(&sink);
    rewind_to_start(b, b->at);
    for (volatile size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (setjmp(fault_return) == 0) {
            wrong[i](b);
            fail_msg("mistake %zu was let through", i);
        }
        assert_memory_equal(b->at[0].at, b->start[0].at, b->table.total * sizeof(float));
    }
    fault_bind(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_updates_equal_their_formula_bit_for_bit),
        cmocka_unit_test(test_an_update_in_shards_is_the_update_of_the_whole),
        cmocka_unit_test(test_what_is_frozen_stays),
        cmocka_unit_test(test_vec_misuse_is_caught),
    };
    return cmocka_run_group_tests(tests, bench_init, bench_release);
}
