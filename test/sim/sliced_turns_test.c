/* The state of a lost slice takes several turns, one a round, while the other replicas train on
 * (src/strategy/slice_state.c). Its three vectors of 65 kB take 1.6 s on the link, which makes at
 * least three turns; a step takes 0.4 s. */
#include "sim_run.h"
#include "sliced_job.h"
#include "sweep_stride.h"

#define CALM "node { count: 9 } step_seconds: 0.4 link { mbit: 1 }\n"

enum { BATCH = 16, STEPS = 104 };

/* Not a multiple of the cycles of two to four that the cases have. */
enum { STRIDE = SWEEP_STRIDE(7, 1) };

static const char *const strategies[] = {"strategy.allreduce={}", "strategy.sync={tau:1}",
                                         "strategy.diloco={tau:1}",
                                         "strategy.easgd={mode:sync tau:1}"};
enum { STRATEGIES = sizeof strategies / sizeof *strategies };

static const char norm_net[] = SLICED_DATA SLICED_INNER(
    "one", "data", "one",
    120) "layer { name: 'norm' type: 'BatchNorm' bottom: 'one' top: 'one' }\n" SLICED_INNER("two",
                                                                                            "one",
                                                                                            "two",
                                                                                            120)
    SLICED_INNER("ip", "two", "ip", 5) SLICED_ENDS;

static void simulate_fault(struct tiny *t, struct sim_run *r, const char *faults,
                           const char *const more[3])
{
    char cluster[512], file[300];
    snprintf(cluster, sizeof cluster, CALM "%s", faults);
    snprintf(file, sizeof file, "net.file=%s/wide.prototxt", t->folder);
    SIM(t, cluster, r, "slices=2", file, "stop.epochs", "stop.steps=104", more[0], more[1], more[2],
        "solver={type:'Adam' base_lr:0.002 momentum:0.9 lr_policy:'fixed'}",
        "checkpoint.every_seconds=0", "collective.chunk_kb=4", "evaluate.every_steps=1000");
    assert_string_equal(r->report.reason, "steps");
    assert_true(run_is_finite(r->dir, "final.safetensors"));
}

/* The longest gap between two exchanges. */
static double longest_gap(const struct sim_run *r)
{
    double longest = 0;
    for (int n = 1; n < STEPS; n++)
        longest = fmax(longest, run_number(r->dir, "exchange", n, "t") -
                                    run_number(r->dir, "exchange", n - 1, "t"));
    return longest;
}

/* The other replica waits for one turn at a time. The round in which a slice dies and those with
 * turns have half of their samples, and all others have all of them. Replicas are compared at the
 * hundredth exchange. */
static void test_others_train_between_turns(void **state)
{
    for (size_t i = 0; i < 2 * STRATEGIES; i += STRIDE) {
        const char *more[] = {strategies[i % STRATEGIES], "workers=4", "standby=1"};
        struct sim_run whole = {.limit_s = 1000}, r = {.limit_s = 1000};
        char fault[64];
        simulate_fault(*state, &whole, "", more);
        snprintf(fault, sizeof fault, "fault { at: %.4f kill: %zu }", 21 + 0.17 * (double)i, i % 4);
        simulate_fault(*state, &r, fault, more);
        double usual = longest_gap(&whole), late = longest_gap(&r) - usual;
        double rounds =
            (double)(2 * STEPS * BATCH - (int)run_number(r.dir, "end", 0, "used")) / BATCH;
        print_message("    %s: %.2f s late over %.2f s, %g rounds without a share\n", more[0], late,
                      usual, rounds);
        assert_int_equal(run_count(r.dir, "member", "what", "seated"), 1);
        assert_true(rounds >= 3 && rounds <= 8);
        assert_true(late < usual + 0.7); /* a round that is repeated, and a turn */
    }
}

/* Another member is lost, or is to leave, in or between the turns: of the replica that gives, of
 * the new one, or of a third. The last one that could give waits with its leave for the joiners. */
static void test_another_is_lost_between_turns(void **state)
{
    static const struct {
        const char *what, *workers;
        int whom[4];
    } cases[] = {
        {"kill", "workers=6", {0, 2, 6, 4}},
        {"leave", "workers=6", {1, 2, 6, 5}},
        {"leave", "workers=4", {0, 1, 2, 4}},
    };
    for (size_t i = 0; i < 72; i += STRIDE) {
        struct sim_run r = {.limit_s = 1000};
        char faults[128];
        size_t k = i % 3, moment = i / 12;
        snprintf(faults, sizeof faults, "fault { at: 21 kill: 3 } fault { at: %.4f %s: %d }",
                 21.5 + 0.45 * (double)moment, cases[k].what, cases[k].whom[i / 3 % 4]);
        simulate_fault(
            *state, &r, faults,
            (const char *const[]){strategies[moment % STRATEGIES], cases[k].workers, "standby=1"});
        assert_true(run_count(r.dir, "member", "what", "seated") >= 1);
        assert_int_equal(run_count(r.dir, "member", "what", "leave"),
                         strcmp(cases[k].what, "leave") == 0);
    }
}

