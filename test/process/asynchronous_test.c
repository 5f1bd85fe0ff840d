/* Asynchronous strategies, and `easgd` in its synchronous mode, between real processes; a worker is
 * killed while others depend on it. */
#include "real_run.h"

static const char *const options[] = {"strategy.easgd.tau=2", "strategy.easgd.mode=sync",
                                      "strategy.gossip.p=0.5"};

enum { OPTIONS = sizeof options / sizeof *options };

static double number_of(const struct real_run *r, const char *key)
{
    return run_number(r->dir, "end", 0, key);
}

static void test_they_train(void **state)
{
    struct tiny *t = *state;
    for (size_t i = 0; i < OPTIONS; i++) {
        struct real_run r = real_new(t);
        START(t, &r, "--set", options[i], "--set", "stop.epochs=12", "--set", "pace=0.004");
        real_end(&r, 0, "epochs");
        assert_true(real_exchanges(&r) > 5);
        assert_true(number_of(&r, "missed") == 0 &&
                    number_of(&r, "used") + number_of(&r, "repeated") >= 12 * 540);
        assert_true(number_of(&r, "test_error") < 0.3);
        process_release(&r.p);
    }
}

/* Background tasks are threads here. A lone worker gives the same bits as in simulation, so the
 * threads do not interfere with it. Its pace leaves the driver time to grant leases: a worker
 * without one repeats samples. */
static void test_alone_they_are_what_they_are_in_simulation(void **state)
{
    struct tiny *t = *state;
    tiny_cluster(t, "node { } step_seconds: 0.004 link { mbit: 100 }\n");
    for (size_t i = 0; i < OPTIONS; i++) {
        struct real_run real = real_new(t), sim = real_new(t);
        START(t, &real, "--set", options[i], "--set", "stop.steps=20", "--set", "workers=1",
              "--set", "pace=0.02");
        real_end(&real, 0, "steps");
        const char *argv[] = {"sim",   t->job,      "--cluster", t->cluster, "--out",
                              sim.dir, "--set",     options[i],  "--set",    "stop.steps=20",
                              "--set", "workers=1", "--json",    NULL};
        process_start(&sim.p, t->folder, argv);
        real_end(&sim, 0, "steps");
        if (!run_same_bits(real.dir, sim.dir, "final.safetensors"))
            fail_msg("%s: apart by %g", options[i], run_difference(real.dir, sim.dir));
        process_release(&real.p);
        process_release(&sim.p);
    }
}

static void test_a_worker_is_killed(void **state)
{
    struct tiny *t = *state;
    for (size_t i = 0; i < OPTIONS; i++) {
        struct real_run r = real_new(t);
        pid_t child[PROCESS_CHILDREN_MAX];
        START(t, &r, "--set", options[i], "--set", "stop.epochs=25", "--set", "pace=0.01");
        real_workers(&r, 4, child);
        UNTIL(REAL_LIMIT_S, process_poll(&r.p) || real_exchanges(&r) > 4);
        kill(child[1], SIGKILL);
        real_end(&r, 0, "epochs");
        assert_int_equal(real_members(&r, "dead") + real_members(&r, "cut"), 1);
        assert_true(number_of(&r, "test_error") < 0.3);
        process_release(&r.p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_they_train),
        cmocka_unit_test(test_alone_they_are_what_they_are_in_simulation),
        cmocka_unit_test(test_a_worker_is_killed),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
