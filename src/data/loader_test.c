/* A loader gives the same batches as batch_fill, whatever it predicted: filling on request, and
 * preparing ahead in the simulated and in the real world. */
#include "data/loader.h"

#include "base/fault.h"
#include "base/rng.h"
#include "data/source_fake.h"
#include "job/cluster.h"
#include "real/real.h"
#include "sim/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <time.h>

enum { N = 20, CAP = 8, CHW = 6, SEED = 5, FAILED = 10000 };

enum setting { AT_ONCE, SIMULATED, REAL, SETTINGS };

struct bench {
    enum setting setting;
    int (*story)(struct bench *b);
    struct world *world; /* NULL: at once */
    uint32_t labels[N];
    struct source_fake fake;
    struct dataset set;
    struct arena arena;
    struct loader loader;
    struct batch want;
    /* Behaviour of the source that a test sets: */
    atomic_bool shut; /* no read ends until it is opened */
    int good_reads;   /* the one after so many is a mistake; 0: none is */
    uint64_t broken;  /* the record of this number less one cannot be read; 0: all can be */
    atomic_int begun, ended;
};

/* In a story: continue only if. A story may be a task, which an assertion of cmocka's must not
 * leave. */
#define CHECK(condition)              \
    do {                              \
        if (!(condition))             \
            return FAILED + __LINE__; \
    } while (0)

static struct bench *bench_of(const struct source *source)
{
    return (struct bench *)((uintptr_t)source - offsetof(struct bench, fake));
}

static int read_record(const struct source *source, size_t i, struct scratch *scratch,
                       struct raw *raw, struct err *err)
{
    struct bench *b = bench_of(source);
    int before = atomic_fetch_add(&b->begun, 1);
    while (atomic_load(&b->shut))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    PL_ASSERT(before < b->good_reads || b->good_reads == 0);
    int rc = i + 1 == b->broken ? err_set(err, ERR_INPUT, "record %zu is broken", i)
                                : source_fake_read(source, i, scratch, raw, err);
    atomic_fetch_add(&b->ended, 1);
    return rc;
}

static void bench_open(struct bench *b)
{
    static struct source_ops ops;
    for (uint32_t i = 0; i < N; i++)
        b->labels[i] = (i * 3) % 10;
    b->fake = source_fake_make(b->labels, N, (struct shape){.n = 3, .dim = {1, 2, 3}});
    ops = *b->fake.source.ops;
    ops.read = read_record;
    b->fake.source.ops = &ops;
    Paceline__Data spec = PACELINE__DATA__INIT;
    struct err err;
    assert_int_equal(dataset_init(&b->set, &b->fake.source, &spec, &err), OK);
    arena_init(&b->arena);
    assert_int_equal(batch_init(&b->want, &b->arena, CAP, CHW), OK);
    assert_int_equal(loader_init(&b->loader, &b->arena, &b->set, SEED, CAP), OK);
}

static int start_loader(struct bench *b)
{
    return b->world ? loader_start(&b->loader, &b->arena, b->world) : OK;
}

static int play_real_story(void *arg)
{
    struct bench *b = arg;
    int rc = start_loader(b);
    if (rc == OK)
        rc = b->story(b);
    loader_stop(&b->loader);
    return rc;
}

static int play_simulated_story(void *arg, struct world *w)
{
    struct bench *b = arg;
    b->world = w;
    return play_real_story(b);
}

static int in_simulation(struct bench *b)
{
    Paceline__Cluster *cluster = NULL;
    struct sim *sim = NULL;
    struct err err;
    assert_int_equal(cluster_parse("test", "node {}", 7, &cluster, &err), OK);
    assert_int_equal(cluster_finish(cluster, &err), OK);
    struct sim_options options = {.cluster = cluster, .node_main = play_simulated_story, .arg = b};
    assert_int_equal(sim_create(&options, &sim, &err), OK);
    int rc = sim_run(sim, WORLD_SECOND);
    sim_free(sim);
    cluster_free(cluster);
    return rc;
}

