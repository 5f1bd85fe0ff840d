/* The fault proxy alone: two sockets of the test, and all faults between them. */
#define _GNU_SOURCE
#include "proxied.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

enum { BYTES = 200000, LIMIT_MS = 10000 };

struct scene {
    struct proxied proxy;
    int listener, client, target;
    uint8_t sent[BYTES], got[BYTES];
};

static int socket_at(const char *address, bool listens)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    char host[32];
    int port, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(sscanf(address, "%31[^:]:%d", host, &port), 2);
    at.sin_port = htons((uint16_t)port);
    assert_int_equal(inet_pton(AF_INET, host, &at.sin_addr), 1);
    const struct sockaddr *to = (const struct sockaddr *)&at;
    assert_int_equal(listens ? bind(fd, to, sizeof at) : connect(fd, to, sizeof at), 0);
    assert_true(!listens || listen(fd, 8) == 0);
    return fd;
}

static bool is_readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, ms) == 1;
}

static int accept_one(const struct scene *s)
{
    assert_true(is_readable(s->listener, LIMIT_MS));
    return accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
}

/* A pair of sockets with the proxy between them. */
static void setup_pair(struct scene *s)
{
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    char target[32];
    memset(s, 0, sizeof *s);
    s->listener = socket_at("127.0.0.1:0", true);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&at, &len), 0);
    snprintf(target, sizeof target, "127.0.0.1:%d", ntohs(at.sin_port));
    proxied_start(&s->proxy, (const char *const[]){target, NULL});
    s->client = socket_at(s->proxy.address[0], false);
    s->target = accept_one(s);
    for (size_t i = 0; i < BYTES; i++)
        s->sent[i] = (uint8_t)(i * 31 + i / 251);
}

static void end_pair(struct scene *s)
{
    proxied_end(&s->proxy);
    close(s->client);
    close(s->target);
    close(s->listener);
}

/* Send n bytes and receive them on the other side; how long that took. The received bytes are in
 * `got`. */
static double carry_bytes(struct scene *s, int from, int to, size_t n)
{
    double begun = process_now();
    size_t out = 0, in = 0;
    while (in < n) {
        struct pollfd p[2] = {{.fd = to, .events = POLLIN},
                              {.fd = from, .events = out < n ? POLLOUT : 0}};
        if (poll(p, 2, LIMIT_MS) <= 0)
            fail_msg("%zu of %zu bytes, and no more", in, n);
        if (p[1].revents & POLLOUT) {
            ssize_t k = send(from, s->sent + out, n - out, MSG_DONTWAIT | MSG_NOSIGNAL);
            out += k > 0 ? (size_t)k : 0;
        }
        if (p[0].revents) {
            ssize_t k = recv(to, s->got + in, n - in, MSG_DONTWAIT);
            assert_true(k > 0);
            in += (size_t)k;
        }
    }
    return process_now() - begun;
}

static void expect_whole(struct scene *s, int from, int to)
{
    carry_bytes(s, from, to, BYTES);
    assert_memory_equal(s->got, s->sent, BYTES);
}

static void test_bytes_and_ends_pass(void **state)
{
    struct scene s;
    (void)state;
    setup_pair(&s);
    expect_whole(&s, s.client, s.target);
    expect_whole(&s, s.target, s.client);
    shutdown(s.client, SHUT_WR);
    assert_true(is_readable(s.target, LIMIT_MS));
    assert_int_equal(recv(s.target, s.got, 1, 0), 0);
    expect_whole(&s, s.target, s.client); /* the other half is still open */
    close(s.target);
    assert_true(is_readable(s.client, LIMIT_MS));
    assert_int_equal(recv(s.client, s.got, 1, 0), 0);
    s.target = -1;
    end_pair(&s);
}

static void test_delay(void **state)
{
    struct scene s;
    (void)state;
    setup_pair(&s);
    proxied_command(&s.proxy, "delay 150");
    double took = carry_bytes(&s, s.client, s.target, 1);
    assert_true(took >= 0.150 && took < 5);
    proxied_command(&s.proxy, "pass");
    expect_whole(&s, s.client, s.target);
    end_pair(&s);
}

/* 200 kB at 8 Mbit/s: 0.2 s, each way. */
static void test_bandwidth(void **state)
{
    struct scene s;
    (void)state;
    setup_pair(&s);
    proxied_command(&s.proxy, "mbit 8");
    double up = carry_bytes(&s, s.client, s.target, BYTES),
           down = carry_bytes(&s, s.target, s.client, BYTES);
    print_message("    %g and %g s\n", up, down);
    assert_true(up >= 0.15 && up < 5 && down >= 0.15 && down < 5);
    assert_memory_equal(s.got, s.sent, BYTES);
    end_pair(&s);
}

static void test_corruption(void **state)
{
    struct scene s;
    char text[128];
    size_t wrong = 0;
    (void)state;
    setup_pair(&s);
    proxied_command(&s.proxy, "corrupt 1000");
    carry_bytes(&s, s.client, s.target, BYTES);
    for (size_t i = 0; i < BYTES; i++) {
        bool meant = i % 1000 == 999;
        wrong += s.got[i] != s.sent[i];
        assert_int_equal(s.got[i], meant ? s.sent[i] ^ 0x10 : s.sent[i]);
    }
    assert_int_equal(wrong, BYTES / 1000);
    proxied_request(&s.proxy, "count", text, sizeof text);
    assert_string_equal(text, "up 200000 200 down 0 0 connections 1");
    end_pair(&s);
}

