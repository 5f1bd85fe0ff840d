/* Several connections to one peer: what is kept in order and what goes side by side, and that the
 * peer is lost with any of them. */
#include "real/real_test_kit.h"

#include "base/rng.h"

#include <stdatomic.h>

enum { STRIPES = 4, SENDS = 200, LEN_MAX = 300 * 1000 };

static uint8_t byte_of(uint32_t stripe, uint32_t i, size_t at)
{
    return (uint8_t)(stripe * 50 + i * 3 + at * 7 + at / 5000);
}

static size_t len_of(uint32_t stripe, uint32_t i)
{
    return rng_u64(stripe, 4, i) % (i % 7 == 0 ? LEN_MAX : 2000);
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

/* All at once, each stripe under one tag; a few control messages in between. */
static int send_stripes(struct world *w)
{
    struct ended ended = {0};
    struct send *send = calloc(STRIPES * SENDS, sizeof *send);
    uint8_t *memory = malloc((size_t)STRIPES * LEN_MAX * SENDS / 4);
    uint8_t *next = memory;
    CHECK(send && memory);
    for (uint32_t k = 0; k < STRIPES * SENDS; k++) {
        uint32_t stripe = k % STRIPES, i = k / STRIPES;
        size_t len = len_of(stripe, i);
        for (size_t at = 0; at < len; at++)
            next[at] = byte_of(stripe, i, at);
        send[k] = (struct send){.to = WORLD_DRIVER,
                                .view = 1,
                                .tag = 10 + stripe,
                                .from = next,
                                .len = len,
                                .stripe = stripe,
                                .ended = &ended};
        next += len;
        CHECK(world_post_send(w, &send[k]) == OK);
        if (i % 50 == 0)
            CHECK(suite_send(w, WORLD_DRIVER, 0, 5, k) == OK);
    }
    CHECK(until_ended(w, &ended, STRIPES * SENDS) == OK);
    for (uint32_t k = 0; k < STRIPES * SENDS; k++)
        CHECK(send[k].status == OK);
    free(send);
    free(memory);
    return OK; /* and closes at once */
}

static int receive_all(struct world *w)
{
    struct ended ended = {0};
    struct recv recv[STRIPES];
    uint8_t *into = malloc((size_t)STRIPES * LEN_MAX);
    CHECK(into && suite_peer_is(w, 0, true) == OK);
    for (uint32_t i = 0; i < SENDS; i++) {
        for (uint32_t s = 0; s < STRIPES; s++) {
            recv[s] = (struct recv){.from = 0,
                                    .view = 1,
                                    .tag = 10 + s,
                                    .into = into + (size_t)s * LEN_MAX,
                                    .len = len_of(s, i),
                                    .ended = &ended};
            CHECK(world_post_recv(w, &recv[s]) == OK);
        }
        CHECK(until_ended(w, &ended, (uint64_t)STRIPES * (i + 1)) == OK);
        for (uint32_t s = 0; s < STRIPES; s++) {
            CHECK(recv[s].status == OK);
            for (size_t at = 0; at < recv[s].len; at++)
                CHECK(into[(size_t)s * LEN_MAX + at] == byte_of(s, i, at));
        }
    }
    for (uint32_t k = 0; k < STRIPES * SENDS; k++)
        if (k / STRIPES % 50 == 0) {
            uint32_t value;
            CHECK(suite_receive(w, 0, 0, 5, &value) == OK && value == k);
        }
    free(into);
    return OK;
}

static void *run_sends(void *arg)
{
    struct world *w = arg;
    int rc = kit_run(w, send_stripes, NULL);
    real_close(w);
    return (void *)(intptr_t)rc;
}

static uint32_t open_stripes(struct world *w, uint32_t number)
{
    struct node *node = node_of(w);
    node_lock(node);
    const struct peer *peer = peer_find(node, number);
    uint32_t open = peer ? peer->open : 0;
    node_unlock(node);
    return open;
}

static void test_in_order(void **state)
{
    (void)state;
    struct world *driver = kit_driver(5 * WORLD_SECOND), *worker = kit_worker(driver);
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, run_sends, worker), 0);
    kit_check(driver, receive_all);
    pthread_join(thread, &result);
    assert_int_equal((int)(intptr_t)result, OK);
    assert_int_equal(open_stripes(driver, 0), STRIPES);
    real_close(driver);
}

/* A node closes while its connections are being made: its messages arrive. */
static int send_and_close(struct world *w)
{
    for (uint32_t i = 0; i < 5; i++)
        CHECK(suite_send(w, WORLD_DRIVER, 0, 5, i) == OK);
    return OK;
}

enum { GUESTS = 40 };

static int receive_workers(struct world *w)
{
    for (uint32_t k = 0; k < GUESTS; k++) {
        struct world *worker = kit_worker(w);
        if (k % 2)
            CHECK(world_sleep(w, suite_until(w, (int64_t)k * 20000)) == OK);
        CHECK(kit_run(worker, send_and_close, NULL) == OK);
        real_close(worker);
        for (uint32_t i = 0, value; i < 5; i++)
            CHECK(suite_receive(w, k, 0, 5, &value) == OK && value == i);
        CHECK(suite_peer_is(w, k, false) == OK);
    }
    return OK;
}

static void test_closing_early(void **state)
{
    (void)state;
    struct world *driver = kit_driver(5 * WORLD_SECOND);
    kit_check(driver, receive_workers);
    real_close(driver);
}

