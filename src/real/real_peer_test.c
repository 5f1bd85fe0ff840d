/* Peers that a network may bring: slow, broken, mistaken, hostile. Each is a bare socket; the node
 * under test is a driver or a worker that continues as if nothing had happened. */
#include "real/real_test_kit.h"

#include <stdatomic.h>
#include <sys/resource.h>

/* A story's bare peer, for the node to play with. */
static struct {
    struct world *world;
    int fd;
    uint32_t number;
} other;

static void begin_story(void)
{
    struct hello answer;
    other.world = kit_driver(5 * WORLD_SECOND);
    other.fd = kit_join(other.world, &answer);
    other.number = answer.peer;
    assert_int_equal(answer.node, WORLD_DRIVER);
    assert_int_not_equal(answer.run, 0);
}

static void end_story(void)
{
    if (other.fd >= 0)
        close(other.fd);
    real_close(other.world);
}

/* ---- bytes that come one by one ---- */

enum { FLOATS_SLOW = 2500, PLAIN_SLOW = 3333 };

static void land_sum(void *user, void *at, const void *bytes, size_t n)
{
    (void)user;
    float *x = at;
    const float *y = bytes;
    for (size_t i = 0; i < n / sizeof *x; i++)
        x[i] += y[i];
}

/* Messages of the dribble test: an empty one, one of odd length, one that is summed, and one from
 * memory to memory. */
