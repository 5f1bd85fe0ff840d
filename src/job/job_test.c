#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/file.h"
#include "job/job.h"
#include "job/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The least that can run. */
#define LEAST \
    "net { zoo: 'lenet' } train_data { idx { images: 'i' labels: 'l' } } solver { base_lr: 0.1 } "

static Paceline__Job *parse_job(const char *text)
{
    struct err err = {0};
    Paceline__Job *job = NULL;
    if (job_parse("t", text, strlen(text), &job, &err) != OK)
        fail_msg("%s", err.text);
    return job;
}

static Paceline__Job *finish_job(const char *text)
{
    struct err err = {0};
    Paceline__Job *job = parse_job(text);
    if (job_finish(job, &err) != OK)
        fail_msg("%s", err.text);
    return job;
}

static void expect_refusal(const char *text, const char *message)
{
    struct err err = {0};
    Paceline__Job *job = parse_job(text);
    assert_int_equal(job_finish(job, &err), ERR_INPUT);
    assert_string_equal(err.text, message);
    job_free(job);
}

static char *as_text(const Paceline__Job *job)
{
    struct buf text = {0};
    text_write(&job->base, &text);
    buf_put_u8(&text, 0);
    assert_false(text.failed);
    return (char *)text.data;
}

static void test_the_least_job_gets_every_part(void **state)
{
    (void)state;
    Paceline__Job *job = finish_job(LEAST);
    assert_string_equal(job_strategy_name(job), "single");
    assert_int_equal(job->batch, 64);
    assert_int_equal(job->workers, 1);
    assert_int_equal(job->collective->chunk_kb, 256);
    assert_non_null(job->evaluate);
    assert_int_equal(job->checkpoint->keep, 3);
    assert_true(job->stop->has_epochs && job->stop->epochs == 1);
    assert_null(job->test_data);
    job_free(job);
}

static void test_several_workers_default_to_sync(void **state)
{
    (void)state;
    Paceline__Job *job = finish_job(LEAST "workers: 4 stop { seconds: 9 }");
    assert_string_equal(job_strategy_name(job), "sync");
    assert_int_equal(job->strategy->sync->tau, 50);
    assert_false(job->stop->has_epochs);
    job_free(job);
}

static void test_parts_that_are_missing(void **state)
{
    (void)state;
    expect_refusal("", "net: is missing; give `net { zoo: \"lenet\" }` or a file");
    expect_refusal("net { }", "net: is missing; give `net { zoo: \"lenet\" }` or a file");
    expect_refusal("net { zoo: '' }", "net.zoo: is missing");
    expect_refusal("net { file: '' }", "net.file: is missing");
    expect_refusal("net { zoo: 'a' }",
                   "train_data: is missing; give a source: idx, cifar10, "
                   "cifar100, images, webdataset, lmdb, npy, csv, text, shards, zip or memory");
    expect_refusal("net { zoo: 'a' } train_data { idx { images: 'i' } }",
                   "train_data.idx.labels: is missing");
    expect_refusal("net { zoo: 'a' } train_data { idx { images: 'i' labels: 'l' } }",
                   "solver: is missing; give at least `solver { base_lr: R }`");
    expect_refusal(LEAST "test_data { scale: 2 }",
                   "test_data: is missing; give a source: idx, cifar10, cifar100, images, "
                   "webdataset, lmdb, npy, csv, text, shards, zip or memory");
    expect_refusal(LEAST "name: ''", "name: is missing");
}

