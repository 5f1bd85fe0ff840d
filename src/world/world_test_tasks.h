/* Conformance: tasks, signals, deadlines, and cancelling in every kind of wait. Part of
 * world_test_suite.h. */
#ifndef PL_WORLD_WORLD_TEST_TASKS_H
#define PL_WORLD_WORLD_TEST_TASKS_H

#include "world/world_test_suite.h"

/* A node alone: time passes only as asked, and never less. */
static inline int deadlines_node(struct world *w)
{
    struct wake wake;
    int64_t start = world_now(w);
    struct wait_for signal = {.kind = WAIT_SIGNAL, .signal = 3};
    CHECK(world_wait(w, &signal, 1, start + SUITE_MOMENT, &wake) == ERR_TIMEOUT);
    CHECK(world_now(w) >= start + SUITE_MOMENT);
    CHECK(world_wait(w, &signal, 1, start, &wake) == ERR_TIMEOUT); /* long past */
    int64_t before = world_now(w);
    CHECK(world_wait(w, NULL, 0, before + SUITE_MOMENT, &wake) == ERR_TIMEOUT);
    CHECK(world_now(w) >= before + SUITE_MOMENT);
    CHECK(world_sleep(w, world_now(w) + SUITE_MOMENT) == OK);
    CHECK(world_sleep(w, 0) == OK);
    CHECK(world_random(w, 1, 1) == world_random(w, 1, 1));
    CHECK(world_random(w, 1, 1) != world_random(w, 1, 2));
    CHECK(world_random(w, 1, 1) != world_random(w, 2, 1));
    return OK;
}

static inline void test_deadlines(void **state)
{
    suite_play(state, 1, (const suite_main[]){deadlines_node});
}

/* A signal raised before the wait wakes it; `seen` makes it count once. */
static inline int signals_node(struct world *w)
{
    struct wake wake;
    struct wait_for set[] = {{.kind = WAIT_SIGNAL, .signal = 4},
                             {.kind = WAIT_SIGNAL, .signal = 5},
                             {.kind = WAIT_SIGNAL, .signal = 6}};
    CHECK(world_raised(w, 5) == 0);
    world_raise(w, 5);
    world_raise(w, 6);
    world_raise(w, 5);
    CHECK(world_raised(w, 5) == 2 && world_raised(w, 4) == 0);
    CHECK(world_wait(w, set, 3, suite_until(w, SUITE_PATIENCE), &wake) == OK);
    CHECK(wake.which == 1); /* the lowest index that holds */
    set[1].seen = 1;
    CHECK(world_wait(w, set, 3, suite_until(w, SUITE_PATIENCE), &wake) == OK && wake.which == 1);
    set[1].seen = 2;
    CHECK(world_wait(w, set, 3, suite_until(w, SUITE_PATIENCE), &wake) == OK && wake.which == 2);
    set[2].seen = 1;
    CHECK(world_wait(w, set, 3, suite_until(w, SUITE_MOMENT), &wake) == ERR_TIMEOUT);
    return OK;
}

static inline void test_signals(void **state)
{
    suite_play(state, 1, (const suite_main[]){signals_node});
}

/* Two tasks hand a number to and fro a thousand times; each waits for the other's signal. */
struct rally {
    struct world *w;
    uint32_t mine, theirs;
    uint64_t ball; /* shared, handed over by signals only */
};

enum { RALLY_STROKES = 1000 };

