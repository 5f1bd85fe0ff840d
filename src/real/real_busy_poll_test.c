/* Busy-polling tasks serve the connections themselves. Whatever they do meanwhile, no one waits in
 * vain: neither they, nor the node's other tasks, nor its peers. */
#include "real/real_test_kit.h"

#include <stdatomic.h>

static struct world *driver, *worker;

struct side {
    struct world *world;
    suite_main main;
    int result;
    pthread_t thread;
};

static void *side_thread(void *arg)
{
    struct side *s = arg;
    s->result = kit_run(s->world, s->main, NULL);
    real_close(s->world);
    return NULL;
}

/* The driver runs `a`, its only worker `b`. */
static void play_story(suite_main a, suite_main b)
{
    driver = kit_driver(5 * WORLD_SECOND);
    worker = kit_worker(driver);
    struct side s = {.world = worker, .main = b};
    assert_int_equal(pthread_create(&s.thread, NULL, side_thread, &s), 0);
    kit_check(driver, a);
    pthread_join(s.thread, NULL);
    if (s.result >= SUITE_FAILED)
        print_error("worker: line %d\n", s.result - SUITE_FAILED);
    assert_int_equal(s.result, OK);
    real_close(driver);
}

static int until_ended(struct world *w, const struct ended *ended, uint64_t times)
{
    uint64_t seen;
    while ((seen = atomic_load(&ended->times)) < times) {
        struct wait_for more = {.kind = WAIT_ENDED, .ended = ended, .seen = seen};
        struct wake wake;
        int rc = world_wait(w, &more, 1, suite_until(w, SUITE_PATIENCE), &wake);
        if (rc != OK)
            return rc;
    }
    return OK;
}

/* One round of an exchange: each sends what the other expects. */
static int exchange_once(struct world *w, uint32_t with, uint64_t tag, size_t n)
{
    enum { FLOATS_MAX = 70000 };
    float *x = calloc(2, FLOATS_MAX * sizeof *x), *y = x + FLOATS_MAX;
    struct ended ended = {0};
    CHECK(x && n <= FLOATS_MAX);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(tag + i);
    struct recv recv = {.from = with, .tag = tag, .into = y, .len = n * sizeof *x, .ended = &ended};
    struct send send = {.to = with, .tag = tag, .from = x, .len = n * sizeof *x, .ended = &ended};
    CHECK(world_post_recv(w, &recv) == OK && world_post_send(w, &send) == OK);
    CHECK(until_ended(w, &ended, 2) == OK && recv.status == OK && send.status == OK);
    CHECK(memcmp(x, y, n * sizeof *x) == 0);
    free(x);
    return OK;
}

static int exchange_rounds(struct world *w, uint32_t with, uint64_t base, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        int rc = exchange_once(w, with, base + (uint64_t)i, i % 16 == 5 ? 70000 : (size_t)i % 1000);
        if (rc != OK)
            return rc;
    }
    return OK;
}

/* ---- alone ---- */

static int poll_busily(struct world *w)
{
    const int64_t spins[] = {0, 20000, -1, 1000000, 0};
    uint32_t with = w->self == WORLD_DRIVER ? 0 : WORLD_DRIVER;
    if (w->self == WORLD_DRIVER)
        CHECK(suite_peer_is(w, 0, true) == OK);
    for (uint32_t i = 0; i < 5; i++) {
        world_busy_poll(w, spins[i]);
        int rc = exchange_rounds(w, with, 1000 * i, 200);
        if (rc != OK)
            return rc;
    }
    return OK; /* and ends in a hurry */
}

static int poll_and_leave(struct world *w)
{
    uint32_t value, with = w->self == WORLD_DRIVER ? 0 : WORLD_DRIVER;
    int rc = poll_busily(w);
    if (rc == OK &&
        (suite_send(w, with, 0, 99, 1) != OK || suite_receive(w, with, 0, 99, &value) != OK))
        rc = ERR_PEER;
    return rc;
}

static int wait_asleep(struct world *w)
{
    uint32_t value;
    for (uint64_t i = 0; i < 5; i++) {
        int rc = exchange_rounds(w, WORLD_DRIVER, 1000 * i, 200);
        if (rc != OK)
            return rc;
    }
    CHECK(suite_send(w, WORLD_DRIVER, 0, 99, 1) == OK);
    return suite_receive(w, WORLD_DRIVER, 0, 99, &value);
}

