/* A team's life through the public names: members connect or fail to, make wrong calls, leave, and
 * leak nothing. */
#include "team_play.h"

#include <dirent.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>

/* ---- not coming together ---- */

/* Opening fails, as in a program with one thread; the message contains the text. */
static void expect_refusal(pl_team_options options, int expected, const char *phrase)
{
    pl_engine *engine;
    pl_team *team = (pl_team *)&options; /* untouched by a call that fails */
    assert_int_equal(pl_engine_create(NULL, &engine), PL_OK);
    int rc = pl_team_open(engine, &options, &team);
    if (rc != expected || !strstr(pl_engine_error(engine), phrase))
        fail_msg("ended with %d: %s; expected %d, and '%s'", rc, pl_engine_error(engine), expected,
                 phrase);
    assert_ptr_equal(team, &options);
    pl_engine_destroy(engine);
}

static void test_addresses(void **state)
{
    (void)state;
    char taken[32];
    expect_refusal((pl_team_options){.size = sizeof(pl_team_options), .members = 1}, PL_ERR_USAGE,
                   "rendezvous");
    expect_refusal(
        (pl_team_options){.size = sizeof(pl_team_options), .rendezvous = "nonsense", .members = 1},
        PL_ERR_INPUT, "nonsense");
    expect_refusal((pl_team_options){.size = sizeof(pl_team_options), .rendezvous = "nonsense"},
                   PL_ERR_INPUT, "nonsense");
    expect_refusal(
        (pl_team_options){.size = sizeof(pl_team_options), .rendezvous = "127.0.0.1:70000"},
        PL_ERR_INPUT, "127.0.0.1:70000");
    expect_refusal(
        (pl_team_options){.size = sizeof(pl_team_options), .rendezvous = "0.0.0.0:0", .members = 1},
        PL_ERR_INPUT, "a key is required");
    expect_refusal((pl_team_options){.size = sizeof(pl_team_options), .rendezvous = "192.0.2.1:9"},
                   PL_ERR_INPUT, "a key is required");
    expect_refusal((pl_team_options){.size = sizeof(pl_team_options),
                                     .rendezvous = "127.0.0.1:0",
                                     .members = 100000},
                   PL_ERR_USAGE, "100000");
    int fd = port_take(taken);
    expect_refusal(
        (pl_team_options){.size = sizeof(pl_team_options), .rendezvous = taken, .members = 2},
        PL_ERR_INPUT, taken);
    close(fd);
}

static void test_patience(void **state)
{
    (void)state;
    char no_member[32];
    port_find(no_member);
    double start = team_now();
    expect_refusal(
        (pl_team_options){
            .size = sizeof(pl_team_options), .rendezvous = no_member, .members = 2, .timeout_s = 1},
        PL_ERR_TIMEOUT, no_member);
    double alone = team_now() - start;
    expect_refusal((pl_team_options){.size = sizeof(pl_team_options),
                                     .rendezvous = no_member,
                                     .timeout_s = 0.5},
                   PL_ERR_TIMEOUT, no_member);
    double without = team_now() - start - alone;
    print_message("    gave up after %.2f and %.2f s\n", alone, without);
    assert_true(alone >= 1 && alone < 2 && without >= 0.5 && without < 1.5);
}

/* A third process waits for a place in a team of two, and gives up. */
static int play_full(struct team_member *m)
{
    const pl_team_options options = {
        .size = sizeof options, .rendezvous = m->rendezvous, .timeout_s = 0.5};
    float x = 1;
    if (m->number == 1) {
        pl_engine *engine;
        pl_team *late;
        CHECK(pl_engine_create(NULL, &engine) == PL_OK);
        CHECK(pl_team_open(engine, &options, &late) == PL_ERR_TIMEOUT);
        CHECK(strstr(pl_engine_error(engine), m->rendezvous));
        CHECK(strstr(pl_engine_error(engine), "the team is full"));
        pl_engine_destroy(engine);
    }
    CHECK(pl_team_allreduce(m->team, &x, 1, NULL, NULL) == PL_OK && x == 2);
    return 0;
}

static void test_a_full_team(void **state)
{
    (void)state;
    team_play(2, play_full, NULL);
}

