/* The states that recurrent layers carry where the model is in slices: each slice has those of its
 * own units, or of its own records, and a checkpoint has all. So a run that is resumed continues
 * the streams, also in another number of slices, or whole. */
#include "strategy_sim.h"

/* Slices share all layers out, or the middle ones alone: then each has those before for a part of
 * the records, and all have the last. */
static const char net[] =
    "layer { name: 'text' type: 'Data' top: 'data' top: 'target' }\n"
    "layer { name: 'embed' type: 'Embed' bottom: 'data' top: 'embed' embed_param {\n"
    "  input_dim: 8 num_output: 4 weight_filler { type: 'uniform' min: -0.5 max: 0.5 } } }\n"
    "layer { name: 'a' type: 'LSTM' bottom: 'embed' top: 'a' recurrent_param {\n"
    "  num_output: 6 weight_filler { type: 'uniform' min: -0.5 max: 0.5 } } }\n"
    "layer { name: 'b' type: 'GRU' bottom: 'a' top: 'b' gru_param {\n"
    "  num_output: 7 weight_filler { type: 'uniform' min: -0.5 max: 0.5 } } }\n"
    "layer { name: 'c' type: 'LSTM' bottom: 'b' top: 'c' recurrent_param {\n"
    "  num_output: 5 weight_filler { type: 'uniform' min: -0.5 max: 0.5 } } }\n"
    "layer { name: 'd' type: 'RNN' bottom: 'c' top: 'd' recurrent_param {\n"
    "  num_output: 6 weight_filler { type: 'uniform' min: -0.5 max: 0.5 } } }\n"
    "layer { name: 'scores' type: 'InnerProduct' bottom: 'd' top: 'scores'\n"
    "  inner_product_param { num_output: 8 axis: 2 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'scores' bottom: 'target'\n"
    "  softmax_param { axis: 2 } }\n";

/* 280 records in 24 streams: an epoch is eleven steps, and ends within one. */
#define JOB(streams)                                                                            \
    "name: 'streams' net { file: 'streams.prototxt' }\n"                                        \
    "train_data { text { path: 'text.txt' unit: character window: 4 } streams: " streams " }\n" \
    "test_data { text { path: 'text.txt' } }\n"                                                 \
    "validation: 20 threads: 1 kernels: ref workers: 2 evaluate { sample_length: 0 }\n"         \
    "solver { type: 'SGD' base_lr: 0.5 lr_policy: 'fixed' }\n"                                  \
    "strategy { allreduce {} } stop { steps: 40 }\n"

static const char job[] = JOB("24"), job_of_48[] = JOB("48");

enum { STEP = 24 };

static const char machines[] = "step_seconds: 0.004 link { mbit: 100 }\n";

static const char allreduce[] = "strategy.allreduce={}", tau2[] = "strategy.sync={tau:2}";

struct shape_of_run {
    int replicas, slices;
    const char *strategy;
    bool mixed; /* slices share the middle layers out */
};

struct seen {
    int kept, none; /* resumed runs that began with states of streams, and with none */
};

static void read_log(void *user, pl_log_level level, const char *line)
{
    struct seen *seen = user;
    (void)level;
    seen->kept += strstr(line, ", carried state") != NULL;
    seen->none += strstr(line, "streams begin with a state of 0") != NULL;
}

static void run_with(struct tiny *t, struct sim_run *r, const struct shape_of_run *shape,
                     const char *more, const char *faults, double every)
{
    char path[128], cluster[256], set[4][64];
    bool sliced = shape->slices > 1, mixed = sliced && shape->mixed;
    snprintf(path, sizeof path, "%s/streams.job", t->folder);
    snprintf(cluster, sizeof cluster, "node { count: %d } %s%s",
             shape->replicas * shape->slices + 1, machines, faults);
    snprintf(set[0], sizeof set[0], "workers=%d", shape->replicas * shape->slices);
    snprintf(set[1], sizeof set[1], "checkpoint.every_seconds=%.6f", every);
    snprintf(set[2], sizeof set[2], "slices=%d", shape->slices);
    snprintf(set[3], sizeof set[3], "batch=%d", STEP / shape->replicas);
    r->job = path;
    SIM_TRY(t, cluster, r, shape->strategy, set[0], set[1], set[2], set[3],
            mixed ? "slices_from=b" : "seed=1", mixed ? "slices_to=c" : "seed=1", more);
    r->job = NULL;
}

