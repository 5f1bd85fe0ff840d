/* What must hold of MPCA's rules one by one. test/golden/mpca_golden_test.c plays them together,
 * against the paper's equations. */
#include "strategy/mpca_rules.h"

#include "base/rng.h"
#include "base/status.h"
#include "job/job.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { N = 3 * VEC_BLOCK + 5 * SEGMENT_ALIGN, SHARDS = 3, WORKERS = 3, SEED = 11 };

/* A joint model that has been through a few cycles, its workers, and what they contribute. */
struct scene {
    struct arena arena;
    struct vec x0, x[WORKERS], dx, scratch;
    struct mpca_joint joint;
    struct mpca_sum sum; /* as long as the model */
};

static struct vec vec_of(struct scene *k)
{
    struct vec v;
    assert_int_equal(vec_init(&v, &k->arena, N), OK);
    return v;
}

static void randomise(struct vec *v, uint64_t stream)
{
    for (size_t i = 0; i < v->n; i++)
        v->at[i] = rng_normal(SEED, stream, i) * (i % 7 ? 1.0f : 1e-3f);
}

/* (τ·x, τ) of a worker: what an exchange makes of a contribution with weight τ. */
static void contribute(struct mpca_sum *out, const struct vec *x, struct range r, uint64_t tau)
{
    for (size_t i = 0; i < r.len; i++)
        out->x[i] = (float)tau * x->at[r.from + i];
    out->tau = tau;
}

/* Σ τ^i·x^i over workers 0 … WORKERS − 1, added up in order. */
static struct mpca_sum *contributions(struct scene *k, struct range r, const uint64_t tau[WORKERS])
{
    static float own[N];
    memset(k->sum.x, 0, r.len * sizeof(float));
    k->sum.tau = 0;
    for (size_t i = 0; i < WORKERS; i++) {
        struct mpca_sum mine = {.x = own};
        contribute(&mine, &k->x[i], r, tau[i]);
        vec_host_add(k->sum.x, mine.x, r.len);
        k->sum.tau += mine.tau;
    }
    return &k->sum;
}

static void one_cycle(struct scene *k, uint64_t c, struct range r, const uint64_t tau[WORKERS])
{
    mpca_prepare(&k->joint, &mpca_how_default, c, r, contributions(k, r, tau));
    mpca_commit(&k->joint, r);
}

/* The joint model begins as `x0`. */
static void scene_init(struct scene *k)
{
    arena_init(&k->arena);
    k->x0 = vec_of(k);
    k->dx = vec_of(k);
    k->scratch = vec_of(k);
    k->sum.x = arena_array(&k->arena, N, float);
    assert_non_null(k->sum.x);
    randomise(&k->x0, 100);
    for (size_t i = 0; i < WORKERS; i++) {
        k->x[i] = vec_of(k);
        randomise(&k->x[i], i);
    }
    assert_int_equal(mpca_joint_init(&k->joint, &k->x0, NULL, &k->arena), OK);
}

static void warm_up(struct scene *k)
{
    for (uint64_t c = 0; c < 4; c++) {
        one_cycle(k, c, vec_all(&k->x0), (const uint64_t[]){3 + c, 2, 1});
        for (size_t i = 0; i < WORKERS; i++)
            randomise(&k->x[i], 10 * (c + 1) + i);
    }
}

static int setup(void **state)
{
    static struct scene k;
    scene_init(&k);
    *state = &k;
    return 0;
}

static int teardown(void **state)
{
    struct scene *k = *state;
    arena_release(&k->arena);
    return 0;
}

/* x, v and x̃*, one after the other. */
static void record(const struct mpca_model *model, float out[3 * N])
{
    const struct vec *const all[] = {&model->x, &model->v, &model->star};
    for (size_t i = 0; i < 3; i++)
        vec_export(all[i], vec_all(all[i]), out + i * N);
}

static void assert_model(const struct mpca_model *model, const float want[3 * N])
{
    static float have[3 * N];
    record(model, have);
    assert_memory_equal(have, want, sizeof have);
}

/* ---- schedules ---- */

static void near(float have, double want)
{
    if (!(fabs((double)have - want) <= 2e-7))
        fail_msg("%.9g, expected %.9g", (double)have, want);
}

/* 0.9^½ = √0.9. */
static void beta_falls_from_1_by_a_constant_factor(void **state)
{
    (void)state;
    const struct mpca_how *how = &mpca_how_default;
    assert_true(mpca_beta(how, 0) == 1);
    near(mpca_beta(how, 10), 0.948683298);
    for (uint64_t c = 20; c < 40; c++)
        assert_true(mpca_beta(how, c) == 0.9f);
    for (uint64_t c = 0; c < 20; c++)
        near(mpca_beta(how, c + 1) / mpca_beta(how, c), 0.994745826);
}