static int in_reality(struct bench *b)
{
    struct err err;
    assert_int_equal(real_open(&(struct real_options){0}, &b->world, &err), OK);
    int rc = real_run(b->world, play_real_story, b, &err);
    real_close(b->world);
    return rc;
}

static int play_story(enum setting setting, int (*story)(struct bench *b), struct bench *b)
{
    bench_open(b);
    b->setting = setting;
    b->story = story;
    int rc = setting == REAL        ? in_reality(b)
             : setting == SIMULATED ? in_simulation(b)
                                    : play_real_story(b);
    loader_release(&b->loader);
    batch_release(&b->want);
    arena_release(&b->arena);
    dataset_release(&b->set);
    return rc;
}

static void play_all(int (*story)(struct bench *b))
{
    for (enum setting s = AT_ONCE; s < SETTINGS; s++) {
        struct bench b = {0};
        int rc = play_story(s, story, &b);
        if (rc != OK)
            fail_msg("setting %d: line %d", (int)s, rc - FAILED);
    }
}

/* Is the batch at these positions the one of batch_fill? */
static bool takes_batch(struct bench *b, uint64_t offset, size_t count)
{
    const struct batch *got;
    struct batch *want = &b->want;
    struct sampler sampler = {SEED, N};
    if (loader_take(&b->loader, offset, count, &got, NULL) != OK)
        return false;
    if (batch_fill(want, &b->set, &sampler, offset, count, NULL) != OK)
        return false;
    return got->count == count && got->epoch == want->epoch &&
           memcmp(got->data, want->data, count * CHW * sizeof(float)) == 0 &&
           memcmp(got->labels, want->labels, count * sizeof *want->labels) == 0 &&
           memcmp(got->records, want->records, count * sizeof *want->records) == 0;
}

/* Of `takes` so far, all but `misses` were there already, where anything is prepared at all. */
static bool has_missed(const struct bench *b, uint64_t count, uint64_t misses)
{
    const struct loader *l = &b->loader;
    return !b->world || (l->takes == count && l->takes - l->hits == misses);
}

/* Batches of eight in epochs of twenty: every other one straddles. */
static int steady_story(struct bench *b)
{
    for (uint64_t i = 0; i < 40; i++)
        CHECK(takes_batch(b, i * CAP, CAP));
    CHECK(has_missed(b, 40, 1));
    return OK;
}

static void test_a_steady_stream_is_foreseen(void **state)
{
    (void)state;
    play_all(steady_story);
}

/* One of three workers that share each step. */
static int stride_story(struct bench *b)
{
    for (uint64_t i = 0; i < 20; i++)
        CHECK(takes_batch(b, 5 + i * 3 * CAP, CAP));
    CHECK(has_missed(b, 20, 3));
    return OK;
}

static void test_a_stride_is_learnt(void **state)
{
    (void)state;
    play_all(stride_story);
}

/* One of three workers that take five steps each before they meet. */
static int jump_story(struct bench *b)
{
    for (uint64_t i = 0; i < 30; i++)
        CHECK(takes_batch(b, (i / 5 * 15 + i % 5) * CAP, CAP));
    CHECK(has_missed(b, 30, 6));
    return OK;
}

static void test_a_jump_is_one_wrong_guess(void **state)
{
    (void)state;
    play_all(jump_story);
}

/* The same, and more than jumps, where the caller knows what comes next. */
static int hinted_story(struct bench *b)
{
    for (uint64_t i = 0; i < 30; i++) {
        uint64_t next = i + 1;
        loader_expect(&b->loader, (next * next % 31) * CAP, 1 + next % CAP);
        CHECK(takes_batch(b, (i * i % 31) * CAP, 1 + i % CAP));
    }
    CHECK(has_missed(b, 30, 1));
    loader_expect(&b->loader, 100, 2);
    CHECK(takes_batch(b, (30 * 30 % 31) * CAP, 1 + 30 % CAP));
    CHECK(takes_batch(b, 108, 2)); /* what was said was wrong, */
    CHECK(takes_batch(b, 100, 2)); /* and is not expected again */
    CHECK(has_missed(b, 33, 3));
    return OK;
}

