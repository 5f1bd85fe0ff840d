/* A driver that dies and comes back, in simulation: workers keep what they have, train on where
 * their strategy lets them, and the run goes on from where they are. */
#include "strategy_sim.h"

struct way {
    const char *set[4];
    bool waits; /* the driver has a part in every exchange: workers wait for it */
    bool free;
    bool
        exact; /* what is computed depends on no clock: the model is that of a run without deaths */
};

static const struct way ways[] = {
    {{"strategy.sync={tau:4}"}, .waits = true, .exact = true},
    {{"strategy.sync={tau:4 on_replace:average}"}, .waits = true, .exact = true},
    {{"strategy.sync={tau:4 init_iterations:5}"}, .waits = true, .exact = true},
    {{"strategy.sync={tau_auto:true}"}, .waits = true},
    {{"strategy.sync={seconds:0.02}"}, .waits = true},
    {{"strategy.allreduce={}"}, .exact = true},
    {{"strategy.allreduce={bucket_kb:1}", "collective.algorithm=ring"}, .exact = true},
    {{"strategy.diloco={tau:4}"}, .exact = true},
    {{"strategy.diloco={tau:6 fragments:3}"}, .exact = true},
    {{"strategy.diloco={tau:12 fragments:2 overlap:2 on_replace:average}"}, .exact = true},
    {{"strategy.async_allreduce={}"}, .exact = true},
    {{"strategy.mpca={coordination:symmetric}"}, .free = true},
    {{"strategy.mpca={coordination:symmetric shards:5}"}, .free = true},
    {{"strategy.gossip={p:0.3}"}, .free = true},
    {{"strategy.ps={colocated:true}", "solver.momentum=0"}, .free = true},
    {{"strategy.ps={servers:2 consistency:bsp}", "solver.momentum=0"}, .free = true},
    {{"strategy.downpour={colocated:true}", "solver.momentum=0"}, .free = true},
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

/* Each driver that comes back goes on behind all exchanges that the one before told of: none is
 * lost, and where workers need no driver they have made others meanwhile, of which no event tells.
 */
static void expect_nothing_lost(const struct way *way, const struct sim_run *r, const char *faults)
{
    char path[256], line[4096];
    double so_far = 0;
    snprintf(path, sizeof path, "%s/events.jsonl", r->dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        so_far += strstr(line, "\"kind\":\"exchange\"") != NULL;
        const char *back = strstr(line, "\"kind\":\"back\"");
        if (!back)
            continue;
        double from = strtod(strstr(line, "\"exchanges\":") + 12, NULL);
        if (from < so_far)
            fail_msg("%s, %s: goes on behind %g of %g exchanges (%s)", way->set[0], faults, from,
                     so_far, r->dir);
        so_far = from;
    }
    fclose(f);
    assert_int_equal(r->report.missed, 0);
}

/* The driver dies at many moments of a run, and is there again a little later: nobody is lost,
 * nothing is missed or done twice, and the run ends as it would have. */
static void test_it_dies_at_any_moment(void **state)
{
    enum { MOMENTS = 12 };
    struct tiny *t = *state;
    for (size_t w = 0; w < WAYS; w++) {
        struct sim_run whole = {0};
        play(t, &ways[w], "", &whole);
        for (int i = 0; i < MOMENTS; i++) {
            struct sim_run r = {0};
            char faults[160];
            snprintf(faults, sizeof faults, "fault { at: %.6f kill: -1 for: %g }",
                     0.003 + (whole.report.wall_s - 0.003) * i / MOMENTS, i % 2 ? 0.02 : 0.3);
            play(t, &ways[w], faults, &r);
            int back = run_count(r.dir, "member", "what", "back");
            if (back != 4)
                fail_msg("%s, %s: %d came back (%s)", ways[w].set[0], faults, back, r.dir);
            assert_int_equal(run_count(r.dir, "member", NULL, NULL), 8);
            expect_nothing_lost(&ways[w], &r, faults);
            if (ways[w].exact && !run_same_bits(r.dir, whole.dir, "final.safetensors"))
                fail_msg("%s, %s: another model (%s)", ways[w].set[0], faults, r.dir);
        }
    }
}

/* It dies again as soon as it is back: while it collects those who return, with its first view on
 * the way to them, or what they say of their lanes on the way to it. */
static void test_it_dies_twice(void **state)
{
    enum { MOMENTS = 10 };
    struct tiny *t = *state;
    for (size_t w = 0; w < WAYS; w++) {
        struct sim_run whole = {0}, once = {0};
        char faults[160];
        play(t, &ways[w], "", &whole);
        double at = 0.3 * whole.report.wall_s;
        snprintf(faults, sizeof faults, "fault { at: %.6f kill: -1 for: 0.05 }", at);
        play(t, &ways[w], faults, &once);
        double back = at + 0.05 + run_number(once.dir, "back", 0, "t");
        for (int i = 0; i < MOMENTS; i++) {
            struct sim_run r = {0};
            snprintf(faults, sizeof faults,
                     "fault { at: %.6f kill: -1 for: 0.05 } fault { at: %.6f kill: -1 for: 0.04 }",
                     at, back + 0.00007 * (i - 4));
            play(t, &ways[w], faults, &r);
            assert_int_equal(run_count(r.dir, "member", "what", "dead"), 0);
            expect_nothing_lost(&ways[w], &r, faults);
            if (ways[w].exact && !run_same_bits(r.dir, whole.dir, "final.safetensors"))
                fail_msg("%s, %s: another model (%s)", ways[w].set[0], faults, r.dir);
        }
    }
}

/* A worker dies while there is no driver, or at about the moment when it comes back: the others are
 * waited for, it is not, and they go on without it. */
static void test_a_worker_dies_meanwhile(void **state)
{
    enum { MOMENTS = 8 };
    struct tiny *t = *state;
    for (size_t w = 0; w < WAYS; w++) {
        struct sim_run whole = {0};
        uint64_t most = 0;
        play(t, &ways[w], "", &whole);
        for (int i = 0; i < MOMENTS; i++) {
            struct sim_run r = {0};
            char faults[160];
            double at = 0.4 * whole.report.wall_s;
            snprintf(faults, sizeof faults,
                     "fault { at: %.6f kill: -1 for: 0.02 } fault { at: %.6f kill: %d }", at,
                     at + 0.004 * i, i % 4);
            play(t, &ways[w], faults, &r);
            if (run_count(r.dir, "member", "what", "dead") != 1)
                fail_msg("%s, %s: not one is dead (%s)", ways[w].set[0], faults, r.dir);
            most = r.report.missed > most ? r.report.missed : most;
        }
        print_message("    %s: at most %u records missed\n", ways[w].set[0], (unsigned)most);
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
        cmocka_unit_test(test_it_dies_twice),
        cmocka_unit_test(test_a_worker_dies_meanwhile),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
