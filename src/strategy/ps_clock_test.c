#include "strategy/ps_clock.h"

#include "job/job.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Workers 0 … workers-1, batch 16, ten steps of each; the times are those of the test. */
struct play {
    Paceline__Job *job;
    struct ps_clock clock;
    struct ps_decision d;
};

static void begin_play(struct play *p, enum consistency_kind kind, uint32_t workers, size_t shards)
{
    static const char text[] = "net { zoo: 'lenet' } batch: 16 stop { steps: 10 }\n"
                               "train_data { idx { images: 'a' labels: 'b' } }\n"
                               "solver { base_lr: 0.1 lr_policy: 'fixed' }\n";
    struct err err = {0};
    struct members members = {{0}};
    const struct progress start = {.sample_offset = 1000, .steps = 7};
    if (job_parse("t", text, sizeof text - 1, &p->job, &err) != OK ||
        job_finish(p->job, &err) != OK)
        fail_msg("%s", err.text);
    p->job->stop->steps = 17;
    p->job->workers = workers;
    for (uint32_t i = 0; i < workers; i++)
        members_add(&members, i);
    const struct ps_clock_config config = {.consistency = {.kind = kind, .staleness = 1},
                                           .job = p->job,
                                           .shards = shards,
                                           .records = 400};
    ps_clock_init(&p->clock, &config, &start, &members);
}

static void have_push(struct play *p, uint32_t node, size_t shard, int64_t now)
{
    ps_clock_have(&p->clock, node, shard, 16, PUSH_SOUND, now);
}

static bool expect_decision(struct play *p, int64_t now)
{
    return ps_clock_decide(&p->clock, now, &p->d);
}

static void is_set(const struct members *set, const char *want)
{
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(members_has(set, i), strchr(want, (int)('0' + i)) != NULL);
}

static void test_ps_clock_push_counts_when_complete(void **state)
{
    struct play p;
    (void)state;
    begin_play(&p, CONSISTENCY_ASP, 3, 3);
    have_push(&p, 1, 0, 10);
    have_push(&p, 1, 2, 11);
    have_push(&p, 1, 2, 12); /* reported twice */
    have_push(&p, 9, 0, 12); /* a stranger's */
    have_push(&p, 2, 1, 13);
    have_push(&p, 1, 3, 14); /* no such shard */
    assert_false(expect_decision(&p, 15));
    have_push(&p, 1, 1, 20);
    assert_true(expect_decision(&p, 25));
    is_set(&p.d.applied, "1");
    is_set(&p.d.dropped, "");
    is_set(&p.d.ok, "1");
    assert_int_equal(p.d.by, 1);
    assert_int_equal(ps_clock_waited(&p.clock, 1, 25), 5);
    assert_false(expect_decision(&p, 26));
    job_free(p.job);
}

static void test_ps_clock_decides_ready_pushes_together(void **state)
{
    struct play p;
    (void)state;
    begin_play(&p, CONSISTENCY_ASP, 3, 1);
    have_push(&p, 2, 0, 10);
    have_push(&p, 0, 0, 11);
    assert_true(expect_decision(&p, 12));
    is_set(&p.d.applied, "02");
    is_set(&p.d.ok, "02");
    assert_int_equal(p.d.by, 0);
    job_free(p.job);
}

static void test_ps_clock_round_waits_for_all(void **state)
{
    struct play p;
    (void)state;
    begin_play(&p, CONSISTENCY_BSP, 3, 1);
    have_push(&p, 2, 0, 10);
    have_push(&p, 0, 0, 11);
    assert_false(expect_decision(&p, 12));
    have_push(&p, 1, 0, 20);
    assert_true(expect_decision(&p, 20));
    is_set(&p.d.applied, "012");
    is_set(&p.d.ok, "012");
    assert_int_equal(ps_clock_waited(&p.clock, 2, 20), 10);
    have_push(&p, 0, 0, 30);
    have_push(&p, 1, 0, 30);
    ps_clock_leave(&p.clock, 2, true, &p.d);
    is_set(&p.d.ok, ""); /* none of an undecided round */
    assert_true(expect_decision(&p, 31));
    is_set(&p.d.applied, "01");
    job_free(p.job);
}