static void test_numbers_out_of_range(void **state)
{
    (void)state;
    expect_refusal(LEAST "workers: 0", "workers: must be from 1 to 1024, is 0");
    expect_refusal(LEAST "workers: 1025", "workers: must be from 1 to 1024, is 1025");
    expect_refusal(LEAST "batch: 0", "batch: must be from 1 to 65536, is 0");
    expect_refusal(LEAST "batch: 65537", "batch: must be from 1 to 65536, is 65537");
    expect_refusal(LEAST "threads: 0", "threads: must be from 1 to 1024, is 0");
    expect_refusal(LEAST "threads: 1025", "threads: must be from 1 to 1024, is 1025");
    expect_refusal(LEAST "local: 0", "local: must be from 1 to 64, is 0");
    expect_refusal(LEAST "batch: 130 local: 65", "local: must be from 1 to 64, is 65");
    expect_refusal(LEAST "batch: 10 local: 4", "local: must divide batch, which is 10, is 4");
    expect_refusal(LEAST "local: 4 threads: 3", "local: must be at most threads, which is 3, is 4");
    expect_refusal(LEAST "pace: -0.5", "pace: must be >= 0, is -0.5");
    expect_refusal(LEAST "pace: nan", "pace: must be >= 0, is nan");
    expect_refusal(LEAST "pace: inf", "pace: must be a finite number, is inf");
    expect_refusal(LEAST "strategy { sync { tau: 0 } }",
                   "strategy.sync.tau: must be from 1 to 4294967295, is 0");
    expect_refusal(LEAST "collective { chunk_kb: 0 }",
                   "collective.chunk_kb: must be from 1 to 4096, is 0");
    expect_refusal(LEAST "evaluate { every_exchanges: 0 }",
                   "evaluate.every_exchanges: must be from 1 to 4294967295, is 0");
    expect_refusal(LEAST "checkpoint { every_seconds: -1 }",
                   "checkpoint.every_seconds: must be >= 0, is -1");
    expect_refusal(LEAST "checkpoint { wait_seconds: -1 }",
                   "checkpoint.wait_seconds: must be >= 0, is -1");
    expect_refusal(LEAST "checkpoint { wait_seconds: 1e10 }",
                   "checkpoint.wait_seconds: must be at most 1e9 seconds, is 1e+10");
    expect_refusal(LEAST "checkpoint { keep: 0 }", "checkpoint.keep: must be from 1 to 1000, is 0");
    expect_refusal(LEAST "stop { epochs: -1 }",
                   "stop.epochs: must be > 0, is -1; --unset stop.epochs takes it away");
    expect_refusal(
        LEAST "stop { epochs: inf }",
        "stop.epochs: must be a finite number, is inf; --unset stop.epochs takes it away");
    expect_refusal(LEAST "stop { steps: 0 }",
                   "stop.steps: must be > 0, is 0; --unset stop.steps takes it away");
    expect_refusal(LEAST "stop { seconds: 0 }",
                   "stop.seconds: must be > 0, is 0; --unset stop.seconds takes it away");
    expect_refusal(
        LEAST "stop { validation_error: nan }",
        "stop.validation_error: must be > 0, is nan; --unset stop.validation_error takes it away");
    expect_refusal(LEAST "stop { test_error: 0 }",
                   "stop.test_error: must be > 0, is 0; --unset stop.test_error takes it away");
    expect_refusal(LEAST "validation: 9 stop { validation_error: 5 }",
                   "stop.validation_error: is a share of the records, at most 1, is 5; write 0.05");
}

/* A rule without an evaluation is refused, with the evaluation that it needs. */
/* A strategy without collectives takes no field of theirs in silence; a default is no wish. */
static void test_collectives_are_used_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *strategy, *name;
    } without[] = {{"ps {}", "ps"},
                   {"downpour {}", "downpour"},
                   {"gossip {}", "gossip"},
                   {"easgd {}", "easgd"}};
    static const char *const fields[][2] = {{"algorithm: tree", "algorithm"},
                                            {"stripes: 1", "stripes"}};
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 2; k++) {
            char text[512], message[256];
            struct err err = {0};
            snprintf(text, sizeof text, LEAST "workers: 2 strategy { %s } collective { %s }",
                     without[i].strategy, fields[k][0]);
            snprintf(
                message, sizeof message,
                "collective.%s: strategy.%s uses no collectives; leave the field out, or choose "
                "another strategy",
                fields[k][1], without[i].name);
            Paceline__Job *job = parse_job(text);
            assert_int_equal(job_finish(job, &err), ERR_UNSUPPORTED);
            assert_string_equal(err.text, message);
            job_free(job);
        }
    static const char *const with[] = {"sync {}", "allreduce {}", "async_allreduce {}", "diloco {}",
                                       "easgd { mode: sync }"};
    for (size_t i = 0; i < 5; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 LEAST "workers: 2 strategy { %s } collective { wire: bf16 algorithm: tree }",
                 with[i]);
        job_free(finish_job(text));
    }
    job_free(
        finish_job(LEAST "workers: 2 strategy { ps {} } collective { wire: int8 stripes: 4 }"));
    struct err err = {0};
    Paceline__Job *job =
        parse_job(LEAST "workers: 2 strategy { gossip {} } collective { wire: bf16 }");
    assert_int_equal(job_finish(job, &err), ERR_UNSUPPORTED);
    assert_string_equal(err.text,
                        "collective.wire: strategy.gossip needs f32: it sends whole models "
                        "to members that change, and has no common one of which it could "
                        "send differences");
    job_free(job);
}

