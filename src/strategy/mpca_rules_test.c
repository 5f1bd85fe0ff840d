/* MPCA's rules, one by one. test/golden/mpca_golden_test.c plays them together, against the paper's
 * equations. */
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

#include "mpca_joint.h"
enum { N = 3 * VEC_BLOCK + 5 * SEGMENT_ALIGN, SHARDS = 3, WORKERS = 3, SEED = 11 };

/* A global model after a few cycles, its workers, and their contributions. */
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

static void fill_random(struct vec *v, uint64_t stream)
{
    for (size_t i = 0; i < v->n; i++)
        v->at[i] = rng_normal(SEED, stream, i) * (i % 7 ? 1.0f : 1e-3f);
}

/* (τ·x, τ) of a worker: the form of a contribution with weight τ in an exchange. */
static void add_contribution(struct mpca_sum *out, const struct vec *x, struct range r,
                             uint64_t tau)
{
    for (size_t i = 0; i < r.len; i++)
        out->x[i] = (float)tau * x->at[r.from + i];
    out->tau = tau;
}

/* Σ τ^i·x^i over workers 0 … WORKERS − 1, added up in order. */
static struct mpca_sum *sum_contributions(struct scene *k, struct range r,
                                          const uint64_t tau[WORKERS])
{
    static float own[N];
    memset(k->sum.x, 0, r.len * sizeof(float));
    k->sum.tau = 0;
    for (size_t i = 0; i < WORKERS; i++) {
        struct mpca_sum mine = {.x = own};
        add_contribution(&mine, &k->x[i], r, tau[i]);
        vec_host_add(k->sum.x, mine.x, r.len);
        k->sum.tau += mine.tau;
    }
    return &k->sum;
}

static void one_cycle(struct scene *k, uint64_t c, struct range r, const uint64_t tau[WORKERS])
{
    mpca_prepare(&k->joint, &mpca_config_default, c, r, sum_contributions(k, r, tau));
    joint_commit(&k->joint, r);
}

/* The global model begins as `x0`. */
static void scene_init(struct scene *k)
{
    arena_init(&k->arena);
    k->x0 = vec_of(k);
    k->dx = vec_of(k);
    k->scratch = vec_of(k);
    k->sum.x = arena_array(&k->arena, N, float);
    assert_non_null(k->sum.x);
    fill_random(&k->x0, 100);
    for (size_t i = 0; i < WORKERS; i++) {
        k->x[i] = vec_of(k);
        fill_random(&k->x[i], i);
    }
    assert_int_equal(joint_init(&k->joint, &k->x0, &k->arena), OK);
}

