/* When an assertion fails, the world is poisoned: all waits end, the failing task stops, its ranges
 * are no longer written, and real_run reports the place. */
#include "real/real_test_kit.h"

#include <stdatomic.h>

static struct world *world; /* of the test that runs */
static atomic_int errors;   /* lines logged at LOG_ERROR */

static void count_errors(void *user, enum log_level level, const char *line)
{
    (void)user, (void)line;
    if (level == LOG_ERROR)
        atomic_fetch_add(&errors, 1);
}

static void open_world(void)
{
    const struct logger log = {.write = count_errors, .level = LOG_WARN};
    struct err err = {0};
    atomic_store(&errors, 0);
    assert_int_equal(real_open(&(struct real_options){.log = &log}, &world, &err), OK);
}

/* Run to the end that a failed assertion brings. */
static void expect_failure(suite_main main, const char *task)
{
    struct err err = {0};
    assert_int_equal(kit_run(world, main, &err), ERR_BUG);
    assert_int_equal(err.status, ERR_BUG);
    assert_non_null(strstr(err.text, "real_fault_test.c:"));
    assert_non_null(strstr(err.text, "two_and_two == 5"));
    assert_non_null(strstr(err.text, task));
    assert_int_equal(atomic_load(&errors), 1);
    real_close(world);
}

static int two_and_two = 4;

static int wait_for_ever(void *arg)
{
    atomic_int *cancelled = arg;
    int rc = world_sleep(world, WORLD_FOREVER);
    if (rc == ERR_CANCELLED)
        atomic_fetch_add(cancelled, 1);
    return rc;
}

static int fail_assertion(void *arg)
{
    static char range[8];
    struct recv *recv = arg;
    *recv = (struct recv){
        .from = WORLD_DRIVER, .view = 1, .tag = 4, .into = range, .len = sizeof range};
    world_post_recv(world, recv);
    PL_ASSERT(two_and_two == 5);
    return OK;
}

/* The main task learns it from its waits, and cleans up as usual. */
static int main_of_a_bad_task(struct world *w)
{
    static atomic_int cancelled;
    static struct recv recv;
    struct task *good, *bad;
    atomic_store(&cancelled, 0);
    CHECK(world_spawn(w, "good", wait_for_ever, &cancelled, &good) == OK);
    CHECK(world_spawn(w, "bad", fail_assertion, &recv, &bad) == OK);
    CHECK(world_sleep(w, WORLD_FOREVER) == ERR_CANCELLED);
    int result = 0;
    CHECK(world_join(w, bad, WORLD_FOREVER, &result) == OK && result == ERR_BUG);
    CHECK(recv.status == ERR_CANCELLED);
    CHECK(world_join(w, good, WORLD_FOREVER, &result) == OK && result == ERR_CANCELLED);
    CHECK(atomic_load(&cancelled) == 1);
    struct recv late = {.from = WORLD_DRIVER, .view = 1, .tag = 4};
    CHECK(world_post_recv(w, &late) == ERR_CANCELLED && late.status == ERR_CANCELLED);
    return OK;
}

static void test_task_asserts(void **state)
{
    (void)state;
    open_world();
    expect_failure(main_of_a_bad_task, "(task bad)");
}

/* Nobody need join the failed one. */
static int main_that_leaves(struct world *w)
{
    static struct recv recv;
    struct task *bad;
    CHECK(world_spawn(w, "bad", fail_assertion, &recv, &bad) == OK);
    return world_sleep(w, WORLD_FOREVER);
}

static void test_parked_task_is_left(void **state)
{
    (void)state;
    open_world();
    expect_failure(main_that_leaves, "(task bad)");
}

/* The main task is unwound; those that used what lay on its stack have ended before. */
struct shared {
    struct world *w;
    uint64_t turns;
};

static int uses_the_stack(void *arg)
{
    struct shared *s = arg;
    int rc;
    do {
        s->turns++;
        world_raise(s->w, 1);
        rc = world_sleep(s->w, world_now(s->w) + WORLD_SECOND / 1000);
    } while (rc == OK);
    s->turns++;
    return rc;
}

static int main_that_asserts(struct world *w)
{
    struct shared shared = {w, 0};
    struct task *task;
    struct wait_for turn = {.kind = WAIT_SIGNAL, .signal = 1, .seen = 3};
    struct wake wake;
    CHECK(world_spawn(w, "user", uses_the_stack, &shared, &task) == OK);
    CHECK(world_wait(w, &turn, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
    PL_ASSERT(two_and_two == 5);
    return OK;
}

static void test_main_asserts(void **state)
{
    (void)state;
    open_world();
    expect_failure(main_that_asserts, "(task main)");
}

/* An assertion in the function that lands bytes, on the world's own thread. */
static void land_badly(void *user, void *at, const void *bytes, size_t n)
{
    (void)user, (void)at, (void)bytes, (void)n;
    PL_ASSERT(two_and_two == 5);
}

static int stranger; /* a bare socket that is worker 0 */

static int main_of_bad_landing(struct world *w)
{
    char x[8] = {0};
    struct recv recv = {
        .from = 0, .view = 1, .tag = 4, .into = x, .len = sizeof x, .land = land_badly};
    CHECK(suite_peer_is(w, 0, true) == OK);
    CHECK(world_post_recv(w, &recv) == OK);
    CHECK(kit_put_frame(stranger, &(struct frame){8, FRAME_DATA, CLASS_BULK, 1, 4}, x, 8));
    struct wait_for done = {.kind = WAIT_RECV, .recv = &recv};
    struct wake wake;
    CHECK(world_wait(w, &done, 1, suite_until(w, SUITE_PATIENCE), &wake) == ERR_CANCELLED);
    world_unpost(w, &recv);
    world_abort(w, 9); /* nothing hangs */
    return OK;
}

static void test_landing_asserts(void **state)
{
    (void)state;
    open_world();
    struct hello answer;
    stranger = kit_join(world, &answer);
    expect_failure(main_of_bad_landing, "(task io)");
    close(stranger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_task_asserts),
        cmocka_unit_test(test_parked_task_is_left),
        cmocka_unit_test(test_main_asserts),
        cmocka_unit_test(test_landing_asserts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
