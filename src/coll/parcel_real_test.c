/* The stories of parcels between real nodes, whatever their bytes go through; and one that is
 * killed. */
#include "real/real_test_kit.h"

#include "parcel_stories.h"

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

static void introduce(struct player *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < n; k++) {
            char address[64];
            world_address(p[k].world, address, sizeof address);
            if (k != i)
                assert_int_equal(world_peer_add(p[i].world, k, address), OK);
        }
}

static void tell(suite_main story)
{
    struct world *driver = kit_driver(5 * WORLD_SECOND);
    struct player p[STORY_NODES] = {0};
    for (uint32_t i = 0; i < STORY_NODES; i++)
        p[i] = (struct player){.world = kit_worker(driver), .main = story};
    introduce(p, STORY_NODES);
    for (uint32_t i = 0; i < STORY_NODES; i++)
        assert_int_equal(pthread_create(&p[i].thread, NULL, play_and_close, &p[i]), 0);
    for (uint32_t i = 0; i < STORY_NODES; i++)
        pthread_join(p[i].thread, NULL);
    real_close(driver);
    for (uint32_t i = 0; i < STORY_NODES; i++)
        if (p[i].result != OK)
            fail_msg("node %u ends with %d: line %d", i, p[i].result, p[i].result - SUITE_FAILED);
}

static void vectors_of_all_lengths_go_both_ways_at_once(void **state)
{
    (void)state;
    tell(story_lengths);
}

static void they_can_be_added_as_they_come_in(void **state)
{
    (void)state;
    tell(story_add);
}

static int one_storm(struct world *w)
{
    static const uint64_t seeds[] = {1, 2, 3, 4, 5};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        int rc = storm_play(w, STORY_NODES, seeds[i]);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static void storms(void **state)
{
    (void)state;
    tell(one_storm);
}

static void what_nobody_accepts_is_in_nobodys_way(void **state)
{
    (void)state;
    tell(story_held);
}

static void either_side_may_cancel_at_any_time(void **state)
{
    (void)state;
    tell(story_cancel);
}

static void a_view_ends_its_parcels(void **state)
{
    (void)state;
    tell(story_abort);
}

static void a_node_may_send_to_itself(void **state)
{
    (void)state;
    tell(story_self);
}

static void whoever_goes_leaves_nobody_waiting(void **state)
{
    (void)state;
    tell(story_gone);
}

/* ---- killed ---- */

enum { KILLS = 12, MOMENT_MAX_US = 20000 };

/* Vectors both ways for ever: this node's, and what it gets is sent back to it. */
static int play_for_ever(struct world *w, uint32_t with, bool first)
{
    struct parcels ps;
    struct parcel out = {0}, in = {0};
    struct range x;
    struct message *note;
    int rc = OK;
    parcels_init(&ps, w, NULL, 1);
    CHECK(range_new(&x, 20 * PIECE, 0) == OK);
    for (bool sends = first; rc == OK; sends = !sends) {
        struct parcel *p = sends ? &out : &in;
        if (sends)
            send_range(p, &ps, with, 1, &x);
        else
            rc = parcels_await(&ps, with, story_until(w), &note);
        if (rc == OK && !sends)
            parcel_accept(p, &ps, note, &(struct parcel_in){.x = x.x, .n = x.n});
        if (rc == OK)
            rc = parcel_finish(p, story_until(w));
    }
    parcels_close(&ps);
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

static void who_is_killed_leaves_nobody_waiting(void **state)
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
            execl("/proc/self/exe", "parcel_real_test", "victim", address, way, (char *)NULL);
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
        cmocka_unit_test(vectors_of_all_lengths_go_both_ways_at_once),
        cmocka_unit_test(they_can_be_added_as_they_come_in),
        cmocka_unit_test(storms),
        cmocka_unit_test(what_nobody_accepts_is_in_nobodys_way),
        cmocka_unit_test(either_side_may_cancel_at_any_time),
        cmocka_unit_test(a_view_ends_its_parcels),
        cmocka_unit_test(a_node_may_send_to_itself),
        cmocka_unit_test(whoever_goes_leaves_nobody_waiting),
        cmocka_unit_test(who_is_killed_leaves_nobody_waiting),
    };
    if (argc == 4 && strcmp(argv[1], "victim") == 0)
        return be_a_victim(argv);
    KIT_RUN_ALL_WAYS(tests);
}