/* Before it proves that it has the key a process is no member, and reads nothing of the team. */
static void test_key_is_asked_for(void **state)
{
    (void)state;
    char rendezvous[32];
    pl_engine *engine[2];
    pl_team *team[2];
    port_find(rendezvous);
    pl_team_options options = {.size = sizeof options,
                               .rendezvous = rendezvous,
                               .members = 1,
                               .members_max = 2,
                               .key = "too short"};
    expect_refusal(options, PL_ERR_INPUT, "32 to 64 characters");
    options.key = "0123456789abcdef0123456789abcdef";
    for (int i = 0; i < 2; i++)
        assert_int_equal(pl_engine_create(NULL, &engine[i]), PL_OK);
    assert_int_equal(pl_team_open(engine[0], &options, &team[0]), PL_OK);
    options.members = options.members_max = 0;
    expect_refusal((pl_team_options){.size = sizeof(pl_team_options), .rendezvous = rendezvous},
                   PL_ERR_INPUT, "key");
    expect_refusal((pl_team_options){.size = sizeof(pl_team_options),
                                     .rendezvous = rendezvous,
                                     .key = "fedcba9876543210fedcba9876543210"},
                   PL_ERR_INPUT, "key");
    assert_int_equal(pl_team_size(team[0]), 1);
    assert_int_equal(pl_team_open(engine[1], &options, &team[1]), PL_OK);
    assert_int_equal(pl_team_size(team[1]), 2);
    for (int i = 1; i >= 0; i--) {
        pl_team_close(team[i]);
        pl_engine_destroy(engine[i]);
    }
}

/* ---- wrong use ---- */

static int play_wrong(struct team_member *m)
{
    static const struct {
        pl_call_options options;
        const char *phrase;
    } wrong[] = {
        {{.algorithm = "trie"}, "trie"},
        {{.algorithm = ""}, "algorithm"},
        {{.wire = "f16"}, "f16"},
        {{.wire = "bf16", .algorithm = "ring"}, "ring"},
        {{.wire = "int8", .algorithm = "butterfly"}, "butterfly"},
        {{.chunk_kb = 4097}, "4097"},
        {{.stripes = 17}, "17"},
        {{.spin_us = -1}, "spin_us"},
        {{.spin_us = NAN}, "spin_us"},
        {{.spin_us = INFINITY}, "spin_us"},
    };
    const pl_reduction bad[] = {{.op = PL_USER_OP},
                                {.op = (pl_reduce_op)77},
                                {.op = PL_MEAN, .weight = -1},
                                {.op = PL_MEAN, .weight = NAN},
                                {.op = PL_MEAN, .weight = INFINITY},
                                {.op = PL_MEAN, .weight = 1e300}};
    float x[2] = {1, 2};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        pl_call_options options = wrong[i].options;
        options.size = sizeof options;
        options.channel = (uint32_t)i % PL_TEAM_CHANNELS;
        CHECK(pl_team_allreduce(m->team, x, 2, NULL, &options) == PL_ERR_USAGE);
        CHECK(strstr(pl_team_error(m->team, options.channel), wrong[i].phrase));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_reduction reduction = bad[i];
        reduction.size = sizeof reduction;
        CHECK(pl_team_allreduce(m->team, x, 2, &reduction, NULL) == PL_ERR_USAGE);
        CHECK(strstr(pl_team_error(m->team, 0), i < 2 ? "reduction" : "weight"));
    }
    const pl_call_options beyond = {.size = sizeof beyond, .channel = PL_TEAM_CHANNELS};
    CHECK(pl_team_broadcast(m->team, 0, x, 2, &beyond) == PL_ERR_USAGE);
    CHECK(strstr(pl_team_error(m->team, PL_TEAM_CHANNELS), "channel"));
    CHECK(pl_team_allreduce(m->team, x, 1000000001, NULL, NULL) == PL_ERR_USAGE);
    CHECK(x[0] == 1 && x[1] == 2); /* and no member waits for another */
    CHECK(pl_team_allreduce(m->team, x, 2, NULL, NULL) == PL_OK && x[1] == 4);
    return 0;
}

static void test_wrong_use(void **state)
{
    (void)state;
    team_play(2, play_wrong, NULL);
}

struct twice {
    struct team_member *m;
    atomic_int *refusals;
    pthread_t thread;
    int line;
};

static int call_twice(struct twice *t)
{
    float x = 1;
    int rc = pl_team_allreduce(t->m->team, &x, 1, NULL, NULL);
    if (rc == PL_OK)
        CHECK(x == 2);
    else {
        CHECK(rc == PL_ERR_USAGE && strstr(pl_team_error(t->m->team, 0), "in use"));
        atomic_fetch_add(t->refusals, 1);
    }
    return 0;
}

static void *run_twice(void *arg)
{
    struct twice *t = arg;
    t->line = call_twice(t);
    return NULL;
}

/* Two threads of member 1 on one channel: the second is refused, at once, since member 0 calls only
 * after that. */