static void gamma_rises_from_0_in_a_line(void **state)
{
    (void)state;
    const struct mpca_how *how = &mpca_how_default;
    assert_true(mpca_gamma(how, 0) == 0);
    near(mpca_gamma(how, 1), 0.035);
    near(mpca_gamma(how, 10), 0.35);
    assert_true(mpca_gamma(how, 20) == 0.7f && mpca_gamma(how, UINT64_MAX) == 0.7f);
}

/* 0.05 + 0.45·0.8^k is 0.5, 0.41, 0.338, 0.2804 … */
static void alpha_explores_then_calls_together_then_lets_go(void **state)
{
    (void)state;
    static const double by_hand[] = {0, 0, 0.5, 0.41, 0.338, 0.2804, 0.23432, 0.197456};
    for (uint64_t c = 0; c < sizeof by_hand / sizeof *by_hand; c++)
        near(mpca_alpha(&mpca_how_default, c), by_hand[c]);
    assert_true(mpca_alpha(&mpca_how_default, 1000) == 0.05f);
    assert_true(mpca_alpha(&mpca_how_default, UINT64_MAX) == 0.05f);
}

static void schedules_without_a_ramp_or_hold(void **state)
{
    (void)state;
    struct mpca_how how = mpca_how_default;
    how.ramp = 0;
    how.alpha_hold = 0;
    assert_true(mpca_beta(&how, 0) == 0.9f && mpca_gamma(&how, 0) == 0.7f);
    assert_true(mpca_alpha(&how, 0) == 0.5f);
}

static void a_job_without_numbers_asks_for_the_papers(void **state)
{
    (void)state;
    Paceline__Mpca job;
    paceline__mpca__init(&job);
    assert_true(job.delta == mpca_how_default.delta);
    assert_true(job.beta == mpca_how_default.beta);
    assert_true(job.gamma == mpca_how_default.gamma);
    assert_true(job.ramp == mpca_how_default.ramp);
    assert_true(job.alpha == mpca_how_default.alpha);
    assert_true(job.alpha_hold == mpca_how_default.alpha_hold);
    assert_true(job.alpha_decay == mpca_how_default.alpha_decay);
    assert_true(job.stale_limit == mpca_how_default.stale_limit);
}

/* ---- shards ---- */

static void shards_by_hand(void **state)
{
    (void)state;
    static const struct {
        size_t n, shards, from[4];
    } by_hand[] = {
        {3 * 4096, 3, {0, 4096, 8192, 12288}},      /* a block each */
        {3 * 4096 - 16, 3, {0, 4080, 8176, 12272}}, /* not quite: 4090⅔, 8181⅓ */
        {10 * 4096, 3, {0, 12288, 24576, 40960}},   /* 3⅓ and 6⅔ blocks */
        {48, 3, {0, 16, 32, 48}},
        {32, 3, {0, 0, 16, 32}}, /* one has nothing */
        {0, 1, {0, 0}},
    };
    for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++)
        for (size_t s = 0; s < by_hand[i].shards; s++) {
            struct range r = mpca_shard_range(by_hand[i].n, by_hand[i].shards, s);
            assert_int_equal(r.from, by_hand[i].from[s]);
            assert_int_equal(r.from + r.len, by_hand[i].from[s + 1]);
        }
}

static void shards_are_equal_and_cover_the_vector(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < 2000; trial++) {
        size_t shards = 1 + rng_below(SEED, 1, trial, 9);
        size_t n = rng_below(SEED, 2, trial, trial % 2 ? 300000 : 5000);
        size_t unit = n / shards >= VEC_BLOCK ? VEC_BLOCK : SEGMENT_ALIGN, at = 0;
        for (size_t s = 0; s < shards; s++) {
            struct range r = mpca_shard_range(n, shards, s);
            assert_int_equal(r.from, at);
            assert_int_equal(r.from % unit, 0);
            assert_true(fabs((double)r.len - (double)n / (double)shards) < (double)unit);
            assert_true(unit < VEC_BLOCK || r.len >= VEC_BLOCK);
            at += r.len;
        }
        assert_int_equal(at, n);
    }
    struct range last = mpca_shard_range(SIZE_MAX, 7, 6); /* no product overflows */
    assert_true(last.from > SIZE_MAX / 7 * 6 - VEC_BLOCK && last.from + last.len == SIZE_MAX);
}

