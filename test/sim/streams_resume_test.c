/* The states that recurrent layers carry in a run of several workers, over the end of a run: each
 * worker's are in its checkpoints. The same workers continue to the last bit as those of a run that
 * was not interrupted, and others that share out the same batch continue every stream, too. */
#include "base/file.h"
#include "model/safetensors.h"
#include "strategy_sim.h"

#include <math.h>

static const char net[] =
    "layer { name: 'text' type: 'Data' top: 'data' top: 'target' }\n"
    "layer { name: 'embed' type: 'Embed' bottom: 'data' top: 'embed' embed_param {\n"
    "  input_dim: 8 num_output: 4 weight_filler { type: 'uniform' min: -0.5 max: 0.5 } } }\n"
    "layer { name: 'units' type: 'LSTM' bottom: 'embed' top: 'units' recurrent_param {\n"
    "  num_output: 8 weight_filler { type: 'uniform' min: -0.3 max: 0.3 } } }\n"
    "layer { name: 'scores' type: 'InnerProduct' bottom: 'units' top: 'scores'\n"
    "  inner_product_param { num_output: 8 axis: 2 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'scores' bottom: 'target'\n"
    "  softmax_param { axis: 2 } }\n";

/* 280 records in 24 streams: an epoch is eleven steps, and ends within one. */
static const char job[] =
    "name: 'streams' net { file: 'streams.prototxt' }\n"
    "train_data { text { path: 'text.txt' unit: character window: 4 } streams: 24 }\n"
    "test_data { text { path: 'text.txt' } }\n"
    "validation: 20 global_batch: 24 threads: 1 kernels: ref workers: 3\n"
    "solver { type: 'SGD' base_lr: 0.5 lr_policy: 'fixed' }\n"
    "strategy { allreduce {} } stop { steps: 80 }\n";

enum { WORKERS = 3 };

#define TAU2 "strategy.sync={tau:2}"

/* Lines of the log, of all runs. */
struct seen {
    int missing, all, some, none; /* states that have not arrived; what resumed runs began with */
};

static void read_log(void *user, pl_log_level level, const char *line)
{
    struct seen *seen = user;
    const char *kept = strstr(line, ", carried state");
    (void)level;
    seen->missing += strstr(line, "of 1 of 3 workers, of worker 1 first, have not arrived") != NULL;
    seen->some += kept && strstr(kept, ", carried state of 16 of 24 streams");
    seen->none += strstr(line, "streams begin with a state of 0") != NULL;
    seen->all += kept && !strstr(kept, " streams");
}

#define FAST "step_seconds: 0.004 link { mbit: 100 }\n"

/* `machines`: their speed and links, and faults. */
static void run_with(struct tiny *t, struct sim_run *r, int workers, const char *strategy,
                     const char *more, const char *machines, double every)
{
    char path[128], cluster[256], set[2][64];
    snprintf(path, sizeof path, "%s/streams.job", t->folder);
    snprintf(cluster, sizeof cluster, "node { count: %d } %s", workers, machines);
    snprintf(set[0], sizeof set[0], "workers=%d", workers);
    snprintf(set[1], sizeof set[1], "checkpoint.every_seconds=%.6f", every);
    r->job = path;
    SIM_TRY(t, cluster, r, strategy, set[0], set[1], more);
    r->job = NULL;
}

/* Never broken off, with one checkpoint behind `share` of its time. */
static struct sim_run whole_run(struct tiny *t, const char *strategy, const char *more,
                                double share)
{
    struct sim_run timed = {0}, r = {0};
    run_with(t, &timed, WORKERS, strategy, more, FAST, 1000);
    if (timed.rc != PL_OK)
        fail_msg("%s", timed.error);
    run_with(t, &r, WORKERS, strategy, more, FAST, share * timed.report.wall_s);
    assert_int_equal(r.rc, PL_OK);
    return r;
}

/* Broken off some steps behind that checkpoint, and resumed by so many workers. */
static struct sim_run resumed_run(struct tiny *t, int workers, const char *strategy,
                                  const char *more, const struct sim_run *whole, double share)
{
    struct sim_run r = {.limit_s = (share + 0.2) * whole->report.wall_s};
    run_with(t, &r, WORKERS, strategy, more, FAST, share * whole->report.wall_s);
    assert_int_equal(r.rc, PL_ERR_TIMEOUT);
    r.limit_s = 0;
    run_with(t, &r, workers, strategy, more, FAST, 1000);
    if (r.rc != PL_OK)
        fail_msg("%s", r.error);
    double after = run_number(r.dir, "start", 1, "resumed_after");
    assert_true(after > 0 && after < 80);
    return r;
}

static void resumes_alike(struct tiny *t, const char *strategy, const char *more)
{
    for (double share = 0.3; share < 0.6; share += 0.14) {
        struct sim_run whole = whole_run(t, strategy, more, share);
        struct sim_run r = resumed_run(t, WORKERS, strategy, more, &whole, share);
        print_message("    %s, %s: from exchange %g on apart by %g\n", strategy, more,
                      run_number(r.dir, "start", 1, "resumed_after"),
                      run_difference(whole.dir, r.dir));
        assert_true(run_difference(whole.dir, r.dir) == 0);
    }
}

static void test_a_resumed_run_equals_the_uninterrupted_one(void **state)
{
    resumes_alike(*state, "strategy.allreduce={}", "solver.momentum=0.5");
    resumes_alike(*state, TAU2, "seed=2");
}

