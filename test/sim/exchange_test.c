/* The commit rule under every death (D5): a node is killed at each message that it sends, and at
 * each moment of a fine grid; afterwards all must have the result that the test recomputes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "exchange_sweep.h"
#include "sweep_stride.h"

/* Exchanges with the bug that the commit rule prevents. */
int planted_init(struct exchange *e, struct group *group, uint32_t lane, bool driver_takes_part,
                 size_t n, const struct exchange_config *config, uint64_t completed,
                 struct arena *arena);
void planted_release(struct exchange *e);
void planted_enter(struct exchange *e, enum exchange_stage stage);
void planted_join(struct exchange *e, uint64_t completed);
void planted_join_unsynced(struct exchange *e);
int planted_run(struct exchange *e, const struct exchange_meta *mine);
int planted_sync(struct exchange *e);
int planted_sync_in(struct exchange *e, const struct view *view);
void planted_take_result(struct exchange *e, uint64_t n, struct vec *x,
                         const struct exchange_meta *meta, uint32_t view);
const struct vec *planted_result(const struct exchange *e);
const struct exchange_meta *planted_result_meta(const struct exchange *e);

#define PLANT_SKIP_COMMIT_RULE
#define exchange_join            planted_join
#define exchange_join_unsynced   planted_join_unsynced
#define exchange_init            planted_init
#define exchange_release         planted_release
#define exchange_enter           planted_enter
#define exchange_run             planted_run
#define exchange_take_result     planted_take_result
#define exchange_sync            planted_sync
#define exchange_sync_in         planted_sync_in
#define exchange_result          planted_result
#define exchange_result_meta     planted_result_meta
#define exchange_coll            planted_coll
#define exchange_make_plan       planted_make_plan
#define exchange_bring_into_line planted_bring_into_line

#include "coll/exchange.c"
#include "coll/exchange_sync.c"

#undef exchange_join
#undef exchange_join_unsynced
#undef exchange_init
#undef exchange_release
#undef exchange_enter
#undef exchange_run
#undef exchange_take_result
#undef exchange_sync
#undef exchange_sync_in
#undef exchange_result
#undef exchange_result_meta
#undef exchange_coll
#undef exchange_make_plan
#undef exchange_bring_into_line

static const struct subject planted = {planted_run, planted_sync};

enum { STRIDE = SWEEP_STRIDE(16, 8), SEND_STEP = SWEEP_STRIDE(5, 3), MOST_WORKERS = 5 };
enum { FEWEST_WORKERS = STRIDE > 4 ? MOST_WORKERS : 2 };

static void test_without_faults_everybody_has_the_mean(void **state)
{
    (void)state;
    for (int shape = 0; shape < 2; shape++)
        for (uint32_t workers = 1; workers <= MOST_WORKERS; workers++) {
            struct trial t = trial_of(shape);
            t.workers = workers;
            run_trial(&t);
            expect_well(&t);
            assert_true(t.formed && dead(&t) == 0);
            for (uint64_t n = 1; n <= t.exchanges; n++) {
                assert_int_equal(t.record[0][n].view, 1);
                assert_int_equal(members_count(&t.record[0][n].meta.contributors), workers);
            }
            assert_int_equal(t.record[DRIVER][1].there, shape);
        }
}

/* In plain numbers: 1·10 + 3·20 over 4, with the mean taken by hand. */
static float ten_and_twenty(uint32_t node, uint64_t n, size_t i)
{
    (void)n;
    (void)i;
    return node == 0 ? 10.0f : 20.0f;
}

static double one_and_three(uint32_t node, uint64_t n)
{
    (void)n;
    return node == 0 ? 1 : 3;
}

static void test_the_mean_is_weighted(void **state)
{
    (void)state;
    struct trial t = trial_of(true);
    t.workers = 2;
    t.floats = 1;
    t.value = ten_and_twenty;
    t.weight = one_and_three;
    run_trial(&t);
    expect_well(&t);
    float mean = 17.5f;
    assert_true(t.record[DRIVER][1].hash == hash_bytes(&mean, sizeof mean));
    assert_true(t.record[0][1].meta.weight == 4);
    assert_int_equal(t.record[0][1].meta.samples, 201);
}