static void test_rules_that_cannot_be_judged_are_refused(void **state)
{
    (void)state;
    expect_refusal(
        LEAST "stop { validation_error: 0.1 }",
        "stop.validation_error: there is no validation data to measure it on; hold records of "
        "the training data out for it by `validation: N`");
    expect_refusal(
        LEAST "test_data { idx { images: 'i' labels: 'l' } } stop { validation_error: 0.1 }",
        "stop.validation_error: there is no validation data to measure it on; hold records of "
        "the training data out for it by `validation: N`");
    expect_refusal(LEAST "validation: 9 stop { test_error: 0.1 }",
                   "stop.test_error: there is no test data to measure it on; give test_data");
    expect_refusal(
        LEAST "evaluate { every_steps: 5 }",
        "evaluate.every_steps: there is nothing to evaluate on; hold records of the training "
        "data out by `validation: N`, or give test_data");
    expect_refusal(
        LEAST "evaluate { at_start: true }",
        "evaluate.at_start: there is nothing to evaluate on; hold records of the training data "
        "out by `validation: N`, or give test_data");
    expect_refusal(LEAST "validation: 9 evaluate { test_records: 5 }",
                   "evaluate.test_records: there is no test data; give test_data");
}

static void test_solver_and_data_numbers(void **state)
{
    (void)state;
#define REST "net { zoo: 'lenet' } train_data { idx { images: 'i' labels: 'l' } "
    expect_refusal(REST "} solver { }",
                   "solver.base_lr: is missing; give the learning rate: `base_lr: "
                   "0.01` in the job, or --lr 0.01");
    expect_refusal(REST "} solver { base_lr: -0.01 }", "solver.base_lr: must be > 0, is -0.01");
    expect_refusal(REST "} solver { base_lr: 0 }", "solver.base_lr: must be > 0, is 0");
    expect_refusal(REST "} solver { base_lr: inf }",
                   "solver.base_lr: must be a finite number, is inf");
    expect_refusal(REST "} solver { base_lr: 1 momentum: 1 }",
                   "solver.momentum: must be >= 0 and < 1, is 1");
    expect_refusal(REST "} solver { base_lr: 1 momentum2: 1 }",
                   "solver.momentum2: must be >= 0 and < 1, is 1");
    expect_refusal(REST "} solver { base_lr: 1 rms_decay: -0.5 }",
                   "solver.rms_decay: must be >= 0 and < 1, is -0.5");
    expect_refusal(REST "} solver { base_lr: 1 delta: 0 }", "solver.delta: must be > 0, is 0");
    expect_refusal(REST "} solver { base_lr: 1 delta: -1 }", "solver.delta: must be > 0, is -1");
    expect_refusal(REST "} solver { base_lr: 1 delta: inf }",
                   "solver.delta: must be a finite number, is inf");
    expect_refusal(REST "} solver { base_lr: 1 weight_decay: -1 }",
                   "solver.weight_decay: must be >= 0, is -1");
    expect_refusal(REST "} solver { base_lr: 1 power: nan }",
                   "solver.power: must be a finite number, is nan");
    expect_refusal(REST "} solver { base_lr: 1 net: 'n.prototxt' }",
                   "solver.net: name the net in `net { file: ... }` of the job instead");
    expect_refusal(REST "scale: 0 }", "train_data.scale: must not be 0");
    expect_refusal(REST "mean: 1 mean: nan }",
                   "train_data.mean[1]: must be a finite number, is nan");
#undef REST
}

static void finish_again(Paceline__Job *job)
{
    struct err err = {0};
    if (job_finish(job, &err) != OK)
        fail_msg("%s", err.text);
}

/* `batch` is the largest share, and follows from the global batch each time: it is not written. */
static void test_global_batch(void **state)
{
    (void)state;
    Paceline__Job *job = finish_job(LEAST "workers: 4 global_batch: 256");
    assert_true(job->batch == 64 && !job->has_batch && job_shares_batch(job));
    finish_again(job); /* a finished job may be finished again */
    assert_int_equal(job->batch, 64);
    job->workers = 3;
    finish_again(job);
    assert_int_equal(job->batch, 86);
    job_free(job);
    job = finish_job(LEAST "workers_min: 2 workers_max: 5 global_batch: 101 local: 4");
    assert_int_equal(job->batch, 52); /* 51, in fours */
    assert_int_equal(job_step_records(job), 52);
    job_free(job);
    job = finish_job(LEAST "global_batch: 100000");
    assert_int_equal(job->batch, 65536); /* the rest is a second part */
    job_free(job);
    job = finish_job(LEAST "batch: 32");
    assert_false(job_shares_batch(job));
    job_free(job);
    expect_refusal(LEAST "batch: 64 global_batch: 64",
                   "global_batch: `batch` is set, and one of the two may be; --unset one of them");
    expect_refusal(LEAST "workers: 3 global_batch: 2",
                   "global_batch: must be from 3 to 16777216, is 2");
    expect_refusal(LEAST "workers_max: 3 global_batch: 2",
                   "global_batch: must be from 3 to 16777216, is 2");
    expect_refusal(LEAST "global_batch: 0", "global_batch: must be from 1 to 16777216, is 0");
}