static int dribble_send(struct world *w, uint32_t to)
{
    CHECK(world_send(w, to, message_new(1, 0, 0), CLASS_BULK) == OK);
    struct message *odd = message_new(2, 0, 4001), *floats = message_new(3, 4, FLOATS_SLOW * 4);
    CHECK(odd && floats);
    for (size_t i = 0; i < odd->len; i++)
        ((unsigned char *)odd->data)[i] = (unsigned char)(i * 7);
    for (size_t i = 0; i < FLOATS_SLOW; i++)
        ((float *)floats->data)[i] = (float)i;
    CHECK(world_send(w, to, odd, CLASS_BULK) == OK);
    CHECK(world_send(w, to, floats, CLASS_BULK) == OK);
    unsigned char plain[PLAIN_SLOW];
    struct ended ended = {0};
    for (size_t i = 0; i < PLAIN_SLOW; i++)
        plain[i] = (unsigned char)(i * 11);
    struct send send = {
        .to = to, .view = 4, .tag = 4, .from = plain, .len = sizeof plain, .ended = &ended};
    struct wait_for gone = {.kind = WAIT_ENDED, .ended = &ended};
    struct wake wake;
    CHECK(world_post_send(w, &send) == OK);
    CHECK(world_wait(w, &gone, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
    return send.status;
}

static int receive_dribble(struct world *w, uint32_t from)
{
    float sum[FLOATS_SLOW];
    for (size_t i = 0; i < FLOATS_SLOW; i++)
        sum[i] = 0.5f;
    struct recv floats = {
        .from = from, .view = 4, .tag = 3, .into = sum, .len = sizeof sum, .land = land_sum};
    unsigned char bytes[PLAIN_SLOW];
    struct recv plain = {.from = from, .view = 4, .tag = 4, .into = bytes, .len = sizeof bytes};
    CHECK(world_post_recv(w, &floats) == OK && world_post_recv(w, &plain) == OK);
    const struct wait_for set[] = {
        {.kind = WAIT_MESSAGE, .from = from, .tag = 1, .mask = UINT64_MAX},
        {.kind = WAIT_MESSAGE, .from = from, .tag = 2, .mask = UINT64_MAX},
        {.kind = WAIT_RECV, .recv = &floats},
        {.kind = WAIT_RECV, .recv = &plain},
    };
    struct wake wake;
    CHECK(world_wait(w, &set[0], 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
    CHECK(wake.msg->len == 0);
    message_unref(wake.msg);
    CHECK(world_wait(w, &set[1], 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
    CHECK(wake.msg->len == 4001);
    for (size_t i = 0; i < 4001; i++)
        CHECK(((unsigned char *)wake.msg->data)[i] == (unsigned char)(i * 7));
    message_unref(wake.msg);
    CHECK(world_wait(w, &set[2], 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
    CHECK(floats.status == OK && floats.landed == sizeof sum);
    for (size_t i = 0; i < FLOATS_SLOW; i++)
        CHECK(sum[i] == (float)i + 0.5f);
    CHECK(world_wait(w, &set[3], 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
    CHECK(plain.status == OK && plain.landed == sizeof bytes);
    for (size_t i = 0; i < PLAIN_SLOW; i++)
        CHECK(bytes[i] == (unsigned char)(i * 11));
    return OK;
}

static int dribble_driver(struct world *w)
{
    int rc = receive_dribble(w, 0);
    return rc == OK ? dribble_send(w, 0) : rc;
}

static int dribble_worker(struct world *w)
{
    int rc = dribble_send(w, WORLD_DRIVER);
    return rc == OK ? receive_dribble(w, WORLD_DRIVER) : rc;
}

/* Passes bytes on, `piece` at a time, until one side closes. */
struct proxy {
    int listener, piece;
    char driver[64], address[64];
    pthread_t thread;
};

static bool pass_on(int from, int to, int piece)
{
    char bytes[16];
    ssize_t n = recv(from, bytes, (size_t)piece, 0);
    return n > 0 && kit_put(to, bytes, (size_t)n);
}

static void *proxy_thread(void *arg)
{
    struct proxy *p = arg;
    int side[2] = {accept(p->listener, NULL, NULL), kit_connect(p->driver)};
    int on = 1;
    for (int i = 0; i < 2; i++)
        setsockopt(side[i], IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof on);
    for (bool open = true; open;) {
        struct pollfd poll_for[2] = {{.fd = side[0], .events = POLLIN},
                                     {.fd = side[1], .events = POLLIN}};
        poll(poll_for, 2, 1000);
        for (int i = 0; i < 2; i++)
            if (poll_for[i].revents)
                open = pass_on(side[i], side[1 - i], p->piece) && open;
    }
    close(side[0]);
    close(side[1]);
    return NULL;
}

static void proxy_start(struct proxy *p, struct world *driver, int piece)
{
    struct address a;
    world_address(driver, p->driver, sizeof p->driver);
    assert_int_equal(address_parse("127.0.0.1:0", &a, NULL), OK);
    p->piece = piece;
    p->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(p->listener, &a.u.any, a.len), 0);
    assert_int_equal(listen(p->listener, 4), 0);
    assert_int_equal(getsockname(p->listener, &a.u.any, &a.len), 0);
    address_print(&a, p->address, sizeof p->address);
    assert_int_equal(pthread_create(&p->thread, NULL, proxy_thread, p), 0);
}

static void *run_dribble_worker(void *arg)
{
    struct world *w = arg;
    int rc = kit_run(w, dribble_worker, NULL);
    real_close(w);
    return (void *)(intptr_t)rc;
}

static void test_dribble(void **state)
{
    (void)state;
    const int pieces[] = {1, 3};
    for (int i = 0; i < 2; i++) {
        struct world *driver = kit_driver(5 * WORLD_SECOND);
        struct proxy proxy;
        proxy_start(&proxy, driver, pieces[i]);
        kit_way()->no_shm = true;
        struct world *worker = kit_worker_at(proxy.address);
        kit_way()->no_shm = false;
        pthread_t thread;
        void *result;
        assert_int_equal(pthread_create(&thread, NULL, run_dribble_worker, worker), 0);
        kit_check(driver, dribble_driver);
        pthread_join(thread, &result);
        assert_int_equal((int)(intptr_t)result, OK);
        real_close(driver);
        pthread_join(proxy.thread, NULL);
        close(proxy.listener);
    }
}

/* ---- a connection that breaks, or is not of ours ---- */

/* A reset in the middle of a message: what was posted for it ends, the peer is down. */
static int reset_node(struct world *w)
{
    char x[1000];
    struct recv recv = {.from = other.number, .view = 1, .tag = 5, .into = x, .len = sizeof x};
    CHECK(suite_peer_is(w, other.number, true) == OK);
    CHECK(world_post_recv(w, &recv) == OK);
    CHECK(kit_put_frame(other.fd, &(struct frame){1000, FRAME_DATA, CLASS_BULK, 1, 5}, x, 500));
    struct wait_for done = {.kind = WAIT_RECV, .recv = &recv};
    struct wake wake;
    CHECK(world_wait(w, &done, 1, suite_until(w, KIT_MOMENT), &wake) == ERR_TIMEOUT);
    struct linger at_once = {.l_onoff = 1};
    CHECK(setsockopt(other.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    close(other.fd);
    other.fd = -1;
    CHECK(world_wait(w, &done, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
    CHECK(recv.status == ERR_PEER);
    CHECK(suite_peer_is(w, other.number, false) == OK);
    return suite_send(w, other.number, 0, 1, 1) == ERR_PEER ? OK : ERR_BUG;
}

static void test_reset_in_mid_message(void **state)
{
    (void)state;
    begin_story();
    kit_check(other.world, reset_node);
    end_story();
}

/* An abort while half a message is in: from then on its range stays as it is, the rest of it is
 * thrown away, and the next message is read as always. */
static int half_in_node(struct world *w)
{
    static float x[1000], y[1000];
    float z[2] = {0};
    for (int i = 0; i < 1000; i++)
        y[i] = (float)(i + 1);
    struct recv old = {.from = other.number, .view = 1, .tag = 5, .into = x, .len = sizeof x};
    struct recv now = {.from = other.number, .view = 2, .tag = 5, .into = z, .len = sizeof z};
    CHECK(suite_peer_is(w, other.number, true) == OK);
    CHECK(world_post_recv(w, &old) == OK && world_post_recv(w, &now) == OK);
    CHECK(kit_put_frame(other.fd, &(struct frame){4000, FRAME_DATA, CLASS_BULK, 1, 5}, y, 2001));
    CHECK(world_sleep(w, suite_until(w, KIT_MOMENT)) == OK);
    world_abort(w, 2);
    CHECK(old.status == ERR_VIEW && x[499] == 500 && x[501] == 0);
    CHECK(kit_put_rest(other.fd, y, 2001, sizeof y));
    CHECK(kit_put_frame(other.fd, &(struct frame){8, FRAME_DATA, CLASS_BULK, 2, 5}, y, 8));
    struct wait_for done = {.kind = WAIT_RECV, .recv = &now};
    struct wake wake;
    CHECK(world_wait(w, &done, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
    CHECK(now.status == OK && z[0] == 1 && z[1] == 2);
    CHECK(x[501] == 0 && x[999] == 0);
    return OK;
}

static void test_abort_when_half_is_in(void **state)
{
    (void)state;
    begin_story();
    kit_check(other.world, half_in_node);
    end_story();
}

/* Frames of an old view that wait to be sent are dropped by an abort; one that has begun is sent to
 * its end, and what follows it is of the new view. */
static int half_out_node(struct world *w)
{
    CHECK(suite_peer_is(w, other.number, true) == OK);
    for (uint64_t i = 0; i < 2; i++) {
        struct message *m = message_new(i, 1, WORLD_MESSAGE_MAX);
        CHECK(m);
        memset(m->data, 0x11, m->len);
        CHECK(world_send(w, other.number, m, CLASS_BULK) == OK);
    }
    CHECK(world_sleep(w, suite_until(w, KIT_MOMENT)) == OK); /* the socket is full by now */
    world_abort(w, 2);
    CHECK(suite_send(w, other.number, 2, 99, 42) == OK);
    struct frame frame;
    static char data[WORLD_MESSAGE_MAX];
    CHECK(kit_get_message(other.fd, &frame, data, sizeof data));
    CHECK(frame.view == 1 && frame.tag == 0 && frame.length == WORLD_MESSAGE_MAX);
    CHECK(kit_get_message(other.fd, &frame, data, sizeof data));
    if (frame.tag == 1) /* a socket that takes eight megabytes at once */
        CHECK(kit_get_message(other.fd, &frame, data, sizeof data));
    CHECK(frame.view == 2 && frame.tag == 99 && frame.length == 4);
    return OK;
}

static void test_abort_when_half_is_out(void **state)
{
    (void)state;
    begin_story();
    kit_check(other.world, half_out_node);
    end_story();
}

/* A peer that breaks the protocol is disconnected, whichever rule it broke. */
static void break_protocol(const struct frame *frame, size_t bytes, int times)
{
    static char data[WORLD_MESSAGE_MAX];
    begin_story();
    bool open = true;
    for (int i = 0; i < times; i++)
        open = open && kit_put_frame(other.fd, frame, data, bytes);
    if (open)
        assert_true(kit_closes(other.fd, 5 * WORLD_SECOND));
    real_close(kit_worker(other.world)); /* others are served */
    end_story();
}

static void test_broken_protocol(void **state)
{
    (void)state;
    /* more than its credit */
    break_protocol(&(struct frame){WORLD_MESSAGE_MAX, FRAME_DATA, CLASS_BULK, 0, 1},
                   WORLD_MESSAGE_MAX, 3);
    break_protocol(&(struct frame){1024, FRAME_DATA, CLASS_CONTROL, 0, 1}, 1024,
                   WORLD_CREDIT / 1024 + 1);
    /* longer than any message */
    break_protocol(&(struct frame){WORLD_MESSAGE_MAX + 1, FRAME_DATA, CLASS_BULK, 0, 1}, 0, 1);
    /* credit for what it was never sent */
    break_protocol(&(struct frame){0, FRAME_CREDIT, CLASS_BULK, 0, 1}, 0, 1);
    break_protocol(&(struct frame){0, (enum frame_type)77, CLASS_BULK, 0, 1}, 0, 1);
}

/* ---- hellos ---- */

static void refused_with(struct world *w, const struct hello *hello, const char *key,
                         enum hello_refusal why)
{
    struct hello answer;
    int fd = kit_connect_to(w);
    kit_put_hello_of(fd, hello, key);
    assert_int_equal(kit_get_hello(fd, &answer), OK);
    assert_int_equal(answer.refusal, why);
    assert_int_equal(answer.version, PROTOCOL_VERSION);
    assert_int_equal(answer.run, 0);
    assert_true(kit_closes(fd, 5 * WORLD_SECOND));
    close(fd);
}

static void expect_refusal(struct world *w, const struct hello *hello, enum hello_refusal why)
{
    refused_with(w, hello, NULL, why);
}

static void test_refusals(void **state)
{
    (void)state;
    struct world *driver = kit_driver(5 * WORLD_SECOND);
    struct world *worker[2] = {kit_worker(driver), kit_worker(driver)};
    assert_int_equal(worker[0]->self, 0);
    assert_int_equal(worker[1]->self, 1);
    uint64_t run = node_of(driver)->run;
    struct hello other_version = *kit_hello(0, WORLD_ANY, WORLD_DRIVER);
    other_version.version++;
    expect_refusal(driver, &other_version, REFUSED_VERSION);
    expect_refusal(driver, kit_hello(run + 1, WORLD_ANY, WORLD_DRIVER), REFUSED_RUN);
    expect_refusal(driver, kit_hello(run, 5, WORLD_DRIVER), REFUSED_NUMBER);
    expect_refusal(worker[1], kit_hello(run ^ 1, 2, 1), REFUSED_RUN);
    expect_refusal(worker[1], kit_hello(0, WORLD_ANY, 1), REFUSED_RUN);
    expect_refusal(worker[1], kit_hello(run, 1, 1), REFUSED_NUMBER); /* it itself */
    expect_refusal(worker[1], kit_hello(run, 0, 1), REFUSED_NUMBER); /* an earlier */
    expect_refusal(worker[1], kit_hello(run, 2, 0), REFUSED_NUMBER); /* astray */
    expect_refusal(worker[1], kit_hello(run, WORLD_DRIVER, 1), REFUSED_NUMBER);

    struct hello answer;
    int fd = kit_connect_to(worker[1]);
    kit_put_hello(fd, kit_hello(run, 2, 1));
    assert_int_equal(kit_get_hello(fd, &answer), OK);
    assert_true(answer.refusal == REFUSED_NOT && answer.run == run && answer.node == 1);
    expect_refusal(worker[1], kit_hello(run, 2, 1), REFUSED_NUMBER); /* a second */
    world_peer_drop(worker[1], 2);
    assert_true(kit_closes(fd, 5 * WORLD_SECOND));
    expect_refusal(worker[1], kit_hello(run, 2, 1), REFUSED_NUMBER); /* dropped */
    close(fd);
    for (int i = 0; i < 2; i++)
        real_close(worker[i]);
    real_close(driver);
}

static int open_with(const char *driver, const char *key, struct world **out, struct err *err)
{
    const struct real_options options = {.driver = driver, .key = key};
    return real_open(&options, out, err);
}

/* A node that does not prove that it has the run's key receives nothing of the run, from its driver
 * or from a worker. */
static void test_key_is_asked_for_first(void **state)
{
    (void)state;
    static const char key[] = "0123456789abcdef0123456789abcdef";
    struct world *driver, *worker, *none = NULL;
    struct err err = {0};
    char where[64];
    assert_int_equal(open_with(NULL, key, &driver, &err), OK);
    uint64_t run = node_of(driver)->run;
    const char *const wrong[] = {NULL, "0123456789abcdef0123456789abcdeF",
                                 "0123456789abcdef0123456789abcdef0"};
    world_address(driver, where, sizeof where);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        refused_with(driver, kit_hello(0, WORLD_ANY, WORLD_DRIVER), wrong[i], REFUSED_KEY);
        refused_with(driver, kit_hello(run, 0, WORLD_DRIVER), wrong[i], REFUSED_KEY);
        assert_int_equal(open_with(where, wrong[i], &none, &err), ERR_INPUT);
        assert_non_null(
            strstr(err.text, "it refuses this worker: its run has key 4f4cedea95164a49"));
    }
    assert_int_equal(node_of(driver)->peers.count, 1); /* itself */
    assert_int_equal(open_with(where, key, &worker, &err), OK);
    refused_with(worker, kit_hello(run, 1, 0), NULL, REFUSED_KEY);
    refused_with(worker, kit_hello(run, 1, 0), wrong[1], REFUSED_KEY);
    refused_with(worker, kit_hello(run, 0, 0), key, REFUSED_NUMBER); /* as without a key */
    assert_int_equal(real_reach(where, WORLD_SECOND, &err), OK);     /* which tells nothing */
    real_close(worker);
    real_close(driver);
}

/* A worker with a key does not join a driver without one, which could be anybody. */
static void test_driver_must_have_the_key_too(void **state)
{
    (void)state;
    struct world *driver = kit_driver(5 * WORLD_SECOND), *worker;
    struct err err = {0};
    char where[64];
    world_address(driver, where, sizeof where);
    assert_int_equal(open_with(where, "0123456789abcdef0123456789abcdef", &worker, &err),
                     ERR_INPUT);
    assert_non_null(strstr(err.text, "it has no key, and this worker has key"));
    real_close(driver);
}

/* A node of an earlier version sends its hello at once, and finds our version in the challenge and
 * in the reply, where all versions have it. */
static void test_other_version_is_refused_by_its_hello(void **state)
{
    (void)state;
    struct world *driver = kit_driver(60 * WORLD_SECOND);
    struct hello hello = *kit_hello(0, WORLD_ANY, WORLD_DRIVER), answer;
    uint8_t bytes[HELLO_SIZE];
    int fd = kit_connect_to(driver);
    hello.version = 2;
    hello_encode(&hello, bytes);
    assert_true(kit_put(fd, bytes, sizeof bytes));
    assert_true(kit_get(fd, bytes, sizeof bytes));
    assert_int_equal(bytes_le32(bytes + 8), PROTOCOL_VERSION);
    assert_int_equal(kit_get_hello(fd, &answer), OK);
    assert_int_equal(answer.refusal, REFUSED_VERSION);
    close(fd);
    real_close(driver);
}

/* A driver of thousands that come and go: their numbers return, but not those of who was to stay,
 * nor any below. */
enum { CALLERS = 1500 };

static int receive_departure(struct world *w)
{
    return suite_peer_is(w, other.number, false);
}

static uint32_t next_call(void)
{
    struct hello answer;
    other.fd = kit_join(other.world, &answer);
    other.number = answer.peer;
    return answer.peer;
}

static void hang_up(void)
{
    close(other.fd);
    other.fd = -1;
    kit_check(other.world, receive_departure);
}

static void test_numbers_come_back(void **state)
{
    (void)state;
    struct world *stays[2];
    uint32_t highest = 0;
    other.world = kit_driver(5 * WORLD_SECOND);
    node_of(other.world)->limits.rest = 0;
    stays[0] = kit_worker(other.world);
    for (int i = 0; i < CALLERS; i++) {
        uint32_t number = next_call();
        highest = number > highest ? number : highest;
        hang_up();
    }
    assert_in_range(highest, 1, 20); /* a number is free again when all of its links have ended */

    uint32_t kept = next_call();
    assert_int_equal(world_peer_add(other.world, kept, "127.0.0.1:1"), OK);
    hang_up();
    for (int i = 0; i < 100; i++) {
        assert_true(next_call() > kept);
        hang_up();
    }
    stays[1] = kit_worker(other.world);
    assert_true(stays[1]->self > kept);
    for (int i = 0; i < 2; i++)
        real_close(stays[i]);
    real_close(other.world);
}

/* No worker gets a number that another one had a moment ago. */
static void test_numbers_rest(void **state)
{
    (void)state;
    other.world = kit_driver(5 * WORLD_SECOND);
    node_of(other.world)->limits.rest = 5 * KIT_MOMENT;
    uint32_t first = next_call();
    hang_up();
    assert_int_not_equal(next_call(), first);
    hang_up();
    real_sleep(7 * KIT_MOMENT);
    assert_int_equal(next_call(), first);
    hang_up();
    real_close(other.world);
}

/* Many short-lived connections can use all numbers up, but not for longer than the numbers rest. */
static void test_numbers_have_an_end(void **state)
{
    enum { NUMBERS = 4 };
    (void)state;
    other.world = kit_driver(5 * WORLD_SECOND);
    struct node *node = node_of(other.world);
    node->limits.rest = WORLD_FOREVER;
    node->peers.numbers = NUMBERS;
    for (uint32_t i = 0; i < NUMBERS; i++) {
        assert_int_equal(next_call(), i);
        hang_up();
    }
    expect_refusal(other.world, kit_hello(0, WORLD_ANY, WORLD_DRIVER), REFUSED_FULL);
    node->resumed_at = true;
    expect_refusal(other.world, kit_hello(node->run, NUMBERS, WORLD_DRIVER), REFUSED_FULL);
    node->limits.rest = 0;
    assert_in_range(next_call(), 0, NUMBERS - 1);
    hang_up();
    real_close(other.world);
}

/* A connection that sends nothing, or not enough, is closed when its time is up. */
static void test_half_open_connections_end(void **state)
{
    (void)state;
    enum { SILENT = 10 };
    struct world *driver = kit_driver(3 * KIT_MOMENT);
    int fd[SILENT];
    for (int i = 0; i < SILENT; i++)
        fd[i] = kit_connect_to(driver);
    int64_t start = real_now();
    assert_true(kit_put(fd[1], "PACEL", 5));
    real_close(kit_worker(driver));
    for (int i = 0; i < SILENT; i++) {
        assert_true(kit_ends(fd[i], 5 * WORLD_SECOND));
        close(fd[i]);
    }
    assert_true(real_now() - start >= 2 * KIT_MOMENT);
    real_close(driver);
}

/* With the limits that everybody has, while nothing else happens. */
static void test_half_open_connections_end_in_a_quiet_world(void **state)
{
    (void)state;
    enum { SILENT = 64, HELLO_S = 5 };
    const struct real_options options = {.seed = 7};
    struct world *driver;
    int fd[SILENT];
    assert_int_equal(real_open(&options, &driver, NULL), OK);
    for (int i = 0; i < SILENT; i++)
        fd[i] = kit_connect_to(driver);
    int64_t until = real_now() + (HELLO_S + 3) * WORLD_SECOND;
    for (int i = 0; i < SILENT; i++) {
        assert_true(kit_ends(fd[i], until - real_now()));
        close(fd[i]);
    }
    real_close(driver);
}

#define JOIN_MAX (2 * WORLD_SECOND)

/* However many are silent, a peer that authenticates gets in at once. */
static void test_many_half_open_connections_keep_no_other_out(void **state)
{
    (void)state;
    enum { SILENT = 4 * HALF_OPEN_MAX };
    struct world *driver = kit_driver(600 * WORLD_SECOND);
    int fd[SILENT];
    for (int i = 0; i < SILENT; i++) {
        fd[i] = kit_connect_to(driver);
        if (i % 3 == 0)
            assert_true(kit_put(fd[i], "PACE", 4));
    }
    int64_t start = real_now();
    struct world *worker = kit_worker(driver);
    assert_true(real_now() - start < JOIN_MAX);
    assert_true(kit_ends(fd[0], 5 * WORLD_SECOND)); /* it made room for the newest */
    real_close(worker);
    for (int i = 0; i < SILENT; i++)
        close(fd[i]);
    real_close(driver);
}

static int connect_from(const char *source, struct world *driver)
{
    char where[64];
    struct address here, there;
    assert_int_equal(address_parse(source, &here, NULL), OK);
    world_address(driver, where, sizeof where);
    assert_int_equal(address_parse(where, &there, NULL), OK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, &here.u.any, here.len), 0);
    assert_int_equal(connect(fd, &there.u.any, there.len), 0);
    return fd;
}

/* One that takes its time is not closed in favour of the many that another address opens. */
static void test_one_address_evicts_its_own_connections(void **state)
{
    (void)state;
    enum { SILENT = HALF_OPEN_MAX + 50 };
    struct world *driver = kit_driver(600 * WORLD_SECOND);
    int fd[SILENT], slow = connect_from("127.0.0.2:0", driver);
    struct hello answer;
    for (int i = 0; i < SILENT; i++)
        fd[i] = kit_connect_to(driver);
    for (int i = 0; i < 50; i++)
        assert_true(kit_ends(fd[i], 5 * WORLD_SECOND));
    kit_put_hello(slow, kit_hello(0, WORLD_ANY, WORLD_DRIVER));
    assert_int_equal(kit_get_hello(slow, &answer), OK);
    assert_int_equal(answer.refusal, REFUSED_NOT);
    for (int i = 0; i < SILENT; i++)
        close(fd[i]);
    close(slow);
    real_close(driver);
}

/* The process has no descriptor left: strangers lose theirs, and then the queue is not taken. */
static void test_no_descriptors_left_keep_no_other_out(void **state)
{
    (void)state;
    enum { SILENT = 40, SPARE = 6 };
    struct world *driver = kit_driver(600 * WORLD_SECOND);
    struct rlimit before, few;
    struct address there;
    struct hello answer;
    char where[64];
    int fd[SILENT + 1];
    world_address(driver, where, sizeof where);
    assert_int_equal(address_parse(where, &there, NULL), OK);
    for (int i = 0; i <= SILENT; i++)
        fd[i] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){.rlim_cur = (rlim_t)fd[SILENT] + 1 + SPARE, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int i = 0; i <= SILENT; i++)
        assert_int_equal(connect(fd[i], &there.u.any, there.len), 0);
    kit_put_hello(fd[SILENT], kit_hello(0, WORLD_ANY, WORLD_DRIVER));
    int64_t start = real_now();
    assert_int_equal(kit_get_hello(fd[SILENT], &answer), OK);
    assert_true(real_now() - start < JOIN_MAX);
    assert_int_equal(answer.refusal, REFUSED_NOT);
    for (int i = 0; i <= SILENT; i++)
        close(fd[i]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    real_close(driver);
}

/* ---- strangers while two nodes work ---- */

static atomic_bool quiet;
static char garbage_at[64];

static void *garbage_thread(void *arg)
{
    static const char *const what[] = {
        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a client of TLS says hello",
        "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        "PACELINE and then something else, long enough to be a hello of another version ....",
        "PAC",
        "",
    };
    for (size_t i = 0; !atomic_load(&quiet); i++) {
        int fd = kit_connect(garbage_at);
        const char *message = what[i % (sizeof what / sizeof *what)];
        kit_put(fd, message, strlen(message));
        if (i % 3)
            kit_closes(fd, WORLD_SECOND / 100);
        close(fd);
    }
    return arg;
}

enum { RALLIES = 500 };

static int play_rally(struct world *w, uint32_t with, bool serve)
{
    for (uint32_t i = 0; i < RALLIES; i++) {
        uint32_t value = 0;
        if (serve)
            CHECK(suite_send(w, with, 0, i, i) == OK);
        CHECK(suite_receive(w, with, 0, i, &value) == OK && value == i);
        if (!serve)
            CHECK(suite_send(w, with, 0, i, i) == OK);
    }
    return OK;
}

static int rally_driver(struct world *w)
{
    return play_rally(w, 0, true);
}

static int rally_worker(struct world *w)
{
    return play_rally(w, WORLD_DRIVER, false);
}

static void *run_rally_worker(void *arg)
{
    return (void *)(intptr_t)kit_run(arg, rally_worker, NULL);
}

static void test_garbage_meanwhile(void **state)
{
    (void)state;
    struct world *driver = kit_driver(5 * WORLD_SECOND), *worker = kit_worker(driver);
    pthread_t garbage, play;
    void *result;
    world_address(driver, garbage_at, sizeof garbage_at);
    atomic_store(&quiet, false);
    assert_int_equal(pthread_create(&garbage, NULL, garbage_thread, NULL), 0);
    assert_int_equal(pthread_create(&play, NULL, run_rally_worker, worker), 0);
    kit_check(driver, rally_driver);
    pthread_join(play, &result);
    assert_int_equal((int)(intptr_t)result, OK);
    atomic_store(&quiet, true);
    pthread_join(garbage, NULL);
    real_close(worker);
    real_close(driver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dribble),
        cmocka_unit_test(test_reset_in_mid_message),
        cmocka_unit_test(test_abort_when_half_is_in),
        cmocka_unit_test(test_abort_when_half_is_out),
        cmocka_unit_test(test_broken_protocol),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_key_is_asked_for_first),
        cmocka_unit_test(test_driver_must_have_the_key_too),
        cmocka_unit_test(test_other_version_is_refused_by_its_hello),
        cmocka_unit_test(test_numbers_come_back),
        cmocka_unit_test(test_numbers_rest),
        cmocka_unit_test(test_numbers_have_an_end),
        cmocka_unit_test(test_half_open_connections_end),
        cmocka_unit_test(test_half_open_connections_end_in_a_quiet_world),
        cmocka_unit_test(test_many_half_open_connections_keep_no_other_out),
        cmocka_unit_test(test_one_address_evicts_its_own_connections),
        cmocka_unit_test(test_no_descriptors_left_keep_no_other_out),
        cmocka_unit_test(test_garbage_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