/* ---- the worker ---- */

/* By hand: from 8 towards 4 with α = ½, ¼ and 0. */
static void each_shard_is_displaced_by_its_own_alpha(void **state)
{
    struct scene *k = *state;
    static const float alpha[SHARDS] = {0.5f, 0.25f, 0}, want[SHARDS] = {6, 7, 8};
    struct vec *x = &k->x[0], *star = &k->x[1];
    vec_fill(x, vec_all(x), 8);
    vec_fill(star, vec_all(star), 4);
    vec_fill(star, mpca_shard_range(N, SHARDS, 2), NAN); /* never came: nobody reads it */
    for (size_t s = 0; s < SHARDS; s++)
        mpca_displace(x, star, alpha[s], mpca_shard_range(N, SHARDS, s));
    for (size_t s = 0; s < SHARDS; s++) {
        struct range r = mpca_shard_range(N, SHARDS, s);
        for (size_t i = r.from; i < r.from + r.len; i++)
            assert_true(x->at[i] == want[s]);
    }
}

static void a_gradient_is_tilted_in_its_range(void **state)
{
    struct scene *k = *state;
    struct range r = mpca_shard_range(N, SHARDS, 1);
    struct vec *x = &k->x[0], *star = &k->x[1], *before = &k->x[2];
    randomise(&k->dx, 50);
    vec_copy(before, &k->dx, vec_all(before));
    mpca_tilt(&k->dx, x, star, 0.3f, r, &k->scratch);
    for (size_t i = 0; i < N; i++) {
        bool within = i >= r.from && i < r.from + r.len;
        float difference = x->at[i] - star->at[i];
        float pull = 0.3f * difference;
        assert_true(k->dx.at[i] == (within ? before->at[i] + pull : before->at[i]));
    }
    vec_fill(star, r, NAN);
    vec_copy(before, &k->dx, vec_all(before));
    mpca_tilt(&k->dx, x, star, 0, r, &k->scratch);
    assert_memory_equal(k->dx.at, before->at, N * sizeof(float));
}

/* Both forms pull alike: x − α(x − x̃*) is a step of rate 1 along Eq. 6's additional gradient. */
static void the_two_penalties_are_one_force(void **state)
{
    struct scene *k = *state;
    struct range all = vec_all(&k->dx);
    struct vec *displaced = &k->x[2];
    vec_copy(displaced, &k->x[0], all);
    mpca_displace(displaced, &k->x[1], 0.2f, all);
    vec_fill(&k->dx, all, 0);
    mpca_tilt(&k->dx, &k->x[0], &k->x[1], 0.2f, all, &k->scratch);
    vec_axpy(&k->x[0], -1, &k->dx, all);
    assert_memory_equal(k->x[0].at, displaced->at, N * sizeof(float));
}

/* ---- the driver ---- */

/* Who has nothing yet to take in is pulled towards the first weights, not towards zeros. */
static void the_joint_model_begins_at_the_first_weights(void **state)
{
    struct scene *k = *state;
    struct range all = vec_all(&k->x0);
    one_cycle(k, 0, all, (const uint64_t[]){0, 0, 0});
    const struct mpca_model *now = &k->joint.now;
    assert_ptr_equal(now->x.at, k->x0.at);
    assert_memory_equal(now->star.at, k->x0.at, N * sizeof(float));
    for (size_t i = 0; i < N; i++)
        assert_true(now->v.at[i] == 0);
    randomise(&k->scratch, 100);
    assert_memory_equal(k->x0.at, k->scratch.at, N * sizeof(float));
}

/* With β = 1, γ = 0 and one worker, whom nothing pulls, the joint model is the worker's. τ·x and
 * 1/τ are rounded, and so is their product: three times 2^-24 of x, and exact where τ is a power of
 * two. */
static void the_joint_model_of_a_lone_worker_is_its_own(void **state)
{
    struct scene *k = *state;
    struct mpca_how how = mpca_how_default;
    how.beta = 1;
    how.gamma = 0;
    how.alpha = 0;
    how.alpha_high = 0;
    struct vec *x = &k->x[0];
    for (uint64_t c = 0; c < 32; c++) {
        uint64_t tau = c + 1;
        randomise(x, 60 + c);
        mpca_displace(x, &k->joint.now.star, mpca_alpha(&how, c), vec_all(x));
        contribute(&k->sum, x, vec_all(x), tau);
        mpca_prepare(&k->joint, &how, c, vec_all(x), &k->sum);
        mpca_commit(&k->joint, vec_all(x));
        bool exact = (tau & (tau - 1)) == 0;
        const struct mpca_model *now = &k->joint.now;
        for (size_t i = 0; i < N; i++) {
            double off = fabs((double)now->x.at[i] - (double)x->at[i]);
            assert_true(off <= (exact ? 0 : 0x3p-24 * fabs((double)x->at[i])));
            assert_true(now->star.at[i] == now->x.at[i]);
        }
    }
}