static void test_the_same_seed_takes_the_same_path(void **state)
{
    (void)state;
    struct trial a = trial_of(true);
    a.kill_node = 1;
    a.kill_send = 9;
    members_add(&a.victims, 1);
    struct trial b = a;
    run_trial(&a);
    run_trial(&b);
    expect_well(&a);
    assert_true(a.trace == b.trace && a.end == b.end);
}

static void test_a_worker_dies_at_each_message_it_sends(void **state)
{
    (void)state;
    for (int shape = 0; shape < 2; shape++)
        for (uint32_t workers = FEWEST_WORKERS; workers <= MOST_WORKERS; workers++) {
            struct trial t = trial_of(shape);
            struct tallied sum = {0};
            char what[80];
            t.workers = workers;
            sweep_messages(t, SEND_STEP, &sum);
            snprintf(what, sizeof what, "%u workers%s, each dies at each message", workers,
                     shape ? " and the driver" : "");
            print_tallied(what, &sum);
            assert_true(sum.runs * SEND_STEP >= workers * t.exchanges * 4);
            assert_true(sum.went_on * SEND_STEP > workers * t.exchanges);
            assert_true(sum.unformed * SEND_STEP >= workers && sum.unformed <= 2 * workers);
        }
}

/* Every worker is killed at every moment of a grid finer than a piece takes. */
static void test_a_worker_dies_at_each_moment(void **state)
{
    (void)state;
    enum { MOMENTS = 400 / STRIDE };
    struct tallied sum = {0};
    for (int shape = 0; shape < 2; shape++) {
        struct trial whole = trial_of(shape);
        run_trial(&whole);
        double span = world_seconds(whole.end - GRACE);
        for (uint32_t node = 0; node < whole.workers; node++)
            for (int i = 0; i < MOMENTS; i++) {
                char cluster[200];
                snprintf(cluster, sizeof cluster, SLOW_LINKS "fault { at: %.9f kill: %u }",
                         span * (i + 0.5) / MOMENTS, node);
                struct trial t = trial_of(shape);
                t.cluster = cluster;
                members_add(&t.victims, node);
                run_trial(&t);
                expect_well(&t);
                count_up(&sum, &t);
            }
    }
    print_tallied("each worker dies at each moment", &sum);
    assert_int_equal(sum.runs, 2 * 4 * MOMENTS);
    assert_true(sum.adopted > sum.runs / 100 && (sum.apart > 0 || STRIDE > 1));
}

static uint32_t draw_below(uint64_t seed, uint64_t what, uint64_t n)
{
    return (uint32_t)rng_below(seed, 99, what, n);
}

enum { CLUSTER_MAX = 200 };

/* One dies at a message; another, and sometimes a third, at some moment within `span` seconds. */
static struct trial doomed_trial(uint64_t seed, const char *links, double span,
                                 char cluster[CLUSTER_MAX])
{
    struct trial t = trial_of(draw_below(seed, 0, 2));
    t.workers = MOST_WORKERS;
    t.seed = seed;
    t.kill_node = draw_below(seed, 1, t.workers);
    t.kill_send = 3 + draw_below(seed, 2, 30);
    members_add(&t.victims, t.kill_node);
    int len = snprintf(cluster, CLUSTER_MAX, "%s", links);
    for (uint32_t kill = 0; kill < 1 + draw_below(seed, 3, 2); kill++) {
        uint32_t node = draw_below(seed, 20 + kill, t.workers);
        double at = 0.003 + span * draw_below(seed, 10 + kill, 10000) / 10000;
        members_add(&t.victims, node);
        len += snprintf(cluster + len, CLUSTER_MAX - (size_t)len, "fault { at: %.6f kill: %u } ",
                        at, node);
    }
    t.cluster = cluster;
    return t;
}

static void kill_several(uint64_t seed, const char *links, double span, struct tallied *sum,
                         size_t dead_by_count[MOST_WORKERS + 1])
{
    char cluster[CLUSTER_MAX];
    struct trial t = doomed_trial(seed, links, span, cluster);
    run_trial(&t);
    expect_well(&t);
    count_up(sum, &t);
    dead_by_count[dead(&t)]++;
}

