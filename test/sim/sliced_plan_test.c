/* The plan of a model in slices against its simulation; the job's pace, which slices spend part by
 * part; and sums that overlap with computation. */
#include "paceline/plan.h"
#include "sim_run.h"
#include "sliced_job.h"

#define WITHIN 0.10

struct planned {
    const char *net, *first, *last; /* of the range that slices share out; NULL: the whole net */
    int slices, workers;
};

static pl_job *job_of(struct tiny *t, pl_engine *engine, const struct planned *p,
                      const char *strategy)
{
    char text[256];
    pl_job *job;
    assert_int_equal(pl_job_load(engine, t->job, &job), PL_OK);
    snprintf(text, sizeof text, "slices=%d", p->slices);
    assert_int_equal(pl_job_set(job, text), PL_OK);
    snprintf(text, sizeof text, "workers=%d", p->workers);
    assert_int_equal(pl_job_set(job, text), PL_OK);
    snprintf(text, sizeof text, "net.file=%s/%s.prototxt", t->folder, p->net);
    assert_int_equal(pl_job_set(job, text), PL_OK);
    assert_int_equal(pl_job_set(job, strategy), PL_OK);
    assert_int_equal(pl_job_set(job, "evaluate.every_exchanges=1000000"), PL_OK);
    snprintf(text, sizeof text, "slices_from=%s", p->first ? p->first : "");
    assert_int_equal(p->first ? pl_job_set(job, text) : PL_OK, PL_OK);
    snprintf(text, sizeof text, "slices_to=%s", p->last ? p->last : "");
    assert_int_equal(p->last ? pl_job_set(job, text) : PL_OK, PL_OK);
    return job;
}

/* Samples a second of each strategy, planned and simulated; of easgd only with the job's mode. */
static void check_plan(struct tiny *t, const struct planned *p, double mbit, const char *strategy)
{
    const char *named = strategy + strlen("strategy.");
    const pl_plan_options options = {
        .size = sizeof options,
        .workers_min = (uint32_t)p->workers,
        .workers_max = (uint32_t)p->workers,
        .simulate_s = 2,
        .simulate_limit_s = 1000,
    };
    pl_engine *engine;
    pl_cluster *cluster;
    pl_plan_report report;
    char machines[256];
    snprintf(machines, sizeof machines,
             "node { count: 8 } step_seconds: 0.02 link { mbit: %g latency_us: 50 }\n", mbit);
    tiny_cluster(t, machines);
    assert_int_equal(pl_engine_create(NULL, &engine), PL_OK);
    assert_int_equal(pl_cluster_load(engine, t->cluster, &cluster), PL_OK);
    pl_job *job = job_of(t, engine, p, strategy);
    if (pl_plan(engine, job, cluster, &options, &report) != PL_OK)
        fail_msg("%s", pl_engine_error(engine));
    assert_int_equal(report.rows, strstr(strategy, "easgd") ? 4 : 3);
    for (size_t i = 0; i < report.rows; i++) {
        const pl_plan_row *row = &report.row[i];
        bool is_named = strstr(strategy, row->strategy) == named;
        if (!is_named && !(row->trial.done && strcmp(row->strategy, "allreduce") == 0))
            continue; /* its default of τ takes longer than the trial */
        assert_true(row->trial.done && row->worker_bytes > 0);
        double off = row->samples_per_s / row->trial.samples_per_s - 1;
        print_message("    %s, %d slices of %d, %g Mbit/s, %s: %+.1f %%\n", p->net, p->slices,
                      p->workers, mbit, row->strategy, 100 * off);
        if (!(fabs(off) <= WITHIN))
            fail_msg("%s of %s in %d slices: %g samples/s, not %g", row->strategy, p->net,
                     p->slices, row->trial.samples_per_s, row->samples_per_s);
    }
    pl_plan_release(&report);
    pl_job_free(job);
    pl_cluster_free(cluster);
    pl_engine_destroy(engine);
}

