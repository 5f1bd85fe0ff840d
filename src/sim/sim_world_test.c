/* The simulator passes the conformance suite of worlds, with both back ends. */
#include "job/cluster.h"
#include "sim/sim.h"
#include "world/world_test_suite.h"

#include <stdio.h>

struct setting {
    const char *cluster;
    enum sim_backend backend;
};

struct crew {
    uint32_t n;
    const suite_main *main;
    int *result;
};

/* The driver starts the crew and stays until all of it has gone. */
static int drive_crew(struct world *w, uint32_t n)
{
    int rc = world_want_nodes(w, n);
    for (uint32_t gone = 0; rc == OK && gone < n;) {
        struct wait_for change = {.kind = WAIT_PEER};
        struct wake wake;
        rc = world_wait(w, &change, 1, WORLD_FOREVER, &wake);
        gone += rc == OK && !wake.up;
    }
    return rc;
}

static int crew_main(void *arg, struct world *w)
{
    struct crew *crew = arg;
    if (w->self == WORLD_DRIVER)
        return drive_crew(w, crew->n);
    return crew->result[w->self] = crew->main[w->self](w);
}

static void print_line(void *user, enum log_level level, const char *line)
{
    (void)user, (void)level;
    print_message("%s\n", line);
}

static int run_suite(struct world_fixture *fixture, uint32_t n, const suite_main *main, int *result)
{
    const struct setting *setting = fixture->user;
    static const struct logger log = {.write = print_line, .level = LOG_WARN};
    Paceline__Cluster *cluster = NULL;
    struct crew crew = {n, main, result};
    struct err err = {0};
    struct sim *sim = NULL;
    int rc = cluster_parse("test", setting->cluster, strlen(setting->cluster), &cluster, &err);
    if (rc == OK)
        rc = cluster_finish(cluster, &err);
    if (rc == OK)
        rc = sim_create(&(struct sim_options){.cluster = cluster,
                                              .workers = n,
                                              .seed = 1,
                                              .backend = setting->backend,
                                              .log = &log,
                                              .node_main = crew_main,
                                              .arg = &crew},
                        &sim, &err);
    if (rc == OK)
        rc = sim_run(sim, 1000 * WORLD_SECOND);
    sim_free(sim);
    cluster_free(cluster);
    return rc;
}

int main(void)
{
    static const char lan[] = "node { count: 3 }",
                      lossy[] = "node { count: 3 } link { mbit: 10000 loss: 0.02 }";
    struct setting fibres = {lan, SIM_FIBRES}, lossy_fibres = {lossy, SIM_FIBRES},
                   baton = {lan, SIM_BATON}, lossy_baton = {lossy, SIM_BATON};
    struct world_fixture on[] = {{run_suite, &fibres},
                                 {run_suite, &lossy_fibres},
                                 {run_suite, &baton},
                                 {run_suite, &lossy_baton}};
    const struct CMUnitTest tests[] = {WORLD_SUITE_TESTS(&on[0]), WORLD_SUITE_TESTS(&on[1]),
                                       WORLD_SUITE_TESTS(&on[2]), WORLD_SUITE_TESTS(&on[3])};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