/* Tasks on threads that take turns do the same as tasks on one thread, even when nodes die. */
static void test_both_back_ends_take_the_same_path(void **state)
{
    (void)state;
    for (uint64_t seed = 2001; seed <= 2000 + 200 / STRIDE; seed++) {
        char cluster[CLUSTER_MAX];
        struct trial fibres = doomed_trial(seed, SLOW_LINKS, 0.08, cluster), baton = fibres;
        baton.backend = SIM_BATON;
        run_trial(&fibres);
        run_trial(&baton);
        expect_well(&baton);
        if (baton.trace != fibres.trace)
            fail_msg("seed %u: another path", (unsigned)seed);
        assert_int_equal(baton.end, fibres.end);
        assert_memory_equal(baton.sent, fibres.sent, sizeof fibres.sent);
        assert_memory_equal(baton.ended, fibres.ended, sizeof fibres.ended);
    }
}

static void test_several_die(void **state)
{
    (void)state;
    enum { RUNS = 600 / STRIDE };
    struct tallied sum = {0};
    size_t by_count[MOST_WORKERS + 1] = {0};
    for (uint64_t seed = 1; seed <= RUNS; seed++)
        kill_several(seed, SLOW_LINKS, 0.08, &sum, by_count);
    print_tallied("several die", &sum);
    assert_true(by_count[2] > RUNS / 4 && by_count[3] > RUNS / 20 && sum.adopted > RUNS / 20);
}

/* A lost message arrives a fifth of a second later, after many other events. */
static void test_several_die_and_messages_are_lost(void **state)
{
    (void)state;
    enum { RUNS = 400 / STRIDE };
    struct tallied sum = {0};
    size_t by_count[MOST_WORKERS + 1] = {0};
    for (uint64_t seed = 1001; seed <= 1000 + RUNS; seed++)
        kill_several(seed, "node { count: 5 } link { mbit: 100 loss: 0.05 } ", 3, &sum, by_count);
    print_tallied("several die and messages are lost", &sum);
    assert_true(by_count[2] > RUNS / 4 && by_count[3] > RUNS / 40 && sum.adopted > RUNS / 20);
}

/* The driver receives nothing from a live worker: it is removed, learns it, and ends; its results
 * as a member equal those of the others. */
static void test_silent_worker_is_fenced(void **state)
{
    (void)state;
    for (int shape = 0; shape < 2; shape++) {
        struct trial t = trial_of(shape);
        t.pace = 0.15;
        t.cluster = SLOW_LINKS "delay { from: 2 tag: 'heartbeat' seconds: 60 }";
        members_add(&t.victims, 2);
        run_trial(&t);
        expect_well(&t);
        assert_int_equal(t.ended[2], ERR_DRIVER);
        assert_true(t.record[2][1].there && !t.record[2][EXCHANGES_MAX].there);
        assert_int_equal(t.record[0][EXCHANGES_MAX].view, 2);
    }
}

/* A decision may reach a member together with the view that makes it void. */
static void test_a_decision_of_an_older_view_is_passed_over(void **state)
{
    (void)state;
    struct tallied sum = {0};
    for (int shape = 0; shape < 2; shape++) {
        struct trial t = trial_of(shape);
        t.exchanges = 3;
        t.stale = true;
        sweep_messages(t, SEND_STEP, &sum);
    }
    print_tallied("old decisions lie about, each dies at each message", &sum);
}

/* The last message of an exchange may be needed when its sender has nothing left to exchange. */
static void test_the_last_result_is_handed_on(void **state)
{
    (void)state;
    struct tallied sum = {0};
    for (int shape = 0; shape < 2; shape++) {
        struct trial t = trial_of(shape);
        t.exchanges = 1;
        sweep_messages(t, SEND_STEP, &sum);
    }
    print_tallied("one exchange, each dies at each message", &sum);
    assert_true(sum.adopted > 0);
}

/* The driver is blocked halfway through its broadcast (the exchange metadata has arrived), for lack
 * of credit at an unreachable worker; when that one dies, all others have the result, and the
 * driver takes it from them. With and without a further exchange. */
