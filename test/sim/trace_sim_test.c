/* Traces of simulated runs: their sums, and that they change nothing. */
#include "sim_run.h"
#include "trace_events.h"
#include "world/trace.h"

/* Powers of two would hide a rounding; a step of 4 ms is a whole number of ns. */
enum { STEP_NS = 4000000, BATCH_EVAL_NS = 1333333, LOG = 4096 };

static const char calm[] = "node { count: 4 } step_seconds: 0.004 link { mbit: 100 }\n";

static void add_warning(void *user, pl_log_level level, const char *line)
{
    char *log = user;
    size_t n = strlen(log);
    if (level >= PL_LOG_WARN)
        snprintf(log + n, LOG - n, "%s\n", line);
}

static bool same_bytes(const char *a, const char *b)
{
    char command[512];
    snprintf(command, sizeof command, "cmp -s '%s' '%s'", a, b);
    return system(command) == 0;
}

static int64_t latest_end(const struct trace_events *t)
{
    int64_t end = 0;
    for (size_t i = 0; i < t->count; i++)
        end = t->at[i].end > end ? t->at[i].end : end;
    return end;
}

/* 600 records less 60 for validation; 3 epochs of 540 by 4 workers with 16: 26 steps each, the last
 * round with two. */
static void test_steps_are_all_there_and_cost_what_they_cost(void **state)
{
    struct tiny *t = *state;
    static const char *const jobs[] = {"strategy.sync.tau=4", "strategy.allreduce={}"};
    for (size_t j = 0; j < 2; j++) {
        char log[LOG] = "";
        struct sim_run r = {.traced = true,
                            .engine = {.log = add_warning, .user = log, .log_level = PL_LOG_INFO}};
        struct trace_events trace;
        int64_t total;
        SIM(t, calm, &r, jobs[j]);
        trace_read(r.trace, &trace);
        trace_nests(&trace); /* compute has a row of its own: none overlap */
        for (int w = 0; w < 4; w++) {
            assert_int_equal(trace_count(&trace, TRACE_WORKER + w, "compute", &total), 26);
            assert_true(total == 26 * (int64_t)STEP_NS);
            assert_int_equal(trace_count(&trace, TRACE_WORKER + w, "exchange", NULL),
                             j == 0 ? 7 : 26);
        }
        assert_int_equal(trace_count(&trace, TRACE_DRIVER, "compute", NULL), 0);
        /* wall_s is taken when all is done. */
        assert_true(latest_end(&trace) <= (int64_t)(r.report.wall_s * 1e9 + 0.5));
        assert_string_equal(log, "");
        trace_release(&trace);
    }
}

