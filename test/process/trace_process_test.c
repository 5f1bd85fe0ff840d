/* Traces of real runs: rows of all nodes, whatever becomes of them; and paths that cannot be. */
#include "real_run.h"
#include "refusal.h"
#include "trace_events.h"
#include "world/trace.h"

#include <sys/stat.h>

struct traced {
    struct real_run run;
    char path[160];
};

/* The run directory and the trace lie in one folder. */
static void traced_new(struct tiny *t, struct traced *r)
{
    *r = (struct traced){.run = real_new(t)};
    snprintf(r->path, sizeof r->path, "%s.json", r->run.dir);
}

/* Every node's row has its name, and whole spans within the run. */
static void check_rows(struct traced *r, double seconds, size_t nodes, struct trace_events *trace)
{
    trace_read(r->path, trace);
    trace_nests(trace);
    size_t found = 0;
    for (int pid = TRACE_DRIVER; pid < TRACE_WORKER + 8; pid++) {
        bool is_there = false;
        for (size_t i = 0; i < trace->count; i++)
            is_there |= trace->at[i].pid == pid;
        if (!is_there)
            continue;
        char expected[32] = "driver";
        if (pid >= TRACE_WORKER)
            snprintf(expected, sizeof expected, "worker %d", pid - TRACE_WORKER);
        assert_string_equal(trace_name(trace->all, NULL, "process_name", pid, 0), expected);
        found++;
    }
    assert_int_equal(found, nodes);
    for (size_t i = 0; i < trace->count; i++)
        assert_true(trace->at[i].end < (int64_t)(seconds * 1e9));
}

static void test_driver_and_workers_have_rows(void **state)
{
    struct tiny *t = *state;
    static const char *const jobs[] = {"strategy.sync.tau=4", "strategy.allreduce={}"};
    for (size_t j = 0; j < 2; j++) {
        struct traced r;
        struct trace_events trace;
        double start = process_now();
        traced_new(t, &r);
        START(t, &r.run, "--workers", "2", "--set", jobs[j], "--set", "stop.steps=40", "--set",
              "stop.epochs=1000", "--trace", r.path);
        real_end(&r.run, 0, "steps");
        check_rows(&r, process_now() - start, 3, &trace);
        for (int w = 0; w < 2; w++) {
            int64_t computed, pid = TRACE_WORKER + w;
            assert_int_equal(trace_count(&trace, (int)pid, "compute", &computed), 40);
            assert_int_equal(trace_count(&trace, (int)pid, "exchange", NULL), j == 0 ? 10 : 40);
            assert_true(trace_count(&trace, (int)pid, "send", NULL) > 0);
            assert_true(computed < (int64_t)((process_now() - start) * 1e9));
        }
        assert_true(trace_count(&trace, 0, "wait", NULL) > 0);
        assert_true(trace_count(&trace, 0, "copy", NULL) > 0);
        assert_true(trace_count(&trace, TRACE_DRIVER, "evaluate", NULL) >= 2);
        assert_null(strstr(r.run.p.err, "trace"));
        trace_release(&trace);
        process_release(&r.run.p);
    }
}

/* Bytes of the copies that the first worker's training stood still for. */
static double copied_bytes(const struct trace_events *trace)
{
    double bytes = 0;
    for (size_t i = 0; i < trace->count; i++) {
        const struct trace_event *e = &trace->at[i];
        if (e->pid == TRACE_WORKER && strcmp(e->name, "copy") == 0 && strcmp(e->row, "steps") == 0)
            bytes += cJSON_GetObjectItem(e->args, "bytes")->valuedouble;
    }
    return bytes;
}

/* Phases of exchanges that pass through the driver: it prepares each result, and all nodes reduce
 * and broadcast. The last exchange of a lane may be cancelled. */
static void check_phases(const struct trace_events *trace)
{
    enum { LANES = 12 };
    for (int node = 0; node < 3; node++) {
        int pid = node == 2 ? TRACE_DRIVER : TRACE_WORKER + node;
        size_t exchanges = trace_count(trace, pid, "exchange", NULL);
        size_t reduced = trace_count(trace, pid, "reduce", NULL);
        size_t spread = trace_count(trace, pid, "broadcast", NULL);
        size_t prepared = trace_count(trace, pid, "prepare", NULL);
        assert_true(exchanges > 0 && reduced + LANES >= exchanges && reduced <= exchanges + LANES);
        assert_true(spread + LANES >= reduced && spread <= reduced);
        assert_true(node == 2 ? prepared >= spread && prepared <= reduced : prepared == 0);
    }
}

/* Each strategy's own copies have spans, with the bytes of several models. */
static void test_copies_of_strategies_have_spans(void **state)
{
    static const char *const jobs[] = {
        "sync={tau:4}",
        "allreduce={}",
        "async_allreduce={}",
        "diloco={tau:4}",
        "diloco={tau:6 fragments:3}",
        "easgd={mode:sync tau:4}",
        "easgd={tau:4}",
        "ps={}",
        "ps={servers:2}",
        "downpour={n_push:2 n_fetch:2}",
        "gossip={p:0.5}",
        "mpca={}",
        "pace={}",
    };
    enum { MODELS = 5 };
    struct tiny *t = *state;
    for (size_t j = 0; j < sizeof jobs / sizeof *jobs; j++) {
        struct traced r;
        struct trace_events trace;
        char set[96], model[256];
        struct stat file;
        traced_new(t, &r);
        snprintf(set, sizeof set, "strategy.%s", jobs[j]);
        START(t, &r.run, "--workers", "2", "--set", set, "--set", "solver.momentum=0", "--set",
              "stop.steps=60", "--set", "stop.epochs=1000", "--set", "pace=0.001", "--trace",
              r.path);
        real_end(&r.run, 0, "steps");
        trace_read(r.path, &trace);
        trace_nests(&trace);
        if (strncmp(jobs[j], "mpca", 4) == 0 || strncmp(jobs[j], "pace", 4) == 0)
            check_phases(&trace);
        snprintf(model, sizeof model, "%s/final.safetensors", r.run.dir);
        assert_int_equal(stat(model, &file), 0);
        if (copied_bytes(&trace) < MODELS * (double)file.st_size)
            fail_msg("%s: copies of %.0f bytes, and the file of the model has %.0f", jobs[j],
                     copied_bytes(&trace), (double)file.st_size);
        trace_release(&trace);
        process_release(&r.run.p);
    }
}