/* The rate goes by pushes / K: 7, 7⅓, 7⅔, 8; when one has left after four pushes, by halves. */
static void test_the_clock_of_the_rate(void **state)
{
    static const double want[] = {7, 7 + 1.0 / 3, 7 + 2.0 / 3, 8};
    struct play p;
    (void)state;
    begin_play(&p, CONSISTENCY_ASP, 3, 1);
    for (int i = 0; i < 4; i++) {
        have_push(&p, (uint32_t)i % 3, 0, 10 * i);
        assert_true(expect_decision(&p, 10 * i));
        assert_true(p.d.t == want[i]);
    }
    ps_clock_leave(&p.clock, 1, false, &p.d);
    have_push(&p, 0, 0, 50);
    assert_true(expect_decision(&p, 50));
    assert_true(p.d.t == 8 + 1.0 / 3);
    have_push(&p, 0, 0, 60);
    assert_true(expect_decision(&p, 60));
    assert_true(p.d.t == 8 + 1.0 / 3 + 0.5);
    p.job->solver->clock = CAFFE__SOLVER_PARAMETER__CLOCK__epochs;
    have_push(&p, 2, 0, 70);
    assert_true(expect_decision(&p, 70));
    assert_true(p.d.t == (1000 + 6 * 16) / 400.0);
    job_free(p.job);
}

/* The last one has left, and its successor has not pushed: the value stays. */
static void test_ps_clock_keeps_its_value_without_members(void **state)
{
    struct play p;
    (void)state;
    begin_play(&p, CONSISTENCY_DSSP, 1, 1);
    have_push(&p, 0, 0, 10);
    assert_true(expect_decision(&p, 10));
    ps_clock_join(&p.clock, 3);
    ps_clock_leave(&p.clock, 0, false, &p.d);
    assert_true(ps_clock_value(&p.clock) == 8);
    have_push(&p, 3, 0, 20);
    assert_true(expect_decision(&p, 20));
    assert_true(p.d.t == 8);
    job_free(p.job);
}

/* Ten steps of three are thirty pushes. The clock may not have received a dead worker's last
 * push. */
static void test_the_run_ends_when_all_is_taken(void **state)
{
    for (int deaths = 0; deaths < 2; deaths++) {
        struct play p;
        (void)state;
        begin_play(&p, CONSISTENCY_ASP, 3, 1);
        for (int i = 1; i <= 29; i++) {
            have_push(&p, (uint32_t)i % 3, 0, i);
            assert_true(expect_decision(&p, i));
            assert_false(p.d.stop);
        }
        ps_clock_leave(&p.clock, 1, deaths > 0, &p.d);
        assert_false(p.d.stop);
        have_push(&p, 0, 0, 50);
        assert_true(expect_decision(&p, 50));
        assert_int_equal(p.d.stop, deaths == 0);
        have_push(&p, 2, 0, 51);
        assert_true(expect_decision(&p, 51));
        assert_true(p.d.stop);
        job_free(p.job);
    }
}

static void test_what_is_not_finite_is_dropped(void **state)
{
    struct play p;
    (void)state;
    begin_play(&p, CONSISTENCY_SSP, 3, 2);
    have_push(&p, 0, 0, 1);
    ps_clock_have(&p.clock, 0, 1, 16, PUSH_INFINITE, 2); /* one bad part is enough */
    have_push(&p, 1, 0, 3);
    have_push(&p, 1, 1, 4);
    assert_true(expect_decision(&p, 5));
    is_set(&p.d.applied, "1");
    is_set(&p.d.dropped, "0");
    is_set(&p.d.ok, "01"); /* it continues */
    assert_false(p.d.diverged);
    ps_clock_have(&p.clock, 1, 0, 16, PUSH_INFINITE, 6);
    ps_clock_have(&p.clock, 1, 1, 16, PUSH_INFINITE, 6);
    assert_true(expect_decision(&p, 6));
    assert_false(p.d.diverged); /* worker 2 has not reported it */
    ps_clock_have(&p.clock, 2, 0, 16, PUSH_INFINITE, 7);
    ps_clock_have(&p.clock, 2, 1, 16, PUSH_INFINITE, 7);
    assert_true(expect_decision(&p, 7));
    assert_true(p.d.diverged);
    job_free(p.job);
}

