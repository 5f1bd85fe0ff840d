#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/model.h"
#include "train/triggers.h"

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

static uint32_t uses_of(const struct plan *p, uint64_t steps, uint64_t then)
{
    struct progress before = {.steps = steps, .exchanges = steps / 10};
    struct progress after = {.steps = then, .exchanges = then / 10};
    return trigger_uses(&p->job, 4, 1000, &before, &after);
}

/* Every four exchanges of ten steps, where the job names no steps. */
static void test_triggers_count_exchanges(void **state)
{
    (void)state;
    struct plan p;
    plan_init(&p, 0, 0);
    assert_int_equal(uses_of(&p, 20, 30), 0);
    assert_int_equal(uses_of(&p, 30, 40), MODEL_EVALUATE);
    assert_int_equal(uses_of(&p, 40, 50), 0);
    assert_int_equal(uses_of(&p, 70, 80), MODEL_EVALUATE);
}

/* At the first commit point from each multiple on, however far apart they are. */
static void test_triggers_count_steps(void **state)
{
    (void)state;
    struct plan p;
    plan_init(&p, 25, 40);
    assert_int_equal(uses_of(&p, 0, 10), 0);
    assert_int_equal(uses_of(&p, 20, 25), MODEL_EVALUATE);
    assert_int_equal(uses_of(&p, 25, 30), 0);
    assert_int_equal(uses_of(&p, 30, 40), MODEL_SNAPSHOT);
    assert_int_equal(uses_of(&p, 40, 90), MODEL_EVALUATE | MODEL_SNAPSHOT);
    assert_int_equal(uses_of(&p, 199, 200), MODEL_EVALUATE | MODEL_SNAPSHOT);
}

static void test_triggers_of_asynchronous_workers(void **state)
{
    (void)state;
    struct plan p;
    const struct progress all = {.sample_offset = 2999, .steps = 120, .exchanges = 17};
    plan_init(&p, 0, 0);
    struct trigger_counts triggers = trigger_counts_of(&p.job, 4, 1000, &all);
    assert_int_equal(triggers.evaluations, 2); /* epochs */
    assert_int_equal(triggers.snapshots, 0);
    p.evaluate.has_every_exchanges = true;
    assert_int_equal(trigger_counts_of(&p.job, 4, 1000, &all).evaluations, 4);
    plan_init(&p, 25, 50);
    triggers = trigger_counts_of(&p.job, 4, 1000, &all);
    assert_int_equal(triggers.evaluations, 4);
    assert_int_equal(triggers.snapshots, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_triggers_count_exchanges),
        cmocka_unit_test(test_triggers_count_steps),
        cmocka_unit_test(test_triggers_of_asynchronous_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
