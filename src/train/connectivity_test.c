/* The driver replies to a connectivity check soon, even while other workers with unreachable
 * addresses wait. */
#include "train/connectivity.h"

#include "sim/scene.h"
#include "wire/wire_send.h"

enum { SILENT = 20, ASKERS = SILENT + 2, LEAVES = SILENT };

#define TRIES (3 * WORLD_SECOND)

static struct {
    struct world *driver;
    bool host_left; /* the host that goes */
    int at_once, most;
} net;

/* As a host does it: silence takes all of one's patience. */
static int try_address(const char *address, int64_t patience, struct err *err)
{
    net.most = ++net.at_once > net.most ? net.at_once : net.most;
    bool silent =
        strncmp(address, "silent", 6) == 0 || (net.host_left && !strcmp(address, "goes:1"));
    world_sleep(net.driver, world_now(net.driver) + (silent ? patience : MS));
    net.at_once--;
    return silent ? err_set(err, ERR_PEER, "nobody answers") : OK;
}

static int stay_connected(struct scene *s, struct world *w)
{
    struct logger log = {.write = scene_log, .user = s, .level = LOG_WARN};
    const struct train_host host = {.log = &log, .check_address = try_address};
    struct connectivity_checker *checker;
    net.driver = w;
    net.host_left = false;
    net.most = net.at_once = 0;
    int rc = connectivity_start(w, &host, &checker);
    if (rc == OK)
        rc = scene_stay(s, w);
    connectivity_stop(checker);
    return rc;
}

/* The driver's answer, and how many it names. */
static int request_check(struct world *w, const char *address, bool *reached, uint32_t *named)
{
    const struct wait_for reply = wire_from(WORLD_DRIVER, WIRE_CONNECT_RESULT);
    char requested[NODE_ADDRESS_MAX], why[ERR_TEXT_MAX];
    struct buf bytes = {0};
    struct wake wake;
    buf_put_text(&bytes, address);
    int rc = wire_send_buf(w, WORLD_DRIVER, WIRE_CONNECT_CHECK, 0, &bytes);
    buf_release(&bytes);
    if (rc == OK)
        rc = world_wait(w, &reply, 1, world_now(w) + 60 * WORLD_SECOND, &wake);
    if (rc != OK)
        return rc;
    struct byte_reader in = {wake.msg->data, wake.msg->len, false};
    read_text(&in, requested, sizeof requested);
    *reached = read_u8(&in) != 0;
    read_text(&in, why, sizeof why);
    *named = read_u32(&in);
    message_unref(wake.msg);
    return in.failed || strcmp(requested, address) != 0 ? ERR_PROTOCOL : OK;
}

/* Twenty unreachable workers ask just before two reachable ones; one of these then disconnects, and
 * the other asks again. */
static int request_in_scene(struct scene *s, struct world *w)
{
    char address[NODE_ADDRESS_MAX];
    bool reached = false;
    uint32_t named = 0, self = w->self;
    const char *name = self < SILENT ? "silent" : self == LEAVES ? "goes" : "well";
    snprintf(address, sizeof address, "%s:1", name);
    int rc = world_sleep(w, BEGIN + (int64_t)self * MS);
    int64_t requested = world_now(w);
    if (rc == OK)
        rc = request_check(w, address, &reached, &named);
    s->time[self] = world_now(w) - requested;
    s->rc[self] = rc != OK ? rc : reached == (self >= SILENT) ? OK : ERR_BUG;
    if (self == LEAVES)
        net.host_left = true;
    if (self == ASKERS - 1 && rc == OK) {
        s->rc[ASKERS] = named == 1 ? OK : ERR_BUG;
        requested = world_now(w);
        rc = request_check(w, address, &reached, &named);
        s->time[ASKERS] = world_now(w) - requested;
        s->rc[ASKERS + 1] = rc == OK && reached && named == 0 ? OK : ERR_BUG;
    }
    return rc;
}

