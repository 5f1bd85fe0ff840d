/* The causes of waits, on reports in which they are planted. */
#include "train/blame.h"
#include "world/world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MEMBERS = 4, SLOW = 2 };

/* A driver that takes no part and evaluates nothing. */
static const struct blame_driver idle = {.usual_s = -1};

/* Totals of four members that take steps of 100 ms and exchange 1 MB in 50 ms. */
struct story {
    struct blame_history history[MEMBERS];
    struct blame_report total[MEMBERS];
    struct blame_use use[MEMBERS];
    size_t uses;
};

/* Member SLOW's next step takes `step` s and waits `data` s for records, and its exchange goes at
 * `exchange` s; the others wait for it as long as that lasts longer. */
static struct blame_verdict play_exchange(struct story *s, double step, double data,
                                          double exchange)
{
    double waited = step + data - 0.1 + exchange - 0.05;
    s->uses = 0;
    for (uint32_t node = 0; node < MEMBERS; node++) {
        struct blame_report *total = &s->total[node];
        bool slow = node == SLOW;
        total->steps_s += slow ? step + data : 0.1;
        total->data_s += slow ? data : 0;
        total->waited_s = slow ? 0 : waited - 0.001 * node;
        total->arrival_mbit = node == 0 || slow ? 1 / exchange : 800;
        total->arrival_from = slow ? 1 : SLOW;
        if (blame_take(&s->history[node], node, total, &s->use[s->uses]))
            s->uses++;
    }
    return blame_find(s->history, s->use, s->uses, &idle);
}

static void play_equal(struct story *s, int exchanges)
{
    for (int i = 0; i < exchanges; i++)
        play_exchange(s, 0.1, 0, 0.05);
}

static const char *text_of(struct blame_verdict verdict)
{
    static char text[BLAME_TEXT_MAX];
    blame_print(&verdict, text);
    return text;
}

static void test_blame_of_a_long_step_names_its_median(void **state)
{
    struct story s = {.uses = 0};
    (void)state;
    play_equal(&s, 9);
    struct blame_verdict v = play_exchange(&s, 0.21, 0, 0.05);
    assert_int_equal(v.cause, BLAME_STEP);
    assert_int_equal(v.node, SLOW);
    assert_false(v.of_others);
    assert_string_equal(text_of(v), "its step took 2.1 × its median");
}

/* A worker that is always slow is compared with the others. */
static void test_blame_of_a_slow_worker_names_the_others(void **state)
{
    struct story s = {.uses = 0};
    struct blame_verdict v = {.cause = BLAME_NONE};
    (void)state;
    for (int i = 0; i < 50; i++)
        v = play_exchange(&s, 0.3, 0, 0.05);
    assert_int_equal(v.cause, BLAME_STEP);
    assert_true(v.of_others);
    assert_string_equal(text_of(v), "its step took 3.0 × the others' median");
}

static void test_blame_of_late_data(void **state)
{
    struct story s = {.uses = 0};
    (void)state;
    play_equal(&s, 9);
    struct blame_verdict v = play_exchange(&s, 0.11, 0.24, 0.05);
    assert_int_equal(v.cause, BLAME_DATA);
    assert_string_equal(text_of(v), "its data came 0.25 s late");
}

static void test_blame_of_a_slow_link(void **state)
{
    struct story s = {.uses = 0};
    (void)state;
    play_equal(&s, 9);
    struct blame_verdict v = play_exchange(&s, 0.11, 0, 0.4);
    assert_int_equal(v.cause, BLAME_LINK);
    assert_int_equal(v.node, SLOW);
    assert_string_equal(text_of(v), "its link sent at 2.5 Mbit/s");
}

/* Arrivals of four workers, where all from and to worker 2 are slow; and where two pairs are. */
static void test_blame_of_the_link_that_is_at_most_ends(void **state)
{
    static const struct blame_history none[4];
    struct blame_use use[] = {
        {.node = 0, .step_s = 0.01, .waited_s = 0.03, .arrival_mbit = 1.0, .arrival_from = 2},
        {.node = 1, .step_s = 0.01, .waited_s = 0.05, .arrival_mbit = 900, .arrival_from = 0},
        {.node = 2, .step_s = 0.01, .waited_s = 0.01, .arrival_mbit = 1.1, .arrival_from = 1},
        {.node = 3, .step_s = 0.01, .waited_s = 0.02, .arrival_mbit = 1.3, .arrival_from = 2},
    };
    (void)state;
    struct blame_verdict v = blame_find(none, use, 4, &idle);
    assert_true(v.cause == BLAME_LINK && v.node == 2 && v.mbit == 1.0);
    use[2].arrival_from = 0, use[3].arrival_mbit = 900;
    assert_int_equal(blame_find(none, use, 4, &idle).cause, BLAME_NONE); /* 0 or 2 */
}

