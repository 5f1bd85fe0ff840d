/* Lossy wires under the strategies with parameter servers: pushes and copies are coded, the states
 * by which the servers recover are not. */
#include "lossy_run.h"

static const struct {
    const char *name, *lossy;
    bool sparse;
} strategies[] = {
    {"strategy.ps.consistency=bsp", "int8", true},
    {"strategy.ps={consistency:asp colocated:true}", "bf16", true},
    {"strategy.ps={consistency:asp servers:2}", "int8", false},
    {"strategy.downpour={n_push:1 n_fetch:1}", "int8", true},
    {"strategy.downpour={server_adagrad:true n_push:1 n_fetch:2}", "bf16", false},
    {"strategy.easgd.tau=2", "bf16", true},
};
enum { STRATEGIES = sizeof strategies / sizeof *strategies };

static void test_lossy_models_are_as_good(void **state)
{
    for (size_t i = 0; i < STRATEGIES; i++) {
        lossy_agrees(*state, strategies[i].name, strategies[i].lossy);
        if (strategies[i].sparse)
            lossy_trains(*state, strategies[i].name);
    }
}

static void test_lossy_runs_survive(void **state)
{
    static const char *const wires[] = {"topk16", "int8"};
    for (size_t i = 0; i < STRATEGIES; i++)
        for (size_t k = 0; k < 2; k++)
            lossy_survives(*state, strategies[i].name, wires[k]);
}

/* Workers die or leave at many moments of flushes, among them the one that makes the checkpoint and
 * the server that has asked for it. */
static void test_flushes_survive(void **state)
{
    for (size_t i = 0; i < 4 * STRATEGIES; i++) {
        char cluster[256];
        struct sim_run r = {0};
        double at = 0.1 + 0.001 * (double)i;
        snprintf(cluster, sizeof cluster,
                 SIM_CALM
                 "fault { at: 0.05 join: 3 } fault { at: %.4f %s: %d } fault { at: %.4f %s: 1 }",
                 at, i & 1 ? "kill" : "leave", i & 2 ? 0 : 2, at + 0.05, i & 4 ? "kill" : "leave");
        SIM(*state, cluster, &r, strategies[i % STRATEGIES].name, "collective.wire=topk16",
            "workers=3", "stop={ epochs: 6 }", "checkpoint.every_seconds=0.1",
            "solver={base_lr:0.05 lr_policy:'fixed'}");
        sim_adds_up(&r);
        assert_string_equal(r.report.reason, "epochs");
        assert_true(run_count(r.dir, "checkpoint", NULL, NULL) > 2);
    }
}

/* A checkpoint does not wait for long for a worker that hardly pushes. */
static void test_a_slow_worker_holds_up_no_checkpoint(void **state)
{
    static const char *const asp[] = {"strategy.downpour={n_push:2 n_fetch:2}",
                                      "strategy.ps={consistency:asp colocated:true}"};
    for (size_t i = 0; i < 2; i++) {
        struct sim_run r = {0};
        SIM(*state,
            "node { count: 3 } node { speed: 0.004 } step_seconds: 0.004 link { mbit: 100 }\n", &r,
            asp[i], "collective.wire=topk16", "workers=4", "stop={ epochs: 40 }",
            "checkpoint.every_seconds=0.1", "solver={base_lr:0.05 lr_policy:'fixed'}");
        int checkpoints = run_count(r.dir, "checkpoint", NULL, NULL);
        print_message("    %s: %d checkpoints in %.1f s\n", asp[i], checkpoints, r.report.wall_s);
        assert_true(checkpoints > 5 * r.report.wall_s);
    }
}

/* A run that resumes, also with fewer workers, ends as well as one that was not broken off. */
static void test_other_workers_resume(void **state)
{
    static const int workers[] = {4, 3};
    for (size_t i = 0; i < 2 * STRATEGIES; i++) {
        struct sim_run whole = {0}, r = {.limit_s = 0.25};
        const char *name = strategies[i % STRATEGIES].name;
        if (strstr(name, "adagrad"))
            continue; /* its history is in no checkpoint */
        for (int part = 0; part < 3; part++) {
            char cluster[128], number[32];
            int count = part == 1 ? workers[i / STRATEGIES] : 4;
            snprintf(cluster, sizeof cluster,
                     "node { count: %d } step_seconds: 0.004 link { mbit: 100 }\n", count);
            snprintf(number, sizeof number, "workers=%d", count);
            SIM_TRY(*state, cluster, part == 2 ? &whole : &r, name, "collective.wire=topk64",
                    number, "stop={ epochs: 10 }", "checkpoint.every_seconds=0.1",
                    "solver={base_lr:0.03 lr_policy:'fixed'}");
            assert_int_equal(part == 2 ? whole.rc : r.rc, part == 0 ? PL_ERR_TIMEOUT : PL_OK);
            r.limit_s = 0;
        }
        assert_true(run_number(r.dir, "start", 1, "resumed_after") > 0);
        sim_adds_up(&r);
        print_message("    %s, %d workers: loss %.4f, uninterrupted %.4f\n", name,
                      workers[i / STRATEGIES], r.report.test_loss, whole.report.test_loss);
        assert_true(r.report.test_loss < 2 * whole.report.test_loss);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lossy_models_are_as_good),
        cmocka_unit_test(test_lossy_runs_survive),
        cmocka_unit_test(test_other_workers_resume),
        cmocka_unit_test(test_flushes_survive),
        cmocka_unit_test(test_a_slow_worker_holds_up_no_checkpoint),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
