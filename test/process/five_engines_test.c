/* A driver and four workers as five engines of one process: they may affect one another only
 * through messages. Built with the thread sanitizer, this test detects data races between them. */
#include "engine_workers.h"
#include "run_files.h"
#include "tiny_job.h"

enum { WORKERS = 4, EXCHANGES = 3 };

/* Train the tiny job until the third exchange, with these assignments, ended by NULL. */
static void train_tiny(struct tiny *t, const char *const *set, const char *out,
                       pl_run_report *report)
{
    pl_engine *engine = NULL;
    pl_job *job = NULL;
    struct engine_workers workers = {.started = 0};
    assert_int_equal(pl_engine_create(NULL, &engine), PL_OK);
    assert_int_equal(pl_job_load(engine, t->job, &job), PL_OK);
    for (; *set; set++)
        assert_int_equal(pl_job_set(job, *set), PL_OK);
    const pl_run_options options = {.size = sizeof options,
                                    .out = out,
                                    .start_workers = engine_workers_start,
                                    .user = &workers};
    int rc = pl_run(engine, job, &options, report);
    engine_workers_end(&workers);
    if (rc != PL_OK)
        print_message("the driver: %s\n", pl_engine_error(engine));
    for (uint32_t i = 0; i < workers.started; i++)
        if (workers.at[i].rc != PL_OK)
            print_message("a worker: %s\n", workers.at[i].error);
    assert_int_equal(rc, PL_OK);
    assert_int_equal(workers.started, WORKERS);
    for (uint32_t i = 0; i < WORKERS; i++)
        assert_int_equal(workers.at[i].rc, PL_OK);
    pl_job_free(job);
    pl_engine_destroy(engine);
}

/* Three exchanges of `steps` steps, each of four batches of 16. */
static void expect_three_exchanges(const char *out, const pl_run_report *report, uint64_t steps)
{
    uint64_t samples = EXCHANGES * steps * WORKERS * 16;
    struct safetensors model;
    assert_string_equal(report->reason, "steps");
    assert_string_equal(report->directory, out);
    assert_true(report->has_validation && report->has_test);
    assert_true(report->test_error >= 0 && report->test_error <= 1);
    assert_true(isfinite(report->test_loss));
    assert_int_equal(report->samples, samples);
    assert_int_equal(report->used, samples);
    assert_int_equal(report->missed, 0);
    assert_int_equal(run_count(out, "exchange", NULL, NULL), EXCHANGES);
    assert_int_equal(run_count(out, "member", "what", "join"), WORKERS);
    assert_int_equal(run_count(out, "member", "what", "dead"), 0);
    assert_int_equal(run_count(out, "end", NULL, NULL), 1);
    run_model(out, "final.safetensors", &model);
    safetensors_release(&model);
}

static void test_five_engines_exchange_models(void **state)
{
    struct tiny *t = *state;
    static const char *const set[] = {"stop.steps=12", NULL};
    char out[128];
    pl_run_report report;
    train_tiny(t, set, tiny_out(t, out), &report);
    expect_three_exchanges(out, &report, 4);
}

static void test_five_engines_exchange_gradients(void **state)
{
    struct tiny *t = *state;
    static const char *const set[] = {"strategy.allreduce={}", "stop.steps=3", NULL};
    char out[128];
    pl_run_report report;
    train_tiny(t, set, tiny_out(t, out), &report);
    expect_three_exchanges(out, &report, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_five_engines_exchange_models),
        cmocka_unit_test(test_five_engines_exchange_gradients),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
