/* Strangers at the port of a run with a key, while its driver and a worker exchange messages: each
 * is refused, its reason is in the log, and not one message is lost. */
#include "real/real_test_kit.h"

#include "base/rng.h"

#include <stdatomic.h>

static const char key[] = "0123456789abcdef0123456789abcdef",
                  other_key[] = "fedcba9876543210fedcba9876543210";

enum { LOG_SIZE = 65536 };

static struct {
    pthread_mutex_t lock;
    char text[LOG_SIZE];
    size_t used;
} logged = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_log(void *user, enum log_level level, const char *line)
{
    (void)user;
    (void)level;
    pthread_mutex_lock(&logged.lock);
    size_t n = strlen(line);
    if (logged.used + n + 2 < sizeof logged.text) {
        memcpy(logged.text + logged.used, line, n);
        logged.text[logged.used + n] = '\n';
        logged.used += n + 1;
    }
    pthread_mutex_unlock(&logged.lock);
}

/* How often the log has that; a moment may pass until it does. */
static int count_logged(const char *what)
{
    int times = 0;
    pthread_mutex_lock(&logged.lock);
    for (const char *at = logged.text; (at = strstr(at, what)); at++)
        times++;
    pthread_mutex_unlock(&logged.lock);
    return times;
}

static void expect_logged(const char *what)
{
    for (int i = 0; i < 500 && count_logged(what) == 0; i++)
        real_sleep(WORLD_SECOND / 100);
    if (count_logged(what) == 0)
        fail_msg("not in the log: %s; it has: %s", what, logged.text);
}

/* ---- the run ---- */

static struct world *driver, *worker;
static pthread_t thread[2];
static atomic_bool over;
static atomic_uint rallies;

/* The driver serves until the strangers are done, and says so with its last message. */
static int serve_worker(struct world *w)
{
    for (uint32_t i = 0;; i++) {
        uint32_t value = 0, last = atomic_load(&over);
        CHECK(suite_send(w, 0, 0, i, last) == OK);
        CHECK(suite_receive(w, 0, 0, i, &value) == OK && value == i);
        atomic_fetch_add(&rallies, 1);
        if (last)
            return OK;
    }
}

static int answer_driver(struct world *w)
{
    for (uint32_t i = 0, last = 0; !last; i++) {
        CHECK(suite_receive(w, WORLD_DRIVER, 0, i, &last) == OK);
        CHECK(suite_send(w, WORLD_DRIVER, 0, i, i) == OK);
    }
    return OK;
}

static void *run_driver(void *arg)
{
    return (void *)(intptr_t)kit_run(arg, serve_worker, NULL);
}

static void *run_worker(void *arg)
{
    return (void *)(intptr_t)kit_run(arg, answer_driver, NULL);
}