static int play_twice(struct team_member *m)
{
    struct twice t[2] = {{.m = m, .refusals = m->arg}, {.m = m, .refusals = m->arg}};
    float x = 1;
    if (m->number == 1) {
        for (int i = 0; i < 2; i++)
            CHECK(pthread_create(&t[i].thread, NULL, run_twice, &t[i]) == 0);
        for (int i = 0; i < 2; i++)
            pthread_join(t[i].thread, NULL);
        return t[0].line ? t[0].line : t[1].line;
    }
    while (atomic_load(t[0].refusals) == 0)
        team_nap(0.001);
    CHECK(pl_team_allreduce(m->team, &x, 1, NULL, NULL) == PL_OK && x == 2);
    return 0;
}

static void test_a_channel_in_use(void **state)
{
    (void)state;
    atomic_int refusals = 0;
    team_play(2, play_twice, &refusals);
    assert_int_equal(refusals, 1);
}

/* ---- two teams ---- */

/* One engine, two teams that the same three belong to; the other's coordinator is member 2. */
static int play_two(struct team_member *m)
{
    const pl_team_options options = {
        .size = sizeof options, .rendezvous = m->arg, .members = m->number == 2 ? 3 : 0};
    pl_team *other;
    CHECK(pl_team_open(m->engine, &options, &other) == PL_OK);
    uint32_t rank = pl_team_rank(other);
    for (int i = 0; i < 50; i++) {
        float x[100] = {(float)i}, y[200] = {(float)rank};
        CHECK(pl_team_allreduce(m->team, x, 100, NULL, NULL) == PL_OK && x[0] == 3 * (float)i);
        CHECK(pl_team_broadcast(other, 2, y, 200, NULL) == PL_OK && y[0] == 2);
    }
    float x = 1;
    pl_team_allreduce(other, &x, 1, NULL, NULL);
    pl_team_close(other);
    x = 1;
    CHECK(pl_team_allreduce(m->team, &x, 1, NULL, NULL) == PL_OK && x == 3);
    return 0;
}

static void test_two_teams(void **state)
{
    (void)state;
    char rendezvous[32];
    port_find(rendezvous);
    team_play(3, play_two, rendezvous);
}

/* ---- leaving ---- */

struct leaving {
    uint32_t number; /* of the member that leaves */
    atomic_int waiting;
};

static int go_on(struct team_member *m, struct leaving *l)
{
    const uint32_t left = m->members - 1;
    const size_t n = 50000;
    float ranks = (float)m->rank;
    atomic_fetch_add(&l->waiting, 1);
    CHECK(pl_team_allreduce(m->team, &ranks, 1, NULL, NULL) == PL_ERR_PEER);
    if (l->number > 0)
        CHECK(strstr(pl_team_error(m->team, 0), "a member was lost"));
    if (l->number == 0) { /* it may take a moment from the member's end to the team's */
        for (int i = 0; i < 1000 && pl_team_size(m->team) > 0; i++)
            team_nap(0.001);
        CHECK(pl_team_size(m->team) == 0);
        CHECK(pl_team_allreduce(m->team, &ranks, 1, NULL, NULL) == PL_ERR_PEER);
        CHECK(strstr(pl_team_error(m->team, 0), "coordinator"));
        return 0;
    }
    CHECK(pl_team_size(m->team) == left && pl_team_rank(m->team) < left);
    m->rank = pl_team_rank(m->team);
    float *own = malloc(n * sizeof *own);
    CHECK(own);
    for (size_t i = 0; i < n; i++)
        own[i] = (float)m->rank;
    CHECK(pl_team_allreduce(m->team, own, n, NULL, NULL) == PL_OK);
    CHECK(own[0] == (float)(left * (left - 1) / 2) && own[n - 1] == own[0]);
    free(own);
    const pl_call_options other = {.size = sizeof other,
                                   .channel = 3}; /* which has not been informed */
    float last = (float)m->rank;
    CHECK(pl_team_broadcast(m->team, left - 1, &last, 1, &other) == PL_ERR_PEER);
    CHECK(strstr(pl_team_error(m->team, 3), "a member was lost"));
    last = (float)m->rank;
    CHECK(pl_team_broadcast(m->team, left - 1, &last, 1, &other) == PL_OK);
    CHECK(last == (float)(left - 1));
    return 0;
}

static int play_leaving(struct team_member *m)
{
    struct leaving *l = m->arg;
    for (int i = 0; i < 10; i++) {
        float x[1000] = {1};
        CHECK(pl_team_allreduce(m->team, x, 1000, NULL, NULL) == PL_OK);
        CHECK(x[0] == (float)m->members);
    }
    if (m->number != l->number)
        return go_on(m, l);
    while (atomic_load(&l->waiting) < (int)m->members - 1)
        team_nap(0.001);
    team_nap(0.05); /* they are in the call by now */
    pl_team_close(m->team);
    m->team = NULL;
    return 0;
}

static void test_a_member_leaves(void **state)
{
    (void)state;
    for (uint32_t number = 1; number < 4; number++)
        team_play(4, play_leaving, &(struct leaving){.number = number});
    team_play(2, play_leaving, &(struct leaving){.number = 1});
}

