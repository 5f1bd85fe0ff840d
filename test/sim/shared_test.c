/* Shared variables in a simulated team: tasks that are run again elsewhere, members that die at any
 * moment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "shared_trial.h"
#include "sweep_stride.h"

enum { STRIDE = SWEEP_STRIDE(3, 2) };

static struct trial trial_of(int (*play)(struct trial *t, struct team *team))
{
    return (struct trial){
        .workers = 3,
        .tasks = 12,
        .rounds = 2,
        .floats = 50,
        .chunk = 8,
        .cluster = TRIAL_SLOW,
        .seed = 1,
        .play = play,
    };
}

static struct members set_of(uint32_t node)
{
    struct members set = {{0}};
    members_add(&set, node);
    return set;
}

static const struct members no_members;

/* ---- rounds ---- */

static int play_rounds(struct trial *t, struct team *team)
{
    struct engine *e = calloc(1, sizeof *e);
    int rc = e ? engine_init(e, t, team, "v") : ERR_NOMEM;
    for (uint64_t r = 0; rc == OK && r < t->rounds; r++) {
        rc = engine_own(e, r);
        if (rc == OK)
            rc = engine_get(e, r);
    }
    t->voids[team->world->self] = atomic_load(&team->shared.voids);
    if (e)
        engine_release(e);
    free(e);
    return rc;
}

static void test_twelve_tasks_on_three_nodes(void **state)
{
    (void)state;
    for (uint32_t workers = 1; workers <= TRIAL_NODES; workers++) {
        struct trial t = trial_of(play_rounds);
        t.workers = workers;
        t.rounds = TRIAL_ROUNDS;
        run_trial(&t);
        assert_true(t.joined[0]);
        expect_sums(&t, no_members);
        trial_release(&t);
    }
}

static void test_fewer_tasks_than_nodes(void **state)
{
    (void)state;
    struct trial t = trial_of(play_rounds);
    t.workers = TRIAL_NODES;
    t.tasks = 2;
    run_trial(&t);
    assert_true(t.joined[0]);
    expect_sums(&t, no_members);
    trial_release(&t);
}

/* Two rounds: a node dies at each of its messages, and another runs its tasks. */
static void sweep_messages(uint32_t workers, enum coll_algorithm algorithm)
{
    uint32_t runs = 0, voided = 0, went_on = 0, unformed = 0;
    struct trial whole = trial_of(play_rounds);
    whole.workers = workers;
    whole.algorithm = algorithm;
    run_trial(&whole);
    expect_sums(&whole, no_members);
    trial_release(&whole);
    for (uint32_t node = 0; node < workers; node++)
        for (uint64_t k = 1 + node % STRIDE; k <= whole.sent[node]; k += STRIDE) {
            struct trial t = trial_of(play_rounds);
            uint32_t other = (node + 1) % workers;
            t.workers = workers;
            t.algorithm = algorithm;
            t.kill_node = node;
            t.kill_send = k;
            run_trial(&t);
            expect_sums(&t, set_of(node));
            for (uint32_t i = 0; i < workers; i++) /* void for all alike */
                assert_true(i == node || t.voids[i] == t.voids[other]);
            voided += t.voids[other] > 0;
            went_on += t.joined[other] && t.voids[other] == 0;
            unformed += !t.joined[other];
            runs++;
            trial_release(&t);
        }
    print_message("%s: each of %u nodes dies at each message: %u runs; %u with a void exchange, "
                  "%u without, %u never formed\n",
                  coll_algorithm_name(algorithm), workers, runs, voided, went_on, unformed);
    assert_true(runs * STRIDE > 20 * workers && voided > 0 && went_on > 0);
}

static void test_a_node_dies_at_each_message_it_sends(void **state)
{
    (void)state;
    static const enum coll_algorithm algorithms[] = {COLL_AUTO, COLL_TREE, COLL_CHUNKED_RING};
    for (size_t i = 0; i < 3; i++)
        for (uint32_t workers = 2; workers <= TRIAL_NODES; workers++)
            sweep_messages(workers, algorithms[i]);
}