/* More steps than the buffer has room for: they are sent on the way. */
static void test_a_long_run_is_sent_in_parts(void **state)
{
    struct tiny *t = *state;
    struct traced r;
    struct trace_events trace;
    char steps[64];
    double start = process_now();
    traced_new(t, &r);
    snprintf(steps, sizeof steps, "stop.steps=%d", TRACE_SPANS + 1000);
    START(t, &r.run, "--workers", "1", "--strategy", "single", "--set", "batch=1", "--set", steps,
          "--set", "stop.epochs=1000000", "--trace", r.path);
    real_end(&r.run, 0, "steps");
    check_rows(&r, process_now() - start, 2, &trace);
    assert_int_equal(trace_count(&trace, TRACE_WORKER, "compute", NULL), TRACE_SPANS + 1000);
    assert_null(strstr(r.run.p.err, "trace"));
    trace_release(&trace);
    process_release(&r.run.p);
}

static void test_it_may_lie_in_the_run_directory(void **state)
{
    struct tiny *t = *state;
    struct traced r;
    struct trace_events trace;
    double start = process_now();
    traced_new(t, &r);
    snprintf(r.path, sizeof r.path, "%s/trace.json", r.run.dir);
    START(t, &r.run, "--workers", "1", "--strategy", "single", "--trace", r.path);
    real_end(&r.run, 0, "epochs");
    check_rows(&r, process_now() - start, 2, &trace);
    trace_release(&trace);
    process_release(&r.run.p);
}

/* A killed worker cannot send its trace; the others can. */
static void test_a_worker_that_is_killed(void **state)
{
    struct tiny *t = *state;
    struct traced r;
    struct trace_events trace;
    pid_t child[PROCESS_CHILDREN_MAX];
    double start = process_now();
    traced_new(t, &r);
    START(t, &r.run, "--workers", "3", "--set", "pace=0.01", "--set", "stop.epochs=20", "--trace",
          r.path);
    real_workers(&r.run, 3, child);
    UNTIL(REAL_LIMIT_S, real_exchanges(&r.run) >= 3);
    kill(child[2], SIGKILL);
    UNTIL(REAL_LIMIT_S, real_members(&r.run, "dead") == 1);
    int exchanges = real_exchanges(&r.run);
    UNTIL(REAL_LIMIT_S, real_exchanges(&r.run) >= exchanges + 3);
    kill(r.run.p.pid, SIGINT);
    real_end(&r.run, 130, "interrupted");
    check_rows(&r, process_now() - start, 3, &trace);
    trace_release(&trace);
    process_release(&r.run.p);
}

/* All are killed, and the run fails: the trace is a valid file. */
static void test_a_run_that_fails(void **state)
{
    struct tiny *t = *state;
    struct traced r;
    struct trace_events trace;
    pid_t child[PROCESS_CHILDREN_MAX];
    double start = process_now();
    traced_new(t, &r);
    START(t, &r.run, "--workers", "2", "--set", "pace=0.01", "--set", "stop.epochs=1000", "--trace",
          r.path);
    real_workers(&r.run, 2, child);
    UNTIL(REAL_LIMIT_S, real_exchanges(&r.run) >= 3);
    kill(child[0], SIGKILL);
    kill(child[1], SIGKILL);
    process_wait(&r.run.p, REAL_LIMIT_S);
    assert_int_equal(r.run.p.code, 1);
    check_rows(&r, process_now() - start, 1, &trace);
    assert_true(trace_count(&trace, TRACE_DRIVER, "exchange", NULL) >= 3);
    trace_release(&trace);
    process_release(&r.run.p);
}

static void test_paths_that_cannot_be(void **state)
{
    struct tiny *t = *state;
    static const char *const bad[] = {"missing/t.json",      "net.prototxt", ".",
                                      "net.prototxt/t.json", "/proc/t.json", ""};
    tiny_cluster(t, "node { count: 4 } step_seconds: 0.004\n");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        REFUSED(t, bad[i], "train", t->job, "--out", "run", "--trace", bad[i]);
        REFUSED(t, bad[i], "sim", t->job, "--cluster", t->cluster, "--trace", bad[i]);
    }
    REFUSED(t, "--trace", "train", t->job, "--trace");
    /* After other errors there is no trace file. */
    REFUSED(t, "not empty", "train", t->job, "--out", ".", "--trace", "t.json");
    REFUSED(t, "nowhere", "train", t->job, "--trace", "t.json", "--data",
            "idx:nowhere,train-labels");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_driver_and_workers_have_rows),
        cmocka_unit_test(test_copies_of_strategies_have_spans),
        cmocka_unit_test(test_a_long_run_is_sent_in_parts),
        cmocka_unit_test(test_it_may_lie_in_the_run_directory),
        cmocka_unit_test(test_a_worker_that_is_killed),
        cmocka_unit_test(test_a_run_that_fails),
        cmocka_unit_test(test_paths_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
