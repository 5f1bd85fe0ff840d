/* The life of a real world: how it opens, closes, fails, and what it leaves behind. */
#define _GNU_SOURCE
#include "own_network.h"
#include "real/real_test_kit.h"

#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

/* ---- opening ---- */

static void opens_not(const struct real_options *options, int status, const char *error_text)
{
    struct world *w = NULL;
    struct err err = {0};
    assert_int_equal(real_open(options, &w, &err), status);
    assert_null(w);
    if (!strstr(err.text, error_text))
        fail_msg("'%s' does not say '%s'", err.text, error_text);
}

static void test_bad_addresses(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "localhost",
        "::1:80",
        "[::1]",
        "[::1:80",
        "example.org:80",
        "127.0.0.1:80x",
        ":80",
        "[]:80",
        "[localhost]:1",
        "127.0.0.1 :1",
        "127.1:99",
        "127.0.0.1:000001",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        opens_not(&(struct real_options){.listen = bad[i]}, ERR_INPUT, "listen: address '");
        opens_not(&(struct real_options){.driver = bad[i]}, ERR_INPUT, "driver: address '");
        opens_not(&(struct real_options){.advertise = bad[i]}, ERR_INPUT, "advertise: address '");
    }
    char long_one[300];
    memset(long_one, '1', sizeof long_one);
    memcpy(long_one + 290, ":80", 4);
    opens_not(&(struct real_options){.listen = long_one}, ERR_INPUT, "listen: address '111");
}

static void test_address_text(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
        bool loopback, wildcard;
    } cases[] = {
        {"127.0.0.1:0", "127.0.0.1:0", true, false},
        {"127.9.8.7:65535", "127.9.8.7:65535", true, false},
        {"localhost:80", "127.0.0.1:80", true, false},
        {"[::1]:4000", "[::1]:4000", true, false},
        {"[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.1]:1", true, false},
        {"[::]:1", "[::]:1", false, true},
        {"0.0.0.0:1", "0.0.0.0:1", false, true},
        {"10.0.0.1:1", "10.0.0.1:1", false, false},
        {"128.0.0.1:1", "128.0.0.1:1", false, false},
        {"[fe80::1]:1", "[fe80::1]:1", false, false},
        {"[::ffff:10.0.0.1]:1", "[::ffff:10.0.0.1]:1", false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct address a;
        char text[ADDRESS_TEXT_MAX];
        assert_int_equal(address_parse(cases[i].in, &a, NULL), OK);
        address_print(&a, text, sizeof text);
        assert_string_equal(text, cases[i].out);
        assert_int_equal(address_is_loopback(&a), cases[i].loopback);
        assert_int_equal(address_is_wildcard(&a), cases[i].wildcard);
    }
}

/* One that is wanted and not insisted on. */
static void test_port_that_is_taken_is_replaced(void **state)
{
    (void)state;
    struct err err = {0};
    struct world *first, *second;
    char one[64], two[64];
    assert_int_equal(real_open(&(struct real_options){.listen = NULL}, &first, &err), OK);
    world_address(first, one, sizeof one);
    const struct real_options wish = {.port = (uint16_t)atoi(strchr(one, ':') + 1)};
    assert_int_equal(real_open(&wish, &second, &err), OK);
    world_address(second, two, sizeof two);
    assert_true(strncmp(two, "127.0.0.1:", 10) == 0 && strcmp(one, two) != 0);
    real_close(second);
    real_close(first);
    assert_int_equal(real_open(&wish, &second, &err), OK);
    world_address(second, two, sizeof two);
    assert_string_equal(two, one);
    real_close(second);
}

enum { NOT_PERMITTED = 77 };

/* In a network of its own, where the kernel chooses among few ports. false: not permitted here. */
static bool enter_network(const char *ports)
{
    bool entered = network_enter();
    FILE *range = fopen("/proc/sys/net/ipv4/ip_local_port_range", "w");
    entered = entered && range && fputs(ports, range) >= 0;
    return range && fclose(range) == 0 && entered;
}