static void warm_up(struct scene *k)
{
    for (uint64_t c = 0; c < 4; c++) {
        one_cycle(k, c, vec_all(&k->x0), (const uint64_t[]){3 + c, 2, 1});
        for (size_t i = 0; i < WORKERS; i++)
            fill_random(&k->x[i], 10 * (c + 1) + i);
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
static void record_model(const struct mpca_model *model, float out[3 * N])
{
    const struct vec *const all[] = {&model->x, &model->v, &model->star};
    for (size_t i = 0; i < 3; i++)
        vec_export(all[i], vec_all(all[i]), out + i * N);
}

static void assert_model(const struct mpca_model *model, const float want[3 * N])
{
    static float have[3 * N];
    record_model(model, have);
    assert_memory_equal(have, want, sizeof have);
}

/* ---- schedules ---- */

static void expect_near(float have, double want)
{
    if (!(fabs((double)have - want) <= 2e-7))
        fail_msg("%.9g, expected %.9g", (double)have, want);
}

/* 0.9^½ = √0.9. */
static void test_beta_falls_from_1_by_a_constant_factor(void **state)
{
    (void)state;
    const struct mpca_config *config = &mpca_config_default;
    assert_true(mpca_beta(config, 0) == 1);
    expect_near(mpca_beta(config, 10), 0.948683298);
    for (uint64_t c = 20; c < 40; c++)
        assert_true(mpca_beta(config, c) == 0.9f);
    for (uint64_t c = 0; c < 20; c++)
        expect_near(mpca_beta(config, c + 1) / mpca_beta(config, c), 0.994745826);
}

static void test_gamma_rises_from_0_in_a_line(void **state)
{
    (void)state;
    const struct mpca_config *config = &mpca_config_default;
    assert_true(mpca_gamma(config, 0) == 0);
    expect_near(mpca_gamma(config, 1), 0.035);
    expect_near(mpca_gamma(config, 10), 0.35);
    assert_true(mpca_gamma(config, 20) == 0.7f && mpca_gamma(config, UINT64_MAX) == 0.7f);
}

/* 0.05 + 0.45·0.8^k is 0.5, 0.41, 0.338, 0.2804 … */
static void test_alpha_explores_then_calls_together_then_lets_go(void **state)
{
    (void)state;
    static const double by_hand[] = {0, 0, 0.5, 0.41, 0.338, 0.2804, 0.23432, 0.197456};
    for (uint64_t c = 0; c < sizeof by_hand / sizeof *by_hand; c++)
        expect_near(mpca_alpha(&mpca_config_default, c), by_hand[c]);
    assert_true(mpca_alpha(&mpca_config_default, 1000) == 0.05f);
    assert_true(mpca_alpha(&mpca_config_default, UINT64_MAX) == 0.05f);
}

static void test_schedules_without_a_ramp_or_hold(void **state)
{
    (void)state;
    struct mpca_config config = mpca_config_default;
    config.ramp = 0;
    config.alpha_hold = 0;
    assert_true(mpca_beta(&config, 0) == 0.9f && mpca_gamma(&config, 0) == 0.7f);
    assert_true(mpca_alpha(&config, 0) == 0.5f);
}

static void test_mpca_defaults_are_the_papers(void **state)
{
    (void)state;
    Paceline__Mpca job;
    paceline__mpca__init(&job);
    assert_true(job.delta == mpca_config_default.delta);
    assert_true(job.beta == mpca_config_default.beta);
    assert_true(job.gamma == mpca_config_default.gamma);
    assert_true(job.ramp == mpca_config_default.ramp);
    assert_true(job.alpha == mpca_config_default.alpha);
    assert_true(job.alpha_high == mpca_config_default.alpha_high);
    assert_true(job.alpha_hold == mpca_config_default.alpha_hold);
    assert_true(job.alpha_decay == mpca_config_default.alpha_decay);
    assert_true(job.stale_limit == mpca_config_default.stale_limit);
}

/* ---- the worker ---- */

/* By hand: from 8 towards 4 with α = ½, ¼ and 0. */
static void test_each_shard_is_displaced_by_its_own_alpha(void **state)
{
    struct scene *k = *state;
    static const float alpha[SHARDS] = {0.5f, 0.25f, 0}, want[SHARDS] = {6, 7, 8};
    struct vec *x = &k->x[0], *star = &k->x[1];
    vec_fill(x, vec_all(x), 8);
    vec_fill(star, vec_all(star), 4);
    vec_fill(star, range_shard(N, SHARDS, 2), NAN); /* never arrived: it is not read */
    for (size_t s = 0; s < SHARDS; s++)
        mpca_displace(x, star, alpha[s], range_shard(N, SHARDS, s));
    for (size_t s = 0; s < SHARDS; s++) {
        struct range r = range_shard(N, SHARDS, s);
        for (size_t i = r.from; i < r.from + r.len; i++)
            assert_true(x->at[i] == want[s]);
    }
}

static void test_a_gradient_is_tilted_in_its_range(void **state)
{
    struct scene *k = *state;
    struct range r = range_shard(N, SHARDS, 1);
    struct vec *x = &k->x[0], *star = &k->x[1], *before = &k->x[2];
    fill_random(&k->dx, 50);
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
static void test_the_two_penalties_are_one_force(void **state)
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

/* A worker without a result yet is pulled towards the first weights, not towards zeros. */
static void test_the_joint_model_begins_at_the_first_weights(void **state)
{
    struct scene *k = *state;
    struct range all = vec_all(&k->x0);
    one_cycle(k, 0, all, (const uint64_t[]){0, 0, 0});
    const struct mpca_model *now = &k->joint.now;
    assert_ptr_equal(now->x.at, k->x0.at);
    assert_memory_equal(now->star.at, k->x0.at, N * sizeof(float));
    for (size_t i = 0; i < N; i++)
        assert_true(now->v.at[i] == 0);
    fill_random(&k->scratch, 100);
    assert_memory_equal(k->x0.at, k->scratch.at, N * sizeof(float));
}

/* With β = 1, γ = 0 and one worker, whom nothing pulls, the global model is the worker's. τ·x and
 * 1/τ are rounded, and so is their product: three times 2^-24 of x, and exact where τ is a power of
 * two. */
static void test_the_joint_model_of_a_lone_worker_is_its_own(void **state)
{
    struct scene *k = *state;
    struct mpca_config config = mpca_config_default;
    config.beta = 1;
    config.gamma = 0;
    config.alpha = 0;
    config.alpha_high = 0;
    struct vec *x = &k->x[0];
    for (uint64_t c = 0; c < 32; c++) {
        uint64_t tau = c + 1;
        fill_random(x, 60 + c);
        mpca_displace(x, &k->joint.now.star, mpca_alpha(&config, c), vec_all(x));
        add_contribution(&k->sum, x, vec_all(x), tau);
        mpca_prepare(&k->joint, &config, c, vec_all(x), &k->sum);
        joint_commit(&k->joint, vec_all(x));
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
static void test_workers_that_agree_are_the_mean(void **state)
{
    struct scene *k = *state;
    vec_copy(&k->x[1], &k->x[0], vec_all(&k->x0));
    vec_copy(&k->x[2], &k->x[0], vec_all(&k->x0));
    struct vec *mean = &k->dx;
    mpca_mean(mean, vec_all(mean),
              sum_contributions(k, vec_all(mean), (const uint64_t[]){17, 1, 5}));
    for (size_t i = 0; i < N; i++)
        assert_true(fabs((double)mean->at[i] - (double)k->x[0].at[i]) <=
                    0x8p-24 * fabs((double)k->x[0].at[i]));
}

static void test_mpca_without_contributions_nothing_moves(void **state)
{
    struct scene *k = *state;
    static float before[3 * N];
    struct range all = vec_all(&k->x0);
    warm_up(k);
    record_model(&k->joint.now, before);
    one_cycle(k, 4, all, (const uint64_t[]){0, 0, 0});
    assert_model(&k->joint.now, before);

    /* Nor does it matter what stands in the sum, or that another attempt came before. */
    mpca_prepare(&k->joint, &mpca_config_default, 5, all,
                 sum_contributions(k, all, (const uint64_t[]){3, 2, 1}));
    for (size_t i = 0; i < N; i++)
        k->sum.x[i] = NAN;
    k->sum.tau = 0;
    mpca_prepare(&k->joint, &mpca_config_default, 5, all, &k->sum);
    joint_commit(&k->joint, all);
    assert_model(&k->joint.now, before);
}

/* A worker dies during an exchange, and the others redo it: as if it had happened once. */
static void test_redone_is_as_done_once(void **state)
{
    struct scene *k = *state;
    static const uint64_t all_give[] = {3, 2, 1}, one_died[] = {3, 0, 1};
    static float before[3 * N], once[3 * N];
    struct range all = vec_all(&k->x0);
    warm_up(k);
    record_model(&k->joint.now, before);
    mpca_prepare(&k->joint, &mpca_config_default, 4, all, sum_contributions(k, all, one_died));
    record_model(&k->joint.next, once);
    assert_model(&k->joint.now, before); /* until the commit */

    mpca_prepare(&k->joint, &mpca_config_default, 4, all, sum_contributions(k, all, all_give));
    mpca_prepare(&k->joint, &mpca_config_default, 4, all, sum_contributions(k, all, one_died));
    assert_model(&k->joint.next, once);
    assert_model(&k->joint.now, before);
    joint_commit(&k->joint, all);
    assert_model(&k->joint.now, once);
}

/* Shard after shard, in any order, gives the bits of the whole; and a shard is all that changes. */
static void test_shards_know_nothing_of_each_other(void **state)
{
    struct scene *k = *state;
    static const uint64_t tau[] = {5, 3, 2};
    static const size_t order[SHARDS] = {2, 0, 1};
    static float before[3 * N], whole[3 * N];
    struct range all = vec_all(&k->x0);
    warm_up(k);
    record_model(&k->joint.now, before);
    mpca_prepare(&k->joint, &mpca_config_default, 4, all, sum_contributions(k, all, tau));
    record_model(&k->joint.next, whole);
    for (size_t i = 0; i < SHARDS; i++) {
        struct range r = range_shard(N, SHARDS, order[i]);
        one_cycle(k, 4, r, tau);
        for (size_t part = 0; part < 3; part++)
            memcpy(before + part * N + r.from, whole + part * N + r.from, r.len * sizeof(float));
        assert_model(&k->joint.now, before);
    }
    assert_model(&k->joint.now, whole);
}

/* The state s of a BatchNorm, by hand: (3·8 + 1·4) / 4 = 7, whatever it was, and nothing else. */
static void test_state_is_a_plain_mean(void **state)
{
    struct scene *k = *state;
    struct range all = vec_all(&k->dx);
    struct vec *s = &k->dx;
    vec_fill(&k->x[0], all, 8);
    vec_fill(&k->x[1], all, 4);
    for (int cycle = 0; cycle < 2; cycle++) {
        mpca_mean(s, all, sum_contributions(k, all, (const uint64_t[]){3, 1, 0}));
        for (size_t i = 0; i < N; i++)
            assert_true(s->at[i] == 7);
    }
    mpca_mean(s, all, sum_contributions(k, all, (const uint64_t[]){0, 0, 0}));
    assert_true(s->at[0] == 7 && s->at[N - 1] == 7);
}

/* A worker that receives nothing but x̃* derives ṽ from it, through the ramp, cycles without a
 * contribution, and beyond; a worker that starts to receive late derives it after a while. */
static void test_mpca_direction_follows_from_broadcasts(void **state)
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
            float next = mpca_gamma(&mpca_config_default, c);
            const struct mpca_star last = {&before, gamma}, now = {&k->joint.now.star, next};
            mpca_follow(&v, &mpca_config_default, &v, &last, &now, all);
            if (c > 5)
                mpca_follow(&late, &mpca_config_default, &late, &last, &now, all);
            gamma = next;
        }
        vec_copy(&before, &k->joint.now.star, all);
        for (size_t i = 0; i < WORKERS; i++)
            fill_random(&k->x[i], 10 * (c + 1) + i);
        for (size_t i = 0; i < N; i++)
            if (!(fabs((double)v.at[i] - (double)k->joint.now.v.at[i]) < 2e-6))
                fail_msg("cycle %u: %g, not %g", (unsigned)c, (double)v.at[i],
                         (double)k->joint.now.v.at[i]);
    }
    for (size_t i = 0; i < N; i++)
        assert_true(fabs((double)late.at[i] - (double)v.at[i]) < 1e-4);
}

/* ---- limits ---- */

static void test_the_median_of_the_latest_cycles(void **state)
{
    (void)state;
    struct mpca_times pace = {0};
    assert_int_equal(mpca_times_median(&pace), 0);
    static const int64_t took[] = {50, 10, 40, 20}, want[] = {50, 50, 40, 40};
    for (size_t i = 0; i < 4; i++) {
        mpca_times_record(&pace, took[i]);
        assert_int_equal(mpca_times_median(&pace), want[i]);
    }
    for (int64_t i = 0; i < 100; i++) /* those kept are 85 … 99 */
        mpca_times_record(&pace, i);
    assert_int_equal(mpca_times_median(&pace), 92);
}

static void test_beyond_four_cycles_a_worker_is_let_go(void **state)
{
    (void)state;
    struct mpca_config config = mpca_config_default;
    assert_false(mpca_stale(&config, 400, 100));
    assert_true(mpca_stale(&config, 401, 100));
    assert_false(mpca_stale(&config, INT64_MAX, 0)); /* no cycle has been timed */
    config.stale_limit = 0;
    assert_false(mpca_stale(&config, INT64_MAX, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beta_falls_from_1_by_a_constant_factor),
        cmocka_unit_test(test_gamma_rises_from_0_in_a_line),
        cmocka_unit_test(test_alpha_explores_then_calls_together_then_lets_go),
        cmocka_unit_test(test_schedules_without_a_ramp_or_hold),
        cmocka_unit_test(test_mpca_defaults_are_the_papers),
#define IN_SCENE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
        IN_SCENE(test_each_shard_is_displaced_by_its_own_alpha),
        IN_SCENE(test_a_gradient_is_tilted_in_its_range),
        IN_SCENE(test_the_two_penalties_are_one_force),
        IN_SCENE(test_the_joint_model_begins_at_the_first_weights),
        IN_SCENE(test_the_joint_model_of_a_lone_worker_is_its_own),
        IN_SCENE(test_workers_that_agree_are_the_mean),
        IN_SCENE(test_mpca_without_contributions_nothing_moves),
        IN_SCENE(test_redone_is_as_done_once),
        IN_SCENE(test_shards_know_nothing_of_each_other),
        IN_SCENE(test_state_is_a_plain_mean),
        IN_SCENE(test_mpca_direction_follows_from_broadcasts),
        cmocka_unit_test(test_the_median_of_the_latest_cycles),
        cmocka_unit_test(test_beyond_four_cycles_a_worker_is_let_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