/* The standby had lost its connection to its donor before it got the seat: one of them is cut off,
 * and the other replica trains on. */
static void test_donor_out_of_reach(void **state)
{
    struct sim_run r = {.limit_s = 1000};
    simulate_fault(*state, &r, "fault { at: 20 reset: 4 to: 1 } fault { at: 21 kill: 3 }",
                   (const char *const[]){"strategy.allreduce={}", "workers=4", "standby=1"});
    assert_int_equal(run_count(r.dir, "member", "what", "cut"), 1);
}

/* A slice dies behind the last exchange: the new one gets the whole state, and the model is that of
 * a run without a death. */
static void test_last_turn_has_no_limit(void **state)
{
    for (size_t i = 0; i < 3 * STRATEGIES; i += STRIDE) {
        const char *more[] = {strategies[i % STRATEGIES], "workers=4", "standby=1"};
        struct sim_run whole = {.limit_s = 1000}, r = {.limit_s = 1000};
        char fault[64];
        simulate_fault(*state, &whole, "", more);
        double last = run_number(whole.dir, "exchange", STEPS - 1, "t");
        snprintf(fault, sizeof fault, "fault { at: %.4f kill: 1 }",
                 last + 0.05 + 0.1 * (double)(i / STRATEGIES));
        simulate_fault(*state, &r, fault, more);
        assert_true(run_same_bits(r.dir, whole.dir, "final.safetensors"));
    }
}

/* The last turn may be in the round at which replicas are compared. */
static void test_state_is_complete_before_it_is_compared(void **state)
{
    for (int i = 0; i < 20; i += STRIDE) {
        struct sim_run r = {.limit_s = 1000};
        char fault[64];
        snprintf(fault, sizeof fault, "fault { at: %.4f kill: 3 }", 85 + 0.2 * i);
        simulate_fault(*state, &r, fault,
                       (const char *const[]){"strategy.allreduce={}", "workers=4", "standby=1"});
        assert_int_equal(run_count(r.dir, "member", "what", "seated"), 1);
    }
}

/* On a faster link one turn is enough. Then the only donor dies before the round commits, and the
 * joiner has its means of BatchNorm. */
static void test_means_of_a_norm_are_handed_over(void **state)
{
    struct sim_run r = {.limit_s = 1000};
    char file[300];
    tiny_write(*state, "norm.prototxt", norm_net);
    snprintf(file, sizeof file, "net.file=%s/norm.prototxt", ((struct tiny *)*state)->folder);
    SIM(*state,
        "node { count: 9 } step_seconds: 0.4 link { mbit: 50 } "
        "fault { at: 21 kill: 3 } fault { at: 21.2 kill: 0 }",
        &r, "slices=2", file, "workers=4", "standby=1", "strategy.allreduce={}", "stop.epochs",
        "stop.steps=104", "solver={type:'Adam' base_lr:0.002 momentum:0.9 lr_policy:'fixed'}",
        "collective.chunk_kb=4", "evaluate.every_steps=1000");
    print_message("    validation loss %.3f\n", r.report.validation_loss);
    assert_true(r.report.validation_loss < 0.3);
}

/* Both donors are to leave at one moment: one of them waits for the joiners. */
static void test_one_donor_waits(void **state)
{
    for (int i = 0; i < 6; i++) {
        struct sim_run r = {.limit_s = 1000};
        char faults[160];
        snprintf(faults, sizeof faults,
                 "fault { at: 21 kill: 3 } fault { at: %.2f leave: %d } "
                 "fault { at: %.2f leave: %d }",
                 21.5 + 0.4 * i, i % 2, 21.5 + 0.4 * i, 4 + i / 2 % 2);
        simulate_fault(*state, &r, faults,
                       (const char *const[]){"strategy.allreduce={}", "workers=6", "standby=1"});
        assert_int_equal(run_count(r.dir, "member", "what", "leave"), 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_others_train_between_turns),
        cmocka_unit_test(test_another_is_lost_between_turns),
        cmocka_unit_test(test_donor_out_of_reach),
        cmocka_unit_test(test_last_turn_has_no_limit),
        cmocka_unit_test(test_state_is_complete_before_it_is_compared),
        cmocka_unit_test(test_means_of_a_norm_are_handed_over),
        cmocka_unit_test(test_one_donor_waits),
    };
    return cmocka_run_group_tests(tests, sliced_setup, tiny_teardown);
}
