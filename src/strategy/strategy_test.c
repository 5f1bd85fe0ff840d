#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "job/job.h"
#include "strategy/strategy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS_MAX = 9, HISTORIES = 300, COVER_MAX = 4096 };

/* A job with only a stop rule. */
struct plan {
    Paceline__Job job;
    Paceline__Stop stop;
    size_t records;
    uint64_t most; /* steps of a round */
};

static void plan_init(struct plan *p, uint32_t batch, size_t records, uint64_t most)
{
    paceline__job__init(&p->job);
    paceline__stop__init(&p->stop);
    p->job.batch = batch;
    p->job.stop = &p->stop;
    p->records = records;
    p->most = most;
}

static void until_epochs(struct plan *p, double epochs)
{
    p->stop.has_epochs = 1;
    p->stop.epochs = epochs;
}

static void until_steps(struct plan *p, uint64_t steps)
{
    p->stop.has_steps = 1;
    p->stop.steps = steps;
}

static struct progress progress_of(uint32_t members)
{
    struct progress progress = {0};
    for (uint32_t node = 0; node < members; node++)
        members_add(&progress.sharers, node);
    return progress;
}

static uint64_t round_of(const struct plan *p, const struct progress *progress)
{
    return strategy_round(&p->job, progress, p->records, p->most);
}

static bool is_done(const struct plan *p, const struct progress *progress)
{
    return strategy_done(&p->job, progress, p->records);
}

/* ---- places ---- */

static void expect_share(const struct progress *progress, uint32_t node, uint64_t t,
                         uint64_t samples, uint64_t start, size_t count)
{
    struct stretch share = strategy_share(progress, node, t, samples);
    assert_int_equal(share.start, start);
    assert_int_equal(share.count, count);
}

/* Three members, worked by hand: 10 records each, and 32 that three cannot share equally. */
static void test_strategy_shares_of_a_global_batch(void **state)
{
    (void)state;
    struct progress progress = {.sample_offset = 1000};
    members_add(&progress.sharers, 1);
    members_add(&progress.sharers, 4);
    members_add(&progress.sharers, 200);
    expect_share(&progress, 1, 0, 30, 1000, 10);
    expect_share(&progress, 4, 0, 30, 1010, 10);
    expect_share(&progress, 200, 0, 30, 1020, 10);
    expect_share(&progress, 1, 1, 30, 1030, 10);
    expect_share(&progress, 200, 7, 30, 1230, 10);
    expect_share(&progress, 1, 0, 32, 1000, 10);
    expect_share(&progress, 4, 0, 32, 1010, 11);
    expect_share(&progress, 200, 0, 32, 1021, 11);
    expect_share(&progress, 200, 2, 32, 1085, 11);
    assert_true(strategy_share_weight(&progress, 10, 30) == 1);
    assert_true(fabs(strategy_share_weight(&progress, 11, 32) - 33.0 / 32) < 1e-15);
}

/* Each record of the round is in one share, and no record outside it in any. */
static void check_tiles(const struct progress *progress, uint64_t steps, uint64_t samples)
{
    uint8_t taken[COVER_MAX] = {0};
    uint64_t length = steps * samples, mean = samples / members_count(&progress->sharers);
    assert_true(length <= COVER_MAX);
    for (uint32_t node = 0; node < VIEW_MEMBERS_MAX; node++)
        for (uint64_t t = 0; members_has(&progress->sharers, node) && t < steps; t++) {
            struct stretch share = strategy_share(progress, node, t, samples);
            assert_true(share.start >= progress->sample_offset &&
                        share.start + share.count <= progress->sample_offset + length);
            assert_true(share.count == mean || share.count == mean + 1);
            for (uint32_t b = 0; b < share.count; b++)
                taken[share.start - progress->sample_offset + b]++;
        }
    for (uint64_t i = 0; i < length; i++)
        assert_int_equal(taken[i], 1);
}

/* Some of the members are in the next round; always at least one. */
static struct members next_members(const struct members *now, uint64_t seed, uint64_t round)
{
    struct members next = {{0}};
    for (uint32_t node = 0; node < VIEW_MEMBERS_MAX; node++)
        if (members_has(now, node) && rng_below(seed, 5, round * 2000 + node, 8) > 0)
            members_add(&next, node);
    return members_count(&next) > 0 ? next : *now;
}

/* A run to its end, with losses on the way; returns how many rounds it took, and the samples of the
 * last step. */
