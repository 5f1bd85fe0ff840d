/* In a program with a locale that writes numbers with a comma, numbers are still read and written
 * with a point. The locale is made here, for this test alone. */
#include "checkpoint_sample.h"
#include "job/job.h"
#include "job/job_solver.h"
#include "job/text.h"
#include "sim_run.h"

#include <locale.h>

static char place[] = "/tmp/paceline-locale-XXXXXX";
static bool has_comma;

static int make_locale(void **state)
{
    char command[256];
    (void)state;
    assert_non_null(mkdtemp(place));
    snprintf(command, sizeof command, "localedef -c -i de_DE -f UTF-8 %s/comma >%s/log 2>&1", place,
             place);
    int ignored = system(command); /* it warns, or is missing */
    (void)ignored;
    setenv("LOCPATH", place, 1);
    has_comma = setlocale(LC_ALL, "comma") && strcmp(localeconv()->decimal_point, ",") == 0;
    return 0;
}

static int remove_locale(void **state)
{
    char command[256];
    (void)state;
    setlocale(LC_ALL, "C");
    snprintf(command, sizeof command, "rm -r %s", place);
    return system(command) != 0;
}

static void need_comma(void)
{
    char text[16];
    if (!has_comma) {
        print_message("no locale can be made here: localedef, or what it reads, is missing "
                      "(package locales)\n");
        skip();
    }
    snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0,5"); /* else this test sees nothing */
}

static void test_checkpoint_is_read_and_written_with_a_point(void **state)
{
    struct sample *m = *state;
    static uint8_t bytes[FOLDER_BYTES_MAX];
    need_comma();
    sample_save(m, 7, 3);
    sample_expect_loaded(m, 7);
    size_t n = folder_get(&m->folder, "checkpoint/00000007.safetensors", bytes);
    setlocale(LC_ALL, "C");
    sample_save(m, 7, 3); /* the same bytes as anywhere */
    static uint8_t plain[FOLDER_BYTES_MAX];
    assert_int_equal(folder_get(&m->folder, "checkpoint/00000007.safetensors", plain), n);
    assert_memory_equal(bytes, plain, n);
    setlocale(LC_ALL, "comma");
}

static void test_job_is_read_and_written_with_a_point(void **state)
{
    struct err err = {0};
    Paceline__Job *job;
    struct buf text = {0};
    static const char source[] = "net { zoo: 'lenet' } solver { base_lr: 0.105 gamma: 1.5e-3 }";
    (void)state;
    need_comma();
    assert_int_equal(job_parse("t", source, sizeof source - 1, &job, &err), OK);
    assert_true(job->solver->base_lr == 0.105f && job->solver->gamma == 1.5e-3f);
    assert_int_equal(job_set(job, "stop.epochs=2.75", &err), OK);
    assert_true(job->stop->epochs == 2.75);
    text_write(&job->base, &text);
    buf_put_u8(&text, 0);
    assert_non_null(strstr((char *)text.data, "base_lr: 0.105\n"));
    assert_non_null(strstr((char *)text.data, "epochs: 2.75\n"));
    buf_release(&text);
    job_free(job);
}

static void test_solver_is_read_with_a_point(void **state)
{
    struct err err = {0};
    Caffe__SolverParameter *solver;
    static const char source[] = "net: 'n' base_lr: 0.105 lr_policy: 'fixed' max_iter: 10";
    (void)state;
    need_comma();
    assert_int_equal(job_solver_parse("s", source, sizeof source - 1, &solver, &err), OK);
    assert_true(solver->base_lr == 0.105f);
    caffe__solver_parameter__free_unpacked(solver, NULL);
}

static void test_run_records_its_numbers_with_a_point(void **state)
{
    static struct tiny t;
    char dir[128];
    (void)state;
    need_comma();
    tiny_create(&t);
    SIM_RUN(&t, "node { count: 2 } step_seconds: 0.0125 link { mbit: 100.5 }\n", dir, "workers=2",
            "stop.epochs=0.5", "solver.base_lr=0.105");
    double loss = run_number(dir, "end", 0, "train_loss"), t_end = run_number(dir, "end", 0, "t");
    assert_true(loss > 0 && loss != floor(loss) && t_end != floor(t_end));
    assert_true(run_number(dir, "start", 0, "base_lr") == 0.105);
    tiny_remove(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_checkpoint_is_read_and_written_with_a_point,
                                        sample_setup, sample_teardown),
        cmocka_unit_test(test_job_is_read_and_written_with_a_point),
        cmocka_unit_test(test_solver_is_read_with_a_point),
        cmocka_unit_test(test_run_records_its_numbers_with_a_point),
    };
    return cmocka_run_group_tests(tests, make_locale, remove_locale);
}
