/* Schedules without a world. Whatever the algorithm, number of ranks and length: no rank waits for
 * ever, lengths match, results are right, and have the same bits on every rank. */
#include "coll/coll_schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/status.h"
#include "schedule_cluster.h"

#include <math.h>

enum { FLOATS_MAX = 300 };

static float input_value(size_t rank, size_t i)
{
    return rng_uniform(11, rank, i) - 0.4f;
}

static void set_up(struct cluster *c)
{
    cluster_make_room(c);
    for (size_t r = 0; r < c->ranks; r++)
        for (size_t i = 0; i < c->n; i++)
            c->x[r][i] = input_value(r, i);
}

static float sum_of(size_t ranks, size_t i)
{
    double sum = 0;
    for (size_t r = 0; r < ranks; r++)
        sum += (double)input_value(r, i);
    return (float)sum;
}

static void assert_sums(const struct cluster *c, size_t rank, size_t from, size_t end)
{
    for (size_t i = from; i < end; i++)
        assert_true(fabsf(c->x[rank][i] - sum_of(c->ranks, i)) <= 1e-5f);
}

static const size_t sizes[] = {0, 1, 2, 3, 7, 15, 16, 17, 31, 64, 97, 255, 256, FLOATS_MAX};

#define EACH_SIZE(n) \
    for (size_t k_ = 0, n; k_ < sizeof sizes / sizeof *sizes && (n = sizes[k_], true); k_++)

static void all_reduce(struct cluster *c, enum coll_algorithm a, const size_t *cut)
{
    for (size_t r = 0; r < c->ranks; r++)
        assert_int_equal(schedule_allreduce(&c->by[r], a, c->ranks, r, c->n, cut), OK);
    set_up(c);
    cluster_carry_out(c);
    for (size_t r = 0; r < c->ranks; r++) {
        assert_sums(c, r, 0, c->n);
        assert_memory_equal(c->x[r], c->x[0], c->n * sizeof(float));
    }
}

static void test_schedule_allreduces_sum(void **state)
{
    (void)state;
    for (int a = COLL_TREE; a < COLL_ALGORITHMS; a++)
        for (size_t ranks = 1; ranks <= RANKS_MAX; ranks++)
            EACH_SIZE(n)
            {
                struct cluster c = {.ranks = ranks, .n = n};
                all_reduce(&c, (enum coll_algorithm)a, NULL);
                cluster_tear_down(&c);
            }
}

/* A halving's sums have the bits of the tree's where ranks are a power of two; a butterfly's too.
 */
static void test_schedule_order_of_the_tree(void **state)
{
    (void)state;
    static const enum coll_algorithm like[] = {COLL_BUTTERFLY, COLL_HALVING_DOUBLING};
    for (size_t ranks = 1; ranks <= 16; ranks *= 2)
        for (size_t i = 0; i < 2; i++) {
            struct cluster tree = {.ranks = ranks, .n = FLOATS_MAX}, other = tree;
            all_reduce(&tree, COLL_TREE, NULL);
            all_reduce(&other, like[i], NULL);
            assert_memory_equal(tree.x[0], other.x[0], FLOATS_MAX * sizeof(float));
            cluster_tear_down(&tree), cluster_tear_down(&other);
        }
}

/* The test of the test: a ring sums in another order. */
static void test_schedule_ring_rounds_differently(void **state)
{
    (void)state;
    struct cluster tree = {.ranks = 8, .n = FLOATS_MAX}, ring = tree;
    all_reduce(&tree, COLL_TREE, NULL);
    all_reduce(&ring, COLL_CHUNKED_RING, NULL);
    assert_memory_not_equal(tree.x[0], ring.x[0], FLOATS_MAX * sizeof(float));
    cluster_tear_down(&tree), cluster_tear_down(&ring);
}

/* Unequal parts, empty ones among them. */
static void test_schedule_empty_parts(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct cluster c = {.ranks = 1 + rng_below(seed, 0, 0, RANKS_MAX), .n = FLOATS_MAX};
        size_t cut[RANKS_MAX + 1] = {0};
        for (size_t r = 1; r < c.ranks; r++)
            cut[r] = cut[r - 1] +
                     rng_below(seed, 1, r, 2) * rng_below(seed, 2, r, FLOATS_MAX + 1 - cut[r - 1]);
        cut[c.ranks] = c.n;
        all_reduce(&c, COLL_SCATTER_GATHER, cut);
        cluster_tear_down(&c);
    }
}

/* Bytes that a ring, halving-doubling and scatter-gather send: 2(P - 1)/P of the vector per
 * rank. */
