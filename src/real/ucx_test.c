/* UCX with a malicious peer, or one without UCX: which connections use it, garbage, and an orderly
 * end. The other tests run with UCX, too, and cover the properties of all transports. */
#include "base/bytes.h"
#include "base/hash.h"
#include "real/real_test_kit.h"
#include "real/ucx.h"

static struct world *open_driver(bool ucx)
{
    *kit_way() = (struct kit_way){"UCX", 1, true, ucx, NULL};
    return kit_driver(5 * WORLD_SECOND);
}

/* Join and offer UCX. */
static int offer_ucx(struct world *w, struct hello *answer)
{
    struct hello hello = *kit_hello(0, WORLD_ANY, WORLD_DRIVER);
    hello.ucx = true;
    int fd = kit_connect_to(w);
    kit_put_hello(fd, &hello);
    assert_int_equal(kit_get_hello(fd, answer), OK);
    assert_int_equal(answer->refusal, REFUSED_NOT);
    return fd;
}

static const struct transport_ops *ops_of_peer(struct world *w, uint32_t number)
{
    struct node *node = node_of(w);
    const struct transport_ops *ops = NULL;
    for (int64_t until = real_now() + 5 * WORLD_SECOND; !ops && real_now() < until;) {
        node_lock(node);
        const struct peer *peer = peer_find(node, number);
        ops = peer && peer->link[0] && peer->state == PEER_UP ? peer->link[0]->stream.ops : NULL;
        node_unlock(node);
    }
    return ops;
}

/* Both sides must enable it: else they stay with TCP, and no connection is refused. */
static void test_who_uses_it(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct world *driver = open_driver(i % 2);
        kit_way()->ucx = i / 2;
        struct world *worker = kit_worker(driver);
        const struct transport_ops *expected = i == 3 ? &transport_ucx : &transport_tcp;
        assert_ptr_equal(ops_of_peer(worker, WORLD_DRIVER), expected);
        assert_ptr_equal(ops_of_peer(driver, 0), expected);
        real_close(worker);
        real_close(driver);
    }
}

/* Where UCX finds nothing to send through there is a line in the log, and TCP. */
static void keep_line(void *user, enum log_level level, const char *text)
{
    (void)level;
    *(bool *)user = *(bool *)user || strstr(text, "TCP is used") != NULL;
}

static void test_none(void **state)
{
    (void)state;
    bool lines = false;
    struct logger log = {.write = keep_line, .user = &lines, .level = LOG_INFO};
    struct err err = {0};
    struct world *driver, *worker;
    struct real_options options = {.ucx = true, .no_shm = true, .log = &log};
    assert_int_equal(setenv("UCX_TLS", "ib", 1), 0);
    assert_int_equal(real_open(&options, &driver, &err), OK);
    assert_int_equal(unsetenv("UCX_TLS"), 0);
    assert_true(lines);
    kit_way()->ucx = true;
    worker = kit_worker(driver);
    assert_ptr_equal(ops_of_peer(worker, WORLD_DRIVER), &transport_tcp);
    real_close(worker);
    real_close(driver);
}

/* An address with a wrong length or hash: cut off before UCX sees it, and others are served. */
static void test_garbage_address(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {0, UCX_ADDRESS_MAX + 1, UINT32_MAX, 100, UCX_ADDRESS_MAX};
    struct world *w = open_driver(true);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint8_t bytes[UCX_HEAD + UCX_ADDRESS_MAX] = {0};
        struct hello answer;
        int fd = offer_ucx(w, &answer);
        assert_true(answer.ucx);
        memset(bytes, 0xa5, sizeof bytes);
        bytes_put_le32(bytes, lengths[i]);
        kit_put(fd, bytes, sizeof bytes);
        assert_true(kit_closes(fd, 5 * WORLD_SECOND));
        close(fd);
    }
    struct world *worker = kit_worker(w);
    assert_ptr_equal(ops_of_peer(worker, WORLD_DRIVER), &transport_ucx);
    real_close(worker);
    real_close(w);
}

/* A peer that sends a part of its address and no more, or disconnects, delays no other; nor does
 * closing wait. */
