/* The strategy `auto`: a plan chooses before a run begins, on a cluster file or on measurements of
 * the run's own workers, and a run that is resumed keeps the choice. */
#include "free_port.h"
#include "process.h"
#include "real_run.h"
#include "refusal.h"

#include <cjson/cJSON.h>

static const char equal[] = "node { count: 3 } step_seconds: 0.004\n"
                            "link { mbit: 1000 latency_us: 100 }\n";
static const char one_fast[] = "node {} node { count: 2 speed: 0.005 } step_seconds: 0.004\n"
                               "link { mbit: 1000 latency_us: 100 }\n";

static const char *text_of(const cJSON *object, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(object, key));
    if (!text)
        fail_msg("no `%s`", key);
    return text;
}

/* The strategy that the run in `dir` began with, and its number of workers. */
static const char *strategy_of(const char *dir, int *workers)
{
    static char name[32];
    cJSON *start = run_event(dir, "start", NULL, NULL, 0);
    assert_non_null(start);
    snprintf(name, sizeof name, "%s", text_of(start, "strategy"));
    *workers = cJSON_GetObjectItem(start, "nodes")->valueint;
    assert_non_null(strstr(text_of(start, "chosen"), name));
    assert_non_null(strstr(text_of(start, "chosen"), "samples/s"));
    cJSON_Delete(start);
    return name;
}

/* The best row of `plan`. */
static const char *best_of(const struct tiny *t, int *workers)
{
    static char name[32];
    struct process p;
    RUN(t, &p, "plan", t->job, "--cluster", t->cluster, "--set", "strategy.auto={}", "--json");
    cJSON *plan = cJSON_Parse(p.out);
    int best = cJSON_GetObjectItem(plan, "best")->valueint;
    const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(plan, "rows"), best);
    snprintf(name, sizeof name, "%s", text_of(row, "strategy"));
    *workers = cJSON_GetObjectItem(row, "workers")->valueint;
    cJSON_Delete(plan);
    process_release(&p);
    return name;
}

static void expect_choice(struct tiny *t, const char *cluster, int least, int most)
{
    char dir[128];
    int planned, had;
    tiny_cluster(t, cluster);
    EXECUTE(t, "sim", t->job, dir, "workers=3", "strategy.auto={}", "stop={ steps: 40 }");
    const char *expected = best_of(t, &planned), *name = strategy_of(dir, &had);
    assert_string_equal(name, expected);
    assert_int_equal(had, planned);
    assert_in_range(had, least, most);
    assert_int_equal(run_count(dir, "end", NULL, NULL), 1);
}

/* The simulated run has the strategy and the workers of the plan's best row. */
static void test_auto_takes_the_best_row(void **state)
{
    expect_choice(*state, equal, 2, 3);
}

/* Two machines that add a hundredth are left out. */
static void test_auto_may_choose_fewer_workers(void **state)
{
    expect_choice(*state, one_fast, 1, 1);
}

/* Its own workers are measured, then others train; the directory's job has the choice. */
static void test_auto_measures_its_workers(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char dir[128], chosen[32];
    int workers, before;
    tiny_out(t, dir);
    RUN(t, &p, "train", t->job, "--out", dir, "--strategy", "auto", "--set", "workers=2", "--set",
        "stop={ steps: 60 }");
    assert_non_null(strstr(p.err, "chosen: "));
    assert_non_null(strstr(p.err, "ms a step, link "));
    process_release(&p);
    snprintf(chosen, sizeof chosen, "%s", strategy_of(dir, &before));
    assert_in_range(before, 1, 2);
    const char *resume[] = {"train",
                            t->job,
                            "--out",
                            dir,
                            "--resume",
                            "--strategy",
                            "auto",
                            "--set",
                            "workers=2",
                            "--set",
                            "stop={ steps: 120 }",
                            NULL};
    run_command(t, &p, resume);
    assert_null(strstr(p.err, "chosen: "));
    process_release(&p);
    cJSON *start = run_event(dir, "start", NULL, NULL, 1);
    assert_string_equal(text_of(start, "strategy"), chosen);
    workers = cJSON_GetObjectItem(start, "nodes")->valueint;
    assert_int_equal(workers, before);
    cJSON_Delete(start);
}

/* A file of the cluster spares the measurement. */
static void test_auto_reads_a_cluster(void **state)
{
    struct tiny *t = *state;
    struct process p;
    char dir[128];
    int workers;
    tiny_write(t, "here.cluster", one_fast);
    tiny_out(t, dir);
    RUN(t, &p, "train", t->job, "--out", dir, "--set", "workers=3", "--set",
        "strategy.auto={ cluster: 'here.cluster' }", "--set", "stop={ steps: 20 }");
    assert_null(strstr(p.err, "ms a step, link "));
    process_release(&p);
    assert_string_equal(strategy_of(dir, &workers), "single");
}

static void test_auto_refusals(void **state)
{
    struct tiny *t = *state;
    char address[PORT_TEXT];
    port_find(address);
    REFUSED(t, "the workers cannot be measured before the run: paceline plan --listen", "driver",
            t->job, "--strategy", "auto", "--listen", address);
    REFUSED(t, "none.cluster: cannot open", "train", t->job, "--set",
            "strategy.auto={ cluster: 'none.cluster' }");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_takes_the_best_row),
        cmocka_unit_test(test_auto_may_choose_fewer_workers),
        cmocka_unit_test(test_auto_measures_its_workers),
        cmocka_unit_test(test_auto_reads_a_cluster),
        cmocka_unit_test(test_auto_refusals),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