/* At the end of the run a worker may be the only one left, with a last push that differs from those
 * of the others before it. */
static void test_what_is_refused_is_no_divergence(void **state)
{
    struct play p;
    (void)state;
    begin_play(&p, CONSISTENCY_ASP, 2, 2);
    ps_clock_leave(&p.clock, 1, false, &p.d);
    ps_clock_have(&p.clock, 0, 0, 16, PUSH_REFUSED, 1);
    ps_clock_have(&p.clock, 0, 1, 16, PUSH_REFUSED, 1);
    assert_true(expect_decision(&p, 1));
    is_set(&p.d.dropped, "0");
    is_set(&p.d.ok, "0");
    assert_false(p.d.diverged);
    ps_clock_have(&p.clock, 0, 0, 16, PUSH_REFUSED, 2);
    ps_clock_have(&p.clock, 0, 1, 16, PUSH_INFINITE, 2);
    assert_true(expect_decision(&p, 2));
    assert_true(p.d.diverged);
    job_free(p.job);
}

/* Others are decided between its bad part and its last. */
static void test_what_is_not_finite_is_remembered(void **state)
{
    struct play p;
    (void)state;
    begin_play(&p, CONSISTENCY_ASP, 2, 2);
    ps_clock_have(&p.clock, 0, 1, 16, PUSH_INFINITE, 1);
    have_push(&p, 1, 0, 2);
    have_push(&p, 1, 1, 2);
    assert_true(expect_decision(&p, 2));
    is_set(&p.d.applied, "1");
    have_push(&p, 0, 0, 3);
    assert_true(expect_decision(&p, 3));
    is_set(&p.d.applied, "");
    is_set(&p.d.dropped, "0");
    have_push(&p, 0, 0, 4);
    have_push(&p, 0, 1, 4);
    assert_true(expect_decision(&p, 4));
    is_set(&p.d.applied, "0");
    job_free(p.job);
}

static void test_ps_clock_death_releases_waiters(void **state)
{
    struct play p;
    (void)state;
    begin_play(&p, CONSISTENCY_SSP, 3, 1);
    for (int i = 0; i < 2; i++) {
        have_push(&p, 0, 0, 10 * i);
        assert_true(expect_decision(&p, 10 * i));
        is_set(&p.d.ok, i == 0 ? "0" : "");
    }
    have_push(&p, 1, 0, 30);
    assert_true(expect_decision(&p, 30));
    ps_clock_leave(&p.clock, 2, true, &p.d);
    is_set(&p.d.ok, "0");
    assert_int_equal(p.d.by, 2);
    ps_clock_leave(&p.clock, 2, true, &p.d); /* once */
    is_set(&p.d.ok, "");
    job_free(p.job);
}

/* K is 2, and 3 when worker 2 is counted in: three steps of each, then three more. */
static void test_ps_clock_joiner_before_first_push(void **state)
{
    struct play p;
    (void)state;
    begin_play(&p, CONSISTENCY_SSP, 2, 2);
    ps_clock_join(&p.clock, 2);
    ps_clock_fetched(&p.clock, 2);
    for (int step = 0; step < 3; step++) { /* a lead of 3 over it, were it counted */
        for (uint32_t node = 0; node < 2; node++) {
            have_push(&p, node, 0, step);
            have_push(&p, node, 1, step);
        }
        assert_true(expect_decision(&p, step));
        is_set(&p.d.ok, "01");
        assert_true(p.d.t == 7 + step);
    }
    have_push(&p, 2, 0, 3);
    assert_false(expect_decision(&p, 3)); /* half of it is there */
    have_push(&p, 2, 1, 4);
    assert_true(expect_decision(&p, 4));
    is_set(&p.d.applied, "2");
    is_set(&p.d.ok, "2");
    assert_true(p.d.t == 10);
    have_push(&p, 0, 0, 5);
    have_push(&p, 0, 1, 5);
    assert_true(expect_decision(&p, 5));
    assert_true(fabs(p.d.t - (10 + 1 / 3.0)) < 1e-9);
    is_set(&p.d.ok, "0"); /* a lead of 1 over worker 1, which has pushed as often as 2 counts for */
    have_push(&p, 0, 0, 6);
    have_push(&p, 0, 1, 6);
    assert_true(expect_decision(&p, 6));
    is_set(&p.d.ok, "");
    job_free(p.job);
}