/* How far a run that is broken off behind a checkpoint, and resumed in the shape `then`, ends from
 * one that was not. */
static double resume_apart(struct tiny *t, const struct shape_of_run *first,
                           const struct shape_of_run *then, double share)
{
    struct seen seen = {0};
    struct sim_run timed = {0}, whole = {0}, r = {.engine = {.log = read_log, .user = &seen}};
    run_with(t, &timed, first, "seed=1", "", 1000);
    if (timed.rc != PL_OK)
        fail_msg("%s", timed.error);
    run_with(t, &whole, first, "seed=1", "", share * timed.report.wall_s);
    assert_int_equal(whole.rc, PL_OK);
    r.limit_s = (share + 0.2) * whole.report.wall_s;
    run_with(t, &r, first, "seed=1", "", share * timed.report.wall_s);
    assert_int_equal(r.rc, PL_ERR_TIMEOUT);
    r.limit_s = 0;
    r.run.force_change = true; /* of the batch */
    run_with(t, &r, then, "seed=1", "", 1000);
    if (r.rc != PL_OK)
        fail_msg("%s", r.error);
    double after = run_number(r.dir, "start", 1, "resumed_after");
    double apart = run_difference(whole.dir, r.dir);
    print_message("    %d x %d to %d x %d, %s%s: from exchange %g on apart by %.2g\n",
                  first->replicas, first->slices, then->replicas, then->slices, first->strategy,
                  first->mixed ? ", mixed" : "", after, apart);
    assert_true(after > 0 && after < 40);
    assert_true(seen.kept == 1 && seen.none == 0);
    return apart;
}