/* The same at moments, with longer vectors, in which deaths fall between pieces. */
static void test_a_node_dies_at_each_moment(void **state)
{
    (void)state;
    enum { MOMENTS = 60 / STRIDE };
    uint32_t voided = 0;
    for (uint32_t node = 0; node < 3; node++)
        for (int i = 0; i < MOMENTS; i++) {
            char cluster[200];
            struct trial t = trial_of(play_rounds);
            snprintf(cluster, sizeof cluster, TRIAL_SLOW "fault { at: %.6f kill: %u }",
                     0.001 + 0.4 * (i + 0.5) / MOMENTS, node);
            t.cluster = cluster;
            t.floats = TRIAL_FLOATS;
            t.chunk = 1024;
            t.kill_node = node;
            run_trial(&t);
            expect_sums(&t, set_of(node));
            voided += t.voids[(node + 1) % 3] > 0;
            trial_release(&t);
        }
    print_message("each of 3 nodes dies at each of %d moments: %u with a void exchange\n", MOMENTS,
                  voided);
    assert_true(voided > 0);
}

static uint32_t draw_below(uint64_t seed, uint64_t what, uint64_t n)
{
    return (uint32_t)rng_below(seed, 99, what, n);
}

/* One member dies at a message, two more at some moment; lost messages arrive a moment later. */
static void test_several_die(void **state)
{
    (void)state;
    enum { RUNS = 300 / STRIDE };
    uint32_t voided = 0, left[TRIAL_NODES + 1] = {0};
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        char cluster[300];
        struct trial t = trial_of(play_rounds);
        struct members dead = set_of(draw_below(seed, 0, TRIAL_NODES));
        uint32_t a = draw_below(seed, 1, TRIAL_NODES), b = draw_below(seed, 2, TRIAL_NODES);
        members_add(&dead, a);
        members_add(&dead, b);
        snprintf(cluster, sizeof cluster,
                 "node { count: 5 } link { mbit: 20 latency_us: 100 loss: %s } "
                 "fault { at: %.6f kill: %u } fault { at: %.6f kill: %u }",
                 seed % 2 ? "0.02" : "0", 0.002 + 0.0001 * draw_below(seed, 3, 1500), a,
                 0.002 + 0.0001 * draw_below(seed, 4, 1500), b);
        t.workers = TRIAL_NODES;
        t.rounds = 3;
        t.floats = 3000;
        t.chunk = 200;
        t.algorithm = (enum coll_algorithm)(seed % COLL_ALGORITHMS);
        t.seed = seed;
        t.cluster = cluster;
        t.kill_node = draw_below(seed, 0, TRIAL_NODES);
        t.kill_send = 5 + draw_below(seed, 5, 60);
        run_trial(&t);
        expect_sums(&t, dead);
        uint32_t voids = 0;
        for (uint32_t node = 0; node < TRIAL_NODES; node++)
            voids = t.voids[node] > voids ? t.voids[node] : voids;
        voided += voids > 0;
        left[TRIAL_NODES - members_count(&dead)]++;
        trial_release(&t);
    }
    print_message("several of 5 die: %u runs, %u with a void exchange; 2, 3, 4 left in %u, %u, "
                  "%u\n",
                  RUNS, voided, left[2], left[3], left[4]);
    assert_true(voided > RUNS / 10);
}

static void test_both_back_ends_take_the_same_path(void **state)
{
    (void)state;
    for (uint64_t k = 3; k < 40; k += 3) {
        struct trial fibres = trial_of(play_rounds);
        fibres.kill_node = 1;
        fibres.kill_send = k;
        struct trial baton = fibres;
        baton.backend = SIM_BATON;
        run_trial(&fibres);
        run_trial(&baton);
        expect_sums(&baton, set_of(1));
        assert_true(fibres.trace == baton.trace);
        trial_release(&fibres);
        trial_release(&baton);
    }
}

/* A member that cannot continue, here because of an invalid message, leaves; the others continue
 * without it. */
static void test_who_cannot_go_on_leaves(void **state)
{
    (void)state;
    struct trial t = trial_of(play_rounds);
    t.rounds = TRIAL_ROUNDS;
    t.floats = TRIAL_FLOATS;
    t.garbage = true;
    run_trial(&t);
    expect_sums(&t, set_of(2));
    assert_true(t.joined[2]);
    assert_int_equal(t.ended[2], ERR_DRIVER);
    trial_release(&t);
}

/* ---- tasks that are run again ---- */

