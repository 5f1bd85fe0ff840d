#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "job/cluster.h"

#include <string.h>

static Paceline__Cluster *parse_cluster(const char *text)
{
    struct err err = {0};
    Paceline__Cluster *cluster = NULL;
    if (cluster_parse("t", text, strlen(text), &cluster, &err) != OK)
        fail_msg("%s", err.text);
    return cluster;
}

static void refuses_as(const char *text, int status, const char *message)
{
    struct err err = {0};
    Paceline__Cluster *cluster = parse_cluster(text);
    assert_int_equal(cluster_finish(cluster, &err), status);
    assert_int_equal(err.status, status);
    assert_string_equal(err.text, message);
    cluster_free(cluster);
}

static void expect_refusal(const char *text, const char *message)
{
    refuses_as(text, ERR_INPUT, message);
}

static void test_one_node_is_a_cluster(void **state)
{
    (void)state;
    struct err err = {0};
    Paceline__Cluster *cluster = parse_cluster("node { }");
    assert_int_equal(cluster_finish(cluster, &err), OK);
    assert_int_equal(cluster_nodes(cluster), 1);
    assert_true(cluster->driver->speed == 1);
    assert_int_equal(cluster->driver->cores, 1);
    assert_true(cluster->link->mbit == 1000 && cluster->link->latency_us == 100);
    assert_true(cluster->link->loss == 0);
    assert_false(cluster->has_step_seconds);
    cluster_free(cluster);
}

static void test_nodes_are_numbered_in_order_of_entries(void **state)
{
    (void)state;
    struct err err = {0};
    Paceline__Cluster *cluster = parse_cluster(
        "node { count: 2 speed: 1 } node { speed: 2 } node { count: 3 speed: 3 } "
        "fault { at: 0 kill: 5 } fault { at: 1 slow: -1 } "
        "delay { from: -1 to: 5 seconds: 0.5 tag: 'sum' nth: 2 } delay { seconds: 0 }");
    if (cluster_finish(cluster, &err) != OK)
        fail_msg("%s", err.text);
    static const double speeds[] = {1, 1, 2, 3, 3, 3};
    assert_int_equal(cluster_nodes(cluster), 6);
    for (uint32_t i = 0; i < 6; i++)
        assert_true(cluster_node(cluster, i)->speed == speeds[i]);
    assert_int_equal(cluster->n_node, 3);
    cluster_free(cluster);
}

static void test_errors_in_the_text_have_a_place(void **state)
{
    (void)state;
    struct err err = {0};
    Paceline__Cluster *cluster = NULL;
    const char *text = "node {\n  sped: 2 }";
    assert_int_equal(cluster_parse("c", text, strlen(text), &cluster, &err), ERR_INPUT);
    assert_string_equal(err.text, "c:2:3: Node has no field `sped`; did you mean `speed`?");
    assert_null(cluster);
}

static void test_nodes_out_of_range(void **state)
{
    (void)state;
    expect_refusal("", "node: is missing");
    expect_refusal("node { count: 0 }", "node[0].count: must be from 1 to 1024, is 0");
    expect_refusal("node { count: 1000 } node { count: 25 }",
                   "node: must be at most 1024 in all, is 1025");
    expect_refusal("node { } node { speed: 0 }", "node[1].speed: must be > 0, is 0");
    expect_refusal("node { speed: -1 }", "node[0].speed: must be > 0, is -1");
    expect_refusal("node { speed: inf }", "node[0].speed: must be a finite number, is inf");
    expect_refusal("node { jitter: 1 }", "node[0].jitter: must be >= 0 and < 1, is 1");
    expect_refusal("node { jitter: nan }", "node[0].jitter: must be >= 0 and < 1, is nan");
    expect_refusal("node { cores: 0 }", "node[0].cores: must be from 1 to 4096, is 0");
    expect_refusal("node { } driver { speed: 0 }", "driver.speed: must be > 0, is 0");
    expect_refusal("node { } driver { cores: 0 }", "driver.cores: must be from 1 to 4096, is 0");
    expect_refusal("node { } step_seconds: 0", "step_seconds: must be > 0, is 0");
}