static void test_a_hint_is_prepared(void **state)
{
    (void)state;
    play_all(hinted_story);
}

static int random_story(struct bench *b)
{
    for (uint64_t i = 0; i < 300; i++) {
        uint64_t offset = rng_below(1, 1, i, 4) ? i * CAP : rng_u64(1, 2, i) >> (i % 50);
        CHECK(takes_batch(b, offset, 1 + rng_below(1, 3, i, CAP)));
    }
    CHECK(takes_batch(b, UINT64_MAX - CAP,
                      CAP)); /* what comes next is beyond the end of the stream */
    CHECK(takes_batch(b, 0, CAP));
    return OK;
}

static void test_wrong_guesses_do_not_show(void **state)
{
    (void)state;
    play_all(random_story);
}

/* An evaluation between two steps uses the batch that is done with. */
static int evaluation_story(struct bench *b)
{
    for (uint64_t i = 0; i < 20; i++) {
        CHECK(takes_batch(b, i * CAP, CAP));
        CHECK(batch_fill_plain(loader_spare(&b->loader), &b->set, i % 12, CAP, NULL) == OK);
    }
    CHECK(has_missed(b, 20, 1));
    return OK;
}

static void test_the_spare_batch_disturbs_nothing(void **state)
{
    (void)state;
    play_all(evaluation_story);
}

/* Stopped with a batch wanted and not yet there, and started again. */
static int stop_story(struct bench *b)
{
    for (uint64_t i = 0; i < 10; i++) {
        CHECK(takes_batch(b, i * CAP, CAP));
        loader_stop(&b->loader);
        CHECK(takes_batch(b, 3 + i * CAP, CAP));
        int read = atomic_load(&b->begun);
        CHECK(start_loader(b) == OK);
        if (b->world)
            CHECK(world_sleep(b->world, world_now(b->world) + WORLD_SECOND / 500) == OK);
        CHECK(atomic_load(&b->begun) == read); /* nothing has been requested */
    }
    CHECK(takes_batch(b, 1, 2) && takes_batch(b, 3, 2));
    CHECK(has_missed(b, 2, 1));
    return OK;
}

static void test_it_stops_and_starts_again(void **state)
{
    (void)state;
    play_all(stop_story);
}

/* The task is in the middle of a batch when it is stopped: the stop waits for it. */
static int opens_soon(void *arg)
{
    struct bench *b = arg;
    int rc = world_sleep(b->world, world_now(b->world) + WORLD_SECOND / 20);
    atomic_store(&b->shut, false);
    return rc;
}

static int stops_in_the_middle(struct bench *b)
{
    struct task *opener;
    CHECK(takes_batch(b, 0, 2) && takes_batch(b, 2, 2));
    loader_stop(&b->loader);
    CHECK(start_loader(b) == OK);
    int before = atomic_load(&b->begun);
    atomic_store(&b->shut, true);
    b->loader.given = 1; /* as after a take, whose fill would wait for ever */
    b->loader.ahead = (struct stretch){4, 2};
    world_raise(b->world, SIGNAL_LOADER_WANT);
    while (atomic_load(&b->begun) == before)
        world_sleep(b->world, world_now(b->world) + WORLD_SECOND / 1000);
    CHECK(atomic_load(&b->ended) == before);
    CHECK(world_spawn(b->world, "opener", opens_soon, b, &opener) == OK);
    loader_stop(&b->loader);
    CHECK(atomic_load(&b->begun) == before + 2 && atomic_load(&b->ended) == before + 2);
    return world_join(b->world, opener, WORLD_FOREVER, NULL);
}

static void test_a_stop_waits_for_the_batch_in_work(void **state)
{
    (void)state;
    struct bench b = {0};
    assert_int_equal(play_story(REAL, stops_in_the_middle, &b), OK);
}

