#define _GNU_SOURCE /* memmem */
/* TLS between two streams of one thread, which take turns. */
#include "real/seal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 3 * 1024 * 1024 + 17 };

static struct seal_maker *maker;
static struct stream side[2];
static uint8_t *sent, *received;

static int make_maker(void **state)
{
    (void)state;
    maker = seal_maker_create();
    sent = malloc(BYTES);
    received = malloc(BYTES);
    for (size_t i = 0; sent && i < BYTES; i++)
        sent[i] = (uint8_t)(i * 2654435761u >> 13);
    return maker && sent && received ? 0 : -1;
}

static int free_maker(void **state)
{
    (void)state;
    seal_maker_free(maker);
    free(sent);
    free(received);
    return 0;
}

/* Both sides' handshakes, in turns, with these keys: how each has ended. */
static void shake_hands(uint8_t key_of_first, uint8_t key_of_second, int rc[2])
{
    int fd[2];
    uint8_t key[2][RUN_KEY_SIZE];
    memset(key[0], key_of_first, RUN_KEY_SIZE);
    memset(key[1], key_of_second, RUN_KEY_SIZE);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
    for (int i = 0; i < 2; i++) {
        side[i] = (struct stream){.fd = fd[i]};
        assert_int_equal(seal_begin(maker, &side[i], i == 0, key[i]), OK);
        rc[i] = ERR_FULL;
    }
    for (int turn = 0; turn < 20; turn++)
        if (rc[turn % 2] == ERR_FULL)
            rc[turn % 2] = seal_handshake(&side[turn % 2]);
}

static void open_session(void)
{
    int rc[2];
    shake_hands(1, 1, rc);
    assert_int_equal(rc[0], OK);
    assert_int_equal(rc[1], OK);
}

static void end_session(void)
{
    for (int i = 0; i < 2; i++) {
        seal_end(&side[i]);
        close(side[i].fd);
    }
}

/* From one side to the other, in parts as a frame's, until all has arrived. */
static void move_bytes(int from, size_t total, size_t piece)
{
    size_t out = 0, in = 0;
    memset(received, 0, BYTES);
    while (in < total) {
        size_t n = out + piece < total ? piece : total - out, head = n < 24 ? n : 24;
        const struct iovec part[2] = {{sent + out, head}, {sent + out + head, n - head}};
        ssize_t k = n ? side[from].ops->send(&side[from], part, 2) : 0;
        assert_true(k >= 0 && (size_t)k <= n);
        out += (size_t)k;
        int rc = side[from].ops->flush(&side[from]);
        assert_true(rc == OK || rc == ERR_FULL);
        for (ssize_t got = 1; got > 0; in += (size_t)got) {
            size_t want = total - in < 100000 ? total - in : 100000;
            const struct iovec into[2] = {{received + in, want / 3},
                                          {received + in + want / 3, want - want / 3}};
            got = want ? side[1 - from].ops->receive(&side[1 - from], into, 2) : 0;
            assert_true(got >= 0);
        }
    }
    assert_memory_equal(sent, received, total);
    assert_false(side[1 - from].ops->holds(&side[1 - from]));
}

static void test_seal_carries_bytes_both_ways(void **state)
{
    (void)state;
    open_session();
    for (int from = 0; from < 2; from++) {
        move_bytes(from, 1, 1);
        move_bytes(from, 1000, 7);
        move_bytes(from, BYTES, BYTES);
        move_bytes(from, 400000, 16384);
        move_bytes(from, 400000, 16385);
    }
    end_session();
}

/* A key serves a bounded number of records; then TLS changes it. */
static void test_seal_changes_its_key(void **state)
{
    (void)state;
    open_session();
    seal_set_records_max(&side[0], 3);
    seal_set_records_max(&side[1], 2);
    for (int i = 0; i < 4; i++)
        move_bytes(i % 2, 300000, 5000);
    end_session();
}

static void test_seal_refuses_another_key(void **state)
{
    (void)state;
    int rc[2];
    shake_hands(1, 2, rc);
    assert_int_equal(rc[1], ERR_PROTOCOL);
    assert_int_not_equal(rc[0], OK);
    end_session();
}

/* Is what the first side has sent on its way, without a bit of it in plain? */
static void test_seal_hides_and_protects(void **state)
{
    (void)state;
    static const char marker[] = "a marker of the weights, in plain";
    char wire[1000], back[100];
    open_session();
    const struct iovec part = {(void *)(uintptr_t)marker, sizeof marker},
                       into = {back, sizeof back};
    assert_int_equal(side[0].ops->send(&side[0], &part, 1), sizeof marker);
    assert_int_equal(side[0].ops->flush(&side[0]), OK);
    ssize_t n = recv(side[1].fd, wire, sizeof wire, MSG_DONTWAIT);
    assert_true(n > (ssize_t)sizeof marker);
    assert_null(memmem(wire, (size_t)n, marker, 6));
    wire[n / 2] ^= 1;
    assert_int_equal(send(side[0].fd, wire, (size_t)n, 0), n);
    assert_int_equal(side[1].ops->receive(&side[1], &into, 1), STREAM_CORRUPT);
    end_session();
}