static uint64_t live_through(const struct plan *p, struct progress *progress, uint64_t seed,
                             uint64_t *last_step)
{
    uint64_t rounds = 0;
    while (!is_done(p, progress)) {
        uint64_t steps = round_of(p, progress);
        uint64_t samples = strategy_step_samples(&p->job, progress, p->records);
        struct progress before = *progress;
        struct exchange_meta meta = {0};
        assert_true(steps >= 1 && steps <= p->most);
        check_tiles(progress, steps, samples);
        meta.participants = next_members(&progress->sharers, seed, rounds);
        strategy_advance(progress, steps, samples, &meta);
        assert_int_equal(progress->sample_offset, before.sample_offset + steps * samples);
        assert_int_equal(progress->steps, before.steps + steps);
        assert_int_equal(progress->exchanges, before.exchanges + 1);
        assert_memory_equal(&progress->sharers, &meta.participants, sizeof progress->sharers);
        assert_true(steps == p->most || is_done(p, progress)); /* only the last round is shorter */
        *last_step = samples;
        rounds++;
    }
    return rounds;
}

/* The sharers may have any numbers, not only the first. */
static struct progress scattered_progress(uint64_t seed)
{
    struct progress progress = {.sample_offset = 0};
    uint64_t members = 1 + rng_below(seed, 1, 0, MEMBERS_MAX);
    for (uint64_t i = 0; members_count(&progress.sharers) < members; i++)
        members_add(&progress.sharers,
                    (uint32_t)rng_below(seed, 2, i, i % 2 ? VIEW_MEMBERS_MAX : 12));
    return progress;
}

static void test_histories_that_end_at_epochs(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= HISTORIES; seed++) {
        struct plan p;
        uint64_t last = 0;
        struct progress progress = scattered_progress(seed);
        plan_init(&p, 1 + (uint32_t)rng_below(seed, 3, 0, 20), 100 + rng_below(seed, 3, 1, 1500),
                  1 + rng_below(seed, 3, 2, 20));
        until_epochs(&p, 0.25 * (double)(1 + rng_below(seed, 3, 3, 16)));
        assert_true(live_through(&p, &progress, seed, &last) > 0);
        /* The end is reached, and not by more than the last global batch. */
        double end = p.stop.epochs * (double)p.records;
        assert_true((double)progress.sample_offset >= end);
        assert_true((double)(progress.sample_offset - last) < end);
    }
}

static void test_histories_that_end_at_steps(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= HISTORIES; seed++) {
        struct plan p;
        uint64_t last = 0;
        struct progress progress = scattered_progress(seed);
        plan_init(&p, 1 + (uint32_t)rng_below(seed, 3, 0, 20), 500, 1 + rng_below(seed, 3, 2, 20));
        until_steps(&p, 1 + rng_below(seed, 3, 3, 200));
        uint64_t rounds = live_through(&p, &progress, seed, &last);
        assert_int_equal(progress.steps, p.stop.steps);
        assert_int_equal(rounds, (p.stop.steps + p.most - 1) / p.most);
    }
}

static void test_strategy_run_ends_at_the_first_limit(void **state)
{
    (void)state;
    size_t by_steps = 0, by_epochs = 0;
    for (uint64_t seed = 1; seed <= HISTORIES; seed++) {
        struct plan p;
        uint64_t last = 0;
        struct progress progress = scattered_progress(seed);
        plan_init(&p, 10, 1000, 1 + rng_below(seed, 3, 2, 20));
        until_epochs(&p, 1);
        until_steps(&p, 1 + rng_below(seed, 3, 3, 60));
        live_through(&p, &progress, seed, &last);
        assert_true(progress.steps <= p.stop.steps);
        assert_true(progress.sample_offset - last < p.records);
        by_steps += progress.steps == p.stop.steps;
        by_epochs += progress.sample_offset >= p.records;
    }
    assert_true(by_steps > HISTORIES / 10 && by_epochs > HISTORIES / 10);
}

/* ---- a batch of all that the workers share out ---- */

/* 9 records and more for up to nine members: the samples of a step do not depend on the number of
 * members that stay, and the rounds still tile the stream. */
static void test_histories_with_a_global_batch(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= HISTORIES; seed++) {
        struct plan p;
        uint64_t last = 0;
        struct progress progress = scattered_progress(seed);
        plan_init(&p, 3, 100 + rng_below(seed, 3, 1, 1500), 1 + rng_below(seed, 3, 2, 20));
        p.job.has_global_batch = 1;
        p.job.global_batch = MEMBERS_MAX + (uint32_t)rng_below(seed, 3, 4, 100);
        until_epochs(&p, 0.25 * (double)(1 + rng_below(seed, 3, 3, 16)));
        live_through(&p, &progress, seed, &last);
        assert_int_equal(last, p.job.global_batch);
        assert_true((double)(progress.sample_offset - last) < p.stop.epochs * (double)p.records);
    }
}

