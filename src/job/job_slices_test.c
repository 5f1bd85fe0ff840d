#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "job/job.h"

#include <stdio.h>
#include <string.h>

#define LEAST \
    "net { zoo: 'lenet' } train_data { idx { images: 'i' labels: 'l' } } solver { base_lr: 0.1 } "

static int finish_job(const char *text, Paceline__Job **job, struct err *err)
{
    int rc = job_parse("t", text, strlen(text), job, err);
    return rc == OK ? job_finish(*job, err) : rc;
}

/* A job with slices gets as many workers and its strategy; a finished one can be finished again. */
static void test_slices_settle_workers_and_strategy(void **state)
{
    (void)state;
    struct err err = {0};
    Paceline__Job *job = NULL;
    assert_int_equal(finish_job(LEAST "slices: 3", &job, &err), OK);
    assert_int_equal(job->workers, 3);
    assert_int_equal(job_replicas(job), 1);
    assert_string_equal(job_strategy_name(job), "allreduce");
    assert_int_equal(job_finish(job, &err), OK);
    job_free(job);
    assert_int_equal(
        finish_job(LEAST "slices: 2 workers_min: 6 workers_max: 6 standby: 1 strategy { sync {} }",
                   &job, &err),
        OK);
    assert_int_equal(job_replicas(job), 3);
    assert_int_equal(job_finish(job, &err), OK);
    job_free(job);
    assert_int_equal(finish_job(LEAST
                                "slices: 4 workers: 8 strategy { easgd { mode: sync alpha: 0.4 } }",
                                &job, &err),
                     OK); /* two models, so that beta is 0.8 */
    job_free(job);
    assert_int_equal(finish_job(LEAST "workers: 4", &job, &err), OK);
    assert_int_equal(job->slices, 1);
    assert_int_equal(job_replicas(job), 4);
    assert_string_equal(job_strategy_name(job), "sync");
    job_free(job);
}

static void test_slices_refuse_what_does_not_go_with_them(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"slices: 0", "slices: must be"},
        {"slices: 4000000000", "slices: must be"},
        {"slices: 2 workers: 5", "workers: 5 with slices: 2; each replica of the model has as"},
        {"slices: 3 workers: 2", "write workers: 3"},
        {"slices: 2 workers_min: 5 workers_max: 5", "workers: 5 with slices: 2"},
        {"slices: 2 workers_max: 6", "slices: the number of workers cannot change"},
        {"slices: 2 workers_min: 2 workers_max: 4", "slices: the number of workers cannot change"},
        {"slices: 2 strategy { single {} }", "write --strategy allreduce"},
        {"slices: 2 strategy { easgd {} }", "slices: strategy easgd is not"},
        {"slices: 2 strategy { gossip {} }", "each at its own pace"},
        {"slices: 2 strategy { mpca {} }", "slices: strategy mpca is not"},
        {"slices: 2 strategy { ps {} }", "slices: strategy ps is not"},
        {"slices: 2 strategy { downpour {} } ", "slices: strategy downpour is not"},
        {"slices: 2 strategy { survey {} }", "slices: strategy survey is not"},
        {"slices: 2 collective { wire: bf16 }", "collective.wire: not with slices"},
        {"slices: 2 collective { wire: topk64 }", "collective.wire: not with slices"},
        {"slices: 2 precision: bf16", "precision: not with slices"},
        {"slices: 2 local: 2", "local: not with slices"},
        {"slices: 2 standby: 1", "standby: not with slices"},
        {"slices: 2 workers_min: 4 workers_max: 4 pause_below: 2", "pause_below: not with slices"},
        {"slices: 2 global_batch: 64", "global_batch: not with slices"},
        {"slices: 2 batch_growth { first: 8 last: 16 }", "batch_growth: not with slices"},
        {"slices: 2 local_data: true", "local_data: not with slices"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        struct err err = {0};
        Paceline__Job *job = NULL;
        snprintf(text, sizeof text, LEAST "%s", cases[i].text);
        int rc = finish_job(text, &job, &err);
        if ((rc != ERR_INPUT && rc != ERR_UNSUPPORTED) || !strstr(err.text, cases[i].message))
            fail_msg("%s: status %d, \"%s\"", cases[i].text, rc, err.text);
        job_free(job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices_settle_workers_and_strategy),
        cmocka_unit_test(test_slices_refuse_what_does_not_go_with_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
