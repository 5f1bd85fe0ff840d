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

enum { N = 20, CAP = 8, WIDE = 50, CHW = 6, SEED = 5, FAILED = 10000 };

enum setting { AT_ONCE, SIMULATED, REAL, SETTINGS };

struct bench {
    enum setting setting;
    int threads;
    size_t cap; /* 0: WIDE */
    int (*story)(struct bench *b);
    struct world *world; /* NULL: at once */
    uint32_t labels[N];
    struct source_fake fake;
    struct dataset set;
    struct arena arena;
    struct loader loader;
    struct batch want;
    /* Behaviour of the source that a test sets: */
    atomic_bool shut;      /* reads do not end until it is opened, */
    atomic_int free_reads; /* except for the first so many */
    int bad_read;          /* the read of this number is a mistake; 0: none is */
    atomic_uint broken;    /* by bit, the records that cannot be read */
    long slow;             /* nanoseconds that a read takes */
    atomic_int begun, ended;
    atomic_uint prefetched; /* by bit, the records that were asked for ahead */
    atomic_int cold;        /* reads of others */
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
    int number = atomic_fetch_add(&b->begun, 1) + 1;
    while (atomic_load(&b->shut) && number > atomic_load(&b->free_reads))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    if (!(atomic_load(&b->prefetched) >> i & 1))
        atomic_fetch_add(&b->cold, 1);
    if (b->slow > 0)
        nanosleep(&(struct timespec){.tv_nsec = b->slow}, NULL);
    PL_ASSERT(number != b->bad_read);
    int rc = atomic_load(&b->broken) >> i & 1 ? err_set(err, ERR_INPUT, "record %zu is broken", i)
                                              : source_fake_read(source, i, scratch, raw, err);
    atomic_fetch_add(&b->ended, 1);
    return rc;
}

static void prefetch_record(const struct source *source, size_t i)
{
    atomic_fetch_or(&bench_of(source)->prefetched, 1u << i);
}

static void bench_open(struct bench *b)
{
    static struct source_ops ops;
    for (uint32_t i = 0; i < N; i++)
        b->labels[i] = (i * 3) % 10;
    b->fake = source_fake_make(b->labels, N, (struct shape){.n = 3, .dim = {1, 2, 3}});
    ops = *b->fake.source.ops;
    ops.read = read_record;
    ops.prefetch = prefetch_record;
    b->fake.source.ops = &ops;
    Paceline__Data spec = PACELINE__DATA__INIT;
    struct err err;
    assert_int_equal(dataset_init(&b->set, &b->fake.source, &spec, &err), OK);
    arena_init(&b->arena);
    size_t cap = b->cap > 0 ? b->cap : WIDE;
    assert_int_equal(batch_init(&b->want, &b->arena, WIDE, CHW), OK);
    assert_int_equal(loader_init(&b->loader, &b->arena, &b->set, SEED, cap), OK);
}