static void test_batch_growth(void **state)
{
    (void)state;
    Paceline__Job *job = finish_job(LEAST "workers: 3 stop { epochs: 12 } "
                                          "batch_growth { first: 32 last: 704 }");
    const Paceline__BatchGrowth *g = job->batch_growth;
    assert_true(g->power == 2 && g->epochs == 12 && g->has_epochs);
    assert_true(job->batch == 11 && !job->has_batch && job_shares_batch(job));
    job->stop->epochs = 20;
    finish_again(job);
    assert_true(g->epochs == 12); /* a longer run grows no slower */
    job_free(job);
    job = finish_job(LEAST "stop { steps: 9 } "
                           "batch_growth { first: 8 last: 8 power: 0.5 epochs: 1.5 }");
    assert_true(job->batch_growth->epochs == 1.5 && job->batch == 8);
    job_free(job);
#define GROWTH LEAST "workers: 4 batch_growth "
    expect_refusal(GROWTH "{ last: 64 }", "batch_growth.first: is missing");
    expect_refusal(GROWTH "{ first: 64 }", "batch_growth.last: is missing");
    expect_refusal(GROWTH "{ first: 3 last: 64 }",
                   "batch_growth.first: must be from 4 to 16777216, is 3");
    expect_refusal(GROWTH "{ first: 64 last: 63 }",
                   "batch_growth.last: must be from 64 to 16777216, is 63");
    expect_refusal(GROWTH "{ first: 64 last: 99 power: 0 }",
                   "batch_growth.power: must be > 0, is 0");
    expect_refusal(GROWTH "{ first: 64 last: 99 epochs: 0 }",
                   "batch_growth.epochs: must be > 0, is 0");
    expect_refusal(GROWTH "{ first: 64 last: 99 } stop { steps: 9 }",
                   "batch_growth.epochs: is missing; without stop.epochs it says for how long the "
                   "batch grows");
    expect_refusal(GROWTH "{ first: 64 last: 99 } iter_size: 2",
                   "iter_size: must be 1 with batch_growth, which has the records of a step, is 2");
    expect_refusal(GROWTH "{ first: 64 last: 99 } batch: 8",
                   "batch_growth: `batch` is set, and one of the two may be; --unset one of them");
    expect_refusal(GROWTH "{ first: 64 last: 99 } global_batch: 8",
                   "batch_growth: `global_batch` is set, and one of the two may be; --unset one of "
                   "them");
#undef GROWTH
}

static void test_follow_batch(void **state)
{
    (void)state;
#define FOLLOWS LEAST "workers_max: 8 batch_growth { first: 32 last: 704 } follow_batch "
    Paceline__Job *job = finish_job(FOLLOWS "{ samples_per_s: 1000 }");
    const Paceline__FollowBatch *f = job->follow_batch;
    assert_true(f->exchange_s == 0 && f->exchange_s_per_worker == 0 && f->change_s == 1);
    assert_true(f->gain == 0.05);
    job_free(job);
    job = finish_job(FOLLOWS "{ ratio: 2 ratio_form: printed }"); /* the run measures the rest */
    finish_again(job);
    job_free(job);
    expect_refusal(
        FOLLOWS "{ exchange_s: 0.1 }",
        "follow_batch.samples_per_s: is missing; exchange_s and exchange_s_per_worker need "
        "it, and without all three the run measures them");
    expect_refusal(FOLLOWS "{ ratio: 0 }", "follow_batch.ratio: must be > 0, is 0");
    expect_refusal(FOLLOWS "{ ratio_form: printed }",
                   "follow_batch.ratio: is missing; ratio_form needs it");
    expect_refusal(FOLLOWS "{ samples_per_s: 0 }", "follow_batch.samples_per_s: must be > 0, is 0");
    expect_refusal(FOLLOWS "{ samples_per_s: 1 exchange_s: -1 }",
                   "follow_batch.exchange_s: must be >= 0, is -1");
    expect_refusal(FOLLOWS "{ samples_per_s: 1 exchange_s_per_worker: nan }",
                   "follow_batch.exchange_s_per_worker: must be >= 0, is nan");
    expect_refusal(FOLLOWS "{ samples_per_s: 1 change_s: inf }",
                   "follow_batch.change_s: must be a finite number, is inf");
    expect_refusal(FOLLOWS "{ samples_per_s: 1 gain: 1 }",
                   "follow_batch.gain: must be >= 0 and < 1, is 1");
#undef FOLLOWS
    expect_refusal(LEAST "workers_max: 8 follow_batch { samples_per_s: 1 }",
                   "follow_batch: needs a batch of all workers, global_batch or batch_growth");
    expect_refusal(LEAST "workers: 8 global_batch: 64 follow_batch { samples_per_s: 1 }",
                   "workers_max: is missing; follow_batch needs it");
}

