/* A team that has warmed up allocates nothing for a call like the one before. This program counts
 * the allocations of all members. */
#include "counted_malloc.h"
#include "team_play.h"

#include <stdlib.h>

enum { MEMBERS = 3, FLOATS = 300 * 1000, WARM_UP = 30, CALLS = 100 };

struct trial {
    const char *name;
    size_t n;
    pl_call_options options;
    bool mean;
    pthread_barrier_t all;
    uint64_t more; /* allocations of all members */
};

static int play_calls(struct team_member *m)
{
    struct trial *t = m->arg;
    const pl_reduction mean = {.size = sizeof mean, .op = PL_MEAN, .weight = 1};
    float *x = calloc(t->n, sizeof *x);
    pl_call_options options = t->options;
    uint64_t before = 0;
    options.size = sizeof options;
    CHECK(x);
    for (int i = 0; i < WARM_UP + CALLS; i++) {
        if (i == WARM_UP) {
            pthread_barrier_wait(&t->all);
            before = atomic_load(&allocations);
            pthread_barrier_wait(&t->all);
        }
        CHECK(pl_team_allreduce(m->team, x, t->n, t->mean ? &mean : NULL, &options) == PL_OK);
    }
    pthread_barrier_wait(&t->all);
    if (m->number == 0)
        t->more = atomic_load(&allocations) - before;
    pthread_barrier_wait(&t->all);
    free(x);
    return 0;
}

static void test_calls_allocate_nothing(void **state)
{
    (void)state;
    struct trial trials[] = {
        {.name = "short", .n = 100},
        {.name = "long", .n = FLOATS},
        {.name = "long, in a hurry", .n = FLOATS, .options = {.spin_us = 50}},
        {.name = "bf16", .n = FLOATS, .options = {.wire = "bf16"}},
        {.name = "tree", .n = FLOATS, .options = {.algorithm = "tree"}},
        {.name = "ring", .n = FLOATS, .options = {.algorithm = "ring"}},
        {.name = "striped", .n = FLOATS, .options = {.stripes = 4}},
        {.name = "mean", .n = FLOATS, .mean = true},
    };
    const uint64_t calls = CALLS * MEMBERS;
    bool steady = true;
    if (!COUNTS)
        skip();
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        struct trial *t = &trials[i];
        assert_int_equal(pthread_barrier_init(&t->all, NULL, MEMBERS), 0);
        team_play(MEMBERS, play_calls, t);
        pthread_barrier_destroy(&t->all);
        print_message("    %s: %g allocations a call\n", t->name, (double)t->more / (double)calls);
        steady &= t->more < calls / 10; /* heartbeats, once a second */
    }
    assert_true(steady);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
