/* Lossy wires under each strategy whose vectors travel in exchanges: the model is as good as with
 * f32, with fewer bytes; deaths and joins leave the books in order. */
#include "lossy_run.h"

static const struct {
    const char *name, *lossy; /* the wire of a short run; */
    bool sparse;              /* and does a long one with topk16 reach the same error? */
} strategies[] = {
    {"strategy.sync.tau=2", "int8", true},
    {"strategy.allreduce={}", "bf16", true},
    {"strategy.async_allreduce={method:1 warmup_epochs:0.5}", "int8", false},
    {"strategy.async_allreduce={method:2 warmup_epochs:0.5}", "bf16", false},
    {"strategy.diloco={tau:4 outer_momentum:0.5}", "int8", true},
    {"strategy.easgd={mode:sync tau:2}", "bf16", true},
    {"strategy.mpca={}", "int8", true},
    {"strategy.mpca.coordination=symmetric", "bf16", false},
    {"strategy.pace={}", "int8", false},
    {"strategy.pace.coordination=symmetric", "bf16", true},
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
    static const char *const wires[] = {"topk16", "int8", "bf16", "topk64", "topk16"};
    for (size_t i = 0; i < STRATEGIES; i++)
        lossy_survives(*state, strategies[i].name, wires[i % 5]);
}

/* Workers die or leave at many moments of the flush before a checkpoint of `pace`. */
static void test_flushes_of_pace_survive(void **state)
{
    for (int i = 0; i < 48; i++) {
        char cluster[256];
        struct sim_run r = {0};
        double at = 0.1 + 0.0015 * i;
        snprintf(cluster, sizeof cluster,
                 SIM_CALM
                 "fault { at: 0.05 join: 3 } fault { at: %.4f %s: %d } fault { at: %.4f %s: 1 }",
                 at, i & 1 ? "kill" : "leave", i & 2 ? 0 : 2, at + 0.02, i & 4 ? "kill" : "leave");
        SIM(*state, cluster, &r,
            i & 8 ? "strategy.pace={ shards: 3 }"
                  : "strategy.pace={ shards: 3 coordination: symmetric }",
            "collective.wire=topk16", "workers=3", "stop={ epochs: 8 }",
            "checkpoint.every_seconds=0.1", "solver={base_lr:0.05 lr_policy:'fixed'}");
        sim_adds_up(&r);
        assert_string_equal(r.report.reason, "epochs");
        assert_true(run_count(r.dir, "checkpoint", NULL, NULL) > 2);
    }
}

static void test_lossy_wires_are_refused_by_name(void **state)
{
    lossy_refused(*state, "strategy.sync={on_replace:average}", "collective.wire=topk16",
                  "batch=16", "strategy.sync.on_replace");
    lossy_refused(*state, "strategy.diloco={overlap:1}", "collective.wire=topk64", "batch=16",
                  "mix: 0");
    lossy_refused(*state, "strategy.sync={}", "collective.wire=topk64", "collective.algorithm=tree",
                  "scatter_gather");
    lossy_refused(*state, "strategy.sync={}", "collective.wire=int8", "collective.algorithm=ring",
                  "need f32");
    lossy_refused(*state, "strategy.gossip={}", "collective.wire=bf16", "batch=16",
                  "no common one");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lossy_models_are_as_good),
        cmocka_unit_test(test_lossy_runs_survive),
        cmocka_unit_test(test_flushes_of_pace_survive),
        cmocka_unit_test(test_lossy_wires_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