static void test_single_is_for_one_worker(void **state)
{
    (void)state;
    expect_refusal(
        LEAST "workers: 2 strategy { single {} }",
        "strategy.single: needs workers: 1, has 2; write --strategy sync, or another that is "
        "for several");
}

static void expect_override(const char *text, const char *assignment, const char *takes)
{
    struct err err = {0};
    char taken[JOB_TAKEN_MAX];
    Paceline__Job *job = parse_job(text);
    if (job_override(job, assignment, taken, &err) != OK || job_finish(job, &err) != OK)
        fail_msg("%s: %s", assignment, err.text);
    assert_string_equal(taken, takes);
    job_free(job);
}

static void test_override_takes_rivals_back(void **state)
{
    (void)state;
    expect_override(LEAST "strategy { single {} }", "workers=4", "strategy.single");
    expect_override(LEAST "strategy { single {} }", "workers=1", "");
    expect_override(LEAST "strategy { mpca {} }", "workers=4", "");
    expect_override(LEAST "workers_min: 1 workers_max: 3", "workers=2", "workers_min, workers_max");
    expect_override(LEAST "workers: 3 workers_max: 5", "workers_min=2", "workers");
    expect_override(LEAST "global_batch: 32", "batch=8", "global_batch");
    expect_override(LEAST "batch: 8", "global_batch=32", "batch");
    expect_override(LEAST "batch_growth { first: 8 last: 9 }", "batch=32", "batch_growth");
    expect_override(LEAST "stop { steps: 5 seconds: 9 }", "stop.epochs=2", "stop.steps");
    expect_override(LEAST "stop { epochs: 2 }", "stop.steps=7", "stop.epochs");
    expect_override(LEAST, "solver.base_lr=0.5", "");
    expect_refusal(LEAST "workers: 3 workers_min: 1 workers_max: 3",
                   "workers: not allowed with workers_min; --unset workers_min fixes the number, "
                   "--unset workers lets it change");
}

static void test_pause_below(void **state)
{
    (void)state;
    Paceline__Job *job = finish_job(LEAST "workers_min: 3 workers_max: 4 pause_below: 3");
    assert_true(job->pause_patience_seconds == 600);
    finish_again(job);
    job_free(job);
    expect_refusal(LEAST "workers_min: 2 workers_max: 4 pause_below: 3",
                   "pause_below: must be from 1 to 2, is 3");
    expect_refusal(LEAST "workers: 3 pause_below: 2",
                   "pause_below: needs workers_max, since no lost worker is replaced without it; "
                   "write workers_min: 3 workers_max: 3 in place of `workers`");
    expect_refusal(LEAST "workers_min: 2 workers_max: 2 pause_below: 2 pause_patience_seconds: 0",
                   "pause_patience_seconds: expected more than 0, 1e9 at most, is 0; write "
                   "pause_patience_seconds: 600");
}

static void test_stall_seconds(void **state)
{
    (void)state;
    Paceline__Job *job = finish_job(LEAST);
    assert_true(job->stall_seconds == 30);
    job_free(job);
    expect_refusal(LEAST "stall_seconds: 0.5", "stall_seconds: must be from 1 to 1e+09, is 0.5");
    expect_refusal(LEAST "stall_seconds: 2e9", "stall_seconds: must be from 1 to 1e+09, is 2e+09");
}