static void test_blackhole(void **state)
{
    struct scene s;
    (void)state;
    setup_pair(&s);
    proxied_command(&s.proxy, "blackhole");
    assert_int_equal(send(s.client, s.sent, 1000, MSG_NOSIGNAL), 1000);
    assert_int_equal(send(s.target, s.sent, 1000, MSG_NOSIGNAL), 1000);
    shutdown(s.client, SHUT_WR); /* it has not arrived either */
    int late = socket_at(s.proxy.address[0], false);
    assert_false(is_readable(s.target, 200));
    assert_false(is_readable(s.client, 0));
    assert_false(is_readable(s.listener, 0));
    proxied_command(&s.proxy, "pass");
    for (size_t in = 0; in < 1000;) { /* it was only held back */
        assert_true(is_readable(s.target, LIMIT_MS));
        ssize_t k = recv(s.target, s.got + in, 1000 - in, 0);
        assert_true(k > 0);
        in += (size_t)k;
    }
    assert_memory_equal(s.got, s.sent, 1000);
    assert_true(is_readable(s.client, LIMIT_MS));
    assert_true(is_readable(s.target, LIMIT_MS));
    assert_int_equal(recv(s.target, s.got, 1, 0), 0);
    close(accept_one(&s));
    close(late);
    end_pair(&s);
}

/* A death behind a black hole is noticed when the hole ends. */
static void test_death_in_a_blackhole(void **state)
{
    const struct linger at_once = {.l_onoff = 1};
    struct scene s;
    (void)state;
    setup_pair(&s);
    proxied_command(&s.proxy, "blackhole");
    setsockopt(s.target, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(s.target);
    assert_false(is_readable(s.client, 200));
    proxied_command(&s.proxy, "pass");
    assert_true(is_readable(s.client, LIMIT_MS));
    assert_true(recv(s.client, s.got, 1, 0) < 0 && errno == ECONNRESET);
    s.target = -1;
    end_pair(&s);
}

static void test_one_way(void **state)
{
    struct scene s;
    (void)state;
    setup_pair(&s);
    for (int down = 0; down < 2; down++) {
        int from = down ? s.target : s.client, to = down ? s.client : s.target;
        proxied_command(&s.proxy, down ? "oneway down" : "oneway up");
        expect_whole(&s, from, to);
        assert_int_equal(send(to, s.sent, 10, MSG_NOSIGNAL), 10);
        assert_false(is_readable(from, 200));
        proxied_command(&s.proxy, "pass");
        assert_true(is_readable(from, LIMIT_MS));
        assert_int_equal(recv(from, s.got, 10, MSG_WAITALL), 10);
    }
    end_pair(&s);
}

static void test_reset(void **state)
{
    struct scene s;
    (void)state;
    setup_pair(&s);
    proxied_command(&s.proxy, "reset");
    for (int i = 0; i < 2; i++) {
        int fd = i ? s.client : s.target;
        assert_true(is_readable(fd, LIMIT_MS));
        assert_true(recv(fd, s.got, 1, 0) < 0 && errno == ECONNRESET);
        close(fd);
    }
    s.client = socket_at(s.proxy.address[0], false); /* the next one is not */
    s.target = accept_one(&s);
    expect_whole(&s, s.client, s.target);
    end_pair(&s);
}

/* A fault of one route does not affect another; an unknown command is an error. */
static void test_routes_and_nonsense(void **state)
{
    struct scene s;
    struct proxied two;
    char target[32], text[128];
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    (void)state;
    setup_pair(&s);
    assert_int_equal(getsockname(s.listener, (struct sockaddr *)&at, &len), 0);
    snprintf(target, sizeof target, "127.0.0.1:%d", ntohs(at.sin_port));
    proxied_start(&two, (const char *const[]){target, target, NULL});
    proxied_command(&two, "1 blackhole");
    int open = socket_at(two.address[0], false), held = socket_at(two.address[1], false);
    close(accept_one(&s));
    assert_false(is_readable(s.listener, 100));
    static const char *const nonsense[] = {"",        "delay",      "delay x",   "mbit 0",
                                           "corrupt", "oneway",     "oneway in", "2 pass",
                                           "-1 pass", "pass again", "explode"};
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        proxied_request(&two, nonsense[i], text, sizeof text);
        assert_memory_equal(text, "error", 5);
    }
    close(open);
    close(held);
    proxied_end(&two);
    end_pair(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_and_ends_pass),
        cmocka_unit_test(test_delay),
        cmocka_unit_test(test_bandwidth),
        cmocka_unit_test(test_corruption),
        cmocka_unit_test(test_blackhole),
        cmocka_unit_test(test_death_in_a_blackhole),
        cmocka_unit_test(test_one_way),
        cmocka_unit_test(test_reset),
        cmocka_unit_test(test_routes_and_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
