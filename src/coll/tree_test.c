#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/rng.h"
#include "coll/tree.h"
#include "job/cluster.h"
#include "sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rank arithmetic ---- */

static size_t depth_of(size_t rank)
{
    size_t depth = 0;
    for (; rank > 0; depth++) {
        size_t parent = tree_parent(rank);
        assert_true(parent < rank);
        rank = parent;
    }
    return depth;
}

static size_t rounds_of(size_t count)
{
    size_t rounds = 0;
    while ((size_t)1 << rounds < count)
        rounds++;
    return rounds;
}

static void parents_and_children_are_one_tree(void **state)
{
    (void)state;
    for (size_t count = 1; count <= 64; count++) {
        size_t edges = 0;
        for (size_t rank = 0; rank < count; rank++) {
            size_t child[TREE_CHILDREN_MAX], n = tree_children(rank, count, child);
            assert_true(n <= rounds_of(count));
            assert_true(depth_of(rank) <= rounds_of(count));
            for (size_t i = 0; i < n; i++) {
                assert_true(child[i] < count && tree_parent(child[i]) == rank);
                assert_true(i == 0 || child[i] > child[i - 1]); /* nearest first, none twice */
            }
            edges += n;
        }
        assert_int_equal(edges, count - 1); /* so every rank > 0 is somebody's child */
    }
}

/* Worked by hand: 11 ranks. */
static void eleven_ranks(void **state)
{
    (void)state;
    size_t child[TREE_CHILDREN_MAX];
    assert_int_equal(tree_children(0, 11, child), 4);
    assert_true(child[0] == 1 && child[1] == 2 && child[2] == 4 && child[3] == 8);
    assert_int_equal(tree_children(4, 11, child), 2);
    assert_true(child[0] == 5 && child[1] == 6);
    assert_int_equal(tree_children(8, 11, child), 2);
    assert_true(child[0] == 9 && child[1] == 10);
    assert_int_equal(tree_children(7, 11, child), 0);
    assert_true(tree_parent(7) == 6 && tree_parent(10) == 8 && tree_parent(6) == 4);
}

static void the_largest_tree_has_room(void **state)
{
    (void)state;
    size_t child[TREE_CHILDREN_MAX];
    assert_int_equal(tree_children(0, VIEW_MEMBERS_MAX + 1, child), TREE_CHILDREN_MAX);
    assert_int_equal(tree_children(0, (size_t)1 << TREE_CHILDREN_MAX, child), TREE_CHILDREN_MAX);
}

/* ---- at work, in a simulated cluster ---- */

enum { PIECE = 5, RANKS_MAX = 9, ROUNDS = 7, FLOATS_MAX = 3 * PIECE + 7 };

static const size_t sizes[ROUNDS] = {0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, FLOATS_MAX};

struct note {
    uint64_t sum, order; /* order: a hash that tells who was merged before whom */
};

struct outcome {
    int rc[ROUNDS];
    float x[ROUNDS][FLOATS_MAX];
    struct note note[ROUNDS];
    uint64_t bytes[ROUNDS];
};

struct scene {
    uint32_t ranks;
    int (*play)(struct scene *scene, struct group *group, struct ranks *ranks);
    struct outcome by[RANKS_MAX];
};

static float value(size_t rank, size_t round, size_t i)
{
    return rng_uniform(7, rank, round * 1000 + i) - 0.3f;
}

static struct note note_of(size_t rank, size_t round)
{
    return (struct note){rank + 1, rng_u64(8, rank, round)};
}

static void merge(void *note, const void *other)
{
    struct note *n = note;
    const struct note *o = other;
    n->sum += o->sum;
    n->order = hash_mix(n->order, o->order);
}

static int all_reduce(struct coll *c, size_t round, struct outcome *o)
{
    size_t n = sizes[round];
    struct coll_waits waits = {0};
    struct note other;
    for (size_t i = 0; i < n; i++)
        o->x[round][i] = value(c->ranks->me, round, i);
    o->note[round] = note_of(c->ranks->me, round);
    c->n = round + 1;
    int rc = tree_reduce_note(c, &o->note[round], sizeof other, &other, merge);
    c->waits = &waits;
    if (rc == OK)
        rc = tree_reduce(c, o->x[round], n);
    if (rc == OK)
        rc = tree_broadcast(c, o->x[round], n);
    c->waits = NULL;
    if (rc == OK)
        rc = tree_broadcast_note(c, &o->note[round], sizeof other);
    o->bytes[round] = waits.bytes;
    return o->rc[round] = rc;
}