static void test_ps_clock_round_waits_for_joiner_that_fetched(void **state)
{
    struct play p;
    (void)state;
    begin_play(&p, CONSISTENCY_BSP, 2, 1);
    ps_clock_join(&p.clock, 2);
    ps_clock_join(&p.clock, 3);
    have_push(&p, 0, 0, 1);
    have_push(&p, 1, 0, 2);
    assert_true(expect_decision(&p, 2));
    is_set(&p.d.ok, "01");
    ps_clock_fetched(&p.clock, 2);
    have_push(&p, 0, 0, 3);
    have_push(&p, 1, 0, 4);
    assert_false(expect_decision(&p, 4));
    have_push(&p, 2, 0, 5);
    assert_true(expect_decision(&p, 5));
    is_set(&p.d.applied, "012");
    is_set(&p.d.ok, "012");
    ps_clock_leave(&p.clock, 3, true, &p.d); /* it has never been counted */
    is_set(&p.d.ok, "");
    have_push(&p, 3, 0, 6);
    assert_false(expect_decision(&p, 6));
    job_free(p.job);
}

/* Three of four have returned to a driver, after a quarter of the run: the clock continues where it
 * was, with a fourth of a step for each push, and not ahead. */
static void test_fewer_go_on(void **state)
{
    (void)state;
    struct play p;
    struct members members = {{0}};
    begin_play(&p, CONSISTENCY_ASP, 4, 1);
    for (uint32_t i = 0; i < 3; i++)
        members_add(&members, i);
    {
        const struct ps_clock_config config = p.clock.config;
        const struct progress start = p.clock.start;
        ps_clock_init(&p.clock, &config, &start, &members);
    }
    ps_clock_resume(&p.clock, 1000 + UINT64_C(4) * 16 * 5, &members);
    assert_int_equal(p.clock.progress.steps, 7 + 5);
    assert_true(p.clock.base == 7 + 5);
    job_free(p.job);
}

/* The batch grows in a line from 20 to 60 over four epochs of 400: up to m epochs there are
 * 40·log(1 + m/2) steps. A push advances the rate's clock by its samples' part of a step of B. */
static void test_ps_clock_follows_a_batch_that_grows(void **state)
{
    (void)state;
    struct play p;
    begin_play(&p, CONSISTENCY_ASP, 2, 1);
    Paceline__BatchGrowth growth = PACELINE__BATCH_GROWTH__INIT;
    growth.first = 20;
    growth.last = 60;
    growth.power = 1;
    growth.epochs = 4;
    p.job->batch_growth = &growth;
    p.job->stop->steps = 1000;
    for (uint32_t i = 0; i < 20; i++) { /* from 1,000 to 1,320 samples, of 1,600 */
        have_push(&p, i % 2, 0, i);
        assert_true(expect_decision(&p, i));
    }
    double steps = 40 * log((1 + 2 * 1320 / 1600.0) / (1 + 2 * 1000 / 1600.0));
    assert_true(fabs(ps_clock_value(&p.clock) - (7 + steps)) < 1e-6);
    assert_int_equal(p.clock.progress.steps, 7 + (uint64_t)steps);
    p.job->batch_growth = NULL;
    job_free(p.job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ps_clock_follows_a_batch_that_grows),
        cmocka_unit_test(test_ps_clock_push_counts_when_complete),
        cmocka_unit_test(test_ps_clock_decides_ready_pushes_together),
        cmocka_unit_test(test_ps_clock_round_waits_for_all),
        cmocka_unit_test(test_the_clock_of_the_rate),
        cmocka_unit_test(test_ps_clock_keeps_its_value_without_members),
        cmocka_unit_test(test_the_run_ends_when_all_is_taken),
        cmocka_unit_test(test_what_is_not_finite_is_dropped),
        cmocka_unit_test(test_what_is_refused_is_no_divergence),
        cmocka_unit_test(test_what_is_not_finite_is_remembered),
        cmocka_unit_test(test_ps_clock_death_releases_waiters),
        cmocka_unit_test(test_ps_clock_joiner_before_first_push),
        cmocka_unit_test(test_ps_clock_round_waits_for_joiner_that_fetched),
        cmocka_unit_test(test_fewer_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
