/* Workers and drivers that take long to open their data, or cannot, in simulation. */
#include "sim_cluster.h"

static const char three[] = "node { count: 3 } step_seconds: 0.05 link { mbit: 100 }\n";

enum { NODES = 4 };

/* The settings of a node: 0 … 2, and the driver. */
struct play {
    double open_s[NODES];
    const char *root; /* node 2 has its data there; NULL: as the others */
    atomic_int leave;
    struct sim_train train;
};

static void change_host(void *user, uint32_t node, struct train_host *host)
{
    struct play *p = user;
    host->open_seconds = p->open_s[node == WORLD_DRIVER ? NODES - 1 : node];
    host->name = node == 2 ? "attic" : NULL;
    if (node == 2 && p->root) {
        host->corpus = NULL;
        host->data_root = p->root;
    }
    if (node == 2)
        host->leave = &p->leave;
}

static void on_fault(void *user, const struct sim_fault *fault)
{
    struct play *p = user;
    if (strcmp(fault->what, "leave") == 0)
        atomic_store(&p->leave, 1);
}

/* Three nodes, of which the run needs `workers`. */
static int run_opening(struct tiny *t, struct play *p, int workers, const char *faults)
{
    char cluster[512];
    struct ground ground;
    const char *set[] = {"strategy.allreduce={}",
                         "stop.epochs=2",
                         workers == 3 ? "workers=3" : "workers=2",
                         workers == 3 ? "workers_min=3" : "workers_min=2",
                         "workers_max=3",
                         NULL};
    snprintf(cluster, sizeof cluster, "%s%s", three, faults);
    ground_open(&ground, t, set);
    p->train = (struct sim_train){
        .ground = &ground,
        .cluster = cluster,
        .host = change_host,
        .fault = on_fault,
        .user = p,
        .options = {.elsewhere = true, .patience_s = 60},
        .limit_s = 4000,
    };
    sim_train_play(&p->train);
    if (p->train.rc != OK)
        print_message("    %s\n", p->train.err.text);
    ground_close(&ground);
    return p->train.rc;
}

static void test_opening_worker_is_waited_for(void **state)
{
    struct play p = {.open_s = {0, 0, 300}};
    assert_int_equal(run_opening(*state, &p, 3, ""), OK);
    assert_non_null(strstr(p.train.log, "worker 2 (attic) gets ready: "));
}

static void test_opening_driver_is_waited_for(void **state)
{
    struct play p = {.open_s = {0, 0, 0, 300}};
    assert_int_equal(run_opening(*state, &p, 3, ""), OK);
}

static void test_opening_without_progress_loses_its_place(void **state)
{
    struct play p = {.open_s = {0, 0, 300}};
    assert_int_equal(run_opening(*state, &p, 3, "fault { at: 100 pause: 2 for: 1000 }"),
                     ERR_TIMEOUT);
    assert_non_null(
        strstr(p.train.log, "worker 2 (attic) left while opening: no progress for 60 s"));
    assert_non_null(
        strstr(p.train.err.text, "not all of 3 workers arrived: no progress for 60 s: worker 2"));
}

static void test_opening_without_progress_delays_no_other(void **state)
{
    struct play p = {.open_s = {200, 0, 300}};
    assert_int_equal(run_opening(*state, &p, 2, "fault { at: 20 pause: 2 for: 1000 }"), OK);
    assert_non_null(
        strstr(p.train.log, "worker 2 (attic) left while opening: no progress for 60 s"));
}

static void test_opening_ends_when_asked_to_leave(void **state)
{
    struct play p = {.open_s = {100, 0, 300}};
    assert_int_equal(run_opening(*state, &p, 2, "fault { at: 20 leave: 2 }"), OK);
    assert_non_null(
        strstr(p.train.log, "worker 2 (attic) left while opening: it was asked to leave"));
}

static void test_opening_ends_with_its_connection(void **state)
{
    struct play p = {.open_s = {100, 0, 300}};
    assert_int_equal(run_opening(*state, &p, 2, "fault { at: 20 kill: 2 }"), OK);
    assert_non_null(strstr(p.train.log,
                           "worker 2 (attic) left while opening: its connection has ended, "
                           "after "));
}

static void test_opening_what_is_not_there_concerns_one_worker(void **state)
{
    struct play p = {.root = "/there/is/no/such/folder"};
    assert_int_equal(run_opening(*state, &p, 2, ""), OK);
    assert_non_null(strstr(p.train.log, "worker 2 (attic) left while opening: "));
    assert_non_null(strstr(p.train.log, "start the worker with another --data-root"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening_worker_is_waited_for),
        cmocka_unit_test(test_opening_driver_is_waited_for),
        cmocka_unit_test(test_opening_without_progress_loses_its_place),
        cmocka_unit_test(test_opening_without_progress_delays_no_other),
        cmocka_unit_test(test_opening_ends_when_asked_to_leave),
        cmocka_unit_test(test_opening_ends_with_its_connection),
        cmocka_unit_test(test_opening_what_is_not_there_concerns_one_worker),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
