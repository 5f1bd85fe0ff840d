/* A node that has warmed up allocates nothing: neither for sends from its callers' memory, nor for
 * receives, expected or early. This program counts allocations. And unexpected messages of a peer
 * take bounded memory. */
#include "counted_malloc.h"
#include "real/real_test_kit.h"

enum { PIECE = 300 * 1000, PIECES = 7, WORDS = 12, WARM_UP = 10, ROUNDS = 60 };

static struct message *word; /* sent again and again */

static int await_receive(struct world *w, struct recv *recv)
{
    struct wait_for done = {.kind = WAIT_RECV, .recv = recv};
    struct wake wake;
    int rc = world_wait(w, &done, 1, suite_until(w, SUITE_PATIENCE), &wake);
    return rc == OK ? recv->status : rc;
}

static int next_round(struct world *w, uint32_t with, bool begins)
{
    uint32_t value;
    for (int i = 0; i < 2; i++)
        if ((i == 0) == begins) {
            if (world_send(w, with, message_ref(word), CLASS_CONTROL) != OK)
                return ERR_PEER;
        } else if (suite_receive(w, with, 0, 1, &value) != OK) {
            return ERR_TIMEOUT;
        }
    return OK;
}

/* Every other piece is expected, the last one too; the rest come before their receives. */
static int one_round(struct world *w, uint32_t with, char *from, char *into)
{
    struct recv recv[PIECES];
    struct send send[PIECES];
    for (uint32_t i = 0; i < PIECES; i++) {
        recv[i] = (struct recv){.from = with, .tag = 10 + i, .into = into, .len = PIECE};
        send[i] = (struct send){.to = with, .tag = 10 + i, .from = from, .len = PIECE};
    }
    for (uint32_t i = 0; i < PIECES; i += 2)
        CHECK(world_post_recv(w, &recv[i]) == OK);
    CHECK(next_round(w, with, w->self == 0) == OK);
    for (uint32_t i = 0; i < PIECES; i++)
        CHECK(world_post_send(w, &send[i]) == OK);
    CHECK(await_receive(w, &recv[PIECES - 1]) == OK);
    for (uint32_t i = 1; i < PIECES; i += 2)
        CHECK(world_post_recv(w, &recv[i]) == OK);
    for (uint32_t i = 0; i < PIECES; i++)
        CHECK(await_receive(w, &recv[i]) == OK);
    CHECK(next_round(w, with, w->self == 0) == OK);
    for (uint32_t i = 0; i < PIECES; i++)
        CHECK(send[i].status == OK);
    return OK;
}

/* More messages at once than there will be later. */
static int warms_up(struct world *w, uint32_t with)
{
    uint32_t value;
    for (int i = 0; i < WORDS; i++)
        CHECK(world_send(w, with, message_ref(word), CLASS_BULK) == OK);
    CHECK(world_sleep(w, suite_until(w, KIT_MOMENT)) == OK);
    for (int i = 0; i < WORDS; i++)
        CHECK(suite_receive(w, with, 0, 1, &value) == OK);
    return OK;
}

static int play_world(struct world *w)
{
    uint32_t with = w->self == WORLD_DRIVER ? 0 : WORLD_DRIVER;
    char *memory = calloc(2, PIECE);
    uint64_t before = 0;
    CHECK(memory);
    if (w->self == WORLD_DRIVER)
        CHECK(suite_peer_is(w, 0, true) == OK);
    CHECK(warms_up(w, with) == OK);
    for (int i = 0; i < WARM_UP + ROUNDS; i++) {
        if (i == WARM_UP)
            before = atomic_load(&allocations);
        if (i == WARM_UP + ROUNDS / 2)
            world_busy_poll(w, 0);
        int rc = one_round(w, with, memory, memory + PIECE);
        if (rc != OK)
            return rc;
    }
    uint64_t more = atomic_load(&allocations) - before;
    free(memory);
    if (w->self == WORLD_DRIVER) {
        print_message("%u rounds: %u allocations\n", (unsigned)ROUNDS, (unsigned)more);
        CHECK(more == 0);
    }
    return OK;
}