/* Equal models are their own mean, whatever their weights; but for roundings, eight at most. */
static void workers_that_agree_are_the_mean(void **state)
{
    struct scene *k = *state;
    vec_copy(&k->x[1], &k->x[0], vec_all(&k->x0));
    vec_copy(&k->x[2], &k->x[0], vec_all(&k->x0));
    struct vec *mean = &k->dx;
    mpca_mean(mean, vec_all(mean), contributions(k, vec_all(mean), (const uint64_t[]){17, 1, 5}));
    for (size_t i = 0; i < N; i++)
        assert_true(fabs((double)mean->at[i] - (double)k->x[0].at[i]) <=
                    0x8p-24 * fabs((double)k->x[0].at[i]));
}

static void what_nobody_contributed_to_stays(void **state)
{
    struct scene *k = *state;
    static float before[3 * N];
    struct range all = vec_all(&k->x0);
    warm_up(k);
    record(&k->joint.now, before);
    one_cycle(k, 4, all, (const uint64_t[]){0, 0, 0});
    assert_model(&k->joint.now, before);

    /* Nor does it matter what stands in the sum, or that another attempt came before. */
    mpca_prepare(&k->joint, &mpca_how_default, 5, all,
                 contributions(k, all, (const uint64_t[]){3, 2, 1}));
    for (size_t i = 0; i < N; i++)
        k->sum.x[i] = NAN;
    k->sum.tau = 0;
    mpca_prepare(&k->joint, &mpca_how_default, 5, all, &k->sum);
    mpca_commit(&k->joint, all);
    assert_model(&k->joint.now, before);
}

/* A worker dies during an exchange, and the others redo it: as if it had happened once. */
static void redone_is_as_done_once(void **state)
{
    struct scene *k = *state;
    static const uint64_t all_give[] = {3, 2, 1}, one_died[] = {3, 0, 1};
    static float before[3 * N], once[3 * N];
    struct range all = vec_all(&k->x0);
    warm_up(k);
    record(&k->joint.now, before);
    mpca_prepare(&k->joint, &mpca_how_default, 4, all, contributions(k, all, one_died));
    record(&k->joint.next, once);
    assert_model(&k->joint.now, before); /* until the commit */

    mpca_prepare(&k->joint, &mpca_how_default, 4, all, contributions(k, all, all_give));
    mpca_prepare(&k->joint, &mpca_how_default, 4, all, contributions(k, all, one_died));
    assert_model(&k->joint.next, once);
    assert_model(&k->joint.now, before);
    mpca_commit(&k->joint, all);
    assert_model(&k->joint.now, once);
}

/* Shard after shard, in any order, gives the bits of the whole; and a shard is all that changes. */
static void shards_know_nothing_of_each_other(void **state)
{
    struct scene *k = *state;
    static const uint64_t tau[] = {5, 3, 2};
    static const size_t order[SHARDS] = {2, 0, 1};
    static float before[3 * N], whole[3 * N];
    struct range all = vec_all(&k->x0);
    warm_up(k);
    record(&k->joint.now, before);
    mpca_prepare(&k->joint, &mpca_how_default, 4, all, contributions(k, all, tau));
    record(&k->joint.next, whole);
    for (size_t i = 0; i < SHARDS; i++) {
        struct range r = mpca_shard_range(N, SHARDS, order[i]);
        one_cycle(k, 4, r, tau);
        for (size_t part = 0; part < 3; part++)
            memcpy(before + part * N + r.from, whole + part * N + r.from, r.len * sizeof(float));
        assert_model(&k->joint.now, before);
    }
    assert_model(&k->joint.now, whole);
}

/* The state s of a BatchNorm, by hand: (3·8 + 1·4) / 4 = 7, whatever it was, and nothing else. */
static void state_is_a_plain_mean(void **state)
{
    struct scene *k = *state;
    struct range all = vec_all(&k->dx);
    struct vec *s = &k->dx;
    vec_fill(&k->x[0], all, 8);
    vec_fill(&k->x[1], all, 4);
    for (int cycle = 0; cycle < 2; cycle++) {
        mpca_mean(s, all, contributions(k, all, (const uint64_t[]){3, 1, 0}));
        for (size_t i = 0; i < N; i++)
            assert_true(s->at[i] == 7);
    }
    mpca_mean(s, all, contributions(k, all, (const uint64_t[]){0, 0, 0}));
    assert_true(s->at[0] == 7 && s->at[N - 1] == 7);
}

