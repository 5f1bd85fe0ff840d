/* `auto`: pairs that all meet, links that are measured as they are, and a choice that follows them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coll/exchange.h"
#include "rank_scene.h"
#include "tensor/kernels.h"

#include <math.h>

enum { LONG = 5 * 1024 * 1024 / 2, EXCHANGES = 8 };

static void test_auto_probes_each_pair_once(void **state)
{
    (void)state;
    for (size_t ranks = 1; ranks <= 40; ranks++) {
        size_t met = 0;
        bool seen[40][40] = {{false}};
        for (size_t round = 0; round < probe_rounds(ranks); round++)
            for (size_t r = 0; r < ranks; r++) {
                size_t partner = probe_partner(ranks, r, round);
                assert_true(partner < ranks);
                assert_int_equal(probe_partner(ranks, partner, round), r);
                if (partner == r)
                    continue;
                assert_false(seen[r][partner]);
                seen[r][partner] = true;
                met++;
            }
        assert_int_equal(met, ranks * (ranks - 1));
    }
}

/* Ranks and length alone: the same on any machine, in the tree's order on a power of two. */
static void test_auto_rule_for_short_vectors(void **state)
{
    (void)state;
    assert_int_equal(auto_rule(CODEC_F32, 4, 1000), COLL_BUTTERFLY);
    assert_int_equal(auto_rule(CODEC_INT8, 4, 1000), COLL_TREE);
    assert_int_equal(auto_rule(CODEC_F32, 5, 1000), COLL_TREE);
    assert_int_equal(auto_rule(CODEC_F32, 4, 431080), COLL_HALVING_DOUBLING);
    assert_int_equal(auto_rule(CODEC_F32, 6, 431080), COLL_CHUNKED_RING);
    assert_false(auto_measures(431080));
    assert_true(auto_measures(10000000));
}

static int play_probe(struct scene *scene, struct group *group, const struct ranks *ranks)
{
    struct probe *probes = scene->arg;
    struct coll c = {.group = group, .view = group_view(group), .ranks = ranks, .lane = 2};
    return probe_links(&c, 0, &probes[ranks->me]);
}

static void test_auto_measures_links(void **state)
{
    (void)state;
    static struct probe probes[RANKS_MAX];
    struct scene scene = {
        .ranks = 5,
        .play = play_probe,
        .arg = probes,
        .cluster = "node { count: 2 } node { mbit: 500 } node { count: 2 } "
                   "link { mbit: 1000 latency_us: 100 }",
    };
    run_scene(&scene);
    for (size_t r = 0; r < 5; r++) {
        assert_int_equal(scene.rc[r], OK);
        assert_memory_equal(&probes[r].rate, &probes[0].rate, 5 * sizeof(double));
        assert_true(probes[r].latency == probes[0].latency);
    }
    for (size_t r = 0; r < 5; r++)
        assert_true(fabs(probes[0].rate[r] / (r == 2 ? 62.5e6 : 125e6) - 1) < 0.03);
    assert_true(fabs(probes[0].latency / 1e-4 - 1) < 0.1);
}

#define LIMIT_S 0.1

static int play_limited(struct scene *scene, struct group *group, const struct ranks *ranks)
{
    struct probe *probes = scene->arg;
    struct coll c = {.group = group, .view = group_view(group), .ranks = ranks, .lane = 2};
    int64_t begun = world_now(group->world);
    int rc = probe_links(&c, LIMIT_S, &probes[ranks->me]);
    assert_true(world_seconds(world_now(group->world) - begun) < 3);
    return rc;
}

/* The whole bulk would take 20 s at 10 Mbit/s, and 40 s at 5. */
static void test_slow_links_are_measured_in_time(void **state)
{
    (void)state;
    static struct probe probes[RANKS_MAX];
    struct scene scene = {
        .ranks = 4,
        .play = play_limited,
        .arg = probes,
        .cluster = "node { count: 3 } node { mbit: 5 } link { mbit: 10 latency_us: 100 }",
    };
    run_scene(&scene);
    for (size_t r = 0; r < 4; r++) {
        assert_int_equal(scene.rc[r], OK);
        assert_true(fabs(probes[0].rate[r] / (r == 3 ? 0.625e6 : 1.25e6) - 1) < 0.03);
    }
}

#define LINKS "node { count: 4 } link { mbit: 1000 latency_us: 100 } "

#ifndef __SANITIZE_THREAD__ /* where ten megabytes take minutes */

/* Exchanges one after another, and the algorithm of each. */
struct progress {
    enum coll_algorithm algorithm;
    size_t n;
    struct {
        enum coll_algorithm taken;
        double seconds;
        int64_t ended;
    } at[EXCHANGES];
};

static int play_exchanges(struct scene *scene, struct group *group, const struct ranks *ranks)
{
    kernels_set_threads(1); /* a node's task is not where a pool of threads belongs */
    struct progress *series = scene->arg;
    const struct exchange_config config = {.algorithm = series->algorithm, .chunk = 64 * 1024};
    struct exchange e = {0};
    struct arena arena;
    arena_init(&arena);
    int rc = exchange_init(&e, group, 0, false, series->n, &config, 0, &arena);
    for (size_t i = 0; rc == OK && i < EXCHANGES; i++) {
        const struct exchange_meta mine = {.weight = 1, .samples = 1, .hash_min = UINT64_MAX};
        int64_t start = world_now(group->world);
        rc = exchange_run(&e, &mine);
        if (ranks->me == 0) {
            series->at[i].taken = e.planned;
            series->at[i].seconds = world_seconds(world_now(group->world) - start);
            series->at[i].ended = world_now(group->world);
        }
    }
    exchange_release(&e);
    arena_release(&arena);
    return rc;
}

