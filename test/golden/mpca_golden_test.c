/* MPCA SGD's arithmetic against the paper's equations (mpca.py wrote mpca.golden), on the smallest
 * problem that covers all of it: a model of two weights, a and b, each a shard; two phases (Fig.
 * 7), so that a is broadcast while b is reduced; three workers, which take 3, 2 and 1 steps a tick.
 * Every loss is a bowl, (a − p)²/2 + (a − p)(b − q)/2 + (b − q)²/2, with its bottom (p, q) at (1,
 * 1), (0, 2) and (−1, 0); the rate is 1/4, and all begin at a = 4, b = −2.
 *
 * The first three cycles of a, by hand:
 *
 *     tick     0          1          2          3          4          5
 *     steps    ooo oo o   ooo oo o   ooo oo o   ooo oo o   ooo oo o   ooo oo o
 *     a        reduce     broadcast  reduce     broadcast  reduce     broadcast
 *     b                   reduce     broadcast  reduce     broadcast  reduce
 *     a's c    0          0          1          1          2          2
 *     a's α    0          0          0          0          0.5        0.5
 *
 * Tick 0. Workers 0 and 1 stand where a − p = −(b − q), and stay on that line: a step moves them to
 * 7/8 of their distance from the bottom. Worker 0 has a = 1 + 3·(7/8)³ = 3.0098 after three, worker
 * 1 a = 0 + 4·(7/8)² = 3.0625 after two. Worker 2's one step is a = 4 − (5 − 2/2)/4 = 3.
 *     τ = 3, 2, 1     R = (3·3.0098 + 2·3.0625 + 1·3)/6 = 3.0257                       (Eq. 9)
 *     β = 1           x̃ = R = 3.0257: the initial weights are forgotten at once        (Eq. 8)
 *                     ṽ = 0.8·0 + 0.2·(3.0257 − 4) = −0.1949                           (Eq. 4)
 *     γ = 0           x̃* = x̃                                                           (Eq. 5)
 * Tick 1. x̃* is on its way. Nobody waits for it: all take their steps, and τ of a counts from 0.
 * Tick 2. It has arrived, which completes the cycle; but α is still 0, so that everybody explores
 * alone. After nine, six and three steps a is 1.9020, 1.7952 and 1.7109:
 *     τ = 6, 4, 2     R = (6·1.9020 + 4·1.7952 + 2·1.7109)/12 = 1.8345
 *     β = 0.9947      x̃ = 0.0053·3.0257 + 0.9947·1.8345 = 1.8408
 *                     ṽ = 0.8·(−0.1949) + 0.2·(1.8408 − 3.0257) = −0.3929
 *     γ = 0.035       x̃* = 1.8408 − 0.035·0.3929 = 1.8270: where a is going
 * Tick 3. On its way; a is 1.6043, 1.3744 and 1.2805, and b of worker 2 is −1.8228. Tick 4. Now α
 * is 0.5, and all are called together: before each gradient a goes half the way to 1.8270. Worker 2
 * begins its step at (1.2805 + 1.8270)/2 = 1.5538 and ends it at 1.5538 − (2.5538 − 1.8228/2)/4 =
 * 1.1432; the others come to 1.6001 and 1.3536:
 *     τ = 6, 4, 2     R = (6·1.6001 + 4·1.3536 + 2·1.1432)/12 = 1.4418
 *     β = 0.9895      x̃ = 0.0105·1.8408 + 0.9895·1.4418 = 1.4460
 *                     ṽ = 0.8·(−0.3929) + 0.2·(1.4460 − 1.8408) = −0.3933
 *     γ = 0.07        x̃* = 1.4460 − 0.07·0.3933 = 1.4184
 *
 * Later worker 0 stands still for two ticks and everybody for two more: a worker that took no step
 * gives nothing to R, and where nobody did the joint model stays and its x̃* is broadcast again.
 *
 * All bits must agree. mpca.py rounds after every operation, in the order in which the paper writes
 * it, as IEEE arithmetic does; sums run in the order of the workers. Schedules leave the libraries'
 * pow in double, whose last bit may differ: none of them is so near to the middle of two floats. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/status.h"
#include "mpca_joint.h"
#include "strategy/mpca_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 3, SHARDS = 2, TICKS = 50, ALL = SHARDS * SEGMENT_ALIGN };

/* The values of a line of mpca.golden after the form. */
enum {
    TICK,
    SHARD,
    C,
    ALPHA,
    BETA,
    GAMMA,
    TAU, /* of each worker */
    JOINT = TAU + WORKERS,
    V,
    STAR,
    X, /* of each worker: a, b */
    COLUMNS = X + SHARDS * WORKERS
};
static const char *const column[COLUMNS] = {"tick", "shard", "c",    "alpha", "beta", "gamma",
                                            "tau0", "tau1",  "tau2", "joint", "v",    "x*",
                                            "a0",   "b0",    "a1",   "b1",    "a2",   "b2"};