/* Members of which one is silent for longer than heartbeats explain, wherever it stood still. */
static void test_blame_of_a_member_that_stands_still(void **state)
{
    static const struct blame_history none[3];
    struct blame_driver driver = {.beat_s = 0.25, .usual_s = -1};
    struct blame_use use[] = {
        {.node = 0, .step_s = 0.01, .waited_s = 0.5, .arrival_mbit = 1, .silent_s = 0.25},
        {.node = 1, .step_s = 0.01, .waited_s = 0.1, .arrival_mbit = 900, .silent_s = 0.66},
        {.node = 2, .step_s = 0.01, .waited_s = 0.5, .arrival_mbit = 1, .silent_s = 0.26},
    };
    (void)state;
    struct blame_verdict v = blame_find(none, use, 3, &driver);
    assert_true(v.cause == BLAME_STOP && v.node == 1);
    assert_string_equal(text_of(v), "it was silent for 0.66 s");
    driver.usual_s = 0.45; /* its heartbeats are late as all else is */
    assert_int_not_equal(blame_find(none, use, 3, &driver).cause, BLAME_STOP);
    driver.usual_s = 0.02;
    assert_int_equal(blame_find(none, use, 3, &driver).cause, BLAME_STOP);
    use[0].silent_s = use[2].silent_s = 0.6; /* the driver stood still */
    assert_int_not_equal(blame_find(none, use, 3, &driver).cause, BLAME_STOP);
    use[0].silent_s = use[2].silent_s = 0.25, use[0].waited_s = use[2].waited_s = 0.1;
    assert_int_not_equal(blame_find(none, use, 3, &driver).cause, BLAME_STOP); /* nobody minded */
    use[0].waited_s = use[2].waited_s = 2;
    assert_int_not_equal(blame_find(none, use, 3, &driver).cause, BLAME_STOP); /* there is more */
}

static void test_blame_of_an_evaluation(void **state)
{
    static const struct blame_history none[3];
    struct blame_driver driver = {
        .takes_part = true, .evaluated_s = 0.4, .waited_s = 0.2, .usual_s = 0.02};
    struct blame_use use[] = {
        {.node = 0, .step_s = 0.01, .waited_s = 0.2, .arrival_mbit = 1, .arrival_from = 2},
        {.node = 1, .step_s = 0.01, .waited_s = 0.2, .arrival_mbit = 900, .arrival_from = 0},
        {.node = 2, .step_s = 0.01, .waited_s = 0.2, .arrival_mbit = 1, .arrival_from = 1},
    };
    (void)state;
    struct blame_verdict v = blame_find(none, use, 3, &driver);
    assert_true(v.cause == BLAME_EVALUATION && v.node == WORLD_DRIVER);
    assert_string_equal(text_of(v), "it evaluated a model for 0.4 s");
    driver.usual_s = 0.15; /* it is so without an evaluation, too */
    assert_int_equal(blame_find(none, use, 3, &driver).cause, BLAME_LINK);
    driver.usual_s = -1; /* unknown */
    assert_int_equal(blame_find(none, use, 3, &driver).cause, BLAME_LINK);
    use[0].arrival_mbit = use[1].arrival_mbit = use[2].arrival_mbit = 0;
    assert_int_equal(blame_find(none, use, 3, &driver).cause, BLAME_EVALUATION);
    driver.takes_part = false;
    assert_int_equal(blame_find(none, use, 3, &driver).cause, BLAME_NONE);
}

/* A worker that is slower than usual on the machine of a driver that evaluates. */
static void test_blame_of_an_evaluation_on_the_host_of_a_worker(void **state)
{
    struct story s = {.uses = 0};
    struct blame_driver driver = {.evaluated_s = 0.3, .usual_s = -1};
    (void)state;
    play_equal(&s, 9);
    assert_int_equal(play_exchange(&s, 0.25, 0, 0.05).cause, BLAME_STEP);
    assert_int_equal(blame_find(s.history, s.use, s.uses, &driver).cause, BLAME_STEP);
    s.use[SLOW].on_driver_host = true;
    struct blame_verdict v = blame_find(s.history, s.use, s.uses, &driver);
    assert_true(v.cause == BLAME_EVALUATION && v.node == WORLD_DRIVER);
    driver.evaluated_s = 0.01;
    assert_int_equal(blame_find(s.history, s.use, s.uses, &driver).cause, BLAME_STEP);
}

/* Steps of 100 ms of three asynchronous workers; those of worker SLOW take `step` s and wait `data`
 * s for records. */
