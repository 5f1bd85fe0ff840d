/* A simulated team with shared variables grows from three members to six and shrinks to two while
 * rounds are under way: sums are right, and no exchange is repeated unless a member dies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "team_growth.h"

enum { STRIDE = 2 * GROWTH_LESS };

static const struct members no_members;

/* Nodes 0 to 2 begin, 3 to 5 join. */
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
    growth_draw_change(&g, 40, GROWTH_ROUNDS);
    return g;
}

/* No member dies, and no exchange is interrupted or void. */
static void run_uninterrupted(struct growth *g)
{
    growth_run(g);
    growth_expect(g, no_members);
    assert_int_equal(g->interrupted, 0);
    assert_int_equal(g->voids, 0);
}

static void grow_and_shrink(uint32_t vars, uint64_t runs)
{
    uint64_t joiners_alone = 0;
    for (uint64_t seed = 1; seed <= runs; seed++) {
        struct growth g = growth_of(seed);
        g.vars = vars;
        run_uninterrupted(&g);
        assert_int_equal(g.submitted, g.rounds * GROWTH_TASKS * vars); /* each task once */
        growth_expect_size(&g);
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
    grow_and_shrink(1, 100 / GROWTH_LESS);
}

/* Two of nine share a lane. */
static void test_shared_lanes_of_a_growing_team(void **state)
{
    (void)state;
    grow_and_shrink(GROWTH_VARS, 24 / GROWTH_LESS);
}

/* Members leave with tasks that they have submitted for a round that has not begun: others run
 * these again. The exchanges of the rounds are still done once. */
static void test_shared_leavers_tasks_run_elsewhere(void **state)
{
    (void)state;
    uint64_t again = 0;
    for (uint64_t seed = 1; seed <= 36 / GROWTH_LESS; seed++) {
        struct growth g = growth_of(seed);
        g.keeps_tasks = true;
        run_uninterrupted(&g);
        again += g.submitted - g.rounds * GROWTH_TASKS;
    }
    print_message("%u tasks ran again\n", (unsigned)again);
    assert_true(again > 0);
}

/* ---- deaths ---- */

/* A short life: three become six in mid-round, and three of them leave; one dies at each of its
 * messages, as an old member, as a joiner or as a leaver. */
static struct growth short_life(void)
{
    struct growth g = growth_of(2);
    g.rounds = 8;
    g.floats = 50;
    g.chunk = 20;
    g.grow_at = 4 * GROWTH_MS;
    for (uint32_t node = 0; node < GROWTH_NODES; node++)
        g.leave_in[node] = node % 2 ? g.rounds : 6;
    return g;
}

static void test_shared_each_dies_at_each_message(void **state)
{
    (void)state;
    uint32_t runs = 0, voided = 0, grew = 0;
    struct growth whole = short_life();
    growth_run(&whole);
    growth_expect(&whole, no_members);
    assert_true(whole.most == 6 && whole.last == 3);
    for (uint32_t node = 0; node < GROWTH_NODES; node++)
        for (uint64_t k = 1 + node % STRIDE; k <= whole.sent[node]; k += STRIDE) {
            struct growth g = short_life();
            g.kill_node = node;
            g.kill_send = k;
            growth_run(&g);
            growth_expect(&g, members_only(node));
            voided += g.voids > 0;
            grew += g.most == 6;
            runs++;
        }
    print_message("%u runs, %u with a void exchange, %u in which six were there\n", runs, voided,
                  grew);
    assert_true((uint64_t)runs * STRIDE > 500 && voided > 0 && grew > runs / 2);
}

/* Two or three die at any moment, and a lossy link delays messages. */
static void test_shared_several_die_while_it_grows(void **state)
{
    (void)state;
    enum { RUNS = 120 / GROWTH_LESS };
    uint32_t voided = 0, grew = 0;
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        char cluster[300];
        struct growth g = growth_of(seed);
        uint32_t a = growth_draw(&g, 6, 0, GROWTH_NODES), b = growth_draw(&g, 6, 1, GROWTH_NODES);
        struct members dead = members_only(a);
        members_add(&dead, b);
        snprintf(cluster, sizeof cluster,
                 "node { count: 6 } link { mbit: 50 latency_us: 100 loss: %s } "
                 "fault { at: %.6f kill: %u } fault { at: %.6f kill: %u }",
                 seed % 3 ? "0" : "0.02", 0.06 + 0.0001 * growth_draw(&g, 6, 2, 2000), a,
                 0.06 + 0.0001 * growth_draw(&g, 6, 3, 2000), b);
        g.cluster = cluster;
        g.vars = 1 + (uint32_t)(seed % 4) * 2;
        g.keeps_tasks = seed % 2;
        growth_run(&g);
        growth_expect(&g, dead);
        voided += g.voids > 0;
        grew += g.most == 6;
    }
    print_message("%u runs, %u with a void exchange, %u in which six were there\n", RUNS, voided,
                  grew);
    assert_true(voided > RUNS / 10 && grew > RUNS / 3);
}

static void test_shared_growth_takes_the_same_path_on_threads(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct growth fibres = growth_of(seed), baton = growth_of(seed);
        baton.backend = SIM_BATON;
        growth_run(&fibres);
        growth_run(&baton);
        growth_expect(&baton, no_members);
        assert_true(fibres.trace == baton.trace);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_three_grow_to_six_and_shrink_to_two),
        cmocka_unit_test(test_shared_lanes_of_a_growing_team),
        cmocka_unit_test(test_shared_leavers_tasks_run_elsewhere),
        cmocka_unit_test(test_shared_each_dies_at_each_message),
        cmocka_unit_test(test_shared_several_die_while_it_grows),
        cmocka_unit_test(test_shared_growth_takes_the_same_path_on_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
