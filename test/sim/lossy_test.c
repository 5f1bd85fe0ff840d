/* Lossy wires under each strategy whose vectors travel in exchanges: the model is as good as with
 * f32, with fewer bytes; deaths and joins leave the books in order and the replicas equal. */
#include "strategy_sim.h"

#include <math.h>

#define SHORT  "stop={epochs:8}"
#define MEDIUM "stop={epochs:10}"
#define LONG   "stop={epochs:16}" /* of 16 numbers one is sent */

#define FAULTS \
    SIM_CALM "fault { at: 0.1 join: 3 } fault { at: 0.2 kill: 1 } fault { at: 0.3 kill: 0 }"

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

struct outcome {
    double error, loss, bytes;
};

static struct outcome run_with(struct tiny *t, const char *cluster, const char *strategy,
                               const char *wire, const char *stop)
{
    struct sim_run r = {0};
    char set[40];
    snprintf(set, sizeof set, "collective.wire=%s", wire);
    SIM(t, cluster, &r, strategy, set, stop, "evaluate.every_steps=1000",
        strstr(cluster, "join") ? "workers=3" : "workers=4");
    sim_adds_up(&r);
    assert_string_equal(r.report.reason, "epochs");
    struct outcome out = {run_number(r.dir, "end", 0, "test_error"),
                          run_number(r.dir, "end", 0, "test_loss"),
                          run_number(r.dir, "exchange", 4, "bytes")};
    print_message("    %s, %s: error %.4f, loss %.4f, %.0f bytes\n", strategy, wire, out.error,
                  out.loss, out.bytes);
    return out;
}

/* A third of a point is less than one of the 120 records. */
static void test_lossy_models_are_as_good(void **state)
{
    for (size_t i = 0; i < STRATEGIES; i++) {
        const char *name = strategies[i].name;
        struct outcome f32 = run_with(*state, SIM_CALM, name, "f32", SHORT);
        struct outcome few = run_with(*state, SIM_CALM, name, strategies[i].lossy, SHORT);
        assert_true(few.error <= f32.error + 0.003 && few.bytes < f32.bytes);
        assert_true(fabs(few.loss - f32.loss) < 0.2 * f32.loss + 0.003);
        if (!strategies[i].sparse)
            continue;
        few = run_with(*state, SIM_CALM, name, "topk16", LONG);
        assert_true(few.error <= f32.error + 0.003 && few.bytes < 0.9 * f32.bytes);
    }
}

/* Residuals of the dead are lost; a joiner has none. */
static void test_lossy_runs_survive(void **state)
{
    static const char *const wires[] = {"topk16", "int8", "bf16", "topk64", "topk16"};
    for (size_t i = 0; i < STRATEGIES; i++) {
        struct outcome got = run_with(*state, FAULTS, strategies[i].name, wires[i % 5], MEDIUM);
        assert_true(got.error < 0.1);
    }
}

static void refused(struct tiny *t, const char *strategy, const char *wire, const char *other,
                    const char *why)
{
    struct sim_run r = {0};
    SIM_TRY(t, SIM_CALM, &r, strategy, wire, other);
    assert_int_not_equal(r.rc, PL_OK);
    assert_non_null(strstr(r.error, why));
}

static void test_lossy_wires_are_refused_by_name(void **state)
{
    refused(*state, "strategy.sync={on_replace:average}", "collective.wire=topk16", "batch=16",
            "strategy.sync.on_replace");
    refused(*state, "strategy.diloco={overlap:1}", "collective.wire=topk64", "batch=16", "mix: 0");
    refused(*state, "strategy.sync={}", "collective.wire=topk64", "collective.algorithm=tree",
            "scatter_gather");
    refused(*state, "strategy.sync={}", "collective.wire=int8", "collective.algorithm=ring",
            "need f32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lossy_models_are_as_good),
        cmocka_unit_test(test_lossy_runs_survive),
        cmocka_unit_test(test_lossy_wires_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
