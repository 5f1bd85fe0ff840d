/* Posted sends: bytes that are sent from the caller's memory, in order and with credit, and are
 * cancelled, aborted, or lose their receiver. The other side is a bare socket, which sees every
 * frame. */
#define _GNU_SOURCE
#include "real/real_test_kit.h"

#include <stdatomic.h>

enum { BIG = WORLD_MESSAGE_MAX, SMALL = 128 * 1024 /* a socket's buffer */ };

static struct {
    struct world *world;
    int fd;
    uint32_t number;
} other;

/* `buffer`: of the bare peer's socket, 0 for as much as it likes. */
static void play_story(suite_main main, int buffer)
{
    struct hello answer;
    other.world = kit_driver(5 * WORLD_SECOND);
    other.fd = kit_join(other.world, &answer);
    other.number = answer.peer;
    if (buffer)
        setsockopt(other.fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    kit_check(other.world, main);
    if (other.fd >= 0)
        close(other.fd);
    real_close(other.world);
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

static unsigned char *filled_buffer(size_t n, unsigned seed)
{
    unsigned char *x = malloc(n);
    for (size_t i = 0; x && i < n; i++)
        x[i] = (unsigned char)(i * 7 + i / 4096 + seed);
    return x;
}

static bool is_filled(const unsigned char *x, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] != (unsigned char)(i * 7 + i / 4096 + seed))
            return false;
    return true;
}

static struct send a_send(uint64_t tag, uint32_t view, const void *from, size_t len,
                          struct ended *ended)
{
    return (struct send){
        .to = other.number, .view = view, .tag = tag, .from = from, .len = len, .ended = ended};
}

/* ---- in turn ---- */

/* Of messages and posted sends, what was handed over first goes first. */
static int takes_turns(struct world *w)
{
    enum { TURNS = 12, LEN = 1000 };
    struct send send[TURNS];
    struct ended ended = {0};
    unsigned char data[LEN], *from = filled_buffer(LEN, 3);
    struct frame frame;
    CHECK(from && suite_peer_is(w, other.number, true) == OK);
    for (uint32_t i = 0; i < TURNS; i += 2) {
        send[i] = a_send(i, 1, from, i ? LEN : 0, &ended);
        CHECK(world_post_send(w, &send[i]) == OK);
        struct message *m = message_new(i + 1, 1, LEN);
        CHECK(m);
        memcpy(m->data, from, LEN);
        CHECK(world_send(w, other.number, m, CLASS_BULK) == OK);
    }
    CHECK(until_ended(w, &ended, TURNS / 2) == OK);
    free(from);
    for (uint32_t i = 0; i < TURNS; i++) {
        CHECK(i % 2 || send[i].status == OK);
        CHECK(kit_get_message(other.fd, &frame, data, sizeof data));
        CHECK(frame.tag == i && frame.view == 1 && frame.class == CLASS_BULK);
        CHECK(frame.length == (i ? LEN : 0) && is_filled(data, frame.length, 3));
    }
    return OK;
}

static void test_turns(void **state)
{
    (void)state;
    play_story(takes_turns, 0);
}

/* ---- credit ---- */

static bool is_silent(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 100) == 0;
}

/* Of four times the credit as much goes as there is room for; the rest when room is made. A message
 * behind them waits in its turn, and what has been promised to it is not given away. */