enum when { FIRST_RUNS, BEFORE_START, IN_EXCHANGE, SPARE };

/* Node 2 submits its tasks at once; the others theirs 100 ms later; node 1 has run task 8 as well.
 * Tasks of a dead node are run again only with `rerun`: node 0 then runs all of node 2's. */
static int play_twice(struct trial *t, struct team *team)
{
    struct engine *e = calloc(1, sizeof *e);
    struct world *w = team->world;
    enum when when = *(const enum when *)t->arg;
    int rc = e ? engine_init(e, t, team, "v") : ERR_NOMEM;
    if (rc == OK && w->self != 2)
        rc = world_sleep(w, 100 * TRIAL_MS);
    if (rc == OK)
        rc = engine_own(e, 0);
    for (uint32_t task = 8; rc == OK && w->self == 1 && task < 12; task++)
        if (task == 8 || when == SPARE)
            rc = engine_submit(e, 0, task);
    if (rc == OK && when == SPARE) {
        t->result[w->self][0] = malloc(t->floats * sizeof(float));
        rc = shared_get(e->var, 0, t->result[w->self][0], w->self == 2 ? 0 : WORLD_FOREVER, NULL);
        t->got[w->self][0] = rc == OK;
    } else if (rc == OK) {
        rc = engine_get(e, 0);
    }
    if (w->self == 2 && rc == ERR_TIMEOUT)
        rc = world_sleep(w, WORLD_FOREVER); /* until it is killed */
    t->voids[w->self] = atomic_load(&team->shared.voids);
    if (e)
        engine_release(e);
    free(e);
    return rc;
}

static struct trial trial_again(enum when *when, const char *cluster, struct members dead)
{
    struct trial t = trial_of(play_twice);
    t.rounds = 1;
    t.floats = TRIAL_FLOATS;
    t.arg = when;
    t.cluster = cluster;
    run_trial(&t);
    assert_true(t.joined[0]);
    expect_sums(&t, dead);
    return t;
}

static void test_task_is_repeated_during_its_first_run(void **state)
{
    (void)state;
    enum when when = FIRST_RUNS;
    struct trial t = trial_again(&when, TRIAL_SLOW, no_members);
    assert_int_equal(t.voids[0], 0);
    trial_release(&t);
}

static void test_a_task_runs_again_because_its_node_died_before_the_start(void **state)
{
    (void)state;
    enum when when = BEFORE_START;
    struct trial t = trial_again(&when, TRIAL_SLOW "fault { at: 0.05 kill: 2 }", set_of(2));
    assert_int_equal(t.voids[0], 0);
    trial_release(&t);
}

/* An exchange of these vectors takes about 130 ms. */
static void test_a_task_runs_again_because_its_node_died_in_the_exchange(void **state)
{
    (void)state;
    enum when when = IN_EXCHANGE;
    struct trial t = trial_again(&when, TRIAL_SLOW "fault { at: 0.16 kill: 2 }", set_of(2));
    assert_int_equal(t.voids[0], 1);
    assert_int_equal(t.voids[1], 1);
    trial_release(&t);
}

/* Node 1 has run all of node 2's tasks too: none has to be run again. */
static void test_a_spare_is_taken_at_once(void **state)
{
    (void)state;
    enum when when = SPARE;
    struct trial t = trial_again(&when, TRIAL_SLOW "fault { at: 0.16 kill: 2 }", set_of(2));
    assert_int_equal(t.voids[0], 1);
    trial_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_twelve_tasks_on_three_nodes),
        cmocka_unit_test(test_fewer_tasks_than_nodes),
        cmocka_unit_test(test_task_is_repeated_during_its_first_run),
        cmocka_unit_test(test_a_task_runs_again_because_its_node_died_before_the_start),
        cmocka_unit_test(test_a_task_runs_again_because_its_node_died_in_the_exchange),
        cmocka_unit_test(test_a_spare_is_taken_at_once),
        cmocka_unit_test(test_both_back_ends_take_the_same_path),
        cmocka_unit_test(test_a_node_dies_at_each_moment),
        cmocka_unit_test(test_a_node_dies_at_each_message_it_sends),
        cmocka_unit_test(test_several_die),
        cmocka_unit_test(test_who_cannot_go_on_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