static int play_all_rounds(struct scene *scene, struct group *group, struct ranks *ranks)
{
    struct coll c = {.group = group,
                     .view = group_view(group),
                     .ranks = ranks,
                     .lane = 3,
                     .chunk_floats = PIECE};
    for (size_t round = 0; round < ROUNDS; round++) {
        int rc = all_reduce(&c, round, &scene->by[ranks->me]);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static void say_done(struct world *w)
{
    struct message *m = message_new(wire_tag(WIRE_DONE, 0, 0, 0), 0, 0);
    if (m && world_send(w, WORLD_DRIVER, m, CLASS_CONTROL) == ERR_FULL)
        message_unref(m);
}

/* View `number` of all ranks of the scene. */
static int take_view(const struct scene *scene, struct group *group, uint32_t number)
{
    struct view *view = calloc(1, sizeof *view);
    if (!view)
        return ERR_NOMEM;
    view->number = number;
    view->count = scene->ranks;
    for (uint32_t i = 0; i < scene->ranks; i++)
        view->node[i] = i;
    int rc = group_set_view(group, view);
    free(view);
    return rc;
}

static int rank_main(struct scene *scene, struct world *w)
{
    static const struct logger silent;
    struct group_timing timing = group_timing_lan();
    struct group group;
    struct ranks ranks = {.count = scene->ranks, .me = w->self};
    for (uint32_t i = 0; i < scene->ranks; i++)
        ranks.node[i] = i;
    group_init(&group, w, &silent, &timing);
    int rc = take_view(scene, &group, 1);
    if (rc == OK)
        rc = scene->play(scene, &group, &ranks);
    say_done(w);
    group_release(&group);
    return rc;
}

static int driver_main(const struct scene *scene, struct world *w)
{
    int rc = world_want_nodes(w, scene->ranks);
    for (uint32_t i = 0; rc == OK && i < scene->ranks; i++) {
        struct wait_for done = {.kind = WAIT_MESSAGE,
                                .from = WORLD_ANY,
                                .tag = wire_tag(WIRE_DONE, 0, 0, 0),
                                .mask = WIRE_KIND_MASK};
        struct wake wake;
        rc = world_wait(w, &done, 1, WORLD_FOREVER, &wake);
        if (rc == OK)
            message_unref(wake.msg);
    }
    return rc;
}

static int node_main(void *arg, struct world *w)
{
    struct scene *scene = arg;
    return w->self == WORLD_DRIVER ? driver_main(scene, w) : rank_main(scene, w);
}

static uint32_t kind_of(const char *name)
{
    return (uint32_t)wire_kind_find(name);
}

static void run_scene(struct scene *scene)
{
    static const char text[] = "node { count: 9 }";
    struct err err = {0};
    Paceline__Cluster *cluster = NULL;
    struct sim *sim = NULL;
    int rc = cluster_parse("test", text, strlen(text), &cluster, &err);
    if (rc == OK)
        rc = cluster_finish(cluster, &err);
    const struct sim_options options = {
        .cluster = cluster,
        .workers = scene->ranks,
        .seed = 1,
        .node_main = node_main,
        .arg = scene,
        .kind_of = kind_of,
    };
    if (rc == OK)
        rc = sim_create(&options, &sim, &err);
    if (rc != OK)
        fail_msg("%s", err.text);
    assert_int_equal(sim_run(sim, 10 * WORLD_SECOND), OK);
    sim_free(sim);
    cluster_free(cluster);
}

static struct scene *scene_new(uint32_t ranks, int (*play)(struct scene *scene, struct group *group,
                                                           struct ranks *ranks))
{
    struct scene *scene = calloc(1, sizeof *scene);
    assert_non_null(scene);
    scene->ranks = ranks;
    scene->play = play;
    return scene;
}

/* The same sum without a network: partners a step apart, the step doubling. */
static void sum_by_doubling(size_t ranks, size_t round, float *x, struct note *note)
{
    float part[RANKS_MAX][FLOATS_MAX];
    struct note notes[RANKS_MAX];
    for (size_t r = 0; r < ranks; r++) {
        notes[r] = note_of(r, round);
        for (size_t i = 0; i < sizes[round]; i++)
            part[r][i] = value(r, round, i);
    }
    for (size_t gap = 1; gap < ranks; gap *= 2)
        for (size_t r = 0; r + gap < ranks; r += 2 * gap) {
            merge(&notes[r], &notes[r + gap]);
            for (size_t i = 0; i < sizes[round]; i++)
                part[r][i] += part[r + gap][i];
        }
    memcpy(x, part[0], sizes[round] * sizeof *x);
    *note = notes[0];
}

static void sums_are_the_same_bits_on_every_rank(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
        struct scene *scene = scene_new(ranks, play_all_rounds);
        run_scene(scene);
        for (size_t round = 0; round < ROUNDS; round++) {
            float x[FLOATS_MAX];
            struct note note;
            sum_by_doubling(ranks, round, x, &note);
            for (uint32_t r = 0; r < ranks; r++) {
                const struct outcome *o = &scene->by[r];
                assert_int_equal(o->rc[round], OK);
                assert_memory_equal(o->x[round], x, sizes[round] * sizeof *x);
                assert_memory_equal(&o->note[round], &note, sizeof note);
            }
            assert_int_equal(note.sum, ranks * (ranks + 1) / 2);
        }
        free(scene);
    }
}

/* Its bytes go once up and once down every edge. */
static void each_rank_counts_its_bytes(void **state)
{
    (void)state;
    struct scene *scene = scene_new(RANKS_MAX, play_all_rounds);
    run_scene(scene);
    static const size_t edges[RANKS_MAX] = {4, 1, 2, 1, 3, 1, 2, 1, 1};
    for (size_t round = 0; round < ROUNDS; round++)
        for (size_t r = 0; r < RANKS_MAX; r++)
            assert_int_equal(scene->by[r].bytes[round],
                             2 * edges[r] * sizes[round] * sizeof(float));
    free(scene);
}

static int raise_twice(void *arg)
{
    struct group *group = arg;
    for (int i = 0; i < 2; i++) {
        world_sleep(group->world, world_now(group->world) + WORLD_SECOND / 1000);
        world_raise(group->world, SIGNAL_GROUP);
    }
    return OK;
}

/* Rank 2 is late; meanwhile others are signalled, as they are a moment after a view has begun. */
static int play_with_late_signals(struct scene *scene, struct group *group, struct ranks *ranks)
{
    struct task *raiser;
    if (ranks->me == 2)
        world_sleep(group->world, world_now(group->world) + WORLD_SECOND / 100);
    int rc = world_spawn(group->world, "raiser", raise_twice, group, &raiser);
    if (rc != OK)
        return rc;
    rc = play_all_rounds(scene, group, ranks);
    world_end_task(group->world, &raiser);
    return rc;
}

static void a_signal_alone_ends_nothing(void **state)
{
    (void)state;
    struct scene *scene = scene_new(5, play_with_late_signals);
    run_scene(scene);
    for (size_t r = 0; r < 5; r++)
        for (size_t round = 0; round < ROUNDS; round++)
            assert_int_equal(scene->by[r].rc[round], OK);
    free(scene);
}

struct change {
    struct scene *scene;
    struct group *group;
};

static int change_view(void *arg)
{
    struct change *change = arg;
    world_sleep(change->group->world, WORLD_SECOND);
    return take_view(change->scene, change->group, 2);
}

/* Rank 3 says nothing; at one second all go on to view 2, and whoever waited learns it. */
static int play_without_rank_3(struct scene *scene, struct group *group, struct ranks *ranks)
{
    struct change change = {scene, group};
    struct task *task;
    if (ranks->me == 3)
        return OK;
    int rc = world_spawn(group->world, "change", change_view, &change, &task);
    if (rc == OK)
        play_all_rounds(scene, group, ranks);
    world_end_task(group->world, &task);
    return rc;
}

static void a_new_view_ends_it_for_all_who_wait(void **state)
{
    (void)state;
    struct scene *scene = scene_new(6, play_without_rank_3);
    run_scene(scene);
    for (size_t r = 0; r < 6; r++)
        if (r != 3)
            assert_int_equal(scene->by[r].rc[0], ERR_VIEW);
    free(scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parents_and_children_are_one_tree),
        cmocka_unit_test(eleven_ranks),
        cmocka_unit_test(the_largest_tree_has_room),
        cmocka_unit_test(sums_are_the_same_bits_on_every_rank),
        cmocka_unit_test(each_rank_counts_its_bytes),
        cmocka_unit_test(a_signal_alone_ends_nothing),
        cmocka_unit_test(a_new_view_ends_it_for_all_who_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
