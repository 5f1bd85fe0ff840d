/* Properties that only nodes with addresses of their own can show: connections, their order, and
 * the fate of messages on the way. */
#include "real/real_test_kit.h"

#include <stdatomic.h>

struct partner {
    struct world *world;
    suite_main main;
    pthread_t thread;
    int result;
};

static void *partner_thread(void *arg)
{
    struct partner *p = arg;
    p->result = kit_run(p->world, p->main, NULL);
    real_close(p->world);
    return NULL;
}

static void partner_start(struct partner *p, struct world *w, suite_main main)
{
    *p = (struct partner){.world = w, .main = main};
    assert_int_equal(pthread_create(&p->thread, NULL, partner_thread, p), 0);
}

static void partner_end(struct partner *p)
{
    pthread_join(p->thread, NULL);
    if (p->result >= SUITE_FAILED)
        print_error("partner: line %d\n", p->result - SUITE_FAILED);
    assert_int_equal(p->result, OK);
}

static char address_of_0[64];

/* ---- acquaintance ---- */

/* Node 1 hears of node 0 first: its connection is taken, and its messages are kept. */
static int receive_from_unknown(struct world *w)
{
    uint32_t value;
    CHECK(suite_send(w, 1, 0, 1, 1) == ERR_PEER); /* an unknown peer */
    world_raise(w, 1);
    CHECK(suite_peer_is(w, 1, true) == OK);
    CHECK(suite_receive(w, 1, 0, 7, &value) == OK && value == 70);
    CHECK(suite_send(w, 1, 0, 8, 80) == OK);
    CHECK(world_peer_add(w, 1, "127.0.0.1:1") == OK); /* known by now: nothing happens */
    return suite_peer_is(w, 1, false);
}

static int calls_first(struct world *w)
{
    uint32_t value;
    CHECK(world_sleep(w, suite_until(w, KIT_MOMENT / 2)) == OK);
    CHECK(world_peer_add(w, 0, address_of_0) == OK);
    CHECK(suite_send(w, 0, 0, 7, 70) == OK); /* goes when it is up */
    return suite_receive(w, 0, 0, 8, &value);
}

/* Node 0 hears of node 1 first: what it says waits until node 1 connects. */
static int speaks_first(struct world *w)
{
    uint32_t value;
    struct recv recv = {.from = 1, .view = 3, .tag = 9, .into = &value, .len = sizeof value};
    CHECK(world_peer_add(w, 1, "127.0.0.1:1") == OK);
    CHECK(suite_send(w, 1, 0, 8, 80) == OK);
    CHECK(world_post_recv(w, &recv) == OK); /* and what it will say is waited for */
    struct message *m;
    for (int rc = OK; rc == OK;) { /* as much as there is credit, and no more */
        m = message_new(10, 0, WORLD_MESSAGE_MAX);
        CHECK(m);
        rc = world_send(w, 1, m, CLASS_BULK);
        CHECK(rc == OK || rc == ERR_FULL);
    }
    message_unref(m);
    CHECK(suite_peer_is(w, 1, true) == OK);
    uint32_t word;
    CHECK(suite_receive(w, 1, 0, 7, &word) == OK && word == 70);
    world_unpost(w, &recv);
    return OK;
}

static void play_pair(suite_main first, suite_main second)
{
    struct world *driver = kit_driver(5 * WORLD_SECOND);
    struct world *zero = kit_worker(driver), *one = kit_worker(driver);
    struct partner p[2];
    world_address(zero, address_of_0, sizeof address_of_0);
    partner_start(&p[0], zero, first);
    partner_start(&p[1], one, second);
    partner_end(&p[0]);
    partner_end(&p[1]);
    real_close(driver);
}

static void test_acquaintance(void **state)
{
    (void)state;
    play_pair(receive_from_unknown, calls_first);
    play_pair(speaks_first, calls_first);
}