static void test_silence(void **state)
{
    (void)state;
    struct world *w = open_driver(true);
    struct hello answer;
    int silent = offer_ucx(w, &answer), gone = offer_ucx(w, &answer), half = offer_ucx(w, &answer);
    assert_true(kit_put(half, "\xc8\0\0\0 and", 8));
    close(gone);
    real_close(kit_worker(w));
    int64_t before = real_now();
    real_close(w);
    assert_true(real_now() - before < 4 * WORLD_SECOND);
    close(silent);
    close(half);
}

/* An own address said properly, by a peer that has a worker and says what it must not. */
static void send_garbage(const uint64_t *word, size_t words)
{
    struct world *w = open_driver(true);
    const struct logger log = {0};
    struct ucx *ucx = ucx_open(&log, true);
    struct stream s = stream_tcp(kit_connect_to(w));
    struct hello hello = *kit_hello(0, WORLD_ANY, WORLD_DRIVER), answer;
    assert_non_null(ucx);
    ucx_offer(ucx, &s, &hello);
    assert_true(hello.ucx);
    kit_put_hello(s.fd, &hello);
    assert_int_equal(kit_get_hello(s.fd, &answer), OK);
    assert_int_equal(ucx_answered(&s, &answer), OK);
    for (size_t i = 0; i < words; i++) {
        uint8_t bytes[8];
        bytes_put_le64(bytes, word[i]);
        kit_put(s.fd, bytes, sizeof bytes);
    }
    uint8_t noise[64];
    memset(noise, 0xff, sizeof noise);
    for (int64_t until = real_now() + 30 * WORLD_SECOND; !s.ended && real_now() < until;) {
        const struct iovec part = {noise, sizeof noise};
        s.ops->on_message(&s);
        ucx_progress(ucx);
        if (words == 0)
            s.ops->send(&s, &part, 1);
    }
    assert_true(s.ended);
    stream_close(&s);
    ucx_close(ucx);
    real_close(kit_worker(w));
    real_close(w);
}

static void test_garbage(void **state)
{
    (void)state;
    const uint64_t unknown[] = {UINT64_MAX - 1}, twice[] = {7, 7}, too_early[] = {UINT64_MAX};
    send_garbage(NULL, 0); /* frames that are none */
    send_garbage(unknown, 1);
    send_garbage(twice, 2);
    send_garbage(too_early, 1);
}

/* ---- the end ---- */

enum { LAST = 40 };

static int sends_last_words(struct world *w)
{
    for (uint64_t i = 0; i < LAST; i++) {
        struct message *m = message_new(7, 0, 100 * 1000);
        CHECK(m);
        memset(m->data, (int)i, m->len);
        CHECK(world_send(w, WORLD_DRIVER, m, CLASS_BULK) == OK);
    }
    return OK;
}

/* Also the driver may be closing at that moment. */
static int receive_last_words(struct world *w)
{
    for (int i = 0; i < LAST; i++) {
        struct wait_for any = {.kind = WAIT_MESSAGE, .from = WORLD_ANY, .tag = 7, .mask = ~0ull};
        struct wake wake;
        CHECK(world_wait(w, &any, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
        bool same = ((uint8_t *)wake.msg->data)[wake.msg->len - 1] == i;
        message_unref(wake.msg);
        CHECK(same);
    }
    return OK;
}

static void *close_it(void *world)
{
    real_close(world);
    return NULL;
}

static void test_last_words(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct world *driver = open_driver(true), *worker = kit_worker(driver);
        pthread_t thread;
        kit_check(worker, sends_last_words);
        int64_t before = real_now();
        assert_int_equal(pthread_create(&thread, NULL, close_it, worker), 0);
        if (i % 2 == 0)
            kit_check(driver, receive_last_words);
        real_close(driver);
        pthread_join(thread, NULL);
        assert_true(real_now() - before < WORLD_SECOND); /* no wait was in vain */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_uses_it),     cmocka_unit_test(test_none),
        cmocka_unit_test(test_garbage_address), cmocka_unit_test(test_silence),
        cmocka_unit_test(test_garbage),         cmocka_unit_test(test_last_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
