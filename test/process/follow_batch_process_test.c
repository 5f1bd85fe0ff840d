/* `paceline train` starts worker processes as the batch grows, by the model in the job or by that
 * which it measures. */
#include "plan/follow_batch.h"
#include "real_run.h"

#include <math.h>

enum { RECORDS = TINY_TRAIN - 60, EPOCHS = 12, FIRST = 16, LAST = 256, MOST = 3 };

#define FOLLOW                                                                                \
    "follow_batch={samples_per_s:1000 exchange_s:0.01 exchange_s_per_worker:0.02 change_s:0 " \
    "gain:0}"

/* One worker up to a batch of 100, where two take as long; three from 120 on. */
static void test_follow_batch_starts_workers(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    const struct follow_batch rule = {
        .model = {SCALING_SYNC, 1000, 0.01, 0.02}, .least = 1, .most = MOST};
    START(t, &r, "--unset", "batch", "--unset", "workers", "--set", "workers_min=1", "--set",
          "workers_max=3", "--set", "batch_growth={first:16 last:256}", "--set", FOLLOW,
          "--strategy", "allreduce", "--set", "stop.epochs=12", "--set", "pace=0.05");
    real_end(&r, 0, "epochs");
    int changes = run_count(r.dir, "want_workers", NULL, NULL);
    for (int i = 0; i < changes; i++) {
        double epoch = run_number(r.dir, "want_workers", i, "epoch"),
               batch = run_number(r.dir, "want_workers", i, "batch"),
               of = run_number(r.dir, "want_workers", i, "of"),
               n = run_number(r.dir, "want_workers", i, "workers");
        double left = (EPOCHS - epoch) * RECORDS, share = epoch / EPOCHS;
        print_message("    epoch %.2f: batch %.0f, %.0f to %.0f workers\n", epoch, batch, of, n);
        assert_true(batch == floor(FIRST + (LAST - FIRST) * share * share + 0.5));
        assert_true(n == (double)follow_batch_workers(&rule, batch, left, (size_t)of));
    }
    assert_true(changes >= 1);
    assert_true(run_number(r.dir, "want_workers", changes - 1, "workers") == MOST);
    assert_int_equal(real_members(&r, "join"), MOST);
    assert_int_equal(run_count(r.dir, "member", NULL, NULL), MOST);
    assert_true(run_number(r.dir, "end", 0, "workers") == MOST);
    assert_true(run_number(r.dir, "end", 0, "missed") == 0);
    assert_true(run_number(r.dir, "end", 0, "repeated") == 0);
    double samples = run_number(r.dir, "end", 0, "epochs") * RECORDS;
    assert_true(fabs(run_number(r.dir, "end", 0, "used") - samples) < 0.5);
    process_release(&r.p);
}

/* Without a model in the job the run measures its own. Steps take 50 ms whatever their batch, which
 * one worker cannot know: two are tried, and more are not. */
static void test_follow_batch_measures_real_workers(void **state)
{
    struct tiny *t = *state;
    struct real_run r = real_new(t);
    START(t, &r, "--unset", "batch", "--unset", "workers", "--set", "workers_min=1", "--set",
          "workers_max=4", "--set", "batch_growth={first:64 last:256}", "--set",
          "follow_batch={change_s:0}", "--strategy", "allreduce", "--set", "stop.epochs=20",
          "--set", "pace=0.05");
    real_end(&r, 0, "epochs");
    int changes = run_count(r.dir, "want_workers", NULL, NULL);
    assert_true(changes >= 1);
    for (int i = 0; i < changes; i++) {
        double epoch = run_number(r.dir, "want_workers", i, "epoch"),
               batch = run_number(r.dir, "want_workers", i, "batch"),
               of = run_number(r.dir, "want_workers", i, "of"),
               n = run_number(r.dir, "want_workers", i, "workers");
        const struct follow_batch rule = {
            .model = {SCALING_SYNC, run_number(r.dir, "want_workers", i, "samples_per_s"),
                      run_number(r.dir, "want_workers", i, "exchange_s"),
                      run_number(r.dir, "want_workers", i, "exchange_s_per_worker")},
            .fixed_s = run_number(r.dir, "want_workers", i, "step_s"),
            .gain = 0.05,
            .least = 1,
            .most = i == 0 ? 2 : 4,
        };
        double step = follow_batch_step(&rule, batch, (size_t)of);
        print_message("    epoch %.2f: batch %.0f, %.0f to %.0f workers; a step takes %.4f s\n",
                      epoch, batch, of, n, step);
        assert_true(n ==
                    (double)follow_batch_workers(&rule, batch, (20 - epoch) * RECORDS, (size_t)of));
        assert_true(step > 0.045 && (of != 1 || n == 2));
    }
    assert_true(run_number(r.dir, "end", 0, "missed") == 0);
    assert_true(run_number(r.dir, "end", 0, "repeated") == 0);
    double samples = run_number(r.dir, "end", 0, "epochs") * RECORDS;
    assert_true(fabs(run_number(r.dir, "end", 0, "used") - samples) < 0.5);
    process_release(&r.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follow_batch_starts_workers),
        cmocka_unit_test(test_follow_batch_measures_real_workers),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