/* Without a listener there is no peer: sends to it end, and no wait hangs. */
static int call_without_driver(struct world *w)
{
    char x[4];
    struct recv recv = {.from = 0, .view = 1, .tag = 9, .into = x, .len = sizeof x};
    struct wait_for done = {.kind = WAIT_RECV, .recv = &recv};
    struct wake wake;
    CHECK(world_peer_add(w, 0, address_of_0) == OK);
    CHECK(world_post_recv(w, &recv) == OK);
    CHECK(world_wait(w, &done, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
    CHECK(recv.status == ERR_PEER);
    CHECK(suite_send(w, 0, 0, 1, 1) == ERR_PEER);
    CHECK(world_peer_add(w, 0, address_of_0) == OK);
    CHECK(suite_send(w, 0, 0, 1, 1) == ERR_PEER); /* for good */
    return OK;
}

static void test_no_driver_there(void **state)
{
    (void)state;
    struct world *driver = kit_driver(5 * WORLD_SECOND);
    struct world *zero = kit_worker(driver), *one = kit_worker(driver);
    world_address(zero, address_of_0, sizeof address_of_0);
    real_close(zero);
    kit_check(one, call_without_driver);
    real_close(one);
    real_close(driver);
}

/* Two drivers, two runs: no worker gets into the wrong one. */
static int calls_another_run(struct world *w)
{
    CHECK(world_peer_add(w, 0, address_of_0) == OK);
    for (int i = 0; i < 500; i++) {
        if (suite_send(w, 0, 0, 1, 1) == ERR_PEER)
            return OK;
        CHECK(world_sleep(w, suite_until(w, KIT_MOMENT / 10)) == OK);
    }
    return ERR_TIMEOUT;
}

static void test_two_runs(void **state)
{
    (void)state;
    struct world *driver[2] = {kit_driver(5 * WORLD_SECOND), kit_driver(5 * WORLD_SECOND)};
    struct world *zero = kit_worker(driver[0]);
    struct world *other[2] = {kit_worker(driver[1]), kit_worker(driver[1])};
    world_address(zero, address_of_0, sizeof address_of_0);
    kit_check(other[1], calls_another_run);
    real_close(other[1]);
    real_close(other[0]);
    real_close(zero);
    real_close(driver[0]);
    real_close(driver[1]);
}

/* ---- credit with oneself ---- */

static int talks_to_itself(struct world *w)
{
    enum { MEBIBYTE = 1024 * 1024 };
    struct wait_for credit = {.kind = WAIT_CREDIT, .peer = w->self};
    struct wait_for any = {
        .kind = WAIT_MESSAGE, .from = w->self, .view = 1, .tag = 1, .mask = UINT64_MAX};
    struct wake wake;
    struct message *m;
    int sent = 0;
    for (int rc = OK; rc == OK; sent += rc == OK) {
        m = message_new(1, 1, MEBIBYTE);
        CHECK(m);
        rc = world_send(w, w->self, m, CLASS_BULK);
    }
    CHECK(sent == WORLD_CREDIT / MEBIBYTE);
    for (int taken = 0; taken < sent / 2; taken++) {
        CHECK(world_wait(w, &credit, 1, world_now(w), &wake) == ERR_TIMEOUT);
        CHECK(world_wait(w, &any, 1, world_now(w), &wake) == OK);
        message_unref(wake.msg);
    }
    CHECK(world_wait(w, &credit, 1, world_now(w), &wake) == OK);
    CHECK(world_send(w, w->self, m, CLASS_BULK) == OK);
    world_abort(w, 2); /* gives all of it back */
    CHECK(world_wait(w, &any, 1, world_now(w), &wake) == ERR_TIMEOUT);
    for (int i = 0; i < sent; i++) {
        m = message_new(1, 2, MEBIBYTE);
        CHECK(m && world_send(w, w->self, m, CLASS_BULK) == OK);
    }
    return OK; /* the world closes over what is left */
}

static void test_credit_with_oneself(void **state)
{
    (void)state;
    struct world *w = kit_driver(WORLD_SECOND);
    kit_check(w, talks_to_itself);
    real_close(w);
}

/* ---- aborts in a storm ---- */

/* One node pours messages of view after view; the other posts receives in fresh memory, aborts the
 * view at some moment and frees the memory at once. */
enum { VIEWS = 60, PER_VIEW = 4, STORM_FLOATS = 64 * 1024 };

static void land_sum(void *user, void *at, const void *bytes, size_t n)
{
    (void)user;
    float *x = at;
    const float *y = bytes;
    for (size_t i = 0; i < n / sizeof *x; i++)
        x[i] += y[i];
}

static int pours_views(struct world *w)
{
    for (uint32_t view = 1; view <= VIEWS; view++) {
        uint32_t value;
        CHECK(suite_receive(w, WORLD_DRIVER, 0, view, &value) == OK);
        for (uint64_t tag = 0; tag < PER_VIEW; tag++) {
            struct message *m = message_new(tag, view, STORM_FLOATS * sizeof(float));
            CHECK(m);
            memset(m->data, 0, m->len);
            CHECK(suite_send_bulk(w, WORLD_DRIVER, m) == OK);
        }
    }
    return suite_send(w, WORLD_DRIVER, 0, VIEWS + 1, 0);
}

struct aborter {
    struct world *w;
    uint32_t view;
    int64_t when;
};

static int abort_task(void *arg)
{
    struct aborter *a = arg;
    world_sleep(a->w, a->when);
    world_abort(a->w, a->view + 1);
    return OK;
}

/* `patience`: how long the aborter waits at most. */
static int one_view(struct world *w, uint32_t view, int64_t patience, int *landed)
{
    struct aborter a = {w, view,
                        world_now(w) + (int64_t)(world_random(w, 1, view) % (uint64_t)patience)};
    float *x = calloc(STORM_FLOATS, sizeof *x);
    struct recv recv[PER_VIEW];
    struct task *task;
    CHECK(x && suite_send(w, 0, 0, view, 0) == OK);
    CHECK(world_spawn(w, "aborter", abort_task, &a, &task) == OK);
    for (uint32_t i = 0; i < PER_VIEW; i++) {
        recv[i] = (struct recv){.from = 0,
                                .view = view,
                                .tag = i,
                                .into = x,
                                .len = STORM_FLOATS * sizeof *x,
                                .land = i % 2 ? land_sum : NULL};
        int rc = world_post_recv(w, &recv[i]);
        CHECK(rc == OK || rc == ERR_VIEW);
    }
    for (uint32_t i = 0; i < PER_VIEW; i++) {
        struct wait_for done = {.kind = WAIT_RECV, .recv = &recv[i]};
        struct wake wake;
        CHECK(world_wait(w, &done, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
        CHECK(recv[i].status == OK || recv[i].status == ERR_VIEW);
        *landed += recv[i].status == OK;
    }
    free(x);
    return world_join(w, task, WORLD_FOREVER, NULL);
}

/* Patience grows when little has landed and shrinks when much has, on machines of any speed. */
static int aborts_views(struct world *w)
{
    int64_t patience = WORLD_SECOND / 1000;
    int all = 0;
    uint32_t value;
    CHECK(suite_peer_is(w, 0, true) == OK);
    for (uint32_t view = 1; view <= VIEWS; view++) {
        int landed = 0, rc = one_view(w, view, patience, &landed);
        if (rc != OK)
            return rc;
        patience = landed < PER_VIEW / 2 ? patience * 5 / 4 : patience * 4 / 5;
        all += landed;
    }
    print_message("%d of %d messages landed before the abort\n", all, VIEWS * PER_VIEW);
    return suite_receive(w, 0, 0, VIEWS + 1, &value);
}

static void test_abort_storm(void **state)
{
    (void)state;
    struct world *driver = kit_driver(5 * WORLD_SECOND);
    struct partner p;
    partner_start(&p, kit_worker(driver), pours_views);
    kit_check(driver, aborts_views);
    real_close(driver);
    partner_end(&p);
}

/* ---- closing towards who does not listen ---- */

static uint32_t mute;

static int send_to_non_reader(struct world *w)
{
    CHECK(suite_peer_is(w, mute, true) == OK);
    for (int i = 0; i < 2; i++)
        CHECK(world_send(w, mute, message_new(1, 0, WORLD_MESSAGE_MAX), CLASS_BULK) == OK);
    return OK;
}

static void test_close_is_bounded(void **state)
{
    (void)state;
    struct world *w = kit_plain_driver(5 * WORLD_SECOND);
    struct hello answer;
    int fd = kit_join(w, &answer), small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    mute = answer.peer;
    node_of(w)->limits.flush = 2 * KIT_MOMENT;
    kit_check(w, send_to_non_reader);
    int64_t start = real_now();
    real_close(w);
    int64_t took = real_now() - start;
    assert_true(took >= KIT_MOMENT && took < 50 * KIT_MOMENT);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_acquaintance), cmocka_unit_test(test_no_driver_there),
        cmocka_unit_test(test_two_runs),     cmocka_unit_test(test_credit_with_oneself),
        cmocka_unit_test(test_abort_storm),  cmocka_unit_test(test_close_is_bounded),
    };
    KIT_RUN_ALL_WAYS(tests);
}