static void test_memory_budget(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"1048576", 1 << 20},   {"2MiB", 2 << 20}, {"1.5 GiB", 1610612736},
        {"500MB", 500000000},   {"50%", 1 << 29},  {"100%", 1 << 30},
        {"3TB", 3000000000000}, {"1%", 10737418},  {"4096kB", 4096000},
    };
    static const char *const bad[] = {"2gib",       "GiB",   "-1GiB", "0%", "101%",
                                      "1 GiB free", "5,5GB", "1e",    "%",  "9999TiB"};
    struct err err = {0};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char text[256];
        snprintf(text, sizeof text, "memory_budget: '%s'", good[i].text);
        Paceline__Job *job = parse_job(text);
        assert_int_equal(job_memory_budget(job, 1 << 30, &bytes, &err), OK);
        assert_int_equal(bytes, good[i].bytes);
        job_free(job);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[512], message[256];
        snprintf(text, sizeof text, "%s memory_budget: '%s'", LEAST, bad[i]);
        snprintf(message, sizeof message,
                 "memory_budget: expected bytes, as 6GiB or 500MB, or a share of the free memory "
                 "from 1%% to 100%%, not %s",
                 bad[i]);
        expect_refusal(text, message);
    }
    expect_refusal(LEAST "memory_budget: '1000'", "memory_budget: 1000 is less than 1 MiB");
    expect_refusal(LEAST "driver_validates: true validation: 9",
                   "driver_validates: only with local_data and validation; leave it out");
    expect_refusal(LEAST "driver_validates: true local_data: true",
                   "driver_validates: only with local_data and validation; leave it out");
    expect_refusal(LEAST "cache: memory", "memory_budget: is missing; `cache: memory` needs it");
}

static void test_strategy_by_name(void **state)
{
    (void)state;
    struct err err = {0};
    Paceline__Job *job = parse_job("strategy { sync { tau: 3 } }");
    assert_int_equal(job_set_strategy(job, "ring", &err), ERR_USAGE);
    assert_string_equal(err.text,
                        "no strategy is called `ring`; there are single, sync, allreduce, "
                        "async_allreduce, ps, downpour, easgd, mpca, gossip, diloco, pace, survey, "
                        "auto, full_batch");
    assert_int_equal(job->strategy->sync->tau, 3);
    assert_int_equal(job_set_strategy(job, "sync", &err), OK);
    assert_int_equal(job->strategy->sync->tau, 50);
    assert_int_equal(job_set_strategy(job, "allreduce", &err), OK);
    assert_string_equal(job_strategy_name(job), "allreduce");
    job_free(job);
}

static void test_set_from_the_command_line(void **state)
{
    (void)state;
    struct err err = {0};
    Paceline__Job *job = parse_job(LEAST);
    assert_int_equal(job_set(job, "stop.epochs=2", &err), OK);
    assert_true(job->stop->epochs == 2);
    assert_int_equal(job_set(job, "net.file=a=b.prototxt", &err), OK);
    assert_string_equal(job->net->file, "a=b.prototxt");
    assert_int_equal(job_set(job, "workers=-3", &err), ERR_USAGE);
    assert_int_equal(err.status, ERR_USAGE);
    assert_string_equal(err.text, "workers: expected an integer from 0 to 4294967295, not `-3`");
    assert_int_equal(job_set(job, "workers", &err), ERR_USAGE);
    assert_string_equal(err.text, "set `workers`: write FIELD=VALUE, as in batch=32");
    assert_int_equal(job_set(job, "=3", &err), ERR_USAGE);
    assert_int_equal(job_set(job, "worker=3", NULL), ERR_USAGE);
    job_free(job);
}