static void test_the_driver_lacks_the_result(void **state)
{
    (void)state;
    for (uint64_t exchanges = 1; exchanges <= 2; exchanges++) {
        struct trial *t = malloc(sizeof *t);
        assert_non_null(t);
        *t = trial_of(true);
        t->exchanges = exchanges;
        t->chunk = WORLD_MESSAGE_MAX / sizeof(float);
        t->floats = WORLD_CREDIT / sizeof(float) + 1; /* a little too much */
        t->cluster = "node { count: 4 } delay { to: 0 tag: 'broadcast' nth: 2 seconds: 5 } "
                     "fault { at: 4 kill: 0 }";
        members_add(&t->victims, 0);
        run_trial(t);
        expect_well(t);
        assert_int_equal(t->ended[0], ERR_CANCELLED);
        assert_int_equal(t->record[3][1].view, 1);
        assert_int_equal(t->record[DRIVER][1].view, 2);
        assert_true(members_has(&t->record[DRIVER][1].meta.contributors, 0));
        free(t);
    }
}

static float poisoned_value(uint32_t node, uint64_t n, size_t i)
{
    if (node == 1 && n % 2 == 0 && i == 7)
        return NAN;
    if (node == 3 && n % 3 == 0 && i == 0)
        return -INFINITY;
    return plain_value(node, n, i);
}

static void test_what_is_not_finite_is_rejected(void **state)
{
    (void)state;
    for (int shape = 0; shape < 2; shape++) {
        struct trial t = trial_of(shape);
        t.value = poisoned_value;
        run_trial(&t);
        expect_well(&t);
        for (uint64_t n = 1; n <= t.exchanges; n++) {
            const struct exchange_meta *meta = &t.record[2][n].meta;
            bool one = n % 2 == 0, three = n % 3 == 0;
            assert_int_equal(members_has(&meta->contributors, 1), !one);
            assert_int_equal(members_has(&meta->contributors, 3), !three);
            assert_int_equal(members_count(&meta->participants), 4);
            assert_int_equal(meta->samples, 406 - (one ? 101 : 0) - (three ? 103 : 0));
            assert_int_equal(meta->stop_votes, 1); /* a vote counts all the same */
        }
    }
}

static float infinite_value(uint32_t node, uint64_t n, size_t i)
{
    return n == 2 ? INFINITY : plain_value(node, n, i);
}

static double no_weight_in_3(uint32_t node, uint64_t n)
{
    return n == 3 ? 0 : plain_weight(node, n);
}

static void test_when_all_are_rejected_the_result_is_nothing(void **state)
{
    (void)state;
    for (int shape = 0; shape < 2; shape++) {
        struct trial t = trial_of(shape);
        t.value = infinite_value;
        t.weight = no_weight_in_3;
        run_trial(&t);
        expect_well(&t);
        float zeros[10] = {0};
        for (uint64_t n = 2; n <= 3; n++) {
            const struct record *r = &t.record[0][n];
            assert_true(r->meta.weight == 0 && r->meta.samples == 0 && r->meta.loss == 0);
            assert_int_equal(members_count(&r->meta.contributors), 0);
            assert_int_equal(members_count(&r->meta.participants), 4);
            assert_true(r->hash == hash_bytes(zeros, sizeof zeros));
        }
        assert_true(t.record[0][4].meta.weight > 0); /* and the run continues */
    }
}

static void test_rejection_holds_when_a_member_dies(void **state)
{
    (void)state;
    struct tallied sum = {0};
    for (int shape = 0; shape < 2; shape++) {
        struct trial t = trial_of(shape);
        t.value = poisoned_value;
        t.exchanges = 3;
        sweep_messages(t, SEND_STEP, &sum);
    }
    print_tallied("some are rejected, each dies at each message", &sum);
}