/* The task that takes batches is cancelled between two of them. */
static int takes_for_ever(void *arg)
{
    struct bench *b = arg;
    const struct batch *batch;
    for (uint64_t i = 0;; i++) {
        int rc = loader_take(&b->loader, i * CAP, CAP, &batch, NULL);
        if (rc != OK)
            return rc;
        world_raise(b->world, 9);
    }
}

static int taker_is_cancelled(struct bench *b)
{
    struct task *taker;
    struct wait_for some = {.kind = WAIT_SIGNAL, .signal = 9, .seen = 20};
    struct wake wake;
    int result = OK;
    if (!b->world)
        return OK;
    CHECK(world_spawn(b->world, "taker", takes_for_ever, b, &taker) == OK);
    CHECK(world_wait(b->world, &some, 1, WORLD_FOREVER, &wake) == OK);
    world_cancel(b->world, taker);
    CHECK(world_join(b->world, taker, WORLD_FOREVER, &result) == OK);
    CHECK(result == ERR_CANCELLED);
    return OK;
}

static void test_a_cancelled_taker_is_reported(void **state)
{
    (void)state;
    play_all(taker_is_cancelled);
}

/* A mistake in the task poisons the world; the taker does not wait for a batch that never comes. */
static int fault_story(struct bench *b)
{
    const struct batch *batch;
    b->good_reads = CAP + 3;
    CHECK(loader_take(&b->loader, 0, CAP, &batch, NULL) == OK);
    CHECK(loader_take(&b->loader, CAP, CAP, &batch, NULL) == ERR_CANCELLED);
    return OK;
}

static void test_a_mistake_in_the_task_ends_the_wait(void **state)
{
    (void)state;
    struct bench b = {0};
    assert_int_equal(play_story(REAL, fault_story, &b), ERR_BUG);
}

/* A record that cannot be read is an error of the batch it belongs to, prepared ahead or not, and
 * of no other; a guess that would have met it and was wrong is none. */
static int one_breaks(struct bench *b)
{
    struct sampler sampler = {SEED, N};
    struct err err = {0};
    const struct batch *got = NULL;
    b->broken = sampler_at(&sampler, 0, CAP + 3) + 1; /* in the second batch of the first epoch */
    CHECK(takes_batch(b, 0, CAP));                    /* what comes next is prepared, and fails */
    CHECK(loader_take(&b->loader, CAP, CAP, &got, &err) == ERR_INPUT);
    CHECK(err.status == ERR_INPUT && strstr(err.text, "is broken") && !got);
    CHECK(takes_batch(b, 0, CAP));
    CHECK(takes_batch(b, CAP, 3));
    CHECK(loader_take(&b->loader, CAP + 3, 1, &got, NULL) == ERR_INPUT);
    CHECK(batch_fill_plain(loader_spare(&b->loader), &b->set, b->broken - 1, 1, &err) == ERR_INPUT);
    b->broken = 0;
    CHECK(takes_batch(b, CAP, CAP));
    return OK;
}

static void test_a_broken_record_is_its_batch_s_affair(void **state)
{
    (void)state;
    play_all(one_breaks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_steady_stream_is_foreseen),
        cmocka_unit_test(test_a_stride_is_learnt),
        cmocka_unit_test(test_a_jump_is_one_wrong_guess),
        cmocka_unit_test(test_a_hint_is_prepared),
        cmocka_unit_test(test_wrong_guesses_do_not_show),
        cmocka_unit_test(test_the_spare_batch_disturbs_nothing),
        cmocka_unit_test(test_it_stops_and_starts_again),
        cmocka_unit_test(test_a_stop_waits_for_the_batch_in_work),
        cmocka_unit_test(test_a_cancelled_taker_is_reported),
        cmocka_unit_test(test_a_mistake_in_the_task_ends_the_wait),
        cmocka_unit_test(test_a_broken_record_is_its_batch_s_affair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
