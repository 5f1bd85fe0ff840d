/* A driver that dies and comes back, in simulation: workers keep what they have, train on where
 * their strategy lets them, and the run goes on from where they are. */
#include "strategy_sim.h"

struct way {
    const char *set[4];
    bool leads; /* the driver has a part in every exchange: they wait for it */
    bool free;
};

static const struct way ways[] = {
    {{"strategy.allreduce={}"}, false, false},
    {{"strategy.allreduce={bucket_kb:1}", "collective.algorithm=ring"}, false, false},
    {{"strategy.diloco={tau:4}"}, false, false},
    {{"strategy.diloco={tau:6 fragments:3}"}, false, false},
    {{"strategy.diloco={tau:12 fragments:2 overlap:2 on_replace:average}"}, false, false},
    {{"strategy.async_allreduce={}"}, false, false},
    {{"strategy.mpca={coordination:symmetric}"}, false, true},
    {{"strategy.mpca={coordination:symmetric shards:5}"}, false, true},
    {{"strategy.gossip={p:0.3}"}, false, true},
};

enum { WAYS = sizeof ways / sizeof *ways };

static void play(struct tiny *t, const struct way *way, const char *faults, struct sim_run *r)
{
    const char *set[8] = {"stop.epochs=4", "checkpoint.every_seconds=1000",
                          "evaluate.every_exchanges=1000"};
    char cluster[512];
    snprintf(cluster, sizeof cluster, SIM_CALM "%s", faults);
    for (size_t i = 0; way->set[i]; i++)
        set[3 + i] = way->set[i];
    r->limit_s = 300;
    sim_try(t, cluster, r, set);
    if (r->rc != PL_OK)
        fail_msg("%s, %s: %s (%s)", way->set[0], faults, r->error, r->dir);
    sim_adds_up(r);
}

/* The driver dies at many moments of a run, and is there again a little later: nobody is lost,
 * nothing is missed, the run ends as it would have. */
static void test_it_dies_at_any_moment(void **state)
{
    enum { MOMENTS = 8 };
    struct tiny *t = *state;
    for (size_t w = 0; w < WAYS; w++) {
        struct sim_run whole = {0};
        play(t, &ways[w], "", &whole);
        for (int i = 0; i < MOMENTS; i++) {
            struct sim_run r = {0};
            char faults[160];
            snprintf(faults, sizeof faults, "fault { at: %.6f kill: -1 for: %g }",
                     0.05 + (whole.report.wall_s - 0.05) * i / MOMENTS, i % 2 ? 0.02 : 0.3);
            play(t, &ways[w], faults, &r);
            int back = run_count(r.dir, "member", "what", "back");
            if (back != 4)
                fail_msg("%s, %s: %d came back (%s)", ways[w].set[0], faults, back, r.dir);
            assert_int_equal(run_count(r.dir, "member", NULL, NULL), 8);
            assert_int_equal(r.report.missed, 0);
        }
    }
}

static int setup(void **state)
{
    static struct tiny tiny;
    tiny_create(&tiny);
    *state = &tiny;
    return 0;
}

static int teardown(void **state)
{
    tiny_remove(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_dies_at_any_moment),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
