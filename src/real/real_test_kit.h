/* For tests of the real world: nodes of limits that a test can wait for, and peers made of a bare
 * socket, which can do what no node does. */
#ifndef PL_REAL_REAL_TEST_KIT_H
#define PL_REAL_REAL_TEST_KIT_H

#include "base/bytes.h"
#include "base/hash.h"
#include "real/frame.h"
#include "real/node.h"
#include "world/world_test_suite.h"

#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define KIT_MOMENT (WORLD_SECOND / 10)

struct kit_main {
    struct world *world;
    suite_main main;
};

static inline int kit_call(void *arg)
{
    struct kit_main *m = arg;
    return m->main(m->world);
}

/* Run `main` as the node's, on this thread. */
static inline int kit_run(struct world *w, suite_main main, struct err *err)
{
    struct kit_main m = {w, main};
    return real_run(w, kit_call, &m, err);
}

static inline void kit_check(struct world *w, suite_main main)
{
    struct err err = {0};
    int rc = kit_run(w, main, &err);
    if (rc >= SUITE_FAILED)
        print_error("line %d\n", rc - SUITE_FAILED);
    else if (rc != OK)
        print_error("%s %s\n", status_text(rc), err.text);
    assert_int_equal(rc, OK);
}

/* How nodes connect. */
struct kit_way {
    const char *name;
    uint32_t stripes;
    bool no_shm;
    bool ucx;
    const char *key; /* NULL: none, and so no TLS */
};

static const struct kit_way kit_ways[] = {
    {"tcp", 1, true, false, NULL},
    {"four stripes", 4, true, false, NULL},
    {"four stripes with TLS", 4, true, false, "0123456789abcdef0123456789abcdef"},
    {"shared memory", 1, false, false, NULL},
#ifdef PACELINE_UCX
    {"UCX", 1, true, true, NULL},
#endif
};

static inline struct kit_way *kit_way(void)
{
    static struct kit_way way;
    return &way;
}

/* The tests of a program in each way; how many failed. */
#define KIT_RUN_ALL_WAYS(tests)                                                    \
    int failed = 0;                                                                \
    for (size_t i = 0; i < sizeof kit_ways / sizeof *kit_ways; i++) {              \
        *kit_way() = kit_ways[i];                                                  \
        failed += cmocka_run_group_tests_name(kit_way()->name, tests, NULL, NULL); \
    }                                                                              \
    return failed

/* A driver whose strangers have `hello` ns, and that gives no number twice. */
static inline struct world *kit_driver(int64_t hello)
{
    const struct node_limits limits = {
        .hello = hello, .flush = WORLD_SECOND, .rest = WORLD_FOREVER};
    struct world *w = NULL;
    struct err err = {0};
    const struct real_options options = {.seed = 7,
                                         .stripes = kit_way()->stripes,
                                         .no_shm = kit_way()->no_shm,
                                         .key = kit_way()->key,
                                         .ucx = kit_way()->ucx};
    if (node_open(&options, &limits, &w, &err) != OK)
        fail_msg("%s", err.text);
    return w;
}

static inline struct world *kit_worker_at(const char *driver)
{
    struct world *w = NULL;
    struct err err = {0};
    const struct real_options options = {.seed = 7,
                                         .driver = driver,
                                         .stripes = kit_way()->stripes,
                                         .no_shm = kit_way()->no_shm,
                                         .key = kit_way()->key,
                                         .ucx = kit_way()->ucx};
    if (real_open(&options, &w, &err) != OK)
        fail_msg("%s", err.text);
    return w;
}

static inline struct world *kit_worker(struct world *driver)
{
    char address[64];
    world_address(driver, address, sizeof address);
    return kit_worker_at(address);
}

/* A driver for bare sockets, which speak no TLS. */
static inline struct world *kit_plain_driver(int64_t hello)
{
    const char *key = kit_way()->key;
    kit_way()->key = NULL;
    struct world *w = kit_driver(hello);
    kit_way()->key = key;
    return w;
}

/* ---- bare sockets ---- */

static inline int kit_connect(const char *where)
{
    struct address a;
    assert_int_equal(address_parse(where, &a, NULL), OK);
    int fd = socket(a.u.any.sa_family, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, &a.u.any, a.len), 0);
    return fd;
}

static inline int kit_connect_to(struct world *w)
{
    char address[64];
    world_address(w, address, sizeof address);
    return kit_connect(address);
}

