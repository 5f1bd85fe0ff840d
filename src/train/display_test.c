#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "train/display.h"

/* Means worked by hand. */
static void test_mean_loss_is_of_the_newest(void **state)
{
    (void)state;
    struct arena arena;
    struct mean_loss m;
    arena_init(&arena);
    assert_int_equal(mean_loss_init(&m, 3, &arena), OK);
    assert_true(mean_loss(&m) == 0);
    mean_loss_add(&m, 1, 8);
    assert_true(mean_loss(&m) == 8);
    mean_loss_add(&m, 1, 4);
    assert_true(mean_loss(&m) == 6);
    mean_loss_add(&m, 1, 3);
    assert_true(mean_loss(&m) == 5);
    mean_loss_add(&m, 1, 2);
    assert_true(mean_loss(&m) == 3); /* 4, 3, 2 */
    mean_loss_add(&m, 2, 5);
    assert_true(mean_loss(&m) == 4); /* 2, and 5 twice */
    mean_loss_add(&m, 9, 1);
    assert_true(mean_loss(&m) == 1);
    arena_release(&arena);
}

static void keep_line(void *user, enum log_level level, const char *line)
{
    char *lines = user;
    size_t used = strlen(lines);
    (void)level;
    snprintf(lines + used, 512 - used, "%s\n", line);
}

static void report_steps(struct display *d, const Paceline__Job *job, uint64_t steps, double loss,
                         bool lone, char lines[512])
{
    const struct logger log = {keep_line, lines, LOG_INFO};
    struct ledger ledger = {.loss = lone ? 0 : loss, .recent = loss};
    ledger.last.progress.steps = steps;
    ledger.last.progress.sample_offset = 10 * steps;
    display_report(d, &ledger, job, 100, lone, &log);
}

/* Exchanges of four steps; a line at the first from each tenth on, with the mean of eight steps. */
static void test_display_logs_every_n_steps(void **state)
{
    (void)state;
    Paceline__Job job;
    Caffe__SolverParameter solver;
    struct display d;
    struct arena arena;
    char lines[512] = "", policy[] = "step";
    paceline__job__init(&job);
    caffe__solver_parameter__init(&solver);
    job.solver = &solver;
    solver.lr_policy = policy;
    solver.base_lr = 0.5f;
    solver.gamma = 0.5f;
    solver.stepsize = 20;
    solver.has_display = true;
    solver.display = 10;
    solver.average_loss = 8;
    arena_init(&arena);
    assert_int_equal(display_init(&d, &job, 0, &arena), OK);
    for (uint64_t i = 1; i <= 6; i++)
        report_steps(&d, &job, 4 * i, (double)i, false, lines);
    assert_string_equal(lines, "step 12: loss 2.5, rate 0.5\nstep 20: loss 4.5, rate 0.25\n");
    lines[0] = '\0';
    report_steps(&d, &job, 24, 9, false, lines); /* nothing new */
    report_steps(&d, &job, 30, 7, true, lines);  /* a worker alone has the mean itself */
    assert_string_equal(lines, "step 30: loss 7, rate 0.25\n");
    lines[0] = '\0';
    solver.clock = CAFFE__SOLVER_PARAMETER__CLOCK__epochs;
    solver.stepsize = 4;
    report_steps(&d, &job, 40, 7, true, lines); /* epoch 4 */
    assert_string_equal(lines, "step 40: loss 7, rate 0.25\n");
    lines[0] = '\0';
    solver.display = 0;
    assert_int_equal(display_init(&d, &job, 0, &arena), OK);
    report_steps(&d, &job, 100, 1, false, lines);
    assert_string_equal(lines, "");
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean_loss_is_of_the_newest),
        cmocka_unit_test(test_display_logs_every_n_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