static int continue_with_credit(struct world *w)
{
    enum { SENDS = 4 * WORLD_CREDIT / BIG, FIT = WORLD_CREDIT / BIG };
    static unsigned char data[BIG];
    struct send send[SENDS];
    struct ended ended = {0};
    unsigned char *from = filled_buffer(BIG, 1);
    struct frame frame;
    CHECK(from && suite_peer_is(w, other.number, true) == OK);
    CHECK(world_send(w, other.number, message_new(98, 0, BIG), CLASS_BULK) == OK);
    for (uint32_t i = 0; i < SENDS; i++) {
        send[i] = a_send(i, 0, from, BIG, &ended);
        CHECK(world_post_send(w, &send[i]) == OK);
        if (i == 0)
            CHECK(world_send(w, other.number, message_new(99, 0, BIG), CLASS_BULK) == OK);
    }
    for (int i = -1, got = 0; i < SENDS + 1; i++, got++) {
        uint64_t tag = i < 0 ? 98 : i == 1 ? 99 : (uint64_t)(i > 1 ? i - 1 : i);
        if (got >= FIT) {
            CHECK(is_silent(other.fd));
            CHECK(kit_put_frame(other.fd, &(struct frame){0, FRAME_CREDIT, CLASS_BULK, 0, BIG},
                                NULL, 0));
        }
        CHECK(kit_get_message(other.fd, &frame, data, sizeof data));
        CHECK(frame.tag == tag && frame.length == BIG && (tag > 90 || is_filled(data, BIG, 1)));
    }
    CHECK(until_ended(w, &ended, SENDS) == OK);
    free(from);
    return OK;
}

static void test_room(void **state)
{
    (void)state;
    play_story(continue_with_credit, 0);
}

/* ---- taken back ---- */

/* Taken back while it waits and while half of it has gone, with the memory gone at once: the other
 * side sees whole frames only, with what they were to bring. */
static int takes_back(struct world *w, bool by_abort)
{
    static unsigned char data[BIG];
    struct send send[3];
    struct ended ended = {0};
    unsigned char *from = filled_buffer(BIG, 1);
    struct frame frame;
    CHECK(from && suite_peer_is(w, other.number, true) == OK);
    for (uint32_t i = 0; i < 3; i++) {
        send[i] = a_send(i, 1, from, i < 2 ? BIG : 8, &ended);
        CHECK(world_post_send(w, &send[i]) == OK);
    }
    CHECK(world_sleep(w, suite_until(w, KIT_MOMENT)) == OK); /* the socket is full by now */
    CHECK(send[1].status == POST_PENDING && send[2].status == POST_PENDING);
    if (by_abort)
        world_abort(w, 2);
    for (int i = 0; i < 3 && !by_abort; i++)
        world_unsend(w, &send[i]);
    for (int i = 0; i < 3; i++)
        CHECK(send[i].status == (by_abort ? ERR_VIEW : ERR_CANCELLED) ||
              (i == 0 && send[i].status == OK));
    CHECK(atomic_load(&ended.times) == 3);
    memset(from, 0xee, BIG);
    free(from);
    world_unsend(w, &send[2]); /* has ended: nothing */
    CHECK(suite_send(w, other.number, 2, 99, 42) == OK);
    CHECK(kit_get_message(other.fd, &frame, data, sizeof data));
    CHECK(frame.tag == 0 && frame.length == BIG && is_filled(data, BIG, 1));
    CHECK(kit_get_message(other.fd, &frame, data, sizeof data));
    if (frame.tag == 1) { /* a socket that takes more than one at once */
        CHECK(frame.length == BIG && is_filled(data, BIG, 1));
        CHECK(kit_get_message(other.fd, &frame, data, sizeof data));
    }
    CHECK(frame.tag == 99 && frame.view == 2 && frame.length == 4);
    if (by_abort) {
        send[0] = a_send(0, 1, data, 8, &ended);
        CHECK(world_post_send(w, &send[0]) == ERR_VIEW && send[0].status == ERR_VIEW);
    }
    return OK;
}

static int unsend_all(struct world *w)
{
    return takes_back(w, false);
}

static int abort_sends(struct world *w)
{
    return takes_back(w, true);
}

static void test_taken_back(void **state)
{
    (void)state;
    play_story(unsend_all, SMALL);
    play_story(abort_sends, SMALL);
}

/* The same at random moments, while the other side reads as fast as it can. */
enum { STORMS = 150, STORM_LEN = 600 * 1000 };