static void grow_batch(struct plan *p, Paceline__BatchGrowth *g, uint32_t first, uint32_t last,
                       double power, double epochs)
{
    paceline__batch_growth__init(g);
    g->first = first;
    g->last = last;
    g->power = power;
    g->epochs = epochs;
    p->job.batch_growth = g;
}

static uint64_t batch_at(const struct plan *p, uint64_t sample_offset)
{
    struct progress progress = progress_of(3);
    progress.sample_offset = sample_offset;
    return strategy_step_samples(&p->job, &progress, p->records);
}

/* 32 to 704 with the power 2 over two epochs of 1,000 records: 32 + 672·(m/2)². */
static void test_strategy_batch_grows_by_progress(void **state)
{
    (void)state;
    struct plan p;
    Paceline__BatchGrowth g;
    plan_init(&p, 352, 1000, 20);
    grow_batch(&p, &g, 32, 704, 2, 2);
    assert_int_equal(batch_at(&p, 0), 32);
    assert_int_equal(batch_at(&p, 54), 32);    /* 672·0.027² = 0.4899 */
    assert_int_equal(batch_at(&p, 55), 33);    /* 672·0.0275² = 0.5082 */
    assert_int_equal(batch_at(&p, 1000), 200); /* 32 + 672/4 */
    assert_int_equal(batch_at(&p, 1500), 410); /* 32 + 378 */
    assert_int_equal(batch_at(&p, 2000), 704);
    assert_int_equal(batch_at(&p, 5000), 704);
    grow_batch(&p, &g, 10, 13, 1, 1);
    assert_int_equal(batch_at(&p, 499), 11); /* 10 + 1.497 */
    assert_int_equal(batch_at(&p, 500), 12); /* 11.5 goes up, on every machine */
}

/* Each step of a run takes the batch of its beginning. The steps are as many
 * as those of the static batch with equally many updates, whose closed form for the power 2 is
 * √(B_0·D) / atan(√(D/B_0)), D = B_max - B_0: 108.15 for 32 to 704. */
static void test_histories_with_a_growing_batch(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct plan p;
        Paceline__BatchGrowth g;
        uint64_t last = 0;
        struct progress progress = scattered_progress(seed);
        plan_init(&p, 352, 60000, 1);
        grow_batch(&p, &g, 32, 704, 2, 4);
        until_epochs(&p, 4);
        live_through(&p, &progress, seed, &last);
        assert_true(last > 700 && last <= 704);
        double B_h = 4 * 60000.0 / (double)progress.steps;
        assert_true(fabs(B_h - 108.15) < 0.2);
    }
}

/* Linear scaling: rates given for 64 records are halved for 32, and multiplied by 11 for 704. */
static void test_strategy_scales_the_rate_by_the_batch(void **state)
{
    (void)state;
    struct plan p;
    Caffe__SolverParameter solver;
    plan_init(&p, 8, 1000, 20);
    caffe__solver_parameter__init(&solver);
    p.job.solver = &solver;
    assert_true(strategy_rate_scale(&p.job, 32) == 1);
    solver.has_lr_batch = 1;
    solver.lr_batch = 64;
    assert_true(strategy_rate_scale(&p.job, 32) == 0.5);
    assert_true(strategy_rate_scale(&p.job, 704) == 11);
}

static void expect_strategy(const char *fields, const char *name, const char *refusal)
{
    struct err err = {0};
    char text[256];
    Paceline__Job *job = NULL;
    const struct strategy_ops *ops;
    struct strategy_traits traits;
    snprintf(text, sizeof text, "workers: 4 %s %s",
             strstr(fields, "solver") ? "" : "solver { base_lr: 0.1 }", fields);
    assert_int_equal(job_parse("t", text, strlen(text), &job, &err), OK);
    if (!job->strategy)
        assert_int_equal(job_set_strategy(job, name, &err), OK);
    int rc = strategy_find(job, &ops, &traits, &err);
    assert_int_equal(rc, refusal ? ERR_UNSUPPORTED : OK);
    if (refusal)
        assert_non_null(strstr(err.text, refusal));
    job_free(job);
}

