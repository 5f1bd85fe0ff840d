/* A simulated team with shared variables grows from three members to six and shrinks to two while
 * rounds are under way: sums are right, and no exchange is repeated unless a member dies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "team_growth.h"

/* Under the thread sanitizer, where each task is a thread, there are fewer runs. */
#ifdef __SANITIZE_THREAD__
enum { LESS = 6 };
#else
enum { LESS = 1 };
#endif

static const struct members no_members;

/* Nodes 0 to 2 begin, 3 to 5 join; all but two, drawn from the six, leave. */
static struct growth growth_of(uint64_t seed)
{
    struct growth g = {
        .first = 3,
        .vars = 1,
        .rounds = GROWTH_ROUNDS,
        .floats = 50 + seed % 7 * 300,
        .chunk = 8 + seed % 5 * 100,
        .algorithm = (enum coll_algorithm)(seed % COLL_ALGORITHMS),
        .seed = seed,
        .cluster = "node { count: 6 } link { mbit: 100 latency_us: 100 } ",
        .play = growth_play_rounds,
    };
    uint32_t one = growth_draw(&g, 3, 0, GROWTH_NODES);
    uint32_t other = (one + 1 + growth_draw(&g, 3, 1, GROWTH_NODES - 1)) % GROWTH_NODES;
    g.grow_at = (5 + growth_draw(&g, 4, 0, 40)) * GROWTH_MS;
    for (uint32_t node = 0; node < GROWTH_NODES; node++)
        g.leave_in[node] = node == one || node == other
                               ? GROWTH_ROUNDS
                               : GROWTH_ROUNDS / 2 + growth_draw(&g, 5, node, GROWTH_ROUNDS / 3);
    return g;
}

static void grow_and_shrink(uint32_t vars, uint64_t runs)
{
    uint64_t joiners_alone = 0;
    for (uint64_t seed = 1; seed <= runs; seed++) {
        struct growth g = growth_of(seed);
        g.vars = vars;
        growth_run(&g);
        growth_expect(&g, no_members);
        assert_int_equal(g.interrupted, 0);
        assert_int_equal(g.voids, 0);
        assert_int_equal(g.submitted, g.rounds * GROWTH_TASKS * vars); /* each task once */
        if (g.most != 6 || g.last != 2)
            fail_msg("seed %u: %zu members at the most, %zu at the end", (unsigned)seed, g.most,
                     g.last);
        joiners_alone += g.leave_in[0] + g.leave_in[1] + g.leave_in[2] < 3 * GROWTH_ROUNDS - 1 &&
                         g.leave_in[0] < GROWTH_ROUNDS && g.leave_in[1] < GROWTH_ROUNDS &&
                         g.leave_in[2] < GROWTH_ROUNDS;
    }
    print_message("%u variables: %u runs, %u of which end with two joiners\n", vars, (unsigned)runs,
                  (unsigned)joiners_alone);
    assert_true(joiners_alone > 0 || runs < 20);
}

static void test_shared_three_grow_to_six_and_shrink_to_two(void **state)
{
    (void)state;
    grow_and_shrink(1, 300 / LESS);
}

/* Two of nine share a lane. */
static void test_shared_lanes_of_a_growing_team(void **state)
{
    (void)state;
    grow_and_shrink(GROWTH_VARS, 60 / LESS);
}

/* Members leave with tasks that they have submitted for a round that has not begun: others run
 * these again. The exchanges of the rounds are still done once. */
static void test_shared_leavers_tasks_run_elsewhere(void **state)
{
    (void)state;
    uint64_t again = 0;
    for (uint64_t seed = 1; seed <= 100 / LESS; seed++) {
        struct growth g = growth_of(seed);
        g.keeps_tasks = true;
        growth_run(&g);
        growth_expect(&g, no_members);
        assert_int_equal(g.interrupted, 0);
        assert_int_equal(g.voids, 0);
        again += g.submitted - g.rounds * GROWTH_TASKS;
    }
    print_message("%u tasks ran again\n", (unsigned)again);
    assert_true(again > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_three_grow_to_six_and_shrink_to_two),
        cmocka_unit_test(test_shared_lanes_of_a_growing_team),
        cmocka_unit_test(test_shared_leavers_tasks_run_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
