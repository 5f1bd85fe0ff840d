/* The limits of a node on both sides: the last value that is taken, and the first that is not. The
 * lengths of frames are in frame_test, those of queues and credit in real_memory_test and
 * real_pair_test. */
#include "real/real_test_kit.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* The status of a driver's start with these options; it ends at once. */
static int try_options(const struct real_options *options, struct err *err)
{
    struct world *w = NULL;
    int rc = real_open(options, &w, err);
    if (rc == OK)
        real_close(w);
    return rc;
}

static int try_key(size_t length, struct err *err)
{
    char text[2 * RUN_KEY_TEXT_MAX] = "";
    memset(text, 'x', length);
    return try_options(&(struct real_options){.key = text}, err);
}

static void test_key_has_a_length(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(try_key(RUN_KEY_TEXT_MIN, &err), OK);
    assert_int_equal(try_key(RUN_KEY_TEXT_MAX, &err), OK);
    assert_int_equal(try_key(RUN_KEY_TEXT_MIN - 1, &err), ERR_INPUT);
    assert_string_equal(err.text, "key: 32 to 64 characters, not 31");
    assert_int_equal(try_key(RUN_KEY_TEXT_MAX + 1, &err), ERR_INPUT);
    assert_string_equal(err.text, "key: 32 to 64 characters, not 65");
    assert_int_equal(try_key(0, &err), ERR_INPUT);
}

static void test_stripes_are_few(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(try_options(&(struct real_options){.stripes = STRIPES_MAX}, &err), OK);
    assert_int_equal(try_options(&(struct real_options){.stripes = STRIPES_MAX + 1}, &err),
                     ERR_INPUT);
    assert_string_equal(err.text, "stripes: 1 to 16, not 17");
}

/* Of a peer with 16 connections the last is number 15. */
static void test_stripes_have_numbers(void **state)
{
    (void)state;
    struct hello hello = *kit_hello(7, 0, WORLD_DRIVER), out;
    uint8_t bytes[HELLO_SIZE];
    hello.stripes = STRIPES_MAX;
    hello.stripe = STRIPES_MAX - 1;
    hello_encode(&hello, bytes);
    assert_int_equal(hello_decode(bytes, &out), OK);
    hello.stripe = STRIPES_MAX;
    hello_encode(&hello, bytes);
    assert_int_equal(hello_decode(bytes, &out), ERR_PROTOCOL);
    hello.stripe = 0;
    hello.stripes = STRIPES_MAX + 1;
    hello_encode(&hello, bytes);
    assert_int_equal(hello_decode(bytes, &out), ERR_PROTOCOL);
}

/* ---- peers ---- */

static size_t count_up(struct world *driver)
{
    struct node *node = node_of(driver);
    node_lock(node);
    size_t up = node->peers.up;
    node_unlock(node);
    return up;
}

static bool await_up(struct world *driver, size_t count)
{
    for (int i = 0; i < 1000 && count_up(driver) != count; i++)
        real_sleep(WORLD_SECOND / 200);
    return count_up(driver) == count;
}

static enum hello_refusal call_driver(struct world *driver, int *fd)
{
    struct hello answer;
    *fd = kit_connect_to(driver);
    kit_put_hello(*fd, kit_hello(0, WORLD_ANY, WORLD_DRIVER));
    assert_int_equal(kit_get_hello(*fd, &answer), OK);
    return (enum hello_refusal)answer.refusal;
}

/* A driver takes as many workers as a view may have, and one more when one of them has gone. */
static void test_peers_are_limited_at_a_time(void **state)
{
    enum { BOTH_ENDS = 2 * PEERS_UP_MAX + 64 };
    (void)state;
    static int fd[PEERS_UP_MAX];
    int other;
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_max < BOTH_ENDS)
        fail_msg("this test needs %d open files; ulimit -Hn is lower", BOTH_ENDS);
    files.rlim_cur = files.rlim_cur < BOTH_ENDS ? BOTH_ENDS : files.rlim_cur;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    struct world *driver = kit_driver(60 * WORLD_SECOND);
    for (int i = 0; i < PEERS_UP_MAX; i++)
        assert_int_equal(call_driver(driver, &fd[i]), REFUSED_NOT);
    assert_true(await_up(driver, PEERS_UP_MAX));
    assert_int_equal(call_driver(driver, &other), REFUSED_FULL);
    close(other);
    close(fd[0]);
    assert_true(await_up(driver, PEERS_UP_MAX - 1));
    assert_int_equal(call_driver(driver, &fd[0]), REFUSED_NOT);
    for (int i = 0; i < PEERS_UP_MAX; i++)
        close(fd[i]);
    real_close(driver);
}

/* The dead are remembered, and they do not fill the memory. */
static void test_peers_are_limited_for_ever(void **state)
{
    (void)state;
    struct world *driver = kit_driver(WORLD_SECOND);
    struct node *node = node_of(driver);
    uint32_t number = 0;
    while (node->peers.count < PEERS_MAX)
        assert_int_equal(world_peer_add(driver, number++, "127.0.0.1:1"), OK);
    assert_int_equal(world_peer_add(driver, number - 1, "127.0.0.1:1"), OK); /* it is known */
    assert_int_equal(world_peer_add(driver, number, "127.0.0.1:1"), ERR_NOMEM);
    assert_int_equal(node->peers.count, PEERS_MAX);
    real_close(driver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_key_has_a_length),
        cmocka_unit_test(test_stripes_are_few),
        cmocka_unit_test(test_stripes_have_numbers),
        cmocka_unit_test(test_peers_are_limited_at_a_time),
        cmocka_unit_test(test_peers_are_limited_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
