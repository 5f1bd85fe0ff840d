/* Every update is held, bit for bit, against a loop over single elements that follows the formula
 * in vec.h, on ranges that start and end anywhere, with one thread and with two. Elements outside
 * the range must not change. */
#include "tensor/vec.h"

#include "base/fault.h"
#include "base/rng.h"
#include "base/status.h"

#include <float.h>
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
    VECS = 4,
    ROUNDS = 24,
};

struct bench {
    struct arena arena;
    struct vec at[VECS], start[VECS], want[VECS];
    struct segments table;
};

/* Values of very different sizes, so that a wrong order of operations shows in the bits. */
static float input_value(uint64_t vec, size_t i)
{
    float u = rng_normal(7, 100 + vec, i);
    return i % 5 == 0 ? u * 1e-4f : i % 7 == 0 ? u * 300 : u;
}

static struct vec vec_of(struct arena *arena, size_t n)
{
    struct vec v;
    assert_int_equal(vec_init(&v, arena, n), OK);
    return v;
}

static int bench_init(void **state)
{
    static struct bench bench;
    struct bench *b = &bench;
    arena_init(&b->arena);
    for (size_t k = 0; k < VECS; k++) {
        b->at[k] = vec_of(&b->arena, N);
        b->start[k] = vec_of(&b->arena, N);
        b->want[k] = vec_of(&b->arena, N);
        for (size_t i = 0; i < N; i++)
            b->start[k].at[i] = input_value(k, i);
    }
    /* Segments of 1 to about 3000 floats, some beginning and ending within one block. */
    b->table = (struct segments){0};
    for (size_t i = 0;; i++) {
        struct shape shape = {1, {1 + rng_below(7, 99, i, i % 3 ? 40 : 3000)}};
        if (b->table.total + shape.dim[0] + SEGMENT_ALIGN > N)
            break;
        char name[32];
        snprintf(name, sizeof name, "p%zu", i);
        if (!segments_add(&b->table, &b->arena, name, &shape, (float)(i % 3), i % 2 ? 1.0f : 0.3f))
            return -1;
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

static struct range random_range(uint64_t round, size_t n)
{
    if (round == 0)
        return (struct range){0, n};
    if (round == 1)
        return (struct range){n / 2, 0};
    size_t from = rng_below(7, 50, round, n);
    size_t most = round % 3 == 0 ? n - from : (n - from < 9000 ? n - from : 9000);
    return (struct range){from, rng_below(7, 51, round, most + 1)};
}

/* An update on b->at, and the same for element i alone on b->want. */
struct trial {
    const char *name;
    void (*run)(struct bench *b, struct range r);
    void (*element)(struct bench *b, size_t i);
};

#define EL(k) b->want[k].at[i]

static void run_fill(struct bench *b, struct range r)
{
    vec_fill(&b->at[0], r, 2.5f);
}
static void one_fill(struct bench *b, size_t i)
{
    EL(0) = 2.5f;
}

static void run_copy(struct bench *b, struct range r)
{
    vec_copy(&b->at[0], &b->at[1], r);
}
static void one_copy(struct bench *b, size_t i)
{
    EL(0) = EL(1);
}

static void run_scale(struct bench *b, struct range r)
{
    vec_scale(&b->at[0], 0.3f, r);
}
static void one_scale(struct bench *b, size_t i)
{
    EL(0) = 0.3f * EL(0);
}

static void run_axpy(struct bench *b, struct range r)
{
    vec_axpy(&b->at[0], -0.7f, &b->at[1], r);
}
static void one_axpy(struct bench *b, size_t i)
{
    float t = -0.7f * EL(1);
    EL(0) = EL(0) + t;
}

static void run_lerp(struct bench *b, struct range r)
{
    vec_lerp(&b->at[0], 0.1f, &b->at[1], r);
}
static void one_lerp(struct bench *b, size_t i)
{
    float keep = 1.0f - 0.1f, p = keep * EL(0), q = 0.1f * EL(1);
    EL(0) = p + q;
}

static void run_penalise(struct bench *b, struct range r)
{
    vec_penalise(&b->at[0], 0.37f, &b->at[1], r);
}
static void one_penalise(struct bench *b, size_t i)
{
    float d = EL(0) - EL(1), step = 0.37f * d;
    EL(0) = EL(0) - step;
}

static void run_extrapolate(struct bench *b, struct range r)
{
    vec_extrapolate(&b->at[0], &b->at[1], &b->at[2], &b->at[3], 0.9f, 0.3f, 1.7f, r);
}
static void one_extrapolate(struct bench *b, size_t i)
{
    float moved = EL(2) - EL(3), p = 0.9f * EL(1), q = 0.3f * moved;
    EL(1) = p + q;
    float ahead = 1.7f * EL(1);
    EL(0) = EL(2) + ahead;
}

static const float weights[] = {0.5f, -1.25f, 0.1f};

static void run_weighted_sum(struct bench *b, struct range r)
{
    const struct vec *x[] = {&b->at[1], &b->at[2], &b->at[3]};
    vec_weighted_sum(&b->at[0], weights, x, 3, r);
}
static void one_weighted_sum(struct bench *b, size_t i)
{
    float p = weights[0] * EL(1), q = weights[1] * EL(2), s = weights[2] * EL(3);
    float sum = p + q;
    EL(0) = sum + s;
}

static void run_weighted_sum_of_none(struct bench *b, struct range r)
{
    vec_weighted_sum(&b->at[0], NULL, NULL, 0, r);
}
static void one_weighted_sum_of_none(struct bench *b, size_t i)
{
    EL(0) = 0;
}

static const struct vec_sgd rule = {.rate = 0.01f, .momentum = 0.9f, .decay = 0.0005f};

static void run_sgd(struct bench *b, struct range r)
{
    if (r.from > b->table.total)
        r = (struct range){b->table.total, 0};
    if (r.from + r.len > b->table.total)
        r.len = b->table.total - r.from;
    vec_sgd(&b->at[0], &b->at[1], &b->at[2], &rule, &b->table, r);
}
static void one_sgd(struct bench *b, size_t i)
{
    const struct segment *segment = b->table.at;
    const struct segment *end = segment + b->table.count;
    while (segment < end && segment->offset + segment->len <= i)
        segment++;
    if (segment == end || i < segment->offset || segment->lr_mult == 0)
        return; /* padding, or frozen */
    float rate = rule.rate * segment->lr_mult, decay = rule.decay * segment->decay_mult;
    float pull = decay * EL(0), g = EL(1) + pull;
    float kept = rule.momentum * EL(2), step = rate * g;
    EL(2) = kept + step;
    EL(0) = EL(0) - EL(2);
}

static const struct trial trials[] = {
    {"fill", run_fill, one_fill},
    {"copy", run_copy, one_copy},
    {"scale", run_scale, one_scale},
    {"axpy", run_axpy, one_axpy},
    {"lerp", run_lerp, one_lerp},
    {"penalise", run_penalise, one_penalise},
    {"extrapolate", run_extrapolate, one_extrapolate},
    {"weighted_sum", run_weighted_sum, one_weighted_sum},
    {"weighted_sum of none", run_weighted_sum_of_none, one_weighted_sum_of_none},
    {"sgd", run_sgd, one_sgd},
};

static void rewind_to_start(struct bench *b, struct vec *v)
{
    for (size_t k = 0; k < VECS; k++)
        memcpy(v[k].at, b->start[k].at, N * sizeof(float));
}

static void check_trial(struct bench *b, const struct trial *trial, uint64_t round)
{
    struct range r = random_range(round, N);
    rewind_to_start(b, b->want);
    for (size_t i = r.from; i < r.from + r.len; i++)
        trial->element(b, i);
    for (int threads = 1; threads <= 2; threads++) {
        omp_set_num_threads(threads);
        rewind_to_start(b, b->at);
        trial->run(b, r);
        for (size_t k = 0; k < VECS; k++)
            if (memcmp(b->at[k].at, b->want[k].at, N * sizeof(float)) != 0)
                fail_msg("%s: vector %zu, range %zu+%zu, %d threads", trial->name, k, r.from, r.len,
                         threads);
    }
}

static void test_updates_equal_their_formula_bit_for_bit(void **state)
{
    for (size_t t = 0; t < sizeof trials / sizeof *trials; t++)
        for (uint64_t round = 0; round < ROUNDS; round++)
            check_trial(*state, &trials[t], round);
}

static void test_an_update_in_shards_is_the_update_of_the_whole(void **state)
{
    struct bench *b = *state;
    for (size_t t = 0; t < sizeof trials / sizeof *trials; t++) {
        rewind_to_start(b, b->at);
        rewind_to_start(b, b->want);
        trials[t].run(b, (struct range){0, N});
        struct vec whole[VECS];
        memcpy(whole, b->at, sizeof whole);
        memcpy(b->at, b->want, sizeof whole); /* the other set of buffers */
        size_t cuts[] = {0, 1, 4097, 8192, 50001, 150000};
        for (size_t c = 0; c + 1 < sizeof cuts / sizeof *cuts; c++)
            trials[t].run(b, (struct range){cuts[c], cuts[c + 1] - cuts[c]});
        for (size_t k = 0; k < VECS; k++)
            assert_memory_equal(b->at[k].at, whole[k].at, N * sizeof(float));
        memcpy(b->want, whole, sizeof whole);
    }
}

/* One step in numbers that float holds exactly: g = 4 + 0.5·2 = 5, m = 0.5·8 + 0.25·5 = 5.25,
 * x = 2 − 5.25; the second segment doubles the rate and leaves out decay; padding stands. */
static void test_sgd_takes_each_segments_multipliers(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    struct segments table = {0};
    struct shape three = {1, {3}}, two = {1, {2}};
    assert_non_null(segments_add(&table, &arena, "w", &three, 1, 1));
    assert_non_null(segments_add(&table, &arena, "b", &two, 2, 0));
    struct vec x = vec_of(&arena, 32), dx = vec_of(&arena, 32), m = vec_of(&arena, 32);
    vec_fill(&x, vec_all(&x), 2);
    vec_fill(&dx, vec_all(&dx), 4);
    vec_fill(&m, vec_all(&m), 8);
    struct vec_sgd step = {.rate = 0.25f, .momentum = 0.5f, .decay = 0.5f};
    vec_sgd(&x, &dx, &m, &step, &table, vec_all(&x));
    for (size_t i = 0; i < 32; i++) {
        float want_m = i < 3 ? 5.25f : i >= 16 && i < 18 ? 6.0f : 8.0f;
        float want_x = i < 3 ? -3.25f : i >= 16 && i < 18 ? -4.0f : 2.0f;
        assert_true(m.at[i] == want_m);
        assert_true(x.at[i] == want_x);
    }
    arena_release(&arena);
}

static void test_ranges_are_exported_and_imported(void **state)
{
    struct bench *b = *state;
    struct vec out = vec_of(&b->arena, 1000);
    rewind_to_start(b, b->at);
    vec_export(&b->at[0], (struct range){12345, 1000}, out.at);
    assert_memory_equal(out.at, b->start[0].at + 12345, 1000 * sizeof(float));
    vec_import(&b->at[1], (struct range){7, 1000}, out.at);
    assert_memory_equal(b->at[1].at, b->start[1].at, 7 * sizeof(float));
    assert_memory_equal(b->at[1].at + 7, out.at, 1000 * sizeof(float));
    assert_memory_equal(b->at[1].at + 1007, b->start[1].at + 1007, (N - 1007) * sizeof(float));
    vec_export(&b->at[0], (struct range){N, 0}, NULL);
    vec_import(&b->at[0], (struct range){N, 0}, NULL);
}

static void test_bytes_from_the_wire_are_added_at_any_alignment(void **state)
{
    struct bench *b = *state;
    rewind_to_start(b, b->at);
    vec_host_add(b->at[0].at + 3, b->at[1].at + 5, 1001);
    for (size_t i = 0; i < 1010; i++) {
        float x = b->start[0].at[i];
        float want = i >= 3 && i < 1004 ? x + b->start[1].at[i + 2] : x;
        assert_true(b->at[0].at[i] == want);
    }
    vec_host_product(b->at[0].at + 3, 0.7f, b->at[1].at + 5, 1001);
    for (size_t i = 3; i < 1004; i++)
        assert_true(b->at[0].at[i] == 0.7f * b->start[1].at[i + 2]);
}

static void test_one_bad_element_is_found_wherever_it_lies(void **state)
{
    struct bench *b = *state;
    const float bad[] = {INFINITY, -INFINITY, NAN, -NAN};
    struct vec *v = &b->at[0];
    rewind_to_start(b, b->at);
    v->at[17] = FLT_MAX;
    v->at[18] = FLT_TRUE_MIN;
    for (int threads = 1; threads <= 2; threads++) {
        omp_set_num_threads(threads);
        assert_true(vec_finite(v, vec_all(v)));
        for (uint64_t round = 0; round < 40; round++) {
            size_t i = round == 0 ? 0 : round == 1 ? N - 1 : rng_below(7, 52, round, N);
            float good = v->at[i];
            v->at[i] = bad[round % 4];
            assert_false(vec_finite(v, vec_all(v)));
            assert_false(vec_finite(v, (struct range){i, 1}));
            assert_true(vec_finite(v, (struct range){0, i}));
            assert_true(vec_finite(v, (struct range){i + 1, N - i - 1}));
            v->at[i] = good;
        }
    }
}

static void test_a_dot_product_is_near_the_truth(void **state)
{
    struct bench *b = *state;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct range r = random_range(round, N);
        long double truth = 0, size = 0;
        for (size_t i = r.from; i < r.from + r.len; i++) {
            long double p = (long double)b->start[0].at[i] * b->start[1].at[i];
            truth += p;
            size += fabsl(p);
        }
        double dot = vec_dot(&b->start[0], &b->start[1], r);
        assert_true(fabsl(dot - truth) <= 1e-13L * size);
    }
}

/* Whole numbers add exactly in double: 1² + … + n² = n(n+1)(2n+1)/6, whatever the order. */
static void test_a_dot_product_of_whole_numbers_is_exact(void **state)
{
    struct bench *b = *state;
    size_t n = 20000;
    for (size_t i = 0; i < n; i++)
        b->at[0].at[i] = (float)(i + 1);
    struct range r = {0, n};
    assert_true(vec_dot(&b->at[0], &b->at[0], r) == 20000.0 * 20001.0 * 40001.0 / 6.0);
}

static void test_a_dot_product_is_the_sum_of_its_blocks(void **state)
{
    struct bench *b = *state;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct range r = random_range(round, N);
        size_t end = r.from + r.len;
        double sum = 0;
        for (size_t from = r.from; from < end;) {
            size_t next = (from / VEC_BLOCK + 1) * VEC_BLOCK;
            next = next < end ? next : end;
            sum += vec_dot(&b->start[0], &b->start[1], (struct range){from, next - from});
            from = next;
        }
        for (int threads = 1; threads <= 2; threads++) {
            omp_set_num_threads(threads);
            assert_true(vec_dot(&b->start[0], &b->start[1], r) == sum);
        }
    }
}

