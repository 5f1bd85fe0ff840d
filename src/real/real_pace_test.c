/* Nodes that limit the rate at which they send or receive: does the limit hold, and how long do
 * short messages take meanwhile? */
#include "real/real_test_kit.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { PIECE = 128 * 1024, BEAT_TAG = 5 };

#define MBIT     100.0
#define BEAT     (WORLD_SECOND / 50)
#define BEAT_MAX (WORLD_SECOND / 4) /* a share of the second that a heartbeat has */
#define HEADERS  (1514.0 / 1448)

/* A test's subject: the side that keeps the rate, the number of bytes, and the bytes that are not
 * judged. */
static struct {
    double sends, takes; /* Mbit/s of the worker, and of the driver it sends to */
    uint32_t pieces, before;
    _Atomic bool done;
    double mbit;       /* as the driver saw it */
    int64_t late_most; /* of a beat */
    int beats;
} scene;

static int wait_ended(struct world *w, const struct ended *ended, uint64_t times)
{
    uint64_t seen;
    while ((seen = atomic_load(&ended->times)) < times) {
        struct wait_for more = {.kind = WAIT_ENDED, .ended = ended, .seen = seen};
        struct wake wake;
        int rc = world_wait(w, &more, 1, suite_until(w, 10 * SUITE_PATIENCE), &wake);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static int send_beats(void *arg)
{
    struct world *w = arg;
    while (!atomic_load(&scene.done)) {
        int64_t now = world_now(w);
        int rc = suite_send(w, WORLD_DRIVER, 0, BEAT_TAG, (uint32_t)(now / 1000));
        if (rc != OK)
            return rc;
        rc = world_sleep(w, now + BEAT);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static int send_stream(struct world *w)
{
    struct ended ended = {0};
    struct task *sender;
    static uint8_t memory[PIECE];
    struct send *send = calloc(scene.pieces, sizeof *send);
    CHECK(send && world_spawn(w, "heart", send_beats, w, &sender) == OK);
    for (uint32_t i = 0; i < scene.pieces; i++) {
        send[i] = (struct send){
            .to = WORLD_DRIVER, .view = 1, .tag = 9, .from = memory, .len = PIECE, .ended = &ended};
        CHECK(world_post_send(w, &send[i]) == OK);
    }
    CHECK(wait_ended(w, &ended, scene.pieces) == OK);
    while (!atomic_load(&scene.done))
        CHECK(world_sleep(w, world_now(w) + BEAT) == OK);
    world_end_task(w, &sender);
    free(send);
    return OK;
}

static int receive_beats(void *arg)
{
    struct world *w = arg;
    for (;;) {
        uint32_t sent_at;
        int rc = suite_receive(w, 0, 0, BEAT_TAG, &sent_at);
        if (rc != OK)
            return OK; /* the sender has gone */
        int64_t late = (int64_t)((uint32_t)(world_now(w) / 1000) - sent_at) * 1000;
        scene.late_most = late > scene.late_most ? late : scene.late_most;
        scene.beats++;
    }
}

static int take_stream(struct world *w)
{
    struct ended ended = {0};
    struct task *receiver;
    static uint8_t into[PIECE];
    int64_t since = 0;
    CHECK(suite_peer_is(w, 0, true) == OK);
    CHECK(world_spawn(w, "ear", receive_beats, w, &receiver) == OK);
    for (uint32_t i = 0; i < scene.pieces; i++) {
        struct recv recv = {
            .from = 0, .view = 1, .tag = 9, .into = into, .len = PIECE, .ended = &ended};
        CHECK(world_post_recv(w, &recv) == OK);
        CHECK(wait_ended(w, &ended, i + 1) == OK && recv.status == OK);
        if (i + 1 == scene.before)
            since = world_now(w);
    }
    double bytes = (double)PIECE * (scene.pieces - scene.before);
    scene.mbit = bytes * 8 * HEADERS * 1e3 / (double)(world_now(w) - since);
    atomic_store(&scene.done, true);
    world_end_task(w, &receiver);
    return OK;
}

static void *run_sends(void *arg)
{
    int rc = kit_run(arg, send_stream, NULL);
    real_close(arg);
    return (void *)(intptr_t)rc;
}

static void run_worlds(void)
{
    struct world *driver = NULL, *worker = NULL;
    struct err err = {0};
    char at[64];
    void *rc;
    pthread_t thread;
    const struct real_options one = {.seed = 7, .max_mbit = scene.takes, .no_shm = true};
    assert_int_equal(real_open(&one, &driver, &err), OK);
    world_address(driver, at, sizeof at);
    const struct real_options two = {
        .seed = 7, .driver = at, .max_mbit = scene.sends, .no_shm = true};
    assert_int_equal(real_open(&two, &worker, &err), OK);
    assert_int_equal(pthread_create(&thread, NULL, run_sends, worker), 0);
    kit_check(driver, take_stream);
    pthread_join(thread, &rc);
    assert_int_equal((intptr_t)rc, OK);
    real_close(driver);
    print_message("    %.1f Mbit/s; of %d beats the latest came after %.1f ms\n", scene.mbit,
                  scene.beats, (double)scene.late_most / 1e6);
}

/* Of 24 MB the first frame is let out at once. */
static void test_what_is_sent(void **state)
{
    (void)state;
    memset(&scene, 0, sizeof scene);
    scene.sends = MBIT;
    scene.pieces = 192;
    scene.before = 1;
    run_worlds();
    assert_true(scene.mbit > 0.95 * MBIT && scene.mbit < 1.05 * MBIT);
    assert_true(scene.beats > 20 && scene.late_most < BEAT_MAX);
}

/* Of 40 MB the first eight are credit that the sender has from the start. */
static void test_what_is_taken(void **state)
{
    (void)state;
    memset(&scene, 0, sizeof scene);
    scene.takes = MBIT;
    scene.pieces = 320;
    scene.before = 80;
    run_worlds();
    assert_true(scene.mbit > 0.95 * MBIT && scene.mbit < 1.05 * MBIT);
    assert_true(scene.beats > 20 && scene.late_most < BEAT_MAX);
}

static void test_no_limit_is_much_faster(void **state)
{
    (void)state;
    memset(&scene, 0, sizeof scene);
    scene.pieces = 192;
    scene.before = 1;
    run_worlds();
    assert_true(scene.mbit > 3 * MBIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_sent),
        cmocka_unit_test(test_what_is_taken),
        cmocka_unit_test(test_no_limit_is_much_faster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
