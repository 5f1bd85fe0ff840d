/* The stories of transfers between real nodes, whatever their bytes go through; and one that is
 * killed. */
#include "real/real_test_kit.h"

#include "sweep_stride.h"
#include "transfer_stories.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

struct player {
    struct world *world;
    suite_main main;
    int result;
    pthread_t thread;
};

/* A node ends with its story, and its world with it: the others see it go. */
static void *play_and_close(void *arg)
{
    struct player *p = arg;
    p->result = kit_run(p->world, p->main, NULL);
    real_close(p->world);
    return NULL;
}

static void introduce_players(struct player *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < n; k++) {
            char address[64];
            world_address(p[k].world, address, sizeof address);
            if (k != i)
                assert_int_equal(world_peer_add(p[i].world, k, address), OK);
        }
}

static void play_story(suite_main story)
{
    struct world *driver = kit_driver(5 * WORLD_SECOND);
    struct player p[STORY_NODES] = {0};
    for (uint32_t i = 0; i < STORY_NODES; i++)
        p[i] = (struct player){.world = kit_worker(driver), .main = story};
    introduce_players(p, STORY_NODES);
    for (uint32_t i = 0; i < STORY_NODES; i++)
        assert_int_equal(pthread_create(&p[i].thread, NULL, play_and_close, &p[i]), 0);
    for (uint32_t i = 0; i < STORY_NODES; i++)
        pthread_join(p[i].thread, NULL);
    real_close(driver);
    for (uint32_t i = 0; i < STORY_NODES; i++)
        if (p[i].result != OK)
            fail_msg("node %u ends with %d: line %d", i, p[i].result, p[i].result - SUITE_FAILED);
}

static void test_transfer_all_lengths_both_ways(void **state)
{
    (void)state;
    play_story(story_lengths);
}

static void test_transfer_coded_values(void **state)
{
    (void)state;
    play_story(story_coded);
}

static void test_transfer_headers_alone(void **state)
{
    (void)state;
    play_story(story_notices);
}

static void test_transfer_sums_on_arrival(void **state)
{
    (void)state;
    play_story(story_add);
}

static int one_storm(struct world *w)
{
    static const uint64_t seeds[] = {1, 2, 3, 4, 5};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i += SWEEP_STRIDE(2, 2)) {
        int rc = storm_play(w, STORY_NODES, seeds[i]);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static void test_transfer_storms(void **state)
{
    (void)state;
    play_story(one_storm);
}

static void test_transfer_unaccepted_blocks_nothing(void **state)
{
    (void)state;
    play_story(story_held);
}

static void test_transfer_cancel_by_either_side(void **state)
{
    (void)state;
    play_story(story_cancel);
}

static void test_transfer_ends_with_its_view(void **state)
{
    (void)state;
    play_story(story_abort);
}

static void test_transfer_to_self(void **state)
{
    (void)state;
    play_story(story_self);
}

static void test_transfer_peer_that_leaves_is_noticed(void **state)
{
    (void)state;
    play_story(story_ended);
}

/* ---- killed ---- */

enum { KILLS = 12 / SWEEP_STRIDE(3, 3), MOMENT_MAX_US = 20000 };

/* Vectors both ways for ever: this node's, and what it gets is sent back to it. */
static int play_for_ever(struct world *w, uint32_t with, bool first)
{
    struct transfers ps;
    struct transfer out = {0}, in = {0};
    struct range x;
    struct message *header;
    int rc = OK;
    transfers_init(&ps, w, NULL, 1);
    CHECK(range_new(&x, 20 * PIECE, 0) == OK);
    for (bool sends = first; rc == OK; sends = !sends) {
        struct transfer *p = sends ? &out : &in;
        if (sends)
            send_range(p, &ps, with, 1, &x);
        else
            rc = transfers_await(&ps, with, story_until(w), &header);
        if (rc == OK && !sends)
            transfer_accept(p, &ps, header, &(struct transfer_in){.x = x.x, .n = x.n});
        if (rc == OK)
            rc = transfer_finish(p, story_until(w));
    }
    transfers_close(&ps);
    ranges_free(&x, 1);
    return rc;
}

static int victim_main(struct world *w)
{
    return play_for_ever(w, WORLD_DRIVER, true);
}

/* This program again, as a worker of the driver at argv[2] in way argv[3]. */
static int be_a_victim(char **argv)
{
    *kit_way() = kit_ways[atoi(argv[3])];
    struct world *w = kit_worker_at(argv[2]);
    int rc = kit_run(w, victim_main, NULL);
    real_close(w);
    return rc;
}

static struct {
    pid_t pid;
    uint32_t number;
    int64_t killed;
} victim;

static int kill_it(void *arg)
{
    struct world *w = arg;
    int64_t us = (int64_t)rng_below(7, 1, victim.number, MOMENT_MAX_US);
    CHECK(world_sleep(w, world_now(w) + us * (WORLD_SECOND / 1000000)) == OK);
    victim.killed = world_now(w);
    return kill(victim.pid, SIGKILL);
}

static int see_it_die(struct world *w)
{
    struct task *killer;
    int result;
    CHECK(suite_peer_is(w, victim.number, true) == OK);
    CHECK(world_spawn(w, "killer", kill_it, w, &killer) == OK);
    CHECK(play_for_ever(w, victim.number, false) == ERR_PEER);
    CHECK(world_join(w, killer, story_until(w), &result) == OK && result == 0);
    CHECK(world_now(w) - victim.killed < WORLD_SECOND);
    return suite_peer_is(w, victim.number, false);
}

static void test_transfer_killed_peer_is_noticed(void **state)
{
    (void)state;
    char address[64], way[2] = {0};
    struct world *w = kit_driver(5 * WORLD_SECOND);
    world_address(w, address, sizeof address);
    for (size_t i = 0; i < sizeof kit_ways / sizeof *kit_ways; i++)
        if (strcmp(kit_ways[i].name, kit_way()->name) == 0)
            way[0] = (char)('0' + i);
    for (victim.number = 0; victim.number < KILLS; victim.number++) {
        victim.pid = fork();
        assert_true(victim.pid >= 0);
        if (victim.pid == 0) {
            execl("/proc/self/exe", "transfer_real_test", "victim", address, way, (char *)NULL);
            _exit(127);
        }
        kit_check(w, see_it_die);
        assert_int_equal(waitpid(victim.pid, NULL, 0), victim.pid);
    }
    real_close(w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_all_lengths_both_ways),
        cmocka_unit_test(test_transfer_coded_values),
        cmocka_unit_test(test_transfer_headers_alone),
        cmocka_unit_test(test_transfer_sums_on_arrival),
        cmocka_unit_test(test_transfer_storms),
        cmocka_unit_test(test_transfer_unaccepted_blocks_nothing),
        cmocka_unit_test(test_transfer_cancel_by_either_side),
        cmocka_unit_test(test_transfer_ends_with_its_view),
        cmocka_unit_test(test_transfer_to_self),
        cmocka_unit_test(test_transfer_peer_that_leaves_is_noticed),
        cmocka_unit_test(test_transfer_killed_peer_is_noticed),
    };
    if (argc == 4 && strcmp(argv[1], "victim") == 0)
        return be_a_victim(argv);
    KIT_RUN_ALL_WAYS(tests);
}