/* More blocks than are summed in one go (512). */
static void test_a_long_dot_product_does_not_depend_on_threads(void **state)
{
    struct bench *b = *state;
    size_t n = 600 * VEC_BLOCK + 77;
    struct vec v = vec_of(&b->arena, n);
    for (size_t i = 0; i < n; i++)
        v.at[i] = b->start[0].at[i % N];
    double sum = 0;
    for (size_t from = 0; from < n; from += VEC_BLOCK) {
        size_t len = n - from < VEC_BLOCK ? n - from : VEC_BLOCK;
        sum += vec_dot(&v, &v, (struct range){from, len});
    }
    for (int threads = 1; threads <= 2; threads++) {
        omp_set_num_threads(threads);
        assert_true(vec_dot(&v, &v, vec_all(&v)) == sum);
    }
}

/* Norms and products of differences, which are rounded to float like those of vec_axpy. */
static void test_angles_are_dot_products_of_differences(void **state)
{
    struct bench *b = *state;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct range r = random_range(round, N);
        const struct vec *a = &b->start[0], *p = &b->start[1];
        struct vec u = vec_of(&b->arena, N), v = vec_of(&b->arena, N);
        vec_copy(&u, a, vec_all(&u));
        vec_axpy(&u, -1.0f, p, vec_all(&u));
        vec_copy(&v, p, vec_all(&v));
        vec_axpy(&v, -1.0f, a, vec_all(&v));
        for (int threads = 1; threads <= 2; threads++) {
            omp_set_num_threads(threads);
            struct vec_angle both = vec_angle(a, p, p, a, r),
                             one = vec_angle(a, NULL, NULL, NULL, r);
            struct vec_angle mixed = vec_angle(a, NULL, p, a, r);
            assert_true(both.uu == vec_dot(&u, &u, r) && both.vv == vec_dot(&v, &v, r) &&
                        both.uv == vec_dot(&u, &v, r));
            assert_true(one.uu == vec_dot(a, a, r) && one.vv == 0 && one.uv == 0);
            assert_true(mixed.uu == one.uu && mixed.uv == vec_dot(a, &v, r));
        }
    }
}