static void run_measuring(struct progress *series, enum coll_algorithm algorithm,
                          const char *cluster)
{
    *series = (struct progress){.algorithm = algorithm, .n = LONG};
    struct scene scene = {.ranks = 4, .play = play_exchanges, .arg = series, .cluster = cluster};
    run_scene(&scene);
    for (size_t r = 0; r < 4; r++)
        assert_int_equal(scene.rc[r], OK);
}

/* One of four links drops to half its rate: the next exchange uses another algorithm, and from then
 * on the time is that of the best fixed one. */
static void test_auto_reacts_to_a_halved_link(void **state)
{
    (void)state;
    struct progress series, fixed;
    double best = INFINITY;
    for (int a = COLL_TREE; a < COLL_ALGORITHMS; a++) {
        run_measuring(&fixed, (enum coll_algorithm)a, LINKS "fault { at: 0 clog: 2 }");
        double took = fixed.at[EXCHANGES - 1].seconds;
        print_message("    %-16s %.4f s\n", coll_algorithm_name((enum coll_algorithm)a), took);
        best = took < best ? took : best;
    }
    run_measuring(&series, COLL_AUTO, LINKS "fault { at: 0.75 clog: 2 }");
    size_t hit = 0;
    while (hit < EXCHANGES && series.at[hit].ended < 3 * WORLD_SECOND / 4)
        hit++;
    for (size_t i = 0; i < EXCHANGES; i++)
        print_message("    %zu%s: %s, %.4f s\n", i, i == hit ? " (the link halves)" : "",
                      coll_algorithm_name(series.at[i].taken), series.at[i].seconds);
    assert_in_range(hit, 2, 4);
    assert_int_equal(series.at[hit - 1].taken, COLL_CHUNKED_RING);
    assert_int_not_equal(series.at[hit + 1].taken, COLL_CHUNKED_RING);
    assert_true(series.at[hit + 2].seconds <= 1.1 * best);
    assert_true(series.at[EXCHANGES - 1].seconds <= 1.1 * best);
}

static void test_auto_measures_steady_links_once(void **state)
{
    (void)state;
    struct progress series, fixed;
    run_measuring(&fixed, COLL_CHUNKED_RING, LINKS);
    run_measuring(&series, COLL_AUTO, LINKS);
    assert_true(series.at[0].seconds > 1.5 * fixed.at[0].seconds); /* the probe */
    for (size_t i = 1; i < EXCHANGES; i++) {
        assert_int_equal(series.at[i].taken, COLL_CHUNKED_RING);
        assert_true(series.at[i].seconds < 1.05 * fixed.at[i].seconds);
    }
}

#endif

static int play_alone(struct scene *scene, struct group *group, const struct ranks *ranks)
{
    (void)scene;
    kernels_set_threads(1);
    const struct exchange_config config = {.chunk = 64 * 1024};
    const struct exchange_meta mine = {.weight = 1, .samples = 1, .hash_min = UINT64_MAX};
    struct exchange e = {0};
    struct arena arena;
    arena_init(&arena);
    assert_int_equal(ranks->count, 1);
    int rc = exchange_init(&e, group, 0, false, LONG, &config, 0, &arena);
    if (rc == OK)
        rc = exchange_run(&e, &mine);
    exchange_release(&e);
    arena_release(&arena);
    return rc;
}

/* The last of many is still a run. */
static void test_auto_single_rank_measures_nothing(void **state)
{
    (void)state;
    struct scene scene = {.ranks = 1, .play = play_alone};
    run_scene(&scene);
    assert_int_equal(scene.rc[0], OK);
}

enum { LENGTHS = 6 };

/* Two lengths by turns, as gradient buckets are: each call's choice, and whether links were
 * measured. */
static int play_two_lengths(struct scene *scene, struct group *group, const struct ranks *ranks)
{
    unsigned *measured = scene->arg;
    struct coll_auto *a = calloc(1, sizeof *a);
    struct coll c = {.group = group, .view = group_view(group), .ranks = ranks, .patient = true};
    int rc = a ? OK : ERR_NOMEM;
    for (c.n = 1; rc == OK && c.n <= LENGTHS; c.n++) {
        size_t n = LONG + c.n % 2 * 1024;
        struct auto_meta meta = {0};
        struct cost_choice choice;
        const size_t *cut;
        auto_decide(a, &c, n, 1, &meta); /* the same on all: no times are exchanged */
        if (meta.measure)
            rc = auto_measure(a, &c, n, CODEC_F32, &meta);
        if (rc == OK)
            rc = auto_choose(a, &c, n, CODEC_F32, &choice, &cut);
        assert_int_equal(choice.algorithm, COLL_CHUNKED_RING);
        measured[ranks->me] += meta.measure > 0;
    }
    free(a);
    return rc;
}

static void test_auto_links_are_shared_by_lengths(void **state)
{
    (void)state;
    unsigned measured[RANKS_MAX] = {0};
    struct scene scene = {.ranks = 4, .play = play_two_lengths, .arg = measured, .cluster = LINKS};
    run_scene(&scene);
    for (size_t r = 0; r < 4; r++) {
        assert_int_equal(scene.rc[r], OK);
        assert_int_equal(measured[r], 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_probes_each_pair_once),
        cmocka_unit_test(test_auto_rule_for_short_vectors),
        cmocka_unit_test(test_auto_measures_links),
        cmocka_unit_test(test_slow_links_are_measured_in_time),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(test_auto_reacts_to_a_halved_link),
        cmocka_unit_test(test_auto_measures_steady_links_once),
#endif
        cmocka_unit_test(test_auto_single_rank_measures_nothing),
        cmocka_unit_test(test_auto_links_are_shared_by_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