static void test_busy_poll(void **state)
{
    (void)state;
    play_story(poll_and_leave, poll_and_leave);
    play_story(poll_and_leave, wait_asleep);
}

/* ---- in company ---- */

enum { TOGETHER = 4 };

struct companion {
    struct world *w;
    uint32_t i;
    int64_t spin; /* -1: in no hurry */
};

static int keeps_company(void *arg)
{
    struct companion *c = arg;
    uint32_t with = c->w->self == WORLD_DRIVER ? 0 : WORLD_DRIVER;
    if (c->spin >= 0)
        world_busy_poll(c->w, c->spin);
    return exchange_rounds(c->w, with, 10000 * (c->i + 1), 150);
}

/* Some poll, some do not; the polling task changes all the time. */
static int poll_and_sleep(struct world *w)
{
    const int64_t spins[TOGETHER] = {0, -1, 50000, 0};
    struct companion c[TOGETHER];
    struct task *task[TOGETHER];
    uint32_t value, with = w->self == WORLD_DRIVER ? 0 : WORLD_DRIVER;
    if (w->self == WORLD_DRIVER)
        CHECK(suite_peer_is(w, 0, true) == OK);
    for (uint32_t i = 0; i < TOGETHER; i++) {
        c[i] = (struct companion){w, i, spins[i]};
        CHECK(world_spawn(w, "companion", keeps_company, &c[i], &task[i]) == OK);
    }
    for (uint32_t i = 0; i < TOGETHER; i++) {
        int result = ERR_BUG;
        CHECK(world_join(w, task[i], suite_until(w, 3 * SUITE_PATIENCE), &result) == OK);
        if (result != OK)
            return result;
    }
    CHECK(suite_send(w, with, 0, 99, 1) == OK);
    return suite_receive(w, with, 0, 99, &value);
}

static void test_busy_poll_and_sleep_together(void **state)
{
    (void)state;
    play_story(poll_and_sleep, poll_and_sleep);
}

/* ---- who hurries and then computes ---- */

static atomic_bool answered;

static int echo_task(void *arg)
{
    struct world *w = arg;
    for (;;) {
        uint32_t value;
        int rc = suite_receive(w, 0, 0, 7, &value);
        if (rc != OK || value == 0) {
            atomic_store(&answered, true);
            return rc;
        }
        CHECK(suite_send(w, 0, 0, 8, value) == OK);
    }
}

/* The main task waits in a hurry, and then does not return before all is answered. */
static int compute_between(struct world *w)
{
    struct task *task;
    uint32_t value;
    int result;
    atomic_store(&answered, false);
    CHECK(suite_peer_is(w, 0, true) == OK);
    CHECK(world_spawn(w, "echo", echo_task, w, &task) == OK);
    world_busy_poll(w, 0);
    CHECK(suite_receive(w, 0, 0, 6, &value) == OK);
    for (int64_t end = suite_until(w, SUITE_PATIENCE);
         !atomic_load(&answered) && world_now(w) < end;)
        ;
    CHECK(atomic_load(&answered));
    return world_join(w, task, suite_until(w, SUITE_PATIENCE), &result) == OK ? result
                                                                              : ERR_TIMEOUT;
}

static int is_answered(struct world *w)
{
    int64_t worst = 0;
    CHECK(suite_send(w, WORLD_DRIVER, 0, 6, 1) == OK);
    for (uint32_t i = 1; i <= 20; i++) {
        uint32_t value;
        int64_t start = world_now(w);
        CHECK(suite_send(w, WORLD_DRIVER, 0, 7, i) == OK);
        CHECK(suite_receive(w, WORLD_DRIVER, 0, 8, &value) == OK && value == i);
        int64_t took = world_now(w) - start;
        worst = took > worst ? took : worst;
    }
    print_message("answered after %.2f ms at most\n", (double)worst * 1e-6);
    return suite_send(w, WORLD_DRIVER, 0, 7, 0);
}

static void test_others_are_served(void **state)
{
    (void)state;
    play_story(compute_between, is_answered);
}

/* ---- what wakes it ---- */