static void test_strategies_and_their_batches(void **state)
{
    (void)state;
    static const char *const rounds[] = {"sync", "allreduce", "async_allreduce", "diloco"};
    static const char *const own_pace[] = {"easgd", "downpour", "ps", "gossip", "mpca", "pace"};
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++) {
        expect_strategy("batch_growth { first: 32 last: 704 }", rounds[i], NULL);
        expect_strategy("global_batch: 33", rounds[i], NULL);
    }
    for (size_t i = 0; i < sizeof own_pace / sizeof *own_pace; i++) {
        expect_strategy("batch_growth { first: 32 last: 704 }", own_pace[i], NULL);
        expect_strategy("workers_max: 8 batch_growth { first: 32 last: 704 } follow_batch { }",
                        own_pace[i], "follow_batch.samples_per_s: is missing");
        expect_strategy("global_batch: 33", own_pace[i], "a multiple of a fixed number of workers");
        expect_strategy("global_batch: 32", own_pace[i], NULL);
    }
    expect_strategy("batch_growth { first: 32 last: 704 } strategy { ps { consistency: bsp } }",
                    "ps", "batch_growth");
    expect_strategy("batch_growth { first: 32 last: 704 } strategy { easgd { mode: sync } }",
                    "easgd", NULL);
    expect_strategy("global_batch: 33 strategy { sync { seconds: 2 } }", "sync",
                    "strategy.sync.seconds");
    expect_strategy("global_batch: 32 follow_batch { samples_per_s: 1 } "
                    "strategy { diloco { tau: 4 overlap: 4 } }",
                    "diloco", "follow_batch");
    expect_strategy("global_batch: 32 follow_batch { samples_per_s: 1 }", "diloco", NULL);
    expect_strategy("batch: 8 solver { lr_batch: 32 }", "allreduce", "solver.lr_batch");
    expect_strategy("global_batch: 32 solver { lr_batch: 32 }", "mpca", "solver.lr_batch");
    expect_strategy("global_batch: 32 solver { lr_batch: 32 }", "allreduce", NULL);
}

/* ---- rounds, worked by hand ---- */

static void test_the_last_round_is_shorter(void **state)
{
    (void)state;
    struct plan p;
    plan_init(&p, 64, 55000, 50);
    until_epochs(&p, 1);
    struct progress progress = progress_of(4); /* 50·4·64 = 12,800 a round; 55,000 are 4.3 rounds */
    static const uint64_t want[] = {50, 50, 50, 50, 15}; /* 3,800 left, 256 a step: 14.8 */
    for (size_t i = 0; i < 5; i++) {
        struct exchange_meta meta = {.participants = progress.sharers};
        assert_false(is_done(&p, &progress));
        assert_int_equal(round_of(&p, &progress), want[i]);
        strategy_advance(&progress, want[i], 256, &meta);
    }
    assert_true(is_done(&p, &progress));
    assert_int_equal(progress.sample_offset, 55040);
}

static void test_strategy_run_ends_exactly_with_a_round(void **state)
{
    (void)state;
    struct plan p;
    plan_init(&p, 10, 1000, 25);
    until_epochs(&p, 1);
    struct progress progress = progress_of(4);
    assert_int_equal(round_of(&p, &progress), 25);
    progress.sample_offset = 960; /* one step of all four is left */
    assert_int_equal(round_of(&p, &progress), 1);
    progress.sample_offset = 1000;
    assert_true(is_done(&p, &progress));
}

static void test_a_run_without_an_end_takes_whole_rounds(void **state)
{
    (void)state;
    struct plan p;
    plan_init(&p, 10, 1000, 25);
    p.stop.has_seconds = 1;
    p.stop.seconds = 3;
    struct progress progress = progress_of(4);
    progress.sample_offset = progress.steps = 1000000000;
    assert_int_equal(round_of(&p, &progress), 25);
    assert_false(is_done(&p, &progress));
}

static void test_progress_round_trips(void **state)
{
    (void)state;
    struct progress progress = {.sample_offset = UINT64_C(1) << 50, .steps = 7, .exchanges = 3},
                    out;
    members_add(&progress.sharers, 5);
    members_add(&progress.sharers, 1023);
    struct buf bytes = {0};
    progress_encode(&progress, &bytes);
    struct byte_reader in = {bytes.data, bytes.len, false};
    progress_decode(&in, &out);
    assert_true(byte_reader_done(&in));
    assert_true(out.sample_offset == progress.sample_offset && out.steps == 7 &&
                out.exchanges == 3);
    assert_memory_equal(&out.sharers, &progress.sharers, sizeof out.sharers);
    in = (struct byte_reader){bytes.data, bytes.len - 1, false};
    progress_decode(&in, &out);
    assert_false(byte_reader_done(&in));
    buf_release(&bytes);
}

