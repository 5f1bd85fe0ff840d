/* Workers that are groups of learners: the run is that of workers that are one learner each, in
 * both worlds; only the time differs, where there are cores for all. */
#include "real_run.h"
#include "refusal.h"

static void assert_same_run(const char *a, const char *b)
{
    assert_true(run_same_bits(a, b, "final.safetensors"));
    assert_true(run_number(a, "end", 0, "used") == run_number(b, "end", 0, "used"));
    assert_true(run_number(a, "end", 0, "test_loss") == run_number(b, "end", 0, "test_loss"));
}

/* Two workers with 32 records a step each, all at once or 16 by each of two learners. */
static void test_a_group_is_one_worker(void **state)
{
    struct tiny *t = *state;
    static const char *const options[] = {"strategy.sync.tau=4", "strategy.allreduce={}"};
    tiny_cluster(t, "node { cores: 2 } node { speed: 0.4 jitter: 0.2 }\n"
                    "step_seconds: 0.004 link { mbit: 100 loss: 0.01 }\n");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        char one[128], real[128], sim[128];
        EXECUTE(t, "train", t->job, one, options[i], "workers=2", "batch=32");
        EXECUTE(t, "train", t->job, real, options[i], "workers=2", "batch=32", "threads=2",
                "local=2");
        EXECUTE(t, "sim", t->job, sim, options[i], "workers=2", "batch=32", "threads=2", "local=2");
        assert_true(run_number(one, "end", 0, "used") > 1500);
        assert_same_run(real, one);
        assert_same_run(sim, one);
    }
}

/* Fifty steps of 40 ms of one core; other costs are the same for all. */
static void test_a_step_takes_its_part_of_the_cores(void **state)
{
    struct tiny *t = *state;
    static const struct {
        const char *cluster, *local;
        double seconds;
    } cases[] = {
        {"node { cores: 1 } step_seconds: 0.04", "local=1", 2.0},
        {"node { cores: 4 } step_seconds: 0.04", "local=1", 2.0},
        {"node { cores: 1 } step_seconds: 0.04", "local=4", 2.0},
        {"node { cores: 2 } step_seconds: 0.04", "local=4", 1.0},
        {"node { cores: 4 } step_seconds: 0.04", "local=4", 0.5},
        {"node { cores: 9 } step_seconds: 0.04", "local=4", 0.5},
    };
    double with = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dir[128];
        tiny_cluster(t, cases[i].cluster);
        EXECUTE(t, "sim", t->job, dir, "workers=1", "threads=4", "strategy.single={}",
                "stop.steps=50", cases[i].local);
        double seconds = run_number(dir, "end", 0, "wall_s");
        if (i == 0)
            with = seconds - cases[i].seconds;
        assert_true(with > 0 && with < 1);
        if (!(fabs(seconds - with - cases[i].seconds) < 0.005))
            fail_msg("%s, %s: %g s", cases[i].cluster, cases[i].local, seconds - with);
    }
}

/* A group dies and leaves as one. */
static void test_the_others_go_on_without_a_group(void **state)
{
    struct tiny *t = *state;
    char dir[128];
    tiny_cluster(t, "node { count: 3 cores: 2 } step_seconds: 0.01 fault { at: 0.1037 kill: 1 }");
    EXECUTE(t, "sim", t->job, dir, "workers=3", "threads=2", "local=2", "strategy.allreduce={}");
    assert_int_equal(run_count(dir, "member", "what", "dead"), 1);
    assert_true(run_number(dir, "end", 0, "test_error") < 0.2);
}

/* Its step is measured like any other's. */
static void test_a_group_can_be_measured(void **state)
{
    struct tiny *t = *state;
    static const char *const argv[] = {"bench",     "step",  "tiny.job", "--steps",
                                       "20",        "--set", "local=4",  "--set",
                                       "threads=4", "--set", "pace=1",   NULL};
    struct process p;
    process_start(&p, t->folder, argv);
    process_wait(&p, 18); /* at that pace twenty steps would be twenty seconds */
    if (p.code != 0 || !strstr(p.out, "4 threads"))
        fail_msg("code %d; it said:\n%s%s", p.code, p.out, p.err);
    process_release(&p);
}

static void test_what_cannot_be_shared_out_is_refused(void **state)
{
    struct tiny *t = *state;
    REFUSED(t, "local: must be from 1 to 64, is 0", "train", t->job, "--set", "local=0");
    REFUSED(t, "local: must be from 1 to 64, is 65", "train", t->job, "--set", "local=65");
    REFUSED(t, "local: must divide batch, which is 16, is 3", "train", t->job, "--set", "local=3");
    REFUSED(t, "local: must be at most threads, which is 1, is 2", "train", t->job, "--set",
            "local=2");
    REFUSED(t, "local", "sim", t->job, "--cluster", t->cluster, "--set", "local=-2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_group_is_one_worker),
        cmocka_unit_test(test_a_step_takes_its_part_of_the_cores),
        cmocka_unit_test(test_the_others_go_on_without_a_group),
        cmocka_unit_test(test_a_group_can_be_measured),
        cmocka_unit_test(test_what_cannot_be_shared_out_is_refused),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