/* Only the driver is left: it reports this instead of continuing alone. */
static void test_the_driver_does_not_go_on_alone(void **state)
{
    (void)state;
    struct trial t = trial_of(true);
    t.workers = 2;
    t.cluster = SLOW_LINKS "fault { at: 0.01 kill: 0 } fault { at: 0.015 kill: 1 }";
    run_trial(&t);
    assert_int_equal(t.rc, ERR_TIMEOUT); /* this driver waits for ever; its exchanges have ended */
    assert_false(t.record[DRIVER][EXCHANGES_MAX].there);
}

/* ---- split exchanges ---- */

static struct trial split_trial(int shape)
{
    struct trial t = trial_of(shape);
    t.split = shape ? EXCHANGE_AT_ROOT : EXCHANGE_AT_OWNERS;
    return t;
}

static void test_without_faults_everybody_has_what_was_prepared(void **state)
{
    (void)state;
    for (int shape = 0; shape < 2; shape++)
        for (uint32_t workers = 1; workers <= MOST_WORKERS; workers++)
            for (size_t floats = 1; floats <= 40; floats += 13) {
                struct trial t = split_trial(shape);
                t.workers = workers;
                t.floats = floats;
                run_trial(&t);
                expect_well(&t);
                assert_true(t.formed && dead(&t) == 0);
            }
}

static void test_the_commit_rule_holds_for_what_was_prepared(void **state)
{
    (void)state;
    for (int shape = 0; shape < 2; shape++)
        for (uint32_t workers = FEWEST_WORKERS; workers <= MOST_WORKERS; workers++) {
            struct trial t = split_trial(shape);
            struct tallied sum = {0};
            char what[80];
            t.workers = workers;
            t.exchanges = 3;
            sweep_messages(t, SEND_STEP, &sum);
            snprintf(what, sizeof what, "prepared by %s, %u workers, each dies at each message",
                     shape ? "the driver" : "owners", workers);
            print_tallied(what, &sum);
            assert_true(sum.runs * SEND_STEP >= workers * t.exchanges * 4);
            assert_true(sum.went_on * SEND_STEP > workers * t.exchanges);
        }
}

static void test_rejection_holds_before_preparing(void **state)
{
    (void)state;
    for (int shape = 0; shape < 2; shape++) {
        struct trial t = split_trial(shape);
        t.value = poisoned_value;
        run_trial(&t);
        expect_well(&t);
        assert_false(members_has(&t.record[2][2].meta.contributors, 1));
    }
}

/* The test of the test: members that redo an exchange which another has completed are caught. */
static void test_a_planted_bug_is_seen(void **state)
{
    (void)state;
    for (int shape = 0; shape < 2; shape++) {
        struct trial t = trial_of(shape);
        struct tallied sum = {0};
        t.subject = &planted;
        t.exchanges = 3;
        sweep_messages(t, SEND_STEP, &sum);
        print_tallied("with the commit rule left out", &sum);
        assert_true(sum.complaints > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_faults_everybody_has_the_mean),
        cmocka_unit_test(test_the_mean_is_weighted),
        cmocka_unit_test(test_the_same_seed_takes_the_same_path),
        cmocka_unit_test(test_a_worker_dies_at_each_message_it_sends),
        cmocka_unit_test(test_a_worker_dies_at_each_moment),
        cmocka_unit_test(test_both_back_ends_take_the_same_path),
        cmocka_unit_test(test_several_die),
        cmocka_unit_test(test_several_die_and_messages_are_lost),
        cmocka_unit_test(test_silent_worker_is_fenced),
        cmocka_unit_test(test_a_decision_of_an_older_view_is_passed_over),
        cmocka_unit_test(test_the_last_result_is_handed_on),
        cmocka_unit_test(test_the_driver_lacks_the_result),
        cmocka_unit_test(test_what_is_not_finite_is_rejected),
        cmocka_unit_test(test_when_all_are_rejected_the_result_is_nothing),
        cmocka_unit_test(test_rejection_holds_when_a_member_dies),
        cmocka_unit_test(test_the_driver_does_not_go_on_alone),
        cmocka_unit_test(test_without_faults_everybody_has_what_was_prepared),
        cmocka_unit_test(test_the_commit_rule_holds_for_what_was_prepared),
        cmocka_unit_test(test_rejection_holds_before_preparing),
        cmocka_unit_test(test_a_planted_bug_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