static inline int rally_stroke(struct world *w, uint64_t *ball, uint32_t theirs, uint32_t mine)
{
    for (uint64_t i = 0; i < RALLY_STROKES; i++) {
        struct wait_for their = {.kind = WAIT_SIGNAL, .signal = theirs, .seen = i};
        struct wake wake;
        CHECK(world_wait(w, &their, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
        (*ball)++;
        world_raise(w, mine);
    }
    return OK;
}

static inline int rally_task(void *arg)
{
    struct rally *r = arg;
    return rally_stroke(r->w, &r->ball, r->theirs, r->mine);
}

static inline int rally_node(struct world *w)
{
    struct rally r = {.w = w, .mine = 1, .theirs = 0};
    struct task *task;
    CHECK(world_spawn(w, "rally", rally_task, &r, &task) == OK);
    world_raise(w, 0); /* the service */
    CHECK(rally_stroke(w, &r.ball, 1, 0) == OK);
    int result = -1;
    CHECK(world_join(w, task, suite_until(w, SUITE_PATIENCE), &result) == OK && result == OK);
    CHECK(r.ball == 2 * RALLY_STROKES);
    return OK;
}

static inline void test_handover_by_signals(void **state)
{
    suite_play(state, 1, (const suite_main[]){rally_node});
}

/* A task's result comes out of its join; a join that times out leaves the task to be joined. */
struct sleeper {
    struct world *w;
    int64_t until;
    int result;
};

static inline int sleeper_task(void *arg)
{
    struct sleeper *s = arg;
    int rc = world_sleep(s->w, s->until);
    return rc == OK ? s->result : rc;
}

static inline int join_node(struct world *w)
{
    struct sleeper s = {w, suite_until(w, 3 * SUITE_MOMENT), 42};
    struct task *task;
    int result = -1;
    CHECK(world_spawn(w, "sleeper", sleeper_task, &s, &task) == OK);
    CHECK(world_join(w, task, suite_until(w, SUITE_MOMENT), &result) == ERR_TIMEOUT);
    CHECK(result == -1);
    struct wait_for end = {.kind = WAIT_TASK, .task = task};
    struct wake wake;
    CHECK(world_wait(w, &end, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK && wake.which == 0);
    CHECK(world_now(w) >= s.until);
    CHECK(world_join(w, task, world_now(w), &result) == OK && result == 42); /* it has ended */

    struct sleeper forever = {w, WORLD_FOREVER, 0};
    CHECK(world_spawn(w, "sleeper", sleeper_task, &forever, &task) == OK);
    world_end_task(w, &task);
    CHECK(task == NULL);
    world_end_task(w, &task); /* of none: nothing */
    return OK;
}

static inline void test_join(void **state)
{
    suite_play(state, 1, (const suite_main[]){join_node});
}

/* A task that waits for one thing for ever, and then once more. */
struct captive {
    struct world *w;
    struct wait_for want;
    int n;
};

static inline int captive_task(void *arg)
{
    struct captive *c = arg;
    struct wake wake;
    int rc = world_wait(c->w, &c->want, c->n, WORLD_FOREVER, &wake);
    CHECK(rc == ERR_CANCELLED);
    CHECK(world_wait(c->w, &c->want, c->n, WORLD_FOREVER, &wake) == ERR_CANCELLED);
    CHECK(world_sleep(c->w, 0) == ERR_CANCELLED);
    return rc;
}

static inline int free_captive(struct world *w, const struct wait_for *want, bool let_it_wait)
{
    struct captive c = {.w = w, .n = want ? 1 : 0};
    struct task *task;
    int result = -1;
    if (want)
        c.want = *want;
    CHECK(world_spawn(w, "captive", captive_task, &c, &task) == OK);
    if (let_it_wait)
        CHECK(world_sleep(w, suite_until(w, SUITE_MOMENT)) == OK);
    world_cancel(w, task);
    world_cancel(w, task);
    CHECK(world_join(w, task, suite_until(w, SUITE_PATIENCE), &result) == OK);
    return result == ERR_CANCELLED ? OK : result;
}

/* Bulk messages until there is no credit left; *sent of them. */
static inline int exhaust_credit(struct world *w, uint32_t to, uint32_t *sent)
{
    for (*sent = 0;; ++*sent) {
        struct message *m = message_new(77, 0, 1024 * 1024);
        if (!m)
            return ERR_NOMEM;
        memset(m->data, 0, m->len);
        int rc = world_send(w, to, m, CLASS_BULK);
        if (rc == ERR_FULL) {
            message_unref(m);
            return OK;
        }
        if (rc != OK)
            return rc;
    }
}

static inline int cancel_node(struct world *w)
{
    CHECK(suite_peer_is(w, 1, true) == OK);
    char range[8];
    struct ended ended = {0};
    struct recv recv = {.from = 1, .tag = 5, .into = range, .len = sizeof range, .ended = &ended};
    struct sleeper s = {w, WORLD_FOREVER, 0};
    struct task *sleeper;
    uint32_t sent;
    CHECK(world_post_recv(w, &recv) == OK);
    CHECK(world_spawn(w, "sleeper", sleeper_task, &s, &sleeper) == OK);
    CHECK(exhaust_credit(w, 1, &sent) == OK);
    const struct wait_for wants[] = {
        {.kind = WAIT_MESSAGE, .from = WORLD_ANY, .tag = 6, .mask = UINT64_MAX},
        {.kind = WAIT_SIGNAL, .signal = 9},
        {.kind = WAIT_RECV, .recv = &recv},
        {.kind = WAIT_ENDED, .ended = &ended},
        {.kind = WAIT_CREDIT, .peer = 1},
        {.kind = WAIT_PEER},
        {.kind = WAIT_TASK, .task = sleeper},
    };
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++)
        for (int waits = 0; waits < 2; waits++)
            CHECK(free_captive(w, &wants[i], waits) == OK);
    CHECK(free_captive(w, NULL, true) == OK);
    CHECK(recv.status == POST_PENDING); /* cancelling a wait is not taking back */
    world_unpost(w, &recv);
    world_end_task(w, &sleeper);

    /* A message that comes for a cancelled task does not go to it, nor is it lost. */
    struct captive late = {.w = w, .want = wants[0], .n = 1};
    struct task *captive;
    int result = -1;
    CHECK(world_spawn(w, "captive", captive_task, &late, &captive) == OK);
    CHECK(world_sleep(w, suite_until(w, SUITE_MOMENT)) == OK);
    world_cancel(w, captive);
    CHECK(suite_send(w, 0, 0, 6, 66) == OK);
    CHECK(world_sleep(w, suite_until(w, SUITE_MOMENT)) == OK);
    CHECK(world_join(w, captive, suite_until(w, SUITE_PATIENCE), &result) == OK);
    CHECK(result == ERR_CANCELLED);
    uint32_t value;
    CHECK(suite_receive(w, 0, 0, 6, &value) == OK && value == 66);
    CHECK(suite_send(w, 1, 0, 8, sent) == OK);
    return suite_part(w, 2);
}

static inline int cancel_helper(struct world *w)
{
    uint32_t sent;
    CHECK(suite_receive(w, 0, 0, 8, &sent) == OK);
    for (uint32_t i = 0; i < sent; i++) {
        struct wait_for bulk = {.kind = WAIT_MESSAGE, .from = 0, .tag = 77, .mask = UINT64_MAX};
        struct wake wake;
        CHECK(world_wait(w, &bulk, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
        message_unref(wake.msg);
    }
    return suite_part(w, 2);
}

static inline void test_cancel_in_every_wait(void **state)
{
    suite_play(state, 2, (const suite_main[]){cancel_node, cancel_helper});
}

#define WORLD_SUITE_TASKS(f)                                                                  \
    cmocka_unit_test_prestate(test_deadlines, f), cmocka_unit_test_prestate(test_signals, f), \
        cmocka_unit_test_prestate(test_handover_by_signals, f),                               \
        cmocka_unit_test_prestate(test_join, f),                                              \
        cmocka_unit_test_prestate(test_cancel_in_every_wait, f)

#endif