static int raise_task(void *arg)
{
    struct world *w = arg;
    world_sleep(w, suite_until(w, KIT_MOMENT / 4));
    world_raise(w, 3);
    return OK;
}

static int wait_busily(void *arg)
{
    struct world *w = arg;
    world_busy_poll(w, 0);
    return world_sleep(w, WORLD_FOREVER);
}

static int is_woken(struct world *w)
{
    struct task *task;
    struct wait_for raised = {.kind = WAIT_SIGNAL, .signal = 3};
    struct wake wake;
    CHECK(suite_peer_is(w, 0, true) == OK);
    for (int64_t spin = 0; spin <= KIT_MOMENT / 2; spin += KIT_MOMENT / 2) {
        world_busy_poll(w, spin);
        int64_t start = world_now(w);
        raised.seen = world_raised(w, 3);
        CHECK(world_spawn(w, "raises", raise_task, w, &task) == OK);
        CHECK(world_wait(w, &raised, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
        int64_t took = world_now(w) - start;
        CHECK(took >= KIT_MOMENT / 4 && took < SUITE_PATIENCE / 2);
        CHECK(world_join(w, task, WORLD_FOREVER, NULL) == OK);
        start = world_now(w);
        CHECK(world_sleep(w, start + KIT_MOMENT / 4) == OK);
        took = world_now(w) - start;
        CHECK(took >= KIT_MOMENT / 4 && took < SUITE_PATIENCE / 2);
    }
    int result;
    CHECK(world_spawn(w, "waits", wait_busily, w, &task) == OK);
    CHECK(world_sleep(w, suite_until(w, KIT_MOMENT / 4)) == OK);
    world_cancel(w, task); /* be it that it serves, or that it waits for its turn */
    CHECK(world_join(w, task, suite_until(w, SUITE_PATIENCE), &result) == OK);
    CHECK(result == ERR_CANCELLED);
    CHECK(world_spawn(w, "waits", wait_busily, w, &task) == OK);
    world_busy_poll(w, -1);
    CHECK(world_sleep(w, suite_until(w, KIT_MOMENT / 4)) == OK);
    world_cancel(w, task);
    CHECK(world_join(w, task, suite_until(w, SUITE_PATIENCE), &result) == OK);
    return suite_send(w, 0, 0, 1, 1);
}

static int receive_one(struct world *w)
{
    uint32_t value;
    return suite_receive(w, WORLD_DRIVER, 0, 1, &value);
}

static void test_busy_poll_is_woken(void **state)
{
    (void)state;
    play_story(is_woken, receive_one);
}

/* ---- a mistake of ours while a task serves ---- */

static int two_and_two = 4;

static void land_badly(void *user, void *at, const void *bytes, size_t n)
{
    (void)user, (void)at, (void)bytes, (void)n;
    PL_ASSERT(two_and_two == 5);
}

static int stranger;

static int serves_badly(struct world *w)
{
    static char x[8];
    static struct recv recv;
    recv = (struct recv){
        .from = 0, .view = 1, .tag = 4, .into = x, .len = sizeof x, .land = land_badly};
    struct wait_for done = {.kind = WAIT_RECV, .recv = &recv};
    struct wake wake;
    world_busy_poll(w, 0);
    CHECK(suite_peer_is(w, 0, true) == OK);
    CHECK(world_post_recv(w, &recv) == OK);
    CHECK(kit_put_frame(stranger, &(struct frame){8, FRAME_DATA, CLASS_BULK, 1, 4}, x, 8));
    return world_wait(w, &done, 1, suite_until(w, SUITE_PATIENCE), &wake);
}

static void test_serving_asserts(void **state)
{
    (void)state;
    struct hello answer;
    struct err err = {0};
    struct world *w = kit_plain_driver(5 * WORLD_SECOND);
    stranger = kit_join(w, &answer);
    assert_int_equal(kit_run(w, serves_badly, &err), ERR_BUG);
    assert_non_null(strstr(err.text, "two_and_two == 5"));
    real_close(w);
    close(stranger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_busy_poll),
        cmocka_unit_test(test_busy_poll_and_sleep_together),
        cmocka_unit_test(test_others_are_served),
        cmocka_unit_test(test_busy_poll_is_woken),
        cmocka_unit_test(test_serving_asserts),
    };
    KIT_RUN_ALL_WAYS(tests);
}