/* The whole batch stays, and with it the records of a step. */
static void test_other_workers_continue_the_streams(void **state)
{
    const char *strategy = "strategy.allreduce={}", *more = "solver.momentum=0.5";
    struct sim_run whole = whole_run(*state, strategy, more, 0.3);
    for (int workers = 1; workers <= 5; workers++) {
        struct sim_run r = resumed_run(*state, workers, strategy, more, &whole, 0.3);
        double apart = run_difference(whole.dir, r.dir);
        print_message("    %d workers: apart by %.2g\n", workers, apart);
        assert_true(apart <= SIM_SAME);
    }
}

/* A worker dies at moments around a checkpoint. That is written all the same, at the latest 5 s
 * later, and has the states of the others: the dead one may have sent its own or not. */
static void test_deaths_around_a_checkpoint(void **state)
{
    static const char slow[] = "step_seconds: 0.1 link { mbit: 100 latency_us: 20000 }\n";
    static const char *const strategies[] = {"strategy.allreduce={}", TAU2};
    static const char stop[] = "stop={steps:1000}";
    for (size_t k = 0; k < 2; k++) {
        struct seen seen = {0};
        struct sim_run whole = {.limit_s = 13};
        run_with(*state, &whole, WORKERS, strategies[k], stop, slow, 7);
        assert_int_equal(run_count(whole.dir, "checkpoint", NULL, NULL), 1);
        double written = run_number(whole.dir, "checkpoint", 0, "t");
        for (int i = 0; i < 8; i++) {
            char machines[160];
            struct sim_run r = {.engine = {.log = read_log, .user = &seen}, .limit_s = written + 6};
            snprintf(machines, sizeof machines, "%sfault { at: %.9f kill: 1 }", slow,
                     written - 0.02 * i);
            run_with(*state, &r, WORKERS, strategies[k], stop, machines, 7);
            assert_int_equal(r.rc, PL_ERR_TIMEOUT);
            int n = run_count(r.dir, "checkpoint", NULL, NULL);
            if (n == 0)
                continue; /* its exchange waits until the dead worker is out of the view */
            assert_true(run_number(r.dir, "checkpoint", 0, "t") < written + 5.1);
            r.limit_s = written + 20;
            run_with(*state, &r, WORKERS, strategies[k], stop, slow, 1000);
            assert_int_equal(r.rc, PL_ERR_TIMEOUT);
        }
        print_message("    %s: %d without its states; resumed with all %d times, with some %d\n",
                      strategies[k], seen.missing, seen.all, seen.some);
        assert_true(seen.missing > 0 && seen.some == seen.missing && seen.all > 0);
    }
}

/* In the newest checkpoint some are marked as open, and there is no state. */
static void expect_open_leases(const struct sim_run *r)
{
    char path[3][512];
    struct file_bytes bytes;
    struct safetensors st;
    struct err err = {0};
    int n = run_checkpoints(r->dir, path);
    assert_true(n > 0);
    const char *newest = path[n < 3 ? n - 1 : 2];
    if (file_read(newest, 1 << 20, &bytes, &err) != OK ||
        safetensors_parse(newest, bytes.data, bytes.len, true, &st, &err) != OK)
        fail_msg("%s", err.text);
    const char *leases = safetensors_meta_get(&st, "leases");
    assert_true(leases && strchr(leases, '?'));
    assert_null(safetensors_item(&st, "carried/state"));
    safetensors_release(&st);
    file_release(&bytes);
}

/* A worker joins and one leaves: the streams that they have are in the next checkpoint. */
static void test_members_that_change(void **state)
{
    struct sim_run r = {0};
    char fault[128];
    struct sim_run whole = whole_run(*state, "strategy.allreduce={}", "seed=4", 0.6);
    snprintf(fault, sizeof fault, FAST "fault { at: %.6f join: 3 } fault { at: %.6f leave: 1 }",
             0.2 * whole.report.wall_s, 0.4 * whole.report.wall_s);
    run_with(*state, &r, WORKERS + 1, "strategy.allreduce={}", "seed=4", fault,
             0.6 * whole.report.wall_s);
    if (r.rc != PL_OK)
        fail_msg("%s", r.error);
    assert_string_equal(r.report.reason, "steps");
}

/* Leases: the checkpoint has those that are open, and no states. The rest of an open one is granted
 * again, and begins with 0 (learner/carried_state_test). */
static void test_leases_keep_no_states(void **state)
{
    static const char *const strategies[] = {"strategy.mpca={}", "strategy.downpour={}",
                                             "strategy.easgd={tau:2}"};
    struct tiny *t = *state;
    for (size_t k = 0; k < sizeof strategies / sizeof *strategies; k++) {
        struct seen seen = {0};
        struct sim_run r = {.engine = {.log = read_log, .user = &seen}, .limit_s = 0.35};
        run_with(t, &r, WORKERS, strategies[k], "stop={steps:400}", FAST, 0.15);
        assert_int_equal(r.rc, PL_ERR_TIMEOUT);
        expect_open_leases(&r);
        r.limit_s = 0;
        run_with(t, &r, WORKERS, strategies[k], "stop={steps:400}", FAST, 1000);
        if (r.rc != PL_OK)
            fail_msg("%s", r.error);
        assert_true(seen.all == 0 && seen.some == 0 && seen.none == 1);
    }
}

static int setup(void **state)
{
    tiny_setup(state);
    struct tiny *t = *state;
    FILE *f = tiny_open(t, "text.txt");
    for (int i = 0; i < 100; i++)
        fputs("hello world ", f);
    fputs("hello", f);
    fclose(f);
    tiny_write(t, "streams.prototxt", net);
    tiny_write(t, "streams.job", job);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_resumed_run_equals_the_uninterrupted_one),
        cmocka_unit_test(test_other_workers_continue_the_streams),
        cmocka_unit_test(test_deaths_around_a_checkpoint),
        cmocka_unit_test(test_members_that_change),
        cmocka_unit_test(test_leases_keep_no_states),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