/* A worker calls a driver that has died. The port is free, and neither the worker's listener nor
 * its own end of the connection may take it. */
static int call_dead_driver(void)
{
    enum { CALLS = 200 };
    if (!enter_network("40000 40003"))
        return NOT_PERMITTED;
    for (int i = 0; i < CALLS; i++) {
        struct world *w = NULL;
        struct err err = {0};
        int64_t begun = real_now();
        int rc = real_open(&(struct real_options){.driver = "127.0.0.1:40000"}, &w, &err);
        if (rc != ERR_PEER || !strstr(err.text, "cannot connect: Connection refused") ||
            real_now() - begun > WORLD_SECOND) {
            print_error("call %d: %s after %.3f s: %s\n", i, status_text(rc),
                        world_seconds(real_now() - begun), err.text);
            return 1;
        }
    }
    return 0;
}

static void test_the_port_of_a_dead_driver_stays_free(void **state)
{
    (void)state;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(call_dead_driver());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NOT_PERMITTED) {
        print_message("    skipped: this host does not let a test have a network of its own\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Nothing beyond this host, in any direction, without being told. */
static void test_key_is_required_beyond_loopback(void **state)
{
    (void)state;
    static const char some_key[] = "0123456789abcdef0123456789abcdef";
    opens_not(&(struct real_options){.advertise = "192.0.2.1:9"}, ERR_INPUT, "a key is required");
    opens_not(&(struct real_options){.advertise = "192.0.2.1:9", .insecure = true}, ERR_INPUT,
              "a key is required");
    opens_not(&(struct real_options){.advertise = "127.0.0.1:0"}, ERR_INPUT,
              "accepts no connections");
    opens_not(&(struct real_options){.advertise = "0.0.0.0:9", .key = some_key}, ERR_INPUT,
              "accepts no connections");
    opens_not(&(struct real_options){.listen = "0.0.0.0:0"}, ERR_INPUT, "--key FILE");
    opens_not(&(struct real_options){.listen = "[::]:0"}, ERR_INPUT, "--key FILE");
    opens_not(&(struct real_options){.driver = "192.0.2.1:9"}, ERR_INPUT, "--key FILE");
    struct world *driver = kit_driver(WORLD_SECOND), *worker = kit_worker(driver);
    struct world *second = kit_worker(driver);
    assert_int_equal(world_peer_add(second, 0, "192.0.2.1:9"), ERR_INPUT);
    assert_int_equal(world_peer_add(second, 0, "127.0.0.1:0"), ERR_INPUT);
    assert_int_equal(world_peer_add(second, 0, "nowhere"), ERR_INPUT);
    assert_int_equal(world_peer_add(second, WORLD_ANY, ""), ERR_INPUT);
    real_close(second);
    real_close(worker);
    real_close(driver);

    struct err err = {0};
    char driver_at[64], worker_at[64];
    assert_int_equal(
        real_open(&(struct real_options){.listen = "0.0.0.0:0", .key = some_key}, &driver, &err),
        OK);
    world_address(driver, driver_at, sizeof driver_at);
    memmove(driver_at + strlen("127.0.0.1"), strchr(driver_at, ':'), 7);
    memcpy(driver_at, "127.0.0.1", strlen("127.0.0.1"));
    assert_int_equal(
        real_open(
            &(struct real_options){.listen = "0.0.0.0:0", .driver = driver_at, .key = some_key},
            &worker, &err),
        OK);
    world_address(worker, worker_at, sizeof worker_at);
    assert_memory_equal(worker_at, "127.0.0.1:", 10); /* where others reach it */
    real_close(worker);
    real_close(driver);
}

static void test_port_in_use(void **state)
{
    (void)state;
    struct world *first = kit_driver(WORLD_SECOND);
    char address[64], message[128];
    world_address(first, address, sizeof address);
    snprintf(message, sizeof message, "listen %s: Address already in use", address);
    opens_not(&(struct real_options){.listen = address}, ERR_INPUT, message);
    real_close(first);
    struct err err = {0};
    assert_int_equal(real_open(&(struct real_options){.listen = address}, &first, &err), OK);
    real_close(first);
}

/* The advertised address differs from the listening one. */
static void test_advertised(void **state)
{
    (void)state;
    struct world *w = NULL;
    char address[64];
    const struct real_options options = {.advertise = "127.0.0.9:4711"};
    assert_int_equal(real_open(&options, &w, NULL), OK);
    world_address(w, address, sizeof address);
    assert_string_equal(address, "127.0.0.9:4711");
    real_close(w);
}

/* ---- drivers that are none ---- */

struct impostor {
    int listener;
    char address[64];
    uint8_t error_text[REPLY_SIZE];
    size_t n;
    bool challenges; /* sends a challenge first, as a driver does */
    pthread_t thread;
};

static void *impostor_thread(void *arg)
{
    struct impostor *i = arg;
    uint8_t challenge[HELLO_SIZE], bytes[FIRST_SIZE];
    int fd = accept(i->listener, NULL, NULL);
    challenge_encode(&(struct challenge){.version = PROTOCOL_VERSION}, challenge);
    if (!i->challenges ||
        (kit_put(fd, challenge, sizeof challenge) && kit_get(fd, bytes, sizeof bytes)))
        kit_put(fd, i->error_text, i->n);
    close(fd);
    return NULL;
}

/* The worker's error when it receives this reply. */
static void expect_reply_of(const struct hello *hello, size_t n, bool challenges,
                            const char *error_text)
{
    struct impostor i = {.n = n, .challenges = challenges};
    struct address a;
    hello_encode(hello, i.error_text);
    assert_int_equal(address_parse("127.0.0.1:0", &a, NULL), OK);
    i.listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(i.listener, &a.u.any, a.len), 0);
    assert_int_equal(listen(i.listener, 1), 0);
    assert_int_equal(getsockname(i.listener, &a.u.any, &a.len), 0);
    address_print(&a, i.address, sizeof i.address);
    assert_int_equal(pthread_create(&i.thread, NULL, impostor_thread, &i), 0);
    opens_not(&(struct real_options){.driver = i.address}, ERR_PEER, error_text);
    pthread_join(i.thread, NULL);
    close(i.listener);
    opens_not(&(struct real_options){.driver = i.address}, ERR_PEER,
              "cannot connect: Connection refused");
}

static void expect_reply(const struct hello *hello, size_t n, const char *error_text)
{
    expect_reply_of(hello, n, true, error_text);
}

static void test_no_driver(void **state)
{
    (void)state;
    const struct hello good = *kit_hello(77, WORLD_DRIVER, 0);
    struct hello h = good;
    expect_reply(&h, REPLY_SIZE - 1, "does not reply");
    expect_reply_of(&h, HELLO_SIZE - 1, false, "does not reply");
    h.version = 9;
    expect_reply_of(&h, HELLO_SIZE, false, "protocol version 9, this worker version 5");
    expect_reply(&h, REPLY_SIZE, "protocol version 9, this worker version 5");
    h = good;
    h.refusal = REFUSED_FULL;
    expect_reply(&h, REPLY_SIZE, "refuses this worker: no room");
    h.refusal = 1000;
    expect_reply(&h, REPLY_SIZE, "refuses this worker: no reason");
    h = good;
    h.node = 3;
    expect_reply(&h, REPLY_SIZE, "is a worker");
    h = good;
    h.run = 0;
    expect_reply(&h, REPLY_SIZE, "is a worker");
    h = good;
    h.peer = WORLD_ANY;
    expect_reply(&h, REPLY_SIZE, "is a worker");

    struct world *w = NULL;
    struct err err = {0};
    const struct node_limits limits = {.hello = KIT_MOMENT};
    struct impostor silent = {.listener = socket(AF_INET, SOCK_STREAM, 0)};
    struct address a;
    assert_int_equal(address_parse("127.0.0.1:0", &a, NULL), OK);
    assert_int_equal(bind(silent.listener, &a.u.any, a.len), 0);
    assert_int_equal(listen(silent.listener, 1), 0);
    assert_int_equal(getsockname(silent.listener, &a.u.any, &a.len), 0);
    address_print(&a, silent.address, sizeof silent.address);
    assert_int_equal(node_open(&(struct real_options){.driver = silent.address}, &limits, &w, &err),
                     ERR_PEER);
    assert_non_null(strstr(err.text, "does not reply: Connection timed out"));
    close(silent.listener);
}

/* ---- asking the host ---- */

static int count_wanted(void *user, uint32_t n)
{
    *(uint32_t *)user += n;
    return n > 5 ? ERR_NOMEM : OK;
}

static void test_want_nodes(void **state)
{
    (void)state;
    struct world *w = kit_driver(WORLD_SECOND);
    assert_int_equal(world_want_nodes(w, 1), ERR_UNSUPPORTED);
    assert_int_equal(world_work(w, &(struct cost){100}), OK);
    real_close(w);
    uint32_t wanted = 0;
    assert_int_equal(
        real_open(&(struct real_options){.want_nodes = count_wanted, .user = &wanted}, &w, NULL),
        OK);
    assert_int_equal(world_want_nodes(w, 3), OK);
    assert_int_equal(world_want_nodes(w, 6), ERR_NOMEM);
    assert_int_equal(wanted, 9);
    real_close(w);
}

/* ---- what is left when it is closed ---- */

static int count_entries(const char *path)
{
    DIR *dir = opendir(path);
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static long resident_kb(void)
{
    long pages[2] = {0};
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld %ld", &pages[0], &pages[1]), 2);
    fclose(file);
    return pages[1] * sysconf(_SC_PAGESIZE) / 1024;
}

static int exchange_messages(struct world *w)
{
    uint32_t value, peer = w->self == 0 ? 1 : 0;
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(suite_send(w, peer, 0, i, i) == OK);
        CHECK(suite_receive(w, peer, 0, i, &value) == OK && value == i);
    }
    /* Not all is taken when the world ends; the other may have ended by now. */
    int rc = suite_send(w, peer, 0, 99, 0);
    CHECK(rc == OK || rc == ERR_PEER);
    return suite_send(w, w->self, 0, 99, 0);
}

static void *run_chat(void *arg)
{
    struct world *w = arg;
    int rc = kit_run(w, exchange_messages, NULL);
    real_close(w);
    return (void *)(intptr_t)rc;
}

static void one_cycle(void)
{
    struct world *driver = kit_driver(WORLD_SECOND);
    struct world *worker[2] = {kit_worker(driver), kit_worker(driver)};
    char address[64];
    world_address(worker[0], address, sizeof address);
    assert_int_equal(world_peer_add(worker[1], 0, address), OK);
    assert_int_equal(world_peer_add(worker[0], 1, ""), OK);
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, run_chat, worker[1]), 0);
    kit_check(worker[0], exchange_messages);
    real_close(worker[0]);
    pthread_join(thread, &result);
    assert_int_equal((int)(intptr_t)result, OK);
    real_close(driver);
}

