/* Workers with records of their own (local_data): every strategy trains on them, the samples of
 * each set are counted, a set whose only owner dies is missed by name until another worker has
 * it, and the counts add up after deaths, joins, a death of the driver, and a resume. */
#include "sim_run.h"

#include <math.h>

static const char *const strategies[] = {
    "strategy.sync={tau:4}", "strategy.allreduce={}", "strategy.async_allreduce={}",
    "strategy.diloco={}",    "strategy.easgd={}",     "strategy.mpca={}",
    "strategy.gossip={}",    "strategy.ps={}",        "strategy.ps={servers:2}",
    "strategy.downpour={}",  "strategy.pace={}",
};

enum { STRATEGIES = sizeof strategies / sizeof *strategies, OWNERS = 4 };

/* Of the tiny job, without those held out; and of each owner. */
enum { ALL = TINY_TRAIN - 60, SET = ALL / OWNERS };

#define FOUR "node { count: 8 } link { mbit: 1000 latency_us: 50 } step_seconds: 0.01 "

/* The `records` events of the last session, added up; and the samples used by its `end`. */
struct sums {
    double used, due, repeated, missed, records;
    int sets, served;
    double least, most; /* used, of one set */
    double run;         /* samples */
    double epoch_steps; /* of the `start` event */
};

static double number_of(const cJSON *event, const char *key)
{
    const cJSON *value = cJSON_GetObjectItem(event, key);
    assert_true(cJSON_IsNumber(value));
    return value->valuedouble;
}

static void add_event(struct sums *sums, const cJSON *event)
{
    const char *kind = cJSON_GetStringValue(cJSON_GetObjectItem(event, "kind"));
    if (strcmp(kind, "start") == 0)
        *sums = (struct sums){.least = INFINITY, .epoch_steps = number_of(event, "steps_an_epoch")};
    if (strcmp(kind, "end") == 0)
        sums->run = number_of(event, "used");
    if (strcmp(kind, "records") != 0)
        return;
    double used = number_of(event, "used");
    sums->used += used;
    sums->due += number_of(event, "due");
    sums->repeated += number_of(event, "repeated");
    sums->missed += number_of(event, "missed");
    sums->records += number_of(event, "records");
    sums->sets++;
    sums->served += cJSON_IsTrue(cJSON_GetObjectItem(event, "served"));
    sums->least = fmin(sums->least, used);
    sums->most = fmax(sums->most, used);
    assert_non_null(strstr(cJSON_GetStringValue(cJSON_GetObjectItem(event, "path")), "train"));
}

static struct sums sum_up(const struct sim_run *r)
{
    struct sums sums = {.least = INFINITY};
    char path[256], line[8192];
    snprintf(path, sizeof path, "%s/events.jsonl", r->dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        cJSON *event = cJSON_Parse(line);
        assert_non_null(event);
        add_event(&sums, event);
        cJSON_Delete(event);
    }
    fclose(f);
    return sums;
}

/* Taken and missed samples are those that are due and the repeated ones; of the run's samples,
 * `unreported` at most died with a worker that had not reported them. */
static void check_sums(const struct sums *sums, const char *what, double unreported)
{
    if (fabs(sums->used + sums->missed - sums->repeated - sums->due) > sums->sets)
        fail_msg("%s: %.0f used, %.0f missed, %.0f repeated; %.0f due", what, sums->used,
                 sums->missed, sums->repeated, sums->due);
    if (sums->used > sums->run || sums->used + unreported < sums->run)
        fail_msg("%s: %.0f used of the sets, %.0f by the run", what, sums->used, sums->run);
}

static void test_each_strategy_takes_the_workers_own_records(void **state)
{
    for (size_t i = 0; i < STRATEGIES; i++) {
        struct sim_run r = {.limit_s = 100};
        SIM(*state, FOUR, &r, strategies[i], "local_data=true", "solver.momentum=0", "workers=4",
            "stop.epochs=8", "batch=8");
        const struct sums sums = sum_up(&r);
        check_sums(&sums, strategies[i], 0);
        assert_true(sums.sets == OWNERS && sums.served == OWNERS && sums.records == ALL);
        print_message("    %s: error %.3f, sets used %g to %g\n", strategies[i],
                      r.report.test_error, sums.least, sums.most);
        /* Asynchronous workers end at different steps, and the last one has taken a few more. */
        assert_true(sums.least >= 8 * SET - 64 && sums.most <= 8 * SET + 256);
        assert_true(r.report.test_error < 0.34);
    }
}

static void test_the_same_run_has_the_same_bits(void **state)
{
    struct sim_run a = {.limit_s = 100}, b = a, shared = a;
    SIM(*state, FOUR, &a, "strategy.mpca={}", "local_data=true", "solver.momentum=0", "workers=4",
        "stop.epochs=2");
    SIM(*state, FOUR, &b, "strategy.mpca={}", "local_data=true", "solver.momentum=0", "workers=4",
        "stop.epochs=2");
    SIM(*state, FOUR, &shared, "strategy.mpca={}", "workers=4", "stop.epochs=2");
    assert_true(run_same_bits(a.dir, b.dir, "final.safetensors"));
    assert_false(run_same_bits(a.dir, shared.dir, "final.safetensors"));
}

