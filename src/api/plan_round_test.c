/* The memory of a worker that the model of a strategy's rounds says. The vectors were counted where
 * the strategies allocate them; bench/plan_memory.py compares with the peaks of real workers. */
#include "api/plan_round.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

/* Backward finishes the last 400 of 1,000 floats after three quarters of a step. */
static struct round_config config_of(const char *strategy)
{
    static struct plan_round round;
    static struct bench_mark mark[] = {{600, 0.75}, {0, 1}};
    char text[512];
    struct err err = {0};
    Paceline__Job *job = NULL;
    const struct bench_step learner = {.x = 1000, .states = 1, .mark = mark, .marks = 2};
    int len = snprintf(text, sizeof text,
                       "net { zoo: 'lenet' } batch: 16 workers: 4 stop { steps: 10 }\n"
                       "train_data { idx { images: 'a' labels: 'b' } }\n"
                       "solver { base_lr: 0.1 lr_policy: 'fixed' momentum: 0.9 }\n"
                       "strategy { %s }\n",
                       strategy);
    if (job_parse("t", text, (size_t)len, &job, &err) != OK || job_finish(job, &err) != OK)
        fail_msg("%s", err.text);
    round = (struct plan_round){0};
    assert_null(plan_round_of(job, &learner, &round));
    struct round_config config = round.config;
    job_free(job);
    return config;
}

/* Contributions, a heading and x̃*; `pace` and a penalty in the gradient have one more; without a
 * driver there are a second heading, x̃, ṽ and its parts. */
static void test_plan_round_keeps_vectors_of_shards(void **state)
{
    (void)state;
    assert_int_equal(config_of("mpca { }").kept, 3);
    assert_int_equal(config_of("mpca { penalty: gradient }").kept, 4);
    assert_int_equal(config_of("pace { }").kept, 4);
    assert_int_equal(config_of("mpca { coordination: symmetric }").kept, 7);
    assert_int_equal(config_of("pace { coordination: symmetric }").kept, 8);
}

/* A model that leaves, and two that arrive (test/sim/round_pace_test.c has both at once). */
static void test_plan_round_keeps_models_of_gossip(void **state)
{
    (void)state;
    assert_int_equal(config_of("gossip { }").kept, 3);
}

/* Where servers apply the solver's rule, no worker touches its vectors. */
static void test_plan_round_knows_whose_rule_it_is(void **state)
{
    (void)state;
    assert_true(config_of("ps { }").server_rule);
    assert_true(config_of("downpour { learning_rule: server }").server_rule);
    assert_false(config_of("downpour { }").server_rule);
    assert_false(config_of("easgd { }").server_rule);
}

/* On each worker, or on as many as there are servers; in bsp pushes are applied together. */
static void test_plan_round_places_servers(void **state)
{
    (void)state;
    assert_int_equal(config_of("ps { }").servers, 0);
    assert_int_equal(config_of("downpour { servers: 2 }").servers, 2);
    assert_false(config_of("ps { consistency: asp }").in_rounds);
    struct round_config config = config_of("ps { colocated: true consistency: bsp }");
    assert_int_equal(config.servers, 4);
    assert_true(config.in_rounds);
    assert_true(config.leaves[3] == 0.75 && config.leaves[2] == 1 && config.leaves[0] == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_round_keeps_vectors_of_shards),
        cmocka_unit_test(test_plan_round_keeps_models_of_gossip),
        cmocka_unit_test(test_plan_round_knows_whose_rule_it_is),
        cmocka_unit_test(test_plan_round_places_servers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