static void test_cycles_leave_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        one_cycle();
    int fds = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
    long resident = resident_kb();
    for (int i = 0; i < 100; i++)
        one_cycle();
    assert_int_equal(count_entries("/proc/self/fd"), fds);
    assert_int_equal(count_entries("/proc/self/task"), threads);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_in_range(resident_kb(), 0, resident + 2048);
#else
    (void)resident; /* sanitizers keep what is freed */
#endif
}

/* ---- a peer that is killed ---- */

/* This program again, as a worker of the driver at argv[2] that waits to be killed. */
static int wait_to_be_killed(struct world *w)
{
    CHECK(suite_send(w, WORLD_DRIVER, 0, 1, 11) == OK);
    return world_sleep(w, suite_until(w, 60 * WORLD_SECOND));
}

static int be_a_victim(const char *driver)
{
    struct world *w;
    if (real_open(&(struct real_options){.driver = driver}, &w, NULL) != OK)
        return 1;
    int rc = kit_run(w, wait_to_be_killed, NULL);
    real_close(w);
    return rc;
}

static pid_t victim;

static int see_it_die(struct world *w)
{
    uint32_t value;
    CHECK(suite_peer_is(w, 0, true) == OK);
    CHECK(suite_receive(w, 0, 0, 1, &value) == OK && value == 11);
    int64_t killed = world_now(w);
    CHECK(kill(victim, SIGKILL) == 0);
    CHECK(suite_peer_is(w, 0, false) == OK);
    int64_t after = world_now(w) - killed;
    print_message("killed peer seen down after %.2f ms\n", (double)after * 1e-6);
    CHECK(after < KIT_MOMENT);
    return OK;
}