static void test_a_dead_owner_s_records_are_missed(void **state)
{
    for (size_t i = 0; i < STRATEGIES; i++) {
        struct sim_run r = {.limit_s = 100};
        SIM(*state, FOUR "fault { at: 0.4 kill: 2 }", &r, strategies[i], "local_data=true",
            "solver.momentum=0", "workers=4", "stop.epochs=8", "batch=8");
        const struct sums sums = sum_up(&r);
        check_sums(&sums, strategies[i], 500);
        assert_true(sums.sets == OWNERS && sums.served == OWNERS - 1);
        assert_true(sums.least < 4 * SET && sums.most > 8 * SET);
        assert_int_equal(r.report.missed, sums.missed);
        assert_int_equal(r.report.repeated, sums.repeated);
        assert_true(r.report.missed > 4 * SET);
    }
}

/* Worker 5, which has the same records, takes the place of worker 0. */
static void test_a_replacement_brings_the_records_back(void **state)
{
    int replaced = 0;
    for (size_t i = 0; i < STRATEGIES; i++) {
        struct sim_run r = {.limit_s = 100};
        SIM(*state, FOUR "fault { at: 0.4 kill: 0 }", &r, strategies[i], "local_data=true",
            "solver.momentum=0", "workers_min=4", "workers_max=5", "epoch_records=540",
            "stop.epochs=12", "batch=8");
        const struct sums sums = sum_up(&r);
        bool joined = run_count(r.dir, "member", "what", "join") == 6;
        check_sums(&sums, strategies[i], 700);
        replaced += joined;
        if (joined ? sums.sets != 5 || sums.served != 5 : sums.served != sums.sets - 1)
            fail_msg("%s: %d sets, %d served", strategies[i], sums.sets, sums.served);
    }
    assert_true(replaced >= 6); /* no worker can join a run of the others */
}

/* The driver dies as well, and has a checkpoint or none. */
static void test_a_recovered_driver_continues_the_counts(void **state)
{
    for (size_t i = 0; i < STRATEGIES; i++)
        for (int saves = 0; saves < 2; saves++) {
            struct sim_run r = {.limit_s = 100};
            SIM(*state, FOUR "fault { at: 0.4 kill: 2 } fault { at: 0.6 kill: -1 for: 0.1 }", &r,
                strategies[i], "local_data=true", "solver.momentum=0", "workers=4", "stop.epochs=8",
                "batch=8", saves ? "checkpoint.every_seconds=0.05" : "checkpoint.every_seconds=0");
            const struct sums sums = sum_up(&r);
            /* Without a checkpoint nobody knows what the dead worker had taken. */
            check_sums(&sums, strategies[i], saves ? 900 : 2000);
            if (sums.served != OWNERS - 1 || sums.sets < OWNERS - 1)
                fail_msg("%s: %d sets, %d served", strategies[i], sums.sets, sums.served);
        }
}

/* The driver's own records do not count: they may be a sample. */
static void test_a_run_starts_with_the_epoch_of_its_job(void **state)
{
    struct sim_run r = {.limit_s = 100};
    SIM(*state, FOUR, &r, "strategy.sync={tau:4}", "local_data=true", "workers=4", "batch=8",
        "epoch_records=6400", "stop.epochs=0.1");
    assert_true(sum_up(&r).epoch_steps == 200);
}

static void test_a_resumed_run_continues_the_counts(void **state)
{
    struct sim_run r = {.limit_s = 100};
    SIM(*state, FOUR, &r, "strategy.sync={tau:4}", "local_data=true", "solver.momentum=0",
        "workers=4", "stop.epochs=2", "batch=8");
    SIM(*state, FOUR, &r, "strategy.sync={tau:4}", "local_data=true", "solver.momentum=0",
        "workers=2", "stop.epochs=4", "batch=8");
    const struct sums sums = sum_up(&r);
    check_sums(&sums, "resumed", 0);
    /* Two workers have the halves, which are other sets; the quarters are missed. */
    assert_true(sums.sets == OWNERS + 2 && sums.served == 2 && sums.records == 2 * ALL);
    assert_true(sums.run >= 4 * ALL && sums.least >= 2 * SET);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_strategy_takes_the_workers_own_records),
        cmocka_unit_test(test_the_same_run_has_the_same_bits),
        cmocka_unit_test(test_a_dead_owner_s_records_are_missed),
        cmocka_unit_test(test_a_replacement_brings_the_records_back),
        cmocka_unit_test(test_a_recovered_driver_continues_the_counts),
        cmocka_unit_test(test_a_run_starts_with_the_epoch_of_its_job),
        cmocka_unit_test(test_a_resumed_run_continues_the_counts),
    };
    return cmocka_run_group_tests(tests, tiny_setup_elastic, tiny_teardown);
}