static int start_loader(struct bench *b)
{
    return b->world ? loader_start(&b->loader, &b->arena, b->world, b->threads) : OK;
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

/* At once, and with one, two and four tasks. */
static void play_all(int (*story)(struct bench *b))
{
    for (enum setting s = AT_ONCE; s < SETTINGS; s++)
        for (int threads = 1; threads <= 16; threads *= threads == 1 ? 8 : 2) {
            struct bench b = {.threads = threads};
            int rc = play_story(s, story, &b);
            if (rc != OK)
                fail_msg("setting %d, %d threads: line %d", (int)s, threads, rc - FAILED);
        }
}

/* Is the batch at these positions the one of batch_fill? */
static bool takes_batch(struct bench *b, uint64_t offset, size_t count)
{
    const struct batch *got;
    struct batch *want = &b->want;
    struct sampler sampler = {.seed = SEED, .n = N};
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

/* One of 23 workers that share each step. Of fewer it would find further batches among those that
 * were prepared for a stride of one. */
static int stride_story(struct bench *b)
{
    for (uint64_t i = 0; i < 20; i++)
        CHECK(takes_batch(b, 5 + i * 23 * CAP, CAP));
    CHECK(has_missed(b, 20, 3));
    return OK;
}

static void test_a_stride_is_learnt(void **state)
{
    (void)state;
    play_all(stride_story);
}

/* One of ten workers that take five steps each before they meet. */
static int jump_story(struct bench *b)
{
    for (uint64_t i = 0; i < 30; i++)
        CHECK(takes_batch(b, (i / 5 * 50 + i % 5) * CAP, CAP));
    CHECK(has_missed(b, 30, 6));
    return OK;
}

static void test_a_jump_is_one_wrong_guess(void **state)
{
    (void)state;
    play_all(jump_story);
}

/* Each record of the batches ahead is asked for before it is read; not that of the first batch, for
 * which the caller waits. A last quarter may be left to a later take, which wakes the tasks. */
static int prefetch_story(struct bench *b)
{
    const struct batch *got;
    CHECK(loader_take(&b->loader, 0, CAP, &got, NULL) == OK);
    while (b->world && atomic_load(&b->ended) < (1 + LOADER_AHEAD_MAX * 3 / 4) * CAP)
        CHECK(world_sleep(b->world, world_now(b->world) + WORLD_SECOND / 1000) == OK);
    CHECK(atomic_load(&b->cold) <= CAP);
    CHECK(!b->world || atomic_load(&b->prefetched) == (1u << N) - 1);
    return OK;
}

static void test_batches_ahead_are_prefetched(void **state)
{
    (void)state;
    play_all(prefetch_story);
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
    CHECK(takes_batch(b, 5008, 2)); /* what was said was wrong, */
    CHECK(takes_batch(b, 100, 2));  /* and is not expected again */
    CHECK(has_missed(b, 33, 3));
    return OK;
}

static void test_a_hint_is_prepared(void **state)
{
    (void)state;
    play_all(hinted_story);
}

/* Of several batches that are known some are not taken, and others change. */
static int skip_story(struct bench *b)
{
    const struct loader *l = &b->loader;
    for (uint64_t i = 0; i < LOADER_AHEAD_MAX + 2; i++)
        loader_expect(&b->loader, 1000 * i, 1 + i);
    CHECK(takes_batch(b, 0, CAP));
    CHECK(takes_batch(b, 2000, 3)); /* the third, after which the fourth is expected no more: */
    CHECK(has_missed(b, 2, 1));
    loader_expect(&b->loader, 2008, 5);
    loader_expect(&b->loader, 4000, 6);
    CHECK(!b->world || l->last - l->first == LOADER_AHEAD_MAX);
    CHECK(takes_batch(b, 2003 + CAP - 3, 3) && takes_batch(b, 4000, 6));
    CHECK(has_missed(b, 4, 1));
    CHECK(takes_batch(b, 0, WIDE) && takes_batch(b, 0, WIDE));
    CHECK(has_missed(b, 6, 3));
    return OK;
}

static void test_a_batch_further_ahead_is_found(void **state)
{
    (void)state;
    play_all(skip_story);
}

/* Batches of more records than pieces, over several epochs. */
static int wide_story(struct bench *b)
{
    for (uint64_t i = 0; i < 20; i++)
        CHECK(takes_batch(b, 3 + i * WIDE, i % 7 ? WIDE : LOADER_PIECES + i));
    return OK;
}

static void test_pieces_have_several_records(void **state)
{
    (void)state;
    play_all(wide_story);
}

/* How many are prepared is a matter of their size. */
static void test_large_batches_are_few(void **state)
{
    static const size_t record = CHW * sizeof(float);
    const struct {
        size_t cap, slots;
    } depth[] = {{CAP, 1 + LOADER_AHEAD_MAX},
                 {LOADER_AHEAD_BYTES / record / 2, 3},
                 {LOADER_AHEAD_BYTES / record, 2},
                 {LOADER_AHEAD_BYTES / record * 2, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof depth / sizeof *depth; i++) {
        struct bench b = {.threads = 8, .cap = depth[i].cap};
        assert_int_equal(play_story(REAL, steady_story, &b), OK);
        assert_int_equal(b.loader.slots, depth[i].slots);
        assert_int_equal(loader_bytes(&b.loader), depth[i].slots * depth[i].cap * record);
    }
}

static int random_story(struct bench *b)
{
    for (uint64_t i = 0; i < 300; i++) {
        uint64_t offset = rng_below(1, 1, i, 4) ? i * CAP : rng_u64(1, 2, i) >> (i % 50);
        CHECK(takes_batch(b, offset, 1 + rng_below(1, 3, i, WIDE)));
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

/* The tasks are in the middle of batches when they are stopped: the stop waits for their pieces,
 * and for no others. */
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
    const struct batch *batch;
    int tasks = (int)b->loader.tasks;
    atomic_store(&b->free_reads, 2);
    atomic_store(&b->shut, true);
    CHECK(loader_take(&b->loader, 0, 2, &batch, NULL) == OK);
    while (atomic_load(&b->begun) < 2 + tasks)
        world_sleep(b->world, world_now(b->world) + WORLD_SECOND / 1000);
    CHECK(atomic_load(&b->ended) == 2);
    CHECK(world_spawn(b->world, "opener", opens_soon, b, &opener) == OK);
    loader_stop(&b->loader);
    CHECK(atomic_load(&b->begun) == 2 + tasks && atomic_load(&b->ended) == 2 + tasks);
    CHECK(start_loader(b) == OK);
    CHECK(takes_batch(b, 2, 2)); /* as if nothing had been prepared */
    return world_join(b->world, opener, WORLD_FOREVER, NULL);
}

static void test_a_stop_waits_for_the_pieces_in_work(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 16; threads *= 4) {
        struct bench b = {.threads = threads};
        assert_int_equal(play_story(REAL, stops_in_the_middle, &b), OK);
    }
}

/* A jump while pieces of the batches that it drops are under way: it waits for them, and no more.
 */
static int jumps_in_the_middle(struct bench *b)
{
    struct task *opener;
    int tasks = (int)b->loader.tasks;
    const struct batch *batch;
    for (uint64_t i = 0; i < 5; i++) {
        int begun = atomic_load(&b->begun);
        atomic_store(&b->free_reads, begun + CAP);
        atomic_store(&b->shut, true);
        CHECK(loader_take(&b->loader, 1000 * i, CAP, &batch, NULL) == OK);
        while (atomic_load(&b->begun) < begun + CAP + tasks)
            world_sleep(b->world, world_now(b->world) + WORLD_SECOND / 1000);
        CHECK(world_spawn(b->world, "opener", opens_soon, b, &opener) == OK);
        CHECK(takes_batch(b, 1000 * i + 500, WIDE));
        CHECK(world_join(b->world, opener, WORLD_FOREVER, NULL) == OK);
        loader_stop(&b->loader); /* nothing is under way in the next turn */
        CHECK(start_loader(b) == OK);
    }
    return OK;
}

static void test_a_jump_waits_for_the_pieces_in_work(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 16; threads *= 4) {
        struct bench b = {.threads = threads};
        assert_int_equal(play_story(REAL, jumps_in_the_middle, &b), OK);
    }
}

/* A caller that waits most of the time gets more tasks, up to as many as it has threads. */
static int slow_story(struct bench *b)
{
    const struct loader *l = &b->loader;
    const struct batch *batch;
    for (uint64_t i = 0; i < 4 * LOADER_WINDOW; i++)
        CHECK(loader_take(&b->loader, i * CAP, CAP, &batch, NULL) == OK);
    CHECK(takes_batch(b, 0, CAP));
    CHECK(!b->world || l->tasks == (b->setting == REAL ? 3 : 1));
    CHECK(!b->world || (b->setting == REAL ? l->waited_s > 0 : l->waited_s == 0));
    return OK;
}

static void test_a_waiting_caller_gets_more_tasks(void **state)
{
    (void)state;
    for (enum setting s = AT_ONCE; s < SETTINGS; s++) {
        struct bench b = {.threads = 3, .slow = 300000};
        assert_int_equal(play_story(s, slow_story, &b), OK);
    }
}

/* The task that takes batches is cancelled between two of them. */
static int takes_for_ever(void *arg)
{
    struct bench *b = arg;
    const struct batch *batch;
    for (uint64_t i = 0;; i++) {
        int rc = loader_take(&b->loader, i * CAP, CAP, &batch, NULL);
        if (rc == OK)
            rc = world_sleep(b->world, world_now(b->world) + WORLD_SECOND / 2000);
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
    b->bad_read = CAP + 3;
    CHECK(loader_take(&b->loader, 0, CAP, &batch, NULL) == OK);
    while (atomic_load(&b->begun) < CAP + 3) /* by a task, and not by the taker */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    CHECK(loader_take(&b->loader, CAP, CAP, &batch, NULL) == ERR_CANCELLED);
    return OK;
}

static void test_a_mistake_in_the_task_ends_the_wait(void **state)
{
    (void)state;
    struct bench b = {.threads = 1};
    assert_int_equal(play_story(REAL, fault_story, &b), ERR_BUG);
}

/* A record that cannot be read is an error of the batch it belongs to, prepared ahead or not, and
 * of no other; a guess that would have met it and was wrong is none. */
static int one_breaks(struct bench *b)
{
    struct sampler sampler = {.seed = SEED, .n = N};
    struct err err = {0};
    const struct batch *got = NULL;
    size_t broken = sampler_at(&sampler, 0, CAP + 3); /* in the second batch of the first epoch */
    atomic_store(&b->broken, 1u << broken);
    CHECK(takes_batch(b, 0, CAP)); /* what comes next is prepared, and fails */
    CHECK(loader_take(&b->loader, CAP, CAP, &got, &err) == ERR_INPUT);
    CHECK(err.status == ERR_INPUT && strstr(err.text, "is broken") && !got);
    CHECK(takes_batch(b, 0, CAP));
    CHECK(takes_batch(b, CAP, 3));
    CHECK(loader_take(&b->loader, CAP + 3, 1, &got, NULL) == ERR_INPUT);
    CHECK(batch_fill_plain(loader_spare(&b->loader), &b->set, broken, 1, &err) == ERR_INPUT);
    atomic_store(&b->broken, 0);
    CHECK(takes_batch(b, CAP, CAP));
    return OK;
}

static void test_a_broken_record_is_its_batch_s_affair(void **state)
{
    (void)state;
    play_all(one_breaks);
}

/* Of several errors in a batch it is the first one's, as without tasks. */
static int several_break(struct bench *b)
{
    struct sampler sampler = {.seed = SEED, .n = N};
    const struct batch *got;
    for (uint64_t i = 0; i < 100; i++) {
        struct err err = {0}, want = {0};
        atomic_store(&b->broken, (unsigned)rng_below(1, 4, i, 1u << N) & 0x55555);
        int rc = batch_fill(&b->want, &b->set, &sampler, i * WIDE, WIDE, &want);
        loader_expect(&b->loader, (i + 1) * WIDE + 7, WIDE); /* not prepared with other records */
        CHECK(loader_take(&b->loader, i * WIDE, WIDE, &got, &err) == rc);
        CHECK(rc == OK || strcmp(err.text, want.text) == 0);
    }
    return OK;
}

static void test_the_first_error_counts(void **state)
{
    (void)state;
    play_all(several_break);
}

static bool takes_drawn(struct bench *b, const struct sampler *sampler, uint64_t start)
{
    const struct batch *got;
    return loader_take(&b->loader, start, CAP, &got, NULL) == OK &&
           batch_fill(&b->want, &b->set, sampler, start, CAP, NULL) == OK &&
           memcmp(got->records, b->want.records, CAP * sizeof *got->records) == 0 &&
           memcmp(got->data, b->want.data, CAP * CHW * sizeof(float)) == 0;
}

/* Prepared batches of another choice of records are dropped, whatever is under way. */
static int choice_changes(struct bench *b)
{
    const struct range some[] = {{2, 5}, {11, 9}}, others[] = {{0, 3}};
    const struct sampler first = {.seed = SEED, .n = 14, .range = some, .ranges = 2};
    const struct sampler second = {.seed = SEED, .n = 3, .range = others, .ranges = 1};
    CHECK(takes_batch(b, 0, CAP));
    for (uint64_t i = 1; i < 30; i++) {
        const struct sampler *sampler = i % 3 ? &first : &second;
        CHECK(loader_draw(&b->loader, sampler) == OK);
        CHECK(takes_drawn(b, sampler, i * CAP));
        CHECK(takes_drawn(b, sampler, (i + 1) * CAP));
    }
    CHECK(loader_draw(&b->loader, &(struct sampler){.seed = SEED, .n = N}) == OK);
    CHECK(takes_batch(b, CAP, CAP));
    return OK;
}

static void test_a_change_of_the_records_drops_what_is_prepared(void **state)
{
    (void)state;
    play_all(choice_changes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_steady_stream_is_foreseen),
        cmocka_unit_test(test_a_stride_is_learnt),
        cmocka_unit_test(test_a_jump_is_one_wrong_guess),
        cmocka_unit_test(test_batches_ahead_are_prefetched),
        cmocka_unit_test(test_a_hint_is_prepared),
        cmocka_unit_test(test_a_batch_further_ahead_is_found),
        cmocka_unit_test(test_pieces_have_several_records),
        cmocka_unit_test(test_large_batches_are_few),
        cmocka_unit_test(test_wrong_guesses_do_not_show),
        cmocka_unit_test(test_the_spare_batch_disturbs_nothing),
        cmocka_unit_test(test_it_stops_and_starts_again),
        cmocka_unit_test(test_a_stop_waits_for_the_pieces_in_work),
        cmocka_unit_test(test_a_jump_waits_for_the_pieces_in_work),
        cmocka_unit_test(test_a_waiting_caller_gets_more_tasks),
        cmocka_unit_test(test_a_cancelled_taker_is_reported),
        cmocka_unit_test(test_a_mistake_in_the_task_ends_the_wait),
        cmocka_unit_test(test_a_broken_record_is_its_batch_s_affair),
        cmocka_unit_test(test_the_first_error_counts),
        cmocka_unit_test(test_a_change_of_the_records_drops_what_is_prepared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