static void test_data_from_the_command_line(void **state)
{
    (void)state;
    struct err err = {0};
    Paceline__Data *data = NULL;
    assert_int_equal(job_set_data(&data, "idx:x", &err), ERR_USAGE);
    assert_null(data);
    assert_int_equal(job_set_data(&data, "idx:/a/i.gz,l.gz", &err), OK);
    assert_int_equal(data->source_case, PACELINE__DATA__SOURCE_IDX);
    assert_string_equal(data->idx->images, "/a/i.gz");
    assert_string_equal(data->idx->labels, "l.gz");
    assert_false(data->has_scale);
    assert_int_equal(job_set_data(&data, "idx:x,y?scale=0.0039&mean=1,2", &err), OK);
    assert_string_equal(data->idx->images, "x");
    assert_true(data->has_scale && data->scale == 0.0039f);
    assert_int_equal(data->n_mean, 2);
    assert_true(data->mean[0] == 1 && data->mean[1] == 2);
    static const char *const bad[][2] = {
        {"x,y", "x,y: expected KIND:PATH, such as idx:IMAGES,LABELS"},
        {"png:x",
         "png:x: no kind of data is called `png`; there are idx, cifar10, cifar100, images, "
         "webdataset, lmdb, npy, csv, text, shards, memory"},
        {"idx:x", "idx:x: expected idx:IMAGES,LABELS"},
        {"idx:,y", "idx:,y: expected idx:IMAGES,LABELS"},
        {"idx:x,", "idx:x,: expected idx:IMAGES,LABELS"},
        {"idx:x,y,z", "idx:x,y,z: expected idx:IMAGES,LABELS"},
        {"idx:x,y?color=bgr", "idx:x,y?color=bgr: expected after `?` some of scale=, mean=, "
                              "mean_file=, mirror=, pad=, crop=, "
                              "resize=, resize_height=, resize_width=, with `&` between them"},
        {"idx:x,y?scale", "idx:x,y?scale: expected after `?` some of scale=, mean=, mean_file=, "
                          "mirror=, pad=, crop=, "
                          "resize=, resize_height=, resize_width=, with `&` between them"},
        {"idx:x,y?scale=1&scale=2", "idx:x,y?scale=1&scale=2: scale is given twice"},
        {"idx:x,y?scale=z", "scale: expected a number that fits a float, not `z`"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(job_set_data(&data, bad[i][0], &err), ERR_USAGE);
        assert_int_equal(err.status, ERR_USAGE);
        assert_string_equal(err.text, bad[i][1]);
        assert_string_equal(data->idx->images, "x");
    }
    protobuf_c_message_free_unpacked(&data->base, NULL);
}

static void test_paths_are_relative_to_the_job(void **state)
{
    (void)state;
    struct err err = {0};
    Paceline__Job *job = parse_job("net { file: 'n.prototxt' } "
                                   "train_data { idx { images: '/abs/i' labels: 'd/l' } } "
                                   "test_data { idx { images: 'i' } }");
    assert_int_equal(job_resolve_paths(job, "jobs/a.job", &err), OK);
    assert_string_equal(job->net->file, "jobs/n.prototxt");
    assert_string_equal(job->train_data->idx->images, "/abs/i");
    assert_string_equal(job->train_data->idx->labels, "jobs/d/l");
    assert_string_equal(job->test_data->idx->images, "jobs/i");
    assert_null(job->test_data->idx->labels);
    char *folder = malloc(5000);
    assert_non_null(folder);
    memset(folder, 'x', 4990);
    strcpy(folder + 4990, "/a.job");
    assert_int_equal(job_resolve_paths(job, folder, &err), ERR_INPUT);
    assert_memory_equal(err.text, "net.file: ", 10);
    assert_string_equal(job->net->file, "jobs/n.prototxt");
    free(folder);
    job_free(job);
}

static uint64_t hash_of_job(const Paceline__Job *job)
{
    uint64_t hash = 0;
    assert_int_equal(job_hash(job, &hash, NULL), OK);
    return hash;
}

static uint64_t hash_of(const char *text)
{
    Paceline__Job *job = finish_job(text);
    uint64_t hash = hash_of_job(job);
    job_free(job);
    return hash;
}

static void test_hash_is_of_the_meaning(void **state)
{
    (void)state;
    uint64_t hash = hash_of(LEAST "seed: 3");
    assert_int_equal(hash, hash_of("seed:0x3; # said first\n" LEAST "batch: 64 name: \"job\"\n"
                                   "stop < epochs: 1.0 > strategy { single { } } "
                                   "checkpoint { keep: 3 }"));
    assert_int_not_equal(hash, hash_of(LEAST "seed: 4"));
    assert_int_not_equal(hash, hash_of(LEAST "seed: 3 pace: 0.001"));
    assert_int_not_equal(hash, hash_of(LEAST "seed: 3 strategy { allreduce {} }"));
}

static void test_a_finished_job_travels_as_text(void **state)
{
    (void)state;
    Paceline__Job *job = finish_job(LEAST "workers: 4 global_batch: 128 deterministic: true");
    char *text = as_text(job);
    Paceline__Job *peer = finish_job(text);
    assert_int_equal(hash_of_job(job), hash_of_job(peer));
    char *again = as_text(peer);
    assert_string_equal(text, again);
    free(text);
    free(again);
    job_free(job);
    job_free(peer);
}

static void test_the_example_is_a_job(void **state)
{
    (void)state;
    struct err err = {0};
    struct file_bytes file;
    if (file_read(TEST_ROOT "/examples/fashion-lenet.job", 1 << 20, &file, &err) != OK)
        fail_msg("%s", err.text);
    Paceline__Job *job = finish_job((const char *)file.data);
    assert_string_equal(job->name, "fashion-lenet");
    assert_int_equal(job->workers, 4);
    assert_int_equal(job->validation, 5000);
    assert_int_equal(job->strategy->sync->tau, 50);
    assert_true(job->stop->epochs == 5);
    assert_true(job->solver->base_lr == 0.04f && job->solver->power == 0.75f);
    assert_non_null(job->test_data);
    job_free(job);
    file_release(&file);
}

static void expect_unsupported(const char *text, const char *message)
{
    struct err err = {0};
    Paceline__Job *job = parse_job(text);
    assert_int_equal(job_finish(job, &err), ERR_UNSUPPORTED);
    assert_string_equal(err.text, message);
    job_free(job);
}

/* `reject: outliers` is honoured where contributions can be compared, or refused by name. */
static void test_outliers_are_rejected_or_the_key_is(void **state)
{
    (void)state;
    static const char *const honoured[] = {
        "sync {}",  "allreduce {}",         "diloco {}", "ps {}", "downpour {}",
        "easgd {}", "easgd { mode: sync }",
    };
    static const struct {
        const char *strategy, *message;
    } refused[] = {
        {"async_allreduce {}",
         "reject: outliers is not for strategy.async_allreduce: its workers submit models of their "
         "own, without a common base; leave it out"},
        {"mpca {}", "reject: outliers is not for strategy.mpca: a late contribution waits for the "
                    "next exchange, and a leaf's is added to its proxy's; leave it out"},
        {"pace {}", "reject: outliers is not for strategy.pace: a late contribution waits for the "
                    "next exchange, and a leaf's is added to its proxy's; leave it out"},
        {"gossip {}", "reject: outliers is not for strategy.gossip: a model that is refused takes "
                      "its share of all weights with it; leave it out"},
        {"survey {}",
         "reject: outliers is not for strategy.survey: a survey averages nothing; leave it out"},
        {"sync { seconds: 1 }",
         "reject: outliers is not for strategy.sync: rounds by the clock (strategy.sync.seconds) "
         "give fast workers a larger change; leave it out"},
    };
    char text[512];
    for (size_t i = 0; i < sizeof honoured / sizeof *honoured; i++) {
        snprintf(text, sizeof text, LEAST "workers: 4 reject: outliers strategy { %s }",
                 honoured[i]);
        job_free(finish_job(text));
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        snprintf(text, sizeof text, LEAST "workers: 4 reject: outliers strategy { %s }",
                 refused[i].strategy);
        expect_unsupported(text, refused[i].message);
    }
    expect_unsupported(
        LEAST "reject: outliers",
        "reject: outliers is not for strategy.single: a single worker is compared with "
        "nobody; leave it out");
    expect_unsupported(
        LEAST "slices: 2 reject: outliers",
        "reject: outliers is not for strategy.allreduce: slices of one model contribute "
        "parts that differ by design; leave it out");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_least_job_gets_every_part),
        cmocka_unit_test(test_several_workers_default_to_sync),
        cmocka_unit_test(test_parts_that_are_missing),
        cmocka_unit_test(test_numbers_out_of_range),
        cmocka_unit_test(test_collectives_are_used_or_refused),
        cmocka_unit_test(test_outliers_are_rejected_or_the_key_is),
        cmocka_unit_test(test_rules_that_cannot_be_judged_are_refused),
        cmocka_unit_test(test_solver_and_data_numbers),
        cmocka_unit_test(test_global_batch),
        cmocka_unit_test(test_batch_growth),
        cmocka_unit_test(test_follow_batch),
        cmocka_unit_test(test_single_is_for_one_worker),
        cmocka_unit_test(test_override_takes_rivals_back),
        cmocka_unit_test(test_pause_below),
        cmocka_unit_test(test_stall_seconds),
        cmocka_unit_test(test_memory_budget),
        cmocka_unit_test(test_strategy_by_name),
        cmocka_unit_test(test_set_from_the_command_line),
        cmocka_unit_test(test_data_from_the_command_line),
        cmocka_unit_test(test_paths_are_relative_to_the_job),
        cmocka_unit_test(test_hash_is_of_the_meaning),
        cmocka_unit_test(test_a_finished_job_travels_as_text),
        cmocka_unit_test(test_the_example_is_a_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