static void test_a_resumed_run_equals_the_uninterrupted_one(void **state)
{
    static const struct shape_of_run shapes[] = {
        {1, 2, allreduce, false}, {1, 3, allreduce, true}, {1, 4, tau2, false},
        {2, 2, allreduce, true},  {3, 2, tau2, false},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        assert_true(resume_apart(*state, &shapes[i], &shapes[i], 0.35) == 0);
}

/* Sums of the backward pass are cut otherwise. */
static void test_other_slices_continue_the_streams(void **state)
{
    static const int shapes[][2][2] = {
        {{1, 2}, {1, 3}}, {{1, 3}, {1, 2}}, {{1, 1}, {1, 2}}, {{1, 2}, {1, 1}},
        {{2, 2}, {2, 3}}, {{2, 2}, {1, 3}}, {{1, 2}, {3, 2}}, {{3, 1}, {2, 2}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct shape_of_run shape[2];
        for (int k = 0; k < 2; k++)
            shape[k] =
                (struct shape_of_run){shapes[i][k][0], shapes[i][k][1], allreduce, i % 2 == 0};
        assert_true(resume_apart(*state, &shape[0], &shape[1], 0.35) <= SIM_SAME);
    }
}

/* Of twice as many streams as a step has, half are as in the checkpoint before one step later. */
static void test_streams_that_wait(void **state)
{
    static const struct shape_of_run shape = {1, 3, allreduce, true};
    static const char *const stops[] = {"stop={steps:5}", "stop={steps:6}", "stop={steps:9}"};
    struct seen seen = {0};
    struct sim_run whole = {0}, r = {.engine = {.log = read_log, .user = &seen}};
    struct tiny *t = *state;
    tiny_write(t, "streams.job", job_of_48);
    run_with(t, &whole, &shape, stops[2], "", 1000);
    for (int i = 0; i < 3; i++) {
        run_with(t, &r, &shape, stops[i], "", 1000);
        if (r.rc != PL_OK)
            fail_msg("%s", r.error);
    }
    assert_true(seen.kept == 2 && seen.none == 0);
    assert_true(run_difference(whole.dir, r.dir) == 0);
    tiny_write(t, "streams.job", job);
}

/* The last checkpoint has them, too: a run that is given more steps continues. */
static void test_a_run_that_is_continued(void **state)
{
    static const struct shape_of_run shapes[] = {{1, 2, allreduce, true}, {2, 2, tau2, false}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct seen seen = {0};
        struct sim_run whole = {0}, r = {.engine = {.log = read_log, .user = &seen}};
        run_with(*state, &whole, &shapes[i], "seed=1", "", 1000);
        run_with(*state, &r, &shapes[i], "stop={steps:26}", "", 1000);
        assert_int_equal(r.rc, PL_OK);
        run_with(*state, &r, &shapes[i], "seed=1", "", 1000);
        if (r.rc != PL_OK)
            fail_msg("%s", r.error);
        assert_true(seen.kept == 1 && seen.none == 0);
        assert_true(run_difference(whole.dir, r.dir) == 0);
    }
}

/* A slice dies at moments around a checkpoint, which its replica is to show. Others show it, or
 * another; and whichever there is, the run continues from it. */
static void test_deaths_around_a_checkpoint(void **state)
{
    static const struct shape_of_run shape = {2, 2, allreduce, true};
    char more[128];
    struct sim_run whole = {0};
    run_with(*state, &whole, &shape, "seed=1", "", 0.15);
    assert_int_equal(whole.rc, PL_OK);
    double written = run_number(whole.dir, "checkpoint", 0, "t");
    for (int i = 0; i < 8; i++) {
        struct seen seen = {0};
        struct sim_run r = {.engine = {.log = read_log, .user = &seen}};
        snprintf(more, sizeof more, "fault { at: %.9f kill: %d }", written + 0.004 - 0.002 * i,
                 i % 4);
        r.limit_s = written + 2;
        run_with(*state, &r, &shape, "stop={steps:4000}", more, 0.15);
        assert_int_equal(r.rc, PL_ERR_TIMEOUT);
        assert_true(run_count(r.dir, "checkpoint", NULL, NULL) > 1);
        r.limit_s = 0;
        run_with(*state, &r, &shape, "stop={steps:400}", "", 1000);
        if (r.rc != PL_OK)
            fail_msg("%s", r.error);
        assert_true(seen.kept == 1 && seen.none == 0);
    }
}

/* A slice dies while a model is shown, and a standby worker has its seat: it shows the model, too,
 * before it has a share of a round. */
static void test_a_joiner_has_no_share(void **state)
{
    static const struct shape_of_run shape = {2, 2, allreduce, true};
    struct sim_run whole = {0};
    run_with(*state, &whole, &shape, "standby=1", "", 0.001);
    assert_int_equal(whole.rc, PL_OK);
    double written = run_number(whole.dir, "checkpoint", 0, "t");
    for (int i = 0; i < 4; i++) {
        char fault[128];
        struct sim_run r = {0};
        snprintf(fault, sizeof fault, "fault { at: %.9f kill: 3 }", written - 0.0005 * i);
        run_with(*state, &r, &shape, "standby=1", fault, 0.001);
        if (r.rc != PL_OK)
            fail_msg("%s", r.error);
        assert_int_equal(run_count(r.dir, "member", "what", "join"), 5);
    }
}

/* A replica that is to leave has no share of what follows, and may still see a model shown. */
static void test_a_leaving_replica_has_no_share(void **state)
{
    static const struct shape_of_run shape = {2, 2, allreduce, false};
    struct sim_run r = {0};
    run_with(*state, &r, &shape, "evaluate={every_exchanges:1}", "fault { at: 0.05 leave: 3 }",
             1000);
    if (r.rc != PL_OK)
        fail_msg("%s", r.error);
    assert_int_equal(run_count(r.dir, "member", "what", "leave"), 1);
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
        cmocka_unit_test(test_other_slices_continue_the_streams),
        cmocka_unit_test(test_a_run_that_is_continued),
        cmocka_unit_test(test_streams_that_wait),
        cmocka_unit_test(test_deaths_around_a_checkpoint),
        cmocka_unit_test(test_a_joiner_has_no_share),
        cmocka_unit_test(test_a_leaving_replica_has_no_share),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