static void *reads_on(void *arg)
{
    struct frame frame;
    unsigned char *data = malloc(BIG);
    intptr_t whole = 0;
    while (data && kit_get_message(other.fd, &frame, data, BIG)) {
        if (frame.length != STORM_LEN || !is_filled(data, STORM_LEN, frame.view))
            whole = -STORMS;
        whole++;
        kit_put_frame(other.fd,
                      &(struct frame){0, FRAME_CREDIT, CLASS_BULK, 0, message_cost(frame.length)},
                      NULL, 0);
    }
    free(data);
    (void)arg;
    return (void *)whole;
}

static int storm_of_aborts(struct world *w)
{
    pthread_t reader;
    int64_t patience = WORLD_SECOND / 2000;
    uint32_t sent = 0;
    CHECK(suite_peer_is(w, other.number, true) == OK);
    CHECK(pthread_create(&reader, NULL, reads_on, NULL) == 0);
    for (uint32_t view = 1; view <= STORMS; view++) {
        struct ended ended = {0};
        unsigned char *from = filled_buffer(STORM_LEN, view);
        CHECK(from);
        struct send send[2];
        for (uint32_t i = 0; i < 2; i++) {
            send[i] = a_send(i, view, from, STORM_LEN, &ended);
            CHECK(world_post_send(w, &send[i]) == OK);
        }
        int64_t for_ns = (int64_t)(world_random(w, 1, view) % (uint64_t)patience);
        CHECK(world_sleep(w, suite_until(w, for_ns)) == OK);
        world_abort(w, view + 1);
        memset(from, 0xee, STORM_LEN);
        free(from);
        uint32_t gone = 0;
        for (int i = 0; i < 2; i++) {
            CHECK(send[i].status == OK || send[i].status == ERR_VIEW);
            gone += send[i].status == OK;
        }
        CHECK(atomic_load(&ended.times) == 2);
        patience = gone < 1 ? patience * 5 / 4 + 1000 : patience * 4 / 5 + 1000;
        sent += gone;
    }
    print_message("%u of %u sends were whole before the abort\n", sent, 2 * STORMS);
    world_peer_drop(w, other.number);
    void *whole;
    pthread_join(reader, &whole);
    CHECK((intptr_t)whole >= 0);
    return OK;
}

static void test_abort_storm(void **state)
{
    (void)state;
    play_story(storm_of_aborts, 0);
}

/* ---- nobody takes it ---- */