static void test_killed_peer(void **state)
{
    (void)state;
    struct world *w = kit_driver(5 * WORLD_SECOND);
    char address[64];
    world_address(w, address, sizeof address);
    victim = fork();
    assert_true(victim >= 0);
    if (victim == 0) {
        execl("/proc/self/exe", "real_test", "victim", address, (char *)NULL);
        _exit(127);
    }
    kit_check(w, see_it_die);
    int status;
    assert_int_equal(waitpid(victim, &status, 0), victim);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    real_close(w);
}

/* ---- throughput, and the last words of who closes ---- */

enum { PIECES = 64, PIECE = 1024 * 1024 };

static int send_stream(struct world *w)
{
    for (uint32_t i = 0; i < PIECES; i++) {
        struct message *m = message_new(i, 1, PIECE);
        CHECK(m);
        memset(m->data, (int)i, PIECE);
        CHECK(suite_send_bulk(w, WORLD_DRIVER, m) == OK);
    }
    return OK; /* and closes at once */
}

static void *run_pour(void *arg)
{
    int rc = kit_run(arg, send_stream, NULL);
    real_close(arg);
    return (void *)(intptr_t)rc;
}

static int receive_stream(struct world *w)
{
    unsigned char *range = malloc(PIECE);
    CHECK(range);
    CHECK(suite_peer_is(w, 0, true) == OK);
    int64_t start = world_now(w);
    for (uint32_t i = 0; i < PIECES; i++) {
        struct recv recv = {.from = 0, .view = 1, .tag = i, .into = range, .len = PIECE};
        struct wait_for done = {.kind = WAIT_RECV, .recv = &recv};
        struct wake wake;
        CHECK(world_post_recv(w, &recv) == OK);
        CHECK(world_wait(w, &done, 1, suite_until(w, SUITE_PATIENCE), &wake) == OK);
        CHECK(recv.status == OK && range[0] == i && range[PIECE - 1] == i);
    }
    double seconds = world_seconds(world_now(w) - start);
    print_message("64 MB in %.3f s: %.2f GB/s\n", seconds, PIECES * (double)PIECE / seconds * 1e-9);
    free(range);
    return suite_peer_is(w, 0, false);
}

static void test_throughput(void **state)
{
    (void)state;
    struct world *driver = kit_driver(WORLD_SECOND), *worker = kit_worker(driver);
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, run_pour, worker), 0);
    kit_check(driver, receive_stream);
    pthread_join(thread, &result);
    assert_int_equal((int)(intptr_t)result, OK);
    real_close(driver);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "victim") == 0)
        return be_a_victim(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_addresses),
        cmocka_unit_test(test_address_text),
        cmocka_unit_test(test_port_that_is_taken_is_replaced),
        cmocka_unit_test(test_the_port_of_a_dead_driver_stays_free),
        cmocka_unit_test(test_key_is_required_beyond_loopback),
        cmocka_unit_test(test_port_in_use),
        cmocka_unit_test(test_advertised),
        cmocka_unit_test(test_no_driver),
        cmocka_unit_test(test_want_nodes),
        cmocka_unit_test(test_killed_peer),
        cmocka_unit_test(test_throughput),
        cmocka_unit_test(test_cycles_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
