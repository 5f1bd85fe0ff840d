/* Collectives of a team through the public names: the results on all members, for each operation,
 * algorithm, wire format and number of members, and on several channels at once. */
#include "team_play.h"

#include <math.h>
#include <stdlib.h>

enum { LONGEST = 70000 };

static const uint32_t team_sizes[] = {1, 2, 3, 5};
static const size_t lengths[] = {0, 1, 2, 7, 1000, LONGEST};
static const char *const algorithms[] = {
    "tree",           "butterfly", "ring", "chunked_ring", "halving_doubling",
    "scatter_gather", "auto",      NULL};

enum { SIZES = 4, LENGTHS = 6, ALGORITHMS = 8 };

/* Whole numbers: a sum has one right answer in any order. */
static float input_value(uint32_t rank, size_t i)
{
    return (float)((i * 7 + rank * 13) % 101) - 50;
}

static void fill_vector(const struct team_member *m, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = input_value(m->rank, i);
}

static float expected_sum(const struct team_member *m, size_t i)
{
    float all = 0;
    for (uint32_t r = 0; r < m->members; r++)
        all += input_value(r, i);
    return all;
}

/* All have the same bits. */
static int expect_agreement(struct team_member *m, const float *x, size_t n)
{
    float *most = malloc((n + 1) * sizeof *x), *least = malloc((n + 1) * sizeof *x);
    const pl_reduction max = {.size = sizeof max, .op = PL_MAX},
                       min = {.size = sizeof min, .op = PL_MIN};
    CHECK(most && least);
    memcpy(most, x, n * sizeof *x);
    memcpy(least, x, n * sizeof *x);
    CHECK(pl_team_allreduce(m->team, most, n, &max, NULL) == PL_OK);
    CHECK(pl_team_allreduce(m->team, least, n, &min, NULL) == PL_OK);
    CHECK(memcmp(most, least, n * sizeof *x) == 0);
    free(most);
    free(least);
    return 0;
}

#define SAME(m, x, n)                                \
    do {                                             \
        int line_ = expect_agreement((m), (x), (n)); \
        if (line_)                                   \
            return line_;                            \
    } while (0)

/* ---- operations ---- */

static void reduce_bits(void *user, float *y, const float *x, size_t n)
{
    atomic_fetch_add((_Atomic size_t *)user, n);
    for (size_t i = 0; i < n; i++)
        y[i] = (float)((int)y[i] ^ (int)x[i]);
}

static int play_extremes(struct team_member *m)
{
    const pl_reduction max = {.size = sizeof max, .op = PL_MAX},
                       min = {.size = sizeof min, .op = PL_MIN};
    float x[1000];
    for (int k = 0; k < 2; k++) {
        fill_vector(m, x, 1000);
        CHECK(pl_team_allreduce(m->team, x, 1000, k ? &max : &min, NULL) == PL_OK);
        for (size_t i = 0; i < 1000; i++) {
            float should = input_value(0, i);
            for (uint32_t r = 1; r < m->members; r++)
                should = k ? fmaxf(should, input_value(r, i)) : fminf(should, input_value(r, i));
            CHECK(x[i] == should);
        }
    }
    return 0;
}

static int play_user(struct team_member *m)
{
    _Atomic size_t seen = 0;
    const pl_reduction user = {
        .size = sizeof user, .op = PL_USER_OP, .fn = reduce_bits, .user = &seen};
    float x[1000];
    for (size_t a = 0; a < ALGORITHMS; a++) {
        const pl_call_options options = {.size = sizeof options, .algorithm = algorithms[a]};
        for (size_t i = 0; i < 1000; i++)
            x[i] = (float)(i * (m->rank + 3) % 1024);
        CHECK(pl_team_allreduce(m->team, x, 1000, &user, &options) == PL_OK);
        for (size_t i = 0; i < 1000; i++) {
            int should = 0;
            for (uint32_t r = 0; r < m->members; r++)
                should ^= (int)(i * (r + 3) % 1024);
            CHECK(x[i] == (float)should);
        }
    }
    return 0;
}

/* Weight of a rank: equal, different, one of none, none at all. */
static double weight_of(int kind, uint32_t rank)
{
    return kind == 0 ? 2.5 : kind == 1 ? 0.5 + rank : kind == 2 ? rank == 0 : 0;
}

