/* A run of which every process is killed resumes from its newest checkpoint as if nothing had
 * happened: with the records, the rate and the model that it would have had. */
#include "real_run.h"

/* Kill the run and all its workers once it has n checkpoints; returns the exchange of the
 * newest. */
static double kill_all(struct tiny *t, struct real_run *r, const char *workers,
                       const char *strategy, const char *solver)
{
    pid_t worker[PROCESS_CHILDREN_MAX];
    char path[3][512];
    START(t, r, "--set", strategy, "--set", solver, "--workers", workers, "--set", "stop.epochs=8",
          "--set", workers[0] == '1' ? "pace=0.01" : "pace=0.04", "--set",
          "checkpoint.every_seconds=0.1");
    real_workers(r, (size_t)atoi(workers), worker);
    UNTIL(REAL_LIMIT_S, run_checkpoints(r->dir, path) >= 2);
    process_signal_all(&r->p, SIGKILL);
    process_wait(&r->p, REAL_LIMIT_S);
    UNTIL(3, real_has_ended(worker, (size_t)atoi(workers)));
    assert_int_equal(r->p.code, 128 + SIGKILL);
    process_release(&r->p);
    run_checkpoints(r->dir, path);
    return (double)strtoul(strrchr(path[1], '/') + 1, NULL, 10);
}

/* Two runs of the job, one of which is killed on its way and resumed. */
static void run_both(struct tiny *t, struct real_run *whole, struct real_run *killed,
                     const char *workers, const char *strategy, const char *solver)
{
    *whole = real_new(t);
    *killed = real_new(t);
    START(t, whole, "--set", strategy, "--set", solver, "--workers", workers, "--set",
          "stop.epochs=8");
    real_end(whole, 0, "epochs");
    process_release(&whole->p);
    double at_least = kill_all(t, killed, workers, strategy, solver);
    int before = real_exchanges(killed);
    START(t, killed, "--set", strategy, "--set", solver, "--workers", workers, "--set",
          "stop.epochs=8", "--resume");
    real_end(killed, 0, "epochs");
    process_release(&killed->p);
    double from = run_number(killed->dir, "start", 1, "resumed_after");
    assert_true(from >= at_least && from > 0);
    if (strcmp(strategy, "strategy.single={}") != 0) /* which has no exchanges to speak of */
        assert_true(run_number(killed->dir, "exchange", before, "n") == from + 1);
    print_message("    %s, %s, %s workers: resumed after exchange %g\n", strategy, solver, workers,
                  from);
    assert_true(run_number(killed->dir, "end", 0, "epochs") ==
                run_number(whole->dir, "end", 0, "epochs"));
    assert_true(run_number(killed->dir, "end", 0, "used") ==
                run_number(whole->dir, "end", 0, "used"));
    assert_true(run_number(killed->dir, "end", 0, "missed") == 0);
}

static void expect_same_model(struct tiny *t, const char *workers, const char *strategy,
                              const char *solver)
{
    struct real_run whole, killed;
    run_both(t, &whole, &killed, workers, strategy, solver);
    assert_true(run_same_bits(killed.dir, whole.dir, "final.safetensors"));
    assert_true(run_number(killed.dir, "end", 0, "test_loss") ==
                run_number(whole.dir, "end", 0, "test_loss"));
}

#define SGD  "solver.type=SGD"
#define ADAM "solver={type:'Adam' base_lr:0.002 momentum:0.9 lr_policy:'fixed'}"

static void test_one_worker(void **state)
{
    expect_same_model(*state, "1", "strategy.single={}", SGD);
    expect_same_model(*state, "1", "strategy.sync.tau=4", SGD);
    expect_same_model(*state, "1", "strategy.allreduce={}", SGD);
}

/* Adam corrects its means by how many steps made them: the count, too, is kept. */
static void test_one_worker_that_counts(void **state)
{
    expect_same_model(*state, "1", "strategy.single={}", ADAM);
    expect_same_model(*state, "1", "strategy.sync.tau=4", ADAM);
}

static void test_four_workers_that_are_equal(void **state)
{
    expect_same_model(*state, "4", "strategy.allreduce={}", SGD);
    expect_same_model(*state, "4", "strategy.allreduce={}", ADAM);
}

/* Each worker's optimizer starts again: another model, but nearly as good. */
static void test_four_workers_that_are_not(void **state)
{
    struct real_run whole, killed;
    run_both(*state, &whole, &killed, "4", "strategy.sync.tau=4", SGD);
    assert_true(run_number(killed.dir, "end", 0, "test_error") < 0.1);
    assert_true(run_difference(killed.dir, whole.dir) < 0.5);
}

/* Half of the run with one number of workers, the rest with another: the same position in data and
 * schedule, a ledger that adds up, and a log that names the checkpoint. */