static void test_a_hash_sees_every_bit_of_the_range_and_no_other(void **state)
{
    struct bench *b = *state;
    rewind_to_start(b, b->at);
    rewind_to_start(b, b->want);
    struct range r = {1001, 5000};
    uint64_t hash = vec_hash(&b->at[0], r);
    assert_int_equal(vec_hash(&b->want[0], r), hash);
    b->want[0].at[1000] += 1;
    b->want[0].at[6001] += 1;
    assert_int_equal(vec_hash(&b->want[0], r), hash);
    b->want[0].at[6000] = nextafterf(b->want[0].at[6000], 9e9f);
    assert_true(vec_hash(&b->want[0], r) != hash);
}

static jmp_buf fault_return;

static void fault_caught(struct fault_sink *sink, const char *file, int line, const char *what)
{
    (void)sink, (void)file, (void)line, (void)what;
    longjmp(fault_return, 1);
}

static void past_the_end(struct bench *b)
{
    vec_fill(&b->at[0], (struct range){N - 1, 2}, 0);
}

static void past_the_end_by_overflow(struct bench *b)
{
    vec_scale(&b->at[0], 1, (struct range){2, SIZE_MAX});
}

static void past_the_shorter(struct bench *b)
{
    struct vec shorter = {b->at[1].at, 10};
    vec_axpy(&b->at[0], 1, &shorter, (struct range){5, 6});
}