static int sees_reset(struct world *w)
{
    struct send send[3];
    struct ended ended = {0};
    unsigned char *from = filled_buffer(BIG, 1);
    CHECK(from && suite_peer_is(w, other.number, true) == OK);
    for (uint32_t i = 0; i < 3; i++) {
        send[i] = a_send(i, 1, from, BIG, &ended);
        CHECK(world_post_send(w, &send[i]) == OK);
    }
    CHECK(world_sleep(w, suite_until(w, KIT_MOMENT)) == OK);
    struct linger at_once = {.l_onoff = 1};
    CHECK(setsockopt(other.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    close(other.fd);
    other.fd = -1;
    CHECK(until_ended(w, &ended, 3) == OK);
    CHECK(send[1].status == ERR_PEER && send[2].status == ERR_PEER);
    CHECK(world_post_send(w, &send[0]) == OK && send[0].status == ERR_PEER); /* it is down */
    CHECK(atomic_load(&ended.times) == 4);
    send[0].to = 77; /* an unknown peer */
    CHECK(world_post_send(w, &send[0]) == OK && send[0].status == ERR_PEER);
    free(from);
    return OK;
}

static int drop_link(struct world *w)
{
    struct send send[2];
    struct ended ended = {0};
    unsigned char *from = filled_buffer(BIG, 1);
    CHECK(from && suite_peer_is(w, other.number, true) == OK);
    for (uint32_t i = 0; i < 2; i++) {
        send[i] = a_send(i, 1, from, BIG, &ended);
        CHECK(world_post_send(w, &send[i]) == OK);
    }
    CHECK(world_sleep(w, suite_until(w, KIT_MOMENT)) == OK);
    world_peer_drop(w, other.number);
    CHECK(atomic_load(&ended.times) == 2);
    free(from);
    CHECK(send[1].status == ERR_PEER);
    return OK;
}

static void test_send_without_receiver(void **state)
{
    (void)state;
    play_story(sees_reset, SMALL);
    play_story(drop_link, SMALL);
}

static int two_and_two = 4;

static int fail_assertion(void *arg)
{
    (void)arg;
    PL_ASSERT(two_and_two == 5);
    return OK;
}

static bool poison_seen;

static int is_poisoned(struct world *w)
{
    struct send send[2];
    struct ended ended = {0};
    struct task *task;
    unsigned char *from = filled_buffer(BIG, 1);
    CHECK(from && suite_peer_is(w, other.number, true) == OK);
    for (uint32_t i = 0; i < 2; i++) {
        send[i] = a_send(i, 1, from, BIG, &ended);
        CHECK(world_post_send(w, &send[i]) == OK);
    }
    CHECK(world_spawn(w, "bad", fail_assertion, NULL, &task) == OK);
    CHECK(world_join(w, task, WORLD_FOREVER, NULL) == OK);
    CHECK(atomic_load(&ended.times) == 2);
    free(from);
    CHECK(send[1].status == ERR_CANCELLED);
    CHECK(world_post_send(w, &send[1]) == ERR_CANCELLED && send[1].status == ERR_CANCELLED);
    poison_seen = true;
    return OK;
}

static void test_poisoned(void **state)
{
    (void)state;
    struct hello answer;
    int small = SMALL;
    other.world = kit_driver(5 * WORLD_SECOND);
    other.fd = kit_join(other.world, &answer);
    other.number = answer.peer;
    setsockopt(other.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    struct err err = {0};
    assert_int_equal(kit_run(other.world, is_poisoned, &err), ERR_BUG);
    assert_true(poison_seen);
    close(other.fd);
    real_close(other.world);
}

/* ---- before its peer is there ---- */

static int send_early(struct world *w)
{
    uint32_t word = 4711;
    struct ended ended = {0};
    struct send send = {.to = 1, .tag = 5, .from = &word, .len = sizeof word, .ended = &ended};
    CHECK(world_peer_add(w, 1, "") == OK);
    CHECK(world_post_send(w, &send) == OK && send.status == POST_PENDING);
    world_raise(w, 1);
    CHECK(until_ended(w, &ended, 1) == OK && send.status == OK);
    return suite_peer_is(w, 1, false);
}

static char early_address[64];

static int send_late(struct world *w)
{
    uint32_t value;
    CHECK(world_sleep(w, suite_until(w, KIT_MOMENT)) == OK);
    CHECK(world_peer_add(w, 0, early_address) == OK);
    return suite_receive(w, 0, 0, 5, &value) == OK && value == 4711 ? OK : ERR_BUG;
}

static void *run_comer(void *arg)
{
    int rc = kit_run(arg, send_late, NULL);
    real_close(arg);
    return (void *)(intptr_t)rc;
}

static void test_before_it_is_up(void **state)
{
    (void)state;
    struct world *driver = kit_driver(5 * WORLD_SECOND);
    struct world *zero = kit_worker(driver), *one = kit_worker(driver);
    pthread_t thread;
    void *result;
    world_address(zero, early_address, sizeof early_address);
    assert_int_equal(pthread_create(&thread, NULL, run_comer, one), 0);
    kit_check(zero, send_early);
    pthread_join(thread, &result);
    assert_int_equal((int)(intptr_t)result, OK);
    real_close(zero);
    real_close(driver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_taken_back),
        cmocka_unit_test(test_abort_storm),
        cmocka_unit_test(test_send_without_receiver),
        cmocka_unit_test(test_poisoned),
        cmocka_unit_test(test_before_it_is_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
