/* The real world passes the conformance suite of worlds, whatever its bytes go through: several
 * worlds in one process, on loopback, a thread a node. */
#include "real/real_test_kit.h"

#include <pthread.h>

struct player {
    struct world *world;
    suite_main main;
    int result;
    pthread_t thread;
};

static int play_main(void *arg)
{
    struct player *p = arg;
    return p->main(p->world);
}

/* A node ends with its main, and its world with it: the others see it go. */
static void *play_and_close(void *arg)
{
    struct player *p = arg;
    p->result = real_run(p->world, play_main, p, NULL);
    real_close(p->world);
    return NULL;
}

static int introduce_players(struct player *p, uint32_t n)
{
    int rc = OK;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; rc == OK && k < n; k++) {
            char address[64];
            world_address(p[k].world, address, sizeof address);
            if (k != i)
                rc = world_peer_add(p[i].world, k, address);
        }
    return rc;
}

static int run_suite(struct world_fixture *fixture, uint32_t n, const suite_main *main, int *result)
{
    (void)fixture;
    struct world *driver;
    struct player p[SUITE_NODES_MAX] = {0};
    char address[64];
    struct err err = {0};
    struct real_options options = {.seed = 1,
                                   .stripes = kit_way()->stripes,
                                   .no_shm = kit_way()->no_shm,
                                   .ucx = kit_way()->ucx};
    int rc = real_open(&options, &driver, &err);
    if (rc != OK)
        return rc;
    world_address(driver, address, sizeof address);
    uint32_t opened = 0;
    options.driver = address;
    for (; rc == OK && opened < n; opened += rc == OK)
        rc = real_open(&options, &p[opened].world, &err);
    if (rc == OK)
        rc = introduce_players(p, n);
    for (uint32_t i = 0; i < opened; i++) {
        p[i].main = main[i];
        if (rc != OK)
            real_close(p[i].world);
        else if (pthread_create(&p[i].thread, NULL, play_and_close, &p[i]) != 0)
            return ERR_NOMEM;
    }
    for (uint32_t i = 0; rc == OK && i < n; i++) {
        pthread_join(p[i].thread, NULL);
        result[i] = p[i].result;
    }
    real_close(driver);
    if (rc != OK)
        print_error("%s\n", err.text);
    return rc;
}

int main(void)
{
    struct world_fixture loopback = {run_suite, NULL};
    const struct CMUnitTest tests[] = {WORLD_SUITE_TESTS(&loopback)};
    KIT_RUN_ALL_WAYS(tests);
}