static void onto_itself(struct bench *b)
{
    vec_axpy(&b->at[0], 1, &b->at[0], (struct range){0, 4});
}

static void past_the_table(struct bench *b)
{
    struct segments none = {0};
    vec_sgd(&b->at[0], &b->at[1], &b->at[2], &rule, &none, (struct range){0, 1});
}

static void test_vec_misuse_is_caught(void **state)
{
    struct bench *b = *state;
    void (*const wrong[])(struct bench *) = {past_the_end, past_the_end_by_overflow,
                                             past_the_shorter, onto_itself, past_the_table};
    struct fault_sink sink = {fault_caught};
    struct fault_sink *before = fault_bind(&sink);
    rewind_to_start(b, b->at);
    for (volatile size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (setjmp(fault_return) == 0) {
            wrong[i](b);
            fail_msg("mistake %zu was let through", i);
        }
        assert_memory_equal(b->at[0].at, b->start[0].at, N * sizeof(float));
    }
    fault_bind(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_updates_equal_their_formula_bit_for_bit),
        cmocka_unit_test(test_an_update_in_shards_is_the_update_of_the_whole),
        cmocka_unit_test(test_sgd_takes_each_segments_multipliers),
        cmocka_unit_test(test_ranges_are_exported_and_imported),
        cmocka_unit_test(test_bytes_from_the_wire_are_added_at_any_alignment),
        cmocka_unit_test(test_one_bad_element_is_found_wherever_it_lies),
        cmocka_unit_test(test_a_dot_product_is_near_the_truth),
        cmocka_unit_test(test_a_dot_product_of_whole_numbers_is_exact),
        cmocka_unit_test(test_a_dot_product_is_the_sum_of_its_blocks),
        cmocka_unit_test(test_a_long_dot_product_does_not_depend_on_threads),
        cmocka_unit_test(test_angles_are_dot_products_of_differences),
        cmocka_unit_test(test_a_hash_sees_every_bit_of_the_range_and_no_other),
        cmocka_unit_test(test_vec_misuse_is_caught),
    };
    return cmocka_run_group_tests(tests, bench_init, bench_release);
}
