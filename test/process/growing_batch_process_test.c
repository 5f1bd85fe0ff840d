/* A batch that grows in real runs of worker processes: with a worker that is killed, and with an
 * interruption after which other workers continue. */
#include "real_run.h"

#include <math.h>

enum { RECORDS = TINY_TRAIN - 60, EPOCHS = 4, FIRST = 21, LAST = 90 };

#define NEAR 1e-4 /* max |a − b| / max |b|, where only the order of sums differs */

static const char growth[] = "batch_growth={first:21 last:90}";

/* Samples of the whole run, by hand: Eq. 6.7 with the power 2, in whole records. */
static uint64_t expected_samples(uint64_t *steps)
{
    uint64_t all = EPOCHS * RECORDS, samples = 0;
    for (*steps = 0; samples < all; ++*steps) {
        double progress = (double)samples / (double)all;
        samples += (uint64_t)(FIRST + (LAST - FIRST) * progress * progress + 0.5);
    }
    return samples;
}

static void expect_samples(const struct real_run *r, int session)
{
    uint64_t steps, samples = expected_samples(&steps);
    assert_true(run_number(r->dir, "end", session, "used") == (double)samples);
    assert_true(run_number(r->dir, "end", session, "missed") == 0);
    assert_true(run_number(r->dir, "end", session, "batch") == LAST);
    assert_int_equal(real_exchanges(r), steps);
}

#define GROWS \
    "--set", growth, "--unset", "batch", "--strategy", "allreduce", "--set", "stop.epochs=4"

static void simulate_run(struct tiny *t, char dir[128])
{
    struct process p;
    tiny_cluster(t, "node { count: 3 } step_seconds: 0.004 link { mbit: 1000 }\n");
    const char *const argv[] = {
        "sim",       t->job, "--cluster", t->cluster, "--out", tiny_out(t, dir),
        "--workers", "3",    GROWS,       NULL};
    process_start(&p, t->folder, argv);
    process_wait(&p, REAL_LIMIT_S);
    if (p.code != 0)
        fail_msg("code %d: %s", p.code, p.err);
    process_release(&p);
}

/* Processes take the steps of the formula, and end with the model of a simulation. */
static void test_growing_batch_of_processes_is_that_of_a_simulation(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    char sim[128];
    START(t, &r, "--workers", "3", GROWS);
    real_end(&r, 0, "epochs");
    expect_samples(&r, 0);
    assert_non_null(strstr(r.p.err, "grows from 21 to 90 over 4 epochs, power 2"));
    simulate_run(t, sim);
    double apart = run_difference(r.dir, sim);
    print_message("    from the simulation: %.1e\n", apart);
    assert_true(apart <= NEAR);
    process_release(&r.p);
}

/* Interrupted half-way, and continued by two workers instead of three, at the batch of its
 * progress. The model is that of the run without interruption. */
static void test_growing_batch_continues_with_other_workers(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    char sim[128];
    START(t, &r, "--workers", "3", GROWS, "--set", "pace=0.02");
    UNTIL(REAL_LIMIT_S, process_poll(&r.p) || real_exchanges(&r) >= 25);
    process_signal_all(&r.p, SIGINT);
    real_end(&r, 130, "interrupted");
    process_release(&r.p);
    process_start(&r.p, t->folder,
                  (const char *const[]){"resume", r.dir, "--json", "--workers", "2", NULL});
    real_end(&r, 0, "epochs");
    expect_samples(&r, 1);
    double then = run_number(r.dir, "start", 1, "global_batch");
    print_message("    continued with a batch of %.0f\n", then);
    assert_true(run_number(r.dir, "start", 1, "nodes") == 2);
    assert_true(then > FIRST && then < LAST);
    simulate_run(t, sim);
    assert_true(run_difference(r.dir, sim) <= NEAR);
    process_release(&r.p);
}

/* A killed worker's share of one step is missed; the others take the whole batch from then on. */
static void test_growing_batch_when_a_worker_is_killed(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    pid_t worker[PROCESS_CHILDREN_MAX];
    uint64_t steps, samples = expected_samples(&steps);
    START(t, &r, "--workers", "3", GROWS, "--set", "pace=0.02");
    real_workers(&r, 3, worker);
    UNTIL(REAL_LIMIT_S, process_poll(&r.p) || real_exchanges(&r) >= 10);
    kill(worker[1], SIGKILL);
    real_end(&r, 0, "epochs");
    double used = run_number(r.dir, "end", 0, "used"),
           missed = run_number(r.dir, "end", 0, "missed");
    print_message("    used %g, missed %g of %g\n", used, missed, (double)samples);
    assert_true(used + missed == (double)samples && missed <= (LAST + 2) / 3);
    assert_int_equal(real_exchanges(&r), steps);
    assert_int_equal(real_members(&r, "dead"), 1);
    process_release(&r.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growing_batch_of_processes_is_that_of_a_simulation),
        cmocka_unit_test(test_growing_batch_continues_with_other_workers),
        cmocka_unit_test(test_growing_batch_when_a_worker_is_killed),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