/* With TLS between them: shared memory would replace it on one host. */
static void begin_run(void)
{
    const struct logger log = {.write = on_log, .level = LOG_INFO};
    const struct node_limits limits = {
        .hello = WORLD_SECOND, .flush = WORLD_SECOND, .rest = WORLD_FOREVER};
    struct real_options options = {.seed = 7, .key = key, .log = &log, .no_shm = true};
    char where[64];
    struct err err = {0};
    memset(logged.text, 0, sizeof logged.text);
    logged.used = 0;
    atomic_store(&over, false);
    atomic_store(&rallies, 0);
    assert_int_equal(node_open(&options, &limits, &driver, &err), OK);
    world_address(driver, where, sizeof where);
    options.driver = where;
    options.log = NULL;
    if (node_open(&options, &limits, &worker, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(pthread_create(&thread[0], NULL, run_driver, driver), 0);
    assert_int_equal(pthread_create(&thread[1], NULL, run_worker, worker), 0);
}

/* No message was lost, and the driver knows so many nodes, itself among them: no stranger. */
static void end_run(size_t peers)
{
    unsigned before = atomic_load(&rallies);
    for (int i = 0; i < 500 && atomic_load(&rallies) == before; i++)
        real_sleep(WORLD_SECOND / 100);
    assert_true(atomic_load(&rallies) > before);
    atomic_store(&over, true);
    for (int i = 0; i < 2; i++) {
        void *result;
        pthread_join(thread[i], &result);
        assert_int_equal((int)(intptr_t)result, OK);
    }
    assert_int_equal(node_of(driver)->peers.count, peers);
    real_close(worker);
    real_close(driver);
}

/* ---- strangers ---- */

static void expect_refused(int fd)
{
    struct hello reply;
    assert_int_equal(kit_get_hello(fd, &reply), OK);
    assert_int_equal(reply.refusal, REFUSED_KEY);
    assert_int_equal(reply.run, 0);
    assert_true(kit_closes(fd, 5 * WORLD_SECOND));
    close(fd);
}

static void send_hello(const char *with)
{
    int fd = kit_connect_to(driver);
    kit_put_hello_of(fd, kit_hello(0, WORLD_ANY, WORLD_DRIVER), with);
    expect_refused(fd);
}

/* A hello that was right on one connection is of no use on another; nor is the driver's own reply,
 * which an attacker returns. */
static void send_replay(void)
{
    struct hellos first, second = {0};
    struct run_key derived;
    int one = kit_connect_to(driver), two = kit_connect_to(driver);
    assert_int_equal(run_key_derive(&derived, key), OK);
    memset(&first, 0, sizeof first);
    assert_true(kit_get(one, first.challenge, HELLO_SIZE));
    hello_encode(kit_hello(node_of(driver)->run + 1, WORLD_ANY, WORLD_DRIVER), first.first);
    assert_int_equal(run_key_prove_first(&derived, &first), OK);
    assert_true(kit_put(one, first.first, FIRST_SIZE));
    assert_true(kit_get(one, first.reply, REPLY_SIZE)); /* another run: refused, but for that */
    assert_true(kit_get(two, second.challenge, HELLO_SIZE));
    assert_memory_not_equal(first.challenge, second.challenge, HELLO_SIZE);
    assert_true(kit_put(two, first.first, FIRST_SIZE));
    expect_refused(two);
    close(one);
    expect_logged("it was replayed, or changed on its way");
}

/* A stolen connection, with a right hello, but without the key: TLS lets it no further. */
static void send_stolen_connection(void)
{
    struct hellos hellos = {0};
    struct run_key derived;
    struct hello reply;
    char byte;
    int fd = kit_connect_to(driver);
    assert_int_equal(run_key_derive(&derived, key), OK);
    assert_true(kit_get(fd, hellos.challenge, HELLO_SIZE));
    hello_encode(kit_hello(0, WORLD_ANY, WORLD_DRIVER), hellos.first);
    assert_int_equal(run_key_prove_first(&derived, &hellos), OK);
    assert_true(kit_put(fd, hellos.first, FIRST_SIZE));
    assert_true(kit_get(fd, hellos.reply, REPLY_SIZE));
    assert_int_equal(hello_decode(hellos.reply, &reply), OK);
    assert_int_equal(reply.refusal, REFUSED_NOT);
    assert_true(run_key_accepts_reply(&derived, &hellos));
    struct frame frame = {.length = 0, .type = FRAME_DATA, .class = CLASS_CONTROL};
    uint8_t bytes[FRAME_SIZE];
    frame_encode(&frame, bytes);
    assert_true(kit_put(fd, bytes, sizeof bytes)); /* as to a run without TLS */
    while (recv(fd, &byte, 1, 0) > 0)
        continue; /* an alert */
    close(fd);
}

static void send_bytes(const void *bytes, size_t n, bool waits)
{
    char challenge[HELLO_SIZE];
    int fd = kit_connect_to(driver);
    assert_true(kit_get(fd, challenge, sizeof challenge));
    (void)kit_put(fd, bytes, n);
    if (waits)
        while (recv(fd, challenge, sizeof challenge, 0) > 0)
            continue;
    close(fd);
}

/* Megabytes of noise: the first byte ends the connection. */
static void send_noise(void)
{
    static uint8_t noise[10 * 1024 * 1024];
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)(rng_u64(3, 1, i / 8) >> i % 8);
    noise[0] = 0xa5;
    send_bytes(noise, sizeof noise, true);
}

static void send_other_version(void)
{
    struct hello hello = *kit_hello(0, WORLD_ANY, WORLD_DRIVER);
    uint8_t bytes[HELLO_SIZE];
    hello.version = PROTOCOL_VERSION - 1;
    hello_encode(&hello, bytes);
    send_bytes(bytes, sizeof bytes, true);
}

/* A byte from time to time: its time is up all the same. */
static void send_slow_drip(void)
{
    uint8_t bytes[HELLO_SIZE], challenge[HELLO_SIZE];
    int fd = kit_connect_to(driver);
    assert_true(kit_get(fd, challenge, sizeof challenge));
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    hello_encode(kit_hello(0, WORLD_ANY, WORLD_DRIVER), bytes);
    int64_t begun = real_now();
    for (size_t i = 0; i < sizeof bytes && poll(&ended, 1, 50) == 0; i++)
        (void)!send(fd, bytes + i, 1, MSG_NOSIGNAL);
    assert_true(real_now() - begun < 2 * WORLD_SECOND);
    close(fd);
}

static void test_strangers_are_refused_by_reason(void **state)
{
    (void)state;
    begin_run();
    send_hello(NULL);
    expect_logged("it shows no key");
    send_hello(other_key);
    expect_logged("it has the key of another run");
    send_replay();
    send_stolen_connection();
    send_bytes("PACELINE\5\0\0", 11, false);
    expect_logged("it has ended within its hello");
    send_other_version();
    expect_logged("another protocol version");
    send_bytes("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 35, true);
    expect_logged(status_text(ERR_PROTOCOL));
    send_noise();
    send_slow_drip();
    expect_logged("it has not sent its hello in time");
    end_run(3); /* one of them with a right proof */
}

/* A thousand idle connections: at most HALF_OPEN_MAX are held, a right key gets in meanwhile, and
 * the exchange of messages continues. */
static void test_idle_connections_keep_no_key_out(void **state)
{
    (void)state;
    enum { IDLE = 1000 };
    static int fd[IDLE];
    begin_run();
    for (int i = 0; i < IDLE; i++)
        fd[i] = kit_connect_to(driver);
    struct world *late = NULL;
    struct err err = {0};
    char where[64];
    world_address(driver, where, sizeof where);
    int64_t begun = real_now();
    const struct real_options options = {.driver = where, .key = key};
    if (real_open(&options, &late, &err) != OK)
        fail_msg("%s", err.text);
    print_message("    joined in %.3f s\n", world_seconds(real_now() - begun));
    assert_true(node_of(driver)->io.half_open <= HALF_OPEN_MAX);
    real_close(late);
    for (int i = 0; i < IDLE; i++)
        close(fd[i]);
    for (int i = 0; i < 500 && node_of(driver)->peers.up > 1; i++)
        real_sleep(WORLD_SECOND / 100);
    expect_logged("others are waiting, and it has sent nothing");
    end_run(3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strangers_are_refused_by_reason),
        cmocka_unit_test(test_idle_connections_keep_no_key_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