static void *run_worker(void *arg)
{
    return (void *)(intptr_t)kit_run(arg, play_world, NULL);
}

static void test_allocates_nothing(void **state)
{
    (void)state;
    struct world *driver = kit_driver(5 * WORLD_SECOND), *worker = kit_worker(driver);
    pthread_t thread;
    void *result;
    word = message_new(1, 0, sizeof(uint32_t));
    assert_non_null(word);
    memset(word->data, 0, word->len);
    assert_int_equal(pthread_create(&thread, NULL, run_worker, worker), 0);
    kit_check(driver, play_world);
    pthread_join(thread, &result);
    assert_int_equal((int)(intptr_t)result, OK);
    real_close(worker);
    real_close(driver);
    message_unref(word);
    if (!COUNTS)
        skip();
}

/* The pool's kept memory is bounded, and a message may outlive its world. */
static void test_pool(void **state)
{
    (void)state;
    struct pool *pool = pool_create();
    struct message *m[4];
    assert_non_null(pool);
    for (int i = 0; i < 4; i++) {
        m[i] = pool_message(pool, 1, 2, WORLD_MESSAGE_MAX);
        assert_non_null(m[i]);
        memset(m[i]->data, i, m[i]->len);
    }
    for (int i = 0; i < 3; i++)
        message_unref(m[i]);
    assert_int_equal(pool->kept, WORLD_CREDIT); /* two of them */
    m[0] = pool_message(pool, 3, 4, WORLD_MESSAGE_MAX / 2 + 1);
    assert_int_equal(pool->made, 4);
    assert_true(m[0]->tag == 3 && m[0]->view == 4 && m[0]->len == WORLD_MESSAGE_MAX / 2 + 1);
    message_unref(m[0]);
    m[0] = pool_message(pool, 0, 0, 0);
    assert_int_equal(pool->made, 5);
    message_unref(message_ref(m[0]));
    message_unref(m[0]);
    pool_close(pool);
    memset(m[3]->data, 9, m[3]->len);
    message_unref(m[3]);
}

/* ---- messages that nobody waits for ---- */

enum { UNWANTED = MAILBOX_PENDING_MAX + 4000 };

static void count_dropped(void *user, enum log_level level, const char *text)
{
    (void)level;
    if (strstr(text, "messages that nobody waits for are dropped; the last, of tag 63"))
        atomic_fetch_add((atomic_int *)user, 1);
}

/* Counts the messages of a peer: waiting, or dropped, with a report or without. */
static size_t count_messages(struct world *w, uint32_t number, size_t *here)
{
    struct node *node = node_of(w);
    node_lock(node);
    *here = peer_find(node, number)->pending;
    size_t all = *here + node->mailbox.dropped.count;
    node_unlock(node);
    return all;
}

static void test_unwanted_messages_of_a_peer_are_bounded(void **state)
{
    (void)state;
    const struct node_limits limits = {
        .hello = 5 * WORLD_SECOND, .flush = WORLD_SECOND, .rest = WORLD_FOREVER};
    atomic_int reported = 0;
    const struct logger log = {count_dropped, &reported, LOG_WARN};
    const struct real_options options = {.log = &log, .seed = 7, .stripes = 1};
    const struct frame tiny = {8, FRAME_DATA, CLASS_CONTROL, 0, 99};
    struct hello answer;
    struct world *w = NULL;
    size_t here = 0, all = 0;
    assert_int_equal(node_open(&options, &limits, &w, NULL), OK);
    int fd = kit_join(w, &answer);
    for (int i = 0; i < UNWANTED; i++)
        assert_true(kit_put_frame(fd, &tiny, "unwanted", 8));
    for (int i = 0; i < 1000 && all < UNWANTED - 1; i++) { /* the first one is told at once */
        real_sleep(WORLD_SECOND / 100);
        all = count_messages(w, answer.peer, &here);
    }
    assert_int_equal(all, UNWANTED - 1);
    assert_int_equal(here, MAILBOX_PENDING_MAX);
    assert_int_equal(atomic_load(&reported), 1);
    real_close(kit_worker(w)); /* others are served */
    close(fd);
    real_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allocates_nothing),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_unwanted_messages_of_a_peer_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