/* false: the other side has closed. */
static inline bool kit_put(int fd, const void *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t k = send(fd, (const char *)bytes + at, n - at, MSG_NOSIGNAL);
        if (k <= 0)
            return false;
        at += (size_t)k;
    }
    return true;
}

static inline bool kit_get(int fd, void *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t k = poll(&p, 1, 5000) == 1 ? recv(fd, (char *)bytes + at, n - at, 0) : -1;
        if (k <= 0)
            return false;
        at += (size_t)k;
    }
    return true;
}

/* The other side closes within `ns`, and says nothing more. */
static inline bool kit_closes(int fd, int64_t ns)
{
    char byte;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, (int)(ns / 1000000)) == 1 && recv(fd, &byte, 1, 0) <= 0;
}

/* The other side closes within `ns`, whatever it sends before. */
static inline bool kit_ends(int fd, int64_t ns)
{
    char bytes[256];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (int64_t until = real_now() + ns; real_now() < until;)
        if (poll(&p, 1, (int)(ns / 1000000)) == 1 && recv(fd, bytes, sizeof bytes, 0) <= 0)
            return true;
    return false;
}

/* A hello of this version, with nothing special in it. */
static inline const struct hello *kit_hello(uint64_t run, uint32_t node, uint32_t peer)
{
    static struct hello hello;
    hello = (struct hello){
        .version = PROTOCOL_VERSION, .run = run, .node = node, .peer = peer, .port = 1};
    return &hello;
}

/* As who connects: read the challenge, and send the hello with that key's proof; NULL: none. */
static inline void kit_put_hello_of(int fd, const struct hello *hello, const char *key)
{
    struct hellos hellos = {0};
    struct run_key derived;
    assert_true(kit_get(fd, hellos.challenge, sizeof hellos.challenge));
    hello_encode(hello, hellos.first);
    if (key) {
        assert_int_equal(run_key_derive(&derived, key), OK);
        assert_int_equal(run_key_prove_first(&derived, &hellos), OK);
    }
    assert_true(kit_put(fd, hellos.first, sizeof hellos.first));
}

static inline void kit_put_hello(int fd, const struct hello *hello)
{
    kit_put_hello_of(fd, hello, NULL);
}

static inline int kit_get_hello(int fd, struct hello *hello)
{
    uint8_t bytes[REPLY_SIZE];
    return kit_get(fd, bytes, sizeof bytes) ? hello_decode(bytes, hello) : ERR_PEER;
}

/* Join a driver as a worker does; the hello that returned. */
static inline int kit_join(struct world *driver, struct hello *answer)
{
    int fd = kit_connect_to(driver);
    kit_put_hello(
        fd, &(struct hello){.version = PROTOCOL_VERSION, .node = WORLD_ANY, .peer = WORLD_DRIVER});
    assert_int_equal(kit_get_hello(fd, answer), OK);
    assert_int_equal(answer->refusal, REFUSED_NOT);
    return fd;
}

/* The frame with its first n bytes of data; with its sum, once all are there. */
static inline bool kit_put_frame(int fd, const struct frame *frame, const void *data, size_t n)
{
    uint8_t bytes[FRAME_SIZE], tail[FRAME_TAIL];
    frame_encode(frame, bytes);
    bytes_put_le64(tail, hash_bytes(data, n));
    return kit_put(fd, bytes, sizeof bytes) && kit_put(fd, data, n) &&
           kit_put(fd, tail, n > 0 && n == frame->length ? sizeof tail : 0);
}

/* The rest of one that was cut short. */
static inline bool kit_put_rest(int fd, const void *data, size_t from, size_t n)
{
    uint8_t tail[FRAME_TAIL];
    bytes_put_le64(tail, hash_bytes(data, n));
    return kit_put(fd, (const char *)data + from, n - from) && kit_put(fd, tail, sizeof tail);
}

/* The next frame that is not credit, and its data, whose sum is right. */
static inline bool kit_get_message(int fd, struct frame *frame, void *data, size_t size)
{
    uint8_t bytes[FRAME_SIZE], tail[FRAME_TAIL];
    do {
        if (!kit_get(fd, bytes, sizeof bytes) || frame_decode(bytes, frame) != OK)
            return false;
    } while (frame->type == FRAME_CREDIT);
    return frame->length <= size && kit_get(fd, data, frame->length) &&
           kit_get(fd, tail, frame->length ? sizeof tail : 0) &&
           (!frame->length || bytes_le64(tail) == hash_bytes(data, frame->length));
}

#endif