static void test_connectivity_silent_hosts_delay_no_other(void **state)
{
    (void)state;
    struct scene s = {.cluster = "node { count: 24 }",
                      .workers = ASKERS,
                      .driver = stay_connected,
                      .worker = request_in_scene};
    assert_int_equal(scene_play(&s), OK);
    for (int i = 0; i < ASKERS + 2; i++)
        assert_int_equal(s.rc[i], OK);
    int64_t longest = 0;
    for (int i = 0; i <= ASKERS; i++)
        longest = s.time[i] > longest ? s.time[i] : longest;
    print_message("    the longest answer took %.2f s; %d tried at once\n", world_seconds(longest),
                  net.most);
    /* A question may come while others are tried, and wait for its own trial then. */
    assert_true(longest <= 2 * TRIES + WORLD_SECOND / 10);
    assert_in_range(net.most, SILENT / 2, 64);
    assert_null(strstr(s.log, "well"));
}

/* A machine that asks and asks is a nuisance to those whose addresses it names, and keeps no other
 * machine out. */
static void test_connectivity_counts_tries_per_machine(void **state)
{
    (void)state;
    static struct connectivity_rate rates[CONNECTIVITY_MACHINES_MAX];
    char address[32];
    uint32_t requested = 0;
    for (int i = 0; i < 2 * CONNECTIVITY_TRIES_MAX; i++) {
        snprintf(address, sizeof address, "10.0.0.1:%d", 40000 + i);
        requested = connectivity_count(rates, address,
                                       59 * WORLD_SECOND * i / (2 * CONNECTIVITY_TRIES_MAX));
    }
    assert_int_equal(requested, 2 * CONNECTIVITY_TRIES_MAX);
    assert_int_equal(connectivity_count(rates, "10.0.0.11:1", WORLD_SECOND), 1);
    assert_int_equal(connectivity_count(rates, "[fe80::1]:1", WORLD_SECOND), 1);
    assert_int_equal(connectivity_count(rates, "10.0.0.11:2", 2 * WORLD_SECOND), 2);
    assert_int_equal(connectivity_count(rates, "10.0.0.1:1", 60 * WORLD_SECOND), 1);
    for (int i = 0; i < 2 * CONNECTIVITY_MACHINES_MAX; i++) {
        snprintf(address, sizeof address, "10.0.1.%d:1", i);
        assert_int_equal(connectivity_count(rates, address, 61 * WORLD_SECOND + i), 1);
    }
}

/* A worker on the driver's machine that has joined by a loopback address. */
static void test_connectivity_refuses_loopback_across_machines(void **state)
{
    (void)state;
    static const char *const own[] = {"127.0.0.1:4", "127.0.1.1:4", "[::1]:4"};
    static const char *const far[] = {"0.0.0.0:29500", "10.0.0.1:29500", "[::]:29500"};
    for (size_t i = 0; i < 3; i++) {
        struct err err = {0};
        assert_int_equal(connectivity_check_loopback(far[i], 5, own[i], &err), ERR_PEER);
        assert_non_null(strstr(err.text, own[i]));
        assert_non_null(strstr(err.text, far[i]));
        assert_non_null(strstr(err.text, "--join the driver's address on the network"));
        assert_int_equal(connectivity_check_loopback(own[i], 5, own[0], &err), OK);
        assert_int_equal(connectivity_check_loopback(far[0], 5, far[i], &err), OK);
    }
}

/* Each is answered, though it has asked too often. */
static int request_often(struct scene *s, struct world *w)
{
    bool reached = true;
    uint32_t named;
    int rc = world_sleep(w, BEGIN);
    for (int i = 0; rc == OK && i < CONNECTIVITY_TRIES_MAX + 3; i++) {
        rc = request_check(w, "well:1", &reached, &named);
        s->rc[1] += reached;
    }
    s->rc[0] = rc;
    return rc;
}

static void test_connectivity_replies_above_rate_limit(void **state)
{
    (void)state;
    struct scene s = {.cluster = "node { count: 2 }",
                      .workers = 1,
                      .driver = stay_connected,
                      .worker = request_often};
    assert_int_equal(scene_play(&s), OK);
    assert_int_equal(s.rc[0], OK);
    assert_int_equal(s.rc[1], CONNECTIVITY_TRIES_MAX);
    const char *once = strstr(s.log, "have connected more than");
    assert_true(once && !strstr(once + 1, "have connected more than"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_connectivity_silent_hosts_delay_no_other),
        cmocka_unit_test(test_connectivity_counts_tries_per_machine),
        cmocka_unit_test(test_connectivity_refuses_loopback_across_machines),
        cmocka_unit_test(test_connectivity_replies_above_rate_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
