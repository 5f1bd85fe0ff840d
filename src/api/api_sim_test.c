/* Simulations through the public interface: those that keep no files. */
#include "paceline/sim.h"
#include "tiny_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const char machines[] = "node { count: 4 } step_seconds: 0.004 link { mbit: 100 }\n";
static const char driver_dies[] =
    "node { count: 4 } step_seconds: 0.004 fault { at: 0.05 kill: -1 for: 1 }\n";

static int run_sim(struct tiny *t, const char *cluster_text, const pl_sim_options *options,
                   pl_run_report *report, char error[512])
{
    pl_engine *engine = NULL;
    pl_job *job = NULL;
    pl_cluster *cluster = NULL;
    tiny_cluster(t, cluster_text);
    assert_int_equal(pl_engine_create(NULL, &engine), PL_OK);
    assert_int_equal(pl_job_load(engine, t->job, &job), PL_OK);
    assert_int_equal(pl_cluster_load(engine, t->cluster, &cluster), PL_OK);
    int rc = pl_sim(engine, job, cluster, options, report);
    snprintf(error, 512, "%s", rc == PL_OK ? "" : pl_engine_error(engine));
    pl_cluster_free(cluster);
    pl_job_free(job);
    pl_engine_destroy(engine);
    return rc;
}

/* It is the same run, evaluated on fewer records. */
static void test_sim_without_files(void **state)
{
    struct tiny *t = *state;
    char out[128], error[512];
    pl_run_report with, without, few;
    pl_sim_options options = {
        .size = sizeof options,
        .run = &(pl_run_options){.size = sizeof(pl_run_options), .out = tiny_out(t, out)}};
    assert_int_equal(run_sim(t, machines, &options, &with, error), PL_OK);
    options = (pl_sim_options){.size = sizeof(pl_sim_options), .no_files = true};
    assert_int_equal(run_sim(t, machines, &options, &without, error), PL_OK);
    assert_string_equal(without.directory, "");
    assert_string_equal(without.model, "");
    assert_true(without.has_test && without.test_loss == with.test_loss);
    assert_true(without.wall_s == with.wall_s && without.used == with.used);
    options.evaluate_records = 30;
    assert_int_equal(run_sim(t, machines, &options, &few, error), PL_OK);
    assert_true(few.test_loss != with.test_loss && few.used == with.used);
    double wrong = few.test_error * 30;
    assert_true(wrong - (int)(wrong + 0.5) < 1e-9 && wrong - (int)(wrong + 0.5) > -1e-9);
}

static void test_sim_without_files_refuses_what_needs_them(void **state)
{
    struct tiny *t = *state;
    char error[512];
    pl_run_report report;
    const struct {
        pl_run_options run;
        const char *text;
    } refused[] = {
        {{.out = "somewhere"}, "no_files: a run without files has no option out"},
        {{.resume = true}, "no option resume"},
        {{.trace = "t.json"}, "no option trace"},
        {{.snapshot = "s.solverstate"}, "no option snapshot"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        pl_run_options run = refused[i].run;
        run.size = sizeof run;
        const pl_sim_options options = {.size = sizeof options, .run = &run, .no_files = true};
        assert_int_equal(run_sim(t, machines, &options, &report, error), PL_ERR_USAGE);
        assert_non_null(strstr(error, refused[i].text));
    }
    const pl_sim_options options = {.size = sizeof options, .no_files = true};
    assert_int_equal(run_sim(t, driver_dies, &options, &report, error), PL_ERR_UNSUPPORTED);
    assert_non_null(strstr(error, "fault[0].kill: a driver returns from the files of its run"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sim_without_files),
        cmocka_unit_test(test_sim_without_files_refuses_what_needs_them),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