static const float rate = 0.25f, bottom[WORKERS][SHARDS] = {{1, 1}, {0, 2}, {-1, 0}};
static const float curvature[SHARDS][SHARDS] = {{1, 0.5f}, {0.5f, 1}};

static char *golden; /* the whole file */

struct cluster {
    struct arena arena;
    const char *form;  /* of the penalty */
    bool tilts;        /* it is Eq. 6, not Eq. 7 */
    const char *lines; /* of mpca.golden, the remaining ones */
    struct vec x[WORKERS], dx, scratch;
    uint64_t tau[WORKERS][SHARDS];
    struct mpca_joint joint;
    struct vec star; /* as the workers have it */
    uint64_t c[SHARDS];
};

/* Where weight s lies: its shard begins with it. */
static size_t shard_start(size_t s)
{
    return s * SEGMENT_ALIGN;
}

static struct range shard_of(size_t s)
{
    struct range r = range_shard(ALL, SHARDS, s);
    assert_int_equal(r.from, shard_start(s));
    return r;
}

static void cluster_init(struct cluster *k, const char *form, bool tilts)
{
    struct vec *const vecs[] = {&k->x[0], &k->x[1], &k->x[2], &k->dx, &k->scratch, &k->star, NULL};
    struct vec start;
    *k = (struct cluster){.form = form, .tilts = tilts, .lines = strstr(golden, form)};
    assert_non_null(k->lines);
    arena_init(&k->arena);
    assert_int_equal(vec_init(&start, &k->arena, ALL), OK);
    start.at[shard_start(0)] = 4;
    start.at[shard_start(1)] = -2;
    for (size_t i = 0; vecs[i]; i++) {
        assert_int_equal(vec_init(vecs[i], &k->arena, ALL), OK);
        vec_copy(vecs[i], &start, vec_all(&start));
    }
    assert_int_equal(joint_init(&k->joint, &start, &k->arena), OK);
}

static float alpha_of(const struct cluster *k, size_t s)
{
    return mpca_alpha(&mpca_config_default, k->c[s]);
}

static void compute_gradient(struct cluster *k, size_t i)
{
    float d[SHARDS];
    for (size_t s = 0; s < SHARDS; s++)
        d[s] = k->x[i].at[shard_start(s)] - bottom[i][s];
    for (size_t s = 0; s < SHARDS; s++)
        k->dx.at[shard_start(s)] = curvature[s][0] * d[0] + curvature[s][1] * d[1];
}

/* Plain SGD. */
static void take_step(struct cluster *k, size_t i)
{
    for (size_t s = 0; s < SHARDS && !k->tilts; s++)
        mpca_displace(&k->x[i], &k->star, alpha_of(k, s), shard_of(s));
    vec_fill(&k->dx, vec_all(&k->dx), 0);
    compute_gradient(k, i);
    for (size_t s = 0; s < SHARDS && k->tilts; s++)
        mpca_tilt(&k->dx, &k->x[i], &k->star, alpha_of(k, s), shard_of(s), &k->scratch);
    vec_axpy(&k->x[i], -rate, &k->dx, vec_all(&k->dx));
    for (size_t s = 0; s < SHARDS; s++)
        k->tau[i][s]++;
}

static int steps_of(size_t i, int tick)
{
    bool rests = tick == 16 || tick == 17 || (i == 0 && (tick == 10 || tick == 11));
    return rests ? 0 : WORKERS - (int)i;
}