static void test_the_coordinator_leaves(void **state)
{
    (void)state;
    team_play(3, play_leaving, &(struct leaving){.number = 0});
}

/* The means of a team that loses one member after the other, at any point of a call: the remaining
 * ones agree on the next step, and a mean is that of the team that computed it. */
static int play_steps(struct team_member *m)
{
    const pl_reduction mean = {.size = sizeof mean, .op = PL_MEAN},
                       min = {.size = sizeof min, .op = PL_MIN};
    enum { STEPS = 200 };
    uint32_t size = m->members;
    for (float step = 0; step < STEPS;) {
        float x[2] = {step, 1};
        if (m->number > 1 && step >= (float)(40 * m->number)) {
            pl_team_close(m->team);
            m->team = NULL;
            return 0;
        }
        int rc = pl_team_allreduce(m->team, x, 2, &mean, NULL);
        CHECK(rc == PL_OK || rc == PL_ERR_PEER);
        if (rc == PL_OK) {
            CHECK(fabsf(x[0] - step) < 1e-3f && fabsf(x[1] - 1) < 1e-6f);
            step++;
        }
        for (; rc == PL_ERR_PEER && pl_team_size(m->team) > 0; size = pl_team_size(m->team)) {
            float at = step;
            CHECK(pl_team_size(m->team) < size);
            rc = pl_team_allreduce(m->team, &at, 1, &min, NULL);
            step = rc == PL_OK ? at : step;
        }
    }
    CHECK(pl_team_size(m->team) == 2);
    return 0;
}

static void test_all_go_on_from_the_same_step(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        team_play(5, play_steps, NULL);
}

/* Lengths that differ: the member that notices leaves, and none waits for ever. */
static int play_unlike(struct team_member *m)
{
    float x[20] = {1};
    int rc = pl_team_allreduce(m->team, x, m->number == 0 ? 10 : 20, NULL, NULL);
    CHECK(rc == PL_ERR_USAGE || rc == PL_ERR_PEER);
    if (rc == PL_ERR_USAGE) {
        atomic_fetch_add((atomic_int *)m->arg, 1);
        CHECK(strstr(pl_team_error(m->team, 0), "do not fit"));
        CHECK(pl_team_size(m->team) == 0);
    }
    return 0;
}

static void test_calls_that_do_not_fit(void **state)
{
    (void)state;
    atomic_int noticed = 0;
    team_play(3, play_unlike, &noticed);
    assert_true(noticed > 0);
}

/* ---- nothing is left ---- */

static size_t count_entries(const char *folder)
{
    size_t count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static long resident_kb(void)
{
    long all, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &all, &resident), 2);
    fclose(f);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static int play_a_little(struct team_member *m)
{
    float *x = calloc(100000, sizeof *x);
    CHECK(x);
    x[0] = 1;
    CHECK(pl_team_allreduce(m->team, x, 100000, NULL, NULL) == PL_OK && x[0] == 2);
    free(x);
    return 0;
}

/* A thread that has been joined may be in /proc a moment longer. */
static void await_threads(size_t threads)
{
    for (int i = 0; i < 1000 && count_entries("/proc/self/task") > threads; i++)
        team_nap(0.001);
}

static void test_nothing_is_left(void **state)
{
    (void)state;
    size_t threads = count_entries("/proc/self/task"), files = count_entries("/proc/self/fd");
    for (int i = 0; i < 50; i++) /* fills the allocator's heap */
        team_play(2, play_a_little, NULL);
    long resident = resident_kb();
    double start = team_now();
    for (int i = 0; i < 50; i++)
        team_play(2, play_a_little, NULL);
    await_threads(threads);
    long more = resident_kb() - resident;
    print_message("    50 times in %.2f s: %ld KiB more\n", team_now() - start, more);
    assert_int_equal(count_entries("/proc/self/task"), threads);
    assert_int_equal(count_entries("/proc/self/fd"), files);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(more < 1024);
#endif
}

int main(void)
{
    mallopt(M_ARENA_MAX, 1); /* test_nothing_is_left: heaps of new threads would look like leaks */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_patience),
        cmocka_unit_test(test_key_is_asked_for),
        cmocka_unit_test(test_a_full_team),
        cmocka_unit_test(test_wrong_use),
        cmocka_unit_test(test_a_channel_in_use),
        cmocka_unit_test(test_two_teams),
        cmocka_unit_test(test_a_member_leaves),
        cmocka_unit_test(test_the_coordinator_leaves),
        cmocka_unit_test(test_all_go_on_from_the_same_step),
        cmocka_unit_test(test_calls_that_do_not_fit),
        cmocka_unit_test(test_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