static int play_means(struct team_member *m)
{
    float x[1000];
    for (int kind = 0; kind < 4; kind++) {
        const pl_reduction mean = {
            .size = sizeof mean, .op = PL_MEAN, .weight = weight_of(kind, m->rank)};
        fill_vector(m, x, 1000);
        CHECK(pl_team_allreduce(m->team, x, 1000, &mean, NULL) == PL_OK);
        for (size_t i = 0; i < 1000; i++) {
            double all = 0, weights = 0;
            for (uint32_t r = 0; r < m->members; r++) {
                double w = kind == 3 ? 1 : weight_of(kind, r);
                all += w * (double)input_value(r, i);
                weights += w;
            }
            CHECK(fabs((double)x[i] - all / weights) < 1e-4);
        }
        SAME(m, x, 1000);
    }
    return 0;
}

static void test_operations(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        team_play(team_sizes[i], play_extremes, NULL);
        team_play(team_sizes[i], play_user, NULL);
        team_play(team_sizes[i], play_means, NULL);
    }
}

/* ---- algorithms ---- */

static int play_algorithms(struct team_member *m)
{
    float *x = malloc(LONGEST * sizeof *x);
    CHECK(x);
    for (size_t a = 0; a < ALGORITHMS; a++)
        for (size_t k = 0; k < LENGTHS; k++) {
            const pl_call_options options = {.size = sizeof options,
                                             .algorithm = algorithms[a],
                                             .chunk_kb = k % 2 ? 16 : 0,
                                             .stripes = k % 3 ? 0 : 2};
            fill_vector(m, x, lengths[k]);
            CHECK(pl_team_allreduce(m->team, x, lengths[k], NULL, &options) == PL_OK);
            for (size_t i = 0; i < lengths[k]; i++)
                CHECK(x[i] == expected_sum(m, i));
            const char *took = pl_team_algorithm(m->team, 0);
            if (options.algorithm && strcmp(options.algorithm, "auto") != 0)
                CHECK(strcmp(took, options.algorithm) == 0);
            else
                CHECK(strcmp(took, "auto") != 0);
        }
    free(x);
    return 0;
}

static void test_algorithms(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++)
        team_play(team_sizes[i], play_algorithms, NULL);
}

/* Sums whose last bits depend on their order: it is the same each time, and on all. */
static int play_rounding(struct team_member *m)
{
    enum { N = 5000 };
    static const size_t bytes = N * sizeof(float);
    float *x = malloc(bytes), *first = malloc(bytes);
    CHECK(x && first);
    for (size_t a = 0; a < ALGORITHMS; a++)
        for (int again = 0; again < 2; again++) {
            const pl_call_options options = {.size = sizeof options, .algorithm = algorithms[a]};
            for (size_t i = 0; i < N; i++)
                x[i] = 1.0f / (float)(3 + i + 17 * m->rank);
            CHECK(pl_team_allreduce(m->team, x, N, NULL, &options) == PL_OK);
            SAME(m, x, N);
            CHECK(again == 0 || memcmp(x, first, bytes) == 0);
            memcpy(first, x, bytes);
        }
    free(x);
    free(first);
    return 0;
}

static void test_bits(void **state)
{
    (void)state;
    for (size_t i = 1; i < SIZES; i++)
        team_play(team_sizes[i], play_rounding, NULL);
}

/* ---- wires ---- */

static int play_wires(struct team_member *m)
{
    static const char *const wires[] = {"bf16", "int8"};
    enum { N = 3000 };
    float x[N];
    for (size_t a = 0; a < ALGORITHMS; a++)
        for (int w = 0; w < 2; w++) {
            const pl_call_options options = {
                .size = sizeof options, .algorithm = algorithms[a], .wire = wires[w]};
            bool exact = a == 1 || a == 2; /* would end with different sums */
            fill_vector(m, x, N);
            int rc = pl_team_allreduce(m->team, x, N, NULL, &options);
            CHECK(rc == (exact ? PL_ERR_USAGE : PL_OK));
            CHECK(!exact || strstr(pl_team_error(m->team, 0), "f32"));
            for (size_t i = 0; !exact && i < N; i++)
                CHECK(fabsf(x[i] - expected_sum(m, i)) <= 2.0f * (float)(m->members * m->members));
            if (!exact)
                SAME(m, x, N);
        }
    return 0;
}

