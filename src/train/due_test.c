#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/due.h"
#include "train/model.h"

struct plan {
    Paceline__Job job;
    Paceline__Evaluate evaluate;
    Caffe__SolverParameter solver;
};

static void plan_init(struct plan *p, uint64_t every_steps, int32_t snapshot)
{
    paceline__job__init(&p->job);
    paceline__evaluate__init(&p->evaluate);
    caffe__solver_parameter__init(&p->solver);
    p->job.evaluate = &p->evaluate;
    p->job.solver = &p->solver;
    p->evaluate.has_every_steps = every_steps > 0;
    p->evaluate.every_steps = every_steps;
    p->solver.snapshot = snapshot;
}

static uint32_t uses(const struct plan *p, uint64_t steps, uint64_t then)
{
    struct course before = {.steps = steps, .exchanges = steps / 10};
    struct course after = {.steps = then, .exchanges = then / 10};
    return due_uses(&p->job, 4, &before, &after);
}

/* Every four exchanges of ten steps, where the job names no steps. */
static void exchanges_are_counted_where_steps_are_not(void **state)
{
    (void)state;
    struct plan p;
    plan_init(&p, 0, 0);
    assert_int_equal(uses(&p, 20, 30), 0);
    assert_int_equal(uses(&p, 30, 40), MODEL_EVALUATE);
    assert_int_equal(uses(&p, 40, 50), 0);
    assert_int_equal(uses(&p, 70, 80), MODEL_EVALUATE);
}

/* At the first commit point from each multiple on, however far apart they are. */
static void steps_are_passed(void **state)
{
    (void)state;
    struct plan p;
    plan_init(&p, 25, 40);
    assert_int_equal(uses(&p, 0, 10), 0);
    assert_int_equal(uses(&p, 20, 25), MODEL_EVALUATE);
    assert_int_equal(uses(&p, 25, 30), 0);
    assert_int_equal(uses(&p, 30, 40), MODEL_SNAPSHOT);
    assert_int_equal(uses(&p, 40, 90), MODEL_EVALUATE | MODEL_SNAPSHOT);
    assert_int_equal(uses(&p, 199, 200), MODEL_EVALUATE | MODEL_SNAPSHOT);
}

static void who_runs_free_counts_all(void **state)
{
    (void)state;
    struct plan p;
    const struct course all = {.place = 2999, .steps = 120, .exchanges = 17};
    plan_init(&p, 0, 0);
    struct due_counts due = due_counts(&p.job, 4, 1000, &all);
    assert_int_equal(due.evaluations, 2); /* epochs */
    assert_int_equal(due.snapshots, 0);
    p.evaluate.has_every_exchanges = true;
    assert_int_equal(due_counts(&p.job, 4, 1000, &all).evaluations, 4);
    plan_init(&p, 25, 50);
    due = due_counts(&p.job, 4, 1000, &all);
    assert_int_equal(due.evaluations, 4);
    assert_int_equal(due.snapshots, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exchanges_are_counted_where_steps_are_not),
        cmocka_unit_test(steps_are_passed),
        cmocka_unit_test(who_runs_free_counts_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