/* A reader with other room, or a length above it, fails. */
static void test_scores_round_trip_with_their_text(void **state)
{
    (void)state;
    char drawn[] = "a\0\xff", read[8] = {0};
    const struct model_scores scores = {
        .here = true,
        .exchanges = 7,
        .sum = {{.loss = 0.5, .right = 3, .has_right = true, .count = 9}, {.loss = -2, .count = 4}},
        .text = {drawn, sizeof drawn, 3}};
    struct buf bytes = {0};
    model_scores_encode(&scores, &bytes);
    for (size_t room = 0; room <= sizeof read; room++) {
        struct byte_reader in = {bytes.data, bytes.len, false};
        struct model_scores out = {.text = {read, room, 0}};
        model_scores_decode(&in, &out);
        assert_true(byte_reader_done(&in) == (room == sizeof drawn));
        assert_true(out.here && out.exchanges == 7);
        assert_true(!byte_reader_done(&in) || out.text.len == 3);
        assert_true(out.sum[0].loss == 0.5 && out.sum[0].right == 3 && out.sum[0].has_right);
        assert_true(out.sum[1].loss == -2 && !out.sum[1].has_right && out.sum[1].count == 4);
    }
    assert_memory_equal(read, drawn, sizeof drawn);
    struct byte_reader in = {bytes.data, bytes.len, false};
    struct model_scores out = {.text = {read, sizeof drawn, 0}};
    bytes.data[bytes.len - sizeof drawn - 4] = sizeof drawn + 1;
    model_scores_decode(&in, &out);
    assert_true(in.failed && out.text.len == 0);
    buf_release(&bytes);
}

static void test_strategies_are_found_by_the_job(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const struct strategy_ops *ops;
        uint64_t round;
        bool driver, sends_gradients;
    } want[] = {
        {"single", &strategy_single, 1, false, false},
        {"sync", &strategy_sync, 50, true, false},
        {"allreduce", &strategy_allreduce, 1, false, true},
        {"async_allreduce", &strategy_async_allreduce, 1, false, true},
        {"diloco", &strategy_diloco, 100, false, false},
        {"ps", &strategy_ps, 1, true, false},
        {"downpour", &strategy_downpour, 5, true, false},
        {"easgd", &strategy_easgd, 10, true, false},
        {"mpca", &strategy_mpca, 1, true, false},
        {"pace", &strategy_pace, 1, true, false},
        {"gossip", &strategy_gossip, 10, false, false},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct err err = {0};
        Paceline__Job *job = NULL;
        const struct strategy_ops *ops = NULL;
        static const char text[] = "solver { base_lr: 0.1 }";
        assert_int_equal(job_parse("t", text, strlen(text), &job, &err), OK);
        assert_int_equal(job_set_strategy(job, want[i].name, &err), OK);
        struct strategy_traits traits;
        assert_int_equal(strategy_find(job, &ops, &traits, &err), OK);
        assert_ptr_equal(ops, want[i].ops);
        assert_string_equal(ops->name, want[i].name);
        assert_int_equal(traits.round, want[i].round);
        assert_int_equal(ops->driver != NULL, want[i].driver);
        assert_int_equal(traits.sends_gradients, want[i].sends_gradients);
        assert_int_equal(traits.driver_part, want[i].driver);
        job_free(job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strategy_shares_of_a_global_batch),
        cmocka_unit_test(test_histories_that_end_at_epochs),
        cmocka_unit_test(test_histories_that_end_at_steps),
        cmocka_unit_test(test_strategy_run_ends_at_the_first_limit),
        cmocka_unit_test(test_histories_with_a_global_batch),
        cmocka_unit_test(test_strategy_batch_grows_by_progress),
        cmocka_unit_test(test_histories_with_a_growing_batch),
        cmocka_unit_test(test_strategy_scales_the_rate_by_the_batch),
        cmocka_unit_test(test_strategies_and_their_batches),
        cmocka_unit_test(test_the_last_round_is_shorter),
        cmocka_unit_test(test_strategy_run_ends_exactly_with_a_round),
        cmocka_unit_test(test_a_run_without_an_end_takes_whole_rounds),
        cmocka_unit_test(test_progress_round_trips),
        cmocka_unit_test(test_scores_round_trip_with_their_text),
        cmocka_unit_test(test_strategies_are_found_by_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