static void change_workers(struct tiny *t, const char *from, const char *to, const char *taken)
{
    struct real_run r = real_new(t);
    char phrase[128];
    double at_least = kill_all(t, &r, from, "strategy.sync.tau=4", SGD);
    int exchanges = real_exchanges(&r), rates = run_count(r.dir, "rate", NULL, NULL);
    START(t, &r, "--set", "strategy.sync.tau=4", "--set", SGD, "--workers", to, "--set",
          "stop.epochs=8", "--resume");
    real_end(&r, 0, "epochs");
    double n = run_number(r.dir, "start", 1, "resumed_after");
    assert_true(n >= at_least && n > 0);
    assert_true(run_number(r.dir, "exchange", exchanges, "n") == n + 1);
    snprintf(phrase, sizeof phrase, "with %s worker%s: model%s\n", to,
             strcmp(to, "1") == 0 ? "" : "s", taken);
    if (!strstr(r.p.err, phrase))
        fail_msg("expected \"%s\"; it said:\n%s", phrase, r.p.err);
    process_release(&r.p);
    double steps = run_number(r.dir, "rate", rates, "step"), epochs, used;
    double rate = 0.05 * pow(1 + 0.001 * steps, -0.75);
    assert_true(steps >=
                4 * (n + 1)); /* τ steps of each an exchange, and one round at least since */
    assert_true(fabs(run_number(r.dir, "rate", rates, "rate") - rate) < 1e-6);
    epochs = run_number(r.dir, "end", 0, "epochs");
    used = run_number(r.dir, "end", 0, "used");
    assert_true(epochs >= 8 && fabs(used - epochs * (TINY_TRAIN - 60)) < 1e-3);
    assert_true(run_number(r.dir, "end", 0, "missed") == 0);
    assert_true(run_number(r.dir, "end", 0, "test_error") < 0.15);
    print_message("    %s workers, then %s: after exchange %g, error %.2f %%\n", from, to, n,
                  100 * run_number(r.dir, "end", 0, "test_error"));
}

/* Time and sessions continue where they were. */
static void expect_time_continues(const struct real_run *r, double ended)
{
    assert_true(run_number(r->dir, "start", 1, "t") >= ended);
    assert_true(run_number(r->dir, "start", 1, "session") == 2);
    double wall = run_number(r->dir, "end", 1, "wall_s");
    double session = run_number(r->dir, "end", 1, "session_s");
    assert_true(run_number(r->dir, "end", 0, "session_s") ==
                run_number(r->dir, "end", 0, "wall_s"));
    assert_true(session > 0 && fabs(ended + session - wall) < 0.1);
}

/* The final model of an earlier, shorter run of the directory does not make the longer one
 * complete. */
static void test_an_older_final_model_is_not_the_end(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    char command[512];
    START(t, &r, "--workers", "2", "--set", "stop.epochs=2");
    real_end(&r, 0, "epochs");
    process_release(&r.p);
    snprintf(command, sizeof command, "cp %s/final.safetensors %s/older", r.dir, r.dir);
    assert_int_equal(system(command), 0);
    START(t, &r, "--workers", "2", "--set", "stop.epochs=3", "--resume");
    real_end(&r, 0, "epochs");
    process_release(&r.p);
    double ended = run_number(r.dir, "end", 0, "t");
    expect_time_continues(&r, ended);
    snprintf(command, sizeof command, "mv %s/older %s/final.safetensors", r.dir, r.dir);
    assert_int_equal(system(command), 0);
    START(t, &r, "--workers", "2", "--set", "stop.epochs=3", "--resume");
    real_end(&r, 0, "epochs");
    assert_null(strstr(r.p.err, "the run is complete"));
    process_release(&r.p);
    assert_int_equal(run_count(r.dir, "end", NULL, NULL), 3);
    START(t, &r, "--workers", "2", "--set", "stop.epochs=3", "--resume");
    real_end(&r, 0, "epochs"); /* now there is its own */
    assert_non_null(strstr(r.p.err, "the run is complete"));
    assert_non_null(strstr(r.p.err, "--set stop.epochs=6"));
    process_release(&r.p);
}

/* A complete run reports this, and starts and awaits no worker; with a later end it continues. */
static void test_a_run_that_is_complete(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    char phrase[256];
    START(t, &r, "--workers", "2", "--set", "stop.epochs=2");
    real_end(&r, 0, "epochs");
    process_release(&r.p);
    double used = run_number(r.dir, "end", 0, "used");
    snprintf(phrase, sizeof phrase, "the run is complete: %s/final.safetensors", r.dir);
    START(t, &r, "--workers", "2", "--set", "stop.epochs=2", "--resume");
    real_end(&r, 0, "epochs");
    assert_non_null(strstr(r.p.err, phrase));
    process_release(&r.p);
    process_start(&r.p, t->folder,
                  (const char *const[]){"driver", t->job, "--json", "--listen", "127.0.0.1:0",
                                        "--out", r.dir, "--set", "workers=2", "--set",
                                        "stop.epochs=2", "--resume", NULL});
    real_end(&r, 0, "epochs"); /* without a worker */
    assert_non_null(strstr(r.p.err, phrase));
    assert_null(strstr(r.p.err, "waits for workers"));
    process_release(&r.p);
    assert_int_equal(real_members(&r, "join"), 2);            /* those of the first time */
    assert_int_equal(run_count(r.dir, "end", NULL, NULL), 1); /* it has ended once */
    assert_true(run_number(r.dir, "end", 0, "used") == used);
    START(t, &r, "--workers", "2", "--set", "stop.epochs=3", "--resume");
    real_end(&r, 0, "epochs");
    assert_null(strstr(r.p.err, phrase));
    process_release(&r.p);
    assert_int_equal(real_members(&r, "join"), 4);
}

static void test_other_numbers_of_workers(void **state)
{
    change_workers(*state, "4", "1", "; optimizers start over");
    change_workers(*state, "4", "7", "; optimizers start over");
    change_workers(*state, "1", "4", ", optimizer state");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_worker),
        cmocka_unit_test(test_one_worker_that_counts),
        cmocka_unit_test(test_four_workers_that_are_equal),
        cmocka_unit_test(test_four_workers_that_are_not),
        cmocka_unit_test(test_a_run_that_is_complete),
        cmocka_unit_test(test_an_older_final_model_is_not_the_end),
        cmocka_unit_test(test_other_numbers_of_workers),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