static void test_schedule_link_bytes(void **state)
{
    (void)state;
    static const enum coll_algorithm lean[] = {COLL_CHUNKED_RING, COLL_HALVING_DOUBLING,
                                               COLL_SCATTER_GATHER};
    for (size_t i = 0; i < 3; i++) {
        struct cluster c = {.ranks = 8, .n = 256};
        all_reduce(&c, lean[i], NULL);
        for (size_t r = 0; r < c.ranks; r++)
            assert_int_equal(c.floats_sent[r], 2 * 7 * 256 / 8);
        cluster_tear_down(&c);
    }
}

static void test_schedule_broadcast_and_reduce(void **state)
{
    (void)state;
    for (size_t ranks = 1; ranks <= RANKS_MAX; ranks++)
        for (size_t root = 0; root < ranks; root += 1 + ranks / 4)
            for (size_t chunk = 1; chunk <= 1000; chunk *= 1000) /* a chain, a tree */
                EACH_SIZE(n)
                {
                    struct cluster b = {.ranks = ranks, .n = n}, d = b;
                    for (size_t r = 0; r < ranks; r++) {
                        assert_int_equal(schedule_broadcast(&b.by[r], ranks, r, root, n, chunk),
                                         OK);
                        assert_int_equal(schedule_reduce(&d.by[r], ranks, r, root, n, chunk), OK);
                    }
                    set_up(&b), set_up(&d);
                    cluster_carry_out(&b), cluster_carry_out(&d);
                    for (size_t r = 0; r < ranks; r++)
                        for (size_t i = 0; i < n; i++)
                            assert_true(b.x[r][i] == input_value(root, i));
                    assert_sums(&d, root, 0, n);
                    cluster_tear_down(&b), cluster_tear_down(&d);
                }
}

static void test_schedule_gather_and_scatter(void **state)
{
    (void)state;
    for (size_t ranks = 1; ranks <= RANKS_MAX; ranks++)
        EACH_SIZE(n)
        {
            struct cluster g = {.ranks = ranks, .n = n}, a = g, s = g;
            size_t root = ranks / 2;
            for (size_t r = 0; r < ranks; r++) {
                assert_int_equal(schedule_gather(&g.by[r], ranks, r, root, n, NULL), OK);
                assert_int_equal(schedule_all_gather(&a.by[r], ranks, r, n, NULL), OK);
                assert_int_equal(schedule_reduce_scatter(&s.by[r], ranks, r, n, NULL), OK);
            }
            set_up(&g), set_up(&a), set_up(&s);
            cluster_carry_out(&g), cluster_carry_out(&a), cluster_carry_out(&s);
            for (size_t owner = 0; owner < ranks; owner++) {
                size_t from = schedule_cut(n, ranks, owner);
                size_t end = schedule_cut(n, ranks, owner + 1);
                for (size_t i = from; i < end; i++) {
                    assert_true(g.x[root][i] == input_value(owner, i));
                    for (size_t r = 0; r < ranks; r++)
                        assert_true(a.x[r][i] == input_value(owner, i));
                }
                assert_sums(&s, owner, from, end);
            }
            cluster_tear_down(&g), cluster_tear_down(&a), cluster_tear_down(&s);
        }
}

/* Worked by hand: ranks 0..4, of which 0 and 2^2 are a power of two with one too many. */
static void test_schedule_folds_five_ranks(void **state)
{
    (void)state;
    struct folded f = schedule_folded(5, 0);
    assert_true(f.power == 4 && f.extra == 1 && f.out);
    f = schedule_folded(5, 1);
    assert_true(!f.out && f.rank == 0);
    f = schedule_folded(5, 4);
    assert_true(!f.out && f.rank == 3);
    assert_int_equal(schedule_unfolded(5, 0), 1);
    assert_int_equal(schedule_unfolded(5, 3), 4);
    assert_int_equal(schedule_folded(8, 5).extra, 0);
}

static void test_schedule_names_round_trip(void **state)
{
    (void)state;
    for (int a = COLL_AUTO; a < COLL_ALGORITHMS; a++)
        assert_int_equal(coll_algorithm_find(coll_algorithm_name((enum coll_algorithm)a)), a);
    assert_int_equal(coll_algorithm_find("rings"), COLL_ALGORITHMS);
    assert_null(coll_algorithm_name(COLL_ALGORITHMS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedule_allreduces_sum),
        cmocka_unit_test(test_schedule_order_of_the_tree),
        cmocka_unit_test(test_schedule_ring_rounds_differently),
        cmocka_unit_test(test_schedule_empty_parts),
        cmocka_unit_test(test_schedule_link_bytes),
        cmocka_unit_test(test_schedule_broadcast_and_reduce),
        cmocka_unit_test(test_schedule_gather_and_scatter),
        cmocka_unit_test(test_schedule_folds_five_ranks),
        cmocka_unit_test(test_schedule_names_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