/* The error feedback of a lossy wire: over many calls nothing is lost. */
static int play_residual(struct team_member *m)
{
    enum { N = 600, CALLS = 100 };
    static const char *const wires[] = {"bf16", "int8"};
    for (int w = 0; w < 2; w++) {
        float x[N], owed[N] = {0};
        double all[N] = {0};
        const pl_call_options options = {
            .size = sizeof options, .wire = wires[w], .residual = owed};
        for (int call = 0; call < CALLS; call++) {
            for (size_t i = 0; i < N; i++)
                x[i] = i % 100 == 0 ? 1 : 0.0011f; /* lost in the shadow of a large one as int8 */
            CHECK(pl_team_allreduce(m->team, x, N, NULL, &options) == PL_OK);
            for (size_t i = 0; i < N; i++)
                all[i] += (double)x[i];
        }
        for (size_t i = 1; i < 100; i++)
            CHECK(fabs(all[i] - 0.0011 * CALLS * m->members) <= 0.03 * m->members);
    }
    return 0;
}

static void test_wires(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        team_play(team_sizes[i], play_wires, NULL);
        team_play(team_sizes[i], play_residual, NULL);
    }
}

/* ---- from one, to one, parts ---- */

static int play_to_all(struct team_member *m, uint32_t root, size_t n)
{
    float x[1000];
    fill_vector(m, x, n);
    CHECK(pl_team_broadcast(m->team, root, x, n, NULL) == PL_OK);
    for (size_t i = 0; i < n; i++)
        CHECK(x[i] == input_value(root, i));
    fill_vector(m, x, n);
    CHECK(pl_team_all_gather(m->team, x, n, NULL) == PL_OK);
    for (uint32_t r = 0; r < m->members; r++)
        for (size_t i = pl_team_part(n, m->members, r); i < pl_team_part(n, m->members, r + 1); i++)
            CHECK(x[i] == input_value(r, i));
    return 0;
}

static int play_to_one(struct team_member *m, uint32_t root, size_t n)
{
    const pl_reduction max = {.size = sizeof max, .op = PL_MAX},
                       mean = {.size = sizeof mean, .op = PL_MEAN, .weight = 1};
    float x[1000];
    fill_vector(m, x, n);
    CHECK(pl_team_reduce(m->team, root, x, n, NULL, NULL) == PL_OK);
    for (size_t i = 0; m->rank == root && i < n; i++)
        CHECK(x[i] == expected_sum(m, i));
    fill_vector(m, x, n);
    CHECK(pl_team_reduce(m->team, root, x, n, &mean, NULL) == PL_OK);
    for (size_t i = 0; m->rank == root && i < n; i++)
        CHECK(fabsf(x[i] - expected_sum(m, i) / (float)m->members) < 1e-4f);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)m->rank;
    CHECK(pl_team_reduce(m->team, root, x, n, &max, NULL) == PL_OK);
    for (size_t i = 0; m->rank == root && i < n; i++)
        CHECK(x[i] == (float)(m->members - 1));
    fill_vector(m, x, n);
    CHECK(pl_team_gather(m->team, root, x, n, NULL) == PL_OK);
    for (uint32_t r = 0; m->rank == root && r < m->members; r++)
        for (size_t i = pl_team_part(n, m->members, r); i < pl_team_part(n, m->members, r + 1); i++)
            CHECK(x[i] == input_value(r, i));
    return 0;
}

static int play_scatter(struct team_member *m, size_t n)
{
    const pl_reduction mean = {.size = sizeof mean, .op = PL_MEAN, .weight = 3};
    size_t from = pl_team_part(n, m->members, m->rank);
    size_t to = pl_team_part(n, m->members, m->rank + 1);
    float x[1000];
    CHECK(from <= to && to <= n && pl_team_part(n, m->members, 0) == 0);
    CHECK(pl_team_part(n, m->members, m->members) == n);
    for (int k = 0; k < 2; k++) {
        fill_vector(m, x, n);
        CHECK(pl_team_reduce_scatter(m->team, x, n, k ? &mean : NULL, NULL) == PL_OK);
        for (size_t i = from; i < to; i++)
            CHECK(fabsf(x[i] - expected_sum(m, i) / (k ? (float)m->members : 1)) < 1e-4f);
    }
    return 0;
}