/* (τ·x, τ) of a worker: the form of a contribution with weight τ in an exchange. */
static void add_contribution(struct mpca_sum *out, const struct vec *x, struct range r,
                             uint64_t tau)
{
    for (size_t i = 0; i < r.len; i++)
        out->x[i] = (float)tau * x->at[r.from + i];
    out->tau = tau;
}

/* The network's part: contributions are added up in the order of the workers. */
static void reduce_shard(struct cluster *k, size_t s, struct mpca_sum *sum)
{
    float own[SEGMENT_ALIGN];
    for (size_t i = 0; i < WORKERS; i++) {
        struct mpca_sum mine = {.x = own};
        add_contribution(&mine, &k->x[i], shard_of(s), k->tau[i][s]);
        vec_host_add(sum->x, mine.x, shard_of(s).len);
        sum->tau += mine.tau;
    }
}

/* The model that was prepared a tick ago has reached every worker. */
static void finish_broadcast(struct cluster *k, size_t s)
{
    joint_commit(&k->joint, shard_of(s));
    vec_copy(&k->star, &k->joint.now.star, shard_of(s));
    k->c[s]++;
}

static void expect_model(struct cluster *k, const float *got)
{
    char *end;
    size_t form = strlen(k->form);
    if (strncmp(k->lines, k->form, form) != 0)
        fail_msg("mpca.golden: expected a line of %s, not %.30s", k->form, k->lines);
    k->lines += form;
    for (size_t i = 0; i < COLUMNS; i++, k->lines = end) {
        float want = strtof(k->lines, &end);
        if (end == k->lines || memcmp(&got[i], &want, sizeof want) != 0)
            fail_msg("%s, tick %g: %s is %.9g, the equations say %.9g", k->form, (double)got[TICK],
                     column[i], (double)got[i], (double)want);
    }
    assert_int_equal(*k->lines++, '\n');
}

static void one_tick(struct cluster *k, int tick)
{
    const size_t s = (size_t)tick % SHARDS, other = (s + 1) % SHARDS;
    const struct mpca_config *config = &mpca_config_default;
    const struct mpca_model *next = &k->joint.next;
    float zeros[SEGMENT_ALIGN] = {0}, got[COLUMNS];
    for (size_t i = 0; i < WORKERS; i++)
        for (int n = steps_of(i, tick); n > 0; n--)
            take_step(k, i);
    struct mpca_sum sum = {.x = zeros};
    reduce_shard(k, s, &sum);
    mpca_prepare(&k->joint, config, k->c[s], shard_of(s), &sum);

    got[TICK] = (float)tick;
    got[SHARD] = (float)s;
    got[C] = (float)k->c[s];
    got[ALPHA] = alpha_of(k, s);
    got[BETA] = mpca_beta(config, k->c[s]);
    got[GAMMA] = mpca_gamma(config, k->c[s]);
    got[JOINT] = next->x.at[shard_start(s)];
    got[V] = next->v.at[shard_start(s)];
    got[STAR] = next->star.at[shard_start(s)];
    for (size_t i = 0; i < WORKERS; i++) {
        got[TAU + i] = (float)k->tau[i][s];
        got[X + SHARDS * i] = k->x[i].at[shard_start(0)];
        got[X + SHARDS * i + 1] = k->x[i].at[shard_start(1)];
        k->tau[i][s] = 0;
    }
    expect_model(k, got);
    if (tick > 0)
        finish_broadcast(k, other);
}

static void play_form(const char *form, bool tilts)
{
    struct cluster k;
    cluster_init(&k, form, tilts);
    for (int tick = 0; tick < TICKS; tick++)
        one_tick(&k, tick);
    arena_release(&k.arena);
}

/* Eq. 7, the paper's choice. */
static void test_mpca_displacement_form(void **state)
{
    (void)state;
    play_form("displace", false);
}

/* Eq. 6. */
static void test_mpca_gradient_form(void **state)
{
    (void)state;
    play_form("gradient", true);
}

int main(void)
{
    struct file_bytes file;
    struct err err = {0};
    if (file_read(TEST_ROOT "/test/golden/mpca.golden", 1 << 20, &file, &err) != OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    golden = (char *)file.data;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mpca_displacement_form),
        cmocka_unit_test(test_mpca_gradient_form),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    file_release(&file);
    return failed;
}