/* Who hears nothing but x̃* knows ṽ all the same, through the ramp, cycles without a contribution,
 * and beyond; and who begins to listen late knows it after a while. */
static void who_hears_the_broadcasts_knows_the_direction(void **state)
{
    struct scene *k = *state;
    struct vec v = vec_of(k), late = vec_of(k), before = vec_of(k);
    struct range all = vec_all(&v);
    float gamma = 0;
    vec_copy(&before, &k->joint.now.star, all);
    for (uint64_t c = 0; c < 100; c++) {
        uint64_t gives = c % 7 != 3;
        one_cycle(k, c, all, (const uint64_t[]){3 * gives, 2 * gives, gives});
        if (gives) {
            float next = mpca_gamma(&mpca_how_default, c);
            mpca_follow(&v, &mpca_how_default, &before, gamma, &k->joint.now.star, next, all);
            if (c > 5)
                mpca_follow(&late, &mpca_how_default, &before, gamma, &k->joint.now.star, next,
                            all);
            gamma = next;
        }
        vec_copy(&before, &k->joint.now.star, all);
        for (size_t i = 0; i < WORKERS; i++)
            randomise(&k->x[i], 10 * (c + 1) + i);
        for (size_t i = 0; i < N; i++)
            if (!(fabs((double)v.at[i] - (double)k->joint.now.v.at[i]) < 2e-6))
                fail_msg("cycle %u: %g, not %g", (unsigned)c, (double)v.at[i],
                         (double)k->joint.now.v.at[i]);
    }
    for (size_t i = 0; i < N; i++)
        assert_true(fabs((double)late.at[i] - (double)v.at[i]) < 1e-4);
}

/* ---- limits ---- */

static void the_median_of_the_latest_cycles(void **state)
{
    (void)state;
    struct mpca_pace pace = {0};
    assert_int_equal(mpca_pace_median(&pace), 0);
    static const int64_t took[] = {50, 10, 40, 20}, want[] = {50, 50, 40, 40};
    for (size_t i = 0; i < 4; i++) {
        mpca_pace_note(&pace, took[i]);
        assert_int_equal(mpca_pace_median(&pace), want[i]);
    }
    for (int64_t i = 0; i < 100; i++) /* those kept are 85 … 99 */
        mpca_pace_note(&pace, i);
    assert_int_equal(mpca_pace_median(&pace), 92);
}

static void beyond_four_cycles_a_worker_is_let_go(void **state)
{
    (void)state;
    struct mpca_how how = mpca_how_default;
    assert_false(mpca_stale(&how, 400, 100));
    assert_true(mpca_stale(&how, 401, 100));
    assert_false(mpca_stale(&how, INT64_MAX, 0)); /* no cycle has been timed */
    how.stale_limit = 0;
    assert_false(mpca_stale(&how, INT64_MAX, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beta_falls_from_1_by_a_constant_factor),
        cmocka_unit_test(gamma_rises_from_0_in_a_line),
        cmocka_unit_test(alpha_explores_then_calls_together_then_lets_go),
        cmocka_unit_test(schedules_without_a_ramp_or_hold),
        cmocka_unit_test(a_job_without_numbers_asks_for_the_papers),
        cmocka_unit_test(shards_by_hand),
        cmocka_unit_test(shards_are_equal_and_cover_the_vector),
#define IN_SCENE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
        IN_SCENE(each_shard_is_displaced_by_its_own_alpha),
        IN_SCENE(a_gradient_is_tilted_in_its_range),
        IN_SCENE(the_two_penalties_are_one_force),
        IN_SCENE(the_joint_model_begins_at_the_first_weights),
        IN_SCENE(the_joint_model_of_a_lone_worker_is_its_own),
        IN_SCENE(workers_that_agree_are_the_mean),
        IN_SCENE(what_nobody_contributed_to_stays),
        IN_SCENE(redone_is_as_done_once),
        IN_SCENE(shards_know_nothing_of_each_other),
        IN_SCENE(state_is_a_plain_mean),
        IN_SCENE(who_hears_the_broadcasts_knows_the_direction),
        cmocka_unit_test(the_median_of_the_latest_cycles),
        cmocka_unit_test(beyond_four_cycles_a_worker_is_let_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