/* The waits in an exchange's event equal those in its spans. */
static void test_waits_are_those_of_the_events(void **state)
{
    struct tiny *t = *state;
    struct sim_run r = {.traced = true};
    struct trace_events trace;
    SIM(t,
        "node { count: 3 } node { speed: 0.5 } step_seconds: 0.004\n"
        "link { mbit: 100 }\n",
        &r, "stop.epochs=1", "strategy.allreduce={}");
    trace_read(r.trace, &trace);
    trace_nests(&trace);
    char path[160];
    snprintf(path, sizeof path, "%s/events.jsonl", r.dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    int exchanges = 0;
    for (char line[2048]; fgets(line, sizeof line, f);) {
        cJSON *event = cJSON_Parse(line);
        if (strcmp(cJSON_GetObjectItem(event, "kind")->valuestring, "exchange") == 0) {
            int n = trace_int(event, "n");
            int64_t most = 0;
            for (int w = 0; w < 4; w++) { /* the event has the longest of any member */
                int64_t sum = 0;
                for (size_t i = 0; i < trace.count; i++)
                    if (trace.at[i].pid == TRACE_WORKER + w &&
                        strcmp(trace.at[i].name, "wait") == 0 &&
                        trace_int(trace.at[i].args, "exchange") == n)
                        sum += trace.at[i].end - trace.at[i].start;
                most = sum > most ? sum : most;
            }
            double text = cJSON_GetObjectItem(event, "waited_s")->valuedouble;
            assert_true(most == (int64_t)(text * 1e9 + 0.5));
            exchanges++;
        }
        cJSON_Delete(event);
    }
    fclose(f);
    assert_int_equal(exchanges, 9);
    trace_release(&trace);
}

/* The bytes that leave are those of the vectors: 7 exchanges of 560 floats up and down a tree of
 * five, whose four edges each carry the vector twice. */
static void test_every_byte_that_leaves_is_in_a_span(void **state)
{
    struct tiny *t = *state;
    struct sim_run r = {.traced = true};
    struct trace_events trace;
    SIM(t, calm, &r, "collective.algorithm=tree");
    trace_read(r.trace, &trace);
    int64_t bytes = 0, models = 0;
    for (size_t i = 0; i < trace.count; i++)
        if (strcmp(trace.at[i].name, "send") == 0) {
            bool lane = strncmp(trace.at[i].row, "lane 0 to ", 10) == 0;
            *(lane ? &bytes : &models) += trace_int(trace.at[i].args, "bytes");
            assert_string_equal(strstr(trace.at[i].row, " to ") + 4,
                                cJSON_GetObjectItem(trace.at[i].args, "peer")->valuestring);
        }
    assert_int_equal(bytes, 7 * 4 * 2 * 560 * 4);
    assert_int_equal(models, 0); /* the driver has the model */
    trace_release(&trace);
}

/* A third of a step a batch: 60 validation and 120 test records are 4 and 8 batches. */
static void test_evaluations_are_the_drivers(void **state)
{
    struct tiny *t = *state;
    struct sim_run r = {.traced = true};
    struct trace_events trace;
    int64_t total;
    SIM(t, calm, &r, "stop.epochs=1", "evaluate.every_exchanges=100");
    trace_read(r.trace, &trace);
    assert_int_equal(trace_count(&trace, 0, "evaluate", NULL), 2);
    assert_int_equal(trace_count(&trace, TRACE_DRIVER, "evaluate", &total), 2);
    assert_true(total == 12 * (int64_t)BATCH_EVAL_NS);
    trace_release(&trace);
}

static const char rough[] =
    "node { count: 3 } node { speed: 0.5 jitter: 0.1 } step_seconds: 0.004\n"
    "link { mbit: 100 latency_us: 200 loss: 0.001 }\n"
    "fault { at: 0.05 slow: 1 factor: 3 for: 0.1 }\n"
    "fault { at: 0.12 kill: 2 }\n";

static void test_equal_runs_have_equal_traces(void **state)
{
    struct tiny *t = *state;
    struct sim_run a = {.traced = true}, b = {.traced = true},
                   c = {.traced = true, .threads = true}, d = {.traced = true};
    SIM(t, rough, &a, "seed=7");
    SIM(t, rough, &b, "seed=7");
    SIM(t, rough, &c, "seed=7");
    SIM(t, rough, &d, "seed=8");
    assert_true(same_bytes(a.trace, b.trace));
    assert_true(same_bytes(a.trace, c.trace)); /* carried by threads */
    assert_false(same_bytes(a.trace, d.trace));
}

/* Watching costs no virtual time, whatever happens. */
static void test_a_trace_changes_nothing_of_the_run(void **state)
{
    struct tiny *t = *state;
    static const char *const jobs[][4] = {
        {"seed=7", NULL},
        {"seed=8", "strategy.allreduce={}", "stop.epochs=1", NULL},
    };
    static const char *const clusters[] = {calm, rough};
    for (size_t i = 0; i < 4; i++) {
        struct sim_run with = {.traced = true}, without = {0};
        char events[2][160];
        sim_do(t, clusters[i / 2], &with, jobs[i % 2]);
        sim_do(t, clusters[i / 2], &without, jobs[i % 2]);
        snprintf(events[0], sizeof events[0], "%s/events.jsonl", with.dir);
        snprintf(events[1], sizeof events[1], "%s/events.jsonl", without.dir);
        assert_true(same_bytes(events[0], events[1]));
    }
}

/* Worker 2 is killed at 0.12 s: its spans end there, and the others wait and continue. */
static void test_the_killed_have_spans_until_they_die(void **state)
{
    struct tiny *t = *state;
    struct sim_run r = {.traced = true};
    struct trace_events trace;
    SIM(t, rough, &r, "seed=7");
    trace_read(r.trace, &trace);
    trace_nests(&trace);
    int64_t last[4] = {0}, longest = 0;
    for (size_t i = 0; i < trace.count; i++) {
        const struct trace_event *e = &trace.at[i];
        int w = e->pid - TRACE_WORKER;
        if (w >= 0 && e->end > last[w])
            last[w] = e->end;
        if (w == 0 && strcmp(e->name, "wait") == 0 && e->end - e->start > longest)
            longest = e->end - e->start;
    }
    assert_true(last[2] > 100000000 && last[2] <= 120000000);
    assert_true(last[0] > 200000000);
    assert_true(longest > 5000000); /* the driver has to notice first */
    trace_release(&trace);
}

/* A round of more steps than the buffer has room for: missing spans are counted and logged. */
static void test_a_buffer_that_is_full_is_logged(void **state)
{
    struct tiny *t = *state;
    char log[LOG] = "";
    struct sim_run r = {.traced = true,
                        .engine = {.log = add_warning, .user = log, .log_level = PL_LOG_INFO}};
    struct trace_events trace;
    int steps = TRACE_SPANS + 100;
    char tau[64], stop[64], expected[128];
    snprintf(tau, sizeof tau, "strategy.sync.tau=%d", steps);
    snprintf(stop, sizeof stop, "stop.steps=%d", steps);
    SIM(t, calm, &r, tau, stop, "stop.epochs=1000000", "batch=1", "workers=1");
    trace_read(r.trace, &trace);
    size_t computes = trace_count(&trace, TRACE_WORKER, "compute", NULL);
    size_t rest = trace.count - computes - trace_count(&trace, TRACE_DRIVER, "evaluate", NULL);
    assert_int_equal(computes, TRACE_SPANS); /* the oldest are kept */
    assert_int_equal(rest, trace_count(&trace, TRACE_DRIVER, "exchange", NULL) +
                               trace_count(&trace, TRACE_DRIVER, "wait", NULL) +
                               trace_count(&trace, TRACE_DRIVER, "send", NULL));
    unsigned long long missing = 0;
    assert_int_equal(sscanf(log, "worker 0: the trace lacks %llu spans", &missing), 1);
    assert_true(missing >= 100 && missing < 120);
    snprintf(expected, sizeof expected,
             "worker 0: the trace lacks %llu spans, for which there was no room\n", missing);
    assert_string_equal(log, expected);
    trace_release(&trace);
}

static void test_a_bad_path_is_an_error_before_training(void **state)
{
    struct sim_run r = {.run = {.trace = "/missing/trace.json"}};
    SIM_TRY(*state, calm, &r, NULL);
    assert_int_equal(r.rc, PL_ERR_USAGE);
    assert_non_null(strstr(r.error, "/missing/trace.json"));
    assert_int_equal(access(r.dir, F_OK), -1); /* nothing was begun */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_are_all_there_and_cost_what_they_cost),
        cmocka_unit_test(test_waits_are_those_of_the_events),
        cmocka_unit_test(test_every_byte_that_leaves_is_in_a_span),
        cmocka_unit_test(test_evaluations_are_the_drivers),
        cmocka_unit_test(test_equal_runs_have_equal_traces),
        cmocka_unit_test(test_a_trace_changes_nothing_of_the_run),
        cmocka_unit_test(test_the_killed_have_spans_until_they_die),
        cmocka_unit_test(test_a_buffer_that_is_full_is_logged),
        cmocka_unit_test(test_a_bad_path_is_an_error_before_training),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