static void test_links_out_of_range(void **state)
{
    (void)state;
    expect_refusal("node { } link { mbit: 0 }", "link.mbit: must be > 0, is 0");
    expect_refusal("node { } link { latency_us: -1 }", "link.latency_us: must be >= 0, is -1");
    expect_refusal("node { } link { loss: 1 }", "link.loss: must be >= 0 and < 1, is 1");
    expect_refusal("node { } costs { copy_gb_s: 0 }", "costs.copy_gb_s: must be > 0, is 0");
    expect_refusal("node { } costs { reduce_gb_s: -1 }", "costs.reduce_gb_s: must be > 0, is -1");
    expect_refusal("node { } costs { crypto_gb_s: nan }", "costs.crypto_gb_s: must be > 0, is nan");
    expect_refusal("node { } delay { }", "delay[0].seconds: is missing");
    expect_refusal("node { } delay { seconds: -1 }", "delay[0].seconds: must be >= 0, is -1");
    expect_refusal("node { } delay { seconds: 1 from: 1 }",
                   "delay[0].from: no node 1; there are 0 to 0, and -1, the driver");
    expect_refusal("node { } delay { seconds: 1 to: -2 }",
                   "delay[0].to: no node -2; there are 0 to 0, and -1, the driver");
    expect_refusal("node { } delay { seconds: 1 tag: '' }", "delay[0].tag: is missing");
}

static void test_faults_out_of_range(void **state)
{
    (void)state;
    expect_refusal("node { } fault { kill: 0 }", "fault[0].at: is missing");
    expect_refusal("node { } fault { at: -1 kill: 0 }", "fault[0].at: must be >= 0, is -1");
    expect_refusal("node { } fault { at: 1 }",
                   "fault[0]: expected one of kill, slow, clog, leave, join, pause, part, mute, "
                   "reset, shuffle, starve, leap, want");
    expect_refusal("node { } fault { at: 1 leap: 0 seconds: 0 }",
                   "fault[0].seconds: must be > 0, is 0");
    expect_refusal("node { count: 2 } fault { at: 1 kill: 0 } fault { at: 1 kill: 2 }",
                   "fault[1].kill: no node 2; there are 0 to 1, and -1, the driver");
    expect_refusal("node { } fault { at: 1 slow: 1 }",
                   "fault[0].slow: no node 1; there are 0 to 0, and -1, the driver");
    expect_refusal("node { } fault { at: 1 slow: 0 factor: 0 }",
                   "fault[0].factor: must be > 0, is 0");
    expect_refusal("node { } fault { at: 1 slow: 0 for: 0 }", "fault[0].for: must be > 0, is 0");
    expect_refusal("node { } fault { at: 1 kill: 0 for: 1 }",
                   "fault[0].for: only for faults that last, not for `kill`");
    expect_refusal("node { } fault { at: 1 kill: 0 factor: 3 }",
                   "fault[0].factor: only for faults that last, not for `kill`");
}

static void test_killed_driver_returns(void **state)
{
    (void)state;
    expect_refusal("node { } fault { at: 1 kill: -1 }",
                   "fault[0].for: is missing: a run whose driver does not return is over");
    expect_refusal("node { } fault { at: 1 kill: -1 for: 0 }", "fault[0].for: must be > 0, is 0");
    expect_refusal("node { } fault { at: 1 kill: -1 for: 1 factor: 2 }",
                   "fault[0].factor: only for faults that last, not for `kill`");
    Paceline__Cluster *cluster = NULL;
    struct err err = {0};
    const char *text = "node { } fault { at: 1 kill: -1 for: 0.5 }";
    assert_int_equal(cluster_parse("c", text, strlen(text), &cluster, &err), OK);
    assert_int_equal(cluster_finish(cluster, &err), OK);
    cluster_free(cluster);
}

static void test_the_example_is_a_cluster(void **state)
{
    (void)state;
    struct err err = {0};
    struct file_bytes file;
    if (file_read(TEST_ROOT "/examples/gbe8.cluster", 1 << 20, &file, &err) != OK)
        fail_msg("%s", err.text);
    Paceline__Cluster *cluster = parse_cluster((const char *)file.data);
    if (cluster_finish(cluster, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(cluster_nodes(cluster), 8);
    assert_true(cluster_node(cluster, 5)->speed == 1);
    assert_true(cluster_node(cluster, 6)->jitter == 0.1);
    assert_true(cluster->step_seconds == 0.004);
    assert_int_equal(cluster->fault[0]->what_case, PACELINE__FAULT__WHAT_SLOW);
    assert_int_equal(cluster->fault[1]->kill, 3);
    cluster_free(cluster);
    file_release(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_node_is_a_cluster),
        cmocka_unit_test(test_nodes_are_numbered_in_order_of_entries),
        cmocka_unit_test(test_errors_in_the_text_have_a_place),
        cmocka_unit_test(test_nodes_out_of_range),
        cmocka_unit_test(test_links_out_of_range),
        cmocka_unit_test(test_faults_out_of_range),
        cmocka_unit_test(test_killed_driver_returns),
        cmocka_unit_test(test_the_example_is_a_cluster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