/* ---- bare peers ---- */

static struct {
    struct world *world;
    struct hello hello;
    int fd[STRIPES];
    uint32_t number;
} other;

static int send_hello(int fd, enum hello_refusal refusal)
{
    struct hello answer;
    kit_put_hello(fd, &other.hello);
    assert_int_equal(kit_get_hello(fd, &answer), OK);
    assert_int_equal(answer.refusal, refusal);
    other.number = other.hello.stripe ? other.number : answer.peer;
    other.hello.run = refusal ? other.hello.run : answer.run;
    return fd;
}

static void begin_story(uint32_t stripes)
{
    other.world = kit_driver(5 * WORLD_SECOND);
    other.hello = *kit_hello(0, WORLD_ANY, WORLD_DRIVER);
    other.hello.stripes = (uint8_t)stripes;
    other.fd[0] = send_hello(kit_connect_to(other.world), REFUSED_NOT);
    other.hello.node = other.number;
    for (uint32_t i = 1; i < stripes; i++) {
        other.hello.stripe = (uint8_t)i;
        other.fd[i] = send_hello(kit_connect_to(other.world), REFUSED_NOT);
    }
}

static void expect_refusal(enum hello_refusal why)
{
    close(send_hello(kit_connect_to(other.world), why));
}

static void test_refusals(void **state)
{
    (void)state;
    begin_story(2);
    expect_refusal(REFUSED_NUMBER); /* there is that one */
    other.hello.stripes = 4;
    other.hello.stripe = 2;
    expect_refusal(REFUSED_NUMBER); /* two were said, first */
    other.hello.stripe = 1;
    other.hello.node++;
    expect_refusal(REFUSED_NUMBER); /* whose? */
    other.hello.node--;
    other.hello.run ^= 1;
    expect_refusal(REFUSED_RUN);
    other.hello.stripes = STRIPES_MAX + 1;
    int fd = kit_connect_to(other.world);
    kit_put_hello(fd, &other.hello);
    assert_true(kit_closes(fd, 5 * WORLD_SECOND));
    close(fd);
    close(other.fd[0]);
    close(other.fd[1]);
    real_close(other.world);
}

static int by_reset;

/* One of four goes, by a reset, or in good order with the others staying. */
static int loses_one(struct world *w)
{
    CHECK(suite_peer_is(w, other.number, true) == OK);
    int64_t lost = world_now(w);
    struct linger at_once = {.l_onoff = by_reset};
    setsockopt(other.fd[2], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(other.fd[2]);
    CHECK(suite_peer_is(w, other.number, false) == OK);
    CHECK(world_now(w) - lost < (by_reset ? KIT_MOMENT : 2 * WORLD_SECOND));
    for (int i = 0; i < STRIPES; i++)
        CHECK(i == 2 || kit_closes(other.fd[i], WORLD_SECOND));
    return OK;
}

static void test_lost_stripe(void **state)
{
    (void)state;
    for (by_reset = 1; by_reset >= 0; by_reset--) {
        begin_story(STRIPES);
        kit_check(other.world, loses_one);
        for (int i = 0; i < STRIPES; i++)
            if (i != 2)
                close(other.fd[i]);
        real_close(other.world);
    }
}

/* A long send that waits for credit is not passed for ever by short ones of another stripe. */
static int is_fair(struct world *w)
{
    enum { FIT = 32, PIECE = WORLD_CREDIT / FIT, LONG = WORLD_MESSAGE_MAX };
    static struct send send[2 * FIT + 1];
    static uint8_t memory[LONG], data[LONG];
    struct frame frame = {.tag = 0};
    CHECK(suite_peer_is(w, other.number, true) == OK);
    for (uint32_t i = 0; i <= 2 * FIT; i++) {
        bool is_long = i == FIT;
        send[i] = (struct send){.to = other.number,
                                .tag = is_long,
                                .from = memory,
                                .len = is_long ? LONG : PIECE,
                                .stripe = is_long};
        CHECK(world_post_send(w, &send[i]) == OK);
        if (i < FIT) /* there is credit for these */
            CHECK(kit_get_message(other.fd[0], &frame, data, sizeof data));
    }
    const struct frame credit = {0, FRAME_CREDIT, CLASS_BULK, 0, PIECE};
    for (uint32_t i = 0; i < LONG / PIECE; i++) {
        struct pollfd none = {.fd = other.fd[0], .events = POLLIN};
        CHECK(kit_put_frame(other.fd[0], &credit, NULL, 0));
        CHECK(poll(&none, 1, 5) == 0);
    }
    CHECK(kit_get_message(other.fd[1], &frame, data, sizeof data) && frame.tag == 1);
    CHECK(kit_put_frame(other.fd[0], &credit, NULL, 0));
    CHECK(kit_get_message(other.fd[0], &frame, data, sizeof data) && frame.tag == 0);
    for (uint32_t i = 0; i <= 2 * FIT; i++)
        world_unsend(w, &send[i]);
    return OK;
}

static void test_fair(void **state)
{
    (void)state;
    begin_story(2);
    kit_check(other.world, is_fair);
    close(other.fd[0]);
    close(other.fd[1]);
    real_close(other.world);
}

int main(void)
{
    *kit_way() = kit_ways[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_order), cmocka_unit_test(test_closing_early),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_lost_stripe),
        cmocka_unit_test(test_fair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