static void test_plans_of_slices_are_what_is_simulated(void **state)
{
    static const struct planned plans[] = {
        {"net", NULL, NULL, 2, 2},      {"net", NULL, NULL, 4, 4},
        {"net", NULL, NULL, 2, 6},      {"mixed", "one", "two", 2, 4},
        {"sequence", NULL, NULL, 3, 3}, {"mixed", "one", "two", 3, 3},
        {"fork", NULL, NULL, 2, 4},     {"states", NULL, NULL, 2, 4},
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        for (double mbit = 2; mbit <= 200; mbit *= 10)
            check_plan(*state, &plans[i], mbit, "strategy.sync={tau: 4}");
    for (double mbit = 2; mbit <= 200; mbit *= 10)
        check_plan(*state, &plans[2], mbit, "strategy.allreduce={bucket_kb: 1}");
    check_plan(*state, &plans[2], 20, "strategy.diloco={tau: 4}");
    check_plan(*state, &plans[2], 20, "strategy.easgd={mode: sync tau: 20}");
}

/* Twenty steps, beyond those of a machine that is fast: what `pace` adds. */
static double added_by_pace(struct tiny *t, const char *slices, const char *workers)
{
    static const char fast[] = "node { count: 4 } step_seconds: 1e-6 link { mbit: 4 }\n";
    struct sim_run plain = {.limit_s = 1000}, paced = {.limit_s = 1000};
    const char *strategy =
        strcmp(workers, "workers=1") == 0 ? "strategy.single={}" : "strategy.allreduce={}";
    SIM(t, fast, &plain, slices, workers, strategy, "stop={steps:20}");
    SIM(t, fast, &paced, slices, workers, strategy, "stop={steps:20}", "pace=0.08");
    return run_number(paced.dir, "end", 0, "t") - run_number(plain.dir, "end", 0, "t");
}

/* On this link meetings take longer than the pace: parts of a step that were counted from its
 * beginning would add nothing. */
static void test_slices_keep_pace_part_by_part(void **state)
{
    double whole = added_by_pace(*state, "slices=1", "workers=1");
    double fourth = added_by_pace(*state, "slices=4", "workers=4");
    if (!(fabs(whole - 20 * 0.08) <= 0.01) || !(fabs(fourth / whole - 0.25) <= 0.04))
        fail_msg("%g s, and in four slices %g", whole, fourth);
}

/* The seconds of a step of the net in two slices. */
static double time_step(struct tiny *t, const char *file, double step_seconds, double mbit)
{
    static const char *const stops[] = {"stop={steps:6}", "stop={steps:14}"};
    char cluster[256], net[192], out[128];
    double end[2];
    snprintf(cluster, sizeof cluster,
             "node { count: 2 } step_seconds: %g link { mbit: %g latency_us: 1 }\n", step_seconds,
             mbit);
    snprintf(net, sizeof net, "net.file=%s/%s", t->folder, file);
    for (int i = 0; i < 2; i++) {
        SIM_RUN(t, cluster, out, net, "slices=2", "workers=2", "strategy.allreduce={}", stops[i],
                "collective={algorithm: butterfly}", "batch=90",
                "evaluate.every_exchanges=1000000");
        end[i] = run_number(out, "end", 0, "t");
    }
    return (end[1] - end[0]) / 8;
}

enum { MEETINGS = 4 };

/* Meetings that overlap: values of a record that each slice sends; products that the larger slice
 * computes meanwhile; and those of the net's step. */
struct overlapping {
    const char *net;
    double sent[MEETINGS], meanwhile[MEETINGS], all;
};

/* While two slices add up the gradients of a layer's inputs, each computes that of its weights: a
 * step is shorter than computation and exchanges together by the shorter one of the two. */
static void check_overlap(struct tiny *t, const struct overlapping *o, double mbit)
{
    const double step = 0.4;
    double expected = 0;
    for (int i = 0; i < MEETINGS; i++)
        expected += fmin(90 * o->sent[i] * 8 * sizeof(float) / (mbit * 1e6),
                         o->meanwhile[i] / o->all * step);
    double apart = time_step(t, o->net, step, 1e6) + time_step(t, o->net, 1e-9, mbit);
    double saved = apart - time_step(t, o->net, step, mbit);
    print_message("    %s, %g Mbit/s: %.2f ms of %.2f\n", o->net, mbit, 1e3 * saved,
                  1e3 * expected);
    if (!(fabs(saved - expected) <= 0.05 * expected))
        fail_msg("%g s a step, not %g", saved, expected);
}

static void test_sums_overlap_with_computation(void **state)
{
    const double one = 144 * 120, two = 120 * 120, ip = 120 * 5;
    const struct overlapping wide = {
        "wide.prototxt", {120, 120}, {two / 2, ip / 5 * 3}, 2 * one + 3 * two + 3 * ip};
    for (double mbit = 4; mbit <= 100; mbit *= 25)
        check_overlap(*state, &wide, mbit);
}

/* Of two branches the second computes while the slices gather the outputs of the first. Back, the
 * one whose sum is first computes its weights and the other's inputs meanwhile; the gradients of
 * both come together behind. */
static void test_branches_overlap_with_each_other(void **state)
{
    const double one = 144 * 120, two = 120 * 120, ip = 120 * 5;
    const struct overlapping fork = {"fork.prototxt",
                                     {120, 120, 120, 120 / 2},
                                     {ip / 5 * 3, two / 2 + two / 2, two / 2, two / 2},
                                     2 * one + 3 * 2 * two + 3 * ip};
    for (double mbit = 4; mbit <= 100; mbit *= 25)
        check_overlap(*state, &fork, mbit);
}

/* Of a recurrent layer behind its steps: its weights have half of the products back. */
static void test_sums_of_units_overlap_with_computation(void **state)
{
    const double T = 12, G = 4;
    const double one = T * G * 24 * (12 + 24), two = T * G * 64 * (24 + 64), ip = T * 64 * 5;
    const struct overlapping units = {
        "units.prototxt", {T * 24, T * 64}, {two / 2, ip / 5 * 3}, 2 * one + 3 * two + 3 * ip};
    for (double mbit = 4; mbit <= 100; mbit *= 25)
        check_overlap(*state, &units, mbit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans_of_slices_are_what_is_simulated),
        cmocka_unit_test(test_slices_keep_pace_part_by_part),
        cmocka_unit_test(test_sums_overlap_with_computation),
        cmocka_unit_test(test_branches_overlap_with_each_other),
        cmocka_unit_test(test_sums_of_units_overlap_with_computation),
    };
    return cmocka_run_group_tests(tests, sliced_setup, tiny_teardown);
}