static int play_roots(struct team_member *m)
{
    static const size_t some[] = {0, 1, 3, 1000};
    int line = 0;
    for (size_t k = 0; k < 4; k++)
        for (uint32_t root = 0; root < m->members; root++) {
            line = line ? line : play_to_all(m, root, some[k]);
            line = line ? line : play_to_one(m, root, some[k]);
            line = line ? line : play_scatter(m, some[k]);
        }
    float x[3];
    CHECK(pl_team_broadcast(m->team, m->members, x, 3, NULL) == PL_ERR_USAGE);
    CHECK(pl_team_reduce(m->team, m->members, x, 3, NULL, NULL) == PL_ERR_USAGE);
    CHECK(pl_team_gather(m->team, UINT32_MAX, x, 3, NULL) == PL_ERR_USAGE);
    CHECK(strstr(pl_team_error(m->team, 0), "root"));
    return line;
}

static void test_roots(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++)
        team_play(team_sizes[i], play_roots, NULL);
}

/* ---- channels ---- */

struct caller {
    struct team_member *m;
    uint32_t channel;
    pthread_t thread;
    int line;
};

static int call_many(const struct caller *c)
{
    const pl_call_options options = {
        .size = sizeof options, .channel = c->channel, .algorithm = algorithms[c->channel % 7]};
    size_t n = 100 + c->channel * 1000;
    float *x = malloc(n * sizeof *x);
    CHECK(x);
    for (int k = 0; k < 30; k++) {
        uint32_t root = (uint32_t)k % c->m->members;
        bool from_one = c->channel % 3 == 2;
        fill_vector(c->m, x, n);
        CHECK((from_one ? pl_team_broadcast(c->m->team, root, x, n, &options)
                        : pl_team_allreduce(c->m->team, x, n, NULL, &options)) == PL_OK);
        for (size_t i = 0; i < n; i++)
            CHECK(x[i] == (from_one ? input_value(root, i) : expected_sum(c->m, i)));
    }
    free(x);
    return 0;
}

static void *run_caller(void *arg)
{
    struct caller *c = arg;
    c->line = call_many(c);
    return NULL;
}

static int play_channels(struct team_member *m)
{
    struct caller c[PL_TEAM_CHANNELS];
    int line = 0;
    for (uint32_t i = 0; i < PL_TEAM_CHANNELS; i++) {
        c[i] = (struct caller){.m = m, .channel = i};
        pthread_create(&c[i].thread, NULL, run_caller, &c[i]);
    }
    for (uint32_t i = 0; i < PL_TEAM_CHANNELS; i++) {
        pthread_join(c[i].thread, NULL);
        line = line ? line : c[i].line;
    }
    return line;
}

static void *call_held(void *arg)
{
    struct caller *c = arg;
    const pl_call_options options = {.size = sizeof options, .channel = c->channel};
    float x[100];
    fill_vector(c->m, x, 100);
    bool well = pl_team_allreduce(c->m->team, x, 100, NULL, &options) == PL_OK;
    c->line = well && x[99] == expected_sum(c->m, 99) ? 0 : __LINE__;
    return NULL;
}

/* Member 0 enters channel 0 only when all have used another one many times. */
static int play_held_up(struct team_member *m)
{
    struct caller held = {.m = m}, others = {.m = m, .channel = 1};
    if (m->number > 0)
        pthread_create(&held.thread, NULL, call_held, &held);
    int line = call_many(&others);
    if (m->number > 0)
        pthread_join(held.thread, NULL);
    else
        call_held(&held);
    return line ? line : held.line;
}

static void test_channels(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++)
        team_play(team_sizes[i], play_channels, NULL);
    team_play(3, play_held_up, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations), cmocka_unit_test(test_algorithms),
        cmocka_unit_test(test_bits),       cmocka_unit_test(test_wires),
        cmocka_unit_test(test_roots),      cmocka_unit_test(test_channels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