/* A record that is sent again is refused, too. */
static void test_seal_refuses_a_repeated_record(void **state)
{
    (void)state;
    char wire[1000], back[4];
    open_session();
    const struct iovec part = {sent, 4}, into = {back, 4};
    assert_int_equal(side[0].ops->send(&side[0], &part, 1), 4);
    assert_int_equal(side[0].ops->flush(&side[0]), OK);
    ssize_t n = recv(side[1].fd, wire, sizeof wire, MSG_DONTWAIT);
    for (int i = 0; i < 2; i++)
        assert_int_equal(send(side[0].fd, wire, (size_t)n, 0), n);
    assert_int_equal(side[1].ops->receive(&side[1], &into, 1), 4);
    assert_int_equal(side[1].ops->receive(&side[1], &into, 1), STREAM_CORRUPT);
    end_session();
}

/* A record is refused behind others that are read at once: nothing more arrives that would have it
 * read, and a send learns of it first. */
static void test_seal_keeps_a_failure_behind_good_bytes(void **state)
{
    (void)state;
    char wire[1000], back[8];
    open_session();
    const struct iovec part = {sent, 4}, into = {back, sizeof back};
    assert_int_equal(side[0].ops->send(&side[0], &part, 1), 4);
    assert_int_equal(side[0].ops->send(&side[0], &part, 1), 4);
    assert_int_equal(side[0].ops->flush(&side[0]), OK);
    ssize_t n = recv(side[1].fd, wire, sizeof wire, MSG_DONTWAIT);
    wire[n - 1] ^= 1;
    assert_int_equal(send(side[0].fd, wire, (size_t)n, 0), n);
    assert_int_equal(side[1].ops->receive(&side[1], &into, 1), 4);
    assert_true(side[1].ops->holds(&side[1]));
    assert_int_equal(side[1].ops->send(&side[1], &part, 1), STREAM_CORRUPT);
    assert_int_equal(side[1].ops->receive(&side[1], &into, 1), STREAM_CORRUPT);
    end_session();
}

/* An end that the other side has not announced is a broken connection: somebody may have cut it. */
static void test_seal_knows_an_announced_end(void **state)
{
    (void)state;
    char back[4];
    const struct iovec into = {back, 4};
    for (int announced = 0; announced < 2; announced++) {
        open_session();
        if (announced)
            assert_int_equal(side[0].ops->shut(&side[0]), OK);
        else
            shutdown(side[0].fd, SHUT_WR);
        assert_int_equal(side[1].ops->receive(&side[1], &into, 1),
                         announced ? STREAM_END : STREAM_BROKEN);
        end_session();
    }
}

/* A client of TLS without our key, or a stranger's bytes. */
static void test_seal_refuses_noise(void **state)
{
    (void)state;
    static const char *const what[] = {"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                                       "\x17\x03\x03\x01\x01 data before a handshake",
                                       "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"};
    for (size_t i = 0; i < sizeof what / sizeof *what; i++) {
        uint8_t key[RUN_KEY_SIZE] = {7};
        char bytes[400] = {0};
        int fd[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
        struct stream s = {.fd = fd[0]};
        assert_int_equal(seal_begin(maker, &s, false, key), OK);
        assert_int_equal(seal_handshake(&s), ERR_FULL);
        memcpy(bytes, what[i], strlen(what[i]));
        assert_int_equal(send(fd[1], bytes, sizeof bytes, 0), sizeof bytes);
        int rc = seal_handshake(&s);
        if (rc != ERR_PROTOCOL)
            fail_msg("%s: %d", what[i], rc);
        seal_end(&s);
        close(fd[0]);
        close(fd[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seal_carries_bytes_both_ways),
        cmocka_unit_test(test_seal_changes_its_key),
        cmocka_unit_test(test_seal_refuses_another_key),
        cmocka_unit_test(test_seal_hides_and_protects),
        cmocka_unit_test(test_seal_refuses_a_repeated_record),
        cmocka_unit_test(test_seal_keeps_a_failure_behind_good_bytes),
        cmocka_unit_test(test_seal_knows_an_announced_end),
        cmocka_unit_test(test_seal_refuses_noise),
    };
    return cmocka_run_group_tests(tests, make_maker, free_maker);
}