static void play_asynchronous(struct blame_history history[VIEW_MEMBERS_MAX], double step,
                              double data)
{
    struct blame_report total[MEMBERS] = {{0}};
    struct blame_use use;
    for (int i = 0; i < 9; i++)
        for (uint32_t node = 0; node < 3; node++) {
            total[node].steps_s += node == SLOW ? step + data : 0.1;
            total[node].data_s += node == SLOW ? data : 0;
            blame_take(&history[node], node, &total[node], &use);
        }
}

static void test_blame_of_waits_at_a_bound(void **state)
{
    static struct blame_history slow[VIEW_MEMBERS_MAX], late[VIEW_MEMBERS_MAX],
        equal[VIEW_MEMBERS_MAX];
    const struct blame_driver driver = {.beat_s = 0.25, .usual_s = -1};
    struct blame_wait wait = {.by = 0, .on = SLOW, .at_bound = true, .seconds = 0.2};
    (void)state;
    play_asynchronous(slow, 0.3, 0);
    play_asynchronous(late, 0.1, 0.2);
    play_asynchronous(equal, 0.11, 0);
    struct blame_verdict v = blame_find_async(slow, &wait, &driver);
    assert_true(v.cause == BLAME_STEP && v.node == SLOW);
    assert_string_equal(text_of(v), "its step took 3.0 × the others' median");
    v = blame_find_async(late, &wait, &driver);
    assert_string_equal(text_of(v), "its data came 0.2 s late");
    assert_int_equal(blame_find_async(equal, &wait, &driver).cause, BLAME_NONE);
    wait.silent_s = 0.6;
    assert_int_equal(blame_find_async(equal, &wait, &driver).cause, BLAME_STOP);
    wait.seconds = 0.005;
    assert_int_equal(blame_find_async(slow, &wait, &driver).cause, BLAME_NONE);
}

static void test_blame_of_waits_at_a_server(void **state)
{
    static struct blame_history history[VIEW_MEMBERS_MAX];
    struct blame_driver driver = {.usual_s = -1};
    struct blame_wait wait = {.by = 0, .on = WORLD_DRIVER, .seconds = 0.5, .bytes = 5e6};
    (void)state;
    assert_int_equal(blame_find_async(history, &wait, &driver).cause, BLAME_NONE); /* too early */
    play_asynchronous(history, 0.1, 0);
    struct blame_verdict v = blame_find_async(history, &wait, &driver);
    assert_true(v.cause == BLAME_LINK && v.node == WORLD_DRIVER);
    assert_string_equal(text_of(v), "its link sent at 80 Mbit/s");
    driver.evaluated_s = 0.3;
    assert_int_equal(blame_find_async(history, &wait, &driver).cause, BLAME_EVALUATION);
    wait.on = 1;
    assert_int_equal(blame_find_async(history, &wait, &driver).cause, BLAME_LINK);
}

static void test_blame_needs_reports(void **state)
{
    struct story s = {.uses = 0};
    struct blame_use use;
    (void)state;
    assert_int_equal(play_exchange(&s, 0.3, 0, 0.05).cause, BLAME_NONE); /* the first report */
    play_exchange(&s, 0.3, 0, 0.05);
    assert_int_equal(blame_find(s.history, s.use, 1, &idle).cause, BLAME_NONE);
    assert_int_equal(blame_find(s.history, s.use, 0, &idle).cause, BLAME_NONE);
    assert_int_equal(play_exchange(&s, 0.105, 0, 0.05).cause, BLAME_NONE); /* hardly a wait */
    s.total[0].steps_s = 0; /* the worker was replaced by one of its number */
    assert_false(blame_take(&s.history[0], 0, &s.total[0], &use));
    s.total[0].steps_s = 1;
    assert_true(blame_take(&s.history[0], 0, &s.total[0], &use));
    assert_true(fabs(use.step_s - 1) < 1e-12);
    assert_string_equal(text_of((struct blame_verdict){.cause = BLAME_NONE}), "");
    assert_null(blame_word(BLAME_NONE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blame_of_a_long_step_names_its_median),
        cmocka_unit_test(test_blame_of_a_slow_worker_names_the_others),
        cmocka_unit_test(test_blame_of_late_data),
        cmocka_unit_test(test_blame_of_a_slow_link),
        cmocka_unit_test(test_blame_of_the_link_that_is_at_most_ends),
        cmocka_unit_test(test_blame_of_a_member_that_stands_still),
        cmocka_unit_test(test_blame_of_an_evaluation),
        cmocka_unit_test(test_blame_of_an_evaluation_on_the_host_of_a_worker),
        cmocka_unit_test(test_blame_of_waits_at_a_bound),
        cmocka_unit_test(test_blame_of_waits_at_a_server),
        cmocka_unit_test(test_blame_needs_reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
