#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "train/display.h"

/* Means worked by hand. */
static void the_mean_is_of_the_newest(void **state)
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

static void note(void *user, enum log_level level, const char *line)
{
    char *said = user;
    size_t used = strlen(said);
    (void)level;
    snprintf(said + used, 512 - used, "%s\n", line);
}

static void report(struct display *d, const Paceline__Job *job, uint64_t steps, double loss,
                   bool lone, char said[512])
{
    const struct logger log = {note, said, LOG_INFO};
    struct ledger ledger = {.loss = lone ? 0 : loss, .recent = loss};
    ledger.last.course.steps = steps;
    ledger.last.course.place = 10 * steps;
    display_report(d, &ledger, job, 100, lone, &log);
}

/* Exchanges of four steps; a line at the first from each tenth on, with the mean of eight steps. */
static void a_line_every_so_many_steps(void **state)
{
    (void)state;
    Paceline__Job job;
    Caffe__SolverParameter solver;
    struct display d;
    struct arena arena;
    char said[512] = "", policy[] = "step";
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
        report(&d, &job, 4 * i, (double)i, false, said);
    assert_string_equal(said, "step 12: loss 2.5, rate 0.5\nstep 20: loss 4.5, rate 0.25\n");
    said[0] = '\0';
    report(&d, &job, 24, 9, false, said); /* nothing new */
    report(&d, &job, 30, 7, true, said);  /* a worker alone has the mean itself */
    assert_string_equal(said, "step 30: loss 7, rate 0.25\n");
    said[0] = '\0';
    solver.clock = CAFFE__SOLVER_PARAMETER__CLOCK__epochs;
    solver.stepsize = 4;
    report(&d, &job, 40, 7, true, said); /* epoch 4 */
    assert_string_equal(said, "step 40: loss 7, rate 0.25\n");
    said[0] = '\0';
    solver.display = 0;
    assert_int_equal(display_init(&d, &job, 0, &arena), OK);
    report(&d, &job, 100, 1, false, said);
    assert_string_equal(said, "");
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mean_is_of_the_newest),
        cmocka_unit_test(a_line_every_so_many_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
